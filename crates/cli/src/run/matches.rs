//! Which files the patterns of `--log` name: those that are there when a program starts, and, where none comes onto the
//! log, those that come near.

use super::unseen::{descendants, open_for_writing};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tidewater_files::{Globs, Run};

/// Names in folders that are looked at, at most.
const NAMES_MAX: usize = 10_000;
/// Levels of folders behind the first special character, at most.
const LEVELS_MAX: usize = 32;
/// Files that are named, and that are kept of those which do not match.
const NAMED_MAX: usize = 3;
const KEPT_MAX: usize = 256;
/// A program that has put no file on the log for so long, and has synced others, may have been given a wrong pattern.
const AFTER: Duration = Duration::from_secs(10);
/// Open files are looked at this often until then, and from then on.
const EVERY: Duration = Duration::from_secs(1);
const EVERY_LATER: Duration = Duration::from_secs(30);

/// The line at the start of a run, and whether a file matches.
pub fn now(globs: &Globs, here: &Path) -> (bool, String) {
    let (mut names, mut found) = (NAMES_MAX, BTreeSet::new());
    for pattern in globs.patterns() {
        let parts: Vec<&str> = pattern.split('/').collect();
        let fixed = parts.iter().take_while(|part| !part.contains(['*', '?', '['])).count();
        let levels = if pattern.contains("**") { LEVELS_MAX } else { parts.len() - fixed };
        // Absolute, so that the first part is empty.
        let base = format!("/{}", parts[1.min(fixed)..fixed].join("/"));
        walk(Path::new(&base), levels, &mut names, &mut |path| {
            if globs.matches(path.as_os_str().as_bytes()) {
                found.insert(path.to_owned());
            }
        });
    }
    let more = if names == 0 { " at least" } else { "" };
    let line = match (found.len(), found.first()) {
        (1..=NAMED_MAX, _) => format!("matches now: {}", listed(found.iter(), here)),
        (count, Some(first)) => format!("matches now: {count} files{more}, such as {}", shown(first, here)),
        (_, None) => format!("no file matches yet: --log names {}", globs.patterns().join(" or ")),
    };
    (!found.is_empty(), line)
}

/// Shows a path as the user gives it.
fn shown(path: &Path, here: &Path) -> String {
    path.strip_prefix(here).unwrap_or(path).display().to_string()
}

fn listed<'p>(paths: impl Iterator<Item = &'p PathBuf>, here: &Path) -> String {
    paths.map(|path| shown(path, here)).collect::<Vec<_>>().join(", ")
}

/// The files at and below a path, in no order, until `names` were looked at.
fn walk(path: &Path, levels: usize, names: &mut usize, found: &mut impl FnMut(&Path)) {
    let Some(left) = names.checked_sub(1) else { return };
    *names = left;
    let Ok(about) = fs::symlink_metadata(path) else { return };
    if about.is_file() {
        found(path);
    } else if about.is_dir() && levels > 0 {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            walk(&entry.path(), levels - 1, names, found);
        }
    }
}

/// Files that a run's program has open for writing beside the log, while none is on it.
#[derive(Debug)]
pub struct Misses {
    begin: Instant,
    next: Instant,
    seen: BTreeSet<PathBuf>,
    /// The folder of a log device, whose files are not the program's.
    device: Option<PathBuf>,
    is_over: bool,
}

impl Misses {
    /// Of a program that starts now. `device`: the folder of a log device. Where a file matches already, the patterns
    /// are right, and there is nothing to look for.
    pub fn new(device: Option<PathBuf>, matches_now: bool) -> Misses {
        let begin = Instant::now();
        Misses { begin, next: begin, seen: BTreeSet::new(), device, is_over: matches_now }
    }

    /// Looks at open files, if it is time to. Once: what may be wrong with the patterns.
    pub fn look(&mut self, run: &Run, here: &Path) -> Option<String> {
        let now = Instant::now();
        if self.is_over || now < self.next {
            return None;
        }
        let is_late = now >= self.begin + AFTER;
        self.next = now + if is_late { EVERY_LATER } else { EVERY };
        let so_far = run.so_far();
        if so_far.entered > 0 {
            self.is_over = true;
            return None;
        }
        // Where the program writes what this process writes, too.
        let ours: Vec<PathBuf> =
            [1, 2].iter().filter_map(|fd| fs::read_link(format!("/proc/self/fd/{fd}")).ok()).collect();
        let is_wanted = |path: &Path, _: &fs::Metadata| {
            let is_device_s = self.device.as_deref().is_some_and(|folder| path.starts_with(folder));
            path.exists()
                && !is_device_s
                && !ours.iter().any(|one| one == path)
                && !run.globs().matches(path.as_os_str().as_bytes())
        };
        for process in descendants(std::process::id()) {
            let left = KEPT_MAX.saturating_sub(self.seen.len());
            self.seen.extend(open_for_writing(process, is_wanted).into_iter().take(left));
        }
        if !is_late || so_far.ordered == 0 {
            return None;
        }
        self.is_over = true;
        let syncs = if so_far.ordered == 1 { "1 sync" } else { &format!("{} syncs", so_far.ordered) };
        let files = nearest(run.globs(), &self.seen, here);
        Some(format!(
            "no file is on the log after {} s, and {syncs} of other files went to their disk{files}",
            (now - self.begin).as_secs()
        ))
    }
}

