//! What a server and a host have in memory after much traffic: no more than after a little. Scenario M32.

use std::time::Duration;

use bus::contract::Depth;
use bus::message::Verdict;
use bus_tests::redis::Redis;

use crate::store::{Store, command, receive, settle};

const AT_ONCE: usize = 500;
const ROUNDS: usize = 40;
/// The rounds that fill what is kept for good: buffers, pools, the allocator's reserves.
const WARM_UP: usize = 10;

/// How many bytes the server has in use.
fn used_memory(server: &Redis) -> u64 {
    let told: String = server.ask(&["INFO", "memory"]);
    let used = told.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok());
    used.expect("the server says how much memory it uses")
}

/// How many bytes of this process are resident.
fn resident() -> u64 {
    let told = std::fs::read_to_string("/proc/self/status").expect("the kernel tells it");
    let told =
        told.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
    told.map(|kilobytes: u64| kilobytes * 1024).expect("a size")
}

/// Messages that are completed, retried, released and given up on, round after round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_stays_flat() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
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
            before = Some((store.server.ask::<u64>(&["DBSIZE"]), used_memory(&store.server), resident()));
        }
    }
    let (keys, used, own) = before.expect("there are more rounds than those");
    assert_eq!(store.server.ask::<u64>(&["DBSIZE"]), keys, "keys were left behind");
    let grown = used_memory(&store.server).saturating_sub(used);
    assert!(grown < 1 << 20, "the server's memory grew by {grown} bytes");
    let grown = resident().saturating_sub(own);
    assert!(grown < 16 << 20, "the host's memory grew by {grown} bytes");
}
