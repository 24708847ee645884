//! Reports of a served device to its user, and errors that end it.

use super::Moments;
use crate::nbd;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration as WallDuration;
use tidewater_core::ftl::RecoveryReport;

/// Why a device can't be served, in words that name the place and the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ServeError(pub String);

pub(crate) fn wrong(error: impl fmt::Display) -> ServeError {
    ServeError(error.to_string())
}

/// Events while a device is served.
#[derive(Clone, Debug)]
pub enum Event {
    /// A new drive was made.
    Made {
        /// Usable bytes.
        capacity: u64,
    },
    /// A drive was found in its image.
    Opened {
        /// Usable bytes.
        capacity: u64,
        /// Bytes of flash that hold something.
        written: u64,
    },
    /// Recovery goes on.
    Recovering {
        /// Flash reads so far.
        reads: u64,
    },
    /// Recovery has ended.
    Recovered {
        /// Report of its run.
        report: RecoveryReport,
        /// How long it took here.
        wall: WallDuration,
    },
    /// Hosts may come.
    Ready(Ready),
    /// Something that the user should know.
    Note(String),
    /// Something that has failed, or may.
    Warning(String),
}

/// How hosts reach the device.
#[derive(Clone, Debug, Default)]
pub struct Ready {
    /// Sockets of PCIe functions.
    pub vfio_user: Vec<PathBuf>,
    /// Address and NQN of NVMe/TCP.
    pub nvme_tcp: Option<(SocketAddr, String)>,
    /// Where NBD is served.
    pub nbd: Option<nbd::Address>,
    /// Metrics.
    pub metrics: Option<SocketAddr>,
    /// Where peers reach it.
    pub peers: Option<SocketAddr>,
    /// Its state, for who asks.
    pub moments: Option<Moments>,
    /// In words: which failures what was flushed survives.
    pub survives: String,
    /// The same of memories of the drive that the profile places, each in a line.
    pub memories: Vec<String>,
}
