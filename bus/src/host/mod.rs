//! The host: finds what the binary has, connects it, runs it, and brings it to an end.
//!
//! [`run`] is all that most programs need. [`Host::builder`] puts a host together in code, [`Host::start`] runs one
//! inside another program, [`check`] checks the wiring in a unit test, [`connect`] only sends.
//!
//! * [`config`]: what can be configured, and how it is read.
//! * `builder`: the same in code.
//! * `around`: what is around every run.
//! * `wiring`: whether it all fits together, before anything is connected.
//! * `opening`: opens the stores, and waits for those that are not there; `stores`: which are.
//! * `start`: starts a pump or a candidate for each processor, as soon as its stores are open.
//! * [`health`]: what it is at, and whether it really consumes; `board`: what that is judged by; `liveness`: answers probes.
//! * `plugin`: what runs beside the processors.
//! * `attending`: tells the stores what is read, and warns of what nobody reads.
//! * `candidate`: how a singleton's term becomes a pump.
//! * `handle`, `producer`: what the owner of a running host, or of transports alone, has in hand.
//! * `metrics`: its numbers, for OpenTelemetry and Prometheus.
//! * `loss`: when it ends by itself.
//! * `shutdown`: how it ends, step by step.
//! * `signals`: how the process is asked to end, and made to.
//! * `report`: what start-up says; `logging`: where it and everything later is read, if nobody says otherwise.

mod around;
mod attending;
mod board;
mod builder;
mod candidate;
pub mod config;
mod handle;
pub mod health;
mod liveness;
#[cfg(feature = "logging")]
mod logging;
mod loss;
mod metrics;
mod opening;
mod plugin;
mod producer;
mod report;
mod shutdown;
mod signals;
mod start;
mod stores;
mod wiring;

use std::fmt;

pub use builder::HostBuilder;
pub use handle::HostHandle;
#[cfg(feature = "testing")]
pub(crate) use handle::PowerSwitch;
pub use plugin::{Plugin, PluginContext};
pub use producer::Producer;

use tokio_util::sync::CancellationToken;

use crate::error::Result;
use config::Config;

/// Runs all processors of this binary until SIGTERM or Ctrl-C, then drains and returns.
///
/// Draining: nothing more is claimed, what was claimed ahead is given back at once, and what runs is awaited for up to
/// `shutdown_grace_period` (30 s), not a moment longer than needed. What still runs then is asked to end by its
/// `CancellationToken`, and dropped a second later. A second signal ends the grace period.
///
/// Configured by `bus.toml` and `BUS_…` variables, see [`config`]. A program that has set up no `tracing` subscriber gets a
/// log on standard error, see [`guide::logging`](crate::guide::logging).
///
/// ```no_run
/// #[tokio::main]
/// async fn main() -> bus::Result<()> {
///     bus::run().await
/// }
/// ```
///
/// # Errors
/// Everything that is wrong with the wiring, at once, before anything is consumed; what a store answers at start, unless
/// it is only not there yet (see [`config::Config::on_store_down`]); and if a store is lost for good, so that only a new
/// start can help: a damaged file, say.
pub async fn run() -> Result<()> {
    run_with(|host| host).await
}

/// [`run`], for a host that `adjust` completes in code: with a value, a middleware, a transport of your own.
///
/// ```no_run
/// use bus::prelude::*;
///
/// async fn count(delivery: Delivery, next: Next) -> Verdict {
///     next.run(delivery).await
/// }
///
/// #[tokio::main]
/// async fn main() -> bus::Result<()> {
///     bus::run_with(|host| host.provide(String::from("shared")).middleware(count)).await
/// }
/// ```
///
/// # Errors
/// As [`run`].
pub async fn run_with(adjust: impl FnOnce(HostBuilder) -> HostBuilder) -> Result<()> {
    #[cfg(feature = "logging")]
    logging::unless_set();
    adjust(HostBuilder::new(Config::from_env()?)).build()?.run().await
}

/// Checks the wiring of this binary as [`run`] would, without connecting to anything: for a unit test.
///
/// It reads the configuration as [`run`] does. `cargo test` runs in the directory of the package: a `bus.toml` that lies
/// elsewhere is not found there, and a singleton then has no lock manager; see [`check_with`] and `BUS_CONFIG`.
///
/// # Errors
/// As [`run`], as far as it can be known without connecting.
pub fn check() -> Result<()> {
    check_with(|host| host)
}

/// [`check`], for a host that `adjust` puts together (`|host| host.provide(…)`).
///
/// # Errors
/// As [`check`].
pub fn check_with(adjust: impl FnOnce(HostBuilder) -> HostBuilder) -> Result<()> {
    adjust(HostBuilder::new(Config::from_env()?)).build().map(drop)
}

/// Connects the configured transports for sending alone: for a program, or a moment, without processors. It waits for no
/// store: whoever calls it knows whether to try again.
///
/// # Errors
/// If the configuration is wrong or a store does not answer.
pub async fn connect() -> Result<Producer> {
    HostBuilder::new(Config::from_env()?).connect().await
}

/// A host whose wiring has been checked. Nothing is connected yet.
pub struct Host {
    plan: wiring::Plan,
}

impl Host {
    /// A host to be put together in code, with nothing configured: it reads neither `bus.toml` nor the environment,
    /// unless you give it [`Config::from_env`] by [`HostBuilder::config`]. To complete the configured host in code, use
    /// [`run_with`].
    pub fn builder() -> HostBuilder {
        HostBuilder::new(Config::default())
    }

    /// A host as `bus.toml` and the environment configure it.
    ///
    /// # Errors
    /// If the configuration cannot be read, or the wiring is wrong.
    pub fn from_env() -> Result<Self> {
        HostBuilder::new(Config::from_env()?).build()
    }

    /// Connects, starts every processor, and returns a handle. Signals are left to the caller.
    ///
    /// A store that is not there is waited for, unless `on_store_down` says otherwise: this then returns all the same,
    /// within 5 s, and what needs that store begins when it comes ([`HostHandle::waiting_for`]). Until then a send to it
    /// answers [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable), also to a `#[provide]` function.
    ///
    /// # Errors
    /// If a store cannot be had, or a provider fails; nothing has been consumed then.
    pub async fn start(self) -> Result<HostHandle> {
        start::start(self.plan, CancellationToken::new(), start::Failing::default())
            .await
            .and_then(|handle| handle.ok_or_else(start::called_off))
    }

    /// Runs until SIGTERM or Ctrl-C, then drains. A second signal ends the grace period.
    ///
    /// The process is ended from here, with exit code 1, if a handler can be neither awaited nor dropped (it blocks its
    /// thread): returning would wait for it for ever. So it is, the grace period and 9 s after the signal, whatever keeps
    /// the process from ending: blocking work that a dropped run has left behind and the runtime waits for, or what `main`
    /// does after this has returned.
    ///
    /// # Errors
    /// As [`Host::start`]; and if a store is lost for good, so that only a new start can help: a damaged file, say.
    pub async fn run(self) -> Result<()> {
        shutdown::run_until_signalled(self.plan).await
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host")
            .field("processors", &self.plan.processors.len())
            .field("transports", &self.plan.transports.keys())
            .finish_non_exhaustive()
    }
}
