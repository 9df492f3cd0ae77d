//! Who reads an endpoint, what is swept away, and the end of subscriptions.

use std::sync::Arc;
use std::time::Duration;

use super::bench::{Bench, dead_letter, envelope, only, retry, settle, text};
use crate::clock::Timestamp;
use crate::conformance::Checked;
use crate::conformance::case::{cases, ensure};
use crate::contract::{Attended, ConsumerSpec, DroppedSubscription, Due, Outgoing, PutBack, Reading};
use crate::error::ErrorKind;
use crate::message::{Endpoint, Verdict};

pub(super) fn cases() -> Vec<super::Case> {
    cases! {
        [Readers] readers_are_remembered = "Every endpoint is listed, with how long ago a host attended to it, and its retention.";
        [Readers] the_oldest_available_message_is_known = "The age of an endpoint's first available message is known, and none where none is.";
        [Readers] what_outlives_its_retention_is_swept = "A sweep drops what is available, was never claimed and is older than the retention, nothing else, and counts it.";
        [Readers] what_was_put_back_or_given_back_is_not_swept = "No retention applies to what a reader has given back, or to a dead letter that was put back, however old it is.";
        [Readers] what_waited_for_its_retry_is_not_swept = "No retention applies to what has been tried, however old it is: neither while it waits for its retry nor when that is due.";
        [Readers] a_dropped_subscription_is_gone = "A subscription that nobody reads is dropped with all that is in it, and only that.";
        [Readers] what_another_has_dropped_is_made_again = "A host that has prepared a subscription before another one dropped it makes it again.";
        [Readers] a_consumer_of_what_was_dropped_is_told_or_goes_on = "A consumer whose subscription is dropped is told that it is gone, or reads the one that is made again.";
        [Readers] a_subscription_that_is_read_stays = "A subscription that a host has attended to lately is not dropped.";
    }
}

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

async fn reading(bench: &Bench, endpoint: &Endpoint) -> Checked<Reading> {
    let all = bench.readers()?.readings().await?;
    ensure!(all.is_sorted_by_key(|reading| &reading.endpoint), "they are not sorted: {all:?}");
    only(all.into_iter().filter(|reading| reading.endpoint == *endpoint).collect())
}

/// Sends a text as if it had been sent that long ago.
async fn send_aged(bench: &Bench, endpoint: &Endpoint, text: &str, age: Duration) -> Checked {
    let mut message = envelope(text);
    let micros = i64::try_from(age.as_micros()).unwrap_or(0);
    message.sent_at = Timestamp::from_micros(message.sent_at.as_micros() - micros);
    bench.send_one(Outgoing::new(endpoint.target(), message)).await?;
    Ok(())
}

async fn attend(bench: &Bench, endpoint: &Arc<Endpoint>, retention: Option<Duration>) -> Checked {
    let attended = Attended::new((**endpoint).clone()).retention(retention);
    Ok(bench.readers()?.attend(&[attended]).await?)
}

async fn readers_are_remembered(bench: &Bench) -> Checked {
    let (queue, read) = (bench.queue("read").await?, bench.subscription("read", "by-somebody").await?);
    let unread = bench.subscription("read", "by-nobody").await?;
    let missing = Attended::new(Endpoint::subscription(&bench.unprepared("no")?.to_string(), "such")?);
    let attended = [Attended::new((*queue).clone()), Attended::new((*read).clone()).retention(Some(HOUR))];
    let attended: Vec<_> = attended.into_iter().chain([missing.clone()]).collect();
    bench.readers()?.attend(&attended).await?;
    for (endpoint, retention) in [(&queue, None), (&read, Some(HOUR))] {
        let found = reading(bench, endpoint).await?;
        ensure!(found.attended.is_some_and(|ago| ago < MINUTE), "it was attended to just now: {found:?}");
        ensure!(found.retention == retention, "a retention of {retention:?} was told: {found:?}");
    }
    let found = reading(bench, &unread).await?;
    ensure!(found.attended.is_none() && found.retention.is_none(), "nobody has attended to it: {found:?}");
    let all = bench.readers()?.readings().await?;
    ensure!(all.iter().all(|one| one.endpoint != missing.endpoint), "attending made an endpoint");
    attend(bench, &read, None).await?;
    let found = reading(bench, &read).await?;
    ensure!(found.retention.is_none(), "the last to speak told no retention: {found:?}");
    Ok(())
}

