//! Who reads, what is swept and what is dropped: in metadata of the queues, beside those of others, and with answers that
//! are lost.

use std::sync::Arc;
use std::time::Duration;

use bus::ErrorKind;
use bus::clock::Timestamp;
use bus::contract::{Attended, DroppedSubscription, Outgoing, Readers, Transport};
use bus::message::Verdict;
use bus_emulators::Fault;
use bus_tests::by_hand::{body, endpoint, envelope, receive_now, settle};
use bus_tests::wait::in_time;

use crate::bench::{Bench, Host, LEASE, LONG, Pattern, bench, claims, deletes, next, puts};

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);
const MAIL: &str = "placed/mail";

/// Queues being deleted.
fn drops() -> Pattern {
    Pattern::any().method("DELETE").and("of a queue", |request| !request.path.contains("/messages"))
}

impl Host {
    async fn prepare(&self, subscription: &str) {
        self.transport.prepare(&[(*endpoint(subscription)).clone()]).await.expect("prepared");
    }

    fn readers(&self) -> Arc<dyn Readers> {
        self.transport.capabilities().readers.expect("it tells who reads")
    }

    async fn attend(&self, retention: Option<Duration>) {
        let attended = Attended::new((*endpoint(MAIL)).clone()).retention(retention);
        self.readers().attend(&[attended]).await.expect("it is heard");
    }

    async fn try_drop(&self) -> bus::Result<DroppedSubscription> {
        self.readers().drop_subscription(&endpoint(MAIL), MINUTE).await
    }

    /// Publishes an event as if it had been sent so long ago.
    async fn publish(&self, text: &str, age: Duration) -> bus::Result<()> {
        let mut envelope = envelope(text);
        let age = i64::try_from(age.as_micros()).expect("a short time");
        envelope.sent_at = Timestamp::from_micros(envelope.sent_at.as_micros() - age);
        self.try_send(Outgoing::new(endpoint(MAIL).target(), envelope)).await.map(drop)
    }

    async fn sweep(&self) -> u64 {
        let mut all = 0;
        loop {
            let swept = self.readers().sweep().await.expect("swept");
            if swept.is_empty() {
                return all;
            }
            all += swept.iter().map(|(_, count)| count).sum::<u64>();
        }
    }
}

fn queue(bench: &Bench) -> String {
    format!("{}-t6-placed-mail", bench.prefix)
}

/// What an administrator keeps beside a queue stays there.
#[tokio::test]
async fn metadata_of_others_stay() {
    let bench = bench!();
    let host = bench.host().await;
    host.prepare(MAIL).await;
    assert_eq!(bench.raw.keep(&queue(&bench), "team", "shop").await.status, 204);
    host.attend(Some(HOUR)).await;
    assert_eq!(bench.raw.kept(&queue(&bench), "team").await, "shop");
    assert_eq!(bench.raw.kept(&queue(&bench), "busretention").await, "3600000000");
    host.attend(None).await;
    assert_eq!(bench.raw.kept(&queue(&bench), "team").await, "shop");
    assert_eq!(bench.raw.kept(&queue(&bench), "busretention").await, "");
    let readings = host.readers().readings().await.unwrap();
    let mail = readings.iter().find(|one| one.endpoint == *endpoint(MAIL)).unwrap();
    assert!(mail.attended.is_some_and(|ago| ago < MINUTE) && mail.retention.is_none(), "{mail:?}");
}

/// The queue is gone and nobody heard of it; asked again, what is left goes, and the answer is that it is done.
#[tokio::test]
async fn a_drop_without_an_answer_is_done_when_it_is_asked_again() {
    for lost in [1, 2] {
        let bench = bench!();
        let proxy = bench.proxy();
        let host = bench.host_at(&proxy).await;
        host.prepare(MAIL).await;
        host.publish("waits", Duration::ZERO).await.unwrap();
        // All tries for the first queue, or for the second.
        proxy.inject_times(lost - 1, drops(), Fault::Pass);
        proxy.inject(drops(), Fault::DropRequest);
        let error = host.try_drop().await.unwrap_err();
        assert!(error.is_transient(), "{error}");
        proxy.clear();
        assert_eq!(host.try_drop().await.unwrap(), DroppedSubscription::Done);
        assert_eq!(host.try_drop().await.unwrap(), DroppedSubscription::NotFound);
        for name in [queue(&bench), format!("{}-dl", queue(&bench))] {
            assert_eq!(bench.raw.peek(&name).await.status, 404, "{name}");
        }
        // An answer that is lost is asked for again at once.
        host.prepare(MAIL).await;
        proxy.inject_times(1, drops(), Fault::DropAnswer);
        assert_eq!(host.try_drop().await.unwrap(), DroppedSubscription::Done);
    }
}

