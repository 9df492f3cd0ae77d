//! Servers and emulators of cloud services for tests and examples, and a proxy that makes emulators misbehave.
//!
//! * [`Azurite`]: Microsoft's emulator of Azure Storage, installed on first use; it can be killed, frozen and
//!   restarted.
//! * [`FaultProxy`]: stands in front of an HTTP service; loses, delays and refuses the requests that it is told to, and
//!   remembers what was asked.
//! * [`postgres`], [`redis`], [`nats`]: servers that are installed on this machine, started in directories of their own.
//! * `sas` (feature): shared access signatures for Azure's storage.
//! * [`or_skip`]: what a test does where an emulator cannot be had.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use bus_emulators::{Azurite, Fault, FaultProxy, Pattern};
//!
//! # async fn example() -> Result<(), bus_emulators::Error> {
//! let azurite = Azurite::start()?;
//! let proxy = FaultProxy::start(azurite.blob_endpoint())?;
//! let renewal = Pattern::any().method("PUT").header("x-ms-lease-action", "renew");
//! let lost = proxy.inject_times(2, renewal, Fault::DropAnswer);
//! let connection_string = azurite.connection_string_at(proxy.url(), azurite.queue_endpoint());
//! // … connect with that, take a lock …
//! lost.struck(2).await; // Two renewals have been performed, and nobody was told.
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod azurite;
mod error;
mod install;
pub mod nats;
mod port;
pub mod postgres;
mod process;
mod proxy;
pub mod redis;
#[cfg(feature = "sas")]
pub mod sas;
mod shared;
mod storage;

pub use azurite::Azurite;
pub use error::{Error, Result, or_skip};
pub use port::free_port;
pub use proxy::{Fault, FaultProxy, Injected, Pattern, Request, Seen};
pub use storage::Storage;
