//! Virtual time: what passes, what does not, and in which order things happen.

use std::time::{Duration, Instant};

use bus::testing::*;

use crate::handlers::*;
use crate::panic_of;

/// What measures time runs with nothing beside it.
mod alone {
    use super::*;

    /// The processor time that this thread has used.
    fn used() -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("below a second"))
    }

    /// The promise of the module: three days of retries in an instant.
    #[bus::test]
    async fn a_three_day_retry_chain_takes_milliseconds() {
        let began = used();
        let script = Script::of(|_| Act::Fail);
        let host = host(&["note"], &script).await;
        host.bus().send(Note(1)).await.expect("sent");
        host.advance(3.days()).await;
        let real = used() - began;
        println!("three days of retries: {real:?}");
        assert_eq!(host.elapsed(), 3.days());
        assert_eq!(host.retried::<Note>().len(), 12);
        assert_eq!(host.dead::<Note>()[0].reason, "failed 13 times");
        assert!(real < Duration::from_millis(100), "{real:?}");
    }

    /// Nothing wakes up where nothing is to be done.
    #[bus::test]
    async fn a_year_without_messages_takes_milliseconds() {
        let began = used();
        let host = host(&["note", "first", "second", "slow"], &Script::fine()).await;
        host.advance(365.days()).await;
        let real = used() - began;
        println!("a year without messages: {real:?}");
        assert!(real < Duration::from_millis(100), "{real:?}");
    }

    /// Three days of a singleton are 52 thousand renewals of its lock.
    #[bus::test]
    async fn three_days_of_a_singleton_take_seconds() {
        let began = used();
        let host = host(&["single"], &Script::fine()).await;
        host.advance(3.days()).await;
        let real = used() - began;
        println!("three days of a singleton: {real:?}");
        assert!(real < Duration::from_secs(10), "{real:?}");
    }
}

/// Nothing that a handler does not wait for takes time, however much of it there is.
#[bus::test]
async fn settling_takes_no_virtual_time() {
    let script = Script::of(|seen| match seen.n {
        n if n < 100 => Act::Send(Answer(n)),
        _ => Act::Succeed,
    });
    let host = host(&["note", "single"], &script).await;
    for n in 0..200 {
        host.bus().send(Note(n)).await.expect("sent");
        host.bus().send(Single(n)).await.expect("sent");
    }
    host.settled().await;
    assert_eq!(host.elapsed(), Duration::ZERO);
    assert_eq!((host.completed::<Note>().len(), host.completed::<Single>().len()), (200, 200));
    assert_eq!(host.sent::<Answer>().len(), 200);
    host.settled().await;
    assert_eq!(host.elapsed(), Duration::ZERO);
}

/// What a handler itself waits for is waited for, and no more.
#[bus::test]
async fn settling_waits_for_what_runs() {
    let script = Script::of(|_| Act::Sleep(40.seconds()));
    let host = host(&["note"], &script).await;
    host.bus().send(Note(1)).await.expect("sent");
    host.settled().await;
    assert_eq!(host.elapsed(), 40.seconds());
    assert!(script.seen()[0].ended);
}

/// A run whose claim was lost is waited for as well, though nothing of it is in the store any more.
#[bus::test]
async fn settling_waits_for_a_run_that_has_lost_its_claim() {
    let script = Script::of(|seen| if seen.count == 1 { Act::Sleep(50.seconds()) } else { Act::Succeed });
    let host = host(&["note"], &script).await;
    host.faults().expire_next_claim();
    host.bus().send(Note(1)).await.expect("sent");
    host.settled().await;
    assert!(script.seen()[0].ended);
    assert_eq!(host.elapsed(), 50.seconds());
    assert_eq!(host.completed::<Note>()[0].at, Duration::ZERO, "by the second delivery");
}

/// A chain of messages is followed to its end.
#[bus::test]
async fn settling_follows_what_handlers_send() {
    let script = Script::of(|seen| if seen.n == 1 { Act::Publish(Happened(2)) } else { Act::Succeed });
    let host = host(&["note", "first", "happened/second"], &script).await;
    host.bus().send(Note(1)).await.expect("sent");
    host.settled().await;
    assert_eq!(host.completed::<Happened>().len(), 2, "one for each subscription");
}

