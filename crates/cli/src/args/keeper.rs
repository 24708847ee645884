//! Arguments of `tidewater keeper`.

use super::examples;
use super::peers::GroupIfAny;
use super::served::Served;
use super::values;
use clap::{Args, Subcommand, ValueHint};
use std::net::SocketAddr;
use std::path::PathBuf;
use tidewater_base::Duration;

/// `tidewater keeper`.
#[derive(Debug, Args)]
pub struct KeeperArgs {
    /// Addresses of etcd, such as http://127.0.0.1:2379,http://10.0.0.2:2379
    #[arg(
        long,
        global = true,
        value_name = "URL",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:2379",
        help_heading = "etcd"
    )]
    pub etcd: Vec<String>,
    /// User of etcd; its password is in the environment variable TIDEWATER_ETCD_PASSWORD
    #[arg(long, global = true, value_name = "NAME", help_heading = "etcd")]
    pub etcd_user: Option<String>,
    /// File of the CA of etcd's certificate, for addresses that begin with https://
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "etcd")]
    pub etcd_ca: Option<PathBuf>,
    /// File of this keeper's own certificate, for an etcd that asks for one
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        requires_all = ["etcd_ca", "etcd_key"],
        help_heading = "etcd"
    )]
    pub etcd_cert: Option<PathBuf>,
    /// File of that certificate's key
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        requires = "etcd_cert",
        help_heading = "etcd"
    )]
    pub etcd_key: Option<PathBuf>,
    /// Name of the cluster: its keys are below /tidewater/NAME/
    #[arg(long, global = true, value_name = "NAME", default_value = "tidewater", help_heading = "etcd")]
    pub cluster: String,
    /// Function of the devices, each of which has a group of its own: from 1 on, keys are below /tidewater/NAME:N/
    #[arg(long, global = true, value_name = "N", default_value_t = 0, help_heading = "etcd")]
    pub function: u8,
    /// The subcommand.
    #[command(subcommand)]
    pub what: KeeperCommand,
}

/// Subcommands of `tidewater keeper`.
#[derive(Debug, Subcommand)]
pub enum KeeperCommand {
    /// Keep a device: promote it when the primary is gone, and let it acknowledge while etcd says that it leads
    #[command(after_help = examples::KEEPER_RUN)]
    Run(KeeperRun),
    /// Show the group, its members and what their keepers do
    #[command(after_help = examples::KEEPER_STATUS)]
    Status {
        /// The device whose keeper remembers etcd.
        #[command(flatten)]
        served: Served,
        /// Print as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make another member primary, and wait until it is
    #[command(after_help = examples::KEEPER_SWITCHOVER)]
    Switchover {
        /// Number of the next primary [default: the member that has most]
        #[arg(long, value_name = "N")]
        to: Option<u8>,
        /// How long to wait
        #[arg(long, value_name = "TIME", value_parser = values::time, default_value = "30s")]
        wait: Duration,
    },
    /// Promote nothing until resumed, and let the primary acknowledge without its keeper
    #[command(after_help = examples::KEEPER_PAUSE)]
    Pause,
    /// Promote again, and let the primary acknowledge with its keeper only
    #[command(after_help = examples::KEEPER_PAUSE)]
    Resume,
    /// Let a member discard its log as far as that is needed, and take the primary's
    #[command(after_help = examples::KEEPER_REINIT)]
    Reinit {
        /// Number of the member
        #[arg(long, value_name = "N")]
        node: u8,
    },
    /// Set the members and their mode, or show them
    #[command(after_help = examples::KEEPER_GROUP)]
    Group {
        /// The group.
        #[command(flatten)]
        group: GroupIfAny,
    },
    /// Run a program beside the primary: its machine's keeper has it started, stopped and killed
    #[command(after_help = examples::KEEPER_PROGRAM)]
    Program(KeeperProgram),
}

/// `tidewater cluster keeper program`.
#[derive(Debug, Args)]
pub struct KeeperProgram {
    /// The device.
    #[command(flatten)]
    pub served: Served,
    /// Shell command that runs while another machine's device is primary, such as `tidewater recover --follow`. It has
    /// TIDEWATER_NODE and TIDEWATER_PRIMARY in its environment, and is started again when it ends
    #[arg(long, value_name = "SCRIPT")]
    pub standby: Option<String>,
    /// The signal that asks the program to end
    #[arg(long, value_name = "NAME", default_value = "TERM")]
    pub stop_signal: String,
    /// The program and its arguments, in the foreground. It has TIDEWATER_NODE and TIDEWATER_EPOCH in its environment
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<String>,
}

/// `tidewater keeper run`.
#[derive(Debug, Args)]
pub struct KeeperRun {
    /// The device.
    #[command(flatten)]
    pub served: Served,
    /// Where programs find the device, for those that read it in etcd [default: the folder of the control socket]
    #[arg(long, value_name = "TEXT")]
    pub address: Option<String>,
    /// The file that the keeper remembers etcd by [default: keeper.json beside the control socket, keeper-N.json for
    /// function N]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub state: Option<PathBuf>,
    /// How long a primary acknowledges without a word to etcd: whole seconds
    #[arg(long, value_name = "TIME", value_parser = values::time, default_value = "10s")]
    pub ttl: Duration,
    /// How often the keeper looks; loop wait + 2 x retry time-out must not exceed the ttl
    #[arg(long, value_name = "TIME", value_parser = values::time, default_value = "1s")]
    pub loop_wait: Duration,
    /// How long the keeper waits for etcd, and for the device
    #[arg(long, value_name = "TIME", value_parser = values::time, default_value = "4s")]
    pub retry_timeout: Duration,
    /// Give leadership up when a write or a sync of the device's image takes at least this long on average, for the
    /// length of the ttl, and another member is in step whose disk is not slow [default: never]
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    pub slow_disk: Option<Duration>,
    /// Take etcd as it is, though it is another one than before, or an older snapshot of it
    #[arg(long)]
    pub new_etcd: bool,
    /// A live page of the cluster for browsers at this loopback address, such as 127.0.0.1:8081
    #[arg(long, value_name = "ADDRESS")]
    pub page: Option<SocketAddr>,
    /// Prometheus metrics at this address, such as 127.0.0.1:9465, under /metrics; /primary there answers 200 while the
    /// device is primary and may acknowledge, else 503, for load balancers. Any machine that reaches it may ask
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// Start the program of this machine's `tidewater cluster keeper program` when the device becomes primary, and have
    /// it stopped before another can be
    #[arg(long)]
    pub program: bool,
    /// How long before the end of its lease the program is asked to end; it is killed after two thirds of that. With
    /// the loop wait and the retry time-out, at most 98 % of the ttl
    #[arg(long, value_name = "TIME", value_parser = values::time, default_value = "3s")]
    pub program_stop: Duration,
}
