//! Commands in words: names of opcodes, and the fields that say what a command is about.

use std::fmt::Write as _;
use tidewater_wire::fabrics;
use tidewater_wire::nvme::{FUA, Sqe, admin_opcode, opcode};
use tidewater_wire::vendor::{REGISTRY, Set};

/// The name of an opcode in the specification, or in the registry of vendor commands.
pub(super) fn name(queue: u16, code: u8) -> Option<&'static str> {
    let (named, set) = match queue {
        0 => (admin_opcode::NAMED, Set::Admin),
        _ => (opcode::NAMED, Set::Io),
    };
    if code == fabrics::OPCODE {
        return Some("Fabrics");
    }
    let standard = named.iter().find(|(of, _)| *of == code).map(|(_, name)| *name);
    standard.or_else(|| REGISTRY.iter().find(|entry| entry.set == set && entry.code == code).map(|entry| entry.name))
}

/// The name of a command, or its opcode.
pub(super) fn named(queue: u16, sqe: &Sqe) -> String {
    name(queue, sqe.opcode()).map_or_else(|| format!("opcode {:#04x}", sqe.opcode()), str::to_owned)
}

/// Name and fields of a command.
pub(super) fn command(queue: u16, sqe: &Sqe) -> String {
    let mut text = named(queue, sqe);
    let (low, high) = (sqe.cdw10() & 0xffff, sqe.cdw10() >> 16);
    let is_written = match (queue, sqe.opcode()) {
        (0, admin_opcode::CREATE_IO_SQ) => {
            write!(text, " sqid={low}, entries={}, cqid={}", high + 1, sqe.cdw11() >> 16)
        }
        (0, admin_opcode::CREATE_IO_CQ) => {
            write!(text, " cqid={low}, entries={}, vector={}", high + 1, sqe.cdw11() >> 16)
        }
        (0, admin_opcode::DELETE_IO_SQ) => write!(text, " sqid={low}"),
        (0, admin_opcode::DELETE_IO_CQ) => write!(text, " cqid={low}"),
        (0, admin_opcode::GET_LOG_PAGE) => {
            let dwords = u64::from(high) | u64::from(sqe.cdw11() & 0xffff) << 16;
            let offset = u64::from(sqe.cdw12()) | u64::from(sqe.cdw13()) << 32;
            write!(text, " lid={:#04x}, bytes={}, offset={offset}", low & 0xff, (dwords + 1) * 4)
        }
        (0, admin_opcode::IDENTIFY) => write!(text, " cns={:#04x}, cntid={high}", low & 0xff),
        (0, admin_opcode::ABORT) => write!(text, " sqid={low}, cmdid={high}"),
        (0, admin_opcode::SET_FEATURES) => write!(text, " fid={:#04x}, value={:#x}", low & 0xff, sqe.cdw11()),
        (0, admin_opcode::GET_FEATURES) => write!(text, " fid={:#04x}, sel={}", low & 0xff, sqe.cdw10() >> 8 & 7),
        (1.., opcode::READ | opcode::WRITE | opcode::COMPARE | opcode::WRITE_ZEROES | opcode::VERIFY) => {
            let fua = if sqe.cdw12() & FUA == 0 { "" } else { ", fua" };
            write!(text, " slba={}, blocks={}{fua}", sqe.slba(), (sqe.cdw12() & 0xffff) + 1)
        }
        (1.., opcode::DATASET_MANAGEMENT) => {
            write!(text, " ranges={}, attributes={:#x}", (sqe.cdw10() & 0xff) + 1, sqe.cdw11())
        }
        _ => {
            let dwords = sqe.dwords()[10..].iter().zip(10..).filter(|(value, _)| **value != 0);
            let all: Vec<String> = dwords.map(|(value, number)| format!("cdw{number}={value:#x}")).collect();
            write!(text, "{}{}", if all.is_empty() { "" } else { " " }, all.join(", "))
        }
    };
    is_written.expect("a string takes all");
    let is_alone = !text.contains('=');
    let pointer = match (sqe.psdt(), sqe.prp1(), sqe.prp2()) {
        (_, 0, 0) => return text,
        (0, first, 0) => format!("prp1={first:#x}"),
        (0, first, second) => format!("prp1={first:#x}, prp2={second:#x}"),
        (_, address, rest) => format!("sgl={:#04x}, at={address:#x}, len={}", rest >> 56, rest as u32),
    };
    text += if is_alone { " " } else { ", " };
    text + &pointer
}
