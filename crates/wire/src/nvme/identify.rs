//! Identify data structures (section 5.15.2), always 4,096 bytes. Bytes that no field names are zero.
//!
//! Fields that came with revision 2.0 say so; they lie where revision 1.4 has reserved bytes, and zero means that the
//! feature is not there.

use super::text::{Nqn, Text};
use crate::layout::layout;

/// Bytes of all that Identify returns.
pub const IDENTIFY_BYTES: usize = 4096;

layout! {
    /// A power state: 32 bytes.
    pub struct PowerState [32] {
        /// Maximum Power (MP), in centiwatts.
        0 max_power: u16,
        /// Bit 0: MP is in units of 0.1 mW. Bit 1: a non-operational state.
        3 flags: u8,
        /// Entry Latency (ENLAT), in microseconds.
        4 entry_latency_us: u32,
        /// Exit Latency (EXLAT), in microseconds.
        8 exit_latency_us: u32,
        /// Relative Read Throughput (RRT).
        12 read_throughput: u8,
        /// Relative Read Latency (RRL).
        13 read_latency: u8,
        /// Relative Write Throughput (RWT).
        14 write_throughput: u8,
        /// Relative Write Latency (RWL).
        15 write_latency: u8,
    }
}

layout! {
    /// Identify Controller (CNS 01h, figure 247).
    pub struct IdentifyController [4096] {
        /// PCI Vendor ID (VID).
        0 vid: u16,
        /// PCI Subsystem Vendor ID (SSVID).
        2 ssvid: u16,
        /// Serial Number (SN).
        4 serial: Text<20>,
        /// Model Number (MN).
        24 model: Text<40>,
        /// Firmware Revision (FR).
        64 firmware: Text<8>,
        /// Recommended Arbitration Burst (RAB), as a power of two.
        72 rab: u8,
        /// IEEE OUI Identifier, least significant byte first; 0 is none.
        73 ieee: [u8; 3],
        /// Controller Multi-Path I/O and Namespace Sharing Capabilities (CMIC).
        76 cmic: u8,
        /// Maximum Data Transfer Size (MDTS): 2^this pages of CAP.MPSMIN; 0 is no limit.
        77 mdts: u8,
        /// Controller ID (CNTLID).
        78 cntlid: u16,
        /// Version (VER), as register VS.
        80 version: u32,
        /// RTD3 Resume Latency, in microseconds.
        84 rtd3r_us: u32,
        /// RTD3 Entry Latency, in microseconds: how long a shutdown may take.
        88 rtd3e_us: u32,
        /// Optional Asynchronous Events Supported (OAES).
        92 oaes: u32,
        /// Controller Attributes (CTRATT).
        96 ctratt: u32,
        /// Controller Type (CNTRLTYPE): 1 I/O, 2 discovery, 3 administrative.
        111 controller_type: u8,
        /// FRU Globally Unique Identifier (FGUID).
        112 fguid: [u8; 16],
        /// Optional Admin Command Support (OACS).
        256 oacs: u16,
        /// Abort Command Limit (ACL), counts from 0.
        258 acl: u8,
        /// Asynchronous Event Request Limit (AERL), counts from 0.
        259 aerl: u8,
        /// Firmware Updates (FRMW).
        260 frmw: u8,
        /// Log Page Attributes (LPA).
        261 lpa: u8,
        /// Error Log Page Entries (ELPE), counts from 0.
        262 elpe: u8,
        /// Number of Power States Support (NPSS), counts from 0.
        263 npss: u8,
        /// Admin Vendor Specific Command Configuration (AVSCC): bit 0, they use the common format.
        264 avscc: u8,
        /// Autonomous Power State Transition Attributes (APSTA).
        265 apsta: u8,
        /// Warning Composite Temperature Threshold (WCTEMP), in kelvins.
        266 wctemp: u16,
        /// Critical Composite Temperature Threshold (CCTEMP), in kelvins.
        268 cctemp: u16,
        /// Host Memory Buffer Preferred Size (HMPRE), in 4 KiB; 0 is no HMB.
        272 hmpre: u32,
        /// Host Memory Buffer Minimum Size (HMMIN), in 4 KiB.
        276 hmmin: u32,
        /// Total NVM Capacity (TNVMCAP), in bytes.
        280 tnvmcap: u128,
        /// Unallocated NVM Capacity (UNVMCAP), in bytes.
        296 unvmcap: u128,
        /// Extended Device Self-test Time (EDSTT), in minutes.
        316 edstt: u16,
        /// Device Self-test Options (DSTO): bit 0, one at a time in the subsystem.
        318 dsto: u8,
        /// Firmware Update Granularity (FWUG), in 4 KiB.
        319 fwug: u8,
        /// Keep Alive Support (KAS): granularity in 100 ms; 0 is none.
        320 kas: u16,
        /// Sanitize Capabilities (SANICAP).
        328 sanicap: u32,
        /// Host Memory Buffer Minimum Descriptor Entry Size (HMMINDS), in 4 KiB.
        332 hmminds: u32,
        /// Host Memory Maximum Descriptors Entries (HMMAXD).
        336 hmmaxd: u16,
        /// Submission Queue Entry Size (SQES): required in bits 3:0 and maximum in 7:4, as powers of two.
        512 sqes: u8,
        /// Completion Queue Entry Size (CQES): the same.
        513 cqes: u8,
        /// Maximum Outstanding Commands (MAXCMD); 0 tells nothing. Required over fabrics.
        514 maxcmd: u16,
        /// Number of Namespaces (NN): the highest identifier.
        516 nn: u32,
        /// Optional NVM Command Support (ONCS).
        520 oncs: u16,
        /// Fused Operation Support (FUSES).
        522 fuses: u16,
        /// Format NVM Attributes (FNA).
        524 fna: u8,
        /// Volatile Write Cache (VWC).
        525 vwc: u8,
        /// Atomic Write Unit Normal (AWUN), in blocks, counts from 0.
        526 awun: u16,
        /// Atomic Write Unit Power Fail (AWUPF), in blocks, counts from 0.
        528 awupf: u16,
        /// NVM Vendor Specific Command Configuration (NVSCC): bit 0, they use the common format.
        530 nvscc: u8,
        /// Namespace Write Protection Capabilities (NWPC).
        531 nwpc: u8,
        /// Atomic Compare & Write Unit (ACWU), in blocks, counts from 0.
        532 acwu: u16,
        /// SGL Support (SGLS).
        536 sgls: u32,
        /// Maximum Number of Allowed Namespaces (MNAN).
        540 mnan: u32,
        /// NVM Subsystem NVMe Qualified Name (SUBNQN).
        768 subnqn: Nqn,
        /// I/O Queue Command Capsule Supported Size (IOCCSZ), in 16 bytes. Fabrics.
        1792 ioccsz: u32,
        /// I/O Queue Response Capsule Supported Size (IORCSZ), in 16 bytes. Fabrics.
        1796 iorcsz: u32,
        /// In Capsule Data Offset (ICDOFF), in 16 bytes. Fabrics.
        1800 icdoff: u16,
        /// Fabrics Controller Attributes (FCATT).
        1802 fcatt: u8,
        /// Maximum SGL Data Block Descriptors (MSDBD); 0 is no limit. Fabrics.
        1803 msdbd: u8,
        /// Optional Fabric Commands Support (OFCS).
        1804 ofcs: u16,
        /// Power state descriptors, NPSS + 1 of them.
        2048 power_states: [PowerState; 32],
    }
}

