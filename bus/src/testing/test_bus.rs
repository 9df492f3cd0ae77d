//! A [`Bus`] for calling a handler by hand.

use std::fmt;
use std::sync::Arc;

use super::history::SentMessage;
use super::life::Life;
use super::world::World;
use crate::message::{Command, Event};
use crate::registry;
use crate::sender::Bus;
use crate::telemetry::Meter;

/// A [`Bus`] whose messages nobody reads, and that tells what was sent: for a unit test of one function.
///
/// ```
/// use bus::prelude::*;
/// use bus::testing::TestBus;
/// # #[derive(Debug, PartialEq, Serialize, Deserialize, Command)]
/// # #[command(queue = "rebuild-cache")]
/// # struct RebuildCache { tenant: String }
///
/// async fn tenant_changed(tenant: &str, bus: Bus) -> Result<()> {
///     bus.send(RebuildCache { tenant: tenant.to_owned() }).await?;
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// let bus = TestBus::new();
/// tenant_changed("acme", bus.bus()).await?;
/// assert_eq!(bus.sent::<RebuildCache>()[0].message.tenant, "acme");
/// # Ok(()) }
/// ```
///
/// It has the transport `default` and those that processors of the binary name.
pub struct TestBus {
    world: Arc<World>,
    bus: Bus,
}

impl TestBus {
    /// A bus of its own.
    pub fn new() -> Self {
        TestBus::with_transports([])
    }

    /// One that has these transports too.
    pub fn with_transports<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let read = registry::processors().into_iter().map(|processor| processor.transport.to_owned());
        let world = World::new(read.chain(names.into_iter().map(str::to_owned)));
        let life = Life::new(Arc::clone(&world.activity));
        let bus = Bus::over(&world.transports(&life), world.clock.clone(), Meter::default());
        TestBus { world, bus }
    }

    /// The bus, to be given to a handler.
    pub fn bus(&self) -> Bus {
        self.bus.clone()
    }

    /// The commands of this type that were sent, in order.
    pub fn sent<C: Command>(&self) -> Vec<SentMessage<C>> {
        self.world.history.commands()
    }

    /// The events of this type that were published, in order.
    pub fn published<E: Event>(&self) -> Vec<SentMessage<E>> {
        self.world.history.events()
    }
}

impl Default for TestBus {
    fn default() -> Self {
        TestBus::new()
    }
}

impl fmt::Debug for TestBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestBus").field("bus", &self.bus).finish_non_exhaustive()
    }
}
