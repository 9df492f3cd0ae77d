//! The transport: what a host opens.

use std::sync::Arc;

use super::config::{Config, Synchronous};
use super::consumer::SqliteConsumer;
use super::error::error;
use super::fence::{self, SqliteFencing};
use super::inspect::SqliteInspect;
use super::send::{SqliteDelay, SqliteSender};
use super::writer::Writer;
use crate::clock::Clock;
use crate::contract::{
    BoxFuture, Capabilities, Consumer, ConsumerSpec, Guarantees, OpenOptions, Reach, Sender, Transport,
};
use crate::error::{ErrorKind, Result};
use crate::message::Endpoint;

pub(super) struct SqliteTransport {
    writer: Arc<Writer>,
    clock: Clock,
    synchronous: Synchronous,
    max_body: usize,
}

impl SqliteTransport {
    pub(super) async fn open(config: Config, options: &OpenOptions) -> Result<Self> {
        let (synchronous, max_body) = (config.synchronous, config.max_body);
        let writer = Writer::open(config, options.clock.clone(), "bus-sqlite").await?;
        Ok(SqliteTransport { writer, clock: options.clock.clone(), synchronous, max_body })
    }
}

impl Transport for SqliteTransport {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            delay: Some(Arc::new(SqliteDelay(Arc::clone(&self.writer)))),
            fencing: Some(Arc::new(SqliteFencing(Arc::clone(&self.writer)))),
            inspect: Some(Arc::new(SqliteInspect(Arc::clone(&self.writer)))),
            strict_order: true,
        }
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(
            format!("sqlite://{}", self.writer.identity().path().display()),
            Reach::Machine,
            self.synchronous.acknowledgement(),
            self.max_body,
        )
    }

    fn prepare<'a>(&'a self, endpoints: &'a [Endpoint]) -> BoxFuture<'a, Result<()>> {
        let endpoints = endpoints.to_vec();
        Box::pin(self.writer.write(move |tx| {
            for endpoint in &endpoints {
                tx.ensure_endpoint(endpoint)?;
            }
            Ok(())
        }))
    }

    fn sender(&self) -> Arc<dyn Sender> {
        Arc::new(SqliteSender { writer: Arc::clone(&self.writer), max_body: self.max_body })
    }

    fn consumer(&self, spec: ConsumerSpec) -> BoxFuture<'_, Result<Arc<dyn Consumer>>> {
        Box::pin(async move {
            let (endpoint, fence) = (Arc::clone(&spec.endpoint), spec.fence);
            let found = self.writer.read(move |tx| {
                let Some(id) = tx.find_endpoint(&endpoint)? else { return Ok(Err(not_prepared(&endpoint))) };
                match fence {
                    Some(fence) => Ok(fence::check(tx, id, fence)?.map(|()| id)),
                    None => Ok(Ok(id)),
                }
            });
            let endpoint = found.await??;
            let (writer, clock) = (Arc::clone(&self.writer), self.clock.clone());
            let consumer = SqliteConsumer::new(writer, clock, spec, endpoint, self.max_body);
            Ok(Arc::new(consumer) as Arc<dyn Consumer>)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.writer.close())
    }
}

fn not_prepared(endpoint: &Endpoint) -> crate::error::Error {
    error(ErrorKind::NotFound, "the queue or subscription is not there: it is prepared first")
        .with("endpoint", endpoint)
}
