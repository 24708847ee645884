use super::Hybrid;
use super::state::Role;
use crate::device::plan;
use crate::events::{Event, EventQueue};
use crate::flash::NONE;
use crate::flaw::Injected;
use crate::ftl::{Ftl, Placed, Plan, Precondition};
use crate::owner::Owner;
use crate::profile::{Mapping, Profile};
use tidewater_base::{Instant, Rng};
use tidewater_nand::{Block, Cell, Fault, FaultPlan, FaultyNand, Medium, Nand, Stamps};

/// A drive of a few logical blocks of 8 pages on 4 dies.
fn tiny(mapping: Mapping) -> Profile {
    let mut p = Profile::generic();
    p.ftl.mapping = mapping;
    p.ftl.log_blocks = 6;
    p.ftl.log_write_points = 2;
    p.ftl.merges_max = 2;
    p.ftl.spare_blocks = 0.0;
    p.ftl.wear_gap = 2;
    p.ftl.checkpoint_interval = 4;
    p.buffer.write_policy = "none".into();
    p.nand.channels = 2;
    p.nand.ways = 2;
    p.nand.planes = 1;
    p.nand.blocks_per_plane = 12;
    p.nand.pages_per_block = 8;
    p.nand.page_size = 4 << 10;
    p.nand.cell = Cell::Slc;
    p.nand.factory_bad_rate = 0.0;
    p.nand.program_fail_rate = 0.0;
    p.nand.erase_fail_rate = 0.0;
    p
}

/// What a page held, oldest first, and from where on a power loss may leave it.
#[derive(Clone, Debug)]
struct History {
    states: Vec<Option<u64>>,
    durable: usize,
}

/// A translation layer that is driven event by event, with a model of what it must hold.
#[derive(Clone)]
struct Drive {
    profile: Profile,
    plan: Plan,
    ftl: Ftl<FaultyNand<Nand>>,
    events: EventQueue,
    now: Instant,
    truth: Vec<History>,
    version: u32,
}

impl Drive {
    fn new(profile: &Profile, faults: FaultPlan, past: Precondition) -> Drive {
        profile.check().unwrap();
        let plan = plan(profile, 0).unwrap();
        let nand = Nand::new(&profile.nand, profile.ftl.unit_size, Stamps::Full, 1);
        let mut ftl = Ftl::new(profile, FaultyNand::new(nand, faults), &plan, Stamps::Full);
        ftl.precondition(past, 1, 0).unwrap();
        let mut drive = Drive {
            profile: profile.clone(),
            plan,
            ftl,
            events: EventQueue::new(64),
            now: Instant::ZERO,
            truth: Vec::new(),
            version: 0,
        };
        drive.believe();
        drive
    }

    fn hybrid(&self) -> &Hybrid {
        match &self.ftl.placed {
            Placed::Hybrid(hybrid) => hybrid,
            Placed::Page(_) => panic!("the mapping is hybrid"),
        }
    }

    /// Takes what is there for the truth.
    fn believe(&mut self) {
        let now = (0..self.ftl.units()).map(|lpn| self.ftl.locate(lpn).version());
        self.truth = now.map(|state| History { states: vec![state], durable: 0 }).collect();
    }

    /// One event. False: there is none.
    fn step(&mut self) -> bool {
        let Some(at) = self.events.next_at() else { return false };
        self.now = at;
        let (ftl, events) = (&mut self.ftl, &mut self.events);
        let done = match events.pop_due(at).expect("it is due") {
            Event::Bus { channel, inward: true } => ftl.flash.on_loaded(at, events, channel),
            Event::Bus { channel, inward: false } => Some(ftl.flash.on_unloaded(at, events, channel)),
            Event::Cell { die, generation, kind } => ftl.on_cell(at, events, die, generation, kind),
            Event::Fill { row, generation } => {
                ftl.on_fill_timeout(at, events, row, generation);
                None
            }
            event => unreachable!("{event:?} is not of the flash side"),
        };
        if let Some(done) = done {
            let kind = ftl.flash.operation(done).kind();
            ftl.on_done(at, events, kind, done);
        }
        while let Some(owner) = self.ftl.take_acknowledged() {
            let history = self.truth.iter_mut().find_map(|h| {
                let at = h.states.iter().position(|&s| s == Some(u64::from(owner.pack())))?;
                Some((h, at))
            });
            // None: the page was believed anew since.
            if let Some((history, at)) = history {
                history.durable = history.durable.max(at);
            }
        }
        assert!(self.ftl.take_rejected().is_none(), "a write was rejected");
        true
    }

