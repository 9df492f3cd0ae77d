//! What start-up says: what runs, over what, with which promises.

use std::fmt::Write;
use std::sync::Once;
use std::time::Duration;

use super::stores::Stores;
use super::wiring::Planned;
use crate::contract::{Guarantees, LockGuarantees};
use crate::error::Error;

/// Says what has been started: what is reached, what is waited for, what runs.
pub(super) fn started(
    processors: &[Planned],
    addresses: &[(String, String)],
    stores: &Stores,
    fallback: bool,
) {
    let guarantees = stores.guarantees();
    let promised = stores.locks().map(|locks| locks.guarantees());
    let default = if fallback { " (nothing is configured, so this is the default)" } else { "" };
    for (name, there) in &guarantees {
        say(&transport(name, there, default));
    }
    for (name, address) in addresses.iter().filter(|(name, _)| stores.transport(name).is_err()) {
        say(&format!("transport {name}: {address}{default}, waited for"));
    }
    if let Some(promised) = &promised {
        say(&locks(promised));
    }
    let mut text = String::new();
    for planned in processors {
        processor(&mut text, planned);
    }
    say(&text);
    warn_if_unheard();
    say_permitted(processors, stores);
}

/// Says which singletons run only by permission, as far as the stores are there that tell.
pub(super) fn say_permitted(processors: &[Planned], stores: &Stores) {
    if let Some(locks) = stores.locks() {
        say(&permitted(processors, &stores.guarantees(), &locks.guarantees()));
    }
}

/// What a transport is, in a line.
pub(super) fn transport(name: &str, guarantees: &Guarantees, note: &str) -> String {
    format!(
        "transport {name}: {}{note}, shared by the {}; an acknowledged message is {}: {}",
        guarantees.store, guarantees.reach, guarantees.durability, guarantees.acknowledgement
    )
}

/// What the locks are, in a line.
pub(super) fn locks(locks: &LockGuarantees) -> String {
    format!(
        "locks: {}, for the {}; a lease ends by {}; a lock that is held is {}; fences {} across a restore; {}",
        locks.authority,
        locks.reach,
        locks.expiry,
        locks.durability,
        if locks.monotonic_across_restore { "grow" } else { "may repeat" },
        if locks.watch {
            "a release is told at once".to_owned()
        } else {
            format!("asked for every {:?}", locks.poll)
        },
    )
}

/// A store is not there, and is waited for.
pub(super) fn waiting(store: &str, address: &str, waited: Duration, error: Option<&Error>) {
    let why = error.map_or_else(|| "it does not answer".to_owned(), Error::with_causes);
    let text = format!(
        "waiting for {store} at {address}, which has not been there for {waited:.1?}: {why}. What needs it begins when it comes; everything else goes on"
    );
    if tracing::dispatcher::has_been_set() {
        tracing::warn!(target: "bus::host", event = "store.awaited", store, address, ?waited, error = why, "{text}");
    } else {
        say(&text);
    }
}

/// A store that was waited for has come.
pub(super) fn reached(store: &str, address: &str, waited: Duration) {
    let text = format!("{store} at {address} is there after {waited:.1?}");
    if tracing::dispatcher::has_been_set() {
        tracing::info!(target: "bus::host", event = "store.reached", store, address, ?waited, "{text}");
    } else {
        say(&text);
    }
}

/// The singletons that run only because `locks_reach` permits locks that reach less far than their messages (§5.13 of
/// the design: allowed, and said).
fn permitted(processors: &[Planned], transports: &[(String, Guarantees)], locks: &LockGuarantees) -> String {
    let mut text = String::new();
    for planned in processors.iter().filter(|planned| planned.lock.is_some()) {
        let (name, messages) = (planned.processor.name, planned.processor.transport);
        let transport = transports.iter().find(|(name, _)| name == messages);
        let Some((_, transport)) = transport.filter(|(_, there)| locks.reach < there.reach) else { continue };
        line(
            &mut text,
            format_args!(
                "locks_reach permits it: the locks of {name} reach only the {}, its messages the whole {}; a second {} that runs it would run it at the same time",
                locks.reach, transport.reach, locks.reach
            ),
        );
    }
    text
}

fn processor(text: &mut String, planned: &Planned) {
    let (processor, settings) = (&planned.processor, &planned.settings);
    let lock = match &planned.lock {
        Some(lock) => format!("singleton under the lock {} for {:?}", lock.id, lock.timing.lock_lease()),
        None => format!("{} at once, {} ahead", settings.max_concurrent_calls, settings.prefetch_count),
    };
    line(
        text,
        format_args!(
            "{} <- {}: {lock}; a run at most {:?}, {} attempts, settings {} ({}, {}:{})",
            processor.name,
            processor.endpoint,
            settings.message_lock_timeout,
            settings.dead_letter_delivery_limit,
            processor.settings_name,
            processor.krate,
            processor.file,
            processor.line,
        ),
    );
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    let _ = writeln!(text, "{line}");
}

/// Warns a program that has set up no subscriber, once, however many hosts it starts: it will not hear of anything that
/// fails.
fn warn_if_unheard() {
    static SAID: Once = Once::new();
    if !tracing::dispatcher::has_been_set() {
        SAID.call_once(|| {
            say("no tracing subscriber is set up, so nothing that fails later will be seen: add tracing_subscriber::fmt::init() to main");
        });
    }
}

/// Says it where it is heard: to the program's tracing subscriber, or to standard error where there is none.
#[allow(
    clippy::print_stderr,
    reason = "a program that has set up no subscriber would otherwise start in silence"
)]
pub(super) fn say(text: &str) {
    for line in text.lines() {
        if tracing::dispatcher::has_been_set() {
            tracing::info!(target: "bus::host", "{line}");
        } else {
            eprintln!("bus: {line}");
        }
    }
}
