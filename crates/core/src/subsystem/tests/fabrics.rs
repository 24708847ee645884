//! Controllers of fabrics hosts: capsules, keep-alive, rights, leaving. And the fast side's commands, by capsules and
//! queues.

use super::admin::set_feature;
use super::*;
use tidewater_wire::fabrics::DataPointer;
use tidewater_wire::nvme::feature;
use tidewater_wire::vendor::{
    AdminCommand, ControlPage, Epoch, IoCommand, ReadLogHeader, TrimTo, status as vendor_status,
};

fn rig() -> Rig {
    let mut rig = Rig::with(&tiny(), |options| options.fabrics = 3);
    rig.input(Input::Connect { function: 1, entries: 32, privileged: false, keep_alive_ms: 0 });
    rig
}

fn capsule(rig: &mut Rig, function: u8, queue: u16, cid: u16, sqe: &Sqe) -> Option<Cqe> {
    let sqe = sqe.with_dword(0, sqe.dwords()[0] & 0xFFFF | u32::from(cid) << 16 | 1 << 14);
    rig.capsules.clear();
    rig.input(Input::Capsule { function, queue, sqe });
    rig.run();
    rig.capsules
        .iter()
        .find(|(_, _, cqe)| cqe.cid == cid)
        .map(|&(_, _, cqe)| Cqe { status: cqe.status.with_more(false), ..cqe })
}

fn enable(rig: &mut Rig, function: u8) {
    rig.write(function, offset::CC, 0x0046_0001);
    rig.run();
    assert_eq!(rig.read(function, offset::CSTS), 1);
}

#[test]
fn capsules_carry_commands_and_data() {
    let mut rig = rig();
    let keep_alive = admin_sqe(admin_opcode::KEEP_ALIVE);
    assert_eq!(capsule(&mut rig, 1, 0, 1, &keep_alive).unwrap().status, Status::COMMAND_SEQUENCE_ERROR, "not enabled");
    enable(&mut rig, 1);
    let identify = admin_sqe(admin_opcode::IDENTIFY).with_dword(10, 1);
    let cqe = capsule(&mut rig, 1, 0, 2, &identify).unwrap();
    assert_eq!((cqe.status, cqe.sq_head), (Status::SUCCESS, 1));
    assert_eq!(rig.capsule_data[&(1, 0, 2)].len(), 4096);
    assert_eq!(capsule(&mut rig, 1, 0, 3, &create_cq(1, 0x1000, 4, 0)).unwrap().status, Status::INVALID_OPCODE);
    assert_eq!(capsule(&mut rig, 1, 1, 4, &Sqe::flush(0)), None, "no such queue");
    rig.input(Input::ConnectQueue { function: 1, queue: 1, entries: 8 });
    let data = pattern(5, 12_288);
    for cid in 0..30 {
        rig.capsule_data.insert((1, 1, cid), data.clone());
        assert_eq!(capsule(&mut rig, 1, 1, cid, &Sqe::write(0, 5, 23)).unwrap().status, Status::SUCCESS);
        rig.capsule_data.insert((1, 1, cid), Vec::new());
        let cqe = capsule(&mut rig, 1, 1, cid, &Sqe::read(0, 5, 23)).unwrap();
        assert_eq!((cqe.status, cqe.sq_head), (Status::SUCCESS, (2 * cid + 2) % 8));
        assert_eq!(rig.capsule_data[&(1, 1, cid)], data);
    }
    let range = tidewater_wire::nvme::DsmRange::new(0, 64).to_bytes().to_vec();
    rig.capsule_data.insert((1, 1, 1), range);
    let trim = Sqe::dataset_management(0, 0, true);
    assert_eq!(capsule(&mut rig, 1, 1, 1, &trim).unwrap().status, Status::SUCCESS);
    assert_eq!(capsule(&mut rig, 1, 1, 2, &Sqe::read(0, 8, 15)).unwrap().status, Status::SUCCESS);
    assert_eq!(rig.capsule_data[&(1, 1, 2)][..8192], [0; 8192]);
    // Rights.
    for sqe in [
        admin_sqe(admin_opcode::FORMAT_NVM).with_nsid(1),
        admin_sqe(admin_opcode::SANITIZE).with_dword(10, 2),
        admin_sqe(admin_opcode::NAMESPACE_MANAGEMENT).with_dword(10, 1).with_nsid(1),
        admin_sqe(0xD4).with_dword(10, 0),
        admin_sqe(admin_opcode::DEVICE_SELF_TEST).with_dword(10, 1).with_nsid(1),
        // What all controllers share: write protection, until it is lifted and until the power is cut, and two features
        // more.
        set_feature(feature::WRITE_PROTECTION, 1).with_nsid(1),
        set_feature(feature::WRITE_PROTECTION, 2).with_nsid(1),
        set_feature(feature::SANITIZE_CONFIG, 1),
        set_feature(feature::SOFTWARE_PROGRESS, 1),
    ] {
        assert_eq!(capsule(&mut rig, 1, 0, 9, &sqe).unwrap().status, Status::OPERATION_DENIED, "{:02X}h", sqe.opcode());
    }
    assert_eq!(
        capsule(&mut rig, 1, 1, 9, &IoCommand::ReadControlPage.emit(0)).unwrap().status,
        Status::OPERATION_DENIED
    );
}

