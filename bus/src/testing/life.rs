//! One incarnation of a test host: from its start to its stop or crash.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::host::PowerSwitch;
use crate::message::{Delivery, Endpoint, MessageId};

/// A stand-in for one process: whatever its tasks do goes through here, and stands still when it has crashed.
pub(super) struct Life {
    over: AtomicBool,
    power: OnceLock<PowerSwitch>,
    runs: Mutex<BTreeMap<u64, Run>>,
    next_run: AtomicU64,
    activity: Arc<Notify>,
}

impl Life {
    /// One that begins. `activity` is told of each run's end, and of its own.
    pub(super) fn new(activity: Arc<Notify>) -> Arc<Self> {
        Arc::new(Life {
            over: AtomicBool::new(false),
            power: OnceLock::new(),
            runs: Mutex::default(),
            next_run: AtomicU64::new(0),
            activity,
        })
    }

    /// Says how its tasks are ended.
    pub(super) fn powered_by(&self, power: PowerSwitch) {
        if let Err(power) = self.power.set(power) {
            power.off();
        }
    }

    /// Ends it as the end of a process would: from here on, none of its tasks does anything.
    pub(super) fn crash(&self) {
        self.over.store(true, Ordering::Release);
        if let Some(power) = self.power.get() {
            power.off();
        }
        self.activity.notify_waiters();
    }

    /// Crashes, and never returns.
    pub(super) async fn crash_here<T>(&self) -> T {
        self.crash();
        std::future::pending().await
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Does `work`, unless and until it is over: a dead process does not go on in the middle of something.
    pub(super) async fn living<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| match self.is_over() {
            true => Poll::Pending,
            false => work.as_mut().poll(context),
        })
        .await
    }

    /// Notes a run for as long as the answer lives.
    pub(super) fn begin_run(self: &Arc<Self>, delivery: &Delivery) -> RunGuard {
        let key = self.next_run.fetch_add(1, Ordering::Relaxed);
        let run = Run {
            endpoint: Arc::clone(&delivery.endpoint),
            id: delivery.envelope.id,
            message_type: delivery.envelope.message_type.to_string(),
            began: Instant::now(),
        };
        self.runs.lock().insert(key, run);
        RunGuard { life: Arc::clone(self), key }
    }

    /// What runs.
    pub(super) fn runs(&self) -> Vec<Run> {
        self.runs.lock().values().cloned().collect()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.runs.lock().is_empty()
    }
}

/// A run that is under way.
#[derive(Clone)]
pub(super) struct Run {
    pub(super) endpoint: Arc<Endpoint>,
    id: MessageId,
    message_type: String,
    began: Instant,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Run { endpoint, id, message_type, began } = self;
        write!(f, "the `{message_type}` {id} of {endpoint}, for {:?} so far", began.elapsed())
    }
}

/// Ends the note of a run.
pub(super) struct RunGuard {
    life: Arc<Life>,
    key: u64,
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        self.life.runs.lock().remove(&self.key);
        self.life.activity.notify_waiters();
    }
}
