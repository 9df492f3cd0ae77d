//! Stores that are not there: at the start, and for a while in the middle. Scenarios M10, M11, M33.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bus::clock::Clock;
use bus::contract::{Depth, Ended, LockId, LockManager, OpenOptions, Scheme, StoreUrl};
use bus::host::HostBuilder;
use bus::host::config::{Config, OnStoreDown};
use bus::{ErrorKind, Host};
use bus_tests::task::Invoice;
use bus_tests::wait::{in_time, until_true};
use tokio::time::Instant;

use super::handlers::{Answer, Note, Relaxed};
use super::outage::{DEADLINE, Sky, Weather};
use super::{Embedded, Made, Place, Probe, Seen};

const FOUL: [Weather; 2] = [Weather::Refusing, Weather::Silent];

/// A host in virtual time whose default transport is under the sky, and whose other one, for invoices, is not.
async fn under(sky: &Sky, place: &Place, other: &Place) -> Made {
    let clock = Clock::tokio();
    let transport = sky.transport(&place.url, &OpenOptions::new(clock.clone())).await;
    made(Host::builder().clock(clock).transport_instance("default", transport))
        .with(|host| host.transport("billing", &other.url).only(["note", "invoice"]))
}

fn made(host: HostBuilder) -> Made {
    let (seen, shown) = tokio::sync::mpsc::unbounded_channel();
    Made { host, probe: Probe { seen, answer: Arc::new(|_: &Seen| Answer::Done) }, shown }
}

/// A store that is not there when the host starts, where that is to fail: the start names it, and consumes nothing, in
/// bounded time even where the backend itself waits for ever.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_not_there_at_the_start_fails_it_by_name_and_in_time() {
    for weather in [Weather::Refusing, Weather::Silent, Weather::Endless] {
        let (place, other, sky) = (Place::memory(), Place::memory(), Sky::new(Weather::Fair));
        let waiting = under(&sky, &place, &other).await.start().await;
        waiting.stop().await;
        let producer = Host::builder().transport("billing", &other.url).connect().await.expect("connected");
        producer.bus().send(Invoice(7)).await.expect("sent");

        let host = under(&sky, &place, &other).await.with(|host| host.on_store_down(OnStoreDown::Fail));
        sky.becomes(weather);
        let probe = host.probe.clone();
        let began = Instant::now();
        let refused = host.host.provide(probe).build().expect("sound").start().await.expect_err("not there");
        assert!(began.elapsed() <= Duration::from_secs(60), "{weather:?}: it took {:?}", began.elapsed());
        let text = refused.to_string();
        assert!(text.contains("transport: default"), "{weather:?}: {text}");
        let kind = if weather == Weather::Refusing { ErrorKind::Unavailable } else { ErrorKind::Timeout };
        assert_eq!(refused.kind(), kind, "{weather:?}");
        let there = producer.inspect("billing").expect("it can be looked into");
        let invoices = bus::Endpoint::queue("invoice").expect("an endpoint");
        assert_eq!(there.depth(&invoices).await.expect("answered"), Depth::new(1, 0, 0, 0), "{weather:?}");
    }
}

