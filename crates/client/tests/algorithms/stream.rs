//! `x_pwrite`, `x_fsync` and `x_pread` on a model device.

use super::model::{Model, QUEUE, RING};
use proptest::prelude::*;
use tidewater_base::{Duration, Instant, Rng};
use tidewater_client::{
    Action, Answer, End, Entry, Error, Fsync, Lane, Operation, Outcome, Patience, Pread, Pwrite, Reader, Records,
    Setup, Stall,
};
use tidewater_wire::vendor::{ControlPage, Epoch, LaneRecord, NO_FLOOR, Role, TransportStatus};

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed, b"noise");
    (0..bytes).map(|_| rng.next_u64() as u8).collect()
}

fn patient() -> Patience {
    Patience { poll: Duration::from_ns(500), suspect: Duration::from_us(10), timeout: Duration::from_ms(1) }
}

proptest! {
    /// The model asserts that no store passes credit + queue, or crosses the end of the ring.
    #[test]
    fn what_is_written_is_read_back_and_durable_after_fsync(
        seed: u64,
        mapped: bool,
        pause in 0..3u64,
        sizes in proptest::collection::vec(0..5000usize, 1..12),
    ) {
        let mut model = Model::new(seed);
        model.mapped = mapped;
        let patience = Patience { poll: Duration::from_ns(pause * 300), ..patient() };
        let mut lane = Lane::stream(Setup { patience, ..model.setup() }).unwrap();
        let mut log = Vec::new();
        for (i, &size) in sizes.iter().enumerate() {
            let buffer = noise(seed ^ i as u64, size);
            let mut pwrite = Pwrite::new(&mut lane, size, model.now);
            let offset = log.len() as u64;
            log.extend(&buffer);
            let end = log.len() as u64;
            prop_assert_eq!(model.drive(&mut lane, &mut pwrite, &buffer), Ok(Outcome::Written { offset, end }));
            prop_assert!(log.starts_with(model.cut()), "a crash leaves a prefix");
            if i % 2 == 0 {
                let mut fsync = Fsync::new(&lane, model.now);
                prop_assert_eq!(model.drive(&mut lane, &mut fsync, &[]), Ok(Outcome::Durable { end }));
                prop_assert_eq!(model.cut(), &log[..], "fsync covers all that was written");
            }
        }
        prop_assert_eq!(lane.written(), log.len() as u64);
        prop_assert!(model.most_outstanding <= u64::from(QUEUE));
        if sizes.iter().any(|size| *size as u32 >= QUEUE) {
            prop_assert_eq!(model.most_outstanding, u64::from(QUEUE), "all credit is used");
        }

        model.settle();
        let mut reader = Reader::at(0, 0, patience);
        let mut read = Vec::new();
        for &size in &sizes {
            let mut into = vec![0; size];
            let mut pread = Pread::new(size, model.now);
            let offset = read.len() as u64;
            prop_assert_eq!(model.read(&mut reader, &mut pread, &mut into), Ok(Outcome::Read { offset }));
            read.extend(into);
        }
        prop_assert_eq!(read, log);
    }

    #[test]
    fn acknowledged_records_come_back_after_a_cut_at_any_action(
        seed: u64,
        sizes in proptest::collection::vec(0..600usize, 1..10),
        cut in 0..400usize,
    ) {
        let mut model = Model::new(seed);
        let mut lane = Lane::stream(model.setup()).unwrap();
        let mut buffer = Vec::new();
        let (mut written, mut acknowledged) = (Vec::new(), 0);
        let mut actions = 0;
        'run: for (i, &size) in sizes.iter().enumerate() {
            let payload = noise(seed ^ i as u64, size);
            let (lsn, mut append) = Pwrite::append(&mut lane, &payload, &mut buffer, model.now).unwrap();
            written.push((lsn, payload));
            let mut fsync = Fsync::to(&lane, lsn + buffer.len() as u64, model.now);
            let mut appended = false;
            loop {
                if actions == cut {
                    break 'run;
                }
                actions += 1;
                let action = if appended { fsync.poll(&mut lane) } else { append.poll(&mut lane) };
                let action = action.unwrap();
                if let Action::Done(result) = action {
                    prop_assert!(result.is_ok(), "{result:?}");
                    if appended {
                        acknowledged = i + 1;
                        break;
                    }
                    appended = true;
                } else if let Some(answer) = model.act(&action, &buffer, &mut []) {
                    if appended {
                        fsync.on(&mut lane, model.now, answer)
                    } else {
                        append.on(&mut lane, model.now, answer)
                    }
                }
            }
        }
        let mut records = Records::new(model.cut(), 0);
        let found: Vec<_> = records.by_ref().collect();
        prop_assert!(found.len() >= acknowledged, "{found:?}");
        for (entry, (lsn, payload)) in found.iter().zip(&written) {
            prop_assert_eq!(entry, &Entry::Record { lsn: *lsn, epoch: Epoch::new(1, 1), payload });
        }
        let cut_within_a_record = matches!(records.end(), Some(End::Complete | End::Torn { .. }));
        prop_assert!(cut_within_a_record);
    }

    /// Answers from a device that is broken in any way: an end comes, and no panic.
    #[test]
    fn no_answer_panics(answers in proptest::collection::vec((0..6u8, any::<u64>(), 0..3000u64), 0..60)) {
        let mut lane = Lane::stream(Setup { queue_bytes: 64, ring_bytes: 128, ..Setup::default() }).unwrap();
        let mut reader = Reader::tail(0, patient());
        let (mut pwrite, mut pread) = (Pwrite::new(&mut lane, 1000, Instant::ZERO), Pread::new(1000, Instant::ZERO));
        let mut now = Instant::ZERO;
        for (kind, value, small) in answers {
            now += Duration::from_ns(value % 1_000_000);
            for _ in 0..20 {
                pwrite.poll(&mut lane);
                pread.poll(&mut reader);
            }
            let answer = match kind {
                0 => Answer::Credit(value),
                1 => Answer::Credit(small),
                2 => Answer::Health(tidewater_client::Health {
                    status: TransportStatus(value as u32 & 0xFF),
                    epoch: Epoch(small / 2000),
                    role: Role::Primary,
                }),
                3 => Answer::Data { offset: value, bytes: small as usize },
                4 => Answer::Data { offset: small, bytes: value as usize },
                _ => Answer::Time,
            };
            pwrite.on(&mut lane, now, answer);
            pread.on(&mut reader, now, answer);
        }
        prop_assert!(lane.written() <= lane.credit() + 64);
    }
}

