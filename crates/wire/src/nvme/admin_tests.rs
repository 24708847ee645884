use super::*;
use crate::vendor;
use proptest::prelude::*;

fn admin(opcode: u8) -> Sqe {
    Sqe::default().with_dword(0, u32::from(opcode))
}

#[test]
fn queues_are_created_and_deleted() {
    let create = |cdw10, cdw11| {
        let sqe = admin(admin_opcode::CREATE_IO_SQ).with_dword(6, 0x1000).with_dword(7, 2);
        AdminCommand::parse(&sqe.with_dword(10, cdw10).with_dword(11, cdw11))
    };
    let right = CreateSq {
        queue: 3,
        entries: 256,
        address: 0x2_0000_1000,
        completion_queue: 2,
        priority: QueuePriority::Medium,
    };
    assert_eq!(create(255 << 16 | 3, 2 << 16 | 2 << 1 | 1), Ok(AdminCommand::CreateIoSq(right)));
    assert_eq!(create(255 << 16, 2 << 16 | 1), Err(Status::INVALID_QUEUE_ID));
    assert_eq!(create(3, 2 << 16 | 1), Err(Status::INVALID_QUEUE_SIZE));
    assert_eq!(create(255 << 16 | 3, 1), Err(Status::INVALID_QUEUE_ID));
    assert_eq!(create(255 << 16 | 3, 2 << 16), Err(Status::INVALID_FIELD));

    let create = |cdw10, cdw11| {
        AdminCommand::parse(&admin(admin_opcode::CREATE_IO_CQ).with_dword(10, cdw10).with_dword(11, cdw11))
    };
    let right = CreateCq { queue: 1, entries: 65_536, address: 0, vector: Some(9) };
    assert_eq!(create(0xFFFF << 16 | 1, 9 << 16 | 3), Ok(AdminCommand::CreateIoCq(right)));
    assert_eq!(create(0xFFFF << 16 | 1, 9 << 16 | 1), Ok(AdminCommand::CreateIoCq(CreateCq { vector: None, ..right })));
    assert_eq!(create(0xFFFF << 16 | 1, 9 << 16 | 2), Err(Status::INVALID_FIELD));
    assert_eq!(AdminCommand::parse(&admin(admin_opcode::DELETE_IO_CQ)), Err(Status::INVALID_QUEUE_ID));
    let delete = admin(admin_opcode::DELETE_IO_SQ).with_dword(10, 7);
    assert_eq!(AdminCommand::parse(&delete), Ok(AdminCommand::DeleteIoSq { queue: 7 }));
}

#[test]
fn fields_of_other_commands() {
    let log =
        admin(admin_opcode::GET_LOG_PAGE).with_nsid(NSID_ALL).with_dword(10, 0x007F_8102).with_dword(11, 0x0005_0001);
    let want = GetLogPage {
        nsid: NSID_ALL,
        lid: 2,
        specific: 1,
        retain: true,
        len: 512 + (1 << 18),
        offset: 1 << 33,
        identifier: 5,
        csi: 0,
    };
    assert_eq!(AdminCommand::parse(&log.with_dword(13, 2)), Ok(AdminCommand::GetLogPage(want)));
    assert_eq!(AdminCommand::parse(&log.with_dword(14, 1 << 23)), Err(Status::INVALID_FIELD));
    assert_eq!(AdminCommand::GetLogPage(want).data(), Data::ToHost(want.len));

    let identify = admin(admin_opcode::IDENTIFY).with_dword(10, 0x0007_0013);
    let want = Identify { cns: Cns::Controllers, nsid: 0, controller: 7, csi: 0 };
    assert_eq!(AdminCommand::parse(&identify), Ok(AdminCommand::Identify(want)));
    assert_eq!(AdminCommand::parse(&identify.with_dword(10, 4)), Err(Status::INVALID_FIELD));

    let abort = admin(admin_opcode::ABORT).with_dword(10, 0x0102_0003);
    assert_eq!(AdminCommand::parse(&abort), Ok(AdminCommand::Abort { queue: 3, cid: 0x0102 }));

    let format = |cdw10| AdminCommand::parse(&admin(admin_opcode::FORMAT_NVM).with_nsid(1).with_dword(10, cdw10));
    let want = FormatNvm { nsid: 1, lbaf: 1, secure_erase: SecureErase::UserData };
    assert_eq!(format(1 << 9 | 1), Ok(AdminCommand::FormatNvm(want)));
    assert_eq!(format(1 << 5), Err(Status::INVALID_FORMAT));
    assert_eq!(format(1 << 4), Err(Status::INVALID_FORMAT));
    assert_eq!(format(3 << 9), Err(Status::INVALID_FIELD));

    let sanitize =
        |cdw10| AdminCommand::parse(&admin(admin_opcode::SANITIZE).with_dword(10, cdw10).with_dword(11, 0xAA));
    let overwrite = SanitizeAction::Overwrite { passes: 16, invert: true, pattern: 0xAA };
    let want = Sanitize { action: overwrite, unrestricted_exit: true, no_deallocate: true };
    assert_eq!((sanitize(0x30B), want.cdw10()), (Ok(AdminCommand::Sanitize(want)), 0x30B));
    assert_eq!(sanitize(0), Err(Status::INVALID_FIELD));
    assert_eq!(sanitize(5), Err(Status::INVALID_FIELD));

    let test = |cdw10| AdminCommand::parse(&admin(admin_opcode::DEVICE_SELF_TEST).with_nsid(1).with_dword(10, cdw10));
    assert_eq!(test(2), Ok(AdminCommand::DeviceSelfTest { nsid: 1, action: SelfTestAction::Extended }));
    for reserved in (0..16).filter(|code| ![1, 2, 15].contains(code)) {
        assert_eq!(test(reserved), Err(Status::INVALID_FIELD));
    }

    let attach = admin(admin_opcode::NAMESPACE_ATTACHMENT).with_nsid(4).with_dword(10, 1);
    assert_eq!(AdminCommand::parse(&attach), Ok(AdminCommand::NamespaceAttachment { nsid: 4, attach: false }));
    assert_eq!(AdminCommand::parse(&attach.with_nsid(NSID_ALL)), Err(Status::INVALID_FIELD));
    let get = admin(admin_opcode::GET_FEATURES).with_dword(10, 0x301);
    assert!(matches!(
        AdminCommand::parse(&get),
        Ok(AdminCommand::GetFeatures(GetFeatures { fid: 1, select: Select::Supported, .. }))
    ));
    assert_eq!(AdminCommand::parse(&get.with_dword(10, 0x401)), Err(Status::INVALID_FIELD));
}

