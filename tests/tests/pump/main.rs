//! What a pump promises, over a memory store with paused time.

mod harness;
mod panics;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bus::Term;
use bus::contract::Settlement;
use bus::message::{Delivery, MessageId, Verdict};
use bus::pipeline::{Middleware, Next};
use bus::pump::PumpEnd;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use harness::{Faulty, Setup, Store, failure};

/// How often each message was run.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<BTreeMap<MessageId, usize>>>);

impl Runs {
    fn count(&self, delivery: &Delivery) -> usize {
        let mut runs = self.0.lock();
        let count = runs.entry(delivery.envelope.id).or_default();
        *count += 1;
        *count
    }

    /// A handler that takes this long and succeeds.
    fn completing_after(
        &self,
        time: Duration,
    ) -> impl Fn(Delivery) -> Pin<Box<dyn Future<Output = Verdict> + Send>> + Send + Sync + 'static {
        let runs = self.clone();
        move |delivery| {
            runs.count(&delivery);
            Box::pin(async move {
                tokio::time::sleep(time).await;
                Verdict::Complete
            })
        }
    }

    fn all(&self) -> Vec<usize> {
        self.0.lock().values().copied().collect()
    }
}

#[tokio::test(start_paused = true)]
async fn every_message_is_run_once_and_settled() {
    let store = Store::fresh().await;
    store.send(1000).await;
    let runs = Runs::default();
    let pump = Setup::new(16, 64).start(&store, runs.completing_after(Duration::ZERO)).await;
    store.until("empty", |depth| depth == bus::contract::Depth::default()).await;
    assert_eq!(pump.stop().await, PumpEnd::Clean);
    assert_eq!(runs.all(), vec![1; 1000]);
}

#[tokio::test(start_paused = true)]
async fn as_many_run_at_once_as_allowed_and_no_more() {
    let store = Store::fresh().await;
    store.send(40).await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (running, peak) = (Arc::clone(&now), Arc::clone(&most));
    let pump = Setup::new(4, 10)
        .start(&store, move |_| {
            let running = Arc::clone(&running);
            peak.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                running.fetch_sub(1, SeqCst);
                Verdict::Complete
            }
        })
        .await;
    let started = tokio::time::Instant::now();
    store.until("empty", |depth| depth == bus::contract::Depth::default()).await;
    assert_eq!(most.load(SeqCst), 4);
    // Forty seconds of work, four at a time: were a slot left empty, it would take longer.
    assert!(started.elapsed() < Duration::from_secs(11), "{:?}", started.elapsed());
    pump.stop().await;
}

/// What is claimed ahead is bounded in bytes too, and a message that is larger than the bound passes all the same.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_worker_is_bounded_in_bytes() {
    const MIB: usize = 1 << 20;
    let store = Store::fresh().await;
    let (small, huge) = (bytes::Bytes::from(vec![7; MIB]), bytes::Bytes::from(vec![7; 16 * MIB]));
    store.send_bodies(std::iter::repeat_n(small, 300).chain(std::iter::repeat_n(huge, 20))).await;
    let gate = Arc::new(Semaphore::new(0));
    let (open, runs) = (Arc::clone(&gate), Runs::default());
    let counts = runs.clone();
    let pump = Setup::new(2, 1000)
        .start(&store, move |delivery| {
            counts.count(&delivery);
            let open = Arc::clone(&open);
            async move {
                // Every run lets the next one begin, so that the bound is looked at all the way.
                open.acquire().await.expect("open").forget();
                Verdict::Complete
            }
        })
        .await;
    // 64 MiB may wait, of which the last receive brought up to 16 and a message; two run.
    store.until("no more is claimed", |depth| depth.in_flight >= 66).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let claimed = store.depth().await.in_flight;
    assert!((66..=66 + 17).contains(&claimed), "{claimed} MiB are claimed");
    for done in 1..=320 {
        gate.add_permits(1);
        store.until("one is done", |depth| depth.ready + depth.in_flight == 320 - done).await;
        let depth = store.depth().await;
        assert!(depth.in_flight <= 66 + 17, "{done} are done, and {depth:?}");
    }
    assert_eq!(runs.all(), vec![1; 320]);
    pump.stop().await;
}

