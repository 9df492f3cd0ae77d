//! What the pipeline costs, in three comparisons; all take the same deliveries on one thread, and the ratios count:
//!
//! * its default layers and two extractors, beside a hand-written loop that decodes and calls the same function: less than 2;
//! * the same, with tracing compiled in and no subscriber, beside its layers without their span and events: at most 1.2;
//! * what two `Dep` and one `Scoped` add to a run, beside the decoding of a message of 100 bytes: at most 1.5.
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
use bus::pipeline::layers::{deadline, panics};
use bus::prelude::*;
use bus::processor::Processor;
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

/// The same message, and nothing else.
#[derive(Serialize, Deserialize, Command)]
#[command(queue = "bare-job")]
struct BareJob(Job);

#[processor]
async fn bare_job(message: BareJob) {
    std::hint::black_box(message.0.id);
}

/// The same message, with what a unit of work usually needs.
#[derive(Serialize, Deserialize, Command)]
#[command(queue = "scoped-job")]
struct ScopedJob(Job);

#[derive(Default)]
struct Catalog(AtomicU64);

#[provide]
fn catalog() -> Catalog {
    Catalog::default()
}

struct Work(#[allow(dead_code, reason = "a unit of work holds something")] u64);

#[provide(scoped)]
fn work() -> Work {
    Work(7)
}

#[processor]
async fn scoped_job(message: ScopedJob, seen: Dep<Seen>, catalog: Dep<Catalog>, work: Scoped<Work>) {
    std::hint::black_box((message.0.id, seen.0.load(Ordering::Relaxed), &catalog.0, &work));
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |name: &str, default: usize| {
        let at = args.iter().position(|arg| arg == name);
        at.and_then(|at| args.get(at + 1)?.parse().ok()).unwrap_or(default)
    };
    let (messages, rounds) = (number("--messages", 200_000), number("--rounds", 7));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut times: [Vec<Duration>; 6] = Default::default();
    for _ in 0..rounds {
        let [by_hand, whole, untraced, bare, scoped, decoding] = &mut times;
        by_hand.push(runtime.block_on(hand_written(messages)));
        whole.push(runtime.block_on(pipeline("job", messages)));
        untraced.push(runtime.block_on(without_tracing("job", messages)));
        bare.push(runtime.block_on(pipeline("bare_job", messages)));
        scoped.push(runtime.block_on(pipeline("scoped_job", messages)));
        decoding.push(decoded(messages));
    }
    let [by_hand, whole, untraced, bare, scoped, decoding] = times.map(|mut times| {
        times.sort();
        times[times.len() / 2].as_nanos() as f64 / messages as f64
    });
    show("pipeline with default layers and two extractors", whole, ("written by hand", by_hand), 2.0);
    show("pipeline with tracing and no subscriber", whole, ("its layers without tracing", untraced), 1.2);
    show("two Dep and one Scoped", scoped - bare, ("decoding 100 bytes", decoding), 1.5);
}

fn show(name: &str, ours: f64, (other_name, other): (&str, f64), at_most: f64) {
    println!(
        "{}",
        serde_json::json!({
            "name": name, "bus_ns": ours.round(), "beside": other_name, "beside_ns": other.round(),
            "ratio": (ours / other * 1000.0).round() / 1000.0, "at_most": at_most,
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
        // So that there are 100 bytes of JSON.
        note: "abcdef abcdef abcdef".into(),
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

/// The same through the pipeline. Making the scopes is a part of it, since every delivery needs one.
async fn pipeline(name: &str, count: usize) -> Duration {
    let (processor, host) = prepared(name).await;
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

/// What a pipeline does but for its span: a panic is caught, the time bounded, the verdict judged.
async fn without_tracing(name: &str, count: usize) -> Duration {
    let (processor, host) = prepared(name).await;
    let (parent, cut) = (CancellationToken::new(), CancellationToken::new());
    let limit = processor.settings.message_lock_timeout;
    let deliveries = deliveries(count, Scope::default);
    let start = Instant::now();
    for mut delivery in deliveries {
        delivery.scope = Scope::new(Arc::clone(&host), parent.clone());
        let (attempt, id) = (Attempt::of(&delivery), delivery.envelope.id);
        let scope = delivery.scope.clone();
        let run = || deadline::within(processor.handler.call(delivery), limit, &scope, &cut);
        let verdict = panics::caught("the handler", run).await;
        std::hint::black_box(judge(verdict, attempt, &processor.settings, &processor.endpoint, id));
    }
    start.elapsed()
}

/// The processor of that name, and a host that has what it needs.
async fn prepared(name: &str) -> (Processor, Arc<HostScope>) {
    let processor = registry::processors().into_iter().find(|processor| processor.name == name);
    let mut values = Values::default();
    values.insert(Arc::new(Seen::default()));
    let host = HostScope::build(values, &registry::providers()).await.expect("all is provided");
    (processor.expect("it stands above"), host)
}

/// Decoding alone.
fn decoded(count: usize) -> Duration {
    let envelope = envelope();
    let start = Instant::now();
    for _ in 0..count {
        let body = std::hint::black_box(&envelope.body);
        std::hint::black_box(Job::decode(body).expect("it was encoded here"));
    }
    start.elapsed()
}
