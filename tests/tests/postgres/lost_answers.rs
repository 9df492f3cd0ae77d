//! Answers that are lost on their way: what was asked is done, and nobody learns of it before asking again. Scenarios M4,
//! M11, S18, S23.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::clock::Clock;
use bus::contract::{
    Consumer, ConsumerSpec, Ended, Fence, FenceClaim, LockId, LockManager, OpenOptions, Owner, Raised,
    Renewal, Scheme, Settlement, StoreUrl, Transport,
};
use bus::message::{Delivery, Receipt, Verdict};
use bus::{Endpoint, Error, ErrorKind, Result};
use bus_tests::by_hand::{bodies, command, endpoint, settle};
use bus_tests::postgres::{Database, available};
use bus_tests::tcp_proxy::{Fault, Proxy};
use bus_tests::wait::PATIENCE;
use tokio_util::sync::CancellationToken;

use crate::open;

/// A claim that does not run out.
const LONG: Duration = Duration::from_secs(60);
/// One that does.
const BRIEF: Duration = Duration::from_millis(2_500);
const LOCK_LEASE: Duration = Duration::from_secs(60);

/// A host that sees the store through a proxy, and another one that does not.
struct Hosts {
    database: Database,
    proxy: Proxy,
    cut_off: Arc<dyn Transport>,
    other: Arc<dyn Transport>,
    queue: Arc<Endpoint>,
}

impl Hosts {
    async fn start() -> Option<Hosts> {
        if !available() {
            return None;
        }
        let database = Database::create().await;
        let proxy = Proxy::start(database.port()).await;
        let cut_off = open(&through(&proxy, &database)).await;
        let other = open(&database.url()).await;
        let queue = endpoint("lost");
        cut_off.prepare(std::slice::from_ref(&*queue)).await.unwrap();
        Some(Hosts { database, proxy, cut_off, other, queue })
    }

    async fn send(&self, body: &str) {
        self.other.sender().send(vec![command("lost", body)]).await.remove(0).unwrap();
    }

    /// A consumer, and what it has claimed of what was sent just now.
    async fn claim(&self, lease: Duration) -> (Arc<dyn Consumer>, Delivery) {
        self.send("1").await;
        let consumer =
            self.cut_off.consumer(ConsumerSpec::new(Arc::clone(&self.queue), lease)).await.unwrap();
        let got = consumer.receive(1, &CancellationToken::new()).await.unwrap().remove(0);
        (consumer, got)
    }

    async fn count(&self, what: &str) -> i64 {
        self.database
            .client()
            .await
            .query_one(&format!("SELECT count(*) FROM {what}"), &[])
            .await
            .unwrap()
            .get(0)
    }

    async fn close(self) {
        self.cut_off.close().await;
        self.other.close().await;
    }
}

fn through(proxy: &Proxy, database: &Database) -> String {
    format!("postgres://postgres@127.0.0.1:{}/{}?timeout=1", proxy.port(), database.name())
}

/// Asks until there is an answer.
async fn answered(what: &str, mut ask: impl AsyncFnMut() -> Result<()>) -> Result<()> {
    let began = Instant::now();
    loop {
        match ask().await {
            Err(e) if e.is_transient() => assert!(began.elapsed() < PATIENCE, "{what}: {e:?}"),
            answer => return answer,
        }
    }
}

async fn settle_again(consumer: &Arc<dyn Consumer>, receipt: &Receipt, verdict: &Verdict) -> Result<()> {
    answered("settling again", async || settle(consumer, receipt, verdict.clone()).await).await
}

/// How long hints take that are told after something was done, on the same connections.
const HINTS: Duration = Duration::from_millis(50);

/// Has what settles prepared on the connection of now, so that only the answer is missing afterwards: mostly, since
/// something else may be asked on that one just then.
async fn prepare_settling(consumer: &Arc<dyn Consumer>) {
    let nobodys = settle(consumer, &Receipt::new(1, 1), Verdict::Release).await.unwrap_err();
    assert_eq!(nobodys.kind(), ErrorKind::ReceiptLost);
    tokio::time::sleep(HINTS).await;
}

