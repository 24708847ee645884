//! Access to a function of this machine: mappings of its BARs, and the kernel's passthrough of commands.
//!
//! A BAR is not memory: every access is one of a width that is meant, in the order that is written here, and never
//! repeated or left out.
#![allow(unsafe_code)]

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use tidewater_wire::nvme::{Sqe, Status};

use crate::Completion;

/// A BAR, or the start of one.
#[derive(Debug)]
pub(super) struct Bar {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is this value's alone, and belongs to no thread: any may use it, one at a time.
unsafe impl Send for Bar {}

impl Bar {
    /// Maps `len` bytes from the start of a function's `resourceN`.
    pub(super) fn map(file: &File, len: u64) -> Result<Bar, Errno> {
        let length = usize::try_from(len).ok().and_then(NonZeroUsize::new).ok_or(Errno::EINVAL)?;
        if isize::try_from(length.get()).is_err() {
            return Err(Errno::EINVAL);
        }
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the kernel chooses an address where nothing is mapped, so that no memory of this process changes.
        let base = unsafe { mmap(None, length, protection, MapFlags::MAP_SHARED, file, 0)? };
        Ok(Bar { base: base.cast(), len: length.get() })
    }

    /// Bytes.
    pub(super) fn len(&self) -> u64 {
        self.len as u64
    }

    /// Where `len` bytes at `offset` are. Asserts that all of them are inside: what a device says of its BARs is
    /// checked before.
    fn at(&self, offset: u64, len: usize) -> *mut u8 {
        let inside = offset.checked_add(len as u64).is_some_and(|end| end <= self.len as u64);
        assert!(inside, "bytes {offset} and {len} more of {}", self.len);
        // SAFETY: `offset` is at most `len`, which fits an isize (`map`), so this stays in the mapping or one behind
        // it.
        unsafe { self.base.as_ptr().add(offset as usize) }
    }

    /// Loads bytes: whole words of 8 where the offset allows, and single bytes before and behind them.
    pub(super) fn load(&self, offset: u64, to: &mut [u8]) {
        let from = self.at(offset, to.len());
        let mut at = 0;
        while at < to.len() {
            // SAFETY: `from` and the bytes behind it are inside (`at`), and the word is aligned: a mapping begins at a
            // page.
            at += unsafe {
                let from = from.add(at);
                if (offset + at as u64).is_multiple_of(8) && to.len() - at >= 8 {
                    let word = from.cast::<u64>().read_volatile();
                    to[at..at + 8].copy_from_slice(&word.to_ne_bytes());
                    8
                } else if (offset + at as u64).is_multiple_of(4) && to.len() - at >= 4 {
                    let word = from.cast::<u32>().read_volatile();
                    to[at..at + 4].copy_from_slice(&word.to_ne_bytes());
                    4
                } else {
                    to[at] = from.read_volatile();
                    1
                }
            };
        }
    }

    /// Stores bytes, as [`Bar::load`] loads them.
    pub(super) fn store(&self, offset: u64, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            // SAFETY: as `load`; the mapping is writable.
            at += unsafe {
                let to = to.add(at);
                match (offset + at as u64, rest.first_chunk::<8>(), rest.first_chunk::<4>()) {
                    (place, Some(word), _) if place.is_multiple_of(8) => {
                        to.cast::<u64>().write_volatile(u64::from_ne_bytes(*word));
                        8
                    }
                    (place, _, Some(word)) if place.is_multiple_of(4) => {
                        to.cast::<u32>().write_volatile(u32::from_ne_bytes(*word));
                        4
                    }
                    _ => {
                        to.write_volatile(rest[0]);
                        1
                    }
                }
            };
        }
    }

    /// Flushes the cache lines that hold some bytes. Nothing where the mapping is not cached, as it should be.
    pub(super) fn flush_lines(&self, offset: u64, len: u64) {
        let _ = self.at(offset, len as usize);
        #[cfg(target_arch = "x86_64")]
        {
            let mut line = offset & !63;
            while line < offset + len {
                // SAFETY: CLFLUSH is part of SSE2, which x86-64 has; it takes any address that can be read, and changes
                // no memory.
                unsafe { std::arch::x86_64::_mm_clflush(self.at(line, 1)) };
                line += 64;
            }
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are what mmap gave, and no access outlives `self`.
        let _ = unsafe { munmap(self.base.cast(), self.len) };
    }
}

/// Lets all stores and loads before leave the processor before any after: write-combined stores too.
pub(super) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: MFENCE is part of SSE2, which x86-64 has.
    unsafe {
        std::arch::x86_64::_mm_mfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// `struct nvme_passthru_cmd` of `linux/nvme_ioctl.h`.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Passthrough {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    address: u64,
    metadata_bytes: u32,
    data_bytes: u32,
    cdw10: [u32; 6],
    timeout_ms: u32,
    result: u32,
}

mod ioctl {
    use super::Passthrough;
    // `NVME_IOCTL_ADMIN_CMD` and `NVME_IOCTL_IO_CMD`.
    nix::ioctl_readwrite!(admin, b'N', 0x41, Passthrough);
    nix::ioctl_readwrite!(io, b'N', 0x43, Passthrough);
}

/// Gives a command to the kernel's driver: an admin command to a controller's file, or an I/O command to a namespace's.
/// The command's data are all of `data`; which way they go, the kernel takes from the opcode.
pub(super) fn pass(file: &File, admin: bool, sqe: &Sqe, data: &mut [u8], time_ms: u32) -> Result<Completion, Errno> {
    let words = sqe.dwords();
    let mut command = Passthrough {
        opcode: sqe.opcode(),
        nsid: sqe.nsid(),
        cdw2: words[2],
        cdw3: words[3],
        address: data.as_mut_ptr() as u64,
        data_bytes: u32::try_from(data.len()).map_err(|_| Errno::EINVAL)?,
        cdw10: [words[10], words[11], words[12], words[13], words[14], words[15]],
        timeout_ms: time_ms,
        ..Passthrough::default()
    };
    // SAFETY: the structure is that of the kernel's header (its size is checked below), `address` and `data_bytes` name
    // bytes that this call alone borrows, and the kernel is through with them when it returns.
    let status = unsafe {
        match admin {
            true => ioctl::admin(file.as_raw_fd(), &mut command)?,
            false => ioctl::io(file.as_raw_fd(), &mut command)?,
        }
    };
    // What is not negative is the status field of the completion.
    Ok(Completion { status: Status::from_bits(status as u16), result: command.result })
}

const _: () = assert!(size_of::<Passthrough>() == 72);

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a file instead of a BAR's: what is checked is which go where.
    #[test]
    fn bytes_go_where_they_are_meant_at_every_alignment() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(4096).expect("a file");
        let bar = Bar::map(&file, 4096).expect("a mapping");
        let bytes: Vec<u8> = (1..=40).collect();
        for offset in 0..17 {
            for len in 0..bytes.len() {
                bar.store(0, &[0; 128]);
                bar.store(offset, &bytes[..len]);
                let mut read = [0; 128];
                bar.load(0, &mut read);
                let mut want = [0; 128];
                want[offset as usize..][..len].copy_from_slice(&bytes[..len]);
                assert_eq!(read, want, "{len} bytes at {offset}");
                let mut read = vec![0; len];
                bar.load(offset, &mut read);
                assert_eq!(read, bytes[..len], "{len} bytes at {offset}");
            }
        }
        bar.flush_lines(100, 200);
        fence();
        assert_eq!(bar.len(), 4096);
    }
}
