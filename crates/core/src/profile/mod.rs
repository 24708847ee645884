//! A profile: everything that makes one drive differ from another. Sections are named as the rooms of the firmware.

mod builtin;
mod error;
mod generic;
mod keys;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod value;
mod words;

pub use crate::buffer::{BufferProfile, CbmMerge, CbmRuns};
pub use builtin::{builtin, builtin_text, names};
pub use error::{Downgrade, Problem, ProfileError};
pub use keys::{KeyInfo, suggestion};
pub use text::{base, reference};
pub use value::Kind;

use tidewater_base::Duration;
use tidewater_nand::Config as NandProfile;
pub use tidewater_wire::vendor::{DestagePriority, OnWrap};

/// A drive, described.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The name it is known by.
    pub name: String,
    /// One line on what it models. What single keys say, such as the channels, is not in it: [`Profile::outline`] adds
    /// that.
    pub description: String,
    /// `[drive]`: what the whole drive promises.
    pub drive: DriveProfile,
    /// `[host]`: queues, arbitration, command costs.
    pub host: HostProfile,
    /// `[link]`: PCIe.
    pub link: LinkProfile,
    /// `[memory.NAME]`: what the controller owns, by name.
    pub memories: Vec<MemoryProfile>,
    /// `[hmb]`: how memory that the host lends is used.
    pub hmb: HmbProfile,
    /// `[buffer]`: write buffer and read cache.
    pub buffer: BufferProfile,
    /// `[fast]`: the byte-addressable log side.
    pub fast: FastProfile,
    /// `[window]`: logical blocks pinned into byte-addressable memory.
    pub window: WindowProfile,
    /// `[ftl]`: mapping, collection, wear levelling, checkpoints.
    pub ftl: FtlProfile,
    /// `[slc]`: the cache of flash in single-level mode.
    pub slc: SlcProfile,
    /// `[flash]`: the scheduler.
    pub flash: FlashProfile,
    /// `[nand]`: the medium.
    pub nand: NandProfile,
    /// `[serve]`: what only a served device has.
    pub serve: ServeProfile,
}

/// `[drive]`.
#[derive(Clone, Debug, PartialEq)]
pub struct DriveProfile {
    /// Usable bytes. 0: follows the trace or job, or what `[nand] blocks_per_plane` allows.
    pub capacity: u64,
}

impl Profile {
    /// Logical pages of a logical block, as buffer policies over blocks know it: as many as the translation layer
    /// erases as one, a block of every plane; at most 65,535.
    pub fn block_units(&self) -> u32 {
        let units_per_page = u64::from(self.nand.page_size / self.ftl.unit_size);
        let pages = u64::from(self.nand.planes) * u64::from(self.nand.pages_per_block) * units_per_page;
        pages.min(u16::MAX.into()) as u32
    }

    /// The description, with how parallel the drive is and how fast its link, as the values have it: whatever is
    /// changed, the words are true.
    pub fn outline(&self) -> String {
        let plural = |count: u32, one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
        let (nand, link) = (&self.nand, &self.link);
        let facts = format!(
            "{} x {}, PCIe Gen{} x{}",
            plural(nand.channels, "channel", "channels"),
            plural(nand.ways * nand.dies_per_way, "die", "dies"),
            link.generation,
            link.lanes
        );
        if self.description.is_empty() { facts } else { format!("{}, {facts}", self.description) }
    }
}

/// `[host]`.
#[derive(Clone, Debug, PartialEq)]
pub struct HostProfile {
    /// I/O submission queues, 1 to 64.
    pub queues: u32,
    /// Entries in each submission queue, 2 to 65,536.
    pub queue_entries: u32,
    /// Commands the controller works on at once (permits), 1 to 4,096.
    pub outstanding_max: u32,
    /// How the next queue is chosen.
    pub arbitration: Arbitration,
    /// Commands taken from one queue in a turn, 1 to 128 (NVMe Arbitration Burst).
    pub arbitration_burst: u32,
    /// Commands in a turn for the high, medium and low classes (weighted arbitration), each 1 to 256.
    pub arbitration_weights: [u32; 3],
    /// Priority class of each submission queue, repeated over all queues.
    pub queue_priorities: Vec<QueuePriority>,
    /// Time from doorbell to a parsed command: fetch, decode, look-up; a pipeline, so commands overlap.
    pub command_time: Duration,
    /// Least time between two commands entering that pipeline (the inverse of the firmware's peak command rate).
    pub command_interval: Duration,
    /// Time from the end of a command to its completion entry and interrupt at the host.
    pub completion_time: Duration,
    /// Bytes that one command may move (MDTS), a multiple of 4 KiB.
    pub transfer_max: u32,
    /// Bytes in a logical block: 512 or 4096.
    pub block_size: u32,
}

