//! Finding out whether a pooler, like PgBouncer, stands between us and the server.
//!
//! Behind a pooler that shares sessions between transactions nothing may be left in a session: no setting, no prepared
//! statement (another program's of the same name may be run in its place), no LISTEN. It cannot be asked whether it is
//! one; but at log-in it announces a session of its own making, so that the number of its process is not that of the
//! server's process that answers.

use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio_postgres::Client;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

use super::error::Failure;

/// How many bytes a request for encryption has.
const ENCRYPTION_REQUEST: i32 = 8;

/// Whether the session that we were announced is the one that answers.
pub(super) async fn is_direct(client: &Client) -> Result<bool, Failure> {
    let rows = client.query_typed("SELECT pg_backend_pid()", &[]).await?;
    let answers: Option<i32> = rows.first().and_then(|row| row.try_get(0).ok());
    Ok(answers.is_some() && announced_process(client).await == answers)
}

/// The number of the process that was announced at log-in. The driver keeps it to itself, but writes it into each
/// request to cancel a statement; so one is written, to ourselves.
async fn announced_process(client: &Client) -> Option<i32> {
    let (ours, theirs) = tokio::io::duplex(64);
    let cancel = client.cancel_token();
    let (_, process) = tokio::join!(cancel.cancel_query_raw(ours, Unencrypted), read_process(theirs));
    process.ok()
}

/// Reads a request to cancel: its length, its code, the process, its secret; perhaps after a request for encryption,
/// which is granted and not done.
async fn read_process(mut stream: DuplexStream) -> io::Result<i32> {
    let (mut length, mut _code) = (stream.read_i32().await?, stream.read_i32().await?);
    if length == ENCRYPTION_REQUEST {
        stream.write_u8(b'S').await?;
        (length, _code) = (stream.read_i32().await?, stream.read_i32().await?);
    }
    if length < 16 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    stream.read_i32().await
}

/// Encrypts nothing: the stream leads nowhere.
struct Unencrypted;

impl TlsConnect<DuplexStream> for Unencrypted {
    type Stream = Plain;
    type Error = io::Error;
    type Future = Ready<io::Result<Plain>>;

    fn connect(self, stream: DuplexStream) -> Self::Future {
        ready(Ok(Plain(stream)))
    }
}

struct Plain(DuplexStream);

impl TlsStream for Plain {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Plain {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Plain {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
