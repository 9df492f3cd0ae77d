//! The page `stores` says of each backend what the backend says of itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bus::contract::{BoxFuture, LockManager, OpenOptions, Scheme, StoreUrl, Transport};
use bus::{Endpoint, ErrorKind};
use bus_emulators::{Azurite, sas};
use bus_tests::{nats, postgres, redis, skip};

/// The page.
const PAGE: &str = "bus/docs/stores.md";

/// A store of a backend, for as long as it is looked at.
struct Opened {
    /// One, or two where messages and locks are opened apart.
    urls: Vec<String>,
    /// What has to live as long as the store is used.
    _keep: Box<dyn std::any::Any>,
}

impl Opened {
    fn new(url: String, keep: impl std::any::Any) -> Opened {
        Opened { urls: vec![url], _keep: Box::new(keep) }
    }
}

/// How a store of each backend is had: `None` where its server cannot be had here, which has been said then.
type Open = fn() -> BoxFuture<'static, Option<Opened>>;

/// One for each folder of `bus/src/backend`. A backend that is missing here is named by the test.
fn openers() -> BTreeMap<&'static str, Open> {
    let memory: Open = || Box::pin(async { Some(Opened::new("memory://stores".to_owned(), ())) });
    let sqlite: Open = || {
        Box::pin(async {
            let directory = tempfile::tempdir().expect("a temporary directory");
            Some(Opened::new(format!("sqlite://{}/bus.db", directory.path().display()), directory))
        })
    };
    let in_postgres: Open = || {
        Box::pin(async {
            if !postgres::available() {
                return None;
            }
            let database = postgres::Database::create().await;
            Some(Opened::new(database.url(), database))
        })
    };
    let in_redis: Open = || {
        Box::pin(async {
            if let Some(missing) = redis::missing() {
                skip::not_run(missing);
                return None;
            }
            let server = redis::Redis::start(redis::DURABLE);
            Some(Opened::new(server.url("stores"), server))
        })
    };
    let in_nats: Open = || {
        Box::pin(async {
            if let Some(missing) = nats::missing() {
                skip::not_run(missing);
                return None;
            }
            let server = nats::Nats::start();
            Some(Opened::new(server.url("stores"), server))
        })
    };
    let file: Open = || {
        Box::pin(async {
            let directory = tempfile::tempdir().expect("a temporary directory");
            Some(Opened::new(format!("file://{}", directory.path().display()), directory))
        })
    };
    let azure_storage: Open = || Box::pin(async { in_azurite() });
    BTreeMap::from([
        ("memory", memory),
        ("sqlite", sqlite),
        ("postgres", in_postgres),
        ("redis", in_redis),
        ("azure_storage", azure_storage),
        ("file", file),
        ("nats", in_nats),
    ])
}

