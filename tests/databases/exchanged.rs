//! Programs that are started on another device than their files' own, on an older one, or on files that were copied,
//! moved or restored: refused in words, or with all that was acknowledged. `NAME/exchanged`.
//!
//! A table of cases, for each database and a plain program: what stands where the device stood, and what was done with
//! the files.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tidewater_base::Rng;
use tidewater_tests::databases::device::{Device, Memory};
use tidewater_tests::databases::plain::Plain;
use tidewater_tests::databases::process::{descendants, kill_tree, signal};
use tidewater_tests::databases::{Around, Database, Flush, Ledger, Level, Place, Server};
use tidewater_tests::{PATIENCE, wait};

use crate::campaign::Campaign;

/// Commits in each part of a scene, at least.
const COMMITS: u64 = 20;
/// Cases in an ordinary run; with ten rounds and more, all.
const FEW: usize = 4;

/// The device that stands where the files' device stood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stands {
    /// It itself.
    Own,
    /// It itself, in another folder.
    Moved,
    /// It itself, whose ring is gone.
    NoRing,
    /// It itself, whose ring is that of an older copy.
    OldRing,
    /// Nothing.
    Absent,
    /// A new one.
    New,
    /// A new one, in another folder.
    NewElsewhere,
    /// That of another program, with a log of it.
    Anothers,
    /// A copy from before the run.
    Before,
    /// A copy from amid the run.
    Amid,
}

const STANDS: [Stands; 10] = [
    Stands::Absent,
    Stands::New,
    Stands::NewElsewhere,
    Stands::Anothers,
    Stands::Before,
    Stands::Amid,
    Stands::OldRing,
    Stands::NoRing,
    Stands::Moved,
    Stands::Own,
];

/// The treatment of the files after the crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Files {
    /// The page cache was lost: they are as they were synced.
    Lost,
    /// Nothing.
    Kept,
    /// Copied, and the copy is started.
    Copied,
    /// Moved, and started there.
    Moved,
    /// Moved, and back.
    MovedBack,
    /// Replaced by a backup from before the run.
    Before,
    /// The same, within their folders.
    BeforeInPlace,
    /// Replaced by a backup from amid the run.
    Amid,
    /// The same, within their folders.
    AmidInPlace,
    /// Their markers were removed by hand.
    Unmarked,
}

const FILES: [Files; 10] = [
    Files::Lost,
    Files::Kept,
    Files::Copied,
    Files::Moved,
    Files::MovedBack,
    Files::Before,
    Files::BeforeInPlace,
    Files::Amid,
    Files::AmidInPlace,
    Files::Unmarked,
];

/// The outcome of a start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Came {
    /// Refused, with the next step.
    Refused,
    /// The device itself did not start, and said why.
    NoDevice(String),
    /// With all that was acknowledged.
    Right,
    /// As the operator put it there: a backup, on a device that has nothing else of these files.
    AsPut,
    /// As the operator made it, who removed the markers.
    ByHand,
    /// Without what was acknowledged at RING alone, and says so: the ring was lost or exchanged.
    RingLost,
    /// The program itself refused, in its own words.
    Program(String),
    /// It started without what was acknowledged.
    Silent(String),
}

impl fmt::Display for Came {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Came::Refused => "refused",
            Came::NoDevice(_) => "device refuses",
            Came::Right => "right",
            Came::AsPut => "as put",
            Came::ByHand => "by hand",
            Came::RingLost => "ring lost",
            Came::Program(_) => "program refuses",
            Came::Silent(_) => "SILENT",
        })
    }
}

