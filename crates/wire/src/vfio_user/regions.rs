//! Regions: what they are, and accesses to them.

use crate::layout::layout;

/// Numbers of a PCI function's regions (`linux/vfio.h`, VFIO_PCI_*_REGION_INDEX).
pub mod region {
    /// BAR 0; BARs 1 to 5 follow.
    pub const BAR0: u32 = 0;
    /// BAR 2.
    pub const BAR2: u32 = 2;
    /// BAR 4.
    pub const BAR4: u32 = 4;
    /// Expansion ROM.
    pub const ROM: u32 = 6;
    /// Configuration space.
    pub const CONFIG: u32 = 7;
    /// VGA.
    pub const VGA: u32 = 8;
    /// How many there are.
    pub const COUNT: u32 = 9;
    /// The copy of a mapped ring: a region that is not counted, for clients that know of it.
    pub const RING_COPY: u32 = 9;
}

/// Flags of a region.
pub mod region_info_flag {
    /// It can be read.
    pub const READ: u32 = 1;
    /// It can be written.
    pub const WRITE: u32 = 1 << 1;
    /// It can be mapped: a descriptor comes with the reply.
    pub const MMAP: u32 = 1 << 2;
    /// Capabilities stand behind the structure.
    pub const CAPS: u32 = 1 << 3;
}

layout! {
    /// The payload of DEVICE_GET_REGION_INFO and of its reply; capabilities may follow.
    pub struct RegionInfo [32] {
        /// Of a command: room for the reply; of a reply: room that it needs.
        0 argsz: u32,
        /// [`region_info_flag`]s.
        4 flags: u32,
        /// The region: [`region`].
        8 index: u32,
        /// Where the first capability is, from the start of this structure.
        12 cap_offset: u32,
        /// Bytes; 0: there is no such region.
        16 size: u64,
        /// Where it starts in the file of its descriptor.
        24 offset: u64,
    }
}

layout! {
    /// Part of a region that can be mapped (`struct vfio_region_sparse_mmap_area`).
    pub struct Area [16] {
        /// First byte.
        0 offset: u64,
        /// Bytes.
        8 size: u64,
    }
}

layout! {
    /// Head of a capability (`struct vfio_info_cap_header`).
    pub struct Capability [8] {
        /// Its identifier.
        0 id: u16,
        /// Version of its layout.
        2 version: u16,
        /// Where the next one is, from the start of [`RegionInfo`]; 0: there is none.
        4 next: u32,
    }
}

layout! {
    /// Head of a list of [`Area`]s, behind [`Capability`] (`struct vfio_region_info_cap_sparse_mmap`).
    pub struct AreaList [8] {
        /// Areas that follow.
        0 count: u32,
    }
}

/// Capability that lists the parts that can be mapped (VFIO_REGION_INFO_CAP_SPARSE_MMAP).
const CAP_SPARSE_MMAP: u16 = 1;

/// The capability that lists `areas`, as the only one.
pub fn areas_to_bytes(areas: &[Area]) -> Vec<u8> {
    let mut bytes = Capability { id: CAP_SPARSE_MMAP, version: 1, next: 0 }.to_bytes().to_vec();
    bytes.extend(AreaList { count: areas.len() as u32 }.to_bytes());
    bytes.extend(areas.iter().flat_map(|area| area.to_bytes()));
    bytes
}

/// The parts of a region that can be mapped, from the payload of the reply about it. `None`: its capabilities are
/// malformed. `Some(None)`: it lists none, so that all of a region that can be mapped can.
pub fn parse_areas(payload: &[u8]) -> Option<Option<Vec<Area>>> {
    let info = RegionInfo::parse(payload).ok()?;
    if info.flags & region_info_flag::CAPS == 0 {
        return Some(None);
    }
    let mut at = info.cap_offset as usize;
    if at < RegionInfo::SIZE {
        return None;
    }
    loop {
        let Capability { id, next, .. } = Capability::parse(payload.get(at..)?).ok()?;
        let next = next as usize;
        if id == CAP_SPARSE_MMAP {
            let list = payload.get(at.checked_add(Capability::SIZE)?..)?;
            let len = (AreaList::parse(list).ok()?.count as usize).checked_mul(Area::SIZE)?;
            let list = list[AreaList::SIZE..].get(..len)?.chunks_exact(Area::SIZE);
            return Some(list.map(|area| Area::parse(area).ok()).collect());
        }
        if next == 0 {
            return Some(None);
        }
        // Only forward, so that a list can't go in circles.
        if next <= at {
            return None;
        }
        at = next;
    }
}

