//! Cells of the campaign, and their rounds.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tidewater_base::Rng;
use tidewater_tests::binary;
use tidewater_tests::databases::device::{Device, Memory};
use tidewater_tests::databases::process::{descendants, gone, kill_tree};
use tidewater_tests::databases::witness::Witness;
use tidewater_tests::databases::{Around, Database, Flush, Ledger, Level, Place, Server, Verdict};

use crate::machines;

/// How commits become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Not at all: the database's own switch. The control: it must lose commits, or the harness sees nothing.
    Unflushed,
    /// By the database's own flushes.
    Flushed,
    /// By `tidewater run` or a layer, whose ring is kept over a loss of power at `Ring`, and lost with its device at
    /// `Destaged`.
    Tidewater(Level),
    /// By `tidewater run`, whose group waits for no replica. The control of lost machines: it must lose commits.
    Lazy,
}

/// A failure at a random moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// SIGKILL for the database; in every other round for `tidewater run` too.
    Database,
    /// SIGKILL for the device. The database is ended a moment later, as it can't go on.
    Device,
    /// Both at once.
    Both,
    /// All processes, and all files are what was synced last.
    Power,
    /// All processes of the primary's machine, and all its files. The database goes on where a copy followed the log.
    Machine,
}

/// One kind of round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub how: How,
    pub event: Event,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.how {
            How::Unflushed => "unflushed",
            How::Flushed => "flushed",
            How::Tidewater(level) => level.name(),
            How::Lazy => "lazy",
        };
        let event = match self.event {
            Event::Database => "database",
            Event::Device => "device",
            Event::Both => "both",
            Event::Power => "power",
            Event::Machine => "machine",
        };
        write!(f, "{how}/{event}")
    }
}

/// All of them.
pub fn cells() -> Vec<Cell> {
    let mut cells: Vec<Cell> =
        [How::Unflushed, How::Flushed].into_iter().map(|how| Cell { how, event: Event::Power }).collect();
    for level in [Level::Ring, Level::Destaged] {
        for event in [Event::Database, Event::Device, Event::Both, Event::Power] {
            cells.push(Cell { how: How::Tidewater(level), event });
        }
    }
    for how in [How::Lazy, How::Tidewater(Level::RemoteRing)] {
        cells.push(Cell { how, event: Event::Machine });
    }
    cells
}

impl Cell {
    /// Whether it is one of this database.
    pub fn suits(self, database: &dyn Database) -> bool {
        self.event != Event::Machine || database.is_copyable()
    }

    /// Whether it must lose commits: otherwise the harness would detect nothing.
    fn is_control(self) -> bool {
        matches!(self.how, How::Unflushed | How::Lazy)
    }
}

/// Result of a cell's rounds.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub database: &'static str,
    pub cell: Cell,
    /// Rounds that were compared.
    pub rounds: usize,
    /// Sums over the rounds.
    pub verdict: Verdict,
    /// Rounds in which a copy that was started without replay had lost commits, or didn't start; of those that had one.
    pub controls: [usize; 2],
    pub seconds: f64,
    /// Why it isn't what it must be.
    pub failure: Option<String>,
}

impl Outcome {
    /// Counts a round.
    fn add(&mut self, verdict: &Verdict) {
        let Verdict { acknowledged, lost, half, foreign } = &mut self.verdict;
        self.rounds += 1;
        *acknowledged += verdict.acknowledged;
        *lost += verdict.lost;
        *half += verdict.half;
        *foreign += verdict.foreign;
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("{}/{}", self.database, self.cell);
        write!(f, "{name:32} {:3} rounds, {}", self.rounds, self.verdict)?;
        if self.controls[1] > 0 {
            write!(f, "; without replay {} of {} lose some", self.controls[0], self.controls[1])?;
        }
        write!(f, "; {:.1} s", self.seconds)?;
        match &self.failure {
            None => Ok(()),
            Some(why) => write!(f, "\n  FAILED: {why}"),
        }
    }
}

