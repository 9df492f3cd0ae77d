//! Azure's REST interface as it is: what others do to a lock's blob. Shares no code with `bus`.

use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, Method};

/// The blobs of a container, by a shared access signature.
#[derive(Clone)]
pub(crate) struct Raw {
    client: Client,
    container: String,
    sas: String,
}

/// What was answered.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    /// Azure's code, where it is an error.
    pub(crate) code: String,
    headers: HeaderMap,
}

impl Answered {
    /// A header's value; empty if there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// A value of the blob's metadata.
    pub(crate) fn metadata(&self, name: &str) -> &str {
        self.header(&format!("x-ms-meta-{name}"))
    }

    /// Status and code, for comparison.
    pub(crate) fn outcome(&self) -> (u16, &str) {
        (self.status, &self.code)
    }
}

impl Raw {
    pub(crate) fn new(container: String, sas: String) -> Raw {
        let client = Client::builder().no_proxy().tls_certs_only([]).build().expect("a client");
        Raw { client, container, sas }
    }

    async fn ask(&self, method: Method, blob: &str, parameters: &str, headers: &[(&str, &str)]) -> Answered {
        let url = format!("{}{blob}?{}{parameters}", self.container, self.sas);
        let mut request = self
            .client
            .request(method, url)
            .header("x-ms-version", "2021-12-02")
            .header("content-length", "0");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.expect("Azurite answers");
        let code =
            answer.headers().get("x-ms-error-code").and_then(|code| code.to_str().ok()).unwrap_or_default();
        Answered {
            status: answer.status().as_u16(),
            code: code.to_owned(),
            headers: answer.headers().clone(),
        }
    }

    async fn lease(&self, blob: &str, action: &str, headers: &[(&str, &str)]) -> Answered {
        let headers = [&[("x-ms-lease-action", action)], headers].concat();
        self.ask(Method::PUT, &format!("/{blob}"), "&comp=lease", &headers).await
    }

    pub(crate) async fn acquire(&self, blob: &str, seconds: u64, proposed: &str) -> Answered {
        let seconds = seconds.to_string();
        self.lease(
            blob,
            "acquire",
            &[("x-ms-lease-duration", &seconds), ("x-ms-proposed-lease-id", proposed)],
        )
        .await
    }

    pub(crate) async fn renew(&self, blob: &str, lease: &str) -> Answered {
        self.lease(blob, "renew", &[("x-ms-lease-id", lease)]).await
    }

    pub(crate) async fn release(&self, blob: &str, lease: &str) -> Answered {
        self.lease(blob, "release", &[("x-ms-lease-id", lease)]).await
    }

    /// Breaks the lease after so long.
    pub(crate) async fn break_lease(&self, blob: &str, period: Duration) -> Answered {
        self.lease(blob, "break", &[("x-ms-lease-break-period", &period.as_secs().to_string())]).await
    }

    /// Replaces the metadata, under a lease or without one.
    pub(crate) async fn write(&self, blob: &str, metadata: &[(&str, &str)], lease: Option<&str>) -> Answered {
        let named: Vec<(String, &str)> =
            metadata.iter().map(|(name, value)| (format!("x-ms-meta-{name}"), *value)).collect();
        let mut headers: Vec<(&str, &str)> =
            named.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        headers.extend(lease.map(|lease| ("x-ms-lease-id", lease)));
        self.ask(Method::PUT, &format!("/{blob}"), "&comp=metadata", &headers).await
    }

    /// Reads properties and metadata.
    pub(crate) async fn read(&self, blob: &str) -> Answered {
        self.ask(Method::HEAD, &format!("/{blob}"), "", &[]).await
    }

    pub(crate) async fn create(&self, blob: &str) -> Answered {
        self.ask(
            Method::PUT,
            &format!("/{blob}"),
            "",
            &[("x-ms-blob-type", "BlockBlob"), ("if-none-match", "*")],
        )
        .await
    }

    pub(crate) async fn delete(&self, blob: &str) -> Answered {
        self.ask(Method::DELETE, &format!("/{blob}"), "", &[]).await
    }

    pub(crate) async fn create_container(&self) -> Answered {
        self.ask(Method::PUT, "", "&restype=container", &[]).await
    }

    pub(crate) async fn delete_container(&self) -> Answered {
        self.ask(Method::DELETE, "", "&restype=container", &[]).await
    }
}
