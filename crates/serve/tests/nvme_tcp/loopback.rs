//! Both sides as they should be: every way of moving data, in every framing, and ends of every kind.

use crate::nvme_tcp::mock::{
    ASYNC_EVENT_REQUEST, BLOCK, SUBSYSTEM, Served, VENDOR_READ_BACKWARDS, VENDOR_READ_FAILS, VENDOR_RESETS,
    VENDOR_SILENT, host, nqn, options, subsystem,
};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tidewater_driver::nvme_tcp::{Controller, Error, Host, Queue, Transfer, discover};
use tidewater_serve::nvme_tcp::{BindError, HostRule, Hosts, Options, Target};
use tidewater_testkit::{PATIENCE, pattern};
use tidewater_wire::fabrics::{self, SubsystemKind, property};
use tidewater_wire::nvme::{Sqe, Status};

fn write(queue: &mut Queue, block: u64, data: Vec<u8>) -> Status {
    let blocks = (data.len() / BLOCK - 1) as u16;
    queue.call(Sqe::write(0, block, blocks), Transfer::Out(data)).unwrap().status
}

fn read(queue: &mut Queue, block: u64, blocks: usize) -> Vec<u8> {
    let sqe = Sqe::read(0, block, (blocks - 1) as u16);
    queue.call(sqe, Transfer::In((blocks * BLOCK) as u32)).unwrap().good().unwrap().data
}

/// Until it holds.
fn eventually(mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "it does not come to hold");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn data_moves_in_every_framing() {
    let mut cells = 0;
    for target_alignment in [0, 15, 31] {
        let mut options = options();
        options.limits.alignment = target_alignment;
        let served = Served::start(options, 512);
        for (header_digest, data_digest) in [(false, false), (true, false), (false, true), (true, true)] {
            for alignment in [0, 1, 31] {
                for flow_control in [false, true] {
                    let host = Host { header_digest, data_digest, alignment, flow_control, ..host() };
                    let mut controller = served.controller(&host);
                    let mut queue = controller.queue(1, 16).unwrap();
                    assert_eq!(queue.digests(), (header_digest, data_digest));
                    // In the capsule (up to 8 KiB), by one H2CData, by several; reads in one C2HData and in several.
                    for blocks in [1, 2, 3, 32, 33, 128] {
                        let data = pattern(blocks as u64 + cells, blocks * BLOCK);
                        assert_eq!(write(&mut queue, 7, data.clone()), Status::SUCCESS);
                        assert!(read(&mut queue, 7, blocks) == data, "{host:?}, {blocks} blocks");
                        let sqe = Sqe::read(0, 7, (blocks - 1) as u16);
                        let sqe = sqe.with_dword(0, VENDOR_READ_BACKWARDS.into());
                        let backwards = queue.call(sqe, Transfer::In((blocks * BLOCK) as u32)).unwrap();
                        assert!(backwards.good().unwrap().data == data);
                        cells += 1;
                    }
                    assert_eq!(queue.call(Sqe::flush(0), Transfer::None).unwrap().status, Status::SUCCESS);
                    controller.shutdown().unwrap();
                }
            }
        }
        let (statistics, _) = served.stop();
        assert_eq!((statistics.fatal, statistics.stalled, statistics.refused), (0, 0, 0));
    }
    assert_eq!(cells, 3 * 4 * 3 * 2 * 6);
}

