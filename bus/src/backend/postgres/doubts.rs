//! Settlements whose answers were lost, by a broken connection or a silent server. They may have counted, and then the
//! claim is not there any more when somebody asks again. Nothing is written about it in the store, since that would cost
//! every settlement something. Instead it is concluded: while a claim has certainly not run out nobody else can have taken
//! the message, so that who has ended it is its holder.
//!
//! Certain is what both clocks say, our own and the server's, of which the latter may have been set meanwhile. Who can take
//! a message before its claim runs out, the holder of a higher fence, is asked for before.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use super::claim::ClaimKey;
use crate::clock::BootInstant;

/// How many claims are kept in mind before those that have run out are looked for.
const MANY: usize = 1024;

/// A consumer's claims, and which of them it has tried to end without an answer.
#[derive(Debug, Default)]
pub(super) struct Doubts(Mutex<Claims>);

#[derive(Debug, Default)]
struct Claims {
    held: HashMap<ClaimKey, Held>,
    /// How many there may be before they are cleaned up.
    many: usize,
}

#[derive(Debug)]
struct Held {
    /// Until when it is ours by our clock, at the least.
    ours: BootInstant,
    /// The same by the server's.
    theirs: i64,
    /// Whether it may have been ended.
    in_doubt: bool,
}

impl Doubts {
    /// Claims were made, or extended, by a call at `asked`; each is known with its end by the server's clock.
    pub(super) fn held(
        &self,
        claims: impl IntoIterator<Item = (ClaimKey, i64)>,
        asked: BootInstant,
        lease: Duration,
    ) {
        let mut state = self.0.lock();
        for (claim, theirs) in claims {
            let in_doubt = state.held.get(&claim).is_some_and(|held| held.in_doubt);
            state.held.insert(claim, Held { ours: asked + lease, theirs, in_doubt });
        }
        if state.held.len() > state.many.max(MANY) {
            state.held.retain(|_, held| asked < held.ours);
            state.many = state.held.len() * 2;
        }
    }

    /// These claims may last for `lease` from `asked`, or as long as before.
    pub(super) fn perhaps_extended(
        &self,
        claims: impl IntoIterator<Item = ClaimKey>,
        asked: BootInstant,
        lease: Duration,
    ) {
        let mut state = self.0.lock();
        for claim in claims {
            if let Some(held) = state.held.get_mut(&claim) {
                held.ours = held.ours.min(asked + lease);
            }
        }
    }

    /// Whoever asked to end these claims has no answer.
    pub(super) fn unanswered(&self, claims: impl IntoIterator<Item = ClaimKey>) {
        let mut state = self.0.lock();
        for claim in claims {
            if let Some(held) = state.held.get_mut(&claim) {
                held.in_doubt = true;
            }
        }
    }

    /// Whether it may have been ended without our knowing.
    pub(super) fn is_in_doubt(&self, claim: &ClaimKey) -> bool {
        self.0.lock().held.get(claim).is_some_and(|held| held.in_doubt)
    }

    /// Whether a claim that is not in the store any more was ended by us, for certain.
    pub(super) fn ended_by_us(&self, claim: &ClaimKey, now: BootInstant, server_now: i64) -> bool {
        let state = self.0.lock();
        state.held.get(claim).is_some_and(|held| held.in_doubt && now < held.ours && server_now < held.theirs)
    }

    /// These claims are over.
    pub(super) fn over(&self, claims: impl IntoIterator<Item = ClaimKey>) {
        let mut state = self.0.lock();
        for claim in claims {
            state.held.remove(&claim);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    const LEASE: Duration = Duration::from_secs(30);

    #[test]
    fn only_a_claim_in_doubt_that_has_run_out_by_no_clock_was_ended_by_us() {
        let (doubts, now) = (Doubts::default(), Clock::system().now());
        doubts.held([((1, 7), 100), ((2, 7), 100)], now, LEASE);
        doubts.unanswered([(1, 7), (3, 7)]);
        assert!(doubts.is_in_doubt(&(1, 7)) && !doubts.is_in_doubt(&(2, 7)) && !doubts.is_in_doubt(&(3, 7)));
        assert!(doubts.ended_by_us(&(1, 7), now, 99));
        assert!(!doubts.ended_by_us(&(1, 7), now, 100), "by the server's clock it has run out");
        assert!(!doubts.ended_by_us(&(1, 7), now + LEASE, 99), "by ours it has");
        assert!(!doubts.ended_by_us(&(2, 7), now, 99), "nobody has asked for its end");
        assert!(!doubts.ended_by_us(&(3, 7), now, 99), "it was never ours");
        // Extended, it is as much in doubt as before.
        doubts.held([((1, 7), 200)], now + LEASE, LEASE);
        assert!(doubts.ended_by_us(&(1, 7), now + LEASE, 199));
        // An extension that may have been made can only have cut it short.
        doubts.perhaps_extended([(1, 7)], now, LEASE / 2);
        assert!(doubts.ended_by_us(&(1, 7), now, 199) && !doubts.ended_by_us(&(1, 7), now + LEASE / 2, 199));
        doubts.over([(1, 7)]);
        assert!(!doubts.ended_by_us(&(1, 7), now, 99));
    }

    #[test]
    fn claims_that_nobody_ends_are_forgotten() {
        let (doubts, mut now) = (Doubts::default(), Clock::system().now());
        for batch in 0..20 {
            doubts.held((0..1000).map(|id| ((id, batch), 0)), now, LEASE);
            now = now + LEASE;
        }
        assert!(doubts.0.lock().held.len() <= MANY + 1000);
    }
}
