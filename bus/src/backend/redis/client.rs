//! The connection to the server: one, shared by everyone, made anew whenever it breaks, for as long as it takes.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, PushInfo, PushKind, Value};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::config::Config;
use super::error::{Lost, closed, of_broken_connection, of_connecting, of_server, of_silence, unconnected};
use super::hints::Hints;
use super::keys::Keys;
use super::script::Invocation;
use crate::beginning::Beginning;
use crate::error::{Error, Result};
use crate::reconnect::{Backoff, Outage, panicked};

/// How long one attempt to connect may take.
const CONNECTING: Duration = Duration::from_secs(2);
/// The pauses between attempts.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
/// How many requests may be under way before callers wait.
const UNDER_WAY: usize = 1024;

/// A server that is open. Cheap to share; every call has a deadline.
pub(super) struct Client {
    pub(super) keys: Keys,
    pub(super) hints: Arc<Hints>,
    pub(super) max_body: usize,
    pub(super) beginning: Beginning,
    server: String,
    timeout: Duration,
    line: watch::Receiver<Line>,
    closed: CancellationToken,
    tasks: TaskTracker,
}

/// The connection as it stands.
#[derive(Clone)]
enum Line {
    Up(Connection),
    Down(Option<Error>),
}

/// A connection that was whole a moment ago.
#[derive(Clone)]
pub(super) struct Connection {
    inner: MultiplexedConnection,
    /// Fires when it turns out to be broken; whoever fires it has it replaced.
    broken: CancellationToken,
}

impl Client {
    /// Connects. The connection is kept by a task of the current runtime.
    ///
    /// # Errors
    /// If the server cannot be reached now: only once it has been is an outage waited out.
    pub(super) async fn open(config: &Config) -> Result<Arc<Self>> {
        let opened = super::tls::client(config)?;
        let connection = connect(&opened, &config.server).await?;
        let (closed, tasks) = (CancellationToken::new(), TaskTracker::new());
        let (tell, line) = watch::channel(Line::Up(connection));
        tasks.spawn(keep_up(opened.clone(), config.server.clone(), tell, closed.clone()));
        let hints = Hints::start(opened, &tasks, closed.clone());
        tasks.close();
        Ok(Arc::new(Client {
            keys: Keys::new(&config.prefix),
            hints,
            max_body: config.max_body,
            beginning: Beginning::default(),
            server: config.server.clone(),
            timeout: config.timeout,
            line,
            closed,
            tasks,
        }))
    }

    /// Fires when the store is closed.
    pub(super) fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// Lets go of the server. Returns when no task of ours runs any more.
    pub(super) async fn close(&self) {
        self.closed.cancel();
        self.tasks.wait().await;
    }

    /// A whole connection, waited for until then, or for as long as it takes.
    pub(super) async fn connection(&self, until: Option<Instant>) -> Result<Connection> {
        if let Line::Up(connection) = &*self.line.borrow()
            && !connection.broken.is_cancelled()
            && !self.closed.is_cancelled()
        {
            return Ok(connection.clone());
        }
        let mut line = self.line.clone();
        loop {
            if self.closed.is_cancelled() {
                return Err(closed());
            }
            let cause = match &*line.borrow_and_update() {
                Line::Up(connection) if !connection.broken.is_cancelled() => return Ok(connection.clone()),
                Line::Up(_) => None,
                Line::Down(cause) => cause.clone(),
            };
            tokio::select! {
                () = self.closed.cancelled() => {}
                _ = line.changed() => {}
                () = at(until) => return Err(unconnected(&self.server, cause)),
            }
        }
    }

    /// Runs a script within the usual time.
    pub(super) async fn run(&self, call: &Invocation, lost: Lost) -> Result<Value> {
        self.run_within(self.timeout, call, lost).await
    }

    /// Runs a script within that time, connecting included.
    pub(super) async fn run_within(&self, time: Duration, call: &Invocation, lost: Lost) -> Result<Value> {
        let until = Instant::now() + time;
        let connection = self.connection(Some(until)).await?;
        self.run_on(connection, until, call, lost).await
    }

