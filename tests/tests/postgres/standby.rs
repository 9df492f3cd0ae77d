//! A synchronous standby that is missing: what is committed waits for it without limit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::ErrorKind;
use bus::clock::Clock;
use bus::contract::{ConsumerSpec, LockId, LockManager, OpenOptions, Owner, Renewal, Scheme, StoreUrl};
use bus_tests::by_hand::{command, endpoint};
use bus_tests::postgres::{Server, available};
use bus_tests::wait::PATIENCE;
use tokio_util::sync::CancellationToken;

use crate::open;

/// How long the transport awaits an answer.
const TIMEOUT: Duration = Duration::from_secs(2);

async fn waiting(client: &tokio_postgres::Client) -> i64 {
    let count = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    client.query_one(count, &[]).await.unwrap().get(0)
}

/// Whether something is seen to wait for the standby before `limit` is over.
async fn waits_within(client: &tokio_postgres::Client, limit: Duration) -> bool {
    let looking = async {
        while waiting(client).await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(limit, looking).await.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_missing_standby_does_not_pile_up() {
    const SENDS: usize = 4;
    if !available() {
        return;
    }
    let server = Server::start().await;
    let transport = open(&format!("{}?timeout={}", server.url(), TIMEOUT.as_secs())).await;
    let queue = endpoint("standby");
    transport.prepare(std::slice::from_ref(&*queue)).await.unwrap();
    let send = || async { transport.sender().send(vec![command("standby", "1")]).await.remove(0) };
    send().await.unwrap();
    let client = server.client().await;
    client.batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'missing'").await.unwrap();
    client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let mut unknown = 0;
    let began = Instant::now();
    // The first may come before the setting does.
    while unknown < SENDS {
        assert!(began.elapsed() < PATIENCE, "nobody waits for the standby");
        // Looked at while it waits: afterwards its statement has been cancelled, or is about to be.
        let (sent, waited) = tokio::join!(send(), waits_within(&client, TIMEOUT));
        if let Err(e) = sent {
            assert_eq!(e.kind(), ErrorKind::OutcomeUnknown, "{e:?}");
            assert!(waited, "a send failed that did not wait for the standby");
            unknown += 1;
        }
    }
    while waiting(&client).await > 0 {
        assert!(
            began.elapsed() < PATIENCE,
            "{} statements that nobody waits for go on",
            waiting(&client).await
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // A claim waits for no disk and no standby; what is recorded about a dangerous run does.
    let consumer = transport.consumer(ConsumerSpec::new(queue, Duration::from_secs(30))).await.unwrap();
    let got = consumer.receive(1, &CancellationToken::new()).await.unwrap();
    let recorded = consumer.record_alone(&got[0].receipt).await;
    assert_eq!(recorded.unwrap_err().kind(), ErrorKind::Timeout, "it was recorded where a crash may take it");
    transport.close().await;
}

/// As documented: a renewal is worth what a fail-over leaves of it, unless the locks' user is told not to wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_waits_for_a_missing_standby_unless_its_user_does_not() {
    const LEASE: Duration = Duration::from_secs(60);
    if !available() {
        return;
    }
    let server = Server::start().await;
    let client = server.client().await;
    let role = "CREATE ROLE bus_locks SUPERUSER LOGIN; ALTER ROLE bus_locks SET synchronous_commit = local";
    client.batch_execute(role).await.unwrap();
    let open = async |url: &str| {
        let url = StoreUrl::parse(url).unwrap();
        let open = Scheme::find(url.scheme()).unwrap().locks.unwrap();
        open(&url, &OpenOptions::new(Clock::system())).await.unwrap()
    };
    let waiting = open(&server.url()).await;
    let local = open(&server.url().replace("postgres@", "bus_locks@")).await;
    let take = async |locks: &Arc<dyn LockManager>, id: &str| {
        locks.try_lock(&LockId::from(id), LEASE, Owner::fresh()).await.unwrap().expect("nobody has it")
    };
    let (waits, does_not) = (take(&waiting, "queue/waits").await, take(&local, "queue/local").await);
    client.batch_execute("ALTER SYSTEM SET synchronous_standby_names = 'missing'").await.unwrap();
    client.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let began = Instant::now();
    // The first may come before the setting does.
    while let Ok(renewed) = waits.renew().await {
        assert_eq!(renewed, Renewal::Held);
        assert!(began.elapsed() < PATIENCE, "nobody waits for the standby");
    }
    for _ in 0..3 {
        assert_eq!(does_not.renew().await.unwrap(), Renewal::Held);
    }
    waiting.close().await;
    local.close().await;
}
