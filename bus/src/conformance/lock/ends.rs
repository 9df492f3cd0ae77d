//! How terms end, and what a former holder can still do. Scenarios S3, S8, S13, S23.

use std::time::Duration;

use tokio::time::Instant;

use super::bench::{Bench, expect_growth, expect_lost, renew};
use crate::conformance::Checked;
use crate::conformance::case::{cases, ensure};
use crate::contract::{Ended, Lease, LockId, Owner};

pub(super) fn cases() -> Vec<super::Case> {
    cases! {
        a_clean_release_frees_at_once = "After a clean release the next holder starts at once.";
        a_cut_frees_nothing_early = "After a cut the record stays taken until its lease has run out.";
        a_cut_binds_its_owner_too = "After a cut not even the same owner gets the lock early.";
        a_released_lock_cannot_be_renewed = "A term that was released, cleanly or by a cut, is over.";
        releasing_twice_is_no_error = "That the lock is no longer ours is no error when it is released.";
        a_former_holder_renews_nothing = "A renewal after another's take-over is lost and changes nothing.";
        a_former_holder_releases_nothing = "A release after another's take-over changes nothing.";
        a_former_term_of_the_same_owner_is_over = "Renewing and releasing check the fence, not the owner alone.";
        the_same_owner_gets_a_new_term_after_release = "After its release an owner begins a new term with a new fence.";
        giving_up_frees_what_is_held = "Giving up releases what was acquired without knowing.";
        a_stranger_gives_up_nothing = "Giving up what is another's changes nothing.";
        giving_up_keeps_a_cut = "Giving up after a cut frees nothing early.";
    }
}

/// A holder whose lease has run out, and the one who took the lock over for long.
async fn overtaken(bench: &Bench, id: &LockId) -> Checked<(Box<dyn Lease>, Box<dyn Lease>)> {
    let former = bench.take(id, bench.short).await?;
    let (holder, _) = bench.wait_for(id, bench.long).await?;
    expect_growth(former.fence(), holder.fence(), "a take-over")?;
    Ok((former, holder))
}

async fn a_clean_release_frees_at_once(bench: &Bench) -> Checked {
    let id = bench.id("clean");
    let lease = bench.take(&id, bench.long).await?;
    lease.release(Ended::Clean).await?;
    let next = bench.try_take(&bench.other_host, &id, bench.long).await?;
    ensure!(next.is_some(), "after a clean release the next was answered None");
    Ok(())
}

async fn a_cut_frees_nothing_early(bench: &Bench) -> Checked {
    let id = bench.id("cut");
    let lease = bench.take(&id, bench.short).await?;
    let renewed = Instant::now();
    renew(&*lease).await?;
    lease.release(Ended::Cut("it did not stop in time".into())).await?;
    let (_, freed) = bench.wait_for(&id, bench.short).await?;
    let held = freed - renewed + Duration::from_millis(1);
    ensure!(held >= bench.short, "after a cut a lease of {:?} ended after {held:?}", bench.short);
    Ok(())
}

async fn a_cut_binds_its_owner_too(bench: &Bench) -> Checked {
    let id = bench.id("cut-owner");
    let lease = bench.take(&id, bench.long).await?;
    lease.release(Ended::Cut("it did not stop in time".into())).await?;
    let again = bench.host.try_lock(&id, bench.long, lease.lease_id()).await?;
    ensure!(again.is_none(), "the owner got the lock back in spite of the cut");
    Ok(())
}

async fn a_released_lock_cannot_be_renewed(bench: &Bench) -> Checked {
    for ended in [Ended::Clean, Ended::Cut("cut".into())] {
        let why = format!("it was released as {ended:?}");
        let lease = bench.take(&bench.id(&format!("over-{}", ended == Ended::Clean)), bench.long).await?;
        lease.release(ended).await?;
        expect_lost(&*lease, &why).await?;
    }
    Ok(())
}

