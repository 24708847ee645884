//! Deltas: bytes that are written much like some before are recorded by what differs (ADR 29).
//!
//! SQLite appends a page of 4 KiB to its log for each commit, of which some 150 bytes are not as in the commit before.
//! A process keeps what it recorded last of a file, under the numbers that the records say ([`DELTA_BASES`]), and
//! compares what comes with that. Nothing depends on what the *file* has: a delta goes by the bytes of a record, which
//! replay has as well.
//!
//! The base of a delta has to be the bytes that replay finds under its number. So the table tells for each number of a
//! file whose record is the newest: another process that took the number ends it for this one, and so does an owner of
//! the lock that died ([`crate::Files::reread`]). And no record goes by one that may be trimmed before it
//! ([`crate::Table::begin_anew`]).

use std::sync::atomic::{Ordering, compiler_fence};
use std::sync::{Mutex, MutexGuard};

use tidewater_wire::log::{DELTA_BASES, FileChange, FileChangeKind, FileDelta, FilePatch, FileRecord};

use crate::compare::each_difference;
use crate::table::{Locked, Place};
use tidewater_client::Written;

/// Bytes that are copied or read back at once: on the stack, since nothing on this way takes memory.
pub const COPY: usize = 8 << 10;
/// Bytes that are worth being kept for the next, at least.
pub(crate) const KEPT_MIN: usize = 512;
/// Bytes of a delta's patches, at most: what is left out has to be worth its comparison.
const DELTA_MAX: usize = 1 << 10;
/// Bytes alike within what differs that are worth a patch's end: more than a [`FilePatch`] takes.
const GAP: usize = 16;
/// Where patches begin in the record of a delta.
const PATCHES: usize = FileChange::SIZE + FileDelta::SIZE;
/// Files of which a process keeps something at a time.
const SETS: usize = 8;
/// Places that are looked at to see which base is the most alike.
const SAMPLES: usize = 16;
/// Records in a row that are like none before, after which it isn't tried any more.
const TRIES: u32 = 16;
/// Those, and records that were written without a look since, after which it is tried again.
const REST: u32 = 256;

/// Bytes that are written to one place, in two parts, of which the second or the first may be empty: a head and what it
/// is of, such as a page.
pub(crate) type Parts<'p> = [&'p [u8]; 2];

pub(crate) fn len(parts: Parts<'_>) -> usize {
    parts[0].len() + parts[1].len()
}

/// The newest records of this process's files.
#[derive(Debug)]
pub(crate) struct Bases(Vec<Mutex<Set>>);

/// Of one file.
#[derive(Debug)]
pub(crate) struct Set {
    place: Place,
    bases: [Base; DELTA_BASES],
    /// Taken here and not where something is kept: a write may come from a signal handler, which must not ask for
    /// memory.
    bytes: Vec<u8>,
    /// A record, while it is put together.
    record: Vec<u8>,
    /// The number that is given next, less one.
    next: usize,
    /// Records in a row that were like none before.
    useless: u32,
}

/// The base under a number.
#[derive(Clone, Copy, Debug, Default)]
struct Base {
    /// Its record; 0: none.
    lsn: u64,
    len: usize,
    /// Beside each other: to look at them among the bytes takes a line of the caches for each.
    samples: Samples,
}

/// A fingerprint: words at fixed places of the longer part of some bytes. Words have 32 bits: every processor compares
/// several of these at a time. None is from the begin: pages of a kind begin alike, and a new page that is unlike all
/// others would be compared.
type Samples = [u32; SAMPLES];

fn samples([head, body]: Parts<'_>) -> Samples {
    let bytes = if head.len() > body.len() { head } else { body };
    let step = bytes.len() / SAMPLES;
    let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
    std::array::from_fn(|sample| word(sample * step + step / 2))
}

/// Samples that two have alike.
fn alike(one: &Samples, other: &Samples) -> u32 {
    one.iter().zip(other).map(|(one, other)| u32::from(one == other)).sum()
}

