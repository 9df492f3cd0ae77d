//! Depths, locks and wiring.

use std::time::Duration;

use bus::ErrorKind;
use bus::contract::{Ended, LockId, Owner};
use serde_json::Value;

use super::store::TestStore;
use super::{bus, config, path};

#[tokio::test]
async fn an_empty_store_has_empty_answers() {
    for (command, nothing) in [
        (&["dead", "list"][..], "no dead letters in"),
        (&["depths"], "no endpoints in"),
        (&["locks"], "no locks in"),
        (&["subscription", "list"], "no subscriptions in"),
    ] {
        let place = ["--store", "memory://cli-empty", "--locks", "default"];
        let text = bus(&[command, &place].concat()).await.succeeded();
        assert_eq!(text, format!("{nothing} memory://cli-empty\n"));
        let text = bus(&[command, &place, &["--json"]].concat()).await.succeeded();
        assert_eq!(text, "");
    }
}

#[tokio::test]
async fn depths_are_counted_by_endpoint() {
    let store = TestStore::open("depths").await;
    store.dead("imports", b"a", "failed", None).await;
    store.send("imports", b"b").await;
    let text = bus(&["depths", "--store", store.url()]).await.succeeded();
    assert_eq!(
        text,
        "TRANSPORT  ENDPOINT  READY  IN FLIGHT  DELAYED  DEAD\ndefault    imports       1          0        0     1\n"
    );
    let lines = bus(&["depths", "--store", store.url(), "--json"]).await.objects();
    assert_eq!((&lines[0]["ready"], &lines[0]["dead"]), (&1.into(), &1.into()));
}

#[tokio::test]
async fn locks_are_shown_with_their_last_term() {
    let store = TestStore::open("locks").await;
    let lock = async |id: &str, lease| {
        let taken = store.locks.try_lock(&LockId::from(id), lease, Owner::fresh()).await;
        taken.unwrap().unwrap()
    };
    let minute = Duration::from_secs(60);
    let held = lock("queue/held", minute).await;
    held.note(b"at record 7".to_vec()).await.unwrap();
    lock("queue/clean", minute).await.release(Ended::Clean).await.unwrap();
    lock("queue/cut", minute).await.release(Ended::Cut("overrun".to_owned())).await.unwrap();
    lock("schedule/crashed", Duration::from_millis(10)).await.note(vec![0xff]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;

    let args = ["locks", "--locks", store.url()];
    let text = bus(&args).await.succeeded();
    let line =
        |id: &str| text.lines().find(|line| line.starts_with(id)).unwrap_or_else(|| panic!("{id}: {text}"));
    for (id, parts) in [
        (
            "queue/held",
            &["held, ", " left", "1m", "running", "at record 7", &held.lease_id().to_string()][..],
        ),
        ("queue/clean", &["free", "ended cleanly"]),
        ("queue/cut", &["held, ", "cut off: overrun"]),
        ("schedule/crashed", &["free", "10ms", "ran out", "0xff"]),
    ] {
        for part in parts {
            assert!(line(id).contains(part), "{part}: {text}");
        }
    }

    let objects = bus(&[&args[..], &["--prefix", "queue/", "--json"]].concat()).await.objects();
    let ids: Vec<_> = objects.iter().map(|lock| lock["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["queue/clean", "queue/cut", "queue/held"]);
    assert_eq!((&objects[0]["held_for_ms"], &objects[0]["last_term"]), (&Value::Null, &"clean".into()));
    assert_eq!((&objects[1]["last_term"], &objects[1]["cut_because"]), (&"cut".into(), &"overrun".into()));
    assert_eq!(
        (&objects[2]["fence"], &objects[2]["note"]),
        (&held.fence().get().into(), &"at record 7".into())
    );
    assert!(objects[2]["held_for_ms"].as_u64().unwrap() > 50_000);
}

#[tokio::test]
async fn check_shows_the_processors_or_all_that_is_wrong() {
    let store = ["--store", "memory://cli-check"];
    let check = ["check", "--locks", "default"];
    let text = bus(&[&check[..], &store].concat()).await.succeeded();
    let line = text.lines().nth(1).unwrap_or_default();
    for part in ["import ", "default", "imports", "singleton", "cli", "tests/cli.rs:"] {
        assert!(line.contains(part), "{part}: {text}");
    }
    assert!(text.ends_with("the wiring fits together\n"), "{text}");
    let objects = bus(&[&check[..], &store, &["--json"]].concat()).await.objects();
    assert_eq!((&objects[0]["processor"], &objects[0]["singleton"]), (&"import".into(), &true.into()));

    let file = config("[processors.import]\nlease = \"10s\"");
    let args = [&["check", "--config", path(&file)][..], &store].concat();
    let (text, kind, report) = bus(&args).await.failed();
    assert_eq!((text.as_str(), kind), ("", ErrorKind::Wiring));
    assert!(report.contains("\"imports\"") && report.contains("locks"), "both mistakes: {report}");
}
