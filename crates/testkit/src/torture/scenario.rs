//! Tiny drives, on which a few thousand events reach every corner.

use super::Mix;
use crate::profile::few_pages;
use tidewater_base::Duration;
use tidewater_core::buffer::POLICIES;
use tidewater_core::ftl::Precondition;
use tidewater_core::profile::{
    CbmMerge, CbmRuns, GcVictim, Mapping, MemoryKind, MemoryProfile, Profile, Survives, WhenFull,
};
use tidewater_nand::{Cell, Fault, FaultPlan};
use tidewater_sim::oracle::Durability;

/// A drive and what is done to it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Its name in messages.
    pub name: String,
    /// The drive.
    pub profile: Profile,
    /// Its past.
    pub precondition: Precondition,
    /// Faults of its flash.
    pub faults: FaultPlan,
    /// The host's workload.
    pub mix: Mix,
    /// Commands under way at once, 1 to 16.
    pub queue_depth: u32,
    /// Flash may lose data for good: pages that are known to be lost are not held against the drive.
    pub lossy: bool,
    /// The drive may reach the end of its life and refuse writes.
    pub may_wear_out: bool,
}

impl Scenario {
    /// When the drive promises what it has written.
    pub fn durability(&self) -> Durability {
        let buffer = &self.profile.buffer;
        let memory = self.profile.memories.iter().find(|m| m.name == buffer.write_memory);
        let survives = memory.is_some_and(|m| m.survives != Survives::Nothing);
        if buffer.write_policy == "none" || survives { Durability::OnCompletion } else { Durability::OnFlush }
    }
}

/// A drive of a few hundred pages that suspends quickly.
pub(super) fn tiny() -> Profile {
    let mut p = few_pages();
    p.flash.suspend_time = Duration::from_us(5);
    p.flash.resume_time = Duration::from_us(5);
    p
}

fn set_memory(profile: &mut Profile, kind: MemoryKind, survives: Survives) {
    let memory = MemoryProfile { size: 1 << 20, survives, ..MemoryProfile::of_kind("nearby", kind) };
    profile.memories.push(memory);
    profile.buffer.write_memory = "nearby".into();
}

pub(super) fn scenario(name: &str, profile: Profile) -> Scenario {
    Scenario {
        name: name.into(),
        profile,
        precondition: Precondition::Fresh,
        faults: FaultPlan::default(),
        mix: Mix::ALL,
        queue_depth: 8,
        lossy: false,
        may_wear_out: false,
    }
}

/// A volatile buffer in front of flash with two units in a row.
pub fn volatile() -> Scenario {
    let mut p = tiny();
    p.nand.planes = 2;
    p.nand.pages_per_block = 4;
    scenario("volatile buffer", p)
}

