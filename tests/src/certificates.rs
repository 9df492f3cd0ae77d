//! Certificates for encrypted servers of a test's own.

use std::path::Path;
use std::process::Command;

/// An authority of the test's own, `ca.pem`, and what it has signed for this machine: `cert.pem` with `key.pem`.
///
/// # Panics
/// If `openssl` cannot be run.
pub fn make(folder: &Path) {
    let openssl = |arguments: &str| {
        let made = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output();
        let made = made.expect("openssl can be run");
        assert!(made.status.success(), "{arguments}: {}", String::from_utf8_lossy(&made.stderr));
    };
    std::fs::write(folder.join("names"), "subjectAltName=IP:127.0.0.1").expect("a file can be written");
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!("req -x509 {key} -days 2 -subj /CN=authority -keyout ca.key -out ca.pem"));
    openssl(&format!("req -new {key} -subj /CN=server -keyout key.pem -out server.csr"));
    openssl(
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out cert.pem",
    );
}
