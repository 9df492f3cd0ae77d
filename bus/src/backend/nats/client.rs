//! The connection to the server: one, shared by everyone, which the driver makes anew whenever it breaks. Every call
//! has a deadline, and none is left in a queue for a connection that is not there.

use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::{ConnectOptions, Event, HeaderMap, Message, Request, RequestErrorKind, StatusCode};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::config::{Config, Login};
use super::error::{Lost, closed, error, of_broken_connection, of_connecting, of_silence, unconnected};
use super::names::Names;
use super::recipients::Recipients;
use super::server_clock::ServerClock;
use crate::clock::Clock;
use crate::error::{ErrorKind, Result};
use crate::reconnect::Backoff;

/// How long one attempt to connect may take.
const CONNECTING: Duration = Duration::from_secs(2);
/// The longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(800);
/// How often the server is asked whether it is still there: it is given up on when it has not answered three times.
const PING: Duration = Duration::from_secs(3);
/// The pauses before something is asked for again that was not to be had.
pub(super) const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(500));
/// The oldest version with all that is used.
const OLDEST: (i64, i64, i64) = (2, 9, 0);

/// A server that is open. Cheap to share.
pub(super) struct Client {
    pub(super) names: Names,
    pub(super) replicas: usize,
    pub(super) timeout: Duration,
    pub(super) clock: Clock,
    pub(super) server_clock: ServerClock,
    pub(super) recipients: Recipients,
    pub(super) tasks: TaskTracker,
    nats: async_nats::Client,
    server: String,
    /// What requests to JetStream begin with.
    api: String,
    breaks: watch::Receiver<Line>,
    closed: CancellationToken,
}

/// What has been heard of the connection.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    /// How often it has broken.
    breaks: u64,
    /// Changes with each event, so that those who wait look again.
    events: u64,
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) subject: String,
    pub(super) headers: HeaderMap,
    pub(super) payload: Bytes,
}

/// What is answered, and where.
pub(super) struct Answers {
    pub(super) answers: async_nats::Subscriber,
    pub(super) inbox: String,
}

impl Ask {
    pub(super) fn new(subject: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        Ask { subject: subject.into(), headers: HeaderMap::new(), payload: payload.into() }
    }

    #[must_use]
    pub(super) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.insert(name, value.to_string().as_str());
        self
    }
}

impl Client {
    /// Connects. The connection is kept by tasks of the current runtime. The server's time is what that clock of it says.
    ///
    /// # Errors
    /// If the server cannot be reached now: only once it has been is an outage waited out. If it is too old.
    pub(super) async fn open(config: &Config, clock: Clock, server_clock: ServerClock) -> Result<Arc<Self>> {
        let (tell, breaks) = watch::channel(Line::default());
        let connecting = options(config, tell)?.connect(&config.servers[..]);
        let nats = tokio::time::timeout(CONNECTING * 2, connecting)
            .await
            .map_err(|_| unconnected(&config.address))?
            .map_err(|cause| of_connecting(&config.address, cause))?;
        let (major, minor, patch) = OLDEST;
        if !nats.is_server_compatible(major, minor, patch) {
            return Err(error(
                ErrorKind::Unsupported,
                "the server is too old: nats-server 2.9 or newer is needed",
            )
            .with("version", nats.server_info().version));
        }
        Ok(Arc::new(Client {
            names: Names::new(&config.prefix),
            replicas: config.replicas,
            timeout: config.timeout,
            clock,
            server_clock,
            recipients: Recipients::default(),
            tasks: TaskTracker::new(),
            nats,
            server: config.address.clone(),
            api: config
                .domain
                .as_ref()
                .map_or_else(|| "$JS.API".to_owned(), |domain| format!("$JS.{domain}.API")),
            breaks,
            closed: CancellationToken::new(),
        }))
    }

    /// Fires when the store is closed.
    pub(super) fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    /// Lets go of the server.
    pub(super) async fn close(&self) {
        self.closed.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        // What was answered is done. That the driver's tasks end by themselves is all there is to say.
        let _ = self.nats.drain().await;
    }

    /// The largest message that the server takes, in bytes.
    pub(super) fn max_payload(&self) -> usize {
        self.nats.max_payload()
    }

    /// The subject of a request to JetStream.
    pub(super) fn api(&self, operation: &str) -> String {
        format!("{}.{operation}", self.api)
    }

    /// Until when a call may take that begins now.
    pub(super) fn deadline(&self) -> Instant {
        Instant::now() + self.timeout
    }

    fn is_up(&self) -> bool {
        self.nats.connection_state() == State::Connected
    }

