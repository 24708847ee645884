//! Whether the runs that a folder keeps are of the study that is to be made there.

use super::{Folder, Index, Kept, Named};
use crate::Failure;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use tidewater_base::units::plural;

/// Inputs that determine a run, besides the build that makes it.
#[derive(Default)]
struct Essence<'a> {
    /// Load, options and seed.
    lines: Vec<&'a str>,
    /// Settings of the drive.
    set: BTreeMap<&'a str, &'a str>,
}

impl<'a> Essence<'a> {
    fn of(decided_by: &'a [String]) -> Essence<'a> {
        let mut essence = Essence::default();
        for line in decided_by {
            match line.split_once(' ').unwrap_or((line, "")) {
                ("version" | "build", _) => {}
                ("set", setting) => {
                    let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
                    essence.set.insert(key, value);
                }
                _ => essence.lines.push(line),
            }
        }
        essence
    }

    /// Whether it is the same run. Builds may know different settings: those that both have decide.
    fn is_same(&self, other: &Essence<'_>) -> bool {
        let agrees = |(key, value): (&&str, &&str)| other.set.get(*key).is_none_or(|of_other| of_other == value);
        self.lines == other.lines && self.set.iter().all(agrees)
    }
}

/// Takes the folder for these runs, and writes its index. A study may grow or shrink there, and another build may make
/// its runs again; results of a study with which this one has no run in common stay as they are.
///
/// # Errors
/// When the folder holds another study, can't be read, or can't be written.
pub fn begin(runs: &[Named], folder: &Folder) -> Result<(), Failure> {
    for run in runs {
        if folder.state(&run.name)?.is_some() {
            return folder.write_index(&Index::of(runs));
        }
    }
    let kept = folder.names()?;
    if !kept.is_empty() {
        let mut mine: HashMap<Vec<&str>, Vec<Essence<'_>>> = HashMap::new();
        for run in runs {
            let essence = Essence::of(&run.decided_by);
            mine.entry(essence.lines.clone()).or_default().push(essence);
        }
        let mut first = None;
        for name in &kept {
            let Some(run) = folder.read(name)? else { continue };
            let essence = Essence::of(&run.decided_by);
            if mine.get(&essence.lines).is_some_and(|mine| mine.iter().any(|own| own.is_same(&essence))) {
                return folder.write_index(&Index::of(runs));
            }
            first = first.or(Some(run));
        }
        if let Some(first) = first {
            return Err(another(folder.root(), kept.len(), &first));
        }
    }
    folder.write_index(&Index::of(runs))
}

fn another(root: &Path, runs: usize, first: &Kept) -> Failure {
    let what = first
        .record
        .as_ref()
        .map_or_else(String::new, |record| format!(" of {} on {}", record.workload.source, record.profile.name));
    let label = if first.label.is_empty() { String::new() } else { format!(", such as \"{}\"", first.label) };
    Failure::usage(format_args!(
        "{}: holds another study: {}{what}{label}; this sweep has none of them",
        root.display(),
        plural(runs as u64, "run")
    ))
    .help(format_args!("give another directory with --out, or remove {} if its results are not needed", root.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[&str]) -> Vec<String> {
        text.iter().map(|&line| line.to_owned()).collect()
    }

    #[test]
    fn a_run_is_the_same_whatever_build_makes_it() {
        let base = lines(&["version 1", "build a", "set nand.channels=2", "job x", "seed 1"]);
        let same = |other: &[&str]| Essence::of(&base).is_same(&Essence::of(&lines(other)));
        assert!(same(&["version 1", "build b", "set nand.channels=2", "job x", "seed 1"]));
        assert!(same(&["version 2", "build b", "set nand.channels=2", "set nand.new=1", "job x", "seed 1"]));
        assert!(!same(&["version 1", "build a", "set nand.channels=4", "job x", "seed 1"]));
        assert!(!same(&["version 1", "build a", "set nand.channels=2", "job x", "seed 2"]));
        assert!(!same(&["version 1", "build a", "set nand.channels=2", "job x", "queue-depth 2", "seed 1"]));
    }
}
