//! Hosts as processes, their locks on Azure's blobs and their messages in SQLite.

use std::time::Duration;

use bus_tests::runs::assert_single;
use bus_tests::site::{Setup, Site};
use bus_tests::task::{Single, Task};
use bus_tests::wait::{in_time, until_true};

use crate::bench::{Bench, LEASE, bench};

/// The blob of the fixtures' singleton.
pub(crate) const BLOB: &str = "queue.single";

/// How often a standby asks, in these tests.
const POLL: Duration = Duration::from_secs(1);

/// A host that does what its messages say, reads the singleton's queue, and has its locks in the bench's container.
pub(crate) fn actor<'s>(site: &'s Site, bench: &Bench, connection_string: &str) -> Setup<'s> {
    site.process(env!("CARGO_BIN_EXE_fixture-actor"))
        .arg("single")
        .env("BUS_LOCKS", format!("azblob://{}?poll=1s", bench.container))
        .env("BUS_LOCK_LEASE", "15s")
        .env("BUS_AZURE_CONNECTION_STRING", connection_string)
}

/// Sends tasks to the singleton.
pub(crate) async fn send(site: &Site, tasks: impl IntoIterator<Item = Task>) {
    let producer = site.producer().await;
    for sent in producer.bus().send_all(tasks.into_iter().map(Single)).await {
        sent.expect("sent");
    }
    producer.close().await;
}

/// Seconds between two moments of a journal.
pub(crate) fn seconds(from: u64, to: u64) -> f64 {
    (to as f64 - from as f64) / 1e9
}

