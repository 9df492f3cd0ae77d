//! Who reads, what is swept and what is dropped, while others publish, receive, attend and prepare at the same time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::clock::Timestamp;
use bus::contract::{
    Attended, Consumer, ConsumerSpec, Depth, DroppedSubscription, Due, Fence, FenceClaim, LockId, Outgoing,
    Raised, Readers, Transport,
};
use bus::message::Verdict;
use bus::{Endpoint, ErrorKind};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::store::{
    LEASE, PATIENCE, PREFIX, Store, bodies, body, endpoint, envelope, open, receive, receive_now, settle,
};

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

fn readers(transport: &Arc<dyn Transport>) -> Arc<dyn Readers> {
    transport.capabilities().readers.unwrap()
}

/// An event of a subscription's topic, as if it had been sent so long ago.
fn event(subscription: &str, body: &str, age: Duration) -> Outgoing {
    let mut envelope = envelope(body);
    let age = i64::try_from(age.as_micros()).unwrap();
    envelope.sent_at = Timestamp::from_micros(envelope.sent_at.as_micros() - age);
    Outgoing::new(endpoint(subscription).target(), envelope)
}

async fn publish(transport: &Arc<dyn Transport>, event: Outgoing) {
    transport.sender().send(vec![event]).await.remove(0).unwrap();
}

async fn attend(transport: &Arc<dyn Transport>, subscription: &str, retention: Option<Duration>) {
    let attended = Attended::new((*endpoint(subscription)).clone()).retention(retention);
    readers(transport).attend(&[attended]).await.unwrap();
}

async fn drop_it(
    transport: &Arc<dyn Transport>,
    subscription: &str,
    unattended: Duration,
) -> DroppedSubscription {
    readers(transport).drop_subscription(&endpoint(subscription), unattended).await.unwrap()
}

/// Sweeps until nothing is left to be swept; answers how many have gone.
async fn sweep(transport: &Arc<dyn Transport>) -> u64 {
    let mut all = 0;
    loop {
        let swept = readers(transport).sweep().await.unwrap();
        if swept.is_empty() {
            return all;
        }
        all += swept.iter().map(|(_, count)| count).sum::<u64>();
    }
}

async fn listed(store: &Store) -> Vec<String> {
    store.inspect().endpoints().await.unwrap().iter().map(ToString::to_string).collect()
}

/// A host that attends and somebody who drops, in the same moment: either the host was heard, and everything stays, or the
/// subscription has gone, and nothing remembers that it was read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_attends_and_who_drops_exclude_each_other() {
    let Some(store) = Store::with(&[]).await else { return };
    let other = open(&store.server.url(PREFIX)).await.unwrap();
    let mut seen = BTreeSet::new();
    for round in 0..60 {
        let name = format!("placed/mail-{round}");
        store.transport.prepare(&[(*endpoint(&name)).clone()]).await.unwrap();
        publish(&store.transport, event(&name, "kept", Duration::ZERO)).await;
        let attending = async {
            // Now before the drop, now in the middle of it, now after it.
            tokio::time::sleep(Duration::from_micros(round * 100)).await;
            attend(&other, &name, None).await;
        };
        let (answer, ()) = tokio::join!(drop_it(&store.transport, &name, MINUTE), attending);
        let readings = readers(&store.transport).readings().await.unwrap();
        let reading = readings.iter().find(|one| one.endpoint == *endpoint(&name));
        match answer {
            DroppedSubscription::Attended(_) => {
                assert!(reading.is_some_and(|one| one.attended.is_some()), "{round}: {reading:?}");
                assert_eq!(store.depth(&name).await, Depth::new(1, 0, 0, 0), "{round}");
                seen.insert("attended");
                assert_eq!(drop_it(&other, &name, Duration::ZERO).await, DroppedSubscription::Done);
            }
            DroppedSubscription::Done => {
                assert!(reading.is_none(), "{round}: {reading:?}");
                seen.insert("dropped");
            }
            answer => panic!("{round}: {answer:?}"),
        }
    }
    assert!(seen.contains("dropped"), "{seen:?}");
    assert!(listed(&store).await.is_empty(), "{:?}", listed(&store).await);
}