fn failed() -> Error {
    Error::new(ErrorKind::Handler, "it failed")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_whose_answer_was_lost_is_told_as_done() {
    let Some(hosts) = Hosts::start().await else { return };
    for (verdict, done) in [
        (Verdict::Complete, "(SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM bus.message)) AS done"),
        (Verdict::Retry { after: Some(LONG), error: failed() }, "bus.delayed"),
        (Verdict::DeadLetter { reason: "given up".into(), error: None }, "bus.dead"),
        (Verdict::Release, "bus.message WHERE token IS NULL"),
    ] {
        let began = Instant::now();
        loop {
            let (consumer, got) = hosts.claim(LONG).await;
            prepare_settling(&consumer).await;
            hosts.proxy.set(Fault::MuteServer);
            let lost = settle(&consumer, &got.receipt, verdict.clone()).await.unwrap_err();
            assert!(lost.is_transient(), "{verdict:?}: {lost:?}");
            let was_done = hosts.count(done).await == 1;
            hosts.proxy.set(Fault::None);
            let again = settle_again(&consumer, &got.receipt, &verdict).await;
            again.unwrap_or_else(|e| panic!("{verdict:?}, done: {was_done}: {e:?}"));
            // Told once; from then on the claim is over as any other is.
            let third = settle(&consumer, &got.receipt, verdict.clone()).await.unwrap_err();
            assert_eq!(third.kind(), ErrorKind::ReceiptLost, "{verdict:?}");
            let clean = "TRUNCATE bus.message, bus.delayed, bus.dead";
            hosts.database.client().await.batch_execute(clean).await.unwrap();
            if was_done {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "{verdict:?}: it is never the answer alone that is lost");
        }
    }
    hosts.close().await;
}

/// What is sent with a settlement was sent, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_with_a_settlement_whose_answer_was_lost_goes_once() {
    let Some(hosts) = Hosts::start().await else { return };
    let began = Instant::now();
    let mut was_done = false;
    while !was_done {
        assert!(began.elapsed() < PATIENCE, "it is never the answer alone that is lost");
        let (consumer, got) = hosts.claim(LONG).await;
        hosts.send("2").await;
        let beside = consumer.receive(1, &CancellationToken::new()).await.unwrap().remove(0);
        let settlements = || {
            let mut with_reply = Settlement::new(got.receipt.clone(), Verdict::Complete);
            with_reply.outgoing = vec![command("replies", "3")];
            vec![with_reply, Settlement::new(beside.receipt.clone(), Verdict::Complete)]
        };
        prepare_settling(&consumer).await;
        hosts.proxy.set(Fault::MuteServer);
        for answer in consumer.settle(settlements()).await {
            assert!(answer.unwrap_err().is_transient());
        }
        was_done = hosts.count("bus.message").await == 1;
        hosts.proxy.set(Fault::None);
        answered("settling again", async || {
            consumer.settle(settlements()).await.into_iter().collect::<Result<Vec<_>>>().map(drop)
        })
        .await
        .unwrap_or_else(|e| panic!("done: {was_done}: {e:?}"));
        assert_eq!(hosts.count("bus.message").await, 1, "the reply, and nothing else");
        hosts.database.client().await.batch_execute("TRUNCATE bus.message").await.unwrap();
    }
    hosts.close().await;
}

/// M4: a settlement that never arrived is not taken for done because somebody else has ended the message since.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_that_came_too_late_is_told_as_lost() {
    let Some(hosts) = Hosts::start().await else { return };
    let (consumer, got) = hosts.claim(BRIEF).await;
    hosts.proxy.set(Fault::BlackHole);
    assert!(settle(&consumer, &got.receipt, Verdict::Complete).await.unwrap_err().is_transient());
    let there = hosts.other.consumer(ConsumerSpec::new(Arc::clone(&hosts.queue), LONG)).await.unwrap();
    let taken = there.receive(1, &CancellationToken::new()).await.unwrap();
    assert_eq!(taken[0].crashes, 1, "its claim has run out");
    settle(&there, &taken[0].receipt, Verdict::Complete).await.unwrap();
    hosts.proxy.set(Fault::None);
    let late = settle_again(&consumer, &got.receipt, &Verdict::Complete).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::ReceiptLost);
    hosts.close().await;
}