/// A table of all cells, in Markdown.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "| database | commits wait for | what happens | rounds | acknowledged | lost | half there | lost without \
         replay |\n\
         |---|---|---|---:|---:|---:|---:|---|\n",
    );
    for Outcome { database, cell, rounds, verdict, controls, .. } in outcomes {
        let how = match cell.how {
            How::Unflushed => "nothing (control)",
            How::Flushed => "their own flush",
            How::Tidewater(Level::Ring) => "RING",
            How::Tidewater(Level::Destaged) => "DESTAGED",
            How::Tidewater(Level::RemoteRing) => "REMOTE_RING",
            How::Tidewater(Level::RemoteDestaged) => "REMOTE_DESTAGED",
            How::Lazy => "no replica (control)",
        };
        let event = match cell.event {
            Event::Database => "kill -9 database",
            Event::Device => "kill -9 device",
            Event::Both => "kill -9 both",
            Event::Power => "power loss",
            Event::Machine => "machine gone",
        };
        let control =
            if controls[1] == 0 { String::new() } else { format!("in {} of {} rounds", controls[0], controls[1]) };
        let Verdict { acknowledged, lost, half, .. } = verdict;
        text +=
            &format!("| {database} | {how} | {event} | {rounds} | {acknowledged} | {lost} | {half} | {control} |\n");
    }
    text
}

/// Databases of which no control lost anything. One may lose nothing by chance, when all was just synced by a
/// checkpoint of the database's own: SQLite's take longer than what comes between them.
pub fn blind(outcomes: &[Outcome]) -> Vec<&'static str> {
    let mut names: Vec<&str> = outcomes.iter().filter(|one| one.controls[1] > 1).map(|one| one.database).collect();
    names.dedup();
    let sees = |name: &str| outcomes.iter().any(|one| one.database == name && one.controls[0] > 0);
    names.into_iter().filter(|name| !sees(name)).collect()
}

/// State that all cells share.
pub struct Campaign {
    scratch: PathBuf,
    tidewater: PathBuf,
    witness: Witness,
    rounds: usize,
    rng: Rng,
    places: usize,
    /// An empty database of each kind: making one takes longer than copying it.
    templates: Vec<(&'static str, Place)>,
}

/// A database that runs on a device or beside one.
struct Bench<'a> {
    database: &'a dyn Database,
    place: Place,
    cell: Cell,
    device: Option<Device>,
    ledger: Ledger,
    witness: &'a Witness,
}

impl Campaign {
    /// Compiles what is needed into `scratch`.
    pub fn new(scratch: &Path, rounds: usize, seed: u64) -> Result<Campaign, String> {
        let io = |error: std::io::Error| format!("{}: {error}", scratch.display());
        // PostgreSQL's user goes in and out, and runs our binary.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(scratch, open).map_err(io)?;
        let witness = Witness::build(scratch)?;
        // Another build may be judged: a release, or what is installed.
        let built = std::env::var_os("TIDEWATER_BINARY").map_or_else(|| binary().to_owned(), PathBuf::from);
        let tidewater = scratch.join("tidewater");
        std::fs::copy(&built, &tidewater).map_err(io)?;
        // The shim is looked for beside the binary.
        let shim = built.with_file_name("libtidewater_shim.so");
        if shim.is_file() {
            std::fs::copy(&shim, scratch.join("libtidewater_shim.so")).map_err(io)?;
        }
        let rng = Rng::new(seed, b"databases");
        Ok(Campaign { scratch: scratch.to_owned(), tidewater, witness, rounds, rng, places: 0, templates: Vec::new() })
    }

    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Whether `tidewater run` has what it preloads.
    pub fn has_shim(&self) -> bool {
        self.scratch.join("libtidewater_shim.so").is_file()
    }

    /// The program that is judged.
    pub fn tidewater(&self) -> &Path {
        &self.tidewater
    }

    pub fn witness(&self) -> &Witness {
        &self.witness
    }

    /// All rounds of a cell.
    pub fn run(&mut self, database: &dyn Database, cell: Cell) -> Outcome {
        let begin = Instant::now();
        let mut outcome = Outcome {
            database: database.name(),
            cell,
            rounds: 0,
            verdict: Verdict::default(),
            controls: [0, 0],
            seconds: 0.0,
            failure: None,
        };
        // A control has to lose something, which one round may not.
        let all = if cell.is_control() { self.rounds.max(2) } else { self.rounds };
        while outcome.rounds < all && outcome.failure.is_none() {
            // A few crashes in a row on the same files, then new ones: they don't grow for ever.
            let until = if outcome.rounds < all / 2 { all / 2 } else { all };
            let rounds = (until - outcome.rounds).min(10);
            if let Err(why) = self.rounds_in_a_place(database, cell, rounds, &mut outcome) {
                outcome.failure = Some(why);
            }
        }
        let lost = outcome.verdict.lost;
        if outcome.failure.is_none() {
            let [lose, _] = outcome.controls;
            outcome.failure = match cell.how {
                // It loses commits, or whole databases.
                How::Unflushed if lost == 0 && lose == 0 => {
                    Some("nothing is lost without flushes: the harness is blind".into())
                }
                How::Lazy if lost == 0 => Some("a lazy group loses nothing: the harness is blind".into()),
                How::Unflushed | How::Lazy => None,
                _ if !outcome.verdict.holds() => Some("see the counts".into()),
                _ => None,
            };
        }
        outcome.seconds = begin.elapsed().as_secs_f64();
        outcome
    }

