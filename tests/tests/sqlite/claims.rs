//! Claims: whose they are, when they come back, what they count, what they cost.

use std::time::{Duration, Instant};

use bus::contract::{ConsumerSpec, Depth, Fence, PutBack, Settlement};
use bus::message::Verdict;
use bus::settings::Order;
use bus::{Endpoint, ErrorKind};
use rusqlite::{Connection, StatementStatus};
use tokio_util::sync::CancellationToken;

use crate::store::{
    LEASE, Store, another_clock, bodies, command, endpoint, failed, open, receive, receive_now, settle,
};

const BRIEF: Duration = Duration::from_millis(400);

fn brief(name: &str) -> ConsumerSpec {
    ConsumerSpec::new(endpoint(name), BRIEF)
}

/// M4, M5: what a slow consumer says late changes nothing about the claim of the one who has the message now.
#[tokio::test]
async fn a_late_word_does_not_touch_the_new_claim() {
    let store = Store::with(&["jobs"]).await;
    store.send("jobs", ["a"]).await;
    let slow = store.consumer_with(brief("jobs")).await;
    let mut late = [receive(&slow, 1).await.remove(0).receipt];
    let quick = store.consumer("jobs").await;
    let mine = receive(&quick, 1).await.remove(0);
    assert_eq!((mine.delivery_count, mine.crashes), (2, 1));

    let kind = |answer: bus::Result<()>| answer.unwrap_err().kind();
    for verdict in [Verdict::Complete, Verdict::Release, Verdict::Retry { after: None, error: failed() }] {
        assert_eq!(kind(settle(&slow, &late[0], verdict).await), ErrorKind::ReceiptLost);
    }
    assert_eq!(kind(slow.extend(&mut late, LEASE).await.remove(0)), ErrorKind::ReceiptLost);
    assert_eq!(kind(slow.record_alone(&late[0]).await), ErrorKind::ReceiptLost);
    assert_eq!(store.depth("jobs").await, Depth::new(0, 1, 0, 0));
    settle(&quick, &mine.receipt, Verdict::Complete).await.unwrap();
    assert_eq!(kind(settle(&quick, &mine.receipt, Verdict::Complete).await), ErrorKind::ReceiptLost);
}

/// M2, M3, M7: a claim that is kept alive is nobody else's, however long it takes; each is judged by its own lease.
#[tokio::test]
async fn a_claim_lasts_while_it_is_extended() {
    let store = Store::with(&["jobs"]).await;
    store.send("jobs", ["kept", "left"]).await;
    let holder = store.consumer_with(brief("jobs")).await;
    let claimed = receive(&holder, 2).await;
    let mut kept = [claimed[0].receipt.clone()];
    holder.extend(&mut kept, LEASE).await.remove(0).unwrap();

    let other = store.consumer("jobs").await;
    assert_eq!(bodies(&receive(&other, 2).await), ["left"]);
    assert!(receive_now(&other, 2).await.is_empty());
    settle(&holder, &kept[0], Verdict::Complete).await.unwrap();
}

/// M6, M9: claims of a process that is gone are found whatever they look like, and no token ever comes again. What was
/// claimed before a file knew of clocks is free.
#[tokio::test]
async fn claims_by_an_unknown_clock_are_dead() {
    let store = Store::with(&["jobs"]).await;
    store.send("jobs", ["a", "b"]).await;
    let before = receive(&store.consumer("jobs").await, 2).await;
    let sql = store.sql();
    let other = another_clock(&sql, None);
    sql.execute("UPDATE bus_claim SET boot = ?1, until = 9223372036854775807", [other]).unwrap();

    let after = receive(&store.consumer("jobs").await, 2).await;
    assert_eq!(bodies(&after), ["a", "b"]);
    assert!(after.iter().all(|delivery| delivery.crashes == 1));
    assert!(after.iter().zip(&before).all(|(now, then)| now.receipt.claim() != then.receipt.claim()));
}

