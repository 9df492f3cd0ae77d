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
///
/// ```
/// use bus::prelude::*;
///
/// #[derive(Settings)]
/// #[settings(max_concurrent_calls = 100, message_lock_timeout = "2m", retry(fixed = "5s"))]
/// struct Bulk;
///
/// // The same by hand, from a value that is computed:
/// struct PerCore;
/// impl bus::Settings for PerCore {
///     const MAX_CONCURRENT_CALLS: Option<usize> = Some(4 * 8);
/// }
/// ```
///
/// `retry` is `retry(immediate)`, `retry(fixed = "5s")` or `retry(exponential(first = "1s", max = "5m"))`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a settings type",
    label = "not a settings type",
    note = "a settings type has `#[derive(Settings)] #[settings(…)]`; `settings = Default` leaves everything at its default"
)]
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

/// What a settings type tunes, as values: its constants, each still an `Option`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuned {
    /// See [`Settings::MAX_CONCURRENT_CALLS`].
    pub max_concurrent_calls: Option<usize>,
    /// See [`Settings::PREFETCH_COUNT`].
    pub prefetch_count: Option<usize>,
    /// See [`Settings::MESSAGE_LOCK_TIMEOUT`].
    pub message_lock_timeout: Option<Duration>,
    /// See [`Settings::DEAD_LETTER_DELIVERY_LIMIT`].
    pub dead_letter_delivery_limit: Option<u32>,
    /// See [`Settings::LEASE`].
    pub lease: Option<Duration>,
    /// See [`Settings::RETRY`].
    pub retry: Option<Retry>,
}

impl Tuned {
    /// The constants of `S`.
    pub const fn of<S: Settings>() -> Self {
        Tuned {
            max_concurrent_calls: S::MAX_CONCURRENT_CALLS,
            prefetch_count: S::PREFETCH_COUNT,
            message_lock_timeout: S::MESSAGE_LOCK_TIMEOUT,
            dead_letter_delivery_limit: S::DEAD_LETTER_DELIVERY_LIMIT,
            lease: S::LEASE,
            retry: S::RETRY,
        }
    }

    /// The same with `max_concurrent_calls` tuned.
    #[must_use]
    pub const fn with_max_concurrent_calls(mut self, value: usize) -> Self {
        self.max_concurrent_calls = Some(value);
        self
    }

    /// The same with `prefetch_count` tuned.
    #[must_use]
    pub const fn with_prefetch_count(mut self, value: usize) -> Self {
        self.prefetch_count = Some(value);
        self
    }

    /// The same with `message_lock_timeout` tuned.
    #[must_use]
    pub const fn with_message_lock_timeout(mut self, value: Duration) -> Self {
        self.message_lock_timeout = Some(value);
        self
    }

    /// The same with `dead_letter_delivery_limit` tuned.
    #[must_use]
    pub const fn with_dead_letter_delivery_limit(mut self, value: u32) -> Self {
        self.dead_letter_delivery_limit = Some(value);
        self
    }

    /// The same with `lease` tuned.
    #[must_use]
    pub const fn with_lease(mut self, value: Duration) -> Self {
        self.lease = Some(value);
        self
    }

    /// The same with `retry` tuned.
    #[must_use]
    pub const fn with_retry(mut self, value: Retry) -> Self {
        self.retry = Some(value);
        self
    }

    /// What is in force: the defaults of a plain processor, or of a singleton, for what is not tuned.
    ///
    /// A singleton has its own `max_concurrent_calls` and `prefetch_count` whatever is tuned here. That somebody tuned
    /// them is refused by the compiler; see [`why_no_singleton`](Tuned::why_no_singleton).
    pub fn resolve(self, singleton: bool) -> Resolved {
        let (calls, prefetch) = match singleton {
            true => (SINGLETON_CALLS, SINGLETON_PREFETCH),
            false => (self.max_concurrent_calls.unwrap_or(16), self.prefetch_count.unwrap_or(64)),
        };
        Resolved {
            max_concurrent_calls: calls,
            prefetch_count: prefetch,
            message_lock_timeout: self.message_lock_timeout.unwrap_or(Duration::from_secs(60)),
            dead_letter_delivery_limit: self.dead_letter_delivery_limit.unwrap_or(5),
            lease: self.lease.unwrap_or(Duration::from_secs(30)),
            retry: self.retry.unwrap_or(Retry::DEFAULT),
            order: Order::Relaxed,
        }
    }

