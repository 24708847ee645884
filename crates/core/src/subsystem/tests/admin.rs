//! Admin commands, as a host sees them: namespaces, formats, features, events, faults, and what a drive at its end
//! says.

use super::bring_up::identify;
use super::*;
use crate::subsystem::namespaces::Initial;
use tidewater_wire::nvme::identify::{IdentifyNamespace, NamespaceManagement, parse_namespace_list};
use tidewater_wire::nvme::{DsmRange, Event, NSID_ALL, feature, log_page};

pub(super) fn get_log(rig: &mut Rig, function: u8, lid: u8, bytes: u32) -> (Status, Vec<u8>) {
    let at = rig.alloc(8192);
    let sqe = admin_sqe(admin_opcode::GET_LOG_PAGE).with_dword(10, u32::from(lid) | (bytes / 4 - 1) << 16);
    let status = rig.admin(function, &with_prps(&sqe, at, at + 4096)).status;
    (status, rig.bytes(at, bytes as usize).unwrap().to_vec())
}

pub(super) fn set_feature(fid: u8, value: u32) -> Sqe {
    admin_sqe(admin_opcode::SET_FEATURES).with_dword(10, fid.into()).with_dword(11, value)
}

pub(super) fn create_namespace(rig: &mut Rig, blocks: u64, shared: bool) -> Cqe {
    let at = rig.alloc(4096);
    let data =
        NamespaceManagement { nsze: blocks, ncap: blocks, nmic: shared.into(), ..NamespaceManagement::default() };
    rig.memory[at as usize..][..4096].copy_from_slice(&data.to_bytes());
    rig.admin(0, &with_prps(&admin_sqe(admin_opcode::NAMESPACE_MANAGEMENT), at, 0))
}

pub(super) fn attach(rig: &mut Rig, nsid: u32, detach: bool, controllers: &[u16]) -> Status {
    let at = rig.alloc(4096);
    let list = [controllers.len() as u16].iter().chain(controllers).flat_map(|id| id.to_le_bytes()).collect::<Vec<_>>();
    rig.memory[at as usize..][..list.len()].copy_from_slice(&list);
    let sqe = admin_sqe(admin_opcode::NAMESPACE_ATTACHMENT).with_nsid(nsid).with_dword(10, detach.into());
    rig.admin(0, &with_prps(&sqe, at, 0)).status
}

pub(super) fn delete(nsid: u32) -> Sqe {
    admin_sqe(admin_opcode::NAMESPACE_MANAGEMENT).with_dword(10, 1).with_nsid(nsid)
}

#[test]
fn namespaces_come_and_go_and_hosts_are_told() {
    let mut rig = Rig::with(&tiny(), |options| options.functions = 2);
    rig.enable(0);
    rig.enable(1);
    rig.make_queue(0, 1, 16);
    rig.make_queue(1, 1, 16);
    let buffer = rig.alloc(8192);
    rig.memory[buffer as usize..][..4096].copy_from_slice(&pattern(1, 4096));
    let write = with_prps(&Sqe::write(0, 8, 7), buffer, 0);
    let read = with_prps(&Sqe::read(0, 8, 7), buffer + 4096, 0);
    assert_eq!(rig.submit(0, 1, &write).status, Status::SUCCESS);
    // Namespace notices are off until the host wants them.
    for function in [0, 1] {
        assert_eq!(rig.admin(function, &set_feature(feature::ASYNC_EVENTS, 1 << 8)).status, Status::SUCCESS);
        rig.put(function, 0, &admin_sqe(admin_opcode::ASYNCHRONOUS_EVENT_REQUEST));
        rig.ring(function, 0);
    }
    rig.run();
    let cid = rig.put(0, 0, &delete(NSID_ALL));
    rig.ring(0, 0);
    rig.run();
    let told: Vec<Cqe> = std::iter::from_fn(|| rig.take(0, 0)).collect();
    assert!(told.iter().any(|cqe| cqe.cid == cid && cqe.status == Status::SUCCESS));
    let event = Event::NamespaceAttributeChanged.dword();
    assert!(told.iter().any(|cqe| cqe.dw0 == event));
    assert_eq!(rig.take(1, 0).map(|cqe| cqe.dw0), Some(event));
    rig.ring_head(0, 0);
    let (_, changed) = get_log(&mut rig, 0, log_page::CHANGED_NAMESPACES, 4096);
    assert_eq!(parse_namespace_list(&changed), [1]);
    assert_eq!(rig.submit(0, 1, &read).status, Status::INVALID_FIELD, "it is not there");
    // Two, one of them for the second controller alone.
    let total = rig.s.namespaces().unallocated() >> 9;
    for (blocks, controllers) in [(total / 2, &[0u16, 1][..]), (1000, &[1])] {
        let made = create_namespace(&mut rig, blocks, controllers.len() > 1);
        assert_eq!(made.status, Status::SUCCESS);
        assert_eq!(attach(&mut rig, made.dw0, false, controllers), Status::SUCCESS);
        assert_eq!(attach(&mut rig, made.dw0, false, controllers), Status::NAMESPACE_ALREADY_ATTACHED);
    }
    assert_eq!(create_namespace(&mut rig, total, false).status, Status::NAMESPACE_INSUFFICIENT_CAPACITY);
    let active = |rig: &mut Rig, function| parse_namespace_list(&identify(rig, function, 2, 0).1);
    assert_eq!((active(&mut rig, 0), active(&mut rig, 1)), (vec![1], vec![1, 2]));
    // What is deleted is deallocated; namespaces do not see each other's data.
    assert_eq!(rig.submit(0, 1, &read).status, Status::SUCCESS);
    assert_eq!(rig.bytes(buffer + 4096, 4096).unwrap(), [0; 4096]);
    assert_eq!(rig.submit(1, 1, &write.with_nsid(2)).status, Status::SUCCESS);
    assert_eq!(rig.submit(0, 1, &read).status, Status::SUCCESS);
    assert_eq!(rig.bytes(buffer + 4096, 4096).unwrap(), [0; 4096]);
    assert_eq!(rig.submit(1, 1, &read.with_nsid(2)).status, Status::SUCCESS);
    assert_eq!(rig.bytes(buffer + 4096, 4096).unwrap(), rig.bytes(buffer, 4096).unwrap());
    assert_eq!(rig.submit(1, 1, &Sqe::read(0, 1000, 0).with_nsid(2)).status, Status::LBA_OUT_OF_RANGE);
    assert_eq!(attach(&mut rig, 2, true, &[1]), Status::SUCCESS);
    assert_eq!(rig.submit(1, 1, &read.with_nsid(2)).status, Status::INVALID_FIELD);
    // All of it is there after a power cut.
    let state = rig.state.clone();
    let again = Rig::with(&tiny(), |options| (options.functions, options.state) = (2, state));
    assert_eq!(again.s.namespaces(), rig.s.namespaces());
}

