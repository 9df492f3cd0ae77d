//! Moving messages: what a transport, its sender and its consumers do.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::{BoxFuture, Fence, FenceGuard, Fencing, Inspect, Pulse, Reach, Readers, SqlExecutor};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Delivery, Endpoint, Envelope, Headers, Receipt, Target, Verdict};
use crate::settings::Order;

/// A store of messages. One value is one connection (or pool) to it, shared by all of a host's processors.
pub trait Transport: Send + Sync + 'static {
    /// What the store can do beyond sending, claiming and settling.
    fn capabilities(&self) -> Capabilities;

    /// What it promises; printed at start.
    fn guarantees(&self) -> Guarantees;

    /// Creates the queues, topics and subscriptions of `endpoints` where they are missing. Repeating it, from several
    /// hosts at once too, is no error. A subscription receives what is published after it was created.
    fn prepare<'a>(&'a self, endpoints: &'a [Endpoint]) -> BoxFuture<'a, Result<()>>;

    /// The one way to send.
    fn sender(&self) -> Arc<dyn Sender>;

    /// Opens a consumer of one endpoint that has been prepared. For a singleton the fence is bound here, for the
    /// consumer's whole life: one consumer per term.
    fn consumer(&self, spec: ConsumerSpec) -> BoxFuture<'_, Result<Arc<dyn Consumer>>>;

    /// Waits until this process has lost the store for good, so that only a new start can help, perhaps after somebody has
    /// repaired something; answers why. The host then ends with this error. A store that may come back by itself is not
    /// lost, however long it is away. By default never.
    fn lost(&self) -> BoxFuture<'_, Error> {
        Box::pin(std::future::pending())
    }

    /// Lets go of the store: what has been answered stays done, later calls answer
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed). Returns when nothing of ours runs any more.
    fn close(&self) -> BoxFuture<'_, ()>;
}

/// What a transport can do beyond the basics. The field *is* the implementation, so that table and code agree.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Capabilities {
    /// Messages that become available later, and can be cancelled until then.
    pub delay: Option<Arc<dyn Delay>>,
    /// Messages that are stored within the user's own transaction.
    pub enqueue: Option<Arc<dyn Enqueue>>,
    /// Singletons' fences kept with the messages.
    pub fencing: Option<Arc<dyn Fencing>>,
    /// Views for people: depths and dead letters.
    pub inspect: Option<Arc<dyn Inspect>>,
    /// Who reads which endpoint, retentions, and the end of subscriptions.
    pub readers: Option<Arc<dyn Readers>>,
    /// Holds a queue back while its first message waits for its retry.
    pub strict_order: bool,
    /// What is released may come after what was sent later. Otherwise it keeps its place.
    pub loose_order: bool,
    /// [`Inspect::depth`] tells all that is not dead as ready: the store counts messages, and does not say which of them
    /// are claimed, or wait for their time.
    pub rough_depth: bool,
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capabilities")
            .field("delay", &self.delay.is_some())
            .field("enqueue", &self.enqueue.is_some())
            .field("fencing", &self.fencing.is_some())
            .field("inspect", &self.inspect.is_some())
            .field("readers", &self.readers.is_some())
            .field("strict_order", &self.strict_order)
            .field("loose_order", &self.loose_order)
            .field("rough_depth", &self.rough_depth)
            .finish()
    }
}

/// What a transport promises.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Guarantees {
    /// The store, as people may see it: a URL without credentials.
    pub store: String,
    /// Who shares the messages.
    pub reach: Reach,
    /// What an acknowledged message outlives, in the words that all stores share.
    pub durability: Durability,
    /// What it means when `send` has answered, in one sentence of the store's own.
    pub acknowledgement: String,
    /// The largest body, in bytes. Headers are bounded apart, by [`Headers::MAX_BYTES`].
    pub max_body: usize,
    /// How often an idle consumer asks for messages, where nobody tells it of them; `None` where it is told.
    pub polled: Option<Duration>,
}

