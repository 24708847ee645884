//! Admin commands (section 5): from a submission queue entry to what it asks for.

use super::{NSID_ALL, Sqe, Status};
use crate::vendor;

/// Opcodes of admin commands, those with a meaning here. Others get Invalid Command Opcode.
pub mod admin_opcode {
    /// Delete I/O Submission Queue (section 5.6).
    pub const DELETE_IO_SQ: u8 = 0x00;
    /// Create I/O Submission Queue (section 5.4).
    pub const CREATE_IO_SQ: u8 = 0x01;
    /// Get Log Page (section 5.14).
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Delete I/O Completion Queue (section 5.5).
    pub const DELETE_IO_CQ: u8 = 0x04;
    /// Create I/O Completion Queue (section 5.3).
    pub const CREATE_IO_CQ: u8 = 0x05;
    /// Identify (section 5.15).
    pub const IDENTIFY: u8 = 0x06;
    /// Abort (section 5.1).
    pub const ABORT: u8 = 0x08;
    /// Set Features (section 5.21).
    pub const SET_FEATURES: u8 = 0x09;
    /// Get Features (section 5.13).
    pub const GET_FEATURES: u8 = 0x0A;
    /// Asynchronous Event Request (section 5.2).
    pub const ASYNCHRONOUS_EVENT_REQUEST: u8 = 0x0C;
    /// Namespace Management (section 5.20).
    pub const NAMESPACE_MANAGEMENT: u8 = 0x0D;
    /// Device Self-test (section 5.8).
    pub const DEVICE_SELF_TEST: u8 = 0x14;
    /// Namespace Attachment (section 5.19).
    pub const NAMESPACE_ATTACHMENT: u8 = 0x15;
    /// Keep Alive (section 5.16).
    pub const KEEP_ALIVE: u8 = 0x18;
    /// Doorbell Buffer Config (section 5.7).
    pub const DOORBELL_BUFFER_CONFIG: u8 = 0x7C;
    /// Format NVM (section 5.23).
    pub const FORMAT_NVM: u8 = 0x80;
    /// Sanitize (section 5.24).
    pub const SANITIZE: u8 = 0x84;

    /// Every opcode above with its name in the specification, in ascending order.
    pub const NAMED: &[(u8, &str)] = &[
        (DELETE_IO_SQ, "Delete I/O Submission Queue"),
        (CREATE_IO_SQ, "Create I/O Submission Queue"),
        (GET_LOG_PAGE, "Get Log Page"),
        (DELETE_IO_CQ, "Delete I/O Completion Queue"),
        (CREATE_IO_CQ, "Create I/O Completion Queue"),
        (IDENTIFY, "Identify"),
        (ABORT, "Abort"),
        (SET_FEATURES, "Set Features"),
        (GET_FEATURES, "Get Features"),
        (ASYNCHRONOUS_EVENT_REQUEST, "Asynchronous Event Request"),
        (NAMESPACE_MANAGEMENT, "Namespace Management"),
        (DEVICE_SELF_TEST, "Device Self-test"),
        (NAMESPACE_ATTACHMENT, "Namespace Attachment"),
        (KEEP_ALIVE, "Keep Alive"),
        (DOORBELL_BUFFER_CONFIG, "Doorbell Buffer Config"),
        (FORMAT_NVM, "Format NVM"),
        (SANITIZE, "Sanitize"),
    ];
}

/// Priority class of a submission queue (QPRIO), for weighted round robin arbitration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum QueuePriority {
    /// 00b.
    Urgent,
    /// 01b.
    High,
    /// 10b.
    Medium,
    /// 11b.
    Low,
}

impl QueuePriority {
    /// The class with this code, of which the low two bits count.
    pub const fn from_bits(bits: u32) -> QueuePriority {
        match bits & 3 {
            0 => QueuePriority::Urgent,
            1 => QueuePriority::High,
            2 => QueuePriority::Medium,
            _ => QueuePriority::Low,
        }
    }
}

/// Create I/O Completion Queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CreateCq {
    /// Its identifier, not 0.
    pub queue: u16,
    /// Entries, 2 to 65,536. Whether CAP.MQES allows them is for the controller to check.
    pub entries: u32,
    /// PRP entry 1: where it is, physically contiguous. A multiple of the memory page size, which the controller
    /// checks.
    pub address: u64,
    /// Interrupt vector (IV), if interrupts are enabled (IEN): any.
    pub vector: Option<u16>,
}

