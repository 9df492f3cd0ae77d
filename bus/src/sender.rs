//! The handle by which a program sends: [`Bus`].
//!
//! A handle knows the run that it is used in, by a task-local: what a handler sends carries its message's trace on, and
//! what a singleton sends is refused once its term is over, also where the handle was not the handler's own argument
//! but is held by some service that the handler calls.

mod outgoing;
mod span;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use tracing::{Instrument, Span};

use crate::clock::{Clock, Timestamp};
use crate::contract::{BoxFuture, Due, FenceGuard, Outgoing, Placed, SqlExecutor, Transport};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{
    Command, Delivery, Envelope, Event, Headers, Message, MessageId, Name, Target, TraceContext, TraceParent,
};
use crate::singleton::Term;
use crate::telemetry::{Meter, Sends};

pub(crate) use outgoing::OutgoingChain;
pub use outgoing::{OutgoingMessage, OutgoingMiddleware};

/// Sends commands and publishes events. Cheap to clone; usable from any task.
///
/// ```
/// # use bus::prelude::*;
/// # use std::time::Duration;
/// #[derive(Serialize, Deserialize, Command)]
/// #[command(queue = "send-reminder")]
/// struct SendReminder { user: u64 }
///
/// async fn remind(bus: &Bus) -> Result<()> {
///     bus.send(SendReminder { user: 1 }).await?;
///     let later = bus.send(SendReminder { user: 2 }).delay(Duration::from_secs(3600)).await?;
///     bus.cancel(&later).await?;
///     Ok(())
/// }
/// ```
///
/// Dropping the future of a send before the transport has taken the message withdraws it; later it may be sent.
#[derive(Clone)]
pub struct Bus {
    inner: Arc<Inner>,
}

struct Inner {
    /// One is set when its transport has been reached.
    routes: BTreeMap<String, OnceLock<Route>>,
    outgoing: OutgoingChain,
    clock: Clock,
    meter: Meter,
    closed: AtomicBool,
}

/// What is needed of a transport in order to send.
struct Route {
    sender: Arc<dyn crate::contract::Sender>,
    delay: Option<Arc<dyn crate::contract::Delay>>,
    enqueue: Option<Arc<dyn crate::contract::Enqueue>>,
    fences: bool,
    max_body: usize,
    /// Where something has been sent, and what is counted of that.
    targets: RwLock<BTreeMap<Target, Arc<Sends>>>,
}

impl Route {
    fn over(transport: &dyn Transport) -> Self {
        let capabilities = transport.capabilities();
        Route {
            sender: transport.sender(),
            delay: capabilities.delay,
            enqueue: capabilities.enqueue,
            fences: capabilities.fencing.is_some(),
            max_body: transport.guarantees().max_body,
            targets: RwLock::default(),
        }
    }

    /// Takes note of where something is sent. Answers what is counted of that.
    fn note(&self, target: &Target, make: impl FnOnce() -> Arc<Sends>) -> Arc<Sends> {
        if let Some(sends) = self.targets.read().get(target) {
            return Arc::clone(sends);
        }
        Arc::clone(self.targets.write().entry(target.clone()).or_insert_with(make))
    }

    /// A singleton's guard, where it is this transport's store that has the singleton's fence.
    fn guard(&self, transport: &str, run: Option<SingletonRun>) -> Option<FenceGuard> {
        run.filter(|run| self.fences && run.transport == transport).map(|run| run.guard)
    }
}

impl Bus {
    /// A handle over the transports of these names.
    pub(crate) fn over(
        transports: &BTreeMap<String, Arc<dyn Transport>>,
        clock: Clock,
        meter: Meter,
    ) -> Self {
        let bus = Bus::awaiting(transports.keys().cloned(), clock, meter);
        for (name, transport) in transports {
            bus.reached(name, transport);
        }
        bus
    }

    /// A handle over transports of these names, of which none has been reached yet.
    pub(crate) fn awaiting(names: impl IntoIterator<Item = String>, clock: Clock, meter: Meter) -> Self {
        let routes = names.into_iter().map(|name| (name, OnceLock::new())).collect();
        let (outgoing, closed) = (OutgoingChain::default(), AtomicBool::new(false));
        Bus { inner: Arc::new(Inner { routes, outgoing, clock, meter, closed }) }
    }

