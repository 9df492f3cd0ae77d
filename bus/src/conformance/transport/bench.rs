//! What the cases work with: hosts on the store, names of their own, and receiving with a bound.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::conformance::case::ensure;
use crate::conformance::{Checked, Failure, Need, Setup, Timing, TransportSubject};
use crate::contract::{
    BoxFuture, Capabilities, Consumer, ConsumerSpec, DeadLetter, Delay, Depth, Fencing, Inspect, Outgoing,
    Placed, Readers, Settlement, Transport,
};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Delivery, Endpoint, Envelope, MessageId, Receipt, Verdict};

/// A lease that does not end while a case runs.
pub(super) const LONG: Duration = Duration::from_secs(600);

/// Two hosts on the store under test.
pub struct Bench {
    pub(super) host: Arc<dyn Transport>,
    pub(super) other_host: Arc<dyn Transport>,
    pub(super) timing: Timing,
    powers: Capabilities,
    salt: String,
}

impl Setup for Bench {
    type Subject = dyn TransportSubject;

    fn open(subject: &Self::Subject) -> BoxFuture<'_, Checked<Self>> {
        Box::pin(async move {
            let host = subject.open_transport().await?;
            let other_host = subject.open_transport().await?;
            let powers = host.capabilities();
            let salt = Uuid::new_v4().simple().to_string().chars().take(12).collect();
            Ok(Bench { host, other_host, timing: subject.timing(), powers, salt })
        })
    }

    fn has(&self, need: Need) -> BoxFuture<'_, Checked<bool>> {
        let has = match need {
            Need::Delay => self.powers.delay.is_some(),
            Need::Fencing => self.powers.fencing.is_some(),
            Need::Inspect => self.powers.inspect.is_some(),
            Need::Readers => self.powers.readers.is_some(),
            Need::StrictOrder => self.powers.strict_order,
            Need::KeptOrder => !self.powers.loose_order,
            Need::ExactDepth => !self.powers.rough_depth,
            _ => false,
        };
        Box::pin(std::future::ready(Ok(has)))
    }
}

impl Bench {
    /// A queue that no other case uses, and that nobody has prepared.
    pub(super) fn unprepared(&self, name: &str) -> Checked<Arc<Endpoint>> {
        Ok(Arc::new(Endpoint::queue(&format!("{name}-{}", self.salt))?))
    }

    /// An empty queue of this case's own.
    pub(super) async fn queue(&self, name: &str) -> Checked<Arc<Endpoint>> {
        let endpoint = self.unprepared(name)?;
        self.host.prepare(std::slice::from_ref(&*endpoint)).await?;
        Ok(endpoint)
    }

    /// An empty subscription of this case's own.
    pub(super) async fn subscription(&self, topic: &str, name: &str) -> Checked<Arc<Endpoint>> {
        let endpoint = Arc::new(Endpoint::subscription(&format!("{topic}-{}", self.salt), name)?);
        self.host.prepare(std::slice::from_ref(&*endpoint)).await?;
        Ok(endpoint)
    }

    /// A consumer of the first host whose claims do not run out.
    pub(super) async fn consumer(&self, endpoint: &Arc<Endpoint>) -> Checked<Arc<dyn Consumer>> {
        self.consumer_with(ConsumerSpec::new(Arc::clone(endpoint), LONG)).await
    }

    /// A consumer of the first host.
    pub(super) async fn consumer_with(&self, spec: ConsumerSpec) -> Checked<Arc<dyn Consumer>> {
        Ok(self.host.consumer(spec).await?)
    }

    /// A consumer of the other host whose claims do not run out.
    pub(super) async fn other_consumer(&self, endpoint: &Arc<Endpoint>) -> Checked<Arc<dyn Consumer>> {
        Ok(self.other_host.consumer(ConsumerSpec::new(Arc::clone(endpoint), LONG)).await?)
    }

    /// A message with this text for an endpoint.
    pub(super) fn message(&self, endpoint: &Endpoint, text: &str) -> Outgoing {
        Outgoing::new(endpoint.target(), envelope(text))
    }

    /// Sends one text; fails if that fails.
    pub(super) async fn send(&self, endpoint: &Endpoint, text: &str) -> Checked<Placed> {
        self.send_one(self.message(endpoint, text)).await
    }

