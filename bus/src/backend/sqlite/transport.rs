//! The transport: what a host opens.

use std::sync::Arc;

use super::config::Config;
use super::consumer::SqliteConsumer;
use super::error::error;
use super::fence::{self, SqliteFencing};
use super::inspect::SqliteInspect;
use super::readers::SqliteReaders;
use super::send::{SqliteDelay, SqliteSender};
use super::writer::{Role, Writer};
use crate::clock::Clock;
use crate::contract::{
    BoxFuture, Capabilities, Consumer, ConsumerSpec, Durability, Guarantees, OpenOptions, Reach, Sender,
    Transport,
};
use crate::error::{Error, ErrorKind, Result};
use crate::message::Endpoint;

pub(super) struct SqliteTransport {
    writer: Arc<Writer>,
    clock: Clock,
    durability: Durability,
    max_body: usize,
}

impl SqliteTransport {
    pub(super) async fn open(config: Config, options: &OpenOptions) -> Result<Self> {
        let max_body = config.max_body;
        let writer = Writer::open(config, options.clock.clone(), Role::Messages).await?;
        // By the connection that commits.
        let durability = durability(&writer).await?;
        Ok(SqliteTransport { writer, clock: options.clock.clone(), durability, max_body })
    }
}

impl Transport for SqliteTransport {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            delay: Some(Arc::new(SqliteDelay(Arc::clone(&self.writer)))),
            fencing: Some(Arc::new(SqliteFencing(Arc::clone(&self.writer)))),
            inspect: Some(Arc::new(SqliteInspect(Arc::clone(&self.writer)))),
            readers: Some(Arc::new(SqliteReaders(Arc::clone(&self.writer)))),
            strict_order: true,
            ..Capabilities::default()
        }
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(
            format!("sqlite://{}", self.writer.identity().path().display()),
            Reach::Machine,
            acknowledgement(self.durability),
            self.max_body,
        )
        .durable(self.durability)
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

    fn lost(&self) -> BoxFuture<'_, Error> {
        Box::pin(self.writer.lost())
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.writer.close())
    }
}

/// What a commit outlives at the file's level of `PRAGMA synchronous`, with a write-ahead log.
pub(super) async fn durability(writer: &Writer) -> Result<Durability> {
    let asked =
        writer.read(|tx| tx.statement("PRAGMA synchronous")?.query_row([], |row| row.get::<_, i64>(0)));
    Ok(match asked.await? {
        2 | 3 => Durability::Synced,
        0 | 1 => Durability::Written,
        _ => Durability::Unknown,
    })
}

/// What an answered `send` means.
fn acknowledgement(durability: Durability) -> &'static str {
    match durability {
        Durability::Synced => "the message is on the disk (synchronous=FULL)",
        Durability::Written => {
            "the message survives this process, but a power loss may take the last moments' (synchronous=NORMAL)"
        }
        _ => "the message is in the file, and SQLite does not tell when it is flushed",
    }
}

fn not_prepared(endpoint: &Endpoint) -> Error {
    error(ErrorKind::NotFound, "the queue or subscription is not there: it is prepared first")
        .with("endpoint", endpoint)
}
