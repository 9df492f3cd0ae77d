//! What a host costs that has nothing to do.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::served::{Server, Store};

const FOR: Duration = Duration::from_secs(10);

/// With ten queues, less than five requests a second, and one in two seconds at least: `sent` answers how many the server has
/// been sent so far.
///
/// # Panics
/// If it is otherwise.
pub async fn an_idle_host_asks_seldom<S: Server>(
    store: &Store<S>,
    queues: &[String],
    sent: impl Fn() -> u64,
) {
    let stop = CancellationToken::new();
    let mut waiting = Vec::new();
    for queue in queues {
        let (consumer, stop) = (store.consumer(queue).await, stop.clone());
        waiting.push(tokio::spawn(async move { consumer.receive(1, &stop).await }));
    }
    // What belongs to the beginning is over by then.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (before, begun) = (sent(), Instant::now());
    tokio::time::sleep(FOR).await;
    let rate = (sent() - before) as f64 / begun.elapsed().as_secs_f64();
    stop.cancel();
    for waiting in waiting {
        assert!(waiting.await.unwrap().unwrap().is_empty());
    }
    assert!(rate < 5.0, "an idle host with ten queues sent {rate} requests a second");
    assert!(rate > 0.5, "nobody asked: neither hints nor pulls are to be trusted alone");
}

/// The names of ten queues.
pub fn ten_queues() -> Vec<String> {
    (0..10).map(|number| format!("idle-{number}")).collect()
}
