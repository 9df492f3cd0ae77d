//! Histories written by hand: a good one, and the same broken in every way that the checker has to see.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::*;
use crate::history::Event;

const MS: u64 = 1_000_000;
const DRIVER: u32 = 1;
const PRODUCER: u32 = 2;
const A: u32 = 10;
const B: u32 = 11;
const C: u32 = 12;

/// What one process does at one millisecond.
fn event(ms: u64, p: u32, e: Kind) -> Event {
    Event { t: ms * MS, p, e, m: None, fence: None, victim: None }
}

fn sent(ms: u64, m: &str) -> Event {
    event(ms, PRODUCER, Kind::SendOk).message(m)
}

fn fault(ms: u64, e: Kind, victim: u32) -> Event {
    event(ms, DRIVER, e).victim(victim)
}

fn settled_by(m: &str, fence: u64) -> Event {
    event(99_000, DRIVER, Kind::SettledBy).message(m).fence(fence)
}

fn acquired(ms: u64, p: u32, fence: u64) -> Event {
    event(ms, p, Kind::LockAcquired).fence(fence)
}

/// A run without an end.
fn start(ms: u64, p: u32, m: &str, fence: u64) -> Event {
    event(ms, p, Kind::RunStart).message(m).fence(fence)
}

fn end(ms: u64, p: u32, m: &str, fence: u64) -> Event {
    event(ms, p, Kind::RunEnd).message(m).fence(fence)
}

fn effect(ms: u64, p: u32, m: &str, fence: u64) -> Event {
    event(ms, p, Kind::EffectOk).message(m).fence(fence)
}

/// A run as it should be.
fn run(from: u64, to: u64, p: u32, m: &str, fence: u64) -> Vec<Event> {
    vec![
        start(from, p, m, fence),
        effect(to - 1, p, m, fence),
        end(to, p, m, fence),
        event(to + 1, p, Kind::SettleOk).message(m).fence(fence),
    ]
}

const PLAN: Plan = Plan {
    messages: 4,
    kills: 1,
    freezes: 1,
    freeze_in: FreezeIn::Handler,
    terms: 1,
    lease: Duration::from_secs(5),
    notice: Duration::ZERO,
};

/// A is killed inside `b`; B is frozen inside `c`, comes back too late and is told to stop by and by;
/// C does the rest, and is told to stop before `d`, which B does.
fn good() -> Vec<Event> {
    let mut events = vec![sent(1, "a"), sent(2, "b"), sent(3, "c"), sent(4, "d"), acquired(5, A, 1)];
    events.extend(run(10, 20, A, "a", 1));
    events.extend([start(30, A, "b", 1), fault(40, Kind::Kill, A), acquired(5_000, B, 2)]);
    events.extend(run(5_010, 5_020, B, "b", 2));
    events.extend([start(5_030, B, "c", 2), fault(5_040, Kind::Freeze, B), acquired(10_000, C, 3)]);
    events.extend(run(10_010, 10_020, C, "c", 3));
    events.extend([
        fault(12_000, Kind::Thaw, B),
        event(12_001, B, Kind::EffectRefused).message("c").fence(2),
        end(12_002, B, "c", 2),
        event(12_003, B, Kind::LockLost).fence(2),
        event(12_004, B, Kind::SettleRefused).message("c").fence(2),
        fault(13_000, Kind::Term, C),
        event(13_001, C, Kind::LockReleased).fence(3),
        event(13_002, C, Kind::Exit),
        acquired(13_100, B, 4),
    ]);
    events.extend(run(13_110, 13_120, B, "d", 4));
    events.extend([settled_by("a", 1), settled_by("b", 2), settled_by("c", 3), settled_by("d", 4)]);
    events
}

fn judge(events: Vec<Event>) -> Report {
    check(events, Vec::new(), &PLAN)
}

fn judge_by(plan: Plan, events: Vec<Event>) -> Report {
    check(events, Vec::new(), &plan)
}

/// The good history without the events that `broken` names, and with others instead.
fn instead(broken: impl Fn(&Event) -> bool, others: impl IntoIterator<Item = Event>) -> Vec<Event> {
    let mut events = good();
    let before = events.len();
    events.retain(|event| !broken(event));
    assert!(events.len() < before, "the event to be replaced is not there");
    events.extend(others);
    events
}

fn with(others: impl IntoIterator<Item = Event>) -> Vec<Event> {
    let mut events = good();
    events.extend(others);
    events
}

