//! Requests that were performed, and nobody heard of it; requests that are performed long after anyone waits for them.

use std::sync::Arc;
use std::time::Duration;

use bus::ErrorKind;
use bus::contract::{Ended, LockManager, Owner, Renewal};
use bus_emulators::{Fault, FaultProxy, Injected, Pattern};
use bus_tests::wait::in_time;

use crate::bench::{
    BLOB, Bench, LEASE, bench, blob_creations, container_creations, lease_requests, record_reads,
    record_writes,
};

/// More often than a call tries by itself.
const THROUGHOUT_A_CALL: usize = 3;

async fn struck(injected: &Injected, times: usize) {
    in_time("the fault happens", injected.struck(times)).await;
}

/// Whether some other host is given the lock.
async fn is_free(bench: &Bench) -> bool {
    bench.try_take(&bench.host()).await.is_some()
}

/// The lock, taken through a proxy that does not lose anything yet.
async fn taken(bench: &Bench) -> (FaultProxy, Arc<dyn LockManager>, Box<dyn bus::contract::Lease>) {
    let proxy = bench.proxy();
    let host = bench.host_at(&proxy);
    let lease = bench.take(&host).await;
    (proxy, host, lease)
}

/// S23: each step of taking a lock that is not even there: the answer is lost, the lock taken all the same, once.
#[tokio::test]
async fn a_lost_answer_to_any_step_of_an_acquire_does_not_lock_us_out() {
    for step in
        [container_creations(), blob_creations(), lease_requests("acquire"), record_reads(), record_writes()]
    {
        let bench = bench!();
        let proxy = bench.proxy();
        let lost = proxy.inject_times(1, step.clone(), Fault::DropAnswer);
        let host = bench.host_at(&proxy);
        let lease = bench.take(&host).await;
        struck(&lost, 1).await;
        assert!(!is_free(&bench).await, "{step:?}");
        let record = host.inspect(&bench.id).await.unwrap().unwrap();
        assert_eq!((record.owner, record.fence), (lease.lease_id(), lease.fence()), "{step:?}");
        assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
    }
}

/// S23: no answer comes for a whole call: that is no lock. The next call of the same owner finds what the first one did,
/// as long as it takes: the same term.
#[tokio::test]
async fn an_acquire_whose_answers_were_all_lost_is_repeated_under_the_same_owner() {
    for step in [lease_requests("acquire"), record_writes()] {
        let bench = bench!();
        bench.take(&bench.host()).await.release(Ended::Clean).await.unwrap();
        let proxy = bench.proxy();
        let host = bench.host_at(&proxy);
        let lost = proxy.inject_times(THROUGHOUT_A_CALL, step.clone(), Fault::DropAnswer);
        let owner = Owner::fresh();
        // A lost write is read again, and found.
        let first = host.try_lock(&bench.id, LEASE, owner).await;
        if let Err(error) = &first {
            assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Unavailable, true), "{error}");
        }
        assert!(!is_free(&bench).await, "the service has given the lease");
        lost.remove();
        let again = host.try_lock(&bench.id, LEASE, owner).await.unwrap().expect("it is ours");
        if let Ok(Some(first)) = first {
            assert_eq!(again.fence(), first.fence());
        }
        assert_eq!(again.renew().await.unwrap(), Renewal::Held, "{step:?}");
    }
}

