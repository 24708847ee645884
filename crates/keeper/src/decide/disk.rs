//! The disk of this keeper's device as a reason to lead no longer.
//!
//! One that can't be written is one at once: its device acknowledges nothing any more, so leadership is of no use to
//! it. One that is slow is a reason only where an operator has said from when on, since it still acknowledges: it has
//! to be slow for a whole ttl, so that one hiccup moves nothing, and another member has to be better. And a keeper
//! does that once in a while only, so that two slow disks do not hand leadership to each other for ever.

use super::Of;
use crate::device::Disk;
use crate::job::Keep;

/// Leases between two times that a keeper gives leadership up for a slow disk, or for a program that does not run.
pub(super) const LEASES_BETWEEN: u64 = 10;

/// How slow a disk is.
#[derive(Clone, Debug, Default)]
pub(super) struct Slow {
    /// What it had done when it was looked at last, and when that was.
    last: Option<(u64, Disk)>,
    /// Since when it has been slow.
    since: Option<u64>,
    /// When leadership was last given up for it.
    gave_up_at: Option<u64>,
}

impl Slow {
    /// Looks at it, once in each loop wait.
    pub(super) fn look(&mut self, now_ms: u64, disk: &Disk, keep: &Keep) {
        let Some(limit_ms) = keep.slow_disk_ms else { return };
        let Some((at, before)) = self.last.replace((now_ms, disk.clone())) else { return };
        if now_ms.saturating_sub(at) < keep.loop_wait_ms {
            // Too short a time says nothing.
            self.last = Some((at, before));
            return;
        }
        // A device that was started anew counts anew.
        let mean = |count: u64, count_before: u64, us: u64, us_before: u64| {
            us.saturating_sub(us_before).checked_div(count.saturating_sub(count_before)).unwrap_or(0)
        };
        let write_us = mean(disk.writes, before.writes, disk.write_us, before.write_us);
        let sync_us = mean(disk.syncs, before.syncs, disk.sync_us, before.sync_us);
        let slowest_us = write_us.max(sync_us).max(disk.syncing_us);
        if (disk.writes, disk.syncs, disk.syncing_us) == (before.writes, before.syncs, 0) {
            // It was asked for nothing: this time does not count.
            self.since = self.since.map(|since| since + (now_ms - at));
        } else if slowest_us < limit_ms.saturating_mul(1_000) {
            self.since = None;
        } else {
            self.since.get_or_insert(at);
        }
    }

    /// Whether it has been slow for a whole ttl.
    pub(super) fn is_lasting(&self, now_ms: u64, keep: &Keep) -> bool {
        self.since.is_some_and(|since| now_ms.saturating_sub(since) >= keep.ttl_ms)
    }

    /// Whether it is a reason to give leadership up.
    pub(super) fn is_reason(&self, now_ms: u64, keep: &Keep) -> bool {
        let rests = LEASES_BETWEEN * keep.ttl_ms;
        self.is_lasting(now_ms, keep) && self.gave_up_at.is_none_or(|at| now_ms.saturating_sub(at) >= rests)
    }

    /// Leadership is given up for it.
    pub(super) fn gave_up(&mut self, now_ms: u64) {
        self.gave_up_at = Some(now_ms);
    }
}

impl Of<'_> {
    /// What is said of a device whose image can't be written.
    pub(super) fn with_bad_disk(&self, state: &str) -> String {
        let node = self.device.node;
        let next = match state {
            "full" => "make room on it; if the device does not start itself anew then, start it again",
            _ => "repair it, and start the device again",
        };
        format!("does not lead: node {node}: {}; {next}", Disk::wrong(state))
    }
}