#[test]
fn a_format_waits_for_what_was_taken_and_forgets_everything() {
    let mut rig = Rig::new();
    rig.enable(0);
    rig.make_queue(0, 1, 16);
    let buffer = rig.alloc(16384);
    rig.memory[buffer as usize..][..4096].fill(9);
    rig.hold = |output| matches!(output, Output::Fetch { .. });
    rig.put(0, 1, &with_prps(&Sqe::write(0, 0, 7), buffer, 0));
    rig.ring(0, 1);
    rig.run();
    let cid = rig.put(0, 0, &admin_sqe(admin_opcode::FORMAT_NVM).with_nsid(1).with_dword(10, 1 << 9 | 1));
    rig.ring(0, 0);
    rig.run();
    assert_eq!(rig.take(0, 0), None, "a write is on its way");
    let late = rig.put(0, 1, &with_prps(&Sqe::read(0, 0, 7), buffer, 0));
    rig.ring(0, 1);
    rig.run();
    assert_eq!(rig.take(0, 1).map(|cqe| (cqe.cid, cqe.status)), Some((late, Status::FORMAT_IN_PROGRESS)));
    rig.let_go();
    assert_eq!(rig.await_completion(0, 0, cid).status, Status::SUCCESS);
    assert!(rig.said.iter().any(|output| matches!(output, Output::Purge { .. })), "a secure erase");
    assert!(rig.take(0, 1).is_some_and(|cqe| cqe.status.is_success()));
    rig.ring_head(0, 1);
    let page = IdentifyNamespace::parse(&identify(&mut rig, 0, 0, 1).1).unwrap();
    assert_eq!((page.flbas & 0xF, page.formats[1].data_shift), (1, 12));
    // Blocks of 4 KiB now.
    let (first, second) = rig.prps(buffer, 8192);
    assert_eq!(rig.submit(0, 1, &with_prps(&Sqe::read(0, 0, 1), first, second)).status, Status::SUCCESS);
    assert_eq!(rig.bytes(buffer, 8192).unwrap(), [0; 8192]);
    assert_eq!(rig.submit(0, 1, &Sqe::verify(0, page.nsze - 1, 0)).status, Status::SUCCESS);
    assert_eq!(rig.submit(0, 1, &Sqe::verify(0, page.nsze, 0)).status, Status::LBA_OUT_OF_RANGE);
    rig.memory[buffer as usize..][..8192].copy_from_slice(&pattern(4, 8192));
    assert_eq!(rig.submit(0, 1, &with_prps(&Sqe::write(0, 5, 1), first, second)).status, Status::SUCCESS);
    let ranges = rig.alloc(4096);
    rig.memory[ranges as usize..][..16].copy_from_slice(&DsmRange::new(6, 1).to_bytes());
    let trim = with_prps(&Sqe::dataset_management(0, 0, true), ranges, 0);
    assert_eq!(rig.submit(0, 1, &trim).status, Status::SUCCESS);
    rig.memory[buffer as usize..][..8192].fill(1);
    assert_eq!(rig.submit(0, 1, &with_prps(&Sqe::read(0, 5, 1), first, second)).status, Status::SUCCESS);
    assert_eq!(rig.bytes(buffer, 4096).unwrap(), &pattern(4, 8192)[..4096]);
    assert_eq!(rig.bytes(buffer + 4096, 4096).unwrap(), [0; 4096]);
    rig.memory[ranges as usize..][..16].copy_from_slice(&DsmRange::new(page.nsze, 1).to_bytes());
    assert_eq!(rig.submit(0, 1, &trim).status, Status::LBA_OUT_OF_RANGE);
}

