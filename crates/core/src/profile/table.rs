//! The table of keys: what each is, its range, and why its default is what it is. Everything that reads, writes, checks
//! or documents a profile follows from it.

use super::keys::{Access, KeyInfo};
use super::value::{Field, Kind, choices};
use super::{
    Access as HostAccess, Arbitration, CbmMerge, CbmRuns, DestagePriority, Doorbells, Gate, GcVictim, Interrupts,
    Mapping, MemoryKind, OnWrap, QueuePriority, Release, Survives, Timing, WhenFull,
};
use tidewater_base::Duration;
use tidewater_nand::Cell;

const CELLS: &[(&str, &str)] = &[
    ("slc", "one bit"),
    ("mlc", "two bits: lower and upper pages"),
    ("tlc", "three bits: lower, middle and upper pages"),
];
// `Cell` belongs to another crate, so it gets the words and the field, but no inherent function.
choices!(field Cell { Slc = "slc", Mlc = "mlc", Tlc = "tlc" });

const DESTAGE_PRIORITIES: &[(&str, &str)] = &[
    ("neutral", "the oldest page, whichever side it comes from"),
    ("conventional", "the block side; the log uses the gaps"),
    ("destage", "the log; the block side uses the gaps"),
];
choices!(field DestagePriority { Neutral = "neutral", Conventional = "conventional", Destage = "destage" });

const ON_WRAP: &[(&str, &str)] = &[
    ("wait-for-trim", "destage waits until the host has trimmed: the ring fills up and credit stands still"),
    ("overwrite-oldest", "the oldest pages are overwritten"),
];
choices!(field OnWrap { WaitForTrim = "wait-for-trim", OverwriteOldest = "overwrite-oldest" });

impl<T: Field + Default> Field for Vec<T> {
    fn get(&self) -> super::value::Value {
        super::value::Value::List(self.iter().map(Field::get).collect())
    }
    fn put(&mut self, value: super::value::Value) {
        match value {
            super::value::Value::List(values) => {
                *self = values
                    .into_iter()
                    .map(|value| {
                        let mut item = T::default();
                        item.put(value);
                        item
                    })
                    .collect();
            }
            other => super::value::misfit(other),
        }
    }
}

impl Default for QueuePriority {
    /// The priority of a queue without one.
    fn default() -> QueuePriority {
        QueuePriority::Medium
    }
}

const fn integer(min: u64, max: u64) -> Kind {
    Kind::Integer { min, max }
}

const fn bytes(min: u64, max: u64) -> Kind {
    Kind::Bytes { min, max }
}

const fn time(max: Duration) -> Kind {
    Kind::Time { min: Duration::ZERO, max }
}

const fn list(of: &'static Kind, min: usize, max: usize) -> Kind {
    Kind::List { of, min, max }
}

const KIB: u64 = 1 << 10;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
const MS: Duration = Duration::from_ms(1);
const SECOND: Duration = Duration::from_ms(1_000);
const WEIGHT: Kind = integer(1, 256);
const PRIORITY: Kind = Kind::Choice(QueuePriority::WORDS);
const CELL_TIME: Kind = Kind::Time { min: Duration::from_ns(1), max: SECOND };
/// A rate or a power of a law by powers.
const POWER: Kind = Kind::Number { min: 0.0, max: 10.0 };
const PROBABILITY: Kind = Kind::Number { min: 0.0, max: 1.0 };
const RATE: Kind = Kind::Rate { min: 1_000, max: 1_000_000_000_000 };

/// The policies of the write buffer.
fn policies() -> Vec<&'static str> {
    crate::buffer::POLICIES.to_vec()
}

/// The policies of the read cache.
fn read_policies() -> Vec<&'static str> {
    crate::buffer::READ_POLICIES.to_vec()
}

macro_rules! keys {
    ($($section:ident { $($name:ident, $kind:expr, $doc:literal, $why:literal;)* })*) => {
        &[$($(KeyInfo {
            section: stringify!($section),
            name: stringify!($name),
            kind: $kind,
            doc: $doc,
            why: $why,
            access: Access::Profile(|p| p.$section.$name.get(), |p, value| p.$section.$name.put(value)),
        },)*)*]
    };
}

macro_rules! memory_keys {
    ($($name:ident, $kind:expr, $doc:literal, $why:literal;)*) => {
        &[$(KeyInfo {
            section: "memory",
            name: stringify!($name),
            kind: $kind,
            doc: $doc,
            why: $why,
            access: Access::Memory(|m| m.$name.get(), |m, value| m.$name.put(value)),
        },)*]
    };
}

