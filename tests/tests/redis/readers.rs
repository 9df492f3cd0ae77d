//! Subscriptions that are dropped while others come to read them, and the lists of what there is.

use std::sync::Arc;
use std::time::Duration;

use bus::Endpoint;
use bus::contract::{
    Attended, Depth, DroppedSubscription, Ended, LockId, Outgoing, Owner, Readers, Transport,
};
use bus_tests::redis::Redis;

use crate::store::{PREFIX, Store, endpoint, envelope, open, open_locks};

const MINUTE: Duration = Duration::from_secs(60);
const MAIL: &str = "test:{t/placed}:s/mail:";

fn readers(transport: &Arc<dyn Transport>) -> Arc<dyn Readers> {
    transport.capabilities().readers.unwrap()
}

async fn attend(transport: &Arc<dyn Transport>) {
    let mail = Attended::new((*endpoint("placed/mail")).clone());
    readers(transport).attend(&[mail]).await.unwrap();
}

async fn listed(store: &Store) -> Vec<String> {
    store.inspect().endpoints().await.unwrap().iter().map(ToString::to_string).collect()
}

/// So many dead letters that no script takes all of them out at once, as they are stored.
fn bury(server: &Redis, letters: usize) {
    let bury = "for death = 1, ARGV[1] do
                  redis.call('HSET', KEYS[1] .. 'dead:' .. death, 'body', 'x', 'deliveries', 1, 'reason', 'no', 'since', 1)
                  redis.call('ZADD', KEYS[1] .. 'dead', death, death)
                end";
    let _: Option<i64> = server.ask(&["EVAL", bury, "1", MAIL, &letters.to_string()]);
}

/// A host that begins to read, and somebody who drops what has many dead letters, in the same moment: either the host was
/// heard, and everything stays, or all of it has gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_is_refused_before_it_begins_or_not_at_all() {
    const LETTERS: usize = 5_000;
    let Some(store) = Store::with(&[]).await else { return };
    let other = open(&store.server.url(PREFIX)).await.unwrap();
    let mail = [(*endpoint("placed/mail")).clone()];
    let mut midway = 0;
    for round in 0..20 {
        store.transport.prepare(&mail).await.unwrap();
        bury(&store.server, LETTERS);
        let (transport, mail) = (Arc::clone(&store.transport), mail[0].clone());
        let dropping =
            tokio::spawn(async move { readers(&transport).drop_subscription(&mail, MINUTE).await.unwrap() });
        // In the middle of it, as soon as something of it can be seen.
        while store.server.ask::<i64>(&["SISMEMBER", "test:{t/placed}:subscriptions", "mail"]) == 1 {
            tokio::task::yield_now().await;
        }
        other.prepare(&[(*endpoint("placed/mail")).clone()]).await.unwrap();
        attend(&other).await;
        midway += usize::from(!dropping.is_finished());
        let answer = dropping.await.unwrap();
        assert_eq!(answer, DroppedSubscription::Done, "round {round}: it was refused after it had begun");
        assert_eq!(store.depth("placed/mail").await, Depth::default(), "round {round}");
        assert_eq!(listed(&store).await, ["placed/mail"], "round {round}: it was made again");
        // What was made meanwhile is whole.
        let event = Outgoing::new(endpoint("placed/mail").target(), envelope("x"));
        other.sender().send(vec![event]).await.remove(0).unwrap();
        assert_eq!(store.depth("placed/mail").await, Depth::new(1, 0, 0, 0), "round {round}");
        let dropped = readers(&other).drop_subscription(&endpoint("placed/mail"), Duration::ZERO).await;
        assert_eq!(dropped.unwrap(), DroppedSubscription::Done);
        assert!(listed(&store).await.is_empty());
        assert_eq!(store.server.ask::<Vec<String>>(&["KEYS", "test:{t/*"]), Vec::<String>::new());
    }
    assert!(midway > 0, "no host came in the middle of a drop");
}

/// Somebody died over a drop: what is left of it goes with the next sweep, or when the drop is said again, and is never seen by
/// who makes the subscription anew.
#[tokio::test]
async fn what_is_left_of_a_drop_is_cleared_away() {
    let Some(store) = Store::with(&[]).await else { return };
    for by_sweep in [true, false] {
        store.transport.prepare(&[(*endpoint("placed/mail")).clone()]).await.unwrap();
        bury(&store.server, 10);
        // As the first step of a drop leaves it.
        let _: String = store.server.ask(&["RENAME", &format!("{MAIL}dead"), &format!("{MAIL}aside")]);
        let _: i64 = store.server.ask(&["DEL", &format!("{MAIL}meta")]);
        let _: i64 = store.server.ask(&["SREM", "test:{t/placed}:subscriptions", "mail"]);
        assert_eq!(readers(&store.transport).readings().await.unwrap(), []);
        if by_sweep {
            assert_eq!(readers(&store.transport).sweep().await.unwrap(), []);
        } else {
            let said_again =
                readers(&store.transport).drop_subscription(&endpoint("placed/mail"), MINUTE).await;
            assert_eq!(said_again.unwrap(), DroppedSubscription::Done);
        }
        assert!(listed(&store).await.is_empty(), "by sweep: {by_sweep}");
        assert_eq!(store.server.ask::<Vec<String>>(&["KEYS", "test:{t/*"]), Vec::<String>::new());
    }
}

/// Somebody has deleted the lists of what there is: endpoints that are read are listed again with the next word of their
/// hosts, and locks with their next term.
#[tokio::test]
async fn lists_that_were_lost_are_filled_again() {
    let Some(store) = Store::with(&["placed/mail", "jobs"]).await else { return };
    let locks = open_locks(&store.server.url(PREFIX)).await.unwrap();
    let take = async || {
        let owner = Owner::fresh();
        locks.try_lock(&LockId::from("queue/{it}"), MINUTE, owner).await.unwrap().expect("it is free")
    };
    take().await.release(Ended::Clean).await.unwrap();
    let _: i64 = store.server.ask(&["DEL", "test:endpoints", "test:locks"]);
    assert!(listed(&store).await.is_empty() && locks.list("").await.unwrap().is_empty());
    let all = ["placed/mail", "jobs"].map(|name| Attended::new(Endpoint::parse(name).unwrap()));
    readers(&store.transport).attend(&all).await.unwrap();
    assert_eq!(listed(&store).await, ["jobs", "placed/mail"]);
    let _lease = take().await;
    let ids: Vec<_> = locks.list("").await.unwrap().into_iter().map(|record| record.id).collect();
    assert_eq!(ids, [LockId::from("queue/{it}")]);
}
