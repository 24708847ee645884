//! The production medium: what every block and page holds, and how worn it is.

use crate::ageing::Ageing;
use crate::errors::ErrorModel;
use crate::{Block, Config, Failed, Medium};
use std::collections::BTreeMap;
use std::hint::cold_path;
use std::sync::Arc;
use tidewater_base::rng::probability_threshold;
use tidewater_base::{Instant, Rng};

/// Out-of-band stamp of a unit, by which recovery and checks distinguish old from new.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Stamp {
    /// The logical page.
    pub lpn: u32,
    /// The identity of the content, given by the host with the write.
    pub version: u64,
    /// Order of the unit's last host write on this drive; a collected copy keeps its original's.
    pub sequence: u64,
}

/// Purpose of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageKind {
    /// Host data, first written or collected.
    Data,
    /// A piece of the map checkpoint.
    Map,
    /// Deallocations not yet in a checkpoint.
    Trim,
}

/// The header in a page's out-of-band area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageHeader {
    /// Purpose of the page.
    pub kind: PageKind,
    /// Order of the program operation on this drive; planes of one operation share it.
    pub program_sequence: u64,
    /// The superblock that the block stands in for, so that recovery finds replaced blocks.
    pub superblock: u32,
    /// Its index: the segment of a map page; of data, the purpose for which a hybrid mapping wrote it.
    pub index: u32,
}

/// A unit of flash: where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The block.
    pub at: Block,
    /// The page of the block.
    pub page: u32,
    /// The unit of the page.
    pub unit: u32,
}

/// Where a programmed unit comes from, for the payload store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The controller's memory, which frees it once it is programmed.
    #[default]
    Memory,
    /// The controller's memory, from which another row will be programmed with it too.
    Shared,
    /// A place on flash.
    Copy(Place),
}

/// Content to program into a page.
#[derive(Clone, Debug)]
pub struct Page<'a> {
    /// The header.
    pub header: PageHeader,
    /// Logical page by unit, [`Nand::NO_LPN`] for filler.
    pub lpns: &'a [u32],
    /// Version and sequence by unit; empty when the medium keeps no stamps.
    pub stamps: &'a [(u64, u64)],
    /// Where each unit comes from; empty without a payload store.
    pub origins: &'a [Origin],
    /// The firmware's own data, for [`PageKind::Map`] and [`PageKind::Trim`].
    pub own_payload: Option<Arc<[u32]>>,
}

/// Outcome of a page read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Retries, each as long as a read.
    pub retries: u32,
    /// ECC gave up, or the page was torn.
    pub uncorrectable: bool,
}

/// Whether the medium keeps stamps, which recovery and checks need and which cost 16 bytes per unit and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamps {
    /// Only the logical page of each unit: for timing.
    LpnOnly,
    /// Versions, sequences and page headers too: for power cuts and checks.
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Good,
    FactoryBad,
    GrownBad,
}

#[derive(Clone, Debug)]
struct BlockState {
    lpns: Option<Box<[u32]>>,
    programmed: u16,
    health: Health,
    torn_erase: bool,
}

impl BlockState {
    /// Marks the next page used, of so many with so many units each. The logical pages of all of them.
    #[inline(always)]
    fn take_page(&mut self, at: Block, page: u32, pages: u32, units: usize) -> &mut [u32] {
        assert!(self.health == Health::Good, "{at:?} is bad and was programmed");
        assert!(!self.torn_erase, "{at:?} was programmed before its torn erase was repeated");
        assert!(page < pages, "{at:?} has no page {page}");
        assert_eq!(u32::from(self.programmed), page, "{at:?} was programmed out of order");
        self.programmed += 1;
        self.lpns.get_or_insert_with(|| {
            cold_path();
            vec![Nand::NO_LPN; pages as usize * units].into_boxed_slice()
        })
    }
}

/// Stamps of one block.
#[derive(Clone, Debug)]
struct BlockStamps {
    units: Box<[(u64, u64)]>,
    headers: Box<[Option<PageHeader>]>,
}

