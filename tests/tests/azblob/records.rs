//! What stands in a lock's blob, and what is made of what others left there.

use std::time::Duration;

use bus::ErrorKind;
use bus::contract::{Ended, Fence, Owner};
use bus_emulators::Fault;

use crate::bench::{BLOB, LEASE, bench, lease_requests, record_writes};

/// Golden: programs of different releases share these blobs. A lock's blob is never deleted.
#[tokio::test]
async fn a_record_is_readable_metadata_of_a_blob_that_stays() {
    let bench = bench!();
    let host = bench.host();
    let lease = bench.take(&host).await;
    lease.note(b"process 7 on web-1".to_vec()).await.unwrap();
    let held = bench.raw.read(BLOB).await;
    let (fence, owner) = (lease.fence().to_string(), lease.lease_id().to_string());
    for (name, value) in [
        ("fence", fence.as_str()),
        ("owner", owner.as_str()),
        ("lease", "15000ms"),
        ("clean", "false"),
        ("cut", ""),
        ("note", "process~207~20on~20web-1"),
    ] {
        assert_eq!(held.metadata(name), value, "{name}");
    }
    assert_eq!((held.header("x-ms-lease-state"), held.header("content-length")), ("leased", "0"));

    lease.release(Ended::Clean).await.unwrap();
    let released = bench.raw.read(BLOB).await;
    assert_eq!((released.metadata("clean"), released.header("x-ms-lease-state")), ("true", "available"));

    let lease = bench.take(&host).await;
    lease.release(Ended::Cut("2 runs were cut off".to_owned())).await.unwrap();
    let cut = bench.raw.read(BLOB).await;
    assert_eq!((cut.metadata("clean"), cut.metadata("cut")), ("false", "2~20runs~20were~20cut~20off"));
    assert_eq!(cut.header("x-ms-lease-state"), "leased", "nothing is freed early");
    assert_eq!(cut.metadata("note"), "process~207~20on~20web-1", "kept for the next holder");
}

/// §5.10: what a cut leaves behind is nobody's, not even its owner's: neither renewed, nor released, nor acquired.
#[tokio::test]
async fn after_a_cut_its_own_id_opens_the_lease_no_more() {
    let bench = bench!();
    let lease = bench.take(&bench.host()).await;
    let id = lease.lease_id().to_string();
    lease.release(Ended::Cut("cut".to_owned())).await.unwrap();
    assert_eq!(bench.raw.renew(BLOB, &id).await.status, 409);
    assert_eq!(bench.raw.release(BLOB, &id).await.status, 409);
    assert_eq!(bench.raw.acquire(BLOB, 15, &id).await.status, 409);
}

/// S7: the number comes from the store's clock, and so grows even where the blob was lost with the number in it.
#[tokio::test]
async fn the_fence_grows_across_the_loss_of_the_blob() {
    let bench = bench!();
    let host = bench.host();
    let first = bench.take(&host).await;
    first.release(Ended::Clean).await.unwrap();
    assert_eq!(bench.raw.delete(BLOB).await.status, 202);
    // The clock of the answers has whole seconds.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let second = bench.take(&host).await;
    assert!(second.fence() > first.fence(), "{} after {}", second.fence(), first.fence());
}

/// S7: and from the last number, where that is ahead of the clock.
#[tokio::test]
async fn the_fence_grows_from_a_number_that_is_ahead_of_the_clock() {
    let bench = bench!();
    let host = bench.host();
    let first = bench.take(&host).await;
    first.release(Ended::Clean).await.unwrap();
    let owner = Owner::fresh().to_string();
    let ahead = [
        ("fence", "8000000000000000000"),
        ("owner", owner.as_str()),
        ("lease", "15000ms"),
        ("clean", "true"),
    ];
    assert_eq!(bench.raw.write(BLOB, &ahead, None).await.status, 200);
    assert_eq!(bench.take(&host).await.fence(), Fence::new(8_000_000_000_000_000_001));
}

/// A blob that is there already, of a KnightBus's lock manager for example, is taken as it is.
#[tokio::test]
async fn a_blob_without_a_record_is_a_lock_that_nobody_ever_held() {
    let bench = bench!();
    let host = bench.host();
    host.initialize().await.unwrap();
    assert_eq!(bench.raw.create(BLOB).await.status, 201);
    assert!(host.inspect(&bench.id).await.unwrap().is_none());
    assert!(host.list("").await.unwrap().is_empty());
    let lease = bench.take(&host).await;
    assert_eq!(host.inspect(&bench.id).await.unwrap().unwrap().fence, lease.fence());
}

/// A lock that cannot be understood is not taken, is left to nobody for longer than it takes to say so, and does not hide
/// the others.
#[tokio::test]
async fn a_record_that_somebody_else_wrote_is_named_and_not_overwritten() {
    let bench = bench!();
    let host = bench.host();
    bench.take(&host).await.release(Ended::Clean).await.unwrap();
    let good = bus::contract::LockId::from("queue/good");
    host.try_lock(&good, LEASE, Owner::fresh()).await.unwrap().unwrap();
    assert_eq!(bench.raw.write(BLOB, &[("fence", "many")], None).await.status, 200);
    for _ in 0..2 {
        let error = host.try_lock(&bench.id, LEASE, Owner::fresh()).await.map(|_| ()).unwrap_err();
        assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Corrupt, false));
        assert!(
            error.to_string().contains("blob: queue.it") && error.to_string().contains("fence"),
            "{error}"
        );
        assert_eq!(bench.raw.read(BLOB).await.header("x-ms-lease-state"), "available");
    }
    assert_eq!(bench.raw.read(BLOB).await.metadata("fence"), "many");
    let listed = host.list("queue/").await.unwrap();
    assert_eq!(listed.iter().map(|record| record.id.as_str()).collect::<Vec<_>>(), ["queue/good"]);
}

/// A container that keeps what is written (an immutability policy) can have no locks. That is no holder elsewhere for whom
/// a standby would wait for ever.
#[tokio::test]
async fn a_conflict_that_is_not_about_the_lease_is_an_error() {
    let bench = bench!();
    bench.take(&bench.host()).await.release(Ended::Clean).await.unwrap();
    for step in [lease_requests("acquire"), record_writes()] {
        let proxy = bench.proxy();
        let code = "BlobImmutableDueToPolicy".to_owned();
        proxy.inject(step.clone(), Fault::Refuse { status: 409, code, retry_after: None });
        let answer = bench.host_at(&proxy).try_lock(&bench.id, LEASE, Owner::fresh()).await;
        let error = answer.map(|lease| lease.is_some()).unwrap_err();
        assert!(
            !error.is_transient() && error.to_string().contains("BlobImmutableDueToPolicy"),
            "{step:?}: {error}"
        );
    }
}

/// S21: a fresh owner per acquisition is a fresh lease per acquisition.
#[tokio::test]
async fn the_lease_has_the_owners_id() {
    let bench = bench!();
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy);
    let first = bench.take(&host).await;
    first.release(Ended::Clean).await.unwrap();
    let second = bench.take(&host).await;
    let proposed =
        |seen: &bus_emulators::Seen| seen.request.header("x-ms-proposed-lease-id").map(str::to_owned);
    let asked: Vec<_> = proxy.seen(&lease_requests("acquire")).iter().filter_map(proposed).collect();
    assert_eq!(asked.first(), Some(&first.lease_id().to_string()));
    assert_eq!(asked.last(), Some(&second.lease_id().to_string()));
}
