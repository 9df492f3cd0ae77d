//! What a test can make go wrong.

use std::time::Duration;

use bus::prelude::*;
use bus::testing::*;

use crate::handlers::*;
use crate::panic_in;

/// A lost acknowledgement: the message comes again when its claim has run out.
#[bus::test]
async fn a_dropped_ack_brings_the_message_again() -> Result<()> {
    let script = Script::fine();
    let host = host(&["note"], &script).await;
    let fault = host.faults().drop_next_ack();
    assert!(!fault.has_struck());
    let id = host.bus().send(Note(1)).await?.id();
    host.bus().send(Note(2)).await?;
    host.settled().await;
    assert!(fault.has_struck());
    assert_eq!(script.times(), [(1, 0.0), (2, 0.0), (1, 30.0)], "a lease later");
    assert_eq!(script.counts()[2], (1, 2));
    assert_eq!((script.seen()[0].id, script.seen()[2].id), (id, id));
    assert_eq!(host.completed::<Note>().len(), 2, "the first verdict was never taken");
    Ok(())
}

/// A claim that runs out during the run: the message is run again beside it, and the first verdict is refused.
#[bus::test]
async fn an_expired_claim_brings_the_message_again_while_it_runs() -> Result<()> {
    let script = Script::of(|_| Act::Sleep(2.seconds()));
    let host = host(&["note"], &script).await;
    host.faults().expire_next_claim();
    host.bus().send(Note(1)).await?;
    host.settled().await;
    assert_eq!(script.counts(), [(1, 1), (1, 2)]);
    assert_eq!(script.times(), [(1, 0.0), (1, 0.0)]);
    assert!(script.seen().iter().all(|seen| seen.ended));
    let [done] = host.completed::<Note>().try_into().expect("one verdict was taken");
    assert_eq!(done.delivery_count, 2);
    Ok(())
}

/// A singleton works on one message at a time, also then.
#[bus::test]
async fn an_expired_claim_of_a_singleton_is_run_again_afterwards() -> Result<()> {
    let script = Script::of(|_| Act::Sleep(2.seconds()));
    let host = host(&["single"], &script).await;
    host.faults().expire_next_claim();
    host.bus().send(Single(1)).await?;
    host.settled().await;
    assert_eq!(script.times(), [(1, 0.0), (1, 2.0)]);
    assert_eq!(host.completed::<Single>().len(), 1);
    Ok(())
}

/// The same message in two claims, both of which end as they should.
#[bus::test]
async fn a_message_can_be_delivered_twice() -> Result<()> {
    let script = Script::fine();
    let host = host(&["first"], &script).await;
    host.faults().deliver_next_twice();
    let id = host.bus().publish(Happened(1)).await?.id();
    host.bus().publish(Happened(2)).await?;
    host.settled().await;
    let mut ran: Vec<_> = script.seen().iter().map(|seen| (seen.n, seen.count, seen.id == id)).collect();
    ran.sort_unstable();
    assert_eq!(ran, [(1, 1, true), (1, 1, true), (2, 1, false)]);
    assert_eq!(host.completed::<Happened>().len(), 3);
    assert_eq!(host.published::<Happened>().len(), 2, "it was published once");
    Ok(())
}

/// Where the process died decides whether the handler runs again.
#[bus::test]
async fn a_crash_at_each_point_is_followed_by_what_it_left() -> Result<()> {
    for (point, runs_before, comes_again) in [
        (Point::BeforeHandler, 0, true),
        (Point::AfterHandler, 1, true),
        (Point::BeforeSettle, 1, true),
        (Point::AfterSettle, 1, false),
    ] {
        let script = Script::fine();
        let host = host(&["note"], &script).await;
        let fault = host.faults().crash_at(point);
        host.bus().send(Note(1)).await?;
        host.settled().await;
        assert!(fault.has_struck() && !host.is_running(), "{point:?}");
        assert_eq!(script.seen().len(), runs_before, "{point:?}");
        // Nothing is done while it is down, and what is sent meanwhile is kept.
        host.advance(1.minutes()).await;
        host.bus().send(Note(2)).await?;
        host.settled().await;
        assert_eq!(script.seen().len(), runs_before, "{point:?}");
        host.restart().await?;
        assert!(host.is_running());
        host.settled().await;
        let again = script.counts()[runs_before..].to_vec();
        match comes_again {
            true => assert_eq!(again, [(1, 2), (2, 1)], "{point:?}"),
            false => assert_eq!(again, [(2, 1)], "{point:?}"),
        }
        assert_eq!(host.completed::<Note>().len(), 2, "{point:?}");
    }
    Ok(())
}

