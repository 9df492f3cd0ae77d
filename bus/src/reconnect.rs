//! How long to wait before trying again, and how often to say so; and tasks that go on after a panic.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use futures_util::FutureExt;

/// Pauses that double up to a longest one, each with jitter, so that many that failed together do not return together.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// From `first` to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Backoff { first, longest, failures: 0 }
    }

    /// The next pause: from half of the current step to all of it.
    #[allow(
        clippy::should_implement_trait,
        reason = "an endless series is no iterator that anyone would collect"
    )]
    pub fn next(&mut self) -> Duration {
        let step = self.first.saturating_mul(1 << self.failures.min(30)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        step / 2 + (step / 2).mul_f64(fastrand::f64())
    }

    /// Starts again from the first.
    pub const fn reset(&mut self) {
        self.failures = 0;
    }
}

/// How often an outage that goes on is told again.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// A time in which something cannot be reached: told when it begins, and once a minute, since whoever looks for a reason
/// looks at the last few minutes.
#[derive(Debug)]
pub struct Outage {
    began: Instant,
    told: Option<Instant>,
}

impl Outage {
    /// It begins now.
    pub fn begin() -> Self {
        Outage { began: Instant::now(), told: None }
    }

    /// How long it has been going on.
    pub fn length(&self) -> Duration {
        self.began.elapsed()
    }

    /// Whether a try that failed now is to be told of; the caller does so then.
    pub fn is_due(&mut self) -> bool {
        let is_due = self.told.is_none_or(|told| told.elapsed() >= TOLD_EVERY);
        if is_due {
            self.told = Some(Instant::now());
        }
        is_due
    }
}

/// The pause before a task that has panicked is run again.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// Runs a task that nobody waits for. Answers, after a pause, whether it panicked: then it is run again, since without it a
/// store would go on with a part missing, and nobody would know why.
///
/// ```
/// # async fn keep_polling() {}
/// # async fn example() {
/// tokio::spawn(async {
///     while bus::reconnect::panicked("what polls", keep_polling()).await {}
/// });
/// # }
/// ```
pub async fn panicked(what: &'static str, task: impl Future<Output = ()>) -> bool {
    let panicked = AssertUnwindSafe(task).catch_unwind().await.is_err();
    if panicked {
        tracing::error!(what, "a task panicked, which is a defect: report what it said; it is run again");
        tokio::time::sleep(AFTER_PANIC).await;
    }
    panicked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_start_again_after_success() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(10));
        let mut backoff = Backoff::new(first, longest);
        let pauses: Vec<_> = (0..40).map(|_| backoff.next()).collect();
        assert!(pauses[0] >= first / 2 && pauses[0] <= first);
        assert!(pauses[39] >= longest / 2 && pauses[39] <= longest);
        backoff.reset();
        assert!(backoff.next() <= first);
    }

    #[test]
    fn an_outage_is_told_at_once_and_again_after_a_minute() {
        let mut outage = Outage::begin();
        assert!(outage.is_due());
        assert!(!outage.is_due());
        outage.told = outage.told.and_then(|told| told.checked_sub(TOLD_EVERY));
        assert_eq!((outage.is_due(), outage.is_due()), (true, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_panics_is_run_again() {
        let mut runs = 0;
        let mut run = || {
            runs += 1;
            let panics = runs < 3;
            async move { assert!(!panics, "on purpose") }
        };
        while panicked("a test", run()).await {}
        assert_eq!(runs, 3);
    }
}