/// The keys above all sections.
pub(super) static HEAD_KEYS: &[KeyInfo] = &[
    KeyInfo {
        section: "",
        name: "name",
        kind: Kind::Name,
        doc: "The name that reports give the drive.",
        why: "Without a name of its own, a file takes the one of its base.",
        access: Access::Profile(|p| p.name.get(), |p, value| p.name.put(value)),
    },
    KeyInfo {
        section: "",
        name: "description",
        kind: Kind::Text,
        doc: "One line on what it models.",
        why: "It stands beside the name in `tidewater profile list`.",
        access: Access::Profile(|p| p.description.get(), |p, value| p.description.put(value)),
    },
];

/// The keys of the sections.
pub(super) static SECTION_KEYS: &[KeyInfo] = keys! {
    drive {
        capacity, bytes(0, 256 * TIB),
            "Usable bytes, a multiple of the unit. 0: follows the trace or job, or what `[nand] blocks_per_plane` \
             allows.",
            "A trace says how large its drive was at least; a drive much larger than its footprint never needs garbage \
             collection.";
    }
    host {
        queues, integer(1, 64),
            "I/O submission queues.",
            "One for each core of a small machine, as the Linux driver makes them.";
        queue_entries, integer(2, 65_536),
            "Entries in each submission queue.",
            "The Linux driver's `io_queue_depth` is 1024. The most that NVMe allows is 65,536 (Base 1.4, 4.1.3).";
        outstanding_max, integer(1, 4_096),
            "Commands the controller works on at once (permits).",
            "Eight for each of 64 dies: enough random reads that hardly a die waits. An assumption: controllers do not \
             publish it.";
        arbitration, Kind::Choice(Arbitration::WORDS),
            "How the next submission queue is chosen.",
            "Round robin is the one every controller must have (NVMe Base 1.4, 4.13).";
        arbitration_burst, integer(1, 128),
            "Commands taken from one queue in a turn (Arbitration Burst).",
            "A small burst shares fairly and costs one turn for eight commands. An assumption: the controller \
             recommends its own (NVMe Base 1.4, 4.13, RAB).";
        arbitration_weights, list(&WEIGHT, 3, 3),
            "Commands in a turn for the high, medium and low classes (weighted arbitration).",
            "Each class gets twice the next. An assumption: the host sets them (NVMe Base 1.4, 5.21.1.1).";
        queue_priorities, list(&PRIORITY, 1, 64),
            "Priority class of each submission queue (weighted arbitration). A shorter list is repeated over all \
             queues.",
            "No queue is preferred by default.";
        command_time, time(SECOND),
            "Time from doorbell to a parsed command: fetch, decode, look-up. Commands overlap in it.",
            "With 60 us of flash and the link it gives about 70 us for a random read at depth 1, as data sheets of TLC \
             drives say. An assumption.";
        command_interval, time(MS),
            "Least time between two commands entering that pipeline: the inverse of the peak command rate.",
            "2 million commands/s, twice what 64 dies at 60 us can read, so that flash is the limit and not firmware. \
             An assumption.";
        completion_time, time(SECOND),
            "Time from the end of a command to its completion entry and interrupt at the host.",
            "Two posted writes over the link and an interrupt; usual figures are near 1 us. An assumption.";
        transfer_max, bytes(4 * KIB, 16 << 20),
            "Bytes that one command may move (MDTS): 4 KiB times a power of two.",
            "Usual drives report 128 KiB to 2 MiB; the Linux driver splits at what it finds.";
        block_size, bytes(512, 4 * KIB),
            "Bytes in a logical block: 512 or 4096.",
            "512 is how nearly all drives leave the factory, and what old traces address.";
    }
    link {
        generation, integer(1, 5),
            "PCIe generation: 2.5, 5, 8, 16 or 32 GT/s for each lane, less the line code.",
            "The common generation of NVMe drives since 2020.";
        lanes, integer(1, 16),
            "Lanes: 1, 2, 4, 8 or 16.",
            "M.2 and U.2 have four.";
        payload_max, bytes(128, 4 * KIB),
            "Bytes of data in a TLP (Max_Payload_Size), a power of two.",
            "What most root ports agree to (Neugebauer et al., SIGCOMM 2018, take 256 as typical).";
        tlp_overhead, bytes(12, 64),
            "Bytes of framing, header and checksum for each TLP.",
            "4 framing and sequence, 16 header with a 64-bit address, 4 LCRC (PCIe Base 3.0, 2.2 and 3.6; the same sum \
             as in Neugebauer et al., SIGCOMM 2018).";
        latency, time(MS),
            "One-way latency of the link, root complex included.",
            "Half of a round trip of about 550 to 600 ns for a 64 B DMA read (Neugebauer et al., SIGCOMM 2018, Xeon \
             E5).";
    }
    hmb {
        enabled, Kind::Switch,
            "The simulated host lends memory when the drive is powered on. A served drive is lent what its host wants \
             to lend.",
            "Linux lends what a drive asks for, up to 128 MiB (`nvme.max_host_mem_size_mb`).";
        size, bytes(0, 16 * GIB),
            "Bytes that the simulated host lends. 0: as many as are placed on memories of kind `host`. Of less, each \
             use gets its part.",
            "What the drive asks for; an experiment varies it.";
        in_flight, integer(1, 1_024),
            "Accesses to host memory under way at once; others wait.",
            "The tags that every PCIe function can use without extended tags (PCI Express Base 3.0, 2.2.6.2).";
    }
    buffer {
        write_policy, Kind::Policy(policies),
            "Replacement policy of the write buffer; `none` writes through.",
            "The baseline that all papers on write buffers compare with.";
        write_memory, Kind::Name,
            "The memory that the write buffer lives in.",
            "Usual drives buffer writes in their DRAM and call it a volatile write cache (NVMe Base 1.4, 5.15.2.2, \
             VWC).";
        write_size, bytes(0, 64 * GIB),
            "Bytes of the write buffer.",
            "Eight rows of pages over all dies (64 dies x 2 planes x 16 KiB are 2 MiB), so that every die can fill up \
             on bursts. Published buffers are 1 to 32 MiB (PLOS ONE 2020 measured 964 KB; the CBM board has 32 MB).";
        write_watermark, Kind::Share { min: 0.0, max: 1.0 },
            "Share of the write buffer that may be dirty before it is destaged in the background.",
            "A quarter stays free for bursts. An assumption; 100 % keeps everything until space is needed.";
        energy, Kind::Number { min: 0.0, max: 1_000.0 },
            "Joules that the capacitors hold for writing the write buffer out after a power loss, where they back its \
             memory; the energy needed follows from `[fast] power` and `program_energy`, and a buffer that needs more \
             is refused.",
            "As `[fast] energy`: ten capacitors of 470 uF at 12 V, half of their energy usable. An assumption.";
        read_policy, Kind::Policy(read_policies),
            "Replacement policy of the read cache; `none` has no read cache.",
            "Hosts cache reads better than a drive does; the drives measured in PLOS ONE 2020 have 32 to 768 KB, which \
             is prefetch more than cache.";
        read_memory, Kind::Name,
            "The memory that the read cache lives in.",
            "Where there is room.";
        read_size, bytes(0, 64 * GIB),
            "Bytes of the read cache.",
            "As large as the write buffer, once a policy turns it on.";
        read_ahead, bytes(0, 16 << 20),
            "Bytes that are read from flash into the read cache ahead of each of up to 16 sequential streams: no more \
             than half of `read_size` is of use. With `[flash] share_senses` a command waits for pages that are on \
             their way; else it reads them again. 0: none.",
            "Drives have it, and publish no size. An option.";
        cbm_threshold, integer(0, 65_535),
            "`cbm`: dirty pages of a block that make it one for the block region, at most a whole block. 0: dynamic, \
             by the share that the block region has of the buffer.",
            "The paper adjusts it to the workload (CBM, MSST 2014): docs/internals/buffers.md.";
        cbm_sequential, bytes(512, 64 << 20),
            "`cbm`: bytes of a run of writes, in one command or in commands that follow each other, that is \
             sequential: its blocks go to the block region at once.",
            "A quarter of the 256 KB block of the paper's drive (CBM, MSST 2014). An assumption: its slides say that \
             writes are classified, but give no length.";
        cbm_merge, Kind::Choice(CbmMerge::WORDS),
            "`cbm`: which of its clean pages in the read cache a block leaves with (merge-on-flush).",
            "What the slides say literally (CBM, MSST 2014): `the dirty pages and clean pages are merged`. `run` reads \
             it by its aim, `flush pages as sequential as possible`; `whole` by the abstract's, `to maximize the \
             possibility of forming full block write`. `pad` is beyond the slides, and ours: `merged and flushed \
             sequentially`, with page padding after BPLRU, to which clean pages save the reads.";
        cbm_runs, Kind::Choice(CbmRuns::WORDS),
            "`cbm`: what a run of writes is looked for in.",
            "An assumption: the slides (CBM, MSST 2014) do not say whether writes to other blocks end a run.";
        cbm_keep, Kind::Switch,
            "`cbm`: a page that was destaged stays as a clean page of the read cache. Not where that is in host \
             memory.",
            "The slides do not change the behaviour of the read cache (CBM, MSST 2014): it has what was read.";
        cbm_padding, Kind::Switch,
            "`cbm`: a block of which half its pages or more leave is completed from flash (page padding).",
            "Not in the slides (CBM, MSST 2014): ours, after BPLRU.";
        cbm_age, Kind::Number { min: 0.0, max: 64.0 },
            "`cbm`: the popularity of every block is halved whenever so many buffers full of pages were written. 0: \
             never.",
            "Not in the slides (CBM, MSST 2014): ours. They let popularity grow as long as a block is there.";
        bplru_padding, Kind::Switch,
            "`bplru`: a block leaves with all its pages, read from flash where the buffer does not have them (page \
             padding).",
            "The paper's scheme (BPLRU, FAST 2008); `false` shows what it costs and gains.";
        cflru_window, Kind::Share { min: 0.0, max: 1.0 },
            "`cflru`: the clean-first region, from which clean pages leave before all others, as a share of the \
             buffer.",
            "A third. An assumption: the paper (CFLRU, CASES 2006) tunes it to the workload.";
    }
    fast {
        size, bytes(0, 16 * GIB),
            "Bytes of ring memory for each function, shared evenly by its lanes. 0: there is no fast side.",
            "Usual drives have none. X-SSD's board has 128 KiB of SRAM or 128 MiB of DRAM.";
        memory, Kind::Name,
            "The memory that the rings live in.",
            "X-SSD's faster variant.";
        queue_size, bytes(64, 1 << 20),
            "Bytes of each lane's intake queue, at most its part of the ring: what a client may write beyond the \
             credit that it knows.",
            "The best for every write size that X-SSD measured (figure 11).";
        queue_memory, Kind::Name,
            "The memory that the intake queues live in.",
            "X-SSD's is SRAM.";
        functions, integer(1, 16),
            "Functions (PCIe virtual functions), each with rings, LBA ring, credit and replication of its own.",
            "One database, one device; more are section 7.2 of X-SSD.";
        lanes, integer(1, 16),
            "Lanes of each function: writers with a ring and a credit counter of their own.",
            "X-SSD's prototype has one credit counter; several are its section 7.1.";
        log_size, bytes(64 * KIB, 16 * TIB),
            "Bytes of each function's LBA ring, behind the usable capacity.",
            "Much larger than the ring in memory, as X-SSD's figure 3 shows it: minutes of log at 10 MB/s. An \
             assumption.";
        partial_after, time(SECOND),
            "Bytes that wait in a ring longer than this are destaged in a page that filler completes.",
            "About one program, so that at most one page in a few is partly filler. An assumption.";
        release, Kind::Choice(Release::WORDS),
            "When the bytes of a destaged page leave their ring free.",
            "The safe choice: a failed program operation can be repeated from the ring.";
        priority, Kind::Choice(DESTAGE_PRIORITIES),
            "Which side has priority when the log and the block side both have pages to program.",
            "A drive without a distinction (X-SSD, 4.3).";
        on_wrap, Kind::Choice(ON_WRAP),
            "What happens when the LBA ring is full of pages that the host has not trimmed.",
            "Log bytes still in use are never overwritten by default.";
        energy, Kind::Number { min: 0.0, max: 1_000.0 },
            "Joules that the capacitors hold for the time after a power loss.",
            "Ten capacitors of 470 uF at 12 V, half of their energy usable after conversion: 0.17 J. An assumption; \
             X-SSD assumes capacitors but its board has none.";
        power, Kind::Number { min: 0.0, max: 100.0 },
            "Watts that the controller draws while it runs on them, flash programs apart.",
            "With host, link and most cores off. An assumption.";
        program_energy, Kind::Number { min: 0.0, max: 1.0 },
            "Joules of one page program.",
            "25 mA at 3.3 V for 650 us and the transfer: 60 uJ. An assumption, of the order of ONFI's ICC2.";
    }
    window {
        size, bytes(0, GIB),
            "Bytes of the buffer that logical blocks are pinned into (the BA-buffer), whole logical pages. 0: there is \
             no byte window.",
            "Usual drives have none. 2B-SSD has 8 MB.";
        memory, Kind::Name,
            "The memory that the buffer lives in.",
            "2B-SSD's is a part of its DRAM.";
        entries, integer(1, 32),
            "Entries of the mapping table: ranges that can be pinned at once.",
            "2B-SSD has 8.";
        gate, Kind::Choice(Gate::WORDS),
            "What becomes of block commands that touch pinned blocks.",
            "An error is seen at once; a host whose command waits for too long resets the drive.";
        page_time, time(SECOND),
            "Time of the firmware for each logical page that moves between the buffer and flash: the hardware that \
             speeds block commands up has no part in it.",
            "A fit: 4 KiB in 2 us are 2 GB/s, so that pinning is about as fast as PM963 reads (2B-SSD's read \
             bandwidth).";
        dma_time, time(SECOND),
            "Time of the firmware to set one transfer of the read DMA engine up.",
            "A fit: 2B-SSD's BA_READ_DMA of 4 KiB takes 58 us, of which the link needs 1.";
        flush_buffered, Kind::Switch,
            "BA_FLUSH ends when its pages are in the write buffer, if that outlives a power loss. A page that finds no \
             room there goes to flash, and is waited for.",
            "2B-SSD's slides do not say whether a flush waits for flash. `false` is the stricter promise.";
        energy, Kind::Number { min: 0.0, max: 1_000.0 },
            "Joules that the capacitors hold for the dump after a power loss.",
            "2B-SSD has three of 270 uF and gives no voltage: at 28 V and half of the energy usable after conversion \
             they hold 0.16 J. An assumption.";
        power, Kind::Number { min: 0.0, max: 100.0 },
            "Watts that the controller draws while it runs on them, flash programs apart.",
            "With host, link and most cores off. An assumption.";
        program_energy, Kind::Number { min: 0.0, max: 1.0 },
            "Joules of one page program.",
            "As `fast.program_energy`. An assumption.";
    }
    ftl {
        mapping, Kind::Choice(Mapping::WORDS),
            "What is mapped by page, and what by block. The hybrid mappings merge log blocks instead of garbage \
             collecting: `gc_victim`, `gc_start`, `gc_reserve` and `gc_stream` apply to page mapping only.",
            "What drives with DRAM have. FAST: Lee et al., ACM TECS 6(3), 2007. FASTer: Lim, Lee and Moon, SNAPI 2010.";
        unit_size, bytes(512, 64 * KIB),
            "Bytes that one mapping entry covers: a power of two, from the logical block to the page.",
            "File systems and databases write 4 KiB; 4 bytes of mapping table for each keep DRAM at a thousandth of \
             the flash.";
        over_provisioning, Kind::Share { min: 0.0, max: 4.0 },
            "Flash beyond the usable capacity, as a share of the capacity.",
            "A binary GB of flash sold as a decimal one: 2^30 / 10^9 is 7.4 %. Also MQSim's default.";
        spare_blocks, Kind::Share { min: 0.0, max: 0.2 },
            "Share of each plane's blocks kept to replace bad ones.",
            "NAND data sheets warrant that at most about 2 % of the blocks are bad by the end of the rated life.";
        log_blocks, integer(0, 1 << 20),
            "Random (RW) log blocks of a hybrid mapping, in superblocks: 0 or at least 2. 0: as many as \
             `over_provisioning` says.",
            "So that a hybrid and a page-mapped drive of the same profile have the same flash to spare.";
        log_write_points, integer(0, 4_096),
            "RW log blocks that are filled at once, a row on each in turn; at most half of them. 0: one for each die.",
            "Random writes then use all dies, as under page mapping. 1 is FAST as published.";
        isolation_share, Kind::Share { min: 0.0, max: 0.5 },
            "Share of the RW log blocks that `faster` keeps for cold pages (its isolation area), rounded up; at least \
             two for each write point stay for the others. 0: none, cold pages are merged at once.",
            "FASTer has such an area; that it is a tenth is an assumption.";
        merges_max, integer(1, 64),
            "Logical blocks that are merged at once.",
            "Enough that reads, transfers and programs of merges overlap. 1 is FAST as published. An assumption.";
        gc_victim, Kind::Choice(GcVictim::WORDS),
            "How garbage collection chooses its victim.",
            "Greedy is the best for uniform traffic and the one that analytic models describe. Cost-benefit: Rosenblum \
             and Ousterhout, ACM TOCS 10(1), 1992.";
        gc_start, integer(2, 4_096),
            "Free superblocks of a die at which garbage collection starts; more than `gc_reserve`. They come on top of \
             `over_provisioning`: for a given capacity, more of them take more flash and leave write amplification \
             unchanged.",
            "Room for two steps of garbage collection before the host must wait; more would be flash that holds no \
             data at rest (ADR 5).";
        gc_reserve, integer(1, 4_095),
            "Free superblocks of a die reserved for garbage collection.",
            "One to copy into while another turns bad under it.";
        gc_stream, Kind::Switch,
            "Garbage collection writes valid data to superblocks of its own (true), or to the host's (false).",
            "Data that survived a garbage collection is colder than new data; kept apart, it is copied less often.";
        wear_gap, integer(0, 1_000_000),
            "Cold data is moved when erase counts within a die differ by more than this. 0: never.",
            "MQSim's `Static_Wearleveling_Threshold` is 100: 3 % of the rated cycles.";
        wear_aware_allocation, Kind::Switch,
            "The least worn free superblock is opened first (true), or the one freed first (false).",
            "It costs nothing and narrows the spread.";
        checkpoint_interval, integer(0, 1_000_000),
            "A page of the mapping table is checkpointed after this many program operations. 0: never.",
            "Less than 1 % of the programs, for a bound on what recovery must scan. An assumption.";
        fill_timeout, time(SECOND),
            "A program row that does not fill is padded and programmed after this time.",
            "Less than one program, so that a lone flush is not dominated by waiting for company. An assumption.";
        map_memory, Kind::Name,
            "The memory of the mapping cache, with the rest of the mapping table on flash. `all`: the whole mapping \
             table is in memory, and a look-up takes no time.",
            "What drives with enough DRAM have. DRAM-less ones keep a part in SRAM or in the host's memory (PLOS ONE \
             2020, HMB).";
        map_size, bytes(0, 64 * GIB),
            "Bytes of the mapping cache. 0: what the other uses of its memory leave.",
            "A drive has no other use for what is left.";
        map_floor, bytes(0, GIB),
            "Bytes of the mapping cache in the controller's own SRAM where `map_memory` is of kind `host`: what is \
             left of it when the host lends nothing. At least two mapping pages. A hit there takes no time of its own, \
             and no memory of the profile is charged with it.",
            "A drive must work without host memory (NVM Express Base 1.4, 8.9). 16 mapping pages; an assumption: no \
             drive publishes it.";
        map_page, bytes(64, 64 * KIB),
            "Bytes of mapping table read and programmed at once, 4 per entry: a power of two, at most `unit_size`.",
            "PLOS ONE 2020: a mapping page of 4 KB covers a section of 4 MB.";
        map_prefetch, integer(0, 64),
            "Mapping pages that are read ahead of one that a command needs.",
            "Published drives load on demand; DFTL (ASPLOS 2009) does. An option.";
        map_updates, integer(64, 1 << 20),
            "Changed mapping entries that may wait for their mapping page to be read, before the host must wait; \
             garbage collection waits at twice as many.",
            "8 bytes each are 64 KB of SRAM with the share of garbage collection, beside the caches that the paper \
             found. An \
             assumption.";
    }
    slc {
        size, bytes(0, TIB),
            "Bytes of data that the cache always has room for (its static part), rounded up to a superblock on each \
             die. It is flash beside what the capacity and its over-provisioning need. 0: none.",
            "Drives for servers have none; a profile of a client drive says its own.";
        dynamic, Kind::Share { min: 0.0, max: 1.0 },
            "Share of the erased superblocks beyond `gc_start` that the cache may also use (its \
             dynamic part): it shrinks as the drive fills. 0: none.",
            "As `slc.size`. Client drives without a fixed cache use all that is erased.";
        when_full, Kind::Choice(WhenFull::WORDS),
            "Where host writes go when the cache is full.",
            "Of the two the one that is faster in the end: a write that waits for folding costs a read and a program \
             more.";
        fold_after, time(SECOND),
            "Time without a host read or write at the flash after which the cache is folded: its data moves to blocks \
             in their own mode.",
            "Long against the gaps within a burst, short against those between bursts. An assumption.";
        read_time, CELL_TIME,
            "Time from array to page register of a block in single-level mode.",
            "HP's white paper on NAND types: 25 us for planar SLC; 3D cells of a TLC chip with one sensing step, \
             somewhat longer. An assumption.";
        program_time, CELL_TIME,
            "Time from page register to array of a block in single-level mode.",
            "HP's white paper on NAND types: 200 to 300 us for SLC.";
    }
    flash {
        programs_per_die, integer(1, 64),
            "Program operations in flight or queued on a die before the next goes to another die. Each holds a row, a \
             page of every plane, in memory of the controller that is no part of any buffer.",
            "One in the array and one that crosses the bus meanwhile (cache program).";
        read_priority, Kind::Switch,
            "Host reads overtake queued programs, erases and garbage collection.",
            "The host waits for a read, while the buffer has already acknowledged a write.";
        suspend, Kind::Switch,
            "Programs and erases are suspended for host reads.",
            "Chips and controllers have it since Wu and He, FAST 2012, showed what reads gain; the 96-layer TLC of \
             ISSCC 2018, 20.1, reads during a suspended program.";
        suspend_time, time(SECOND),
            "Time to suspend a program or erase.",
            "A program stops at the end of a pulse and verify, some tens of us (Wu and He, FAST 2012). An assumption.";
        resume_time, time(SECOND),
            "Time to resume it.",
            "Voltages are built up again. An assumption, taken to be as long as a suspension.";
        suspend_max, integer(0, 1_000),
            "Suspensions of one operation before it runs to its end.",
            "Keeps one operation from being suspended for ever in small pieces; while reads wait it still does not \
             resume. An assumption.";
        share_senses, Kind::Switch,
            "A host read of a flash page that waits for another one, or is being read for it, is served by the same \
             array operation; what both want crosses the bus together.",
            "The page register holds the whole page (ONFI 4.1, chapter 5). No drive publishes whether its firmware \
             joins reads of different commands. An option.";
    }
    nand {
        channels, integer(1, 64),
            "Channels (buses between controller and packages).",
            "Usual for NVMe controllers of the faster kind; also MQSim's default.";
        ways, integer(1, 64),
            "Packages (chip enables) on a channel.",
            "64 dies of 512 Gbit are a 4 TB drive; eight to a bus keep it busy while they program.";
        dies_per_way, integer(1, 16),
            "Dies in a package that share its chip enable. Each works on its own.",
            "Channels and ways alone say how parallel the drive is.";
        planes, integer(1, 8),
            "Planes in a die.",
            "Two in the 64-layer TLC generation (ISSCC 2017, 11.1) and in MQSim; later chips have four.";
        blocks_per_plane, integer(0, 1 << 24),
            "Blocks in a plane, spares included. 0: derived from the drive's capacity.",
            "The drive follows its workload.";
        pages_per_block, integer(4, 65_534),
            "Pages in a block.",
            "As in MQSim. Today's chips have 768 and more; a smaller superblock (8 MiB on a die) keeps small drives \
             and short traces meaningful. Garbage collection has up to three rows in progress, which one superblock \
             must hold.";
        page_size, bytes(512, 64 * KIB),
            "Data bytes in a page, a power of two.",
            "Usual since the 1x nm generation.";
        oob_size, bytes(0, 16 * KIB),
            "Bytes of the out-of-band area of a page. They cross the bus with the page.",
            "8 code words x 225 bytes of parity (120 bits x 15 for a code over 2^15 bits) and 72 bytes for stamps.";
        cell, Kind::Choice(CELLS),
            "Bits per cell.",
            "What most drives are made of.";
        read_time, list(&CELL_TIME, 3, 3),
            "Time from array to page register, by page kind (lower, middle, upper). Kinds that the cell lacks are \
             ignored.",
            "60 us on average, usual for 64 to 96 layers; one, two and four sensing steps make the kinds differ. HP's \
             white paper on NAND types gives TLC about 75 us for planar chips.";
        program_time, list(&CELL_TIME, 3, 3),
            "Time from page register to array, by page kind.",
            "650 us on average: 2 planes x 16 KiB in 650 us is 50 MB/s for a die, what V-NAND and BiCS chips of 24 to \
             96 layers publish (ISSCC 2014, 19.5: 50 MB/s). Finer levels take longer.";
        erase_time, CELL_TIME,
            "Time to erase a block, or one block in each plane together.",
            "MQSim has 3.8 ms, HP's white paper on NAND types 3 to 4.5 ms for MLC and TLC.";
        bus_rate, RATE,
            "Bandwidth of a channel.",
            "8 bits at 1,200 MT/s: NV-DDR3 of ONFI 4.1 (2017).";
        command_time, time(MS),
            "Command and address cycles before an operation starts. Those of a read do not wait for the bus, which is \
             optimistic by up to one page's transfer where other dies use it: docs/internals/accuracy.md.",
            "Seven cycles (command, five of address, confirm) of 25 ns and tWB; ONFI keeps them slow when data is \
             fast.";
        multi_plane, Kind::Switch,
            "Multi-plane commands: the same page of every plane in one array operation.",
            "Every chip with planes has them (ONFI 4.1, chapter 5).";
        cache, Kind::Switch,
            "Cache commands: a second register lets the bus work while the array does.",
            "Optional in ONFI 4.1, chapter 5, and in every chip for drives.";
        endurance, integer(1, 10_000_000),
            "Erase cycles a block is specified for.",
            "3D TLC of client drives; HP's white paper on NAND types gives 1,000 to 3,000 for TLC.";
        factory_bad_rate, Kind::Share { min: 0.0, max: 0.2 },
            "Share of blocks that are bad from the factory.",
            "A fraction of the 2 % that data sheets allow over the whole life.";
        program_fail_rate, PROBABILITY,
            "Probability that one page program fails and its block turns bad.",
            "256 pages x 3,000 cycles x 1e-8 retire 0.8 % of the blocks in a life: with factory and erase failures \
             within the spares.";
        erase_fail_rate, PROBABILITY,
            "Probability that one erase fails and its block turns bad.",
            "3,000 cycles x 1e-6 retire 0.3 % of the blocks in a life.";
        rber_fresh, PROBABILITY,
            "Raw bit error rate of a block that was never erased. 0 only where `rber_worn` is 0, too: then no bit is \
             ever wrong.",
            "1.6 errors in a code word that stands 120: no retries. The order of magnitude of Cai et al., Proc. IEEE \
             105(9), 2017.";
        rber_worn, PROBABILITY,
            "Raw bit error rate of a block at its endurance, no less than `rber_fresh`. Between the two it grows \
             exponentially, and goes on growing.",
            "90 errors in a code word on average, so that about 1 % of the page reads of a worn-out block need a \
             retry.";
        rber_disturb, list(&POWER, 3, 3),
            "Read disturb, as `A/P/Q`: A x erases^P x reads^Q is added to the raw bit error rate of a page, with the \
             erases of its block and the page reads of its block since the last one. A = 0: none. P = 0: the same at \
             any wear, also of a block that was never erased.",
            "Off: no data sheet gives it. The form is that of Kim et al., FAST 2019; SimpleSSD has it, for 2y-nm MLC, \
             with 6.26e-13/1.76/0.47. That disturb grows with reads and with wear: Cai et al., DSN 2015.";
        rber_retention, list(&POWER, 3, 3),
            "Retention, as `A/P/Q`: A x erases^P x days^Q is added to the raw bit error rate of a page, with the \
             erases of its block and the days (of the drive's clock) since the page was programmed. Pages of a \
             preconditioned drive, and of an image that is opened, are as old as that clock. A = 0: none. P = 0: \
             the same at any wear.",
            "Off: no data sheet gives it. The form is that of Kim et al., FAST 2019; SimpleSSD has it, for 2y-nm MLC, \
             with 5.56e-19/2.49/3.33. That retention errors dominate with age: Cai et al., HPCA 2015.";
        ecc_codeword, bytes(64, 64 * KIB),
            "Data bytes that one ECC code word covers; it divides the page.",
            "Usual for LDPC in TLC drives.";
        ecc_bits, integer(0, 65_535),
            "Bit errors that ECC corrects in one code word.",
            "0.7 % of the bits, what LDPC with hard decisions does with a tenth of parity. As a bound that always \
             holds it simplifies LDPC.";
        read_retries, integer(0, 100),
            "Read retries (shifted read voltages) before a page is given up as uncorrectable.",
            "Vendors' tables have some ten entries. An assumption.";
        retry_gain, PROBABILITY,
            "Factor by which each retry lowers the raw bit error rate.",
            "The first shifted read usually suffices, a page far past its life takes several. An assumption.";
    }
    serve {
        timing, Kind::Choice(Timing::WORDS),
            "When commands of a served drive complete.",
            "A served drive behaves as its model; `none` gives its interface without the delays.";
        access, Kind::Choice(HostAccess::WORDS),
            "How a host's stores into BAR2 reach a served device.",
            "A trapped store costs a message of tens of microseconds, a mapped one is a store.";
        doorbells, Kind::Choice(Doorbells::WORDS),
            "How queue doorbells, in BAR0, reach a served device.",
            "Mapped, it is a store; trapped, a message of tens of microseconds. SPDK's driver knows mapped ones alone.";
        interrupts, Kind::Choice(Interrupts::WORDS),
            "How a served device interrupts its host.",
            "MSI-X is what every NVMe driver asks for first.";
        cmb_size, bytes(0, GIB),
            "Bytes of BAR2 that hosts may put queues into (controller memory buffer), a multiple of 4 KiB. 0: none.",
            "Room for 64 submission queues of 1,024 entries is 4 MiB; eight of them fit into half a MiB. A kernel uses \
             all of it.";
        pmr_size, bytes(0, 64 * GIB),
            "Bytes of the persistent memory region in BAR4, a power of two. 0: none.",
            "Few drives have one.";
        hmb_preferred, bytes(0, 4 * GIB),
            "Bytes of host memory that a served drive asks for (HMPRE), a multiple of 4 KiB. 0: none.",
            "A drive with DRAM of its own asks for none.";
        hmb_min, bytes(0, 4 * GIB),
            "The minimum host memory that the drive accepts (HMMIN), at most `hmb_preferred`.",
            "Any amount helps.";
    }
};

