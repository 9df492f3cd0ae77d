//! Ending, extending and marking claims. Everything names the claim: the message's number and the claim's.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use redis::Value;

use super::answer::{items, next, number, text, unfenced};
use super::client::Client;
use super::doubts::{Batch, ClaimKey, Doubts};
use super::error::{Lost, receipt_lost, term_lost, unexpected};
use super::fence::{Term, micros};
use super::keys::Place;
use super::script::{ALONE, EXTEND, Invocation, SETTLE, Script};
use super::send::{add_conditions, encode};
use crate::contract::{Fence, Outgoing, Settlement, item_by_item};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Receipt, Verdict};

/// How many claims one call of a script ends or extends at most, and with how many bytes to be sent.
const MOST_CLAIMS: usize = 1000;
const MOST_BYTES: usize = 4 << 20;

/// What the claims of a consumer have in common.
#[derive(Debug)]
pub(super) struct Claims {
    pub(super) place: Place,
    pub(super) term: Option<Term>,
    /// Whether the consumer reads in strict order.
    pub(super) strict: bool,
    /// Settlements that were asked for and whose answers have not come.
    pub(super) doubts: Doubts,
}

impl Claims {
    fn fence(&self) -> Option<Fence> {
        self.term.map(|term| term.fence)
    }

    fn call(&self, script: &'static Script) -> Invocation {
        let fence = self.fence().map(|fence| fence.to_string()).unwrap_or_default();
        Invocation::new(script, vec![self.place.base.clone()]).with(fence)
    }
}

/// Ends claims, each answered for.
pub(super) async fn settle(
    client: &Client,
    claims: &Claims,
    settlements: Vec<Settlement>,
) -> Vec<Result<()>> {
    let mut answers = Vec::with_capacity(settlements.len());
    let mut rest = settlements.as_slice();
    while !rest.is_empty() {
        let (part, later) = rest.split_at(how_many(rest));
        answers.extend(item_by_item(part.len(), settle_part(client, claims, part).await));
        rest = later;
    }
    answers
}

/// How many of these one call takes: one at least.
fn how_many(settlements: &[Settlement]) -> usize {
    let mut bytes = 0usize;
    let fits = |settlement: &&Settlement| {
        let sent = settlement.outgoing.iter().map(|message| message.envelope.body.len()).sum::<usize>();
        bytes = bytes.saturating_add(sent);
        bytes <= MOST_BYTES
    };
    settlements.iter().take(MOST_CLAIMS).take_while(fits).count().max(1)
}

async fn settle_part(client: &Client, claims: &Claims, part: &[Settlement]) -> Result<Vec<Result<()>>> {
    let keys: Vec<ClaimKey> = part.iter().map(|one| key(&one.receipt)).collect();
    let batch = claims.doubts.begin();
    let question = Question::new(client, claims, part, batch, claims.doubts.about(&keys));
    match client.run(&question.call, Lost::Again).await {
        Ok(answer) => {
            let settled = question.read(claims, answer);
            claims.doubts.answered(batch, &keys);
            settled
        }
        Err(failure) => {
            claims.doubts.unanswered(batch, keys);
            Err(failure)
        }
    }
}

fn key(receipt: &Receipt) -> ClaimKey {
    (receipt.row(), receipt.claim())
}

/// Settlements as a call, in the order in which it asks for them.
struct Question<'p> {
    part: &'p [Settlement],
    call: Invocation,
    /// Those that complete a message and send nothing, by their claims.
    completed: Vec<usize>,
    /// All others, and why some of them cannot send what they would.
    others: Vec<(usize, Option<Error>)>,
    /// Batches in doubt that had some of these settlements too.
    former: Vec<Batch>,
}