impl Guarantees {
    /// Guarantees of a store. Its durability is [`Unknown`](Durability::Unknown) until it is [said](Guarantees::durable).
    pub fn new(
        store: impl Into<String>,
        reach: Reach,
        acknowledgement: impl Into<String>,
        max_body: usize,
    ) -> Self {
        Guarantees {
            store: store.into(),
            reach,
            durability: Durability::Unknown,
            acknowledgement: acknowledgement.into(),
            max_body,
            polled: None,
        }
    }

    /// The same, where idle consumers are not told of messages, but ask this often.
    #[must_use]
    pub fn polled(mut self, every: Option<Duration>) -> Self {
        self.polled = every;
        self
    }

    /// The same, where it is known what an acknowledged message outlives: asked of the store, not taken from its manual.
    #[must_use]
    pub fn durable(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }
}

/// What an acknowledged message outlives: asked of the store when it is opened, and printed at start. `Display` completes
/// the sentence "an acknowledged message is …".
///
/// ```
/// use bus::contract::Durability;
///
/// assert_eq!(format!("an acknowledged message is {}", Durability::Synced), "an acknowledged message is fsynced");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// The store could not be asked, or does not tell: as good as the least of what it may be.
    Unknown,
    /// It is in this process's memory: gone when the process ends.
    ProcessMemory,
    /// It is in the server's memory: a restart of the server loses it.
    ServerMemory,
    /// It was handed to an operating system that has not flushed it yet: it outlives the process that took it, and a crash
    /// of the machine or a power loss may take the last moments'.
    Written,
    /// It is on the disk, flushed: it outlives a power loss.
    Synced,
    /// It is on the disk, and with another machine too: it outlives the loss of one.
    Replicated,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Unknown => "kept in a way that is unknown",
            Durability::ProcessMemory => "in this process's memory",
            Durability::ServerMemory => "in the server's memory",
            Durability::Written => "written, but not fsynced yet",
            Durability::Synced => "fsynced",
            Durability::Replicated => "fsynced, and on a replica",
        })
    }
}

/// A message to be sent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outgoing {
    /// Where to.
    pub target: Target,
    /// What.
    pub envelope: Envelope,
    /// When it becomes available; at once if `None`.
    pub due: Option<Due>,
    /// The term in which it is sent, where that is a singleton's whose messages live in this store: the store refuses
    /// the message with [`ErrorKind::TermLost`](crate::ErrorKind::TermLost) unless the fence is in force.
    pub guard: Option<FenceGuard>,
}

impl Outgoing {
    /// A message for at once, unguarded.
    pub fn new(target: Target, envelope: Envelope) -> Self {
        Outgoing { target, envelope, due: None, guard: None }
    }

    /// The same, available only when due.
    #[must_use]
    pub fn due(mut self, due: Option<Due>) -> Self {
        self.due = due;
        self
    }

    /// The same, sent under a singleton's fence.
    #[must_use]
    pub fn guarded(mut self, guard: Option<FenceGuard>) -> Self {
        self.guard = guard;
        self
    }

    /// Whether a store that takes bodies of up to `max_body` bytes takes it: the one check of a message's size, made
    /// before the store is asked, and by each backend for what comes to it in another way.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`], with what is too large, by how much, and what to do about it.
    pub fn check_size(&self, max_body: usize) -> Result<()> {
        let (body, headers) = (self.envelope.body.len(), self.envelope.headers.bytes());
        let what = if body > max_body {
            format!(
                "the body has {body} bytes, and the store takes {max_body}: keep the content elsewhere and send where it is, or raise max_body in the URL of a store that has it"
            )
        } else if headers > Headers::MAX_BYTES {
            format!(
                "the headers have {headers} bytes, and {} is the most that any store takes: put into the body what is that large",
                Headers::MAX_BYTES
            )
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::TooLarge, what).with("type", &self.envelope.message_type))
    }
}

/// When a delayed message becomes available, by the store's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// This long after it was stored.
    In(Duration),
    /// At this moment.
    At(Timestamp),
}

