//! What we depend on, as cargo itself tells it: licences, crates that we do not want, and what each feature brings.
//!
//! Two checks need the registry's index and so are steps of `.ci/run` rather than of the test command:
//! `cargo test -p bus-tests --test dependencies -- --ignored`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Licences that ask for no more than being named.
const ALLOWED_LICENCES: &[&str] = &[
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates that must not come in, not even through others and not on any platform.
const BANNED: &[(&str, &str)] = &[
    ("openssl-sys", "TLS is rustls: nothing to install, the same everywhere"),
    ("native-tls", "TLS is rustls: nothing to install, the same everywhere"),
    ("azure_storage_blobs", "frozen; its successor is azure_storage_blob"),
    ("azure_storage_queues", "frozen; its successor is azure_storage_queue"),
    ("proc-macro-error", "unmaintained; syn's errors can be combined"),
    ("proc-macro-error2", "syn's errors can be combined"),
    ("fred", "no release for long; redis is used"),
    ("azservicebus", "hangs on send; fe2o3-amqp is used"),
    ("async-std", "discontinued"),
];

/// Crates of which one program can have only one version.
const ONLY_ONE_VERSION: &[&str] = &["libsqlite3-sys", "inventory", "tokio"];

// ---- What is locked --------------------------------------------------------------------------------------------

#[test]
fn all_licences_are_allowed() {
    let mut refused = Vec::new();
    for package in metadata()["packages"].as_array().expect("metadata has packages") {
        let text = package["license"].as_str().unwrap_or("none");
        if !is_allowed(text) {
            refused.push(format!("{} {}: {text}", package["name"], package["version"]));
        }
    }
    assert!(refused.is_empty(), "licences that are not in ALLOWED_LICENCES:\n{}", refused.join("\n"));
}

#[test]
fn banned_crates_are_absent() {
    let locked = locked();
    for (name, why) in BANNED {
        assert!(!locked.contains_key(*name), "{name} is among the dependencies: {why}");
    }
}

#[test]
fn there_is_one_version_of_what_there_can_be_only_one_of() {
    for (name, versions) in locked() {
        let single = !ONLY_ONE_VERSION.contains(&name.as_str()) || versions.len() == 1;
        assert!(single, "{name} is there in {versions:?}");
    }
}

/// Each package of the lock file, all platforms and features included, with its versions.
fn locked() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("Cargo.lock")).expect("there is a lock file");
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let quoted = |line: &str, key: &str| Some(line.strip_prefix(key)?.trim_matches('"').to_owned());
    let mut name = String::new();
    for line in text.lines() {
        if let Some(found) = quoted(line, "name = ") {
            name = found;
        } else if let Some(version) = quoted(line, "version = ")
            && !name.is_empty()
        {
            found.entry(name.clone()).or_default().insert(version);
        }
    }
    assert!(found.contains_key("bus"), "the lock file was not understood");
    found
}

// ---- What a feature brings -------------------------------------------------------------------------------------

#[test]
fn a_feature_brings_its_own_dependencies_and_no_others() {
    let features = features_of_bus();
    let optional: BTreeSet<&String> = features.values().flatten().collect();
    let mut selections: Vec<(String, Vec<&str>, BTreeSet<&String>)> = features
        .iter()
        .filter(|(name, _)| *name != "default")
        .map(|(name, brings)| {
            (name.clone(), vec!["--no-default-features", "--features", name], brings.iter().collect())
        })
        .collect();
    selections.push(("no feature".to_owned(), vec!["--no-default-features"], BTreeSet::new()));
    selections.push(("default".to_owned(), Vec::new(), features["default"].iter().collect()));
    for (name, arguments, wanted) in selections {
        let tree = dependencies_of_bus(&arguments);
        for dependency in &optional {
            assert_eq!(
                tree.contains(*dependency),
                wanted.contains(dependency),
                "with {name}: {dependency} is {}",
                if tree.contains(*dependency) { "there, unwanted" } else { "missing" }
            );
        }
    }
}

/// The features of `bus` with the optional dependencies that each switches on, directly or through another feature.
fn features_of_bus() -> BTreeMap<String, Vec<String>> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("metadata has packages");
    let bus = packages.iter().find(|package| package["name"] == "bus").expect("bus is a package");
    let direct: BTreeMap<String, Vec<String>> =
        serde_json::from_value(bus["features"].clone()).expect("features are lists of names");
    direct.keys().map(|name| (name.clone(), optional_dependencies(&direct, name))).collect()
}

fn optional_dependencies(features: &BTreeMap<String, Vec<String>>, feature: &str) -> Vec<String> {
    let mut found = Vec::new();
    for item in features.get(feature).into_iter().flatten() {
        match item.strip_prefix("dep:") {
            Some(dependency) => found.push(dependency.to_owned()),
            None => found.extend(optional_dependencies(features, item)),
        }
    }
    found
}

fn dependencies_of_bus(features: &[&str]) -> BTreeSet<String> {
    // Our own only: what these bring in their turn is their business, such as one TLS library for two backends.
    let mut arguments = vec!["tree", "--offline", "--locked", "-p", "bus", "-e", "normal", "--depth", "1"];
    arguments.extend(["--prefix", "none", "-f", "{p}"]);
    arguments.extend(features);
    let names = cargo(&root(), &arguments);
    names.lines().filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
}

