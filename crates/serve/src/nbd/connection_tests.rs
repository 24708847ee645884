//! A connection against a client's bytes: what is right, and what is not.

use super::Connection;
use super::connection::PLACES;
use proptest::prelude::*;
use tidewater_core::subsystem::namespaces::{Geometry, Namespace, Namespaces};
use tidewater_wire::nbd::{
    OptionHeader, PAYLOAD_MAX, Request, SimpleReply, append_option_reply, command, error, export_flag, greeting,
    option, reply,
};
use tidewater_wire::nvme::{Kind, Sqe, Status};

const TRANSFER: u32 = 64 << 10;
const SIZE: u64 = 64 << 20;
const FUA: u16 = command::FUA;

/// One of blocks of 4 KiB.
fn exports() -> Vec<Namespace> {
    let geometry = Geometry { blocks: SIZE >> 9, block_shift: 9, unit_shift: 12 };
    Namespaces::whole(geometry, 1, 12, true).iter().copied().collect()
}

/// Bytes for the client.
fn said(connection: &mut Connection) -> Vec<u8> {
    let bytes = connection.pieces().iter().flat_map(|piece| piece.to_vec()).collect::<Vec<u8>>();
    connection.advance(bytes.len());
    if connection.unsent() > 0 { [bytes, said(connection)].concat() } else { bytes }
}

/// One that has said its greeting.
fn fresh() -> Connection {
    let mut connection = Connection::new(TRANSFER);
    assert_eq!(said(&mut connection), greeting());
    connection
}

fn option_of(option: u32, data: &[u8]) -> Vec<u8> {
    [&OptionHeader { option, len: data.len() as u32 }.to_bytes()[..], data].concat()
}

fn name_of(name: &str) -> Vec<u8> {
    [&(name.len() as u32).to_be_bytes()[..], name.as_bytes(), &[0, 0]].concat()
}

/// One whose client has chosen the export.
fn attached() -> Connection {
    let mut connection = fresh();
    connection.receive(&[&[0, 0, 0, 3][..], &option_of(option::GO, &name_of("1"))].concat(), &exports());
    said(&mut connection);
    assert_eq!(connection.export(), exports().first());
    connection
}

fn request(kind: u16, flags: u16, offset: u64, len: u32) -> Request {
    Request { flags, kind, cookie: 7, offset, len }
}

/// Ends all commands that can be made, a command for each, and says which they were.
fn carry_out(connection: &mut Connection, status: Status) -> Vec<Kind> {
    let mut kinds = Vec::new();
    while let Some(sqe) = connection.begin() {
        kinds.push(kind_of(&sqe));
        connection.complete(sqe.cid(), status);
    }
    kinds
}

/// Without its data pointer, an entry says what a drive is to do.
fn command_of(sqe: &Sqe) -> tidewater_wire::nvme::Command {
    let plain = sqe.with_dword(0, sqe.dwords()[0] & !(3 << 14));
    tidewater_wire::nvme::Command::parse(&plain).expect("it is well-formed")
}

fn kind_of(sqe: &Sqe) -> Kind {
    command_of(sqe).kind
}

fn reply_of(error: u32) -> [u8; SimpleReply::SIZE] {
    SimpleReply { error, cookie: 7 }.to_bytes()
}

