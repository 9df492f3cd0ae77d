//! The thin driver around the singleton protocol: keeper, candidate and term, over a lock manager that does what it is
//! told. Time is paused except where a test is about threads.

mod hosts;
mod leases;
mod scripted;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bus::ErrorKind;
use bus::clock::Clock;
use bus::contract::{Ended, LockId, Raised};
use bus::singleton::{
    HandOver, Keeper, Lock, LockTiming, OVERRUN_EXIT_CODE, OnOverrun, Standing, Stop, candidate,
};
use hosts::{Kind, LEASE, World};
use scripted::{Call, Fault, Locks, Row, Store};

const EVERYTHING: [Call; 4] = [Call::TryLock, Call::Renew, Call::Release, Call::GiveUp];

/// The store ends the holder's session and gives the lock to another: the first renewal that hears of it ends the
/// term. S1.
#[tokio::test(start_paused = true)]
async fn a_holder_that_the_store_has_forgotten_stops_at_its_next_renewal() {
    let world = World::new();
    let _first = world.host("first", Kind::Obedient);
    let term = world.runs.start_of(1).await.term;
    let forgotten = world.clock.now();
    world.store.forget_holder();
    term.cancelled().await;
    assert!(world.since(forgotten) <= LEASE * 3 / 10, "renewed every quarter, with a fifth of jitter");
    assert!(term.check().is_err());
}

/// A connection that is frozen rather than closed: loss is declared by the clock, before anyone else can start. S1, S5.
#[tokio::test(start_paused = true)]
async fn a_frozen_connection_loses_the_lock_before_another_can_win_it() {
    let world = World::new();
    let first = world.host("first", Kind::UntilCut);
    let term = world.runs.start_of(1).await.term;
    let _second = world.host("second", Kind::Obedient);
    tokio::time::sleep(LEASE * 4).await;
    first.locks.always(&EVERYTHING, Fault::Hang);
    let frozen = world.clock.now();
    term.cancelled().await;
    let lost_after = world.since(frozen);
    assert!(lost_after <= LEASE * 3 / 4, "lost after {lost_after:?}");
    assert!(lost_after >= LEASE * 3 / 4 - LEASE * 3 / 10, "not before the deadline: {lost_after:?}");
    let second = world.runs.start_of(2).await;
    assert_eq!((second.host, second.fence), ("second", 2));
    assert!(second.at.since(frozen) > lost_after);
    assert_eq!(world.runs.overlaps(), 0);
}

/// Whoever is told of the loss and asks again hears the same: there is no old flag to be read. S2.
#[tokio::test(start_paused = true)]
async fn what_is_told_of_the_loss_finds_the_term_over() {
    let world = World::new();
    let first = world.host("first", Kind::UntilCut);
    let term = world.runs.start_of(1).await.term;
    let asked = tokio::spawn({
        let term = term.clone();
        async move {
            term.lost().cancelled().await;
            (term.check().map_err(|error| error.kind()), term.intake_open())
        }
    });
    first.locks.always(&[Call::Renew], Fault::Error);
    assert_eq!(asked.await.expect("no panic"), (Err(ErrorKind::TermLost), false));
}

/// The clock alone ends a term: also when the keeper has had no chance to say so, and for good. S2, S6.
#[tokio::test(start_paused = true)]
async fn a_check_after_the_deadline_fails_though_nobody_has_said_so() {
    let world = World::new();
    let first = world.host("first", Kind::UntilCut);
    let term = world.runs.start_of(1).await.term;
    first.locks.always(&[Call::Renew], Fault::Hang);
    // Time passes without the keeper being polled, as it does for a process that is frozen.
    tokio::time::advance(LEASE * 3 / 4).await;
    assert_eq!(term.check().map_err(|error| error.kind()), Err(ErrorKind::TermLost));
    first.locks.heal();
    term.cancelled().await;
    tokio::time::sleep(LEASE).await;
    assert!(term.check().is_err(), "nothing revives it");
}

