//! Singletons whose messages are in Azure's queues, which keep no fences, and whose locks are on its blobs.

use std::time::Duration;

use bus_tests::runs::assert_single;
use bus_tests::site::{Setup, Site};
use bus_tests::task::{Single, Step, Task};
use bus_tests::wait::until_true;

use crate::bench::{Bench, bench};
use crate::heavy_hosts::producer;

/// The shortest lease that blobs give, in seconds; half of that of a claim.
const LOCK_LEASE: f64 = 15.0;

fn host<'s>(site: &'s Site, bench: &Bench, endpoint: &str) -> Setup<'s> {
    site.process(env!("CARGO_BIN_EXE_fixture-actor"))
        .env("BUS_TRANSPORTS__DEFAULT", format!("azqueue://{}?poll=500ms", bench.prefix))
        .env("BUS_LOCKS", format!("azblob://{}-locks?poll=1s", bench.prefix))
        .env("BUS_LOCK_LEASE", format!("{LOCK_LEASE}s"))
        .env("BUS_AZURE_CONNECTION_STRING", bench.azurite.connection_string())
        .arg(endpoint)
}

async fn send(bench: &Bench, tasks: impl IntoIterator<Item = Task>) {
    let sender = producer(&bench.azurite.connection_string(), &bench.prefix).await;
    for sent in sender.bus().send_all(tasks.into_iter().map(Single)).await {
        sent.expect("sent");
    }
    sender.close().await;
}

fn seconds(from: u64, to: u64) -> f64 {
    (to as f64 - from as f64) / 1e9
}

/// S6, S8, S13, S15: a holder that was frozen beyond its lease is succeeded within lease and poll, since no claim of its
/// outlives the lock. When it wakes up, its term says that it is over, the bus refuses to send for it, and its verdict is
/// discarded, and told so.
#[tokio::test]
async fn a_thawed_holder_sends_nothing_and_its_verdict_is_discarded() {
    let bench = bench!();
    let site = Site::new();
    let late = Task::new(1).then(Step::BlockUntil(site.path("go"))).then(Step::Check).then(Step::Send(1));
    send(&bench, [late]).await;
    let mut holder = host(&site, &bench, "single").start();
    let begun = site.begun("single", 1).await;
    let survivor = host(&site, &bench, "single").start();
    survivor.started().await;

    let frozen = holder.freeze();
    until_true("another one has begun it", || site.runs("single").len() == 2).await;
    let again = site.runs("single")[1].clone();
    let took = seconds(frozen, again.from);
    assert!(took <= LOCK_LEASE + 4.0, "it took {took} s");
    assert!(again.fence > begun.fence);
    site.allow("go");
    until_true("the other one has done it", || site.runs("single")[1].how.as_deref() == Some("end")).await;

    holder.thaw();
    let pid = holder.pid();
    let refused =
        site.entry("its verdict is refused", |entry| entry.e == "settle.refused" && entry.p == pid).await;
    assert_eq!(refused.fence, begun.fence);
    let of_holder: Vec<_> = site.entries().into_iter().filter(|entry| entry.p == pid).collect();
    assert!(of_holder.iter().any(|entry| entry.e == "lost"), "term.check() said so: {of_holder:#?}");
    let not_sent = of_holder.iter().find(|entry| entry.e == "not sent").expect("its send was refused");
    assert_eq!(not_sent.say.as_deref(), Some("TermLost"));
    let sent = bench.raw.count(&format!("{}-q-out", bench.prefix)).await;
    assert_eq!(sent, 1, "what the other one sent, and nothing else");
    drop(survivor);
}

/// S22, S28: hosts that are stopped one after the other hand the singleton over: nothing overlaps, nothing is repeated.
#[tokio::test]
async fn a_singleton_is_handed_over_and_nothing_is_repeated() {
    const TASKS: u64 = 20;
    let bench = bench!();
    let site = Site::new();
    send(&bench, (0..TASKS).map(|n| Task::new(n).sleep(100))).await;
    let mut first = host(&site, &bench, "single").start();
    site.begun("single", 0).await;
    let mut second = host(&site, &bench, "single").start();
    second.started().await;
    first.terminate();
    assert!(first.exit().await.success());
    until_true("all is done", || {
        let runs = site.runs("single");
        (0..TASKS).all(|n| runs.iter().any(|run| run.m == n && run.how.as_deref() == Some("end")))
    })
    .await;
    let runs = site.runs("single");
    assert_eq!(runs.len() as u64, TASKS, "{runs:#?}");
    assert_single(&runs);
    second.terminate();
    assert!(second.exit().await.success());
    assert_eq!(bench.raw.count(&format!("{}-q-single", bench.prefix)).await, 0);
}

/// What the queues cannot do is refused when the host starts, with what to do about it.
#[tokio::test]
async fn what_the_queues_cannot_do_is_refused_at_start() {
    let bench = bench!();
    let site = Site::new();
    for (setup, told) in [
        (host(&site, &bench, "ordered"), "order = \"strict\""),
        (host(&site, &bench, "single").env("BUS_LOCKS", "default"), "carries messages but has no locks"),
        (host(&site, &bench, "plain").env("BUS_TRANSPORTS__DEFAULT", "azqueue://my-bus"), "1 to 20 of a-z"),
        (
            host(&site, &bench, "plain").env("BUS_AZURE_CONNECTION_STRING", "AccountName=shop"),
            "neither AccountKey nor SharedAccessSignature",
        ),
        (
            host(&site, &bench, "plain").without("BUS_AZURE_CONNECTION_STRING"),
            "set BUS_AZURE_CONNECTION_STRING",
        ),
    ] {
        let mut refused = setup.start();
        let status = refused.exit_within(Duration::from_secs(30)).await.0;
        let said = refused.said();
        assert!(!status.success() && said.contains(told), "no {told:?} in {said}");
        assert!(!said.contains(bench.azurite.key()), "{said}");
    }
}
