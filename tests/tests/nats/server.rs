//! Servers that cannot be used, and what is asked of those that can.

use bus::clock::Clock;
use bus::contract::{ConsumerSpec, OpenOptions, Scheme, StoreUrl};
use bus::{Endpoint, ErrorKind};
use bus_tests::certificates;
use bus_tests::nats::Nats;
use serde_json::Value;

use crate::store::{LEASE, PREFIX, Store, bodies, command, endpoint, open, open_locks, receive, server};

/// Without JetStream there is no store, and it is said what to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_jetstream_is_refused() {
    let Some(server) = server() else { return };
    // The account of this user has none.
    drop(server);
    let server = Nats::start_with(
        "accounts { plain { users: [{ user: app, password: s3cret }] } }\nno_auth_user: app",
    );
    for refused in
        [open(&server.url(PREFIX)).await.err().unwrap(), open_locks(&server.url(PREFIX)).await.err().unwrap()]
    {
        assert!(format!("{refused:?}").contains("JetStream"), "{refused:?}");
    }
}

/// A wrong password is a matter of the configuration, and is shown nowhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_are_checked_and_never_shown() {
    if server().is_none() {
        return;
    }
    let server = Nats::start_with("authorization { user: app, password: \"s3cr@t\" }");
    let url = |login: &str| format!("nats://{login}127.0.0.1:{}?prefix={PREFIX}", server.port());
    let transport = open(&url("app:s3cr%40t@")).await.unwrap();
    assert!(!transport.guarantees().store.contains("s3cr"), "{:?}", transport.guarantees());
    for login in ["", "app:wr0ng@", "t0ken@"] {
        let refused = open(&url(login)).await.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::Config, "{login}: {refused:?}");
        assert!(!format!("{refused:?}").contains("wr0ng"), "{refused:?}");
    }
}

/// M29: the largest body follows from what the server takes in one piece, which it is asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_body_follows_the_servers_limit() {
    if server().is_none() {
        return;
    }
    let server = Nats::start_with("max_payload: 300000");
    let transport = open(&server.url(PREFIX)).await.unwrap();
    let largest = transport.guarantees().max_body;
    assert!(largest < 300_000 && largest > 150_000, "{largest}");
    for (size, fits) in [(largest - 1, true), (largest, true), (largest + 1, false)] {
        let mut message = command("jobs", "");
        message.envelope.body = vec![7; size].into();
        let sent = transport.sender().send(vec![message]).await.remove(0);
        assert_eq!(sent.map_err(|e| e.kind()).err(), (!fits).then_some(ErrorKind::TooLarge), "{size}");
    }
    let small = Nats::start_with("max_payload: 65536");
    let refused = open(&small.url(PREFIX)).await.err().unwrap();
    assert!(refused.to_string().contains("max_payload"), "{refused}");
}

/// Who only looks makes no store, and finds one that is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_only_looks_makes_nothing() {
    let Some(server) = server() else { return };
    let url = StoreUrl::parse(&server.url(PREFIX)).unwrap();
    let scheme = Scheme::find("nats").unwrap();
    let options = OpenOptions::new(Clock::system()).existing();
    let transport = (scheme.transport.unwrap())(&url, &options).await.err().unwrap();
    let locks = (scheme.locks.unwrap())(&url, &options).await.err().unwrap();
    assert_eq!((transport.kind(), locks.kind()), (ErrorKind::NotFound, ErrorKind::NotFound));
    let streams = server.ask("STREAM.NAMES", &Value::Null).await;
    assert_eq!(streams["total"], 0, "{streams}");
    open(&server.url(PREFIX)).await.unwrap();
    assert!((scheme.transport.unwrap())(&url, &options).await.is_ok());
}

/// Programs that share a server differ in their prefix, and see nothing of each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prefixes_keep_programs_apart() {
    let Some(store) = Store::with(&["jobs"]).await else { return };
    let other = open(&store.server.url("test-2")).await.unwrap();
    let inspect = other.capabilities().inspect.unwrap();
    assert_eq!(inspect.endpoints().await.unwrap(), []);
    other.sender().send(vec![command("jobs", "theirs")]).await.remove(0).unwrap();
    assert_eq!(store.depth("jobs").await.ready, 0);
    assert_eq!(inspect.depth(&Endpoint::parse("jobs").unwrap()).await.unwrap().ready, 1);
}

/// Encrypted by the URL's word, and only if the server's certificate is trusted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_encrypted_server_is_used_if_its_certificate_is_trusted() {
    if server().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    certificates::make(folder.path());
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (key, certificate, authority) = (file("key.pem"), file("cert.pem"), file("ca.pem"));
    let server = Nats::start_with(&format!("tls {{ cert_file: {certificate:?}, key_file: {key:?} }}"));
    let url = server.url(PREFIX);
    for untrusted in [url.clone(), format!("{url}&tls=true")] {
        let error = open(&untrusted).await.err().unwrap();
        assert!(format!("{error:?}").contains("certificate"), "{error:?}");
    }
    assert!(open(&format!("{url}&ca={}", file("missing.pem"))).await.is_err());
    let url = format!("{url}&ca={authority}");
    let transport = open(&url).await.unwrap();
    transport.prepare(&[Endpoint::parse("jobs").unwrap()]).await.unwrap();
    let consumer = transport.consumer(ConsumerSpec::new(endpoint("jobs"), LEASE)).await.unwrap();
    let waiting = tokio::spawn(async move { receive(&consumer, 1).await });
    transport.sender().send(vec![command("jobs", "secret")]).await.remove(0).unwrap();
    assert_eq!(bodies(&waiting.await.unwrap()), ["secret"]);
    let _locks = open_locks(&url).await.unwrap();
    // What was asked to be encrypted never goes out otherwise.
    let plain = Nats::start();
    assert!(open(&format!("{}&tls=true", plain.url(PREFIX))).await.is_err());
}

/// S22: hosts of a fleet that start at once on a server that has nothing yet. One of them makes each stream, and all have it:
/// nats-server 2.9 tells some of those that make one at once that its subjects are somebody else's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_that_start_at_once_on_an_empty_server_all_start() {
    let Some(server) = server() else { return };
    for round in 0..20 {
        let url = server.url(&format!("{PREFIX}{round}"));
        let start = || async {
            let transport = open(&url).await?;
            transport.prepare(&[(*endpoint("jobs")).clone(), (*endpoint("placed/mail")).clone()]).await?;
            open_locks(&url).await?.initialize().await?;
            Ok::<_, bus::Error>(transport)
        };
        for started in futures_util::future::join_all((0..16).map(|_| start())).await {
            started.expect("it starts").close().await;
        }
    }
}
