use super::*;
use crate::profile::{Arbitration, QueuePriority};
use proptest::prelude::*;
use std::collections::{HashSet, VecDeque};
use tidewater_base::Duration;
use tidewater_wire::nvme::Sqe;

pub(super) fn profile() -> HostProfile {
    HostProfile {
        queues: 2,
        queue_entries: 64,
        outstanding_max: 4,
        arbitration: Arbitration::RoundRobin,
        arbitration_burst: 1,
        arbitration_weights: [4, 2, 1],
        queue_priorities: vec![QueuePriority::Medium],
        command_time: Duration::ZERO,
        command_interval: Duration::ZERO,
        completion_time: Duration::ZERO,
        transfer_max: 128 * 1024,
        block_size: 4096,
    }
}

const NAMESPACE: Namespace =
    Namespace { id: 1, blocks: 1000, writable_blocks: 1000, block_shift: 12, read_only: false };

fn host() -> Host {
    Host::new(&profile(), NAMESPACE)
}

fn submit(host: &mut Host, queue: u16, sqe: Sqe) {
    host.submit(queue, Submission::new(sqe, 0)).expect("the ring has room");
}

/// What one command on an otherwise idle controller gets.
fn outcome_with(host: &mut Host, submission: Submission) -> Result<Command, Status> {
    host.submit(0, submission).expect("the ring has room");
    let permit = host.fetch().expect("a slot is free");
    let command = host.slot(permit).command;
    host.complete(permit, command.err().unwrap_or_default(), 0);
    command
}

fn outcome(sqe: Sqe) -> Result<Command, Status> {
    outcome_with(&mut host(), Submission::new(sqe, 0))
}

#[test]
fn a_command_goes_through() {
    let mut host = host();
    host.submit(1, Submission::new(Sqe::write(77, 10, 3), 42)).unwrap();
    assert_eq!((host.waiting(), host.waiting_in(1), host.outstanding()), (1, 1, 0));
    let permit = host.fetch().unwrap();
    assert_eq!((host.waiting(), host.outstanding()), (0, 1));
    let slot = host.slot(permit);
    assert_eq!((slot.queue, slot.cid, slot.tag), (1, 77, 42));
    let command = slot.command.unwrap();
    assert_eq!((command.kind, command.first_block, command.blocks), (Kind::Write, 10, 4));
    let completion = host.complete(permit, Status::WRITE_FAULT, 9);
    let cqe = Cqe { dw0: 9, sq_head: 1, sq_id: 2, cid: 77, phase: true, status: Status::WRITE_FAULT };
    assert_eq!(completion, Completion { queue: 1, cqe });
    assert_eq!((host.outstanding(), host.fetch()), (0, None));
}

