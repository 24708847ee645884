//! The byte window as hosts of controllers see it: entries of namespaces, what may not be done to pinned blocks, and
//! hosts that mean ill.

use super::admin::{attach, delete, get_log};
use super::*;
use crate::fast::Content;
use crate::subsystem::namespaces::Initial;
use tidewater_wire::nvme::{DsmRange, NSID_ALL, log_page as standard};
use tidewater_wire::vendor::{
    ANYWHERE, BarLayout, EntryInfo, WindowCommand, WindowStatus, log_page, opcode, status as vendor_status,
};

const WINDOW: u64 = 1 << 20;
/// Where each namespace of [`rig`] begins and ends, in blocks of 512 bytes.
const HALF: u64 = 1 << 10;

fn windowed(gate: &str) -> Profile {
    let mut profile = tiny();
    for (key, value) in [
        ("memory.ba.kind", "dram"),
        ("memory.ba.size", "64KiB"),
        ("memory.ba.survives", "by-capacitors"),
        ("window.size", "32KiB"),
        ("window.memory", "ba"),
        ("window.entries", "3"),
        ("window.gate", gate),
    ] {
        profile.set(key, value).expect("a good value");
    }
    profile
}

/// Two controllers and two namespaces, the second with blocks of 4 KiB.
fn rig(gate: &str) -> Rig {
    let mut rig = Rig::with(&windowed(gate), |options| {
        options.functions = 2;
        let half = |block_shift| Initial { bytes: HALF << 9, block_shift, shared: true };
        options.namespaces = vec![half(9), half(12)];
    });
    for function in [0, 1] {
        rig.enable(function);
        rig.make_queue(function, 1, 16);
    }
    rig
}

fn order(rig: &mut Rig, function: u8, nsid: u32, command: WindowCommand) -> Cqe {
    let data = rig.alloc(8192);
    rig.submit(function, 1, &with_prps(&command.emit(0).with_nsid(nsid), data, data + 4096))
}

fn pin(entry: u16, lba: u64, blocks: u32) -> WindowCommand {
    WindowCommand::Pin { entry, offset: ANYWHERE, lba, blocks }
}

fn info(rig: &mut Rig, function: u8, entry: u16) -> Result<EntryInfo, Status> {
    let data = rig.alloc(4096);
    let sqe = with_prps(&WindowCommand::EntryInfo { entry }.emit(0), data, 0);
    let status = rig.submit(function, 1, &sqe).status;
    let bytes = rig.bytes(data, EntryInfo::SIZE).expect("memory");
    if status.is_success() { Ok(EntryInfo::parse(bytes).expect("an entry")) } else { Err(status) }
}

fn store(rig: &mut Rig, at: u64, bytes: &[u8]) {
    rig.input(Input::Store { function: 0, address: WINDOW + at, content: Content::Bytes(bytes) });
}

#[test]
fn an_entry_is_of_the_namespace_that_was_named() {
    let mut rig = rig("refuse");
    let data = rig.alloc(4096);
    rig.memory[data as usize..][..4096].copy_from_slice(&pattern(3, 4096));
    let write = with_prps(&Sqe::write(0, 5, 0).with_nsid(2), data, 0);
    assert_eq!(rig.submit(0, 1, &write).status, Status::SUCCESS);
    let pinned = order(&mut rig, 0, 2, pin(7, 5, 1));
    assert_eq!((pinned.status, pinned.dw0), (Status::SUCCESS, 0));
    assert_eq!(rig.s.load(0, WINDOW + 8, 8).to_le_bytes(), pattern(3, 4096)[8..16]);
    let found = info(&mut rig, 1, 7).expect("it is pinned");
    assert_eq!((found.nsid, found.lba, found.bytes, found.bar_offset), (2, 5, 4096, WINDOW));
    // The gate is at the place on the drive, not at the number of the block.
    assert_eq!(rig.submit(1, 1, &write).status, vendor_status::LBA_PINNED);
    assert_eq!(rig.submit(1, 1, &with_prps(&Sqe::write(0, 40, 7).with_nsid(1), data, 0)).status, Status::SUCCESS);
    store(&mut rig, 100, b"stored");
    assert_eq!(order(&mut rig, 1, 2, WindowCommand::Flush { entry: 7 }).status, Status::SUCCESS);
    assert_eq!(rig.submit(0, 1, &with_prps(&Sqe::read(0, 5, 0).with_nsid(2), data, 0)).status, Status::SUCCESS);
    assert_eq!(rig.bytes(data + 100, 6).expect("memory"), b"stored");
    // Its end is the namespace's, and what is read-only for a host is so through the window.
    assert_eq!(order(&mut rig, 0, 1, pin(7, HALF - 8, 16)).status, Status::LBA_OUT_OF_RANGE);
    assert_eq!(order(&mut rig, 0, 3, pin(7, 0, 8)).status, Status::INVALID_FIELD);
    assert!(order(&mut rig, 0, NSID_ALL, pin(7, 0, 8)).status.same_code(Status::INVALID_NAMESPACE));
    let protect = admin_sqe(admin_opcode::SET_FEATURES).with_nsid(1).with_dword(10, 0x84);
    assert_eq!(order(&mut rig, 0, 1, pin(7, 0, 8)).status, Status::SUCCESS);
    assert_eq!(rig.admin(0, &protect.with_dword(11, 1)).status, Status::SUCCESS);
    assert_eq!(order(&mut rig, 0, 1, pin(8, 8, 8)).status, Status::NAMESPACE_WRITE_PROTECTED);
    assert_eq!(order(&mut rig, 0, 1, WindowCommand::Flush { entry: 7 }).status, Status::NAMESPACE_WRITE_PROTECTED);
    assert_eq!(rig.admin(0, &protect).status, Status::SUCCESS);
    assert_eq!(order(&mut rig, 0, 1, WindowCommand::Flush { entry: 7 }).status, Status::SUCCESS);
}

