//! apalis-postgres as it was found to be fastest: large batches, and no lock of its own for each task.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use apalis::layers::WorkerBuilderExt;
use apalis::prelude::{BoxDynError, Data, TaskBuilder, TaskSink, WorkerBuilder};
use apalis_postgres::{Config, PostgresStorage};

use crate::{AT_HAND, CONCURRENCY, Turn, per_second, until};

const CONNECTIONS: u32 = 10;
/// When a task may run is kept in whole seconds.
const RESOLUTION: Duration = Duration::from_millis(1500);

async fn noop(task: usize, done: Data<Arc<AtomicUsize>>) -> Result<(), BoxDynError> {
    std::hint::black_box(task);
    done.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

pub async fn turn(url: &str, jobs: usize) -> Result<Turn> {
    let pool = crate::server::pool(url, CONNECTIONS).await?;
    PostgresStorage::setup(&pool).await?;
    let config = Config::default().queue("noop").batch_size(AT_HAND).lock_tasks(false);
    let mut storage = PostgresStorage::<usize>::new(&pool).with_config(config.clone());
    let begun = Instant::now();
    let mut tasks = futures::stream::iter((0..jobs).map(|task| TaskBuilder::new(task).build()));
    storage.push_all(&mut tasks).await?;
    let stored = per_second(jobs, begun);
    tokio::time::sleep(RESOLUTION).await;

    sqlx::query("ANALYZE").execute(&pool).await?;
    let (done, begun) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let backend = PostgresStorage::<usize>::new(&pool).with_config(config).with_pubsub();
    let worker = WorkerBuilder::new("noop")
        .backend(backend)
        .concurrency(CONCURRENCY)
        .data(Arc::clone(&done))
        .build(noop);
    let running = tokio::spawn(async move { worker.run().await });
    until("all tasks are done", async || Ok(done.load(Ordering::Relaxed) >= jobs)).await?;
    until("all tasks are marked as done", async || {
        let left = "SELECT EXISTS (SELECT FROM apalis.jobs WHERE status <> 'Done')";
        let left: bool = sqlx::query_scalar(left).fetch_one(&pool).await?;
        Ok(!left)
    })
    .await?;
    let drained = per_second(jobs, begun);
    running.abort();
    pool.close().await;
    Ok(Turn { stored, drained })
}
