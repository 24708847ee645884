//! Log pages (section 5.14.1; 00h: NVM Express Base Specification 2.0, section 5.16.1.1). Those of this vendor are in
//! [`crate::vendor`].

use super::text::Text;
use super::{GetLogPage, Status};
use crate::layout::{Part, layout};

/// Log page identifiers.
pub mod log_page {
    /// Supported Log Pages (revision 2.0).
    pub const SUPPORTED_PAGES: u8 = 0x00;
    /// Error Information.
    pub const ERROR: u8 = 0x01;
    /// SMART / Health Information.
    pub const SMART: u8 = 0x02;
    /// Firmware Slot Information.
    pub const FIRMWARE_SLOT: u8 = 0x03;
    /// Changed Namespace List.
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    /// Commands Supported and Effects.
    pub const EFFECTS: u8 = 0x05;
    /// Device Self-test.
    pub const SELF_TEST: u8 = 0x06;
    /// Sanitize Status.
    pub const SANITIZE: u8 = 0x81;

    /// Every identifier above with its name in the specification, in ascending order.
    pub const NAMED: &[(u8, &str)] = &[
        (SUPPORTED_PAGES, "Supported Log Pages"),
        (ERROR, "Error Information"),
        (SMART, "SMART / Health Information"),
        (FIRMWARE_SLOT, "Firmware Slot Information"),
        (CHANGED_NAMESPACES, "Changed Namespace List"),
        (EFFECTS, "Commands Supported and Effects"),
        (SELF_TEST, "Device Self-test"),
        (SANITIZE, "Sanitize Status"),
    ];
}

impl GetLogPage {
    /// The part of a page that the command asks for. Where it asks for more than there is behind the offset, it gets
    /// what is there: the rest of the host's buffer stays as it was (section 5.14 leaves it undefined).
    ///
    /// # Errors
    /// Invalid Field in Command, when the offset is past the end of the page (section 5.14).
    pub fn slice<'a>(&self, page: &'a [u8]) -> Result<&'a [u8], Status> {
        let start = usize::try_from(self.offset).ok().filter(|&start| start <= page.len());
        let rest = start.and_then(|start| page.get(start..)).ok_or(Status::INVALID_FIELD)?;
        let len = usize::try_from(self.len).map_or(rest.len(), |len| len.min(rest.len()));
        Ok(&rest[..len])
    }
}

layout! {
    /// An entry of Error Information. An entry whose count is 0 is empty.
    pub struct ErrorEntry [64] {
        /// Error Count: a number of its own, from 1.
        0 count: u64,
        /// Submission Queue ID; FFFFh: not of one queue.
        8 sqid: u16,
        /// Command ID; FFFFh: not of one command.
        10 cid: u16,
        /// Status Field in bits 15:1, the phase tag in bit 0.
        12 status: u16,
        /// Parameter Error Location: the byte of the command in bits 7:0, the bit in 10:8; FFFFh: not of one parameter.
        14 location: u16,
        /// First block that failed.
        16 lba: u64,
        /// Namespace; FFFFFFFFh: not of one namespace.
        24 nsid: u32,
        /// Vendor Specific Information Available: a log page with more.
        28 vendor_page: u8,
        /// Transport Type (TRTYPE): 0 none, 3 TCP.
        29 transport: u8,
        /// Command Specific Information.
        32 specific: u64,
        /// Transport Type Specific Information.
        40 transport_specific: u16,
    }
}

layout! {
    /// SMART / Health Information. Temperatures are in kelvins; a data unit is 1,000 times 512 bytes, rounded up.
    pub struct SmartLog [512] {
        /// Critical Warning ([`critical_warning`]).
        0 critical_warning: u8,
        /// Composite Temperature.
        1 temperature: u16,
        /// Available Spare, in percent.
        3 available_spare: u8,
        /// Available Spare Threshold, in percent.
        4 spare_threshold: u8,
        /// Percentage Used: may pass 100; 255 is 255 and more.
        5 percentage_used: u8,
        /// Data Units Read.
        32 data_units_read: u128,
        /// Data Units Written.
        48 data_units_written: u128,
        /// Host Read Commands.
        64 host_reads: u128,
        /// Host Write Commands.
        80 host_writes: u128,
        /// Controller Busy Time, in minutes.
        96 busy_minutes: u128,
        /// Power Cycles.
        112 power_cycles: u128,
        /// Power On Hours.
        128 power_on_hours: u128,
        /// Unsafe Shutdowns.
        144 unsafe_shutdowns: u128,
        /// Media and Data Integrity Errors.
        160 media_errors: u128,
        /// Number of Error Information Log Entries over the life of the controller.
        176 error_entries: u128,
        /// Warning Composite Temperature Time, in minutes.
        192 warning_minutes: u32,
        /// Critical Composite Temperature Time, in minutes.
        196 critical_minutes: u32,
        /// Temperature Sensors 1 to 8; 0 is none.
        200 sensors: [u16; 8],
    }
}