/// Create I/O Submission Queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CreateSq {
    /// Its identifier, not 0.
    pub queue: u16,
    /// Entries, 2 to 65,536. Whether CAP.MQES allows them is for the controller to check.
    pub entries: u32,
    /// PRP entry 1: where it is, physically contiguous. A multiple of the memory page size, which the controller
    /// checks.
    pub address: u64,
    /// The completion queue that it uses, not 0; it may not exist.
    pub completion_queue: u16,
    /// Priority class.
    pub priority: QueuePriority,
}

/// Get Log Page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GetLogPage {
    /// Namespace: 0 or FFFFFFFFh is the controller; any.
    pub nsid: u32,
    /// Log page identifier (LID): any.
    pub lid: u8,
    /// Log specific field (LSP), 4 bits.
    pub specific: u8,
    /// Retain Asynchronous Event (RAE): events of this log stay masked.
    pub retain: bool,
    /// Bytes to return (NUMD), 4 to 16 GiB: a multiple of 4.
    pub len: u64,
    /// First byte (LPO): a multiple of 4, any size.
    pub offset: u64,
    /// Log specific identifier (LSI).
    pub identifier: u16,
    /// Command set identifier (CSI, revision 2.0).
    pub csi: u8,
}

/// Data structure that Identify returns (CNS; those from revision 2.0 say so).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cns {
    /// 00h: an attached namespace, or with FFFFFFFFh what is common to all.
    Namespace,
    /// 01h: the controller.
    Controller,
    /// 02h: identifiers of attached namespaces above NSID.
    ActiveNamespaces,
    /// 03h: descriptors that identify a namespace.
    NamespaceDescriptors,
    /// 05h (2.0): the part of an attached namespace that is the command set's.
    CommandSetNamespace,
    /// 06h (2.0): the part of the controller that is the command set's.
    CommandSetController,
    /// 07h (2.0): as 02h, of one command set.
    CommandSetActiveNamespaces,
    /// 08h (2.0): the part of a namespace that is common to all command sets.
    IndependentNamespace,
    /// 10h: identifiers of all namespaces above NSID.
    AllocatedNamespaces,
    /// 11h: any namespace.
    AllocatedNamespace,
    /// 12h: controllers from CNTID on that a namespace is attached to.
    AttachedControllers,
    /// 13h: controllers of the subsystem from CNTID on.
    Controllers,
    /// 1Ah (2.0): as 10h, of one command set.
    CommandSetAllocatedNamespaces,
    /// 1Bh (2.0): the command set's part of any namespace.
    CommandSetAllocatedNamespace,
    /// 1Ch (2.0): combinations of command sets that can be enabled together.
    CommandSets,
}

impl Cns {
    /// Every value with its code, in ascending order.
    pub const ALL: &'static [(u8, Cns)] = &[
        (0x00, Cns::Namespace),
        (0x01, Cns::Controller),
        (0x02, Cns::ActiveNamespaces),
        (0x03, Cns::NamespaceDescriptors),
        (0x05, Cns::CommandSetNamespace),
        (0x06, Cns::CommandSetController),
        (0x07, Cns::CommandSetActiveNamespaces),
        (0x08, Cns::IndependentNamespace),
        (0x10, Cns::AllocatedNamespaces),
        (0x11, Cns::AllocatedNamespace),
        (0x12, Cns::AttachedControllers),
        (0x13, Cns::Controllers),
        (0x1A, Cns::CommandSetAllocatedNamespaces),
        (0x1B, Cns::CommandSetAllocatedNamespace),
        (0x1C, Cns::CommandSets),
    ];

    /// The value with this code.
    pub fn from_code(code: u8) -> Option<Cns> {
        Cns::ALL.iter().find(|(known, _)| *known == code).map(|&(_, cns)| cns)
    }

    /// Its code.
    pub fn code(self) -> u8 {
        Cns::ALL.iter().find(|(_, cns)| *cns == self).map_or(0xFF, |&(code, _)| code)
    }

    /// Whether the field CSI says which command set is meant.
    pub const fn has_command_set(self) -> bool {
        matches!(
            self,
            Cns::CommandSetNamespace
                | Cns::CommandSetController
                | Cns::CommandSetActiveNamespaces
                | Cns::CommandSetAllocatedNamespaces
                | Cns::CommandSetAllocatedNamespace
        )
    }
}

