//! Ours: a host as a user would start it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::Result;
use bus::prelude::{Command, processor};
use serde::{Deserialize, Serialize};

use crate::{Turn, per_second, until};

static DONE: AtomicUsize = AtomicUsize::new(0);

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "noop")]
struct Noop {
    i: usize,
}

#[processor(max_concurrent_calls = 16, prefetch_count = 484)]
async fn noop(message: Noop) {
    std::hint::black_box(message.i);
    DONE.fetch_add(1, Ordering::Relaxed);
}

pub async fn turn(url: &str, jobs: usize) -> Result<Turn> {
    let producer = bus::Host::builder().transport("default", url).connect().await?;
    let begun = Instant::now();
    for first in (0..jobs).step_by(1000) {
        let messages = (first..jobs.min(first + 1000)).map(|i| Noop { i });
        for sent in producer.bus().send_all(messages).await {
            sent?;
        }
    }
    let stored = per_second(jobs, begun);
    producer.close().await;

    let pool = crate::server::pool(url, 1).await?;
    sqlx::query("ANALYZE").execute(&pool).await?;
    let (before, begun) = (DONE.load(Ordering::Relaxed), Instant::now());
    let host = bus::Host::builder().transport("default", url).build()?.start().await?;
    until("all jobs are done", async || Ok(DONE.load(Ordering::Relaxed) - before >= jobs)).await?;
    until("all jobs are settled", async || {
        let left: bool =
            sqlx::query_scalar("SELECT EXISTS (SELECT FROM bus.message)").fetch_one(&pool).await?;
        Ok(!left)
    })
    .await?;
    let drained = per_second(jobs, begun);
    host.stop().await?;
    Ok(Turn { stored, drained })
}
