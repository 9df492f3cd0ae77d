//! Where a consumer's next claim begins.
//!
//! A queue's beginning is full of what is in flight and of rows that are dead and not yet cleaned away, which nobody
//! wants to walk over for each claim. Below the *watermark* (`after`) a claim does not look at all. Things come back
//! there, though: what was released, retried or has lapsed, and what was committed late. So about once a second, and
//! whenever nothing is found, a claim begins at the *floor*, below which everything was dead a while ago; and now and
//! then at the very beginning, as often as its cost allows: while an old snapshot keeps dead rows from being cleaned
//! away, that is seldom, and in pieces if it would take longer than a call may.

use std::time::Duration;

use crate::clock::BootInstant;

/// How often a busy consumer begins at the floor again.
const LOOK_BACK: Duration = Duration::from_secs(1);
/// Looking at the whole queue may take this part of the time.
const WHOLE_SHARE: u32 = 50;
/// But it is done this often at least, or a piece of it.
const WHOLE_AT_LEAST: Duration = Duration::from_secs(60);
/// A whole queue that is looked at in less is looked at by whoever likes.
const CHEAP: Duration = Duration::from_millis(20);
/// Where nobody looks at the whole queue for a waiting consumer, it does so itself this often at most.
const WHOLE_WHILE_WAITING: Duration = Duration::from_secs(3);
/// How many messages a piece spans at first, where the whole is too much for one time.
const PIECE: i64 = 1 << 20;

/// Where the next claim begins. A hint that saves work; never wrong for long.
#[derive(Debug)]
pub(super) struct Position {
    after: i64,
    /// What is below was dead when the whole queue was last looked at. `None` until that has been done once.
    floor: Option<i64>,
    /// The floor to be, once whoever was storing messages when it was found is done.
    next_floor: i64,
    /// The highest message that was ever claimed here.
    top: i64,
    looked_back: Option<BootInstant>,
    whole_not_before: Option<BootInstant>,
    whole_is_cheap: bool,
    /// How far the look at the whole queue that is under way has come.
    walked: i64,
    /// How far it goes in one step.
    stride: i64,
    /// What was too long for a step.
    too_long: Option<Duration>,
    /// Grows whenever the position is set back, so that an answer that was on its way does not move it on again.
    set_back: u64,
}

impl Default for Position {
    fn default() -> Self {
        Position {
            after: 0,
            floor: None,
            next_floor: i64::MAX,
            top: 0,
            looked_back: None,
            whole_not_before: None,
            whole_is_cheap: false,
            walked: 0,
            stride: i64::MAX,
            too_long: None,
            set_back: 0,
        }
    }
}

/// What a claim is about to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Whether to look for what has come back, before claiming.
    pub(super) look_back: bool,
    pub(super) after: i64,
    set_back: u64,
}

/// A step of looking back: whether there is a message beyond `after`, and not beyond `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) after: i64,
    pub(super) last: i64,
    /// Whether it is one of a look at the whole queue.
    whole: bool,
    /// Whether it may walk over so much that it has to be kept short.
    pub(super) may_be_long: bool,
}

impl Position {
    /// Plans a claim at `now`.
    pub(super) fn plan(&mut self, now: BootInstant, look_back: bool) -> Plan {
        let due = self.floor.is_none() || self.looked_back.is_none_or(|at| now.since(at) >= LOOK_BACK);
        if look_back || due {
            self.looked_back = Some(now);
        }
        Plan { look_back: look_back || due, after: self.after, set_back: self.set_back }
    }

    /// Where to look next: from the floor on, or at the whole queue, or its next piece.
    pub(super) fn begin_step(&mut self, now: BootInstant) -> Step {
        let due = self.whole_not_before.is_none_or(|at| now >= at);
        match self.floor {
            Some(floor) if !due => Step { after: floor, last: i64::MAX, whole: false, may_be_long: false },
            _ => {
                // Should no answer come, the next claim does not ask for the same.
                self.whole_not_before = Some(now + WHOLE_AT_LEAST);
                let last = self.walked.saturating_add(self.stride);
                Step { after: self.walked, last, whole: true, may_be_long: !self.whole_is_cheap }
            }
        }
    }

