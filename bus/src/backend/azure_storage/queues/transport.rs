//! The transport: what a host opens.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::error::error;
use super::config::Config;
use super::consumer::QueueConsumer;
use super::inspect::QueueInspect;
use super::name::dead_letters_of;
use super::readers::QueueReaders;
use super::send::{MAX_BODY, Outbox, QueueDelay, QueueSender, closed};
use super::service::{PATIENCE, Service};
use crate::clock::Clock;
use crate::contract::{
    BoxFuture, Capabilities, Consumer, ConsumerSpec, Durability, Guarantees, OpenOptions, Reach, Sender,
    Transport,
};
use crate::error::{ErrorKind, Result};
use crate::message::Endpoint;
use crate::settings::Order;

/// Messages in Azure's Storage Queues.
///
/// A host makes it from its configuration, `default = "azqueue://…"` under `[transports]`. In code it is given to
/// [`HostBuilder::transport_instance`](crate::host::HostBuilder::transport_instance):
///
/// ```
/// use bus::backend::azure_storage::StorageQueues;
///
/// # fn example() -> bus::Result<()> {
/// let queues = StorageQueues::from_connection_string("UseDevelopmentStorage=true", "bus")?;
/// let host = bus::Host::builder().transport_instance("default", queues);
/// # Ok(()) }
/// ```
///
/// Nothing is connected before the host starts.
pub struct StorageQueues {
    outbox: Arc<Outbox>,
    clock: Clock,
    poll: Duration,
}

impl StorageQueues {
    /// The queues whose names begin with `prefix` (1 to 20 of a-z and 0-9), in the account that a connection string names.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if either cannot be used, or this system has no certificates.
    pub fn from_connection_string(connection_string: &str, prefix: &str) -> Result<Self> {
        StorageQueues::new(Config::of_connection_string(connection_string, prefix)?, Clock::default())
    }

    /// The queues whose names begin with `prefix`, in the account of a shared access signature for queues and blobs:
    /// `https://account.queue.core.windows.net/?sv=…&ss=bq&srt=sco&sp=rwdlacup&sig=…`.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if it is no such address, or this system has no certificates.
    pub fn from_sas_url(url: &str, prefix: &str) -> Result<Self> {
        StorageQueues::new(Config::from_sas_url(url, prefix)?, Clock::default())
    }

    /// The longest pause of a consumer that finds nothing; 5 s unless said otherwise. Each question is a request that
    /// Azure charges for.
    #[must_use]
    pub fn poll_every(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }

    fn new(config: Config, clock: Clock) -> Result<Self> {
        let service = Arc::new(Service::new(&config, clock.clone())?);
        Ok(StorageQueues { outbox: Arc::new(Outbox::new(service)), clock, poll: config.poll })
    }

    pub(in super::super) async fn open(config: Config, options: &OpenOptions) -> Result<Self> {
        let queues = StorageQueues::new(config, options.clock.clone())?;
        if !options.create {
            queues.find().await?;
        }
        Ok(queues)
    }

    fn service(&self) -> &Service {
        &self.outbox.service
    }

    /// Asks whether there are any.
    async fn find(&self) -> Result<()> {
        let service = self.service();
        let listed = service.list(&service.prefix.beginning()).await;
        if listed.map_err(|failure| service.describe(failure))?.is_empty() {
            return Err(error(
                ErrorKind::NotFound,
                "there are no queues whose names begin so: check the prefix and the account's name, or start a host, which makes them",
            )
            .with("queues", service));
        }
        Ok(())
    }

    async fn make(&self, endpoints: &[Endpoint]) -> Result<()> {
        if self.outbox.closed.is_cancelled() {
            return Err(closed());
        }
        let service = self.service();
        // All of them first: none is made if one cannot be.
        let queues: Vec<String> =
            endpoints.iter().map(|endpoint| service.prefix.queue_of(endpoint)).collect::<Result<_>>()?;
        service.bodies.ensure(Instant::now() + PATIENCE).await?;
        for queue in queues {
            for queue in [dead_letters_of(&queue), queue] {
                service.create(&queue).await.map_err(|failure| service.describe(failure))?;
            }
        }
        Ok(())
    }

    fn open_consumer(&self, spec: ConsumerSpec) -> Result<QueueConsumer> {
        if spec.fence.is_some() {
            return Err(error(ErrorKind::Unsupported, "Azure's queues keep no fences"));
        }
        if spec.order == Order::Strict {
            return Err(error(ErrorKind::Unsupported, "Azure's queues keep no strict order"));
        }
        let queue = self.service().prefix.queue_of(&spec.endpoint)?;
        let outbox = Arc::clone(&self.outbox);
        Ok(QueueConsumer::new(outbox, queue, self.clock.clone(), self.poll, spec))
    }
}

impl fmt::Debug for StorageQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorageQueues")
            .field("queues", &self.service().to_string())
            .field("poll", &self.poll)
            .finish()
    }
}

impl Transport for StorageQueues {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            delay: Some(Arc::new(QueueDelay(Arc::clone(&self.outbox)))),
            inspect: Some(Arc::new(QueueInspect(Arc::clone(&self.outbox)))),
            readers: Some(Arc::new(QueueReaders {
                outbox: Arc::clone(&self.outbox),
                clock: self.clock.clone(),
            })),
            loose_order: true,
            rough_depth: true,
            ..Capabilities::default()
        }
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees::new(
            format!("azqueue:{}", self.service()),
            Reach::Fleet,
            "the message is in the queue, on as many disks as the account's redundancy has in its first region",
            MAX_BODY,
        )
        .polled(Some(self.poll))
        .durable(Durability::Replicated)
    }

    fn prepare<'a>(&'a self, endpoints: &'a [Endpoint]) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.make(endpoints))
    }

    fn sender(&self) -> Arc<dyn Sender> {
        Arc::new(QueueSender(Arc::clone(&self.outbox)))
    }

    fn consumer(&self, spec: ConsumerSpec) -> BoxFuture<'_, Result<Arc<dyn Consumer>>> {
        Box::pin(async move { Ok(Arc::new(self.open_consumer(spec)?) as Arc<dyn Consumer>) })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.outbox.close())
    }
}
