//! A case: one promise, and the code that tries to catch a backend breaking it.

use std::fmt;
use std::time::Duration;

use crate::contract::BoxFuture;
use crate::error::Error;

/// How many random histories a case tries, unless `BUS_TEST_CASES` says otherwise.
pub(super) const HISTORIES: u32 = 64;

/// How long a case with as many histories may take, by tokio's clock, before it is said to hang.
const LONGEST_CASE: Duration = Duration::from_secs(600);

/// How many random histories a case tries, unless the subject's timing says otherwise.
pub(super) fn histories() -> u32 {
    told_histories().unwrap_or(HISTORIES)
}

/// How many the environment asks for.
pub(super) fn told_histories() -> Option<u32> {
    std::env::var("BUS_TEST_CASES").ok().and_then(|count| count.parse().ok())
}

/// What a case found: nothing, or what was seen instead of what is promised.
pub type Checked<T = ()> = Result<T, Failure>;

/// What was seen instead of what is promised.
#[derive(Clone, Debug)]
pub struct Failure(String);

impl Failure {
    /// A failure that says what was seen.
    pub fn new(seen: impl Into<String>) -> Self {
        Failure(seen.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure(format!("an error where none was expected: {error:?}"))
    }
}

/// Fails with the formatted text unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($seen:tt)+) => {
        if !$condition {
            return Err($crate::conformance::Failure::new(format!($($seen)+)));
        }
    };
}
pub(super) use ensure;

/// The table of a topic's cases: `needs: function = "promise";`.
macro_rules! cases {
    ($($([$($need:ident),*])? $name:ident = $promise:literal;)*) => {
        vec![$($crate::conformance::Case {
            name: stringify!($name),
            promise: $promise,
            needs: &[$($($crate::conformance::Need::$need),*)?],
            check: |bench| Box::pin($name(bench)),
        }),*]
    };
}
pub(super) use cases;

/// What a case needs beyond the basics of its kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// [`Capabilities::delay`](crate::contract::Capabilities::delay).
    Delay,
    /// [`Capabilities::fencing`](crate::contract::Capabilities::fencing).
    Fencing,
    /// [`Capabilities::inspect`](crate::contract::Capabilities::inspect).
    Inspect,
    /// [`Capabilities::readers`](crate::contract::Capabilities::readers).
    Readers,
    /// [`Capabilities::strict_order`](crate::contract::Capabilities::strict_order).
    StrictOrder,
    /// No [`Capabilities::loose_order`](crate::contract::Capabilities::loose_order).
    KeptOrder,
    /// No [`Capabilities::rough_depth`](crate::contract::Capabilities::rough_depth).
    ExactDepth,
    /// A [`LockManager::inspect`](crate::contract::LockManager::inspect) that answers.
    Records,
    /// A [`Lease::note`](crate::contract::Lease::note) that is kept.
    Notes,
    /// [`LockGuarantees::watch`](crate::contract::LockGuarantees::watch).
    Watch,
    /// [`LockGuarantees::monotonic_across_restore`](crate::contract::LockGuarantees::monotonic_across_restore).
    MonotonicAcrossRestore,
}

/// What a suite prepares for each of its cases.
pub trait Setup: Sized + Send + Sync {
    /// What opens the store.
    type Subject: ?Sized + Sync;

    /// Opens the store for one case.
    fn open(subject: &Self::Subject) -> BoxFuture<'_, Checked<Self>>;

    /// Whether the store has what a case needs.
    fn has(&self, need: Need) -> BoxFuture<'_, Checked<bool>>;
}

/// One promise and its test.
pub struct Case<S> {
    /// A name that says what it proves.
    pub name: &'static str,
    /// The promise, in a sentence.
    pub promise: &'static str,
    /// What it needs of the store beyond the basics.
    pub needs: &'static [Need],
    pub(super) check: for<'a> fn(&'a S) -> BoxFuture<'a, Checked>,
}

/// What became of a case.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The promise was kept.
    Passed,
    /// The store has not what the case needs: it did not run.
    Unavailable(String),
    /// The promise was broken.
    Failed(Failure),
}

impl<S: Setup> Case<S> {
    /// Tries it on a store.
    pub async fn run(&self, subject: &S::Subject) -> Outcome {
        match tokio::time::timeout(LONGEST_CASE * (histories() / HISTORIES).max(1), self.try_run(subject))
            .await
        {
            Ok(Ok(None)) => Outcome::Passed,
            Ok(Ok(Some(need))) => Outcome::Unavailable(format!("the store has no {need:?}")),
            Ok(Err(seen)) => Outcome::Failed(self.failure(&seen.0)),
            Err(_) => Outcome::Failed(self.failure("the case did not come to an end")),
        }
    }

    async fn try_run(&self, subject: &S::Subject) -> Checked<Option<Need>> {
        let bench = S::open(subject).await?;
        for need in self.needs {
            if !bench.has(*need).await? {
                return Ok(Some(*need));
            }
        }
        (self.check)(&bench).await.map(|()| None)
    }

    fn failure(&self, seen: &str) -> Failure {
        Failure(format!("\n  promised: {}\n  seen:     {seen}", self.promise))
    }
}

impl<S> fmt::Debug for Case<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("needs", &self.needs).finish()
    }
}
