//! One session with the server.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::poll_fn;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, NoTls, Notification, Row, Statement};

use super::config::{Config, Schema, Tls};
use super::error::{Failure, error, of_connect};
use super::pooler;
use super::statement::Sql;
use crate::error::{ErrorKind, Result};

/// A value for a parameter.
pub(super) type Param<'p> = &'p (dyn ToSql + Sync);

/// When a session's commits are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// When they are on the disk: for all that somebody is told to rely on.
    Full,
    /// Before they are on the disk: for claims and settlements, of which a crash of the server may take the last
    /// moments' back, so that messages come once more.
    Relaxed,
}

/// How long the server is asked for at most to give up what nobody waits for any more.
const CANCEL_TIME: Duration = Duration::from_secs(3);

/// One session with the server. Dropping it closes the connection at once, whatever was going on; what the server is
/// still at is cancelled.
pub(super) struct Session {
    client: Client,
    tls: Tls,
    schema: Schema,
    /// Whether nothing stands between us and the server's own session. Behind a pooler each transaction may run in
    /// another session: nothing is prepared, set or listened to there.
    direct: bool,
    /// How a transaction is begun: behind a pooler with all that a session of our own is set to.
    beginning: Cow<'static, str>,
    in_transaction: bool,
    /// Whether an answer is awaited.
    asking: bool,
    prepared: HashMap<&'static str, Prepared>,
    driver: JoinHandle<()>,
}

enum Prepared {
    Named(Statement),
    Text(String),
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.asking {
            self.cancel();
        }
        self.driver.abort();
    }
}

impl Session {
    /// Connects to the first server that lets us in, each within the time for that. Whatever the server tells of itself
    /// goes to `told`.
    pub(super) async fn open(
        config: &Config,
        durability: Durability,
        told: Option<UnboundedSender<Notification>>,
    ) -> Result<Self> {
        let time = config.connect_timeout();
        let mut failed = None;
        for server in config.servers.in_turn() {
            let opening = Session::open_slowly(config, server.driver, durability, told.clone());
            match tokio::time::timeout(time, opening).await {
                Ok(Ok(session)) => {
                    server.is_good();
                    return Ok(session);
                }
                Ok(Err(e)) => failed = Some(e),
                Err(_) => {
                    let late = error(ErrorKind::Unavailable, "the server did not let us in in time");
                    failed = Some(late.with("waited", format_args!("{time:?}")));
                }
            }
        }
        let failed = failed.unwrap_or_else(|| error(ErrorKind::Config, "the URL names no host"));
        Err(failed.with("server", config.place()))
    }

    async fn open_slowly(
        config: &Config,
        server: &tokio_postgres::Config,
        durability: Durability,
        told: Option<UnboundedSender<Notification>>,
    ) -> Result<Self> {
        let (client, driver) = match &config.tls {
            Tls::Off => {
                let (client, connection) = server.connect(NoTls).await.map_err(of_connect)?;
                (client, tokio::spawn(drive(connection, told)))
            }
            #[cfg(feature = "postgres-tls")]
            Tls::VerifyFull(connector) => {
                let (client, connection) = server.connect(connector.clone()).await.map_err(of_connect)?;
                (client, tokio::spawn(drive(connection, told)))
            }
        };
        let mut session = Session {
            client,
            tls: config.tls.clone(),
            schema: config.schema.clone(),
            direct: false,
            beginning: Cow::Borrowed("BEGIN"),
            in_transaction: false,
            asking: false,
            prepared: HashMap::new(),
            driver,
        };
        session.direct = pooler::is_direct(&session.client).await.map_err(Failure::of_repeatable)?;
        let settings = settings(config.deadline, durability, session.direct);
        if session.direct {
            session.batch(&settings).await.map_err(Failure::of_repeatable)?;
        } else {
            session.beginning = format!("BEGIN ISOLATION LEVEL READ COMMITTED; {settings}").into();
        }
        Ok(session)
    }

    /// Whether nothing stands between us and the server's own session.
    pub(super) fn is_direct(&self) -> bool {
        self.direct
    }

    /// Whether the connection is known to be lost.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Runs a statement.
    pub(super) async fn query(
        &mut self,
        sql: &'static Sql,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Failure> {
        self.asking = true;
        let answer = self.ask(sql, params).await;
        self.asking = false;
        answer
    }

