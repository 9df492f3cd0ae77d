//! The suite for transports.

mod bench;
mod claims;
mod concurrent;
mod delay;
mod delivery;
mod events;
mod fence;
mod history;
mod inspect;
mod machine;
mod order;
mod outcomes;
mod readers;
mod robust;
mod step;

pub use bench::Bench;

/// A case of the transport suite.
pub type Case = super::Case<Bench>;

/// All cases, topic by topic.
pub fn cases() -> Vec<Case> {
    [
        delivery::cases(),
        events::cases(),
        claims::cases(),
        outcomes::cases(),
        robust::cases(),
        concurrent::cases(),
        delay::cases(),
        fence::cases(),
        inspect::cases(),
        readers::cases(),
        order::cases(),
        history::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
