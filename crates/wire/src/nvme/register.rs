//! Controller registers: where they are in BAR0, and what their bits mean (section 3.1; CMBEBS, CMBSWTP and CRTO: NVM
//! Express Base Specification 2.0, section 3.1.3). A register that the device makes up is a structure with `bits()`;
//! one that the host writes is a view of any bits.

/// Offsets in BAR0, in bytes.
pub mod offset {
    /// Controller Capabilities (CAP), 8 bytes, read only.
    pub const CAP: u32 = 0x00;
    /// Version (VS), read only.
    pub const VS: u32 = 0x08;
    /// Interrupt Mask Set (INTMS): write 1 to set; undefined with MSI-X.
    pub const INTMS: u32 = 0x0C;
    /// Interrupt Mask Clear (INTMC): write 1 to clear; undefined with MSI-X.
    pub const INTMC: u32 = 0x10;
    /// Controller Configuration (CC).
    pub const CC: u32 = 0x14;
    /// Controller Status (CSTS): read only, except NSSRO, which is write 1 to clear.
    pub const CSTS: u32 = 0x1C;
    /// NVM Subsystem Reset (NSSR).
    pub const NSSR: u32 = 0x20;
    /// Admin Queue Attributes (AQA).
    pub const AQA: u32 = 0x24;
    /// Admin Submission Queue Base Address (ASQ), 8 bytes.
    pub const ASQ: u32 = 0x28;
    /// Admin Completion Queue Base Address (ACQ), 8 bytes.
    pub const ACQ: u32 = 0x30;
    /// Controller Memory Buffer Location (CMBLOC), read only.
    pub const CMBLOC: u32 = 0x38;
    /// Controller Memory Buffer Size (CMBSZ), read only.
    pub const CMBSZ: u32 = 0x3C;
    /// Boot Partition Information (BPINFO), read only.
    pub const BPINFO: u32 = 0x40;
    /// Boot Partition Read Select (BPRSEL).
    pub const BPRSEL: u32 = 0x44;
    /// Boot Partition Memory Buffer Location (BPMBL), 8 bytes.
    pub const BPMBL: u32 = 0x48;
    /// Controller Memory Buffer Memory Space Control (CMBMSC), 8 bytes.
    pub const CMBMSC: u32 = 0x50;
    /// Controller Memory Buffer Status (CMBSTS), read only.
    pub const CMBSTS: u32 = 0x58;
    /// Controller Memory Buffer Elasticity Buffer Size (CMBEBS), read only; revision 2.0.
    pub const CMBEBS: u32 = 0x5C;
    /// Controller Memory Buffer Sustained Write Throughput (CMBSWTP), read only; revision 2.0.
    pub const CMBSWTP: u32 = 0x60;
    /// NVM Subsystem Shutdown (NSSD); revision 2.0.
    pub const NSSD: u32 = 0x64;
    /// Controller Ready Timeouts (CRTO), read only; revision 2.0.
    pub const CRTO: u32 = 0x68;
    /// Persistent Memory Region Capabilities (PMRCAP), read only.
    pub const PMRCAP: u32 = 0xE00;
    /// Persistent Memory Region Control (PMRCTL).
    pub const PMRCTL: u32 = 0xE04;
    /// Persistent Memory Region Status (PMRSTS), read only. Reading it is a barrier when PMRWBM says so.
    pub const PMRSTS: u32 = 0xE08;
    /// Persistent Memory Region Elasticity Buffer Size (PMREBS), read only.
    pub const PMREBS: u32 = 0xE0C;
    /// Persistent Memory Region Sustained Write Throughput (PMRSWTP), read only.
    pub const PMRSWTP: u32 = 0xE10;
    /// Persistent Memory Region Memory Space Control, lower half (PMRMSCL). Revision 1.4 has both halves as one
    /// register, PMRMSC.
    pub const PMRMSCL: u32 = 0xE14;
    /// Persistent Memory Region Memory Space Control, upper half (PMRMSCU).
    pub const PMRMSCU: u32 = 0xE18;
    /// The first doorbell (section 3.1.24).
    pub const DOORBELLS: u32 = 0x1000;
}

