//! How large a message may be: one limit for its body, one for its headers, on whatever road it is sent.

use std::time::Duration;

use bus::contract::{Depth, PutBack};
use bus::{Bus, Endpoint, Error, ErrorKind, Headers, Sent};

use super::handlers::{Answer, Note, OrderParcel, Parcel, ParcelSighted};
use super::{Embedded, Place};

/// The limit of every store, unless its URL says otherwise.
const LIMIT: usize = 16 << 20;

/// What every host reads here.
const READS: [&str; 4] = ["parcel", "parcel-sighted/watch", "order-parcel", "note"];

/// The roads that a message of so many bytes can be sent on; a handler's own sends are apart.
async fn on_each_road(bus: &Bus, bytes: usize) -> Vec<(&'static str, Result<Sent, Error>)> {
    let parcel = || Parcel(vec![7; bytes]);
    let soon = Duration::from_millis(50);
    vec![
        ("sent", bus.send(parcel()).await),
        ("delayed", bus.send(parcel()).delay(soon).await),
        ("in a batch", bus.send_all([parcel()]).await.remove(0)),
        ("published", bus.publish(ParcelSighted(vec![7; bytes])).await),
        ("published in a batch", bus.publish_all([ParcelSighted(vec![7; bytes])]).await.remove(0)),
    ]
}

/// Nothing of what was refused has come to the store.
async fn assert_untouched(host: &Embedded) {
    for endpoint in ["parcel", "parcel-sighted/watch"] {
        assert_eq!(host.depth(endpoint).await, Depth::default(), "{endpoint}");
    }
}

/// M29: the limit itself is taken and arrives whole.
#[tokio::test]
async fn a_message_at_the_limit_is_taken_on_every_road() {
    for place in Place::each() {
        let mut host = place.host(&READS).start().await;
        let bus = host.handle.bus().clone();
        for bytes in [LIMIT - 1, LIMIT] {
            let sent = on_each_road(&bus, bytes).await;
            for (road, sent) in &sent {
                assert!(sent.is_ok(), "{bytes} bytes {road}: {sent:?}");
            }
            for _ in &sent {
                assert_eq!(host.seen().await.text, bytes.to_string());
            }
            bus.send(OrderParcel(bytes)).await.expect("sent");
            let mut texts = [host.seen().await.text, host.seen().await.text];
            texts.sort();
            assert_eq!(texts, [bytes.to_string(), "sent".to_owned()]);
        }
        host.until_drained("parcel").await;
        assert_untouched(&host).await;
        host.stop().await;
    }
}

/// M29: one byte more, or four million, is refused before the store is asked, with the size, the limit and what to do.
#[tokio::test]
async fn a_message_above_the_limit_is_refused_on_every_road_before_the_store_sees_it() {
    for place in Place::each() {
        let mut host = place.host(&READS).start().await;
        let bus = host.handle.bus().clone();
        for bytes in [LIMIT + 1, 20_000_000] {
            for (road, sent) in on_each_road(&bus, bytes).await {
                let error = sent.expect_err(road);
                assert_eq!(error.kind(), ErrorKind::TooLarge, "{road}");
                assert_eq!(error.backend(), None, "{road}: it was the store that refused it");
                assert!(!error.is_transient(), "{road}: trying again changes nothing");
                let text = error.to_string();
                let (size, limit) = (bytes.to_string(), LIMIT.to_string());
                for words in [&size, &limit, "keep the content elsewhere", "Parcel", "transport: default"] {
                    assert!(text.contains(words), "{road}: {words} is missing from: {text}");
                }
            }
            bus.send(OrderParcel(bytes)).await.expect("sent");
            assert_eq!(host.seen().await.text, "TooLarge", "so it is for a handler, which may go on");
            host.until_drained("order-parcel").await;
        }
        assert_untouched(&host).await;
        assert_eq!(host.depth("order-parcel").await.dead, 0);
        host.stop().await;
    }
}

/// Headers are no way around the limit: they have one of their own, in which the bus's own headers count.
#[tokio::test]
async fn headers_have_a_limit_of_their_own() {
    for place in Place::each() {
        let mut host = place.host(&READS).start().await;
        let bus = host.handle.bus().clone();
        bus.send(Note("bare".into())).await.expect("sent");
        let own = host.seen().await.headers.bytes();
        let room = Headers::MAX_BYTES - own - "h".len();
        bus.send(Note("full".into()))
            .header("h", "v".repeat(room))
            .await
            .expect("as many as there is room for");
        let seen = host.seen().await;
        assert_eq!(seen.headers.bytes(), Headers::MAX_BYTES);
        assert_eq!(seen.headers.get("h").map(str::len), Some(room));

        let many = (0..100_000)
            .fold(bus.send(Note("many".into())), |dispatch, n| dispatch.header(format!("header-{n}"), ""));
        let larger = bus.send(Note("larger".into())).header("h", "v".repeat(room + 1));
        let huge = bus.send(Note("huge".into())).header("h", "v".repeat(20_000_000));
        let name = bus.send(Note("name".into())).header("n".repeat(20_000_000), "v");
        for dispatch in [larger, many, huge, name] {
            let error = dispatch.await.expect_err("too large");
            assert_eq!((error.kind(), error.backend()), (ErrorKind::TooLarge, None));
            let text = error.to_string();
            assert!(text.contains("headers") && text.contains("32768") && text.contains("body"), "{text}");
            assert!(text.len() < 500, "a header is not repeated in the error: {} bytes", text.len());
        }
        host.until_drained("note").await;
        assert!(host.seen_so_far().is_empty());
        host.stop().await;
    }
}

/// M35: what was once taken is delivered, given up on and put back whatever the limit is by then.
#[tokio::test]
async fn what_is_in_the_store_is_not_stranded_by_a_lower_limit() {
    for (mut place, lower) in Place::each().into_iter().zip(["?max_body=1000", ""]) {
        let mut host = place.host(&READS).answering(|_| Answer::DeadLetter("too heavy")).start().await;
        let id = host.handle.bus().send(Parcel(vec![7; LIMIT])).await.expect("sent").id();
        host.until("it is dead", "parcel", |depth| depth.dead == 1).await;
        host.seen_so_far();
        host.stop().await;

        place.url += lower;
        let mut host = place.host(&READS).start().await;
        let inspect = host.handle.inspect("default").expect("it can be looked into");
        let queue = Endpoint::queue("parcel").expect("an endpoint");
        assert_eq!(host.dead("parcel").await[0].envelope.body.len(), LIMIT);
        assert_eq!(inspect.put_back(&queue, &[id]).await.expect("answered"), [(id, PutBack::Done)]);
        let seen = host.seen().await;
        assert_eq!((seen.id, seen.text), (id, LIMIT.to_string()));
        host.until_drained("parcel").await;
        assert_untouched(&host).await;
        host.stop().await;
    }
}
