//! What can be tuned on a processor, and what a singleton has instead.
//!
//! Settings are constants of a type, so that the compiler can refuse what makes no sense. Each is an `Option`:
//! `None` means the default, which differs between plain processors and singletons, and lets the compiler see whether
//! somebody *tuned* it.

pub mod duration;
mod retry;
mod tuned;

use std::marker::PhantomData;
use std::time::Duration;

pub use retry::Retry;
pub use tuned::{
    Setting, Tuned, why_invalid_calls, why_invalid_lease, why_invalid_limit, why_invalid_prefetch,
    why_invalid_retention, why_invalid_timeout,
};

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
/// | `RETENTION` | none | the same; for subscriptions only |
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
    /// How many more are claimed ahead of their processing at most, in each process; more are claimed when half of them
    /// have been taken. 0 claims none ahead. Large messages are claimed no further ahead than about 64 MiB of them.
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
    /// How long a subscription keeps an event that nobody has claimed, counted from its sending, a delay included; then it
    /// is dropped for good, also while no host runs that reads it. At least 1 minute. Only a subscription has one.
    const RETENTION: Option<Duration> = None;
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
    const RETENTION: Option<Duration> = S::RETENTION;
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
    /// See [`Settings::RETENTION`].
    pub retention: Option<Duration>,
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
