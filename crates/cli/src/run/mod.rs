//! `tidewater run`, `recover` and `drain`: the files of an unmodified program on a log.

mod check;
mod matches;
mod onto;
mod program;
mod unseen;

use crate::args::files::{Drain, LaneOf, LevelName, OnDeviceLoss, Recover, Run as Given};
use crate::args::log_device::{folder_of, is_one};
use crate::failure::{Failure, printable, reason};
use crate::output::{self, tell};
use crate::socket;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tidewater_base::units::bytes;
use tidewater_client::hardware::WindowLog;
use tidewater_client::mapped::{Log, Options, survive_cut_rings};
use tidewater_client::{Level, LogError};
use tidewater_files::{AnyLog, Ended, Fate, Globs, PATIENCE, ReplayError, Report, Rules, Run, RunError, Setup, TICK};

/// Signals that are the program's.
const PASSED_ON: [Signal; 7] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCONT,
];

/// Of these, those that end a wait for the device.
const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
/// How often it is asked for meanwhile, in milliseconds.
const ASK_EACH: u8 = 100;

fn globs(patterns: &[String]) -> Result<Globs, Failure> {
    let here = std::env::current_dir().map_err(|error| Failure::usage(reason(&error)))?;
    Globs::new(patterns, &here)
        .map_err(|error| Failure::usage(error.to_string()).help("give paths such as 'data/pg_wal/*'"))
}

/// The pattern that the shell expanded, if the program's name is a file that it found: `--log q*.log -- CMD` comes as
/// `--log q1.log q2.log -- CMD`.
fn unquoted(given: &Given) -> Option<String> {
    let second = given.command.first()?.to_str()?;
    let first = given.globs.last().filter(|glob| !glob.contains(['*', '?', '[']))?;
    if !given.command.iter().any(|word| word == "--") && !std::path::Path::new(second).is_file() {
        return None;
    }
    let alike =
        |a: &str, b: &str| a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect::<String>();
    let start = alike(first, second);
    let reversed = |text: &str| text[start.len()..].chars().rev().collect::<String>();
    let end: String = alike(&reversed(first), &reversed(second)).chars().rev().collect();
    Some(format!("{start}*{end}"))
}

