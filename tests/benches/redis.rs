//! How near the Redis backend comes to what the server itself allows: each figure beside a bare loop, written here by
//! hand, in the same run on the same server. One JSON line per figure; what counts are the ratios.
//!
//! The bare loops use a stream and a consumer group: they keep a claim across a crash, as ours does, but count nothing,
//! know neither delays nor retries nor fences, and tell nobody who waits.
//!
//! `cargo bench -p bus-tests --bench redis [-- send|drain|host|latency] [--seconds N] [--rounds N] [--fsync]`

#![allow(clippy::print_stdout, reason = "the figures are the output")]

mod jobs;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bus::clock::Clock;
use bus::contract::{ConsumerSpec, OpenOptions, Outgoing, Scheme, Settlement, StoreUrl, Transport};
use bus::message::{Name, Target, Verdict};
use bus::{Endpoint, Envelope};
use bus_tests::redis::{DURABLE, FORGETFUL, Redis};
use jobs::{DONE, fill, payload};
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

const CALLERS: usize = 256;
const BACKLOG: usize = 200_000;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |name: &str, default: u64| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1)?.parse().ok().or(Some(default))
    };
    let time = Duration::from_secs(number("--seconds", 2).unwrap_or(2));
    let rounds = usize::try_from(number("--rounds", 3).unwrap_or(3)).unwrap_or(3);
    let wanted = |name: &str| {
        let named = args.iter().any(|arg| ["send", "drain", "host", "latency"].contains(&arg.as_str()));
        !named || args.iter().any(|arg| arg == name)
    };
    let settings = if args.iter().any(|arg| arg == "--fsync") { DURABLE } else { FORGETFUL };
    let server = Redis::start(settings);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    if wanted("send") {
        compare(
            "send, 256 callers",
            rounds,
            || bare_sends(&runtime, &server, time),
            || our_sends(&runtime, &server, time),
        );
    }
    if wanted("drain") {
        for batch in [100, 1000] {
            compare(
                &format!("claim and settle, batches of {batch}"),
                rounds,
                || bare_drain(&runtime, &server, time, batch),
                || our_drain(&runtime, &server, time, batch),
            );
        }
    }
    if wanted("host") {
        compare(
            "a host's processor, beside claim and settle in batches of 1000",
            rounds,
            || bare_drain(&runtime, &server, time, 1000),
            || host_drain(&runtime, &server, time),
        );
    }
    if wanted("latency") {
        println!("{{\"what\":\"idle, send to delivery\",\"median_us\":{}}}", latency(&runtime, &server));
    }
}

/// Takes turns, so that what else the machine does hits both, and prints the medians of messages a second.
fn compare(name: &str, rounds: usize, bare: impl Fn() -> f64, ours: impl Fn() -> f64) {
    let (mut bare_rates, mut our_rates) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        bare_rates.push(bare());
        our_rates.push(ours());
    }
    let median = |mut rates: Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let (bare, ours) = (median(bare_rates), median(our_rates));
    println!(
        "{{\"what\":\"{name}\",\"bare_per_second\":{bare:.0},\"ours_per_second\":{ours:.0},\"ratio\":{:.2}}}",
        ours / bare
    );
}

fn body() -> Vec<u8> {
    payload(7)
}

async fn connection(server: &Redis) -> MultiplexedConnection {
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/", server.port())).expect("an address");
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await.expect("a connection")
}

fn empty(server: &Redis) {
    let _: String = server.ask(&["FLUSHALL"]);
}

