//! Hosts that break the rules: every field of every PDU and of every Fabrics command at its boundaries and beyond. Each
//! gets the right status, no connection hangs, and hosts beside it notice nothing.

use crate::nvme_tcp::mock::{BLOCK, Served, VENDOR_SILENT, host, options};
use crate::nvme_tcp::raw::{PLAIN, Raw, Reply, connect_command, connect_data};
use std::net::SocketAddr;
use tidewater_driver::nvme_tcp::Transfer;
use tidewater_serve::nvme_tcp::Options;
use tidewater_wire::fabrics::{
    self, CONTROLLER_ANY, ConnectData, DISCOVERY_NQN, DataPointer, Fabrics, PropertySet, property,
};
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::nvme_tcp::{DataPdu, IcReq, Pdu, kind, offset};

const FIELD: u16 = 1;
const SEQUENCE: u16 = 2;
const HEADER_DIGEST: u16 = 3;
const OUT_OF_RANGE: u16 = 4;
const LIMIT: u16 = 5;
const UNSUPPORTED: u16 = 6;

/// Controllers enough for those whose end the target has not seen yet.
pub fn roomy() -> Options {
    Options {
        functions: 4..250,
        connections_max: 900,
        unconnected_max: 300,
        queues_kept: 2,
        controllers_per_host_max: 250,
        controllers_per_address_max: 250,
        ..options()
    }
}

/// Hosts that are hostile, beside one that is not and goes on.
fn beside_a_good_host(cells: impl FnOnce(SocketAddr) -> usize) -> usize {
    let served = Served::start(roomy(), 64);
    let mut controller = served.controller(&host());
    let mut queue = controller.queue(1, 8).unwrap();
    let data = vec![0x5A; 4 * BLOCK];
    queue.call(Sqe::write(0, 60, 3), Transfer::Out(data.clone())).unwrap().good().unwrap();
    let cells = cells(served.address);
    let read = queue.call(Sqe::read(0, 60, 3), Transfer::In(4 * BLOCK as u32)).unwrap().good().unwrap();
    assert!(read.data == data);
    controller.keep_alive().unwrap();
    let (statistics, _) = served.stop();
    assert!(statistics.controllers >= 1 && statistics.refused == 0, "{statistics:?}");
    println!("{cells} cells, {} fatal errors", statistics.fatal);
    cells
}

