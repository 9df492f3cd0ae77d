//! What a plugin has of its host.

use std::sync::Arc;
use std::time::Duration;

use bus::contract::{BoxFuture, LockId};
use bus::host::health::{LockState, Phase};
use bus::host::{Plugin, PluginContext};
use bus::singleton::HandOver;
use bus::{ErrorKind, Result};
use bus_tests::wait::in_time;
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use super::handlers::Note;
use super::{Host, Place};

/// Notes what it has of its host when it starts, and sends when it stops.
#[derive(Clone)]
struct Curious {
    seen: UnboundedSender<String>,
    host: Arc<Mutex<Option<PluginContext>>>,
}

impl Curious {
    fn say(&self, what: impl Into<String>) {
        // A test that has seen enough looks away.
        let _ = self.seen.send(what.into());
    }
}

impl Plugin for Curious {
    fn start(&self, host: PluginContext) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let value = host.get::<u64>();
            self.say(format!("{value:?}, {:?}", host.health().phase));
            host.bus().send(Note("from the start".into())).await?;
            *self.host.lock() = Some(host);
            Ok(())
        })
    }

    fn stop(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let host = self.host.lock().take();
            if let Some(host) = host {
                self.say(format!("{:?}, {}", host.health().phase, host.stopping().is_cancelled()));
                host.bus().send(Note("from the end".into())).await?;
            }
            Ok(())
        })
    }
}

/// It sees the host's values and health, is told, and sends until its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_has_the_hosts_bus_values_health_and_stop() {
    for place in Place::each() {
        let (seen, mut shown) = unbounded_channel();
        let curious = Curious { seen, host: Arc::default() };
        let made = place.host(&["note"]).with(|host| host.provide(7_u64).plugin(curious));
        let mut host = made.start().await;
        assert_eq!(shown.recv().await.as_deref(), Some("Some(7), Starting"));
        assert_eq!(host.handle.health().phase, Phase::Running);
        assert_eq!(host.seen().await.text, "from the start");
        host.stop().await;
        assert_eq!(shown.recv().await.as_deref(), Some("Stopping, true"));
        assert_eq!(host.handle.health().phase, Phase::Stopping);

        let mut other = place.host(&["note"]).start().await;
        assert_eq!(other.seen().await.text, "from the end", "it was sent, and nobody here read it any more");
        other.stop().await;
    }
}

/// Competes for a lock, and says when it has it.
struct Crier {
    held: UnboundedSender<(&'static str, u64)>,
    name: &'static str,
    says_so: bool,
    work: Mutex<Option<JoinHandle<Result<()>>>>,
}

impl Crier {
    fn new(name: &'static str, held: &UnboundedSender<(&'static str, u64)>) -> Self {
        Crier { held: held.clone(), name, says_so: true, work: Mutex::default() }
    }
}

impl Plugin for Crier {
    fn needs_locks(&self) -> bool {
        self.says_so
    }

    fn start(&self, host: PluginContext) -> BoxFuture<'_, Result<()>> {
        let (held, name) = (self.held.clone(), self.name);
        let competing = tokio::spawn(async move {
            let id = LockId::from("schedule/crier");
            let run = |term: bus::Term| {
                let _ = held.send((name, term.fence().get()));
                async move {
                    let draining = term.draining();
                    tokio::select! {
                        () = draining.cancelled() => {}
                        () = term.cancelled() => {}
                    }
                    HandOver::Clean
                }
            };
            host.compete(id, run).await
        });
        *self.work.lock() = Some(competing);
        Box::pin(std::future::ready(Ok(())))
    }

    fn stop(&self) -> BoxFuture<'_, Result<()>> {
        let work = self.work.lock().take();
        Box::pin(async move {
            let Some(work) = work else { return Ok(()) };
            let outcome = work.await.expect("it does not panic");
            if outcome.is_err() {
                let _ = self.held.send(("refused", 0));
            }
            outcome
        })
    }
}

/// What a schedule is made of: a lock of the host's lock manager, on one host at a time, handed over at once when the holder
/// stops.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_competes_for_a_lock_and_hands_it_over_when_its_host_stops() {
    for place in Place::each() {
        let (held, mut shown) = unbounded_channel();
        let host = |name| place.host(&["note"]).with(|host| host.plugin(Crier::new(name, &held)));
        let first = host("first").start().await;
        let (who, fence) = in_time("it is held", shown.recv()).await.expect("one of them");
        assert_eq!(who, "first");
        let second = host("second").start().await;
        first.stop().await;
        let (who, higher) = in_time("it is handed over", shown.recv()).await.expect("the other");
        assert_eq!(who, "second");
        assert!(higher > fence, "{higher} follows {fence}");
        second.stop().await;
    }
}

/// Who needs locks says so, and a host without a lock manager does not start; who has not said so is told.
#[tokio::test]
async fn a_plugin_that_needs_locks_needs_a_lock_manager() {
    let (held, mut shown) = unbounded_channel();
    let place = Place::memory();
    let host = |crier: Crier| {
        let (seen, _) = unbounded_channel();
        let probe = super::Probe { seen, answer: Arc::new(|_| super::Answer::Done) };
        Host::builder().transport("default", &place.url).only(["note"]).provide(probe).plugin(crier)
    };
    let refused = host(Crier::new("a", &held)).build().expect_err("there is no lock manager");
    assert_eq!(refused.kind(), ErrorKind::Wiring);
    assert!(refused.to_string().contains("the locks of the plugin `"), "{refused}");

    let silent = Crier { says_so: false, ..Crier::new("a", &held) };
    let host = host(silent).build().expect("sound").start().await.expect("it starts");
    in_time("stopped", host.stop()).await.expect("what a plugin's end has come to fails nothing");
    assert_eq!(shown.recv().await, Some(("refused", 0)));
}

/// One that fails while it starts fails the host, which releases everything before it says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_a_plugin_fails_leaves_no_lock_behind() {
    struct Failing;
    impl Plugin for Failing {
        fn name(&self) -> &str {
            "failing"
        }
        fn start(&self, host: PluginContext) -> BoxFuture<'_, Result<()>> {
            Box::pin(async move {
                in_time("a singleton has its lock", async {
                    let held = |host: &PluginContext| {
                        let health = host.health();
                        health
                            .processors
                            .iter()
                            .any(|one| one.lock.is_some_and(|lock| lock.state == LockState::Held))
                    };
                    while !held(&host) {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                })
                .await;
                Err(bus::Error::new(ErrorKind::Handler, "no"))
            })
        }
    }
    let place = Place::sqlite();
    let (seen, _) = unbounded_channel();
    let probe = super::Probe { seen, answer: Arc::new(|_| super::Answer::Done) };
    let host = Host::builder().transport("default", &place.url).locks_at("default").only(["relaxed"]);
    let host = host.provide(probe).plugin(Failing).build().expect("sound");
    let refused = in_time("it is refused", host.start()).await.expect_err("the plugin fails");
    assert_eq!(refused.kind(), ErrorKind::Handler);
    assert!(refused.to_string().contains("failing"), "{refused}");

    // The lock was given back, so that another host has it at once.
    let other = place.host(&["relaxed"]).start().await;
    let began = std::time::Instant::now();
    let held = || {
        let health = other.handle.health();
        health.processors[0].lock.is_some_and(|lock| lock.state == LockState::Held)
    };
    bus_tests::wait::until_true("the other one holds it", held).await;
    assert!(began.elapsed() < Duration::from_secs(5), "it took {:?}", began.elapsed());
    other.stop().await;
}
