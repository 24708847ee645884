//! The submission queue entry (section 4.2).

use super::opcode;

/// A submission queue entry: 16 little-endian double words, any bits. [`super::Command::parse`] tells what it asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Sqe([u32; 16]);

/// Force Unit Access, bit 30 of double word 12 (sections 6.6, 6.9, 6.14, 6.15, 6.17).
pub const FUA: u32 = 1 << 30;
/// Limited Retry, bit 31 of double word 12.
pub const LIMITED_RETRY: u32 = 1 << 31;
/// Deallocate of Write Zeroes, bit 25 of double word 12.
pub const WRITE_ZEROES_DEALLOCATE: u32 = 1 << 25;
/// Attributes of Dataset Management in double word 11: integral dataset for read, for write.
pub(super) const DSM_INTEGRAL_READ: u32 = 1;
pub(super) const DSM_INTEGRAL_WRITE: u32 = 1 << 1;
/// Deallocate of Dataset Management, bit 2 of double word 11.
pub const DSM_DEALLOCATE: u32 = 1 << 2;

impl Sqe {
    /// Bytes of an entry.
    pub const SIZE: usize = 64;

    /// An entry from its double words.
    pub const fn from_dwords(dwords: [u32; 16]) -> Sqe {
        Sqe(dwords)
    }

    /// The double words.
    pub const fn dwords(&self) -> &[u32; 16] {
        &self.0
    }

    /// An entry from its bytes in memory.
    pub fn from_bytes(bytes: &[u8; Sqe::SIZE]) -> Sqe {
        let mut dwords = [0; 16];
        for (dword, chunk) in dwords.iter_mut().zip(bytes.as_chunks().0) {
            *dword = u32::from_le_bytes(*chunk);
        }
        Sqe(dwords)
    }

    /// Its bytes in memory.
    pub fn to_bytes(&self) -> [u8; Sqe::SIZE] {
        let mut bytes = [0; Sqe::SIZE];
        for (dword, chunk) in self.0.iter().zip(bytes.as_chunks_mut().0) {
            *chunk = dword.to_le_bytes();
        }
        bytes
    }

    /// Opcode (OPC), bits 7:0 of double word 0.
    pub const fn opcode(&self) -> u8 {
        self.0[0] as u8
    }

    /// Fused operation (FUSE), bits 9:8 of double word 0: 0 is a command of its own.
    pub const fn fuse(&self) -> u8 {
        (self.0[0] >> 8) as u8 & 3
    }

    /// PRP or SGL for data transfer (PSDT), bits 15:14 of double word 0: 0 is PRP.
    pub const fn psdt(&self) -> u8 {
        (self.0[0] >> 14) as u8 & 3
    }

    /// Command identifier (CID), bits 31:16 of double word 0.
    pub const fn cid(&self) -> u16 {
        (self.0[0] >> 16) as u16
    }

    /// Namespace identifier (NSID).
    pub const fn nsid(&self) -> u32 {
        self.0[1]
    }

    /// Metadata pointer (MPTR).
    pub const fn metadata_pointer(&self) -> u64 {
        self.0[4] as u64 | (self.0[5] as u64) << 32
    }

    /// PRP entry 1: the first half of the data pointer (DPTR).
    pub const fn prp1(&self) -> u64 {
        self.0[6] as u64 | (self.0[7] as u64) << 32
    }

    /// PRP entry 2: the second half of the data pointer (DPTR).
    pub const fn prp2(&self) -> u64 {
        self.0[8] as u64 | (self.0[9] as u64) << 32
    }

    /// Command double word 10.
    pub const fn cdw10(&self) -> u32 {
        self.0[10]
    }

    /// Command double word 11.
    pub const fn cdw11(&self) -> u32 {
        self.0[11]
    }

    /// Command double word 12.
    pub const fn cdw12(&self) -> u32 {
        self.0[12]
    }

    /// Command double word 13.
    pub const fn cdw13(&self) -> u32 {
        self.0[13]
    }

    /// Command double word 14.
    pub const fn cdw14(&self) -> u32 {
        self.0[14]
    }

    /// Command double word 15.
    pub const fn cdw15(&self) -> u32 {
        self.0[15]
    }

    /// Starting LBA (SLBA): double words 10 and 11 of the commands that address blocks.
    pub const fn slba(&self) -> u64 {
        self.0[10] as u64 | (self.0[11] as u64) << 32
    }

    /// A command for namespace 1 without fields of its own.
    const fn bare(opcode: u8, cid: u16) -> Sqe {
        let mut dwords = [0; 16];
        dwords[0] = opcode as u32 | (cid as u32) << 16;
        dwords[1] = 1;
        Sqe(dwords)
    }

    /// A command for namespace 1 that addresses blocks.
    const fn blocks(opcode: u8, cid: u16, slba: u64, nlb_zero_based: u16) -> Sqe {
        let mut sqe = Sqe::bare(opcode, cid);
        sqe.0[10] = slba as u32;
        sqe.0[11] = (slba >> 32) as u32;
        sqe.0[12] = nlb_zero_based as u32;
        sqe
    }

    /// Read `nlb_zero_based + 1` blocks from `slba` of namespace 1.
    pub const fn read(cid: u16, slba: u64, nlb_zero_based: u16) -> Sqe {
        Sqe::blocks(opcode::READ, cid, slba, nlb_zero_based)
    }

