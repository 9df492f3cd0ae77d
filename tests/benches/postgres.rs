//! How near the Postgres backend comes to what the server itself allows: each figure beside a bare loop, written here, that
//! does the least possible, in the same run on the same server with `fsync` on. One JSON line per figure; what counts are
//! the ratios.
//!
//! `cargo bench -p bus-tests --bench postgres [-- send|drain|host|pinned] [--seconds N] [--rounds N] [--backlog N]`
//!
//! A drain ends with the time or with the backlog, whichever comes first: `host --backlog 1000000 --seconds 600` drains a
//! million.

#![allow(clippy::print_stdout, reason = "the figures are the output")]

mod jobs;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bus::Endpoint;
use bus::clock::Clock;
use bus::contract::{ConsumerSpec, OpenOptions, Scheme, Settlement, StoreUrl, Transport};
use bus::message::{Name, Verdict};
use bus_tests::postgres::Server;
use jobs::{DONE, fill, message, payload};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

const CALLERS: usize = 256;
const BATCH: usize = 100;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |name: &str, default: u64| {
        let at = args.iter().position(|arg| arg == name);
        at.and_then(|at| args.get(at + 1)?.parse().ok()).unwrap_or(default)
    };
    let time = Duration::from_secs(number("--seconds", 3));
    let rounds = number("--rounds", 3);
    let backlog = usize::try_from(number("--backlog", 200_000)).expect("a number of messages");
    let all = ["send", "drain", "host", "pinned"];
    let wanted = |name: &str| {
        let named = args.iter().any(|arg| all.contains(&arg.as_str()));
        !named || args.iter().any(|arg| arg == name)
    };
    let server = Server::start().await;
    if wanted("send") {
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            bare.push(bare_sends(&server, time).await);
            ours.push(our_sends(&server, time).await);
        }
        tell("send, 256 callers", &mut bare, &mut ours);
    }
    if wanted("drain") {
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            bare.push(bare_drain(&server, time, backlog).await);
            ours.push(our_drain(&server, time, backlog).await);
        }
        tell("claim and settle, batches of 100", &mut bare, &mut ours);
    }
    if wanted("host") {
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            bare.push(bare_drain(&server, time, backlog).await);
            ours.push(host_drain(&server, time, backlog).await);
        }
        tell("a host's processor, beside claim and settle in batches of 100", &mut bare, &mut ours);
    }
    if wanted("pinned") {
        pinned(&server, Duration::from_secs(number("--seconds", 60))).await;
    }
}