/// Value written to NSSR to reset the NVM subsystem: "NVMe" (section 3.1.7).
pub const NSSR_RESET: u32 = 0x4E56_4D65;
/// VS of revision 1.4 (section 3.1.2).
pub const VERSION_1_4: u32 = 0x0001_0400;

/// Bits `high:low` of `value`.
const fn field(value: u64, high: u32, low: u32) -> u64 {
    value >> low & (u64::MAX >> (63 - (high - low)))
}

const fn flag(value: bool, bit: u32) -> u64 {
    (value as u64) << bit
}

/// Controller Capabilities (section 3.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cap {
    /// Maximum Queue Entries Supported (MQES), counts from 0: at least 1.
    pub mqes: u16,
    /// Contiguous Queues Required (CQR).
    pub cqr: bool,
    /// Weighted round robin with urgent priority class is supported (AMS bit 0).
    pub weighted_round_robin: bool,
    /// Timeout (TO): the longest wait for CSTS.RDY, in units of 500 ms.
    pub timeout: u8,
    /// Doorbell Stride (DSTRD): doorbells are 4 << this bytes apart; 0 to 15.
    pub doorbell_stride: u8,
    /// NVM Subsystem Reset Supported (NSSRS).
    pub subsystem_reset: bool,
    /// The NVM command set is supported (CSS bit 0).
    pub nvm_command_set: bool,
    /// Only admin commands are supported (CSS bit 7).
    pub admin_only: bool,
    /// Memory Page Size Minimum (MPSMIN): 2^(12 + this) bytes; 0 to 15.
    pub mpsmin: u8,
    /// Memory Page Size Maximum (MPSMAX): 2^(12 + this) bytes; 0 to 15.
    pub mpsmax: u8,
    /// Persistent Memory Region Supported (PMRS).
    pub pmr: bool,
    /// Controller Memory Buffer Supported (CMBS): CMBMSC is there.
    pub cmb: bool,
}

impl Cap {
    /// The register.
    pub const fn bits(&self) -> u64 {
        self.mqes as u64
            | flag(self.cqr, 16)
            | flag(self.weighted_round_robin, 17)
            | (self.timeout as u64) << 24
            | (self.doorbell_stride as u64 & 0xF) << 32
            | flag(self.subsystem_reset, 36)
            | flag(self.nvm_command_set, 37)
            | flag(self.admin_only, 44)
            | (self.mpsmin as u64 & 0xF) << 48
            | (self.mpsmax as u64 & 0xF) << 52
            | flag(self.pmr, 56)
            | flag(self.cmb, 57)
    }

    /// Parses the register.
    pub const fn from_bits(bits: u64) -> Cap {
        Cap {
            mqes: bits as u16,
            cqr: field(bits, 16, 16) != 0,
            weighted_round_robin: field(bits, 17, 17) != 0,
            timeout: field(bits, 31, 24) as u8,
            doorbell_stride: field(bits, 35, 32) as u8,
            subsystem_reset: field(bits, 36, 36) != 0,
            nvm_command_set: field(bits, 37, 37) != 0,
            admin_only: field(bits, 44, 44) != 0,
            mpsmin: field(bits, 51, 48) as u8,
            mpsmax: field(bits, 55, 52) as u8,
            pmr: field(bits, 56, 56) != 0,
            cmb: field(bits, 57, 57) != 0,
        }
    }
}

/// Shutdown notification (CC.SHN).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShutdownNotification {
    /// Nothing.
    None,
    /// A normal shutdown.
    Normal,
    /// An abrupt shutdown.
    Abrupt,
    /// 11b.
    Reserved,
}

/// Controller Configuration (section 3.1.5): any bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cc(pub u32);

impl Cc {
    /// Bits that a host can set; the others are reserved and read as zero.
    pub const WRITABLE: u32 = 0x00FF_FFF1;