#[test]
fn a_deep_queue_of_mixed_commands_keeps_each_commands_data_apart() {
    let served = Served::start(options(), 2_048);
    for data_digest in [false, true] {
        let controller = served.controller(&Host { data_digest, ..host() });
        let mut queue = controller.queue(1, 64).unwrap();
        let mut state = 1_u64;
        let mut model: Vec<u64> = vec![0; 2_048];
        for round in 1..40 {
            // Distinct blocks in each round, so that no command depends on another.
            let (mut writes, mut reads) = (Vec::new(), Vec::new());
            let mut block = round % 3;
            while block + 40 < 2_048 && queue.outstanding() < 63 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let blocks = [1, 1, 2, 4, 33][(state >> 33) as usize % 5];
                if state >> 60 & 1 == 0 {
                    let data: Vec<u8> =
                        (0..blocks).flat_map(|i| pattern(round as u64 * 10_000 + (block + i) as u64, BLOCK)).collect();
                    let sqe = Sqe::write(0, block as u64, blocks as u16 - 1);
                    queue.submit(sqe, Transfer::Out(data)).unwrap();
                    writes.push((block, blocks));
                } else {
                    let sqe = Sqe::read(0, block as u64, blocks as u16 - 1);
                    let cid = queue.submit(sqe, Transfer::In((blocks * BLOCK) as u32)).unwrap();
                    reads.push((cid, block, blocks));
                }
                block += blocks;
            }
            for _ in 0..queue.outstanding() {
                let done = queue.wait().unwrap().good().unwrap();
                let Some(&(_, block, blocks)) = reads.iter().find(|(cid, ..)| *cid == done.cid) else { continue };
                for i in 0..blocks {
                    let want = match model[block + i] {
                        0 => vec![0; BLOCK],
                        round => pattern(round * 10_000 + (block + i) as u64, BLOCK),
                    };
                    assert!(done.data[i * BLOCK..][..BLOCK] == want, "block {}", block + i);
                }
            }
            for (block, blocks) in writes {
                model[block..block + blocks].fill(round as u64);
            }
        }
        let eraser = served.controller(&host());
        let mut empty = eraser.queue(1, 8).unwrap();
        for block in 0..2_048_u64 {
            let zeroes = vec![0; BLOCK];
            empty.call(Sqe::write(0, block, 0), Transfer::Out(zeroes)).unwrap().good().unwrap();
        }
    }
}

#[test]
fn many_hosts_and_many_queues_work_side_by_side() {
    let served = Served::start(options(), 1_024);
    let threads: Vec<_> = (0..3_u64)
        .map(|n| {
            let host = Host { id: [n as u8 + 1; 16], name: nqn(&format!("nqn.2026-01.io.example:host{n}")), ..host() };
            let controller = served.controller(&host);
            std::thread::spawn(move || {
                let mut queues: Vec<_> = (1..=8).map(|id| controller.queue(id, 32).unwrap()).collect();
                for round in 0..20 {
                    for (i, queue) in queues.iter_mut().enumerate() {
                        let block = n * 300 + i as u64 * 36;
                        let data = pattern(block + round, 4 * BLOCK);
                        assert_eq!(write(queue, block, data.clone()), Status::SUCCESS);
                        assert!(read(queue, block, 4) == data);
                    }
                }
                controller.id()
            })
        })
        .collect();
    let mut ids: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [5, 6, 7]);
    eventually(|| served.controller(&host()).id() > 0);
}

#[test]
fn what_the_medium_can_not_read_ends_with_its_status_and_the_queue_goes_on() {
    let served = Served::start(options(), 64);
    for flow_control in [false, true] {
        let controller = served.controller(&Host { flow_control, ..host() });
        let mut queue = controller.queue(1, 8).unwrap();
        let sqe = Sqe::read(0, 0, 7).with_dword(0, VENDOR_READ_FAILS.into());
        let failed = queue.call(sqe, Transfer::In(8 * BLOCK as u32)).unwrap();
        assert_eq!(failed.status, Status::UNRECOVERED_READ_ERROR);
        assert_eq!(queue.call(Sqe::read(0, 64, 0), Transfer::In(4_096)).unwrap().status, Status::LBA_OUT_OF_RANGE);
        assert!(read(&mut queue, 0, 8) == vec![0; 8 * BLOCK]);
        // Less place than data: a transfer error, and no byte beyond the place.
        assert_eq!(queue.call(Sqe::read(0, 0, 1), Transfer::In(4_096)).unwrap().status, Status::DATA_TRANSFER_ERROR);
        // Less data than blocks.
        let short = queue.call(Sqe::write(0, 0, 1), Transfer::Out(vec![1; BLOCK])).unwrap();
        assert_eq!(short.status, Status::DATA_TRANSFER_ERROR);
        assert!(read(&mut queue, 0, 2) == vec![0; 2 * BLOCK]);
    }
}