/// A lane that wrote to a device that then stands still, and how a wait for it ends.
fn stalled(status: TransportStatus) -> (Model, Result<Outcome, Error>) {
    let mut model = Model::new(1);
    let mut lane = Lane::stream(Setup { patience: patient(), ..model.setup() }).unwrap();
    model.frozen = true;
    model.health.status = status;
    let mut pwrite = Pwrite::new(&mut lane, 100, model.now);
    model.drive(&mut lane, &mut pwrite, &[7; 100]).unwrap();
    let mut fsync = Fsync::new(&lane, model.now);
    let result = model.drive(&mut lane, &mut fsync, &[]);
    (model, result)
}

#[test]
fn the_failures_of_section_7_1_end_a_wait_in_bounded_time_and_are_told_apart() {
    for (status, want) in [
        (TransportStatus::OK, Stall::Unexplained),
        (TransportStatus::PEER_UNREACHED, Stall::PeerUnreached),
        (TransportStatus::COUNTER_OVERDUE, Stall::CounterOverdue),
        (TransportStatus::WAITS_FOR_TRIM, Stall::WaitsForTrim),
        (TransportStatus::RECOVERING, Stall::Recovering),
        // Another lane's trouble is not ours.
        (TransportStatus::broken(3), Stall::Unexplained),
    ] {
        let (model, result) = stalled(status);
        let Err(Error::Stalled { cause, waited, credit: 0, wanted: 100 }) = result else { panic!("{result:?}") };
        assert_eq!(cause, want);
        assert!(waited >= patient().timeout && model.now.since(Instant::ZERO) < Duration::from_ms(2), "{waited}");
    }
    let (model, result) = stalled(TransportStatus::DESTAGE_FAILED);
    assert_eq!(result, Err(Error::DestageFailed));
    assert!(model.now < Instant::from_ns(50_000), "known as soon as the counter is suspected: {:?}", model.now);
    assert_eq!(stalled(TransportStatus::broken(0)).1, Err(Error::StreamBroken { lane: 0 }));
    assert_eq!(stalled(TransportStatus(u32::MAX)).1, Err(Error::Gone));
}