impl<'p> Question<'p> {
    fn new(
        client: &Client,
        claims: &Claims,
        part: &'p [Settlement],
        batch: Batch,
        former: Vec<Batch>,
    ) -> Self {
        let mut call = claims
            .call(&SETTLE)
            .with(u8::from(claims.strict))
            .with(batch.record)
            .with(batch.number)
            .with(claims.doubts.kept_for().as_millis())
            .with(former.len());
        for batch in &former {
            call.add(batch.record);
            call.add(batch.number);
        }
        let (by_claim, others) = sorted(part);
        let mut completed = Vec::with_capacity(part.len());
        call.add(by_claim.len());
        for (claim, messages) in by_claim {
            call.add(claim);
            call.add(messages.len());
            for (row, position) in messages {
                call.add(row);
                completed.push(position);
            }
        }
        let add = |position: usize| (position, add_settlement(&mut call, client, &part[position]));
        let others = others.into_iter().map(add).collect();
        Question { part, call, completed, others, former }
    }

    /// Reads the answer, in the order of the settlements.
    fn read(self, claims: &Claims, answer: Value) -> Result<Vec<Result<()>>> {
        let part = self.part;
        let mut answer = unfenced(answer, claims.fence())?;
        let mut answers: Vec<Result<()>> = part.iter().map(|_| Ok(())).collect();
        for lost in items(next(&mut answer)?)? {
            let place = number::<usize>(lost)?.checked_sub(1).and_then(|place| self.completed.get(place));
            answers[*place.ok_or_else(|| unexpected("a place where nothing was completed"))?] =
                Err(receipt_lost());
        }
        let mut outcomes = items(next(&mut answer)?)?;
        for (position, refusal) in self.others {
            let outcome = outcome_of(next(&mut outcomes)?, &part[position])?;
            answers[position] = outcome.and(refusal.map_or(Ok(()), Err));
        }
        for (batch, record) in self.former.into_iter().zip(items(next(&mut answer)?)?) {
            let Some(not_ended) = read_record(record)? else { continue };
            for (one, answer) in part.iter().zip(&mut answers) {
                let is_lost = matches!(answer, Err(error) if error.kind() == ErrorKind::ReceiptLost);
                if is_lost && claims.doubts.was_ended(key(&one.receipt), batch, &not_ended) {
                    *answer = Ok(());
                }
            }
        }
        Ok(answers)
    }
}

/// What is completed, as rows and positions in ascending order by claim, and the positions of everything else.
fn sorted(part: &[Settlement]) -> (BTreeMap<u64, BTreeMap<u64, usize>>, Vec<usize>) {
    let mut times = HashMap::with_capacity(part.len());
    for one in part {
        *times.entry(key(&one.receipt)).or_insert(0) += 1;
    }
    let (mut by_claim, mut others) = (BTreeMap::<u64, BTreeMap<u64, usize>>::new(), Vec::new());
    for (position, one) in part.iter().enumerate() {
        let (row, claim) = key(&one.receipt);
        let is_plain = matches!(one.verdict, Verdict::Complete) && one.outgoing.is_empty();
        // Of two settlements of one claim the first counts, whatever they are.
        if is_plain && times.get(&(row, claim)) == Some(&1) {
            by_claim.entry(claim).or_default().insert(row, position);
        } else {
            others.push(position);
        }
    }
    (by_claim, others)
}

/// What a former batch has not ended; `None` if it was not done, or nobody knows any more.
fn read_record(record: Value) -> Result<Option<HashSet<ClaimKey>>> {
    if record == Value::Nil {
        return Ok(None);
    }
    let read = |claim: &str| {
        let (row, claim) = claim.split_once(':')?;
        Some((row.parse().ok()?, claim.parse().ok()?))
    };
    let record = text(record)?;
    let claims: Option<_> = record.split_whitespace().map(read).collect();
    claims.map(Some).ok_or_else(|| unexpected("no record of a batch"))
}

