//! What the entries of the byte window and their blocks must hold, and may: a model that random commands go through.

use super::{BLOCKS, PAGE, Window as _, refused};
use std::collections::{BTreeMap, HashMap};
use tidewater_base::Rng;
use tidewater_driver::vfio_user::NvmeError;
use tidewater_testkit::served::Host;
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::vendor::{WindowCommand, WindowStatus, log_page, status as vendor_status};

/// What a word of a pinned page may hold: what is safe, then what was stored since.
pub(super) type Word = Vec<[u8; 8]>;

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) first: u64,
    pub(super) offset: u64,
    pub(super) words: Vec<Word>,
    /// A flush was interrupted.
    pub(super) flush_begun: bool,
}

/// An operation without an answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Open {
    Pin(u16, u64, u32),
    Flush(u16),
    Unpin(u16),
}

/// What must be there, and what may be.
#[derive(Debug, Default)]
pub(super) struct Model {
    /// What each logical page may hold as blocks: what is durable first.
    pub(super) pages: HashMap<u64, Vec<Vec<u8>>>,
    pub(super) entries: BTreeMap<u16, Entry>,
    pub(super) open: Option<Open>,
    pub(super) tag: u64,
    pub(super) counts: BTreeMap<&'static str, u64>,
}

/// Pages that are worked on: few, so that everything meets.
pub(super) const PAGES: u64 = 16;

