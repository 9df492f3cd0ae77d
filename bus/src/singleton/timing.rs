//! The times a singleton's lock lives by, and the one rule that they have to keep.
//!
//! Everything is derived from `lock_lease` unless it is said otherwise. The fractions of the lease at which a
//! holder doubts, loses and is cut are not settings: two hosts that disagreed about them could not reason about
//! each other. What may be changed here are the defaults; what may not is the rule in [`LockTiming::checked`].

use std::time::Duration;

use crate::clock::BootInstant;
pub use crate::contract::LONGEST_LOCK_LEASE;
use crate::contract::LeaseRange;
use crate::error::{Error, ErrorKind, Result};

/// The shortest lease that is accepted: below this, scheduling delays alone would lose locks.
pub const SHORTEST_LOCK_LEASE: Duration = Duration::from_millis(100);

/// The default `lock_lease`, unless the lock manager has another.
pub const DEFAULT_LOCK_LEASE: Duration = LeaseRange::USUAL.default;

/// How many times a renewal is tried before only the deadline counts.
pub const RENEWAL_TRIES: u32 = 3;

/// The longest pause of a candidate whose starts keep failing.
pub(crate) const LONGEST_START_PAUSE: Duration = Duration::from_secs(300);

/// When a lock is renewed, how long an attempt may take, and how often a standby looks.
///
/// ```
/// use std::time::Duration;
/// use bus::singleton::LockTiming;
///
/// let timing = LockTiming::new(Duration::from_secs(60)).renew_every(Duration::from_secs(19)).checked()?;
/// assert_eq!(timing.lock_lease(), Duration::from_secs(60));
/// # Ok::<(), bus::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockTiming {
    lock_lease: Duration,
    renew_every: Duration,
    renew_jitter: Duration,
    try_timeout: Duration,
    back_offs: [Duration; 2],
    /// `None`: as often as the lock manager says.
    poll_every: Option<Duration>,
    start_tries: u32,
}

impl Default for LockTiming {
    fn default() -> Self {
        LockTiming::new(DEFAULT_LOCK_LEASE)
    }
}

impl LockTiming {
    /// The defaults for a lease: renewed every quarter (±20 %), a tenth for each try, back-offs of a fortieth and
    /// a twentieth, and a standby that looks as often as the lock manager advises (else every quarter).
    pub fn new(lock_lease: Duration) -> Self {
        LockTiming {
            lock_lease,
            renew_every: lock_lease / 4,
            renew_jitter: lock_lease / 20,
            try_timeout: lock_lease / 10,
            back_offs: [lock_lease / 40, lock_lease / 20],
            poll_every: None,
            start_tries: 3,
        }
    }

    /// How long after a confirmed renewal the next one is sent. The jitter becomes a fifth of it.
    #[must_use]
    pub fn renew_every(mut self, renew_every: Duration) -> Self {
        self.renew_every = renew_every;
        self.renew_jitter = renew_every / 5;
        self
    }

    /// How long one attempt to acquire, renew, release or raise the fence may go unanswered.
    #[must_use]
    pub fn try_timeout(mut self, try_timeout: Duration) -> Self {
        self.try_timeout = try_timeout;
        self
    }

    /// The pauses after the first and after every later failed try.
    #[must_use]
    pub fn back_offs(mut self, first: Duration, later: Duration) -> Self {
        self.back_offs = [first, later];
        self
    }

    /// The longest time a standby waits before it asks again; where the store can tell that a lock was freed,
    /// this is only what stands behind the hint.
    #[must_use]
    pub fn poll_every(mut self, poll_every: Duration) -> Self {
        self.poll_every = Some(poll_every);
        self
    }

    /// What the lock manager advises, where nothing else was asked for.
    pub(super) fn poll_every_unless_set(mut self, advised: Duration) -> Self {
        self.poll_every.get_or_insert(advised);
        self
    }

