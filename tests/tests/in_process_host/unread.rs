//! Subscriptions that nobody reads: warned of, kept for no longer than they say, and dropped.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bus::clock::Clock;
use bus::contract::{
    BoxFuture, Capabilities, Consumer, ConsumerSpec, DroppedSubscription, Guarantees, LeaseRange,
    OpenOptions, Reach, Readers, Scheme, Sender, StoreUrl, Transport,
};
use bus::host::config::Config;
use bus::{Endpoint, ErrorKind};
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use super::handlers::ParcelSighted;
use super::{Embedded, Place};

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// What has been said about subscriptions, one event a line.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<String>>>);

impl Said {
    /// Listens to this thread.
    fn listen() -> (Said, DefaultGuard) {
        let said = Said::default();
        let subscriber = tracing_subscriber::registry().with(said.clone());
        (said, tracing::subscriber::set_default(subscriber))
    }

    fn of(&self, event: &str) -> Vec<String> {
        self.0.lock().iter().filter(|line| line.contains(event)).cloned().collect()
    }
}

impl<S: tracing::Subscriber> Layer<S> for Said {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        if line.0.contains("event=\"subscription.") {
            self.0.lock().push(line.0);
        }
    }
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!("{}={value:?} ", field.name()));
    }
}

async fn store(place: &Place, clock: &Clock) -> Arc<dyn Transport> {
    let url = StoreUrl::parse(&place.url).expect("a URL");
    let open = Scheme::find(url.scheme()).expect("a scheme").transport.expect("it carries messages");
    open(&url, &OpenOptions::new(clock.clone())).await.expect("it opens")
}

fn readers(store: &Arc<dyn Transport>) -> Arc<dyn Readers> {
    store.capabilities().readers.expect("it tells who reads")
}

