//! How those who wait hear from other processes that there may be something for them: a hint, behind which everyone
//! polls.
//!
//! One connection of its own listens, by the server's publish and subscribe, to the channels of all that somebody of
//! this host has waited for. It is made when somebody waits for the first time, and again whenever it breaks; everyone
//! then looks, since a hint may have been missed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::reconnect::{Backoff, panicked};
use crate::wake;

/// How long the server may take for an answer on this connection.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is asked whether it is still there.
const PING: Duration = Duration::from_secs(15);
/// The pauses between attempts to connect.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

/// The hints of one host, by their channels.
pub(super) struct Hints {
    waiting: wake::Hints<String>,
    listening: AtomicBool,
    wanted: mpsc::UnboundedSender<Wanted>,
}

/// Somebody who waits until a channel is listened to.
struct Wanted {
    channel: String,
    listened: oneshot::Sender<()>,
}

impl Hints {
    /// Ready to listen, once somebody wants it.
    pub(super) fn start(client: redis::Client, tasks: &TaskTracker, closed: CancellationToken) -> Arc<Self> {
        let (wanted, wishes) = mpsc::unbounded_channel();
        let hints =
            Arc::new(Hints { waiting: wake::Hints::default(), listening: AtomicBool::new(false), wanted });
        let mut listener = Listener { hints: Arc::clone(&hints), client, wishes, channels: BTreeSet::new() };
        tasks.spawn(async move {
            let listening = async { while panicked("what listens for hints", listener.run()).await {} };
            tokio::select! {
                () = closed.cancelled() => {}
                () = listening => {}
            }
        });
        hints
    }

    /// Whether hints come; where not, the poll has to do.
    pub(super) fn is_listening(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }

    /// Listens to a channel. What is told from now on is seen; where the server does not confirm that in time, from a
    /// little later on.
    pub(super) async fn listen(&self, channel: String, patience: Duration) -> watch::Receiver<()> {
        let hint = self.waiting.listen(channel.clone());
        let (listened, confirmation) = oneshot::channel();
        if self.wanted.send(Wanted { channel, listened }).is_ok() {
            // Without a confirmation the poll has to do for a while.
            let _ = tokio::time::timeout(patience, confirmation).await;
        }
        hint
    }

    fn now_listening(&self, is_listening: bool) {
        self.listening.store(is_listening, Ordering::Relaxed);
        self.waiting.tell_all();
    }
}

/// The task that listens.
struct Listener {
    hints: Arc<Hints>,
    client: redis::Client,
    wishes: mpsc::UnboundedReceiver<Wanted>,
    /// As many as the host has endpoints and locks.
    channels: BTreeSet<String>,
}

impl Listener {
    async fn run(&mut self) {
        let mut first = None;
        // Who only sends needs no connection for hints.
        if self.channels.is_empty() {
            let Some(wanted) = self.wishes.recv().await else { return };
            self.channels.insert(wanted.channel);
            first = Some(wanted.listened);
        }
        let mut pauses = PAUSES;
        loop {
            if let Some((mut sink, stream)) = self.connect().await {
                pauses.reset();
                self.hints.now_listening(true);
                if let Some(first) = first.take() {
                    // Nobody there: it has waited long enough.
                    let _ = first.send(());
                }
                self.listen(&mut sink, stream).await;
                self.hints.now_listening(false);
            }
            tokio::time::sleep(pauses.next()).await;
        }
    }

    /// A connection that is subscribed to all channels.
    async fn connect(&self) -> Option<(PubSubSink, PubSubStream)> {
        let connecting = async {
            let (mut sink, stream) = self.client.get_async_pubsub().await?.split();
            sink.subscribe(self.channels.iter().collect::<Vec<_>>()).await?;
            Ok::<_, redis::RedisError>((sink, stream))
        };
        match tokio::time::timeout(PATIENCE, connecting).await {
            Ok(Ok(connected)) => Some(connected),
            Ok(Err(error)) => {
                tracing::debug!(%error, "no hints from the server yet: it is polled");
                None
            }
            Err(_) => None,
        }
    }

    /// Passes hints on until the connection breaks.
    async fn listen(&mut self, sink: &mut PubSubSink, mut stream: PubSubStream) {
        let mut ping = tokio::time::interval(PING);
        ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let is_whole = tokio::select! {
                message = stream.next() => match message {
                    Some(message) => {
                        self.hints.waiting.tell(&message.get_channel_name().to_owned());
                        true
                    }
                    None => false,
                },
                wanted = self.wishes.recv() => match wanted {
                    Some(wanted) => self.subscribe(sink, wanted).await,
                    None => false,
                },
                _ = ping.tick() => in_time(sink.ping::<redis::Value>()).await,
            };
            if !is_whole {
                return;
            }
        }
    }

    async fn subscribe(&mut self, sink: &mut PubSubSink, wanted: Wanted) -> bool {
        let is_new = self.channels.insert(wanted.channel.clone());
        let is_whole = !is_new || in_time(sink.subscribe(&wanted.channel)).await;
        if is_whole {
            // Nobody there: it has waited long enough.
            let _ = wanted.listened.send(());
        }
        is_whole
    }
}

async fn in_time<T>(asking: impl Future<Output = redis::RedisResult<T>>) -> bool {
    matches!(tokio::time::timeout(PATIENCE, asking).await, Ok(Ok(_)))
}
