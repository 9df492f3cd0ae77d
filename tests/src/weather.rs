//! What is done to a server that hosts work on, and to the network before it: the same for every kind of server. Each is a
//! test's whole body.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::by_hand::endpoint;
use crate::runs::assert_single;
use crate::served::{PREFIX, Server, Store, open};
use crate::site::{Setup, Site};
use crate::task::{Single, Task};
use crate::tcp_proxy::{Fault, Proxy};
use crate::traffic::Traffic;
use crate::wait::until_true;

/// The lock lease of the hosts here.
const LEASE: Duration = Duration::from_secs(3);
const TASKS: u64 = 400;

/// What is done to a server, and what that is called.
pub type Deed<S> = (&'static str, fn(&S));

/// A process that runs the fixture `actor`, which has the processors `single` and `plain`.
pub fn host<'s, S: Server>(site: &'s Site, actor: &str, server: &S) -> Setup<'s> {
    site.process(actor)
        .env("BUS_TRANSPORTS__DEFAULT", server.address())
        .env("BUS_LOCKS", "default")
        .env("BUS_LOCK_LEASE", format!("{}s", LEASE.as_secs()))
        .arg("single")
}

fn is_done(site: &Site) -> bool {
    let runs = site.runs("single");
    (0..TASKS).all(|task| runs.iter().any(|run| run.m == task && run.how.as_deref() == Some("end")))
}

/// How many runs have begun after a moment.
fn begun_since(site: &Site, moment: u64) -> bool {
    site.runs("single").iter().any(|run| run.from > moment)
}

/// It is killed and started again a second later.
pub fn killed_and_started_again<S: Server>() -> Deed<S> {
    ("killed and started again", |server| {
        server.kill();
        std::thread::sleep(Duration::from_secs(1));
        server.start_again();
    })
}

/// It is frozen for so long that every lease ends.
pub fn frozen_beyond_the_lease<S: Server>() -> Deed<S> {
    ("frozen beyond the lease", |server| {
        server.freeze();
        std::thread::sleep(LEASE * 2);
        server.thaw();
    })
}

/// S1, S5, S15, M10: a singleton in three hosts never overlaps, whatever is done to its server, goes on by itself within the
/// lease and 5 s, and does everything.
///
/// # Panics
/// If it is otherwise.
pub async fn a_singleton_never_overlaps<S: Server>(server: &S, actor: &str, deeds: &[Deed<S>]) {
    let site = Site::new();
    let mut hosts: Vec<_> = (0..3).map(|_| host(&site, actor, server).start()).collect();
    for host in &hosts {
        host.started().await;
    }
    let producer = bus::Host::builder().transport("default", &server.address()).connect().await.unwrap();
    for sent in producer.bus().send_all((0..TASKS).map(|n| Single(Task::new(n).sleep(20)))).await {
        sent.unwrap();
    }
    site.begun("single", 5).await;
    for (deed, inject) in deeds {
        inject(server);
        let (back, moment) = (Instant::now(), crate::journal::now());
        until_true(deed, || begun_since(&site, moment) || is_done(&site)).await;
        let took = back.elapsed();
        assert!(took < LEASE + Duration::from_secs(5), "{deed}: the singleton went on only after {took:?}");
    }
    hosts[0].kill();
    until_true("all is done", || is_done(&site)).await;
    assert_single(&site.runs("single"));
    producer.close().await;
    for host in &mut hosts[1..] {
        host.terminate();
        assert!(host.exit().await.success());
    }
}

/// M1: a host is killed between receiving and settling: nothing is lost.
///
/// # Panics
/// If it is otherwise.
pub async fn what_a_killed_host_had_claimed_comes_back<S: Server>(server: &S, actor: &str) {
    let site = Site::new();
    let producer = bus::Host::builder().transport("default", &server.address()).connect().await.unwrap();
    producer.bus().send(Single(Task::new(1).wait_for(&site.path("go")))).await.unwrap();
    let mut first = host(&site, actor, server).start();
    site.begun("single", 1).await;
    first.kill();
    let mut second = host(&site, actor, server).start();
    until_true("it has begun again", || site.runs("single").len() == 2).await;
    site.allow("go");
    until_true("it is done", || site.runs("single").iter().any(|run| run.how.as_deref() == Some("end")))
        .await;
    let runs = site.runs("single");
    assert_eq!(runs[1].count, 2);
    assert!(runs[1].fence > runs[0].fence);
    assert_single(&runs);
    second.terminate();
    second.exit().await;
    producer.close().await;
}