#[test]
fn discovery_tells_where_the_subsystem_is() {
    let mut options = options();
    options.listen.push(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 0)));
    let served = match Target::bind(options.clone()) {
        Ok(_) => Served::start(options, 1),
        // A machine without IPv6 still has the other address.
        Err(_) => Served::start(Options::new(subsystem(), 4..8), 1),
    };
    let entries = discover(served.address, &host()).unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!((entries[0].kind, entries[0].subsystem.as_str()), (SubsystemKind::Nvm, SUBSYSTEM));
    let address = SocketAddr::new(entries[0].address.parse().unwrap(), entries[0].port);
    assert_eq!(address, served.address);
    let mut controller = Controller::connect(address, &host(), &entries[0].subsystem).unwrap();
    controller.enable().unwrap();

    // The discovery controller itself: what it knows, and what it does not.
    let discovery = nqn(fabrics::DISCOVERY_NQN);
    let mut controller = Controller::connect(served.address, &host(), &discovery).unwrap();
    controller.enable().unwrap();
    let identify = controller.identify(1, 0).unwrap();
    assert_eq!(u16::from_le_bytes([identify[78], identify[79]]), controller.id());
    assert_eq!(identify[111], 2);
    assert!(identify[768..].starts_with(fabrics::DISCOVERY_NQN.as_bytes()));
    assert!(matches!(controller.identify(0, 1), Err(Error::Status(Status::INVALID_FIELD, _))));
    assert!(controller.log_page(0x70, 1 << 40, 1_024).is_err());
    assert!(controller.log_page(0x70, 2, 1_024).is_err());
    assert!(controller.log_page(0x02, 0, 512).is_err());
    assert!(controller.log_page(0x70, 2_048, 1_024).unwrap().iter().all(|&byte| byte == 0));
    assert!(controller.queue(1, 16).is_err(), "a discovery controller has no I/O queues");
    controller.keep_alive().unwrap();
}

#[test]
fn properties_are_registers() {
    let served = Served::start(options(), 1);
    let mut controller = Controller::connect(served.address, &host(), &subsystem()).unwrap();
    assert_eq!(controller.property(property::VS, 4).unwrap(), 0x0001_0400);
    assert_eq!(controller.property(property::CAP, 8).unwrap() & 0xFFFF, 255);
    assert_eq!(controller.property(property::CSTS, 4).unwrap(), 0);
    // Not before it is ready.
    assert!(matches!(controller.queue(1, 16), Err(Error::Status(Status::COMMAND_SEQUENCE_ERROR, _))));
    controller.enable().unwrap();
    assert_eq!(controller.property(property::CC, 4).unwrap(), 0x0046_0001);
    assert_eq!(controller.property(property::CSTS, 4).unwrap(), 1);
    for (offset, len) in [(0, 4), (8, 8), (0x0C, 4), (0x1C, 8), (0x24, 4), (0x1000, 4), (u32::MAX, 4)] {
        let refused = controller.property(offset, len);
        assert!(matches!(refused, Err(Error::Status(Status::INVALID_FIELD, _))), "{offset:X}h, {len}: {refused:?}");
    }
    for offset in [0, 8, 0x1C, 0x24, 0xFFFF_FFFC] {
        assert!(matches!(controller.set_property(offset, 0), Err(Error::Status(Status::INVALID_FIELD, _))));
    }
}