    /// How often in a row a run may fail to start before the lock is given up to others. At least one.
    #[must_use]
    pub fn start_tries(mut self, start_tries: u32) -> Self {
        self.start_tries = start_tries.max(1);
        self
    }

    /// Accepts the times if one whole round of renewal tries ends while the lock is still owned, and cuts the
    /// jitter to what still fits.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] when the lease is out of range, when a time is zero, or when the round does not fit:
    /// a single lost packet could then lose the lock.
    pub fn checked(mut self) -> Result<Self> {
        let lease = self.lock_lease;
        if lease < SHORTEST_LOCK_LEASE || lease > LONGEST_LOCK_LEASE {
            return Err(refused(format!(
                "lock_lease is {lease:?}; it must be at least {SHORTEST_LOCK_LEASE:?} and at most {LONGEST_LOCK_LEASE:?}"
            )));
        }
        for (name, value) in [
            ("lock_renew_every", self.renew_every),
            ("lock_try_timeout", self.try_timeout),
            ("the lock's poll interval", self.poll()),
        ] {
            if value.is_zero() {
                return Err(refused(format!("{name} is zero; a lock cannot be kept like that")));
            }
        }
        let owned = lease * 3 / 4;
        let round = self.round();
        if round > owned {
            let [first, later] = self.back_offs;
            return Err(refused(format!(
                "lock_renew_every {:?} + {RENEWAL_TRIES} tries of {:?} + back-offs {first:?} and {later:?} are \
                 {round:?}, which does not fit into the {owned:?} (three quarters of lock_lease {lease:?}) that a lock \
                 counts as owned; renew more often, shorten lock_try_timeout, or lengthen lock_lease",
                self.renew_every, self.try_timeout,
            )));
        }
        self.renew_jitter = self.renew_jitter.min(owned - round);
        Ok(self)
    }

    fn poll(&self) -> Duration {
        self.poll_every.unwrap_or_else(|| (self.lock_lease / 4).min(Duration::from_secs(5)))
    }

    /// The longest time from one confirmed renewal to the end of the next round of tries, without jitter.
    fn round(&self) -> Duration {
        self.renew_every
            .saturating_add(self.try_timeout.saturating_mul(RENEWAL_TRIES))
            .saturating_add(self.back_offs[0])
            .saturating_add(self.back_offs[1])
    }

    /// The lease of the lock. (`lease` alone always means the claim on a message.)
    pub fn lock_lease(&self) -> Duration {
        self.lock_lease
    }

    /// How long an attempt may go unanswered before it is tried again.
    pub fn attempt_timeout(&self) -> Duration {
        self.try_timeout
    }

    /// How long a lock's store may go unasked, or a question be under way, while all is well.
    pub(super) fn longest_silence(&self) -> Duration {
        self.poll().max(self.renew_every.saturating_add(self.renew_jitter)).saturating_add(self.try_timeout)
    }

    /// The longest a keeper may sleep at once: no decision rests on a timer alone, and a clock that jumped has
    /// to be seen soon.
    pub fn slice(&self) -> Duration {
        self.lock_lease / 20
    }

    /// How far wall and boot clock may part between two looks before the holder doubts.
    pub(super) fn tolerated_jump(&self) -> Duration {
        self.lock_lease / 20
    }

    pub(super) fn doubtful_at(&self, confirmed: BootInstant) -> BootInstant {
        confirmed + self.lock_lease / 2
    }

    pub(super) fn lost_at(&self, confirmed: BootInstant) -> BootInstant {
        confirmed + self.lock_lease * 3 / 4
    }

    pub(super) fn cut_at(&self, confirmed: BootInstant) -> BootInstant {
        confirmed + self.lock_lease * 7 / 8
    }

    pub(super) fn overrun_at(&self, confirmed: BootInstant) -> BootInstant {
        confirmed + self.lock_lease * 15 / 16
    }