#[test]
fn permits_run_out_and_come_back() {
    let mut host = host();
    for cid in 0..6 {
        submit(&mut host, 0, Sqe::read(cid, 0, 0));
    }
    let permits: Vec<Permit> = std::iter::from_fn(|| host.fetch()).collect();
    assert_eq!((permits.len(), host.outstanding(), host.waiting()), (4, 4, 2));
    assert_eq!(permits.iter().collect::<HashSet<_>>().len(), 4);
    assert_eq!(host.outstanding_commands().map(|(_, slot)| slot.cid).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(host.waiting_commands(0).map(|s| s.sqe.cid()).collect::<Vec<_>>(), [4, 5]);
    host.complete(permits[2], Status::SUCCESS, 0);
    let again = host.fetch().unwrap();
    assert_eq!((again, host.slot(again).cid, host.fetch()), (permits[2], 4, None));
}

#[test]
#[should_panic(expected = "was completed although it is free")]
fn completing_twice_asserts() {
    let mut host = host();
    submit(&mut host, 0, Sqe::flush(0));
    let permit = host.fetch().unwrap();
    host.complete(permit, Status::SUCCESS, 0);
    host.complete(permit, Status::SUCCESS, 0);
}

#[test]
#[should_panic(expected = "was used although it is free")]
fn looking_at_a_free_slot_asserts() {
    let mut host = host();
    submit(&mut host, 0, Sqe::flush(0));
    let permit = host.fetch().unwrap();
    host.complete(permit, Status::SUCCESS, 0);
    host.slot(permit);
}

#[test]
fn a_full_ring_loses_nothing() {
    let mut host = Host::new(&HostProfile { queue_entries: 3, ..profile() }, NAMESPACE);
    submit(&mut host, 0, Sqe::read(0, 0, 0));
    submit(&mut host, 0, Sqe::read(1, 0, 0));
    let third = Submission::new(Sqe::read(2, 0, 0), 5);
    assert_eq!(host.submit(0, third.clone()), Err(third.clone()));
    assert_eq!(host.waiting(), 2);
    host.fetch().unwrap();
    assert_eq!(host.submit(0, third), Ok(()));
}

#[test]
fn every_status_of_the_checks() {
    let broken = Sqe::read(0, 0, 0).with_dword(0, 0x0100 | 0x02);
    assert_eq!(outcome(Sqe::default().with_dword(0, 0x04)), Err(Status::INVALID_OPCODE), "Write Uncorrectable");
    assert_eq!(outcome(broken), Err(Status::INVALID_FIELD), "fused");
    for nsid in [0, 2, NSID_ALL] {
        assert_eq!(outcome(Sqe::read(0, 0, 0).with_nsid(nsid)), Err(Status::INVALID_NAMESPACE), "{nsid}");
    }
    assert!(outcome(Sqe::flush(0).with_nsid(NSID_ALL)).is_ok());
    assert_eq!(outcome(Sqe::flush(0).with_nsid(2)), Err(Status::INVALID_NAMESPACE));

    // 32 blocks of 4 KiB are 128 KiB: one more is too much, but only where data moves.
    assert!(outcome(Sqe::read(0, 0, 31)).is_ok());
    for sqe in [Sqe::read(0, 0, 32), Sqe::write(0, 0, 32), Sqe::compare(0, 0, 32)] {
        assert_eq!(outcome(sqe), Err(Status::INVALID_FIELD));
    }
    assert!(outcome(Sqe::verify(0, 0, 999)).is_ok());
    assert!(outcome(Sqe::write_zeroes(0, 0, 999, false)).is_ok());
}

#[test]
fn blocks_past_the_end_are_out_of_range_whatever_their_number() {
    assert!(outcome(Sqe::read(0, 999, 0)).is_ok());
    let cases =
        [(1000, 0), (999, 1), (1000 - 31, 31), (u64::MAX, 0), (u64::MAX - 1, 1), (u64::MAX - 31, 31), (1 << 63, 0)];
    for (slba, nlb) in cases {
        let builders = [Sqe::read(0, slba, nlb), Sqe::write(0, slba, nlb), Sqe::compare(0, slba, nlb)];
        for sqe in builders.into_iter().chain([Sqe::verify(0, slba, nlb), Sqe::write_zeroes(0, slba, nlb, true)]) {
            assert_eq!(outcome(sqe), Err(Status::LBA_OUT_OF_RANGE), "{slba} + {nlb}");
        }
    }
    let mut host = Host::new(&profile(), Namespace { blocks: u64::MAX, writable_blocks: u64::MAX, ..NAMESPACE });
    assert!(outcome_with(&mut host, Submission::new(Sqe::read(0, u64::MAX - 1, 0), 0)).is_ok());
    let past = outcome_with(&mut host, Submission::new(Sqe::read(0, u64::MAX - 1, 1), 0));
    assert_eq!(past, Err(Status::LBA_OUT_OF_RANGE));
}

#[test]
fn a_read_only_namespace_refuses_what_would_change_it() {
    let mut host = host();
    host.set_read_only(true);
    let mut told = |sqe: Sqe| {
        let ranges = Some(vec![DsmRange::new(0, 1)].into_boxed_slice());
        outcome_with(&mut host, Submission { sqe, tag: 0, ranges }).err()
    };
    let refused = Some(Status::NAMESPACE_WRITE_PROTECTED);
    assert_eq!(told(Sqe::write(0, 0, 0)), refused);
    assert_eq!(told(Sqe::write_zeroes(0, 0, 0, false)), refused);
    assert_eq!(told(Sqe::dataset_management(0, 0, true)), refused);
    assert_eq!(told(Sqe::dataset_management(0, 0, false)), None);
    assert_eq!(told(Sqe::read(0, 0, 0)), None);
    assert_eq!(told(Sqe::compare(0, 0, 0)), None);
    assert_eq!(told(Sqe::verify(0, 0, 0)), None);
    assert_eq!(told(Sqe::flush(0)), None);
}

#[test]
fn range_lists_are_complete_and_inside_the_namespace() {
    let mut host = host();
    let mut told = |count: u8, ranges: Option<Vec<DsmRange>>| {
        let sqe = Sqe::dataset_management(0, count - 1, true);
        host.submit(0, Submission { sqe, tag: 0, ranges: ranges.map(Vec::into_boxed_slice) }).unwrap();
        let permit = host.fetch().unwrap();
        let slot = host.slot(permit);
        let seen = slot.command.map(|_| slot.ranges().to_vec());
        host.complete(permit, Status::SUCCESS, 0);
        seen
    };
    let (good, other) = (DsmRange::new(990, 10), DsmRange::new(1000, 0));
    assert_eq!(told(1, None), Err(Status::DATA_TRANSFER_ERROR));
    assert_eq!(told(2, Some(vec![good])), Err(Status::DATA_TRANSFER_ERROR));
    assert_eq!(told(2, Some(vec![good, other])), Ok(vec![good, other]));
    // What the host's buffer holds beyond the number of ranges does not count.
    assert_eq!(told(1, Some(vec![good, DsmRange::new(5000, 1)])), Ok(vec![good]));
    for bad in [DsmRange::new(991, 10), DsmRange::new(u64::MAX, u32::MAX), DsmRange::new(1001, 0)] {
        assert_eq!(told(2, Some(vec![good, bad])), Err(Status::LBA_OUT_OF_RANGE));
    }
}

#[test]
fn an_identifier_in_use_is_a_conflict_only_within_its_queue() {
    let mut host = host();
    for queue in [0, 1, 0] {
        submit(&mut host, queue, Sqe::read(7, 0, 0));
    }
    let permits: Vec<Permit> = std::iter::from_fn(|| host.fetch()).collect();
    let told: Vec<_> =
        permits.iter().map(|&permit| (host.slot(permit).queue, host.slot(permit).command.err())).collect();
    assert_eq!(told, [(0, None), (1, None), (0, Some(Status::COMMAND_ID_CONFLICT))]);
    // Completing the refused one must not free the identifier of the one at work.
    host.complete(permits[2], Status::COMMAND_ID_CONFLICT, 0);
    submit(&mut host, 0, Sqe::read(7, 0, 0));
    let fourth = host.fetch().unwrap();
    assert_eq!(host.slot(fourth).command.err(), Some(Status::COMMAND_ID_CONFLICT));
    host.complete(fourth, Status::COMMAND_ID_CONFLICT, 0);
    host.complete(permits[0], Status::SUCCESS, 0);
    submit(&mut host, 0, Sqe::read(7, 0, 0));
    let fifth = host.fetch().unwrap();
    assert!(host.slot(fifth).command.is_ok());
}

#[test]
fn head_pointer_and_phase_follow_the_rings() {
    let mut host = Host::new(&HostProfile { queue_entries: 3, ..profile() }, NAMESPACE);
    let seen: Vec<(u16, bool)> = (0..7)
        .map(|cid| {
            submit(&mut host, 0, Sqe::flush(cid));
            let permit = host.fetch().unwrap();
            let cqe = host.complete(permit, Status::SUCCESS, 0).cqe;
            (cqe.sq_head, cqe.phase)
        })
        .collect();
    assert_eq!(seen, [(1, true), (2, true), (0, true), (1, false), (2, false), (0, false), (1, true)]);
}

#[derive(Clone, Debug)]
enum Op {
    Submit { queue: u16, cid: u16, slba: u64 },
    Fetch,
    Complete { which: usize },
    Clone,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..5u16, 0..6u16, prop_oneof![0..1000u64, any::<u64>()])
            .prop_map(|(queue, cid, slba)| Op::Submit { queue, cid, slba }),
        3 => Just(Op::Fetch),
        3 => any::<usize>().prop_map(|which| Op::Complete { which }),
        1 => Just(Op::Clone),
    ]
}