/// Callers behind a coalescer by hand: one pipeline of XADD for whatever is queued.
fn bare_sends(runtime: &Runtime, server: &Redis, time: Duration) -> f64 {
    empty(server);
    runtime.block_on(async {
        let mut connection = connection(server).await;
        let (queue, mut waiting) = mpsc::channel::<oneshot::Sender<()>>(4096);
        tokio::spawn(async move {
            let mut callers = Vec::new();
            while waiting.recv_many(&mut callers, 500).await > 0 {
                let mut pipeline = redis::pipe();
                for _ in &callers {
                    pipeline.cmd("XADD").arg("bare").arg("*").arg("d").arg(body()).ignore();
                }
                let _: () = pipeline.query_async(&mut connection).await.expect("stored");
                for caller in callers.drain(..) {
                    let _ = caller.send(());
                }
            }
        });
        per_second(time, move || {
            let queue = queue.clone();
            async move {
                let (caller, stored) = oneshot::channel();
                queue.send(caller).await.expect("the coalescer is there");
                stored.await.expect("stored");
            }
        })
        .await
    })
}

/// Has all callers do one thing after the other for some time.
async fn per_second<F: Future<Output = ()> + Send + 'static>(
    time: Duration,
    one: impl Fn() -> F + Clone + Send + 'static,
) -> f64 {
    let (done, begun) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (one, done) = (one.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                while begun.elapsed() < time {
                    one().await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("a caller ends");
    }
    done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
}

async fn transport(server: &Redis) -> Arc<dyn Transport> {
    let open = Scheme::find("redis").expect("the backend").transport.expect("a transport");
    let url = StoreUrl::parse(&server.url("bench")).expect("a URL");
    let transport = open(&url, &OpenOptions::new(Clock::system())).await.expect("a store");
    transport.prepare(&[Endpoint::queue("jobs").expect("a name")]).await.expect("a queue");
    transport
}

fn message() -> Outgoing {
    let target = Target::Queue(Name::new("jobs").expect("a name"));
    Outgoing::new(target, Envelope::new("bench", body(), Clock::system().wall()))
}

fn our_sends(runtime: &Runtime, server: &Redis, time: Duration) -> f64 {
    empty(server);
    runtime.block_on(async {
        let transport = transport(server).await;
        let sender = transport.sender();
        let rate = per_second(time, move || {
            let sender = Arc::clone(&sender);
            async move { drop(sender.send(vec![message()]).await.remove(0).expect("stored")) }
        })
        .await;
        transport.close().await;
        rate
    })
}

/// Acknowledges and deletes the last batch and claims the next in one pipeline.
fn bare_drain(runtime: &Runtime, server: &Redis, time: Duration, batch: usize) -> f64 {
    empty(server);
    runtime.block_on(async {
        let mut connection = connection(server).await;
        let group = ["XGROUP", "CREATE", "bare", "workers", "0", "MKSTREAM"];
        let _: String = server.ask(&group);
        for _ in 0..BACKLOG / 1000 {
            let mut pipeline = redis::pipe();
            for _ in 0..1000 {
                pipeline.cmd("XADD").arg("bare").arg("*").arg("d").arg(body()).ignore();
            }
            let _: () = pipeline.query_async(&mut connection).await.expect("stored");
        }
        let (mut done, mut last, begun) = (0, Vec::<Vec<u8>>::new(), Instant::now());
        while begun.elapsed() < time {
            let mut pipeline = redis::pipe();
            if !last.is_empty() {
                pipeline.cmd("XACK").arg("bare").arg("workers").arg(&last).ignore();
                pipeline.cmd("XDEL").arg("bare").arg(&last).ignore();
            }
            pipeline.cmd("XREADGROUP").arg(&["GROUP", "workers", "one"]).arg("COUNT").arg(batch);
            pipeline.arg(&["STREAMS", "bare", ">"]);
            let answers: Vec<Value> = pipeline.query_async(&mut connection).await.expect("an answer");
            done += last.len();
            last = entries(&answers[0]);
            if last.is_empty() {
                break;
            }
        }
        done as f64 / begun.elapsed().as_secs_f64()
    })
}

/// The ids in the answer to XREADGROUP on one stream.
fn entries(answer: &Value) -> Vec<Vec<u8>> {
    let Value::Array(streams) = answer else { return Vec::new() };
    let Some(Value::Array(stream)) = streams.first() else { return Vec::new() };
    let Some(Value::Array(entries)) = stream.get(1) else { return Vec::new() };
    let id = |entry: &Value| match entry {
        Value::Array(parts) => match parts.first() {
            Some(Value::BulkString(id)) => Some(id.clone()),
            _ => None,
        },
        _ => None,
    };
    entries.iter().filter_map(id).collect()
}

/// Settles the last batch while it claims the next, as the pump does.
fn our_drain(runtime: &Runtime, server: &Redis, time: Duration, batch: usize) -> f64 {
    empty(server);
    runtime.block_on(async {
        let transport = transport(server).await;
        let sender = transport.sender();
        for _ in 0..BACKLOG / 1000 {
            for sent in sender.send((0..1000).map(|_| message()).collect()).await {
                sent.expect("stored");
            }
        }
        let endpoint = Arc::new(Endpoint::queue("jobs").expect("a name"));
        let consumer = transport
            .consumer(ConsumerSpec::new(endpoint, Duration::from_secs(30)))
            .await
            .expect("a consumer");
        let (mut done, mut last, begun) = (0, Vec::new(), Instant::now());
        let stop = CancellationToken::new();
        while begun.elapsed() < time && done + last.len() < BACKLOG {
            let settling = consumer.settle(std::mem::take(&mut last));
            let (settled, claimed) = futures_util::join!(settling, consumer.receive(batch, &stop));
            done += settled.into_iter().map(|answer| answer.expect("settled")).count();
            let end = |delivery: bus::message::Delivery| Settlement::new(delivery.receipt, Verdict::Complete);
            last = claimed.expect("messages").into_iter().map(end).collect();
        }
        let rate = done as f64 / begun.elapsed().as_secs_f64();
        transport.close().await;
        rate
    })
}

/// All that a user's program does: claim, keep alive, decode, run, settle each.
fn host_drain(runtime: &Runtime, server: &Redis, time: Duration) -> f64 {
    empty(server);
    runtime.block_on(async {
        let transport = transport(server).await;
        fill(&*transport, BACKLOG).await;
        transport.close().await;
        let host = bus::Host::builder().transport("default", &server.url("bench"));
        let host = host.only(["jobs"]).build().expect("a host");
        let (begun, before) = (Instant::now(), DONE.load(Ordering::Relaxed));
        let host = host.start().await.expect("started");
        let done = || DONE.load(Ordering::Relaxed) - before;
        while begun.elapsed() < time && done() < BACKLOG as u64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let rate = done() as f64 / begun.elapsed().as_secs_f64();
        host.stop().await.expect("stopped");
        rate
    })
}

/// The median time from a send to its delivery to a consumer that waits, in microseconds.
fn latency(runtime: &Runtime, server: &Redis) -> u128 {
    empty(server);
    runtime.block_on(async {
        let (here, there) = (transport(server).await, transport(server).await);
        let endpoint = Arc::new(Endpoint::queue("jobs").expect("a name"));
        let spec = ConsumerSpec::new(endpoint, Duration::from_secs(30));
        let (consumer, sender) = (here.consumer(spec).await.expect("a consumer"), there.sender());
        let mut times = Vec::new();
        for _ in 0..200 {
            let waiting = tokio::spawn({
                let consumer = Arc::clone(&consumer);
                async move {
                    let claimed = consumer.receive(1, &CancellationToken::new()).await.expect("a message");
                    (claimed, Instant::now())
                }
            });
            tokio::time::sleep(Duration::from_millis(10)).await;
            let sent = Instant::now();
            sender.send(vec![message()]).await.remove(0).expect("stored");
            let (claimed, received) = waiting.await.expect("it ends");
            times.push((received - sent).as_micros());
            let done =
                claimed.into_iter().map(|delivery| Settlement::new(delivery.receipt, Verdict::Complete));
            for settled in consumer.settle(done.collect()).await {
                settled.expect("settled");
            }
        }
        times.sort_unstable();
        times[times.len() / 2]
    })
}