    /// Takes in the first message that a step has found. Answers where to claim from, once that is known.
    pub(super) fn end_step(
        &mut self,
        step: Step,
        first: Option<i64>,
        began: BootInstant,
        now: BootInstant,
    ) -> Option<i64> {
        if step.whole {
            let cost = now.since(began);
            self.whole_not_before = Some(now + (cost * WHOLE_SHARE).min(WHOLE_AT_LEAST));
            if self.too_long.is_none_or(|time| cost < time / 4) {
                self.stride = self.stride.saturating_mul(2);
            }
            if first.is_none() && step.last != i64::MAX {
                self.walked = step.last;
                return None;
            }
            self.whole_is_cheap = cost < CHEAP && self.walked == 0;
            self.walked = 0;
        }
        let found = first.map_or(self.top, |first| first - 1).max(step.after);
        self.floor = Some(self.next_floor.min(found));
        self.next_floor = found;
        self.after = found;
        Some(found)
    }

    /// A step was too long for the time it was given, which was `time`: the next one is shorter.
    pub(super) fn cut_short(&mut self, step: Step, time: Duration) {
        self.whole_is_cheap = false;
        self.too_long = Some(time);
        self.stride = if step.last == i64::MAX { PIECE } else { ((step.last - step.after) / 2).max(1) };
    }

    /// Takes in the ids that a claim has got.
    pub(super) fn claimed(&mut self, plan: Plan, last: Option<i64>) {
        if let Some(last) = last {
            self.top = self.top.max(last);
            if plan.set_back == self.set_back {
                self.after = self.after.max(last);
            }
        }
    }

    /// The message `id` has come back, or may have.
    pub(super) fn set_back(&mut self, id: i64) {
        self.after = self.after.min(id - 1);
        self.floor = self.floor.map(|floor| floor.min(id - 1));
        self.next_floor = self.next_floor.min(id - 1);
        self.set_back += 1;
    }

    /// Something may have come back anywhere.
    pub(super) fn reset(&mut self) {
        let set_back = self.set_back + 1;
        *self = Position { set_back, ..Position::default() };
    }

    /// In how long a waiting consumer looks again by itself for what was committed late, if nobody does so for it.
    pub(super) fn look_again(&self, now: BootInstant) -> Option<Duration> {
        let due = self.whole_not_before.map_or(Duration::ZERO, |at| at.since(now));
        (!self.whole_is_cheap).then(|| due.max(WHOLE_WHILE_WAITING))
    }

