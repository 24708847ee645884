//! Losing power, and coming back.
//!
//! A power cut leaves [`Remains`] and nothing else; [`Device::power_on`](crate::Device::power_on) is the only way back.

mod dump;

pub use dump::{Dump, buffer_energy_needed};

use crate::buffer::Outside;
use crate::content::LogPage;
use crate::context::Options;
use crate::fast::LogRemains;
use crate::ftl::Plan;
use crate::window::{Dumped, Kept, Window};
use tidewater_base::Instant;
use tidewater_nand::{Medium, Nand};
use tidewater_wire::vendor::Epoch;

/// What is left of a device when its power is gone: the flash, and memories that survive.
#[derive(Clone, Debug)]
pub struct Remains<M = Nand> {
    pub(crate) medium: M,
    pub(crate) options: Options,
    pub(crate) plan: Plan,
    pub(crate) unit_size: u32,
    pub(crate) at: Instant,
    /// Logical pages and versions in a write buffer that survives, older before newer.
    pub(crate) buffered: Vec<(u32, u64)>,
    /// Deallocations beside it that are not on flash: first page, pages, write sequence.
    pub(crate) deallocations: Vec<(u32, u32, u64)>,
    /// What survives of each function of the fast side, besides its pages: of one that was stored somewhere all that
    /// may be meant, the newest first.
    pub(crate) log: Vec<Vec<LogRemains>>,
    pub(crate) destaged: Vec<Destaged>,
    /// Pages of the byte window that went to flash, or were on their way.
    pub(crate) dumped: Vec<Dumped>,
    pub(crate) dump_events: u64,
    /// The byte window, where its memory keeps its content by itself.
    pub(crate) window: Option<Box<Window>>,
    /// What of the window is stored outside.
    pub(crate) kept: Option<Box<Kept>>,
    pub(crate) energy: f64,
    pub(crate) dump: Option<Dump>,
    pub(crate) dump_lost: u64,
    /// The write buffer's policy, where it is from outside.
    pub(crate) policy: Option<Outside>,
}

/// A page of the log that went to flash on stored energy, for the store of flash bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destaged {
    /// The function.
    pub function: u8,
    /// The logical page.
    pub lpn: u32,
    /// Its number in the log.
    pub number: u64,
    /// The epoch of its header.
    pub epoch: Epoch,
    /// What it holds.
    pub page: LogPage,
    /// Its bytes.
    pub bytes: Box<[u8]>,
}

/// What a drive was, to bring it back from stored flash: see [`Remains::from_flash`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Identity {
    /// How it was run when it was made; the capacity is that of its making.
    pub options: Options,
    /// How it was sized.
    pub plan: Plan,
    /// Bytes of a unit.
    pub unit_size: u32,
}

impl<M: Medium> Remains<M> {
    /// What is left of a drive whose flash was stored somewhere, and with it what is left of each function of its fast
    /// side: several of these, the newest first, where storing may have been interrupted; none: that function starts
    /// anew. Of several the first counts whose pages are all there.
    pub fn from_flash(medium: M, identity: Identity, log: Vec<Vec<LogRemains>>) -> Remains<M> {
        let Identity { options, plan, unit_size } = identity;
        Remains {
            medium,
            options,
            plan,
            unit_size,
            at: Instant::ZERO,
            buffered: Vec::new(),
            deallocations: Vec::new(),
            log,
            destaged: Vec::new(),
            dumped: Vec::new(),
            dump_events: 0,
            window: None,
            kept: None,
            energy: 0.0,
            dump: None,
            dump_lost: 0,
            policy: None,
        }
    }

    /// With what was stored of the byte window: its memory outlives the process, not only a power loss.
    pub fn with_window(self, kept: Option<Kept>) -> Remains<M> {
        Remains { kept: kept.map(Box::new), ..self }
    }

    /// The flash.
    pub fn medium(&self) -> &M {
        &self.medium
    }

    /// When the power failed.
    pub fn at(&self) -> Instant {
        self.at
    }

    /// What is left of each function of the fast side, besides its pages.
    pub fn log(&self) -> impl Iterator<Item = Option<&LogRemains>> {
        self.log.iter().map(|function| function.first())
    }

    /// Pages of the log that were destaged on stored energy, or whose [`Output::Store`](crate::Output::Store) was not
    /// taken.
    pub fn destaged(&self) -> &[Destaged] {
        &self.destaged
    }

    /// Pages of the byte window that were dumped on stored energy, or whose
    /// [`Output::WindowStore`](crate::Output::WindowStore) was not taken.
    pub fn dumped(&self) -> &[Dumped] {
        &self.dumped
    }

    /// Events of flash that the dump took: see [`Device::cut_power_in_dump`](crate::Device::cut_power_in_dump).
    pub fn dump_events(&self) -> u64 {
        self.dump_events
    }

    /// Joules that destaging and dumping on stored energy took.
    pub fn energy(&self) -> f64 {
        self.energy
    }

    /// The dump of the write buffer, where capacitors back it and it held anything.
    pub fn dump(&self) -> Option<Dump> {
        self.dump
    }

    /// Pages that survived in the write buffer.
    pub fn buffered(&self) -> &[(u32, u64)] {
        &self.buffered
    }
}
