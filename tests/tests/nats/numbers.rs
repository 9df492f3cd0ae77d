//! Streams that have had more messages than some numbers can hold. Scenario M28.

use std::time::Duration;

use bus::contract::{Depth, Due, PutBack};
use bus::message::Verdict;
use serde_json::json;

use crate::store::{Store, bodies, command, endpoint, receive, settle};

/// Beyond what a double holds exactly.
const BEYOND: u64 = (1 << 53) + 1;

/// M28: the whole way of messages whose numbers are beyond 2^53, in every stream: sent, retried, given back, delayed, taken
/// back, dead, put back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_beyond_what_a_double_holds_are_kept_exactly() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    for stream in ["test_q_jobs", "test_state", "test_later", "test_dead"] {
        let purged = store.server.ask(&format!("STREAM.PURGE.{stream}"), &json!({ "seq": BEYOND })).await;
        assert_eq!(purged["success"], true, "{purged}");
        let told = store.server.ask(&format!("STREAM.INFO.{stream}"), &json!(null)).await;
        assert_eq!(told["state"]["first_seq"], BEYOND, "{told}");
    }
    let consumer = store.consumer("jobs").await;
    store.send("jobs", ["a", "b", "c"]).await;
    let mut claimed = Vec::new();
    while claimed.len() < 3 {
        claimed.extend(receive(&consumer, 3).await);
    }
    assert_eq!(bodies(&claimed), ["a", "b", "c"]);
    let error = bus::Error::new(bus::ErrorKind::Handler, "no");
    let retry = Verdict::Retry { after: Some(Duration::ZERO), error };
    settle(&consumer, &claimed[0].receipt, retry).await.unwrap();
    settle(&consumer, &claimed[1].receipt, Verdict::Release).await.unwrap();
    let dead = Verdict::DeadLetter { reason: "no".into(), error: None };
    settle(&consumer, &claimed[2].receipt, dead).await.unwrap();
    let mut again = Vec::new();
    while again.len() < 2 {
        again.extend(receive(&consumer, 2).await);
    }
    again.sort_by_key(|delivery| delivery.delivery_count);
    let counts: Vec<_> = again.iter().map(|got| (got.delivery_count, got.failures, got.crashes)).collect();
    assert_eq!((bodies(&again), counts), (vec!["b", "a"], vec![(1, 0, 0), (2, 1, 0)]));
    for delivery in &again {
        settle(&consumer, &delivery.receipt, Verdict::Complete).await.unwrap();
    }

    let (inspect, jobs) = (store.inspect(), endpoint("jobs"));
    let letter = inspect.dead_letters(&jobs, None, 10).await.unwrap().remove(0).envelope.id;
    assert_eq!(inspect.put_back(&jobs, &[letter]).await.unwrap(), [(letter, PutBack::Done)]);
    let back = receive(&consumer, 1).await.remove(0);
    settle(&consumer, &back.receipt, Verdict::Complete).await.unwrap();

    let later = |body, after| command("jobs", body).due(Some(Due::In(after)));
    let batch = vec![later("cancelled", Duration::from_secs(60)), later("due", Duration::from_millis(200))];
    let sent = store.transport.sender().send(batch).await;
    let placed = sent[0].as_ref().unwrap();
    assert!(store.transport.capabilities().delay.unwrap().cancel(placed, None).await.unwrap());
    let due = receive(&consumer, 1).await.remove(0);
    assert_eq!(bodies(std::slice::from_ref(&due)), ["due"]);
    settle(&consumer, &due.receipt, Verdict::Complete).await.unwrap();
    store.depth_becomes("jobs", Depth::default()).await;
}