    /// Write `nlb_zero_based + 1` blocks from `slba` of namespace 1.
    pub const fn write(cid: u16, slba: u64, nlb_zero_based: u16) -> Sqe {
        Sqe::blocks(opcode::WRITE, cid, slba, nlb_zero_based)
    }

    /// Write zeroes to `nlb_zero_based + 1` blocks from `slba` of namespace 1, and deallocate them if asked.
    pub const fn write_zeroes(cid: u16, slba: u64, nlb_zero_based: u16, deallocate: bool) -> Sqe {
        let mut sqe = Sqe::blocks(opcode::WRITE_ZEROES, cid, slba, nlb_zero_based);
        if deallocate {
            sqe.0[12] |= WRITE_ZEROES_DEALLOCATE;
        }
        sqe
    }

    /// Compare `nlb_zero_based + 1` blocks from `slba` of namespace 1 with the host's data.
    pub const fn compare(cid: u16, slba: u64, nlb_zero_based: u16) -> Sqe {
        Sqe::blocks(opcode::COMPARE, cid, slba, nlb_zero_based)
    }

    /// Read `nlb_zero_based + 1` blocks from `slba` of namespace 1 inside the drive, without a transfer.
    pub const fn verify(cid: u16, slba: u64, nlb_zero_based: u16) -> Sqe {
        Sqe::blocks(opcode::VERIFY, cid, slba, nlb_zero_based)
    }

    /// Flush namespace 1.
    pub const fn flush(cid: u16) -> Sqe {
        Sqe::bare(opcode::FLUSH, cid)
    }

    /// Dataset Management over `ranges_zero_based + 1` ranges of namespace 1: deallocation, or hints only.
    pub const fn dataset_management(cid: u16, ranges_zero_based: u8, deallocate: bool) -> Sqe {
        let mut sqe = Sqe::bare(opcode::DATASET_MANAGEMENT, cid);
        sqe.0[10] = ranges_zero_based as u32;
        sqe.0[11] = if deallocate { DSM_DEALLOCATE } else { 0 };
        sqe
    }

    /// The same entry with Force Unit Access. Only for commands that address blocks.
    pub const fn with_fua(mut self) -> Sqe {
        self.0[12] |= FUA;
        self
    }

    /// The same entry with another command identifier.
    pub const fn with_cid(mut self, cid: u16) -> Sqe {
        self.0[0] = self.0[0] & 0xFFFF | (cid as u32) << 16;
        self
    }

    /// The same entry for another namespace.
    pub const fn with_nsid(mut self, nsid: u32) -> Sqe {
        self.0[1] = nsid;
        self
    }

    /// The same entry with one double word (0 to 15) replaced. Asserts that `index` is below 16.
    pub const fn with_dword(mut self, index: usize, value: u32) -> Sqe {
        self.0[index] = value;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_stand_where_the_specification_puts_them() {
        let bytes: [u8; 64] = std::array::from_fn(|i| i as u8);
        let sqe = Sqe::from_bytes(&bytes);
        assert_eq!(sqe.opcode(), 0x00);
        assert_eq!(sqe.cid(), 0x0302);
        assert_eq!(sqe.nsid(), 0x0706_0504);
        assert_eq!(sqe.metadata_pointer(), 0x1716_1514_1312_1110);
        assert_eq!(sqe.prp1(), 0x1F1E_1D1C_1B1A_1918);
        assert_eq!(sqe.prp2(), 0x2726_2524_2322_2120);
        assert_eq!(sqe.slba(), 0x2F2E_2D2C_2B2A_2928);
        assert_eq!((sqe.cdw10(), sqe.cdw11()), (0x2B2A_2928, 0x2F2E_2D2C));
        assert_eq!((sqe.cdw12(), sqe.cdw13()), (0x3332_3130, 0x3736_3534));
        assert_eq!((sqe.cdw14(), sqe.cdw15()), (0x3B3A_3938, 0x3F3E_3D3C));
        let flags = Sqe::default().with_dword(0, 0x0000_8100);
        assert_eq!((flags.fuse(), flags.psdt()), (1, 2));
    }

    #[test]
    fn builders_fill_the_fields() {
        let sqe = Sqe::write(0xBEEF, 0x0123_4567_89AB_CDEF, 7).with_fua().with_nsid(3);
        assert_eq!((sqe.opcode(), sqe.cid(), sqe.nsid()), (opcode::WRITE, 0xBEEF, 3));
        assert_eq!((sqe.slba(), sqe.cdw12()), (0x0123_4567_89AB_CDEF, 7 | 1 << 30));
        assert_eq!(Sqe::write_zeroes(1, 2, 3, true).cdw12(), 3 | 1 << 25);
        let dsm = Sqe::dataset_management(9, 255, true);
        assert_eq!((dsm.opcode(), dsm.cdw10(), dsm.cdw11()), (opcode::DATASET_MANAGEMENT, 255, 4));
    }

    proptest! {
        #[test]
        fn bytes_come_back(words in any::<[u64; 8]>()) {
            let mut bytes = [0; Sqe::SIZE];
            for (chunk, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
                *chunk = word.to_le_bytes();
            }
            let sqe = Sqe::from_bytes(&bytes);
            prop_assert_eq!(sqe.to_bytes(), bytes);
            prop_assert_eq!(Sqe::from_dwords(*sqe.dwords()), sqe);
        }
    }
}