#[test]
fn a_sanitize_forgets_everything_even_across_a_power_cut() {
    let mut rig = Rig::new();
    rig.enable(0);
    rig.make_queue(0, 1, 16);
    let buffer = rig.alloc(4096);
    rig.memory[buffer as usize..][..4096].fill(9);
    assert_eq!(rig.submit(0, 1, &with_prps(&Sqe::write(0, 0, 7), buffer, 0)).status, Status::SUCCESS);
    rig.hold = |output| matches!(output, Output::Purge { .. });
    let sanitize = admin_sqe(admin_opcode::SANITIZE).with_dword(10, 2);
    assert_eq!(rig.admin(0, &sanitize).status, Status::SUCCESS);
    let read = with_prps(&Sqe::read(0, 0, 7), buffer, 0);
    assert_eq!(rig.submit(0, 1, &read).status, Status::SANITIZE_IN_PROGRESS);
    assert_eq!(rig.admin(0, &sanitize).status, Status::SANITIZE_IN_PROGRESS);
    let state = rig.state.clone();
    rig.let_go();
    rig.run();
    assert_eq!(rig.submit(0, 1, &read).status, Status::SUCCESS);
    assert_eq!(rig.bytes(buffer, 4096).unwrap(), [0; 4096]);
    let (_, log) = get_log(&mut rig, 0, log_page::SANITIZE, 512);
    assert_eq!(log[2] & 7, 1, "succeeded");
    // It goes on after the power was cut.
    let mut again = Rig::with(&tiny(), |options| options.state = state);
    again.run();
    assert!(again.said.iter().any(|output| matches!(output, Output::Purge { .. })));
    again.enable(0);
    let (_, log) = get_log(&mut again, 0, log_page::SANITIZE, 512);
    assert_eq!(log[2] & 7, 1);
}

#[test]
fn host_memory_is_lent_and_taken_back() {
    let mut rig = Rig::with(&tiny(), |options| (options.hmb_preferred, options.hmb_minimum) = (64, 16));
    rig.enable(0);
    let list = rig.alloc(4096);
    for (i, (address, pages)) in [(0x10_0000u64, 16u32), (0x20_0000, 48)].into_iter().enumerate() {
        rig.memory[list as usize + 16 * i..][..8].copy_from_slice(&address.to_le_bytes());
        rig.memory[list as usize + 16 * i + 8..][..4].copy_from_slice(&pages.to_le_bytes());
    }
    let lend = |list: u64, entries: u32| {
        let sqe = set_feature(feature::HOST_MEMORY_BUFFER, 1).with_dword(12, 64);
        sqe.with_dword(13, list as u32).with_dword(14, (list >> 32) as u32).with_dword(15, entries)
    };
    assert_eq!(rig.admin(0, &lend(1 << 40, 2)).status, Status::DATA_TRANSFER_ERROR);
    assert_eq!(rig.admin(0, &lend(list, 0)).status, Status::INVALID_FIELD);
    assert_eq!(rig.admin(0, &lend(list, 257)).status, Status::INVALID_FIELD);
    assert_eq!(rig.admin(0, &lend(list, 1)).status, Status::INVALID_FIELD, "less than was said");
    assert!(rig.s.host_memory(0).is_empty());
    assert_eq!(rig.admin(0, &lend(list, 2)).status, Status::SUCCESS);
    let pieces: Vec<(u64, u32)> = rig.s.host_memory(0).iter().map(|piece| (piece.address, piece.len)).collect();
    assert_eq!(pieces, [(0x10_0000, 16 << 12), (0x20_0000, 48 << 12)]);
    assert_eq!(rig.admin(0, &lend(list, 2)).status, Status::COMMAND_SEQUENCE_ERROR);
    assert_eq!(rig.admin(0, &set_feature(feature::HOST_MEMORY_BUFFER, 0)).status, Status::SUCCESS);
    assert!(rig.s.host_memory(0).is_empty());
    assert_eq!(rig.admin(0, &lend(list, 2)).status, Status::SUCCESS);
    rig.write(0, offset::CC, 0);
    rig.run();
    assert!(rig.s.host_memory(0).is_empty(), "a reset takes it back");
}