/// `tidewater run`.
///
/// # Errors
/// A program that can't be started, or files that are not as they should be.
pub fn run(given: &Given) -> Result<(), Failure> {
    let (name, arguments) =
        given.command.split_first().ok_or_else(|| Failure::usage("the program to run is missing"))?;
    let path = program::find(name).map_err(|failure| match unquoted(given) {
        Some(pattern) => failure.help(format_args!("quote the pattern, or the shell expands it: --log '{pattern}'")),
        None => failure,
    })?;
    program::check(&path)?;
    let shim = program::shim()?;
    let level = given.level.map(|level| match level {
        LevelName::Ring => Level::Ring,
        LevelName::Destaged => Level::Destaged,
        LevelName::RemoteRing => Level::RemoteRing,
        LevelName::RemoteDestaged => Level::RemoteDestaged,
    });
    let setup = Setup {
        target: given.log.device.clone(),
        lane: given.log.lane,
        level,
        globs: globs(&given.globs)?,
        owners: given.owners.allowed.clone(),
        forget: given.forget,
        adopt: given.adopt,
    };
    // Before there is another thread: each inherits the mask of its creator.
    let mut blocked = SigSet::empty();
    PASSED_ON.iter().chain([&Signal::SIGCHLD]).for_each(|signal| blocked.add(*signal));
    let failed = |what: &'static str| move |errno: Errno| Failure::run(format_args!("can't {what}: {}", errno.desc()));
    blocked.thread_block().map_err(failed("take signals"))?;
    let signals = SignalFd::with_flags(&blocked, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
    let mut signals = signals.map_err(failed("take signals"))?;
    // Orphans of the program become children of this process: the log is drained when the last one has ended.
    prctl::set_child_subreaper(true).map_err(failed("become the parent of the program's orphaned processes"))?;

    cut_rings_are_errors()?;
    let begun = start(&setup, given, &mut signals)?;
    let (run, report) = begun.map_err(|error| refused(&error, &given.log, &setup.globs))?;
    if given.on_device_loss == OnDeviceLoss::Sync {
        run.leave_when_lost().map_err(|why| Failure::usage(format_args!("--on-device-loss sync: {why}")))?;
    }
    let say = |text: &str| {
        if !given.quiet {
            tell(text);
        }
    };
    if report.new > 0 {
        say(&recovered(&report, false));
    }
    say(&format!("fsync on matching files returns at {}, which survives {}\n", run.level(), run.survives()));
    let here = std::env::current_dir().unwrap_or_default();
    let (is_matched, line) = matches::now(&setup.globs, &here);
    say(&format!("{}\n", printable(&line)));
    let device = folder_of(&given.log.device).and_then(|folder| folder.canonicalize().ok());
    let misses = matches::Misses::new(device, is_matched || given.quiet);
    if given.owners.allowed.is_empty() && !report.others.is_empty() {
        say(&of_others(&report.others));
    }
    if program::is_go(&path) {
        say(&format!("note: {}\n", printable(&unseen::of_go(&path))));
    }
    let run = Arc::new(run);
    let answers = Arc::clone(&run);
    std::thread::spawn(move || answers.hand_over());

    let mut preload = shim.into_os_string();
    if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
        preload.push(":");
        preload.push(before);
    }
    let mut command = Command::new(&path);
    set_name(&mut command, name);
    command.args(arguments).env("LD_PRELOAD", preload).envs(run.environment());
    // A program inherits the mask of its parent, and would never get the signals passed on.
    blocked.thread_unblock().map_err(failed("give signals back"))?;
    let started = command.spawn();
    blocked.thread_block().map_err(failed("take signals"))?;
    let child = started.map_err(|error| Failure::usage(format_args!("{}: {}", path.display(), reason(&error))))?;
    let child = Pid::from_raw(child.id() as i32);

    let (status, failure) = look_after(&run, child, &mut signals, given.quiet, misses)?;
    let ended = match failure {
        None => run.finish(),
        Some(error) => Err(error),
    };
    let status = match ended {
        Ok(ended) => {
            say(&if run.left_because().is_some() { left_behind(&given.log) } else { drained(&ended) });
            if ended.entered == 0 {
                say(&nothing_matched(&setup.globs));
                if given.must_match && status == 0 {
                    return Err(Failure::run("--log matched no file that the program wrote")
                        .help(format_args!("--log names {}", printable(&setup.globs.patterns().join(" or ")))));
                }
            }
            status
        }
        Err(error) => {
            let next = match error.is_of_group() {
                true => "see `tidewater cluster group status`; then",
                false => "start the device again, then",
            };
            Failure::run(format_args!("{}", printable(&error.to_string())))
                .help(format_args!(
                    "all acknowledged writes are in the ring and on the device: {next} run `tidewater recover --device \
                     {} --lane {}`",
                    given.log.shown(),
                    given.log.lane
                ))
                .tell();
            if status == 0 { 1 } else { status }
        }
    };
    match status {
        0 => Ok(()),
        status => std::process::exit(status),
    }
}

/// Begins a run, once its device is there. A signal that would end the program ends the wait.
fn start(setup: &Setup, given: &Given, signals: &mut SignalFd) -> Result<Result<(Run, Report), RunError>, Failure> {
    let Some(limit) = given.wait.map(|limit| Duration::from_nanos(limit.as_ns())) else {
        socket::wait_for(&given.log.device);
        return Ok(Run::start(setup));
    };
    let begin = Instant::now();
    let mut is_said = given.quiet;
    loop {
        let begun = Run::start(setup);
        let Some(why) = begun.as_ref().err().filter(|error| is_absent(error)) else { return Ok(begun) };
        if begin.elapsed() >= limit {
            tell(&format!("note: waited {} s for the device (--wait)\n", limit.as_secs_f64()));
            return Ok(begun);
        }
        if !std::mem::replace(&mut is_said, true) {
            let why = printable(&why.to_string());
            tell(&format!("note: {why}; waiting up to {} s for the device (--wait)\n", limit.as_secs_f64()));
        }
        let mut waited = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut waited, ASK_EACH);
        while let Ok(Some(signal)) = signals.read_signal() {
            if let Some(number) = ENDING.iter().find(|number| **number as u32 == signal.ssi_signo) {
                return Err(Failure::run(format_args!("{number} ended the wait for the device (--wait)")));
            }
        }
    }
}

/// Whether it is only that no device is there yet, or no primary.
fn is_absent(error: &RunError) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, NotFound};
    match error {
        RunError::Log(LogError::Unreachable { error, .. }) => matches!(error.kind(), ConnectionRefused | NotFound),
        RunError::Log(LogError::NoPrimary { .. } | LogError::Cluster { .. }) => true,
        _ => false,
    }
}

/// The program sees the name that it was called by.
fn set_name(command: &mut Command, name: &OsString) {
    use std::os::unix::process::CommandExt as _;
    command.arg0(name);
}

