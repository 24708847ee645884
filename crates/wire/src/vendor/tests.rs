use proptest::prelude::*;

use super::*;
use crate::log::*;
use crate::nvme::{Sqe, Status};

#[test]
fn the_registry_keeps_to_the_number_spaces_of_the_specification() {
    for entry in REGISTRY {
        let least = if entry.set == Set::Io { 0x80 } else { 0xC0 };
        assert!(entry.code >= least, "{}", entry.name);
        if entry.set != Set::LogPage {
            assert_eq!(Direction::of(entry.code), Some(entry.direction), "{}", entry.name);
            assert!(entry.data.is_none() || entry.direction != Direction::None, "{}", entry.name);
        }
    }
    let codes: Vec<_> = REGISTRY.iter().map(|entry| (entry.set, entry.code)).collect();
    assert!(codes.windows(2).all(|pair| pair[0] < pair[1]), "ordered, and none twice: {codes:?}");
    let statuses: Vec<_> = status::NAMED.iter().map(|(status, ..)| (status.sct(), status.sc())).collect();
    assert!(statuses.windows(2).all(|pair| pair[0] < pair[1]) && statuses.iter().all(|(sct, _)| *sct == 7));
}

#[test]
fn fields_of_a_layout_stand_apart_aligned_and_inside() {
    for layout in LAYOUTS {
        let mut fields: Vec<_> = layout.fields.iter().collect();
        fields.sort_by_key(|field| field.offset);
        assert!(fields.windows(2).all(|pair| pair[0].offset + pair[0].bytes <= pair[1].offset), "{}", layout.name);
        assert!(fields.last().is_some_and(|last| last.offset + last.bytes <= layout.bytes), "{}", layout.name);
        for field in fields {
            // A host reads these with single loads: the specification of consistency needs natural alignment.
            let align = match field.kind {
                "u16" => 2,
                "u32" => 4,
                "u64" => 8,
                _ => 1,
            };
            assert_eq!(field.offset % align, 0, "{}.{}", layout.name, field.name);
        }
    }
    assert_eq!(ControlPage::STATUS_OFFSET, offset(&ControlPage::LAYOUT, "status"));
    assert_eq!(ControlPage::EPOCH_OFFSET, offset(&ControlPage::LAYOUT, "epoch"));
    assert_eq!(ControlPage::SEQUENCE_OFFSET, offset(&ControlPage::LAYOUT, "sequence"));
    assert_eq!(ControlPage::lane_offset(0), offset(&ControlPage::LAYOUT, "lane"));
    assert_eq!(LanePage::FLOOR_OFFSET, offset(&LanePage::LAYOUT, "floor"));
    assert_eq!(LanePage::TAIL_OFFSET, offset(&LanePage::LAYOUT, "tail"));
    assert_eq!(offset(&LaneRecord::LAYOUT, "credit"), 0);
    assert_eq!(RingPage::OPEN_OFFSET, offset(&RingPage::LAYOUT, "open"));
    assert_eq!(RingPage::BROKEN_OFFSET, offset(&RingPage::LAYOUT, "broken"));
    assert_eq!(RingPage::lane_offset(0), offset(&RingPage::LAYOUT, "lane"));
    assert_eq!(RingLane::GENERATION_OFFSET, offset(&RingLane::LAYOUT, "generation"));
    assert_eq!(RingLane::TAKEN_OFFSET, offset(&RingLane::LAYOUT, "taken"));
    assert_eq!(RingLane::SYNCED_OFFSET, offset(&RingLane::LAYOUT, "synced"));
    assert_eq!(RingLane::START_OFFSET, offset(&RingLane::LAYOUT, "start"));
    assert_eq!(RingLanePage::TAIL_OFFSET, LanePage::TAIL_OFFSET);
    assert_eq!(RingLanePage::TAIL_OFFSET, offset(&RingLanePage::LAYOUT, "tail"));
    assert_eq!(RingLanePage::GENERATION_OFFSET, offset(&RingLanePage::LAYOUT, "generation"));
    assert_eq!(RingLanePage::RESERVE_OFFSET, offset(&RingLanePage::LAYOUT, "reserve"));
    assert_eq!(RingLanePage::WANTED_OFFSET, offset(&RingLanePage::LAYOUT, "wanted"));
    assert_eq!(RingLanePage::SAVER_OFFSET, offset(&RingLanePage::LAYOUT, "saver"));
    assert_eq!(RingLanePage::SAVED_OFFSET, offset(&RingLanePage::LAYOUT, "saved"));
    assert_eq!(RingLanePage::WAITING_OFFSET, offset(&RingLanePage::LAYOUT, "waiting"));
    assert_eq!(RingLanePage::UNSAVED_OFFSET, offset(&RingLanePage::LAYOUT, "unsaved"));
    assert_eq!(RingLanePage::SLOTS_OFFSET, offset(&RingLanePage::LAYOUT, "slot"));
}

