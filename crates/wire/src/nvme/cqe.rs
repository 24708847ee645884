//! The completion queue entry (section 4.6).

use super::Status;

/// A completion queue entry. Double word 1 is reserved: written as zero, ignored when read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Cqe {
    /// Double word 0: specific to the command.
    pub dw0: u32,
    /// Submission queue head pointer (SQHD): entries before it may be used again.
    pub sq_head: u16,
    /// Submission queue identifier (SQID); 0 is the admin queue.
    pub sq_id: u16,
    /// Command identifier (CID).
    pub cid: u16,
    /// Phase tag (P): inverted each time the completion queue wraps.
    pub phase: bool,
    /// Status field (SF).
    pub status: Status,
}

impl Cqe {
    /// Bytes of an entry.
    pub const SIZE: usize = 16;

    /// An entry from its bytes in memory. Every pattern is valid.
    pub fn from_bytes(bytes: &[u8; Cqe::SIZE]) -> Cqe {
        let [b0, b1, b2, b3, _, _, _, _, head0, head1, id0, id1, cid0, cid1, sf0, sf1] = *bytes;
        let field = u16::from_le_bytes([sf0, sf1]);
        Cqe {
            dw0: u32::from_le_bytes([b0, b1, b2, b3]),
            sq_head: u16::from_le_bytes([head0, head1]),
            sq_id: u16::from_le_bytes([id0, id1]),
            cid: u16::from_le_bytes([cid0, cid1]),
            phase: field & 1 != 0,
            status: Status::from_bits(field >> 1),
        }
    }

    /// Its bytes in memory.
    pub fn to_bytes(&self) -> [u8; Cqe::SIZE] {
        let mut bytes = [0; Cqe::SIZE];
        bytes[0..4].copy_from_slice(&self.dw0.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.sq_head.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.sq_id.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.cid.to_le_bytes());
        bytes[14..16].copy_from_slice(&(self.status.bits() << 1 | u16::from(self.phase)).to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_stand_where_the_specification_puts_them() {
        let cqe = Cqe {
            dw0: 0x0403_0201,
            sq_head: 0x0A09,
            sq_id: 0x0C0B,
            cid: 0x0E0D,
            phase: true,
            status: Status::LBA_OUT_OF_RANGE,
        };
        // Double word 3: DNR is bit 31, SCT bits 27:25, SC bits 24:17, P bit 16.
        let dw3: u32 = 1 << 31 | 0x80 << 17 | 1 << 16 | 0x0E0D;
        let mut bytes = [1, 2, 3, 4, 0, 0, 0, 0, 9, 10, 11, 12, 0, 0, 0, 0];
        bytes[12..].copy_from_slice(&dw3.to_le_bytes());
        assert_eq!(cqe.to_bytes(), bytes);
    }

    proptest! {
        #[test]
        fn bytes_come_back(bytes in any::<[u8; 16]>()) {
            let mut written = bytes;
            written[4..8].fill(0);
            prop_assert_eq!(Cqe::from_bytes(&bytes).to_bytes(), written);
        }
    }
}