/// S23: the record's write may or may not have happened, and cannot be looked at either: not acquired.
#[tokio::test]
async fn without_a_confirmed_record_there_is_no_lock() {
    let bench = bench!();
    let (proxy, host) = (bench.proxy(), bench.host());
    host.initialize().await.unwrap();
    let host = bench.host_at(&proxy);
    proxy.inject(record_writes(), Fault::DropAnswer);
    let reads = proxy.inject_times(1, record_reads(), Fault::Pass);
    proxy.inject(record_reads(), Fault::DropAnswer);
    let owner = Owner::fresh();
    let answer = host.try_lock(&bench.id, LEASE, owner).await;
    assert_eq!(answer.map(|_| ()).unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(reads.count(), 1);
    proxy.clear();
    assert!(host.try_lock(&bench.id, LEASE, owner).await.unwrap().is_some());
}

#[tokio::test]
async fn a_lost_answer_to_a_renewal_is_a_renewal() {
    let bench = bench!();
    let (proxy, _, lease) = taken(&bench).await;
    let lost = proxy.inject_times(1, lease_requests("renew"), Fault::DropAnswer);
    assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
    struck(&lost, 1).await;
    // All of a call's: then it is unknown, and neither held nor lost.
    let lost = proxy.inject_times(THROUGHOUT_A_CALL, lease_requests("renew"), Fault::DropAnswer);
    let unknown = lease.renew().await.unwrap_err();
    assert!(unknown.is_transient(), "{unknown}");
    struck(&lost, THROUGHOUT_A_CALL).await;
    assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
}

/// S3, S28: also if nobody hears of it.
#[tokio::test]
async fn a_lost_answer_to_a_release_is_a_release() {
    for step in [record_reads(), record_writes(), lease_requests("release")] {
        let bench = bench!();
        let (proxy, _, lease) = taken(&bench).await;
        let lost = proxy.inject_times(1, step.clone(), Fault::DropAnswer);
        lease.release(Ended::Clean).await.unwrap();
        struck(&lost, 1).await;
        assert_eq!(bench.raw.read(BLOB).await.metadata("clean"), "true", "{step:?}");
        assert!(is_free(&bench).await, "{step:?}");
    }
}

/// The same for a whole call, and for one that is repeated then.
#[tokio::test]
async fn a_release_whose_answers_were_all_lost_may_be_repeated() {
    let bench = bench!();
    let (proxy, _, lease) = taken(&bench).await;
    let lost = proxy.inject_times(THROUGHOUT_A_CALL, lease_requests("release"), Fault::DropAnswer);
    let unknown = lease.release(Ended::Clean).await.unwrap_err();
    assert!(unknown.is_transient(), "{unknown}");
    struck(&lost, THROUGHOUT_A_CALL).await;
    // The first try of all has freed it, so that this one is told that it is not ours: released.
    lease.release(Ended::Clean).await.unwrap();
    let seen = proxy.seen(&lease_requests("release"));
    assert_eq!(seen.last().and_then(|seen| seen.performed), Some(409));
    assert!(is_free(&bench).await);
}

#[tokio::test]
async fn a_lost_answer_to_any_step_of_a_cut_frees_nothing_early() {
    for step in [record_reads(), record_writes(), lease_requests("change")] {
        let bench = bench!();
        let (proxy, _, lease) = taken(&bench).await;
        let lost = proxy.inject_times(1, step.clone(), Fault::DropAnswer);
        lease.release(Ended::Cut("it hung".to_owned())).await.unwrap();
        struck(&lost, 1).await;
        assert_eq!(bench.raw.read(BLOB).await.metadata("cut"), "it~20hung", "{step:?}");
        assert!(!is_free(&bench).await, "{step:?}");
        assert_eq!(lease.renew().await.unwrap(), Renewal::Lost);
    }
}

/// S18: an acquirer dies at each step of its acquire, and what it had asked for is performed when nobody waits for it any
/// more. Somebody else has the lock within a lease, and what is late harms nobody.
#[tokio::test]
async fn whoever_dies_in_the_midst_of_an_acquire_keeps_others_out_for_one_lease_at_most() {
    let steps = [lease_requests("acquire"), record_reads(), record_writes()];
    let deaths = steps.iter().flat_map(|step| [(step, Fault::HoldRequest), (step, Fault::HoldAnswer)]);
    let die = deaths.map(|(step, fault)| async move {
        let bench = bench!();
        bench.take(&bench.host()).await.release(Ended::Clean).await.unwrap();
        let proxy = bench.proxy();
        let held = proxy.inject_times(1, step.clone(), fault.clone());
        let (host, id) = (bench.host_at(&proxy), bench.id.clone());
        let dying = tokio::spawn(async move { host.try_lock(&id, LEASE, Owner::fresh()).await.map(drop) });
        struck(&held, 1).await;
        dying.abort();
        held.release();
        let next = bench.wait_for(&bench.host(), LEASE + Duration::from_secs(3)).await;
        assert_eq!(next.renew().await.unwrap(), Renewal::Held, "{step:?} {fault:?}");
    });
    futures_util::future::join_all(die).await;
}

/// A former holder's write that was held up on its way comes when another holds the lock, and when that one has released
/// it: it changes nothing, since it was for another state of the blob.
#[tokio::test]
async fn a_write_that_comes_late_undoes_nothing() {
    let bench = bench!();
    let (proxy, host) = (bench.proxy(), bench.host());
    bench.take(&host).await.release(Ended::Clean).await.unwrap();
    let slow = bench.host_at(&proxy);
    let held = proxy.inject_times(1, record_writes(), Fault::HoldRequest);
    let (id, owner) = (bench.id.clone(), Owner::fresh());
    let waiting = tokio::spawn(async move { slow.try_lock(&id, LEASE, owner).await.map(drop) });
    struck(&held, 1).await;
    waiting.abort();
    let holder = bench.wait_for(&host, LEASE + Duration::from_secs(3)).await;
    holder.release(Ended::Clean).await.unwrap();
    // Even with its lease back, as a delayed acquire would give it.
    assert_eq!(bench.raw.acquire(BLOB, 15, &owner.to_string()).await.status, 201);
    held.release();
    let performed = async {
        while proxy.seen(&record_writes())[0].performed.is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    in_time("the late write is performed", performed).await;
    assert_eq!(proxy.seen(&record_writes())[0].performed, Some(412));
    let record = bench.raw.read(BLOB).await;
    assert_eq!(record.metadata("fence"), holder.fence().to_string());
    assert_eq!(
        (record.metadata("owner"), record.metadata("clean")),
        (holder.lease_id().to_string().as_str(), "true")
    );
}

/// §5.6: what was perhaps acquired is given up, whether it was, and in whatever state.
#[tokio::test]
async fn giving_up_frees_a_lease_without_a_record_too() {
    let bench = bench!();
    let (proxy, host) = (bench.proxy(), bench.host());
    bench.take(&host).await.release(Ended::Clean).await.unwrap();
    let slow = bench.host_at(&proxy);
    let refused = proxy.inject(record_writes(), Fault::DropRequest);
    let owner = Owner::fresh();
    slow.try_lock(&bench.id, LEASE, owner).await.map(drop).unwrap_err();
    assert!(!is_free(&bench).await);
    refused.remove();
    let lost = proxy.inject_times(1, Pattern::any(), Fault::DropAnswer);
    slow.give_up(&bench.id, owner).await.unwrap();
    struck(&lost, 1).await;
    assert!(is_free(&bench).await);
    slow.give_up(&bench.id, owner).await.unwrap();
    slow.give_up(&bus::contract::LockId::from("queue/never-made"), owner).await.unwrap();
}

/// §5.6: of two tries of one owner, the first is refused for good when the second has begun the term: that is no reason to
/// give up the lease that both have, under the run.
#[tokio::test]
async fn a_try_that_fails_late_does_not_free_the_lock_that_another_of_its_owner_has_won() {
    let bench = bench!();
    bench.take(&bench.host()).await.release(Ended::Clean).await.unwrap();
    let refusing = bench.proxy();
    let code = "BlobImmutableDueToPolicy".to_owned();
    refusing.inject(record_writes(), Fault::Refuse { status: 409, code, retry_after: None });
    let slow = FaultProxy::start(refusing.url()).expect("a proxy");
    let held = slow.inject_times(1, record_writes(), Fault::HoldRequest);
    let (late, id, owner) = (bench.host_at(&slow), bench.id.clone(), Owner::fresh());
    let first = tokio::spawn(async move { late.try_lock(&id, LEASE, owner).await.map(drop) });
    struck(&held, 1).await;
    let second = bench.host().try_lock(&bench.id, LEASE, owner).await.unwrap().expect("it is ours");
    held.release();
    first.await.unwrap().expect_err("refused for good");
    assert!(!is_free(&bench).await, "the term goes on");
    assert_eq!(second.renew().await.unwrap(), Renewal::Held);
}
