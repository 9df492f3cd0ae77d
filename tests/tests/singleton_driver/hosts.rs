//! Hosts whose run only notes when it starts and ends, and does what its kind is told.

use std::sync::Arc;
use std::time::Duration;

use bus::clock::{BootInstant, Clock};
use bus::contract::{LockId, Owner};
use bus::singleton::{HandOver, Keeper, Lock, LockTiming, Standing, Stop, Term, candidate};
use bus::{Endpoint, Error, ErrorKind};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::scripted::{Locks, Row, Store};

pub(crate) const LEASE: Duration = Duration::from_secs(20);

/// How a host's run behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Ends when it is asked to, and as soon as its term is lost.
    Obedient,
    /// Ends when it is asked to; while the term is lost it waits to be cut.
    UntilCut,
    /// Needs that long to drain.
    Slow(Duration),
    /// Never ends by itself.
    Endless,
    FailsToStart,
    Panics,
}

#[derive(Clone, Debug)]
pub(crate) struct Started {
    pub(crate) host: &'static str,
    pub(crate) fence: u64,
    pub(crate) owner: Owner,
    pub(crate) at: BootInstant,
    pub(crate) term: Term,
}

#[derive(Default)]
struct Log {
    started: Vec<Started>,
    running: Vec<&'static str>,
    ended: Vec<BootInstant>,
    overlaps: usize,
}

/// What all hosts' runs note.
#[derive(Clone, Default)]
pub(crate) struct Runs {
    log: Arc<Mutex<Log>>,
    changed: Arc<watch::Sender<()>>,
}

impl Runs {
    pub(crate) fn started(&self) -> Vec<Started> {
        self.log.lock().started.clone()
    }

    pub(crate) fn running(&self) -> Vec<&'static str> {
        self.log.lock().running.clone()
    }

    pub(crate) fn overlaps(&self) -> usize {
        self.log.lock().overlaps
    }

    /// Waits until the n-th run has started.
    pub(crate) async fn start_of(&self, n: usize) -> Started {
        self.until(|log| log.started.get(n - 1).cloned()).await
    }

    /// Waits until the n-th end of a run, and says when it was.
    pub(crate) async fn end_of(&self, n: usize) -> BootInstant {
        self.until(|log| log.ended.get(n - 1).copied()).await
    }

    async fn until<T>(&self, found: impl Fn(&Log) -> Option<T>) -> T {
        let mut changes = self.changed.subscribe();
        loop {
            if let Some(found) = found(&self.log.lock()) {
                return found;
            }
            changes.changed().await.expect("the sender lives as long as self");
        }
    }

    fn enter(&self, host: &'static str, term: &Term, clock: &Clock) -> Running {
        let mut log = self.log.lock();
        log.overlaps += usize::from(!log.running.is_empty());
        log.running.push(host);
        let (fence, owner, at) = (term.fence().get(), term.owner(), clock.now());
        log.started.push(Started { host, fence, owner, at, term: term.clone() });
        drop(log);
        self.changed.send_replace(());
        Running { runs: self.clone(), host, clock: clock.clone() }
    }
}

/// Notes the end of a run, however it comes.
struct Running {
    runs: Runs,
    host: &'static str,
    clock: Clock,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut log = self.runs.log.lock();
        if let Some(index) = log.running.iter().position(|host| *host == self.host) {
            log.running.remove(index);
        }
        log.ended.push(self.clock.now());
        drop(log);
        self.runs.changed.send_replace(());
    }
}

pub(crate) struct Host {
    pub(crate) locks: Locks,
    pub(crate) stop: Stop,
    pub(crate) standing: watch::Receiver<Standing>,
    pub(crate) task: JoinHandle<()>,
    pub(crate) keeper: Arc<Keeper>,
}

/// A world of one store under paused time.
pub(crate) struct World {
    pub(crate) clock: Clock,
    pub(crate) store: Arc<Store>,
    pub(crate) runs: Runs,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Clock::tokio();
        World { store: Store::new(clock.clone()), runs: Runs::default(), clock }
    }

    pub(crate) fn host(&self, name: &'static str, kind: Kind) -> Host {
        self.host_with(name, kind, Locks::new(&self.store))
    }

    pub(crate) fn host_with(&self, name: &'static str, kind: Kind, locks: Locks) -> Host {
        self.host_behind(name, kind, locks, None)
    }

    /// A host whose lock lasts for another time than that of the others.
    pub(crate) fn host_lasting(&self, name: &'static str, lock_lease: Duration, locks: Locks) -> Host {
        self.host_as(name, Kind::Obedient, locks, None, lock_lease)
    }

    /// A host whose endpoint's row is `row`.
    pub(crate) fn host_behind(
        &self,
        name: &'static str,
        kind: Kind,
        locks: Locks,
        row: Option<Arc<Row>>,
    ) -> Host {
        self.host_as(name, kind, locks, row, LEASE)
    }

    fn host_as(
        &self,
        name: &'static str,
        kind: Kind,
        locks: Locks,
        row: Option<Arc<Row>>,
        lock_lease: Duration,
    ) -> Host {
        let keeper = Arc::new(Keeper::in_current_runtime(self.clock.clone()));
        let id = LockId::from("queue/rebuild");
        let timing = LockTiming::new(lock_lease);
        let mut lock = Lock::new(Arc::new(locks.clone()), id, timing).expect("the defaults fit").named(name);
        if let Some(row) = row {
            lock = lock.fenced(row, Arc::new(endpoint()));
        }
        let (standing, stop) = (lock.standing(), Stop::default());
        let (runs, clock) = (self.runs.clone(), self.clock.clone());
        let (its_keeper, its_stop) = (Arc::clone(&keeper), stop.clone());
        let task = tokio::spawn(async move {
            candidate(&its_keeper, lock, its_stop, |term| {
                let running = runs.enter(name, &term, &clock);
                async move {
                    let hand_over = behave(kind, &term).await;
                    drop(running);
                    hand_over
                }
            })
            .await;
        });
        Host { locks, stop, standing, task, keeper }
    }

    pub(crate) fn since(&self, earlier: BootInstant) -> Duration {
        self.clock.now().since(earlier)
    }
}

async fn behave(kind: Kind, term: &Term) -> HandOver {
    let (draining, cut) = (term.draining(), term.cut());
    match kind {
        Kind::FailsToStart => return HandOver::FailedToStart(Error::new(ErrorKind::Unavailable, "no queue")),
        Kind::Panics => panic!("told to panic"),
        Kind::Endless => std::future::pending().await,
        Kind::Obedient | Kind::UntilCut | Kind::Slow(_) => {}
    }
    tokio::select! {
        () = draining.cancelled() => {}
        () = term.cancelled() => {}
    }
    if draining.is_cancelled() {
        if let Kind::Slow(drain) = kind {
            tokio::time::sleep(drain).await;
        }
        return HandOver::Clean;
    }
    if kind == Kind::UntilCut {
        cut.cancelled().await;
    }
    HandOver::Cut { reason: "lost".to_owned() }
}

fn endpoint() -> Endpoint {
    Endpoint::queue("rebuild").expect("a good name")
}
