//! Messages whose handler ends its process: in the end they are dead letters, and all others are done (M19).

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use bus_tests::runs::Run;
use bus_tests::site::{Setup, Site};
use bus_tests::task::{Death, Ordered, Task};
use bus_tests::wait::until_true;

use super::{actor, actor_with_lease, send_plain, send_single};

/// Starts one process after the other, as a supervisor does, until the endpoint has nothing left but dead letters.
/// Answers how those ended that died.
async fn supervised<'s>(
    site: &'s Site,
    endpoint: &str,
    most: usize,
    setup: impl Fn() -> Setup<'s>,
) -> Vec<ExitStatus> {
    let store = site.store();
    let mut deaths = Vec::new();
    while !store.is_drained(endpoint) {
        let left = store.counts(endpoint);
        assert!(deaths.len() < most, "after {deaths:?} it has not come to an end: {left:?}");
        let mut host = setup().start();
        until_true("the process dies, or everything is done", || {
            host.try_exit().is_some() || store.is_drained(endpoint)
        })
        .await;
        deaths.extend(host.try_exit());
    }
    deaths
}

/// The tasks of those runs that came to their end.
fn done(runs: &[Run]) -> BTreeSet<u64> {
    runs.iter().filter(|run| run.how.as_deref() == Some("end")).map(|run| run.m).collect()
}

/// How often a task was begun.
fn begun(runs: &[Run], task: u64) -> usize {
    runs.iter().filter(|run| run.m == task).count()
}

/// The dead letters of an endpoint are these tasks, given up on because of their crashes.
fn assert_dead(site: &Site, endpoint: &str, tasks: &[u64]) {
    let dead = site.store().dead(endpoint);
    let numbers = dead.iter().map(|letter| {
        let task: Task = serde_json::from_slice(&letter.body).expect("a task");
        assert!(letter.reason.contains("crashed its process"), "{}: {}", task.n, letter.reason);
        task.n
    });
    assert_eq!(numbers.collect::<BTreeSet<_>>(), tasks.iter().copied().collect(), "{dead:?}");
    assert_eq!(dead.len(), tasks.len());
}

/// One poison among a hundred that are claimed with it: the one dead letter, given up on without another run.
#[tokio::test]
async fn one_poison_among_a_hundred_makes_one_dead_letter() {
    let site = Site::new();
    let config = "[processors.plain]\nlease = \"1s\"\nprefetch_count = 100\ndead_letter_delivery_limit = 2\n";
    let poison = Task::new(0).die(Death::Abort);
    // The others are still at it when the poison strikes, so that each crash is counted for each of them.
    let others = (1..100).map(|n| Task::new(n).sleep(30));
    send_plain(&site, std::iter::once(poison).chain(others)).await;
    let deaths = supervised(&site, "plain", 10, || actor(&site, &["plain"]).config(config)).await;
    assert_eq!(deaths.len(), 3, "twice among others, once alone: {deaths:?}");
    assert_dead(&site, "plain", &[0]);
    let runs = site.runs("plain");
    assert_eq!(done(&runs), (1..100).collect(), "all others are done");
    assert_eq!(begun(&runs, 0), 3, "the poison was not run again");
}

/// The same for several in one batch, each ending its process in its own way: as many more starts as there are poisons.
#[tokio::test]
async fn several_poisons_in_one_batch_make_as_many_dead_letters() {
    let site = Site::new();
    let config = "[processors.plain]\nlease = \"1s\"\nprefetch_count = 100\ndead_letter_delivery_limit = 2\n";
    let poisons = [(7, Death::Abort), (23, Death::Kill), (24, Death::Exit(0)), (59, Death::PanicTwice)];
    let tasks = (0..60).map(|n| match poisons.iter().find(|(poison, _)| *poison == n) {
        Some((_, death)) => Task::new(n).sleep(20).die(*death),
        None => Task::new(n).sleep(20),
    });
    send_plain(&site, tasks).await;
    let deaths = supervised(&site, "plain", 12, || actor(&site, &["plain"]).config(config)).await;
    // Twice among others, and each once alone: six, unless a process was restarted when the claims of its predecessor had run
    // out in part, as on a busy machine. Each for itself they would be twelve.
    assert!((5..12).contains(&deaths.len()), "{deaths:?}");
    assert_dead(&site, "plain", &poisons.map(|(poison, _)| poison));
    let others = (0..60).filter(|n| poisons.iter().all(|(poison, _)| poison != n));
    assert_eq!(done(&site.runs("plain")), others.collect(), "all others are done");
}

/// However a handler ends its process, it is a crash, and nothing else.
async fn any_death(death: Death, is_it: impl Fn(ExitStatus) -> bool) {
    let site = Site::new();
    let config = "[processors.plain]\nlease = \"1s\"\ndead_letter_delivery_limit = 1\n";
    let poison = Task::new(0).sleep(20).die(death);
    let others = (1..20).map(|n| Task::new(n).sleep(10));
    send_plain(&site, std::iter::once(poison).chain(others)).await;
    let deaths = supervised(&site, "plain", 6, || actor(&site, &["plain"]).config(config)).await;
    assert_eq!(deaths.len(), 2, "once among others, once alone: {deaths:?}");
    assert!(deaths.iter().all(|status| is_it(*status)), "{deaths:?}");
    assert_dead(&site, "plain", &[0]);
    assert_eq!(done(&site.runs("plain")), (1..20).collect(), "all others are done");
}

