//! Runs a history of steps on a store and on the model, and compares every answer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::bench::{Bench, LONG, dead_letter, expire, only, retry, texts};
use super::step::{Pick, Step};
use crate::conformance::case::ensure;
use crate::conformance::model::{ClaimNo, Counts, End, MessageNo, Model, Wait};
use crate::conformance::{Checked, Failure};
use crate::contract::{
    Consumer, ConsumerSpec, Due, Fence, FenceClaim, FenceGuard, LockId, Outgoing, Placed, PutBack, Raised,
    Settlement,
};
use crate::error::{ErrorKind, Result};
use crate::message::{Delivery, Endpoint, MessageId, Receipt, Verdict};
use crate::settings::Order;

/// How the queue of a history is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// By two hosts at once.
    Plain,
    /// By two hosts in strict order.
    Strict,
    /// By one term after the other.
    Singleton,
}

/// A claim as the store gave it out.
struct Claim {
    receipt: Receipt,
    reader: usize,
}

/// A store and the model, side by side.
pub(super) struct Machine<'b> {
    bench: &'b Bench,
    reader: Reader,
    queue: Arc<Endpoint>,
    readers: Vec<Arc<dyn Consumer>>,
    model: Model,
    numbers: HashMap<MessageId, MessageNo>,
    message_ids: Vec<MessageId>,
    placed: Vec<Option<Placed>>,
    claims: Vec<Claim>,
    fence: u64,
}

impl<'b> Machine<'b> {
    pub(super) async fn open(bench: &'b Bench, reader: Reader, name: &str) -> Checked<Self> {
        let queue = bench.queue(name).await?;
        let order = if reader == Reader::Strict { Order::Strict } else { Order::Relaxed };
        let mut machine = Machine {
            bench,
            reader,
            queue,
            readers: Vec::new(),
            model: Model::new(order),
            numbers: HashMap::new(),
            message_ids: Vec::new(),
            placed: Vec::new(),
            claims: Vec::new(),
            fence: 0,
        };
        if reader == Reader::Singleton {
            machine.new_term().await?;
        } else {
            let spec = ConsumerSpec::new(Arc::clone(&machine.queue), LONG).ordered(order);
            machine.readers =
                vec![bench.host.consumer(spec.clone()).await?, bench.other_host.consumer(spec).await?];
        }
        Ok(machine)
    }

    pub(super) async fn run(&mut self, step: &Step) -> Checked {
        match step {
            Step::Send { count, wait, expired } => self.send(*count, *wait, *expired).await,
            Step::SendGuarded { in_force } => self.send_guarded(*in_force).await,
            Step::Receive { reader, max } => self.receive(reader % self.readers.len(), *max).await,
            Step::Settle { picks, with_outgoing } => self.settle(picks, *with_outgoing).await,
            Step::Extend { picks } => self.extend(picks).await,
            Step::Lapse { pick } => self.lapse(*pick).await,
            Step::RecordAlone { pick } => self.record_alone(*pick).await,
            Step::Cancel { pick } => self.cancel(*pick).await,
            Step::PutBack { pick } => self.put_back(*pick).await,
            Step::PassTime => self.pass_time().await,
            Step::NewTerm if self.reader == Reader::Singleton => self.new_term().await,
            Step::NewTerm => Ok(()),
            Step::LookAtDepth => self.look_at_depth().await,
        }
    }

    /// At the end everything that is left comes out, and everything is where it should be.
    pub(super) async fn finish(&mut self) -> Checked {
        self.pass_time().await?;
        for claim in self.model.alive() {
            self.lapse_claim(claim).await?;
        }
        let last = self.readers.len() - 1;
        while self.model.must_deliver() {
            self.receive(last, 10).await?;
            for claim in self.model.alive() {
                self.settle_claims(&[(claim, End::Complete)], false).await?;
            }
        }
        self.receive(last, 10).await?;
        self.model.expire_all();
        if self.bench.can_inspect() {
            self.until_the_expired_are_dead(last).await?;
            self.look_at_depth().await?;
        }
        Ok(())
    }

