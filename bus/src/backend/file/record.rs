//! A lock's record, and how it lies in the file: twice, so that a write that was torn leaves the one before it.
//!
//! Each of the two slots begins with `bus lock 1`, a checksum and a length; a line for each field follows. A write goes
//! to the slot that does not hold the newest record, and is complete or does not count.

use std::fmt::Write;
use std::str::FromStr;
use std::time::Duration;

use uuid::Uuid;

use crate::contract::{Ended, Fence, Owner};
use crate::escape::{escape, unescape};

/// The size of a slot. Both are written when the file is made, so that a disk that is full later has room for renewals.
const SLOT: usize = 8 << 10;
/// The length of a lock's file.
pub(super) const FILE: usize = 2 * SLOT;
/// The longest id, in bytes. Escaped, it fits into a slot together with a reason and a note.
pub(super) const LONGEST_ID: usize = 512;
/// The longest reason of a cut, in bytes.
const LONGEST_REASON: usize = 1024;

const MAGIC: &str = "bus lock ";
const VERSION: &str = "1";

/// What is known of a lock's last term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) id: String,
    pub(super) owner: Owner,
    pub(super) fence: Fence,
    pub(super) lock_lease: Duration,
    /// The boot clock by which it was renewed.
    pub(super) boot: String,
    /// When it was renewed, by that clock, in nanoseconds.
    pub(super) renewed: u64,
    /// Grows with each write of a term.
    pub(super) beat: u64,
    pub(super) ended: Option<Ended>,
    pub(super) note: Vec<u8>,
}

/// Why there is no record in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It is damaged or not ours.
    Damaged,
    /// A newer version has written it.
    Newer,
}

/// The newest record in a file, and the slot for the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Newest {
    pub(super) record: Record,
    /// Where the next record is written, from the file's beginning.
    pub(super) next_at: u64,
}

/// Reads what is in a lock's file.
pub(super) fn read(file: &[u8]) -> Result<Newest, Unreadable> {
    let (first, second) = file.split_at_checked(SLOT).unwrap_or((file, &[]));
    let slots = [(first, SLOT as u64), (second, 0)];
    let mut newest: Option<Newest> = None;
    for (slot, next_at) in slots {
        let Some(record) = read_slot(slot)? else { continue };
        let is_newer = |last: &Newest| (last.record.fence, last.record.beat) < (record.fence, record.beat);
        if newest.as_ref().is_none_or(is_newer) {
            newest = Some(Newest { record, next_at });
        }
    }
    newest.ok_or(Unreadable::Damaged)
}

/// A whole file whose first record this is.
pub(super) fn new_file(record: &Record) -> Vec<u8> {
    let mut file = record.write();
    file.resize(FILE, b' ');
    file
}

/// The record in a slot; `None` if it is torn, or there has never been one.
fn read_slot(slot: &[u8]) -> Result<Option<Record>, Unreadable> {
    let Some(rest) = slot.strip_prefix(MAGIC.as_bytes()) else { return Ok(None) };
    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let Some(head) = std::str::from_utf8(&rest[..end]).ok() else { return Ok(None) };
    let mut head = head.split(' ');
    if head.next() != Some(VERSION) {
        return Err(Unreadable::Newer);
    }
    let sum = head.next().and_then(|sum| u128::from_str_radix(sum, 16).ok());
    let length = head.next().and_then(|length| length.parse::<usize>().ok());
    let body = length.and_then(|length| rest[end + 1..].get(..length));
    Ok(body.filter(|body| Some(digest(body)) == sum).and_then(read_fields))
}

fn read_fields(body: &[u8]) -> Option<Record> {
    let text = std::str::from_utf8(body).ok()?;
    let field = |name: &str| {
        text.lines()
            .filter_map(|line| line.split_once(' '))
            .find_map(|(key, value)| (key == name).then_some(value))
    };
    let text_of = |name: &str| String::from_utf8(unescape(field(name)?)?).ok();
    let ended = match (field("ended")?, text_of("reason")) {
        ("no", _) => None,
        ("clean", _) => Some(Ended::Clean),
        (_, reason) => Some(Ended::Cut(reason.unwrap_or_default())),
    };
    Some(Record {
        id: text_of("id")?,
        owner: Owner::from(Uuid::try_parse(field("owner")?).ok()?),
        fence: Fence::new(number(field("fence")?)?),
        lock_lease: Duration::from_nanos(number(field("lease")?)?),
        boot: text_of("boot")?,
        renewed: number(field("renewed")?)?,
        beat: number(field("beat")?)?,
        ended,
        note: unescape(field("note")?)?,
    })
}

fn number<N: FromStr>(text: &str) -> Option<N> {
    text.parse().ok()
}