const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;

/// The lock's lease, in seconds: waited out after each crash, and renewed in time on a busy machine.
const LEASE: u64 = 2;

/// As the kernel does when memory runs out.
#[tokio::test]
async fn a_kill_is_a_crash() {
    any_death(Death::Kill, |status| status.signal() == Some(SIGKILL)).await;
}

#[tokio::test]
async fn a_stack_overflow_is_a_crash() {
    any_death(Death::Overflow, |status| status.signal() == Some(SIGABRT)).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_leak_up_to_the_limit_of_memory_is_a_crash() {
    any_death(Death::Exhaust, |status| status.signal() == Some(SIGABRT)).await;
}

#[tokio::test]
async fn a_panic_within_a_panic_is_a_crash() {
    any_death(Death::PanicTwice, |status| status.signal() == Some(SIGABRT)).await;
}

/// No error code says so, and yet it is one: the message had no outcome.
#[tokio::test]
async fn an_exit_that_calls_itself_a_success_is_a_crash() {
    any_death(Death::Exit(0), |status| status.success()).await;
}

#[tokio::test]
async fn an_exit_with_a_code_is_a_crash() {
    any_death(Death::Exit(3), |status| status.code() == Some(3)).await;
}

/// A singleton takes nothing ahead: its poison does not keep the queue for ever.
#[tokio::test]
async fn a_poison_does_not_keep_a_singletons_queue_for_ever() {
    let site = Site::new();
    let config = "[processors.single]\ndead_letter_delivery_limit = 1\n";
    send_single(
        &site,
        [Task::new(0).die(Death::Abort), Task::new(1), Task::new(2).die(Death::Kill), Task::new(3)],
    )
    .await;
    let setup = || actor_with_lease(&site, &["single"], LEASE).config(config);
    let deaths = supervised(&site, "single", 10, setup).await;
    assert_eq!(deaths.len(), 4, "each once, and once alone: {deaths:?}");
    assert_dead(&site, "single", &[0, 2]);
    assert_eq!(done(&site.runs("single")), [1, 3].into());
}

/// In strict order a poison holds back what is behind it until it is given up on; then the order goes on.
#[tokio::test]
async fn a_poison_under_strict_order_keeps_the_order_and_not_the_queue() {
    let site = Site::new();
    let config = "[processors.ordered]\ndead_letter_delivery_limit = 2\n";
    let producer = site.producer().await;
    let tasks = (0..6).map(|n| if n == 2 { Task::new(n).die(Death::Abort) } else { Task::new(n) });
    for sent in producer.bus().send_all(tasks.map(Ordered)).await {
        sent.expect("sent");
    }
    producer.close().await;
    let setup = || actor_with_lease(&site, &["ordered"], LEASE).config(config);
    let deaths = supervised(&site, "ordered", 10, setup).await;
    assert_eq!(deaths.len(), 3, "twice, and once alone: {deaths:?}");
    assert_dead(&site, "ordered", &[2]);
    let order: Vec<u64> = site.runs("ordered").iter().map(|run| run.m).collect();
    assert_eq!(order, [0, 1, 2, 2, 2, 3, 4, 5], "nothing has overtaken it");
}

/// A handler that blocks its thread for ever keeps its place, and only that: the others go on, what it holds up is named,
/// and a process that is told to end does so, with a code and the message's name. In the end it is a dead letter too.
#[tokio::test]
async fn a_handler_that_blocks_for_ever_keeps_nobody_else_and_is_named() {
    let site = Site::new();
    let config = "shutdown_grace_period = \"1s\"\n[processors.plain]\nlease = \"1s\"\n\
                  message_lock_timeout = \"500ms\"\ndead_letter_delivery_limit = 1\n";
    let never = bus_tests::task::Step::BlockUntil(site.path("never"));
    send_plain(&site, [Task::new(0).then(never)]).await;
    send_plain(&site, (1..40).map(Task::new)).await;
    let store = site.store();
    for (round, ahead) in [("among others", 39), ("alone", 0)] {
        let mut host = actor(&site, &["plain"]).config(config).start();
        let id = site.entry("it has begun", |entry| entry.e == "start" && entry.m == Some(0)).await.id;
        let id = id.expect("an id");
        until_true("all others are done", || done(&site.runs("plain")).len() == 39).await;
        until_true("it is named", || host.said().contains("blocks its thread")).await;
        let pid = host.pid();
        let others = site.runs("plain").iter().filter(|run| run.p == pid && run.m != 0).count();
        assert_eq!(others, ahead, "{round}");
        host.terminate();
        let (status, _) = host.exit_within(Duration::from_secs(1 + 10)).await;
        assert_eq!(status.code(), Some(1), "{round}");
        let said = host.said();
        assert!(said.contains(&id) && said.contains("block their thread"), "{round}: it said: {said}");
        assert_eq!(store.counts("plain").dead, 0, "{round}");
    }
    let _host = actor(&site, &["plain"]).config(config).start();
    until_true("it is given up on", || store.is_drained("plain")).await;
    assert_dead(&site, "plain", &[0]);
    assert_eq!(begun(&site.runs("plain"), 0), 2);
}
