//! Signs requests with an account's key.
//!
//! The official client takes tokens and shared access signatures only. This is a policy of its pipeline, after Azure's
//! description of the scheme ("Authorize with Shared Key"); it signs each try of a request anew, since the signature
//! covers the date.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use azure_core::credentials::Secret;
use azure_core::hmac::hmac_sha256;
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{Context, Request};
use azure_core::time::{OffsetDateTime, to_rfc7231};

/// The headers whose values are signed without their names, in the order of the scheme. The date is not among them:
/// it is signed as `x-ms-date`.
const NAMELESS: [&str; 11] = [
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];

/// The policy: belongs after the retries, so that no try goes with an old signature.
#[derive(Debug)]
pub(super) struct SharedKey {
    account: String,
    key: Secret,
}

impl SharedKey {
    pub(super) fn new(account: &str, key: &Secret) -> Self {
        SharedKey { account: account.to_owned(), key: key.clone() }
    }

    fn sign(&self, request: &mut Request, now: OffsetDateTime) -> azure_core::Result<()> {
        request.insert_header("x-ms-date", to_rfc7231(&now));
        let signature = hmac_sha256(&to_be_signed(&self.account, request), &self.key)?;
        request.insert_header("authorization", format!("SharedKey {}:{signature}", self.account));
        Ok(())
    }
}

#[allow(elided_lifetimes_in_paths, reason = "the trait is declared so, and async_trait tells the two apart")]
#[async_trait]
impl Policy for SharedKey {
    async fn send(&self, context: &Context, request: &mut Request, next: &[Arc<dyn Policy>]) -> PolicyResult {
        self.sign(request, OffsetDateTime::now_utc())?;
        match next.split_first() {
            Some((following, rest)) => following.send(context, request, rest).await,
            None => Err(azure_core::Error::with_message(
                azure_core::error::ErrorKind::Other,
                "the signing policy is the last one, and nothing sends the request",
            )),
        }
    }
}

/// What the signature is about: method, headers, address and its parameters.
fn to_be_signed(account: &str, request: &Request) -> String {
    let headers: BTreeMap<&str, &str> =
        request.headers().iter().map(|(name, value)| (name.as_str(), value.as_str().trim())).collect();
    let mut text = request.method().as_str().to_owned();
    for name in NAMELESS {
        text.push('\n');
        match name {
            // Set by what sends the request, and empty if there is no body.
            "content-length" => text += &length(request),
            "date" => {}
            name => text += headers.get(name).copied().unwrap_or_default(),
        }
    }
    for (name, value) in headers.iter().filter(|(name, _)| name.starts_with("x-ms-")) {
        text += &format!("\n{name}:{value}");
    }
    text += &format!("\n/{account}{}", request.url().path());
    let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in request.url().query_pairs() {
        parameters.entry(name.to_lowercase()).or_default().push(value.into_owned());
    }
    for (name, mut values) in parameters {
        values.sort();
        text += &format!("\n{name}:{}", values.join(","));
    }
    text
}

fn length(request: &Request) -> String {
    match request.body().len() {
        None | Some(0) => String::new(),
        Some(length) => length.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azure_core::http::{Method, Url};

    fn request(method: Method, url: &str, headers: &[(&'static str, &'static str)]) -> Request {
        let mut request = Request::new(Url::parse(url).unwrap(), method);
        for (name, value) in headers {
            request.insert_header(*name, *value);
        }
        request
    }

    /// The example of Azure's description, but for its date and version headers.
    #[test]
    fn what_is_signed_is_as_azure_describes_it() {
        let listing = request(
            Method::Get,
            "https://myaccount.blob.core.windows.net/mycontainer?restype=container&comp=metadata&timeout=20",
            &[("x-ms-version", "2015-02-21"), ("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT")],
        );
        assert_eq!(
            to_be_signed("myaccount", &listing),
            "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n/myaccount/mycontainer\ncomp:metadata\nrestype:container\ntimeout:20"
        );
    }

    #[test]
    fn conditions_body_and_repeated_parameters_are_signed() {
        let mut put = request(
            Method::Put,
            "http://127.0.0.1:10000/dev/locks/a%20b?include=b&include=a&Comp=lease",
            &[("if-match", "\"0x1\""), ("content-type", "text/plain"), ("x-ms-lease-id", "1")],
        );
        put.set_body("twelve bytes");
        assert_eq!(
            to_be_signed("dev", &put),
            "PUT\n\n\n12\n\ntext/plain\n\n\n\"0x1\"\n\n\n\nx-ms-lease-id:1\n/dev/dev/locks/a%20b\ncomp:lease\ninclude:a,b"
        );
    }

    #[test]
    fn each_try_has_a_date_and_a_signature_of_its_own() {
        let policy = SharedKey::new("shop", &Secret::new("c2VjcmV0LXNlY3JldA=="));
        let mut request = request(Method::Put, "https://shop.blob.core.windows.net/locks", &[]);
        let mut signatures = Vec::new();
        for second in [0, 1] {
            policy
                .sign(&mut request, OffsetDateTime::UNIX_EPOCH + azure_core::time::Duration::seconds(second))
                .unwrap();
            signatures.push(request.headers().get_str(&"authorization".into()).unwrap().to_owned());
        }
        assert!(
            signatures[0].starts_with("SharedKey shop:") && signatures[0] != signatures[1],
            "{signatures:?}"
        );
        assert!(!format!("{policy:?}").contains("c2Vjc"), "{policy:?}");
    }
}
