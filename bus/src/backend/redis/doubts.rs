//! Settlements whose answers were lost, by a broken connection or a silent server. They may have counted, and then their
//! claims are gone when somebody asks again. So the server keeps for a while what each batch has not ended, and is asked
//! for it by whoever repeats a part of a batch in doubt.
//!
//! A record on the server is overwritten by the next batch as soon as its own has been answered: as a rule there is one a
//! consumer.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::contract::fresh_claim;

/// A claim on a message: the message's number and the claim's.
pub(super) type ClaimKey = (u64, u64);

/// What the server keeps of a batch is found by these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) record: u64,
    pub(super) number: u64,
}

/// A batch without an answer.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) batch: Batch,
    pub(super) claims: HashSet<ClaimKey>,
    asked: Instant,
}

/// A consumer's batches in doubt.
#[derive(Debug)]
pub(super) struct Doubts {
    kept_for: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    free: Vec<u64>,
    unanswered: Vec<Unanswered>,
}

impl Doubts {
    /// The server is to keep outcomes for that long: nobody asks again for a claim that has run out.
    pub(super) fn new(kept_for: Duration) -> Self {
        Doubts { kept_for, state: Mutex::default() }
    }

    pub(super) fn kept_for(&self) -> Duration {
        self.kept_for
    }

    /// A batch that is about to be asked for.
    pub(super) fn begin(&self) -> Batch {
        let fresh = || fresh_claim().cast_unsigned();
        Batch { record: self.state.lock().free.pop().unwrap_or_else(fresh), number: fresh() }
    }

    /// The batches in doubt that have to do with these claims.
    pub(super) fn about(&self, claims: &[ClaimKey]) -> Vec<Batch> {
        let mut state = self.state.lock();
        state.unanswered.retain(|one| one.asked.elapsed() < self.kept_for);
        let concerns = |one: &&Unanswered| claims.iter().any(|claim| one.claims.contains(claim));
        state.unanswered.iter().filter(concerns).map(|one| one.batch).collect()
    }

    /// Whether a claim was ended by a batch in doubt that is known by now to have been done, all but these claims.
    pub(super) fn was_ended(&self, claim: ClaimKey, batch: Batch, but: &HashSet<ClaimKey>) -> bool {
        let state = self.state.lock();
        let mut its = state.unanswered.iter().filter(|one| one.batch == batch);
        its.any(|one| one.claims.contains(&claim)) && !but.contains(&claim)
    }

    /// A batch has been answered: of these claims nothing is in doubt any more.
    pub(super) fn answered(&self, batch: Batch, claims: &[ClaimKey]) {
        let mut state = self.state.lock();
        state.free.push(batch.record);
        let State { free, unanswered } = &mut *state;
        unanswered.retain_mut(|one| {
            one.claims.retain(|claim| !claims.contains(claim));
            if one.claims.is_empty() {
                free.push(one.batch.record);
            }
            !one.claims.is_empty()
        });
    }

    /// A batch has not been answered, though it may have been done.
    pub(super) fn unanswered(&self, batch: Batch, claims: Vec<ClaimKey>) {
        let one = Unanswered { batch, claims: claims.into_iter().collect(), asked: Instant::now() };
        self.state.lock().unanswered.push(one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_batch_without_an_answer_is_asked_for_until_each_claim_of_it_is() {
        let doubts = Doubts::new(Duration::from_secs(30));
        let first = doubts.begin();
        doubts.unanswered(first, vec![(1, 7), (2, 7)]);
        assert_eq!(doubts.about(&[(3, 7)]), []);
        assert_eq!(doubts.about(&[(2, 7), (3, 7)]), [first]);
        assert!(doubts.was_ended((1, 7), first, &HashSet::new()));
        assert!(!doubts.was_ended((1, 7), first, &HashSet::from([(1, 7)])));
        assert!(!doubts.was_ended((3, 7), first, &HashSet::new()));
        // Its record is not overwritten before that.
        let second = doubts.begin();
        assert_ne!(second.record, first.record);
        doubts.answered(second, &[(1, 7)]);
        assert_eq!(doubts.begin().record, second.record);
        assert_eq!(doubts.about(&[(1, 7)]), []);
        doubts.answered(doubts.begin(), &[(2, 7)]);
        assert_eq!(doubts.about(&[(2, 7)]), []);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_asks_when_the_server_has_forgotten() {
        let doubts = Doubts::new(Duration::from_secs(30));
        doubts.unanswered(doubts.begin(), vec![(1, 7)]);
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(doubts.about(&[(1, 7)]), []);
    }
}
