//! The rules of the singleton protocol one by one, each in the few steps that show it. What they are worth together is
//! the simulation's business.

use std::time::Duration;

use bus::clock::BootInstant;
use bus::singleton::machine::Machine;
use bus::singleton::protocol::{
    Action, Deadlines, Doubt, EndedAs, Event, Given, LossCause, Notice, RunId, RunOutcome, Ticket,
};
use bus::singleton::{LockTiming, Standing};
use uuid::Uuid;

const LEASE: Duration = Duration::from_secs(20);
const START: BootInstant = BootInstant::from_nanos(1_000_000_000_000);

/// A machine, and the two clocks it is shown.
struct Bench {
    machine: Machine,
    now: BootInstant,
    wall: u64,
    owners: u64,
}

impl Bench {
    fn new() -> Self {
        let timing = LockTiming::new(LEASE).checked().expect("the defaults fit");
        Bench { machine: Machine::new(timing), now: START, wall: 1_700_000_000_000_000_000, owners: 0 }
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        self.wall += u64::try_from(time.as_nanos()).expect("short");
    }

    fn step(&mut self, event: Event) -> Vec<Action> {
        self.owners += 1;
        let owner = Uuid::from_u64_pair(7, self.owners);
        self.machine.step(Given { now: self.now, wall: self.wall, owner, jitter: 0.0 }, event)
    }

    fn after(&mut self, time: Duration, event: Event) -> Vec<Action> {
        self.pass(time);
        self.step(event)
    }

    fn asks_to_acquire(&mut self) -> (Ticket, Uuid) {
        match self.step(Event::Tick)[..] {
            [Action::Acquire { ticket, owner }] => (ticket, owner),
            ref other => panic!("{other:?}"),
        }
    }

    fn asks_to_raise(&mut self, fence: u64) -> Ticket {
        let (ticket, _) = self.asks_to_acquire();
        match self.step(Event::Acquired { ticket, fence })[..] {
            [Action::Tell(Notice::Won { .. }), Action::RaiseFence { ticket, fence: raised }]
                if raised == fence =>
            {
                ticket
            }
            ref other => panic!("{other:?}"),
        }
    }

    /// Acquired and raised at the start: a run under the given fence.
    fn running(fence: u64) -> (Self, RunId) {
        let mut bench = Bench::new();
        let ticket = bench.asks_to_raise(fence);
        match bench.step(Event::FenceRaised { ticket })[..] {
            [Action::StartRun { run, .. }] => (bench, run),
            ref other => panic!("{other:?}"),
        }
    }

    /// Passes time up to the next renewal.
    fn asks_to_renew(&mut self) -> Ticket {
        self.pass(LEASE / 4);
        match self.step(Event::Tick)[..] {
            [Action::Renew { ticket, .. }] => ticket,
            ref other => panic!("{other:?}"),
        }
    }
}

fn deadlines(confirmed: BootInstant) -> Deadlines {
    Deadlines { intake_until: confirmed + LEASE / 2, owned_until: confirmed + LEASE * 3 / 4 }
}

/// A term starts only when its fence is confirmed, and it counts from before the lock was asked for. S23.
#[test]
fn a_term_counts_from_before_its_acquisition_was_sent() {
    let mut bench = Bench::new();
    let (ticket, _) = bench.asks_to_acquire();
    let acquired = bench.after(LEASE / 20, Event::Acquired { ticket, fence: 7 });
    let raising = acquired.iter().find_map(|action| match action {
        Action::RaiseFence { ticket, .. } => Some(*ticket),
        _ => None,
    });
    assert_eq!(bench.machine.standing(), Standing::Preparing);
    let started = bench.after(LEASE / 20, Event::FenceRaised { ticket: raising.expect("raises at once") });
    assert_eq!(started, [Action::StartRun { run: RunId(1), fence: 7, deadlines: deadlines(START) }]);
}

