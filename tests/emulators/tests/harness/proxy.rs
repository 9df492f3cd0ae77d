//! The proxy, in front of a service that shares no code with it.

use std::io::ErrorKind;
use std::thread;
use std::time::{Duration, Instant};

use bus_emulators::{Fault, FaultProxy, Injected, Pattern};

use crate::http::{Answer, ask, send};
use crate::service::Service;

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(30);
/// For how long nothing must come.
const A_WHILE: Duration = Duration::from_millis(200);

struct Site {
    service: Service,
    proxy: FaultProxy,
}

impl Site {
    fn new() -> Site {
        let service = Service::start();
        let proxy = FaultProxy::start(&service.url).unwrap();
        Site { service, proxy }
    }

    fn url(&self, rest: &str) -> String {
        format!("{}{rest}", self.proxy.url())
    }

    fn put(&self, rest: &str) -> std::io::Result<Answer> {
        ask("PUT", &self.url(rest))
    }

    fn performed(&self) -> usize {
        self.service.performed().len()
    }
}

/// Waits until a fault has happened `n` times.
#[track_caller]
fn await_struck(injected: &Injected, n: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let waited = runtime.block_on(async { tokio::time::timeout(PATIENCE, injected.struck(n)).await });
    assert!(waited.is_ok(), "struck {} times instead of {n}", injected.count());
}

#[test]
fn what_no_rule_speaks_of_passes_unchanged() {
    let site = Site::new();
    let headers = [("x-mine".to_owned(), "a, b".to_owned()), ("Authorization".to_owned(), "k".to_owned())];
    let body = "zweiundvierzig \u{1f600}".repeat(10_000);
    let url = site.url("/c/a%2Fb?comp=metadata&x=%20y&&z");
    let answer = send("PUT", &url, &headers, &body).unwrap().answer().unwrap();
    assert_eq!(
        (answer.status, answer.header("x-kept"), answer.header("transfer-encoding")),
        (201, Some("yes"), None)
    );
    assert!(answer.body == body, "the body came back changed");
    let performed = site.service.performed();
    assert!(
        performed[0].starts_with("PUT /account/c/a%2Fb?comp=metadata&x=%20y&&z HTTP/1.1\r\n"),
        "{performed:?}"
    );
    for (name, value) in headers {
        assert_eq!(crate::http::header(&performed[0], &name), Some(value.as_str()));
    }
    let proxy_host = site.proxy.url().trim_start_matches("http://").split('/').next();
    assert_eq!(crate::http::header(&performed[0], "host"), proxy_host);

    // What HEAD says of the length is that of a body which it does not send.
    let answer = ask("HEAD", &site.url("/c/b")).unwrap();
    assert_eq!(
        (answer.status, answer.header("content-length"), answer.body.as_str()),
        (200, Some("4711"), "")
    );
}

#[test]
fn a_connection_serves_one_request_after_another() {
    use std::io::{Read, Write};
    let site = Site::new();
    let refused = site.proxy.inject_times(1, Pattern::any(), Fault::server_busy(Duration::from_secs(1)));
    let host = site.proxy.url().trim_start_matches("http://").split('/').next().unwrap().to_owned();
    let mut stream = std::net::TcpStream::connect(&host).unwrap();
    for status in ["HTTP/1.1 503", "HTTP/1.1 201"] {
        let request = format!("PUT /account/c HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut buffer = [0; 4_096];
        let n = stream.read(&mut buffer).unwrap();
        let said = String::from_utf8_lossy(&buffer[..n]);
        assert!(said.starts_with(status), "{said}");
    }
    assert_eq!((refused.count(), site.performed()), (1, 1));
}

#[test]
fn a_busy_server_says_so_as_azure_does_and_performs_nothing() {
    let site = Site::new();
    let busy = site.proxy.inject_times(2, Pattern::any(), Fault::server_busy(Duration::from_secs(3)));
    for _ in 0..2 {
        let answer = site.put("/c?restype=container").unwrap();
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("3")));
        assert_eq!(answer.header("x-ms-error-code"), Some("ServerBusy"));
        assert!(answer.body.contains("<Error><Code>ServerBusy</Code><Message>"), "{}", answer.body);
    }
    assert_eq!((busy.count(), site.performed()), (2, 0));
    assert_eq!(site.put("/c?restype=container").unwrap().status, 201, "its times are over");
    assert_eq!(busy.count(), 2);
}

