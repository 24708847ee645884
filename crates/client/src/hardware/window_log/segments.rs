//! The segments of a log in the byte window: pinned, stored into, synced and flushed in turn.

use super::{HEADS, LogPlace, failed};
use crate::hardware::{Device, HardwareError, Window, WindowPlace};
use crate::{Entry, LogError, Records, WindowEntry, WindowError};
use nix::errno::Errno;
use tidewater_driver::{DATA_MAX, Queue};
use tidewater_wire::log::RecordHeader;
use tidewater_wire::nvme::Sqe;
use tidewater_wire::vendor::{ANYWHERE, Epoch, WindowCommand, WindowLogHead, status};

/// A segment that changes its place in the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    None,
    /// This one is being flushed.
    Flush(u64),
    /// This one is being pinned.
    Pin(u64),
}

/// The drive that stores go to: one at a time.
pub(super) struct Drive {
    pub(super) device: Device,
    pub(super) window: WindowPlace,
    pub(super) place: LogPlace,
    pub(super) block_bytes: u32,
    /// Bytes of a logical page.
    pub(super) page: u64,
    pub(super) segment: u64,
    pub(super) segments: u64,
    pub(super) epoch: Epoch,
    pub(super) sequence: u64,
    /// Segments that are pinned, each at the index that is its number's lowest bit.
    pub(super) pinned: [Option<(u64, WindowEntry)>; 2],
    pub(super) turn: Turn,
    /// Bytes being stored.
    pub(super) bytes: Vec<u8>,
    /// Stream offset after what is stored.
    pub(super) stored: u64,
    /// Parts of entries that were stored since the last sync.
    pub(super) parts: Vec<(WindowEntry, u64, u64)>,
    /// The header of the last record that was stored, and its stream offset.
    pub(super) last: Option<(u64, [u8; RecordHeader::SIZE])>,
    pub(super) flushes: u64,
    pub(super) syncs: u64,
}

impl Drive {
    /// First block of a segment.
    pub(super) fn lba(&self, segment: u64) -> u64 {
        let bytes = HEADS * self.page + segment % self.segments * self.segment;
        self.place.lba + bytes / u64::from(self.block_bytes)
    }

