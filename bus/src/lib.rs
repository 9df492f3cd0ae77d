//! Messaging driven by annotated functions, with singletons that never run twice at once.

#![forbid(unsafe_code)]

// The macros name this crate by its outside name, in its own examples and tests too.
#[allow(unused_extern_crates, reason = "rustc does not see the uses that expanded macros make")]
extern crate self as bus;

#[doc(hidden)]
pub mod __private;
pub mod backend;
#[cfg(feature = "cli")]
pub mod cli;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod contract;
pub mod error;
pub mod host;
pub mod message;
pub mod pipeline;
pub mod prelude;
pub mod processor;
pub mod pump;
pub mod reconnect;
pub mod registry;
pub mod scope;
pub mod sender;
pub mod settings;
pub mod singleton;

#[cfg(feature = "cli")]
pub use cli::cli;
pub use error::{Error, ErrorKind, Result};
pub use host::{Host, check, check_with, connect, run};
pub use message::{Command, Endpoint, Envelope, Event, Headers, Message, MessageId};
pub use processor::{DeliveryCount, Dep, Scoped};
pub use sender::{Bus, Sent};
pub use settings::Settings;
pub use singleton::Term;

pub use bus_macros::{Command, Event, Settings, processor, provide};
