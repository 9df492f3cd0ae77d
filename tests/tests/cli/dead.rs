//! Dead letters: listed, shown, put back.

use bus::ErrorKind;

use super::bus;
use super::store::TestStore;

#[tokio::test]
async fn dead_letters_of_all_endpoints_are_listed_with_why_and_since_when() {
    let store = TestStore::open("list").await;
    let first = store.dead("imports", br#"{"a":1}"#, "failed too often", Some("no such tenant")).await;
    store.dead("order-placed/send-receipt", b"x", "expired", None).await;

    let text = bus(&["dead", "list", "--store", store.url()]).await.succeeded();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    for heading in ["TRANSPORT", "ENDPOINT", "ID", "DEAD SINCE", "DELIVERIES", "REASON", "ERROR"] {
        assert!(lines[0].contains(heading), "{text}");
    }
    for part in ["default", "imports", &first, "1  failed too often", "no such tenant"] {
        assert!(lines[1].contains(part), "{part}: {text}");
    }
    assert!(lines[2].contains("order-placed/send-receipt") && lines[2].contains("expired"), "{text}");

    let one = bus(&["dead", "list", "order-placed/send-receipt", "--store", store.url()]).await.succeeded();
    assert!(!one.contains("imports"), "{one}");
}

#[tokio::test]
async fn dead_letters_for_programs_are_one_object_a_line() {
    let store = TestStore::open("json").await;
    let id = store.dead("imports", b"{}", "failed too often", Some("no such tenant")).await;
    let objects = bus(&["--json", "dead", "list", "--store", store.url()]).await.objects();
    assert_eq!(objects.len(), 1);
    let letter = &objects[0];
    assert_eq!(letter["id"], id.as_str());
    assert_eq!((&letter["transport"], &letter["endpoint"]), (&"default".into(), &"imports".into()));
    assert_eq!((&letter["reason"], &letter["delivery_count"]), (&"failed too often".into(), &1.into()));
    assert!(letter["error"].as_str().unwrap().contains("no such tenant"), "{letter}");
    let since = letter["dead_since"].as_str().unwrap();
    assert!(since.starts_with("20") && since.ends_with('Z'), "{letter}");
}

#[tokio::test]
async fn people_are_shown_fifty_and_told_of_more_programs_get_all() {
    let store = TestStore::open("limit").await;
    for number in 0..230 {
        store.dead("imports", number.to_string().as_bytes(), "failed too often", None).await;
    }
    let text = bus(&["dead", "list", "--store", store.url()]).await.succeeded();
    assert_eq!(text.lines().count(), 52, "{text}");
    assert_eq!(text.lines().last(), Some("imports: 50 of 230; --limit N lists more"));
    let text = bus(&["dead", "list", "--store", store.url(), "--limit", "230"]).await.succeeded();
    assert_eq!(text.lines().count(), 231);
    // Across the pages in which the store is asked, none twice.
    let mut ids: Vec<String> = bus(&["dead", "list", "--store", store.url(), "--json"])
        .await
        .objects()
        .iter()
        .map(|letter| letter["id"].to_string())
        .collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 230);
    assert_eq!(
        bus(&["dead", "list", "--store", store.url(), "--json", "--limit", "3"]).await.objects().len(),
        3
    );
}

