//! Starts the fleet, lets the faults strike, waits until the queue is empty, and has the histories checked.

mod faults;
mod fleet;
mod watch;

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::args::Options;
use crate::checker::{self, Cause, FreezeIn, Report};
use crate::gate::Gate;
use crate::history::{Event, History, Kind, file_of};
use crate::place::{Place, register_file};
use crate::register::Register;
use crate::servers::Servers;
use crate::store::{self, Store};
use crate::stores::{self, Asked};
use faults::schedule;
use fleet::Fleet;
use watch::Watch;

/// The whole has to end within 20 minutes; this is when the driver stops waiting for the queue.
const ENOUGH: Duration = Duration::from_secs(17 * 60);
/// How long the hosts may take to stop: their grace period and more.
const FAREWELL: Duration = Duration::from_secs(60);
/// How many hosts may end by themselves before it makes no sense to go on.
const TOO_MANY_TROUBLES: usize = 10;
/// How often the progress is told.
const NEWS_EVERY: Duration = Duration::from_secs(5);
/// How many complaints are printed.
const COMPLAINTS_SHOWN: usize = 40;

/// Everything that the driver knows and holds.
#[derive(Debug)]
struct Driver {
    options: Options,
    place: Place,
    /// The store of the messages.
    store: Box<dyn Store>,
    /// Of that, and of the lock's: what a frozen process could hold against others.
    gates: Vec<Gate>,
    history: History,
    watch: Watch,
    fleet: Fleet,
    /// The host that is frozen right now.
    frozen: Option<u32>,
    began: Instant,
    last_news: Instant,
    stopping: bool,
    /// What went wrong that no history tells.
    troubles: Vec<String>,
    /// Outlives the fleet.
    _servers: Servers,
}

/// Runs the experiment, and says how it went.
///
/// # Errors
/// When it could not be carried out. That a rule was broken is no error but a part of the report.
pub fn run(options: Options) -> Result<Report> {
    options.check()?;
    let servers = Servers::for_stores(&options.asked())?;
    let place = Place::fresh(&options, &servers)?;
    if options.freeze_in == FreezeIn::Commit && place.locks != place.store {
        bail!("--freeze-in commit needs the lock in the store of the messages: else nobody has to wait");
    }
    say(format_args!("histories: {}\nstore:     {}", place.directory.display(), place.store));
    let (plan, locks) = (options.plan(), &place.locks);
    let (after_kill, after_term) = (Cause::Kill.limit(&plan), Cause::Term.limit(&plan));
    say(format_args!(
        "locks:     {locks}: take-over within {after_kill:?} of a kill, {after_term:?} of a stop"
    ));
    let mut driver = Driver::new(options, place, servers)?;
    if let Err(error) = driver.experiment() {
        driver.troubles.push(format!("driver: {error:#}"));
    }
    driver.stop()?;
    if let Err(error) = driver.note_what_is_left() {
        driver.troubles.push(format!("driver: {error:#}"));
    }
    let mut report = checker::check_directory(&driver.place.directory, &driver.options.plan())?;
    report.complaints.append(&mut driver.troubles);
    Ok(report)
}

/// Prints a report; its last line is for programs.
pub fn print(report: &Report) {
    for take_over in &report.take_overs {
        say(format_args!("{take_over}"));
    }
    for complaint in report.complaints.iter().take(COMPLAINTS_SHOWN) {
        say(format_args!("WRONG {complaint}"));
    }
    if report.complaints.len() > COMPLAINTS_SHOWN {
        say(format_args!("WRONG … and {} more", report.complaints.len() - COMPLAINTS_SHOWN));
    }
    say(format_args!("left={}", report.left));
    say(format_args!("{report}"));
}

impl Driver {
    fn new(options: Options, place: Place, servers: Servers) -> Result<Self> {
        let kind = options.store.as_ref().map_or(stores::Kind::Sqlite, Asked::kind);
        let store = store::at(kind, &place.store, servers.connection_string().as_deref())?;
        let mut gates: Vec<_> = Gate::of(kind, &place.store).into_iter().collect();
        if let Some(locks) = options.lock_store().filter(|_| place.locks != place.store) {
            gates.extend(Gate::of(locks.kind(), &place.locks));
        }
        let history = History::open(&place.directory, "driver")?;
        let part = place.part(options.messages as u64, options.lease());
        let fleet = Fleet::new(part, servers.environment());
        let (began, watch) = (Instant::now(), Watch::default());
        let (frozen, stopping, troubles) = (None, false, Vec::new());
        let last_news = began;
        Ok(Self {
            options,
            place,
            store,
            gates,
            history,
            watch,
            fleet,
            frozen,
            began,
            last_news,
            stopping,
            troubles,
            _servers: servers,
        })
    }