layout! {
    /// The payload of DEVICE_GET_REGION_IO_FDS, and the head of a reply: `count` of [`IoEventFd`] follow.
    pub struct RegionIoFds [16] {
        /// Of a command: room for the reply; of a reply: room that it needs.
        0 argsz: u32,
        /// 0.
        4 flags: u32,
        /// The region.
        8 index: u32,
        /// Parts of the region that have descriptors.
        12 count: u32,
    }
}

layout! {
    /// A part of a region where a descriptor that counts events stands for a write
    /// ("VFIO_USER_DEVICE_GET_REGION_IO_FDS"): the client adds to it without a message. The value written is not
    /// passed on.
    pub struct IoEventFd [40] {
        fixed 20 kind: u32 = 0, " An event descriptor; others (ioregionfd) are not known.";
        fixed 24 flags: u32 = 0, " All values count; those for which only one does are not known.";
        /// First byte of the part.
        0 offset: u64,
        /// Its bytes.
        8 size: u64,
        /// Which of the reply's descriptors.
        16 descriptor: u32,
    }
}

impl IoEventFd {
    /// Those behind the head of a reply; `None`: it is too short. Parts of other types (ioregionfd) and with flags
    /// (only some values count) are left out.
    pub fn parse_all(payload: &[u8]) -> Option<Vec<IoEventFd>> {
        let head = RegionIoFds::parse(payload).ok()?;
        let len = (head.count as usize).checked_mul(IoEventFd::SIZE)?;
        let list = payload.get(RegionIoFds::SIZE..)?.get(..len)?;
        Some(list.chunks_exact(IoEventFd::SIZE).filter_map(|one| IoEventFd::parse(one).ok()).collect())
    }
}

layout! {
    /// Head of REGION_READ, REGION_WRITE and their replies; data follows where there is any.
    pub struct RegionAccess [16] {
        /// First byte.
        0 offset: u64,
        /// The region.
        8 region: u32,
        /// Bytes.
        12 count: u32,
    }
}

impl RegionAccess {
    /// From a payload, and the data behind it; `None`: too short for either the structure or, `with_data`, for its
    /// count.
    pub fn split(payload: &[u8], with_data: bool) -> Option<(RegionAccess, &[u8])> {
        let access = RegionAccess::parse(payload).ok()?;
        let data = payload.get(RegionAccess::SIZE..)?;
        let data = if with_data { data.get(..access.count as usize)? } else { &[] };
        Some((access, data))
    }
}

/// One write of REGION_WRITE_MULTI: at most 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionWrite<'a> {
    /// First byte.
    pub offset: u64,
    /// The region.
    pub region: u32,
    /// The data.
    pub data: &'a [u8],
}

/// The payload of REGION_WRITE_MULTI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteMulti<'a>(&'a [u8]);

impl<'a> WriteMulti<'a> {
    /// Bytes of one write: offset, region, count, and room for 8 bytes.
    pub const WRITE_SIZE: usize = 24;

    /// From a payload; `None`: it does not hold as many writes as it says, or one of more than 8 bytes.
    pub fn parse(payload: &'a [u8]) -> Option<WriteMulti<'a>> {
        let (count, writes) = payload.split_first_chunk()?;
        let count = usize::try_from(u64::from_le_bytes(*count)).ok()?;
        let writes = writes.get(..count.checked_mul(WriteMulti::WRITE_SIZE)?)?;
        let good = |write: &[u8]| RegionAccess::parse(write).is_ok_and(|access| access.count <= 8);
        writes.chunks_exact(WriteMulti::WRITE_SIZE).all(good).then_some(WriteMulti(writes))
    }

    /// How many writes there are.
    pub fn count(&self) -> u64 {
        (self.0.len() / WriteMulti::WRITE_SIZE) as u64
    }

    /// The writes, in order.
    pub fn writes(&self) -> impl Iterator<Item = RegionWrite<'a>> + use<'a> {
        self.0.chunks_exact(WriteMulti::WRITE_SIZE).filter_map(|write| {
            let (RegionAccess { offset, region, .. }, data) = RegionAccess::split(write, true)?;
            Some(RegionWrite { offset, region, data })
        })
    }
}