#[test]
fn host_memory_that_is_wanted_back_twice_comes_back_twice() {
    let mut profile = tiny();
    for (key, value) in [
        ("memory.hmb.kind", "host"),
        ("memory.hmb.size", "256KiB"),
        ("buffer.read_policy", "lru"),
        ("buffer.read_memory", "hmb"),
        ("buffer.read_size", "256KiB"),
    ] {
        profile.set(key, value).expect("a key and a value");
    }
    let mut rig = Rig::with(&profile, |options| (options.hmb_preferred, options.hmb_minimum) = (64, 16));
    rig.enable(0);
    rig.make_queue(0, 1, 16);
    let list = rig.alloc(4096);
    rig.memory[list as usize..][..8].copy_from_slice(&0x10_0000u64.to_le_bytes());
    rig.memory[list as usize + 8..][..4].copy_from_slice(&64u32.to_le_bytes());
    let lend = set_feature(feature::HOST_MEMORY_BUFFER, 1).with_dword(12, 64).with_dword(13, list as u32);
    let lend = lend.with_dword(15, 1);
    let take_back = set_feature(feature::HOST_MEMORY_BUFFER, 0);
    let buffer = rig.alloc(4096);
    assert_eq!(rig.submit(0, 1, &with_prps(&Sqe::write(0, 0, 7), buffer, 0)).status, Status::SUCCESS);
    assert_eq!(rig.submit(0, 1, &Sqe::flush(0)).status, Status::SUCCESS);
    assert_eq!(rig.admin(0, &lend).status, Status::SUCCESS);
    // A page is on its way into what was lent.
    rig.hold = |output| matches!(output, Output::HostMemory { .. });
    assert_eq!(rig.submit(0, 1, &with_prps(&Sqe::read(0, 0, 7), buffer, 0)).status, Status::SUCCESS);
    assert_eq!(rig.held.len(), 1);
    let cids = [rig.put(0, 0, &take_back), rig.put(0, 0, &take_back)];
    rig.ring(0, 0);
    rig.run();
    assert_eq!(rig.take(0, 0), None, "the drive still uses it");
    // Until it has come back, it is lent.
    let early = rig.admin(0, &lend);
    assert_eq!(early.status, Status::COMMAND_SEQUENCE_ERROR);
    assert_eq!(rig.s.host_memory(0).len(), 1);
    rig.let_go();
    for cid in cids {
        assert_eq!(rig.await_completion(0, 0, cid).status, Status::SUCCESS);
    }
    assert!(rig.s.host_memory(0).is_empty());
    assert_eq!(rig.admin(0, &lend).status, Status::SUCCESS);
    assert_eq!(rig.s.device().host_memory().bytes(), 256 << 10);
}

#[test]
fn blocks_of_4_kib_are_zeroed_and_verified_as_many_as_a_command_can_tell() {
    let mut profile = tiny();
    profile.set("nand.blocks_per_plane", "512").expect("a good value");
    let mut rig = Rig::with(&profile, |options| {
        options.namespaces = vec![Initial { bytes: 72 << 20, block_shift: 12, shared: false }];
    });
    rig.enable(0);
    rig.make_queue(0, 1, 16);
    let buffer = rig.alloc(4096);
    let last = (72 << 8) - 1;
    for (fua, blocks) in [(false, 8_193u64), (true, 16_384), (false, last + 1)] {
        for block in [0, blocks - 1] {
            rig.memory[buffer as usize..][..4096].fill(9);
            let write = with_prps(&Sqe::write(0, block, 0), buffer, 0);
            assert_eq!(rig.submit(0, 1, &write).status, Status::SUCCESS);
        }
        let count = (blocks - 1) as u16;
        assert_eq!(rig.submit(0, 1, &Sqe::verify(0, 0, count)).status, Status::SUCCESS, "{blocks} blocks");
        let zeroes = Sqe::write_zeroes(0, 0, count, true);
        let zeroes = if fua { zeroes.with_fua() } else { zeroes };
        let syncs = rig.syncs;
        assert_eq!(rig.submit(0, 1, &zeroes).status, Status::SUCCESS, "{blocks} blocks");
        assert_eq!(rig.syncs - syncs, u32::from(fua), "it is made safe once, at its end");
        for block in [0, blocks - 1] {
            let read = with_prps(&Sqe::read(0, block, 0), buffer, 0);
            assert_eq!(rig.submit(0, 1, &read).status, Status::SUCCESS);
            assert_eq!(rig.bytes(buffer, 4096).unwrap(), [0; 4096], "block {block} of {blocks}");
        }
    }
    assert_eq!(rig.submit(0, 1, &Sqe::verify(0, last - 9_999, 9_999)).status, Status::SUCCESS);
    assert_eq!(rig.submit(0, 1, &Sqe::verify(0, last - 9_999, 10_000)).status, Status::LBA_OUT_OF_RANGE);
}

#[test]
fn changes_that_could_not_be_told_are_told_again() {
    let mut rig = Rig::new();
    rig.enable(0);
    assert_eq!(rig.admin(0, &set_feature(feature::WRITE_PROTECTION, 1).with_nsid(1)).status, Status::SUCCESS);
    let at = rig.alloc(4096);
    let ask = |offset: u32, at: u64| {
        let sqe =
            admin_sqe(admin_opcode::GET_LOG_PAGE).with_dword(10, u32::from(log_page::CHANGED_NAMESPACES) | 1023 << 16);
        with_prps(&sqe.with_dword(12, offset), at, 0)
    };
    assert_eq!(rig.admin(0, &ask(4100, at)).status, Status::INVALID_FIELD, "nothing is behind the page's end");
    assert_eq!(rig.admin(0, &ask(0, at)).status, Status::SUCCESS);
    assert_eq!(parse_namespace_list(rig.bytes(at, 4096).unwrap()), [1]);
    assert_eq!(rig.admin(0, &ask(0, at)).status, Status::SUCCESS);
    assert_eq!(parse_namespace_list(rig.bytes(at, 4096).unwrap()), [0; 0]);
}

#[test]
fn what_is_protected_is_told_before_what_is_not_there() {
    let mut rig = Rig::new();
    rig.enable(0);
    rig.make_queue(0, 1, 16);
    assert_eq!(rig.admin(0, &set_feature(feature::WRITE_PROTECTION, 1).with_nsid(1)).status, Status::SUCCESS);
    let beyond = 1 << 40;
    let zeroes = Sqe::write_zeroes(0, beyond, 7, false);
    assert_eq!(rig.submit(0, 1, &zeroes).status, Status::NAMESPACE_WRITE_PROTECTED);
    assert_eq!(rig.submit(0, 1, &Sqe::verify(0, beyond, 7)).status, Status::LBA_OUT_OF_RANGE);
}