    /// What is past its time to live is found by those who claim, in strict order one at a time.
    async fn until_the_expired_are_dead(&mut self, reader: usize) -> Checked {
        let begun = tokio::time::Instant::now();
        while let Err(failure) = self.look_at_the_dead().await {
            if begun.elapsed() > self.bench.timing.patience {
                return Err(failure);
            }
            self.receive(reader, 10).await?;
        }
        Ok(())
    }

    fn moment(&self) -> Duration {
        self.bench.timing.moment
    }

    fn known(&mut self, id: MessageId, number: MessageNo, placed: Option<Placed>) {
        self.numbers.insert(id, number);
        self.message_ids.push(id);
        self.placed.push(placed);
    }

    async fn send(&mut self, count: usize, wait: Wait, expired: bool) -> Checked {
        let wait = if self.bench.can_delay() { wait } else { Wait::No };
        let due = match wait {
            Wait::No => None,
            Wait::Short => Some(Due::In(self.moment())),
            Wait::Long => Some(Due::In(LONG)),
        };
        let batch: Vec<Outgoing> = (0..count)
            .map(|_| {
                let mut message = self.bench.message(&self.queue, "of a history").due(due);
                if expired {
                    expire(&mut message.envelope);
                }
                message
            })
            .collect();
        let sent: Vec<_> = batch.iter().map(|message| message.envelope.id).collect();
        let answers = self.bench.host.sender().send(batch).await;
        ensure!(answers.len() == count, "{count} messages were sent and {} answers came", answers.len());
        for (id, answer) in sent.into_iter().zip(answers) {
            let placed = answer?;
            let number = self.model.sent(wait, expired);
            self.known(id, number, Some(placed));
        }
        Ok(())
    }

    async fn send_guarded(&mut self, in_force: bool) -> Checked {
        if self.reader != Reader::Singleton {
            return Ok(());
        }
        let fence = Fence::new(if in_force { self.fence } else { self.fence - 1 });
        let guard = FenceGuard { endpoint: Arc::clone(&self.queue), fence };
        let message = self.bench.message(&self.queue, "guarded").guarded(Some(guard));
        let id = message.envelope.id;
        let answer = only(self.bench.host.sender().send(vec![message]).await)?;
        match (in_force, answer) {
            (true, Ok(placed)) => {
                let number = self.model.sent(Wait::No, false);
                self.known(id, number, Some(placed));
                Ok(())
            }
            (false, Err(error)) if error.kind() == ErrorKind::TermLost => Ok(()),
            (_, answer) => Err(Failure::new(format!(
                "with fence {} in force, a send under {fence} was answered {answer:?}",
                self.fence
            ))),
        }
    }

    async fn receive(&mut self, reader: usize, max: usize) -> Checked {
        let must = self.model.must_deliver();
        let consumer = Arc::clone(&self.readers[reader]);
        let time = if must { self.bench.timing.patience } else { self.moment() };
        let answer = self.bench.receive_within(&consumer, max, time).await?;
        if self.is_outdated(reader) {
            return expect_term_lost(answer.map(drop), "a receive");
        }
        let deliveries = answer?;
        ensure!(deliveries.len() <= max, "{} came and {max} were asked for", deliveries.len());
        ensure!(!must || !deliveries.is_empty(), "nothing was delivered, and {:?}", self.model);
        for delivery in deliveries {
            self.delivered(reader, delivery)?;
        }
        Ok(())
    }

    fn delivered(&mut self, reader: usize, delivery: Delivery) -> Checked {
        let Some(number) = self.numbers.get(&delivery.envelope.id) else {
            return Err(Failure::new(format!("{:?} came and was never sent", texts(&[delivery]))));
        };
        let told = Counts {
            claims: delivery.delivery_count,
            failures: delivery.failures,
            crashes: delivery.crashes,
            crashed_alone: delivery.crashed_alone,
        };
        self.model.delivered(*number, told).map_err(Failure::new)?;
        self.claims.push(Claim { receipt: delivery.receipt, reader });
        Ok(())
    }

    /// The claim that is meant, if there is any.
    fn picked(&self, pick: Pick) -> Option<ClaimNo> {
        let claims = if pick.alive { self.model.alive() } else { (0..self.claims.len()).collect() };
        (!claims.is_empty()).then(|| claims[pick.number % claims.len()])
    }

