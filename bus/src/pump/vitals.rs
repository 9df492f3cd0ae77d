//! Whether a pump asks its store, and is answered: what its health is judged by.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;

use crate::clock::BootInstant;
use crate::contract::Pulse;
use crate::error::ErrorKind;
use crate::message::Verdict;

/// What a pump notes of itself.
#[derive(Default)]
pub(super) struct Vitals {
    pub(super) receive: Asking,
    pub(super) settle: Asking,
    pub(super) extend: Asking,
    pub(super) pulse: Pulse,
    /// When messages came last.
    fetched: Mutex<Option<BootInstant>>,
    /// How many runs in a row have failed.
    failed_runs: AtomicU32,
}

/// Calls of one kind.
#[derive(Default)]
pub(super) struct Asking(Mutex<Unanswered>);

/// Calls of one kind that have not been answered, by now or since some time.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Unanswered {
    /// Since when something has been wanted of the store and not been had; `None` if there is nothing.
    pub since: Option<BootInstant>,
    /// How many calls in a row have failed.
    pub failures: u32,
    /// What the last of them was answered.
    pub last_error: Option<ErrorKind>,
}

impl Asking {
    pub(super) fn begins(&self, now: BootInstant) {
        self.0.lock().since.get_or_insert(now);
    }

    pub(super) fn fails(&self, error: ErrorKind) {
        let mut unanswered = self.0.lock();
        unanswered.failures = unanswered.failures.saturating_add(1);
        unanswered.last_error = Some(error);
    }

    /// The store has answered as it should, or there is nothing more to ask.
    pub(super) fn ends(&self) {
        *self.0.lock() = Unanswered::default();
    }

    pub(super) fn unanswered(&self) -> Unanswered {
        *self.0.lock()
    }
}

impl Vitals {
    pub(super) fn of(pulse: Pulse) -> Self {
        Vitals { pulse, ..Vitals::default() }
    }

    /// A receive has returned with so many messages.
    pub(super) fn received(&self, messages: usize, now: BootInstant) {
        self.receive.ends();
        if messages > 0 {
            *self.fetched.lock() = Some(now);
        }
    }

    /// When the store last answered a claim.
    pub(super) fn last_fetch(&self) -> Option<BootInstant> {
        (*self.fetched.lock()).max(self.pulse.last().map(|beat| beat.at))
    }

    pub(super) fn ran(&self, verdict: &Verdict) {
        match verdict {
            Verdict::Retry { .. } | Verdict::DeadLetter { .. } => {
                self.failed_runs.fetch_add(1, Ordering::Relaxed);
            }
            Verdict::Complete => self.failed_runs.store(0, Ordering::Relaxed),
            Verdict::Release => {}
        }
    }

    pub(super) fn failed_runs(&self) -> u32 {
        self.failed_runs.load(Ordering::Relaxed)
    }
}
