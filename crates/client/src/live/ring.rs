//! A lane's ring as a client has it mapped, and taking it up after whoever wrote it before.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use tidewater_wire::vendor::{
    RING_FILE_BAR2, RING_IDLE, RING_PAGE_OFFSET, RING_SLOTS, RingHeader, RingLane, RingLanePage, RingPage,
};
use tidewater_wire::vfio_user::Area;

use super::error::LiveError;
use super::memory::{Mapping, WriteBack, fence};
use super::socket::Mappable;
use crate::writers::Writers;
use crate::{Entry, Records, fill_void};

const PAGE: u64 = 4096;
/// Where the first lane page is in BAR2.
const LANE_PAGES: u64 = PAGE;
/// Where the rings begin in BAR2.
const RINGS: u64 = 1 << 20;
/// The byte of the file that the writer of lane 0 locks; lane n's is n further.
const LOCKS: i64 = 1 << 40;

/// What was found when a lane was taken up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recovered {
    /// Where the stream goes on: all below is in the ring, or where the device has taken it to.
    pub tail: u64,
    /// Bytes that are in the ring and that the device has not taken yet.
    pub in_ring: u64,
    /// Whole records of the writer before that it had not published, and that count now.
    pub records: u64,
    /// Holes between them, which are sealed as void.
    pub sealed: u64,
    /// The stream did not go on from what was published: a loss of power, or a function that was set up anew.
    pub is_new: bool,
}

/// A mapped ring, locked for this handle.
#[derive(Debug)]
pub(super) struct Ring {
    /// Its own description of the file: the lock is the handle's, and ends with the process.
    _file: File,
    identity: (u64, u64),
    header: RingHeader,
    lane: u8,
    mine: Mapping,
    device: Mapping,
    data: Mapping,
    /// The generation that this handle writes in.
    pub(super) generation: u64,
    /// The ring's bytes from here on are this ring's.
    pub(super) begin: u64,
}

fn wrong(why: impl Into<String>) -> LiveError {
    LiveError::Ring(why.into())
}

fn identity(file: &File) -> Result<(u64, u64, u64), LiveError> {
    let about = file.metadata().map_err(|error| wrong(error.to_string()))?;
    Ok((about.dev(), about.ino(), about.len()))
}

/// Another description of the file that came with the socket: its locks are not the device's.
fn reopen(lent: &OwnedFd) -> Result<File, LiveError> {
    let path = format!("/proc/self/fd/{}", lent.as_raw_fd());
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|error| wrong(format!("can't be opened again: {error}")))
}

fn lock(file: &File, lane: u8) -> Result<(), LiveError> {
    let lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: LOCKS + i64::from(lane),
        l_len: 1,
        l_pid: 0,
    };
    match fcntl(file, FcntlArg::F_OFD_SETLK(&lock)) {
        Ok(_) => Ok(()),
        Err(Errno::EAGAIN | Errno::EACCES) => Err(LiveError::Busy { lane }),
        Err(errno) => Err(LiveError::System { what: "lock the lane", errno }),
    }
}

impl Ring {
    /// Maps a lane, takes it for this handle, and takes up its stream.
    pub(super) fn attach(lent: &Mappable, lane: u8) -> Result<(Ring, Recovered), LiveError> {
        // What else of the region may be mapped is no ring.
        let is_ring = lent.areas.iter().any(|area| area.offset == RING_PAGE_OFFSET && area.size == PAGE);
        if lent.offset != RING_FILE_BAR2 || !is_ring {
            return Err(LiveError::NotMapped);
        }
        let file = reopen(&lent.file)?;
        let mut bytes = [0; RingHeader::SIZE];
        file.read_exact_at(&mut bytes, 0).map_err(|error| wrong(error.to_string()))?;
        let header = RingHeader::parse(&bytes).map_err(|error| wrong(error.to_string()))?;
        if u16::from(lane) >= header.lanes {
            return Err(LiveError::NoLane { lane, lanes: header.lanes });
        }
        let (device, inode, len) = identity(&file)?;
        if len < header.file_bytes {
            return Err(wrong(format!("has {len} of {} bytes", header.file_bytes)));
        }
        lock(&file, lane)?;
        let map = |area: Area, writable: bool| {
            let allowed = |one: &Area| {
                one.offset <= area.offset && area.offset - one.offset <= one.size.saturating_sub(area.size)
            };
            if !lent.areas.iter().any(allowed) {
                return Err(LiveError::NotMapped);
            }
            let mapped = Mapping::new(file.as_fd(), RING_FILE_BAR2 + area.offset, area.size, writable);
            mapped.map_err(LiveError::system("map the ring"))
        };
        let ring_bytes = header.ring_bytes;
        let mine = map(Area { offset: LANE_PAGES + u64::from(lane) * PAGE, size: PAGE }, true)?;
        let page = map(Area { offset: RING_PAGE_OFFSET, size: PAGE }, false)?;
        let data = map(Area { offset: RINGS + u64::from(lane) * ring_bytes, size: ring_bytes }, true)?;
        let identity = (device, inode);
        let mut ring = Ring { _file: file, identity, header, lane, mine, device: page, data, generation: 0, begin: 0 };
        let recovered = ring.take_up()?;
        Ok((ring, recovered))
    }

