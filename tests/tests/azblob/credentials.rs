//! Who may, who may not, and that nobody gets to see by what right.

use std::io::Write;
use std::sync::Arc;

use bus::ErrorKind;
use bus::backend::azure_storage::BlobLocks;
use bus::contract::{Ended, LockManager, Owner, Renewal};
use bus_emulators::Fault;
use bus_emulators::sas;
use parking_lot::Mutex;
use tracing_subscriber::layer::SubscriberExt;

use crate::bench::{Bench, LEASE, bench, lease_requests};

fn sas_url(bench: &Bench, sas: &str) -> String {
    format!("{}/{}?{sas}", bench.azurite.blob_endpoint(), bench.container)
}

fn by_sas(bench: &Bench, permissions: &str) -> Arc<dyn LockManager> {
    let sas = sas::of_account(bench.azurite.account(), bench.azurite.key(), permissions);
    Arc::new(BlobLocks::from_sas_url(&sas_url(bench, &sas)).unwrap())
}

/// The two ways to one container are the same locks, by the same name: a fence row does not change with the credentials.
#[tokio::test]
async fn an_accounts_key_and_a_sas_lead_to_the_same_locks() {
    let bench = bench!();
    let (by_key, by_sas) = (bench.host(), by_sas(&bench, "rcwl"));
    by_sas.initialize().await.unwrap();
    let lease = bench.take(&by_sas).await;
    assert!(bench.try_take(&by_key).await.is_none());
    assert_eq!(by_key.guarantees().authority, by_sas.guarantees().authority);
    assert_eq!(by_key.inspect(&bench.id).await.unwrap().unwrap().owner, lease.lease_id());
    assert_eq!(by_sas.list("queue/").await.unwrap().len(), 1);
}

/// What the documentation asks for is enough, step by step, in a container that is there.
#[tokio::test]
async fn the_documented_permissions_are_enough() {
    let bench = bench!();
    bench.host().initialize().await.unwrap();
    let host = by_sas(&bench, "rcwl");
    host.initialize().await.unwrap();
    let lease = bench.take(&host).await;
    lease.note(b"note".to_vec()).await.unwrap();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
    lease.release(Ended::Clean).await.unwrap();
    let lease = bench.take(&host).await;
    lease.release(Ended::Cut("cut".to_owned())).await.unwrap();
    host.give_up(&bench.id, lease.lease_id()).await.unwrap();
    assert_eq!(host.list("").await.unwrap().len(), 1);
}

/// A start ends with what to look at; nothing is tried again.
#[tokio::test]
async fn a_wrong_key_is_refused_at_start_and_says_what_to_check() {
    let bench = bench!();
    let proxy = bench.proxy();
    let wrong = bench.connection_string_at(&proxy).replace(bench.azurite.key(), "d3Jvbmc=");
    let host = bench.host_with(&wrong);
    let error = host.initialize().await.unwrap_err();
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Config, false), "{error}");
    let told = format!("{error:?}");
    for part in ["AccountKey", "BUS_AZURE_CONNECTION_STRING", "clock", "status: 403", &bench.container] {
        assert!(told.contains(part), "no {part} in: {told}");
    }
    assert!(!told.contains("d3Jvbmc"), "{told}");
    assert_eq!(proxy.seen(&bus_emulators::Pattern::any()).len(), 1);
}

#[tokio::test]
async fn a_sas_that_permits_too_little_or_is_forged_says_what_to_check() {
    let bench = bench!();
    bench.host().initialize().await.unwrap();
    let told = |error: &bus::Error| {
        assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Config, false), "{error}");
        error.to_string()
    };
    let reader = by_sas(&bench, "r");
    reader.initialize().await.expect("a reader may look whether it is there");
    let error = reader.try_lock(&bench.id, LEASE, Owner::fresh()).await.map(|_| ()).unwrap_err();
    assert!(told(&error).contains("rcwl"), "{error}");

    let sas = sas::of_account(bench.azurite.account(), "d3Jvbmc=", "rcwl");
    let forged = BlobLocks::from_sas_url(&sas_url(&bench, &sas)).unwrap();
    let error = forged.initialize().await.unwrap_err();
    assert!(told(&error).contains("SAS") && told(&error).contains("sig"), "{error}");
}