/// A store that fails every call, release included: the run is revoked all the same, and there is one leader once the
/// store is back. S3.
#[tokio::test(start_paused = true)]
async fn losing_does_not_depend_on_a_release_that_works() {
    let world = World::new();
    let first = world.host("first", Kind::Obedient);
    let second = world.host("second", Kind::Obedient);
    let term = world.runs.start_of(1).await.term;
    for host in [&first, &second] {
        host.locks.always(&EVERYTHING, Fault::Error);
    }
    term.cancelled().await;
    world.runs.end_of(1).await;
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(world.runs.started().len(), 1);
    for host in [&first, &second] {
        host.locks.heal();
    }
    let again = world.runs.start_of(2).await;
    assert!(again.fence > term.fence().get());
    tokio::time::sleep(LEASE * 5).await;
    assert_eq!((world.runs.started().len(), world.runs.overlaps()), (2, 0));
}

/// A lock that is held is renewed, never taken again; released once, it is free at once. S4.
#[tokio::test(start_paused = true)]
async fn a_held_lock_is_renewed_and_never_taken_again() {
    let world = World::new();
    let first = world.host("first", Kind::Obedient);
    world.runs.start_of(1).await;
    tokio::time::sleep(LEASE * 10).await;
    assert_eq!(first.locks.owners(Call::TryLock).len(), 1);
    assert!(first.locks.owners(Call::Renew).len() >= 33, "every quarter of the lease, give or take a fifth");
    first.stop.drain.cancel();
    first.task.await.expect("no panic");
    assert_eq!(first.locks.owners(Call::Release).len(), 1);
    assert_eq!(world.store.ended(), Some(Ended::Clean));
    let free = world.clock.now();
    let _second = world.host("second", Kind::Obedient);
    assert!(world.runs.start_of(2).await.at.since(free) < Duration::from_millis(100));
}

/// Two renewals in a row that fail, or that hang, change nothing for the run. S9.
#[tokio::test(start_paused = true)]
async fn a_failed_renewal_is_no_loss() {
    for fault in [Fault::Error, Fault::DoneButError, Fault::Hang, Fault::Panic] {
        let world = World::new();
        let first = world.host("first", Kind::Obedient);
        let term = world.runs.start_of(1).await.term;
        for _ in 0..10 {
            first.locks.next(Call::Renew, fault, 2);
            tokio::time::sleep(LEASE).await;
            assert!(term.check().is_ok() && !term.lost().is_cancelled(), "{fault:?}");
        }
        assert_eq!(world.runs.started().len(), 1, "{fault:?}");
    }
}

/// Half a lease without a confirmation closes the intake and no more; the next confirmation opens it. S9.
#[tokio::test(start_paused = true)]
async fn a_doubtful_holder_takes_nothing_in_and_still_may_settle() {
    let world = World::new();
    let mut first = world.host("first", Kind::Obedient);
    let term = world.runs.start_of(1).await.term;
    first.locks.always(&[Call::Renew], Fault::Error);
    first.standing.wait_for(|standing| *standing == Standing::Doubtful).await.expect("the sender lives");
    assert!(!term.intake_open());
    assert!(term.check().is_ok());
    first.locks.heal();
    first.standing.wait_for(|standing| *standing == Standing::Held).await.expect("the sender lives");
    assert!(term.intake_open());
    assert_eq!(world.runs.started().len(), 1);
}

/// One node, ten leases long: no transition. S11.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_alone_holds_for_ten_leases() {
    let world = World::new();
    let mut first = world.host("first", Kind::Obedient);
    let term = world.runs.start_of(1).await.term;
    first.standing.wait_for(|standing| *standing == Standing::Held).await.expect("the sender lives");
    first.standing.mark_unchanged();
    let end = world.clock.now() + LEASE * 10;
    while world.clock.now() < end {
        tokio::time::sleep(LEASE / 50).await;
        assert!(term.check().is_ok() && term.intake_open());
    }
    assert!(!first.standing.has_changed().expect("the sender lives"), "{:?}", *first.standing.borrow());
}

