//! Messages that exist if and only if the user's own data does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::contract::{Due, Durability, Fence, FenceClaim, FenceGuard, LockId, Outgoing, Raised};
use bus::{Endpoint, ErrorKind};
use bus_tests::by_hand::{command, endpoint, envelope};
use bus_tests::postgres::{Database, Server, available};
use bus_tests::task::{Happened, Task};
use bus_tests::wait::PATIENCE;
use tokio::sync::mpsc::UnboundedReceiver;

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

/// What a session of the test's own hears of the store's hints.
async fn listen(database: &Database) -> (tokio_postgres::Client, UnboundedReceiver<String>) {
    let (client, mut connection) =
        tokio_postgres::connect(&database.url(), tokio_postgres::NoTls).await.unwrap();
    let (tell, heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let tokio_postgres::AsyncMessage::Notification(hint) = message {
                // Whoever listened may have gone.
                let _ = tell.send(hint.payload().to_owned());
            }
        }
    });
    client.batch_execute("LISTEN bus").await.unwrap();
    (client, heard)
}

/// M25: a transaction that notifies waits at its commit for every other one that does, in the whole database. The user's own
/// are spared that unless it is asked for: then an idle host has the message in well below its poll of a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_a_transaction_notifies_within_it_only_if_asked_to() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let diary = Arc::new(Diary::default());
    let host = host(&database.url(), "work", &diary).await;
    let (listening, mut heard) = listen(&database).await;
    let mut client = database.client().await;
    for (number, url, notifies) in [
        (1, database.url(), false),
        (2, format!("{}?notify_in_transactions=on", database.url()), true),
        (3, format!("{}?notify_in_transactions=off", database.url()), false),
    ] {
        let producer = producer(&url).await;
        let mut transaction = client.transaction().await.unwrap();
        producer.bus().send_in(&mut transaction, Work(number)).await.unwrap();
        transaction.commit().await.unwrap();
        seen(&diary, number).await;
        // Whatever was notified before is heard before.
        listening.batch_execute("NOTIFY bus, 'end'").await.unwrap();
        let mut hints = Vec::new();
        loop {
            let hint = heard.recv().await.unwrap();
            if hint == "end" {
                break;
            }
            hints.push(hint);
        }
        assert_eq!(hints.iter().any(|hint| hint.contains("q/work")), notifies, "{number}: {hints:?}");
        producer.close().await;
    }
    host.stop().await.unwrap();
}

/// M25: many sends are told of by few hints, at most one in 5 ms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_sends_are_told_of_by_a_hint_in_5_ms_at_most() {
    const MESSAGES: u64 = 10_000;
    if !available() {
        return;
    }
    let database = Database::create().await;
    let producer = producer(&database.url()).await;
    producer.bus().send(Work(0)).await.unwrap();
    let (listening, mut heard) = listen(&database).await;
    let began = Instant::now();
    let bus = producer.bus();
    let senders = (0..64).map(|sender| async move {
        for number in (sender..MESSAGES).step_by(64) {
            bus.send(Work(number)).await.unwrap();
        }
    });
    futures_util::future::join_all(senders).await;
    let took = began.elapsed();
    // Nothing more comes when the producer is gone.
    producer.close().await;
    listening.batch_execute("NOTIFY bus, 'end'").await.unwrap();
    let mut hints = 0;
    while heard.recv().await.unwrap() != "end" {
        hints += 1;
    }
    // One may still have been under way at either end.
    let most = took.as_millis() / 5 + 2;
    assert!((1..=most).contains(&hints), "{hints} hints of {MESSAGES} sends in {took:?}");
}

/// Commands and events, now or later, under a fence or none: all by the contract's own power.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_stores_events_and_delays_and_heeds_fences() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let transport = crate::open(&database.url()).await;
    let powers = transport.capabilities();
    let (enqueue, fencing) = (powers.enqueue.unwrap(), powers.fencing.unwrap());
    let readers = [endpoint("placed/a"), endpoint("placed/b")];
    let single = endpoint("single");
    transport.prepare(&[(*readers[0]).clone(), (*readers[1]).clone(), (*single).clone()]).await.unwrap();
    let claim = |fence| {
        let id = LockId::from("queue/single");
        FenceClaim::new(Arc::clone(&single), "test:", &id, Fence::new(fence), Duration::from_secs(60))
    };
    assert_eq!(fencing.raise(claim(1)).await.unwrap(), Raised::Raised);
    let guard = FenceGuard { endpoint: Arc::clone(&single), fence: Fence::new(1) };

    let mut client = database.client().await;
    let event = || Outgoing::new(readers[0].target(), envelope("event"));
    let mut transaction = client.transaction().await.unwrap();
    enqueue.enqueue(&mut transaction, &event()).await.unwrap();
    enqueue.enqueue(&mut transaction, &event().due(Some(Due::In(Duration::from_secs(3600))))).await.unwrap();
    let mut guarded = command("guarded", "1");
    guarded.guard = Some(guard.clone());
    enqueue.enqueue(&mut transaction, &guarded).await.unwrap();
    transaction.commit().await.unwrap();
    let inspect = powers.inspect.unwrap();
    for reader in &readers {
        let depth = inspect.depth(reader).await.unwrap();
        assert_eq!((depth.ready, depth.delayed), (1, 1), "{reader}");
    }
    assert_eq!(inspect.depth(&endpoint("guarded")).await.unwrap().ready, 1);

    assert_eq!(fencing.raise(claim(2)).await.unwrap(), Raised::Raised);
    let mut transaction = client.transaction().await.unwrap();
    let refused = enqueue.enqueue(&mut transaction, &guarded).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TermLost);
    transaction.rollback().await.unwrap();
    assert_eq!(inspect.depth(&endpoint("guarded")).await.unwrap().ready, 1);
    transport.close().await;
}

/// [`Bus::publish_in`](bus::Bus::publish_in), as a user calls it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_a_transaction_is_published_if_that_is_committed() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let transport = crate::open(&database.url()).await;
    let reader = endpoint("happened/reader");
    transport.prepare(&[(*reader).clone()]).await.unwrap();
    let producer = producer(&database.url()).await;
    let mut client = database.client().await;
    for commit in [true, false] {
        let mut transaction = client.transaction().await.unwrap();
        producer.bus().publish_in(&mut transaction, Happened(Task::new(1))).await.unwrap();
        if commit {
            transaction.commit().await.unwrap();
        } else {
            transaction.rollback().await.unwrap();
        }
    }
    assert_eq!(producer.inspect("default").unwrap().depth(&reader).await.unwrap().ready, 1);
    producer.close().await;
    transport.close().await;
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