    fn write(&mut self, lpn: u32) {
        while !self.ftl.can_write() {
            assert!(self.step(), "nothing is under way, and no write is taken");
        }
        self.version += 1;
        self.truth[lpn as usize].states.push(Some(self.version.into()));
        self.ftl.write(self.now, &mut self.events, lpn, self.version.into(), Owner::unpack(self.version));
    }

    fn deallocate(&mut self, first: u32, count: u32) {
        self.ftl.deallocate(first, count);
        self.ftl.wake_collection(self.now, &mut self.events);
        self.truth[first as usize..(first + count) as usize].iter_mut().for_each(|h| h.states.push(None));
    }

    fn flush(&mut self) {
        let mark = self.ftl.begin_flush(self.now, &mut self.events);
        while !self.ftl.is_durable(mark) {
            if !self.step() {
                self.ftl.log_deallocations(self.now, &mut self.events);
                assert!(self.events.next_at().is_some(), "a flush does not end");
            }
        }
        self.truth.iter_mut().for_each(|h| h.durable = h.states.len() - 1);
    }

    fn rest(&mut self) {
        while self.step() {}
    }

    fn check(&self) {
        self.ftl.assert_consistent();
        for (lpn, history) in (0..).zip(&self.truth) {
            assert_eq!(self.ftl.locate(lpn).version(), *history.states.last().unwrap(), "page {lpn}");
        }
    }

    /// The drive after a power loss, with what it must still hold checked.
    fn after_power_loss(&self) -> Drive {
        let mut events = EventQueue::new(64);
        let medium = self.ftl.clone().cut_power();
        let ftl = Ftl::power_on(&self.profile, medium, &self.plan, self.now, &mut events, Injected::NONE, Vec::new());
        let mut after = Drive { ftl, events, ..self.clone() };
        while after.ftl.is_recovering() {
            assert!(after.step(), "recovery hangs");
        }
        after.ftl.assert_consistent();
        for (lpn, history) in (0..).zip(&self.truth) {
            let found = after.ftl.locate(lpn).version();
            assert!(history.states[history.durable..].contains(&found), "page {lpn} holds {found:?}: {history:?}");
        }
        after.believe();
        after
    }

    fn merges(&self) -> (u64, u64, u64) {
        let s = &self.ftl.statistics;
        (s.merges_switch, s.merges_partial, s.merges_full)
    }

    /// One of many things that a host may do.
    fn random_operation(&mut self, rng: &mut Rng) {
        let units = self.ftl.units();
        let lpn = rng.below(u64::from(units)) as u32;
        match rng.below(20) {
            0..=9 => self.write(lpn),
            // A hot page, and the first page of a block.
            10..=11 => self.write(lpn % 5),
            12 => self.write(lpn / 8 * 8),
            // A run from the start of a block.
            13..=15 => {
                let first = lpn / 8 * 8;
                let end = (first + 1 + rng.below(8) as u32).min(units);
                (first..end).for_each(|lpn| self.write(lpn));
            }
            16 => self.deallocate(lpn, (1 + rng.below(12) as u32).min(units - lpn)),
            17 => self.flush(),
            _ => (0..rng.below(30)).for_each(|_| {
                self.step();
            }),
        }
    }
}

fn healthy(mapping: Mapping, past: Precondition) -> Drive {
    Drive::new(&tiny(mapping), FaultPlan::default(), past)
}

/// Random operations, equal to the model throughout; when `cuts`, the power fails after every one, and at some events
/// in between, and now and then the drive that came back is the one that goes on.
fn campaign(mut drive: Drive, operations: u32, seed: u64, cuts: bool) -> Drive {
    let mut rng = Rng::new(seed, b"hybrid");
    for i in 0..operations {
        drive.random_operation(&mut rng);
        drive.check();
        if cuts {
            let after = drive.after_power_loss();
            if i % 40 == 39 {
                drive = after;
            }
            for _ in 0..rng.below(3) {
                drive.step();
                drive.after_power_loss();
            }
        }
    }
    drive.rest();
    drive.check();
    drive
}

