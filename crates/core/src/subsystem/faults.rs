//! Faults that are injected at run time, for people who write drivers.

use tidewater_base::Duration;
use tidewater_wire::nvme::Status;

/// Faults of one kind that are remembered at once, at most; older ones are forgotten.
const REMEMBERED: usize = 64;

/// The longest delay: no host waits for a day.
pub(super) const DELAY_MAX: Duration = Duration::from_ms(86_400_000);

/// What happens to completions of a controller's I/O queues.
#[derive(Clone, Copy, Debug)]
pub(super) enum OnCompletion {
    Delay(Duration),
    Lose,
    Duplicate,
}

/// Faults of one kind that are still to come, each with how often it happens; 0: always.
#[derive(Clone, Debug)]
pub(super) struct Armed<T>(Vec<(T, u32)>);

impl<T> Default for Armed<T> {
    fn default() -> Armed<T> {
        Armed(Vec::new())
    }
}

impl<T: Copy> Armed<T> {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, (T, u32)> {
        self.0.iter()
    }

    pub(super) fn remember(&mut self, fault: T, count: u32) {
        if self.0.len() == REMEMBERED {
            self.0.remove(0);
        }
        self.0.push((fault, count));
    }

    /// As [`Armed::remember`], for faults of which none happens always.
    pub(super) fn remember_some(&mut self, fault: T, count: u32) {
        if count > 0 {
            self.remember(fault, count);
        }
    }

    /// The first that fits happens.
    #[cold]
    pub(super) fn next(&mut self, fits: impl Fn(&T) -> bool) -> Option<T> {
        let place = self.0.iter().position(|(fault, _)| fits(fault))?;
        let (fault, count) = self.0[place];
        match count {
            1 => _ = self.0.remove(place),
            _ => self.0[place].1 = count.saturating_sub(1),
        }
        Some(fault)
    }
}

/// A status that commands on blocks of a namespace end with: from the first block up to the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct OnBlocks {
    pub nsid: u32,
    pub blocks: (u64, u64),
    pub status: Status,
}

/// Faults of completions and block commands that are still to come.
#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    pub on_blocks: Armed<OnBlocks>,
    /// By controller.
    pub on_completions: Armed<(u8, OnCompletion)>,
}

impl Faults {
    /// The status that a command on these blocks ends with, if it is one of those.
    #[cold]
    pub(super) fn status(&mut self, nsid: u32, first: u64, blocks: u64) -> Option<Status> {
        let hit = |fault: &OnBlocks| {
            let (from, end) = fault.blocks;
            fault.nsid == nsid && first < end && from < first.saturating_add(blocks)
        };
        Some(self.on_blocks.next(hit)?.status)
    }

    /// The fault of a controller's next completion.
    pub(super) fn next(&mut self, function: u8) -> Option<OnCompletion> {
        Some(self.on_completions.next(|&(of, _)| of == function)?.1)
    }
}
