//! The macros at work: what is annotated is found, runs, and is checked as a whole.

#![forbid(unsafe_code)]
#![deny(warnings, missing_docs)]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bus::clock::Timestamp;
use bus::message::{Delivery, Endpoint, Envelope, Receipt, Verdict};
use bus::prelude::*;
use bus::processor::{Extract, Processor};
use bus::registry;
use bus::scope::{HostScope, Scope, Values};
use bus::settings::Order;

#[derive(Debug, Serialize, Deserialize, Command)]
#[command(queue = "rebuild-cache")]
struct RebuildCache {
    tenant: String,
}

#[derive(Debug, Serialize, Deserialize, Event)]
#[event(topic = "order-placed", transport = "billing")]
struct OrderPlaced {
    order_id: u64,
}

#[derive(Settings)]
#[settings(max_concurrent_calls = 100, prefetch_count = 50, message_lock_timeout = "90s")]
#[settings(dead_letter_delivery_limit = 3, retry(exponential(first = "2s", max = "1h")), lease = "10s")]
struct Bulk;

/// The user's own `Default` goes on being the standard library's.
#[derive(Default)]
struct Config {
    url: String,
}

#[derive(Default)]
struct Catalog {
    url: String,
    calls: AtomicUsize,
    works_made: AtomicUsize,
    works_alive: AtomicUsize,
}

#[provide]
fn config() -> Config {
    Config { url: "made here".into() }
}

#[provide]
async fn catalog(config: Dep<Config>) -> Result<Catalog> {
    Ok(Catalog { url: config.url.clone(), ..Catalog::default() })
}

struct UnitOfWork(MessageId, Dep<Catalog>);

impl Drop for UnitOfWork {
    fn drop(&mut self) {
        self.1.works_alive.fetch_sub(1, Ordering::SeqCst);
    }
}

#[provide(scoped)]
async fn unit_of_work(catalog: Dep<Catalog>, message: MessageId) -> Result<UnitOfWork, fmt::Error> {
    catalog.works_made.fetch_add(1, Ordering::SeqCst);
    catalog.works_alive.fetch_add(1, Ordering::SeqCst);
    Ok(UnitOfWork(message, catalog))
}

/// Needs what another argument of the same handler needs.
struct Audit(MessageId);

#[provide(scoped)]
async fn audit(work: Scoped<UnitOfWork>) -> Audit {
    Audit(work.0)
}

/// An extractor of the user's own.
struct Tenant(String);

impl<C> Extract<C> for Tenant {
    async fn extract(delivery: &Delivery) -> Result<Self> {
        match delivery.envelope.headers.get("tenant") {
            Some(tenant) => Ok(Tenant(tenant.to_owned())),
            None => Err(bus::Error::dead_letter("it has no header `tenant`")),
        }
    }
}

#[processor(singleton, settings = AsSingleton<Bulk>, order = "strict")]
async fn rebuild_cache(message: RebuildCache, _term: Term, catalog: Dep<Catalog>) -> Result<()> {
    catalog.calls.fetch_add(message.tenant.len(), Ordering::SeqCst);
    Ok(())
}

#[processor(subscription = "send-receipt", settings = Bulk, lease = "20s")]
async fn send_receipt(
    event: OrderPlaced,
    work: Scoped<UnitOfWork>,
    audit: Scoped<Audit>,
    Tenant(tenant): Tenant,
    _count: DeliveryCount,
    _cancelled: CancellationToken,
    _headers: Headers,
) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
    tokio::task::yield_now().await;
    assert_eq!(work.0, audit.0);
    match (event.order_id, tenant.as_str()) {
        (_, "later") => Err(bus::Error::retry_after(Duration::from_secs(90)).into()),
        (0, _) => Err("no such order".into()),
        _ => Ok(()),
    }
}

#[processor(subscription = "count", settings = Default)]
async fn count_orders(_event: OrderPlaced) {}

#[processor(subscription = "single", singleton, settings = AsSingleton<Default>, max_concurrent_calls = 1)]
async fn single(_event: OrderPlaced) {}

/// An error around another one.
#[derive(Debug)]
struct Wrapped(bus::Error);

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("while refusing")
    }
}

impl std::error::Error for Wrapped {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[processor(subscription = "refuse")]
async fn refuse(_event: OrderPlaced) -> Result<(), Wrapped> {
    Err(Wrapped(bus::Error::dead_letter("the tenant is gone")))
}

struct Reluctant;

#[provide]
async fn reluctant(config: Dep<Config>) -> Result<Reluctant, &'static str> {
    if config.url == "nowhere" { Err("not there") } else { Ok(Reluctant) }
}

fn processor(name: &str) -> Processor {
    registry::processors().into_iter().find(|p| p.name == name).expect("it is annotated above")
}

async fn host() -> Arc<HostScope> {
    let mut values = Values::default();
    values.insert(Arc::new(Config { url: "given in code".into() }));
    HostScope::build(values, &registry::providers()).await.expect("all is provided")
}

async fn deliver(name: &str, host: Arc<HostScope>, body: &str, headers: &[(&str, &str)]) -> (Verdict, Scope) {
    let processor = processor(name);
    let mut envelope = Envelope::new("test", body.to_owned(), Timestamp::from_micros(0));
    envelope.headers = headers.iter().copied().collect();
    let mut delivery = Delivery::new(envelope, Arc::new(processor.endpoint.clone()), Receipt::new(1, 1));
    delivery.scope = Scope::new(host, CancellationToken::new());
    let scope = delivery.scope.clone();
    (processor.handler.call(delivery).await, scope)
}

