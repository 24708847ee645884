//! The payload of a served drive: what commands stage, what waits to be programmed, and what is in the image.
//!
//! The firmware says which version of which unit is where; the bytes are here. The driver of the firmware must do two
//! things in this order each time it has something to say, before anything else happens to it: hand over what has
//! changed on flash ([`Payload::apply`]), then carry out its outputs, one after the other ([`Payload::taken`],
//! [`Payload::read`]). Versions must never come again, not after a restart either, and begin above [`PAST`].

use super::pool::{Held, Pool, Table};
use super::store::Image;
use std::collections::VecDeque;
use tidewater_core::content::{PAST, Whereabouts};
use tidewater_core::subsystem::{MoveError, Slot, StoreFault, Unit};
use tidewater_nand::{Change, Changes, Nand, Origin, PageHeader, PageKind, Place, StoredUnit};
use tidewater_wire::vendor;

/// Leftovers of which there must be at least as many before anybody looks for them.
const SWEEP_MIN: usize = 4_096;

/// The payload store.
#[derive(Debug)]
pub struct Payload {
    image: Image,
    unit_size: usize,
    transfer_max: usize,
    staging: Vec<u8>,
    pool: Pool,
    /// Units held when a sweep is worth it.
    sweep_at: usize,
    /// A page on its way to the image.
    page: Vec<u8>,
    /// A page on its way from there.
    room: Vec<u8>,
    /// A unit that is written in part.
    composed: Vec<u8>,
    /// The bit that is wrong in the bytes that are read next, and those bytes.
    flip: Option<u64>,
    flipped: Vec<u8>,
    /// What was programmed since the image failed, by its place.
    stranded: Table<u64, Held>,
    /// Versions of the row that is being reported: they leave the pool if none of its pages fails.
    row: Vec<(u32, u64)>,
    row_sequence: Option<u64>,
    row_failed: bool,
    /// Commands that wait for a sync, and which.
    syncing: VecDeque<(Option<u64>, Slot)>,
}

impl Payload {
    /// A payload store over an image, with a staging area of `transfer_max` bytes for each of `slots` commands.
    ///
    /// # Panics
    /// When the image's unit is not `unit_size` bytes.
    pub fn new(image: Image, slots: u16, transfer_max: u32, unit_size: u32) -> Payload {
        assert_eq!(image.unit_size(), unit_size, "the image and the drive agree on the unit");
        let transfer_max = transfer_max as usize;
        Payload {
            unit_size: unit_size as usize,
            transfer_max,
            // Zeroed pages come from the system, and only when they are touched.
            staging: vec![0; usize::from(slots) * transfer_max],
            pool: Pool::new(unit_size as usize),
            sweep_at: SWEEP_MIN,
            page: vec![0; image.page_size() as usize],
            room: vec![0; image.page_size() as usize],
            composed: vec![0; unit_size as usize],
            flip: None,
            flipped: Vec::new(),
            stranded: Table::default(),
            row: Vec::new(),
            row_sequence: None,
            row_failed: false,
            syncing: VecDeque::new(),
            image,
        }
    }

    /// The staging area of a command: what it brought from the host goes here.
    #[inline]
    pub fn staging(&mut self, slot: Slot) -> &mut [u8] {
        let at = usize::from(slot.0) * self.transfer_max;
        &mut self.staging[at..at + self.transfer_max]
    }

    /// As [`Payload::staging`], to look at.
    #[inline]
    pub fn staged(&self, slot: Slot) -> &[u8] {
        let at = usize::from(slot.0) * self.transfer_max;
        &self.staging[at..at + self.transfer_max]
    }

    /// The image.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// The image, for metadata.
    pub fn image_mut(&mut self) -> &mut Image {
        &mut self.image
    }

    /// Units held in memory.
    pub fn held(&self) -> usize {
        self.pool.len() + self.stranded.len()
    }

    /// A unit that a command writes counts from now on (`Output::Taken`): staged bytes, or zeroes, over what it held.
    pub fn taken(&mut self, slot: Slot, unit: Unit, version: u64, zeroes: bool, previous: Whereabouts) {
        let Unit { lpn, skip, len, at } = unit;
        let (skip, len, at) = (skip as usize, len as usize, at as usize);
        let held = self.room_for(lpn, previous, len == self.unit_size);
        let into = &mut self.pool.bytes_mut(held.buffer)[skip..skip + len];
        if zeroes {
            into.fill(0);
        } else {
            let from = usize::from(slot.0) * self.transfer_max + at;
            into.copy_from_slice(&self.staging[from..from + len]);
        }
        self.pool.hold((lpn, version), held);
    }

