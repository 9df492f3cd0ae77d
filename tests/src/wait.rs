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
