//! The handle by which a program sends: [`Bus`].
//!
//! A handle knows the run that it is used in, by a task-local: what a handler sends carries its message's trace on, and
//! what a singleton sends is refused once its term is over, also where the handle was not the handler's own argument
//! but is held by some service that the handler calls.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::clock::{Clock, Timestamp};
use crate::contract::{BoxFuture, Due, FenceGuard, Outgoing, Placed, Transport};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Command, Envelope, Event, Headers, Message, MessageId, Name, Target, TraceParent};
use crate::singleton::Term;

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
    routes: BTreeMap<String, Route>,
    clock: Clock,
    closed: AtomicBool,
}

/// What is needed of a transport in order to send.
struct Route {
    sender: Arc<dyn crate::contract::Sender>,
    delay: Option<Arc<dyn crate::contract::Delay>>,
    fences: bool,
    max_body: usize,
}

impl Bus {
    /// A handle over the transports of these names.
    pub(crate) fn over(transports: &BTreeMap<String, Arc<dyn Transport>>, clock: Clock) -> Self {
        let routes = transports.iter().map(|(name, transport)| {
            let capabilities = transport.capabilities();
            let route = Route {
                sender: transport.sender(),
                delay: capabilities.delay,
                fences: capabilities.fencing.is_some(),
                max_body: transport.guarantees().max_body,
            };
            (name.clone(), route)
        });
        Bus { inner: Arc::new(Inner { routes: routes.collect(), clock, closed: AtomicBool::new(false) }) }
    }

    /// Refuses whatever is sent from now on.
    pub(crate) fn close(&self) {
        self.inner.closed.store(true, Ordering::Release);
    }

