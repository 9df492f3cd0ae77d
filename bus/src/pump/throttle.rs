//! What all pumps of a host share: how many runs may be under way at once, and how many may begin in a second.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// Limits the runs of all processors that share it. Whoever waits longest is next, whichever processor it is of. Cheap to
/// clone; all clones are the same.
///
/// A permit is taken when a worker is about to begin a run, and given back when the run has ended: neither receiving nor
/// prefetching nor settling holds one.
#[derive(Clone, Default)]
pub struct Throttle {
    at_once: Option<Arc<Semaphore>>,
    permits: Option<usize>,
    rate: Option<Arc<Rate>>,
}

/// How often something may begin.
struct Rate {
    per_second: usize,
    /// When the last ones began, `per_second` of them at most. Its lock is fair, and held by whoever waits for their
    /// second.
    begun: Mutex<VecDeque<Instant>>,
}

/// The right to run one message, until it is dropped.
#[must_use = "dropped, it is given back"]
pub(super) struct Permit {
    _at_once: Option<OwnedSemaphorePermit>,
}

impl Throttle {
    /// At most `at_once` runs under way, of which at most `per_second` begin within any second. `None` and 0 set no limit.
    pub fn new(at_once: Option<usize>, per_second: Option<usize>) -> Self {
        let limit = |limit: Option<usize>| limit.filter(|limit| *limit > 0);
        let permits = limit(at_once).map(|limit| limit.min(Semaphore::MAX_PERMITS));
        let at_once = permits.map(|permits| Arc::new(Semaphore::new(permits)));
        let rate = limit(per_second)
            .map(|per_second| Arc::new(Rate { per_second, begun: Mutex::new(VecDeque::new()) }));
        Throttle { at_once, permits, rate }
    }

    /// How many permits there are; `None` if there is no such limit.
    pub(crate) fn permits(&self) -> Option<usize> {
        self.permits
    }

    /// Waits until one more may begin. Dropping the future gives up the place in the queue, and nothing else.
    pub(super) async fn permit(&self) -> Permit {
        let at_once = match &self.at_once {
            // It is never closed; were it, there would be no limit.
            Some(semaphore) => Arc::clone(semaphore).acquire_owned().await.ok(),
            None => None,
        };
        if let Some(rate) = &self.rate {
            rate.turn().await;
        }
        Permit { _at_once: at_once }
    }
}

impl Rate {
    /// Waits until one more may begin: the one that began `per_second` ago did so a second before, or earlier.
    async fn turn(&self) {
        let mut begun = self.begun.lock().await;
        while begun.len() >= self.per_second
            && let Some(first) = begun.front()
        {
            tokio::time::sleep_until(*first + SECOND).await;
            begun.pop_front();
        }
        begun.push_back(Instant::now());
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle")
            .field("free", &self.at_once.as_ref().map(|semaphore| semaphore.available_permits()))
            .field("per_second", &self.rate.as_ref().map(|rate| rate.per_second))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn in_no_second_do_more_begin_than_may() {
        let throttle = Throttle::new(None, Some(10));
        let mut begun = Vec::new();
        for _ in 0..35 {
            let _permit = throttle.permit().await;
            begun.push(Instant::now());
            tokio::time::sleep(Duration::from_millis(7)).await;
        }
        for window in begun.windows(11) {
            assert!(window[10] - window[0] >= SECOND, "{window:?}");
        }
        assert!(begun[34] - begun[0] < Duration::from_millis(3_300), "nor is anybody held up for longer");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_longest_is_next_and_who_gives_up_holds_up_nobody() {
        let throttle = Throttle::new(Some(1), None);
        let held = throttle.permit().await;
        let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let waiting = |number: u32| {
            let (throttle, order) = (throttle.clone(), Arc::clone(&order));
            tokio::spawn(async move {
                let _permit = throttle.permit().await;
                order.lock().push(number);
            })
        };
        let mut tasks = Vec::new();
        for number in 0..5 {
            tasks.push(waiting(number));
            tokio::task::yield_now().await;
        }
        tasks.remove(2).abort();
        tokio::task::yield_now().await;
        drop(held);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock(), [0, 1, 3, 4]);
    }
}