/// The outcome of an acquisition is asked for under the same owner, and only the latest request is listened to. S23.
#[test]
fn an_unknown_acquisition_is_asked_for_again_under_the_same_owner() {
    let mut bench = Bench::new();
    let (first, owner) = bench.asks_to_acquire();
    let again = bench.after(LEASE / 5, Event::Tick);
    assert_eq!(again, [], "the pause after a try that was not answered");
    let again = bench.after(LEASE / 40, Event::Tick);
    let [Action::Acquire { ticket: second, owner: same }] = again[..] else { panic!("{again:?}") };
    assert_eq!(owner, same);
    assert_eq!(
        bench.step(Event::Acquired { ticket: first, fence: 3 }),
        [],
        "the clock counts from the latest"
    );
    assert_eq!(bench.step(Event::HeldElsewhere { ticket: second }), []);
    bench.pass(LEASE);
    let (_, next) = bench.asks_to_acquire();
    assert_ne!(owner, next, "once definite, the next acquisition is another one");
}

/// A renewal counts from before it was sent, however late its answer is read.
#[test]
fn a_confirmation_counts_from_before_its_request_was_sent() {
    let (mut bench, run) = Bench::running(1);
    let ticket = bench.asks_to_renew();
    let extended = bench.after(LEASE / 20, Event::Renewed { ticket });
    assert_eq!(extended, [Action::Extend { run, deadlines: deadlines(ticket.sent) }]);
}

/// Doubtful at a half, lost at three quarters, cut at seven eighths, overrun before the lease ends; and an answer that
/// is read after the loss revives nothing. S13, S14.
#[test]
fn the_deadlines_come_in_their_order_and_nothing_revives_a_lost_term() {
    let (mut bench, run) = Bench::running(1);
    let late = bench.asks_to_renew();
    let at = |bench: &mut Bench, part: u32| {
        bench.now = START + LEASE * part / 16;
        bench.wall += u64::try_from(LEASE.as_nanos()).expect("short") / 16;
        let actions = bench.machine.step(
            Given {
                now: bench.now,
                wall: 1_700_000_000_000_000_000 + (bench.now.as_nanos() - START.as_nanos()),
                owner: Uuid::nil(),
                jitter: 0.0,
            },
            Event::Tick,
        );
        actions.into_iter().filter(|action| !matches!(action, Action::Renew { .. })).collect::<Vec<_>>()
    };
    assert_eq!(at(&mut bench, 7), []);
    assert_eq!(at(&mut bench, 8), [Action::Doubt { run, doubt: Doubt::Unconfirmed }]);
    assert_eq!(at(&mut bench, 11), []);
    assert_eq!(at(&mut bench, 12), [Action::Lose { run, cause: LossCause::Deadline }]);
    assert_eq!(at(&mut bench, 14), [Action::Cut { run }]);
    assert_eq!(at(&mut bench, 15), [Action::Overrun { run }]);
    let wall = bench.now.as_nanos() - START.as_nanos() + 1_700_000_000_000_000_000;
    let given = Given { now: bench.now, wall, owner: Uuid::nil(), jitter: 0.0 };
    assert_eq!(bench.machine.step(given, Event::Renewed { ticket: late }), []);
    assert_eq!(bench.machine.standing(), Standing::Lost);
    assert_eq!(bench.machine.wakes_at(), None, "only the end of the run goes on from here");
}

/// A process that slept through everything is told everything in its first step, also if that step brings the answer
/// it was waiting for.
#[test]
fn a_long_pause_ends_in_the_loss_whatever_has_arrived_meanwhile() {
    let (mut bench, run) = Bench::running(1);
    let ticket = bench.asks_to_renew();
    let actions = bench.after(LEASE * 3, Event::Renewed { ticket });
    let lost = Action::Lose { run, cause: LossCause::Deadline };
    assert_eq!(actions[..2], [lost, Action::Cut { run }]);
    assert!(!actions.iter().any(|action| matches!(action, Action::Extend { .. })));
}

