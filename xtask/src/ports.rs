//! Ports of this computer, for servers that cannot choose one themselves.

use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::Result;

/// Returns a port that was free a moment ago.
pub(crate) fn free() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Whether a server listens at a port.
pub(crate) fn listens(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}
