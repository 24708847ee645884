//! Scatter gather list descriptors (section 4.4): 16 bytes each.

use super::Status;

/// Address of a data block, by the SGL descriptor subtype.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// 0h: an address in memory.
    Memory(u64),
    /// 1h: an offset into the capsule's data.
    Offset(u64),
}

/// A descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SglDescriptor {
    /// Type 0h: bytes of data.
    DataBlock {
        /// Where.
        address: Address,
        /// Bytes; 0 is allowed.
        len: u32,
    },
    /// Type 1h: bytes of a read that are thrown away. Of a write it counts for nothing.
    BitBucket {
        /// Bytes.
        len: u32,
    },
    /// Type 2h: the next segment of descriptors, after which another one comes.
    Segment {
        /// Where.
        address: Address,
        /// Bytes: a multiple of 16, not 0.
        len: u32,
    },
    /// Type 3h: the last segment of descriptors.
    LastSegment {
        /// Where.
        address: Address,
        /// Bytes: a multiple of 16, not 0.
        len: u32,
    },
    /// Type 4h: bytes of data behind a key, of RDMA.
    Keyed {
        /// Address.
        address: u64,
        /// Bytes, 24 bits.
        len: u32,
        /// Key.
        key: u32,
    },
    /// Type 5h, subtype Ah: data that the transport carries.
    Transport {
        /// Bytes.
        len: u32,
    },
}

impl SglDescriptor {
    /// Bytes of a descriptor.
    pub const SIZE: usize = 16;

    /// Reads a descriptor.
    ///
    /// # Errors
    /// SGL Descriptor Type Invalid for types and subtypes that are not there; Invalid SGL Segment Descriptor for a
    /// segment that is empty or no multiple of 16 bytes.
    pub fn parse(bytes: &[u8; SglDescriptor::SIZE]) -> Result<SglDescriptor, Status> {
        let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, k1, k2, k3, kind] = *bytes;
        let place = u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]);
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
        let address = match kind & 0xF {
            0 => Some(Address::Memory(place)),
            1 => Some(Address::Offset(place)),
            _ => None,
        };
        let segment = || {
            let address = address.ok_or(Status::SGL_TYPE_INVALID)?;
            if len == 0 || len % SglDescriptor::SIZE as u32 != 0 {
                return Err(Status::INVALID_SGL_SEGMENT);
            }
            Ok(address)
        };
        match (kind >> 4, kind & 0xF) {
            (0, _) => address.map(|address| SglDescriptor::DataBlock { address, len }).ok_or(Status::SGL_TYPE_INVALID),
            (1, 0) => Ok(SglDescriptor::BitBucket { len }),
            (2, _) => Ok(SglDescriptor::Segment { address: segment()?, len }),
            (3, _) => Ok(SglDescriptor::LastSegment { address: segment()?, len }),
            // Subtype Fh asks the transport to invalidate the key, which only the transport can see.
            (4, 0 | 0xF) => Ok(SglDescriptor::Keyed {
                address: place,
                len: u32::from_le_bytes([l0, l1, l2, 0]),
                key: u32::from_le_bytes([l3, k1, k2, k3]),
            }),
            (5, 0xA) => Ok(SglDescriptor::Transport { len }),
            _ => Err(Status::SGL_TYPE_INVALID),
        }
    }

    /// The descriptor of a command (SGL1): its double words 6 to 9.
    ///
    /// # Errors
    /// As for [`SglDescriptor::parse`].
    pub fn of_command(sqe: &super::Sqe) -> Result<SglDescriptor, Status> {
        let mut bytes = [0; SglDescriptor::SIZE];
        bytes[..8].copy_from_slice(&sqe.prp1().to_le_bytes());
        bytes[8..].copy_from_slice(&sqe.prp2().to_le_bytes());
        SglDescriptor::parse(&bytes)
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; SglDescriptor::SIZE] {
        let mut bytes = [0; SglDescriptor::SIZE];
        let (kind, place, len) = match *self {
            SglDescriptor::DataBlock { address, len } => (0x00, address, len),
            SglDescriptor::BitBucket { len } => (0x10, Address::Memory(0), len),
            SglDescriptor::Segment { address, len } => (0x20, address, len),
            SglDescriptor::LastSegment { address, len } => (0x30, address, len),
            SglDescriptor::Keyed { address, len, key } => {
                bytes[..8].copy_from_slice(&address.to_le_bytes());
                bytes[8..11].copy_from_slice(&len.to_le_bytes()[..3]);
                bytes[11..15].copy_from_slice(&key.to_le_bytes());
                bytes[15] = 0x40;
                return bytes;
            }
            SglDescriptor::Transport { len } => (0x5A, Address::Memory(0), len),
        };
        let (place, subtype) = match place {
            Address::Memory(place) => (place, 0),
            Address::Offset(place) => (place, 1),
        };
        bytes[..8].copy_from_slice(&place.to_le_bytes());
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        bytes[15] = kind | subtype;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvme::Sqe;
    use proptest::prelude::*;

    #[test]
    fn descriptors_of_all_types() {
        let block = SglDescriptor::DataBlock { address: Address::Memory(0x0706_0504_0302_0100), len: 0x0B0A_0908 };
        assert_eq!(block.to_bytes(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 0, 0, 0]);
        let keyed = SglDescriptor::Keyed { address: 1, len: 0x03_0201, key: 0x0706_0504 };
        assert_eq!(keyed.to_bytes(), [1, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 0x40]);
        for descriptor in [
            block,
            keyed,
            SglDescriptor::DataBlock { address: Address::Offset(512), len: 0 },
            SglDescriptor::BitBucket { len: 7 },
            SglDescriptor::Segment { address: Address::Memory(64), len: 32 },
            SglDescriptor::LastSegment { address: Address::Memory(64), len: 16 },
            SglDescriptor::Transport { len: 4096 },
        ] {
            let bytes = descriptor.to_bytes();
            assert_eq!(SglDescriptor::parse(&bytes), Ok(descriptor));
            let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            let mut sqe = Sqe::default();
            for i in 0..4 {
                sqe = sqe.with_dword(6 + i, word(4 * i));
            }
            assert_eq!(SglDescriptor::of_command(&sqe), Ok(descriptor));
        }
        let odd = SglDescriptor::Segment { address: Address::Memory(0), len: 24 }.to_bytes();
        assert_eq!(SglDescriptor::parse(&odd), Err(Status::INVALID_SGL_SEGMENT));
        let empty = SglDescriptor::LastSegment { address: Address::Memory(0), len: 0 }.to_bytes();
        assert_eq!(SglDescriptor::parse(&empty), Err(Status::INVALID_SGL_SEGMENT));
    }

    proptest! {
        #[test]
        fn any_16_bytes_are_a_descriptor_or_get_a_status(bytes in any::<[u8; 16]>()) {
            match SglDescriptor::parse(&bytes) {
                Ok(descriptor) => prop_assert_eq!(SglDescriptor::parse(&descriptor.to_bytes()), Ok(descriptor)),
                Err(status) => {
                    prop_assert!(status == Status::SGL_TYPE_INVALID || status == Status::INVALID_SGL_SEGMENT);
                }
            }
        }
    }
}