#[test]
fn a_container_that_is_being_deleted_refuses() {
    let site = Site::new();
    let deleted = site.proxy.inject(Pattern::any(), Fault::container_being_deleted());
    let answer = site.put("/c?restype=container").unwrap();
    assert_eq!((answer.status, answer.header("retry-after")), (409, None));
    assert_eq!(answer.header("x-ms-error-code"), Some("ContainerBeingDeleted"));
    assert!(answer.body.contains("<Code>ContainerBeingDeleted</Code>"), "{}", answer.body);
    // There is no body after HEAD, so that the header is all that tells.
    let answer = ask("HEAD", &site.url("/c")).unwrap();
    assert_eq!((answer.status, answer.body.as_str()), (409, ""));
    assert_eq!(answer.header("x-ms-error-code"), Some("ContainerBeingDeleted"));
    assert_eq!((deleted.count(), site.performed()), (2, 0));
}

#[test]
fn a_dropped_request_is_not_performed_and_a_dropped_answer_is() {
    let site = Site::new();
    let request = site.proxy.inject_times(1, Pattern::any(), Fault::DropRequest);
    let answer = site.proxy.inject_times(1, Pattern::any(), Fault::DropAnswer);
    assert_eq!(site.put("/c").unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!((request.count(), answer.count(), site.performed()), (1, 0, 0));
    assert_eq!(site.put("/c").unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!((request.count(), answer.count(), site.performed()), (1, 1, 1));
    let seen = site.proxy.seen(&Pattern::any());
    let outcomes: Vec<_> = seen.iter().map(|seen| (seen.performed, seen.answered)).collect();
    assert_eq!(outcomes, [(None, None), (Some(201), None)]);
    assert_eq!(site.put("/c").unwrap().status, 201);
}

#[test]
fn a_delayed_request_is_performed_later_and_a_delayed_answer_comes_later() {
    let site = Site::new();
    let request = site.proxy.inject_times(1, Pattern::any(), Fault::DelayRequest(A_WHILE));
    let answer = site.proxy.inject_times(1, Pattern::any(), Fault::DelayAnswer(A_WHILE));
    let started = Instant::now();
    assert_eq!(site.put("/c").unwrap().status, 201);
    assert!(started.elapsed() >= A_WHILE);
    assert_eq!((request.count(), answer.count()), (1, 0));

    let started = Instant::now();
    let asked = send("PUT", &site.url("/c"), &[], "").unwrap();
    await_struck(&answer, 1);
    assert_eq!(site.performed(), 2, "performed before the client knows");
    assert_eq!(asked.answer().unwrap().status, 201);
    assert!(started.elapsed() >= A_WHILE);
}

#[test]
fn a_held_request_is_in_a_black_hole_until_it_is_released() {
    let site = Site::new();
    let held = site.proxy.inject(Pattern::any(), Fault::HoldRequest);
    let asked = send("PUT", &site.url("/c"), &[], "").unwrap();
    await_struck(&held, 1);
    let other = send("PUT", &site.url("/c"), &[], "").unwrap();
    // Given up by its client, and performed nevertheless.
    assert_eq!(other.answer_within(A_WHILE).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!((held.count(), site.performed()), (2, 0));
    held.release();
    assert_eq!(asked.answer().unwrap().status, 201);
    let started = Instant::now();
    while site.performed() < 2 {
        assert!(started.elapsed() < PATIENCE, "a request that was held was forgotten with its client");
        thread::yield_now();
    }
    assert_eq!(site.put("/c").unwrap().status, 201, "released once, it holds nothing any more");
}

#[test]
fn a_held_answer_comes_when_it_is_released() {
    let site = Site::new();
    let held = site.proxy.inject_times(1, Pattern::any(), Fault::HoldAnswer);
    let asked = send("PUT", &site.url("/c"), &[], "").unwrap();
    await_struck(&held, 1);
    assert_eq!((site.performed(), site.proxy.seen(&Pattern::any())[0].answered), (1, None));
    held.release();
    assert_eq!(asked.answer().unwrap().status, 201);
}

#[test]
fn the_oldest_matching_rule_counts_as_long_as_it_has_times_left() {
    let site = Site::new();
    let passed = site.proxy.inject_times(1, Pattern::any().path("/locks/"), Fault::Pass);
    let dropped = site.proxy.inject(Pattern::any().path("/locks/"), Fault::DropRequest);
    let other = site.proxy.inject(Pattern::any().method("DELETE"), Fault::container_being_deleted());
    assert_eq!(site.put("/locks/a").unwrap().status, 201);
    assert!(site.put("/locks/a").is_err());
    assert!(ask("DELETE", &site.url("/locks/a")).is_err());
    assert_eq!(ask("DELETE", &site.url("/c")).unwrap().status, 409);
    assert_eq!(site.put("/c").unwrap().status, 201);
    assert_eq!((passed.count(), dropped.count(), other.count()), (1, 2, 1));
}

#[test]
fn rules_can_be_removed_at_any_time() {
    let site = Site::new();
    let one = site.proxy.inject(Pattern::any(), Fault::DropRequest);
    assert!(site.put("/c").is_err());
    one.remove();
    assert_eq!(site.put("/c").unwrap().status, 201);
    site.proxy.inject(Pattern::any(), Fault::DropRequest);
    assert!(site.put("/c").is_err());
    site.proxy.clear();
    assert_eq!(site.put("/c").unwrap().status, 201);
    assert_eq!(one.count(), 1);
}

#[test]
fn what_was_asked_is_remembered_with_what_came_of_it() {
    let site = Site::new();
    site.proxy.inject(Pattern::any().parameter("comp", "lease"), Fault::server_busy(Duration::from_secs(1)));
    let before = Instant::now();
    site.put("/locks/a?comp=lease").unwrap();
    ask("GET", &site.url("/locks/a")).unwrap();
    assert!(site.proxy.seen(&Pattern::any().method("DELETE")).is_empty());
    let seen = site.proxy.seen(&Pattern::any().path("/locks/a"));
    let said: Vec<_> = seen
        .iter()
        .map(|seen| (seen.request.method.as_str(), seen.request.path.as_str(), seen.performed, seen.answered))
        .collect();
    let path = "/account/locks/a";
    assert_eq!(said, [("PUT", path, None, Some(503)), ("GET", path, Some(201), Some(201))]);
    assert!(before <= seen[0].at && seen[0].at <= seen[1].at && seen[1].at <= Instant::now());
}

#[test]
fn a_service_that_is_gone_gives_no_answer_and_no_fault_has_happened() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/account", listener.local_addr().unwrap());
    drop(listener);
    let proxy = FaultProxy::start(&url).unwrap();
    let dropped = proxy.inject(Pattern::any(), Fault::DropAnswer);
    assert_eq!(ask("PUT", proxy.url()).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert_eq!(dropped.count(), 0, "an answer that never was cannot be dropped");
    assert_eq!(proxy.seen(&Pattern::any())[0].performed, None);
}

#[test]
fn a_dropped_proxy_refuses_connections_and_forgets_what_it_holds() {
    let site = Site::new();
    let held = site.proxy.inject(Pattern::any(), Fault::HoldRequest);
    let asked = send("PUT", &site.url("/c"), &[], "").unwrap();
    await_struck(&held, 1);
    let url = site.url("/c");
    let service = site.service;
    drop(site.proxy);
    assert!(asked.answer().is_err());
    assert_eq!(ask("PUT", &url).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    held.remove();
    assert!(service.performed().is_empty());
}
