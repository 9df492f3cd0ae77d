//! Each rule meets a file that breaks it, and one that looks like it and does not.

use super::*;

fn project(files: &[(&str, &str)]) -> Project {
    let file = |(path, text): &(&str, &str)| File { path: (*path).to_owned(), text: (*text).to_owned() };
    Project { files: files.iter().map(file).collect() }
}

/// That `rule` finds one breach in these files, whose report has all these words.
fn caught(rule: Rule, files: &[(&str, &str)], words: &[&str]) {
    let breaches = rule(&project(files));
    assert_eq!(breaches.len(), 1, "{breaches:?}");
    for word in words {
        assert!(breaches[0].contains(word), "{word:?} is missing in {breaches:?}");
    }
}

fn passed(rule: Rule, files: &[(&str, &str)]) {
    assert_eq!(rule(&project(files)), Vec::<String>::new());
}

#[test]
fn a_module_that_looks_down_is_caught() {
    for code in [
        "use crate::pump::Pump;",
        "use crate::{error::Result, pump::{self, Pump}};",
        "fn f() { crate::pump::run() }",
        "use super::pump;",
        "use super::{error, pump::Pump as P};",
        "mod inner { use super::super::pump; }",
    ] {
        caught(
            import_order,
            &[("bus/src/contract.rs", code)],
            &["bus/src/contract.rs:1", "`contract` uses `pump`"],
        );
    }
    caught(
        import_order,
        &[("bus/src/contract/lock.rs", "\nuse super::super::pump;")],
        &["lock.rs:2", "below it"],
    );
    let reexport = ("bus/src/lib.rs", "pub use pump::{Pump, Other};");
    caught(import_order, &[reexport, ("bus/src/error.rs", "use crate::Pump;")], &["`error` uses `pump`"]);
}

#[test]
fn what_a_module_may_use_passes() {
    passed(
        import_order,
        &[
            ("bus/src/pump/mod.rs", "use crate::{error, contract::{Fence, Lease}}; use super::sender;"),
            (
                "bus/src/contract/lock.rs",
                "use super::Reach; use super::super::error::Error; mod a { use super::b; }",
            ),
            (
                "bus/src/error.rs",
                "// use crate::pump;\nconst S: &str = \"crate::pump\"; /* crate::pump /* */ */",
            ),
            (
                "bus/src/clock.rs",
                "const R: &str = r#\"\" crate::pump \"#; const C: char = '\"'; fn f<'a>(_: &'a u8) {}",
            ),
            (
                "bus/src/message.rs",
                "use crate::scope::Scope; macro_rules! m { () => { $crate::pump::run() } }",
            ),
            ("bus/src/settings.rs", "#[cfg(test)]\nmod tests { use crate::host::Host; fn f() { {} } }"),
            ("bus/src/scope/tests.rs", "use crate::host::Host;"),
            ("bus/src/prelude.rs", "pub use crate::host::Host;"),
        ],
    );
}

#[test]
fn modules_of_one_row_that_use_each_other_are_caught() {
    let files = [("bus/src/message.rs", "use crate::scope;"), ("bus/src/scope.rs", "use crate::message;")];
    caught(import_order, &files, &["`message` and `scope` use each other"]);
}

#[test]
fn a_module_in_no_row_is_caught() {
    caught(import_order, &[("bus/src/mailer.rs", "")], &["`mailer` is in no row"]);
}

#[test]
fn what_stands_aside_is_not_used_by_the_rows() {
    for (file, code) in [
        ("bus/src/host/mod.rs", "use crate::testing::Host;"),
        ("bus/src/pump.rs", "use crate::backend::memory;"),
        ("bus/src/processor.rs", "crate::__private::name()"),
    ] {
        caught(import_order, &[(file, code)], &[file, "beside the rows"]);
    }
}

#[test]
fn a_backend_that_uses_more_than_the_contract_is_caught() {
    let file = "bus/src/backend/memory/lock.rs";
    caught(import_order, &[(file, "use crate::singleton::Term;")], &[file, "not for backends"]);
    for code in [
        "use crate::backend::sqlite::Client;",
        "use super::super::sqlite;",
        "use crate::backend::{memory, sqlite};",
    ] {
        caught(import_order, &[(file, code)], &["`memory` uses its sibling `sqlite`"]);
    }
    passed(
        import_order,
        &[(file, "use crate::{wake::Wake, contract::Lease}; use super::store; use crate::backend::memory;")],
    );
}

#[test]
fn a_file_that_is_too_long_is_caught() {
    let lines = "\n".repeat(LONGEST_FILE + 1);
    caught(file_length, &[("bus/src/error.rs", &lines)], &["error.rs has 801 lines"]);
    passed(file_length, &[("bus/src/error.rs", &"\n".repeat(LONGEST_FILE)), ("Cargo.lock", &lines)]);
}

