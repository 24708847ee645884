//! `tidewater log-device`.

use super::Setting;
use super::peers::PeerArgs;
use clap::{Args, ValueHint};
use std::net::SocketAddr;
use std::path::PathBuf;

/// `tidewater log-device`.
#[derive(Debug, Default, Args)]
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
    /// Prometheus metrics at this loopback address, such as 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// Host name that metrics requests may use (`Host`), besides IP addresses and localhost; may be given several times
    #[arg(long, value_name = "NAME", requires = "metrics")]
    pub metrics_host: Vec<String>,
    /// A live page for browsers at this loopback address, such as 127.0.0.1:8080: what the device does, over time
    #[arg(long, value_name = "ADDRESS")]
    pub page: Option<SocketAddr>,
    /// Host name that requests for the page may use (`Host`), besides IP addresses and localhost; may be given several
    /// times
    #[arg(long, value_name = "NAME", requires = "page")]
    pub page_host: Vec<String>,
    /// Its peers.
    #[command(flatten)]
    pub peers: PeerArgs,
}
