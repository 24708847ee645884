//! Where a command's data is, over fabrics (section 2.3.1 and figure 11; SGLs: NVM Express Base Specification 1.4,
//! section 4.4).

use super::OPCODE;
use crate::nvme::{Sqe, Status};

/// The data pointer of a command over fabrics: one SGL descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DataPointer {
    /// In the capsule (SGL Data Block descriptor, offset subtype).
    Capsule {
        /// First byte, from the start of the capsule's data.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// Data PDUs carry it (Transport SGL Data Block descriptor).
    Transport {
        /// Bytes; 0 when there is no data.
        len: u32,
    },
}

/// PSDT: an SGL, and metadata (never used) as one buffer, or as an SGL segment.
const PSDT_SGL: u8 = 1;
const PSDT_SGL_METADATA_SGL: u8 = 2;
/// Descriptor type (bits 7:4) and subtype (bits 3:0).
const DATA_BLOCK_OFFSET: u8 = 0x01;
const TRANSPORT_DATA_BLOCK: u8 = 0x5A;

impl DataPointer {
    /// Reads double words 6 to 9 of a command. Byte 1 of a Fabrics command is reserved (figure 15): it has no PSDT.
    ///
    /// # Errors
    /// PRPs give Invalid Field in Command; other types of descriptor SGL Descriptor Type Invalid.
    pub fn parse(sqe: &Sqe) -> Result<DataPointer, Status> {
        if sqe.opcode() != OPCODE && !matches!(sqe.psdt(), PSDT_SGL | PSDT_SGL_METADATA_SGL) {
            return Err(Status::INVALID_FIELD);
        }
        let len = sqe.dwords()[8];
        match (sqe.dwords()[9] >> 24) as u8 {
            DATA_BLOCK_OFFSET => Ok(DataPointer::Capsule { offset: sqe.prp1(), len }),
            TRANSPORT_DATA_BLOCK => Ok(DataPointer::Transport { len }),
            _ => Err(Status::SGL_TYPE_INVALID),
        }
    }

    /// The same entry with this data pointer.
    pub const fn put(self, sqe: Sqe) -> Sqe {
        let (offset, len, descriptor) = match self {
            DataPointer::Capsule { offset, len } => (offset, len, DATA_BLOCK_OFFSET),
            DataPointer::Transport { len } => (0, len, TRANSPORT_DATA_BLOCK),
        };
        let dword0 = sqe.dwords()[0] & !(3 << 14) | (PSDT_SGL as u32) << 14;
        let sqe = sqe.with_dword(0, dword0).with_dword(6, offset as u32).with_dword(7, (offset >> 32) as u32);
        sqe.with_dword(8, len).with_dword(9, (descriptor as u32) << 24)
    }

    /// Bytes.
    pub const fn len(self) -> u32 {
        match self {
            DataPointer::Capsule { len, .. } | DataPointer::Transport { len } => len,
        }
    }

    /// Whether there is no data.
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_come_back_and_others_are_refused() {
        for pointer in [
            DataPointer::Capsule { offset: 0x0123_4567_89AB_CDEF, len: 4_096 },
            DataPointer::Transport { len: u32::MAX },
            DataPointer::Transport { len: 0 },
        ] {
            let sqe = pointer.put(Sqe::read(7, 8, 9));
            assert_eq!(DataPointer::parse(&sqe), Ok(pointer));
            assert_eq!((sqe.cid(), sqe.slba(), sqe.psdt()), (7, 8, 1));
        }
        let bytes = DataPointer::Transport { len: 0x0403_0201 }.put(Sqe::default()).to_bytes();
        assert_eq!(bytes[24..40], [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0x5A]);

        let sqe = DataPointer::Transport { len: 1 }.put(Sqe::default());
        for identifier in 0..=255_u32 {
            let parsed = DataPointer::parse(&sqe.with_dword(9, identifier << 24));
            match identifier {
                0x01 | 0x5A => assert!(parsed.is_ok()),
                _ => assert_eq!(parsed, Err(Status::SGL_TYPE_INVALID), "{identifier:02X}h"),
            }
        }
        for psdt in [0, 3] {
            let parsed = DataPointer::parse(&sqe.with_dword(0, psdt << 14));
            assert_eq!(parsed, Err(Status::INVALID_FIELD));
            // Fabrics commands have no such field.
            let parsed = DataPointer::parse(&sqe.with_dword(0, psdt << 14 | u32::from(OPCODE)));
            assert_eq!(parsed, Ok(DataPointer::Transport { len: 1 }));
        }
    }
}