#[tokio::test]
async fn one_letter_is_shown_with_headers_and_body() {
    let store = TestStore::open("show").await;
    let json =
        store.dead("imports", br#"{"tenant":"a","n":12345678901234567890123}"#, "failed", Some("oops")).await;
    let text = bus(&["dead", "show", "imports", &json, "--store", store.url()]).await.succeeded();
    for part in [
        &json,
        "reason        failed",
        "oops",
        "  origin: test",
        "JSON, 42 bytes",
        "    \"n\": 12345678901234567890123",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let raw = store.dead("imports", &[0xff, b'h', b'i'], "undecodable", None).await;
    let text = bus(&["dead", "show", "imports", &raw, "--store", store.url()]).await.succeeded();
    assert!(text.contains("binary, 3 bytes") && text.contains("ff 68 69"), "{text}");

    let shown = bus(&["dead", "show", "imports", &json, "--store", store.url(), "--json"]).await.objects();
    assert_eq!(shown[0]["body_text"], r#"{"tenant":"a","n":12345678901234567890123}"#);
    assert_eq!(shown[0]["headers"]["origin"], "test");
    let shown = bus(&["dead", "show", "imports", &raw, "--store", store.url(), "--json"]).await.objects();
    assert_eq!(shown[0]["body_hex"], "ff6869");
}

#[tokio::test]
async fn what_a_message_says_is_no_command_for_the_terminal() {
    let store = TestStore::open("escape").await;
    let id = store.dead("imports", b"a\x1b[2Jb", "\x1b]0;title\x07 refused", Some("\x1b[31m")).await;
    let list = bus(&["dead", "list", "--store", store.url()]).await.succeeded();
    let show = bus(&["dead", "show", "imports", &id, "--store", store.url()]).await.succeeded();
    assert!(!list.contains('\x1b') && !show.contains('\x1b'), "{list}{show}");
}

/// A header's value, or its name, does not pass for another field by the lines that it has.
#[tokio::test]
async fn a_header_of_several_lines_looks_like_one_header() {
    let store = TestStore::open("header-lines").await;
    let headers = [("first\nbody", "one\nreason        forged\n  origin: forged")];
    let id = store.dead_with("imports", headers, b"x").await;
    let text = bus(&["dead", "show", "imports", &id, "--store", store.url()]).await.succeeded();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.contains(&"  first\\nbody: one"), "{text}");
    assert!(lines.contains(&"      reason        forged"), "{text}");
    assert!(lines.contains(&"        origin: forged"), "{text}");
    assert!(!lines.iter().any(|line| line.starts_with("reason        forged")), "{text}");
    let objects = bus(&["dead", "show", "imports", &id, "--store", store.url(), "--json"]).await.objects();
    assert_eq!(objects[0]["headers"]["first\nbody"], headers[0].1, "for programs it is as it is");
}

/// M35: replay that says "done" and has done nothing.
#[tokio::test]
async fn m35_putting_back_says_of_each_message_what_was_done() {
    let store = TestStore::open("put-back").await;
    let (a, b) = (
        store.dead("imports", b"a", "failed", None).await,
        store.dead("imports", b"b", "failed", None).await,
    );
    let stranger = bus::MessageId::fresh().to_string();

    let args = ["dead", "put-back", "imports", &a, &stranger, "--store", store.url()];
    let (text, kind, report) = bus(&args).await.failed();
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(report.contains("1 of 2 messages"), "{report}");
    assert!(text.contains(&format!("{a}  put back\n")), "{text}");
    assert!(text.contains(&format!("{stranger}  not found")), "{text}");
    assert!(text.ends_with("1 put back, 1 not found\n"), "{text}");
    assert_eq!(store.depth("imports").await, (1, 1));

    // Twice: nothing more is done, and it is said.
    let (text, kind, _) = bus(&["dead", "put-back", "imports", &a, "--store", store.url()]).await.failed();
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(text.ends_with("0 put back, 1 not found\n"), "{text}");
    assert_eq!(store.depth("imports").await, (1, 1));

    // The same one named twice is one message.
    let text = bus(&["dead", "put-back", "imports", &b, &b, "--store", store.url()]).await.succeeded();
    assert!(text.ends_with("1 put back, 0 not found\n"), "{text}");
    assert_eq!(store.depth("imports").await, (2, 0));
}

#[tokio::test]
async fn m35_all_that_are_dead_are_put_back_and_again_is_nothing() {
    let store = TestStore::open("put-back-all").await;
    for number in 0..205 {
        store.dead("imports", number.to_string().as_bytes(), "failed", None).await;
    }
    let all = ["dead", "put-back", "imports", "--all", "--json", "--store", store.url()];
    let outcomes = bus(&all).await.objects();
    assert_eq!(outcomes.len(), 205);
    assert!(outcomes.iter().all(|outcome| outcome["outcome"] == "put-back"), "{outcomes:?}");
    assert_eq!(store.depth("imports").await, (205, 0));
    assert!(bus(&all).await.objects().is_empty());
}

#[tokio::test]
async fn unknown_endpoints_and_ids_are_said() {
    let store = TestStore::open("unknown").await;
    store.dead("imports", b"a", "failed", None).await;
    let id = bus::MessageId::fresh().to_string();
    for args in [
        &["dead", "list", "import"][..],
        &["dead", "show", "import", &id],
        &["dead", "put-back", "import", "--all"],
        &["dead", "drop", "import", "--all"],
    ] {
        let (text, kind, report) = bus(&[args, &["--store", store.url()]].concat()).await.failed();
        assert_eq!((text.as_str(), kind), ("", ErrorKind::NotFound));
        assert!(report.contains("did you mean imports?"), "{report}");
    }
    let (_, kind, report) = bus(&["dead", "show", "imports", &id, "--store", store.url()]).await.failed();
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(report.contains(&id) && report.contains("memory://cli-unknown"), "{report}");
}

/// M35, for dropping: each message is answered for, nothing is dropped unasked, and repeating it is said.
#[tokio::test]
async fn m35_dropping_says_of_each_message_what_was_done() {
    let store = TestStore::open("drop").await;
    let (a, b) = (
        store.dead("imports", b"a", "failed", None).await,
        store.dead("imports", b"b", "failed", None).await,
    );
    let living = store.send("imports", b"c").await;

    let args = ["dead", "drop", "imports", &a, &living, "--yes", "--store", store.url()];
    let (text, kind, report) = bus(&args).await.failed();
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(report.contains("1 of 2 messages"), "{report}");
    assert!(text.contains(&format!("{a}  dropped\n")), "{text}");
    assert!(text.contains(&format!("{living}  not found")), "{text}");
    assert!(text.ends_with("1 dropped, 1 not found\n"), "{text}");
    assert_eq!(store.depth("imports").await, (1, 1));

    let (text, kind, _) = bus(&args).await.failed();
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(text.ends_with("0 dropped, 2 not found\n"), "{text}");

    let outcomes =
        bus(&["dead", "drop", "imports", &b, "--yes", "--json", "--store", store.url()]).await.objects();
    assert_eq!((&outcomes[0]["id"], &outcomes[0]["outcome"]), (&b.as_str().into(), &"dropped".into()));
    assert_eq!(store.depth("imports").await, (1, 0));
}

#[tokio::test]
async fn nothing_is_dropped_without_a_yes() {
    let directory = tempfile::tempdir().unwrap();
    let file = format!("sqlite://{}/bus.db", directory.path().display());
    for store in [TestStore::open("no-yes").await, TestStore::at(&file).await] {
        let mut id = String::new();
        for number in 0..205 {
            id = store.dead("imports", number.to_string().as_bytes(), "failed", None).await;
        }
        for (selection, count) in [(&id[..], "1 for good"), ("--all", "205 for good")] {
            let args = ["dead", "drop", "imports", selection, "--store", store.url()];
            let (text, kind, report) = bus(&args).await.failed();
            assert_eq!((text.as_str(), kind), ("", ErrorKind::InvalidInput));
            assert!(report.contains(count) && report.contains("--yes"), "{report}");
        }
        assert_eq!(store.depth("imports").await, (0, 205));

        let all = ["dead", "drop", "imports", "--all", "--yes", "--store", store.url()];
        let text = bus(&all).await.succeeded();
        assert!(text.ends_with("205 dropped, 0 not found\n"), "{text}");
        assert_eq!(store.depth("imports").await, (0, 0));
        assert_eq!(bus(&all).await.succeeded(), "0 dropped, 0 not found\n");
        // A script that has forgotten it learns of that before there is something to lose.
        let (_, kind, report) =
            bus(&["dead", "drop", "imports", "--all", "--store", store.url()]).await.failed();
        assert_eq!(kind, ErrorKind::InvalidInput);
        assert!(report.contains("nothing is dead here"), "{report}");
    }
}