impl Model {
    pub(super) fn versions(&mut self, lpn: u64) -> &mut Vec<Vec<u8>> {
        self.pages.entry(lpn).or_insert_with(|| vec![vec![0; PAGE]])
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(super) fn content(&mut self) -> Vec<u8> {
        self.tag += 1;
        (0..PAGE as u64 / 8).flat_map(|word| (self.tag << 16 | word).to_le_bytes()).collect()
    }

    pub(super) fn is_pinned(&self, first: u64, end: u64) -> bool {
        self.entries.values().any(|entry| first < entry.first + entry.pages() && entry.first < end)
    }

    /// What is safe of an entry is what was stored last.
    pub(super) fn settle(&mut self, name: u16) {
        let entry = self.entries.get_mut(&name).expect("an entry");
        entry.words.iter_mut().for_each(|word| drop(word.drain(..word.len() - 1)));
    }

    pub(super) fn settle_all(&mut self) {
        let names: Vec<u16> = self.entries.keys().copied().collect();
        names.into_iter().for_each(|name| self.settle(name));
    }

    /// The blocks hold what the entry held, and it is gone.
    pub(super) fn flushed(&mut self, name: u16) {
        let entry = self.entries.remove(&name).expect("an entry");
        for (i, page) in entry.words.chunks(PAGE / 8).enumerate() {
            let bytes = page.iter().flat_map(|word| *word.last().expect("a value")).collect();
            *self.versions(entry.first + i as u64) = vec![bytes];
        }
    }

    /// One thing that the host does.
    pub(super) fn step(&mut self, host: &mut Host, rng: &mut Rng) -> Result<(), NvmeError> {
        let lpn = rng.below(PAGES);
        let names: Vec<u16> = self.entries.keys().copied().collect();
        let name = if names.is_empty() { None } else { Some(names[rng.below(names.len() as u64) as usize]) };
        match (rng.below(20), name) {
            (0..=2, _) => {
                let content = self.content();
                let fua = rng.below(3) == 0;
                if self.is_pinned(lpn, lpn + 1) {
                    self.count("refused");
                    assert_eq!(refused_or(host.try_write(lpn * BLOCKS, &content, fua))?, vendor_status::LBA_PINNED);
                    return Ok(());
                }
                self.versions(lpn).push(content.clone());
                host.try_write(lpn * BLOCKS, &content, fua)?;
                self.count("writes");
                if fua {
                    *self.versions(lpn) = vec![content];
                }
            }
            (3, _) => {
                host.run(Sqe::flush(8))?;
                self.count("flushes");
                let pinned: Vec<u64> = (0..PAGES).filter(|&lpn| self.is_pinned(lpn, lpn + 1)).collect();
                for (lpn, versions) in &mut self.pages {
                    // What was flushed in part holds several.
                    if !pinned.contains(lpn) {
                        versions.drain(..versions.len() - 1);
                    }
                }
            }
            (4, _) if !self.is_pinned(lpn, lpn + 1) => {
                // As zeroes, or by deallocation.
                self.versions(lpn).push(vec![0; PAGE]);
                self.count("zeroed");
                if rng.below(2) == 0 {
                    host.run(Sqe::write_zeroes(6, lpn * BLOCKS, BLOCKS as u16 - 1, false))?;
                } else {
                    let range = tidewater_wire::nvme::DsmRange { attributes: 0, blocks: 8, first_block: lpn * BLOCKS };
                    host.buffer.write(0, &range.to_bytes());
                    host.run_with_data(Sqe::dataset_management(7, 0, true), 16)?;
                }
            }
            (5, _) if !self.is_pinned(lpn, lpn + 1) => {
                let found = host.try_read(lpn * BLOCKS, PAGE)?;
                let counts = format!("{:?}", self.counts);
                let versions = self.versions(lpn);
                let place = versions.iter().rposition(|version| *version == found);
                assert!(
                    place == Some(versions.len() - 1),
                    "page {lpn} reads as version {place:?} of {}: {:x?} ({counts})",
                    versions.len(),
                    &found[..16]
                );
            }
            (6..=8, _) if self.entries.len() < 3 => {
                let pages = 1 + rng.below(3);
                let new = (0..5).find(|name| !self.entries.contains_key(name)).expect("one is free");
                if lpn + pages > PAGES || self.is_pinned(lpn, lpn + pages) {
                    return Ok(());
                }
                self.open = Some(Open::Pin(new, lpn, pages as u32));
                match host.pin(new, lpn, pages as u32) {
                    Ok(offset) => self.pinned(new, lpn, pages, offset),
                    Err(error) => {
                        let full = [vendor_status::BUFFER_FULL, vendor_status::TABLE_FULL];
                        assert!(full.contains(&refused_or::<u64>(Err(error))?));
                        self.count("full");
                    }
                }
            }
            (9, Some(name)) => {
                self.open = Some(Open::Flush(name));
                host.order(WindowCommand::Flush { entry: name })?;
                self.count("flushed");
                self.flushed(name);
            }
            (10, Some(name)) => {
                let begun = self.entries[&name].flush_begun;
                self.open = Some(Open::Unpin(name));
                let done = host.order(WindowCommand::Unpin { entry: name });
                if begun {
                    assert_eq!(refused_or(done)?, vendor_status::FLUSH_BEGUN);
                } else {
                    done?;
                    self.count("unpinned");
                    let Entry { first, ref words, .. } = self.entries[&name];
                    let end = first + (words.len() * 8 / PAGE) as u64;
                    self.entries.remove(&name);
                    self.open = None;
                    // What no flush had covered before the pin may have gone with the power: then the entry held it,
                    // and flash did not.
                    for lpn in first..end {
                        let found = host.try_read(lpn * BLOCKS, PAGE)?;
                        assert!(self.versions(lpn).contains(&found), "page {lpn} is none of its versions");
                        let versions = self.versions(lpn);
                        let place = versions.iter().rposition(|version| *version == found).expect("it is one of them");
                        versions.drain(place + 1..);
                    }
                }
            }
            (11, Some(name)) => {
                host.order(WindowCommand::Sync { entry: name })?;
                self.count("syncs");
                self.settle_all();
            }
            (12, Some(name)) => {
                let Entry { offset, ref words, .. } = self.entries[&name];
                let at = rng.below(words.len() as u64);
                let found = host.load(offset + 8 * at, 8)?;
                self.count("loads");
                self.settle_all();
                assert_eq!(self.entries[&name].words[at as usize], [<[u8; 8]>::try_from(&found[..]).expect("8")]);
            }
            (_, Some(name)) => {
                // Whole words, a few at once.
                let count = self.entries[&name].words.len() as u64;
                let at = rng.below(count);
                let words = (1 + rng.below(6)).min(count - at);
                self.tag += 1;
                let bytes: Vec<u8> = (0..words).flat_map(|word| (self.tag << 8 | word).to_le_bytes()).collect();
                let entry = self.entries.get_mut(&name).expect("an entry");
                for (word, value) in entry.words[at as usize..].iter_mut().zip(bytes.chunks(8)) {
                    word.push(value.try_into().expect("8 bytes"));
                }
                let offset = entry.offset + 8 * at;
                if rng.below(4) > 0 {
                    host.store(offset, &bytes)?;
                } else {
                    host.buffer.write(0, &bytes);
                    let write = WindowCommand::Write { entry: name, offset: 8 * at, bytes: bytes.len() as u32 };
                    host.run_with_data(write.emit(9), bytes.len())?;
                }
                self.count("stores");
            }
            _ => {}
        }
        self.open = None;
        Ok(())
    }

    pub(super) fn pinned(&mut self, name: u16, first: u64, pages: u64, offset: u64) {
        self.count("pinned");
        let mut words = Vec::new();
        for lpn in first..first + pages {
            let last = self.versions(lpn).last().expect("a version").clone();
            words.extend(last.chunks(8).map(|word| vec![word.try_into().expect("8 bytes")]));
        }
        self.entries.insert(name, Entry { first, offset, words, flush_begun: false });
    }

    /// The drive was away. `all`: no operation that it got may be lost.
    pub(super) fn check(&mut self, host: &mut Host, all: bool) {
        // What was under way has happened or not, and the drive says which.
        match self.open.take() {
            Some(Open::Pin(name, first, pages)) => {
                if let Ok(info) = host.info(name) {
                    // What it holds may be any version that the page may have: it is read below.
                    self.pinned(name, first, pages.into(), info.offset);
                    let bytes = host.dma(name, 0, pages as usize * PAGE).expect("a read");
                    for (i, page) in bytes.chunks(PAGE).enumerate() {
                        assert!(self.versions(first + i as u64).contains(&page.to_vec()), "a page that never was");
                    }
                    let entry = self.entries.get_mut(&name).expect("an entry");
                    for (word, value) in entry.words.iter_mut().zip(bytes.chunks(8)) {
                        *word = vec![value.try_into().expect("8 bytes")];
                    }
                    self.count("pins decided");
                }
            }
            Some(Open::Flush(name)) => match host.info(name) {
                Ok(info) => {
                    self.entries.get_mut(&name).expect("an entry").flush_begun = info.flush_begun;
                    self.count("flushes undone");
                }
                Err(_) => {
                    // It has ended: the blocks hold what the entry held, whatever of the last stores had come.
                    let entry = self.entries.remove(&name).expect("an entry");
                    for (i, words) in entry.words.chunks(PAGE / 8).enumerate() {
                        let found = host.read((entry.first + i as u64) * BLOCKS, PAGE);
                        for (word, value) in words.iter().zip(found.chunks(8)) {
                            assert!(word.iter().any(|may| may == value), "a word that was never stored");
                        }
                        *self.versions(entry.first + i as u64) = vec![found];
                    }
                    self.count("flushes decided");
                }
            },
            Some(Open::Unpin(name)) if host.info(name).is_err() => {
                self.entries.remove(&name);
                self.count("unpins decided");
            }
            Some(Open::Unpin(_)) | None => {}
        }
        for (&name, entry) in &mut self.entries {
            let info = host.info(name).unwrap_or_else(|error| panic!("entry {name} is gone: {error}"));
            let pages = entry.words.len() * 8 / PAGE;
            assert_eq!((info.lba, info.bytes), (entry.first * BLOCKS, (pages * PAGE) as u64));
            assert_eq!(info.flush_begun, entry.flush_begun, "entry {name}");
            entry.offset = info.offset;
            let found = host.dma(name, 0, pages * PAGE).expect("a read");
            assert_eq!(host.load(info.offset, pages * PAGE).expect("a load"), found, "both ways to the same bytes");
            for (at, (word, value)) in entry.words.iter_mut().zip(found.chunks(8)).enumerate() {
                let is_last = word.last().is_some_and(|last| last == value);
                assert!(
                    is_last || !all && word.iter().any(|may| may == value),
                    "entry {name}, word {at}: {word:x?} {value:x?}"
                );
                *word = vec![value.try_into().expect("8 bytes")];
            }
        }
        for lpn in 0..PAGES {
            if self.is_pinned(lpn, lpn + 1) {
                assert_eq!(refused(host.try_read(lpn * BLOCKS, PAGE)), vendor_status::LBA_PINNED);
                continue;
            }
            let found = host.read(lpn * BLOCKS, PAGE);
            let versions = self.versions(lpn);
            assert!(versions.contains(&found), "page {lpn} holds {:x?}, not one of {}", &found[..16], versions.len());
            *versions = vec![found];
        }
        let status = WindowStatus::parse(&host.log(log_page::WINDOW, WindowStatus::SIZE)).expect("a page");
        assert_eq!(usize::from(status.pinned), self.entries.len());
    }
}

impl Entry {
    pub(super) fn pages(&self) -> u64 {
        (self.words.len() * 8 / PAGE) as u64
    }
}

/// The status of a command that was refused; an error of anything else.
pub(super) fn refused_or<T: std::fmt::Debug>(result: Result<T, NvmeError>) -> Result<Status, NvmeError> {
    match result {
        Err(NvmeError::Status(status)) => Ok(status.with_more(false)),
        Err(error) => Err(error),
        Ok(done) => panic!("{done:?} was not refused"),
    }
}
