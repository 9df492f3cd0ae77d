//! A service to stand a proxy in front of: remembers what it is asked, and answers with the body that it was sent.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;

use crate::http::header;

#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Service {
    pub(crate) fn start() -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/account", listener.local_addr().unwrap());
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&heads);
        // Ends with the process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let kept = Arc::clone(&kept);
                thread::spawn(move || serve(stream.unwrap(), &kept));
            }
        });
        Service { url, heads }
    }

    /// The heads of the requests that it has performed, in their order.
    pub(crate) fn performed(&self) -> Vec<String> {
        self.heads.lock().clone()
    }
}

fn serve(mut stream: TcpStream, heads: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        text.push(byte[0]);
    }
    let head = String::from_utf8(text).unwrap();
    let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    let answer = if head.starts_with("HEAD ") {
        // The length of what a GET would bring.
        "HTTP/1.1 200 OK\r\nContent-Length: 4711\r\nx-kept: yes\r\n\r\n".as_bytes().to_vec()
    } else {
        // Chunked, so that the framing on the two sides of a proxy differs.
        let head = "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\nx-kept: yes\r\n\r\n";
        let chunk = if body.is_empty() { String::new() } else { format!("{:x}\r\n", body.len()) };
        let end = if body.is_empty() { "0\r\n\r\n" } else { "\r\n0\r\n\r\n" };
        [head.as_bytes(), chunk.as_bytes(), &body, end.as_bytes()].concat()
    };
    heads.lock().push(head);
    stream.write_all(&answer)
}
