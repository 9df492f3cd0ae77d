//! What a host's handler works with: its history, the register, and one object per run that notes how it ended.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::freeze::FailPoint;
use crate::history::{Event, History, Kind};
use crate::place::register_file;
use crate::register::Register;

/// The equipment of one host process.
#[derive(Debug)]
pub struct Lab {
    history: Arc<History>,
    register: Mutex<Register>,
    fail_point: Arc<FailPoint>,
}

impl Lab {
    /// The lab of a process that writes to `history`, with the register of its directory.
    ///
    /// # Errors
    /// When the register cannot be opened.
    pub fn open(directory: &Path, history: Arc<History>, fail_point: Arc<FailPoint>) -> Result<Arc<Self>> {
        let register = Mutex::new(Register::open(&register_file(directory))?);
        Ok(Arc::new(Self { history, register, fail_point }))
    }

    /// Begins a run.
    pub fn begin(self: Arc<Self>, m: String, fence: u64) -> Run {
        let run = Run { lab: self, m, fence, ended: false };
        run.note(Event::now(Kind::RunStart));
        run
    }
}

/// A run that goes on. Whoever works owns it: the handler's future, or the closure on a thread that outlives it.
#[derive(Debug)]
pub struct Run {
    lab: Arc<Lab>,
    m: String,
    fence: u64,
    ended: bool,
}

impl Run {
    /// Works, on this very thread.
    pub fn work(&self, time: Duration) {
        thread::sleep(time);
    }

    /// Works likewise; meanwhile the process can be frozen inside a commit of some other thread. Only for runs that
    /// ask their term afterwards: while everybody waits for the commit, no successor can have raised the fence.
    pub fn work_exposed(&self, time: Duration) {
        let _exposed = self.lab.fail_point.expose();
        self.work(time);
    }

    /// Writes the effect, unless `permission` is refused, and ends the run.
    ///
    /// # Errors
    /// When the effect was refused, by the permission or by the register.
    pub fn finish(mut self, permission: Result<()>) -> Result<()> {
        let result = permission.inspect_err(|_| self.note(Event::now(Kind::EffectRefused)));
        let result = result.and_then(|()| self.write_effect());
        self.ended = true;
        self.note(Event::now(Kind::RunEnd));
        result
    }

    fn write_effect(&self) -> Result<()> {
        let mut register = self.lab.register.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = register.write(&self.m, self.fence)?;
        let kind = if answer.accepted { Kind::EffectOk } else { Kind::EffectRefused };
        self.note(Event::now(kind).at(answer.t));
        if !answer.accepted {
            bail!("the register has seen a higher fence than {}", self.fence);
        }
        Ok(())
    }

    fn note(&self, event: Event) {
        self.lab.history.write(&event.message(&self.m).fence(self.fence));
    }
}

/// A run that is dropped before its end was cut.
impl Drop for Run {
    fn drop(&mut self) {
        if !self.ended {
            self.note(Event::now(Kind::RunCut));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::file_of;

    fn with_lab(work: impl FnOnce(&Arc<Lab>)) -> Vec<Kind> {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let history = Arc::new(History::open(directory, "host").unwrap());
        work(&Lab::open(directory, history, Arc::new(FailPoint::new(directory))).unwrap());
        let text = std::fs::read_to_string(file_of(directory, "host", std::process::id())).unwrap();
        text.lines().map(|line| serde_json::from_str::<Event>(line).unwrap().e).collect()
    }

    fn begin(lab: &Arc<Lab>, fence: u64) -> Run {
        lab.clone().begin("a".to_owned(), fence)
    }

    #[test]
    fn a_run_that_is_dropped_was_cut() {
        let kinds = with_lab(|lab| drop(begin(lab, 1)));
        assert_eq!(kinds, [Kind::RunStart, Kind::RunCut]);
    }

    #[test]
    fn a_run_writes_its_effect_and_ends() {
        let kinds = with_lab(|lab| begin(lab, 1).finish(Ok(())).unwrap());
        assert_eq!(kinds, [Kind::RunStart, Kind::EffectOk, Kind::RunEnd]);
    }

    #[test]
    fn a_refusal_by_the_clock_and_one_by_the_register_look_the_same() {
        let refused = [Kind::RunStart, Kind::EffectRefused, Kind::RunEnd];
        let kinds = with_lab(|lab| {
            assert!(begin(lab, 1).finish(Err(anyhow::anyhow!("the term is over"))).is_err());
        });
        assert_eq!(kinds, refused);
        let kinds = with_lab(|lab| {
            begin(lab, 2).finish(Ok(())).unwrap();
            assert!(begin(lab, 1).finish(Ok(())).is_err());
        });
        assert_eq!(kinds[3..], refused);
    }
}
