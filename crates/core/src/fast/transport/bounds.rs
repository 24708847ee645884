//! How far an order or a frame may raise a node's epochs: one that is wrong would use up all that are left.

use super::Persistent;
use tidewater_wire::replication::{Body, Epoch, Frame};

/// Epochs that one step may leave out. Each promotion takes one, or a few more where members know of higher ones: at a
/// promotion each millisecond it would take 49 days to be so far behind.
pub(super) const EPOCHS_AHEAD_MAX: u64 = 1 << 32;
/// The highest counter that a device without a log takes from others: half of all there are, so that a wrong one can't
/// use them up.
pub(super) const COUNTER_MAX_OF_NEW: u64 = 1 << 55;

impl Persistent {
    /// The newest epoch that this node knows of.
    pub(super) fn newest_known(&self) -> Epoch {
        self.promised.max(self.history.last()).max(self.floor)
    }

    /// Whether an epoch is too far above those that are known here to be true. Taken, it would use up those that are
    /// left. A node without a log knows nothing to compare it with.
    pub(super) fn is_far(&self, epoch: Epoch) -> bool {
        let is_new = self.rebuild || self.synced == Epoch::ZERO;
        let most = self.newest_known().counter().saturating_add(EPOCHS_AHEAD_MAX);
        epoch.counter() > if is_new { most.max(COUNTER_MAX_OF_NEW) } else { most }
    }
}

/// The newest epoch that a frame names, as an epoch or as the version of a group.
pub(super) fn newest_in(frame: &Frame) -> Epoch {
    let named = match &frame.body {
        Body::Propose { base, target, .. } => (*base).max(target.version()),
        Body::Refuse { promised, group, .. } => (*promised).max(group.version()),
        Body::Attach(attach) => attach.group.version(),
        Body::Accepted(accepted) => accepted.version,
        _ => Epoch::ZERO,
    };
    named.max(frame.epoch)
}