/// Bits of fields of [`IdentifyController`].
pub mod controller {
    /// CMIC: the subsystem may have more than one port.
    pub const CMIC_PORTS: u8 = 1;
    /// CMIC: the subsystem may have more than one controller.
    pub const CMIC_CONTROLLERS: u8 = 1 << 1;
    /// OAES: Namespace Attribute Notices.
    pub const OAES_NAMESPACE: u32 = 1 << 8;
    /// OAES: Firmware Activation Notices.
    pub const OAES_FIRMWARE: u32 = 1 << 9;
    /// CTRATT: a host identifier of 128 bits.
    pub const CTRATT_HOST_ID_128: u32 = 1;
    /// CTRATT: Traffic Based Keep Alive Support.
    pub const CTRATT_TRAFFIC_KEEP_ALIVE: u32 = 1 << 6;
    /// OACS: Security Send and Receive.
    pub const OACS_SECURITY: u16 = 1;
    /// OACS: Format NVM.
    pub const OACS_FORMAT: u16 = 1 << 1;
    /// OACS: Firmware Commit and Download.
    pub const OACS_FIRMWARE: u16 = 1 << 2;
    /// OACS: Namespace Management and Attachment.
    pub const OACS_NAMESPACES: u16 = 1 << 3;
    /// OACS: Device Self-test.
    pub const OACS_SELF_TEST: u16 = 1 << 4;
    /// OACS: Doorbell Buffer Config.
    pub const OACS_DOORBELL_BUFFER: u16 = 1 << 8;
    /// OFCS: Disconnect, and with it the deletion of single I/O queues.
    pub const OFCS_DISCONNECT: u16 = 1;
    /// FRMW: the first slot is read-only.
    pub const FRMW_SLOT_1_READ_ONLY: u8 = 1;
    /// LPA: SMART log page for each namespace.
    pub const LPA_SMART_PER_NAMESPACE: u8 = 1;
    /// LPA: Commands Supported and Effects.
    pub const LPA_EFFECTS: u8 = 1 << 1;
    /// LPA: extended data (32 bits NUMD, 64 bits offset).
    pub const LPA_EXTENDED: u8 = 1 << 2;
    /// SANICAP: Crypto Erase.
    pub const SANICAP_CRYPTO: u32 = 1;
    /// SANICAP: Block Erase.
    pub const SANICAP_BLOCK: u32 = 1 << 1;
    /// SANICAP: Overwrite.
    pub const SANICAP_OVERWRITE: u32 = 1 << 2;
    /// SANICAP: No-Deallocate is inhibited: the media is deallocated whatever NDAS says.
    pub const SANICAP_NO_DEALLOCATE_INHIBITED: u32 = 1 << 29;
    /// SANICAP, NODMMAS: the media is not additionally modified after a sanitize without deallocation.
    pub const SANICAP_NOT_MODIFIED: u32 = 1 << 30;
    /// ONCS: Compare.
    pub const ONCS_COMPARE: u16 = 1;
    /// ONCS: Dataset Management.
    pub const ONCS_DATASET_MANAGEMENT: u16 = 1 << 2;
    /// ONCS: Write Zeroes.
    pub const ONCS_WRITE_ZEROES: u16 = 1 << 3;
    /// ONCS: Save and Select of features.
    pub const ONCS_SAVE: u16 = 1 << 4;
    /// ONCS: Timestamp.
    pub const ONCS_TIMESTAMP: u16 = 1 << 6;
    /// ONCS: Verify.
    pub const ONCS_VERIFY: u16 = 1 << 7;
    /// FNA: a format is of all namespaces.
    pub const FNA_FORMAT_ALL: u8 = 1;
    /// FNA: a secure erase is of all namespaces.
    pub const FNA_ERASE_ALL: u8 = 1 << 1;
    /// FNA: cryptographic erase is supported.
    pub const FNA_CRYPTO: u8 = 1 << 2;
    /// VWC: there is a volatile write cache.
    pub const VWC_PRESENT: u8 = 1;
    /// VWC: Flush with NSID FFFFFFFFh flushes all namespaces.
    pub const VWC_FLUSH_ALL: u8 = 3 << 1;
    /// NWPC: No Write Protect and Write Protect.
    pub const NWPC_PROTECT: u8 = 1;
    /// NWPC: Write Protect Until Power Cycle.
    pub const NWPC_UNTIL_POWER_CYCLE: u8 = 1 << 1;
    /// NWPC: Permanent Write Protect.
    pub const NWPC_PERMANENT: u8 = 1 << 2;
    /// SGLS: SGLs are supported, without alignment or granularity.
    pub const SGLS_SUPPORTED: u32 = 1;
    /// SGLS: Keyed SGL Data Block descriptor.
    pub const SGLS_KEYED: u32 = 1 << 2;
    /// SGLS: SGL Bit Bucket descriptor.
    pub const SGLS_BIT_BUCKET: u32 = 1 << 16;
    /// SGLS: an SGL that is longer than the data is allowed.
    pub const SGLS_LONGER: u32 = 1 << 18;
    /// SGLS: the address field of a descriptor may be an offset (fabrics: in-capsule data).
    pub const SGLS_OFFSET: u32 = 1 << 20;
    /// SGLS: Transport SGL Data Block descriptor.
    pub const SGLS_TRANSPORT: u32 = 1 << 21;
}

