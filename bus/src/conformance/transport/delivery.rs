//! Sending and receiving, when nothing goes wrong.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::bench::{Bench, envelope, expect_kind, ids, settle, text, texts};
use crate::clock::Timestamp;
use crate::conformance::case::{cases, ensure};
use crate::conformance::{Checked, Failure};
use crate::contract::{ConsumerSpec, Outgoing, Settlement};
use crate::error::ErrorKind;
use crate::message::{Headers, Verdict};

pub(super) fn cases() -> Vec<super::Case> {
    cases! {
        a_message_arrives_as_it_was_sent = "Every part of an envelope survives the way, whatever bytes it has.";
        messages_arrive_in_the_order_of_sending = "The messages of one caller to one target keep their order.";
        thousands_of_messages_arrive_once_each = "Nothing is lost and nothing is doubled.";
        a_send_answers_for_each_message = "A message that cannot be stored fails alone.";
        a_body_of_the_largest_size_is_taken = "The stated largest body is taken, one byte more is refused.";
        headers_of_the_largest_size_are_taken = "As many bytes of headers as any store takes are taken, one more is refused.";
        a_missing_queue_is_created_by_sending = "A producer may start before its consumer.";
        preparing_again_changes_nothing = "Several hosts may prepare the same endpoints, at once and repeatedly.";
        receive_waits_for_a_message = "A receive that finds nothing waits until something comes.";
        receive_ends_when_stopped = "A receive returns when stop fires.";
        an_idle_receive_shows_that_the_store_answers = "Whoever waits notes each answer of the store, though there was nothing.";
        receive_gives_no_more_than_asked = "A receive claims at most max messages.";
        receive_stops_at_its_bytes = "A receive claims no further message once it has max_bytes, and at least one.";
        a_claimed_message_is_given_to_nobody_else = "A claim keeps every other consumer away.";
        a_completed_message_is_gone = "What is completed never comes back.";
        consumers_share_a_queue = "Each message goes to one of a queue's consumers.";
        callers_at_the_same_time_get_their_own_answers = "Sends of many callers ride together, and nobody notices.";
    }
}

async fn a_message_arrives_as_it_was_sent(bench: &Bench) -> Checked {
    let queue = bench.queue("as-sent").await?;
    let consumer = bench.consumer(&queue).await?;
    let bodies: [&[u8]; 4] = [b"", b"{\"a\":\"\\u0000\"}", &[0, 255, 10, 13, 0, 128], "åäö ✓".as_bytes()];
    for body in bodies {
        let mut sent = envelope("");
        sent.body = bytes::Bytes::copy_from_slice(body);
        let odd = "nul \0, zeile\r\nzwei: 🦀👩‍👩‍👧 \u{feff}\u{7f}";
        sent.headers =
            [("traceparent", "00-1-2-01"), ("empty", ""), ("Ünï", odd), (odd, odd), ("", "unnamed")]
                .into_iter()
                .collect();
        sent.time_to_live = Some(Duration::from_secs(36_000));
        sent.sent_at = Timestamp::from_micros(sent.sent_at.as_micros() / 1000 * 1000 + 123);
        bench.send_one(Outgoing::new(queue.target(), sent.clone())).await?;
        let got = bench.receive_one(&consumer).await?;
        ensure!(got.envelope == sent, "{sent:?} was sent and {:?} came", got.envelope);
        ensure!(got.endpoint == queue, "it was said to come from {}", got.endpoint);
        ensure!(
            (got.delivery_count, got.failures, got.crashes, got.crashed_alone) == (1, 0, 0, false),
            "a first delivery had the history {got:?}"
        );
        settle(&consumer, &got, Verdict::Complete).await?;
    }
    Ok(())
}

