//! Queues: full ones, wrapping ones, deleted ones, shared slots, interrupts, the CMB, shadow doorbells.

use super::admin::set_feature;
use super::*;
use tidewater_wire::nvme::register::{CmbLoc, CmbSz};
use tidewater_wire::nvme::{SglDescriptor, feature};

#[test]
fn a_full_completion_queue_waits_for_its_host() {
    let mut rig = Rig::new();
    rig.enable(0);
    let (sq, cq) = (rig.alloc(4096), rig.alloc(4096));
    rig.make_queue_at(0, 1, (sq, 32), (cq, 4));
    for _ in 0..20 {
        rig.put(0, 1, &Sqe::flush(0));
    }
    rig.ring(0, 1);
    rig.run();
    let mut taken = Vec::new();
    while taken.len() < 20 {
        let mut now = 0;
        while let Some(cqe) = rig.take(0, 1) {
            taken.push(cqe.cid);
            now += 1;
        }
        assert!(now > 0 && now <= 3, "{now} entries in a queue of 4");
        rig.ring_head(0, 1);
        rig.run();
    }
    taken.sort_unstable();
    assert_eq!(taken, (0..20).collect::<Vec<_>>());
    assert_eq!(rig.take(0, 1), None);
    // Deleted with completions waiting: they are gone with it, and the queues can be made again.
    for _ in 0..20 {
        rig.put(0, 1, &Sqe::flush(0));
    }
    rig.ring(0, 1);
    rig.run();
    assert_eq!(
        rig.admin(0, &admin_sqe(admin_opcode::DELETE_IO_CQ).with_dword(10, 1)).status,
        Status::INVALID_QUEUE_DELETION
    );
    assert_eq!(rig.admin(0, &admin_sqe(admin_opcode::DELETE_IO_SQ).with_dword(10, 1)).status, Status::SUCCESS);
    assert_eq!(rig.admin(0, &admin_sqe(admin_opcode::DELETE_IO_SQ).with_dword(10, 1)).status, Status::INVALID_QUEUE_ID);
    assert_eq!(rig.admin(0, &admin_sqe(admin_opcode::DELETE_IO_CQ).with_dword(10, 1)).status, Status::SUCCESS);
    rig.make_queue(0, 1, 8);
    assert_eq!(rig.submit(0, 1, &Sqe::flush(0)).status, Status::SUCCESS);
}

#[test]
fn a_host_that_takes_no_completions_is_served_no_further() {
    let mut rig = Rig::new();
    rig.enable(0);
    let (sq, cq) = (rig.alloc(4096), rig.alloc(4096));
    rig.make_queue_at(0, 1, (sq, 32), (cq, 4));
    let room = usize::from(rig.s.slots());
    for queue in [1, 0] {
        let sqe = if queue == 0 { admin_sqe(admin_opcode::KEEP_ALIVE) } else { Sqe::flush(0) };
        for _ in 0..50 {
            for _ in 0..31 {
                rig.put(0, queue, &sqe);
            }
            rig.ring(0, queue);
            rig.run();
        }
        // What waits for room is no more than was worked on at once.
        let waiting = rig.s.parts().1[0].completion[usize::from(queue)].waiting.len();
        assert!(waiting > 0 && waiting <= room, "{waiting} completions of queue {queue} wait");
        // With room it goes on, up to the last entry that was rung for.
        loop {
            let mut any = false;
            while rig.take(0, queue).is_some() {
                any = true;
            }
            if !any {
                break;
            }
            rig.ring_head(0, queue);
            rig.run();
        }
        assert_eq!(rig.s.parts().1[0].submission[usize::from(queue)].waiting(), 0);
        assert_eq!(rig.submit(0, queue, &sqe).status, Status::SUCCESS);
    }
}

#[test]
fn queues_that_share_a_full_completion_queue_all_go_on() {
    let mut rig = Rig::new();
    rig.enable(0);
    let (sq, cq) = (rig.alloc(4096), rig.alloc(4096));
    rig.make_queue_at(0, 1, (sq, 64), (cq, 4));
    let second = rig.alloc(4096);
    assert_eq!(rig.admin(0, &create_sq(2, second, 64, 1)).status, Status::SUCCESS);
    rig.queues.insert((0, 2), Queue { sq: second, sq_entries: 64, ..Queue::default() });
    let mut taken = 0;
    for _ in 0..60 {
        rig.put(0, 1, &Sqe::flush(0));
        rig.put(0, 2, &Sqe::flush(0));
    }
    rig.ring(0, 1);
    rig.ring(0, 2);
    rig.run();
    while taken < 120 {
        let before = taken;
        while rig.take(0, 1).is_some() {
            taken += 1;
        }
        assert!(taken > before, "{taken} of 120 commands have ended");
        rig.ring_head(0, 1);
        rig.run();
    }
}

