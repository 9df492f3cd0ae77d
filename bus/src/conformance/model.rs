//! The reference: what a queue promises, written as plainly as possible and apart from every backend.
//!
//! The model is told what was asked of the store and what the store answered, and says whether that answer was allowed.
//! Where the contract leaves room (a lapsed claim that nobody took over yet, a due time that may just have passed), it
//! allows each possibility and follows the store. It searches lists and keeps no index: it is to be obviously right.

use crate::contract::Depth;
use crate::settings::Order;

/// The number of a message, in the order of sending.
pub type MessageNo = usize;
/// The number of a claim, in the order of claiming.
pub type ClaimNo = usize;

/// When a message becomes available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// At once.
    No,
    /// Soon: perhaps already.
    Short,
    /// Not while the history lasts.
    Long,
}

/// How a claim is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// `Verdict::Complete`.
    Complete,
    /// `Verdict::Retry`.
    Retry(Wait),
    /// `Verdict::DeadLetter`.
    DeadLetter,
    /// `Verdict::Release`.
    Release,
}

/// What a delivery says of its message's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// `Delivery::delivery_count`.
    pub claims: u32,
    /// `Delivery::failures`.
    pub failures: u32,
    /// `Delivery::crashes`.
    pub crashes: u32,
    /// `Delivery::crashed_alone`.
    pub crashed_alone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not available while the history lasts.
    Delayed,
    /// Available any moment now, or already.
    Soon,
    Available,
    Claimed(ClaimNo),
    /// The claim has run out; nobody has taken it over.
    Lapsed(ClaimNo),
    Done,
    Dead,
}

#[derive(Clone, Debug)]
struct Message {
    place: Place,
    counts: Counts,
    alone: bool,
    /// Sent without a delay and never put back: its place in the order is known.
    ordered: bool,
    /// Its time to live had passed when it was sent.
    expired: bool,
    /// It was claimed and released.
    released: bool,
}

impl Message {
    fn new(wait: Wait, expired: bool) -> Self {
        Message {
            place: place_after(wait),
            counts: Counts { claims: 0, failures: 0, crashes: 0, crashed_alone: false },
            alone: false,
            ordered: wait == Wait::No,
            expired,
            released: false,
        }
    }

    fn must_be_available(&self) -> bool {
        !self.expired && matches!(self.place, Place::Available | Place::Lapsed(_))
    }

    fn may_be_available(&self) -> bool {
        self.must_be_available() || (!self.expired && self.place == Place::Soon)
    }

    /// It has been tried and is not done, so that in strict order it comes before all others.
    fn waits_for_another_try(&self) -> bool {
        let tried = self.counts.claims > 0;
        match self.place {
            Place::Lapsed(_) => true,
            Place::Delayed | Place::Soon | Place::Available => tried,
            Place::Claimed(_) | Place::Done | Place::Dead => false,
        }
    }

    /// It is where sending put it: it has never been tried. What one host has released may be behind what another has
    /// already looked at, but for strict order.
    fn is_fresh(&self, order: Order) -> bool {
        let in_place = order == Order::Strict || !self.released;
        self.ordered && in_place && self.must_be_available() && !self.waits_for_another_try()
    }
}

fn place_after(wait: Wait) -> Place {
    match wait {
        Wait::No => Place::Available,
        Wait::Short => Place::Soon,
        Wait::Long => Place::Delayed,
    }
}

/// One queue, as it should be.
#[derive(Clone, Debug)]
pub struct Model {
    order: Order,
    messages: Vec<Message>,
    claims: Vec<MessageNo>,
}

impl Model {
    /// An empty queue that is read in this order.
    pub fn new(order: Order) -> Self {
        Model { order, messages: Vec::new(), claims: Vec::new() }
    }

    /// A message was sent.
    pub fn sent(&mut self, wait: Wait, expired: bool) -> MessageNo {
        self.messages.push(Message::new(wait, expired));
        self.messages.len() - 1
    }

    /// A message was sent whose place in the order is not promised: with a settlement, for example.
    pub fn sent_beside(&mut self) -> MessageNo {
        let number = self.sent(Wait::No, false);
        self.messages[number].ordered = false;
        number
    }

    /// Every short wait is over.
    pub fn time_passed(&mut self) {
        for message in self.messages.iter_mut().filter(|message| message.place == Place::Soon) {
            message.place = Place::Available;
        }
    }

    /// Whether a receive has to come back with something.
    pub fn must_deliver(&self) -> bool {
        self.candidates().into_iter().any(|number| self.messages[number].must_be_available())
    }