fn offset(layout: &Layout, name: &str) -> usize {
    layout.fields.iter().find(|field| field.name == name).unwrap().offset
}

fn command_of(set: Set, sqe: &Sqe) -> Result<u64, Status> {
    match set {
        Set::Admin => AdminCommand::parse(sqe).map(|command| command.data_bytes() as u64),
        _ => match IoCommand::parse(sqe) {
            Err(Status::INVALID_OPCODE) => WindowCommand::parse(sqe).map(|command| command.data_bytes()),
            other => other.map(|command| command.data_bytes()),
        },
    }
}

#[test]
fn every_opcode_of_the_registry_is_parsed_and_no_other() {
    for set in [Set::Admin, Set::Io] {
        for code in 0..=255u8 {
            let entry = REGISTRY.iter().find(|entry| entry.set == set && entry.code == code);
            // Lane 0, 64 bytes: valid for all but for the number of double words.
            let sqe = Sqe::default().with_dword(0, u32::from(code)).with_dword(13, 64);
            let accepted =
                (0..2048).filter_map(|ndt| command_of(set, &sqe.with_dword(10, ndt)).ok()).collect::<Vec<_>>();
            match entry {
                None => assert_eq!(command_of(set, &sqe), Err(Status::INVALID_OPCODE), "{code:02X}h"),
                Some(entry) => {
                    assert_eq!(accepted.len(), 1, "{}: just one number of double words is right", entry.name);
                    assert_eq!(accepted[0] == 0, entry.direction == Direction::None, "{}", entry.name);
                    if let Some(data) = entry.data {
                        let head = if code == opcode::READ_LOG { 64 } else { 0 };
                        assert_eq!(accepted[0], data.bytes as u64 + head, "{}", entry.name);
                    }
                }
            }
        }
    }
}

#[test]
fn fused_commands_and_sgls_are_refused() {
    let sqe = IoCommand::WaitCredit { lane: 3, offset: 9, timeout_ns: 5 }.emit(1);
    for flags in [1 << 8, 1 << 14] {
        let flagged = sqe.with_dword(0, sqe.dwords()[0] | flags);
        assert_eq!(IoCommand::parse(&flagged), Err(Status::INVALID_FIELD));
    }
}

#[test]
fn a_log_read_may_not_pass_32_bits_of_bytes() {
    let sqe = IoCommand::ReadLog { lane: 0, offset: 0, bytes: u32::MAX, wait_ns: 0 }.emit(1);
    assert_eq!(IoCommand::parse(&sqe), Err(Status::INVALID_FIELD));
}

#[test]
fn an_append_is_laid_out_as_the_reference_says() {
    let sqe = IoCommand::Append { lane: 7, epoch: Epoch::new(2, 3), offset: 0x0102_0304_0506, bytes: 65 }.emit(0xBEEF);
    let mut dwords = [0; 16];
    dwords[0] = 0xBEEF_0081;
    dwords[2] = 0x203;
    dwords[10] = 17;
    dwords[12] = 7;
    dwords[13] = 65;
    dwords[14] = 0x0304_0506;
    dwords[15] = 0x0102;
    assert_eq!(sqe.dwords(), &dwords);
}

