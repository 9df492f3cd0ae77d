//! Panics: of handlers, of middleware, of errors that are shown, of backends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use bus::message::{Delivery, Verdict};
use bus::pipeline::Next;
use bus::pump::PumpEnd;

use crate::Runs;
use crate::harness::{Call, Panicking, Setup, Store};

/// A backend that panics ends its pump, so that whoever started it can start another; it does not leave one behind that
/// claims nothing, settles nothing and keeps all it has for ever.
#[tokio::test(start_paused = true)]
async fn a_panic_of_the_backend_ends_the_pump_and_the_messages_come_back() {
    for call in [Call::Receive, Call::Settle, Call::Extend] {
        let store = Store::fresh().await;
        store.send(3).await;
        let lease = Duration::from_secs(3);
        let consumer = Arc::new(Panicking::new(store.consumer(lease).await, call));
        let mut pump = Setup::new(2, 0)
            .lease(lease)
            .consumer(consumer)
            .start(&store, |_| async {
                tokio::time::sleep(Duration::from_secs(2)).await;
                Verdict::Complete
            })
            .await;
        let ended = tokio::time::timeout(Duration::from_secs(60), pump.pump.join()).await;
        assert_eq!(ended.unwrap_or_else(|_| panic!("{call:?}: it goes on for ever")), PumpEnd::Failed);
        assert!(!pump.signals.stop.is_cancelled(), "the others go on");
        tokio::time::sleep(lease).await;
        let (healthy, left) = (Setup::new(2, 0), store.depth().await);
        assert!(left.ready + left.in_flight > 0, "{call:?}: {left:?}");
        let healthy = healthy.start(&store, |_| async { Verdict::Complete }).await;
        store.until("empty", |depth| depth == bus::contract::Depth::default()).await;
        healthy.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_middleware_that_panics_fails_its_message_alone() {
    let store = Store::fresh().await;
    store.send(3).await;
    let mut setup = Setup::new(1, 0);
    setup.middleware.push(Arc::new(|delivery: Delivery, next: Next| async move {
        assert_ne!(&delivery.envelope.body[..], b"1", "this body breaks the middleware");
        next.run(delivery).await
    }));
    let pump = setup.start(&store, |_| async { Verdict::Complete }).await;
    store
        .until("one dead, the others done", |depth| {
            depth.dead == 1 && depth.ready + depth.in_flight + depth.delayed == 0
        })
        .await;
    pump.stop().await;
}

/// An error that panics when it is shown costs its message an attempt like any other, and neither the worker nor, later, a
/// task of the store.
#[tokio::test(start_paused = true)]
async fn an_error_that_cannot_be_shown_is_a_failure_like_any_other() {
    #[derive(Debug)]
    struct Unspeakable;
    impl std::fmt::Display for Unspeakable {
        fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            Err(std::fmt::Error)
        }
    }
    impl std::error::Error for Unspeakable {}
    let store = Store::fresh().await;
    store.send(3).await;
    let mut setup = Setup::new(1, 0);
    setup.middleware.push(Arc::new(|delivery: Delivery, next: Next| async move {
        if delivery.envelope.body[..] == *b"1" {
            let error = bus::Error::new(bus::ErrorKind::Handler, "it failed").caused_by(Unspeakable);
            return Verdict::Retry { after: None, error };
        }
        next.run(delivery).await
    }));
    let pump = setup.start(&store, |_| async { Verdict::Complete }).await;
    store
        .until("one dead, the others done", |depth| {
            depth.dead == 1 && depth.ready + depth.in_flight + depth.delayed == 0
        })
        .await;
    assert_eq!(pump.stop().await, PumpEnd::Clean);
}

/// What a handler holds when its time is up may panic while it is dropped: that is a failure like any other, and
/// neither the message nor the worker is lost.
#[tokio::test(start_paused = true)]
async fn a_panic_while_a_late_run_is_dropped_is_a_failure_too() {
    struct Grudge;
    impl Drop for Grudge {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    let store = Store::fresh().await;
    store.send(3).await;
    let runs = Runs::default();
    let seen = runs.clone();
    let mut setup = Setup::new(1, 0);
    setup.settings.message_lock_timeout = Duration::from_secs(5);
    let pump = setup
        .start(&store, move |delivery| {
            let first = seen.count(&delivery) == 1;
            async move {
                if first {
                    let _grudge = Grudge;
                    std::future::pending::<()>().await;
                }
                assert_eq!(delivery.failures, 1);
                Verdict::Complete
            }
        })
        .await;
    store.until("empty", |depth| depth == bus::contract::Depth::default()).await;
    assert_eq!(runs.all(), [2, 2, 2]);
    pump.stop().await;
}

/// That a pump has failed means that nothing of it runs any more: a singleton's lock is given up by it.
#[tokio::test(start_paused = true)]
async fn a_pump_whose_backend_panicked_waits_for_what_runs() {
    let store = Store::fresh().await;
    store.send(1).await;
    let consumer =
        Arc::new(Panicking::new(store.consumer(Duration::from_secs(30)).await, Call::SecondReceive));
    let ended = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&ended);
    let mut pump = Setup::new(2, 0)
        .consumer(consumer)
        .start(&store, move |_| {
            let tells = Arc::clone(&tells);
            async move {
                tokio::time::sleep(Duration::from_secs(20)).await;
                tells.store(true, SeqCst);
                Verdict::Complete
            }
        })
        .await;
    assert_eq!(pump.pump.join().await, PumpEnd::Failed);
    assert!(ended.load(SeqCst), "it still ran");
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_and_the_others_go_on() {
    let store = Store::fresh().await;
    let ids = store.send(20).await;
    let poison = ids[3];
    let runs = Runs::default();
    let seen = runs.clone();
    let pump = Setup::new(2, 5)
        .start(&store, move |delivery| {
            seen.count(&delivery);
            async move {
                assert_ne!(delivery.envelope.id, poison, "this one is not for us");
                Verdict::Complete
            }
        })
        .await;
    store
        .until("one dead, all else done", |depth| {
            depth.dead == 1 && depth.ready + depth.in_flight + depth.delayed == 0
        })
        .await;
    pump.stop().await;
    assert_eq!(runs.all().iter().sum::<usize>(), 19 + 5);
    let dead = store.inspect().dead_letters(&store.endpoint, None, 10).await.unwrap();
    assert!(
        dead[0].error.as_deref().is_some_and(|error| error.contains("this one is not for us")),
        "{dead:?}"
    );
}