/// How many hours ago the first available message was sent: the same, whether it is listed or asked for alone.
async fn oldest(bench: &Bench, endpoint: &Endpoint) -> Checked<Option<u64>> {
    let hours = |age: Option<Duration>| age.map(|age| age.as_secs() / 3600);
    let listed = hours(reading(bench, endpoint).await?.oldest);
    let alone = hours(bench.readers()?.oldest(endpoint).await?);
    ensure!(listed == alone, "{listed:?} hours in the list, and {alone:?} when asked for alone");
    Ok(listed)
}

async fn the_oldest_available_message_is_known(bench: &Bench) -> Checked {
    let queue = bench.queue("oldest").await?;
    ensure!(oldest(bench, &queue).await?.is_none(), "nothing has been sent");
    // Whatever the clocks differ by.
    send_aged(bench, &queue, "first", 3 * HOUR + HOUR / 2).await?;
    send_aged(bench, &queue, "second", HOUR + HOUR / 2).await?;
    let found = oldest(bench, &queue).await?;
    ensure!(found == Some(3), "the first was sent 3 hours ago, not {found:?}");
    let consumer = bench.consumer(&queue).await?;
    let first = bench.receive_one(&consumer).await?;
    let found = oldest(bench, &queue).await?;
    ensure!(found == Some(1), "the first is claimed, and the second was sent an hour ago, not {found:?}");
    settle(&consumer, &first, Verdict::Complete).await?;
    let second = bench.receive_one(&consumer).await?;
    settle(&consumer, &second, Verdict::Complete).await?;
    ensure!(oldest(bench, &queue).await?.is_none(), "everything is done");
    Ok(())
}

/// Sweeps until nothing is left to be swept; answers how many messages this endpoint has lost.
async fn sweep(bench: &Bench, endpoint: &Endpoint) -> Checked<u64> {
    let mut lost = 0;
    loop {
        let swept = bench.readers()?.sweep().await?;
        if swept.is_empty() {
            return Ok(lost);
        }
        lost += swept.iter().filter(|(at, _)| at == endpoint).map(|(_, count)| count).sum::<u64>();
    }
}

async fn what_outlives_its_retention_is_swept(bench: &Bench) -> Checked {
    let kept = bench.subscription("kept", "for-an-hour").await?;
    let other = bench.subscription("kept", "for-ever").await?;
    attend(bench, &kept, Some(HOUR)).await?;
    attend(bench, &other, None).await?;
    for (text, age) in [("tried", 3 * HOUR), ("claimed", 3 * HOUR), ("old", 2 * HOUR), ("older", 3 * HOUR)] {
        send_aged(bench, &kept, text, age).await?;
    }
    for (text, age) in [("young", HOUR / 2), ("younger", MINUTE)] {
        send_aged(bench, &kept, text, age).await?;
    }
    let consumer = bench.consumer(&kept).await?;
    let tried = bench.receive_one(&consumer).await?;
    let claimed = bench.receive_one(&consumer).await?;
    settle(&consumer, &tried, retry(Duration::ZERO)).await?;

    let lost = sweep(bench, &kept).await?;
    ensure!(lost == 2, "two were old, and {lost} were swept away");
    settle(&consumer, &claimed, Verdict::Complete).await?;
    let mut left: Vec<_> = bench.receive_all(&consumer, 3).await?.iter().map(text).collect();
    left.sort();
    ensure!(left == ["tried", "young", "younger"], "{left:?} were left");
    let there = bench.consumer(&other).await?;
    let left = bench.receive_all(&there, 6).await?;
    ensure!(left.len() == 6, "another subscription lost some of its own: {} are left", left.len());
    ensure!(sweep(bench, &kept).await? == 0, "there is nothing left to be swept");
    Ok(())
}

