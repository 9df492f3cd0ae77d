//! `bus::testing`, as a user of `bus` uses it.

mod dead_letters;
mod faults;
mod handlers;
mod history;
mod lifecycle;
mod starting;
mod time;

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;

/// What a future panics with.
async fn panic_of<T>(work: impl Future<Output = T>) -> String {
    text_of(AssertUnwindSafe(work).catch_unwind().await.err().expect("it panics"))
}

/// What a function panics with.
fn panic_in<T>(work: impl FnOnce() -> T) -> String {
    text_of(std::panic::catch_unwind(AssertUnwindSafe(work)).err().expect("it panics"))
}

fn text_of(panic: Box<dyn std::any::Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&'static str>().expect("a text").to_string(),
    }
}
