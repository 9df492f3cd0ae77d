//! The handlers of this binary: each does what its message says.

use std::sync::Arc;
use std::time::Duration;

use bus::prelude::*;
use parking_lot::Mutex;

/// What a handler is to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) enum Todo {
    #[default]
    Nothing,
    /// Publishes `Happened`.
    Publish,
    /// Sends another one, with nothing to do, after so many seconds.
    SendAfter(u64),
    /// Fails so often, to be tried again after so many seconds each time.
    Fail {
        times: u32,
        seconds: u64,
    },
    DeadLetter,
    Panic,
}

/// A command. What it carries is secret.
#[derive(Clone, Debug, Default, Serialize, Deserialize, Command)]
#[command(queue = "work")]
pub(crate) struct Work {
    pub(crate) todo: Todo,
    pub(crate) secret: String,
}

impl Work {
    pub(crate) fn to(todo: Todo) -> Self {
        Work { todo, secret: SECRET.to_owned() }
    }
}

/// What is to be seen nowhere.
pub(crate) const SECRET: &str = "s3cret-of-a-body";

/// What the handlers saw among the headers.
#[derive(Clone, Default)]
pub(crate) struct Seen(pub(crate) Arc<Mutex<Vec<(&'static str, Headers)>>>);

impl Seen {
    fn note(&self, at: &'static str, headers: Headers) {
        self.0.lock().push((at, headers));
    }

    /// The headers that were seen there, in the order of the runs.
    pub(crate) fn at(&self, at: &str) -> Vec<Headers> {
        self.0.lock().iter().filter(|(place, _)| *place == at).map(|(_, headers)| headers.clone()).collect()
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, Event)]
#[event(topic = "happened")]
pub(crate) struct Happened;

#[derive(Clone, Debug, Default, Serialize, Deserialize, Command)]
#[command(queue = "aftermath")]
pub(crate) struct Aftermath;

/// What a singleton does on a thread where it may block.
#[derive(Clone, Debug, Default, Serialize, Deserialize, Command)]
#[command(queue = "dig")]
pub(crate) struct Dig;

#[processor(before_dead_letter = mourn)]
async fn work(
    message: Work,
    count: DeliveryCount,
    headers: Headers,
    bus: Bus,
    seen: Dep<Seen>,
) -> Result<()> {
    seen.note("work", headers);
    match message.todo {
        Todo::Nothing => {}
        Todo::Publish => {
            bus.publish(Happened).await?;
        }
        Todo::SendAfter(seconds) => {
            bus.send(Work::to(Todo::Nothing)).delay(Duration::from_secs(seconds)).await?;
        }
        Todo::Fail { times, seconds } if count.0 <= times => {
            return Err(bus::Error::retry_after(Duration::from_secs(seconds)));
        }
        Todo::Fail { .. } => {}
        Todo::DeadLetter => return Err(bus::Error::dead_letter(format!("because of {}", message.secret))),
        Todo::Panic => panic!("over {}", message.secret),
    }
    Ok(())
}

async fn mourn(_letter: DeadLettering<Work>, bus: Bus) -> Result<()> {
    bus.send(Aftermath).await?;
    Ok(())
}

#[processor(subscription = "one")]
async fn one(_event: Happened, headers: Headers, seen: Dep<Seen>) {
    seen.note("one", headers);
}

#[processor(subscription = "two")]
async fn two(_event: Happened, headers: Headers, seen: Dep<Seen>) {
    seen.note("two", headers);
}

#[processor]
async fn aftermath(_message: Aftermath, headers: Headers, seen: Dep<Seen>) {
    seen.note("aftermath", headers);
}

#[processor(singleton)]
async fn dig(_message: Dig, term: Term, bus: Bus) -> Result<()> {
    let runtime = tokio::runtime::Handle::current();
    // A test's subscriber is its thread's own.
    let subscriber = tracing::dispatcher::get_default(Clone::clone);
    let send = move || runtime.block_on(bus.send(Aftermath).into_future());
    term.blocking(move || tracing::dispatcher::with_default(&subscriber, send)).await??;
    Ok(())
}