#[test]
fn who_has_not_the_blocks_has_not_the_entry() {
    let mut rig = rig("refuse");
    assert_eq!(attach(&mut rig, 2, true, &[1]), Status::SUCCESS);
    assert_eq!(order(&mut rig, 0, 2, pin(7, 0, 1)).status, Status::SUCCESS);
    assert_eq!(order(&mut rig, 1, 2, pin(8, 1, 1)).status, Status::INVALID_FIELD);
    for command in [
        WindowCommand::Flush { entry: 7 },
        WindowCommand::Unpin { entry: 7 },
        WindowCommand::Sync { entry: 7 },
        WindowCommand::EntryInfo { entry: 7 },
        WindowCommand::ReadDma { entry: 7, offset: 0, bytes: 8 },
        WindowCommand::Write { entry: 7, offset: 0, bytes: 8 },
    ] {
        assert_eq!(order(&mut rig, 1, 2, command).status, vendor_status::ENTRY_UNKNOWN, "{command:?}");
    }
    assert_eq!(info(&mut rig, 0, 7).map(|info| info.nsid), Ok(2));
}

#[test]
fn blocks_that_are_pinned_can_be_neither_forgotten_nor_taken_away() {
    let mut rig = rig("refuse");
    let format = |nsid| admin_sqe(admin_opcode::FORMAT_NVM).with_nsid(nsid).with_dword(10, 1 << 9);
    let sanitize = admin_sqe(admin_opcode::SANITIZE).with_dword(10, 2);
    assert_eq!(order(&mut rig, 0, 1, pin(1, 16, 8)).status, Status::SUCCESS);
    let ranges = rig.alloc(4096);
    rig.memory[ranges as usize..][..16].copy_from_slice(&DsmRange::new(8, 16).to_bytes());
    let trim = with_prps(&Sqe::dataset_management(0, 0, true), ranges, 0);
    for (what, sqe, queue) in [
        ("format", format(1), 0),
        ("format of all", format(NSID_ALL), 0),
        ("deletion", delete(1), 0),
        ("deletion of all", delete(NSID_ALL), 0),
        ("sanitize", sanitize, 0),
        ("deallocation", trim.with_nsid(1), 1),
        ("zeroes", Sqe::write_zeroes(0, 20, 0, false).with_nsid(1), 1),
        ("verify", Sqe::verify(0, 23, 0).with_nsid(1), 1),
    ] {
        assert_eq!(rig.submit(0, queue, &sqe).status, vendor_status::LBA_PINNED, "{what}");
    }
    assert_eq!(attach(&mut rig, 1, true, &[1]), vendor_status::LBA_PINNED);
    // What has nothing to do with them goes on.
    assert_eq!(rig.submit(0, 1, &Sqe::flush(0).with_nsid(NSID_ALL)).status, Status::SUCCESS);
    assert_eq!(rig.admin(0, &format(2)).status, Status::SUCCESS);
    assert_eq!(rig.admin(0, &delete(2)).status, Status::SUCCESS);
    assert_eq!(order(&mut rig, 0, 1, WindowCommand::Unpin { entry: 1 }).status, Status::SUCCESS);
    assert_eq!(rig.admin(0, &sanitize).status, Status::SUCCESS);
    rig.run();
    // While blocks are being forgotten, none of them can be pinned; and a pin under way keeps them from that.
    rig.hold = |output| matches!(output, Output::Purge { .. });
    let cid = rig.put(0, 0, &format(1));
    rig.ring(0, 0);
    rig.run();
    assert_eq!(order(&mut rig, 0, 1, pin(1, 16, 8)).status, vendor_status::BUSY);
    rig.let_go();
    assert_eq!(rig.await_completion(0, 0, cid).status, Status::SUCCESS);
    rig.hold = |output| matches!(output, Output::LoadWindow { .. });
    let data = rig.alloc(4096);
    rig.memory[data as usize..][..4096].fill(4);
    let write = with_prps(&Sqe::write(0, 16, 7).with_nsid(1), data, 0);
    assert_eq!(rig.submit(0, 1, &write).status, Status::SUCCESS);
    let cid = rig.put(0, 1, &pin(1, 16, 8).emit(0).with_nsid(1));
    rig.ring(0, 1);
    rig.s.handle(rig.now, Input::Register { function: 1, offset: 0, len: 4, value: 0 });
    rig.settle();
    assert_eq!(rig.admin(0, &format(1)).status, vendor_status::LBA_PINNED);
    rig.let_go();
    assert_eq!(rig.await_completion(0, 1, cid).status, Status::SUCCESS);
    assert_eq!(rig.s.load(0, WINDOW, 8), 0x0404_0404_0404_0404);
}

