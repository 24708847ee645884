//! How a log is opened, and how it is doing.

use std::time::Duration;

use tidewater_wire::vendor::FastStatus;

use super::memory::WriteBack;
use crate::Level;

/// How a log is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// The lane, 0 to 15.
    pub lane: u8,
    /// Level that [`super::Log::x_fsync`] waits for. `None`: RING where the ring's memory survives a loss of power, and
    /// DESTAGED elsewhere: RING on memory that survives none must be asked for.
    pub level: Option<Level>,
    /// How stores get to memory. `None`: lines are written back where the ring's memory survives a loss of power, and
    /// not elsewhere.
    pub write_back: Option<WriteBack>,
    /// How long an append waits for a ring that is full.
    pub full: Duration,
    /// How long [`super::Log::x_fsync`] waits.
    pub timeout: Duration,
    /// Users whose devices are taken where etcd says which device it is, beside this program's and root's.
    pub owners: &'static [u32],
}

impl Default for Options {
    /// Lane 0, a level that survives a loss of power, a second for a full ring, ten for a sync.
    fn default() -> Options {
        let (full, timeout) = (Duration::from_secs(1), Duration::from_secs(10));
        Options { lane: 0, level: None, write_back: None, full, timeout, owners: &[] }
    }
}

/// How a log is doing.
#[derive(Clone, Debug)]
pub struct Status {
    /// Bytes of the ring.
    pub ring_bytes: u64,
    /// End of what writers have reserved.
    pub reserved: u64,
    /// End of what is at RING.
    pub ring: u64,
    /// End of what the device has taken.
    pub taken: u64,
    /// End of what is at DESTAGED, as far as it was asked for.
    pub destaged: u64,
    /// The device takes from the ring.
    pub open: bool,
    /// Its stream is broken.
    pub broken: bool,
    /// Failures that RING survives, in words.
    pub ring_survives: &'static str,
    /// Failures that DESTAGED survives, in words.
    pub destaged_survives: &'static str,
    /// Failures that REMOTE_RING survives, in words.
    pub remote_ring_survives: &'static str,
    /// Failures that REMOTE_DESTAGED survives, in words.
    pub remote_destaged_survives: &'static str,
    /// Level that [`super::Log::x_fsync`] waits for.
    pub level: Level,
    /// The device's fast-side status (log page C0h); `None`: it has gone, or this process has no connection to it.
    pub device: Option<Box<FastStatus>>,
}
