//! How a device is served: what the user asked for, and what of it makes the drive.

use crate::nbd;
use crate::peers::PeersSetup;
use crate::ring::RingSetup;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tidewater_base::Duration;
use tidewater_core::device::Device;
use tidewater_core::host_memory::wanted;
use tidewater_core::profile::Profile;
use tidewater_core::subsystem::namespaces::Initial;
use tidewater_core::subsystem::{Options, Subsystem};
use tidewater_nand::{Nand, Recorder};

/// Hosts that may be connected by NVMe/TCP at once.
pub(super) const FABRICS_MAX: u8 = 16;

/// Where the drive's data is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// In a file, or on a block device.
    File(PathBuf),
    /// In memory: it goes with the process.
    Memory,
}

/// A namespace of a new drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamespaceSetup {
    /// Bytes; `None`: what is left.
    pub bytes: Option<u64>,
    /// Bytes of a block as a power of two: 9 or 12.
    pub block_shift: u8,
}

/// How remote hosts reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpSetup {
    /// Where.
    pub address: SocketAddr,
    /// The address that the discovery log tells hosts; `None`: the one at which a host asked.
    pub advertise: Option<SocketAddr>,
    /// An address beyond loopback is meant.
    pub insecure_bind: bool,
    /// Host NQNs that may connect; empty: all.
    pub allowed_hosts: Vec<String>,
    /// Remote hosts may format, sanitize, write-protect, run self-tests, and send vendor commands.
    pub allow_destructive: bool,
}

/// How metrics are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsSetup {
    /// Where: a loopback address.
    pub address: SocketAddr,
    /// Names that requests may have in `Host`, besides addresses and localhost.
    pub names: Vec<String>,
}

/// What is to be served, and how.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The drive.
    pub profile: Profile,
    /// Where its data is kept.
    pub backing: Backing,
    /// Usable bytes of a new drive; `None`: as the profile says.
    pub size: Option<u64>,
    /// Namespaces of a new drive.
    pub namespaces: Vec<NamespaceSetup>,
    /// Seed of a new drive.
    pub seed: u64,
    /// Sockets of PCIe functions.
    pub vfio_user: Vec<PathBuf>,
    /// NVMe/TCP.
    pub nvme_tcp: Option<TcpSetup>,
    /// Where NBD is served.
    pub nbd: Option<nbd::Address>,
    /// Peers that replicate its logs.
    pub peers: Option<PeersSetup>,
    /// The directory for sockets, if it is to be made.
    pub runtime_directory: Option<PathBuf>,
    /// The control socket.
    pub control: PathBuf,
    /// Metrics.
    pub metrics: Option<MetricsSetup>,
    /// Where commands are written as a trace.
    pub trace: Option<PathBuf>,
    /// Where commands are written as they come and end: a file, `-`, or `unix:` and
    /// a socket ([`crate::commands::Form::of`]).
    pub commands: Option<PathBuf>,
    /// Where all that comes in is logged.
    pub input_log: Option<PathBuf>,
    /// Where clients find rings that they map; `None`: their stores are messages.
    pub ring: Option<RingSetup>,
    /// Set to request an orderly stop.
    pub stop: Arc<AtomicBool>,
    /// The device stops in an orderly way when so much of its own time has passed: [`SERVE_TIME`] at most, which all
    /// but tests use.
    pub serve_time: Duration,
}

/// The time that a device can be served for at a stretch: 160 days. Its clock holds 213, and the farthest that it looks
/// ahead (a host's Keep Alive Timeout) is 50.
pub const SERVE_TIME: Duration = Duration::from_ms(160 * 86_400_000);

/// What makes the drive and its controllers: enough to make the same once more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DriveSetup {
    /// The profile, as TOML.
    pub profile: String,
    /// Usable bytes; 0: as the profile says.
    pub capacity: u64,
    /// Seed.
    pub seed: u64,
    /// Namespaces.
    pub namespaces: Vec<NamespaceSetup>,
    /// PCI functions that are served; at least one controller is there.
    pub functions: u8,
    /// Fabrics controllers; the last is NBD's, if that is served.
    pub fabrics: u8,
}

impl DriveSetup {
    /// That of a new drive.
    pub fn of(setup: &Setup) -> DriveSetup {
        DriveSetup {
            profile: setup.profile.show(),
            capacity: setup.size.unwrap_or(0),
            seed: setup.seed,
            namespaces: setup.namespaces.clone(),
            functions: setup.vfio_user.len() as u8,
            fabrics: if setup.nvme_tcp.is_some() { FABRICS_MAX } else { 0 } + u8::from(setup.nbd.is_some()),
        }
    }

    /// How the device is run.
    pub fn device_options(&self) -> tidewater_core::Options {
        tidewater_core::Options {
            seed: self.seed,
            capacity: self.capacity,
            stamps: true,
            payload: true,
            volatile_buffer: true,
            network_peers: true,
            ..tidewater_core::Options::default()
        }
    }

    /// How the controllers are run, in front of a drive whose next version is `first_version`. `identity` makes serial
    /// number and NQN: those of one drive stay.
    pub fn subsystem_options(
        &self,
        profile: &Profile,
        capacity: u64,
        identity: u64,
        first_version: u64,
        state: Vec<u8>,
    ) -> Options {
        let serve = &profile.serve;
        Options {
            functions: self.functions.max(1),
            fabrics: self.fabrics,
            first_version,
            serial: format!("TW{identity:016X}"),
            nqn: format!("nqn.2026-11.tidewater:drive-{identity:016x}"),
            cmb: serve.cmb_size,
            pmr: serve.pmr_size,
            hmb_preferred: (serve.hmb_preferred.max(wanted(profile)).div_ceil(4096)) as u32,
            hmb_minimum: (serve.hmb_min >> 12) as u32,
            namespaces: self.initial_namespaces(capacity),
            state,
            ..Options::of(profile)
        }
    }

    /// Namespaces of a new drive of `capacity` bytes; those without a size share what is left, in whole MiB.
    fn initial_namespaces(&self, capacity: u64) -> Vec<Initial> {
        let open = self.namespaces.iter().filter(|one| one.bytes.is_none()).count() as u64;
        let given: u64 = self.namespaces.iter().filter_map(|one| one.bytes).sum();
        let left = capacity.saturating_sub(given);
        let share = if open > 1 { (left / open) & !0xf_ffff } else { left & !0xfff };
        let several = u32::from(self.functions.max(1)) + u32::from(self.fabrics) > 1;
        let one = |one: &NamespaceSetup| Initial {
            bytes: one.bytes.unwrap_or(share),
            block_shift: one.block_shift,
            shared: several,
        };
        self.namespaces.iter().map(one).collect()
    }

    /// A new drive without payload, for a run that only compares what is said.
    ///
    /// # Errors
    /// In words.
    pub fn fresh_subsystem(&self) -> Result<Subsystem<Recorder<Nand>>, String> {
        let profile = Profile::parse(&self.profile, "the log's profile").map_err(|error| error.to_string())?;
        let device = Device::over(&profile, self.device_options(), Recorder::new).map_err(|error| error.to_string())?;
        let options = self.subsystem_options(&profile, device.capacity(), self.seed, 1, Vec::new());
        Subsystem::new(device, options).map_err(|error| error.to_string())
    }
}
