//! What a handler can take as arguments beside its message.

use std::any::{TypeId, type_name};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::provide::ScopedProviders;
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Delivery, Headers, MessageId};
use crate::sender::Bus;
use crate::singleton::Term;

/// An argument of a handler: it is made from the delivery, anew for each message.
///
/// `C` is the kind of processor that asks: [`Plain`] or [`Singleton`]. An extractor that works in both is written for
/// every `C`; one that needs a singleton asks for `C: HasTerm`.
///
/// ```
/// use bus::prelude::*;
///
/// struct Tenant(String);
///
/// impl<C> Extract<C> for Tenant {
///     async fn extract(delivery: &Delivery) -> bus::Result<Self> {
///         match delivery.envelope.headers.get("tenant") {
///             Some(tenant) => Ok(Tenant(tenant.to_owned())),
///             None => Err(bus::Error::dead_letter("it has no header `tenant`")),
///         }
///     }
/// }
///
/// # #[derive(Serialize, Deserialize, Command)] #[command(queue = "greet")] struct Greet;
/// #[processor]
/// async fn greet(_message: Greet, Tenant(tenant): Tenant) {
///     println!("hello, {tenant}");
/// }
/// # fn main() {}
/// ```
///
/// An error is treated like one that the handler returns: the message is tried again as the processor's `retry` says,
/// unless the error is [`Error::retry_after`] or [`Error::dead_letter`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a processor",
    label = "not an extractor",
    note = "after the message, a processor takes `Dep<T>`, `Scoped<T>`, `Bus`, `Headers`, `MessageId`, `DeliveryCount`, `CancellationToken`, and `Term` if it is a singleton",
    note = "wrap a value of your own in `Dep<…>` and make it with `#[provide]`, or implement `bus::processor::Extract` for it"
)]
pub trait Extract<C>: Sized + Send + 'static {
    /// Makes the argument.
    ///
    /// # Errors
    /// Whatever is wrong with the message or its surroundings; the handler is not called then.
    fn extract(delivery: &Delivery) -> impl Future<Output = Result<Self>> + Send;

    /// What must be provided for this to work; asked once, when the host starts.
    fn requires() -> Vec<Requirement> {
        Vec::new()
    }
}

/// The kind of a processor that runs wherever there is room.
#[derive(Clone, Copy, Debug)]
pub enum Plain {}

/// The kind of a processor that runs on one host at a time, under a term.
#[derive(Clone, Copy, Debug)]
pub enum Singleton {}

/// Kinds of processors that run under a term.
#[diagnostic::on_unimplemented(
    message = "only a singleton has a `Term`, and this processor is none",
    label = "not a singleton",
    note = "write `#[processor(singleton)]`, or leave the argument out"
)]
pub trait HasTerm {}
impl HasTerm for Singleton {}

/// Something that must be provided, by `#[provide]`, `#[provide(scoped)]` or `Host::builder().provide(…)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Requirement {
    /// The type's identity.
    pub id: TypeId,
    /// The type's name, for people.
    pub type_name: &'static str,
    /// Whether it is needed once per message (`Scoped<T>`) rather than once per host (`Dep<T>`).
    pub scoped: bool,
}

impl Requirement {
    /// A `T` for the whole host.
    pub fn host<T: 'static>() -> Self {
        Requirement { id: TypeId::of::<T>(), type_name: type_name::<T>(), scoped: false }
    }

    /// A `T` for each message.
    pub fn scoped<T: 'static>() -> Self {
        Requirement { scoped: true, ..Requirement::host::<T>() }
    }

    /// Whether it is a `T`.
    pub fn is<T: 'static>(&self) -> bool {
        self.id == TypeId::of::<T>()
    }
}

/// A value that the whole host shares: made once, by `#[provide]` or `Host::builder().provide(…)`.
pub struct Dep<T>(pub(crate) Arc<T>);

impl<T> Dep<T> {
    /// A dependency by hand, to call a handler in a test.
    pub fn new(value: T) -> Self {
        Dep(Arc::new(value))
    }

