//! The keys there are. Reading them is an exhaustive match over these enums, and a test holds the table in the docs
//! against them: a key exists in all three places or in none.

/// An enum of keys together with the list of their names.
macro_rules! keys {
    ($(#[$doc:meta])* $name:ident { $($key:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum $name { $($key),* }

        impl $name {
            const ALL: &'static [(&'static str, $name)] = &[$(($text, $name::$key)),*];

            /// The key of that name.
            pub(super) fn find(name: &str) -> Option<$name> {
                Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, key)| *key)
            }

            /// The names of all keys, in the order of the docs.
            pub(super) fn names() -> impl Iterator<Item = &'static str> + Clone {
                Self::ALL.iter().map(|(name, _)| *name)
            }
        }
    };
}

keys! {
    /// What stands at the top level of the file.
    TopKey {
        Transports = "transports",
        Locks = "locks",
        LocksReach = "locks_reach",
        Namespace = "namespace",
        LockLease = "lock_lease",
        LockRenewEvery = "lock_renew_every",
        LockTryTimeout = "lock_try_timeout",
        OnOverrun = "on_overrun",
        OnStoreDown = "on_store_down",
        StoreWaitLimit = "store_wait_limit",
        WarnUnreadAfter = "warn_unread_after",
        ShutdownGracePeriod = "shutdown_grace_period",
        Health = "health",
        Alive = "alive",
        Throttle = "throttle",
        ThrottlePerSecond = "throttle_per_second",
        Processors = "processors",
    }
}

keys! {
    /// What can be said of one processor.
    ProcessorKey {
        MaxConcurrentCalls = "max_concurrent_calls",
        PrefetchCount = "prefetch_count",
        MessageLockTimeout = "message_lock_timeout",
        DeadLetterDeliveryLimit = "dead_letter_delivery_limit",
        Lease = "lease",
        Retry = "retry",
        Retention = "retention",
        LockLease = "lock_lease",
        LockRenewEvery = "lock_renew_every",
    }
}

/// How alike two names must be, from 0 to 1, before one is taken for a slip of the other.
const ALIKE: f64 = 0.6;

/// The one of `known` that `unknown` was probably meant to be.
pub(crate) fn closest<'k>(unknown: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let unknown = unknown.to_ascii_lowercase().replace('-', "_");
    known
        .into_iter()
        .map(|name| (name, strsim::normalized_damerau_levenshtein(&unknown, &name.replace('-', "_"))))
        .filter(|(_, likeness)| *likeness >= ALIKE)
        .max_by(|(_, a), (_, b)| a.total_cmp(b))
        .map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        for (slip, meant) in [
            ("lock", Some("locks")),
            ("lokcs", Some("locks")),
            ("Locks", Some("locks")),
            ("transport", Some("transports")),
            ("lock-lease", Some("lock_lease")),
            ("lock_renewal_every", Some("lock_renew_every")),
            ("log_level", None),
        ] {
            assert_eq!(closest(slip, TopKey::names()), meant, "{slip}");
        }
    }
}