/// M10: a store that is not there when the host starts is waited for, and what needs it begins when it comes; the others
/// begin at once. It makes no difference how it is not there.
#[tokio::test(start_paused = true)]
async fn a_store_that_is_not_there_at_the_start_is_waited_for_and_the_others_begin() {
    for (weather, longest) in [
        (Weather::Refusing, Duration::from_secs(5)),
        (Weather::Silent, DEADLINE + Duration::from_secs(5)),
        // The attempt that is under way is given up only after 55 s.
        (Weather::Endless, Duration::from_secs(60)),
    ] {
        let (place, other, sky) = (Place::memory(), Place::memory(), Sky::new(Weather::Fair));
        let host = under(&sky, &place, &other).await;
        sky.becomes(weather);
        let began = Instant::now();
        let mut host = host.start().await;
        assert!(began.elapsed() <= Duration::from_secs(5), "{weather:?}: it took {:?}", began.elapsed());
        assert_eq!(host.handle.waiting_for(), ["default"], "{weather:?}");
        let bus = host.handle.bus().clone();
        for n in 0..3 {
            bus.send(Invoice(n)).await.expect("the other store is there");
            assert_eq!(host.seen().await.at, "invoice");
            let refused = bus.send(Note("too early".into())).await.expect_err("not there");
            assert_eq!(refused.kind(), ErrorKind::Unavailable, "{weather:?}: {refused:?}");
            let blind = host.handle.inspect("default").err().expect("not there");
            assert_eq!(blind.kind(), ErrorKind::Unavailable, "{weather:?}: {blind:?}");
            tokio::time::sleep(Duration::from_secs(3600)).await;
        }

        sky.becomes(Weather::Fair);
        let back = Instant::now();
        while !host.handle.waiting_for().is_empty() {
            assert!(back.elapsed() <= longest, "{weather:?}: {:?}", back.elapsed());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bus.send(Note("in time".into())).await.expect("sent");
        assert_eq!(host.seen().await.text, "in time");
        host.until_drained("note").await;
        host.stop().await;
    }
}

/// A stop does not wait for a store that is waited for.
#[tokio::test(start_paused = true)]
async fn a_stop_while_a_store_is_waited_for_ends_at_once() {
    for weather in [Weather::Refusing, Weather::Silent, Weather::Endless] {
        let (place, other, sky) = (Place::memory(), Place::memory(), Sky::new(Weather::Fair));
        let host = under(&sky, &place, &other).await;
        sky.becomes(weather);
        let host = host.start().await;
        let asked = Instant::now();
        host.stop().await;
        assert!(asked.elapsed() <= Duration::from_secs(2), "{weather:?}: it took {:?}", asked.elapsed());
    }
}

/// The wait may have a limit: the host then ends, and names the store and what it said last.
#[tokio::test(start_paused = true)]
async fn a_wait_with_a_limit_ends_the_host_by_name() {
    for weather in [Weather::Refusing, Weather::Silent, Weather::Endless] {
        let limit = Duration::from_secs(120);
        let (place, other, sky) = (Place::memory(), Place::memory(), Sky::new(Weather::Fair));
        let host = under(&sky, &place, &other).await.with(|host| host.store_wait_limit(limit));
        sky.becomes(weather);
        let began = Instant::now();
        let host = host.start().await;
        let ended = host.handle.wait().await.expect_err("the store has not come");
        assert!(began.elapsed() >= limit, "{weather:?}: {:?}", began.elapsed());
        assert!(began.elapsed() <= limit + Duration::from_secs(5), "{weather:?}: {:?}", began.elapsed());
        let text = format!("{ended:?}");
        for words in ["transport: default", "store_wait_limit"] {
            assert!(text.contains(words), "{weather:?}: {words} is missing from {text}");
        }
        assert_eq!(text.contains("connection refused"), weather == Weather::Refusing, "{text}");
    }
}

/// M10, M33: a store that is away for minutes or for days is used again as soon as it is back, and meanwhile the others
/// go on, sends are refused, and nothing ends.
#[tokio::test(start_paused = true)]
async fn a_store_that_was_away_is_used_again_and_the_others_go_on() {
    for weather in FOUL {
        for away in [Duration::from_secs(300), Duration::from_secs(3 * 24 * 3600)] {
            let (place, other, sky) = (Place::memory(), Place::memory(), Sky::new(Weather::Fair));
            let mut host = under(&sky, &place, &other).await.start().await;
            let bus = host.handle.bus().clone();
            bus.send(Note("before".into())).await.expect("sent");
            assert_eq!(host.seen().await.text, "before");

            sky.becomes(weather);
            let gone = Instant::now();
            for n in 0..3 {
                bus.send(Invoice(n)).await.expect("the other store is there");
                assert_eq!(host.seen().await.at, "invoice");
                let refused = bus.send(Note("meanwhile".into())).await.expect_err("not there");
                assert!(refused.is_transient(), "{weather:?}: {refused:?}");
                tokio::time::sleep(away / 3).await;
            }
            assert!(gone.elapsed() >= away);

            sky.becomes(Weather::Fair);
            let back = Instant::now();
            bus.send(Note("after".into())).await.expect("sent");
            assert_eq!(host.seen().await.text, "after");
            // The longest pause between two tries, and one try that was under way.
            assert!(
                back.elapsed() <= Duration::from_secs(10) + DEADLINE,
                "{weather:?}: {:?}",
                back.elapsed()
            );
            host.until_drained("note").await;
            assert_eq!(host.depth("note").await.dead, 0);
            host.stop().await;
        }
    }
}

/// M11: a store that goes away while a handler works: what it says is stored later, or the message comes again; what was
/// claimed ahead is not lost, and nothing is dead for it.
#[tokio::test(start_paused = true)]
async fn what_ran_when_its_store_went_away_is_done_in_the_end() {
    for weather in FOUL {
        // Within the claims' lease, and far beyond it.
        for away in [Duration::from_secs(5), Duration::from_secs(600)] {
            let (place, other, sky) = (Place::memory(), Place::memory(), Sky::new(Weather::Fair));
            let runs = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&runs);
            let answer = move |seen: &Seen| match seen.text.starts_with("slow") {
                true => {
                    count.fetch_add(1, SeqCst);
                    Answer::Sleep(Duration::from_secs(2))
                }
                false => Answer::Done,
            };
            let mut host = under(&sky, &place, &other).await.answering(answer).start().await;
            let bus = host.handle.bus().clone();
            let slow = (0..40).map(|n| Note(format!("slow {n}")));
            for sent in bus.send_all(slow).await {
                sent.expect("sent");
            }
            host.seen().await;
            host.until("all are claimed", "note", |depth| depth.in_flight == 40).await;
            sky.becomes(weather);
            tokio::time::sleep(away).await;
            sky.becomes(Weather::Fair);
            host.until_drained("note").await;
            assert_eq!(host.depth("note").await, Depth::default(), "{weather:?} for {away:?}");
            let runs = runs.load(SeqCst);
            assert!((40..=80).contains(&runs), "{weather:?} for {away:?}: {runs} runs");
            if away < Duration::from_secs(30) {
                assert_eq!(runs, 40, "{weather:?}: within the lease nothing is run twice");
            }
            host.stop().await;
        }
    }
}

