//! Peers of a served device, and its replication group.

use super::served::Served;
use super::{examples, values};
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use std::net::SocketAddr;
use std::path::PathBuf;

/// The name of a cluster that has no other.
pub const CLUSTER: &str = "tidewater";

/// How a served device reaches its peers.
#[derive(Clone, Debug, Default, Args)]
pub struct PeerArgs {
    /// Number of this device in its replication group, 0 to 15
    #[arg(long, value_name = "N", requires = "peers", help_heading = "Peers")]
    pub node: Option<u8>,
    /// Listen for peers at this address, such as 127.0.0.1:7420
    #[arg(long, value_name = "ADDRESS", requires = "node", help_heading = "Peers")]
    pub peer_listen: Option<SocketAddr>,
    /// A peer: its number and where it listens, such as 1=127.0.0.1:7421; give it once for each
    #[arg(id = "peers", long = "peer", value_name = "N=ADDRESS", requires = "node", help_heading = "Peers")]
    pub peers: Vec<PeerAt>,
    /// Name of the cluster: devices of another one are refused [default: tidewater]
    #[arg(long, value_name = "NAME", requires = "node", help_heading = "Peers")]
    pub cluster: Option<String>,
    /// Folder of this node's certificate, key and CA (node.pem, node.key, ca.pem), as `tidewater cluster init` makes
    /// it: connections are encrypted, and each peer proves which node it is. Give it to all of them
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "node", help_heading = "Peers")]
    pub peer_identity: Option<PathBuf>,
    /// Allow addresses of peers beyond loopback without --peer-identity: anything that can reach the port can write the
    /// log
    #[arg(long, requires = "node", conflicts_with = "peer_identity", help_heading = "Peers")]
    pub insecure_peers: bool,
    /// As primary, feed a replica that was away or is new with at most so many bytes a second, such as 50MiB, of what
    /// is no longer in the ring [default: as fast as it takes them]
    #[arg(long, value_name = "SIZE", value_parser = values::size, requires = "node", help_heading = "Peers")]
    pub catch_up_rate: Option<u64>,
    /// As a replica, keep the log until `tidewater recover --follow` has it, or there is no room left; the primary's
    /// trims do not count
    #[arg(long, requires = "node", help_heading = "Peers")]
    pub hold_log: bool,
}

/// A peer and where it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerAt {
    /// Its number.
    pub node: u8,
    /// `host:port`.
    pub address: String,
}

impl std::str::FromStr for PeerAt {
    type Err = String;

    fn from_str(text: &str) -> Result<PeerAt, String> {
        let (node, address) = text.split_once('=').ok_or("expected N=ADDRESS, such as 1=127.0.0.1:7421")?;
        let node = node.parse().map_err(|_| format!("node `{node}`: expected a number from 0 to 15"))?;
        let has_port = address.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if !has_port {
            return Err(format!("address `{address}`: expected a host and a port, such as 127.0.0.1:7421"));
        }
        Ok(PeerAt { node, address: address.to_owned() })
    }
}

/// `tidewater group`.
#[derive(Debug, Args)]
pub struct GroupArgs {
    /// The device.
    #[command(flatten)]
    pub served: Served,
    /// The function whose log it is about
    #[arg(long, global = true, value_name = "N", default_value_t = 0)]
    pub function: u8,
    /// The subcommand.
    #[command(subcommand)]
    pub what: GroupCommand,
}

/// Subcommands of `tidewater group`.
#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Put this device into a group: the same on each member, and --primary on one of them
    #[command(after_help = examples::GROUP_FORM)]
    Form {
        /// The group.
        #[command(flatten)]
        group: GroupOf,
        /// This device becomes primary and keeps its log; the others take it over
        #[arg(long)]
        primary: bool,
    },
    /// Make this device primary, once enough members agree
    #[command(after_help = examples::GROUP_PROMOTE)]
    Promote {
        /// The new group.
        #[command(flatten)]
        group: GroupIfAny,
        /// Members that do not answer are dead: what only they had is lost
        #[arg(long)]
        force: bool,
    },
    /// Make this primary a secondary that waits for the next primary
    #[command(after_help = examples::GROUP_DEMOTE)]
    Demote,
    /// Take this device out of its group; it keeps its log
    #[command(after_help = examples::GROUP_LEAVE)]
    Leave,
    /// Allow this secondary to discard its log as far as that is needed to follow the primary
    #[command(after_help = examples::GROUP_REBUILD)]
    Rebuild,
    /// Let this primary acknowledge until a deadline only, or without one again
    #[command(after_help = examples::GROUP_DEADLINE)]
    Deadline {
        /// From now on; behind it nothing is acknowledged, also by a device that was started anew
        #[arg(long, value_name = "TIME", value_parser = super::values::time, required_unless_present = "none")]
        lasts: Option<tidewater_base::Duration>,
        /// No deadline: this primary acknowledges for good, until it is demoted or another is promoted
        #[arg(long, conflicts_with = "lasts")]
        none: bool,
    },
    /// Show role, group, replicas and connections
    #[command(after_help = examples::GROUP_STATUS)]
    Status {
        /// Print as JSON
        #[arg(long)]
        json: bool,
        /// Print only the offset up to which this device has the log of lane 0: on a primary, what `tidewater tail
        /// --at-least` on a replica waits for
        #[arg(long, conflicts_with = "json")]
        log_end: bool,
    },
}

/// A group: who is in it and how replicas acknowledge.
#[derive(Clone, Debug, Args)]
pub struct GroupOf {
    /// Numbers of all members, this device included, such as 0,1,2
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true)]
    pub members: Vec<u8>,
    /// When appended bytes count as replicated
    #[arg(long, value_name = "MODE")]
    pub mode: GroupModeName,
    /// For quorum: how many members, the primary included, must have a byte [default: more than half]
    #[arg(long, value_name = "K")]
    pub quorum: Option<u8>,
}

/// The same, or none: then the group stays.
#[derive(Clone, Debug, Args)]
pub struct GroupIfAny {
    /// Numbers of all members of the new group, such as 0,1,2; without it the group stays
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "mode")]
    pub members: Vec<u8>,
    /// When appended bytes count as replicated in the new group
    #[arg(long, value_name = "MODE", requires = "members")]
    pub mode: Option<GroupModeName>,
    /// For quorum: how many members, the primary included, must have a byte [default: more than half]
    #[arg(long, value_name = "K", requires = "mode")]
    pub quorum: Option<u8>,
}

impl GroupIfAny {
    /// The group, if one is given.
    pub fn group(&self) -> Option<GroupOf> {
        let GroupIfAny { members, mode, quorum } = self.clone();
        mode.map(|mode| GroupOf { members, mode, quorum })
    }
}

/// When appended bytes count as replicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GroupModeName {
    /// Never: the primary waits for no replica
    Lazy,
    /// When all members have them
    Eager,
    /// When all members have them, each forwarding to the next
    Chain,
    /// When --quorum members have them, the primary included
    Quorum,
}
