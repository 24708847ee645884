//! Admin commands as a host writes them: from what is asked for to a submission queue entry.

use super::admin::{AdminCommand, SanitizeAction, SecureErase, Select, SelfTestAction, admin_opcode};
use super::{NSID_ALL, Sqe};

impl AdminCommand {
    /// The entry that parses to this command. Its data pointer is for the host to fill in, except where the command
    /// itself says an address. Asserts what parsing gives: queues of 2 to 65,536 entries and not of number 0, lengths
    /// and offsets of log pages that are multiples of 4, no attachment of all namespaces at once.
    pub fn emit(&self, cid: u16) -> Sqe {
        let of = |opcode: u8| Sqe::default().with_dword(0, u32::from(opcode) | u32::from(cid) << 16);
        let queue = |opcode, number: u16, entries: u32, address: u64| {
            assert!(number != 0 && (2..=65_536).contains(&entries), "queue {number} of {entries} entries");
            let sqe = of(opcode).with_dword(6, address as u32).with_dword(7, (address >> 32) as u32);
            sqe.with_dword(10, u32::from(number) | (entries - 1) << 16)
        };
        let pair = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
        match *self {
            AdminCommand::DeleteIoSq { queue } => of(admin_opcode::DELETE_IO_SQ).with_dword(10, queue.into()),
            AdminCommand::DeleteIoCq { queue } => of(admin_opcode::DELETE_IO_CQ).with_dword(10, queue.into()),
            AdminCommand::CreateIoCq(create) => {
                let interrupts = create.vector.map_or(0, |vector| 2 | u32::from(vector) << 16);
                queue(admin_opcode::CREATE_IO_CQ, create.queue, create.entries, create.address)
                    .with_dword(11, 1 | interrupts)
            }
            AdminCommand::CreateIoSq(create) => {
                let flags = 1 | (create.priority as u16) << 1;
                queue(admin_opcode::CREATE_IO_SQ, create.queue, create.entries, create.address)
                    .with_dword(11, pair(flags, create.completion_queue))
            }
            AdminCommand::GetLogPage(get) => {
                assert!(get.len >= 4 && get.len % 4 == 0 && get.len <= 16 << 30, "{} bytes of a log page", get.len);
                assert!(get.offset.is_multiple_of(4), "a log page from byte {} on", get.offset);
                let numd = (get.len / 4 - 1) as u32;
                let low = u32::from(get.lid) | u32::from(get.specific & 0xF) << 8 | u32::from(get.retain) << 15;
                of(admin_opcode::GET_LOG_PAGE)
                    .with_nsid(get.nsid)
                    .with_dword(10, low | numd << 16)
                    .with_dword(11, pair((numd >> 16) as u16, get.identifier))
                    .with_dword(12, get.offset as u32)
                    .with_dword(13, (get.offset >> 32) as u32)
                    .with_dword(14, u32::from(get.csi) << 24)
            }
            AdminCommand::Identify(identify) => of(admin_opcode::IDENTIFY)
                .with_nsid(identify.nsid)
                .with_dword(10, pair(identify.cns.code().into(), identify.controller))
                .with_dword(11, u32::from(identify.csi) << 24),
            AdminCommand::Abort { queue, cid } => of(admin_opcode::ABORT).with_dword(10, pair(queue, cid)),
            AdminCommand::SetFeatures(set) => {
                let sqe = of(admin_opcode::SET_FEATURES)
                    .with_nsid(set.nsid)
                    .with_dword(10, u32::from(set.fid) | u32::from(set.save) << 31);
                set.dwords.into_iter().zip(11..).fold(sqe, |sqe, (dword, at)| sqe.with_dword(at, dword))
            }
            AdminCommand::GetFeatures(get) => {
                let select = match get.select {
                    Select::Current => 0,
                    Select::Default => 1,
                    Select::Saved => 2,
                    Select::Supported => 3,
                };
                of(admin_opcode::GET_FEATURES)
                    .with_nsid(get.nsid)
                    .with_dword(10, u32::from(get.fid) | select << 8)
                    .with_dword(11, get.cdw11)
            }
            AdminCommand::AsynchronousEventRequest => of(admin_opcode::ASYNCHRONOUS_EVENT_REQUEST),
            AdminCommand::CreateNamespace { csi } => {
                of(admin_opcode::NAMESPACE_MANAGEMENT).with_dword(11, u32::from(csi) << 24)
            }
            AdminCommand::DeleteNamespace { nsid } => {
                of(admin_opcode::NAMESPACE_MANAGEMENT).with_nsid(nsid).with_dword(10, 1)
            }
            AdminCommand::NamespaceAttachment { nsid, attach } => {
                assert!(nsid != NSID_ALL, "all namespaces can't be attached at once");
                of(admin_opcode::NAMESPACE_ATTACHMENT).with_nsid(nsid).with_dword(10, u32::from(!attach))
            }
            AdminCommand::DeviceSelfTest { nsid, action } => {
                let code = match action {
                    SelfTestAction::Short => 1,
                    SelfTestAction::Extended => 2,
                    SelfTestAction::Abort => 0xF,
                };
                of(admin_opcode::DEVICE_SELF_TEST).with_nsid(nsid).with_dword(10, code)
            }
            AdminCommand::KeepAlive => of(admin_opcode::KEEP_ALIVE),
            AdminCommand::DoorbellBufferConfig { shadow, event_index } => of(admin_opcode::DOORBELL_BUFFER_CONFIG)
                .with_dword(6, shadow as u32)
                .with_dword(7, (shadow >> 32) as u32)
                .with_dword(8, event_index as u32)
                .with_dword(9, (event_index >> 32) as u32),
            AdminCommand::FormatNvm(format) => {
                let erase = match format.secure_erase {
                    SecureErase::None => 0,
                    SecureErase::UserData => 1,
                    SecureErase::Cryptographic => 2,
                };
                let cdw10 = u32::from(format.lbaf & 0xF) | erase << 9;
                of(admin_opcode::FORMAT_NVM).with_nsid(format.nsid).with_dword(10, cdw10)
            }
            AdminCommand::Sanitize(sanitize) => {
                let pattern = match sanitize.action {
                    SanitizeAction::Overwrite { pattern, .. } => pattern,
                    _ => 0,
                };
                of(admin_opcode::SANITIZE).with_dword(10, sanitize.cdw10()).with_dword(11, pattern)
            }
            AdminCommand::Vendor(command) => command.emit(cid),
        }
    }
}
