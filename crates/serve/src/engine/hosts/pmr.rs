//! The persistent memory region of a function: shared memory that a host stores into, and its place in the image.
//!
//! Stores are persistent when the host has read PMRSTS behind them (NVM Express 1.4, section 3.1.18, PMRWBM): then what
//! has changed goes to the image, and the image is synced. Without that read nothing is promised, and a power cut takes
//! it away.

use crate::image::{Image, Memory};
use std::cell::RefCell;
use std::sync::Arc;
use tidewater_core::subsystem::StoreFault;
use tidewater_ipc::SharedMemory;

/// What is stored, is stored in whole pages of so many bytes.
const PAGE: u64 = 4096;

/// Pages of the region that may differ from what the image holds.
#[derive(Debug)]
enum Changed {
    /// A bit for each page: every store comes by the engine.
    Bits(Vec<u64>),
    /// All of it as it is stored: a client that maps the region stores unseen. (A checksum of each page would not do:
    /// that of a page which ends in its own is always the same.)
    Stored(Box<[u8]>),
}

/// A persistent memory region.
#[derive(Debug)]
pub struct Pmr {
    memory: Arc<SharedMemory>,
    /// Its place in the image.
    place: Memory,
    bytes: u64,
    /// What is to be stored by the next barrier: only the engine's thread is here.
    changed: RefCell<Changed>,
}

impl Pmr {
    /// A region of `bytes` whose place is known; `mapped`: hosts store into it unseen. It holds what the image has.
    ///
    /// # Errors
    /// [`StoreFault`]: it can't be read.
    pub fn load(
        memory: Arc<SharedMemory>,
        bytes: u64,
        mapped: bool,
        image: &Image,
        place: Memory,
    ) -> Result<Pmr, StoreFault> {
        let pages = bytes.div_ceil(PAGE) as usize;
        let changed = match mapped {
            true => Changed::Stored(vec![0; pages * PAGE as usize].into_boxed_slice()),
            false => Changed::Bits(vec![0; pages.div_ceil(64)]),
        };
        let pmr = Pmr { memory, place, bytes, changed: RefCell::new(changed) };
        let mut page = [0; PAGE as usize];
        for number in 0..pages {
            image.read_memory(place, number as u64 * PAGE, &mut page)?;
            let stored = pmr.memory.write(number as u64 * PAGE, &page);
            assert!(stored, "the region has as many bytes as its place");
            // Pages that were never stored into are not kept twice.
            if let Changed::Stored(stored) = &mut *pmr.changed.borrow_mut()
                && page != [0; PAGE as usize]
            {
                stored[number * PAGE as usize..][..PAGE as usize].copy_from_slice(&page);
            }
        }
        Ok(pmr)
    }

    fn mark(&self, offset: u64, len: usize) {
        if let Changed::Bits(bits) = &mut *self.changed.borrow_mut() {
            let end = offset.saturating_add(len.max(1) as u64).min(self.bytes);
            for page in offset.min(self.bytes) / PAGE..end.div_ceil(PAGE) {
                bits[page as usize / 64] |= 1 << (page % 64);
            }
        }
    }

    /// Copies bytes out. `false`: they are not all inside.
    #[must_use]
    pub fn read(&self, offset: u64, to: &mut [u8]) -> bool {
        self.memory.read(offset, to)
    }

    /// Copies bytes in. `false`: they are not all inside.
    #[must_use]
    pub fn write(&self, offset: u64, from: &[u8]) -> bool {
        self.mark(offset, from.len());
        self.memory.write(offset, from)
    }

    /// Stores 8 bytes, behind all that was stored before. `false`: not inside, or not aligned.
    #[must_use]
    pub fn store_u64(&self, offset: u64, value: u64) -> bool {
        self.mark(offset, 8);
        self.memory.store_u64(offset, value)
    }

    /// Writes to the image what has changed; true: something had. The next sync makes it safe.
    ///
    /// # Errors
    /// [`StoreFault`].
    pub fn store(&self, image: &mut Image) -> Result<bool, StoreFault> {
        let mut changed = self.changed.borrow_mut();
        let mut any = false;
        let mut page = [0; PAGE as usize];
        for number in 0..self.bytes.div_ceil(PAGE) {
            let at = number as usize;
            let offset = number * PAGE;
            match &mut *changed {
                Changed::Bits(bits) => {
                    if bits[at / 64] >> (at % 64) & 1 == 0 {
                        continue;
                    }
                    let read = self.memory.read(offset, &mut page);
                    debug_assert!(read);
                    image.write_memory(self.place, offset, &page)?;
                    bits[at / 64] &= !(1 << (at % 64));
                }
                Changed::Stored(stored) => {
                    // A client may store meanwhile: what is compared is what is written.
                    let read = self.memory.read(offset, &mut page);
                    debug_assert!(read);
                    let stored = &mut stored[offset as usize..][..PAGE as usize];
                    if *stored == page {
                        continue;
                    }
                    image.write_memory(self.place, offset, &page)?;
                    stored.copy_from_slice(&page);
                }
            }
            any = true;
        }
        Ok(any)
    }

    /// Nothing is left of what was stored into it, neither here nor in the image; the next sync makes that safe.
    ///
    /// # Errors
    /// [`StoreFault`].
    pub fn clear(&self, image: &mut Image) -> Result<(), StoreFault> {
        let filled = self.memory.fill(0, self.bytes, 0);
        debug_assert!(filled);
        self.mark(0, usize::try_from(self.bytes).map_err(|_| StoreFault)?);
        self.store(image).map(drop)
    }

    /// The power has failed: what no barrier has covered is gone.
    ///
    /// # Errors
    /// [`StoreFault`]: what was stored can't be read.
    pub fn power_lost(&self, image: &Image) -> Result<(), StoreFault> {
        let mut changed = self.changed.borrow_mut();
        let (mut page, mut stored) = ([0; PAGE as usize], [0; PAGE as usize]);
        for number in 0..self.bytes.div_ceil(PAGE) {
            let is_good = image.read_memory(self.place, number * PAGE, &mut stored).is_ok()
                && self.memory.read(number * PAGE, &mut page);
            if !is_good {
                return Err(StoreFault);
            }
            if page != stored && !self.memory.write(number * PAGE, &stored) {
                return Err(StoreFault);
            }
        }
        if let Changed::Bits(bits) = &mut *changed {
            bits.fill(0);
        }
        Ok(())
    }
}
