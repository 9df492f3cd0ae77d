//! The rules of this repository that no compiler and no lint knows, held by a test.
//!
//! Each rule is a function from the project's files to what breaks it. `cargo test --test tidy` applies all of them to
//! the working tree; the self-tests below apply each to files that break it, so that a rule which has gone blind is
//! noticed.

#[path = "tidy/rust.rs"]
mod rust;
#[path = "tidy/self_tests.rs"]
mod self_tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rust::{Placed, crate_paths, end_of_block, tokens, without_test_modules};

/// The modules of `bus` in import order: a module may use those of the rows above it, and those of its own row as long
/// as they do not use each other in a circle.
const ROWS: &[&[&str]] = &[
    &["error", "clock"],
    &["message", "scope"],
    &["settings"],
    &["contract"],
    &["beginning", "coalesce", "escape", "files", "observed", "reconnect", "telemetry", "wake"],
    &["pipeline", "singleton"],
    &["sender"],
    &["processor"],
    &["schedule", "service", "saga"],
    &["registry"],
    &["pump"],
    &["host"],
    &["dashboard", "cli"],
];

/// The last row that a backend may use.
const LAST_ROW_FOR_BACKENDS: usize = 4;

/// Modules beside the rows, which may use all of them and which none of them may use: the suites, the test host, the
/// two that only re-export, and pages of documentation.
const ASIDE: &[&str] = &["conformance", "testing", "prelude", "__private", "guide", "promises", "stores"];

/// Features of `bus` that are no backends.
const OTHER_FEATURES: &[&str] = &[
    "default",
    "failpoints",
    "cli",
    "conformance",
    "logging",
    "opentelemetry",
    "prometheus",
    "testing",
    "dashboard",
];

/// Names that say nothing about what is in a module.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc"];

const LONGEST_FILE: usize = 800;

/// A file by its path from the root of the project, with `/`.
struct File {
    path: String,
    text: String,
}

/// The files that the rules look at.
struct Project {
    files: Vec<File>,
}

type Rule = fn(&Project) -> Vec<String>;

const RULES: &[(&str, Rule)] = &[
    ("modules import only what is above them", import_order),
    ("no file is too long", file_length),
    ("backend folders, features and conformance entries are the same", backends),
    ("module names say something", module_names),
    ("nothing is left to do", nothing_left_to_do),
    ("what is allowed has a reason", allowances_have_reasons),
    ("what is ignored has a reason", ignored_tests_have_reasons),
    ("every crate forbids unsafe code", unsafe_is_forbidden),
    ("no path of somebody's machine", no_private_paths),
    ("a test that a page names is there", named_tests_exist),
    ("what must never be", what_must_never_be_is_asserted),
];

#[test]
fn the_project_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let project = Project::read(&root);
    assert!(project.files.len() > 20, "the project was not found at {}", root.display());
    let mut report = String::new();
    for (name, rule) in RULES {
        for breach in rule(&project) {
            report += &format!("\n  {name}: {breach}");
        }
    }
    assert!(report.is_empty(), "{report}");
}

impl Project {
    fn read(root: &Path) -> Self {
        let mut project = Project { files: Vec::new() };
        project.read_folder(root, "");
        project.files.sort_by(|a, b| a.path.cmp(&b.path));
        project
    }

    fn read_folder(&mut self, root: &Path, folder: &str) {
        for entry in fs::read_dir(root.join(folder)).expect("a folder of the project can be read") {
            let entry = entry.expect("a folder of the project can be read");
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            let kind = entry.file_type().expect("a file has a type");
            if matches!(name.as_str(), "target" | ".git") {
                continue;
            }
            if kind.is_dir() {
                self.read_folder(root, &path);
            } else if kind.is_file()
                && let Ok(text) = fs::read_to_string(entry.path())
            {
                self.files.push(File { path, text });
            }
        }
    }

    fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    fn text_of(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }
}

// ---- Import order ----------------------------------------------------------------------------------------------

/// What a module of `bus` uses, with one place for each.
type Uses = BTreeMap<(String, String), String>;

