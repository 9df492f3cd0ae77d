//! What the service answers about leases, row by row, and what the manager makes of each. Were a row to change, the
//! protocol would have to.

use std::time::Duration;

use bus::ErrorKind;
use bus::contract::{Ended, Owner, Renewal};
use bus_emulators::Fault;

use crate::bench::{BLOB, LEASE, bench, lease_requests, record_reads};

/// Longer than the lease. What is waited for here is the passing of time itself.
const PAST_THE_LEASE: Duration = Duration::from_millis(16_200);

#[tokio::test]
async fn a_second_acquire_is_a_conflict_and_means_held_elsewhere() {
    let bench = bench!();
    let holder = bench.take(&bench.host()).await;
    let second = bench.raw.acquire(BLOB, 15, &Owner::fresh().to_string()).await;
    assert_eq!(second.outcome(), (409, "LeaseAlreadyPresent"));
    assert!(bench.try_take(&bench.host()).await.is_none());
    assert_eq!(holder.renew().await.unwrap(), Renewal::Held);
}

#[tokio::test]
async fn acquiring_again_with_the_same_id_is_the_same_lease() {
    let bench = bench!();
    let (host, owner) = (bench.host(), Owner::fresh());
    let first = host.try_lock(&bench.id, LEASE, owner).await.unwrap().unwrap();
    let raw = bench.raw.acquire(BLOB, 15, &owner.to_string()).await;
    assert!((200..300).contains(&raw.status), "{raw:?}");
    let again = host.try_lock(&bench.id, LEASE, owner).await.unwrap().unwrap();
    assert_eq!(again.fence(), first.fence());

    // Whichever success it is told by: Azurite says 201, and elsewhere 200 was seen.
    let proxy = bench.proxy();
    let ok = Fault::Refuse { status: 200, code: String::new(), retry_after: None };
    proxy.inject_times(1, lease_requests("acquire"), ok);
    let again = bench.host_at(&proxy).try_lock(&bench.id, LEASE, owner).await.unwrap().unwrap();
    assert_eq!(again.fence(), first.fence());
}

#[tokio::test]
async fn a_missing_container_or_blob_is_not_found_and_is_made() {
    let bench = bench!();
    let missing = bench.raw.acquire(BLOB, 15, &Owner::fresh().to_string()).await;
    assert_eq!(missing.outcome(), (404, "ContainerNotFound"));
    let host = bench.host();
    host.initialize().await.unwrap();
    let missing = bench.raw.acquire(BLOB, 15, &Owner::fresh().to_string()).await;
    assert_eq!(missing.outcome(), (404, "BlobNotFound"));
    bench.take(&host).await;
    assert_eq!(bench.raw.read(BLOB).await.header("x-ms-lease-state"), "leased");
}

/// The same without `initialize`: a container that somebody has deleted meanwhile.
#[tokio::test]
async fn a_container_that_has_gone_is_made_again() {
    let bench = bench!();
    let host = bench.host();
    host.initialize().await.unwrap();
    assert_eq!(bench.raw.delete_container().await.status, 202);
    bench.take(&host).await;
}

/// S23, S18: all come first, to a container that is not there: one has the lock, the others are told so, and none fails.
#[tokio::test]
async fn a_race_to_create_is_no_error() {
    let bench = bench!();
    let race = (0..8).map(|_| async {
        let host = bench.host();
        host.initialize().await.expect("a container that others make as well is no error");
        bench.try_take(&host).await
    });
    let winners = futures_util::future::join_all(race).await.into_iter().flatten().count();
    assert_eq!(winners, 1);
    // What they ran into.
    assert_eq!(bench.raw.create_container().await.outcome(), (409, "ContainerAlreadyExists"));
    let created = bench.raw.create(BLOB).await;
    assert!(matches!(created.outcome(), (409, "BlobAlreadyExists") | (412, "LeaseIdMissing")), "{created:?}");
}