/// A host would repeat a command that ends without Do Not Retry, and fail in the same way each time.
#[test]
fn a_data_pointer_that_is_too_short_is_refused_for_good() {
    let mut rig = rig();
    enable(&mut rig, 1);
    rig.input(Input::ConnectQueue { function: 1, queue: 1, entries: 8 });
    let too_short = Status::DATA_SGL_LENGTH_INVALID;
    assert!(too_short.dnr());
    let transport = |len| DataPointer::Transport { len };
    let inside = |len| DataPointer::Capsule { offset: 0, len };
    let mut try_ = |queue: u16, sqe: Sqe, pointer: DataPointer, status: Status| {
        rig.capsule_data.insert((1, queue, 7), vec![0; 4096]);
        let ended = capsule(&mut rig, 1, queue, 7, &pointer.put(sqe)).unwrap();
        assert_eq!(ended.status, status, "queue {queue}, {sqe:?}, {pointer:?}");
    };
    for len in [0, 4, 256, 511] {
        try_(1, Sqe::read(0, 1, 0), transport(len), too_short);
        try_(1, Sqe::write(0, 1, 0), transport(len), too_short);
        try_(1, Sqe::compare(0, 1, 0), transport(len), too_short);
        try_(1, Sqe::write(0, 1, 0), inside(len), too_short);
    }
    try_(1, Sqe::read(0, 1, 7), transport(4095), too_short);
    try_(1, Sqe::dataset_management(0, 0, true), transport(15), too_short);
    for len in [0, 1024, 4092] {
        try_(0, admin_sqe(admin_opcode::IDENTIFY).with_dword(10, 1), transport(len), too_short);
    }
    try_(1, Sqe::read(0, 1, 0), inside(512), Status::SGL_TYPE_INVALID);
    // Room for more than there is, is no fault.
    try_(1, Sqe::read(0, 1, 7), transport(8192), Status::SUCCESS);
    try_(0, admin_sqe(admin_opcode::IDENTIFY).with_dword(10, 1), transport(4096), Status::SUCCESS);
}

#[test]
fn remote_controllers_alone_say_that_all_traffic_keeps_them_alive() {
    let mut rig = rig();
    enable(&mut rig, 1);
    let identify = admin_sqe(admin_opcode::IDENTIFY).with_dword(10, 1);
    assert!(capsule(&mut rig, 1, 0, 2, &identify).unwrap().status.is_success());
    let said = |page: &[u8]| u32::from_le_bytes(*page[96..].first_chunk().unwrap()) >> 6 & 1;
    assert_eq!(said(&rig.capsule_data[&(1, 0, 2)]), 1);
    rig.enable(0);
    assert_eq!(said(&super::bring_up::identify(&mut rig, 0, 1, 0).1), 0);
}