fn import_order(project: &Project) -> Vec<String> {
    let reexports = reexports(project.text_of("bus/src/lib.rs").unwrap_or_default());
    let mut breaches = Vec::new();
    let mut uses = Uses::new();
    for file in project.rust() {
        let Some(module) = module_of(&file.path) else { continue };
        let Some(top) = module.first() else { continue };
        if row(top).is_none() && top != "backend" && !ASIDE.contains(&top.as_str()) {
            breaches.push(format!("{}: the module `{top}` is in no row; add it to ROWS", file.path));
        }
        for used in crate_paths(&without_test_modules(&tokens(&file.text)), &module) {
            let place = format!("{}:{}", file.path, used.line);
            let Some(name) = used.segments.first().map(|name| reexports.get(name).unwrap_or(name)) else {
                continue;
            };
            breaches.extend(sibling_backend(&module, &used.segments).map(|why| format!("{place}: {why}")));
            if name != top && (row(name).is_some() || name == "backend" || ASIDE.contains(&name.as_str())) {
                uses.entry((top.clone(), name.clone())).or_insert(place);
            }
        }
    }
    breaches.extend(uses.iter().filter_map(|((user, used), place)| {
        may_not_use(user, used).map(|why| format!("{place}: `{user}` uses `{used}`, {why}"))
    }));
    breaches.extend(circles(&uses));
    breaches
}

fn row(module: &str) -> Option<usize> {
    ROWS.iter().position(|row| row.contains(&module))
}

fn may_not_use(user: &str, used: &str) -> Option<&'static str> {
    if ASIDE.contains(&user) {
        return None;
    }
    let Some(used) = row(used) else { return Some("which stands beside the rows") };
    match row(user) {
        None if used > LAST_ROW_FOR_BACKENDS => Some("which is not for backends"),
        Some(user) if used > user => Some("which is below it"),
        _ => None,
    }
}

/// Pairs of one row that use each other.
fn circles(uses: &Uses) -> Vec<String> {
    let back = |user: &str, used: &str| uses.contains_key(&(used.to_owned(), user.to_owned()));
    let both = uses.iter().filter(|((user, used), _)| user < used && back(user, used));
    both.filter(|((user, used), _)| row(user) == row(used))
        .map(|((user, used), place)| format!("{place}: `{user}` and `{used}` use each other"))
        .collect()
}

fn sibling_backend(here: &[String], used: &[String]) -> Option<String> {
    let [backend, own, ..] = here else { return None };
    let [used_backend, other, ..] = used else { return None };
    let is_sibling = backend == "backend" && used_backend == "backend" && own != other;
    (is_sibling && other.starts_with(char::is_lowercase))
        .then(|| format!("the backend `{own}` uses its sibling `{other}`"))
}

/// The module that a file of `bus` is: `bus/src/contract/lock.rs` is `[contract, lock]`. Test files are none.
fn module_of(path: &str) -> Option<Vec<String>> {
    let inner = path.strip_prefix("bus/src/")?.strip_suffix(".rs")?;
    let mut module: Vec<String> = inner.split('/').map(str::to_owned).collect();
    match module.last().map(String::as_str) {
        Some("tests") => return None,
        Some("mod" | "lib") => drop(module.pop()),
        _ => {}
    }
    (module.first().map(String::as_str) != Some("bin")).then_some(module)
}

/// Which module each name comes from that the crate's root re-exports: `Error` from `error`.
fn reexports(root: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let tokens = tokens(root);
    for (at, _) in tokens.iter().enumerate().filter(|(_, token)| token.word() == Some("use")) {
        let Some(module) = tokens.get(at + 1).and_then(Placed::word) else { continue };
        let names = tokens[at + 2..].iter().take_while(|token| !token.is(';')).filter_map(Placed::word);
        found.extend(names.map(|name| (name.to_owned(), module.to_owned())));
    }
    found
}

// ---- Files and folders -----------------------------------------------------------------------------------------

fn file_length(project: &Project) -> Vec<String> {
    let code = |path: &str| [".rs", ".sql", ".lua", ".sh", ".toml"].iter().any(|end| path.ends_with(end));
    project
        .files
        .iter()
        .map(|file| (&file.path, file.text.lines().count()))
        .filter(|(path, lines)| code(path) && *lines > LONGEST_FILE)
        .map(|(path, lines)| format!("{path} has {lines} lines; {LONGEST_FILE} is the limit"))
        .collect()
}