#[test]
fn a_backend_that_is_not_complete_is_caught() {
    let manifest =
        ("bus/Cargo.toml", "[features]\n# Backends\nmemory = []\ncli = []\n\n[dependencies]\nserde = 1");
    let folder = ("bus/src/backend/memory/mod.rs", "");
    let entry = ("tests/tests/conformance.rs", "suite!(memory);");
    passed(backends, &[manifest, folder, entry]);
    passed(backends, &[manifest, folder, ("tests/tests/conformance/memory.rs", "")]);
    caught(backends, &[manifest, folder], &["`memory` has no entry"]);
    caught(backends, &[("bus/Cargo.toml", ""), folder, entry], &["backend/memory has no feature"]);
    let more = ("bus/Cargo.toml", "[features]\nmemory = []\nnats = [\"dep:nats\"]");
    let entries = ("tests/tests/conformance.rs", "suite!(memory); suite!(nats);");
    caught(backends, &[more, folder, entries], &["feature `nats` has no folder"]);
}

#[test]
fn a_module_with_an_empty_name_is_caught() {
    caught(module_names, &[("bus/src/pump/util.rs", "")], &["bus/src/pump/util.rs"]);
    caught(module_names, &[("bus/src/pump/helpers/a.rs", "")], &["helpers/a.rs"]);
    caught(module_names, &[("bus/src/pump.rs", "\nmod common { }")], &["pump.rs:2"]);
    passed(module_names, &[("bus/src/utility.rs", "// mod util\nfn util() {}")]);
}

#[test]
fn what_is_left_to_do_is_caught() {
    for code in ["fn f() { todo!() }", "unimplemented!(\"later\")", "dbg!(x);", "std::todo!()"] {
        caught(nothing_left_to_do, &[("a.rs", code)], &["a.rs:1"]);
    }
    passed(nothing_left_to_do, &[("a.rs", "// todo!()\nlet todo = !\"todo!()\".is_empty();")]);
}

#[test]
fn an_allowance_without_a_reason_is_caught() {
    for code in
        ["#[allow(dead_code)]", "#![allow(missing_docs)]", "#[ allow (\n a, b )]", "#[expect(unused)]"]
    {
        caught(allowances_have_reasons, &[("a.rs", code)], &["a.rs:1", "reason"]);
    }
    let fine = "#[allow(dead_code, reason = \"why\")] // #[allow(x)]\n#[derive(Debug)] #[cfg(allow)]";
    passed(allowances_have_reasons, &[("a.rs", fine)]);
}

#[test]
fn an_ignored_test_without_a_reason_is_caught() {
    caught(ignored_tests_have_reasons, &[("a.rs", "\n#[test]\n#[ignore]\nfn f() {}")], &["a.rs:3"]);
    passed(ignored_tests_have_reasons, &[("a.rs", "#[ignore = \"takes an hour\"]")]);
}

#[test]
fn a_crate_that_does_not_forbid_unsafe_code_is_caught() {
    let root = ("Cargo.toml", "[workspace.lints.rust]\nunsafe_code = \"forbid\"\n");
    let bare = ("a/Cargo.toml", "[package]\n");
    caught(unsafe_is_forbidden, &[root, bare], &["a/Cargo.toml"]);
    caught(
        unsafe_is_forbidden,
        &[("Cargo.toml", ""), ("a/Cargo.toml", "[lints]\nworkspace = true")],
        &["a/Cargo.toml"],
    );
    passed(unsafe_is_forbidden, &[root, ("a/Cargo.toml", "[lints]\nworkspace = true\n")]);
    passed(unsafe_is_forbidden, &[root, bare, ("a/src/lib.rs", "#![forbid(unsafe_code)]")]);
}

#[test]
fn a_path_of_somebodys_machine_is_caught() {
    for folder in ["home", "root", "work", "Users"] {
        let text = format!("first\nsee \"/{folder}/me/x\"");
        caught(no_private_paths, &[("README.md", &text)], &["README.md:2"]);
        passed(
            no_private_paths,
            &[("README.md", &format!("https://a.example/{folder}/x ./{folder}/x $HOME/{folder}x"))],
        );
    }
}

#[test]
fn a_named_test_that_is_gone_is_caught() {
    let page = ("a.md", "kept:\n`host/a.rs::it_holds`, `conformance/b.rs::so_does_it`");
    let host = ("tests/tests/host/a.rs", "async fn it_holds() {}");
    let case = ("bus/src/conformance/b.rs", "async fn so_does_it(bench: &Bench) {}");
    passed(named_tests_exist, &[page, host, case]);
    caught(named_tests_exist, &[page, host], &["a.md:2", "conformance/b.rs::so_does_it"]);
    caught(
        named_tests_exist,
        &[page, ("tests/tests/host/a.rs", "fn it_holds_not() {}"), case],
        &["it_holds"],
    );
}

#[test]
fn a_phrase_that_no_assertion_says_is_caught() {
    let script = (".ci/test", "NEVER=(\n    \"two at once\"\n)\n");
    passed(what_must_never_be_is_asserted, &[script, ("a.rs", "assert!(one, \"two at once: {found:?}\")")]);
    caught(what_must_never_be_is_asserted, &[script, ("a.rs", "assert!(one)")], &["two at once"]);
    caught(what_must_never_be_is_asserted, &[(".ci/test", "NEVER=(\n)\n")], &["no list"]);
}
