//! What the fast side has in memory that survives: control blocks, and what is in the rings and not on flash yet.
//!
//! A memory of each function has three slots for its control block, and two halves for its rings, of which a generation
//! of even number uses the first and one of odd number the second. Control blocks are written without a sync of their
//! own, so the newest that a sync has made safe keeps its slot, and so does the newest that the next one to end makes
//! safe. A ring is kept in sectors, each of which says which bytes of the stream it holds: it is written as a whole or
//! not at all, so what can be read of a ring is what was there at some moment, without a gap.
//!
//! A generation that begins with bytes in its rings syncs them before its first control block is written, and that
//! block before anything follows it. So a generation, once it has begun, always has a block that counts, and those of
//! generations before are of no use: a crash may have taken back what they say of pages, and numbers that they give to
//! pages were given again.

use super::ImageError;
use super::flaw::Flaw;
use super::format::MemoryKind;
use super::format::{LOG_CHUNK, LOG_HEADER, LOG_SECTOR, LogSector, Slot, u32_at};
use super::store::Image;
use super::stored_log::{BEFORE, BlockSlot, Place, SLOT, SLOTS, StoredLane, StoredLog, half_sectors, lane_sectors};
use tidewater_core::fast::{ControlBlock, Fast, Function, LogRemains, Setup};
use tidewater_core::profile::FastProfile;
use tidewater_core::subsystem::StoreFault;

/// Sectors that are written in one call, at most.
const BATCH: usize = 128;

/// Bytes that clients keep are stored as well once they fill such a part of the ring: what comes after them
/// needs the room.
const KEPT_PARTS: u64 = 4;

/// Sectors that are given their place on the disk at once.
const PREPARED: u64 = 2048;

impl Image {
    /// Makes or finds the memories of the fast side of a profile, and reads what is left of it, for each function the
    /// newest first.
    pub(super) fn open_logs(&mut self, fast: &FastProfile) -> Result<Vec<Vec<LogRemains>>, ImageError> {
        let functions = if fast.is_enabled() { fast.functions } else { 0 };
        let mut all = Vec::new();
        for function in 0..functions {
            let half = half_sectors(fast);
            let bytes = SLOTS * SLOT + 2 * half * LOG_SECTOR as u64;
            let memory = self.memory(MemoryKind::Log, function as u8, bytes)?;
            let mut log =
                StoredLog { memory, half, slots: [BlockSlot::OLD; _], number: 0, generation: 0, current: None };
            let mut found = Vec::new();
            for slot in 0..SLOTS {
                let at = memory.at() + slot * SLOT;
                let mut bytes = vec![0; SLOT as usize];
                self.storage.read_at(at, &mut bytes).map_err(|error| self.io("read a control block", error))?;
                let Some((number, content)) = Slot::decode(self.salt, at, &bytes) else { continue };
                log.slots[slot as usize].number = number;
                log.number = log.number.max(number);
                if content.len() < BEFORE {
                    continue;
                }
                let block = ControlBlock::from_bytes(&content[BEFORE..]).map_err(|error| {
                    let what = format!("what is left of the log of function {function} can't be used: {error}");
                    ImageError::Damaged { name: self.name.clone(), at, what }
                })?;
                found.push((number, u32_at(content, 0), block));
            }
            found.sort_by_key(|&(number, ..)| std::cmp::Reverse(number));
            // Neither half that may count is written before another control block is.
            log.generation = found.iter().map(|&(_, generation, _)| generation).max().unwrap_or(0);
            found.retain(|&(_, generation, _)| generation == log.generation);
            let mut remains = Vec::new();
            for (_, generation, block) in found {
                let rings = self.read_rings(&log, generation, &block)?;
                remains.push(LogRemains { block, rings });
            }
            self.logs.push(log);
            all.push(remains);
        }
        Ok(all)
    }

