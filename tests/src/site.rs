//! A directory with a store and journals, and the processes that work in it.

use std::cell::Cell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use bus::host::Producer;
use rustix::process::{Pid, Signal, kill_process};

use crate::journal::{self, Entry, Journal};
use crate::runs::{self, Run};
use crate::store::Store;
use crate::wait::{self, until_stopped};

/// A temporary directory in which a test's processes work.
#[derive(Debug)]
pub struct Site {
    directory: tempfile::TempDir,
    store: String,
    started: Cell<usize>,
}

impl Default for Site {
    fn default() -> Site {
        Site::new()
    }
}

impl Site {
    /// An empty one.
    ///
    /// # Panics
    /// If there is no room for a directory.
    pub fn new() -> Site {
        Site::with_store("bus.db")
    }

    /// An empty one whose store lies at this path within.
    ///
    /// # Panics
    /// If there is no room for a directory.
    pub fn with_store(path: &str) -> Site {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Site { directory, store: path.to_owned(), started: Cell::new(0) }
    }

    /// The path of the shared store's file.
    pub fn file(&self) -> PathBuf {
        self.path(&self.store)
    }

    /// A path within.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The URL of the store that all processes share.
    pub fn url(&self) -> String {
        self.url_of(&self.store)
    }

    /// The URL of another store.
    pub fn url_of(&self, file: &str) -> String {
        format!("sqlite://{}", self.path(file).display())
    }

    /// Looks into the store, without `bus`.
    pub fn store(&self) -> Store {
        Store::open(&self.file())
    }

    /// A process to be started: `program` is the path of a fixture's binary.
    pub fn process(&self, program: &str) -> Setup<'_> {
        let number = self.started.get();
        self.started.set(number + 1);
        let mut command = Command::new(program);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("BUS_")) {
            command.env_remove(name);
        }
        command
            .current_dir(self.directory.path())
            .env("BUS_TRANSPORTS__DEFAULT", self.url())
            .env(journal::VARIABLE, self.path(&format!("{number}.journal")))
            // Enough for one that blocks and all the others, however few cores there are.
            .env("TOKIO_WORKER_THREADS", "4");
        Setup { site: self, command, number, on_a_terminal: false }
    }

    /// Sends into the shared store from the test itself.
    ///
    /// # Panics
    /// If the store cannot be opened.
    pub async fn producer(&self) -> Producer {
        let builder = bus::Host::builder().transport("default", &self.url());
        builder.connect().await.expect("the store can be opened")
    }

    /// What all processes have written down so far, in the order of time.
    ///
    /// # Panics
    /// If a journal cannot be read.
    pub fn entries(&self) -> Vec<Entry> {
        let files = fs::read_dir(self.directory.path()).expect("the directory can be read");
        let files = files.map(|file| file.expect("a file").path());
        let journals = files.filter(|path| path.extension().is_some_and(|kind| kind == "journal"));
        let mut entries: Vec<Entry> = journals.flat_map(|path| journal::read(&path)).collect();
        entries.sort_by_key(|entry| entry.t);
        entries
    }

    /// All runs at an endpoint so far.
    pub fn runs(&self, endpoint: &str) -> Vec<Run> {
        runs::runs(&self.entries(), endpoint)
    }

    /// Waits for the first entry that `wanted` accepts.
    pub async fn entry(&self, what: &str, wanted: impl Fn(&Entry) -> bool) -> Entry {
        wait::until(what, || self.entries().into_iter().find(|entry| wanted(entry))).await
    }

    /// Waits until a task has begun at an endpoint, and answers that run's first entry.
    pub async fn begun(&self, endpoint: &str, task: u64) -> Entry {
        let what = format!("task {task} begins at {endpoint}");
        let wanted = |entry: &Entry| {
            entry.e == "start" && entry.m == Some(task) && entry.at.as_deref() == Some(endpoint)
        };
        self.entry(&what, wanted).await
    }

    /// Makes a file that tasks wait for.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn allow(&self, name: &str) {
        File::create(self.path(name)).expect("a file");
    }

    /// Writes down when a process ended, by the test's own eyes: its handlers could not.
    fn note_exit(&self, pid: u32, t: u64) {
        let journal = Journal::open(&self.path("test.journal"));
        journal.write(&Entry { t, p: pid, e: "exit".into(), ..Entry::default() });
    }
}

/// A process that is about to be started.
#[derive(Debug)]
pub struct Setup<'s> {
    site: &'s Site,
    command: Command,
    number: usize,
    on_a_terminal: bool,
}