/// A drive that keeps all its promises, each in its own way, with healthy flash and with flash that fails.
pub fn all_scenarios() -> Vec<Scenario> {
    let mut all = vec![volatile()];

    let mut p = tiny();
    p.buffer.write_policy = "none".into();
    all.push(Scenario { queue_depth: 16, ..scenario("no buffer", p) });

    let mut p = tiny();
    set_memory(&mut p, MemoryKind::Dram, Survives::ByCapacitors);
    all.push(Scenario { mix: Mix::OVERWRITE, queue_depth: 4, ..scenario("capacitors", p) });

    let mut p = tiny();
    set_memory(&mut p, MemoryKind::Nvm, Survives::ByItself);
    p.nand.planes = 2;
    p.nand.page_size = 8 << 10;
    p.nand.pages_per_block = 4;
    p.buffer.write_size = 32 << 10;
    all.push(Scenario { mix: Mix::DEALLOCATE, ..scenario("buffer in NVM", p) });

    let mut p = tiny();
    p.nand.cell = Cell::Tlc;
    p.nand.program_time = [Duration::from_us(150), Duration::from_us(250), Duration::from_us(400)];
    p.nand.pages_per_block = 6;
    p.nand.page_size = 16 << 10;
    p.ftl.gc_victim = GcVictim::CostBenefit;
    p.flash.suspend = false;
    p.buffer.read_policy = "lru".into();
    p.buffer.read_size = 64 << 10;
    p.buffer.read_memory = "sram".into();
    all.push(Scenario { mix: Mix::DEALLOCATE, queue_depth: 16, ..scenario("TLC with a read cache", p) });

    let mut p = tiny();
    p.nand.ways = 1;
    p.nand.blocks_per_plane = 16;
    p.nand.cache = false;
    p.flash.programs_per_die = 4;
    p.ftl.gc_stream = false;
    p.ftl.checkpoint_interval = 2;
    p.ftl.gc_start = 3;
    p.ftl.wear_gap = 1;
    p.host.block_size = 4096;
    all.push(Scenario {
        precondition: Precondition::Filled(1.0),
        queue_depth: 1,
        ..scenario("filled, one stream, queue depth 1", p)
    });

    let mut p = tiny();
    p.nand.pages_per_block = 16;
    p.nand.multi_plane = false;
    p.nand.planes = 2;
    p.ftl.checkpoint_interval = 16;
    p.flash.read_priority = false;
    all.push(Scenario {
        precondition: Precondition::Filled(0.7),
        mix: Mix::OVERWRITE,
        queue_depth: 16,
        ..scenario("planes in turn, larger blocks", p)
    });

    // Small pages hold a small piece of the map each: it takes a round of many to checkpoint all of it.
    let mut p = tiny();
    p.ftl.unit_size = 512;
    p.nand.page_size = 512;
    p.nand.oob_size = 64;
    p.nand.ecc_codeword = 512;
    p.nand.ecc_bits = 30;
    p.nand.blocks_per_plane = 28;
    p.buffer.write_size = 8 << 10;
    p.ftl.checkpoint_interval = 3;
    all.push(Scenario {
        precondition: Precondition::Filled(0.8),
        mix: Mix::DEALLOCATE,
        ..scenario("many pieces of the map", p.clone())
    });
    p.buffer.write_policy = "none".into();
    p.ftl.spare_blocks = 0.1;
    all.push(Scenario {
        precondition: Precondition::Filled(0.5),
        faults: failing(4),
        ..scenario("many pieces of the map, failing flash", p)
    });

    let mut p = tiny();
    p.nand.blocks_per_plane = 20;
    p.ftl.spare_blocks = 0.15;
    p.nand.factory_bad_rate = 0.04;
    all.push(Scenario { faults: failing(1), ..scenario("failing flash, volatile buffer", p) });

    let mut p = tiny();
    p.nand.blocks_per_plane = 20;
    p.nand.planes = 2;
    p.nand.pages_per_block = 4;
    p.ftl.spare_blocks = 0.2;
    p.buffer.write_policy = "none".into();
    all.push(Scenario {
        faults: failing(2),
        mix: Mix::DEALLOCATE,
        queue_depth: 16,
        ..scenario("failing flash, no buffer", p)
    });

    let mut p = tiny();
    set_memory(&mut p, MemoryKind::Nvm, Survives::ByItself);
    p.nand.blocks_per_plane = 20;
    p.ftl.spare_blocks = 0.15;
    all.push(Scenario { faults: failing(3), mix: Mix::OVERWRITE, ..scenario("failing flash, buffer in NVM", p) });
    all
}

/// Every policy of the write buffer, in each kind of memory: a volatile one, one that capacitors back, and one that
/// keeps its content by itself (`none`, which has no buffer, only once). The buffer has room for two blocks; beside it
/// is a read cache, so that pages are merged on flush.
pub fn buffer_scenarios(mapping: Mapping) -> Vec<Scenario> {
    let mut all = Vec::new();
    for &policy in POLICIES {
        for memory in MEMORIES {
            if policy != "none" || memory == "volatile" {
                all.push(buffered(policy, memory, mapping, all.len() as u32));
            }
        }
    }
    all
}

