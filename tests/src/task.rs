//! Messages that say what their handler is to do, so that one fixture program serves many tests.

use std::path::{Path, PathBuf};

use bus::prelude::*;

/// What a handler is to do, step by step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Task {
    /// Tells tasks apart.
    pub n: u64,
    /// What is to be done.
    pub steps: Vec<Step>,
    /// Makes the message as large as it is to be.
    #[serde(default)]
    pub padding: String,
}

/// One thing that a handler does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Step {
    /// Waits, in a way that can be dropped, for so many milliseconds.
    Sleep(u64),
    /// Blocks its thread for so many milliseconds.
    Block(u64),
    /// Waits, in a way that can be dropped, until the file is there.
    Await(PathBuf),
    /// Blocks its thread until the file is there.
    BlockUntil(PathBuf),
    /// Gives the term blocking work for so many milliseconds, and writes down `worked` when that is done.
    TermBlocking(u64),
    /// Waits for blocking work of so many milliseconds on one of the runtime's threads for such.
    SpawnBlocking(u64),
    /// Sends [`Out`] and writes down what came of it: `sent`, or `not sent` with the error's kind.
    Send(u64),
    /// Asks the term, and writes down `held` or `lost`.
    Check,
    /// Fails.
    Fail,
    /// Ends the process.
    Die(Death),
}

/// How a handler can end its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Death {
    /// By `abort()`.
    Abort,
    /// By `exit` with this code, 0 included.
    Exit(i32),
    /// As the kernel ends a process that has taken too much memory: by SIGKILL.
    Kill,
    /// By recursion without end.
    Overflow,
    /// By taking memory until there is none.
    Exhaust,
    /// By a panic in a destructor while another one unwinds, which no runtime can catch.
    PanicTwice,
}

impl Task {
    /// Task number `n`, which does nothing yet.
    pub fn new(n: u64) -> Task {
        Task { n, steps: Vec::new(), padding: String::new() }
    }

    /// Then waits for so many milliseconds.
    #[must_use]
    pub fn sleep(self, millis: u64) -> Task {
        self.then(Step::Sleep(millis))
    }

    /// Then blocks its thread for so many milliseconds.
    #[must_use]
    pub fn block(self, millis: u64) -> Task {
        self.then(Step::Block(millis))
    }

    /// Then waits for a file.
    #[must_use]
    pub fn wait_for(self, file: &Path) -> Task {
        self.then(Step::Await(file.to_owned()))
    }

    /// With so many bytes that say nothing.
    #[must_use]
    pub fn padded(mut self, bytes: usize) -> Task {
        self.padding = "p".repeat(bytes);
        self
    }

    /// Then ends its process.
    #[must_use]
    pub fn die(self, death: Death) -> Task {
        self.then(Step::Die(death))
    }

    /// Then does this.
    #[must_use]
    pub fn then(mut self, step: Step) -> Task {
        self.steps.push(step);
        self
    }
}

/// Read by a plain processor.
#[derive(Clone, Debug, Serialize, Deserialize, Command)]
#[command(queue = "plain")]
pub struct Plain(pub Task);

/// Read by a singleton.
#[derive(Clone, Debug, Serialize, Deserialize, Command)]
#[command(queue = "single")]
pub struct Single(pub Task);

/// Read by a singleton that keeps a strict order.
#[derive(Clone, Debug, Serialize, Deserialize, Command)]
#[command(queue = "ordered")]
pub struct Ordered(pub Task);

/// Read by the singleton subscriptions `first` and `second`.
#[derive(Clone, Debug, Serialize, Deserialize, Event)]
#[event(topic = "happened")]
pub struct Happened(pub Task);

/// What a handler sends; nobody reads it.
#[derive(Clone, Debug, Serialize, Deserialize, Command)]
#[command(queue = "out")]
pub struct Out(pub u64);

/// Travels by a transport of its own.
#[derive(Clone, Debug, Serialize, Deserialize, Command)]
#[command(queue = "invoice", transport = "billing")]
pub struct Invoice(pub u64);