    /// The shared value itself.
    pub fn into_inner(self) -> Arc<T> {
        self.0
    }
}

/// A value of one message: made by `#[provide(scoped)]`, or given by a [`ScopeProvider`](super::ScopeProvider), when it is
/// first asked for; the same for all who ask during the message's run; disposed of when the message is finished.
pub struct Scoped<T>(pub(crate) Arc<T>);

impl<T> Scoped<T> {
    /// A scoped value by hand, to call a handler in a test.
    pub fn new(value: T) -> Self {
        Scoped(Arc::new(value))
    }

    /// The shared value itself. Kept beyond the handler, it outlives its message.
    pub fn into_inner(self) -> Arc<T> {
        self.0
    }
}

/// How often the message has been claimed, this time included. More than 1 says that it may have been worked on before.
/// 1 does not say the contrary: a dead letter that was put back begins at 1 again, and so does a second copy that its
/// sender sent with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryCount(pub u32);

impl fmt::Display for DeliveryCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Both wrappers behave as what they hold.
macro_rules! behaves_as_its_value {
    ($wrapper:ident) => {
        impl<T> Deref for $wrapper<T> {
            type Target = T;
            fn deref(&self) -> &T {
                &self.0
            }
        }

        impl<T> Clone for $wrapper<T> {
            fn clone(&self) -> Self {
                $wrapper(Arc::clone(&self.0))
            }
        }

        impl<T: fmt::Debug> fmt::Debug for $wrapper<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($wrapper)).field(&self.0).finish()
            }
        }

        impl<T> From<Arc<T>> for $wrapper<T> {
            fn from(value: Arc<T>) -> Self {
                $wrapper(value)
            }
        }
    };
}
behaves_as_its_value!(Dep);
behaves_as_its_value!(Scoped);

/// For what start-up has checked already: it is missing only where a delivery was made by hand.
pub(super) fn not_provided<T>() -> Error {
    Error::new(ErrorKind::Wiring, "nothing provides this value").with("type", type_name::<T>())
}

impl<C, T: Send + Sync + 'static> Extract<C> for Dep<T> {
    async fn extract(delivery: &Delivery) -> Result<Self> {
        delivery.scope.host().get().map(Dep).ok_or_else(not_provided::<T>)
    }

    fn requires() -> Vec<Requirement> {
        vec![Requirement::host::<T>()]
    }
}

impl<C, T: Send + Sync + 'static> Extract<C> for Scoped<T> {
    async fn extract(delivery: &Delivery) -> Result<Self> {
        let providers = delivery.scope.host().get::<ScopedProviders>().ok_or_else(not_provided::<T>)?;
        providers.value(delivery).await.map(Scoped)
    }

    fn requires() -> Vec<Requirement> {
        vec![Requirement::scoped::<T>()]
    }
}

impl<C> Extract<C> for Headers {
    async fn extract(delivery: &Delivery) -> Result<Self> {
        Ok(delivery.envelope.headers.clone())
    }
}

impl<C> Extract<C> for MessageId {
    async fn extract(delivery: &Delivery) -> Result<Self> {
        Ok(delivery.envelope.id)
    }
}

impl<C> Extract<C> for DeliveryCount {
    async fn extract(delivery: &Delivery) -> Result<Self> {
        Ok(DeliveryCount(delivery.delivery_count))
    }
}

/// Fires when the run should come to an end: its time is up, its term is lost, or the host stops for good.
impl<C> Extract<C> for CancellationToken {
    async fn extract(delivery: &Delivery) -> Result<Self> {
        Ok(delivery.scope.cancellation().clone())
    }
}

impl<C> Extract<C> for Bus {
    async fn extract(delivery: &Delivery) -> Result<Self> {
        delivery.scope.host().get::<Bus>().map(|bus| Bus::clone(&bus)).ok_or_else(not_provided::<Bus>)
    }
}

impl<C: HasTerm> Extract<C> for Term {
    async fn extract(delivery: &Delivery) -> Result<Self> {
        delivery.scope.get::<Term>().map(|term| Term::clone(&term)).ok_or_else(not_provided::<Term>)
    }
}
