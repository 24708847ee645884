//! The `tidewater` command.

mod args;
mod bench;
mod cluster;
mod compare;
mod completions;
mod crash_test;
mod drive;
mod drive_image;
#[cfg(test)]
mod dry;
mod experiment;
mod failure;
mod fault;
mod figure;
mod generate;
mod group;
mod interrupt;
mod keeper;
mod log;
mod log_device;
mod logging;
mod mount;
mod notify;
mod nvme;
mod output;
mod page;
mod probe;
mod profile_schema;
mod progress;
mod replay;
mod report;
mod run;
mod served;
mod socket;
mod status;
mod sweep;
mod tail;
mod text;
mod trace;

use args::{Cli, Command};
use clap::FromArgMatches as _;
use failure::{Failure, Status};
use std::process::ExitCode;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(bug));
    let parsed = args::command().try_get_matches().and_then(|mut given| Cli::from_arg_matches_mut(&mut given));
    // A program that is run gets the signals.
    if !matches!(&parsed, Ok(Cli { command: Command::Run(_) | Command::Keeper(_) })) {
        interrupt::install();
    }
    let done = match parsed {
        Ok(cli) => run(&cli.command),
        // Help and the version are asked for, and no mistake.
        Err(error) if !error.use_stderr() => output::print(&error.render().to_string()),
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            output::tell(&error.to_string());
            return Status::Usage.into();
        }
        Err(error) => Err(failure::from_clap(&error)),
    };
    match done {
        Ok(()) => Status::Done.into(),
        Err(failure) => {
            failure.tell();
            failure.status.into()
        }
    }
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Replay(replay) => replay::command(replay),
        Command::Compare(compare) => compare::command(compare),
        Command::Sweep(given) => sweep::command(given),
        Command::Profile(profile) => drive::command(profile),
        Command::Trace(trace) => trace::command(trace),
        Command::Log(log) => log::command(log),
        Command::Experiment(experiment) => experiment::command(experiment),
        Command::Probe(probe) => probe::command(probe),
        Command::Serve(serve) => served::serve(serve),
        Command::LogDevice(of) => log_device::command(of),
        Command::Status(status) => status::command(status),
        Command::Fault(of) => fault::command(of),
        Command::Mount(of) => mount::command(of),
        Command::CrashTest(of) => crash_test::command(of),
        Command::Cluster(of) => cluster::command(of),
        Command::Group(of) => group::command(of),
        Command::Keeper(of) => keeper::command(of),
        Command::Nvme(nvme) => nvme::command(nvme),
        Command::Fast(fast) => nvme::fast::command(fast),
        Command::Window(window) => nvme::window::command(window),
        Command::Rerun(rerun) => served::rerun(rerun),
        Command::Run(given) => run::run(given),
        Command::Bench(of) => bench::command(of),
        Command::Recover(given) => run::recover(given),
        Command::Drain(given) => run::drain(given),
        Command::Check(given) => run::check(given),
        Command::Tail(given) => tail::command(given),
        Command::Report(report) => report::command(report),
        Command::Completions(completions) => completions::command(completions),
        Command::Man(man) => generate::man(man),
    }
}

/// A bug of ours, in words that help to repair it; nothing half-written stays.
fn bug(panic: &std::panic::PanicHookInfo<'_>) {
    output::remove_unfinished();
    let payload = panic.payload();
    let what = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
    let place = panic.location().map(|place| format!(" at {}:{}", place.file(), place.line())).unwrap_or_default();
    Failure::run(format_args!("internal error in Tidewater{place}: {}", what.unwrap_or("it cannot continue")))
        .help("please report it with the command line")
        .tell();
    std::process::exit(Status::Failed as i32);
}
