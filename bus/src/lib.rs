//! Messaging driven by annotated functions, with singletons that never run twice at once.
//!
//! A program annotates functions; [`run`] finds them at link time, connects the transports, checks the whole wiring,
//! feeds every function its messages, and drains on SIGTERM. A function marked `singleton` runs on at most one process
//! of the fleet at a time, and what a former holder still writes is refused by the store.
//!
//! ```
//! use bus::prelude::*;
//!
//! #[derive(Debug, Serialize, Deserialize, Command)]
//! #[command(queue = "rebuild-cache")]
//! struct RebuildCache { tenant: String }
//!
//! #[processor(singleton, settings = Default)]
//! async fn rebuild_cache(message: RebuildCache, term: Term) -> Result<()> {
//!     println!("rebuilding {} under fence {}", message.tenant, term.fence());
//!     Ok(())
//! }
//!
//! #[derive(Debug, Serialize, Deserialize, Event)]
//! #[event(topic = "order-placed")]
//! struct OrderPlaced { order_id: u64 }
//!
//! #[processor(subscription = "send-receipt", max_concurrent_calls = 100)]
//! async fn send_receipt(event: OrderPlaced, bus: Bus) -> Result<()> {
//!     bus.send(RebuildCache { tenant: format!("of order {}", event.order_id) }).await?;
//!     Ok(())
//! }
//!
//! # async fn example() -> Result<()> {
//! bus::run().await
//! # }
//! # fn main() {}
//! ```
//!
//! # Where to read on
//!
//! | to | read |
//! |---|---|
//! | learn it, one chapter after the other | [`guide`]: [getting started](guide::getting_started), [messages](guide::messages), [processors](guide::processors), [singletons](singleton), [transports](guide::transports), [stores], [middleware and scopes](guide::middleware), [configuration](host::config), [health](host::health), [tracing and metrics](guide::tracing), [logging](guide::logging), [shutdown and deploys](guide::shutdown), [promises], [errors](guide::errors) |
//! | define messages | [`macro@Command`], [`macro@Event`], [`Message`] |
//! | process them | [`macro@processor`], [`processor`](mod@processor), [`settings`] |
//! | give handlers what they need | [`macro@provide`], [`Dep`], [`Scoped`] |
//! | send | [`Bus`], [`connect`] |
//! | run one thing once in the fleet | [`singleton`], [`Term`] |
//! | configure and run | [`host`], [`host::config`], [`Host`] |
//! | know whether it consumes; run something beside; do less at once | [`host::health`] |
//! | see around every message, and everything that is sent | [`pipeline::Middleware`], [`sender::OutgoingMiddleware`] |
//! | have values made and disposed of for each message | [`guide::middleware`], [`processor::ScopeProvider`] |
//! | see what follows from what, and how much there is of it | [`guide::tracing`]: traces, OpenTelemetry, Prometheus |
//! | read the log, and keep secrets out of it | [`guide::logging`] |
//! | know what is promised, and make handlers idempotent | [`promises`] |
//! | test what you have written | `testing` (feature) |
//! | choose a store | [`stores`]: what each can do and promises, in a table; [`backend`]: each by itself |
//! | bring it into a cluster, and out of it | [`guide::shutdown`] |
//! | understand why something was refused | [`guide::errors`] |
//! | watch what happens | [the events](#events) |
//! | implement a store or a lock manager | [`contract`], and `conformance` (feature), the suites that it must pass |
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `sqlite` (default) | messages and locks in a file: `sqlite://` |
//! | `postgres` | messages and locks in a Postgres database: `postgres://` |
//! | `postgres-tls` | encrypted connections to it, where the URL says `sslmode=verify-full` |
//! | `redis` | messages and locks on a Redis server: `redis://` |
//! | `redis-tls` | encrypted connections to it: `rediss://` |
//! | `nats` | messages and locks on a NATS server with JetStream, encrypted or not: `nats://` |
//! | `memory` | messages and locks in the process, for tests: `memory://` |
//! | `azure_storage` | messages in Azure's Storage Queues: `azqueue://`; locks on its blob leases: `azblob://` |
//! | `file` | locks in a directory, for one machine or a shared file system: `file://` |
//! | `opentelemetry` | traces and metrics of OpenTelemetry, see [`guide::tracing`] |
//! | `prometheus` | `/metrics` beside the probes, see [`guide::tracing`] |
//! | `cli` | `cli()`, to be mounted in your binary, and the program `bus`: dead letters, depths, locks |
//! | `testing` | `testing`, `#[bus::test]`: a host in virtual time, for the tests of a program |
//! | `conformance` | the suites that a backend must pass |
//! | `logging` (default) | a log on standard error for programs that set up no `tracing` subscriber, see [`guide::logging`] |
//! | `failpoints` | a hook in each commit of the SQLite backend, for experiments like the example `failover` |
//!
//! # Testing
//!
//! A handler is a function: call it, with `Dep::new(value)`, `Scoped::new(value)`, `Term::for_tests(7)`,
//! `MessageId::fresh()`. [`check`] and [`check_with`] check the whole wiring in a unit test. The feature `testing` brings
//! the rest: a `TestHost`, in which three days of retries pass in milliseconds, acknowledgements are lost and processes
//! crash; a `TestBus` that tells what was sent; and `#[bus::test]`.
//!
//! # What is promised
//!
//! Each message is processed **at least once**: what was acknowledged to its sender is in the store, and leaves it only
//! when a handler has succeeded or it is among the dead letters. A handler may see a message again, after a crash, a
//! lost claim, or an error of its own. A singleton's handler runs **at most once at a time** in the fleet, and the late
//! writes of a former holder are refused by the store.
//!
//! [`promises`] tells it from end to end, with what your handlers have to do for their part.
//!
//! # Events
//!
//! What the bus does is told through `tracing`. The target, the field `event` and the fields named here are part of the
//! public interface:
//!
//! | target | `event` | fields | when |
//! |---|---|---|---|
//! | `bus::pump` | `run.start`, `run.end` | `endpoint`, `message_id`, `fence` | around each run of a handler |
//! | `bus::pump` | `run.stuck` | `endpoint`, `message_id`, `fence` | a run goes on past its time: its handler blocks its thread |
//! | `bus::pump` | `run.cut` | `endpoint`, `message_id`, `fence` | a run was dropped because its term or the process ends |
//! | `bus::pump` | `settle.ok`, `settle.refused` | `endpoint`, `message_id`, `fence`, `verdict` | the store took a verdict, or did not |
//! | `bus::pipeline` | `message.retried` | `endpoint`, `message_id`, `failures`, `after`, `error` | an attempt failed; there will be another |
//! | `bus::pipeline` | `message.dead` | `endpoint`, `message_id`, `reason`, `error` | a host gave a message up; what the store gives up on by itself (past its time to live, unreadable) is not told |
//! | `bus::pipeline` | `hook.failed` | `endpoint`, `message_id`, `error` | what is done before a message is dead-lettered failed; it is dead-lettered all the same |
//! | `bus::pipeline` | `disposal.failed` | `endpoint`, `message_id`, `value`, `error` | a scoped value could not be disposed of, in time or at all; nothing else is affected |
//! | `bus::singleton` | `lock.acquired` | `lock`, `name`, `fence` | a term begins; told only while the lock is still owned |
//! | `bus::singleton` | `lock.standby` | `lock`, `name` | the lock is held elsewhere; told once until it is won |
//! | `bus::singleton` | `lock.lease_differs` | `lock`, `name`, `ours`, `theirs` | the holder has another `lock_lease` than this host; told once while standing by |
//! | `bus::singleton` | `lock.lost` | `lock`, `name`, `fence`, `cause` | the lock is not owned any more |
//! | `bus::singleton` | `lock.released` | `lock`, `fence`, `ended` | the lock was given back |
//! | `bus::azure_storage` | `container.new` | `container` | a container was made |
//! | `bus::azure_storage` | `queue.made_again` | `endpoint`, `queue` | a queue was gone, and has been made again |
//! | `bus::azure_storage` | `blob.orphaned` | `blob`, `error` | the blob of a message that is done could not be deleted |
//! | `bus::host` | `store.awaited`, `store.reached` | `store`, `address`, `waited`, `error` | a store that was not there when the host started is waited for; told at once and every 30 s; it has come |
//! | `bus::host` | `subscription.unread` | `transport`, `subscription`, `ready`, `unread`, `oldest` | nobody has read a subscription for longer than `warn_unread_after`; told at the start and every hour |
//! | `bus::host` | `subscription.swept` | `transport`, `subscription`, `messages` | events were dropped because they were older than their subscription's retention |
//! | `bus::host` | `store.lost` | `error` | a store cannot be had (any more), and the host ends |
//! | `bus::host` | `part.lost` | `error` | a part of the host has panicked, which is a defect, and the host ends |
//! | `bus::host` | `liveness.listening` | `listener`, `address` | probes are answered there |
//! | `bus::host` | `plugin.started`, `plugin.stopped` | `plugin` | a plugin has started, or has come to its end |
//! | `bus::host` | `plugin.failed` | `plugin`, `what`, `error` | a plugin has failed or panicked while it was to `prepare`, `start` or `stop`; the first two end the host |
//! | `bus::host` | `plugin.late` | `plugins` | so many plugins did not come to their end in time |
//! | `bus::sqlite` | `file.new`, `file.upgraded`, `file.reopened`, `file.away`, `file.back` | `file` | a store was made, brought up to date or opened anew; its file has gone, or come back |
//! | `bus::sqlite` | `store.lost` | `file`, `error` | the store is not used any more, and the host ends |
//! | `bus::sqlite` | `disk.full`, `disk.room`, `disk.failed` | `file` | there is no room on the disk, or there is again; a write or flush failed |
//! | `bus::sqlite` | `log.grown`, `log.shrunk`, `log.aside` | `file`, `bytes`; the last one `file`, `log` | the log grows because somebody reads for long; it is short again; it was moved out of the way of another file |
//!
//! Each send and each run is a span, too, as [`guide::tracing`] tells.
//!
//! [`run`] sets up a log where the program has none, see [`guide::logging`]. A host that is started otherwise, without a
//! subscriber (`tracing_subscriber::fmt::init()`, say), is not heard of, and the start says so.
//!
//! `fence` is 0 for a plain processor. Events of normal work are at debug level, those that an operator wants to see at
//! info, warn or error. Bodies and headers' values are in none of them.
//!
//! # How it is built
//!
//! A module uses only modules above it; a test holds that.
//!
//! | row | modules | purpose |
//! |--|--|--|
//! | 0 | [`error`], [`clock`] | one error type; the clock that sees suspends |
//! | 1 | [`message`], [`scope`] | what travels, and what a host and a message's run carry along |
//! | 2 | [`settings`] | what can be tuned, as constants |
//! | 3 | [`contract`] | what a backend implements |
//! | 3b | [`beginning`], [`coalesce`], [`escape`], `files`, [`observed`], [`reconnect`], [`telemetry`], [`wake`] | what several backends and the pump need: whether a store was emptied, sends that ride together, plain names, files, locks seen by one's own clock, pauses between tries, numbers and traces, hints |
//! | 4 | [`pipeline`], [`singleton`] | run a delivery to a verdict; win, hold, doubt, lose and hand over a lock |
//! | 5 | [`sender`] | the handle by which a program sends |
//! | 6 | [`processor`](mod@processor) | a typed function, its types forgotten |
//! | 8 | [`registry`] | what the binary has, found at link time |
//! | 9 | [`pump`] | receive, run, keep claims alive, settle, drain |
//! | 10 | [`host`] | configuration, wiring, start, health, plugins, shutdown |
//! | side | [`backend`] | one folder a technology; uses rows 0 to 3b |
//! | side | `conformance`, `testing` | the suites for backends; the host for users' tests |
//! | side | [`guide`], [`promises`], [`stores`] | pages, without code |
//!
//! The road of a message goes one way:
//!
//! ```text
//!  Consumer::receive → Delivery → pump (permit, claim kept alive) → layers, outermost first → decode → extractors → handler
//!  Consumer::settle  ←──────────────────────── pump, in batches  ←── Verdict ←──────────────────────────────────────┘
//! ```
//!
//! The pipeline returns a value and holds no consumer, so nothing but the pump can settle. A singleton's candidate
//! starts and stops a pump without knowing it: the host passes the closure that opens a consumer for a term and pumps
//! it.
//!
//! Where this differs from the design that it started from: a candidate's closure returns an owned future instead of
//! being an async closure, since a borrowing one cannot be shown to be `Send`; `Scheme` states its reach, so that the
//! wiring can be checked without connecting.

