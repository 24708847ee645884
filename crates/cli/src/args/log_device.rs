//! `tidewater log-device`.

use super::Setting;
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
    /// Lanes of the ring, each a log of its own; the device has one program at a time (`tidewater run --lane N`)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub lanes: Option<u8>,
    /// Change a setting of a new device's profile, such as fast.size=256MiB; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_hint = ValueHint::Other)]
    pub set: Vec<Setting>,
}
