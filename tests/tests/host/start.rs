//! Whether a host starts at all, and what it says if it does not.

use std::time::Duration;

use bus_tests::site::Site;
use bus_tests::store::Counts;
use bus_tests::task::Task;
use bus_tests::wait::until_true;

use super::{actor, send_plain, send_single};

const SINGLETON: &str = env!("CARGO_BIN_EXE_fixture-singleton");
const PLAIN: &str = env!("CARGO_BIN_EXE_fixture-plain");
const PRODUCER: &str = env!("CARGO_BIN_EXE_fixture-producer");

/// §5: nobody guards it, so it does not start; the message names the function and the way out. With `locks` written, the
/// same binary works.
#[tokio::test]
async fn a_singleton_without_a_lock_manager_does_not_start_and_consumes_nothing() {
    let site = Site::new();
    send_single(&site, [Task::new(1), Task::new(2)]).await;
    let before = site.store().counts("single");
    assert_eq!(before.ready, 2);

    let mut refused = site.process(SINGLETON).start();
    let status = refused.exit().await;
    assert!(!status.success(), "it exits with {status}");
    let said = refused.said();
    for words in ["`count_up`", "no lock manager", "locks = \"default\"", "Host::builder().locks_at("] {
        assert!(said.contains(words), "{words} is missing from: {said}");
    }
    assert!(said.contains("src/bin/fixture-singleton.rs:7"), "the place is missing from: {said}");
    assert_eq!(site.store().counts("single"), before, "nothing was consumed");
    assert_eq!(site.store().deliveries_of_ready("single"), [0, 0]);

    let mut host = site.process(SINGLETON).env("BUS_LOCKS", "default").start();
    until_true("both messages are processed", || site.store().is_drained("single")).await;
    host.terminate();
    assert!(host.exit().await.success());
    assert_eq!(site.entries().iter().filter(|entry| entry.e == "end").count(), 2);
}

/// §5.13: a lock in this process's memory does not keep two processes apart that share a file.
#[tokio::test]
async fn locks_that_reach_less_far_than_the_messages_are_refused_unless_that_is_spelled_out() {
    let site = Site::new();
    send_single(&site, [Task::new(1)]).await;

    let mut refused = site.process(SINGLETON).env("BUS_LOCKS", "memory://locks").start();
    let status = refused.exit().await;
    assert!(!status.success(), "it exits with {status}");
    let said = refused.said();
    for words in ["`count_up`", "memory://locks", "default", "locks_reach = \"process\""] {
        assert!(said.contains(words), "{words} is missing from: {said}");
    }
    assert_eq!(site.store().deliveries_of_ready("single"), [0], "nothing was consumed");

    let setup = site.process(SINGLETON).env("BUS_LOCKS", "memory://locks");
    let mut host = setup.env("BUS_LOCKS_REACH", "process").start();
    until_true("the message is processed", || site.store().is_drained("single")).await;
    host.terminate();
    assert!(host.exit().await.success());
    // A permission that is used is said aloud.
    assert!(host.said().contains("locks_reach"), "the permission is not mentioned: {}", host.said());
}

#[tokio::test]
async fn a_plain_processor_starts_without_a_lock_manager() {
    let site = Site::new();
    send_plain(&site, [Task::new(1)]).await;
    let mut host = site.process(PLAIN).start();
    until_true("the message is processed", || site.store().is_drained("plain")).await;
    host.terminate();
    assert!(host.exit().await.success());
}

/// With nothing configured it is `sqlite://bus.db` in the working directory, and says so.
#[tokio::test]
async fn with_nothing_configured_the_store_is_a_file_here_and_the_start_says_so() {
    let site = Site::new();
    send_plain(&site, [Task::new(1)]).await;
    let mut host = site.process(PLAIN).without("BUS_TRANSPORTS__DEFAULT").start();
    until_true("the message is processed", || site.store().is_drained("plain")).await;
    host.terminate();
    assert!(host.exit().await.success());
    let said = host.said();
    assert!(said.contains("bus.db") && said.contains("nothing is configured"), "it said: {said}");
    assert!(said.contains("note <- plain"), "what runs is not said: {said}");
}

