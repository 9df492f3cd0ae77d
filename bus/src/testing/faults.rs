//! What a test can make go wrong, and the proof that it did.

use std::cell::RefCell;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::host::TestHost;
use crate::contract::FenceClaim;
use crate::message::Endpoint;

/// Where a process can be made to crash in the life of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Point {
    /// The message is claimed, and its handler about to be called.
    BeforeHandler,
    /// The handler has ended, and nobody but it knows.
    AfterHandler,
    /// The verdict is on its way to the store.
    BeforeSettle,
    /// The store has confirmed the verdict.
    AfterSettle,
}

/// What can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    DropAck,
    ExpireClaim,
    DeliverTwice,
    Crash(Point),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::DropAck => f.write_str("drop_next_ack()"),
            Kind::ExpireClaim => f.write_str("expire_next_claim()"),
            Kind::DeliverTwice => f.write_str("deliver_next_twice()"),
            Kind::Crash(point) => write!(f, "crash_at(Point::{point:?})"),
        }
    }
}

/// What has been planted, in order.
#[derive(Default)]
pub(super) struct Plan(Mutex<Vec<Planted>>);

struct Planted {
    kind: Kind,
    /// Where it strikes; anywhere if `None`.
    endpoint: Option<Endpoint>,
    struck: Arc<AtomicBool>,
    place: &'static Location<'static>,
}

impl Plan {
    /// Whether a fault of this kind strikes here and now. Each strikes once.
    pub(super) fn strikes(&self, kind: Kind, endpoint: &Endpoint) -> bool {
        let planted = self.0.lock();
        let here = |fault: &&Planted| {
            fault.kind == kind
                && fault.endpoint.as_ref().is_none_or(|wanted| wanted == endpoint)
                && !fault.struck.load(Ordering::Acquire)
        };
        planted.iter().find(here).is_some_and(|fault| !fault.struck.swap(true, Ordering::AcqRel))
    }

    /// What was planted and never struck.
    pub(super) fn idle(&self) -> Vec<String> {
        let planted = self.0.lock();
        let idle = planted.iter().filter(|fault| !fault.struck.load(Ordering::Acquire));
        idle.map(|fault| format!("{}: the fault `{}` never struck", fault.place, fault.kind)).collect()
    }
}

/// A fault that was planted.
///
/// One that has not struck by the time its [`TestHost`] is dropped fails the test: it would have tested nothing.
#[derive(Clone, Debug)]
pub struct Fault(Arc<AtomicBool>);

impl Fault {
    /// Whether it has struck.
    pub fn has_struck(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Plants faults in a [`TestHost`]. Each strikes once, at the first message that gives occasion to.
#[must_use = "say which fault"]
#[derive(Debug)]
pub struct Faults<'h> {
    host: &'h TestHost,
    endpoint: Option<Endpoint>,
}

impl<'h> Faults<'h> {
    pub(super) fn of(host: &'h TestHost) -> Self {
        Faults { host, endpoint: None }
    }

    /// Only at this processor, named by its endpoint (`queue` or `topic/subscription`) or its function.
    ///
    /// # Panics
    /// If the host runs no such processor.
    #[track_caller]
    pub fn on(mut self, processor: &str) -> Self {
        self.endpoint = Some(self.host.endpoint_of(processor));
        self
    }

    /// Loses the next verdict on its way to the store, whose answer the host believes to have got. The message comes
    /// again when its claim has run out.
    #[track_caller]
    pub fn drop_next_ack(self) -> Fault {
        self.plant(Kind::DropAck)
    }

    /// Ends the claim on the next message while its handler begins: the message is delivered again at once, beside its
    /// first run where the processor works on several, and the verdict of the first run is refused.
    #[track_caller]
    pub fn expire_next_claim(self) -> Fault {
        self.plant(Kind::ExpireClaim)
    }

    /// Delivers the next message twice: two claims on two copies with the same id, as brokers do that send again what
    /// they were not told of in time.
    #[track_caller]
    pub fn deliver_next_twice(self) -> Fault {
        self.plant(Kind::DeliverTwice)
    }

    /// Crashes the host's process when the next message comes to this point: all of its tasks stand still and are
    /// dropped, nothing is given back. Its claims and locks run out as time passes; [`TestHost::restart`] starts it
    /// anew.
    #[track_caller]
    pub fn crash_at(self, point: Point) -> Fault {
        self.plant(Kind::Crash(point))
    }

    /// Crashes the host's process now, as [`crash_at`](Faults::crash_at) does. Nothing if it does not run.
    pub fn crash(self) {
        self.host.crash();
    }

    /// Takes the lock of a singleton away now, as if another process had won it: with a higher fence, for one lease,
    /// after which that process is gone. The term learns of it by its next renewal, within a quarter of the lease, or
    /// when the store refuses something for its fence.
    ///
    /// # Panics
    /// If [`on`](Faults::on) has named no singleton and there is not just one, or if its lock is not held at the moment.
    #[track_caller]
    pub fn lose_lock(self) {
        let Some((store, endpoint)) = self.host.singleton(self.endpoint.as_ref()) else {
            panic!("lose_lock() is for one singleton: name it by `faults().on(\"its-queue\")`");
        };
        let stranger = store.lock_of(endpoint).and_then(|(authority, lock)| {
            let (fence, lease) = self.host.world().default_store().pass_lock_to_stranger(&lock)?;
            Some(FenceClaim::new(Arc::new(endpoint.clone()), &authority, &lock, fence, lease))
        });
        match stranger {
            Some(claim) => store.raise(claim),
            None => panic!("the lock of {endpoint} is not held at the moment: `settled().await` first"),
        }
    }

    #[track_caller]
    fn plant(self, kind: Kind) -> Fault {
        let struck = Arc::<AtomicBool>::default();
        let fault = Fault(Arc::clone(&struck));
        let planted = Planted { kind, endpoint: self.endpoint, struck, place: Location::caller() };
        self.host.world().faults.0.lock().push(planted);
        fault
    }
}

thread_local! {
    /// What the hosts of the running `#[bus::test]` have to complain of; `None` outside of one.
    static COMPLAINTS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Fails the test for what no result of its shows. Within a `#[bus::test]` at its end, so that an error of the test's
/// own is told first; elsewhere at once.
pub(super) fn complain(complaints: Vec<String>) {
    if complaints.is_empty() || std::thread::panicking() {
        return;
    }
    let told_later = COMPLAINTS.with_borrow_mut(|told| match told {
        Some(told) => {
            told.extend(complaints.iter().cloned());
            true
        }
        None => false,
    });
    assert!(told_later, "{}", complaints.join("\n"));
}

/// Runs a test, and answers with what its hosts complain of.
pub(super) fn hearing_complaints<T>(test: impl FnOnce() -> T) -> (T, Vec<String>) {
    COMPLAINTS.set(Some(Vec::new()));
    let result = test();
    (result, COMPLAINTS.take().unwrap_or_default())
}
