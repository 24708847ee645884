//! What waits for a sync of the image, and the syncs themselves: who wants one, what it makes safe, and what is done
//! then.

use super::{Deferred, Image, NOTE_EVERY};
use crate::image::flaw::Flaw;
use crate::image::format;
use crate::image::format::Slot;
use crate::image::sync::SyncMode;
use std::io;
use std::os::fd::BorrowedFd;
use tidewater_core::subsystem::StoreFault;

impl Image {
    /// The epoch of what is written now: the number of the sync that makes it safe.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch + self.syncs.began() + 1
    }

    /// Puts something off until the sync has ended that begins next, or one `behind` it.
    pub(super) fn defer(&mut self, behind: u64, what: Deferred) {
        let last = self.deferred.back().map_or(0, |&(needs, _)| needs);
        let needs = last.max(self.syncs.began() + 1 + behind);
        self.deferred.push_back((needs, what));
    }

    /// Waits until a block that was erased may be written again.
    pub(super) fn free_for_reuse(&mut self, block: u32) -> Result<(), StoreFault> {
        if self.blocks[block as usize].waiting == 0 {
            return Ok(());
        }
        self.statistics.waits += 1;
        while self.blocks[block as usize].waiting > 0 {
            self.wanted = true;
            self.advance()?;
            self.wait()?;
        }
        Ok(())
    }

    /// Takes the result of a sync that has ended, does what waited for it, and begins the next if one is wanted.
    ///
    /// # Errors
    /// [`StoreFault`]: now or before.
    pub fn advance(&mut self) -> Result<(), StoreFault> {
        if let Some(result) = self.syncs.poll() {
            self.on_synced(result, 1)?;
        }
        if self.faulted {
            return Err(StoreFault);
        }
        if !self.syncs.is_running() && (self.wanted || self.deferred.len() >= self.deferred_max) {
            self.wanted = false;
            self.dirty = false;
            let syncing = self.storage.begin_sync();
            self.syncs.begin(syncing);
            if self.options.sync == SyncMode::Inline
                && let Some(result) = self.syncs.poll()
            {
                self.on_synced(result, 1)?;
            }
        }
        Ok(())
    }

    /// Waits for the sync that is under way, if one is.
    fn wait(&mut self) -> Result<(), StoreFault> {
        match self.syncs.wait() {
            Some(result) => self.on_synced(result, 1),
            None => Ok(()),
        }
    }

    /// `notes_after`: so many syncs are worth a note.
    fn on_synced(&mut self, result: io::Result<()>, notes_after: u64) -> Result<(), StoreFault> {
        self.note_sync(&result);
        self.fail(result)?;
        self.synced = self.syncs.began();
        self.statistics.syncs += 1;
        if self.synced >= self.noted + notes_after {
            self.noted = self.synced;
            self.write_state(self.epoch + self.synced)?;
        }
        self.do_deferred()
    }

    /// Does what has waited long enough, in the order in which it was put off.
    fn do_deferred(&mut self) -> Result<(), StoreFault> {
        let (mut reuses, mut wrote_own) = (Vec::new(), false);
        while let Some((needs, what)) = self.deferred.front()
            && *needs <= self.synced
        {
            let can_resume = match *what {
                // What was put off before it must be safe first.
                Deferred::Erase { .. } => !wrote_own,
                // The block that it goes to must be free for it.
                Deferred::Own { at, .. } => self.blocks[self.geometry.block(at) as usize].written == 0,
                Deferred::Reuse { .. } => true,
            };
            if !can_resume {
                break;
            }
            match self.deferred.pop_front() {
                Some((_, Deferred::Erase { block, erases })) => {
                    let used = self.write_erase(block, erases)?;
                    if self.options.flaw.is(Flaw::ReuseBeforeErase) {
                        self.allow_reuse(block, used)?;
                    } else {
                        reuses.push(Deferred::Reuse { block, used });
                    }
                }
                Some((_, Deferred::Own { at, page, header, row })) => {
                    self.deferred_own -= 1;
                    wrote_own = true;
                    self.write_own(at, page, header, row.as_ref())?;
                }
                Some((_, Deferred::Reuse { block, used })) => self.allow_reuse(block, used)?,
                None => {}
            }
        }
        // The next sync makes the new generations safe, and the pages that were written; what still waits, waits for
        // that.
        let needs = self.syncs.began() + 1;
        if (wrote_own || !reuses.is_empty())
            && let Some((first, _)) = self.deferred.front_mut()
        {
            *first = needs.max(*first);
        }
        for reuse in reuses.into_iter().rev() {
            self.deferred.push_front((needs, reuse));
        }
        Ok(())
    }

    /// Notes down up to which epoch all is safe. That note need not be safe itself: an older one only makes the next
    /// start look at more pages.
    pub(in crate::image) fn write_state(&mut self, epoch: u64) -> Result<(), StoreFault> {
        self.state_number += 1;
        let at = self.geometry.state_at() + self.state_number % 2 * format::STATE_SLOT;
        let content = epoch.to_le_bytes();
        let header = Slot::encode(self.salt, at, self.state_number, &content);
        let mut bytes = [0; Slot::HEADER + 8];
        bytes[..Slot::HEADER].copy_from_slice(&header);
        bytes[Slot::HEADER..].copy_from_slice(&content);
        let result = self.storage.write_at(at, &bytes);
        self.fail(result)
    }

    /// Asks that all that is stored so far be made safe. Returns the number of the sync that does: it is when
    /// [`Image::synced`] has reached it.
    ///
    /// # Errors
    /// [`StoreFault`].
    pub fn request_sync(&mut self) -> Result<u64, StoreFault> {
        if self.faulted {
            return Err(StoreFault);
        }
        if self.options.flaw.is(Flaw::NoFlush) {
            return Ok(self.synced);
        }
        if !self.dirty {
            return Ok(self.syncs.began()); // The one that is under way covers all, or it has ended already.
        }
        self.wanted = true;
        let number = self.syncs.began() + 1;
        self.advance()?;
        Ok(number)
    }

    /// The number of the sync that makes safe what is written now.
    pub(in crate::image) fn sync_to_come(&self) -> u64 {
        self.syncs.began() + 1
    }

    /// The number of the sync that makes safe what was written until now.
    pub(in crate::image) fn sync_that_covers(&self) -> u64 {
        self.syncs.began() + u64::from(self.dirty)
    }

    /// The number of the last sync that has ended.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// Whether a sync is under way or wanted: then [`Image::advance`] is to be called when one has ended.
    pub fn is_waiting(&self) -> bool {
        !self.faulted && (self.wanted || self.syncs.is_running())
    }

    /// Becomes readable when a sync has ended that another thread does.
    pub fn event(&self) -> Option<BorrowedFd<'_>> {
        self.syncs.event()
    }

    /// The waiter on [`Image::event`] is awake.
    pub fn hush(&self) {
        self.syncs.hush();
    }

    /// Makes everything safe, what was put off included.
    ///
    /// # Errors
    /// [`StoreFault`].
    pub fn sync(&mut self) -> Result<(), StoreFault> {
        self.wanted = true;
        while self.is_waiting() {
            self.advance()?;
            self.wait()?;
            self.wanted |= !self.deferred.is_empty();
        }
        if self.faulted { Err(StoreFault) } else { Ok(()) }
    }

    /// Makes safe what is written now, if anything, by this thread: a caller without other work need not be
    /// woken.
    ///
    /// # Errors
    /// [`StoreFault`].
    pub fn sync_here(&mut self) -> Result<(), StoreFault> {
        self.wait()?;
        if self.faulted {
            return Err(StoreFault);
        }
        if self.dirty {
            (self.wanted, self.dirty) = (false, false);
            let result = self.syncs.here(self.storage.begin_sync());
            self.on_synced(result, NOTE_EVERY)?;
        }
        Ok(())
    }

    /// Makes safe what is written now, and waits for it. What was put off may wait on.
    pub(in crate::image) fn sync_what_is_written(&mut self) -> Result<(), StoreFault> {
        let sync = self.sync_to_come();
        self.wanted = true;
        while self.synced < sync {
            self.advance()?;
            self.wait()?;
        }
        Ok(())
    }
}
