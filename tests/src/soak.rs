//! What a server and a host have in memory after much traffic: no more than after a little. Scenario M32.

use std::time::Duration;

use bus::contract::Depth;
use bus::message::Verdict;

use crate::by_hand::{command, settle};
use crate::served::{Server, Store, receive};

const AT_ONCE: usize = 500;
const ROUNDS: usize = 40;
/// The rounds that fill what is kept for good: buffers, pools, the allocator's reserves.
const WARM_UP: usize = 10;
/// How much more a host may have in memory, in bytes.
const LEEWAY: u64 = 16 << 20;

/// How many bytes of this process are resident.
fn resident() -> u64 {
    let told = std::fs::read_to_string("/proc/self/status").expect("the kernel tells it");
    let told =
        told.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
    told.map(|kilobytes: u64| kilobytes * 1024).expect("a size")
}

/// Messages that are completed, retried, released and given back, round after round, on a queue `jobs`. Answers what `look`
/// has found when all buffers were full, and in the end.
///
/// # Panics
/// If the host's own memory grows.
pub async fn rounds<S: Server, T>(store: &Store<S>, look: impl AsyncFn() -> T) -> (T, T) {
    let consumer = store.consumer("jobs").await;
    let mut before = None;
    for round in 0..ROUNDS {
        let batch = (0..AT_ONCE).map(|_| command("jobs", &"x".repeat(200))).collect();
        for sent in store.transport.sender().send(batch).await {
            sent.unwrap();
        }
        let mut left = AT_ONCE;
        while left > 0 {
            for (number, delivery) in receive(&consumer, 100).await.into_iter().enumerate() {
                let error = bus::Error::new(bus::ErrorKind::Handler, "no");
                let verdict = match number {
                    0 if delivery.failures == 0 => Verdict::Retry { after: Some(Duration::ZERO), error },
                    1 if delivery.failures == 0 => Verdict::Release,
                    _ => {
                        left -= 1;
                        Verdict::Complete
                    }
                };
                settle(&consumer, &delivery.receipt, verdict).await.unwrap();
            }
        }
        assert_eq!(store.depth("jobs").await, Depth::default());
        if round == WARM_UP {
            before = Some((look().await, resident()));
        }
    }
    let (before, own) = before.expect("there are more rounds than those");
    let grown = resident().saturating_sub(own);
    assert!(grown < LEEWAY, "the host's memory grew by {grown} bytes");
    (before, look().await)
}
