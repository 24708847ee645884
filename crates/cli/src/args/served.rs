//! The commands of a served device: serving it, its status, fault injection, and its NVMe data.

use super::hardware::{FastCommand, WindowCommand};
use super::peers::PeerArgs;
use super::{examples, values};
use clap::{ArgAction, Args, Subcommand, ValueEnum, ValueHint};
use std::net::SocketAddr;
use std::path::PathBuf;
use tidewater_base::Duration;
use tidewater_study::Setting;

/// `tidewater serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// The drive: a name from `tidewater profile list`, or a TOML file [default: the image's profile; for a new image,
    /// generic]
    #[arg(long, value_name = "PROFILE", value_hint = ValueHint::FilePath, help_heading = "Drive")]
    pub profile: Option<PathBuf>,
    /// Change one setting of the profile, such as serve.timing=none; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_hint = ValueHint::Other, help_heading = "Drive")]
    pub set: Vec<Setting>,
    /// Where the drive's data is stored: a file, which is created if missing, or `memory`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Drive")]
    pub image: PathBuf,
    /// Usable size of a new drive, such as 64GiB; an existing image has its own
    #[arg(long, alias = "size", value_name = "SIZE", value_parser = values::size, help_heading = "Drive")]
    pub capacity: Option<u64>,
    /// Namespaces of a new drive: sizes, separated by commas, each optionally with :4k or :512 for its block size; the
    /// last may be `rest`
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "rest", help_heading = "Drive")]
    pub namespaces: Vec<NamespaceSize>,
    /// Seed of a new drive: bad blocks, identifiers
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Drive")]
    pub seed: u64,
    /// Serve a PCIe function on this vfio-user socket; several make several functions
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath, help_heading = "Hosts")]
    pub vfio_user: Vec<PathBuf>,
    /// Serve remote hosts by NVMe/TCP at this address, such as 127.0.0.1:4420
    #[arg(long, value_name = "ADDRESS", help_heading = "Hosts")]
    pub nvme_tcp: Option<SocketAddr>,
    /// Address that the discovery log tells hosts: the one by which they reach the drive, where address translation, a
    /// forwarded port or a container stands between [default: the address at which each host asked]
    #[arg(long, value_name = "ADDRESS", requires = "nvme_tcp", help_heading = "Hosts")]
    pub discovery_address: Option<SocketAddr>,
    /// Accept an NVMe/TCP address other than loopback: any host that can reach it can read and write the drive
    #[arg(long, requires = "nvme_tcp", help_heading = "Hosts")]
    pub insecure_bind: bool,
    /// Accept only hosts with this NQN over NVMe/TCP; may be given several times. NQNs are not authenticated
    #[arg(long, value_name = "NQN", requires = "nvme_tcp", help_heading = "Hosts")]
    pub allow_host: Vec<String>,
    /// Allow remote hosts to format, sanitize, write-protect, run self-tests, and send vendor commands
    #[arg(long, requires = "nvme_tcp", help_heading = "Hosts")]
    pub allow_destructive: bool,
    /// Serve the drive as network block devices (NBD), one for each namespace: on a socket that only this user and root
    /// open, unix:PATH, or at a loopback address, such as 127.0.0.1:10809
    #[arg(long, value_name = "ADDRESS", help_heading = "Hosts")]
    pub nbd: Option<String>,
    /// Directory for sockets (mode 0700) [default: $XDG_RUNTIME_DIR/tidewater, or /run/tidewater for root]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = "Running")]
    pub runtime_dir: Option<PathBuf>,
    /// The control socket, for `tidewater fault` and `tidewater status` [default: control.sock in the runtime
    /// directory]
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath, help_heading = "Running")]
    pub control: Option<PathBuf>,
    /// Prometheus metrics at this loopback address, such as 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS", help_heading = "Running")]
    pub metrics: Option<SocketAddr>,
    /// Host name that metrics requests may use (`Host`), besides IP addresses and localhost; may be given several times
    #[arg(long, value_name = "NAME", requires = "metrics", help_heading = "Running")]
    pub metrics_host: Vec<String>,
    /// A live page for browsers at this loopback address, such as 127.0.0.1:8080: what the device does, over time
    #[arg(long, value_name = "ADDRESS", help_heading = "Running")]
    pub page: Option<SocketAddr>,
    /// Host name that requests for the page may use (`Host`), besides IP addresses and localhost; may be given several
    /// times
    #[arg(long, value_name = "NAME", requires = "page", help_heading = "Running")]
    pub page_host: Vec<String>,
    /// Write every command as a trace (fio's I/O log, version 3), which `tidewater replay` reads
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Running")]
    pub trace: Option<PathBuf>,
    /// Write each command as it comes and as it ends: FILE.pcapng for Wireshark, FILE.txt or - for text; unix:SOCKET
    /// sends packets to those who connect there
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Running")]
    pub commands: Option<PathBuf>,
    /// Record all inputs, to replay them in virtual time (`tidewater rerun`); only for a new drive
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Running")]
    pub input_log: Option<PathBuf>,
    /// Say more of what happens; twice: everything. RUST_LOG chooses levels by module, such as tidewater_serve=debug
    #[arg(short, long, action = ArgAction::Count, help_heading = "Running")]
    pub verbose: u8,
    /// Let clients map the fast side's rings: this file holds the ring of function 0, FILE.n that of function n. It is
    /// created if missing, and kept for the next `tidewater serve`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "vfio_user", help_heading = "Hosts")]
    pub ring: Option<PathBuf>,
    /// The ring's file is in memory that survives power loss (a DAX file system)
    #[arg(long, requires = "ring", help_heading = "Hosts")]
    pub ring_persistent: bool,
    /// Keep a copy of the ring in this file on a disk: clients write and sync it themselves, so DESTAGED does not wait
    /// for another process. FILE.n for function n
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        requires = "ring",
        conflicts_with = "ring_persistent",
        help_heading = "Hosts"
    )]
    pub ring_copy: Option<PathBuf>,
    /// Stop when standard input ends: when the program that started it goes away, however it does
    #[arg(long, help_heading = "Running")]
    pub stop_with_stdin: bool,
    /// Its peers.
    #[command(flatten)]
    pub peers: PeerArgs,
    /// The folder of `tidewater log-device`, which serves by this.
    #[arg(skip)]
    pub log_device: Option<PathBuf>,
}

