//! The gate before the file: whoever is about to write waits here first, in all processes alike.
//!
//! SQLite's own waiting is a poll with growing pauses, in which a busy process starves all others; waiting for an
//! advisory lock on a side file is fair. It is a courtesy, not what keeps writers apart: that is still SQLite, so that a
//! tool which knows nothing of the gate does no harm.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::files::private;

/// The gate of one store, opened once per connection: two connections of one process wait for each other too.
#[derive(Debug)]
pub(super) struct Gate {
    file: Arc<File>,
}

/// Lets the next one through when dropped.
#[derive(Debug)]
pub(super) struct Passage {
    file: Option<Arc<File>>,
}

impl Gate {
    /// Opens the side file, which is made if missing.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(false);
        private(&mut options);
        Ok(Gate { file: Arc::new(options.open(path)?) })
    }

    /// Waits for its turn, however long that takes: a process that was frozen while it wrote is waited for.
    pub(super) fn pass(&self) -> Passage {
        loop {
            match self.file.lock() {
                Ok(()) => return Passage { file: Some(Arc::clone(&self.file)) },
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A file system without such locks: SQLite's own waiting has to do.
                Err(_) => return Passage { file: None },
            }
        }
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            // Cannot fail for a lock that is held; and closing the file would let go of it too.
            let _ = file.unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_gates_on_one_file_let_one_through() {
        let path = std::env::temp_dir().join(format!("bus-gate-{}", uuid::Uuid::new_v4()));
        let (one, two) = (Gate::open(&path).unwrap(), Gate::open(&path).unwrap());
        let passage = one.pass();
        assert!(two.file.try_lock().is_err());
        drop(passage);
        assert!(two.file.try_lock().is_ok());
        std::fs::remove_file(path).unwrap();
    }
}
