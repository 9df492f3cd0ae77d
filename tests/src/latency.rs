//! How long a message takes from its sending to the start of its handler, where nothing else is under way.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedReceiver;

use crate::wait::in_time;

const SERIES: usize = 5;
const MESSAGES: usize = 31;
/// Long enough for a host to wait again.
const BETWEEN: Duration = Duration::from_millis(60);
/// On a machine with more to do than it has cores each step waits for its turn: a bare question to the server is measured
/// beside each message, and a message may take as long as so many of them. Where nothing else runs that is far less than
/// what is promised.
const STEPS: u32 = 8;

/// [`assert_median`] of less than 5 ms, between two hosts on the store at `url`: one sends what `message` makes, whose queue
/// is called `latency`, and the other has a processor of it, which tells the provided sender when it starts.
///
/// # Panics
/// If it takes longer.
pub async fn assert_between_hosts<C: bus::Command>(
    url: &str,
    message: impl Fn() -> C,
    ask: impl AsyncFnMut(),
) {
    let (starts, mut started) = tokio::sync::mpsc::unbounded_channel::<Instant>();
    let host = bus::Host::builder().transport("default", url).only(["latency"]).provide(starts);
    let host = host.build().unwrap().start().await.unwrap();
    let producer = bus::Host::builder().transport("default", url).connect().await.unwrap();
    let send = async || drop(producer.bus().send(message()).await.unwrap());
    assert_median(Duration::from_millis(5), send, &mut started, ask).await;
    producer.close().await;
    host.stop().await.unwrap();
}

/// Sends one message after the other, each when the one before has long been handled, and asks the server something in
/// between, as often. A few series of them, since whatever else the machine does can only add to what is seen: the median
/// of one has to be below what is promised.
///
/// # Panics
/// If none is.
pub async fn assert_median(
    promised: Duration,
    mut send: impl AsyncFnMut(),
    starts: &mut UnboundedReceiver<Instant>,
    mut ask: impl AsyncFnMut(),
) {
    let mut seen = Vec::new();
    for _ in 0..SERIES {
        let (mut messages, mut questions) = (Vec::new(), Vec::new());
        for _ in 0..MESSAGES {
            tokio::time::sleep(BETWEEN).await;
            let asked = Instant::now();
            ask().await;
            questions.push(asked.elapsed());
            tokio::time::sleep(BETWEEN).await;
            let sent = Instant::now();
            send().await;
            let started = in_time("the handler starts", starts.recv()).await.expect("the handler is there");
            messages.push(started.saturating_duration_since(sent));
        }
        let (message, question) = (median(messages), median(questions));
        if message < promised.max(question * STEPS) {
            return;
        }
        seen.push((message, question));
    }
    panic!("from send to handler, and a bare question beside it: {seen:?}");
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