layout! {
    /// An LBA format.
    pub struct LbaFormat [4] {
        /// Metadata Size (MS), in bytes.
        0 metadata: u16,
        /// LBA Data Size (LBADS), as a power of two; 0: this format is not there.
        2 data_shift: u8,
        /// Relative Performance (RP): 0 best to 3 degraded.
        3 performance: u8,
    }
}

layout! {
    /// Identify Namespace (CNS 00h and 11h, figure 245). Sizes are in blocks where nothing else is said.
    pub struct IdentifyNamespace [4096] {
        /// Namespace Size (NSZE).
        0 nsze: u64,
        /// Namespace Capacity (NCAP).
        8 ncap: u64,
        /// Namespace Utilization (NUSE).
        16 nuse: u64,
        /// Namespace Features (NSFEAT).
        24 nsfeat: u8,
        /// Number of LBA Formats (NLBAF), counts from 0.
        25 nlbaf: u8,
        /// Formatted LBA Size (FLBAS): the format in bits 3:0.
        26 flbas: u8,
        /// Metadata Capabilities (MC).
        27 mc: u8,
        /// End-to-end Data Protection Capabilities (DPC).
        28 dpc: u8,
        /// End-to-end Data Protection Type Settings (DPS).
        29 dps: u8,
        /// Namespace Multi-path I/O and Namespace Sharing Capabilities (NMIC): bit 0, it is shared.
        30 nmic: u8,
        /// Reservation Capabilities (RESCAP).
        31 rescap: u8,
        /// Format Progress Indicator (FPI): bit 7, it is supported; bits 6:0, percent that remain.
        32 fpi: u8,
        /// Deallocate Logical Block Features (DLFEAT): bits 2:0 are 1 when deallocated blocks read as zeroes; bit 3,
        /// Write Zeroes may deallocate.
        33 dlfeat: u8,
        /// Namespace Atomic Write Unit Normal (NAWUN), counts from 0.
        34 nawun: u16,
        /// Namespace Atomic Write Unit Power Fail (NAWUPF), counts from 0.
        36 nawupf: u16,
        /// Namespace Atomic Compare & Write Unit (NACWU), counts from 0.
        38 nacwu: u16,
        /// Namespace Atomic Boundary Size Normal (NABSN), counts from 0.
        40 nabsn: u16,
        /// Namespace Atomic Boundary Offset (NABO).
        42 nabo: u16,
        /// Namespace Atomic Boundary Size Power Fail (NABSPF), counts from 0.
        44 nabspf: u16,
        /// Namespace Optimal I/O Boundary (NOIOB).
        46 noiob: u16,
        /// NVM Capacity (NVMCAP), in bytes.
        48 nvmcap: u128,
        /// Namespace Preferred Write Granularity (NPWG), counts from 0.
        64 npwg: u16,
        /// Namespace Preferred Write Alignment (NPWA), counts from 0.
        66 npwa: u16,
        /// Namespace Preferred Deallocate Granularity (NPDG), counts from 0.
        68 npdg: u16,
        /// Namespace Preferred Deallocate Alignment (NPDA), counts from 0.
        70 npda: u16,
        /// Namespace Optimal Write Size (NOWS), counts from 0.
        72 nows: u16,
        /// ANA Group Identifier (ANAGRPID).
        92 anagrpid: u32,
        /// Namespace Attributes (NSATTR): bit 0, it is write protected.
        99 nsattr: u8,
        /// NVM Set Identifier (NVMSETID).
        100 nvmsetid: u16,
        /// Endurance Group Identifier (ENDGID).
        102 endgid: u16,
        /// Namespace Globally Unique Identifier (NGUID).
        104 nguid: [u8; 16],
        /// IEEE Extended Unique Identifier (EUI64).
        120 eui64: [u8; 8],
        /// LBA formats.
        128 formats: [LbaFormat; 16],
    }
}

