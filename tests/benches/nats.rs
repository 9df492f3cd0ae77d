//! The NATS backend beside the fastest pipelines of the same guarantees, written here by hand, in the same run on the same
//! server. One JSON line per figure; what counts are the ratios.
//!
//! The bare loops use a work-queue stream and a durable pull consumer with confirmed acknowledgements: they keep a claim
//! across a crash, as ours does, but count nothing that became of it, know neither delays nor fences, and a late
//! acknowledgement of theirs ends another's claim.
//!
//! `cargo bench -p bus-tests --bench nats [-- send|drain|host|latency] [--seconds N] [--rounds N] [--jobs N] [--fsync]`
//!
//! With `--fsync` the server flushes each message, and 20,000 jobs to drain (`--jobs 20000`) are enough.

#![allow(clippy::print_stdout, reason = "the figures are the output")]

mod jobs;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bus::clock::Clock;
use bus::contract::{ConsumerSpec, OpenOptions, Outgoing, Scheme, Settlement, StoreUrl, Transport};
use bus::message::{Name, Target, Verdict};
use bus::{Endpoint, Envelope};
use bus_tests::nats::Nats;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use jobs::{DONE, fill, payload};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

const CALLERS: usize = 256;
const BATCH: usize = 100;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |name: &str, default: u64| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1)?.parse().ok().or(Some(default))
    };
    let time = Duration::from_secs(number("--seconds", 2).unwrap_or(2));
    let rounds = usize::try_from(number("--rounds", 3).unwrap_or(3)).unwrap_or(3);
    let jobs = usize::try_from(number("--jobs", 100_000).unwrap_or(100_000)).unwrap_or(100_000);
    let wanted = |name: &str| {
        let named = args.iter().any(|arg| ["send", "drain", "host", "latency"].contains(&arg.as_str()));
        !named || args.iter().any(|arg| arg == name)
    };
    let fsync = args.iter().any(|arg| arg == "--fsync");
    let start = || Nats::start_with_jetstream(if fsync { ", sync_interval: always" } else { "" });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    if wanted("send") {
        compare(
            "send, 256 callers",
            rounds,
            || bare_sends(&runtime, &start(), time),
            || our_sends(&runtime, &start(), time),
        );
    }
    if wanted("drain") {
        compare(
            "claim and settle, batches of 100, confirmed",
            rounds,
            || bare_drain(&runtime, &start(), time, jobs),
            || our_drain(&runtime, &start(), time, jobs),
        );
    }
    if wanted("host") {
        compare(
            "a host's processor, beside claim and settle",
            rounds,
            || bare_drain(&runtime, &start(), time, jobs),
            || host_drain(&runtime, &start(), time, jobs),
        );
    }
    if wanted("latency") {
        println!("{{\"what\":\"idle, send to delivery\",\"median_us\":{}}}", latency(&runtime, &start()));
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

/// A work queue as ours are, for the bare loops.
async fn bare_stream(server: &Nats) {
    let config = json!({
        "name": "bare", "subjects": ["bare"], "retention": "workqueue", "storage": "file",
        "discard": "new", "num_replicas": 1, "max_msgs_per_subject": -1,
    });
    let made = server.ask("STREAM.CREATE.bare", &config).await;
    assert!(made["error"].is_null(), "{made}");
    let config = json!({ "stream_name": "bare", "config": {
        "durable_name": "workers", "deliver_policy": "all", "ack_policy": "explicit", "max_ack_pending": -1,
    }});
    let made = server.ask("CONSUMER.DURABLE.CREATE.bare.workers", &config).await;
    assert!(made["error"].is_null(), "{made}");
}

/// Callers on one connection, each awaiting the server's acknowledgement.
fn bare_sends(runtime: &Runtime, server: &Nats, time: Duration) -> f64 {
    runtime.block_on(async {
        bare_stream(server).await;
        let client = server.client().await;
        per_second(time, move || {
            let client = client.clone();
            async move { drop(client.request("bare", body().into()).await.expect("stored")) }
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

async fn transport(server: &Nats) -> Arc<dyn Transport> {
    let open = Scheme::find("nats").expect("the backend").transport.expect("a transport");
    let url = StoreUrl::parse(&server.url("bench")).expect("a URL");
    let transport = open(&url, &OpenOptions::new(Clock::system())).await.expect("a store");
    transport.prepare(&[Endpoint::queue("jobs").expect("a name")]).await.expect("a queue");
    transport
}

fn message() -> Outgoing {
    let target = Target::Queue(Name::new("jobs").expect("a name"));
    Outgoing::new(target, Envelope::new("bench", body(), Clock::system().wall()))
}

fn our_sends(runtime: &Runtime, server: &Nats, time: Duration) -> f64 {
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

/// One subscription for all that is pulled, two pulls of a batch outstanding, and each batch's acknowledgements confirmed
/// while the next batches come in.
fn bare_drain(runtime: &Runtime, server: &Nats, time: Duration, jobs: usize) -> f64 {
    runtime.block_on(async {
        bare_stream(server).await;
        let client = server.client().await;
        for _ in 0..jobs / 1000 {
            let sending = (0..1000).map(|_| client.request("bare", body().into()));
            for sent in futures_util::future::join_all(sending).await {
                sent.expect("stored");
            }
        }
        let inbox = client.new_inbox();
        let mut messages = client.subscribe(inbox.clone()).await.expect("a subscription");
        let (mut done, mut pulled, mut last, begun) = (0, 0, Vec::with_capacity(BATCH), Instant::now());
        let mut confirming = FuturesUnordered::new();
        pull(&client, &inbox).await;
        pull(&client, &inbox).await;
        while begun.elapsed() < time && done < jobs {
            tokio::select! {
                Some(confirmed) = confirming.next() => done += confirmed,
                message = messages.next() => {
                    last.push(message.and_then(|message| message.reply).expect("a message").to_string());
                    pulled += 1;
                }
            }
            if last.len() == BATCH {
                confirming.push(confirm(&client, std::mem::take(&mut last)));
                if pulled + BATCH < jobs {
                    pull(&client, &inbox).await;
                }
            }
        }
        done as f64 / begun.elapsed().as_secs_f64()
    })
}

/// Asks for another batch.
async fn pull(client: &async_nats::Client, inbox: &str) {
    let what: Value = json!({ "batch": BATCH, "expires": 60_000_000_000_u64 });
    let next = "$JS.API.CONSUMER.MSG.NEXT.bare.workers";
    client.publish_with_reply(next, inbox.to_owned(), what.to_string().into()).await.expect("asked");
}

/// Acknowledges a batch, and answers how many were when the server has confirmed each.
async fn confirm(client: &async_nats::Client, replies: Vec<String>) -> usize {
    let acknowledging = replies.into_iter().map(|reply| client.request(reply, "+ACK".into()));
    let acknowledged = futures_util::future::join_all(acknowledging).await;
    assert!(acknowledged.iter().all(Result::is_ok), "not confirmed");
    acknowledged.len()
}

/// Settles the last batch while it claims the next, as the pump does.
fn our_drain(runtime: &Runtime, server: &Nats, time: Duration, jobs: usize) -> f64 {
    runtime.block_on(async {
        let transport = transport(server).await;
        let sender = transport.sender();
        for _ in 0..jobs / 1000 {
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
        while begun.elapsed() < time && done + last.len() < jobs {
            let settling = consumer.settle(std::mem::take(&mut last));
            let (settled, claimed) = futures_util::join!(settling, consumer.receive(BATCH, &stop));
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
fn host_drain(runtime: &Runtime, server: &Nats, time: Duration, jobs: usize) -> f64 {
    runtime.block_on(async {
        let transport = transport(server).await;
        fill(&*transport, jobs).await;
        transport.close().await;
        let host = bus::Host::builder().transport("default", &server.url("bench"));
        let host = host.only(["jobs"]).build().expect("a host");
        let (begun, before) = (Instant::now(), DONE.load(Ordering::Relaxed));
        let host = host.start().await.expect("started");
        let done = || DONE.load(Ordering::Relaxed) - before;
        while begun.elapsed() < time && done() < jobs as u64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let rate = done() as f64 / begun.elapsed().as_secs_f64();
        host.stop().await.expect("stopped");
        rate
    })
}

/// The median time from a send to its delivery to a consumer that waits, in microseconds.
fn latency(runtime: &Runtime, server: &Nats) -> u128 {
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