#[test]
fn writes_without_a_cache_are_durable() {
    let mut rig = Rig::new();
    rig.enable(0);
    rig.make_queue(0, 1, 16);
    let buffer = rig.alloc(4096);
    let write = with_prps(&Sqe::write(0, 0, 7), buffer, 0);
    assert_eq!(rig.submit(0, 1, &write).status, Status::SUCCESS);
    assert_eq!(rig.syncs, 0);
    assert_eq!(rig.admin(0, &set_feature(feature::VOLATILE_WRITE_CACHE, 0)).status, Status::SUCCESS);
    assert!(rig.syncs == 1 && rig.s.device().write_buffer().is_empty(), "what was there is durable");
    assert_eq!(rig.submit(0, 1, &write).status, Status::SUCCESS);
    assert!(rig.syncs == 2 && rig.s.device().write_buffer().is_empty());
    // A store that fails makes a drive that only reads.
    rig.sync_fails = true;
    rig.put(0, 0, &admin_sqe(admin_opcode::ASYNCHRONOUS_EVENT_REQUEST));
    rig.put(0, 0, &set_feature(feature::ASYNC_EVENTS, 0xFF));
    rig.ring(0, 0);
    rig.run();
    assert!(rig.take(0, 0).is_some());
    assert_eq!(rig.submit(0, 1, &write).status, Status::WRITE_FAULT);
    assert_eq!(rig.submit(0, 1, &write).status, Status::NAMESPACE_WRITE_PROTECTED);
    assert_eq!(rig.submit(0, 1, &with_prps(&Sqe::read(0, 0, 7), buffer, 0)).status, Status::SUCCESS);
    assert_eq!(rig.take(0, 0).map(|cqe| cqe.dw0), Some(Event::Reliability.dword()));
    rig.ring_head(0, 0);
    assert_eq!(rig.s.health().critical_warning & 8, 8);
    rig.reads_fail = true;
    assert_eq!(rig.submit(0, 1, &with_prps(&Sqe::read(0, 0, 7), buffer, 0)).status, Status::UNRECOVERED_READ_ERROR);
    assert_eq!(rig.s.health().media_errors, 1);
    let (_, errors) = get_log(&mut rig, 0, log_page::ERROR, 4096);
    assert_eq!(
        u64::from_le_bytes(errors[..8].try_into().unwrap()),
        u64::try_from(rig.s.health().error_entries).unwrap()
    );
}

#[test]
fn events_wait_for_requests_and_for_their_log_page() {
    let mut rig = Rig::new();
    rig.enable(0);
    for _ in 0..5 {
        rig.put(0, 0, &admin_sqe(admin_opcode::ASYNCHRONOUS_EVENT_REQUEST));
    }
    rig.ring(0, 0);
    rig.run();
    assert_eq!(rig.take(0, 0).map(|cqe| (cqe.cid, cqe.status)), Some((4, Status::AER_LIMIT_EXCEEDED)));
    rig.write(0, offset::DOORBELLS + 8 * 40, 1);
    rig.write(0, offset::DOORBELLS + 4, 31);
    rig.write(0, offset::DOORBELLS, 32);
    rig.run();
    assert_eq!(rig.take(0, 0).map(|cqe| cqe.dw0), Some(Event::InvalidDoorbellRegister.dword()));
    assert_eq!(rig.take(0, 0), None, "errors are masked until the log was read");
    rig.ring_head(0, 0);
    let cid = rig.queues[&(0, 0)].next_cid;
    let sqe = admin_sqe(admin_opcode::GET_LOG_PAGE).with_dword(10, u32::from(log_page::ERROR) | 15 << 16);
    let at = rig.alloc(4096);
    rig.put(0, 0, &with_prps(&sqe, at, 0));
    rig.ring(0, 0);
    rig.run();
    let both: Vec<Cqe> = std::iter::from_fn(|| rig.take(0, 0)).collect();
    assert!(
        both.iter().any(|cqe| cqe.cid == cid) && both.iter().any(|cqe| cqe.dw0 == Event::InvalidDoorbellValue.dword())
    );
    rig.ring_head(0, 0);
    // A request can be aborted; other commands have ended by then.
    let abort = |queue: u32, cid: u32| admin_sqe(admin_opcode::ABORT).with_dword(10, queue | cid << 16);
    let cid = rig.put(0, 0, &abort(0, 2));
    rig.ring(0, 0);
    rig.run();
    assert_eq!(rig.take(0, 0).map(|cqe| (cqe.cid, cqe.status)), Some((2, Status::ABORT_REQUESTED)));
    assert_eq!(rig.take(0, 0).map(|cqe| (cqe.cid, cqe.dw0)), Some((cid, 0)));
    rig.ring_head(0, 0);
    assert_eq!(rig.admin(0, &abort(0, 77)).dw0, 1);
    assert_eq!(rig.admin(0, &abort(9, 77)).status, Status::INVALID_FIELD);
}

