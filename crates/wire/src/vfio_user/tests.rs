//! Layouts against bytes written out by hand from the specification, and parsing of anything at all.

use super::*;
use proptest::prelude::*;

#[test]
fn a_header_stands_where_the_specification_puts_it() {
    let header = Header { id: 0x0201, command: 0x0403, size: 0x0807_0605, flags: 0x0C0B_0A09, error: 0x100F_0E0D };
    let bytes: Vec<u8> = (1..=16).collect();
    assert_eq!(header.to_bytes().as_slice(), bytes);
    assert_eq!(Header::from_bytes(&header.to_bytes()), header);

    let command = Header::command(7, command::DMA_MAP, 32);
    assert_eq!((command.size, command.flags), (48, 0));
    assert!(command.is_command() && command.wants_reply() && !command.is_reply() && !command.is_failure());
    let reply = command.reply(0);
    assert_eq!((reply.id, reply.command, reply.size, reply.flags), (7, 2, 16, 1));
    assert!(reply.is_reply() && !reply.is_failure() && !reply.wants_reply());
    let failure = command.failure(22);
    assert_eq!((failure.size, failure.flags, failure.error), (16, 0x21, 22));
    assert!(failure.is_failure());
    assert!(!Header { flags: Header::NO_REPLY, ..command }.wants_reply());
    assert!(!Header { flags: 2, ..command }.is_command() && !Header { flags: 2, ..command }.is_reply());
}

#[test]
fn a_version_may_lack_its_text_and_be_padded() {
    let parse = |bytes: &'static [u8]| Version::parse(bytes);
    assert_eq!(parse(b"\0\0\x01"), None);
    assert_eq!(parse(b"\0\0\x01\0"), Some(Version { major: 0, minor: 1, data: b"" }));
    assert_eq!(parse(b"\0\0\x01\0{}\0"), Some(Version { major: 0, minor: 1, data: b"{}" }));
    assert_eq!(parse(b"\0\0\x01\0{}\0\0\0garbage"), Some(Version { major: 0, minor: 1, data: b"{}" }));
    assert_eq!(parse(b"\x02\0\0\0{}"), Some(Version { major: 2, minor: 0, data: b"{}" }));
    assert_eq!(Version { major: 0, minor: 1, data: b"{}" }.to_bytes(), b"\0\0\x01\0{}\0");
}

#[test]
fn dma_structures_stand_where_the_specification_puts_them() {
    let map = DmaMap { argsz: 32, flags: 3, offset: 0x1000, address: 0x2000, size: 0x3000 };
    let mut bytes = vec![32, 0, 0, 0, 3, 0, 0, 0];
    bytes.extend([0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0x30, 0, 0, 0, 0, 0, 0]);
    assert_eq!(map.to_bytes().as_slice(), bytes);
    assert_eq!(DmaMap::parse(&bytes), Ok(map));
    assert!(DmaMap::parse(&bytes[..31]).is_err());
    bytes.push(9);
    assert_eq!(DmaMap::parse(&bytes), Ok(map), "padded");

    let unmap = DmaUnmap { argsz: 24, flags: 2, address: 0x2000, size: 0x3000 };
    let bytes = [24, 0, 0, 0, 2, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0x30, 0, 0, 0, 0, 0, 0];
    assert_eq!(unmap.to_bytes(), bytes);
    assert_eq!(DmaUnmap::parse(&bytes), Ok(unmap));
    assert!(DmaUnmap::parse(&bytes[..23]).is_err());

    let access = DmaAccess { address: 0x2000, count: 2 };
    let bytes = [0, 0x20, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7, 8, 9];
    assert_eq!(access.to_bytes(), bytes[..16]);
    assert_eq!(DmaAccess::split(&bytes, true), Some((access, [7, 8].as_slice())));
    assert_eq!(DmaAccess::split(&bytes[..16], false), Some((access, [].as_slice())));
    assert_eq!(DmaAccess::split(&bytes[..17], true), None);
    assert_eq!(DmaAccess::split(&[0xFF; 24], true), None, "a count beyond everything");
}

