//! The guide says what is so: its page on errors has every refusal, its files for a cluster fit together, and each chapter
//! leads to the next.

#[path = "guide/deploy.rs"]
mod deploy;
#[path = "guide/texts.rs"]
mod texts;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use texts::{Text, without_comments};

/// The page on errors.
const PAGE: &str = "bus/docs/errors.md";

/// Files and folders in which each text is a refusal, unless it is among [`OTHER_TEXTS`].
const SOURCES: &[&str] = &[
    "bus-macros/src",
    "bus/src/contract/scheme.rs",
    "bus/src/host/builder.rs",
    "bus/src/host/config",
    "bus/src/host/config.rs",
    "bus/src/host/liveness.rs",
    "bus/src/host/opening.rs",
    "bus/src/host/plugin/context.rs",
    "bus/src/host/wiring.rs",
    "bus/src/message/name.rs",
    "bus/src/processor/extract.rs",
    "bus/src/processor/provide.rs",
    "bus/src/processor/refuse.rs",
    "bus/src/registry.rs",
    "bus/src/settings",
    "bus/src/singleton/candidate.rs",
    "bus/src/singleton/timing.rs",
    "bus/src/testing/builder.rs",
];

/// What stands in those files and refuses nothing.
const OTHER_TEXTS: &[(&str, &str)] = &[
    (
        "bus/src/host/config.rs",
        "transports.{DEFAULT_TRANSPORT} = {DEFAULT_STORE} (nothing is configured: the default)",
    ),
    ("bus/src/host/opening.rs", "the lock manager"),
    ("bus/src/processor/extract.rs", "nothing provides this value"),
    ("bus/src/processor/provide.rs", "the provider failed"),
    ("bus/src/singleton/candidate.rs", "the run panicked"),
    ("bus/src/singleton/candidate.rs", "dropped at the end of the process"),
];

/// Code that refuses with these kinds of errors is in one of [`SOURCES`].
const KINDS: [&str; 2] = ["ErrorKind::Wiring", "ErrorKind::Config"];

/// Files that name such a kind without refusing anything, and folders whose refusals are told elsewhere: those of a store
/// on its own page, those of the tool on its page.
const KINDS_ELSEWHERE: &[&str] =
    &["bus/src/backend/", "bus/src/cli/", "bus/src/conformance/", "bus/src/pump/settling.rs"];

