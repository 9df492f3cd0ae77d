//! The faults: who is hit when, and how the driver makes sure that it hits.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use super::Driver;
use super::fleet::is_stopped;
use super::watch::Target;
use crate::args::Options;
use crate::checker::FreezeIn;
use crate::freeze;
use crate::gate::Gate;
use crate::history::{Event, Kind, now};
use crate::place::register_file;
use crate::register::Register;
use crate::work::Style;

/// A run with less time left than this could end before the signal arrives.
const TIME_TO_HIT: Duration = Duration::from_millis(10);
/// A freeze has to wait for the stores first.
const TIME_TO_FREEZE: Duration = Duration::from_millis(25);
/// How long a freeze exceeds the lease.
const BEYOND_THE_LEASE: Duration = Duration::from_secs(1);
/// How long anything may take that is about to happen.
const SOON: Duration = Duration::from_secs(60);

/// What is done to the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Kill,
    Freeze(Style),
    Term,
}

/// All faults in the order in which they strike: mixed, and the same in each run.
pub(super) fn schedule(options: &Options) -> Vec<Fault> {
    // What a frozen run does first after the thaw differs; the first one surely writes too late.
    let styles = [Style::Trusting, Style::Blocking, Style::Awaiting];
    let freezes = styles.into_iter().cycle().take(options.freezes).map(Fault::Freeze);
    let mut faults: Vec<Fault> = freezes.collect();
    faults.extend(std::iter::repeat_n(Fault::Kill, options.kills));
    faults.extend(std::iter::repeat_n(Fault::Term, options.terms));
    fastrand::Rng::with_seed(1).shuffle(&mut faults);
    faults
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kill => "the holder is killed",
            Self::Freeze(_) => "the holder is frozen",
            Self::Term => "the holder is told to stop",
        })
    }
}

impl Driver {
    /// Lets one fault strike, and waits until the fleet has got over it.
    pub(super) fn strike(&mut self, fault: Fault) -> Result<()> {
        match (fault, self.options.freeze_in) {
            (Fault::Kill, _) => self.kill(),
            (Fault::Term, _) => self.term(),
            (Fault::Freeze(style), FreezeIn::Handler) => self.freeze_in_handler(style),
            (Fault::Freeze(_), FreezeIn::Commit) => self.freeze_in_commit(),
        }
    }

    fn kill(&mut self) -> Result<()> {
        let victim = self.aim(TIME_TO_HIT, |_| true)?.pid;
        let since = self.send(Kind::Kill, victim, Signal::KILL)?;
        self.wait_for_take_over(victim, since)
    }

    fn term(&mut self) -> Result<()> {
        let victim = self.aim(TIME_TO_HIT, |_| true)?.pid;
        let since = self.send(Kind::Term, victim, Signal::TERM)?;
        self.wait("the process that was told to stop ends", SOON, |driver| !driver.fleet.has(victim))?;
        self.wait_for_take_over(victim, since)
    }

    fn wait_for_take_over(&mut self, victim: u32, since: u64) -> Result<()> {
        let plan = self.options.plan();
        self.wait("another process takes over", plan.lease + plan.notice + SOON, |driver| {
            driver.watch.others_ran(victim, since)
        })
    }

    /// Stops a process that is inside a handler while nobody is inside a commit, so that the others can go on.
    fn freeze_in_handler(&mut self, style: Style) -> Result<()> {
        let (victim, since) = loop {
            let target = self.aim(TIME_TO_FREEZE, |target| target.style() == Some(style))?;
            if let Some(since) = self.stop_between_commits(&target)? {
                break (target.pid, since);
            }
        };
        let plan = self.options.plan();
        let beyond = since + nanos(plan.lease + BEYOND_THE_LEASE);
        self.wait("others work while a process is frozen", plan.lease + plan.notice + SOON, |driver| {
            now() > beyond && driver.watch.others_had_effect(victim, since)
        })?;
        self.thaw(victim)?;
        self.get_over_the_thaw()
    }

