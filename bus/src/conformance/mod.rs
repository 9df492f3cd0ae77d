//! The suites that every backend must pass, for ours and for yours: one named case per promise of the
//! [`contract`](crate::contract).
//!
//! A *subject* opens the store under test; [`transport::cases`] and [`lock::cases`] are the suites; each [`Case`] says
//! what it needs of the store and answers with an [`Outcome`]. What a store cannot do is shown as
//! [`Outcome::Unavailable`], so that nothing that did not run looks as if it had passed.
//!
//! ```
//! # #[cfg(feature = "memory")] {
//! use bus::conformance::{Outcome, UrlSubject, lock};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(async {
//! let subject = UrlSubject::new("memory://conformance").unwrap();
//! for case in lock::cases() {
//!     match case.run(&subject).await {
//!         Outcome::Passed => {}
//!         Outcome::Unavailable(why) => println!("{}: not run, {why}", case.name),
//!         Outcome::Failed(failure) => panic!("{}: {failure}", case.name),
//!     }
//! }
//! # });
//! # }
//! ```
//!
//! Cases wait for conditions, bounded by the subject's [`Timing`]; they sleep only where the passing of time is itself
//! what is tested. With tokio's time paused they take no time at all, provided that the store waits by tokio's timers
//! and nothing else. Every case uses names of its own, so that one store may serve many cases, also at the same time.
//!
//! The heart of the transport suite are random histories compared with one reference [`model`]. Environment:
//! `BUS_TEST_CASES` (histories per case, 64), `BUS_TEST_SEED` (replays the one history that a failure named).

mod case;
pub mod lock;
pub mod model;
mod subject;
pub mod transport;

pub use case::{Case, Checked, Failure, Need, Outcome, Setup};
pub use subject::{LockSubject, Timing, TransportSubject, UrlSubject};