fn is_elsewhere(file: &str) -> bool {
    KINDS_ELSEWHERE.iter().any(|place| file.starts_with(place))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The files below a path of the project, or the one that it is, whose names end like this.
fn files(path: &str, end: &str) -> Vec<String> {
    let full = root().join(path);
    if full.is_file() {
        return vec![path.to_owned()];
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(&full).unwrap_or_else(|error| panic!("{path}: {error}")) {
        let name = entry.expect("a folder of the project can be read").file_name();
        let inner = format!("{path}/{}", name.to_string_lossy());
        if root().join(&inner).is_dir() || inner.ends_with(end) {
            found.extend(files(&inner, end));
        }
    }
    found.sort();
    found
}

/// The sources below a path without those that are tests.
fn sources(path: &str) -> Vec<String> {
    let is_test = |file: &String| file.ends_with("/tests.rs") || file.contains("/tests/");
    files(path, ".rs").into_iter().filter(|file| !is_test(file)).collect()
}

/// The messages on the page: the lines of its blocks.
fn messages(page: &str) -> Vec<String> {
    let blocks = page.split("```").skip(1).step_by(2);
    let lines = blocks.filter_map(|block| block.strip_prefix("text\n")).flat_map(str::lines);
    lines.map(str::to_owned).collect()
}

/// Whether these pieces stand in `line` one after the other.
fn in_order<'p>(line: &str, pieces: impl IntoIterator<Item = &'p str>) -> bool {
    let mut rest = line;
    pieces.into_iter().all(|piece| match rest.split_once(piece) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// Whether a message of the page, in which `…` stands for anything, is this headline as a whole.
fn is_headline(message: &str, headline: &str) -> bool {
    let pieces: Vec<&str> = message.split('…').collect();
    let (first, last) = (pieces[0], pieces[pieces.len() - 1]);
    match pieces.len() {
        1 => message == headline,
        _ => headline.starts_with(first) && headline.ends_with(last) && in_order(headline, pieces),
    }
}

/// The first lines of the compiler's errors, with where they are expected.
fn headlines() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for file in files("trybuild/cases", ".stderr") {
        for line in read(&file).lines() {
            let Some((_, text)) = line.strip_prefix("error").and_then(|rest| rest.split_once(": ")) else {
                continue;
            };
            let text = text.strip_prefix("evaluation panicked: ").unwrap_or(text);
            found.push((file.clone(), text.to_owned()));
        }
    }
    found
}

/// The texts that refuse something, with where they stand.
fn refusals() -> Vec<(String, Text)> {
    let mut found = Vec::new();
    for file in SOURCES.iter().flat_map(|path| sources(path)) {
        let all = texts::of(&read(&file)).into_iter();
        let is_other = |text: &Text| OTHER_TEXTS.contains(&(file.as_str(), text.text.as_str()));
        let kept = all.filter(|text| text.says_something() && !text.is_aside() && !is_other(text));
        found.extend(kept.map(|text| (format!("{file}:{}", text.line), text)));
    }
    for file in sources("bus/src").into_iter().filter(|file| !is_elsewhere(file)) {
        let headlines = texts::of(&read(&file)).into_iter().filter(|text| text.named == "message");
        found.extend(headlines.map(|text| (format!("{file}:{}", text.line), text)));
    }
    found
}

#[test]
fn every_refusal_is_on_the_page() {
    let messages = messages(&read(PAGE));
    let (headlines, refusals) = (headlines(), refusals());
    assert!(headlines.len() > 100, "the cases were not found: {}", headlines.len());
    assert!(refusals.len() > 100, "the sources were not found: {}", refusals.len());
    let mut missing = Vec::new();
    let mut said = BTreeSet::new();
    for (place, headline) in &headlines {
        let there: Vec<_> = messages.iter().filter(|message| is_headline(message, headline)).collect();
        if there.is_empty() {
            missing.push(format!("{place}: {headline}"));
        }
        said.extend(there);
    }
    for (place, refusal) in &refusals {
        let pieces = refusal.fixed();
        let there: Vec<_> =
            messages.iter().filter(|message| in_order(message, pieces.iter().copied())).collect();
        if there.is_empty() {
            missing.push(format!("{place}: {}", refusal.text));
        }
        said.extend(there);
    }
    let stale: Vec<_> = messages.iter().filter(|message| !said.contains(message)).collect();
    assert!(missing.is_empty(), "{PAGE} lacks, in a block of text:\n  {}", missing.join("\n  "));
    assert!(stale.is_empty(), "{PAGE} has what nobody says any more: {stale:#?}");
}

#[test]
fn whatever_refuses_is_looked_at() {
    let looked_at: BTreeSet<String> = SOURCES.iter().flat_map(|path| sources(path)).collect();
    let refuses = |file: &String| {
        let code = without_comments(&read(file));
        KINDS.iter().any(|kind| code.contains(kind))
    };
    let unseen: Vec<_> = sources("bus/src")
        .into_iter()
        .filter(|file| !looked_at.contains(file) && !is_elsewhere(file) && refuses(file))
        .collect();
    assert!(unseen.is_empty(), "these refuse something, and are not among SOURCES: {unseen:?}");
}

#[test]
fn what_is_left_out_is_there() {
    for (file, text) in OTHER_TEXTS {
        let there = texts::of(&read(file)).iter().any(|found| found.text == *text);
        assert!(there, "{file} has no text {text:?} any more");
    }
}

/// The pages of the chapters that are not the guide's alone.
const PAGES: [(&str, &str); 5] = [
    ("crate::singleton", "singletons"),
    ("crate::stores", "stores"),
    ("crate::host::config", "configuration"),
    ("crate::host::health", "health"),
    ("crate::promises", "promises"),
];

#[test]
fn each_chapter_leads_to_the_next() {
    let guide = read("bus/docs/guide.md");
    let chapters: Vec<(&str, &str)> = guide
        .lines()
        .filter_map(|line| {
            let (title, rest) = line.strip_prefix("| [")?.split_once("](")?;
            Some((title, rest.split_once(')')?.0))
        })
        .collect();
    assert!(chapters.len() > 8, "the chapters were not found: {chapters:?}");
    for pair in chapters.windows(2) {
        let [(title, target), (next, _)] = pair else { continue };
        let name = PAGES.iter().find(|(module, _)| module == target).map_or(*target, |(_, page)| page);
        let page = read(&format!("bus/docs/{name}.md"));
        assert!(page.contains(&format!("\nNext: [{next}](")), "{title} does not lead to {next}");
    }
}