    /// Enable (EN).
    pub const fn enable(self) -> bool {
        self.0 & 1 != 0
    }

    /// I/O Command Set Selected (CSS): 000b NVM, 110b all that are supported (revision 2.0), 111b admin only.
    pub const fn command_set(self) -> u8 {
        (self.0 >> 4) as u8 & 7
    }

    /// Memory Page Size (MPS): 2^(12 + this) bytes.
    pub const fn page_shift(self) -> u32 {
        12 + (self.0 >> 7 & 0xF)
    }

    /// Arbitration Mechanism Selected (AMS): 000b round robin, 001b weighted, 111b vendor specific.
    pub const fn arbitration(self) -> u8 {
        (self.0 >> 11) as u8 & 7
    }

    /// Shutdown Notification (SHN).
    pub const fn shutdown(self) -> ShutdownNotification {
        match self.0 >> 14 & 3 {
            0 => ShutdownNotification::None,
            1 => ShutdownNotification::Normal,
            2 => ShutdownNotification::Abrupt,
            _ => ShutdownNotification::Reserved,
        }
    }

    /// I/O Submission Queue Entry Size (IOSQES) as a power of two; 6 is right.
    pub const fn submission_entry_shift(self) -> u8 {
        (self.0 >> 16) as u8 & 0xF
    }

    /// I/O Completion Queue Entry Size (IOCQES) as a power of two; 4 is right.
    pub const fn completion_entry_shift(self) -> u8 {
        (self.0 >> 20) as u8 & 0xF
    }
}

/// CSTS.SHST.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ShutdownStatus {
    /// Normal operation.
    #[default]
    None = 0,
    /// Shutdown processing occurs.
    Occurring = 1,
    /// Shutdown processing is complete.
    Complete = 2,
}

/// Controller Status (section 3.1.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Csts {
    /// Ready (RDY).
    pub ready: bool,
    /// Controller Fatal Status (CFS).
    pub fatal: bool,
    /// Shutdown Status (SHST).
    pub shutdown: ShutdownStatus,
    /// NVM Subsystem Reset Occurred (NSSRO): write 1 to clear.
    pub subsystem_reset_occurred: bool,
    /// Processing Paused (PP).
    pub paused: bool,
}

impl Csts {
    /// NSSRO, the one bit that a host can write: 1 clears it.
    pub const NSSRO: u32 = 1 << 4;

    /// The register.
    pub const fn bits(&self) -> u32 {
        (flag(self.ready, 0)
            | flag(self.fatal, 1)
            | (self.shutdown as u64) << 2
            | flag(self.subsystem_reset_occurred, 4)
            | flag(self.paused, 5)) as u32
    }
}

/// Admin Queue Attributes (section 3.1.8): any bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Aqa(pub u32);

impl Aqa {
    /// Bits that a host can set.
    pub const WRITABLE: u32 = 0x0FFF_0FFF;

    /// Entries of the admin submission queue, 1 to 4,096; 1 is invalid.
    pub const fn submission_entries(self) -> u32 {
        (self.0 & 0xFFF) + 1
    }

    /// Entries of the admin completion queue, 1 to 4,096; 1 is invalid.
    pub const fn completion_entries(self) -> u32 {
        (self.0 >> 16 & 0xFFF) + 1
    }
}

/// Controller Memory Buffer Location (section 3.1.11).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CmbLoc {
    /// Base Indicator Register (BIR): the BAR, 0, 2, 3, 4 or 5.
    pub bir: u8,
    /// Data pointers and command independent data structures may lie in the CMB though queues do, and mixed (CQMMS,
    /// CQPDS, CDPMLS, CDPCILS, CDMMMS, CQDA): bits 8:3 of the register, from bit 0.
    pub rules: u8,
    /// Offset (OFST) from the start of the BAR, in units of `CmbSz::unit`; 20 bits.
    pub offset: u32,
}

impl CmbLoc {
    /// Everything in a CMB may be mixed with what is in the host's memory: bits 3 to 8.
    pub const ANYTHING_GOES: u8 = 0x3F;

