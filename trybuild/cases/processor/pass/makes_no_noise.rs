//! No warnings of any kind, wherever it is written.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unused_qualifications, unreachable_pub, rust_2018_idioms)]
#![warn(clippy::pedantic)]
#![allow(unreachable_pub)]

mod tests {
    //! Every name that the expansion might take for granted means something else here.
    use ::bus::prelude::{Command, Dep, Event, Settings, processor, provide};
    use serde::{Deserialize, Serialize};

    /// Not the standard library's.
    pub enum Result {}
    /// Not the standard library's.
    pub enum Option {}
    /// Not the standard library's.
    pub enum Box {}
    /// Not the standard library's.
    pub enum String {}
    /// Not the standard library's.
    pub enum Vec {}
    /// Not the standard library's.
    pub enum Some {}
    /// Not the standard library's.
    pub enum None {}
    /// Not the standard library's.
    #[allow(non_camel_case_types)]
    pub enum str {}
    /// Not the standard library's.
    #[allow(non_camel_case_types)]
    pub enum usize {}
    /// Not ours.
    pub mod core {}
    /// Not ours.
    pub mod std {}
    /// Not ours.
    pub mod bus {}

    /// A command.
    #[derive(Serialize, Deserialize, Command)]
    #[command(queue = "register")]
    pub struct Register;

    /// An event.
    #[derive(Serialize, Deserialize, Event)]
    #[event(topic = "registered")]
    pub struct Registered;

    /// Settings.
    #[derive(Settings)]
    #[settings(max_concurrent_calls = 2, lease = "1s", retry(fixed = "1s"))]
    pub struct Few;

    /// A value.
    #[provide]
    pub async fn few() -> Few {
        Few
    }

    /// A function whose name the expansion might want for itself.
    #[processor(settings = Few, message_lock_timeout = "2s")]
    pub async fn register(message: Register, few: Dep<Few>) {
        let _ = (message, few);
    }

    /// A processor.
    #[processor(subscription = "a")]
    pub async fn message(_event: Registered, _few: Dep<Few>) {}

    /// One that is not compiled.
    #[processor(subscription = "a")]
    #[cfg(any())]
    pub async fn not_here(_event: Registered) {}

    #[processor(subscription = "old")]
    #[deprecated]
    async fn old(_event: Registered) {}
}

fn main() {}