/// The paper's section 4.1 and figure 8: what is stored before the counter is read, and after it came back.
#[test]
fn the_papers_two_examples_of_credit_are_kept() {
    for (queue, retired, in_flight) in [(4096u64, 4000u64, 96u64), (512, 400, 112)] {
        let setup = Setup { queue_bytes: queue as u32, ring_bytes: 1 << 16, patience: patient(), ..Setup::default() };
        let mut lane = Lane::stream(setup).unwrap();
        let mut pwrite = Pwrite::new(&mut lane, 10_000, Instant::ZERO);
        let store = |from: u64, to: u64| Action::Store { lane: 0, offset: from, bytes: from as usize..to as usize };
        assert_eq!(pwrite.poll(&mut lane), Some(store(0, queue)), "the whole queue, without a look at the counter");
        assert_eq!(pwrite.poll(&mut lane), Some(Action::Fence));
        assert_eq!(pwrite.poll(&mut lane), Some(Action::ReadCredit { lane: 0 }));
        pwrite.on(&mut lane, Instant::ZERO, Answer::Credit(retired));
        assert_eq!(lane.written() - retired, in_flight);
        assert_eq!(pwrite.poll(&mut lane), Some(store(queue, queue + retired)), "as much as was retired");
        assert_eq!(pwrite.poll(&mut lane), Some(Action::Fence), "and no more before the counter is read anew");
    }
}

#[test]
fn a_deposed_writer_and_a_secondary_are_told() {
    for change in [0, 1, 2] {
        let mut model = Model::new(1);
        let mut lane = Lane::stream(Setup { patience: patient(), ..model.setup() }).unwrap();
        model.frozen = true;
        match change {
            0 => model.health.epoch = Epoch::new(2, 5),
            1 => model.health.status = TransportStatus::DEPOSED,
            _ => model.health.role = Role::Secondary,
        }
        let mut pwrite = Pwrite::new(&mut lane, 5000, model.now);
        let result = model.drive(&mut lane, &mut pwrite, &[7; 5000]);
        let (ours, theirs) = (Epoch::new(1, 1), model.health.epoch);
        let want =
            if change == 2 { Error::NotPrimary { role: Role::Secondary } } else { Error::Deposed { ours, theirs } };
        assert_eq!(result, Err(want));
        assert_eq!(lane.written(), u64::from(QUEUE), "as with a short write, what was stored is known");
    }
}

#[test]
fn after_a_stall_the_rest_can_be_written_and_a_record_starts_on_a_line() {
    let mut model = Model::new(1);
    let mut lane = Lane::stream(Setup { patience: patient(), ..model.setup() }).unwrap();
    model.frozen = true;
    let mut pwrite = Pwrite::new(&mut lane, 5000, model.now);
    assert!(model.drive(&mut lane, &mut pwrite, &[7; 5000]).is_err());
    model.frozen = false;
    let mut pwrite = Pwrite::new(&mut lane, 10, model.now);
    model.drive(&mut lane, &mut pwrite, &[7; 10]).unwrap();
    let mut buffer = Vec::new();
    let (lsn, mut append) = Pwrite::append(&mut lane, b"back", &mut buffer, model.now).unwrap();
    assert_eq!(lsn, u64::from(QUEUE) + 64);
    model.drive(&mut lane, &mut append, &buffer).unwrap();
    let mut fsync = Fsync::new(&lane, model.now);
    model.drive(&mut lane, &mut fsync, &[]).unwrap();
    let entries: Vec<_> = Records::new(model.cut(), 0).collect();
    assert!(
        matches!(
            entries[..],
            [Entry::Skipped { from: 0, to, .. }, Entry::Record { payload: b"back", .. }] if to == lsn
        ),
        "{entries:?}"
    );
}

