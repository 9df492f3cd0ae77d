//! The tool mounted in a program: what that program's user, or a script, gets to see.

use std::process::{Command, Output};

/// Runs the program in a directory of its own, with no configuration but what it is given.
fn mounted(args: &[&str]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mounted"));
    command.args(args).current_dir(&directory);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BUS_")) {
        command.env_remove(name);
    }
    command.output().unwrap()
}

fn code_and_texts(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn exit_code_0_is_done() {
    let (code, out, err) = code_and_texts(&mounted(&["bus", "depths", "--store", "memory://"]));
    assert_eq!((code, out.as_str(), err.as_str()), (Some(0), "no endpoints in memory://\n", ""));
    let (code, out, err) = code_and_texts(&mounted(&["bus", "--help"]));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert!(out.contains("Usage: mounted bus"), "{out}");
}

#[test]
fn exit_code_1_is_failed_and_standard_error_says_why() {
    let id = bus::MessageId::fresh().to_string();
    for args in [
        &["bus", "dead", "put-back", "imports", &id, "--store", "memory://"][..],
        &["bus", "depths", "--store", "nowhere://user:s3cret@host"],
        &["bus", "locks"],
    ] {
        let (code, out, err) = code_and_texts(&mounted(args));
        assert_eq!((code, out.as_str()), (Some(1), ""), "{args:?}: {err}");
        assert!(err.starts_with("Error: ") && !err.contains("s3cret"), "{err}");
    }
}

#[test]
fn exit_code_2_is_not_understood() {
    let (code, out, err) = code_and_texts(&mounted(&["bus", "dead", "bury"]));
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("unrecognized subcommand 'bury'"), "{err}");
}

/// Without a handler in the binary there is nothing to be wired.
#[test]
fn a_program_without_processors_is_told_so() {
    let (code, _, err) = code_and_texts(&mounted(&["bus", "check"]));
    assert_eq!(code, Some(1));
    assert!(err.contains("no processor"), "{err}");
}