proptest! {
    /// Whatever happens, each command comes out once, in its queue's order, and the counts are right.
    #[test]
    fn no_command_is_lost_or_doubled(
        ops in prop::collection::vec(op(), 0..400),
        weighted in any::<bool>(),
        burst in 1..5u32,
        entries in 2..7u32,
        slots in 1..6u32,
    ) {
        use QueuePriority::{High, Low, Medium, Urgent};
        let mut host = Host::new(&HostProfile {
            queues: 5,
            queue_entries: entries,
            outstanding_max: slots,
            arbitration: if weighted { Arbitration::Weighted } else { Arbitration::RoundRobin },
            arbitration_burst: burst,
            queue_priorities: vec![Low, High, Urgent, Medium],
            ..profile()
        }, NAMESPACE);
        let mut rings: Vec<VecDeque<(u64, u16)>> = vec![VecDeque::new(); 5];
        let mut outstanding: Vec<(Permit, u64)> = Vec::new();
        let (mut accepted, mut completed) = (0u64, HashSet::new());
        // Then everything is drained.
        let drain = (0..1000).map(|i| if i % 2 == 0 { Op::Fetch } else { Op::Complete { which: i } });
        for op in ops.into_iter().chain(drain) {
            match op {
                Op::Submit { queue, cid, slba } => {
                    let submission = Submission::new(Sqe::read(cid, slba, 0), accepted);
                    let ring = &mut rings[usize::from(queue)];
                    let room = ring.len() < entries as usize - 1;
                    match host.submit(queue, submission.clone()) {
                        Ok(()) => {
                            prop_assert!(room);
                            ring.push_back((accepted, cid));
                            accepted += 1;
                        }
                        Err(back) => {
                            prop_assert!(!room);
                            prop_assert_eq!(back, submission);
                        }
                    }
                }
                Op::Fetch => {
                    let possible = outstanding.len() < slots as usize && rings.iter().any(|ring| !ring.is_empty());
                    let fetched = host.fetch();
                    prop_assert_eq!(fetched.is_some(), possible);
                    if let Some(permit) = fetched {
                        let slot = host.slot(permit);
                        let expected = rings[usize::from(slot.queue)].pop_front();
                        prop_assert_eq!(expected, Some((slot.tag, slot.cid)));
                        prop_assert!(outstanding.iter().all(|&(other, _)| other != permit));
                        outstanding.push((permit, slot.tag));
                    }
                }
                Op::Complete { which } => {
                    if !outstanding.is_empty() {
                        let (permit, tag) = outstanding.swap_remove(which % outstanding.len());
                        let (queue, cid) = (host.slot(permit).queue, host.slot(permit).cid);
                        prop_assert_eq!(host.slot(permit).tag, tag);
                        let completion = host.complete(permit, Status::SUCCESS, 0);
                        prop_assert_eq!((completion.queue, completion.cqe.cid), (queue, cid));
                        prop_assert!(completed.insert(tag));
                    }
                }
                Op::Clone => host = host.clone(),
            }
            prop_assert_eq!(host.outstanding(), outstanding.len());
            prop_assert_eq!(host.waiting(), rings.iter().map(VecDeque::len).sum::<usize>());
            for (queue, ring) in rings.iter().enumerate() {
                let queue = queue as u16;
                prop_assert_eq!(host.waiting_in(queue), ring.len());
                prop_assert!(host.waiting_commands(queue).map(|s| s.tag).eq(ring.iter().map(|&(tag, _)| tag)));
            }
            prop_assert_eq!(host.outstanding_commands().count(), outstanding.len());
        }
        prop_assert_eq!((host.waiting(), host.outstanding()), (0, 0));
        prop_assert_eq!(completed.len() as u64, accepted);
    }

    /// Random entries get a command inside the namespace or a status.
    #[test]
    fn foreign_entries_never_escape_the_namespace(
        dwords in any::<[u32; 16]>(),
        known in any::<bool>(),
        slba in 0..1100u64,
    ) {
        let mut sqe = Sqe::from_dwords(dwords);
        if known {
            let opcodes = [0x00, 0x01, 0x02, 0x05, 0x08, 0x09, 0x0C];
            sqe = sqe.with_dword(0, opcodes[dwords[0] as usize % 7]).with_nsid(1);
            sqe = sqe.with_dword(10, slba as u32).with_dword(11, 0).with_dword(12, dwords[12] & 0xC200_003F);
        }
        if let Ok(command) = outcome(sqe) {
            prop_assert!(command.first_block.checked_add(u64::from(command.blocks)).is_some_and(|end| end <= 1000));
        }
    }
}