fn backends(project: &Project) -> Vec<String> {
    let inner = project.files.iter().filter_map(|file| file.path.strip_prefix("bus/src/backend/"));
    let folders: BTreeSet<&str> = inner.filter_map(|path| Some(path.split_once('/')?.0)).collect();
    if folders.is_empty() {
        return Vec::new();
    }
    let features: BTreeSet<&str> = features(project.text_of("bus/Cargo.toml").unwrap_or_default())
        .filter(|name| is_backend(name))
        .collect();
    let suites: Vec<&File> =
        project.rust().filter(|file| file.path.starts_with("tests/tests/conformance")).collect();
    let has_entry = |backend: &str| {
        suites
            .iter()
            .any(|file| file.path.ends_with(&format!("/{backend}.rs")) || has_word(&file.text, backend))
    };
    let mut breaches = Vec::new();
    for backend in folders.union(&features) {
        if !folders.contains(backend) {
            breaches.push(format!("the feature `{backend}` has no folder bus/src/backend/{backend}"));
        }
        if !features.contains(backend) {
            breaches.push(format!("bus/src/backend/{backend} has no feature of that name in bus/Cargo.toml"));
        }
        if !has_entry(backend) {
            breaches.push(format!("the backend `{backend}` has no entry in tests/tests/conformance"));
        }
    }
    breaches
}

fn features(manifest: &str) -> impl Iterator<Item = &str> {
    let section = manifest.lines().skip_while(|line| line.trim() != "[features]").skip(1);
    section
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| Some(line.split_once('=')?.0.trim()))
        .filter(|name| !name.starts_with('#'))
}

fn is_backend(feature: &str) -> bool {
    !OTHER_FEATURES.contains(&feature) && !feature.ends_with("tls")
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|found| found == word)
}

fn module_names(project: &Project) -> Vec<String> {
    let named_by_path = project
        .rust()
        .filter(|file| file.path.trim_end_matches(".rs").split('/').any(|part| EMPTY_NAMES.contains(&part)));
    let mut breaches: Vec<String> =
        named_by_path.map(|file| format!("{}: a module is called after what it does", file.path)).collect();
    for (file, code) in project.rust().map(|file| (file, tokens(&file.text))) {
        let pairs = code.windows(2).filter(|pair| pair[0].word() == Some("mod"));
        let empty = pairs.filter(|pair| pair[1].word().is_some_and(|name| EMPTY_NAMES.contains(&name)));
        breaches
            .extend(empty.map(|pair| {
                format!("{}:{}: a module is called after what it does", file.path, pair[0].line)
            }));
    }
    breaches
}

// ---- Code ------------------------------------------------------------------------------------------------------

fn nothing_left_to_do(project: &Project) -> Vec<String> {
    let mut breaches = Vec::new();
    for file in project.rust() {
        for pair in tokens(&file.text).windows(2).filter(|pair| pair[1].is('!')) {
            if let Some(name @ ("todo" | "unimplemented" | "dbg")) = pair[0].word() {
                breaches.push(format!("{}:{}: `{name}!`", file.path, pair[0].line));
            }
        }
    }
    breaches
}

fn allowances_have_reasons(project: &Project) -> Vec<String> {
    attributes(project, |name, inner| {
        let has_reason = inner.iter().any(|token| token.word() == Some("reason"));
        (matches!(name, "allow" | "expect") && !has_reason)
            .then(|| format!("`#[{name}(…)]` without `reason = \"…\"`"))
    })
}

fn ignored_tests_have_reasons(project: &Project) -> Vec<String> {
    attributes(project, |name, inner| {
        (name == "ignore" && inner.is_empty()).then(|| "`#[ignore]` without `= \"…\"`".to_owned())
    })
}

/// What `judge` says of each attribute, given its name and what follows the name inside the brackets.
fn attributes(project: &Project, judge: impl Fn(&str, &[Placed]) -> Option<String>) -> Vec<String> {
    let mut breaches = Vec::new();
    for file in project.rust() {
        let code = tokens(&file.text);
        for at in (0..code.len()).filter(|at| code[*at].is('#')) {
            let open = if code.get(at + 1).is_some_and(|next| next.is('!')) { at + 2 } else { at + 1 };
            let Some(name) =
                code.get(open).filter(|open| open.is('[')).and(code.get(open + 1)).and_then(Placed::word)
            else {
                continue;
            };
            let end = end_of_block(&code, open) - 1;
            let inner = code.get(open + 2..end).unwrap_or_default();
            breaches.extend(judge(name, inner).map(|why| format!("{}:{}: {why}", file.path, code[at].line)));
        }
    }
    breaches
}