/// The bound is on what waits, not on what runs: as many run as are allowed, however large.
#[tokio::test(start_paused = true)]
async fn large_messages_keep_no_worker_idle() {
    let store = Store::fresh().await;
    let large = bytes::Bytes::from(vec![7; 8 << 20]);
    store.send_bodies(std::iter::repeat_n(large, 32)).await;
    let runs = Runs::default();
    let started = tokio::time::Instant::now();
    let pump = Setup::new(16, 0).start(&store, runs.completing_after(Duration::from_secs(1))).await;
    store.until("empty", |depth| depth == bus::contract::Depth::default()).await;
    assert!(started.elapsed() < Duration::from_millis(2_500), "twice sixteen: {:?}", started.elapsed());
    assert_eq!(runs.all(), vec![1; 32]);
    pump.stop().await;
}

/// M16, M18, S35: a stop overtakes what is queued, waits for what runs, and what was never started counts as nothing.
#[tokio::test(start_paused = true)]
async fn stopping_finishes_what_runs_and_gives_back_the_rest_uncounted() {
    let store = Store::fresh().await;
    store.send(1100).await;
    let (gate, started) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let (open, count) = (Arc::clone(&gate), Arc::clone(&started));
    let mut pump = Setup::new(100, 1000)
        .start(&store, move |_| {
            let open = Arc::clone(&open);
            count.fetch_add(1, SeqCst);
            async move {
                let _ = open.acquire().await;
                Verdict::Complete
            }
        })
        .await;
    store.until("all claimed", |depth| depth.in_flight == 1100).await;
    while started.load(SeqCst) < 100 {
        tokio::task::yield_now().await;
    }

    pump.signals.stop.cancel();
    store
        .until("the prefetched are back while the rest still runs", |d| d.ready == 1000 && d.in_flight == 100)
        .await;
    let others = store.receive_all().await;
    assert_eq!(others.len(), 1000);
    assert!(others.iter().all(|delivery| delivery.delivery_count == 1 && delivery.crashes == 0));
    gate.add_permits(100);
    assert_eq!(pump.pump.join().await, PumpEnd::Clean);
    assert_eq!(started.load(SeqCst), 100, "nothing was started after the stop");
    assert_eq!(store.depth().await.in_flight, 1000, "the hundred are settled, the others' claims stand");
}

/// M3: a handler that runs for many leases keeps its message.
#[tokio::test(start_paused = true)]
async fn a_long_run_keeps_its_claim() {
    let store = Store::fresh().await;
    store.send(1).await;
    let runs = Runs::default();
    let pump = Setup::new(4, 0)
        .lease(Duration::from_secs(1))
        .start(&store, runs.completing_after(Duration::from_secs(30)))
        .await;
    store.until("empty", |depth| depth == bus::contract::Depth::default()).await;
    assert_eq!(runs.all(), [1]);
    pump.stop().await;
}

/// M2: what waits in the buffer for many leases is still ours when its turn comes, and runs once.
#[tokio::test(start_paused = true)]
async fn what_is_prefetched_keeps_its_claim() {
    let store = Store::fresh().await;
    store.send(10).await;
    let runs = Runs::default();
    let pump = Setup::new(1, 20)
        .lease(Duration::from_secs(1))
        .start(&store, runs.completing_after(Duration::from_secs(5)))
        .await;
    store.until("empty", |depth| depth == bus::contract::Depth::default()).await;
    assert_eq!(runs.all(), vec![1; 10]);
    pump.stop().await;
}

/// M2: what could not be kept alive is dropped before it starts.
#[tokio::test(start_paused = true)]
async fn a_claim_that_ran_out_in_the_buffer_is_not_started() {
    let store = Store::fresh().await;
    store.send(5).await;
    let lease = Duration::from_secs(3);
    let faulty = Arc::new(Faulty::new(store.consumer(lease).await));
    faulty.extends.store(usize::MAX, SeqCst);
    let started = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&started);
    let pump = Setup::new(1, 10)
        .lease(lease)
        .consumer(Arc::clone(&faulty) as _)
        .start(&store, move |_| {
            count.fetch_add(1, SeqCst);
            async {
                tokio::time::sleep(Duration::from_secs(10)).await;
                Verdict::Complete
            }
        })
        .await;
    // The first run takes longer than the lease of those behind it.
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(started.load(SeqCst), 1);
    pump.signals.stop.cancel();
    assert_eq!(pump.stop().await, PumpEnd::Clean);
    assert_eq!(started.load(SeqCst), 1, "the four others' claims had run out");
}

