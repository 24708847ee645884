//! An NBD connection: whatever a client sends, its commands stay within the namespace that it has chosen, and what it
//! makes the server hold stays within bounds.

use std::collections::VecDeque;
use tidewater_core::subsystem::namespaces::{Geometry, Namespace, Namespaces};
use tidewater_serve::nbd::Connection;
use tidewater_wire::fabrics::DataPointer;
use tidewater_wire::nbd::{OptionHeader, PAYLOAD_MAX, option};
use tidewater_wire::nvme::{Command, DsmRange, Kind, Sqe, Status};

const BLOCK_SHIFT: u8 = 12;
const TRANSFER_MAX: u32 = 128 << 10;
/// Bytes that wait for a client, at most, that takes them at once.
const UNSENT_MAX: usize = 2 * PAYLOAD_MAX as usize;

/// A small namespace.
fn exports() -> Vec<Namespace> {
    let geometry = Geometry { blocks: 1 << 16, block_shift: 9, unit_shift: BLOCK_SHIFT };
    Namespaces::whole(geometry, 1, BLOCK_SHIFT, true).iter().copied().collect()
}

/// Checks a command, and moves its data.
fn carry_out(connection: &mut Connection, sqe: &Sqe, export: &Namespace) {
    let pointer = DataPointer::parse(sqe).expect("it has a pointer of fabrics");
    let command = Command::parse(&sqe.with_dword(0, sqe.dwords()[0] & !(3 << 14))).expect("it is well-formed");
    assert_eq!(command.nsid, export.nsid);
    let within = |first: u64, blocks: u32| first + u64::from(blocks) <= export.blocks;
    assert!(within(command.first_block, command.blocks), "{command:?}");
    let len = pointer.len() as usize;
    match command.kind {
        Kind::Write | Kind::Read => {
            assert_eq!(len, (command.blocks << BLOCK_SHIFT) as usize);
            assert!(len <= TRANSFER_MAX as usize);
        }
        _ => {}
    }
    match command.kind {
        Kind::Write => assert_eq!(connection.fetch(sqe.cid(), len).map(<[u8]>::len), Ok(len)),
        Kind::Read => {
            let filled = connection.data(sqe.cid(), (0, len), |out| {
                out.fill(0x5A);
                Ok(())
            });
            assert_eq!(filled, Ok(()));
        }
        Kind::DatasetManagement { ranges: 1, .. } => {
            let bytes = connection.fetch(sqe.cid(), DsmRange::SIZE).expect("its range is there");
            let range = DsmRange::from_bytes(bytes.first_chunk().expect("16 bytes"));
            assert!(range.blocks > 0 && within(range.first_block, range.blocks));
        }
        Kind::WriteZeroes { .. } | Kind::Flush => {}
        other => panic!("{other:?} is no request of NBD"),
    }
}

/// Bytes of a client, before it has chosen an export or behind that, in pieces of some size. Commands end in order or
/// in the opposite one, well or not.
pub fn nbd(data: &[u8]) {
    let Some((&how, rest)) = data.split_first() else { return };
    let exports = exports();
    let mut connection = Connection::new(TRANSFER_MAX);
    if how & 1 != 0 {
        let header = OptionHeader { option: option::EXPORT_NAME, len: 0 };
        connection.receive(&[&[0, 0, 0, 3][..], &header.to_bytes()].concat(), &exports);
        assert!(connection.export().is_some());
    }
    let piece = if how & 2 != 0 { 7 } else { 1 << 16 };
    let mut pieces = rest.chunks(piece);
    let mut open: VecDeque<Sqe> = VecDeque::new();
    while !connection.is_over() {
        if !connection.is_paused() {
            let Some(piece) = pieces.next() else { return };
            connection.receive(piece, &exports);
        }
        while let Some(sqe) = connection.begin() {
            carry_out(&mut connection, &sqe, &exports[0]);
            open.push_back(sqe);
        }
        while let Some(sqe) = if how & 4 != 0 { open.pop_back() } else { open.pop_front() } {
            let fails = how & 8 != 0 && sqe.cid() % 3 == 0;
            connection.complete(sqe.cid(), if fails { Status::WRITE_FAULT } else { Status::SUCCESS });
            connection.complete(sqe.cid(), Status::INTERNAL_ERROR);
        }
        assert!(connection.unsent() <= UNSENT_MAX, "{} bytes wait", connection.unsent());
        while connection.unsent() > 0 {
            let sent = connection.pieces()[0].len();
            connection.advance(sent);
        }
    }
}
