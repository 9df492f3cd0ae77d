//! What waiting costs, and how soon it ends.

use std::time::Instant;

use bus::prelude::*;
use bus_tests::idle::{self, ten_queues};
use bus_tests::redis::FORGETFUL;
use tokio::sync::mpsc::UnboundedSender;

use crate::store::{PREFIX, Store, calls, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_host_asks_seldom() {
    let queues = ten_queues();
    let Some(store) = Store::with(&queues.iter().map(String::as_str).collect::<Vec<_>>()).await else {
        return;
    };
    // What a client sends, without what the scripts do in turn.
    let sent = || {
        let calls = calls(&store.server);
        ["evalsha", "eval", "ping", "subscribe", "exists"].iter().filter_map(|name| calls.get(*name)).sum()
    };
    idle::an_idle_host_asks_seldom(&store, &queues, sent).await;
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

/// M15, M26: from the sending in one host to the start of the handler in another, while nothing else is under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_starts_another_hosts_handler_in_less_than_5_ms() {
    let Some(server) = server(FORGETFUL) else { return };
    let client = redis::Client::open(format!("redis://127.0.0.1:{}/", server.port())).unwrap();
    let connection = client.get_multiplexed_async_connection().await.unwrap();
    let ask = async || {
        let _: String = redis::cmd("PING").query_async(&mut connection.clone()).await.unwrap();
    };
    bus_tests::latency::assert_between_hosts(&server.url(PREFIX), || Timed, ask).await;
}