    /// What the next claim may be.
    fn candidates(&self) -> Vec<MessageNo> {
        let all = || 0..self.messages.len();
        let available = all().filter(|number| self.messages[*number].may_be_available());
        if self.order == Order::Relaxed {
            return available.collect();
        }
        if self.messages.iter().any(|message| matches!(message.place, Place::Claimed(_))) {
            return Vec::new();
        }
        if self.messages.iter().any(Message::waits_for_another_try) {
            return available.filter(|number| self.messages[*number].waits_for_another_try()).collect();
        }
        available.collect()
    }

    /// A message was delivered; answers the number of the claim.
    ///
    /// # Errors
    /// Why it should not have been, or not like this.
    pub fn delivered(&mut self, number: MessageNo, told: Counts) -> Result<ClaimNo, String> {
        if !self.candidates().contains(&number) {
            return Err(format!("message {number} was delivered, and is {:?}", self.messages[number]));
        }
        let order = self.order;
        let first_fresh = self.messages.iter().position(|message| message.is_fresh(order));
        let claim = self.claims.len();
        let message = &mut self.messages[number];
        if message.is_fresh(order)
            && let Some(first) = first_fresh
            && first != number
        {
            return Err(format!("message {number} was delivered before message {first}"));
        }
        if matches!(message.place, Place::Lapsed(_)) {
            message.counts.crashes += 1;
            message.counts.crashed_alone |= std::mem::take(&mut message.alone);
        }
        message.counts.claims += 1;
        message.place = Place::Claimed(claim);
        if message.counts != told {
            return Err(format!("message {number} should have {:?}, and has {told:?}", message.counts));
        }
        self.claims.push(number);
        Ok(claim)
    }

    /// Whether the claim is alive for certain.
    pub fn is_alive(&self, claim: ClaimNo) -> bool {
        self.claims.get(claim).is_some_and(|number| self.messages[*number].place == Place::Claimed(claim))
    }

    /// The claims that are alive for certain.
    pub fn alive(&self) -> Vec<ClaimNo> {
        (0..self.claims.len()).filter(|claim| self.is_alive(*claim)).collect()
    }

    /// The message of a claim, if the answer (`ours`: it was not refused as lost) is allowed; `None` if it was refused.
    fn answered(&mut self, claim: ClaimNo, ours: bool, asked: &str) -> Result<Option<&mut Message>, String> {
        let message = &mut self.messages[self.claims[claim]];
        let (alive, lapsed) = (message.place == Place::Claimed(claim), message.place == Place::Lapsed(claim));
        match ours {
            true if alive || lapsed => Ok(Some(message)),
            false if !alive => Ok(None),
            _ => Err(format!(
                "to {asked} claim {claim} of message {} was {}, and the message is {message:?}",
                self.claims[claim],
                if ours { "accepted" } else { "refused" },
            )),
        }
    }

    /// A settlement was answered; says whether it took effect.
    ///
    /// # Errors
    /// Why that answer was wrong.
    pub fn settled(&mut self, claim: ClaimNo, end: End, ours: bool) -> Result<bool, String> {
        let Some(message) = self.answered(claim, ours, "settle")? else { return Ok(false) };
        let alone = std::mem::take(&mut message.alone);
        message.place = match end {
            End::Complete => Place::Done,
            End::DeadLetter => Place::Dead,
            End::Release => {
                message.counts.claims -= 1;
                message.released = true;
                Place::Available
            }
            End::Retry(wait) => {
                message.counts.failures += 1;
                if alone {
                    message.counts.crashes = 0;
                    message.counts.crashed_alone = false;
                }
                place_after(wait)
            }
        };
        Ok(true)
    }

    /// An extension was answered.
    ///
    /// # Errors
    /// Why that answer was wrong.
    pub fn extended(&mut self, claim: ClaimNo, ours: bool) -> Result<(), String> {
        if let Some(message) = self.answered(claim, ours, "extend")? {
            message.place = Place::Claimed(claim);
        }
        Ok(())
    }

    /// A lone run was recorded, or refused.
    ///
    /// # Errors
    /// Why that answer was wrong.
    pub fn recorded_alone(&mut self, claim: ClaimNo, ours: bool) -> Result<(), String> {
        if let Some(message) = self.answered(claim, ours, "record a lone run of")? {
            message.alone = true;
        }
        Ok(())
    }

