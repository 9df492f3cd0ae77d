//! What a program's own unit test finds out about its wiring.

use bus::ErrorKind;
use bus::host::config::Config;

use super::{Place, Probe, handlers};

fn probe() -> Probe {
    let (seen, _) = tokio::sync::mpsc::unbounded_channel();
    Probe { seen, answer: std::sync::Arc::new(|_| handlers::Answer::Done) }
}

/// The line of this binary's handlers on which `text` stands.
fn line_of(text: &str) -> usize {
    let source = include_str!("handlers.rs");
    1 + source.lines().position(|line| line.contains(text)).expect("it is written there")
}

/// §6: whatever only the whole binary can know, all of it at once, with file and line, and without connecting.
#[test]
fn a_check_names_everything_that_is_wrong_with_its_place() {
    let error = bus::check_with(|host| host.provide(probe())).expect_err("a lot is wrong");
    assert_eq!(error.kind(), ErrorKind::Wiring);
    let text = error.to_string();
    // A macro's place is that of its attribute, the line above the function.
    for (function, words) in [
        ("async fn unprovided", "Dep<"),
        ("async fn lost", "\"nowhere\", which is not configured"),
        ("async fn invoice", "\"billing\", which is not configured"),
        ("async fn strict", "`strict` is a singleton, and there is no lock manager"),
        ("async fn relaxed", "`relaxed` is a singleton, and there is no lock manager"),
        ("async fn dig", "`dig` is a singleton, and there is no lock manager"),
        ("async fn single_relay", "`single_relay` is a singleton, and there is no lock manager"),
    ] {
        let place = format!("in_process_host/handlers.rs:{}: ", line_of(function) - 1);
        let found = text.lines().find(|line| line.contains(words) && line.contains(&place));
        assert!(found.is_some(), "nothing about {function} at {place} in: {text}");
    }
    assert!(text.contains("the queue `twice` has two processors"), "{text}");
    assert!(text.contains("locks = \"default\""), "the way out is missing: {text}");
    assert!(text.contains("9 things are wrong"), "{text}");
}

/// The same, for `bus::check()`, in which nothing is provided.
#[test]
fn a_check_without_adjustments_misses_what_is_given_in_code_alone() {
    let text = bus::check().expect_err("a lot is wrong").to_string();
    assert!(text.contains("Probe") && text.contains("Host::builder().provide("), "{text}");
}

#[test]
fn a_check_of_what_is_sound_finds_nothing() {
    bus::check_with(|host| host.provide(probe()).only(["note", "relay", "relayed", "scoped-note"]))
        .expect("plain processors need no lock manager");
    bus::check_with(|host| host.provide(probe()).only(["strict", "note"]).locks_at("default"))
        .expect("a singleton with locks is sound");
}

/// §5.13, in code.
#[test]
fn a_lock_that_reaches_less_far_than_the_messages_is_refused_in_code_too() {
    let place = Place::sqlite();
    let text = bus::check_with(|host| {
        host.provide(probe()).only(["strict"]).transport("default", &place.url).locks_at("memory://here")
    })
    .expect_err("two processes could run it at once")
    .to_string();
    assert!(text.contains("`strict`") && text.contains("memory://here"), "{text}");
    assert!(text.contains("locks_reach = \"process\""), "{text}");
}

/// A lease that the locks do not take is known before anything is connected: with function, place and what is allowed.
#[test]
fn a_lease_that_the_locks_do_not_take_is_refused() {
    let with = |locks: &str, lease: std::time::Duration| {
        let mut config = Config::default().with_locks(locks).expect("a URL");
        config.lock_lease = Some(lease);
        bus::check_with(|host| host.config(config).provide(probe()).only(["strict"]))
    };
    let seconds = std::time::Duration::from_secs;
    for (locks, lease, allowed) in [
        ("azblob://locks", seconds(14), "15s to 60s"),
        ("azblob://locks", seconds(61), "15s to 60s"),
        ("default", std::time::Duration::from_millis(500), "1s to 600s"),
    ] {
        let text = with(locks, lease).expect_err("no such lease is given").to_string();
        let place = format!("in_process_host/handlers.rs:{}: ", line_of("async fn strict") - 1);
        for part in [place.as_str(), "`strict`", &format!("lock_lease is {lease:?}"), allowed] {
            assert!(text.contains(part), "no {part} in {text}");
        }
    }
    for (locks, lease) in
        [("azblob://locks", seconds(15)), ("azblob://locks", seconds(60)), ("default", seconds(1))]
    {
        with(locks, lease).unwrap_or_else(|error| panic!("{locks} gives {lease:?}: {error}"));
    }
}

/// The same for a lock manager that is given in code.
#[test]
fn a_lease_that_given_locks_do_not_take_is_refused() {
    use bus::backend::azure_storage::BlobLocks;
    let with = |lease: Option<u64>| {
        let mut config = Config::default();
        config.lock_lease = lease.map(std::time::Duration::from_secs);
        let locks = BlobLocks::from_connection_string("UseDevelopmentStorage=true", "locks").expect("locks");
        bus::check_with(|host| host.config(config).provide(probe()).only(["strict"]).locks(locks))
    };
    let text = with(Some(10)).expect_err("Azure gives no such lease").to_string();
    assert!(
        text.contains("`strict`") && text.contains("azblob:127.0.0.1:10000/devstoreaccount1/locks"),
        "{text}"
    );
    with(None).expect("its own default is one that it gives");
    with(Some(60)).expect("its longest");
}

#[test]
fn a_name_that_no_processor_has_is_told() {
    let text = bus::check_with(|host| host.provide(probe()).only(["note", "nota"]))
        .expect_err("there is no nota")
        .to_string();
    assert!(text.contains("\"nota\""), "{text}");
}
