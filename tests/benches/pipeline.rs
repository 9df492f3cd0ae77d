//! What the pipeline costs: its default layers and two extractors beside a hand-written loop that decodes and calls the
//! same function, and beside the same layers without tracing, to which nobody listens. All take the same deliveries on one
//! thread; the ratios are what counts, and are to stay below 2, and 1.2.
//!
//! `cargo bench -p bus-tests --bench pipeline [-- --messages N] [--rounds N]`

#![allow(clippy::print_stdout, reason = "the figures are the output")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bus::clock::Timestamp;
use bus::message::{Delivery, Receipt, Verdict};
use bus::pipeline::Pipeline;
use bus::pipeline::layers::dead_letter::{Attempt, judge};
use bus::pipeline::layers::scope::finish;
use bus::pipeline::layers::{deadline, panics};
use bus::prelude::*;
use bus::scope::{HostScope, Scope, Values};
use bus::{Endpoint, Envelope, Message, registry};
use tokio_util::sync::CancellationToken;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "job")]
struct Job {
    id: u64,
    customer: String,
    sku: String,
    qty: u32,
    total: f64,
    note: String,
}

#[derive(Default)]
struct Seen(AtomicU64);

#[processor]
async fn job(message: Job, seen: Dep<Seen>, id: MessageId) -> Result<()> {
    seen.0.fetch_add(message.id ^ id.as_uuid().as_u64_pair().0, Ordering::Relaxed);
    Ok(())
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |name: &str, default: usize| {
        let at = args.iter().position(|arg| arg == name);
        at.and_then(|at| args.get(at + 1)?.parse().ok()).unwrap_or(default)
    };
    let (messages, rounds) = (number("--messages", 200_000), number("--rounds", 7));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (mut by_hand, mut untraced, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        by_hand.push(runtime.block_on(hand_written(messages)));
        untraced.push(runtime.block_on(without_tracing(messages)));
        ours.push(runtime.block_on(pipeline(messages)));
    }
    let nanos = |times: &mut Vec<Duration>| {
        times.sort();
        times[times.len() / 2].as_nanos() as f64 / messages as f64
    };
    let (by_hand, untraced, ours) = (nanos(&mut by_hand), nanos(&mut untraced), nanos(&mut ours));
    let ratio = |beside: f64| (ours / beside * 1000.0).round() / 1000.0;
    println!(
        "{}",
        serde_json::json!({
            "name": "pipeline with default layers and two extractors",
            "by_hand_ns": by_hand.round(), "bus_ns": ours.round(),
            "ratio": ratio(by_hand), "at_most": 2.0,
        })
    );
    println!(
        "{}",
        serde_json::json!({
            "name": "pipeline with tracing, without a subscriber",
            "without_tracing_ns": untraced.round(), "bus_ns": ours.round(),
            "ratio": ratio(untraced), "at_most": 1.2,
        })
    );
}

fn envelope() -> Envelope {
    let job = Job {
        id: 7,
        customer: "cust-0042".into(),
        sku: "SKU-99-XYZ".into(),
        qty: 3,
        total: 129.5,
        note: "abcdef".into(),
    };
    Envelope::new("Job", job.encode().expect("JSON"), Timestamp::from_micros(0))
}

fn deliveries(count: usize, scope: impl Fn() -> Scope) -> Vec<Delivery> {
    let endpoint = Arc::new(Endpoint::queue("job").expect("a name"));
    let envelope = envelope();
    let one = |number| {
        let mut delivery =
            Delivery::new(envelope.clone(), Arc::clone(&endpoint), Receipt::new(number as u64, 1));
        delivery.scope = scope();
        delivery
    };
    (0..count).map(one).collect()
}

/// What one would write without a framework: decode, call, match the result.
async fn hand_written(count: usize) -> Duration {
    let deliveries = deliveries(count, Scope::default);
    let seen = Arc::new(Seen::default());
    let start = Instant::now();
    for delivery in deliveries {
        let verdict = match Job::decode(&delivery.envelope.body) {
            Ok(message) => match job(message, Dep::from(Arc::clone(&seen)), delivery.envelope.id).await {
                Ok(()) => Verdict::Complete,
                Err(error) => Verdict::Retry { after: None, error },
            },
            Err(error) => Verdict::DeadLetter { reason: "undecodable".into(), error: Some(error) },
        };
        std::hint::black_box(verdict);
    }
    start.elapsed()
}

/// The layers of the pipeline, but for the span.
async fn without_tracing(count: usize) -> Duration {
    let processor = registry::processors().pop().expect("the processor above");
    let mut values = Values::default();
    values.insert(Arc::new(Seen::default()));
    let host = Arc::new(HostScope::new(values));
    let (parent, cut) = (CancellationToken::new(), CancellationToken::new());
    let deliveries = deliveries(count, Scope::default);
    let start = Instant::now();
    for mut delivery in deliveries {
        delivery.scope = Scope::new(Arc::clone(&host), parent.clone());
        let (attempt, id, scope) = (Attempt::of(&delivery), delivery.envelope.id, delivery.scope.clone());
        let settings = &processor.settings;
        let run = || {
            deadline::within(processor.handler.call(delivery), settings.message_lock_timeout, &scope, &cut)
        };
        let verdict = panics::caught("the handler", run).await;
        let verdict = judge(verdict, attempt, settings, &processor.endpoint, id);
        finish(&scope);
        std::hint::black_box(verdict);
    }
    start.elapsed()
}

/// The same through the pipeline. Making the scopes is a part of it, since every delivery needs one.
async fn pipeline(count: usize) -> Duration {
    let processor = registry::processors().pop().expect("the processor above");
    let mut values = Values::default();
    values.insert(Arc::new(Seen::default()));
    let host = Arc::new(HostScope::new(values));
    let handler = Arc::clone(&processor.handler);
    let pipeline = Pipeline::new(
        Arc::new(processor.endpoint.clone()),
        processor.settings.clone(),
        Vec::new(),
        Arc::new(move |delivery| handler.call(delivery)),
        None,
        CancellationToken::new(),
    );
    let parent = CancellationToken::new();
    let deliveries = deliveries(count, Scope::default);
    let start = Instant::now();
    for mut delivery in deliveries {
        delivery.scope = Scope::new(Arc::clone(&host), parent.clone());
        std::hint::black_box(pipeline.run(delivery).await);
    }
    start.elapsed()
}
