//! How long a consumer pauses that found nothing: shortly after there was something, longer and longer while there is
//! nothing, and never past the moment at which something of its own comes back.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::wake::jittered;

/// The first pause.
const FIRST: Duration = Duration::from_millis(100);
/// How many moments are kept in mind; beyond that the usual pauses have to do.
const MOMENTS: usize = 1024;

pub(super) struct Poll {
    longest: Duration,
    state: Mutex<State>,
}

struct State {
    next: Duration,
    /// When messages come back that this consumer has put off.
    due: BinaryHeap<Reverse<Instant>>,
}

impl Poll {
    pub(super) fn new(longest: Duration) -> Self {
        Poll { longest, state: Mutex::new(State { next: FIRST, due: BinaryHeap::new() }) }
    }

    /// There was something.
    pub(super) fn found(&self) {
        self.state.lock().next = FIRST;
    }

    /// A message comes back after this time.
    pub(super) fn due_in(&self, time: Duration) {
        let mut state = self.state.lock();
        // The service counts in whole seconds.
        let due = Instant::now().checked_add(time.max(Duration::from_secs(1)));
        if let Some(due) = due.filter(|_| state.due.len() < MOMENTS) {
            state.due.push(Reverse(due));
        }
    }

    /// How long it pauses at most.
    pub(super) fn longest(&self) -> Duration {
        self.longest.mul_f64(1.25)
    }

    /// Waits as long as there is probably nothing.
    pub(super) async fn pause(&self) {
        let until = self.until();
        tokio::time::sleep_until(until).await;
    }

    fn until(&self) -> Instant {
        let (mut state, now) = (self.state.lock(), Instant::now());
        while state.due.peek().is_some_and(|Reverse(due)| *due <= now) {
            state.due.pop();
            // The service may be a little later than we are.
            state.next = FIRST;
        }
        let usual = now + jittered(state.next.min(self.longest));
        state.next = state.next.saturating_mul(2).min(self.longest);
        state.due.peek().map_or(usual, |Reverse(due)| usual.min(*due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_while_there_is_nothing_and_begin_anew_when_there_was_something() {
        let poll = Poll::new(Duration::from_secs(5));
        let pauses: Vec<_> = (0..10).map(|_| poll.until() - Instant::now()).collect();
        assert!(pauses[0] <= FIRST * 5 / 4 && pauses[0] >= FIRST * 3 / 4, "{pauses:?}");
        for late in &pauses[7..] {
            assert!((3750..=6250).contains(&late.as_millis()), "{pauses:?}");
        }
        poll.found();
        assert!(poll.until() - Instant::now() <= FIRST * 5 / 4);
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_back_is_looked_for_when_it_does() {
        let poll = Poll::new(Duration::from_secs(3600));
        for _ in 0..20 {
            poll.until();
        }
        poll.due_in(Duration::from_secs(7));
        poll.due_in(Duration::from_secs(3));
        let began = Instant::now();
        poll.pause().await;
        assert_eq!(began.elapsed().as_secs(), 3);
        poll.pause().await;
        assert!(began.elapsed() < Duration::from_secs(4), "it is looked for until it is there");
        while began.elapsed() < Duration::from_secs(7) {
            poll.pause().await;
        }
        assert_eq!(began.elapsed().as_secs(), 7);
    }
}