/// Prints the medians.
fn tell(name: &str, bare: &mut [f64], ours: &mut [f64]) {
    let median = |figures: &mut [f64]| {
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    let (bare, ours) = (median(bare), median(ours));
    let ratio = (ours / bare * 1000.0).round() / 1000.0;
    println!(
        "{}",
        serde_json::json!({ "name": name, "bare_per_s": bare.round(), "bus_per_s": ours.round(), "ratio": ratio })
    );
}

async fn bare_table(server: &Server) -> Client {
    let client = server.client().await;
    let table = "DROP TABLE IF EXISTS m; CREATE TABLE m (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, \
                 visible_at timestamptz NOT NULL DEFAULT now(), attempts int NOT NULL DEFAULT 0, token bigint, body bytea NOT NULL)";
    client.batch_execute(table).await.expect("a table");
    client
}

type Job = (Vec<u8>, oneshot::Sender<()>);

/// One task that stores whatever is queued together, and nothing else.
async fn bare_writer(client: Client, mut queue: mpsc::Receiver<Job>) {
    let insert = client.prepare("INSERT INTO m (body) SELECT * FROM unnest($1::bytea[])").await.expect("SQL");
    let mut jobs = Vec::new();
    while queue.recv_many(&mut jobs, 1024).await > 0 {
        let (bodies, replies): (Vec<Vec<u8>>, Vec<_>) = jobs.drain(..).unzip();
        client.execute(&insert, &[&bodies]).await.expect("stored");
        for reply in replies {
            let _ = reply.send(());
        }
    }
}

async fn bare_sends(server: &Server, time: Duration) -> f64 {
    let client = bare_table(server).await;
    let (queue, jobs) = mpsc::channel::<Job>(8192);
    let writer = tokio::spawn(bare_writer(client, jobs));
    let writes = queue.clone();
    let rate = callers(time, move |number| {
        let queue = writes.clone();
        async move {
            let (reply, answer) = oneshot::channel();
            queue.send((payload(number), reply)).await.expect("the writer");
            answer.await.expect("an answer");
        }
    })
    .await;
    drop(queue);
    writer.await.expect("the writer");
    rate
}

/// Has many callers send, each one message after the other.
async fn callers<F, S>(time: Duration, send: S) -> f64
where
    S: Fn(u64) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send,
{
    let sent = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (sent, send) = (Arc::clone(&sent), send.clone());
            tokio::spawn(async move {
                while start.elapsed() < time {
                    send(sent.fetch_add(1, Ordering::Relaxed)).await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("a caller");
    }
    sent.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}

async fn open(server: &Server) -> Arc<dyn Transport> {
    server
        .client()
        .await
        .batch_execute("DROP SCHEMA IF EXISTS bus CASCADE")
        .await
        .expect("an empty database");
    let url = StoreUrl::parse(&server.url()).expect("a URL");
    let open = Scheme::find("postgres").expect("the backend").transport.expect("a transport");
    open(&url, &OpenOptions::new(Clock::system())).await.expect("a store")
}

async fn our_sends(server: &Server, time: Duration) -> f64 {
    let transport = open(server).await;
    let sender = transport.sender();
    let rate = callers(time, move |number| {
        let sender = Arc::clone(&sender);
        async move {
            let queue = Name::new("jobs").expect("a name");
            sender.send(vec![message(&queue, number, &Clock::system())]).await.remove(0).expect("sent");
        }
    })
    .await;
    transport.close().await;
    rate
}

/// Settles a batch and claims the next in one statement, beyond a watermark, without anything between.
async fn bare_drain(server: &Server, time: Duration, backlog: usize) -> f64 {
    let client = bare_table(server).await;
    for chunk in 0..backlog / 10_000 {
        let bodies: Vec<Vec<u8>> =
            (0..10_000).map(|number| payload((chunk * 10_000 + number) as u64)).collect();
        client
            .execute("INSERT INTO m (body) SELECT * FROM unnest($1::bytea[])", &[&bodies])
            .await
            .expect("rows");
    }
    client.batch_execute("ANALYZE m; SET synchronous_commit = off").await.expect("settings");
    let turn = "WITH done AS (DELETE FROM m WHERE id = ANY($1) AND token = $2) \
                UPDATE m SET visible_at = now() + interval '30 s', attempts = attempts + 1, token = $3 \
                WHERE id = ANY(ARRAY(SELECT id FROM m WHERE id > $4 AND visible_at <= now() ORDER BY id LIMIT 100 \
                FOR UPDATE SKIP LOCKED)) RETURNING id, attempts, body";
    let turn = client.prepare(turn).await.expect("SQL");
    let (mut settled, mut after) = (0, 0);
    let mut claimed: Vec<i64> = Vec::new();
    let start = Instant::now();
    for token in 1_i64.. {
        let rows = client.query(&turn, &[&claimed, &(token - 1), &token, &after]).await.expect("rows");
        settled += claimed.len();
        claimed.clear();
        for row in rows {
            let body: Vec<u8> = row.get(2);
            std::hint::black_box(body);
            claimed.push(row.get(0));
        }
        after = claimed.iter().copied().max().unwrap_or(after);
        if claimed.is_empty() || start.elapsed() > time {
            break;
        }
    }
    settled as f64 / start.elapsed().as_secs_f64()
}

/// The same through a consumer: settles a batch while it asks for the next.
async fn our_drain(server: &Server, time: Duration, backlog: usize) -> f64 {
    let transport = open(server).await;
    fill(&*transport, backlog).await;
    let queue = Name::new("jobs").expect("a name");
    let spec = ConsumerSpec::new(Arc::new(Endpoint::Queue(queue)), Duration::from_secs(30));
    let consumer = transport.consumer(spec).await.expect("a consumer");
    let stop = CancellationToken::new();
    let mut settled = 0;
    let start = Instant::now();
    let mut claimed = consumer.receive(BATCH, &stop).await.expect("messages");
    while start.elapsed() < time && settled + claimed.len() < backlog {
        let settlements: Vec<_> = claimed
            .iter()
            .map(|delivery| Settlement::new(delivery.receipt.clone(), Verdict::Complete))
            .collect();
        let (answers, next) = tokio::join!(consumer.settle(settlements), consumer.receive(BATCH, &stop));
        settled += answers.into_iter().filter(Result::is_ok).count();
        claimed = next.expect("messages");
    }
    let rate = settled as f64 / start.elapsed().as_secs_f64();
    transport.close().await;
    rate
}

/// All that a user's program does: claim, keep alive, decode, run, settle each.
async fn host_drain(server: &Server, time: Duration, backlog: usize) -> f64 {
    let transport = open(server).await;
    fill(&*transport, backlog).await;
    transport.close().await;
    let host = bus::Host::builder().transport("default", &server.url()).build().expect("a host");
    let (start, before) = (Instant::now(), DONE.load(Ordering::Relaxed));
    let host = host.start().await.expect("started");
    let done = || DONE.load(Ordering::Relaxed) - before;
    while start.elapsed() < time && done() < backlog as u64 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let rate = done() as f64 / start.elapsed().as_secs_f64();
    host.stop().await.expect("stopped");
    rate
}

/// A producer keeps a backlog of about 20,000, a host drains it, and a snapshot is pinned all the while: how much is done
/// in each five seconds, beside the same without.
async fn pinned(server: &Server, time: Duration) {
    let mut unpinned = Vec::new();
    for pin in [false, true] {
        let transport = open(server).await;
        fill(&*transport, 20_000).await;
        let holder = server.client().await;
        if pin {
            let hold = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class";
            holder.batch_execute(hold).await.expect("a snapshot");
        }
        let host = bus::Host::builder().transport("default", &server.url()).build().expect("a host");
        let before = DONE.load(Ordering::Relaxed);
        let host = host.start().await.expect("started");
        let (start, mut sent, mut windows, mut last) = (Instant::now(), 20_000_u64, Vec::new(), 0);
        let done = || DONE.load(Ordering::Relaxed) - before;
        let (queue, clock) = (Name::new("jobs").expect("a name"), Clock::system());
        while start.elapsed() < time {
            if sent < done() + 20_000 {
                let batch = (0..500).map(|number| message(&queue, number, &clock)).collect();
                transport
                    .sender()
                    .send(batch)
                    .await
                    .into_iter()
                    .for_each(|answer| drop(answer.expect("sent")));
                sent += 500;
            } else {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if start.elapsed() >= Duration::from_secs(5) * (windows.len() as u32 + 1) {
                windows.push((done() - last) / 5);
                last = done();
            }
        }
        let rate = |windows: &[u64]| windows.iter().sum::<u64>() as f64 / windows.len().max(1) as f64;
        // The first seconds warm up.
        let (second_ten, last_ten) = (windows.get(2..4).map(rate), windows.rchunks(2).next().map(rate));
        let kept = last_ten.zip(second_ten).map(|(last, second)| last / second);
        println!(
            "{}",
            serde_json::json!({ "name": "churn, per second in each 5 s", "pinned": pin, "windows": windows,
                "last_10_s_to_second_10_s": kept,
                "to_unpinned": pin.then(|| rate(&windows) / rate(&unpinned)) })
        );
        if !pin {
            unpinned = windows;
        }
        host.stop().await.expect("stopped");
        transport.close().await;
    }
}
