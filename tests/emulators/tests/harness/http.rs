//! A client of HTTP/1.1 for one request, by nothing but a socket.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer; its head as it came.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

/// A header in a head, whatever the case of its name.
pub(crate) fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// A question that has been sent.
#[derive(Debug)]
pub(crate) struct Asked {
    stream: TcpStream,
}

/// Sends a request to `http://HOST:PORT/…`.
pub(crate) fn send(method: &str, url: &str, headers: &[(String, String)], body: &str) -> io::Result<Asked> {
    let rest = url.strip_prefix("http://").expect("an http URL");
    let at = rest.find('/').expect("a path");
    let (host, path) = rest.split_at(at);
    let mut stream = TcpStream::connect(host)?;
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    if !matches!(method, "GET" | "HEAD") {
        request += &format!("Content-Length: {}\r\n", body.len());
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes())?;
    Ok(Asked { stream })
}

impl Asked {
    /// The answer. [`io::ErrorKind::UnexpectedEof`] if the connection ends without one.
    pub(crate) fn answer(self) -> io::Result<Answer> {
        self.answer_within(PATIENCE)
    }

    /// [`Asked::answer`], but [`io::ErrorKind::WouldBlock`] if nothing comes for so long.
    pub(crate) fn answer_within(mut self, patience: Duration) -> io::Result<Answer> {
        self.stream.set_read_timeout(Some(patience))?;
        let mut text = Vec::new();
        self.stream.read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Answer { status, head: head.to_owned(), body: body.to_owned() })
    }
}

/// Asks without headers and without a body.
pub(crate) fn ask(method: &str, url: &str) -> io::Result<Answer> {
    send(method, url, &[], "")?.answer()
}
