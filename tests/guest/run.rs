//! Runs scenarios: a device, and guests on it one after another.

use std::collections::BTreeSet;
use std::mem::take;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tidewater_tests::{binary, root};

use crate::capture;
use crate::device::{Device, Kind};
use crate::job::{Line, Tally, checks};
use crate::machine::{Heard, Kit, Machine, Task};
use crate::scenarios::{Scenario, Step};
use crate::shell;

/// Lines of a console that a failure shows; the rest is in the file.
const CONSOLE_LINES: usize = 150;
/// How long a guest may take to start, and to switch off: far beyond what it needs.
const START_MAX: Duration = tidewater_tests::PATIENCE;
/// How long its first start may take: one that stands still by then, and has not looked for a drive, is begun again.
const FIRST_START_MAX: Duration = Duration::from_secs(240);
const END_MAX: Duration = tidewater_tests::PATIENCE;

/// Message of a guest's kernel that ran into an instruction of its own while another processor was changing it.
const HALF_CHANGED: &str = "Oops: int3";

/// Requirements of a scenario that this machine lacks.
pub struct Lacking {
    /// Checks that are not made.
    pub checks: usize,
    /// The missing part.
    pub what: String,
}

/// State that all scenarios share.
pub struct Runner {
    kit: Kit,
    kind: Kind,
    programs: Vec<PathBuf>,
    work: PathBuf,
}

/// Where a guest finds things, and what it is called.
struct Place<'a> {
    folder: &'a Path,
    name: String,
    /// A folder for the guest.
    guest: Option<&'a Path>,
    programs: &'a [PathBuf],
}

/// Compiles a small program for a guest, which may have another C library.
fn compile(source: &Path, folder: &Path) -> Result<PathBuf, String> {
    let program = folder.join(source.file_stem().expect("a source has a name"));
    let mut command = Command::new("cc");
    command.args(["-static", "-O1", "-Wall", "-s", "-o"]).arg(&program).arg(source);
    let status = command.status().map_err(|error| format!("cc: {error}"))?;
    if status.success() { Ok(program) } else { Err(format!("cc can't compile {}", source.display())) }
}

/// The `tidewater` command for a guest: without what only debuggers read, and with its libraries and their loader,
/// because a guest may have others.
fn tool(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let built = binary();
    let program = folder.join("tidewater");
    let mut command = Command::new("strip");
    command.arg("-o").arg(&program).arg(built);
    let status = command.status().map_err(|error| format!("strip: {error}"))?;
    if !status.success() {
        return Err(format!("strip can't read {}", built.display()));
    }
    let listed = Command::new("ldd").arg(built).output().map_err(|error| format!("ldd: {error}"))?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    // NAME => PATH (ADDRESS), and the loader as PATH (ADDRESS).
    let paths = listed.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from);
    Ok(std::iter::once(program).chain(paths).collect())
}

/// Names of the checks that jobs have to report.
fn expected(jobs: &[String]) -> Result<BTreeSet<String>, String> {
    let mut names = BTreeSet::new();
    for job in jobs {
        let script = root().join("tests/guest/jobs").join(format!("{}.sh", job.split(' ').next().unwrap_or_default()));
        let text = std::fs::read_to_string(&script).map_err(|error| format!("{}: {error}", script.display()))?;
        names.extend(checks(&text));
    }
    Ok(names)
}

/// A failure of the harness, or of what it starts.
fn failed(why: String) -> Tally {
    Tally { not_ok: vec![("harness".to_owned(), why)], ..Tally::default() }
}

impl Runner {
    /// Prepares what guests need; their files come to `work`.
    pub fn new(kit: Kit, kind: Kind, work: &Path) -> Result<Self, String> {
        // What is mapped can't be reached with the guest's tools.
        let programs = vec![compile(&root().join("tests/guest/bar.c"), work)?];
        Ok(Self { kit, kind, programs, work: work.to_path_buf() })
    }

    /// The folder that a scenario needs: where the variable says, or else at its usual place.
    fn folder(scenario: &Scenario) -> Result<Option<PathBuf>, Lacking> {
        let Some((variable, usual)) = scenario.folder else { return Ok(None) };
        let folder = std::env::var_os(variable).map_or_else(|| root().join(usual), PathBuf::from);
        if folder.is_dir() {
            return Ok(Some(folder));
        }
        let count = scenario.steps.iter().filter_map(|step| expected(&step.jobs).ok()).map(|names| names.len()).sum();
        let what = format!("no folder {}; {variable} can name it", folder.display());
        Err(Lacking { checks: count, what })
    }

