//! In which order a singleton works when one message has to wait for its retry.

use super::handlers::{Answer, Relaxed, Strict};
use super::{Embedded, Place, Seen};

fn fails_once(seen: &Seen, failed: &std::sync::atomic::AtomicBool) -> Answer {
    let first = seen.text == "0" && !failed.swap(true, std::sync::atomic::Ordering::SeqCst);
    if first { Answer::Fail } else { Answer::Done }
}

async fn texts(host: &mut Embedded, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    for _ in 0..count {
        texts.push(host.seen().await.text);
    }
    texts
}

/// `order = "strict"`: nothing overtakes the message that waits.
#[tokio::test]
async fn strict_order_holds_the_queue_back_during_a_retry() {
    for place in Place::each() {
        let failed = std::sync::atomic::AtomicBool::new(false);
        let mut host = place.host(&["strict"]).answering(move |seen| fails_once(seen, &failed)).start().await;
        let sent = host.handle.bus().send_all((0..4).map(|n| Strict(n.to_string()))).await;
        assert!(sent.iter().all(Result::is_ok));
        assert_eq!(texts(&mut host, 5).await, ["0", "0", "1", "2", "3"], "{}", place.url);
        host.until_drained("strict").await;
        host.stop().await;
    }
}

/// The default: the others go on meanwhile.
#[tokio::test]
async fn the_default_order_goes_on_during_a_retry() {
    for place in Place::each() {
        let failed = std::sync::atomic::AtomicBool::new(false);
        let mut host =
            place.host(&["relaxed"]).answering(move |seen| fails_once(seen, &failed)).start().await;
        let sent = host.handle.bus().send_all((0..4).map(|n| Relaxed(n.to_string()))).await;
        assert!(sent.iter().all(Result::is_ok));
        assert_eq!(texts(&mut host, 5).await, ["0", "1", "2", "3", "0"], "{}", place.url);
        host.until_drained("relaxed").await;
        host.stop().await;
    }
}

/// A message that fails for ever becomes a dead letter, and lets the others pass then.
#[tokio::test]
async fn strict_order_goes_on_after_a_dead_letter() {
    for place in Place::each() {
        let answer = |seen: &Seen| if seen.text == "0" { Answer::Fail } else { Answer::Done };
        let mut host = place.host(&["strict"]).answering(answer).start().await;
        let sent = host.handle.bus().send_all((0..2).map(|n| Strict(n.to_string()))).await;
        assert!(sent.iter().all(Result::is_ok));
        assert_eq!(texts(&mut host, 4).await, ["0", "0", "0", "1"], "{}", place.url);
        host.until_drained("strict").await;
        assert_eq!(host.depth("strict").await.dead, 1);
        host.stop().await;
    }
}
