//! Processes of a run whose calls are not seen: static programs, those of Go, those whose environment was cleared. What
//! they write to files of the log set passes by the log, and is to be known.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tidewater_files::Run;

use super::program;

/// How long after a look the next one comes, at first and at last.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Processes that are looked at, at most.
const PROCESSES_MAX: usize = 4096;

/// State of the search for them.
#[derive(Debug)]
pub struct Unseen {
    next: Instant,
    pause: Duration,
    /// Files that were open at the last look: one that is just being opened may come onto the log.
    found: BTreeSet<(u32, PathBuf)>,
    named: BTreeSet<PathBuf>,
}

impl Default for Unseen {
    fn default() -> Unseen {
        let (found, named) = (BTreeSet::new(), BTreeSet::new());
        Unseen { next: Instant::now(), pause: PAUSE_MIN, found, named }
    }
}

/// A program of Go that is started itself.
pub fn of_go(path: &Path) -> String {
    format!(
        "{} is a Go program: its Go code bypasses the log and syncs its files itself; only C libraries in it use the \
         log",
        path.display()
    )
}

impl Unseen {
    /// Looks for files of the set that a process has open for writing unseen, if it is time to. What is to be said,
    /// once of each file.
    pub fn look(&mut self, run: &Run) -> Vec<String> {
        let now = Instant::now();
        if now < self.next {
            return Vec::new();
        }
        self.next = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        let mut notes = Vec::new();
        let mut found = BTreeSet::new();
        for process in descendants(std::process::id()) {
            for path in open_files(process, run) {
                let file = (process, path);
                // Seen twice, it is not just being opened.
                if self.found.contains(&file)
                    && !self.named.contains(&file.1)
                    && let Some(why) = why_unseen(process)
                {
                    notes.push(format!(
                        "process {process} writes {} without the preload library ({why}): it bypasses the log and \
                         syncs \
                         the file itself",
                        file.1.display()
                    ));
                    self.named.insert(file.1.clone());
                }
                found.insert(file);
            }
        }
        if found.iter().any(|file| !self.found.contains(file)) {
            // The next look tells.
            (self.pause, self.next) = (PAUSE_MIN, now + PAUSE_MIN);
        }
        self.found = found;
        notes
    }
}

/// Processes that descend from one.
pub fn descendants(of: u32) -> Vec<u32> {
    let mut all = vec![of];
    let mut at = 0;
    while at < all.len() && all.len() < PROCESSES_MAX {
        let threads = fs::read_dir(format!("/proc/{}/task", all[at])).into_iter().flatten().flatten();
        for thread in threads {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            all.extend(children.split_ascii_whitespace().filter_map(|number| number.parse::<u32>().ok()));
        }
        at += 1;
    }
    all.split_off(1)
}

/// Files of the set that a process has open for writing, and that the log does not know.
fn open_files(process: u32, run: &Run) -> Vec<PathBuf> {
    let is_unknown = |path: &Path, about: &fs::Metadata| {
        run.globs().matches(path.as_os_str().as_bytes()) && !run.knows(about.dev(), about.ino())
    };
    open_for_writing(process, is_unknown)
}

/// Regular files that a process has open for writing, of those that are wanted.
pub fn open_for_writing(process: u32, is_wanted: impl Fn(&Path, &fs::Metadata) -> bool) -> Vec<PathBuf> {
    let folder = PathBuf::from(format!("/proc/{process}/fd"));
    let descriptors = fs::read_dir(&folder).into_iter().flatten().flatten();
    let path_of = |descriptor: fs::DirEntry| {
        let path = fs::read_link(descriptor.path()).ok()?;
        let about = fs::metadata(descriptor.path()).ok().filter(fs::Metadata::is_file)?;
        (is_wanted(&path, &about) && writes(process, &descriptor)).then_some(path)
    };
    descriptors.filter_map(path_of).collect()
}

/// Whether a descriptor is open for writing (proc(5), fdinfo).
fn writes(process: u32, descriptor: &fs::DirEntry) -> bool {
    let name = descriptor.file_name();
    let about = fs::read_to_string(Path::new(&format!("/proc/{process}/fdinfo")).join(name)).unwrap_or_default();
    let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).unwrap_or_default();
    flags & nix::libc::O_ACCMODE as u32 != nix::libc::O_RDONLY as u32
}

/// Why the calls of a process are not seen. `None`: they are, as far as it can be known.
fn why_unseen(process: u32) -> Option<&'static str> {
    let program = PathBuf::from(format!("/proc/{process}/exe"));
    let maps = fs::read(format!("/proc/{process}/maps")).ok()?;
    let has_shim = maps.windows(program::SHIM.len()).any(|part| part == program::SHIM.as_bytes());
    match has_shim {
        false if program::check(&program).is_err() => Some("no library can be preloaded into its program"),
        false => Some("LD_PRELOAD was cleared from its environment"),
        true if program::is_go(&program) => Some("Go code makes its system calls by itself"),
        true => None,
    }
}
