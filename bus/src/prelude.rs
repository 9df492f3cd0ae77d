//! What a program that uses `bus` usually names: `use bus::prelude::*;`.
//!
//! It has no type called `Default`, which would hide the standard library's; `settings = Default` works without. Its
//! [`Result`] is `Result<T, E = bus::Error>`, so that `Result<T, MyError>` goes on meaning what it did.
//!
//! What a middleware or an extractor of your own is written with is here too: [`Delivery`], [`Next`], [`Verdict`] and
//! [`Extract`]. A type of yours that has one of these names hides ours, as it does with everything that a glob imports;
//! ours is then `bus::message::Delivery`, say. Only where yours comes from another glob does the compiler ask which one
//! is meant: import it by its name.
//!
//! `Serialize` and `Deserialize` are serde's, for convenience: what their derives write names the crate `serde`, so your
//! `Cargo.toml` has to list it.

pub use bus_macros::{Command, Event, Settings, processor, provide};
pub use serde::{Deserialize, Serialize};
pub use tokio_util::sync::CancellationToken;

pub use crate::error::Result;
pub use crate::message::{Command, Delivery, Event, Headers, Message, MessageId, Verdict};
pub use crate::pipeline::Next;
pub use crate::processor::{DeadLettering, DeliveryCount, Dep, Extract, Scoped};
pub use crate::sender::{Bus, Sent};
pub use crate::settings::{AsSingleton, Settings};
pub use crate::singleton::Term;