#[test]
fn a_reset_leaves_entries_and_ends_what_waited_at_the_gate() {
    let mut rig = rig("hold");
    assert_eq!(order(&mut rig, 0, 1, pin(1, 0, 8)).status, Status::SUCCESS);
    store(&mut rig, 0, b"stays");
    let read = |rig: &mut Rig| {
        let data = rig.alloc(4096);
        let cid = rig.put(0, 1, &with_prps(&Sqe::read(0, 0, 7).with_nsid(1), data, 0));
        rig.ring(0, 1);
        rig.run();
        assert_eq!(rig.take(0, 1), None, "it waits");
        cid
    };
    // Abort ends one.
    let cid = read(&mut rig);
    assert_eq!(WindowStatus::parse(&get_log(&mut rig, 0, log_page::WINDOW, 128).1).map(|page| page.held), Ok(1));
    let abort = admin_sqe(admin_opcode::ABORT).with_dword(10, 1 | u32::from(cid) << 16);
    let aborted = rig.admin(0, &abort);
    assert_eq!((aborted.status, aborted.dw0), (Status::SUCCESS, 0));
    assert_eq!(rig.await_completion(0, 1, cid).status, Status::ABORT_REQUESTED);
    // What waits blocks no other command: blocks elsewhere are formatted.
    let cid = read(&mut rig);
    let format = admin_sqe(admin_opcode::FORMAT_NVM).with_nsid(2).with_dword(10, 1);
    assert_eq!(rig.admin(0, &format).status, Status::SUCCESS);
    // A reset of any kind ends all, and entries stay.
    let resets: [fn(&mut Rig); 2] =
        [|rig| rig.write(0, offset::CC, 0), |rig| rig.input(Input::FunctionReset { function: 0 })];
    assert!(cid > 0);
    for reset in resets {
        reset(&mut rig);
        assert!(rig.run_until(|rig| rig.read(0, offset::CSTS) & 1 == 0), "it is reset though a command waited");
        rig.run();
        rig.enable(0);
        rig.make_queue(0, 1, 16);
        assert_eq!(rig.s.load(0, WINDOW, 8).to_le_bytes()[..5], *b"stays");
        read(&mut rig);
    }
    // Letting go of the entry lets the last of them go on.
    let flush = with_prps(&WindowCommand::Flush { entry: 1 }.emit(0), 0, 0);
    rig.put(0, 1, &flush);
    rig.ring(0, 1);
    rig.run();
    let ended: Vec<Status> = std::iter::from_fn(|| rig.take(0, 1)).map(|cqe| cqe.status).collect();
    assert_eq!(ended, [Status::SUCCESS, Status::SUCCESS]);
    // Half of the places at most may wait; more are refused, so that a flush always finds one.
    let mut profile = windowed("hold");
    profile.set("host.outstanding_max", "8").expect("a good value");
    let mut rig = Rig::with(&profile, |_| {});
    rig.enable(0);
    rig.make_queue(0, 1, 64);
    assert_eq!(order(&mut rig, 0, 1, pin(1, 0, 8)).status, Status::SUCCESS);
    for _ in 0..6 {
        rig.put(0, 1, &Sqe::verify(0, 0, 7).with_nsid(1));
    }
    rig.ring(0, 1);
    rig.run();
    let ended: Vec<Status> = std::iter::from_fn(|| rig.take(0, 1)).map(|cqe| cqe.status).collect();
    assert_eq!((ended, rig.s.device().window().held()), (vec![vendor_status::LBA_PINNED; 2], 4));
}

