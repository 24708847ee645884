//! Options of a target.

use super::connection::Limits;
use std::net::SocketAddr;
use std::ops::Range;
use tidewater_base::{Duration, Instant};
use tidewater_wire::fabrics::Nqn;

/// A later instant, at most the last one.
pub(super) fn after(from: Instant, by: Duration) -> Instant {
    Instant::from_ps(from.as_ps().saturating_add(by.as_ps()))
}

/// A host that may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRule {
    /// Its name, which is not authenticated.
    pub name: Nqn,
    /// Commands that destroy, or change what other hosts see (Format, Sanitize, namespace management, self-tests, write
    /// protection, vendor commands) are allowed.
    pub privileged: bool,
}

/// How long a host may take for what it was asked for, or for what it is to take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Time without a byte that counts, at most.
    pub(super) time: Duration,
    /// Bytes in a second, at least.
    pub(super) rate_min: u64,
}

impl Patience {
    /// By when this many bytes have to be there.
    pub(super) fn due(&self, now: Instant, bytes: u64) -> Instant {
        let ps = u128::from(bytes) * 1_000_000_000_000 / u128::from(self.rate_min.max(1));
        after(after(now, self.time), Duration::from_ps(u64::try_from(ps).unwrap_or(u64::MAX)))
    }

    /// Bytes that have to go in the time.
    pub(super) fn bytes(&self) -> u64 {
        (u128::from(self.rate_min) * u128::from(self.time.as_ps()) / 1_000_000_000_000) as u64
    }
}

/// Which hosts may connect to the subsystem. Everyone may ask the discovery controller where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// All of them.
    Any {
        /// Commands that destroy, or change what other hosts see, are allowed.
        privileged: bool,
    },
    /// These.
    Listed(Vec<HostRule>),
}

impl Hosts {
    /// Whether a host may connect, and then whether it is privileged. One without a name is on no list.
    pub(super) fn admits(&self, name: Option<&Nqn>) -> Option<bool> {
        match self {
            Hosts::Any { privileged } => Some(*privileged),
            Hosts::Listed(rules) => rules.iter().find(|rule| Some(&rule.name) == name).map(|rule| rule.privileged),
        }
    }
}

/// Options of a target.
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
    /// Connections, of these, that are not a queue yet, at most: then the oldest one of the address with most of them
    /// ends.
    pub unconnected_max: usize,
    /// Connections that are kept for the queues of each controller, whatever others have.
    pub queues_kept: usize,
    /// Controllers of one host (its name and identifier), at most; and discovery controllers.
    pub controllers_per_host_max: usize,
    /// Controllers of one address, at most; and discovery controllers.
    pub controllers_per_address_max: usize,
    /// Bounds of each connection.
    pub limits: Limits,
    /// Time from the connection to the end of Connect, at most.
    pub handshake_time_max: Duration,
    /// Time that a PDU may take from its first byte to its last, and that a transfer, or bytes for a host, may take
    /// besides what [`Options::rate_min`] allows.
    pub stall_time_max: Duration,
    /// Bytes in a second that a host has to send of what it was asked for, and to take of what it asked for, at least.
    pub rate_min: u64,
    /// A controller whose host does not say when it is to be given up (Keep Alive Timeout 0, or longer than
    /// [`Options::silence_max`]) and that has no I/O queue gives way to another host after so much silence.
    pub idle_time_max: Duration,
    /// Such a controller with I/O queues does so after this; and a discovery controller without Keep Alive Timeout
    /// ends.
    pub silence_max: Duration,
    /// Bytes that wait, all together and at most: for hosts which do not take them, and in capsules for the drive.
    /// Beyond, the host with most of them loses the connection with most of them.
    pub backlog_bytes_max: usize,
}

impl Options {
    pub(super) fn patience(&self) -> Patience {
        Patience { time: self.stall_time_max, rate_min: self.rate_min }
    }

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
            // A handshake takes a few round trips: more at once are no hosts.
            unconnected_max: 64,
            // Admin queue, and one I/O queue of each kind that Linux makes (default, read, poll).
            queues_kept: 4,
            // Several ways to one drive are two or four controllers of a host.
            controllers_per_host_max: 8,
            // A quarter is left to other addresses.
            controllers_per_address_max: 12,
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
            // Half a megabit in a second: slower links do not carry block storage.
            rate_min: 64 << 10,
            idle_time_max: Duration::from_ms(10_000),
            // What NVMe over Fabrics gives a discovery controller without a Keep Alive Timeout (section 4.2).
            silence_max: Duration::from_ms(120_000),
            backlog_bytes_max: 64 << 20,
        }
    }
}
