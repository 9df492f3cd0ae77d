//! Messages that exist if and only if the user's own data does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::Endpoint;
use bus::contract::Durability;
use bus_tests::postgres::{Database, Server, available};
use bus_tests::wait::PATIENCE;

use crate::stream::{Diary, Work, host, producer};

async fn seen(diary: &Diary, number: u64) {
    let began = Instant::now();
    while !diary.seen.lock().contains_key(&number) {
        assert!(began.elapsed() < PATIENCE, "message {number} never came");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_a_transaction_is_there_if_that_is_committed() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let producer = producer(&database.url()).await;
    let mut client = database.client().await;
    client.batch_execute("CREATE TABLE orders (id bigint)").await.unwrap();
    for (number, commit) in [(1_i64, true), (2, false), (3, true)] {
        let mut transaction = client.transaction().await.unwrap();
        transaction.execute("INSERT INTO orders VALUES ($1)", &[&number]).await.unwrap();
        producer.bus().send_in(&mut transaction, Work(number.unsigned_abs())).await.unwrap();
        if commit {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
    }
    let depth = producer.inspect("default").unwrap().depth(&Endpoint::queue("work").unwrap()).await.unwrap();
    assert_eq!(depth.ready, 2);
    let diary = Arc::new(Diary::default());
    let host = host(&database.url(), "work", &diary).await;
    seen(&diary, 1).await;
    seen(&diary, 3).await;
    assert!(!diary.seen.lock().contains_key(&2), "what was rolled back was sent");
    producer.close().await;
    host.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sql_function_sends_too_and_wakes_who_waits() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let diary = Arc::new(Diary::default());
    let host = host(&database.url(), "work", &diary).await;
    let client = database.client().await;
    client.query("SELECT bus.send('work', '7')", &[]).await.unwrap();
    seen(&diary, 7).await;
    client.query("SELECT bus.send('work', '8', '{\"source\": \"a trigger\"}', false)", &[]).await.unwrap();
    seen(&diary, 8).await;
    for refused in [
        "SELECT bus.send('No Queue', '1')",
        "SELECT bus.send('work', '1', '{\"bus-fence\": \"9\"}')",
        "SELECT bus.send('work', '1', '{\"count\": 9}')",
    ] {
        assert!(client.query(refused, &[]).await.is_err(), "{refused}");
    }
    host.stop().await.unwrap();
}

/// What the server is set to is what the start says; what is set to less than a send is worth is overruled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledgement_is_worth_what_the_server_says() {
    if !available() {
        return;
    }
    let server = Server::start().await;
    let client = server.client().await;
    let (names, commit, fsync) = ("synchronous_standby_names", "synchronous_commit", "fsync");
    for (settings, outlives, said) in [
        (&[][..], Durability::Synced, "fsync=on, synchronous_commit=on"),
        (&[(commit, "off")], Durability::Synced, "synchronous_commit=on"),
        (&[(commit, "local"), (names, "elsewhere")], Durability::Synced, "synchronous_commit=local"),
        (&[(commit, "on"), (names, "elsewhere")], Durability::Replicated, "synchronous standby"),
        (&[(commit, "on"), (names, ""), (fsync, "off")], Durability::Written, "fsync=off"),
    ] {
        for (name, value) in settings {
            client.batch_execute(&format!("ALTER SYSTEM SET {name} = '{value}'")).await.unwrap();
        }
        client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        let began = Instant::now();
        loop {
            // Each session learns of it by itself, when it has nothing else to do.
            let transport = crate::open(&server.url()).await;
            let guarantees = transport.guarantees();
            transport.close().await;
            if guarantees.durability == outlives && guarantees.acknowledgement.contains(said) {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{settings:?}: {guarantees:?}");
        }
    }
}