#[test]
fn device_and_interrupt_information_stand_where_the_specification_puts_them() {
    let bytes = [16, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, 5, 0, 0, 0];
    let info = DeviceInfo { argsz: 16, flags: DeviceInfo::RESET | DeviceInfo::PCI, regions: 9, irqs: 5 };
    assert_eq!((info.to_bytes(), DeviceInfo::parse(&bytes)), (bytes, Ok(info)));
    let irq = IrqInfo { argsz: 16, flags: 3, index: 9, count: 5 };
    assert_eq!((irq.to_bytes(), IrqInfo::parse(&bytes)), (bytes, Ok(irq)));
    let fds = RegionIoFds { argsz: 16, flags: 3, index: 9, count: 5 };
    assert_eq!((fds.to_bytes(), RegionIoFds::parse(&bytes)), (bytes, Ok(fds)));
    for len in 0..16 {
        assert!(DeviceInfo::parse(&bytes[..len]).is_err() && IrqInfo::parse(&bytes[..len]).is_err());
        assert!(RegionIoFds::parse(&bytes[..len]).is_err());
    }
}

#[test]
fn event_descriptors_stand_where_the_specification_puts_them() {
    let head = RegionIoFds { argsz: 96, flags: 0, index: 2, count: 2 };
    let one = IoEventFd { offset: 0x1080, size: 8, descriptor: 3 };
    let mut bytes = head.to_bytes().to_vec();
    bytes.extend_from_slice(&one.to_bytes());
    bytes.extend_from_slice(&[0x80, 0x10, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0]);
    bytes.extend_from_slice(&[0; 20]);
    assert_eq!(IoEventFd::parse_all(&bytes), Some(vec![one, one]));
    // Of another type; and with a value to match, which this does not do.
    for at in [16 + 40 + 20, 16 + 40 + 24] {
        let mut other = bytes.clone();
        other[at] = 1;
        assert_eq!(IoEventFd::parse_all(&other), Some(vec![one]));
    }
    assert_eq!(IoEventFd::parse_all(&bytes[..95]), None);
    assert_eq!(IoEventFd::parse_all(&[0xff; 96]), None, "more than there is");
}

#[test]
fn every_combination_of_interrupt_flags_is_told_apart() {
    let mut good = 0;
    for flags in 0u32..128 {
        let mut payload = vec![24, 0, 0, 0];
        payload.extend(flags.to_le_bytes());
        payload.extend([2, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1, 0, 1, 0]);
        let one_data = (flags & 7).count_ones() == 1;
        let one_action = (flags & 0x38).count_ones() == 1;
        let set = SetIrqs::parse(&payload);
        assert_eq!(set.is_some(), one_data && one_action && flags < 64, "{flags:#b}");
        if let Some(set) = set {
            good += 1;
            assert_eq!((set.index, set.start, set.count), (IrqIndex::MsiX, 1, 4));
            assert_eq!(SetIrqs::parse(&set.to_bytes()), Some(set));
        }
    }
    assert_eq!(good, 9);
}

#[test]
fn interrupt_payloads_hold_what_they_say() {
    let set = SetIrqs {
        index: IrqIndex::MsiX,
        start: 0,
        count: 3,
        data: IrqData::Bool(&[1, 0, 1]),
        action: IrqAction::Trigger,
    };
    let mut bytes = set.to_bytes();
    assert_eq!(bytes.len(), 23);
    assert_eq!(SetIrqs::parse(&bytes), Some(set));
    assert_eq!(SetIrqs::parse(&bytes[..22]), None, "a boolean is missing");
    bytes[16] = 0xFF;
    bytes[19] = 0xFF;
    assert_eq!(SetIrqs::parse(&bytes), None, "far too many booleans");
    let mut bytes = set.to_bytes();
    bytes[8] = 5;
    assert_eq!(SetIrqs::parse(&bytes), None, "no such kind");
    let mut bytes = set.to_bytes();
    bytes[0] = 19;
    assert_eq!(SetIrqs::parse(&bytes), None, "a size below the structure's");
    for number in 0..IrqIndex::COUNT {
        assert_eq!(IrqIndex::from_number(number).map(IrqIndex::number), Some(number));
    }
    assert_eq!(IrqIndex::from_number(IrqIndex::COUNT), None);
}

