//! The handlers, and what they are made of.

use std::path::Path;
use std::time::Duration;

use bus::prelude::*;
use bus_tests::journal::{Entry, Journal};
use bus_tests::task::{Happened, Ordered, Out, Plain, Single, Step, Task};

use crate::end_of_process;

#[provide]
fn journal() -> Journal {
    Journal::of_this_process()
}

/// Made before anything is consumed, so that a start can be made to fail or to take long.
pub(crate) struct Beginning;

#[provide]
async fn beginning(journal: Dep<Journal>) -> Result<Beginning, String> {
    match std::env::var("BUS_TEST_START").as_deref() {
        Ok("fail") => return Err("the catalog cannot be reached".to_owned()),
        Ok("slow") => {
            journal.write(&Entry::now("starting"));
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        _ => {}
    }
    Ok(Beginning)
}

#[processor]
async fn plain(
    Plain(task): Plain,
    id: MessageId,
    count: DeliveryCount,
    bus: Bus,
    journal: Dep<Journal>,
    _beginning: Dep<Beginning>,
) -> Result<(), String> {
    Stage { at: "plain", id, count, bus, journal: &journal, term: None }.perform(task).await
}

#[processor(singleton)]
async fn single(
    Single(task): Single,
    id: MessageId,
    count: DeliveryCount,
    bus: Bus,
    journal: Dep<Journal>,
    term: Term,
) -> Result<(), String> {
    Stage { at: "single", id, count, bus, journal: &journal, term: Some(term) }.perform(task).await
}

#[processor(singleton, order = "strict")]
async fn ordered(
    Ordered(task): Ordered,
    id: MessageId,
    count: DeliveryCount,
    bus: Bus,
    journal: Dep<Journal>,
    term: Term,
) -> Result<(), String> {
    Stage { at: "ordered", id, count, bus, journal: &journal, term: Some(term) }.perform(task).await
}

#[processor(singleton, subscription = "first")]
async fn first(
    Happened(task): Happened,
    id: MessageId,
    count: DeliveryCount,
    bus: Bus,
    journal: Dep<Journal>,
    term: Term,
) -> Result<(), String> {
    Stage { at: "happened/first", id, count, bus, journal: &journal, term: Some(term) }.perform(task).await
}

#[processor(singleton, subscription = "second")]
async fn second(
    Happened(task): Happened,
    id: MessageId,
    count: DeliveryCount,
    bus: Bus,
    journal: Dep<Journal>,
    term: Term,
) -> Result<(), String> {
    Stage { at: "happened/second", id, count, bus, journal: &journal, term: Some(term) }.perform(task).await
}

/// Where a task is performed.
struct Stage<'s> {
    at: &'static str,
    id: MessageId,
    count: DeliveryCount,
    bus: Bus,
    journal: &'s Journal,
    term: Option<Term>,
}

/// Writes down that a run was dropped, unless it has come to its end.
struct Curtain<'s> {
    journal: &'s Journal,
    entry: Entry,
    fallen: bool,
}

impl Curtain<'_> {
    fn write(&self, e: &str) {
        let now = Entry::now(e);
        self.journal.write(&Entry { t: now.t, e: now.e, ..self.entry.clone() });
    }

    fn fall(mut self, e: &str) {
        self.write(e);
        self.fallen = true;
    }
}

impl Drop for Curtain<'_> {
    fn drop(&mut self) {
        if !self.fallen {
            self.write("dropped");
        }
    }
}

impl Stage<'_> {
    async fn perform(self, task: Task) -> Result<(), String> {
        let mut entry = Entry::now("");
        entry.at = Some(self.at.to_owned());
        entry.m = Some(task.n);
        entry.id = Some(self.id.to_string());
        entry.fence = self.term.as_ref().map(|term| term.fence().get());
        entry.count = Some(self.count.0);
        let mut curtain = Curtain { journal: self.journal, entry, fallen: false };
        curtain.write("start");
        for step in task.steps {
            if let Err(why) = self.step(step, &mut curtain).await {
                curtain.fall("failed");
                return Err(why);
            }
        }
        curtain.fall("end");
        Ok(())
    }

    async fn step(&self, step: Step, curtain: &mut Curtain<'_>) -> Result<(), String> {
        match step {
            Step::Sleep(millis) => tokio::time::sleep(Duration::from_millis(millis)).await,
            Step::Block(millis) => std::thread::sleep(Duration::from_millis(millis)),
            Step::Await(file) => {
                while !file.exists() {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
            Step::BlockUntil(file) => block_until(&file),
            Step::TermBlocking(millis) => self.block_under_term(millis, curtain).await?,
            Step::SpawnBlocking(millis) => {
                let work = move || std::thread::sleep(Duration::from_millis(millis));
                tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?;
            }
            Step::Send(n) => match self.bus.send(Out(n)).await {
                Ok(_) => curtain.write("sent"),
                Err(error) => {
                    curtain.entry.say = Some(format!("{:?}", error.kind()));
                    curtain.write("not sent");
                    curtain.entry.say = None;
                }
            },
            Step::Check => {
                let held = self.term.as_ref().is_none_or(|term| term.check().is_ok());
                curtain.write(if held { "held" } else { "lost" });
            }
            Step::Fail => return Err(format!("task of {} fails", self.id)),
            Step::Die(death) => end_of_process::come(death),
        }
        Ok(())
    }
}

impl Stage<'_> {
    async fn block_under_term(&self, millis: u64, curtain: &Curtain<'_>) -> Result<(), String> {
        let term = self.term.as_ref().ok_or("only a singleton has a term")?;
        let (journal, entry) = (self.journal.clone(), curtain.entry.clone());
        let work = move || {
            std::thread::sleep(Duration::from_millis(millis));
            let now = Entry::now("worked");
            journal.write(&Entry { t: now.t, e: now.e, ..entry });
        };
        term.blocking(work).await.map_err(|error| error.to_string())
    }
}

fn block_until(file: &Path) {
    while !file.exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
}
