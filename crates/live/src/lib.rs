//! Live pages: a served device, a simulation, a sweep or a cluster, watched in a browser.
//!
//! The watched system is queried four times a second while there is a viewer, and for ten minutes more, on a thread of
//! its own; the pages are served on another. Queries never block it. Read-only, on loopback, with all that a browser
//! needs inside of the program.
//!
//! A device and a simulation give moments, of which the page makes plots (feature `moments`). A system of few figures
//! and tables, a sweep or a cluster, gives a [`Board`].

mod answers;
mod board;
#[cfg(feature = "moments")]
mod events;
mod host;
#[cfg(feature = "moments")]
mod moments;
mod pages;
mod patient;
mod samples;

pub use answers::serve_answers;
pub use board::{Board, Cell, Happened, History, Table, serve_board};
#[cfg(feature = "moments")]
pub use moments::serve;
pub use pages::Shown;

use serde::Serialize;
use std::io;
use std::net::{SocketAddr, TcpListener};

/// Description of the watched system.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// A device or a simulation.
    pub kind: Kind,
    /// Its title: its profile, its load.
    pub title: String,
    /// Durability guarantee, in words; empty where nothing is promised.
    pub promise: String,
}

/// Kind of the watched system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A served device.
    Device,
    /// A run under the virtual clock.
    Simulation,
}

/// How bad what happened is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It happens.
    Note,
    /// Something was lost, or is at risk.
    Bad,
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