#[test]
fn the_number_of_queues_is_settled_once_one_has_connected() {
    let mut rig = rig();
    rig.input(Input::Connect { function: 2, entries: 32, privileged: false, keep_alive_ms: 0 });
    enable(&mut rig, 2);
    let number = set_feature(feature::NUMBER_OF_QUEUES, 1 << 16 | 1);
    let set = |rig: &mut Rig, cid: u16| capsule(rig, 2, 0, cid, &number).unwrap().status;
    assert_eq!(set(&mut rig, 1), Status::SUCCESS);
    rig.input(Input::ConnectQueue { function: 2, queue: 1, entries: 16 });
    assert_eq!(set(&mut rig, 2), Status::COMMAND_SEQUENCE_ERROR);
}

/// A write whose data the connection has to ask the host for.
fn transfer(cid: u16) -> Sqe {
    DataPointer::Transport { len: 4096 }.put(Sqe::write(cid, u64::from(cid) * 8, 7))
}

fn send(rig: &mut Rig, function: u8, queue: u16, sqe: Sqe) {
    rig.input(Input::Capsule { function, queue, sqe });
    rig.run();
}

#[test]
fn a_queue_whose_connection_has_gone_is_free_when_its_commands_have_ended() {
    let mut rig = rig();
    enable(&mut rig, 1);
    let gone = |rig: &Rig| {
        let gone = |output: &&Output| matches!(output, Output::QueueGone { function: 1, queue: 1 });
        rig.said.iter().filter(gone).count()
    };
    for round in 1..=5 {
        rig.input(Input::ConnectQueue { function: 1, queue: 1, entries: 8 });
        assert_eq!(capsule(&mut rig, 1, 1, 7, &Sqe::flush(0)).unwrap().status, Status::SUCCESS, "round {round}");
        rig.hold = |output| matches!(output, Output::Fetch { .. });
        assert_eq!(capsule(&mut rig, 1, 1, 8, &Sqe::write(0, 0, 7)), None);
        rig.input(Input::DisconnectQueue { function: 1, queue: 1 });
        rig.input(Input::DisconnectQueue { function: 1, queue: 1 });
        // Neither takes it anything, nor can it be connected: the write may still change blocks.
        rig.input(Input::ConnectQueue { function: 1, queue: 1, entries: 8 });
        assert_eq!(capsule(&mut rig, 1, 1, 9, &Sqe::flush(0)), None);
        assert_eq!(gone(&rig), round - 1);
        rig.hold = |_| false;
        rig.let_go();
        rig.run();
        assert_eq!(gone(&rig), round);
    }
    // One without commands is free at once; what there is not, changes nothing.
    rig.input(Input::ConnectQueue { function: 1, queue: 1, entries: 8 });
    for (function, queue) in [(1, 1), (1, 1), (1, 0), (1, 2), (0, 1), (2, 1), (9, 1), (1, 700)] {
        rig.input(Input::DisconnectQueue { function, queue });
    }
    rig.run();
    assert_eq!(
        (gone(&rig), rig.said.iter().filter(|output| matches!(output, Output::QueueGone { .. })).count()),
        (6, 6)
    );
    // A reset takes a queue that is on its way out along.
    rig.input(Input::ConnectQueue { function: 1, queue: 1, entries: 8 });
    rig.hold = |output| matches!(output, Output::Fetch { .. });
    assert_eq!(capsule(&mut rig, 1, 1, 8, &Sqe::write(0, 0, 7)), None);
    rig.input(Input::DisconnectQueue { function: 1, queue: 1 });
    rig.write(1, offset::CC, 0);
    rig.hold = |_| false;
    rig.let_go();
    rig.run();
    enable(&mut rig, 1);
    rig.input(Input::ConnectQueue { function: 1, queue: 1, entries: 8 });
    assert_eq!(capsule(&mut rig, 1, 1, 7, &Sqe::flush(0)).unwrap().status, Status::SUCCESS);
}