/// The array of all dies.
#[derive(Clone, Debug)]
pub struct Nand {
    config: Config,
    units_per_page: u32,
    blocks: Vec<BlockState>,
    /// Erase count by block, apart: every read needs it.
    erases: Vec<u32>,
    stamps: Option<Vec<Option<BlockStamps>>>,
    own_payloads: BTreeMap<(u32, u32), Arc<[u32]>>,
    errors: ErrorModel,
    ageing: Option<Box<Ageing>>,
    /// No block is so worn that one of its pages may need a retry, and torn pages, which only stamps tell, are none.
    clean: bool,
    program_fails: u64,
    erase_fails: u64,
    rng: Rng,
}

impl Nand {
    /// The logical page number that no unit has: filler, torn or unwritten.
    pub const NO_LPN: u32 = u32::MAX;

    /// A fresh array. Pages hold `page_size / unit_size` units; `seed` places factory-bad blocks and errors.
    /// Asserts a geometry that the profile's check let through.
    pub fn new(config: &Config, unit_size: u32, stamps: Stamps, seed: u64) -> Nand {
        assert!(unit_size > 0 && config.page_size.is_multiple_of(unit_size), "units must fill a page");
        assert!(config.pages_per_block <= u32::from(u16::MAX), "too many pages in a block");
        let mut placing = Rng::new(seed, b"factory bad blocks");
        let factory_bad = probability_threshold(config.factory_bad_rate);
        let count = (config.dies() * config.planes * config.blocks_per_plane) as usize;
        let blocks = (0..count)
            .map(|_| BlockState {
                lpns: None,
                programmed: 0,
                health: if placing.chance(factory_bad) { Health::FactoryBad } else { Health::Good },
                torn_erase: false,
            })
            .collect();
        let mut errors = ErrorModel::new(config);
        let ageing = Ageing::new(config, count);
        Nand {
            units_per_page: config.page_size / unit_size,
            clean: stamps == Stamps::LpnOnly && ageing.is_none() && errors.is_clean(0),
            blocks,
            erases: vec![0; count],
            stamps: (stamps == Stamps::Full).then(|| vec![None; count]),
            own_payloads: BTreeMap::new(),
            errors,
            ageing,
            program_fails: probability_threshold(config.program_fail_rate),
            erase_fails: probability_threshold(config.erase_fail_rate),
            rng: Rng::new(seed, b"nand errors"),
            config: config.clone(),
        }
    }

    /// An array that has lived, without its pages: `factory_bad` tells its factory-bad blocks, and `seed` places errors
    /// from now on. Pages come back by [`Medium::preset`] and [`Medium::tear_program`], wear by
    /// [`Medium::set_erase_count`], and at last grown bad blocks by [`Nand::mark_bad`].
    pub fn restored(config: &Config, unit_size: u32, seed: u64, factory_bad: impl Fn(Block) -> bool) -> Nand {
        let mut nand = Nand::new(config, unit_size, Stamps::Full, seed);
        for (index, block) in nand.blocks.iter_mut().enumerate() {
            let (plane, block_of_plane) =
                (index as u32 / config.blocks_per_plane, index as u32 % config.blocks_per_plane);
            let at = Block { die: plane / config.planes, plane: plane % config.planes, block: block_of_plane };
            block.health = if factory_bad(at) { Health::FactoryBad } else { Health::Good };
        }
        nand
    }

    /// The block has turned bad in a life before: it must not be programmed again. One that is bad already stays as it
    /// is.
    pub fn mark_bad(&mut self, at: Block) {
        let index = self.index(at);
        let block = &mut self.blocks[index];
        if block.health == Health::Good {
            block.health = Health::GrownBad;
        }
    }

    fn index(&self, at: Block) -> usize {
        ((at.die * self.config.planes + at.plane) * self.config.blocks_per_plane + at.block) as usize
    }

    /// Beyond its endurance a block's erases fail ever more often: by one cycle in `endurance` for each cycle past it.
    /// Assumed; no data sheet promises anything there.
    fn erase_fails(&mut self, erases: u32) -> bool {
        let past = erases.saturating_sub(self.config.endurance);
        let worn_out = match past {
            0 => 0,
            n => probability_threshold(f64::from(n) / f64::from(self.config.endurance.max(1))),
        };
        self.rng.chance(self.erase_fails.max(worn_out))
    }

