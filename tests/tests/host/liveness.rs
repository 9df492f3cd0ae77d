//! What probes are told about a process.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use bus_tests::probe::{exchange, get, health};
use bus_tests::site::{Process, Setup, Site};
use bus_tests::store::Counts;
use bus_tests::task::{Step, Task};
use bus_tests::wait::{PATIENCE, in_time, until_true};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{actor, actor_with_lease, send_plain};

/// With both listeners, at ports that the system chooses.
fn listening(setup: Setup<'_>) -> Setup<'_> {
    setup.env("BUS_HEALTH", "127.0.0.1:0").env("BUS_ALIVE", "127.0.0.1:0")
}

/// Where it listens: for HTTP, and for whoever wants to know the time.
async fn addresses(site: &Site, host: &Process<'_>) -> (SocketAddr, SocketAddr) {
    let pid = host.pid();
    let all = || {
        let entries = site.entries().into_iter();
        let listens = entries.filter(|entry| entry.e == "liveness.listening" && entry.p == pid);
        listens.filter_map(|entry| entry.say?.parse().ok()).collect::<Vec<SocketAddr>>()
    };
    until_true("it listens at both", || all().len() == 2).await;
    (all()[0], all()[1])
}

async fn status(address: SocketAddr, path: &str) -> u16 {
    get(address, path).await.expect("an answer").0
}

/// Waits until what `/health` shows is as wanted, and answers it.
async fn shown(address: SocketAddr, what: &str, wanted: impl Fn(bool, &Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let (green, shown) = health(address).await.expect("an answer");
        if wanted(green, &shown) {
            return shown;
        }
        assert!(began.elapsed() < PATIENCE, "never came to: {what}; it is {shown:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn green(address: SocketAddr) -> Value {
    shown(address, "all is well", |green, _| green).await
}

/// The one processor of that endpoint.
fn processor<'v>(shown: &'v Value, endpoint: &str) -> &'v Value {
    let processors = shown["processors"].as_array().expect("processors");
    processors.iter().find(|one| one["endpoint"] == endpoint).unwrap_or(&Value::Null)
}

/// §7: from the signal on `/ready` is 503 and the TCP port closed, while what is in flight goes on; `/live` is 200 as long as
/// there is anybody to ask.
#[tokio::test]
async fn on_sigterm_ready_is_503_and_the_tcp_port_is_closed_before_the_drain_while_live_stays_200() {
    let site = Site::new();
    send_plain(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
    let mut host = listening(actor(&site, &["plain"])).start();
    let (http, tcp) = addresses(&site, &host).await;
    site.begun("plain", 1).await;
    let seen = green(http).await;
    assert_eq!(processor(&seen, "plain")["in_flight"], 1, "{seen:#}");
    assert_eq!((status(http, "/live").await, status(http, "/ready").await), (200, 200));
    assert!(exchange(tcp, b"").await.is_ok());

    host.terminate();
    let mut last = 200;
    let began = Instant::now();
    while last != 503 {
        assert!(began.elapsed() < PATIENCE, "it is never unready");
        last = status(http, "/ready").await;
    }
    in_time("the port is closed", async { while TcpStream::connect(tcp).await.is_ok() {} }).await;
    assert_eq!(status(http, "/live").await, 200);
    let (is_green, seen) = health(http).await.expect("an answer");
    assert!(!is_green && seen["phase"] == "stopping", "{seen:#}");
    assert_eq!(processor(&seen, "plain")["in_flight"], 1, "the drain goes on");
    assert!(host.try_exit().is_none());

    site.allow("go");
    assert!(host.exit().await.success(), "{}", host.said());
    assert!(TcpStream::connect(http).await.is_err());
}

/// The port tells the time in UTC, and closes, over and over.
#[tokio::test]
async fn the_alive_port_answers_the_time_and_closes() {
    let site = Site::new();
    let host = listening(actor(&site, &["plain"])).start();
    let (_, tcp) = addresses(&site, &host).await;
    let mut before = String::new();
    for _ in 0..3 {
        let now = exchange(tcp, b"").await.expect("an answer");
        let digits = now.replace(|c: char| c.is_ascii_digit(), "0");
        assert_eq!(digits, "0000-00-00T00:00:00.000Z\n", "{now}");
        assert!(now >= before, "{before} was before {now}");
        before = now;
    }
}

/// A port that somebody else has is found before anything is consumed, and fails the host.
#[tokio::test]
async fn a_taken_port_fails_the_host_before_anything_is_consumed() {
    for variable in ["BUS_HEALTH", "BUS_ALIVE"] {
        let site = Site::new();
        send_plain(&site, [Task::new(1)]).await;
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = taken.local_addr().expect("an address").to_string();
        let mut host = actor(&site, &["plain"]).env(variable, &address).start();
        assert_eq!(host.exit().await.code(), Some(1), "{}", host.said());
        let key = variable.trim_start_matches("BUS_").to_ascii_lowercase();
        for words in [&address, &format!("`{key}`"), "in use"] {
            assert!(host.said().contains(words), "{words} is missing from: {}", host.said());
        }
        assert_eq!(site.store().counts("plain"), Counts { ready: 1, ..Counts::default() });
        assert_eq!(site.store().deliveries_of_ready("plain"), [0]);
    }
}

/// M10: a store that stands still turns the health red, of a plain processor that has a verdict to tell and of a singleton
/// that has a lock to renew, within the 10 s that are stated; and green again when it moves. Readiness and liveness do not follow: a new
/// process would not help.
#[tokio::test]
async fn a_store_that_is_frozen_turns_health_red_within_the_stated_time_and_green_again_after() {
    let site = Site::new();
    send_plain(&site, [Task::new(1).wait_for(&site.path("go"))]).await;
    let host = listening(actor(&site, &["plain", "single"])).start();
    let (http, _) = addresses(&site, &host).await;
    site.begun("plain", 1).await;
    let held = |shown: &Value| processor(shown, "single")["lock"]["state"] == "held";
    shown(http, "it is green, and holds the lock", |green, shown| green && held(shown)).await;

    let gate = std::fs::File::open(site.path("bus.db.lock")).expect("the gate");
    gate.lock().expect("passed");
    site.allow("go");
    let began = Instant::now();
    let all_red = |shown: &Value| {
        ["plain", "single"].iter().all(|endpoint| processor(shown, endpoint)["status"] == "red")
    };
    let red = shown(http, "all is red", |green, shown| !green && all_red(shown)).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(9), "not for a short stall: {took:?}");
    assert!(took < Duration::from_secs(20), "it took {took:?}");
    let trouble = processor(&red, "plain")["trouble"].as_str().unwrap_or_default().to_owned();
    assert!(trouble.contains("taken a verdict"), "{trouble}");
    assert_eq!((status(http, "/live").await, status(http, "/ready").await), (200, 200));

    gate.unlock().expect("let go");
    let again = green(http).await;
    let age = processor(&again, "plain")["last_fetch_seconds_ago"].as_f64().expect("a number");
    assert!(age < 10.0, "{again:#}");
}

/// S10: a probe is answered while handlers keep every thread of the runtime busy.
#[tokio::test]
async fn probes_are_answered_while_handlers_block_every_thread() {
    let site = Site::new();
    let blocked = |n| Task::new(n).then(Step::BlockUntil(site.path("go")));
    send_plain(&site, (0..2).map(blocked)).await;
    let setup = listening(actor(&site, &["plain"])).env("TOKIO_WORKER_THREADS", "2");
    let host = setup.start();
    let (http, tcp) = addresses(&site, &host).await;
    site.begun("plain", 0).await;
    site.begun("plain", 1).await;
    assert_eq!(status(http, "/live").await, 200);
    assert_eq!(health(http).await.expect("an answer").1["processors"][0]["in_flight"], 2);
    assert!(exchange(tcp, b"").await.is_ok());
    site.allow("go");
}

/// Of two hosts one holds the singleton's lock, under a fence, and the other stands by; both are well.
#[tokio::test]
async fn health_tells_who_holds_a_singletons_lock_and_who_stands_by() {
    let site = Site::new();
    let mut first = listening(actor_with_lease(&site, &["single"], 2)).start();
    let (of_first, _) = addresses(&site, &first).await;
    let state = |shown: &Value| processor(shown, "single")["lock"]["state"].clone();
    let held = shown(of_first, "it is held", |green, shown| green && state(shown) == "held").await;
    let fence = processor(&held, "single")["lock"]["fence"].as_u64().expect("a fence");
    assert_eq!(site.store().lock("queue/single").map(|lock| lock.fence), Some(fence));

    let second = listening(actor_with_lease(&site, &["single"], 2)).start();
    let (of_second, _) = addresses(&site, &second).await;
    let standby = shown(of_second, "it stands by", |green, shown| green && state(shown) == "standby").await;
    assert!(processor(&standby, "single")["lock"]["fence"].is_null(), "{standby:#}");

    first.kill();
    let held = shown(of_second, "it has taken over", |green, shown| green && state(shown) == "held").await;
    assert!(processor(&held, "single")["lock"]["fence"].as_u64() > Some(fence), "{held:#}");
}

/// What waits and what was given up on is shown, and how often runs have failed in a row, which is no trouble of the host's.
#[tokio::test]
async fn health_shows_depths_and_failures_in_a_row() {
    let site = Site::new();
    send_plain(&site, (0..3).map(|n| Task::new(n).then(Step::Fail))).await;
    let config = "[processors.plain]\ndead_letter_delivery_limit = 1\n";
    let host = listening(actor(&site, &["plain"]).config(config)).start();
    let (http, _) = addresses(&site, &host).await;
    let dead = |shown: &Value| processor(shown, "plain")["depth"]["dead"] == 3;
    let seen = shown(http, "three are dead", |green, shown| green && dead(shown)).await;
    assert_eq!(processor(&seen, "plain")["failed_runs"], 3, "{seen:#}");
    assert_eq!(processor(&seen, "plain")["depth"]["ready"], 0);
}

/// The promise: health tells how long the oldest message has waited. A store that stands still keeps no probe waiting: what
/// it said last is shown, with its age.
#[tokio::test]
async fn health_tells_the_age_of_the_oldest_waiting_message() {
    let site = Site::new();
    let tasks = (0..2).map(|n| Task::new(n).wait_for(&site.path("go")));
    send_plain(&site, tasks).await;
    let config = "[processors.plain]\nmax_concurrent_calls = 1\nprefetch_count = 0\n";
    let host = listening(actor(&site, &["plain"]).config(config)).start();
    let (http, _) = addresses(&site, &host).await;
    green(http).await;
    let oldest = |shown: &Value| processor(shown, "plain")["depth"]["oldest_waiting_seconds"].as_f64();
    shown(http, "one waits, and grows older", |_, shown| oldest(shown).is_some_and(|age| age > 2.0)).await;

    let gate = std::fs::File::open(site.path("bus.db.lock")).expect("the gate");
    gate.lock().expect("passed");
    let began = Instant::now();
    let (_, seen) = health(http).await.expect("an answer");
    assert!(began.elapsed() < PATIENCE && oldest(&seen).is_some(), "{seen:#}");
    assert!(processor(&seen, "plain")["depth"]["seconds_ago"].as_f64().is_some(), "{seen:#}");
    gate.unlock().expect("let go");

    site.allow("go");
    shown(http, "none waits any more", |_, shown| {
        processor(shown, "plain")["depth"]["ready"] == 0 && oldest(shown).is_none()
    })
    .await;
}

/// Whoever sends slowly, too much, nonsense or nothing is turned away, and keeps nobody else from being answered.
#[tokio::test]
async fn slow_oversized_and_garbage_requests_harm_nobody() {
    let site = Site::new();
    let host = listening(actor(&site, &["plain"])).start();
    let (http, _) = addresses(&site, &host).await;
    for (request, answer) in [
        ("GET /live HTTP/1.0\n\n".to_owned(), "HTTP/1.1 200 OK"),
        ("HEAD /live HTTP/1.1\r\n\r\n".to_owned(), "HTTP/1.1 200 OK"),
        ("POST /live HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc".to_owned(), "HTTP/1.1 405 "),
        ("GET /secrets HTTP/1.1\r\n\r\n".to_owned(), "HTTP/1.1 404 "),
        ("\u{16}\u{3}\u{1} hello\r\n\r\n".to_owned(), "HTTP/1.1 400 "),
        (format!("GET /live HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000)), "HTTP/1.1 431 "),
    ] {
        let said = exchange(http, request.as_bytes()).await.expect("an answer");
        assert!(said.starts_with(answer), "{:?} was answered {said:?}", &request[..20.min(request.len())]);
    }
    let mut slow = Vec::new();
    for _ in 0..40 {
        let mut stream = TcpStream::connect(http).await.expect("it listens");
        stream.write_all(b"GET /live").await.expect("written");
        slow.push(stream);
    }
    assert_eq!(status(http, "/live").await, 200, "beside forty that do not come to an end");
    let said = in_time("the slow ones are turned away", async {
        let mut said = Vec::new();
        for mut stream in slow {
            let mut answer = Vec::new();
            // Closed, or reset.
            let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer).await;
            said.push(answer);
        }
        said
    })
    .await;
    assert!(said.iter().all(Vec::is_empty), "nothing was answered to half a request");
    assert_eq!(status(http, "/live").await, 200);
}
