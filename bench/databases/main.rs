//! Cost of commits for PostgreSQL, Redis, SQLite and RocksDB: with their own flushes, with none, with empty ones, and
//! on Tidewater at each level.
//!
//! `make bench-databases` (`scripts/bench-databases.sh`). Each mode runs every workload in each round, the modes in
//! turns, so that what else the machine does meets all of them; medians of the rounds count, of rates and of ratios.
//! Measurements, not tests.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tidewater_bench::gains;
use tidewater_tests::databases::device::{Device, Memory};
use tidewater_tests::databases::sqlite::Sqlite;
use tidewater_tests::databases::{Around, Flush, Level, Place, process, witness};
use tidewater_tests::{binary, root};

mod load;
mod postgresql;
mod redis;
mod report;
mod rocksdb;
mod sqlite;

/// Durability that a commit waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mode {
    /// The database's own flush.
    Flushes,
    /// Nothing: the ceiling.
    None,
    /// A flush that does nothing: what is left of the ceiling once the database does its own part.
    Empty,
    /// `tidewater run --level ring`, on memory that survives no loss of power.
    Ring,
    /// The same on memory that counts as persistent: lines are written back, and no file waits for the log.
    Persistent,
    /// `tidewater run --level destaged`.
    Destaged,
    /// RING as [`Mode::Ring`], by a layer of this project's within the database.
    Layer,
}

impl Mode {
    const ALL: [Mode; 7] =
        [Mode::Flushes, Mode::None, Mode::Empty, Mode::Ring, Mode::Persistent, Mode::Destaged, Mode::Layer];

    /// Those of the guide's table, in the order of its columns.
    const SHOWN: [Mode; 4] = [Mode::Flushes, Mode::Destaged, Mode::Ring, Mode::None];

    fn name(self) -> &'static str {
        match self {
            Mode::Flushes => "own flush",
            Mode::None => "no flush",
            Mode::Empty => "empty flush",
            Mode::Ring => "RING",
            Mode::Persistent => "RING, persistent",
            Mode::Destaged => "DESTAGED",
            Mode::Layer => "RING, layer",
        }
    }

    /// The database's switch.
    fn flush(self) -> Flush {
        if self == Mode::None { Flush::None } else { Flush::Real }
    }

    fn level(self) -> Option<Level> {
        match self {
            Mode::Ring | Mode::Persistent | Mode::Layer => Some(Level::Ring),
            Mode::Destaged => Some(Level::Destaged),
            _ => None,
        }
    }
}

/// One measurement.
#[derive(Clone, Debug, PartialEq)]
struct Rate {
    /// The workload: `pgbench -N`.
    workload: &'static str,
    /// Clients at the same time.
    clients: u32,
    /// Transactions or operations per second.
    per_second: f64,
}

/// A layer between a database and its files: it opens the device itself, without `tidewater run`.
#[derive(Clone, Copy)]
struct Layer<'l> {
    /// The folder of the layers, compiled.
    folder: &'l Path,
    device: &'l Device,
}

/// A database that can be measured.
trait Subject {
    fn name(&self) -> &'static str;
    /// Debian's packages that are missing.
    fn missing(&self) -> Vec<&'static str>;
    fn user(&self) -> Result<Option<process::User>, String> {
        Ok(None)
    }
    /// Makes and fills it.
    fn create(&self, place: &Place) -> Result<(), String>;
    /// Starts it in this mode, runs every workload for about this long each, and ends it.
    fn measure(&self, place: &Place, mode: Mode, around: Around, time: Duration) -> Result<Vec<Rate>, String>;
    /// As [`Subject::measure`] by its layer. `None`: it has none.
    fn measure_layer(&self, _: &Place, _: Layer, _: Duration) -> Option<Result<Vec<Rate>, String>> {
        None
    }
}

/// A measurement, where it belongs.
#[derive(Clone, Debug)]
struct Sample {
    database: &'static str,
    mode: Mode,
    rate: Rate,
}

/// Processor time of processes that had nothing to do, as a share of one core.
#[derive(Clone, Copy, Debug)]
struct Idle {
    device: f64,
    supervisor: f64,
}

