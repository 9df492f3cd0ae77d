//! What waiting costs, and how soon it ends.

use std::time::{Duration, Instant};

use bus::prelude::*;
use bus_tests::redis::FORGETFUL;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use crate::store::{PREFIX, Store, calls, server};

/// What a host costs that has nothing to do: with ten queues, less than five commands a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_host_asks_seldom() {
    let queues: Vec<String> = (0..10).map(|number| format!("idle-{number}")).collect();
    let names: Vec<&str> = queues.iter().map(String::as_str).collect();
    let Some(store) = Store::with(&names).await else { return };
    let stop = CancellationToken::new();
    let mut waiting = Vec::new();
    for queue in &names {
        let (consumer, stop) = (store.consumer(queue).await, stop.clone());
        waiting.push(tokio::spawn(async move { consumer.receive(1, &stop).await }));
    }
    // What a client sends, without what the scripts do in turn.
    let sent = || {
        let calls = calls(&store.server);
        ["evalsha", "eval", "ping", "subscribe", "exists"]
            .iter()
            .filter_map(|name| calls.get(*name))
            .sum::<u64>()
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (before, begun) = (sent(), Instant::now());
    tokio::time::sleep(Duration::from_secs(10)).await;
    let rate = (sent() - before) as f64 / begun.elapsed().as_secs_f64();
    stop.cancel();
    for waiting in waiting {
        assert!(waiting.await.unwrap().unwrap().is_empty());
    }
    assert!(rate < 5.0, "an idle host with ten queues sent {rate} commands a second");
    assert!(rate > 0.5, "nobody polled: hints alone are not to be trusted");
}

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "latency")]
struct Timed;

#[processor]
async fn timed(_message: Timed, starts: Dep<UnboundedSender<Instant>>) -> Result<()> {
    // Whoever measured may have gone.
    let _ = starts.send(Instant::now());
    Ok(())
}

/// From the sending in one host to the start of the handler in another, while nothing else is under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_starts_another_hosts_handler_in_less_than_5_ms() {
    const PROMISED: Duration = Duration::from_millis(5);
    let Some(server) = server(FORGETFUL) else { return };
    let url = server.url(PREFIX);
    let (starts, mut started) = tokio::sync::mpsc::unbounded_channel();
    let host = bus::Host::builder().transport("default", &url).only(["latency"]).provide(starts);
    let host = host.build().unwrap().start().await.unwrap();
    let producer = bus::Host::builder().transport("default", &url).connect().await.unwrap();
    let send = async || drop(producer.bus().send(Timed).await.unwrap());
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/", server.port())).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let ask = async || {
        let _: String = redis::cmd("PING").query_async(&mut connection.clone()).await.unwrap();
    };
    bus_tests::latency::assert_median(PROMISED, send, &mut started, ask).await;
    producer.close().await;
    host.stop().await.unwrap();
}