    /// What a run gets between the cancelled token and the cut when the loss came as a definite answer.
    pub(super) fn notice(&self) -> Duration {
        self.lock_lease / 8
    }

    pub(super) fn expires_at(&self, confirmed: BootInstant) -> BootInstant {
        confirmed + self.lock_lease
    }

    pub(super) fn starts_before_giving_up(&self) -> u32 {
        self.start_tries
    }

    /// The pause before the next renewal; `jitter` is between −1 and 1.
    pub(super) fn until_renewal(&self, jitter: f64) -> Duration {
        spread(self.renew_every, self.renew_jitter, jitter)
    }

    /// The pause after `failures` failed tries in a row.
    pub(super) fn after_failures(&self, failures: u32) -> Duration {
        if failures <= 1 { self.back_offs[0] } else { self.back_offs[1] }
    }

    /// The pause of an acquire whose outcome is still unknown: short at first, then as rarely as a standby looks.
    pub(super) fn after_unknown(&self, tries: u32, jitter: f64) -> Duration {
        if tries < RENEWAL_TRIES { self.after_failures(tries) } else { self.until_poll(jitter) }
    }

    /// The pause of a standby: between a half of `poll_every` and the whole.
    pub(super) fn until_poll(&self, jitter: f64) -> Duration {
        spread(self.poll() * 3 / 4, self.poll() / 4, jitter)
    }

    /// The pause of a candidate that gave the lock up because its starts kept failing, for the n-th time.
    pub(super) fn after_given_up(&self, rounds: u32, jitter: f64) -> Duration {
        let doubled = self.lock_lease.saturating_mul(1 << rounds.saturating_sub(1).min(4));
        let pause = doubled.min(LONGEST_START_PAUSE);
        spread(pause * 3 / 4, pause / 4, jitter)
    }
}

fn refused(why: String) -> Error {
    Error::new(ErrorKind::Config, why)
}

fn spread(middle: Duration, by: Duration, jitter: f64) -> Duration {
    // Not a number counts as no jitter; a wider value than promised is cut, so a caller cannot break the rule.
    let jitter = if jitter.is_nan() { 0.0 } else { jitter.clamp(-1.0, 1.0) };
    if jitter < 0.0 { middle.saturating_sub(by.mul_f64(-jitter)) } else { middle + by.mul_f64(jitter) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_fit_for_every_lease() {
        for millis in [100, 500, 2_000, 20_000, 30_000, 60_000, 600_000] {
            let timing = LockTiming::new(Duration::from_millis(millis));
            assert_eq!(timing.checked().ok(), Some(timing), "nothing has to be cut for {millis} ms");
        }
    }

    #[test]
    fn the_jitter_is_cut_to_what_still_fits() {
        let timing = LockTiming::new(Duration::from_secs(60)).renew_every(Duration::from_secs(19)).checked();
        let timing = timing.expect("60 s renewed every 19 s is a known good pair");
        assert_eq!(timing.until_renewal(1.0), Duration::from_millis(22_500));
        assert_eq!(timing.until_renewal(-1.0), Duration::from_millis(15_500));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_sum() {
        let refused = LockTiming::new(Duration::from_secs(20)).renew_every(Duration::from_secs(8)).checked();
        let text = refused.expect_err("8 s + 6 s + 1.5 s exceed 15 s").to_string();
        assert!(
            text.contains("15.5s") && text.contains("15s") && text.contains("lengthen lock_lease"),
            "{text}"
        );
    }

    #[test]
    fn a_lease_out_of_range_and_a_zero_are_refused() {
        for timing in [
            LockTiming::new(Duration::ZERO),
            LockTiming::new(Duration::from_secs(601)),
            LockTiming::new(Duration::MAX / 8),
            LockTiming::default().renew_every(Duration::ZERO),
            LockTiming::default().try_timeout(Duration::ZERO),
            LockTiming::default().poll_every(Duration::ZERO),
        ] {
            timing.checked().expect_err("refused");
        }
    }
}