/// Every reading of `cbm`, in each kind of memory.
pub fn cbm_scenarios(mapping: Mapping) -> Vec<Scenario> {
    let readings = [
        (CbmMerge::Run, CbmRuns::Block, true, false, 0.25),
        (CbmMerge::Whole, CbmRuns::All, true, true, 0.0),
        (CbmMerge::Off, CbmRuns::Block, false, true, 1.0),
        (CbmMerge::Pad, CbmRuns::Block, true, false, 0.1),
    ];
    let mut all = Vec::new();
    for reading in readings {
        for memory in MEMORIES {
            let mut made = buffered("cbm", memory, mapping, all.len() as u32);
            let of = &mut made.profile.buffer;
            (of.cbm_merge, of.cbm_runs, of.cbm_keep, of.cbm_padding, of.cbm_age) = reading;
            all.push(Scenario { name: format!("{}, {reading:?}", made.name), ..made });
        }
    }
    all
}

const MEMORIES: [&str; 3] = ["volatile", "capacitors", "NVM"];

/// The `i`th drive with such a buffer.
fn buffered(policy: &str, memory: &str, mapping: Mapping, i: u32) -> Scenario {
    let mut p = tiny();
    p.ftl.mapping = mapping;
    if mapping != Mapping::Page {
        // Logs of several sizes, with an isolation area and without.
        p.ftl.log_blocks = 4 + i % 5;
        p.ftl.log_write_points = 1 + i % 2;
        p.ftl.merges_max = 1 + i % 3;
        p.ftl.isolation_share = [0.0, 0.25, 0.5][i as usize % 3];
    }
    match memory {
        "capacitors" => set_memory(&mut p, MemoryKind::Dram, Survives::ByCapacitors),
        "NVM" => set_memory(&mut p, MemoryKind::Nvm, Survives::ByItself),
        _ => {}
    }
    p.buffer.write_policy = policy.into();
    p.buffer.write_watermark = if memory == "volatile" { 0.5 } else { 1.0 };
    p.buffer.read_policy = "lru".into();
    p.buffer.read_size = 32 << 10;
    p.buffer.read_memory = "sram".into();
    Scenario {
        precondition: Precondition::Filled(if memory == "volatile" { 0.5 } else { 0.9 }),
        mix: if memory == "NVM" { Mix::DEALLOCATE } else { Mix::ALL },
        ..scenario(&format!("{policy}, {memory}, {mapping:?}"), p)
    }
}

/// Drives whose host writes go to an SLC cache first: fixed, dynamic and both, past it when it is full or waiting for
/// it, with healthy flash and with flash that fails. They fold between any two bursts.
pub fn slc_scenarios() -> Vec<Scenario> {
    let base = |i: u64| {
        let mut p = tiny();
        p.nand.cell = Cell::Tlc;
        p.nand.program_time = [Duration::from_us(300), Duration::from_us(450), Duration::from_us(700)];
        p.nand.pages_per_block = 12;
        p.slc.program_time = Duration::from_us(100);
        p.slc.fold_after = Duration::from_us(if i.is_multiple_of(2) { 300 } else { 40 });
        p.buffer.write_size = 32 << 10;
        p
    };
    let pages = |n: u64| n * 4 * (4 << 10) * 4; // Superblocks of each of four dies.
    let mut all = Vec::new();
    for (i, (fixed, dynamic, when_full)) in [
        (2, 0.0, WhenFull::Direct),
        (1, 0.0, WhenFull::Fold),
        (0, 1.0, WhenFull::Direct),
        (0, 0.5, WhenFull::Fold),
        (1, 1.0, WhenFull::Direct),
        (2, 0.7, WhenFull::Fold),
    ]
    .into_iter()
    .enumerate()
    {
        let mut p = base(i as u64);
        (p.slc.size, p.slc.dynamic, p.slc.when_full) = (pages(fixed), dynamic, when_full);
        if i == 3 {
            p.buffer.write_policy = "none".into();
        }
        let name = format!("SLC cache of {fixed} and {dynamic}, {when_full:?}");
        all.push(Scenario {
            precondition: Precondition::Filled([0.0, 0.9, 0.3, 0.6, 1.0, 0.8][i]),
            mix: [Mix::ALL, Mix::OVERWRITE, Mix::DEALLOCATE][i % 3],
            queue_depth: [8, 16, 2][i % 3],
            ..scenario(&name, p.clone())
        });
        if i % 2 == 1 {
            p.nand.blocks_per_plane = 24;
            p.nand.planes = 2;
            p.ftl.spare_blocks = 0.2;
            all.push(Scenario { faults: failing(5 + i as u64), ..scenario(&format!("{name}, failing flash"), p) });
        }
    }
    all
}