/// M16, M18: what a provider needs is not there: nothing is consumed, and the reason is said.
#[tokio::test]
async fn a_provider_that_fails_keeps_the_host_from_starting() {
    let site = Site::new();
    send_plain(&site, [Task::new(1)]).await;
    let mut host = actor(&site, &["plain"]).env("BUS_TEST_START", "fail").start();
    assert_eq!(host.exit().await.code(), Some(1));
    let said = host.said();
    assert!(said.contains("the catalog cannot be reached"), "it said: {said}");
    assert!(said.contains("beginning"), "the provider is not named: {said}");
    assert_eq!(site.store().deliveries_of_ready("plain"), [0], "nothing was consumed");
}

/// Whatever is wrong with the configuration is said at once, the host ends with a code, and nothing is consumed.
#[tokio::test]
async fn a_configuration_with_mistakes_is_refused_with_all_of_them() {
    let site = Site::new();
    send_plain(&site, [Task::new(1)]).await;
    let before = site.store().counts("plain");
    let config = "locks = 7\n\n[processors.plain]\nmax_concurrent_calls = \"many\"\nlease = 30\nleese = 1\n";
    let mut host = site.process(PLAIN).config(config).env("BUS_LOCK_LEASE", "soon").start();
    assert_eq!(host.exit().await.code(), Some(1));
    let said = host.said();
    let mut rest = said.as_str();
    for told in [
        "5 problems",
        ".toml:1: `locks`: expected a store's URL",
        ".toml:4: `processors.\"plain\".max_concurrent_calls`: expected a whole number, found the text \"many\"",
        ".toml:5: `processors.\"plain\".lease`: expected a duration",
        "did you mean `lease`?",
        "variable BUS_LOCK_LEASE: expected a duration",
    ] {
        let at = rest.find(told).unwrap_or_else(|| panic!("{told} is missing, or not in its place: {said}"));
        rest = &rest[at + told.len()..];
    }
    assert_eq!(site.store().counts("plain"), before);
    assert_eq!(site.store().deliveries_of_ready("plain"), [0], "nothing was consumed");

    for nowhere in ["no-such.toml", "."] {
        let mut host = site.process(PLAIN).env("BUS_CONFIG", nowhere).start();
        assert_eq!(host.exit().await.code(), Some(1));
        let said = host.said();
        assert!(
            said.contains("variable BUS_CONFIG: cannot read") && said.contains(nowhere),
            "it said: {said}"
        );
    }
    assert_eq!(site.store().deliveries_of_ready("plain"), [0], "nothing was consumed");
}

/// M17: a signal that comes while the host is still starting is obeyed at once.
#[tokio::test]
async fn a_signal_during_the_start_ends_it() {
    let site = Site::new();
    send_plain(&site, [Task::new(1)]).await;
    let mut host = actor(&site, &["plain", "single"]).env("BUS_TEST_START", "slow").start();
    site.entry("the provider is at work", |entry| entry.e == "starting").await;
    host.terminate();
    let (status, _) = host.exit_within(Duration::from_secs(10)).await;
    assert!(status.success(), "it exits with {status}");
    assert_eq!(site.store().deliveries_of_ready("plain"), [0], "nothing was consumed");
}

/// A mistake in an address is said with its place, be it the scheme, a parameter, or what only the opened store knows.
#[tokio::test]
async fn a_mistake_in_an_address_is_named_with_its_line_and_key() {
    let site = Site::new();
    for (address, why) in [
        ("sqlte://bus.db", "no backend for sqlte://"),
        ("sqlite://bus.db?sychronous=NORMAL", "no parameter \"sychronous\""),
        ("redis://127.0.0.1/0?timeout=soon", "timeout"),
        ("postgres://", "names no host"),
    ] {
        let config = format!("shutdown_grace_period = \"1s\"\n\n[transports]\ndefault = \"{address}\"\n");
        let setup = site.process(PLAIN).without("BUS_TRANSPORTS__DEFAULT").config(&config);
        let mut host = setup.start();
        assert_eq!(host.exit().await.code(), Some(1), "{address}");
        let said = host.said();
        for words in [".toml:4: `transports.default`", why] {
            assert!(said.contains(words), "{address}: {words} is missing from: {said}");
        }
    }
    let wrong = site.process(PLAIN).env("BUS_TRANSPORTS__DEFAULT", "sqlite://bus.db?size=3");
    let mut host = wrong.start();
    assert_eq!(host.exit().await.code(), Some(1));
    assert!(host.said().contains("variable BUS_TRANSPORTS__DEFAULT"), "it said: {}", host.said());
}

