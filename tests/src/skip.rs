//! What a test does where the machine lacks what it takes.

use std::fmt;

/// Says why a test is not run; it is to return then.
///
/// # Panics
/// With `BUS_TEST_STRICT=1`, as CI sets it.
#[allow(clippy::print_stderr, reason = "a test that was not run has to say so")]
pub fn not_run(why: impl fmt::Display) {
    let strict = std::env::var("BUS_TEST_STRICT").is_ok_and(|strict| strict == "1");
    assert!(!strict, "not run: {why}");
    eprintln!("NOT RUN: {why}");
}