/// Until the program and all that it started have ended. Its exit status, and what went wrong with its log meanwhile.
fn look_after(
    run: &Run,
    child: Pid,
    signals: &mut SignalFd,
    quiet: bool,
    mut misses: matches::Misses,
) -> Result<(i32, Option<RunError>), Failure> {
    let mut status = None;
    let mut failure = None;
    let mut announced = false;
    let mut left = false;
    let mut unseen = unseen::Unseen::default();
    let here = std::env::current_dir().unwrap_or_default();
    loop {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == child => status = Some(code),
                // As shells count it.
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => status = Some(128 + signal as i32),
                Ok(WaitStatus::StillAlive) => break,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::ECHILD) => return Ok((status.unwrap_or(1), failure)),
                Err(errno) => return Err(Failure::run(format_args!("can't wait for the program: {}", errno.desc()))),
            }
        }
        if status.is_some() && !announced && !quiet {
            announced = true;
            tell("the program has exited, but child processes are still running: the log stays open until they exit\n");
        }
        if failure.is_none()
            && let Err(error) = run.tick()
        {
            if let RunError::Held = error {
                tell(&format!("note: {error}\n"));
                continue;
            }
            let said = printable(&error.to_string());
            tell(&format!("error: {said}; fsync of the program's files fails from now on\n"));
            failure = Some(error);
        }
        if let Some(why) = run.left_because().filter(|_| !left) {
            left = true;
            tell(&format!(
                "warning: {why}: all files are synced, and from now on fsync syncs each file by itself \
                 (--on-device-loss sync)\n"
            ));
        }
        let found = unseen.look(run);
        let missed = if quiet { None } else { misses.look(run, &here) };
        for note in run.take_notes().into_iter().chain(found).chain(missed).filter(|_| !quiet) {
            tell(&format!("note: {}\n", printable(&note)));
        }
        let mut waited = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waited, PollTimeout::try_from(TICK).unwrap_or(PollTimeout::MAX)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(Failure::run(format_args!("can't wait for signals: {}", errno.desc()))),
        }
        while let Ok(Some(signal)) = signals.read_signal() {
            let number = Signal::try_from(signal.ssi_signo as i32).ok().filter(|number| PASSED_ON.contains(number));
            // A terminal sends its signals to the whole group, and the program is in it (SI_KERNEL).
            const FROM_KERNEL: i32 = 0x80;
            if let Some(number) = number
                && signal.ssi_code != FROM_KERNEL
                && status.is_none()
            {
                let _ = kill(child, number);
            }
        }
    }
}

/// Whose files recovery changes, if another user can write the log.
fn of_others(others: &[u32]) -> String {
    let others: Vec<String> = others.iter().map(u32::to_string).collect();
    format!(
        "note: the log belongs to user {}: recovery after a crash changes only files of that user, unless \
         --allow-owner USER names others\n",
        others.join(" and user ")
    )
}

fn refused(error: &RunError, lane: &LaneOf, globs: &Globs) -> Failure {
    if let RunError::Replay(ReplayError::Refused(report)) = error {
        tell(&recovered(report, false));
    }
    let failure = Failure::run(printable(&error.to_string()));
    match error {
        RunError::Log(LogError::Unreachable { .. }) if check::depends(globs) => {
            failure.help(check::depends_help(globs))
        }
        RunError::Replay(error) => with_help(failure, error, lane),
        RunError::Log(error) => log_help(failure, error, lane),
        RunError::Foreign(all) => failure.help(check::help(all, true)),
        _ => failure,
    }
}

fn log_help(failure: Failure, error: &LogError, lane: &LaneOf) -> Failure {
    let of_folder = folder_of(&lane.device).is_some();
    match error {
        LogError::Busy { .. } | LogError::Gone | LogError::Taken if of_folder => {
            failure.help("a log device serves one program at a time: stop the other one, or start another log device")
        }
        LogError::Busy { .. } => {
            failure.help("a lane serves one program at a time: stop the other one, or use another --lane")
        }
        LogError::Gone | LogError::Taken => failure.help(
            "a function serves one program at a time: stop the other one, or serve a second function with another \
             --vfio-user SOCKET",
        ),
        LogError::Unreachable { path, .. } => {
            let is_one = folder_of(&lane.device).is_some_and(is_one);
            let start = || match is_one {
                true => format!("start the device: tidewater log-device {}", lane.shown()),
                // A new device there would be without the log of these files.
                false => "start the device as it was started before (a new one: `tidewater log-device --help`)".into(),
            };
            failure.help(socket::advice(path).unwrap_or_else(start))
        }
        _ => failure,
    }
}