    /// The register.
    pub const fn bits(&self) -> u32 {
        self.bir as u32 & 7 | (self.rules as u32 & 0x3F) << 3 | self.offset << 12
    }

    /// Parses the register.
    pub const fn from_bits(bits: u32) -> CmbLoc {
        CmbLoc { bir: bits as u8 & 7, rules: (bits >> 3) as u8 & 0x3F, offset: bits >> 12 }
    }
}

/// Controller Memory Buffer Size (section 3.1.12).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CmbSz {
    /// Submission Queue Support (SQS).
    pub submission_queues: bool,
    /// Completion Queue Support (CQS).
    pub completion_queues: bool,
    /// PRP SGL List Support (LISTS).
    pub lists: bool,
    /// Read Data Support (RDS): data that a command reads may go there.
    pub read_data: bool,
    /// Write Data Support (WDS): data that a command writes may come from there.
    pub write_data: bool,
    /// Size Units (SZU): 4 KiB << (4 × this); 0 to 6.
    pub unit: u8,
    /// Size (SZ) in these units; 20 bits.
    pub size: u32,
}

impl CmbSz {
    /// The register.
    pub const fn bits(&self) -> u32 {
        (flag(self.submission_queues, 0)
            | flag(self.completion_queues, 1)
            | flag(self.lists, 2)
            | flag(self.read_data, 3)
            | flag(self.write_data, 4)) as u32
            | (self.unit as u32 & 0xF) << 8
            | self.size << 12
    }

    /// Parses the register.
    pub const fn from_bits(bits: u32) -> CmbSz {
        CmbSz {
            submission_queues: bits & 1 != 0,
            completion_queues: bits >> 1 & 1 != 0,
            lists: bits >> 2 & 1 != 0,
            read_data: bits >> 3 & 1 != 0,
            write_data: bits >> 4 & 1 != 0,
            unit: (bits >> 8) as u8 & 0xF,
            size: bits >> 12,
        }
    }

    /// Bytes of the buffer.
    pub const fn bytes(&self) -> u64 {
        let unit = if self.unit > 6 { 6 } else { self.unit };
        (self.size as u64) << (12 + 4 * unit as u32)
    }
}

/// Memory space control of the CMB (section 3.1.16) or, as PMRMSCU:PMRMSCL, of the PMR (section 3.1.23): any bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemorySpaceControl(pub u64);

impl MemorySpaceControl {
    /// Bits of CMBMSC that a host can set.
    pub const CMB_WRITABLE: u64 = 0xFFFF_FFFF_FFFF_F003;
    /// Bits of PMRMSC that a host can set.
    pub const PMR_WRITABLE: u64 = 0xFFFF_FFFF_FFFF_F002;

    /// Capabilities Registers Enabled (CRE): CMBLOC and CMBSZ tell what there is. CMBMSC only.
    pub const fn registers_enabled(self) -> bool {
        self.0 & 1 != 0
    }

    /// Controller Memory Space Enable (CMSE): commands reach the memory at [`MemorySpaceControl::base`].
    pub const fn enabled(self) -> bool {
        self.0 & 2 != 0
    }

    /// Controller Base Address (CBA): a multiple of 4 KiB.
    pub const fn base(self) -> u64 {
        self.0 & !0xFFF
    }
}

/// CMBSTS.CBAI: the controller base address is invalid (section 3.1.17).
pub const CMBSTS_CBAI: u32 = 1;

/// Elasticity buffer of the PMR or CMB (PMREBS; CMBEBS).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ElasticityBuffer {
    /// Size units: 0 bytes, 1 KiB, 2 MiB, 3 GiB.
    pub unit: u8,
    /// Reads do not wait until writes have left the buffer (RBB).
    pub read_bypass: bool,
    /// Size of the write buffer in these units; 24 bits.
    pub size: u32,
}

impl ElasticityBuffer {
    /// The register.
    pub const fn bits(&self) -> u32 {
        self.unit as u32 & 0xF | (self.read_bypass as u32) << 4 | self.size << 8
    }
}