/// M2, M9: a claim that was made by another clock, in another container or before a restart, lasts as long as its lease
/// after that clock was last seen to go on, and no longer.
#[tokio::test]
async fn a_claim_by_another_clock_is_waited_out_by_ones_own() {
    const SECOND: i64 = 1_000_000_000;
    for shown in [7 * SECOND, 1 << 60] {
        let store = Store::with(&["jobs"]).await;
        store.send("jobs", ["a", "b"]).await;
        let holder = store.consumer("jobs").await;
        receive(&holder, 1).await;
        let sql = store.sql();
        let other = another_clock(&sql, Some(shown));
        let extend = |seen: i64| {
            let stamp = "UPDATE bus_boot SET seen = ?2 WHERE id = ?1";
            sql.execute(stamp, (other, seen)).unwrap();
            let extension =
                "UPDATE bus_claim SET boot = ?1, until = ?2 WHERE id = (SELECT min(id) FROM bus_claim)";
            sql.execute(extension, (other, seen + 2 * SECOND)).unwrap();
        };
        extend(shown);
        let next = store.consumer("jobs").await;
        assert_eq!(bodies(&receive_now(&next, 2).await), ["b"]);
        assert_eq!(store.depth("jobs").await, Depth::new(0, 2, 0, 0));
        extend(shown + 100 * SECOND);
        let looked = Instant::now();
        assert!(receive_now(&next, 1).await.is_empty());
        let after = receive(&next, 1).await;
        assert_eq!((bodies(&after), after[0].crashes), (vec!["a"], 1));
        assert!(looked.elapsed() >= Duration::from_secs(2), "after {:?}", looked.elapsed());
    }
}

/// What an earlier term left by another clock is found once, though it has run out as well.
#[tokio::test]
async fn what_an_earlier_term_left_by_another_clock_is_found_once() {
    let store = Store::with(&["jobs"]).await;
    let term = |fence| {
        let spec = ConsumerSpec::new(endpoint("jobs"), LEASE).fenced(Fence::new(fence), LEASE);
        store.consumer_with(spec)
    };
    store.raise("jobs", 1, LEASE).await;
    store.send("jobs", ["a", "b"]).await;
    receive(&term(1).await, 1).await;
    for (fence, until, crashes) in [(2, 0, 1), (3, i64::MAX, 2)] {
        let sql = store.sql();
        let other = another_clock(&sql, Some(1_000_000_000));
        sql.execute("UPDATE bus_claim SET boot = ?1, until = ?2", (other, until)).unwrap();
        store.raise("jobs", fence, LEASE).await;
        let received = receive(&term(fence).await, 5).await;
        assert_eq!(bodies(&received), ["a", "b"]);
        assert_eq!(received[0].crashes, crashes);
    }
}

/// M18: interrupted is not an attempt.
#[tokio::test]
async fn a_release_takes_back_the_count_and_is_available_at_once() {
    let store = Store::with(&["jobs"]).await;
    store.send("jobs", ["a", "b"]).await;
    let consumer = store.consumer("jobs").await;
    for _ in 0..3 {
        let claimed = receive(&consumer, 1).await.remove(0);
        assert_eq!((bodies(std::slice::from_ref(&claimed)), claimed.delivery_count), (vec!["a"], 1));
        settle(&consumer, &claimed.receipt, Verdict::Release).await.unwrap();
    }
    // Another process gets it at once too, though nobody tells it where to look.
    let other = open(&store.file()).await.unwrap();
    let other = other.consumer(ConsumerSpec::new(endpoint("jobs"), LEASE)).await.unwrap();
    assert_eq!(bodies(&receive(&other, 5).await), ["a", "b"]);
}

