//! Messages that are sent and processed all the time, while something is done to the server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::ErrorKind;
use bus::contract::{Consumer, Settlement, Transport};
use bus::message::Verdict;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::by_hand::{body, command};
use crate::served::{Server, Store};
use crate::wait::PATIENCE;

/// How soon after the server is back messages are processed again.
const SOON: Duration = Duration::from_secs(5);

/// What has become of the messages.
#[derive(Debug, Default)]
struct Ledger {
    /// Sent, and the server said so.
    acknowledged: BTreeSet<u64>,
    /// Nobody can say whether they are there.
    unknown: BTreeSet<u64>,
    /// Processed, and the server said so.
    processed: BTreeSet<u64>,
    /// When the last one was.
    last: Option<Instant>,
}

/// Messages that one task sends and another one processes.
#[derive(Debug)]
pub struct Traffic {
    ledger: Arc<Mutex<Ledger>>,
    stop_sending: CancellationToken,
    stop_receiving: CancellationToken,
    sending: JoinHandle<()>,
    receiving: JoinHandle<()>,
}

impl Traffic {
    /// Begins, and waits until messages flow.
    ///
    /// # Panics
    /// If they do not.
    pub async fn start<S: Server>(store: &Store<S>, queue: &'static str) -> Traffic {
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let (stop_sending, stop_receiving) = (CancellationToken::new(), CancellationToken::new());
        let consumer = store.consumer(queue).await;
        let sending = send(Arc::clone(&store.transport), queue, Arc::clone(&ledger), stop_sending.clone());
        let receiving = process(consumer, Arc::clone(&ledger), stop_receiving.clone());
        let traffic = Traffic {
            ledger,
            stop_sending,
            stop_receiving,
            sending: tokio::spawn(sending),
            receiving: tokio::spawn(receiving),
        };
        traffic.until("messages flow", |ledger| ledger.processed.len() > 20).await;
        traffic
    }

    async fn until(&self, what: &str, holds: impl Fn(&Ledger) -> bool) {
        let begun = Instant::now();
        while !holds(&self.ledger.lock()) {
            assert!(begun.elapsed() < PATIENCE, "still not: {what}; {}", self.summary());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn summary(&self) -> String {
        let ledger = self.ledger.lock();
        format!(
            "{} acknowledged, {} unknown, {} processed",
            ledger.acknowledged.len(),
            ledger.unknown.len(),
            ledger.processed.len()
        )
    }

    /// How long after `back` messages were processed again.
    async fn recovery(&self, back: Instant) -> Duration {
        let is_back = |ledger: &Ledger| ledger.last.is_some_and(|last| last > back);
        self.until("messages flow again", is_back).await;
        self.ledger.lock().last.map(|last| last - back).unwrap_or_default()
    }

    /// Awaits that within 5 s after `back` messages are processed again.
    ///
    /// # Panics
    /// If none is.
    pub async fn flows_soon(&self, back: Instant) {
        let recovery = self.recovery(back).await;
        assert!(recovery < SOON, "messages flowed again only after {recovery:?}");
    }

    /// Ends: nothing that was acknowledged is lost, and nothing was processed that was never sent.
    ///
    /// # Panics
    /// If it is otherwise.
    pub async fn end(self) {
        self.stop_sending.cancel();
        let all_done = |ledger: &Ledger| ledger.acknowledged.is_subset(&ledger.processed);
        let done = async {
            while !all_done(&self.ledger.lock()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, done).await.is_err() {
            let ledger = self.ledger.lock();
            let lost: Vec<_> = ledger.acknowledged.difference(&ledger.processed).collect();
            panic!("acknowledged and lost: {lost:?}");
        }
        self.sending.await.unwrap();
        self.stop_receiving.cancel();
        self.receiving.await.unwrap();
        let ledger = self.ledger.lock();
        let known: BTreeSet<_> = ledger.acknowledged.union(&ledger.unknown).collect();
        let strange: Vec<_> = ledger.processed.iter().filter(|number| !known.contains(number)).collect();
        assert!(strange.is_empty(), "refused, and processed all the same: {strange:?}");
    }
}

async fn send(
    transport: Arc<dyn Transport>,
    queue: &'static str,
    ledger: Arc<Mutex<Ledger>>,
    stop: CancellationToken,
) {
    let sender = transport.sender();
    for number in 0.. {
        if stop.is_cancelled() {
            return;
        }
        match sender.send(vec![command(queue, &number.to_string())]).await.remove(0) {
            Ok(_) => drop(ledger.lock().acknowledged.insert(number)),
            Err(error) if error.kind() == ErrorKind::OutcomeUnknown => {
                ledger.lock().unknown.insert(number);
            }
            Err(error) => assert!(error.is_transient(), "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// Receives and settles; what fails is tried again after a short pause, as a host does.
async fn process(consumer: Arc<dyn Consumer>, ledger: Arc<Mutex<Ledger>>, stop: CancellationToken) {
    while !stop.is_cancelled() {
        match consumer.receive(20, &stop).await {
            Ok(deliveries) => {
                for delivery in deliveries {
                    let number: u64 = body(&delivery).parse().unwrap();
                    complete(&consumer, number, delivery.receipt, &ledger).await;
                }
            }
            Err(error) => {
                assert!(error.is_transient(), "{error:?}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn complete(
    consumer: &Arc<dyn Consumer>,
    number: u64,
    receipt: bus::message::Receipt,
    ledger: &Mutex<Ledger>,
) {
    let settlement = Settlement::new(receipt, Verdict::Complete);
    loop {
        match consumer.settle(vec![settlement.clone()]).await.remove(0) {
            Ok(()) => break,
            // Done before, and the answer was lost; or it will come again.
            Err(error) if error.kind() == ErrorKind::ReceiptLost => break,
            Err(error) => assert!(error.is_transient(), "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut ledger = ledger.lock();
    ledger.processed.insert(number);
    ledger.last = Some(Instant::now());
}
