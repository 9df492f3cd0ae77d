//! Records, notes, hints.

use super::bench::Bench;
use crate::conformance::Checked;
use crate::conformance::case::{cases, ensure};
use crate::contract::Ended;

pub(super) fn cases() -> Vec<super::Case> {
    cases! {
        [Records] a_record_shows_its_holder = "A record names lock, owner, fence, lease, and how long it is held.";
        [Records] a_record_shows_how_its_term_ended = "A record says whether the term ended cleanly, or why it was cut.";
        [Records] a_record_of_an_expired_term_is_free = "A record whose lease has run out shows a free lock.";
        [Records] records_are_listed_by_prefix = "All records whose id begins alike are listed.";
        [Notes] a_note_is_kept_for_the_next_holder = "A note of up to 1 KiB is kept with the record, across terms.";
        [Notes] a_former_holder_notes_nothing = "A note after another's take-over changes nothing.";
        [Watch] a_watch_tells_of_a_release = "A watch returns when the lock is released.";
        [Watch] a_watch_tells_of_giving_up = "A watch returns when the lock is given up.";
    }
}

async fn a_record_shows_its_holder(bench: &Bench) -> Checked {
    let id = bench.id("shown");
    let lease = bench.take(&id, bench.long).await?;
    let record = bench.record(&id).await?;
    ensure!(record.id == id, "the record is of {}", record.id);
    ensure!(record.owner == lease.lease_id(), "its owner is shown as {}", record.owner);
    ensure!(record.fence == lease.fence(), "its fence is shown as {}", record.fence);
    ensure!(record.lock_lease == bench.long, "its lease is shown as {:?}", record.lock_lease);
    ensure!(record.ended.is_none(), "a running term is shown as {:?}", record.ended);
    let held_for = record.held_for.unwrap_or_default();
    ensure!(!held_for.is_zero() && held_for <= bench.long, "it is shown as held for {:?}", record.held_for);
    Ok(())
}

async fn a_record_shows_how_its_term_ended(bench: &Bench) -> Checked {
    let id = bench.id("ended");
    let lease = bench.take(&id, bench.long).await?;
    lease.release(Ended::Clean).await?;
    let record = bench.record(&id).await?;
    ensure!(record.ended == Some(Ended::Clean), "a clean end is shown as {:?}", record.ended);
    ensure!(record.held_for.is_none(), "a released lock is shown as held for {:?}", record.held_for);
    let lease = bench.take(&id, bench.long).await?;
    lease.release(Ended::Cut("it hung".into())).await?;
    let record = bench.record(&id).await?;
    ensure!(record.ended == Some(Ended::Cut("it hung".into())), "a cut is shown as {:?}", record.ended);
    ensure!(record.held_for.is_some(), "a cut lock is shown as free");
    Ok(())
}

async fn a_record_of_an_expired_term_is_free(bench: &Bench) -> Checked {
    let id = bench.id("expired");
    let lease = bench.take(&id, bench.short).await?;
    tokio::time::sleep(bench.short + bench.timing.moment).await;
    let record = bench.record(&id).await?;
    ensure!(record.held_for.is_none(), "an expired lock is shown as held for {:?}", record.held_for);
    ensure!(record.fence == lease.fence(), "its last fence is shown as {}", record.fence);
    Ok(())
}

async fn records_are_listed_by_prefix(bench: &Bench) -> Checked {
    let ids = [bench.id("list-a"), bench.id("list-b")];
    let other = bench.id("other");
    for id in ids.iter().chain([&other]) {
        bench.take(id, bench.long).await?;
    }
    let prefix = bench.id("list-");
    let mut listed: Vec<_> =
        bench.other_host.list(prefix.as_str()).await?.into_iter().map(|record| record.id).collect();
    listed.sort();
    ensure!(listed == ids, "{listed:?} was listed");
    Ok(())
}

async fn a_note_is_kept_for_the_next_holder(bench: &Bench) -> Checked {
    let id = bench.id("noted");
    let lease = bench.take(&id, bench.long).await?;
    let note: Vec<u8> = (0..=255).cycle().take(1024).collect();
    lease.note(b"first".to_vec()).await?;
    lease.note(note.clone()).await?;
    lease.release(Ended::Clean).await?;
    let kept = bench.record(&id).await?.note;
    ensure!(kept == note, "of 1024 bytes {} were kept", kept.len());
    bench.take(&id, bench.long).await?;
    let kept = bench.record(&id).await?.note;
    ensure!(kept == note, "the next holder found {} of 1024 bytes", kept.len());
    Ok(())
}

async fn a_former_holder_notes_nothing(bench: &Bench) -> Checked {
    let id = bench.id("noted-late");
    let former = bench.take(&id, bench.long).await?;
    former.release(Ended::Clean).await?;
    let holder = bench.take(&id, bench.long).await?;
    holder.note(b"mine".to_vec()).await?;
    // Refused or ignored, as the manager prefers.
    let _ = former.note(b"late".to_vec()).await;
    let kept = bench.record(&id).await?.note;
    ensure!(kept == b"mine", "a former holder's note was kept");
    Ok(())
}

async fn watched(bench: &Bench, name: &str, give_up: bool) -> Checked {
    let id = bench.id(name);
    let lease = bench.take(&id, bench.long).await?;
    let watch = tokio::time::timeout(bench.timing.patience, bench.other_host.watch(&id));
    let free = async {
        tokio::time::sleep(bench.timing.moment).await;
        if give_up {
            bench.host.give_up(&id, lease.lease_id()).await
        } else {
            lease.release(Ended::Clean).await
        }
    };
    let (told, freed) = futures_util::join!(watch, free);
    freed?;
    ensure!(told.is_ok(), "the watch said nothing for {:?}", bench.timing.patience);
    Ok(())
}

async fn a_watch_tells_of_a_release(bench: &Bench) -> Checked {
    watched(bench, "watched", false).await
}

async fn a_watch_tells_of_giving_up(bench: &Bench) -> Checked {
    watched(bench, "watched-given-up", true).await
}
