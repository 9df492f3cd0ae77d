//! What a host costs that has nothing to do, and how soon it hears of a message.

use std::time::Instant;

use bus::prelude::*;
use bus_tests::idle::{self, ten_queues};
use tokio::sync::mpsc::UnboundedSender;

use crate::store::{PREFIX, Store, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_host_asks_seldom() {
    let queues = ten_queues();
    let Some(store) = Store::with(&queues.iter().map(String::as_str).collect::<Vec<_>>()).await else {
        return;
    };
    idle::an_idle_host_asks_seldom(&store, &queues, || store.server.messages_in()).await;
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
async fn alone_a_message_starts_another_hosts_handler_in_less_than_5_ms() {
    let Some(server) = server() else { return };
    let client = server.client().await;
    let ask = async || client.flush().await.unwrap();
    bus_tests::latency::assert_between_hosts(&server.url(PREFIX), || Timed, ask).await;
}