/// Nothing of a dead process goes on: neither what ran beside, nor what it held.
#[bus::test]
async fn a_crash_stops_everything_in_the_middle() -> Result<()> {
    let script = Script::of(|seen| if seen.count == 1 { Act::Sleep(1.minutes()) } else { Act::Succeed });
    let host = host(&["note", "slow", "single"], &script).await;
    for n in 0..3 {
        host.bus().send(Note(n)).await?;
    }
    host.bus().send(Slow(3)).await?;
    host.bus().send(Single(4)).await?;
    host.advance(10.seconds()).await;
    assert_eq!(script.seen().len(), 5);
    host.faults().crash();
    assert!(!host.is_running());
    host.advance(1.hours()).await;
    assert!(script.seen().iter().all(|seen| !seen.ended), "{:?}", script.seen());
    assert_eq!(script.seen().len(), 5);

    host.restart().await?;
    host.settled().await;
    let mut again: Vec<_> = script.counts()[5..].to_vec();
    again.sort_unstable();
    assert_eq!(again, [(0, 2), (1, 2), (2, 2), (3, 2), (4, 2)]);
    Ok(())
}

/// Not even in the same instant: what was about to run does not, and what was about to be claimed is not.
#[bus::test]
async fn a_crash_is_the_last_thing_that_happens() -> Result<()> {
    let script = Script::fine();
    let host = host(&["note", "slow"], &script).await;
    host.faults().crash_at(Point::AfterHandler);
    host.bus().send_all((0..10).map(Note)).await;
    host.settled().await;
    host.bus().send(Slow(10)).await?;
    host.advance(Duration::ZERO).await;
    assert_eq!(script.seen().len(), 1, "the other nine were claimed with it");
    assert_eq!((host.depth("note").in_flight, host.depth("slow").ready), (10, 1));
    host.restart().await?;
    host.settled().await;
    let counts: Vec<_> = script.counts()[1..].iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [[1].as_slice(), &[2; 10]].concat(), "what was not claimed comes first");
    Ok(())
}

/// What a handler had sent before its process died stays sent; what it would have sent after that is not.
#[bus::test]
async fn a_crash_after_the_handler_leaves_what_it_has_sent() -> Result<()> {
    let script = Script::of(|seen| Act::Send(Answer(u64::from(seen.count))));
    let host = host(&["note"], &script).await;
    host.faults().crash_at(Point::AfterHandler);
    host.bus().send(Note(1)).await?;
    host.settled().await;
    assert_eq!(host.sent::<Answer>().len(), 1);
    host.restart().await?;
    host.settled().await;
    assert_eq!(host.sent::<Answer>().iter().map(|answer| answer.message.0).collect::<Vec<_>>(), [1, 2]);
    Ok(())
}

/// A dead holder's lock is not given back: its successor waits for the lease.
#[bus::test]
async fn a_crashed_singletons_lock_runs_out() -> Result<()> {
    let script = Script::fine();
    let host = host(&["single"], &script).await;
    host.faults().crash_at(Point::BeforeSettle);
    host.bus().send(Single(1)).await?;
    host.settled().await;
    host.restart().await?;
    host.settled().await;
    let times = script.times();
    assert_eq!(times.len(), 2);
    assert!((19.9..=20.5).contains(&times[1].1), "the lease is 20 s: {times:?}");
    Ok(())
}

/// One that ends as it should gives its lock back: its successor starts at once.
#[bus::test]
async fn a_restarted_singletons_lock_is_handed_over() -> Result<()> {
    let script = Script::fine();
    let host = host(&["single"], &script).await;
    host.bus().send(Single(1)).await?;
    host.settled().await;
    host.restart().await?;
    host.bus().send(Single(2)).await?;
    host.settled().await;
    assert_eq!(script.times(), [(1, 0.0), (2, 0.0)]);
    Ok(())
}

/// A message that kills its process each time is given up on, and takes no other with it.
#[bus::test]
async fn what_crashes_too_often_is_given_up_on() -> Result<()> {
    let script = Script::fine();
    let host = host(&["first"], &script).await;
    host.bus().publish(Happened(1)).await?;
    // Five claims without an outcome, and a sixth run, alone, that ends the same way.
    for crash in 1..=6 {
        let fault = host.faults().crash_at(Point::AfterHandler);
        if crash > 1 {
            host.restart().await?;
        }
        host.settled().await;
        assert!(fault.has_struck(), "{crash}");
    }
    host.restart().await?;
    host.bus().publish(Happened(2)).await?;
    host.settled().await;
    assert_eq!(script.seen().iter().filter(|seen| seen.n == 1).count(), 6);
    let [dead] = host.dead::<Happened>().try_into().expect("one");
    assert_eq!(dead.message, Some(Happened(1)));
    assert!(dead.reason.contains("crashed"), "{}", dead.reason);
    assert_eq!(host.completed::<Happened>().len(), 1);
    Ok(())
}