fn with_help(failure: Failure, error: &ReplayError, lane: &LaneOf) -> Failure {
    match error {
        ReplayError::Log(error) => log_help(failure, error, lane),
        ReplayError::Refused(report) if report.files.iter().any(|file| matches!(file.fate, Fate::Refused(_))) => {
            failure.help(format_args!(
                "mend each file as its line says; to discard their changes on this log: tidewater recover --device {} \
                 --lane {} --forget (with --adopt instead, they are written against what a marker says)",
                lane.shown(),
                lane.lane
            ))
        }
        ReplayError::Refused(_) => failure.help(format_args!(
            "restore the files (is a file system not mounted?), or discard their changes: tidewater recover --device \
             {} \
             --lane {} --forget",
            lane.shown(),
            lane.lane
        )),
        _ => failure,
    }
}

/// The ring may be another user's, who can cut it at any moment.
fn cut_rings_are_errors() -> Result<(), Failure> {
    survive_cut_rings().map_err(|error| Failure::run(printable(&error.to_string())))
}

/// Replays.
fn replay(lane: &LaneOf, rules: &Rules) -> Result<Report, Failure> {
    let opened = |error: LogError| log_help(Failure::run(printable(&error.to_string())), &error, lane);
    cut_rings_are_errors()?;
    let log: AnyLog = if lane.device.starts_with("window:") {
        Box::new(WindowLog::open(&lane.device).map_err(opened)?)
    } else {
        // As patient as a run: a device that stands still for a while loses nothing.
        let owners = rules.owners.clone().leak();
        let options = Options { lane: lane.lane, full: PATIENCE, timeout: PATIENCE, owners, ..Options::default() };
        Box::new(Log::open(&lane.device, options).map_err(opened)?)
    };
    tidewater_files::recover(&log, lane.lane, rules).map_err(|error| {
        if let ReplayError::Refused(report) = &error {
            let _ = output::print(&recovered(report, false));
        }
        with_help(Failure::run(printable(&error.to_string())), &error, lane)
    })
}

/// `tidewater recover`.
///
/// # Errors
/// A log that can't be read, or a file that can't be touched.
pub fn recover(given: &Recover) -> Result<(), Failure> {
    if !given.onto.is_empty() {
        return onto::recover(given);
    }
    socket::wait_for(&given.log.device);
    let globs = if given.globs.is_empty() { None } else { Some(globs(&given.globs)?) };
    let owners = given.owners.allowed.clone();
    let rules = Rules { globs, owners, forget: given.forget, adopt: given.adopt, dry: given.dry_run };
    let report = replay(&given.log, &rules)?;
    output::print(&recovered(&report, given.dry_run))
}

pub use check::check;

/// `tidewater drain`.
///
/// # Errors
/// As [`recover`]; a program that runs is not drained.
pub fn drain(given: &Drain) -> Result<(), Failure> {
    socket::wait_for(&given.log.device);
    let owners = given.owners.allowed.clone();
    let report = replay(&given.log, &Rules { owners, forget: given.forget, adopt: given.adopt, ..Rules::default() })?;
    let mut text = recovered(&report, false);
    let _ = writeln!(text, "the log of lane {} is empty: its files no longer depend on the device", given.log.lane);
    output::print(&text)
}

