//! Conditions awaited with a deadline, instead of sleeps that hope.

use std::time::{Duration, Instant};

/// Longer than anything takes here, also on a machine that has other things to do; only a defect waits so long.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Waits until `check` answers something.
///
/// # Panics
/// If it has not after [`PATIENCE`].
pub async fn until<T>(what: &str, check: impl FnMut() -> Option<T>) -> T {
    until_within(what, PATIENCE, check).await
}

/// [`until`], with another deadline.
///
/// # Panics
/// If there is no answer in time.
pub async fn until_within<T>(what: &str, patience: Duration, mut check: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(started.elapsed() < patience, "after {patience:?} still not: {what}");
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until `check` is true.
///
/// # Panics
/// If it is not after [`PATIENCE`].
pub async fn until_true(what: &str, mut check: impl FnMut() -> bool) {
    until(what, || check().then_some(())).await;
}

/// For how long something must stay as it is, where the absence of an event is to be shown.
///
/// # Panics
/// As soon as `holds` is false.
pub async fn stays(what: &str, how_long: Duration, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while started.elapsed() < how_long {
        assert!(holds(), "it did not stay so: {what} (after {:?})", started.elapsed());
        tokio::time::sleep(LOOK).await;
    }
}

/// Awaits a future for at most [`PATIENCE`].
///
/// # Panics
/// If it takes longer.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("after {PATIENCE:?} still not: {what}"),
    }
}

/// Waits until a process that was sent SIGSTOP has stopped: until then its threads go on where they are.
///
/// # Panics
/// If it goes on for ten seconds.
pub fn until_stopped(process: u32) {
    let is_stopped = |stat: String| {
        // The state follows the name, which is in brackets and may be anything.
        stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['T', 't', 'Z', 'X']))
    };
    let begun = Instant::now();
    loop {
        // One that has ended is as good as stopped, and so is a thread.
        let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return };
        let mut stats =
            threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
        if stats.all(is_stopped) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "process {process} does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}
