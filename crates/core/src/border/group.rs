//! Wishes of an operator for the replication group of a log, and why they are refused.

use std::fmt;
use tidewater_base::Duration;
use tidewater_wire::replication::{Epoch, Group};

/// What an operator asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupCommand {
    /// Puts a stand-alone device into a group. As primary it starts a promotion and keeps its log; as secondary it
    /// waits, and gives its log up for the primary's.
    Setup {
        /// Its number.
        node: u8,
        /// The group: the same on every member, with version [`Epoch::ZERO`].
        group: Group,
        /// Whether it is to be primary.
        primary: bool,
        /// As in [`GroupCommand::Promote`].
        epoch: Epoch,
        /// As in [`GroupCommand::Promote`].
        force: bool,
    },
    /// Makes a member primary.
    Promote {
        /// The group that it is to be primary of, when that changes; its version does not matter.
        target: Option<Group>,
        /// The epoch that it asks for, made by itself; [`Epoch::ZERO`]: any. It asks for a higher one when it knows one
        /// that is not below this.
        epoch: Epoch,
        /// The operator declares all nodes that do not answer dead: those that answer are enough. Bytes that only the
        /// dead nodes held are lost.
        force: bool,
    },
    /// Makes a primary, or a candidate, a secondary that waits for the next primary.
    Demote,
    /// The memory of this device is gone, and with it log bytes that it may have acknowledged. A primary is a secondary
    /// from now on, and its log counts for no promotion by itself.
    LostMemory,
    /// Takes the device out of its group; it keeps its log. For the group it is dead.
    StandAlone,
    /// Allows a secondary to throw its log away, as far as that is needed to follow the primary.
    Rebuild,
    /// Sets the leader deadline: a primary acknowledges until it passes, and a device that ever had one acknowledges
    /// nothing without one, also after it was started anew.
    Lead {
        /// The epoch that it is for: the primary's own.
        epoch: Epoch,
        /// The deadline, from now on, at most a day; 0: it has passed, which any member takes, whatever its role and
        /// the epoch. `None`: the device acknowledges without a deadline again.
        lasts: Option<Duration>,
    },
}

/// Why a command is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupError {
    /// The device is in a group already: take it out first.
    InGroup,
    /// The device is in no group: set it up first.
    StandAlone,
    /// This node is no member of the group: list it.
    NotMember(u8),
    /// The command is for a secondary: demote the device first.
    NotSecondary,
    /// The group has changed without this node: promote a member of the new one, or force.
    Outdated,
    /// The epochs are used up.
    EpochsUsedUp,
    /// The first epoch is further above the second, the newest that the device knows, than promotions ever come.
    EpochFar(Epoch, Epoch),
    /// A leader deadline is for the primary of its epoch: this device is none, or it is primary of this other epoch.
    NotLeader(Option<Epoch>),
}

impl fmt::Display for GroupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GroupError::InGroup => f.write_str("the device is in a group: make it stand-alone first"),
            GroupError::StandAlone => f.write_str("the device is stand-alone: set up its group first"),
            GroupError::NotMember(node) => write!(f, "node {node} is no member of the group: list it"),
            GroupError::NotSecondary => f.write_str("only a secondary can be rebuilt: demote the device first"),
            GroupError::Outdated => {
                f.write_str("the group has changed without this device: promote a member of the new group, or force")
            }
            GroupError::EpochsUsedUp => f.write_str("all epochs are used up: set the group up anew"),
            GroupError::EpochFar(asked, known) => write!(
                f,
                "epoch {asked} is refused: the newest that the device knows is {known}, and no promotion leaves out so \
                 many; correct the source of that number"
            ),
            GroupError::NotLeader(None) => f.write_str("a leader deadline is for a primary: promote the device first"),
            GroupError::NotLeader(Some(epoch)) => {
                write!(f, "the device is primary of epoch {epoch}: give a deadline for that one")
            }
        }
    }
}

impl std::error::Error for GroupError {}