#[test]
fn what_was_written_is_read_whatever_is_merged() {
    for mapping in [Mapping::Fast, Mapping::Faster] {
        for (seed, past) in [
            (1, Precondition::Fresh),
            (2, Precondition::Filled(1.0)),
            (3, Precondition::Filled(0.6)),
            (4, Precondition::Steady),
        ] {
            let drive = campaign(healthy(mapping, past), 6_000, seed, false);
            let s = &drive.ftl.statistics;
            assert!(s.merges_full > 100 && s.merges_partial > 20 && s.merges_switch > 20, "{s:?}");
            assert!(s.wear_moves > 0, "{s:?}");
            let chances = [s.second_chances, s.units_isolated, s.merges_isolation].map(|count| count > 0);
            assert_eq!(chances, [mapping == Mapping::Faster; 3], "{s:?}");
            assert!(!drive.ftl.is_read_only());
        }
    }
}

#[test]
fn nothing_promised_is_lost_when_the_power_fails() {
    for mapping in [Mapping::Fast, Mapping::Faster] {
        for seed in 0..3 {
            let past = [Precondition::Fresh, Precondition::Filled(1.0), Precondition::Steady][seed as usize];
            let drive = campaign(healthy(mapping, past), 700, seed, true);
            assert!(!drive.ftl.is_read_only());
        }
    }
}

/// A drive whose logical blocks have four pages, written in full, and one write at a time.
fn four_pages() -> Drive {
    let mut p = tiny(Mapping::Fast);
    p.nand.pages_per_block = 4;
    p.ftl.checkpoint_interval = 0;
    Drive::new(&p, FaultPlan::default(), Precondition::Filled(1.0))
}

/// The worked example of CBM's slides (W0 R2 W1 R3): what write buffer and read cache flush apart is pages 0 and 1, and
/// costs two page copies in a partial merge; merged with the pages that were read, it is 0 to 3, and a switch merge
/// copies nothing.
#[test]
fn merge_on_flush_makes_a_switch_merge_of_a_partial_one() {
    for (flushed, merges, copies) in [(2, (0, 1, 0), 2), (4, (1, 0, 0), 0)] {
        let mut drive = four_pages();
        (0..flushed).for_each(|lpn| drive.write(lpn));
        drive.rest();
        assert_eq!((drive.merges(), drive.ftl.statistics.collected), ((0, 0, 0), 0), "nothing is merged ahead of time");
        // Another logical block's first page needs the sequential log block.
        drive.write(8);
        drive.rest();
        assert_eq!((drive.merges(), drive.ftl.statistics.collected), (merges, copies), "pages 0 to {flushed}");
        assert_eq!(drive.ftl.statistics.erases_total, 1, "the old data block is erased either way");
        drive.check();
    }
}

#[test]
fn a_run_that_breaks_off_is_merged_and_goes_on_in_the_log() {
    let mut drive = four_pages();
    [0, 1, 3].into_iter().for_each(|lpn| drive.write(lpn));
    drive.rest();
    // Page 3 did not continue the run: the sequential block is merged with pages 2 and 3, and the write went to the
    // log.
    assert_eq!((drive.merges(), drive.ftl.statistics.collected), ((0, 1, 0), 2));
    // Pages of other blocks do not disturb a run.
    [4, 9, 5, 10, 6, 11, 7, 8].into_iter().for_each(|lpn| drive.write(lpn));
    drive.rest();
    assert_eq!((drive.merges(), drive.ftl.statistics.collected), ((1, 1, 0), 2));
    drive.check();
}

#[test]
fn a_victim_of_the_log_costs_a_full_merge_for_each_logical_block_in_it() {
    let mut p = tiny(Mapping::Fast);
    p.nand.pages_per_block = 4;
    p.ftl.log_blocks = 2;
    p.ftl.log_write_points = 1;
    p.ftl.checkpoint_interval = 0;
    p.ftl.wear_gap = 0;
    let mut drive = Drive::new(&p, FaultPlan::default(), Precondition::Filled(1.0));
    // The first log block holds pages of three logical blocks, one of which is overwritten in the second.
    [1, 2, 5, 9, 9].into_iter().for_each(|lpn| drive.write(lpn));
    drive.rest();
    assert_eq!((drive.merges(), drive.ftl.statistics.collected), ((0, 0, 2), 8));
    // Two data blocks and the log block.
    assert_eq!(drive.ftl.statistics.erases_total, 3);
    drive.check();
}