impl Record {
    /// As it lies in a slot.
    pub(super) fn write(&self) -> Vec<u8> {
        let (ended, reason) = match &self.ended {
            None => ("no", ""),
            Some(Ended::Clean) => ("clean", ""),
            Some(Ended::Cut(reason)) => ("cut", shortened(reason)),
        };
        let fields: [(&str, String); 10] = [
            ("id", plain(self.id.as_bytes())),
            ("owner", self.owner.to_string()),
            ("fence", self.fence.to_string()),
            ("lease", self.lock_lease.as_nanos().to_string()),
            ("boot", plain(self.boot.as_bytes())),
            ("renewed", self.renewed.to_string()),
            ("beat", self.beat.to_string()),
            ("ended", ended.to_owned()),
            ("reason", plain(reason.as_bytes())),
            ("note", plain(&self.note)),
        ];
        let mut body = String::new();
        for (name, value) in fields {
            // Into a String, which takes everything.
            let _ = writeln!(body, "{name} {value}");
        }
        format!("{MAGIC}{VERSION} {:032x} {}\n{body}", digest(body.as_bytes()), body.len()).into_bytes()
    }

    /// Whether the term with this owner and fence is the last one, and has not ended.
    pub(super) fn is_running(&self, owner: Owner, fence: Fence) -> bool {
        self.owner == owner && self.fence == fence && self.ended.is_none()
    }
}

/// Readable for people who look into the file, as far as it is text.
fn plain(bytes: &[u8]) -> String {
    escape(bytes, |byte| (byte.is_ascii_graphic() || byte == b' ') && byte != b'~')
}

fn shortened(reason: &str) -> &str {
    let mut end = reason.len().min(LONGEST_REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason.get(..end).unwrap_or_default()
}

/// FNV-1a of 128 bits: against torn writes and for long names, not against people.
pub(super) fn digest(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(BASIS, |sum, byte| (sum ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::LARGEST_NOTE;

    fn record(beat: u64) -> Record {
        Record {
            id: "queue/it".to_owned(),
            owner: Owner::fresh(),
            fence: Fence::new(i64::MAX as u64),
            lock_lease: Duration::from_millis(15_500),
            boot: crate::clock::clock_id().to_owned(),
            renewed: u64::MAX,
            beat,
            ended: None,
            note: Vec::new(),
        }
    }

    /// A file with both records, as they are written one after the other.
    fn file(first: &Record, second: &Record) -> Vec<u8> {
        let mut file = new_file(first);
        let (at, bytes) = (read(&file).unwrap().next_at as usize, second.write());
        file[at..at + bytes.len()].copy_from_slice(&bytes);
        file
    }

    #[test]
    fn the_largest_record_fits_and_comes_back() {
        for ended in [None, Some(Ended::Clean), Some(Ended::Cut("\n".repeat(LONGEST_REASON)))] {
            let record = Record {
                id: "\u{1}".repeat(LONGEST_ID),
                note: vec![0; LARGEST_NOTE],
                ended,
                ..record(u64::MAX)
            };
            let file = new_file(&record);
            assert!(record.write().len() <= SLOT && file.len() == FILE, "{}", record.write().len());
            assert_eq!(read(&file).unwrap().record, record);
        }
        let long = Record { ended: Some(Ended::Cut("å".repeat(4096))), ..record(1) };
        let Some(Ended::Cut(reason)) = read(&new_file(&long)).unwrap().record.ended else { panic!("no cut") };
        assert_eq!(reason, "å".repeat(LONGEST_REASON / 2));
    }

    #[test]
    fn writes_alternate_and_the_newest_counts() {
        let [first, second, third] = [1, 2, 3].map(record);
        let both = file(&first, &second);
        assert_eq!(read(&both).unwrap(), Newest { record: second, next_at: 0 });
        // A later term counts, however many beats the former one had.
        let next = Record { fence: Fence::new(7), ..third };
        let former = Record { fence: Fence::new(6), ..record(1000) };
        assert_eq!(read(&file(&former, &next)).unwrap().record, next);
    }

    /// Wherever a write stops, there is the record before it or the new one.
    #[test]
    fn a_torn_write_leaves_the_record_before_it() {
        let [first, second, third] = [1, 2, 3].map(record);
        let (whole, next) = (file(&first, &second), third.write());
        let mut outcomes = [0, 0];
        for written in 0..=next.len() {
            let mut torn = whole.clone();
            torn[..written].copy_from_slice(&next[..written]);
            let found = read(&torn).unwrap().record;
            assert!(found == second || found == third, "after {written} bytes");
            outcomes[usize::from(found == third)] += 1;
        }
        assert!(outcomes[0] > next.len() / 2 && outcomes[1] >= 1, "{outcomes:?}");
    }

    #[test]
    fn what_is_no_record_is_damaged() {
        let whole = new_file(&record(1));
        for file in [&[][..], b"bus lock 1", &[0; FILE], b"bus lock 1 0 0\n", &whole[..100], &whole[1..]] {
            assert_eq!(read(file), Err(Unreadable::Damaged), "{}", String::from_utf8_lossy(file));
        }
        assert_eq!(read(b"bus lock 2 whatever\n"), Err(Unreadable::Newer));
        let newer = [&new_file(&record(1))[..SLOT], b"bus lock 2 whatever\n"].concat();
        assert_eq!(read(&newer), Err(Unreadable::Newer), "not what an older version has left");
    }
}
