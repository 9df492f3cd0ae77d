//! What a message's run is given: made when it is asked for, disposed of when the message is finished, however that ends.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use bus::contract::BoxFuture;
use bus::prelude::*;
use bus::processor::{MessageScope, Requirement, ScopeProvider};
use bus::testing::Durations;
use parking_lot::Mutex;

use super::heard::Heard;
use super::{Host, Made, Place, Virtual};

/// What has happened, in order.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().push(what.into());
    }

    fn read(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

#[provide]
fn diary() -> Diary {
    Diary::default()
}

/// Says in its headers what its handler does (`run`), and what the disposal of its transaction does (`end`).
#[derive(Serialize, Deserialize, Command)]
#[command(queue = "booking")]
struct Booking;

/// The first to be made, and the last to go.
struct Connection(Diary);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.note("connection dropped");
    }
}

#[provide(scoped, dispose = close)]
async fn connection(diary: Dep<Diary>) -> Connection {
    tokio::task::yield_now().await;
    diary.note("connection made");
    Connection(Diary::clone(&diary))
}

async fn close(connection: Scoped<Connection>) {
    tokio::time::sleep(Duration::from_millis(10)).await;
    connection.0.note("connection closed");
}

/// Needs a connection.
struct Transaction {
    diary: Diary,
    end: String,
}

#[provide(scoped, dispose = roll_back)]
async fn transaction(
    _connection: Scoped<Connection>,
    diary: Dep<Diary>,
    headers: Headers,
) -> Result<Transaction> {
    if headers.get("make") == Some("fails") {
        return Err(bus::Error::new(bus::ErrorKind::Handler, "there is none to be had"));
    }
    diary.note("transaction made");
    let end = headers.get("end").unwrap_or("well").to_owned();
    Ok(Transaction { diary: Diary::clone(&diary), end })
}

/// Panics when it is dropped.
struct Fragile;

impl Drop for Fragile {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

async fn roll_back(transaction: Scoped<Transaction>) -> Result<(), String> {
    transaction.diary.note("transaction ends");
    match transaction.end.as_str() {
        "fails" => return Err("the answer was no".to_owned()),
        "panics" => panic!("on purpose"),
        "hangs" => std::future::pending().await,
        "breaks" => {
            let _held = Fragile;
            std::future::pending().await
        }
        _ => tokio::time::sleep(Duration::from_millis(10)).await,
    }
    transaction.diary.note("transaction ended");
    Ok(())
}

/// Needs a transaction, and has no disposal.
struct Audit(Diary);

impl Drop for Audit {
    fn drop(&mut self) {
        self.0.note("audit dropped");
    }
}

#[provide(scoped)]
fn audit(_transaction: Scoped<Transaction>, diary: Dep<Diary>) -> Audit {
    Audit(Diary::clone(&diary))
}

/// From a container, where a test gives one.
struct Session(&'static str);

#[provide(scoped)]
fn session() -> Session {
    Session("annotated")
}

#[processor(message_lock_timeout = "1s", dead_letter_delivery_limit = 1)]
async fn booking(
    _booking: Booking,
    headers: Headers,
    diary: Dep<Diary>,
    _audit: Scoped<Audit>,
    _transaction: Scoped<Transaction>,
) -> Result<()> {
    diary.note("run");
    match headers.get("run") {
        Some("fails") => Err(bus::Error::dead_letter("no")),
        Some("panics") => panic!("on purpose"),
        Some("hangs") => std::future::pending().await,
        _ => Ok(()),
    }
}

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "seance")]
struct Seance;

#[processor(dead_letter_delivery_limit = 1)]
async fn seance(
    _message: Seance,
    first: Scoped<Session>,
    again: Scoped<Session>,
    headers: Headers,
    diary: Dep<Diary>,
) -> Result<()> {
    assert!(Arc::ptr_eq(&first.clone().into_inner(), &again.into_inner()), "one session for one message");
    diary.note(format!("run with {}", first.0));
    match headers.get("run") {
        Some("panics") => panic!("on purpose"),
        _ => Ok(()),
    }
}

/// Nobody makes one, but for a container.
struct UnheardOf;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "unheard")]
struct Unheard;

#[processor]
async fn unheard(_message: Unheard, _value: Scoped<UnheardOf>) {}

/// A host of these processors, and what happens there.
fn made(endpoint: &'static str) -> (Made, Diary) {
    let diary = Diary::default();
    let given = diary.clone();
    (Place::memory().host(&[endpoint]).with(|host| host.provide(given)), diary)
}

