//! A service that fails while a singleton runs: what a host survives, and that it stops in time where it cannot.

use std::time::{Duration, Instant};

use bus_emulators::{Azurite, Fault, FaultProxy, Pattern, Seen, or_skip};
use bus_tests::journal;
use bus_tests::runs::assert_single;
use bus_tests::site::Site;
use bus_tests::task::{Plain, Step, Task};
use bus_tests::wait::{in_time, until_true};

use crate::bench::{Bench, LEASE, bench, lease_requests};
use crate::heavy_hosts::{actor, seconds, send};

/// A task that asks its term again and again, until it is dropped or a minute has passed.
fn watchful(n: u64) -> Task {
    (0..600).fold(Task::new(n), |task, _| task.then(Step::Check).sleep(100))
}

/// The moment of a request, by the journals' clock.
fn moment(seen: &Seen) -> u64 {
    let ago = Instant::now().saturating_duration_since(seen.at);
    journal::now() - u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX)
}

/// When the latest lease request was sent that its holder has heard of.
fn last_confirmed(proxy: &FaultProxy) -> u64 {
    let requests = [lease_requests("acquire"), lease_requests("renew")];
    let all = requests.iter().flat_map(|pattern| proxy.seen(pattern));
    let heard = all.filter(|seen| seen.answered.is_some_and(|status| status < 300));
    heard.map(|seen| moment(&seen)).max().expect("the lock was taken")
}

/// Waits for a renewal, so that what follows begins early in a lease.
async fn renewed(proxy: &FaultProxy) {
    let passed = proxy.inject(lease_requests("renew"), Fault::Pass);
    in_time("a renewal", passed.struck(1)).await;
    passed.remove();
}

