//! The attributes and derives of `bus`. Use them through `bus`, which documents them where they are re-exported.
//!
//! Each goes the same road: **parse** the attribute and the item, **validate** what the macro alone can see, **expand**.
//! What only the compiler can see (types, traits, values of constants) is written out as bounds and as constants that
//! carry the user's own span, so that it is the compiler that judges and the user's code that is pointed at. The rules
//! for names and settings stand once, as constant functions in `bus`; nothing of them is repeated here.
//!
//! Two promises hold everywhere: the user's item is emitted unchanged, also after an error, and one mistake gives one
//! error (which is why a derive that fails still implements its trait).

mod attribute;
mod function;
mod krate;
mod message;
mod processor;
mod provide;
mod settings;
mod spanned;
mod test;
mod value;

use proc_macro::TokenStream;

/// Makes a type a command: a message for one queue.
///
/// ```
/// use bus::prelude::*;
///
/// #[derive(Serialize, Deserialize, Command)]
/// #[command(queue = "rebuild-cache")]
/// struct RebuildCache { tenant: String }
/// ```
///
/// | key | |
/// |---|---|
/// | `queue = "…"` | the queue: 1 to 63 lower-case letters, digits and single inner dashes |
/// | `transport = "…"` | the name of the transport that carries it; `default` if left out |
/// | `crate = path` | where `bus` is found, for crates that re-export it |
#[proc_macro_derive(Command, attributes(command))]
pub fn command(item: TokenStream) -> TokenStream {
    message::derive_command(item.into()).into()
}

/// Makes a type an event: a message for every subscription of a topic.
///
/// ```
/// use bus::prelude::*;
///
/// #[derive(Serialize, Deserialize, Event)]
/// #[event(topic = "order-placed")]
/// struct OrderPlaced { order_id: u64 }
/// ```
///
/// | key | |
/// |---|---|
/// | `topic = "…"` | the topic: 1 to 63 lower-case letters, digits and single inner dashes |
/// | `transport = "…"` | the name of the transport that carries it; `default` if left out |
/// | `crate = path` | where `bus` is found, for crates that re-export it |
#[proc_macro_derive(Event, attributes(event))]
pub fn event(item: TokenStream) -> TokenStream {
    message::derive_event(item.into()).into()
}

/// Makes a type a set of settings for `#[processor(settings = …)]`.
///
/// ```
/// use bus::prelude::*;
///
/// #[derive(Settings)]
/// #[settings(max_concurrent_calls = 100, prefetch_count = 50, message_lock_timeout = "1m", lease = "30s")]
/// #[settings(dead_letter_delivery_limit = 3, retry(exponential(first = "1s", max = "5m")))]
/// struct Bulk;
/// ```
///
/// What each key means is said at the trait's constants. Times are written `"500ms"`, `"30s"`, `"1m"`, `"2h"`, `"3d"`.
/// `retry` is one of `retry(immediate)`, `retry(fixed = "5s")` and `retry(exponential(first = "1s", max = "5m"))`.
#[proc_macro_derive(Settings, attributes(settings))]
pub fn settings(item: TokenStream) -> TokenStream {
    settings::derive(item.into()).into()
}

