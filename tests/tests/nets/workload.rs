//! Programs that append to whichever device is primary, and read the log back, while things happen to the cluster.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use tidewater_base::Rng;
use tidewater_client::mapped::{Log, Options};
use tidewater_client::{Level, LogError};
use tidewater_serve::control::Request;

use crate::cluster::{Cluster, PATIENCE, ask, epoch};
use crate::nets::history::History;
use tidewater_tests::wait;

/// How long an append waits for replicas.
const WAIT: Duration = Duration::from_millis(400);
/// Between two appends of a client, and two reads.
const PAUSE: Duration = Duration::from_millis(2);
const READ_EVERY: Duration = Duration::from_millis(250);

/// A log that is open, and the epoch that it was opened in.
type Seat = Option<(Arc<Log>, u64)>;

/// The programs of a life.
pub struct Workload {
    pub history: History,
    folders: Vec<PathBuf>,
    seats: Vec<Mutex<Seat>>,
    acknowledged: AtomicU64,
    destaged: AtomicU64,
    refused: AtomicU64,
    ends: AtomicBool,
    /// Calls after which only one in a while is made: judges have to hold them all.
    most: usize,
}

impl Workload {
    pub fn new(site: &Cluster, most: usize) -> Workload {
        Workload {
            history: History::default(),
            folders: site.nodes().map(|node| site.path(node)).collect(),
            seats: site.nodes().map(|_| Mutex::default()).collect(),
            acknowledged: AtomicU64::new(0),
            destaged: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            ends: AtomicBool::new(false),
            most,
        }
    }

    /// Appends so far that replicas acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Those of them that were acknowledged at `REMOTE_DESTAGED`.
    pub fn destaged(&self) -> u64 {
        self.destaged.load(Ordering::Relaxed)
    }

    /// Appends so far of which nothing is known.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Runs clients while something is done, and one that reads. The first of them waits at `REMOTE_DESTAGED`, the
    /// others at `REMOTE_RING`.
    pub fn around<T>(&self, clients: u64, seed: u64, act: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            self.ends.store(false, Ordering::Relaxed);
            (0..clients).for_each(|client| self.appender(scope, client, seed));
            scope.spawn(|| self.reads(clients));
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
            self.ends.store(true, Ordering::Relaxed);
            done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn appender<'s>(&'s self, scope: &'s Scope<'s, '_>, client: u64, seed: u64) {
        scope.spawn(move || {
            let mut rng = Rng::new(seed << 8 | client, b"client");
            let mut node = 0;
            let level = if client == 0 { Level::RemoteDestaged } else { Level::RemoteRing };
            while !self.ends.load(Ordering::Relaxed) {
                let pause = if self.history.len() < self.most { PAUSE } else { 50 * PAUSE };
                wait::pass(pause);
                let Some((log, epoch)) = self.seat(node) else {
                    node = rng.below(self.folders.len() as u64) as usize;
                    continue;
                };
                match self.history.append(client, (&log, epoch), level, WAIT) {
                    Ok(_) => {
                        self.acknowledged.fetch_add(1, Ordering::Relaxed);
                        self.destaged.fetch_add(u64::from(level == Level::RemoteDestaged), Ordering::Relaxed);
                    }
                    Err(error) => {
                        self.refused.fetch_add(1, Ordering::Relaxed);
                        // One that is merely late is asked again, maybe though there is another primary.
                        let is_late = matches!(error, LogError::ReplicasLate { .. } | LogError::Frozen { .. });
                        if !is_late || rng.below(3) == 0 {
                            self.leave(node, &log);
                            node = rng.below(self.folders.len() as u64) as usize;
                        }
                    }
                }
            }
        });
    }

    fn reads(&self, client: u64) {
        let mut last = Instant::now();
        while !self.ends.load(Ordering::Relaxed) {
            wait::pass(PAUSE);
            if last.elapsed() < READ_EVERY || self.history.len() >= self.most {
                continue;
            }
            last = Instant::now();
            for node in 0..self.folders.len() {
                if let Some((log, epoch)) = self.open_seat(node) {
                    let _ = self.history.read(client, (&log, epoch), WAIT);
                }
            }
        }
    }

    /// A last read, of the log of a node that is primary, once all others have left it.
    pub fn read_at_last(&self, node: u8) -> Result<(), LogError> {
        let mut last = None;
        let read = wait::within(PATIENCE, || {
            let (log, epoch) = self.seat(usize::from(node))?;
            let outcome = self.history.read(u64::from(u8::MAX), (&log, epoch), PATIENCE);
            outcome
                .map_err(|error| {
                    self.leave(usize::from(node), &log);
                    last = Some(error);
                })
                .ok()
        });
        match (read, last) {
            (Some(()), _) => Ok(()),
            (None, Some(error)) => Err(error),
            (None, None) => panic!("the log of node {node} can't be opened"),
        }
    }

    /// The log of a node, if it is open.
    fn open_seat(&self, node: usize) -> Seat {
        self.seats[node].try_lock().ok()?.clone()
    }

    /// The log of a node, opened if it can be. `None` as well while another thread opens it.
    fn seat(&self, node: usize) -> Seat {
        let mut seat = self.seats[node].try_lock().ok()?;
        if seat.is_none() {
            *seat = open(&self.folders[node]);
        }
        seat.clone()
    }

    /// A log is closed once no thread uses it any more.
    fn leave(&self, node: usize, log: &Arc<Log>) {
        let mut seat = self.seats[node].lock().unwrap_or_else(PoisonError::into_inner);
        if seat.as_ref().is_some_and(|(open, _)| Arc::ptr_eq(open, log)) {
            *seat = None;
        }
    }
}

fn open(folder: &Path) -> Seat {
    let target = format!("vfio-user:{}", folder.join("vfio.sock").display());
    let status = ask(folder, &Request::Status, Duration::from_millis(500)).ok()?;
    let epoch = epoch(&status["peers"]["groups"][0]["epoch"]);
    let options = Options { level: Some(Level::RemoteRing), ..Options::default() };
    Log::open(&target, options).ok().map(|log| (Arc::new(log), epoch))
}