async fn started(endpoint: &'static str) -> (Virtual, Diary) {
    let (made, diary) = made(endpoint);
    (made.start_virtually().await, diary)
}

const BEGUN: [&str; 3] = ["connection made", "transaction made", "run"];
const ENDED: [&str; 5] =
    ["audit dropped", "transaction ends", "transaction ended", "connection closed", "connection dropped"];

/// The promise: one scope a message; what is scoped is disposed of when the message is finished, in the reverse order of
/// its making, whatever the outcome.
#[bus::test]
async fn scoped_values_are_disposed_of_in_reverse_order_however_the_run_ends() {
    let (embedded, diary) = started("booking").await;
    for how in ["ends", "fails", "panics", "hangs"] {
        embedded.host.bus().send(Booking).header("run", how).await.expect("sent");
        embedded.host.advance(1.minutes()).await;
        assert_eq!(diary.read(), [&BEGUN[..], &ENDED[..]].concat(), "of a run that {how}");
    }
    assert_eq!(embedded.host.dead::<Booking>().len(), 3, "all but the one that ended");
}

/// What fails, panics or hangs while it is disposed of is told, and keeps neither the others from being disposed of nor the
/// message from its verdict.
#[bus::test]
async fn a_disposal_that_fails_panics_or_hangs_is_told_and_stops_nothing() {
    let heard = Heard::listen();
    let (embedded, diary) = started("booking").await;
    for (how, told) in [
        ("fails", "the answer was no"),
        ("panics", "it panicked: on purpose"),
        ("hangs", "it took longer than 5s"),
        ("breaks", "it panicked while it was dropped: on purpose"),
    ] {
        embedded.host.bus().send(Booking).header("end", how).await.expect("sent");
        embedded.host.advance(1.minutes()).await;
        let seen = diary.read();
        assert!(
            seen.ends_with(&["connection closed".into(), "connection dropped".into()]),
            "{how}: {seen:?}"
        );
        let failed = heard.events("disposal.failed");
        let last = failed.last().unwrap_or_else(|| panic!("nothing is told of one that {how}"));
        assert!(last.contains(told) && last.contains("Transaction"), "{last}");
    }
    assert_eq!(heard.events("disposal.failed").len(), 4, "once each");
    assert_eq!(embedded.host.completed::<Booking>().len(), 4, "the messages are done");
    assert!(embedded.host.dead::<Booking>().is_empty());
}

/// A run that is dropped at the end of its host is disposed of too; that has half a second, so that the end is in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_cut_at_the_end_is_disposed_of_in_bounded_time() {
    for end in ["well", "hangs"] {
        let (made, diary) = made("booking");
        let config = "[processors.booking]\nmessage_lock_timeout = \"10m\"\n";
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("bus.toml"), config).expect("written");
        let place = Place::memory();
        let config =
            bus::host::config::Config::read(directory.path(), std::iter::empty::<(String, String)>())
                .and_then(|config| config.with_transport("default", &place.url))
                .expect("it is sound");
        let made = made.with(|host| host.config(config).shutdown_grace_period(Duration::ZERO));
        let host = made.start().await;
        host.handle.bus().send(Booking).header("run", "hangs").header("end", end).await.expect("sent");
        bus_tests::wait::until_true("it runs", || diary.0.lock().iter().any(|what| what == "run")).await;
        let began = tokio::time::Instant::now();
        host.stop().await;
        let (took, seen) = (began.elapsed(), diary.read());
        assert!(took < Duration::from_secs(4), "it took {took:?}");
        assert!(seen.ends_with(&["connection closed".into(), "connection dropped".into()]), "{seen:?}");
        assert_eq!(seen.contains(&"transaction ended".to_owned()), end == "well", "{seen:?}");
    }
}

/// Of what a run needs, some has been made when something cannot be: it is disposed of as well.
#[bus::test]
async fn what_has_been_made_when_another_value_cannot_be_is_disposed_of() {
    let (embedded, diary) = started("booking").await;
    embedded.host.bus().send(Booking).header("make", "fails").await.expect("sent");
    embedded.host.settled().await;
    assert_eq!(diary.read(), ["connection made", "connection closed", "connection dropped"]);
    let letter = embedded.host.dead::<Booking>().remove(0);
    assert!(letter.error.is_some_and(|error| error.contains("transaction")), "the provider is named");
}

