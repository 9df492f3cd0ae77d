//! Telling those who wait, in this process and in others, that there may be something for them: a hint, behind which
//! everyone polls.
//!
//! In the directory `<file>.wake` lies an empty-looking file for each endpoint and one for all locks; whoever has
//! committed something writes a byte into the endpoint's, and each process watches the directory by inotify. There is
//! nothing to be registered or cleaned up, a dead process leaves nothing behind, and a frozen one blocks nobody. Where
//! there is no inotify, other processes' messages are found by the poll alone.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::transaction::{Effects, EndpointId};

/// What can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Topic {
    /// Messages of an endpoint.
    Messages(EndpointId),
    /// A lock that was released.
    Locks,
}

impl Topic {
    fn file_name(self) -> String {
        match self {
            Topic::Messages(EndpointId(id)) => format!("m{id}"),
            Topic::Locks => "locks".to_owned(),
        }
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn of_file_name(name: &str) -> Option<Self> {
        match name {
            "locks" => Some(Topic::Locks),
            _ => name.strip_prefix('m')?.parse().ok().map(|id| Topic::Messages(EndpointId(id))),
        }
    }
}

/// The hints of one opened store.
#[derive(Debug)]
pub(super) struct Wake {
    directory: PathBuf,
    waiting: Mutex<HashMap<Topic, watch::Sender<()>>>,
    closed: AtomicBool,
}

impl Wake {
    /// Begins to listen for what other processes tell.
    pub(super) fn open(store: &Path) -> Arc<Self> {
        let wake = Arc::new(Wake {
            directory: super::file::beside(store, ".wake"),
            waiting: Mutex::default(),
            closed: AtomicBool::new(false),
        });
        if let Err(e) = make_private_directory(&wake.directory) {
            tracing::warn!(directory = %wake.directory.display(), error = %e, "no hints from other processes");
        } else {
            listen::start(&wake);
        }
        wake
    }

    /// Listens to one topic: what was told before is seen, what is told from now on wakes.
    pub(super) fn listen(&self, topic: Topic) -> watch::Receiver<()> {
        self.waiting.lock().entry(topic).or_insert_with(|| watch::Sender::new(())).subscribe()
    }

    /// Wakes those who listen in this process.
    pub(super) fn tell_here(&self, topic: Topic) {
        if let Some(waiting) = self.waiting.lock().get(&topic) {
            waiting.send_replace(());
        }
    }

    /// Ends the listening thread.
    pub(super) fn close(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            // Wakes the listening thread, so that it sees that it is to end.
            let _ = Teller::of(self).write(Topic::Locks);
        }
    }
}

impl Drop for Wake {
    fn drop(&mut self) {
        self.close();
    }
}

/// Tells other processes. Belongs to the writer thread.
#[derive(Debug)]
pub(super) struct Teller {
    directory: PathBuf,
    files: HashMap<Topic, File>,
    pending: BTreeSet<Topic>,
    last: Option<Instant>,
}

impl Teller {
    /// While one commit follows another, others are told this often only.
    const PAUSE: Duration = Duration::from_millis(2);

    pub(super) fn of(wake: &Wake) -> Self {
        let directory = wake.directory.clone();
        Teller { directory, files: HashMap::new(), pending: BTreeSet::new(), last: None }
    }

    /// Takes note of a commit's effects; they are told now, or by a later [`tell`](Teller::tell).
    pub(super) fn add(&mut self, effects: &Effects) {
        self.pending.extend(effects.topics());
        if self.last.is_none_or(|last| last.elapsed() >= Self::PAUSE) {
            self.tell();
        }
    }

    /// Tells what is still to be told. Called at the latest when the writer has nothing else to do.
    pub(super) fn tell(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        for topic in std::mem::take(&mut self.pending) {
            if let Err(e) = self.write(topic) {
                tracing::debug!(error = %e, "a hint to other processes was lost; they poll");
                self.files.remove(&topic);
            }
        }
        self.last = Some(Instant::now());
    }

    fn write(&mut self, topic: Topic) -> std::io::Result<()> {
        use std::io::{Seek, Write};
        let file = match self.files.entry(topic) {
            std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
            std::collections::hash_map::Entry::Vacant(new) => {
                let mut options = File::options();
                options.create(true).write(true).truncate(false);
                super::gate::private(&mut options);
                new.insert(options.open(self.directory.join(topic.file_name()))?)
            }
        };
        file.rewind()?;
        file.write_all(b"!")
    }
}

fn make_private_directory(path: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(path) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod listen {
    use std::mem::MaybeUninit;
    use std::os::fd::OwnedFd;
    use std::sync::atomic::Ordering;
    use std::sync::{Arc, Weak};

    use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

    use super::{Topic, Wake};

    /// Starts the thread that waits for other processes' hints. It ends with the store.
    pub(super) fn start(wake: &Arc<Wake>) {
        let watching = watch(wake).and_then(|fd| {
            let wake = Arc::downgrade(wake);
            let thread = std::thread::Builder::new().name("bus-sqlite-wake".to_owned());
            thread.spawn(move || run(&fd, &wake)).map(drop)
        });
        if let Err(e) = watching {
            tracing::warn!(error = %e, "no inotify: other processes' messages are found by polling");
        }
    }

    fn watch(wake: &Wake) -> std::io::Result<OwnedFd> {
        let fd = inotify::init(CreateFlags::CLOEXEC)?;
        inotify::add_watch(&fd, &wake.directory, WatchFlags::MODIFY)?;
        Ok(fd)
    }

    fn run(fd: &OwnedFd, wake: &Weak<Wake>) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(fd, &mut buffer);
        loop {
            let topic = match reader.next() {
                Ok(event) => event.file_name().and_then(|name| Topic::of_file_name(name.to_str().ok()?)),
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
            };
            let Some(wake) = wake.upgrade().filter(|wake| !wake.closed.load(Ordering::Relaxed)) else {
                return;
            };
            match topic {
                Some(topic) => wake.tell_here(topic),
                // The queue of events has run over, or the directory is gone.
                None => wake.tell_everyone(),
            }
        }
    }

    impl Wake {
        fn tell_everyone(&self) {
            for waiting in self.waiting.lock().values() {
                waiting.send_replace(());
            }
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod listen {
    use std::sync::Arc;

    /// No inotify here: the poll has to do.
    pub(super) fn start(_wake: &Arc<super::Wake>) {}
}