    pub(super) fn window(&mut self) -> Window<'_> {
        self.device.window_at(self.window)
    }

    pub(super) fn name(&self, segment: u64) -> u16 {
        self.place.entry + (segment & 1) as u16
    }

    /// Reads or writes whole blocks: [`DATA_MAX`] bytes at most.
    pub(super) fn blocks(&mut self, make: fn(u16, u64, u16) -> Sqe, lba: u64, data: &mut [u8]) -> Result<(), LogError> {
        let blocks = data.len() as u64 / u64::from(self.block_bytes);
        let sqe = make(0, lba, (blocks - 1) as u16).with_nsid(self.place.nsid);
        self.device.run(Queue::Io, &sqe, data, "a command on the log's blocks")?;
        Ok(())
    }

    /// The valid head with the higher sequence; `None`: there is none, and nothing else either.
    pub(super) fn read_head(&mut self) -> Result<Option<WindowLogHead>, LogError> {
        let mut best: Option<WindowLogHead> = None;
        let mut is_empty = true;
        for at in 0..HEADS {
            let mut page = vec![0; self.page as usize];
            let lba = self.place.lba + at * self.page / u64::from(self.block_bytes);
            self.blocks(Sqe::read, lba, &mut page)?;
            is_empty &= page.iter().all(|byte| *byte == 0);
            let head = WindowLogHead::parse(&page[..WindowLogHead::SIZE]).ok();
            if let Some(head) = head.filter(|head| best.is_none_or(|best| head.sequence > best.sequence)) {
                best = Some(head);
            }
        }
        if best.is_none() && !is_empty {
            return Err(failed("its blocks hold something else: clear them, or give other blocks", Errno::EEXIST));
        }
        Ok(best)
    }

    /// Writes where the log goes on from, durably, over the older of both heads.
    pub(super) fn write_head(&mut self, head: u64) -> Result<(), LogError> {
        let sequence = self.sequence + 1;
        let head = WindowLogHead {
            sequence,
            epoch: self.epoch,
            head,
            segment_bytes: self.segment,
            segments: self.segments as u32,
        };
        let mut page = vec![0; self.page as usize];
        page[..WindowLogHead::SIZE].copy_from_slice(&head.to_bytes());
        let lba = self.place.lba + sequence % HEADS * self.page / u64::from(self.block_bytes);
        self.blocks(|cid, lba, blocks| Sqe::write(cid, lba, blocks).with_fua(), lba, &mut page)?;
        self.sequence = sequence;
        Ok(())
    }

    /// Flushes what an earlier writer has left pinned in the range. Returns how many entries.
    pub(super) fn flush_left(&mut self) -> Result<u8, LogError> {
        let mut flushed = 0;
        let blocks = self.place.lba..self.place.lba + self.place.blocks;
        for name in [self.place.entry, self.place.entry + 1] {
            let mut window = self.device.window_at(self.window);
            let info = match window.info(name) {
                Err(HardwareError::Window(WindowError::Refused(refused)))
                    if refused.same_code(status::ENTRY_UNKNOWN) =>
                {
                    continue;
                }
                other => other?,
            };
            if info.nsid != self.place.nsid || !blocks.contains(&info.lba) {
                return Err(failed(format!("entry {name} of the window belongs to another process"), Errno::EBUSY));
            }
            window.flush(&WindowEntry { name, offset: info.offset, bytes: info.bytes })?;
            flushed += 1;
        }
        Ok(flushed)
    }

    /// Resumes the change that is under way. `wait`: until none is.
    pub(super) fn resume(&mut self, wait: bool) -> Result<(), LogError> {
        while self.turn != Turn::None {
            let Some(result) = self.window().poll(wait)? else { break };
            self.ended(result)?;
        }
        Ok(())
    }

    /// Completes the flush or pin under way.
    pub(super) fn ended(&mut self, result: u32) -> Result<(), LogError> {
        match std::mem::replace(&mut self.turn, Turn::None) {
            Turn::None => Ok(()),
            Turn::Flush(segment) => {
                self.pinned[(segment & 1) as usize] = None;
                self.flushes += 1;
                self.begin_pin(segment + 2)
            }
            Turn::Pin(segment) => {
                let entry = WindowEntry { name: self.name(segment), offset: result.into(), bytes: self.segment };
                self.pinned[(segment & 1) as usize] = Some((segment, entry));
                Ok(())
            }
        }
    }

    pub(super) fn begin(&mut self, turn: Turn, command: WindowCommand) -> Result<(), LogError> {
        self.turn = turn;
        match self.window().begin(&command)? {
            Some(result) => self.ended(result),
            None => Ok(()),
        }
    }

    pub(super) fn begin_pin(&mut self, segment: u64) -> Result<(), LogError> {
        let blocks = (self.segment / u64::from(self.block_bytes)) as u32;
        let (entry, lba) = (self.name(segment), self.lba(segment));
        self.begin(Turn::Pin(segment), WindowCommand::Pin { entry, offset: ANYWHERE, lba, blocks })
    }

    pub(super) fn entry(&self, segment: u64) -> Option<WindowEntry> {
        self.pinned[(segment & 1) as usize].filter(|(one, _)| *one == segment).map(|(_, entry)| entry)
    }

    /// Begins to bring a segment into the window, unless it is there, or something is under way.
    pub(super) fn begin_turn(&mut self, segment: u64) -> Result<(), LogError> {
        if self.turn != Turn::None || self.entry(segment).is_some() {
            return Ok(());
        }
        match self.pinned[(segment & 1) as usize] {
            Some((other, entry)) => self.begin(Turn::Flush(other), WindowCommand::Flush { entry: entry.name }),
            None => self.begin_pin(segment),
        }
    }

    /// A segment that is needed now.
    pub(super) fn pin(&mut self, segment: u64) -> Result<WindowEntry, LogError> {
        loop {
            if let Some(entry) = self.entry(segment) {
                return Ok(entry);
            }
            self.resume(true)?;
            self.begin_turn(segment)?;
        }
    }

    /// Stores what is staged.
    pub(super) fn store(&mut self) -> Result<(), LogError> {
        let bytes = std::mem::take(&mut self.bytes);
        let mut from = 0;
        while from < bytes.len() {
            let (segment, at) = (self.stored / self.segment, self.stored % self.segment);
            let len = (bytes.len() - from).min((self.segment - at) as usize);
            let entry = self.pin(segment)?;
            self.window().write(&entry, at, &bytes[from..from + len])?;
            self.parts.push((entry, at, len as u64));
            from += len;
            self.stored += len as u64;
        }
        self.bytes = bytes;
        self.bytes.clear();
        Ok(())
    }

    /// `BA_SYNC` of all that was stored since the last one.
    pub(super) fn sync(&mut self) -> Result<(), LogError> {
        let Some((at, header)) = self.last.filter(|_| !self.parts.is_empty()) else { return Ok(()) };
        let parts = std::mem::take(&mut self.parts);
        let entry = self.pin(at / self.segment)?;
        let at = at % self.segment;
        let is_safe = self.window().sync_and_verify(&parts, (&entry, at), &header)?;
        self.parts = parts;
        self.parts.clear();
        self.syncs += 1;
        if is_safe { Ok(()) } else { Err(failed("the device can no longer make it durable", Errno::EIO)) }
    }

    /// Beside: once the end is in a segment, the one before is flushed and the next is pinned.
    pub(super) fn look_ahead(&mut self) -> Result<(), LogError> {
        self.resume(false)?;
        let segment = self.stored / self.segment;
        if self.entry(segment).is_some() { self.begin_turn(segment + 1) } else { Ok(()) }
    }

    /// Fills a buffer with bytes of the stream, wherever they are.
    pub(super) fn read(&mut self, mut offset: u64, to: &mut [u8]) -> Result<(), LogError> {
        // What is being flushed is in neither place for block commands and stores.
        self.resume(true)?;
        let mut to = to;
        while !to.is_empty() {
            let (segment, at) = (offset / self.segment, offset % self.segment);
            let len = to.len().min((self.segment - at) as usize).min(DATA_MAX - 2 * self.block_bytes as usize);
            let (piece, rest) = to.split_at_mut(len);
            // A turn ahead, the same blocks are another segment, which may be pinned already: with what is in them.
            let is = |one: u64| one % self.segments == segment % self.segments;
            let pinned = self.pinned.iter().flatten().find(|(one, _)| is(*one)).map(|(_, entry)| *entry);
            match pinned {
                Some(entry) => self.window().read_dma(&entry, at, piece)?,
                None => {
                    let block = u64::from(self.block_bytes);
                    let skip = (at % block) as usize;
                    let mut blocks = vec![0; (skip + len).next_multiple_of(block as usize)];
                    let lba = self.lba(segment) + at / block;
                    self.blocks(Sqe::read, lba, &mut blocks)?;
                    piece.copy_from_slice(&blocks[skip..skip + len]);
                }
            }
            to = rest;
            offset += len as u64;
        }
        Ok(())
    }

    /// Where the log ends that begins at `head`: at the first place where no record of it is. Records of an earlier
    /// turn of the range tell another stream offset, and those that a writer stored behind its end, and that were lost
    /// in between, an epoch that is too old.
    pub(super) fn find_tail(&mut self, head: u64) -> Result<u64, LogError> {
        let capacity = self.segment * self.segments;
        let (mut tail, mut epoch) = (head, Epoch::ZERO);
        let mut bytes = Vec::new();
        loop {
            let len = (head + capacity - tail).min(2 * self.segment);
            bytes.resize(len as usize, 0);
            self.read(tail, &mut bytes)?;
            let from = tail;
            for entry in Records::new(&bytes, from) {
                match entry {
                    Entry::Record { lsn, epoch: its, payload } if its >= epoch => {
                        (tail, epoch) = (lsn + RecordHeader::span(payload.len() as u64), its);
                    }
                    _ => break,
                }
            }
            if tail == from || tail >= head + capacity {
                return Ok(tail.min(head + capacity));
            }
        }
    }
}