    /// Whether this is the same file.
    pub(super) fn is_of(&self, lent: &Mappable) -> bool {
        reopen(&lent.file).and_then(|file| identity(&file)).is_ok_and(|(dev, ino, _)| (dev, ino) == self.identity)
    }

    pub(super) fn header(&self) -> &RingHeader {
        &self.header
    }

    pub(super) fn lane(&self) -> u8 {
        self.lane
    }

    pub(super) fn size(&self) -> u64 {
        self.data.len()
    }

    pub(super) fn writes_back(&self) -> bool {
        self.data.writes_back()
    }

    /// A counter of the device's: whole, or half-written and read again.
    fn counter(&self, field: usize) -> u64 {
        let at = (RingPage::lane_offset(self.lane) + field) as u64;
        let mut turns = 0u32;
        loop {
            let value = self.device.load(at);
            // One that never agrees is a damaged page: what is lowest does no harm.
            if self.device.load(at + 8) == !value || turns > 1_000_000 {
                return if turns > 1_000_000 { 0 } else { value };
            }
            turns += 1;
            std::hint::spin_loop();
        }
    }

    /// Whether the stream still is the one that this handle writes.
    #[inline]
    pub(super) fn is_current(&self) -> bool {
        self.counter(RingLane::GENERATION_OFFSET) == self.generation
    }

    #[inline]
    pub(super) fn taken(&self) -> u64 {
        self.counter(RingLane::TAKEN_OFFSET)
    }

    #[inline]
    pub(super) fn synced(&self) -> u64 {
        self.counter(RingLane::SYNCED_OFFSET)
    }

    fn flags(&self) -> u64 {
        self.device.load(8)
    }

    /// Whether the device takes anything from the ring.
    pub(super) fn is_open(&self) -> bool {
        self.flags() >> (8 * (RingPage::OPEN_OFFSET - 8)) & 0xff == 1
    }

    pub(super) fn is_broken(&self) -> bool {
        self.flags() >> (8 * (RingPage::BROKEN_OFFSET - 8) + usize::from(self.lane)) & 1 == 1
    }

    /// Rings outlive the device's process in the drive.
    pub(super) fn survives(&self) -> bool {
        self.device.load(16) & 0xff == 1
    }

    pub(super) fn tail(&self) -> u64 {
        self.mine.load(RingLanePage::TAIL_OFFSET as u64)
    }

    pub(super) fn wanted(&self) -> &AtomicU64 {
        self.mine.word(RingLanePage::WANTED_OFFSET as u64)
    }

    pub(super) fn reserved(&self) -> u64 {
        self.mine.load(RingLanePage::RESERVE_OFFSET as u64)
    }