/// The same while the claim has not run out by any clock but the server's, which was set ahead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_clock_that_was_set_gave_to_another_is_told_as_lost() {
    let Some(hosts) = Hosts::start().await else { return };
    let (consumer, got) = hosts.claim(LONG).await;
    hosts.proxy.set(Fault::BlackHole);
    assert!(settle(&consumer, &got.receipt, Verdict::Complete).await.unwrap_err().is_transient());
    let ahead = "CREATE OR REPLACE FUNCTION bus.clock_us() RETURNS bigint LANGUAGE sql VOLATILE
                 AS 'SELECT (extract(epoch FROM clock_timestamp() + interval ''1 hour'') * 1000000)::bigint'";
    hosts.database.client().await.batch_execute(ahead).await.unwrap();
    let there = hosts.other.consumer(ConsumerSpec::new(Arc::clone(&hosts.queue), LONG)).await.unwrap();
    let taken = there.receive(1, &CancellationToken::new()).await.unwrap();
    settle(&there, &taken[0].receipt, Verdict::Complete).await.unwrap();
    hosts.proxy.set(Fault::None);
    let late = settle_again(&consumer, &got.receipt, &Verdict::Complete).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::ReceiptLost);
    hosts.close().await;
}

/// A new term takes early what an older one had in flight, whatever its lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_new_term_has_taken_is_told_as_the_terms_loss() {
    let Some(hosts) = Hosts::start().await else { return };
    let fencing = hosts.other.capabilities().fencing.unwrap();
    let raise = async |fence| {
        let id = LockId::from("queue/lost");
        let claim = FenceClaim::new(Arc::clone(&hosts.queue), "test:", &id, Fence::new(fence), LOCK_LEASE);
        assert_eq!(fencing.raise(claim).await.unwrap(), Raised::Raised);
    };
    let spec =
        |fence| ConsumerSpec::new(Arc::clone(&hosts.queue), LONG).fenced(Fence::new(fence), LOCK_LEASE);
    raise(1).await;
    hosts.send("1").await;
    let stop = CancellationToken::new();
    let consumer = hosts.cut_off.consumer(spec(1)).await.unwrap();
    let got = consumer.receive(1, &stop).await.unwrap();
    hosts.proxy.set(Fault::BlackHole);
    assert!(settle(&consumer, &got[0].receipt, Verdict::Complete).await.unwrap_err().is_transient());
    raise(2).await;
    let there = hosts.other.consumer(spec(2)).await.unwrap();
    let taken = there.receive(1, &stop).await.unwrap();
    settle(&there, &taken[0].receipt, Verdict::Complete).await.unwrap();
    hosts.proxy.set(Fault::None);
    let late = settle_again(&consumer, &got[0].receipt, &Verdict::Complete).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TermLost);
    hosts.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_was_lost_is_had_again_as_if_nothing_had_happened() {
    let Some(hosts) = Hosts::start().await else { return };
    let (consumer, got) = hosts.claim(LONG).await;
    settle(&consumer, &got.receipt, Verdict::Complete).await.unwrap();
    hosts.send("again").await;
    let stop = CancellationToken::new();
    hosts.proxy.set(Fault::MuteServer);
    let lost = consumer.receive(1, &stop).await.unwrap_err();
    assert!(lost.is_transient(), "{lost:?}");
    assert_eq!(
        hosts.count("bus.message WHERE token IS NOT NULL").await,
        1,
        "it was not claimed: nothing was lost"
    );
    hosts.proxy.set(Fault::None);
    let began = Instant::now();
    let got = loop {
        match consumer.receive(1, &stop).await {
            Ok(got) => break got,
            Err(e) => assert!(e.is_transient() && began.elapsed() < PATIENCE, "{e:?}"),
        }
    };
    assert_eq!(bodies(&got), ["again"]);
    assert_eq!((got[0].delivery_count, got[0].crashes, got[0].failures), (1, 0, 0));
    assert!(began.elapsed() < LONG / 2, "it came when its lease had run out");
    hosts.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_whose_answer_was_lost_is_unknown_and_never_repeated() {
    let Some(hosts) = Hosts::start().await else { return };
    hosts.cut_off.sender().send(vec![command("lost", "before")]).await.remove(0).unwrap();
    hosts.proxy.set(Fault::MuteServer);
    let lost = hosts.cut_off.sender().send(vec![command("lost", "lost")]).await.remove(0).unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::OutcomeUnknown, "{lost:?}");
    hosts.proxy.set(Fault::None);
    answered("sending", async || {
        hosts.cut_off.sender().send(vec![command("lost", "after")]).await.remove(0).map(drop)
    })
    .await
    .unwrap();
    let sent = "bus.message WHERE body = 'lost'";
    assert_eq!(hosts.count(sent).await, 1, "what was unknown was sent, and once");
    hosts.close().await;
}