/// A definite answer is the loss at once, with an eighth of the lease to come to an end; there is nothing to release.
#[test]
fn a_refused_renewal_is_loss_at_once() {
    let (mut bench, run) = Bench::running(1);
    let ticket = bench.asks_to_renew();
    let lost = bench.step(Event::RenewalRefused { ticket });
    assert_eq!(lost, [Action::Lose { run, cause: LossCause::Refused }]);
    assert_eq!(bench.after(LEASE / 8, Event::Tick), [Action::Cut { run }]);
    let ended = bench.step(Event::RunEnded { run, outcome: RunOutcome::Cut });
    assert_eq!(ended, [], "no release of what is another's");
    assert_eq!(bench.machine.standing(), Standing::Standby);
}

/// Wall and boot clock part: nothing is taken in until a renewal that was sent after it is confirmed; one that was
/// already under way counts, but does not end the doubt. C6.
#[test]
fn a_clock_jump_is_doubted_until_a_later_renewal_is_confirmed() {
    for jump in [LEASE.as_nanos() / 10, 3_600_000_000_000] {
        for forward in [true, false] {
            let jump = u64::try_from(jump).expect("short");
            let (mut bench, run) = Bench::running(1);
            let before = bench.asks_to_renew();
            bench.wall = if forward { bench.wall + jump } else { bench.wall - jump };
            let doubted = bench.step(Event::Tick);
            let [Action::Doubt { doubt: Doubt::ClockJump, .. }, Action::Renew { ticket: after, .. }] =
                doubted[..]
            else {
                panic!("{doubted:?}")
            };
            let counted = bench.step(Event::Renewed { ticket: before });
            let [Action::Extend { deadlines: under_way, .. }] = counted[..] else { panic!("{counted:?}") };
            assert!(under_way.intake_until <= bench.now, "still in doubt");
            assert_eq!(bench.machine.standing(), Standing::Doubtful);
            let confirmed = bench.step(Event::Renewed { ticket: after });
            assert_eq!(confirmed, [Action::Extend { run, deadlines: deadlines(after.sent) }]);
            assert_eq!(bench.machine.standing(), Standing::Held);
        }
    }
}

/// Clocks that are slewed, or a jump within the tolerance, are no reason to stop.
#[test]
fn a_small_step_of_the_wall_clock_is_no_jump() {
    let (mut bench, _) = Bench::running(1);
    for _ in 0..10 {
        bench.wall += u64::try_from(LEASE.as_nanos()).expect("short") / 21;
        assert_eq!(bench.step(Event::Tick), []);
    }
    assert_eq!(bench.machine.standing(), Standing::Held);
}

/// A stop never releases under a run that goes on; it renews until the run has ended. S22, S28.
#[test]
fn a_stop_keeps_the_lock_until_the_run_has_ended() {
    let (mut bench, run) = Bench::running(9);
    assert_eq!(bench.step(Event::Stop), [Action::Drain { run }]);
    let ticket = bench.asks_to_renew();
    bench.step(Event::Renewed { ticket });
    let ticket = bench.asks_to_renew();
    bench.step(Event::Renewed { ticket });
    let released = bench.step(Event::RunEnded { run, outcome: RunOutcome::Clean });
    let [Action::Release { ticket, fence: 9, ended: EndedAs::Clean, .. }] = released[..] else {
        panic!("{released:?}")
    };
    let finished = bench.step(Event::Released { ticket });
    assert_eq!(
        finished,
        [Action::Tell(Notice::Released { fence: 9, ended: EndedAs::Clean }), Action::Finished]
    );
}

/// A release that cannot be done is tried for as long as it would change anything, and not longer. S3.
#[test]
fn a_release_is_tried_for_one_lease() {
    let (mut bench, run) = Bench::running(1);
    bench.step(Event::Stop);
    let mut actions = bench.step(Event::RunEnded { run, outcome: RunOutcome::Cut });
    let mut tries = 0;
    while bench.machine.standing() == Standing::Releasing {
        assert!(bench.now <= START + LEASE);
        let refused = actions.iter().find_map(|action| match action {
            Action::Release { ticket, ended: EndedAs::Cut, .. } => Some(*ticket),
            _ => None,
        });
        if let Some(ticket) = refused {
            tries += 1;
            bench.step(Event::ReleaseUnknown { ticket });
        }
        actions = bench.after(Duration::from_millis(100), Event::Tick);
    }
    assert!(tries > 10, "{tries}");
    assert_eq!(actions, [Action::Tell(Notice::LeftToExpire), Action::Finished]);
}