#[test]
fn errors_name_the_layout_the_field_and_what_it_must_be() {
    let good = FastSetup { lanes: 1, ring_bytes: 131_072, queue_bytes: 32_768, lba_count: 64, ..Default::default() };
    let bytes = good.to_bytes();
    assert_eq!(FastSetup::parse(&bytes), Ok(good));
    let short = FastSetup::parse(&bytes[..63]).unwrap_err();
    assert_eq!(short.to_string(), "FastSetup needs 64 bytes, but 63 are there");
    let said = |change: fn(&mut FastSetup)| {
        let mut bad = good;
        change(&mut bad);
        FastSetup::parse(&bad.to_bytes()).unwrap_err().to_string()
    };
    assert_eq!(said(|it| it.lanes = 17), "FastSetup: lanes must be 1 to 16");
    assert_eq!(said(|it| it.ring_bytes = 4097), "FastSetup: ring_bytes must be a multiple of 4096, at least 4096");
    assert_eq!(said(|it| it.queue_bytes = 131_073), "FastSetup: queue_bytes must be 1 to ring_bytes");
    assert!(said(|it| it.lba_first = u64::MAX).contains("lba_count"));
    let mut other = bytes;
    other[0] = 2;
    assert_eq!(
        FastSetup::parse(&other).unwrap_err().to_string(),
        "FastSetup: version is 0x2 instead of 0x1: these bytes are something else, or of another version"
    );
    let mut code = bytes;
    code[4] = 3;
    assert_eq!(FastSetup::parse(&code).unwrap_err().to_string(), "FastSetup: priority must be one of its codes");
}

