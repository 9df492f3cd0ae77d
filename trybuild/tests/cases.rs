//! Each rule that is judged while compiling has a case in `cases/<attribute>/fail`, and what is allowed has one in
//! `pass`. The first line of a failing case is the sentence that its error says; deleting the rule fails the case.
//!
//! The `.stderr` files belong to Rust 1.95.0 on x86_64 Linux. `TRYBUILD=overwrite cargo test -p bus-trybuild` writes them
//! anew; the second test then still holds each to its sentence.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_case_compiles_or_fails_as_it_should() {
    let cases = trybuild::TestCases::new();
    cases.pass("cases/*/pass/*.rs");
    cases.compile_fail("cases/*/fail/*.rs");
}

#[test]
fn every_mistake_is_one_error_that_says_its_sentence() {
    let cases = failing_cases();
    assert!(cases.len() > 80, "the cases were not found: {}", cases.len());
    let wrong: Vec<_> = cases.iter().filter_map(|case| why_wrong(case)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// All `cases/<attribute>/fail/<what_is_wrong>.rs`.
fn failing_cases() -> Vec<PathBuf> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    let attributes = entries(&Path::new(env!("CARGO_MANIFEST_DIR")).join("cases"));
    let cases = attributes.iter().flat_map(|attribute| entries(&attribute.join("fail")));
    cases.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

/// What is wrong with a case: its sentence is missing, or it has more errors than mistakes.
fn why_wrong(case: &Path) -> Option<String> {
    let source = fs::read_to_string(case).ok()?;
    let Ok(errors) = fs::read_to_string(case.with_extension("stderr")) else {
        return Some(format!("{}: it has no .stderr", case.display()));
    };
    let mut declared = source.lines().map_while(|line| line.strip_prefix("//~ "));
    let Some(sentence) = declared.next().and_then(|line| line.strip_prefix('"')?.strip_suffix('"')) else {
        return Some(format!("{}: its first line is no `//~ \"its sentence\"`", case.display()));
    };
    let wanted = declared.next().and_then(|line| line.strip_prefix("errors: ")?.parse().ok()).unwrap_or(1);
    let found = errors.lines().filter(|line| line.starts_with("error")).count();
    if found != wanted {
        return Some(format!("{}: {found} errors instead of {wanted}", case.display()));
    }
    (!errors.contains(sentence)).then(|| format!("{}: its error does not say {sentence:?}", case.display()))
}
