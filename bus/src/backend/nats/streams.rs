//! The streams, and that they are there.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::Client;
use super::error::error;
use super::jetstream::{Told, found};
use crate::error::{ErrorKind, Result};
use crate::message::Endpoint;

/// How long the server remembers the ids of what it has stored, in nanoseconds.
const REMEMBERED: u64 = 120_000_000_000;
/// The pause before a stream that cannot be made is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// How long another host may take to make a stream whose subjects are taken already.
const IN_THE_MAKING: Duration = Duration::from_secs(1);

/// A stream of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// An endpoint's messages: a work queue, from which a message goes when it is done.
    Endpoint(Endpoint),
    /// Records, the last of each subject.
    State,
    /// Messages whose time has not come: a work queue of those that wait for the clock.
    Later,
    /// Dead letters, by their ids.
    Dead,
    /// The locks' bucket.
    Locks,
}

impl Home {
    pub(super) fn name(&self, client: &Client) -> String {
        let names = &client.names;
        match self {
            Home::Endpoint(endpoint) => names.stream(endpoint),
            Home::State => names.state(),
            Home::Later => names.later(),
            Home::Dead => names.dead(),
            Home::Locks => names.locks(),
        }
    }

    fn config(&self, client: &Client) -> Value {
        let names = &client.names;
        let (subjects, retention, per_subject) = match self {
            Home::Endpoint(endpoint) => (names.subject(endpoint), "workqueue", -1),
            Home::State => (names.state_subjects(), "limits", 1),
            Home::Later => (names.later_subjects(), "workqueue", 1),
            Home::Dead => (names.dead_subjects(), "limits", 1),
            Home::Locks => (names.lock_subjects(), "limits", 1),
        };
        let mut config = json!({
            "name": self.name(client),
            "subjects": [subjects],
            "retention": retention,
            "storage": "file",
            "num_replicas": client.replicas,
            "max_consumers": -1,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_age": 0,
            "max_msg_size": -1,
            "max_msgs_per_subject": per_subject,
            // What is new is refused where there is no room, instead of what is old being thrown away.
            "discard": if per_subject == 1 { "old" } else { "new" },
            "duplicate_window": REMEMBERED,
        });
        if *self == Home::Locks {
            // As the server's own tools make a bucket, so that they can show it.
            config["allow_rollup_hdrs"] = true.into();
            config["deny_delete"] = true.into();
        }
        config
    }
}

impl Client {
    /// Makes a stream where it is missing; one that is there stays as it is.
    pub(super) async fn furnish(&self, home: &Home, until: Instant) -> Result<()> {
        let name = home.name(self);
        let patience = until.min(Instant::now() + IN_THE_MAKING);
        loop {
            let told: Told<Value> =
                self.request(&format!("STREAM.CREATE.{name}"), &home.config(self), until).await?;
            match told {
                Ok(_) => return Ok(()),
                Err(refusal) if refusal.is_stream_there() => return Ok(()),
                // Of several hosts that make it at once, nats-server 2.9 tells one or the other that its subjects are taken:
                // by that very stream.
                Err(refusal) if refusal.is_overlap() && self.is_there(home, until).await? => return Ok(()),
                Err(refusal) if refusal.is_overlap() && Instant::now() < patience => {
                    tokio::time::sleep(PAUSE).await;
                }
                Err(refusal) => return Err(refusal.into_error().with("stream", name)),
            }
        }
    }

    /// The same for one that nobody has answered for: it is gone, or the server has only just started.
    pub(super) async fn furnish_again(&self, home: &Home, until: Instant) -> Result<()> {
        let made = self.furnish(home, until).await;
        match made {
            Err(failure) if !failure.is_transient() || Instant::now() + PAUSE >= until => Err(failure),
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                Ok(())
            }
            Ok(()) if Instant::now() >= until => {
                Err(error(ErrorKind::Unavailable, "a stream is there and takes nothing")
                    .with("stream", home.name(self)))
            }
            Ok(()) => Ok(()),
        }
    }

    /// After nobody has answered for a stream: whether what was for it may be stored now. A queue is made where it is
    /// missing. A subscription that is missing and that no host reads has ended: who sends does not bring it back.
    pub(super) async fn may_be_had(&self, home: &Home, until: Instant) -> Result<bool> {
        let Home::Endpoint(subscription @ Endpoint::Subscription { .. }) = home else {
            return self.furnish_again(home, until).await.map(|()| true);
        };
        if !self.is_there(home, until).await? {
            self.refuse_if_emptied(until).await?;
            return self.make_again_if_read(subscription, until).await;
        }
        if Instant::now() + PAUSE >= until {
            return Err(error(ErrorKind::Unavailable, "a stream is there and takes nothing")
                .with("stream", home.name(self)));
        }
        tokio::time::sleep(PAUSE).await;
        Ok(true)
    }

    /// Makes an endpoint where it is missing. One that is just being dropped is waited for: what would be made would go
    /// with it.
    pub(super) async fn prepare(&self, endpoint: &Endpoint, until: Instant) -> Result<()> {
        while self.is_ending(endpoint, until).await? {
            if Instant::now() + PAUSE >= until {
                return Err(error(ErrorKind::Unavailable, "the subscription is just being dropped")
                    .with("subscription", endpoint));
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.furnish(&Home::Endpoint(endpoint.clone()), until).await
    }

    /// Whether a stream is there.
    pub(super) async fn is_there(&self, home: &Home, until: Instant) -> Result<bool> {
        let told: Told<Value> =
            self.request(&format!("STREAM.INFO.{}", home.name(self)), &Value::Null, until).await?;
        Ok(found(told)?.is_some())
    }
}