/// An endpoint that is bound to another lock is waited for with the lock held, and people are told once a minute.
#[test]
fn an_endpoint_of_another_lock_is_waited_for() {
    let mut bench = Bench::new();
    let mut raise = Some(bench.asks_to_raise(5));
    let (mut told, mut renewed, mut raises) = (0, 0, 0);
    let end = bench.now + Duration::from_secs(150);
    while bench.now < end {
        let event = match raise.take() {
            Some(ticket) => {
                raises += 1;
                Event::FenceHeldByOtherLock { ticket, free_in: Duration::from_secs(600) }
            }
            None => Event::Tick,
        };
        let mut actions = bench.step(event);
        while let Some(action) = actions.pop() {
            match action {
                Action::RaiseFence { ticket, .. } => raise = Some(ticket),
                Action::Renew { ticket, .. } => {
                    renewed += 1;
                    actions.extend(bench.step(Event::Renewed { ticket }));
                }
                Action::Tell(Notice::WaitingForOtherLock { .. }) => told += 1,
                other => panic!("{other:?}"),
            }
        }
        bench.pass(Duration::from_millis(500));
    }
    assert_eq!(told, 3);
    assert!(renewed >= 28 && raises >= 30, "{renewed} renewals, {raises} raises");
    assert_eq!(bench.machine.standing(), Standing::Preparing);
}

/// A higher fence in the row means that somebody won after us: the lock is given back, and nothing has started.
#[test]
fn a_higher_fence_in_the_row_ends_the_term_before_it_starts() {
    let mut bench = Bench::new();
    let ticket = bench.asks_to_raise(5);
    let outrun = bench.step(Event::FenceOutrun { ticket });
    assert!(
        matches!(outrun[..], [Action::Tell(Notice::Outrun { fence: 5 }), Action::Release { .. }]),
        "{outrun:?}"
    );
}

/// A run that hears from its message store that another fence is in force is over, and so is the one whose own clock
/// said so first.
#[test]
fn a_run_that_finds_itself_over_is_over() {
    for fenced_off in [true, false] {
        let (mut bench, run) = Bench::running(1);
        let (event, cause) = if fenced_off {
            (Event::FencedOff { run }, LossCause::FencedOff)
        } else {
            (Event::Lapsed { run }, LossCause::Deadline)
        };
        assert_eq!(bench.step(event), [Action::Lose { run, cause }]);
        let stale = bench.step(Event::FencedOff { run: RunId(99) });
        assert_eq!(stale, [], "another run's word counts for nothing");
    }
}

/// A stop while nothing is held ends at once, and begins nothing, also if a poll is due in that moment.
#[test]
fn a_stop_while_standing_by_asks_for_nothing() {
    for stop in [Event::Stop, Event::LastAct, Event::Abandon] {
        assert_eq!(Bench::new().step(stop), [Action::Finished]);
    }
}

/// Whatever happens after the machine has finished, it asks for nothing.
#[test]
fn a_finished_machine_stays_finished() {
    let mut bench = Bench::new();
    bench.asks_to_acquire();
    let stopped = bench.step(Event::Stop);
    assert!(
        matches!(stopped[..], [Action::Withdraw { .. }]),
        "what may have been won is given up: {stopped:?}"
    );
    assert_eq!(bench.step(Event::Abandon).last(), Some(&Action::Finished));
    for event in [Event::Tick, Event::Freed, Event::Stop, Event::LastAct, Event::Abandon] {
        assert_eq!(bench.after(LEASE, event), []);
    }
}
