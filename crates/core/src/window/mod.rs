//! The byte window of 2B-SSD (Bae et al., ISCA 2018): ranges of logical blocks are pinned into a buffer that the host
//! stores into through BAR2, and flushed back.
//!
//! [`Table`] is the mapping table with its address translation unit; `commands` what the host asks for; `jobs` what
//! happens when, between buffer, flash and link; `gate` what becomes of block commands that touch pinned blocks;
//! `recovery` the dump on stored energy and the way back from it; `kept` what a process that ends leaves of the buffer.
//! ADR 12 has the reasons.

mod commands;
mod gate;
mod jobs;
mod kept;
mod recovery;
mod state;
mod table;

pub(crate) use gate::Gated;
pub use recovery::Dumped;
pub use state::{Kept, KeptEntry};
pub use table::{Entry, EntryState, Table};

use crate::context::Context;
use crate::cost::Server;
use crate::fast::{self, bar};
use crate::flaw::Injected;
use crate::profile::{Gate, Profile, Survives};
use state::{Job, Pending, Restoring};
use std::collections::VecDeque;
use tidewater_base::Duration;
use tidewater_wire::nvme::Status;

/// Commands of the window under way at once, besides those of entries; one more is asked to retry.
const COMMANDS_MAX: usize = 256;

/// What the window counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowStatistics {
    /// Stores taken.
    pub stores: u64,
    /// Stores that lay, wholly or in part, outside of every entry: that part was dropped.
    pub stores_dropped: u64,
    /// Loads of which some byte lay outside of every entry: it read as ones.
    pub loads_outside: u64,
    /// Logical pages brought into the buffer.
    pub pages_pinned: u64,
    /// Logical pages written from the buffer.
    pub pages_flushed: u64,
    /// Block commands that had to wait, or were refused.
    pub gated: u64,
    /// Emergency dumps that were found cut short at power-on, with pages since lost.
    pub dumps_lost: u64,
}

/// A load that waits for what was stored before it.
#[derive(Clone, Copy, Debug)]
struct Load {
    tag: u64,
    address: u64,
    len: u8,
}

/// What the capacitors hold, and what a dump takes of it.
#[derive(Clone, Copy, Debug)]
struct Energy {
    /// Joules that they hold.
    stored: f64,
    /// Joules that dumping a full buffer takes at most.
    needed: f64,
    /// Watts of the controller.
    power: f64,
    /// Joules of a program of a page.
    program: f64,
    planes: u64,
}

/// The end of a command of the window.
#[derive(Debug)]
pub(crate) struct Ending {
    cid: u16,
    status: Status,
    result: u32,
    data: Vec<u8>,
    /// Its completion is on the way to the host for the usual time; else it has arrived.
    travels: bool,
}

/// What has happened in the window that concerns others.
#[must_use]
#[derive(Debug)]
pub(crate) enum Progress {
    /// Nothing.
    None,
    /// A Pin waits for block commands: [`Window::go_on_draining`].
    Drains,
    /// There is one more page in the write buffer.
    Buffered,
    /// An entry was released: block commands that the gate has held go on, and then the command ends.
    Released(Ending),
    /// All that a dump holds is back, or lost: commands are taken.
    Restored,
}

/// The byte window of a drive.
#[derive(Clone, Debug)]
pub struct Window {
    table: Table,
    /// The buffer, if content is kept.
    bytes: Box<[u8]>,
    /// For each page of the buffer how often it has changed, if content is kept; and all of them together.
    page_changes: Box<[u32]>,
    changes: u64,
    /// What a process before has left, until the map has recovered.
    kept: Option<Box<Kept>>,
    /// Block commands that may wait at once.
    held_max: usize,
    /// What is under way for each place of the table.
    jobs: Vec<Job>,
    /// Commands between pipeline and execution, or before their completion.
    commands: Vec<Option<Pending>>,
    /// The firmware's core, which moves pages between buffer and flash.
    engine: Server,
    loads: VecDeque<Load>,
    /// Block commands that wait for entries to be released, oldest first.
    held: VecDeque<u16>,
    restoring: Option<Box<Restoring>>,
    /// The memory of the buffer among the device's ports.
    port: usize,
    survives: Survives,
    gate: Gate,
    energy: Energy,
    page_time: Duration,
    dma_time: Duration,
    /// A flush ends in the write buffer, if that outlives a power loss.
    flush_buffered: bool,
    /// First byte in BAR2.
    bar_offset: u64,
    /// Where the dump areas begin among the logical pages.
    dump_first: u32,
    /// Which of them holds the dump that was restored last, if it may still be found there.
    dump_area: u32,
    flaw: Injected<Flaw>,
    /// Counters.
    pub statistics: WindowStatistics,
}

/// A window that is broken on purpose: for tests of the tests.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The dump lacks the last page of an entry, and says that it is whole.
    ForgetLastPage,
    /// A dump stays valid after it was restored.
    KeepDump,
    /// Block commands do not stop at the gate.
    OpenGate,
    /// What a flush wrote counts before it is on flash.
    FlushEarly,
}

