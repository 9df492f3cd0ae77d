//! Transports without processors, for programs that only send.

use std::fmt;
use std::sync::Arc;

use super::builder::HostBuilder;
use super::opening;
use super::stores::Stores;
use super::wiring;
use crate::contract::{Inspect, OpenOptions};
use crate::error::Result;
use crate::sender::Bus;

/// Transports connected for sending alone.
pub struct Producer {
    bus: Bus,
    stores: Stores,
}

impl Producer {
    pub(super) async fn connect(builder: HostBuilder) -> Result<Self> {
        let outgoing = builder.outgoing.clone();
        let (sources, clock, measuring) = wiring::transports_alone(builder)?;
        let transports = opening::transports_now(sources, &OpenOptions::new(clock.clone())).await?;
        let meter = measuring.meter();
        #[cfg(feature = "opentelemetry")]
        measuring.observe_sends(&meter);
        let bus = Bus::over(&transports, clock, meter).passing(outgoing);
        Ok(Producer { bus, stores: Stores::open(transports) })
    }

    /// Sends.
    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    /// Looks into the store of a transport: depths, dead letters.
    ///
    /// # Errors
    /// [`ErrorKind::UnknownTransport`](crate::ErrorKind::UnknownTransport), or
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if that store cannot be looked into.
    pub fn inspect(&self, transport: &str) -> Result<Arc<dyn Inspect>> {
        self.stores.inspect(transport)
    }

    /// Lets go of the stores. What has been answered is stored; what is sent afterwards is refused.
    pub async fn close(self) {
        self.bus.close();
        self.stores.close_transports().await;
    }
}

impl fmt::Debug for Producer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("bus", &self.bus).finish_non_exhaustive()
    }
}