impl Bases {
    pub fn new() -> Bases {
        let set = || Set {
            place: Place { entry: 0, id: 0 },
            bases: Default::default(),
            bytes: vec![0; DELTA_BASES * COPY],
            record: vec![0; PATCHES + DELTA_MAX],
            next: 0,
            useless: 0,
        };
        Bases((0..SETS).map(|_| Mutex::new(set())).collect())
    }

    /// The bases of a file whose lock is held; those of another file in their place are dropped. `None`: in use.
    pub(crate) fn of(&self, place: Place) -> Option<MutexGuard<'_, Set>> {
        // It is held by a thread that this process does not have, by one that changes another file, or by this one amid
        // a signal.
        let mut set = self.0[usize::from(place.entry) % SETS].try_lock().ok()?;
        if set.place != place {
            (set.place, set.bases, set.next, set.useless) = (place, Default::default(), 0, 0);
        }
        Some(set)
    }
}

impl Set {
    pub(crate) fn kept(&self, number: usize, len: usize) -> &[u8] {
        &self.bytes[number * COPY..][..len]
    }

    /// Whether it isn't worth the trouble, as far as the last records tell.
    pub(crate) fn rests(&self) -> bool {
        (TRIES..REST).contains(&self.useless)
    }

    /// The base that is the most like some bytes, of those that a record may go by.
    fn most_alike(&self, locked: &Locked<'_>, len: usize, samples: &Samples) -> Option<usize> {
        let anew = locked.anew();
        let may = |number: usize| {
            let base = &self.bases[number];
            base.len == len && base.lsn != 0 && base.lsn >= anew && locked.base(number) == base.lsn
        };
        let alike = |number: usize| (alike(&self.bases[number].samples, samples), number);
        let (count, number) = (0..DELTA_BASES).filter(|number| may(*number)).map(alike).max()?;
        (count as usize > SAMPLES / 2).then_some(number)
    }

    /// Puts together the record of bytes that are like those under a number, which become them. `None`: it is not worth
    /// it, and under the number is anything.
    fn delta(&mut self, number: usize, change: &FileChange, parts: Parts<'_>) -> Option<&[u8]> {
        let base = &mut self.bases[number];
        let lsn = std::mem::take(&mut base.lsn);
        let kept = &mut self.bytes[number * COPY..][..base.len];
        let (mut used, mut patches, mut from) = (PATCHES, 0, 0);
        for bytes in parts {
            each_difference(&mut kept[from..from + bytes.len()], bytes, GAP, |kept, run| {
                let place = self.record.get_mut(used..used + FilePatch::SIZE + run.len())?;
                let (head, rest) = place.split_at_mut(FilePatch::SIZE);
                let patch = FilePatch { at: (from + run.start) as u16, len: run.len() as u16 };
                head.copy_from_slice(&patch.to_bytes());
                let new = &mut kept[run.clone()];
                take(new, &bytes[run]);
                rest.copy_from_slice(new);
                used += place.len();
                patches += 1;
                Some(())
            })?;
            from += bytes.len();
        }
        self.record[..FileChange::SIZE].copy_from_slice(&change.to_bytes());
        self.record[FileChange::SIZE..PATCHES].copy_from_slice(&FileDelta { lsn, patches }.to_bytes());
        self.useless = 0;
        Some(&self.record[..used])
    }

    /// Bytes that are not much like those under a number come under it.
    fn keep(&mut self, number: usize, parts: Parts<'_>) {
        self.bases[number].lsn = 0;
        let (head, body) = self.bytes[number * COPY..][..len(parts)].split_at_mut(parts[0].len());
        take(head, parts[0]);
        take(body, parts[1]);
        self.next = (number + 1) % DELTA_BASES;
        self.useless += 1;
    }

    /// Bytes were recorded without a look at the bases.
    pub(crate) fn was_passed_by(&mut self) {
        self.useless += 1;
    }

