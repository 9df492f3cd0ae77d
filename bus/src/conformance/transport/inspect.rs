//! Views for people, and dead letters put back or dropped. Scenario M35.

use std::sync::Arc;
use std::time::Duration;

use super::bench::{Bench, LONG, dead_letter, envelope, expire, only, retry, settle, text};
use crate::conformance::Checked;
use crate::conformance::case::{cases, ensure};
use crate::contract::{Depth, Dropped, Due, Outgoing, PutBack};
use crate::message::{Endpoint, Headers, MessageId, Verdict};

pub(super) fn cases() -> Vec<super::Case> {
    cases! {
        [Inspect] endpoints_are_listed = "All endpoints that were prepared are listed, sorted.";
        [Inspect, Delay, ExactDepth] depth_counts_each_state = "Ready, in flight, delayed and dead messages are counted.";
        [Inspect] depth_counts_the_living_and_the_dead = "Whatever state it is in, each message is counted once, and dead ones apart.";
        [Inspect] dead_letters_are_paged = "Dead letters come oldest first, page after page.";
        [Inspect] a_letter_put_back_is_as_new = "A dead letter that is put back is delivered again, its counts at zero.";
        [Inspect] putting_back_twice_does_nothing_more = "Each id is answered for, and repeating it sends nothing twice.";
        [Inspect] a_dropped_letter_is_gone = "Each id is answered for, what is dropped never comes back, and nothing else goes.";
        [Inspect] a_letter_put_back_says_so = "Whatever its headers were and however often it was put back, a message has its own and one more.";
        [Inspect] an_expired_letter_put_back_is_delivered = "Putting back an expired message does what it says.";
        [Inspect] dead_letters_of_a_subscription_are_its_own = "A copy that died in one subscription goes back there only.";
    }
}

/// Sends messages and gives up on each of them, in this order.
async fn bury(bench: &Bench, endpoint: &Arc<Endpoint>, names: &[&str]) -> Checked<Vec<MessageId>> {
    let consumer = bench.consumer(endpoint).await?;
    bench.send_all(endpoint, names).await?;
    let mut buried = Vec::new();
    for _ in names {
        let got = bench.receive_one(&consumer).await?;
        settle(&consumer, &got, dead_letter("given up")).await?;
        buried.push(got.envelope.id);
    }
    Ok(buried)
}

async fn endpoints_are_listed(bench: &Bench) -> Checked {
    let queue = bench.queue("listed").await?;
    let subscription = bench.subscription("listed", "reader").await?;
    let all = bench.inspect()?.endpoints().await?;
    for endpoint in [&queue, &subscription] {
        ensure!(all.contains(endpoint), "{endpoint} is missing in {all:?}");
    }
    ensure!(all.is_sorted(), "{all:?} is not sorted");
    Ok(())
}

async fn depth_counts_each_state(bench: &Bench) -> Checked {
    let queue = bench.queue("depth").await?;
    let consumer = bench.consumer(&queue).await?;
    let empty = bench.depth(&queue).await?;
    ensure!(empty == Depth::default(), "an empty queue has {empty:?}");
    bury(bench, &queue, &["dead"]).await?;
    bench.send(&queue, "retried").await?;
    let got = bench.receive_one(&consumer).await?;
    settle(&consumer, &got, retry(LONG)).await?;
    bench.send_one(bench.message(&queue, "delayed").due(Some(Due::In(LONG)))).await?;
    bench.send_all(&queue, &["flying", "flying", "flying", "ready", "ready", "ready", "ready"]).await?;
    bench.receive_all(&consumer, 3).await?;
    let depth = bench.depth(&queue).await?;
    ensure!(
        depth == Depth::new(4, 3, 2, 1),
        "4 ready, 3 in flight, 2 delayed, 1 dead were told as {depth:?}"
    );
    Ok(())
}