    /// What is in the rings from where each lane ends on flash.
    fn read_rings(&self, log: &StoredLog, generation: u32, block: &ControlBlock) -> Result<Vec<Vec<u8>>, ImageError> {
        let Setup { lanes, ring_size, .. } = *block.setup();
        let mut rings = Vec::new();
        if lane_sectors(ring_size).checked_mul(lanes.into()).is_none_or(|sectors| sectors > log.half) {
            return Ok(rings); // No ring of this drive: the block is refused where the drive is known.
        }
        for (lane, &end) in block.ends().iter().enumerate() {
            let place = log.place(generation, ring_size, lane);
            let mut ring = Vec::new();
            let mut sector = [0; LOG_SECTOR];
            while (ring.len() as u64) < ring_size {
                let from = end + ring.len() as u64;
                let at = place.sector(from);
                self.storage.read_at(at, &mut sector).map_err(|error| self.io("read a ring", error))?;
                let within = from % LOG_CHUNK as u64;
                let Some(LogSector { skip, len, .. }) = LogSector::decode(self.salt, at, &sector)
                    .filter(|found| (found.generation, found.offset) == (generation, from - within))
                else {
                    break;
                };
                if u64::from(skip) > within || u64::from(len) <= within {
                    break;
                }
                ring.extend_from_slice(&sector[LOG_HEADER..][within as usize..usize::from(len)]);
                if usize::from(len) < LOG_CHUNK {
                    break;
                }
            }
            ring.truncate(ring_size as usize);
            rings.push(ring);
        }
        Ok(rings)
    }

    /// Stores what has changed of the fast side, before it becomes visible: to be called when all that was done to
    /// flash is stored.
    ///
    /// `kept`: of a function's lane, whether its client keeps what it has beyond [`Image::stored_log`], and has it
    /// when this process ends. Such bytes may go straight to flash: a sector of the ring for each would be written for
    /// nothing. Who wants them in the image calls this again with nothing kept.
    ///
    /// # Errors
    /// [`StoreFault`]: now or before.
    #[inline]
    pub fn store_logs(&mut self, fast: &Fast, kept: impl Fn(usize, usize) -> bool) -> Result<(), StoreFault> {
        if self.logs.is_empty() { Ok(()) } else { self.store_each_log(fast, &kept) }
    }

    /// How far a lane of the fast side is in the image, on flash or as a ring. `None`: all that was found in it when it
    /// was opened, and nothing since.
    pub fn stored_log(&self, function: usize, lane: usize) -> Option<u64> {
        let (block, lanes) = self.logs.get(function)?.current.as_ref()?;
        Some(lanes.get(lane)?.until.max(*block.ends().get(lane)?))
    }

    fn store_each_log(&mut self, fast: &Fast, kept: &dyn Fn(usize, usize) -> bool) -> Result<(), StoreFault> {
        let mut logs = std::mem::take(&mut self.logs);
        let mut result = Ok(());
        for (function, log) in logs.iter_mut().enumerate() {
            let Some(of) = fast.function(function) else { continue };
            result = result.and_then(|()| self.store_log(log, of, fast, function, &|lane| kept(function, lane)));
        }
        self.logs = logs;
        result
    }

    fn store_log(
        &mut self,
        log: &mut StoredLog,
        of: &Function,
        fast: &Fast,
        function: usize,
        kept: &dyn Fn(usize) -> bool,
    ) -> Result<(), StoreFault> {
        let continues = |(block, lanes): &(ControlBlock, Vec<StoredLane>)| {
            block.setup() == of.setup()
                && lanes
                    .iter()
                    .zip(of.lanes())
                    .zip(block.ends())
                    .all(|((stored, lane), &end)| lane.released() >= stored.until && lane.durable() >= end)
        };
        let read = |lane: usize, offset: u64, into: &mut [u8]| fast.read_ring(function, lane, offset, into);
        if !log.current.as_ref().is_some_and(continues) {
            // A life has begun, or the log was cut or set up anew: its rings go to the other half.
            let block = of.control_block();
            let ends: Vec<(u64, u64)> = of.lanes().iter().map(|lane| (lane.durable(), lane.released())).collect();
            return self.begin_generation(log, block, if fast.survives() { Some(&ends) } else { None }, read);
        }
        let Some((block, lanes)) = &mut log.current else { return Ok(()) };
        let changed = !of.is_saved_as(block);
        let before = changed.then(|| std::mem::replace(block, of.control_block()));
        if !fast.survives() {
            for (stored, lane) in lanes.iter_mut().zip(of.lanes()) {
                stored.until = lane.released();
            }
        }
        let mut lanes = std::mem::take(lanes);
        // Where the log has come to on flash is stored before bytes that are there are overwritten.
        let mut result = if changed { self.write_control_block(log) } else { Ok(()) };
        if let (Err(StoreFault), Some(before), Some((block, _))) = (result, before, &mut log.current) {
            *block = before; // What counts is what is stored.
        }
        if changed && log.releases_what_is_looked_for(self.synced()) && !self.options.flaw.is(Flaw::ReleaseUnsynced) {
            // Flash may forget such pages before this block is safe: what it was written over would not count without
            // them, and what is older leads nowhere.
            result = result.and_then(|()| self.sync_what_is_written());
        }
        for (i, (stored, lane)) in lanes.iter_mut().zip(of.lanes()).enumerate() {
            let left = lane.released().saturating_sub(stored.until.max(lane.durable()));
            if left == 0 || result.is_err() || left < of.setup().ring_size / KEPT_PARTS && kept(i) {
                continue;
            }
            let place = log.place(log.generation, of.setup().ring_size, i);
            let safe_end = log.safe_end(i, self.synced());
            let gone = lane.released().div_ceil(LOG_CHUNK as u64).saturating_sub(place.sectors);
            let overwrites = gone > stored.first && gone * LOG_CHUNK as u64 > safe_end;
            let replaces = stored.ends_within_a_sector_of(lane.durable()) && safe_end < stored.until;
            // After a crash, an older control block would look for them.
            if overwrites && !self.options.flaw.is(Flaw::OverwriteUnsynced)
                || replaces && !self.options.flaw.is(Flaw::ReplaceUnsynced)
            {
                result = self.sync_what_is_written();
            }
            let range = (lane.durable(), lane.released());
            result = result.and_then(|()| self.store_ring(stored, range, place, |at, into| read(i, at, into)));
        }
        if let Some((_, stored)) = &mut log.current {
            *stored = lanes;
        }
        result
    }

