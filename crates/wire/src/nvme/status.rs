//! The status field of a completion (section 4.6.1).

use std::fmt;

/// How a command ended: the 15-bit status field of a completion queue entry (figure 124), without the phase tag.
///
/// From bit 0: status code (8 bits), status code type (3), command retry delay (2), more (1), do not retry (1).
/// The constants set "do not retry" where the same command must fail again. The default is success.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Status(u16);

/// Status code types (figure 125).
const GENERIC: u8 = 0;
const COMMAND_SPECIFIC: u8 = 1;
const MEDIA: u8 = 2;

const DO_NOT_RETRY: u16 = 1 << 14;
const MORE: u16 = 1 << 13;

impl Status {
    /// A status of this type (`sct`, 0 to 7: other bits are dropped) and code. "More" is clear.
    pub const fn new(sct: u8, sc: u8, dnr: bool) -> Status {
        Status(sc as u16 | (sct as u16 & 7) << 8 | if dnr { DO_NOT_RETRY } else { 0 })
    }

    /// A status from the low 15 bits of `bits`; bit 15 is dropped.
    pub const fn from_bits(bits: u16) -> Status {
        Status(bits & 0x7FFF)
    }

    /// The 15 bits.
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Status code type (SCT), 0 to 7.
    pub const fn sct(self) -> u8 {
        (self.0 >> 8) as u8 & 7
    }

    /// Status code (SC).
    pub const fn sc(self) -> u8 {
        self.0 as u8
    }

    /// Command retry delay (CRD), 0 to 3: which of the three delays in Identify Controller to wait before a retry; 0
    /// is none. The firmware never asks for a delay.
    pub const fn crd(self) -> u8 {
        (self.0 >> 11) as u8 & 3
    }

    /// More (M): the Error Information log page has details.
    pub const fn more(self) -> bool {
        self.0 & MORE != 0
    }

    /// Do not retry (DNR).
    pub const fn dnr(self) -> bool {
        self.0 & DO_NOT_RETRY != 0
    }

    /// The same status with "more" set or cleared.
    pub const fn with_more(self, more: bool) -> Status {
        Status(if more { self.0 | MORE } else { self.0 & !MORE })
    }

    /// The same status with "do not retry" set or cleared.
    pub const fn with_dnr(self, dnr: bool) -> Status {
        Status(if dnr { self.0 | DO_NOT_RETRY } else { self.0 & !DO_NOT_RETRY })
    }

    /// Whether the command succeeded.
    pub const fn is_success(self) -> bool {
        self.0 & 0x7FF == 0
    }

    /// Whether type and code are those of `other`, whatever the flags.
    pub const fn same_code(self, other: Status) -> bool {
        self.0 & 0x7FF == other.0 & 0x7FF
    }

    /// The name that the specification gives this type and code, if it is one of [`Status::NAMED`], or that we gave it,
    /// if it is one of [`crate::vendor::status::NAMED`].
    pub fn name(self) -> Option<&'static str> {
        let standard = Status::NAMED.iter().copied();
        let vendor = crate::vendor::status::NAMED.iter().map(|&(status, name, _)| (status, name));
        standard.chain(vendor).find(|(status, _)| self.same_code(*status)).map(|(_, name)| name)
    }
}

