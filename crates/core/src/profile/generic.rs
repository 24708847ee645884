//! The default drive, as values. Why each is what it is, and where it comes from, stands in the table of keys
//! (`keys.rs`), which `tidewater profile show` prints and `docs/reference/profile.md` lists.

use super::{
    Access, Arbitration, BufferProfile, CbmMerge, CbmRuns, DestagePriority, Doorbells, DriveProfile, FastProfile,
    FlashProfile, FtlProfile, Gate, GcVictim, HmbProfile, HostProfile, Interrupts, LinkProfile, Mapping, MemoryKind,
    MemoryProfile, OnWrap, Profile, QueuePriority, Release, ServeProfile, SlcProfile, Survives, Timing, WhenFull,
    WindowProfile,
};
use tidewater_base::Duration;
use tidewater_nand::{Cell, Config as NandProfile};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

impl Profile {
    /// The default drive: page-mapped TLC flash on 8 channels with 8 dies each, behind PCIe Gen4 x4.
    pub fn generic() -> Profile {
        Profile {
            name: "generic".into(),
            description: "page-mapped TLC drive with DRAM".into(),
            drive: DriveProfile { capacity: 0 },
            host: HostProfile {
                queues: 8,
                queue_entries: 1024,
                outstanding_max: 512,
                arbitration: Arbitration::RoundRobin,
                arbitration_burst: 8,
                arbitration_weights: [32, 16, 8],
                queue_priorities: vec![QueuePriority::Medium],
                command_time: Duration::from_us(2),
                command_interval: Duration::from_ns(500),
                completion_time: Duration::from_us(1),
                transfer_max: (512 * KIB) as u32,
                block_size: 512,
            },
            link: LinkProfile {
                generation: 4,
                lanes: 4,
                payload_max: 256,
                tlp_overhead: 24,
                latency: Duration::from_ns(300),
            },
            memories: vec![
                MemoryProfile { size: 1024 * MIB, ..MemoryProfile::of_kind("dram", MemoryKind::Dram) },
                MemoryProfile { size: MIB, ..MemoryProfile::of_kind("sram", MemoryKind::Sram) },
            ],
            hmb: HmbProfile { enabled: true, size: 0, in_flight: 32 },
            buffer: BufferProfile {
                write_policy: "lru".into(),
                write_memory: "dram".into(),
                write_size: 16 * MIB,
                write_watermark: 0.75,
                energy: 0.17,
                read_policy: "none".into(),
                read_memory: "dram".into(),
                read_size: 16 * MIB,
                cbm_threshold: 0,
                cbm_sequential: 64 * KIB,
                cbm_merge: CbmMerge::Always,
                cbm_runs: CbmRuns::All,
                cbm_keep: false,
                cbm_padding: false,
                cbm_age: 0.0,
                bplru_padding: true,
                cflru_window: 0.33,
            },
            fast: FastProfile {
                size: 0,
                memory: "sram".into(),
                queue_size: 32 * KIB,
                queue_memory: "sram".into(),
                functions: 1,
                lanes: 1,
                log_size: 1024 * MIB,
                partial_after: Duration::from_ms(1),
                release: Release::Programmed,
                priority: DestagePriority::Neutral,
                on_wrap: OnWrap::WaitForTrim,
                energy: 0.17,
                power: 3.0,
                program_energy: 60e-6,
            },
            window: WindowProfile {
                size: 0,
                memory: "dram".into(),
                entries: 8,
                gate: Gate::Refuse,
                page_time: Duration::from_us(2),
                dma_time: Duration::from_us(50),
                energy: 0.16,
                power: 3.0,
                program_energy: 60e-6,
            },
            ftl: FtlProfile {
                mapping: Mapping::Page,
                unit_size: (4 * KIB) as u32,
                over_provisioning: 0.07,
                spare_blocks: 0.02,
                log_blocks: 0,
                log_write_points: 0,
                isolation_share: 0.1,
                merges_max: 4,
                gc_victim: GcVictim::Greedy,
                gc_start: 4,
                gc_reserve: 2,
                gc_stream: true,
                wear_gap: 100,
                wear_aware_allocation: true,
                checkpoint_interval: 128,
                fill_timeout: Duration::from_us(500),
                map_memory: "all".into(),
                map_size: 0,
                map_floor: 64 * KIB,
                map_page: (4 * KIB) as u32,
                map_prefetch: 0,
                map_updates: 4_096,
            },
            slc: SlcProfile {
                size: 0,
                dynamic: 0.0,
                when_full: WhenFull::Direct,
                fold_after: Duration::from_ms(5),
                read_time: Duration::from_us(30),
                program_time: Duration::from_us(200),
            },
            flash: FlashProfile {
                programs_per_die: 2,
                read_priority: true,
                suspend: true,
                suspend_time: Duration::from_us(20),
                resume_time: Duration::from_us(20),
                suspend_max: 8,
            },
            serve: ServeProfile {
                timing: Timing::Model,
                access: Access::Mapped,
                doorbells: Doorbells::Mapped,
                interrupts: Interrupts::MsiX,
                cmb_size: 512 * KIB,
                pmr_size: 0,
                hmb_preferred: 0,
                hmb_min: 0,
            },
            nand: NandProfile {
                channels: 8,
                ways: 8,
                dies_per_way: 1,
                planes: 2,
                blocks_per_plane: 0,
                pages_per_block: 256,
                page_size: (16 * KIB) as u32,
                oob_size: 1872,
                cell: Cell::Tlc,
                read_time: [Duration::from_us(45), Duration::from_us(60), Duration::from_us(75)],
                program_time: [Duration::from_us(400), Duration::from_us(600), Duration::from_us(950)],
                erase_time: Duration::from_us(3500),
                bus_rate: 1_200_000_000,
                command_time: Duration::from_ns(200),
                multi_plane: true,
                cache: true,
                endurance: 3000,
                factory_bad_rate: 0.005,
                program_fail_rate: 1e-8,
                erase_fail_rate: 1e-6,
                rber_fresh: 1e-4,
                rber_worn: 5.5e-3,
                ecc_codeword: (2 * KIB) as u32,
                ecc_bits: 120,
                read_retries: 8,
                retry_gain: 0.6,
            },
        }
    }
}

impl MemoryProfile {
    /// A memory of a kind, of no size yet, with the latencies and bandwidth that are usual for the kind.
    pub fn of_kind(name: &str, kind: MemoryKind) -> MemoryProfile {
        let (read, write, bandwidth, survives) = match kind {
            MemoryKind::Sram => (Duration::from_ns(4), Duration::from_ns(4), 4_000_000_000, Survives::Nothing),
            MemoryKind::Dram => (Duration::from_ns(60), Duration::from_ns(60), 12_800_000_000, Survives::Nothing),
            MemoryKind::Nvm => (Duration::from_ns(32), Duration::from_ns(40), 3_200_000_000, Survives::ByItself),
            MemoryKind::Host => (Duration::from_ns(60), Duration::from_ns(60), 19_200_000_000, Survives::Nothing),
            MemoryKind::SlcFlash => (Duration::from_us(25), Duration::from_us(200), 1_200_000_000, Survives::ByItself),
        };
        MemoryProfile {
            name: name.into(),
            kind,
            size: 0,
            read_latency: read,
            write_latency: write,
            bandwidth,
            survives,
        }
    }
}
