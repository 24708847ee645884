//! I/O commands: a submission queue entry, once it is known to be valid.

use super::sqe::{DSM_DEALLOCATE, DSM_INTEGRAL_READ, DSM_INTEGRAL_WRITE, FUA, LIMITED_RETRY, WRITE_ZEROES_DEALLOCATE};
use super::{Sqe, Status, opcode};

/// Operation of a command.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Blocks to the host (section 6.9).
    Read,
    /// Blocks from the host (section 6.15).
    Write,
    /// Completed writes are made durable (section 6.8).
    Flush,
    /// Blocks become zeroes, without a transfer (section 6.17).
    WriteZeroes {
        /// The blocks may be unmapped, since unmapped blocks read as zeroes.
        deallocate: bool,
    },
    /// Blocks are compared with the host's data (section 6.6).
    Compare,
    /// Blocks are read and checked, without a transfer (section 6.14).
    Verify,
    /// Attributes of block ranges, which the host sends as [`DsmRange`]s (section 6.7).
    DatasetManagement {
        /// Number of ranges, 1 to 256.
        ranges: u16,
        /// The ranges are deallocated. Otherwise the command carries hints only.
        deallocate: bool,
        /// Hint: the ranges will be read as one.
        integral_read: bool,
        /// Hint: the ranges will be written as one.
        integral_write: bool,
    },
}

impl Kind {
    /// Whether data moves between the host and the drive (range lists aside): what the transfer limit (MDTS) is about.
    pub const fn transfers(self) -> bool {
        matches!(self, Kind::Read | Kind::Write | Kind::Compare)
    }

    /// Whether the command may change the namespace: what write protection refuses (section 8.19).
    pub const fn modifies(self) -> bool {
        matches!(self, Kind::Write | Kind::WriteZeroes { .. } | Kind::DatasetManagement { deallocate: true, .. })
    }
}

/// A command whose own fields are valid. Whether its namespace and blocks exist is for the firmware to check.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Command {
    /// The operation.
    pub kind: Kind,
    /// Namespace identifier: any value.
    pub nsid: u32,
    /// First block: any value; 0 for Flush and Dataset Management.
    pub first_block: u64,
    /// Number of blocks, 1 to 65,536; 0 for Flush and Dataset Management.
    pub blocks: u32,
    /// Force Unit Access: data written is durable, and data read comes from the medium, before the command completes.
    pub fua: bool,
    /// Limited Retry: the host prefers an early error to a long recovery.
    pub limited_retry: bool,
}

impl Command {
    /// Reads an entry.
    ///
    /// Unknown opcodes give Invalid Command Opcode. Fused operations and SGLs, which the controller says it does not
    /// support (FUSES and SGLS of Identify Controller), give Invalid Field in Command. Reserved bits are ignored, and
    /// so are fields whose feature the controller does not offer: protection information, directives, storage hints.
    #[inline(always)]
    pub fn parse(sqe: &Sqe) -> Result<Command, Status> {
        let dwords = sqe.dwords();
        let cdw12 = dwords[12];
        let kind = match sqe.opcode() {
            opcode::READ => Kind::Read,
            opcode::WRITE => Kind::Write,
            opcode::FLUSH => Kind::Flush,
            opcode::WRITE_ZEROES => Kind::WriteZeroes { deallocate: cdw12 & WRITE_ZEROES_DEALLOCATE != 0 },
            opcode::COMPARE => Kind::Compare,
            opcode::VERIFY => Kind::Verify,
            opcode::DATASET_MANAGEMENT => Kind::DatasetManagement {
                ranges: (dwords[10] & 0xFF) as u16 + 1,
                deallocate: dwords[11] & DSM_DEALLOCATE != 0,
                integral_read: dwords[11] & DSM_INTEGRAL_READ != 0,
                integral_write: dwords[11] & DSM_INTEGRAL_WRITE != 0,
            },
            _ => return Err(Status::INVALID_OPCODE),
        };
        if sqe.fuse() != 0 || sqe.psdt() != 0 {
            return Err(Status::INVALID_FIELD);
        }
        let nsid = sqe.nsid();
        if matches!(kind, Kind::Flush | Kind::DatasetManagement { .. }) {
            return Ok(Command { kind, nsid, first_block: 0, blocks: 0, fua: false, limited_retry: false });
        }
        Ok(Command {
            kind,
            nsid,
            first_block: sqe.slba(),
            blocks: (cdw12 & 0xFFFF) + 1,
            fua: cdw12 & FUA != 0,
            limited_retry: cdw12 & LIMITED_RETRY != 0,
        })
    }

