//! How near the SQLite backend comes to what the file itself allows: each figure beside a bare loop, written here, that
//! does the least possible, in the same run on the same disk. One JSON line per figure; what counts are the ratios.
//!
//! `cargo bench -p bus-tests --bench sqlite [-- send|drain|host] [--seconds N] [--rounds N]`

#![allow(clippy::print_stdout, reason = "the figures are the output")]

mod jobs;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bus::Endpoint;
use bus::clock::Clock;
use bus::contract::{ConsumerSpec, OpenOptions, Scheme, Settlement, StoreUrl, Transport};
use bus::message::{Name, Verdict};
use jobs::{DONE, fill, message, payload};
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

const CALLERS: usize = 256;
const BATCH: usize = 100;
const BACKLOG: usize = 400_000;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |name: &str, default: u64| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1)?.parse().ok().or(Some(default))
    };
    let time = Duration::from_secs(number("--seconds", 2).unwrap_or(2));
    let rounds = usize::try_from(number("--rounds", 5).unwrap_or(5)).unwrap_or(5);
    let wanted = |name: &str| {
        let named = args.iter().any(|arg| ["send", "drain", "host"].contains(&arg.as_str()));
        !named || args.iter().any(|arg| arg == name)
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    if wanted("send") {
        compare("send, 256 callers", rounds, || bare_sends(&runtime, time), || our_sends(&runtime, time));
    }
    if wanted("drain") {
        compare(
            "claim and settle, batches of 100",
            rounds,
            || bare_drain(time),
            || our_drain(&runtime, time),
        );
    }
    if wanted("host") {
        compare(
            "a host's processor, a settlement of each, beside claim and settle in batches of 100",
            rounds,
            || bare_drain(time),
            || host_drain(&runtime, time),
        );
    }
}

/// How much was done, how fast, and at what cost.
#[derive(Clone, Copy)]
struct Figure {
    per_second: f64,
    /// Of all threads, in µs a message: steadier than the rate where the machine has other things to do.
    cpu: f64,
}

/// Takes turns, so that what else the machine does hits both, and prints the medians.
fn compare(name: &str, rounds: usize, bare: impl Fn() -> Figure, ours: impl Fn() -> Figure) {
    let (mut bare_figures, mut our_figures) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        bare_figures.push(bare());
        our_figures.push(ours());
    }
    let median = |mut figures: Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let rate = |figures: &[Figure]| median(figures.iter().map(|figure| figure.per_second).collect());
    let cpu = |figures: &[Figure]| median(figures.iter().map(|figure| figure.cpu).collect());
    let ratio = rate(&our_figures) / rate(&bare_figures);
    let rounded = |number: f64| (number * 1000.0).round() / 1000.0;
    println!(
        "{}",
        serde_json::json!({
            "name": name,
            "bare_per_s": rate(&bare_figures).round(), "bus_per_s": rate(&our_figures).round(),
            "ratio": rounded(ratio),
            "bare_cpu_us": rounded(cpu(&bare_figures)), "bus_cpu_us": rounded(cpu(&our_figures)),
        })
    );
}

/// The beginning of a measurement.
#[derive(Clone, Copy)]
struct Meter {
    start: Instant,
    cpu: Duration,
}

impl Meter {
    fn start() -> Self {
        Meter { start: Instant::now(), cpu: cpu_time() }
    }

    fn elapsed(self) -> Duration {
        self.start.elapsed()
    }

    fn figure(self, count: u64) -> Figure {
        let cpu = (cpu_time() - self.cpu).as_secs_f64() * 1e6;
        Figure { per_second: count as f64 / self.start.elapsed().as_secs_f64(), cpu: cpu / count as f64 }
    }
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn bare_connection(file: &Path) -> Connection {
    let connection = Connection::open(file).expect("a file");
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -65536;
             CREATE TABLE m (id INTEGER PRIMARY KEY, visible_at INTEGER NOT NULL DEFAULT 0,
                             attempts INTEGER NOT NULL DEFAULT 0, token INTEGER, body BLOB NOT NULL)",
        )
        .expect("a table");
    connection
}

type Job = (Vec<u8>, oneshot::Sender<i64>);

/// A thread that commits whatever is queued together, and nothing else.
fn bare_writer(mut connection: Connection, mut queue: mpsc::Receiver<Job>) {
    let mut answers = Vec::new();
    while let Some(first) = queue.blocking_recv() {
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).expect("a turn");
        {
            let mut insert = transaction.prepare_cached("INSERT INTO m (body) VALUES (?1)").expect("SQL");
            let mut next = Some(first);
            while let Some((body, reply)) = next {
                answers.push((reply, insert.insert([body]).expect("a row")));
                next = if answers.len() < 4096 { queue.try_recv().ok() } else { None };
            }
        }
        transaction.commit().expect("a commit");
        for (reply, id) in answers.drain(..) {
            let _ = reply.send(id);
        }
    }
}

