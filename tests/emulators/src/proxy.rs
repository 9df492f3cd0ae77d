//! A proxy in front of an HTTP service that makes the network, or the service, misbehave.

mod exchange;
mod pattern;
mod rule;

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::error::{Doing, Error, Result};
use exchange::Upstream;
pub use pattern::{Pattern, Request};
use rule::Rule;
pub use rule::{Fault, Injected};

/// An HTTP/1.1 proxy in front of one service. What no rule speaks of passes unchanged, path, query and headers
/// included; so requests signed by a shared key stay valid, since the signature does not cover the host.
///
/// It works on a thread and a clock of its own, so that neither a saturated nor a paused runtime of a test slows it
/// down. A request that has arrived goes its way to the end, also if its client has given up: what a client takes for
/// lost may be performed later. Only what is held or delayed when the proxy is dropped comes to nothing.
#[derive(Debug)]
pub struct FaultProxy {
    url: String,
    state: Arc<State>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// One request, and what has become of it so far.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Seen {
    /// What was asked.
    pub request: Request,
    /// When it had arrived.
    pub at: Instant,
    /// The status with which the service answered; `None` while it has not, or was never asked.
    pub performed: Option<u16>,
    /// The status that the client was given; `None` while it has none, or where it gets none.
    pub answered: Option<u16>,
}

#[derive(Debug, Default)]
struct State {
    rules: Mutex<Vec<Arc<Rule>>>,
    seen: Mutex<Vec<Seen>>,
}

impl FaultProxy {
    /// Starts one on a free port of the loopback address, in front of `service`, such as
    /// `http://127.0.0.1:10000/devstoreaccount1`.
    ///
    /// # Errors
    /// When that is no `http://` URL, or there is no port or no thread.
    pub fn start(service: &str) -> Result<FaultProxy> {
        let (upstream, path) = Upstream::of_url(service)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing("no port for a proxy")?;
        listener.set_nonblocking(true).doing("no port for a proxy")?;
        let address = listener.local_addr().doing("no port for a proxy")?;
        let (state, stop) = (Arc::new(State::default()), CancellationToken::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.doing("no runtime for a proxy")?;
        let serving = exchange::serve(listener, upstream, Arc::clone(&state));
        let stopped = stop.clone();
        let thread = thread::Builder::new().name("fault-proxy".to_owned()).spawn(move || {
            runtime.block_on(stopped.run_until_cancelled(serving));
        });
        let thread = thread.doing("no thread for a proxy")?;
        Ok(FaultProxy { url: format!("http://{address}{path}"), state, stop, thread: Some(thread) })
    }

    /// The URL of the service through this proxy: its path, on the proxy's own port.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// From now on, lets `fault` befall each request that `pattern` matches. Where several rules match a request, the
    /// oldest one counts, and no other.
    pub fn inject(&self, pattern: Pattern, fault: Fault) -> Injected {
        self.inject_times(usize::MAX, pattern, fault)
    }

    /// [`FaultProxy::inject`] for the next `times` matching requests.
    pub fn inject_times(&self, times: usize, pattern: Pattern, fault: Fault) -> Injected {
        let rule = Arc::new(Rule::new(times, pattern, fault));
        self.state.rules.lock().push(Arc::clone(&rule));
        Injected::new(rule, Arc::downgrade(&self.state))
    }

    /// Removes all rules. What they hold or delay stays so.
    pub fn clear(&self) {
        self.state.rules.lock().clear();
    }

    /// The requests so far that `pattern` matches, in the order in which they arrived.
    pub fn seen(&self, pattern: &Pattern) -> Vec<Seen> {
        self.state.seen.lock().iter().filter(|seen| pattern.matches(&seen.request)).cloned().collect()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // Its panic, if any, has been printed.
            let _ = thread.join();
        }
    }
}

impl State {
    /// Writes a request down, and answers its number and the rule that counts for it.
    fn arrive(&self, request: Request) -> (usize, Option<Arc<Rule>>) {
        let rule = self.rules.lock().iter().find(|rule| rule.takes(&request)).map(Arc::clone);
        let mut seen = self.seen.lock();
        seen.push(Seen { request, at: Instant::now(), performed: None, answered: None });
        (seen.len() - 1, rule)
    }

    fn note(&self, number: usize, note: impl FnOnce(&mut Seen)) {
        if let Some(seen) = self.seen.lock().get_mut(number) {
            note(seen);
        }
    }

    fn remove(&self, rule: &Arc<Rule>) {
        self.rules.lock().retain(|other| !Arc::ptr_eq(other, rule));
    }
}

/// A URL that the proxy cannot stand in front of.
fn unfit(url: &str) -> Error {
    Error::failed(format!("`{url}`: a proxy needs http://HOST:PORT, with or without a path"))
}