async fn messages_arrive_in_the_order_of_sending(bench: &Bench) -> Checked {
    let queue = bench.queue("in-order").await?;
    let consumer = bench.consumer(&queue).await?;
    let names: Vec<String> = (0..60).map(|n| n.to_string()).collect();
    for group in names.chunks(20) {
        bench.send_all(&queue, &group.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    }
    let got = texts(&bench.receive_all(&consumer, names.len()).await?);
    ensure!(got == names, "0 to 59 were sent in order and came as {got:?}");
    Ok(())
}

async fn thousands_of_messages_arrive_once_each(bench: &Bench) -> Checked {
    let count = bench.timing.many;
    let queue = bench.queue("thousands").await?;
    let consumer = bench.consumer(&queue).await?;
    let sender = bench.host.sender();
    let mut sent = HashSet::new();
    for _ in 0..count / 100 {
        let batch: Vec<_> = (0..100).map(|_| bench.message(&queue, "one of thousands")).collect();
        sent.extend(batch.iter().map(|message| message.envelope.id));
        for answer in sender.send(batch).await {
            answer?;
        }
    }
    let mut got = HashSet::new();
    while sent.len() > got.len() {
        let missing = sent.len() - got.len();
        let deliveries = bench.receive(&consumer, 250).await.map_err(|failure| {
            Failure::new(format!("{missing} of {count} confirmed messages never came: {failure}"))
        })?;
        for id in ids(&deliveries) {
            ensure!(sent.contains(&id), "{id} came and had not been sent");
            ensure!(got.insert(id), "{id} came twice");
        }
        let settlements = deliveries.into_iter().map(|d| Settlement::new(d.receipt, Verdict::Complete));
        for answer in consumer.settle(settlements.collect()).await {
            answer?;
        }
    }
    bench.expect_empty(&consumer, &queue).await
}

async fn a_send_answers_for_each_message(bench: &Bench) -> Checked {
    let queue = bench.queue("one-too-large").await?;
    let consumer = bench.consumer(&queue).await?;
    let mut batch: Vec<_> = ["a", "too large", "b"].iter().map(|text| bench.message(&queue, text)).collect();
    batch[1].envelope.body = vec![0; bench.host.guarantees().max_body + 1].into();
    let mut answers = bench.host.sender().send(batch).await;
    ensure!(answers.len() == 3, "3 messages were sent and {} answers came", answers.len());
    expect_kind(answers.remove(1), ErrorKind::TooLarge, "a body one byte too large")?;
    for answer in answers {
        answer?;
    }
    let got = texts(&bench.receive_all(&consumer, 2).await?);
    ensure!(got == ["a", "b"], "a and b were confirmed and {got:?} came");
    Ok(())
}

async fn a_body_of_the_largest_size_is_taken(bench: &Bench) -> Checked {
    let queue = bench.queue("largest").await?;
    let consumer = bench.consumer(&queue).await?;
    let largest = bench.host.guarantees().max_body;
    for size in [largest - 1, largest] {
        let mut message = bench.message(&queue, "");
        message.envelope.body = vec![7; size].into();
        bench.send_one(message).await?;
        let got = bench.receive_one(&consumer).await?;
        ensure!(got.envelope.body.len() == size, "of {size} bytes {} came", got.envelope.body.len());
        settle(&consumer, &got, Verdict::Complete).await?;
    }
    let mut message = bench.message(&queue, "");
    message.envelope.body = vec![7; largest + 1].into();
    for answer in bench.host.sender().send(vec![message]).await {
        expect_kind(answer, ErrorKind::TooLarge, "a body one byte too large")?;
    }
    Ok(())
}

async fn headers_of_the_largest_size_are_taken(bench: &Bench) -> Checked {
    let queue = bench.queue("headers").await?;
    let consumer = bench.consumer(&queue).await?;
    let one = [("name".to_owned(), "v".repeat(Headers::MAX_BYTES - 4))];
    // Names count too: as many headers as there is room for, five bytes each.
    let many = (0..Headers::MAX_BYTES / 5).map(|n| (format!("{n:04}"), "v".to_owned()));
    for headers in [Headers::from_iter(one.clone()), Headers::from_iter(many)] {
        let mut message = bench.message(&queue, "");
        message.envelope.headers = headers.clone();
        bench.send_one(message).await?;
        let got = bench.receive_one(&consumer).await?;
        ensure!(
            got.envelope.headers == headers,
            "of {} headers of {} bytes came {} of {}",
            headers.len(),
            headers.bytes(),
            got.envelope.headers.len(),
            got.envelope.headers.bytes()
        );
        settle(&consumer, &got, Verdict::Complete).await?;
    }
    let mut message = bench.message(&queue, "");
    message.envelope.headers = Headers::from_iter(one);
    message.envelope.headers.insert("a", "");
    for answer in bench.host.sender().send(vec![message]).await {
        expect_kind(answer, ErrorKind::TooLarge, "headers one byte too large")?;
    }
    Ok(())
}

async fn a_missing_queue_is_created_by_sending(bench: &Bench) -> Checked {
    let queue = bench.unprepared("not-there-yet")?;
    bench.send(&queue, "early").await?;
    bench.other_host.prepare(std::slice::from_ref(&*queue)).await?;
    let consumer = bench.other_consumer(&queue).await?;
    let got = bench.receive_one(&consumer).await?;
    ensure!(text(&got) == "early", "{:?} came", text(&got));
    Ok(())
}

async fn preparing_again_changes_nothing(bench: &Bench) -> Checked {
    let endpoints = [
        (*bench.unprepared("prepared-often")?).clone(),
        (*bench.subscription("prepared-often", "reader").await?).clone(),
    ];
    let (one, two) =
        futures_util::join!(bench.host.prepare(&endpoints), bench.other_host.prepare(&endpoints));
    one?;
    two?;
    for endpoint in &endpoints {
        bench.send(endpoint, "kept").await?;
    }
    bench.other_host.prepare(&endpoints).await?;
    for endpoint in endpoints {
        let consumer = bench.consumer(&Arc::new(endpoint)).await?;
        bench.receive_one(&consumer).await?;
    }
    Ok(())
}

async fn receive_waits_for_a_message(bench: &Bench) -> Checked {
    let queue = bench.queue("waiting").await?;
    // Across hosts: what one sends reaches a receive that already waits in another.
    let consumer = bench.other_consumer(&queue).await?;
    let receive = bench.receive_one(&consumer);
    let send = async {
        tokio::time::sleep(bench.timing.moment).await;
        bench.send(&queue, "late").await
    };
    let (got, sent) = futures_util::join!(receive, send);
    sent?;
    let got = got?;
    ensure!(text(&got) == "late", "{:?} came", text(&got));
    Ok(())
}

async fn receive_ends_when_stopped(bench: &Bench) -> Checked {
    let queue = bench.queue("stopped").await?;
    let consumer = bench.consumer(&queue).await?;
    bench.receive_nothing(&consumer, "nothing had been sent").await?;
    let started = tokio::time::Instant::now();
    bench.receive_nothing_for(&consumer, Duration::ZERO, "nothing had been sent").await?;
    // "At once": far less than the interval of any poll that a backend may use.
    ensure!(
        started.elapsed() < Duration::from_millis(900),
        "receive returned {:?} after stop",
        started.elapsed()
    );
    Ok(())
}

async fn an_idle_receive_shows_that_the_store_answers(bench: &Bench) -> Checked {
    let queue = bench.queue("pulse").await?;
    let spec = ConsumerSpec::new(Arc::clone(&queue), Duration::from_secs(600));
    let pulse = spec.pulse.clone();
    let consumer = bench.consumer_with(spec).await?;
    ensure!(pulse.last().is_none(), "an answer was noted before anything was asked");
    let stop = CancellationToken::new();
    let mut receive = consumer.receive(1, &stop);
    let noted = async {
        while pulse.last().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        answer = &mut receive => return Err(Failure::new(format!("an idle receive ended by itself: {answer:?}"))),
        noted = tokio::time::timeout(bench.timing.patience, noted) => {
            stop.cancel();
            receive.await?;
            ensure!(noted.is_ok(), "no answer of the store was noted within {:?}", bench.timing.patience);
        }
    }
    Ok(())
}

async fn receive_gives_no_more_than_asked(bench: &Bench) -> Checked {
    let queue = bench.queue("at-most").await?;
    let consumer = bench.consumer(&queue).await?;
    bench.send_all(&queue, &["a", "b", "c", "d", "e"]).await?;
    let mut got = Vec::new();
    for max in [1, 3, 5] {
        got.extend(bench.receive(&consumer, max).await?);
    }
    got.extend(bench.receive_all(&consumer, 5 - got.len()).await?);
    ensure!(texts(&got) == ["a", "b", "c", "d", "e"], "{:?} came", texts(&got));
    Ok(())
}

async fn receive_stops_at_its_bytes(bench: &Bench) -> Checked {
    const MAX_BYTES: usize = 10_000;
    // The last but two is larger than all that a receive takes, and yet has to come.
    let mut sizes = vec![4_000, 4_000, 4_000, 4_000, 4_000, 25_000, 1, 4_000];
    let queue = bench.queue("bytes").await?;
    let messages = sizes.iter().map(|size| bench.message(&queue, &"b".repeat(*size)));
    for sent in bench.host.sender().send(messages.collect()).await {
        sent?;
    }
    sizes.sort_unstable();
    // The second round takes over what the first one had.
    for round in ["fresh", "taken over"] {
        let spec = ConsumerSpec::new(Arc::clone(&queue), bench.timing.lease).max_bytes(MAX_BYTES);
        let consumer = bench.consumer_with(spec).await?;
        let mut got = Vec::new();
        while got.len() < sizes.len() {
            let deliveries = bench.receive(&consumer, 100).await?;
            let bytes: Vec<_> = deliveries.iter().map(|delivery| delivery.envelope.bytes()).collect();
            let before_the_last: usize = bytes.iter().rev().skip(1).sum();
            ensure!(before_the_last < MAX_BYTES, "one receive gave messages of {bytes:?} bytes ({round})");
            got.extend(deliveries.iter().map(|delivery| delivery.envelope.body.len()));
        }
        got.sort_unstable();
        ensure!(got == sizes, "messages of {sizes:?} bytes were there, and {got:?} came ({round})");
        tokio::time::sleep(bench.timing.lease + bench.timing.moment).await;
    }
    Ok(())
}

async fn a_claimed_message_is_given_to_nobody_else(bench: &Bench) -> Checked {
    let queue = bench.queue("claimed").await?;
    let holder = bench.consumer(&queue).await?;
    let others = [bench.consumer(&queue).await?, bench.other_consumer(&queue).await?];
    bench.send(&queue, "mine").await?;
    bench.receive_one(&holder).await?;
    for other in &others {
        bench.expect_empty(other, &queue).await?;
    }
    bench.expect_empty(&holder, &queue).await
}

async fn a_completed_message_is_gone(bench: &Bench) -> Checked {
    let queue = bench.queue("completed").await?;
    let consumer = bench.consumer(&queue).await?;
    bench.send(&queue, "done").await?;
    let got = bench.receive_one(&consumer).await?;
    settle(&consumer, &got, Verdict::Complete).await?;
    bench.expect_empty(&consumer, &queue).await?;
    bench.expect_empty(&bench.other_consumer(&queue).await?, &queue).await
}

async fn consumers_share_a_queue(bench: &Bench) -> Checked {
    const COUNT: usize = 60;
    let queue = bench.queue("shared").await?;
    let names: Vec<String> = (0..COUNT).map(|n| n.to_string()).collect();
    bench.send_all(&queue, &names.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let (one, two) = (bench.consumer(&queue).await?, bench.other_consumer(&queue).await?);
    let seen = parking_lot::Mutex::new(Vec::new());
    let drain = async |consumer| -> Checked {
        while seen.lock().len() < COUNT {
            let got = bench.receive_within(consumer, 7, bench.timing.moment).await??;
            seen.lock().extend(ids(&got));
        }
        Ok(())
    };
    let (a, b) = futures_util::join!(drain(&one), drain(&two));
    a?;
    b?;
    let seen = seen.into_inner();
    let distinct = seen.iter().collect::<HashSet<_>>().len();
    ensure!(distinct == COUNT && seen.len() == COUNT, "{COUNT} messages came {} times", seen.len());
    Ok(())
}

async fn callers_at_the_same_time_get_their_own_answers(bench: &Bench) -> Checked {
    const CALLERS: usize = 32;
    let queue = bench.queue("callers").await?;
    let consumer = bench.consumer(&queue).await?;
    let too_large = vec![0u8; bench.host.guarantees().max_body + 1];
    let sender = bench.host.sender();
    let call = async |caller: usize| -> Checked {
        let first = sender.send(vec![bench.message(&queue, &format!("{caller}:0"))]).await;
        let mut refused = bench.message(&queue, "");
        refused.envelope.body = too_large.clone().into();
        let batch = if caller.is_multiple_of(8) {
            vec![refused]
        } else {
            vec![bench.message(&queue, &format!("{caller}:1"))]
        };
        let second = sender.send(batch).await;
        for answer in first {
            answer?;
        }
        for answer in second {
            match caller.is_multiple_of(8) {
                true => expect_kind(answer, ErrorKind::TooLarge, "a body one byte too large")?,
                false => drop(answer?),
            }
        }
        Ok(())
    };
    for result in futures_util::future::join_all((0..CALLERS).map(call)).await {
        result?;
    }
    let got = texts(&bench.receive_all(&consumer, 2 * CALLERS - CALLERS.div_ceil(8)).await?);
    for caller in 0..CALLERS {
        let of_caller: Vec<_> = got.iter().filter(|text| text.starts_with(&format!("{caller}:"))).collect();
        ensure!(of_caller.is_sorted(), "caller {caller} sent in order, and it came as {of_caller:?}");
    }
    bench.expect_empty(&consumer, &queue).await
}
