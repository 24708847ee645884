//! A lane's ring as a client has it mapped, and taking it up after an earlier writer.

mod locks;
mod recover;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use tidewater_wire::log::{
    RECORD_ALIGN, RING_FILE_BAR2, RING_PAGE_OFFSET, RING_SLOTS, RecordHeader, RingHeader, RingLane, RingLanePage,
    RingPage, RingReplicas,
};
use tidewater_wire::vendor::{LANE_PAGES_OFFSET, RINGS_OFFSET};
use tidewater_wire::vfio_user::Area;

use self::locks::{is_served, lock, lock_as};
use super::disk::{Disk, System};
use super::inode::names;
use super::lent::{Mappable, reopen};
use super::memory::{LINE, Mapping, fence};
use super::owner;
use crate::writers::{Reserved, Writers};
use crate::{Level, LogError};

const PAGE: u64 = 4096;

/// State of a lane when it was taken up.
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

/// Role and replication state of a function, by its ring's page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Peers {
    /// 0 none, 1 primary, 2 secondary.
    pub(super) role: u8,
    /// 0 lazy, 1 eager, 2 chain, 3 quorum.
    pub(super) mode: u8,
    /// Bit n: replica n can't be reached, or is late.
    pub(super) late: u16,
    /// The primary's leader deadline has passed.
    pub(super) frozen: bool,
}

impl Peers {
    /// That it takes what is appended.
    ///
    /// # Errors
    /// `Secondary`.
    pub(super) fn may_write(self) -> Result<(), LogError> {
        if self.role == 2 { Err(LogError::Secondary) } else { Ok(()) }
    }

    /// That replicas acknowledge what is appended.
    ///
    /// # Errors
    /// `NotReplicated`, `Secondary`.
    pub(super) fn acknowledge(self, level: Level) -> Result<(), LogError> {
        self.may_write()?;
        let why = match self {
            Peers { role: 0, .. } => "the device has no peers: set up its group with `tidewater cluster group`",
            Peers { mode: 0, .. } => {
                "the group is lazy: its primary waits for no replica; choose eager, chain or quorum"
            }
            _ => return Ok(()),
        };
        Err(LogError::NotReplicated { level, why })
    }

    /// Replicas that can't be reached or are late, as `1, 2`.
    pub(super) fn late(self) -> String {
        let late: Vec<String> =
            (0..16).filter(|node| self.late >> node & 1 == 1).map(|node| node.to_string()).collect();
        late.join(", ")
    }
}

/// A mapped ring, locked for this handle and those that share it.
#[derive(Debug)]
pub(super) struct Ring {
    /// Its own description of the file: the lock is the handle's, and ends with the last process that has the
    /// descriptor or the mappings.
    file: File,
    identity: (u64, u64),
    header: RingHeader,
    lane: u8,
    /// The device held its lock of the file when it was mapped: one that no process holds any more has ended.
    is_locked: bool,
    /// How that is asked.
    calls: &'static dyn Disk,
    mine: Mapping,
    device: Mapping,
    data: Mapping,
    /// The generation that this handle writes in.
    pub(super) generation: u64,
    /// The ring's bytes from here on are this ring's.
    pub(super) begin: u64,
}

fn wrong(why: impl Into<String>) -> LogError {
    LogError::Ring(why.into())
}

fn identity(file: &File) -> Result<(u64, u64, u64), LogError> {
    let about = file.metadata().map_err(|error| wrong(error.to_string()))?;
    Ok((about.dev(), about.ino(), about.len()))
}

/// The file's header, and which file it is.
fn look_at(file: &File, lane: u8) -> Result<(RingHeader, (u64, u64)), LogError> {
    let read = || {
        let mut bytes = [0; RingHeader::SIZE];
        file.read_exact_at(&mut bytes, 0).map_err(|error| wrong(error.to_string()))?;
        RingHeader::parse(&bytes).map_err(|error| wrong(error.to_string()))
    };
    // Once more, where the device was just writing it.
    let header = read().or_else(|_| read())?;
    if u16::from(lane) >= header.lanes {
        return Err(LogError::NoLane { lane, lanes: header.lanes });
    }
    let (device, inode, len) = identity(file)?;
    if len < header.file_bytes {
        return Err(wrong(format!("has {len} of {} bytes", header.file_bytes)));
    }
    Ok((header, (device, inode)))
}