    #[inline]
    pub(super) fn writers(&self) -> Writers<'_> {
        Writers {
            reserve: self.mine.word(RingLanePage::RESERVE_OFFSET as u64),
            tail: self.mine.word(RingLanePage::TAIL_OFFSET as u64),
        }
    }

    #[inline]
    pub(super) fn slot(&self, slot: usize) -> &AtomicU64 {
        self.mine.word((RingLanePage::SLOTS_OFFSET + 64 * slot) as u64)
    }

    #[inline]
    pub(super) fn slots(&self, used: usize) -> impl Iterator<Item = &AtomicU64> {
        (0..used).map(|slot| self.slot(slot))
    }

    /// Takes up the stream: this handle is its only writer now.
    pub(super) fn take_up(&mut self) -> Result<Recovered, LiveError> {
        const GENERATION: u64 = RingLanePage::GENERATION_OFFSET as u64;
        if !RingPage::parse(&self.page()).is_ok_and(|page| page.open) {
            return Err(wrong("the device takes nothing from it: its function was set up anew, or it was damaged"));
        }
        if self.is_broken() {
            return Err(LiveError::Broken);
        }
        let (generation, taken) = (self.counter(RingLane::GENERATION_OFFSET), self.taken());
        (self.generation, self.begin) = (generation, taken);
        let mut recovered = Recovered::default();
        let is_new = self.mine.load(GENERATION) != generation;
        let end = if is_new {
            self.begin = self.counter(RingLane::START_OFFSET);
            self.begin
        } else {
            self.recover(taken, &mut recovered)?
        };
        (0..RING_SLOTS).for_each(|slot| self.slot(slot).store(RING_IDLE, Ordering::Relaxed));
        self.mine.word(RingLanePage::WANTED_OFFSET as u64).store(0, Ordering::Relaxed);
        self.mine.word(RingLanePage::RESERVE_OFFSET as u64).store(end, Ordering::Relaxed);
        self.mine.word(RingLanePage::TAIL_OFFSET as u64).store(end, Ordering::Release);
        self.mine.word(GENERATION).store(generation, Ordering::Release);
        Ok(Recovered { tail: end, in_ring: end.saturating_sub(taken), is_new, ..recovered })
    }

    fn page(&self) -> [u8; RingPage::SIZE] {
        let mut bytes = [0; RingPage::SIZE];
        self.device.read(0, &mut bytes);
        bytes
    }

    /// What the writer before left beyond its tail: whole records count, holes between them become void, and what follows is cut off. Nobody was
    /// told of any of it.
    fn recover(&self, taken: u64, recovered: &mut Recovered) -> Result<u64, LiveError> {
        let limit = taken + self.size();
        let (tail, reserve) = (self.tail(), self.reserved());
        if !(taken..=limit).contains(&tail) {
            return Err(wrong(format!("it was filled up to {tail}, and only {taken} to {limit} can be in it")));
        }
        // After a loss of power, what was reserved may be an old value too.
        let until = if self.header.persistent { limit } else { reserve.clamp(tail, limit) };
        let mut bytes = vec![0; (until - tail) as usize];
        self.read(tail, &mut bytes);
        let (mut end, mut hole) = (tail, None);
        for entry in Records::new(&bytes, tail) {
            let (from, to) = match entry {
                Entry::Skipped { from, to, .. } => {
                    hole = Some((from, to));
                    continue;
                }
                Entry::Void { lsn, bytes } => (lsn, lsn + bytes),
                Entry::Record { lsn, payload, .. } => {
                    recovered.records += 1;
                    (lsn, lsn + tidewater_wire::vendor::RecordHeader::span(payload.len() as u64))
                }
            };
            if to > until {
                break; // Its fill was not reserved.
            }
            if let Some((first, last)) = hole.take() {
                debug_assert_eq!(last, from);
                let mut void = vec![0; (last - first) as usize];
                fill_void(first, self.header.epoch, &mut void);
                self.write(first, &void, WriteBack::None);
                recovered.sealed += 1;
            }
            end = to;
        }
        fence();
        Ok(end)
    }

    /// Where the bytes of a range lie: before the end of the ring, and from its start.
    #[inline]
    fn parts(&self, offset: u64, len: usize) -> (u64, usize) {
        let at = offset & (self.size() - 1);
        (at, ((self.size() - at) as usize).min(len))
    }

    pub(super) fn read(&self, offset: u64, to: &mut [u8]) {
        let (at, first) = self.parts(offset, to.len());
        let (one, other) = to.split_at_mut(first);
        self.data.read(at, one);
        self.data.read(0, other);
    }

    /// Stores bytes that the caller has reserved.
    #[inline]
    pub(super) fn write(&self, offset: u64, from: &[u8], how: WriteBack) {
        let (at, first) = self.parts(offset, from.len());
        let (one, other) = from.split_at(first);
        for (at, bytes) in [(at, one), (0, other)] {
            if bytes.is_empty() {
                continue;
            }
            match how {
                WriteBack::Stream => self.data.stream(at, bytes),
                _ => self.data.write(at, bytes),
            }
        }
    }

    #[inline]
    pub(super) fn zero(&self, offset: u64, len: u64) {
        let (at, first) = self.parts(offset, len as usize);
        self.data.zero(at, first as u64);
        if len > first as u64 {
            self.data.zero(0, len - first as u64);
        }
    }

    /// Begins to write back what was stored.
    #[inline]
    pub(super) fn write_back(&self, offset: u64, len: u64) {
        let (at, first) = self.parts(offset, len as usize);
        self.data.write_back(at, first as u64);
        if len > first as u64 {
            self.data.write_back(0, len - first as u64);
        }
    }

    /// Makes the tail itself outlive a loss of power: raw bytes have nothing else that tells where they end.
    pub(super) fn write_back_tail(&self) {
        self.mine.write_back(RingLanePage::TAIL_OFFSET as u64, 8);
        fence();
    }
}