/// Hosts that do not send what they are asked for hold slots. Those of others are not among them, and neither are all
/// of their own.
#[test]
fn commands_that_wait_for_their_hosts_leave_slots_to_others() {
    let mut rig = rig();
    rig.enable(0);
    rig.make_queue(0, 1, 16);
    for function in [2, 3] {
        rig.input(Input::Connect { function, entries: 32, privileged: false, keep_alive_ms: 0 });
    }
    for function in 1..=3 {
        enable(&mut rig, function);
        for queue in 1..=2 {
            rig.input(Input::ConnectQueue { function, queue, entries: 64 });
        }
    }
    rig.hold = |output| matches!(output, Output::Fetch { .. });
    for cid in 0..40 {
        for function in [1, 2] {
            send(&mut rig, function, 1, transfer(cid));
        }
    }
    let held = |rig: &Rig, function: u8| {
        let of = |slot: Slot| rig.s.command(slot).is_some_and(|command| command.function == function);
        rig.held.iter().filter(|output| matches!(output, Output::Fetch { slot, .. } if of(*slot))).count()
    };
    assert_eq!((held(&rig, 1), held(&rig, 2)), (4, 4), "of 32 slots");
    // The other queue of such a host, another host, and the PCI function have slots for what needs no such wait.
    for function in 1..=3 {
        assert_eq!(capsule(&mut rig, function, 2, 99, &Sqe::read(0, 0, 7)).unwrap().status, Status::SUCCESS);
    }
    let flush = Sqe::flush(0);
    assert_eq!(rig.submit(0, 1, &flush).status, Status::SUCCESS);
    // Once the data comes, all of them end.
    rig.hold = |_| false;
    rig.capsules.clear();
    rig.let_go();
    rig.run();
    assert_eq!(rig.capsules.len(), 80);
    assert!(rig.capsules.iter().all(|(_, _, cqe)| cqe.status.is_success()));
}

/// Commands that the drive works on share slots too: one host that has all it can get leaves each other one some.
#[test]
fn no_host_takes_the_slots_of_all() {
    let mut rig = rig();
    rig.input(Input::Connect { function: 2, entries: 32, privileged: false, keep_alive_ms: 0 });
    for function in 1..=2 {
        enable(&mut rig, function);
        for queue in 1..=2 {
            rig.input(Input::ConnectQueue { function, queue, entries: 128 });
        }
    }
    rig.hold = |output| matches!(output, Output::Sync { .. });
    for cid in 0..100 {
        for queue in 1..=2 {
            send(&mut rig, 1, queue, Sqe::flush(cid));
        }
    }
    let syncs = rig.held.len();
    assert_eq!(syncs, 32 - 4 - 3, "but those for admin commands, and one for each other controller");
    assert_eq!(capsule(&mut rig, 2, 1, 1, &Sqe::read(0, 0, 7)).unwrap().status, Status::SUCCESS);
    rig.hold = |_| false;
    rig.capsules.clear();
    rig.let_go();
    rig.run();
    assert_eq!(rig.capsules.len(), 200);
}

#[test]
fn a_host_that_leaves_is_gone_when_its_commands_have_ended() {
    let mut rig = rig();
    enable(&mut rig, 1);
    rig.input(Input::ConnectQueue { function: 1, queue: 1, entries: 8 });
    rig.hold = |output| matches!(output, Output::Fetch { .. });
    assert_eq!(capsule(&mut rig, 1, 1, 7, &Sqe::write(0, 0, 7)), None);
    rig.input(Input::Disconnect { function: 1 });
    rig.run();
    let gone = |rig: &Rig| rig.said.iter().filter(|output| matches!(output, Output::Gone { function: 1 })).count();
    assert_eq!(gone(&rig), 0);
    rig.input(Input::Connect { function: 1, entries: 32, privileged: true, keep_alive_ms: 0 });
    rig.let_go();
    rig.run();
    assert_eq!((gone(&rig), rig.capsules.len()), (1, 0));
    // The next host of this number finds nothing of it.
    rig.input(Input::Connect { function: 1, entries: 32, privileged: true, keep_alive_ms: 0 });
    assert_eq!(rig.read(1, offset::CSTS), 0);
    enable(&mut rig, 1);
    assert_eq!(capsule(&mut rig, 1, 1, 7, &Sqe::flush(0)), None);
    rig.input(Input::ConnectQueue { function: 1, queue: 1, entries: 8 });
    assert_eq!(capsule(&mut rig, 1, 1, 7, &Sqe::flush(0)).unwrap().status, Status::SUCCESS);
    // More commands than the queue has entries are a fault of the host.
    rig.hold = |output| matches!(output, Output::Sync { .. });
    for cid in 0..200 {
        rig.input(Input::Capsule {
            function: 1,
            queue: 1,
            sqe: Sqe::flush(cid).with_dword(0, u32::from(cid) << 16 | 1 << 14),
        });
    }
    assert_eq!(rig.read(1, offset::CSTS) & 2, 2);
    rig.input(Input::Disconnect { function: 1 });
    rig.let_go();
    rig.run();
    assert_eq!(gone(&rig), 2);
    for function in [0, 2, 9, 255] {
        rig.input(Input::Disconnect { function });
        rig.input(Input::ConnectQueue { function, queue: 1, entries: 1 });
        rig.input(Input::Capsule { function, queue: 700, sqe: Sqe::flush(0) });
        rig.input(Input::FunctionReset { function });
    }
    rig.run();
    assert_eq!(gone(&rig), 2);
}

