//! Commit cost of a write-ahead log shaped as PostgreSQL's: on a file, in a served drive's ring, in its byte window.
//!
//! Not PostgreSQL, but its log alone: no tables, locks or parser. Clients insert a record into pages of 8 KiB and
//! commit. A commit takes the one write lock, writes all pages from the one that the last write ended in, whole, and
//! syncs. A client that waited for the lock finds its record synced, or writes for all that wait (group commit:
//! `XLogFlush`, `XLogWrite` of PostgreSQL's xlog.c). A file's segments are of 16 MiB, filled with zeroes beforehand,
//! and recycled. Measurements, not tests.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use tidewater_bench::{Served, TIME, median, setup, until_open, villars};
use tidewater_client::hardware::WindowLog;
use tidewater_client::mapped::{Log, Options};
use tidewater_client::{Level, LogError};
use tidewater_serve::engine::{Backing, Setup};
use tidewater_serve::ring::RingSetup;

const PAGE: u64 = 8 << 10;
const PAGE_HEADER: u64 = 24;
const SEGMENT: u64 = 16 << 20;
/// Segments that are recycled.
const SEGMENTS: u64 = 2;
/// Pages that are not written yet, at most: PostgreSQL's wal_buffers on a machine with more than 512 MiB of shared
/// buffers.
const BUFFERS: u64 = 16 << 20;
/// Bytes that a transaction logs: an assumption, about those of a transaction of `pgbench -N` without full pages.
const RECORD: u64 = 400;
const CLIENTS: [usize; 3] = [1, 8, 32];
/// Blocks of 4 KiB of the window's log: 64 MiB.
const BLOCKS: u64 = 16 << 10;

/// Where the log goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Route {
    /// `pwrite`, and `fdatasync`.
    File,
    /// `pwrite` alone: the ceiling.
    None,
    /// Records in the ring.
    Ring(Level),
    /// Records in the byte window.
    Window,
}

/// Bytes sent to a device for a page that is written again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sends {
    /// The page, as a layer below the program does.
    Pages,
    /// The new bytes, as a program does that knows its log.
    New,
}

/// Destination of the writer, one at a time.
enum Sink {
    File { files: Vec<File>, syncs: bool },
    Ring(Box<Log>, Level),
    Window(Box<WindowLog>),
}

impl Sink {
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), LogError> {
        match self {
            Sink::File { files, .. } => {
                let (mut at, mut bytes) = (at, bytes);
                while !bytes.is_empty() {
                    let len = bytes.len().min((SEGMENT - at % SEGMENT) as usize);
                    let file = &files[(at / SEGMENT % SEGMENTS) as usize];
                    file.write_all_at(&bytes[..len], at % SEGMENT).expect("the file can be written");
                    (at, bytes) = (at + len as u64, &bytes[len..]);
                }
                Ok(())
            }
            Sink::Ring(log, _) => {
                for (at, piece) in (at..).step_by(PAGE as usize).zip(bytes.chunks(PAGE as usize)) {
                    log.append(&[&at.to_le_bytes(), piece])?;
                }
                Ok(())
            }
            Sink::Window(log) => {
                for (at, piece) in (at..).step_by(PAGE as usize).zip(bytes.chunks(PAGE as usize)) {
                    match log.append(&[&at.to_le_bytes(), piece]) {
                        // As after a checkpoint: nothing before is needed any more.
                        Err(LogError::Untrimmed) => {
                            log.trim(log.end())?;
                            log.append(&[&at.to_le_bytes(), piece])?;
                        }
                        other => drop(other?),
                    }
                }
                Ok(())
            }
        }
    }

    fn sync(&self, at: u64) -> Result<(), LogError> {
        match self {
            Sink::File { files, syncs } => {
                if *syncs {
                    files[(at.saturating_sub(1) / SEGMENT % SEGMENTS) as usize].sync_data().expect("the disk syncs");
                }
                Ok(())
            }
            Sink::Ring(log, level) => log.wait(log.end(), *level, TIME),
            Sink::Window(log) => log.sync(log.end()),
        }
    }
}

/// A log of pages.
struct Wal {
    sink: Sink,
    sends: Sends,
    /// The pages, and the end of what is in them.
    buffers: Mutex<(Vec<u8>, u64)>,
    /// End of what is written, and a copy of it under way: held by who writes.
    writer: Mutex<(u64, Vec<u8>)>,
    /// One thread writes; those that wait for it check `flushed` again when it is done (`LWLockAcquireOrWait`).
    writing: Mutex<bool>,
    done: Condvar,
    flushed: AtomicU64,
    writes: AtomicU64,
    bytes: AtomicU64,
}

