//! A host at work and a producer beside it, and what became of each message.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bus::host::{HostHandle, Producer};
use bus::prelude::*;
use bus::{ErrorKind, Host};
use bus_tests::wait::PATIENCE;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "work")]
pub(crate) struct Work(pub(crate) u64);

#[derive(Serialize, Deserialize, Command)]
#[command(queue = "single-work")]
pub(crate) struct SingleWork(pub(crate) u64);

/// What handlers have seen.
#[derive(Default)]
pub(crate) struct Diary {
    /// How often, by number.
    pub(crate) seen: Mutex<HashMap<u64, usize>>,
    inside: AtomicUsize,
    overlaps: AtomicUsize,
}

impl Diary {
    fn note(&self, number: u64) {
        *self.seen.lock().entry(number).or_default() += 1;
    }

    pub(crate) fn overlaps(&self) -> usize {
        self.overlaps.load(Ordering::SeqCst)
    }
}

#[processor(max_concurrent_calls = 8)]
async fn work(message: Work, diary: Dep<Arc<Diary>>) -> Result<()> {
    diary.note(message.0);
    Ok(())
}

#[processor(singleton)]
async fn single_work(message: SingleWork, diary: Dep<Arc<Diary>>) -> Result<()> {
    let others = diary.inside.fetch_add(1, Ordering::SeqCst);
    diary.overlaps.fetch_add(others, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(5)).await;
    diary.note(message.0);
    diary.inside.fetch_sub(1, Ordering::SeqCst);
    Ok(())
}

/// Starts a host that reads one endpoint.
pub(crate) async fn host(url: &str, endpoint: &str, diary: &Arc<Diary>) -> HostHandle {
    let host = Host::builder().transport("default", url).locks_at("default").only([endpoint]);
    let host = host.provide(Arc::clone(diary)).build().expect("the wiring is sound");
    host.start().await.expect("the host starts")
}

/// Connects without reading anything.
pub(crate) async fn producer(url: &str) -> Producer {
    Host::builder().transport("default", url).connect().await.expect("the store can be opened")
}

/// A stream of numbered messages through the queue `work`.
pub(crate) struct Stream {
    host: HostHandle,
    diary: Arc<Diary>,
    sent: Arc<Sent>,
    producing: JoinHandle<()>,
}

#[derive(Default)]
struct Sent {
    acknowledged: Mutex<HashSet<u64>>,
    unknown: Mutex<HashSet<u64>>,
    refused: AtomicUsize,
    last: AtomicUsize,
    stop: AtomicBool,
}

impl Stream {
    pub(crate) async fn start(url: &str) -> Stream {
        let diary = Arc::new(Diary::default());
        let host = host(url, "work", &diary).await;
        let sent = Arc::new(Sent::default());
        let producing = tokio::spawn(produce(producer(url).await, Arc::clone(&sent)));
        Stream { host, diary, sent, producing }
    }

    /// Waits until messages that are sent from now on are processed, and answers how long that took.
    pub(crate) async fn flows(&self, when: &str) -> Duration {
        let began = Instant::now();
        let from = self.sent.last.load(Ordering::SeqCst) as u64;
        loop {
            let new = self.diary.seen.lock().keys().filter(|number| **number > from).count();
            if new >= 20 {
                return began.elapsed();
            }
            assert!(began.elapsed() < PATIENCE, "{when}: nothing is processed for {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// How many sends were answered that they may or may not have been done, or not at all.
    pub(crate) fn troubles(&self) -> usize {
        self.sent.unknown.lock().len() + self.sent.refused.load(Ordering::SeqCst)
    }

    /// Stops sending, waits until all is processed, and looks whether anything was lost.
    pub(crate) async fn end(self) -> usize {
        self.sent.stop.store(true, Ordering::SeqCst);
        self.producing.await.expect("the producer ends");
        let acknowledged = self.sent.acknowledged.lock().clone();
        let began = Instant::now();
        loop {
            let missing =
                acknowledged.iter().filter(|number| !self.diary.seen.lock().contains_key(number)).count();
            if missing == 0 {
                break;
            }
            // A claim whose holder was lost is free when its lease has run out: 30 s.
            assert!(
                began.elapsed() < PATIENCE * 2,
                "of {} acknowledged messages {missing} were lost",
                acknowledged.len()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let unknown = self.sent.unknown.lock().clone();
        let strangers = |number: &&u64| !acknowledged.contains(number) && !unknown.contains(number);
        let strange = self.diary.seen.lock().keys().filter(strangers).count();
        assert_eq!(strange, 0, "messages came whose sends were answered as not done");
        self.host.stop().await.expect("the host stops");
        acknowledged.len()
    }
}

async fn produce(producer: Producer, sent: Arc<Sent>) {
    for number in 1.. {
        if sent.stop.load(Ordering::SeqCst) {
            break;
        }
        sent.last.store(number as usize, Ordering::SeqCst);
        match producer.bus().send(Work(number)).await {
            Ok(_) => drop(sent.acknowledged.lock().insert(number)),
            Err(e) if e.kind() == ErrorKind::OutcomeUnknown => drop(sent.unknown.lock().insert(number)),
            Err(e) => {
                assert!(e.is_transient(), "{e:?}");
                sent.refused.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    producer.close().await;
}