    /// The entry that parses to this command. Asserts the ranges of the fields.
    pub fn emit(&self, cid: u16) -> Sqe {
        let nlb = || {
            assert!((1..=65_536).contains(&self.blocks), "a command addresses 1 to 65,536 blocks, not {}", self.blocks);
            (self.blocks - 1) as u16
        };
        let mut sqe = match self.kind {
            Kind::Flush => return Sqe::flush(cid).with_nsid(self.nsid),
            Kind::DatasetManagement { ranges, deallocate, integral_read, integral_write } => {
                assert!((1..=256).contains(&ranges), "Dataset Management has 1 to 256 ranges, not {ranges}");
                let sqe = Sqe::dataset_management(cid, (ranges - 1) as u8, deallocate).with_nsid(self.nsid);
                let hints = if integral_read { DSM_INTEGRAL_READ } else { 0 }
                    | if integral_write { DSM_INTEGRAL_WRITE } else { 0 };
                return sqe.with_dword(11, sqe.cdw11() | hints);
            }
            Kind::Read => Sqe::read(cid, self.first_block, nlb()),
            Kind::Write => Sqe::write(cid, self.first_block, nlb()),
            Kind::WriteZeroes { deallocate } => Sqe::write_zeroes(cid, self.first_block, nlb(), deallocate),
            Kind::Compare => Sqe::compare(cid, self.first_block, nlb()),
            Kind::Verify => Sqe::verify(cid, self.first_block, nlb()),
        };
        if self.fua {
            sqe = sqe.with_fua();
        }
        if self.limited_retry {
            sqe = sqe.with_dword(12, sqe.cdw12() | LIMITED_RETRY);
        }
        sqe.with_nsid(self.nsid)
    }
}

/// A range of Dataset Management (section 6.7): 16 bytes, every pattern valid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DsmRange {
    /// Context attributes: hints on how the range is used. The firmware ignores them.
    pub attributes: u32,
    /// Number of blocks; 0 is an empty range.
    pub blocks: u32,
    /// First block.
    pub first_block: u64,
}

impl DsmRange {
    /// Bytes of a range.
    pub const SIZE: usize = 16;

    /// A range without hints.
    pub const fn new(first_block: u64, blocks: u32) -> DsmRange {
        DsmRange { attributes: 0, blocks, first_block }
    }

    /// A range from its bytes in memory.
    pub fn from_bytes(bytes: &[u8; DsmRange::SIZE]) -> DsmRange {
        let [a0, a1, a2, a3, n0, n1, n2, n3, first @ ..] = *bytes;
        DsmRange {
            attributes: u32::from_le_bytes([a0, a1, a2, a3]),
            blocks: u32::from_le_bytes([n0, n1, n2, n3]),
            first_block: u64::from_le_bytes(first),
        }
    }