/// Bits of [`SmartLog::critical_warning`].
pub mod critical_warning {
    /// Available spare is below its threshold.
    pub const SPARE: u8 = 1;
    /// A temperature is past a threshold.
    pub const TEMPERATURE: u8 = 1 << 1;
    /// Reliability is degraded by media or internal errors.
    pub const RELIABILITY: u8 = 1 << 2;
    /// All media only read.
    pub const READ_ONLY: u8 = 1 << 3;
    /// The backup of volatile memory has failed.
    pub const BACKUP: u8 = 1 << 4;
    /// The persistent memory region is read-only or unreliable.
    pub const PMR: u8 = 1 << 5;
}

layout! {
    /// Firmware Slot Information.
    pub struct FirmwareSlot [512] {
        /// Active Firmware Info (AFI): the slot that runs in bits 2:0, that of the next reset in 6:4.
        0 active: u8,
        /// Firmware revisions of slots 1 to 7; zeroes or spaces: none.
        8 revisions: [Text<8>; 7],
    }
}

/// Commands Supported and Effects: 4,096 bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EffectsLog {
    /// Admin commands by opcode.
    pub admin: Box<[u32; 256]>,
    /// I/O commands by opcode.
    pub io: Box<[u32; 256]>,
}

impl EffectsLog {
    /// The command is supported (CSUPP).
    pub const SUPPORTED: u32 = 1;
    /// It may change blocks (LBCC).
    pub const CONTENT: u32 = 1 << 1;
    /// It may change capabilities of a namespace (NCC).
    pub const NAMESPACE: u32 = 1 << 2;
    /// It may change the inventory of namespaces (NIC).
    pub const INVENTORY: u32 = 1 << 3;
    /// It may change capabilities of the controller (CCC).
    pub const CONTROLLER: u32 = 1 << 4;
    /// No other command to the same namespace is outstanding while it runs (CSE 001b).
    pub const ALONE_IN_NAMESPACE: u32 = 1 << 16;
    /// No other command to any namespace is outstanding while it runs (CSE 010b).
    pub const ALONE: u32 = 2 << 16;

    /// Bytes of the page.
    pub const SIZE: usize = 4096;

    /// A page without commands.
    pub fn empty() -> EffectsLog {
        EffectsLog { admin: Box::new([0; 256]), io: Box::new([0; 256]) }
    }

    /// The page.
    pub fn to_bytes(&self) -> [u8; EffectsLog::SIZE] {
        let mut page = [0; EffectsLog::SIZE];
        let all = self.admin.iter().chain(self.io.iter());
        for (entry, effects) in page.as_chunks_mut::<4>().0.iter_mut().zip(all) {
            *entry = effects.to_le_bytes();
        }
        page
    }

    /// Parses a page; `None` if it is short.
    pub fn parse(page: &[u8]) -> Option<EffectsLog> {
        let mut log = EffectsLog::empty();
        let entries = page.first_chunk::<2048>()?.as_chunks::<4>().0;
        for (effects, entry) in log.admin.iter_mut().chain(log.io.iter_mut()).zip(entries) {
            *effects = u32::from_le_bytes(*entry);
        }
        Some(log)
    }
}

/// Supported Log Pages (page 00h of revision 2.0): 1,024 bytes, for these identifiers.
pub fn supported_pages(identifiers: impl IntoIterator<Item = u8>) -> [u8; 1024] {
    let mut page = [0; 1024];
    for identifier in identifiers {
        page[usize::from(identifier) * 4] = 1;
    }
    page
}

/// The identifiers that a Supported Log Pages log names.
pub fn parse_supported_pages(page: &[u8]) -> Vec<u8> {
    (0..=255).zip(page.as_chunks::<4>().0).filter(|(_, entry)| entry[0] & 1 != 0).map(|(id, _)| id).collect()
}