#[test]
fn a_reset_ends_the_io_queues_and_they_come_back() {
    let served = Served::start(options(), 64);
    let mut controller = served.controller(&host());
    for round in 0..5 {
        let mut queue = controller.queue(1, 16).unwrap();
        assert!(matches!(controller.queue(1, 16), Err(Error::Status(Status::COMMAND_SEQUENCE_ERROR, _))));
        assert_eq!(write(&mut queue, 0, pattern(round, 4 * BLOCK)), Status::SUCCESS);
        let silent = Sqe::flush(0).with_dword(0, VENDOR_SILENT.into());
        queue.submit(silent, Transfer::None).unwrap();
        queue.flush().unwrap();
        controller.set_property(property::CC, 0).unwrap();
        assert!(matches!(queue.wait(), Err(Error::Io(_))));
        controller.enable().unwrap();
    }
    // An admin command that waits goes with a reset too: its identifier can be used again.
    for _ in 0..100 {
        controller.admin.submit(Sqe::default().with_dword(0, ASYNC_EVENT_REQUEST.into()), Transfer::None).unwrap();
        let set = fabrics::PropertySet { offset: property::CC, len: 4, value: 0 };
        let reset = controller.admin.submit(fabrics::Fabrics::PropertySet(set).emit(0), Transfer::None).unwrap();
        assert_eq!(controller.admin.wait().unwrap().cid, reset);
        // The initiator still counts the request, so it takes another connection for the next round.
        drop(controller);
        eventually(|| Controller::connect(served.address, &host(), &subsystem()).is_ok());
        controller = served.controller(&host());
    }
}

#[test]
fn a_host_whose_controller_is_gone_hears_of_it_and_may_come_again() {
    let served = Served::start(options(), 64);
    // Four functions: without their release the fifth round would find none.
    for _ in 0..12 {
        let mut controller = served.controller(&host());
        let mut queue = controller.queue(1, 16).unwrap();
        let silent = Sqe::flush(0).with_dword(0, VENDOR_SILENT.into());
        queue.submit(silent, Transfer::None).unwrap();
        queue.flush().unwrap();
        controller.admin.submit(Sqe::default().with_dword(0, VENDOR_RESETS.into()), Transfer::None).unwrap();
        controller.admin.flush().unwrap();
        assert!(matches!(queue.wait(), Err(Error::Io(_))));
        assert!(matches!(controller.admin.wait(), Err(Error::Io(_))));
    }
    let (statistics, _) = served.stop();
    assert_eq!((statistics.controllers, statistics.open), (0, 0));
}

#[test]
fn a_host_that_leaves_in_the_middle_leaves_nothing_behind() {
    let served = Served::start(options(), 256);
    for round in 0..40_u64 {
        // Four functions: without their release the fifth round would find none.
        let mut controller = None;
        eventually(|| {
            controller = Controller::connect(served.address, &host(), &subsystem()).ok();
            controller.is_some()
        });
        let mut controller = controller.unwrap();
        controller.enable().unwrap();
        let mut queue = controller.queue(1, 32).unwrap();
        for i in 0..8 {
            let data = pattern(i, 16 * BLOCK);
            queue.submit(Sqe::write(0, i * 16, 15), Transfer::Out(data)).unwrap();
            queue.submit(Sqe::read(0, i * 16, 15), Transfer::In(16 * BLOCK as u32)).unwrap();
        }
        queue.flush().unwrap();
        for _ in 0..round % 5 {
            queue.wait().unwrap();
        }
        if round % 2 == 0 {
            drop(queue);
            controller.keep_alive().unwrap();
            // The queue's connection has gone, and the controller has not: it comes again.
            controller.queue(1, 32).unwrap();
            controller.queue(2, 32).unwrap();
        }
    }
    eventually(|| Controller::connect(served.address, &host(), &subsystem()).is_ok());
    let (statistics, _) = served.stop();
    assert_eq!(statistics.fatal, 0);
}

#[test]
fn a_target_that_starts_again_is_found_again() {
    let mut options = options();
    let mut served = Served::start(options.clone(), 16);
    options.listen = vec![served.address];
    for _ in 0..5 {
        let mut controller = served.controller(&host());
        let mut queue = controller.queue(1, 16).unwrap();
        assert_eq!(write(&mut queue, 0, vec![1; BLOCK]), Status::SUCCESS);
        served.stop();
        assert!(queue.call(Sqe::flush(0), Transfer::None).is_err());
        assert!(controller.keep_alive().is_err());
        served = Served::start(options.clone(), 16);
        let controller = served.controller(&host());
        let mut queue = controller.queue(1, 16).unwrap();
        assert!(read(&mut queue, 0, 1) == vec![0; BLOCK]);
    }
}

