//! The transport: what a host opens.

use std::sync::Arc;
use std::time::Duration;

use super::config::Config;
use super::consumer::PostgresConsumer;
use super::enqueue::PostgresEnqueue;
use super::error::{Failure, error};
use super::fence::{PostgresFencing, Term};
use super::inspect::PostgresInspect;
use super::pool::within;
use super::readers::PostgresReaders;
use super::send::{PostgresDelay, PostgresSender};
use super::store::Store;
use crate::clock::Clock;
use crate::contract::{
    BoxFuture, Capabilities, Consumer, ConsumerSpec, Guarantees, OpenOptions, Reach, Sender, Transport,
};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Endpoint;

/// How long `close` waits for sends that are under way.
const LAST_SENDS: Duration = Duration::from_millis(700);

pub(super) struct PostgresTransport {
    store: Arc<Store>,
    sender: Arc<PostgresSender>,
    clock: Clock,
}

impl PostgresTransport {
    pub(super) async fn open(config: Config, options: &OpenOptions) -> Result<Self> {
        let store = Store::open(config, options.create).await?;
        let sender = Arc::new(PostgresSender::start(&store));
        Ok(PostgresTransport { store, sender, clock: options.clock.clone() })
    }

    async fn check_term(&self, spec: &ConsumerSpec) -> Result<()> {
        let Some(fence) = spec.fence else { return Ok(()) };
        let term = Term { fence, lock_lease: spec.lock_lease.unwrap_or(spec.lease) };
        let mut session = self.store.relaxed.borrow().await?;
        let checked = within(self.store.config().deadline, term.check(&mut session, &spec.endpoint)).await;
        session.end(checked).map_err(Failure::of_repeatable)
    }
}

impl Transport for PostgresTransport {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            delay: Some(Arc::new(PostgresDelay(Arc::clone(&self.store)))),
            enqueue: Some(Arc::new(PostgresEnqueue(Arc::clone(&self.store)))),
            fencing: Some(Arc::new(PostgresFencing(Arc::clone(&self.store)))),
            inspect: Some(Arc::new(PostgresInspect(Arc::clone(&self.store)))),
            readers: Some(Arc::new(PostgresReaders(Arc::clone(&self.store)))),
            strict_order: true,
            ..Capabilities::default()
        }
    }

    fn guarantees(&self) -> Guarantees {
        let config = self.store.config();
        Guarantees::new(
            format!("postgres://{}, schema {}", config.place(), config.schema.as_str()),
            Reach::Fleet,
            self.store.acknowledgement.clone(),
            config.max_body,
        )
        .durable(self.store.outlives)
        .polled(self.store.polled)
    }

    fn prepare<'a>(&'a self, endpoints: &'a [Endpoint]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.store.ensure_endpoints(endpoints).await.map_err(Failure::of_repeatable) })
    }

    fn sender(&self) -> Arc<dyn Sender> {
        Arc::clone(&self.sender) as Arc<dyn Sender>
    }

    fn consumer(&self, spec: ConsumerSpec) -> BoxFuture<'_, Result<Arc<dyn Consumer>>> {
        Box::pin(async move {
            let found = self.store.find_endpoint(&spec.endpoint).await.map_err(Failure::of_repeatable)?;
            let endpoint = found.ok_or_else(|| not_prepared(&spec.endpoint))?;
            self.check_term(&spec).await?;
            let consumer = PostgresConsumer::new(Arc::clone(&self.store), self.clock.clone(), spec, endpoint);
            Ok(Arc::new(consumer) as Arc<dyn Consumer>)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            // What is under way may wait for a server that does not answer.
            let _ = tokio::time::timeout(LAST_SENDS, self.sender.close()).await;
            self.store.close().await;
        })
    }
}

fn not_prepared(endpoint: &Endpoint) -> Error {
    error(ErrorKind::NotFound, "the queue or subscription is not there: it is prepared first")
        .with("endpoint", endpoint)
}
