//! A TCP proxy that can do to a connection what networks do: cut it, reset it, swallow what it carries, be slow.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What happens to what is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it goes on as it comes.
    None,
    /// It goes on so much later.
    Delay(Duration),
    /// Nothing arrives, in neither direction, and nobody is told. When the fault is over, what was held goes on.
    BlackHole,
    /// What the server answers does not arrive: what was asked is done, and nobody learns of it.
    MuteServer,
    /// Connections are closed, and new ones are closed at once.
    Cut,
    /// The same with a reset.
    Reset,
}

/// A proxy before a server on this machine. It ends when dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    fault: watch::Sender<Fault>,
    accepted: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy before `server`.
    ///
    /// # Panics
    /// If there is no free port.
    pub async fn start(server: u16) -> Proxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let (fault, faults) = watch::channel(Fault::None);
        let accepted = Arc::new(AtomicU64::new(0));
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, server));
        let task = tokio::spawn(serve(listener, server, faults, Arc::clone(&accepted)));
        Proxy { port, fault, accepted, task }
    }

    /// The port to connect to instead of the server's.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on this happens.
    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// How many connections have been made so far: a fault that met none was none.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    listener: TcpListener,
    server: SocketAddr,
    faults: watch::Receiver<Fault>,
    accepted: Arc<AtomicU64>,
) {
    // Dropped with the task, and the connections with it.
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        accepted.fetch_add(1, Ordering::SeqCst);
        connections.spawn(connect(client, server, faults.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn connect(client: TcpStream, server: SocketAddr, mut faults: watch::Receiver<Fault>) {
    let carried = async {
        let mut waiting = faults.clone();
        wait_for(&mut waiting, |fault| !matches!(fault, Fault::BlackHole)).await;
        let server = TcpStream::connect(server).await?;
        server.set_nodelay(true)?;
        carry(client, server, &mut faults).await
    };
    // Whatever ended it: both ends see it.
    let _: io::Result<()> = carried.await;
}

/// Returns when the fault is such.
async fn wait_for(faults: &mut watch::Receiver<Fault>, is: impl FnMut(&Fault) -> bool) -> Fault {
    let found = faults.wait_for(is).await.map(|fault| *fault);
    match found {
        Ok(fault) => fault,
        // The proxy is gone.
        Err(_) => std::future::pending().await,
    }
}

async fn carry(client: TcpStream, server: TcpStream, faults: &mut watch::Receiver<Fault>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let (mut client, mut server) = (client, server);
    let fault = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let asks = pass(from_client, to_server, faults.clone(), |fault| fault == Fault::BlackHole);
        let answers = pass(from_server, to_client, faults.clone(), |fault| {
            matches!(fault, Fault::BlackHole | Fault::MuteServer)
        });
        tokio::select! {
            ended = asks => return ended.map(drop),
            ended = answers => return ended.map(drop),
            fault = wait_for(faults, |fault| matches!(fault, Fault::Cut | Fault::Reset)) => fault,
        }
    };
    if fault == Fault::Reset {
        // Closing them then resets them.
        client.set_zero_linger()?;
        server.set_zero_linger()?;
    }
    Ok(())
}

/// Carries bytes one way, as long as `holds` does not hold them.
async fn pass(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    mut faults: watch::Receiver<Fault>,
    holds: fn(Fault) -> bool,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        if let Fault::Delay(time) = wait_for(&mut faults, |fault| !holds(*fault)).await {
            tokio::time::sleep(time).await;
        }
        to.write_all(&buffer[..read]).await?;
    }
}
