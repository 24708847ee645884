//! A medium that records its changes, for the payload store.

use crate::{Block, Config, Failed, Medium, Nand, Origin, Page, PageHeader, Read, Stamp};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;
use tidewater_base::Instant;

/// Something that has happened to the flash.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A page was programmed.
    Program {
        /// The block.
        at: Block,
        /// The page of the block.
        page: u32,
        /// Its header.
        header: PageHeader,
        /// Its units in [`Changes::units`], filler included.
        units: Range<u32>,
        /// The firmware's own data.
        own_payload: Option<Arc<[u32]>>,
    },
    /// A program failed: the page can't be read, and the block is bad from now on. The planes of one row share
    /// `header`'s `program_sequence`, and are recorded one after another.
    Failed {
        /// The block.
        at: Block,
        /// The page of the block.
        page: u32,
        /// The header that it would have had.
        header: PageHeader,
    },
    /// The power failed while a page was programmed: it can't be read.
    TornProgram {
        /// The block.
        at: Block,
        /// The page of the block.
        page: u32,
    },
    /// A block was erased.
    Erase {
        /// The block.
        at: Block,
        /// Times it was erased, with this one.
        erases: u32,
        /// The erase failed: the block is bad from now on.
        failed: bool,
    },
    /// The power failed while a block was erased: none of its pages can be read, and it must be erased again.
    TornErase {
        /// The block.
        at: Block,
    },
    /// The wear of a block was set.
    Wear {
        /// The block.
        at: Block,
        /// Times it was erased.
        erases: u32,
    },
}

/// A unit that was programmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredUnit {
    /// The logical page; [`Nand::NO_LPN`] for filler.
    pub lpn: u32,
    /// The version of its content.
    pub version: u64,
    /// The order of its host write.
    pub sequence: u64,
    /// Where it was copied from; `None`: the host or the log wrote it.
    pub origin: Origin,
}

/// Changes in the order in which they happened. Kept and handed in again, it needs no memory anew.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The changes.
    pub list: Vec<Change>,
    /// The units of programmed pages.
    pub units: Vec<StoredUnit>,
}

impl Changes {
    /// Whether nothing has happened.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Forgets them, and keeps the memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.units.clear();
    }
}

/// A medium whose changes are recorded for its owner.
///
/// A clone is a copy of the flash, not of the queue to the payload store: it has nothing queued, and records
/// nothing. So a device can be cloned to try something out, and what the clone does never reaches the store of the
/// original.
#[derive(Debug)]
pub struct Recorder<M> {
    inner: M,
    /// `None`: a clone.
    changes: Option<RefCell<Changes>>,
}

impl<M: Clone> Clone for Recorder<M> {
    fn clone(&self) -> Recorder<M> {
        Recorder { inner: self.inner.clone(), changes: None }
    }
}

impl<M: Medium> Recorder<M> {
    /// Wraps `inner`.
    pub fn new(inner: M) -> Recorder<M> {
        Recorder { inner, changes: Some(RefCell::default()) }
    }

    /// The medium below.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// Whether something has happened since the last [`Recorder::take_changes`].
    #[inline]
    pub fn has_changes(&self) -> bool {
        self.changes.as_ref().is_some_and(|changes| !changes.borrow().list.is_empty())
    }

    /// Takes what has happened since the last call; what `into` held is forgotten.
    #[inline]
    pub fn take_changes(&self, into: &mut Changes) {
        into.clear();
        if let Some(changes) = &self.changes {
            std::mem::swap(&mut *changes.borrow_mut(), into);
        }
    }

    fn record(&mut self, change: Change) {
        if let Some(changes) = &mut self.changes {
            changes.get_mut().list.push(change);
        }
    }

    fn record_program(&mut self, at: Block, page: u32, content: &Page<'_>) {
        let Some(changes) = &mut self.changes else { return };
        let changes = changes.get_mut();
        let first = changes.units.len() as u32;
        changes.units.extend(content.lpns.iter().enumerate().map(|(i, &lpn)| {
            let (version, sequence) = content.stamps.get(i).copied().unwrap_or((0, 0));
            let origin = content.origins.get(i).copied().filter(|_| lpn != Nand::NO_LPN).unwrap_or_default();
            StoredUnit { lpn, version, sequence, origin }
        }));
        let units = first..changes.units.len() as u32;
        let own_payload = content.own_payload.clone();
        changes.list.push(Change::Program { at, page, header: content.header, units, own_payload });
    }
}

impl<M: Medium> Medium for Recorder<M> {
    fn config(&self) -> &Config {
        self.inner.config()
    }

    fn program(&mut self, at: Block, page: u32, content: &Page<'_>) -> Result<(), Failed> {
        let result = self.inner.program(at, page, content);
        match result {
            Ok(()) => self.record_program(at, page, content),
            Err(Failed) => self.record(Change::Failed { at, page, header: content.header }),
        }
        result
    }

    fn preset(&mut self, at: Block, page: u32, content: &Page<'_>) {
        self.inner.preset(at, page, content);
        self.record_program(at, page, content);
    }

    fn read(&mut self, at: Block, page: u32) -> Read {
        self.inner.read(at, page)
    }

    #[inline]
    fn set_time(&mut self, now: Instant) {
        self.inner.set_time(now);
    }

    fn reads_cleanly(&self) -> bool {
        self.inner.reads_cleanly()
    }

    fn erase(&mut self, at: Block) -> Result<(), Failed> {
        let result = self.inner.erase(at);
        self.record(Change::Erase { at, erases: self.inner.erase_count(at), failed: result.is_err() });
        result
    }

    fn tear_program(&mut self, at: Block, page: u32) {
        self.inner.tear_program(at, page);
        self.record(Change::TornProgram { at, page });
    }

    fn tear_erase(&mut self, at: Block) {
        self.inner.tear_erase(at);
        self.record(Change::TornErase { at });
    }

    fn lpn(&self, at: Block, page: u32, unit: u32) -> u32 {
        self.inner.lpn(at, page, unit)
    }

    fn lpns(&self, at: Block, page: u32) -> &[u32] {
        self.inner.lpns(at, page)
    }

    fn stamp(&self, at: Block, page: u32, unit: u32) -> Option<Stamp> {
        self.inner.stamp(at, page, unit)
    }

    fn header(&self, at: Block, page: u32) -> Option<PageHeader> {
        self.inner.header(at, page)
    }

    fn own_payload(&self, at: Block, page: u32) -> Option<Arc<[u32]>> {
        self.inner.own_payload(at, page)
    }

    fn programmed(&self, at: Block) -> u32 {
        self.inner.programmed(at)
    }

    fn erase_count(&self, at: Block) -> u32 {
        self.inner.erase_count(at)
    }

    fn is_bad(&self, at: Block) -> bool {
        self.inner.is_bad(at)
    }

    fn is_factory_bad(&self, at: Block) -> bool {
        self.inner.is_factory_bad(at)
    }

    fn is_torn(&self, at: Block) -> bool {
        self.inner.is_torn(at)
    }

    fn set_erase_count(&mut self, at: Block, erases: u32) {
        self.inner.set_erase_count(at, erases);
        self.record(Change::Wear { at, erases });
    }
}