#[test]
fn options_are_answered_one_by_one() {
    let long = "x".repeat(4_097);
    let of = |option: u32, kind: u32, data: &[u8]| {
        let mut out = Vec::new();
        append_option_reply(option, kind, data, &mut out);
        out
    };
    let list = [of(option::LIST, reply::SERVER, b"\x00\x00\x00\x011"), of(option::LIST, reply::ACK, b"")].concat();
    // An option with its data, its answer, whether the connection ends.
    let table: [(u32, Vec<u8>, Vec<u8>, bool); 13] = [
        (option::LIST, vec![], list, false),
        (option::LIST, vec![0], of(option::LIST, reply::INVALID, b""), false),
        (option::ABORT, vec![], of(option::ABORT, reply::ACK, b""), true),
        (option::INFO, name_of("2"), of(option::INFO, reply::UNKNOWN, b""), false),
        (option::GO, name_of("01"), of(option::GO, reply::UNKNOWN, b""), false),
        (option::GO, name_of("1\0"), of(option::GO, reply::UNKNOWN, b""), false),
        (option::GO, vec![], of(option::GO, reply::INVALID, b""), false),
        (option::GO, [name_of("1"), vec![0]].concat(), of(option::GO, reply::INVALID, b""), false),
        (option::GO, name_of(&long), of(option::GO, reply::INVALID, b""), false),
        (option::EXPORT_NAME, b"2".to_vec(), vec![], true),
        // STARTTLS, and STRUCTURED_REPLY.
        (5, vec![], of(5, reply::UNSUPPORTED, b""), false),
        (8, vec![], of(8, reply::UNSUPPORTED, b""), false),
        (u32::MAX, vec![1; 8_192], of(u32::MAX, reply::UNSUPPORTED, b""), false),
    ];
    for (option, data, answer, ends) in table {
        let mut connection = fresh();
        connection.receive(&[0, 0, 0, 3], &exports());
        connection.receive(&option_of(option, &data), &exports());
        assert_eq!((said(&mut connection), connection.is_over()), (answer, ends), "option {option}, {data:?}");
        assert!(ends || connection.export().is_none());
        // It goes on behind it.
        connection.receive(&option_of(option::GO, &name_of("")), &exports());
        assert_eq!(connection.export().is_some(), !ends, "option {option}");
    }
}

#[test]
fn what_is_no_handshake_ends_it() {
    let header = |magic: u64, len: u32| [&magic.to_be_bytes()[..], &[0, 0, 0, 7], &len.to_be_bytes()].concat();
    let ihaveopt = u64::from_be_bytes(*b"IHAVEOPT");
    for wrong in [
        vec![0, 0, 0, 4],
        vec![255; 4],
        [vec![0, 0, 0, 1], header(ihaveopt + 1, 0)].concat(),
        [vec![0, 0, 0, 1], header(ihaveopt, 8_193)].concat(),
        [vec![0, 0, 0, 1], header(ihaveopt, u32::MAX)].concat(),
        b"GET / HTTP/1.1\r\n".to_vec(),
    ] {
        let mut connection = fresh();
        connection.receive(&wrong, &exports());
        assert!(connection.is_over(), "{wrong:?}");
    }
    let mut connection = attached();
    connection.receive(&[0; Request::SIZE], &[]);
    assert!(connection.is_over(), "a request without its magic");
}

#[test]
fn the_old_way_to_choose_has_zeroes_where_the_client_wants_them() {
    for (flags, len) in [(1, 134), (3, 10)] {
        let mut connection = fresh();
        connection.receive(&[0, 0, 0, flags], &exports());
        connection.receive(&option_of(option::EXPORT_NAME, b""), &exports());
        let answer = said(&mut connection);
        assert_eq!((answer.len(), &answer[..8]), (len, &SIZE.to_be_bytes()[..]));
        assert_eq!(u16::from_be_bytes([answer[8], answer[9]]) & export_flag::READ_ONLY, 0);
    }
}