fn plural(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// Summary of a recovery.
fn recovered(report: &Report, dry: bool) -> String {
    let mut text = String::new();
    let is_empty = report.new == 0 && report.unbound == 0 && !report.ring_lost;
    if is_empty && !report.files.iter().any(|file| file.fate.is_bad()) {
        return "the log has no changes for any file\n".to_owned();
    }
    let span = report.to - report.from;
    let _ = writeln!(
        text,
        "log of {} (offsets {} to {}): {}, {} of them obsolete",
        bytes(span),
        report.from,
        report.to,
        plural(report.records, "record"),
        report.stale
    );
    if report.ring_lost {
        text += "  the ring that its run wrote to was lost, or its file replaced: what a sync promised at RING, and \
                 the device had not taken, is not in this log\n";
    }
    for file in &report.files {
        let path = printable(&file.path.display().to_string());
        let _ = match &file.fate {
            Fate::UpToDate if dry => writeln!(text, "  {path}: {} to replay", plural(file.records, "record")),
            Fate::UpToDate => {
                writeln!(text, "  {path}: {}, {}", plural(file.records, "record"), bytes(file.bytes))
            }
            Fate::Created if dry => writeln!(text, "  {path}: to create, {}", plural(file.records, "record")),
            Fate::Created => {
                writeln!(text, "  {path}: created, {}, {}", plural(file.records, "record"), bytes(file.bytes))
            }
            Fate::Removed => writeln!(text, "  {path}: removed since"),
            Fate::Left => writeln!(text, "  {path}: already synced"),
            Fate::Missing => {
                writeln!(text, "  {path}: MISSING, cannot replay {}", plural(file.records, "record"))
            }
            Fate::Refused(why) => writeln!(text, "  {path}: REFUSED, {}", printable(why)),
        };
    }
    let files: u64 = report
        .files
        .iter()
        .filter(|file| matches!(file.fate, Fate::UpToDate | Fate::Created))
        .map(|file| file.bytes)
        .sum();
    if files > span {
        let _ = writeln!(
            text,
            "  {} in files from a log of {}: the log leaves out zeroes and bytes equal to the write before",
            bytes(files),
            bytes(span)
        );
    }
    for (count, what) in
        [(report.unbound, "that match no file or no earlier bytes"), (report.foreign, "of other programs, skipped")]
    {
        if count > 0 {
            let _ = writeln!(text, "  {} {what}", plural(count, "record"));
        }
    }
    if report.skipped > 0 {
        let _ = writeln!(text, "  {} without a record, skipped", bytes(report.skipped));
    }
    text
}

/// Remaining step after a program has ended that went on without its device.
fn left_behind(lane: &LaneOf) -> String {
    format!(
        "the program went on without the device, and its files have everything: start the device again, and empty its \
         log with `tidewater recover --device {} --lane {}`, which changes no file\n",
        lane.shown(),
        lane.lane
    )
}

/// Summary of a run.
fn drained(ended: &Ended) -> String {
    if ended.entered == 0 {
        // The note on patterns without a match is all there is to say.
        return String::new();
    }
    let mut text = format!(
        "drained: {} on the log, {} written in {}, {} in all, {} that waited for it, {} of the log behind synced \
         files\n",
        plural(ended.entered, "file"),
        bytes(ended.written),
        plural(ended.records, "record"),
        bytes(ended.logged),
        plural(ended.waits, "sync"),
        plural(ended.checkpoints, "trim"),
    );
    if ended.left > 0 {
        let _ = writeln!(text, "{} left the log and were synced directly", plural(ended.left, "file"));
    }
    if ended.taken_over > 0 {
        let _ = writeln!(text, "{} of dead processes found and logged again", plural(ended.taken_over, "change"));
    }
    text
}

/// A pattern without a match is most likely a mistake: its files are flushed as without the log.
fn nothing_matched(globs: &Globs) -> String {
    format!(
        "note: the program opened no file for writing that --log matches: it names {}\n",
        printable(&globs.patterns().join(" or "))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewater_files::FileReport;

    #[test]
    fn a_pattern_that_the_shell_expanded_is_recognized() {
        use clap::Parser as _;
        let found = |line: &str| {
            let line = format!("tidewater run --device vfio-user:d.sock {line}");
            match crate::args::Cli::try_parse_from(line.split(' ')).unwrap().command {
                crate::args::Command::Run(given) => unquoted(&given),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(found("--log q1.log q2.log -- true").as_deref(), Some("q*.log"));
        assert_eq!(found("--log wal/0001 wal/0002 wal/0003 -- true").as_deref(), Some("wal/000*"));
        assert_eq!(found("--log aa.log a.log -- true").as_deref(), Some("a*.log"));
        assert_eq!(found("--log q*.log -- no-such-program"), None, "it is a pattern");
        assert_eq!(found("--log q1.log -- no-such-program"), None, "the program is misspelt");
    }

    #[test]
    fn sizes_have_units_and_files_larger_than_their_log_are_explained() {
        let file = |bytes: u64| FileReport { path: "app.db-wal".into(), fate: Fate::UpToDate, records: 3, bytes };
        let report = |bytes: u64| Report {
            from: 4_096,
            to: 4_096 + 1_864_768,
            records: 3,
            new: 3,
            files: vec![file(bytes)],
            ..Report::default()
        };
        let text = recovered(&report(28_568_304), false);
        assert!(
            text.starts_with("log of 1.78 MiB (offsets 4096 to 1868864): 3 records, 0 of them obsolete\n"),
            "{text}"
        );
        assert!(text.contains("app.db-wal: 3 records, 27.2 MiB\n"), "{text}");
        assert!(text.contains("27.2 MiB in files from a log of 1.78 MiB: the log leaves out zeroes"), "{text}");
        assert!(!recovered(&report(1_000_000), false).contains("leaves out"));
        let ended = Ended { entered: 1, written: 700, logged: 13_376, records: 103, ..Ended::default() };
        assert!(drained(&ended).contains("700 B written in 103 records, 13.1 KiB in all,"), "{}", drained(&ended));
    }
}