async fn what_was_put_back_or_given_back_is_not_swept(bench: &Bench) -> Checked {
    let kept = bench.subscription("kept", "for-an-hour").await?;
    attend(bench, &kept, Some(HOUR)).await?;
    let consumer = bench.consumer(&kept).await?;
    send_aged(bench, &kept, "given back", HOUR * 3).await?;
    let given_back = bench.receive_one(&consumer).await?;
    settle(&consumer, &given_back, Verdict::Release).await?;
    ensure!(sweep(bench, &kept).await? == 0, "what was given back was swept");
    let dead = bench.receive_one(&consumer).await?;
    settle(&consumer, &dead, dead_letter("given up")).await?;
    if !bench.can_inspect() {
        return Ok(());
    }
    let id = dead.envelope.id;
    let answer = bench.inspect()?.put_back(&kept, &[id]).await?;
    ensure!(answer == [(id, PutBack::Done)], "it was not put back: {answer:?}");
    ensure!(sweep(bench, &kept).await? == 0, "what was put back was swept");
    // Nor does it keep what comes behind it.
    send_aged(bench, &kept, "old", HOUR * 2).await?;
    let swept = sweep(bench, &kept).await?;
    ensure!(swept == 1, "one is old and was never claimed, and {swept} were swept");
    let back = bench.receive_one(&consumer).await?;
    ensure!(text(&back) == "given back", "another one came: {}", text(&back));
    Ok(())
}

async fn what_waited_for_its_retry_is_not_swept(bench: &Bench) -> Checked {
    let kept = bench.subscription("kept", "for-an-hour").await?;
    attend(bench, &kept, Some(HOUR)).await?;
    let consumer = bench.consumer(&kept).await?;
    const TRIED: usize = 3;
    for _ in 0..TRIED {
        send_aged(bench, &kept, "tried", HOUR * 3).await?;
    }
    for tried in bench.receive_all(&consumer, TRIED).await? {
        settle(&consumer, &tried, retry(bench.timing.moment)).await?;
    }
    ensure!(sweep(bench, &kept).await? == 0, "what waits for its retry was swept");
    // All of them are due before anybody looks, so that those that are not claimed wait wherever a store has them then.
    tokio::time::sleep(bench.timing.moment * 2).await;
    let mut left = vec![bench.receive_one(&consumer).await?];
    let swept = sweep(bench, &kept).await?;
    ensure!(swept == 0, "of what was due for its retry {swept} were swept");
    left.extend(bench.receive_all(&consumer, TRIED - 1).await?);
    for one in &left {
        ensure!(one.failures == 1, "it had failed once, and came with {} failures", one.failures);
        settle(&consumer, one, Verdict::Complete).await?;
    }
    Ok(())
}

async fn a_dropped_subscription_is_gone(bench: &Bench) -> Checked {
    let (dropped, other) =
        (bench.subscription("ending", "dropped").await?, bench.subscription("ending", "other").await?);
    let consumer = bench.consumer(&dropped).await?;
    bench.send_all(&dropped, &["dead", "claimed", "waiting"]).await?;
    let dead = bench.receive_one(&consumer).await?;
    settle(&consumer, &dead, dead_letter("given up")).await?;
    bench.receive_one(&consumer).await?;
    if bench.can_delay() {
        let later = Outgoing::new(dropped.target(), envelope("later")).due(Some(Due::In(HOUR)));
        bench.send_one(later).await?;
    }

    let readers = bench.readers()?;
    let answer = readers.drop_subscription(&dropped, MINUTE).await?;
    ensure!(answer == DroppedSubscription::Done, "nobody had attended to it: {answer:?}");
    let again = readers.drop_subscription(&dropped, MINUTE).await?;
    ensure!(again == DroppedSubscription::NotFound, "it was gone: {again:?}");
    let listed = readers.readings().await?;
    ensure!(listed.iter().all(|reading| reading.endpoint != *dropped), "it is still listed");
    let queue = bench.queue("no-subscription").await?;
    let answer = readers.drop_subscription(&queue, Duration::ZERO).await?;
    ensure!(answer == DroppedSubscription::NotFound, "a queue is no subscription: {answer:?}");

    // What is published meanwhile reaches the other one only, by whichever host.
    let after = bench.message(&dropped, "after");
    only(bench.other_host.sender().send(vec![after]).await)??;
    let there = bench.consumer(&other).await?;
    bench.receive_all(&there, 4).await?;

    // Prepared again, it is new and empty.
    bench.host.prepare(std::slice::from_ref(&*dropped)).await?;
    let consumer = bench.other_consumer(&dropped).await?;
    bench.expect_empty(&consumer, &dropped).await?;
    if bench.can_inspect() {
        ensure!(bench.dead(&dropped).await?.is_empty(), "its dead letters have come back");
        let depth = bench.depth(&dropped).await?;
        ensure!(depth == crate::contract::Depth::default(), "it is not empty: {depth:?}");
    }
    Ok(())
}

