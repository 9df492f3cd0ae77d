//! Claims that meet each other, failures, large numbers and transactions that last.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::contract::{
    Consumer, ConsumerSpec, Fence, FenceClaim, FenceGuard, LockId, Raised, Settlement, Transport,
};
use bus::message::{Receipt, Verdict};
use bus::{Endpoint, ErrorKind};
use bus_tests::by_hand::{bodies, command, endpoint, settle};
use bus_tests::postgres::{Database, available};
use bus_tests::wait::PATIENCE;
use tokio_util::sync::CancellationToken;

use crate::open;

const LEASE: Duration = Duration::from_secs(60);

async fn consumer(transport: &Arc<dyn Transport>, queue: &Arc<Endpoint>) -> Arc<dyn Consumer> {
    transport.prepare(std::slice::from_ref(&**queue)).await.unwrap();
    transport.consumer(ConsumerSpec::new(Arc::clone(queue), LEASE)).await.unwrap()
}

async fn send(transport: &Arc<dyn Transport>, queue: &str, body: &str) {
    transport.sender().send(vec![command(queue, body)]).await.remove(0).unwrap();
}

/// Stores messages whose time to live has passed.
async fn store_expired(client: &tokio_postgres::Client, number: usize) {
    let expired = format!(
        "INSERT INTO bus.message (endpoint, sent_at, ttl, uuid, type, body)
         SELECT (SELECT id FROM bus.endpoint), 0, 1, gen_random_uuid(), 't', '' FROM generate_series(1, {number})"
    );
    client.batch_execute(&expired).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_had_again_when_what_had_expired_in_it_could_not_be_buried() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let transport = open(&database.url()).await;
    let queue = endpoint("burial");
    let consumer = consumer(&transport, &queue).await;
    let client = database.client().await;
    store_expired(&client, 1).await;
    send(&transport, "burial", "good").await;
    let refuse =
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''full''; END';
                  CREATE TRIGGER refuse BEFORE INSERT ON bus.dead FOR EACH ROW EXECUTE FUNCTION refuse()";
    client.batch_execute(refuse).await.unwrap();
    let stop = CancellationToken::new();
    consumer.receive(10, &stop).await.unwrap_err();
    client.batch_execute("DROP TRIGGER refuse ON bus.dead").await.unwrap();
    let began = Instant::now();
    let got = consumer.receive(10, &stop).await.unwrap();
    assert_eq!(bodies(&got), ["good"]);
    assert_eq!((got[0].delivery_count, got[0].crashes), (1, 0), "the claim counted as a crash");
    assert!(began.elapsed() < PATIENCE, "it came when its lease had run out");
    transport.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_number_of_expired_messages_fails_no_call() {
    const EXPIRED: usize = 20_000;
    if !available() {
        return;
    }
    let database = Database::create().await;
    let transport = open(&format!("{}?timeout=1", database.url())).await;
    let queue = endpoint("expired");
    let consumer = consumer(&transport, &queue).await;
    let client = database.client().await;
    store_expired(&client, EXPIRED).await;
    send(&transport, "expired", "good").await;
    let stop = CancellationToken::new();
    let began = Instant::now();
    let got = consumer.receive(10, &stop).await.unwrap();
    assert_eq!(bodies(&got), ["good"]);
    assert!(
        began.elapsed() > Duration::from_secs(1),
        "they were buried within one call's time: this proves nothing"
    );
    let dead = client.query_one("SELECT count(*) FROM bus.dead", &[]).await.unwrap();
    assert_eq!(dead.get::<_, i64>(0), EXPIRED as i64);
    transport.close().await;
}

/// The pump extends claims while others of the same batch end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn extending_and_settling_the_same_claims_never_block_each_other() {
    const MESSAGES: usize = 400;
    const ROUNDS: usize = 40;
    if !available() {
        return;
    }
    let database = Database::create().await;
    let transport = open(&database.url()).await;
    let queue = endpoint("both-ways");
    let consumer = consumer(&transport, &queue).await;
    let stop = CancellationToken::new();
    for _ in 0..ROUNDS / 2 {
        let batch = (0..MESSAGES * 2).map(|_| command("both-ways", "1")).collect();
        for answer in transport.sender().send(batch).await {
            answer.unwrap();
        }
    }
    // As in a queue that has been used for a while.
    database.client().await.batch_execute("ANALYZE bus.message").await.unwrap();
    for round in 0..ROUNDS {
        let got = consumer.receive(MESSAGES, &stop).await.unwrap();
        let receipts: Vec<Receipt> = got.into_iter().map(|one| one.receipt).collect();
        let mut backwards: Vec<Receipt> = receipts.iter().rev().cloned().collect();
        let verdict =
            |at: usize| if (at + round).is_multiple_of(2) { Verdict::Complete } else { Verdict::Release };
        let plain = round.is_multiple_of(2);
        let settlements = receipts.into_iter().enumerate().map(|(at, receipt)| {
            Settlement::new(receipt, if plain { Verdict::Complete } else { verdict(at) })
        });
        let (extended, settled) =
            tokio::join!(consumer.extend(&mut backwards, LEASE), consumer.settle(settlements.collect()));
        for answer in settled {
            answer.unwrap();
        }
        for lost in extended.into_iter().filter_map(Result::err) {
            assert_eq!(lost.kind(), ErrorKind::ReceiptLost, "{lost:?}");
        }
    }
    transport.close().await;
}

