//! The processors of this binary: each does what its test says, and notes what it has seen and when.

use std::sync::Arc;
use std::time::Duration;

use bus::prelude::*;
use bus::testing::TestHost;
use parking_lot::Mutex;
use tokio::time::Instant;

macro_rules! commands {
    ($($name:ident $queue:literal)+) => {$(
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Command)]
        #[command(queue = $queue)]
        pub(crate) struct $name(pub(crate) u64);
    )+};
}

commands! {
    Note "note"
    Single "single"
    Strict "strict"
    Answer "answer"
    Slow "slow"
    Costly "costly"
    Unprovided "unprovided"
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Event)]
#[event(topic = "happened")]
pub(crate) struct Happened(pub(crate) u64);

/// Travels by a transport of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Command)]
#[command(queue = "invoice", transport = "billing")]
pub(crate) struct Invoice(pub(crate) u64);

/// Goes where no processor of this binary reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Command)]
#[command(queue = "archived", transport = "archive")]
pub(crate) struct Archived(pub(crate) u64);

/// One run of a handler, from its beginning.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) n: u64,
    pub(crate) count: u32,
    pub(crate) id: MessageId,
    pub(crate) at: Instant,
    /// Whether it came to its end.
    pub(crate) ended: bool,
}

/// What a handler is to do.
pub(crate) enum Act {
    Succeed,
    Fail,
    Panic,
    Sleep(Duration),
    /// Never ends.
    Hang,
    /// Blocks a thread for so long, on one that is there for that.
    Block(Duration),
    Send(Answer),
    Publish(Happened),
}

/// What handlers are to do, and what they have seen.
#[derive(Clone)]
pub(crate) struct Script {
    act: Arc<dyn Fn(&Seen) -> Act + Send + Sync>,
    seen: Arc<Mutex<Vec<Seen>>>,
    began: Instant,
}

impl Script {
    pub(crate) fn of(act: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        Script { act: Arc::new(act), seen: Arc::default(), began: Instant::now() }
    }

    /// In which all goes well.
    pub(crate) fn fine() -> Self {
        Script::of(|_| Act::Succeed)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// Which message was run when, in seconds.
    pub(crate) fn times(&self) -> Vec<(u64, f64)> {
        self.seen().iter().map(|seen| (seen.n, (seen.at - self.began).as_secs_f64())).collect()
    }

    /// Which message was run, and how often it had been claimed.
    pub(crate) fn counts(&self) -> Vec<(u64, u32)> {
        self.seen().iter().map(|seen| (seen.n, seen.count)).collect()
    }

    async fn run(&self, n: u64, count: u32, id: MessageId, bus: &Bus) -> Result<()> {
        let seen = Seen { n, count, id, at: Instant::now(), ended: false };
        let act = (self.act)(&seen);
        let place = {
            let mut all = self.seen.lock();
            all.push(seen);
            all.len() - 1
        };
        match act {
            Act::Succeed => {}
            Act::Fail => return Err(bus::Error::new(bus::ErrorKind::Handler, "it does not work")),
            Act::Panic => panic!("on purpose"),
            Act::Sleep(time) => tokio::time::sleep(time).await,
            Act::Hang => std::future::pending().await,
            Act::Block(time) => {
                let blocking = tokio::task::spawn_blocking(move || std::thread::sleep(time));
                blocking.await.expect("it does not panic");
            }
            Act::Send(answer) => drop(bus.send(answer).await?),
            Act::Publish(event) => drop(bus.publish(event).await?),
        }
        self.seen.lock()[place].ended = true;
        Ok(())
    }
}

/// A host of these processors, which do what the script says.
pub(crate) async fn host(processors: &[&str], script: &Script) -> TestHost {
    let host = TestHost::builder().only(processors.iter().copied()).provide(script.clone());
    host.start().await.expect("it starts")
}

/// Fails every six hours, for three days.
#[processor(retry(fixed = "6h"), dead_letter_delivery_limit = 13)]
pub(crate) async fn note(
    Note(n): Note,
    count: DeliveryCount,
    id: MessageId,
    bus: Bus,
    script: Dep<Script>,
) -> Result<()> {
    script.run(n, count.0, id, &bus).await
}

#[processor(singleton, message_lock_timeout = "1d", retry(fixed = "1h"))]
pub(crate) async fn single(
    Single(n): Single,
    count: DeliveryCount,
    id: MessageId,
    bus: Bus,
    term: Term,
    script: Dep<Script>,
) -> Result<()> {
    script.run(n, count.0, id, &bus).await?;
    term.check()
}

#[processor(singleton, order = "strict", retry(fixed = "1h"))]
async fn strict(
    Strict(n): Strict,
    count: DeliveryCount,
    id: MessageId,
    bus: Bus,
    script: Dep<Script>,
) -> Result<()> {
    script.run(n, count.0, id, &bus).await
}

#[processor(message_lock_timeout = "7d")]
async fn slow(
    Slow(n): Slow,
    count: DeliveryCount,
    id: MessageId,
    bus: Bus,
    script: Dep<Script>,
) -> Result<()> {
    script.run(n, count.0, id, &bus).await
}

#[processor(subscription = "first")]
async fn first(
    Happened(n): Happened,
    count: DeliveryCount,
    id: MessageId,
    bus: Bus,
    script: Dep<Script>,
) -> Result<()> {
    script.run(n, count.0, id, &bus).await
}

#[processor(subscription = "second")]
async fn second(
    Happened(n): Happened,
    count: DeliveryCount,
    id: MessageId,
    bus: Bus,
    script: Dep<Script>,
) -> Result<()> {
    script.run(n, count.0, id, &bus).await
}

#[processor]
async fn invoice(
    Invoice(n): Invoice,
    count: DeliveryCount,
    id: MessageId,
    bus: Bus,
    script: Dep<Script>,
) -> Result<()> {
    script.run(n, count.0, id, &bus).await
}

/// What a processor needs that no test wants to be made.
pub(crate) struct Database;

#[provide]
fn database() -> Result<Database> {
    Err(bus::Error::new(bus::ErrorKind::Unavailable, "there is no database here"))
}

#[processor]
pub(crate) async fn costly(_message: Costly, _database: Dep<Database>) {}

/// Nobody makes one.
pub(crate) struct Missing;

#[processor]
pub(crate) async fn unprovided(_message: Unprovided, _missing: Dep<Missing>) {}

/// No processor.
pub(crate) async fn bystander(_message: Note) {}