/// A lease that has run out is renewed, if nobody has taken it since. The term goes on only because the record says so.
#[tokio::test]
async fn renewing_an_expired_lease_that_nobody_took_succeeds_and_the_record_is_asked() {
    let bench = bench!();
    let proxy = bench.proxy();
    let lease = bench.take(&bench.host_at(&proxy)).await;
    let reads = proxy.seen(&record_reads()).len();
    tokio::time::sleep(PAST_THE_LEASE).await;
    assert_eq!(bench.raw.read(BLOB).await.header("x-ms-lease-state"), "expired");
    assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
    assert_eq!(proxy.seen(&lease_requests("renew"))[0].performed, Some(200));
    assert_eq!(proxy.seen(&record_reads()).len(), reads + 1);
    assert_eq!(bench.raw.read(BLOB).await.header("x-ms-lease-state"), "leased");
}

/// A renewal answered 200 is no proof that it was held all along. Late, the record is asked; in time, it need not be.
#[tokio::test]
async fn a_late_renewal_that_succeeds_is_lost_if_the_record_is_another_terms() {
    let bench = bench!();
    let proxy = bench.proxy();
    let lease = bench.take(&bench.host_at(&proxy)).await;
    let reads = proxy.seen(&record_reads()).len();
    let id = lease.lease_id().to_string();
    let other = Owner::fresh().to_string();
    let written =
        [("fence", "9000000000000000"), ("owner", other.as_str()), ("lease", "15000ms"), ("clean", "false")];
    assert_eq!(bench.raw.write(BLOB, &written, Some(&id)).await.status, 200);

    assert_eq!(lease.renew().await.unwrap(), Renewal::Held, "in time, the answer alone counts");
    assert_eq!(proxy.seen(&record_reads()).len(), reads);
    tokio::time::sleep(LEASE / 2 + Duration::from_millis(200)).await;
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost);
    assert!(proxy.seen(&lease_requests("renew")).iter().all(|seen| seen.performed == Some(200)));
    // Its release frees nothing that is another's, and writes nothing into the other's record.
    lease.release(Ended::Clean).await.unwrap();
    let record = bench.raw.read(BLOB).await;
    assert_eq!((record.metadata("owner"), record.metadata("clean")), (other.as_str(), "false"));
}

/// S8.
#[tokio::test]
async fn renewing_or_releasing_what_another_has_taken_is_a_conflict_and_means_lost() {
    let bench = bench!();
    let former = bench.take(&bench.host()).await;
    tokio::time::sleep(PAST_THE_LEASE).await;
    let holder = bench.take(&bench.host()).await;
    let id = former.lease_id().to_string();
    assert_eq!(bench.raw.renew(BLOB, &id).await.outcome(), (409, "LeaseIdMismatchWithLeaseOperation"));
    assert_eq!(bench.raw.release(BLOB, &id).await.outcome(), (409, "LeaseIdMismatchWithLeaseOperation"));
    assert_eq!(former.renew().await.unwrap(), Renewal::Lost);
    former.release(Ended::Clean).await.unwrap();
    assert_eq!(holder.renew().await.unwrap(), Renewal::Held);
}

#[tokio::test]
async fn an_expired_lease_on_a_blob_that_was_written_since_is_lost() {
    let bench = bench!();
    let lease = bench.take(&bench.host()).await;
    tokio::time::sleep(PAST_THE_LEASE).await;
    assert_eq!(bench.raw.write(BLOB, &[("by", "somebody")], None).await.status, 200);
    let raw = bench.raw.renew(BLOB, &lease.lease_id().to_string()).await;
    assert_eq!(raw.outcome(), (409, "LeaseIdMismatchWithLeaseOperation"));
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost);
}