/// M19, M21: failures and crashes are counted apart; an attempt made alone is told from the others.
#[tokio::test]
async fn crashes_are_counted_apart_from_failures() {
    let store = Store::with(&["jobs"]).await;
    store.send("jobs", ["a"]).await;
    let consumer = store.consumer_with(brief("jobs")).await;
    let counts = |d: &bus::message::Delivery| (d.delivery_count, d.failures, d.crashes, d.crashed_alone);

    let first = receive(&consumer, 1).await.remove(0);
    let after = Some(Duration::from_millis(50));
    settle(&consumer, &first.receipt, Verdict::Retry { after, error: failed() }).await.unwrap();
    let second = receive(&consumer, 1).await.remove(0);
    assert_eq!(counts(&second), (2, 1, 0, false));

    // Left to run out: a crash. Then one that was made alone, and survived.
    let third = receive(&consumer, 1).await.remove(0);
    assert_eq!(counts(&third), (3, 1, 1, false));
    consumer.record_alone(&third.receipt).await.unwrap();
    settle(&consumer, &third.receipt, Verdict::Retry { after: None, error: failed() }).await.unwrap();
    let fourth = receive(&consumer, 1).await.remove(0);
    assert_eq!(counts(&fourth), (4, 2, 0, false));

    // And one that was made alone, and crashed.
    consumer.record_alone(&fourth.receipt).await.unwrap();
    let fifth = receive(&consumer, 1).await.remove(0);
    assert_eq!(counts(&fifth), (5, 2, 1, true));
    settle(&consumer, &fifth.receipt, Verdict::Release).await.unwrap();
    let sixth = receive(&consumer, 1).await.remove(0);
    assert_eq!(counts(&sixth), (5, 2, 1, true));

    let verdict = Verdict::DeadLetter { reason: "crashed too often".into(), error: None };
    settle(&consumer, &sixth.receipt, verdict).await.unwrap();
    let dead = store.dead("jobs").await.remove(0);
    assert_eq!((dead.reason.as_str(), dead.delivery_count), ("crashed too often", 5));
    assert!(dead.error.unwrap().contains("it failed"), "the last failure is kept");
}

/// M35: each answered for, and repeating it does nothing more.
#[tokio::test]
async fn dead_letters_are_listed_by_pages_and_put_back_once() {
    let store = Store::with(&["jobs"]).await;
    store.send("jobs", ["a", "b", "c"]).await;
    let consumer = store.consumer("jobs").await;
    for claimed in receive(&consumer, 3).await {
        let verdict = Verdict::DeadLetter { reason: "no".into(), error: Some(failed()) };
        settle(&consumer, &claimed.receipt, verdict).await.unwrap();
    }
    let inspect = store.transport.capabilities().inspect.unwrap();
    let jobs = Endpoint::parse("jobs").unwrap();
    let first = inspect.dead_letters(&jobs, None, 2).await.unwrap();
    let rest = inspect.dead_letters(&jobs, Some(first[1].envelope.id), 2).await.unwrap();
    let shown: Vec<_> = first.iter().chain(&rest).map(|dead| &dead.envelope.body[..]).collect();
    assert_eq!(shown, [b"a", b"b", b"c"]);

    let ids = [first[0].envelope.id, bus::MessageId::fresh()];
    let outcome = inspect.put_back(&jobs, &ids).await.unwrap();
    assert_eq!(outcome, [(ids[0], PutBack::Done), (ids[1], PutBack::NotFound)]);
    assert_eq!(inspect.put_back(&jobs, &ids[..1]).await.unwrap(), [(ids[0], PutBack::NotFound)]);
    assert_eq!(store.depth("jobs").await, Depth::new(1, 0, 0, 2));
    let again = receive(&consumer, 5).await;
    assert_eq!((bodies(&again), again[0].delivery_count), (vec!["a"], 1));
    assert_eq!(inspect.endpoints().await.unwrap(), [jobs]);
}

