//! One of the processes that compete for the singleton.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use bus::host::config::Config;
use bus::prelude::*;
use rustix::process::{Signal, getpid, kill_process, set_parent_process_death_signal};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::prelude::*;

use crate::args::Part;
use crate::freeze::FailPoint;
use crate::history::{Event, History, Kind};
use crate::lab::Lab;
use crate::layer::HistoryLayer;
use crate::work::{Style, Task};

/// One message of the experiment.
#[derive(Debug, Serialize, Deserialize, Command)]
#[command(queue = "failover")]
pub struct Work {
    m: u64,
    run_ms: u64,
}

impl Work {
    /// The message that asks for a task.
    pub fn of(task: Task) -> Self {
        Self { m: task.number, run_ms: u64::try_from(task.run_time().as_millis()).unwrap_or(u64::MAX) }
    }
}

#[processor(singleton)]
async fn work(work: Work, id: MessageId, term: Term, lab: Dep<Arc<Lab>>) -> anyhow::Result<()> {
    let (style, time) = (Task { number: work.m }.style(), Duration::from_millis(work.run_ms));
    let run = Arc::clone(&lab).begin(id.to_string(), term.fence().get());
    // A closure owns its run: both go on to their end, also when this future has been dropped.
    match style {
        Style::Awaiting => {
            tokio::time::sleep(time).await;
            run.finish(asked(&term))
        }
        Style::Blocking => {
            let inside = term.clone();
            let work = move || {
                run.work_exposed(time);
                run.finish(asked(&inside))
            };
            term.blocking(work).await?
        }
        Style::Trusting => {
            let work = move || {
                run.work(time);
                run.finish(Ok(()))
            };
            term.blocking(work).await?
        }
    }
}

/// Whether the term allows a write, by its own clock.
fn asked(term: &Term) -> anyhow::Result<()> {
    Ok(term.check()?)
}

/// Runs until it is told to stop, by a signal or by the end of its standard input.
///
/// # Errors
/// When the host cannot start, or cannot stop as it should.
pub fn host(part: &Part) -> Result<()> {
    die_with_the_driver()?;
    stop_with_the_input();
    let history = Arc::new(History::open(&part.history, "host")?);
    log_to(Arc::clone(&history));
    let fail_point = Arc::new(FailPoint::new(&part.history));
    bus::backend::sqlite::failpoint::before_commit({
        let fail_point = Arc::clone(&fail_point);
        move || fail_point.in_commit()
    })?;
    let lab = Lab::open(&part.history, Arc::clone(&history), fail_point)?;
    let outcome = tokio::runtime::Runtime::new()?.block_on(run(part, lab));
    history.write(&Event::now(Kind::Exit));
    Ok(outcome?)
}

async fn run(part: &Part, lab: Arc<Lab>) -> bus::Result<()> {
    let mut config = Config::default();
    config.lock_lease = Some(Duration::from_millis(part.lease_ms));
    bus::Host::builder()
        .config(config)
        .transport("default", &part.store)
        .locks_at(if part.locks == part.store { "default" } else { &part.locks })
        .provide(lab)
        .build()?
        .run()
        .await
}

/// The kernel ends this process when the driver is gone, also when it is stopped at that time.
pub(crate) fn die_with_the_driver() -> Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

fn stop_with_the_input() {
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = kill_process(getpid(), Signal::TERM);
    });
}

fn log_to(history: Arc<History>) {
    let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(false);
    let registry = tracing_subscriber::registry();
    registry.with(lines.with_filter(LevelFilter::INFO)).with(HistoryLayer::new(history)).init();
}

pub(crate) fn log_to_stderr() {
    tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false).init();
}