#[test]
fn requests_that_can_not_be_are_refused_and_the_next_is_served() {
    const BLOCK: u32 = 4_096;
    let (read, write, trim, zeroes) = (command::READ, command::WRITE, command::TRIM, command::WRITE_ZEROES);
    let last = SIZE - u64::from(BLOCK);
    let table = [
        (read, 0, 0, 0, error::EINVAL),
        (read, 0, 0, 512, error::EINVAL),
        (read, 0, 512, BLOCK, error::EINVAL),
        (read, 0, last, 2 * BLOCK, error::EINVAL),
        (read, 0, SIZE, BLOCK, error::EINVAL),
        (read, 0, u64::MAX - 4_095, BLOCK, error::EINVAL),
        (read, 0, 0, PAYLOAD_MAX + BLOCK, error::EINVAL),
        (read, 0, 0, u32::MAX, error::EINVAL),
        (read, 1 << 2, 0, BLOCK, error::EINVAL),
        (write, 0, 0, 0, error::EINVAL),
        (write, 0, 0, 1, error::EINVAL),
        (write, 0, 4_095, BLOCK, error::EINVAL),
        (write, 0, last, 2 * BLOCK, error::ENOSPC),
        (write, 0, u64::MAX - 4_095, BLOCK, error::ENOSPC),
        (write, 0, 0, PAYLOAD_MAX + BLOCK, error::EINVAL),
        (write, command::NO_HOLE, 0, BLOCK, error::EINVAL),
        (trim, 0, 0, 0, error::EINVAL),
        (trim, 0, 1, BLOCK, error::EINVAL),
        (trim, 0, last, 2 * BLOCK, error::EINVAL),
        (zeroes, 0, 0, 511, error::EINVAL),
        (zeroes, 0, last, 2 * BLOCK, error::ENOSPC),
        // FAST_ZERO, which is not offered.
        (zeroes, 1 << 4, 0, BLOCK, error::EINVAL),
        (command::FLUSH, 1 << 15, 0, 0, error::EINVAL),
        // CACHE, BLOCK_STATUS, RESIZE, and what nothing is.
        (5, 0, 0, BLOCK, error::EINVAL),
        (7, 0, 0, BLOCK, error::EINVAL),
        (8, 0, 0, BLOCK, error::EINVAL),
        (u16::MAX, 0, 0, 0, error::EINVAL),
    ];
    for (kind, flags, offset, len, error) in table {
        let mut connection = attached();
        connection.receive(&request(kind, flags, offset, len).to_bytes(), &[]);
        let mut left = if kind == write { len as usize } else { 0 };
        while left > 0 {
            let piece = left.min(1 << 20);
            connection.receive(&vec![0xA5; piece], &[]);
            left -= piece;
        }
        assert_eq!(connection.begin(), None, "request {kind}, flags {flags}, {len} bytes at {offset}");
        assert_eq!(said(&mut connection), reply_of(error), "request {kind}, flags {flags}, {len} bytes at {offset}");
        connection.receive(&request(command::FLUSH, 0, 0, 0).to_bytes(), &[]);
        assert_eq!(carry_out(&mut connection, Status::SUCCESS), [Kind::Flush]);
        assert_eq!(said(&mut connection), reply_of(0));
    }
}

#[test]
fn large_requests_become_commands_and_end_with_the_last() {
    let mut connection = attached();
    let data: Vec<u8> = (0..2 * TRANSFER + 4_096).map(|at| (at / 4_096) as u8).collect();
    connection.receive(&request(command::WRITE, FUA, 8_192, data.len() as u32).to_bytes(), &[]);
    connection.receive(&data, &[]);
    let sqes: Vec<Sqe> = std::iter::from_fn(|| connection.begin()).collect();
    let commands: Vec<_> = sqes.iter().map(command_of).collect();
    let spans: Vec<_> = commands.iter().map(|command| (command.first_block, command.blocks, command.fua)).collect();
    assert_eq!(spans, [(2, 16, true), (18, 16, true), (34, 1, true)]);
    for (sqe, part) in sqes.iter().zip(data.chunks(TRANSFER as usize)) {
        assert!(connection.fetch(sqe.cid(), part.len()) == Ok(part));
        assert!(connection.fetch(sqe.cid(), part.len() + 1).is_err());
    }
    for sqe in sqes.iter().rev() {
        assert_eq!(said(&mut connection), b"");
        connection.complete(sqe.cid(), Status::SUCCESS);
    }
    assert_eq!(said(&mut connection), reply_of(0));

    connection.receive(&request(command::READ, FUA, 8_192, data.len() as u32).to_bytes(), &[]);
    let sqes: Vec<Sqe> = std::iter::from_fn(|| connection.begin()).collect();
    for (sqe, part) in sqes.iter().zip(data.chunks(TRANSFER as usize)).rev() {
        assert!(!command_of(sqe).fua);
        let half = part.len() / 2;
        for (at, len) in [(half, part.len() - half), (0, half)] {
            let fill = |to: &mut [u8]| {
                to.copy_from_slice(&part[at..][..len]);
                Ok(())
            };
            assert_eq!(connection.data(sqe.cid(), (at, len), fill), Ok(()));
        }
        assert!(connection.data(sqe.cid(), (half, part.len()), |_| Ok(())).is_err(), "beyond the command");
        connection.complete(sqe.cid(), Status::SUCCESS);
        // A completion that comes twice has no command.
        connection.complete(sqe.cid(), Status::WRITE_FAULT);
    }
    let answer = said(&mut connection);
    assert!(answer[..16] == reply_of(0) && answer[16..] == data);
    // Neither has one that meets the place's next command.
    connection.receive(&request(command::FLUSH, 0, 0, 0).to_bytes(), &[]);
    let flush = connection.begin().unwrap();
    assert!(sqes.iter().any(|sqe| sqe.cid() % PLACES == flush.cid() % PLACES));
    sqes.iter().for_each(|sqe| connection.complete(sqe.cid(), Status::WRITE_FAULT));
    assert_eq!(said(&mut connection), b"");
    connection.complete(flush.cid(), Status::SUCCESS);
    assert_eq!(said(&mut connection), reply_of(0));
}

