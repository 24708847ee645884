//! The live page: a served device or a simulation, watched in a browser.
//!
//! Moments are taken four times a second while there is a viewer, and for ten minutes more, on a thread of its own; the
//! pages are served on another. Both only ask: what they watch never waits for them. Read-only, on loopback, with all
//! that a browser needs inside of the program.

mod events;
mod host;
mod pages;
mod samples;

pub use pages::{Shown, serve};

use serde::Serialize;
use std::io;
use std::net::{SocketAddr, TcpListener};

/// What is watched.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// A device or a simulation.
    pub kind: Kind,
    /// What it is called: its profile, its load.
    pub title: String,
    /// What survives what, in words; empty where nothing is promised.
    pub promise: String,
}

/// What kind of thing is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A served device.
    Device,
    /// A run under the virtual clock.
    Simulation,
}

/// Listens where the page is asked for.
///
/// # Errors
/// When the address is not one of this machine's loopback, or is taken.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if !address.ip().is_loopback() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the page is served on loopback only"));
    }
    TcpListener::bind(address)
}