#[test]
fn a_queue_goes_though_a_command_of_it_waits_at_the_gate() {
    let mut rig = rig("hold");
    assert_eq!(order(&mut rig, 0, 1, pin(1, 0, 8)).status, Status::SUCCESS);
    let data = rig.alloc(4096);
    let cid = rig.put(0, 1, &with_prps(&Sqe::read(0, 0, 7).with_nsid(1), data, 0));
    rig.ring(0, 1);
    rig.run();
    assert_eq!(rig.s.device().window().held(), 1);
    let delete = admin_sqe(admin_opcode::DELETE_IO_SQ).with_dword(10, 1);
    assert_eq!(rig.admin(0, &delete).status, Status::SUCCESS);
    let ended = rig.take(0, 1).map(|cqe| (cqe.cid, cqe.status));
    assert_eq!(ended, Some((cid, Status::ABORTED_SQ_DELETION)));
    assert_eq!(rig.s.device().window().held(), 0);
}

#[test]
fn pages_tell_what_is_in_bar2() {
    let mut rig = Rig::with(&windowed("refuse"), |options| (options.functions, options.cmb) = (2, 16 << 10));
    rig.enable(0);
    rig.enable(1);
    for (function, window) in [(0, (WINDOW, 32 << 10)), (1, (0, 0))] {
        let at = rig.alloc(8192);
        let sqe = admin_sqe(admin_opcode::GET_LOG_PAGE)
            .with_dword(10, u32::from(log_page::LAYOUT) | (BarLayout::SIZE as u32 / 4 - 1) << 16)
            .with_dword(11, u32::from(function) << 16);
        assert_eq!(rig.admin(function, &with_prps(&sqe, at, at + 4096)).status, Status::SUCCESS);
        let page = BarLayout::parse(rig.bytes(at, BarLayout::SIZE).expect("memory")).expect("a layout");
        assert_eq!((page.window_offset, page.window_bytes), window, "function {function}");
        assert_eq!((page.queues_offset, page.queues_bytes), (WINDOW + (32 << 10), 16 << 10));
        assert_eq!((page.function, page.lanes, page.bar_bytes), (function.into(), 0, 2 << 20));
        // Of another function it tells nothing.
        assert_eq!(rig.admin(function, &sqe.with_dword(11, 5 << 16)).status, Status::INVALID_FIELD);
    }
    let (status, bytes) = get_log(&mut rig, 0, standard::SUPPORTED_PAGES, 1024);
    assert_eq!(status, Status::SUCCESS);
    let supported = |id: u8| bytes[4 * usize::from(id)] & 1 == 1;
    assert!(supported(log_page::WINDOW) && supported(log_page::LAYOUT) && !supported(log_page::FAST_STATUS));
    // A drive with neither has neither.
    let mut none = Rig::new();
    none.enable(0);
    assert!(!get_log(&mut none, 0, log_page::WINDOW, 128).0.is_success());
    none.make_queue(0, 1, 16);
    assert_eq!(order(&mut none, 0, 1, pin(1, 0, 8)).status, Status::INVALID_OPCODE);
}

/// What a field of 64 bits is tried with.
const EDGES: [u64; 14] =
    [0, 1, 7, 8, 4095, 4096, 8191, 32 << 10, HALF - 8, HALF, 0x7FFF_FFFF, 0xFFFF_FFFF, 0x8000_0000_0000_0000, u64::MAX];

