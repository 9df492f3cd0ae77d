//! The tool, over stores in memory: what it answers, what it does, and what it never shows.

#[path = "cli/blind.rs"]
mod blind;
#[path = "cli/mounted.rs"]
mod mounted;
#[path = "cli/store.rs"]
mod store;

use std::io::Write;
use std::time::Duration;

use bus::ErrorKind;
use bus::cli::cli_from;
use bus::contract::{Ended, LockId, Owner};
use serde_json::Value;

use store::TestStore;

#[derive(serde::Serialize, serde::Deserialize, bus::Command)]
#[command(queue = "imports")]
struct Import;

#[bus::processor(singleton)]
async fn import(_import: Import) -> bus::Result<()> {
    Ok(())
}

/// What the tool has written, and whether it failed.
struct Answer {
    text: String,
    error: Option<bus::Error>,
}

impl Answer {
    fn succeeded(self) -> String {
        match self.error {
            None => self.text,
            Some(error) => panic!("{error:?}\nafter:\n{}", self.text),
        }
    }

    /// What it wrote before it failed, the kind of failure, and its whole report.
    fn failed(self) -> (String, ErrorKind, String) {
        match self.error {
            Some(error) => (self.text, error.kind(), format!("{error:?}")),
            None => panic!("did not fail, but wrote:\n{}", self.text),
        }
    }

    fn objects(self) -> Vec<Value> {
        self.succeeded().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

async fn bus(args: &[&str]) -> Answer {
    let mut out = Vec::new();
    let error = cli_from(["bus"].iter().chain(args).copied(), &mut out).await.err();
    Answer { text: String::from_utf8(out).unwrap(), error }
}

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
    ] {
        let (text, kind, report) = bus(&[args, &["--store", store.url()]].concat()).await.failed();
        assert_eq!((text.as_str(), kind), ("", ErrorKind::NotFound));
        assert!(report.contains("did you mean imports?"), "{report}");
    }
    let (_, kind, report) = bus(&["dead", "show", "imports", &id, "--store", store.url()]).await.failed();
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(report.contains(&id) && report.contains("memory://cli-unknown"), "{report}");
}

#[tokio::test]
async fn an_empty_store_has_empty_answers() {
    for (command, nothing) in [
        (&["dead", "list"][..], "no dead letters in"),
        (&["depths"], "no endpoints in"),
        (&["locks"], "no locks in"),
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
async fn no_mistake_shows_credentials() {
    for args in [
        &["depths", "--store", "postgres://user:s3cret@host/db?oops"][..],
        &["depths", "--store", "postgres://user:s3cret@host/db"],
        &["depths", "--store", "memory://user:s3cret@host?size=3"],
        &["depths", "--store", "AccountName=a;AccountKey=s3cret"],
        &["locks", "--locks", "postgres://user:s3cret@host/db"],
        &["locks", "--locks", "s3cret"],
        &["dead", "list", "postgres://user:s3cret@host/db"],
        &["postgres://user:s3cret@host/db"],
        &["depths", "AccountName=a;AccountKey=s3cret"],
        &["dead", "list", "--limit=postgres://user:s3cret@host/db"],
    ] {
        let (text, _, report) = bus(args).await.failed();
        assert!(!text.contains("s3cret") && !report.contains("s3cret"), "{args:?}: {text}{report}");
    }
}

#[tokio::test]
async fn what_cannot_be_understood_is_refused() {
    for (args, why) in [
        (&["dead", "show", "imports", "7"][..], "no message id"),
        (&["dead", "list", "Imports"], "cannot be a name"),
        (&["dead", "list", "--limit", "0"], "0 is not in"),
        (&["dead", "put-back", "imports"], "<ID"),
        (
            &["dead", "put-back", "imports", "--all", "0199bd1e-0000-7000-8000-000000000000"],
            "cannot be used with",
        ),
        (&["dead", "burn"], "unrecognized subcommand"),
        (&[], "Usage: bus"),
    ] {
        let (text, kind, report) = bus(args).await.failed();
        assert_eq!((text.as_str(), kind), ("", ErrorKind::InvalidInput), "{args:?}");
        assert!(report.contains(why), "{args:?}: {report}");
    }
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

#[tokio::test]
async fn help_is_written_and_knows_where_it_is_mounted() {
    let text = bus(&["--help"]).await.succeeded();
    for part in ["Usage: bus [OPTIONS] <COMMAND>", "dead", "depths", "locks", "--store <URL>"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let mut out = Vec::new();
    cli_from(["/usr/bin/orders", "bus", "dead", "put-back", "--help"], &mut out).await.unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("Usage: orders bus dead put-back"), "{text}");
}

/// A reader that has seen enough.
struct Gone;

impl Write for Gone {
    fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_reader_that_goes_away_is_no_error() {
    let store = TestStore::open("gone").await;
    store.dead("imports", b"a", "failed", None).await;
    for json in [&[][..], &["--json"]] {
        let args = ["bus", "dead", "list", "--store", store.url()];
        cli_from(args.iter().chain(json).copied(), &mut Gone).await.unwrap();
    }
}

fn config(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn path(file: &tempfile::NamedTempFile) -> &str {
    file.path().to_str().unwrap()
}