#[test]
fn no_host_resets_the_subsystem() {
    let mut rig = rig();
    rig.enable(0);
    rig.input(Input::Connect { function: 2, entries: 32, privileged: false, keep_alive_ms: 0 });
    enable(&mut rig, 1);
    rig.input(Input::ConnectQueue { function: 1, queue: 1, entries: 8 });
    for function in 0..2 {
        rig.write(function, offset::NSSR, 0x4E56_4D65);
        rig.run();
        for other in 0..2 {
            assert_eq!(rig.read(other, offset::CSTS), 1, "{other} is ready, whatever {function} wrote");
        }
    }
    assert_eq!(capsule(&mut rig, 1, 1, 7, &Sqe::flush(0)).unwrap().status, Status::SUCCESS);
    assert!(!rig.said.iter().any(|output| matches!(output, Output::Gone { .. })));
}

#[test]
fn silence_is_told() {
    let mut rig = rig();
    rig.input(Input::Connect { function: 2, entries: 32, privileged: false, keep_alive_ms: 1_000 });
    enable(&mut rig, 1);
    let expired =
        |rig: &Rig| rig.said.iter().filter(|output| matches!(output, Output::KeepAliveExpired { .. })).count();
    rig.run();
    assert_eq!((expired(&rig), rig.now.since(Instant::ZERO)), (1, Duration::from_ms(1_000)));
    // By Set Features, and put off by every command.
    rig.capsules.clear();
    let sqe = set_feature(feature::KEEP_ALIVE, 2_000).with_dword(0, 0x4009);
    rig.input(Input::Capsule { function: 1, queue: 0, sqe });
    rig.run_until(|rig| !rig.capsules.is_empty());
    let end = rig.now + Duration::from_ms(1_500);
    while rig.now < end {
        assert!(rig.s.deadline().is_some());
        rig.now = rig.s.deadline().unwrap().min(end);
        rig.input(Input::Timer);
    }
    let sqe = admin_sqe(admin_opcode::KEEP_ALIVE).with_dword(0, 0x18 | 1 << 14);
    rig.input(Input::Capsule { function: 1, queue: 0, sqe });
    rig.run_until(|rig| expired(rig) == 2);
    assert!(rig.now >= end + Duration::from_ms(2_000));
}

#[test]
fn a_time_out_that_is_set_again_and_again_is_one() {
    let mut rig = rig();
    rig.input(Input::Connect { function: 1, entries: 32, privileged: false, keep_alive_ms: 1_000 });
    enable(&mut rig, 1);
    for i in 0..200 {
        let sqe = set_feature(feature::KEEP_ALIVE, u32::MAX - i).with_dword(0, 0x4009);
        rig.input(Input::Capsule { function: 1, queue: 0, sqe });
        rig.run_until(|rig| !rig.capsules.is_empty());
        rig.capsules.clear();
    }
    assert_eq!(rig.s.parts().2.len(), 1);
}

