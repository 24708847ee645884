//! `tidewater recover --onto`: a log replayed onto a copy of its files, on another machine.

use super::{cut_rings_are_errors, globs, log_help, recovered, with_help};
use crate::args::files::{LaneOf, OntoDirectory, Recover};
use crate::failure::{Failure, printable};
use crate::output::{self, tell};
use crate::{interrupt, socket};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidewater_client::LogError;
use tidewater_client::mapped::{Log, Options, Reader};
use tidewater_files::{Onto, OntoRules, PATIENCE, ReplayError, Replayed, Rules, recover_onto, replay_onto};

/// How often a follower asks its device whether there is more.
const LOOK: Duration = Duration::from_millis(50);

/// A directory of a copy, as the replay wants it.
fn directory(of: &OntoDirectory) -> Result<Onto, Failure> {
    let real = untouched(&of.new).map_err(|why| Failure::usage(format_args!("--onto: {why}")))?;
    let to = real.canonicalize().ok().filter(|to| to.is_dir());
    let to = to.ok_or_else(|| {
        Failure::usage(format_args!("--onto: {} is no directory", of.new.display()))
            .help("restore the copy of the files there first")
    })?;
    Ok(Onto { from: of.old.clone(), to })
}

/// A path without the symbolic links on its way, which are followed where they are this user's or root's: another user
/// could have the log replayed somewhere else.
fn untouched(path: &Path) -> Result<PathBuf, String> {
    /// As many as the system follows (path_resolution(7)).
    const LINKS_MAX: usize = 40;
    let mut path = std::path::absolute(path).map_err(|error| error.to_string())?;
    let me = nix::unistd::geteuid().as_raw();
    for _ in 0..LINKS_MAX {
        let about = |part: &Path| part.symlink_metadata().ok().filter(std::fs::Metadata::is_symlink);
        let parts: Vec<PathBuf> = path.ancestors().map(Path::to_owned).collect();
        let Some((link, about)) = parts.iter().rev().find_map(|part| Some((part, about(part)?))) else {
            return Ok(path);
        };
        if ![0, me].contains(&about.uid()) {
            return Err(format!(
                "{} is a symbolic link of user {}, which is not followed",
                link.display(),
                about.uid()
            ));
        }
        let (to, rest) = (link.read_link().map_err(|error| error.to_string())?, path.strip_prefix(link));
        let rest = rest.map(Path::to_owned).unwrap_or_default();
        path = link.parent().unwrap_or(link).join(to).join(rest);
    }
    Err(format!("{} has too many symbolic links", path.display()))
}

fn rules_of(given: &Recover) -> Result<OntoRules, Failure> {
    let globs = if given.globs.is_empty() { None } else { Some(globs(&given.globs)?) };
    let owners = given.owners.allowed.clone();
    let rules = Rules { globs, owners, forget: given.forget, adopt: given.adopt, dry: given.dry_run };
    let onto = given.onto.iter().map(directory).collect::<Result<_, _>>()?;
    Ok(OntoRules { onto, copied_at: given.copied_at, rules })
}

fn refused(error: &ReplayError, lane: &LaneOf) -> Failure {
    if let ReplayError::Refused(report) = error {
        let _ = output::print(&recovered(report, false));
    }
    let failure = Failure::run(printable(&error.to_string()));
    match error {
        ReplayError::Older { .. } => failure.help(
            "take a newer copy. To keep the log for a copy, serve the replica with --hold-log and run `tidewater \
             recover --follow` on it",
        ),
        ReplayError::Log(LogError::Cut { .. }) => {
            failure.help("the copy has bytes that the log has not, or is of another log: take a new copy of the files")
        }
        ReplayError::Refused(_) => failure.help("mend each file as its line says; nothing was changed"),
        error => with_help(failure, error, lane),
    }
}

/// `tidewater recover --onto`.
///
/// # Errors
/// A log that can't be read, or a file that can't be touched.
pub fn recover(given: &Recover) -> Result<(), Failure> {
    let rules = rules_of(given)?;
    if given.log.device.starts_with("window:") {
        return Err(Failure::usage("--onto: a log in a byte window has no replicas"));
    }
    socket::wait_for(&given.log.device);
    if given.follow {
        return follow(given, &rules);
    }
    cut_rings_are_errors()?;
    let opened = |error: LogError| log_help(Failure::run(printable(&error.to_string())), &error, &given.log);
    let owners = given.owners.allowed.clone().leak();
    let options = Options { lane: given.log.lane, full: PATIENCE, timeout: PATIENCE, owners, ..Options::default() };
    let log = Log::open(&given.log.device, options).map_err(opened)?;
    let report = recover_onto(&log, &rules).map_err(|error| refused(&error, &given.log))?;
    output::print(&recovered(&report, given.dry_run))
}

/// Keeps a copy up to date while the log arrives.
fn follow(given: &Recover, rules: &OntoRules) -> Result<(), Failure> {
    let _running = interrupt::Running::begin();
    let opened = |error: LogError| log_help(Failure::run(printable(&error.to_string())), &error, &given.log);
    let mut log = Reader::open(&given.log.device, given.log.lane).map_err(opened)?;
    let mut seen = None;
    while !interrupt::requested() {
        let extent = log.extent().map_err(|error| refused(&error.into(), &given.log))?;
        if !extent.is_secondary {
            tell(&format!(
                "the device is no replica any more: complete the copy with `tidewater recover --device {} --onto …`\n",
                given.log.shown()
            ));
            break;
        }
        if seen == Some(extent.end) {
            std::thread::sleep(LOOK);
            continue;
        }
        let replayed = replay_onto(&mut log, rules).map_err(|error| refused(&error, &given.log))?;
        let Replayed { report, position: Some(position) } = replayed else { continue };
        if seen.is_none() {
            tell(&format!("{}following from offset {}\n", recovered(&report, false), position.applied));
        }
        seen = Some(extent.end);
        log.release(position.from).map_err(opened)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_the_log_is_absolute_and_that_of_the_copy_is_there() {
        let parsed = |text: &str| text.parse::<OntoDirectory>();
        assert!(parsed("a=b").is_err_and(|why| why.contains("absolute")));
        assert!(parsed("/a").is_err() && parsed("/a=").is_err());
        let both = parsed("/a//b/=/").expect("both folders are named");
        assert_eq!(directory(&both).expect("the folder exists"), Onto { from: "/a/b".into(), to: "/".into() });
        assert!(directory(&parsed("/a=/no/such").expect("the argument is a pair")).is_err());
    }
}