    /// Has what is sent pass this. Before anybody else has the handle.
    pub(crate) fn passing(mut self, outgoing: OutgoingChain) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.inner) {
            inner.outgoing = outgoing;
        }
        self
    }

    /// Sends to this transport from now on.
    pub(crate) fn reached(&self, name: &str, transport: &Arc<dyn Transport>) {
        if let Some(route) = self.inner.routes.get(name) {
            // Each is reached once.
            let _ = route.set(Route::over(&**transport));
        }
    }

    /// The topics of this transport that have been published to.
    pub(crate) fn published(&self, transport: &str) -> BTreeSet<Name> {
        let route = self.inner.routes.get(transport).and_then(OnceLock::get);
        let topic = |target: &Target| match target {
            Target::Topic(topic) => Some(topic.clone()),
            Target::Queue(_) => None,
        };
        route.map(|route| route.targets.read().keys().filter_map(topic).collect()).unwrap_or_default()
    }

    /// Refuses whatever is sent from now on.
    pub(crate) fn close(&self) {
        self.inner.closed.store(true, Ordering::Release);
    }

    /// Sends a command to its queue. Await it, or first set options: [`Dispatch::delay`] and so on.
    pub fn send<C: Command>(&self, command: C) -> Dispatch<'_> {
        Dispatch::new(self, C::TRANSPORT, || Name::new(C::QUEUE).map(Target::Queue), &command)
    }

    /// Publishes an event to each subscription of its topic; where there is none, it is forgotten. Which there are is
    /// shown by [`Inspect::endpoints`](crate::contract::Inspect::endpoints), and by `depths` of the command line tool.
    pub fn publish<E: Event>(&self, event: E) -> Dispatch<'_> {
        Dispatch::new(self, E::TRANSPORT, || Name::new(E::TOPIC).map(Target::Topic), &event)
    }

    /// Sends a command within a transaction of yours on the message store's own database: it is sent if and only if you
    /// commit that. Any value that can run a statement in the transaction will do, see
    /// [`SqlExecutor`]. Answers the message's id. How soon after the commit a waiting consumer has it is told on the store's
    /// page: on Postgres within about a second, unless its URL says `notify_in_transactions=on`.
    ///
    /// ```
    /// # #[cfg(feature = "postgres")] {
    /// # use bus::prelude::*;
    /// # use bus::backend::postgres::tokio_postgres;
    /// # #[derive(Serialize, Deserialize, Command)]
    /// # #[command(queue = "ship-order")]
    /// # struct ShipOrder { order: i64 }
    /// async fn place_order(bus: &Bus, client: &mut tokio_postgres::Client, order: i64) -> bus::Result<(), Box<dyn std::error::Error>> {
    ///     let mut transaction = client.transaction().await?;
    ///     transaction.execute("INSERT INTO orders (id) VALUES ($1)", &[&order]).await?;
    ///     bus.send_in(&mut transaction, ShipOrder { order }).await?;
    ///     transaction.commit().await?;
    ///     Ok(())
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the store takes no transactions from outside; else as a send, or what the database
    /// answered: then the transaction can only be rolled back.
    pub async fn send_in<C: Command>(
        &self,
        transaction: &mut impl SqlExecutor,
        command: C,
    ) -> Result<MessageId> {
        self.enqueue(transaction, self.send(command)).await
    }

    /// Publishes an event within a transaction of yours, as [`send_in`](Bus::send_in) sends a command.
    ///
    /// # Errors
    /// As of [`send_in`](Bus::send_in).
    pub async fn publish_in<E: Event>(
        &self,
        transaction: &mut impl SqlExecutor,
        event: E,
    ) -> Result<MessageId> {
        self.enqueue(transaction, self.publish(event)).await
    }

    async fn enqueue(&self, transaction: &mut impl SqlExecutor, dispatch: Dispatch<'_>) -> Result<MessageId> {
        let transport = dispatch.transport;
        let enqueue = self.route(transport)?.enqueue.clone().ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                format!("the store of the transport {transport:?} takes no messages in a transaction of yours: send them after it was committed"),
            )
        })?;
        let span = span::of(&dispatch);
        let call = async {
            let (outgoing, sends) = dispatch.passed(&span).await?;
            span::sends(&span, outgoing.envelope.id);
            let begun = self.inner.clock.now();
            let answer = enqueue.enqueue(transaction, &outgoing).await;
            sends.answered(self.inner.clock.now().since(begun), [answer.as_ref().err()]);
            answer.map(|()| outgoing.envelope.id)
        };
        span::within(&span, call).await
    }

    /// Sends many commands of one type in one batch, each answered for, in order.
    pub async fn send_all<C: Command>(&self, commands: impl IntoIterator<Item = C>) -> Vec<Result<Sent>> {
        let dispatches = commands.into_iter().map(|command| self.send(command)).collect();
        self.dispatch_all(C::TRANSPORT, dispatches).await
    }

    /// Publishes many events of one type in one batch, each answered for, in order.
    pub async fn publish_all<E: Event>(&self, events: impl IntoIterator<Item = E>) -> Vec<Result<Sent>> {
        let dispatches = events.into_iter().map(|event| self.publish(event)).collect();
        self.dispatch_all(E::TRANSPORT, dispatches).await
    }

    /// Takes a delayed message back. `false` if it was too late: it is available, running or done.
    ///
    /// # Errors
    /// As the store's; [`ErrorKind::Unsupported`] if the transport has no delays; [`ErrorKind::TermLost`] in a singleton
    /// whose term is over.
    pub async fn cancel(&self, sent: &Sent) -> Result<bool> {
        let route = self.route(&sent.transport)?;
        let delay = route.delay.as_ref().ok_or_else(|| no_delays(&sent.transport))?;
        let guard = route.guard(&sent.transport, Run::singleton()?);
        delay.cancel(&sent.placed, guard.as_ref()).await
    }

    async fn dispatch_all(&self, transport: &str, dispatches: Vec<Dispatch<'_>>) -> Vec<Result<Sent>> {
        let span = span::of_all(&dispatches);
        let answers = self.store_all(transport, dispatches, &span).instrument(span.clone()).await;
        if let Some(error) = answers.iter().find_map(|answer| answer.as_ref().err()) {
            span::failed(&span, error);
        }
        answers
    }

    async fn store_all(
        &self,
        transport: &str,
        dispatches: Vec<Dispatch<'_>>,
        span: &Span,
    ) -> Vec<Result<Sent>> {
        let (mut refused, mut batch) = (Vec::with_capacity(dispatches.len()), Vec::new());
        let mut counted = None;
        for dispatch in dispatches {
            match dispatch.passed(span).await {
                Ok((outgoing, sends)) => {
                    refused.push(None);
                    batch.push(outgoing);
                    // All of them are of one type, and go to one place.
                    counted = Some(sends);
                }
                Err(error) => refused.push(Some(error)),
            }
        }
        let ids: Vec<MessageId> = batch.iter().map(|outgoing| outgoing.envelope.id).collect();
        let stored = match counted {
            Some(sends) => self.store(transport, batch, &sends).await,
            None => Vec::new(),
        };
        let mut answers = stored.into_iter().zip(ids);
        let one = |refusal: Option<Error>| match refusal {
            Some(error) => Err(error),
            None => answers
                .next()
                .ok_or_else(|| Error::new(ErrorKind::Internal, "the transport answered for too few messages"))
                .and_then(|(placed, id)| Ok(Sent { id, transport: transport.to_owned(), placed: placed? })),
        };
        refused.into_iter().map(one).collect()
    }

    async fn store(&self, transport: &str, batch: Vec<Outgoing>, sends: &Sends) -> Vec<Result<Placed>> {
        let route = match self.route(transport) {
            Ok(route) => route,
            Err(error) => return batch.iter().map(|_| Err(error.clone())).collect(),
        };
        let begun = self.inner.clock.now();
        let answers = route.sender.send(batch).await;
        let took = self.inner.clock.now().since(begun);
        sends.answered(took, answers.iter().map(|answer| answer.as_ref().err()));
        answers
    }

    fn route(&self, transport: &str) -> Result<&Route> {
        if self.inner.closed.load(Ordering::Acquire) {
            return Err(Error::new(
                ErrorKind::Closed,
                "the host has been stopped: nothing can be sent any more",
            ));
        }
        let route = self.inner.routes.get(transport).ok_or_else(|| {
            let known = self.inner.routes.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            Error::new(
                ErrorKind::UnknownTransport,
                format!("there is no transport {transport:?}; the configuration has {known}. Add it under [transports]"),
            )
        })?;
        route.get().ok_or_else(|| {
            Error::new(
                ErrorKind::Unavailable,
                format!("the store of the transport {transport:?} has not been reached since the host was started: nothing was sent"),
            )
        })
    }
}

