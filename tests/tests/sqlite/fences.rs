//! Fences: who may touch a singleton's endpoint.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::ErrorKind;
use bus::contract::{
    Consumer, ConsumerSpec, Depth, Fence, FenceClaim, FenceGuard, LockId, Raised, SqlExecutor,
};
use bus::message::Verdict;
use tokio_util::sync::CancellationToken;

use crate::store::{
    LEASE, PATIENCE, Store, another_clock, bodies, command, endpoint, receive, receive_now, settle,
};

const LOCK_LEASE: Duration = Duration::from_secs(20);

async fn term(store: &Store, fence: u64) -> Arc<dyn Consumer> {
    let spec = ConsumerSpec::new(endpoint("jobs"), LEASE).fenced(Fence::new(fence), LOCK_LEASE);
    store.consumer_with(spec).await
}

fn guarded(body: &str, fence: u64) -> bus::contract::Outgoing {
    let guard = FenceGuard { endpoint: endpoint("jobs"), fence: Fence::new(fence) };
    command("results", body).guarded(Some(guard))
}

#[tokio::test]
async fn a_fence_only_grows_and_can_be_raised_again_after_a_lost_answer() {
    let store = Store::new().await;
    assert_eq!(store.raise("jobs", 5, LOCK_LEASE).await, Raised::Raised);
    assert_eq!(store.raise("jobs", 5, LOCK_LEASE).await, Raised::Raised);
    assert_eq!(store.raise("jobs", 4, LOCK_LEASE).await, Raised::Outdated { in_force: Fence::new(5) });
    let fencing = store.transport.capabilities().fencing.unwrap();
    let row = fencing.row(&endpoint("jobs")).await.unwrap().unwrap();
    assert_eq!((row.fence, row.lock.as_str()), (Fence::new(5), "sqlite:/here.db#queue/it"));
    assert!(row.bound_for > LOCK_LEASE / 2);
    assert_eq!(fencing.row(&endpoint("unknown")).await.unwrap(), None);
}

#[tokio::test]
async fn another_lock_gets_the_row_when_it_has_run_out_by_whichever_clock() {
    let store = Store::new().await;
    store.raise("jobs", 5, LOCK_LEASE).await;
    let fencing = store.transport.capabilities().fencing.unwrap();
    let other = |fence| {
        let lock = LockId::from("queue/renamed");
        FenceClaim::new(endpoint("jobs"), "sqlite:/here.db", &lock, Fence::new(fence), LOCK_LEASE)
    };
    let Raised::OtherLock { lock, free_in } = fencing.raise(other(6)).await.unwrap() else {
        panic!("the row is bound")
    };
    assert!(lock.ends_with("queue/it") && free_in <= LOCK_LEASE);
    let sql = store.sql();
    let seen = 1 << 50;
    let theirs = another_clock(&sql, Some(seen));
    sql.execute("UPDATE bus_fence SET boot = ?1, until = ?2", (theirs, seen + 1_000_000_000)).unwrap();
    let looked = Instant::now();
    while let Raised::OtherLock { free_in, .. } = fencing.raise(other(5)).await.unwrap() {
        assert!(free_in <= Duration::from_secs(1));
        tokio::time::sleep(free_in).await;
    }
    assert!(looked.elapsed() >= Duration::from_secs(1), "after {:?}", looked.elapsed());
    assert_eq!(fencing.raise(other(5)).await.unwrap(), Raised::Outdated { in_force: Fence::new(5) });
    assert_eq!(fencing.raise(other(6)).await.unwrap(), Raised::Raised);
}

/// Everything that a former holder can still say is refused, and changes nothing.
#[tokio::test]
async fn a_former_term_can_do_nothing_any_more() {
    let store = Store::with(&["jobs", "results"]).await;
    store.raise("jobs", 1, LOCK_LEASE).await;
    store.send("jobs", ["a", "b"]).await;
    let former = term(&store, 1).await;
    let claimed = receive(&former, 1).await.remove(0);
    store.raise("jobs", 2, LOCK_LEASE).await;

    let kind = |answer: bus::Result<()>| answer.unwrap_err().kind();
    let mut receipts = [claimed.receipt.clone()];
    assert_eq!(kind(settle(&former, &claimed.receipt, Verdict::Complete).await), ErrorKind::TermLost);
    assert_eq!(kind(former.extend(&mut receipts, LEASE).await.remove(0)), ErrorKind::TermLost);
    assert_eq!(kind(former.record_alone(&claimed.receipt).await), ErrorKind::TermLost);
    let stop = CancellationToken::new();
    assert_eq!(former.receive(1, &stop).await.unwrap_err().kind(), ErrorKind::TermLost);
    let batch = vec![guarded("former", 1), guarded("now", 2), command("results", "anyone")];
    let answers = store.transport.sender().send(batch).await;
    assert_eq!(answers[0].as_ref().unwrap_err().kind(), ErrorKind::TermLost);
    assert!(answers[1].is_ok() && answers[2].is_ok());
    assert_eq!(bodies(&receive(&store.consumer("results").await, 9).await), ["now", "anyone"]);
    assert_eq!(store.depth("jobs").await, Depth::new(1, 1, 0, 0));
    let late = ConsumerSpec::new(endpoint("jobs"), LEASE).fenced(Fence::new(1), LOCK_LEASE);
    assert_eq!(store.transport.consumer(late).await.err().unwrap().kind(), ErrorKind::TermLost);
}

