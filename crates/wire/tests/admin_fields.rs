//! Every field of every admin command at its boundaries and beyond: a table of the refused values and their statuses.
//! Values that are not in the table are accepted: the field is reserved, or for the firmware to judge.

use tidewater_wire::nvme::{AdminCommand, Cns, NSID_ALL, Sqe, Status, admin_opcode as op};

/// A field, and the status of the values that are refused.
struct Field {
    dword: usize,
    low: u32,
    bits: u32,
    refused: fn(u32) -> Option<Status>,
}

/// A command with valid fields, and the fields that may be wrong.
struct Row {
    opcode: u8,
    cdw10: u32,
    cdw11: u32,
    fields: &'static [Field],
}

const fn field(dword: usize, low: u32, bits: u32, refused: fn(u32) -> Option<Status>) -> Field {
    Field { dword, low, bits, refused }
}

const fn row(opcode: u8, cdw10: u32, cdw11: u32, fields: &'static [Field]) -> Row {
    Row { opcode, cdw10, cdw11, fields }
}

const QUEUE: Field = field(10, 0, 16, |id| (id == 0).then_some(Status::INVALID_QUEUE_ID));
const SIZE: Field = field(10, 16, 16, |last| (last == 0).then_some(Status::INVALID_QUEUE_SIZE));
const CONTIGUOUS: Field = field(11, 0, 1, |pc| (pc == 0).then_some(Status::INVALID_FIELD));
const COMPLETION_QUEUE: Field = field(11, 16, 16, |id| (id == 0).then_some(Status::INVALID_QUEUE_ID));
/// Of all commands: fused operations, and SGLs where PRPs are meant.
const ALL: [Field; 2] = [
    field(0, 8, 2, |fuse| (fuse != 0).then_some(Status::INVALID_FIELD)),
    field(0, 14, 2, |psdt| (psdt != 0).then_some(Status::INVALID_FIELD)),
];

const ROWS: &[Row] = &[
    row(op::DELETE_IO_SQ, 1, 0, &[QUEUE]),
    row(op::CREATE_IO_SQ, 1 | 7 << 16, 1 | 1 << 16, &[QUEUE, SIZE, CONTIGUOUS, COMPLETION_QUEUE]),
    row(
        op::GET_LOG_PAGE,
        0x007F_0002,
        0,
        &[
            field(12, 0, 2, |rest| (rest != 0).then_some(Status::INVALID_FIELD)),
            field(14, 23, 1, |index| (index != 0).then_some(Status::INVALID_FIELD)),
        ],
    ),
    row(op::DELETE_IO_CQ, 1, 0, &[QUEUE]),
    row(op::CREATE_IO_CQ, 1 | 7 << 16, 1, &[QUEUE, SIZE, CONTIGUOUS]),
    row(
        op::IDENTIFY,
        1,
        0,
        &[field(10, 0, 8, |cns| Cns::from_code(cns as u8).is_none().then_some(Status::INVALID_FIELD))],
    ),
    row(op::ABORT, 1, 0, &[]),
    row(op::SET_FEATURES, 6, 1, &[]),
    row(op::GET_FEATURES, 6, 0, &[field(10, 8, 3, |select| (select > 3).then_some(Status::INVALID_FIELD))]),
    row(op::ASYNCHRONOUS_EVENT_REQUEST, 0, 0, &[]),
    row(op::NAMESPACE_MANAGEMENT, 0, 0, &[field(10, 0, 4, |select| (select > 1).then_some(Status::INVALID_FIELD))]),
    row(
        op::DEVICE_SELF_TEST,
        1,
        0,
        &[field(10, 0, 4, |code| (![1, 2, 15].contains(&code)).then_some(Status::INVALID_FIELD))],
    ),
    row(
        op::NAMESPACE_ATTACHMENT,
        0,
        0,
        &[
            field(1, 0, 32, |nsid| (nsid == NSID_ALL).then_some(Status::INVALID_FIELD)),
            field(10, 0, 4, |select| (select > 1).then_some(Status::INVALID_FIELD)),
        ],
    ),
    row(op::KEEP_ALIVE, 0, 0, &[]),
    row(op::DOORBELL_BUFFER_CONFIG, 0, 0, &[]),
    row(
        op::FORMAT_NVM,
        0,
        0,
        &[
            field(10, 4, 1, |metadata| (metadata != 0).then_some(Status::INVALID_FORMAT)),
            field(10, 5, 3, |protection| (protection != 0).then_some(Status::INVALID_FORMAT)),
            field(10, 9, 3, |erase| (erase > 2).then_some(Status::INVALID_FIELD)),
        ],
    ),
    row(op::SANITIZE, 2, 0, &[field(10, 0, 3, |action| (!(1..=4).contains(&action)).then_some(Status::INVALID_FIELD))]),
];