#[test]
fn rings_wrap_and_share_the_slots_fairly() {
    let mut rig = Rig::new();
    rig.enable(0);
    rig.make_queue(0, 1, 64);
    rig.make_queue(0, 2, 64);
    let buffer = rig.alloc(4096);
    let read = with_prps(&Sqe::read(0, 0, 7), buffer, 0);
    let mut order = Vec::new();
    for round in 0..10 {
        for queue in [1, 2] {
            for _ in 0..60 {
                rig.put(0, queue, &read);
            }
            rig.ring(0, queue);
        }
        let mut done = 0;
        rig.run_until(|rig| {
            for queue in [1, 2] {
                while let Some(cqe) = rig.take(0, queue) {
                    assert_eq!(cqe.status, Status::SUCCESS);
                    rig.ring_head(0, queue);
                    done += 1;
                    if round == 0 {
                        order.push(queue);
                    }
                }
            }
            done == 120
        });
        assert_eq!(done, 120, "round {round}");
    }
    // The first queue had all slots while it was alone; from then on they take turns.
    let first = order[28..92].iter().filter(|&&queue| queue == 1).count();
    assert!((24..=40).contains(&first), "{first} of 64 commands were of queue 1");
    // No more was worked on at once than there are slots, and four of them are kept for admin commands.
    assert!(rig.s.device().profile().host.outstanding_max == 32);
}

/// How many of 56 completions of three full queues are of each.
fn shares(rig: &mut Rig) -> [usize; 3] {
    let buffer = rig.alloc(4096);
    let read = with_prps(&Sqe::read(0, 0, 7), buffer, 0);
    for queue in 1..=3 {
        for _ in 0..60 {
            rig.put(0, queue, &read);
        }
    }
    // Nothing is fetched before all three have entries.
    rig.hold = |output| matches!(output, Output::DmaRead { .. });
    (1..=3).for_each(|queue| rig.ring(0, queue));
    rig.let_go();
    let (mut order, mut done) = (Vec::new(), 0);
    rig.run_until(|rig| {
        for queue in 1..=3 {
            while let Some(cqe) = rig.take(0, queue) {
                assert_eq!(cqe.status, Status::SUCCESS);
                rig.ring_head(0, queue);
                done += 1;
                order.push(queue);
            }
        }
        done == 180
    });
    // The first queue has all slots, since it stood alone in line.
    [1, 2, 3].map(|queue| order[28..84].iter().filter(|&&other| other == queue).count())
}

#[test]
fn weighted_round_robin_serves_queues_by_class_and_weight() {
    let mut profile = tiny();
    profile.set("host.queues", "3").expect("it may be set");
    profile.set("host.arbitration", "weighted").expect("it may be set");
    profile.set("host.arbitration_weights", "[16, 8, 4]").expect("they may be set");
    profile.set("host.arbitration_burst", "2").expect("it may be set");
    let rig = |classes: [u32; 3]| {
        let mut rig = Rig::with(&profile, |_| {});
        rig.weighted = true;
        rig.enable(0);
        for (queue, class) in (1..).zip(classes) {
            rig.class = class;
            rig.make_queue(0, queue, 64);
        }
        rig
    };
    // High, medium and low: by the weights, which are the profile's until the host sets others.
    let found = shares(&mut rig([1, 2, 3]));
    assert_eq!(found, [32, 16, 8]);
    let mut equal = rig([1, 2, 3]);
    let set = set_feature(feature::ARBITRATION, 3 << 24 | 3 << 16 | 3 << 8 | 1);
    assert_eq!(equal.admin(0, &set).status, Status::SUCCESS);
    let found = shares(&mut equal);
    assert!(found.iter().all(|share| share.abs_diff(19) <= 3), "{found:?}");
    // An urgent queue is served before all others.
    assert!(shares(&mut rig([3, 0, 1]))[1] == 56);
}

#[test]
fn weighted_round_robin_is_refused_where_it_is_not_offered() {
    let mut rig = Rig::new();
    rig.weighted = true;
    let (sq, cq) = (rig.alloc(4096), rig.alloc(4096));
    rig.enable_at(0, sq, cq);
    rig.run();
    assert_eq!(rig.read(0, offset::CSTS) & 3, 2, "a fatal status, and not ready");
}

