//! The client's memory: which bus addresses it has lent, and how their bytes are reached.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::stat::{SFlag, fstat};
use nix::sys::statfs::{HUGETLBFS_MAGIC, TMPFS_MAGIC, fstatfs};
use nix::sys::uio::{pread, pwrite};

use tidewater_ipc::{Mapping, PAGE};

/// Ranges that a client may lend at a time, unless said otherwise. A virtual machine lends some ten.
pub const RANGES_MAX: usize = 1024;

/// What a client lends, and how.
#[derive(Debug)]
pub struct Lent {
    /// Bus address, a multiple of 4 KiB.
    pub address: u64,
    /// Bytes: a multiple of 4 KiB, above 0.
    pub size: u64,
    /// The device may read it.
    pub readable: bool,
    /// The device may write it.
    pub writable: bool,
    /// The file that holds the bytes, and where in it; `None`: they are reached by messages only.
    pub file: Option<(OwnedFd, u64)>,
    /// Don't map the file, read and write it.
    pub file_io: bool,
}

/// Why bytes of the client's memory could not be reached. `address` is the first byte that could not; what stands
/// before it may have been copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DmaError {
    /// Nothing is lent there, or not for this direction.
    #[error("bus address {address:#x} is not lent for this access")]
    Unmapped {
        /// Bus address.
        address: u64,
    },
    /// Lent without a descriptor: only messages reach it ([`super::Connection::dma_read`]).
    #[error("bus address {address:#x} is lent without a descriptor")]
    ByMessage {
        /// Bus address.
        address: u64,
    },
    /// The file that holds it failed, or has become shorter.
    #[error("the memory behind bus address {address:#x} failed: {errno}")]
    Io {
        /// Bus address.
        address: u64,
        /// What the system said.
        errno: Errno,
    },
    /// The client did not answer a message in time, answered with an error, or has gone.
    #[error("the client did not answer for bus address {address:#x}")]
    Client {
        /// Bus address.
        address: u64,
    },
}

/// How the bytes of a range are reached.
#[derive(Debug)]
enum Reach {
    Mapped(Mapping),
    File { file: OwnedFd, offset: u64 },
    Message,
}

/// How the bytes of a range are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// By loads and stores.
    Mapped,
    /// By system calls on a file.
    File,
    /// By messages to the client.
    Message,
}

#[derive(Debug)]
struct Range {
    address: u64,
    /// The last byte: a range may end at the end of the address space.
    last: u64,
    readable: bool,
    writable: bool,
    reach: Reach,
}

impl Range {
    /// How many of `len` bytes from `address` it has.
    fn clip(&self, address: u64, len: usize) -> usize {
        // One less than the bytes that are left: there may be 2^64.
        let more = usize::try_from(self.last - address).unwrap_or(usize::MAX);
        len.min(more.saturating_add(1))
    }
}

/// The client's memory as a device sees it. Any thread may use it.
///
/// Copies hold a lock that unmapping waits for: when [`GuestMemory::remove`] has returned, nothing of what was removed
/// is touched any more.
///
/// A client could make the file behind a mapping shorter, and the next access would end this process. So files on a
/// memory file system, huge pages too, that are not sealed against that are mapped with a guard: the access fails
/// instead. Where there can be no more guards, they are read and written by system calls. All other files need
/// [`GuestMemory::trusting`].
#[derive(Debug)]
pub struct GuestMemory {
    ranges: RwLock<Vec<Range>>,
    generation: AtomicU64,
    ranges_max: usize,
    trust: bool,
}

impl Default for GuestMemory {
    fn default() -> GuestMemory {
        GuestMemory::new(RANGES_MAX, false)
    }
}

impl GuestMemory {
    /// No memory yet; at most `ranges_max` ranges. `trust`: see [`GuestMemory::trusting`].
    pub fn new(ranges_max: usize, trust: bool) -> GuestMemory {
        GuestMemory { ranges: RwLock::new(Vec::new()), generation: AtomicU64::new(0), ranges_max, trust }
    }

    /// Maps whatever the client sends, unsealed files, huge pages and devices too, and believes that it never makes
    /// them shorter.
    pub fn trusting(ranges_max: usize) -> GuestMemory {
        GuestMemory::new(ranges_max, true)
    }

