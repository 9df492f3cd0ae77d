//! Taking, holding, renewing. Scenarios S4, S7, S8, S11, S16, S21.

use std::time::Duration;

use tokio::time::Instant;

use super::bench::{Bench, expect_growth, renew};
use crate::conformance::case::{cases, ensure};
use crate::conformance::{Checked, Failure};
use crate::contract::{Ended, LockId, Owner};

pub(super) fn cases() -> Vec<super::Case> {
    cases! {
        a_lock_never_held_is_free = "A lock that nobody ever held is given at once.";
        a_held_lock_is_given_to_nobody_else = "While a lock is held, everybody else is answered None, not an error.";
        locks_are_apart = "Different ids are different locks, however alike they look.";
        initialize_may_be_repeated = "Several hosts may initialize at once and repeatedly, and nothing is lost.";
        a_renewed_lock_is_kept = "A lock that is renewed in time is kept for as long as it is renewed.";
        a_lease_counts_from_its_renewal = "A renewal makes the lock last a whole lease from then.";
        an_expired_lock_is_free = "A lock that is not renewed is free when its lease has run out, not before.";
        the_holders_lease_counts = "Expiry is reckoned with the holder's lease, not with that of who asks.";
        the_same_owner_gets_the_same_term = "Asking again as the owner answers with the same fence, extended.";
        asking_again_extends = "Asking again as the owner makes the lock last a lease from then.";
        a_dropped_lease_is_still_held = "Dropping a lease releases nothing.";
        fences_grow = "Each term's fence is higher than all before, across release, expiry and hosts.";
        [MonotonicAcrossRestore] fences_follow_the_clock = "A fence is no lower than the store's clock in microseconds.";
    }
}

async fn a_lock_never_held_is_free(bench: &Bench) -> Checked {
    let started = Instant::now();
    bench.take(&bench.id("new"), bench.long).await?;
    ensure!(started.elapsed() < bench.short.max(Duration::from_secs(2)), "it took {:?}", started.elapsed());
    Ok(())
}

async fn a_held_lock_is_given_to_nobody_else(bench: &Bench) -> Checked {
    let id = bench.id("held");
    let lease = bench.take(&id, bench.long).await?;
    for _ in 0..3 {
        bench.expect_held(&id, "it was held").await?;
    }
    renew(&*lease).await
}

async fn locks_are_apart(bench: &Bench) -> Checked {
    let base = bench.id("import").to_string();
    let alike = ["", "s", "/", "-1", ".x", " ", "_", "%", "å"].map(|end| format!("{base}{end}"));
    let mut leases = Vec::new();
    for id in &alike {
        leases.push(bench.take(&LockId::from(id.as_str()), bench.long).await?);
    }
    leases[0].release(Ended::Clean).await?;
    for lease in &leases[1..] {
        renew(&**lease).await?;
        bench.expect_held(lease.lock_id(), "only a lock with a like id was released").await?;
    }
    Ok(())
}

async fn initialize_may_be_repeated(bench: &Bench) -> Checked {
    let id = bench.id("initialized");
    let lease = bench.take(&id, bench.long).await?;
    let (one, two) = futures_util::join!(bench.host.initialize(), bench.other_host.initialize());
    one?;
    two?;
    bench.expect_held(&id, "only initialize was called").await?;
    renew(&*lease).await
}

async fn a_renewed_lock_is_kept(bench: &Bench) -> Checked {
    let id = bench.id("renewed");
    let lease = bench.take(&id, bench.short).await?;
    let fence = lease.fence();
    for _ in 0..16 {
        tokio::time::sleep(bench.short / 4).await;
        renew(&*lease).await?;
        bench.expect_held(&id, "it was renewed in time").await?;
    }
    ensure!(lease.fence() == fence, "renewing changed the fence from {fence} to {}", lease.fence());
    Ok(())
}

async fn a_lease_counts_from_its_renewal(bench: &Bench) -> Checked {
    let id = bench.id("from-renewal");
    let lease = bench.take(&id, bench.short).await?;
    tokio::time::sleep(bench.short / 2).await;
    let renewed = Instant::now();
    renew(&*lease).await?;
    bench.expect_held_until(&id, renewed + bench.short, "a lease had not passed since its renewal").await
}

