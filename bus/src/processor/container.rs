//! Values for messages from a container of the user's own.

use std::any::{Any, TypeId, type_name};
use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::extract::{Requirement, not_provided};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Delivery;
use crate::scope::{Disposal, Value};

/// A container of yours that gives each message a scope of its own, for what handlers ask for as
/// [`Scoped<T>`](crate::Scoped).
///
/// ```
/// use std::any::Any;
/// use std::sync::Arc;
///
/// use bus::contract::BoxFuture;
/// use bus::prelude::*;
/// use bus::processor::{MessageScope, Requirement, ScopeProvider};
///
/// /// Stands for a container that knows how to make a `Session`.
/// struct Container;
/// struct Session;
///
/// impl ScopeProvider for Container {
///     fn provides(&self, value: &Requirement) -> bool {
///         value.is::<Session>()
///     }
///
///     fn open<'a>(&'a self, _delivery: &'a Delivery) -> BoxFuture<'a, Result<Arc<dyn MessageScope>>> {
///         Box::pin(async { Ok(Arc::new(OneMessage) as Arc<dyn MessageScope>) })
///     }
/// }
///
/// struct OneMessage;
///
/// impl MessageScope for OneMessage {
///     fn get<'a>(&'a self, _value: &'a Requirement) -> BoxFuture<'a, Result<Arc<dyn Any + Send + Sync>>> {
///         Box::pin(async { Ok(Arc::new(Session) as Arc<dyn Any + Send + Sync>) })
///     }
///
///     fn close(&self) -> BoxFuture<'_, Result<()>> {
///         Box::pin(async { Ok(()) })
///     }
/// }
///
/// # #[derive(Serialize, Deserialize, Command)] #[command(queue = "book-payment")] struct BookPayment;
/// #[processor]
/// async fn book_payment(_message: BookPayment, _session: Scoped<Session>) {}
///
/// # fn example() -> Result<()> {
/// let host = bus::Host::builder().transport("default", "sqlite://orders.db").scope_provider(Container).build()?;
/// # drop(host);
/// # Ok(())
/// # }
/// # fn main() {}
/// ```
///
/// A scope is opened when the first of its values is asked for, at most once for each attempt at a message, and
/// [closed](MessageScope::close) when the message is finished: after what was made later, and before what was made
/// sooner. What it gives goes before a `#[provide(scoped)]` of the same type.
pub trait ScopeProvider: Send + Sync + 'static {
    /// Whether its scopes have such a value; asked when the host is built, for each type that something needs.
    fn provides(&self, value: &Requirement) -> bool;

    /// Opens a scope for a message.
    ///
    /// # Errors
    /// Whatever keeps it from that: the attempt has failed then, as if the handler had.
    fn open<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<Arc<dyn MessageScope>>>;
}

/// The scope of one message, from a [`ScopeProvider`].
pub trait MessageScope: Send + Sync + 'static {
    /// The value of this type. Asked once for each type that is needed; whoever needs it later gets the same one.
    ///
    /// # Errors
    /// Whatever keeps it from that: the attempt has failed then, as if the handler had.
    fn get<'a>(&'a self, value: &'a Requirement) -> BoxFuture<'a, Result<Arc<dyn Any + Send + Sync>>>;

    /// The message is finished, however that came about: its handler has ended, failed, panicked or been dropped. The store
    /// is told of the verdict when this has returned, or after
    /// [`DISPOSAL_LIMIT`](crate::pipeline::layers::scope::DISPOSAL_LIMIT).
    ///
    /// # Errors
    /// Whatever people should read in the log; it changes nothing about the message.
    fn close(&self) -> BoxFuture<'_, Result<()>>;
}

/// The container of a host, as one of its values.
pub(crate) struct Container {
    provider: Arc<dyn ScopeProvider>,
    closing: Disposal,
}

impl Container {
    pub(crate) fn new(provider: impl ScopeProvider) -> Self {
        Container { provider: Arc::new(provider), closing: closing() }
    }

    /// Whether it gives this value.
    pub(crate) fn provides(&self, value: &Requirement) -> bool {
        value.scoped && self.provider.provides(value)
    }

    /// A value for this delivery.
    pub(super) async fn value<T: Send + Sync + 'static>(&self, delivery: &Delivery) -> Result<Value> {
        let value = self.scope(delivery).await?.get(&Requirement::scoped::<T>()).await?;
        match (*value).is::<T>() {
            true => Ok(value),
            false => Err(Error::new(ErrorKind::Handler, "the scope provider gave a value of another type")
                .with("type", type_name::<T>())),
        }
    }

    /// The scope of this delivery, opened now if nobody has asked for anything yet.
    async fn scope(&self, delivery: &Delivery) -> Result<Arc<dyn MessageScope>> {
        let open = async { Ok(Arc::new(Opened(self.provider.open(delivery).await?)) as Value) };
        let opened = delivery.scope.get_or_build(TypeId::of::<Opened>(), Some(&self.closing), open).await?;
        let opened = opened.downcast::<Opened>().map_err(|_| not_provided::<Opened>())?;
        Ok(Arc::clone(&opened.0))
    }
}

impl fmt::Debug for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Container").finish_non_exhaustive()
    }
}

/// A scope that has been opened, as a value of its message.
struct Opened(Arc<dyn MessageScope>);

fn closing() -> Disposal {
    Disposal {
        type_name: "the scope of the scope provider",
        dispose: Arc::new(|value| {
            async move {
                match value.downcast::<Opened>() {
                    Ok(opened) => opened.0.close().await,
                    Err(_) => Ok(()),
                }
            }
            .boxed()
        }),
    }
}