    fn template(&mut self, database: &dyn Database) -> Result<&Place, String> {
        let name = database.name();
        if !self.templates.iter().any(|(other, _)| *other == name) {
            let place = Place::new(&self.scratch.join(name), database.user()?)?;
            database.create(&place)?;
            self.templates.push((name, place));
        }
        self.templates.iter().find(|(other, _)| *other == name).map(|(_, place)| place).ok_or("no template".to_owned())
    }

    /// A new place with an empty database.
    pub fn place(&mut self, database: &dyn Database) -> Result<Place, String> {
        self.places += 1;
        let folder = self.scratch.join(self.places.to_string());
        self.template(database)?.copy(&folder)
    }

    fn rounds_in_a_place(
        &mut self,
        database: &dyn Database,
        cell: Cell,
        rounds: usize,
        outcome: &mut Outcome,
    ) -> Result<(), String> {
        // Rounds take turns; where there is one alone, chance says which.
        let turn = if self.rounds == 1 { self.rng.below(2) as usize } else { 0 };
        let is_copied = turn == 1 || outcome.rounds < self.rounds / 2;
        let place = self.place(database)?;
        if cell.event == Event::Machine {
            let moment = Moment::new(&mut self.rng, outcome.rounds);
            let verdict = machines::round(self, database, &place, cell.how == How::Lazy, &moment)?;
            outcome.add(&verdict);
            return if cell.is_control() || verdict.holds() { Ok(()) } else { Err(verdict.to_string()) };
        }
        self.witness.keep(&place.shadows(), &[&place.data()])?;
        let device = match cell.how {
            How::Tidewater(level) => {
                let memory = match level {
                    Level::Ring if cell.event == Event::Power => Memory::Persistent,
                    // With a copy in the first half of the rounds, and without one in the other.
                    Level::Destaged if is_copied => Memory::Copied,
                    _ => Memory::Volatile,
                };
                let ring = place.device().join("ring");
                let mut device = Device::new(&self.tidewater, &place, &ring, "4MiB", memory);
                device.start(Some(&self.witness))?;
                Some(device)
            }
            _ => None,
        };
        let ledger = Ledger::new(database.writers());
        let mut bench = Bench { database, place, cell, device, ledger, witness: &self.witness };
        for round in 0..rounds {
            let moment = Moment::new(&mut self.rng, turn + round);
            bench.crash(&moment).map_err(|why| format!("round {round}: {why}"))?;
            bench.is_marked().map_err(|why| format!("round {round}: {why}"))?;
            if cell.event == Event::Power && matches!(cell.how, How::Tidewater(_)) {
                let copy = self.scratch.join(format!("{}.control.{round}", self.places));
                outcome.controls[1] += 1;
                outcome.controls[0] += usize::from(bench.loses_without_replay(&copy)?);
                std::fs::remove_dir_all(&copy).map_err(|error| error.to_string())?;
            }
            match bench.verify() {
                Ok(verdict) => {
                    outcome.add(&verdict);
                    if cell.how != How::Unflushed && !verdict.holds() {
                        return Err(format!("round {round}: {verdict}"));
                    }
                }
                // A control that loses its whole database has lost all.
                Err(_) if cell.how == How::Unflushed => {
                    outcome.rounds += 1;
                    outcome.verdict.acknowledged += bench.ledger.acknowledged();
                    outcome.verdict.lost += bench.ledger.acknowledged();
                    return Ok(());
                }
                Err(why) => return Err(format!("round {round}: {why}")),
            }
            if cell.how == How::Unflushed {
                // What is left of it is no place to go on from.
                return Ok(());
            }
        }
        let folder = bench.place.folder().to_owned();
        drop(bench);
        std::fs::remove_dir_all(&folder).map_err(|error| error.to_string())
    }
}

/// When, and how.
pub struct Moment {
    pub commits: u64,
    pub time: Duration,
    with_supervisor: bool,
    /// The device first.
    pub order: bool,
}

impl Moment {
    fn new(rng: &mut Rng, round: usize) -> Moment {
        Moment {
            commits: 1 + rng.below(64),
            time: Duration::from_micros(rng.below(400_000)),
            with_supervisor: round % 2 == 1,
            order: rng.below(2) == 0,
        }
    }
}

