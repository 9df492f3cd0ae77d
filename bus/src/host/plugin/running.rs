//! The plugins of a host, from its start to its end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Plugin, PluginContext};
use crate::error::{Error, ErrorKind, Result};
use crate::pipeline::layers::redact::Redact;

/// How long plugins have to come to their end, however little is left of the grace period.
pub(in super::super) const AT_LEAST: Duration = Duration::from_secs(5);

/// All of them, in the order in which they were added.
pub(in super::super) struct Plugins {
    all: Vec<Arc<dyn Plugin>>,
    /// How many have been started, the first ones.
    started: usize,
    stopping: JoinSet<()>,
    redact: Redact,
}

impl Plugins {
    /// Prepares all of them.
    pub(in super::super) fn prepared(all: Vec<Arc<dyn Plugin>>, redact: Redact) -> Result<Self> {
        for plugin in &all {
            let prepared = catch_unwind(AssertUnwindSafe(|| plugin.prepare()));
            told(&**plugin, "prepare", prepared.unwrap_or_else(|_| Err(panicked())), &redact)?;
        }
        Ok(Plugins { all, started: 0, stopping: JoinSet::new(), redact })
    }

    /// Whether there are none.
    pub(in super::super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Starts one after the other, as far as the host is not asked to stop.
    pub(in super::super) async fn start(&mut self, context: &PluginContext) -> Result<()> {
        let stopping = context.stopping();
        for plugin in &self.all {
            let starting = AssertUnwindSafe(async { plugin.start(context.clone()).await }).catch_unwind();
            let Some(started) = stopping.run_until_cancelled(starting).await else { return Ok(()) };
            told(&**plugin, "start", started.unwrap_or_else(|_| Err(panicked())), &self.redact)?;
            self.started += 1;
            tracing::debug!(target: "bus::host", event = "plugin.started", plugin = plugin.name());
        }
        Ok(())
    }

    /// Tells those that have started to stop, the last one first.
    pub(in super::super) fn tell_to_stop(&mut self) {
        for plugin in self.all.iter().take(self.started).rev() {
            let (plugin, redact) = (Arc::clone(plugin), self.redact.clone());
            self.stopping.spawn(async move {
                let stopped = AssertUnwindSafe(async { plugin.stop().await }).catch_unwind().await;
                // That it failed has been told, and fails nothing.
                let _ = told(&*plugin, "stop", stopped.unwrap_or_else(|_| Err(panicked())), &redact);
                tracing::debug!(target: "bus::host", event = "plugin.stopped", plugin = plugin.name());
            });
        }
    }

    /// Waits until they have stopped, but not beyond `until`, and no longer than [`AT_LEAST`] if it is to hurry. Answers
    /// whether all of them have; those that have not are dropped.
    pub(in super::super) async fn stopped(&mut self, until: Instant, hurry: &CancellationToken) -> bool {
        let hurried = async {
            hurry.cancelled().await;
            tokio::time::sleep(AT_LEAST).await;
        };
        let patience = async {
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                () = hurried => {}
            }
        };
        let all = async { while self.stopping.join_next().await.is_some() {} };
        let in_time = tokio::select! {
            biased;
            () = all => true,
            () = patience => false,
        };
        if !in_time {
            tracing::warn!(target: "bus::host", event = "plugin.late", plugins = self.stopping.len(), "plugins have not come to their end in time, and are left behind");
            self.stopping.abort_all();
        }
        in_time
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::Internal, "it panicked")
}

/// Says what has failed, where something has.
fn told(plugin: &dyn Plugin, what: &'static str, outcome: Result<()>, redact: &Redact) -> Result<()> {
    outcome.map_err(|error| {
        let error = redact.error(error);
        let name = plugin.name();
        tracing::error!(target: "bus::host", event = "plugin.failed", plugin = name, what, error = ?error, "a plugin has failed");
        error.with("plugin", name).with("in", what)
    })
}