/// The outcomes of a program's cases.
pub struct Table {
    database: &'static str,
    cases: BTreeMap<(Files, Stands), Came>,
    /// Cases that are not as they must be.
    pub failures: Vec<String>,
    seconds: f64,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |name: &str| self.cases.values().filter(|came| came.to_string() == name).count();
        write!(f, "{:32} {:3} cases", format!("{}/exchanged", self.database), self.cases.len())?;
        let all = ["refused", "device refuses", "right", "as put", "by hand", "ring lost", "program refuses", "SILENT"];
        for name in all.into_iter().filter(|name| count(name) > 0 || *name == "SILENT") {
            write!(f, ", {name} {}", count(name))?;
        }
        write!(f, "; {:.1} s", self.seconds)?;
        if self.cases.len() > FEW {
            for files in FILES {
                let row = STANDS.iter().filter_map(|stands| Some((stands, self.cases.get(&(files, *stands))?)));
                let row: Vec<String> = row.map(|(stands, came)| format!("{stands:?}: {came}")).collect();
                write!(f, "\n  {files:?}: {}", row.join(", "))?;
            }
        }
        self.failures.iter().try_for_each(|why| write!(f, "\n  FAILED: {why}"))
    }
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

fn shell(script: &str, paths: &[&Path]) -> Result<(), String> {
    let mut sh = Command::new("sh");
    let output = sh.args(["-euc", script, "sh"]).args(paths).env("LC_ALL", "C").output().map_err(text)?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Makes a folder equal to another one. It and the folders in it stay the same ones.
fn put(from: &Path, to: &Path) -> Result<(), String> {
    let script = r#"mkdir -p "$2"; find "$2" -mindepth 1 ! -type d -delete; cp -a --sparse=always "$1/." "$2""#;
    shell(script, &[from, to])
}

fn empty(folder: &Path) -> Result<(), String> {
    shell(r#"find "$1" -mindepth 1 -delete"#, &[folder])
}

/// All files below a folder, with a checksum.
fn sums(folder: &Path) -> Result<String, String> {
    let sum = r#"cd "$1" && find . -type f ! -name 'tidewater-*' -exec cksum {} + | sort"#;
    let output = Command::new("sh").args(["-euc", sum, "sh"]).arg(folder).output().map_err(text)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Up to where the markers below a folder have seen the log.
fn seen(folder: &Path) -> u64 {
    let of = |text: &String| text.split_once(" seen ")?.1.split_whitespace().next()?.parse().ok();
    markers(folder).iter().filter_map(of).max().unwrap_or(0)
}

/// The words of the markers below a folder.
fn markers(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let each = entries.flatten().flat_map(|entry| {
        let is_marker = entry.file_name().to_string_lossy().starts_with(".tidewater-log-");
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => markers(&entry.path()),
            _ if is_marker => fs::read_to_string(entry.path()).ok().into_iter().collect(),
            _ => Vec::new(),
        }
    });
    each.collect()
}

/// A program that crashed, and copies of its files and of its device from three moments.
struct Scene {
    place: Place,
    level: Level,
    memory: Memory,
    binary: PathBuf,
    ledger: Ledger,
    before: Ledger,
    amid: Ledger,
    /// A case has changed its files.
    is_used: bool,
}

impl Scene {
    fn saved(&self, name: &str) -> PathBuf {
        self.place.folder().join("saved").join(name)
    }

    /// A place beside this one, whose name has this letter, too.
    fn other(&self, letter: char) -> Result<Place, String> {
        let name = self.place.folder().file_name().map(|name| name.to_string_lossy().into_owned());
        self.place.beside(&format!("{}{letter}", name.unwrap_or_default()))
    }

    fn device_in(&self, place: &Place) -> Device {
        Device::new(&self.binary, place, &place.device().join("ring"), "4MiB", self.memory)
    }

    fn around<'a>(&self, device: &'a Device, campaign: &'a Campaign) -> Around<'a> {
        Around { witness: Some(campaign.witness()), device: Some((device, self.level)), ..Around::default() }
    }

    fn save(&self, name: &str) -> Result<(), String> {
        put(&self.place.device(), &self.saved(&format!("device.{name}")))?;
        put(&self.place.data(), &self.saved(&format!("data.{name}")))
    }

    /// A program that ran once in order, then again until a crash, as its files are afterwards.
    fn new(campaign: &mut Campaign, database: &dyn Database, level: Level, files: Files) -> Result<Scene, String> {
        let place = campaign.place(database)?;
        let memory = if level == Level::Ring { Memory::Persistent } else { Memory::Volatile };
        let new = || Ledger::new(database.writers());
        let binary = campaign.tidewater().to_owned();
        let mut scene =
            Scene { place, level, memory, binary, ledger: new(), before: new(), amid: new(), is_used: false };
        let scene_ref = &scene;
        let (place, witness) = (&scene_ref.place, campaign.witness());
        fs::create_dir_all(place.folder().join("saved")).map_err(text)?;
        witness.keep(&place.shadows(), &[&place.data()])?;
        let mut device = scene.device_in(place);
        device.start(Some(witness))?;
        let mut server = database.start(place, Flush::Real, scene.around(&device, campaign))?;
        scene.ledger.load(server.as_mut(), |_, _| scene.ledger.wait(COMMITS, Duration::ZERO))?;
        server.stop()?;
        device.stop()?;
        scene.save("before")?;
        let before = scene.ledger.now();
        device.start(Some(witness))?;
        let mut server = database.start(place, Flush::Real, scene.around(&device, campaign))?;
        let amid = scene.ledger.load(server.as_mut(), |server, _| scene.run(server, &mut device))??;
        let _ = server.root().wait();
        if files == Files::Lost {
            witness.reset(&place.shadows(), &[&place.data(), &device.image()])?;
            if level == Level::Destaged {
                device.discard_ring()?;
            }
        }
        scene.save("crashed")?;
        (scene.before, scene.amid) = (before, amid);
        Ok(scene)
    }

    /// Commits, a copy of all amid them, more commits behind what the markers say next, and a crash. A copy of the
    /// device from after the last checkpoint, which comes each second, looks like the device itself.
    fn run(&self, server: &mut dyn Server, device: &mut Device) -> Result<Ledger, String> {
        let root = server.root().id();
        let wait = || if self.ledger.wait(COMMITS, Duration::ZERO) { Ok(()) } else { Err("no commits".to_owned()) };
        wait()?;
        let all: Vec<u32> = [root, device.process()].into_iter().chain(descendants(&[root])).collect();
        all.iter().for_each(|one| signal(*one, Signal::SIGSTOP));
        let amid = self.ledger.now();
        let saved = self.save("amid");
        all.iter().for_each(|one| signal(*one, Signal::SIGCONT));
        saved?;
        // The first may have been on its way.
        for _ in 0..2 {
            let before = seen(&self.place.data());
            wait::within(PATIENCE, || (seen(&self.place.data()) > before).then_some(()))
                .ok_or_else(|| format!("no checkpoint: {:?}", markers(&self.place.data())))?;
        }
        wait()?;
        device.kill();
        kill_tree(&[root]);
        Ok(amid)
    }

    /// Removes all of it.
    fn remove(self) -> Result<(), String> {
        for place in [self.other('c')?, self.other('e')?, self.place] {
            fs::remove_dir_all(place.folder()).map_err(text)?;
        }
        Ok(())
    }

    /// Does with the files what the case asks for. Where they are started.
    fn put_files(&self, files: Files) -> Result<Place, String> {
        let (data, other) = (self.place.data(), self.other('c')?);
        match files {
            Files::Lost | Files::Kept => {}
            Files::Copied => {
                put(&data, &other.data())?;
                return Ok(other);
            }
            Files::Moved | Files::MovedBack => {
                // It was moved by an earlier case of the scene.
                if data.is_dir() {
                    fs::remove_dir(other.data()).map_err(text)?;
                    fs::rename(&data, other.data()).map_err(text)?;
                }
                if files == Files::Moved {
                    return Ok(other);
                }
                fs::rename(other.data(), &data).map_err(text)?;
            }
            Files::Before | Files::Amid => {
                fs::remove_dir_all(&data).map_err(text)?;
                put(&self.saved(if files == Files::Before { "data.before" } else { "data.amid" }), &data)?;
            }
            Files::BeforeInPlace => put(&self.saved("data.before"), &data)?,
            Files::AmidInPlace => put(&self.saved("data.amid"), &data)?,
            Files::Unmarked => shell("find \"$1\" -name '.tidewater-log-*' -delete", &[&data])?,
        }
        Ok(self.place.clone())
    }

    /// Puts the device there, started if there is one. The device that the program is started on.
    fn put_device(&self, stands: Stands, another: &Path) -> Result<(Device, Result<(), String>), String> {
        let elsewhere = self.other('e')?;
        empty(&self.place.device())?;
        empty(&elsewhere.device())?;
        let at = if matches!(stands, Stands::Moved | Stands::NewElsewhere) { &elsewhere } else { &self.place };
        let from = match stands {
            Stands::Own | Stands::Moved | Stands::NoRing | Stands::OldRing => Some(self.saved("device.crashed")),
            Stands::Absent | Stands::New | Stands::NewElsewhere => None,
            Stands::Anothers => Some(another.to_owned()),
            Stands::Before => Some(self.saved("device.before")),
            Stands::Amid => Some(self.saved("device.amid")),
        };
        if let Some(from) = from {
            put(&from, &at.device())?;
        }
        // Sockets come along in a copy; another user's could not be replaced.
        let ring = at.device().join("ring");
        shell("rm -f \"$1/v\" \"$1/c\"", &[&at.device()])?;
        match stands {
            Stands::NoRing if ring.exists() => fs::remove_file(&ring).map_err(text)?,
            Stands::OldRing => shell("cp -a \"$1\" \"$2\"", &[&self.saved("device.amid/ring"), &ring])?,
            _ => {}
        }
        // A copy gives the folder its owner, too.
        at.give(&at.device())?;
        for entry in fs::read_dir(at.device()).map_err(text)?.flatten() {
            at.give(&entry.path())?;
        }
        let mut device = self.device_in(at);
        let started = if stands == Stands::Absent { Ok(()) } else { device.start(None) };
        Ok((device, started))
    }

    /// Starts the program, and says what came of it.
    fn case(&mut self, database: &dyn Database, files: Files, stands: Stands, another: &Path) -> Result<Came, String> {
        let place = self.put_files(files)?;
        let sums_before = sums(&place.data())?;
        let (device, started) = self.put_device(stands, another)?;
        if let Err(why) = started {
            let is_said = why.contains("error:") && !why.contains("panicked");
            return if is_said { Ok(Came::NoDevice(why)) } else { Err(format!("the device: {why}")) };
        }
        let around = Around { device: Some((&device, self.level)), ..Around::default() };
        let log = place.folder().join(format!("{}.log", database.speaks_as()));
        let _ = fs::remove_file(&log);
        let found = database.start(&place, Flush::Real, around).and_then(|mut server| {
            let contents = server.contents().and_then(|contents| server.check().map(|()| contents));
            kill_tree(&[server.root().id()]);
            let _ = server.root().wait();
            contents
        });
        let said = fs::read_to_string(&log).unwrap_or_default();
        let is_layer = database.name().ends_with("-layer");
        let is_refused = ["help: ", "(14) tidewater: ", "tidewater://"].iter().any(|words| said.contains(words));
        let contents = match found {
            // SQLite's shell goes on with an empty database when it can't open one; RocksDB writes a log of its own.
            Ok(_) | Err(_) if is_layer && is_refused => {
                self.is_used = true;
                return Ok(Came::Refused);
            }
            Ok(contents) => contents,
            Err(_) if is_refused => {
                if sums(&place.data())? != sums_before {
                    self.is_used = true;
                    return Err(format!("refused, and files have changed: {said}"));
                }
                return Ok(Came::Refused);
            }
            Err(why) => {
                self.is_used = true;
                return Ok(Came::Program(why));
            }
        };
        self.is_used = true;
        let all = self.ledger.judge(&contents);
        let floor = match files {
            Files::Before | Files::BeforeInPlace => Some(&self.before),
            Files::Amid | Files::AmidInPlace => Some(&self.amid),
            _ => None,
        };
        // At RING the last bytes are in the ring alone: with an earlier one, files from before are all that there is.
        let is_whole = matches!(stands, Stands::Own | Stands::Moved);
        let has_the_log = is_whole || stands == Stands::OldRing && self.level != Level::Ring;
        let as_put = floor.is_some_and(|floor| floor.judge(&contents).lost == 0) && !has_the_log;
        Ok(match (all.half, all.foreign) {
            _ if all.holds() => Came::Right,
            (0, 0) if as_put => Came::AsPut,
            (0, 0) if said.contains("the ring that its run wrote to was lost") => Came::RingLost,
            // A library has nowhere to say it.
            (0, 0) if is_layer && self.level == Level::Ring && matches!(stands, Stands::NoRing | Stands::OldRing) => {
                Came::RingLost
            }
            (0, 0) if files == Files::Unmarked && !has_the_log => Came::ByHand,
            _ => Came::Silent(format!("{all}: {}", said.lines().take(4).collect::<Vec<_>>().join(" | "))),
        })
    }
}

/// The device of another program, which crashed.
fn anothers(campaign: &mut Campaign) -> Result<PathBuf, String> {
    let scene = Scene::new(campaign, &Plain, Level::Ring, Files::Kept)?;
    Ok(scene.saved("device.crashed"))
}

/// The cases of a program: some of them, or all.
///
/// # Errors
/// A scene that did not come about.
pub fn check(campaign: &mut Campaign, database: &dyn Database, rng: &mut Rng, is_whole: bool) -> Result<Table, String> {
    let begin = Instant::now();
    let another = anothers(campaign)?;
    let mut table = Table { database: database.name(), cases: BTreeMap::new(), failures: Vec::new(), seconds: 0.0 };
    let all = FILES.iter().flat_map(|files| STANDS.iter().map(|stands| (*files, *stands)));
    let mut all: Vec<(Files, Stands)> = all.collect();
    if !is_whole {
        all = (0..FEW).map(|_| all.swap_remove(rng.below(all.len() as u64) as usize)).collect();
    }
    // Cases of the same scene one after the other.
    let mut wanted: Vec<(Files, bool, Stands)> = Vec::new();
    for (at, (files, stands)) in all.into_iter().enumerate() {
        let number = STANDS.iter().position(|other| *other == stands).unwrap_or(at) + files as usize;
        wanted.push((files, number.is_multiple_of(2), stands));
    }
    wanted.sort_by_key(|(files, is_ring, stands)| (*files, *is_ring, STANDS.iter().position(|one| one == stands)));
    let mut scene: Option<((Files, bool), Scene)> = None;
    for (files, is_ring, stands) in wanted {
        let key = (files, is_ring);
        let mut of_case = match scene.take() {
            Some((of, scene)) if of == key && !scene.is_used => scene,
            old => {
                old.map_or(Ok(()), |(_, scene)| scene.remove())?;
                Scene::new(campaign, database, if is_ring { Level::Ring } else { Level::Destaged }, files)?
            }
        };
        let level = of_case.level.name();
        match of_case.case(database, files, stands, &another) {
            Ok(came) => {
                if let Came::Silent(why) = &came {
                    table.failures.push(format!("{files:?} {stands:?} at {level}: {why}"));
                }
                if let Came::Program(why) | Came::NoDevice(why) = &came {
                    println!("  {}: {files:?} {stands:?} at {level}: {why}", database.name());
                }
                table.cases.insert((files, stands), came);
            }
            Err(why) => table.failures.push(format!("{files:?} {stands:?} at {level}: {why}")),
        }
        scene = Some((key, of_case));
    }
    table.seconds = begin.elapsed().as_secs_f64();
    Ok(table)
}
