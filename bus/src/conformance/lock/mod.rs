//! The suite for lock managers.

mod bench;
mod contention;
mod ends;
mod holding;
mod patient;
mod views;

pub use bench::Bench;

/// A case of the lock suite.
pub type Case = super::Case<Bench>;

/// All cases, topic by topic.
pub fn cases() -> Vec<Case> {
    [holding::cases(), ends::cases(), views::cases(), contention::cases()].into_iter().flatten().collect()
}