impl fmt::Debug for Bus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bus").field("transports", &self.inner.routes.keys()).finish_non_exhaustive()
    }
}

fn no_delays(transport: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("the transport {transport:?} has no delayed messages"))
}

/// A message that was sent: names it, so that a delayed one can be taken back by [`Bus::cancel`], also by another
/// process and after a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    id: MessageId,
    transport: String,
    placed: Placed,
}

impl Sent {
    /// The message's id.
    pub const fn id(&self) -> MessageId {
        self.id
    }
}

/// A message about to be sent. Nothing happens until it is awaited.
#[must_use = "nothing is sent until it is awaited"]
pub struct Dispatch<'b> {
    bus: &'b Bus,
    transport: &'static str,
    message_type: &'static str,
    content_type: &'static str,
    target: Result<Target>,
    body: Result<Bytes>,
    id: Option<MessageId>,
    headers: Headers,
    due: Option<Due>,
    time_to_live: Option<Duration>,
}

impl<'b> Dispatch<'b> {
    fn new<M: Message>(
        bus: &'b Bus,
        transport: &'static str,
        target: impl FnOnce() -> Result<Target>,
        message: &M,
    ) -> Self {
        Dispatch {
            bus,
            transport,
            message_type: M::TYPE,
            content_type: M::CONTENT_TYPE,
            target: target(),
            body: message.encode(),
            id: None,
            headers: Headers::new(),
            due: None,
            time_to_live: None,
        }
    }

