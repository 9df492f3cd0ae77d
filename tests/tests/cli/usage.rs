//! What is typed wrongly, what is never shown, and who reads.

use std::io::Write;

use bus::ErrorKind;
use bus::cli::cli_from;

use super::bus;
use super::store::TestStore;

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
        // M30
        (&["dead", "list", "two words"], "cannot be a name"),
        (&["dead", "show", "dotted.name", "0199bd1e-0000-7000-8000-000000000000"], "cannot be a name"),
        (&["dead", "put-back", "a/b/c", "--all"], "cannot be a name"),
        (&["dead", "put-back", "../../etc/passwd", "--all"], "cannot be a name"),
        (&["dead", "list", "åäö"], "cannot be a name"),
        (&["dead", "list", ""], "it is empty"),
        (&["dead", "list", "--transport", "🦀"], "cannot be a name"),
        (&["depths", "--transport", "a/b"], "cannot be a name"),
        (&["dead", "list", "--limit", "0"], "0 is not in"),
        (&["dead", "put-back", "imports"], "<ID"),
        (&["dead", "put-back", "imports"], "<ID|--all>"),
        (&["dead", "drop", "imports", "--yes"], "<ID"),
        (&["dead", "drop", "imports", "--yes"], "--all>"),
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