    /// Beyond here a waiting consumer is looked after: everywhere, as long as that costs next to nothing, since what is
    /// committed late may lie anywhere; else where something is waited for.
    pub(super) fn wait_beyond(&self) -> i64 {
        if self.whole_is_cheap { 0 } else { self.floor.unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos(millis * 1_000_000)
    }

    /// One look back that finds `first`.
    fn look_back(position: &mut Position, millis: u64, first: Option<i64>, cost: u64) -> i64 {
        let step = position.begin_step(at(millis));
        position.end_step(step, first, at(millis), at(millis + cost)).unwrap()
    }

    #[test]
    fn a_busy_consumer_walks_on_and_looks_back_each_second() {
        let mut position = Position::default();
        let first = position.plan(at(0), false);
        assert!(first.look_back);
        assert_eq!(look_back(&mut position, 0, Some(1), 1), 0);
        position.claimed(first, Some(100));
        let next = position.plan(at(500), false);
        assert_eq!((next.look_back, next.after), (false, 100));
        assert!(position.plan(at(1001), false).look_back);
    }

    #[test]
    fn dead_rows_are_walked_over_seldom_if_that_is_dear() {
        let mut position = Position::default();
        // Three seconds over what is dead, twice: what was being stored at the first time is seen at the second.
        assert_eq!(look_back(&mut position, 0, Some(1_000_001), 3_000), 1_000_000);
        assert_eq!(look_back(&mut position, 4_000, Some(1_000_051), 3_000), 1_000_050);
        for millis in [8_000, 20_000, 60_000] {
            assert_eq!(position.begin_step(at(millis)).after, 1_000_000);
        }
        assert_eq!(position.begin_step(at(70_000)).after, 0);
    }

    #[test]
    fn what_is_committed_late_is_found_below_the_floor() {
        let mut position = Position::default();
        look_back(&mut position, 0, Some(101), 1);
        look_back(&mut position, 2_000, Some(201), 1);
        assert_eq!(look_back(&mut position, 4_000, Some(7), 1), 6);
        assert!(position.wait_beyond() <= 6);
    }

    #[test]
    fn a_whole_look_that_takes_too_long_is_made_in_pieces() {
        let mut position = Position::default();
        let mut millis = 0;
        position.plan(at(0), false);
        assert!(position.plan(at(1), false).look_back, "a claim would walk over everything");
        // Each piece that spans more than half a million is cut short after a second; 3 million are dead.
        let first = loop {
            let step = position.begin_step(at(millis));
            assert!(step.may_be_long);
            millis += 1_000;
            assert!(millis < 60_000, "it comes to no end");
            let walks = step.last.min(3_000_000) - step.after;
            if walks > 500_000 {
                position.cut_short(step, Duration::from_secs(1));
                continue;
            }
            let found = (step.last > 3_000_000).then_some(3_000_001);
            if let Some(first) = position.end_step(step, found, at(millis - 1_000), at(millis)) {
                break first;
            }
        };
        assert_eq!(first, 3_000_000);
        assert_eq!(position.begin_step(at(millis + 1_000)).after, 3_000_000);
    }

    #[test]
    fn a_whole_look_without_an_answer_is_not_asked_for_again_at_once() {
        let mut position = Position::default();
        look_back(&mut position, 0, Some(101), 1);
        look_back(&mut position, 2_000, Some(201), 1);
        assert_eq!(position.begin_step(at(4_000)).after, 0);
        assert_ne!(position.begin_step(at(5_000)).after, 0);
        assert_eq!(position.begin_step(at(64_000)).after, 0);
    }

    #[test]
    fn what_is_waited_for_may_be_anywhere_while_looking_is_cheap() {
        let mut position = Position::default();
        look_back(&mut position, 0, Some(101), 1);
        look_back(&mut position, 2_000, Some(201), 1);
        assert_eq!(position.wait_beyond(), 0);
        look_back(&mut position, 4_000, Some(201), 100);
        assert_eq!(position.wait_beyond(), 200);
    }

    #[test]
    fn what_comes_back_is_seen_although_an_answer_was_on_its_way() {
        let mut position = Position::default();
        let plan = position.plan(at(0), false);
        position.set_back(7);
        position.claimed(plan, Some(50));
        assert!(position.plan(at(1), false).after <= 6);
    }

    #[test]
    fn whoever_waits_looks_itself_where_the_poll_does_not_look_everywhere() {
        let mut position = Position::default();
        look_back(&mut position, 0, None, 1);
        assert_eq!((position.wait_beyond(), position.look_again(at(1))), (0, None));
        // It took a while once: the poll keeps to the floor, and the next look is the consumer's.
        look_back(&mut position, 1_000, None, 30);
        assert_eq!(position.look_again(at(1_030)), Some(WHOLE_WHILE_WAITING));
        look_back(&mut position, 5_000, None, 200);
        assert_eq!(position.look_again(at(5_200)), Some(Duration::from_secs(10)));
        look_back(&mut position, 15_200, None, 1);
        assert_eq!(position.look_again(at(15_201)), None);
    }
}
