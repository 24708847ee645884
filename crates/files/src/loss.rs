//! A device that is lost while a program runs on its log: the program's syncs fail from then on, or, where that was
//! asked for, its files leave the log and are synced by themselves.
//!
//! Leaving must not let recovery bring older bytes back: first nothing more is recorded and no sync returns, then all
//! files are synced, then the log gets a mark that says so, where it stays without the device. Syncs go on behind the
//! mark: what recovery finds before it, it leaves alone.

use std::sync::atomic::Ordering;

use crate::table::Table;
use tidewater_client::LogError;

/// Consequence of losing the device for the run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
#[repr(u64)]
pub enum Loss {
    /// Syncs fail from then on.
    Fails = 0,
    /// The files leave the log.
    MayLeave = 1,
    /// They are leaving it: nothing is recorded, no sync returns.
    Leaves = 2,
    /// They have left it: each is synced by itself.
    Left = 3,
}

/// Whether it is the device that is lost: it has gone, or does not answer.
pub(crate) fn is_loss(error: &LogError) -> bool {
    matches!(error, LogError::Gone | LogError::NoReply { .. } | LogError::TimedOut { .. })
}

impl Table {
    /// The configured consequence of losing the device, or the state it has led to.
    #[inline]
    pub fn loss(&self) -> Loss {
        match self.loss_word().load(Ordering::Acquire) {
            0 => Loss::Fails,
            1 => Loss::MayLeave,
            2 => Loss::Leaves,
            _ => Loss::Left,
        }
    }

    /// Files may leave the log when the device is lost.
    pub(crate) fn may_leave(&self) {
        self.loss_word().store(Loss::MayLeave as u64, Ordering::Release);
    }

    /// The device is lost. Whether the files leave the log, instead of the run failing: from now on nothing more is
    /// recorded.
    pub(crate) fn begin_to_leave(&self) -> bool {
        let (from, to) = (Loss::MayLeave as u64, Loss::Leaves as u64);
        let _ = self.loss_word().compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        self.loss() >= Loss::Leaves
    }

    /// All files are synced, and the log says so.
    pub(crate) fn has_left(&self) {
        self.loss_word().store(Loss::Left as u64, Ordering::Release);
    }
}