/// Bits of fields of [`IdentifyNamespace`].
pub mod namespace {
    /// NSFEAT: thin provisioning.
    pub const NSFEAT_THIN: u8 = 1;
    /// NSFEAT: NAWUN, NAWUPF and NACWU are this namespace's.
    pub const NSFEAT_ATOMIC: u8 = 1 << 1;
    /// NSFEAT: NPWG, NPWA, NPDG, NPDA and NOWS tell something.
    pub const NSFEAT_PERFORMANCE: u8 = 1 << 4;
    /// NMIC: several controllers may have it attached.
    pub const NMIC_SHARED: u8 = 1;
    /// DLFEAT: deallocated blocks read as zeroes.
    pub const DLFEAT_ZEROES: u8 = 1;
    /// DLFEAT: Write Zeroes may deallocate.
    pub const DLFEAT_WRITE_ZEROES: u8 = 1 << 3;
    /// NSATTR: it is write protected.
    pub const NSATTR_PROTECTED: u8 = 1;
}

impl IdentifyNamespace {
    /// Bytes of a block as a power of two, in the format that is in use; `None` if that is not there.
    pub fn block_shift(&self) -> Option<u8> {
        let format = self.formats.get(usize::from(self.flbas & 0xF))?;
        (9..64).contains(&format.data_shift).then_some(format.data_shift)
    }
}