async fn an_expired_lock_is_free(bench: &Bench) -> Checked {
    let id = bench.id("expired");
    let asked = Instant::now();
    bench.take(&id, bench.short).await?;
    let (_, freed) = bench.wait_for(&id, bench.short).await?;
    let held = freed - asked + Duration::from_millis(1);
    ensure!(held >= bench.short, "a lease of {:?} ended after {held:?}", bench.short);
    Ok(())
}

async fn the_holders_lease_counts(bench: &Bench) -> Checked {
    let (long, short) = (bench.id("long"), bench.id("short"));
    bench.take(&long, bench.long).await?;
    bench.take(&short, bench.short).await?;
    // Asked for with another lease than the holder's, both ways.
    bench.wait_for(&short, bench.long).await?;
    bench.expect_held(&long, "its holder's lease is longer than that of who asks").await
}

async fn the_same_owner_gets_the_same_term(bench: &Bench) -> Checked {
    let id = bench.id("asked-again");
    let owner = Owner::fresh();
    let ask = async |host: &std::sync::Arc<dyn crate::contract::LockManager>| {
        let lease = host.try_lock(&id, bench.long, owner).await?;
        lease.ok_or_else(|| Failure::new("the owner itself was answered None"))
    };
    let first = ask(&bench.host).await?;
    for host in [&bench.host, &bench.other_host] {
        let again = ask(host).await?;
        ensure!(again.fence() == first.fence(), "asked again, {} became {}", first.fence(), again.fence());
        renew(&*again).await?;
    }
    renew(&*first).await
}

async fn asking_again_extends(bench: &Bench) -> Checked {
    let id = bench.id("extended");
    let owner = Owner::fresh();
    bench.host.try_lock(&id, bench.short, owner).await?;
    tokio::time::sleep(bench.short / 2).await;
    let again = Instant::now();
    bench.host.try_lock(&id, bench.short, owner).await?;
    bench.expect_held_until(&id, again + bench.short, "its owner had asked for it again").await
}

async fn a_dropped_lease_is_still_held(bench: &Bench) -> Checked {
    let id = bench.id("dropped");
    drop(bench.take(&id, bench.long).await?);
    bench.expect_held(&id, "its lease was only dropped").await
}

async fn fences_grow(bench: &Bench) -> Checked {
    let id = bench.id("growing");
    let mut last = bench.take(&id, bench.long).await?;
    for round in 0..6 {
        last.release(Ended::Clean).await?;
        let host = if round % 2 == 0 { &bench.other_host } else { &bench.host };
        let next = bench.try_take(host, &id, bench.long).await?;
        let next = next.ok_or_else(|| Failure::new("a released lock was answered None"))?;
        expect_growth(last.fence(), next.fence(), "a clean release")?;
        last = next;
    }
    last.release(Ended::Clean).await?;
    let expiring = bench.take(&id, bench.short).await?;
    let (after_expiry, _) = bench.wait_for(&id, bench.short).await?;
    expect_growth(expiring.fence(), after_expiry.fence(), "an expiry")?;
    after_expiry.release(Ended::Cut("for the case".into())).await?;
    let (after_cut, _) = bench.wait_for(&id, bench.short).await?;
    expect_growth(after_expiry.fence(), after_cut.fence(), "a cut")?;
    bench.other_host.give_up(&id, after_cut.lease_id()).await?;
    let after_giving_up = bench.take(&id, bench.short).await?;
    expect_growth(after_cut.fence(), after_giving_up.fence(), "giving up")
}

async fn fences_follow_the_clock(bench: &Bench) -> Checked {
    // A day of slack: the store's clock is not ours.
    let lease = bench.take(&bench.id("clock"), bench.long).await?;
    let now = crate::clock::Timestamp::from(std::time::SystemTime::now()).as_micros();
    let day_ago = u64::try_from(now - 86_400_000_000).unwrap_or(0);
    ensure!(lease.fence().get() > day_ago, "the fence {} is no clock reading", lease.fence());
    Ok(())
}