// ---- What others' programs can have beside us ------------------------------------------------------------------

/// Only one `libsqlite3-sys` fits into a program, so our range of rusqlite has to meet whatever these ask for.
const BESIDE: &[&str] = &[
    "sqlx = { version = \"0.8\", default-features = false, features = [\"sqlite\"] }",
    "sqlx = { version = \"0.9\", default-features = false, features = [\"sqlite\"] }",
    "diesel = { version = \"2\", default-features = false, features = [\"sqlite\"] }",
];

#[test]
#[ignore = "needs the registry's index: a step of its own in .ci/run"]
fn our_sqlite_resolves_beside_that_of_others() {
    for other in BESIDE {
        let program = Program::new(other);
        cargo(&program.folder, &["generate-lockfile", "--quiet"]);
        let lock = fs::read_to_string(program.folder.join("Cargo.lock")).expect("cargo has written it");
        assert_eq!(lock.matches("name = \"libsqlite3-sys\"").count(), 1, "{other}");
        assert!(lock.contains("name = \"rusqlite\""), "{other}: the check has lost its subject");
    }
}

#[test]
#[ignore = "needs the registry, and compiles SQLite: a step of its own in .ci/run"]
fn the_oldest_rusqlite_of_our_range_compiles() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("there is a manifest");
    let range =
        manifest.lines().find_map(|line| line.strip_prefix("rusqlite = { version = \">=")).expect("a range");
    let oldest = range.split(',').next().unwrap_or_default();
    let program = Program::new(&format!("rusqlite = \"~{oldest}\""));
    cargo(&program.folder, &["check", "--quiet", "-p", "bus"]);
}

/// A program in a folder of its own that uses `bus` with SQLite and one thing more; gone when dropped.
struct Program {
    folder: PathBuf,
    _temporary: tempfile::TempDir,
}

impl Program {
    fn new(other: &str) -> Self {
        let temporary = tempfile::tempdir().expect("a temporary folder");
        let folder = temporary.path().to_owned();
        let bus = root().join("bus").canonicalize().expect("bus is there");
        let manifest = format!(
            "[package]\nname = \"beside\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
             bus = {{ path = {bus:?}, features = [\"sqlite\"] }}\n{other}\n"
        );
        fs::create_dir(folder.join("src")).expect("a folder can be made");
        fs::write(folder.join("src/lib.rs"), "").expect("a file can be written");
        fs::write(folder.join("Cargo.toml"), manifest).expect("a file can be written");
        Program { folder, _temporary: temporary }
    }
}

// ---- Asking cargo ----------------------------------------------------------------------------------------------

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Packages of this platform only: those of others need not have been downloaded. The lock file has all.
fn metadata() -> Value {
    let version = Command::new("rustc").arg("-vV").output().expect("rustc can be run");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc names its host");
    let arguments = [
        "metadata",
        "--offline",
        "--locked",
        "--all-features",
        "--format-version",
        "1",
        "--filter-platform",
        host,
    ];
    serde_json::from_str(&cargo(&root(), &arguments)).expect("cargo writes JSON")
}

fn cargo(folder: &Path, arguments: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO")).args(arguments).current_dir(folder).output().expect("cargo can be run");
    assert!(
        output.status.success(),
        "cargo {} failed:\n{}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("cargo writes UTF-8")
}

// ---- Licences --------------------------------------------------------------------------------------------------

/// Whether one choice of an SPDX expression is allowed as a whole. `A/B` is how older crates write `A OR B`.
fn is_allowed(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any_of(&mut rest) && rest.is_empty()
}

fn any_of(words: &mut &[&str]) -> bool {
    let mut allowed = all_of(words);
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        allowed |= all_of(words);
    }
    allowed
}

fn all_of(words: &mut &[&str]) -> bool {
    let mut allowed = one(words);
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        allowed &= one(words);
    }
    allowed
}

fn one(words: &mut &[&str]) -> bool {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let allowed = any_of(words);
            let closed = words.first() == Some(&")");
            *words = words.get(1..).unwrap_or_default();
            allowed && closed
        }
        [name, "WITH", exception, rest @ ..] => {
            *words = rest;
            ALLOWED_LICENCES.contains(&format!("{name} WITH {exception}").as_str())
        }
        [name, rest @ ..] => {
            *words = rest;
            ALLOWED_LICENCES.contains(name)
        }
        [] => false,
    }
}

#[test]
fn licence_expressions_are_understood() {
    for allowed in [
        "MIT",
        "MIT OR GPL-3.0",
        "GPL-3.0/Apache-2.0",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        "MIT AND (GPL-3.0 OR BSD-3-Clause)",
    ] {
        assert!(is_allowed(allowed), "{allowed}");
    }
    let refused = ["none", "", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT)", "Apache-2.0 WITH Something"];
    for refused in refused.into_iter().chain(["(MIT OR Apache-2.0) AND AGPL-3.0"]) {
        assert!(!is_allowed(refused), "{refused}");
    }
}
