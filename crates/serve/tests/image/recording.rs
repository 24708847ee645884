//! Storage that remembers its writes and syncs, and what a loss of power leaves of them.

use std::io;
use std::sync::{Arc, Mutex};
use tidewater_base::Rng;
use tidewater_serve::image::{Storage, Syncing};

/// Bytes that go to a disk as a whole or not at all.
const SECTOR: usize = 512;

#[derive(Clone, Debug)]
pub enum Event {
    Write { at: u64, bytes: Arc<[u8]> },
    Punch { at: u64, len: u64 },
    SyncBegan(u64),
    SyncEnded(u64),
}

#[derive(Debug, Default)]
pub struct Log {
    pub events: Vec<Event>,
    syncs: u64,
    /// The next writes that fail, counted from now; syncs, too.
    pub fail_in: Option<u64>,
    pub fail_syncs: bool,
    /// There is room again.
    pub room: bool,
    /// Holes are not punched, as on a disk without them.
    pub keeps_holes: bool,
}

/// Memory with a log.
#[derive(Debug)]
pub struct Recording {
    bytes: Vec<u8>,
    log: Arc<Mutex<Log>>,
}

impl Recording {
    pub fn new(bytes: Vec<u8>) -> (Recording, Arc<Mutex<Log>>) {
        let log = Arc::new(Mutex::new(Log::default()));
        (Recording { bytes, log: log.clone() }, log)
    }
}

impl Storage for Recording {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let from = self.bytes.get(at as usize..).and_then(|rest| rest.get(..into.len()));
        into.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut log = self.log.lock().unwrap();
        if let Some(left) = &mut log.fail_in {
            if *left == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *left -= 1;
        }
        log.events.push(Event::Write { at, bytes: bytes.into() });
        self.bytes[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn begin_sync(&mut self) -> Syncing {
        let mut log = self.log.lock().unwrap();
        log.syncs += 1;
        let number = log.syncs;
        log.events.push(Event::SyncBegan(number));
        let log = self.log.clone();
        Box::new(move || {
            let mut log = log.lock().unwrap();
            if log.fail_syncs {
                return Err(io::Error::other("an injected failure of a sync"));
            }
            log.events.push(Event::SyncEnded(number));
            Ok(())
        })
    }

    fn has_room(&self) -> bool {
        self.log.lock().unwrap().room
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn set_size(&mut self, len: u64) -> io::Result<()> {
        self.bytes.resize(len as usize, 0);
        Ok(())
    }

    fn punch(&mut self, at: u64, len: u64) -> io::Result<()> {
        let mut log = self.log.lock().unwrap();
        if log.keeps_holes {
            return Ok(());
        }
        log.events.push(Event::Punch { at, len });
        self.bytes[at as usize..(at + len) as usize].fill(0);
        Ok(())
    }
}

/// What the disk holds for certain, and what it may hold besides.
#[derive(Clone, Debug)]
pub struct Disk {
    /// All that a sync has made safe.
    durable: Vec<u8>,
    /// Writes since, oldest first; with the number of syncs that had begun before each.
    loose: Vec<(u64, Event)>,
    began: u64,
}

/// What becomes of loose writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The process has ended: all are there.
    All,
    /// None is there.
    None,
    /// This set of them is there: a bit for each of the last 64, older ones are there.
    Set(u64),
    /// Each is there, or not, or in part, as it happens.
    Random(u64),
}

impl Disk {
    pub fn new(bytes: Vec<u8>) -> Disk {
        Disk { durable: bytes, loose: Vec::new(), began: 0 }
    }

    /// It is this large from now on.
    pub fn resize(&mut self, len: usize) {
        self.durable.resize(len, 0);
    }

    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Write { .. } | Event::Punch { .. } => self.loose.push((self.began, event.clone())),
            Event::SyncBegan(number) => self.began = *number,
            Event::SyncEnded(number) => {
                let safe = self.loose.iter().take_while(|(began, _)| began < number).count();
                for (_, event) in self.loose.drain(..safe) {
                    put(&mut self.durable, &event, 0..usize::MAX);
                }
            }
        }
    }

    /// Writes that may be lost.
    pub fn loose(&self) -> usize {
        self.loose.len()
    }

    /// The disk after a crash.
    pub fn crash(&self, fate: Fate) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        let mut rng = Rng::new(if let Fate::Random(seed) = fate { seed } else { 0 }, b"crash");
        // Some crashes lose much, some little.
        let lost = rng.below(9);
        let last = self.loose.len().saturating_sub(64);
        for (i, (_, event)) in self.loose.iter().enumerate() {
            let range = match fate {
                Fate::All => 0..usize::MAX,
                Fate::None => 0..0,
                Fate::Set(set) => 0..if i < last || set >> (i - last) & 1 == 1 { usize::MAX } else { 0 },
                Fate::Random(_) => match rng.below(8) {
                    dice if dice < lost => 0..0,
                    _ if rng.below(6) == 0 => torn(event, &mut rng),
                    _ => 0..usize::MAX,
                },
            };
            put(&mut bytes, event, range);
        }
        bytes
    }
}

/// Part of a write: from or up to a border of a sector.
fn torn(event: &Event, rng: &mut Rng) -> std::ops::Range<usize> {
    let Event::Write { at, bytes } = event else { return 0..0 };
    let begin = *at as usize;
    let first = begin / SECTOR;
    let sectors = ((begin + bytes.len()).div_ceil(SECTOR) - first) as u64;
    let border = ((first + rng.below(sectors + 1) as usize) * SECTOR).saturating_sub(begin).min(bytes.len());
    if rng.below(2) == 0 { 0..border } else { border..bytes.len() }
}

fn put(disk: &mut [u8], event: &Event, part: std::ops::Range<usize>) {
    match event {
        Event::Write { at, bytes } => {
            let (start, end) = (part.start.min(bytes.len()), part.end.min(bytes.len()));
            let at = *at as usize;
            disk[at + start..at + end].copy_from_slice(&bytes[start..end]);
        }
        Event::Punch { at, len } if !part.is_empty() => disk[*at as usize..(at + len) as usize].fill(0),
        Event::Punch { .. } | Event::SyncBegan(_) | Event::SyncEnded(_) => {}
    }
}
