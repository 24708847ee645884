//! Crashes at every write and every sync, with whatever the disk makes of what was not synced.

use crate::image::log::with_log;
use crate::image::model::Model;
use crate::image::recording::{Disk, Event, Fate, Log, Recording};
use crate::image::rig::{DEALLOCATE, MIXED, Mix, OVERWRITE, Rig, hybrid, tiny, wide};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use tidewater_base::Rng;
use tidewater_core::flaw::Injected;
use tidewater_core::profile::Profile;
use tidewater_nand::FaultPlan;
use tidewater_serve::image::{Flaw, ImageOptions, SyncMode, Target};

/// One run, and how it is cut.
#[derive(Clone)]
pub struct Campaign {
    pub profile: Profile,
    pub mix: Mix,
    pub sync: SyncMode,
    pub seed: u64,
    /// Commands before the run ends.
    pub commands: u64,
    /// One in so many events is cut; 1: every one.
    pub one_in: u64,
    /// Crashes at each with writes lost at random.
    pub random: u32,
    /// Every set of lost writes is tried while so many are loose.
    pub exhaustive: usize,
    /// One crash in so many is lived on from, and followed by another; 0: none.
    pub live_on: u64,
    /// The host keeps what it stores into the log ([`Rig::keeps_rings`]).
    pub keeps_rings: bool,
    /// It has no use for some of what it has not stored ([`Rig::skips`]).
    pub skips: bool,
    pub flaw: Injected<Flaw>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub events: u64,
    pub syncs: u64,
    pub crashes: u64,
    pub lost: u64,
    pub torn: u64,
    pub second: u64,
    /// Crashes between power-on and the first command.
    pub way_back: u64,
    pub loose_max: usize,
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.events += other.events;
        self.syncs += other.syncs;
        self.crashes += other.crashes;
        self.lost += other.lost;
        self.torn += other.torn;
        self.second += other.second;
        self.way_back += other.way_back;
        self.loose_max = self.loose_max.max(other.loose_max);
    }
}

impl Campaign {
    fn how(&self) -> ImageOptions {
        ImageOptions { sync: self.sync, punch: true, flaw: self.flaw }
    }

    /// Runs it.
    pub fn run(&self) -> Result<Counts, String> {
        let (storage, log) = Recording::new(Vec::new());
        let mut rig = Rig::create(Target::Storage(Box::new(storage), "test"), &self.profile, self.seed, self.how())
            .map_err(|error| error.to_string())?;
        rig.mix(self.mix);
        (rig.keeps_rings, rig.skips) = (self.keeps_rings, self.skips);
        let len = rig.payload.image().file_len();
        let mut disk = Disk::new(vec![0; len as usize]);
        let mut counts = Counts::default();
        // The making of an image is another test.
        for event in std::mem::take(&mut log.lock().unwrap().events) {
            disk.apply(&event);
        }
        self.cut_while_running(&mut rig, &log, &mut disk, &mut counts, self.commands, 0)?;
        Ok(counts)
    }

    fn cut_while_running(
        &self,
        rig: &mut Rig,
        log: &Arc<Mutex<Log>>,
        disk: &mut Disk,
        counts: &mut Counts,
        commands: u64,
        life: u64,
    ) -> Result<(), String> {
        let mut rng = Rng::new(self.seed ^ life, b"cuts");
        while rig.completed < commands {
            let before = rig.model.clone();
            if !rig.step() {
                return Err("the drive hangs".into());
            }
            let events = std::mem::take(&mut log.lock().unwrap().events);
            for (i, event) in events.iter().enumerate() {
                disk.apply(event);
                counts.events += 1;
                counts.syncs += u64::from(matches!(event, Event::SyncEnded(_)));
                counts.loose_max = counts.loose_max.max(disk.loose());
                let is_last = i + 1 == events.len();
                if rng.below(self.one_in) == 0 {
                    let before = if is_last { &rig.model } else { &before };
                    self.crash(disk, before, &rig.model, &mut rng, counts, life)?;
                }
            }
        }
        Ok(())
    }

