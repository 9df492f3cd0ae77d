//! Hosts over two servers at once, Postgres and Redis, one of which is not there: when the host starts, or later. M10, M11.

use std::time::{Duration, Instant};

use bus::host::HostBuilder;
use bus::{ErrorKind, MessageId};
use bus_tests::postgres::{self, Server};
use bus_tests::redis::{self, Redis};
use bus_tests::skip;
use bus_tests::task::Invoice;
use bus_tests::wait::{in_time, until_true};

use super::handlers::Note;
use super::{Embedded, Made, Place};

/// Postgres for notes, Redis for invoices.
struct Servers {
    postgres: Server,
    redis: Redis,
}

/// Which of the two is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Postgres,
    Redis,
}

/// How soon after its server is back a host works through it again.
const PROMISED: Duration = Duration::from_secs(5);

impl Servers {
    /// Both, if they can be had.
    async fn start() -> Option<Servers> {
        if let Some(missing) = redis::missing() {
            skip::not_run(missing);
            return None;
        }
        if !postgres::available() {
            return None;
        }
        Some(Servers { postgres: Server::start().await, redis: Redis::start(redis::DURABLE) })
    }

    fn host(&self) -> Made {
        let over = |host: HostBuilder| {
            let host = host.transport("default", &self.postgres.url());
            host.transport("billing", &self.redis.url("test"))
        };
        Place::memory().host(&["note", "invoice"]).with(over)
    }

    fn kill(&mut self, which: Which) {
        match which {
            Which::Postgres => self.postgres.kill(),
            Which::Redis => self.redis.kill(),
        }
    }

    async fn start_again(&mut self, which: Which) {
        match which {
            Which::Postgres => self.postgres.restart().await,
            Which::Redis => self.redis.start_again(),
        }
    }
}

impl Which {
    fn transport(self) -> &'static str {
        match self {
            Which::Postgres => "default",
            Which::Redis => "billing",
        }
    }

    fn other(self) -> Which {
        match self {
            Which::Postgres => Which::Redis,
            Which::Redis => Which::Postgres,
        }
    }

    async fn send(self, host: &Embedded) -> bus::Result<MessageId> {
        let bus = host.handle.bus();
        let sent = match self {
            Which::Postgres => bus.send(Note("hello".into())).await,
            Which::Redis => bus.send(Invoice(7)).await,
        };
        sent.map(|sent| sent.id())
    }

    /// Sends, and waits until a handler has seen it.
    async fn is_worked(self, host: &mut Embedded) {
        let id = self.send(host).await.expect("its store is there");
        until_seen(host, id).await;
    }
}

/// What a killed server had not written yet comes again: others than this one are passed over.
async fn until_seen(host: &mut Embedded, id: MessageId) {
    while host.seen().await.id != id {}
}