impl Window {
    /// The window of a new drive. `port`: the memory of its buffer; `kept`: content is kept.
    pub(crate) fn new(profile: &Profile, port: usize, dump_first: u32, kept: bool) -> Window {
        let window = &profile.window;
        let (unit, entries) = (profile.ftl.unit_size, if window.is_enabled() { window.entries } else { 0 });
        let memory = profile.memory(&window.memory);
        let pages = if kept { window.size / u64::from(unit) } else { 0 };
        Window {
            table: Table::new(entries, (window.size / u64::from(unit)) as u32, unit.trailing_zeros()),
            bytes: vec![0; if kept { window.size as usize } else { 0 }].into_boxed_slice(),
            page_changes: vec![0; pages as usize].into_boxed_slice(),
            changes: 0,
            kept: None,
            held_max: (profile.host.outstanding_max as usize / 2).max(1),
            jobs: vec![Job::default(); entries as usize],
            commands: Vec::new(),
            engine: Server::default(),
            loads: VecDeque::new(),
            held: VecDeque::new(),
            restoring: None,
            port,
            survives: memory.map_or(Survives::Nothing, |memory| memory.survives),
            gate: window.gate,
            energy: Energy {
                stored: window.energy,
                needed: energy_needed(profile),
                power: window.power,
                program: window.program_energy,
                planes: profile.nand.planes.into(),
            },
            page_time: window.page_time,
            dma_time: window.dma_time,
            flush_buffered: window.flush_buffered,
            bar_offset: bar_offset(profile),
            dump_first,
            dump_area: 0,
            flaw: Injected::NONE,
            statistics: WindowStatistics::default(),
        }
    }

    /// Whether there is one.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Breaks the window on purpose, until the power fails: for tests of the tests.
    pub(crate) fn set_flaw(&mut self, flaw: Injected<Flaw>) {
        self.flaw = flaw;
    }

    /// Ends a command that released an entry.
    pub(crate) fn end(&mut self, cx: &mut Context, ending: Ending) {
        let Ending { cid, status, result, data, travels } = ending;
        if travels {
            self.reply_later(cx, cid, status, result, data);
        } else {
            cx.reply(cid, status, result, data);
        }
    }

    /// The mapping table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// First byte of the window in BAR2.
    pub fn bar_offset(&self) -> u64 {
        self.bar_offset
    }

    /// Whether what was stored outlives a power loss.
    pub fn survives(&self) -> bool {
        self.is_enabled() && self.survives != Survives::Nothing
    }

    /// Whether entries come back from a dump: nothing else is done meanwhile.
    #[inline]
    pub fn is_restoring(&self) -> bool {
        self.restoring.is_some()
    }

    /// Block commands that wait for entries to be released.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// The buffer's bytes from `offset` on, for the payload store.
    ///
    /// # Panics
    /// When content is not kept, or the range is not inside of the buffer.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.bytes[offset as usize..][..bytes.len()]);
    }

    /// How often buffer or table have changed: while this is the same, there is nothing new to save.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes + self.table.changes()
    }

    /// How often each page of the buffer has changed, modulo 2^32; empty: content is not kept.
    pub fn page_changes(&self) -> &[u32] {
        &self.page_changes
    }

    /// The memory of the buffer among the device's ports.
    pub(crate) fn port(&self) -> usize {
        self.port
    }

    /// Puts bytes into the buffer, if content is kept; `None`: zeroes.
    fn put(&mut self, offset: u64, len: usize, bytes: Option<&[u8]>) {
        if let Some(place) = self.bytes.get_mut(offset as usize..offset as usize + len) {
            match bytes {
                Some(bytes) => place.copy_from_slice(bytes),
                None => place.fill(0),
            }
            self.changes += 1;
            let shift = self.table.page_shift();
            for page in offset >> shift..(offset + len as u64).div_ceil(1 << shift) {
                let changes = &mut self.page_changes[page as usize];
                *changes = changes.wrapping_add(1);
            }
        }
    }
}

/// First byte of the window in BAR2: behind what the fast side has there.
pub fn bar_offset(profile: &Profile) -> u64 {
    let rings = if profile.fast.is_enabled() { profile.fast.size.next_multiple_of(bar::RINGS) } else { 0 };
    bar::RINGS + rings
}

/// Logical pages of one of the two areas that dumps go to: the table, then the buffer.
pub fn dump_area_pages(profile: &Profile) -> u64 {
    if profile.window.is_enabled() { profile.window.size / u64::from(profile.ftl.unit_size.max(1)) + 1 } else { 0 }
}

/// Joules that dumping a full buffer takes at most.
pub fn energy_needed(profile: &Profile) -> f64 {
    let window = &profile.window;
    fast::energy_of_pages(profile, dump_area_pages(profile) + 1, window.power, window.program_energy)
}
