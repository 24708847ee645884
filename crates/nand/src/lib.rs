//! The flash medium: geometry, cell timing, wear, errors and out-of-band stamps.
//!
//! It knows what each page holds (the logical page, and when asked for its version) but not the payload, which is held
//! by the driver of the loop. It has no clock: the scheduler in `core::flash` asks how long an operation takes, and
//! applies its effect when that time has passed, so that an operation cut by a power loss can be torn instead. It says
//! what time it is ([`Medium::set_time`]), for pages whose age counts.
mod ageing;
mod array;
pub mod config;
mod errors;
pub mod faults;
mod recorder;

pub use array::{Nand, Origin, Page, PageHeader, PageKind, Place, Read, Stamp, Stamps};
pub use config::{Cell, Config};
pub use faults::{Fault, FaultPlan, FaultyNand};
pub use recorder::{Change, Changes, Recorder, StoredUnit};

use std::sync::Arc;
use tidewater_base::{Duration, Instant};

/// A block of one plane of one die.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Die, counted over channels first: die `d` sits on channel `d % channels`.
    pub die: u32,
    /// Plane of the die.
    pub plane: u32,
    /// Block of the plane.
    pub block: u32,
}

/// An operation whose cells did not take: the block has turned bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// A flash medium. `core` is generic over it, so that faults can be injected by a wrapper ([`FaultyNand`]).
pub trait Medium: Clone {
    /// Its configuration.
    fn config(&self) -> &Config;

    /// Programs the next page of a block with the units `lpns`. Asserts that `page` is the next page of the block:
    /// pages are programmed in order, and once between erases (ONFI 5.1, 2.2 and vendors' data sheets).
    ///
    /// # Errors
    /// [`Failed`]: the page is not readable and the block must not be programmed again.
    fn program(&mut self, at: Block, page: u32, content: &Page<'_>) -> Result<(), Failed>;

    /// As [`Medium::program`], but it can't fail: for a past that is constructed, and not lived through.
    fn preset(&mut self, at: Block, page: u32, content: &Page<'_>);

    /// Reads a page from the array: how many retries ECC needed, or that it gave up.
    fn read(&mut self, at: Block, page: u32) -> Read;

    /// The time of the operations that follow. Only a medium whose pages age needs it.
    fn set_time(&mut self, _now: Instant) {}

    /// Whether no page would need a retry if it were read now: then the caller need not ask page
    /// by page, which takes a look at several tables.
    fn reads_cleanly(&self) -> bool {
        false
    }

    /// Erases a block.
    ///
    /// # Errors
    /// [`Failed`]: the block must not be used again.
    fn erase(&mut self, at: Block) -> Result<(), Failed>;

    /// The power failed while this page was programmed: it can't be read, nor programmed again.
    fn tear_program(&mut self, at: Block, page: u32);

    /// The power failed while this block was erased: no page can be read, and it must be erased again.
    fn tear_erase(&mut self, at: Block);

    /// The logical page in a unit's out-of-band area; [`Nand::NO_LPN`] for filler, torn and unwritten units.
    fn lpn(&self, at: Block, page: u32, unit: u32) -> u32;

    /// As [`Medium::lpn`], all units of a page at once; empty where nothing of the block was ever programmed.
    fn lpns(&self, at: Block, page: u32) -> &[u32];

    /// The stamp of a unit, when the medium keeps stamps and the unit is readable and not filler.
    fn stamp(&self, at: Block, page: u32, unit: u32) -> Option<Stamp>;

    /// The header in a page's out-of-band area, when the medium keeps stamps and the page is readable.
    fn header(&self, at: Block, page: u32) -> Option<PageHeader>;

    /// The firmware's own data in a page ([`PageKind::Map`], [`PageKind::Trim`]), when readable.
    fn own_payload(&self, at: Block, page: u32) -> Option<Arc<[u32]>>;

    /// Pages programmed since the last erase, torn and failed ones included.
    fn programmed(&self, at: Block) -> u32;

    /// Times the block was erased.
    fn erase_count(&self, at: Block) -> u32;

    /// Whether the block is bad, from the factory or since.
    fn is_bad(&self, at: Block) -> bool;

    /// Whether it was bad from the factory.
    fn is_factory_bad(&self, at: Block) -> bool;

    /// Whether an erase of it was interrupted and not yet repeated.
    fn is_torn(&self, at: Block) -> bool;

    /// Sets the erase count, to construct a worn drive without wearing it. Asserts that no page is programmed.
    fn set_erase_count(&mut self, at: Block, erases: u32);

    /// Array time of a page read, without retries.
    fn read_time(&self, page: u32) -> Duration {
        self.config().read_time[page as usize % self.config().cell.page_kinds()]
    }

    /// Array time of a page program.
    fn program_time(&self, page: u32) -> Duration {
        self.config().program_time[page as usize % self.config().cell.page_kinds()]
    }
}