/// Sustained write throughput of the PMR or CMB (PMRSWTP; CMBSWTP).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SustainedThroughput {
    /// Units per second: 0 bytes, 1 KiB, 2 MiB, 3 GiB.
    pub unit: u8,
    /// Throughput in these units; 24 bits.
    pub value: u32,
}

impl SustainedThroughput {
    /// This many bytes per second, in the finest unit that can tell them, rounded down.
    pub const fn of(bytes_per_second: u64) -> SustainedThroughput {
        let mut unit = 0;
        let mut value = bytes_per_second;
        while value > 0xFF_FFFF && unit < 3 {
            value >>= 10;
            unit += 1;
        }
        SustainedThroughput { unit, value: if value > 0xFF_FFFF { 0xFF_FFFF } else { value as u32 } }
    }

    /// The register.
    pub const fn bits(&self) -> u32 {
        self.unit as u32 & 0xF | self.value << 8
    }
}

/// Persistent Memory Region Capabilities (section 3.1.18).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PmrCap {
    /// Read Data Support (RDS).
    pub read_data: bool,
    /// Write Data Support (WDS).
    pub write_data: bool,
    /// Base Indicator Register (BIR): the BAR, 2 to 5.
    pub bir: u8,
    /// Time units (PMRTU) are minutes instead of 500 ms.
    pub minutes: bool,
    /// A read of any byte of the region makes earlier writes persistent (PMRWBM bit 0).
    pub barrier_by_read: bool,
    /// A read of PMRSTS makes earlier writes persistent (PMRWBM bit 1).
    pub barrier_by_status: bool,
    /// Timeout (PMRTO): the longest wait for NRDY, in time units.
    pub timeout: u8,
    /// Controller Memory Space Supported (CMSS): PMRMSC is there.
    pub memory_space: bool,
}

impl PmrCap {
    /// The register.
    pub const fn bits(&self) -> u32 {
        (flag(self.read_data, 3)
            | flag(self.write_data, 4)
            | (self.bir as u64 & 7) << 5
            | flag(self.minutes, 8)
            | flag(self.barrier_by_read, 10)
            | flag(self.barrier_by_status, 11)
            | (self.timeout as u64) << 16
            | flag(self.memory_space, 24)) as u32
    }
}

/// PMRCTL.EN: the region is enabled (section 3.1.19). The one bit that a host can set.
pub const PMRCTL_EN: u32 = 1;

/// PMRSTS.HSTS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PmrHealth {
    /// Normal operation.
    #[default]
    Normal = 0,
    /// The region was restored to what it held in part or not at all.
    RestoreError = 1,
    /// It only reads.
    ReadOnly = 2,
    /// It has become unreliable.
    Unreliable = 3,
}

/// Persistent Memory Region Status (section 3.1.20).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PmrSts {
    /// Error (ERR): anything but 0 since the region was last made ready.
    pub error: u8,
    /// Not Ready (NRDY).
    pub not_ready: bool,
    /// Health Status (HSTS).
    pub health: PmrHealth,
    /// Controller Base Address Invalid (CBAI).
    pub base_invalid: bool,
}

impl PmrSts {
    /// The register.
    pub const fn bits(&self) -> u32 {
        self.error as u32 | (self.not_ready as u32) << 8 | (self.health as u32) << 9 | (self.base_invalid as u32) << 12
    }
}

/// A doorbell (section 3.1.24 and 3.1.25).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Doorbell {
    /// Queue; 0 is the admin queue.
    pub queue: u16,
    /// The head of a completion queue, else the tail of a submission queue.
    pub completion: bool,
}

impl Doorbell {
    /// The doorbell at a byte of BAR0, with the stride of CAP.DSTRD. `None` below the doorbells, between them, and past
    /// those of 65,536 queues.
    pub const fn at(bar_offset: u32, stride: u8) -> Option<Doorbell> {
        let Some(byte) = bar_offset.checked_sub(offset::DOORBELLS) else { return None };
        let step = 4 << (stride as u32 & 0xF);
        let (number, rest) = (byte / step, byte % step);
        if rest != 0 || number >= 2 << 16 {
            return None;
        }
        Some(Doorbell { queue: (number / 2) as u16, completion: number % 2 == 1 })
    }

