//! `x_alloc`, `x_free` and `x_abort` on a model device: several writers, in any order, some of whom die.

use std::collections::BTreeMap;

use super::model::{Model, QUEUE};
use proptest::prelude::*;
use tidewater_base::{Duration, Instant};
use tidewater_client::{
    Abort, Action, Alloc, Answer, End, Entry, Error, Fill, Free, Fsync, Lane, Operation, Outcome, Patience, Pwrite,
    Records, Region, Setup, Stall, encode_record,
};
use tidewater_wire::log::RecordHeader;
use tidewater_wire::vendor::{Epoch, NO_FLOOR};

fn patience() -> Patience {
    Patience { poll: Duration::from_ns(100), suspect: Duration::from_us(5), timeout: Duration::from_us(50) }
}

fn region_lane(model: &Model) -> Lane {
    Lane::regions(Setup { patience: patience(), ..model.setup() }, 0)
}

enum Job {
    Idle,
    Alloc(Alloc),
    Fill { region: Region, fill: Fill, piece: Vec<u8>, left: Vec<(u64, Vec<u8>)> },
    Free { region: Region, free: Free },
    Abort(Abort),
}

struct Writer {
    owner: u64,
    job: Job,
}

/// A writer's stores to its region: pieces in a random order, and the number of bytes used.
fn pieces(model: &mut Model, region: &Region) -> (Vec<(u64, Vec<u8>)>, u64) {
    let lines = model.rng.below(region.bytes / 64 + 1);
    let mut pieces = Vec::new();
    for line in 0..lines {
        let mut record = Vec::new();
        let payload = [region.owner as u8; 20];
        encode_record(region.offset + line * 64, Epoch::new(1, 1), &payload, &mut record).unwrap();
        assert_eq!(record.len(), 64);
        let cut = 1 + model.rng.below(63) as usize;
        pieces.push((line * 64, record[..cut].to_vec()));
        pieces.push((line * 64 + cut as u64, record[cut..].to_vec()));
    }
    for i in (1..pieces.len()).rev() {
        pieces.swap(i, model.rng.below(i as u64 + 1) as usize);
    }
    (pieces, lines * 64)
}

struct House {
    model: Model,
    lane: Lane,
    writers: Vec<Writer>,
    owners: u64,
    /// Every region that was given out, and the bytes that its owner freed it with.
    given: BTreeMap<u64, (Region, Option<u64>)>,
    used: BTreeMap<u64, u64>,
    /// Who gave a region up last.
    sealers: BTreeMap<u64, u64>,
    dead: Vec<u64>,
}

impl House {
    fn new(seed: u64, writers: usize, mapped: bool) -> House {
        let mut model = Model::new(seed);
        model.mapped = mapped;
        let lane = region_lane(&model);
        let writers: Vec<_> = (0..writers as u64).map(|owner| Writer { owner, job: Job::Idle }).collect();
        let owners = writers.len() as u64;
        House {
            model,
            lane,
            writers,
            owners,
            given: BTreeMap::new(),
            used: BTreeMap::new(),
            sealers: BTreeMap::new(),
            dead: Vec::new(),
        }
    }

    /// The next job of a writer that has none.
    fn begin(&mut self, i: usize, more: bool) -> Job {
        // A region whose owner is dead, and that no live writer is sealing.
        let lost = |region: &Region| {
            let sealer = self.sealers.get(&region.offset);
            self.dead.contains(&region.owner) && sealer.is_none_or(|sealer| self.dead.contains(sealer))
        };
        let dead: Vec<_> = self.lane.open_regions().filter(lost).collect();
        if !dead.is_empty() && (!more || self.model.rng.below(4) == 0) {
            // In any order: a dead writer's region need not be the oldest.
            let region = dead[self.model.rng.below(dead.len() as u64) as usize];
            self.sealers.insert(region.offset, self.writers[i].owner);
            return Job::Abort(if self.lane.is_sealed(&region) {
                let mut refused = Abort::new(&mut self.lane, region);
                let want = Error::NoSuchRegion { offset: region.offset };
                assert_eq!(refused.poll(&mut self.lane), Some(Action::Done(Err(want))));
                Abort::take_over(&mut self.lane, region)
            } else {
                Abort::new(&mut self.lane, region)
            });
        }
        if !more {
            return Job::Idle;
        }
        let bytes = self.model.rng.below(u64::from(QUEUE) / 2);
        Job::Alloc(Alloc::new(&self.lane, self.writers[i].owner, bytes, self.model.now))
    }