fn is(e: Kind, p: u32, m: &'static str) -> impl Fn(&Event) -> bool {
    move |event| event.e == e && event.p == p && event.m.as_deref() == Some(m)
}

fn is_fault(e: Kind) -> impl Fn(&Event) -> bool {
    move |event| event.e == e
}

/// Fails unless there is a complaint, and each begins in one of the ways given.
#[track_caller]
fn complains(report: &Report, beginnings: &[&str]) {
    assert!(!report.passed() && report.exit_code() != 0, "nothing was found: {report}");
    for complaint in &report.complaints {
        assert!(beginnings.iter().any(|beginning| complaint.starts_with(beginning)), "{complaint}");
    }
    for beginning in beginnings {
        let found = report.complaints.iter().any(|complaint| complaint.starts_with(beginning));
        assert!(found, "no {beginning:?} in {:?}", report.complaints);
    }
}

#[track_caller]
fn passes(report: &Report) {
    assert_eq!(report.complaints, [""; 0]);
    assert_eq!(report.exit_code(), 0);
}

// Good ones.

#[test]
fn a_good_history_passes_and_its_faults_are_counted() {
    let report = judge(good());
    passes(&report);
    assert_eq!(
        report.to_string(),
        "overlaps=0 lost=0 dead=0 stale_accepted=0 stale_attempts=1 redelivered=2 \
         kills_in_run=1 freezes_in_run=1"
    );
}

#[test]
fn take_overs_are_measured_from_the_kill_and_from_the_end_of_the_last_run() {
    let mut events = instead(is(Kind::RunEnd, C, "c"), [end(13_050, C, "c", 3)]);
    events.retain(|event| event.e != Kind::LockReleased);
    let take_overs = judge(events).take_overs;
    let expected = |cause, victim, successor, ms| {
        let took = Duration::from_millis(ms);
        TakeOver { cause, victim, successor, took }
    };
    assert_eq!(take_overs, [expected(Cause::Kill, A, B, 4_970), expected(Cause::Term, C, B, 60)]);
}

#[test]
fn a_run_may_begin_at_the_moment_at_which_another_ends() {
    let mut events = instead(is(Kind::RunEnd, B, "b"), [end(5_030, B, "b", 2)]);
    events.retain(|event| event.e != Kind::SettleOk);
    passes(&judge(events));
}

#[test]
fn a_cut_ends_a_run() {
    let cut = event(12_002, B, Kind::RunCut).message("c").fence(2);
    passes(&judge(instead(is(Kind::RunEnd, B, "c"), [cut])));
}

#[test]
fn a_thawed_run_may_overlap_for_a_second() {
    let mut events = instead(is(Kind::RunEnd, B, "c"), [end(13_001, B, "c", 2)]);
    events.retain(|event| event.p != C || event.m.is_none());
    events.extend(run(12_500, 12_900, C, "c", 3));
    passes(&judge(events));
}

#[test]
fn what_a_victim_writes_while_the_kill_is_on_its_way_is_no_overlap() {
    let report = judge(with([end(41, A, "b", 1), start(42, A, "c", 1)]));
    passes(&report);
    assert_eq!(report.take_overs[0].successor, B);
}

#[test]
fn an_entry_of_the_register_without_a_line_in_the_history_is_fine() {
    passes(&judge(instead(is(Kind::EffectOk, B, "d"), [])));
}

#[test]
fn a_write_that_was_noted_late_but_made_in_time_is_not_stale() {
    // The order of the lines does not matter, that of the times does.
    let mut events = good();
    events.reverse();
    assert_eq!(judge(events).stale_accepted, 0);
}

#[test]
fn eight_of_ten_kills_in_a_run_are_enough() {
    passes(&judge_by(Plan { kills: 10, ..PLAN }, ten_kills(8)));
}

/// The good history, and nine more kills; in all so many of them inside a run.
fn ten_kills(in_run: u32) -> Vec<Event> {
    let mut events = good();
    let mut fence = 4;
    for kill in 1..10 {
        let (p, at) = (100 + kill, 20_000 + u64::from(kill) * 3_000);
        fence += 1;
        events.extend([acquired(at, p, fence), start(at + 10, p, "d", fence)]);
        if kill >= in_run {
            events.push(end(at + 20, p, "d", fence));
        }
        events.push(fault(at + 30, Kind::Kill, p));
    }
    events.push(acquired(60_000 - 9_000, B, fence + 1));
    events.extend(run(60_000 - 8_000, 60_000 - 7_990, B, "d", fence + 1));
    events.retain(|event| event.e != Kind::SettledBy || event.m.as_deref() != Some("d"));
    events.push(settled_by("d", fence + 1));
    events
}