#[test]
fn what_is_annotated_is_found_with_its_place_and_settings() {
    let receipt = processor("send_receipt");
    assert_eq!(receipt.endpoint, Endpoint::subscription("order-placed", "send-receipt").unwrap());
    assert_eq!((receipt.transport, receipt.message_type), ("billing", "OrderPlaced"));
    assert_eq!((receipt.krate, receipt.file), ("macros", "tests/tests/macros.rs"));
    assert_eq!(receipt.settings_name, "Bulk and inline");
    assert!(!receipt.singleton);
    let settings = receipt.settings;
    assert_eq!((settings.max_concurrent_calls, settings.prefetch_count), (100, 50));
    assert_eq!(settings.message_lock_timeout, Duration::from_secs(90));
    assert_eq!((settings.lease, settings.dead_letter_delivery_limit), (Duration::from_secs(20), 3));
    let (first, max) = (Duration::from_secs(2), Duration::from_secs(3600));
    assert_eq!(settings.retry, bus::settings::Retry::Exponential { first, max });

    let rebuild = processor("rebuild_cache");
    assert!(rebuild.singleton);
    assert_eq!(rebuild.transport, "default");
    assert_eq!((rebuild.settings.max_concurrent_calls, rebuild.settings.prefetch_count), (1, 0));
    assert_eq!((rebuild.settings.order, rebuild.settings_name), (Order::Strict, "AsSingleton<Bulk>"));
    assert_eq!(rebuild.settings.lease, Duration::from_secs(10));
}

#[test]
fn processors_come_in_the_same_order_each_time() {
    let names: Vec<_> = registry::processors().iter().map(|p| p.name).collect();
    assert_eq!(names, ["count_orders", "refuse", "send_receipt", "single", "rebuild_cache"]);
}

#[tokio::test]
async fn the_function_stays_callable() {
    let work = unit_of_work(Dep::new(Catalog::default()), MessageId::fresh()).await.unwrap();
    let audit = Scoped::new(Audit(work.0));
    let result = send_receipt(
        OrderPlaced { order_id: 1 },
        Scoped::new(work),
        audit,
        Tenant("acme".to_owned()),
        DeliveryCount(1),
        CancellationToken::new(),
        Headers::new(),
    );
    assert!(result.await.is_ok());
}

#[tokio::test]
async fn values_given_in_code_come_before_what_is_annotated() {
    assert_eq!(host().await.get::<Catalog>().unwrap().url, "given in code");
    let annotated = HostScope::build(Values::default(), &registry::providers()).await.unwrap();
    assert_eq!(annotated.get::<Catalog>().unwrap().url, "made here");
}

#[tokio::test]
async fn a_scoped_value_is_made_once_per_message_and_dropped_with_its_scope() {
    let host = host().await;
    let (verdict, scope) =
        deliver("send_receipt", host.clone(), r#"{"order_id":7}"#, &[("tenant", "acme")]).await;
    assert!(matches!(verdict, Verdict::Complete), "{verdict:?}");
    let catalog = host.get::<Catalog>().unwrap();
    let works = || (catalog.works_made.load(Ordering::SeqCst), catalog.works_alive.load(Ordering::SeqCst));
    assert_eq!(works(), (1, 1));
    drop(scope);
    assert_eq!(works(), (1, 0));
}

#[tokio::test]
async fn a_result_becomes_a_verdict() {
    let host = host().await;
    let (verdict, _) = deliver("count_orders", host.clone(), r#"{"order_id":7}"#, &[]).await;
    assert!(matches!(verdict, Verdict::Complete));

    let (verdict, _) = deliver("count_orders", host.clone(), "nonsense", &[]).await;
    let Verdict::DeadLetter { reason, error: Some(_) } = verdict else { panic!("{verdict:?}") };
    assert_eq!(reason, "undecodable");

    let (verdict, _) =
        deliver("send_receipt", host.clone(), r#"{"order_id":0}"#, &[("tenant", "acme")]).await;
    let Verdict::Retry { after: None, error } = verdict else { panic!("{verdict:?}") };
    assert_eq!(format!("{error:?}"), "the handler failed\n  caused by: no such order");

    let (verdict, _) =
        deliver("send_receipt", host.clone(), r#"{"order_id":7}"#, &[("tenant", "later")]).await;
    assert!(matches!(verdict, Verdict::Retry { after: Some(NINETY), .. }), "{verdict:?}");

    let (verdict, _) = deliver("send_receipt", host, r#"{"order_id":7}"#, &[]).await;
    let Verdict::DeadLetter { reason, error: Some(_) } = verdict else { panic!("{verdict:?}") };
    assert_eq!(reason, "it has no header `tenant`");
}

const NINETY: Duration = Duration::from_secs(90);

#[tokio::test]
async fn a_directive_is_found_in_whatever_error_it_is_wrapped_in() {
    let (verdict, _) = deliver("refuse", host().await, r#"{"order_id":7}"#, &[]).await;
    let Verdict::DeadLetter { reason, error: Some(error) } = verdict else { panic!("{verdict:?}") };
    assert_eq!(reason, "the tenant is gone");
    assert!(format!("{error:?}").contains("while refusing"), "{error:?}");
}

#[test]
fn this_program_is_wired_soundly() {
    assert_eq!(registry::check(&registry::processors(), &Values::default()), []);
}

#[tokio::test]
async fn a_provider_that_fails_is_named_with_its_place() {
    let mut values = Values::default();
    values.insert(Arc::new(Config { url: "nowhere".into() }));
    let error = HostScope::build(values, &registry::providers()).await.unwrap_err();
    let text = format!("{error:?}");
    assert!(text.starts_with("the provider `reluctant` could not make its value (type: "), "{text}");
    assert!(text.contains("at: tests/tests/macros.rs:"), "{text}");
    assert!(text.ends_with("caused by: not there"), "{text}");
}