/// The parts of BAR2 that a lane's writers map: the lane's page, the device's, the ring.
fn places(header: &RingHeader, lane: u8) -> [Area; 3] {
    let ring = header.ring_bytes;
    [
        Area { offset: LANE_PAGES_OFFSET + u64::from(lane) * PAGE, size: PAGE },
        Area { offset: RING_PAGE_OFFSET, size: PAGE },
        Area { offset: RINGS_OFFSET + u64::from(lane) * ring, size: ring },
    ]
}

fn map(file: &File, area: Area, writable: bool) -> Result<Mapping, LogError> {
    let mapped = Mapping::new(file.as_fd(), RING_FILE_BAR2 + area.offset, area.size, writable);
    mapped.map_err(LogError::system("map the ring"))
}

impl Ring {
    /// Maps a lane, takes it for this handle, and takes up its stream.
    pub(super) fn attach(lent: &Mappable, lane: u8) -> Result<(Ring, Recovered), LogError> {
        // What else of the region may be mapped is no ring.
        let is_ring = lent.areas.iter().any(|area| area.offset == RING_PAGE_OFFSET && area.size == PAGE);
        if lent.offset != RING_FILE_BAR2 || !is_ring {
            return Err(LogError::NotMapped);
        }
        let file = reopen(&lent.file)?;
        let (header, identity) = look_at(&file, lane)?;
        lock(&file, lane)?;
        let places = places(&header, lane);
        let allowed = |area: &Area| {
            let holds = |one: &Area| {
                one.offset <= area.offset && area.offset - one.offset <= one.size.saturating_sub(area.size)
            };
            lent.areas.iter().any(holds)
        };
        if !places.iter().all(allowed) {
            return Err(LogError::NotMapped);
        }
        let mut ring = Ring::mapped(file, header, identity, lane, &System)?;
        // A replica's stream is its primary's.
        ring.peers().may_write()?;
        // Once for all that share it.
        ring.data.make_pages_huge();
        let recovered = ring.take_up()?;
        Ok((ring, recovered))
    }

    fn mapped(
        file: File,
        header: RingHeader,
        identity: (u64, u64),
        lane: u8,
        calls: &'static dyn Disk,
    ) -> Result<Ring, LogError> {
        let [mine, page, data] = places(&header, lane);
        let (mine, device, data) = (map(&file, mine, true)?, map(&file, page, false)?, map(&file, data, true)?);
        let is_locked = is_served(&file, calls);
        Ok(Ring { file, identity, header, lane, is_locked, calls, mine, device, data, generation: 0, begin: 0 })
    }

    /// Maps a lane that another process has taken up and shares.
    pub(super) fn join(file: OwnedFd, lane: u8, generation: u64, calls: &'static dyn Disk) -> Result<Ring, LogError> {
        let file = File::from(file);
        let (header, identity) = look_at(&file, lane)?;
        let mut ring = Ring::mapped(file, header, identity, lane, calls)?;
        let word = |at: usize| ring.mine.load(at as u64);
        if word(RingLanePage::NAMESPACE_OFFSET) != owner::namespace() {
            return Err(wrong("is shared by processes of another PID namespace: they can't tell who of them has died"));
        }
        let (said, begin) = (word(RingLanePage::GENERATION_OFFSET), word(RingLanePage::BEGIN_OFFSET));
        (ring.generation, ring.begin) = (generation, begin);
        if said != generation || !ring.is_current() || !ring.is_open() {
            return Err(LogError::Stale);
        }
        Ok(ring)
    }

    /// Another handle may take the lane: this one writes nothing more.
    pub(super) fn unlock(&self) -> Result<(), LogError> {
        lock_as(&self.file, self.lane, libc::F_UNLCK)
    }

