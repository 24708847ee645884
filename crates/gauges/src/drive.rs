//! Gauges of the firmware.

use serde::Serialize;
use tidewater_base::Instant;
use tidewater_core::Device;
use tidewater_core::buffer::Buffer;
use tidewater_core::window::EntryState;
use tidewater_nand::Medium;

/// A drive with power.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Drive {
    /// Usable bytes.
    pub capacity: u64,
    /// It takes no writes any more.
    pub is_read_only: bool,
    /// Units programmed, by what for.
    pub units: Units,
    /// Superblocks collected.
    pub collections: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Programs and erases that were suspended for reads.
    pub suspensions: u64,
    /// Programs that failed.
    pub program_failures: u64,
    /// Superblocks that can be written at once, and all that are good.
    pub free_superblocks: [u64; 2],
    /// Erasures of its superblocks.
    pub wear: Wear,
    /// The write buffer, in pages.
    pub write_buffer: Fill,
    /// The read cache, in pages.
    pub read_cache: Fill,
    /// Lanes of the fast side.
    pub lanes: Vec<Lane>,
    /// Entries pinned into the byte window.
    pub window: Vec<Entry>,
    /// Bytes of memory that the host has lent.
    pub host_memory: u64,
    /// Channels; die i is on channel i modulo this.
    pub channels: u32,
    /// Nanoseconds that each die has spent on reads, programs, erases, and on suspending and resuming.
    #[serde(skip)]
    pub dies: Vec<[u64; 4]>,
}

/// Units programmed, by what for.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Units {
    /// Written by hosts.
    pub host: u64,
    /// Log pages of the fast side.
    pub log: u64,
    /// Moved by garbage collection and merges.
    pub collection: u64,
    /// Moved out of the SLC cache.
    pub folding: u64,
    /// Checkpoints and the deallocation log.
    pub map: u64,
    /// Filler that completed rows.
    pub padding: u64,
}

/// How often superblocks were erased.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Wear {
    /// The one that was erased least.
    pub least: u32,
    /// On average.
    pub mean: f64,
    /// The one that was erased most.
    pub most: u32,
}

/// How full a memory is, in pages.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Fill {
    /// Pages that it holds.
    pub used: u64,
    /// Of these, not yet on flash.
    pub dirty: u64,
    /// Pages that it has room for; 0: there is no such memory.
    pub size: u64,
}

/// A lane of the fast side: offsets of its byte stream.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Lane {
    /// Its function.
    pub function: u32,
    /// Its number in the function.
    pub lane: u32,
    /// The end of the highest byte that has come.
    pub tail: u64,
    /// The end of what is acknowledged: it survives what the device promises. 0 on a secondary, and below `destaged`
    /// while a replica is away.
    pub credit: u64,
    /// The end of what is on flash.
    pub destaged: u64,
    /// The oldest byte that can still be read from flash.
    pub trimmed: u64,
    /// Bytes of the ring.
    pub ring: u64,
    /// Bytes of the ring that are in use: not yet on their way to flash.
    pub ring_used: u64,
}

/// Blocks that are pinned into the byte window.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Entry {
    /// The name that the host gave it.
    pub name: u16,
    /// Its state.
    pub state: &'static str,
    /// Bytes.
    pub bytes: u64,
}

impl Fill {
    fn of(buffer: &Buffer) -> Fill {
        if !buffer.is_enabled() {
            return Fill::default();
        }
        Fill { used: buffer.len() as u64, dirty: buffer.dirty() as u64, size: buffer.capacity() as u64 }
    }
}

impl Drive {
    /// Of a device, at a time of its own clock, which may be behind what it has handled.
    pub fn of<M: Medium>(device: &Device<M>, now: Instant) -> Drive {
        let ftl = device.ftl();
        let counts = &ftl.statistics;
        let units = Units {
            host: counts.host,
            log: counts.log,
            collection: counts.collected,
            folding: counts.slc.units_folded,
            map: counts.units_meta,
            padding: counts.units_padding,
        };
        let dies = ftl.flash.die_times(now.max(device.now()));
        Drive {
            capacity: device.capacity(),
            is_read_only: ftl.is_read_only(),
            units,
            collections: counts.collections,
            erases: counts.erases_total,
            suspensions: ftl.flash.statistics().suspensions,
            program_failures: counts.program_failures,
            free_superblocks: [ftl.vacant_superblocks() as u64, ftl.good_superblocks().into()],
            wear: Wear::of(ftl.erase_counts()),
            write_buffer: Fill::of(device.write_buffer()),
            read_cache: Fill::of(device.read_cache()),
            lanes: Lane::all(device),
            window: window(device),
            host_memory: if device.host_memory().is_used() { device.host_memory().bytes() } else { 0 },
            channels: device.profile().nand.channels,
            dies: dies.map(|die| [die.read, die.program, die.erase, die.suspend].map(|time| time.as_ns())).collect(),
        }
    }
}

impl Wear {
    fn of(counts: impl Iterator<Item = u32>) -> Wear {
        let (mut wear, mut sum, mut number) = (Wear { least: u32::MAX, ..Wear::default() }, 0, 0u64);
        for count in counts {
            (wear.least, wear.most) = (wear.least.min(count), wear.most.max(count));
            sum += u64::from(count);
            number += 1;
        }
        wear.least = wear.least.min(wear.most);
        wear.mean = sum as f64 / number.max(1) as f64;
        wear
    }
}

impl Lane {
    /// All lanes of a device.
    pub fn all<M: Medium>(device: &Device<M>) -> Vec<Lane> {
        let functions = device.fast().functions().iter().enumerate();
        functions
            .flat_map(|(function, of)| {
                let page = device.control_page(function);
                of.lanes().iter().enumerate().map(move |(lane, is)| Lane {
                    function: function as u32,
                    lane: lane as u32,
                    tail: is.reached(),
                    credit: is.credit(),
                    destaged: is.durable(),
                    trimmed: page.lane[lane].lba_head,
                    ring: is.ring_size(),
                    ring_used: is.reached().saturating_sub(is.freed()),
                })
            })
            .collect()
    }
}

fn window<M: Medium>(device: &Device<M>) -> Vec<Entry> {
    let table = device.window().table();
    let page = 1u64 << table.page_shift();
    let entries = table.entries().map(|(_, entry)| Entry {
        name: entry.name,
        state: match entry.state {
            EntryState::Pinning => "being pinned",
            EntryState::Pinned => "pinned",
            EntryState::Flushing => "being flushed",
        },
        bytes: u64::from(entry.pages) * page,
    });
    if device.window().is_enabled() { entries.collect() } else { Vec::new() }
}
