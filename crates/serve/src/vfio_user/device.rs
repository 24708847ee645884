//! What a function looks like from outside: its regions, its memory and its interrupts.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::errno::Errno;
use tidewater_wire::vfio_user::{Area, region};

use super::doorbell::Doorbell;
use super::guest::GuestMemory;
use super::interrupts::Interrupts;
use tidewater_ipc::{PAGE, SharedMemory};

/// What handles a function's registers. Its methods are called on the thread of the function's socket, one at a time,
/// and the client waits meanwhile: QEMU for no more than five seconds.
pub trait Function: Send + Sync {
    /// Reads bytes of a region: a BAR, or the configuration space. They lie inside of the region, and outside of what
    /// is shared.
    ///
    /// # Errors
    /// What the client gets; it reads ones then.
    fn region_read(&self, region: u32, offset: u64, to: &mut [u8]) -> Result<(), Errno>;

    /// Writes bytes of a region. They lie inside of the region, and outside of what is shared.
    ///
    /// # Errors
    /// What the client gets.
    fn region_write(&self, region: u32, offset: u64, from: &[u8]) -> Result<(), Errno>;

    /// Bytes of a region's shared part have been stored by a message, not by a mapping.
    fn stored(&self, _region: u32) {}

    /// The function is reset: as after power-on.
    ///
    /// # Errors
    /// What the client gets.
    fn reset(&self) -> Result<(), Errno>;

    /// A client has come, and has agreed on a version.
    fn connected(&self, connection: &Arc<super::Connection>);

    /// The client has gone. Its memory and its interrupts are gone already; registers and state stay for the next one.
    fn disconnected(&self);
}

/// A region of a function.
#[derive(Clone, Debug, Default)]
pub struct Region {
    /// Bytes; 0: there is no such region.
    pub size: u64,
    /// The memory that the client may map, as long as the region: its bytes are the region's there.
    pub shared: Option<Arc<SharedMemory>>,
    /// Or the file that it may map, and where in it the region begins. What is not mapped, and messages, go to the
    /// function.
    pub file: Option<(Arc<File>, u64)>,
    /// Which parts of it: whole pages, in ascending order. What is outside is trapped.
    pub areas: Vec<Area>,
    /// Where a write may be an event instead.
    pub doorbell: Option<Arc<Doorbell>>,
}

impl Region {
    /// No such region.
    pub const NONE: Region = Region { size: 0, shared: None, file: None, areas: Vec::new(), doorbell: None };

    /// A region where every access is trapped.
    pub fn trapped(size: u64) -> Region {
        Region { size, ..Region::NONE }
    }

    /// A region of which `areas` can be mapped. Asserts that they are whole pages, in ascending order, inside of both
    /// `size` and the memory.
    pub fn mapped(size: u64, shared: Arc<SharedMemory>, areas: Vec<Area>) -> Region {
        let region = Region { shared: Some(Arc::clone(&shared)), ..Region::of_areas(size, areas) };
        let end = region.areas.last().map_or(0, |area| area.offset + area.size);
        assert!(end <= shared.len(), "areas end at {end:#x}, the memory at {:#x}", shared.len());
        region
    }

    fn of_areas(size: u64, areas: Vec<Area>) -> Region {
        let mut end = 0;
        for area in &areas {
            assert!(area.offset.is_multiple_of(PAGE) && area.size.is_multiple_of(PAGE) && area.size > 0, "{area:?}");
            assert!(area.offset >= end, "{area:?} begins before {end:#x}");
            end = area.offset + area.size;
        }
        assert!(end <= size, "areas end at {end:#x}, the region at {size:#x}");
        Region { size, areas, ..Region::NONE }
    }

    /// A region of which `areas` can be mapped by a file in which the region begins at byte `offset`. Asserts that they
    /// are whole pages, in ascending order, inside of `size`.
    pub fn of_file(size: u64, file: Arc<File>, offset: u64, areas: Vec<Area>) -> Region {
        Region { file: Some((file, offset)), ..Region::of_areas(size, areas) }
    }