/// An expired message that is put back is not dead again before anyone has seen it.
#[tokio::test]
async fn an_expired_message_can_be_put_back() {
    let store = Store::with(&["jobs"]).await;
    let stale = crate::store::aged("jobs", "stale", Duration::from_secs(60), Duration::from_secs(1));
    let id = stale.envelope.id;
    store.transport.sender().send(vec![stale]).await.remove(0).unwrap();
    let consumer = store.consumer("jobs").await;
    assert!(receive_now(&consumer, 1).await.is_empty());
    let inspect = store.transport.capabilities().inspect.unwrap();
    inspect.put_back(&Endpoint::parse("jobs").unwrap(), &[id]).await.unwrap();
    assert_eq!(bodies(&receive(&consumer, 1).await), ["stale"]);
}

#[tokio::test]
async fn strict_order_holds_back_what_lies_behind_a_retry() {
    let store = Store::with(&["jobs"]).await;
    store.send("jobs", ["a", "b"]).await;
    let strict = ConsumerSpec::new(endpoint("jobs"), LEASE).ordered(Order::Strict);
    let consumer = store.consumer_with(strict).await;
    let first = receive(&consumer, 10).await;
    assert_eq!(bodies(&first), ["a"]);
    assert!(receive_now(&consumer, 10).await.is_empty(), "one at a time");
    // Longer than what follows takes on a busy machine.
    let retry = Verdict::Retry { after: Some(5 * BRIEF), error: failed() };
    settle(&consumer, &first[0].receipt, retry).await.unwrap();
    assert!(receive_now(&consumer, 10).await.is_empty(), "held back");
    let again = receive(&consumer, 10).await;
    assert_eq!(bodies(&again), ["a"]);
    settle(&consumer, &again[0].receipt, Verdict::Complete).await.unwrap();
    assert_eq!(bodies(&receive(&consumer, 10).await), ["b"]);
}

/// What was tried goes first, also before what was sent earlier and became due only now: that lines up behind.
#[tokio::test]
async fn in_strict_order_what_was_tried_goes_first() {
    let store = Store::with(&["jobs"]).await;
    let late = command("jobs", "late").due(Some(bus::contract::Due::In(Duration::from_millis(100))));
    store.transport.sender().send(vec![late]).await.remove(0).unwrap();
    store.send("jobs", ["a", "b"]).await;
    let strict = ConsumerSpec::new(endpoint("jobs"), LEASE).ordered(Order::Strict);
    let consumer = store.consumer_with(strict).await;
    let mut seen = Vec::new();
    for verdict in [Verdict::Retry { after: None, error: failed() }, Verdict::Release, Verdict::Complete] {
        let claimed = receive(&consumer, 10).await.remove(0);
        seen.push((crate::store::body(&claimed).to_owned(), claimed.delivery_count));
        tokio::time::sleep(Duration::from_millis(100)).await;
        settle(&consumer, &claimed.receipt, verdict).await.unwrap();
    }
    assert_eq!(seen, [("a".into(), 1), ("a".into(), 2), ("a".into(), 2)]);
    for expected in ["b", "late"] {
        let claimed = receive(&consumer, 10).await.remove(0);
        assert_eq!(crate::store::body(&claimed), expected);
        settle(&consumer, &claimed.receipt, Verdict::Complete).await.unwrap();
    }
}

#[tokio::test]
async fn relaxed_order_goes_on_while_a_message_waits_for_its_retry() {
    let store = Store::with(&["jobs"]).await;
    store.send("jobs", ["a", "b"]).await;
    let consumer = store.consumer("jobs").await;
    let first = receive(&consumer, 1).await.remove(0);
    // Longer than what follows takes on a busy machine.
    let retry = Verdict::Retry { after: Some(5 * BRIEF), error: failed() };
    settle(&consumer, &first.receipt, retry).await.unwrap();
    assert_eq!(bodies(&receive(&consumer, 10).await), ["b"]);
    assert_eq!(bodies(&receive(&consumer, 10).await), ["a"]);
}