/// A host in virtual time that reads these endpoints.
async fn host(place: &Place, clock: &Clock, endpoints: &[&'static str], config: Config) -> Embedded {
    let config = config.with_transport("default", &place.url).expect("a configuration");
    place.host(endpoints).with(|host| host.config(config).clock(clock.clone())).start().await
}

fn endpoint(name: &str) -> Endpoint {
    Endpoint::parse(name).expect("an endpoint")
}

/// A subscription of a topic that the host publishes is warned of when nobody has read it for a day, with its depth and
/// age; one that is read is not, nor one of a topic that is nothing to this host.
#[tokio::test(start_paused = true)]
async fn a_subscription_that_nobody_reads_is_warned_of() {
    let (said, _guard) = Said::listen();
    let (place, clock) = (Place::memory(), Clock::tokio());
    let store = store(&place, &clock).await;
    let all = ["parcel-sighted/forgotten", "elsewhere/forgotten"].map(endpoint);
    store.prepare(&all).await.expect("prepared");
    let mut host = host(&place, &clock, &["parcel_sighted"], Config::default()).await;
    for _ in 0..3 {
        host.handle.bus().publish(ParcelSighted(vec![0])).await.expect("published");
        host.seen().await;
    }
    tokio::time::sleep(DAY - HOUR).await;
    assert!(said.of("subscription.unread").is_empty(), "too early: {:?}", said.of("subscription.unread"));
    tokio::time::sleep(3 * HOUR).await;
    let warnings = said.of("subscription.unread");
    assert!((1..=3).contains(&warnings.len()), "{warnings:?}");
    for warning in &warnings {
        for words in ["subscription=parcel-sighted/forgotten", "transport=\"default\"", "ready=3"] {
            assert!(warning.contains(words), "{words} is missing from {warning}");
        }
    }
    let readings = readers(&store).readings().await.expect("it answers");
    let read = readings.iter().find(|one| one.endpoint == endpoint("parcel-sighted/watch")).expect("listed");
    assert!(read.attended.is_some_and(|ago| ago < Duration::from_secs(90)), "{read:?}");
    host.stop().await;
}

/// The threshold can be set, and the warning be turned off.
#[tokio::test(start_paused = true)]
async fn the_warning_comes_when_it_is_configured_to_or_never() {
    for (after, expected) in [(Duration::from_secs(1800), true), (Duration::ZERO, false)] {
        let (said, _guard) = Said::listen();
        let (place, clock) = (Place::memory(), Clock::tokio());
        let store = store(&place, &clock).await;
        store.prepare(&[endpoint("parcel-sighted/forgotten")]).await.expect("prepared");
        let mut config = Config::default();
        config.warn_unread_after = after;
        let host = host(&place, &clock, &["parcel_sighted"], config).await;
        host.handle.bus().publish(ParcelSighted(vec![0])).await.expect("published");
        tokio::time::sleep(3 * HOUR).await;
        assert_eq!(!said.of("subscription.unread").is_empty(), expected, "{after:?}");
        host.stop().await;
    }
}

/// A subscription with a retention keeps nothing for longer, also when the only hosts left are those that publish: what is
/// dropped is counted and said.
#[tokio::test(start_paused = true)]
async fn what_a_subscription_keeps_beyond_its_retention_is_dropped_while_nobody_reads_it() {
    let (said, _guard) = Said::listen();
    let (place, clock) = (Place::memory(), Clock::tokio());
    let store = store(&place, &clock).await;
    let file = tempfile::tempdir().expect("a directory");
    let text = "[processors.\"parcel-sighted/watch\"]\nretention = \"2h\"\n";
    std::fs::write(file.path().join("bus.toml"), text).expect("written");
    let config = Config::read(file.path(), std::iter::empty::<(String, String)>()).expect("it is sound");
    host(&place, &clock, &["parcel_sighted"], config).await.stop().await;

    let publisher = host(&place, &clock, &["note"], Config::default()).await;
    let inspect = store.capabilities().inspect.expect("it can be looked into");
    let ready = async || inspect.depth(&endpoint("parcel-sighted/watch")).await.expect("it answers").ready;
    for _ in 0..3 {
        publisher.handle.bus().publish(ParcelSighted(vec![0])).await.expect("published");
    }
    tokio::time::sleep(HOUR).await;
    publisher.handle.bus().publish(ParcelSighted(vec![0])).await.expect("published");
    assert_eq!(ready().await, 4);
    tokio::time::sleep(HOUR + Duration::from_secs(120)).await;
    assert_eq!(ready().await, 1, "three were older than two hours");
    let swept = said.of("subscription.swept");
    assert_eq!(swept.len(), 1, "{swept:?}");
    for words in ["subscription=parcel-sighted/watch", "messages=3"] {
        assert!(swept[0].contains(words), "{words} is missing from {swept:?}");
    }
    publisher.stop().await;
}

/// A subscription is dropped when no host has read it for three minutes, and not before; a host that reads it again has a
/// new one.
#[tokio::test(start_paused = true)]
async fn a_subscription_can_be_dropped_when_its_hosts_are_gone() {
    let (place, clock) = (Place::memory(), Clock::tokio());
    let store = store(&place, &clock).await;
    let watch = endpoint("parcel-sighted/watch");
    let reader = host(&place, &clock, &["parcel_sighted"], Config::default()).await;
    let unread = bus::contract::UNATTENDED_AFTER;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(60)).await;
        let answer = readers(&store).drop_subscription(&watch, unread).await.expect("it answers");
        assert!(matches!(answer, DroppedSubscription::Attended(_)), "it is read: {answer:?}");
    }
    reader.stop().await;
    let answer = readers(&store).drop_subscription(&watch, unread).await.expect("it answers");
    assert!(matches!(answer, DroppedSubscription::Attended(_)), "it was read a moment ago: {answer:?}");
    tokio::time::sleep(unread).await;
    let answer = readers(&store).drop_subscription(&watch, unread).await.expect("it answers");
    assert_eq!(answer, DroppedSubscription::Done);

    let mut reader = host(&place, &clock, &["parcel_sighted"], Config::default()).await;
    reader.handle.bus().publish(ParcelSighted(vec![0])).await.expect("published");
    assert_eq!(reader.seen().await.at, "parcel-sighted/watch");
    reader.stop().await;
}

/// A host that was suspended for so long that its subscription was dropped has a new one when it goes on.
#[tokio::test(start_paused = true)]
async fn a_host_whose_subscription_was_dropped_beneath_it_reads_a_new_one() {
    let (place, clock) = (Place::memory(), Clock::tokio());
    let store = store(&place, &clock).await;
    let watch = endpoint("parcel-sighted/watch");
    let mut reader = host(&place, &clock, &["parcel_sighted"], Config::default()).await;
    let answer = readers(&store).drop_subscription(&watch, Duration::ZERO).await.expect("it answers");
    assert_eq!(answer, DroppedSubscription::Done);
    let inspect = store.capabilities().inspect.expect("it can be looked into");
    while !inspect.endpoints().await.expect("it answers").contains(&watch) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    reader.handle.bus().publish(ParcelSighted(vec![0])).await.expect("published");
    assert_eq!(reader.seen().await.at, "parcel-sighted/watch");
    reader.stop().await;
}