/// A drive that was made for one controller has a namespace that is private, and every controller's. Served to more, it
/// is shared.
#[test]
fn a_drive_that_was_made_for_one_controller_is_there_for_hosts_over_fabrics() {
    let mut alone = Rig::with(&tiny(), |options| options.functions = 1);
    alone.enable(0);
    alone.run();
    let state = alone.state.clone();
    let mut rig = Rig::with(&tiny(), |options| (options.functions, options.fabrics, options.state) = (1, 2, state));
    for function in [1, 2] {
        rig.input(Input::Connect { function, entries: 32, privileged: false, keep_alive_ms: 0 });
        enable(&mut rig, function);
        assert_eq!(rig.s.namespaces().active(function).collect::<Vec<_>>(), [1]);
    }
    // One that a host has made for itself stays its own.
    let made = super::admin::create_namespace;
    let mut host = Rig::with(&tiny(), |options| options.functions = 1);
    host.enable(0);
    assert_eq!(host.admin(0, &super::admin::delete(1)).status, Status::SUCCESS);
    assert_eq!(made(&mut host, 64, false).status, Status::SUCCESS);
    assert_eq!(super::admin::attach(&mut host, 1, false, &[0]), Status::SUCCESS);
    let state = host.state.clone();
    let mut rig = Rig::with(&tiny(), |options| (options.functions, options.fabrics, options.state) = (1, 1, state));
    rig.input(Input::Connect { function: 1, entries: 32, privileged: false, keep_alive_ms: 0 });
    assert_eq!(rig.s.namespaces().active(1).count(), 0);
    assert_eq!(rig.s.namespaces().active(0).collect::<Vec<_>>(), [1]);
}

#[test]
fn the_fast_side_is_reached_by_queues() {
    let mut profile = builtin("tiny").unwrap();
    profile.fast.size = 16 << 10;
    profile.fast.queue_size = 4096;
    profile.fast.log_size = 1 << 20;
    profile.fast.functions = 2;
    profile.memories.iter_mut().for_each(|memory| memory.survives = crate::profile::Survives::ByCapacitors);
    let mut rig = Rig::with(&profile, |options| (options.functions, options.cmb) = (2, 8192));
    assert_eq!((rig.s.bar2().cmb_offset, rig.s.bar2().size), (2 << 20, 4 << 20));
    rig.enable(1);
    rig.make_queue(1, 1, 16);
    let buffer = rig.alloc(8192);
    rig.memory[buffer as usize..][..4096].copy_from_slice(&pattern(6, 4096));
    let vendor = |command: IoCommand, at: u64| with_prps(&command.emit(0), at, at + 4096);
    let append = IoCommand::Append { lane: 0, epoch: Epoch::default(), offset: 0, bytes: 4000 };
    assert_eq!(rig.submit(1, 1, &vendor(append, buffer)).status, Status::SUCCESS);
    let credit = IoCommand::WaitCredit { lane: 0, offset: 4000, timeout_ns: u64::MAX };
    assert_eq!(rig.submit(1, 1, &vendor(credit, 0)).status, Status::SUCCESS);
    assert_eq!(rig.submit(1, 1, &vendor(IoCommand::ReadControlPage, buffer + 4096)).status, Status::SUCCESS);
    assert!(ControlPage::parse(rig.bytes(buffer + 4096, 4096).unwrap()).is_ok());
    let to = rig.alloc(8192);
    let read = IoCommand::ReadLog { lane: 0, offset: 0, bytes: 2000, wait_ns: u64::MAX };
    assert_eq!(rig.submit(1, 1, &vendor(read, to)).status, Status::SUCCESS);
    let header = ReadLogHeader::parse(rig.bytes(to, 32).unwrap()).unwrap();
    assert_eq!((header.bytes, header.offset), (2000, 0));
    let stored = |rig: &mut Rig| rig.said.iter().any(|output| matches!(output, Output::StoreLog { function: 1, .. }));
    assert!(rig.run_until(stored), "bytes that wait are destaged with filler");
    // Those that wait for ever are aborted: by Abort, with their queue, and by a reset.
    let forever = vendor(IoCommand::WaitCredit { lane: 0, offset: 1 << 30, timeout_ns: u64::MAX }, 0);
    let cid = rig.put(1, 1, &forever);
    rig.ring(1, 1);
    rig.run();
    assert_eq!(rig.admin(1, &admin_sqe(admin_opcode::ABORT).with_dword(10, 1 | u32::from(cid) << 16)).dw0, 0);
    assert_eq!(rig.await_completion(1, 1, cid).status, Status::ABORT_REQUESTED);
    let cid = rig.put(1, 1, &forever);
    rig.ring(1, 1);
    rig.run();
    assert_eq!(rig.admin(1, &admin_sqe(admin_opcode::DELETE_IO_SQ).with_dword(10, 1)).status, Status::SUCCESS);
    assert_eq!(rig.take(1, 1).map(|cqe| (cqe.cid, cqe.status)), Some((cid, Status::ABORTED_SQ_DELETION)));
    rig.make_queue(1, 2, 64);
    for _ in 0..40 {
        rig.put(1, 2, &forever);
    }
    rig.ring(1, 2);
    rig.run();
    let busy = std::iter::from_fn(|| rig.take(1, 2)).filter(|cqe| !cqe.status.is_success()).count();
    assert_eq!(busy, 24, "half of the 32 slots may wait");
    rig.write(1, offset::CC, 0);
    rig.run();
    assert_eq!((rig.read(1, offset::CSTS), rig.s.device().fast().waiting()), (0, 0));
    // The log pages, whole and in part.
    rig.enable(1);
    let (status, page) = super::admin::get_log(&mut rig, 1, 0xC0, 4096);
    assert_eq!(status, Status::INVALID_FIELD, "function 0 is another's");
    let _ = page;
    let at = rig.alloc(4096);
    let sqe = admin_sqe(admin_opcode::GET_LOG_PAGE).with_dword(10, 0xC1 | 15 << 16).with_dword(11, 1 << 16);
    assert_eq!(rig.admin(1, &with_prps(&sqe, at, 0)).status, Status::SUCCESS);
    assert!(rig.bytes(at, 64).unwrap().iter().any(|&byte| byte != 0) && rig.bytes(at + 64, 64).unwrap() == [0; 64]);
}

