//! Where an Azurite answers, and to whom.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// The account that every emulator of Azure Storage knows; published by Microsoft, and no secret.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// How long one that listens may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The services of an [`Azurite`](crate::Azurite), and the well-known development account that they serve.
#[derive(Debug, Clone)]
pub struct Storage {
    blob: Service,
    queue: Service,
    table: Service,
}

/// What listens where.
#[derive(Debug, Clone)]
struct Service {
    port: u16,
    endpoint: String,
}

impl Service {
    fn said(name: &str, said: &str) -> Option<Service> {
        let says = format!("Azurite {name} service is successfully listening at http://");
        let (_, rest) = said.split_once(&says)?;
        let (address, _) = rest.split_once('\n')?;
        let port = address.trim().parse::<SocketAddr>().ok()?.port();
        Some(Service { port, endpoint: format!("http://{}:{port}/{ACCOUNT}", Ipv4Addr::LOCALHOST) })
    }
}

impl Storage {
    /// As Azurite tells it on standard output; `None` before it has told all.
    pub(crate) fn said(said: &str) -> Option<Storage> {
        let service = |name| Service::said(name, said);
        Some(Storage { blob: service("Blob")?, queue: service("Queue")?, table: service("Table")? })
    }

    pub(crate) fn ports(&self) -> [u16; 3] {
        [self.blob.port, self.queue.port, self.table.port]
    }

    /// Whether it is an Azurite that answers here.
    pub(crate) fn answers(&self) -> bool {
        let ask = || -> std::io::Result<String> {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.blob.port))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        };
        ask().is_ok_and(|answer| answer.contains("Azurite-Blob/"))
    }

    /// Where blobs are, with the account: `http://127.0.0.1:PORT/devstoreaccount1`.
    pub fn blob_endpoint(&self) -> &str {
        &self.blob.endpoint
    }

    /// Where queues are, with the account.
    pub fn queue_endpoint(&self) -> &str {
        &self.queue.endpoint
    }

    /// The name of the account.
    pub fn account(&self) -> &str {
        ACCOUNT
    }

    /// The account's shared key, in Base64.
    pub fn key(&self) -> &str {
        KEY
    }

    /// The connection string for blobs and queues.
    pub fn connection_string(&self) -> String {
        self.connection_string_at(self.blob_endpoint(), self.queue_endpoint())
    }

    /// The connection string with other endpoints, such as [`FaultProxy::url`](crate::FaultProxy::url).
    pub fn connection_string_at(&self, blob: &str, queue: &str) -> String {
        format!(
            "DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};\
             BlobEndpoint={blob};QueueEndpoint={queue};"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_there_when_its_whole_line_is() {
        let line = "Azurite Blob service is successfully listening at http://127.0.0.1:38215";
        assert!(Service::said("Blob", line).is_none(), "the port may go on");
        let said = format!("Azurite Blob service is starting at http://127.0.0.1:0\n{line}\n");
        let service = Service::said("Blob", &said).expect("a service");
        let endpoint = "http://127.0.0.1:38215/devstoreaccount1";
        assert_eq!((service.port, service.endpoint.as_str()), (38_215, endpoint));
        assert!(Storage::said(&said).is_none(), "the other two are still missing");
    }
}