impl Bench<'_> {
    fn start(&self) -> Result<Box<dyn Server>, String> {
        let flush = if self.cell.how == How::Unflushed { Flush::None } else { Flush::Real };
        let level = match self.cell.how {
            How::Tidewater(level) => level,
            _ => Level::Destaged,
        };
        let device = self.device.as_ref().map(|device| (device, level));
        self.database.start(&self.place, flush, Around { witness: Some(self.witness), device, ..Around::default() })
    }

    /// That a start of the database by itself could be refused: `tidewater check`, which needs no device. Where only
    /// the database was killed, the run may have ended well.
    fn is_marked(&self) -> Result<(), String> {
        let Some(device) = self.device.as_ref().filter(|_| self.cell.event != Event::Database) else { return Ok(()) };
        let output = std::process::Command::new(device.binary()).arg("check").arg(self.place.data()).output();
        let output = output.map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let names = said.contains(&device.target());
        if output.status.code() == Some(1) && names { Ok(()) } else { Err(format!("tidewater check: {said}")) }
    }

    /// Starts it, loads it, and has the event happen. Nothing runs afterwards but, where only the database was killed,
    /// the device.
    fn crash(&mut self, moment: &Moment) -> Result<(), String> {
        let mut server = self.start()?;
        let mut device = self.device.take();
        let event = self.cell.event;
        let ledger = &self.ledger;
        let came = ledger.load(server.as_mut(), |server: &mut dyn Server, _: &AtomicBool| {
            let came = ledger.wait(moment.commits, moment.time);
            happen(server, device.as_mut(), event, moment);
            came
        });
        self.device = device;
        if !came? {
            return Err(format!("no commits are acknowledged: {}", self.place.said(self.database.speaks_as())));
        }
        let _ = server.root().wait();
        if event == Event::Power {
            let data = self.place.data();
            let image = self.device.as_ref().map(Device::image);
            let copy = self.device.as_ref().map(Device::copy).filter(|copy| copy.is_file());
            let roots = [Some(data.as_path()), image.as_deref(), copy.as_deref()];
            let roots: Vec<&Path> = roots.into_iter().flatten().collect();
            self.witness.reset(&self.place.shadows(), &roots)?;
        }
        let discards = event != Event::Database && self.cell.how == How::Tidewater(Level::Destaged);
        if let Some(device) = self.device.as_ref().filter(|_| discards) {
            device.discard_ring()?;
        }
        Ok(())
    }

    /// Starts a copy of the files as they are now, without what is in the log: whether that has lost commits.
    fn loses_without_replay(&self, folder: &Path) -> Result<bool, String> {
        let copy = self.place.copy(folder)?;
        let found = self.database.start(&copy, Flush::None, Around::default()).and_then(|mut server| {
            let contents = server.contents();
            // What matters was read.
            kill_tree(&[server.root().id()]);
            let _ = server.root().wait();
            contents
        });
        // One that doesn't even start has lost all.
        Ok(found.map_or(true, |contents| self.ledger.judge(&contents).lost > 0))
    }

    /// Recovers, compares, checks, and ends it in order.
    fn verify(&mut self) -> Result<Verdict, String> {
        if let Some(device) = self.device.as_mut().filter(|device| device.process() == 0) {
            device.start(Some(self.witness))?;
        }
        let mut server = self.start()?;
        let contents = server.contents()?;
        let verdict = self.ledger.judge(&contents);
        server.check().map_err(|why| format!("{verdict}, and its own check says: {why}"))?;
        if self.cell.how != How::Unflushed {
            self.ledger.go_on(&contents);
        }
        server.stop()?;
        Ok(verdict)
    }
}

/// The event.
fn happen(server: &mut dyn Server, device: Option<&mut Device>, event: Event, moment: &Moment) {
    let root = server.root().id();
    match (event, device) {
        (Event::Database, Some(_)) if !moment.with_supervisor => {
            // `tidewater run` outlives it, and ends by itself.
            let mut children = descendants(&[root]);
            if children.is_empty() {
                children.push(root); // The database itself: a layer needs no supervisor.
            }
            kill_tree(&children);
            gone(&[root]);
        }
        (Event::Device, Some(device)) => {
            device.kill();
            // It can't go on: what isn't ended by then is ended now.
            std::thread::sleep(Duration::from_millis(200));
            kill_tree(&[root]);
        }
        (Event::Both | Event::Power, Some(device)) => {
            if moment.order {
                device.kill();
                kill_tree(&[root]);
            } else {
                kill_tree(&[root]);
                device.kill();
            }
        }
        _ => kill_tree(&[root]),
    }
}
