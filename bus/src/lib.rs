//! Messaging driven by annotated functions, with singletons that never run twice at once.

#![forbid(unsafe_code)]

pub mod backend;
#[cfg(feature = "cli")]
pub mod cli;
pub mod clock;
pub mod contract;
pub mod error;
pub mod host;
pub mod message;
pub mod pipeline;
pub mod reconnect;
pub mod scope;
pub mod settings;

#[cfg(feature = "cli")]
pub use cli::cli;
pub use error::{Error, ErrorKind, Result};
pub use message::{Command, Endpoint, Envelope, Event, Headers, Message, MessageId};