    /// The byte of BAR0 where it is.
    pub const fn bar_offset(&self, stride: u8) -> u64 {
        offset::DOORBELLS as u64 + ((2 * self.queue as u64 + self.completion as u64) * (4 << (stride as u64 & 0xF)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_controller_as_others_print_it() {
        // What a common virtual controller says: 2,048 entries, 7.5 s, both command set bits, CMB and PMR.
        let cap = Cap {
            mqes: 2047,
            cqr: true,
            timeout: 15,
            nvm_command_set: true,
            admin_only: true,
            mpsmax: 4,
            pmr: true,
            cmb: true,
            ..Cap::default()
        };
        assert_eq!(cap.bits(), 0x0340_1020_0F01_07FF);
        // What Linux writes to CC: enabled, 64- and 16-byte entries, 4 KiB pages.
        let cc = Cc(0x0046_0001);
        assert_eq!((cc.submission_entry_shift(), cc.completion_entry_shift(), cc.page_shift()), (6, 4, 12));
        assert!(cc.enable() && cc.shutdown() == ShutdownNotification::None && cc.command_set() == 0);
        assert_eq!(Cc(cc.0 | 1 << 14).shutdown(), ShutdownNotification::Normal);
        assert_eq!((Aqa(0x001F_001F).submission_entries(), Aqa(0x0FFF_0000).completion_entries()), (32, 4096));
        let status = Csts { ready: true, shutdown: ShutdownStatus::Complete, ..Csts::default() };
        assert_eq!(status.bits(), 0x9);
    }

    #[test]
    fn controller_memory_is_described() {
        let size = CmbSz { submission_queues: true, read_data: true, unit: 1, size: 16, ..CmbSz::default() };
        assert_eq!((size.bits(), size.bytes()), (0x0001_0109, 1 << 20));
        let place = CmbLoc { bir: 2, rules: CmbLoc::ANYTHING_GOES, offset: 5 };
        assert_eq!(place.bits(), 0x51FA);
        let pmr = PmrCap { bir: 4, barrier_by_status: true, memory_space: true, ..PmrCap::default() };
        assert_eq!(pmr.bits(), 0x0100_0880);
        assert_eq!(SustainedThroughput::of(3 << 30).bits(), 3 << 28 | 1);
        assert_eq!(SustainedThroughput::of(u64::MAX).bits(), 0xFFFF_FF03);
        assert_eq!(SustainedThroughput::of(5).bits(), 5 << 8);
        let control = MemorySpaceControl(0x1_2345_6FFF);
        assert_eq!((control.enabled(), control.registers_enabled(), control.base()), (true, true, 0x1_2345_6000));
    }

    proptest! {
        #[test]
        fn capabilities_come_back(bits in any::<u64>(), word in any::<u32>()) {
            let cap = Cap::from_bits(bits);
            prop_assert_eq!(Cap::from_bits(cap.bits()), cap);
            prop_assert_eq!(cap.bits() & !bits, 0);
            prop_assert_eq!(CmbLoc::from_bits(word).bits(), word & !0xE00);
            prop_assert_eq!(CmbSz::from_bits(word).bits(), word & !0xE0);
            prop_assert!(CmbSz::from_bits(word).bytes() < 1 << 57);
        }

        #[test]
        fn doorbells_are_found(
            queue in any::<u16>(),
            completion in any::<bool>(),
            stride in 0u8..=6,
            any_offset in any::<u32>(),
        ) {
            let bell = Doorbell { queue, completion };
            prop_assert_eq!(Doorbell::at(bell.bar_offset(stride) as u32, stride), Some(bell));
            if let Some(found) = Doorbell::at(any_offset, stride) {
                prop_assert_eq!(found.bar_offset(stride), u64::from(any_offset));
            }
        }
    }
}
