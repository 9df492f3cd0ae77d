//! The other crate: what the cases use from outside of theirs.

#![forbid(unsafe_code)]

use bus::Settings;

/// Tunes what a singleton cannot have.
#[derive(Clone, Copy, Debug, Settings)]
#[settings(max_concurrent_calls = 100)]
pub struct Bulk;

/// The same, by hand.
#[derive(Clone, Copy, Debug)]
pub struct Ahead;

impl Settings for Ahead {
    const PREFETCH_COUNT: Option<usize> = Some(5);
}
