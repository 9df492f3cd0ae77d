//! The one place where it is counted and timed what is sent and processed.
//!
//! What happens for each message touches atomics alone; what fails is counted by the kind of error, under a lock.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

#[cfg(feature = "opentelemetry")]
use super::instruments::{Instruments, Timed};
use crate::error::{Error, ErrorKind};
use crate::message::{Endpoint, Target, Verdict};

/// The upper bounds of the buckets in which durations are counted, in seconds, as OpenTelemetry's conventions advise.
pub(crate) const BOUNDS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// What kept something from being done as it should: `error.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Failure {
    Error(ErrorKind),
    /// A handler or a middleware gave the message up, without an error.
    DeadLetter,
    /// It was not an attempt: a run that was cut off, say.
    Released,
}

impl Failure {
    /// What a run has come to; `None` if it has succeeded.
    pub(crate) fn of(verdict: &Verdict) -> Option<Self> {
        match verdict {
            Verdict::Complete => None,
            Verdict::Retry { error, .. } | Verdict::DeadLetter { error: Some(error), .. } => {
                Some(Failure::Error(error.kind()))
            }
            Verdict::DeadLetter { error: None, .. } => Some(Failure::DeadLetter),
            Verdict::Release => Some(Failure::Released),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Error(kind) => fmt::Debug::fmt(kind, f),
            Failure::DeadLetter | Failure::Released => fmt::Debug::fmt(self, f),
        }
    }
}

/// What a host, or a program that only sends, has counted. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Meter(Arc<Inner>);

#[derive(Default)]
struct Inner {
    sends: Mutex<BTreeMap<(String, Target), Arc<Sends>>>,
    runs: Mutex<BTreeMap<(&'static str, Endpoint), Arc<Runs>>>,
    #[cfg(feature = "opentelemetry")]
    instruments: Instruments,
}

impl Meter {
    /// One whose durations are handed to these instruments too.
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn over(instruments: Instruments) -> Self {
        Meter(Arc::new(Inner { instruments, ..Inner::default() }))
    }

    /// For whoever is not to keep it alive.
    #[cfg(feature = "opentelemetry")]
    pub(crate) fn weak(&self) -> WeakMeter {
        WeakMeter(Arc::downgrade(&self.0))
    }

    /// What is sent there.
    pub(crate) fn sends(&self, transport: &str, target: &Target) -> Arc<Sends> {
        let mut sends = self.0.sends.lock();
        let make = || {
            Arc::new(Sends {
                #[cfg(feature = "opentelemetry")]
                timed: self.0.instruments.of_sends(transport, target),
                ..Sends::default()
            })
        };
        Arc::clone(sends.entry((transport.to_owned(), target.clone())).or_insert_with(make))
    }

    /// What is processed there.
    pub(crate) fn runs(&self, transport: &'static str, endpoint: &Endpoint) -> Arc<Runs> {
        let mut runs = self.0.runs.lock();
        let make = || {
            Arc::new(Runs {
                #[cfg(feature = "opentelemetry")]
                timed_runs: self.0.instruments.of_runs(transport, endpoint),
                #[cfg(feature = "opentelemetry")]
                timed_settling: self.0.instruments.of_settling(transport, endpoint),
                ..Runs::default()
            })
        };
        Arc::clone(runs.entry((transport, endpoint.clone())).or_insert_with(make))
    }

    /// All that was sent, by transport and target.
    #[cfg(any(feature = "opentelemetry", feature = "prometheus"))]
    pub(crate) fn each_sends(&self, mut see: impl FnMut(&str, &Target, &Sends)) {
        for ((transport, target), sends) in &*self.0.sends.lock() {
            see(transport, target, sends);
        }
    }

    /// All that was processed, by transport and endpoint.
    #[cfg(any(feature = "opentelemetry", feature = "prometheus"))]
    pub(crate) fn each_runs(&self, mut see: impl FnMut(&str, &Endpoint, &Runs)) {
        for ((transport, endpoint), runs) in &*self.0.runs.lock() {
            see(transport, endpoint, runs);
        }
    }
}

/// A meter that may be gone.
#[cfg(feature = "opentelemetry")]
pub(crate) struct WeakMeter(std::sync::Weak<Inner>);

#[cfg(feature = "opentelemetry")]
impl WeakMeter {
    pub(crate) fn upgrade(&self) -> Option<Meter> {
        self.0.upgrade().map(Meter)
    }
}

/// What is sent to one queue or topic.
#[derive(Default)]
pub(crate) struct Sends {
    pub(crate) messages: Counts,
    pub(crate) durations: Durations,
    #[cfg(feature = "opentelemetry")]
    timed: Timed,
}

impl Sends {
    /// So many messages were answered for so by the store, in one call.
    pub(crate) fn answered<'a>(&self, took: Duration, answers: impl IntoIterator<Item = Option<&'a Error>>) {
        let mut first = None;
        for failure in answers.into_iter().map(|error| error.map(|error| Failure::Error(error.kind()))) {
            self.messages.add(failure);
            first = first.or(failure);
        }
        self.durations.add(took, first);
        #[cfg(feature = "opentelemetry")]
        self.timed.record(took, first);
    }
}