    /// The claims that are meant, as far as they are of the same reader as the first.
    fn picked_together(&self, picks: impl Iterator<Item = Pick>) -> Vec<Option<ClaimNo>> {
        let claims: Vec<_> = picks.map(|pick| self.picked(pick)).collect();
        let reader = claims.iter().flatten().next().map(|claim| self.claims[*claim].reader);
        let same = |claim: &ClaimNo| Some(self.claims[*claim].reader) == reader;
        claims.into_iter().map(|claim| claim.filter(same)).collect()
    }

    fn is_outdated(&self, reader: usize) -> bool {
        self.reader == Reader::Singleton && reader + 1 < self.readers.len()
    }

    async fn settle(&mut self, picks: &[(Pick, End)], with_outgoing: bool) -> Checked {
        let claims = self.picked_together(picks.iter().map(|(pick, _)| *pick));
        let ends: Vec<_> =
            claims.into_iter().zip(picks).filter_map(|(claim, (_, end))| Some((claim?, *end))).collect();
        self.settle_claims(&ends, with_outgoing).await
    }

    async fn settle_claims(&mut self, ends: &[(ClaimNo, End)], with_outgoing: bool) -> Checked {
        let Some((first, _)) = ends.first() else { return Ok(()) };
        let reader = self.claims[*first].reader;
        let mut carried = Vec::new();
        let mut settlements = Vec::new();
        for (claim, end) in ends {
            let receipt = self.claims[*claim].receipt.clone();
            let mut settlement = Settlement::new(receipt, self.verdict(*end));
            if with_outgoing {
                settlement.outgoing = vec![self.bench.message(&self.queue, "carried")];
            }
            carried.push(settlement.outgoing.iter().map(|message| message.envelope.id).collect::<Vec<_>>());
            settlements.push(settlement);
        }
        let answers = self.readers[reader].settle(settlements).await;
        ensure!(answers.len() == ends.len(), "{} settlements had {} answers", ends.len(), answers.len());
        for (((claim, end), answer), carried) in ends.iter().zip(answers).zip(carried) {
            if self.is_outdated(reader) {
                expect_term_lost(answer, "a settlement")?;
            } else if self.model.settled(*claim, *end, is_ours(answer)?).map_err(Failure::new)? {
                for id in carried {
                    let number = self.model.sent_beside();
                    self.known(id, number, None);
                }
            }
        }
        Ok(())
    }

    fn verdict(&self, end: End) -> Verdict {
        match end {
            End::Complete => Verdict::Complete,
            End::Retry(Wait::No) => retry(Duration::ZERO),
            End::Retry(Wait::Short) => retry(self.moment()),
            End::Retry(Wait::Long) => retry(LONG),
            End::DeadLetter => dead_letter("given up in a history"),
            End::Release => Verdict::Release,
        }
    }

    async fn extend(&mut self, picks: &[Pick]) -> Checked {
        let mut claims: Vec<_> = self.picked_together(picks.iter().copied()).into_iter().flatten().collect();
        // An extension may change a receipt: the same one twice in a call has no meaning.
        let mut seen = std::collections::HashSet::new();
        claims.retain(|claim| seen.insert(*claim));
        let Some(first) = claims.first() else { return Ok(()) };
        let reader = self.claims[*first].reader;
        let mut receipts: Vec<_> = claims.iter().map(|claim| self.claims[*claim].receipt.clone()).collect();
        let answers = self.readers[reader].extend(&mut receipts, LONG).await;
        ensure!(answers.len() == claims.len(), "{} claims had {} answers", claims.len(), answers.len());
        for ((claim, receipt), answer) in claims.into_iter().zip(receipts).zip(answers) {
            self.claims[claim].receipt = receipt;
            if self.is_outdated(reader) {
                expect_term_lost(answer, "an extension")?;
            } else {
                self.model.extended(claim, is_ours(answer)?).map_err(Failure::new)?;
            }
        }
        Ok(())
    }

    async fn lapse(&mut self, pick: Pick) -> Checked {
        match self.picked(Pick { alive: true, ..pick }) {
            Some(claim) => self.lapse_claim(claim).await,
            None => Ok(()),
        }
    }