    fn experiment(&mut self) -> Result<()> {
        let producer = self.fleet.start_producer()?;
        self.watch.follow(producer, file_of(&self.place.directory, "producer", producer));
        for _ in 0..self.options.hosts {
            self.start_host()?;
        }
        let faults = schedule(&self.options);
        for (index, fault) in faults.iter().enumerate() {
            let due = self.options.messages * (index + 1) / (faults.len() + 1);
            self.wait("the next fault is due", ENOUGH, |driver| driver.watch.done() >= due)?;
            say(format_args!("{} fault {} of {}: {fault}", self.clock(), index + 1, faults.len()));
            self.strike(*fault)?;
        }
        self.drain()
    }

    fn drain(&mut self) -> Result<()> {
        while !self.fleet.producer_is_done()? {
            if self.began.elapsed() > ENOUGH {
                bail!("waited in vain until everything was sent");
            }
            self.tick()?;
        }
        let all = self.options.messages;
        self.wait("the last message is done", ENOUGH, |driver| driver.watch.done() >= all)?;
        let empty = |driver: &Self| driver.store.left().is_ok_and(|left| left.is_empty());
        self.wait("the queue is empty", ENOUGH, empty)
    }

    fn start_host(&mut self) -> Result<()> {
        let pid = self.fleet.start_host()?;
        self.watch.follow(pid, file_of(&self.place.directory, "host", pid));
        Ok(())
    }

    /// Looks after the fleet until something has come true.
    fn wait(&mut self, what: &str, patience: Duration, come_true: impl Fn(&Self) -> bool) -> Result<()> {
        let since = Instant::now();
        while !come_true(self) {
            if since.elapsed() > patience || self.began.elapsed() > ENOUGH {
                bail!("waited in vain until {what}, for {:.0?}", since.elapsed());
            }
            self.tick()?;
        }
        Ok(())
    }

    /// Reads what is new, replaces hosts that have ended, tells the news.
    fn tick(&mut self) -> Result<()> {
        thread::sleep(Duration::from_millis(5));
        self.watch.poll();
        for ended in self.fleet.take_ended()? {
            self.watch.forget(ended.pid);
            self.troubles.extend(ended.trouble);
            if !self.stopping {
                self.start_host()?;
            }
        }
        if self.troubles.len() > TOO_MANY_TROUBLES && !self.stopping {
            bail!("the hosts do not stay; {}/host.log tells why", self.place.directory.display());
        }
        if self.last_news.elapsed() > NEWS_EVERY {
            self.last_news = Instant::now();
            let (sent, done, all) = (self.watch.sent, self.watch.done(), self.options.messages);
            say(format_args!("{} {sent} sent, {done} of {all} done", self.clock()));
        }
        Ok(())
    }

    fn clock(&self) -> String {
        format!("[{:4} s]", self.began.elapsed().as_secs())
    }

    /// Lets the hosts go. One that stays is killed, which is trouble, and a fault that the plan does not know.
    fn stop(&mut self) -> Result<()> {
        self.stopping = true;
        if let Some(pid) = self.frozen {
            self.thaw(pid)?;
        }
        self.fleet.end_producer();
        self.fleet.let_go();
        let since = Instant::now();
        while !self.fleet.hosts().is_empty() && since.elapsed() < FAREWELL {
            self.tick()?;
        }
        for pid in self.fleet.hosts() {
            self.troubles.push(format!("host {pid} did not stop within {FAREWELL:?}"));
            self.history.write(&Event::now(Kind::Kill).victim(pid));
            self.fleet.signal(pid, Signal::KILL)?;
        }
        Ok(())
    }

    /// Notes what the register and the store say at the end.
    fn note_what_is_left(&self) -> Result<()> {
        let register = Register::open(&register_file(&self.place.directory))?;
        for (m, fence) in register.entries()? {
            self.history.write(&Event::now(Kind::SettledBy).message(m).fence(fence));
        }
        for m in self.store.left().context("what is left")? {
            self.history.write(&Event::now(Kind::Left).message(m));
        }
        for m in self.store.dead().context("what is dead")? {
            self.history.write(&Event::now(Kind::Dead).message(m));
        }
        Ok(())
    }
}

/// Looks again and again, quickly, until something has come true.
fn poll_until(patience: Duration, mut come_true: impl FnMut() -> bool) -> Result<()> {
    let since = Instant::now();
    while !come_true() {
        if since.elapsed() > patience {
            bail!("waited in vain for {patience:?}");
        }
        thread::sleep(Duration::from_micros(500));
    }
    Ok(())
}

#[allow(clippy::print_stdout, reason = "this is what the program is for")]
fn say(words: fmt::Arguments<'_>) {
    println!("{words}");
}