/// Rows of several units, dies that program in turn, logs of all sizes: the same, whatever the shape.
fn shapes() -> Vec<Profile> {
    let mut all = Vec::new();
    for (log_blocks, points, merges) in [(2, 0, 1), (2, 1, 4), (3, 1, 1), (4, 2, 8), (9, 0, 3)] {
        let mut p = tiny(if log_blocks % 2 == 0 { Mapping::Fast } else { Mapping::Faster });
        p.ftl.log_blocks = log_blocks;
        p.ftl.log_write_points = points;
        p.ftl.merges_max = merges;
        all.push(p);
    }
    for (planes, page_size, mapping) in
        [(2, 4 << 10, Mapping::Fast), (1, 16 << 10, Mapping::Faster), (2, 8 << 10, Mapping::Fast)]
    {
        let mut p = tiny(mapping);
        p.nand.planes = planes;
        p.nand.page_size = page_size;
        p.nand.pages_per_block = 4;
        p.nand.oob_size = 448;
        p.nand.blocks_per_plane = 14;
        all.push(p);
    }
    let mut p = tiny(Mapping::Fast);
    p.nand.cache = false;
    p.flash.programs_per_die = 1;
    p.ftl.checkpoint_interval = 1;
    all.push(p);
    all
}

#[test]
fn the_log_never_runs_out_of_blocks_at_any_size() {
    for (seed, profile) in (0..).zip(shapes()) {
        let drive = campaign(Drive::new(&profile, FaultPlan::default(), Precondition::Filled(1.0)), 3_000, seed, false);
        let s = &drive.ftl.statistics;
        assert!(s.merges_full > 100 && !drive.ftl.is_read_only(), "{:?}: {s:?}", profile.ftl);
    }
}

#[test]
fn power_losses_are_survived_in_every_shape() {
    for (seed, profile) in (0..).zip(shapes()) {
        campaign(Drive::new(&profile, FaultPlan::default(), Precondition::Filled(0.8)), 250, seed, true);
    }
}

/// The power fails at every event of a workload that merges all the time, and at every event of every recovery from
/// that.
#[test]
fn a_merge_that_is_cut_at_any_event_loses_nothing() {
    for mapping in [Mapping::Fast, Mapping::Faster] {
        let mut drive = campaign(healthy(mapping, Precondition::Filled(1.0)), 300, 5, false);
        let mut rng = Rng::new(6, b"cuts");
        let mut cuts = 0;
        for i in 0..60 {
            drive.random_operation(&mut rng);
            drive.after_power_loss();
            while drive.step() {
                let whole = drive.after_power_loss();
                cuts += 1;
                if i % 10 == 0 && cuts % 7 == 0 {
                    whole.after_power_loss().check();
                }
            }
        }
        assert!(cuts > 300, "{cuts}");
    }
}

/// Losses in quick succession, each before the last one's recovery has settled, must not use up superblocks.
#[test]
fn losses_in_quick_succession_leave_room_to_merge() {
    let mut drive = healthy(Mapping::Fast, Precondition::Filled(1.0));
    let mut rng = Rng::new(8, b"losses");
    for _ in 0..400 {
        (0..1 + rng.below(6)).for_each(|_| drive.random_operation(&mut rng));
        drive = drive.after_power_loss();
        (0..rng.below(4)).for_each(|_| {
            drive.step();
        });
        drive = drive.after_power_loss();
    }
    drive = campaign(drive, 500, 9, false);
    assert!(!drive.ftl.is_read_only());
}

