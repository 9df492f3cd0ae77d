//! The fence row in the user's own transactions.

use std::sync::Arc;
use std::time::Duration;

use bus::contract::{Fence, FenceClaim, FenceGuard, Fencing, LockId, Raised};
use bus::{Endpoint, ErrorKind};
use bus_tests::postgres::{Database, available};

use crate::open;

fn claim(endpoint: &Arc<Endpoint>, fence: u64) -> FenceClaim {
    let lock = LockId::from("queue/fenced");
    FenceClaim::new(Arc::clone(endpoint), "test:", &lock, Fence::new(fence), Duration::from_secs(60))
}

/// A plain look at the row would let both through: the next fence is raised after it, and before the commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fence_is_raised_only_after_the_transactions_that_have_checked_it() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let transport = open(&database.url()).await;
    let endpoint = Arc::new(Endpoint::queue("fenced").unwrap());
    transport.prepare(std::slice::from_ref(&*endpoint)).await.unwrap();
    let fencing: Arc<dyn Fencing> = transport.capabilities().fencing.unwrap();
    assert_eq!(fencing.raise(claim(&endpoint, 1)).await.unwrap(), Raised::Raised);

    let mut client = database.client().await;
    let guard = FenceGuard { endpoint: Arc::clone(&endpoint), fence: Fence::new(1) };
    let mut transaction = client.transaction().await.unwrap();
    fencing.check_in(&mut transaction, &guard).await.unwrap();
    let raising = fencing.raise(claim(&endpoint, 2));
    tokio::pin!(raising);
    let early = tokio::time::timeout(Duration::from_millis(500), &mut raising).await;
    assert!(early.is_err(), "the fence was raised although a transaction had checked it");
    transaction.commit().await.unwrap();
    assert_eq!(raising.await.unwrap(), Raised::Raised);

    let mut transaction = client.transaction().await.unwrap();
    let refused = fencing.check_in(&mut transaction, &guard).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::TermLost);
    transaction.rollback().await.unwrap();
    transport.close().await;
}