#[tokio::test]
async fn nothing_is_written_without_the_lease_or_after_it() {
    let bench = bench!();
    let lease = bench.take(&bench.host()).await;
    assert_eq!(bench.raw.write(BLOB, &[], None).await.outcome(), (412, "LeaseIdMissing"));
    let before = bench.raw.read(BLOB).await;
    tokio::time::sleep(PAST_THE_LEASE).await;
    let id = lease.lease_id().to_string();
    let late = bench.raw.write(BLOB, &[], Some(&id)).await;
    assert_eq!(late.outcome(), (412, "LeaseNotPresentWithBlobOperation"));
    // So neither a note nor the mark of a clean end comes from a holder whose lease has run out.
    lease.note(b"late".to_vec()).await.unwrap();
    lease.release(Ended::Clean).await.unwrap();
    let after = bench.raw.read(BLOB).await;
    assert_eq!(after.header("etag"), before.header("etag"));
}

/// What an operator should not do, and what comes of it: another takes over while the holder does not know.
#[tokio::test]
async fn a_lease_broken_at_once_is_free_at_once_and_its_holder_hears_of_it_at_the_next_renewal() {
    let bench = bench!();
    let holder = bench.take(&bench.host()).await;
    assert_eq!(bench.raw.break_lease(BLOB, Duration::ZERO).await.status, 202);
    let raw = bench.raw.renew(BLOB, &holder.lease_id().to_string()).await;
    assert_eq!(raw.outcome(), (409, "LeaseIsBrokenAndCannotBeRenewed"));
    let next = bench.take(&bench.host()).await;
    assert!(next.fence() > holder.fence());
    assert_eq!(holder.renew().await.unwrap(), Renewal::Lost);
}

/// What an operator may do: nobody takes over before the period has passed, and the holder hears of it long before.
#[tokio::test]
async fn a_lease_broken_with_a_period_keeps_others_out_until_then_and_cannot_be_renewed() {
    let bench = bench!();
    let (holder, host) = (bench.take(&bench.host()).await, bench.host());
    let broken = tokio::time::Instant::now();
    assert_eq!(bench.raw.break_lease(BLOB, Duration::from_secs(5)).await.status, 202);
    assert_eq!(holder.renew().await.unwrap(), Renewal::Lost);
    let raw = bench.raw.acquire(BLOB, 15, &Owner::fresh().to_string()).await;
    assert_eq!(raw.status, 409, "{raw:?}");
    let next = bench.wait_for(&host, Duration::from_secs(10)).await;
    assert!(broken.elapsed() >= Duration::from_millis(4_900), "it was free after {:?}", broken.elapsed());
    assert!(next.fence() > holder.fence());
}

#[tokio::test]
async fn leases_are_15_to_60_seconds_and_others_are_refused_unasked() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy);
    bench.take(&bench.host()).await.release(Ended::Clean).await.unwrap();
    for seconds in [14, 61] {
        let raw = bench.raw.acquire(BLOB, seconds, &Owner::fresh().to_string()).await;
        assert_eq!(raw.status, 400, "{raw:?}");
    }
    for lease in [Duration::from_millis(14_999), Duration::from_millis(60_001), Duration::ZERO] {
        let refused = host.try_lock(&bench.id, lease, Owner::fresh()).await.map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        assert!(refused.to_string().contains("15s to 60s"), "{refused}");
    }
    assert!(proxy.seen(&bus_emulators::Pattern::any()).is_empty());
}

/// The store must not forget a holder before he gives up himself.
#[tokio::test]
async fn a_lease_that_is_no_whole_second_is_rounded_up_for_the_service() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy);
    host.try_lock(&bench.id, Duration::from_millis(15_250), Owner::fresh()).await.unwrap().unwrap();
    let asked = proxy.seen(&lease_requests("acquire"));
    assert!(asked.iter().all(|seen| seen.request.header("x-ms-lease-duration") == Some("16")), "{asked:?}");
    let record = host.inspect(&bench.id).await.unwrap().unwrap();
    assert_eq!(record.lock_lease, Duration::from_millis(15_250), "the holder goes by its own");
}