/// The keys that every `[memory.NAME]` has. Defaults are by kind: `MemoryProfile::of_kind`.
pub(super) static MEMORY_KEYS: &[KeyInfo] = memory_keys! {
    kind, Kind::Choice(MemoryKind::WORDS),
        "What it is. It sets the defaults of the other keys; a new memory must have it.",
        "A memory that is not in the base begins with its kind.";
    size, bytes(0, 16 * TIB),
        "Bytes. 0: the drive has no such memory.",
        "DRAM: the rule of 1 GiB for 1 TiB of flash with a map of 4 KiB units. SRAM: the order of controllers' on-chip \
         buffers.";
    read_latency, time(SECOND),
        "Time to the first byte of a read.",
        "SRAM: one cycle at 250 MHz (X-SSD's board). DRAM: a row miss and the controller. NVM: 32 ns (CBM). Host: as \
         DRAM; the way there is the link's. SLC flash: HP's white paper on NAND types, 25 us.";
    write_latency, time(SECOND),
        "Time to the first byte of a write.",
        "As for reads; NVM: 40 ns (CBM); host: as DRAM; SLC flash: 200 us.";
    bandwidth, RATE,
        "Bytes per second.",
        "SRAM: 128 bit at 250 MHz (X-SSD). DRAM: 32 bit of LPDDR4-3200. NVM: two 64-byte lines in 40 ns, an \
         assumption. Host: one channel of DDR4-2400. SLC flash: one channel.";
    efficiency, Kind::Share { min: 0.01, max: 1.0 },
        "Share of the bandwidth that refresh, bank conflicts and turns between reads and writes leave to all that \
         lives in the memory.",
        "Bandwidths of data sheets are peaks, and what is left of one depends on the accesses. An assumption.";
    survives, Kind::Choice(Survives::WORDS),
        "What survives power loss.",
        "Only NVM and flash keep their content by themselves; capacitors cost money, so no default has them.";
};
