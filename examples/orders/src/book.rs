//! What was done: a file of one line for each entry.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;

use bus::MessageId;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// The book.
#[derive(Debug)]
pub struct Book(Mutex<Written>);

#[derive(Debug)]
struct Written {
    file: File,
    entries: HashSet<Entry>,
}

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Page {
    /// A receipt was written.
    Receipt,
    /// Something was taken out of the stock.
    Stock,
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Entry {
    /// What was done.
    pub page: Page,
    /// For which order.
    pub order: MessageId,
}

impl Book {
    /// Opens the book of this file, which is made if it is not there.
    ///
    /// # Errors
    /// If it cannot be read and written.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).read(true).append(true).open(path)?;
        let mut entries = HashSet::new();
        for line in BufReader::new(&file).lines() {
            // The last line may have been cut off with the process that wrote it: that was not done.
            entries.extend(serde_json::from_str::<Entry>(&line?).ok());
        }
        Ok(Book(Mutex::new(Written { file, entries })))
    }

    /// Enters what was done for an order, unless it is there. It is with the operating system when this returns.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn enter(&self, page: Page, order: MessageId) -> io::Result<()> {
        let mut written = self.0.lock();
        let entry = Entry { page, order };
        if !written.entries.contains(&entry) {
            let line = serde_json::to_string(&entry)?;
            // With a break on both sides, so that no line goes on that was cut off.
            written.file.write_all(format!("\n{line}\n").as_bytes())?;
            written.entries.insert(entry);
        }
        Ok(())
    }
}