/// A stop while the store is away ends in bounded time, and the messages are there when it is back.
#[tokio::test(start_paused = true)]
async fn a_stop_while_the_store_is_away_is_bounded() {
    for weather in [Weather::Refusing, Weather::Silent, Weather::Endless] {
        let (place, other, sky) = (Place::memory(), Place::memory(), Sky::new(Weather::Fair));
        let mut host = under(&sky, &place, &other).await.answering(|_| Answer::Sleep(Duration::from_secs(1)));
        host = host.with(|host| host.shutdown_grace_period(Duration::from_secs(5)));
        let mut host = host.start().await;
        host.handle.bus().send(Note("in the middle".into())).await.expect("sent");
        host.seen().await;
        sky.becomes(weather);
        tokio::time::sleep(Duration::from_secs(2)).await;
        let asked = Instant::now();
        let ended = host.handle.stop().await;
        assert!(asked.elapsed() <= Duration::from_secs(5 + 10), "{weather:?}: it took {:?}", asked.elapsed());
        let refused = ended.expect_err("its verdict is not with the store");
        assert!(
            refused.to_string().contains("come back when their claims run out"),
            "{weather:?}: {refused}"
        );

        sky.becomes(Weather::Fair);
        let mut host = under(&sky, &place, &other).await.start().await;
        assert_eq!(host.seen().await.text, "in the middle");
        host.until_drained("note").await;
        host.stop().await;
    }
}

/// A singleton over the place, in real time, with its messages and its locks under skies of their own.
async fn singleton(place: &Place, messages: &Sky, locks: &Sky) -> Embedded {
    let mut config = Config::default();
    config.lock_lease = Some(Duration::from_secs(1));
    singleton_with(config, place, messages, locks).await
}

async fn singleton_with(config: Config, place: &Place, messages: &Sky, locks: &Sky) -> Embedded {
    let transport = messages.transport(&place.url, &OpenOptions::default()).await;
    let locks = locks.locks(&place.url).await;
    let host = Host::builder().config(config).transport_instance("default", transport).locks(locks);
    made(host.only(["relaxed"])).start().await
}

/// Locks that are not there when the host starts: it starts, and the singleton begins when they come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_that_are_not_there_at_the_start_are_waited_for() {
    for place in Place::each() {
        let (messages, locks) = (Sky::new(Weather::Fair), Sky::new(Weather::Refusing));
        let mut host = singleton(&place, &messages, &locks).await;
        assert_eq!(host.handle.waiting_for(), ["locks"]);
        host.handle.bus().send(Relaxed("for later".into())).await.expect("sent");
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert!(host.seen_so_far().is_empty(), "nobody holds the lock");
        locks.becomes(Weather::Fair);
        assert_eq!(in_time("it begins", host.seen()).await.text, "for later");
        assert!(host.handle.waiting_for().is_empty());
        host.until_drained("relaxed").await;
        host.stop().await;
    }
}

/// M10, S12, S17: a singleton whose messages are away keeps its lock or wins it again, and goes on; one whose locks are
/// away stops in time, and is the holder again under a new fence.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_singleton_goes_on_after_its_messages_or_its_locks_were_away() {
    const AWAY: Duration = Duration::from_secs(3);
    for place in Place::each() {
        for foul in ["messages", "locks", "both"] {
            let (messages, locks) = (Sky::new(Weather::Fair), Sky::new(Weather::Fair));
            let mut host = singleton(&place, &messages, &locks).await;
            let bus = host.handle.bus().clone();
            bus.send(Relaxed(format!("before {foul}"))).await.expect("sent");
            let before = host.seen().await;
            host.until_drained("relaxed").await;
            for (sky, name) in [(&messages, "messages"), (&locks, "locks")] {
                if [name, "both"].contains(&foul) {
                    sky.becomes(Weather::Refusing);
                }
            }
            // Three leases long.
            tokio::time::sleep(AWAY).await;
            messages.becomes(Weather::Fair);
            bus.send(Relaxed(format!("after {foul}"))).await.expect("sent");
            if foul != "messages" {
                tokio::time::sleep(Duration::from_millis(200)).await;
                assert!(host.seen_so_far().is_empty(), "{foul}: nobody holds the lock");
            }
            locks.becomes(Weather::Fair);
            let after = in_time("it goes on", host.seen()).await;
            assert_eq!(after.text, format!("after {foul}"));
            match foul {
                "messages" => assert!(after.fence >= before.fence, "{foul}: {before:?}, {after:?}"),
                _ => assert!(after.fence > before.fence, "{foul}: {before:?}, {after:?}"),
            }
            host.until_drained("relaxed").await;
            assert_eq!(host.depth("relaxed").await.dead, 0);
            host.stop().await;
        }
    }
}

