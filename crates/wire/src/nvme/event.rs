//! Asynchronous events (section 5.2) and shadow doorbells (section 5.7).

use super::log::log_page;

/// An asynchronous event, as double word 0 of the completion tells it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Event {
    /// A doorbell of a queue that does not exist was written.
    InvalidDoorbellRegister,
    /// An impossible value was written to a doorbell.
    InvalidDoorbellValue,
    /// A diagnostic (a self-test) failed.
    DiagnosticFailure,
    /// The controller can't go on as it should.
    PersistentInternalError,
    /// A passing error.
    TransientInternalError,
    /// Reliability is degraded, the media is read-only, or a backup failed.
    Reliability,
    /// A temperature has passed a threshold.
    Temperature,
    /// Available spare has fallen below its threshold.
    SpareBelowThreshold,
    /// Identify data of a namespace, or the list of attached ones, has changed.
    NamespaceAttributeChanged,
    /// New firmware is about to run.
    FirmwareActivation,
    /// A sanitize operation has ended.
    SanitizeCompleted,
    /// A sanitize operation has ended, with deallocation where none was asked for.
    SanitizeDeallocated,
}

/// Types of events: a reported one is masked until its log page was read (section 5.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum EventType {
    /// 000b.
    Error = 0,
    /// 001b.
    Smart = 1,
    /// 010b.
    Notice = 2,
    /// 110b.
    IoCommandSet = 6,
}

impl Event {
    /// Every event.
    pub const ALL: &'static [Event] = &[
        Event::InvalidDoorbellRegister,
        Event::InvalidDoorbellValue,
        Event::DiagnosticFailure,
        Event::PersistentInternalError,
        Event::TransientInternalError,
        Event::Reliability,
        Event::Temperature,
        Event::SpareBelowThreshold,
        Event::NamespaceAttributeChanged,
        Event::FirmwareActivation,
        Event::SanitizeCompleted,
        Event::SanitizeDeallocated,
    ];

    /// Type, information, log page.
    const fn parts(self) -> (EventType, u8, u8) {
        match self {
            Event::InvalidDoorbellRegister => (EventType::Error, 0, log_page::ERROR),
            Event::InvalidDoorbellValue => (EventType::Error, 1, log_page::ERROR),
            Event::DiagnosticFailure => (EventType::Error, 2, log_page::ERROR),
            Event::PersistentInternalError => (EventType::Error, 3, log_page::ERROR),
            Event::TransientInternalError => (EventType::Error, 4, log_page::ERROR),
            Event::Reliability => (EventType::Smart, 0, log_page::SMART),
            Event::Temperature => (EventType::Smart, 1, log_page::SMART),
            Event::SpareBelowThreshold => (EventType::Smart, 2, log_page::SMART),
            Event::NamespaceAttributeChanged => (EventType::Notice, 0, log_page::CHANGED_NAMESPACES),
            Event::FirmwareActivation => (EventType::Notice, 1, log_page::FIRMWARE_SLOT),
            Event::SanitizeCompleted => (EventType::IoCommandSet, 1, log_page::SANITIZE),
            Event::SanitizeDeallocated => (EventType::IoCommandSet, 2, log_page::SANITIZE),
        }
    }

    /// Its type.
    pub const fn kind(self) -> EventType {
        self.parts().0
    }

    /// The log page that has more, and that unmasks the event when it is read.
    pub const fn log_page(self) -> u8 {
        self.parts().2
    }

    /// Double word 0 of the completion.
    pub const fn dword(self) -> u32 {
        let (kind, information, page) = self.parts();
        kind as u32 | (information as u32) << 8 | (page as u32) << 16
    }

    /// The event that a double word tells.
    pub fn from_dword(dword: u32) -> Option<Event> {
        Event::ALL.iter().copied().find(|event| event.dword() == dword & 0x00FF_FF07)
    }
}

/// Shadow doorbells and event indices (section 5.7): each of the two pages holds 4 bytes for each doorbell, in
/// the order of the doorbells, `4 << CAP.DSTRD` bytes apart.
pub mod doorbell_buffer {
    use crate::nvme::register::{Doorbell, offset};

    /// The byte of the page at which a doorbell has its value; `None` past 4,096 bytes: such queues have no shadow.
    pub const fn offset(doorbell: Doorbell, stride: u8) -> Option<u32> {
        let at = doorbell.bar_offset(stride) - offset::DOORBELLS as u64;
        if at < 4096 { Some(at as u32) } else { None }
    }

    /// Whether a doorbell that went from `old` to `new` has passed the event index, so that the host must ring it for
    /// real (the rule of VIRTIO's event index, which the host follows).
    pub const fn must_ring(event_index: u16, new: u16, old: u16) -> bool {
        new.wrapping_sub(event_index).wrapping_sub(1) < new.wrapping_sub(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvme::register::Doorbell;

    #[test]
    fn events_are_encoded_as_the_specification_says() {
        assert_eq!(Event::NamespaceAttributeChanged.dword(), 0x0004_0002);
        assert_eq!(Event::SpareBelowThreshold.dword(), 0x0002_0201);
        assert_eq!(Event::SanitizeCompleted.dword(), 0x0081_0106);
        for &event in Event::ALL {
            assert_eq!(Event::from_dword(event.dword() | 0xFF00_00F8), Some(event));
        }
        assert_eq!(Event::from_dword(7), None);
    }

    #[test]
    fn shadows_lie_as_doorbells_do() {
        let at = |queue, completion| doorbell_buffer::offset(Doorbell { queue, completion }, 0);
        assert_eq!((at(0, false), at(0, true), at(1, false), at(511, true)), (Some(0), Some(4), Some(8), Some(4092)));
        assert_eq!(at(512, false), None);
    }

    #[test]
    fn the_host_rings_when_the_index_is_passed() {
        for start in [0u16, 0xFFFE] {
            let at = |step: u16| start.wrapping_add(step);
            assert!(doorbell_buffer::must_ring(at(0), at(1), at(0)));
            assert!(doorbell_buffer::must_ring(at(2), at(4), at(0)));
            assert!(!doorbell_buffer::must_ring(at(4), at(4), at(0)), "the device asked for the next one");
            assert!(!doorbell_buffer::must_ring(at(0), at(4), at(2)), "it was passed before");
        }
    }
}