    /// Why these values cannot be a singleton's, for the setting it is about; `None` if they can.
    ///
    /// Values that a singleton has anyway (1 and 0) are fine.
    pub const fn why_no_singleton(&self, setting: Setting) -> Option<&'static str> {
        match setting {
            Setting::MaxConcurrentCalls => match self.max_concurrent_calls {
                None | Some(SINGLETON_CALLS) => None,
                Some(_) => Some("a singleton runs one message at a time: it has no `max_concurrent_calls`"),
            },
            Setting::PrefetchCount => match self.prefetch_count {
                None | Some(SINGLETON_PREFETCH) => None,
                Some(_) => Some("a singleton claims no message ahead: it has no `prefetch_count`"),
            },
            _ => None,
        }
    }

    /// Why the value of `setting` makes no sense on any processor; `None` if it does, or if it is not tuned.
    pub const fn why_invalid(&self, setting: Setting) -> Option<&'static str> {
        match setting {
            Setting::MaxConcurrentCalls => match self.max_concurrent_calls {
                Some(calls) => why_invalid_calls(calls),
                None => None,
            },
            Setting::PrefetchCount => match self.prefetch_count {
                Some(count) => why_invalid_prefetch(count),
                None => None,
            },
            Setting::MessageLockTimeout => match self.message_lock_timeout {
                Some(time) => why_invalid_timeout(time),
                None => None,
            },
            Setting::DeadLetterDeliveryLimit => match self.dead_letter_delivery_limit {
                Some(limit) => why_invalid_limit(limit),
                None => None,
            },
            Setting::Lease => match self.lease {
                Some(lease) => why_invalid_lease(lease),
                None => None,
            },
            Setting::Retry => match self.retry {
                Some(retry) => retry.why_invalid(),
                None => None,
            },
        }
    }
}

const SINGLETON_CALLS: usize = 1;
const SINGLETON_PREFETCH: usize = 0;

/// One of the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Setting {
    /// [`Settings::MAX_CONCURRENT_CALLS`]
    MaxConcurrentCalls,
    /// [`Settings::PREFETCH_COUNT`]
    PrefetchCount,
    /// [`Settings::MESSAGE_LOCK_TIMEOUT`]
    MessageLockTimeout,
    /// [`Settings::DEAD_LETTER_DELIVERY_LIMIT`]
    DeadLetterDeliveryLimit,
    /// [`Settings::LEASE`]
    Lease,
    /// [`Settings::RETRY`]
    Retry,
}

const DAY: u64 = 24 * 60 * 60;

/// Why `calls` cannot be a `max_concurrent_calls`; `None` if it can. As with the others of this kind, the same function
/// judges while compiling and where the configuration is read.
pub const fn why_invalid_calls(calls: usize) -> Option<&'static str> {
    match calls {
        0 => Some("`max_concurrent_calls` is 0, and nothing would ever be processed; write 1 to 10000"),
        1..=10_000 => None,
        _ => Some("`max_concurrent_calls` is too high; write 1 to 10000"),
    }
}

/// Why `count` cannot be a `prefetch_count`; `None` if it can.
pub const fn why_invalid_prefetch(count: usize) -> Option<&'static str> {
    match count {
        0..=100_000 => None,
        _ => Some("`prefetch_count` is too high; write 0 to 100000"),
    }
}

/// Why `time` cannot be a `message_lock_timeout`; `None` if it can.
pub const fn why_invalid_timeout(time: Duration) -> Option<&'static str> {
    match time.as_millis() {
        0 => Some("`message_lock_timeout` is zero, and every handler would be too late; write 1ms to 7days"),
        1.. if time.as_secs() > 7 * DAY => Some(
            "`message_lock_timeout` is too long; write 1ms to 7days, and split longer work into messages",
        ),
        _ => None,
    }
}

/// Why `limit` cannot be a `dead_letter_delivery_limit`; `None` if it can.
pub const fn why_invalid_limit(limit: u32) -> Option<&'static str> {
    match limit {
        0 => Some("`dead_letter_delivery_limit` is 0, and no message would get an attempt; write 1 to 10000"),
        1..=10_000 => None,
        _ => Some("`dead_letter_delivery_limit` is too high; write 1 to 10000"),
    }
}

/// Why `lease` cannot be a `lease`; `None` if it can.
pub const fn why_invalid_lease(lease: Duration) -> Option<&'static str> {
    match lease.as_secs() {
        0 => Some(
            "`lease` is below one second, and claims would be lost while they are extended; write 1s to 7days",
        ),
        secs if secs > 7 * DAY => Some("`lease` is too long; write 1s to 7days"),
        _ => None,
    }
}

impl Retry {
    /// Why this cannot be a `retry`; `None` if it can.
    pub const fn why_invalid(self) -> Option<&'static str> {
        let (first, last) = match self {
            Retry::Immediate => return None,
            Retry::Fixed(time) => (time, time),
            Retry::Exponential { first, max } => (first, max),
        };
        if first.is_zero() {
            Some("`retry` waits for no time at all; write `retry(immediate)` if that is meant")
        } else if last.as_secs() > 30 * DAY {
            Some("`retry` waits too long; write at most 30days")
        } else if first.as_nanos() > last.as_nanos() {
            Some("`retry` begins with a longer time than its longest; write a `first` of at most `max`")
        } else {
            None
        }
    }
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
        Tuned::of::<S>().resolve(singleton)
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

    struct Bulk;
    impl Settings for Bulk {
        const MAX_CONCURRENT_CALLS: Option<usize> = Some(100);
        const LEASE: Option<Duration> = Some(Duration::from_secs(7));
    }

    #[test]
    fn only_what_a_singleton_cannot_have_is_left_out_for_it() {
        let tuned = Tuned::of::<Bulk>();
        assert!(tuned.why_no_singleton(Setting::MaxConcurrentCalls).is_some());
        let singleton = Tuned::of::<AsSingleton<Bulk>>();
        assert!(singleton.why_no_singleton(Setting::MaxConcurrentCalls).is_none());
        assert_eq!(singleton.resolve(true).lease, Duration::from_secs(7));
    }
}