/// Identify.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Identify {
    /// The data structure.
    pub cns: Cns,
    /// Namespace: any.
    pub nsid: u32,
    /// Controller identifier (CNTID): where lists of controllers start.
    pub controller: u16,
    /// Command set (CSI); 0 is NVM. 0 where it has no meaning.
    pub csi: u8,
}

/// Which value of a feature Get Features returns (SEL).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Select {
    /// 000b: the value in use.
    Current,
    /// 001b: as it comes from the factory.
    Default,
    /// 010b: as it will be after a reset or power cycle.
    Saved,
    /// 011b: whether it can be saved and changed, and is of namespaces.
    Supported,
}

/// Get Features.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GetFeatures {
    /// Feature identifier (FID): any.
    pub fid: u8,
    /// Which value.
    pub select: Select,
    /// Namespace: any.
    pub nsid: u32,
    /// Command double word 11: of some features.
    pub cdw11: u32,
}

/// Set Features.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SetFeatures {
    /// Feature identifier (FID): any.
    pub fid: u8,
    /// The value is kept through resets and power cycles (SV).
    pub save: bool,
    /// Namespace: any.
    pub nsid: u32,
    /// Command double words 11 to 15: the feature's.
    pub dwords: [u32; 5],
}

/// Secure Erase Settings of Format NVM (SES, figure 328).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SecureErase {
    /// 000b: what the blocks hold afterwards is not defined (here: zeroes).
    None,
    /// 001b: user data is erased.
    UserData,
    /// 010b: the key is.
    Cryptographic,
}

/// Format NVM (figure 328).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FormatNvm {
    /// Namespace, or FFFFFFFFh for all of them.
    pub nsid: u32,
    /// LBA Format, 0 to 15: any.
    pub lbaf: u8,
    /// Secure Erase Settings.
    pub secure_erase: SecureErase,
}

/// Action of Sanitize (SANACT).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SanitizeAction {
    /// 001b: leave the failure mode.
    ExitFailureMode,
    /// 010b.
    BlockErase,
    /// 011b.
    Overwrite {
        /// Passes, 1 to 16.
        passes: u8,
        /// The pattern is inverted between passes (OIPBP).
        invert: bool,
        /// The pattern (OVRPAT).
        pattern: u32,
    },
    /// 100b.
    CryptoErase,
}

/// Sanitize.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sanitize {
    /// The action.
    pub action: SanitizeAction,
    /// Allow Unrestricted Sanitize Exit (AUSE): a failure may be left without another sanitize.
    pub unrestricted_exit: bool,
    /// No Deallocate After Sanitize (NDAS).
    pub no_deallocate: bool,
}

impl Sanitize {
    /// Command double word 10, as the log tells it too.
    pub const fn cdw10(&self) -> u32 {
        let action = match self.action {
            SanitizeAction::ExitFailureMode => 1,
            SanitizeAction::BlockErase => 2,
            SanitizeAction::Overwrite { passes, invert, .. } => 3 | (passes as u32 & 0xF) << 4 | (invert as u32) << 8,
            SanitizeAction::CryptoErase => 4,
        };
        action | (self.unrestricted_exit as u32) << 3 | (self.no_deallocate as u32) << 9
    }
}

/// Action of Device Self-test (STC).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SelfTestAction {
    /// 1h: start a short one.
    Short,
    /// 2h: start an extended one.
    Extended,
    /// Fh: abort the one that runs.
    Abort,
}

/// An admin command whose own fields are valid. Whether what it names exists, and is allowed, is for the firmware to
/// check.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AdminCommand {
    /// Delete I/O Submission Queue.
    DeleteIoSq {
        /// Its identifier, not 0.
        queue: u16,
    },
    /// Create I/O Submission Queue.
    CreateIoSq(CreateSq),
    /// Get Log Page.
    GetLogPage(GetLogPage),
    /// Delete I/O Completion Queue.
    DeleteIoCq {
        /// Its identifier, not 0.
        queue: u16,
    },
    /// Create I/O Completion Queue.
    CreateIoCq(CreateCq),
    /// Identify.
    Identify(Identify),
    /// Abort a command, as far as that can be done.
    Abort {
        /// The submission queue that it came from; 0 is the admin queue.
        queue: u16,
        /// Its identifier.
        cid: u16,
    },
    /// Set Features.
    SetFeatures(SetFeatures),
    /// Get Features.
    GetFeatures(GetFeatures),
    /// Asynchronous Event Request.
    AsynchronousEventRequest,
    /// Namespace Management, create; the data is a [`super::NamespaceManagement`].
    CreateNamespace {
        /// Command set (CSI, revision 2.0): any.
        csi: u8,
    },
    /// Namespace Management, delete.
    DeleteNamespace {
        /// Namespace, or FFFFFFFFh for all of them.
        nsid: u32,
    },
    /// Namespace Attachment; the data is a controller list.
    NamespaceAttachment {
        /// Namespace: any.
        nsid: u32,
        /// Attach; else detach.
        attach: bool,
    },
    /// Device Self-test.
    DeviceSelfTest {
        /// 0: the controller; FFFFFFFFh: all namespaces; else one: any.
        nsid: u32,
        /// The action.
        action: SelfTestAction,
    },
    /// Keep Alive.
    KeepAlive,
    /// Doorbell Buffer Config: both are any; the controller checks that they are page-aligned.
    DoorbellBufferConfig {
        /// Where shadow doorbells are (PRP1).
        shadow: u64,
        /// Where event indices are (PRP2).
        event_index: u64,
    },
    /// Format NVM.
    FormatNvm(FormatNvm),
    /// Sanitize.
    Sanitize(Sanitize),
    /// A command of this vendor.
    Vendor(vendor::AdminCommand),
}

