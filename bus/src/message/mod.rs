//! Messages and what is known about them on their way: names, headers, envelopes, deliveries, verdicts.

mod delivery;
mod envelope;
mod headers;
pub mod name;
mod trace;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use delivery::{Delivery, Receipt, Verdict};
pub use envelope::{Envelope, MessageId};
pub use headers::Headers;
pub use name::{Endpoint, Name, Target};
pub use trace::{CONTINUED_FOR, TraceContext, TraceParent};

use crate::error::{Error, ErrorKind, Result};

/// Something that can be sent. Implemented by `#[derive(Command)]` and `#[derive(Event)]`, or by hand.
///
/// JSON by default; another encoding is a matter of overriding [`encode`](Message::encode),
/// [`decode`](Message::decode) and [`CONTENT_TYPE`](Message::CONTENT_TYPE).
pub trait Message: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Names the message's type in the envelope, for people and tools; nothing is dispatched by it.
    const TYPE: &'static str;
    /// The name of the transport that carries it.
    const TRANSPORT: &'static str = "default";
    /// The media type of the encoded body. A processor refuses a message that says that it has another one.
    const CONTENT_TYPE: &'static str = "application/json";

    /// The message as bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Encode`] if it cannot be represented.
    fn encode(&self) -> Result<Bytes> {
        serde_json::to_vec(self).map(Bytes::from).map_err(|e| {
            Error::new(ErrorKind::Encode, "the message cannot be written as JSON")
                .with("type", Self::TYPE)
                .caused_by(e)
        })
    }

    /// The message from its bytes.
    ///
    /// # Errors
    /// [`ErrorKind::Decode`] if they are none of this type.
    fn decode(body: &[u8]) -> Result<Self> {
        serde_json::from_slice(body).map_err(|e| {
            Error::new(ErrorKind::Decode, "the body is not this message as JSON")
                .with("type", Self::TYPE)
                .caused_by(e)
        })
    }
}

/// A message for one queue, processed once by whichever processor reads it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a command",
    label = "not a command",
    note = "a command has `#[derive(Command)] #[command(queue = \"…\")]`; for an event, write `subscription = \"…\"` in `#[processor]` and `publish` instead of `send`"
)]
pub trait Command: Message {
    /// The queue: 1 to 63 lower-case letters, digits and single inner dashes.
    const QUEUE: &'static str;
}

/// A message for every subscription of a topic.
///
/// A subscription exists from the first start of a process that reads it: what was published before is not in it, and
/// where there is none, an event is forgotten. It then collects events whether anyone reads it or not. One that was
/// renamed goes on under its old name; `depths` of the command line tool shows it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event",
    label = "not an event",
    note = "an event has `#[derive(Event)] #[event(topic = \"…\")]`; a command is processed without `subscription` and sent with `send`"
)]
pub trait Event: Message {
    /// The topic: 1 to 63 lower-case letters, digits and single inner dashes.
    const TOPIC: &'static str;
}