#[tokio::test]
async fn whoever_is_not_there_is_unavailable() {
    let bench = bench!();
    // A port on which nobody listens: it was somebody's a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody =
        bench.azurite.connection_string_at(&format!("http://{free}/devstoreaccount1"), "http://127.0.0.1:1");
    let error = bench.host_with(&nobody).initialize().await.unwrap_err();
    assert_eq!((error.kind(), error.is_transient()), (ErrorKind::Unavailable, true), "{error}");
    let told = format!("{error:?}");
    assert!(told.contains(&free.to_string()) && told.contains("refused"), "{told}");
}

/// Everything that is logged while a lock is taken, kept, lost and refused, by this crate or by those below it.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Neither key nor signature, at whatever level, whatever goes wrong; and contention is nothing to be logged.
#[test]
fn no_secret_is_logged_and_contention_is_no_warning() {
    let bench = bench!();
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::registry()
        .with(tracing_subscriber::fmt::layer().with_ansi(false).with_writer(move || writer.clone()))
        .with(tracing_subscriber::filter::LevelFilter::TRACE);
    let signature = sas::of_account(bench.azurite.account(), bench.azurite.key(), "rcwl");
    // One thread, so that the subscriber of this test hears all of it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let errors = tracing::subscriber::with_default(subscriber, || runtime.block_on(use_everything(&bench)));
    let logged = String::from_utf8_lossy(&log.0.lock()).into_owned();
    assert!(logged.contains(&bench.container), "nothing was logged, so that nothing was proved");
    let (_, signature) = signature.split_once("&sig=").unwrap();
    for secret in [signature, bench.azurite.key(), "SharedKey devstoreaccount1:"] {
        assert!(
            !logged.contains(secret),
            "{}",
            logged.lines().find(|line| line.contains(secret)).unwrap_or_default()
        );
        assert!(!errors.contains(secret), "{errors}");
    }
    let warnings: Vec<&str> =
        logged.lines().filter(|line| line.contains(" WARN ") || line.contains(" ERROR ")).collect();
    assert!(warnings.is_empty(), "{warnings:#?}");
}

/// Answers all errors there were.
async fn use_everything(bench: &Bench) -> String {
    let mut errors = String::new();
    let proxy = bench.proxy();
    let at_proxy = sas_url(bench, &sas::of_account(bench.azurite.account(), bench.azurite.key(), "rcwl"))
        .replace(bench.azurite.blob_endpoint(), proxy.url());
    let by_sas: Arc<dyn LockManager> = Arc::new(BlobLocks::from_sas_url(&at_proxy).unwrap());
    for host in [by_sas, bench.host_at(&proxy)] {
        host.initialize().await.unwrap();
        let lease = bench.take(&host).await;
        assert!(bench.try_take(&host).await.is_none(), "contention");
        for fault in [Fault::DropAnswer, Fault::DropRequest, Fault::server_busy(std::time::Duration::ZERO)] {
            let injected = proxy.inject(lease_requests("renew"), fault);
            errors += &format!("{:?}\n", lease.renew().await.unwrap_err());
            injected.remove();
        }
        lease.release(Ended::Clean).await.unwrap();
        errors += &format!("{host:?}", host = host.guarantees());
    }
    let gone = proxy.url().to_owned();
    drop(proxy);
    let nobody = BlobLocks::from_sas_url(&at_proxy).unwrap();
    let error = nobody.initialize().await.unwrap_err();
    assert!(format!("{error:?}").contains(gone.trim_start_matches("http://")), "{error:?}");
    errors + &format!("{error:?} {nobody:?}")
}
