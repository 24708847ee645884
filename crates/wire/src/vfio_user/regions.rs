//! Regions: what they are, and accesses to them.

use super::{put, u16_at, u32_at, u64_at};

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

/// The payload of DEVICE_GET_REGION_INFO and of its reply; capabilities may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// Of a command: room for the reply; of a reply: room that it needs.
    pub argsz: u32,
    /// [`region_info_flag`]s.
    pub flags: u32,
    /// The region: [`region`].
    pub index: u32,
    /// Where the first capability is, from the start of this structure.
    pub cap_offset: u32,
    /// Bytes; 0: there is no such region.
    pub size: u64,
    /// Where it starts in the file of its descriptor.
    pub offset: u64,
}

impl RegionInfo {
    /// Bytes.
    pub const SIZE: usize = 32;

    /// From a payload; `None`: too short.
    pub fn parse(payload: &[u8]) -> Option<RegionInfo> {
        Some(RegionInfo {
            argsz: u32_at(payload, 0)?,
            flags: u32_at(payload, 4)?,
            index: u32_at(payload, 8)?,
            cap_offset: u32_at(payload, 12)?,
            size: u64_at(payload, 16)?,
            offset: u64_at(payload, 24)?,
        })
    }

    /// The structure.
    pub fn to_bytes(&self) -> [u8; RegionInfo::SIZE] {
        let mut bytes = [0; RegionInfo::SIZE];
        put(&mut bytes, 0, self.argsz.to_le_bytes());
        put(&mut bytes, 4, self.flags.to_le_bytes());
        put(&mut bytes, 8, self.index.to_le_bytes());
        put(&mut bytes, 12, self.cap_offset.to_le_bytes());
        put(&mut bytes, 16, self.size.to_le_bytes());
        put(&mut bytes, 24, self.offset.to_le_bytes());
        bytes
    }
}

/// Part of a region that can be mapped (`struct vfio_region_sparse_mmap_area`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// Capability that lists the parts that can be mapped (VFIO_REGION_INFO_CAP_SPARSE_MMAP).
const CAP_SPARSE_MMAP: u16 = 1;
/// Bytes of the capability's header and of the count behind it.
const CAP_SPARSE_HEAD: usize = 16;

/// The capability that lists `areas`, as the only one.
pub fn areas_to_bytes(areas: &[Area]) -> Vec<u8> {
    let mut bytes = vec![0; CAP_SPARSE_HEAD];
    put(&mut bytes, 0, CAP_SPARSE_MMAP.to_le_bytes());
    put(&mut bytes, 2, 1u16.to_le_bytes());
    put(&mut bytes, 8, (areas.len() as u32).to_le_bytes());
    for area in areas {
        bytes.extend_from_slice(&area.offset.to_le_bytes());
        bytes.extend_from_slice(&area.size.to_le_bytes());
    }
    bytes
}