    /// Makes it available only after this time, by the store's clock.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.due = (!delay.is_zero()).then_some(Due::In(delay));
        self
    }

    /// Makes it available only at this time (a [`SystemTime`](std::time::SystemTime) or [`Timestamp`]).
    pub fn due(mut self, at: impl Into<Timestamp>) -> Self {
        self.due = Some(Due::At(at.into()));
        self
    }

    /// Says how long after now it is worth processing: a message older than this is dead-lettered as `expired`.
    pub fn time_to_live(mut self, live: Duration) -> Self {
        self.time_to_live = Some(live);
        self
    }

    /// Adds a header: any text by any name, 32 KiB of headers in all ([`Headers::MAX_BYTES`]). An empty name, one that
    /// begins with `bus-` and `content-type`, which are the bus's own, are refused.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Gives it this id instead of a fresh one.
    pub fn message_id(mut self, id: MessageId) -> Self {
        self.id = Some(id);
        self
    }

    /// Everything that can be refused without asking the store. What the message carries on of a trace is that of `span`.
    fn prepare(self, span: &Span) -> Result<Outgoing> {
        let route = self.bus.route(self.transport)?;
        for (name, _) in self.headers.iter() {
            let Some(why) = reserved(name) else { continue };
            return Err(Error::new(ErrorKind::InvalidInput, format!("the header {name:?}: {why}")));
        }
        if self.due.is_some() && route.delay.is_none() {
            return Err(no_delays(self.transport));
        }
        let mut envelope = Envelope::new(self.message_type, self.body?, self.bus.inner.clock.wall());
        envelope.id = self.id.unwrap_or(envelope.id);
        envelope.headers = self.headers;
        envelope.time_to_live = self.time_to_live;
        if self.content_type != "application/json" {
            envelope.headers.insert(Headers::CONTENT_TYPE, self.content_type);
        }
        let guard = route.guard(self.transport, Run::apply(&mut envelope.headers, span)?);
        Ok(Outgoing::new(self.target?, envelope).due(self.due).guarded(guard))
    }

    /// The message as the store gets it, and where sends like it are counted.
    async fn passed(self, span: &Span) -> Result<(Outgoing, Arc<Sends>)> {
        let (bus, transport) = (self.bus, self.transport);
        let outgoing = bus.inner.outgoing.pass(transport, self.prepare(span)?).await?;
        let route = bus.route(transport)?;
        outgoing.check_size(route.max_body).map_err(|error| error.with("transport", transport))?;
        let meter = &bus.inner.meter;
        let sends = route.note(&outgoing.target, || meter.sends(transport, &outgoing.target));
        Ok((outgoing, sends))
    }

    async fn send(self, span: &Span) -> Result<Sent> {
        let (bus, transport) = (self.bus, self.transport);
        let (outgoing, sends) = self.passed(span).await?;
        let id = outgoing.envelope.id;
        span::sends(span, id);
        let placed = bus.store(transport, vec![outgoing], &sends).await.pop().unwrap_or_else(|| {
            Err(Error::new(ErrorKind::Internal, "the transport gave no answer for the message"))
        })?;
        Ok(Sent { id, transport: transport.to_owned(), placed })
    }
}