impl<'s> Setup<'s> {
    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<str>) -> Self {
        self.command.env(name, value.as_ref());
        self
    }

    /// Removes a variable that is set by default.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Writes a `bus.toml` for this process.
    ///
    /// # Panics
    /// If it cannot be written.
    #[must_use]
    pub fn config(self, text: &str) -> Self {
        let path = self.site.path(&format!("{}.toml", self.number));
        fs::write(&path, text).expect("a file");
        self.env("BUS_CONFIG", path.display().to_string())
    }

    /// An argument: for an actor, an endpoint that it reads.
    #[must_use]
    pub fn arg(mut self, argument: &str) -> Self {
        self.command.arg(argument);
        self
    }

    /// Has it heed the permissions of files, should it be root's.
    #[must_use]
    pub fn heeding_permissions(self) -> Self {
        if rustix::process::geteuid().is_root() {
            self.through("setpriv", &["--bounding-set=-dac_override,-dac_read_search"])
        } else {
            self
        }
    }

    /// Has it started by another program, which becomes it.
    #[must_use]
    pub fn through(mut self, program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).arg(self.command.get_program()).args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(self.site.directory.path());
        self.command = command;
        self
    }

    /// Has it speak to a terminal.
    #[must_use]
    pub fn on_a_terminal(mut self) -> Self {
        self.on_a_terminal = true;
        self
    }

    /// Starts it.
    ///
    /// # Panics
    /// If there is no such program, or no terminal.
    pub fn start(mut self) -> Process<'s> {
        let said = self.site.path(&format!("{}.said", self.number));
        let mut file = File::create(&said).expect("a file");
        if self.on_a_terminal {
            file = terminal(file);
        }
        self.command.stdin(Stdio::null()).stdout(file.try_clone().expect("a file")).stderr(file);
        let child = self.command.spawn().unwrap_or_else(|e| panic!("{:?}: {e}", self.command));
        Process { site: self.site, child, said, ended: None }
    }
}

/// A terminal, on which what is said is copied into `said`, until nobody has it any more.
fn terminal(mut said: File) -> File {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("a terminal of our own");
    let name = ptsname(&ours, Vec::new()).expect("a terminal has a name");
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let theirs = rustix::fs::open(name, flags, Mode::empty()).expect("a terminal can be opened");
    std::thread::spawn(move || {
        // It ends with an error when the last of those who speak has gone.
        let _ = std::io::copy(&mut File::from(ours), &mut said);
    });
    File::from(theirs)
}

/// A fixture process. Killed when dropped.
#[derive(Debug)]
pub struct Process<'s> {
    site: &'s Site,
    child: Child,
    said: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process<'_> {
    /// Its id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has said on standard output and error.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }

    /// Sends it a signal, if it still lives, and answers the moment just before.
    ///
    /// # Panics
    /// If the system refuses.
    pub fn signal(&mut self, signal: Signal) -> u64 {
        let before = journal::now();
        if self.try_exit().is_none() {
            let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a process id");
            kill_process(pid, signal).expect("a child can be sent signals");
        }
        before
    }

    /// Asks it to end.
    pub fn terminate(&mut self) -> u64 {
        self.signal(Signal::TERM)
    }

    /// Freezes it.
    pub fn freeze(&mut self) -> u64 {
        let before = self.signal(Signal::STOP);
        until_stopped(self.pid());
        before
    }

    /// Lets it go on.
    pub fn thaw(&mut self) -> u64 {
        self.signal(Signal::CONT)
    }

    /// Kills it, and answers the moment just before.
    ///
    /// # Panics
    /// If it cannot be waited for.
    pub fn kill(&mut self) -> u64 {
        let before = self.signal(Signal::KILL);
        if self.ended.is_none() {
            self.ended = Some(self.child.wait().expect("a child can be waited for"));
            self.site.note_exit(self.pid(), before);
        }
        before
    }

    /// How it ended, if it has.
    ///
    /// # Panics
    /// If it cannot be waited for.
    pub fn try_exit(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none()
            && let Some(status) = self.child.try_wait().expect("a child can be waited for")
        {
            self.ended = Some(status);
            self.site.note_exit(self.child.id(), journal::now());
        }
        self.ended
    }

    /// Waits for its end; answers how and when.
    ///
    /// # Panics
    /// If it does not come within `patience`.
    pub async fn exit_within(&mut self, patience: Duration) -> (ExitStatus, u64) {
        let what = format!("process {} has ended", self.pid());
        wait::until_within(&what, patience, || self.try_exit().map(|status| (status, journal::now()))).await
    }

    /// Waits for its end.
    pub async fn exit(&mut self) -> ExitStatus {
        self.exit_within(wait::PATIENCE).await.0
    }

    /// Waits until it says that it has started.
    pub async fn started(&self) -> &Self {
        let pid = self.pid();
        self.site.entry("a process has started", |entry| entry.e == "started" && entry.p == pid).await;
        self
    }
}

impl Drop for Process<'_> {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // A frozen process can be killed too. Nothing to be done if it is gone already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        if std::thread::panicking() {
            show(&self.said, self.pid());
        }
    }
}

#[allow(clippy::print_stderr, reason = "what a process said is needed to understand why a test failed")]
fn show(said: &Path, pid: u32) {
    let text = fs::read_to_string(said).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.len().saturating_sub(60);
    eprintln!("--- process {pid} said last:\n{}", lines[last..].join("\n"));
}
