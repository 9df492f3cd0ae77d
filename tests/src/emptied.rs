//! A store that is emptied while hosts publish to it and read it.

use std::sync::Arc;
use std::time::Instant;

use bus::ErrorKind;
use bus::contract::{ConsumerSpec, Outgoing, READ_AGAIN_WITHIN, Transport};
use tokio_util::sync::CancellationToken;

use crate::by_hand::{body, endpoint, envelope};
use crate::wait::{PATIENCE, in_time};

async fn publish(transport: &Arc<dyn Transport>, text: &str) -> bus::Result<()> {
    let event = Outgoing::new(endpoint("placed/mail").target(), envelope(text));
    transport.sender().send(vec![event]).await.remove(0).map(drop)
}

/// Publishes until it is taken.
///
/// # Panics
/// If it is refused for another reason than that the store is away or was emptied, or for too long.
pub async fn publish_until_taken(transport: &Arc<dyn Transport>, text: &str) {
    let begun = Instant::now();
    while let Err(refusal) = publish(transport, text).await {
        assert_eq!(refusal.kind(), ErrorKind::Unavailable, "{refusal:?}");
        assert!(begun.elapsed() < PATIENCE, "it is still refused: {refusal:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// Of a subscription `placed/mail` that is there and read by one host, while another one publishes, and a third has published
/// before the store is emptied. What is acknowledged after that reaches the reader; what would not is refused, and who comes
/// new to the store is not kept waiting.
///
/// # Panics
/// If an acknowledged event does not come, or none was refused.
pub async fn loses_no_event_in_silence(
    publisher: &Arc<dyn Transport>,
    reader: &Arc<dyn Transport>,
    empty: impl AsyncFnOnce(),
) {
    let consumer = reader.consumer(ConsumerSpec::new(endpoint("placed/mail"), READ_AGAIN_WITHIN)).await;
    let (consumer, stop) = (consumer.expect("it is prepared"), CancellationToken::new());
    publish(publisher, "before").await.expect("the store is there");
    let first = in_time("the first event comes", consumer.receive(1, &stop)).await.expect("it is read");
    assert_eq!(body(&first[0]), "before");

    empty().await;
    let refused =
        publish(publisher, "lost").await.expect_err("nobody reads the topic, as far as the store knows");
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused:?}");
    let reading = async {
        loop {
            match consumer.receive(1, &stop).await {
                Ok(got) if got.is_empty() => {}
                Ok(got) => return body(&got[0]).to_owned(),
                Err(error) => assert!(error.is_transient(), "{error:?}"),
            }
        }
    };
    let both = async { tokio::join!(publish_until_taken(publisher, "after"), reading).1 };
    assert_eq!(in_time("what was taken comes", both).await, "after");
}