// Overlaps.

#[test]
fn two_runs_in_two_processes() {
    let report = judge(with(run(10_015, 10_030, B, "x", 9)));
    complains(&report, &["overlap", "stale", "forgotten", "no lock"]);
    assert_eq!(report.overlaps, 1);
}

#[test]
fn two_runs_under_the_same_fence() {
    let events = with([start(12, A, "d", 1), end(18, A, "d", 1)]);
    let report = judge(events);
    complains(&report, &["overlap"]);
    assert_eq!(report.overlaps, 1);
}

#[test]
fn the_same_message_twice_in_one_process() {
    let report = judge(with([start(12, A, "a", 1), end(18, A, "a", 1)]));
    complains(&report, &["overlap"]);
}

#[test]
fn a_run_that_begins_before_the_kill_of_the_other() {
    let events = instead(is_fault(Kind::Kill), [fault(5_015, Kind::Kill, A)]);
    let report = judge(events);
    assert_eq!(report.overlaps, 1);
    complains(&report, &["overlap"]);
}

#[test]
fn a_frozen_run_that_goes_on_for_longer_than_a_second_after_its_thaw() {
    let mut events = instead(is(Kind::RunEnd, B, "c"), [end(13_050, B, "c", 2)]);
    events.extend([start(13_010, C, "d", 3), end(13_020, C, "d", 3)]);
    complains(&judge(events), &["overlap"]);
}

#[test]
fn a_run_that_overlaps_before_the_freeze() {
    let mut events = good();
    events.extend([start(5_035, C, "d", 3), end(5_039, C, "d", 3)]);
    complains(&judge(events), &["overlap", "no lock"]);
}

#[test]
fn a_run_that_a_thawed_process_begins_is_not_excused() {
    let events = with([start(12_010, B, "d", 2), end(12_040, B, "d", 2), start(12_030, C, "d", 3)]);
    let report = judge(with_end(events, end(12_050, C, "d", 3)));
    complains(&report, &["overlap"]);
}

fn with_end(mut events: Vec<Event>, last: Event) -> Vec<Event> {
    events.push(last);
    events
}

#[test]
fn a_freeze_of_another_process_excuses_nothing() {
    let mut events = instead(is_fault(Kind::Freeze), [fault(5_040, Kind::Freeze, 77)]);
    for event in events.iter_mut().filter(|event| event.e == Kind::Thaw) {
        event.victim = Some(77);
    }
    complains(&judge(events), &["overlap", "faults"]);
}

#[test]
fn a_run_that_never_ends() {
    let report = judge(instead(is(Kind::RunEnd, C, "c"), []));
    complains(&report, &["endless", "overlap"]);
    assert_eq!(report.overlaps, 1);
}

#[test]
fn a_kill_of_another_process_ends_nothing() {
    let report = judge(instead(is_fault(Kind::Kill), [fault(40, Kind::Kill, 77)]));
    complains(&report, &["endless", "overlap", "faults"]);
}

#[test]
fn the_end_of_a_run_that_never_began() {
    complains(&judge(with([end(500, A, "z", 1)])), &["an end without a start"]);
}

// Messages.

#[test]
fn a_confirmed_message_that_is_nowhere() {
    let mut events = instead(is(Kind::SettledBy, DRIVER, "d"), []);
    events.retain(|event| !is(Kind::EffectOk, B, "d")(event));
    let report = judge(events);
    complains(&report, &["lost"]);
    assert_eq!(report.lost, 1);
}

#[test]
fn a_message_that_was_settled_without_an_effect_is_lost() {
    let mut events = instead(is(Kind::EffectOk, B, "d"), []);
    events.retain(|event| !is(Kind::SettledBy, DRIVER, "d")(event));
    complains(&judge(events), &["lost"]);
}

#[test]
fn a_message_that_still_waits_is_left_and_not_lost() {
    let left = event(99_001, DRIVER, Kind::Left).message("d");
    let mut events = instead(is(Kind::SettledBy, DRIVER, "d"), [left]);
    events.retain(|event| !is(Kind::EffectOk, B, "d")(event));
    let report = judge(events);
    complains(&report, &["left"]);
    assert_eq!((report.lost, report.left), (0, 1));
}

#[test]
fn a_message_that_was_done_and_still_waits() {
    complains(&judge(with([event(99_001, DRIVER, Kind::Left).message("a")])), &["left"]);
}