    /// Stores all of a function in another half. `ends`: for each lane where it ends on flash, and where it ends.
    fn begin_generation(
        &mut self,
        log: &mut StoredLog,
        block: ControlBlock,
        ends: Option<&[(u64, u64)]>,
        read: impl Fn(usize, u64, &mut [u8]),
    ) -> Result<(), StoreFault> {
        log.generation = log.generation.wrapping_add(1);
        log.slots.iter_mut().for_each(|slot| (slot.settled, slot.settled_before) = (u64::MAX, u64::MAX));
        let ring_size = block.setup().ring_size;
        let fresh = |&until: &u64| {
            let first = until / LOG_CHUNK as u64;
            StoredLane { until, tail: Box::new([0; LOG_CHUNK]), skip: until % LOG_CHUNK as u64, first, prepared: first }
        };
        let mut lanes: Vec<StoredLane> = block.ends().iter().map(fresh).collect();
        for (i, (stored, &range)) in lanes.iter_mut().zip(ends.unwrap_or_default()).enumerate() {
            let place = log.place(log.generation, ring_size, i);
            self.store_ring(stored, range, place, |at, into| read(i, at, into))?;
        }
        let has_bytes = lanes.iter().zip(block.ends()).any(|(stored, &end)| stored.until > end);
        if has_bytes && !self.options.flaw.is(Flaw::BeginUnsynced) {
            // A block that a crash leaves without these bytes would count, and the half that has them would not.
            self.sync_what_is_written()?;
        }
        log.current = Some((block, lanes));
        self.write_control_block(log)?;
        self.sync_what_is_written()
    }