/// Where a path would have been matched: how many of the last parts of a pattern it has, and the pattern that it needs.
fn nearness(pattern: &str, path: &Path) -> Option<(usize, PathBuf)> {
    let wanted: Vec<&str> = pattern.split('/').collect();
    let has: Vec<&str> = path.to_str()?.split('/').collect();
    let fits = |count: usize| {
        let tail = |parts: &[&str]| format!("/{}", parts[parts.len() - count..].join("/"));
        Globs::from_text(&tail(&wanted)).matches(tail(&has).as_bytes())
    };
    let count = (1..wanted.len().min(has.len())).take_while(|count| fits(*count)).last().unwrap_or(0);
    // That a name fits `*` says nothing.
    let is_any = wanted.last().is_some_and(|last| last.trim_matches('*').is_empty());
    if count > usize::from(is_any) {
        let parts = has[..has.len() - count].iter().chain(&wanted[wanted.len() - count..]).copied();
        return Some((1 + count, parts.collect::<Vec<_>>().join("/").into()));
    }
    // A file of another name, in a folder of this name: that file alone, since others there may not be for the log.
    let folder = |parts: &[&str]| parts.len().checked_sub(2).map(|at| parts[at].to_owned());
    (folder(&wanted) == folder(&has)).then(|| (1, path.to_owned()))
}

/// The files that come nearest to the patterns, and the pattern that one of them needs.
fn nearest(globs: &Globs, files: &BTreeSet<PathBuf>, here: &Path) -> String {
    let of = |path: &PathBuf| {
        let all = globs.patterns().iter().filter_map(|pattern| nearness(pattern, path));
        all.max_by_key(|(count, _)| *count)
    };
    let best = files.iter().filter_map(|path| Some((of(path)?, path))).max_by_key(|((count, _), _)| *count);
    match best {
        Some(((_, pattern), path)) => {
            format!(": {} is open for writing; did you mean --log '{}'?", shown(path, here), shown(&pattern, here))
        }
        None if files.is_empty() => String::new(),
        None => format!("; open for writing: {}", listed(files.iter().take(NAMED_MAX), here)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_match_are_named_and_many_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let here = folder.path().canonicalize().unwrap();
        fs::create_dir_all(here.join("db/deep/er")).unwrap();
        let globs = |pattern: &str| Globs::new(&[pattern.to_owned()], &here).unwrap();
        let (is_matched, said) = now(&globs("db/*.log"), &here);
        assert!(!is_matched);
        assert_eq!(said, format!("no file matches yet: --log names {}/db/*.log", here.display()));
        for name in ["db/1.log", "db/2.log", "db/2.sst", "db/deep/er/3.log"] {
            fs::write(here.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink(&here, here.join("db/again")).unwrap();
        assert_eq!(now(&globs("db/*.log"), &here), (true, "matches now: db/1.log, db/2.log".to_owned()));
        assert_eq!(now(&globs("db/2.log"), &here), (true, "matches now: db/2.log".to_owned()));
        assert_eq!(
            now(&globs("db/**/*.log"), &here),
            (true, "matches now: db/1.log, db/2.log, db/deep/er/3.log".to_owned())
        );
        fs::write(here.join("db/4.log"), "").unwrap();
        assert_eq!(now(&globs("db/**/*.log"), &here), (true, "matches now: 4 files, such as db/1.log".to_owned()));
    }

    #[test]
    fn the_nearest_miss_says_which_pattern_it_needs() {
        let near = |pattern: &str, files: &[&str]| {
            let here = Path::new("/home/me");
            let globs = Globs::from_text(&here.join(pattern).display().to_string());
            nearest(&globs, &files.iter().map(|file| here.join(file)).collect(), here)
        };
        let data = ["data/base/5/1259", "data/pg_wal/0001", "notes"];
        let meant = ": data/pg_wal/0001 is open for writing; did you mean --log 'data/pg_wal/0*'?";
        assert_eq!(near("pg_wal/0*", &data), meant);
        assert_eq!(near("date/pg_wal/0*", &data), meant);
        assert_eq!(near("pg_wal/*", &data), meant.replace("0*", "*"));
        assert_eq!(near("pg_wal/*.log", &data), meant.replace("0*", "0001"));
        assert_eq!(near("wal/*", &data), "; open for writing: data/base/5/1259, data/pg_wal/0001, notes");
        assert_eq!(near("wal/*", &[]), "");
    }
}