    /// Its bytes in memory.
    pub fn to_bytes(&self) -> [u8; DsmRange::SIZE] {
        let mut bytes = [0; DsmRange::SIZE];
        bytes[0..4].copy_from_slice(&self.attributes.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first_block.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn builders_parse() {
        let parsed = Command::parse(&Sqe::read(1, u64::MAX, 0xFFFF)).unwrap();
        assert_eq!((parsed.kind, parsed.first_block, parsed.blocks, parsed.fua), (Kind::Read, u64::MAX, 65_536, false));
        assert!(Command::parse(&Sqe::write(1, 8, 0).with_fua()).unwrap().fua);
        assert_eq!(Command::parse(&Sqe::flush(1)).unwrap().kind, Kind::Flush);
        assert_eq!(
            Command::parse(&Sqe::write_zeroes(1, 8, 0, true)).unwrap().kind,
            Kind::WriteZeroes { deallocate: true }
        );
        assert_eq!(Command::parse(&Sqe::compare(1, 8, 0)).unwrap().kind, Kind::Compare);
        assert_eq!(Command::parse(&Sqe::verify(1, 8, 0)).unwrap().kind, Kind::Verify);
        let dsm = Command::parse(&Sqe::dataset_management(1, 255, true)).unwrap();
        assert!(
            matches!(dsm.kind, Kind::DatasetManagement { ranges: 256, deallocate: true, .. }) && dsm.blocks == 0,
            "{dsm:?}"
        );
    }

    #[test]
    fn every_opcode_is_known_or_refused() {
        for code in 0..=255 {
            let parsed = Command::parse(&Sqe::default().with_dword(0, code));
            if opcode::NAMED.iter().any(|&(known, _)| u32::from(known) == code) {
                assert!(parsed.is_ok(), "{code:02X}h: {parsed:?}");
            } else {
                assert_eq!(parsed, Err(Status::INVALID_OPCODE), "{code:02X}h");
            }
        }
    }

    #[test]
    fn fused_operations_and_sgls_are_refused_but_an_unknown_opcode_comes_first() {
        for flags in [1 << 8, 2 << 8, 3 << 8, 1 << 14, 2 << 14, 3 << 14] {
            let dword0 = |opcode: u8| u32::from(opcode) | flags;
            let sqe = Sqe::read(0, 0, 0).with_dword(0, dword0(opcode::READ));
            assert_eq!(Command::parse(&sqe), Err(Status::INVALID_FIELD));
            assert_eq!(Command::parse(&sqe.with_dword(0, dword0(0xFF))), Err(Status::INVALID_OPCODE));
        }
    }

    #[test]
    fn reserved_bits_and_fields_of_absent_features_are_ignored() {
        let plain = Sqe::write(5, 100, 7);
        let noisy = plain
            .with_dword(0, plain.dwords()[0] | 0xF << 10)
            .with_dword(2, u32::MAX)
            .with_dword(3, u32::MAX)
            .with_dword(12, plain.cdw12() | 0x3DFF_0000)
            .with_dword(13, u32::MAX)
            .with_dword(14, u32::MAX)
            .with_dword(15, u32::MAX);
        assert_eq!(Command::parse(&noisy), Command::parse(&plain));
    }

    fn any_sqe() -> impl Strategy<Value = Sqe> {
        // Wholly random entries are nearly all refused by opcode: half of them get a known one and no flags.
        (any::<[u32; 16]>(), any::<bool>(), 0..opcode::NAMED.len()).prop_map(|(mut dwords, known, which)| {
            if known {
                dwords[0] = dwords[0] & 0xFFFF_3C00 | u32::from(opcode::NAMED[which].0);
            }
            Sqe::from_dwords(dwords)
        })
    }

    proptest! {
        #[test]
        fn any_64_bytes_parse_or_get_a_status(sqe in any_sqe()) {
            match Command::parse(&sqe) {
                Ok(command) => {
                    prop_assert!(command.blocks <= 65_536);
                    let again = command.emit(sqe.cid());
                    prop_assert_eq!(again.cid(), sqe.cid());
                    prop_assert_eq!(again.opcode(), sqe.opcode());
                    prop_assert_eq!(Command::parse(&again), Ok(command));
                }
                Err(status) => {
                    prop_assert!(status.sct() == 0 && (status.sc() == 1 || status.sc() == 2) && status.dnr());
                }
            }
        }

        #[test]
        fn ranges_come_back(bytes in any::<[u8; 16]>()) {
            prop_assert_eq!(DsmRange::from_bytes(&bytes).to_bytes(), bytes);
        }
    }

    #[test]
    fn a_range_is_laid_out_as_the_specification_says() {
        let range = DsmRange { attributes: 0x0302_0100, blocks: 0x0706_0504, first_block: 0x0F0E_0D0C_0B0A_0908 };
        assert_eq!(range.to_bytes(), std::array::from_fn(|i| i as u8));
    }
}
