//! An account that is busy: 503, with and without a word on when to come back.

use std::time::{Duration, Instant};

use bus::ErrorKind;
use bus::message::Verdict;
use bus_emulators::Fault;
use bus_tests::by_hand::{command, settle};

use crate::bench::{LONG, bench, claims, deletes, next, puts, updates};

/// A refusal is certain, so that every call is made again, and not before the service wants to be asked.
#[tokio::test]
async fn what_was_refused_is_made_again_when_the_service_wants_to_be_asked() {
    const SILENCE: Duration = Duration::from_secs(2);
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy).await;
    let consumer = host.consumer(LONG).await;
    for pattern in [puts(), claims(), updates(), deletes()] {
        proxy.inject_times(1, pattern, Fault::server_busy(SILENCE));
    }
    host.send("through a busy account").await;
    let got = next(&consumer).await;
    consumer.extend(&mut [got.receipt.clone()], LONG).await.remove(0).unwrap();
    settle(&consumer, &got.receipt, Verdict::Complete).await.unwrap();
    for pattern in [puts(), claims(), updates(), deletes()] {
        let seen = proxy.seen(&pattern);
        let answers: Vec<_> = seen.iter().map(|seen| seen.answered).collect();
        assert_eq!(answers.first(), Some(&Some(503)), "{pattern:?}");
        let pause = seen[1].at.duration_since(seen[0].at);
        assert!(pause >= SILENCE, "{pattern:?} came again after {pause:?}");
    }
    assert_eq!(bench.raw.count(&bench.queue()).await, 0);
}

/// A service that wants to be left alone for longer than a call may take is left alone by the calls that follow, too.
#[tokio::test]
async fn a_service_that_wants_to_be_left_alone_for_long_is_left_alone() {
    const SILENCE: Duration = Duration::from_secs(20);
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy).await;
    proxy.inject_times(1, puts(), Fault::server_busy(SILENCE));
    let began = Instant::now();
    for _ in 0..3 {
        let error = host.try_send(command("work", "refused")).await.unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Unavailable, true), "{error}");
    }
    assert!(began.elapsed() < Duration::from_secs(10), "said at once: {:?}", began.elapsed());
    assert_eq!(proxy.seen(&puts()).len(), 1, "nothing was asked meanwhile");
    let sent = loop {
        match host.try_send(command("work", "at last")).await {
            Ok(_) => break Instant::now(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
        assert!(began.elapsed() < SILENCE * 3, "never sent");
    };
    assert!(sent.duration_since(began) >= SILENCE);
    assert_eq!(bench.raw.count(&bench.queue()).await, 1);
}