    /// How often the connection has broken: what was asked before the last time has no answer any more.
    pub(super) fn breaks(&self) -> u64 {
        self.breaks.borrow().breaks
    }

    /// Returns when there is a connection.
    pub(super) async fn up(&self) -> Result<()> {
        let mut events = self.breaks.clone();
        loop {
            events.mark_unchanged();
            if self.closed.is_cancelled() {
                return Err(closed());
            }
            if self.is_up() {
                return Ok(());
            }
            tokio::select! {
                () = self.closed.cancelled() => {}
                _ = events.changed() => {}
            }
        }
    }

    /// Returns when the connection has broken since then.
    pub(super) async fn broken(&self, since: u64) {
        let mut events = self.breaks.clone();
        while events.borrow_and_update().breaks == since {
            if events.changed().await.is_err() {
                // The driver's tasks have ended: nothing comes from it any more.
                return;
            }
        }
    }

    /// Asks, and awaits the answer until then. `None` if nobody listens on the subject: nothing has happened.
    pub(super) async fn ask(&self, ask: Ask, until: Instant, lost: Lost) -> Result<Option<Message>> {
        let begun = Instant::now();
        if !self.is_up() || self.closed.is_cancelled() {
            tokio::time::timeout_at(until, self.up()).await.map_err(|_| unconnected(&self.server))??;
        }
        let since = self.breaks();
        let mut request = Request::new().payload(ask.payload).timeout(None);
        if !ask.headers.is_empty() {
            request = request.headers(ask.headers);
        }
        tokio::select! {
            biased;
            answer = self.nats.send_request(ask.subject, request) => match answer {
                Ok(message) => Ok(Some(message)),
                Err(cause) => match cause.kind() {
                    RequestErrorKind::NoResponders => Ok(None),
                    RequestErrorKind::MaxPayloadExceeded => {
                        Err(error(ErrorKind::TooLarge, "the server takes no message of this size (max_payload)"))
                    }
                    _ if self.closed.is_cancelled() => Err(closed()),
                    _ => Err(of_broken_connection(lost).caused_by(cause)),
                },
            },
            () = self.closed.cancelled() => Err(closed()),
            () = self.broken(since) => Err(of_broken_connection(lost)),
            () = tokio::time::sleep_until(until) => Err(of_silence(begun.elapsed(), lost)),
        }
    }

    /// Asks several things in their order, and awaits all answers until then; each as of [`ask`](Client::ask).
    pub(super) async fn ask_in_order(
        &self,
        asks: Vec<Ask>,
        until: Instant,
        lost: Lost,
    ) -> Vec<Result<Option<Message>>> {
        let mut answers: Vec<Option<Result<Option<Message>>>> = asks.iter().map(|_| None).collect();
        let failed = self.ask_all(asks, &mut answers, until, lost).await.err();
        let failure = failed.unwrap_or_else(|| of_broken_connection(lost));
        answers.into_iter().map(|answer| answer.unwrap_or_else(|| Err(failure.clone()))).collect()
    }

    /// The same, as far as answers come.
    async fn ask_all(
        &self,
        asks: Vec<Ask>,
        answers: &mut [Option<Result<Option<Message>>>],
        until: Instant,
        lost: Lost,
    ) -> Result<()> {
        let begun = Instant::now();
        tokio::time::timeout_at(until, self.up()).await.map_err(|_| unconnected(&self.server))??;
        let since = self.breaks();
        let inbox = self.nats.new_inbox();
        let broken = || of_broken_connection(lost);
        let silent = || of_silence(begun.elapsed(), lost);
        let mut told = self.listen(format!("{inbox}.*")).await?;
        let asking = async {
            for (number, Ask { subject, headers, payload }) in asks.into_iter().enumerate() {
                let reply = format!("{inbox}.{number}");
                let asked = if headers.is_empty() {
                    self.nats.publish_with_reply(subject, reply, payload).await
                } else {
                    self.nats.publish_with_reply_and_headers(subject, reply, headers, payload).await
                };
                asked.map_err(|cause| broken().caused_by(cause))?;
            }
            Ok::<_, crate::Error>(())
        };
        tokio::time::timeout_at(until, asking).await.map_err(|_| silent())??;
        for _ in 0..answers.len() {
            let message = tokio::select! {
                biased;
                message = told.next() => message.ok_or_else(broken)?,
                () = self.closed.cancelled() => return Err(closed()),
                () = self.broken(since) => return Err(broken()),
                () = tokio::time::sleep_until(until) => return Err(silent()),
            };
            let number =
                message.subject.rsplit_once('.').and_then(|(_, number)| number.parse::<usize>().ok());
            if let Some(answer) = number.and_then(|number| answers.get_mut(number)) {
                let nobody = message.status == Some(StatusCode::NO_RESPONDERS);
                *answer = Some(Ok((!nobody).then_some(message)));
            }
        }
        Ok(())
    }

