//! Short words for what tests do with a transport by hand: what they send, claim and settle.

use std::sync::Arc;
use std::time::Duration;

use bus::clock::Clock;
use bus::contract::{Consumer, Outgoing, Settlement};
use bus::message::{Delivery, Name, Receipt, Target, Verdict};
use bus::{Endpoint, Envelope};
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