#[test]
fn a_group_that_contradicts_itself_is_refused() {
    let good = TransportSetup {
        role: Role::Primary,
        node: 1,
        mode: Mode::Quorum(2),
        peers: NodeList::new(&[2, 3]).unwrap(),
        report_period_ns: 400,
        stall_timeout_ns: 1_000_000,
        ..Default::default()
    };
    assert_eq!(TransportSetup::parse(&good.to_bytes()), Ok(good));
    let field = |bad: TransportSetup| match TransportSetup::parse(&bad.to_bytes()) {
        Err(LayoutError::Field { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(field(TransportSetup { node: 3, ..good }), "peers");
    assert_eq!(field(TransportSetup { role: Role::StandAlone, ..good }), "peers");
    assert_eq!(field(TransportSetup { mode: Mode::Quorum(4), ..good }), "mode");
    assert_eq!(field(TransportSetup { report_period_ns: 0, ..good }), "report_period_ns");
    assert_eq!(NodeList::new(&[1, 2, 1]), None);
    assert_eq!(NodeList::new(&(0..16).collect::<Vec<_>>()), None);
    assert_eq!(NodeList::new(&(0..15).collect::<Vec<_>>()).unwrap().as_slice().len(), 15);

    let promote = Promote { epoch: Epoch::new(4, 1), ..Default::default() };
    assert_eq!(Promote::parse(&promote.to_bytes()), Ok(promote));
    assert!(Promote::parse(&Promote { epoch: Epoch::new(0, 1), ..promote }.to_bytes()).is_err());

    let mut attach = AttachPeers { count: 2, ..Default::default() };
    assert!(AttachPeers::parse(&attach.to_bytes()).is_err(), "one node twice");
    attach.peer[1].node = 5;
    assert_eq!(AttachPeers::parse(&attach.to_bytes()), Ok(attach));
    assert!(AttachPeers::parse(&AttachPeers { count: 16, ..attach }.to_bytes()).is_err());
}

#[test]
fn epochs_order_by_counter_and_no_two_nodes_make_the_same() {
    let epoch = Epoch::new(3, 9);
    assert_eq!((epoch.counter(), epoch.node(), epoch.to_string().as_str()), (3, 9, "3.9"));
    assert!(epoch.next(0).unwrap() > epoch && epoch.next(0) != epoch.next(1));
    assert_eq!(Epoch(u64::MAX).next(0), None);
}

#[test]
fn the_status_register_tells_its_failures_apart() {
    let status =
        TransportStatus::OK.with(TransportStatus::COUNTER_OVERDUE, true).with(TransportStatus::broken(15), true);
    assert_eq!(status.0, 1 << 2 | 1 << 31);
    assert!(status.is_broken(15) && !status.is_broken(14) && !status.is_broken(16));
    assert_eq!(status.to_string(), "counter update did not come back, lane 15 broken");
    assert_eq!(status.with(TransportStatus::COUNTER_OVERDUE, false).to_string(), "lane 15 broken");
    assert_eq!(TransportStatus::OK.to_string(), "ok");
}

#[test]
fn a_page_gives_its_valid_bytes_only_when_they_are_whole() {
    let data = b"some log";
    let data_checksum = tidewater_base::checksum::crc32c(data);
    let header = PageHeader { lane: 15, offset: (1 << OFFSET_BITS) - 1, valid: 8, data_checksum, ..Default::default() };
    let mut page = header.to_bytes().to_vec();
    page.extend(data);
    page.extend([0xFF; 100]);
    let parsed = PageHeader::parse(&page).unwrap();
    assert_eq!(parsed, header);
    assert_eq!(parsed.valid_bytes(&page), Some(&data[..]));
    assert_eq!(parsed.valid_bytes(&page[..71]), None);
    page[65] ^= 1;
    assert_eq!(parsed.valid_bytes(&page), None);
    assert!(PageHeader::parse(&PageHeader { lane: 16, ..header }.to_bytes()).is_err());
    assert!(PageHeader::parse(&PageHeader { valid: 65_536, ..header }.to_bytes()).is_err());
    assert!(PageHeader::parse(&PageHeader { offset: 1 << OFFSET_BITS, ..header }.to_bytes()).is_err());
}

fn any_sqe() -> impl Strategy<Value = Sqe> {
    // Wholly random entries are nearly all refused: most get an opcode of the registry and fields that are nearly
    // right.
    (any::<[u32; 16]>(), 0..REGISTRY.len(), any::<[bool; 4]>(), 0..80u32).prop_map(
        |(mut dwords, which, tame, bytes)| {
            if tame[0] {
                dwords[0] = dwords[0] & 0xFFFF_3C00 | u32::from(REGISTRY[which].code);
            }
            if tame[1] {
                (dwords[10], dwords[11]) = (bytes.div_ceil(4), 0);
                dwords[13] = bytes;
            }
            if tame[2] {
                dwords[10] = 0;
            }
            if tame[3] {
                dwords[12] &= 0x0102_000F;
                dwords[14] &= !63;
            }
            Sqe::from_dwords(dwords)
        },
    )
}

/// Any 64 bytes after another, as often as needed: `any::<[u8; 4864]>()` would be slow.
fn bytes_of(words: &[u64], bytes: usize) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).cycle().take(bytes).collect()
}

macro_rules! layouts_never_panic_and_come_back {
    ($($test:ident $name:ident;)*) => {
        proptest! {
            $(#[test]
            fn $test(
                words in any::<[u64; 9]>(),
                changes in proptest::collection::vec((any::<u16>(), any::<u8>()), 0..6),
                start in 0..3,
            ) {
                // From noise, from zeroes, and from what is valid: with some bytes changed.
                let mut bytes = match start {
                    0 => bytes_of(&words, $name::SIZE),
                    1 => vec![0; $name::SIZE],
                    _ => $name::default().to_bytes().to_vec(),
                };
                for (at, value) in changes {
                    bytes[usize::from(at) % $name::SIZE] = value;
                }
                if let Ok(parsed) = $name::parse(&bytes) {
                    let again = parsed.to_bytes();
                    prop_assert_eq!($name::parse(&again), Ok(parsed));
                    // All that was said comes back; what is reserved is zero.
                    for field in $name::LAYOUT.fields.iter().filter(|field| field.name != "checksum") {
                        // Parts with reserved bytes of their own are compared by value above.
                        if matches!(field.kind, "u8" | "u16" | "u32" | "u64") {
                            let at = field.offset..field.offset + field.bytes;
                            prop_assert_eq!(&again[at.clone()], &bytes[at]);
                        }
                    }
                }
                for short in [0, 1, $name::SIZE - 1] {
                    let short_error = matches!($name::parse(&bytes[..short]), Err(LayoutError::Short { .. }));
                    prop_assert!(short_error);
                }
            })*
        }

        #[test]
        fn all_layouts_are_in_the_table_and_under_test() {
            let tested = [$(stringify!($name)),*];
            let listed: Vec<_> = LAYOUTS.iter().map(|layout| layout.name).collect();
            assert_eq!(listed, tested);
        }
    };
}

layouts_never_panic_and_come_back! {
    fast_setup_comes_back FastSetup;
    transport_setup_comes_back TransportSetup;
    promote_comes_back Promote;
    attach_peers_comes_back AttachPeers;
    peer_address_comes_back PeerAddress;
    read_log_header_comes_back ReadLogHeader;
    fast_status_comes_back FastStatus;
    lane_status_comes_back LaneStatus;
    bar_layout_comes_back BarLayout;
    lane_place_comes_back LanePlace;
    peers_come_back Peers;
    peer_status_comes_back PeerStatus;
    control_page_comes_back ControlPage;
    lane_record_comes_back LaneRecord;
    lane_page_comes_back LanePage;
    ring_header_comes_back RingHeader;
    ring_page_comes_back RingPage;
    ring_lane_comes_back RingLane;
    ring_lane_page_comes_back RingLanePage;
    ring_slot_comes_back RingSlot;
    ring_copy_header_comes_back RingCopyHeader;
    copy_sector_comes_back CopySector;
    page_header_comes_back PageHeader;
    record_header_comes_back RecordHeader;
    file_changes_come_back FileChange;
    file_deltas_come_back FileDelta;
    file_patches_come_back FilePatch;
    file_binds_come_back FileBind;
    file_sessions_come_back FileSession;
    entry_info_comes_back EntryInfo;
    window_status_comes_back WindowStatus;
    window_log_heads_come_back WindowLogHead;
    dump_table_comes_back DumpTable;
    dump_entry_comes_back DumpEntry;
}

proptest! {
    #[test]
    fn any_64_bytes_are_a_command_or_get_a_status(sqe in any_sqe()) {
        let refused = |status: Status| status == Status::INVALID_OPCODE || status == Status::INVALID_FIELD;
        match AdminCommand::parse(&sqe) {
            Ok(command) => {
                let again = command.emit(sqe.cid());
                prop_assert_eq!((again.opcode(), again.cid()), (sqe.opcode(), sqe.cid()));
                prop_assert_eq!(AdminCommand::parse(&again), Ok(command));
            }
            Err(status) => prop_assert!(refused(status)),
        }
        match IoCommand::parse(&sqe) {
            Ok(command) => {
                let again = command.emit(sqe.cid());
                prop_assert_eq!((again.opcode(), again.cid()), (sqe.opcode(), sqe.cid()));
                prop_assert_eq!(IoCommand::parse(&again), Ok(command));
            }
            Err(status) => prop_assert!(refused(status)),
        }
        match WindowCommand::parse(&sqe) {
            Ok(command) => {
                let again = command.emit(sqe.cid());
                prop_assert_eq!((again.opcode(), again.cid()), (sqe.opcode(), sqe.cid()));
                prop_assert_eq!(WindowCommand::parse(&again), Ok(command));
            }
            Err(status) => prop_assert!(refused(status)),
        }
    }

    #[test]
    fn io_commands_come_back(lane in 0..16u8, offset: u64, bytes in 1..=u32::MAX - 64, carried: u64, cid: u16) {
        let epoch = Epoch(carried);
        for command in [
            IoCommand::Append { lane, epoch, offset, bytes },
            IoCommand::ReadLog { lane, offset, bytes, wait_ns: carried },
            IoCommand::WaitCredit { lane, offset, timeout_ns: carried },
            IoCommand::WriteLanePage { lane, floor: offset },
            IoCommand::ReadControlPage,
            IoCommand::SealRegion { lane, epoch, offset: offset & !63, bytes: bytes.next_multiple_of(64) },
        ] {
            prop_assert_eq!(IoCommand::parse(&command.emit(cid)), Ok(command));
        }
    }

    #[test]
    fn admin_commands_come_back(function: u16, lane in 0..16u8, value: u64, cid: u16) {
        for command in [
            AdminCommand::FastSetup { function },
            AdminCommand::TransportSetup { function },
            AdminCommand::Promote { function },
            AdminCommand::AttachPeers { function },
            AdminCommand::Demote { function, to: Role::Secondary, epoch: Epoch(value) },
            AdminCommand::Demote { function, to: Role::StandAlone, epoch: Epoch(value) },
            AdminCommand::TrimLog { function, to: TrimTo::Page(value) },
            AdminCommand::TrimLog { function, to: TrimTo::Stream { lane, offset: value } },
        ] {
            prop_assert_eq!(AdminCommand::parse(&command.emit(cid)), Ok(command));
        }
    }

    #[test]
    fn stamps_come_back_and_order_by_lane_and_offset(a: u64, b: u64) {
        let (x, y) = (StampVersion::unpack(a), StampVersion::unpack(b));
        prop_assert_eq!(x.pack(), a);
        prop_assert_eq!(x.cmp(&y), a.cmp(&b));
    }

    #[test]
    fn a_damaged_page_header_is_never_taken_for_a_whole_one(
        offset in 0..1u64 << OFFSET_BITS, valid in 1..=0xFFFFu32, bit in 0..64 * 8usize,
    ) {
        let header = PageHeader { offset, valid, lane: 3, page: offset, ..Default::default() };
        let mut bytes = header.to_bytes();
        prop_assert_eq!(PageHeader::parse(&bytes), Ok(header));
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(PageHeader::parse(&bytes).is_err());
    }
}