#[test]
fn warnings_that_a_host_asks_to_hear_of_are_told() {
    let ask = admin_sqe(admin_opcode::ASYNCHRONOUS_EVENT_REQUEST);
    let mut rig = Rig::new();
    rig.enable(0);
    rig.put(0, 0, &ask);
    // Whether the temperature is reported when a command has ended.
    let told = |rig: &mut Rig, sqe: Sqe| {
        rig.put(0, 0, &sqe);
        rig.ring(0, 0);
        rig.run();
        let ended: Vec<u32> = std::iter::from_fn(|| rig.take(0, 0)).map(|cqe| cqe.dw0).collect();
        rig.ring_head(0, 0);
        ended.contains(&Event::Temperature.dword())
    };
    // It is past a threshold before the host wants to hear of it, and after.
    assert!(!told(&mut rig, set_feature(feature::TEMPERATURE_THRESHOLD, 300)));
    assert!(told(&mut rig, set_feature(feature::ASYNC_EVENTS, 2)));
    assert!(!told(&mut rig, set_feature(feature::TEMPERATURE_THRESHOLD, 343)));
    get_log(&mut rig, 0, log_page::SMART, 512);
    assert!(!told(&mut rig, ask));
    assert!(told(&mut rig, set_feature(feature::TEMPERATURE_THRESHOLD, 300)));

    // Blocks that fail use up the spare ones.
    let mut profile = tiny();
    profile.set("nand.erase_fail_rate", "0.02").expect("a good value");
    let mut rig = Rig::with(&profile, |_| {});
    rig.enable(0);
    rig.make_queue(0, 1, 16);
    rig.admin(0, &set_feature(feature::ASYNC_EVENTS, 1));
    rig.put(0, 0, &ask);
    rig.ring(0, 0);
    let buffer = rig.alloc(128 << 10);
    let (first, second) = rig.prps(buffer, 128 << 10);
    let units = rig.s.device().capacity() >> 17;
    for round in 0..100_000 {
        let write = Sqe::write(0, round * 7 % units * 256, 255);
        rig.submit(0, 1, &with_prps(&write, first, second));
        if rig.s.health().critical_warning & 1 != 0 {
            break;
        }
        assert_eq!(rig.take(0, 0), None, "spare: {} %", rig.s.health().available_spare);
    }
    assert!(rig.s.health().available_spare < 10);
    rig.run();
    assert_eq!(rig.take(0, 0).map(|cqe| cqe.dw0), Some(Event::SpareBelowThreshold.dword()));
}

#[test]
fn faults_do_what_they_say() {
    let mut rig = Rig::new();
    rig.enable(0);
    rig.make_queue(0, 1, 16);
    let inject = |rig: &mut Rig, fault| rig.input(Input::Inject(fault));
    let status = Status::UNRECOVERED_READ_ERROR.bits();
    inject(&mut rig, Fault::Status { nsid: 1, blocks: (100, 200), status, count: 2 });
    for (slba, nlb, hit) in [(0, 99, false), (0, 100, true), (200, 0, false), (199, 5, true), (150, 0, false)] {
        let expected = if hit { Status::UNRECOVERED_READ_ERROR.with_dnr(false) } else { Status::SUCCESS };
        assert_eq!(rig.submit(0, 1, &Sqe::verify(0, slba, nlb)).status, expected, "{slba} + {nlb}");
    }
    inject(&mut rig, Fault::Delay { function: 0, by: Duration::from_ms(50), count: 1 });
    let before = rig.now;
    rig.submit(0, 1, &Sqe::flush(0));
    assert!(rig.now.since(before) >= Duration::from_ms(50));
    inject(&mut rig, Fault::Duplicate { function: 0, count: 1 });
    let cid = rig.submit(0, 1, &Sqe::flush(0)).cid;
    assert_eq!(rig.take(0, 1).map(|cqe| cqe.cid), Some(cid));
    rig.ring_head(0, 1);
    inject(&mut rig, Fault::Lose { function: 0, count: 1 });
    rig.put(0, 1, &Sqe::flush(0));
    rig.ring(0, 1);
    rig.run();
    assert_eq!(rig.take(0, 1), None);
    assert_eq!(rig.submit(0, 1, &Sqe::flush(0)).status, Status::SUCCESS);
    inject(&mut rig, Fault::StuckShutdown { function: 0 });
    rig.write(0, offset::CC, 0x0046_4001);
    rig.run();
    assert_eq!(rig.read(0, offset::CSTS) >> 2 & 3, 1);
    inject(&mut rig, Fault::Clear);
    assert_eq!(rig.read(0, offset::CSTS) >> 2 & 3, 2);
    rig.write(0, offset::CC, 0);
    rig.enable(0);
    inject(&mut rig, Fault::Fatal { function: 0 });
    assert_eq!(rig.read(0, offset::CSTS), 3);
    inject(&mut rig, Fault::Fatal { function: 200 });
    rig.write(0, offset::CC, 0);
    rig.enable(0);
}

#[test]
fn a_stuck_shutdown_is_one_shutdown_and_ends_with_a_reset() {
    let mut rig = Rig::new();
    rig.enable(0);
    let shutdown = |rig: &mut Rig| {
        rig.write(0, offset::CC, 0x0046_4001);
        rig.run();
        rig.read(0, offset::CSTS) >> 2 & 3
    };
    rig.input(Input::Inject(Fault::StuckShutdown { function: 0 }));
    assert_eq!(shutdown(&mut rig), 1);
    rig.write(0, offset::CC, 0);
    rig.enable(0);
    assert_eq!(shutdown(&mut rig), 2);
}