    async fn ask(&mut self, sql: &'static Sql, params: &[Param<'_>]) -> Result<Vec<Row>, Failure> {
        if !self.prepared.contains_key(sql.name) {
            let text = sql.text(&self.schema);
            let prepared = match self.direct {
                true => Prepared::Named(self.client.prepare_typed(&text, sql.types).await?),
                false => Prepared::Text(text),
            };
            self.prepared.insert(sql.name, prepared);
        }
        match self.prepared.get(sql.name) {
            Some(Prepared::Named(statement)) => Ok(self.client.query(statement, params).await?),
            Some(Prepared::Text(text)) => {
                let typed: Vec<(Param<'_>, Type)> =
                    params.iter().copied().zip(sql.types.iter().cloned()).collect();
                if self.in_transaction {
                    return Ok(self.client.query_typed(text, &typed).await?);
                }
                // All three are on their way before the first is answered, which costs no further round trip.
                let (begun, answer, committed) = futures_util::join!(
                    self.client.batch_execute(&self.beginning),
                    self.client.query_typed(text, &typed),
                    self.client.batch_execute("COMMIT"),
                );
                begun?;
                let rows = answer?;
                committed?;
                Ok(rows)
            }
            None => Err(error(ErrorKind::Internal, "a statement was not prepared").into()),
        }
    }

    /// Runs statements without parameters.
    pub(super) async fn batch(&mut self, text: &str) -> Result<(), Failure> {
        self.asking = true;
        let answer = self.client.batch_execute(text).await;
        self.asking = false;
        Ok(answer?)
    }

    /// Begins a transaction. A session that is dropped before it ends rolls it back, and should the whole process be
    /// frozen, the server does.
    pub(super) async fn begin(&mut self) -> Result<(), Failure> {
        let beginning = self.beginning.clone();
        self.batch(&beginning).await?;
        self.in_transaction = true;
        Ok(())
    }

    /// The same, with a time of its own for each statement in it.
    pub(super) async fn begin_for(&mut self, time: Duration) -> Result<(), Failure> {
        let beginning =
            format!("{}; SET LOCAL statement_timeout = {}", self.beginning, time.as_millis().max(1));
        self.batch(&beginning).await?;
        self.in_transaction = true;
        Ok(())
    }

    /// Ends a transaction: commits it if what was done in it has succeeded, else rolls it back, so that the session can
    /// be used again.
    pub(super) async fn end_transaction<T>(&mut self, done: Result<T, Failure>) -> Result<T, Failure> {
        match &done {
            Ok(_) => {
                self.batch("COMMIT").await?;
                self.in_transaction = false;
            }
            Err(Failure::Refused(_) | Failure::NotAsked(_)) => self.roll_back().await?,
            Err(Failure::Broken(_) | Failure::Silent(_)) => {}
        }
        done
    }

    /// Takes back what was done in the transaction, and ends it.
    pub(super) async fn roll_back(&mut self) -> Result<(), Failure> {
        self.batch("ROLLBACK").await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Asks the server to give up what it is at: nobody waits for the answer any more. Closing the connection alone
    /// does not end it, and what waits for a synchronous standby would wait for ever, and occupy a connection.
    fn cancel(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (token, tls) = (self.client.cancel_token(), self.tls.clone());
        runtime.spawn(async move {
            let cancel = async {
                match tls {
                    Tls::Off => token.cancel_query(NoTls).await,
                    #[cfg(feature = "postgres-tls")]
                    Tls::VerifyFull(connector) => token.cancel_query(connector).await,
                }
            };
            if let Ok(Err(e)) = tokio::time::timeout(CANCEL_TIME, cancel).await {
                tracing::debug!(target: "bus::postgres", error = %e, "a statement cannot be cancelled");
            }
        });
    }
}

/// Moves bytes between the client and the server until one of them goes.
async fn drive<S, T>(
    mut connection: tokio_postgres::Connection<S, T>,
    told: Option<UnboundedSender<Notification>>,
) where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    loop {
        match poll_fn(|cx| connection.poll_message(cx)).await {
            Some(Ok(AsyncMessage::Notification(notification))) => {
                // Nobody listens any more: then nobody has to know.
                let _ = told.as_ref().map(|told| told.send(notification));
            }
            Some(Ok(AsyncMessage::Notice(notice))) => {
                tracing::debug!(target: "bus::postgres", severity = notice.severity(), "{}", notice.message());
            }
            Some(Ok(_)) => {}
            Some(Err(e)) => {
                tracing::debug!(target: "bus::postgres", error = %e, "a connection was lost");
                return;
            }
            None => return,
        }
    }
}

/// What a session of ours is set to, or, where it is not ours alone, a transaction.
fn settings(deadline: Duration, durability: Durability, session: bool) -> String {
    let deadline = deadline.as_millis();
    let set = if session { "SET" } else { "SET LOCAL" };
    let commit = match durability {
        // Whatever the server's default is: what was told to be stored is on the disk.
        Durability::Full => format!(
            "SELECT set_config('synchronous_commit', 'on', {local}) WHERE current_setting('synchronous_commit') = 'off';",
            local = !session
        ),
        Durability::Relaxed => format!("{set} synchronous_commit = off;"),
    };
    // A queue's statistics are wrong as soon as they are made: every plan goes by the index, and is made once. Times
    // are limited on the server too, so that nothing of a lost client holds a row for long.
    format!(
        "{commit}
         {set} jit = off;
         {set} enable_seqscan = off;
         {set} enable_bitmapscan = off;
         {set} plan_cache_mode = force_generic_plan;
         {set} statement_timeout = {deadline};
         {set} lock_timeout = {deadline};
         {set} idle_in_transaction_session_timeout = {deadline};
         {set} default_transaction_isolation = 'read committed';
         {set} client_min_messages = warning"
    )
}
