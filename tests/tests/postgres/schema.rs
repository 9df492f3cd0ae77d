//! Tables: made by many at once, in a schema of one's choice, and used by somebody who may do no more than that.

use std::time::Duration;

use bus::backend::postgres::{grants_script, schema_script};
use bus::clock::Clock;
use bus::conformance::{Outcome, Timing, UrlSubject, lock, transport};
use bus::contract::{OpenOptions, Scheme, StoreUrl};
use bus::{Endpoint, ErrorKind};
use bus_tests::postgres::{Database, Server, available};

use crate::stream::{Work, producer};

async fn open(url: &str, options: &OpenOptions) -> bus::Result<std::sync::Arc<dyn bus::contract::Transport>> {
    let url = StoreUrl::parse(url)?;
    let open = Scheme::find(url.scheme())?.transport.expect("a transport");
    open(&url, options).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_hosts_that_start_at_once_make_the_tables_once() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let options = OpenOptions::new(Clock::system());
    let url = format!("{}?connections=1", database.url());
    let opened = futures_util::future::join_all((0..12).map(|_| open(&url, &options))).await;
    for opened in opened {
        opened.expect("a host opens the store").close().await;
    }
    let client = database.client().await;
    let stores: i64 = client.query_one("SELECT count(*) FROM bus.store", &[]).await.unwrap().get(0);
    assert_eq!(stores, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_schemas_are_two_stores() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let one = producer(&format!("{}?schema=one", database.url())).await;
    let two = producer(&format!("{}?schema=two", database.url())).await;
    one.bus().send(Work(1)).await.unwrap();
    let queue = Endpoint::queue("work").unwrap();
    assert_eq!(one.inspect("default").unwrap().depth(&queue).await.unwrap().ready, 1);
    assert_eq!(two.inspect("default").unwrap().depth(&queue).await.unwrap().ready, 0);
    one.close().await;
    two.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_only_looks_makes_no_tables() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let refused = open(&database.url(), &OpenOptions::new(Clock::system()).existing()).await;
    assert_eq!(refused.map(drop).unwrap_err().kind(), ErrorKind::NotFound);
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'bus'";
    assert_eq!(database.client().await.query_one(schemas, &[]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_a_newer_version_are_refused() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    producer(&database.url()).await.close().await;
    database.client().await.execute("UPDATE bus.store SET version = 99", &[]).await.unwrap();
    let refused = open(&database.url(), &OpenOptions::new(Clock::system())).await.map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert!(refused.to_string().contains("99"), "{refused}");
}

/// As left by an older version that had no table of readers yet: any number of hosts that start at once bring it up to date
/// once, and what was in it is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_an_older_version_are_brought_up_to_date_by_whoever_comes_first() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let before = producer(&database.url()).await;
    before.bus().send(Work(1)).await.unwrap();
    before.close().await;
    let client = database.client().await;
    let store = async || {
        let row = client.query_one("SELECT id, version FROM bus.store", &[]).await.unwrap();
        (row.get::<_, uuid::Uuid>(0), row.get::<_, i32>(1))
    };
    let (id, version) = store().await;
    client.batch_execute("UPDATE bus.store SET version = 0; DROP TABLE bus.reader").await.unwrap();

    let options = OpenOptions::new(Clock::system());
    let refused = open(&database.url(), &OpenOptions::new(Clock::system()).existing()).await;
    let refused = refused.map(drop).unwrap_err();
    assert!(refused.to_string().contains("older version"), "{refused}");
    let url = format!("{}?connections=1", database.url());
    let opened = futures_util::future::join_all((0..8).map(|_| open(&url, &options))).await;
    for opened in opened {
        opened.expect("a host opens the store").close().await;
    }
    assert_eq!(store().await, (id, version));
    let after = producer(&database.url()).await;
    assert!(
        after.inspect("default").unwrap().depth(&Endpoint::queue("work").unwrap()).await.unwrap().ready == 1
    );
    after.close().await;
    client.batch_execute("SELECT * FROM bus.reader").await.unwrap();

    // By hand, as an administrator does.
    client.batch_execute("UPDATE bus.store SET version = 0; DROP TABLE bus.reader").await.unwrap();
    client.batch_execute(&schema_script("bus").unwrap()).await.unwrap();
    assert_eq!(store().await, (id, version));
}

/// A host that is still at work when a newer one has changed the tables mends nothing there: it would put its own back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_newer_version_has_changed_is_left_as_it_is() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let older = producer(&database.url()).await;
    older.bus().send(Work(1)).await.unwrap();
    let newer = "UPDATE bus.store SET version = 99;
                 DROP TABLE bus.dead;
                 CREATE OR REPLACE FUNCTION bus.clock_us() RETURNS bigint LANGUAGE sql VOLATILE AS
                     'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint -- newer'";
    let client = database.client().await;
    client.batch_execute(newer).await.unwrap();
    let queue = Endpoint::queue("work").unwrap();
    assert!(older.inspect("default").unwrap().depth(&queue).await.is_err(), "a table is missing");
    let refused = client.batch_execute(&schema_script("bus").unwrap()).await.unwrap_err();
    let said = refused.as_db_error().map(|e| e.message().to_owned()).unwrap_or_default();
    assert!(said.contains("newer version"), "{refused:?}");
    let left = "SELECT to_regclass('bus.dead')::text, (SELECT prosrc FROM pg_proc WHERE proname = 'clock_us'
                AND pronamespace = 'bus'::regnamespace)";
    let row = client.query_one(left, &[]).await.unwrap();
    assert_eq!(row.get::<_, Option<&str>>(0), None, "the old table was made again");
    assert!(row.get::<_, &str>(1).contains("newer"), "the old function was put back");
    older.close().await;
}

