//! Guests that judge the device: a stock Linux kernel and its tools, in QEMU under plain emulation.
//!
//! `make test-guest` runs it (`scripts/guest.sh`); how jobs are written is in `tests/guest/README.md`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use tidewater_tests::skipped;

mod archive;
mod capture;
mod device;
mod job;
mod machine;
mod run;
mod scenarios;
mod shell;

use device::Kind;
use machine::Kit;
use run::Runner;
use scenarios::scenarios;

struct Options {
    kind: Kind,
    long: bool,
    list: bool,
    filters: Vec<String>,
}

fn options() -> Result<Options, String> {
    let mut options = Options { kind: Kind::Tidewater, long: false, list: false, filters: Vec::new() };
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
        for scenario in scenarios() {
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
    let runner = match Runner::new(kit, options.kind, work.path()) {
        Ok(runner) => runner,
        Err(why) => {
            eprintln!("guest: {why}");
            return ExitCode::from(2);
        }
    };
    let begin = Instant::now();
    let (mut passed, mut failed, mut left_out) = (0, 0, 0);
    let mut good = true;
    for scenario in &scenarios() {
        let wanted =
            options.filters.is_empty() || options.filters.iter().any(|filter| scenario.name.contains(filter.as_str()));
        if scenario.long != options.long || !wanted {
            continue;
        }
        let start = Instant::now();
        let tally = match runner.run(scenario) {
            Ok(tally) => tally,
            Err(lacking) => {
                skipped(lacking.checks, &format!("guest {}: {}", scenario.name, lacking.what));
                left_out += lacking.checks;
                continue;
            }
        };
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
            skipped(1, &format!("guest {}: {name}: {why}", scenario.name));
        }
        good &= tally.not_ok.is_empty();
        passed += tally.ok.len();
        failed += tally.not_ok.len();
        left_out += tally.skipped.len();
    }
    if !good {
        println!("consoles and images are kept in {}", work.keep().display());
    }
    println!("guests on the {} device: {:.0} s", options.kind.name(), begin.elapsed().as_secs_f64());
    println!("{passed} passed, {failed} failed, {left_out} skipped");
    if passed + failed + left_out == 0 {
        eprintln!("guest: no scenario matched");
        return ExitCode::from(2);
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