    /// Sends one message; fails if that fails.
    pub(super) async fn send_one(&self, message: Outgoing) -> Checked<Placed> {
        Ok(only(self.host.sender().send(vec![message]).await)??)
    }

    /// Sends texts in one call; fails if one fails.
    pub(super) async fn send_all(&self, endpoint: &Endpoint, texts: &[&str]) -> Checked {
        let batch: Vec<_> = texts.iter().map(|text| self.message(endpoint, text)).collect();
        let answers = self.host.sender().send(batch).await;
        ensure!(
            answers.len() == texts.len(),
            "{} messages were sent and {} answers came",
            texts.len(),
            answers.len()
        );
        answers.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(())
    }

    /// Receives at least one message, or fails when patience ends.
    pub(super) async fn receive(&self, consumer: &Arc<dyn Consumer>, max: usize) -> Checked<Vec<Delivery>> {
        let deliveries = self.receive_within(consumer, max, self.timing.patience).await??;
        ensure!(!deliveries.is_empty(), "no message came within {:?}", self.timing.patience);
        ensure!(deliveries.len() <= max, "{} messages came and {max} were asked for", deliveries.len());
        Ok(deliveries)
    }

    /// Receives exactly one message.
    pub(super) async fn receive_one(&self, consumer: &Arc<dyn Consumer>) -> Checked<Delivery> {
        only(self.receive(consumer, 1).await?)
    }

    /// Receives until `count` messages are there.
    pub(super) async fn receive_all(
        &self,
        consumer: &Arc<dyn Consumer>,
        count: usize,
    ) -> Checked<Vec<Delivery>> {
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(self.receive(consumer, count - all.len()).await?);
        }
        Ok(all)
    }

    /// Receives nothing for a moment, or fails.
    pub(super) async fn receive_nothing(&self, consumer: &Arc<dyn Consumer>, why: &str) -> Checked {
        self.receive_nothing_for(consumer, self.timing.moment, why).await
    }

    /// Receives nothing for some time, or fails.
    pub(super) async fn receive_nothing_for(
        &self,
        consumer: &Arc<dyn Consumer>,
        time: Duration,
        why: &str,
    ) -> Checked {
        let deliveries = self.receive_within(consumer, 10, time).await??;
        ensure!(deliveries.is_empty(), "{:?} came although {why}", texts(&deliveries));
        Ok(())
    }

    /// Receives with `stop` fired after `time`, as the pump does: the future is never dropped.
    pub(super) async fn receive_within(
        &self,
        consumer: &Arc<dyn Consumer>,
        max: usize,
        time: Duration,
    ) -> Checked<Result<Vec<Delivery>>> {
        let stop = CancellationToken::new();
        let mut receive = consumer.receive(max, &stop);
        tokio::select! {
            answer = &mut receive => return Ok(answer),
            () = tokio::time::sleep(time) => stop.cancel(),
        }
        tokio::time::timeout(self.timing.patience, receive)
            .await
            .map_err(|_| Failure::new(format!("receive went on for {:?} after stop", self.timing.patience)))
    }

    /// Fails if `consumer` can get a message other than one that is sent now.
    pub(super) async fn expect_empty(&self, consumer: &Arc<dyn Consumer>, endpoint: &Endpoint) -> Checked {
        let marker = self.message(endpoint, "marker");
        let id = marker.envelope.id;
        self.send_one(marker).await?;
        let first = self.receive_one(consumer).await?;
        ensure!(first.envelope.id == id, "{:?} was still there", text(&first));
        settle(consumer, &first, Verdict::Complete).await?;
        Ok(())
    }

    pub(super) fn delay(&self) -> Checked<Arc<dyn Delay>> {
        self.powers.delay.clone().ok_or_else(|| Failure::new("the store has no delay"))
    }

    pub(super) fn fencing(&self) -> Checked<Arc<dyn Fencing>> {
        self.powers.fencing.clone().ok_or_else(|| Failure::new("the store has no fencing"))
    }

    pub(super) fn inspect(&self) -> Checked<Arc<dyn Inspect>> {
        self.powers.inspect.clone().ok_or_else(|| Failure::new("the store has no inspect"))
    }

    pub(super) fn readers(&self) -> Checked<Arc<dyn Readers>> {
        self.powers.readers.clone().ok_or_else(|| Failure::new("the store has no readers"))
    }

    pub(super) fn can_inspect(&self) -> bool {
        self.powers.inspect.is_some()
    }

    /// Whether a depth as it should be is told so; where the store does not tell states apart, what lives is one number.
    pub(super) fn is_told(&self, told: Depth, expected: Depth) -> bool {
        let living = |depth: Depth| (depth.ready + depth.in_flight + depth.delayed, depth.dead);
        match self.powers.rough_depth {
            true => living(told) == living(expected),
            false => told == expected,
        }
    }

    pub(super) fn can_delay(&self) -> bool {
        self.powers.delay.is_some()
    }

    /// How much is where.
    pub(super) async fn depth(&self, endpoint: &Endpoint) -> Checked<Depth> {
        Ok(self.inspect()?.depth(endpoint).await?)
    }

    /// All dead letters of an endpoint.
    pub(super) async fn dead(&self, endpoint: &Endpoint) -> Checked<Vec<DeadLetter>> {
        Ok(self.inspect()?.dead_letters(endpoint, None, 1000).await?)
    }
}