/// A thousand errors, hanging calls and panics of the lock manager later, the candidate still is one. S12.
#[tokio::test(start_paused = true)]
async fn a_candidate_survives_a_thousand_errors() {
    let world = World::new();
    let locks = Locks::new(&world.store);
    for fault in [Fault::Error, Fault::Panic, Fault::Hang, Fault::Error] {
        locks.next(Call::TryLock, fault, 250);
    }
    let first = world.host_with("first", Kind::Obedient, locks);
    let term = world.runs.start_of(1).await.term;
    let owners = first.locks.owners(Call::TryLock);
    assert_eq!(owners.len(), 1001);
    assert!(
        owners.iter().all(|owner| *owner == term.owner()),
        "asked under one owner until the answer was definite"
    );
}

/// After the deadline nothing is renewed; what comes is a fresh acquisition with a new owner and a higher fence. S13.
#[tokio::test(start_paused = true)]
async fn past_the_deadline_there_is_only_a_fresh_acquisition() {
    let world = World::new();
    let first = world.host("first", Kind::Obedient);
    let lost = world.runs.start_of(1).await;
    first.locks.always(&[Call::Renew], Fault::Error);
    lost.term.cancelled().await;
    let renewals = first.locks.owners(Call::Renew).len();
    first.locks.heal();
    let again = world.runs.start_of(2).await;
    tokio::time::sleep(LEASE * 2).await;
    assert!(again.fence > lost.fence);
    assert_ne!(again.owner, lost.owner);
    assert!(first.locks.owners(Call::Renew)[renewals..].iter().all(|owner| *owner == again.owner));
}

/// A store that answers late: an answer that comes after the loss revives nothing. S13.
#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_done_but_never_answered_does_not_keep_the_term() {
    let world = World::new();
    let first = world.host("first", Kind::Obedient);
    let started = world.runs.start_of(1).await;
    first.locks.always(&[Call::Renew], Fault::DoneButHang);
    started.term.cancelled().await;
    assert_eq!(world.since(started.at), LEASE * 3 / 4);
    assert!(started.term.check().is_err());
}

/// Renewals that keep failing stop the run: cancelled at three quarters of the lease, cut at seven eighths. S14.
#[tokio::test(start_paused = true)]
async fn lost_means_stopped() {
    let world = World::new();
    let first = world.host("first", Kind::UntilCut);
    let started = world.runs.start_of(1).await;
    first.locks.always(&[Call::Renew], Fault::Error);
    started.term.cancelled().await;
    assert_eq!(world.since(started.at), LEASE * 3 / 4);
    assert_eq!(world.runs.running(), ["first"], "it was told, not yet cut");
    assert_eq!(world.runs.end_of(1).await.since(started.at), LEASE * 7 / 8);
}

/// Nobody is known: the lock is acquired at once. S16.
#[tokio::test(start_paused = true)]
async fn the_only_node_starts_at_once() {
    let world = World::new();
    let begun = world.clock.now();
    let _first = world.host("first", Kind::Obedient);
    assert_eq!(world.runs.start_of(1).await.at, begun);
}

/// Whoever lost is a candidate again, as often as that happens, and after a run that panicked too. S17.
#[tokio::test(start_paused = true)]
async fn a_candidate_runs_again_after_each_loss() {
    let world = World::new();
    let first = world.host("first", Kind::Obedient);
    for n in 1..=5 {
        let term = world.runs.start_of(n).await.term;
        first.locks.always(&[Call::Renew], Fault::Error);
        term.cancelled().await;
        first.locks.heal();
    }
    world.runs.start_of(6).await;

    let world = World::new();
    let _panics = world.host("panics", Kind::Panics);
    world.runs.start_of(3).await;
    assert_eq!(world.runs.overlaps(), 0);
}

