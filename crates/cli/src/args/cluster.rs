//! `tidewater cluster`.

use super::examples;
use super::keeper::KeeperArgs;
use super::peers::GroupArgs;
use clap::builder::RangedI64ValueParser;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// Days of a validity: up to a century.
fn days() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=36_500)
}

/// `tidewater cluster`.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Replicate the log of a served device to its peers, and choose the primary
    ///
    /// Devices that are served with --node and --peer form a group. The primary takes what programs append and sends
    /// it to the others; `tidewater run --level remote-ring` waits until enough of them have it. When the primary's
    /// machine is gone, promote another member: what was acknowledged is there.
    #[command(after_help = examples::GROUP)]
    Group(GroupArgs),
    /// Fail over automatically, coordinated through etcd
    ///
    /// A keeper runs beside each device. When the primary is gone, the keeper of the member that has most asks its
    /// device to become primary, and lets it acknowledge only as long as etcd says that it leads. It is a program of
    /// its own, tidewater-keeper.
    #[command(after_help = examples::KEEPER)]
    Keeper(Box<KeeperArgs>),
    /// Make certificates for devices that replicate to each other
    ///
    /// With `--peer-identity`, devices prove to each other which node they are, and encrypt what they send: a CA for a
    /// first try, and a certificate for each node.
    #[command(subcommand, after_help = examples::IDENTITY)]
    Identity(IdentityCommand),
    /// Old name of `cluster identity init`.
    #[command(hide = true)]
    Init(IdentityInit),
    /// Old name of `cluster identity add-node`.
    #[command(hide = true)]
    AddNode(IdentityAddNode),
}

/// `tidewater cluster identity`.
#[derive(Debug, Subcommand)]
pub enum IdentityCommand {
    /// Make a CA, and a folder with a certificate for each node
    ///
    /// DIR/node-N is what `--peer-identity` of node N takes: copy it to that node's machine. DIR/ca.key makes further
    /// certificates: keep it away from the nodes. Nothing is overwritten.
    #[command(after_help = examples::IDENTITY_INIT)]
    Init(IdentityInit),
    /// Make the folder of one more node, or a new certificate for one
    #[command(after_help = examples::IDENTITY_ADD_NODE)]
    AddNode(IdentityAddNode),
}

/// `tidewater cluster identity init`.
#[derive(Debug, Args)]
pub struct IdentityInit {
    /// Folder of the CA, created if missing
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// Name of the cluster, as --cluster of the devices has it
    #[arg(long, value_name = "NAME", default_value = super::peers::CLUSTER)]
    pub cluster: String,
    /// Number of nodes: 0 to N - 1
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    pub nodes: u8,
    /// Days for which certificates of nodes are valid
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = days())]
    pub days: u32,
    /// Days for which the CA is valid
    #[arg(long, value_name = "DAYS", default_value_t = 3650, value_parser = days())]
    pub ca_days: u32,
}

/// `tidewater cluster identity add-node`.
#[derive(Debug, Args)]
pub struct IdentityAddNode {
    /// Folder of the CA, which `tidewater cluster identity init` made
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub folder: PathBuf,
    /// Number of the node
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=15))]
    pub node: u8,
    /// Give the node that is there a new key and certificate
    #[arg(long)]
    pub renew: bool,
    /// Days for which the certificate is valid
    #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = days())]
    pub days: u32,
}