    /// Says something that nobody answers.
    pub(super) async fn tell(&self, subject: String, payload: Bytes) -> Result<()> {
        let telling = self.nats.publish(subject, payload);
        match tokio::time::timeout(self.timeout, telling).await {
            Ok(told) => told.map_err(|cause| of_broken_connection(Lost::Again).caused_by(cause)),
            Err(_) => Err(of_silence(self.timeout, Lost::Again)),
        }
    }

    /// Asks for answers that come to a subject of their own, if so wanted no more than a number of them.
    pub(super) async fn ask_for_many(&self, ask: Ask, most: Option<u64>) -> Result<Answers> {
        let asking = async {
            let inbox = self.nats.new_inbox();
            let broken = || of_broken_connection(Lost::Again);
            let answers = self.nats.subscribe(inbox.clone()).await;
            let mut answers = answers.map_err(|cause| broken().caused_by(cause))?;
            if let Some(most) = most {
                answers.unsubscribe_after(most).await.map_err(|cause| broken().caused_by(cause))?;
            }
            let asked = self.nats.publish_with_reply(ask.subject, inbox.clone(), ask.payload).await;
            asked.map_err(|cause| broken().caused_by(cause))?;
            Ok(Answers { answers, inbox })
        };
        match tokio::time::timeout(self.timeout, asking).await {
            Ok(answers) => answers,
            Err(_) => Err(of_silence(self.timeout, Lost::Again)),
        }
    }

    /// What is said on these subjects from now on.
    pub(super) async fn listen(&self, subjects: String) -> Result<async_nats::Subscriber> {
        let listening = self.nats.subscribe(subjects);
        match tokio::time::timeout(self.timeout, listening).await {
            Ok(said) => said.map_err(|cause| of_broken_connection(Lost::Again).caused_by(cause)),
            Err(_) => Err(of_silence(self.timeout, Lost::Again)),
        }
    }
}

/// Whoever forgets to close it leaves no task behind.
impl Drop for Client {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

fn options(config: &Config, tell: watch::Sender<Line>) -> Result<ConnectOptions> {
    // The driver takes the process's own choice. Where somebody has made one already, it stands.
    let _ = async_nats::rustls::crypto::ring::default_provider().install_default();
    let server = config.address.clone();
    let options = match &config.login {
        Login::Nobody => ConnectOptions::new(),
        Login::User { user, password } => {
            ConnectOptions::with_user_and_password(user.clone(), password.clone())
        }
        Login::Token(token) => ConnectOptions::with_token(token.clone()),
        Login::Credentials(file) => std::fs::read_to_string(file)
            .and_then(|credentials| ConnectOptions::with_credentials(&credentials))
            .map_err(|cause| {
                error(ErrorKind::Config, "the credentials cannot be read")
                    .with("credentials", file.display())
                    .caused_by(cause)
            })?,
    };
    let mut options = options
        .name("bus")
        .connection_timeout(CONNECTING)
        .ping_interval(PING)
        .max_reconnects(None)
        .require_tls(config.is_encrypted)
        .reconnect_delay_callback(pause)
        .event_callback(move |event| {
            heed(&server, &event, &tell);
            std::future::ready(())
        });
    if let Some(authority) = &config.authority {
        options = options.add_root_certificates(authority.clone());
    }
    Ok(options)
}

/// The pause before an attempt to connect.
fn pause(attempts: usize) -> Duration {
    let mut pauses = Backoff::new(Duration::from_millis(50), LONGEST_PAUSE);
    let mut pause = Duration::ZERO;
    for _ in 0..attempts.min(8) {
        pause = pauses.next();
    }
    pause
}

fn heed(server: &str, event: &Event, tell: &watch::Sender<Line>) {
    match event {
        Event::Connected => tracing::info!(server, "connected to the server"),
        Event::Disconnected => {
            tracing::warn!(server, "the connection to the server broke; connecting again");
        }
        // A subject that we may not use, say.
        Event::ServerError(error) => tracing::warn!(server, %error, "the server refuses something"),
        Event::LameDuckMode => tracing::info!(server, "the server is about to end"),
        _ => {}
    }
    tell.send_modify(|line| {
        line.events += 1;
        line.breaks += u64::from(matches!(event, Event::Disconnected));
    });
}