/// What is processed of one endpoint.
#[derive(Default)]
pub struct Runs {
    pub(crate) begun: AtomicU64,
    pub(crate) retried: AtomicU64,
    pub(crate) dead: AtomicU64,
    pub(crate) durations: Durations,
    pub(crate) settling: Durations,
    #[cfg(feature = "opentelemetry")]
    timed_runs: Timed,
    #[cfg(feature = "opentelemetry")]
    timed_settling: Timed,
}

impl Runs {
    /// A run begins.
    pub(crate) fn began(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// A run has ended.
    pub(crate) fn ended(&self, took: Duration, verdict: &Verdict) {
        let failure = Failure::of(verdict);
        self.durations.add(took, failure);
        #[cfg(feature = "opentelemetry")]
        self.timed_runs.record(took, failure);
    }

    /// The store was asked to take verdicts, in one call.
    pub(crate) fn settled(&self, took: Duration, first_error: Option<ErrorKind>) {
        let failure = first_error.map(Failure::Error);
        self.settling.add(took, failure);
        #[cfg(feature = "opentelemetry")]
        self.timed_settling.record(took, failure);
    }

    /// The store has taken a verdict.
    pub(crate) fn taken(&self, verdict: &Verdict) {
        match verdict {
            Verdict::Retry { .. } => self.retried.fetch_add(1, Ordering::Relaxed),
            Verdict::DeadLetter { .. } => self.dead.fetch_add(1, Ordering::Relaxed),
            Verdict::Complete | Verdict::Release => 0,
        };
    }
}

impl fmt::Debug for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runs").field("begun", &self.begun).finish_non_exhaustive()
    }
}

/// What happened so often, by what went wrong.
#[derive(Default)]
pub(crate) struct Counts {
    good: AtomicU64,
    failed: Mutex<BTreeMap<Failure, u64>>,
}

impl Counts {
    fn add(&self, failure: Option<Failure>) {
        match failure {
            None => {
                self.good.fetch_add(1, Ordering::Relaxed);
            }
            Some(failure) => *self.failed.lock().entry(failure).or_default() += 1,
        }
    }

    /// Each outcome, and how often there was that.
    #[cfg(any(feature = "opentelemetry", feature = "prometheus"))]
    pub(crate) fn each(&self, mut see: impl FnMut(Option<Failure>, u64)) {
        see(None, self.good.load(Ordering::Relaxed));
        for (failure, count) in &*self.failed.lock() {
            see(Some(*failure), *count);
        }
    }
}

/// What took so long, by what went wrong.
#[derive(Default)]
pub(crate) struct Durations {
    good: Histogram,
    failed: Mutex<BTreeMap<Failure, Histogram>>,
}

impl Durations {
    fn add(&self, took: Duration, failure: Option<Failure>) {
        match failure {
            None => self.good.add(took),
            Some(failure) => self.failed.lock().entry(failure).or_default().add(took),
        }
    }

    /// Each outcome, and how long it took.
    #[cfg(feature = "prometheus")]
    pub(crate) fn each(&self, mut see: impl FnMut(Option<Failure>, &Histogram)) {
        see(None, &self.good);
        for (failure, histogram) in &*self.failed.lock() {
            see(Some(*failure), histogram);
        }
    }
}

/// How often something took how long.
#[derive(Default)]
pub(crate) struct Histogram {
    /// One for each bound, and one for what takes longer.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

impl Histogram {
    fn add(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// How many are in each bucket, and how many seconds all took together.
    #[cfg(feature = "prometheus")]
    pub(crate) fn read(&self) -> ([u64; BOUNDS.len() + 1], f64) {
        let counts = std::array::from_fn(|bucket| self.buckets[bucket].load(Ordering::Relaxed));
        (counts, Duration::from_nanos(self.nanos.load(Ordering::Relaxed)).as_secs_f64())
    }
}