/// The same drives with hybrid mapping: FAST and FASTer in turn, logs of several sizes.
pub fn hybrid_scenarios() -> Vec<Scenario> {
    let hybrid = |(i, scenario): (u32, Scenario)| with_hybrid_mapping(scenario, i);
    (0..).zip(all_scenarios()).map(hybrid).collect()
}

/// The same drive with hybrid mapping, FAST or FASTer by whether `i` is even.
pub fn with_hybrid_mapping(mut scenario: Scenario, i: u32) -> Scenario {
    let ftl = &mut scenario.profile.ftl;
    ftl.mapping = if i.is_multiple_of(2) { Mapping::Fast } else { Mapping::Faster };
    ftl.log_blocks = 4 + i % 5;
    ftl.log_write_points = i % 3;
    ftl.merges_max = 1 + i % 3;
    ftl.isolation_share = 0.25;
    scenario.name = format!("{}, {:?}", scenario.name, ftl.mapping);
    // Merges program much for little that the host writes: as many failures come in fewer of its commands.
    if ftl.spare_blocks > 0.0 && !scenario.may_wear_out {
        ftl.spare_blocks = 0.2;
        scenario.profile.nand.blocks_per_plane += 10;
    }
    scenario
}

/// The page-mapped scenarios with a mapping cache of a few pages.
pub fn mapping_scenarios() -> Vec<Scenario> {
    (0..).zip(all_scenarios()).map(|(i, scenario)| with_mapping_cache(scenario, i)).collect()
}

/// The same drive with two to four of its mapping pages at hand, of 16 entries each.
pub fn with_mapping_cache(mut scenario: Scenario, i: u32) -> Scenario {
    let ftl = &mut scenario.profile.ftl;
    ftl.map_memory = "sram".into();
    ftl.map_page = 64;
    ftl.map_size = u64::from(64 * (2 + i % 3));
    ftl.map_prefetch = i % 2;
    ftl.map_updates = 64;
    // Room for the pools of mapping pages.
    scenario.profile.nand.blocks_per_plane += 4;
    scenario.name += ", mapping cache";
    scenario
}

/// Programs, erases and reads that fail, few enough that the spares last for some thousand operations.
fn failing(seed: u64) -> FaultPlan {
    let mut plan = FaultPlan::seeded(seed, 40, 2_000).recoverable();
    // One early failure of each kind, so that short runs meet them too.
    plan.faults.extend([Fault::ProgramFails { nth: 9 + 8 * seed }, Fault::EraseFails { nth: seed }]);
    plan
}

/// Flash on which reads fail for good: data is lost, and the drive says so.
pub fn fragile() -> Scenario {
    let mut p = tiny();
    p.nand.blocks_per_plane = 20;
    p.ftl.spare_blocks = 0.15;
    let mut faults = FaultPlan::seeded(7, 40, 2_000);
    faults.faults.extend((0..200).map(|i| Fault::ReadUncorrectable { nth: 10 + 23 * i }));
    Scenario { faults, lossy: true, ..scenario("reads that fail for good", p) }
}

/// A drive near its end: blocks give out one after another until it is read-only.
pub fn worn_out() -> Scenario {
    let mut p = tiny();
    p.nand.endurance = 2;
    p.ftl.spare_blocks = 0.1;
    p.nand.blocks_per_plane = 16;
    Scenario { mix: Mix::OVERWRITE, may_wear_out: true, ..scenario("end of life", p) }
}
