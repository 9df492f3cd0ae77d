//! What a server and a host have in memory after much traffic: no more than after a little.

use bus_tests::redis::Redis;
use bus_tests::soak;

use crate::store::Store;

/// How many bytes the server has in use.
fn used_memory(server: &Redis) -> u64 {
    let told: String = server.ask(&["INFO", "memory"]);
    let used = told.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok());
    used.expect("the server says how much memory it uses")
}

/// M32
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_stays_flat() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    let look = async || (store.server.ask::<u64>(&["DBSIZE"]), used_memory(&store.server));
    let ((keys, used), (keys_after, used_after)) = soak::rounds(&store, look).await;
    assert_eq!(keys_after, keys, "keys were left behind");
    let grown = used_after.saturating_sub(used);
    assert!(grown < 1 << 20, "the server's memory grew by {grown} bytes");
}