/// S9: a throttled account, dropped connections and answers, for less than a lease: nobody notices.
#[tokio::test]
async fn a_storm_within_the_lease_is_survived() {
    let faults = [
        Fault::server_busy(Duration::from_secs(1)),
        Fault::DropRequest,
        Fault::DropAnswer,
        Fault::HoldRequest,
    ];
    let storms = faults.into_iter().map(|fault| async move {
        let bench = bench!();
        let (site, proxy) = (Site::new(), bench.proxy());
        send(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
        let host = actor(&site, &bench, &bench.connection_string_at(&proxy)).start();
        let begun = site.begun("single", 1).await;
        renewed(&proxy).await;
        let storm = proxy.inject(lease_requests("renew"), fault.clone());
        // The storm's length is what is tested: from one renewal on it swallows the next, which comes a quarter of the
        // lease later, and ends before three quarters are over.
        tokio::time::sleep(LEASE / 2).await;
        storm.remove();
        assert!(storm.count() >= 1, "{fault:?}: there was no storm");
        renewed(&proxy).await;
        site.allow("go");
        until_true("it is done", || site.store().is_drained("single")).await;
        let runs = site.runs("single");
        assert_eq!(
            (runs.len(), runs[0].how.as_deref(), runs[0].fence),
            (1, Some("end"), begun.fence),
            "{fault:?}"
        );
        let lost = site.entries().into_iter().find(|entry| entry.e == "lock.lost");
        assert_eq!(lost, None, "{fault:?}");
        storm.release();
        drop(host);
    });
    futures_util::future::join_all(storms).await;
}

/// S3, S5, S6, S13: beyond the lease the holder stops by its own clock, whatever the service does or does not say: its
/// term says so when three quarters of the lease are over, the run is dropped before another can begin, and a release that
/// does not work either changes nothing. Afterwards it is a candidate again, under a higher fence.
#[tokio::test]
async fn beyond_the_lease_a_singleton_stops_in_time() {
    let faults = [
        Fault::server_busy(Duration::from_secs(1)),
        Fault::DropRequest,
        // The lease goes on at the service, and nobody hears of it.
        Fault::DropAnswer,
        Fault::HoldRequest,
        Fault::DelayAnswer(LEASE + Duration::from_secs(5)),
    ];
    let storms = faults.into_iter().map(|fault| async move {
        let bench = bench!();
        stops_in_time(&bench, &fault).await;
    });
    futures_util::future::join_all(storms).await;
}

/// S10: the client's sockets are the keeper's. For longer than the lease no worker thread of the host runs anything, and
/// the lock is kept.
#[tokio::test]
async fn a_lock_is_renewed_while_every_worker_thread_is_blocked() {
    let bench = bench!();
    let (site, proxy) = (Site::new(), bench.proxy());
    let blocked = LEASE.as_millis() as u64 + 2_000;
    send(&site, [Task::new(1).block(blocked).then(Step::Check).then(Step::Send(1))]).await;
    let setup = actor(&site, &bench, &bench.connection_string_at(&proxy)).arg("plain");
    let host = setup.env("TOKIO_WORKER_THREADS", "2").start();
    let begun = site.begun("single", 1).await;
    let producer = site.producer().await;
    producer.bus().send(Plain(Task::new(2).block(blocked))).await.expect("sent");
    producer.close().await;
    site.begun("plain", 2).await;
    let renewals = proxy.seen(&lease_requests("renew")).len();
    let settled = |entry: &journal::Entry| entry.e == "settle.ok" && entry.fence == begun.fence;
    site.entry("the run is settled under its own fence", settled).await;
    assert!(proxy.seen(&lease_requests("renew")).len() >= renewals + 3, "it was not renewed meanwhile");
    let entries = site.entries();
    assert!(entries.iter().any(|entry| entry.e == "held") && entries.iter().any(|entry| entry.e == "sent"));
    assert!(!entries.iter().any(|entry| entry.e == "lock.lost"), "{entries:#?}");
    assert_eq!(site.runs("single").len(), 1);
    drop(host);
}

/// S7, S17: a service that went away and came back without its content. The lock that was in it is lost for certain, and
/// the fence of the next term is higher all the same.
#[tokio::test]
async fn a_service_that_comes_back_empty_has_lost_the_lock_and_not_the_order_of_terms() {
    let Some(mut azurite) = or_skip(Azurite::start()) else { return };
    let site = Site::new();
    send(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
    let host = site
        .process(env!("CARGO_BIN_EXE_fixture-actor"))
        .arg("single")
        .env("BUS_LOCKS", "azblob://locks?poll=500ms")
        .env("BUS_LOCK_LEASE", "60s")
        .env("BUS_AZURE_CONNECTION_STRING", azurite.connection_string())
        .start();
    let begun = site.begun("single", 1).await;
    azurite.restart().expect("it starts again");
    let lost = site.entry("the lock is lost", |entry| entry.e == "lock.lost").await;
    assert_eq!(lost.fence, begun.fence);
    until_true("it is a candidate again", || site.runs("single").len() == 2).await;
    site.allow("go");
    until_true("it is done", || site.store().is_drained("single")).await;
    let runs = site.runs("single");
    assert!(runs[1].fence > begun.fence, "{runs:?}");
    assert_single(&runs);
    drop(host);
}

async fn stops_in_time(bench: &Bench, fault: &Fault) {
    let (site, proxy) = (Site::new(), bench.proxy());
    send(&site, [watchful(1)]).await;
    let host = actor(&site, bench, &bench.connection_string_at(&proxy)).start();
    let begun = site.begun("single", 1).await;
    renewed(&proxy).await;
    let storm = proxy.inject(Pattern::any(), fault.clone());
    until_true("its run is dropped", || site.runs("single")[0].how.is_some()).await;
    let confirmed = last_confirmed(&proxy);
    let entries = site.entries();
    let since = |t: u64| seconds(confirmed, t) / LEASE.as_secs_f64();
    let held = entries.iter().filter(|entry| entry.e == "held").map(|entry| entry.t).max();
    let held = since(held.expect("it was held"));
    let lost = entries.iter().find(|entry| entry.e == "lost");
    let lost = since(lost.unwrap_or_else(|| panic!("{fault:?}: its term never said so")).t);
    let run = site.runs("single")[0].clone();
    let dropped = since(run.to.expect("it is dropped"));
    // In parts of a lease; a hundredth is 150 ms.
    assert!(held <= 0.76, "{fault:?}: term.check() said held after {held} of the lease");
    assert!((0.70..=0.79).contains(&lost), "{fault:?}: term.check() said lost after {lost} of the lease");
    assert!(
        dropped <= 0.95 && run.how.as_deref() == Some("dropped"),
        "{fault:?}: dropped after {dropped}: {run:?}"
    );
    assert!(storm.count() >= 2, "{fault:?}");

    // Over, as suddenly as it began.
    proxy.clear();
    storm.release();
    until_true("it is a candidate again", || site.runs("single").len() == 2).await;
    let runs = site.runs("single");
    assert!(runs[1].fence > begun.fence, "{fault:?}: {runs:?}");
    assert_single(&runs);
    drop(host);
}
