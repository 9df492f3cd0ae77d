//! The job that the benchmarks of several stores send and process: a hundred bytes, decoded, and nothing done about it.

use std::sync::atomic::{AtomicU64, Ordering};

use bus::Envelope;
use bus::clock::Clock;
use bus::contract::{Outgoing, Transport};
use bus::message::{Name, Target};
use bus::prelude::{Command, Deserialize, Serialize, processor};

/// The queue that they are in.
const QUEUE: &str = "jobs";
/// How many are sent at once where it does not matter.
const BATCH: usize = 10_000;

/// How many have been processed.
pub static DONE: AtomicU64 = AtomicU64::new(0);

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "jobs")]
struct Work {
    id: u64,
    customer: String,
    sku: String,
    qty: u32,
    total: f64,
    note: String,
}

#[processor(max_concurrent_calls = 16, prefetch_count = 1000)]
async fn work(message: Work) {
    std::hint::black_box(message);
    DONE.fetch_add(1, Ordering::Relaxed);
}

/// A job's body.
pub fn payload(number: u64) -> Vec<u8> {
    format!(r#"{{"id":{number:>8},"customer":"cust-0042","sku":"SKU-99-XYZ","qty":3,"total":129.5,"note":"abcdef"}}"#)
        .into_bytes()
}

/// A job for the queue.
pub fn message(queue: &Name, number: u64, clock: &Clock) -> Outgoing {
    Outgoing::new(Target::Queue(queue.clone()), Envelope::new("job", payload(number), clock.wall()))
}

/// Sends so many, in whole batches.
pub async fn fill(transport: &dyn Transport, count: usize) {
    let (queue, clock) = (Name::new(QUEUE).expect("a name"), Clock::system());
    for batch in 0..count / BATCH {
        let numbers = (batch * BATCH) as u64..((batch + 1) * BATCH) as u64;
        let jobs = numbers.map(|number| message(&queue, number, &clock)).collect();
        for answer in transport.sender().send(jobs).await {
            answer.expect("sent");
        }
    }
}