#[test]
fn every_field_of_the_window_at_its_boundaries_and_beyond() {
    let mut rig = rig("refuse");
    let data = rig.alloc(16 << 10);
    let mut cells = [0u32; 3];
    // Every double word of every command, whether an entry is there or not.
    for code in [
        opcode::BA_PIN,
        opcode::BA_FLUSH,
        opcode::BA_SYNC,
        opcode::BA_UNPIN,
        opcode::BA_WRITE,
        opcode::BA_READ_DMA,
        opcode::BA_ENTRY_INFO,
    ] {
        for entry in [0, 1, 0xFFFF] {
            for dword in [0, 1, 2, 3, 10, 11, 12, 13, 14, 15] {
                for value in EDGES {
                    let good = match code {
                        opcode::BA_PIN => pin(entry, 8, 8),
                        opcode::BA_FLUSH => WindowCommand::Flush { entry },
                        opcode::BA_SYNC => WindowCommand::Sync { entry },
                        opcode::BA_UNPIN => WindowCommand::Unpin { entry },
                        opcode::BA_WRITE => WindowCommand::Write { entry, offset: 0, bytes: 64 },
                        opcode::BA_READ_DMA => WindowCommand::ReadDma { entry, offset: 0, bytes: 64 },
                        _ => WindowCommand::EntryInfo { entry },
                    };
                    let sqe = with_prps(&good.emit(0).with_nsid(1), data, data + 4096);
                    // Opcode and flags stay a command's of the window; all else is anything.
                    let value = if dword == 0 { u64::from(code) | value << 8 & 0xFF00 } else { value };
                    let cqe = rig.submit(0, 1, &sqe.with_dword(dword, value as u32));
                    let _ = cqe.status;
                    cells[0] += 1;
                    assert_eq!(rig.read(0, offset::CSTS), 1, "{good:?}, double word {dword}: {value:#x}");
                }
            }
        }
        rig.said.clear();
        rig.interrupts.clear();
    }
    // Values of a host that knows the fields: pairs of them.
    for (lba, blocks) in EDGES.iter().flat_map(|&lba| EDGES.map(|blocks| (lba, blocks))) {
        for offset in [ANYWHERE, 0, 4096, 28 << 10, 32 << 10, u64::MAX - 4095] {
            for nsid in [1, 2] {
                let command = WindowCommand::Pin { entry: 9, offset, lba, blocks: blocks.max(1) as u32 };
                let status = order_at(&mut rig, data, nsid, command);
                cells[1] += 1;
                if status.is_success() {
                    let found = info(&mut rig, 0, 9).expect("it is pinned");
                    assert!(found.offset + found.bytes <= 32 << 10 && found.nsid == nsid && found.lba == lba);
                    assert!(offset == ANYWHERE || found.offset == offset, "{command:?}: {found:?}");
                    for (at, bytes) in EDGES.iter().flat_map(|&at| [1, 8, 4096].map(|bytes| (at, bytes))) {
                        for command in [
                            WindowCommand::ReadDma { entry: 9, offset: at, bytes },
                            WindowCommand::Write { entry: 9, offset: at, bytes },
                        ] {
                            let fits = at.checked_add(bytes.into()).is_some_and(|end| end <= found.bytes);
                            assert_eq!(order_at(&mut rig, data, nsid, command).is_success(), fits, "{command:?}");
                            cells[1] += 1;
                        }
                    }
                    let unpin = WindowCommand::Unpin { entry: 9 };
                    assert_eq!(order_at(&mut rig, data, nsid, unpin), Status::SUCCESS);
                }
            }
        }
        rig.free = data + (16 << 10);
        rig.said.clear();
        rig.interrupts.clear();
    }
    // Accesses of BAR2 around the window and in it, of any length, by any function.
    assert_eq!(order_at(&mut rig, data, 1, pin(9, 8, 8)), Status::SUCCESS);
    let before = rig.s.device().window().statistics.stores_dropped;
    for function in [0, 1, 2, 255] {
        for at in
            [0, 0xFFF, WINDOW - 1, WINDOW, WINDOW + 4095, WINDOW + 4096, WINDOW + (32 << 10) - 1, 2 << 20, u64::MAX]
        {
            for len in [0usize, 1, 7, 8, 9, 64, 4096, 64 << 10] {
                let bytes = vec![0xAB; len];
                rig.input(Input::Store { function, address: at, content: Content::Bytes(&bytes) });
                let _ = rig.s.load(function, at, len.min(255) as u8);
                rig.input(Input::LoadedOutside { function });
                rig.input(Input::WindowFill { lpn: at as u32, content: Content::Bytes(&bytes) });
                cells[2] += 1;
            }
        }
    }
    rig.run();
    assert!(rig.s.device().window().statistics.stores_dropped > before);
    assert_eq!(rig.s.load(0, WINDOW + 4096, 8), u64::MAX, "no entry is there");
    assert_eq!(rig.s.load(1, WINDOW, 8), u64::MAX, "no window is there");
    assert_eq!(order_at(&mut rig, data, 1, WindowCommand::Flush { entry: 9 }), Status::SUCCESS);
    println!(
        "{} cells: {} of single fields, {} of pairs, {} of BAR accesses",
        cells.iter().sum::<u32>(),
        cells[0],
        cells[1],
        cells[2]
    );
    assert!(cells.iter().all(|&cells| cells > 200));
}

fn order_at(rig: &mut Rig, data: u64, nsid: u32, command: WindowCommand) -> Status {
    rig.submit(0, 1, &with_prps(&command.emit(0).with_nsid(nsid), data, data + 4096)).status
}