#[test]
fn admin_commands_pass_a_drive_full_of_io() {
    let mut rig = Rig::new();
    rig.enable(0);
    rig.make_queue(0, 1, 64);
    let buffer = rig.alloc(4096);
    rig.hold = |output| matches!(output, Output::Fetch { .. });
    for _ in 0..60 {
        rig.put(0, 1, &with_prps(&Sqe::write(0, 0, 7), buffer, 0));
    }
    rig.ring(0, 1);
    rig.run();
    assert_eq!(rig.held.len(), 28, "32 slots, 4 of them for admin commands");
    let keep_alive = rig.admin(0, &admin_sqe(admin_opcode::KEEP_ALIVE));
    assert_eq!(keep_alive.status, Status::SUCCESS);
    let mut done = 0;
    while done < 60 {
        rig.let_go();
        rig.hold = |output| matches!(output, Output::Fetch { .. });
        rig.run();
        while let Some(cqe) = rig.take(0, 1) {
            assert_eq!(cqe.status, Status::SUCCESS);
            rig.ring_head(0, 1);
            done += 1;
        }
    }
}

#[test]
fn interrupts_are_coalesced_and_masked() {
    let mut rig = Rig::new();
    rig.enable(0);
    rig.make_queue(0, 1, 64);
    rig.make_queue(0, 2, 64);
    let set = |fid: u32, value: u32| admin_sqe(admin_opcode::SET_FEATURES).with_dword(10, fid).with_dword(11, value);
    // Four completions or 200 us.
    assert_eq!(rig.admin(0, &set(0x08, 2 << 8 | 3)).status, Status::SUCCESS);
    let flood = |rig: &mut Rig, queue: u16, count: u32| {
        rig.interrupts.clear();
        for _ in 0..count {
            rig.put(0, queue, &Sqe::verify(0, 0, 0));
        }
        rig.ring(0, queue);
        rig.run();
        for _ in 0..count {
            assert!(rig.take(0, queue).is_some());
        }
        rig.ring_head(0, queue);
        rig.interrupts.iter().filter(|&&(_, vector)| vector == queue).count()
    };
    let before = rig.now;
    assert_eq!(flood(&mut rig, 1, 10), 3, "4, 4, and 2 by time");
    assert!(rig.now.since(before) >= Duration::from_us(200));
    // Vector 2 is not coalesced.
    assert_eq!(rig.admin(0, &set(0x09, 1 << 16 | 2)).status, Status::SUCCESS);
    assert_eq!(flood(&mut rig, 2, 10), 10);
    assert_eq!(rig.admin(0, &set(0x08, 0)).status, Status::SUCCESS);
    // Masked interrupts come when they are unmasked, once.
    rig.write(0, offset::INTMS, 1 << 1);
    assert_eq!(rig.read(0, offset::INTMS), 2);
    assert_eq!(flood(&mut rig, 1, 5), 0);
    rig.write(0, offset::INTMC, 1 << 1);
    rig.settle();
    assert_eq!((rig.interrupts.as_slice(), rig.read(0, offset::INTMC)), ([(0, 1)].as_slice(), 0));
    // A reset of the controller leaves no mask.
    rig.write(0, offset::INTMS, 0xFF);
    rig.write(0, offset::CC, 0);
    rig.enable(0);
    assert_eq!(rig.read(0, offset::INTMS), 0);
}