/// A lock store that does not answer keeps no stop for a whole lease: when the run has ended, its lock is tried to be given
/// back for as long as the grace period goes on, and is then left to its lease. Nothing has been lost, so that it is no
/// error; and a store that comes back in time ends the wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_while_the_locks_are_away_is_bounded() {
    const GRACE: Duration = Duration::from_secs(4);
    for (weather, comes_back) in [
        (Weather::Refusing, false),
        (Weather::Silent, false),
        (Weather::Endless, false),
        (Weather::Refusing, true),
    ] {
        let (place, messages, locks) = (Place::memory(), Sky::new(Weather::Fair), Sky::new(Weather::Fair));
        let seen = locks_of(&place).await;
        let mut config = Config::default();
        config.lock_lease = Some(Duration::from_secs(60));
        config.shutdown_grace_period = if comes_back { Duration::from_secs(120) } else { GRACE };
        let mut host = singleton_with(config, &place, &messages, &locks).await;
        host.handle.bus().send(Relaxed("done".into())).await.expect("sent");
        host.seen().await;
        host.until_drained("relaxed").await;
        locks.becomes(weather);
        let asked = Instant::now();
        let (ended, ()) = tokio::join!(host.handle.stop(), async {
            if comes_back {
                tokio::time::sleep(Duration::from_secs(1)).await;
                locks.becomes(Weather::Fair);
            }
        });
        ended.unwrap_or_else(|error| panic!("{weather:?}: {error:?}"));
        let record =
            seen.inspect(&LockId::from("queue/relaxed")).await.expect("answered").expect("it was taken");
        if comes_back {
            assert_eq!(record.ended, Some(Ended::Clean), "{record:?}");
            assert!(asked.elapsed() < Duration::from_secs(60), "it took {:?}", asked.elapsed());
        } else {
            assert_eq!(record.ended, None, "{weather:?}: {record:?}");
            let bound = GRACE + Duration::from_secs(10);
            assert!(asked.elapsed() <= bound, "{weather:?}: it took {:?}", asked.elapsed());
        }
    }
}

/// The locks at `url`, under no sky.
async fn locks_of(place: &Place) -> Arc<dyn LockManager> {
    let url = StoreUrl::parse(&place.url).expect("a URL");
    let open = Scheme::find(url.scheme()).expect("a scheme").locks.expect("it has locks");
    open(&url, &OpenOptions::default()).await.expect("it opens")
}

/// A backend that panics where nobody catches it ends the host, which says so: else it would go on without its processor.
#[tokio::test(start_paused = true)]
async fn a_part_of_the_host_that_panics_ends_it() {
    let (place, other, sky) = (Place::memory(), Place::memory(), Sky::new(Weather::Fair));
    let mut host = under(&sky, &place, &other).await.start().await;
    host.handle.bus().send(Note("fair".into())).await.expect("sent");
    assert_eq!(host.seen().await.text, "fair");
    // First the pump does, and then whatever would open another.
    sky.becomes(Weather::Panicking);
    let ended = in_time("it ends", host.handle.wait()).await.expect_err("it has lost a part");
    assert_eq!(ended.kind(), ErrorKind::Internal, "{ended:?}");
    assert!(ended.to_string().contains("panicked"), "{ended}");
    assert!(sky.struck() >= 2);
}

/// A candidate whose task on the keeper panics competes again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_singleton_competes_again_after_a_panic_on_the_keeper() {
    let (place, messages, locks) = (Place::memory(), Sky::new(Weather::Fair), Sky::new(Weather::Panicking));
    let mut host = singleton(&place, &messages, &locks).await;
    host.handle.bus().send(Relaxed("later".into())).await.expect("sent");
    until_true("its task panics", || locks.struck() > 0).await;
    locks.becomes(Weather::Fair);
    assert_eq!(in_time("it is run", host.seen()).await.text, "later");
    host.until_drained("relaxed").await;
    host.stop().await;
}
