//! A consumer of one endpoint: receiving. What becomes of the claims is in `settle`.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::body;
use super::claims::{Claim, Claims, GIVEN_BACK, Told, not_for};
use super::client::{Ask, Client, PAUSES};
use super::counts::Record;
use super::durable::{self, Durable, Wanted};
use super::error::{Lost, closed};
use super::fence::Term;
use super::jetstream::Written;
use super::pull::{Got, Pulled};
use super::record::{NO_RECORD, Recorded};
use super::send::Post;
use crate::clock::Timestamp;
use crate::contract::{BoxFuture, Consumer, ConsumerSpec, Settlement};
use crate::error::{ErrorKind, Result};
use crate::message::{Delivery, MessageId, Receipt};
use crate::settings::Order;

/// How long one pull waits at the server, so that its answer is a sign of life: ten idle consumers ask four times a second
/// in all. nats-server 2.9 does not always tell a pull that its consumer is gone; together with how late an answer may be,
/// this is how soon that is noticed, which must be less than five seconds. A shorter lease makes it shorter, since a claim
/// may have begun when the pull did.
const WAIT: Duration = Duration::from_millis(2500);
/// The same for the first pull, and the first after a loss: what has just been made may be gone again.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// How many messages are claimed at once at most.
const MOST_MESSAGES: usize = 1000;
/// How long a singleton waits for plain hosts that are still at work, before it goes over their heads.
const COURTESY: Duration = Duration::from_secs(60);
/// After so many pulls that brought nothing, the consumer is looked after.
const LOOKED_AFTER: usize = 12;
/// How long it is believed that no message has a record. Who had a message under a former consumer may still write one.
const RECORDLESS: Duration = Duration::from_secs(1);
/// The pause before a consumer that was lost is made again.
const AFTER_LOSS: Duration = Duration::from_millis(200);

/// What a consumer is.
pub(super) struct Reader {
    pub(super) client: Arc<Client>,
    pub(super) spec: ConsumerSpec,
    pub(super) term: Option<Term>,
    pub(super) claims: Claims,
    pub(super) post: Post,
    durable: Mutex<Option<Durable>>,
    opened: Instant,
    /// How many pulls have brought nothing.
    fruitless: AtomicUsize,
    /// Until when it is known that no message of the endpoint has a record.
    recordless_until: Mutex<Option<Instant>>,
    /// The largest message of the last pulls, in bytes; 0 before the first.
    largest: AtomicUsize,
}

pub(super) struct NatsConsumer(Reader);

impl NatsConsumer {
    pub(super) fn new(client: Arc<Client>, max_body: usize, spec: ConsumerSpec) -> Self {
        NatsConsumer(Reader {
            largest: AtomicUsize::new(0),
            recordless_until: Mutex::default(),
            post: Post { client: Arc::clone(&client), max_body },
            term: Term::of(&spec),
            client,
            spec,
            claims: Claims::default(),
            durable: Mutex::default(),
            opened: Instant::now(),
            fruitless: AtomicUsize::new(0),
        })
    }
}

impl Reader {
    async fn receive(&self, max: usize, stop: &CancellationToken) -> Result<Vec<Delivery>> {
        let max = max.clamp(1, MOST_MESSAGES);
        let mut pauses = PAUSES;
        let mut looked = false;
        loop {
            if stop.is_cancelled() {
                return Ok(Vec::new());
            }
            // An outage is told once, by the call that it hits. After that it is waited out here.
            tokio::select! {
                () = stop.cancelled() => return Ok(Vec::new()),
                up = self.client.up() => up?,
            }
            if let Some(term) = &self.term {
                term.keep(&self.client, &self.spec.endpoint).await?;
            }
            let Some(durable) = self.durable().await? else {
                tokio::select! {
                    () = stop.cancelled() => return Ok(Vec::new()),
                    () = self.client.closed().cancelled() => return Err(closed()),
                    () = tokio::time::sleep(pauses.next()) => continue,
                }
            };
            let pulled = self.pull(&durable, (max, looked), stop).await?;
            looked = true;
            let deliveries = self.claim_all(&durable, pulled).await?;
            if !deliveries.is_empty() {
                return Ok(deliveries);
            }
        }
    }