/// A candidate that dies in any state, with its lock, its release or its acquisition unanswered, leaves a lock that
/// another one wins within a lease and a poll. S15, S18.
#[tokio::test(start_paused = true)]
async fn after_a_death_in_any_state_another_is_elected() {
    for (call, fault) in [
        (Call::TryLock, Fault::DoneButHang),
        (Call::TryLock, Fault::DoneButError),
        (Call::Renew, Fault::DoneButHang),
        (Call::Release, Fault::Hang),
        (Call::GiveUp, Fault::Hang),
    ] {
        let world = World::new();
        let locks = Locks::new(&world.store);
        locks.always(&[call], fault);
        let first = world.host_with("first", Kind::Obedient, locks);
        tokio::time::sleep(Duration::from_secs(2)).await;
        first.locks.always(&EVERYTHING, Fault::Hang);
        first.task.abort();
        let died = world.clock.now();
        let _second = world.host("second", Kind::Obedient);
        let before = world.runs.started().len();
        let started = world.runs.start_of(before + 1).await;
        assert_eq!(started.host, "second");
        assert!(started.at.since(died) <= LEASE + Duration::from_secs(1), "{call:?}, {fault:?}");
    }
}

/// A node that keeps failing to start gives the lock to one that does not, and pauses longer each time. S20.
#[tokio::test(start_paused = true)]
async fn a_start_that_keeps_failing_gives_the_lock_up() {
    let world = World::new();
    let first = world.host("first", Kind::FailsToStart);
    let third = world.runs.start_of(3).await;
    assert!(
        world.runs.started().iter().all(|start| start.fence == third.fence),
        "tried again under one term"
    );
    let _second = world.host("second", Kind::Obedient);
    let fourth = world.runs.start_of(4).await;
    assert_eq!(fourth.host, "second");
    assert!(world.since(third.at) < Duration::from_secs(1), "given up at once");
    tokio::time::sleep(LEASE * 3).await;
    assert_eq!(world.runs.started().len(), 4);
    assert_eq!(first.locks.owners(Call::Release).len(), 1);

    let alone = World::new();
    let _first = alone.host("first", Kind::FailsToStart);
    let (third, fourth) = (alone.runs.start_of(3).await, alone.runs.start_of(4).await);
    assert!(fourth.at.since(third.at) >= LEASE / 2 && fourth.fence > third.fence);
    let (sixth, seventh) = (alone.runs.start_of(6).await, alone.runs.start_of(7).await);
    assert!(seventh.at.since(sixth.at) >= LEASE);
}

/// The same process acquires again: it is another owner, and what the former one left is not its own. S21.
#[tokio::test(start_paused = true)]
async fn every_acquisition_has_an_owner_of_its_own() {
    let world = World::new();
    let first = world.host("first", Kind::Obedient);
    let before = world.runs.start_of(1).await;
    first.locks.always(&EVERYTHING, Fault::Hang);
    first.task.abort();
    world.runs.end_of(1).await;
    // The same host starts again, within the lease of the one before.
    let _again = world.host("first", Kind::Obedient);
    tokio::time::sleep(LEASE / 2).await;
    assert_eq!(world.runs.started().len(), 1, "the record is not its own");
    let after = world.runs.start_of(2).await;
    assert_ne!(before.owner, after.owner);
    assert!(after.fence > before.fence);
}

/// All but one leave together: each drains before its successor starts. S22.
#[tokio::test(start_paused = true)]
async fn several_leave_at_once_without_an_overlap() {
    let world = World::new();
    let slow = Kind::Slow(LEASE * 2);
    let leaving = ["a", "b", "c"].map(|name| world.host(name, slow));
    let first = world.runs.start_of(1).await;
    let _stays = world.host("stays", Kind::Obedient);
    tokio::time::sleep(LEASE).await;
    for host in &leaving {
        host.stop.drain.cancel();
    }
    let told = world.clock.now();
    let second = world.runs.start_of(2).await;
    assert_eq!(second.host, "stays");
    assert!(first.term.check().is_err(), "a term that was handed over is over");
    let took = second.at.since(told);
    assert!(took >= LEASE * 2 && took < LEASE * 2 + Duration::from_millis(500), "{took:?}");
    assert_eq!(world.runs.overlaps(), 0);
}

