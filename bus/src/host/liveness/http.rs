//! As much of HTTP/1.1 as a probe needs: one request a connection, of which only the first line counts.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a request's head may be.
const LONGEST_HEAD: usize = 8 << 10;
/// How much of what somebody goes on sending is read after the answer, so that the answer is not lost to a reset.
const MOST_AFTERWARDS: usize = 64 << 10;

/// What is answered to a path.
pub(super) struct Answer {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

const OK: &str = "200 OK";
const UNAVAILABLE: &str = "503 Service Unavailable";
const TEXT: &str = "text/plain; charset=utf-8";

impl Answer {
    /// A word, for good or bad.
    pub(super) fn text(good: bool, body: &str) -> Self {
        Answer { status: status(good), content_type: TEXT, body: format!("{body}\n") }
    }

    /// A document, for good or bad.
    pub(super) fn json(good: bool, body: &serde_json::Value) -> Self {
        Answer { status: status(good), content_type: "application/json", body: format!("{body}\n") }
    }

    /// Numbers for Prometheus.
    #[cfg(feature = "prometheus")]
    pub(super) fn metrics(body: String) -> Self {
        Answer { status: OK, content_type: crate::telemetry::exposition::CONTENT_TYPE, body }
    }

    fn refusal(status: &'static str) -> Self {
        Answer { status, content_type: TEXT, body: format!("{status}\n") }
    }

    /// As it is sent; `HEAD` has no body.
    fn written(&self, with_body: bool) -> String {
        let Answer { status, content_type, body } = self;
        let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n{allow}Connection: close\r\n\r\n",
            body.len()
        );
        if with_body { head + body } else { head }
    }
}

fn status(good: bool) -> &'static str {
    if good { OK } else { UNAVAILABLE }
}

/// Reads one request, and answers with what `at` has for its path. Whoever calls it sees to it that this does not take for
/// ever.
pub(super) async fn answer(mut stream: TcpStream, at: impl FnOnce(&str) -> Option<Answer>) {
    let Some(head) = head(&mut stream).await else { return };
    let (answer, with_body) = match &head {
        Head::Line(line) => reply(line, at),
        Head::TooLong => (Answer::refusal("431 Request Header Fields Too Large"), true),
    };
    if stream.write_all(answer.written(with_body).as_bytes()).await.is_err() {
        return;
    }
    // What is closed with something unread in it is reset, and the answer with it.
    if stream.shutdown().await.is_ok() {
        let mut rest = [0; 1024];
        let mut read = 0;
        while read < MOST_AFTERWARDS
            && let Ok(count @ 1..) = stream.read(&mut rest).await
        {
            read += count;
        }
    }
}

/// What came before the empty line.
enum Head {
    /// Its first line.
    Line(Vec<u8>),
    TooLong,
}

/// Reads until the empty line; `None` if whoever asks has gone before that.
async fn head(stream: &mut TcpStream) -> Option<Head> {
    let mut head = Vec::with_capacity(1024);
    loop {
        if head.len() >= LONGEST_HEAD {
            return Some(Head::TooLong);
        }
        let before = head.len();
        if stream.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
        if ends(&head[before.saturating_sub(3)..]) {
            let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
            return Some(Head::Line(line.strip_suffix(b"\r").unwrap_or(line).to_vec()));
        }
    }
}

/// Whether the empty line is there.
fn ends(head: &[u8]) -> bool {
    head.windows(4).any(|four| four == b"\r\n\r\n") || head.windows(2).any(|two| two == b"\n\n")
}

/// What is answered to a request's first line, and whether with its body.
fn reply(line: &[u8], at: impl FnOnce(&str) -> Option<Answer>) -> (Answer, bool) {
    let bad = || (Answer::refusal("400 Bad Request"), true);
    let Ok(line) = std::str::from_utf8(line) else { return bad() };
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else { return bad() };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return bad();
    }
    let with_body = method != "HEAD";
    if !matches!(method, "GET" | "HEAD") {
        return (Answer::refusal("405 Method Not Allowed"), true);
    }
    let path = target.split(['?', '#']).next().unwrap_or_default();
    (at(path).unwrap_or_else(|| Answer::refusal("404 Not Found")), with_body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_of(line: &[u8]) -> String {
        let (answer, with_body) = reply(line, |path| (path == "/live").then(|| Answer::text(true, "live")));
        answer.written(with_body).lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn only_what_is_asked_properly_is_answered() {
        for (line, status) in [
            (&b"GET /live HTTP/1.1"[..], "HTTP/1.1 200 OK"),
            (b"GET /live?verbose=1 HTTP/1.0", "HTTP/1.1 200 OK"),
            (b"HEAD /live HTTP/1.1", "HTTP/1.1 200 OK"),
            (b"GET / HTTP/1.1", "HTTP/1.1 404 Not Found"),
            (b"GET /live/ HTTP/1.1", "HTTP/1.1 404 Not Found"),
            (b"POST /live HTTP/1.1", "HTTP/1.1 405 Method Not Allowed"),
            (b"GET http://elsewhere/live HTTP/1.1", "HTTP/1.1 400 Bad Request"),
            (b"GET /live HTTP/2", "HTTP/1.1 400 Bad Request"),
            (b"GET /live", "HTTP/1.1 400 Bad Request"),
            (b"GET  /live HTTP/1.1", "HTTP/1.1 400 Bad Request"),
            (b"", "HTTP/1.1 400 Bad Request"),
            (b"\x16\x03\x01\x02\x00", "HTTP/1.1 400 Bad Request"),
            (b"GET /\xff HTTP/1.1", "HTTP/1.1 400 Bad Request"),
        ] {
            assert_eq!(status_of(line), status, "{:?}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn an_answer_says_how_long_it_is_and_a_head_has_no_body() {
        let answer = Answer::text(false, "not ready");
        assert!(answer.written(true).ends_with(
            "Content-Length: 10\r\nCache-Control: no-store\r\nConnection: close\r\n\r\nnot ready\n"
        ));
        assert!(answer.written(false).ends_with("\r\n\r\n"));
    }
}