/// Events that are published while a subscription of their topic is dropped reach all the others, and do not bring it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_does_not_bring_back_what_is_dropped() {
    let Some(store) = Store::with(&["placed/mail"]).await else { return };
    let other = open(&store.server.url(PREFIX)).await.unwrap();
    let mut acknowledged = BTreeSet::new();
    for round in 0..20 {
        let gone = endpoint("placed/gone");
        store.transport.prepare(&[(*gone).clone()]).await.unwrap();
        let publishing = async {
            for number in 0..20 {
                let name = format!("{round}-{number}");
                publish(&store.transport, event("placed/mail", &name, Duration::ZERO)).await;
                acknowledged.insert(name);
            }
        };
        let (answer, ()) = tokio::join!(
            async {
                tokio::time::sleep(Duration::from_micros(round * 200)).await;
                drop_it(&other, "placed/gone", MINUTE).await
            },
            publishing
        );
        assert_eq!(answer, DroppedSubscription::Done);
        assert_eq!(listed(&store).await, ["placed/mail"], "round {round}");
    }
    let consumer = store.consumer("placed/mail").await;
    let mut seen = BTreeSet::new();
    while seen.len() < acknowledged.len() {
        for got in receive(&consumer, 100).await {
            seen.insert(body(&got).to_owned());
            settle(&consumer, &got.receipt, Verdict::Complete).await.unwrap();
        }
    }
    assert_eq!(seen, acknowledged);
}

/// A delayed event that was published before its subscription was dropped reaches the others, and not one that has been
/// made anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delayed_event_goes_with_its_subscription() {
    let Some(store) = Store::with(&["placed/mail", "placed/gone"]).await else { return };
    let later = event("placed/mail", "later", Duration::ZERO).due(Some(Due::In(Duration::from_secs(2))));
    publish(&store.transport, later).await;
    assert_eq!(store.depth("placed/gone").await, Depth::new(0, 0, 1, 0));
    assert_eq!(drop_it(&store.transport, "placed/gone", MINUTE).await, DroppedSubscription::Done);
    store.transport.prepare(&[(*endpoint("placed/gone")).clone()]).await.unwrap();
    assert_eq!(store.depth("placed/gone").await, Depth::default());
    let mail = store.consumer("placed/mail").await;
    assert_eq!(bodies(&receive(&mail, 2).await), ["later"]);
    assert_eq!(store.depth("placed/gone").await, Depth::default());
}

/// Hosts that still read a subscription which somebody drops all the same make it again, and go on with what is published
/// then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_hosts_find_out_and_have_it_again() {
    let Some(store) = Store::with(&["placed/mail"]).await else { return };
    let other = open(&store.server.url(PREFIX)).await.unwrap();
    let stop = CancellationToken::new();
    let mut waiting = tokio::task::JoinSet::new();
    for transport in [&store.transport, &other] {
        let consumer = transport.consumer(ConsumerSpec::new(endpoint("placed/mail"), LEASE)).await.unwrap();
        let stop = stop.clone();
        waiting.spawn(async move { consumer.receive(1, &stop).await });
    }
    // Both wait at the server.
    let asked = store.server.messages_in();
    while store.server.messages_in() < asked + 4 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(drop_it(&other, "placed/mail", Duration::ZERO).await, DroppedSubscription::Done);
    let begun = Instant::now();
    while listed(&store).await.is_empty() {
        assert!(begun.elapsed() < PATIENCE, "nobody makes it again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    publish(&store.transport, event("placed/mail", "after", Duration::ZERO)).await;
    let first = tokio::time::timeout(PATIENCE, waiting.join_next()).await.expect("it comes in time");
    assert_eq!(bodies(&first.unwrap().unwrap().unwrap()), ["after"]);
    stop.cancel();
    waiting.join_all().await;
}

/// Whoever dies over a drop, or does not hear its answer, leaves a mark: until it has been ended nobody makes the
/// subscription again, and ending it another time clears away what is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_that_broke_off_is_ended_another_time() {
    let Some(store) = Store::with(&["placed/mail"]).await else { return };
    let consumer = store.consumer("placed/mail").await;
    publish(&store.transport, event("placed/mail", "dead", Duration::ZERO)).await;
    let got = receive(&consumer, 1).await.remove(0);
    let dead = Verdict::DeadLetter { reason: "no".into(), error: None };
    settle(&consumer, &got.receipt, dead).await.unwrap();
    let mark = json!({ "retention": null, "ending": true, "attended": null }).to_string();
    let client = store.server.client().await;
    client.request("test.state.read.s.placed.mail", mark.into()).await.unwrap();
    let deleted = store.server.ask("STREAM.DELETE.test_s_placed_mail", &Value::Null).await;
    assert_eq!(deleted["success"], true, "{deleted}");

    let mail = [(*endpoint("placed/mail")).clone()];
    let refused = store.transport.prepare(&mail).await.unwrap_err();
    assert!(refused.is_transient() && refused.to_string().contains("just being dropped"), "{refused}");
    attend(&store.transport, "placed/mail", None).await;
    let preparing = store.transport.prepare(&mail);
    let (answer, prepared) = tokio::join!(drop_it(&store.transport, "placed/mail", MINUTE), preparing);
    assert_eq!(answer, DroppedSubscription::Done);
    prepared.unwrap();
    assert_eq!(store.depth("placed/mail").await, Depth::default());
    let readings = readers(&store.transport).readings().await.unwrap();
    assert!(readings.len() == 1 && readings[0].attended.is_none(), "{readings:?}");
}