    /// Runs all guests of a scenario. The error says what it would need.
    pub fn run(&self, scenario: &Scenario) -> Result<Tally, Lacking> {
        let guest = Self::folder(scenario)?;
        let folder = self.work.join(scenario.name);
        let prepared = std::fs::create_dir_all(&folder).and_then(|()| Device::new(self.kind, scenario.setup, &folder));
        if scenario.steps.is_empty() {
            return Ok(shell::run(&self.kit, self.kind, &folder));
        }
        let mut device = match prepared {
            Ok(device) => device,
            Err(error) => return Ok(failed(format!("the device can't be made: {error}"))),
        };
        let mut programs = self.programs.clone();
        if scenario.tool && self.kind == Kind::Tidewater {
            match tool(&folder) {
                Ok(files) => programs.extend(files),
                Err(why) => return Ok(failed(why)),
            }
        }
        // blktests has programs of its own: the one that tests of a given device need.
        if let Some(source) =
            guest.as_ref().map(|folder| folder.join("src/dio-offsets.c")).filter(|file| file.is_file())
        {
            match compile(&source, &folder) {
                Ok(program) => programs.push(program),
                Err(why) => return Ok(failed(why)),
            }
        }
        let mut tally = Tally::default();
        for (index, step) in scenario.steps.iter().enumerate() {
            if let Err(why) = device.start() {
                tally.add(failed(format!("the device does not start: {why}")));
                break;
            }
            let kept = std::mem::take(&mut tally.kept);
            let name = format!("guest{}", index + 1);
            let place = Place { folder: &folder, name, guest: guest.as_deref(), programs: &programs };
            tally.add(self.step(step, scenario.silence_max_s, &mut device, &kept, &place));
            if !tally.not_ok.is_empty() {
                println!("{}\n--- its threads:\n{}---", device.log(), device.threads());
                break;
            }
        }
        if let Err(why) = device.stop() {
            tally.add(failed(format!("the device does not stop as it should: {why}")));
            println!("{}", device.log());
        }
        if let Some(capture) = device.capture() {
            tally.add(capture::judge(&capture));
        }
        Ok(tally)
    }

    /// Boots a guest, and collects its reports.
    fn step(&self, step: &Step, silence_max_s: u64, device: &mut Device, kept: &[String], place: &Place<'_>) -> Tally {
        let expected = match expected(&step.jobs) {
            Ok(expected) => expected,
            Err(why) => return failed(why),
        };
        let task = Task {
            jobs: &step.jobs,
            kept,
            device: device.name(),
            target: &device.target(),
            arguments: &device.arguments(),
            kernel: step.kernel,
            folder: place.guest,
            programs: place.programs,
        };
        let boot = || {
            let machine = Machine::start(&self.kit, &task, place.folder, &place.name);
            machine.map_err(|error| format!("QEMU does not start: {error}"))
        };
        let mut machine = match boot() {
            Ok(machine) => machine,
            Err(why) => return failed(why),
        };
        let mut again = true;

        let mut tally = Tally::default();
        let mut deadline = Instant::now() + FIRST_START_MAX;
        let mut last = String::from("nothing");
        let ended = loop {
            let line = match machine.hear(deadline) {
                Heard::Line(line) => line,
                // QEMU's own processors now and then run into an instruction that the guest's kernel is just changing,
                // or stand still, before it has looked for a drive.
                heard @ (Heard::Gone | Heard::Nothing) if last == "nothing" && take(&mut again) => {
                    let console = machine.console(usize::MAX);
                    let why = match heard {
                        Heard::Gone if console.contains(HALF_CHANGED) => HALF_CHANGED,
                        Heard::Nothing if !console.contains("nvme nvme") => "nothing for minutes",
                        Heard::Gone => break Err("the machine ended before it was up".to_owned()),
                        _ => {
                            deadline = Instant::now() + START_MAX;
                            continue;
                        }
                    };
                    println!("  note: {}: {why} before it was up, by the emulated processor; booted again", place.name);
                    show(&machine, place);
                    machine = match boot() {
                        Ok(machine) => machine,
                        Err(why) => return failed(why),
                    };
                    deadline = Instant::now() + START_MAX;
                    continue;
                }
                Heard::Gone => break Err(format!("the machine ended early; last heard: {last}")),
                Heard::Nothing => break Err(format!("no word for {silence_max_s} s; last heard: {last}")),
            };
            last.clone_from(&line);
            deadline = Instant::now() + Duration::from_secs(silence_max_s);
            match Line::parse(&line) {
                Line::Other(line) if line.starts_with("up ") => machine.say("go"),
                Line::Ask(words) if words.first().is_some_and(|word| word == "kill") => {
                    tally.missing(&expected);
                    if !tally.not_ok.is_empty() {
                        show(&machine, place);
                    }
                    device.kill(machine);
                    return tally;
                }
                Line::Ask(words) => {
                    let answer = match device.act(&words) {
                        Ok(text) => format!("done {text}"),
                        Err(why) => format!("failed {why}"),
                    };
                    machine.say(&answer);
                    deadline = Instant::now() + Duration::from_secs(silence_max_s);
                }
                Line::End => break Ok(()),
                line => tally.take(line),
            }
        };
        tally.missing(&expected);
        if let Err(why) = ended {
            tally.not_ok.insert(0, ("harness".to_owned(), why));
        }
        if !tally.not_ok.is_empty() {
            show(&machine, place);
        } else if !machine.end(END_MAX) {
            show(&machine, place);
            tally.add(failed("the machine did not switch off by itself".to_owned()));
        }
        tally
    }
}

/// Shows the end of a console.
fn show(machine: &Machine, place: &Place<'_>) {
    println!("--- the end of the console of {} ({}):", place.name, place.folder.display());
    println!("{}\n---", machine.console(CONSOLE_LINES));
}