    /// Lets a living claim run out: its lease is cut short, since a long one would take its time.
    async fn lapse_claim(&mut self, claim: ClaimNo) -> Checked {
        let moment = self.moment();
        let Claim { receipt, reader } = &mut self.claims[claim];
        let answers = self.readers[*reader].extend(std::slice::from_mut(receipt), moment).await;
        only(answers)??;
        tokio::time::sleep(moment * 2).await;
        self.model.lapsed(claim);
        Ok(())
    }

    async fn record_alone(&mut self, pick: Pick) -> Checked {
        let Some(claim) = self.picked(pick) else { return Ok(()) };
        let Claim { receipt, reader } = &self.claims[claim];
        let answer = self.readers[*reader].record_alone(receipt).await;
        if self.is_outdated(*reader) {
            return expect_term_lost(answer, "a recorded lone run");
        }
        self.model.recorded_alone(claim, is_ours(answer)?).map_err(Failure::new)
    }

    async fn cancel(&mut self, pick: usize) -> Checked {
        if !self.bench.can_delay() || self.placed.is_empty() {
            return Ok(());
        }
        let number = pick % self.placed.len();
        let Some(placed) = &self.placed[number] else { return Ok(()) };
        let taken_back = self.bench.delay()?.cancel(placed, None).await?;
        self.model.cancelled(number, taken_back).map_err(Failure::new)
    }

    async fn put_back(&mut self, pick: usize) -> Checked {
        let dead = self.model.dead();
        if !self.bench.can_inspect() || dead.is_empty() {
            return Ok(());
        }
        let number = dead[pick % dead.len()];
        let id = self.message_ids[number];
        let answer = self.bench.inspect()?.put_back(&self.queue, &[id]).await?;
        ensure!(answer == [(id, PutBack::Done)], "putting back dead message {number} answered {answer:?}");
        self.model.put_back(number);
        Ok(())
    }

    async fn pass_time(&mut self) -> Checked {
        tokio::time::sleep(self.moment() * 2).await;
        self.model.time_passed();
        Ok(())
    }

    async fn new_term(&mut self) -> Checked {
        self.fence += 1;
        let fence = Fence::new(self.fence);
        let lock = LockId::from("queue/history");
        let claim = FenceClaim::new(Arc::clone(&self.queue), "conformance:", &lock, fence, LONG);
        let raised = self.bench.fencing()?.raise(claim).await?;
        ensure!(raised == Raised::Raised, "raising to {fence} was answered {raised:?}");
        self.model.term_began();
        let host = if self.fence.is_multiple_of(2) { &self.bench.host } else { &self.bench.other_host };
        let spec = ConsumerSpec::new(Arc::clone(&self.queue), LONG).fenced(fence, LONG);
        self.readers.push(host.consumer(spec).await?);
        Ok(())
    }

    async fn look_at_depth(&self) -> Checked {
        if !self.bench.can_inspect() {
            return Ok(());
        }
        let Some(expected) = self.model.depth() else { return Ok(()) };
        let depth = self.bench.depth(&self.queue).await?;
        ensure!(
            self.bench.is_told(depth, expected),
            "the depth is told as {depth:?}, and should be {expected:?}"
        );
        Ok(())
    }

    async fn look_at_the_dead(&self) -> Checked {
        let letters = self.bench.dead(&self.queue).await?;
        let mut told: Vec<_> = letters.iter().map(|letter| letter.envelope.id).collect();
        let mut expected: Vec<_> =
            self.model.dead().into_iter().map(|number| self.message_ids[number]).collect();
        told.sort();
        expected.sort();
        ensure!(told == expected, "{} letters are dead, and {} should be", told.len(), expected.len());
        Ok(())
    }
}

/// Whether a claim was answered as ours; an error other than its loss fails.
fn is_ours(answer: Result<()>) -> Checked<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::ReceiptLost => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn expect_term_lost(answer: Result<()>, what: &str) -> Checked {
    super::bench::expect_kind(answer, ErrorKind::TermLost, &format!("{what} of a former term"))
}