/// Why a header of that name is not a user's to set.
fn reserved(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("a header needs a name"),
        Headers::CONTENT_TYPE => Some("it says how the body is encoded: set the message's CONTENT_TYPE"),
        _ if name.starts_with("bus-") => {
            Some("it is the bus's own: choose a name that does not begin with bus-")
        }
        _ => None,
    }
}

impl<'b> IntoFuture for Dispatch<'b> {
    type Output = Result<Sent>;
    type IntoFuture = BoxFuture<'b, Result<Sent>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let span = span::of(&self);
            span::within(&span, self.send(&span)).await
        })
    }
}

impl fmt::Debug for Dispatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatch")
            .field("message_type", &self.message_type)
            .field("target", &self.target)
            .field("due", &self.due)
            .finish_non_exhaustive()
    }
}

/// The run that the current task is in.
#[derive(Clone)]
pub(crate) struct Run {
    trace: TraceContext,
    singleton: Option<SingletonRun>,
}

/// What a singleton's run adds: its term, and the fence that guards what it sends to its own store.
#[derive(Clone)]
struct SingletonRun {
    term: Term,
    transport: &'static str,
    guard: FenceGuard,
}

tokio::task_local! {
    static RUN: Run;
}

impl Run {
    /// A plain processor's run of this message.
    pub(crate) fn of(delivery: &Delivery) -> Self {
        let mut trace = TraceContext::of(&delivery.envelope.headers);
        match trace.parent.filter(|_| delivery.continues_trace()) {
            Some(parent) => trace.parent = Some(parent.child()),
            None => (trace.parent, trace.state) = (Some(TraceParent::root()), None),
        }
        Run { trace, singleton: None }
    }

    /// What goes on with what is sent within `span`: OpenTelemetry's context, where there is one, else that of the run.
    fn trace(span: &Span) -> TraceContext {
        #[cfg(feature = "opentelemetry")]
        if let Some(mut active) = crate::telemetry::propagation::within(span) {
            active.baggage = active.baggage.or_else(|| RUN.try_with(|run| run.trace.baggage.clone()).ok()?);
            return active;
        }
        #[cfg(not(feature = "opentelemetry"))]
        let _ = span;
        let run = RUN.try_with(|run| run.trace.clone());
        run.unwrap_or_else(|_| TraceContext { parent: Some(TraceParent::root()), ..TraceContext::default() })
    }

    /// The same, in a singleton's term.
    pub(crate) fn in_term(mut self, term: Term, transport: &'static str, guard: FenceGuard) -> Self {
        self.singleton = Some(SingletonRun { term, transport, guard });
        self
    }

    /// Runs `work` as this run.
    pub(crate) async fn scope<F: Future>(self, work: F) -> F::Output {
        RUN.scope(self, work).await
    }

    /// The singleton's run that this is, if it is one. What it does at another store than its own, or at one that cannot
    /// fence, is guarded by this alone: that its term goes on, by the clock.
    ///
    /// # Errors
    /// [`ErrorKind::TermLost`] if its term is over.
    fn singleton() -> Result<Option<SingletonRun>> {
        let singleton = RUN.try_with(|run| run.singleton.clone()).ok().flatten();
        singleton.map(|singleton| singleton.term.check().map(|()| singleton)).transpose()
    }

    /// Adds to `headers` what the current run demands, and answers the singleton's run that it is, if it is one.
    fn apply(headers: &mut Headers, span: &Span) -> Result<Option<SingletonRun>> {
        #[cfg(feature = "opentelemetry")]
        if !span.is_disabled() {
            crate::telemetry::propagation::link_to_own(span, &TraceContext::of(headers));
        }
        Run::trace(span).add_to(headers);
        let singleton = Run::singleton()?;
        if let Some(singleton) = &singleton {
            headers.insert(Headers::FENCE, singleton.guard.fence.to_string());
        }
        Ok(singleton)
    }
}

impl Term {
    /// Runs blocking work on a thread where it may block, and keeps the term's end waiting for it: dropping the
    /// returned future does not stop such work, and a successor must not start beside it. What `work` sends is this run's,
    /// as if the handler had sent it itself: `Handle::current().block_on(bus.send(…).into_future())`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TermLost`] if the term is over already, and [`ErrorKind::Handler`] if the work panicked.
    pub async fn blocking<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let span = Span::current();
        match RUN.try_with(Run::clone) {
            Ok(run) => self.spawn_blocking(move || span.in_scope(|| RUN.sync_scope(run, work))).await,
            Err(_) => self.spawn_blocking(move || span.in_scope(work)).await,
        }
    }
}