    /// After a loss of power inside: the control blocks that are left, and empty rings.
    ///
    /// # Errors
    /// [`StoreFault`].
    pub fn store_log_remains<'a>(
        &mut self,
        left: impl Iterator<Item = Option<&'a LogRemains>>,
    ) -> Result<(), StoreFault> {
        let mut logs = std::mem::take(&mut self.logs);
        let mut result = Ok(());
        for (log, left) in logs.iter_mut().zip(left) {
            if let Some(LogRemains { block, rings }) = left {
                // Recovery that was cut short leaves what it came from, and that is stored.
                if rings.iter().all(Vec::is_empty) {
                    result = result.and(self.begin_generation(log, block.clone(), None, |_, _, _| {}));
                }
            }
        }
        self.logs = logs;
        result
    }

    /// Stores what a ring has that is not stored yet, up to its end.
    fn store_ring(
        &mut self,
        stored: &mut StoredLane,
        (durable, released): (u64, u64),
        place: Place,
        read: impl Fn(u64, &mut [u8]),
    ) -> Result<(), StoreFault> {
        const CHUNK: u64 = LOG_CHUNK as u64;
        if stored.until < durable {
            // What is on flash already may have left the ring.
            (stored.until, stored.skip) = (durable, durable % CHUNK);
        }
        if stored.until >= released {
            return Ok(());
        }
        self.prepare_ring(stored, released, place)?;
        while stored.until < released {
            let begun = stored.until;
            // As many as lie behind each other, in one call.
            let first = place.sector(stored.until);
            let sectors = (released.div_ceil(CHUNK) - stored.until / CHUNK).min(BATCH as u64) as usize;
            let mut batch = Vec::with_capacity(sectors * LOG_SECTOR);
            while stored.until < released
                && batch.len() < BATCH * LOG_SECTOR
                && place.sector(stored.until) == first + batch.len() as u64
            {
                let within = stored.until % CHUNK;
                if within == 0 {
                    stored.skip = 0;
                }
                let offset = stored.until - within;
                let end = released.min(offset + CHUNK);
                let len = end - offset;
                read(stored.until, &mut stored.tail[within as usize..len as usize]);
                let mut sector = [0; LOG_SECTOR];
                sector[LOG_HEADER..].copy_from_slice(&stored.tail[..]);
                sector[LOG_HEADER + len as usize..].fill(0);
                let at = place.sector(offset);
                let header =
                    LogSector { generation: place.generation, offset, skip: stored.skip as u16, len: len as u16 };
                header.seal(self.salt, at, &mut sector);
                batch.extend_from_slice(&sector);
                stored.until = end;
            }
            let result = self.storage.write_at(first, &batch);
            self.wrote(result).inspect_err(|_| stored.until = begun)?;
        }
        Ok(())
    }

    /// Writes zeroes ahead of a ring where nothing of this generation was: a sync of bytes that have their place on the
    /// disk already is one of them alone, and not of the file system's journal, too.
    fn prepare_ring(&mut self, stored: &mut StoredLane, released: u64, place: Place) -> Result<(), StoreFault> {
        const CHUNK: u64 = LOG_CHUNK as u64;
        // What is behind that has its place, or goes to flash at once.
        stored.prepared = stored.prepared.max(stored.until.div_ceil(CHUNK));
        let round = stored.first + place.sectors;
        while stored.prepared < (released.div_ceil(CHUNK) + 1).min(round) {
            let count = PREPARED.min(round - stored.prepared).min(place.sectors - stored.prepared % place.sectors);
            let at = place.sector(stored.prepared * CHUNK);
            let result = self.storage.write_at(at, &vec![0; count as usize * LOG_SECTOR]);
            self.wrote(result)?;
            stored.prepared += count;
        }
        Ok(())
    }

    /// Writes the present control block of a function over the oldest that is neither the newest of those that are
    /// safe, nor the newest of those that the sync which is under way makes safe: clients hear of what that one says.
    fn write_control_block(&mut self, log: &mut StoredLog) -> Result<(), StoreFault> {
        let Some((block, _)) = &log.current else { return Ok(()) };
        let mut content = vec![0; BEFORE];
        content[..4].copy_from_slice(&log.generation.to_le_bytes());
        content.extend(block.to_bytes());
        if self.is_faulted() || Slot::HEADER + content.len() > SLOT as usize {
            return Err(StoreFault);
        }
        let (safe, covered) = (log.newest(self.synced()), log.newest(self.sync_to_come() - 1));
        let kept = |slot: &usize| Some(*slot) == covered || Some(*slot) == safe;
        let free = (0..log.slots.len()).filter(|slot| !kept(slot)).min_by_key(|&slot| log.slots[slot].number);
        let any = self.options.flaw.is(Flaw::AnyControlBlock).then_some((log.number + 1) as usize % 2);
        let slot = any.or(free).expect("two of three are kept at most");
        log.number += 1;
        let at = log.memory.at() + slot as u64 * SLOT;
        let mut bytes = Slot::encode(self.salt, at, log.number, &content).to_vec();
        bytes.extend(content);
        let needs = self.sync_to_come();
        let of = &mut log.slots[slot];
        of.settled_before = of.settled_at_least(self.synced());
        (of.number, of.needs, of.settled) = (log.number, needs, block.pages().end);
        of.ends.clear();
        of.ends.extend(block.ends());
        let result = self.storage.write_at(at, &bytes);
        self.wrote(result)
    }
}