fn bare_sends(runtime: &tokio::runtime::Runtime, time: Duration) -> Figure {
    let directory = tempfile::tempdir().expect("a directory");
    let connection = bare_connection(&directory.path().join("bare.db"));
    let (queue, jobs) = mpsc::channel::<Job>(8192);
    let writer = std::thread::spawn(move || bare_writer(connection, jobs));
    let sent = Arc::new(AtomicU64::new(0));
    let start = Meter::start();
    let figure = runtime.block_on(async {
        let callers = (0..CALLERS).map(|_| {
            let (queue, sent) = (queue.clone(), Arc::clone(&sent));
            tokio::spawn(async move {
                while start.elapsed() < time {
                    let (reply, answer) = oneshot::channel();
                    let body = payload(sent.fetch_add(1, Ordering::Relaxed));
                    queue.send((body, reply)).await.expect("the writer");
                    answer.await.expect("an answer");
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.expect("a caller");
        }
        start.figure(sent.load(Ordering::Relaxed))
    });
    drop(queue);
    writer.join().expect("the writer");
    figure
}

async fn open(directory: &Path) -> Arc<dyn Transport> {
    let url = StoreUrl::parse(&format!("sqlite://{}", directory.join("bus.db").display())).expect("a URL");
    let open = Scheme::find("sqlite").expect("the backend").transport.expect("a transport");
    open(&url, &OpenOptions::new(Clock::system())).await.expect("a store")
}

fn our_sends(runtime: &tokio::runtime::Runtime, time: Duration) -> Figure {
    let directory = tempfile::tempdir().expect("a directory");
    runtime.block_on(async {
        let transport = open(directory.path()).await;
        let sender = transport.sender();
        let sent = Arc::new(AtomicU64::new(0));
        let start = Meter::start();
        let callers = (0..CALLERS).map(|_| {
            let (sender, sent) = (Arc::clone(&sender), Arc::clone(&sent));
            let (queue, clock) = (Name::new("jobs").expect("a name"), Clock::system());
            tokio::spawn(async move {
                while start.elapsed() < time {
                    let message = message(&queue, sent.fetch_add(1, Ordering::Relaxed), &clock);
                    sender.send(vec![message]).await.remove(0).expect("sent");
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.expect("a caller");
        }
        let figure = start.figure(sent.load(Ordering::Relaxed));
        transport.close().await;
        figure
    })
}

/// Settles a batch and claims the next in one transaction, on one thread, without anything between.
fn bare_drain(time: Duration) -> Figure {
    let directory = tempfile::tempdir().expect("a directory");
    let mut connection = bare_connection(&directory.path().join("bare.db"));
    let transaction = connection.transaction().expect("a turn");
    for number in 0..BACKLOG as u64 {
        let mut insert = transaction.prepare_cached("INSERT INTO m (body) VALUES (?1)").expect("SQL");
        insert.execute([payload(number)]).expect("a row");
    }
    transaction.commit().expect("a commit");

    let mut settled = 0;
    let mut claimed: Vec<i64> = Vec::new();
    let start = Meter::start();
    for token in 1_i64.. {
        let transaction =
            connection.transaction_with_behavior(TransactionBehavior::Immediate).expect("a turn");
        {
            let mut settle =
                transaction.prepare_cached("DELETE FROM m WHERE id = ?1 AND token = ?2").expect("SQL");
            for id in claimed.drain(..) {
                settled += settle.execute((id, token - 1)).expect("a row") as u64;
            }
            let now = Clock::system().wall().as_micros();
            let mut claim = transaction
                .prepare_cached(
                    "UPDATE m SET visible_at = ?1 + 30000000, attempts = attempts + 1, token = ?2 WHERE id IN
                     (SELECT id FROM m WHERE visible_at <= ?1 ORDER BY id LIMIT 100) RETURNING id, attempts, body",
                )
                .expect("SQL");
            let mut rows = claim.query((now, token)).expect("rows");
            while let Some(row) = rows.next().expect("a row") {
                let body: Vec<u8> = row.get(2).expect("a body");
                std::hint::black_box(body);
                claimed.push(row.get(0).expect("an id"));
            }
        }
        transaction.commit().expect("a commit");
        if claimed.is_empty() || start.elapsed() > time {
            break;
        }
    }
    start.figure(settled)
}

/// The same through a consumer: settles a batch while it asks for the next.
fn our_drain(runtime: &tokio::runtime::Runtime, time: Duration) -> Figure {
    let directory = tempfile::tempdir().expect("a directory");
    runtime.block_on(async {
        let transport = open(directory.path()).await;
        fill(&*transport, BACKLOG).await;
        let queue = Name::new("jobs").expect("a name");
        let spec = ConsumerSpec::new(Arc::new(Endpoint::Queue(queue)), Duration::from_secs(30));
        let consumer = transport.consumer(spec).await.expect("a consumer");
        let stop = CancellationToken::new();
        let mut settled = 0;
        let start = Meter::start();
        let mut claimed = consumer.receive(BATCH, &stop).await.expect("messages");
        while start.elapsed() < time && settled + (claimed.len() as u64) < BACKLOG as u64 {
            let settlements: Vec<_> = claimed
                .iter()
                .map(|delivery| Settlement::new(delivery.receipt.clone(), Verdict::Complete))
                .collect();
            let (answers, next) = tokio::join!(consumer.settle(settlements), consumer.receive(BATCH, &stop));
            settled += answers.into_iter().filter(Result::is_ok).count() as u64;
            claimed = next.expect("messages");
        }
        let figure = start.figure(settled);
        transport.close().await;
        figure
    })
}

/// All that a user's program does: claim, keep alive, decode, run, settle each.
fn host_drain(runtime: &tokio::runtime::Runtime, time: Duration) -> Figure {
    let directory = tempfile::tempdir().expect("a directory");
    runtime.block_on(async {
        let transport = open(directory.path()).await;
        fill(&*transport, BACKLOG).await;
        transport.close().await;
        let store = format!("sqlite://{}", directory.path().join("bus.db").display());
        let host = bus::Host::builder().transport("default", &store).build().expect("a host");
        let (start, before) = (Meter::start(), DONE.load(Ordering::Relaxed));
        let host = host.start().await.expect("started");
        tokio::time::sleep(time).await;
        let figure = start.figure(DONE.load(Ordering::Relaxed) - before);
        host.stop().await.expect("stopped");
        figure
    })
}