/// Adds a settlement to a call. One that would send what cannot be sent only asks whether the claim is ours: answers why
/// it cannot.
fn add_settlement(call: &mut Invocation, client: &Client, settlement: &Settlement) -> Option<Error> {
    let Settlement { receipt, verdict, outgoing } = settlement;
    let bodies: Result<Vec<Vec<u8>>> =
        outgoing.iter().map(|message| encode(message, client.max_body)).collect();
    call.add(receipt.row());
    call.add(receipt.claim());
    let bodies = match bodies {
        Ok(bodies) => bodies,
        Err(refusal) => {
            for argument in ["check", "", "", "0"] {
                call.add(argument);
            }
            return Some(refusal);
        }
    };
    add_verdict(call, verdict);
    call.add(outgoing.len());
    for (message, bytes) in outgoing.iter().zip(bodies) {
        add_outgoing(call, client, message, bytes);
    }
    None
}

fn add_verdict(call: &mut Invocation, verdict: &Verdict) {
    let (word, first, second) = match verdict {
        Verdict::Complete => ("complete", String::new(), String::new()),
        Verdict::Retry { after, error } => {
            ("retry", micros(after.unwrap_or_default()).to_string(), error.with_causes())
        }
        Verdict::DeadLetter { reason, error } => {
            ("dead", reason.clone(), error.as_ref().map(Error::with_causes).unwrap_or_default())
        }
        Verdict::Release => ("release", String::new(), String::new()),
    };
    call.add(word);
    call.add(first);
    call.add(second);
}

fn add_outgoing(call: &mut Invocation, client: &Client, message: &Outgoing, bytes: Vec<u8>) {
    let (kind, key) = client.keys.target(&message.target);
    let key = call.key(key);
    call.add(kind);
    call.add(key);
    add_conditions(call, client, message);
    call.add_bytes(bytes);
}

fn outcome_of(outcome: Value, settlement: &Settlement) -> Result<Result<()>> {
    Ok(match outcome {
        Value::Int(1) => Ok(()),
        Value::Int(_) => Err(receipt_lost()),
        in_force => {
            let guard = settlement.outgoing.iter().find_map(|message| message.guard.as_ref());
            let guard = guard.ok_or_else(|| unexpected("a fence where none was asked for"))?;
            Err(term_lost(guard.fence, &text(in_force)?))
        }
    })
}

/// Makes claims last `lease` from now on, each answered for.
pub(super) async fn extend(
    client: &Client,
    claims: &Claims,
    receipts: &[Receipt],
    lease: Duration,
) -> Vec<Result<()>> {
    let mut answers = Vec::with_capacity(receipts.len());
    for part in receipts.chunks(MOST_CLAIMS) {
        answers.extend(item_by_item(part.len(), extend_part(client, claims, part, lease).await));
    }
    answers
}

async fn extend_part(
    client: &Client,
    claims: &Claims,
    part: &[Receipt],
    lease: Duration,
) -> Result<Vec<Result<()>>> {
    let lock_lease = claims.term.map_or(0, |term| micros(term.lock_lease));
    let mut call = claims.call(&EXTEND).with(lock_lease).with(micros(lease));
    for receipt in part {
        call.add(receipt.row());
        call.add(receipt.claim());
    }
    let mut answer = unfenced(client.run(&call, Lost::Again).await?, claims.fence())?;
    let outcomes: Vec<Result<()>> = items(next(&mut answer)?)?.map(found).collect::<Result<_>>()?;
    if outcomes.len() == part.len() {
        Ok(outcomes)
    } else {
        Err(unexpected("another number of answers than of claims"))
    }
}

/// Records that a claim's run is made alone.
pub(super) async fn record_alone(client: &Client, claims: &Claims, receipt: &Receipt) -> Result<()> {
    let call = claims.call(&ALONE).with(receipt.row()).with(receipt.claim());
    let mut answer = unfenced(client.run(&call, Lost::Again).await?, claims.fence())?;
    found(next(&mut answer)?)?
}

/// Whether a claim was ours.
fn found(answer: Value) -> Result<Result<()>> {
    Ok(if number::<u8>(answer)? == 1 { Ok(()) } else { Err(receipt_lost()) })
}