/// The data of a command, and which way it goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Data {
    /// There is none.
    None,
    /// At most this many bytes to the host: a log page, or an answer.
    ToHost(u64),
    /// This many bytes from the host.
    FromHost(u32),
}

/// Bytes of everything that Identify returns, and of most of what is brought from the host.
pub const PAGE: u32 = 4096;

impl AdminCommand {
    /// Reads an entry from a queue in memory, where data is described by PRPs: PSDT other than 0 gives Invalid Field in
    /// Command (section 4.2: admin commands of a PCIe controller use PRPs), as a fused operation does.
    ///
    /// # Errors
    /// Invalid Command Opcode for opcodes that are not there; the status that the specification names for a wrong
    /// field, else Invalid Field in Command. Reserved bits are ignored.
    pub fn parse(sqe: &Sqe) -> Result<AdminCommand, Status> {
        let command = AdminCommand::of_opcode(sqe);
        // An unknown opcode is reported first: nothing is known about the fields of such a command.
        if command != Err(Status::INVALID_OPCODE) && (sqe.fuse() != 0 || sqe.psdt() != 0) {
            return Err(Status::INVALID_FIELD);
        }
        command
    }

    /// Reads an entry from a capsule of NVMe over Fabrics, where data is always described by an SGL that the transport
    /// has checked.
    ///
    /// # Errors
    /// As for [`AdminCommand::parse`]; and Invalid Command Opcode for what needs queues in memory.
    pub fn parse_capsule(sqe: &Sqe) -> Result<AdminCommand, Status> {
        const PSDT: u32 = 3 << 14;
        match AdminCommand::parse(&sqe.with_dword(0, sqe.dwords()[0] & !PSDT))? {
            // Queues are made by Connect, and there are no doorbells (NVMe over Fabrics 1.1, section 4.1).
            AdminCommand::DeleteIoSq { .. }
            | AdminCommand::CreateIoSq(_)
            | AdminCommand::DeleteIoCq { .. }
            | AdminCommand::CreateIoCq(_)
            | AdminCommand::DoorbellBufferConfig { .. } => Err(Status::INVALID_OPCODE),
            command => Ok(command),
        }
    }

