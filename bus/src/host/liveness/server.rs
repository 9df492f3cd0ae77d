//! The thread on which probes are answered.

use std::net::TcpListener as Listener;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::super::health::Health;
use super::super::plugin::PluginContext;
use super::http::{self, Answer};
use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};

/// How many are answered at the same time. Whoever comes beyond that is turned away at once.
const AT_ONCE: usize = 64;
/// How long one may take to ask and to take the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nobody is let in when the system cannot let anybody in.
const PAUSE: Duration = Duration::from_millis(100);

/// What answers.
pub(super) struct Server {
    pub(super) health: Option<Listener>,
    pub(super) alive: Option<Listener>,
    pub(super) stopping: CancellationToken,
    pub(super) end: CancellationToken,
    pub(super) host: Arc<OnceLock<PluginContext>>,
}

impl Server {
    /// Starts the thread.
    pub(super) fn start(self) -> Result<()> {
        let refused = |what, source| Error::new(ErrorKind::Internal, what).caused_by(source);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| refused("no runtime for the liveness listeners", source))?;
        // Within the runtime that they are to be used in.
        let entered = runtime.enter();
        let taken = |listener: Option<Listener>| listener.map(TcpListener::from_std).transpose();
        let refused_port = |source| refused("a port cannot be listened at", source);
        let health = taken(self.health).map_err(refused_port)?;
        let alive = taken(self.alive).map_err(refused_port)?;
        drop(entered);
        let (stopping, end, host) = (self.stopping, self.end, self.host);
        std::thread::Builder::new()
            .name("bus-liveness".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let answering =
                        async { tokio::join!(answer_health(health, host), say_the_time(alive, stopping)) };
                    end.run_until_cancelled(answering).await;
                });
                runtime.shutdown_background();
            })
            .map_err(|source| refused("no thread for the liveness listeners", source))?;
        Ok(())
    }
}

/// Lets whoever comes in, as long as it is polled.
async fn serve<F>(listener: &TcpListener, answer: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
                let answering = tokio::time::timeout(PATIENCE, answer(stream));
                tokio::spawn(async move {
                    // Whoever is too slow gets no answer.
                    let _ = answering.await;
                    drop(place);
                });
            }
            // Too many open files, say.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// HTTP, until the host has ended.
async fn answer_health(listener: Option<TcpListener>, host: Arc<OnceLock<PluginContext>>) {
    let Some(listener) = listener else { return };
    serve(&listener, move |stream| {
        let host = Arc::clone(&host);
        http::answer(stream, move |path| answer_to(path, host.get()))
    })
    .await;
}

/// The time, until the host is asked to stop: then the port is closed.
async fn say_the_time(listener: Option<TcpListener>, stopping: CancellationToken) {
    let Some(listener) = listener else { return };
    let saying = serve(&listener, |mut stream| async move {
        let now = Timestamp::from(SystemTime::now()).to_rfc3339();
        // Whoever has gone does not want to know.
        let _ = stream.write_all(format!("{now}\n").as_bytes()).await;
        let _ = stream.shutdown().await;
    });
    stopping.run_until_cancelled(saying).await;
}

/// What there is at a path.
fn answer_to(path: &str, host: Option<&PluginContext>) -> Option<Answer> {
    let health = || host.map(PluginContext::health);
    match path {
        "/live" => Some(Answer::text(true, "live")),
        "/ready" => {
            let is_ready = health().as_ref().is_some_and(Health::is_ready);
            Some(Answer::text(is_ready, if is_ready { "ready" } else { "not ready" }))
        }
        "/health" => {
            let health = health();
            let is_green = health.as_ref().is_some_and(Health::is_green);
            let starting = || serde_json::json!({ "status": "red", "phase": "starting" });
            let shown = health.as_ref().map_or_else(starting, Health::to_json);
            Some(Answer::json(is_green, &shown))
        }
        #[cfg(feature = "prometheus")]
        "/metrics" => Some(match host {
            Some(host) => Answer::metrics(host.metrics()),
            None => Answer::text(false, "starting"),
        }),
        _ => None,
    }
}