    /// Sends a command to its queue. Await it, or first set options: [`Dispatch::delay`] and so on.
    pub fn send<C: Command>(&self, command: C) -> Dispatch<'_> {
        Dispatch::new(self, C::TRANSPORT, || Name::new(C::QUEUE).map(Target::Queue), &command)
    }

    /// Publishes an event to each subscription of its topic; where there is none, it is forgotten.
    pub fn publish<E: Event>(&self, event: E) -> Dispatch<'_> {
        Dispatch::new(self, E::TRANSPORT, || Name::new(E::TOPIC).map(Target::Topic), &event)
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
        Run::check_term()?;
        let delay = self.route(&sent.transport)?.delay.as_ref().ok_or_else(|| no_delays(&sent.transport))?;
        delay.cancel(&sent.placed).await
    }

    async fn dispatch_all(&self, transport: &str, dispatches: Vec<Dispatch<'_>>) -> Vec<Result<Sent>> {
        let prepared: Vec<Result<Outgoing>> = dispatches.into_iter().map(Dispatch::prepare).collect();
        let ids: Vec<MessageId> = prepared.iter().flatten().map(|outgoing| outgoing.envelope.id).collect();
        let mut refused = Vec::with_capacity(prepared.len());
        let mut batch = Vec::with_capacity(ids.len());
        for outgoing in prepared {
            match outgoing {
                Ok(outgoing) => {
                    refused.push(None);
                    batch.push(outgoing);
                }
                Err(error) => refused.push(Some(error)),
            }
        }
        let mut answers = self.store(transport, batch).await.into_iter().zip(ids);
        let one = |refusal: Option<Error>| match refusal {
            Some(error) => Err(error),
            None => answers
                .next()
                .ok_or_else(|| Error::new(ErrorKind::Internal, "the transport answered for too few messages"))
                .and_then(|(placed, id)| Ok(Sent { id, transport: transport.to_owned(), placed: placed? })),
        };
        refused.into_iter().map(one).collect()
    }

    async fn store(&self, transport: &str, batch: Vec<Outgoing>) -> Vec<Result<Placed>> {
        match self.route(transport) {
            Ok(route) if !batch.is_empty() => route.sender.send(batch).await,
            Ok(_) => Vec::new(),
            Err(error) => batch.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn route(&self, transport: &str) -> Result<&Route> {
        if self.inner.closed.load(Ordering::Acquire) {
            return Err(Error::new(
                ErrorKind::Closed,
                "the host has been stopped: nothing can be sent any more",
            ));
        }
        self.inner.routes.get(transport).ok_or_else(|| {
            let known = self.inner.routes.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            Error::new(
                ErrorKind::UnknownTransport,
                format!("there is no transport {transport:?}; the configuration has {known}. Add it under [transports]"),
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

    /// Adds a header. Names that begin with `bus-` are the bus's own and refused.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Gives it this id instead of a fresh one.
    pub fn message_id(mut self, id: MessageId) -> Self {
        self.id = Some(id);
        self
    }

    /// Everything that can be refused without asking the store.
    fn prepare(self) -> Result<Outgoing> {
        let route = self.bus.route(self.transport)?;
        if let Some((name, _)) = self.headers.iter().find(|(name, _)| name.starts_with("bus-")) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("the header {name:?} is the bus's own: choose a name that does not begin with bus-"),
            ));
        }
        if self.due.is_some() && route.delay.is_none() {
            return Err(no_delays(self.transport));
        }
        let body = self.body?;
        if body.len() > route.max_body {
            return Err(Error::new(
                ErrorKind::TooLarge,
                format!("the message has {} bytes, the transport takes {}", body.len(), route.max_body),
            )
            .with("type", self.message_type));
        }
        let mut envelope = Envelope::new(self.message_type, body, self.bus.inner.clock.wall());
        envelope.id = self.id.unwrap_or(envelope.id);
        envelope.headers = self.headers;
        envelope.time_to_live = self.time_to_live;
        if self.content_type != "application/json" {
            envelope.headers.insert("content-type", self.content_type);
        }
        let guard = Run::apply(&mut envelope.headers, self.transport, route.fences)?;
        Ok(Outgoing::new(self.target?, envelope).due(self.due).guarded(guard))
    }
}

impl<'b> IntoFuture for Dispatch<'b> {
    type Output = Result<Sent>;
    type IntoFuture = BoxFuture<'b, Result<Sent>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (bus, transport) = (self.bus, self.transport);
            let outgoing = self.prepare()?;
            let id = outgoing.envelope.id;
            let placed = bus.store(transport, vec![outgoing]).await.pop().unwrap_or_else(|| {
                Err(Error::new(ErrorKind::Internal, "the transport gave no answer for the message"))
            })?;
            Ok(Sent { id, transport: transport.to_owned(), placed })
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
    trace: TraceParent,
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
    /// A plain processor's run of a message that came with these headers.
    pub(crate) fn of(headers: &Headers) -> Self {
        let parent = headers.get(Headers::TRACEPARENT).and_then(TraceParent::parse);
        Run { trace: parent.map_or_else(TraceParent::root, TraceParent::child), singleton: None }
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

    /// Refuses what a singleton must not do any more.
    fn check_term() -> Result<()> {
        RUN.try_with(|run| run.singleton.as_ref().map_or(Ok(()), |singleton| singleton.term.check()))
            .unwrap_or(Ok(()))
    }

    /// Adds to `headers` what the current run demands, and answers the guard for a send to `transport`.
    ///
    /// A send to another store than the singleton's own, or to one that cannot fence, is guarded by the term's clock.
    fn apply(headers: &mut Headers, transport: &str, fences: bool) -> Result<Option<FenceGuard>> {
        let run = RUN.try_with(Run::clone).ok();
        if headers.get(Headers::TRACEPARENT).is_none() {
            let trace = run.as_ref().map_or_else(TraceParent::root, |run| run.trace);
            headers.insert(Headers::TRACEPARENT, trace.to_string());
        }
        let Some(singleton) = run.and_then(|run| run.singleton) else { return Ok(None) };
        singleton.term.check()?;
        headers.insert(Headers::FENCE, singleton.guard.fence.to_string());
        Ok((fences && singleton.transport == transport).then_some(singleton.guard))
    }
}