/// A read of one block that works: the connection is as it was.
pub fn still_works(raw: &mut Raw) {
    let sqe = DataPointer::Transport { len: BLOCK as u32 }.put(Sqe::read(0x4444, 0, 0));
    raw.send(&Pdu::CapsuleCmd(sqe), &[]);
    loop {
        match raw.receive() {
            Reply::Pdu(Pdu::C2hData(data), _) if data.cid == 0x4444 && data.success => return,
            Reply::Pdu(Pdu::C2hData(data), _) => assert_eq!(data.cid, 0x4444),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn icreq_field_by_field() {
    let cells = beside_a_good_host(|address| {
        let mut cells = 0;
        let mut good = Vec::new();
        Pdu::IcReq(PLAIN).append(&Default::default(), &[], &mut good);
        let mut try_ = |change: &dyn Fn(&mut Vec<u8>), wrong: Option<(u16, u32)>| {
            let mut bytes = good.clone();
            change(&mut bytes);
            let mut raw = Raw::open(address);
            raw.send_bytes(&bytes);
            match wrong {
                Some(wrong) => assert_eq!(raw.fatal(&bytes), wrong, "{:?}", &bytes[..16]),
                None => assert!(matches!(raw.receive(), Reply::Pdu(Pdu::IcResp(_), _)), "{:?}", &bytes[..16]),
            }
            cells += 1;
        };
        for value in 0..=255_u8 {
            let wrong = match value {
                kind::IC_REQ => None,
                kind::H2C_TERM_REQ | kind::CAPSULE_CMD | kind::H2C_DATA => Some((FIELD, offset::HLEN)),
                _ => Some((FIELD, offset::KIND)),
            };
            try_(&|bytes| bytes[0] = value, wrong);
            // Reserved flags and PDO mean nothing here.
            try_(&|bytes| (bytes[1], bytes[3]) = (value, value), None);
            try_(&|bytes| bytes[2] = value, (value != 128).then_some((FIELD, offset::HLEN)));
            let pfv = (value != 0).then_some((UNSUPPORTED, offset::PFV));
            try_(&|bytes| bytes[8] = value, pfv);
            try_(&|bytes| bytes[9] = value, pfv);
            try_(&|bytes| bytes[10] = value, (value > 31).then_some((FIELD, offset::PDA)));
            // What is reserved of DGST is ignored; MAXR2T may be anything.
            try_(&|bytes| bytes[11] = value, None);
            try_(&|bytes| bytes[12..16].fill(value), None);
            try_(&|bytes| bytes[16..].fill(value), None);
        }
        for plen in [0, 1, 7, 8, 127, 129, 255, 256, 1 << 16, 1 << 31, u32::MAX] {
            try_(&|bytes| bytes[4..8].copy_from_slice(&plen.to_le_bytes()), Some((FIELD, offset::PLEN)));
        }
        cells
    });
    assert_eq!(cells, 9 * 256 + 11);
}

#[test]
fn nothing_goes_before_icreq_and_no_second_one_comes() {
    beside_a_good_host(|address| {
        let mut cells = 0;
        let data = DataPdu { cid: 0, tag: 0, offset: 0, len: 4, last: true, success: false };
        for (pdu, data) in [(Pdu::CapsuleCmd(connect_command(0)), vec![]), (Pdu::H2cData(data), vec![1; 4])] {
            let mut raw = Raw::open(address);
            let bytes = raw.bytes(&pdu, &data);
            raw.send_bytes(&bytes);
            assert_eq!(raw.fatal(&bytes), (SEQUENCE, 0));
            cells += 1;
        }
        for queue in [false, true] {
            let (_admin, mut raw) =
                if queue { Raw::queue(address, PLAIN) } else { (Raw::open(address), Raw::initialized(address, PLAIN)) };
            let bytes = raw.bytes(&Pdu::IcReq(PLAIN), &[]);
            raw.send_bytes(&bytes);
            assert_eq!(raw.fatal(&bytes), (SEQUENCE, 0));
            cells += 1;
        }
        // A host may end a connection at any time; it is closed without a word.
        for stage in 0..3 {
            let (_admin, mut raw) = match stage {
                0 => (Raw::open(address), Raw::open(address)),
                1 => (Raw::open(address), Raw::initialized(address, PLAIN)),
                _ => Raw::queue(address, PLAIN),
            };
            for status in [0, 1, 6, 7, u16::MAX] {
                let term = tidewater_wire::nvme_tcp::TermReq { status, information: u32::MAX };
                raw.send(&Pdu::H2cTermReq(term), &[0xAA; 100]);
                cells += 1;
            }
            assert_eq!(raw.receive(), Reply::End);
        }
        cells
    });
}

#[test]
fn command_capsules_field_by_field() {
    let cells = beside_a_good_host(|address| {
        let mut cells = 0;
        // A write of 512 bytes that the mock would refuse for its length, were it to come so far.
        let sqe = DataPointer::Capsule { offset: 0, len: 512 }.put(Sqe::write(0x1234, 1, 0));
        let mut good = Vec::new();
        Pdu::CapsuleCmd(sqe).append(&Default::default(), &[0xEE; 512], &mut good);
        let mut try_ = |change: &dyn Fn(&mut Vec<u8>), wrong: Option<(u16, u32)>| {
            let mut bytes = good.clone();
            change(&mut bytes);
            let (_admin, mut raw) = Raw::queue(address, PLAIN);
            raw.send_bytes(&bytes);
            match wrong {
                Some(wrong) => assert_eq!(raw.fatal(&bytes), wrong, "{:?}", &bytes[..8]),
                None => {
                    assert_eq!(raw.response().cid, 0x1234);
                    still_works(&mut raw);
                }
            }
            cells += 1;
        };
        for value in 0..=255_u8 {
            let wrong = match value {
                kind::CAPSULE_CMD => None,
                kind::IC_REQ | kind::H2C_TERM_REQ | kind::H2C_DATA => Some((FIELD, offset::HLEN)),
                _ => Some((FIELD, offset::KIND)),
            };
            try_(&|bytes| bytes[0] = value, wrong);
            // Digests were not agreed on; the other flags are reserved here.
            try_(&|bytes| bytes[1] = value, (value & 3 != 0).then_some((FIELD, offset::FLAGS)));
            try_(&|bytes| bytes[2] = value, (value != 72).then_some((FIELD, offset::HLEN)));
            let bad_pdo = value < 72 || value % 4 != 0;
            let grow = |bytes: &mut Vec<u8>| {
                if !bad_pdo {
                    let padding = usize::from(value) - 72;
                    bytes.splice(72..72, vec![0xDD; padding]);
                    let plen = bytes.len() as u32;
                    bytes[4..8].copy_from_slice(&plen.to_le_bytes());
                }
                bytes[3] = value;
            };
            try_(&grow, bad_pdo.then_some((FIELD, offset::PDO)));
        }
        for plen in [0, 1, 8, 71, 72 + 8_193, 1 << 16, 1 << 20, 1 << 31, u32::MAX] {
            try_(&|bytes| bytes[4..8].copy_from_slice(&u32::to_le_bytes(plen)), Some((FIELD, offset::PLEN)));
        }
        cells
    });
    assert_eq!(cells, 4 * 256 + 9);
}

#[test]
fn data_pointers_get_their_status() {
    let cells = beside_a_good_host(|address| {
        let mut cells = 0;
        let (_admin, mut raw) = Raw::queue(address, PLAIN);
        let mut try_ = |sqe: Sqe, data: &[u8], status: Status| {
            raw.send(&Pdu::CapsuleCmd(sqe), data);
            let response = raw.response();
            assert_eq!((response.status, response.cid), (status, sqe.cid()), "{sqe:?}");
            still_works(&mut raw);
            cells += 1;
        };
        let write = Sqe::write(0xABCD, 1, 0);
        let block = vec![3; BLOCK];
        for identifier in 0..=255_u32 {
            let sqe = DataPointer::Capsule { offset: 0, len: BLOCK as u32 }.put(write).with_dword(9, identifier << 24);
            let status = match identifier {
                0x01 => Status::SUCCESS,
                _ => Status::SGL_TYPE_INVALID,
            };
            try_(sqe, &block, status);
        }
        for psdt in [0, 3] {
            let sqe = DataPointer::Capsule { offset: 0, len: BLOCK as u32 }.put(write);
            let sqe = sqe.with_dword(0, sqe.dwords()[0] & !(3 << 14) | psdt << 14);
            try_(sqe, &block, Status::INVALID_FIELD);
        }
        let edges = [0, 1, 4, 511, 4_095, 4_096, 4_097, 8_192, 1 << 31, u32::MAX];
        for len in edges {
            for at in edges.iter().map(|&at| u64::from(at)).chain([u64::MAX, u64::MAX - 4_095, 1 << 32]) {
                let status = match at.checked_add(u64::from(len)) {
                    Some(4_096) if at == 0 => Status::SUCCESS,
                    Some(0..=4_096) => Status::DATA_SGL_LENGTH_INVALID,
                    _ => Status::SGL_OFFSET_INVALID,
                };
                try_(DataPointer::Capsule { offset: at, len }.put(write), &block, status);
            }
            // More than any command may move.
            let status = if len > 4 << 20 { Status::DATA_SGL_LENGTH_INVALID } else { continue };
            try_(DataPointer::Transport { len }.put(write), &[], status);
        }
        try_(DataPointer::Transport { len: 4_096 }.put(write), &block, Status::SGL_TYPE_INVALID);
        // No data where some is needed, and data of a read in the capsule.
        try_(DataPointer::Transport { len: 0 }.put(write), &[], Status::DATA_TRANSFER_ERROR);
        try_(
            DataPointer::Capsule { offset: 0, len: 4_096 }.put(Sqe::read(1, 1, 0)),
            &block,
            Status::DATA_TRANSFER_ERROR,
        );
        cells
    });
    assert!(cells > 256 + 130, "{cells}");
}

#[test]
fn transfers_field_by_field() {
    const LEN: u32 = 16 * BLOCK as u32;
    let cells = beside_a_good_host(|address| {
        let mut cells = 0;
        let mut try_ = |change: &dyn Fn(&mut DataPdu), edit: &dyn Fn(&mut Vec<u8>), wrong: Option<(u16, u32)>| {
            let (_admin, mut raw) = Raw::queue(address, PLAIN);
            raw.send(&Pdu::CapsuleCmd(DataPointer::Transport { len: LEN }.put(Sqe::write(0x1234, 1, 15))), &[]);
            let Reply::Pdu(Pdu::R2t(r2t), _) = raw.receive() else { panic!("no R2T") };
            assert_eq!((r2t.cid, r2t.offset, r2t.len), (0x1234, 0, LEN));
            let mut pdu = DataPdu { cid: r2t.cid, tag: r2t.tag, offset: 0, len: LEN, last: true, success: false };
            change(&mut pdu);
            let mut bytes = raw.bytes(&Pdu::H2cData(pdu), &vec![7; pdu.len as usize]);
            edit(&mut bytes);
            raw.send_bytes(&bytes);
            match wrong {
                Some(wrong) => assert_eq!(raw.fatal(&bytes), wrong, "{pdu:?}, {:?}", &bytes[..24]),
                None => {
                    assert_eq!(raw.response().status, Status::SUCCESS);
                    still_works(&mut raw);
                }
            }
            cells += 1;
        };
        let same = |_: &mut Vec<u8>| ();
        try_(&|_| (), &same, None);
        for bit in 0..16 {
            try_(&|pdu| pdu.cid ^= 1 << bit, &same, Some((FIELD, offset::CCCID)));
            try_(&|pdu| pdu.tag ^= 1 << bit, &same, Some((FIELD, offset::TTAG)));
        }
        for at in [1, 4, 4_096, LEN - 1, LEN, LEN + 1, 1 << 31] {
            try_(&|pdu| pdu.offset = at, &same, Some((OUT_OF_RANGE, 0)));
        }
        for at in [u32::MAX - LEN + 1, u32::MAX] {
            // The range ends beyond 32 bits.
            let edit = |bytes: &mut Vec<u8>| bytes[12..16].copy_from_slice(&at.to_le_bytes());
            try_(&|_| (), &edit, Some((OUT_OF_RANGE, 0)));
        }
        for len in [LEN + 1, LEN + 4_096, 128 << 10] {
            try_(&|pdu| pdu.len = len, &same, Some((OUT_OF_RANGE, 0)));
        }
        for len in [(128 << 10) + 1, 256 << 10] {
            try_(&|pdu| pdu.len = len, &same, Some((LIMIT, 0)));
        }
        for len in [0, 1, LEN - 1, LEN + 1, u32::MAX] {
            // DATAL and PLEN contradict each other.
            let edit = |bytes: &mut Vec<u8>| bytes[16..20].copy_from_slice(&len.to_le_bytes());
            try_(&|_| (), &edit, Some((FIELD, offset::LENGTH)));
        }
        // LAST belongs to the last.
        try_(&|pdu| pdu.last = false, &same, Some((FIELD, offset::FLAGS)));
        try_(&|pdu| pdu.len -= 4_096, &same, Some((FIELD, offset::FLAGS)));
        for value in 0..=255_u8 {
            let hlen = (value != 24).then_some((FIELD, offset::HLEN));
            try_(&|_| (), &|bytes| bytes[2] = value, hlen);
            let flags = (value & 3 != 0 || value & 4 == 0).then_some((FIELD, offset::FLAGS));
            try_(&|_| (), &|bytes| bytes[1] = value, flags);
        }
        for plen in [0, 8, 23, 24] {
            let edit = |bytes: &mut Vec<u8>| bytes[4..8].copy_from_slice(&u32::to_le_bytes(plen));
            try_(&|_| (), &edit, Some((FIELD, offset::PLEN)));
        }
        cells
    });
    assert!(cells > 2 * 256 + 55, "{cells}");
}

#[test]
fn data_without_a_request_for_it_ends_the_connection() {
    beside_a_good_host(|address| {
        let data = DataPdu { cid: 0x1234, tag: 0, offset: 0, len: 4_096, last: true, success: false };
        // No command; one whose data came along; one that has ended; and one whose data has all come.
        for case in 0..4 {
            let (_admin, mut raw) = Raw::queue(address, PLAIN);
            let silent = Sqe::flush(0x1234).with_dword(0, 0x1234 << 16 | u32::from(VENDOR_SILENT));
            let write = DataPointer::Transport { len: 4_096 }.put(Sqe::write(0x1234, 0, 0));
            match case {
                0 => {}
                1 => raw.send(&Pdu::CapsuleCmd(DataPointer::Transport { len: 0 }.put(silent)), &[]),
                2 => still_works(&mut raw),
                _ => {
                    raw.send(&Pdu::CapsuleCmd(write), &[]);
                    let Reply::Pdu(Pdu::R2t(r2t), _) = raw.receive() else { panic!("no R2T") };
                    raw.send(&Pdu::H2cData(DataPdu { tag: r2t.tag, ..data }), &[1; 4_096]);
                    assert_eq!(raw.response().status, Status::SUCCESS);
                }
            }
            let bytes = raw.bytes(&Pdu::H2cData(data), &[1; 4_096]);
            raw.send_bytes(&bytes);
            assert_eq!(raw.fatal(&bytes), (FIELD, offset::TTAG), "{case}");
        }
        4
    });
}

#[test]
fn wrong_digests_are_noticed() {
    let digests = IcReq { header_digest: true, data_digest: true, ..PLAIN };
    beside_a_good_host(|address| {
        let mut cells = 0;
        let write = DataPointer::Capsule { offset: 0, len: BLOCK as u32 }.put(Sqe::write(0x1234, 1, 0));
        for at in (8..76).step_by(5) {
            let (_admin, mut raw) = Raw::queue(address, digests);
            let mut bytes = raw.bytes(&Pdu::CapsuleCmd(write), &[3; BLOCK]);
            bytes[at] ^= 0x20;
            let came = u32::from_le_bytes(*bytes[72..].first_chunk().unwrap());
            raw.send_bytes(&bytes);
            assert_eq!(raw.fatal(&bytes), (HEADER_DIGEST, came), "byte {at}");
            cells += 1;
        }
        // Wrong data is the command's own misfortune: the connection goes on.
        let (_admin, mut raw) = Raw::queue(address, digests);
        for at in [76, 77, 4_000, 76 + BLOCK - 1, 76 + BLOCK, 76 + BLOCK + 3] {
            let mut bytes = raw.bytes(&Pdu::CapsuleCmd(write), &[3; BLOCK]);
            bytes[at] ^= 0x20;
            raw.send_bytes(&bytes);
            assert_eq!(raw.response().status, Status::TRANSIENT_TRANSPORT_ERROR, "byte {at}");
            still_works(&mut raw);
            cells += 1;
        }
        for (first, second) in [(true, false), (false, true), (true, true)] {
            let len = 2 * BLOCK as u32;
            raw.send(&Pdu::CapsuleCmd(DataPointer::Transport { len }.put(Sqe::write(0x1234, 1, 1))), &[]);
            let Reply::Pdu(Pdu::R2t(r2t), _) = raw.receive() else { panic!("no R2T") };
            for (at, wrong) in [(0, first), (BLOCK as u32, second)] {
                let pdu =
                    DataPdu { cid: r2t.cid, tag: r2t.tag, offset: at, len: BLOCK as u32, last: at > 0, success: false };
                let mut bytes = raw.bytes(&Pdu::H2cData(pdu), &[9; BLOCK]);
                if wrong {
                    bytes[100] ^= 1;
                }
                raw.send_bytes(&bytes);
            }
            assert_eq!(raw.response().status, Status::TRANSIENT_TRANSPORT_ERROR);
            still_works(&mut raw);
            cells += 1;
        }
        cells
    });
}

#[test]
fn connect_field_by_field() {
    let cells = beside_a_good_host(|address| {
        let mut cells = 0;
        let mut try_ = |sqe: Sqe, data: &[u8], want: (Status, u64)| {
            let mut raw = Raw::initialized(address, PLAIN);
            raw.send(&Pdu::CapsuleCmd(sqe), data);
            let response = raw.response();
            let value = if want.0.is_success() { want.1 } else { response.value };
            assert_eq!((response.status, value), want, "{sqe:?}");
            // Another try on the same connection is allowed.
            if !want.0.is_success() {
                raw.send(&Pdu::CapsuleCmd(connect_command(0)), &connect_data(CONTROLLER_ANY).to_bytes());
                assert_eq!(raw.response().status, Status::SUCCESS);
            }
            cells += 1;
        };
        let sqe = connect_command(0);
        let data = connect_data(CONTROLLER_ANY).to_bytes();
        let invalid = |at: u64, in_data: u64| (fabrics::status::INVALID_PARAMETERS, at | in_data << 16);
        // Record format, queue entries; flags and the timer may be anything.
        for bit in 0..16 {
            try_(sqe.with_dword(10, 1 << bit), &data, (fabrics::status::INCOMPATIBLE_FORMAT, 0));
        }
        for entries in [1, 2, 1_023] {
            try_(sqe.with_dword(11, entries), &data, (Status::SUCCESS, 0));
        }
        for entries in [0, 1_024, 4_095, 0x7FFF, 0x8000, 0xFFFF] {
            try_(sqe.with_dword(11, entries), &data, invalid(44, 0));
        }
        for attributes in 0..=255_u32 {
            try_(sqe.with_dword(11, 15 | attributes << 16), &data, (Status::SUCCESS, 0));
        }
        // Queues of a controller that is not there, and static controllers.
        for id in [0, 1, 4, 100, 0xEFFF, 0xF000, 0xFFEF, 0xFFF0, 0xFFFE] {
            try_(sqe, &connect_data(id).to_bytes(), invalid(16, 1));
            for queue in [1_u32, 64, 65, 0xFFFF] {
                try_(sqe.with_dword(10, queue << 16), &connect_data(id).to_bytes(), invalid(16, 1));
            }
        }
        try_(sqe.with_dword(10, 1 << 16), &data, invalid(16, 1));
        // Names: every byte of them, and what is none.
        for (at, len) in [(256, connect_data(0).subsystem.as_str().len()), (512, 0)] {
            for byte in 0..len {
                let mut data = data;
                data[at + byte] ^= 1;
                try_(sqe, &data, invalid(at as u64, 1));
            }
            for bad in [&[][..], &[b'x'; 256], &[0xFF; 4], b"nqn"] {
                let mut data = data;
                data[at..at + 256].fill(0);
                data[at..at + bad.len()].copy_from_slice(bad);
                // A host may have no name where all may come.
                let is_nameless = at == 512 && bad.is_empty();
                try_(sqe, &data, if is_nameless { (Status::SUCCESS, 0) } else { invalid(at as u64, 1) });
            }
        }
        let mut discovery = connect_data(CONTROLLER_ANY);
        discovery.subsystem = tidewater_wire::fabrics::Nqn::new(DISCOVERY_NQN).unwrap();
        try_(sqe.with_dword(11, 128), &discovery.to_bytes(), invalid(44, 0));
        try_(sqe.with_dword(10, 1 << 16), &discovery.to_bytes(), invalid(42, 0));
        // Its data: too short, too long, or not there.
        for len in [0, 1, 1_023, 1_025, 8_192] {
            let sqe = DataPointer::Capsule { offset: 0, len }.put(sqe);
            try_(sqe, &vec![0; len as usize], (Status::DATA_SGL_LENGTH_INVALID, 0));
            let sqe = DataPointer::Transport { len }.put(sqe);
            try_(sqe, &[], (Status::DATA_SGL_LENGTH_INVALID, 0));
        }
        // Other commands come after Connect.
        for opcode in 0..=255_u32 {
            let status =
                if opcode == u32::from(fabrics::OPCODE) { Status::SUCCESS } else { Status::COMMAND_SEQUENCE_ERROR };
            let sqe = sqe.with_dword(0, sqe.dwords()[0] & !0xFF | opcode);
            try_(sqe, &data, (status, 0));
        }
        for kind in 0..=255_u8 {
            let status = match kind {
                fabrics::kind::CONNECT => Status::SUCCESS,
                0 | 4 | 5 | 6 | 8 => Status::COMMAND_SEQUENCE_ERROR,
                _ => Status::INVALID_OPCODE,
            };
            try_(sqe.with_dword(1, kind.into()), &data, (status, 0));
        }
        cells
    });
    assert!(cells > 3 * 256 + 100, "{cells}");
}

#[test]
fn connect_takes_its_data_by_r2t_too() {
    let served = Served::start(options(), 1);
    for digest in [false, true] {
        let ask = IcReq { data_digest: digest, ..PLAIN };
        let mut raw = Raw::initialized(served.address, ask);
        let sqe = DataPointer::Transport { len: ConnectData::SIZE as u32 }.put(connect_command(0));
        for wrong in [true, false] {
            raw.send(&Pdu::CapsuleCmd(sqe), &[]);
            let Reply::Pdu(Pdu::R2t(r2t), _) = raw.receive() else { panic!("no R2T") };
            let pdu = DataPdu { cid: r2t.cid, tag: r2t.tag, offset: 0, len: r2t.len, last: true, success: false };
            let mut bytes = raw.bytes(&Pdu::H2cData(pdu), &connect_data(CONTROLLER_ANY).to_bytes());
            let status = if wrong && digest {
                bytes[1_000] ^= 1;
                Status::TRANSIENT_TRANSPORT_ERROR
            } else {
                Status::SUCCESS
            };
            raw.send_bytes(&bytes);
            assert_eq!(raw.response().status, status);
            if status.is_success() {
                break;
            }
        }
    }
}

#[test]
fn an_io_queue_is_of_its_host_and_its_controller() {
    let served = Served::start(roomy(), 1);
    let (_admin, id) = Raw::admin(served.address, PLAIN);
    let connect = |sqe: Sqe, data: &ConnectData| {
        let mut raw = Raw::initialized(served.address, PLAIN);
        raw.send(&Pdu::CapsuleCmd(sqe), &data.to_bytes());
        let response = raw.response();
        (raw, response.status, response.value)
    };
    let data = connect_data(id);
    let other = ConnectData { host: Some(crate::nvme_tcp::mock::nqn("nqn.2026-01.io.example:other")), ..data.clone() };
    let invalid = fabrics::status::INVALID_PARAMETERS;
    let (_, status, value) = connect(connect_command(1), &other);
    assert_eq!((status, value), (invalid, 1 << 16 | 512), "HOSTNQN");
    let (_, status, value) = connect(connect_command(1), &ConnectData { host_id: [1; 16], ..data.clone() });
    assert_eq!((status, value), (invalid, 1 << 16), "HOSTID");
    for queue in [65, 66, 0x100, 0x7FFF, 0xFFFF] {
        let (_, status, value) = connect(connect_command(queue), &data);
        assert_eq!((status, value), (invalid, 42), "{queue}");
    }
    // CAP.MQES of the mock is 255: 256 entries.
    for (entries, good) in [(255, true), (256, false), (1_023, false), (1_024, false)] {
        let (_, status, value) = connect(connect_command(2 + entries as u16 % 7).with_dword(11, entries), &data);
        assert_eq!(status, if good { Status::SUCCESS } else { invalid });
        assert!(good || value == 44);
    }
    let (mut queue, status, _) = connect(connect_command(1), &data);
    assert_eq!(status, Status::SUCCESS);
    assert_eq!(connect(connect_command(1), &data).1, Status::COMMAND_SEQUENCE_ERROR);
    // What belongs on an admin queue, and Connect once more.
    for (command, status) in [
        (connect_command(1), Status::COMMAND_SEQUENCE_ERROR),
        (Fabrics::PropertyGet(fabrics::PropertyGet { offset: 8, len: 4 }).emit(1), Status::INVALID_FIELD),
        (Fabrics::Authentication.emit(1), Status::INVALID_OPCODE),
        (Fabrics::Disconnect.emit(1).with_dword(10, 1), fabrics::status::INCOMPATIBLE_FORMAT),
        (Fabrics::Disconnect.emit(1), Status::SUCCESS),
    ] {
        queue.send(&Pdu::CapsuleCmd(DataPointer::Transport { len: 0 }.put(command)), &[]);
        assert_eq!(queue.response().status, status, "{command:?}");
    }
    assert_eq!(queue.receive(), Reply::End);
    let (mut admin, _) = Raw::admin(served.address, PLAIN);
    let disconnect = DataPointer::Transport { len: 0 }.put(Fabrics::Disconnect.emit(1));
    admin.send(&Pdu::CapsuleCmd(disconnect), &[]);
    assert_eq!(admin.response().status, fabrics::status::INVALID_QUEUE_TYPE);
}

#[test]
fn more_commands_than_entries_and_two_of_one_identifier() {
    let served = Served::start(options(), 1);
    let (_admin, mut raw) = Raw::queue(served.address, PLAIN);
    let silent = |cid: u16| {
        let sqe = Sqe::flush(cid);
        DataPointer::Transport { len: 0 }.put(sqe.with_dword(0, sqe.dwords()[0] | u32::from(VENDOR_SILENT)))
    };
    raw.send(&Pdu::CapsuleCmd(silent(1)), &[]);
    for _ in 0..3 {
        raw.send(&Pdu::CapsuleCmd(silent(1)), &[]);
        let response = raw.response();
        assert_eq!((response.cid, response.status), (1, Status::COMMAND_ID_CONFLICT));
        still_works(&mut raw);
    }
    // Sixteen entries.
    for cid in 2..=16 {
        raw.send(&Pdu::CapsuleCmd(silent(cid)), &[]);
    }
    let bytes = raw.bytes(&Pdu::CapsuleCmd(silent(17)), &[]);
    raw.send_bytes(&bytes);
    assert_eq!(raw.fatal(&bytes), (SEQUENCE, 0));
}

/// A reset takes the event requests that wait (section 7.3.2 of the base specification), as those of any controller:
/// their identifiers and places are free.
#[test]
fn a_discovery_controller_that_is_reset_forgets_what_waited() {
    let served = Served::start(options(), 1);
    let mut raw = Raw::initialized(served.address, PLAIN);
    let mut data = connect_data(CONTROLLER_ANY);
    data.subsystem = tidewater_wire::fabrics::Nqn::new(DISCOVERY_NQN).unwrap();
    raw.send(&Pdu::CapsuleCmd(connect_command(0)), &data.to_bytes());
    assert_eq!(raw.response().status, Status::SUCCESS);
    let plain = |sqe: Sqe| DataPointer::Transport { len: 0 }.put(sqe);
    let configure = |raw: &mut Raw, value: u64| {
        let set = PropertySet { offset: property::CC, len: 4, value };
        raw.send(&Pdu::CapsuleCmd(plain(Fabrics::PropertySet(set).emit(1))), &[]);
        let response = raw.response();
        assert_eq!((response.cid, response.status), (1, Status::SUCCESS));
    };
    // More often than the queue has entries for the four that wait each time.
    for _ in 0..6 {
        configure(&mut raw, 0x0046_0001);
        for cid in 10..14 {
            let request = Sqe::default().with_dword(0, 0x0C | cid << 16);
            raw.send(&Pdu::CapsuleCmd(plain(request)), &[]);
        }
        configure(&mut raw, 0x0046_0000);
    }
}

/// The host of an admin queue gets the reason for its end, as that of any other connection does.
#[test]
fn an_admin_queue_that_breaks_the_rules_is_told_why_it_ends() {
    beside_a_good_host(|address| {
        for ask in [PLAIN, IcReq { header_digest: true, data_digest: true, ..PLAIN }] {
            let (mut admin, id) = Raw::admin(address, ask);
            let mut queue = Raw::initialized(address, ask);
            queue.send(&Pdu::CapsuleCmd(connect_command(1)), &connect_data(id).to_bytes());
            assert_eq!(queue.response().status, Status::SUCCESS);
            let data = DataPdu { cid: 7, tag: 9, offset: 0, len: 4, last: true, success: false };
            let bytes = admin.bytes(&Pdu::H2cData(data), &[1; 4]);
            admin.send_bytes(&bytes);
            assert_eq!(admin.fatal(&bytes), (FIELD, offset::TTAG));
            assert_eq!(queue.receive(), Reply::End, "its I/O queues end with it");
        }
        2
    });
}