    /// As [`Payload::taken`], but the bytes are lost: the unit keeps those that it had.
    #[cold]
    pub fn lost(&mut self, unit: Unit, version: u64, previous: Whereabouts) {
        let held = self.room_for(unit.lpn, previous, false);
        self.pool.hold((unit.lpn, version), held);
    }

    /// Memory for a unit that is written. Unless that is whole, it has what the unit held.
    fn room_for(&mut self, lpn: u32, previous: Whereabouts, is_whole: bool) -> Held {
        // What was superseded in the write buffer never goes to flash; what is on its way there does, and stays until
        // then.
        let reused = match previous {
            Whereabouts::Buffered { version: old } => self.pool.remove((lpn, old)),
            _ => None,
        };
        match reused {
            Some(held) => Held { poisoned: held.poisoned && !is_whole, ..held },
            None => {
                let buffer = self.pool.take();
                let poisoned = !is_whole && !self.compose(lpn, previous, buffer);
                Held::new(buffer, poisoned)
            }
        }
    }

    /// Puts into a buffer what a unit held before it is written in part. False: it can't be read.
    fn compose(&mut self, lpn: u32, previous: Whereabouts, buffer: u32) -> bool {
        let whole = Unit { lpn, skip: 0, len: self.unit_size as u32, at: 0 };
        // Out of the pool for a while: what it is composed of may be there too.
        let mut composed = std::mem::take(&mut self.composed);
        let is_good = self.read(whole, previous, &mut composed).is_ok();
        self.pool.bytes_mut(buffer).copy_from_slice(&composed);
        self.composed = composed;
        is_good
    }

    /// Keeps a page of the fast side's log until it is programmed (`Output::StoreLog`). What its header and `bytes`
    /// leave of the unit is zeroes.
    ///
    /// # Panics
    /// When they are more than a unit.
    pub fn keep_log(&mut self, lpn: u32, header: &vendor::PageHeader, bytes: &[u8]) {
        let version = header.stamp().pack();
        // A log that was cut may come by the same place again before it is programmed there: the newer bytes count.
        let is_held = self.pool.add_program((lpn, version));
        let buffer = if is_held { self.pool.get((lpn, version)).map(|held| held.buffer) } else { None };
        let buffer = buffer.unwrap_or_else(|| self.pool.take());
        let into = self.pool.bytes_mut(buffer);
        let (head, rest) = into.split_at_mut(vendor::PageHeader::SIZE);
        head.copy_from_slice(&header.to_bytes());
        rest[..bytes.len()].copy_from_slice(bytes);
        rest[bytes.len()..].fill(0);
        if !is_held {
            self.pool.hold((lpn, version), Held::new(buffer, false));
        }
    }

    /// Keeps a page of the byte window until it is programmed (`Output::StoreWindow`).
    ///
    /// # Panics
    /// When it is not a unit.
    pub fn keep_window(&mut self, lpn: u32, version: u64, bytes: &[u8]) {
        let buffer = self.pool.take();
        self.pool.bytes_mut(buffer).copy_from_slice(bytes);
        self.pool.hold((lpn, version), Held::new(buffer, false));
    }

    /// As [`Payload::bytes`], copied.
    ///
    /// # Errors
    /// [`MoveError::Medium`], when it is lost or can't be read.
    #[inline]
    pub fn read(&mut self, unit: Unit, place: Whereabouts, into: &mut [u8]) -> Result<(), MoveError> {
        into.copy_from_slice(self.bytes(unit, place)?);
        Ok(())
    }

    /// Compares part of a unit with what a command has staged.
    ///
    /// # Errors
    /// [`MoveError::Differs`], [`MoveError::Medium`].
    pub fn compare(&mut self, slot: Slot, unit: Unit, place: Whereabouts) -> Result<(), MoveError> {
        let from = usize::from(slot.0) * self.transfer_max + unit.at as usize;
        let staging = std::mem::take(&mut self.staging);
        let is_same = self.bytes(unit, place).map(|bytes| *bytes == staging[from..from + bytes.len()]);
        self.staging = staging;
        if is_same? { Ok(()) } else { Err(MoveError::Differs) }
    }

    /// A bit is wrong in the bytes that [`Payload::bytes`] is asked for next; `None`: none is.
    #[inline]
    pub fn flip(&mut self, bit: Option<u64>) {
        self.flip = bit;
    }