async fn depth_counts_the_living_and_the_dead(bench: &Bench) -> Checked {
    let queue = bench.queue("rough-depth").await?;
    let consumer = bench.consumer(&queue).await?;
    bury(bench, &queue, &["dead", "dead"]).await?;
    bench.send_all(&queue, &["flying", "retried", "ready"]).await?;
    bench.receive_one(&consumer).await?;
    let got = bench.receive_one(&consumer).await?;
    settle(&consumer, &got, retry(LONG)).await?;
    let depth = bench.depth(&queue).await?;
    ensure!(bench.is_told(depth, Depth::new(1, 1, 1, 2)), "3 living and 2 dead were told as {depth:?}");
    Ok(())
}

async fn dead_letters_are_paged(bench: &Bench) -> Checked {
    let queue = bench.queue("paged").await?;
    let buried = bury(bench, &queue, &["a", "b", "c", "d", "e"]).await?;
    let (mut seen, mut after) = (Vec::new(), None);
    for expected in [2, 2, 1, 0] {
        let page = bench.inspect()?.dead_letters(&queue, after, 2).await?;
        ensure!(page.len() == expected, "after {after:?} a page of 2 had {} letters", page.len());
        seen.extend(page.iter().map(|letter| letter.envelope.id));
        after = seen.last().copied();
    }
    ensure!(seen == buried, "they died in the order {buried:?} and were listed as {seen:?}");
    Ok(())
}

async fn a_letter_put_back_is_as_new(bench: &Bench) -> Checked {
    let queue = bench.queue("put-back").await?;
    let consumer = bench.consumer(&queue).await?;
    bench.send(&queue, "second chance").await?;
    for verdict in [retry(Duration::ZERO), retry(Duration::ZERO), dead_letter("hopeless")] {
        let got = bench.receive_one(&consumer).await?;
        settle(&consumer, &got, verdict).await?;
    }
    let dead = only(bench.dead(&queue).await?)?;
    let answers = bench.inspect()?.put_back(&queue, &[dead.envelope.id]).await?;
    ensure!(answers == [(dead.envelope.id, PutBack::Done)], "the answer was {answers:?}");
    let got = bench.receive_one(&consumer).await?;
    let mut expected = dead.envelope.clone();
    expected.headers.insert(Headers::PUT_BACK, "1");
    ensure!(
        got.envelope == expected,
        "{:?} came back, and its headers were {:?}",
        got.envelope,
        got.envelope.headers
    );
    let counts = (got.delivery_count, got.failures, got.crashes);
    ensure!(counts == (1, 0, 0), "claims, failures and crashes after putting back were {counts:?}");
    ensure!(bench.dead(&queue).await?.is_empty(), "it is still among the dead");
    Ok(())
}

async fn a_letter_put_back_says_so(bench: &Bench) -> Checked {
    let queue = bench.queue("says-so").await?;
    let consumer = bench.consumer(&queue).await?;
    // Larger than what lies in the store's own records, with it: a store may keep that in another place.
    for (headers, bytes) in
        [(vec![], 1), (vec![("a", "nul \0, \"b\":")], 1), (vec![("bus-fence", "7")], 60_000)]
    {
        let mut sent = envelope(&"x".repeat(bytes.min(bench.host.guarantees().max_body)));
        sent.headers = headers.into_iter().collect();
        bench.send_one(Outgoing::new(queue.target(), sent.clone())).await?;
        let mut expected = sent.headers.clone();
        for times in 0..3 {
            let got = bench.receive_one(&consumer).await?;
            ensure!(
                got.envelope.headers == expected,
                "put back {times} times, the headers were {:?}",
                got.envelope.headers
            );
            ensure!(got.envelope.body == sent.body, "the body is another one");
            if times == 2 {
                settle(&consumer, &got, Verdict::Complete).await?;
                continue;
            }
            settle(&consumer, &got, dead_letter("again")).await?;
            let dead = only(bench.dead(&queue).await?)?;
            ensure!(
                dead.envelope.headers == expected,
                "the dead letter's headers were {:?}",
                dead.envelope.headers
            );
            bench.inspect()?.put_back(&queue, &[sent.id]).await?;
            expected.insert(Headers::PUT_BACK, "1");
        }
    }
    Ok(())
}