    fn ranges(&self) -> RwLockReadGuard<'_, Vec<Range>> {
        self.ranges.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn ranges_mut(&self) -> RwLockWriteGuard<'_, Vec<Range>> {
        // The new generation must not be visible before the change.
        let guard = self.ranges.write().unwrap_or_else(PoisonError::into_inner);
        self.generation.fetch_add(1, Ordering::Release);
        guard
    }

    /// Changes whenever ranges come or go. What was found out about addresses holds while this stays.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What is lent, in ascending order: bus address, last byte, and how it is reached.
    pub fn list(&self) -> Vec<(u64, u64, Reached)> {
        let reached = |range: &Range| match range.reach {
            Reach::Mapped(_) => Reached::Mapped,
            Reach::File { .. } => Reached::File,
            Reach::Message => Reached::Message,
        };
        self.ranges().iter().map(|range| (range.address, range.last, reached(range))).collect()
    }

    /// How many ranges there may be.
    pub fn ranges_max(&self) -> usize {
        self.ranges_max
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.ranges().len()
    }

    /// Whether nothing is lent.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a range.
    ///
    /// # Errors
    /// EINVAL: address, size or offset is not a multiple of 4 KiB, the size is 0, the range passes the end of the
    /// address space, the file is no regular file or too short; EEXIST: part of it is lent already; ENOSPC: too many
    /// ranges; EPERM: the file is of a kind that is only mapped for trusted clients; what mmap says.
    pub fn add(&self, lent: Lent) -> Result<(), Errno> {
        let Lent { address, size, readable, writable, file, file_io } = lent;
        if !address.is_multiple_of(PAGE) || !size.is_multiple_of(PAGE) || size == 0 {
            return Err(Errno::EINVAL);
        }
        let last = address.checked_add(size - 1).ok_or(Errno::EINVAL)?;
        let check = |ranges: &[Range]| {
            let at = ranges.partition_point(|range| range.last < address);
            match ranges.get(at) {
                Some(next) if next.address <= last => Err(Errno::EEXIST),
                _ if ranges.len() >= self.ranges_max => Err(Errno::ENOSPC),
                _ => Ok(at),
            }
        };
        check(&self.ranges())?;
        let reach = match file {
            None => Reach::Message,
            Some((file, offset)) => self.reach(file, offset, size, writable, file_io)?,
        };
        let mut ranges = self.ranges_mut();
        let at = check(&ranges)?;
        ranges.insert(at, Range { address, last, readable, writable, reach });
        Ok(())
    }

    /// How `size` bytes of `file` from `offset` are to be reached.
    fn reach(&self, file: OwnedFd, offset: u64, size: u64, writable: bool, file_io: bool) -> Result<Reach, Errno> {
        let end = offset.checked_add(size).filter(|end| i64::try_from(*end).is_ok()).ok_or(Errno::EINVAL)?;
        if !offset.is_multiple_of(PAGE) {
            return Err(Errno::EINVAL);
        }
        if self.trust {
            if file_io {
                return Ok(Reach::File { file, offset });
            }
            return Mapping::new(file.as_fd(), offset, size, writable).map(Reach::Mapped);
        }
        let status = fstat(&file)?;
        if SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT != SFlag::S_IFREG {
            return Err(Errno::EINVAL);
        }
        let system = fstatfs(&file)?;
        let (system, page) = (system.filesystem_type(), system.block_size() as u64);
        if system != HUGETLBFS_MAGIC && system != TMPFS_MAGIC {
            return Err(Errno::EPERM);
        }
        let is_huge = system == HUGETLBFS_MAGIC;
        if is_huge && (!offset.is_multiple_of(page) || !size.is_multiple_of(page)) {
            return Err(Errno::EINVAL);
        }
        // The seals first: with them, the size that is read next stays.
        let sealed = fcntl(&file, FcntlArg::F_GET_SEALS)
            .is_ok_and(|seals| SealFlag::from_bits_truncate(seals).contains(SealFlag::F_SEAL_SHRINK));
        let length = u64::try_from(fstat(&file)?.st_size).map_err(|_| Errno::EINVAL)?;
        if end > length {
            return Err(Errno::EINVAL);
        }
        if file_io {
            return Ok(Reach::File { file, offset });
        }
        // A huge page can be lacking when it is touched, whatever the seals say.
        if sealed && !is_huge {
            return Mapping::new(file.as_fd(), offset, size, writable).map(Reach::Mapped);
        }
        match Mapping::guarded(file.as_fd(), offset, size, writable) {
            Err(Errno::ENOSPC) if !is_huge => Ok(Reach::File { file, offset }),
            mapping => mapping.map(Reach::Mapped),
        }
    }

    /// Gives back all ranges that lie wholly in the given one, and waits for copies under way. How many there were.
    ///
    /// # Errors
    /// ENOENT: there are none; EINVAL: one lies only partly in it, or the range is empty or passes the end of the
    /// address space.
    pub fn remove(&self, address: u64, size: u64) -> Result<usize, Errno> {
        let last = size.checked_sub(1).and_then(|more| address.checked_add(more)).ok_or(Errno::EINVAL)?;
        let mut ranges = self.ranges_mut();
        let first = ranges.partition_point(|range| range.last < address);
        let behind = ranges.partition_point(|range| range.address <= last);
        let hit = ranges.get(first..behind).unwrap_or_default();
        if hit.is_empty() {
            return Err(Errno::ENOENT);
        }
        if hit.iter().any(|range| range.address < address || range.last > last) {
            return Err(Errno::EINVAL);
        }
        ranges.drain(first..behind);
        Ok(behind - first)
    }

    /// Gives everything back, and waits for copies under way. How many ranges there were.
    pub fn clear(&self) -> usize {
        let mut ranges = self.ranges_mut();
        let count = ranges.len();
        ranges.clear();
        count
    }

    /// How many of `len` bytes from `address` lie in one range that only messages reach.
    pub(super) fn by_message(&self, address: u64, len: usize, writing: bool) -> usize {
        match self.enter().find(address, writing) {
            Ok(range) if matches!(range.reach, Reach::Message) => range.clip(address, len),
            _ => 0,
        }
    }

    /// Starts a group of accesses under one lock: cheaper than single ones. It must be short, and the same thread must
    /// not start another access of any kind before it ends: a change that waits between the two would wait forever.
    pub fn enter(&self) -> Transfers<'_> {
        Transfers { ranges: self.ranges(), last: 0 }
    }

    /// Copies from the client's memory; the bytes may span ranges.
    ///
    /// # Errors
    /// As [`DmaError`] says.
    pub fn read(&self, address: u64, to: &mut [u8]) -> Result<(), DmaError> {
        self.enter().read(address, to)
    }

    /// Copies to the client's memory; the bytes may span ranges.
    ///
    /// # Errors
    /// As [`DmaError`] says.
    pub fn write(&self, address: u64, from: &[u8]) -> Result<(), DmaError> {
        self.enter().write(address, from)
    }
}