    /// The lease of a claim has run out.
    pub fn lapsed(&mut self, claim: ClaimNo) {
        if self.is_alive(claim) {
            self.messages[self.claims[claim]].place = Place::Lapsed(claim);
        }
    }

    /// A new term has begun: what the former one had claimed is free.
    pub fn term_began(&mut self) {
        for claim in self.alive() {
            self.lapsed(claim);
        }
    }

    /// A cancellation was answered.
    ///
    /// # Errors
    /// Why that answer was wrong.
    pub fn cancelled(&mut self, number: MessageNo, taken_back: bool) -> Result<(), String> {
        let message = &mut self.messages[number];
        let never_tried = message.counts.claims == 0 && !message.ordered;
        let allowed = match message.place {
            Place::Delayed if never_tried => taken_back,
            Place::Soon if never_tried => true,
            _ => !taken_back,
        };
        if !allowed {
            return Err(format!(
                "cancelling message {number} was answered {taken_back}, and it is {message:?}"
            ));
        }
        if taken_back {
            message.place = Place::Done;
        }
        Ok(())
    }

    /// The messages that are dead for certain.
    pub fn dead(&self) -> Vec<MessageNo> {
        (0..self.messages.len()).filter(|number| self.messages[*number].place == Place::Dead).collect()
    }

    /// A dead letter was put back.
    pub fn put_back(&mut self, number: MessageNo) {
        self.messages[number] = Message { ordered: false, ..Message::new(Wait::No, false) };
    }

    /// The end: every expired message has been found to be so.
    pub fn expire_all(&mut self) {
        for message in &mut self.messages {
            if message.expired && message.place != Place::Done && message.place != Place::Delayed {
                message.place = Place::Dead;
            }
        }
    }

    /// How much is where; `None` while the contract leaves it open.
    pub fn depth(&self) -> Option<Depth> {
        let count =
            |is: fn(&Message) -> bool| self.messages.iter().filter(|message| is(message)).count() as u64;
        let open = count(|message| {
            matches!(message.place, Place::Soon | Place::Lapsed(_))
                || (message.expired && message.place == Place::Available)
        });
        (open == 0).then(|| {
            Depth::new(
                count(|message| message.place == Place::Available),
                count(|message| matches!(message.place, Place::Claimed(_))),
                count(|message| message.place == Place::Delayed),
                count(|message| message.place == Place::Dead),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(claims: u32, failures: u32, crashes: u32) -> Counts {
        Counts { claims, failures, crashes, crashed_alone: false }
    }

    #[test]
    fn a_wrong_answer_is_told() {
        let mut model = Model::new(Order::Relaxed);
        let (a, b) = (model.sent(Wait::No, false), model.sent(Wait::No, false));
        assert!(model.clone().delivered(b, counts(1, 0, 0)).is_err(), "out of order");
        assert!(model.clone().delivered(a, counts(2, 0, 0)).is_err(), "miscounted");
        let claim = model.delivered(a, counts(1, 0, 0)).unwrap();
        assert!(model.clone().delivered(a, counts(2, 0, 0)).is_err(), "claimed twice");
        assert!(model.clone().settled(claim, End::Complete, false).is_err(), "a live claim was refused");
        assert_eq!(model.settled(claim, End::Complete, true), Ok(true));
        assert!(model.settled(claim, End::Complete, true).is_err(), "settled twice");
    }

    #[test]
    fn a_lapsed_claim_is_anybodys() {
        let mut model = Model::new(Order::Relaxed);
        let a = model.sent(Wait::No, false);
        let claim = model.delivered(a, counts(1, 0, 0)).unwrap();
        model.lapsed(claim);
        assert_eq!(model.clone().settled(claim, End::Complete, true), Ok(true));
        assert_eq!(model.clone().settled(claim, End::Complete, false), Ok(false));
        model.delivered(a, counts(2, 0, 1)).unwrap();
        assert!(model.settled(claim, End::Complete, true).is_err(), "settled by the old claim");
    }

    #[test]
    fn in_strict_order_the_tried_one_is_next() {
        let mut model = Model::new(Order::Strict);
        let (a, b) = (model.sent(Wait::No, false), model.sent(Wait::No, false));
        let claim = model.delivered(a, counts(1, 0, 0)).unwrap();
        assert!(!model.must_deliver());
        model.settled(claim, End::Retry(Wait::Short), true).unwrap();
        assert!(model.clone().delivered(b, counts(1, 0, 0)).is_err(), "overtaken");
        model.time_passed();
        model.delivered(a, counts(2, 1, 0)).unwrap();
    }
}