/// Where a sent message lies: what [`Delay::cancel`] needs to find it again. Opaque outside its backend.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Placed(String);

impl Placed {
    /// From the backend's own words.
    pub fn new(place: impl Into<String>) -> Self {
        Placed(place.into())
    }

    /// The backend's own words.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Sends messages. Many callers share one sender, and what is ready at the same time rides together.
pub trait Sender: Send + Sync + 'static {
    /// Stores messages, durably as far as [`Guarantees::acknowledgement`] says, and answers for each.
    ///
    /// A message that cannot be stored fails alone ([`TooLarge`](crate::ErrorKind::TooLarge),
    /// [`TermLost`](crate::ErrorKind::TermLost)); a batch that may or may not have been stored answers
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) for each and is never sent again silently. The messages
    /// of one call to one target keep their order. A queue that is not there yet is created, since a producer may start
    /// before its consumer; a topic without subscriptions takes an event and forgets it.
    ///
    /// Dropping the future before the store has been asked withdraws the messages; afterwards they may be sent.
    ///
    /// However many wait: while the store takes nothing, each is answered after what a call may take and the call that is
    /// under way then, and with [`Unavailable`](crate::ErrorKind::Unavailable) if it has certainly not been handed over (see
    /// [`coalesce`](crate::coalesce)).
    fn send(&self, batch: Vec<Outgoing>) -> BoxFuture<'_, Vec<Result<Placed>>>;
}

/// Delayed messages.
pub trait Delay: Send + Sync + 'static {
    /// Takes back a delayed message; `false` if it is available, claimed or done already, or was never there.
    ///
    /// A singleton whose messages live in this store takes it back under its fence: where that is not in force, nothing
    /// is taken back, and the answer is [`ErrorKind::TermLost`](crate::ErrorKind::TermLost).
    fn cancel<'a>(&'a self, placed: &'a Placed, guard: Option<&'a FenceGuard>)
    -> BoxFuture<'a, Result<bool>>;
}

/// Messages that exist if and only if the user's own data does: both are committed by one transaction.
pub trait Enqueue: Send + Sync + 'static {
    /// Stores a message within a transaction on the message store's own database. It is sent when the user commits that,
    /// and was never there when it is rolled back.
    ///
    /// # Errors
    /// [`ErrorKind::TermLost`](crate::ErrorKind::TermLost) if the message is guarded and another fence is in force; else
    /// what the database answered, after which the transaction can only be rolled back.
    fn enqueue<'a>(
        &'a self,
        transaction: &'a mut dyn SqlExecutor,
        message: &'a Outgoing,
    ) -> BoxFuture<'a, Result<()>>;
}

/// What a consumer is opened for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsumerSpec {
    /// What to read.
    pub endpoint: Arc<Endpoint>,
    /// How long a claim lasts unless extended.
    pub lease: Duration,
    /// The term of the singleton that reads, on a store that fences.
    pub fence: Option<Fence>,
    /// How long the singleton's lock lasts unless renewed: each claim and each extension keep the fence
    /// row's `until` this far ahead.
    pub lock_lease: Option<Duration>,
    /// Whether a message that waits for its retry holds back what lies behind it.
    pub order: Order,
    /// How many bytes of messages ([`Envelope::bytes`]) one `receive` claims: no further message once they are reached.
    pub max_bytes: usize,
    /// Where the consumer notes each time the store has answered a claim, be it with nothing.
    pub pulse: Pulse,
}

impl ConsumerSpec {
    /// [`max_bytes`](ConsumerSpec::max_bytes) unless it is set: 16 MiB.
    pub const MAX_BYTES: usize = 16 << 20;

    /// A plain consumer.
    pub fn new(endpoint: Arc<Endpoint>, lease: Duration) -> Self {
        ConsumerSpec {
            endpoint,
            lease,
            fence: None,
            lock_lease: None,
            order: Order::Relaxed,
            max_bytes: Self::MAX_BYTES,
            pulse: Pulse::default(),
        }
    }

