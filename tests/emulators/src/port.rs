//! Ports for servers that are told which one to take.

use std::net::{Ipv4Addr, TcpListener};

use crate::error::{Doing, Result};

/// A port of the loopback address that nobody listens on now.
///
/// # Errors
/// When there is none.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing("there is no free port")?;
    listener.local_addr().map(|address| address.port()).doing("a port has no number")
}
