//! What is tuned, as values, and the rules that judge it.

use std::time::Duration;

use super::{Order, Resolved, Retry, Settings};

/// What a settings type or a configuration tunes, as values, each still an `Option`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
    /// See [`Settings::RETENTION`].
    pub retention: Option<Duration>,
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
            retention: S::RETENTION,
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

    /// The same with `retention` tuned.
    #[must_use]
    pub const fn with_retention(mut self, value: Duration) -> Self {
        self.retention = Some(value);
        self
    }

    /// What is in force: the defaults of a plain processor, or of a singleton, for what is not tuned.
    ///
    /// A singleton has its own `max_concurrent_calls` and `prefetch_count` whatever is tuned here. That somebody tuned
    /// them is refused by the compiler; see [`why_no_singleton`](Tuned::why_no_singleton).
    pub fn resolve(self, singleton: bool) -> Resolved {
        let resolved = self.over(DEFAULTS);
        match singleton {
            true => Resolved {
                max_concurrent_calls: SINGLETON_CALLS,
                prefetch_count: SINGLETON_PREFETCH,
                ..resolved
            },
            false => resolved,
        }
    }

    /// `settings` with everything replaced that is tuned here.
    #[must_use]
    pub fn over(self, settings: Resolved) -> Resolved {
        Resolved {
            max_concurrent_calls: self.max_concurrent_calls.unwrap_or(settings.max_concurrent_calls),
            prefetch_count: self.prefetch_count.unwrap_or(settings.prefetch_count),
            message_lock_timeout: self.message_lock_timeout.unwrap_or(settings.message_lock_timeout),
            dead_letter_delivery_limit: self
                .dead_letter_delivery_limit
                .unwrap_or(settings.dead_letter_delivery_limit),
            lease: self.lease.unwrap_or(settings.lease),
            retry: self.retry.unwrap_or(settings.retry),
            retention: self.retention.or(settings.retention),
            order: settings.order,
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
            Setting::Retention => match self.retention {
                Some(retention) => why_invalid_retention(retention),
                None => None,
            },
        }
    }
}

/// Extending a claim takes a few flushes of a disk.
const SHORTEST_LEASE_MILLIS: u128 = 100;

/// What is in force on a plain processor that tunes nothing.
const DEFAULTS: Resolved = Resolved {
    max_concurrent_calls: 16,
    prefetch_count: 64,
    message_lock_timeout: Duration::from_secs(60),
    dead_letter_delivery_limit: 5,
    lease: Duration::from_secs(30),
    retry: Retry::DEFAULT,
    retention: None,
    order: Order::Relaxed,
};

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
    /// [`Settings::RETENTION`]
    Retention,
}

/// Why `calls` cannot be a `max_concurrent_calls`; `None` if it can. As with the others of this kind, the same function
/// judges while compiling and where the configuration is read.
pub const fn why_invalid_calls(calls: usize) -> Option<&'static str> {
    match calls {
        0 => Some("`max_concurrent_calls` is 0, and nothing would ever be processed; write 1 to 1000000"),
        1..=1_000_000 => None,
        _ => Some("`max_concurrent_calls` is too high; write 1 to 1000000"),
    }
}

/// Why `count` cannot be a `prefetch_count`; `None` if it can.
pub const fn why_invalid_prefetch(count: usize) -> Option<&'static str> {
    match count {
        0..=1_000_000 => None,
        _ => Some("`prefetch_count` is too high; write 0 to 1000000"),
    }
}

/// Why `time` cannot be a `message_lock_timeout`; `None` if it can.
pub const fn why_invalid_timeout(time: Duration) -> Option<&'static str> {
    match time.is_zero() {
        true => Some(
            "`message_lock_timeout` is zero, and every handler would be late; write a time such as \"1m\"",
        ),
        false => None,
    }
}

/// Why `limit` cannot be a `dead_letter_delivery_limit`; `None` if it can.
pub const fn why_invalid_limit(limit: u32) -> Option<&'static str> {
    match limit {
        0 => {
            Some("`dead_letter_delivery_limit` is 0, and no message would get an attempt; write 1 to 1000000")
        }
        1..=1_000_000 => None,
        _ => Some("`dead_letter_delivery_limit` is too high; write 1 to 1000000"),
    }
}

/// Why `lease` cannot be a `lease`; `None` if it can.
pub const fn why_invalid_lease(lease: Duration) -> Option<&'static str> {
    if lease.is_zero() {
        Some("`lease` is zero, and every claim would be lost at once; write a time such as \"30s\"")
    } else if lease.as_millis() < SHORTEST_LEASE_MILLIS {
        Some(
            "`lease` is below 100ms, and claims would be lost before their messages are started; write a time such as \"30s\"",
        )
    } else {
        None
    }
}

/// Stores are swept once a minute.
const SHORTEST_RETENTION_SECONDS: u64 = 60;

/// Why `retention` cannot be a `retention`; `None` if it can.
pub const fn why_invalid_retention(retention: Duration) -> Option<&'static str> {
    match retention.as_secs() < SHORTEST_RETENTION_SECONDS {
        true => Some(
            "`retention` is below 1m, and events would be gone before anyone reads them; write a time such as \"7d\"",
        ),
        false => None,
    }
}