/// How submission queues take turns (NVM Express 1.4, 4.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arbitration {
    /// Every queue in turn.
    RoundRobin,
    /// Urgent first, then high, medium and low by their weights.
    Weighted,
}

/// The priority class of a submission queue under weighted arbitration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePriority {
    /// Served before all others.
    Urgent,
    /// Weight `arbitration_weights[0]`.
    High,
    /// Weight `arbitration_weights[1]`.
    Medium,
    /// Weight `arbitration_weights[2]`.
    Low,
}

/// `[serve]`: what the drive is like as a real device, under the wall clock.
#[derive(Clone, Debug, PartialEq)]
pub struct ServeProfile {
    /// When commands complete.
    pub timing: Timing,
    /// How stores into BAR2 reach the device.
    pub access: Access,
    /// How queue doorbells in BAR0 reach the device.
    pub doorbells: Doorbells,
    /// How the device interrupts.
    pub interrupts: Interrupts,
    /// Bytes of BAR2 that hosts may put queues into (CMB), a multiple of 4 KiB. 0: none.
    pub cmb_size: u64,
    /// Bytes of the persistent memory region in BAR4, a power of two. 0: none.
    pub pmr_size: u64,
    /// Bytes of host memory that the drive asks for (HMPRE), a multiple of 4 KiB. 0: none.
    pub hmb_preferred: u64,
    /// The least that is of use to it (HMMIN), at most `hmb_preferred`.
    pub hmb_min: u64,
}

/// When commands of a served drive complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// When the modelled drive would complete them.
    Model,
    /// As soon as the backing store allows.
    None,
}

/// How a host's stores into BAR2 reach a served device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The host maps the memory: its stores cost nothing, and it announces what it has stored.
    Mapped,
    /// Each store is a message: exact, and slower.
    Trapped,
}

/// How a host's queue doorbells, in BAR0, reach a served device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doorbells {
    /// The host maps them. The device polls while there is work, and at growing intervals, up to 2 ms, while there is
    /// none.
    Mapped,
    /// The host maps them, and the device polls all the time while a controller is enabled: it keeps a core busy.
    Polled,
    /// Each is a message.
    Trapped,
}

/// Kinds of interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupts {
    /// MSI-X: a vector for each queue.
    MsiX,
    /// MSI: for virtual machine monitors that cannot unplug a device with MSI-X.
    Msi,
}

/// `[link]`: PCIe between host and drive.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkProfile {
    /// PCIe generation, 1 to 5.
    pub generation: u32,
    /// Lanes: 1, 2, 4, 8 or 16.
    pub lanes: u32,
    /// Bytes of data in a TLP (Max_Payload_Size): 128 to 4,096.
    pub payload_max: u32,
    /// Bytes of framing, header and checksum for each TLP.
    pub tlp_overhead: u32,
    /// One-way latency.
    pub latency: Duration,
}

/// `[memory.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryProfile {
    /// The name that uses refer to.
    pub name: String,
    /// What it is.
    pub kind: MemoryKind,
    /// Bytes.
    pub size: u64,
    /// Time to the first byte of a read.
    pub read_latency: Duration,
    /// Time to the first byte of a write.
    pub write_latency: Duration,
    /// Bytes per second.
    pub bandwidth: u64,
    /// Share of them that its port moves for its uses, above 0 to 1.
    pub efficiency: f64,
    /// What is left after the power is lost.
    pub survives: Survives,
}

impl MemoryProfile {
    /// Bytes per second that all its uses together get.
    pub fn usable(&self) -> u64 {
        (self.bandwidth as f64 * self.efficiency).round() as u64
    }
}

/// Kinds of controller memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// On the controller's die.
    Sram,
    /// Beside the controller.
    Dram,
    /// Byte-addressable non-volatile memory (STT-MRAM).
    Nvm,
    /// The host's, lent over PCIe: never trusted, can be withdrawn.
    Host,
    /// Flash in single-level mode.
    SlcFlash,
}

/// What survives a power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survives {
    /// Nothing.
    Nothing,
    /// Everything, because capacitors pay for an emergency dump.
    ByCapacitors,
    /// Everything, by the nature of the memory.
    ByItself,
}