async fn putting_back_twice_does_nothing_more(bench: &Bench) -> Checked {
    let queue = bench.queue("put-back-twice").await?;
    let consumer = bench.consumer(&queue).await?;
    let buried = bury(bench, &queue, &["a", "b", "c"]).await?;
    let stranger = MessageId::fresh();
    let asked = [buried[2], stranger, buried[0]];
    let inspect = bench.inspect()?;
    let answers = inspect.put_back(&queue, &asked).await?;
    let expected = [(buried[2], PutBack::Done), (stranger, PutBack::NotFound), (buried[0], PutBack::Done)];
    ensure!(answers == expected, "{expected:?} was due, and the answer was {answers:?}");
    let again = inspect.put_back(&queue, &asked).await?;
    ensure!(
        again.iter().all(|(_, answer)| *answer == PutBack::NotFound),
        "asked again, the answer was {again:?}"
    );
    bench.receive_all(&consumer, 2).await?;
    bench.expect_empty(&consumer, &queue).await?;
    let left = only(bench.dead(&queue).await?)?;
    ensure!(left.envelope.id == buried[1], "another letter is left than the one that was not put back");
    Ok(())
}

async fn a_dropped_letter_is_gone(bench: &Bench) -> Checked {
    let (queue, other) = (bench.queue("dropped").await?, bench.queue("not-dropped").await?);
    let buried = bury(bench, &queue, &["a", "b", "c"]).await?;
    let others = bury(bench, &other, &["d"]).await?;
    let message = bench.message(&queue, "living");
    let living = message.envelope.id;
    bench.send_one(message).await?;
    let asked = [buried[2], others[0], buried[0], living];
    let inspect = bench.inspect()?;
    let answers = inspect.drop_dead_letters(&queue, &asked).await?;
    let expected = [
        (buried[2], Dropped::Done),
        (others[0], Dropped::NotFound),
        (buried[0], Dropped::Done),
        (living, Dropped::NotFound),
    ];
    ensure!(answers == expected, "{expected:?} was due, and the answer was {answers:?}");
    let again = inspect.drop_dead_letters(&queue, &asked).await?;
    ensure!(
        again.iter().all(|(_, answer)| *answer == Dropped::NotFound),
        "asked again, the answer was {again:?}"
    );
    let put_back = inspect.put_back(&queue, &asked[..1]).await?;
    ensure!(put_back == [(buried[2], PutBack::NotFound)], "what was dropped was put back: {put_back:?}");
    let left = only(bench.dead(&queue).await?)?;
    ensure!(left.envelope.id == buried[1], "another letter is left than the one that was not dropped");
    only(bench.dead(&other).await?)?;
    let consumer = bench.consumer(&queue).await?;
    let got = bench.receive_one(&consumer).await?;
    ensure!(got.envelope.id == living, "{:?} came", text(&got));
    settle(&consumer, &got, Verdict::Complete).await?;
    bench.expect_empty(&consumer, &queue).await
}

async fn an_expired_letter_put_back_is_delivered(bench: &Bench) -> Checked {
    let queue = bench.queue("expired-back").await?;
    let consumer = bench.consumer(&queue).await?;
    let mut stale = envelope("stale");
    expire(&mut stale);
    let id = stale.id;
    bench.send_one(Outgoing::new(queue.target(), stale)).await?;
    bench.expect_empty(&consumer, &queue).await?;
    bench.inspect()?.put_back(&queue, &[id]).await?;
    let got = bench.receive_one(&consumer).await?;
    ensure!(got.envelope.id == id, "{:?} came", text(&got));
    settle(&consumer, &got, Verdict::Complete).await
}

async fn dead_letters_of_a_subscription_are_its_own(bench: &Bench) -> Checked {
    let (first, second) =
        (bench.subscription("dying", "first").await?, bench.subscription("dying", "second").await?);
    let buried = bury(bench, &first, &["event"]).await?;
    let other = bench.consumer(&second).await?;
    let got = bench.receive_one(&other).await?;
    settle(&other, &got, Verdict::Complete).await?;
    ensure!(bench.dead(&second).await?.is_empty(), "the other subscription has it among its dead");
    bench.inspect()?.put_back(&first, &buried).await?;
    bench.receive_one(&bench.consumer(&first).await?).await?;
    bench.receive_nothing(&other, "only the first subscription's copy was put back").await
}
