//! What is done with a message's value when the message is finished: `#[provide(scoped, dispose = f)]`.

use std::any::type_name;
use std::sync::Arc;

use futures_util::FutureExt;

use super::extract::{Scoped, not_provided};
use super::handler::Outcome;
use crate::error::Result;
use crate::message::Verdict;
use crate::scope::Disposal;

/// What `#[provide(scoped, dispose = …)]` can name, for a provider of `T`.
#[diagnostic::on_unimplemented(
    message = "this cannot dispose of a `{T}`",
    label = "not such a function",
    note = "write `async fn f(value: Scoped<{T}>)`, or with `-> Result<()>`"
)]
pub trait Dispose<T>: Clone + Send + Sync + 'static {
    /// Disposes of it.
    fn dispose(self, value: Scoped<T>) -> impl Future<Output = Result<()>> + Send;
}

#[diagnostic::do_not_recommend]
impl<T, F, Called> Dispose<T> for F
where
    T: Send + Sync + 'static,
    F: Fn(Scoped<T>) -> Called + Clone + Send + Sync + 'static,
    Called: Future + Send + 'static,
    Called::Output: Outcome,
{
    async fn dispose(self, value: Scoped<T>) -> Result<()> {
        match self(value).await.verdict() {
            Verdict::Retry { error, .. } | Verdict::DeadLetter { error: Some(error), .. } => Err(error),
            _ => Ok(()),
        }
    }
}

/// A function with its types forgotten, as the pipeline calls it.
pub(super) fn erased<T: Send + Sync + 'static>(function: impl Dispose<T>) -> Disposal {
    Disposal {
        type_name: type_name::<T>(),
        dispose: Arc::new(move |value| {
            let function = function.clone();
            let value = value.downcast::<T>().map_err(|_| not_provided::<T>());
            async move { function.dispose(Scoped(value?)).await }.boxed()
        }),
    }
}