#[test]
fn a_self_test_takes_its_time() {
    let mut rig = Rig::new();
    rig.enable(0);
    let start = |code| admin_sqe(admin_opcode::DEVICE_SELF_TEST).with_dword(10, code);
    assert_eq!(rig.admin(0, &start(1)).status, Status::SUCCESS);
    assert_eq!(rig.admin(0, &start(2)).status, Status::SELF_TEST_IN_PROGRESS);
    let (_, log) = get_log(&mut rig, 0, log_page::SELF_TEST, 564);
    assert_eq!(log[0] & 0xF, 1);
    let before = rig.now;
    rig.run();
    assert!(rig.now.since(before) > Duration::from_ms(1_900));
    let (_, log) = get_log(&mut rig, 0, log_page::SELF_TEST, 564);
    assert_eq!((log[0], log[4]), (0, 0x10), "a short test that has passed");
}

/// What was started and aborted leaves nothing behind: a host that does so all day fills no memory.
#[test]
fn deadlines_of_self_tests_that_were_aborted_are_not_kept() {
    let mut rig = Rig::new();
    rig.enable(0);
    let order = |code| admin_sqe(admin_opcode::DEVICE_SELF_TEST).with_dword(10, code);
    for _ in 0..200 {
        assert_eq!(rig.admin(0, &order(2)).status, Status::SUCCESS);
        assert_eq!(rig.admin(0, &order(0xF)).status, Status::SUCCESS);
    }
    assert_eq!(rig.admin(0, &order(2)).status, Status::SUCCESS);
    assert_eq!(rig.s.parts().2.len(), 1);
    let before = rig.now;
    rig.run();
    assert!(rig.now.since(before) > Duration::from_ms(59_000));
    let (_, log) = get_log(&mut rig, 0, log_page::SELF_TEST, 564);
    assert_eq!((log[0], log[4]), (0, 0x20), "an extended test that has passed");
}

/// A namespace that takes the blocks of one whose deletion still waits for a write gets them when they are forgotten:
/// else what is written to the new one would be forgotten with the old one.
#[test]
fn a_namespace_is_made_when_the_blocks_of_the_one_before_are_forgotten() {
    let mut rig = Rig::new();
    rig.enable(0);
    rig.make_queue(0, 1, 16);
    let buffer = rig.alloc(8192);
    rig.memory[buffer as usize..][..4096].copy_from_slice(&pattern(1, 4096));
    rig.hold = |output| matches!(output, Output::Fetch { .. });
    let late = rig.put(0, 1, &with_prps(&Sqe::write(0, 0, 7), buffer, 0));
    rig.ring(0, 1);
    rig.run();
    let deleted = rig.put(0, 0, &delete(1));
    rig.ring(0, 0);
    rig.run();
    let at = rig.alloc(4096);
    let data = NamespaceManagement { nsze: 64, ncap: 64, ..NamespaceManagement::default() };
    rig.memory[at as usize..][..4096].copy_from_slice(&data.to_bytes());
    let made = rig.put(0, 0, &with_prps(&admin_sqe(admin_opcode::NAMESPACE_MANAGEMENT), at, 0));
    rig.ring(0, 0);
    rig.run();
    assert_eq!(rig.take(0, 0), None, "a write is on its way to these blocks");
    rig.let_go();
    assert_eq!(rig.await_completion(0, 0, deleted).status, Status::SUCCESS);
    let made = rig.await_completion(0, 0, made);
    assert_eq!((made.status, made.dw0), (Status::SUCCESS, 1));
    assert!(rig.take(0, 1).is_some_and(|cqe| cqe.cid == late));
    rig.ring_head(0, 1);
    assert_eq!(attach(&mut rig, 1, false, &[0]), Status::SUCCESS);
    let read = with_prps(&Sqe::read(0, 0, 7), buffer + 4096, 0);
    assert_eq!(rig.submit(0, 1, &read).status, Status::SUCCESS);
    assert_eq!(rig.bytes(buffer + 4096, 4096).unwrap(), [0; 4096]);
    let write = with_prps(&Sqe::write(0, 0, 7), buffer, 0);
    assert_eq!(rig.submit(0, 1, &write).status, Status::SUCCESS);
    rig.run();
    assert_eq!(rig.submit(0, 1, &read).status, Status::SUCCESS);
    assert_eq!(rig.bytes(buffer + 4096, 4096).unwrap(), rig.bytes(buffer, 4096).unwrap());
}