macro_rules! statuses {
    ($($(#[$doc:meta])* $constant:ident = $sct:expr, $sc:expr, $dnr:expr, $name:literal;)*) => {
        impl Status {
            $($(#[$doc])* pub const $constant: Status = Status::new($sct, $sc, $dnr);)*

            /// Every named status with its name in the specification, ordered by type and code.
            pub const NAMED: &'static [(Status, &'static str)] = &[$((Status::$constant, $name),)*];
        }
    };
}

statuses! {
    // Figure 126: generic command status values.
    /// Type 0, 00h: done as asked.
    SUCCESS = GENERIC, 0x00, false, "Successful Completion";
    /// Type 0, 01h: the opcode is unknown or not supported.
    INVALID_OPCODE = GENERIC, 0x01, true, "Invalid Command Opcode";
    /// Type 0, 02h: a field holds a reserved value or asks for what is not supported.
    INVALID_FIELD = GENERIC, 0x02, true, "Invalid Field in Command";
    /// Type 0, 03h: another command of the same queue is outstanding under this identifier.
    COMMAND_ID_CONFLICT = GENERIC, 0x03, true, "Command ID Conflict";
    /// Type 0, 04h: data or metadata could not be moved from or to the host.
    DATA_TRANSFER_ERROR = GENERIC, 0x04, false, "Data Transfer Error";
    /// Type 0, 05h: aborted because power is about to be lost.
    ABORTED_POWER_LOSS = GENERIC, 0x05, false, "Commands Aborted due to Power Loss Notification";
    /// Type 0, 06h: an error inside the controller.
    INTERNAL_ERROR = GENERIC, 0x06, false, "Internal Error";
    /// Type 0, 07h: aborted because an Abort command asked for it.
    ABORT_REQUESTED = GENERIC, 0x07, false, "Command Abort Requested";
    /// Type 0, 08h: aborted because its submission queue was deleted.
    ABORTED_SQ_DELETION = GENERIC, 0x08, false, "Command Aborted due to SQ Deletion";
    /// Type 0, 09h: the other command of a fused pair failed.
    ABORTED_FAILED_FUSED = GENERIC, 0x09, false, "Command Aborted due to Failed Fused Command";
    /// Type 0, 0Ah: the other command of a fused pair is missing.
    ABORTED_MISSING_FUSED = GENERIC, 0x0A, false, "Command Aborted due to Missing Fused Command";
    /// Type 0, 0Bh: there is no such namespace, or its format does not suit.
    INVALID_NAMESPACE = GENERIC, 0x0B, true, "Invalid Namespace or Format";
    /// Type 0, 0Ch: commands of a protocol came in the wrong order.
    COMMAND_SEQUENCE_ERROR = GENERIC, 0x0C, true, "Command Sequence Error";
    /// Type 0, 0Dh.
    INVALID_SGL_SEGMENT = GENERIC, 0x0D, true, "Invalid SGL Segment Descriptor";
    /// Type 0, 0Eh.
    INVALID_SGL_COUNT = GENERIC, 0x0E, true, "Invalid Number of SGL Descriptors";
    /// Type 0, 0Fh: too short, or longer than the data and no bit bucket.
    DATA_SGL_LENGTH_INVALID = GENERIC, 0x0F, true, "Data SGL Length Invalid";
    /// Type 0, 10h.
    METADATA_SGL_LENGTH_INVALID = GENERIC, 0x10, true, "Metadata SGL Length Invalid";
    /// Type 0, 11h.
    SGL_TYPE_INVALID = GENERIC, 0x11, true, "SGL Descriptor Type Invalid";
    /// Type 0, 12h: the controller memory buffer does not support this use.
    INVALID_USE_OF_CMB = GENERIC, 0x12, true, "Invalid Use of Controller Memory Buffer";
    /// Type 0, 13h: a PRP entry that must be page-aligned is not.
    PRP_OFFSET_INVALID = GENERIC, 0x13, true, "PRP Offset Invalid";
    /// Type 0, 14h.
    ATOMIC_WRITE_UNIT_EXCEEDED = GENERIC, 0x14, true, "Atomic Write Unit Exceeded";
    /// Type 0, 15h: the host has no right to this command.
    OPERATION_DENIED = GENERIC, 0x15, true, "Operation Denied";
    /// Type 0, 16h.
    SGL_OFFSET_INVALID = GENERIC, 0x16, true, "SGL Offset Invalid";
    /// Type 0, 17h: a host identifier of another size than the one that is set.
    HOST_IDENTIFIER_INCONSISTENT = GENERIC, 0x17, true, "Host Identifier Inconsistent Format";
    /// Type 0, 18h: the host was not heard for the keep alive time-out.
    KEEP_ALIVE_EXPIRED = GENERIC, 0x18, true, "Keep Alive Timer Expired";
    /// Type 0, 19h: the keep alive time-out is not supported.
    KEEP_ALIVE_INVALID = GENERIC, 0x19, true, "Keep Alive Timeout Invalid";
    /// Type 0, 1Bh: aborted by a Reservation Acquire with preempt and abort.
    ABORTED_PREEMPT = GENERIC, 0x1B, false, "Command Aborted due to Preempt and Abort";
    /// Type 0, 1Ch: the last sanitize failed and no recovery was done.
    SANITIZE_FAILED = GENERIC, 0x1C, true, "Sanitize Failed";
    /// Type 0, 1Dh: a sanitize operation runs.
    SANITIZE_IN_PROGRESS = GENERIC, 0x1D, false, "Sanitize In Progress";
    /// Type 0, 1Eh.
    SGL_GRANULARITY_INVALID = GENERIC, 0x1E, true, "SGL Data Block Granularity Invalid";
    /// Type 0, 1Fh.
    NOT_SUPPORTED_IN_CMB_QUEUE = GENERIC, 0x1F, true, "Command Not Supported for Queue in CMB";
    /// Type 0, 20h: the namespace is read-only (section 8.19), also because the medium is at the end of its life.
    NAMESPACE_WRITE_PROTECTED = GENERIC, 0x20, true, "Namespace is Write Protected";
    /// Type 0, 21h: interrupted for reasons that pass; try again.
    COMMAND_INTERRUPTED = GENERIC, 0x21, false, "Command Interrupted";
    /// Type 0, 22h.
    TRANSIENT_TRANSPORT_ERROR = GENERIC, 0x22, false, "Transient Transport Error";
    // Figure 127: generic command status values, NVM command set.
    /// Type 0, 80h: a block is past the end of the namespace.
    LBA_OUT_OF_RANGE = GENERIC, 0x80, true, "LBA Out of Range";
    /// Type 0, 81h: thin-provisioned capacity is used up.
    CAPACITY_EXCEEDED = GENERIC, 0x81, false, "Capacity Exceeded";
    /// Type 0, 82h: the namespace cannot be used now (recovery after power on).
    NAMESPACE_NOT_READY = GENERIC, 0x82, false, "Namespace Not Ready";
    /// Type 0, 83h.
    RESERVATION_CONFLICT = GENERIC, 0x83, true, "Reservation Conflict";
    /// Type 0, 84h.
    FORMAT_IN_PROGRESS = GENERIC, 0x84, false, "Format In Progress";
    // Figure 128: command specific status values.
    /// Type 1, 00h: Create I/O Submission Queue names a completion queue that does not exist.
    COMPLETION_QUEUE_INVALID = COMMAND_SPECIFIC, 0x00, true, "Completion Queue Invalid";
    /// Type 1, 01h: the queue is the admin queue, out of range, or used already.
    INVALID_QUEUE_ID = COMMAND_SPECIFIC, 0x01, true, "Invalid Queue Identifier";
    /// Type 1, 02h: no entries, or more than CAP.MQES.
    INVALID_QUEUE_SIZE = COMMAND_SPECIFIC, 0x02, true, "Invalid Queue Size";
    /// Type 1, 03h: too many Abort commands are outstanding.
    ABORT_LIMIT_EXCEEDED = COMMAND_SPECIFIC, 0x03, false, "Abort Command Limit Exceeded";
    /// Type 1, 05h: too many Asynchronous Event Requests are outstanding.
    AER_LIMIT_EXCEEDED = COMMAND_SPECIFIC, 0x05, true, "Asynchronous Event Request Limit Exceeded";
    /// Type 1, 06h: the slot does not exist or is read-only.
    INVALID_FIRMWARE_SLOT = COMMAND_SPECIFIC, 0x06, true, "Invalid Firmware Slot";
    /// Type 1, 07h.
    INVALID_FIRMWARE_IMAGE = COMMAND_SPECIFIC, 0x07, true, "Invalid Firmware Image";
    /// Type 1, 08h: there is no such interrupt vector.
    INVALID_INTERRUPT_VECTOR = COMMAND_SPECIFIC, 0x08, true, "Invalid Interrupt Vector";
    /// Type 1, 09h: there is no such log page.
    INVALID_LOG_PAGE = COMMAND_SPECIFIC, 0x09, true, "Invalid Log Page";
    /// Type 1, 0Ah: the block format, or its settings, are not supported.
    INVALID_FORMAT = COMMAND_SPECIFIC, 0x0A, true, "Invalid Format";
    /// Type 1, 0Ch: a completion queue is still used by a submission queue.
    INVALID_QUEUE_DELETION = COMMAND_SPECIFIC, 0x0C, true, "Invalid Queue Deletion";
    /// Type 1, 0Dh: the feature has no saved value.
    FEATURE_NOT_SAVEABLE = COMMAND_SPECIFIC, 0x0D, true, "Feature Identifier Not Saveable";
    /// Type 1, 0Eh: the feature can't be set.
    FEATURE_NOT_CHANGEABLE = COMMAND_SPECIFIC, 0x0E, true, "Feature Not Changeable";
    /// Type 1, 0Fh: a namespace is named for a feature that is the controller's.
    FEATURE_NOT_NAMESPACE_SPECIFIC = COMMAND_SPECIFIC, 0x0F, true, "Feature Not Namespace Specific";
    /// Type 1, 14h: ranges overlap.
    OVERLAPPING_RANGE = COMMAND_SPECIFIC, 0x14, true, "Overlapping Range";
    /// Type 1, 15h: there is not enough room for the namespace.
    NAMESPACE_INSUFFICIENT_CAPACITY = COMMAND_SPECIFIC, 0x15, true, "Namespace Insufficient Capacity";
    /// Type 1, 16h: there are as many namespaces as can be.
    NAMESPACE_ID_UNAVAILABLE = COMMAND_SPECIFIC, 0x16, true, "Namespace Identifier Unavailable";
    /// Type 1, 18h.
    NAMESPACE_ALREADY_ATTACHED = COMMAND_SPECIFIC, 0x18, true, "Namespace Already Attached";
    /// Type 1, 19h: a private namespace is attached to another controller.
    NAMESPACE_IS_PRIVATE = COMMAND_SPECIFIC, 0x19, true, "Namespace Is Private";
    /// Type 1, 1Ah.
    NAMESPACE_NOT_ATTACHED = COMMAND_SPECIFIC, 0x1A, true, "Namespace Not Attached";
    /// Type 1, 1Bh: capacity and size of a namespace must be the same.
    THIN_PROVISIONING_NOT_SUPPORTED = COMMAND_SPECIFIC, 0x1B, true, "Thin Provisioning Not Supported";
    /// Type 1, 1Ch: the controller list is empty, out of order, or names a controller that is not there.
    CONTROLLER_LIST_INVALID = COMMAND_SPECIFIC, 0x1C, true, "Controller List Invalid";
    /// Type 1, 1Dh: a device self-test runs.
    SELF_TEST_IN_PROGRESS = COMMAND_SPECIFIC, 0x1D, true, "Device Self-test In Progress";
    /// Type 1, 1Fh: there is no such controller.
    INVALID_CONTROLLER_ID = COMMAND_SPECIFIC, 0x1F, true, "Invalid Controller Identifier";
    /// Type 1, 22h: there is no such resource.
    INVALID_RESOURCE_ID = COMMAND_SPECIFIC, 0x22, true, "Invalid Resource Identifier";
    /// Type 1, 23h.
    SANITIZE_PROHIBITED_PMR = COMMAND_SPECIFIC, 0x23, true,
        "Sanitize Prohibited While Persistent Memory Region is Enabled";
    /// Type 1, 29h (revision 2.0): an I/O command set that does not exist here.
    COMMAND_SET_NOT_SUPPORTED = COMMAND_SPECIFIC, 0x29, true, "I/O Command Set Not Supported";
    // Figure 129: command specific status values, NVM command set.
    /// Type 1, 80h: attributes of Dataset Management, Read or Write contradict each other.
    CONFLICTING_ATTRIBUTES = COMMAND_SPECIFIC, 0x80, true, "Conflicting Attributes";
    /// Type 1, 81h: protection information settings do not suit the namespace.
    INVALID_PROTECTION_INFORMATION = COMMAND_SPECIFIC, 0x81, true, "Invalid Protection Information";
    /// Type 1, 82h: part of the range cannot be written.
    WRITE_TO_READ_ONLY_RANGE = COMMAND_SPECIFIC, 0x82, true, "Attempted Write to Read Only Range";
    // Figure 130: media and data integrity errors, NVM command set.
    /// Type 2, 80h: the data could not be committed to the medium.
    WRITE_FAULT = MEDIA, 0x80, false, "Write Fault";
    /// Type 2, 81h: the data could not be recovered from the medium.
    UNRECOVERED_READ_ERROR = MEDIA, 0x81, false, "Unrecovered Read Error";
    /// Type 2, 82h: protection information, guard.
    GUARD_CHECK_ERROR = MEDIA, 0x82, false, "End-to-end Guard Check Error";
    /// Type 2, 83h: protection information, application tag.
    APPLICATION_TAG_CHECK_ERROR = MEDIA, 0x83, false, "End-to-end Application Tag Check Error";
    /// Type 2, 84h: protection information, reference tag.
    REFERENCE_TAG_CHECK_ERROR = MEDIA, 0x84, false, "End-to-end Reference Tag Check Error";
    /// Type 2, 85h: Compare found different data.
    COMPARE_FAILURE = MEDIA, 0x85, true, "Compare Failure";
    /// Type 2, 86h: locked by a security protocol.
    ACCESS_DENIED = MEDIA, 0x86, true, "Access Denied";
    /// Type 2, 87h: a deallocated or never written block was read, and the host asked for an error then.
    DEALLOCATED_OR_UNWRITTEN_BLOCK = MEDIA, 0x87, true, "Deallocated or Unwritten Logical Block";
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (type {}, code {:02X}h)", self.name().unwrap_or("unnamed status"), self.sct(), self.sc())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.more() { ", more" } else { "" };
        let dnr = if self.dnr() { ", do not retry" } else { "" };
        write!(f, "Status({self}{more}{dnr})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back() {
        for sct in 0..8 {
            for sc in 0..=255 {
                for flags in 0..4 {
                    let (more, dnr) = (flags & 1 != 0, flags & 2 != 0);
                    let status = Status::new(sct, sc, dnr).with_more(more);
                    assert_eq!((status.sct(), status.sc(), status.more(), status.dnr()), (sct, sc, more, dnr));
                    assert_eq!(Status::from_bits(status.bits()), status);
                    assert_eq!(status.crd(), 0);
                    assert_eq!(status.is_success(), sct == 0 && sc == 0);
                }
            }
        }
        assert_eq!(Status::from_bits(0xFFFF).crd(), 3);
    }

    #[test]
    fn names_are_ordered_and_without_duplicates() {
        let codes: Vec<_> = Status::NAMED.iter().map(|(s, _)| (s.sct(), s.sc())).collect();
        assert!(codes.windows(2).all(|pair| pair[0] < pair[1]), "{codes:?}");
        assert_eq!(Status::LBA_OUT_OF_RANGE.with_dnr(false).name(), Some("LBA Out of Range"));
        assert_eq!(Status::new(7, 0xC0, false).name(), None);
        assert_eq!(Status::new(7, 0x02, false).to_string(), "Deposed Epoch (type 7, code 02h)");
        assert_eq!(Status::COMPARE_FAILURE.to_string(), "Compare Failure (type 2, code 85h)");
        assert_eq!(
            format!("{:?}", Status::COMPARE_FAILURE.with_more(true)),
            "Status(Compare Failure (type 2, code 85h), more, do not retry)"
        );
    }
}
