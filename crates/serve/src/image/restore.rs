//! The flash as it was, from what is stored of it.

use super::ImageError;
use super::flaw::Flaw;
use super::format::{BlockRecord, EPOCH_END, FACTORY_BAD, GROWN_BAD, OwnRecord, PageRecord, PageState, UnitRecord};
use super::open::OpenReport;
use super::store::Image;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use tidewater_core::Identity;
use tidewater_nand::{Block, Config, Medium, Nand, Page, PageHeader, PageKind};

/// What an image gave back.
pub(super) struct Restored {
    pub(super) nand: Nand,
    /// The newest epoch that anything was written in.
    pub(super) epoch: u64,
    pub(super) version_max: u64,
    pub(super) report: OpenReport,
}

/// The parts of a row of the firmware's own, by plane.
#[derive(Default)]
struct OwnRow {
    words: u32,
    prefix: Vec<u32>,
    parts: BTreeMap<u32, Vec<u32>>,
}

impl OwnRow {
    /// The whole row, if all of its parts are there.
    fn whole(&self) -> Option<Arc<[u32]>> {
        let words = self.words as usize;
        let prefix = self.prefix.iter().take(words);
        let all: Vec<u32> = prefix.chain(self.parts.values().flatten()).copied().collect();
        (words > 0 && all.len() == words).then(|| all.into())
    }
}

/// No counter ever gets here: what has it is not ours.
const COUNT_MAX: u64 = 1 << 62;
/// The same for the erases of a block.
const ERASES_MAX: u32 = 1 << 31;

/// What the numbers in the image's records may be.
struct Bounds {
    superblocks_per_die: u32,
    units: u64,
    /// Units of the block side; behind them is the log, whose versions say what a page holds.
    data_units: u64,
    segments: u32,
    entries: u32,
    rows: u32,
    units_per_row: u32,
    row_shift: u32,
    superblock_shift: u32,
    superblocks: u32,
}

impl Bounds {
    fn new(config: &Config, identity: &Identity, log_units: u64) -> Bounds {
        let units_per_row = config.page_size / identity.unit_size * config.planes;
        let row_shift = units_per_row.next_power_of_two().trailing_zeros();
        let entries = config.page_size * config.planes / 4;
        Bounds {
            superblocks_per_die: identity.plan.superblocks_per_die,
            units: identity.plan.units,
            data_units: identity.plan.units.saturating_sub(log_units),
            segments: identity.plan.units.div_ceil(entries.into()) as u32,
            entries,
            rows: config.pages_per_block,
            units_per_row,
            row_shift,
            superblock_shift: row_shift + config.pages_per_block.next_power_of_two().trailing_zeros(),
            superblocks: config.dies() * identity.plan.superblocks_per_die,
        }
    }

    fn header(&self, at: Block, header: &PageHeader) -> bool {
        header.superblock < self.superblocks
            && header.program_sequence < COUNT_MAX
            && header.superblock / self.superblocks_per_die == at.die
            && (header.kind != PageKind::Map || header.index < self.segments)
    }

    fn is_data(&self, lpn: u32) -> bool {
        u64::from(lpn) < self.data_units
    }

    fn unit(&self, unit: &UnitRecord) -> bool {
        (unit.lpn == Nand::NO_LPN || u64::from(unit.lpn) < self.units)
            && (unit.version < COUNT_MAX || !self.is_data(unit.lpn))
            && unit.sequence < COUNT_MAX
    }

    fn entry(&self, entry: u32) -> bool {
        let at = |ppn: u32| {
            let (row, unit) = (ppn >> self.row_shift, ppn & ((1 << self.row_shift) - 1));
            let row = row & ((1 << (self.superblock_shift - self.row_shift)) - 1);
            ppn >> self.superblock_shift < self.superblocks && row < self.rows && unit < self.units_per_row
        };
        entry == 0 || entry == u32::MAX || at(entry - 1)
    }

    fn own(&self, header: &PageHeader, words: &[u32]) -> bool {
        let count = |words: &[u32]| (u64::from(words[0]) | u64::from(words[1]) << 32) < COUNT_MAX;
        match header.kind {
            PageKind::Map => {
                let entries = (self.units - u64::from(header.index) * u64::from(self.entries)).min(self.entries.into());
                words.len() as u64 == 4 + entries
                    && count(words)
                    && count(&words[2..])
                    && words[4..].iter().all(|&entry| self.entry(entry))
            }
            PageKind::Trim => words.len().is_multiple_of(4) && words.chunks_exact(4).all(|record| count(&record[2..])),
            PageKind::Data => false,
        }
    }
}

