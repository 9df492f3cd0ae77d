//! Messaging driven by annotated functions, with singletons that never run twice at once.

#![forbid(unsafe_code)]

pub mod backend;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod contract;
pub mod error;
pub mod message;
pub mod scope;
pub mod settings;

pub use error::{Error, ErrorKind, Result};
pub use message::{Command, Endpoint, Envelope, Event, Headers, Message, MessageId};
