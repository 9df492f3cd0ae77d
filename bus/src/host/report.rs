//! What start-up says: what runs, over what, with which promises.

use std::fmt::Write;

use super::wiring::Planned;
use crate::contract::{Guarantees, LockGuarantees};

/// The lines that a host prints when it has started.
pub(super) fn lines(
    processors: &[Planned],
    transports: &[(String, Guarantees)],
    fallback: bool,
    locks: Option<&LockGuarantees>,
) -> String {
    let mut text = String::new();
    for (name, guarantees) in transports {
        let default = if fallback { " (nothing is configured, so this is the default)" } else { "" };
        line(
            &mut text,
            format_args!(
                "transport {name}: {}{default}, shared by the {}; sent means: {}",
                guarantees.store, guarantees.reach, guarantees.acknowledgement
            ),
        );
    }
    if let Some(locks) = locks {
        line(
            &mut text,
            format_args!(
                "locks: {}, for the {}; a lease ends by {}; fences {} across a restore; {}",
                locks.authority,
                locks.reach,
                locks.expiry,
                if locks.monotonic_across_restore { "grow" } else { "may repeat" },
                if locks.watch {
                    "a release is told at once".to_owned()
                } else {
                    format!("asked for every {:?}", locks.poll)
                },
            ),
        );
    }
    for planned in processors {
        processor(&mut text, planned);
    }
    text
}

/// The singletons that run only because `locks_reach` permits locks that reach less far than their messages (§5.13 of
/// the design: allowed, and said).
pub(super) fn permitted(
    processors: &[Planned],
    transports: &[(String, Guarantees)],
    locks: &LockGuarantees,
) -> String {
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

/// Warns a program that has set up no subscriber: it will not hear of anything that fails.
pub(super) fn warn_if_unheard() {
    if !tracing::dispatcher::has_been_set() {
        say(
            "no tracing subscriber is set up, so nothing that fails later will be seen: add tracing_subscriber::fmt::init() to main",
        );
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
