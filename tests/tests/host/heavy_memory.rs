//! How much memory a host takes.

#![cfg(target_os = "linux")]

use std::fs;
use std::time::Duration;

use bus::clock::Clock;
use bus::contract::{OpenOptions, Outgoing, Scheme, StoreUrl};
use bus::message::{Name, Target};
use bus::{Command, Envelope, Message};
use bus_tests::site::Site;
use bus_tests::task::{Plain, Task};
use bus_tests::wait::{stays, until_true, until_within};

use super::actor;

const MIB: u64 = 1 << 20;

/// The most memory that a process has had at once, in bytes.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
    let kib: u64 = peak.trim().trim_end_matches(" kB").parse().expect("a number");
    kib * 1024
}

/// Sends as many tasks of this size, which wait for the file `go`.
async fn send(site: &Site, count: u64, size: usize) {
    // Encoded once: only their numbers differ.
    let task =
        Plain(Task::new(0).wait_for(&site.path("go")).padded(size)).encode().expect("it can be encoded");
    let rest = task.strip_prefix(br#"{"n":0"#).expect("a number first");
    let url = StoreUrl::parse(&format!("{}?synchronous=NORMAL", site.url())).expect("a URL");
    let open = Scheme::find("sqlite").expect("a scheme").transport.expect("it carries messages");
    let transport = open(&url, &OpenOptions::default()).await.expect("it opens");
    let target = Target::Queue(Name::new(Plain::QUEUE).expect("a name"));
    for n in 0..count {
        let body = [format!(r#"{{"n":{n}"#).as_bytes(), rest].concat();
        let envelope = Envelope::new(Plain::TYPE, body, Clock::system().wall());
        let sent = transport.sender().send(vec![Outgoing::new(target.clone(), envelope)]).await;
        sent.into_iter().for_each(|sent| drop(sent.expect("sent")));
    }
    transport.close().await;
}

/// More than a hundred large messages wait, and as many as are asked for by count would fill the memory: the host claims no
/// further than its bytes allow, and yet does all of them.
#[tokio::test]
async fn a_backlog_of_large_messages_takes_bounded_memory() {
    const COUNT: u64 = 120;
    const SIZE: usize = 8 << 20;
    let site = Site::new();
    // By count 80 are claimed ahead, which are 640 MiB.
    let config = "[processors.plain]\nmax_concurrent_calls = 2\nprefetch_count = 78\n";
    send(&site, COUNT, SIZE).await;
    let host = actor(&site, &["plain"]).config(config).start();
    let store = site.store();
    // Two run, 64 MiB wait, and the last answer brought up to 16 MiB and a message more.
    until_true("it has claimed what it may", || store.counts("plain").claimed >= 2 + 8).await;
    stays("it claims no more", Duration::from_secs(1), || store.counts("plain").claimed <= 2 + 8 + 3).await;
    site.allow("go");
    let patience = Duration::from_secs(120);
    until_within("all are done", patience, || store.is_drained("plain").then_some(())).await;
    assert_eq!(
        site.runs("plain").iter().filter(|run| run.how.as_deref() == Some("end")).count() as u64,
        COUNT
    );
    // What is claimed, and what runs once more as a decoded message; the rest is the program itself.
    let peak = peak(host.pid());
    assert!(peak < 256 * MIB, "it took {} MiB", peak / MIB);
}
