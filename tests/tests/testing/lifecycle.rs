//! Beginning and ending, also in the middle of something.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bus::prelude::*;
use bus::testing::*;

use crate::handlers::*;

/// A panic in a handler is a failed attempt, and the host goes on.
#[bus::test]
async fn a_panic_in_a_handler_is_a_failed_attempt() -> Result<()> {
    let script = Script::of(|seen| if seen.n == 1 && seen.count == 1 { Act::Panic } else { Act::Succeed });
    let host = host(&["note"], &script).await;
    host.bus().send(Note(1)).await?;
    host.bus().send(Note(2)).await?;
    host.settled().await;
    assert_eq!(host.completed::<Note>().len(), 1);
    host.advance(6.hours()).await;
    assert_eq!(host.completed::<Note>().len(), 2);
    Ok(())
}

/// A stop waits for what runs, gives back what does not, and takes no longer than its grace period.
#[bus::test]
async fn a_stop_drains() -> Result<()> {
    let first = AtomicBool::new(true);
    let script = Script::of(move |seen| match seen.n {
        1 => Act::Sleep(10.seconds()),
        2 if first.swap(false, Ordering::SeqCst) => Act::Hang,
        _ => Act::Succeed,
    });
    let host = host(&["slow", "note"], &script).await;
    host.bus().send(Slow(1)).await?;
    host.bus().send(Slow(2)).await?;
    host.advance(1.seconds()).await;
    host.stop().await?;
    assert!(!host.is_running());
    assert!(host.elapsed() > 30.seconds() && host.elapsed() < 35.seconds(), "{:?}", host.elapsed());
    assert_eq!(host.completed::<Slow>().len(), 1);
    host.stop().await?;

    // Stopped, it takes nothing; what was interrupted is no attempt.
    host.bus().send(Note(3)).await?;
    host.settled().await;
    assert_eq!((host.depth("note").ready, host.depth("slow").ready), (1, 1));
    assert_eq!(script.seen().len(), 2);
    host.restart().await?;
    host.faults().crash();
    host.restart().await?;
    host.settled().await;
    assert_eq!((host.completed::<Note>().len(), host.completed::<Slow>().len()), (1, 2));
    assert_eq!(host.completed::<Slow>()[1].delivery_count, 1);
    Ok(())
}

/// What is provided is made anew by each start; what is given stays, as the world outside does.
#[bus::test]
async fn a_restart_makes_what_is_provided_anew() -> Result<()> {
    let script = Script::fine();
    let host = host(&["note"], &script).await;
    for n in 0..3 {
        host.bus().send(Note(n)).await?;
        host.settled().await;
        host.restart().await?;
    }
    assert_eq!(script.seen().len(), 3);
    Ok(())
}

/// Dropping a host does not wait for handlers that never end, whether they wait or block.
#[bus::test]
async fn the_end_of_a_host_is_bounded() -> Result<()> {
    let began = Instant::now();
    let script = Script::of(|seen| match seen.n {
        1 => Act::Hang,
        _ => Act::Block(Duration::from_secs(2)),
    });
    let host = host(&["slow", "single"], &script).await;
    host.bus().send(Slow(1)).await?;
    host.bus().send(Single(1)).await?;
    host.advance(1.seconds()).await;
    host.bus().send(Slow(2)).await?;
    // Time stands still from here on.
    while script.seen().len() < 3 {
        tokio::task::yield_now().await;
    }
    drop(host);
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    Ok(())
}

/// A panic of the test's own is told as it is, whatever runs and whatever was planted.
#[bus::test]
#[should_panic(expected = "in the middle")]
async fn a_panic_in_the_middle_is_told() {
    let host = host(&["slow"], &Script::of(|_| Act::Hang)).await;
    host.bus().send(Slow(1)).await.expect("sent");
    host.faults().drop_next_ack();
    host.advance(1.seconds()).await;
    panic!("in the middle");
}