#[test]
fn a_command_that_fails_fails_its_request_once() {
    for (status, error) in [
        (Status::NAMESPACE_WRITE_PROTECTED, error::EPERM),
        (Status::WRITE_TO_READ_ONLY_RANGE, error::EPERM),
        (Status::CAPACITY_EXCEEDED, error::ENOSPC),
        (Status::INVALID_FIELD, error::EINVAL),
        (Status::LBA_OUT_OF_RANGE, error::EINVAL),
        (Status::UNRECOVERED_READ_ERROR, error::EIO),
        (Status::WRITE_FAULT.with_dnr(true), error::EIO),
        (Status::DATA_TRANSFER_ERROR, error::EIO),
        (Status::COMMAND_SEQUENCE_ERROR, error::EIO),
    ] {
        let mut connection = attached();
        connection.receive(&request(command::READ, 0, 0, 8 * TRANSFER).to_bytes(), &[]);
        let sqes: Vec<Sqe> = std::iter::from_fn(|| connection.begin()).take(3).collect();
        connection.complete(sqes[1].cid(), status);
        connection.complete(sqes[0].cid(), Status::SUCCESS);
        assert_eq!(said(&mut connection), b"", "a command is under way");
        connection.complete(sqes[2].cid(), Status::INTERNAL_ERROR);
        assert_eq!(said(&mut connection), reply_of(error), "{status}");
        assert_eq!((connection.begin(), connection.is_waiting()), (None, false), "the rest of it is not begun");
    }
}

#[test]
fn a_trim_is_durable_where_that_is_asked_for() {
    let trim = Kind::DatasetManagement { ranges: 1, deallocate: true, integral_read: false, integral_write: false };
    for (flags, status, kinds, error) in [
        (0, Status::SUCCESS, vec![trim], 0),
        (FUA, Status::SUCCESS, vec![trim, Kind::Flush], 0),
        (FUA, Status::WRITE_FAULT, vec![trim], error::EIO),
    ] {
        let mut connection = attached();
        connection.receive(&request(command::TRIM, flags, 4_096, SIZE as u32 - 4_096).to_bytes(), &[]);
        let sqe = connection.begin().unwrap();
        let range = tidewater_wire::nvme::DsmRange::new(1, (SIZE >> 12) as u32 - 1);
        assert_eq!(connection.fetch(sqe.cid(), 16), Ok(&range.to_bytes()[..]));
        assert_eq!(connection.begin(), None);
        connection.complete(sqe.cid(), status);
        let all = [vec![kind_of(&sqe)], carry_out(&mut connection, status)].concat();
        assert_eq!((all, said(&mut connection)), (kinds, reply_of(error).to_vec()));
    }
    let mut connection = attached();
    for (flags, deallocate) in [(0, true), (command::NO_HOLE, false)] {
        connection.receive(&request(command::WRITE_ZEROES, flags, 0, SIZE as u32).to_bytes(), &[]);
        assert_eq!(carry_out(&mut connection, Status::SUCCESS), [Kind::WriteZeroes { deallocate }]);
        assert_eq!(said(&mut connection), reply_of(0));
    }
}