struct Options {
    rounds: usize,
    seconds: f64,
    report: PathBuf,
    json: Option<PathBuf>,
    /// Machine and disk, as the guide's table is to name them.
    record: Option<String>,
    modes: Vec<Mode>,
    filters: Vec<String>,
}

fn options(here: &Path) -> Result<Options, String> {
    let mut options = Options {
        rounds: 3,
        seconds: 2.0,
        report: here.join("databases.html"),
        json: None,
        record: None,
        modes: Mode::ALL.to_vec(),
        filters: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} takes a value"));
        let wrong = |text: &str| format!("{argument} takes a number, not '{text}'");
        match argument.as_str() {
            // Cargo's own.
            "--bench" => {}
            "--rounds" => {
                let text = value()?;
                options.rounds = text.parse().ok().filter(|rounds| *rounds > 0).ok_or_else(|| wrong(&text))?;
            }
            "--seconds" => {
                let text = value()?;
                options.seconds = text.parse().ok().filter(|seconds| *seconds > 0.0).ok_or_else(|| wrong(&text))?;
            }
            "--report" => options.report = here.join(value()?),
            "--json" => options.json = Some(here.join(value()?)),
            "--record" => options.record = Some(value()?),
            "--modes" => {
                let text = value()?;
                let mode = |name: &str| Mode::ALL.into_iter().find(|mode| mode.name().eq_ignore_ascii_case(name));
                let modes: Option<Vec<Mode>> = text.split('|').map(mode).collect();
                let known = Mode::ALL.map(Mode::name).join("|");
                options.modes = modes.ok_or_else(|| format!("{argument} takes some of {known}, not '{text}'"))?;
            }
            other if other.starts_with('-') => return Err(format!("unknown argument '{other}'")),
            filter => options.filters.push(filter.to_owned()),
        }
    }
    if options.record.is_some() && !Mode::SHOWN.iter().all(|mode| options.modes.contains(mode)) {
        return Err(format!("--record needs the modes {}", Mode::SHOWN.map(Mode::name).join("|")));
    }
    Ok(options)
}

