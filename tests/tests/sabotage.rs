//! The conformance suites must catch a backend that breaks its promises: each wrapper here breaks one, and the cases
//! that have to fail are named. Without a fault the wrappers pass everything, so that it is the fault that is caught.

#[path = "sabotage/locks.rs"]
mod locks;
#[path = "sabotage/transport.rs"]
mod transport;

use bus::conformance::{Case, Outcome, Setup, UrlSubject};
use locks::{LockFault, SabotagedLocks};
use transport::{Fault, SabotagedTransport};

/// Runs cases in virtual time, each on a store of its own, and gives back the names of those that failed.
fn failing<S: Setup>(
    cases: Vec<Case<S>>,
    wanted: impl Fn(&str) -> bool,
    run: impl AsyncFn(&Case<S>, UrlSubject) -> Outcome,
) -> Vec<(&'static str, String)> {
    let mut failed = Vec::new();
    for case in cases.iter().filter(|case| wanted(case.name)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let outcome = runtime.expect("a runtime").block_on(async {
            let url = format!("memory://{}", uuid::Uuid::new_v4());
            run(case, UrlSubject::new(&url).expect("the memory backend")).await
        });
        match outcome {
            Outcome::Passed => {}
            Outcome::Failed(failure) => failed.push((case.name, failure.to_string())),
            Outcome::Unavailable(why) => panic!("{} did not run: {why}", case.name),
        }
    }
    failed
}

fn failing_transport_cases(fault: Fault, wanted: impl Fn(&str) -> bool) -> Vec<(&'static str, String)> {
    failing(bus::conformance::transport::cases(), wanted, async |case, honest| {
        case.run(&SabotagedTransport::new(honest, fault)).await
    })
}

fn failing_lock_cases(fault: LockFault, wanted: impl Fn(&str) -> bool) -> Vec<(&'static str, String)> {
    failing(bus::conformance::lock::cases(), wanted, async |case, honest| {
        case.run(&SabotagedLocks::new(honest, fault)).await
    })
}

