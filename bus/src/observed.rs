//! What a candidate has seen of locks that others hold, by its own clock, which never jumps: for lock managers whose store
//! reckons leases by a wall clock, or has no clock at all.
//!
//! When that clock is set forward, a record that was renewed a moment ago looks as if it had run out; when it is set back,
//! a dead one looks alive for as long as it was set back. A candidate that has watched a record knows better: the record's
//! beat grows with each renewal, so that a beat which has not changed for the holder's whole lease is a dead one's, and one
//! that has changed within it is not.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::BootInstant;
use crate::contract::LockId;

/// A record at one renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// The term's number.
    pub fence: String,
    /// What changes with each renewal.
    pub beat: String,
}

/// A record that somebody else holds, as the store has just shown it.
#[derive(Clone, Debug)]
pub struct Held {
    /// At its last renewal.
    pub beat: Beat,
    /// How long ago it was renewed by the store's clock; negative if that has been set back since, 0 if there is none.
    pub age_micros: i64,
    /// The holder's lease.
    pub lease: Duration,
}

/// What a candidate tells the store when it asks for the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// At the last renewal that was seen.
    pub beat: Beat,
    /// How long the holder's lease still lasts after the renewal that was seen last.
    pub wait: Duration,
}

#[derive(Debug)]
struct Observation {
    beat: Beat,
    lease: Duration,
    renewed: BootInstant,
    looked: BootInstant,
}

/// What has been seen of each lock.
#[derive(Debug, Default)]
pub struct Observed(Mutex<HashMap<LockId, Observation>>);

impl Observed {
    /// What to tell the store now. Nothing, if the last look is a lease ago: what has happened since may be as long ago.
    pub fn seen(&self, id: &LockId, now: BootInstant) -> Option<Seen> {
        let observed = self.0.lock();
        let last = observed.get(id).filter(|last| now.since(last.looked) < last.lease)?;
        let wait = (last.renewed + last.lease).since(now);
        Some(Seen { beat: last.beat.clone(), wait })
    }

    /// Takes note of a record that is held.
    pub fn note(&self, id: &LockId, held: Held, now: BootInstant) {
        let mut observed = self.0.lock();
        let last = observed.get(id).filter(|last| now.since(last.looked) < last.lease);
        let told = u64::try_from(held.age_micros).ok().map(Duration::from_micros);
        let renewed = match (last, told) {
            (Some(last), _) if last.beat == held.beat => last.renewed,
            // It was renewed after the last look: an age that says otherwise is a jump of the store's clock.
            (Some(last), Some(age)) if age <= now.since(last.looked) => now - age,
            (None, Some(age)) => now - age,
            _ => now,
        };
        let Held { beat, lease, .. } = held;
        observed.insert(id.clone(), Observation { beat, lease, renewed, looked: now });
    }

    /// Forgets a lock: it is ours, or free.
    pub fn forget(&self, id: &LockId) {
        self.0.lock().remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(20);

    fn at(seconds: u64) -> BootInstant {
        BootInstant::from_nanos(1_000_000_000_000) + Duration::from_secs(seconds)
    }

    fn held(beat: &str, age_seconds: i64) -> Held {
        let beat = Beat { fence: "7".into(), beat: beat.into() };
        Held { beat, age_micros: age_seconds * 1_000_000, lease: LEASE }
    }

    fn wait(observed: &Observed, seconds: u64) -> Option<Duration> {
        observed.seen(&LockId::from("it"), at(seconds)).map(|seen| seen.wait)
    }

    #[test]
    fn a_beat_lasts_for_the_holders_lease() {
        let (observed, id) = (Observed::default(), LockId::from("it"));
        assert_eq!(wait(&observed, 0), None);
        observed.note(&id, held("1", 5), at(0));
        assert_eq!(wait(&observed, 0), Some(Duration::from_secs(15)));
        // Seen again without a renewal, whatever the server's clock says by now.
        observed.note(&id, held("1", -3600), at(10));
        assert_eq!(wait(&observed, 14), Some(Duration::from_secs(1)));
        assert_eq!(wait(&observed, 15), Some(Duration::ZERO));
        observed.forget(&id);
        assert_eq!(wait(&observed, 15), None);
    }

    #[test]
    fn a_renewal_since_the_last_look_is_no_older_than_that() {
        let (observed, id) = (Observed::default(), LockId::from("it"));
        observed.note(&id, held("1", 0), at(0));
        observed.note(&id, held("2", 1), at(2));
        assert_eq!(wait(&observed, 2), Some(Duration::from_secs(19)));
        // The server's clock has been set forward by an hour, or back.
        for (beat, age) in [("3", 3600), ("4", -3600)] {
            observed.note(&id, held(beat, age), at(4));
            assert_eq!(wait(&observed, 4), Some(LEASE));
        }
    }

    #[test]
    fn what_was_seen_long_ago_says_nothing() {
        let (observed, id) = (Observed::default(), LockId::from("it"));
        observed.note(&id, held("1", 0), at(0));
        assert_eq!(wait(&observed, 21), None);
        observed.note(&id, held("2", 12), at(21));
        assert_eq!(wait(&observed, 21), Some(Duration::from_secs(8)));
    }
}