/// A lock that goes to somebody else: the term finds out, what it then does is refused, and the message comes again in
/// the next term.
#[bus::test]
async fn a_lost_lock_ends_the_term() -> Result<()> {
    let script = Script::of(|seen| if seen.count == 1 { Act::Sleep(1.hours()) } else { Act::Succeed });
    let host = host(&["single", "note"], &script).await;
    host.bus().send(Single(1)).await?;
    host.advance(1.minutes()).await;
    host.faults().on("single").lose_lock();
    host.settled().await;
    let seen = script.seen();
    assert_eq!(script.counts(), [(1, 1), (1, 2)]);
    assert!(!seen[0].ended, "its handler was dropped");
    let gap = seen[1].at - seen[0].at;
    assert!(
        gap > 1.minutes() + 19.seconds() && gap < 2.minutes(),
        "{gap:?}: the other one had it for a lease"
    );
    assert_eq!(host.completed::<Single>().len(), 1);
    Ok(())
}

/// Which lock, and whether there is one to lose, has to be clear.
#[bus::test]
async fn a_lock_that_cannot_be_lost_is_named() {
    let host = host(&["single", "strict", "note"], &Script::fine()).await;
    assert!(panic_in(|| host.faults().lose_lock()).contains("faults().on("));
    assert!(panic_in(|| host.faults().on("note").lose_lock()).contains("faults().on("));
    assert!(panic_in(|| host.faults().on("single").lose_lock()).contains("not held at the moment"));
    host.advance(Duration::ZERO).await;
    host.faults().on("single").lose_lock();
}

/// A fault can be meant for one processor alone.
#[bus::test]
async fn a_fault_strikes_where_it_is_meant_to() -> Result<()> {
    let script = Script::fine();
    let host = host(&["note", "slow"], &script).await;
    host.faults().on("slow").drop_next_ack();
    host.bus().send(Note(1)).await?;
    host.bus().send(Slow(2)).await?;
    host.settled().await;
    assert_eq!(script.times(), [(1, 0.0), (2, 0.0), (2, 30.0)]);
    let text = panic_in(|| host.faults().on("slwo"));
    assert!(text.contains("\"slwo\"; did you mean \"slow\"?"), "{text}");
    Ok(())
}

/// Several of a kind strike one after the other.
#[bus::test]
async fn faults_of_a_kind_strike_in_turn() -> Result<()> {
    let script = Script::fine();
    let host = host(&["note"], &script).await;
    let faults = [host.faults().drop_next_ack(), host.faults().drop_next_ack()];
    host.bus().send(Note(1)).await?;
    host.settled().await;
    assert!(faults.iter().all(Fault::has_struck));
    assert_eq!(script.times(), [(1, 0.0), (1, 30.0), (1, 60.0)]);
    Ok(())
}

/// A fault that never struck would have tested nothing: the test fails, and says what was planted where.
#[bus::test]
#[should_panic(expected = "`crash_at(Point::AfterSettle)` never struck")]
async fn a_fault_that_never_strikes_fails_the_test() {
    let host = host(&["note"], &Script::fine()).await;
    host.faults().crash_at(Point::AfterSettle);
    host.settled().await;
}

/// An error of the test's own is told first.
#[bus::test]
#[should_panic(expected = "the test has failed: its own error")]
async fn a_fault_that_never_strikes_hides_no_error() -> Result<()> {
    let host = host(&["note"], &Script::fine()).await;
    host.faults().drop_next_ack();
    Err(bus::Error::new(bus::ErrorKind::NotFound, "its own error"))
}

/// So it is where the test is not a `#[bus::test]`.
#[tokio::test(start_paused = true)]
async fn a_fault_that_never_strikes_is_told_when_its_host_is_dropped() {
    let host = host(&["note"], &Script::fine()).await;
    host.faults().expire_next_claim();
    host.faults().on("note").deliver_next_twice();
    let text = panic_in(move || drop(host));
    assert!(text.contains("testing/faults.rs:"), "{text}");
    assert!(text.contains("`expire_next_claim()` never struck"), "{text}");
    assert!(text.contains("`deliver_next_twice()` never struck"), "{text}");
}