    /// Writes a page's out-of-band area; `None` leaves it unreadable.
    #[inline(always)]
    fn write_page(&mut self, at: Block, page: u32, content: Option<&Page<'_>>) {
        let index = self.index(at);
        let (pages, units) = (self.config.pages_per_block, self.units_per_page as usize);
        let first = page as usize * units;
        let lpns = &mut self.blocks[index].take_page(at, page, pages, units)[first..first + units];
        match content {
            // One unit is not worth a call.
            Some(&Page { lpns: &[lpn], .. }) if units == 1 => lpns[0] = lpn,
            Some(content) => lpns.copy_from_slice(content.lpns),
            None => lpns.fill(Nand::NO_LPN),
        }
        if let Some(ageing) = &mut self.ageing {
            cold_path();
            ageing.on_program(index, page, pages);
        }
        if let Some(stamps) = &mut self.stamps {
            let block = stamps[index].get_or_insert_with(|| BlockStamps {
                units: vec![(0, 0); pages as usize * units].into_boxed_slice(),
                headers: vec![None; pages as usize].into_boxed_slice(),
            });
            block.headers[page as usize] = content.map(|c| c.header);
            if let Some(content) = content {
                block.units[first..first + units].copy_from_slice(content.stamps);
                if let Some(payload) = &content.own_payload {
                    self.own_payloads.insert((index as u32, page), payload.clone());
                }
            }
        }
    }

    /// A program has failed: its page is unreadable, and the block is bad from now on.
    #[cold]
    fn fail_program(&mut self, at: Block, page: u32) -> Failed {
        self.tear_program(at, page);
        let index = self.index(at);
        self.blocks[index].health = Health::GrownBad;
        Failed
    }

    fn set_erases(&mut self, index: usize, erases: u32) {
        self.erases[index] = erases;
        self.clean &= self.errors.is_clean(erases);
    }

    fn forget_pages(&mut self, at: Block) {
        let index = self.index(at);
        if self.stamps.is_some() {
            for page in 0..u32::from(self.blocks[index].programmed) {
                self.own_payloads.remove(&(index as u32, page));
            }
            if let Some(block) = self.stamps.as_mut().and_then(|s| s[index].as_mut()) {
                block.headers.fill(None);
            }
        }
    }
}

impl Medium for Nand {
    fn config(&self) -> &Config {
        &self.config
    }

    // Always inlined: what a page holds is then never put together in memory.
    #[inline(always)]
    fn program(&mut self, at: Block, page: u32, content: &Page<'_>) -> Result<(), Failed> {
        if self.rng.chance(self.program_fails) {
            return Err(self.fail_program(at, page));
        }
        self.write_page(at, page, Some(content));
        Ok(())
    }

    fn preset(&mut self, at: Block, page: u32, content: &Page<'_>) {
        // It is as old as the drive, whenever it is asked for.
        let now = self.ageing.as_mut().map(|ageing| std::mem::take(&mut ageing.now));
        self.write_page(at, page, Some(content));
        if let (Some(ageing), Some(now)) = (&mut self.ageing, now) {
            ageing.now = now;
        }
    }

    fn read(&mut self, at: Block, page: u32) -> Read {
        let index = self.index(at);
        if let Some(stamps) = &self.stamps {
            let block = &self.blocks[index];
            if page >= u32::from(block.programmed) {
                // Erased cells read as ones, and as noise after an interrupted erase.
                return Read { retries: 0, uncorrectable: block.torn_erase };
            }
            if stamps[index].as_ref().is_none_or(|b| b.headers[page as usize].is_none()) {
                return Read { retries: self.config.read_retries, uncorrectable: true };
            }
        }
        let erases = self.erases[index];
        let failed = match &mut self.ageing {
            None => self.errors.attempts(erases).iter().take_while(|&&threshold| self.rng.chance(threshold)).count(),
            Some(ageing) => {
                let above = ageing.on_read(index, page, erases);
                self.errors.thresholds_at(erases, above).take_while(|&threshold| self.rng.chance(threshold)).count()
            }
        } as u32;
        Read { retries: failed.min(self.config.read_retries), uncorrectable: failed > self.config.read_retries }
    }

