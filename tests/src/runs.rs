//! The runs in a journal, and whether two of them overlap.

use crate::journal::Entry;

/// One handler's run of one message.
#[derive(Clone, Debug)]
pub struct Run {
    /// The endpoint.
    pub at: String,
    /// The task's number.
    pub m: u64,
    /// The process.
    pub p: u32,
    /// The fence, for a singleton.
    pub fence: Option<u64>,
    /// How often the message had been claimed.
    pub count: u32,
    /// When it began.
    pub from: u64,
    /// When it ended: by itself, dropped, or with its process. `None` while it goes on.
    pub to: Option<u64>,
    /// How it ended: `end`, `failed`, `dropped` or `exit`.
    pub how: Option<String>,
}

/// All runs at `endpoint`, by when they began.
pub fn runs(entries: &[Entry], endpoint: &str) -> Vec<Run> {
    let here = |entry: &&Entry| entry.at.as_deref() == Some(endpoint);
    let starts = entries.iter().filter(here).filter(|entry| entry.e == "start");
    starts.map(|start| run(entries, start)).collect()
}

fn run(entries: &[Entry], start: &Entry) -> Run {
    let ends = |entry: &&Entry| {
        let same = entry.at == start.at && entry.m == start.m && entry.id == start.id;
        let of_run = same && matches!(entry.e.as_str(), "end" | "failed" | "dropped");
        entry.p == start.p && entry.t >= start.t && (of_run || entry.e == "exit")
    };
    let end = entries.iter().filter(ends).min_by_key(|entry| entry.t);
    Run {
        at: start.at.clone().unwrap_or_default(),
        m: start.m.unwrap_or_default(),
        p: start.p,
        fence: start.fence,
        count: start.count.unwrap_or_default(),
        from: start.t,
        to: end.map(|end| end.t),
        how: end.map(|end| end.e.clone()),
    }
}

/// Pairs of runs that were under way at the same moment.
pub fn overlaps(runs: &[Run]) -> Vec<(Run, Run)> {
    let mut found = Vec::new();
    for (i, one) in runs.iter().enumerate() {
        for other in &runs[i + 1..] {
            let until = |run: &Run| run.to.unwrap_or(u64::MAX);
            if one.from < until(other) && other.from < until(one) {
                found.push((one.clone(), other.clone()));
            }
        }
    }
    found
}

/// Fails unless one run at most was under way at any moment.
///
/// # Panics
/// If two overlap.
pub fn assert_single(runs: &[Run]) {
    let found = overlaps(runs);
    assert!(found.is_empty(), "runs of a singleton overlap: {found:#?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(t: u64, p: u32, e: &str, m: u64) -> Entry {
        Entry { t, p, e: e.into(), at: Some("q".into()), m: Some(m), ..Entry::default() }
    }

    #[test]
    fn a_run_ends_with_its_process_and_overlaps_are_seen() {
        let mut exit = entry(9, 1, "exit", 0);
        exit.at = None;
        let killed =
            [entry(1, 1, "start", 1), exit.clone(), entry(10, 2, "start", 1), entry(12, 2, "end", 1)];
        let found = runs(&killed, "q");
        assert_eq!(found[0].to, Some(9));
        assert_single(&found);
        let too_soon = [entry(1, 1, "start", 1), exit, entry(8, 2, "start", 1), entry(12, 2, "end", 1)];
        assert_eq!(overlaps(&runs(&too_soon, "q")).len(), 1);
        let going_on = [entry(1, 1, "start", 1), entry(8, 2, "start", 1)];
        assert_eq!(overlaps(&runs(&going_on, "q")).len(), 1);
    }
}
