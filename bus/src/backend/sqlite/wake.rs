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
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::transaction::{Effects, EndpointId};
use crate::files::{DirectoryWatch, make_private_directory, number_of, private};

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

    fn of_file_name(name: &str) -> Option<Self> {
        match name {
            "locks" => Some(Topic::Locks),
            _ => name.strip_prefix('m')?.parse().ok().map(|id| Topic::Messages(EndpointId(id))),
        }
    }
}

/// The hints of one store, for all of this process that have it open: inotify instances are few (128 for each user, by
/// default), and messages and locks mostly lie in the same file.
#[derive(Debug)]
pub(super) struct Wake {
    directory: PathBuf,
    /// Which directory it was when we began to listen, since another one may take its place.
    identity: Option<(u64, u64)>,
    waiting: Mutex<HashMap<Topic, watch::Sender<()>>>,
    listening: OnceLock<DirectoryWatch>,
}

/// The stores of this process that are listened to.
static LISTENING: Mutex<Vec<Weak<Wake>>> = Mutex::new(Vec::new());

impl Wake {
    /// Begins to listen for what other processes tell, or joins those of this process who do.
    pub(super) fn open(store: &Path) -> Arc<Self> {
        let directory = super::place::beside(store, ".wake");
        let made = make_private_directory(&directory);
        let identity = std::fs::metadata(&directory).ok().map(|found| number_of(&found));
        let mut listening = LISTENING.lock();
        listening.retain(|wake| wake.strong_count() > 0);
        let same = |wake: &Arc<Wake>| wake.directory == directory && wake.identity == identity;
        if let Some(wake) = listening.iter().filter_map(Weak::upgrade).find(same) {
            return wake;
        }
        let wake =
            Arc::new(Wake { directory, identity, waiting: Mutex::default(), listening: OnceLock::new() });
        match made {
            Ok(()) => wake.start(),
            Err(e) => {
                tracing::warn!(directory = %wake.directory.display(), error = %e, "no hints from other processes");
            }
        }
        listening.push(Arc::downgrade(&wake));
        wake
    }

    /// Begins to hear other processes; it ends with the store.
    fn start(self: &Arc<Self>) {
        let wake = Arc::downgrade(self);
        let tell = move |name: Option<&str>| {
            let Some(wake) = wake.upgrade() else { return };
            match name.and_then(Topic::of_file_name) {
                Some(topic) => wake.tell_here(topic),
                // The queue of events has run over, or the directory is gone.
                None => wake.tell_everyone(),
            }
        };
        match DirectoryWatch::start(&self.directory, "bus-sqlite-wake", tell) {
            // Only now is it made: there can be none yet.
            Ok(watch) => drop(self.listening.set(watch)),
            Err(e) if e.kind() == std::io::ErrorKind::Unsupported => {}
            Err(e) => tracing::warn!(
                error = %e,
                "no inotify (fs.inotify.max_user_instances may be used up): what other processes tell is found by polling"
            ),
        }
    }

    /// Whether other processes are heard; where not, the poll has to do.
    pub(super) fn is_listening(&self) -> bool {
        self.listening.get().is_some()
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

    fn tell_everyone(&self) {
        for waiting in self.waiting.lock().values() {
            waiting.send_replace(());
        }
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
                private(&mut options);
                new.insert(options.open(self.directory.join(topic.file_name()))?)
            }
        };
        file.rewind()?;
        file.write_all(b"!")
    }
}
