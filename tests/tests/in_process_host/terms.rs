//! Singletons whose term is ended by the message store: another fence is in force there, whatever the locks say.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use bus::contract::{Fence, FenceClaim, Fencing, LockId, OpenOptions, Raised, Scheme, StoreUrl};
use bus::message::{Delivery, Verdict};
use bus::pipeline::Next;
use bus::{Endpoint, ErrorKind, Term};
use bus_tests::wait::in_time;

use super::Place;
use super::handlers::{Dig, Relaxed};

/// The fences of a store, as another process would reach them.
async fn fencing(place: &Place) -> Arc<dyn Fencing> {
    let url = StoreUrl::parse(&place.url).expect("a URL");
    let open = Scheme::find(url.scheme()).expect("a scheme").transport.expect("it carries messages");
    let transport = open(&url, &OpenOptions::default()).await.expect("it opens");
    transport.capabilities().fencing.expect("it fences")
}

/// Puts a fence in force that is above the present one, as a later term would. Answers it.
async fn outrun(fencing: &dyn Fencing, endpoint: &str) -> u64 {
    let endpoint = Endpoint::parse(endpoint).expect("an endpoint");
    let row = in_time("the term has begun", async {
        loop {
            if let Some(row) = fencing.row(&endpoint).await.expect("answered") {
                return row;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let fence = Fence::new(row.fence.get() + 1);
    let (authority, id) = row.lock.split_once('#').expect("authority and id");
    let claim = FenceClaim::new(endpoint.into(), authority, &LockId::from(id), fence, row.bound_for);
    assert_eq!(fencing.raise(claim).await.expect("answered"), Raised::Raised);
    fence.get()
}

/// S13, S17: a holder that the message store refuses, though its lock is in order, gives the lock back and competes
/// anew. It does not keep everybody out and wait for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_holder_that_was_fenced_off_gives_up_and_competes_anew() {
    for place in Place::each() {
        let mut host = place.host(&["relaxed"]).start().await;
        host.handle.bus().send(Relaxed("before".into())).await.expect("sent");
        host.seen().await;
        let fence = outrun(&*fencing(&place).await, "relaxed").await;
        host.handle.bus().send(Relaxed("after".into())).await.expect("sent");
        // The first verdict may not have been with the store yet: then that message comes again.
        let after = loop {
            let seen = host.seen().await;
            if seen.text != "before" {
                break seen;
            }
        };
        assert_eq!(after.text, "after");
        assert!(after.fence > Some(fence), "{after:?} under a fence above {fence}");
        host.stop().await;
    }
}

/// A middleware may take its time; when the term is over meanwhile, the handler is not begun.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_is_not_begun_when_its_term_ended_in_a_middleware() {
    for place in Place::each() {
        let first = Arc::new(AtomicBool::new(true));
        let waits = move |delivery: Delivery, next: Next| {
            let first = first.swap(false, SeqCst);
            async move {
                if first && let Some(term) = delivery.scope.get::<Term>() {
                    term.cancelled().await;
                }
                let verdict = next.run(delivery).await;
                assert_eq!(first, matches!(verdict, Verdict::Release), "{verdict:?}");
                verdict
            }
        };
        let mut host = place.host(&["relaxed"]).with(|host| host.middleware(waits)).start().await;
        host.handle.bus().send(Relaxed("once".into())).await.expect("sent");
        host.until("the message is claimed", "relaxed", |depth| depth.in_flight == 1).await;
        let fence = outrun(&*fencing(&place).await, "relaxed").await;
        let seen = host.seen().await;
        assert!(seen.fence > Some(fence), "{seen:?} under a fence above {fence}");
        host.until_drained("relaxed").await;
        assert_eq!(host.seen_so_far().len(), 0, "it ran once");
        host.stop().await;
    }
}

/// S6: blocking work that outlives its term, because nobody can stop it, can send nothing from then on, nor take back
/// what it has sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_work_sends_nothing_when_its_term_is_over() {
    for place in Place::each() {
        let mut host = place.host(&["dig"]).start().await;
        host.handle.bus().send(Dig("until refused".into())).await.expect("sent");
        let begun = host.seen().await;
        assert_eq!(begun.text, "begun");
        outrun(&*fencing(&place).await, "dig").await;
        // The run may be dropped before it says how its work ended; then its message comes again.
        let next = host.seen().await;
        match next.text.as_str() {
            "TermLost, Err(TermLost)" => assert_eq!(next.fence, begun.fence),
            _ => assert!(next.count > 1 && next.fence > begun.fence, "its work had not ended: {next:?}"),
        }
        host.until_drained("dig").await;
        host.stop().await;
    }
}

/// §5.8: a transaction of the user's own is committed while the term is in force in the store, and only then; whatever
/// keeps it from being committed leaves none open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_of_ones_own_is_committed_under_the_term_or_not_at_all() {
    let place = Place::sqlite();
    let (tell, mut terms) = tokio::sync::mpsc::unbounded_channel();
    let shows_term = move |delivery: Delivery, next: Next| {
        let _ = tell.send(delivery.scope.get::<Term>());
        next.run(delivery)
    };
    let mut host = place.host(&["relaxed"]).with(|host| host.middleware(shows_term)).start().await;
    host.handle.bus().send(Relaxed("once".into())).await.expect("sent");
    host.seen().await;
    let term = terms.recv().await.flatten().expect("a singleton has a term");

    let file = place.url.strip_prefix("sqlite://").expect("a file");
    let mut own = rusqlite::Connection::open(file).expect("opened");
    own.busy_timeout(std::time::Duration::from_secs(10)).expect("set");
    own.pragma_update(None, "foreign_keys", true).expect("set");
    own.execute_batch(
        "CREATE TABLE report (id INTEGER PRIMARY KEY);
         CREATE TABLE line (report INTEGER REFERENCES report (id) DEFERRABLE INITIALLY DEFERRED)",
    )
    .expect("made");
    let count = |own: &rusqlite::Connection| {
        own.query_row("SELECT count(*) FROM report", [], |row| row.get::<_, i64>(0)).expect("counted")
    };

    own.execute_batch("BEGIN IMMEDIATE; INSERT INTO report VALUES (1)").expect("written");
    term.commit(&mut own).await.expect("the term is in force");
    assert_eq!(count(&own), 1);

    own.execute_batch("BEGIN IMMEDIATE; INSERT INTO report VALUES (2); INSERT INTO line VALUES (99)")
        .expect("written");
    term.commit(&mut own).await.expect_err("there is no report 99");
    assert!(own.is_autocommit(), "the transaction is not left open");
    assert_eq!(count(&own), 1);

    outrun(&*fencing(&place).await, "relaxed").await;
    own.execute_batch("BEGIN IMMEDIATE; INSERT INTO report VALUES (3)").expect("written");
    let refused = term.commit(&mut own).await.expect_err("another fence is in force");
    assert_eq!(refused.kind(), ErrorKind::TermLost);
    assert!(own.is_autocommit(), "the transaction is not left open");
    assert_eq!(count(&own), 1);
    host.stop().await;
}
