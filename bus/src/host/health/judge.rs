//! Whether a processor really consumes.

use super::super::board::{LockPost, Post};
use super::super::stores::Stores;
use super::{Depths, LockHealth, LockState, ProcessorHealth, SLACK};
use crate::clock::BootInstant;
use crate::error::ErrorKind;
use crate::pump::{PumpView, Unanswered};
use crate::singleton::{LONGEST_START_PAUSE, Standing};

/// What is wanted of a store, and not had.
struct Call {
    what: &'static str,
    unanswered: Unanswered,
    /// By when it should have been had at the latest.
    due: Option<BootInstant>,
}

impl Call {
    fn new(what: &'static str, unanswered: Unanswered) -> Self {
        Call { what, unanswered, due: unanswered.since }
    }

    fn trouble(&self, now: BootInstant) -> Option<String> {
        let since = self.unanswered.since?;
        let is_late = self.due.is_some_and(|due| now > due + SLACK);
        is_late.then(|| format!("its store has not {} for {} s", self.what, now.since(since).as_secs()))
    }
}

/// One processor, by what is posted of it.
pub(super) fn processor(
    post: &Post,
    (stores, depths): (&Stores, &Depths),
    has_permits: bool,
    now: BootInstant,
) -> ProcessorHealth {
    let lock = post.lock.as_ref().map(|lock| lock_health(lock, now));
    // Until it has a pump again, whatever its lock is at: it could not make use of it. Unless another host has had the lock
    // for so long that whoever failed would have tried again.
    let stands_by = lock.is_some_and(|lock| lock.state == LockState::Standby);
    let is_old = post.tried.is_some_and(|tried| now > tried + LONGEST_START_PAUSE + SLACK);
    let opening = if stands_by && is_old { Unanswered::default() } else { post.opening };
    let mut calls = vec![Call::new("let it open a consumer", opening)];
    // A singleton without a term has no use for its last pump.
    let has_term = lock.is_none_or(|lock| matches!(lock.state, LockState::Held | LockState::Doubtful));
    let pump = post.pump.as_ref().filter(|_| has_term);
    if let Some(pump) = pump {
        calls.extend(calls_of(pump));
    }
    let trouble = not_there(post, stores)
        .or_else(|| calls.first().and_then(|opening| opening.trouble(now)))
        .or_else(|| post.lock.as_ref().zip(lock).and_then(|(post, lock)| of_lock(post, lock, now)))
        .or_else(|| calls.iter().find_map(|call| call.trouble(now)))
        .or_else(|| pump.filter(|pump| pump.is_stuck()).map(|_| STUCK.to_owned()))
        .or_else(|| pump.filter(|_| !has_permits).map(|_| NO_PERMIT.to_owned()));
    let last_error: Option<ErrorKind> = calls.iter().find_map(|call| call.unanswered.last_error);
    ProcessorHealth {
        name: post.name,
        endpoint: post.endpoint.clone(),
        transport: post.transport,
        trouble,
        last_fetch: pump.and_then(PumpView::last_fetch).map(|at| now.since(at)),
        failed_calls: calls.iter().map(|call| call.unanswered.failures).max().unwrap_or(0),
        last_error,
        failed_runs: pump.map_or(0, PumpView::failed_runs),
        // Also what is left of a term that is over.
        in_flight: post.pump.as_ref().map_or(0, PumpView::in_flight),
        depth: depths.seen(post, now),
        lock,
    }
}

const STUCK: &str = "every place is taken by a run that goes on past its message_lock_timeout";

/// Nothing in the host is begun any more.
const NO_PERMIT: &str =
    "every permit of the throttle is held by a run that goes on past its message_lock_timeout";

fn not_there(post: &Post, stores: &Stores) -> Option<String> {
    let missing = stores.transport(post.transport).is_err();
    let no_locks = post.is_singleton && stores.locks().is_none();
    match (missing, no_locks) {
        (true, _) => Some("its store has not been reached since the host was started".to_owned()),
        (_, true) => {
            Some("the store of the locks has not been reached since the host was started".to_owned())
        }
        _ if post.is_singleton && post.lock.is_none() => {
            Some("it is not a candidate for its lock".to_owned())
        }
        _ => None,
    }
}

fn calls_of(pump: &PumpView) -> [Call; 3] {
    let receiving = pump.receiving();
    let mut receive = Call::new("answered a claim", receiving);
    // An idle consumer waits inside of its receive, and asks now and then.
    if let (Some(since), Some(beat)) = (receiving.since, pump.last_beat())
        && beat.at >= since
    {
        receive.unanswered.since = Some(beat.at);
        receive.due = Some(beat.at + beat.next_within);
    }
    [receive, Call::new("taken a verdict", pump.settling()), Call::new("extended a claim", pump.extending())]
}

fn lock_health(lock: &LockPost, now: BootInstant) -> LockHealth {
    let state = match *lock.standing.borrow() {
        Standing::Standby => LockState::Standby,
        Standing::Acquiring | Standing::Preparing => LockState::Winning,
        Standing::Held => LockState::Held,
        Standing::Doubtful => LockState::Doubtful,
        Standing::Lost => LockState::Lost,
        Standing::Releasing | Standing::Finished => LockState::Released,
    };
    let has_term = matches!(state, LockState::Held | LockState::Doubtful | LockState::Lost);
    LockHealth {
        state,
        fence: lock.fence.filter(|_| has_term),
        last_answer: lock.pulse.last().map(|beat| now.since(beat.at)),
    }
}

fn of_lock(post: &LockPost, lock: LockHealth, now: BootInstant) -> Option<String> {
    match lock.state {
        LockState::Doubtful => Some("nobody has confirmed its lock for half of a lease".to_owned()),
        LockState::Lost => Some("its lock is lost, and its last run has not ended".to_owned()),
        LockState::Standby | LockState::Winning | LockState::Held | LockState::Released => {
            let (since, due) = match post.pulse.last() {
                Some(beat) => (beat.at, beat.at + beat.next_within),
                None => (post.since, post.since),
            };
            let silence = now.since(since).as_secs();
            (now > due + SLACK).then(|| format!("the store of its lock has not answered for {silence} s"))
        }
    }
}