/// A long transaction of the singleton's own, in which it has sent something under its fence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_has_checked_in_delays_no_extension() {
    const LOCK_LEASE: Duration = Duration::from_secs(3);
    if !available() {
        return;
    }
    let database = Database::create().await;
    let transport = open(&database.url()).await;
    let queue = endpoint("checked-in");
    transport.prepare(std::slice::from_ref(&*queue)).await.unwrap();
    let fencing = transport.capabilities().fencing.unwrap();
    let claim = FenceClaim::new(
        Arc::clone(&queue),
        "test:",
        &LockId::from("queue/checked-in"),
        Fence::new(1),
        LOCK_LEASE,
    );
    assert_eq!(fencing.raise(claim).await.unwrap(), Raised::Raised);
    let spec = ConsumerSpec::new(Arc::clone(&queue), LEASE).fenced(Fence::new(1), LOCK_LEASE);
    let consumer = transport.consumer(spec).await.unwrap();
    for body in ["first", "second"] {
        send(&transport, "checked-in", body).await;
    }
    let stop = CancellationToken::new();
    let first = consumer.receive(1, &stop).await.unwrap();

    let mut client = database.client().await;
    let mut transaction = client.transaction().await.unwrap();
    let guard = FenceGuard { endpoint: Arc::clone(&queue), fence: Fence::new(1) };
    fencing.check_in(&mut transaction, &guard).await.unwrap();
    // Until the row is to be bound again.
    tokio::time::sleep(LOCK_LEASE / 2).await;
    let mut receipts = vec![first[0].receipt.clone()];
    let began = Instant::now();
    consumer.extend(&mut receipts, LEASE).await.remove(0).unwrap();
    let second = consumer.receive(1, &stop).await.unwrap();
    assert_eq!(bodies(&second), ["second"]);
    assert!(
        // Who waits for it waits for as long as a call may take.
        began.elapsed() < Duration::from_secs(8),
        "they waited {:?} for the transaction",
        began.elapsed()
    );
    transaction.commit().await.unwrap();
    // And it is bound again as soon as that can be.
    tokio::time::sleep(LOCK_LEASE * 2).await;
    consumer.extend(&mut receipts, LEASE).await.remove(0).unwrap();
    let row = fencing.row(&queue).await.unwrap().unwrap();
    assert!(!row.bound_for.is_zero(), "the row is not bound any more");
    transport.close().await;
}

/// What was stored early and is committed late lies below where everybody looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_committed_late_and_in_silence_is_found_within_about_a_second() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let transport = open(&database.url()).await;
    let queue = endpoint("late");
    let consumer = consumer(&transport, &queue).await;
    let mut client = database.client().await;
    let transaction = client.transaction().await.unwrap();
    transaction.execute("SELECT bus.send('late', 'late', NULL, false)", &[]).await.unwrap();
    let stop = CancellationToken::new();
    // Long enough for it to be taken for certain that nothing comes any more down there.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        send(&transport, "late", "early").await;
        for one in consumer.receive(10, &stop).await.unwrap() {
            settle(&consumer, &one.receipt, Verdict::Complete).await.unwrap();
        }
    }
    let commit = async {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        transaction.commit().await.unwrap();
        Instant::now()
    };
    let (got, committed) = tokio::join!(consumer.receive(10, &stop), commit);
    assert_eq!(bodies(&got.unwrap()), ["late"]);
    assert!(committed.elapsed() < Duration::from_secs(5), "it was found after {:?}", committed.elapsed());
    transport.close().await;
}

/// One statement never carries more than it can in its time, however much is sent at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_batch_is_stored_in_parts_and_in_order() {
    const MESSAGES: usize = 5_000;
    if !available() {
        return;
    }
    let database = Database::create().await;
    let transport = open(&database.url()).await;
    let batch = (0..MESSAGES).map(|number| command("parts", &number.to_string())).collect();
    let answers = transport.sender().send(batch).await;
    assert_eq!(answers.len(), MESSAGES);
    for answer in answers {
        answer.unwrap();
    }
    let client = database.client().await;
    let parts =
        "SELECT max(n), sum(n)::bigint FROM (SELECT count(*) AS n FROM bus.message GROUP BY xmin::text) AS p";
    let row = client.query_one(parts, &[]).await.unwrap();
    let (largest, all): (i64, i64) = (row.get(0), row.get(1));
    assert_eq!(all, MESSAGES as i64);
    assert!(largest <= 1024, "{largest} in one statement");
    let order = "SELECT count(*) FROM (SELECT convert_from(body, 'UTF8')::int AS body, row_number() OVER (ORDER BY id) AS at
                 FROM bus.message) AS m WHERE body <> at - 1";
    assert_eq!(client.query_one(order, &[]).await.unwrap().get::<_, i64>(0), 0, "out of order");
    transport.close().await;
}