/// `tidewater rerun`.
#[derive(Debug, Args)]
pub struct Rerun {
    /// File written by `tidewater serve --input-log`
    #[arg(value_name = "LOG", value_hint = ValueHint::FilePath)]
    pub log: PathBuf,
}

/// Size and blocks of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceSize {
    /// Bytes; `None`: what is left.
    pub bytes: Option<u64>,
    /// Bytes of a block as a power of two: 9 or 12; `None`: those of the profile.
    pub block_shift: Option<u8>,
}

impl std::str::FromStr for NamespaceSize {
    type Err = String;

    fn from_str(text: &str) -> Result<NamespaceSize, String> {
        let (size, blocks) = text.split_once(':').map_or((text, None), |(size, blocks)| (size, Some(blocks)));
        let block_shift = match blocks {
            None => None,
            Some("512") => Some(9),
            Some("4k" | "4K" | "4096" | "4KiB") => Some(12),
            Some(other) => return Err(format!("block size `{other}`: expected 512 or 4k")),
        };
        let bytes = if size == "rest" { None } else { Some(values::size(size)?) };
        Ok(NamespaceSize { bytes, block_shift })
    }
}

/// Which served device.
#[derive(Clone, Debug, Args)]
pub struct Served {
    /// The folder of a log device, or the control socket of `tidewater serve` [default: control.sock in the runtime
    /// directory]; for `fault`, also the directory of a mount
    #[arg(long, alias = "control", global = true, value_name = "TARGET", value_hint = ValueHint::AnyPath)]
    pub device: Option<PathBuf>,
}

/// `tidewater status`.
#[derive(Debug, Args)]
pub struct StatusOf {
    /// The device.
    #[command(flatten)]
    pub served: Served,
    /// Print the answer as JSON
    #[arg(long)]
    pub json: bool,
    /// Show it again and again until Ctrl-C, every so often, such as 500ms: redrawn on a terminal, else a line each
    /// time
    #[arg(long, value_name = "TIME", value_parser = values::time, num_args = 0..=1, default_missing_value = "2s")]
    pub watch: Option<Duration>,
}

/// `tidewater nvme`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Nvme {
    /// A page of the device.
    #[command(flatten)]
    pub page: Option<NvmePage>,
    /// One of its byte-addressable sides.
    #[command(subcommand)]
    pub side: Option<NvmeSide>,
}

/// The parts of a device that are used byte by byte.
#[derive(Debug, Subcommand)]
pub enum NvmeSide {
    /// Append to and read the log of a drive's fast side
    #[command(subcommand, after_help = examples::FAST)]
    Fast(FastCommand),
    /// Pin blocks into a drive's byte window, store into them and sync them
    #[command(subcommand, after_help = examples::WINDOW)]
    Window(WindowCommand),
}

/// A page of a device, which `tidewater nvme` prints.
#[derive(Debug, Args)]
pub struct NvmePage {
    /// Page to read
    #[arg(value_enum, value_name = "WHAT")]
    pub what: NvmeWhat,
    /// The device: vfio-user:SOCKET (with no other client attached), tcp:HOST:PORT, or pci:ADDRESS of a function of
    /// this machine or guest
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// Namespace, for id-ns
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub nsid: u32,
    /// NQN of this host, for an NVMe/TCP server that restricts hosts
    #[arg(long, value_name = "NQN")]
    pub host_nqn: Option<String>,
    /// How to print it, as nvme-cli takes it
    #[arg(short, long, value_name = "FORMAT", value_parser = ["normal", "json"], default_value = "normal")]
    pub output_format: String,
    /// Print as JSON: the same as -o json
    #[arg(long)]
    pub json: bool,
}

/// Pages of `tidewater nvme`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NvmeWhat {
    /// Identify Controller
    IdCtrl,
    /// Identify Namespace
    IdNs,
    /// Active namespaces
    List,
    /// SMART / Health Information
    SmartLog,
    /// Error Information
    ErrorLog,
    /// The fast side's status (vendor log page C0h)
    FastStatus,
    /// Where the fast side lies in BAR2 (vendor log page C1h)
    FastLayout,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_read() {
        assert_eq!("1g:4k".parse(), Ok(NamespaceSize { bytes: Some(1 << 30), block_shift: Some(12) }));
        assert_eq!("1g:512".parse(), Ok(NamespaceSize { bytes: Some(1 << 30), block_shift: Some(9) }));
        assert_eq!("rest".parse(), Ok(NamespaceSize { bytes: None, block_shift: None }));
        assert!("1g:3k".parse::<NamespaceSize>().is_err());
    }
}
