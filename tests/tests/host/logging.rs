//! What a program logs that has set up no subscriber of its own, and what its log keeps to itself.

use bus::Endpoint;
use bus_tests::site::{Setup, Site};
use bus_tests::task::Task;
use bus_tests::wait::until_true;
use serde_json::Value;

use super::send_plain;

const LOGGER: &str = env!("CARGO_BIN_EXE_fixture-logger");

/// Runs until its one message, whose handler fails, is dead; answers what it has said.
async fn said(site: &Site, adjust: impl FnOnce(Setup<'_>) -> Setup<'_>) -> String {
    let task = Task { padding: "the-b0dy".into(), ..Task::new(1) };
    send_plain(site, [task]).await;
    let dead = site.store().counts("plain").dead;
    let mut host = adjust(site.process(LOGGER).without("RUST_LOG").without("NO_COLOR")).start();
    until_true("the message is dead", || site.store().counts("plain").dead == dead + 1).await;
    host.terminate();
    assert!(host.exit().await.success(), "{}", host.said());
    host.said()
}

/// Each line as JSON; panics if one is none.
fn events(said: &str) -> Vec<Value> {
    let read = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    said.lines().map(read).collect()
}

/// The promise: without a subscriber, and with no terminal, a line of JSON for each event from `info` up.
#[tokio::test]
async fn without_a_subscriber_and_a_terminal_the_log_is_json_from_info_up() {
    let site = Site::new();
    let events = events(&said(&site, |setup| setup).await);
    let has = |level: &str, words: &str| {
        events.iter().any(|event| {
            event["level"] == level
                && event["target"].is_string()
                && event["timestamp"].is_string()
                && event["message"].as_str().is_some_and(|message| message.contains(words))
        })
    };
    assert!(has("INFO", "note <- plain"), "{events:#?}");
    assert!(has("ERROR", "given up on: dead-lettered"), "{events:#?}");
    assert!(events.iter().any(|event| event["event"] == "message.dead" && event["endpoint"] == "plain"));
    assert!(!events.iter().any(|event| event["level"] == "DEBUG"), "{events:#?}");
}

/// The promise: on a terminal it is for people.
#[tokio::test]
async fn without_a_subscriber_on_a_terminal_the_log_is_for_people() {
    let site = Site::new();
    let said = said(&site, |setup| setup.on_a_terminal()).await;
    let line = said.lines().find(|line| line.contains("note <- plain")).expect("it says what it has started");
    assert!(line.contains("INFO") && serde_json::from_str::<Value>(line).is_err(), "{line}");
    assert!(line.contains("\u{1b}["), "in colour: {line:?}");
}

/// The promise: `RUST_LOG` is heeded, also where a part of it cannot be understood.
#[tokio::test]
async fn rust_log_says_what_is_logged() {
    let site = Site::new();
    let more = events(&said(&site, |setup| setup.env("RUST_LOG", "bus=debug")).await);
    assert!(more.iter().any(|event| event["event"] == "run.start"), "{more:#?}");
    let less = events(&said(&site, |setup| setup.env("RUST_LOG", "error")).await);
    assert!(!less.is_empty() && less.iter().all(|event| event["level"] == "ERROR"), "{less:#?}");
    let wrong = said(&site, |setup| setup.env("RUST_LOG", "bus=debug,bus=loudest")).await;
    assert!(wrong.contains("run.start") && wrong.contains("bus=loudest"), "{wrong}");
}

/// The promise: a subscriber that was set before is left alone.
#[tokio::test]
async fn a_subscriber_of_ones_own_is_left_alone() {
    let site = Site::new();
    let said = said(&site, |setup| setup.env("BUS_TEST_LOG", "own")).await;
    assert!(!said.contains("note <- plain"), "it hears errors alone: {said}");
    assert!(!said.contains("no tracing subscriber"), "{said}");
    let told: Vec<_> = said.lines().filter(|line| line.contains("message.dead")).collect();
    assert_eq!(told.len(), 1, "{said}");
    assert!(told[0].contains("ERROR") && serde_json::from_str::<Value>(told[0]).is_err(), "{said}");
}

/// The promise: no body is in the log, and what a program redacts is neither in the log nor in the dead letter.
#[tokio::test]
async fn a_secret_in_an_error_is_redacted_in_the_log_and_in_the_dead_letter() {
    let site = Site::new();
    let plainly = said(&site, |setup| setup).await;
    assert!(plainly.contains("the password s3cret"), "the error is logged: {plainly}");
    assert!(!plainly.contains("the-b0dy"), "{plainly}");
    let redacted = said(&site, |setup| setup.env("BUS_TEST_REDACT", "1")).await;
    assert!(redacted.contains("the password [redacted] was refused"), "{redacted}");
    assert!(!redacted.contains("s3cret") && !redacted.contains("the-b0dy"), "{redacted}");

    let producer = site.producer().await;
    let inspect = producer.inspect("default").expect("it can be looked into");
    let queue = Endpoint::queue("plain").expect("a name");
    let dead = inspect.dead_letters(&queue, None, 10).await.expect("answered");
    let errors: Vec<_> = dead.into_iter().filter_map(|letter| letter.error).collect();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors[0].contains("s3cret") && errors[1].contains("[redacted]"), "{errors:?}");
    assert!(!errors[1].contains("s3cret"), "{errors:?}");
    producer.close().await;
}