    /// Part of a unit, or of units that follow each other, from where they are: `unit.len` bytes from byte `unit.skip`
    /// on.
    ///
    /// # Errors
    /// [`MoveError::Medium`], when it is lost or can't be read.
    #[inline]
    pub fn bytes(&mut self, unit: Unit, place: Whereabouts) -> Result<&[u8], MoveError> {
        if let Some(bit) = self.flip.take() {
            return self.flipped(bit, unit, place);
        }
        let Unit { lpn, skip, len, .. } = unit;
        let (skip, len) = (skip as usize, len as usize);
        let whole = match place {
            Whereabouts::Flash { at, page, unit, .. } => {
                // The checksum is over whole units.
                let units = (skip + len).div_ceil(self.unit_size);
                self.stored(Place { at, page, unit }, units)?
            }
            Whereabouts::Buffered { version } | Whereabouts::Staged { version } => {
                let held = self.pool.get((lpn, version)).expect("what is not on flash is in the pool");
                if held.poisoned {
                    return Err(MoveError::Medium);
                }
                self.pool.bytes(held.buffer)
            }
            Whereabouts::Zeroes => {
                self.room[..self.unit_size].fill(0);
                &self.room
            }
            // What a host has lent is not of the image: its reader has the bytes.
            Whereabouts::Lost | Whereabouts::Host { .. } => return Err(MoveError::Medium),
        };
        Ok(&whole[skip..skip + len])
    }

    #[cold]
    fn flipped(&mut self, bit: u64, unit: Unit, place: Whereabouts) -> Result<&[u8], MoveError> {
        let mut bytes = std::mem::take(&mut self.flipped);
        bytes.clear();
        let read = self.bytes(unit, place).map(|right| bytes.extend_from_slice(right));
        if let Some(byte) = bytes.get_mut(bit as usize / 8) {
            *byte ^= 1 << (bit % 8);
        }
        self.flipped = bytes;
        read.map(|()| self.flipped.as_slice())
    }

    /// The bytes of units that follow each other on a page of flash.
    #[inline]
    fn stored(&mut self, first: Place, units: usize) -> Result<&[u8], MoveError> {
        let room = &mut self.room[..units * self.unit_size];
        if self.stranded.is_empty() {
            return self.image.read_units(first, room);
        }
        let number = self.image.unit(first);
        for (i, into) in room.chunks_exact_mut(self.unit_size).enumerate() {
            match self.stranded.get(&(number + i as u64)) {
                Some(held) if held.poisoned => return Err(MoveError::Medium),
                Some(held) => into.copy_from_slice(self.pool.bytes(held.buffer)),
                None => self.image.copy_units(Place { unit: first.unit + i as u32, ..first }, into)?,
            }
        }
        Ok(room)
    }

    /// Stores what has changed on flash. What can't be stored stays readable until the process ends, and the image
    /// stays as it was.
    ///
    /// # Errors
    /// [`StoreFault`]: now or before; the drive must go read-only.
    pub fn apply(&mut self, changes: &Changes) -> Result<(), StoreFault> {
        for change in &changes.list {
            match change {
                &Change::Program { at, page, header, ref units, ref own_payload } => {
                    if header.kind == PageKind::Data {
                        let units = &changes.units[units.start as usize..units.end as usize];
                        self.program(Place { at, page, unit: 0 }, header, units);
                    } else {
                        // A page of the firmware's own that is not stored is one that a crash has torn.
                        let _ = self.image.program_own(at, page, header, own_payload.clone());
                    }
                }
                &Change::Failed { at, header, .. } => {
                    self.begin_row(header.program_sequence);
                    self.row_failed = true;
                    let _ = self.image.set_block(at, None, super::format::GROWN_BAD);
                }
                // Its record is of an earlier generation, or none: so it reads as torn.
                Change::TornProgram { .. } => {}
                // The block stays as it was, until it is erased again.
                Change::TornErase { .. } => {}
                &Change::Erase { at, erases, failed } => {
                    self.end_row();
                    self.forget_stranded(at);
                    let _ = self.image.erase(at, erases);
                    if failed {
                        let _ = self.image.set_block(at, None, super::format::GROWN_BAD);
                    }
                }
                &Change::Wear { at, erases } => {
                    let _ = self.image.set_block(at, Some(erases), 0);
                }
            }
        }
        self.end_row();
        self.image.advance()
    }

    fn begin_row(&mut self, sequence: u64) {
        if self.row_sequence != Some(sequence) {
            self.end_row();
            self.row_sequence = Some(sequence);
        }
    }

    /// All pages of a row have been reported. If one of them failed, the whole row is programmed again elsewhere.
    fn end_row(&mut self) {
        let failed = std::mem::take(&mut self.row_failed);
        for key in self.row.drain(..) {
            if !failed {
                self.pool.programmed(key);
            }
        }
        self.row_sequence = None;
    }

