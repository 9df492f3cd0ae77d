//! What a candidate for a lock concludes from what it has seen, and when.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::clock::Clock;
use bus::contract::{LockId, LockManager, OpenOptions, Owner, Scheme, StoreUrl};
use bus_tests::postgres::{Database, available};
use bus_tests::tcp_proxy::{Fault, Proxy};
use bus_tests::wait::PATIENCE;

const LEASE: Duration = Duration::from_secs(10);
/// Less than a call about such a lock may take, which is a tenth of its lease.
const DELAY: Duration = Duration::from_millis(600);

async fn open(url: &str) -> Arc<dyn LockManager> {
    let url = StoreUrl::parse(url).unwrap();
    let open = Scheme::find(url.scheme()).unwrap().locks.unwrap();
    open(&url, &OpenOptions::new(Clock::system())).await.unwrap()
}

/// S1: what was read is as old as its answer, not as its question: in between it was renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_network_makes_a_candidate_take_nothing_before_its_lease_has_run_out() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let proxy = Proxy::start(database.port()).await;
    let holder = open(&database.url()).await;
    let candidate =
        open(&format!("postgres://postgres@127.0.0.1:{}/{}", proxy.port(), database.name())).await;
    let id = LockId::from("queue/slow");
    // Connected, and what is asked is prepared.
    for manager in [&holder, &candidate] {
        assert!(manager.inspect(&id).await.unwrap().is_none());
    }
    proxy.set(Fault::BlackHole);
    let look = candidate.try_lock(&id, LEASE, Owner::fresh());
    let hold = async {
        // While the question is on its way.
        tokio::time::sleep(DELAY).await;
        let asked = Instant::now();
        let lease = holder.try_lock(&id, LEASE, Owner::fresh()).await.unwrap();
        proxy.set(Fault::None);
        lease.map(|_lease| asked)
    };
    let (looked, held) = tokio::join!(look, hold);
    let held = held.expect("nobody else has it");
    // On a busy machine it may come too late, and then takes nothing either.
    assert!(looked.is_err() || looked.is_ok_and(|taken| taken.is_none()));
    loop {
        let taken = candidate.try_lock(&id, LEASE, Owner::fresh()).await;
        if taken.is_ok_and(|taken| taken.is_some()) {
            break;
        }
        assert!(held.elapsed() < PATIENCE, "a dead holder's lock is never free");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(held.elapsed() >= LEASE, "it was taken {:?} after its holder had asked for it", held.elapsed());
    for manager in [holder, candidate] {
        manager.close().await;
    }
}
