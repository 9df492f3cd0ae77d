//! A singleton whose holder is cut off from its store, while another host sees it: the holder gives up before the other
//! one may begin. The same for every store that a network lies before.

use std::time::{Duration, Instant};

use crate::runs::assert_single;
use crate::site::{Setup, Site};
use crate::task::{Single, Task};
use crate::tcp_proxy::{Fault, Proxy};
use crate::wait::{until_true, until_within};

const LEASE: Duration = Duration::from_secs(3);
const TASKS: u64 = 150;
/// Each of them takes several questions to the store, on a machine that may have other things to do.
const ALL_DONE: Duration = Duration::from_secs(120);

fn host<'s>(site: &'s Site, actor: &str, url: &str) -> Setup<'s> {
    site.process(actor)
        .env("BUS_TRANSPORTS__DEFAULT", url)
        .env("BUS_LOCKS", "default")
        .env("BUS_LOCK_LEASE", format!("{}s", LEASE.as_secs()))
        .arg("single")
}

/// One host of the fixture `actor` sees the store through the `proxy`, at `through`, another one at `direct`. The first
/// has the singleton when its network fails, and again another host's term lies behind it when the network is whole.
///
/// # Panics
/// If two runs overlap, nobody takes over in time, or something is not done.
pub async fn never_overlaps(actor: &str, proxy: &Proxy, through: &str, direct: &str, fault: Fault) {
    let site = Site::new();
    let mut cut_off = host(&site, actor, through).start();
    cut_off.started().await;
    let producer = bus::Host::builder().transport("default", direct).connect().await.expect("a producer");
    for sent in producer.bus().send_all((0..TASKS).map(|n| Single(Task::new(n).sleep(20)))).await {
        sent.expect("sent");
    }
    site.begun("single", 5).await;
    let mut other = host(&site, actor, direct).start();
    other.started().await;

    proxy.set(fault);
    let begun = Instant::now();
    until_true("another host has taken over", || site.runs("single").iter().any(|run| run.p == other.pid()))
        .await;
    let took = begun.elapsed();
    assert!(took < LEASE + Duration::from_secs(5), "{fault:?}: it was taken over only after {took:?}");
    // Longer than the first host can believe anything.
    tokio::time::sleep(LEASE).await;
    proxy.set(Fault::None);
    let is_done = |task| move |run: &crate::runs::Run| run.m == task && run.how.as_deref() == Some("end");
    let all_done = || {
        let runs = site.runs("single");
        (0..TASKS).all(|task| runs.iter().any(is_done(task))).then_some(())
    };
    until_within("all is done", ALL_DONE, all_done).await;
    let runs = site.runs("single");
    assert!(runs.iter().any(|run| run.p == cut_off.pid()), "{fault:?} met nobody");
    assert_single(&runs);
    producer.close().await;
    for host in [&mut cut_off, &mut other] {
        host.terminate();
        assert!(host.exit().await.success());
    }
}
