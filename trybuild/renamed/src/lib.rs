//! A crate that knows `bus` by another name, and that is strict: what the macros write must not be heard of.
//!
//! It is linked by the tests beside it through `bus::handlers!` only.

#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unused_qualifications, unreachable_pub, rust_2018_idioms)]
#![deny(clippy::all, clippy::pedantic)]

use messaging::prelude::*;

/// A command.
#[derive(Debug, Serialize, Deserialize, Command)]
#[command(queue = "renamed")]
pub struct Renamed {
    /// What it carries.
    pub number: u64,
}

/// An event.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event(topic = "renamed-too", transport = "other")]
pub enum RenamedToo {
    /// With something in it.
    Some(String),
}

/// Settings.
#[derive(Debug, Settings)]
#[settings(max_concurrent_calls = 3, prefetch_count = 2, message_lock_timeout = "2s", lease = "3s")]
#[settings(dead_letter_delivery_limit = 4, retry(exponential(first = "1s", max = "2s")))]
pub struct Few;

/// A value of the host.
#[derive(Debug)]
pub struct Pool;

/// A value of a message.
#[derive(Debug)]
pub struct Work;

/// Provides the pool.
#[must_use]
#[provide]
pub fn pool() -> Pool {
    Pool
}

/// Provides the work.
///
/// # Errors
/// Never.
#[provide(scoped)]
pub async fn work(pool: Dep<Pool>, id: MessageId) -> Result<Work> {
    std::future::ready((pool, id)).await;
    Ok(Work)
}

/// Processes the command.
#[processor(settings = AsSingleton<Few>, singleton, order = "strict", lease = "5s")]
pub async fn renamed(message: Renamed, term: Term, pool: Dep<Pool>, work: Scoped<Work>) {
    std::future::ready((message.number, term, pool, work)).await;
}

/// Processes the event.
///
/// # Errors
/// Always.
#[processor(subscription = "one", settings = Few)]
pub async fn renamed_too(
    event: RenamedToo,
    bus: Bus,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let RenamedToo::Some(text) = std::future::ready(event).await;
    drop(bus);
    Err(text.into())
}

/// What a crate does that passes `bus` on to its own users.
pub mod reexport {
    pub use messaging as inner;

    /// Found where the attributes say.
    #[derive(Debug, serde::Serialize, serde::Deserialize, inner::Command)]
    #[command(queue = "reexported", crate = crate::reexport::inner)]
    pub struct Reexported;

    /// Settings.
    #[derive(Debug, inner::Settings)]
    #[settings(prefetch_count = 1, crate = crate::reexport::inner)]
    pub struct One;

    /// A value.
    #[derive(Debug)]
    pub struct Seed;

    /// Provides the seed.
    #[must_use]
    #[inner::provide(crate = crate::reexport::inner)]
    pub fn seed() -> Seed {
        Seed
    }

    /// Processes it.
    #[inner::processor(settings = One, crate = crate::reexport::inner)]
    pub async fn reexported(message: Reexported, seed: inner::Dep<Seed>) {
        std::future::ready((message, seed)).await;
    }
}