/// The parts of a region that can be mapped, from the payload of the reply about it. `None`: its capabilities are
/// malformed. `Some(None)`: it lists none, so that all of a region that can be mapped can.
pub fn parse_areas(payload: &[u8]) -> Option<Option<Vec<Area>>> {
    let info = RegionInfo::parse(payload)?;
    if info.flags & region_info_flag::CAPS == 0 {
        return Some(None);
    }
    let mut at = info.cap_offset as usize;
    if at < RegionInfo::SIZE {
        return None;
    }
    loop {
        let id = u16_at(payload, at)?;
        let next = u32_at(payload, at.checked_add(4)?)? as usize;
        if id == CAP_SPARSE_MMAP {
            let count = u32_at(payload, at.checked_add(8)?)? as usize;
            let list = payload.get(at.checked_add(CAP_SPARSE_HEAD)?..)?.get(..count.checked_mul(16)?)?;
            let area = |bytes: &[u8]| Some(Area { offset: u64_at(bytes, 0)?, size: u64_at(bytes, 8)? });
            return Some(Some(list.chunks_exact(16).map(area).collect::<Option<Vec<Area>>>()?));
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

/// The payload of DEVICE_GET_REGION_IO_FDS, and the head of a reply: `count` of [`IoEventFd`] follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionIoFds {
    /// Of a command: room for the reply; of a reply: room that it needs.
    pub argsz: u32,
    /// 0.
    pub flags: u32,
    /// The region.
    pub index: u32,
    /// Parts of the region that have descriptors.
    pub count: u32,
}

impl RegionIoFds {
    /// Bytes.
    pub const SIZE: usize = 16;

    /// From a payload; `None`: too short.
    pub fn parse(payload: &[u8]) -> Option<RegionIoFds> {
        Some(RegionIoFds {
            argsz: u32_at(payload, 0)?,
            flags: u32_at(payload, 4)?,
            index: u32_at(payload, 8)?,
            count: u32_at(payload, 12)?,
        })
    }

    /// The payload.
    pub fn to_bytes(&self) -> [u8; RegionIoFds::SIZE] {
        let mut bytes = [0; RegionIoFds::SIZE];
        put(&mut bytes, 0, self.argsz.to_le_bytes());
        put(&mut bytes, 4, self.flags.to_le_bytes());
        put(&mut bytes, 8, self.index.to_le_bytes());
        put(&mut bytes, 12, self.count.to_le_bytes());
        bytes
    }
}

/// A part of a region where a descriptor that counts events stands for a write ("VFIO_USER_DEVICE_GET_REGION_IO_FDS",
/// type 0): the client adds to it without a message. The value written is not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoEventFd {
    /// First byte of the part.
    pub offset: u64,
    /// Its bytes.
    pub size: u64,
    /// Which of the reply's descriptors.
    pub descriptor: u32,
}

impl IoEventFd {
    /// Bytes: offset, size, descriptor, type, flags, padding, the value to match.
    pub const SIZE: usize = 40;

    /// Those behind the head of a reply; `None`: it is too short. Parts of other types (ioregionfd) and with flags
    /// (only some values count) are left out.
    pub fn parse_all(payload: &[u8]) -> Option<Vec<IoEventFd>> {
        let head = RegionIoFds::parse(payload)?;
        let len = (head.count as usize).checked_mul(IoEventFd::SIZE)?;
        let list = payload.get(RegionIoFds::SIZE..)?.get(..len)?;
        let mut all = Vec::new();
        for one in list.chunks_exact(IoEventFd::SIZE) {
            let (offset, size, descriptor) = (u64_at(one, 0)?, u64_at(one, 8)?, u32_at(one, 16)?);
            if (u32_at(one, 20)?, u32_at(one, 24)?) == (0, 0) {
                all.push(IoEventFd { offset, size, descriptor });
            }
        }
        Some(all)
    }

    /// The bytes.
    pub fn to_bytes(&self) -> [u8; IoEventFd::SIZE] {
        let mut bytes = [0; IoEventFd::SIZE];
        put(&mut bytes, 0, self.offset.to_le_bytes());
        put(&mut bytes, 8, self.size.to_le_bytes());
        put(&mut bytes, 16, self.descriptor.to_le_bytes());
        bytes
    }
}

/// Head of REGION_READ, REGION_WRITE and their replies; data follows where there is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionAccess {
    /// First byte.
    pub offset: u64,
    /// The region.
    pub region: u32,
    /// Bytes.
    pub count: u32,
}

impl RegionAccess {
    /// Bytes.
    pub const SIZE: usize = 16;

    /// From a payload, and the data behind it; `None`: too short for either the structure or, `with_data`, for its
    /// count.
    pub fn parse(payload: &[u8], with_data: bool) -> Option<(RegionAccess, &[u8])> {
        let access =
            RegionAccess { offset: u64_at(payload, 0)?, region: u32_at(payload, 8)?, count: u32_at(payload, 12)? };
        let data = payload.get(RegionAccess::SIZE..)?;
        let data = if with_data { data.get(..access.count as usize)? } else { &[] };
        Some((access, data))
    }

    /// The structure.
    pub fn to_bytes(&self) -> [u8; RegionAccess::SIZE] {
        let mut bytes = [0; RegionAccess::SIZE];
        put(&mut bytes, 0, self.offset.to_le_bytes());
        put(&mut bytes, 8, self.region.to_le_bytes());
        put(&mut bytes, 12, self.count.to_le_bytes());
        bytes
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
        let count = usize::try_from(u64_at(payload, 0)?).ok()?;
        let writes = payload.get(8..)?.get(..count.checked_mul(WriteMulti::WRITE_SIZE)?)?;
        let good = |write: &[u8]| u32_at(write, 12).is_some_and(|count| count <= 8);
        writes.chunks_exact(WriteMulti::WRITE_SIZE).all(good).then_some(WriteMulti(writes))
    }

    /// How many writes there are.
    pub fn count(&self) -> u64 {
        (self.0.len() / WriteMulti::WRITE_SIZE) as u64
    }

    /// The writes, in order.
    pub fn writes(&self) -> impl Iterator<Item = RegionWrite<'a>> + use<'a> {
        self.0.chunks_exact(WriteMulti::WRITE_SIZE).filter_map(|write| {
            let data = write.get(16..)?.get(..u32_at(write, 12)? as usize)?;
            Some(RegionWrite { offset: u64_at(write, 0)?, region: u32_at(write, 8)?, data })
        })
    }
}
