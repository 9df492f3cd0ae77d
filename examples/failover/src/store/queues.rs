//! The queues in Azure Storage, read by their REST interface.

use std::ops::ControlFlow;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bus_emulators::sas;
use reqwest::Client;
use serde::Deserialize;
use tokio::runtime::{Builder, Runtime};

use super::Store;
use crate::place::path_of;

/// What the names of the queues begin with, unless the URL says otherwise.
const PREFIX: &str = "bus";
const VERSION: &str = "2021-12-02";
/// As many as can be looked at in one go.
const PAGE: &str = "&peekonly=true&numofmessages=32";
const MESSAGES: &str = "/messages";

/// A reader of the queue and its dead letters.
#[derive(Debug)]
pub(super) struct Queues {
    runtime: Runtime,
    client: Client,
    account: Account,
    queue: String,
}

/// Where the queues are, and what lets us in.
#[derive(Debug, PartialEq, Eq)]
struct Account {
    endpoint: String,
    signature: String,
}

impl Account {
    fn of(connection_string: &str) -> Result<Self> {
        let part = |name: &str| {
            connection_string.split(';').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
        };
        let name = part("AccountName");
        let endpoint = match (part("QueueEndpoint"), name) {
            (Some(endpoint), _) => endpoint.trim_end_matches('/').to_owned(),
            (None, Some(name)) => {
                let suffix = part("EndpointSuffix").unwrap_or("core.windows.net");
                let protocol = part("DefaultEndpointsProtocol").unwrap_or("https");
                format!("{protocol}://{name}.queue.{suffix}")
            }
            (None, None) => bail!("the connection string has neither QueueEndpoint nor AccountName"),
        };
        let signature = match (part("SharedAccessSignature"), name, part("AccountKey")) {
            (Some(signature), ..) => signature.to_owned(),
            (None, Some(name), Some(key)) => sas::of_services(name, key, "q", "r"),
            _ => bail!("the connection string has neither SharedAccessSignature nor AccountKey"),
        };
        Ok(Self { endpoint, signature })
    }
}

/// What is in a message's first line, as far as it matters here.
#[derive(Deserialize)]
struct Line {
    id: String,
}

impl Queues {
    pub(super) fn at(url: &str, connection_string: &str) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let prefix = path_of(url).display().to_string();
        let prefix = if prefix.is_empty() { PREFIX } else { &prefix };
        let queue = format!("{prefix}-q-failover");
        Ok(Self { runtime, client: Client::new(), account: Account::of(connection_string)?, queue })
    }

    /// The ids of those that can be seen; a word for each of those that cannot, because they are claimed or delayed.
    fn ids(&self, queue: &str) -> Result<Vec<String>> {
        self.runtime.block_on(async {
            let ControlFlow::Continue((count, _)) = self.ask(queue, "", "&comp=metadata").await? else {
                return Ok(Vec::new());
            };
            if count == 0 {
                return Ok(Vec::new());
            }
            let ControlFlow::Continue((_, page)) = self.ask(queue, MESSAGES, PAGE).await? else {
                return Ok(Vec::new());
            };
            let mut ids = texts(&page).map(id_of).collect::<Result<Vec<_>>>()?;
            ids.extend((ids.len()..count).map(|number| format!("out of sight {number}")));
            Ok(ids)
        })
    }

    /// What a queue has, and what it answers; a break where there is no such queue.
    async fn ask(
        &self,
        queue: &str,
        path: &str,
        parameters: &str,
    ) -> Result<ControlFlow<(), (usize, String)>> {
        let Account { endpoint, signature } = &self.account;
        let url = format!("{endpoint}/{queue}{path}?{signature}{parameters}");
        // The URL is not shown: it has the signature in it.
        let request = self.client.get(url).header("x-ms-version", VERSION).send().await;
        let answer = request.map_err(reqwest::Error::without_url).context("cannot ask the queue service")?;
        if answer.status() == reqwest::StatusCode::NOT_FOUND {
            return Ok(ControlFlow::Break(()));
        }
        let answer = answer.error_for_status().map_err(reqwest::Error::without_url)?;
        let count = answer.headers().get("x-ms-approximate-messages-count");
        let count = count.and_then(|count| count.to_str().ok()?.parse().ok()).unwrap_or(0);
        Ok(ControlFlow::Continue((count, answer.text().await?)))
    }
}

fn texts(page: &str) -> impl Iterator<Item = &str> {
    let parts = page.split("<MessageText>").skip(1);
    parts.filter_map(|part| Some(part.split_once("</MessageText>")?.0))
}

fn id_of(text: &str) -> Result<String> {
    let bytes = BASE64_STANDARD.decode(text)?;
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Line { id } = serde_json::from_slice(line).context("a message begins with no line of JSON")?;
    Ok(id)
}

impl Store for Queues {
    fn left(&self) -> Result<Vec<String>> {
        self.ids(&self.queue)
    }

    fn dead(&self) -> Result<Vec<String>> {
        self.ids(&format!("{}-dl", self.queue))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_read_from_its_connection_string() {
        let account = |text: &str| Account::of(text).unwrap();
        let sas = account("QueueEndpoint=http://127.0.0.1:1/dev/;SharedAccessSignature=sv=1&sig=x");
        assert_eq!(sas.endpoint, "http://127.0.0.1:1/dev");
        assert_eq!(sas.signature, "sv=1&sig=x");
        let key = account("DefaultEndpointsProtocol=https;AccountName=shop;AccountKey=c2VjcmV0");
        assert_eq!(key.endpoint, "https://shop.queue.core.windows.net");
        assert!(key.signature.contains("ss=q") && !key.signature.contains("c2VjcmV0"));
        assert!(Account::of("AccountName=shop").is_err());
    }

    #[test]
    fn a_message_has_its_id_in_its_first_line() {
        let text = BASE64_STANDARD.encode(b"{\"v\":1,\"id\":\"7\"}\nwhatever \xff");
        let page = format!("<a><MessageText>{text}</MessageText></a>");
        assert_eq!(texts(&page).map(|text| id_of(text).unwrap()).collect::<Vec<_>>(), ["7"]);
    }
}
