//! What a program that uses `bus` usually names: `use bus::prelude::*;`.
//!
//! It has no type called `Default`, which would hide the standard library's; `settings = Default` works without. Its
//! [`Result`] is `Result<T, E = bus::Error>`, so that `Result<T, MyError>` goes on meaning what it did.
//!
//! `Serialize` and `Deserialize` are serde's, for convenience: what their derives write names the crate `serde`, so your
//! `Cargo.toml` has to list it.

pub use bus_macros::{Command, Event, Settings, processor, provide};
pub use serde::{Deserialize, Serialize};
pub use tokio_util::sync::CancellationToken;

pub use crate::error::Result;
pub use crate::message::{Command, Event, Headers, Message, MessageId};
pub use crate::processor::{DeliveryCount, Dep, Scoped};
pub use crate::sender::{Bus, Sent};
pub use crate::settings::{AsSingleton, Settings};
pub use crate::singleton::Term;
