//! What befalls requests, and whether it did.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;

use super::State;
use super::pattern::{Pattern, Request};

/// What befalls a request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Fault {
    /// Nothing: it is performed and answered, and counted when it is. Before another rule, it lets the first ones pass.
    Pass,
    /// It is not performed; the answer says why, as Azure says it.
    Refuse {
        /// The HTTP status.
        status: u16,
        /// The code in `x-ms-error-code` and the body.
        code: String,
        /// What `Retry-After` says, in whole seconds, rounded up.
        retry_after: Option<Duration>,
    },
    /// It is not performed, and the connection is closed.
    DropRequest,
    /// It is performed, and the connection is closed instead of answering: the outcome is unknown to the client.
    DropAnswer,
    /// It is kept for so long before it is performed, whether its client waits or not.
    DelayRequest(Duration),
    /// It is performed at once, and the answer kept for so long.
    DelayAnswer(Duration),
    /// It is kept until [`Injected::release`]; without that it is in a black hole: the connection stays open, and
    /// nothing ever comes.
    HoldRequest,
    /// It is performed, and the answer kept until [`Injected::release`]; without that the client waits for ever.
    HoldAnswer,
}

impl Fault {
    /// 503 `ServerBusy`, as a throttled account answers.
    pub fn server_busy(retry_after: Duration) -> Fault {
        Fault::Refuse { status: 503, code: "ServerBusy".to_owned(), retry_after: Some(retry_after) }
    }

    /// 409 `ContainerBeingDeleted`, as a container answers for half a minute or more after it was deleted.
    pub fn container_being_deleted() -> Fault {
        Fault::Refuse { status: 409, code: "ContainerBeingDeleted".to_owned(), retry_after: None }
    }
}

/// A pattern, what befalls what it matches, and how often that may happen and has.
#[derive(Debug)]
pub(super) struct Rule {
    pattern: Pattern,
    pub(super) fault: Fault,
    left: AtomicUsize,
    struck: watch::Sender<usize>,
    released: watch::Sender<bool>,
}

impl Rule {
    pub(super) fn new(times: usize, pattern: Pattern, fault: Fault) -> Rule {
        let (struck, released) = (watch::Sender::new(0), watch::Sender::new(false));
        Rule { pattern, fault, left: AtomicUsize::new(times), struck, released }
    }

    /// Whether it matches a request and may still strike; then that counts as one of its times.
    pub(super) fn takes(&self, request: &Request) -> bool {
        let one_less = |left: usize| left.checked_sub(1);
        self.pattern.matches(request)
            && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    pub(super) fn strike(&self) {
        self.struck.send_modify(|struck| *struck += 1);
    }

    pub(super) async fn released(&self) {
        // The sender is ours and lives.
        let _ = self.released.subscribe().wait_for(|released| *released).await;
    }
}

/// A rule of a proxy, to see whether it has struck. Dropping this does not remove the rule.
#[derive(Debug, Clone)]
pub struct Injected {
    rule: Arc<Rule>,
    state: Weak<State>,
}

impl Injected {
    pub(super) fn new(rule: Arc<Rule>, state: Weak<State>) -> Injected {
        Injected { rule, state }
    }

    /// How often the fault has happened: a request was dropped, refused, kept; or, where it is about the answer, the
    /// request was performed.
    pub fn count(&self) -> usize {
        *self.rule.struck.borrow()
    }

    /// Waits until the fault has happened `n` times in all. For ever, if it does not: give it a deadline.
    pub async fn struck(&self, n: usize) {
        // The sender is ours and lives.
        let _ = self.rule.struck.subscribe().wait_for(|struck| *struck >= n).await;
    }

    /// Lets go on what [`Fault::HoldRequest`] and [`Fault::HoldAnswer`] keep, and what they would keep from now on.
    pub fn release(&self) {
        self.rule.released.send_replace(true);
    }

    /// From now on, the rule matches nothing. What it holds or delays stays so.
    pub fn remove(&self) {
        if let Some(state) = self.state.upgrade() {
            state.remove(&self.rule);
        }
    }
}