/// M4: a verdict for a claim that has passed on changes nothing.
#[tokio::test(start_paused = true)]
async fn a_lost_claim_asks_its_run_to_end_and_its_verdict_is_refused() {
    let store = Store::fresh().await;
    store.send(1).await;
    let lease = Duration::from_secs(3);
    let faulty = Arc::new(Faulty::new(store.consumer(lease).await));
    // As long as these fail, the claim is not extended; then the store says that it is lost.
    faulty.extends.store(12, SeqCst);
    let cancelled = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&cancelled);
    let pump = Setup::new(1, 0)
        .lease(lease)
        .consumer(Arc::clone(&faulty) as _)
        .start(&store, move |delivery| {
            let noted = Arc::clone(&noted);
            async move {
                delivery.scope.cancellation().cancelled().await;
                noted.store(true, SeqCst);
                Verdict::Complete
            }
        })
        .await;
    tokio::time::sleep(lease + Duration::from_millis(100)).await;
    let other = store.receive_all().await;
    assert_eq!(other.len(), 1, "the claim ran out, so another takes it");
    assert_eq!(other[0].crashes, 1);
    assert_eq!(pump.stop().await, PumpEnd::Clean);
    assert!(cancelled.load(SeqCst), "the run was told");
    assert_eq!(
        store.depth().await.in_flight,
        1,
        "the other's claim stands: the late verdict changed nothing"
    );
}

/// M21: a failing message comes back after growing pauses, and ends among the dead letters.
#[tokio::test(start_paused = true)]
async fn a_failing_message_backs_off_and_dies_at_the_limit() {
    let store = Store::fresh().await;
    store.send(1).await;
    let times = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&times);
    let pump = Setup::new(1, 0)
        .start(&store, move |_| {
            noted.lock().push(tokio::time::Instant::now());
            async { failure() }
        })
        .await;
    store.until("dead", |depth| depth.dead == 1).await;
    pump.stop().await;
    let times = times.lock().clone();
    assert_eq!(times.len(), 5);
    let pauses: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (pause, full) in pauses.iter().zip([1, 2, 4, 8]) {
        let full = Duration::from_secs(full);
        assert!(*pause >= full / 2 && *pause <= full + Duration::from_millis(100), "{pauses:?}");
    }
    let dead = store.inspect().dead_letters(&store.endpoint, None, 10).await.unwrap();
    assert_eq!(dead[0].reason, "failed 5 times");
    assert_eq!(dead[0].error.as_deref(), Some("it does not work"));
}

/// M19: a message whose claims keep ending without an outcome is run alone once, and if that ends the same way it is
/// given up on without being run.
#[tokio::test(start_paused = true)]
async fn a_message_that_crashes_its_process_is_run_alone_and_then_given_up_on() {
    let store = Store::fresh().await;
    let lease = Duration::from_secs(1);
    store.suspects(10).await;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (running, peak) = (Arc::clone(&now), Arc::clone(&most));
    let pump = Setup::new(8, 8)
        .start(&store, move |delivery| {
            assert_eq!(delivery.crashes, 5);
            let running = Arc::clone(&running);
            peak.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                running.fetch_sub(1, SeqCst);
                Verdict::Complete
            }
        })
        .await;
    store.until("all done", |depth| depth == bus::contract::Depth::default()).await;
    assert_eq!(most.load(SeqCst), 1, "each suspect ran alone");
    pump.stop().await;

    // The same, but one also dies in its run alone.
    let poison = store.send(1).await[0];
    for crash in 0..6 {
        let doomed = store.consumer(lease).await;
        let stop = tokio_util::sync::CancellationToken::new();
        let claimed = doomed.receive(100, &stop).await.unwrap();
        if crash == 5 {
            doomed.record_alone(&claimed[0].receipt).await.unwrap();
        }
        tokio::time::sleep(lease + Duration::from_millis(10)).await;
    }
    let pump = Setup::new(8, 8).start(&store, |_| async { panic!("must not be run") }).await;
    store.until("dead", |depth| depth.dead == 1).await;
    pump.stop().await;
    let dead = store.inspect().dead_letters(&store.endpoint, None, 10).await.unwrap();
    assert_eq!((dead[0].envelope.id, dead[0].reason.as_str()), (poison, "crashed its process 6 times"));
}