/// The page records of one block, as they are stored.
struct Records {
    block: u32,
    bytes: Vec<u8>,
    /// What counts of them, up to the last page that was programmed.
    pages: Vec<Option<PageRecord>>,
}

impl Image {
    /// Builds the flash. Pages above the epoch `synced` may be torn, and are looked at.
    pub(super) fn restore(
        &mut self,
        config: &Config,
        identity: &Identity,
        log_units: u64,
        synced: u64,
    ) -> Result<Restored, ImageError> {
        let bounds = Bounds::new(config, identity, log_units);
        let (geometry, blocks) = (self.geometry, &self.blocks);
        let is_factory_bad = |at| blocks[geometry.block(at) as usize].record.flags & FACTORY_BAD != 0;
        // Errors must not repeat themselves from one start to the next.
        let seed = identity.options.seed ^ self.state_number.rotate_left(32);
        let mut nand = Nand::restored(config, identity.unit_size, seed, is_factory_bad);
        let mut restored = RestoredSoFar { epoch: synced, ..RestoredSoFar::default() };
        let mut own: Vec<Records> = Vec::new();
        let mut rows: BTreeMap<u64, OwnRow> = BTreeMap::new();
        for block in 0..geometry.blocks() {
            let mut records = self.read_records(block)?;
            let BlockRecord { erases, flags, .. } = self.blocks[block as usize].record;
            let generation_max = self.blocks[block as usize].generation_max;
            if erases.max(generation_max) > ERASES_MAX || flags & FACTORY_BAD != 0 && !records.pages.is_empty() {
                return Err(
                    self.damaged(block, "a block was erased more often than is possible, or used though it was bad")
                );
            }
            self.verify(&mut records, synced, &bounds, &mut restored)?;
            nand.set_erase_count(geometry.block_at(block), self.blocks[block as usize].record.erases);
            self.blocks[block as usize].used = !records.pages.is_empty();
            if records.pages.iter().flatten().any(|page| is_own(page).is_some()) {
                self.collect_own(&records, &mut rows)?;
                own.push(records);
            } else {
                self.put_pages(&mut nand, &records, &BTreeMap::new(), &bounds, &mut restored);
            }
        }
        for records in &own {
            for page in records.pages.iter().flatten() {
                if let Some(header) = is_own(page)
                    && let Some(words) = rows.get(&header.program_sequence).and_then(OwnRow::whole)
                    && !bounds.own(header, &words)
                {
                    return Err(self.damaged(records.block, "a page of the map names what is not there"));
                }
            }
            self.put_pages(&mut nand, records, &rows, &bounds, &mut restored);
        }
        self.even_out(&mut nand);
        for block in 0..geometry.blocks() {
            if self.blocks[block as usize].record.flags & GROWN_BAD != 0 {
                nand.mark_bad(geometry.block_at(block));
            }
        }
        let RestoredSoFar { epoch, version_max, report } = restored;
        Ok(Restored { nand, epoch, version_max, report })
    }

    fn damaged(&self, block: u32, what: &str) -> ImageError {
        let at = self.geometry.record_of(self.geometry.page(block, 0));
        ImageError::Damaged { name: self.name.clone(), at, what: what.into() }
    }

    fn io_error(&self, what: &'static str) -> impl FnOnce(io::Error) -> ImageError + use<> {
        let name = self.name.clone();
        move |error| ImageError::Io { name, what, error }
    }

    /// The records of a block that belong to its present life.
    fn read_records(&mut self, block: u32) -> Result<Records, ImageError> {
        let size = self.geometry.page_record();
        let mut bytes = vec![0; size * self.geometry.pages_per_block as usize];
        let first = self.geometry.page(block, 0);
        let at = self.geometry.record_of(first);
        self.storage.read_at(at, &mut bytes).map_err(self.io_error("read the records of its pages"))?;
        let (salt, generation) = (self.salt, self.blocks[block as usize].record.generation);
        let mut generation_max = generation;
        let decode = |(page, bytes): (usize, &[u8])| {
            let record = PageRecord::decode(salt, first + page as u64, bytes)?;
            generation_max = generation_max.max(record.generation);
            (record.generation == generation).then_some(record)
        };
        let mut pages: Vec<Option<PageRecord>> = bytes.chunks_exact(size).enumerate().map(decode).collect();
        pages.truncate(pages.iter().rposition(Option::is_some).map_or(0, |last| last + 1));
        self.blocks[block as usize].generation_max = generation_max;
        Ok(Records { block, bytes, pages })
    }