layout! {
    /// A result of a device self-test (figure 204).
    pub struct SelfTestResult [28] {
        /// Device Self-test Status: the test in bits 7:4 (1 short, 2 extended), the result in 3:0 ([`self_test`]).
        0 status: u8,
        /// Segment Number: the first that failed, for result 7.
        1 segment: u8,
        /// Valid Diagnostic Information: bit 0 NSID, 1 failing LBA, 2 SCT, 3 SC.
        2 valid: u8,
        /// Power On Hours when it ended.
        4 power_on_hours: u64,
        /// Namespace that failed.
        12 nsid: u32,
        /// Failing LBA.
        16 lba: u64,
        /// Status Code Type.
        24 sct: u8,
        /// Status Code.
        25 sc: u8,
        /// Vendor specific.
        26 vendor: u16,
    }
}

/// Results of a self-test: bits 3:0 of [`SelfTestResult::status`].
pub mod self_test {
    /// Completed without error.
    pub const PASSED: u8 = 0;
    /// Aborted by a Device Self-test command.
    pub const ABORTED: u8 = 1;
    /// Aborted by a controller level reset.
    pub const ABORTED_RESET: u8 = 2;
    /// Aborted, because a namespace was removed.
    pub const ABORTED_NAMESPACE: u8 = 3;
    /// Aborted by a Format NVM command.
    pub const ABORTED_FORMAT: u8 = 4;
    /// A fatal or unknown error; it did not complete.
    pub const FATAL: u8 = 5;
    /// A segment failed, and which is not known.
    pub const FAILED_UNKNOWN: u8 = 6;
    /// A segment failed, that the entry tells.
    pub const FAILED: u8 = 7;
    /// Aborted for another reason.
    pub const ABORTED_OTHER: u8 = 8;
    /// Aborted by a sanitize operation.
    pub const ABORTED_SANITIZE: u8 = 9;
    /// This entry is not used.
    pub const UNUSED: u8 = 0xF;
    /// Entries of the log.
    pub const RESULTS: usize = 20;
}

layout! {
    /// Device Self-test (figure 203).
    pub struct SelfTestLog [564] {
        /// Current Device Self-Test Operation: 0 none, 1 short, 2 extended.
        0 operation: u8,
        /// Current Device Self-Test Completion, in percent.
        1 completion: u8,
        /// Results, newest first.
        4 results: [SelfTestResult; 20],
    }
}

layout! {
    /// Sanitize Status. Times are in seconds; FFFFFFFFh: not reported.
    pub struct SanitizeLog [512] {
        /// Sanitize Progress (SPROG): in 65,536ths; FFFFh when none runs.
        0 progress: u16,
        /// Sanitize Status (SSTAT): [`sanitize_status`] in bits 2:0, overwrite passes done in 7:3, in bit 8 Global Data
        /// Erased.
        2 status: u16,
        /// Command double word 10 of the Sanitize command.
        4 cdw10: u32,
        /// Estimated Time For Overwrite.
        8 overwrite: u32,
        /// Estimated Time For Block Erase.
        12 block_erase: u32,
        /// Estimated Time For Crypto Erase.
        16 crypto_erase: u32,
        /// Estimated Time For Overwrite With No-Deallocate Media Modification.
        20 overwrite_no_deallocate: u32,
        /// Estimated Time For Block Erase With No-Deallocate Media Modification.
        24 block_erase_no_deallocate: u32,
        /// Estimated Time For Crypto Erase With No-Deallocate Media Modification.
        28 crypto_erase_no_deallocate: u32,
    }
}

/// Values of bits 2:0 of [`SanitizeLog::status`].
pub mod sanitize_status {
    /// Never sanitized.
    pub const NEVER: u16 = 0;
    /// The last one succeeded.
    pub const SUCCEEDED: u16 = 1;
    /// One runs.
    pub const IN_PROGRESS: u16 = 2;
    /// The last one failed.
    pub const FAILED: u16 = 3;
    /// The last one succeeded, though with deallocation where none was asked for.
    pub const SUCCEEDED_DEALLOCATED: u16 = 4;
    /// Bit 8: nothing was written since manufacture, or since the last successful sanitize.
    pub const GLOBAL_DATA_ERASED: u16 = 1 << 8;
}

/// Entries of Error Information as a page.
pub fn error_page(entries: impl IntoIterator<Item = ErrorEntry>, len: usize) -> Vec<u8> {
    let mut page = vec![0; len * ErrorEntry::SIZE];
    for (chunk, entry) in page.chunks_exact_mut(ErrorEntry::SIZE).zip(entries) {
        entry.put(chunk);
    }
    page
}