fn main() -> ExitCode {
    let Some(here) = std::env::var_os("TIDEWATER_DATABASES") else {
        println!("databases: make bench-databases measures them");
        return ExitCode::SUCCESS;
    };
    match options(Path::new(&here)).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("databases: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let subjects: [Box<dyn Subject>; 5] = [
        Box::new(postgresql::Subject),
        Box::new(redis::Subject),
        Box::new(sqlite::Subject(Sqlite::Log)),
        Box::new(sqlite::Subject(Sqlite::Whole)),
        Box::new(rocksdb::Subject),
    ];
    let mut wanted = Vec::new();
    for subject in &subjects {
        let name = subject.name();
        if !options.filters.is_empty() && !options.filters.iter().any(|filter| name.contains(filter.as_str())) {
            continue;
        }
        match subject.missing().join(" ") {
            nothing if nothing.is_empty() => wanted.push(subject.as_ref()),
            packages => println!("{name} is left out: apt-get install {packages}"),
        }
    }
    if wanted.is_empty() {
        return Err("no database to measure".to_owned());
    }
    if options.record.is_some() && wanted.len() < subjects.len() {
        return Err("--record needs all databases".to_owned());
    }
    let base = std::env::var_os("TIDEWATER_SCRATCH").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let io = |error: std::io::Error| error.to_string();
    let scratch = tempfile::Builder::new().prefix("tw").tempdir_in(base).map_err(io)?;
    // The ring is memory: on a disk, the kernel would write it back now and then.
    let memory = Path::new("/dev/shm");
    let rings = tempfile::Builder::new().prefix("tw").tempdir_in(if memory.is_dir() { memory } else { scratch.path() });
    let rings = rings.map_err(io)?;
    let open = || std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(scratch.path(), open()).map_err(io)?;
    let shared = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(rings.path(), shared).map_err(io)?;
    // Another build may be measured: what is installed.
    let built = std::env::var_os("TIDEWATER_BINARY").map_or_else(|| binary().to_owned(), PathBuf::from);
    let tidewater = scratch.path().join("tidewater");
    std::fs::copy(&built, &tidewater).map_err(io)?;
    let shim = built.with_file_name("libtidewater_shim.so");
    if shim.is_file() {
        std::fs::copy(&shim, scratch.path().join("libtidewater_shim.so")).map_err(io)?;
    }

    let mut modes = options.modes.clone();
    let empty_flushes = scratch.path().join("empty.so");
    if modes.contains(&Mode::Empty)
        && let Err(why) = witness::compile_library(&root().join("bench/databases/empty.c"), &empty_flushes)
    {
        println!("{} is left out: {why}", Mode::Empty.name());
        modes.retain(|mode| *mode != Mode::Empty);
    }

    // `scripts/bench-databases.sh` compiles them.
    let layers = std::env::var_os("TIDEWATER_LAYERS").map(PathBuf::from);
    if layers.is_none() {
        modes.retain(|mode| *mode != Mode::Layer);
    }

    let mut samples = Vec::new();
    let mut idle = None;
    for subject in wanted {
        let begin = Instant::now();
        let empty = Place::new(&scratch.path().join(subject.name()), subject.user()?)?;
        subject.create(&empty)?;
        // One for each mode, which goes on with it from round to round.
        let mut places = Vec::new();
        for (at, mode) in modes.iter().copied().enumerate() {
            places.push((mode, empty.copy(&scratch.path().join(format!("{}{at}", subject.name())))?));
        }
        for round in 0..options.rounds {
            for turn in 0..places.len() {
                // Another one is first in each round.
                let (mode, place) = &places[(turn + round) % places.len()];
                let ring = rings.path().join(format!("{}-{}", subject.name(), mode.name()));
                let memory = if *mode == Mode::Persistent { Memory::Persistent } else { Memory::Copied };
                // What another mode has left unwritten is not this one's to wait for.
                let _ = std::process::Command::new("sync").status();
                let mut device = Device::new(&tidewater, place, &ring, "64MiB", memory);
                let level = mode.level();
                if level.is_some() {
                    device.start(None)?;
                }
                let preload = (*mode == Mode::Empty).then_some(empty_flushes.as_path());
                let time = Duration::from_secs_f64(options.seconds);
                let rates = match &layers {
                    Some(folder) if *mode == Mode::Layer => {
                        let layer = Layer { folder, device: &device };
                        subject.measure_layer(place, layer, time).unwrap_or_else(|| Ok(Vec::new()))
                    }
                    _ => {
                        let around =
                            Around { device: level.map(|level| (&device, level)), preload, ..Around::default() };
                        subject.measure(place, *mode, around, time)
                    }
                };
                let rates = rates.map_err(|why| format!("{}, {}: {why}", subject.name(), mode.name()))?;
                samples.extend(rates.into_iter().map(|rate| Sample { database: subject.name(), mode: *mode, rate }));
                device.stop()?;
                let _ = std::fs::remove_file(&ring);
            }
            println!(
                "{}: round {} of {}, {:.0} s",
                subject.name(),
                round + 1,
                options.rounds,
                begin.elapsed().as_secs_f64()
            );
        }
        if idle.is_none() && modes.iter().any(|mode| mode.level().is_some()) {
            idle =
                Some(load::idle(&tidewater, &empty.copy(&scratch.path().join("idle"))?, &rings.path().join("idle"))?);
        }
    }
    let document = report::document(&samples, idle, options.rounds, options.seconds);
    println!("\n{}", report::table(&samples));
    if let Some(idle) = idle {
        println!(
            "idle, as a share of one core: device {:.2} %, tidewater run {:.2} %",
            idle.device * 100.0,
            idle.supervisor * 100.0
        );
    }
    std::fs::write(&options.report, tidewater_report::experiment::measurement_page(&document)).map_err(io)?;
    println!("The report, for your browser: file://{}", options.report.display());
    if let Some(machine) = &options.record {
        let table = gains::table(&report::gains(&samples)?, machine, options.rounds, options.seconds);
        let path = root().join(gains::PAGE);
        let page = std::fs::read_to_string(&path).map_err(io)?;
        std::fs::write(&path, gains::replace(&page, &table)?).map_err(io)?;
        println!("The table of {} is written anew", gains::PAGE);
    }
    if let Some(path) = &options.json {
        let text = tidewater_report::experiment::array_to_json(std::slice::from_ref(&document));
        std::fs::write(path, text).map_err(io)?;
    }
    Ok(())
}