/// An acquisition whose answer is lost is not one until the store has said so. S23.
#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_not_acquired() {
    for fault in [Fault::DoneButError, Fault::DoneButHang, Fault::Error, Fault::Hang] {
        let world = World::new();
        let locks = Locks::new(&world.store);
        locks.always(&[Call::TryLock], fault);
        let first = world.host_with("first", Kind::Obedient, locks);
        tokio::time::sleep(LEASE * 2).await;
        assert!(world.runs.started().is_empty(), "{fault:?}");
        first.locks.heal();
        let healed = world.clock.now();
        let started = world.runs.start_of(1).await;
        // One try that still hangs, and the pause after it.
        assert!(world.since(healed) <= Duration::from_secs(4), "{fault:?}");
        let asked = first.locks.owners(Call::TryLock);
        assert!(asked.iter().all(|owner| *owner == started.owner), "{fault:?}");
    }
}

/// A candidate that stops while it does not know whether it holds the lock gives it up, and another starts at once.
/// S23, S28.
#[tokio::test(start_paused = true)]
async fn stopping_in_doubt_gives_up_what_may_have_been_won() {
    let world = World::new();
    let locks = Locks::new(&world.store);
    locks.always(&[Call::TryLock], Fault::DoneButError);
    let first = world.host_with("first", Kind::Obedient, locks);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let _second = world.host("second", Kind::Obedient);
    tokio::time::sleep(Duration::from_secs(1)).await;
    first.locks.next(Call::GiveUp, Fault::Error, 1);
    first.stop.drain.cancel();
    first.task.await.expect("no panic");
    let stopped = world.clock.now();
    assert!(world.runs.start_of(1).await.at.since(stopped) < Duration::from_secs(1));
}

/// The lock is kept for as long as draining takes, and released as soon as it is done. S28.
#[tokio::test(start_paused = true)]
async fn a_planned_take_over_takes_less_than_a_second() {
    let world = World::new();
    let first = world.host("first", Kind::Slow(LEASE * 5));
    world.runs.start_of(1).await;
    let _second = world.host("second", Kind::Obedient);
    tokio::time::sleep(Duration::from_millis(1)).await;
    first.stop.drain.cancel();
    let ended = world.runs.end_of(1).await;
    assert!(world.runs.start_of(2).await.at.since(ended) < Duration::from_millis(500));
}

/// The last act of a process: a run that does not end is dropped, and only then its lock is released, as cut, so that
/// its successor waits for the lease. S22.
#[tokio::test(start_paused = true)]
async fn the_last_act_drops_the_run_and_releases_as_cut() {
    let world = World::new();
    let first = world.host("first", Kind::Endless);
    world.runs.start_of(1).await;
    let _second = world.host("second", Kind::Obedient);
    first.stop.drain.cancel();
    tokio::time::sleep(LEASE * 3).await;
    assert_eq!(world.runs.running(), ["first"], "kept past any grace");
    first.stop.last_act.cancel();
    first.task.await.expect("no panic");
    let ended = world.clock.now();
    assert_eq!(world.store.ended(), Some(Ended::Cut("dropped at the end of the process".to_owned())));
    let second = world.runs.start_of(2).await;
    assert!(second.at.since(ended) >= LEASE / 2 && second.at.since(ended) <= LEASE + Duration::from_secs(1));
    assert_eq!(world.runs.overlaps(), 0);
}

/// With a dead store, closing the keeper takes no longer than it is given. S29.
#[tokio::test(start_paused = true)]
async fn the_keeper_ends_in_time_though_nothing_can_be_released() {
    let world = World::new();
    let first = world.host("first", Kind::Obedient);
    world.runs.start_of(1).await;
    first.locks.always(&EVERYTHING, Fault::Hang);
    first.stop.drain.cancel();
    let begun = world.clock.now();
    first.keeper.close(Duration::from_secs(3)).await;
    assert_eq!(world.since(begun), Duration::from_secs(3));
    first.task.await.expect("the candidate ends with it");
}