    fn fill(&mut self, region: Region, mut left: Vec<(u64, Vec<u8>)>) -> Job {
        match left.pop() {
            Some((at, piece)) => Job::Fill { region, fill: Fill::new(region, at, piece.len()), piece, left },
            None => Job::Free { region, free: Free::new(region, self.used[&region.offset]) },
        }
    }

    /// One action of one writer.
    fn step(&mut self, i: usize, more: bool, deadly: bool) {
        if deadly && !matches!(self.writers[i].job, Job::Idle) && self.model.rng.below(60) == 0 {
            self.dead.push(self.writers[i].owner);
            self.writers[i] = Writer { owner: self.owners, job: Job::Idle };
            self.owners += 1;
        }
        let mut job = std::mem::replace(&mut self.writers[i].job, Job::Idle);
        if let Job::Idle = job {
            job = self.begin(i, more);
        }
        let empty = Vec::new();
        let (action, out) = match &mut job {
            Job::Idle => return,
            Job::Alloc(operation) => (operation.poll(&mut self.lane), &empty),
            Job::Fill { fill, piece, .. } => (fill.poll(&mut self.lane), &*piece),
            Job::Free { free, .. } => (free.poll(&mut self.lane), &empty),
            Job::Abort(operation) => (operation.poll(&mut self.lane), &empty),
        };
        match action.expect("the model answers at once") {
            Action::Done(result) => {
                job = match (job, result) {
                    (_, Ok(Outcome::Allocated(region))) => {
                        let (pieces, used) = pieces(&mut self.model, &region);
                        self.given.insert(region.offset, (region, None));
                        self.used.insert(region.offset, used);
                        self.fill(region, pieces)
                    }
                    (Job::Fill { region, left, .. }, Ok(_)) => self.fill(region, left),
                    (Job::Free { region, .. }, Ok(_)) => {
                        self.given.insert(region.offset, (region, Some(self.used[&region.offset])));
                        Job::Idle
                    }
                    // Another writer's region is in the way: try again, once a dead owner's is sealed.
                    (Job::Alloc(_), Err(Error::Stalled { .. })) => Job::Idle,
                    (Job::Abort(_), Ok(_)) => Job::Idle,
                    (_, other) => panic!("{other:?}"),
                };
            }
            action => {
                let out = out.clone();
                if let (Some(answer), Job::Alloc(alloc)) = (self.model.act(&action, &out, &mut []), &mut job) {
                    alloc.on(&mut self.lane, self.model.now, answer);
                }
            }
        }
        self.writers[i].job = job;
        if let Some(oldest) = self.lane.open_regions().next() {
            assert!(self.model.credit() <= oldest.offset, "credit passed an open region");
        }
    }

