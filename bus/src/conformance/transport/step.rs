//! The steps of a history, and how they are made up.

use proptest::prelude::*;

use crate::conformance::model::{End, Wait};

/// One step of a history. Picks are reduced to what there is.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Send { count: usize, wait: Wait, expired: bool },
    SendGuarded { in_force: bool },
    Receive { reader: usize, max: usize },
    Settle { picks: Vec<(Pick, End)>, with_outgoing: bool },
    Extend { picks: Vec<Pick> },
    Lapse { pick: Pick },
    RecordAlone { pick: Pick },
    Cancel { pick: usize },
    PutBack { pick: usize },
    PassTime,
    NewTerm,
    LookAtDepth,
}

/// Which claim is meant: one that is alive, or any there ever was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pick {
    pub(super) alive: bool,
    pub(super) number: usize,
}

/// Histories, some short, some long.
pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(step(), 1..40)
}

fn step() -> impl Strategy<Value = Step> {
    let pick = || (any::<bool>(), 0..64usize).prop_map(|(alive, number)| Pick { alive, number });
    let picks = || proptest::collection::vec(pick(), 1..4);
    let ends = proptest::collection::vec((pick(), end()), 1..4);
    let send = (1..=3usize, wait(), proptest::bool::weighted(0.1));
    prop_oneof![
        5 => send.prop_map(|(count, wait, expired)| Step::Send { count, wait, expired }),
        1 => any::<bool>().prop_map(|in_force| Step::SendGuarded { in_force }),
        8 => (0..8usize, 1..=4usize).prop_map(|(reader, max)| Step::Receive { reader, max }),
        8 => (ends, proptest::bool::weighted(0.2))
            .prop_map(|(picks, with_outgoing)| Step::Settle { picks, with_outgoing }),
        2 => picks().prop_map(|picks| Step::Extend { picks }),
        3 => pick().prop_map(|pick| Step::Lapse { pick }),
        2 => pick().prop_map(|pick| Step::RecordAlone { pick }),
        2 => (0..64usize).prop_map(|pick| Step::Cancel { pick }),
        2 => (0..64usize).prop_map(|pick| Step::PutBack { pick }),
        2 => Just(Step::PassTime),
        2 => Just(Step::NewTerm),
        1 => Just(Step::LookAtDepth),
    ]
}

fn wait() -> impl Strategy<Value = Wait> {
    prop_oneof![6 => Just(Wait::No), 1 => Just(Wait::Short), 1 => Just(Wait::Long)]
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        3 => Just(End::Complete),
        2 => Just(End::Retry(Wait::No)),
        1 => Just(End::Retry(Wait::Short)),
        2 => Just(End::DeadLetter),
        2 => Just(End::Release),
    ]
}