/// A power cut may come between the deletion of a namespace and the moment when its blocks are forgotten.
#[test]
fn a_new_namespace_shows_nothing_of_one_that_a_power_cut_kept_from_being_forgotten() {
    let mut rig = Rig::new();
    rig.enable(0);
    rig.make_queue(0, 1, 16);
    let buffer = rig.alloc(4096);
    rig.memory[buffer as usize..][..4096].copy_from_slice(&pattern(1, 4096));
    assert_eq!(rig.submit(0, 1, &with_prps(&Sqe::write(0, 0, 7), buffer, 0)).status, Status::SUCCESS);
    let mut other = Rig::new();
    other.enable(0);
    assert_eq!(other.admin(0, &delete(1)).status, Status::SUCCESS);
    let mut options = rig.s.options().clone();
    (options.state, options.first_version) = (other.state.clone(), rig.s.next_version());
    let store = std::mem::take(&mut rig.store);
    let mut again = Rig::over(rig.s.into_device(), options);
    again.store = store;
    again.enable(0);
    again.make_queue(0, 1, 16);
    let made = create_namespace(&mut again, 64, false);
    assert_eq!(made.status, Status::SUCCESS);
    assert_eq!(attach(&mut again, made.dw0, false, &[0]), Status::SUCCESS);
    let buffer = again.alloc(4096);
    again.memory[buffer as usize..][..4096].fill(9);
    let read = with_prps(&Sqe::read(0, 0, 7).with_nsid(made.dw0), buffer, 0);
    assert_eq!(again.submit(0, 1, &read).status, Status::SUCCESS);
    assert_eq!(again.bytes(buffer, 4096).unwrap(), [0; 4096]);
    let state = again.state.clone();
    let third = Rig::with(&tiny(), |options| options.state = state);
    assert_eq!(third.s.namespaces(), again.s.namespaces(), "and it is there after a power cut");
}

#[test]
fn queues_name_a_completion_queue_that_there_can_be() {
    let mut rig = Rig::new();
    rig.enable(0);
    let at = rig.alloc(4096);
    assert_eq!(rig.admin(0, &create_cq(1, at, 8, 0)).status, Status::SUCCESS);
    let queues = rig.s.options().queues;
    let mut create = |completion| rig.admin(0, &create_sq(1, at, 8, completion)).status;
    for completion in [0, queues + 1, u16::MAX] {
        assert_eq!(create(completion), Status::INVALID_QUEUE_ID, "{completion}");
    }
    assert_eq!(create(queues), Status::COMPLETION_QUEUE_INVALID, "it may be, and is not there");
    assert_eq!(create(1), Status::SUCCESS);
}

#[test]
fn log_pages_that_are_not_there_are_no_log_pages() {
    let mut rig = Rig::new();
    rig.enable(0);
    let there = get_log(&mut rig, 0, log_page::SUPPORTED_PAGES, 1024).1;
    let there = tidewater_wire::nvme::log::parse_supported_pages(&there);
    for lid in 0..=0xFF {
        let expected = if there.contains(&lid) { Status::SUCCESS } else { Status::INVALID_LOG_PAGE };
        assert_eq!(get_log(&mut rig, 0, lid, 512).0, expected, "{lid:02X}h");
    }
}

#[test]
fn an_error_names_a_block_where_its_command_does() {
    let mut rig = Rig::new();
    rig.enable(0);
    rig.make_queue(0, 1, 16);
    let data = rig.alloc(4096);
    let lba = |rig: &mut Rig, sqe: Sqe| {
        assert!(!rig.submit(0, 1, &with_prps(&sqe, data, 0)).status.is_success());
        let page = get_log(rig, 0, log_page::ERROR, 64).1;
        tidewater_wire::nvme::log::parse_error_page(&page)[0].lba
    };
    assert_eq!(lba(&mut rig, Sqe::read(0, 1 << 40, 7)), 1 << 40);
    assert_eq!(lba(&mut rig, Sqe::verify(0, 1 << 40, 7)), 1 << 40);
    let reservation = Sqe::default().with_dword(0, 0x11).with_nsid(1).with_dword(10, 0x100);
    assert_eq!(lba(&mut rig, reservation), 0);
    assert_eq!(lba(&mut rig, Sqe::dataset_management(0, 3, true).with_nsid(9)), 0);
}

#[test]
fn a_controller_fails_when_its_host_is_silent_for_too_long() {
    let mut rig = Rig::new();
    rig.enable(0);
    assert_eq!(rig.admin(0, &set_feature(feature::KEEP_ALIVE, 1_000)).status, Status::SUCCESS);
    let wait = |rig: &mut Rig, ms| {
        let end = rig.now + Duration::from_ms(ms);
        while rig.now < end {
            rig.now = rig.s.deadline().unwrap_or(end).min(end);
            rig.input(Input::Timer);
        }
        rig.settle();
    };
    wait(&mut rig, 900);
    assert_eq!(rig.admin(0, &admin_sqe(admin_opcode::KEEP_ALIVE)).status, Status::SUCCESS);
    wait(&mut rig, 900);
    assert_eq!(rig.read(0, offset::CSTS), 1, "Keep Alive has restarted the timer");
    wait(&mut rig, 101);
    assert_eq!(rig.read(0, offset::CSTS), 3, "CFS");
    rig.write(0, offset::CC, 0x0046_0000);
    rig.run();
    rig.enable(0);
    let page = get_log(&mut rig, 0, log_page::ERROR, 64).1;
    let entry = tidewater_wire::nvme::log::parse_error_page(&page)[0];
    assert_eq!((entry.sqid, entry.cid), (0xFFFF, 0xFFFF), "it is of no command");
    wait(&mut rig, 10_000);
    assert_eq!(rig.read(0, offset::CSTS), 1, "a reset has stopped the timer");
}