/// A group of accesses to the client's memory, during which none of it can be taken away.
#[derive(Debug)]
pub struct Transfers<'a> {
    ranges: RwLockReadGuard<'a, Vec<Range>>,
    /// Where the last access was: the next is often there too.
    last: usize,
}

impl Transfers<'_> {
    /// The range that holds `address`.
    fn find(&mut self, address: u64, writing: bool) -> Result<&Range, DmaError> {
        let holds = |range: &Range| range.address <= address && address <= range.last;
        if !self.ranges.get(self.last).is_some_and(holds) {
            self.last = self.ranges.partition_point(|range| range.last < address);
        }
        match self.ranges.get(self.last) {
            Some(range) if holds(range) && if writing { range.writable } else { range.readable } => Ok(range),
            _ => Err(DmaError::Unmapped { address }),
        }
    }

    /// The range that holds `address` and how many of `len` bytes it has from there, if it can be copied from or to at
    /// once.
    fn piece(&mut self, address: u64, len: usize, writing: bool) -> Result<(&Range, usize), DmaError> {
        let range = self.find(address, writing)?;
        if matches!(range.reach, Reach::Message) {
            return Err(DmaError::ByMessage { address });
        }
        Ok((range, range.clip(address, len)))
    }

    /// As [`GuestMemory::read`].
    ///
    /// # Errors
    /// As [`DmaError`] says.
    pub fn read(&mut self, mut address: u64, mut to: &mut [u8]) -> Result<(), DmaError> {
        while !to.is_empty() {
            let (range, len) = self.piece(address, to.len(), false)?;
            let (piece, rest) = to.split_at_mut(len);
            let within = address - range.address;
            match &range.reach {
                Reach::Mapped(mapping) => {
                    assert!(mapping.read(within, piece), "a range is as long as its mapping");
                    intact(mapping, address)?;
                }
                Reach::File { file, offset } => {
                    file_io(address, len, |done| {
                        pread(file, &mut piece[done..], (offset + within) as i64 + done as i64)
                    })?;
                }
                Reach::Message => return Err(DmaError::ByMessage { address }),
            }
            // Wraps only when nothing is left: a range ends at the end of the address space at the latest.
            address = address.wrapping_add(len as u64);
            if address == 0 && !rest.is_empty() {
                return Err(DmaError::Unmapped { address: u64::MAX });
            }
            to = rest;
        }
        Ok(())
    }

    /// As [`GuestMemory::write`].
    ///
    /// # Errors
    /// As [`DmaError`] says.
    pub fn write(&mut self, mut address: u64, mut from: &[u8]) -> Result<(), DmaError> {
        while !from.is_empty() {
            let (range, len) = self.piece(address, from.len(), true)?;
            let (piece, rest) = from.split_at(len);
            let within = address - range.address;
            match &range.reach {
                Reach::Mapped(mapping) => {
                    assert!(mapping.write(within, piece), "a range is as long as its mapping");
                    intact(mapping, address)?;
                }
                Reach::File { file, offset } => {
                    // A write behind its end would make a shortened file longer again, and what was lent would be a
                    // hole.
                    let end = offset + within + len as u64;
                    let length = fstat(file).map_err(|errno| DmaError::Io { address, errno })?.st_size;
                    if u64::try_from(length).unwrap_or(0) < end {
                        return Err(DmaError::Io { address, errno: Errno::ENXIO });
                    }
                    file_io(address, len, |done| pwrite(file, &piece[done..], (offset + within) as i64 + done as i64))?;
                }
                Reach::Message => return Err(DmaError::ByMessage { address }),
            }
            address = address.wrapping_add(len as u64);
            if address == 0 && !rest.is_empty() {
                return Err(DmaError::Unmapped { address: u64::MAX });
            }
            from = rest;
        }
        Ok(())
    }

    /// Loads 4 bytes at an aligned address at once, before all that is read after it: a doorbell that the client
    /// stores.
    ///
    /// # Errors
    /// As [`DmaError`] says; an address that is not aligned counts as unmapped.
    pub fn load_u32(&mut self, address: u64) -> Result<u32, DmaError> {
        let (range, _) = self.piece(address, 4, false)?;
        if let Reach::Mapped(mapping) = &range.reach {
            let value = mapping.load_u32(address - range.address).ok_or(DmaError::Unmapped { address })?;
            return intact(mapping, address).map(|()| value);
        }
        if !address.is_multiple_of(4) {
            return Err(DmaError::Unmapped { address });
        }
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Stores 4 bytes at an aligned address at once, behind all that was written before.
    ///
    /// # Errors
    /// As [`Transfers::load_u32`].
    pub fn store_u32(&mut self, address: u64, value: u32) -> Result<(), DmaError> {
        let (range, _) = self.piece(address, 4, true)?;
        if let Reach::Mapped(mapping) = &range.reach {
            let stored = mapping.store_u32(address - range.address, value);
            return if stored { intact(mapping, address) } else { Err(DmaError::Unmapped { address }) };
        }
        if !address.is_multiple_of(4) {
            return Err(DmaError::Unmapped { address });
        }
        self.write(address, &value.to_le_bytes())
    }

    /// Writes a completion queue entry: its second half, which holds the phase tag, is stored at once and last, so that
    /// a client that polls it never sees half an entry. `address` is a multiple of 16.
    ///
    /// # Errors
    /// As [`Transfers::load_u32`].
    pub fn write_cqe(&mut self, address: u64, entry: &[u8; 16]) -> Result<(), DmaError> {
        let (first, second) = entry.split_at(8);
        self.write(address, first)?;
        let tail = address.wrapping_add(8);
        let (range, _) = self.piece(tail, 8, true)?;
        if let Reach::Mapped(mapping) = &range.reach {
            let word = u64::from_le_bytes(second.try_into().expect("half of 16 bytes"));
            let stored = mapping.store_u64(tail - range.address, word);
            return if stored { intact(mapping, tail) } else { Err(DmaError::Unmapped { address }) };
        }
        self.write(tail, second)
    }
}

/// Whether an access to a mapping at `address` counts.
#[inline]
fn intact(mapping: &Mapping, address: u64) -> Result<(), DmaError> {
    if mapping.is_lost() { Err(DmaError::Io { address, errno: Errno::ENXIO }) } else { Ok(()) }
}

/// Repeats a read or write of a file until `len` bytes are through. A file that ends early has been made shorter.
fn file_io(address: u64, len: usize, mut once: impl FnMut(usize) -> Result<usize, Errno>) -> Result<(), DmaError> {
    let mut done = 0;
    while done < len {
        match once(done) {
            Ok(0) => return Err(DmaError::Io { address: address + done as u64, errno: Errno::ENXIO }),
            Ok(more) => done += more,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(DmaError::Io { address: address + done as u64, errno }),
        }
    }
    Ok(())
}