/// M10, S12: however often the store fails, the pump goes on when it is back.
#[tokio::test(start_paused = true)]
async fn a_thousand_failed_receives_are_survived() {
    let store = Store::fresh().await;
    let faulty = Arc::new(Faulty::new(store.consumer(Duration::from_secs(30)).await));
    faulty.receives.store(1000, SeqCst);
    let pump = Setup::new(1, 0)
        .consumer(Arc::clone(&faulty) as _)
        .start(&store, |_| async { Verdict::Complete })
        .await;
    store.send(1).await;
    let patience = Duration::from_secs(1000 * 11);
    tokio::time::timeout(patience, async {
        while store.depth().await != bus::contract::Depth::default() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
    .await
    .expect("the pump has recovered");
    pump.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_verdict_that_could_not_be_stored_is_stored_later_and_nothing_runs_twice() {
    let store = Store::fresh().await;
    store.send(10).await;
    let faulty = Arc::new(Faulty::new(store.consumer(Duration::from_secs(30)).await));
    faulty.settles.store(7, SeqCst);
    let runs = Runs::default();
    let pump = Setup::new(2, 2)
        .consumer(Arc::clone(&faulty) as _)
        .start(&store, runs.completing_after(Duration::ZERO))
        .await;
    store.until("empty", |depth| depth == bus::contract::Depth::default()).await;
    assert_eq!(runs.all(), vec![1; 10]);
    pump.stop().await;
}

/// A password that is being changed, a permission that is missing for a while: the work is not done again for that.
#[tokio::test(start_paused = true)]
async fn a_verdict_that_is_refused_because_of_who_asks_is_kept() {
    for kind in [bus::ErrorKind::Unavailable, bus::ErrorKind::Config] {
        let store = Store::fresh().await;
        store.send(10).await;
        let refusal = bus::Error::new(kind, "the server refused the log-in").transient(false);
        let consumer = store.consumer(Duration::from_secs(30)).await;
        let faulty = Arc::new(Faulty { refusal, ..Faulty::new(consumer) });
        // Longer than a claim lasts that is not extended.
        faulty.settles.store(100, SeqCst);
        let runs = Runs::default();
        let pump = Setup::new(2, 2)
            .consumer(Arc::clone(&faulty) as _)
            .start(&store, runs.completing_after(Duration::ZERO))
            .await;
        store.until("empty", |depth| depth == bus::contract::Depth::default()).await;
        assert_eq!(runs.all(), vec![1; 10]);
        pump.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_run_is_dropped_and_its_message_available_uncounted() {
    let store = Store::fresh().await;
    let ids = store.send(1).await;
    let marker = Arc::new(());
    let held = Arc::clone(&marker);
    let mut running = Setup::new(1, 0)
        .start(&store, move |_| {
            let held = Arc::clone(&held);
            async move {
                let _held = held;
                std::future::pending().await
            }
        })
        .await;
    store.until("running", |depth| depth.in_flight == 1).await;
    while running.pump.view().running() != ids {
        tokio::task::yield_now().await;
    }
    running.signals.stop.cancel();
    running.signals.cut.cancel();
    assert_eq!(running.pump.join().await, PumpEnd::Cut(ids));
    drop(running);
    assert_eq!(Arc::strong_count(&marker), 1, "nothing of the run is left");
    let again = store.receive_all().await;
    assert_eq!((again.len(), again[0].delivery_count), (1, 1));
}

/// S6, S13: where the store fences, it judges; where it cannot, what a run has come to after its term is discarded, and
/// its claim runs out instead of being kept alive.
#[tokio::test(start_paused = true)]
async fn a_verdict_after_the_term_is_discarded_where_the_store_cannot_fence() {
    for fenced in [true, false] {
        let store = Store::fresh().await;
        store.send(1).await;
        let term = Term::for_tests(1);
        let lease = Duration::from_secs(3);
        let late = term.clone();
        let running = Setup::new(1, 0)
            .lease(lease)
            .term(&term, fenced)
            .start(&store, move |_| {
                let term = late.clone();
                async move {
                    term.fenced_off();
                    tokio::time::sleep(lease / 2).await;
                    Verdict::Complete
                }
            })
            .await;
        store.until("running", |depth| depth.in_flight == 1).await;
        match fenced {
            true => store.until("done", |depth| depth == bus::contract::Depth::default()).await,
            false => store.until("available again", |depth| depth.ready == 1).await,
        }
        running.stop().await;
        let again = store.receive_all().await;
        assert_eq!(again.len(), usize::from(!fenced), "fenced: {fenced}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_beyond_its_time_is_dropped_and_tried_again() {
    let store = Store::fresh().await;
    store.send(1).await;
    let runs = Runs::default();
    let seen = runs.clone();
    let mut setup = Setup::new(1, 0);
    setup.settings.message_lock_timeout = Duration::from_secs(60);
    let pump = setup
        .start(&store, move |delivery| {
            let first = seen.count(&delivery) == 1;
            async move {
                if first {
                    std::future::pending::<()>().await;
                }
                assert_eq!(delivery.failures, 1);
                Verdict::Complete
            }
        })
        .await;
    store.until("empty", |depth| depth == bus::contract::Depth::default()).await;
    assert_eq!(runs.all(), [2]);
    pump.stop().await;
}

#[tokio::test(start_paused = true)]
async fn middleware_runs_in_the_order_given_and_may_answer_by_itself() {
    let store = Store::fresh().await;
    store.send(2).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let (outer, inner) = (Arc::clone(&order), Arc::clone(&order));
    let mut setup = Setup::new(1, 0);
    setup.middleware.push(Arc::new(move |delivery: Delivery, next: Next| {
        outer.lock().push("outer in");
        let outer = Arc::clone(&outer);
        async move {
            let verdict = next.run(delivery).await;
            outer.lock().push("outer out");
            verdict
        }
    }));
    setup.middleware.push(Arc::new(move |delivery: Delivery, next: Next| {
        inner.lock().push("inner");
        async move {
            match &delivery.envelope.body[..] {
                b"0" => Verdict::DeadLetter { reason: "not today".into(), error: None },
                _ => next.run(delivery).await,
            }
        }
    }));
    let noted = Arc::clone(&order);
    let pump = setup
        .start(&store, move |_| {
            noted.lock().push("handler");
            async { Verdict::Complete }
        })
        .await;
    store.until("done", |depth| depth.dead == 1 && depth.ready + depth.in_flight == 0).await;
    pump.stop().await;
    assert_eq!(
        *order.lock(),
        ["outer in", "inner", "outer out", "outer in", "inner", "handler", "outer out"]
    );
}

/// An extension that failed, of claims that have ended since, is nothing that is still wanted of the store.
#[tokio::test(start_paused = true)]
async fn an_idle_pump_waits_for_no_answer() {
    let store = Store::fresh().await;
    let lease = Duration::from_secs(30);
    let faulty = Arc::new(Faulty::new(store.consumer(lease).await));
    faulty.extends.store(1, SeqCst);
    store.send(1).await;
    let pump = Setup::new(1, 0)
        .lease(lease)
        .consumer(Arc::clone(&faulty) as Arc<dyn bus::contract::Consumer>)
        .start(&store, |_| async {
            // Beyond the first extension, and not to the second try.
            tokio::time::sleep(Duration::from_millis(10_500)).await;
            Verdict::Complete
        })
        .await;
    store.until("done", |depth| depth == bus::contract::Depth::default()).await;
    assert_eq!(faulty.extends.load(SeqCst), 0, "one has failed");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(pump.pump.view().extending().since.is_none());
    pump.stop().await;
}

/// M16, S35: a message that waits for another's run alone to end has not been started: the stop gives it back at once.
#[tokio::test(start_paused = true)]
async fn what_waits_for_a_run_alone_is_given_back_by_a_stop() {
    let store = Store::fresh().await;
    let suspect = store.suspects(1).await[0];
    let runs = Runs::default();
    let seen = runs.clone();
    let pump = Setup::new(2, 2)
        .start(&store, move |delivery| {
            seen.count(&delivery);
            async move {
                tokio::time::sleep(Duration::from_secs(10)).await;
                Verdict::Complete
            }
        })
        .await;
    while pump.pump.view().running() != [suspect] {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let other = store.send(1).await[0];
    store.until("both claimed", |depth| depth.in_flight == 2).await;
    // Long enough for a worker to have taken it, and to wait for the suspect.
    tokio::time::sleep(Duration::from_millis(100)).await;
    pump.signals.stop.cancel();
    store.until("given back", |depth| depth.ready == 1).await;
    assert_eq!(pump.pump.view().running(), [suspect], "the suspect is still at it");
    assert_eq!(pump.stop().await, PumpEnd::Clean);
    let again = store.receive_all().await;
    assert_eq!(
        again.iter().map(|one| (one.envelope.id, one.delivery_count)).collect::<Vec<_>>(),
        [(other, 1)]
    );
    assert_eq!(runs.all(), [1], "the other was not started");
}

/// A middleware, whose time is not bounded, that never lets go of a message that `is_stuck`.
fn keeping(is_stuck: impl Fn(&Delivery) -> bool + Send + Sync + 'static) -> Arc<dyn Middleware> {
    Arc::new(move |delivery: Delivery, next: Next| {
        let stuck = is_stuck(&delivery);
        async move { if stuck { std::future::pending().await } else { next.run(delivery).await } }
    })
}

/// A run that can be neither awaited nor dropped keeps no suspect from its run alone for ever, and, through it, all that
/// comes after.
#[tokio::test(start_paused = true)]
async fn what_is_stuck_keeps_no_suspect_from_its_run() {
    let store = Store::fresh().await;
    store.suspects(1).await;
    // Kept back until the other one has begun.
    let other = store.consumer(Duration::from_secs(60)).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let held = other.receive(1, &stop).await.unwrap().remove(0);
    store.send_bodies(["stuck".into()]).await;
    let (runs, mut setup) = (Runs::default(), Setup::new(3, 3));
    setup.middleware.push(keeping(|delivery| delivery.envelope.body.as_ref() == b"stuck"));
    let pump = setup.start(&store, runs.completing_after(Duration::ZERO)).await;
    while pump.pump.view().running().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    other.settle(vec![Settlement::new(held.receipt, Verdict::Release)]).await.remove(0).unwrap();
    store.send(10).await;
    store.until("only the stuck one is left", |depth| (depth.ready, depth.in_flight) == (0, 1)).await;
    assert_eq!(runs.all(), vec![1; 11]);
}

/// Nor does a suspect that is stuck while it runs alone keep everything else for ever.
#[tokio::test(start_paused = true)]
async fn a_suspect_that_is_stuck_keeps_nobody_for_ever() {
    let store = Store::fresh().await;
    let suspect = store.suspects(1).await[0];
    let (runs, mut setup) = (Runs::default(), Setup::new(3, 3));
    setup.middleware.push(keeping(move |delivery| delivery.envelope.id == suspect));
    let pump = setup.start(&store, runs.completing_after(Duration::ZERO)).await;
    while pump.pump.view().running() != [suspect] {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    store.send(10).await;
    store.until("only the stuck one is left", |depth| (depth.ready, depth.in_flight) == (0, 1)).await;
    assert_eq!(pump.pump.view().running(), [suspect]);
    assert_eq!(runs.all(), vec![1; 10]);
}

/// M21: what user code gives back without an attempt does not go round and round as fast as the store can.
#[tokio::test(start_paused = true)]
async fn what_is_released_again_and_again_comes_back_at_leisure() {
    let store = Store::fresh().await;
    store.send(1).await;
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let pump = Setup::new(1, 0)
        .start(&store, move |delivery| {
            assert_eq!(delivery.delivery_count, 1, "it counts as no attempt");
            count.fetch_add(1, SeqCst);
            async { Verdict::Release }
        })
        .await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!((5..=11).contains(&runs.load(SeqCst)), "it was run {} times", runs.load(SeqCst));
    let stopped = tokio::time::Instant::now();
    pump.stop().await;
    assert!(stopped.elapsed() < Duration::from_millis(100), "a pause does not hold a stop up");
}
