//! What a processor has done before one of its messages is dead-lettered: `#[processor(before_dead_letter = f)]`.

use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::extract::{Extract, Requirement};
use super::handler::{Outcome, Source};
use crate::error::{Error, Result};
use crate::message::{Delivery, Verdict};
use crate::pipeline::layers::before_dead_letter::HookFn;

/// A message that is about to be dead-lettered, as the function named by `#[processor(before_dead_letter = …)]` gets it.
///
/// ```
/// use bus::prelude::*;
/// # struct Support;
/// # impl Support { async fn tell(&self, _: String) -> Result<()> { Ok(()) } }
///
/// #[derive(Serialize, Deserialize, Command)]
/// #[command(queue = "charge-card")]
/// struct ChargeCard { order_id: u64 }
///
/// #[processor(before_dead_letter = tell_support)]
/// async fn charge_card(command: ChargeCard) -> Result<()> {
/// #   let _ = command;
///     // …
/// #   Ok(())
/// }
///
/// async fn tell_support(letter: DeadLettering<ChargeCard>, support: Dep<Support>) -> Result<()> {
///     let order = letter.message?.order_id;
///     support.tell(format!("order {order} could not be charged: {}", letter.reason)).await
/// }
/// # fn main() {}
/// ```
///
/// After this one, the function takes up to six of the arguments that its processor could take, and it returns what a
/// processor may return.
///
/// It runs when the verdict has been reached and before the store is told, within the message's scope and under its
/// claim. It changes nothing about the verdict: if it fails, panics, or takes longer than the processor's
/// `message_lock_timeout`, after which it is dropped, that is logged (`hook.failed`).
///
/// A `CancellationToken` that it takes has fired already if the run was out of time, and a singleton's runs it only while
/// the term is in force.
///
/// It may run again for the same message: if the process dies or the claim is lost before the store has taken the
/// verdict. It does not run for a message that has crashed its process too often, since it might do it once more, nor for
/// one that the store gives up on by itself: one past its time to live, or bytes that are no message of ours.
#[derive(Debug)]
#[non_exhaustive]
pub struct DeadLettering<M> {
    /// The message, or why it cannot be decoded.
    pub message: Result<M>,
    /// Why it is given up on, as it will stand with the dead letter.
    pub reason: String,
    /// What failed last, where something did.
    pub error: Option<Error>,
}

impl<M> DeadLettering<M> {
    /// One by hand, to call the function in a test.
    pub fn for_tests(message: M, reason: impl Into<String>) -> Self {
        DeadLettering { message: Ok(message), reason: reason.into(), error: None }
    }
}

/// What `#[processor(before_dead_letter = …)]` can name, for a processor of kind `C` that takes `M`; `Arguments` are what
/// it takes beside the message.
#[diagnostic::on_unimplemented(
    message = "this cannot be called before a `{M}` is dead-lettered",
    label = "not such a function",
    note = "write `async fn f(letter: DeadLettering<{M}>, …) -> Result<()>`, with up to six arguments that a processor could take",
    note = "a `Term` can be had by a singleton's only"
)]
pub trait BeforeDeadLetter<M, C, Arguments>: Clone + Send + Sync + 'static {
    /// What must be provided for its arguments.
    fn requires() -> Vec<Requirement>;
    /// Calls it, with arguments made from the delivery.
    fn call(self, letter: DeadLettering<M>, delivery: Delivery) -> BoxFuture<'static, Verdict>;
}

/// For a function of so many arguments beside the message.
macro_rules! of_arguments {
    ($($argument:ident)*) => {
        impl<M, C, F, Called, $($argument,)*> BeforeDeadLetter<M, C, ($($argument,)*)> for F
        where
            M: Send + 'static,
            F: Fn(DeadLettering<M> $(, $argument)*) -> Called + Clone + Send + Sync + 'static,
            Called: Future + Send + 'static,
            Called::Output: Outcome,
            $($argument: Extract<C>,)*
        {
            fn requires() -> Vec<Requirement> {
                #[allow(unused_mut, reason = "there may be no arguments")]
                let mut all = Vec::new();
                $(all.extend($argument::requires());)*
                all
            }

            #[allow(unused_variables, reason = "there may be no arguments")]
            fn call(self, letter: DeadLettering<M>, delivery: Delivery) -> BoxFuture<'static, Verdict> {
                Box::pin(async move {
                    $(
                        #[allow(non_snake_case, reason = "named like its type")]
                        let $argument = match $argument::extract(&delivery).await {
                            Ok(value) => value,
                            Err(error) => return Verdict::Retry { after: None, error },
                        };
                    )*
                    self(letter $(, $argument)*).await.verdict()
                })
            }
        }
    };
}
of_arguments!();
of_arguments!(A);
of_arguments!(A B);
of_arguments!(A B D);
of_arguments!(A B D E);
of_arguments!(A B D E G);
of_arguments!(A B D E G H);

/// A function with its types forgotten, as the pipeline calls it.
pub(super) fn erased<M, C, Arguments, F>(source: Source<M>, function: F) -> HookFn
where
    M: Send + 'static,
    F: BeforeDeadLetter<M, C, Arguments>,
{
    Arc::new(move |delivery, reason, error| {
        let letter = DeadLettering { message: source.message(&delivery.envelope), reason, error };
        function.clone().call(letter, delivery)
    })
}