/// No merge gets to its end between two losses: if what they copied counted, every loss would leave another superblock
/// with a part of a logical block.
#[test]
fn merges_that_are_cut_again_and_again_leave_nothing_behind() {
    let mut drive = healthy(Mapping::Fast, Precondition::Filled(1.0));
    let mut rng = Rng::new(7, b"again");
    let units = u64::from(drive.ftl.units());
    // Not the first page of a block: nothing is in sequence.
    (0..300).for_each(|_| drive.write(rng.below(units) as u32 / 8 * 8 + 1 + rng.below(7) as u32));
    let mut merging = 0;
    for loss in 0..60 {
        (0..8 + loss % 12).all(|_| drive.step());
        merging += u32::from(drive.hybrid().merges.iter().any(|merge| merge.block != NONE));
        drive = drive.after_power_loss();
        let roles = (0..).zip(&drive.hybrid().roles);
        let holds = roles.filter(|&(superblock, _): &(u32, _)| drive.ftl.space.valid_units(superblock) > 0);
        let mut blocks = std::collections::BTreeSet::new();
        for (_, role) in holds {
            assert!(
                !matches!(role, Role::InPlace(block) if !blocks.insert(*block)),
                "loss {loss}: {role:?} lies in two places"
            );
        }
    }
    assert!(merging > 50, "{merging}");
    let drive = campaign(drive, 300, 6, false);
    assert!(!drive.ftl.is_read_only());
}

#[test]
fn programs_and_erases_that_fail_lose_nothing() {
    for (seed, mapping) in [(1, Mapping::Fast), (2, Mapping::Faster), (3, Mapping::Fast), (4, Mapping::Faster)] {
        let mut p = tiny(mapping);
        p.nand.blocks_per_plane = 20;
        p.ftl.spare_blocks = 0.2;
        if seed > 2 {
            p.nand.planes = 2;
            p.nand.pages_per_block = 4;
        }
        let mut faults = FaultPlan::default();
        faults.faults.extend((0..6).map(|i| Fault::ProgramFails { nth: 40 * seed + 331 * i }));
        faults.faults.extend((0..4).map(|i| Fault::EraseFails { nth: 7 * seed + 97 * i }));
        let drive = campaign(Drive::new(&p, faults, Precondition::Filled(1.0)), 500, seed, true);
        let layout = drive.ftl.layout();
        let dies = (0..layout.dies).flat_map(|die| (0..layout.planes()).map(move |plane| (die, plane)));
        let blocks = dies.flat_map(|(die, plane)| (0..20).map(move |block| Block { die, plane, block }));
        let bad = blocks.filter(|&at| drive.ftl.medium.is_bad(at)).count();
        assert!(bad >= 6 && !drive.ftl.is_read_only(), "{bad} bad blocks");
    }
}

/// The skew that FASTer is made for: few pages are overwritten again and again, and some are not.
#[test]
fn a_second_chance_spares_merges_of_what_is_overwritten_soon() {
    let merges = |mapping| {
        let mut p = tiny(mapping);
        p.ftl.log_blocks = 8;
        p.ftl.log_write_points = 1;
        p.nand.blocks_per_plane = 40;
        let mut drive = Drive::new(&p, FaultPlan::default(), Precondition::Filled(1.0));
        let mut rng = Rng::new(1, b"skew");
        let units = u64::from(drive.ftl.units());
        for _ in 0..8_000 {
            // Nine of ten writes go to 48 pages in as many logical blocks.
            let lpn = if rng.below(10) < 9 { rng.below(48) * 8 % units + 3 } else { rng.below(units) };
            drive.write(lpn as u32);
        }
        drive.rest();
        drive.check();
        drive.ftl.statistics.merges_full
    };
    let (fast, faster) = (merges(Mapping::Fast), merges(Mapping::Faster));
    assert!(faster < fast, "{faster} with a second chance, {fast} without");
}

/// FASTer with a log of four blocks and an isolation area of two, blocks of four pages, all of them written.
fn isolating() -> Drive {
    let mut p = tiny(Mapping::Faster);
    p.nand.pages_per_block = 4;
    p.ftl.log_blocks = 6;
    p.ftl.log_write_points = 1;
    p.ftl.isolation_share = 0.3;
    p.ftl.checkpoint_interval = 0;
    p.ftl.wear_gap = 0;
    Drive::new(&p, FaultPlan::default(), Precondition::Filled(1.0))
}

#[test]
fn what_comes_round_twice_is_isolated_and_merged_as_the_area_fills_up() {
    let mut drive = isolating();
    // Two pages that are written once, among writes of another one.
    [1, 5].into_iter().chain([9; 40]).for_each(|lpn| drive.write(lpn));
    drive.rest();
    let s = drive.ftl.statistics;
    assert_eq!((s.second_chances, s.units_isolated, drive.merges()), (2, 2, (0, 0, 0)), "they left the log, unmerged");
    // Of the next ones, the first is of a logical block that has a page in the area already.
    for lpn in [2, 13, 17, 21, 25, 29] {
        [lpn, 9, 9, 9].into_iter().for_each(|lpn| drive.write(lpn));
    }
    (0..40).for_each(|_| drive.write(9));
    drive.rest();
    let s = drive.ftl.statistics;
    // The area's last block has no room left: the four pages of its first one, of three logical blocks, were merged.
    assert_eq!((s.second_chances, s.units_isolated), (8, 8));
    assert_eq!((drive.merges(), s.merges_isolation, s.collected), ((0, 0, 3), 3, 8 + 8 + 3 * 4));
    drive.check();
}