#[test]
fn a_dead_letter() {
    let dead = event(99_001, DRIVER, Kind::Dead).message("d");
    let mut events = instead(is(Kind::SettledBy, DRIVER, "d"), [dead]);
    events.retain(|event| !is(Kind::EffectOk, B, "d")(event));
    let report = judge(events);
    complains(&report, &["dead"]);
    assert_eq!((report.lost, report.dead), (0, 1));
}

#[test]
fn fewer_messages_than_planned() {
    complains(&judge_by(Plan { messages: 5, ..PLAN }, good()), &["4 of 5 messages"]);
}

// Effects.

#[test]
fn a_stale_effect_that_was_accepted() {
    let report = judge(instead(
        is(Kind::EffectRefused, B, "c"),
        [effect(12_001, B, "c", 2), event(12_001, B, Kind::EffectRefused).message("x").fence(2)],
    ));
    complains(&report, &["stale"]);
    assert_eq!(report.stale_accepted, 1);
}

#[test]
fn an_accepted_effect_that_is_not_in_the_register() {
    let mut events = instead(is(Kind::SettledBy, DRIVER, "d"), [settled_by("d", 3)]);
    complains(&judge(events.clone()), &["forgotten"]);
    events.retain(|event| !is(Kind::SettledBy, DRIVER, "d")(event));
    complains(&judge(events), &["forgotten", "lost"]);
}

#[test]
fn freezes_without_a_single_late_write() {
    let report = judge(instead(is(Kind::EffectRefused, B, "c"), []));
    complains(&report, &["faults: no frozen process"]);
    let without = Plan { freezes: 0, ..PLAN };
    let mut events = instead(is(Kind::EffectRefused, B, "c"), []);
    events.retain(|event| !matches!(event.e, Kind::Freeze | Kind::Thaw));
    events.retain(|event| !(event.p == B && event.m.as_deref() == Some("c")));
    passes(&judge_by(without, events));
}

// Locks.

#[test]
fn a_fence_that_falls() {
    complains(&judge(with([acquired(13_200, A, 3)])), &["fence"]);
}

#[test]
fn a_fence_that_comes_twice() {
    complains(&judge(with([acquired(13_200, A, 4)])), &["fence"]);
}

#[test]
fn a_run_without_a_lock() {
    complains(&judge(instead(|event| *event == acquired(13_100, B, 4), [])), &["no lock"]);
    complains(&judge(with([start(14_000, A, "d", 4), end(14_001, A, "d", 4)])), &["no lock"]);
}

// Take-overs.

#[test]
fn a_take_over_after_sigterm_that_takes_a_second() {
    let mut events = good();
    events.retain(|event| event.t < 13_100 * MS || event.t > 14_000 * MS);
    events.extend([acquired(13_990, B, 4)]);
    events.extend(run(14_000, 14_010, B, "d", 4));
    complains(&judge(events), &["too slow"]);
}

#[test]
fn a_take_over_after_a_kill_that_takes_longer_than_the_lease_and_two_seconds() {
    passes(&judge(late_after_the_kill(7_040)));
    complains(&judge(late_after_the_kill(7_041)), &["too slow"]);
}

/// B begins at this time, and everything after that is later, too.
fn late_after_the_kill(ms: u64) -> Vec<Event> {
    let mut events = good();
    events.retain(|event| !(event.p == B && event.m.as_deref() == Some("b")));
    for event in events.iter_mut().filter(|event| event.t > 5_029 * MS && event.t < 90_000 * MS) {
        event.t += 10_000 * MS;
    }
    events.extend(run(ms, ms + 1, B, "b", 2));
    events
}

#[test]
fn where_standbys_have_to_ask_both_limits_are_longer_by_the_time_between_two_questions() {
    let asking = Plan { notice: Duration::from_secs(3), ..PLAN };
    passes(&judge_by(asking, late_after_the_kill(10_040)));
    complains(&judge_by(asking, late_after_the_kill(10_041)), &["too slow"]);
    let after_term = |ms| {
        let mut events = good();
        events.retain(|event| event.t < 13_100 * MS || event.t > 14_000 * MS);
        events.extend([acquired(ms - 10, B, 4)]);
        events.extend(run(ms, ms + 10, B, "d", 4));
        judge_by(asking, events)
    };
    passes(&after_term(16_999));
    complains(&after_term(17_000), &["too slow"]);
}

#[test]
fn nobody_goes_on() {
    let mut events = good();
    events.retain(|event| event.t < 13_100 * MS || event.t > 14_000 * MS);
    complains(&judge(events), &["take-over"]);
}