    /// Records bytes by `put`, which appends a record of these parts: by what differs, if they are much like some
    /// before. Returns the number under which they are kept.
    pub(crate) fn record<E>(
        &mut self,
        locked: &Locked<'_>,
        offset: u64,
        parts: Parts<'_>,
        put: impl FnOnce(&[&[u8]]) -> Result<Written, E>,
    ) -> Result<usize, E> {
        if self.useless >= REST {
            self.useless = TRIES / 2;
        }
        let (len, samples) = (len(parts), samples(parts));
        let found = self.most_alike(locked, len, &samples);
        // What it was the most like is what the next is least like.
        let number = found.unwrap_or(self.next);
        let change = |kind| change(locked, kind, number as u8 + 1, offset, len);
        let delta = found.and_then(|_| self.delta(number, &change(FileChangeKind::Delta), parts));
        let written = match delta {
            Some(record) => put(&[record])?,
            None => {
                self.keep(number, parts);
                put(&[&change(FileChangeKind::Write).to_bytes(), self.kept(number, len)])?
            }
        };
        self.bases[number] = Base { lsn: written.lsn, len, samples };
        locked.set_base(number, written.lsn);
        Ok(number)
    }
}

/// Copies bytes that others may go on storing into: what is made of the copy is made of it, and not of what they are by
/// then.
fn take(to: &mut [u8], from: &[u8]) {
    to.copy_from_slice(from);
    compiler_fence(Ordering::SeqCst);
}

/// The head of a record of bytes of a file whose lock is held.
pub(crate) fn change(locked: &Locked<'_>, kind: FileChangeKind, base: u8, offset: u64, len: usize) -> FileChange {
    FileChange { kind, id: locked.place.id, base, offset, len: len as u64 }
}

/// The newest record of a file under each number, while a log is read.
#[derive(Debug, Default)]
pub(crate) struct Recorded([Option<Record>; DELTA_BASES]);

/// The newest record under a number.
#[derive(Debug)]
struct Record {
    lsn: u64,
    len: u64,
    /// Its bytes, if they are needed: no more than the log has.
    bytes: Vec<u8>,
}

impl Recorded {
    /// Takes up what a record says of bytes. `false`: it goes by some that the log does not have. `keep`: the bytes are
    /// needed, too.
    pub fn take_up(&mut self, lsn: u64, record: &FileRecord<'_>, keep: bool) -> bool {
        match *record {
            FileRecord::Write { bytes, base: base @ 1.., .. } => {
                let kept = if keep { bytes.to_vec() } else { Vec::new() };
                self.0[usize::from(base) - 1] = Some(Record { lsn, len: bytes.len() as u64, bytes: kept });
                true
            }
            FileRecord::Delta { len, base, lsn: of, patches, .. } => {
                let newest = self.0[usize::from(base) - 1].as_mut();
                let Some(newest) = newest.filter(|newest| (newest.lsn, newest.len) == (of, len)) else { return false };
                newest.lsn = lsn;
                if keep {
                    patches.for_each(|(at, bytes)| newest.bytes[at..at + bytes.len()].copy_from_slice(bytes));
                }
                true
            }
            _ => true,
        }
    }

