//! PgBouncer in transaction mode: each transaction may run in another session of the server. Scenario M14.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::ErrorKind;
use bus::clock::Clock;
use bus::contract::{ConsumerSpec, OpenOptions, Scheme, StoreUrl};
use bus::settings::Order;
use bus_tests::by_hand::{bodies, command, endpoint};
use bus_tests::pgbouncer::{PgBouncer, available as installed};
use bus_tests::postgres::{Server, available};
use bus_tests::wait::PATIENCE;
use tokio_util::sync::CancellationToken;

use crate::open;
use crate::stream::{Diary, Work, host, producer};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_work_behind_a_pooler_that_shares_sessions() {
    if !(available() && installed()) {
        return;
    }
    let server = Server::start().await;
    let pooler = PgBouncer::start(server.port());
    for (url, polled) in [(pooler.url("postgres"), Some(Duration::from_millis(250))), (server.url(), None)] {
        let transport = crate::open(&url).await;
        assert_eq!(transport.guarantees().polled, polled);
        transport.close().await;
        let url = StoreUrl::parse(&url).unwrap();
        let options = OpenOptions::new(Clock::system());
        let locks = Scheme::find(url.scheme()).unwrap().locks.unwrap()(&url, &options).await.unwrap();
        let can = locks.guarantees();
        assert_eq!((can.watch, can.poll), (polled.is_none(), polled.unwrap_or(Duration::from_secs(1))));
        locks.close().await;
    }
    let diary = Arc::new(Diary::default());
    let hosts = [
        host(&pooler.url("postgres"), "work", &diary).await,
        host(&pooler.url("postgres"), "single-work", &diary).await,
    ];
    // Beside one that is connected directly, and prepares statements under the same names.
    let direct = host(&server.url(), "work", &diary).await;
    let producer = producer(&pooler.url("postgres")).await;
    for number in 0..300 {
        if number % 3 == 0 {
            producer.bus().send(crate::stream::SingleWork(number)).await.unwrap();
        } else {
            producer.bus().send(Work(number)).await.unwrap();
        }
    }
    let began = Instant::now();
    while diary.seen.lock().len() < 300 {
        let seen = diary.seen.lock().len();
        assert!(began.elapsed() < PATIENCE, "{seen} of 300 were processed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(diary.overlaps(), 0, "runs of a singleton overlap");
    // Nothing was left in a session that others use.
    let client = server.client().await;
    let settings =
        "SELECT count(*) FROM pg_stat_activity WHERE query ILIKE 'LISTEN%' AND application_name = 'bus'";
    let listening: i64 = client.query_one(settings, &[]).await.unwrap().get(0);
    assert!(listening <= 2, "{listening} sessions listen, and only the direct host may");
    producer.close().await;
    for host in hosts.into_iter().chain([direct]) {
        host.stop().await.unwrap();
    }
}

/// A host that claims in strict order and is frozen within that transaction, runtime and all.
struct Frozen {
    /// Dropped, it lets the host go on.
    thaw: Option<std::sync::mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Frozen {
    /// Starts claiming, and freezes once `freeze` fires; then `frozen` is told.
    fn start(url: String, freeze: CancellationToken, frozen: tokio::sync::oneshot::Sender<()>) -> Frozen {
        let (thaw, wait) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let transport = open(&url).await;
                let consumer = transport.consumer(strict()).await.unwrap();
                let stop = CancellationToken::new();
                let claiming = async {
                    loop {
                        // Its time may run out before it is frozen: then it asks again.
                        let _ = consumer.receive(1, &stop).await;
                    }
                };
                tokio::select! {
                    biased;
                    () = freeze.cancelled() => {
                        let _ = frozen.send(());
                        // The only thread of this runtime: nothing moves any more.
                        let _ = wait.recv();
                    }
                    () = claiming => {}
                }
            });
        });
        Frozen { thaw: Some(thaw), thread: Some(thread) }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        drop(self.thaw.take());
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

fn strict() -> ConsumerSpec {
    ConsumerSpec::new(endpoint("frozen"), Duration::from_secs(30)).ordered(Order::Strict)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_is_frozen_in_a_transaction_behind_a_pooler_blocks_nobody_for_long() {
    if !(available() && installed()) {
        return;
    }
    let server = Server::start().await;
    let pooler = PgBouncer::start(server.port());
    let url = format!("{}?timeout=2", pooler.url("postgres"));
    let transport = open(&url).await;
    transport.prepare(&[(*endpoint("frozen")).clone()]).await.unwrap();
    let client = server.client().await;
    let row = "INSERT INTO bus.strict (endpoint) SELECT id FROM bus.endpoint";
    client.batch_execute(row).await.unwrap();
    client.batch_execute("BEGIN; SELECT 1 FROM bus.strict FOR UPDATE").await.unwrap();

    let (told, frozen) = tokio::sync::oneshot::channel();
    let freeze = CancellationToken::new();
    let _frozen = Frozen::start(url, freeze.clone(), told);
    let watch = server.client().await;
    let how_many = async |what: &str| -> i64 {
        let count = format!("SELECT count(*) FROM pg_stat_activity WHERE {what}");
        watch.query_one(&count, &[]).await.unwrap().get(0)
    };
    let began = Instant::now();
    while how_many("wait_event_type = 'Lock'").await == 0 {
        assert!(began.elapsed() < PATIENCE, "nobody claims");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    freeze.cancel();
    frozen.await.unwrap();
    client.batch_execute("COMMIT").await.unwrap();
    transport.sender().send(vec![command("frozen", "1")]).await.remove(0).unwrap();
    let consumer = transport.consumer(strict()).await.unwrap();
    let stop = CancellationToken::new();
    let began = Instant::now();
    let got = loop {
        match consumer.receive(1, &stop).await {
            Ok(got) => break got,
            Err(e) => assert_eq!(e.kind(), ErrorKind::Timeout, "{e:?}"),
        }
        assert!(began.elapsed() < PATIENCE, "the frozen host blocks the queue");
    };
    assert_eq!(bodies(&got), ["1"]);
    transport.close().await;
}

/// `synchronous_commit=off` by the server's default, as for a session of our own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_through_a_pooler_is_on_the_disk() {
    if !(available() && installed()) {
        return;
    }
    let server = Server::start_with(&["synchronous_commit=off"]).await;
    let pooler = PgBouncer::start(server.port());
    let transport = open(&pooler.url("postgres")).await;
    transport.prepare(&[(*endpoint("disk")).clone()]).await.unwrap();
    let client = server.client().await;
    let note = "CREATE TABLE noted (setting text, limited text);
                CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                    INSERT INTO noted VALUES (current_setting('synchronous_commit'), current_setting('statement_timeout'));
                    RETURN NULL;
                END $$;
                CREATE TRIGGER note AFTER INSERT ON bus.message EXECUTE FUNCTION note()";
    client.batch_execute(note).await.unwrap();
    transport.sender().send(vec![command("disk", "1")]).await.remove(0).unwrap();
    let noted = client.query_one("SELECT setting, limited FROM noted", &[]).await.unwrap();
    assert_eq!((noted.get::<_, &str>(0), noted.get::<_, &str>(1)), ("on", "10s"));
    let left = client.query_one("SELECT current_setting('synchronous_commit')", &[]).await.unwrap();
    assert_eq!(left.get::<_, &str>(0), "off");
    transport.close().await;
}