#[test]
fn a_device_that_is_gone_ends_every_operation() {
    let mut model = Model::new(1);
    let mut lane = Lane::stream(model.setup()).unwrap();
    model.gone = true;
    let mut pwrite = Pwrite::new(&mut lane, 5000, model.now);
    assert_eq!(model.drive(&mut lane, &mut pwrite, &[7; 5000]), Err(Error::Gone));
    let mut fsync = Fsync::new(&lane, model.now);
    assert_eq!(model.drive(&mut lane, &mut fsync, &[]), Err(Error::Gone));
    let mut reader = Reader::at(0, 0, patient());
    let mut pread = Pread::new(4, model.now);
    assert_eq!(model.read(&mut reader, &mut pread, &mut [0; 4]), Err(Error::Gone));
    // A read of a register of a device that is gone gives all ones.
    let mut fsync = Fsync::new(&lane, model.now);
    while !matches!(fsync.poll(&mut lane), Some(Action::ReadCredit { .. })) {}
    fsync.on(&mut lane, model.now, Answer::Credit(u64::MAX));
    assert_eq!(fsync.poll(&mut lane), Some(Action::Done(Err(Error::Gone))));
}

#[test]
fn a_counter_past_what_was_written_is_not_believed() {
    let mut lane = Lane::stream(Setup { queue_bytes: 64, ring_bytes: 64, ..Setup::default() }).unwrap();
    let mut pwrite = Pwrite::new(&mut lane, 100, Instant::ZERO);
    while !matches!(pwrite.poll(&mut lane), Some(Action::ReadCredit { .. })) {}
    pwrite.on(&mut lane, Instant::ZERO, Answer::Credit(65));
    let want = Error::OutOfStep { credit: 65, before: 0, written: 64 };
    assert_eq!(pwrite.poll(&mut lane), Some(Action::Done(Err(want))));
}

#[test]
fn two_writers_of_one_stream_are_noticed() {
    let mut lane = Lane::stream(Setup { queue_bytes: 64, ring_bytes: 64, ..Setup::default() }).unwrap();
    let mut first = Pwrite::new(&mut lane, 10, Instant::ZERO);
    let mut second = Pwrite::new(&mut lane, 10, Instant::ZERO);
    assert!(matches!(first.poll(&mut lane), Some(Action::Store { .. })));
    assert_eq!(second.poll(&mut lane), Some(Action::Done(Err(Error::Interleaved))));
}

#[test]
fn a_tail_read_blocks_keeps_its_place_and_tells_what_is_released() {
    let mut model = Model::new(3);
    let mut lane = Lane::stream(model.setup()).unwrap();
    let log = noise(3, 3000);
    let mut pwrite = Pwrite::new(&mut lane, 1000, model.now);
    model.drive(&mut lane, &mut pwrite, &log[..1000]).unwrap();
    model.settle();

    let mut reader = Reader::tail(0, patient());
    let mut into = [0; 500];
    let mut pread = Pread::new(500, model.now);
    let ended = model.read(&mut reader, &mut pread, &mut into);
    assert_eq!(ended, Err(Error::NoMoreLog { offset: 1000, filled: 0 }));
    assert_eq!(reader.position(), Some(1000), "the tail is where it was when first asked for");

    let mut pwrite = Pwrite::new(&mut lane, 2000, model.now);
    model.drive(&mut lane, &mut pwrite, &log[1000..]).unwrap();
    let mut pread = Pread::new(500, model.now);
    assert_eq!(model.read(&mut reader, &mut pread, &mut into), Ok(Outcome::Read { offset: 1000 }));
    assert_eq!((into.as_slice(), reader.position()), (&log[1000..1500], Some(1500)));

    model.settle();
    model.head = 2048;
    let mut pread = Pread::new(500, model.now);
    let ended = model.read(&mut reader, &mut pread, &mut into);
    assert_eq!(ended, Err(Error::Released { offset: 1500, head: 2048 }));
}