/// The entries of an Error Information page that are used.
pub fn parse_error_page(page: &[u8]) -> Vec<ErrorEntry> {
    let entries = page.chunks_exact(ErrorEntry::SIZE).filter_map(|chunk| ErrorEntry::parse(chunk).ok());
    entries.filter(|entry| entry.count != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvme::Sqe;
    use crate::nvme::{AdminCommand, admin_opcode};
    use proptest::prelude::*;

    fn get(offset: u64, numd: u32) -> Result<GetLogPage, Status> {
        let sqe = Sqe::default()
            .with_dword(0, u32::from(admin_opcode::GET_LOG_PAGE))
            .with_dword(10, numd << 16 | 2)
            .with_dword(11, numd >> 16)
            .with_dword(12, offset as u32)
            .with_dword(13, (offset >> 32) as u32);
        match AdminCommand::parse(&sqe)? {
            AdminCommand::GetLogPage(get) => Ok(get),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_page_is_sliced() {
        let page: Vec<u8> = (0..512).map(|i| i as u8).collect();
        assert_eq!(get(0, 127).unwrap().slice(&page), Ok(&page[..]));
        assert_eq!(get(508, 127).unwrap().slice(&page), Ok(&page[508..]));
        assert_eq!(get(4, 0).unwrap().slice(&page), Ok(&page[4..8]));
        assert_eq!(get(512, 0).unwrap().slice(&page), Ok(&page[..0]));
        assert_eq!(get(516, 0).unwrap().slice(&page), Err(Status::INVALID_FIELD));
        assert_eq!(get(u64::MAX - 3, u32::MAX).unwrap().slice(&page), Err(Status::INVALID_FIELD));
        assert_eq!(get(2, 0), Err(Status::INVALID_FIELD));
    }

    #[test]
    fn fields_stand_where_the_specification_puts_them() {
        let smart = SmartLog { temperature: 0x0201, unsafe_shutdowns: 1 << 64, sensors: [3; 8], ..Default::default() };
        let bytes = smart.to_bytes();
        assert_eq!((bytes[1], bytes[2], bytes[152], bytes[214]), (1, 2, 1, 3));
        assert_eq!(SmartLog::parse(&bytes), Ok(smart));
        let result = SelfTestResult { nsid: 5, sc: 6, ..Default::default() };
        let log = SelfTestLog { results: [result; 20], ..Default::default() };
        assert_eq!((log.to_bytes()[4 + 12], log.to_bytes()[4 + 28 * 19 + 25]), (5, 6));
        let slots = FirmwareSlot { active: 1, revisions: std::array::from_fn(|_| Text::new("0.1.0")) };
        assert_eq!(&slots.to_bytes()[56..61], b"0.1.0");
        assert_eq!(parse_supported_pages(&supported_pages([0, 2, 0x81, 0xC0])), [0, 2, 0x81, 0xC0]);
        let entry = ErrorEntry { count: 3, lba: 7, ..Default::default() };
        assert_eq!(parse_error_page(&error_page([entry], 4)), [entry]);
        assert_eq!(error_page([entry], 4)[16], 7);
        let mut effects = EffectsLog::empty();
        effects.admin[0x80] = EffectsLog::SUPPORTED | EffectsLog::ALONE;
        effects.io[1] = EffectsLog::SUPPORTED | EffectsLog::CONTENT;
        let page = effects.to_bytes();
        assert_eq!((page[512], page[514], page[1028]), (1, 2, 3));
        assert_eq!(EffectsLog::parse(&page), Some(effects));
    }

    proptest! {
        #[test]
        fn any_page_and_any_slice(
            page in prop::collection::vec(any::<u8>(), 0..700),
            offset in any::<u64>(),
            near in 0u64..200,
            numd in any::<u32>(),
        ) {
            let _ = parse_error_page(&page);
            let _ = parse_supported_pages(&page);
            prop_assert!(SmartLog::parse(&page).is_ok() == (page.len() >= 512));
            prop_assert!(SelfTestLog::parse(&page).is_ok() == (page.len() >= 564));
            for offset in [offset & !3, near * 4] {
                let get = get(offset, numd).unwrap();
                match get.slice(&page) {
                    Ok(slice) => prop_assert!(slice.len() as u64 == get.len.min(page.len() as u64 - offset)),
                    Err(status) => prop_assert!(status == Status::INVALID_FIELD && offset > page.len() as u64),
                }
            }
        }
    }
}