/// A command is not dropped because nobody reads it.
#[test]
fn a_retention_of_a_queue_is_refused() {
    let file = tempfile::tempdir().expect("a directory");
    std::fs::write(file.path().join("bus.toml"), "[processors.note]\nretention = \"7d\"\n").expect("written");
    let config = Config::read(file.path(), std::iter::empty::<(String, String)>()).expect("it can be read");
    let (seen, _) = tokio::sync::mpsc::unbounded_channel();
    let probe = super::Probe { seen, answer: Arc::new(|_| super::Answer::Done) };
    let host = bus::Host::builder().config(config).provide(probe).only(["note"]);
    let refused = host.build().expect_err("a queue has none");
    assert_eq!(refused.kind(), ErrorKind::Wiring);
    let text = refused.to_string();
    assert!(text.contains("handlers.rs:") && text.contains("`note` has a retention"), "{text}");
}

/// A store that does not tell who reads.
struct Silent(Arc<dyn Transport>);

impl Transport for Silent {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.0.capabilities();
        capabilities.readers = None;
        capabilities
    }

    fn guarantees(&self) -> Guarantees {
        self.0.guarantees()
    }

    fn prepare<'a>(&'a self, endpoints: &'a [Endpoint]) -> BoxFuture<'a, bus::Result<()>> {
        self.0.prepare(endpoints)
    }

    fn sender(&self) -> Arc<dyn Sender> {
        self.0.sender()
    }

    fn consumer(&self, spec: ConsumerSpec) -> BoxFuture<'_, bus::Result<Arc<dyn Consumer>>> {
        self.0.consumer(spec)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.close()
    }
}

fn open_silent<'a>(
    url: &'a StoreUrl,
    options: &'a OpenOptions,
) -> BoxFuture<'a, bus::Result<Arc<dyn Transport>>> {
    Box::pin(async move {
        let open = Scheme::find("memory")?.transport.expect("it carries messages");
        let url = StoreUrl::parse(&format!("memory://{}", url.rest()))?;
        Ok(Arc::new(Silent(open(&url, options).await?)) as Arc<dyn Transport>)
    })
}

inventory::submit! {
    Scheme {
        name: "silent",
        reach: Reach::Process,
        leases: LeaseRange::USUAL,
        transport: Some(open_silent),
        locks: None,
    }
}

fn with_retention(endpoint: &str) -> Config {
    let file = tempfile::tempdir().expect("a directory");
    let text = format!("[processors.\"{endpoint}\"]\nretention = \"7d\"\n");
    std::fs::write(file.path().join("bus.toml"), text).expect("written");
    Config::read(file.path(), std::iter::empty::<(String, String)>()).expect("it can be read")
}

fn watching(config: Config) -> bus::host::HostBuilder {
    let (seen, _) = tokio::sync::mpsc::unbounded_channel();
    let probe = super::Probe { seen, answer: Arc::new(|_| super::Answer::Done) };
    bus::Host::builder().config(config).provide(probe).only(["parcel_sighted"])
}

fn assert_names_the_place(refused: &bus::Error) {
    assert_eq!(refused.kind(), ErrorKind::Wiring);
    let text = refused.to_string();
    for words in ["handlers.rs:", "`parcel_sighted` has a retention", "\"default\" cannot keep"] {
        assert!(text.contains(words), "{words} is missing from {text}");
    }
}

/// A retention that nobody would keep is refused: where the store was given, before anything is connected; where it has a
/// URL, when it is open.
#[tokio::test]
async fn a_retention_that_the_store_does_not_keep_is_refused() {
    let (place, clock) = (Place::memory(), Clock::system());
    let config = with_retention("parcel-sighted/watch");
    let silent = Silent(store(&place, &clock).await);
    let given = watching(config.clone()).transport_instance("default", silent);
    assert_names_the_place(&given.build().expect_err("nobody keeps it"));

    let url = format!("silent://{}", uuid::Uuid::new_v4());
    let opened = watching(config).transport("default", &url).build().expect("nothing is known yet");
    assert_names_the_place(&opened.start().await.expect_err("nobody keeps it"));

    let silent = Silent(store(&place, &clock).await);
    let without = watching(Config::default()).transport_instance("default", silent);
    let host = without.build().expect("it is sound").start().await.expect("it starts");
    host.stop().await.expect("stopped");
}