/// In the words that all stores share.
#[tokio::test]
async fn the_start_says_what_an_acknowledgement_is_worth() {
    let site = Site::new();
    for (setting, worth) in [("FULL", "fsynced"), ("NORMAL", "written, but not fsynced yet")] {
        let url = format!("{}?synchronous={setting}", site.url());
        let mut host = site.process(PLAIN).env("BUS_TRANSPORTS__DEFAULT", url).start();
        let told = format!("an acknowledged message is {worth}: ");
        until_true("it is said", || host.said().contains(&told)).await;
        host.terminate();
        assert!(host.exit().await.success());
    }
}

/// M10, M17: a server that refuses connections is waited for: that is said at once, with the transport, the address without
/// its secrets, and the reason; SIGTERM ends the wait at once.
#[tokio::test]
async fn a_server_that_is_not_there_is_waited_for_and_named_and_a_signal_ends_the_wait() {
    let site = Site::new();
    let nowhere =
        format!("redis://shop:s3cret@127.0.0.1:{}/0", bus_emulators::free_port().expect("a free port"));
    let mut host = site.process(PLAIN).env("BUS_TRANSPORTS__DEFAULT", &nowhere).start();
    until_true("it says that it waits", || host.said().contains("waiting for default")).await;
    until_true("it says what is waited for", || host.said().contains(", waited for")).await;
    assert!(host.try_exit().is_none(), "it waits: {}", host.said());
    host.terminate();
    let (status, _) = host.exit_within(Duration::from_secs(5)).await;
    assert!(status.success(), "it exits with {status}: {}", host.said());
    let said = host.said();
    for words in ["redis://…@127.0.0.1:", "Connection refused", "note <- plain"] {
        assert!(said.contains(words), "{words} is missing from: {said}");
    }
    assert!(!said.contains("s3cret"), "it said: {said}");

    let mut refused =
        site.process(PLAIN).env("BUS_TRANSPORTS__DEFAULT", &nowhere).env("BUS_ON_STORE_DOWN", "fail").start();
    assert_eq!(refused.exit().await.code(), Some(1));
    let said = refused.said();
    assert!(said.contains("transport: default") && said.contains("Connection refused"), "it said: {said}");

    let limited = site.process(PLAIN).env("BUS_TRANSPORTS__DEFAULT", &nowhere);
    let mut limited = limited.env("BUS_STORE_WAIT_LIMIT", "1s").start();
    assert_eq!(limited.exit().await.code(), Some(1));
    let said = limited.said();
    assert!(said.contains("store_wait_limit") && said.contains("Connection refused"), "it said: {said}");
}

/// A program without processors sends through `bus::connect()`, each message to the transport that it names.
#[tokio::test]
async fn a_producer_without_processors_sends_to_the_transports_that_its_messages_name() {
    let site = Site::new();
    let billing = site.url_of("billing.db");
    let mut producer = site.process(PRODUCER).env("BUS_TRANSPORTS__BILLING", billing).start();
    assert!(producer.exit().await.success(), "it said: {}", producer.said());
    let one = Counts { ready: 1, ..Counts::default() };
    assert_eq!(site.store().counts("plain"), one);
    assert_eq!(site.store().counts("invoice"), Counts::default());
    let other = bus_tests::store::Store::open(&site.path("billing.db"));
    assert_eq!(other.counts("invoice"), one);
    assert_eq!(other.counts("plain"), Counts::default());
}

/// What is not configured is said when it is sent to, with what there is.
#[tokio::test]
async fn a_producer_whose_message_names_no_transport_of_the_configuration_is_told() {
    let site = Site::new();
    let mut producer = site.process(PRODUCER).start();
    assert!(!producer.exit().await.success());
    let said = producer.said();
    assert!(said.contains("billing") && said.contains("[transports]"), "it said: {said}");
    assert_eq!(site.store().counts("plain").ready, 1, "what came before it was sent");
}

/// A store that cannot be opened ends the start, with its name.
#[tokio::test]
async fn a_store_that_cannot_be_opened_is_named() {
    let site = Site::new();
    let nowhere = format!("sqlite://{}/no/such/folder/bus.db", site.path("").display());
    let mut host = site.process(PLAIN).env("BUS_TRANSPORTS__DEFAULT", nowhere).start();
    assert_eq!(host.exit().await.code(), Some(1));
    let said = host.said();
    assert!(said.contains("no/such/folder/bus.db"), "it said: {said}");
}