/// 0, all ones, the neighbours of both, and every power of two.
fn boundaries(bits: u32) -> Vec<u32> {
    let max = u32::MAX >> (32 - bits);
    let mut values: Vec<u32> =
        (0..bits).map(|bit| 1 << bit).chain([0, 1, 2, 3, max - 1, max / 2, max / 3, max]).collect();
    values.retain(|&value| value <= max);
    values.sort_unstable();
    values.dedup();
    values
}

/// Runs of bits of a double word that no field covers.
fn gaps(fields: &[&Field], dword: usize) -> Vec<(u32, u32)> {
    let covered = |bit: u32| fields.iter().any(|f| f.dword == dword && (f.low..f.low + f.bits).contains(&bit));
    // The opcode makes the row.
    let first = if dword == 0 { 8 } else { 0 };
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for bit in (first..32).filter(|&bit| !covered(bit)) {
        match runs.last_mut() {
            Some((low, bits)) if *low + *bits == bit => *bits += 1,
            _ => runs.push((bit, 1)),
        }
    }
    runs
}

#[test]
fn fields_at_their_boundaries() {
    let opcodes: Vec<u8> = ROWS.iter().map(|row| row.opcode).collect();
    assert_eq!(opcodes, op::NAMED.iter().map(|&(code, _)| code).collect::<Vec<_>>(), "a row for each opcode");
    let (mut cells, mut refused) = (0, 0);
    for row in ROWS {
        let base = Sqe::default()
            .with_dword(0, u32::from(row.opcode))
            .with_nsid(1)
            .with_dword(10, row.cdw10)
            .with_dword(11, row.cdw11);
        assert!(AdminCommand::parse(&base).is_ok(), "{:02X}h: the row itself is wrong", row.opcode);
        let fields: Vec<&Field> = ALL.iter().chain(row.fields).collect();
        let mut try_cell = |dword: usize, low: u32, bits: u32, value: u32, want: Option<Status>| {
            let mask = (u32::MAX >> (32 - bits)) << low;
            let sqe = base.with_dword(dword, base.dwords()[dword] & !mask | value << low);
            let found = AdminCommand::parse(&sqe);
            assert_eq!(
                found.as_ref().err().copied(),
                want,
                "{:02X}h, double word {dword}, bits {}:{low} = {value:#X}: {found:?}",
                row.opcode,
                low + bits - 1
            );
            cells += 1;
            refused += u32::from(want.is_some());
        };
        for field in &fields {
            for value in boundaries(field.bits) {
                try_cell(field.dword, field.low, field.bits, value, (field.refused)(value));
            }
        }
        for dword in 0..16 {
            for (low, bits) in gaps(&fields, dword) {
                for value in boundaries(bits) {
                    try_cell(dword, low, bits, value, None);
                }
            }
        }
    }
    println!("{cells} cells, {refused} of them refused");
    assert!(cells >= 2_000 && refused >= 100, "{cells} cells, {refused} refused");
}
