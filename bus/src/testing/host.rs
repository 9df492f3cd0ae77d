//! A host whose time and stores belong to its test.

use std::collections::BTreeSet;
use std::fmt;
use std::panic::Location;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::builder::TestHostBuilder;
use super::faults::{Faults, complain};
use super::handler::{ObservedHandler, observed};
use super::history::{CompletedMessage, DeadMessage, RetriedMessage, SentMessage};
use super::life::Life;
use super::world::World;
use crate::backend::memory::Control;
use crate::contract::{Depth, Inspect};
use crate::error::Result;
use crate::host::config::closest;
use crate::host::{HostBuilder, HostHandle};
use crate::message::{Command, Endpoint, Event, Message};
use crate::processor::Processor;
use crate::sender::Bus;
use crate::telemetry::Meter;

/// The shortest time that tokio's clock knows.
const TICK: Duration = Duration::from_millis(1);

/// A real [`Host`](crate::Host) over stores and locks in memory, in virtual time. See the [module](super).
///
/// Dropping it ends the host as a crash would; a fault that was planted and has not struck then fails the test.
pub struct TestHost {
    world: Arc<World>,
    /// What each incarnation is made of.
    plan: HostBuilder,
    /// Sends as another process would, whether the host runs or not.
    bus: Bus,
    patience: Duration,
    incarnation: Mutex<Option<Incarnation>>,
}

struct Incarnation {
    handle: HostHandle,
    life: Arc<Life>,
}

impl TestHost {
    /// A host of all processors of this binary, with the values that its `#[provide]` functions make.
    ///
    /// # Errors
    /// As of [`TestHostBuilder::start`].
    pub async fn start() -> Result<Self> {
        TestHost::builder().start().await
    }

    /// A host to be put together.
    pub fn builder() -> TestHostBuilder {
        TestHostBuilder::new()
    }

    pub(super) async fn over(
        plan: HostBuilder,
        transports: BTreeSet<String>,
        patience: Duration,
    ) -> Result<Self> {
        let world = World::new(transports);
        let plan = plan.clock(world.clock.clone());
        let sender = Life::new(Arc::clone(&world.activity));
        let bus = Bus::over(&world.transports(&sender), world.clock.clone(), Meter::default())
            .passing(plan.outgoing());
        let host = TestHost { world, plan, bus, patience, incarnation: Mutex::new(None) };
        host.begin().await?;
        Ok(host)
    }

    async fn begin(&self) -> Result<()> {
        let world = &self.world;
        let life = Life::new(Arc::clone(&world.activity));
        let handler = |processor: &Processor| -> Arc<dyn crate::processor::Handler> {
            let (inner, transport) = (Arc::clone(&processor.handler), processor.transport);
            let (world, life) = (Arc::clone(world), Arc::clone(&life));
            Arc::new(ObservedHandler { inner, transport, world, life })
        };
        let plan = self.plan.clone().over(world.transports(&life), world.default_store().locks());
        let seen_by = Arc::clone(&life);
        let plan = plan
            .around_handlers(handler)
            .outermost(move |delivery, next| observed(Arc::clone(&seen_by), delivery, next));
        let handle = plan.build()?.start().await?;
        life.powered_by(handle.power());
        *self.incarnation.lock() = Some(Incarnation { handle, life });
        Ok(())
    }

    // ---- To bring something about ----------------------------------------------------------------------------

