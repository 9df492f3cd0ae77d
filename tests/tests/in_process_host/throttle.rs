//! What all processors of a host share: how many runs there may be at once, and in a second.

use std::sync::Arc;
use std::time::Duration;

use bus::Host;
use bus::contract::OpenOptions;
use bus::host::config::Config;
use bus::message::{Delivery, Verdict};
use bus::pipeline::Next;
use bus_tests::task::Invoice;
use bus_tests::wait::{PATIENCE, in_time, until_true};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Place;
use super::handlers::{Answer, Note, Relaxed, WrappedNote};
use super::outage::{Sky, Weather};

/// Counts the runs.
#[derive(Clone, Default)]
struct Turnstile(Arc<Mutex<Counts>>);

#[derive(Default)]
struct Counts {
    now: usize,
    most: usize,
    begun: Vec<Instant>,
}

impl Turnstile {
    /// A middleware, of which there is one around every run.
    async fn count(self, delivery: Delivery, next: Next) -> Verdict {
        {
            let mut counts = self.0.lock();
            counts.now += 1;
            counts.most = counts.most.max(counts.now);
            counts.begun.push(Instant::now());
        }
        let verdict = next.run(delivery).await;
        self.0.lock().now -= 1;
        verdict
    }
}

/// ThrottleHost: one limit for all processors together, singletons included; each of them gets its turn.
#[tokio::test(start_paused = true)]
async fn no_more_runs_at_once_than_the_throttle_says_over_all_processors() {
    let turnstile = Turnstile::default();
    let count = turnstile.clone();
    let made = Place::memory()
        .host(&["note", "wrapped-note", "relaxed"])
        .answering(|_| Answer::Sleep(Duration::from_millis(100)))
        .with(|host| {
            host.throttle(3)
                .middleware(move |delivery: Delivery, next: Next| count.clone().count(delivery, next))
        });
    let mut host = made.start_virtually().await;
    for n in 0..20 {
        host.host.bus().send(Note(n.to_string())).await.expect("sent");
        host.host.bus().send(WrappedNote(n.to_string())).await.expect("sent");
    }
    for n in 0..3 {
        host.host.bus().send(Relaxed(n.to_string())).await.expect("sent");
    }
    let began = Instant::now();
    host.host.settled().await;
    assert_eq!(host.seen_so_far().len(), 43);
    assert_eq!(turnstile.0.lock().most, 3, "as many as may, and no more");
    // 43 runs of 100 ms, three at a time.
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(1_400) && took < Duration::from_millis(2_000), "it took {took:?}");
}

/// The promise: the throttle is fair. Whoever has waited longest is next, whichever processor it is of: a flood at one does
/// not keep the only message of another waiting until it has passed.
#[tokio::test(start_paused = true)]
async fn the_throttle_is_fair_to_a_processor_beside_one_that_is_flooded() {
    let made = Place::memory()
        .host(&["note", "wrapped-note"])
        .answering(|_| Answer::Sleep(Duration::from_millis(100)))
        .with(|host| host.throttle(1));
    let mut host = made.start_virtually().await;
    for n in 0..100 {
        host.host.bus().send(Note(n.to_string())).await.expect("sent");
    }
    host.host.advance(Duration::from_millis(250)).await;
    host.host.bus().send(WrappedNote("the only one".into())).await.expect("sent");
    host.host.settled().await;
    let seen = host.seen_so_far();
    assert_eq!(seen.len(), 101);
    let at = seen.iter().position(|seen| seen.at == "wrapped-note").expect("it ran");
    // Before it are those that ran or waited when it came: no more than the other's `max_concurrent_calls` of 16.
    assert!(at <= 20, "it was number {at}");
}

/// The promise: no permit is held while a broker is waited for, be it for messages or for a verdict to be taken.
#[tokio::test]
async fn the_throttle_is_not_held_while_a_broker_is_waited_for() {
    let (place, other, sky) = (Place::memory(), Place::memory(), Sky::new(Weather::Fair));
    let frozen = sky.transport(&place.url, &OpenOptions::default()).await;
    let night = sky.clone();
    let made = other.host(&["note", "relayed"]).with(|_| {
        let host = Host::builder().transport_instance("default", frozen).only(["note", "invoice"]);
        host.transport("billing", &other.url).throttle(1)
    });
    let made = made.answering(move |seen| {
        if seen.at == "note" {
            // From now on the store takes no verdict.
            night.becomes(Weather::Endless);
        }
        Answer::Done
    });
    let mut host = made.start().await;
    let bus = host.handle.bus().clone();
    bus.send(Note("its verdict is not taken".into())).await.expect("sent");
    assert_eq!(host.seen().await.at, "note");
    bus.send(Invoice(7)).await.expect("sent");
    assert_eq!(host.seen().await.at, "invoice", "the only permit is free");
    sky.becomes(Weather::Fair);
    host.handle.begin_stop();
    host.handle.hurry();
    // The call that was begun in bad weather never returns; the host's end is bounded all the same.
    let _ = in_time("stopped", host.handle.wait()).await;
}