#[test]
fn going_past_the_ring_is_going_through_it() {
    let weighted = HostProfile {
        arbitration: Arbitration::Weighted,
        queue_priorities: vec![QueuePriority::High, QueuePriority::Low],
        ..profile()
    };
    for profile in [profile(), weighted] {
        let (mut past, mut through) = (Host::new(&profile, NAMESPACE), Host::new(&profile, NAMESPACE));
        let mut rng = tidewater_base::Rng::new(5, b"past the ring");
        let mut outstanding = VecDeque::new();
        for cid in 0..2_000u16 {
            let (queue, sqe) = (rng.below(2) as u16, Sqe::read(cid, rng.below(1_100), 0));
            let permit = past.submit_and_fetch(queue, Submission::new(sqe, 0)).unwrap();
            submit(&mut through, queue, sqe);
            assert_eq!(permit, through.fetch());
            outstanding.extend(permit);
            // Now none is outstanding, now more than there are slots for.
            while past.waiting() > 10 || rng.below(2) == 0 && !outstanding.is_empty() {
                let permit = outstanding.remove(rng.below(outstanding.len() as u64) as usize).unwrap();
                assert_eq!(format!("{:?}", past.slot(permit)), format!("{:?}", through.slot(permit)));
                let status = Status::SUCCESS;
                assert_eq!(past.complete(permit, status, 0), through.complete(permit, status, 0));
                assert_eq!((past.waiting(), past.outstanding()), (through.waiting(), through.outstanding()));
                let next = past.fetch();
                assert_eq!(next, through.fetch());
                outstanding.extend(next);
            }
        }
    }
}