/// M8: what cannot be had now, however much of it there is, hides nothing that can. Here somebody has it locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lapsed_claim_is_found_behind_many_that_somebody_has_locked() {
    const LOCKED: usize = 200;
    const BRIEF: Duration = Duration::from_millis(500);
    if !available() {
        return;
    }
    let database = Database::create().await;
    let transport = open(&database.url()).await;
    let queue = endpoint("locked");
    transport.prepare(std::slice::from_ref(&*queue)).await.unwrap();
    let batch = (0..=LOCKED).map(|number| command("locked", &number.to_string())).collect();
    for answer in transport.sender().send(batch).await {
        answer.unwrap();
    }
    let stop = CancellationToken::new();
    let dead = transport.consumer(ConsumerSpec::new(Arc::clone(&queue), BRIEF)).await.unwrap();
    let mut claimed = 0;
    while claimed <= LOCKED {
        claimed += dead.receive(LOCKED + 1, &stop).await.unwrap().len();
    }
    let mut client = database.client().await;
    let locking = client.transaction().await.unwrap();
    let lock = format!("SELECT 1 FROM bus.message ORDER BY id LIMIT {LOCKED} FOR UPDATE");
    assert_eq!(locking.query(&lock, &[]).await.unwrap().len(), LOCKED);
    let consumer = transport.consumer(ConsumerSpec::new(queue, LEASE)).await.unwrap();
    let got = consumer.receive(10, &stop).await.unwrap();
    assert_eq!(bodies(&got), [LOCKED.to_string().as_str()]);
    assert_eq!(got[0].crashes, 1);
    locking.rollback().await.unwrap();
    transport.close().await;
}

/// M28: numbers that no float holds any more, and such as are near the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_with_large_numbers_live_as_all_others_do() {
    const MESSAGES: usize = 20;
    if !available() {
        return;
    }
    let database = Database::create().await;
    let transport = open(&database.url()).await;
    let queue = endpoint("large");
    let consumer = consumer(&transport, &queue).await;
    let client = database.client().await;
    let powers = transport.capabilities();
    let (delay, inspect) = (powers.delay.unwrap(), powers.inspect.unwrap());
    let stop = CancellationToken::new();
    for start in [(1_i64 << 53) + 1, (1 << 62) + 1] {
        client.batch_execute(&format!("ALTER SEQUENCE bus.message_id RESTART WITH {start}")).await.unwrap();
        let texts: Vec<String> = (0..MESSAGES).map(|number| number.to_string()).collect();
        let batch = texts.iter().map(|text| command("large", text)).collect();
        for answer in transport.sender().send(batch).await {
            answer.unwrap();
        }
        let later = command("large", "later").due(Some(bus::contract::Due::In(LEASE)));
        let placed = transport.sender().send(vec![later]).await.remove(0).unwrap();
        assert!(delay.cancel(&placed, None).await.unwrap());

        let mut got = Vec::new();
        while got.len() < MESSAGES {
            got.extend(consumer.receive(MESSAGES - got.len(), &stop).await.unwrap());
        }
        assert_eq!(bodies(&got), texts);
        let error = || bus::Error::new(ErrorKind::Handler, "not yet");
        for (at, one) in got.iter().enumerate() {
            let verdict = match at % 4 {
                0 => Verdict::Complete,
                1 => Verdict::Retry { after: Some(Duration::from_millis(50)), error: error() },
                2 => Verdict::DeadLetter { reason: "given up".into(), error: None },
                _ => Verdict::Release,
            };
            let mut receipts = vec![one.receipt.clone()];
            consumer.extend(&mut receipts, LEASE).await.remove(0).unwrap();
            settle(&consumer, &one.receipt, verdict).await.unwrap();
        }
        let dead: Vec<_> = inspect
            .dead_letters(&queue, None, 100)
            .await
            .unwrap()
            .iter()
            .map(|one| one.envelope.id)
            .collect();
        assert_eq!(dead.len(), MESSAGES / 4);
        inspect.put_back(&queue, &dead).await.unwrap();
        let mut left = HashSet::new();
        while left.len() < MESSAGES * 3 / 4 {
            for one in consumer.receive(MESSAGES, &stop).await.unwrap() {
                assert!(left.insert(one.envelope.id), "it came twice");
                settle(&consumer, &one.receipt, Verdict::Complete).await.unwrap();
            }
        }
        assert_eq!(inspect.depth(&queue).await.unwrap(), bus::contract::Depth::default());
    }
    transport.close().await;
}