#[test]
fn bytes_of_another_place_are_not_taken_for_the_log() {
    let now = Instant::ZERO;
    let mut reader = Reader::at(0, 100, patient());
    let mut pread = Pread::new(50, now);
    let ask = |from: usize| Some(Action::ReadLog { lane: 0, offset: 100 + from as u64, into: from..50 });
    assert_eq!(pread.poll(&mut reader), ask(0));
    pread.on(&mut reader, now, Answer::Data { offset: 100, bytes: 20 });
    assert_eq!(pread.poll(&mut reader), ask(20));
    pread.on(&mut reader, now, Answer::Data { offset: 90, bytes: 30 });
    assert!(matches!(pread.poll(&mut reader), Some(Action::Wait { .. })));
    pread.on(&mut reader, now + patient().poll, Answer::Time);
    assert_eq!(pread.poll(&mut reader), ask(20));
    pread.on(&mut reader, now, Answer::Data { offset: 130, bytes: 20 });
    let ended = Some(Action::Done(Err(Error::Released { offset: 120, head: 130 })));
    assert_eq!((pread.poll(&mut reader), reader.position()), (ended, Some(100)));
}

#[test]
fn a_client_attaches_where_the_device_stands_or_is_told_why_not() {
    let mut page = ControlPage { lanes: 1, epoch: Epoch::new(4, 2), ..ControlPage::default() };
    page.lane[0] = LaneRecord {
        credit: 5000,
        persisted: 5100,
        ring_tail: 5100,
        floor: NO_FLOOR,
        queue_bytes: QUEUE,
        ring_bytes: RING,
        ..LaneRecord::default()
    };
    let setup = Setup::attach(&page, 0).unwrap();
    let lane = Lane::stream(setup).unwrap();
    assert_eq!((lane.written(), lane.credit(), lane.setup().epoch), (5100, 5000, Epoch::new(4, 2)));
    page.lane[0].ring_tail = 5200;
    let left = Error::Unsettled { from: 5100, to: 5200 };
    assert_eq!(Lane::stream(Setup::attach(&page, 0).unwrap()).unwrap_err(), left);
    page.lane[0].floor = 5000;
    let left = Error::Unsettled { from: 5000, to: 5200 };
    assert_eq!(Lane::stream(Setup::attach(&page, 0).unwrap()).unwrap_err(), left);
    assert_eq!(Setup::attach(&page, 1), Err(Error::NoLane { lane: 1 }));
    page.lane[0].credit = 5101;
    assert!(matches!(Setup::attach(&page, 0), Err(Error::OutOfStep { .. })));
    page.lane[0] = LaneRecord { credit: 1 << 45, persisted: 1 << 45, ..page.lane[0] };
    assert!(matches!(Setup::attach(&page, 0), Err(Error::OutOfStep { .. })));
}

#[test]
fn a_stream_ends_where_the_media_format_does() {
    let start = (1 << 44) - 10;
    let setup = Setup { start, credit: start, queue_bytes: 64, ring_bytes: 64, ..Setup::default() };
    let mut lane = Lane::stream(setup).unwrap();
    let mut pwrite = Pwrite::new(&mut lane, 11, Instant::ZERO);
    assert_eq!(pwrite.poll(&mut lane), Some(Action::Done(Err(Error::StreamFull { left: 10 }))));
}