/// `bus.toml` alone: a program as a user writes it, without a word about Azure in it. The account comes from the
/// environment, as a deployment gives it.
#[tokio::test]
async fn a_bus_toml_is_all_it_takes() {
    let bench = bench!();
    let site = Site::new();
    let config =
        format!("locks = \"azblob://{}\"\n\n[transports]\ndefault = \"{}\"\n", bench.container, site.url());
    let mut host = site
        .process(env!("CARGO_BIN_EXE_fixture-singleton"))
        .without("BUS_TRANSPORTS__DEFAULT")
        .env("BUS_AZURE_CONNECTION_STRING", bench.azurite.connection_string())
        .config(&config)
        .start();
    send(&site, [Task::new(1)]).await;
    let done = site.entry("the singleton has run", |entry| entry.e == "end" && entry.m == Some(1)).await;
    // It says who it is when it has begun, and nothing waits for that.
    let noted = async {
        while bench.raw.read(BLOB).await.metadata("note").is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    in_time("the lock says who holds it", noted).await;
    let held = bench.raw.read(BLOB).await;
    assert!(held.metadata("note").contains(&format!("process~20{}", host.pid())), "{held:?}");
    assert_eq!(held.metadata("fence"), done.fence.expect("it has a fence").to_string());
    assert_eq!(held.metadata("lease"), "30000ms", "Azure's default, and not that of others");
    let said = host.said();
    assert!(
        said.contains("for the fleet") && said.contains("asked for every 5s") && said.contains("for 30s"),
        "{said}"
    );
    assert!(!said.contains(bench.azurite.key()), "{said}");
    host.terminate();
    assert!(host.exit().await.success());
}

/// The same by the URL alone, with a signature in it instead of an account's key.
#[tokio::test]
async fn a_sas_in_the_url_is_all_it_takes() {
    let bench = bench!();
    let site = Site::new();
    let sas = bus_emulators::sas::of_account(bench.azurite.account(), bench.azurite.key(), "rcwl");
    let place = bench.azurite.blob_endpoint().trim_start_matches("http://");
    let config = format!("locks = \"azblob://{place}/{}?{sas}&poll=2s\"\n", bench.container);
    let mut host = site.process(env!("CARGO_BIN_EXE_fixture-singleton")).config(&config).start();
    send(&site, [Task::new(1)]).await;
    site.entry("the singleton has run", |entry| entry.e == "end" && entry.m == Some(1)).await;
    let said = host.said();
    assert!(said.contains("asked for every 2s") && !said.contains("sig="), "{said}");
    host.terminate();
    assert!(host.exit().await.success());
}

/// A start that cannot work ends at once, with what to do: no account, a wrong key, a lease that Azure does not give.
#[tokio::test]
async fn a_start_that_cannot_work_says_what_to_do() {
    let bench = bench!();
    let site = Site::new();
    let wrong_key = bench.azurite.connection_string().replace(bench.azurite.key(), "d3Jvbmc=");
    let right = bench.azurite.connection_string();
    let starts = [
        (
            actor(&site, &bench, &right).without("BUS_AZURE_CONNECTION_STRING"),
            "set BUS_AZURE_CONNECTION_STRING",
        ),
        (actor(&site, &bench, &wrong_key), "check AccountName and AccountKey"),
        (actor(&site, &bench, &right).env("BUS_LOCK_LEASE", "10s"), "take 15s to 60s"),
        (actor(&site, &bench, &right).env("BUS_LOCKS", "azblob://Locks"), "3 to 63 of a-z"),
        (actor(&site, &bench, "AccountName=x"), "AccountKey"),
    ];
    for (setup, told) in starts {
        let mut host = setup.start();
        let status = host.exit_within(Duration::from_secs(10)).await.0;
        let said = host.said();
        assert!(!status.success() && said.contains(told), "{said}");
        assert!(!said.contains("d3Jvbmc") && !said.contains(bench.azurite.key()), "{said}");
    }
}

/// The tool shows who holds what, and makes nothing where there is nothing.
#[tokio::test]
async fn the_tool_shows_locks_and_makes_no_container() {
    let bench = bench!();
    let site = Site::new();
    let tool = || {
        site.process(env!("CARGO_BIN_EXE_mounted"))
            .arg("bus")
            .arg("locks")
            .arg("--json")
            .env("BUS_LOCKS", format!("azblob://{}", bench.container))
            .env("BUS_AZURE_CONNECTION_STRING", bench.azurite.connection_string())
            .start()
    };
    let mut missing = tool();
    assert!(!missing.exit().await.success());
    assert!(missing.said().contains("there is no such container"), "{}", missing.said());
    assert_eq!(bench.raw.read(BLOB).await.code, "ContainerNotFound");

    let lease = bench.take(&bench.host()).await;
    lease.note(b"process 7 on web-1".to_vec()).await.unwrap();
    let mut shown = tool();
    assert!(shown.exit().await.success(), "{}", shown.said());
    let said = shown.said();
    for part in [
        "\"id\":\"queue/it\"",
        "\"held_for_ms\":15000",
        "\"note\":\"process 7 on web-1\"",
        &lease.fence().to_string(),
    ] {
        assert!(said.contains(part), "no {part} in {said}");
    }
}

/// S15: a survivor has the lock within lease, poll and 2 s of a kill, and not while the lease runs.
#[tokio::test]
async fn after_a_kill_a_survivor_starts_within_lease_and_poll() {
    let bench = bench!();
    let site = Site::new();
    let connection_string = bench.azurite.connection_string();
    send(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
    let mut holder = actor(&site, &bench, &connection_string).start();
    let begun = site.begun("single", 1).await;
    let mut survivor = actor(&site, &bench, &connection_string).start();
    survivor.started().await;
    let killed = holder.kill();
    until_true("somebody has begun it again", || site.runs("single").len() == 2).await;
    let runs = site.runs("single");
    let took = seconds(killed, runs[1].from);
    let longest = (LEASE + POLL).as_secs_f64() + 2.0;
    assert!(took <= longest, "it took {took} s");
    assert!(took >= LEASE.as_secs_f64() * 0.6, "nobody waited for the dead holder's lease: {took} s");
    assert!(runs[1].fence > begun.fence);
    site.allow("go");
    until_true("it is done", || site.store().is_drained("single")).await;
    assert_single(&site.runs("single"));
    survivor.terminate();
    assert!(survivor.exit().await.success());
}

/// S28, S29: after SIGTERM the run is finished, the lock given back, and the standby starts at its next poll, although the
/// lease would last for a minute. The last host of all leaves a free lock and a record that says so.
#[tokio::test]
async fn after_sigterm_the_standby_starts_at_its_next_poll() {
    let bench = bench!();
    let site = Site::new();
    let connection_string = bench.azurite.connection_string();
    send(&site, [Task::new(1).wait_for(&site.path("go")), Task::new(2)]).await;
    let start = || actor(&site, &bench, &connection_string).env("BUS_LOCK_LEASE", "60s").start();
    let mut holder = start();
    site.begun("single", 1).await;
    let mut standby = start();
    standby.started().await;
    holder.terminate();
    site.entry("the holder drains", |entry| entry.e == "stopping").await;
    assert_eq!(
        bench.raw.read(BLOB).await.header("x-ms-lease-state"),
        "leased",
        "not before its run has ended"
    );
    site.allow("go");
    let second = site.begun("single", 2).await;
    assert!(holder.exit().await.success());
    let runs = site.runs("single");
    let took = seconds(runs[0].to.expect("it has ended"), second.t);
    assert!(took < POLL.as_secs_f64() + 1.0, "it took {took} s");
    assert_single(&runs);
    assert_eq!(runs.len(), 2, "and nothing was repeated: {runs:?}");

    standby.terminate();
    assert!(standby.exit().await.success());
    let last = bench.raw.read(BLOB).await;
    assert_eq!((last.metadata("clean"), last.header("x-ms-lease-state")), ("true", "available"));
    assert_eq!(last.metadata("fence"), second.fence.expect("it has a fence").to_string());
}

/// S1, S6, S14: somebody breaks the lease and takes it. The holder finds out at its next renewal, its run is dropped, and
/// it is a candidate again, under a higher fence, when the thief's lease has run out.
#[tokio::test]
async fn a_holder_whose_lease_was_broken_and_taken_stops_and_becomes_a_candidate_again() {
    let bench = bench!();
    let site = Site::new();
    send(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
    let host = actor(&site, &bench, &bench.azurite.connection_string()).start();
    let begun = site.begun("single", 1).await;
    assert_eq!(bench.raw.break_lease(BLOB, Duration::ZERO).await.status, 202);
    let thief = bench.host();
    let id = bus::contract::LockId::from("queue/single");
    let stolen =
        thief.try_lock(&id, LEASE, bus::contract::Owner::fresh()).await.unwrap().expect("it is broken");
    until_true("its run is dropped", || {
        site.runs("single").iter().any(|run| run.how.as_deref() == Some("dropped"))
    })
    .await;
    let lost = site.entry("it says so", |entry| entry.e == "lock.lost").await;
    assert_eq!(lost.fence, begun.fence);
    until_true("it is a candidate again", || site.runs("single").len() == 2).await;
    site.allow("go");
    until_true("it is done", || site.store().is_drained("single")).await;
    let runs = site.runs("single");
    assert!(runs[1].fence > Some(stolen.fence().get()), "{runs:?}");
    assert_single(&runs);
    drop(host);
}