    fn program(&mut self, first: Place, header: PageHeader, units: &[StoredUnit]) {
        self.begin_row(header.program_sequence);
        let mut page = std::mem::take(&mut self.page);
        let mut poisoned = 0u64;
        for (i, (unit, into)) in units.iter().zip(page.chunks_exact_mut(self.unit_size)).enumerate() {
            let StoredUnit { lpn, version, origin, .. } = *unit;
            if lpn == Nand::NO_LPN {
                into.fill(0);
                continue;
            }
            let is_good = match (origin, self.pool.get((lpn, version))) {
                (Origin::Copy(source), _) => {
                    self.image.count_copied();
                    self.stored(source, 1).map(|bytes| into.copy_from_slice(bytes)).is_ok()
                }
                (Origin::Memory | Origin::Shared, Some(held)) => {
                    into.copy_from_slice(self.pool.bytes(held.buffer));
                    if origin == Origin::Memory {
                        self.row.push((lpn, version));
                    }
                    !held.poisoned
                }
                (Origin::Memory | Origin::Shared, None) => {
                    // What was there before anybody wrote has no bytes.
                    assert_eq!(
                        version, PAST,
                        "version {version} of unit {lpn} was programmed, but its bytes are missing"
                    );
                    into.fill(0);
                    true
                }
            };
            poisoned |= u64::from(!is_good) << i;
        }
        if self.image.program(first.at, first.page, header, units, &page, poisoned).is_err() {
            self.strand(first, units, &page, poisoned);
        }
        self.page = page;
    }

    /// The image takes nothing any more: what is on flash for the firmware is kept in memory.
    fn strand(&mut self, first: Place, units: &[StoredUnit], page: &[u8], poisoned: u64) {
        for (i, bytes) in page.chunks_exact(self.unit_size).enumerate() {
            if units[i].lpn == Nand::NO_LPN {
                continue;
            }
            let buffer = self.pool.take();
            self.pool.bytes_mut(buffer).copy_from_slice(bytes);
            let number = self.image.unit(Place { unit: i as u32, ..first });
            let old = self.stranded.insert(number, Held::new(buffer, poisoned >> i & 1 == 1));
            if let Some(old) = old {
                self.pool.give_back(old.buffer);
            }
        }
    }

    fn forget_stranded(&mut self, at: tidewater_nand::Block) {
        if self.stranded.is_empty() {
            return;
        }
        let first = self.image.unit(Place { at, page: 0, unit: 0 });
        let units = u64::from(self.image.geometry.pages_per_block) * u64::from(self.image.geometry.units_per_page());
        let pool = &mut self.pool;
        self.stranded.retain(|number, held| {
            let is_gone = (first..first + units).contains(number);
            if is_gone {
                pool.give_back(held.buffer);
            }
            !is_gone
        });
    }

    /// Whether so much is held that leftovers are worth looking for: then [`Payload::sweep`] is due, once all outputs
    /// of the firmware are carried out (one of them may still need what it supersedes).
    pub fn needs_sweep(&self) -> bool {
        self.pool.len() >= self.sweep_at
    }

    /// Forgets every version that is not in the controller's memory any more (`Device::unprogrammed`): deallocated
    /// units are not reported one by one.
    pub fn sweep(&mut self, unprogrammed: impl IntoIterator<Item = (u32, u64)>) {
        let mut live: Vec<(u32, u64)> = unprogrammed.into_iter().collect();
        live.sort_unstable();
        self.pool.retain(|key| live.binary_search(&key).is_ok());
        self.sweep_at = SWEEP_MIN.max(2 * self.pool.len());
    }

    /// The power has failed inside of a process that goes on: what is not on flash is gone, and what is there is made
    /// safe, checkpoints that waited included. The firmware comes back from what is on flash, and takes all of it for
    /// durable.
    ///
    /// # Errors
    /// [`StoreFault`].
    pub fn power_lost(&mut self) -> Result<(), StoreFault> {
        self.end_row();
        self.pool.retain(|_| false);
        self.syncing.clear();
        self.image.sync()
    }

    /// Asks that all that was stored so far be made safe (`Output::Sync`); [`Payload::take_synced`] tells when it is.
    pub fn request_sync(&mut self, slot: Slot) {
        // A failed sync is reported at once.
        let number = self.image.request_sync().ok();
        self.syncing.push_back((number, slot));
    }