/// A lock manager that blocks the keeper's own thread is left behind; nobody waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keeper_whose_thread_is_blocked_is_left_behind() {
    let keeper = Keeper::start().expect("a thread");
    let (blocks, blocked) = tokio::sync::oneshot::channel();
    let work = keeper.run(async move {
        blocks.send(()).expect("somebody waits");
        std::thread::sleep(Duration::from_secs(5));
        Ok(())
    });
    tokio::select! {
        _ = work => panic!("it has ended"),
        told = blocked => told.expect("it blocks"),
    }
    let begun = tokio::time::Instant::now();
    keeper.close(Duration::ZERO).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "it took {:?}", begun.elapsed());
}

/// A term starts only when its row is raised: an error is tried again, and a row that is bound to another lock is waited
/// for with the lock held.
#[tokio::test(start_paused = true)]
async fn a_term_starts_only_when_its_fence_is_confirmed() {
    let world = World::new();
    let row = Arc::new(Row::default());
    let bound = Raised::OtherLock { lock: "other:#queue/rebuild".to_owned(), free_in: LEASE * 3 };
    row.answers.lock().extend([Err(bus::Error::new(ErrorKind::Unavailable, "told to fail")), Ok(bound)]);
    row.answers.lock().extend(
        (0..40).map(|_| Ok(Raised::OtherLock { lock: "other:#queue/rebuild".to_owned(), free_in: LEASE })),
    );
    let locks = Locks::new(&world.store);
    let begun = world.clock.now();
    let first = world.host_behind("first", Kind::Obedient, locks, Some(Arc::clone(&row)));
    let started = world.runs.start_of(1).await;
    assert_eq!(row.claims.lock().len(), 43);
    assert!(row.claims.lock().iter().all(|claim| {
        claim.fence.get() == started.fence
            && claim.lock == "scripted:#queue/rebuild"
            && claim.lock_lease == LEASE
    }));
    assert!(world.since(begun) > LEASE, "it waited");
    assert_eq!(first.locks.owners(Call::TryLock).len(), 1);
    assert!(first.locks.owners(Call::Renew).len() >= 3, "the lock is kept meanwhile");
}

/// A higher fence in the row: the lock is given back, and the next acquisition may do better.
#[tokio::test(start_paused = true)]
async fn a_term_that_is_outrun_never_starts() {
    let world = World::new();
    let row = Arc::new(Row::default());
    let outdated = Raised::Outdated { in_force: bus::contract::Fence::new(7) };
    row.answers.lock().push_back(Ok(outdated));
    let first = world.host_behind("first", Kind::Obedient, Locks::new(&world.store), Some(row));
    let started = world.runs.start_of(1).await;
    assert_eq!(started.fence, 2);
    assert_eq!(first.locks.owners(Call::Release).len(), 1);
}

/// A run that its message store refuses is over, for every clone of its term, and a fresh acquisition follows.
#[tokio::test(start_paused = true)]
async fn a_term_that_is_fenced_off_is_over_and_followed_by_another() {
    let world = World::new();
    let _first = world.host("first", Kind::Obedient);
    let started = world.runs.start_of(1).await;
    started.term.fenced_off();
    assert!(started.term.check().is_err() && !started.term.intake_open());
    assert!(world.runs.start_of(2).await.fence > started.fence);
}