fn in_azurite() -> Option<Opened> {
    let azurite = match Azurite::shared() {
        Ok(azurite) => azurite,
        Err(error) if error.is_unavailable() => {
            skip::not_run(error);
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let sas = sas::of_services(azurite.account(), azurite.key(), "bq", "rwdlacup");
    let (queues, blobs) = (azurite.queue_endpoint(), azurite.blob_endpoint());
    let (queues, blobs) = (queues.trim_start_matches("http://"), blobs.trim_start_matches("http://"));
    let (authority, _) = blobs.split_once('/').expect("the account is in the path");
    let urls = vec![
        format!("azqueue://{queues}/stores?{sas}&blobs={authority}"),
        format!("azblob://{blobs}/stores?{sas}"),
    ];
    Some(Opened { urls, _keep: Box::new(azurite) })
}

/// The backends that there are: the folders.
fn backends() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bus/src/backend");
    let entries = std::fs::read_dir(folder).expect("the backends' folder");
    let entries = entries.map(|entry| entry.expect("an entry").path());
    let folders = entries.filter(|path| path.is_dir());
    folders.map(|path| path.file_name().expect("a name").to_string_lossy().into_owned()).collect()
}

/// A table of the page: its headings, and each store's cells.
struct Table {
    headings: Vec<String>,
    rows: BTreeMap<String, Vec<String>>,
}

/// The table below a heading.
fn table(page: &str, heading: &str) -> Table {
    let rows = page
        .lines()
        .skip_while(|line| *line != heading)
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .map(cells)
        .collect::<Vec<_>>();
    let (head, rest) = rows.split_first().unwrap_or_else(|| panic!("{PAGE} has no table below {heading}"));
    let rows = rest.iter().skip(1).filter_map(|row| {
        let (store, cells) = row.split_first()?;
        Some((store.trim_matches('`').to_owned(), cells.to_vec()))
    });
    Table { headings: head.clone(), rows: rows.collect() }
}

fn cells(line: &str) -> Vec<String> {
    line.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

impl Table {
    /// What is wrong with a store's row, if it is to have these cells, or none.
    fn compare(&self, what: &str, store: &str, expected: Option<&[(&str, String)]>) -> Vec<String> {
        match (self.rows.get(store), expected) {
            (None, None) => Vec::new(),
            (Some(_), None) => vec![format!("{what}: {store} has a row, and no {what}")],
            (None, Some(expected)) => {
                let row: Vec<_> = expected.iter().map(|(_, cell)| cell.as_str()).collect();
                vec![format!("{what}: {store} has no row; write\n  | `{store}` | {} |", row.join(" | "))]
            }
            (Some(row), Some(expected)) => self
                .headings
                .iter()
                .skip(1)
                .zip(expected)
                .enumerate()
                .filter_map(|(at, (heading, (column, cell)))| {
                    assert_eq!(
                        heading, column,
                        "{PAGE}: {what}: a column is called otherwise than in this test"
                    );
                    let written = row.get(at).map_or("", String::as_str);
                    (written != cell).then(|| {
                        format!("{what}: {store}: {column} is {cell:?}, and the page says {written:?}")
                    })
                })
                .collect(),
        }
    }
}

fn yes(has: bool) -> String {
    if has { "yes" } else { "no" }.to_owned()
}

/// Whether the store takes such an endpoint.
async fn takes(transport: &dyn Transport, endpoint: &str) -> bool {
    let endpoint = Endpoint::parse(endpoint).expect("an endpoint");
    match transport.prepare(&[endpoint]).await {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::Unsupported => false,
        Err(error) => panic!("the store does not answer: {error:?}"),
    }
}

async fn of_messages(scheme: &Scheme, transport: &dyn Transport) -> Vec<(&'static str, String)> {
    let (powers, promised) = (transport.capabilities(), transport.guarantees());
    assert_eq!(promised.reach, scheme.reach, "{}:// reaches what it says before it is opened", scheme.name);
    let woken = match promised.polled {
        None => "at once".to_owned(),
        Some(every) => format!("polled every {every:?}"),
    };
    vec![
        ("URL", format!("`{}://`", scheme.name)),
        ("shared by the", promised.reach.to_string()),
        ("commands", yes(takes(transport, "stores-test").await)),
        ("events", yes(takes(transport, "stores-test/reader").await)),
        ("delayed, cancelled", yes(powers.delay.is_some())),
        ("in your transaction", yes(powers.enqueue.is_some())),
        ("fenced", yes(powers.fencing.is_some())),
        ("strict order", yes(powers.strict_order)),
        ("looked into", yes(powers.inspect.is_some())),
        ("readers, retention", yes(powers.readers.is_some())),
        ("woken", woken),
        ("acknowledged", promised.durability.to_string()),
        ("largest body", bytes(promised.max_body)),
    ]
}

fn bytes(count: usize) -> String {
    match count {
        count if count % (1 << 20) == 0 => format!("{} MiB", count >> 20),
        count if count % (1 << 10) == 0 => format!("{} KiB", count >> 10),
        count => format!("{count} bytes"),
    }
}

fn of_locks(scheme: &Scheme, locks: &dyn LockManager) -> Vec<(&'static str, String)> {
    let promised = locks.guarantees();
    assert_eq!(promised.reach, scheme.reach, "{}:// reaches what it says before it is opened", scheme.name);
    assert_eq!(promised.leases, scheme.leases, "{}:// takes what it says before it is opened", scheme.name);
    let restored = if promised.monotonic_across_restore { "grow" } else { "may repeat" };
    let released = match promised.watch {
        true => "told at once".to_owned(),
        false => format!("asked for every {:?}", promised.poll),
    };
    let time = |time: Duration| match time.as_secs() {
        seconds if seconds >= 60 && seconds % 60 == 0 => format!("{} min", seconds / 60),
        _ => format!("{time:?}"),
    };
    vec![
        ("URL", format!("`{}://`", scheme.name)),
        ("keep apart the", promised.reach.to_string()),
        ("a lease ends by", promised.expiry.to_owned()),
        ("a lock that is held is", promised.durability.to_string()),
        ("fences across a restore", restored.to_owned()),
        ("a release is", released),
        ("shortest lease", time(promised.leases.shortest)),
        ("longest lease", time(promised.leases.longest)),
        ("lease by default", time(promised.leases.default)),
    ]
}

async fn open<T: ?Sized>(
    url: &StoreUrl,
    how: for<'a> fn(&'a StoreUrl, &'a OpenOptions) -> BoxFuture<'a, bus::Result<Arc<T>>>,
) -> Arc<T> {
    how(url, &OpenOptions::default())
        .await
        .unwrap_or_else(|error| panic!("{url} cannot be opened: {error:?}"))
}

/// The cells of a row.
type Cells = Option<Vec<(&'static str, String)>>;

/// What the stores say of their messages, and of their locks.
async fn told(opened: &Opened) -> (Cells, Cells) {
    let (mut messages, mut locks) = (None, None);
    for url in &opened.urls {
        let url = StoreUrl::parse(url).expect("a URL");
        let scheme = Scheme::find(url.scheme()).expect("its scheme is registered");
        if let Some(how) = scheme.transport {
            let transport = open(&url, how).await;
            messages = Some(of_messages(scheme, &*transport).await);
            transport.close().await;
        }
        if let Some(how) = scheme.locks {
            let manager = open(&url, how).await;
            locks = Some(of_locks(scheme, &*manager));
            manager.close().await;
        }
    }
    (messages, locks)
}

/// Everything that is wrong with the page, at once.
struct Wrong(Vec<String>);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PAGE}:\n{}", self.0.join("\n"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_says_what_the_stores_say() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(PAGE);
    let page = std::fs::read_to_string(page).expect("the page");
    let (messages, locks) = (table(&page, "# Messages"), table(&page, "# Locks"));
    let (openers, backends) = (openers(), backends());
    let mut wrong = Wrong(Vec::new());
    for (what, table) in [("messages", &messages), ("locks", &locks)] {
        let strangers = table.rows.keys().filter(|store| !backends.contains(*store));
        wrong.0.extend(strangers.map(|store| format!("{what}: {store} is no folder of bus/src/backend")));
    }
    for backend in &backends {
        let Some(opener) = openers.get(backend.as_str()) else {
            wrong.0.push(format!(
                "{backend}: add to `openers` in tests/tests/stores.rs how a store of it is had"
            ));
            continue;
        };
        let Some(opened) = opener().await else { continue };
        let (of_messages, of_locks) = told(&opened).await;
        wrong.0.extend(messages.compare("messages", backend, of_messages.as_deref()));
        wrong.0.extend(locks.compare("locks", backend, of_locks.as_deref()));
    }
    assert!(wrong.0.is_empty(), "{wrong}");
}

/// The comparison itself: what is missing, left over or different is named.
#[test]
fn what_differs_is_named() {
    let page = "# Messages\n\n| store | fenced |\n|---|---|\n| `a` | yes |\n| `b` | no |\n";
    let table = table(page, "# Messages");
    let fenced = |cell: &str| vec![("fenced", cell.to_owned())];
    assert!(table.compare("messages", "a", Some(&fenced("yes"))).is_empty());
    let said = table.compare("messages", "b", Some(&fenced("yes")));
    assert_eq!(said, ["messages: b: fenced is \"yes\", and the page says \"no\""]);
    let said = table.compare("messages", "c", Some(&fenced("no")));
    assert_eq!(said, ["messages: c has no row; write\n  | `c` | no |"]);
    assert_eq!(table.compare("messages", "a", None), ["messages: a has a row, and no messages"]);
    assert!(table.compare("messages", "c", None).is_empty());
}
