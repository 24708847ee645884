//! Error Information, Changed Namespace List, and Commands Supported and Effects (NVM Express 1.4, sections 5.14.1.1,
//! 5.14.1.4 and 5.14.1.5), of one controller.

use super::interface::Transport;
use std::collections::{BTreeSet, VecDeque};
use tidewater_wire::nvme::log::{
    EffectsLog, ErrorEntry, FirmwareSlot, error_page, parse_supported_pages, supported_pages,
};
use tidewater_wire::nvme::{Cqe, Sqe, Text, admin_opcode, identify, log_page, opcode};
use tidewater_wire::vendor;

/// Entries of Error Information (ELPE of Identify Controller, plus 1).
pub const ERRORS_MAX: usize = 64;
/// Slots for firmware: one, which only reads.
pub const FIRMWARE_SLOTS: u8 = 1;
/// The firmware's revision: the version of this program.
pub const FIRMWARE: &str = env!("CARGO_PKG_VERSION");

/// The Error Information log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorLog(VecDeque<ErrorEntry>);

impl ErrorLog {
    /// A command has ended with an error, whose number is `count` (`Smart::error`). `lba` is the first block, where the
    /// command addresses blocks. The command's status says that there is more (M).
    pub fn of_command(&mut self, count: u64, queue: u16, sqe: &Sqe, cqe: &Cqe, lba: u64, transport: Transport) {
        self.push(ErrorEntry {
            count,
            sqid: queue,
            cid: sqe.cid(),
            status: cqe.status.bits() << 1 | u16::from(cqe.phase),
            location: 0xFFFF,
            lba,
            nsid: sqe.nsid(),
            transport: transport_type(transport),
            ..ErrorEntry::default()
        });
    }

    /// Something went wrong that is of no command: a doorbell that rang wrongly.
    pub fn of_queue(&mut self, count: u64, queue: u16, transport: Transport) {
        self.push(ErrorEntry {
            count,
            sqid: queue,
            cid: 0xFFFF,
            location: 0xFFFF,
            nsid: 0xFFFF_FFFF,
            transport: transport_type(transport),
            ..ErrorEntry::default()
        });
    }

    fn push(&mut self, entry: ErrorEntry) {
        if self.0.len() == ERRORS_MAX {
            self.0.pop_back();
        }
        self.0.push_front(entry);
    }

    /// Newest first.
    pub fn iter(&self) -> impl Iterator<Item = &ErrorEntry> {
        self.0.iter()
    }

    /// The log page, newest first.
    pub fn page(&self) -> Vec<u8> {
        error_page(self.0.iter().copied(), ERRORS_MAX)
    }
}

/// TRTYPE (section 5.14.1.1): of PCIe no number is defined.
fn transport_type(transport: Transport) -> u8 {
    match transport {
        Transport::Pcie => 0,
        Transport::Fabrics => 3,
    }
}

/// The Changed Namespace List: what has changed since it was last read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedNamespaces(BTreeSet<u32>);

impl ChangedNamespaces {
    /// A namespace has changed, come or gone.
    pub fn add(&mut self, nsid: u32) {
        self.0.insert(nsid);
    }

    /// The log page.
    pub fn page(&self) -> [u8; 4096] {
        identify::namespace_list(self.0.iter().copied(), 0)
    }

    /// The host has read it: that empties it (section 5.14.1.4), unless events are to be retained.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Nothing has changed since.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Which commands a controller takes, and what they do to others.
pub fn effects(transport: Transport, privileged: bool, window: bool) -> EffectsLog {
    const ON: u32 = EffectsLog::SUPPORTED;
    let mut log = EffectsLog::empty();
    for &(code, _) in admin_opcode::NAMED {
        let effect = match code {
            admin_opcode::CREATE_IO_CQ
            | admin_opcode::CREATE_IO_SQ
            | admin_opcode::DELETE_IO_CQ
            | admin_opcode::DELETE_IO_SQ
            | admin_opcode::DOORBELL_BUFFER_CONFIG
                if transport == Transport::Fabrics =>
            {
                0
            }
            admin_opcode::FORMAT_NVM => {
                ON | EffectsLog::CONTENT | EffectsLog::NAMESPACE | EffectsLog::ALONE_IN_NAMESPACE
            }
            admin_opcode::SANITIZE => ON | EffectsLog::CONTENT | EffectsLog::ALONE,
            admin_opcode::NAMESPACE_MANAGEMENT => ON | EffectsLog::CONTENT | EffectsLog::INVENTORY,
            admin_opcode::NAMESPACE_ATTACHMENT => ON | EffectsLog::INVENTORY,
            _ => ON,
        };
        let is_privileged = matches!(
            code,
            admin_opcode::FORMAT_NVM
                | admin_opcode::SANITIZE
                | admin_opcode::NAMESPACE_MANAGEMENT
                | admin_opcode::NAMESPACE_ATTACHMENT
                | admin_opcode::DEVICE_SELF_TEST
        );
        log.admin[usize::from(code)] = if is_privileged && !privileged { 0 } else { effect };
    }
    for &(code, _) in opcode::NAMED {
        let changes = matches!(code, opcode::WRITE | opcode::WRITE_ZEROES | opcode::DATASET_MANAGEMENT);
        log.io[usize::from(code)] = ON | if changes { EffectsLog::CONTENT } else { 0 };
    }
    for entry in served(window) {
        match entry.set {
            vendor::Set::Admin if privileged => log.admin[usize::from(entry.code)] = ON,
            vendor::Set::Io if entry.code == vendor::opcode::BA_FLUSH => {
                log.io[usize::from(entry.code)] = ON | EffectsLog::CONTENT;
            }
            vendor::Set::Io => log.io[usize::from(entry.code)] = ON,
            vendor::Set::Admin | vendor::Set::LogPage => {}
        }
    }
    log
}

/// What of this vendor a controller carries: the byte window where the drive has one.
fn served(window: bool) -> impl Iterator<Item = &'static vendor::Entry> {
    vendor::REGISTRY.iter().filter(move |entry| window || !entry.is_of_window())
}

