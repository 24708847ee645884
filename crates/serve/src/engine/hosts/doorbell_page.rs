//! Doorbells of BAR0 that a client stores into memory (`serve.doorbells`): a page for each function, which the
//! device's thread polls.
//!
//! The page is foreign memory. Each word is loaded once, and a value that is new counts as the write of a register:
//! the controller checks it as it checks one that came by message. Words of a queue that has just been made or
//! deleted are cleared before the host learns of it, and all of them after a reset of the controller: what the page
//! held before never rings.

use crate::engine::Firmware;
use crate::vfio_user::DOORBELL_PAGE;
use std::sync::Arc;
use std::time::Duration;
use tidewater_core::subsystem::Queues;
use tidewater_ipc::SharedMemory;
use tidewater_wire::nvme::register::offset::DOORBELLS;

/// Doorbells in a page.
const WORDS: usize = DOORBELL_PAGE.size as usize / 4;
/// What stands where a doorbell only says that its shadow has changed (Doorbell Buffer Config). Such a host need not
/// ring each time, so that it may ring twice with the same value: the word is put back, and the second ring is a
/// change, too.
const PUT_BACK: u32 = u32::MAX;
/// How long the thread sleeps between two looks: a part of the time for which nothing has rung, so that a pause
/// becomes longer by that part at most.
const NAP_SHARE: u32 = 8;
/// The shortest such sleep: about what falling asleep costs.
const NAP_MIN: Duration = Duration::from_micros(20);
/// The longest: 500 looks in a second take less than 1 % of a core.
const NAP_MAX: Duration = Duration::from_millis(2);

/// How long the thread may sleep when nothing has rung for `idle`.
pub(crate) fn nap(idle: Duration) -> Duration {
    (idle / NAP_SHARE).clamp(NAP_MIN, NAP_MAX)
}

/// Which words of a page to look at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// Those of queues.
    Polled,
    /// All others: a client must not ring them.
    Others,
}

/// The doorbell page of a function.
#[derive(Debug)]
pub struct DoorbellPage {
    memory: Arc<SharedMemory>,
    /// What each word said at the last look.
    seen: Box<[u32; WORDS]>,
    /// Words of the queues that there are: these are polled.
    polled: Vec<u16>,
    queues: Queues,
    /// Resets of the controller that the page is cleared for. `None`: it is another controller's.
    resets: Option<u32>,
}

impl DoorbellPage {
    /// The page in `memory`, which begins where BAR0 begins.
    pub fn new(memory: Arc<SharedMemory>) -> DoorbellPage {
        let seen = Box::new([0; WORDS]);
        DoorbellPage { memory, seen, polled: Vec::new(), queues: Queues::default(), resets: None }
    }

    fn offset(word: usize) -> u64 {
        DOORBELL_PAGE.offset + 4 * word as u64
    }

    #[inline]
    fn load(&self, word: usize) -> u32 {
        self.memory.load_u32(DoorbellPage::offset(word)).expect("the page lies in its memory")
    }

    fn clear(&mut self, word: usize) {
        assert!(self.memory.store_u32(DoorbellPage::offset(word), 0), "the page lies in its memory");
        self.seen[word] = 0;
    }

    /// Another controller comes, after a power cut.
    pub(crate) fn forget(&mut self) {
        self.resets = None;
    }

    /// The controller has been reset: nothing that was rung before counts.
    #[cold]
    fn start_anew(&mut self, resets: u32, queues: Queues) {
        (0..WORDS).for_each(|word| self.clear(word));
        self.resets = Some(resets);
        self.take_queues(queues);
    }

    fn take_queues(&mut self, queues: Queues) {
        self.queues = queues;
        let words = (0..WORDS as u16).filter(|word| *word < 2 || queues.has(word / 2, word % 2 == 1));
        self.polled = words.collect();
    }

    /// An admin command has ended: there may be other queues, and their doorbells may have shadows now.
    #[cold]
    pub(crate) fn look_at_queues(&mut self, resets: u32, queues: Queues) {
        if self.resets != Some(resets) {
            return; // The next look clears all.
        }
        if self.queues == queues {
            return;
        }
        for word in 2..WORDS {
            let (queue, completion) = (word as u16 / 2, word % 2 == 1);
            let (before, after) = (self.queues.has(queue, completion), queues.has(queue, completion));
            if before != after {
                self.clear(word);
            }
            // One that has rung just now is seen by the next look.
            if after && queues.shadowed && (!self.queues.shadowed || !before) {
                let _ = self.memory.replace_u32(DoorbellPage::offset(word), self.seen[word], PUT_BACK);
                self.seen[word] = PUT_BACK;
            }
        }
        self.take_queues(queues);
    }

    /// The value of a word, if it is new.
    #[inline]
    fn news(&self, word: usize) -> Option<u32> {
        let value = self.load(word);
        (value != self.seen[word]).then_some(value)
    }

    /// A new value has been taken.
    #[inline]
    fn taken(&mut self, word: usize, value: u32) {
        if self.queues.shadowed && word >= 2 && self.queues.has(word as u16 / 2, word % 2 == 1) {
            // Where the host has rung again in between, the next look sees that.
            let _ = self.memory.replace_u32(DoorbellPage::offset(word), value, PUT_BACK);
        } else {
            self.seen[word] = value;
        }
    }

    /// Takes the new words, and returns whether there were any: `rung` gets the offset of each in BAR0 and its value,
    /// unless `has_message` says that it may have been rung behind a message that is not yet handled.
    #[inline]
    pub(crate) fn take_new(
        &mut self,
        firmware: &Firmware,
        function: u8,
        which: Which,
        has_message: impl Fn() -> bool,
        mut rung: impl FnMut(u32, u32),
    ) -> bool {
        let resets = firmware.subsystem.resets(function);
        if self.resets != Some(resets) {
            self.start_anew(resets, firmware.subsystem.queues(function));
        }
        let mut changed = false;
        let count = if which == Which::Polled { self.polled.len() } else { WORDS };
        for at in 0..count {
            let word = if which == Which::Polled { usize::from(self.polled[at]) } else { at };
            let Some(value) = self.news(word) else { continue };
            if has_message() {
                break;
            }
            self.taken(word, value);
            changed = true;
            rung(DOORBELLS + 4 * word as u32, value);
        }
        changed
    }

    /// Whether a polled word has changed.
    #[inline]
    pub(crate) fn has_rung(&self) -> bool {
        self.polled.iter().any(|word| self.news(usize::from(*word)).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_becomes_longer_by_an_eighth_and_by_two_milliseconds_at_most() {
        let us = Duration::from_micros;
        for (idle, expected) in [(0, 20), (50, 20), (800, 100), (8_000, 1_000), (16_000, 2_000), (60_000_000, 2_000)] {
            assert_eq!(nap(us(idle)), us(expected), "{idle} us");
        }
    }
}
