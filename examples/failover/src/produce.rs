//! The process that sends the messages. It has no processors.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bus::MessageId;

use crate::args::Part;
use crate::history::{Event, History, Kind};
use crate::host::{self, Work};
use crate::place::since_epoch;
use crate::work::{Task, mean_run_time};

/// So many messages are sent at once at the beginning, so that the queue does not run dry in between.
const HEAD_START: u64 = 100;
/// How much slower than the runs on the average: the time that nobody works, after faults, makes up for it.
const PACE: f64 = 1.1;
/// How long to wait before a failed send is tried again.
const PAUSE: Duration = Duration::from_millis(200);

/// Sends as many messages as it is told, at the pace at which one process can work on them.
///
/// # Errors
/// When the store cannot be reached at the beginning.
pub fn produce(part: &Part) -> Result<()> {
    host::die_with_the_driver()?;
    host::log_to_stderr();
    tokio::runtime::Runtime::new()?.block_on(send_all(part))
}

async fn send_all(part: &Part) -> Result<()> {
    let history = History::open(&part.history, "producer")?;
    let producer = bus::Host::builder().transport("default", &part.store).connect().await?;
    let began = Instant::now();
    for number in 1..=part.messages {
        let after = u32::try_from(number.saturating_sub(HEAD_START)).context("too many messages")?;
        tokio::time::sleep((mean_run_time() * after).mul_f64(PACE).saturating_sub(began.elapsed())).await;
        let task = Task { number };
        let id = task.id(u64::try_from(since_epoch().as_millis())?);
        send(producer.bus(), task, MessageId::from(id)).await;
        history.write(&Event::now(Kind::SendOk).message(id.to_string()));
    }
    producer.close().await;
    history.write(&Event::now(Kind::Exit));
    Ok(())
}

/// Tries until the store has confirmed it. Where the outcome is unknown the message may be there twice, with one id.
async fn send(bus: &bus::Bus, task: Task, id: MessageId) {
    while let Err(error) = bus.send(Work::of(task)).message_id(id).await {
        tracing::warn!(%error, %id, "not sent, trying again");
        tokio::time::sleep(PAUSE).await;
    }
}
