//! A service that refuses work, is slow, or does not answer at all: what calls make of it. What holders do then is in
//! `heavy_storms`.

use std::time::{Duration, Instant};

use bus::ErrorKind;
use bus::contract::{Owner, Renewal};
use bus_emulators::{Fault, Pattern};

use crate::bench::{LEASE, bench, container_creations, lease_requests};

fn busy(seconds: u64) -> Fault {
    Fault::server_busy(Duration::from_secs(seconds))
}

#[tokio::test]
async fn a_refusal_that_names_a_time_is_tried_again_after_that() {
    let bench = bench!();
    let proxy = bench.proxy();
    let lease = bench.take(&bench.host_at(&proxy)).await;
    let busy = proxy.inject_times(2, lease_requests("renew"), busy(1));
    let asked = Instant::now();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
    assert!(asked.elapsed() >= Duration::from_secs(2), "after {:?}", asked.elapsed());
    assert_eq!(busy.count(), 2);
    let tries: Vec<Instant> = proxy.seen(&lease_requests("renew")).iter().map(|seen| seen.at).collect();
    assert!(tries.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(1)), "{tries:?}");
}

/// Half a lease is what a call has. Longer than that nobody waits, and nobody is asked against their will.
#[tokio::test]
async fn a_refusal_for_longer_than_the_deadline_is_told_at_once() {
    let bench = bench!();
    let proxy = bench.proxy();
    let lease = bench.take(&bench.host_at(&proxy)).await;
    let busy = proxy.inject(lease_requests("renew"), busy(8));
    let asked = Instant::now();
    let error = lease.renew().await.unwrap_err();
    // Whoever had waited would have done so for as long as it may.
    assert!(asked.elapsed() < Duration::from_secs(6), "after {:?}", asked.elapsed());
    assert_eq!((error.kind(), error.is_transient(), busy.count()), (ErrorKind::Unavailable, true, 1));
    let told = error.to_string();
    assert!(
        told.contains("status: 503") && told.contains("code: ServerBusy") && told.contains(&bench.container),
        "{told}"
    );
}

/// S5: a time that no clock can count is no reason to panic, be it a misguided proxy's.
#[tokio::test]
async fn a_refusal_for_longer_than_time_lasts_is_told_at_once() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy);
    let lease = bench.take(&host).await;
    let busy = proxy.inject(Pattern::any(), busy(u64::MAX));
    for error in [lease.renew().await.map(drop).unwrap_err(), host.initialize().await.unwrap_err()] {
        assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Unavailable, true), "{error}");
    }
    assert_eq!(busy.count(), 2);
}

/// The SDK's own eight tries would go on for a minute.
#[tokio::test]
async fn a_call_tries_three_times_and_no_more() {
    let bench = bench!();
    let proxy = bench.proxy();
    let lease = bench.take(&bench.host_at(&proxy)).await;
    let busy = proxy.inject(lease_requests("renew"), busy(0));
    assert_eq!(lease.renew().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(busy.count(), 3);
}

/// S5: a black hole costs half a lease and not a moment more, wherever it opens.
#[tokio::test]
async fn whoever_does_not_answer_is_waited_for_half_a_lease() {
    let half = LEASE / 2;
    for fault in [Fault::HoldRequest, Fault::HoldAnswer] {
        let bench = bench!();
        let proxy = bench.proxy();
        let host = bench.host_at(&proxy);
        let lease = bench.take(&host).await;
        let held = [
            proxy.inject(lease_requests("renew"), fault.clone()),
            proxy.inject(lease_requests("acquire"), fault),
        ];
        let asked = Instant::now();
        let (renewal, other) = tokio::join!(lease.renew(), host.try_lock(&bench.id, LEASE, Owner::fresh()));
        let took = asked.elapsed();
        assert!((half..half + Duration::from_secs(2)).contains(&took), "it took {took:?}");
        for error in [renewal.unwrap_err(), other.map(|_| ()).unwrap_err()] {
            assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Timeout, true), "{error}");
        }
        held.iter().for_each(bus_emulators::Injected::release);
    }
}

/// As slow as it may be: three answers of two seconds each are within half a lease of 15 s.
#[tokio::test]
async fn slow_answers_are_waited_for() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy);
    bench.take(&bench.host()).await.release(bus::contract::Ended::Clean).await.unwrap();
    proxy.inject(Pattern::any(), Fault::DelayAnswer(Duration::from_secs(2)));
    let lease = bench.take(&host).await;
    assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
}

/// Somebody has just deleted the container: Azure needs a while before there can be another of that name.
#[tokio::test]
async fn a_container_that_is_being_deleted_is_waited_for() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy);
    let deleted = proxy.inject_times(2, container_creations(), Fault::container_being_deleted());
    host.initialize().await.unwrap();
    assert_eq!(deleted.count(), 2);
    bench.take(&host).await;
}

#[tokio::test]
async fn a_container_that_stays_being_deleted_is_a_clear_error() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy);
    proxy.inject(container_creations(), Fault::container_being_deleted());
    let asked = Instant::now();
    let (start, acquire) = tokio::join!(host.initialize(), host.try_lock(&bench.id, LEASE, Owner::fresh()));
    assert!(asked.elapsed() < Duration::from_secs(15), "it took {:?}", asked.elapsed());
    for error in [start.unwrap_err(), acquire.map(|_| ()).unwrap_err()] {
        assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Unavailable, true), "{error}");
        let told = error.to_string();
        assert!(told.contains("is being deleted") && told.contains(&bench.container), "{told}");
    }
}

/// The whole container is being deleted under a holder: its lock is gone, for certain.
#[tokio::test]
async fn a_container_that_is_being_deleted_has_no_locks() {
    let bench = bench!();
    let proxy = bench.proxy();
    let lease = bench.take(&bench.host_at(&proxy)).await;
    proxy.inject(lease_requests("renew"), Fault::container_being_deleted());
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost);
}
