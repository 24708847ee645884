//! `tidewater cluster`.

use super::examples;
use clap::builder::RangedI64ValueParser;
use clap::{Subcommand, ValueHint};
use std::path::PathBuf;

/// Days of a validity: up to a century.
fn days() -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=36_500)
}

/// What `tidewater cluster` does.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Make a CA, and a folder with a certificate for each node
    ///
    /// DIR/node-N is what `--peer-identity` of node N takes: copy it to that node's machine. DIR/ca.key makes further
    /// certificates: keep it away from the nodes. Nothing is overwritten.
    #[command(after_help = examples::CLUSTER_INIT)]
    Init {
        /// Folder of the CA, created if missing
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
        /// Name of the cluster, as --cluster of the devices has it
        #[arg(long, value_name = "NAME", default_value = super::peers::CLUSTER)]
        cluster: String,
        /// Number of nodes: 0 to N - 1
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
        nodes: u8,
        /// Days for which certificates of nodes are valid
        #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = days())]
        days: u32,
        /// Days for which the CA is valid
        #[arg(long, value_name = "DAYS", default_value_t = 3650, value_parser = days())]
        ca_days: u32,
    },
    /// Make the folder of one more node, or a new certificate for one
    #[command(after_help = examples::CLUSTER_ADD_NODE)]
    AddNode {
        /// Folder of the CA, which `tidewater cluster init` made
        #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
        folder: PathBuf,
        /// Number of the node
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=15))]
        node: u8,
        /// Give the node that is there a new key and certificate
        #[arg(long)]
        renew: bool,
        /// Days for which the certificate is valid
        #[arg(long, value_name = "DAYS", default_value_t = 365, value_parser = days())]
        days: u32,
    },
}