impl Wal {
    fn new(sink: Sink, sends: Sends) -> Wal {
        Wal {
            sink,
            sends,
            buffers: Mutex::new((vec![0; BUFFERS as usize], 0)),
            writer: Mutex::new((0, Vec::with_capacity(BUFFERS as usize))),
            writing: Mutex::new(false),
            done: Condvar::new(),
            flushed: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    /// Copies a record into the pages. Returns where it ends.
    fn insert(&self, record: &[u8]) -> u64 {
        let mut buffers = self.buffers.lock().expect("no thread panicked");
        let (pages, end) = &mut *buffers;
        let mut rest = record;
        while !rest.is_empty() {
            if end.is_multiple_of(PAGE) {
                let header = (*end % BUFFERS) as usize;
                pages[header..header + 8].copy_from_slice(&end.to_le_bytes());
                *end += PAGE_HEADER;
            }
            let len = rest.len().min((PAGE - *end % PAGE) as usize);
            let at = (*end % BUFFERS) as usize;
            pages[at..at + len].copy_from_slice(&rest[..len]);
            *end += len as u64;
            rest = &rest[len..];
        }
        // 32 clients and their records never fill the buffers: each waits for its own.
        *end
    }

    /// `XLogFlush`.
    fn flush(&self, end: u64) -> Result<(), LogError> {
        let mut writing = self.writing.lock().expect("no thread panicked");
        while *writing && self.flushed.load(Ordering::Acquire) < end {
            writing = self.done.wait(writing).expect("no thread panicked");
        }
        if self.flushed.load(Ordering::Acquire) >= end {
            return Ok(());
        }
        *writing = true;
        drop(writing);
        let written = self.write();
        *self.writing.lock().expect("no thread panicked") = false;
        self.done.notify_all();
        written
    }

    /// `XLogWrite`, of all that is inserted.
    fn write(&self) -> Result<(), LogError> {
        let mut writer = self.writer.lock().expect("no thread panicked");
        let (written, copy) = &mut *writer;
        let upto = {
            let buffers = self.buffers.lock().expect("no thread panicked");
            let (pages, upto) = &*buffers;
            let (from, to) = match self.sends {
                Sends::Pages => (*written / PAGE * PAGE, upto.next_multiple_of(PAGE)),
                Sends::New => (*written, *upto),
            };
            let (begin, len) = ((from % BUFFERS) as usize, (to - from) as usize);
            let first = len.min(pages.len() - begin);
            copy.clear();
            copy.extend_from_slice(&pages[begin..begin + first]);
            copy.extend_from_slice(&pages[..len - first]);
            *upto
        };
        let from = if self.sends == Sends::Pages { *written / PAGE * PAGE } else { *written };
        self.sink.write(from, copy)?;
        self.sink.sync(upto)?;
        *written = upto;
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(copy.len() as u64, Ordering::Relaxed);
        self.flushed.store(upto, Ordering::Release);
        Ok(())
    }
}

/// A drive with ring and window, whose image is a file on the disk that the logs of [`Route::File`] are on.
fn serve(folder: &Path, rings: &Path) -> Served {
    let profile = villars(&[
        ("fast.memory", "fast-dram"),
        ("fast.size", "64MiB"),
        ("fast.queue_memory", "fast-dram"),
        ("fast.queue_size", "1MiB"),
        ("fast.log_size", "256MiB"),
        ("fast.energy", "1000"),
        ("fast.on_wrap", "overwrite-oldest"),
        ("memory.ba.kind", "dram"),
        ("memory.ba.size", "8MiB"),
        ("memory.ba.survives", "by-capacitors"),
        ("window.size", "8MiB"),
        ("window.memory", "ba"),
        ("window.energy", "1000"),
    ]);
    let ring = Some(RingSetup { path: rings.join("ring"), persistent: false, copy: None });
    Served::start(Setup { ring, ..setup(profile, Backing::File(folder.join("drive")), 2 << 30, 12, folder) })
}

fn sink(folder: &Path, target: &str, route: Route) -> Sink {
    match route {
        Route::File | Route::None => {
            let file = |at| {
                let path: PathBuf = folder.join(format!("segment{at}"));
                let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).expect("a file");
                if file.metadata().expect("the segment's length can be read").len() < SEGMENT {
                    file.write_all_at(&vec![0; SEGMENT as usize], 0).expect("the segment can be filled");
                    file.sync_all().expect("the disk syncs");
                }
                file
            };
            Sink::File { files: (0..SEGMENTS).map(file).collect(), syncs: route == Route::File }
        }
        Route::Ring(level) => {
            let options = Options { level: Some(level), timeout: TIME, full: TIME, ..Options::default() };
            Sink::Ring(Box::new(until_open(|| Log::open(target, options))), level)
        }
        Route::Window => Sink::Window(Box::new(until_open(|| WindowLog::open(&format!("window:0+{BLOCKS}:{target}"))))),
    }
}

/// Result of a round.
struct Found {
    per_second: f64,
    /// Commits that one sync covered.
    group: f64,
    /// Bytes that were written for a commit.
    bytes: f64,
}

fn round(sink: Sink, sends: Sends, clients: usize, time: Duration) -> Found {
    let wal = Wal::new(sink, sends);
    let (commits, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for client in 0..clients {
            let (wal, commits, over) = (&wal, &commits, &over);
            scope.spawn(move || {
                let record = [client as u8 + 1; RECORD as usize];
                while !over.load(Ordering::Relaxed) {
                    let end = wal.insert(&record);
                    wal.flush(end).expect("the log can be written");
                    commits.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::sleep(time);
        over.store(true, Ordering::Relaxed);
    });
    let spent = start.elapsed().as_secs_f64();
    if let Sink::Ring(log, _) = &wal.sink {
        // What is left to destage would be the next one's to wait for.
        log.wait(log.end(), Level::Destaged, TIME).expect("the log is destaged");
    }
    let commits = commits.load(Ordering::Relaxed) as f64;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
    Found {
        per_second: commits / spent,
        group: commits / count(&wal.writes).max(1.0),
        bytes: count(&wal.bytes) / commits.max(1.0),
    }
}

fn main() {
    let number = |name: &str, otherwise: f64| {
        let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
        arguments.next().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    };
    let (rounds, seconds) = (number("--rounds", 3.0) as usize, number("--seconds", 1.0));
    let base = std::env::var_os("TIDEWATER_SCRATCH").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let folder = tempfile::Builder::new().prefix("tw").tempdir_in(base).expect("the folder can be created");
    let memory = Path::new("/dev/shm");
    let rings = tempfile::Builder::new().prefix("tw").tempdir_in(if memory.is_dir() { memory } else { folder.path() });
    let rings = rings.expect("the folder can be created");
    let served = serve(folder.path(), rings.path());
    let cells = [
        ("file, fdatasync", Route::File, Sends::Pages),
        ("file, no sync", Route::None, Sends::Pages),
        ("ring, RING, pages", Route::Ring(Level::Ring), Sends::Pages),
        ("ring, RING, new bytes", Route::Ring(Level::Ring), Sends::New),
        ("ring, DESTAGED, pages", Route::Ring(Level::Destaged), Sends::Pages),
        ("ring, DESTAGED, new bytes", Route::Ring(Level::Destaged), Sends::New),
        ("window, BA_SYNC, pages", Route::Window, Sends::Pages),
        ("window, BA_SYNC, new bytes", Route::Window, Sends::New),
    ];
    let filters: Vec<String> = std::env::args().skip(1).collect();
    let named = |name: &str| filters.iter().any(|filter| filter.len() > 3 && name.contains(filter.as_str()));
    let some = cells.iter().any(|(name, ..)| named(name));
    let cells: Vec<_> = cells.into_iter().filter(|(name, ..)| !some || named(name)).collect();
    let mut found: Vec<Vec<Found>> = (0..cells.len() * CLIENTS.len()).map(|_| Vec::new()).collect();
    for turn in 0..rounds.max(1) {
        for step in 0..cells.len() {
            // Another one is first in each round.
            let cell = (step + turn) % cells.len();
            for (at, clients) in CLIENTS.into_iter().enumerate() {
                let (_, route, sends) = cells[cell];
                let sink = sink(folder.path(), &served.target, route);
                let one = round(sink, sends, clients, Duration::from_secs_f64(seconds));
                found[cell * CLIENTS.len() + at].push(one);
            }
        }
    }
    println!("commits per second (commits for one sync, bytes written for one), medians of {} rounds", rounds.max(1));
    println!("{:<28}{}", "clients", CLIENTS.map(|clients| format!("{clients:>28}")).concat());
    for (cell, (name, ..)) in cells.iter().enumerate() {
        let line: String = (0..CLIENTS.len())
            .map(|at| {
                let all = &found[cell * CLIENTS.len() + at];
                let of = |what: fn(&Found) -> f64| median(all.iter().map(what).collect());
                let (rate, group, bytes) = (of(|one| one.per_second), of(|one| one.group), of(|one| one.bytes));
                format!("{:>28}", format!("{rate:.0} ({group:.1}, {bytes:.0} B)"))
            })
            .collect();
        println!("{name:<28}{line}");
    }
    served.end();
}