    fn crash(
        &self,
        disk: &Disk,
        before: &Model,
        after: &Model,
        rng: &mut Rng,
        counts: &mut Counts,
        life: u64,
    ) -> Result<(), String> {
        let mut fates = vec![Fate::All, Fate::None];
        fates.extend((0..self.random).map(|_| Fate::Random(rng.next_u64())));
        if disk.loose() <= self.exhaustive {
            fates.extend((0..1 << disk.loose()).map(Fate::Set));
        }
        for fate in fates {
            let bytes = disk.crash(fate);
            let lives_on = life == 0 && self.live_on > 0 && rng.below(self.live_on) == 0;
            let again = lives_on.then(|| bytes.clone());
            let (storage, log) = Recording::new(bytes);
            let target = Target::Storage(Box::new(storage), "test");
            let seed = rng.next_u64();
            let (mut rig, report) = Rig::reopen(target, self.how(), FaultPlan::default(), seed)
                .map_err(|error| format!("{fate:?}: {error}"))?;
            counts.crashes += 1;
            counts.torn += report.torn;
            counts.lost += u64::from(fate != Fate::All && disk.loose() > 0);
            let ended = fate == Fate::All;
            if let Some(bytes) = &again {
                self.crash_on_the_way_back(bytes, &log, before, after, counts)?;
            }
            rig.check_after_crash_between(before, after, ended)
                .map_err(|e| format!("{fate:?} of {}: {e}", disk.loose()))?;
            if let Some(bytes) = again {
                counts.second += 1;
                rig.mix(self.mix);
                (rig.keeps_rings, rig.skips) = (self.keeps_rings, self.skips);
                let mut disk = Disk::new(bytes);
                for event in std::mem::take(&mut log.lock().unwrap().events) {
                    disk.apply(&event);
                }
                let again = Campaign { one_in: 40, random: 2, exhaustive: 0, ..self.clone() };
                again.cut_while_running(&mut rig, &log, &mut disk, counts, 60, seed | 1)?;
            }
        }
        Ok(())
    }

    /// Crashes at every event between power-on and the first command, after which all that was confirmed before is
    /// there still. `log` has these events.
    fn crash_on_the_way_back(
        &self,
        bytes: &[u8],
        log: &Arc<Mutex<Log>>,
        before: &Model,
        after: &Model,
        counts: &mut Counts,
    ) -> Result<(), String> {
        let mut disk = Disk::new(bytes.to_vec());
        let mut rng = Rng::new(self.seed ^ counts.crashes, b"way back");
        let events = log.lock().unwrap().events.clone();
        for event in &events {
            disk.apply(event);
            let random = || Fate::Random(rng.next_u64());
            for fate in [Fate::All, Fate::None].into_iter().chain(std::iter::repeat_with(random).take(4)) {
                let target = Recording::new(disk.crash(fate)).0;
                let target = Target::Storage(Box::new(target), "test");
                let (mut rig, _) = Rig::reopen(target, self.how(), FaultPlan::default(), self.seed)
                    .map_err(|error| format!("again, {fate:?}: {error}"))?;
                counts.way_back += 1;
                rig.check_after_crash_between(before, after, false)
                    .map_err(|error| format!("again, {fate:?} of {}: {error}", disk.loose()))?;
            }
        }
        Ok(())
    }
}

pub fn campaigns(seeds: std::ops::Range<u64>, commands: u64, one_in: u64) -> Vec<Campaign> {
    let mixes = [MIXED, OVERWRITE, DEALLOCATE];
    let syncs = [SyncMode::Inline, SyncMode::Late(0), SyncMode::Late(4), SyncMode::Late(40)];
    seeds
        .map(|seed| Campaign {
            profile: if seed % 2 == 0 { tiny() } else { wide() },
            mix: mixes[seed as usize % 3],
            sync: syncs[seed as usize / 2 % 4],
            seed,
            commands,
            one_in,
            random: 3,
            exhaustive: 0,
            live_on: 40,
            keeps_rings: false,
            skips: false,
            flaw: Injected::NONE,
        })
        .collect()
}