#[tokio::test]
async fn what_a_settlement_sends_is_sent_with_it_or_not_at_all() {
    let store = Store::with(&["jobs", "replies"]).await;
    store.send("jobs", ["a"]).await;
    let consumer = store.consumer("jobs").await;
    let claimed = receive(&consumer, 1).await.remove(0);
    let mut settlement = Settlement::new(claimed.receipt.clone(), Verdict::Complete);
    settlement.outgoing = vec![command("replies", "done")];
    let answers = consumer.settle(vec![settlement.clone(), settlement]).await;
    assert!(answers[0].is_ok());
    assert_eq!(answers[1].as_ref().unwrap_err().kind(), ErrorKind::ReceiptLost);
    assert_eq!(bodies(&receive(&store.consumer("replies").await, 5).await), ["done"]);
}

#[tokio::test]
async fn a_stopped_receive_returns_at_once_and_leaves_nothing_claimed() {
    let store = Store::with(&["jobs"]).await;
    store.send("jobs", ["a"]).await;
    let consumer = store.consumer("jobs").await;
    let gate = std::fs::File::open(store.directory.path().join("bus.db.lock")).unwrap();
    gate.lock().unwrap();
    let stop = CancellationToken::new();
    let mut receiving = Box::pin(consumer.receive(1, &stop));
    assert!(futures_util::poll!(&mut receiving).is_pending());
    stop.cancel();
    assert!(receiving.await.unwrap().is_empty());
    gate.unlock().unwrap();
    assert_eq!(store.depth("jobs").await, Depth::new(1, 0, 0, 0));
    assert_eq!(bodies(&receive(&consumer, 1).await), ["a"]);
}

/// M24: the cost of a claim does not depend on what waits behind. Counted in steps of SQLite's machine, not in time.
#[tokio::test]
async fn a_claim_costs_the_same_whatever_waits_behind_it() {
    let store = Store::with(&["other", "jobs", "another"]).await;
    let sql = store.sql();
    fill(&sql, 1, 50_000);
    fill(&sql, 3, 50_000);
    fill(&sql, 2, 100);
    let few = steps_of_a_claim(&sql);
    fill(&sql, 2, 100_000);
    let many = steps_of_a_claim(&sql);
    assert!(many <= few + few / 10, "{few} steps with 100 messages waiting, {many} with 100,000");

    let mut plan = sql.prepare(&format!("EXPLAIN QUERY PLAN {CLAIM}")).unwrap();
    let plan: Vec<String> = plan.query_map((0, 0), |row| row.get(3)).unwrap().map(Result::unwrap).collect();
    assert!(plan.iter().all(|step| !step.starts_with("SCAN") && !step.contains("TEMP B-TREE")), "{plan:?}");
}

const CLAIM: &str = include_str!("../../../bus/src/backend/sqlite/sql/claim_ready.sql");

fn steps_of_a_claim(sql: &Connection) -> i32 {
    let mut claim = sql.prepare(CLAIM).unwrap();
    for _ in 0..3 {
        let rows = claim.query_map((2_i64 << 46, (3_i64 << 46) - 1), |_| Ok(())).unwrap();
        assert_eq!(rows.take(50).count(), 50);
    }
    // A bound LIMIT would have SQLite compile the statement again for each claim.
    assert_eq!(claim.get_status(StatementStatus::RePrepare), 0);
    claim.get_status(StatementStatus::VmStep)
}

fn fill(sql: &Connection, endpoint: i64, count: i64) {
    sql.execute(
        "INSERT INTO bus_message (id, uuid, type, sent_at, body)
         WITH RECURSIVE n (n) AS (SELECT ?2 UNION ALL SELECT n + 1 FROM n WHERE n < ?2 + ?3 - 1)
         SELECT (?1 << 46) | n, x'00112233445566778899aabbccddeeff', 't', 0, zeroblob(100) FROM n",
        (endpoint, 1_000_000 + count, count),
    )
    .unwrap();
}