#[test]
fn a_host_that_is_not_heard_loses_its_controller_and_one_that_is_does_not() {
    let served = Served::start(options(), 16);
    let mut quiet = served.controller(&Host { keep_alive_ms: 1_000, ..host() });
    let mut quiet_queue = quiet.queue(1, 16).unwrap();
    let mut alive = served.controller(&Host { keep_alive_ms: 1_000, ..host() });
    let mut busy = served.controller(&Host { keep_alive_ms: 1_000, ..host() });
    let mut busy_queue = busy.queue(1, 16).unwrap();
    let mut without = served.controller(&Host { keep_alive_ms: 0, ..host() });
    // The feature: read, set, its capabilities; it can't be saved.
    let feature = |opcode: u32, dword10: u32, dword11| {
        Sqe::default().with_dword(0, opcode).with_dword(10, dword10 | 0x0F).with_dword(11, dword11)
    };
    let get = |controller: &mut Controller, select: u32| {
        controller.admin.call(feature(0x0A, select << 8, 0), Transfer::None).unwrap().good().unwrap().value
    };
    assert_eq!((get(&mut alive, 0), get(&mut alive, 1), get(&mut alive, 3)), (1_000, 0, 4));
    alive.admin.call(feature(0x09, 0, 1_200), Transfer::None).unwrap().good().unwrap();
    assert_eq!(get(&mut alive, 0), 1_200);
    let saved = alive.admin.call(feature(0x09, 1 << 31, 400), Transfer::None).unwrap();
    assert_eq!(saved.status, Status::new(1, 0x0D, true));

    let until = Instant::now() + PATIENCE;
    while served.keep_alive_expired() == 0 {
        assert!(Instant::now() < until, "it never loses its controller");
        alive.keep_alive().unwrap();
        read(&mut busy_queue, 0, 1);
    }
    assert!(quiet.keep_alive().is_err());
    assert!(quiet_queue.call(Sqe::flush(0), Transfer::None).is_err());
    busy.keep_alive().unwrap();
    without.keep_alive().unwrap();
    let (statistics, _) = served.stop();
    assert_eq!(statistics.keep_alive_expired, 1);
}

#[test]
fn only_listed_hosts_connect_and_only_privileged_ones_are() {
    let rule = |name: &str, privileged| HostRule { name: nqn(name), privileged };
    let mut options = options();
    options.hosts =
        Hosts::Listed(vec![rule("nqn.2026-01.io.example:root", true), rule("nqn.2026-01.io.example:user", false)]);
    let served = Served::start(options, 1);
    let connect = |name: &str| {
        let mut controller = Controller::connect(served.address, &Host { name: nqn(name), ..host() }, &subsystem())?;
        controller.enable()?;
        Ok::<_, Error>(controller.identify(1, 0)?[4] == 1)
    };
    assert!(connect("nqn.2026-01.io.example:root").unwrap());
    assert!(!connect("nqn.2026-01.io.example:user").unwrap());
    match connect("nqn.2026-01.io.example:other") {
        Err(Error::Status(status, value)) => {
            assert_eq!((status, value), (fabrics::status::INVALID_HOST, 1 << 16 | 512));
        }
        other => panic!("{other:?}"),
    }
    // Anyone may ask where it is.
    discover(served.address, &host()).unwrap();
}

#[test]
fn other_than_loopback_has_to_be_allowed() {
    let mut options = options();
    options.listen = vec![SocketAddr::from(([0, 0, 0, 0], 0))];
    let refused = Target::bind(options.clone()).err().unwrap();
    assert!(matches!(refused, BindError::NotLoopback(_)));
    assert!(refused.to_string().contains("--insecure-bind"));
    options.insecure_bind = true;
    Target::bind(options.clone()).unwrap();
    let taken = Target::bind(Options::new(subsystem(), 0..1)).unwrap();
    options.listen = vec![taken.addresses()[0]];
    assert!(matches!(Target::bind(options), Err(BindError::Listen(..))));
}
