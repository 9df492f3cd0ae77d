//! graphile_worker in its fastest mode: jobs are fetched into a local queue, and completed in batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext, WorkerOptions,
};
use serde::{Deserialize, Serialize};

use crate::{AT_HAND, CONCURRENCY, Turn, per_second, until};

/// How long completed jobs wait for others.
const TOGETHER: Duration = Duration::from_millis(5);
const CONNECTIONS: u32 = 20;

static DONE: AtomicUsize = AtomicUsize::new(0);

#[derive(Serialize, Deserialize)]
struct Noop {
    i: usize,
}

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, _context: WorkerContext) -> impl IntoTaskHandlerResult {
        std::hint::black_box(self.i);
        DONE.fetch_add(1, Ordering::Relaxed);
        Ok::<(), String>(())
    }
}

pub async fn turn(url: &str, jobs: usize) -> Result<Turn> {
    let pool = crate::server::pool(url, CONNECTIONS).await?;
    let worker = WorkerOptions::default()
        .pg_pool(pool.clone())
        .schema("graphile_worker")
        .concurrency(CONCURRENCY)
        .listen_os_shutdown_signals(false)
        .local_queue(LocalQueueConfig::default().with_size(AT_HAND))
        .complete_job_batch_delay(TOGETHER)
        .define_job::<Noop>()
        .init()
        .await?;
    let worker = Arc::new(worker);
    let utils = worker.create_utils();
    let begun = Instant::now();
    let job = |i| RawJobSpec {
        identifier: Noop::IDENTIFIER.into(),
        payload: serde_json::json!({ "i": i }),
        spec: JobSpec::default(),
    };
    for first in (0..jobs).step_by(1000) {
        let batch: Vec<RawJobSpec> = (first..jobs.min(first + 1000)).map(job).collect();
        utils.add_raw_jobs(&batch).await?;
    }
    let stored = per_second(jobs, begun);

    sqlx::query("ANALYZE").execute(&pool).await?;
    let (before, begun) = (DONE.load(Ordering::Relaxed), Instant::now());
    let running = tokio::spawn({
        let worker = Arc::clone(&worker);
        async move { worker.run().await }
    });
    until("all jobs are done", async || Ok(DONE.load(Ordering::Relaxed) - before >= jobs)).await?;
    until("all jobs are completed", async || {
        let left = "SELECT EXISTS (SELECT FROM graphile_worker._private_jobs)";
        let left: bool = sqlx::query_scalar(left).fetch_one(&pool).await?;
        Ok(!left)
    })
    .await?;
    let drained = per_second(jobs, begun);
    worker.request_shutdown();
    running.await??;
    pool.close().await;
    Ok(Turn { stored, drained })
}
