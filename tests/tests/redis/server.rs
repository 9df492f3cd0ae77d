//! What is asked of the server at start, and what is said when it cannot be used.

use bus::ErrorKind;
use bus::contract::{ConsumerSpec, Durability};
use bus_emulators::free_port;
use bus_tests::certificates;
use bus_tests::redis::{DURABLE, FORGETFUL};

use crate::store::{LEASE, PREFIX, bodies, command, endpoint, open, open_locks, receive, server};

#[tokio::test]
async fn an_acknowledgement_is_worth_what_the_server_says() {
    for (settings, outlives, said) in [
        (DURABLE, Durability::Synced, "appendfsync=always"),
        (FORGETFUL, Durability::ServerMemory, "a restart of the server loses"),
        (&["--appendonly", "yes"], Durability::Written, "appendfsync=everysec"),
        (&["--appendonly", "yes", "--appendfsync", "no"], Durability::Written, "appendfsync=no"),
    ] {
        let Some(server) = server(settings) else { return };
        let transport = open(&server.url(PREFIX)).await.unwrap();
        let guarantees = transport.guarantees();
        assert!(guarantees.acknowledgement.contains(said), "{}", guarantees.acknowledgement);
        assert_eq!(guarantees.durability, outlives, "{said}");
        let locks = open_locks(&server.url(PREFIX)).await.unwrap();
        assert_eq!(locks.guarantees().durability, outlives, "{said}: what a lock that is held outlives");
        assert_eq!(guarantees.store, format!("redis://127.0.0.1:{}/0?prefix=test", server.port()));
    }
}

/// Managed servers forbid it: what is not known is called so, and is no reason not to start.
#[tokio::test]
async fn a_server_that_may_not_be_asked_is_used_all_the_same() {
    let Some(server) = server(DURABLE) else { return };
    let rules =
        ["ACL", "SETUSER", "app", "on", ">s3cret", "~test:*", "&test:*", "+@all", "-@admin", "-@dangerous"];
    let _: String = server.ask(&rules);
    let url = format!("redis://app:s3cret@127.0.0.1:{}/0?prefix=test", server.port());
    let transport = open(&url).await.unwrap();
    let guarantees = transport.guarantees();
    assert!(guarantees.acknowledgement.starts_with("unknown"), "{}", guarantees.acknowledgement);
    assert_eq!(guarantees.durability, Durability::Unknown);
    assert!(!format!("{guarantees:?}").contains("s3cret"));
    let locks = open_locks(&url).await.unwrap();
    assert!(!format!("{:?}", locks.guarantees()).contains("s3cret"));
    assert_eq!(locks.guarantees().durability, Durability::Unknown);
    transport.prepare(&[bus::Endpoint::parse("jobs").unwrap()]).await.unwrap();
    transport.sender().send(vec![command("jobs", "x")]).await.remove(0).unwrap();
    let consumer = transport.consumer(ConsumerSpec::new(endpoint("jobs"), LEASE)).await.unwrap();
    assert_eq!(bodies(&receive(&consumer, 1).await), ["x"]);
}

#[tokio::test]
async fn a_wrong_password_is_told_and_not_shown() {
    let Some(server) = server(&["--requirepass", "right"]) else { return };
    let url = |password: &str| format!("redis://:{password}@127.0.0.1:{}/", server.port());
    let error = open(&url("wr0ng")).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(!error.is_transient());
    assert!(!format!("{error:?}").contains("wr0ng"), "{error:?}");
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
    let none = open(&format!("redis://127.0.0.1:{}/", server.port())).await.err().unwrap();
    assert_eq!(none.kind(), ErrorKind::Config, "{none:?}");
    open(&url("right")).await.unwrap();
}

/// What belongs together may lie in several slots: a settlement and what it sends, a message and its fence.
#[tokio::test]
async fn a_cluster_is_refused_with_the_reason() {
    let Some(server) = server(&["--cluster-enabled", "yes"]) else { return };
    for refused in [
        open(&server.url(PREFIX)).await.err().unwrap(),
        crate::store::open_locks(&server.url(PREFIX)).await.err().unwrap(),
    ] {
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused:?}");
        assert!(refused.to_string().contains("cluster"), "{refused}");
        assert!(!refused.is_transient());
    }
}

#[tokio::test]
async fn a_missing_server_is_told() {
    let Some(server) = server(FORGETFUL) else { return };
    server.kill();
    let error = open(&server.url(PREFIX)).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains(&server.port().to_string()), "{error}");
}

/// A key of somebody else's under our name.
#[tokio::test]
async fn a_key_that_holds_something_else_is_told() {
    let Some(server) = server(FORGETFUL) else { return };
    let transport = open(&server.url(PREFIX)).await.unwrap();
    let _: String = server.ask(&["SET", "test:{q/jobs}:ready", "mine"]);
    let error = transport.sender().send(vec![command("jobs", "x")]).await.remove(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
    assert!(error.to_string().contains("prefix"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_encrypted_server_is_used_if_its_certificate_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    certificates::make(folder.path());
    let (port, file) =
        (free_port().unwrap().to_string(), |name: &str| folder.path().join(name).display().to_string());
    let (key, certificate, authority) = (file("key.pem"), file("cert.pem"), file("ca.pem"));
    let settings = ["--tls-port", &port, "--tls-key-file", &key, "--tls-cert-file", &certificate];
    let Some(_server) =
        server(&[&settings[..], &["--tls-ca-cert-file", &authority, "--tls-auth-clients", "no"]].concat())
    else {
        return;
    };
    let url = format!("rediss://127.0.0.1:{port}/?prefix={PREFIX}");
    let error = open(&url).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(format!("{error:?}").contains("certificate"), "{error:?}");
    let error = open(&format!("{url}&ca={}", file("missing.pem"))).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Config, "{error:?}");

    let url = format!("{url}&ca={authority}");
    let transport = open(&url).await.unwrap();
    assert!(transport.guarantees().store.starts_with("rediss://"));
    transport.prepare(&[bus::Endpoint::parse("jobs").unwrap()]).await.unwrap();
    let consumer = transport.consumer(ConsumerSpec::new(endpoint("jobs"), LEASE)).await.unwrap();
    let waiting = tokio::spawn(async move { receive(&consumer, 1).await });
    transport.sender().send(vec![command("jobs", "secret")]).await.remove(0).unwrap();
    assert_eq!(bodies(&waiting.await.unwrap()), ["secret"]);
    let _locks = open_locks(&url).await.unwrap();
}
