//! What a test host is made of, and what is refused.

use bus::ErrorKind;
use bus::message::{Delivery, Verdict};
use bus::pipeline::Next;
use bus::prelude::*;
use bus::testing::*;

use crate::handlers::*;

/// The errors of the start are those of every host, all at once.
#[bus::test]
async fn a_wrong_wiring_is_told_as_any_hosts() {
    let builder = TestHost::builder().processor(unprovided).processor(note);
    let error = builder.start().await.expect_err("two values are missing");
    assert_eq!(error.kind(), ErrorKind::Wiring);
    let text = error.to_string();
    for words in
        ["`unprovided` needs `Dep<", "Missing", "`note` needs `Dep<", "Script", "testing/handlers.rs:"]
    {
        assert!(text.contains(words), "{words} is missing from: {text}");
    }
}

/// Without a choice it is every processor of the binary.
#[bus::test]
async fn without_a_choice_everything_runs() {
    let text = TestHost::start().await.expect_err("not all can be had here").to_string();
    assert!(text.contains("`unprovided` needs") && text.contains("`note` needs"), "{text}");
}

/// Processors are named by endpoint, by function name, or as functions.
#[bus::test]
async fn processors_are_chosen_in_three_ways() -> Result<()> {
    let script = Script::fine();
    let builder = TestHost::builder().only(["happened/first", "slow"]).processor(note);
    let host = builder.provide(script.clone()).start().await?;
    host.bus().publish(Happened(1)).await?;
    host.bus().send(Slow(2)).await?;
    host.bus().send(Note(3)).await?;
    host.bus().send(Single(4)).await?;
    host.settled().await;
    let mut seen: Vec<_> = script.seen().iter().map(|seen| seen.n).collect();
    seen.sort_unstable();
    assert_eq!(seen, [1, 2, 3]);
    Ok(())
}

#[bus::test]
async fn a_name_that_no_processor_has_is_refused_with_what_was_meant() {
    for (name, meant) in
        [("nota", Some("\"note\"")), ("happened/frist", Some("\"happened/first\"")), ("xyz", None)]
    {
        let error =
            TestHost::builder().only([name]).provide(Script::fine()).start().await.expect_err("refused");
        let text = error.to_string();
        assert!(text.contains(&format!("{name:?}")), "{text}");
        match meant {
            Some(meant) => assert!(text.contains(&format!("did you mean {meant}?")), "{text}"),
            None => assert!(!text.contains("did you mean"), "{text}"),
        }
    }
}

#[bus::test]
async fn a_function_that_is_no_processor_is_refused() {
    let builder = TestHost::builder().processor(bystander).processor(note).provide(Script::fine());
    let text = builder.start().await.expect_err("refused").to_string();
    assert!(text.contains("handlers::bystander` is no processor"), "{text}");
}

/// What only the others need is neither made nor missed; what is given is not made either.
#[bus::test]
async fn only_what_is_needed_is_made() -> Result<()> {
    host(&["note"], &Script::fine()).await;
    let error = TestHost::builder().processor(costly).start().await.expect_err("its provider fails");
    assert!(format!("{error:?}").contains("there is no database here"), "{error:?}");
    let host = TestHost::builder().processor(costly).provide(Database).start().await?;
    host.bus().send(Costly(1)).await?;
    host.settled().await;
    assert_eq!(host.completed::<Costly>().len(), 1);
    Ok(())
}

/// The host itself can be adjusted; whatever stores it names, they are in memory.
#[bus::test]
async fn the_host_can_be_adjusted() -> Result<()> {
    async fn refuse(delivery: Delivery, next: Next) -> Verdict {
        match delivery.envelope.headers.get("tenant") {
            Some(_) => next.run(delivery).await,
            None => Verdict::DeadLetter { reason: "no tenant".into(), error: None },
        }
    }
    let config = bus::host::config::Config::default()
        .with_transport("default", "sqlite:///nowhere/bus.db")?
        .with_transport("archive", "sqlite:///nowhere/archive.db")?
        .with_locks("default")?;
    let builder = TestHost::builder().only(["note", "single"]).provide(Script::fine());
    let host = builder.with(|host| host.config(config).middleware(refuse)).start().await?;
    host.bus().send(Note(1)).await?;
    host.bus().send(Note(2)).header("tenant", "acme").await?;
    host.bus().send(Single(3)).header("tenant", "acme").await?;
    host.bus().send(Archived(4)).await?;
    host.settled().await;
    assert_eq!(host.dead::<Note>()[0].reason, "no tenant");
    assert_eq!((host.completed::<Note>().len(), host.completed::<Single>().len()), (1, 1));
    Ok(())
}

/// Where time cannot be paused, that is said.
#[test]
fn a_runtime_of_many_threads_is_refused() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let started = runtime.block_on(async { TestHost::builder().only(["note"]).start().await });
    let error = started.expect_err("its time cannot be paused");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("#[bus::test]"), "{error}");
    let nowhere = futures_util::FutureExt::now_or_never(TestHost::start()).expect("at once");
    assert_eq!(nowhere.expect_err("there is no runtime").kind(), ErrorKind::InvalidInput);
}

/// Two hosts in one test share the time and nothing else.
#[bus::test]
async fn two_hosts_in_one_test_are_apart() -> Result<()> {
    let (one, two) = (Script::fine(), Script::fine());
    let (first, second) = (host(&["note", "single"], &one).await, host(&["note", "single"], &two).await);
    first.bus().send(Note(1)).await?;
    first.bus().send(Single(2)).await?;
    second.bus().send(Single(3)).delay(1.hours()).await?;
    first.settled().await;
    second.settled().await;
    assert_eq!((one.seen().len(), two.seen().len()), (2, 0));
    assert_eq!((first.sent::<Single>().len(), second.sent::<Single>().len()), (1, 1));
    first.advance(1.hours()).await;
    second.settled().await;
    assert_eq!(two.counts(), [(3, 1)], "time is one");
    Ok(())
}

/// Tests beside each other do not see each other.
#[test]
fn tests_in_parallel_are_apart() {
    #[tokio::main(flavor = "current_thread", start_paused = true)]
    async fn one_of_many() {
        let script = Script::of(|seen| if seen.count == 1 { Act::Fail } else { Act::Succeed });
        let host = host(&["first", "single"], &script).await;
        for n in 0..20 {
            host.bus().publish(Happened(n)).await.expect("published");
            host.bus().send(Single(n)).await.expect("sent");
        }
        host.advance(1.hours()).await;
        assert_eq!((host.completed::<Happened>().len(), host.completed::<Single>().len()), (20, 20));
        assert_eq!(script.seen().len(), 80);
    }
    let tests: Vec<_> = (0..8).map(|_| std::thread::spawn(one_of_many)).collect();
    for test in tests {
        test.join().expect("it passes");
    }
}