/// A dead letter of a subscription that is not there is not put back, which would bring it back, and stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_letter_does_not_bring_its_subscription_back() {
    let Some(store) = Store::with(&["placed/mail"]).await else { return };
    let consumer = store.consumer("placed/mail").await;
    publish(&store.transport, event("placed/mail", "dead", Duration::ZERO)).await;
    let got = receive(&consumer, 1).await.remove(0);
    let dead = Verdict::DeadLetter { reason: "no".into(), error: None };
    settle(&consumer, &got.receipt, dead).await.unwrap();
    store.server.ask("STREAM.DELETE.test_s_placed_mail", &Value::Null).await;
    let (inspect, mail) = (store.inspect(), endpoint("placed/mail"));
    let letter = inspect.dead_letters(&mail, None, 10).await.unwrap().remove(0);
    let refused = inspect.put_back(&mail, &[letter.envelope.id]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound, "{refused}");
    assert!(listed(&store).await.is_empty());
    assert_eq!(inspect.dead_letters(&mail, None, 10).await.unwrap().len(), 1);
}

/// Works through a subscription: each event fails at first, and is done the second time. Answers what was done.
async fn work(consumer: Arc<dyn Consumer>, stop: CancellationToken) -> BTreeSet<String> {
    let mut done = BTreeSet::new();
    while !stop.is_cancelled() {
        for got in consumer.receive(7, &stop).await.unwrap() {
            let error = bus::Error::new(ErrorKind::Handler, "not yet");
            let retry = Verdict::Retry { after: Some(Duration::ZERO), error };
            let verdict = if got.failures == 0 { retry } else { Verdict::Complete };
            let is_done = matches!(verdict, Verdict::Complete);
            settle(&consumer, &got.receipt, verdict).await.unwrap();
            if is_done {
                done.insert(body(&got).to_owned());
            }
        }
    }
    done
}

/// Swept while it is read, by two hosts: what was tried is done in the end, and what is neither done nor counted as swept
/// is not there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_claimed_while_it_is_swept_is_not_lost() {
    const EVENTS: usize = 3_000;
    let Some(store) = Store::with(&["placed/mail"]).await else { return };
    let other = open(&store.server.url(PREFIX)).await.unwrap();
    attend(&store.transport, "placed/mail", Some(HOUR)).await;
    let batch = (0..EVENTS).map(|n| event("placed/mail", &format!("{n:04}"), 2 * HOUR)).collect();
    for sent in store.transport.sender().send(batch).await {
        sent.unwrap();
    }
    let stop = CancellationToken::new();
    let working = tokio::spawn(work(store.consumer("placed/mail").await, stop.clone()));
    let (mut swept, begun) = (0, Instant::now());
    while store.depth("placed/mail").await != Depth::default() {
        assert!(begun.elapsed() < PATIENCE, "something is neither done nor swept");
        let (one, two) = tokio::join!(sweep(&store.transport), sweep(&other));
        swept += usize::try_from(one + two).unwrap();
    }
    stop.cancel();
    let done = working.await.unwrap();
    assert!(done.len() + swept >= EVENTS, "{} done, {swept} swept", done.len());
    assert!(swept > 0, "the sweeps came too late to be tested");
}