/// Every case in `expected` must have failed.
fn assert_caught(fault: &str, expected: &[&str], failed: &[(&'static str, String)]) {
    let failed: Vec<_> = failed.iter().map(|(name, _)| *name).collect();
    let missed: Vec<_> = expected.iter().filter(|name| !failed.contains(name)).collect();
    assert!(missed.is_empty(), "{fault} was not caught by {missed:?}");
}

macro_rules! transport_faults {
    ($($test:ident: $fault:ident => [$($case:ident),+];)+) => {$(
        #[test]
        fn $test() {
            let expected = [$(stringify!($case)),+];
            let failed = failing_transport_cases(Fault::$fault, |name| expected.contains(&name));
            assert_caught(stringify!($fault), &expected, &failed);
        }
    )+};
}

macro_rules! lock_faults {
    ($($test:ident: $fault:ident => [$($case:ident),+];)+) => {$(
        #[test]
        fn $test() {
            let expected = [$(stringify!($case)),+];
            let failed = failing_lock_cases(LockFault::$fault, |name| expected.contains(&name));
            assert_caught(stringify!($fault), &expected, &failed);
        }
    )+};
}

#[test]
fn a_transport_without_a_fault_passes() {
    let failed = failing_transport_cases(Fault::None, |_| true);
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn locks_without_a_fault_pass() {
    let failed = failing_lock_cases(LockFault::None, |_| true);
    assert!(failed.is_empty(), "{failed:?}");
}

transport_faults! {
    // M4, M5
    settling_by_id_instead_of_by_claim_is_caught: SettleById =>
        [an_old_receipt_settles_nothing, an_old_receipt_extends_nothing, plain_histories_match_the_model];
    a_lost_thousandth_message_is_caught: LoseThousandth => [thousands_of_messages_arrive_once_each];
    // M10
    a_hidden_pulse_is_caught: HidePulse => [an_idle_receive_shows_that_the_store_answers];
    a_doubled_thousandth_message_is_caught: DoubleThousandth => [thousands_of_messages_arrive_once_each];
    an_ignored_delay_is_caught: IgnoreDelay =>
        [a_delayed_message_comes_when_it_is_due, a_cancelled_message_never_comes, plain_histories_match_the_model];
    a_message_dropped_with_its_future_is_caught: LoseWithDroppedReceive => [a_dropped_receive_loses_nothing];
    // M18
    a_release_that_counts_as_an_attempt_is_caught: CountRelease =>
        [a_release_is_no_attempt, plain_histories_match_the_model];
    // M2, M3
    an_ignored_extension_is_caught: IgnoreExtend =>
        [an_extended_claim_does_not_lapse, an_old_receipt_extends_nothing, plain_histories_match_the_model];
    answers_in_the_wrong_order_are_caught: ReverseAnswers =>
        [answers_stand_in_the_order_of_their_items, plain_histories_match_the_model];
    a_reversed_order_of_messages_is_caught: ReverseMessages =>
        [messages_arrive_in_the_order_of_sending, plain_histories_match_the_model];
    // M19
    uncounted_crashes_are_caught: ForgetCrashes =>
        [a_lapsed_claim_comes_back_as_a_crash, crashes_are_counted_apart_from_failures, plain_histories_match_the_model];
    an_unrecorded_lone_run_is_caught: ForgetAlone =>
        [a_crash_while_alone_is_remembered, plain_histories_match_the_model];
    // S6
    an_unchecked_fence_is_caught: IgnoreFence =>
        [an_outdated_term_changes_nothing, a_waiting_receive_learns_of_its_end, singleton_histories_match_the_model];
    an_unguarded_send_is_caught: IgnoreGuard =>
        [a_guarded_send_needs_its_fence, a_guarded_cancellation_needs_its_fence, a_raised_fence_stops_what_is_going_on,
         singleton_histories_match_the_model];
    answers_of_any_size_are_caught: IgnoreBytes => [receive_stops_at_its_bytes];
    a_row_without_its_lock_is_caught: IgnoreRowsLock => [another_lock_waits_for_the_row, claims_keep_the_row_bound];
    outgoing_sent_regardless_is_caught: SendOutgoingRegardless =>
        [outgoing_goes_with_its_settlement, an_outdated_settlement_sends_nothing, plain_histories_match_the_model];
    relaxed_strict_order_is_caught: IgnoreOrder =>
        [a_retry_holds_the_queue_back, one_message_is_in_flight_at_a_time, strict_histories_match_the_model];
    // M35
    a_replay_that_does_nothing_is_caught: PretendPutBack =>
        [a_letter_put_back_is_as_new, an_expired_letter_put_back_is_delivered, plain_histories_match_the_model];
    a_replay_that_says_nothing_of_itself_is_caught: HidePutBack =>
        [a_letter_put_back_is_as_new, a_letter_put_back_says_so];
    a_drop_that_does_nothing_is_caught: PretendDrop => [a_dropped_letter_is_gone];
    an_ignored_stop_is_caught: IgnoreStop => [receive_ends_when_stopped];
    messages_kept_when_stopped_are_caught: KeepWhenStopped => [a_stop_loses_nothing];
    forgotten_readers_are_caught: ForgetReaders =>
        [readers_are_remembered, what_outlives_its_retention_is_swept, a_subscription_that_is_read_stays];
    a_sweep_that_sweeps_nothing_is_caught: SweepNothing => [what_outlives_its_retention_is_swept];
    a_sweep_of_what_is_young_is_caught: SweepWhatIsYoung => [what_outlives_its_retention_is_swept];
    a_drop_of_what_is_read_is_caught: DropWhatIsRead => [a_subscription_that_is_read_stays];
    a_subscription_dropped_in_name_only_is_caught: PretendDropSubscription => [a_dropped_subscription_is_gone];
}

lock_faults! {
    // S7
    a_fence_reset_is_caught: ResetFence => [fences_grow, many_candidates_never_overlap, fences_follow_the_clock];
    // S4, S8
    a_renewal_without_owner_check_is_caught: RenewAlways =>
        [a_former_holder_renews_nothing, a_released_lock_cannot_be_renewed];
    a_release_without_owner_check_is_caught: ReleaseAlways =>
        [a_former_holder_releases_nothing, releasing_twice_is_no_error];
    a_cut_treated_as_clean_is_caught: CutIsClean => [a_cut_frees_nothing_early, a_cut_binds_its_owner_too];
    the_askers_lease_is_caught: AskersLease => [the_holders_lease_counts];
    a_new_fence_for_the_same_term_is_caught: NewFenceWhenAskedAgain => [the_same_owner_gets_the_same_term];
    a_lease_freed_by_dropping_it_is_caught: ReleaseOnDrop => [a_dropped_lease_is_still_held];
    an_error_instead_of_none_is_caught: ErrorWhenHeld => [a_held_lock_is_given_to_nobody_else];
    two_winners_are_caught: Everyone => [many_candidates_never_overlap, one_of_many_wins_a_free_lock];
    a_silent_watch_is_caught: SilentWatch => [a_watch_tells_of_a_release, a_watch_tells_of_giving_up];
    giving_up_for_anybody_is_caught: GiveUpForAnybody => [a_stranger_gives_up_nothing, giving_up_frees_what_is_held];
}
