//! Asking as a probe does: over a bare connection, so that what is answered is seen to the byte.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::wait::in_time;

/// Sends these bytes, and answers what comes until the connection is closed.
///
/// # Errors
/// If nobody listens there, or the connection is reset.
pub async fn exchange(address: SocketAddr, bytes: &[u8]) -> io::Result<String> {
    in_time("a probe is answered", async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(bytes).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    })
    .await
}

/// Asks for a path; answers the status and the body.
///
/// # Errors
/// If nobody listens there, or the answer is none.
pub async fn get(address: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: kube-probe/1.33\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    let answer = exchange(address, request.as_bytes()).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.ok_or(io::ErrorKind::InvalidData)?, body.to_owned()))
}

/// The document at `/health`, and whether it was answered as good.
///
/// # Errors
/// As of [`get`].
pub async fn health(address: SocketAddr) -> io::Result<(bool, serde_json::Value)> {
    let (status, body) = get(address, "/health").await?;
    Ok((status == 200, serde_json::from_str(&body)?))
}
