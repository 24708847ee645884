//! Mappings that another process shares, and what orders stores to them.
//!
//! No reference to shared bytes leaves this file but to whole words as atomics; other bytes are copied in and out.
#![allow(unsafe_code)]

use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use tidewater_base::checksum::crc32c_append;
use tidewater_wire::log::RecordHeader;

use super::{cut, stores};

/// Write-back that makes stores outlive a loss of power, where the memory itself does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteBack {
    /// Nothing: the caches are taken to survive, or the memory does not. Stores outlive the process all the same.
    None,
    /// Records are stored past the caches, lines of anything else are written back, and a fence waits for both.
    Lines,
}

/// A shared mapping of part of a file. Offsets are bytes from its start; one that is not inside is a mistake of the
/// caller (asserted).
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
    line_writer: LineWriter,
    /// The processor has what `stores` takes.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    stores: bool,
}

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// The words of a page of 4 KiB, line by line.
pub(super) type Page = [[AtomicU64; LINE / 8]; 4096 / LINE];

/// Bytes of a huge page, as most processors have them.
const HUGE_PAGE: usize = 2 << 20;

/// The instruction that writes a line back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LineWriter {
    /// CLWB: the line stays in the cache.
    Clwb,
    /// CLFLUSHOPT: it leaves the cache.
    Clflushopt,
    /// CLFLUSH: so too, and each waits for the one before.
    Clflush,
    /// None that this knows.
    Unknown,
}

