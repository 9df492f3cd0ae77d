//! A lock's record: what is written into its blob's metadata.

use std::collections::HashMap;
use std::time::Duration;

use uuid::Uuid;

use super::error::error;
use crate::contract::{Ended, Fence, Owner};
use crate::error::{Error, ErrorKind, Result};
use crate::escape::{escape, unescape};

/// The longest reason of a cut, in bytes. Escaped, it fits into the 8 KiB of a blob's metadata together with a note.
const LONGEST_REASON: usize = 1024;

/// What is known of a lock's last term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) owner: Owner,
    pub(super) fence: Fence,
    pub(super) lock_lease: Duration,
    pub(super) ended: Option<Ended>,
    pub(super) note: Vec<u8>,
}

// Only lower-case letters: metadata are headers, whose case is not kept, and which are signed in an order that Azure
// and others do not define alike where there are other characters.
const FENCE: &str = "fence";
const OWNER: &str = "owner";
const LEASE: &str = "lease";
const CLEAN: &str = "clean";
const CUT: &str = "cut";
const NOTE: &str = "note";

impl Record {
    /// Reads it; `None` if no term has ever begun.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] if somebody else has written it.
    pub(super) fn read(metadata: &HashMap<String, String>) -> Result<Option<Self>> {
        let find = |key: &str| {
            metadata.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value.as_str())
        };
        let Some(fence) = find(FENCE) else { return Ok(None) };
        let fence = fence.parse().ok().filter(|fence| i64::try_from(*fence).is_ok());
        let owner = find(OWNER).and_then(|owner| Uuid::try_parse(owner).ok());
        let lease = find(LEASE).and_then(|lease| lease.strip_suffix("ms")?.parse().ok());
        let ended = match (find(CLEAN), find(CUT)) {
            (Some("true"), _) => Some(Ended::Clean),
            (_, Some(reason)) => Some(Ended::Cut(String::from_utf8_lossy(&text(CUT, reason)?).into_owned())),
            _ => None,
        };
        Ok(Some(Record {
            fence: Fence::new(fence.ok_or_else(|| unreadable(FENCE))?),
            owner: Owner::from(owner.ok_or_else(|| unreadable(OWNER))?),
            lock_lease: Duration::from_millis(lease.ok_or_else(|| unreadable(LEASE))?),
            ended,
            note: find(NOTE).map_or(Ok(Vec::new()), |note| text(NOTE, note))?,
        }))
    }

    /// As metadata.
    pub(super) fn write(&self) -> HashMap<String, String> {
        let mut metadata = HashMap::from([
            (FENCE.to_owned(), self.fence.to_string()),
            (OWNER.to_owned(), self.owner.to_string()),
            (LEASE.to_owned(), format!("{}ms", self.lock_lease.as_millis())),
            (CLEAN.to_owned(), (self.ended == Some(Ended::Clean)).to_string()),
        ]);
        let mut add = |key: &str, bytes: &[u8]| metadata.insert(key.to_owned(), escape(bytes, is_plain));
        if let Some(Ended::Cut(reason)) = &self.ended {
            // A header without a value may be lost on its way.
            add(CUT, if reason.is_empty() { "no reason given" } else { shortened(reason) }.as_bytes());
        }
        if !self.note.is_empty() {
            add(NOTE, &self.note);
        }
        metadata
    }

    /// Whether the term with this owner and fence is the last one, and has not ended.
    pub(super) fn is_running(&self, owner: Owner, fence: Fence) -> bool {
        self.is_term(owner, fence) && self.ended.is_none()
    }

    /// Whether the term with this owner and fence is the last one.
    pub(super) fn is_term(&self, owner: Owner, fence: Fence) -> bool {
        self.owner == owner && self.fence == fence
    }
}

/// What stays as it is: people read it in Azure's portal.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.:/@+".contains(&byte)
}

fn text(key: &'static str, value: &str) -> Result<Vec<u8>> {
    unescape(value).ok_or_else(|| unreadable(key))
}

fn unreadable(key: &'static str) -> Error {
    error(ErrorKind::Corrupt, "a lock's blob has metadata that bus did not write: remove all of its metadata while nothing uses the lock")
        .with("metadata", key)
}

fn shortened(reason: &str) -> &str {
    let mut end = reason.len().min(LONGEST_REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::LARGEST_NOTE;

    fn record(ended: Option<Ended>, note: &[u8]) -> Record {
        Record {
            owner: Owner::fresh(),
            fence: Fence::new(i64::MAX as u64),
            lock_lease: Duration::from_millis(15_500),
            ended,
            note: note.to_vec(),
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was() {
        let all: Vec<u8> = (0..=255).cycle().take(LARGEST_NOTE).collect();
        for ended in [None, Some(Ended::Clean), Some(Ended::Cut("två körningar\r\nbröts".to_owned()))] {
            let record = record(ended, &all);
            let metadata = record.write();
            assert!(metadata.values().all(|value| value.bytes().all(|byte| byte.is_ascii_graphic())));
            assert_eq!(Record::read(&metadata).unwrap().as_ref(), Some(&record));
        }
        let capitals =
            record(None, b"x").write().into_iter().map(|(key, value)| (key.to_uppercase(), value)).collect();
        assert!(Record::read(&capitals).unwrap().is_some(), "Azure does not keep the case of a name");
    }

    #[test]
    fn the_largest_record_fits_into_a_blobs_metadata() {
        let metadata = record(Some(Ended::Cut("\u{1F600}".repeat(1000))), &[0; LARGEST_NOTE]).write();
        let size: usize =
            metadata.iter().map(|(key, value)| "x-ms-meta-".len() + key.len() + value.len()).sum();
        assert!(size < 8 << 10, "{size} bytes");
        let read = Record::read(&metadata).unwrap().unwrap();
        assert_eq!(read.ended, Some(Ended::Cut("\u{1F600}".repeat(256))), "shortened between characters");
    }

    #[test]
    fn a_blob_without_a_term_has_no_record_and_a_strange_one_is_named() {
        assert_eq!(Record::read(&HashMap::new()).unwrap(), None);
        for key in [FENCE, OWNER, LEASE, NOTE, CUT] {
            let mut metadata = record(Some(Ended::Cut("cut".to_owned())), b"note").write();
            metadata.insert(key.to_owned(), "~mine".to_owned());
            let error = Record::read(&metadata).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains(key), "{error}");
        }
    }
}