    /// The descriptor by which it is mapped, and where it begins there.
    pub fn descriptor(&self) -> Option<(BorrowedFd<'_>, u64)> {
        match (&self.shared, &self.file) {
            _ if self.areas.is_empty() => None,
            (Some(memory), _) => Some((memory.as_fd(), 0)),
            (None, Some((file, offset))) => Some((file.as_fd(), *offset)),
            (None, None) => None,
        }
    }

    /// Whether all of it can be mapped.
    pub fn is_whole(&self) -> bool {
        matches!(self.areas.as_slice(), [area] if area.offset == 0 && area.size == self.size)
    }

    /// The part that `offset` is in: how many bytes of it there are from `offset`, and whether it is shared.
    fn part(&self, offset: u64) -> (u64, bool) {
        for area in &self.areas {
            if offset < area.offset {
                return (area.offset - offset, false);
            }
            if offset - area.offset < area.size {
                return (area.size - (offset - area.offset), true);
            }
        }
        (self.size - offset, false)
    }

    /// Cuts an access into pieces that are shared or trapped as a whole: offset, place in the access, bytes, shared.
    ///
    /// # Errors
    /// EINVAL: it is empty, or not all of it is inside of the region.
    fn pieces(&self, offset: u64, len: usize) -> Result<impl Iterator<Item = (u64, usize, usize, bool)> + '_, Errno> {
        if len == 0 || offset.checked_add(len as u64).is_none_or(|end| end > self.size) {
            return Err(Errno::EINVAL);
        }
        let mut done = 0;
        Ok(std::iter::from_fn(move || {
            if done == len {
                return None;
            }
            let at = offset + done as u64;
            let (size, shared) = self.part(at);
            let size = usize::try_from(size).unwrap_or(usize::MAX).min(len - done);
            done += size;
            Some((at, done - size, size, shared))
        }))
    }
}

/// A PCI function as its client sees it.
#[derive(Debug)]
pub struct Device {
    /// BARs 0 to 5, the expansion ROM, the configuration space, VGA.
    pub regions: [Region; region::COUNT as usize],
    /// The copy of the function's mapped ring ([`region::RING_COPY`]).
    pub copy: Region,
    /// The client's memory.
    pub memory: Arc<GuestMemory>,
    /// Where interrupts go.
    pub interrupts: Arc<Interrupts>,
}

impl Device {
    /// A region by its number.
    ///
    /// # Errors
    /// EINVAL: there is none of that number.
    pub fn region(&self, index: u32) -> Result<&Region, Errno> {
        let copy = Some(&self.copy).filter(|copy| index == region::RING_COPY && copy.size > 0);
        let found = copy.or(self.regions.get(index as usize));
        found.ok_or(Errno::EINVAL)
    }

    /// Reads bytes of a region: those of shared parts from memory, others from the function.
    pub(super) fn read(&self, function: &dyn Function, index: u32, offset: u64, to: &mut [u8]) -> Result<(), Errno> {
        let region = self.region(index)?;
        for (at, from, len, shared) in region.pieces(offset, to.len())? {
            let to = &mut to[from..from + len];
            match region.shared.as_ref().filter(|_| shared) {
                Some(memory) => assert!(memory.read(at, to), "areas lie inside of their memory"),
                None => function.region_read(index, at, to)?,
            }
        }
        Ok(())
    }

    /// Writes bytes of a region: those of shared parts to memory, others to the function.
    pub(super) fn write(&self, function: &dyn Function, index: u32, offset: u64, from: &[u8]) -> Result<(), Errno> {
        let region = self.region(index)?;
        for (at, first, len, shared) in region.pieces(offset, from.len())? {
            let from = &from[first..first + len];
            match region.shared.as_ref().filter(|_| shared) {
                Some(memory) => {
                    store(memory, at, from);
                    function.stored(index);
                }
                None => function.region_write(index, at, from)?,
            }
        }
        Ok(())
    }
}

/// A store to shared memory: that of an aligned register at once, as a mapped one would be.
fn store(memory: &SharedMemory, at: u64, from: &[u8]) {
    let stored = match *from {
        [a, b, c, d] if at.is_multiple_of(4) => memory.store_u32(at, u32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] if at.is_multiple_of(8) => {
            memory.store_u64(at, u64::from_le_bytes([a, b, c, d, e, f, g, h]))
        }
        _ => memory.write(at, from),
    };
    assert!(stored, "areas lie inside of their memory");
}