    fn stop_between_commits(&mut self, target: &Target) -> Result<Option<u64>> {
        let mut register = Register::open(&register_file(&self.place.directory))?;
        let _stores = self.gates.iter().map(Gate::hold).collect::<Result<Vec<_>>>()?;
        let _register = register.hold()?;
        self.watch.poll();
        if !self.watch.goes_on(target) || target.remaining() < TIME_TO_HIT {
            return Ok(None);
        }
        let since = self.send(Kind::Freeze, target.pid, Signal::STOP)?;
        self.frozen = Some(target.pid);
        // Nothing else is looked after meanwhile: the stores are held.
        let stopped = || is_stopped(target.pid);
        super::poll_until(Duration::from_secs(5), stopped).context("a process does not stop")?;
        Ok(Some(since))
    }

    /// Lets a process stop itself inside a commit, so that everybody has to wait for it.
    fn freeze_in_commit(&mut self) -> Result<()> {
        let victim = self.aim(Duration::ZERO, |_| true)?.pid;
        let directory = self.place.directory.clone();
        freeze::arm(&directory, victim)?;
        self.wait("a process stops itself inside a commit", SOON, |_| {
            freeze::sprung(&directory, victim).is_some() && is_stopped(victim)
        })?;
        let since = freeze::sprung(&directory, victim).context("the time of the freeze is gone")?;
        self.history.write(&Event::now(Kind::Freeze).victim(victim).at(since));
        let lease = self.options.lease();
        let beyond = since + nanos(lease + BEYOND_THE_LEASE);
        self.frozen = Some(victim);
        self.wait("the lease ends", lease + SOON, |_| now() > beyond)?;
        freeze::disarm(&directory, victim);
        self.thaw(victim)?;
        self.get_over_the_thaw()
    }

    /// Lets a frozen process go on.
    pub(super) fn thaw(&mut self, victim: u32) -> Result<()> {
        self.send(Kind::Thaw, victim, Signal::CONT)?;
        self.frozen = None;
        Ok(())
    }

    /// Time enough for the late write.
    fn get_over_the_thaw(&mut self) -> Result<()> {
        let over = now() + nanos(Duration::from_secs(1));
        self.wait("a thawed process gets over it", SOON, |_| now() > over)
    }

    /// Notes a signal, sends it, and gives the time that was noted.
    fn send(&mut self, kind: Kind, victim: u32, signal: Signal) -> Result<u64> {
        let event = Event::now(kind).victim(victim);
        self.fleet.signal(victim, signal)?;
        self.history.write(&event);
        Ok(event.t)
    }

    /// Waits for a run with so much time left.
    fn aim(&mut self, remaining: Duration, fits: impl Fn(&Target) -> bool) -> Result<Target> {
        let mut found = None;
        let seen = super::poll_until(SOON, || {
            self.watch.poll();
            let running = self.watch.target().filter(|target| self.fleet.has(target.pid));
            found = running.filter(|target| target.remaining() >= remaining && fits(target)).cloned();
            found.is_some()
        });
        match found {
            Some(target) => Ok(target),
            None => bail!("no run to aim at: {seen:?}"),
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn the_schedule_holds_what_was_asked_for() {
        let line = ["failover", "--kills", "4", "--freezes", "2", "--terms", "3"];
        let faults = schedule(&Cli::parse_from(line).options);
        let count = |wanted: fn(&Fault) -> bool| faults.iter().filter(|fault| wanted(fault)).count();
        assert_eq!(count(|fault| *fault == Fault::Kill), 4);
        assert_eq!(count(|fault| *fault == Fault::Term), 3);
        assert_eq!(count(|fault| *fault == Fault::Freeze(Style::Trusting)), 1);
        assert_eq!(count(|fault| *fault == Fault::Freeze(Style::Blocking)), 1);
    }
}
