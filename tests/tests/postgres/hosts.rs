//! Several servers in one URL, of which one takes writes.

use std::net::{Ipv4Addr, TcpListener};

use bus_tests::by_hand::command;
use bus_tests::postgres::{Server, available};

use crate::open;

/// The first takes connections and never says a word, as a frozen machine does; the second is read-only, as a former
/// primary is that has come back as a standby.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_servers_the_one_that_takes_writes_is_found() {
    if !available() {
        return;
    }
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let read_only = Server::start_with(&["default_transaction_read_only=on"]).await;
    let server = Server::start().await;
    let url = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{},127.0.0.1:{}/postgres",
        silent.local_addr().unwrap().port(),
        read_only.port(),
        server.port()
    );
    let transport = open(&url).await;
    transport.sender().send(vec![command("hosts", "1")]).await.remove(0).unwrap();
    let count = server.client().await.query_one("SELECT count(*) FROM bus.message", &[]).await.unwrap();
    assert_eq!(count.get::<_, i64>(0), 1);
    transport.close().await;
}
