//! No warnings of any kind, wherever it is written.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unused_qualifications, unreachable_pub, rust_2018_idioms)]
#![warn(clippy::pedantic)]

mod tests {
    //! Every name that the expansion might take for granted means something else here.
    use ::bus::prelude::{Command, Dep, Event, Settings, processor, provide};
    use serde::{Deserialize, Serialize};

    /// Not the standard library's.
    pub(crate) enum Result {}
    /// Not the standard library's.
    pub(crate) enum Option {}
    /// Not the standard library's.
    pub(crate) enum Box {}
    /// Not the standard library's.
    pub(crate) enum String {}
    /// Not the standard library's.
    pub(crate) enum Vec {}
    /// Not the standard library's.
    pub(crate) enum Some {}
    /// Not the standard library's.
    pub(crate) enum None {}
    /// Not the standard library's.
    #[allow(non_camel_case_types, reason = "it is to be in the way")]
    pub(crate) enum str {}
    /// Not the standard library's.
    #[allow(non_camel_case_types, reason = "it is to be in the way")]
    pub(crate) enum usize {}
    /// Not ours.
    pub(crate) mod core {}
    /// Not ours.
    pub(crate) mod std {}
    /// Not ours.
    pub(crate) mod bus {}

    /// A command.
    #[derive(Serialize, Deserialize, Command)]
    #[command(queue = "register")]
    pub(crate) struct Register;

    /// An event.
    #[derive(Serialize, Deserialize, Event)]
    #[event(topic = "registered")]
    pub(crate) struct Registered;

    /// Settings.
    #[derive(Settings)]
    #[settings(max_concurrent_calls = 2, lease = "1s", retry(fixed = "1s"))]
    pub(crate) struct Few;

    /// A value.
    #[provide]
    pub(crate) async fn few() -> Few {
        Few
    }

    /// A function whose name the expansion might want for itself.
    #[processor(settings = Few, message_lock_timeout = "2s")]
    pub(crate) async fn register(message: Register, few: Dep<Few>) {
        let _ = (message, few);
    }

    /// A processor.
    #[processor(subscription = "a")]
    pub(crate) async fn message(_event: Registered, _few: Dep<Few>) {}

    /// One that is not compiled.
    #[processor(subscription = "a")]
    #[cfg(any())]
    pub(crate) async fn not_here(_event: Registered) {}

    #[processor(subscription = "old")]
    #[deprecated]
    async fn old(_event: Registered) {}
}

fn main() {}