    /// Sends commands and publishes events, as another process of the fleet would: also while the host is down.
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Plants faults.
    pub fn faults(&self) -> Faults<'_> {
        Faults::of(self)
    }

    /// Waits until everything is done that can be done without time passing: until no message is available or claimed
    /// in any queue or subscription that a processor of this host reads, nothing runs, and every verdict is with its
    /// store. What is delayed, be it for a retry, stays delayed. If the host does not run, there is nothing to wait for.
    ///
    /// No virtual time passes but what handlers themselves wait for, and what a claim takes to run out that nobody works
    /// on any more after a fault.
    ///
    /// # Panics
    /// If something is still in flight when the host's [`patience`](TestHostBuilder::patience), an hour of virtual time,
    /// is over: it names what, and where.
    #[track_caller]
    pub fn settled(&self) -> impl Future<Output = ()> + '_ {
        let asked_at = Location::caller();
        async move {
            if tokio::time::timeout(self.patience, self.rest()).await.is_err() {
                panic!("{}", self.unrest(asked_at));
            }
        }
    }

    /// Lets time pass: everything that falls due within it happens at its own instant, in order, each with its
    /// consequences, those of the last instant included.
    ///
    /// It takes just `time` of virtual time; a millisecond more if something still runs at the end.
    pub async fn advance(&self, time: Duration) {
        tokio::time::sleep(time).await;
        // What falls due in this very instant is done as far as it goes without more time: the clock goes on when
        // nothing else does.
        let _ = tokio::time::timeout(TICK, self.rest()).await;
    }

    /// Stops the host as SIGTERM would, and waits until it has stopped. Nothing if it does not run.
    ///
    /// # Errors
    /// As of [`HostHandle::stop`].
    pub async fn stop(&self) -> Result<()> {
        let incarnation = self.incarnation.lock().take();
        match incarnation {
            Some(Incarnation { handle, life }) if !life.is_over() => handle.stop().await,
            Some(Incarnation { handle, .. }) => {
                // It answers that it has ended without saying how, and so it did.
                let _ = handle.wait().await;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Starts the host again, over the same stores and with the same given values; what `#[provide]` makes is made
    /// anew. One that runs is stopped before.
    ///
    /// # Errors
    /// As of [`stop`](TestHost::stop) and [`TestHostBuilder::start`].
    pub async fn restart(&self) -> Result<()> {
        self.stop().await?;
        self.begin().await
    }

    pub(super) fn crash(&self) {
        if let Some(incarnation) = &*self.incarnation.lock() {
            incarnation.life.crash();
        }
    }

    // ---- To look at it ---------------------------------------------------------------------------------------

    /// Whether the host runs: it has neither crashed nor been stopped.
    pub fn is_running(&self) -> bool {
        self.life().is_some()
    }

    /// The virtual time since the test host was started.
    pub fn elapsed(&self) -> Duration {
        self.world.elapsed()
    }

    /// The wall clock as the host reads it, for [`Dispatch::due`](crate::sender::Dispatch::due).
    pub fn now(&self) -> SystemTime {
        self.world.clock.wall().into()
    }

    /// The commands of this type that were sent so far, by anyone, in order.
    ///
    /// # Panics
    /// If something was sent to the same queue that cannot be read as `C`.
    pub fn sent<C: Command>(&self) -> Vec<SentMessage<C>> {
        self.world.history.commands()
    }

    /// The events of this type that were published so far, by anyone, in order; also where nobody subscribes to them.
    ///
    /// # Panics
    /// If something was published to the same topic that cannot be read as `E`.
    pub fn published<E: Event>(&self) -> Vec<SentMessage<E>> {
        self.world.history.events()
    }

    /// The messages of this type whose processors succeeded, in the order in which the store confirmed it.
    pub fn completed<M: Message>(&self) -> Vec<CompletedMessage<M>> {
        self.world.history.completed()
    }

    /// The attempts at messages of this type that failed and were to be followed by another, in order. The last attempt
    /// of all is not among them: see [`dead`](TestHost::dead).
    pub fn retried<M: Message>(&self) -> Vec<RetriedMessage<M>> {
        self.world.history.retried()
    }

    /// The messages of this type that are among the dead letters now, oldest first for each endpoint.
    pub fn dead<M: Message>(&self) -> Vec<DeadMessage<M>> {
        self.world.dead()
    }

    /// How much is where in a queue, or a subscription (`topic/subscription`), of the default transport.
    ///
    /// # Panics
    /// If that is no endpoint's name.
    #[track_caller]
    pub fn depth(&self, endpoint: &str) -> Depth {
        match Endpoint::parse(endpoint) {
            Ok(endpoint) => self.world.default_store().depth(&endpoint),
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Looks into the store of a transport, to put dead letters back, say.
    ///
    /// # Panics
    /// If there is no transport of that name.
    #[track_caller]
    pub fn inspect(&self, transport: &str) -> Arc<dyn Inspect> {
        let store = self.world.store(transport).map(Control::transport);
        match store.and_then(|store| store.capabilities().inspect) {
            Some(inspect) => inspect,
            None => panic!("the test host has no transport {transport:?}"),
        }
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }

    /// The present incarnation, if it is alive.
    fn life(&self) -> Option<Arc<Life>> {
        let incarnation = self.incarnation.lock();
        let life = &incarnation.as_ref()?.life;
        (!life.is_over()).then(|| Arc::clone(life))
    }

    /// Returns when nothing is left to do.
    async fn rest(&self) {
        loop {
            let mut activity = pin!(self.world.activity.notified());
            // Registered before looking, so that nothing in between is missed.
            activity.as_mut().enable();
            if self.is_at_rest() {
                return;
            }
            activity.await;
        }
    }

    fn is_at_rest(&self) -> bool {
        let Some(life) = self.life() else { return true };
        life.is_idle() && self.plan.processors().iter().all(|processor| self.world.is_at_rest(processor))
    }

    /// What keeps it from being settled.
    fn unrest(&self, asked_at: &Location<'_>) -> String {
        let mut text =
            format!("{asked_at}: not settled after {:?} of virtual time. Still in flight:", self.patience);
        let life = self.life();
        let runs = life.map(|life| life.runs()).unwrap_or_default();
        for processor in self.plan.processors() {
            let Processor { name, file, line, endpoint, transport, .. } = processor;
            for run in runs.iter().filter(|run| *run.endpoint == *endpoint) {
                text += &format!("\n  `{name}` ({file}:{line}) runs {run}");
            }
            let depth = self.world.store(transport).map(|store| store.depth(endpoint)).unwrap_or_default();
            if depth.ready + depth.in_flight > 0 {
                text += &format!(
                    "\n  `{name}` ({file}:{line}) has {} available and {} claimed in {endpoint}",
                    depth.ready, depth.in_flight
                );
            }
        }
        text + "\nIf that is meant to take so long, say so: TestHost::builder().patience(…)"
    }

    /// The endpoint of one of the host's processors.
    #[track_caller]
    pub(super) fn endpoint_of(&self, name: &str) -> Endpoint {
        let processors = self.plan.processors();
        let found = processors.iter().find(|p| p.endpoint.to_string() == name || p.name == name);
        if let Some(found) = found {
            return found.endpoint.clone();
        }
        let endpoints: Vec<_> = processors.iter().map(|p| p.endpoint.to_string()).collect();
        let names = endpoints.iter().map(String::as_str).chain(processors.iter().map(|p| p.name));
        let meant = closest(name, names).map(|meant| format!("; did you mean {meant:?}?"));
        panic!("this host runs no processor {name:?}{}", meant.unwrap_or_default());
    }

    /// The singleton of that endpoint, or the only one there is, with its store.
    pub(super) fn singleton(&self, endpoint: Option<&Endpoint>) -> Option<(&Control, &Endpoint)> {
        let wanted = |p: &&Processor| p.singleton && endpoint.is_none_or(|wanted| *wanted == p.endpoint);
        let mut singletons = self.plan.processors().iter().filter(wanted);
        match (singletons.next(), singletons.next()) {
            (Some(only), None) => Some((self.world.store(only.transport)?, &only.endpoint)),
            _ => None,
        }
    }
}

impl Drop for TestHost {
    fn drop(&mut self) {
        self.crash();
        complain(self.world.faults.idle());
    }
}

impl fmt::Debug for TestHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestHost")
            .field("host", &self.plan)
            .field("running", &self.is_running())
            .field("elapsed", &self.elapsed())
            .finish_non_exhaustive()
    }
}
