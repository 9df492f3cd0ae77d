//! The lock manager of this example keeps every promise that the suite knows of, on tokio's virtual time.

use std::sync::Arc;

use bus::Result;
use bus::conformance::{LockSubject, Outcome, lock};
use bus::contract::{BoxFuture, LockManager};
use map_locks::MapLocks;

/// Hosts that share one map.
#[derive(Default)]
struct Subject(MapLocks);

impl LockSubject for Subject {
    fn open_locks(&self) -> BoxFuture<'_, Result<Arc<dyn LockManager>>> {
        Box::pin(std::future::ready(Ok(Arc::new(self.0.clone()) as Arc<dyn LockManager>)))
    }
}

#[tokio::test(start_paused = true)]
async fn the_map_keeps_every_promise_of_a_lock_manager() {
    let subject = Subject::default();
    let (mut failed, mut unavailable) = (Vec::new(), Vec::new());
    for case in lock::cases() {
        match case.run(&subject).await {
            Outcome::Passed => {}
            Outcome::Unavailable(_) => unavailable.push(case.name),
            Outcome::Failed(failure) => failed.push(format!("{}: {failure}", case.name)),
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    // What it does not offer, and does not pretend to: records, notes and a watch are optional.
    assert_eq!(
        unavailable,
        [
            "a_record_shows_its_holder",
            "a_record_shows_how_its_term_ended",
            "a_record_of_an_expired_term_is_free",
            "records_are_listed_by_prefix",
            "a_note_is_kept_for_the_next_holder",
            "a_former_holder_notes_nothing",
            "a_watch_tells_of_a_release",
            "a_watch_tells_of_giving_up",
        ]
    );
}