    /// Runs a script on a connection until then.
    pub(super) async fn run_on(
        &self,
        mut connection: Connection,
        until: Instant,
        call: &Invocation,
        lost: Lost,
    ) -> Result<Value> {
        match connection.ask(&call.by_hash(), until, lost).await? {
            Ok(answer) => Ok(answer),
            // A script that the server does not know has not been run.
            Err(refusal) if refusal.code() == Some("NOSCRIPT") => {
                connection.ask(&call.by_source(), until, lost).await?.map_err(of_server)
            }
            Err(refusal) => Err(of_server(refusal)),
        }
    }

    /// Runs a command that may be repeated.
    pub(super) async fn ask(&self, command: &Cmd) -> Result<Value> {
        let until = Instant::now() + self.timeout;
        self.connection(Some(until)).await?.ask(command, until, Lost::Again).await?.map_err(of_server)
    }

    /// How long a call may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Until when a call may take that begins now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }
}

/// Whoever forgets to close it leaves no task behind.
impl Drop for Client {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

impl Connection {
    /// The server's answer or refusal.
    async fn ask(&mut self, command: &Cmd, until: Instant, lost: Lost) -> Result<redis::RedisResult<Value>> {
        let asked = Instant::now();
        match tokio::time::timeout_at(until, command.query_async::<Value>(&mut self.inner)).await {
            Ok(Err(cause)) if cause.is_unrecoverable_error() => {
                self.broken.cancel();
                Err(of_broken_connection(cause, lost))
            }
            Ok(answer) => {
                if let Err(refusal) = &answer
                    && refusal.code() == Some("READONLY")
                {
                    // Another server may be the one that takes writes now.
                    self.broken.cancel();
                }
                Ok(answer)
            }
            Err(_) => {
                // A connection that has become silent may stay so for long after the network is whole again.
                self.broken.cancel();
                Err(of_silence(asked.elapsed(), lost))
            }
        }
    }
}

async fn at(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

async fn connect(client: &redis::Client, server: &str) -> Result<Connection> {
    let broken = CancellationToken::new();
    let tell = broken.clone();
    let heed = move |push: PushInfo| {
        if push.kind == PushKind::Disconnection {
            tell.cancel();
        }
        Ok::<_, std::convert::Infallible>(())
    };
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECTING))
        .set_response_timeout(None)
        .set_pipeline_buffer_size(UNDER_WAY)
        .set_push_sender(heed);
    match client.get_multiplexed_async_connection_with_config(&config).await {
        Ok(inner) => Ok(Connection { inner, broken }),
        Err(cause) => Err(of_connecting(server, cause)),
    }
}

/// Replaces the connection whenever it is broken, until the store is closed.
async fn keep_up(
    client: redis::Client,
    server: String,
    line: watch::Sender<Line>,
    closed: CancellationToken,
) {
    let work = async {
        while panicked("what keeps the connection", keep_connecting(&client, &server, &line)).await {}
    };
    tokio::select! {
        () = closed.cancelled() => {}
        () = work => {}
    }
    // The last connection goes with this.
    line.send_replace(Line::Down(None));
}

async fn keep_connecting(client: &redis::Client, server: &str, line: &watch::Sender<Line>) {
    loop {
        let broken = match &*line.borrow() {
            Line::Up(connection) => Some(connection.broken.clone()),
            Line::Down(_) => None,
        };
        if let Some(broken) = broken {
            broken.cancelled().await;
            tracing::warn!(server, "the connection to the server broke; connecting again");
            line.send_replace(Line::Down(None));
        }
        let connection = connect_again(client, server, line).await;
        line.send_replace(Line::Up(connection));
        tracing::info!(server, "connected to the server again");
    }
}

async fn connect_again(client: &redis::Client, server: &str, line: &watch::Sender<Line>) -> Connection {
    let (mut pauses, mut outage) = (PAUSES, Outage::begin());
    loop {
        match connect(client, server).await {
            Ok(connection) => return connection,
            Err(cause) => {
                if outage.is_due() {
                    tracing::warn!(server, error = ?cause, since = ?outage.length(), "the server cannot be reached; trying again for as long as it takes");
                }
                line.send_replace(Line::Down(Some(cause)));
            }
        }
        tokio::time::sleep(pauses.next()).await;
    }
}