#[test]
fn queues_live_in_the_controller_memory_buffer() {
    let mut rig = Rig::with(&tiny(), |options| options.cmb = 64 << 10);
    assert_eq!((rig.read(0, offset::CMBLOC), rig.read(0, offset::CMBSZ)), (0, 0), "not before CRE");
    rig.write64(0, offset::CMBMSC, 1);
    let size = CmbSz::from_bits(rig.read(0, offset::CMBSZ));
    let place = CmbLoc::from_bits(rig.read(0, offset::CMBLOC));
    assert_eq!((size.bytes(), place.bir), (64 << 10, 2));
    assert!(size.submission_queues && size.completion_queues && !size.read_data && !size.write_data && !size.lists);
    let base = 0x7_0000_0000u64;
    rig.write64(0, offset::CMBMSC, base | 3);
    assert_eq!(rig.read(0, offset::CMBSTS), 0);
    assert_eq!(rig.s.region(0, base + 4096, 64), Region::Cmb { offset: 4096 });
    assert_eq!(rig.s.region(0, base + (64 << 10) - 32, 64), Region::Host, "half of it is outside");
    rig.enable_at(0, base, base + 4096);
    assert!(rig.run_until(|rig| rig.read(0, offset::CSTS) & 1 != 0));
    rig.make_queue_at(0, 1, (base + 8192, 64), (base + 12288, 64));
    let buffer = rig.alloc(4096);
    for _ in 0..100 {
        assert_eq!(rig.submit(0, 1, &with_prps(&Sqe::read(0, 0, 7), buffer, 0)).status, Status::SUCCESS);
    }
    // Data, lists and queues that stick out may not lie there.
    let bad = with_prps(&Sqe::read(0, 0, 7), base, 0);
    assert_eq!(rig.submit(0, 1, &bad).status, Status::INVALID_USE_OF_CMB);
    let bad = with_prps(&Sqe::read(0, 0, 31), buffer, base);
    assert_eq!(rig.submit(0, 1, &bad).status, Status::INVALID_USE_OF_CMB);
    let end = base + (60 << 10);
    assert_eq!(rig.admin(0, &create_cq(2, end + 4096 - 4096, 64, 0)).status, Status::SUCCESS);
    assert_eq!(rig.admin(0, &create_sq(2, base - 4096, 128, 1)).status, Status::INVALID_QUEUE_SIZE);
    assert_eq!(rig.admin(0, &create_sq(2, end, 64, 1)).status, Status::SUCCESS);
    rig.write64(0, offset::CMBMSC, !0xFFF | 3);
    assert_eq!(rig.read(0, offset::CMBSTS), 1);
}

#[test]
fn shadow_doorbells_spare_the_bells() {
    let mut rig = Rig::new();
    rig.enable(0);
    rig.make_queue(0, 1, 16);
    let (shadow, events) = (rig.alloc(4096), rig.alloc(4096));
    let config = admin_sqe(admin_opcode::DOORBELL_BUFFER_CONFIG);
    assert_eq!(rig.admin(0, &with_prps(&config, shadow + 8, events)).status, Status::PRP_OFFSET_INVALID);
    assert_eq!(rig.s.shadow_doorbells(0), None);
    assert_eq!(rig.admin(0, &with_prps(&config, shadow, events)).status, Status::SUCCESS);
    let told = ShadowDoorbells { address: shadow, submission: 2, completion: 2 };
    assert_eq!(rig.s.shadow_doorbells(0), Some(told));
    for round in 1..=40u32 {
        let cid = rig.put(0, 1, &Sqe::flush(0));
        let tail = rig.queues[&(0, 1)].tail as u16;
        rig.input(Input::Doorbell { function: 0, queue: 1, completion: false, value: tail });
        let mut found = None;
        rig.run_until(|rig| {
            found = rig.take(0, 1);
            found.is_some()
        });
        assert_eq!(found.unwrap().cid, cid);
        let head = rig.queues[&(0, 1)].head as u16;
        rig.input(Input::Doorbell { function: 0, queue: 1, completion: true, value: head });
        let index = rig.bytes(events + 8, 4).unwrap();
        assert_eq!(index, u32::from(tail).to_le_bytes(), "round {round}");
    }
    // Shadows of queues that are not there, or wrong ones, are no harm.
    for queue in [0, 2, 3, 65_535] {
        for completion in [false, true] {
            rig.input(Input::Doorbell { function: 0, queue, completion, value: 1 });
        }
    }
    rig.write(0, offset::CC, 0);
    rig.run();
    assert_eq!(rig.s.shadow_doorbells(0), None);
}