    /// The bytes under a number, from 1, that were kept.
    pub fn bytes(&self, base: u8) -> &[u8] {
        self.0[usize::from(base) - 1].as_ref().map_or(&[], |newest| &newest.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::backing::Journal;
    use crate::set::Files;
    use crate::set::tests::{Kept, Nothing, replayed};
    use crate::table::Table;
    use tidewater_base::rng::Rng;
    use tidewater_client::Level;

    /// A file that processes share, each with what it has kept itself.
    struct Shared {
        _folder: tempfile::TempDir,
        file: File,
        place: Place,
        processes: Vec<Files<Kept>>,
    }

    impl Shared {
        fn new(processes: usize) -> Shared {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().canonicalize().expect("the folder exists").join("log");
            let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a new file");
            let (table, memory) = Table::new([7; 16], Level::Ring, Level::Ring, 64 << 10).expect("memory");
            let mut all = vec![Files::new(table, Kept::default())];
            for _ in 1..processes {
                let table = Table::join(memory.as_fd()).expect("the memory holds a table");
                all.push(Files::new(table, all[0].journal().clone()));
            }
            let place =
                all[0].enter(file.as_fd(), path.as_os_str().as_bytes(), &Nothing).expect("the file can join the set");
            Shared { _folder: folder, file, place: place.expect("the file is in the set"), processes: all }
        }

        /// Bytes that the log grows by.
        fn write(&self, process: usize, offset: u64, bytes: &[u8]) -> u64 {
            let files = &self.processes[process];
            let locked = files
                .lock(self.place, self.file.as_fd(), false)
                .expect("no owner died")
                .expect("the file is in the table");
            let before = files.journal().end();
            locked.begin(offset, offset + bytes.len() as u64);
            files.write(&locked, offset, bytes).expect("the log accepts it");
            let grown = files.journal().end() - before;
            self.file.write_all_at(bytes, offset).expect("there is room");
            locked.end();
            grown
        }

        fn check(&self) {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut &self.file, &mut bytes).expect("it can be read");
            std::io::Seek::rewind(&mut &self.file).expect("the file can be rewound");
            assert!(replayed(&[], &self.processes[0].journal().records()) == bytes, "the log leads to other bytes");
        }
    }

    fn page(seed: u64, len: usize) -> Vec<u8> {
        let mut rng = Rng::new(seed, b"page");
        (0..len).map(|_| rng.next_u64() as u8).collect()
    }

    #[test]
    fn what_is_kept_is_what_is_recorded_and_written() {
        let shared = Shared::new(1);
        let files = &shared.processes[0];
        let write = |offset: u64, bytes: &[u8]| {
            let locked = files.lock(shared.place, shared.file.as_fd(), false).unwrap().unwrap();
            let real = |kept: &[u8]| {
                assert!(kept == bytes && kept.as_ptr() != bytes.as_ptr(), "they are a copy");
                assert_eq!(locked.pending(), Some((offset, offset + bytes.len() as u64)));
                shared.file.write_all_at(kept, offset).unwrap();
            };
            let done = files.write_kept(&locked, offset, bytes, real).unwrap();
            if done.is_some() {
                locked.end_known(offset, offset + bytes.len() as u64);
            }
            done.is_some()
        };
        let mut one = page(1, 4096);
        one[4095] = 1;
        for turn in 0..40usize {
            one[turn * 90] ^= 1;
            assert!(write(4096 * turn as u64, &one));
            shared.check();
        }
        let grown = |records: Vec<(u64, Vec<u8>)>| records.iter().map(|(_, record)| record.len() as u64).sum::<u64>();
        assert!(grown(files.journal().records()) < 2 * WHOLE + 40 * (HEAD + 5), "one is whole");
        // Small, large, with zeroes to leave out, and over what the file has.
        let mut zeroes = page(2, 2048);
        zeroes[1024..].fill(0);
        for (offset, bytes) in [(1 << 20, &one[..KEPT_MIN - 1]), (1 << 20, &page(3, COPY + 1)), (1 << 20, &zeroes)] {
            assert!(!write(offset, bytes));
        }
        assert!(!write(4096 * 39 + 100, &one));
        // None of it is like another: not tried any more, until it has rested.
        let tried: Vec<bool> = (10..10 + u64::from(TRIES) + 2).map(|n| write(n << 20, &page(n, 4096))).collect();
        assert_eq!(tried.iter().filter(|tried| **tried).count(), TRIES as usize);
        shared.check();
    }

    #[test]
    fn a_frame_is_recorded_by_what_differs_in_both_of_its_parts() {
        let shared = Shared::new(1);
        let files = &shared.processes[0];
        let (mut head, mut body) = (page(1, 24), page(2, 4096));
        for turn in 0..40u64 {
            (head[turn as usize % 24], body[turn as usize * 100]) = (turn as u8, turn as u8);
            let whole = [head.as_slice(), &body].concat();
            let offset = turn * 4120;
            let locked = files.lock(shared.place, shared.file.as_fd(), false).unwrap().unwrap();
            let before = files.journal().end();
            let real = |kept: &[u8]| {
                assert!(kept == whole);
                assert_eq!(locked.pending(), Some((offset, offset + 4120)));
                shared.file.write_all_at(kept, offset).unwrap();
            };
            assert_eq!(files.write_frame(&locked, offset, [&head, &body], real).unwrap(), Some(()));
            locked.end();
            let grown = files.journal().end() - before;
            let expected = if turn == 0 { WHOLE + 24 } else { HEAD + 2 * (4 + 1) };
            assert!(grown == expected || grown == HEAD + 4 + 1, "turn {turn}: {grown}");
            drop(locked);
            shared.check();
        }
        // A frame that is written in one piece is recorded apart from frames of two parts, and is recovered as well.
        shared.write(0, 0, &[head.as_slice(), &body].concat());
        shared.check();
    }

    const HEAD: u64 = (FileChange::SIZE + FileDelta::SIZE) as u64;
    const WHOLE: u64 = FileChange::SIZE as u64 + 4096;

    #[test]
    fn what_is_written_elsewhere_much_like_before_is_recorded_by_what_differs() {
        let shared = Shared::new(1);
        let (mut one, mut other) = (page(1, 4096), page(2, 4096));
        assert_eq!(shared.write(0, 0, &one), WHOLE);
        assert_eq!(shared.write(0, 4096, &other), WHOLE);
        // In turns, as a table's page and an index's are; small writes between them are as they were.
        for turn in 0..40u64 {
            assert_eq!(shared.write(0, 100_000 + turn * 24, &page(turn, 24)), FileChange::SIZE as u64 + 24);
            one[turn as usize * 100] ^= 1;
            other[4095] ^= 1;
            assert_eq!(shared.write(0, 8192 * turn, &one), HEAD + 4 + 1);
            assert_eq!(shared.write(0, 8192 * turn + 4096, &other), HEAD + 4 + 1);
            shared.check();
        }
        assert_eq!(shared.write(0, 0, &one), HEAD, "nothing differs");
        // Two changes with little between them are one patch, with more two.
        (one[1000], one[1012], one[1100]) = (!one[1000], !one[1012], !one[1100]);
        assert_eq!(shared.write(0, 0, &one), HEAD + (4 + 13) + (4 + 1));
        // Too much of it, another length, and too short.
        one[..1500].copy_from_slice(&page(3, 1500));
        assert_eq!(shared.write(0, 0, &one), WHOLE);
        assert_eq!(shared.write(0, 0, &one[..4000]), WHOLE - 96);
        assert_eq!(shared.write(0, 0, &one[..KEPT_MIN - 1]), (FileChange::SIZE + KEPT_MIN - 1) as u64);
        assert_eq!(shared.write(0, 0, &one[..4000]), HEAD);
        shared.check();
    }

    #[test]
    fn a_number_that_another_process_took_is_gone_by_no_more() {
        let shared = Shared::new(2);
        let one = page(1, 4096);
        assert_eq!((shared.write(0, 0, &one), shared.write(0, 0, &one)), (WHOLE, HEAD));
        assert_eq!((shared.write(1, 0, &one), shared.write(1, 0, &one)), (WHOLE, HEAD));
        assert_eq!((shared.write(0, 0, &one), shared.write(0, 0, &one)), (WHOLE, HEAD), "of its own, under the next");
        assert_eq!(shared.write(1, 0, &one), HEAD);
        shared.check();
    }

    #[test]
    fn what_a_change_that_failed_has_left_is_gone_by_no_more() {
        let shared = Shared::new(1);
        let files = &shared.processes[0];
        let one = page(1, 4096);
        assert_eq!((shared.write(0, 0, &one), shared.write(0, 0, &one)), (WHOLE, HEAD));
        // A process that died behind its record, and before it had said so.
        let locked = files.lock(shared.place, shared.file.as_fd(), false).unwrap().unwrap();
        locked.begin(0, 4096);
        let head = FileChange { kind: FileChangeKind::Write, id: shared.place.id, base: 1, offset: 0, len: 4096 };
        files.put(head, &[&page(2, 4096)]).unwrap();
        shared.file.write_all_at(&page(2, 2000), 0).unwrap();
        drop(locked);
        assert_eq!(shared.write(0, 8192, &one), WHOLE);
        shared.check();
    }

    #[test]
    fn it_is_not_tried_for_long_where_nothing_is_alike_and_tried_again_later() {
        let shared = Shared::new(1);
        for turn in 0..u64::from(REST) {
            shared.write(0, 0, &page(turn, 600));
        }
        let with_number = |records: &[(u64, Vec<u8>)]| {
            let is_kept = |record: &[u8]| matches!(FileRecord::parse(record), Ok(FileRecord::Write { base: 1.., .. }));
            records.iter().filter(|(_, record)| is_kept(record)).count()
        };
        assert_eq!(with_number(&shared.processes[0].journal().records()), TRIES as usize);
        let one = page(1, 4096);
        assert_eq!((shared.write(0, 0, &one), shared.write(0, 0, &one)), (WHOLE, HEAD));
        shared.check();
    }

    #[test]
    fn any_bytes_of_any_processes_come_back() {
        let shared = Shared::new(3);
        let mut rng = Rng::new(5, b"pages");
        let mut pages: Vec<Vec<u8>> =
            (0..6).map(|seed| page(seed, [4096, 8192, 512, 777, 4096, 1000][seed as usize])).collect();
        for turn in 0..3000 {
            let which = rng.below(6) as usize;
            for _ in 0..rng.below(6) {
                let at = rng.below(pages[which].len() as u64) as usize;
                let to = (at + 1 + rng.below(200) as usize).min(pages[which].len());
                pages[which][at..to].iter_mut().for_each(|byte| *byte = byte.wrapping_add(turn as u8 | 1));
            }
            shared.write(rng.below(3) as usize, rng.below(100_000), &pages[which]);
        }
        shared.check();
    }

    #[test]
    fn a_checkpoint_waits_for_a_writer_that_is_recording() {
        let shared = Shared::new(1);
        let files = &shared.processes[0];
        let locked = files.lock(shared.place, shared.file.as_fd(), false).unwrap().unwrap();
        let (stops, stopped) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || stops.send(files.table().stop_deltas().is_ok()));
            let while_held = stopped.recv_timeout(std::time::Duration::from_millis(30));
            assert!(while_held.is_err(), "the lock's owner may not have seen that no delta is wanted");
            drop(locked);
            assert_eq!(stopped.recv(), Ok(true));
        });
    }

    #[test]
    fn no_delta_goes_by_what_is_before_the_place_that_a_checkpoint_chose() {
        const WRITERS: usize = 3;
        let shared = Shared::new(WRITERS);
        let over = AtomicBool::new(false);
        let begun: Vec<u64> = std::thread::scope(|scope| {
            for process in 0..WRITERS {
                let (shared, over) = (&shared, &over);
                scope.spawn(move || {
                    let mut one = page(process as u64, 700);
                    let mut turn = 0;
                    while !over.load(Ordering::Relaxed) {
                        one[turn * 7 % 700] ^= 1;
                        shared.write(process, 700 * process as u64, &one);
                        turn += 1;
                        // Without a pause, no other writer gets the lock.
                        std::thread::sleep(std::time::Duration::from_micros(5));
                    }
                });
            }
            let files = &shared.processes[0];
            let checkpoint = || {
                std::thread::sleep(std::time::Duration::from_micros(300));
                files.table().stop_deltas().expect("the locks can be taken");
                let from = files.journal().end();
                files.table().allow_deltas(from);
                from
            };
            let begun = (0..300).map(|_| checkpoint()).collect();
            over.store(true, Ordering::Relaxed);
            begun
        });
        let records = shared.processes[0].journal().records();
        let mut deltas = 0;
        for (lsn, record) in &records {
            if let Ok(FileRecord::Delta { lsn: of, .. }) = FileRecord::parse(record) {
                deltas += 1;
                let from = begun.iter().rev().find(|from| *from <= lsn).copied().unwrap_or(0);
                assert!(of >= from, "{lsn} goes by {of}, and the log may begin at {from}");
            }
        }
        assert!(deltas > 30, "{deltas}");
        shared.check();
    }
}