// Faults that did not happen.

#[test]
fn fewer_faults_than_planned() {
    complains(&judge_by(Plan { kills: 2, ..PLAN }, good()), &["faults: 1 of 2 times kill", "faults: only 1"]);
    complains(&judge_by(Plan { freezes: 2, ..PLAN }, good()), &["faults: 1 of 2 times freeze"]);
    complains(&judge_by(Plan { terms: 2, ..PLAN }, good()), &["faults: 1 of 2 times term"]);
}

#[test]
fn seven_of_ten_kills_in_a_run_are_too_few() {
    let report = judge_by(Plan { kills: 10, ..PLAN }, ten_kills(7));
    complains(&report, &["faults: only 7 of 10 kills"]);
    assert_eq!(report.kills_in_run, 7);
}

#[test]
fn a_freeze_outside_of_a_run() {
    let report = judge(instead(is_fault(Kind::Freeze), [fault(5_025, Kind::Freeze, B)]));
    assert_eq!(report.freezes_in_run, 0);
    complains(&report, &["faults: 1 of 1 freezes outside", "overlap"]);
}

#[test]
fn a_freeze_shorter_than_the_lease() {
    let report = judge_by(Plan { lease: Duration::from_secs(8), ..PLAN }, good());
    complains(&report, &["faults: process 11 was frozen for 6.96s"]);
}

#[test]
fn a_freeze_without_a_thaw() {
    complains(&judge(instead(is_fault(Kind::Thaw), [])), &["faults: process 11 was never thawed"]);
}

#[test]
fn a_process_that_was_told_to_stop_and_stayed() {
    complains(&judge(instead(is_fault(Kind::Exit), [])), &["faults: process 12 was told to stop"]);
}

#[test]
fn a_freeze_in_a_commit_during_which_others_write() {
    let plan = Plan { freeze_in: FreezeIn::Commit, ..PLAN };
    complains(&judge_by(plan, good()), &["faults: 11 was not frozen in a commit"]);
}

// Files.

fn line(event: &Event) -> String {
    serde_json::to_string(event).unwrap() + "\n"
}

/// Writes the good history as one file per process.
fn write_good(directory: &Path) {
    for p in [DRIVER, PRODUCER, A, B, C] {
        let lines: String = good().iter().filter(|event| event.p == p).map(line).collect();
        fs::write(directory.join(format!("any-{p}.jsonl")), lines).unwrap();
    }
}

#[track_caller]
fn judge_with_file(name: &str, extra: &str) -> Report {
    let directory = tempfile::tempdir().unwrap();
    write_good(directory.path());
    let path = directory.path().join(name);
    let text = fs::read_to_string(&path).unwrap_or_default() + extra;
    fs::write(path, text).unwrap();
    check_directory(directory.path(), &PLAN).unwrap()
}

#[test]
fn files_are_read_together() {
    passes(&judge_with_file("notes.txt", "not a history"));
}

#[test]
fn the_torn_last_line_of_a_killed_process_is_tolerated() {
    passes(&judge_with_file("any-10.jsonl", "{\"t\":4000"));
    passes(&judge_with_file("again-10.jsonl", "{\"t\":4000"));
}

#[test]
fn any_other_torn_line_is_not() {
    let torn = "{\"t\":4000";
    let whole = line(&event(12_999, C, Kind::LockLost));
    for (name, extra) in [
        ("any-12.jsonl", torn.to_owned()),
        ("any-10.jsonl", format!("{torn}\n")),
        ("any-10.jsonl", format!("{torn}\n{whole}")),
        ("any-10.jsonl", format!("{torn}{whole}")),
    ] {
        complains(&judge_with_file(name, &extra), &["/"]);
    }
}

#[test]
fn lines_that_make_no_sense() {
    for extra in [
        "{\"t\":1,\"p\":12,\"e\":\"run.stop\"}\n",
        "{\"t\":1,\"p\":12,\"e\":\"run.start\",\"fence\":3}\n",
        "{\"t\":1,\"p\":12,\"e\":\"run.start\",\"m\":\"a\"}\n",
        "{\"t\":1,\"p\":12,\"e\":\"lock.acquired\"}\n",
        "{\"t\":1,\"p\":12,\"e\":\"kill\"}\n",
        "{\"p\":12,\"e\":\"exit\"}\n",
        "\n",
    ] {
        complains(&judge_with_file("any-12.jsonl", extra), &["/"]);
    }
}