    /// Takes a command whose sync has ended.
    pub fn take_synced(&mut self) -> Option<(Slot, Result<(), StoreFault>)> {
        let &(number, _) = self.syncing.front()?;
        let advanced = self.image.advance();
        let result = match number {
            // A sync that ended before the image failed was good.
            Some(number) if number <= self.image.synced() => Ok(()),
            Some(_) if advanced.is_ok() => return None,
            _ => Err(StoreFault),
        };
        self.syncing.pop_front().map(|(_, slot)| (slot, result))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::{ImageOptions, Target};
    use tidewater_core::Options;
    use tidewater_core::profile::builtin;
    use tidewater_nand::Block;

    const UNIT: u32 = 4_096;

    fn payload() -> Payload {
        let profile = builtin("tiny").expect("it is built in");
        let made = Image::create(Target::Memory, &profile, Options::default(), ImageOptions::default(), |nand| nand);
        Payload::new(made.expect("it fits").image, 2, 2 * UNIT, UNIT)
    }

    fn unit(skip: u32, len: u32, at: u32) -> Unit {
        Unit { lpn: 3, skip, len, at }
    }

    /// A page with unit 3 in this version, programmed at page `page` of the first block.
    fn programmed(page: u32, version: u64) -> Changes {
        let at = Block { die: 0, plane: 0, block: 0 };
        let header = PageHeader { kind: PageKind::Data, program_sequence: page.into(), superblock: 0, index: 0 };
        let filler = StoredUnit { lpn: Nand::NO_LPN, version: 0, sequence: 0, origin: Origin::Memory };
        let list = vec![Change::Program { at, page, header, units: 0..2, own_payload: None }];
        Changes { list, units: vec![StoredUnit { lpn: 3, version, ..filler }, filler] }
    }

    fn on_flash(page: u32, version: u64) -> Whereabouts {
        Whereabouts::Flash { version, at: Block { die: 0, plane: 0, block: 0 }, page, unit: 0 }
    }

    #[test]
    fn parts_are_laid_over_what_was_there_wherever_that_is() {
        let mut payload = payload();
        payload.staging(Slot(0)).fill(1);
        payload.staging(Slot(1)).fill(2);
        payload.taken(Slot(0), unit(512, 1_024, 600), 5, false, Whereabouts::Zeroes);
        payload.taken(Slot(1), unit(1_024, 1_024, 0), 6, false, Whereabouts::Staged { version: 5 });
        assert_eq!(payload.held(), 2, "what is on its way to flash stays");
        payload.apply(&programmed(0, 6)).unwrap();
        payload.taken(Slot(0), unit(4_000, 96, 0), 7, false, on_flash(0, 6));
        payload.taken(Slot(0), unit(0, 600, 0), 8, true, Whereabouts::Buffered { version: 7 });
        assert_eq!(payload.held(), 2, "what was superseded in the buffer is gone");
        let mut all = vec![9; UNIT as usize];
        payload.read(unit(0, UNIT, 0), Whereabouts::Buffered { version: 8 }, &mut all).unwrap();
        let expected = [(0, 600), (1, 424), (2, 1_024), (0, 1_952), (1, 96)];
        assert_eq!(all, expected.into_iter().flat_map(|(byte, n)| vec![byte; n]).collect::<Vec<u8>>());
        assert_eq!(payload.compare(Slot(1), unit(1_100, 900, 50), on_flash(0, 6)), Ok(()));
        assert_eq!(payload.compare(Slot(1), unit(1_000, 900, 50), on_flash(0, 6)), Err(MoveError::Differs));
        assert_eq!(payload.read(unit(0, UNIT, 0), Whereabouts::Lost, &mut all), Err(MoveError::Medium));
        payload.sweep([(3, 8)]);
        assert_eq!(payload.held(), 1);
        payload.power_lost().unwrap();
        assert_eq!(payload.held(), 0);
    }

    #[test]
    fn a_log_page_that_comes_twice_is_there_for_both_programs() {
        let mut payload = payload();
        let header = vendor::PageHeader { valid: 50, ..Default::default() };
        let version = header.stamp().pack();
        payload.keep_log(3, &header, &[1; 50]);
        payload.keep_log(3, &header, &[2; 50]);
        for page in 0..2 {
            payload.apply(&programmed(page, version)).unwrap();
            let mut bytes = [9; 124];
            payload.read(unit(0, 124, 0), on_flash(page, version), &mut bytes).unwrap();
            assert_eq!(vendor::PageHeader::parse(&bytes), Ok(header));
            assert_eq!((bytes[64..114].to_vec(), bytes[114..].to_vec()), (vec![2; 50], vec![0; 10]));
        }
        assert_eq!(payload.held(), 0);
    }
}