/// What is delayed stays delayed, be it for a retry.
#[bus::test]
async fn settling_leaves_alone_what_is_delayed() {
    let script = Script::of(|_| Act::Fail);
    let host = host(&["note"], &script).await;
    host.bus().send(Note(1)).await.expect("sent");
    host.bus().send(Note(2)).delay(1.seconds()).await.expect("sent");
    host.settled().await;
    assert_eq!(host.depth("note").delayed, 2);
    assert_eq!(script.counts(), [(1, 1)]);
    assert_eq!(host.elapsed(), Duration::ZERO);
}

/// In strict order, what lies behind a message that waits for its retry waits as well, and is not taken for in flight.
#[bus::test]
async fn settling_knows_what_strict_order_holds_back() {
    let script = Script::of(|seen| if seen.count == 1 && seen.n == 1 { Act::Fail } else { Act::Succeed });
    let host = host(&["strict"], &script).await;
    for n in 1..=3 {
        host.bus().send(Strict(n)).await.expect("sent");
    }
    host.settled().await;
    assert_eq!((host.elapsed(), script.counts()), (Duration::ZERO, vec![(1, 1)]));
    host.advance(1.hours()).await;
    assert_eq!(script.times(), [(1, 0.0), (1, 3600.0), (2, 3600.0), (3, 3600.0)]);
}

/// A queue that nobody of this host reads is no reason to wait.
#[bus::test]
async fn settling_does_not_wait_for_what_nobody_reads() {
    let host = host(&["note"], &Script::fine()).await;
    host.bus().send(Single(1)).await.expect("sent");
    host.settled().await;
    assert_eq!(host.depth("single").ready, 1);
    assert_eq!(host.sent::<Single>().len(), 1);
}

/// A message that expires in the queue leaves nothing to wait for.
#[bus::test]
async fn settling_sees_what_expires() {
    let host = host(&["note"], &Script::fine()).await;
    let stale = host.bus().send(Note(1)).delay(2.seconds()).time_to_live(1.seconds());
    stale.await.expect("sent");
    host.advance(2.seconds()).await;
    assert_eq!(host.elapsed(), 2.seconds());
    assert_eq!(host.dead::<Note>()[0].reason, "expired");
}

/// Everything due happens at its own instant, in order, and its consequences within the time happen as well.
#[bus::test]
async fn time_passes_event_by_event() {
    let script = Script::of(|seen| match (seen.n, seen.count) {
        (1, 1) => Act::Fail,
        (2, _) => Act::Send(Answer(9)),
        _ => Act::Succeed,
    });
    let host = host(&["note", "slow"], &script).await;
    host.bus().send(Note(1)).await.expect("sent");
    host.bus().send(Note(2)).delay(7.hours()).await.expect("sent");
    host.bus().send(Slow(3)).due(host.now() + 2.hours()).await.expect("sent");
    host.bus().send(Slow(4)).delay(9.hours()).await.expect("sent");
    host.advance(8.hours()).await;
    assert_eq!(script.times(), [(1, 0.0), (3, 7200.0), (1, 21600.0), (2, 25200.0)]);
    assert_eq!(host.sent::<Answer>()[0].at, 7.hours());
    assert_eq!(host.elapsed(), 8.hours());
}

/// What falls due in the last instant is done in it, with what follows from it.
#[bus::test]
async fn the_last_instant_is_lived_through() {
    let script = Script::of(|seen| if seen.n == 1 { Act::Publish(Happened(2)) } else { Act::Succeed });
    let host = host(&["note", "first"], &script).await;
    host.bus().send(Note(1)).delay(1.hours()).await.expect("sent");
    host.advance(1.hours() - 1.milliseconds()).await;
    assert_eq!(script.counts(), []);
    host.advance(1.milliseconds()).await;
    assert_eq!(script.times(), [(1, 3600.0), (2, 3600.0)]);
    assert_eq!(host.elapsed(), 1.hours());
}

/// What runs on is left running, so that a test can look at it in the middle.
#[bus::test]
async fn advancing_does_not_wait_for_what_runs() {
    let script = Script::of(|_| Act::Sleep(5.hours()));
    let host = host(&["slow"], &script).await;
    host.bus().send(Slow(1)).await.expect("sent");
    host.advance(3.hours()).await;
    assert_eq!(
        host.elapsed(),
        3.hours() + 1.milliseconds(),
        "a millisecond to find out that it waits for time"
    );
    assert_eq!((host.depth("slow").in_flight, script.seen()[0].ended), (1, false));
    host.advance(2.hours()).await;
    assert!(script.seen()[0].ended);
}

