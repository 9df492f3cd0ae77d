//! The handlers of this binary: each shows what it sees and answers what its test has said.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bus::prelude::*;
use bus_tests::task::Invoice;
use tokio::sync::mpsc::UnboundedSender;

/// What a handler saw.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) at: &'static str,
    pub(crate) text: String,
    pub(crate) id: MessageId,
    pub(crate) headers: Headers,
    pub(crate) count: u32,
    pub(crate) fence: Option<u64>,
}

/// What a handler is to do.
pub(crate) enum Answer {
    Done,
    Fail,
    RetryAfter(Duration),
    DeadLetter(&'static str),
    Panic,
    PanicWith(&'static str),
    Sleep(Duration),
}

/// Connects a test with its host's handlers.
#[derive(Clone)]
pub(crate) struct Probe {
    pub(crate) seen: UnboundedSender<Seen>,
    pub(crate) answer: Arc<dyn Fn(&Seen) -> Answer + Send + Sync>,
}

impl Probe {
    async fn see(&self, seen: Seen) -> bus::Result<()> {
        let answer = (self.answer)(&seen);
        // A test that has seen enough looks away.
        let _ = self.seen.send(seen);
        match answer {
            Answer::Done => Ok(()),
            Answer::Fail => Err(bus::Error::new(bus::ErrorKind::Handler, "it does not work")),
            Answer::RetryAfter(after) => Err(bus::Error::retry_after(after)),
            Answer::DeadLetter(reason) => Err(bus::Error::dead_letter(reason)),
            Answer::Panic => panic!("on purpose"),
            Answer::PanicWith(text) => panic!("{text}"),
            Answer::Sleep(time) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
        }
    }
}

macro_rules! commands {
    ($($name:ident $queue:literal)+) => {$(
        #[derive(Clone, Debug, Serialize, Deserialize, Command)]
        #[command(queue = $queue)]
        pub(crate) struct $name(pub(crate) String);
    )+};
}

commands! {
    Note "note"
    WrappedNote "wrapped-note"
    AnyhowNote "anyhow-note"
    ScopedNote "scoped-note"
    Strict "strict"
    Relaxed "relaxed"
    Relay "relay"
    SingleRelay "single-relay"
    Dig "dig"
    Relayed "relayed"
    Hasty "hasty"
    Patience "patience"
    Unprovided "unprovided"
    Twice "twice"
}

/// Goes where no configuration of these tests leads.
#[derive(Clone, Debug, Serialize, Deserialize, Command)]
#[command(queue = "lost", transport = "nowhere")]
pub(crate) struct Lost;

/// Numbers that no double can hold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, Command)]
#[command(queue = "ledger")]
pub(crate) struct Ledger {
    pub(crate) credit: u64,
    pub(crate) debit: i64,
    pub(crate) rate: f64,
}

/// Answers with what it read.
#[processor(settings = Patient)]
async fn ledger(message: Ledger, id: MessageId, headers: Headers, probe: Dep<Probe>) -> Result<()> {
    let text = format!("{message:?}");
    probe.see(Seen { at: "ledger", text, id, headers, count: 1, fence: None }).await
}

macro_rules! raw_messages {
    ($($name:ident)+) => {$(
        /// Bytes that travel as they are.
        #[derive(Clone, Debug, Default, Serialize, Deserialize)]
        pub(crate) struct $name(pub(crate) Vec<u8>);

        impl bus::Message for $name {
            const TYPE: &'static str = stringify!($name);
            const CONTENT_TYPE: &'static str = "application/octet-stream";
            fn encode(&self) -> Result<bytes::Bytes> {
                Ok(self.0.clone().into())
            }
            fn decode(body: &[u8]) -> Result<Self> {
                Ok($name(body.to_vec()))
            }
        }
    )+};
}

raw_messages! { Parcel ParcelSighted }

impl bus::Command for Parcel {
    const QUEUE: &'static str = "parcel";
}

impl bus::Event for ParcelSighted {
    const TOPIC: &'static str = "parcel-sighted";
}

/// Asks for a parcel of so many bytes.
#[derive(Clone, Debug, Serialize, Deserialize, Command)]
#[command(queue = "order-parcel")]
pub(crate) struct OrderParcel(pub(crate) usize);

#[derive(Settings)]
#[settings(dead_letter_delivery_limit = 3, retry(fixed = "50ms"))]
struct Patient;

/// Says how many bytes came.
#[processor(settings = Patient)]
async fn parcel(
    Parcel(bytes): Parcel,
    id: MessageId,
    headers: Headers,
    count: DeliveryCount,
    probe: Dep<Probe>,
) -> Result<()> {
    let text = bytes.len().to_string();
    probe.see(Seen { at: "parcel", text, id, headers, count: count.0, fence: None }).await
}

#[processor(subscription = "watch", settings = Patient)]
async fn parcel_sighted(
    ParcelSighted(bytes): ParcelSighted,
    id: MessageId,
    headers: Headers,
    probe: Dep<Probe>,
) -> Result<()> {
    let text = bytes.len().to_string();
    probe.see(Seen { at: "parcel-sighted/watch", text, id, headers, count: 1, fence: None }).await
}

/// Sends what was asked for, and says so or why not.
#[processor(settings = Patient)]
async fn order_parcel(
    OrderParcel(bytes): OrderParcel,
    id: MessageId,
    headers: Headers,
    bus: Bus,
    probe: Dep<Probe>,
) -> Result<()> {
    let text = match bus.send(Parcel(vec![7; bytes])).await {
        Ok(_) => "sent".to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    };
    probe.see(Seen { at: "order-parcel", text, id, headers, count: 1, fence: None }).await
}

#[processor(settings = Patient)]
pub(crate) async fn note(
    Note(text): Note,
    id: MessageId,
    headers: Headers,
    count: DeliveryCount,
    probe: Dep<Probe>,
) -> Result<()> {
    probe.see(Seen { at: "note", text, id, headers, count: count.0, fence: None }).await
}

/// As `thiserror` writes it for `#[error(transparent)] Bus(#[from] bus::Error)` within another that has a `#[source]`.
#[derive(Debug)]
enum ShopError {
    Checkout(CheckoutError),
}

#[derive(Debug)]
struct CheckoutError(bus::Error);

impl fmt::Display for ShopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the shop is closed")
    }
}
impl StdError for ShopError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            ShopError::Checkout(error) => Some(error),
        }
    }
}
impl fmt::Display for CheckoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
impl StdError for CheckoutError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
}

