//! What a target is told.

use super::connection::Limits;
use std::net::SocketAddr;
use std::ops::Range;
use tidewater_base::Duration;
use tidewater_wire::fabrics::Nqn;

/// A host that may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRule {
    /// Its name. Whoever knows the name can say it: this is no authentication.
    pub name: Nqn,
    /// Commands that destroy (Format, Sanitize, namespace management, vendor commands) are allowed.
    pub privileged: bool,
}

/// Which hosts may connect to the subsystem. Everyone may ask the discovery controller where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// All of them.
    Any {
        /// Commands that destroy are allowed.
        privileged: bool,
    },
    /// These.
    Listed(Vec<HostRule>),
}

impl Hosts {
    /// Whether a host may connect, and then whether it is privileged.
    pub(super) fn admits(&self, name: &Nqn) -> Option<bool> {
        match self {
            Hosts::Any { privileged } => Some(*privileged),
            Hosts::Listed(rules) => rules.iter().find(|rule| rule.name == *name).map(|rule| rule.privileged),
        }
    }
}

/// What a target is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// The subsystem's name (SUBNQN), as Identify Controller tells it.
    pub subsystem: Nqn,
    /// Where to listen. Port 0 is any free port.
    pub listen: Vec<SocketAddr>,
    /// Addresses other than loopback are allowed: nothing is encrypted, and no host is authenticated.
    pub insecure_bind: bool,
    /// The address that the discovery log tells; `None`: the one at which the host asked.
    pub advertise: Option<SocketAddr>,
    /// The controllers that hosts may have, behind the PCI functions.
    pub functions: Range<u8>,
    /// I/O queues of a controller, at most.
    pub queues_max: u16,
    /// Entries of a queue, at most: 2 to 32,768. CAP.MQES may say less.
    pub entries_max: u16,
    /// Who may connect.
    pub hosts: Hosts,
    /// Connections at the same time, at most.
    pub connections_max: usize,
    /// Bounds of each connection.
    pub limits: Limits,
    /// Time from the connection to the end of Connect, at most.
    pub handshake_time_max: Duration,
    /// Time without progress in the middle of a PDU, of a transfer, or of bytes that the host does not take, at most.
    pub stall_time_max: Duration,
    /// Bytes that wait for hosts which do not take them, all together and at most; then the connection with most of them ends.
    pub backlog_bytes_max: usize,
}

impl Options {
    /// Options for loopback on any free port, with defaults for all else.
    pub fn new(subsystem: Nqn, functions: Range<u8>) -> Options {
        Options {
            subsystem,
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
            insecure_bind: false,
            advertise: None,
            functions,
            // A host opens one for each of its processors, and up to three kinds of them.
            queues_max: 64,
            entries_max: 1_024,
            hosts: Hosts::Any { privileged: false },
            connections_max: 256,
            limits: Limits {
                // As much as admin commands may have anyway: the small writes need no R2T.
                capsule_data_max: 8_192,
                // Hosts cut larger transfers; a PDU this large costs little beside its bytes.
                data_max: 128 << 10,
                transfer_max: 4 << 20,
                alignment: 0,
                header_digest: true,
                data_digest: true,
            },
            handshake_time_max: Duration::from_ms(10_000),
            stall_time_max: Duration::from_ms(30_000),
            backlog_bytes_max: 256 << 20,
        }
    }
}