layout! {
    /// Data of Namespace Management, create (section 5.20.1): fields of Identify Namespace that the host chooses.
    pub struct NamespaceManagement [4096] {
        /// Namespace Size (NSZE), in blocks.
        0 nsze: u64,
        /// Namespace Capacity (NCAP), in blocks.
        8 ncap: u64,
        /// Formatted LBA Size (FLBAS).
        26 flbas: u8,
        /// End-to-end Data Protection Type Settings (DPS).
        29 dps: u8,
        /// Namespace Multi-path I/O and Namespace Sharing Capabilities (NMIC).
        30 nmic: u8,
        /// ANA Group Identifier (ANAGRPID).
        92 anagrpid: u32,
        /// NVM Set Identifier (NVMSETID).
        100 nvmsetid: u16,
    }
}

layout! {
    /// The NVM command set's part of Identify Controller (CNS 06h, CSI 00h; revision 2.0). Limits are powers of two in
    /// units of CAP.MPSMIN; 0: not reported.
    pub struct NvmController [4096] {
        /// Verify Size Limit (VSL).
        0 vsl: u8,
        /// Write Zeroes Size Limit (WZSL).
        1 wzsl: u8,
        /// Write Uncorrectable Size Limit (WUSL).
        2 wusl: u8,
        /// Dataset Management Ranges Limit (DMRL): ranges of a command; 0: not reported.
        3 dmrl: u8,
        /// Dataset Management Range Size Limit (DMRSL), in blocks.
        4 dmrsl: u32,
        /// Dataset Management Size Limit (DMSL), in blocks of a command.
        8 dmsl: u64,
    }
}

layout! {
    /// The NVM command set's part of Identify Namespace (CNS 05h and 1Bh, CSI 00h; revision 2.0): protection
    /// information beyond 16 bits, which is not there.
    pub struct NvmNamespace [4096] {
        /// Logical Block Storage Tag Mask (LBSTM).
        0 lbstm: u64,
        /// Protection Information Capabilities (PIC).
        8 pic: u8,
        /// Extended LBA formats (ELBAF).
        12 elbaf: [u32; 16],
    }
}

layout! {
    /// The part of Identify Namespace that is common to all command sets (CNS 08h; revision 2.0).
    pub struct IndependentNamespace [4096] {
        /// Common Namespace Features (NSFEAT).
        0 nsfeat: u8,
        /// Namespace Multi-path I/O and Namespace Sharing Capabilities (NMIC).
        1 nmic: u8,
        /// Reservation Capabilities (RESCAP).
        2 rescap: u8,
        /// Format Progress Indicator (FPI).
        3 fpi: u8,
        /// ANA Group Identifier (ANAGRPID).
        4 anagrpid: u32,
        /// Namespace Attributes (NSATTR).
        8 nsattr: u8,
        /// NVM Set Identifier (NVMSETID).
        10 nvmsetid: u16,
        /// Endurance Group Identifier (ENDGID).
        12 endgid: u16,
        /// Namespace Status (NSTAT): bit 0, it is ready.
        14 nstat: u8,
    }
}

/// The I/O command sets that can be enabled together (CNS 1Ch; revision 2.0): the NVM command set alone.
pub fn command_sets() -> [u8; IDENTIFY_BYTES] {
    let mut page = [0; IDENTIFY_BYTES];
    page[0] = 1;
    page
}

