//! Messages between devices of one replication group, and the records of it that they keep over a power loss.
//!
//! [`Epoch`], [`Group`] and [`History`] are those records; [`Frame`] is the message. Multi-byte fields are
//! little-endian. The protocol is that of `docs/adr/0007-the-fast-side.md`.

mod frame;
mod hello;
mod history;

pub use frame::{
    Accepted, Attach, Body, Durable, FRAME_BYTES_MAX, Frame, FrameError, HEADER_BYTES, REPORT_BYTES,
    REPORT_CHAIN_BYTES, Reason,
};
pub use hello::{Envelope, Hello, PEER_DATA_MAX, PEER_VERSION, Piece, PieceError, Ping, Refusal};
pub use history::{History, Start};

pub use crate::vendor::{Epoch, Mode};
use std::fmt;

pub use crate::vendor::{LANES_MAX, NODES_MAX as MEMBERS_MAX};
/// Epochs that a history keeps, at most. The oldest goes first.
pub const HISTORY_MAX: usize = 16;

/// Why a group can't be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupError {
    /// There is no member, or more than [`MEMBERS_MAX`]: this many.
    Size(usize),
    /// This node is listed twice.
    Twice(u8),
    /// A quorum of `k` members of a group of `n` is asked for; `k` has to be in `1..=n`.
    Quorum {
        /// Members that acknowledge.
        k: u8,
        /// Members of the group.
        n: u8,
    },
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupError::Size(n) => write!(f, "a group of {n} members: list 1 to {MEMBERS_MAX}"),
            GroupError::Twice(node) => write!(f, "node {node} is listed twice: list each member once"),
            GroupError::Quorum { k, n } => write!(f, "a quorum of {k} in a group of {n}: choose 1 to {n}"),
        }
    }
}

impl std::error::Error for GroupError {}

/// The members of a group in the order of a chain, and the mode.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Group {
    version: Epoch,
    mode: Mode,
    members: [u8; MEMBERS_MAX],
    len: u8,
}

impl Group {
    /// Bytes of a group in a frame or control block.
    pub const BYTES: usize = 8 + 4 + MEMBERS_MAX;

    /// A group. `version` is the epoch that introduces it; [`Epoch::ZERO`] for one that an operator sets up.
    pub fn new(version: Epoch, mode: Mode, members: &[u8]) -> Result<Group, GroupError> {
        if members.is_empty() || members.len() > MEMBERS_MAX {
            return Err(GroupError::Size(members.len()));
        }
        for (i, node) in members.iter().enumerate() {
            if members[..i].contains(node) {
                return Err(GroupError::Twice(*node));
            }
        }
        let n = members.len() as u8;
        if let Mode::Quorum(k) = mode
            && !(1..=n).contains(&k)
        {
            return Err(GroupError::Quorum { k, n });
        }
        let mut list = [0; MEMBERS_MAX];
        list[..members.len()].copy_from_slice(members);
        Ok(Group { version, mode, members: list, len: n })
    }

    /// The epoch that introduced it.
    pub fn version(&self) -> Epoch {
        self.version
    }

    /// The same members and mode, introduced by another epoch.
    pub fn at(&self, version: Epoch) -> Group {
        Group { version, ..*self }
    }

    /// Its mode.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Its members.
    pub fn members(&self) -> &[u8] {
        &self.members[..usize::from(self.len)]
    }

    /// Whether `node` is a member.
    pub fn contains(&self, node: u8) -> bool {
        self.members().contains(&node)
    }

    /// Whether members, their order and the mode are the same, whatever the version.
    pub fn same_as(&self, other: &Group) -> bool {
        self.mode == other.mode && self.members() == other.members()
    }

    /// Its bytes: version (8), mode (1), k of a quorum or 0 (1), number of members (1), 0 (1), members (16).
    pub fn to_bytes(&self) -> [u8; Group::BYTES] {
        let (mode, k) = match self.mode {
            Mode::Lazy => (0, 0),
            Mode::Eager => (1, 0),
            Mode::Chain => (2, 0),
            Mode::Quorum(k) => (3, k),
        };
        let mut bytes = [0; Group::BYTES];
        bytes[..8].copy_from_slice(&self.version.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&[mode, k, self.len, 0]);
        bytes[12..].copy_from_slice(&self.members);
        bytes
    }

    /// The group in these bytes, or `None` when they name none.
    pub fn from_bytes(bytes: &[u8; Group::BYTES]) -> Option<Group> {
        let (version, rest) = bytes.split_first_chunk::<8>()?;
        let [mode, k, len, zero, members @ ..] = rest else { return None };
        let mode = match (mode, k) {
            (0, 0) => Mode::Lazy,
            (1, 0) => Mode::Eager,
            (2, 0) => Mode::Chain,
            (3, &k) => Mode::Quorum(k),
            _ => return None,
        };
        let (members, rest) = members.split_at_checked(usize::from(*len))?;
        if *zero != 0 || rest.iter().any(|&b| b != 0) {
            return None;
        }
        Group::new(Epoch(u64::from_le_bytes(*version)), mode, members).ok()
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} since {}", self.mode, self.members(), self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_nodes_make_one_epoch() {
        let first = Epoch::ZERO.next(3).unwrap();
        let (a, b) = (first.next(1).unwrap(), first.next(2).unwrap());
        assert!(a > first && b > a && b.node() == 2 && b.counter() == 2);
        assert_eq!(Epoch(u64::MAX).next(1), None);
    }

    #[test]
    fn groups_that_can_not_be_are_refused_by_name() {
        let group = |mode, members: &[u8]| Group::new(Epoch::ZERO, mode, members);
        assert_eq!(group(Mode::Lazy, &[]), Err(GroupError::Size(0)));
        assert_eq!(group(Mode::Lazy, &[0; 17]), Err(GroupError::Size(17)));
        assert_eq!(group(Mode::Eager, &[1, 2, 1]), Err(GroupError::Twice(1)));
        assert_eq!(group(Mode::Quorum(4), &[1, 2, 3]), Err(GroupError::Quorum { k: 4, n: 3 }));
        assert!(group(Mode::Quorum(2), &[1, 2, 3]).is_ok());
    }
}