/// The same with a log beside the blocks.
pub fn log_campaigns(seeds: std::ops::Range<u64>, commands: u64, one_in: u64) -> Vec<Campaign> {
    let campaigns = campaigns(seeds, commands, one_in).into_iter();
    campaigns.map(|campaign| Campaign { profile: with_log(campaign.profile), mix: MIXED, ..campaign }).collect()
}

/// The same with a log whose host keeps what is not in the image.
pub fn kept_log_campaigns(seeds: std::ops::Range<u64>, commands: u64, one_in: u64) -> Vec<Campaign> {
    let campaigns = log_campaigns(seeds, commands, one_in).into_iter();
    campaigns.map(|campaign| Campaign { keeps_rings: true, ..campaign }).collect()
}

/// The same with a host that has no use for some of what it has not stored.
pub fn skipping_log_campaigns(seeds: std::ops::Range<u64>, commands: u64, one_in: u64) -> Vec<Campaign> {
    let campaigns = kept_log_campaigns(seeds, commands, one_in).into_iter();
    campaigns.map(|campaign| Campaign { skips: true, ..campaign }).collect()
}

/// The same over hybrid mapping.
fn hybrid_campaigns(seeds: std::ops::Range<u64>, commands: u64, one_in: u64) -> Vec<Campaign> {
    let of_hybrid = |campaign: Campaign| Campaign { profile: hybrid(campaign.seed), ..campaign };
    campaigns(seeds, commands, one_in).into_iter().map(of_hybrid).collect()
}

fn run_all(campaigns: &[Campaign]) -> Counts {
    let mut all = Counts::default();
    for campaign in campaigns {
        let counts = campaign.run();
        let counts = counts.unwrap_or_else(|error| panic!("seed {} {:?}: {error}", campaign.seed, campaign.sync));
        println!("seed {} {:?}: {counts:?}", campaign.seed, campaign.sync);
        all.add(counts);
    }
    println!("{} runs: {all:?}", campaigns.len());
    all
}

#[test]
fn a_crash_at_any_write_loses_nothing_that_was_flushed() {
    let all = run_all(&campaigns(0..8, 400, 60));
    assert!(all.crashes > 1_000 && all.lost > 400 && all.torn > 100 && all.second > 5, "{all:?}");
}

#[test]
fn a_crash_at_any_write_leaves_a_log_without_a_gap() {
    let all = run_all(&log_campaigns(40..46, 160, 100));
    assert!(all.crashes > 400 && all.lost > 200 && all.torn > 50 && all.second > 2 && all.way_back > 200, "{all:?}");
    let all = run_all(&kept_log_campaigns(46..52, 160, 100));
    assert!(all.crashes > 400 && all.lost > 200 && all.torn > 50 && all.second > 2 && all.way_back > 200, "{all:?}");
    let all = run_all(&skipping_log_campaigns(52..58, 160, 100));
    assert!(all.crashes > 400 && all.lost > 200 && all.torn > 50 && all.second > 2 && all.way_back > 200, "{all:?}");
}

/// What only a log shows: its control block must not be lost, and its pages are copied more often than they are
/// written.
#[test]
fn broken_rules_of_the_log_are_noticed() {
    let of =
        |seeds| log_campaigns(seeds, 600, 20).into_iter().map(|campaign| Campaign { live_on: 0, ..campaign }).collect();
    // It takes a ring's worth that is stored between two syncs, and a crash there.
    let close: Vec<Campaign> = log_campaigns(326..327, 400, 8);
    // A sync for what the host keeps, and then one for what follows in the same sector behind a page.
    let kept = kept_log_campaigns(511..512, 400, 8).into_iter().map(|campaign| Campaign { live_on: 0, ..campaign });
    for (flaw, campaigns) in [
        (Flaw::AnyControlBlock, of(40..60)),
        (Flaw::ReuseBeforeErase, of(260..280)),
        (Flaw::OverwriteUnsynced, close),
        (Flaw::ReplaceUnsynced, kept.collect()),
        (Flaw::BeginUnsynced, log_campaigns(40..60, 160, 100)),
        (Flaw::ReleaseUnsynced, log_campaigns(337..338, 400, 8)),
    ] {
        let noticed = campaigns.into_iter().enumerate().find_map(|(i, campaign): (usize, Campaign)| {
            let broken = Campaign { flaw: Injected::of(flaw), ..campaign };
            match catch_unwind(AssertUnwindSafe(|| broken.run())) {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some((i, error)),
                Err(_) => Some((i, "an assertion failed".into())),
            }
        });
        println!("{flaw:?}: {noticed:?}");
        assert!(noticed.is_some(), "{flaw:?} was not noticed");
    }
}

