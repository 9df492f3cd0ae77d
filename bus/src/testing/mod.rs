#![doc = include_str!("../../docs/testing.md")]
//!
//! # How it is built
//!
//! * `builder`, `host`: [`TestHost`], which is a [`Host`](crate::Host) over stores in memory and tokio's paused clock.
//! * `world`: what its incarnations share: the stores, the time, what has happened.
//! * `life`: one incarnation, from its start to its stop or crash.
//! * `transport`, `handler`: see what passes, and bring about the faults.
//! * `history`: what has passed, as a test asks for it.
//! * `faults`: what a test can make go wrong.
//! * `run`: what `#[bus::test]` calls.

mod builder;
mod durations;
mod faults;
mod handler;
mod history;
mod host;
mod life;
pub(crate) mod run;
mod test_bus;
mod transport;
mod world;

pub use builder::TestHostBuilder;
pub use durations::Durations;
pub use faults::{Fault, Faults, Point};
pub use history::{CompletedMessage, DeadMessage, RetriedMessage, SentMessage};
pub use host::TestHost;
pub use test_bus::TestBus;
