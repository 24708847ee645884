//! Guests that judge the device: a stock Linux kernel and its tools, in QEMU under plain emulation.
//!
//! `make test-guest` runs it (`scripts/guest.sh`); how jobs are written is in `tests/guest/README.md`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use tidewater_tests::root;

mod archive;
mod device;
mod job;
mod machine;
mod scenarios;

use device::{Device, Kind};
use job::{Line, Tally};
use machine::{Heard, Kit, Machine, Task};
use scenarios::{SCENARIOS, Scenario, Step};

/// Lines of a console that a failure shows; the rest is in the file.
const CONSOLE_LINES: usize = 150;
/// How long a guest may take to start, and to switch off: far beyond what it needs.
const START_MAX: Duration = Duration::from_secs(90);
const END_MAX: Duration = Duration::from_secs(30);

struct Options {
    kind: Kind,
    long: bool,
    list: bool,
    filters: Vec<String>,
}

fn options() -> Result<Options, String> {
    let mut options = Options { kind: Kind::Emulated, long: false, list: false, filters: Vec::new() };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--device" => {
                let name = arguments.next().unwrap_or_default();
                options.kind = Kind::from_name(&name).ok_or(format!("no device is called '{name}'"))?;
            }
            "--long" => options.long = true,
            "--list" => options.list = true,
            other if other.starts_with('-') => return Err(format!("unknown argument '{other}'")),
            filter => options.filters.push(filter.to_owned()),
        }
    }
    Ok(options)
}

/// Small programs for the guest, compiled here: what is mapped can't be reached with its tools.
fn programs(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let sources = std::fs::read_dir(root().join("tests/guest")).map_err(|e| e.to_string())?;
    for source in sources.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "c"))
    {
        let program = folder.join(source.file_stem().expect("a source has a name"));
        let status = Command::new("cc")
            .args(["-static", "-O1", "-Wall", "-Werror", "-s", "-o"])
            .arg(&program)
            .arg(&source)
            .status()
            .map_err(|e| format!("cc: {e}"))?;
        if !status.success() {
            return Err(format!("cc can't compile {}", source.display()));
        }
        found.push(program);
    }
    Ok(found)
}

/// Boots a guest for one step of a scenario, and hears what it reports.
fn run_step(
    kit: &Kit,
    step: &Step,
    device: &mut Device,
    kept: &[String],
    programs: &[PathBuf],
    folder: &Path,
    name: &str,
) -> Tally {
    let mut tally = Tally::default();
    let harness = |why: String| ("harness".to_owned(), why);
    let mut expected = BTreeSet::new();
    for job in step.jobs {
        let script = root().join("tests/guest/jobs").join(format!("{}.sh", job.split(' ').next().unwrap_or_default()));
        match std::fs::read_to_string(&script) {
            Ok(text) => expected.extend(job::checks(&text)),
            Err(error) => {
                tally.not_ok.push(harness(format!("{}: {error}", script.display())));
                return tally;
            }
        }
    }
    let arguments = device.arguments();
    let task = Task {
        jobs: step.jobs,
        kept,
        device: device.name(),
        target: &device.target(),
        arguments: &arguments,
        kernel: step.kernel,
        programs,
    };
    let mut machine = match Machine::start(kit, &task, folder, name) {
        Ok(machine) => machine,
        Err(error) => {
            tally.not_ok.push(harness(format!("QEMU does not start: {error}")));
            return tally;
        }
    };

    let mut deadline = Instant::now() + START_MAX;
    let mut last = String::from("nothing");
    let ended = loop {
        let line = match machine.hear(deadline) {
            Heard::Line(line) => line,
            Heard::Gone => break Err(format!("the machine ended early; last heard: {last}")),
            Heard::Nothing => break Err(format!("the job took too long; last heard: {last}")),
        };
        last.clone_from(&line);
        match Line::parse(&line) {
            Line::Other(line) if line.starts_with("up ") => {
                deadline = Instant::now() + Duration::from_secs(step.time_max_s);
                machine.say("go");
            }
            Line::Ask(words) if words.first().is_some_and(|word| word == "kill") => {
                device.kill(machine);
                tally.missing(&expected);
                return tally;
            }
            Line::Ask(words) => {
                let answer = match device.act(&words) {
                    Ok(text) => format!("done {text}"),
                    Err(why) => format!("failed {why}"),
                };
                machine.say(&answer);
            }
            Line::End => break Ok(()),
            line => tally.take(line),
        }
    };
    tally.missing(&expected);
    if let Err(why) = ended {
        tally.not_ok.insert(0, harness(why));
    }
    if !tally.not_ok.is_empty() {
        println!("--- the end of the console of {name} ({}):", folder.display());
        println!("{}\n---", machine.console(CONSOLE_LINES));
    } else if !machine.end(END_MAX) {
        tally.not_ok.push(harness("the machine did not switch off by itself".to_owned()));
    }
    tally
}