/// Work on a blocking thread outlives the handler that was dropped, and the lock waits for it. S22.
#[tokio::test]
async fn the_term_ends_only_when_its_blocking_work_has() {
    let clock = Clock::system();
    let store = Store::new(clock);
    let keeper = Keeper::start().expect("a thread");
    let timing = LockTiming::new(Duration::from_secs(2));
    let lock = Lock::new(Arc::new(Locks::new(&store)), LockId::from("queue/q"), timing).expect("fits");
    let stop = Stop::default();
    let ended = Arc::new(AtomicBool::new(false));
    let (release_work, wait) = std::sync::mpsc::channel::<()>();
    let (working, worked) = tokio::sync::oneshot::channel();
    let mut once = Some((wait, working));
    let running = candidate(&keeper, lock, stop.clone(), |term| {
        let (ended, once) = (Arc::clone(&ended), once.take());
        async move {
            let work = term.blocking(move || {
                if let Some((wait, working)) = once {
                    let _ = working.send(());
                    let _ = wait.recv();
                }
                ended.store(true, Ordering::SeqCst);
            });
            let draining = term.draining();
            tokio::select! {
                _ = work => HandOver::Clean,
                () = draining.cancelled() => HandOver::Cut { reason: "the handler was dropped".to_owned() },
            }
        }
    });
    let ask = async {
        worked.await.expect("it runs");
        stop.drain.cancel();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(store.ended(), None, "not released while the work goes on");
        release_work.send(()).expect("the work waits for it");
    };
    tokio::join!(running, ask);
    assert!(ended.load(Ordering::SeqCst));
    assert_eq!(store.ended(), Some(Ended::Cut("the handler was dropped".to_owned())));
    keeper.close(Duration::from_secs(5)).await;
}

/// Every worker thread of the host is blocked for leases on end: the lock is renewed all the same. S10.
#[test]
fn alone_the_keeper_renews_while_every_worker_thread_is_blocked() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let lease = Duration::from_secs(1);
    let store = Store::new(Clock::system());
    let keeper = Arc::new(Keeper::start().expect("a thread"));
    let lock = Lock::new(Arc::new(Locks::new(&store)), LockId::from("queue/q"), LockTiming::new(lease))
        .expect("fits");
    let stop = Stop::default();
    let (started, start) = std::sync::mpsc::channel();
    let (its_keeper, its_stop) = (Arc::clone(&keeper), stop.clone());
    let running = runtime.spawn(async move {
        candidate(&its_keeper, lock, its_stop, |term| {
            let _ = started.send(term.clone());
            async move {
                term.draining().cancelled().await;
                HandOver::Clean
            }
        })
        .await;
    });
    let term = start.recv().expect("it starts");
    for _ in 0..2 {
        runtime.spawn(async move { std::thread::sleep(lease * 3) });
    }
    let end = std::time::Instant::now() + lease * 5 / 2;
    while std::time::Instant::now() < end {
        std::thread::sleep(lease / 20);
        assert!(term.check().is_ok());
    }
    stop.drain.cancel();
    runtime.block_on(async {
        running.await.expect("no panic");
        keeper.close(Duration::from_secs(5)).await;
    });
    assert_eq!(store.ended(), Some(Ended::Clean));
}

/// A run that cannot be cut ends its process before its lease does, where that was asked for.
#[test]
fn an_overrun_ends_the_process_where_that_was_asked_for() {
    const IN_CHILD: &str = "BUS_TEST_OVERRUN_CHILD";
    if std::env::var_os(IN_CHILD).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().expect("this very test"));
        child.args(["--exact", "an_overrun_ends_the_process_where_that_was_asked_for"]).env(IN_CHILD, "1");
        let ended = child.output().expect("it runs");
        assert_eq!(ended.status.code(), Some(OVERRUN_EXIT_CODE), "{ended:?}");
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let lease = Duration::from_secs(1);
    let locks = Locks::new(&Store::new(Clock::system()));
    locks.always(&[Call::Renew], Fault::Hang);
    let lock = Lock::new(Arc::new(locks), LockId::from("queue/q"), LockTiming::new(lease)).expect("fits");
    let keeper = Keeper::start().expect("a thread");
    runtime.block_on(candidate(
        &keeper,
        lock.on_overrun(OnOverrun::Exit),
        Stop::default(),
        |_term| async move {
            // Stuck inside `poll`, for ever as far as this test is concerned.
            std::thread::sleep(lease * 10);
            HandOver::Clean
        },
    ));
}