    /// Whether the process that served the ring has ended. Known without a connection, unless that process was of a
    /// version that does not lock the file.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_locked && !is_served(&self.file, self.calls)
    }

    /// The file: its holder has the lane.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Whose file it is.
    pub(super) fn user(&self) -> Result<u32, LogError> {
        self.file.metadata().map(|about| about.uid()).map_err(|error| wrong(error.to_string()))
    }

    /// Whether this process can tell who of the lane's writers has died.
    pub(super) fn knows_writers(&self) -> bool {
        self.mine.load(RingLanePage::NAMESPACE_OFFSET as u64) == owner::namespace()
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

    /// A counter of the device's on this lane.
    fn counter(&self, field: usize) -> u64 {
        self.counter_at(RingPage::lane_offset(self.lane) + field)
    }

    /// A counter of the device's: whole, or half-written and read again.
    fn counter_at(&self, at: usize) -> u64 {
        let at = at as u64;
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
        let at = (RingPage::lane_offset(self.lane) + RingLane::GENERATION_OFFSET) as u64;
        let [said, check] = self.device.pair(at);
        // As it is nearly always.
        said == self.generation && check == !said || self.counter(RingLane::GENERATION_OFFSET) == self.generation
    }

    #[inline]
    pub(super) fn taken(&self) -> u64 {
        self.counter(RingLane::TAKEN_OFFSET)
    }

    #[inline]
    pub(super) fn synced(&self) -> u64 {
        self.counter(RingLane::SYNCED_OFFSET)
    }

    /// Sleeps while `synced` is this, until the device says something else, or the time is over.
    pub(super) fn wait_while_synced(&self, synced: u64, time: Duration) {
        let at = (RingPage::lane_offset(self.lane) + RingLane::SYNCED_OFFSET) as u64;
        if self.device.wait(at, synced as u32, time).is_err() {
            // No such call here: looking now and then does as well.
            std::thread::sleep(time.min(Duration::from_micros(100)));
        }
    }

    /// End of what as many replicas have in their rings as the device's mode asks for; 0: nothing is promised.
    pub(super) fn on_replicas(&self) -> u64 {
        self.counter_at(RingPage::replicas_offset(self.lane) + RingReplicas::RING_OFFSET)
    }

    /// End of what they, and the device, have synced on their backing stores, as far as that was asked for; 0: nothing
    /// is promised.
    pub(super) fn synced_on_replicas(&self) -> u64 {
        self.counter_at(RingPage::replicas_offset(self.lane) + RingReplicas::DESTAGED_OFFSET)
    }

    /// Sleeps while a counter of the replicas is this, until the device says something else, or the time is over.
    pub(super) fn wait_while_replicas(&self, counter: usize, end: u64, time: Duration) {
        let at = (RingPage::replicas_offset(self.lane) + counter) as u64;
        if self.device.wait(at, end as u32, time).is_err() {
            std::thread::sleep(time.min(Duration::from_micros(100)));
        }
    }

    /// The function's role and replication state.
    pub(super) fn peers(&self) -> Peers {
        let flags = self.device.load(16);
        let late = self.device.load(RingPage::LATE_OFFSET as u64);
        Peers {
            role: (flags >> (8 * (RingPage::ROLE_OFFSET - 16))) as u8,
            mode: (flags >> (8 * (RingPage::MODE_OFFSET - 16))) as u8,
            late: late as u16,
            frozen: (late >> (8 * (RingPage::FROZEN_OFFSET - RingPage::LATE_OFFSET))) as u8 != 0,
        }
    }

    /// Up to where the device is asked to replicate.
    pub(super) fn replicate(&self) -> &AtomicU64 {
        self.mine.word(RingLanePage::REPLICATE_OFFSET as u64)
    }

    /// Up to where the device is asked to have its replicas sync.
    pub(super) fn replicate_synced(&self) -> &AtomicU64 {
        self.mine.word(RingLanePage::REPLICATE_SYNCED_OFFSET as u64)
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

    /// The number of the system's error after which the device's backing store takes nothing more.
    pub(super) fn store_error(&self) -> Option<Errno> {
        const WORD: usize = RingPage::STORE_ERROR_OFFSET / 8 * 8;
        let number = self.device.load(WORD as u64) >> (8 * (RingPage::STORE_ERROR_OFFSET - WORD));
        (number != 0).then(|| Errno::from_raw(number as u32 as i32))
    }

    /// Rings outlive the device's process in the drive.
    pub(super) fn survives(&self) -> bool {
        self.device.load(16) & 0xff == 1
    }

    /// The ring of logical pages is full.
    pub(super) fn waits_for_trim(&self) -> bool {
        self.device.load(16) >> 8 & 0xff == 1
    }

    pub(super) fn tail(&self) -> u64 {
        self.mine.load(RingLanePage::TAIL_OFFSET as u64)
    }

    pub(super) fn wanted(&self) -> &AtomicU64 {
        self.mine.word(RingLanePage::WANTED_OFFSET as u64)
    }

    /// Stream offset before which the client needs nothing.
    pub(super) fn unneeded(&self) -> &AtomicU64 {
        self.mine.word(RingLanePage::UNNEEDED_OFFSET as u64)
    }

    /// Bytes before the tail that the device may leave.
    pub(super) fn left(&self) -> &AtomicU64 {
        self.mine.word(RingLanePage::LEFT_OFFSET as u64)
    }

    /// Who is just writing the copy; 0: no process.
    pub(super) fn saver(&self) -> &AtomicU64 {
        self.mine.word(RingLanePage::SAVER_OFFSET as u64)
    }

    /// Sleeps while the copy is written by this one, or the time is over.
    pub(super) fn wait_for_saver(&self, saver: u64, time: Duration) {
        let waiting = self.mine.word(RingLanePage::WAITING_OFFSET as u64);
        waiting.fetch_add(1, Ordering::SeqCst);
        if self.mine.wait(RingLanePage::SAVER_OFFSET as u64, saver as u32, time).is_err() {
            std::thread::sleep(time.min(Duration::from_micros(100)));
        }
        waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// The copy has no writer any more; the next waiter continues.
    pub(super) fn release_saver(&self) {
        self.saver().store(0, Ordering::SeqCst);
        if self.mine.load(RingLanePage::WAITING_OFFSET as u64) != 0 {
            self.mine.wake(RingLanePage::SAVER_OFFSET as u64);
        }
    }

    /// End of what the copy holds, and is synced.
    pub(super) fn saved(&self) -> &AtomicU64 {
        self.mine.word(RingLanePage::SAVED_OFFSET as u64)
    }

    /// Not 0: the copy is not used any more.
    pub(super) fn unsaved(&self) -> &AtomicU64 {
        self.mine.word(RingLanePage::UNSAVED_OFFSET as u64)
    }

    pub(super) fn reserved(&self) -> u64 {
        self.writers().end()
    }

    #[inline]
    pub(super) fn writers(&self) -> Writers<'_> {
        let page = self.mine.page();
        let word = |at: usize| &page[at / LINE][at % LINE / 8];
        let slots =
            page[RingLanePage::SLOTS_OFFSET / LINE..].first_chunk::<RING_SLOTS>().expect("the records are in the page");
        Writers {
            reserve: word(RingLanePage::RESERVE_OFFSET),
            tail: word(RingLanePage::TAIL_OFFSET),
            used: word(RingLanePage::USED_OFFSET),
            slots,
        }
    }

    /// Whether the file still has a name: a device that finds none makes another ring.
    pub(super) fn has_name(&self) -> bool {
        names(self.file.as_fd()).is_ok_and(|names| names > 0)
    }

    /// Whether living processes other than this one are writing: the ring, or its copy.
    pub(super) fn has_other_writers(&self, me: u64) -> bool {
        let writers = self.writers();
        let owners = (0..writers.used()).map(|at| writers.slot(at).owner.load(Ordering::SeqCst));
        let mut owners = owners.chain([self.saver().load(Ordering::SeqCst)]);
        owners.any(|of| of != 0 && of != me && !owner::is_dead(of))
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
    pub(super) fn write(&self, offset: u64, from: &[u8]) {
        let (at, first) = self.parts(offset, from.len());
        let (one, other) = from.split_at(first);
        for (at, bytes) in [(at, one), (0, other)] {
            if !bytes.is_empty() {
                self.data.write(at, bytes);
            }
        }
    }

    /// As [`Ring::write`]. Returns the CRC-32C of what lies before, whose own is `before`, and these bytes.
    #[inline]
    pub(super) fn write_summed(&self, offset: u64, before: u32, from: &[u8]) -> u32 {
        let (at, first) = self.parts(offset, from.len());
        if first == from.len() {
            return self.data.write_summed(at, before, from);
        }
        let (one, other) = from.split_at(first);
        self.data.write_summed(0, self.data.write_summed(at, before, one), other)
    }

    /// Stores a record's header, which lies in one line.
    #[inline]
    pub(super) fn write_header(&self, header: &RecordHeader) {
        self.data.write_header(self.parts(header.lsn, RecordHeader::SIZE).0, header);
    }

    /// Stores a whole record, to the end of its last line: by the caches, or past them. `None`: there is no such way
    /// for this one, and nothing is stored.
    #[inline]
    pub(super) fn write_record(
        &self,
        reserved: Reserved,
        payload: &[u8],
        past: bool,
        header: impl FnOnce(u32) -> RecordHeader,
    ) -> Option<()> {
        let span = (reserved.end - reserved.offset) as usize;
        let (at, first) = self.parts(reserved.offset, span);
        if first == span { self.data.write_record(at, payload, past, header) } else { None }
    }

    /// As [`Ring::write`], past the caches. Asserts that it is whole lines.
    #[inline]
    pub(super) fn stream(&self, offset: u64, from: &[u8]) {
        let (at, first) = self.parts(offset, from.len());
        let (one, other) = from.split_at(first);
        self.data.stream(at, one);
        self.data.stream(0, other);
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

    /// Begins to fetch lines that are stored to next.
    #[inline]
    pub(super) fn fetch_ahead(&self, offset: u64, len: u64) {
        let (at, first) = self.parts(offset, len as usize);
        self.data.fetch_ahead(at, first as u64);
    }

    /// Loads from the ring's pages under a range of the stream, at each step and at the end. The system maps those
    /// around a page that is loaded from as well (all of a huge page, or the 64 KiB that it lies in, where
    /// `fault_around_bytes` is as it comes), and around one that is stored to none.
    pub(super) fn touch(&self, begin: u64, end: u64, step: u64) {
        for at in (begin..end).step_by(step as usize).chain([end - 8]) {
            std::hint::black_box(self.data.load(self.parts(at, 8).0));
        }
    }

    /// Has the processor look up the address of the page that as many bytes will go on to as went before `end`, if it
    /// is another than theirs. Stores past the caches wait for that, and here it happens while a fence waits anyhow.
    #[inline]
    pub(super) fn reach_ahead(&self, end: u64, bytes: u64) {
        let next = end + bytes - 1;
        if (end - 1) ^ next >= PAGE {
            self.fetch_ahead(next & !(RECORD_ALIGN - 1), RECORD_ALIGN);
        }
    }

    /// Makes the tail itself outlive a loss of power: raw bytes have nothing else that tells where they end.
    pub(super) fn write_back_tail(&self) {
        self.mine.write_back(RingLanePage::TAIL_OFFSET as u64, 8);
        fence();
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::{Log, Shared};
    use super::super::options::Options;
    use super::*;
    use crate::lane::OFFSET_END;
    use crate::writers::OFFSETS;
    use tidewater_wire::log::{RING_IDLE, RingSlot};
    use tidewater_wire::vendor::{Epoch, LANES_MAX};

    const RING: u64 = 4096;
    const GENERATION: u64 = 1;

    /// A ring of one lane, of which the device has taken everything up to here, and which is a client's that has
    /// written as far.
    fn ring(taken: u64) -> File {
        let file = tempfile::tempfile().expect("a file");
        let header = RingHeader {
            lanes: 1,
            ring_bytes: RING,
            file_bytes: RingHeader::file_bytes(1, RING),
            ..RingHeader::default()
        };
        let mut lane = [RingLane::new(0, 0, 0, 0); LANES_MAX];
        lane[0] = RingLane::new(GENERATION, taken, taken, taken);
        let page = RingPage { open: true, lane, ..RingPage::default() };
        let mine = RingLanePage {
            tail: taken,
            reserve: taken,
            generation: GENERATION,
            namespace: owner::namespace(),
            begin: taken,
            slot: [RingSlot { first: RING_IDLE, ..RingSlot::default() }; RING_SLOTS],
            ..RingLanePage::default()
        };
        file.set_len(header.file_bytes).expect("there is room");
        file.write_all_at(&header.to_bytes(), 0).expect("there is room");
        file.write_all_at(&page.to_bytes(), RING_FILE_BAR2 + RING_PAGE_OFFSET).expect("there is room");
        file.write_all_at(&mine.to_bytes(), RING_FILE_BAR2 + LANE_PAGES_OFFSET).expect("there is room");
        file
    }

    fn log(taken: u64) -> Log {
        let doorbell = nix::sys::eventfd::EventFd::new().expect("a descriptor").into();
        let shared = Shared { ring: ring(taken).into(), doorbell, copy: None, lane: 0, generation: GENERATION };
        Log::join(shared, Options { full: Duration::ZERO, ..Options::default() }).expect("the file is a ring")
    }

    #[test]
    fn a_stream_ends_where_the_media_has_no_numbers_for_it() {
        let log = log(OFFSET_END - 128);
        assert_eq!(log.append(&[b"last but one"]).expect("there is room").end, OFFSET_END - 64);
        assert_eq!(log.append(&[b"last"]).expect("there is room").end, OFFSET_END);
        let error = log.append(&[b"one more"]).expect_err("no device takes it");
        assert!(error.to_string().contains("used up"), "{error}");
        assert_eq!((log.end(), log.tail()), (OFFSET_END, OFFSET_END), "nothing was appended");
    }

    /// Between the first look at a ring and its taking up, or two takings up, the device may have become primary anew.
    #[test]
    fn records_have_the_epoch_of_the_generation_that_they_are_written_in() {
        let file = ring(64);
        let (mut header, identity) = look_at(&file, 0).expect("the file is a ring");
        let device = file.try_clone().expect("a descriptor");
        let mut ring = Ring::mapped(file, header, identity, 0, &System).expect("the memory can be mapped");
        for (generation, epoch) in [(2, Epoch::new(3, 0)), (3, Epoch::new(5, 1))] {
            (header.generation[0], header.epoch) = (generation, epoch);
            let mut lane = [RingLane::new(0, 0, 0, 0); LANES_MAX];
            lane[0] = RingLane::new(generation, 64, 64, 64);
            let page = RingPage { open: true, lane, ..RingPage::default() };
            device.write_all_at(&header.to_bytes(), 0).expect("there is room");
            device.write_all_at(&page.to_bytes(), RING_FILE_BAR2 + RING_PAGE_OFFSET).expect("there is room");
            assert!(ring.take_up().expect("the ring is valid").is_new);
            assert_eq!((ring.generation, ring.header().epoch), (generation, epoch));
        }
    }

    #[test]
    fn a_ring_that_stands_where_no_stream_can_is_refused_in_words() {
        for taken in [OFFSET_END + 64, OFFSETS / 2 - 64, u64::MAX - 64] {
            let file = ring(taken);
            let (header, identity) = look_at(&file, 0).expect("the file is a ring");
            let mut ring = Ring::mapped(file, header, identity, 0, &System).expect("the memory can be mapped");
            let error = ring.take_up().expect_err("no stream stands there");
            assert!(matches!(error, LogError::Ring(_)), "{error}");
        }
    }
}