fn run(kit: &Kit, kind: Kind, scenario: &Scenario, programs: &[PathBuf], folder: &Path) -> Tally {
    let mut tally = Tally::default();
    let folder = folder.join(scenario.name);
    let prepared = std::fs::create_dir_all(&folder).and_then(|()| Device::new(kind, scenario.setup, &folder));
    let mut device = match prepared {
        Ok(device) => device,
        Err(error) => {
            tally.not_ok.push(("harness".to_owned(), format!("the device can't be made: {error}")));
            return tally;
        }
    };
    for (index, step) in scenario.steps.iter().enumerate() {
        if let Err(why) = device.start() {
            tally.not_ok.push(("harness".to_owned(), format!("the device does not start: {why}")));
            break;
        }
        let kept = std::mem::take(&mut tally.kept);
        tally.add(run_step(kit, step, &mut device, &kept, programs, &folder, &format!("guest{}", index + 1)));
        if !tally.not_ok.is_empty() {
            println!("{}", device.log());
            break;
        }
    }
    tally
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        // Arguments of the built-in harness, from `cargo test` of the whole workspace.
        Err(_) if std::env::var_os("TIDEWATER_GUEST_KIT").is_none() => {
            println!("guests: make test-guest runs them");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("guest: {why}");
            return ExitCode::from(2);
        }
    };
    if options.list {
        for scenario in SCENARIOS {
            println!("{}: {}", scenario.name, scenario.what);
        }
        return ExitCode::SUCCESS;
    }
    let Some(kit) = std::env::var_os("TIDEWATER_GUEST_KIT") else {
        println!("guests: make test-guest runs them");
        return ExitCode::SUCCESS;
    };
    let kit = Kit { folder: PathBuf::from(kit) };
    job::self_check();

    let work = tempfile::Builder::new().prefix("tidewater-guest").tempdir().expect("a temporary folder");
    let programs = match programs(work.path()) {
        Ok(programs) => programs,
        Err(why) => {
            eprintln!("guest: {why}");
            return ExitCode::from(2);
        }
    };
    let begin = Instant::now();
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    let mut good = true;
    for scenario in SCENARIOS {
        let wanted =
            options.filters.is_empty() || options.filters.iter().any(|filter| scenario.name.contains(filter.as_str()));
        if scenario.long != options.long || !wanted {
            continue;
        }
        let start = Instant::now();
        let tally = run(&kit, options.kind, scenario, &programs, work.path());
        let result = if tally.not_ok.is_empty() { "ok" } else { "FAILED" };
        println!(
            "guest {} ... {result}: {} checks hold, {} do not, {} left out; {:.1} s",
            scenario.name,
            tally.ok.len(),
            tally.not_ok.len(),
            tally.skipped.len(),
            start.elapsed().as_secs_f64()
        );
        for (name, why) in &tally.not_ok {
            println!("  not ok {name}: {why}");
        }
        for note in &tally.notes {
            println!("  {note}");
        }
        for (name, why) in &tally.skipped {
            println!("SKIPPED (1): guest {}: {name}: {why}", scenario.name);
        }
        good &= tally.not_ok.is_empty();
        passed += tally.ok.len();
        failed += tally.not_ok.len();
        skipped += tally.skipped.len();
    }
    if !good && let Ok(kept) = keep(work) {
        println!("consoles and images are kept in {}", kept.display());
    }
    println!("guests on the {} device: {:.0} s", options.kind.name(), begin.elapsed().as_secs_f64());
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if passed + failed + skipped == 0 {
        eprintln!("guest: no scenario matched");
        return ExitCode::from(2);
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Leaves the folder to the reader.
fn keep(folder: tempfile::TempDir) -> std::io::Result<PathBuf> {
    Ok(folder.keep())
}
