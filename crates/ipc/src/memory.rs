//! Memory that two processes share: mappings of descriptors, and the memories that this process lends.
//!
//! Nothing here hands out a reference to shared bytes: the other side may change them at any time. They are copied in
//! and out, or loaded and stored as whole words.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::guard::Guard;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::ftruncate;

/// Bytes of a page: what mappings are aligned to.
pub const PAGE: u64 = 4096;

/// A shared mapping of part of a file.
///
/// All offsets are bytes from its start; an access beyond its end copies nothing and says `false` or `None`. Where the
/// file can shrink under it, an access ends the process (SIGBUS), unless the mapping is [guarded](Mapping::guarded).
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
    guard: Option<Guard>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and stays until it is dropped. Nothing points into it
// but `base`, and bytes are only ever copied by raw pointers or accessed as atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above: accesses from several threads are like those from the other process, which happen anyhow.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset`, which is a multiple of the page size.
    ///
    /// # Errors
    /// EINVAL for a length of 0, an offset that isn't aligned, or a sum beyond what the system can map; what mmap says
    /// otherwise.
    pub fn new(file: BorrowedFd<'_>, offset: u64, len: u64, writable: bool) -> Result<Mapping, Errno> {
        let length = usize::try_from(len).ok().and_then(NonZeroUsize::new).ok_or(Errno::EINVAL)?;
        let offset = i64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        if isize::try_from(length.get()).is_err() {
            return Err(Errno::EINVAL);
        }
        let protection = if writable { ProtFlags::PROT_READ | ProtFlags::PROT_WRITE } else { ProtFlags::PROT_READ };
        // SAFETY: the kernel chooses an address where nothing is mapped, so that no memory of this process changes.
        let base = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, file, offset)? };
        Ok(Mapping { base: base.cast(), len: length.get(), writable, guard: None })
    }

    /// As [`Mapping::new`], of a file that another process can make shorter: an access behind its end then reads or
    /// writes zeroes that are not the file's, and [`Mapping::is_lost`] says so from then on.
    ///
    /// # Errors
    /// As [`Mapping::new`]; ENOSPC: there are as many such mappings as there can be.
    pub fn guarded(file: BorrowedFd<'_>, offset: u64, len: u64, writable: bool) -> Result<Mapping, Errno> {
        let mut mapping = Mapping::new(file, offset, len, writable)?;
        mapping.guard = Some(Guard::new(mapping.base.cast().as_ptr(), mapping.len)?);
        Ok(mapping)
    }

    /// Whether the file was found shorter than what is mapped of it: no access since then, and not the one that found
    /// it, counts.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::is_lost)
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.len as u64
    }

    /// Whether there is nothing in it: never.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it can be written.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Where `len` bytes at `offset` start, if all of them are inside.
    fn at(&self, offset: u64, len: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len as u64)?;
        if end > self.len as u64 {
            return None;
        }
        // SAFETY: `offset` is at most `len`, which fits an isize (`new`), so this stays in the mapping or one behind
        // it.
        Some(unsafe { self.base.add(offset as usize) })
    }

    /// Wakes all threads of any process that wait for the word at `offset` of the same file to change (FUTEX_WAIT). The
    /// word is not touched: also where the file was truncated, nothing but this call fails.
    pub fn wake(&self, offset: u64) {
        let Some(at) = self.at(offset, 4).filter(|_| offset.is_multiple_of(4)) else { return };
        // SAFETY: the kernel takes the address as the name of a place in a file, and neither reads nor writes there.
        let _ = unsafe { libc::syscall(libc::SYS_futex, at.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Copies bytes out. `false`: they are not all inside, and nothing was copied.
    #[must_use]
    pub fn read(&self, offset: u64, to: &mut [u8]) -> bool {
        let Some(from) = self.at(offset, to.len()) else { return false };
        // SAFETY: `at` has checked the range; `to` is memory of this process alone and can't overlap the mapping.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), to.len()) };
        true
    }

    /// Copies bytes in. `false`: they are not all inside or it is read-only, and nothing was copied.
    #[must_use]
    pub fn write(&self, offset: u64, from: &[u8]) -> bool {
        let Some(to) = self.at(offset, from.len()).filter(|_| self.writable) else { return false };
        // SAFETY: `at` has checked the range and the mapping is writable; `from` can't overlap it.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
        true
    }

    /// Fills bytes. `false`: as [`Mapping::write`].
    #[must_use]
    pub fn fill(&self, offset: u64, len: u64, value: u8) -> bool {
        let Ok(len) = usize::try_from(len) else { return false };
        let Some(to) = self.at(offset, len).filter(|_| self.writable) else { return false };
        // SAFETY: `at` has checked the range, and the mapping is writable.
        unsafe { to.write_bytes(value, len) };
        true
    }

    /// The word at `offset`, which must be aligned to it.
    fn word32(&self, offset: u64) -> Option<&AtomicU32> {
        let at = self.at(offset, 4).filter(|_| offset.is_multiple_of(4))?;
        // SAFETY: inside the mapping, which lives as long as `self`; aligned, since the mapping starts at a page; and
        // every other access in this process is by raw pointer or atomic.
        Some(unsafe { AtomicU32::from_ptr(at.cast().as_ptr()) })
    }

    /// The double word at `offset`, which must be aligned to it.
    fn word64(&self, offset: u64) -> Option<&AtomicU64> {
        let at = self.at(offset, 8).filter(|_| offset.is_multiple_of(8))?;
        // SAFETY: as `word32`.
        Some(unsafe { AtomicU64::from_ptr(at.cast().as_ptr()) })
    }

    /// Loads 4 bytes, with acquire ordering. `None`: not inside, or not aligned.
    pub fn load_u32(&self, offset: u64) -> Option<u32> {
        Some(u32::from_le(self.word32(offset)?.load(Ordering::Acquire)))
    }

    /// Loads 8 bytes, with acquire ordering. `None`: not inside, or not aligned.
    pub fn load_u64(&self, offset: u64) -> Option<u64> {
        Some(u64::from_le(self.word64(offset)?.load(Ordering::Acquire)))
    }

    /// Stores 4 bytes, behind all that was stored before. `false`: not inside, not aligned, or read-only.
    #[must_use]
    pub fn store_u32(&self, offset: u64, value: u32) -> bool {
        let Some(word) = self.word32(offset).filter(|_| self.writable) else { return false };
        word.store(value.to_le(), Ordering::Release);
        true
    }

    /// Stores 4 bytes where `old` stands, and only there. `false`: another value stands there, or as
    /// [`Mapping::store_u32`].
    #[must_use]
    pub fn replace_u32(&self, offset: u64, old: u32, new: u32) -> bool {
        let Some(word) = self.word32(offset).filter(|_| self.writable) else { return false };
        word.compare_exchange(old.to_le(), new.to_le(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Stores 8 bytes, behind all that was stored before. `false`: not inside, not aligned, or read-only.
    #[must_use]
    pub fn store_u64(&self, offset: u64, value: u64) -> bool {
        let Some(word) = self.word64(offset).filter(|_| self.writable) else { return false };
        word.store(value.to_le(), Ordering::Release);
        true
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // Its guard first: what is mapped there next is not guarded.
        self.guard = None;
        // SAFETY: `base` and `len` are what mmap gave, and no access outlives `self`.
        let _ = unsafe { munmap(self.base.cast(), self.len) };
    }
}

/// Memory of this process that it lends to others by descriptor: a memfd that is sealed, so that no process can change
/// its size, with a mapping of it.
#[derive(Debug)]
pub struct SharedMemory {
    file: OwnedFd,
    mapping: Mapping,
}

impl SharedMemory {
    /// `len` bytes of zeroes, rounded up to whole pages. `name` is shown in lists of the process's mappings.
    ///
    /// # Errors
    /// EINVAL for a length of 0 or beyond what can be mapped, or a name with a zero byte; ENOMEM, EMFILE.
    pub fn new(name: &str, len: u64) -> Result<SharedMemory, Errno> {
        let len = len.checked_next_multiple_of(PAGE).ok_or(Errno::EINVAL)?;
        let name = CString::new(name).map_err(|_| Errno::EINVAL)?;
        let file = memfd_create(name.as_c_str(), MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)?;
        ftruncate(&file, i64::try_from(len).map_err(|_| Errno::EINVAL)?)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        let mapping = Mapping::new(file.as_fd(), 0, len, true)?;
        Ok(SharedMemory { file, mapping })
    }

    /// The bytes.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

impl AsFd for SharedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl std::ops::Deref for SharedMemory {
    type Target = Mapping;

    fn deref(&self) -> &Mapping {
        &self.mapping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_nothing_reaches_beyond() {
        let memory = SharedMemory::new("test", 5000).expect("a memfd");
        assert_eq!(memory.len(), 2 * PAGE);
        assert!(!memory.is_empty() && memory.is_writable());
        let other = Mapping::new(memory.as_fd(), PAGE, PAGE, false).expect("a second mapping");
        assert!(memory.write(PAGE + 3, b"tide"));
        let mut bytes = [0; 4];
        assert!(other.read(3, &mut bytes));
        assert_eq!(&bytes, b"tide");
        assert!(!other.write(0, b"x") && !other.store_u32(0, 1) && !other.fill(0, 1, 0), "a read-only mapping");

        for (offset, len) in [(2 * PAGE - 3, 4), (2 * PAGE, 1), (u64::MAX, 1), (u64::MAX - 3, 8)] {
            let mut bytes = vec![0; len];
            assert!(!memory.read(offset, &mut bytes) && !memory.write(offset, &bytes), "{offset:#x}");
            assert!(!memory.fill(offset, len as u64, 1), "{offset:#x}");
        }
        assert!(!memory.fill(0, u64::MAX, 1));
        assert!(memory.read(2 * PAGE, &mut []), "nothing, at the very end");
    }

    #[test]
    fn words_are_little_endian_and_aligned() {
        let memory = SharedMemory::new("test", PAGE).expect("a memfd");
        assert!(memory.store_u32(4, 0x0403_0201) && memory.store_u64(8, 0x0807_0605_0403_0201));
        let mut bytes = [0; 16];
        assert!(memory.read(0, &mut bytes));
        assert_eq!(bytes, [0, 0, 0, 0, 1, 2, 3, 4, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((memory.load_u32(4), memory.load_u64(8)), (Some(0x0403_0201), Some(0x0807_0605_0403_0201)));
        assert_eq!((memory.load_u32(2), memory.load_u64(4), memory.load_u32(PAGE)), (None, None, None));
        assert!(!memory.store_u32(1, 0) && !memory.store_u64(PAGE - 4, 0));
        assert!(memory.fill(5, 2, 0xFF));
        assert_eq!(memory.load_u32(4), Some(0x04FF_FF01));
    }

    #[test]
    fn the_size_of_what_is_lent_can_not_be_changed() {
        let memory = SharedMemory::new("test", PAGE).expect("a memfd");
        assert_eq!(ftruncate(memory.as_fd(), 0), Err(Errno::EPERM));
        assert_eq!(ftruncate(memory.as_fd(), 3 * PAGE as i64), Err(Errno::EPERM));
        assert_eq!(fcntl(memory.as_fd(), FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE)), Err(Errno::EPERM));
    }

    #[test]
    fn what_can_not_be_mapped_is_said() {
        let memory = SharedMemory::new("test", PAGE).expect("a memfd");
        for (offset, len) in [(0, 0), (1, PAGE), (0, u64::MAX), (u64::MAX, PAGE), (0, 1 << 63)] {
            assert_eq!(Mapping::new(memory.as_fd(), offset, len, true).err(), Some(Errno::EINVAL), "{offset} {len}");
        }
        assert_eq!(SharedMemory::new("test", 0).err(), Some(Errno::EINVAL));
        assert_eq!(SharedMemory::new("a\0b", PAGE).err(), Some(Errno::EINVAL));
        assert!(SharedMemory::new("test", u64::MAX).is_err());
    }
}