    fn record<'a>(&self, records: &'a Records, page: usize) -> &'a [u8] {
        let size = self.geometry.page_record();
        &records.bytes[page * size..(page + 1) * size]
    }

    /// Looks at the payload of pages that may not have been written whole, and notes those down that were not.
    fn verify(
        &mut self,
        records: &mut Records,
        synced: u64,
        bounds: &Bounds,
        restored: &mut RestoredSoFar,
    ) -> Result<(), ImageError> {
        let at = self.geometry.block_at(records.block);
        for page in 0..records.pages.len() {
            let Some(record) = records.pages[page] else { continue };
            if record.epoch >= EPOCH_END {
                return Err(self.damaged(records.block, "a page is of an epoch that no image gets to"));
            }
            restored.epoch = restored.epoch.max(record.epoch);
            let PageState::Programmed(header) = record.state else { continue };
            restored.report.pages += 1;
            if !bounds.header(at, &header) {
                return Err(self.damaged(records.block, "a page belongs to no superblock of its die"));
            }
            let is_own = header.kind != PageKind::Data;
            let units = 0..if is_own { 0 } else { self.geometry.units_per_page() };
            let bytes = self.record(records, page);
            if !units.into_iter().all(|unit| bounds.unit(&UnitRecord::decode(bytes, unit))) {
                return Err(self.damaged(records.block, "a unit's numbers make no sense"));
            }
            if record.epoch <= synced && !is_own {
                continue;
            }
            restored.report.verified += 1;
            let bytes = self.record(records, page);
            let number = self.geometry.page(records.block, page as u32);
            let is_whole = if is_own { self.own_part(number, bytes)?.is_some() } else { self.is_whole(number, bytes)? };
            if !is_whole {
                restored.report.torn += 1;
                restored.report.pages -= 1;
                let torn = PageRecord { state: PageState::Torn, ..record };
                self.write_torn(number, torn)?;
                records.pages[page] = Some(torn);
            }
        }
        Ok(())
    }

    fn is_whole(&self, number: u64, record: &[u8]) -> Result<bool, ImageError> {
        if self.options.flaw.is(Flaw::NoChecksums) {
            return Ok(true);
        }
        let mut payload = vec![0; self.geometry.page_size as usize];
        self.storage.read_at(self.payload_at(number), &mut payload).map_err(self.io_error("read its pages"))?;
        let units = payload.chunks_exact(self.geometry.unit_size as usize).enumerate();
        let mut stored = units.map(|(i, bytes)| (UnitRecord::decode(record, i as u32), bytes));
        Ok(stored.all(|(unit, bytes)| {
            let sum = if unit.poisoned { !unit.sum } else { unit.sum };
            unit.lpn == Nand::NO_LPN || sum == self.sum(bytes)
        }))
    }

    /// How many words of a row of the firmware's own a page holds.
    pub(super) fn own_words(&self, number: u64, own: &OwnRecord) -> u32 {
        let per_page = self.geometry.page_size / 4;
        let plane = self.geometry.block_at((number / u64::from(self.geometry.pages_per_block)) as u32).plane;
        let rest = own.words.saturating_sub(own.prefix.len() as u32);
        rest.saturating_sub(plane.saturating_mul(per_page)).min(per_page)
    }

    /// The words of a row of the firmware's own that a page holds; `None`: they are not what was written.
    fn own_part(&self, number: u64, record: &[u8]) -> Result<Option<Vec<u32>>, ImageError> {
        let own = OwnRecord::decode(record);
        let words = self.own_words(number, &own);
        let mut bytes = vec![0; words as usize * 4];
        self.storage.read_at(self.payload_at(number), &mut bytes).map_err(self.io_error("read its pages"))?;
        let is_good = crc32c::crc32c(&bytes) == own.sum;
        let words = bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        Ok(is_good.then(|| words.collect()))
    }

    fn write_torn(&mut self, number: u64, torn: PageRecord) -> Result<(), ImageError> {
        let mut bytes = vec![0; self.geometry.page_record()];
        torn.encode(&mut bytes);
        PageRecord::seal(self.salt, number, &mut bytes);
        let result = self.storage.write_at(self.geometry.record_of(number), &bytes);
        result.map_err(self.io_error("note down a page that was not written whole"))
    }

    /// Gathers the parts of rows of the firmware's own that are in a block.
    fn collect_own(&self, records: &Records, rows: &mut BTreeMap<u64, OwnRow>) -> Result<(), ImageError> {
        let plane = self.geometry.block_at(records.block).plane;
        for (page, record) in records.pages.iter().enumerate() {
            let Some(header) = record.as_ref().and_then(is_own) else { continue };
            let bytes = self.record(records, page);
            let number = self.geometry.page(records.block, page as u32);
            let own = OwnRecord::decode(bytes);
            let row = rows.entry(header.program_sequence).or_default();
            if let Some(part) = self.own_part(number, bytes)? {
                (row.words, row.prefix) = (own.words, own.prefix.to_vec());
                row.parts.insert(plane, part);
            }
        }
        Ok(())
    }

    fn put_pages(
        &mut self,
        nand: &mut Nand,
        records: &Records,
        rows: &BTreeMap<u64, OwnRow>,
        bounds: &Bounds,
        restored: &mut RestoredSoFar,
    ) {
        let at = self.geometry.block_at(records.block);
        let per_page = self.geometry.units_per_page();
        let (mut lpns, mut stamps) = (vec![Nand::NO_LPN; per_page as usize], vec![(0, 0); per_page as usize]);
        for (page, record) in records.pages.iter().enumerate() {
            let Some(PageRecord { state: PageState::Programmed(header), .. }) = *record else {
                nand.tear_program(at, page as u32);
                continue;
            };
            let bytes = self.record(records, page);
            let first = self.geometry.page(records.block, page as u32) * u64::from(per_page);
            let mut own_payload = None;
            if header.kind == PageKind::Data {
                for unit in 0..per_page {
                    let stored = UnitRecord::decode(bytes, unit);
                    self.sums[(first + u64::from(unit)) as usize] = stored.sum;
                    self.has_lost |= stored.poisoned;
                    lpns[unit as usize] = stored.lpn;
                    stamps[unit as usize] = (stored.version, stored.sequence);
                    if bounds.is_data(stored.lpn) {
                        restored.version_max = restored.version_max.max(stored.version);
                    }
                }
            } else {
                lpns.fill(Nand::NO_LPN);
                stamps.fill((0, 0));
                // The firmware looks for it on the first plane.
                own_payload = rows.get(&header.program_sequence).filter(|_| at.plane == 0).and_then(OwnRow::whole);
            }
            nand.preset(at, page as u32, &Page { header, lpns: &lpns, stamps: &stamps, origins: &[], own_payload });
        }
    }

    /// The blocks of a superblock are programmed together: where a crash has lost the last pages of some, they count as
    /// torn, so that the superblock can go on behind them.
    fn even_out(&self, nand: &mut Nand) {
        let mut newest: BTreeMap<(u32, u32), (u64, Block)> = BTreeMap::new();
        for block in 0..self.geometry.blocks() {
            let at = self.geometry.block_at(block);
            let header = (0..nand.programmed(at)).rev().find_map(|page| nand.header(at, page));
            if let Some(header) = header {
                let claim = newest.entry((header.superblock, at.plane)).or_insert((header.program_sequence, at));
                if header.program_sequence > claim.0 {
                    *claim = (header.program_sequence, at);
                }
            }
        }
        let mut rows: BTreeMap<u32, u32> = BTreeMap::new();
        for (&(superblock, _), &(_, at)) in &newest {
            let most = rows.entry(superblock).or_default();
            *most = nand.programmed(at).max(*most);
        }
        for (&(superblock, _), &(_, at)) in &newest {
            if !nand.is_bad(at) {
                (nand.programmed(at)..rows[&superblock]).for_each(|page| nand.tear_program(at, page));
            }
        }
    }
}

#[derive(Default)]
struct RestoredSoFar {
    epoch: u64,
    version_max: u64,
    report: OpenReport,
}

fn is_own(page: &PageRecord) -> Option<&PageHeader> {
    match &page.state {
        PageState::Programmed(header) if header.kind != PageKind::Data => Some(header),
        _ => None,
    }
}