/// `[hmb]`: memory that the host lends (host memory buffer). What is placed on it, the uses say.
#[derive(Clone, Debug, PartialEq)]
pub struct HmbProfile {
    /// The simulated host lends memory when the drive is powered on.
    pub enabled: bool,
    /// Bytes that the simulated host lends. 0: as many as the drive asks for.
    pub size: u64,
    /// Accesses to host memory under way at once, 1 to 1,024.
    pub in_flight: u32,
}

/// `[fast]`: the log side of X-SSD. What it says of rings, lanes and destage is how functions are set up at power-on;
/// admin commands change it.
#[derive(Clone, Debug, PartialEq)]
pub struct FastProfile {
    /// Bytes of ring memory for each function, shared evenly by its lanes. 0: there is no fast side.
    pub size: u64,
    /// The memory that the rings live in.
    pub memory: String,
    /// Bytes of each lane's intake queue, at most its part of the ring.
    pub queue_size: u64,
    /// The memory that the intake queues live in.
    pub queue_memory: String,
    /// Functions (PCIe virtual functions), each with rings, LBA ring, credit and replication of its own, 1 to 16.
    pub functions: u32,
    /// Lanes of each function: writers with a ring and a credit counter of their own, 1 to 16.
    pub lanes: u32,
    /// Bytes of each function's LBA ring, behind the usable capacity.
    pub log_size: u64,
    /// Bytes that wait in a ring longer than this are destaged with filler.
    pub partial_after: Duration,
    /// When a destaged page's bytes leave their ring.
    pub release: Release,
    /// Who goes first on flash.
    pub priority: DestagePriority,
    /// What happens when the LBA ring is full of pages that the host has not trimmed.
    pub on_wrap: OnWrap,
    /// Joules that the capacitors hold.
    pub energy: f64,
    /// Watts that the controller draws while it runs on them, flash programs apart.
    pub power: f64,
    /// Joules of one page program.
    pub program_energy: f64,
}

impl FastProfile {
    /// Whether the drive has a fast side.
    pub fn is_enabled(&self) -> bool {
        self.size > 0
    }
}

/// `[window]`: the byte window of 2B-SSD.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowProfile {
    /// Bytes of the BA-buffer, whole logical pages. 0: there is no window.
    pub size: u64,
    /// The memory that the buffer lives in.
    pub memory: String,
    /// Entries of the mapping table: ranges that are pinned at once.
    pub entries: u32,
    /// What becomes of block commands that touch pinned blocks.
    pub gate: Gate,
    /// Time of the firmware for each logical page that moves between the buffer and flash.
    pub page_time: Duration,
    /// Time of the firmware to set one transfer of the read DMA engine up.
    pub dma_time: Duration,
    /// A flush ends in the write buffer, where that outlives a power loss, and not on flash.
    pub flush_buffered: bool,
    /// Joules that the capacitors hold for the dump after a power loss.
    pub energy: f64,
    /// Watts that the controller draws while it runs on them, flash programs apart.
    pub power: f64,
    /// Joules of one page program.
    pub program_energy: f64,
}

impl WindowProfile {
    /// Whether the drive has a byte window.
    pub fn is_enabled(&self) -> bool {
        self.size > 0
    }
}

/// What becomes of block commands that touch blocks that are pinned in the byte window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// They wait until the entry is let go of.
    Hold,
    /// They end with an error.
    Refuse,
}

/// When the bytes of a page of the log leave their ring free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// When the page is programmed.
    Programmed,
    /// When the page is in its die's register: stored energy programs it whatever happens, and after a failed program
    /// the register still has it.
    Transferred,
    /// As [`Release::Transferred`], but codeword by codeword (`nand.ecc_codeword`), as they cross the bus: a transfer
    /// that has begun ends on stored energy, and never begins again.
    Crossing,
}

