//! Short words for what tests do with a transport by hand: what they send, claim and settle.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::clock::Clock;
use bus::contract::{Consumer, Outgoing, Settlement, Transport};
use bus::message::{Delivery, Name, Receipt, Target, Verdict};
use bus::{Endpoint, Envelope, ErrorKind};
use tokio_util::sync::CancellationToken;

/// The endpoint of that name: a queue, or `topic/subscription`.
///
/// # Panics
/// If it is none.
pub fn endpoint(name: &str) -> Arc<Endpoint> {
    Arc::new(Endpoint::parse(name).unwrap())
}

/// A message with this body, sent now.
pub fn envelope(body: &str) -> Envelope {
    Envelope::new("test", body.as_bytes().to_vec(), Clock::system().wall())
}

/// The same, for a queue.
///
/// # Panics
/// If that is no name of a queue.
pub fn command(queue: &str, body: &str) -> Outgoing {
    Outgoing::new(Target::Queue(Name::new(queue).unwrap()), envelope(body))
}

/// What there is right now.
///
/// # Panics
/// If the transport answers an error.
pub async fn receive_now(consumer: &Arc<dyn Consumer>, max: usize) -> Vec<Delivery> {
    let stop = CancellationToken::new();
    let receiving = consumer.receive(max, &stop);
    tokio::pin!(receiving);
    tokio::select! {
        received = &mut receiving => received.unwrap(),
        () = tokio::time::sleep(Duration::from_millis(150)) => {
            stop.cancel();
            receiving.await.unwrap()
        }
    }
}

/// Ends one claim.
///
/// # Errors
/// What the transport answers.
pub async fn settle(consumer: &Arc<dyn Consumer>, receipt: &Receipt, verdict: Verdict) -> bus::Result<()> {
    consumer.settle(vec![Settlement::new(receipt.clone(), verdict)]).await.remove(0)
}

/// Has a crowd of callers send a body to a queue of a store that takes nothing, each for himself; answers how long the last
/// of them had to wait, and how many messages may have been handed over.
///
/// # Panics
/// If one of them is answered otherwise.
pub async fn crowd(
    transport: &Arc<dyn Transport>,
    queue: &str,
    (callers, body): (usize, &'static [u8]),
) -> (Duration, usize) {
    let (sender, target) = (transport.sender(), endpoint(queue).target());
    let began = Instant::now();
    let envelope = || Envelope::new("test", body, Clock::system().wall());
    let send = |_| sender.send(vec![Outgoing::new(target.clone(), envelope())]);
    let answers = futures_util::future::join_all((0..callers).map(send)).await;
    let took = began.elapsed();
    let is_handed_over = |answer: &bus::Result<_>| match answer.as_ref().map_err(bus::Error::kind) {
        Err(ErrorKind::OutcomeUnknown) => true,
        Err(ErrorKind::Unavailable | ErrorKind::Timeout) => false,
        other => panic!("{other:?}"),
    };
    (took, answers.iter().flatten().filter(|answer| is_handed_over(answer)).count())
}

/// The body as text.
///
/// # Panics
/// If it is none.
pub fn body(delivery: &Delivery) -> &str {
    std::str::from_utf8(&delivery.envelope.body).unwrap()
}

/// The bodies as texts, in their order.
pub fn bodies(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(body).collect()
}