/// In no second do more begin than is said, and in each as many as may.
#[tokio::test(start_paused = true)]
async fn no_more_runs_begin_in_a_second_than_the_throttle_says() {
    let turnstile = Turnstile::default();
    let count = turnstile.clone();
    let made = Place::memory().host(&["note", "wrapped-note"]).with(|host| {
        host.throttle_per_second(10)
            .middleware(move |delivery: Delivery, next: Next| count.clone().count(delivery, next))
    });
    let host = made.start_virtually().await;
    for n in 0..20 {
        host.host.bus().send(Note(n.to_string())).await.expect("sent");
        host.host.bus().send(WrappedNote(n.to_string())).await.expect("sent");
    }
    host.host.settled().await;
    let begun = turnstile.0.lock().begun.clone();
    assert_eq!(begun.len(), 40);
    for window in begun.windows(11) {
        assert!(window[10] - window[0] >= Duration::from_secs(1), "{begun:?}");
    }
    assert!(begun[39] - begun[0] < Duration::from_millis(3_500), "{begun:?}");
}

/// M16, M18: what waits for its turn when the host is asked to stop is given back at once, as if it had never been claimed,
/// and neither it nor what runs is in the other's way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_gives_back_at_once_what_waits_for_the_throttle() {
    for place in Place::each() {
        let made = place.host(&["note", "relaxed"]).with(|host| host.throttle(1));
        let mut host = made.answering(|_| Answer::Sleep(Duration::from_millis(500))).start().await;
        host.handle.bus().send(Note("runs".into())).await.expect("sent");
        host.seen().await;
        for n in 0..5 {
            host.handle.bus().send(Note(n.to_string())).await.expect("sent");
        }
        host.handle.bus().send(Relaxed("waits".into())).await.expect("sent");
        host.until("all are claimed", "note", |depth| depth.in_flight == 6).await;
        host.until("that of the singleton too", "relaxed", |depth| depth.in_flight == 1).await;
        let began = Instant::now();
        host.stop().await;
        assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
        assert_eq!(host.seen_so_far().len(), 0, "nothing was begun any more");

        let mut other = place.host(&["note", "relaxed"]).start().await;
        for _ in 0..6 {
            assert_eq!(other.seen().await.count, 1, "what waited was not counted, and what ran is done");
        }
        other.stop().await;
    }
}

/// A singleton that waits for its turn for longer than its lock lasts keeps the lock, and runs under the same fence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_singleton_that_waits_for_the_throttle_keeps_its_lock() {
    let place = Place::sqlite();
    let lease = Duration::from_secs(2);
    let made = place.host(&["note", "relaxed"]).with(|host| {
        let mut config = bus::host::config::Config::default();
        config.lock_lease = Some(lease);
        let config =
            config.with_transport("default", &place.url).and_then(|config| config.with_locks("default"));
        host.config(config.expect("a configuration")).throttle(1)
    });
    let mut host = made
        .answering(move |seen| if seen.at == "note" { Answer::Sleep(lease * 2) } else { Answer::Done })
        .start()
        .await;
    let fence = in_time("the lock is held", async {
        loop {
            let health = host.handle.health();
            let relaxed = health.processors.iter().find(|one| one.name == "relaxed").expect("it is shown");
            if let Some(fence) = relaxed.lock.and_then(|lock| lock.fence) {
                return fence.get();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    host.handle.bus().send(Note("holds the only permit".into())).await.expect("sent");
    host.seen().await;
    host.handle.bus().send(Relaxed("waits".into())).await.expect("sent");
    let began = Instant::now();
    let seen = host.seen().await;
    assert_eq!((seen.at, seen.fence), ("relaxed", Some(fence)));
    let waited = began.elapsed();
    assert!(waited > lease && waited < PATIENCE, "it waited {waited:?}");
    host.stop().await;
}

/// Health is red, for every processor, while runs that cannot be dropped hold all permits: nothing is begun any more.
#[tokio::test]
async fn a_throttle_whose_permits_are_held_for_ever_is_no_health() {
    let file = tempfile::tempdir().expect("a directory");
    let text = "[processors.note]\nmessage_lock_timeout = \"1s\"\nlease = \"1s\"\n";
    std::fs::write(file.path().join("bus.toml"), text).expect("written");
    let config = Config::read(file.path(), std::iter::empty::<(String, String)>()).expect("it is sound");
    let (lets_go, goes) = tokio::sync::watch::channel(false);
    let place = Place::memory();
    let config = config.with_transport("default", &place.url).expect("a configuration");
    let made = place.host(&["note", "wrapped-note"]).with(|host| {
        host.config(config).throttle(1).middleware(move |delivery: Delivery, next: Next| {
            let mut goes = goes.clone();
            async move {
                // A middleware's own time is not bounded.
                let _ = goes.wait_for(|goes| *goes).await;
                next.run(delivery).await
            }
        })
    });
    let host = made.start().await;
    host.handle.bus().send(Note("kept".to_owned())).await.expect("sent");
    until_true("red", || !host.handle.health().is_green()).await;
    assert!(host.handle.health().processors.iter().all(|processor| processor.trouble.is_some()));
    lets_go.send(true).expect("somebody waits");
    until_true("green", || host.handle.health().is_green()).await;
    host.stop().await;
}
