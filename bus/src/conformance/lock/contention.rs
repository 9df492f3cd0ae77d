//! Many at once, and futures dropped midway. Scenarios S18, S22, S23.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::poll_immediate;
use parking_lot::Mutex;

use super::bench::{Bench, renew};
use crate::conformance::case::{cases, ensure};
use crate::conformance::{Checked, Failure};
use crate::contract::{Ended, Fence, LockId, LockManager, Owner};

const CANDIDATES: usize = 8;
const TERMS: usize = 24;

pub(super) fn cases() -> Vec<super::Case> {
    cases! {
        many_candidates_never_overlap = "However many ask at once, one holds the lock, and fences follow one another.";
        one_of_many_wins_a_free_lock = "Of many who ask at the same moment exactly one is given the lock.";
        one_of_many_wins_an_expired_lock = "Of many who ask for an expired lock exactly one is given it.";
        a_dropped_try_lock_leaves_nothing_half_done = "A dropped try_lock holds the lock for at most its lease, or not at all.";
        a_dropped_release_leaves_nothing_half_done = "A dropped release freed the lock, or its lease runs out.";
    }
}

/// What the candidates of one lock saw together.
#[derive(Default)]
struct Arena {
    inside: AtomicUsize,
    fences: Mutex<Vec<Fence>>,
}

async fn many_candidates_never_overlap(bench: &Bench) -> Checked {
    let id = bench.id("contended");
    let arena = Arc::new(Arena::default());
    let candidates = (0..CANDIDATES).map(|number| {
        let host = Arc::clone(if number % 2 == 0 { &bench.host } else { &bench.other_host });
        let (id, arena, long) = (id.clone(), Arc::clone(&arena), bench.long);
        tokio::spawn(async move { candidate(host, id, arena, long).await })
    });
    let candidates: Vec<_> = candidates.collect();
    for candidate in candidates {
        candidate.await.map_err(|error| Failure::new(format!("a candidate ended with {error}")))??;
    }
    let fences = arena.fences.lock();
    ensure!(fences.is_sorted_by(|earlier, later| earlier < later), "terms had the fences {fences:?}");
    Ok(())
}

/// Takes the lock again and again, and looks who else is inside.
async fn candidate(
    host: Arc<dyn LockManager>,
    id: LockId,
    arena: Arc<Arena>,
    lease: std::time::Duration,
) -> Checked {
    while arena.fences.lock().len() < TERMS {
        let Some(lease) = host.try_lock(&id, lease, Owner::fresh()).await? else {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            continue;
        };
        let others = arena.inside.fetch_add(1, Ordering::SeqCst);
        ensure!(others == 0, "{others} others held the lock at the same time");
        arena.fences.lock().push(lease.fence());
        tokio::task::yield_now().await;
        renew(&*lease).await?;
        arena.inside.fetch_sub(1, Ordering::SeqCst);
        lease.release(Ended::Clean).await?;
    }
    Ok(())
}

/// Asks many times at once, and counts who was given the lock.
async fn winners(bench: &Bench, id: &LockId) -> Checked<usize> {
    let asked = (0..CANDIDATES).map(|number| {
        let host = if number % 2 == 0 { &bench.host } else { &bench.other_host };
        bench.try_take(host, id, bench.long)
    });
    let answers = futures_util::future::join_all(asked).await.into_iter().collect::<Checked<Vec<_>>>()?;
    Ok(answers.into_iter().flatten().count())
}

async fn one_of_many_wins_a_free_lock(bench: &Bench) -> Checked {
    for round in 0..10 {
        let winners = winners(bench, &bench.id(&format!("free-{round}"))).await?;
        ensure!(winners == 1, "{winners} of {CANDIDATES} were given a free lock");
    }
    Ok(())
}

async fn one_of_many_wins_an_expired_lock(bench: &Bench) -> Checked {
    let id = bench.id("expired");
    bench.take(&id, bench.short).await?;
    tokio::time::sleep(bench.short + bench.timing.moment * 2).await;
    let winners = winners(bench, &id).await?;
    ensure!(winners == 1, "{winners} of {CANDIDATES} were given an expired lock");
    Ok(())
}

async fn a_dropped_try_lock_leaves_nothing_half_done(bench: &Bench) -> Checked {
    for round in 0..4 {
        let id = bench.id(&format!("dropped-{round}"));
        let owner = Owner::fresh();
        let mut asked = bench.host.try_lock(&id, bench.short, owner);
        // Dropped before it began, at its first waiting point, or a little later.
        match round {
            0 => drop(asked),
            1 => drop(poll_immediate(asked).await),
            _ => drop(tokio::time::timeout(bench.timing.moment / 16 * round, &mut asked).await),
        }
        let (lease, _) = bench.wait_for(&id, bench.long).await?;
        renew(&*lease).await?;
        bench.expect_held(&id, "it was taken after the dropped call").await?;
        // What the dropped call may still have begun must not harm the new holder.
        bench.host.give_up(&id, owner).await?;
        renew(&*lease).await?;
    }
    Ok(())
}

async fn a_dropped_release_leaves_nothing_half_done(bench: &Bench) -> Checked {
    let id = bench.id("dropped-release");
    let former = bench.take(&id, bench.short).await?;
    drop(former.release(Ended::Clean));
    drop(poll_immediate(former.release(Ended::Clean)).await);
    let (lease, _) = bench.wait_for(&id, bench.long).await?;
    renew(&*lease).await?;
    bench.expect_held(&id, "it was taken after the dropped release").await
}
