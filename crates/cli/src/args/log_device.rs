//! `tidewater log-device`.

use super::Setting;
use super::peers::PeerArgs;
use clap::{Args, ValueHint};
use std::path::PathBuf;

/// `tidewater log-device`.
#[derive(Debug, Args)]
pub struct LogDevice {
    /// Folder of the device, created if missing: image, sockets, ring and the ring's copy
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// Keep the ring in this file, such as one in /dev/shm, where the system never writes its pages to a disk [default:
    /// DIR/ring]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub ring: Option<PathBuf>,
    /// The ring's file lies in memory that survives a power loss (a DAX file system): it needs no copy on the disk
    #[arg(long, requires = "ring")]
    pub ring_persistent: bool,
    /// Change a setting of a new device's profile, such as fast.size=256MiB; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_hint = ValueHint::Other)]
    pub set: Vec<Setting>,
    /// Its peers.
    #[command(flatten)]
    pub peers: PeerArgs,
}