    #[inline]
    fn set_time(&mut self, now: Instant) {
        if let Some(ageing) = &mut self.ageing {
            ageing.now = now;
        }
    }

    #[inline]
    fn reads_cleanly(&self) -> bool {
        self.clean
    }

    fn erase(&mut self, at: Block) -> Result<(), Failed> {
        let index = self.index(at);
        assert!(self.blocks[index].health != Health::FactoryBad, "{at:?} is bad from the factory and was erased");
        if self.blocks[index].health == Health::GrownBad {
            return Err(Failed);
        }
        self.forget_pages(at);
        let erases = self.erases[index] + 1;
        let fails = self.erase_fails(erases);
        self.set_erases(index, erases);
        if let Some(ageing) = &mut self.ageing {
            ageing.on_erase(index);
        }
        let block = &mut self.blocks[index];
        block.programmed = 0;
        block.torn_erase = false;
        if let Some(lpns) = &mut block.lpns {
            lpns.fill(Nand::NO_LPN);
        }
        if fails {
            block.health = Health::GrownBad;
            return Err(Failed);
        }
        Ok(())
    }

    fn tear_program(&mut self, at: Block, page: u32) {
        self.write_page(at, page, None);
    }

    fn tear_erase(&mut self, at: Block) {
        self.forget_pages(at);
        let index = self.index(at);
        let block = &mut self.blocks[index];
        block.torn_erase = true;
        if let Some(lpns) = &mut block.lpns {
            lpns.fill(Nand::NO_LPN);
        }
    }

    #[inline]
    fn lpn(&self, at: Block, page: u32, unit: u32) -> u32 {
        let block = &self.blocks[self.index(at)];
        block.lpns.as_ref().map_or(Nand::NO_LPN, |l| l[(page * self.units_per_page + unit) as usize])
    }

    #[inline]
    fn lpns(&self, at: Block, page: u32) -> &[u32] {
        let first = (page * self.units_per_page) as usize;
        let lpns = self.blocks[self.index(at)].lpns.as_deref();
        lpns.map_or(&[], |lpns| &lpns[first..first + self.units_per_page as usize])
    }

    fn stamp(&self, at: Block, page: u32, unit: u32) -> Option<Stamp> {
        let index = self.index(at);
        let lpn = self.lpn(at, page, unit);
        let stamps = self.stamps.as_ref()?[index].as_ref()?;
        if lpn == Nand::NO_LPN || page >= u32::from(self.blocks[index].programmed) {
            return None;
        }
        let (version, sequence) = stamps.units[(page * self.units_per_page + unit) as usize];
        Some(Stamp { lpn, version, sequence })
    }

    fn header(&self, at: Block, page: u32) -> Option<PageHeader> {
        let index = self.index(at);
        if page >= u32::from(self.blocks[index].programmed) {
            return None;
        }
        self.stamps.as_ref()?[index].as_ref()?.headers[page as usize]
    }

    fn own_payload(&self, at: Block, page: u32) -> Option<Arc<[u32]>> {
        self.own_payloads.get(&(self.index(at) as u32, page)).cloned()
    }

    fn programmed(&self, at: Block) -> u32 {
        u32::from(self.blocks[self.index(at)].programmed)
    }

    fn erase_count(&self, at: Block) -> u32 {
        self.erases[self.index(at)]
    }

    fn is_bad(&self, at: Block) -> bool {
        self.blocks[self.index(at)].health != Health::Good
    }

    fn is_factory_bad(&self, at: Block) -> bool {
        self.blocks[self.index(at)].health == Health::FactoryBad
    }

    fn is_torn(&self, at: Block) -> bool {
        self.blocks[self.index(at)].torn_erase
    }

    fn set_erase_count(&mut self, at: Block, erases: u32) {
        let index = self.index(at);
        assert_eq!(self.blocks[index].programmed, 0, "{at:?} holds pages");
        self.set_erases(index, erases);
    }
}