/// Leases, too: a singleton keeps its lock and its claim for days.
#[bus::test]
async fn leases_are_kept_through_virtual_time() {
    let script = Script::of(|_| Act::Sleep(5.hours()));
    let host = host(&["single"], &script).await;
    host.bus().send(Single(1)).await.expect("sent");
    host.advance(5.hours()).await;
    assert_eq!(host.completed::<Single>()[0].at, 5.hours());
    assert_eq!(script.counts(), [(1, 1)]);
}

/// Time stands still while a thread works.
#[bus::test]
async fn blocking_work_takes_no_virtual_time() {
    let script = Script::of(|_| Act::Block(Duration::from_millis(30)));
    let host = host(&["note"], &script).await;
    host.bus().send(Note(1)).await.expect("sent");
    host.settled().await;
    assert!(script.seen()[0].ended);
    assert_eq!(host.elapsed(), Duration::ZERO);
}

/// A handler that never ends does not hang the test: the panic names it, its message and the caller.
#[bus::test]
async fn what_never_settles_is_named() {
    let script = Script::of(|_| Act::Hang);
    let host = host(&["slow"], &script).await;
    let id = host.bus().send(Slow(1)).await.expect("sent").id().to_string();
    let text = panic_of(host.settled()).await;
    for words in [
        "testing/time.rs:",
        "not settled after 3600s",
        "`slow` (",
        "testing/handlers.rs:",
        "runs the `Slow`",
        &id,
        "for 3600s so far",
        "patience",
    ] {
        assert!(text.contains(words), "{words} is missing from: {text}");
    }
    assert_eq!(host.elapsed(), 1.hours());
}

/// So is a message that nobody takes, since the singleton's lock is elsewhere.
#[bus::test]
async fn a_message_that_nobody_takes_is_named() {
    let builder = TestHost::builder().only(["single"]).provide(Script::fine()).patience(10.seconds());
    let host = builder.start().await.expect("it starts");
    host.settled().await;
    host.advance(0.seconds()).await;
    host.faults().lose_lock();
    host.bus().send(Single(1)).await.expect("sent");
    let text = panic_of(host.settled()).await;
    assert!(text.contains("not settled after 10s") && text.contains("1 available"), "{text}");
}

/// One that ends by itself after more than an hour is given the time that it takes.
#[bus::test]
async fn patience_can_be_had() {
    let script = Script::of(|_| Act::Sleep(2.days()));
    let builder = TestHost::builder().processor(note).only(["slow"]).provide(script.clone());
    let host = builder.patience(3.days()).start().await.expect("it starts");
    host.bus().send(Slow(1)).await.expect("sent");
    host.settled().await;
    assert_eq!(host.elapsed(), 2.days());
}

/// The jitter of retries is the same each time.
#[test]
fn a_test_sees_the_same_jitter_each_time() {
    #[tokio::main(flavor = "current_thread", start_paused = true)]
    async fn pauses() -> Vec<Duration> {
        let script = Script::of(|seen| if seen.count < 3 { Act::Fail } else { Act::Succeed });
        let host = host(&["first"], &script).await;
        host.bus().publish(Happened(1)).await.expect("published");
        host.advance(1.hours()).await;
        host.retried::<Happened>().iter().map(|retried| retried.after).collect()
    }
    let pauses_once = pauses();
    assert_eq!(pauses_once, pauses());
    assert_eq!(pauses_once.len(), 2);
    assert!(pauses_once[0] >= 500.milliseconds() && pauses_once[1] <= 2.seconds(), "{pauses_once:?}");
}

/// A test that has not paused time gets it paused.
#[tokio::test]
async fn time_that_runs_is_paused() {
    let began = Instant::now();
    let host = host(&["note"], &Script::fine()).await;
    host.bus().send(Note(1)).delay(1.hours()).await.expect("sent");
    host.advance(2.hours()).await;
    assert_eq!(host.completed::<Note>().len(), 1);
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn durations_are_said_as_they_are_spoken() {
    assert_eq!(3.days(), Duration::from_secs(3 * 86_400));
    assert_eq!(1_u64.hours() + 2_usize.minutes() + 3_i64.seconds(), Duration::from_secs(3723));
    assert_eq!(1500_u32.milliseconds(), Duration::from_millis(1500));
    assert!(crate::panic_in(|| (-1).days()).contains("-1"));
    assert!(crate::panic_in(|| u64::MAX.days()).contains("86400"));
}