async fn what_another_has_dropped_is_made_again(bench: &Bench) -> Checked {
    let subscription = bench.subscription("returning", "reader").await?;
    let host = &bench.other_host;
    host.prepare(std::slice::from_ref(&*subscription)).await?;
    let answer = bench.readers()?.drop_subscription(&subscription, MINUTE).await?;
    ensure!(answer == DroppedSubscription::Done, "nobody had attended to it: {answer:?}");
    // As a host opens what it reads.
    let spec = || ConsumerSpec::new(Arc::clone(&subscription), MINUTE);
    let consumer = match host.consumer(spec()).await {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            host.prepare(std::slice::from_ref(&*subscription)).await?;
            host.consumer(spec()).await?
        }
        opened => opened?,
    };
    // Some stores make it when it is opened, others when it is read.
    let begun = tokio::time::Instant::now();
    loop {
        bench.receive_nothing(&consumer, "it is new").await?;
        let listed = bench.readers()?.readings().await?;
        if listed.iter().any(|reading| reading.endpoint == *subscription) {
            break;
        }
        ensure!(begun.elapsed() < bench.timing.patience, "it is not there again");
    }
    bench.send_all(&subscription, &["it"]).await?;
    bench.receive_one(&consumer).await?;
    Ok(())
}

async fn a_consumer_of_what_was_dropped_is_told_or_goes_on(bench: &Bench) -> Checked {
    let subscription = bench.subscription("dropping", "reader").await?;
    let consumer = bench.consumer(&subscription).await?;
    let answer = bench.readers()?.drop_subscription(&subscription, MINUTE).await?;
    ensure!(answer == DroppedSubscription::Done, "nobody had attended to it: {answer:?}");
    bench.other_host.prepare(std::slice::from_ref(&*subscription)).await?;
    bench.send_all(&subscription, &["it"]).await?;
    match bench.receive_within(&consumer, 10, bench.timing.patience).await? {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
        Ok(deliveries) => ensure!(deliveries.len() == 1, "{} came of one", deliveries.len()),
    }
    Ok(())
}

async fn a_subscription_that_is_read_stays(bench: &Bench) -> Checked {
    let read = bench.subscription("staying", "read").await?;
    attend(bench, &read, None).await?;
    bench.send(&read, "an event").await?;
    let readers = bench.readers()?;
    match readers.drop_subscription(&read, HOUR).await? {
        DroppedSubscription::Attended(ago) if ago < MINUTE => {}
        answer => ensure!(false, "it was attended to just now: {answer:?}"),
    }
    let consumer = bench.consumer(&read).await?;
    let got = bench.receive_one(&consumer).await?;
    ensure!(text(&got) == "an event", "{:?} came", text(&got));
    let answer = readers.drop_subscription(&read, Duration::ZERO).await?;
    ensure!(
        answer == DroppedSubscription::Done,
        "whoever asks for it with no time to wait gets it: {answer:?}"
    );
    let settled = super::bench::try_settle(&consumer, &got.receipt, Verdict::Complete).await?;
    let refused = settled.err().map(|error| error.kind());
    ensure!(
        matches!(refused, Some(ErrorKind::ReceiptLost | ErrorKind::NotFound)),
        "a claim of what is gone was settled: {refused:?}"
    );
    Ok(())
}
