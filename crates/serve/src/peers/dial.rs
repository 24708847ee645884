//! Dialling a peer: on a thread of its own, since a name is looked up and the network may not answer.

use crate::inbox::Inbox;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long a connection may take to be made.
const TIME: Duration = Duration::from_secs(2);

/// How an attempt ended.
pub(super) struct Dialled {
    pub(super) node: u8,
    /// The connection and where it leads, or why there is none.
    pub(super) result: Result<(TcpStream, SocketAddr), String>,
}

/// Begins an attempt; its end comes to `to`. Only loopback addresses are dialled unless others are `allowed`.
pub(super) fn start(node: u8, address: &str, allowed: bool, to: &Inbox<Dialled>) {
    let (name, inbox) = (address.to_owned(), to.clone());
    let dial = move || {
        let result = dial(&name, allowed);
        inbox.send(Dialled { node, result });
    };
    if let Err(error) = std::thread::Builder::new().name(format!("dial {node}")).spawn(dial) {
        to.send(Dialled { node, result: Err(format!("cannot dial: {error}")) });
    }
}

fn dial(name: &str, allowed: bool) -> Result<(TcpStream, SocketAddr), String> {
    let found = name.to_socket_addrs().map_err(|error| format!("{name}: {error}"))?;
    let mut why = format!("{name}: the name has no address");
    for address in found {
        if !address.ip().is_loopback() && !allowed {
            why = format!(
                "{address} is not a loopback address, and the connection between peers is neither encrypted nor \
                 authenticated; give each device a --peer-identity, or allow it with --insecure-peers"
            );
            continue;
        }
        match TcpStream::connect_timeout(&address, TIME) {
            Ok(stream) => return Ok((stream, address)),
            Err(error) => why = format!("{address}: {error}"),
        }
    }
    Err(why)
}
