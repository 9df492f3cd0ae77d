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
//! | define messages | [`macro@Command`], [`macro@Event`], [`Message`] |
//! | process them | [`macro@processor`], [`processor`](mod@processor), [`settings`] |
//! | give handlers what they need | [`macro@provide`], [`Dep`], [`Scoped`] |
//! | send | [`Bus`], [`connect`] |
//! | run one thing once in the fleet | [`singleton`], [`Term`] |
//! | configure and run | [`host`], [`host::config`], [`Host`] |
//! | see around every message | [`pipeline::Middleware`] |
//! | know what a store promises | [`backend`] |
//! | watch what happens | [the events](#events) |
//! | implement a store or a lock manager | [`contract`], and `conformance` (feature), the suites that it must pass |
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `sqlite` (default) | messages and locks in a file: `sqlite://` |
//! | `memory` | messages and locks in the process, for tests: `memory://` |
//! | `cli` | `cli()`, to be mounted in your binary, and the program `bus`: dead letters, depths, locks |
//! | `conformance` | the suites that a backend must pass |
//! | `failpoints` | a hook in each commit of the SQLite backend, for experiments like the example `failover` |
//!
//! # Testing
//!
//! A handler is a function: call it, with `Dep::new(value)`, `Scoped::new(value)`, `Term::for_tests(7)`,
//! `MessageId::fresh()`. A `Bus` comes from `Host::builder().transport("default", "memory://mine").connect()` with the
//! feature `memory`. [`check`] and [`check_with`] check the whole wiring in a unit test.
//!
//! # What is promised
//!
//! Each message is processed **at least once**: what was acknowledged to its sender is in the store, and leaves it only
//! when a handler has succeeded or it is among the dead letters. A handler may see a message again, after a crash, a
//! lost claim, or an error of its own; [`DeliveryCount`] above 1 says so. Make handlers idempotent by the
//! [`MessageId`], which stays the same.
//!
//! A singleton's handler runs **at most once at a time** in the fleet, as long as the lock manager keeps what its
//! guarantees state. A process that was frozen beyond its lease cannot know it; what it then writes through the bus
//! (settling, sending to its own store, [`Term::commit`]) is refused by the store, and [`Term::check`] and
//! [`Term::fence`] let it be refused elsewhere.
//!
//! # Events
//!
//! What the bus does is told through `tracing`. The target, the field `event` and the fields named here are part of the
//! public interface:
//!
//! | target | `event` | fields | when |
//! |---|---|---|---|
//! | `bus::pump` | `run.start`, `run.end` | `endpoint`, `message_id`, `fence` | around each run of a handler |
//! | `bus::pump` | `run.cut` | `endpoint`, `message_id`, `fence` | a run was dropped because its term or the process ends |
//! | `bus::pump` | `settle.ok`, `settle.refused` | `endpoint`, `message_id`, `fence`, `verdict` | the store took a verdict, or did not |
//! | `bus::pipeline` | `message.retried` | `endpoint`, `message_id`, `failures`, `after`, `error` | an attempt failed; there will be another |
//! | `bus::pipeline` | `message.dead` | `endpoint`, `message_id`, `reason`, `error` | a message was given up on |
//! | `bus::singleton` | `lock.acquired` | `lock`, `name`, `fence` | a term begins; told only while the lock is still owned |
//! | `bus::singleton` | `lock.standby` | `lock`, `name` | the lock is held elsewhere; told once until it is won |
//! | `bus::singleton` | `lock.lost` | `lock`, `name`, `fence`, `cause` | the lock is not owned any more |
//! | `bus::singleton` | `lock.released` | `lock`, `fence`, `ended` | the lock was given back |
//!
//! Without a subscriber (`tracing_subscriber::fmt::init()`, say) none of this is seen, and the start says so.
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
//! | 3b | [`reconnect`] | what several backends and the pump need: pauses between tries |
//! | 4 | [`pipeline`], [`singleton`] | run a delivery to a verdict; win, hold, doubt, lose and hand over a lock |
//! | 5 | [`sender`] | the handle by which a program sends |
//! | 6 | [`processor`](mod@processor) | a typed function, its types forgotten |
//! | 8 | [`registry`] | what the binary has, found at link time |
//! | 9 | [`pump`] | receive, run, keep claims alive, settle, drain |
//! | 10 | [`host`] | configuration, wiring, start, shutdown |
//! | side | [`backend`] | one folder a technology; uses rows 0 to 3b |
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
//! wiring can be checked without connecting; a transport that cannot be reached at start fails the start.

#![forbid(unsafe_code)]

// The macros name this crate by its outside name, in its own examples and tests too.
#[allow(unused_extern_crates, reason = "rustc does not see the uses that expanded macros make")]
extern crate self as bus;

#[doc(hidden)]
pub mod __private;
pub mod backend;
#[cfg(feature = "cli")]
pub mod cli;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod contract;
pub mod error;
pub mod host;
pub mod message;
pub mod pipeline;
pub mod prelude;
pub mod processor;
pub mod pump;
pub mod reconnect;
pub mod registry;
pub mod scope;
pub mod sender;
pub mod settings;
pub mod singleton;

#[cfg(feature = "cli")]
pub use cli::cli;
pub use error::{Error, ErrorKind, Result};
pub use host::{Host, check, check_with, connect, run, run_with};
pub use message::{Command, Endpoint, Envelope, Event, Headers, Message, MessageId};
pub use processor::{DeliveryCount, Dep, Scoped};
pub use sender::{Bus, Sent};
pub use settings::Settings;
pub use singleton::Term;

pub use bus_macros::{Command, Event, Settings, processor, provide};
