//! What sees each message before it is sent.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::{Run, reserved};
use crate::contract::{BoxFuture, Due, Outgoing};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Envelope, Headers, Target};
use crate::pipeline::layers::panics;

/// Sees every message that is sent or published, before the store does; by whatever [`Bus`](super::Bus) handle of its host,
/// in a handler or outside. It may add headers, or refuse the message with an error, which the sender gets.
///
/// Implemented for every `async fn(OutgoingMessage) -> Result<OutgoingMessage>`:
///
/// ```
/// use bus::prelude::*;
/// use bus::sender::OutgoingMessage;
///
/// async fn name_the_tenant(mut message: OutgoingMessage) -> Result<OutgoingMessage> {
///     message.envelope.headers.insert("tenant", "acme");
///     Ok(message)
/// }
///
/// # fn example() -> Result<()> {
/// let host = bus::Host::builder().transport("default", "sqlite://orders.db").outgoing_middleware(name_the_tenant).build()?;
/// # drop(host);
/// # Ok(())
/// # }
/// ```
///
/// A panic is an error of the send ([`ErrorKind::Handler`]), and so is a header of the bus's own that it has changed
/// ([`ErrorKind::InvalidInput`]). Its own time is not bounded; whoever drops the send's future drops it too.
///
/// What is not sent anew does not pass it again: a message that is tried again, dead-lettered or put back.
#[diagnostic::on_unimplemented(
    message = "this is no outgoing middleware",
    label = "no outgoing middleware",
    note = "write `async fn f(message: OutgoingMessage) -> Result<OutgoingMessage>`, whose future is `Send`"
)]
pub trait OutgoingMiddleware: Send + Sync + 'static {
    /// The message as it is to be sent.
    ///
    /// # Errors
    /// Why it is not.
    fn handle(&self, message: OutgoingMessage) -> BoxFuture<'static, Result<OutgoingMessage>>;
}

// Not recommended: else the error would speak of the innermost bound on the function instead of what to write.
#[diagnostic::do_not_recommend]
impl<F, Fut> OutgoingMiddleware for F
where
    F: Fn(OutgoingMessage) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<OutgoingMessage>> + Send + 'static,
{
    fn handle(&self, message: OutgoingMessage) -> BoxFuture<'static, Result<OutgoingMessage>> {
        Box::pin(self(message))
    }
}

/// A message that is about to be sent.
#[derive(Debug)]
#[non_exhaustive]
pub struct OutgoingMessage {
    /// What is sent: its id, headers and body.
    pub envelope: Envelope,
    transport: Arc<str>,
    target: Target,
    due: Option<Due>,
}

impl OutgoingMessage {
    /// The queue or topic that it goes to.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The name of its transport.
    pub fn transport(&self) -> &str {
        &self.transport
    }

    /// When it becomes available, if it is delayed.
    pub fn due(&self) -> Option<Due> {
        self.due
    }
}

/// What the messages of each transport pass, the outermost first.
#[derive(Clone, Default)]
pub(crate) struct OutgoingChain {
    of_host: Vec<Arc<dyn OutgoingMiddleware>>,
    of_transports: BTreeMap<String, Vec<Arc<dyn OutgoingMiddleware>>>,
}

impl OutgoingChain {
    /// Adds one for all messages.
    pub(crate) fn add(&mut self, middleware: impl OutgoingMiddleware) {
        self.of_host.push(Arc::new(middleware));
    }

    /// Adds one for those of a transport.
    pub(crate) fn add_for(&mut self, transport: &str, middleware: impl OutgoingMiddleware) {
        self.of_transports.entry(transport.to_owned()).or_default().push(Arc::new(middleware));
    }

    /// The transports that have some of their own.
    pub(crate) fn transports(&self) -> impl Iterator<Item = &str> {
        self.of_transports.keys().map(String::as_str)
    }

    /// Passes a message through those of the host and those of its transport.
    pub(super) async fn pass(&self, transport: &str, outgoing: Outgoing) -> Result<Outgoing> {
        let of_transport = self.of_transports.get(transport).map(Vec::as_slice).unwrap_or_default();
        if self.of_host.is_empty() && of_transport.is_empty() {
            return Ok(outgoing);
        }
        let Outgoing { target, envelope, due, guard } = outgoing;
        let own = ours(&envelope.headers);
        let mut message = OutgoingMessage { envelope, transport: Arc::from(transport), target, due };
        for middleware in self.of_host.iter().chain(of_transport) {
            message = match panics::outcome_of(|| middleware.handle(message)).await {
                Ok(answer) => answer?,
                Err(text) => {
                    let text = format!("an outgoing middleware panicked: {text}");
                    return Err(Error::new(ErrorKind::Handler, text));
                }
            };
        }
        if ours(&message.envelope.headers) != own {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "an outgoing middleware has set, changed or removed a header that is the bus's own: content-type, or one that begins with bus-",
            ));
        }
        // It may have taken its time.
        Run::singleton()?;
        let OutgoingMessage { envelope, target, due, .. } = message;
        Ok(Outgoing::new(target, envelope).due(due).guarded(guard))
    }
}

/// The headers that are the bus's own.
fn ours(headers: &Headers) -> Vec<(String, String)> {
    let ours = headers.iter().filter(|(name, _)| reserved(name).is_some());
    ours.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

impl fmt::Debug for OutgoingChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutgoingChain")
            .field("of_host", &self.of_host.len())
            .field("of_transports", &self.of_transports.keys())
            .finish()
    }
}