fn unsafe_is_forbidden(project: &Project) -> Vec<String> {
    let root = project.text_of("Cargo.toml").unwrap_or_default();
    let workspace_forbids =
        section(root, "[workspace.lints.rust]").any(|line| line == "unsafe_code = \"forbid\"");
    let inherits = |manifest: &str| section(manifest, "[lints]").any(|line| line == "workspace = true");
    let crates = project.files.iter().filter_map(|file| Some((file, file.path.strip_suffix("/Cargo.toml")?)));
    crates
        .filter(|(manifest, folder)| {
            let forbids = ["lib", "main"].iter().any(|root| {
                let text = project.text_of(&format!("{folder}/src/{root}.rs"));
                text.is_some_and(|text| text.contains("#![forbid(unsafe_code)]"))
            });
            !(forbids || workspace_forbids && inherits(&manifest.text))
        })
        .map(|(manifest, _)| {
            format!("{}: neither inherits the workspace's lints nor forbids it", manifest.path)
        })
        .collect()
}

fn section<'t>(toml: &'t str, head: &'t str) -> impl Iterator<Item = &'t str> {
    let inside = toml.lines().map(str::trim).skip_while(move |line| *line != head).skip(1);
    inside.take_while(|line| !line.starts_with('['))
}

fn no_private_paths(project: &Project) -> Vec<String> {
    // Put together here, so that this file does not break its own rule.
    let private = ["home", "root", "work", "Users"].map(|folder| format!("/{folder}/"));
    let begins_here =
        |before: &str| !before.ends_with(|c: char| c.is_alphanumeric() || "._-~}*>".contains(c));
    let mut breaches = Vec::new();
    for file in &project.files {
        for (number, line) in file.text.lines().enumerate() {
            let mut hits = private.iter().flat_map(|path| line.match_indices(path.as_str()));
            if let Some((_, path)) = hits.find(|(at, _)| begins_here(&line[..*at])) {
                breaches.push(format!("{}:{}: a path below {path}", file.path, number + 1));
            }
        }
    }
    breaches
}

/// Pages name the test that holds a promise as `` `file::name` ``, its file from the tests' folder, or from `bus/src` for
/// a conformance case.
fn named_tests_exist(project: &Project) -> Vec<String> {
    let mut breaches = Vec::new();
    for page in project.files.iter().filter(|file| file.path.ends_with(".md")) {
        for (number, line) in page.text.lines().enumerate() {
            let named = line.split('`').skip(1).step_by(2).filter_map(|code| code.split_once(".rs::"));
            for (file, name) in named.filter(|(_, name)| !name.contains(':')) {
                let place = [format!("tests/tests/{file}.rs"), format!("bus/src/{file}.rs")];
                let text = place.iter().find_map(|path| project.text_of(path));
                if !text.is_some_and(|text| text.contains(&format!("fn {name}("))) {
                    breaches.push(format!(
                        "{}:{}: there is no test {file}.rs::{name}",
                        page.path,
                        number + 1
                    ));
                }
            }
        }
    }
    breaches
}

/// What `.ci/test` looks for in the output of the tests, a list called `NEVER`, is what an assertion says.
fn what_must_never_be_is_asserted(project: &Project) -> Vec<String> {
    let script = project.text_of(".ci/test").unwrap_or_default();
    let list = script.lines().skip_while(|line| *line != "NEVER=(").skip(1).take_while(|line| *line != ")");
    let phrases: Vec<_> = list.map(|line| line.trim().trim_matches('"')).collect();
    let said = |phrase: &str| project.rust().any(|file| file.text.contains(phrase));
    let unsaid = phrases.iter().filter(|phrase| !said(phrase));
    let mut breaches: Vec<_> =
        unsaid.map(|phrase| format!(".ci/test: no assertion says {phrase:?}")).collect();
    if phrases.is_empty() {
        breaches.push(".ci/test: there is no list called NEVER".into());
    }
    breaches
}