/// A task that has outlived its message gets nothing more made for it.
#[bus::test]
async fn nothing_is_made_for_a_message_that_is_finished() {
    let (late, mut told) = tokio::sync::mpsc::unbounded_channel();
    let (made, diary) = made("booking");
    let made = made.with(|host| {
        host.middleware(move |delivery: Delivery, _next: Next| {
            let late = late.clone();
            async move {
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    let asked =
                        <Scoped<Transaction> as Extract<bus::processor::Plain>>::extract(&delivery).await;
                    late.send(asked.map(drop).map_err(|error| error.kind()))
                });
                Verdict::Complete
            }
        })
    });
    let embedded = made.start_virtually().await;
    embedded.host.bus().send(Booking).await.expect("sent");
    embedded.host.advance(1.minutes()).await;
    assert_eq!(told.recv().await, Some(Err(bus::ErrorKind::Closed)));
    assert!(diary.read().is_empty(), "nothing was made");
}

/// Opens a scope for each message, and notes what becomes of it.
struct Container {
    diary: Diary,
    closing: &'static str,
}

struct Opened {
    diary: Diary,
    id: MessageId,
    closing: &'static str,
}

impl ScopeProvider for Container {
    fn provides(&self, value: &Requirement) -> bool {
        value.is::<Session>()
    }

    fn open<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<Arc<dyn MessageScope>>> {
        Box::pin(async move {
            if delivery.envelope.headers.get("open") == Some("fails") {
                return Err(bus::Error::dead_letter("the container is empty"));
            }
            self.diary.note("opened");
            let id = delivery.envelope.id;
            Ok(Arc::new(Opened { diary: self.diary.clone(), id, closing: self.closing }) as _)
        })
    }
}

impl MessageScope for Opened {
    fn get<'a>(&'a self, value: &'a Requirement) -> BoxFuture<'a, Result<Arc<dyn Any + Send + Sync>>> {
        assert!(value.is::<Session>(), "nothing else was promised");
        Box::pin(async move {
            self.diary.note("given");
            Ok(Arc::new(Session("the container's")) as _)
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.diary.note("closed");
            match self.closing {
                "fails" => Err(bus::Error::new(bus::ErrorKind::Handler, format!("{} is not there", self.id))),
                _ => Ok(()),
            }
        })
    }
}

/// A container of the program's own opens a scope for a message and is awaited when the message is finished, whatever the
/// outcome; it goes before what is annotated.
#[bus::test]
async fn a_container_of_ones_own_opens_a_scope_for_each_message_and_is_awaited_at_its_end() {
    let heard = Heard::listen();
    let (made, diary) = made("seance");
    let container = Container { diary: diary.clone(), closing: "fails" };
    let embedded = made.with(|host| host.scope_provider(container)).start_virtually().await;
    for how in ["ends", "panics"] {
        let id = embedded.host.bus().send(Seance).header("run", how).await.expect("sent").id();
        embedded.host.settled().await;
        assert_eq!(diary.read(), ["opened", "given", "run with the container's", "closed"], "{how}");
        let told = heard.events("disposal.failed").pop().expect("it is told");
        assert!(told.contains(&format!("{id} is not there")), "{told}");
    }
    embedded.host.bus().send(Seance).header("open", "fails").await.expect("sent");
    embedded.host.settled().await;
    assert!(diary.read().is_empty(), "there was nothing to be closed");
    assert_eq!(embedded.host.completed::<Seance>().len(), 1);
    let reasons: Vec<_> = embedded.host.dead::<Seance>().iter().map(|letter| letter.reason.clone()).collect();
    assert_eq!(reasons, ["failed 1 times", "the container is empty"]);
}

/// Without a container, what is annotated makes the value.
#[bus::test]
async fn without_a_container_what_is_annotated_is_used() {
    let (embedded, diary) = started("seance").await;
    embedded.host.bus().send(Seance).await.expect("sent");
    embedded.host.settled().await;
    assert_eq!(diary.read(), ["run with annotated"]);
}

/// What a container provides need not be made by anything else, and what it does not is missed at the start.
#[test]
fn a_container_is_asked_at_the_start_what_it_provides() {
    struct Other;
    impl ScopeProvider for Other {
        fn provides(&self, value: &Requirement) -> bool {
            value.type_name.contains("Unheard")
        }
        fn open<'a>(&'a self, _: &'a Delivery) -> BoxFuture<'a, Result<Arc<dyn MessageScope>>> {
            Box::pin(async { Err(bus::Error::new(bus::ErrorKind::Handler, "never opened")) })
        }
    }
    let host = || Host::builder().transport("default", "memory://scopes").only(["unheard"]);
    let missing = host().build().map(drop).expect_err("nothing provides it").to_string();
    assert!(missing.contains("Scoped<") && missing.contains("scope_provider("), "{missing}");
    host().scope_provider(Other).build().expect("the container provides it");
}
