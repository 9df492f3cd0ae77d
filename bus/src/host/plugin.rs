//! What runs beside the processors, for as long as the host does.

mod context;
mod running;

use std::any::type_name;

use crate::contract::BoxFuture;
use crate::error::Result;

pub use context::PluginContext;
pub(super) use running::{AT_LEAST, Plugins};

/// Something that runs beside a host's processors: a server of one's own, a clean-up, a schedule. Added by
/// [`HostBuilder::plugin`](super::HostBuilder::plugin); the liveness listeners are built on it.
///
/// | when | what is called |
/// |---|---|
/// | first of all, before any store is opened | [`prepare`](Plugin::prepare) of all plugins, in the order in which they were added |
/// | all processors have been started | [`start`](Plugin::start), one after the other, in that order |
/// | at the very beginning of the host's end, together with the end of fetching | [`PluginContext::stopping`] fires, and [`stop`](Plugin::stop) is called on each plugin that has started, on tasks of their own |
/// | when what was in flight has ended and all locks of singletons are released | each `stop` is awaited for what is left of the grace period, but at least for 5 s; then it is dropped |
///
/// While `stop` is awaited the host's [`Bus`](crate::Bus) still sends. A plugin that fails or panics in `prepare` or `start`
/// fails the host: what has been started is shut down as at any other end, and the error is the host's. One that fails or
/// panics in `stop`, or does not come to its end, is logged (`plugin.failed`, `plugin.late`) and changes nothing else.
///
/// ```
/// use std::sync::Arc;
///
/// use bus::contract::BoxFuture;
/// use bus::host::{Plugin, PluginContext};
/// use bus::prelude::*;
/// use tokio::sync::Mutex;
/// use tokio::task::JoinHandle;
///
/// #[derive(Debug, Serialize, Deserialize, Command)]
/// #[command(queue = "clean-up")]
/// struct CleanUp;
///
/// /// Asks for a clean-up every hour.
/// #[derive(Default)]
/// struct Hourly(Mutex<Option<JoinHandle<()>>>);
///
/// impl Plugin for Hourly {
///     fn start(&self, host: PluginContext) -> BoxFuture<'_, Result<()>> {
///         Box::pin(async move {
///             let work = tokio::spawn(async move {
///                 let mut hour = tokio::time::interval(std::time::Duration::from_secs(3600));
///                 while host.stopping().run_until_cancelled(hour.tick()).await.is_some() {
///                     if let Err(error) = host.bus().send(CleanUp).await {
///                         tracing::warn!(%error, "no clean-up this hour");
///                     }
///                 }
///             });
///             *self.0.lock().await = Some(work);
///             Ok(())
///         })
///     }
///
///     fn stop(&self) -> BoxFuture<'_, Result<()>> {
///         Box::pin(async move {
///             if let Some(work) = self.0.lock().await.take() {
///                 // It ends by itself, since the host is stopping; this waits for it.
///                 let _ = work.await;
///             }
///             Ok(())
///         })
///     }
/// }
///
/// # fn example() -> Result<()> {
/// let host = bus::Host::builder().transport("default", "sqlite://orders.db").plugin(Hourly::default()).build()?;
/// # drop(host);
/// # Ok(())
/// # }
/// ```
pub trait Plugin: Send + Sync + 'static {
    /// What it is called in the log and in errors; its type's path unless you say otherwise.
    fn name(&self) -> &str {
        type_name::<Self>()
    }

    /// Whether it competes for locks ([`PluginContext::compete`]): the host then needs a lock manager, and does not start
    /// without one.
    fn needs_locks(&self) -> bool {
        false
    }

    /// Takes hold of what nobody else may have: a port, a file. Within the host's runtime; what it takes it gives back when
    /// the plugin is dropped, which is all that happens to it if the host does not start.
    ///
    /// # Errors
    /// Whatever keeps the host from starting.
    fn prepare(&self) -> Result<()> {
        Ok(())
    }

    /// Starts its work and returns. All processors have been started by then, and may be at work; those whose stores are
    /// not there yet begin later. The host's start waits for it, however long it takes. Its future is dropped if the host is
    /// asked to stop meanwhile.
    ///
    /// What it has spawned goes on by itself; it should end when [`PluginContext::stopping`] fires, also if this fails.
    ///
    /// # Errors
    /// Whatever the host cannot do without. It then comes to its end.
    fn start(&self, host: PluginContext) -> BoxFuture<'_, Result<()>>;

    /// Comes to its end, and returns when it has. Not called unless `start` has succeeded.
    ///
    /// # Errors
    /// Whatever people should read in the log.
    fn stop(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