/// A page of long ago stood in the place of one that a newer control block had, and that was lost: the log had a gap.
#[test]
fn a_page_of_long_ago_is_not_taken_for_the_one_that_a_control_block_names() {
    assert!(run_all(&kept_log_campaigns(414..415, 400, 8)).crashes > 1_500);
    // Nor is a block refused whose pages another, which does not count, had released.
    assert!(run_all(&log_campaigns(313..314, 400, 8)).crashes > 1_500);
}

#[test]
#[ignore = "long: make torture"]
fn torture_logs_crash_at_every_write() {
    let all = run_all(&log_campaigns(300..332, 400, 8));
    assert!(all.crashes > 60_000, "{all:?}");
    let all = run_all(&kept_log_campaigns(400..432, 400, 8));
    assert!(all.crashes > 60_000, "{all:?}");
    let all = run_all(&skipping_log_campaigns(500..532, 400, 8));
    assert!(all.crashes > 60_000, "{all:?}");
}

#[test]
fn a_crash_at_any_write_of_a_merge_loses_nothing_that_was_flushed() {
    let all = run_all(&hybrid_campaigns(60..68, 400, 300));
    assert!(all.crashes > 800 && all.lost > 300 && all.torn > 50 && all.second > 3, "{all:?}");
}

#[test]
fn every_set_of_lost_writes_is_survived() {
    let exhaustive: Vec<Campaign> = campaigns(20..22, 300, 50)
        .into_iter()
        .map(|campaign| Campaign { exhaustive: 7, random: 0, live_on: 0, sync: SyncMode::Late(2), ..campaign })
        .collect();
    assert!(run_all(&exhaustive).crashes > 300);
}

#[test]
fn broken_rules_are_noticed() {
    for flaw in [Flaw::NoSyncBeforeReuse, Flaw::EagerMap, Flaw::NoChecksums, Flaw::NoFlush] {
        let noticed = campaigns(0..40, 600, 40).into_iter().enumerate().find_map(|(i, campaign)| {
            let broken = Campaign { flaw: Injected::of(flaw), ..campaign };
            let result = catch_unwind(AssertUnwindSafe(|| broken.run()));
            match result {
                Ok(Ok(_)) => None,
                Ok(Err(error)) => Some((i, error)),
                Err(_) => Some((i, "an assertion failed".into())),
            }
        });
        println!("{flaw:?}: {noticed:?}");
        assert!(noticed.is_some(), "{flaw:?} was not noticed");
    }
}

#[test]
#[ignore = "long: make torture"]
fn torture_crashes_at_every_write() {
    let all = run_all(&campaigns(100..148, 500, 6));
    assert!(all.crashes > 80_000, "{all:?}");
    let all = run_all(&hybrid_campaigns(160..184, 500, 12));
    assert!(all.crashes > 40_000, "{all:?}");
}

#[test]
#[ignore = "long: make torture"]
fn torture_every_set_of_lost_writes() {
    let exhaustive: Vec<Campaign> = campaigns(200..204, 300, 4)
        .into_iter()
        .map(|campaign| Campaign { exhaustive: 10, random: 0, live_on: 0, ..campaign })
        .collect();
    assert!(run_all(&exhaustive).crashes > 20_000);
}