/// An event that is on its way into the queue of a subscription that is dropped meanwhile is published all the same, and
/// brings nothing back: also while Azure is still deleting the queue.
#[tokio::test]
async fn a_publish_does_not_bring_back_what_is_dropped() {
    let bench = bench!();
    let proxy = bench.proxy();
    let (host, other) = (bench.host_at(&proxy).await, bench.host().await);
    host.prepare(MAIL).await;
    let held = proxy.inject_times(1, puts(), Fault::HoldRequest);
    let (sent, ()) = tokio::join!(host.publish("on its way", Duration::ZERO), async {
        in_time("it is on its way", async {
            while held.count() == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        assert_eq!(other.try_drop().await.unwrap(), DroppedSubscription::Done);
        held.release();
    });
    sent.unwrap();
    assert_eq!(bench.raw.peek(&queue(&bench)).await.status, 404, "it is back");

    host.prepare(MAIL).await;
    let deleting = Fault::Refuse { status: 409, code: "QueueBeingDeleted".to_owned(), retry_after: None };
    proxy.inject(puts(), deleting);
    host.publish("too late", Duration::ZERO).await.unwrap();
}

/// A host that speaks between the look at who reads and the deletion is not heard: that is what Azure cannot keep apart. It
/// finds its queue gone, makes it again, and gets what is published then.
#[tokio::test]
async fn a_host_that_was_not_heard_makes_its_queue_again() {
    let bench = bench!();
    let proxy = bench.proxy();
    let (dropping, reading) = (bench.host_at(&proxy).await, bench.host().await);
    reading.prepare(MAIL).await;
    let consumer = reading.consumer_of(MAIL, LONG).await;
    let held = proxy.inject_times(1, drops(), Fault::HoldRequest);
    let (answer, ()) = tokio::join!(dropping.try_drop(), async {
        in_time("it is about to be deleted", async {
            while held.count() == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        reading.attend(None).await;
        held.release();
    });
    assert_eq!(answer.unwrap(), DroppedSubscription::Done);
    let receiving = next(&consumer);
    let publishing = async {
        in_time("it is there again", async {
            while bench.raw.peek(&queue(&bench)).await.status == 404 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        reading.publish("after", Duration::ZERO).await.unwrap();
    };
    let (got, ()) = tokio::join!(receiving, publishing);
    assert_eq!(body(&got), "after");
}

/// A sweep is claims: what a host has claimed is nobody else's, what somebody has tried is given back as it was, what one
/// sweep has taken and lost comes back, and is not taken for tried.
#[tokio::test]
async fn a_sweep_takes_only_what_nobody_has_claimed() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy).await;
    host.prepare(MAIL).await;
    host.attend(Some(HOUR)).await;
    let consumer = host.consumer_of(MAIL, LEASE).await;
    host.publish("crashed", 2 * HOUR).await.unwrap();
    let crashed = next(&consumer).await;
    host.publish("claimed", 2 * HOUR).await.unwrap();
    let long = host.consumer_of(MAIL, LONG).await;
    let claimed = next(&long).await;
    for text in ["old", "older"] {
        host.publish(text, 2 * HOUR).await.unwrap();
    }
    // The crashed one's claim runs out, so that it is shown too.
    in_time("its claim runs out", async {
        while !bench.raw.peek(&queue(&bench)).await.all("DequeueCount").contains(&"1".to_owned()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(host.sweep().await, 2);
    settle(&long, &claimed.receipt, Verdict::Complete).await.unwrap();
    let left = receive_now(&long, 10).await;
    assert_eq!(left.iter().map(body).collect::<Vec<_>>(), ["crashed"]);
    assert_eq!((left[0].delivery_count, left[0].crashes), (2, 1), "the sweep's claim is none");
    assert_eq!(body(&crashed), "crashed");
}

/// Sweeping fails in the middle: nothing is lost but what was to go, and what was claimed for it goes later.
#[tokio::test]
async fn a_sweep_that_fails_is_gone_on_with() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy).await;
    host.prepare(MAIL).await;
    host.attend(Some(HOUR)).await;
    for text in ["old", "older"] {
        host.publish(text, 2 * HOUR).await.unwrap();
    }
    host.publish("young", Duration::ZERO).await.unwrap();
    proxy.inject_times(1, claims(), Fault::DropRequest);
    let failed = host.readers().sweep().await.unwrap_err();
    assert!(failed.is_transient(), "{failed}");
    assert_ne!(failed.kind(), ErrorKind::ReceiptLost);
    // An answer to a deletion that is lost is asked for again: it is gone.
    let lost = proxy.inject_times(1, deletes(), Fault::DropAnswer);
    assert_eq!(host.sweep().await, 2);
    assert_eq!(lost.count(), 1);
    let consumer = host.consumer_of(MAIL, LONG).await;
    assert_eq!(body(&next(&consumer).await), "young");
}

/// A host that stops in the middle of a sweep leaves no claim behind, which would count as a crash of somebody's.
#[tokio::test]
async fn a_sweep_that_nobody_waits_for_any_more_ends_its_claims() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy).await;
    host.prepare(MAIL).await;
    host.attend(Some(HOUR)).await;
    for (text, age) in [("old", 2 * HOUR), ("young", Duration::ZERO), ("older", 2 * HOUR)] {
        host.publish(text, age).await.unwrap();
    }
    let held = proxy.inject_times(1, claims(), Fault::HoldAnswer);
    let readers = host.readers();
    let sweeping = tokio::spawn(async move { readers.sweep().await });
    in_time("the sweep has claimed", held.struck(1)).await;
    sweeping.abort();
    assert!(sweeping.await.unwrap_err().is_cancelled());
    held.release();
    let consumer = host.consumer_of(MAIL, LONG).await;
    let left = next(&consumer).await;
    assert_eq!((body(&left), left.delivery_count, left.crashes), ("young", 1, 0));
    let left = receive_now(&consumer, 10).await;
    assert!(left.is_empty(), "{:?}", left.iter().map(body).collect::<Vec<_>>());
}