#![forbid(unsafe_code)]

// The macros name this crate by its outside name, in its own examples and tests too.
#[allow(unused_extern_crates, reason = "rustc does not see the uses that expanded macros make")]
extern crate self as bus;

#[doc(hidden)]
pub mod __private;
pub mod backend;
pub mod beginning;
#[cfg(feature = "cli")]
pub mod cli;
pub mod clock;
pub mod coalesce;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod contract;
pub mod error;
pub mod escape;
#[cfg(any(feature = "sqlite", feature = "file"))]
mod files;
pub mod guide;
pub mod host;
pub mod message;
pub mod observed;
pub mod pipeline;
pub mod prelude;
pub mod processor;
pub mod promises;
pub mod pump;
pub mod reconnect;
pub mod registry;
pub mod scope;
pub mod sender;
pub mod settings;
pub mod singleton;
pub mod stores;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
pub mod wake;

#[cfg(feature = "cli")]
pub use cli::cli;
pub use error::{Error, ErrorKind, Result};
pub use host::{Host, check, check_with, connect, run, run_with};
pub use message::{Command, Endpoint, Envelope, Event, Headers, Message, MessageId};
pub use processor::{DeliveryCount, Dep, Scoped};
pub use sender::{Bus, Sent};
pub use settings::Settings;
pub use singleton::Term;

#[cfg(feature = "testing")]
pub use bus_macros::test;
pub use bus_macros::{Command, Event, Settings, processor, provide};