#[test]
fn an_isolated_page_that_is_overwritten_is_not_merged() {
    let mut drive = isolating();
    [1, 5, 2, 13].into_iter().chain([9; 60]).for_each(|lpn| drive.write(lpn));
    assert_eq!(drive.ftl.statistics.units_isolated, 4);
    // The area's first block holds nothing that counts any more, and is erased.
    [1, 5, 2, 13].into_iter().chain([9; 8]).for_each(|lpn| drive.write(lpn));
    drive.rest();
    assert!(drive.hybrid().isolation.blocks.is_empty());
    assert_eq!(drive.merges(), (0, 0, 0));
    drive.check();
}

#[test]
fn isolation_spares_merges_of_logical_blocks_with_several_cold_pages() {
    let merges = |share| {
        let mut p = tiny(Mapping::Faster);
        p.ftl.isolation_share = share;
        p.ftl.log_blocks = 16;
        p.ftl.log_write_points = 1;
        p.nand.blocks_per_plane = 80;
        p.nand.pages_per_block = 32;
        let mut drive = Drive::new(&p, FaultPlan::default(), Precondition::Filled(1.0));
        let mut rng = Rng::new(1, b"skew");
        let units = u64::from(drive.ftl.units());
        for _ in 0..20_000 {
            // Nine of ten writes go to 48 pages in as many logical blocks.
            let lpn = if rng.below(10) < 9 { rng.below(48) * 32 + 3 } else { rng.below(units) | 1 };
            drive.write(lpn as u32);
        }
        drive.rest();
        drive.check();
        drive.ftl.statistics.merges_full
    };
    let (with, without) = (merges(0.25), merges(0.0));
    assert!(with < without * 9 / 10, "{with} with an isolation area, {without} without");
}

#[test]
fn a_log_that_is_too_small_is_refused_with_the_least() {
    let mut p = tiny(Mapping::Fast);
    p.ftl.log_blocks = 1;
    let error = p.check().unwrap_err().to_string();
    assert!(error.contains("at least 4"), "{error}");
    p.ftl.log_write_points = 1;
    assert!(p.check().unwrap_err().to_string().contains("at least 2"));
    p.ftl.log_blocks = 2;
    p.check().unwrap();
    p.ftl.log_blocks = 1_000;
    let error = plan(&p, 0).unwrap_err();
    assert!(error.contains("1000 superblocks are RW log blocks"), "{error}");
}

/// The constructed log is as full of valid pages as one that was written.
#[test]
fn the_steady_state_is_the_one_that_random_writes_lead_to() {
    let mut p = tiny(Mapping::Fast);
    p.ftl.log_blocks = 40;
    p.nand.blocks_per_plane = 60;
    let merges_per_write = |past, warm_up| {
        let mut drive = Drive::new(&p, FaultPlan::default(), past);
        let mut rng = Rng::new(3, b"steady");
        let units = u64::from(drive.ftl.units());
        // Not the first page of a block: that goes to the sequential log block.
        let mut write = |drive: &mut Drive| {
            let lpn = rng.below(units) as u32;
            drive.write(if lpn.is_multiple_of(8) && lpn + 1 < units as u32 { lpn + 1 } else { lpn });
        };
        (0..warm_up).for_each(|_| write(&mut drive));
        drive.ftl.statistics = Default::default();
        (0..4_000).for_each(|_| write(&mut drive));
        drive.ftl.statistics.merges_full as f64 / 4_000.0
    };
    let (lived, constructed) =
        (merges_per_write(Precondition::Filled(1.0), 4_000), merges_per_write(Precondition::Steady, 0));
    assert!(
        (constructed / lived - 1.0).abs() < 0.05,
        "{constructed} merges for each write, {lived} when lived through"
    );
}
