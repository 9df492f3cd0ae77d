//! What a server and a host have in memory after much traffic: no more than after a little.

use bus_tests::soak;
use serde_json::Value;

use crate::store::Store;

/// How much more a server may have in memory: its runtime gives back what it has freed only by and by.
const LEEWAY: u64 = 64 << 20;

/// M32: nothing is left behind in any stream, and neither side grows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_stays_flat() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    let look = async || {
        let mut messages = Vec::new();
        for stream in ["test_q_jobs", "test_state", "test_later", "test_dead"] {
            let told = store.server.ask(&format!("STREAM.INFO.{stream}"), &Value::Null).await;
            messages.push(told["state"]["messages"].as_u64().expect("a count"));
        }
        let told = store.server.monitor("varz").expect("the server is there");
        (messages, told["mem"].as_u64().expect("a size"))
    };
    let ((messages, used), (messages_after, used_after)) = soak::rounds(&store, look).await;
    assert_eq!(messages_after, messages, "messages were left behind");
    let grown = used_after.saturating_sub(used);
    assert!(grown < LEEWAY, "the server's memory grew by {grown} bytes");
}
