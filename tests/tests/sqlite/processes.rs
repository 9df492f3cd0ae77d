//! Several processes on one file. The others are this test binary again, told by the environment what to do.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bus::contract::{ConsumerSpec, Depth, Ended, LockId, Owner};
use bus::message::Verdict;
use tokio_util::sync::CancellationToken;

use crate::store::{LEASE, PATIENCE, Store, bodies, command, endpoint, open, open_locks, receive, settle};

const ROLE: &str = "BUS_TEST_SQLITE_ROLE";
const FILE: &str = "BUS_TEST_SQLITE_FILE";
/// A call may take a tenth of it, and the disk of a busy machine is slow.
const LOCK_LEASE: Duration = Duration::from_secs(300);

/// Another process in one of the roles below. Killed when dropped.
struct Other {
    child: Child,
    input: ChildStdin,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Other {
    fn start(role: &str, file: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["heavy_processes::another_process", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(FILE, file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (tell, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The test harness prints to the same output, on the same line even.
                if let Some((_, said)) = line.split_once("@ ") {
                    let _ = tell.send(said.to_owned());
                }
            }
        });
        Other { child, input, lines }
    }

    fn hear(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("the other process says something")
    }

    fn tell(&mut self) {
        self.input.write_all(b"go\n").unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the other process does; nothing when the tests are run as usual.
#[test]
fn another_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let file = std::path::PathBuf::from(std::env::var(FILE).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match role.as_str() {
            "send-much" => send_much(&file).await,
            "send-one-by-one" => send_one_by_one(&file).await,
            "claim-and-hang" => claim_and_hang(&file).await,
            "settle-what-comes" => settle_what_comes(&file).await,
            "hold-a-lock" => hold_a_lock(&file).await,
            other => panic!("no role {other}"),
        }
    });
}

#[allow(clippy::print_stdout, reason = "how the other process speaks")]
fn say(text: &str) {
    println!("@ {text}");
}

fn wait_for_word() {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line).unwrap() == 0 {
        std::process::exit(0);
    }
}

async fn send_much(file: &Path) {
    let transport = open(file).await.unwrap();
    say("ready");
    wait_for_word();
    let start = Instant::now();
    let callers = (0..16).map(|_| {
        let sender = transport.sender();
        async move {
            let mut sent = 0;
            while start.elapsed() < Duration::from_secs(2) {
                sender.send(vec![command("jobs", "x")]).await.remove(0).unwrap();
                sent += 1;
            }
            sent
        }
    });
    let sent: u64 = futures_util::future::join_all(callers).await.iter().sum();
    say(&sent.to_string());
}

async fn send_one_by_one(file: &Path) {
    let transport = open(file).await.unwrap();
    say("ready");
    loop {
        wait_for_word();
        transport.sender().send(vec![command("jobs", "x")]).await.remove(0).unwrap();
    }
}

async fn claim_and_hang(file: &Path) {
    let transport = open(file).await.unwrap();
    let spec = ConsumerSpec::new(endpoint("jobs"), Duration::from_millis(500));
    let consumer = transport.consumer(spec).await.unwrap();
    let claimed = receive(&consumer, 50).await;
    say(&claimed.len().to_string());
    wait_for_word();
}

async fn settle_what_comes(file: &Path) {
    let transport = open(file).await.unwrap();
    let consumer = transport.consumer(ConsumerSpec::new(endpoint("jobs"), LEASE)).await.unwrap();
    say("ready");
    wait_for_word();
    let stop = CancellationToken::new();
    let mut settled = 0;
    // The last message is the sign to end.
    loop {
        let claimed = consumer.receive(20, &stop).await.unwrap();
        for delivery in &claimed {
            settle(&consumer, &delivery.receipt, Verdict::Complete).await.unwrap();
            settled += 1;
        }
        if bodies(&claimed).contains(&"end") {
            break;
        }
    }
    say(&settled.to_string());
}

async fn hold_a_lock(file: &Path) {
    let locks = open_locks(file).await.unwrap();
    let lease = locks.try_lock(&LockId::from("it"), LOCK_LEASE, Owner::fresh()).await.unwrap().unwrap();
    say("held");
    wait_for_word();
    lease.release(Ended::Clean).await.unwrap();
    // As a host does: a process that just ends may be gone before it has told the others.
    locks.close().await;
    say("released");
}

/// Each of four processes that send as fast as they can gets at least half of its fair share.
#[test]
fn four_processes_share_one_file_fairly() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bus.db");
    let mut others: Vec<_> = (0..4).map(|_| Other::start("send-much", &file)).collect();
    for other in &others {
        assert_eq!(other.hear(), "ready");
    }
    for other in &mut others {
        other.tell();
    }
    let sent: Vec<u64> = others.iter().map(|other| other.hear().parse().unwrap()).collect();
    let fair = sent.iter().sum::<u64>() / 4;
    assert!(sent.iter().all(|sent| *sent >= fair / 2), "{sent:?}");
}