#[processor(settings = Patient)]
async fn wrapped_note(
    WrappedNote(text): WrappedNote,
    id: MessageId,
    headers: Headers,
    count: DeliveryCount,
    probe: Dep<Probe>,
) -> Result<(), ShopError> {
    let seen = Seen { at: "wrapped-note", text, id, headers, count: count.0, fence: None };
    probe.see(seen).await.map_err(|error| ShopError::Checkout(CheckoutError(error)))
}

#[processor(settings = Patient)]
async fn anyhow_note(
    AnyhowNote(text): AnyhowNote,
    id: MessageId,
    headers: Headers,
    count: DeliveryCount,
    probe: Dep<Probe>,
) -> anyhow::Result<()> {
    use anyhow::Context;
    let seen = Seen { at: "anyhow-note", text, id, headers, count: count.0, fence: None };
    probe.see(seen).await.context("while noting").context("while working")
}

/// How many scoped values are alive, and how many were made.
#[derive(Clone, Default)]
pub(crate) struct Census {
    pub(crate) alive: Arc<AtomicUsize>,
    pub(crate) made: Arc<AtomicUsize>,
}

#[provide]
fn census() -> Census {
    Census::default()
}

/// One for each message.
struct UnitOfWork(Census);

impl Drop for UnitOfWork {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

#[provide(scoped)]
fn unit_of_work(census: Dep<Census>) -> UnitOfWork {
    census.alive.fetch_add(1, Ordering::SeqCst);
    census.made.fetch_add(1, Ordering::SeqCst);
    UnitOfWork(Census::clone(&census))
}

/// Asks twice for the same.
#[processor(settings = Patient, max_concurrent_calls = 1, prefetch_count = 0)]
async fn scoped_note(
    ScopedNote(text): ScopedNote,
    id: MessageId,
    headers: Headers,
    work: Scoped<UnitOfWork>,
    again: Scoped<UnitOfWork>,
    probe: Dep<Probe>,
) -> Result<()> {
    assert!(Arc::ptr_eq(&work.into_inner(), &again.into_inner()), "one unit of work for one message");
    probe.see(Seen { at: "scoped-note", text, id, headers, count: 1, fence: None }).await
}

#[processor(singleton, settings = AsSingleton<Patient>, order = "strict", retry(fixed = "300ms"))]
async fn strict(
    Strict(text): Strict,
    id: MessageId,
    headers: Headers,
    term: Term,
    probe: Dep<Probe>,
) -> Result<()> {
    probe.see(Seen { at: "strict", text, id, headers, count: 1, fence: Some(term.fence().get()) }).await
}

#[processor(singleton, settings = AsSingleton<Patient>, retry(fixed = "300ms"))]
async fn relaxed(
    Relaxed(text): Relaxed,
    id: MessageId,
    headers: Headers,
    term: Term,
    probe: Dep<Probe>,
) -> Result<()> {
    probe.see(Seen { at: "relaxed", text, id, headers, count: 1, fence: Some(term.fence().get()) }).await
}

/// A service that sends by a handle of its own, made before there was any message.
pub(crate) struct Courier(Bus);

#[provide]
fn courier(bus: Bus) -> Courier {
    Courier(bus)
}

impl Courier {
    async fn deliver(&self, text: &str) -> Result<()> {
        self.0.send(Relayed(text.to_owned())).await.map(drop)
    }
}

#[processor]
async fn relay(
    _: Relay,
    id: MessageId,
    headers: Headers,
    bus: Bus,
    courier: Dep<Courier>,
    probe: Dep<Probe>,
) -> Result<()> {
    bus.send(Relayed("by the handler".to_owned())).await?;
    courier.deliver("by a service").await?;
    probe.see(Seen { at: "relay", text: String::new(), id, headers, count: 1, fence: None }).await
}

#[processor(singleton)]
async fn single_relay(
    _: SingleRelay,
    id: MessageId,
    headers: Headers,
    bus: Bus,
    courier: Dep<Courier>,
    term: Term,
    probe: Dep<Probe>,
) -> Result<()> {
    bus.send(Relayed("by the handler".to_owned())).await?;
    courier.deliver("by a service").await?;
    let fence = Some(term.fence().get());
    probe.see(Seen { at: "single-relay", text: String::new(), id, headers, count: 1, fence }).await
}

/// Sends from a thread of its own: once, or, at the first delivery of `until refused`, again and again until it is; then
/// takes back something else.
#[processor(singleton)]
async fn dig(
    Dig(text): Dig,
    id: MessageId,
    headers: Headers,
    count: DeliveryCount,
    bus: Bus,
    term: Term,
    probe: Dep<Probe>,
) -> Result<()> {
    let seen = |text: &str| Seen {
        at: "dig",
        text: text.to_owned(),
        id,
        headers: headers.clone(),
        count: count.0,
        fence: Some(term.fence().get()),
    };
    let until_refused = text == "until refused" && count.0 == 1;
    let (begun, shown) = (seen("begun"), probe.seen.clone());
    let work = move || {
        let runtime = tokio::runtime::Handle::current();
        let send = || runtime.block_on(bus.send(Relayed("by blocking work".to_owned())).into_future());
        let later = bus.send(Relayed("never".to_owned())).delay(Duration::from_secs(3600));
        let later = runtime.block_on(later.into_future()).expect("the term has just begun");
        let mut answer = send();
        let _ = shown.send(begun);
        while until_refused && answer.is_ok() {
            std::thread::sleep(Duration::from_millis(2));
            answer = send();
        }
        let sent = answer.map_or_else(|error| format!("{:?}", error.kind()), |_| "sent".to_owned());
        let taken_back = runtime.block_on(bus.cancel(&later));
        format!("{sent}, {:?}", taken_back.map_err(|error| error.kind()))
    };
    let ended = term.blocking(work).await?;
    probe.see(seen(&ended)).await
}

#[processor]
pub(crate) async fn relayed(
    Relayed(text): Relayed,
    id: MessageId,
    headers: Headers,
    probe: Dep<Probe>,
) -> Result<()> {
    probe.see(Seen { at: "relayed", text, id, headers, count: 1, fence: None }).await
}

/// What is polite heeds its token, and takes a moment to put its things away; anything else does not.
#[processor(message_lock_timeout = "200ms", retry(fixed = "50ms"), dead_letter_delivery_limit = 2)]
async fn hasty(
    Hasty(text): Hasty,
    id: MessageId,
    headers: Headers,
    count: DeliveryCount,
    token: CancellationToken,
    probe: Dep<Probe>,
) -> Result<()> {
    let polite = text == "polite";
    probe.see(Seen { at: "hasty", text, id, headers, count: count.0, fence: None }).await?;
    if !polite {
        return std::future::pending().await;
    }
    token.cancelled().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    Ok(())
}

/// The same, with all the time in the world.
#[processor(message_lock_timeout = "1h")]
async fn patient(
    _: Patience,
    id: MessageId,
    headers: Headers,
    token: CancellationToken,
    probe: Dep<Probe>,
) -> Result<()> {
    let text = String::new();
    probe.see(Seen { at: "patience", text, id, headers, count: 1, fence: None }).await?;
    token.cancelled().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    Ok(())
}

/// Read from another transport than the default one.
#[processor]
async fn invoice(Invoice(number): Invoice, id: MessageId, headers: Headers, probe: Dep<Probe>) -> Result<()> {
    let text = number.to_string();
    probe.see(Seen { at: "invoice", text, id, headers, count: 1, fence: None }).await
}

/// Nobody makes one.
pub(crate) struct Missing;

#[processor]
async fn unprovided(_: Unprovided, _missing: Dep<Missing>) {}

#[processor]
async fn once(_: Twice) {}

#[processor]
async fn twice(_: Twice) {}

#[processor]
async fn lost(_: Lost) {}