/// What a consumer may have delivered that an administrator has deleted is not swept, and what came after is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_lost_consumer_may_have_delivered_is_not_swept() {
    let Some(store) = Store::with(&["placed/mail"]).await else { return };
    attend(&store.transport, "placed/mail", Some(HOUR)).await;
    publish(&store.transport, event("placed/mail", "claimed", 2 * HOUR)).await;
    let first = store.consumer("placed/mail").await;
    assert_eq!(bodies(&receive(&first, 1).await), ["claimed"]);
    store.server.ask("CONSUMER.DELETE.test_s_placed_mail.all", &Value::Null).await;
    assert_eq!(sweep(&store.transport).await, 0);
    let second = store.consumer("placed/mail").await;
    let got = receive(&second, 1).await.remove(0);
    settle(&second, &got.receipt, Verdict::Release).await.unwrap();
    publish(&store.transport, event("placed/mail", "never claimed", 2 * HOUR)).await;
    assert_eq!(sweep(&store.transport).await, 1);
    assert_eq!(bodies(&receive_now(&second, 10).await), ["claimed"]);
}

/// A singleton's terms have a consumer each: what an earlier one has claimed was tried, and what none has come to was not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_earlier_term_has_claimed_is_not_swept() {
    let Some(store) = Store::with(&["placed/mail"]).await else { return };
    attend(&store.transport, "placed/mail", Some(HOUR)).await;
    for text in ["first", "second", "third"] {
        publish(&store.transport, event("placed/mail", text, 2 * HOUR)).await;
    }
    let fencing = store.transport.capabilities().fencing.unwrap();
    let mut last = None;
    for fence in [10, 11, 12] {
        let (fence, lock) = (Fence::new(fence), LockId::from("subscription/mail"));
        let claim = FenceClaim::new(endpoint("placed/mail"), "test:", &lock, fence, LEASE);
        assert_eq!(fencing.raise(claim).await.unwrap(), Raised::Raised);
        let spec = ConsumerSpec::new(endpoint("placed/mail"), LEASE).fenced(fence, LEASE);
        let consumer = store.consumer_with(spec).await;
        if fence < Fence::new(12) {
            assert_eq!(bodies(&receive(&consumer, 1).await), ["first"]);
        }
        last = Some(consumer);
    }
    assert_eq!(sweep(&store.transport).await, 2);
    assert_eq!(bodies(&receive(&last.unwrap(), 10).await), ["first"]);
}

/// The hosts that had claimed what waits are long gone: it is available, and seen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_of_hosts_that_are_gone_does_not_hide_what_waits() {
    let Some(store) = Store::with(&["placed/mail"]).await else { return };
    publish(&store.transport, event("placed/mail", "claimed", 2 * HOUR)).await;
    let consumer = store.consumer("placed/mail").await;
    receive(&consumer, 1).await;
    let oldest = async || {
        let readings = readers(&store.transport).readings().await.unwrap();
        (readings[0].oldest.is_some(), readings[0].unread().is_some())
    };
    assert_eq!(oldest().await, (false, false), "it is claimed");
    // As it is when a mark was left a while after the last host has spoken.
    let ago = Timestamp::from(std::time::SystemTime::now()).as_micros() - 3_600_000_000;
    let mark = json!({ "retention": null, "ending": true, "attended": ago }).to_string();
    store.server.client().await.request("test.state.read.s.placed.mail", mark.into()).await.unwrap();
    assert_eq!(oldest().await, (true, true), "nobody is left who could hold a claim");
}

/// What a host says costs a write for each endpoint, and none where another host has said it a moment ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_host_has_just_said_is_not_said_again() {
    let Some(store) = Store::with(&["a", "b", "placed/mail"]).await else { return };
    let all: Vec<_> =
        ["a", "b", "placed/mail"].map(|name| Attended::new(Endpoint::parse(name).unwrap())).into();
    let other = open(&store.server.url(PREFIX)).await.unwrap();
    let written = async || {
        let told = store.server.ask("STREAM.INFO.test_state", &Value::Null).await;
        told["state"]["last_seq"].as_u64().unwrap()
    };
    let before = written().await;
    readers(&store.transport).attend(&all).await.unwrap();
    let said = written().await;
    assert_eq!(said - before, 3);
    readers(&other).attend(&all).await.unwrap();
    // It reads the server's clock, for which something has to be stored.
    assert!(written().await - said <= 1);
}