    /// A singleton's consumer, for one term.
    #[must_use]
    pub fn fenced(mut self, fence: Fence, lock_lease: Duration) -> Self {
        self.fence = Some(fence);
        self.lock_lease = Some(lock_lease);
        self
    }

    /// In this order.
    #[must_use]
    pub fn ordered(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// With answers of about this many bytes at most.
    #[must_use]
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }
}

/// One claim's end.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settlement {
    /// Which claim.
    pub receipt: Receipt,
    /// What becomes of the message. A `Retry` has its `after` filled in.
    pub verdict: Verdict,
    /// What is sent if and only if the settlement takes effect.
    pub outgoing: Vec<Outgoing>,
}

impl Settlement {
    /// A settlement that sends nothing.
    pub fn new(receipt: Receipt, verdict: Verdict) -> Self {
        Settlement { receipt, verdict, outgoing: Vec::new() }
    }
}

/// A batch's answers item by item, also where the whole of it has failed.
pub fn item_by_item<T>(count: usize, answer: Result<Vec<Result<T>>>) -> Vec<Result<T>> {
    let repeat = |error: Error| (0..count).map(|_| Err(error.clone())).collect();
    answer.unwrap_or_else(repeat)
}

/// Names a claim: drawn anew each time, by whichever process, so that no restart repeats one. Never
/// negative, and never zero: a UUID's version is among its bits.
pub fn fresh_claim() -> i64 {
    let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
    (high >> 1).cast_signed()
}

/// Claims and settles the messages of one endpoint. Its methods may run at the same time.
///
/// With a fence bound, every claim, extension and settlement checks it in the same transaction: when a higher fence is
/// in force, each answers [`ErrorKind::TermLost`](crate::ErrorKind::TermLost) and changes nothing.
pub trait Consumer: Send + Sync + 'static {
    /// Claims up to `max` messages (at least 1). Waits while there are none; returns at once when there are some, and
    /// when `stop` fires, with what it has claimed by then.
    ///
    /// It claims no further message once those that it has make [`ConsumerSpec::max_bytes`], so that an answer weighs
    /// less than that and one message more; the first is claimed however large it is.
    ///
    /// Claiming counts the delivery; taking over a claim that ran out counts a crash. Claims of an older fence of this
    /// endpoint may be taken over at once, which counts one too: after a clean hand-over there are none. A message past its time to
    /// live is not delivered but dead-lettered as `expired`.
    ///
    /// Whenever the store has answered a claim it notes that in [`ConsumerSpec::pulse`].
    ///
    /// The pump never drops this future. If it is dropped all the same, what was claimed comes back when its lease
    /// ends.
    fn receive<'a>(&'a self, max: usize, stop: &'a CancellationToken)
    -> BoxFuture<'a, Result<Vec<Delivery>>>;

    /// Makes claims last `lease` from now on; may change a receipt. Answers
    /// [`ReceiptLost`](crate::ErrorKind::ReceiptLost) for each claim that is no longer ours.
    fn extend<'a>(&'a self, receipts: &'a mut [Receipt], lease: Duration) -> BoxFuture<'a, Vec<Result<()>>>;

    /// Ends claims. Answers [`ReceiptLost`](crate::ErrorKind::ReceiptLost) for each claim that is no longer ours, and
    /// changes nothing then. Settling what is settled by the same receipt answers `ReceiptLost` too.
    ///
    /// A `Retry` counts a failure, and forgets the crashes if the attempt was made alone; a `Release` takes back the
    /// delivery's count.
    fn settle(&self, settlements: Vec<Settlement>) -> BoxFuture<'_, Vec<Result<()>>>;

    /// Records, durably and before it starts, that the next run of this message is made alone: a crash in it sets
    /// [`Delivery::crashed_alone`].
    fn record_alone<'a>(&'a self, receipt: &'a Receipt) -> BoxFuture<'a, Result<()>>;
}