    /// What is there now; if that has been looked for, the next that comes, or nothing after a while.
    async fn pull(
        &self,
        durable: &Durable,
        (max, looked): (usize, bool),
        stop: &CancellationToken,
    ) -> Result<Vec<Pulled>> {
        // In strict order the server keeps who asks waiting, as long as something is in flight.
        let got = if looked || self.spec.order == Order::Strict {
            let within = WAIT.min(self.spec.lease.min(durable.ack_wait) / 4).max(Duration::from_millis(50));
            let within = self.term.as_ref().map_or(within, |term| within.min(term.patience()));
            let is_first = self.fruitless.load(Ordering::Relaxed) == 0;
            let within = if is_first { within.min(FIRST_WAIT) } else { within };
            self.client.pull_next(&durable.source, within, stop).await?
        } else {
            let largest = match self.largest.load(Ordering::Relaxed) {
                0 => self.client.max_payload(),
                known => known,
            };
            let fitting = self.spec.max_bytes / largest.max(1);
            self.client.pull_now(&durable.source, max.min(fitting.max(1))).await?
        };
        match got {
            Got::Messages(pulled) => {
                self.spec.pulse.beat(self.client.clock.now(), WAIT);
                if pulled.is_empty()
                    && self.fruitless.fetch_add(1, Ordering::Relaxed) % LOOKED_AFTER == LOOKED_AFTER - 1
                {
                    self.look_after(durable).await?;
                }
                let (fitting, rest) = self.divide(pulled, max);
                self.give_back(durable, rest).await;
                Ok(fitting)
            }
            Got::Gone => {
                self.lose_durable();
                self.fruitless.store(0, Ordering::Relaxed);
                // Its stream may be about to go, too: a consumer that is made in that moment is none.
                tokio::select! {
                    () = tokio::time::sleep(AFTER_LOSS) => {}
                    () = stop.cancelled() => {}
                }
                Ok(Vec::new())
            }
        }
    }

    /// Makes sure that what answers is a consumer that the server knows.
    async fn look_after(&self, durable: &Durable) -> Result<()> {
        if durable::info(&self.client, &durable.source, self.client.deadline()).await?.is_none() {
            self.lose_durable();
        }
        Ok(())
    }

    /// As much of what was pulled as one receive may give, and the rest. How many fit was guessed by the last ones' sizes;
    /// large ones are remembered for some pulls.
    fn divide(&self, mut pulled: Vec<Pulled>, max: usize) -> (Vec<Pulled>, Vec<Pulled>) {
        let bytes = |pulled: &Pulled| pulled.message.payload.len();
        if let Some(largest) = pulled.iter().map(bytes).max() {
            let before = self.largest.load(Ordering::Relaxed);
            self.largest.store(largest.max(before / 2).max(1), Ordering::Relaxed);
        }
        let mut taken = 0;
        let fitting = pulled.iter().take(max).take_while(|next| {
            let fits = taken < self.spec.max_bytes;
            taken += bytes(next);
            fits
        });
        let rest = pulled.split_off(fitting.count());
        (pulled, rest)
    }

    /// Gives back what nobody asked for: kept here its claims would run out, and count as crashes.
    async fn give_back(&self, durable: &Durable, rest: Vec<Pulled>) {
        let giving = rest.iter().map(|pulled| self.give_one_back(durable, pulled));
        for given in futures_util::future::join_all(giving).await {
            if let Err(error) = given {
                tracing::debug!(endpoint = %self.spec.endpoint, %error, "a message could not be given back, and comes back when its lease ends");
            }
        }
    }

    async fn give_one_back(&self, durable: &Durable, pulled: &Pulled) -> Result<()> {
        let told = pulled.told()?;
        // Delivered a second time although it is claimed: what it would be taken from is our own claim.
        if self.claims.hold(told.sequence, self.client.clock.now()) {
            return Ok(());
        }
        let before = self.what_is_known(durable, told, false).await?;
        if let Some(Recorded { record, .. }) = &before {
            let now = self.client.server_now(self.client.deadline()).await?;
            if self.passes_over(durable, told, record, pulled.reply(), now).await? {
                return Ok(());
            }
        }
        let claim = self.claim_on(durable, pulled, (told, MessageId::fresh()), before.as_ref());
        self.return_to_queue(&claim, claim.record.released(), GIVEN_BACK.to_vec()).await
    }

    /// A claim on what was pulled, as it is before anybody knows of it.
    fn claim_on(
        &self,
        durable: &Durable,
        pulled: &Pulled,
        (told, id): (Told, MessageId),
        before: Option<&Recorded>,
    ) -> Claim {
        let Pulled { message, asked_at } = pulled;
        Claim {
            id,
            sequence: told.sequence,
            reply: pulled.reply().to_owned(),
            until: *asked_at + self.spec.lease.min(durable.ack_wait),
            ack_wait: durable.ack_wait,
            record: Record::claimed(before.map(|b| &b.record), told.stored, &durable.epoch, told.nth),
            recorded: before.map(|before| before.revision),
            is_in_doubt: false,
            payload: message.payload.clone(),
        }
    }

