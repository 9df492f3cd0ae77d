//! Reads history files. A killed process may leave a torn last line; every other line has to make sense.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::history::{EXTENSION, Event, Kind};

/// A last line that is no event, and whose process may have been killed over it.
struct Torn {
    file: PathBuf,
    pid: Option<u32>,
}

/// All events of a directory, and what is wrong with its lines.
pub(super) fn read_directory(directory: &Path) -> io::Result<(Vec<Event>, Vec<String>)> {
    let (mut events, mut torn, mut complaints) = (Vec::new(), Vec::new(), Vec::new());
    for entry in fs::read_dir(directory)? {
        let file = entry?.path();
        if file.extension() == Some(OsStr::new(EXTENSION)) {
            read_file(&file, &mut events, &mut torn, &mut complaints)?;
        }
    }
    let killed: HashSet<u32> =
        events.iter().filter(|event| event.e == Kind::Kill).filter_map(|event| event.victim).collect();
    for Torn { file, pid } in torn {
        if !pid.is_some_and(|pid| killed.contains(&pid)) {
            complaints.push(format!("{}: torn last line, yet nobody killed its process", file.display()));
        }
    }
    Ok((events, complaints))
}

fn read_file(
    file: &Path,
    events: &mut Vec<Event>,
    torn: &mut Vec<Torn>,
    complaints: &mut Vec<String>,
) -> io::Result<()> {
    let bytes = fs::read(file)?;
    let mut pid = pid_of_name(file);
    for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        match parse(line) {
            Ok(event) => {
                pid = Some(event.p);
                events.push(event);
            }
            // Only the last line can be without its end.
            Err(_) if !line.ends_with(b"\n") => {
                torn.push(Torn { file: file.to_owned(), pid });
            }
            Err(problem) => complaints.push(format!("{}:{}: {problem}", file.display(), number + 1)),
        }
    }
    Ok(())
}

/// The process that owns `role-pid.jsonl`, for a file whose only line is torn.
fn pid_of_name(file: &Path) -> Option<u32> {
    file.file_stem()?.to_str()?.rsplit('-').next()?.parse().ok()
}

fn parse(line: &[u8]) -> Result<Event, String> {
    let event: Event = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let (message, fence, victim) = needs(event.e);
    if message && event.m.is_none() {
        return Err(format!("{:?} without a message", event.e));
    }
    if fence && event.fence.is_none() {
        return Err(format!("{:?} without a fence", event.e));
    }
    if victim && event.victim.is_none() {
        return Err(format!("{:?} without a victim", event.e));
    }
    Ok(event)
}

/// Whether an event is of no use without its message, its fence, its victim.
fn needs(kind: Kind) -> (bool, bool, bool) {
    match kind {
        Kind::RunStart | Kind::RunEnd | Kind::RunCut => (true, true, false),
        Kind::EffectOk | Kind::EffectRefused | Kind::SettledBy => (true, true, false),
        Kind::SendOk | Kind::SettleOk | Kind::SettleRefused | Kind::Left | Kind::Dead => (true, false, false),
        Kind::LockAcquired => (false, true, false),
        Kind::LockLost | Kind::LockReleased | Kind::Exit => (false, false, false),
        Kind::Kill | Kind::Freeze | Kind::Thaw | Kind::Term => (false, false, true),
    }
}