#[tokio::test]
async fn a_new_term_takes_over_at_once_what_the_former_one_left_in_flight() {
    let store = Store::with(&["jobs"]).await;
    store.raise("jobs", 1, LOCK_LEASE).await;
    store.send("jobs", ["a", "b"]).await;
    receive(&term(&store, 1).await, 1).await;
    store.raise("jobs", 2, LOCK_LEASE).await;
    let received = receive(&term(&store, 2).await, 5).await;
    assert_eq!(bodies(&received), ["a", "b"]);
    assert_eq!((received[0].crashes, received[1].crashes), (1, 0));
}

#[tokio::test]
async fn a_waiting_former_holder_learns_that_its_term_is_over() {
    let store = Store::with(&["jobs"]).await;
    store.raise("jobs", 1, LOCK_LEASE).await;
    let former = term(&store, 1).await;
    assert!(receive_now(&former, 1).await.is_empty());
    let stop = CancellationToken::new();
    let waiting = former.receive(1, &stop);
    let raising = async {
        store.raise("jobs", 2, LOCK_LEASE).await;
        std::future::pending::<()>().await
    };
    let answer = tokio::select! {
        answer = tokio::time::timeout(PATIENCE, waiting) => answer.unwrap(),
        () = raising => unreachable!(),
    };
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::TermLost);
}

/// A singleton that has nothing to do still keeps its row from being taken under another lock.
#[tokio::test]
async fn a_waiting_singleton_keeps_its_row_bound() {
    let store = Store::with(&["jobs"]).await;
    let brief = Duration::from_secs(2);
    store.raise("jobs", 1, brief).await;
    let spec = ConsumerSpec::new(endpoint("jobs"), LEASE).fenced(Fence::new(1), brief);
    let consumer = store.consumer_with(spec).await;
    let fencing = store.transport.capabilities().fencing.unwrap();
    let first = until(&store);
    let stop = CancellationToken::new();
    let kept = async {
        while until(&store) < first + i64::try_from(brief.as_nanos()).unwrap() {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let row = fencing.row(&endpoint("jobs")).await.unwrap().unwrap();
            assert!(!row.bound_for.is_zero());
        }
        stop.cancel();
    };
    let both = async { tokio::join!(consumer.receive(1, &stop), kept).0 };
    assert!(tokio::time::timeout(PATIENCE, both).await.unwrap().unwrap().is_empty());
}

fn until(store: &Store) -> i64 {
    store.sql().query_row("SELECT until FROM bus_fence", [], |row| row.get(0)).unwrap()
}

/// The user's own writes, in the store's own file, committed only by the holder.
#[tokio::test]
async fn a_users_transaction_is_checked_and_keeps_the_fence_where_it_is() {
    let store = Store::with(&["jobs"]).await;
    store.raise("jobs", 1, LOCK_LEASE).await;
    let fencing = store.transport.capabilities().fencing.unwrap();
    let guard = |fence| FenceGuard { endpoint: endpoint("jobs"), fence: Fence::new(fence) };
    let mut own = store.sql();
    own.execute_batch("CREATE TABLE mine (id INTEGER PRIMARY KEY); BEGIN IMMEDIATE").unwrap();
    SqlExecutor::execute(&mut own, "INSERT INTO mine VALUES (?1)", &[bus::contract::SqlValue::Integer(7)])
        .await
        .unwrap();
    fencing.check_in(&mut own, &guard(1)).await.unwrap();
    // Nobody raises the fence before the user's transaction has ended.
    let mut raising = Box::pin(store.raise("jobs", 2, LOCK_LEASE));
    assert!(futures_util::poll!(&mut raising).is_pending());
    own.execute_batch("COMMIT").unwrap();
    assert_eq!(raising.await, Raised::Raised);

    own.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = fencing.check_in(&mut own, &guard(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TermLost);
    own.execute_batch("ROLLBACK").unwrap();
}