/// M1: killed between receiving and settling. Nothing is lost, and the crash is counted.
#[tokio::test]
async fn what_a_killed_process_had_claimed_comes_back() {
    let store = Store::with(&["jobs"]).await;
    let sent: Vec<_> = (0..80).map(|number| number.to_string()).collect();
    store.send("jobs", sent.iter().map(String::as_str)).await;
    let mut other = Other::start("claim-and-hang", &store.file());
    assert_eq!(other.hear(), "50");
    other.kill();

    let consumer = store.consumer("jobs").await;
    let mut seen = Vec::new();
    let mut crashed = 0;
    while seen.len() < 80 {
        for delivery in receive(&consumer, 100).await {
            settle(&consumer, &delivery.receipt, Verdict::Complete).await.unwrap();
            seen.push(crate::store::body(&delivery).parse::<u32>().unwrap());
            crashed += delivery.crashes;
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..80).collect::<Vec<_>>());
    assert_eq!(crashed, 50);
    assert_eq!(store.depth("jobs").await, Depth::default());
}

/// Two processes drain one queue: each message is settled once.
#[tokio::test]
async fn two_processes_settle_each_message_once() {
    let store = Store::with(&["jobs"]).await;
    store.send("jobs", std::iter::repeat_n("x", 2000)).await;
    let mut others: Vec<_> = (0..2).map(|_| Other::start("settle-what-comes", &store.file())).collect();
    for other in &mut others {
        assert_eq!(other.hear(), "ready");
        other.tell();
    }
    let empty = async {
        while store.depth("jobs").await != Depth::default() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, empty).await.expect("all is settled");
    // One after the other, so that neither takes both.
    let mut settled = Vec::new();
    let (first, second) = others.split_at_mut(1);
    store.send("jobs", ["end"]).await;
    let (told, untold) = loop {
        if let Ok(said) = first[0].lines.try_recv() {
            break (said, &second[0]);
        }
        if let Ok(said) = second[0].lines.try_recv() {
            break (said, &first[0]);
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    settled.push(told.parse::<u64>().unwrap());
    store.send("jobs", ["end"]).await;
    settled.push(untold.hear().parse().unwrap());
    assert_eq!(settled.iter().sum::<u64>(), 2002, "{settled:?}");
}

/// M15, M26: another process's message comes far sooner than the shortest poll (250 ms).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_processs_message_wakes_a_waiting_consumer() {
    let store = Store::with(&["jobs", "quiet"]).await;
    let mut other = Other::start("send-one-by-one", &store.file());
    assert_eq!(other.hear(), "ready");
    let consumer = store.consumer("jobs").await;
    let mut latencies = Vec::new();
    for _ in 0..9 {
        let waiting = {
            let consumer = Arc::clone(&consumer);
            tokio::spawn(async move { (receive(&consumer, 1).await.remove(0), Instant::now()) })
        };
        // Long enough for the consumer to have looked in vain and to wait.
        tokio::time::sleep(Duration::from_millis(60)).await;
        let told = Instant::now();
        other.tell();
        let (delivery, received) = waiting.await.unwrap();
        latencies.push(received - told);
        settle(&consumer, &delivery.receipt, Verdict::Complete).await.unwrap();
    }
    latencies.sort();
    // Without hints none is: the poll has 190 ms to go. A busy machine may make some of them late.
    assert!(latencies[2] < Duration::from_millis(150), "{latencies:?}");
}

/// S28: a planned take-over by another process takes less than a second, without polling.
#[tokio::test]
async fn another_processs_release_wakes_a_candidate() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("bus.db");
    let mut other = Other::start("hold-a-lock", &file);
    assert_eq!(other.hear(), "held");
    let locks = open_locks(&file).await.unwrap();
    let id = LockId::from("it");
    let take = || locks.try_lock(&id, LOCK_LEASE, Owner::fresh());
    assert!(take().await.unwrap().is_none());
    // Watched before it is released: a hint tells of what happens from then on.
    let mut watching = locks.watch(&id);
    assert!(futures_util::poll!(&mut watching).is_pending());
    other.tell();
    tokio::time::timeout(PATIENCE, watching).await.expect("a hint");
    assert!(take().await.unwrap().is_some());
    assert_eq!(other.hear(), "released");
}

/// A waiting consumer and a lock manager cost next to nothing: no write at all, and few reads.
#[tokio::test]
async fn waiting_writes_nothing() {
    let store = Store::with(&["jobs"]).await;
    let consumer = store.consumer("jobs").await;
    // Counts the commits of other connections.
    let version = |sql: &rusqlite::Connection| -> i64 {
        sql.query_row("PRAGMA data_version", [], |row| row.get(0)).unwrap()
    };
    let sql = store.sql();
    let before = version(&sql);
    let stop = CancellationToken::new();
    let waiting = consumer.receive(1, &stop);
    tokio::select! {
        _ = waiting => unreachable!("nothing was sent"),
        () = tokio::time::sleep(Duration::from_millis(1500)) => {}
    }
    assert_eq!(version(&sql), before);
}