/// One of two servers refuses connections when the host starts: the other's processor works, a send to the missing one is
/// refused, and within 5 s of its coming its processor works too. Later either is killed: the other goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_down_at_the_start_or_later_keeps_nobody_else_from_working() {
    let Some(mut servers) = Servers::start().await else { return };
    for missing in [Which::Postgres, Which::Redis] {
        let there = missing.other();
        servers.kill(missing);
        let mut host = servers.host().start().await;
        assert_eq!(host.handle.waiting_for(), [missing.transport()]);
        there.is_worked(&mut host).await;
        let refused = missing.send(&host).await.expect_err("its server is not there");
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");

        servers.start_again(missing).await;
        let back = Instant::now();
        until_true("it is reached", || host.handle.waiting_for().is_empty()).await;
        missing.is_worked(&mut host).await;
        assert!(back.elapsed() < PROMISED, "{missing:?}: it took {:?}", back.elapsed());
        there.is_worked(&mut host).await;

        servers.kill(missing);
        for _ in 0..3 {
            there.is_worked(&mut host).await;
            let refused = missing.send(&host).await.expect_err("its server is not there");
            // What was under way when the server died may have been done.
            assert!(refused.is_transient() || refused.kind() == ErrorKind::OutcomeUnknown, "{refused:?}");
        }
        assert!(host.handle.waiting_for().is_empty(), "it was reached once");
        servers.start_again(missing).await;
        let back = Instant::now();
        let sent = async {
            loop {
                match missing.send(&host).await {
                    Ok(id) => return until_seen(&mut host, id).await,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        };
        in_time("it works again", sent).await;
        assert!(back.elapsed() < PROMISED, "{missing:?}: it took {:?}", back.elapsed());
        host.stop().await;
    }
}

/// What waiting cannot mend is not waited for, also when it is found out late: a log-in that is refused, a database that
/// does not exist, tables of a newer version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waiting_cannot_mend_ends_the_start_at_once() {
    let Some(mut servers) = Servers::start().await else { return };
    let _: String = servers.redis.ask(&["CONFIG", "SET", "requirepass", "s3cret"]);
    let began = Instant::now();
    let refused = start(servers.host()).await.expect_err("it wants a password");
    assert!(refused.to_string().contains("transport: billing"), "{refused}");
    assert!(refused.to_string().contains("refuses the user or the password"), "{refused}");

    let server = asking_for_a_password().await;
    for (user, why) in [("stranger", "password missing"), ("stranger:wr0ng", "refused the log-in")] {
        let url = format!("postgres://{user}@127.0.0.1:{}/postgres", server.port());
        let host = Place::memory().host(&["note"]).with(|host| host.transport("default", &url));
        let refused = start(host).await.expect_err("it wants a password");
        let text = format!("{refused:?}");
        assert!(text.contains(why) && text.contains("transport: default"), "{text}");
        assert!(!text.contains("wr0ng"), "{text}");
    }

    let nowhere = format!("postgres://postgres@127.0.0.1:{}/no_such_database", servers.postgres.port());
    let host = servers.host().with(|host| host.transport("default", &nowhere).without(["invoice"]));
    let wrong = host.with(|host| host.transport("billing", "memory://billing"));
    let refused = start(wrong).await.expect_err("there is no such database");
    assert!(refused.to_string().contains("no such database"), "{refused}");
    assert!(began.elapsed() < Duration::from_secs(20), "it took {:?}", began.elapsed());

    // Late: the host waits for Postgres, whose tables turn out to be of another time.
    let url = servers.postgres.url();
    let made = || Place::memory().host(&["note"]).with(|host| host.transport("default", &url));
    made().start().await.stop().await;
    servers
        .postgres
        .client()
        .await
        .batch_execute("UPDATE bus.store SET version = 99")
        .await
        .expect("changed");
    servers.kill(Which::Postgres);
    let host = made().start().await;
    assert_eq!(host.handle.waiting_for(), ["default"]);
    servers.start_again(Which::Postgres).await;
    let ended =
        in_time("the host ends", host.handle.wait()).await.expect_err("the tables are of a newer version");
    assert_eq!(ended.kind(), ErrorKind::Corrupt, "{ended:?}");
    assert!(ended.to_string().contains("transport: default"), "{ended}");
}

/// A server that lets its own user in, and wants a password of everybody else.
async fn asking_for_a_password() -> Server {
    let rules = tempfile::NamedTempFile::new().expect("a file");
    let text = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    std::fs::write(rules.path(), text).expect("written");
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(rules.path(), readable).expect("permitted");
    let server = Server::start_with(&[&format!("hba_file={}", rules.path().display())]).await;
    let stranger = "CREATE ROLE stranger LOGIN PASSWORD 'right'";
    server.client().await.batch_execute(stranger).await.expect("made");
    server
}

async fn start(made: Made) -> bus::Result<()> {
    let host = made.host.provide(made.probe).build()?;
    in_time("it starts or fails", host.start()).await?.stop().await
}