/// `[ftl]`.
#[derive(Clone, Debug, PartialEq)]
pub struct FtlProfile {
    /// What is mapped by page, and what by block.
    pub mapping: Mapping,
    /// Bytes that one map entry covers: 512 to the page size, a power of two.
    pub unit_size: u32,
    /// Flash beyond the usable capacity, as a share of the capacity (0.07 is 7 %).
    pub over_provisioning: f64,
    /// Share of each plane's blocks kept to replace bad ones, 0 to 0.2.
    pub spare_blocks: f64,
    /// Random (RW) log blocks of a hybrid mapping, in superblocks. 0: as many as `over_provisioning` says.
    pub log_blocks: u32,
    /// RW log blocks that are filled at once, at most half of them. 0: one for each die.
    pub log_write_points: u32,
    /// Share of the RW log blocks that FASTer keeps for cold pages, rounded up, 0 to 0.5. 0: none, cold pages are
    /// merged at once.
    pub isolation_share: f64,
    /// Logical blocks that are merged at once, 1 to 64.
    pub merges_max: u32,
    /// How a collection victim is chosen.
    pub gc_victim: GcVictim,
    /// Free superblocks of a die at which collection starts, at least `gc_reserve + 1`.
    pub gc_start: u32,
    /// Free superblocks of a die that only collection may open, at least 1.
    pub gc_reserve: u32,
    /// Collected data goes to superblocks of its own (true), or shares the host's (false).
    pub gc_stream: bool,
    /// Static wear levelling moves cold data when erase counts within a die differ by more than this. 0: never.
    pub wear_gap: u32,
    /// Dynamic wear levelling: the least worn free superblock is opened first (true), or the one freed first (false).
    pub wear_aware_allocation: bool,
    /// A page of the map is checkpointed after this many program operations. 0: never.
    pub checkpoint_interval: u32,
    /// A program row that does not fill is padded and programmed after this time.
    pub fill_timeout: Duration,
    /// The memory that the mapping cache lives in. `all`: the whole map is at hand, at no cost.
    pub map_memory: String,
    /// Bytes of the mapping cache. 0: what the other uses of its memory leave.
    pub map_size: u64,
    /// Bytes of the mapping cache in the controller's own SRAM, beside host memory: at least two mapping pages. Where
    /// `map_memory` is no memory of kind `host`, it is not used.
    pub map_floor: u64,
    /// Bytes of map that are read and programmed at once: a power of two, 64 to the unit of flash.
    pub map_page: u32,
    /// Mapping pages that are read ahead of one that a command needs, 0 to 64.
    pub map_prefetch: u32,
    /// Changed map entries that may wait for their mapping page before the host must wait, and twice as many before
    /// collection must.
    pub map_updates: u32,
}

/// Flash translation layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// Every page is mapped by itself.
    Page,
    /// FAST: data blocks, one sequential log block and random log blocks that are shared by all (Lee et al., ACM TECS
    /// 6(3), 2007).
    Fast,
    /// FASTer: FAST, with a second chance for what is valid in a log block that is reclaimed (Lim, Lee and Moon, SNAPI
    /// 2010).
    Faster,
}

/// Collection victim policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcVictim {
    /// The superblock with the fewest valid units.
    Greedy,
    /// The best ratio of free space times age to the cost of copying (Rosenblum and Ousterhout, 1992).
    CostBenefit,
}

/// `[slc]`: blocks that store one bit in a cell, where host writes go first.
#[derive(Clone, Debug, PartialEq)]
pub struct SlcProfile {
    /// Bytes of data that the cache always has room for, in flash of its own beside what the capacity needs. 0: none.
    pub size: u64,
    /// Share of the erased flash not needed now that the cache may use besides, 0 to 1.
    pub dynamic: f64,
    /// Where host writes go when it is full.
    pub when_full: WhenFull,
    /// Time without a host command at the flash after which the cache is folded.
    pub fold_after: Duration,
    /// Time from array to page register.
    pub read_time: Duration,
    /// Time from page register to array.
    pub program_time: Duration,
}

impl SlcProfile {
    /// Whether the drive has such a cache.
    pub fn is_enabled(&self) -> bool {
        self.size > 0 || self.dynamic > 0.0
    }
}

/// Where host writes go when the SLC cache is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Past it, to blocks in their own mode.
    Direct,
    /// They wait until something of it has been folded.
    Fold,
}

/// `[flash]`.
#[derive(Clone, Debug, PartialEq)]
pub struct FlashProfile {
    /// Program operations in flight or queued on a die before the next goes to another die, 1 to 64.
    pub programs_per_die: u32,
    /// Host reads overtake queued programs, erases and collection.
    pub read_priority: bool,
    /// Programs and erases are suspended for host reads.
    pub suspend: bool,
    /// Time to suspend a program or erase.
    pub suspend_time: Duration,
    /// Time to resume it.
    pub resume_time: Duration,
    /// Suspensions of one operation before it runs to its end.
    pub suspend_max: u32,
    /// Host reads of one flash page share a sense.
    pub share_senses: bool,
}