#[test]
fn data_goes_where_the_opcode_says() {
    // Bits 1:0 of an opcode say which way data moves; it is of at most one way.
    for &(code, name) in admin_opcode::NAMED {
        let sqe = admin(code).with_nsid(1).with_dword(10, 0x0001_0001).with_dword(11, 0x0001_0001);
        for cdw10 in [sqe.cdw10(), 0, 2, 0x0E, 0x81] {
            let Ok(command) = AdminCommand::parse(&sqe.with_dword(10, cdw10)) else { continue };
            match command.data() {
                Data::ToHost(bytes) => assert!(code & 3 == 2 && bytes > 0, "{name}"),
                Data::FromHost(bytes) => assert!(code & 3 == 1 && bytes > 0, "{name}"),
                Data::None => {}
            }
        }
    }
}

#[test]
fn every_opcode_is_known_or_refused() {
    for code in 0..=255u8 {
        let parsed = AdminCommand::parse(&admin(code));
        let known = admin_opcode::NAMED.iter().any(|&(known, _)| known == code)
            || vendor::REGISTRY.iter().any(|entry| entry.set == vendor::Set::Admin && entry.code == code);
        assert_eq!(parsed == Err(Status::INVALID_OPCODE), !known, "{code:02X}h: {parsed:?}");
        for flags in [1 << 8, 1 << 14, 2 << 14, 3 << 14] {
            let refused = AdminCommand::parse(&Sqe::default().with_dword(0, u32::from(code) | flags)).unwrap_err();
            assert_eq!(refused, if known { Status::INVALID_FIELD } else { Status::INVALID_OPCODE }, "{code:02X}h");
        }
    }
}

#[test]
fn capsules_have_sgls_and_no_queues_in_memory() {
    let sgl = |code: u8| Sqe::default().with_dword(0, u32::from(code) | 1 << 14).with_dword(10, 1).with_dword(11, 1);
    assert!(AdminCommand::parse_capsule(&sgl(admin_opcode::IDENTIFY)).is_ok());
    assert_eq!(AdminCommand::parse(&sgl(admin_opcode::IDENTIFY)), Err(Status::INVALID_FIELD));
    for code in [admin_opcode::DELETE_IO_SQ, admin_opcode::DELETE_IO_CQ, admin_opcode::DOORBELL_BUFFER_CONFIG] {
        assert_eq!(AdminCommand::parse_capsule(&sgl(code)), Err(Status::INVALID_OPCODE));
    }
    let fast = vendor::AdminCommand::FastSetup { function: 0 }.emit(1);
    let capsule = fast.with_dword(0, fast.dwords()[0] | 1 << 14);
    assert!(matches!(AdminCommand::parse_capsule(&capsule), Ok(AdminCommand::Vendor(_))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// The emitted form of a command parses to it again; reserved bits are gone.
    #[test]
    fn what_parses_is_emitted(mut dwords in any::<[u32; 16]>(), which in 0..admin_opcode::NAMED.len() + 1) {
        dwords[0] = dwords[0] & 0xFFFF_3C00 | admin_opcode::NAMED.get(which).map_or(0xC1, |&(code, _)| u32::from(code));
        dwords[10] &= 0x8003_87FF;
        let sqe = Sqe::from_dwords(dwords);
        if let Ok(command) = AdminCommand::parse(&sqe) {
            let again = command.emit(sqe.cid());
            prop_assert_eq!((again.cid(), again.opcode()), (sqe.cid(), sqe.opcode()));
            prop_assert_eq!(AdminCommand::parse(&again), Ok(command));
        }
    }

    #[test]
    fn any_64_bytes_parse_or_get_a_status(
        mut dwords in any::<[u32; 16]>(),
        known in any::<bool>(),
        which in 0..admin_opcode::NAMED.len(),
    ) {
        if known {
            dwords[0] = dwords[0] & 0xFFFF_3C00 | u32::from(admin_opcode::NAMED[which].0);
            // Small numbers, so that selectors hit what exists.
            dwords[10] &= 0x8003_87FF;
        }
        let sqe = Sqe::from_dwords(dwords);
        for parsed in [AdminCommand::parse(&sqe), AdminCommand::parse_capsule(&sqe)] {
            match parsed {
                Ok(command) => match command.data() {
                    Data::ToHost(bytes) => prop_assert!(bytes <= 16 << 30),
                    Data::FromHost(bytes) => prop_assert!(bytes <= 8192),
                    Data::None => {}
                },
                Err(status) => prop_assert!(!status.is_success() && status.dnr() && status.name().is_some()),
            }
        }
    }
}
