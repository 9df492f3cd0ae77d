//! A store with dead letters in it.

use std::sync::Arc;
use std::time::Duration;

use bus::contract::{
    ConsumerSpec, LockManager, OpenOptions, Outgoing, Readers, Scheme, Settlement, StoreUrl, Transport,
};
use bus::message::Verdict;
use bus::{Endpoint, Envelope, Error, ErrorKind};
use tokio_util::sync::CancellationToken;

/// A store for one test.
pub(crate) struct TestStore {
    url: String,
    transport: Arc<dyn Transport>,
    pub(crate) locks: Arc<dyn LockManager>,
}

impl TestStore {
    pub(crate) async fn open(name: &str) -> Self {
        TestStore::at(&format!("memory://cli-{name}")).await
    }

    pub(crate) async fn at(url: &str) -> Self {
        let (parsed, options) = (StoreUrl::parse(url).unwrap(), OpenOptions::default());
        let scheme = Scheme::find(parsed.scheme()).unwrap();
        let transport = scheme.transport.unwrap()(&parsed, &options).await.unwrap();
        let locks = scheme.locks.unwrap()(&parsed, &options).await.unwrap();
        locks.initialize().await.unwrap();
        TestStore { url: url.to_owned(), transport, locks }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn readers(&self) -> Arc<dyn Readers> {
        self.transport.capabilities().readers.unwrap()
    }

    /// Sends a message to an endpoint and answers with its id.
    pub(crate) async fn send(&self, endpoint: &str, body: &[u8]) -> String {
        self.send_with(endpoint, [("origin", "test")], body).await
    }

    async fn send_with(
        &self,
        endpoint: &str,
        headers: impl IntoIterator<Item = (&str, &str)>,
        body: &[u8],
    ) -> String {
        let endpoint = Endpoint::parse(endpoint).unwrap();
        self.transport.prepare(std::slice::from_ref(&endpoint)).await.unwrap();
        let mut envelope = Envelope::new("Import", body.to_vec(), std::time::SystemTime::now().into());
        envelope.headers = headers.into_iter().collect();
        let id = envelope.id.to_string();
        let sent = self.transport.sender().send(vec![Outgoing::new(endpoint.target(), envelope)]).await;
        sent.into_iter().for_each(|answer| drop(answer.unwrap()));
        id
    }

    /// Sends a message, gives up on it, and answers with its id.
    pub(crate) async fn dead(
        &self,
        endpoint: &str,
        body: &[u8],
        reason: &str,
        error: Option<&'static str>,
    ) -> String {
        let id = self.send(endpoint, body).await;
        self.give_up(endpoint, reason, error).await;
        id
    }

    /// Sends a message with these headers, gives up on it, and answers with its id.
    pub(crate) async fn dead_with(
        &self,
        endpoint: &str,
        headers: impl IntoIterator<Item = (&str, &str)>,
        body: &[u8],
    ) -> String {
        let id = self.send_with(endpoint, headers, body).await;
        self.give_up(endpoint, "failed", None).await;
        id
    }

    async fn give_up(&self, endpoint: &str, reason: &str, error: Option<&'static str>) {
        let endpoint = Arc::new(Endpoint::parse(endpoint).unwrap());
        let consumer =
            self.transport.consumer(ConsumerSpec::new(endpoint, Duration::from_secs(60))).await.unwrap();
        let claimed = consumer.receive(1, &CancellationToken::new()).await.unwrap();
        let error = error.map(|error| Error::new(ErrorKind::Handler, error));
        let verdict = |reason: &str| Verdict::DeadLetter { reason: reason.to_owned(), error: error.clone() };
        let settled =
            claimed.into_iter().map(|claim| Settlement::new(claim.receipt, verdict(reason))).collect();
        consumer.settle(settled).await.into_iter().for_each(|answer| answer.unwrap());
    }

    /// How many are ready and how many are dead.
    pub(crate) async fn depth(&self, endpoint: &str) -> (u64, u64) {
        let inspect = self.transport.capabilities().inspect.unwrap();
        let depth = inspect.depth(&Endpoint::parse(endpoint).unwrap()).await.unwrap();
        (depth.ready, depth.dead)
    }
}