async fn releasing_twice_is_no_error(bench: &Bench) -> Checked {
    let id = bench.id("twice");
    let lease = bench.take(&id, bench.long).await?;
    lease.release(Ended::Clean).await?;
    lease.release(Ended::Clean).await?;
    let next = bench.take(&id, bench.long).await?;
    lease.release(Ended::Clean).await?;
    lease.release(Ended::Cut("late".into())).await?;
    bench.expect_held(&id, "only a former holder had released it").await?;
    renew(&*next).await
}

async fn a_former_holder_renews_nothing(bench: &Bench) -> Checked {
    let id = bench.id("renews-nothing");
    let former = bench.take(&id, bench.short).await?;
    let (holder, _) = bench.wait_for(&id, bench.short).await?;
    let taken = Instant::now();
    expect_lost(&*former, "another had taken over").await?;
    ensure!(holder.fence() > former.fence(), "the fence fell to {}", holder.fence());
    // Its renewal has not prolonged the new holder's lease either, and not taken it away.
    renew(&*holder).await?;
    expect_lost(&*former, "another had taken over").await?;
    bench.expect_held_until(&id, taken + bench.short, "its holder had just renewed it").await
}

async fn a_former_holder_releases_nothing(bench: &Bench) -> Checked {
    let id = bench.id("releases-nothing");
    let (former, holder) = overtaken(bench, &id).await?;
    for ended in [Ended::Clean, Ended::Cut("late".into())] {
        former.release(ended).await?;
        bench.expect_held(&id, "only a former holder had released it").await?;
        renew(&*holder).await?;
    }
    Ok(())
}

async fn a_former_term_of_the_same_owner_is_over(bench: &Bench) -> Checked {
    let id = bench.id("two-terms");
    let owner = Owner::fresh();
    let take = async || -> Checked<Box<dyn Lease>> {
        let lease = bench.host.try_lock(&id, bench.long, owner).await?;
        lease.ok_or_else(|| crate::conformance::Failure::new("a free lock was answered None"))
    };
    let first = take().await?;
    first.release(Ended::Clean).await?;
    let second = take().await?;
    expect_growth(first.fence(), second.fence(), "a release by the same owner")?;
    expect_lost(&*first, "a new term of the same owner had begun").await?;
    first.release(Ended::Clean).await?;
    bench.expect_held(&id, "only a former term was released").await?;
    renew(&*second).await
}

async fn the_same_owner_gets_a_new_term_after_release(bench: &Bench) -> Checked {
    let id = bench.id("new-term");
    let first = bench.take(&id, bench.long).await?;
    first.release(Ended::Clean).await?;
    let second = bench.host.try_lock(&id, bench.long, first.lease_id()).await?;
    let Some(second) = second else {
        return Err(crate::conformance::Failure::new("after its release the owner was answered None"));
    };
    expect_growth(first.fence(), second.fence(), "a release by the same owner")
}

async fn giving_up_frees_what_is_held(bench: &Bench) -> Checked {
    let id = bench.id("given-up");
    let lease = bench.take(&id, bench.long).await?;
    // The answer may have been lost: it is given up by owner alone, through any host.
    bench.other_host.give_up(&id, lease.lease_id()).await?;
    expect_lost(&*lease, "it was given up").await?;
    bench.take(&id, bench.long).await?;
    bench.host.give_up(&id, lease.lease_id()).await?;
    bench.expect_held(&id, "its former owner gave it up").await
}

async fn a_stranger_gives_up_nothing(bench: &Bench) -> Checked {
    let id = bench.id("stranger");
    bench.host.give_up(&id, Owner::fresh()).await?;
    let lease = bench.take(&id, bench.long).await?;
    bench.other_host.give_up(&id, Owner::fresh()).await?;
    bench.expect_held(&id, "only a stranger gave it up").await?;
    renew(&*lease).await
}

async fn giving_up_keeps_a_cut(bench: &Bench) -> Checked {
    let id = bench.id("cut-given-up");
    let lease = bench.take(&id, bench.long).await?;
    lease.release(Ended::Cut("it did not stop in time".into())).await?;
    bench.host.give_up(&id, lease.lease_id()).await?;
    bench.expect_held(&id, "it was cut before it was given up").await
}