#[test]
fn areas_come_back_from_a_region_s_capabilities() {
    let areas = [Area { offset: 0x1000, size: 0x1000 }, Area { offset: 0x8000, size: 0x10000 }];
    let caps = areas_to_bytes(&areas);
    assert_eq!(caps.len(), 48);
    assert_eq!(caps[..12], [1, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
    let flags = region_info_flag::CAPS | region_info_flag::MMAP;
    let info = RegionInfo { argsz: 80, flags, index: 0, cap_offset: 32, size: 1 << 20, offset: 0 };
    let reply = [info.to_bytes().as_slice(), &caps].concat();
    assert_eq!(RegionInfo::parse(&reply), Ok(info));
    assert_eq!(parse_areas(&reply), Some(Some(areas.to_vec())));

    // Behind a capability that is not known.
    let other = [9, 0, 1, 0, 40, 0, 0, 0];
    let reply = [info.to_bytes().as_slice(), &other, &caps].concat();
    assert_eq!(parse_areas(&reply), Some(Some(areas.to_vec())));

    let bare = RegionInfo { flags: 0, ..info };
    assert_eq!(parse_areas(&bare.to_bytes()), Some(None));
    let last = [info.to_bytes().as_slice(), &[9, 0, 1, 0, 0, 0, 0, 0]].concat();
    assert_eq!(parse_areas(&last), Some(None), "no list");
    for (cap_offset, what) in [(31, "inside of the structure"), (79, "cut off"), (u32::MAX, "far away")] {
        let info = RegionInfo { cap_offset, ..info };
        let reply = [info.to_bytes().as_slice(), &caps].concat();
        assert_eq!(parse_areas(&reply), None, "{what}");
    }
    let circle = [info.to_bytes().as_slice(), &[9, 0, 1, 0, 32, 0, 0, 0]].concat();
    assert_eq!(parse_areas(&circle), None, "a circle");
    let mut many = [info.to_bytes().as_slice(), &caps].concat();
    many[40] = 3;
    assert_eq!(parse_areas(&many), None, "more areas than there are");
}

#[test]
fn region_accesses_hold_what_they_say() {
    let access = RegionAccess { offset: 0x1008, region: 0, count: 4 };
    let bytes = [8, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 2, 3, 4];
    assert_eq!(access.to_bytes(), bytes[..16]);
    assert_eq!(RegionAccess::split(&bytes, true), Some((access, [1, 2, 3, 4].as_slice())));
    assert_eq!(RegionAccess::split(&bytes[..19], true), None);
    assert_eq!(RegionAccess::split(&bytes[..16], false), Some((access, [].as_slice())));
    assert_eq!(RegionAccess::split(&bytes[..15], false), None);

    let one = |offset: u64, count: u32| {
        let mut bytes = offset.to_le_bytes().to_vec();
        bytes.extend([0; 4]);
        bytes.extend(count.to_le_bytes());
        bytes.extend([1, 2, 3, 4, 5, 6, 7, 8]);
        bytes
    };
    let multi = [2u64.to_le_bytes().to_vec(), one(0x1000, 4), one(0x1008, 8)].concat();
    let parsed = WriteMulti::parse(&multi).expect("the writes are valid");
    assert_eq!(parsed.count(), 2);
    let writes: Vec<(u64, usize)> = parsed.writes().map(|write| (write.offset, write.data.len())).collect();
    assert_eq!(writes, [(0x1000, 4), (0x1008, 8)]);
    assert_eq!(WriteMulti::parse(&multi[..multi.len() - 1]), None, "the second is cut off");
    assert_eq!(WriteMulti::parse(&[1u64.to_le_bytes().to_vec(), one(0, 9)].concat()), None, "nine bytes");
    assert_eq!(WriteMulti::parse(&[0xFF; 64]), None, "a count beyond everything");
    assert_eq!(WriteMulti::parse(&[0; 8]).map(|multi| multi.count()), Some(0));
}

proptest! {
    #[test]
    fn nothing_panics(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
        let _ = Version::parse(&bytes);
        let _ = DmaMap::parse(&bytes);
        let _ = DmaUnmap::parse(&bytes);
        let _ = DeviceInfo::parse(&bytes);
        let _ = RegionInfo::parse(&bytes);
        let _ = parse_areas(&bytes);
        let _ = (RegionIoFds::parse(&bytes), IoEventFd::parse_all(&bytes));
        let _ = IrqInfo::parse(&bytes);
        let _ = SetIrqs::parse(&bytes);
        let _ = (RegionAccess::split(&bytes, true), DmaAccess::split(&bytes, true));
        if let Some(multi) = WriteMulti::parse(&bytes) {
            prop_assert_eq!(multi.writes().count() as u64, multi.count());
        }
    }

    #[test]
    fn headers_come_back(bytes in any::<[u8; Header::SIZE]>()) {
        prop_assert_eq!(Header::from_bytes(&bytes).to_bytes(), bytes);
    }
}