/// A list of up to 1,024 namespace identifiers (CNS 02h, 07h, 10h; log page 04h): those above `after`, in ascending
/// order, of `ids`, which ascend. Identifiers beyond 1,024 are left out.
pub fn namespace_list(ids: impl IntoIterator<Item = u32>, after: u32) -> [u8; IDENTIFY_BYTES] {
    let mut page = [0; IDENTIFY_BYTES];
    let ids = ids.into_iter().filter(|&id| id > after);
    for (entry, id) in page.as_chunks_mut::<4>().0.iter_mut().zip(ids) {
        *entry = id.to_le_bytes();
    }
    page
}

/// The identifiers of a namespace list, up to the first 0.
pub fn parse_namespace_list(page: &[u8]) -> Vec<u32> {
    let entries = page.as_chunks::<4>().0.iter().take(IDENTIFY_BYTES / 4);
    entries.map(|entry| u32::from_le_bytes(*entry)).take_while(|&id| id != 0).collect()
}

/// A list of up to 2,047 controllers (CNS 12h and 13h): those from `first` on, of `ids`, which ascend.
pub fn controller_list(ids: impl IntoIterator<Item = u16>, first: u16) -> [u8; IDENTIFY_BYTES] {
    let mut page = [0; IDENTIFY_BYTES];
    let mut count = 0u16;
    let ids = ids.into_iter().filter(|&id| id >= first);
    for (entry, id) in page.as_chunks_mut::<2>().0.iter_mut().skip(1).zip(ids) {
        *entry = id.to_le_bytes();
        count += 1;
    }
    page[..2].copy_from_slice(&count.to_le_bytes());
    page
}

/// The identifiers of a controller list; `None` if it counts more than its bytes hold, or than 2,047, or does not
/// ascend.
pub fn parse_controller_list(page: &[u8]) -> Option<Vec<u16>> {
    let mut numbers = page.as_chunks::<2>().0.iter().map(|number| u16::from_le_bytes(*number));
    let count = usize::from(numbers.next()?);
    let ids: Vec<u16> = numbers.take(count.min(2047)).collect();
    (ids.len() == count && ids.is_sorted_by(|a, b| a < b)).then_some(ids)
}

/// A descriptor that identifies a namespace (CNS 03h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NamespaceDescriptor {
    /// NIDT 1h.
    Eui64([u8; 8]),
    /// NIDT 2h.
    Nguid([u8; 16]),
    /// NIDT 3h.
    Uuid([u8; 16]),
    /// NIDT 4h (revision 2.0): Command Set Identifier; 0 is NVM.
    CommandSet(u8),
}

/// A namespace identification descriptor list. Asserts that it fits.
pub fn namespace_descriptors(list: &[NamespaceDescriptor]) -> [u8; IDENTIFY_BYTES] {
    let mut page = [0; IDENTIFY_BYTES];
    let mut at = 0;
    for descriptor in list {
        let (kind, id): (u8, &[u8]) = match descriptor {
            NamespaceDescriptor::Eui64(id) => (1, id),
            NamespaceDescriptor::Nguid(id) => (2, id),
            NamespaceDescriptor::Uuid(id) => (3, id),
            NamespaceDescriptor::CommandSet(id) => (4, std::slice::from_ref(id)),
        };
        page[at] = kind;
        page[at + 1] = id.len() as u8;
        page[at + 4..at + 4 + id.len()].copy_from_slice(id);
        at += 4 + id.len();
    }
    page
}