    fn of_opcode(sqe: &Sqe) -> Result<AdminCommand, Status> {
        let (cdw10, cdw11) = (sqe.cdw10(), sqe.cdw11());
        let (low, high) = (cdw10 as u16, (cdw10 >> 16) as u16);
        Ok(match sqe.opcode() {
            admin_opcode::DELETE_IO_SQ => AdminCommand::DeleteIoSq { queue: io_queue(low)? },
            admin_opcode::DELETE_IO_CQ => AdminCommand::DeleteIoCq { queue: io_queue(low)? },
            admin_opcode::CREATE_IO_CQ => {
                let queue = io_queue(low)?;
                let (entries, address) = queue_memory(sqe)?;
                let vector = (cdw11 & 2 != 0).then_some((cdw11 >> 16) as u16);
                AdminCommand::CreateIoCq(CreateCq { queue, entries, address, vector })
            }
            admin_opcode::CREATE_IO_SQ => {
                let queue = io_queue(low)?;
                let completion_queue = (cdw11 >> 16) as u16;
                if completion_queue == 0 {
                    return Err(Status::INVALID_QUEUE_ID);
                }
                let (entries, address) = queue_memory(sqe)?;
                let priority = QueuePriority::from_bits(cdw11 >> 1);
                AdminCommand::CreateIoSq(CreateSq { queue, entries, address, completion_queue, priority })
            }
            admin_opcode::GET_LOG_PAGE => AdminCommand::GetLogPage(get_log_page(sqe)?),
            admin_opcode::IDENTIFY => {
                let cns = Cns::from_code(cdw10 as u8).ok_or(Status::INVALID_FIELD)?;
                let csi = if cns.has_command_set() { (cdw11 >> 24) as u8 } else { 0 };
                AdminCommand::Identify(Identify { cns, nsid: sqe.nsid(), controller: high, csi })
            }
            admin_opcode::ABORT => AdminCommand::Abort { queue: low, cid: high },
            admin_opcode::SET_FEATURES => AdminCommand::SetFeatures(SetFeatures {
                fid: cdw10 as u8,
                save: cdw10 >> 31 != 0,
                nsid: sqe.nsid(),
                dwords: std::array::from_fn(|i| sqe.dwords()[11 + i]),
            }),
            admin_opcode::GET_FEATURES => {
                let select = match cdw10 >> 8 & 7 {
                    0 => Select::Current,
                    1 => Select::Default,
                    2 => Select::Saved,
                    3 => Select::Supported,
                    _ => return Err(Status::INVALID_FIELD),
                };
                AdminCommand::GetFeatures(GetFeatures { fid: cdw10 as u8, select, nsid: sqe.nsid(), cdw11 })
            }
            admin_opcode::ASYNCHRONOUS_EVENT_REQUEST => AdminCommand::AsynchronousEventRequest,
            admin_opcode::NAMESPACE_MANAGEMENT => match cdw10 & 0xF {
                0 => AdminCommand::CreateNamespace { csi: (cdw11 >> 24) as u8 },
                1 => AdminCommand::DeleteNamespace { nsid: sqe.nsid() },
                _ => return Err(Status::INVALID_FIELD),
            },
            admin_opcode::NAMESPACE_ATTACHMENT => match cdw10 & 0xF {
                // All namespaces at once can't be attached (section 5.19).
                _ if sqe.nsid() == NSID_ALL => return Err(Status::INVALID_FIELD),
                select @ (0 | 1) => AdminCommand::NamespaceAttachment { nsid: sqe.nsid(), attach: select == 0 },
                _ => return Err(Status::INVALID_FIELD),
            },
            admin_opcode::DEVICE_SELF_TEST => {
                let action = match cdw10 & 0xF {
                    1 => SelfTestAction::Short,
                    2 => SelfTestAction::Extended,
                    0xF => SelfTestAction::Abort,
                    _ => return Err(Status::INVALID_FIELD),
                };
                AdminCommand::DeviceSelfTest { nsid: sqe.nsid(), action }
            }
            admin_opcode::KEEP_ALIVE => AdminCommand::KeepAlive,
            admin_opcode::DOORBELL_BUFFER_CONFIG => {
                AdminCommand::DoorbellBufferConfig { shadow: sqe.prp1(), event_index: sqe.prp2() }
            }
            admin_opcode::FORMAT_NVM => AdminCommand::FormatNvm(format_nvm(sqe)?),
            admin_opcode::SANITIZE => AdminCommand::Sanitize(sanitize(sqe)?),
            0xC0.. => AdminCommand::Vendor(vendor::AdminCommand::parse(sqe)?),
            _ => return Err(Status::INVALID_OPCODE),
        })
    }

    /// Its data, and which way it goes.
    pub fn data(&self) -> Data {
        match self {
            AdminCommand::GetLogPage(get) => Data::ToHost(get.len),
            AdminCommand::Identify(_) => Data::ToHost(u64::from(PAGE)),
            AdminCommand::GetFeatures(get) => match super::feature::data_bytes(get.fid, get.cdw11) {
                0 => Data::None,
                _ if get.select == Select::Supported => Data::None,
                bytes => Data::ToHost(u64::from(bytes)),
            },
            AdminCommand::SetFeatures(set) => match super::feature::data_bytes(set.fid, set.dwords[0]) {
                0 => Data::None,
                // The descriptor list of a host memory buffer is not at the data pointer.
                _ if set.fid == super::feature::HOST_MEMORY_BUFFER => Data::None,
                bytes => Data::FromHost(bytes),
            },
            AdminCommand::CreateNamespace { .. } | AdminCommand::NamespaceAttachment { .. } => Data::FromHost(PAGE),
            AdminCommand::Vendor(command) => match command.data_bytes() as u32 {
                0 => Data::None,
                bytes => Data::FromHost(bytes),
            },
            _ => Data::None,
        }
    }

