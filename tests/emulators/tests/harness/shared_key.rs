//! Requests to Azure Storage signed by the account's key, written from Microsoft's description of "Shared Key".

use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bus_emulators::Storage;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::http::{Answer, Asked, send};

/// Sends a signed request without a body to `endpoint`, which ends with the account.
pub(crate) fn send_signed(
    storage: &Storage,
    method: &str,
    endpoint: &str,
    path_and_query: &str,
) -> std::io::Result<Asked> {
    let headers = [("x-ms-date", now()), ("x-ms-version", "2024-11-04".to_owned())];
    let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
    let mut text = format!("{method}\n{}", "\n".repeat(11));
    for (name, value) in &headers {
        text += &format!("{name}:{value}\n");
    }
    let account = storage.account();
    // The account twice: its own name, and the path, which begins with it on an emulator.
    text += &format!("/{account}/{account}{path}");
    let mut parameters: Vec<_> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
    parameters.sort_unstable();
    for (name, value) in parameters {
        text += &format!("\n{name}:{value}");
    }
    let mut mac = Hmac::<Sha256>::new_from_slice(&STANDARD.decode(storage.key()).unwrap()).unwrap();
    mac.update(text.as_bytes());
    let signature = STANDARD.encode(mac.finalize().into_bytes());
    let mut headers = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
    headers.push(("Authorization".to_owned(), format!("SharedKey {account}:{signature}")));
    send(method, &format!("{endpoint}{path_and_query}"), &headers, "")
}

/// [`send_signed`], and the answer.
pub(crate) fn ask_signed(storage: &Storage, method: &str, endpoint: &str, path_and_query: &str) -> Answer {
    send_signed(storage, method, endpoint, path_and_query).unwrap().answer().unwrap()
}

/// Now, as HTTP writes it: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn now() -> String {
    httpdate::fmt_http_date(SystemTime::now())
}
