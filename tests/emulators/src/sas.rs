//! Shared access signatures for Azure's storage, as its portal makes them.

use azure_core::credentials::Secret;
use azure_core::hmac::hmac_sha256;

/// The parameters of an account's signature for blobs, containers included, with these permissions (`rcwl`, say).
///
/// # Panics
/// If the key is no Base64.
pub fn of_account(account: &str, key: &str, permissions: &str) -> String {
    of_services(account, key, "b", permissions)
}

/// The same for services (`b`: blobs, `q`: queues), made here after Azure's description ("Create an account SAS"), not by
/// `bus`.
///
/// # Panics
/// If the key is no Base64.
pub fn of_services(account: &str, key: &str, services: &str, permissions: &str) -> String {
    const VERSION: &str = "2021-12-02";
    const EXPIRY: &str = "2099-01-01T00:00:00Z";
    let signed =
        format!("{account}\n{permissions}\n{services}\nsco\n\n{EXPIRY}\n\nhttps,http\n{VERSION}\n\n");
    let signature = hmac_sha256(&signed, &Secret::new(key.to_owned()))
        .unwrap_or_else(|error| panic!("no signature: {error}"));
    let encoded = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    format!(
        "sv={VERSION}&ss={services}&srt=sco&sp={permissions}&se={}&spr=https%2Chttp&sig={encoded}",
        EXPIRY.replace(':', "%3A")
    )
}
