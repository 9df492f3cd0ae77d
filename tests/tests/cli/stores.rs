//! Which stores are looked into, and what if one of them is not to be looked into.

use std::time::Duration;

use bus::ErrorKind;
use bus::contract::{LockId, Owner};

use super::store::TestStore;
use super::{bus, config, path};

#[tokio::test]
async fn where_the_locks_are_has_to_be_said() {
    let file = config("[transports]\ndefault = \"memory://cli-no-locks\"");
    let (_, kind, report) = bus(&["locks", "--config", path(&file)]).await.failed();
    assert_eq!(kind, ErrorKind::Config);
    assert!(report.contains("--locks"), "{report}");

    let file = config("locks = \"default\"\n[transports]\ndefault = \"memory://cli-no-locks\"");
    let text = bus(&["locks", "--config", path(&file)]).await.succeeded();
    assert_eq!(text, "no locks in memory://cli-no-locks\n");
}

#[tokio::test]
async fn a_store_that_cannot_be_looked_into_does_not_hide_the_others() {
    let store = TestStore::open("seeing").await;
    let id = store.dead("imports", b"a", "failed", None).await;
    let file =
        config("[transports]\ndefault = \"memory://cli-seeing\"\nother = \"blind://user:s3cret@nowhere\"");
    for command in [&["dead", "list"][..], &["depths"]] {
        let (text, kind, report) = bus(&[command, &["--config", path(&file)]].concat()).await.failed();
        assert!(text.contains("imports"), "{text}");
        assert_eq!(kind, ErrorKind::Unsupported);
        assert!(report.contains("transport: other, store: blind://…@nowhere"), "{report}");
        assert!(!report.contains("s3cret"), "{report}");
    }
    // What changes something waits until it is known which store is meant.
    let put_back = ["dead", "put-back", "imports", &id, "--config", path(&file)];
    assert_eq!(bus(&put_back).await.failed().1, ErrorKind::Unsupported);
    assert_eq!(store.depth("imports").await, (0, 1));
    bus(&[&put_back[..], &["--transport", "default"]].concat()).await.succeeded();
    assert_eq!(store.depth("imports").await, (1, 0));

    let (_, kind, report) = bus(&["locks", "--locks", "blind://"]).await.failed();
    assert_eq!(kind, ErrorKind::Unsupported);
    assert!(report.contains("blind:// keeps no locks"), "{report}");
}

#[tokio::test]
async fn an_endpoint_in_two_stores_needs_its_transport() {
    let (one, two) = (TestStore::open("one").await, TestStore::open("two").await);
    one.dead("imports", b"a", "failed", None).await;
    let id = two.dead("imports", b"a", "failed", None).await;
    let file = config("[transports]\none = \"memory://cli-one\"\ntwo = \"memory://cli-two\"");
    let place = ["--config", path(&file)];
    let both = bus(&[&["dead", "list", "imports"][..], &place].concat()).await.succeeded();
    assert_eq!(both.lines().count(), 3, "{both}");

    let show = ["dead", "show", "imports", &id];
    let (_, kind, report) = bus(&[&show[..], &place].concat()).await.failed();
    assert_eq!(kind, ErrorKind::InvalidInput);
    assert!(report.contains("--transport"), "{report}");
    let text = bus(&[&show[..], &place, &["--transport", "two"]].concat()).await.succeeded();
    assert!(text.contains(&id), "{text}");

    let (_, kind, report) = bus(&[&show[..], &place, &["--transport", "three"]].concat()).await.failed();
    assert_eq!(kind, ErrorKind::UnknownTransport);
    assert!(report.contains("there are one, two"), "{report}");
}

#[tokio::test]
async fn a_configuration_that_cannot_be_read_is_named() {
    let (_, kind, report) = bus(&["depths", "--config", "/nonexistent/bus.toml"]).await.failed();
    assert_eq!(kind, ErrorKind::Config);
    assert!(report.contains("--config") && report.contains("/nonexistent/bus.toml"), "{report}");

    let file = config("[transports]\ndefault = \"memory://cli-broken\"\nsurprise");
    assert_eq!(bus(&["depths", "--config", path(&file)]).await.failed().1, ErrorKind::Config);
    // Which is no obstacle for who says where to look.
    let store = ["--store", "memory://cli-broken", "--locks", "default"];
    for command in ["depths", "locks"] {
        bus(&[&[command, "--config", path(&file)][..], &store].concat()).await.succeeded();
    }
}

#[tokio::test]
async fn a_store_in_a_file_is_looked_into_like_any_other() {
    let directory = tempfile::tempdir().unwrap();
    let store = TestStore::at(&format!("sqlite://{}/bus.db", directory.path().display())).await;
    let taken =
        store.locks.try_lock(&LockId::from("queue/held"), Duration::from_secs(60), Owner::fresh()).await;
    assert!(taken.unwrap().is_some());
    let id = store.dead("imports", b"{}", "failed too often", Some("no such tenant")).await;
    let place = ["--store", store.url(), "--locks", "default"];

    let list = bus(&[&["dead", "list"][..], &place].concat()).await.succeeded();
    assert!(list.contains(&id) && list.contains("no such tenant"), "{list}");
    let show = bus(&[&["dead", "show", "imports", &id][..], &place].concat()).await.succeeded();
    assert!(show.contains("JSON, 2 bytes"), "{show}");
    let locks = bus(&[&["locks"][..], &place].concat()).await.succeeded();
    assert!(locks.contains("queue/held") && locks.contains("running"), "{locks}");

    let put_back = [&["dead", "put-back", "imports", &id][..], &place].concat();
    assert!(bus(&put_back).await.succeeded().ends_with("1 put back, 0 not found\n"));
    assert_eq!(bus(&put_back).await.failed().1, ErrorKind::NotFound);
    assert_eq!(store.depth("imports").await, (1, 0));
    let depths = bus(&[&["depths", "--json"][..], &place].concat()).await.objects();
    assert_eq!((&depths[0]["ready"], &depths[0]["dead"]), (&1.into(), &0.into()));
}

/// A typing error, or the wrong directory, is said, and leaves no empty store behind that would hide it the next time.
#[tokio::test]
async fn a_store_that_is_not_there_is_said_and_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let id = bus::MessageId::fresh().to_string();
    let commands = [
        &["depths"][..],
        &["dead", "list"],
        &["dead", "show", "imports", &id],
        &["dead", "put-back", "imports", &id],
        &["dead", "drop", "imports", &id, "--yes"],
        &["locks", "--locks", "default"],
    ];
    let [missing, empty] = ["missing.db", "empty.db"].map(|name| directory.path().join(name));
    std::fs::write(&empty, b"").unwrap();
    let nowhere = directory.path().join("nowhere/bus.db");
    for (file, why) in [(&missing, "no such file"), (&nowhere, "no such file"), (&empty, "the file is empty")]
    {
        let store = format!("sqlite://{}", file.display());
        for command in commands {
            let (text, kind, report) = bus(&[command, &["--store", &store]].concat()).await.failed();
            assert_eq!((text.as_str(), kind), ("", ErrorKind::NotFound), "{command:?}: {report}");
            for part in [why, &file.display().to_string(), "check the address", "started on it"] {
                assert!(report.contains(part), "{command:?}: {part} is missing in {report}");
            }
        }
    }
    assert!(!missing.exists() && !nowhere.exists());
    assert_eq!(std::fs::metadata(&empty).unwrap().len(), 0);
}
