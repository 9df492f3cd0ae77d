//! The log of a program that has set up no subscriber of its own.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// Where it is said what is logged, by target.
const RUST_LOG: &str = "RUST_LOG";

/// What is logged unless `RUST_LOG` says otherwise: everything from `info` up, but of what our stores' drivers say only
/// the warnings.
const UNLESS_SAID: &str = "info,async_nats=warn,azure_core=warn,hyper=warn,hyper_util=warn,redis=warn,reqwest=warn,\
                           rustls=warn,tokio_postgres=warn";

/// Logs to standard error from now on: for people if that is a terminal, else a line of JSON for each event. Does nothing
/// if the program has a subscriber, be it only for this thread.
pub(super) fn unless_set() {
    if tracing::dispatcher::has_been_set() {
        return;
    }
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter());
    // What fails here has been set by somebody else in the meantime, and is left alone.
    let _ = match std::io::stderr().is_terminal() {
        true => log.compact().finish().try_init(),
        false => log.json().flatten_event(true).with_span_list(false).finish().try_init(),
    };
}

fn filter() -> EnvFilter {
    let said = std::env::var(RUST_LOG).ok().filter(|said| !said.trim().is_empty());
    // A part of it that cannot be understood is told on standard error, and left out.
    EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .parse_lossy(said.as_deref().unwrap_or(UNLESS_SAID))
}
