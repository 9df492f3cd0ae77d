//! The transport: what a host opens.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::config::Config;
use super::consumer::NatsConsumer;
use super::delay::{self, NatsDelay};
use super::error::{error, no_jetstream};
use super::fence::{NatsFencing, Term};
use super::inspect::NatsInspect;
use super::jetstream::Told;
use super::readers::NatsReaders;
use super::send::{self, NatsSender};
use super::server_clock::ServerClock;
use super::streams::Home;
use crate::contract::{
    BoxFuture, Capabilities, Consumer, ConsumerSpec, Guarantees, OpenOptions, Reach, Sender, Transport,
};
use crate::error::{ErrorKind, Result};
use crate::message::Endpoint;
use crate::reconnect::panicked;

/// How long closing waits for delayed messages that are just being moved.
const FAREWELL: Duration = Duration::from_secs(1);

/// What it means when a send has answered. The server cannot be asked what it is set up to do.
const ACKNOWLEDGEMENT: &str = "the server has written the message, or a majority of the servers that keep it, and does \
                               not flush it to its disk at once unless set up so (sync_interval: always): it survives \
                               the server's process; a crash of its machine may take the last two minutes";

pub(super) struct NatsTransport {
    client: Arc<Client>,
    sender: Arc<NatsSender>,
    /// Ends the moving of what is due.
    moving: CancellationToken,
    address: String,
    max_body: usize,
}

/// Connects to a server that has JetStream, and reads the server's time off that stream.
pub(super) async fn connect(config: &Config, options: &OpenOptions, clock_of: Home) -> Result<Arc<Client>> {
    let client = Client::open(config, options.clock.clone(), ServerClock::new(clock_of)).await?;
    let asked: Result<Told<Value>> = client.request("INFO", &Value::Null, client.deadline()).await;
    match asked {
        Ok(Ok(_)) => Ok(client),
        Ok(Err(refusal)) => {
            Err(no_jetstream().with("server", &config.address).caused_by(refusal.into_error()))
        }
        Err(failure) => Err(failure.with("server", &config.address)),
    }
}

impl NatsTransport {
    pub(super) async fn open(config: &Config, options: &OpenOptions) -> Result<Self> {
        let client = connect(config, options, Home::State).await?;
        let max_body = send::max_body(&client)?;
        if !options.create {
            NatsInspect::expect_store(&client).await?;
        }
        for home in [Home::State, Home::Later, Home::Dead] {
            client.furnish(&home, client.deadline()).await?;
        }
        client.note_beginning(client.deadline()).await?;
        tracing::info!(
            server = config.address,
            "NATS acknowledges before its disk has what it acknowledges, unless set up with sync_interval: always"
        );
        // Whoever forgets to close leaves no task behind.
        let moving = client.closed().child_token();
        let (mover, stop) = (Arc::clone(&client), moving.clone());
        client.tasks.spawn(async move {
            while panicked("what moves delayed messages", delay::run(&mover, &stop)).await {}
        });
        let sender = Arc::new(NatsSender::new(Arc::clone(&client), max_body));
        Ok(NatsTransport { client, sender, moving, address: config.shown("://"), max_body })
    }

    async fn open_consumer(&self, spec: ConsumerSpec) -> Result<NatsConsumer> {
        let (client, endpoint) = (&self.client, Arc::clone(&spec.endpoint));
        let home = Home::Endpoint((*endpoint).clone());
        if !client.is_there(&home, client.deadline()).await? {
            return Err(error(
                ErrorKind::NotFound,
                "the queue or subscription is not there: it is prepared first",
            )
            .with("endpoint", endpoint));
        }
        if let Some(term) = Term::of(&spec) {
            term.check(client, &endpoint).await?;
        }
        if let Err(error) = client.forget_gone(&endpoint).await {
            tracing::debug!(%endpoint, %error, "records of messages that are gone are left for later");
        }
        Ok(NatsConsumer::new(Arc::clone(client), self.max_body, spec))
    }
}

impl Transport for NatsTransport {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            delay: Some(Arc::new(NatsDelay(Arc::clone(&self.client)))),
            enqueue: None,
            fencing: Some(Arc::new(NatsFencing(Arc::clone(&self.client)))),
            inspect: Some(Arc::new(NatsInspect(Arc::clone(&self.client)))),
            readers: Some(Arc::new(NatsReaders(Arc::clone(&self.client)))),
            strict_order: true,
            loose_order: false,
            rough_depth: false,
        }
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(&self.address, Reach::Fleet, ACKNOWLEDGEMENT, self.max_body)
    }

    fn prepare<'a>(&'a self, endpoints: &'a [Endpoint]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            for endpoint in endpoints {
                self.client.prepare(endpoint, self.client.deadline()).await?;
            }
            Ok(())
        })
    }

    fn sender(&self) -> Arc<dyn Sender> {
        Arc::<NatsSender>::clone(&self.sender)
    }

    fn consumer(&self, spec: ConsumerSpec) -> BoxFuture<'_, Result<Arc<dyn Consumer>>> {
        Box::pin(async move { Ok(Arc::new(self.open_consumer(spec).await?) as Arc<dyn Consumer>) })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.sender.close().await;
            self.moving.cancel();
            // What it has in its hands is another host's otherwise only after a while.
            self.client.tasks.close();
            let _ = tokio::time::timeout(FAREWELL, self.client.tasks.wait()).await;
            self.client.close().await;
        })
    }
}