/// A host whose user may make no tables says what the administrator is to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_the_grants_alone_says_who_has_to_bring_the_tables_up_to_date() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let role = format!("host_{}", &uuid::Uuid::new_v4().simple().to_string()[..12]);
    let client = database.client().await;
    client.batch_execute(&schema_script("bus").unwrap()).await.unwrap();
    client.batch_execute(&format!("CREATE ROLE {role} LOGIN")).await.unwrap();
    client.batch_execute(&grants_script("bus", &role).unwrap()).await.unwrap();
    client.batch_execute("UPDATE bus.store SET version = 0").await.unwrap();
    let url = database.url().replace("postgres@", &format!("{role}@"));
    let refused = open(&url, &OpenOptions::new(Clock::system())).await.map(drop).unwrap_err();
    let text = format!("{refused:?}");
    assert!(text.contains("older version") && text.contains("schema_script"), "{text}");
    client.batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await.unwrap();
}

/// The server's certificate is looked at; and a session is known to be direct through the encryption too, else hints would
/// not be heard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_encrypted_connection_is_made_to_a_trusted_server_alone() {
    if !available() {
        return;
    }
    let (server, certificate) = Server::start_encrypting().await;
    let options = OpenOptions::new(Clock::system());
    let trusted = format!("{}?sslmode=verify-full&sslrootcert={}", server.url(), certificate.display());
    open(&trusted, &options).await.expect("a trusted server").close().await;
    let url = StoreUrl::parse(&trusted).unwrap();
    let locks = Scheme::find(url.scheme()).unwrap().locks.unwrap()(&url, &options).await.unwrap();
    assert!(locks.guarantees().watch, "it was taken for a pooler");
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE ssl AND application_name = 'bus'";
    let sessions: i64 = server.client().await.query_one(encrypted, &[]).await.unwrap().get(0);
    assert!(sessions > 0, "no session is encrypted");
    locks.close().await;
    let by_name = trusted.replace("127.0.0.1", "localhost");
    for refused in [format!("{}?sslmode=verify-full", server.url()), by_name] {
        let error = open(&refused, &options).await.map(drop).unwrap_err();
        // Where the system has no roots at all, that is what is said.
        let kinds = [ErrorKind::Unavailable, ErrorKind::Config];
        assert!(kinds.contains(&error.kind()), "{refused}: {error:?}");
    }
}

/// The whole life of messages and locks, by a user who owns nothing: the conformance suites' first cases are enough to
/// touch every table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_the_grants_alone_can_do_everything() {
    if !available() {
        return;
    }
    let database = Database::create().await;
    let role = format!("host_{}", &uuid::Uuid::new_v4().simple().to_string()[..12]);
    let client = database.client().await;
    client.batch_execute(&schema_script("bus").unwrap()).await.unwrap();
    client.batch_execute(&format!("CREATE ROLE {role} LOGIN")).await.unwrap();
    client.batch_execute(&grants_script("bus", &role).unwrap()).await.unwrap();
    let url = database.url().replace("postgres@", &format!("{role}@"));
    let timing = Timing::default().lease(Duration::from_secs(2));
    let subject = UrlSubject::new(&url).unwrap().with_clock(Clock::system()).with_timing(timing);
    let mut ran = 0;
    for case in transport::cases() {
        // Those that count are long, and touch nothing else.
        if case.name.contains("histories")
            || case.name.contains("full_speed")
            || case.name.contains("thousands")
        {
            continue;
        }
        match case.run(&subject).await {
            Outcome::Failed(failure) => panic!("{}: {failure}", case.name),
            _ => ran += 1,
        }
    }
    for case in lock::cases().into_iter().take(12) {
        if let Outcome::Failed(failure) = case.run(&subject).await {
            panic!("{}: {failure}", case.name);
        }
    }
    assert!(ran > 60, "{ran} cases ran");
    let made = format!("SET ROLE {role}; CREATE TABLE bus.more (id int)");
    assert!(client.batch_execute(&made).await.is_err(), "the role may make tables");
    client.batch_execute(&format!("RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}")).await.unwrap();
}
