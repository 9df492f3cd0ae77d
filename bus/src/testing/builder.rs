//! Puts a test host together.

use std::any::{TypeId, type_name};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};

use super::host::TestHost;
use crate::Host;
use crate::error::{Error, ErrorKind, Result};
use crate::host::HostBuilder;
use crate::registry;

/// How much virtual time has to pass with something still in flight before [`TestHost::settled`] gives up.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// Makes the jitter of retries the same in each test.
const SEED: u64 = 7;

/// A test host that is being put together.
///
/// ```
/// # use bus::prelude::*;
/// # use bus::testing::*;
/// # struct Mailer;
/// # #[derive(Serialize, Deserialize, Event)] #[event(topic = "order-placed")] struct OrderPlaced;
/// # #[processor(subscription = "send-receipt")]
/// # async fn send_receipt(_event: OrderPlaced, _mailer: Dep<Mailer>) {}
/// #[bus::test]
/// async fn orders_get_a_receipt() -> Result<()> {
///     let host = TestHost::builder().processor(send_receipt).provide(Mailer).start().await?;
///     host.bus().publish(OrderPlaced).await?;
///     host.settled().await;
///     assert_eq!(host.completed::<OrderPlaced>().len(), 1);
///     Ok(())
/// }
/// # fn main() {}
/// ```
#[must_use = "nothing happens until it is started"]
pub struct TestHostBuilder {
    host: HostBuilder,
    names: Vec<String>,
    transports: BTreeSet<String>,
    patience: Duration,
}

impl TestHostBuilder {
    pub(super) fn new() -> Self {
        TestHostBuilder {
            host: Host::builder(),
            names: Vec::new(),
            transports: BTreeSet::new(),
            patience: PATIENCE,
        }
    }

    /// Runs only these processors, named by their endpoints (`queue` or `topic/subscription`) or their functions, and
    /// makes only the values that these need. All others' queues just collect what is sent.
    pub fn only<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.names.extend(names.into_iter().map(str::to_owned));
        self
    }

    /// Runs only this processor, beside those named likewise: `.processor(send_receipt).processor(rebuild_cache)`.
    pub fn processor<F: 'static>(mut self, function: F) -> Self {
        let _ = function;
        match registry::processors().into_iter().find(|p| p.function == TypeId::of::<F>()) {
            Some(processor) => self.names.push(processor.endpoint.to_string()),
            None => {
                let name = type_name::<F>();
                let mistake = format!("`{name}` is no processor: it has no #[processor]");
                self.host = self.host.mistaken(Error::new(ErrorKind::Wiring, mistake));
            }
        }
        self
    }

    /// Gives a value that handlers and providers ask for with `Dep<T>`, instead of what a `#[provide]` makes: a fake.
    pub fn provide<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.host = self.host.provide(value);
        self
    }

    /// Adds a transport that no processor of the binary reads, so that messages can be sent to it. Those that are read,
    /// and `default`, are there anyway.
    pub fn transport(mut self, name: &str) -> Self {
        self.transports.insert(name.to_owned());
        self
    }

    /// How much virtual time may pass in [`TestHost::settled`] with something still in flight; an hour by default.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Adjusts the host itself: its configuration, middleware, grace period. Stores and locks that it names are replaced
    /// by ones in memory, and its clock by tokio's.
    pub fn with(mut self, adjust: impl FnOnce(HostBuilder) -> HostBuilder) -> Self {
        self.host = adjust(self.host);
        self
    }

    /// Starts the host, and pauses tokio's clock where it is not paused yet.
    ///
    /// # Errors
    /// What [`Host::start`] and [`HostBuilder::build`] answer: everything that is wrong with the wiring, by file and
    /// line. [`ErrorKind::InvalidInput`] if time cannot be paused here.
    pub async fn start(self) -> Result<TestHost> {
        pause_time()?;
        fastrand::seed(SEED);
        let host = match self.names.is_empty() {
            true => self.host,
            false => self.host.only(self.names.iter().map(String::as_str)),
        };
        let mut transports = host.transport_names();
        transports.extend(self.transports);
        TestHost::over(host, transports, self.patience).await
    }
}

/// Sees to it that time is virtual.
fn pause_time() -> Result<()> {
    let runtime = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    if !matches!(runtime, Ok(RuntimeFlavor::CurrentThread)) {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "a test host needs a runtime of one thread, whose time can be paused: write #[bus::test] over the test, or \
             #[tokio::test(start_paused = true)]",
        ));
    }
    if !is_paused() {
        tokio::time::pause();
    }
    Ok(())
}

/// Whether tokio's clock stands while the machine's goes on.
fn is_paused() -> bool {
    let (virtually, really) = (tokio::time::Instant::now(), std::time::Instant::now());
    while std::time::Instant::now() <= really {}
    tokio::time::Instant::now() == virtually
}

impl fmt::Debug for TestHostBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestHostBuilder").field("host", &self.host).finish_non_exhaustive()
    }
}