#[test]
fn a_sanitize_is_refused_while_a_log_holds_anything() {
    let mut profile = builtin("tiny").unwrap();
    profile.fast.size = 16 << 10;
    profile.fast.queue_size = 4096;
    profile.fast.log_size = 1 << 20;
    profile.memories.iter_mut().for_each(|memory| memory.survives = crate::profile::Survives::ByCapacitors);
    let mut rig = Rig::with(&profile, |_| {});
    rig.enable(0);
    rig.make_queue(0, 1, 16);
    let buffer = rig.alloc(8192);
    let append = IoCommand::Append { lane: 0, epoch: Epoch::default(), offset: 0, bytes: 4000 };
    assert_eq!(rig.submit(0, 1, &with_prps(&append.emit(0), buffer, buffer + 4096)).status, Status::SUCCESS);
    let sanitize = admin_sqe(admin_opcode::SANITIZE).with_dword(10, 2);
    assert_eq!(rig.admin(0, &sanitize).status, vendor_status::RANGE_RESERVED, "bytes are in the ring");
    rig.run();
    assert!(rig.said.iter().any(|output| matches!(output, Output::StoreLog { .. })), "they are destaged");
    assert_eq!(rig.admin(0, &sanitize).status, vendor_status::RANGE_RESERVED);
    let exit = admin_sqe(admin_opcode::SANITIZE).with_dword(10, 1);
    assert_eq!(rig.admin(0, &exit).status, Status::SUCCESS, "there is no failure to leave");
    let trim = AdminCommand::TrimLog { function: 0, to: TrimTo::Stream { lane: 0, offset: 4000 } };
    assert_eq!(rig.admin(0, &trim.emit(0)).status, Status::SUCCESS);
    assert_eq!(rig.admin(0, &sanitize).status, Status::SUCCESS);
}