/// The descriptors of a list, up to its end or to one that can't be; kinds that are not known are left out.
pub fn parse_namespace_descriptors(page: &[u8]) -> Vec<NamespaceDescriptor> {
    let mut list = Vec::new();
    let mut rest = page;
    while let [kind @ 1..=255, len @ 1..=255, _, _, tail @ ..] = rest {
        let Some((id, tail)) = tail.split_at_checked(usize::from(*len)) else { break };
        rest = tail;
        let found = match kind {
            1 => id.try_into().ok().map(NamespaceDescriptor::Eui64),
            2 => id.try_into().ok().map(NamespaceDescriptor::Nguid),
            3 => id.try_into().ok().map(NamespaceDescriptor::Uuid),
            4 => id.first().map(|&csi| NamespaceDescriptor::CommandSet(csi)),
            _ => None,
        };
        list.extend(found);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_stand_where_the_specification_puts_them() {
        let mut it = IdentifyController {
            vid: 0x1234,
            model: Text::new("Tidewater"),
            oncs: 0x5D,
            subnqn: Nqn::of_uuid(&[7; 16]),
            tnvmcap: 1 << 40,
            ..Default::default()
        };
        it.power_states[0].max_power = 2500;
        let bytes = it.to_bytes();
        assert_eq!(bytes[..2], [0x34, 0x12]);
        assert_eq!(&bytes[24..34], b"Tidewater ");
        assert_eq!(bytes[520], 0x5D);
        assert_eq!(bytes[285], 1);
        assert_eq!(&bytes[768..772], b"nqn.");
        assert_eq!(bytes[2048..2050], 2500u16.to_le_bytes());
        assert_eq!(IdentifyController::parse(&bytes), Ok(it));

        let mut ns = IdentifyNamespace { nsze: 9, flbas: 1, ..Default::default() };
        assert_eq!(ns.block_shift(), None);
        ns.formats[1].data_shift = 12;
        let bytes = ns.to_bytes();
        assert_eq!((bytes[0], bytes[26], bytes[134], ns.block_shift()), (9, 1, 12, Some(12)));
        assert_eq!(NamespaceManagement::parse(&bytes).map(|data| (data.nsze, data.flbas)), Ok((9, 1)));
    }

    #[test]
    fn lists_hold_what_follows() {
        let ids = [1u32, 2, 7, 900];
        assert_eq!(parse_namespace_list(&namespace_list(ids, 0)), ids);
        assert_eq!(parse_namespace_list(&namespace_list(ids, 2)), [7, 900]);
        assert_eq!(parse_namespace_list(&namespace_list(ids, u32::MAX)), [0u32; 0]);
        assert_eq!(parse_namespace_list(&namespace_list(1..5000, 0)).len(), 1024);
        assert_eq!(parse_controller_list(&controller_list([0, 1, 5], 1)), Some(vec![1, 5]));
        assert_eq!(parse_controller_list(&controller_list(0..5000, 0)).map(|list| list.len()), Some(2047));
        assert_eq!(parse_controller_list(&[2, 0, 5, 0, 5, 0]), None, "it does not ascend");
        assert_eq!(parse_controller_list(&[2, 0, 5, 0]), None, "it is cut");
    }

    #[test]
    fn descriptors_come_back() {
        let list = [
            NamespaceDescriptor::Eui64([1; 8]),
            NamespaceDescriptor::Nguid([2; 16]),
            NamespaceDescriptor::Uuid([3; 16]),
            NamespaceDescriptor::CommandSet(0),
        ];
        let page = namespace_descriptors(&list);
        assert_eq!(page[..4], [1, 8, 0, 0]);
        assert_eq!(parse_namespace_descriptors(&page), list);
        assert_eq!(parse_namespace_descriptors(&page[..13]), list[..1]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_page_parses_and_comes_back(seed in any::<[u64; 8]>(), len in 0usize..=4096) {
            let page: Vec<u8> = (0..4096usize).map(|i| (seed[i % 8] >> (i / 8 % 57)) as u8).collect();
            let controller = IdentifyController::parse(&page).expect("the page has 4,096 bytes");
            prop_assert_eq!(IdentifyController::parse(&controller.to_bytes()), Ok(controller));
            let namespace = IdentifyNamespace::parse(&page).expect("the page has 4,096 bytes");
            prop_assert_eq!(IdentifyNamespace::parse(&namespace.to_bytes()), Ok(namespace));
            prop_assert!(namespace.block_shift().is_none_or(|shift| (9..64).contains(&shift)));
            prop_assert!(IdentifyController::parse(&page[..len]).is_ok() == (len == 4096));
            prop_assert!(parse_namespace_list(&page[..len]).len() <= 1024);
            prop_assert!(parse_controller_list(&page[..len]).is_none_or(|list| list.len() <= 2047));
            prop_assert!(parse_namespace_descriptors(&page[..len]).len() <= len / 5);
            // What is printed holds nothing that a terminal acts on.
            let text = format!("{}{}{}", controller.model, controller.serial, controller.subnqn);
            prop_assert!(text.chars().all(|c| (' '..='~').contains(&c)), "{}", text);
        }
    }
}