    /// Whether it destroys data or changes the subsystem for other hosts: what an unprivileged controller refuses.
    /// These are Format, Sanitize, namespace management, vendor commands, Device Self-test (one at a time in the
    /// subsystem), and Set Features of what all controllers share.
    pub const fn is_privileged(&self) -> bool {
        match self {
            AdminCommand::CreateNamespace { .. }
            | AdminCommand::DeleteNamespace { .. }
            | AdminCommand::NamespaceAttachment { .. }
            | AdminCommand::DeviceSelfTest { .. }
            | AdminCommand::FormatNvm(_)
            | AdminCommand::Sanitize(_)
            | AdminCommand::Vendor(_) => true,
            AdminCommand::SetFeatures(set) => super::feature::is_shared(set.fid),
            _ => false,
        }
    }
}

fn io_queue(queue: u16) -> Result<u16, Status> {
    if queue == 0 { Err(Status::INVALID_QUEUE_ID) } else { Ok(queue) }
}

/// Entries and place of a queue that is created.
fn queue_memory(sqe: &Sqe) -> Result<(u32, u64), Status> {
    let entries = (sqe.cdw10() >> 16) + 1;
    if entries < 2 {
        return Err(Status::INVALID_QUEUE_SIZE);
    }
    // PC: CAP.CQR says that queues must be physically contiguous (section 5.3).
    if sqe.cdw11() & 1 == 0 {
        return Err(Status::INVALID_FIELD);
    }
    Ok((entries, sqe.prp1()))
}

fn get_log_page(sqe: &Sqe) -> Result<GetLogPage, Status> {
    let (cdw10, cdw11) = (sqe.cdw10(), sqe.cdw11());
    let numd = u64::from(cdw10 >> 16) | u64::from(cdw11 & 0xFFFF) << 16;
    let offset = u64::from(sqe.cdw12()) | u64::from(sqe.cdw13()) << 32;
    // Offset Type (revision 2.0): an index instead of a byte offset, which no page here has.
    let is_index = sqe.cdw14() >> 23 & 1 != 0;
    if offset % 4 != 0 || is_index {
        return Err(Status::INVALID_FIELD);
    }
    Ok(GetLogPage {
        nsid: sqe.nsid(),
        lid: cdw10 as u8,
        specific: (cdw10 >> 8) as u8 & 0xF,
        retain: cdw10 >> 15 & 1 != 0,
        len: (numd + 1) * 4,
        offset,
        identifier: (cdw11 >> 16) as u16,
        csi: (sqe.cdw14() >> 24) as u8,
    })
}

fn format_nvm(sqe: &Sqe) -> Result<FormatNvm, Status> {
    let cdw10 = sqe.cdw10();
    let secure_erase = match cdw10 >> 9 & 7 {
        0 => SecureErase::None,
        1 => SecureErase::UserData,
        2 => SecureErase::Cryptographic,
        _ => return Err(Status::INVALID_FIELD),
    };
    // Protection information (PI) and metadata as part of the block (MSET): no format has metadata.
    let (metadata, protection) = (cdw10 >> 4 & 1 != 0, cdw10 >> 5 & 7);
    if metadata || protection != 0 {
        return Err(Status::INVALID_FORMAT);
    }
    Ok(FormatNvm { nsid: sqe.nsid(), lbaf: cdw10 as u8 & 0xF, secure_erase })
}

fn sanitize(sqe: &Sqe) -> Result<Sanitize, Status> {
    let cdw10 = sqe.cdw10();
    let action = match cdw10 & 7 {
        1 => SanitizeAction::ExitFailureMode,
        2 => SanitizeAction::BlockErase,
        3 => {
            let passes = (cdw10 >> 4 & 0xF) as u8;
            let passes = if passes == 0 { 16 } else { passes };
            SanitizeAction::Overwrite { passes, invert: cdw10 >> 8 & 1 != 0, pattern: sqe.cdw11() }
        }
        4 => SanitizeAction::CryptoErase,
        _ => return Err(Status::INVALID_FIELD),
    };
    Ok(Sanitize { action, unrestricted_exit: cdw10 >> 3 & 1 != 0, no_deallocate: cdw10 >> 9 & 1 != 0 })
}