    /// Checks the bytes on flash after a cut now: whole regions in the order in which they were given out.
    fn check(&self) {
        let cut = self.model.cut();
        let mut records = Records::new(cut, 0);
        let mut found: BTreeMap<u64, Vec<Entry>> = BTreeMap::new();
        for entry in records.by_ref() {
            let (Entry::Record { lsn, .. } | Entry::Void { lsn, .. }) = entry else { panic!("{entry:?}") };
            let region = self.given.range(..=lsn).next_back().unwrap().1.0;
            found.entry(region.offset).or_default().push(entry);
        }
        if cut.len() as u64 == self.lane.floor() {
            assert_eq!(records.end(), Some(End::Complete));
        }
        for (offset, (region, freed)) in &self.given {
            if region.end() > cut.len() as u64 {
                continue;
            }
            let entries = &found[offset];
            match freed {
                Some(used) => {
                    let lines = *used as usize / 64;
                    assert!(entries[..lines].iter().all(
                        |entry| matches!(entry, Entry::Record { payload, .. } if payload == &[region.owner as u8; 20])
                    ));
                    let void = (*used < region.bytes)
                        .then_some(Entry::Void { lsn: offset + used, bytes: region.bytes - used });
                    assert_eq!(entries[lines..], Vec::from_iter(void));
                }
                None => {
                    // It is released, but its writer has not got the answer yet, or never will: it died, after its own
                    // release or before another writer's.
                    let awaited = self
                        .writers
                        .iter()
                        .any(|writer| matches!(&writer.job, Job::Free { region: freed, .. } if freed == region));
                    assert!(awaited || self.dead.contains(&region.owner), "only dead writers' regions are given up");
                    let whole = entries[..] == [Entry::Void { lsn: *offset, bytes: region.bytes }];
                    let lines = entries.iter().filter(|entry| matches!(entry, Entry::Record { .. })).count() as u64;
                    assert!(whole || lines * 64 == self.used[offset], "{entries:?}");
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn writers_in_any_order_leave_a_stream_of_whole_regions(
        seed: u64,
        writers in 1..6usize,
        steps in 0..3000usize,
        mapped: bool,
        deadly: bool,
    ) {
        let mut house = House::new(seed, writers, mapped);
        for _ in 0..steps {
            let i = house.model.rng.below(writers as u64) as usize;
            house.step(i, true, deadly);
            if house.model.rng.below(100) == 0 {
                house.check();
            }
        }
        house.check();
        // All finish, and the dead are buried.
        for round in 0.. {
            prop_assert!(round < 100_000, "the writers do not come to an end");
            for i in 0..writers {
                house.step(i, false, false);
            }
            let idle = house.writers.iter().all(|writer| matches!(writer.job, Job::Idle));
            if idle && house.lane.open_regions().next().is_none() {
                break;
            }
        }
        prop_assert_eq!(house.lane.floor(), house.lane.written());
        let mut fsync = Fsync::new(&house.lane, house.model.now);
        let end = house.lane.written();
        prop_assert_eq!(house.model.drive(&mut house.lane, &mut fsync, &[]), Ok(Outcome::Durable { end }));
        prop_assert_eq!(house.model.cut().len() as u64, end);
        house.check();
    }
}

fn allocated(model: &mut Model, lane: &mut Lane, owner: u64, bytes: u64) -> Region {
    let mut alloc = Alloc::new(lane, owner, bytes, model.now);
    match model.drive(lane, &mut alloc, &[]) {
        Ok(Outcome::Allocated(region)) => region,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_floor_is_the_end_of_the_oldest_prefix_of_freed_regions() {
    let mut model = Model::new(1);
    let mut lane = region_lane(&model);
    assert_eq!(lane.floor(), 0);
    let regions: Vec<_> = (0..3).map(|owner| allocated(&mut model, &mut lane, owner, 100)).collect();
    assert_eq!(
        regions.iter().map(|region| (region.offset, region.bytes)).collect::<Vec<_>>(),
        [(0, 128), (128, 128), (256, 128)]
    );
    for (i, floor) in [(2, 0), (0, 128), (1, 384)] {
        let mut free = Free::new(regions[i], 0);
        assert_eq!(model.drive(&mut lane, &mut free, &[]), Ok(Outcome::Released { floor }));
        assert_eq!(lane.floor(), floor);
    }
    let mut free = Free::new(regions[1], 0);
    assert_eq!(model.drive(&mut lane, &mut free, &[]), Err(Error::NoSuchRegion { offset: 128 }));
}

#[test]
fn a_region_that_never_fits_is_refused_and_one_that_fits_exactly_is_given() {
    let mut model = Model::new(1);
    let mut lane = region_lane(&model);
    let mut alloc = Alloc::new(&lane, 1, u64::from(QUEUE) + 1, model.now);
    let want = Error::TooLarge { bytes: 1025, most: 1024 };
    assert_eq!(model.drive(&mut lane, &mut alloc, &[]), Err(want));
    assert!(want.to_string().contains("larger"), "{want}");
    let mut alloc = Alloc::new(&lane, 1, u64::MAX, model.now);
    assert!(matches!(model.drive(&mut lane, &mut alloc, &[]), Err(Error::TooLarge { .. })));
    assert_eq!(allocated(&mut model, &mut lane, 1, u64::from(QUEUE)).bytes, u64::from(QUEUE));
}

#[test]
fn a_writer_without_room_learns_whose_region_is_in_the_way_and_may_give_it_up() {
    let mut model = Model::new(1);
    let mut lane = region_lane(&model);
    let dead = allocated(&mut model, &mut lane, 77, 600);
    // It died half-way.
    let mut fill = Fill::new(dead, 64, 300);
    model.drive(&mut lane, &mut fill, &[9; 300]).unwrap();
    let mut alloc = Alloc::new(&lane, 2, 600, model.now);
    match model.drive(&mut lane, &mut alloc, &[]) {
        Err(Error::Stalled { cause: Stall::OpenRegion { owner: 77, offset: 0 }, .. }) => {}
        other => panic!("{other:?}"),
    }
    let mut abort = Abort::new(&mut lane, dead);
    // From here on its owner cannot come back.
    let mut late = Fill::new(dead, 0, 10);
    assert_eq!(late.poll(&mut lane), Some(Action::Done(Err(Error::NoSuchRegion { offset: 0 }))));
    let mut free = Free::new(dead, 640);
    assert_eq!(free.poll(&mut lane), Some(Action::Done(Err(Error::NoSuchRegion { offset: 0 }))));
    assert_eq!(model.drive(&mut lane, &mut abort, &[]), Ok(Outcome::Released { floor: 640 }));
    assert_eq!(allocated(&mut model, &mut lane, 2, 600).offset, 640);
    model.settle();
    let entries: Vec<_> = Records::new(model.cut(), 0).collect();
    assert_eq!(entries, [Entry::Void { lsn: 0, bytes: 640 }]);
}

#[test]
fn a_client_that_starts_anew_seals_what_the_last_one_left() {
    let mut model = Model::new(1);
    let mut lane = region_lane(&model);
    let first = allocated(&mut model, &mut lane, 1, 64);
    let lost = allocated(&mut model, &mut lane, 2, 500);
    let mut record = Vec::new();
    encode_record(0, Epoch::new(1, 1), b"kept", &mut record).unwrap();
    let mut fill = Fill::new(first, 0, 64);
    model.drive(&mut lane, &mut fill, &record).unwrap();
    let mut free = Free::new(first, 64);
    model.drive(&mut lane, &mut free, &[]).unwrap();
    let mut fill = Fill::new(lost, 100, 50);
    model.drive(&mut lane, &mut fill, &[9; 50]).unwrap();
    model.settle();

    // What the control page tells now.
    let setup = Setup { patience: patience(), ..model.attach() };
    assert_eq!(Lane::stream(setup).unwrap_err(), Error::Unsettled { from: 64, to: 214 });
    let mut lane = Lane::regions(setup, 99);
    let left: Vec<_> = lane.open_regions().collect();
    assert_eq!(left, [Region { offset: 64, bytes: 192, owner: 99 }]);
    assert!(lane.clone().into_stream().is_err());
    let mut abort = Abort::new(&mut lane, left[0]);
    model.drive(&mut lane, &mut abort, &[]).unwrap();
    model.settle();
    let kept = Entry::Record { lsn: 0, epoch: Epoch::new(1, 1), payload: b"kept" };
    let void = Entry::Void { lsn: 64, bytes: 192 };
    assert_eq!(Records::new(model.cut(), 0).collect::<Vec<_>>(), [kept, void]);

    // The floor of the regions does not hold the stream that follows them.
    let mut lane = lane.into_stream().unwrap();
    let mut long = Pwrite::new(&mut lane.clone(), 3 * QUEUE as usize, model.now);
    assert_eq!(long.poll(&mut lane.clone()), Some(Action::StoreFloor { lane: 0, floor: NO_FLOOR }));
    let mut buffer = Vec::new();
    let (lsn, mut append) = Pwrite::append(&mut lane, b"on", &mut buffer, model.now).unwrap();
    model.drive(&mut lane, &mut append, &buffer).unwrap();
    let mut fsync = Fsync::new(&lane, model.now);
    assert_eq!(model.drive(&mut lane, &mut fsync, &[]), Ok(Outcome::Durable { end: 320 }));
    let next = Entry::Record { lsn, epoch: Epoch::new(1, 1), payload: b"on" };
    assert_eq!(Records::new(model.cut(), 0).collect::<Vec<_>>(), [kept, void, next]);
}

proptest! {
    /// Bytes behind a gap must not join what the next client writes.
    #[test]
    fn a_gap_that_a_stream_left_is_sealed_before_the_stream_goes_on(
        seed: u64,
        whole in 0..200usize,
        gap in 1..100usize,
        after in 1..700usize,
    ) {
        let mut model = Model::new(seed);
        let store = |at: usize, bytes: usize| Action::Store { lane: 0, offset: at as u64, bytes: 0..bytes };
        if whole > 0 {
            model.act(&store(0, whole), &[1; 1000], &mut []);
        }
        model.act(&store(whole + gap, after), &[2; 1000], &mut []);
        model.settle();
        let setup = Setup { patience: patience(), ..model.attach() };
        let (from, to) = (whole as u64, (whole + gap + after) as u64);
        prop_assert_eq!(Lane::stream(setup).unwrap_err(), Error::Unsettled { from, to });
        let mut lane = Lane::regions(setup, 5);
        let region = lane.open_regions().next().unwrap();
        let mut abort = Abort::new(&mut lane, region);
        model.drive(&mut lane, &mut abort, &[]).unwrap();
        let mut lane = lane.into_stream().unwrap();
        let mut buffer = Vec::new();
        let (lsn, mut append) = Pwrite::append(&mut lane, b"on", &mut buffer, model.now).unwrap();
        model.drive(&mut lane, &mut append, &buffer).unwrap();
        let mut fsync = Fsync::new(&lane, model.now);
        model.drive(&mut lane, &mut fsync, &[]).unwrap();
        let cut = model.cut();
        let line = whole.next_multiple_of(64);
        prop_assert!(cut[..whole].iter().all(|byte| *byte == 1), "what was whole stays");
        prop_assert!(cut[whole..line].iter().all(|byte| *byte == 0));
        let mut behind = cut[line..lsn as usize].iter().skip(RecordHeader::SIZE);
        prop_assert!(behind.all(|byte| *byte == 0), "what was behind the gap is gone");
        let sealed = &cut[whole..];
        let last = Records::new(sealed, from).last();
        prop_assert_eq!(last, Some(Entry::Record { lsn, epoch: Epoch::new(1, 1), payload: b"on" }));
    }
}

#[test]
fn a_sealer_that_was_taken_over_can_no_longer_release() {
    let mut model = Model::new(1);
    let mut lane = region_lane(&model);
    let region = allocated(&mut model, &mut lane, 1, 64);
    assert!(!lane.is_sealed(&region));
    let mut first = Abort::new(&mut lane, region);
    assert!(lane.is_sealed(&region));
    assert!(matches!(first.poll(&mut lane), Some(Action::Seal { offset: 0, bytes: 64, .. })));
    assert_eq!(first.poll(&mut lane), Some(Action::Fence));
    let mut second = Abort::take_over(&mut lane, region);
    assert_eq!(first.poll(&mut lane), Some(Action::Done(Err(Error::NoSuchRegion { offset: 0 }))));
    assert_eq!(model.drive(&mut lane, &mut second, &[]), Ok(Outcome::Released { floor: 64 }));
}

#[test]
fn a_filled_region_is_fenced_and_split_at_the_end_of_the_ring() {
    let setup = Setup { start: 960, credit: 960, tail: 960, queue_bytes: 512, ring_bytes: 1024, ..Setup::default() };
    let mut lane = Lane::regions(setup, 0);
    let mut alloc = Alloc::new(&lane, 1, 200, Instant::ZERO);
    assert_eq!(alloc.poll(&mut lane), Some(Action::StoreFloor { lane: 0, floor: 960 }));
    let Some(Action::Done(Ok(Outcome::Allocated(region)))) = alloc.poll(&mut lane) else { panic!("there is room") };
    let mut fill = Fill::new(region, 10, 100);
    let actions: Vec<_> = std::iter::from_fn(|| fill.poll(&mut lane)).collect();
    let store = |offset, bytes| Action::Store { lane: 0, offset, bytes };
    let done = Action::Done(Ok(Outcome::Written { offset: 970, end: 1070 }));
    assert_eq!(actions, [store(970, 0..54), store(1024, 54..100), Action::Fence, done]);
}

#[test]
fn misuse_is_an_error_and_no_panic() {
    let mut model = Model::new(1);
    let mut lane = region_lane(&model);
    let region = allocated(&mut model, &mut lane, 1, 64);
    let mut outside = |at, bytes| {
        let mut fill = Fill::new(region, at, bytes);
        matches!(model.drive(&mut lane, &mut fill, &[0; 100]), Err(Error::OutsideRegion { .. }))
    };
    assert!(outside(0, 65) && outside(u64::MAX, 1) && !outside(63, 1));
    for used in [1, 65, 128, u64::MAX] {
        let mut free = Free::new(region, used);
        assert!(matches!(model.drive(&mut lane, &mut free, &[]), Err(Error::OutsideRegion { .. })), "{used}");
    }
    let mut pwrite = Pwrite::new(&mut lane, 1, model.now);
    assert_eq!(model.drive(&mut lane, &mut pwrite, &[0]), Err(Error::WrongUse));
    let mut stream = Lane::stream(model.setup()).unwrap();
    assert_eq!(stream.floor(), NO_FLOOR);
    let mut alloc = Alloc::new(&stream, 1, 64, model.now);
    assert_eq!(model.drive(&mut stream, &mut alloc, &[]), Err(Error::WrongUse));
    let mut abort = Abort::new(&mut stream, region);
    assert_eq!(model.drive(&mut stream, &mut abort, &[]), Err(Error::NoSuchRegion { offset: 0 }));
    let mut free = Free::new(region, 64);
    free.on(&mut lane, Instant::ZERO, Answer::Gone);
    assert_eq!(free.poll(&mut lane), Some(Action::Done(Err(Error::Gone))));
}