/// Makes a free `async fn` the processor of a command, or of an event's subscription.
///
/// ```
/// use bus::prelude::*;
/// # #[derive(Serialize, Deserialize, Command)] #[command(queue = "rebuild-cache")] struct RebuildCache;
/// # #[derive(Serialize, Deserialize, Event)] #[event(topic = "order-placed")] struct OrderPlaced;
/// # #[derive(Settings)] #[settings(max_concurrent_calls = 100)] struct Bulk;
///
/// #[processor]
/// async fn rebuild_cache(message: RebuildCache, count: DeliveryCount) -> Result<()> {
///     Ok(())
/// }
///
/// #[processor(subscription = "send-receipt", settings = Bulk, message_lock_timeout = "2m")]
/// async fn send_receipt(event: OrderPlaced) {}
/// # fn main() {}
/// ```
///
/// The first argument is the message; each other one is an extractor (`bus::processor::Extract`). It returns `()` or
/// `Result<(), E>` with any error. The function itself stays as it is, to be called in a test.
///
/// | key | |
/// |---|---|
/// | `subscription = "…"` | the event's subscription; for commands there is none |
/// | `singleton` | run on one host of the fleet at a time, one message at a time |
/// | `settings = Type` | a settings type; `Default` is `bus::settings::Default`, also in `AsSingleton<Default>` |
/// | `max_concurrent_calls = 8`, … | each key of `#[settings(…)]`, instead of what the type says |
/// | `order = "strict"` | for singletons: hold the queue back while a message waits for its retry; else `"relaxed"` |
/// | `before_dead_letter = f` | what is called before a message is dead-lettered: `async fn f(letter: DeadLettering<Message>, …)`, with further arguments as a processor has them; see `bus::processor::DeadLettering` |
/// | `middleware = f` or `middleware = [f, g]` | middleware of its own, the outermost first, inside of the host's and the transport's: `async fn f(delivery: Delivery, next: Next) -> Verdict`, or a value that implements `bus::pipeline::Middleware` |
/// | `crate = path` | where `bus` is found, for crates that re-export it |
#[proc_macro_attribute]
pub fn processor(attribute: TokenStream, item: TokenStream) -> TokenStream {
    processor::attribute(attribute.into(), item.into()).into()
}

/// Makes a free function the provider of the value that it returns: once per host, or with `#[provide(scoped)]` once
/// per message.
///
/// ```
/// use bus::prelude::*;
/// # struct Config { url: String }
/// # struct Catalog;
/// # impl Catalog { async fn connect(_: &str) -> Result<Self> { Ok(Catalog) } }
/// # struct UnitOfWork;
///
/// #[provide]
/// async fn catalog(config: Dep<Config>) -> Result<Catalog> {
///     Catalog::connect(&config.url).await
/// }
///
/// #[provide(scoped)]
/// fn unit_of_work(_catalog: Dep<Catalog>, _message: MessageId) -> UnitOfWork {
///     UnitOfWork
/// }
/// # fn main() {}
/// ```
///
/// Handlers and other providers ask for it as `Dep<Catalog>` and `Scoped<UnitOfWork>`. A provider for the host takes
/// `Dep<T>` and `Bus`; one for messages takes whatever a processor does. It returns `T` or a type whose name ends in
/// `Result`; an error ends the start of the host, or fails the message.
///
/// | key | |
/// |---|---|
/// | `scoped` | once per message |
/// | `dispose = f` | with `scoped`: what is done with the value when the message is finished: `async fn f(value: Scoped<T>)`, which may return a `Result` |
/// | `crate = path` | where `bus` is found, for crates that re-export it |
#[proc_macro_attribute]
pub fn provide(attribute: TokenStream, item: TokenStream) -> TokenStream {
    provide::attribute(attribute.into(), item.into()).into()
}

/// Makes an `async fn` a test in virtual time: Rust's `#[test]` with a runtime of one thread whose clock is paused.
///
/// ```
/// use bus::prelude::*;
/// use bus::testing::*;
/// # #[derive(Serialize, Deserialize, Command)] #[command(queue = "rebuild-cache")] struct RebuildCache;
/// # #[processor] async fn rebuild_cache(_message: RebuildCache) {}
///
/// #[bus::test]
/// async fn caches_are_rebuilt(host: TestHost) -> Result<()> {
///     host.bus().send(RebuildCache).delay(3.days()).await?;
///     host.advance(3.days()).await;
///     assert_eq!(host.completed::<RebuildCache>().len(), 1);
///     Ok(())
/// }
/// # fn main() {}
/// ```
///
/// The test takes nothing, or a `TestHost` of all processors of the binary, and returns `()` or `Result<(), E>`.
/// `#[ignore]` and `#[should_panic]` work as they do with `#[test]`.
///
/// | key | |
/// |---|---|
/// | `crate = path` | where `bus` is found, for crates that re-export it |
#[proc_macro_attribute]
pub fn test(attribute: TokenStream, item: TokenStream) -> TokenStream {
    test::attribute(attribute.into(), item.into()).into()
}