/// An envelope around a text, sent now.
pub(super) fn envelope(text: &str) -> Envelope {
    Envelope::new("conformance", text.to_owned(), Timestamp::from(std::time::SystemTime::now()))
}

/// Makes a message one whose time to live has long passed, whichever clock is asked.
pub(super) fn expire(envelope: &mut Envelope) {
    envelope.sent_at = Timestamp::from_micros(envelope.sent_at.as_micros() - 3_600_000_000);
    envelope.time_to_live = Some(Duration::from_secs(60));
}

/// The text of a message.
pub(super) fn text(delivery: &Delivery) -> String {
    String::from_utf8_lossy(&delivery.envelope.body).into_owned()
}

/// The texts of messages.
pub(super) fn texts(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(text).collect()
}

/// The ids of messages.
pub(super) fn ids(deliveries: &[Delivery]) -> Vec<MessageId> {
    deliveries.iter().map(|delivery| delivery.envelope.id).collect()
}

/// The one item that there must be.
pub(super) fn only<T>(items: Vec<T>) -> Checked<T> {
    let count = items.len();
    let mut items = items.into_iter();
    match (items.next(), items.next()) {
        (Some(item), None) => Ok(item),
        _ => Err(Failure::new(format!("{count} answers where there should be one"))),
    }
}

/// Settles one claim; fails if the answer is an error.
pub(super) async fn settle(consumer: &Arc<dyn Consumer>, delivery: &Delivery, verdict: Verdict) -> Checked {
    Ok(try_settle(consumer, &delivery.receipt, verdict).await??)
}

/// Settles one claim and gives back the answer.
pub(super) async fn try_settle(
    consumer: &Arc<dyn Consumer>,
    receipt: &Receipt,
    verdict: Verdict,
) -> Checked<Result<()>> {
    only(consumer.settle(vec![Settlement::new(receipt.clone(), verdict)]).await)
}

/// Extends one claim and gives back the answer.
pub(super) async fn try_extend(
    consumer: &Arc<dyn Consumer>,
    receipt: &mut Receipt,
    lease: Duration,
) -> Checked<Result<()>> {
    only(consumer.extend(std::slice::from_mut(receipt), lease).await)
}

/// A failed attempt that asks for another one after `after`.
pub(super) fn retry(after: Duration) -> Verdict {
    Verdict::Retry { after: Some(after), error: Error::new(ErrorKind::Handler, "it did not work") }
}

/// Giving up on a message.
pub(super) fn dead_letter(reason: &str) -> Verdict {
    let error = Some(Error::new(ErrorKind::Handler, "it will never work"));
    Verdict::DeadLetter { reason: reason.to_owned(), error }
}

/// Fails unless the answer is an error of that kind.
pub(super) fn expect_kind<T>(answer: Result<T>, kind: ErrorKind, what: &str) -> Checked {
    match answer {
        Ok(_) => Err(Failure::new(format!("{what} was accepted, and should have been answered {kind:?}"))),
        Err(error) if error.kind() == kind => Ok(()),
        Err(error) => {
            Err(Failure::new(format!("{what} was answered {error:?}, and should have been {kind:?}")))
        }
    }
}