#[cfg(target_arch = "x86_64")]
fn line_writer() -> LineWriter {
    // SAFETY: CPUID is there on every x86-64 processor; leaf 0 tells whether leaf 7 is.
    #[allow(unused_unsafe)]
    let features = unsafe {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 }
    };
    // Intel SDM, volume 2, CPUID, leaf 7: EBX bit 24 CLWB, bit 23 CLFLUSHOPT.
    match features {
        bits if bits >> 24 & 1 == 1 => LineWriter::Clwb,
        bits if bits >> 23 & 1 == 1 => LineWriter::Clflushopt,
        // Part of SSE2.
        _ => LineWriter::Clflush,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn line_writer() -> LineWriter {
    LineWriter::Unknown
}

// SAFETY: the mapping belongs to the process, not to a thread, and stays until it is dropped. Nothing points into it
// but `base`; bytes are copied by raw pointers, words are atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above: accesses from several threads are like those from the other process, which happen anyhow.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset`, a multiple of the page size, so that huge pages of the file can be
    /// huge here. The file must be as long: where it is truncated, an access ends the process.
    ///
    /// # Errors
    /// Those of mmap(2); `EINVAL`: a length of zero, or one that memory does not have.
    pub fn new(file: BorrowedFd<'_>, offset: u64, len: u64, writable: bool) -> Result<Mapping, Errno> {
        let length = usize::try_from(len).ok().and_then(NonZeroUsize::new).ok_or(Errno::EINVAL)?;
        let offset = i64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        if isize::try_from(length.get()).is_err() {
            return Err(Errno::EINVAL);
        }
        // Pages are mapped now, and not one by one in the way of appends.
        Mapping::with_flags(file, offset, length, writable, MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE)
    }

    /// As [`Mapping::new`], writable from the file's start on; pages are mapped when they are first touched.
    ///
    /// # Errors
    /// As [`Mapping::new`].
    pub fn sparse(file: BorrowedFd<'_>, len: u64) -> Result<Mapping, Errno> {
        let length = usize::try_from(len).ok().and_then(NonZeroUsize::new).ok_or(Errno::EINVAL)?;
        Mapping::with_flags(file, 0, length, true, MapFlags::MAP_SHARED)
    }

    fn with_flags(
        file: BorrowedFd<'_>,
        offset: i64,
        length: NonZeroUsize,
        writable: bool,
        flags: MapFlags,
    ) -> Result<Mapping, Errno> {
        let protection = if writable { ProtFlags::PROT_READ | ProtFlags::PROT_WRITE } else { ProtFlags::PROT_READ };
        let place = place_for_huge_pages(offset as usize, length);
        // SAFETY: the kernel chooses an address where nothing is mapped, the one that is proposed or another, so that
        // no memory of this process changes.
        let base = unsafe { mmap(place, length, protection, flags, file, offset)? };
        cut::mapped(base.as_ptr().addr(), length.get());
        Ok(Mapping {
            base: base.cast(),
            len: length.get(),
            writable,
            line_writer: line_writer(),
            stores: stores::are_there(),
        })
    }

    /// Has the file's pages here made huge ones, where it is of a file system in memory and there is room: each process
    /// that maps them then has one entry for 512, and one fault. Whatever the system says, nothing else changes.
    pub(super) fn make_pages_huge(&self) {
        /// `madvise(2)`: Linux 6.1. Unlike other advice it does not ask how the file system was mounted.
        const MADV_COLLAPSE: nix::libc::c_int = 25;
        // SAFETY: the range is the mapping, whose bytes stay as they are.
        let _ = unsafe { nix::libc::madvise(self.base.as_ptr().cast(), self.len, MADV_COLLAPSE) };
    }

    pub(super) fn len(&self) -> u64 {
        self.len as u64
    }

    /// Whether lines can be written back here.
    pub(super) fn writes_back(&self) -> bool {
        self.line_writer != LineWriter::Unknown
    }

    #[inline]
    fn at(&self, offset: u64, len: usize) -> *mut u8 {
        let inside = offset.checked_add(len as u64).is_some_and(|end| end <= self.len as u64);
        if !inside {
            self.outside(offset, len);
        }
        // SAFETY: `offset` is at most `len`, which fits an isize (`new`), so this stays in the mapping or one behind
        // it.
        unsafe { self.base.as_ptr().add(offset as usize) }
    }

    #[cold]
    #[inline(never)]
    fn outside(&self, offset: u64, len: usize) -> ! {
        panic!("bytes {offset} and {len} more of {}", self.len)
    }

    #[inline]
    fn atomic(&self, offset: u64) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8), "a word at {offset}");
        // SAFETY: inside, aligned, since a mapping begins at a page, and there as long as `self`; every other access to
        // it is atomic or by raw pointer.
        unsafe { AtomicU64::from_ptr(self.at(offset, 8).cast()) }
    }

    /// A word that this process may change.
    #[inline]
    pub fn word(&self, offset: u64) -> &AtomicU64 {
        assert!(self.writable, "a mapping that is only read");
        self.atomic(offset)
    }

    /// The words of its first page, line by line, which this process may change: they are checked once, and not each by
    /// itself.
    #[inline]
    pub(super) fn page(&self) -> &Page {
        assert!(self.writable && self.len >= size_of::<Page>(), "a page that is changed");
        // SAFETY: inside, aligned, since a mapping begins at a page, and there as long as `self`; every other access to
        // it is atomic or by raw pointer.
        unsafe { self.base.cast().as_ref() }
    }

    /// A word, as it is now.
    #[inline]
    pub fn load(&self, offset: u64) -> u64 {
        u64::from_le(self.atomic(offset).load(Ordering::Acquire))
    }

    /// Two words, one after the other, as each is now.
    #[inline]
    pub(super) fn pair(&self, offset: u64) -> [u64; 2] {
        assert!(offset.is_multiple_of(8), "words are aligned");
        // SAFETY: inside, aligned, since a mapping begins at a page, and there as long as `self`; as for `atomic`.
        let words: &[AtomicU64; 2] = unsafe { &*self.at(offset, 16).cast() };
        [words[0].load(Ordering::Acquire), words[1].load(Ordering::Acquire)]
    }

    /// Sleeps while the low half of a word is this, until its waiters are woken (FUTEX_WAKE of any
    /// process that has mapped the file), or the time is over. Who is woken looks for themselves.
    ///
    /// # Errors
    /// Those of the system when it could not even wait.
    pub(super) fn wait(&self, offset: u64, low: u32, time: Duration) -> Result<(), Errno> {
        let time = nix::sys::time::TimeSpec::from_duration(time);
        let word: *const AtomicU64 = self.atomic(offset);
        // The word is little-endian, so its low half comes first.
        let expected = u32::from_ne_bytes(low.to_le_bytes());
        // SAFETY: an address of the mapping, and a time that lives until the call returns; nothing is written.
        let result = unsafe {
            let time: *const nix::libc::timespec = time.as_ref();
            nix::libc::syscall(nix::libc::SYS_futex, word, nix::libc::FUTEX_WAIT, expected, time)
        };
        match Errno::result(result) {
            // It has changed; a signal; the time is over.
            Ok(_) | Err(Errno::EAGAIN | Errno::EINTR | Errno::ETIMEDOUT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Wakes the waiters for a word, in any process that has mapped the file.
    pub(super) fn wake(&self, offset: u64) {
        let word: *const AtomicU64 = self.atomic(offset);
        // SAFETY: an address of the mapping, which the kernel takes as the name of a place and neither reads nor
        // writes.
        let _ = unsafe { nix::libc::syscall(nix::libc::SYS_futex, word, nix::libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Copies bytes out of it.
    pub fn read(&self, offset: u64, to: &mut [u8]) {
        let from = self.at(offset, to.len());
        // SAFETY: `at` has checked the range; `to` is memory of this process alone and can't overlap the mapping.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
    }

    /// Copies bytes into it, by the caches.
    #[inline]
    pub fn write(&self, offset: u64, from: &[u8]) {
        assert!(self.writable, "a mapping that is only read");
        let to = self.at(offset, from.len());
        // SAFETY: `at` has checked the range and the mapping is writable; `from` can't overlap it.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    }

    /// As [`Mapping::write`]. Returns the CRC-32C of what lies before, whose own is `before`, and these bytes.
    #[inline]
    pub(super) fn write_summed(&self, offset: u64, before: u32, from: &[u8]) -> u32 {
        #[cfg(target_arch = "x86_64")]
        if self.stores {
            assert!(self.writable, "a mapping that is only read");
            let to = self.at(offset, from.len());
            // SAFETY: the processor has what it takes, and otherwise as `write`.
            return unsafe { stores::copy_summed(to, before, from) };
        }
        self.write(offset, from);
        crc32c_append(before, from)
    }

    /// Stores a record's header by the caches.
    #[inline]
    pub(super) fn write_header(&self, offset: u64, header: &RecordHeader) {
        #[cfg(target_arch = "x86_64")]
        if self.stores {
            assert!(self.writable, "a mapping that is only read");
            let to = self.at(offset, RecordHeader::SIZE);
            // SAFETY: the processor has what it takes, and otherwise as `write`.
            return unsafe { stores::store_header(to, header.before_checksum()) };
        }
        self.write(offset, &header.to_bytes());
    }

    /// Stores a whole record, to the end of its last line: by the caches, or past them. `header` makes the header of
    /// the payload's checksum. `None`: this processor, or a payload as short as this, has no such way. Asserts that the
    /// record begins at a line.
    #[inline]
    pub(super) fn write_record(
        &self,
        offset: u64,
        payload: &[u8],
        past: bool,
        header: impl FnOnce(u32) -> RecordHeader,
    ) -> Option<()> {
        #[cfg(target_arch = "x86_64")]
        if (payload.len() >= stores::FIRST || !past) && self.stores {
            assert!(self.writable && offset.is_multiple_of(LINE as u64), "a record begins at a line that is changed");
            let to = self.at(offset, RecordHeader::span(payload.len() as u64) as usize);
            let header = |checksum| header(checksum).before_checksum();
            // SAFETY: the processor has what it takes; `at` has checked all lines of the record, which begins at a line
            // since the mapping begins at a page; otherwise as `write`.
            unsafe {
                if past {
                    stores::store_past(to, payload, header);
                } else {
                    stores::store_record(to, payload, header);
                }
            }
            return Some(());
        }
        let _ = (offset, payload, past, header);
        None
    }

    #[inline]
    pub(super) fn zero(&self, offset: u64, len: u64) {
        assert!(self.writable, "a mapping that is only read");
        let to = self.at(offset, len as usize);
        // SAFETY: as `write`.
        unsafe { to.write_bytes(0, len as usize) };
    }

    /// As [`Mapping::write`], past the caches. Asserts that it is whole lines.
    #[inline]
    pub(super) fn stream(&self, offset: u64, from: &[u8]) {
        let (lines, rest) = from.as_chunks::<LINE>();
        assert!(rest.is_empty() && offset.is_multiple_of(LINE as u64), "{} bytes at {offset}", from.len());
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
            assert!(self.writable, "a mapping that is only read");
            let to = self.at(offset, from.len());
            for (n, line) in lines.iter().enumerate() {
                for part in 0..LINE / 16 {
                    // SAFETY: the load is of 16 bytes of `line`, the store inside of what `at` has checked, at a
                    // multiple of 16, and the mapping is writable; both are part of SSE2, which x86-64 has.
                    unsafe {
                        let value = _mm_loadu_si128(line.as_ptr().cast::<__m128i>().add(part));
                        _mm_stream_si128(to.cast::<__m128i>().add(n * (LINE / 16) + part), value);
                    }
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = lines;
            self.write(offset, from);
        }
    }

    /// Begins to fetch lines so that they can be stored to.
    #[inline]
    pub(super) fn fetch_ahead(&self, offset: u64, len: u64) {
        #[cfg(target_arch = "x86_64")]
        {
            let begin = self.at(offset, len as usize);
            let mut at = 0;
            while at < len as usize {
                // SAFETY: a hint that changes nothing and faults nowhere; where PREFETCHW is not known it does nothing
                // (AMD64 manual, volume 3).
                unsafe {
                    std::arch::asm!(
                        "prefetchw [{0}]",
                        in(reg) begin.wrapping_add(at),
                        options(nostack, preserves_flags, readonly)
                    )
                };
                at += LINE;
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (offset, len);
    }

    /// Begins to write lines back to memory; [`fence`] waits for them.
    #[inline]
    pub(super) fn write_back(&self, offset: u64, len: u64) {
        let _ = self.at(offset, len as usize);
        #[cfg(target_arch = "x86_64")]
        {
            let mut at = offset & !63;
            while at < offset + len {
                let line = self.at(at, 1);
                // SAFETY: all three instructions take any address that can be read, change no memory, and are only used
                // where CPUID has them.
                unsafe {
                    match self.line_writer {
                        LineWriter::Clwb => {
                            std::arch::asm!("clwb [{0}]", in(reg) line, options(nostack, preserves_flags));
                        }
                        LineWriter::Clflushopt => {
                            std::arch::asm!("clflushopt [{0}]", in(reg) line, options(nostack, preserves_flags));
                        }
                        LineWriter::Clflush => std::arch::x86_64::_mm_clflush(line),
                        LineWriter::Unknown => {}
                    }
                }
                at += 64;
            }
        }
    }
}

/// An address where as many bytes are free, as far into a huge page as the offset is. Until something is mapped there
/// it is a proposal. `None`: what is to be mapped is less than a huge page.
fn place_for_huge_pages(offset: usize, length: NonZeroUsize) -> Option<NonZeroUsize> {
    if length.get() < HUGE_PAGE {
        return None;
    }
    let room = length.checked_add(HUGE_PAGE)?;
    // SAFETY: the kernel chooses an address where nothing is mapped; no other code knows of it before it is unmapped
    // again.
    let free = unsafe {
        let free = mmap_anonymous(None, room, ProtFlags::PROT_NONE, MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE);
        let free = free.ok()?;
        munmap(free, room.get()).ok()?;
        free.addr().get()
    };
    NonZeroUsize::new(free + offset.wrapping_sub(free) % HUGE_PAGE)
}

impl Drop for Mapping {
    fn drop(&mut self) {
        cut::unmapped(self.base.as_ptr().addr());
        // SAFETY: `base` and `len` are what mmap gave, and no access outlives `self`.
        let _ = unsafe { munmap(self.base.cast(), self.len) };
    }
}

/// A word of this process that is zero again in every process that it forks, however that is done. `None`: the system
/// has no such memory.
pub(super) fn zeroed_by_fork() -> Option<&'static AtomicU64> {
    static WORD: OnceLock<Option<usize>> = OnceLock::new();
    let at = WORD.get_or_init(|| {
        let length = NonZeroUsize::new(4096)?;
        let (protection, flags) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE);
        // SAFETY: the kernel chooses an address where nothing is mapped; the page stays for good.
        let page = unsafe { mmap_anonymous(None, length, protection, flags).ok()? };
        // SAFETY: the page above, which no other code knows of.
        let wiped = unsafe { nix::libc::madvise(page.as_ptr(), length.get(), nix::libc::MADV_WIPEONFORK) } == 0;
        wiped.then(|| page.as_ptr().expose_provenance())
    });
    // SAFETY: the first word of a page that stays mapped and that is only accessed as this atomic.
    at.map(|at| unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at)) })
}

/// Waits for stores past the caches, and for lines that are written back.
#[inline]
pub(super) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SFENCE is part of SSE, which x86-64 has.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    /// Bytes of this process's mappings of a file that are mapped as huge pages, by `smaps`.
    fn huge(path: &str) -> u64 {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let of_file = maps.split("VmFlags:").filter(|one| one.contains(path));
        let line = of_file.flat_map(str::lines).filter_map(|line| line.strip_prefix("ShmemPmdMapped:"));
        line.map(|kib| kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10).sum()
    }

    #[test]
    fn a_mapping_lies_so_that_huge_pages_fit_and_has_them_where_the_system_gives_some() {
        let memory = std::path::Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let path = folder.path().join("ring");
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        // Where a ring begins, and one that is too small for a huge page.
        for (offset, len) in [((1 << 20) + 4096, 8 << 20), (4096, 1 << 20)] {
            file.set_len(offset + len).unwrap();
            let bytes: Vec<u8> = (0..len).map(|at| (at / 4096 % 251) as u8).collect();
            file.write_all_at(&bytes, offset).unwrap();
            let of = || Mapping::new(file.as_fd(), offset, len, true).unwrap();
            let mapping = of();
            mapping.make_pages_huge();
            if len >= HUGE_PAGE as u64 {
                assert_eq!((mapping.base.addr().get() as u64 - offset) % HUGE_PAGE as u64, 0);
            }
            mapping.write(5, b"abc");
            let mut found = vec![0; len as usize];
            of().read(0, &mut found);
            assert!(found[..5] == bytes[..5] && &found[5..8] == b"abc" && found[8..] == bytes[8..]);
            println!("{} of {len} bytes are in huge pages", huge(path.to_str().unwrap()));
        }
    }
}
