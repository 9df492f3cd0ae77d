//! Topics and subscriptions.

use super::bench::{Bench, envelope, settle, text};
use crate::conformance::Checked;
use crate::conformance::case::{cases, ensure};
use crate::contract::Outgoing;
use crate::message::{Endpoint, Target, Verdict};

pub(super) fn cases() -> Vec<super::Case> {
    cases! {
        an_event_reaches_every_subscription = "Each subscription of a topic gets its own copy of an event.";
        subscriptions_settle_independently = "What one subscription does with its copy concerns no other.";
        a_subscription_gets_what_comes_after_it = "A subscription receives what is published after it was created.";
        a_topic_without_subscriptions_takes_events = "An event that nobody subscribed to is taken and forgotten.";
        a_queue_and_a_topic_of_one_name_are_two = "A queue and a topic may have the same name.";
    }
}

async fn an_event_reaches_every_subscription(bench: &Bench) -> Checked {
    let readers = [bench.subscription("placed", "mail").await?, bench.subscription("placed", "count").await?];
    let other_topic = bench.subscription("paid", "mail").await?;
    bench.send(&readers[0], "an event").await?;
    for reader in &readers {
        let consumer = bench.other_consumer(reader).await?;
        let got = bench.receive_one(&consumer).await?;
        ensure!(text(&got) == "an event", "{reader} got {:?}", text(&got));
        ensure!(got.endpoint == *reader, "{reader}'s copy was said to come from {}", got.endpoint);
    }
    let consumer = bench.consumer(&other_topic).await?;
    bench.expect_empty(&consumer, &other_topic).await
}

async fn subscriptions_settle_independently(bench: &Bench) -> Checked {
    let (mail, count) =
        (bench.subscription("split", "mail").await?, bench.subscription("split", "count").await?);
    let (mailer, counter) = (bench.consumer(&mail).await?, bench.consumer(&count).await?);
    bench.send(&mail, "an event").await?;
    let mailed = bench.receive_one(&mailer).await?;
    let counted = bench.receive_one(&counter).await?;
    ensure!(mailed.envelope.id == counted.envelope.id, "the copies have different ids");
    settle(&mailer, &mailed, Verdict::Complete).await?;
    settle(&counter, &counted, Verdict::Release).await?;
    let again = bench.receive_one(&counter).await?;
    ensure!(again.envelope.id == counted.envelope.id, "{:?} came", text(&again));
    bench.receive_nothing(&mailer, "the only event was done").await
}

async fn a_subscription_gets_what_comes_after_it(bench: &Bench) -> Checked {
    let first = bench.subscription("growing", "first").await?;
    bench.send(&first, "before").await?;
    let second = bench.subscription("growing", "second").await?;
    bench.send(&first, "after").await?;
    let consumer = bench.consumer(&second).await?;
    let got = bench.receive_one(&consumer).await?;
    ensure!(text(&got) == "after", "the new subscription got {:?}", text(&got));
    bench.receive_nothing(&consumer, "only one event was published after it was created").await
}

async fn a_topic_without_subscriptions_takes_events(bench: &Bench) -> Checked {
    let nobody = Endpoint::subscription(&bench.unprepared("unheard")?.to_string(), "nobody")?;
    bench.send(&nobody, "into the void").await?;
    Ok(())
}

async fn a_queue_and_a_topic_of_one_name_are_two(bench: &Bench) -> Checked {
    let queue = bench.queue("same-name").await?;
    let subscription = bench.subscription("same-name", "reader").await?;
    let (Target::Queue(queue_name), Target::Topic(topic_name)) = (queue.target(), subscription.target())
    else {
        return Err(crate::conformance::Failure::new("an endpoint's target is of another kind"));
    };
    ensure!(queue_name == topic_name, "the case is wrong: {queue_name} is not {topic_name}");
    bench.send(&queue, "command").await?;
    bench.send_one(Outgoing::new(subscription.target(), envelope("event"))).await?;
    for (endpoint, expected) in [(&queue, "command"), (&subscription, "event")] {
        let consumer = bench.consumer(endpoint).await?;
        let got = bench.receive_one(&consumer).await?;
        ensure!(text(&got) == expected, "{endpoint} got {:?}", text(&got));
        bench.receive_nothing(&consumer, "only one message was for it").await?;
    }
    Ok(())
}