    /// The server's consumer that is read from; `None` while it is not to be had.
    pub(super) async fn durable(&self) -> Result<Option<Durable>> {
        if let Some(durable) = self.durable.lock().clone() {
            return Ok(Some(durable));
        }
        let (client, endpoint) = (&self.client, &self.spec.endpoint);
        let wanted = Wanted { order: self.spec.order, lease: self.spec.lease };
        let until = client.deadline();
        let found = match &self.term {
            None => Some(durable::plain(client, endpoint, wanted, until).await?),
            Some(term) => {
                term.keep(client, endpoint).await?;
                let at_any_rate = self.opened.elapsed() > COURTESY;
                let found = durable::term(client, endpoint, term.fence, (wanted, at_any_rate), until).await?;
                // Somebody may have won after us, and have ended the terms before theirs when ours was not there yet.
                term.check(client, endpoint).await?;
                found
            }
        };
        self.durable.lock().clone_from(&found);
        Ok(found)
    }

    /// The server's consumer is gone, or another one.
    pub(super) fn lose_durable(&self) {
        *self.durable.lock() = None;
    }

    /// Makes claims of what was pulled.
    async fn claim_all(&self, durable: &Durable, pulled: Vec<Pulled>) -> Result<Vec<Delivery>> {
        if pulled.is_empty() {
            return Ok(Vec::new());
        }
        let now = self.client.server_now(self.client.deadline()).await?;
        let recordless = self.is_recordless(durable, &pulled).await?;
        let here = self.client.clock.now();
        let mut seen = HashSet::new();
        let is_new = |pulled: &&Pulled| {
            pulled
                .told()
                .is_ok_and(|told| seen.insert(told.sequence) && !self.claims.hold(told.sequence, here))
        };
        let claiming =
            pulled.iter().filter(is_new).map(|pulled| self.claim(durable, pulled, (now, recordless)));
        let mut deliveries = Vec::with_capacity(pulled.len());
        let mut failure = None;
        for claimed in futures_util::future::join_all(claiming).await {
            match claimed {
                Ok(delivery) => deliveries.extend(delivery),
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if deliveries.is_empty() => Err(error),
            Some(error) => {
                tracing::warn!(endpoint = %self.spec.endpoint, %error, "a message could not be claimed, and comes back when its lease ends");
                Ok(deliveries)
            }
            None => Ok(deliveries),
        }
    }

    /// A claim on what was pulled; `None` if there is nothing to be done about it (any more).
    async fn claim(
        &self,
        durable: &Durable,
        pulled: &Pulled,
        (now, recordless): (Timestamp, bool),
    ) -> Result<Option<Delivery>> {
        let (message, reply, told) = (&pulled.message, pulled.reply(), pulled.told()?);
        let before = self.what_is_known(durable, told, recordless).await?;
        if let Some(Recorded { record, .. }) = &before
            && self.passes_over(durable, told, record, reply, now).await?
        {
            return Ok(None);
        }
        let envelope = body::decode(&message.payload);
        let id = envelope.as_ref().map_or_else(MessageId::fresh, |envelope| envelope.id);
        let mut claim = self.claim_on(durable, pulled, (told, id), before.as_ref());
        let Some(envelope) = envelope else { return self.give_up(&claim, "unreadable").await };
        if envelope.is_expired(now) {
            return self.give_up(&claim, "expired").await;
        }
        if !self.write_down(&mut claim).await? || !self.take_for_its_lease(&mut claim).await? {
            return Ok(None);
        }
        Ok(Some(self.delivery(envelope, claim, pulled.asked_at)))
    }

    fn delivery(
        &self,
        envelope: crate::message::Envelope,
        claim: Claim,
        asked_at: crate::clock::BootInstant,
    ) -> Delivery {
        let Record { claims, failures, crashes, crashed_alone, .. } = claim.record;
        let receipt = self.claims.add(claim, self.client.clock.now());
        let mut delivery = Delivery::new(envelope, Arc::clone(&self.spec.endpoint), receipt);
        delivery.claimed_at = Some(asked_at);
        delivery.delivery_count = claims;
        delivery.failures = failures;
        delivery.crashes = crashes;
        delivery.crashed_alone = crashed_alone;
        delivery
    }

    /// Whether none of these has a record although another consumer may have delivered some of them, as it is with a backlog
    /// that nobody has read yet. Asked once for all of them, and not again for a while.
    async fn is_recordless(&self, durable: &Durable, pulled: &[Pulled]) -> Result<bool> {
        let is_old = |pulled: &Pulled| pulled.told().is_ok_and(|told| told.sequence <= durable.since);
        if self.term.is_some() || !pulled.iter().any(is_old) {
            return Ok(false);
        }
        let asked = Instant::now();
        if self.recordless_until.lock().is_some_and(|until| asked < until) {
            return Ok(true);
        }
        let (state, records) = (self.client.names.state(), self.client.names.records(&self.spec.endpoint));
        let first = self.client.next_of(&state, &records, 1, self.client.deadline()).await?;
        *self.recordless_until.lock() = first.is_none().then_some(asked + RECORDLESS);
        Ok(first.is_none())
    }

    /// The record of a message that may have one.
    async fn what_is_known(
        &self,
        durable: &Durable,
        told: Told,
        recordless: bool,
    ) -> Result<Option<Recorded>> {
        if told.nth == 1 && (told.sequence > durable.since || recordless) && self.term.is_none() {
            return Ok(None);
        }
        let (endpoint, until) = (&self.spec.endpoint, self.client.deadline());
        let found = self.client.recorded(endpoint, told.sequence, until).await?;
        // Numbers begin anew where a stream was made anew.
        Ok(found.filter(|found| found.record.of == told.stored))
    }

    /// Whether a message waits for its retry, which another consumer knew of: it is put off again.
    async fn passes_over(
        &self,
        durable: &Durable,
        told: Told,
        record: &Record,
        reply: &str,
        now: Timestamp,
    ) -> Result<bool> {
        let wait = record.due.map_or(Duration::ZERO, |due| Timestamp::from_micros(due).since(now));
        if record.open || record.epoch == durable.epoch || wait.is_zero() {
            return Ok(false);
        }
        let (endpoint, until) = (&self.spec.endpoint, self.client.deadline());
        let passed = record.passed_over(&durable.epoch, told.nth);
        self.client.record(endpoint, told.sequence, &passed, until).await?;
        self.client.ask(Ask::new(reply, not_for(wait)), until, Lost::Again).await?;
        Ok(true)
    }

    /// Buries what nobody is to be given.
    async fn give_up(&self, claim: &Claim, reason: &str) -> Result<Option<Delivery>> {
        self.bury(claim, (reason, None), claim.record.claims.saturating_sub(1)).await?;
        Ok(None)
    }

    /// Writes the claim down, where the server's own count does not do: it is lost with a term's consumer, and a message
    /// that had ended its last claim is at work again. `false` if somebody else has claimed it meanwhile.
    async fn write_down(&self, claim: &mut Claim) -> Result<bool> {
        if self.term.is_none() && claim.recorded.is_none() {
            return Ok(true);
        }
        let (endpoint, until) = (&self.spec.endpoint, self.client.deadline());
        let written = match &self.term {
            None => match self.client.record(endpoint, claim.sequence, &claim.record, until).await? {
                Written::As(revision) => Some(revision),
                Written::Conflict => None,
            },
            Some(_) => {
                let over = (&claim.record, claim.recorded.unwrap_or(NO_RECORD));
                self.client.record_over(endpoint, claim.sequence, over, |_| false, until).await?
            }
        };
        claim.recorded = written.or(claim.recorded);
        Ok(written.is_some())
    }

    /// Gives a claim the length that is wanted, where that is another than the server's.
    async fn take_for_its_lease(&self, claim: &mut Claim) -> Result<bool> {
        if self.spec.lease == claim.ack_wait {
            return Ok(claim.until > self.client.clock.now());
        }
        if claim.until <= self.client.clock.now() {
            return Ok(false);
        }
        let begun = self.client.clock.now();
        let ask = Ask::new(claim.reply.as_str(), not_for(self.spec.lease));
        match self.client.ask(ask, self.client.deadline(), Lost::Again).await? {
            Some(_) => {
                claim.until = begun + self.spec.lease;
                Ok(true)
            }
            None => Err(super::error::error(
                ErrorKind::Unavailable,
                "the consumer is gone, and its claims with it",
            )),
        }
    }
}

impl Consumer for NatsConsumer {
    fn receive<'a>(
        &'a self,
        max: usize,
        stop: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<Delivery>>> {
        Box::pin(self.0.receive(max, stop))
    }

    fn extend<'a>(&'a self, receipts: &'a mut [Receipt], lease: Duration) -> BoxFuture<'a, Vec<Result<()>>> {
        Box::pin(self.0.extend(receipts, lease))
    }

    fn settle(&self, settlements: Vec<Settlement>) -> BoxFuture<'_, Vec<Result<()>>> {
        Box::pin(self.0.settle(settlements))
    }

    fn record_alone<'a>(&'a self, receipt: &'a Receipt) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.0.record_alone(receipt))
    }
}