/// S1, S5: a holder whose network swallows everything, or every answer, gives up before another host begins.
///
/// # Panics
/// If it is otherwise.
pub async fn a_holder_that_is_cut_off_never_overlaps<S: Server>(server: &S, actor: &str) {
    let proxy = Proxy::start(server.port()).await;
    for (fault, prefix) in [(Fault::BlackHole, "hole"), (Fault::MuteServer, "mute")] {
        let (through, direct) = (S::url_at(proxy.port(), prefix), S::url_at(server.port(), prefix));
        crate::cut_off::never_overlaps(actor, &proxy, &through, &direct, fault).await;
    }
}

/// A store behind a proxy, and a view of it that no fault meets.
///
/// # Panics
/// If the server refuses.
pub async fn behind_proxy<S: Server>(server: S) -> (Store<S>, Proxy, Store<S>) {
    let proxy = Proxy::start(server.port()).await;
    let behind = open(&S::url_at(proxy.port(), PREFIX)).await.unwrap();
    behind.prepare(&[(*endpoint("jobs")).clone()]).await.unwrap();
    let direct = open(&server.address()).await.unwrap();
    let server = Arc::new(server);
    let behind = Store { server: Arc::clone(&server), transport: behind };
    (behind, proxy, Store { server, transport: direct })
}

/// M12: for half a minute nothing arrives, in neither direction, and nobody is told.
///
/// # Panics
/// If something is lost, or messages do not flow again soon.
pub async fn a_black_hole_of_30_seconds_is_waited_out<S: Server>(server: S) {
    let (store, proxy, _direct) = behind_proxy(server).await;
    let traffic = Traffic::start(&store, "jobs").await;
    proxy.set(Fault::BlackHole);
    // The passing of time is what is tested.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let tried = proxy.accepted();
    proxy.set(Fault::None);
    traffic.flows_soon(Instant::now()).await;
    assert!(tried > 3, "nobody tried to connect anew");
    traffic.end().await;
}

/// M10, M11: connections are cut and reset, as a server does that wants no more of them, again and again in mid-stream.
///
/// # Panics
/// If something is lost, or messages do not flow again soon.
pub async fn cut_connections_lose_nothing<S: Server>(server: S) {
    let (store, proxy, _direct) = behind_proxy(server).await;
    let traffic = Traffic::start(&store, "jobs").await;
    for fault in [Fault::Cut, Fault::Reset, Fault::Cut, Fault::Reset] {
        let before = proxy.accepted();
        proxy.set(fault);
        until_true("somebody met the fault", || proxy.accepted() > before).await;
        proxy.set(Fault::None);
        traffic.flows_soon(Instant::now()).await;
    }
    traffic.end().await;
}

/// M10, M11, M13, M33: killed and started again in mid-stream, twice.
///
/// # Panics
/// If something is lost, or messages do not flow again soon.
pub async fn a_server_killed_and_started_again_loses_nothing<S: Server>(server: S) {
    let store = Store::on(server, &["jobs"]).await;
    let traffic = Traffic::start(&store, "jobs").await;
    for away in [Duration::ZERO, Duration::from_secs(3)] {
        store.server.kill();
        // The passing of time is what is tested: an outage that lasts.
        tokio::time::sleep(away).await;
        store.server.start_again();
        traffic.flows_soon(Instant::now()).await;
    }
    traffic.end().await;
}

/// M12, S5: frozen for 20 s, its connections stay, and nothing is answered.
///
/// # Panics
/// If something is lost, or messages do not flow again soon.
pub async fn a_server_frozen_for_20_seconds_is_waited_out<S: Server>(server: S) {
    let store = Store::on(server, &["jobs"]).await;
    let traffic = Traffic::start(&store, "jobs").await;
    store.server.freeze();
    tokio::time::sleep(Duration::from_secs(20)).await;
    store.server.thaw();
    traffic.flows_soon(Instant::now()).await;
    traffic.end().await;
}
