//! Subscriptions listed and dropped.

use std::time::Duration;

use bus::contract::{Attended, OpenOptions, Outgoing, Scheme, StoreUrl};
use bus::{Endpoint, Envelope, ErrorKind};
use bus_emulators::{Azurite, or_skip, sas};
use bus_tests::{nats, skip};

use super::bus;
use super::store::TestStore;

/// A host has a processor of it, now.
async fn attend(store: &TestStore, name: &str, retention: Option<Duration>) {
    let endpoint = Endpoint::parse(name).unwrap();
    let attended = Attended::new(endpoint).retention(retention);
    store.readers().attend(&[attended]).await.unwrap();
}

#[tokio::test]
async fn subscriptions_are_listed_with_what_waits_and_who_reads() {
    let store = TestStore::open("subscriptions").await;
    store.send("imports", b"a").await;
    store.send("order-placed/read", b"a").await;
    attend(&store, "order-placed/read", Some(Duration::from_secs(7 * 24 * 3600))).await;
    store.send("paid/forgotten", b"b").await;
    let text = bus(&["subscription", "list", "--store", store.url()]).await.succeeded();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    for heading in ["TRANSPORT", "SUBSCRIPTION", "READY", "OLDEST", "READ", "RETENTION"] {
        assert!(lines[0].contains(heading), "{text}");
    }
    for (line, parts) in [(1, ["order-placed/read", "now", "7d 0h"]), (2, ["paid/forgotten", "never", "-"])] {
        for part in parts {
            assert!(lines[line].contains(part), "{part}: {text}");
        }
    }
    let objects = bus(&["subscription", "list", "--store", store.url(), "--json"]).await.objects();
    assert_eq!((&objects[0]["ready"], &objects[0]["retention_ms"]), (&1.into(), &604_800_000.into()));
    assert!(objects[0]["attended_ms"].is_u64() && objects[0]["oldest_ms"].is_u64(), "{objects:?}");
    assert!(objects[1]["attended_ms"].is_null() && objects[1]["retention_ms"].is_null(), "{objects:?}");
}

#[tokio::test]
async fn a_subscription_is_dropped_only_when_that_is_meant() {
    let store = TestStore::open("drop-subscription").await;
    store.send("order-placed/forgotten", b"a").await;
    store.send("order-placed/kept", b"b").await;
    let args = ["subscription", "drop", "order-placed/forgotten", "--store", store.url()];
    let (text, kind, report) = bus(&args).await.failed();
    assert_eq!((text.as_str(), kind), ("", ErrorKind::InvalidInput));
    assert!(report.contains("2 messages") && report.contains("--yes"), "{report}");
    assert_eq!(store.depth("order-placed/forgotten").await, (2, 0), "nothing is dropped yet");

    let yes = [&args[..], &["--yes"]].concat();
    assert_eq!(bus(&yes).await.succeeded(), "order-placed/forgotten  dropped\n");
    let (_, kind, report) = bus(&yes).await.failed();
    assert_eq!(kind, ErrorKind::NotFound, "{report}");
    assert_eq!(store.depth("order-placed/kept").await, (1, 0));
}

#[tokio::test]
async fn a_subscription_that_is_read_and_a_queue_are_not_dropped() {
    let store = TestStore::open("drop-read").await;
    store.send("order-placed/read", b"a").await;
    attend(&store, "order-placed/read", None).await;
    let args = ["subscription", "drop", "order-placed/read", "--yes", "--store", store.url()];
    let (_, kind, report) = bus(&args).await.failed();
    assert_eq!(kind, ErrorKind::InvalidInput);
    assert!(report.contains("it is read") && report.contains("3m 0s later"), "{report}");
    assert_eq!(store.depth("order-placed/read").await, (1, 0));

    store.send("imports", b"a").await;
    let args = ["subscription", "drop", "imports", "--yes", "--store", store.url()];
    let (_, kind, report) = bus(&args).await.failed();
    assert_eq!(kind, ErrorKind::InvalidInput);
    assert!(report.contains("imports is a queue"), "{report}");
    assert_eq!(store.depth("imports").await, (1, 0));
}

/// A store on a server, in which a subscription is read and another one forgotten.
async fn furnish(url: &str) {
    let (parsed, options) = (StoreUrl::parse(url).unwrap(), OpenOptions::default());
    let open = Scheme::find(parsed.scheme()).unwrap().transport.unwrap();
    let transport = open(&parsed, &options).await.unwrap();
    let both = ["paid/forgotten", "paid/read"].map(|name| Endpoint::parse(name).unwrap());
    transport.prepare(&both).await.unwrap();
    let envelope = Envelope::new("Paid", b"a".to_vec(), std::time::SystemTime::now().into());
    let sent = transport.sender().send(vec![Outgoing::new(both[0].target(), envelope)]).await;
    sent.into_iter().for_each(|answer| drop(answer.unwrap()));
    let week = Some(Duration::from_secs(7 * 24 * 3600));
    let readers = transport.capabilities().readers.unwrap();
    readers.attend(&[Attended::new(both[1].clone()).retention(week)]).await.unwrap();
    transport.close().await;
}

/// Both commands on a store of that address.
async fn assert_listed_and_dropped(url: &str) {
    furnish(url).await;
    let objects = bus(&["subscription", "list", "--store", url, "--json"]).await.objects();
    assert_eq!(objects.len(), 2, "{objects:?}");
    let (forgotten, read) = (&objects[0], &objects[1]);
    assert_eq!((&forgotten["subscription"], &forgotten["ready"]), (&"paid/forgotten".into(), &1.into()));
    assert!(forgotten["attended_ms"].is_null() && forgotten["oldest_ms"].is_u64(), "{objects:?}");
    assert!(read["attended_ms"].is_u64() && read["retention_ms"] == 604_800_000, "{objects:?}");
    let args = ["subscription", "drop", "paid/forgotten", "--yes", "--store", url];
    assert_eq!(bus(&args).await.succeeded(), "paid/forgotten  dropped\n");
    assert_eq!(bus(&args).await.failed().1, ErrorKind::NotFound);
    let args = ["subscription", "drop", "paid/read", "--yes", "--store", url];
    let (_, kind, report) = bus(&args).await.failed();
    assert!(kind == ErrorKind::InvalidInput && report.contains("it is read"), "{report}");
    let objects = bus(&["subscription", "list", "--store", url, "--json"]).await.objects();
    assert_eq!(objects.len(), 1, "{objects:?}");
}

#[tokio::test]
async fn subscriptions_of_a_nats_server_are_listed_and_dropped() {
    if let Some(missing) = nats::missing() {
        return skip::not_run(missing);
    }
    let server = nats::Nats::start();
    assert_listed_and_dropped(&server.url("cli")).await;
}

#[tokio::test]
async fn subscriptions_in_storage_queues_are_listed_and_dropped() {
    let Some(azurite) = or_skip(Azurite::shared()) else { return };
    let sas = sas::of_services(azurite.account(), azurite.key(), "bq", "rwdlacup");
    let (queues, blobs) = (azurite.queue_endpoint(), azurite.blob_endpoint());
    let (queues, blobs) = (queues.trim_start_matches("http://"), blobs.trim_start_matches("http://"));
    let (authority, _) = blobs.split_once('/').unwrap();
    let prefix: String = uuid::Uuid::new_v4().simple().to_string().chars().take(16).collect();
    assert_listed_and_dropped(&format!("azqueue://{queues}/{prefix}?{sas}&blobs={authority}")).await;
}
