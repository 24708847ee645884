//! Tiny drives with a fast side, alone and in groups.

use crate::torture::scenario::{scenario, tiny};
use crate::torture::{Mix, Scenario};
use tidewater_base::Duration;
use tidewater_core::profile::{DestagePriority, OnWrap, Profile, Release, Survives};
use tidewater_nand::{Fault, FaultPlan};
use tidewater_sim::cluster::LinkModel;
use tidewater_wire::vendor::Mode;

/// Drives, the links between them, and what is done to them.
#[derive(Clone, Debug)]
pub struct LogScenario {
    /// Each of the drives.
    pub drive: Scenario,
    /// How many there are.
    pub nodes: usize,
    /// How they replicate; of no importance to one alone.
    pub mode: Mode,
    /// Each direction of each link.
    pub links: LinkModel,
}

impl LogScenario {
    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.drive.name
    }
}

fn fast(name: &str, change: impl Fn(&mut Profile)) -> Scenario {
    let mut p = tiny();
    p.nand.blocks_per_plane = 16;
    p.fast.size = 32 << 10;
    p.fast.queue_size = 2 << 10;
    p.fast.log_size = 256 << 10;
    p.fast.partial_after = Duration::from_us(300);
    for memory in p.memories.iter_mut().filter(|m| m.name == "sram") {
        memory.survives = Survives::ByCapacitors;
    }
    change(&mut p);
    Scenario { mix: Mix::NONE, ..scenario(name, p) }
}

/// Drives with a fast side, each alone, and each with something of its own.
pub fn log_scenarios() -> Vec<LogScenario> {
    let drives = [
        fast("log", |_| {}),
        fast("log, small ring, overwrite oldest", |p| {
            p.fast.size = 4 << 10;
            p.fast.queue_size = 512;
            p.fast.log_size = 64 << 10;
            p.fast.on_wrap = OnWrap::OverwriteOldest;
        }),
        fast("log, few pages that wait for trim", |p| {
            p.fast.size = 16 << 10;
            p.fast.queue_size = 512;
            p.fast.log_size = 64 << 10;
            p.fast.partial_after = Duration::from_us(50);
        }),
        fast("log, four lanes, rows of two pages", |p| {
            p.fast.lanes = 4;
            p.nand.planes = 2;
            p.nand.pages_per_block = 4;
        }),
        Scenario {
            mix: Mix::ALL,
            ..fast("log beside block traffic, destage priority", |p| p.fast.priority = DestagePriority::Destage)
        },
        Scenario {
            mix: Mix::OVERWRITE,
            ..fast("log beside block traffic, conventional priority", |p| {
                p.fast.priority = DestagePriority::Conventional;
            })
        },
        // Every few programs one fails, in an emergency too, and ring bytes are released before that is known.
        Scenario {
            faults: FaultPlan { faults: (0..2_000).map(|i| Fault::ProgramFails { nth: 3 * i + 1 }).collect() },
            ..fast("log, programs fail", |p| {
                p.nand.blocks_per_plane = 96;
                p.ftl.spare_blocks = 0.19;
                p.fast.release = Release::Transferred;
            })
        },
        // Codewords leave the ring while others of their page wait for a slow bus.
        fast("log, freed as it crosses the bus", |p| {
            p.fast.release = Release::Crossing;
            p.fast.size = 16 << 10;
            p.fast.lanes = 2;
            p.nand.planes = 2;
            p.nand.pages_per_block = 4;
            p.nand.ecc_codeword = 512;
            p.nand.bus_rate = 20_000_000;
        }),
        fast("log in volatile memory", |p| {
            p.memories.iter_mut().for_each(|memory| memory.survives = Survives::Nothing);
        }),
    ];
    drives.map(|drive| LogScenario { drive, nodes: 1, mode: Mode::Lazy, links: LinkModel::default() }).into()
}

/// Groups in every mode, two lanes each: three nodes, of which one has a slow memory, five, and three beside block
/// traffic.
pub fn group_scenarios() -> Vec<LogScenario> {
    let small = |p: &mut Profile| {
        p.fast.size = 16 << 10;
        p.fast.queue_size = 1 << 10;
        p.fast.lanes = 2;
    };
    let group = |mode: Mode, drive: Scenario| LogScenario { drive, nodes: 3, mode, links: LinkModel::default() };
    vec![
        group(Mode::Eager, fast("eager", small)),
        group(Mode::Lazy, fast("lazy", small)),
        group(
            Mode::Chain,
            fast("chain, slow memory", |p| {
                small(p);
                // Intake queues fill up, and frames that come twice wait in them.
                p.memories.iter_mut().for_each(|memory| memory.bandwidth = 60_000_000);
            }),
        ),
        group(Mode::Quorum(2), fast("quorum 2 of 3", small)),
        LogScenario { nodes: 5, ..group(Mode::Quorum(3), fast("quorum 3 of 5", small)) },
        group(Mode::Quorum(2), Scenario { mix: Mix::ALL, ..fast("quorum 2 of 3 beside block traffic", small) }),
    ]
}
