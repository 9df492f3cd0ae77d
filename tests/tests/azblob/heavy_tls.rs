//! The way to the real Azure: encrypted, and only to whom the system's certificates vouch for.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use bus_tests::site::Site;
use bus_tests::skip;
use bus_tests::task::Task;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::bench::bench;
use crate::heavy_hosts::{actor, send};

/// Makes an authority, and a certificate of its for the loopback address, in `folder`.
fn make_certificates(folder: &Path) -> std::io::Result<()> {
    let extensions = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\nbasicConstraints=CA:FALSE\n";
    std::fs::write(folder.join("extensions"), extensions)?;
    for arguments in [
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=authority",
        "req -newkey rsa:2048 -nodes -keyout service.key -out service.csr -subj /CN=127.0.0.1",
        "x509 -req -in service.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out service.pem -days 2 -extfile extensions",
    ] {
        let made = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output()?;
        assert!(made.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&made.stderr));
    }
    Ok(())
}

/// Decrypts what is sent to the port that it answers, and passes it on to `service`, for ever.
async fn terminate_tls(folder: &Path, service: String) -> u16 {
    let certificate = CertificateDer::from_pem_file(folder.join("service.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(folder.join("service.key")).expect("a key");
    // Named, since the clients of several stores bring several providers into this program.
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("the usual versions").with_no_client_auth();
    let config = config.with_single_cert(vec![certificate], key).expect("they fit together");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            let (acceptor, service) = (acceptor.clone(), service.clone());
            tokio::spawn(async move {
                // Whoever does not trust the certificate goes away.
                let (Ok(mut client), Ok(mut service)) =
                    (acceptor.accept(stream).await, TcpStream::connect(service).await)
                else {
                    return;
                };
                let _ = tokio::io::copy_bidirectional(&mut client, &mut service).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn https_works_and_only_with_a_certificate_that_the_system_trusts() {
    let bench = bench!();
    let site = Site::new();
    let folder = site.path("certificates");
    std::fs::create_dir(&folder).expect("a folder");
    if make_certificates(&folder).is_err() {
        return skip::not_run("there is no openssl to make certificates with");
    }
    let service = bench.azurite.blob_endpoint().trim_start_matches("http://");
    let (address, account) = service.split_once('/').expect("host and account");
    let port = terminate_tls(&folder, address.to_owned()).await;
    let endpoint = format!("https://127.0.0.1:{port}/{account}");
    let connection_string = bench.azurite.connection_string_at(&endpoint, bench.azurite.queue_endpoint());

    let mut distrustful = actor(&site, &bench, &connection_string).start();
    assert!(!distrustful.exit().await.success());
    assert!(distrustful.said().contains("invalid peer certificate"), "{}", distrustful.said());

    let authority = folder.join("ca.pem").display().to_string();
    let mut trusting = actor(&site, &bench, &connection_string).env("SSL_CERT_FILE", authority).start();
    send(&site, [Task::new(1)]).await;
    site.begun("single", 1).await;
    trusting.terminate();
    assert!(trusting.exit().await.success());
}

/// A container image without certificates: an error that says so, and no panic. Where no TLS is used none are missed.
#[tokio::test]
async fn a_system_without_certificates_is_told_so() {
    let bench = bench!();
    let site = Site::new();
    let without = |connection_string: &str| {
        let setup = actor(&site, &bench, connection_string);
        setup.env("SSL_CERT_FILE", "/nowhere").env("SSL_CERT_DIR", "/nowhere").start()
    };
    let mut encrypted = without("AccountName=shop;AccountKey=c2VjcmV0");
    assert_eq!(encrypted.exit().await.code(), Some(1));
    assert!(encrypted.said().contains("ca-certificates"), "{}", encrypted.said());

    let plain = without(&bench.azurite.connection_string());
    plain.started().await;
}