#[test]
fn scattered_data_finds_its_place() {
    let mut rig = Rig::new();
    rig.enable(0);
    rig.make_queue(0, 1, 16);
    let memory = rig.alloc(1 << 20);
    let data = pattern(3, 64 << 10);
    let block = |address: u64, len: u32| {
        SglDescriptor::DataBlock { address: tidewater_wire::nvme::Address::Memory(address), len }.to_bytes()
    };
    let segment = |address: u64, count: u32, last: bool| {
        let (address, len) = (tidewater_wire::nvme::Address::Memory(address), 16 * count);
        if last { SglDescriptor::LastSegment { address, len } } else { SglDescriptor::Segment { address, len } }
            .to_bytes()
    };
    let with_sgl = |sqe: &Sqe, descriptor: [u8; 16]| {
        let dword = |i: usize| u32::from_le_bytes(descriptor[4 * i..][..4].try_into().unwrap());
        let sqe = (0..4).fold(*sqe, |sqe, i| sqe.with_dword(6 + i, dword(i)));
        sqe.with_dword(0, sqe.dwords()[0] | 1 << 14)
    };
    // PRPs at every kind of offset, for one, two and many pages.
    for (offset, len) in
        [(0, 512), (4, 512), (3584, 512), (3588, 4096), (0, 8192), (4, 8192), (0, 65_536), (4092, 65_536)]
    {
        let at = memory + offset;
        rig.memory[at as usize..][..len].copy_from_slice(&data[..len]);
        let blocks = (len / 512 - 1) as u16;
        let sqe = rig.with_data(&Sqe::write(0, 8, blocks), at, len);
        assert_eq!(rig.submit(0, 1, &sqe).status, Status::SUCCESS);
        rig.memory[at as usize..][..len].fill(0);
        let sqe = rig.with_data(&Sqe::read(0, 8, blocks), at, len);
        assert_eq!(rig.submit(0, 1, &sqe).status, Status::SUCCESS);
        assert_eq!(rig.bytes(at, len).unwrap(), &data[..len], "{offset} + {len}");
    }
    // A list that begins in the last entry of its page goes on in the next.
    let lists = rig.alloc(8192);
    let put = |rig: &mut Rig, at: u64, bytes: &[u8]| rig.memory[at as usize..][..bytes.len()].copy_from_slice(bytes);
    put(&mut rig, lists + 4088, &(lists + 4096).to_le_bytes());
    for i in 0..15u64 {
        put(&mut rig, lists + 4096 + 8 * i, &(memory + 4096 * (2 * i + 2)).to_le_bytes());
    }
    let sqe = with_prps(&Sqe::read(0, 8, 127), memory, lists + 4088);
    assert_eq!(rig.submit(0, 1, &sqe).status, Status::SUCCESS);
    for i in 0..16 {
        let page = rig.bytes(memory + 8192 * i, 4096).unwrap();
        assert_eq!(page, &data[4096 * i as usize..][..4096], "page {i}");
    }
    // SGLs: one block; pieces with a hole; several segments.
    let read = Sqe::read(0, 8, 7);
    rig.memory[memory as usize..][..8192].fill(7);
    assert_eq!(rig.submit(0, 1, &with_sgl(&read, block(memory + 1, 4096))).status, Status::SUCCESS);
    assert_eq!(rig.bytes(memory + 1, 4096).unwrap(), &data[..4096]);
    rig.memory[memory as usize..][..8192].fill(7);
    put(&mut rig, lists, &block(memory, 100));
    put(&mut rig, lists + 16, &SglDescriptor::BitBucket { len: 1000 }.to_bytes());
    put(&mut rig, lists + 32, &segment(lists + 4096, 3, true));
    put(&mut rig, lists + 4096, &block(memory + 100, 2000));
    put(&mut rig, lists + 4112, &block(memory, 0));
    put(&mut rig, lists + 4128, &block(memory + 2100, 996));
    assert_eq!(rig.submit(0, 1, &with_sgl(&read, segment(lists, 3, false))).status, Status::SUCCESS);
    assert_eq!(rig.bytes(memory, 100).unwrap(), &data[..100]);
    assert_eq!(rig.bytes(memory + 100, 2996).unwrap(), &data[1100..4096]);
    assert_eq!(rig.bytes(memory + 3096, 1).unwrap(), [7]);
    // What is wrong with an SGL has its own status.
    let cases = [
        (block(memory, 4095), Status::DATA_SGL_LENGTH_INVALID),
        (segment(lists, 3, true), Status::INVALID_SGL_SEGMENT),
        (segment(lists + 4096, 1, false), Status::INVALID_SGL_SEGMENT),
        (segment(lists + 4096, 0, true), Status::INVALID_SGL_SEGMENT),
        (segment(1 << 40, 3, true), Status::DATA_TRANSFER_ERROR),
        (block(u64::MAX - 100, 4096), Status::DATA_TRANSFER_ERROR),
        (block(1 << 40, 4096), Status::DATA_TRANSFER_ERROR),
        ([0x40; 16], Status::SGL_TYPE_INVALID),
        ([0xFF; 16], Status::SGL_TYPE_INVALID),
    ];
    for (descriptor, status) in cases {
        assert_eq!(rig.submit(0, 1, &with_sgl(&read, descriptor)).status, status, "{descriptor:?}");
    }
    // Segments that lead in a circle end.
    put(&mut rig, lists, &segment(lists, 1, false));
    assert_eq!(rig.submit(0, 1, &with_sgl(&read, segment(lists, 1, false))).status, Status::INVALID_SGL_COUNT);
}
