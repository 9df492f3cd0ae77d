//! The end of a subscription, beside hosts that read it in the same moment.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::Endpoint;
use bus::contract::{Attended, DroppedSubscription, Outgoing, Readers, Transport};
use bus_tests::by_hand::{endpoint, envelope};
use bus_tests::postgres::{Database, available};
use bus_tests::wait::PATIENCE;
use tokio_postgres::Client;

use crate::open;

const MAIL: &str = "placed/mail";
const MINUTE: Duration = Duration::from_secs(60);
/// More than one statement drops.
const MANY: i64 = 15_000;

fn readers(transport: &Arc<dyn Transport>) -> Arc<dyn Readers> {
    transport.capabilities().readers.unwrap()
}

async fn publish(transport: &Arc<dyn Transport>, count: i64) {
    let events = (0..count).map(|_| Outgoing::new(endpoint(MAIL).target(), envelope("{}"))).collect();
    for sent in transport.sender().send(events).await {
        sent.unwrap();
    }
}

async fn prepare(transport: &Arc<dyn Transport>) {
    transport.prepare(&[Endpoint::parse(MAIL).unwrap()]).await.unwrap();
}

async fn attend(transport: &Arc<dyn Transport>) {
    readers(transport).attend(&[Attended::new(Endpoint::parse(MAIL).unwrap())]).await.unwrap();
}

async fn drop_it(transport: Arc<dyn Transport>) -> DroppedSubscription {
    readers(&transport).drop_subscription(&endpoint(MAIL), MINUTE).await.unwrap()
}

/// How many messages lie in the tables, whosever they are.
async fn messages(client: &Client) -> i64 {
    client.query_one("SELECT count(*) FROM bus.message", &[]).await.unwrap().get(0)
}

/// Waits until so many sessions of the database wait for a row that another one holds.
async fn wait(client: &Client, sessions: i64) {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    let began = Instant::now();
    while client.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) < sessions {
        assert!(began.elapsed() < PATIENCE, "nobody waits for a lock");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A large subscription goes in parts. A host that begins to read it meanwhile gets a new one, and is no reason to leave
/// the old one half there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_has_begun_to_go_goes() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let (transport, host) = (open(&database.url()).await, open(&database.url()).await);
    prepare(&transport).await;
    publish(&transport, MANY).await;
    let (mut holder, looker) = (database.client().await, database.client().await);
    let held = holder.transaction().await.unwrap();
    held.query("SELECT 1 FROM bus.message ORDER BY id DESC LIMIT 1 FOR UPDATE", &[]).await.unwrap();
    let dropping = tokio::spawn(drop_it(Arc::clone(&transport)));
    wait(&looker, 1).await;
    assert!(messages(&looker).await < MANY, "a part of it has gone by now");
    attend(&host).await;
    prepare(&host).await;
    attend(&host).await;
    publish(&host, 1).await;
    held.rollback().await.unwrap();
    assert_eq!(dropping.await.unwrap(), DroppedSubscription::Done);
    let new = host.capabilities().inspect.unwrap().depth(&endpoint(MAIL)).await.unwrap();
    assert_eq!((new.ready, messages(&looker).await), (1, 1), "what the new one has stays, and that alone");
    assert!(matches!(drop_it(transport).await, DroppedSubscription::Attended(_)), "the new one is read");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_left_who_died_over_the_end_of_a_subscription_is_swept() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let (transport, host) = (open(&database.url()).await, open(&database.url()).await);
    prepare(&transport).await;
    publish(&transport, MANY).await;
    let (mut holder, looker) = (database.client().await, database.client().await);
    let held = holder.transaction().await.unwrap();
    held.query("SELECT 1 FROM bus.message ORDER BY id DESC LIMIT 1 FOR UPDATE", &[]).await.unwrap();
    let dropping = tokio::spawn(drop_it(transport));
    wait(&looker, 1).await;
    dropping.abort();
    drop(dropping.await);
    held.rollback().await.unwrap();
    prepare(&host).await;
    publish(&host, 1).await;
    let began = Instant::now();
    while messages(&looker).await > 1 {
        assert!(began.elapsed() < PATIENCE, "it stays");
        assert_eq!(readers(&host).sweep().await.unwrap(), [], "nothing is told of what was dropped by hand");
    }
    let new = host.capabilities().inspect.unwrap().depth(&endpoint(MAIL)).await.unwrap();
    assert_eq!(new.ready, 1);
}

/// Whoever was told that he is heard, is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_stays_if_a_host_attends_to_it_first() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let (transport, host) = (open(&database.url()).await, open(&database.url()).await);
    prepare(&transport).await;
    attend(&host).await;
    publish(&transport, 1).await;
    let (mut holder, looker) = (database.client().await, database.client().await);
    looker.execute("UPDATE bus.reader SET read_at = 0", &[]).await.unwrap();
    let held = holder.transaction().await.unwrap();
    held.query("SELECT 1 FROM bus.reader FOR UPDATE", &[]).await.unwrap();
    let attending = tokio::spawn(async move { attend(&host).await });
    wait(&looker, 1).await;
    let dropping = tokio::spawn(drop_it(transport));
    wait(&looker, 2).await;
    held.rollback().await.unwrap();
    attending.await.unwrap();
    let answer = dropping.await.unwrap();
    assert!(matches!(answer, DroppedSubscription::Attended(_)), "{answer:?}");
    assert_eq!(messages(&looker).await, 1);
}
