//! The commands that use a drive's fast side and byte window: by its BARs, or by commands where there are none.

use super::{examples, values};
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// The drive that is meant.
#[derive(Debug, Args)]
pub struct Reached {
    /// The drive: pci:ADDRESS (a function of this machine or guest), vfio-user:SOCKET (with no other client attached)
    /// or tcp:HOST:PORT
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// NQN of this host, for an NVMe/TCP server that restricts hosts
    #[arg(long, value_name = "NQN")]
    pub host_nqn: Option<String>,
}

/// A lane of the fast side.
#[derive(Debug, Args)]
pub struct Lane {
    /// Lane, 0 to 15
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..16))]
    pub lane: u8,
}

/// `tidewater fast`.
#[derive(Debug, Subcommand)]
pub enum FastCommand {
    /// Append bytes to the log and wait until the credit covers them
    #[command(after_help = examples::FAST_APPEND)]
    Append(FastAppend),
    /// Read bytes of the log that are on flash
    #[command(after_help = examples::FAST_READ)]
    Read(FastRead),
    /// Release the log below a stream offset
    #[command(after_help = examples::FAST_TRIM)]
    Trim(FastTrim),
    /// Show the state of the fast side (vendor log page C0h)
    #[command(after_help = examples::FAST_STATUS)]
    Status(Status),
}

/// `tidewater fast append`.
#[derive(Debug, Args)]
pub struct FastAppend {
    /// The drive.
    #[command(flatten)]
    pub reached: Reached,
    /// The bytes: a file, or `-` for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, default_value = "-")]
    pub file: PathBuf,
    /// The lane.
    #[command(flatten)]
    pub lane: Lane,
    /// Append one record with a checksum that readers can find
    #[arg(long)]
    pub record: bool,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tidewater fast read`.
#[derive(Debug, Args)]
pub struct FastRead {
    /// The drive.
    #[command(flatten)]
    pub reached: Reached,
    /// Stream offset of the first byte
    #[arg(long, value_name = "OFFSET")]
    pub from: u64,
    /// Bytes to read, such as 4KiB
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub bytes: u64,
    /// The lane.
    #[command(flatten)]
    pub lane: Lane,
}

/// `tidewater fast trim`.
#[derive(Debug, Args)]
pub struct FastTrim {
    /// The drive.
    #[command(flatten)]
    pub reached: Reached,
    /// The first stream offset that is kept; pages that hold some of it stay whole
    #[arg(long, value_name = "OFFSET")]
    pub to: u64,
    /// The lane.
    #[command(flatten)]
    pub lane: Lane,
}

/// `tidewater fast status` and `tidewater window status`.
#[derive(Debug, Args)]
pub struct Status {
    /// The drive.
    #[command(flatten)]
    pub reached: Reached,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tidewater window`.
#[derive(Debug, Subcommand)]
pub enum WindowCommand {
    /// Pin logical blocks into the window
    #[command(after_help = examples::WINDOW_PIN)]
    Pin(WindowPin),
    /// Store bytes into an entry
    #[command(after_help = examples::WINDOW_STORE)]
    Store(WindowStore),
    /// Load bytes of an entry
    #[command(after_help = examples::WINDOW_LOAD)]
    Load(WindowLoad),
    /// Wait until all bytes stored into an entry are durable
    #[command(after_help = examples::WINDOW_SYNC)]
    Sync(WindowEntry),
    /// Show where an entry is
    #[command(after_help = examples::WINDOW_INFO)]
    Info(WindowEntry),
    /// Write an entry to its blocks and unpin it
    #[command(after_help = examples::WINDOW_FLUSH)]
    Flush(WindowEntry),
    /// Unpin an entry and discard the bytes stored into it
    #[command(after_help = examples::WINDOW_UNPIN)]
    Unpin(WindowEntry),
    /// Show the state of the window (vendor log page C3h)
    #[command(after_help = examples::WINDOW_STATUS)]
    Status(Status),
}

/// An entry of the window.
#[derive(Debug, Args)]
pub struct WindowEntry {
    /// The drive.
    #[command(flatten)]
    pub reached: Reached,
    /// Number of the entry
    #[arg(long, value_name = "N")]
    pub entry: u16,
    /// Namespace of its blocks
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub nsid: u32,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// `tidewater window pin`.
#[derive(Debug, Args)]
pub struct WindowPin {
    /// The entry.
    #[command(flatten)]
    pub entry: WindowEntry,
    /// First logical block
    #[arg(long, value_name = "LBA")]
    pub lba: u64,
    /// Logical blocks: whole pages of 4 KiB
    #[arg(long, value_name = "N")]
    pub blocks: u32,
    /// First byte in the window, a multiple of 4,096 [default: the device chooses]
    #[arg(long, value_name = "OFFSET")]
    pub at: Option<u64>,
}

/// `tidewater window store`.
#[derive(Debug, Args)]
pub struct WindowStore {
    /// The entry.
    #[command(flatten)]
    pub entry: WindowEntry,
    /// The bytes: a file, or `-` for standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, default_value = "-")]
    pub file: PathBuf,
    /// First byte, from the start of the entry
    #[arg(long, value_name = "OFFSET", default_value_t = 0)]
    pub at: u64,
    /// Wait until the bytes are durable
    #[arg(long)]
    pub sync: bool,
}

/// `tidewater window load`.
#[derive(Debug, Args)]
pub struct WindowLoad {
    /// The entry.
    #[command(flatten)]
    pub entry: WindowEntry,
    /// First byte, from the start of the entry
    #[arg(long, value_name = "OFFSET", default_value_t = 0)]
    pub at: u64,
    /// Bytes to load, such as 4KiB [default: up to the entry's end]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub bytes: Option<u64>,
    /// Use the device's DMA engine instead of loads
    #[arg(long)]
    pub dma: bool,
}