/// Memory is bounded by what the client may have under way, whatever it sends.
#[test]
fn a_client_that_asks_for_much_waits() {
    let mut connection = attached();
    let reads = request(command::READ, 0, 0, 24 << 20).to_bytes().repeat(3);
    connection.receive(&reads, &[]);
    let mut sqes = Vec::new();
    for _ in 0..3 {
        // One has data, and the others wait until it is answered and its answer is sent.
        let all = (24 << 20) / TRANSFER;
        for _ in 0..all {
            let sqe = connection.begin().unwrap();
            connection.complete(sqe.cid(), Status::SUCCESS);
            sqes.push(sqe);
        }
        assert!(connection.is_paused() == connection.is_waiting());
        assert_eq!(connection.begin(), None);
        assert_eq!(said(&mut connection).len(), 16 + (24 << 20));
    }
    assert!(!connection.is_waiting() && !connection.is_paused());
    connection.receive(&request(command::READ, 0, 0, 32 << 20).to_bytes(), &[]);
    let begun: Vec<Sqe> = std::iter::from_fn(|| connection.begin()).collect();
    assert_eq!((begun.len(), connection.is_paused()), (PLACES.into(), true), "as many commands as there are places");
}

#[test]
fn a_client_that_leaves_has_its_writes_carried_out() {
    let mut connection = attached();
    let write = request(command::WRITE, 0, 0, 4_096).to_bytes();
    let leave = request(command::DISCONNECT, 0, 0, 0).to_bytes();
    connection.receive(&[&write[..], &[1; 4_096], &leave[..], &write[..]].concat(), &[]);
    assert!(!connection.is_over() && connection.is_paused());
    assert_eq!(carry_out(&mut connection, Status::SUCCESS), [Kind::Write]);
    assert!(!connection.is_over(), "its reply is not sent");
    assert_eq!(said(&mut connection), reply_of(0));
    assert!(connection.is_over());

    // It may be gone, too, and take no answer.
    let mut connection = attached();
    let read = request(command::READ, 0, 0, 4_096).to_bytes();
    connection.receive(&[&write[..], &[1; 4_096], &read[..], &leave[..]].concat(), &[]);
    connection.mute();
    assert_eq!(carry_out(&mut connection, Status::SUCCESS), [Kind::Write, Kind::Read]);
    assert!(connection.unsent() == 0 && connection.is_over());
}

proptest! {
    /// Messages mean the same in any pieces.
    #[test]
    fn pieces_do_not_matter(cuts in prop::collection::vec(1..300_usize, 1..60)) {
        let bytes = [
            vec![0, 0, 0, 1],
            option_of(option::LIST, b""),
            option_of(9, &[1; 300]),
            option_of(option::GO, &name_of("")),
            request(command::WRITE, 0, 0, 4_096).to_bytes().to_vec(),
            vec![3; 4_096],
            // Refused, with its data.
            request(command::WRITE, 0, 1, 4_000).to_bytes().to_vec(),
            vec![4; 4_000],
            request(command::READ, 0, 4_096, 4_096).to_bytes().to_vec(),
        ]
        .concat();
        let run = |pieces: &mut dyn Iterator<Item = usize>| {
            let (mut connection, mut rest, mut all) = (fresh(), &bytes[..], Vec::new());
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(pieces.next().unwrap().min(rest.len()));
                connection.receive(piece, &exports());
                rest = behind;
                carry_out(&mut connection, Status::SUCCESS);
                all.extend(said(&mut connection));
            }
            all.sort_unstable();
            all
        };
        prop_assert_eq!(run(&mut cuts.iter().copied().cycle()), run(&mut std::iter::once(bytes.len())));
    }
}