async fn open_locks(url: &str) -> Arc<dyn LockManager> {
    let url = StoreUrl::parse(url).unwrap();
    let open = Scheme::find(url.scheme()).unwrap().locks.unwrap();
    open(&url, &OpenOptions::new(Clock::system())).await.unwrap()
}

/// S18, S23: taken, renewed and released without an answer. Whoever asks again has the same term, and whoever comes after a
/// release that nobody was told of has a higher fence at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_change_nothing_about_a_lock() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let proxy = Proxy::start(database.port()).await;
    let holder = open_locks(&through(&proxy, &database)).await;
    let other = open_locks(&database.url()).await;
    let id = LockId::from("queue/lost");
    let owner = Owner::fresh();
    let fence_there = async || other.inspect(&id).await.unwrap().map(|record| record.fence);
    // It is looked at, found to be nobody's, and taken as soon as this one does not stand in the way any more.
    let mut client = database.client().await;
    let in_the_way = client.transaction().await.unwrap();
    let insert = "INSERT INTO bus.lock (id, owner, fence, lease, renewed_at) VALUES ('queue/lost', gen_random_uuid(), 1, 1, 1)";
    in_the_way.execute(insert, &[]).await.unwrap();
    let swallow = async {
        let watch = database.client().await;
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
        let began = Instant::now();
        while watch.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            assert!(began.elapsed() < PATIENCE, "nobody takes it");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        proxy.set(Fault::MuteServer);
        in_the_way.rollback().await.unwrap();
    };
    let (taken, ()) = tokio::join!(holder.try_lock(&id, LOCK_LEASE, owner), swallow);
    assert!(taken.is_err(), "it was told before it was confirmed");
    assert!(fence_there().await.is_some(), "it was not taken: it was not the answer that was lost");
    proxy.set(Fault::None);
    let mut lease = None;
    answered("taking", async || {
        lease = holder.try_lock(&id, LOCK_LEASE, owner).await?;
        Ok(())
    })
    .await
    .unwrap();
    let lease = lease.expect("it is theirs already");
    assert_eq!(Some(lease.fence()), fence_there().await, "asking again began another term");
    assert!(other.try_lock(&id, LOCK_LEASE, Owner::fresh()).await.unwrap().is_none());

    proxy.set(Fault::MuteServer);
    assert!(lease.renew().await.unwrap_err().is_transient());
    proxy.set(Fault::None);
    answered("renewing", async || {
        assert_eq!(lease.renew().await?, Renewal::Held);
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(Some(lease.fence()), fence_there().await);

    let ended = async || other.inspect(&id).await.unwrap().and_then(|record| record.ended);
    let began = Instant::now();
    while ended().await.is_none() {
        assert!(began.elapsed() < PATIENCE * 2, "it is never the answer alone that is lost");
        // What releases is prepared on the connection of now: mostly, as above.
        let warm = holder.try_lock(&LockId::from("queue/warm"), LOCK_LEASE, Owner::fresh()).await.unwrap();
        warm.expect("nobody has it").release(Ended::Clean).await.unwrap();
        tokio::time::sleep(HINTS).await;
        proxy.set(Fault::MuteServer);
        assert!(lease.release(Ended::Clean).await.unwrap_err().is_transient());
        proxy.set(Fault::None);
    }
    // Nobody has told of it either.
    let next = other.try_lock(&id, LOCK_LEASE, Owner::fresh()).await.unwrap().expect("it was released");
    assert!(next.fence() > lease.fence());
    // Asked again, it releases nobody else's.
    answered("releasing", async || lease.release(Ended::Clean).await).await.unwrap();
    assert_eq!(next.renew().await.unwrap(), Renewal::Held);
    holder.close().await;
    other.close().await;
}
