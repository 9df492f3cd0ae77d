//! What can be tuned on a processor, and what a singleton has instead.
//!
//! Settings are constants of a type, so that the compiler can refuse what makes no sense. Each is an `Option`:
//! `None` means the default, which differs between plain processors and singletons, and lets the compiler see whether
//! somebody *tuned* it.

use std::marker::PhantomData;
use std::time::Duration;

/// Constants that tune a processor. Written by `#[derive(Settings)]` or by hand.
///
/// | constant | default | on a singleton |
/// |---|---|---|
/// | `MAX_CONCURRENT_CALLS` | 16 | 1, and cannot be tuned |
/// | `PREFETCH_COUNT` | 64 | 0, and cannot be tuned |
/// | `MESSAGE_LOCK_TIMEOUT` | 1 minute | the same |
/// | `DEAD_LETTER_DELIVERY_LIMIT` | 5 | the same |
/// | `LEASE` | 30 s | the same, at most the lock's lease where the store cannot fence |
/// | `RETRY` | exponential, 1 s to 5 min, with jitter | the same |
pub trait Settings: 'static {
    /// How many messages are processed at once, in each process. At least 1.
    const MAX_CONCURRENT_CALLS: Option<usize> = None;
    /// How many more are claimed ahead of their processing, in each process. 0 claims none ahead.
    const PREFETCH_COUNT: Option<usize> = None;
    /// How long a handler may run: then its token fires, and a tenth later (at least 1 s) it is dropped and retried.
    const MESSAGE_LOCK_TIMEOUT: Option<Duration> = None;
    /// After how many failed attempts, and after how many crashes, a message becomes a dead letter. At least 1.
    const DEAD_LETTER_DELIVERY_LIMIT: Option<u32> = None;
    /// How long a claim on a message lasts in the store unless it is extended, as the bus does while it is alive:
    /// the time after which a crashed process's messages come back.
    const LEASE: Option<Duration> = None;
    /// When a failed message is tried again.
    const RETRY: Option<Retry> = None;
}

/// The settings of a processor that says nothing else: every setting at its default.
///
/// Written `settings = Default` in an attribute. Not in the prelude, where it would hide `std`'s.
#[derive(Clone, Copy, Debug)]
pub struct Default;

impl Settings for Default {}

/// `S` without what a singleton cannot have: `max_concurrent_calls` and `prefetch_count` are left out, all else stays.
///
/// For a settings type that serves both plain processors and singletons.
#[derive(Clone, Copy, Debug)]
pub struct AsSingleton<S>(PhantomData<S>);

impl<S: Settings> Settings for AsSingleton<S> {
    const MESSAGE_LOCK_TIMEOUT: Option<Duration> = S::MESSAGE_LOCK_TIMEOUT;
    const DEAD_LETTER_DELIVERY_LIMIT: Option<u32> = S::DEAD_LETTER_DELIVERY_LIMIT;
    const LEASE: Option<Duration> = S::LEASE;
    const RETRY: Option<Retry> = S::RETRY;
}

/// When a failed message is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retry {
    /// At once.
    Immediate,
    /// After always the same time.
    Fixed(Duration),
    /// After a time that doubles with each failure.
    Exponential {
        /// After the first failure.
        first: Duration,
        /// The longest time between two attempts.
        max: Duration,
    },
}

impl Retry {
    /// Exponential from 1 s to 5 min, the default.
    pub const DEFAULT: Retry =
        Retry::Exponential { first: Duration::from_secs(1), max: Duration::from_secs(300) };

    /// How long to wait after the `failures`th failure (counted from 1).
    ///
    /// `jitter`, from 0 to 1, picks a point of the upper half of the time: many messages that failed together do not
    /// come back together ("equal jitter", M. Brooker, "Exponential Backoff and Jitter", AWS 2015). A fixed time has
    /// none, since somebody asked for just that time.
    pub fn delay(self, failures: u32, jitter: f64) -> Duration {
        match self {
            Retry::Immediate => Duration::ZERO,
            Retry::Fixed(time) => time,
            Retry::Exponential { first, max } => {
                let doublings = failures.saturating_sub(1).min(62);
                let full =
                    first.saturating_mul(1u32.checked_shl(doublings.min(31)).unwrap_or(u32::MAX)).min(max);
                full / 2 + (full / 2).mul_f64(jitter.clamp(0.0, 1.0))
            }
        }
    }
}

/// In which order a singleton's queue is worked through when a message has to wait for its retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The next message is processed meanwhile.
    #[default]
    Relaxed,
    /// Nothing else of that queue is processed until the message is done or dead.
    Strict,
}

/// A processor's settings as they are in force: constants, then the configuration's overrides, then the defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resolved {
    /// See [`Settings::MAX_CONCURRENT_CALLS`].
    pub max_concurrent_calls: usize,
    /// See [`Settings::PREFETCH_COUNT`].
    pub prefetch_count: usize,
    /// See [`Settings::MESSAGE_LOCK_TIMEOUT`].
    pub message_lock_timeout: Duration,
    /// See [`Settings::DEAD_LETTER_DELIVERY_LIMIT`].
    pub dead_letter_delivery_limit: u32,
    /// See [`Settings::LEASE`].
    pub lease: Duration,
    /// See [`Settings::RETRY`].
    pub retry: Retry,
    /// See [`Order`].
    pub order: Order,
}

impl Resolved {
    /// The constants of `S` with the defaults of a plain processor, or of a singleton, for what it leaves out.
    pub fn of<S: Settings>(singleton: bool) -> Self {
        let (calls, prefetch) = if singleton { (1, 0) } else { (16, 64) };
        Resolved {
            max_concurrent_calls: S::MAX_CONCURRENT_CALLS.unwrap_or(calls),
            prefetch_count: S::PREFETCH_COUNT.unwrap_or(prefetch),
            message_lock_timeout: S::MESSAGE_LOCK_TIMEOUT.unwrap_or(Duration::from_secs(60)),
            dead_letter_delivery_limit: S::DEAD_LETTER_DELIVERY_LIMIT.unwrap_or(5),
            lease: S::LEASE.unwrap_or(Duration::from_secs(30)),
            retry: S::RETRY.unwrap_or(Retry::DEFAULT),
            order: Order::Relaxed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_double_with_jitter_up_to_their_longest() {
        let retry = Retry::DEFAULT;
        assert_eq!(retry.delay(1, 1.0), Duration::from_secs(1));
        assert_eq!(retry.delay(1, 0.0), Duration::from_millis(500));
        assert_eq!(retry.delay(4, 1.0), Duration::from_secs(8));
        assert_eq!(retry.delay(40, 1.0), Duration::from_secs(300));
        assert_eq!(retry.delay(u32::MAX, 0.0), Duration::from_secs(150));
        assert_eq!(Retry::Fixed(Duration::from_secs(3)).delay(9, 0.3), Duration::from_secs(3));
    }

    #[test]
    fn a_singleton_without_settings_takes_one_message_at_a_time_and_none_ahead() {
        let singleton = Resolved::of::<super::Default>(true);
        assert_eq!((singleton.max_concurrent_calls, singleton.prefetch_count), (1, 0));
    }
}
