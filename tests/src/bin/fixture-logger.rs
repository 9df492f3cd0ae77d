//! A program that fails with a secret in its error, and leaves its log to `bus::run_with`; unless `BUS_TEST_LOG` is `own`:
//! then it has set up a subscriber that hears errors alone. With `BUS_TEST_REDACT` it says what is to be redacted.

use bus::prelude::*;
use bus_tests::task::Plain;

#[processor(dead_letter_delivery_limit = 1)]
async fn note(Plain(task): Plain) -> Result<(), String> {
    Err(format!("task {}: the password s3cret was refused", task.n))
}

#[tokio::main]
async fn main() -> bus::Result<()> {
    if std::env::var("BUS_TEST_LOG").is_ok_and(|log| log == "own") {
        let own = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false);
        own.with_max_level(tracing::Level::ERROR).init();
    }
    let redacts = std::env::var_os("BUS_TEST_REDACT").is_some();
    bus::run_with(|host| match redacts {
        true => host.redact(|text| text.replace("s3cret", "[redacted]").into()),
        false => host,
    })
    .await
}