/// Which vendor specific log pages a drive has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Has {
    /// It has a fast side.
    pub fast: bool,
    /// It has a byte window.
    pub window: bool,
    /// There is something in BAR2.
    pub bar2: bool,
}

/// Whether a drive has a log page.
pub fn has_page(has: Has, id: u8) -> bool {
    parse_supported_pages(&pages(has)).contains(&id)
}

/// The log pages that there are (page 00h of revision 2.0).
pub fn pages(has: Has) -> [u8; 1024] {
    let is_there = |entry: &&vendor::Entry| match entry.code {
        vendor::log_page::WINDOW => has.window,
        vendor::log_page::LAYOUT => has.bar2,
        _ => has.fast,
    };
    let own = served(true).filter(|entry| entry.set == vendor::Set::LogPage).filter(is_there).map(|entry| entry.code);
    supported_pages(log_page::NAMED.iter().map(|&(id, _)| id).chain(own))
}

/// Firmware Slot Information: one slot, with this program in it.
pub fn firmware() -> FirmwareSlot {
    // Revisions of slots that are not there are zeroes (section 5.14.1.3), not text without a character.
    let mut log = FirmwareSlot { active: 1, revisions: [Text::ZEROES; 7] };
    log.revisions[0] = Text::new(FIRMWARE);
    log
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewater_wire::nvme::Status;
    use tidewater_wire::nvme::log::parse_error_page;

    #[test]
    fn errors_are_kept_newest_first() {
        let mut log = ErrorLog::default();
        assert_eq!(log.page().len(), 64 * 64);
        assert_eq!(parse_error_page(&log.page()), []);
        let sqe = Sqe::read(9, 100, 7).with_nsid(3);
        let cqe = Cqe { status: Status::LBA_OUT_OF_RANGE.with_more(true), phase: true, ..Cqe::default() };
        for count in 1..=70 {
            log.of_command(count, 2, &sqe, &cqe, 100, Transport::Pcie);
        }
        log.of_queue(71, 5, Transport::Fabrics);
        let found = parse_error_page(&log.page());
        assert_eq!(found.iter().map(|entry| entry.count).collect::<Vec<_>>(), (8..=71).rev().collect::<Vec<_>>());
        let entry = found[1];
        assert_eq!((entry.sqid, entry.cid, entry.lba, entry.nsid), (2, 9, 100, 3));
        assert_eq!(Status::from_bits(entry.status >> 1), cqe.status);
        assert_eq!((found[0].cid, found[0].transport), (0xFFFF, 3));
    }

    #[test]
    fn changes_are_told_once() {
        let mut changed = ChangedNamespaces::default();
        changed.add(7);
        changed.add(2);
        changed.add(7);
        assert_eq!(identify::parse_namespace_list(&changed.page()), [2, 7]);
        assert_eq!(identify::parse_namespace_list(&changed.page()), [2, 7]);
        changed.clear();
        assert!(changed.is_empty() && changed.page() == [0; 4096]);
    }

    #[test]
    fn effects_say_what_a_controller_takes() {
        let all = effects(Transport::Pcie, true, false);
        assert!(admin_opcode::NAMED.iter().all(|&(code, _)| all.admin[usize::from(code)] & 1 != 0));
        let remote = effects(Transport::Fabrics, false, false);
        for code in [admin_opcode::CREATE_IO_SQ, admin_opcode::FORMAT_NVM, admin_opcode::SANITIZE, 0xC1] {
            assert_eq!(remote.admin[usize::from(code)], 0, "{code:02X}h");
        }
        assert_eq!(all.io[usize::from(opcode::WRITE)], 3);
        assert_eq!((all.io[usize::from(vendor::opcode::APPEND)], all.io[usize::from(vendor::opcode::BA_PIN)]), (1, 0));
        let windowed = effects(Transport::Pcie, true, true);
        assert_eq!(
            (windowed.io[usize::from(vendor::opcode::BA_PIN)], windowed.io[usize::from(vendor::opcode::BA_FLUSH)]),
            (1, 3)
        );
        assert_eq!(all.admin.iter().filter(|&&effect| effect != 0).count(), 17 + 6);
    }

    #[test]
    fn pages_that_are_there() {
        let own = |has| parse_supported_pages(&pages(has)).split_off(8);
        assert_eq!(parse_supported_pages(&pages(Has::default())), [0, 1, 2, 3, 4, 5, 6, 0x81]);
        assert_eq!(own(Has { fast: true, window: false, bar2: true }), [0xC0, 0xC1, 0xC2]);
        assert_eq!(own(Has { fast: false, window: true, bar2: true }), [0xC1, 0xC3]);
        assert_eq!(own(Has { fast: false, window: false, bar2: true }), [0xC1]);
        assert_eq!(firmware().revisions[0].to_string(), FIRMWARE);
        assert!(firmware().to_bytes()[16..].iter().all(|&byte| byte == 0), "there is one slot");
    }
}
