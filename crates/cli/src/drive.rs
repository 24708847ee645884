//! Profiles: found by name or path, changed by `--set`, listed, shown and checked.

use crate::args::{ProfileCommand, Setting};
use crate::failure::{Failure, reason};
use crate::output;
use std::fmt::Write as _;
use std::path::Path;
use tidewater_core::profile::{self, Profile};

/// A drive and how it came to be.
#[derive(Clone, Debug)]
pub struct Drive {
    /// The drive.
    pub profile: Profile,
    /// What was changed, as `KEY=VALUE`, in the order it was given.
    pub changed: Vec<String>,
    /// What a reader of its results should know.
    pub notes: Vec<String>,
}

/// The profile of that name, or in that file.
///
/// # Errors
/// When there is neither, or the file is wrong.
pub fn find(given: &Path) -> Result<Profile, Failure> {
    let name = given.display().to_string();
    if let Some(profile) = given.to_str().and_then(profile::builtin) {
        return Ok(profile);
    }
    let is_path = given.components().count() > 1 || given.extension().is_some() || given.exists();
    if !is_path {
        let failure = Failure::usage(format_args!("there is no profile `{name}`"));
        return Err(match meant(&name, profile::names()) {
            Some(meant) => {
                failure.help(format_args!("did you mean `{meant}`? `tidewater profile list` names them all"))
            }
            None => {
                failure.help("`tidewater profile list` names them all; a profile of your own is the path of its file")
            }
        });
    }
    let text = read(given)?;
    Profile::parse(&text, &name).map_err(Failure::refused)
}

/// The profile with these changes, checked as a whole.
///
/// # Errors
/// When there is no such profile, a key or value is wrong, or the settings cannot stand together.
pub fn prepare(given: &Path, settings: &[Setting]) -> Result<Drive, Failure> {
    change(find(given)?, settings)
}

/// A profile with these changes, checked as a whole.
///
/// # Errors
/// As [`prepare`].
pub fn change(mut profile: Profile, settings: &[Setting]) -> Result<Drive, Failure> {
    for Setting { key, value } in settings {
        profile.set(key, value).map_err(|error| refusal(&profile, error))?;
    }
    let notes = profile.check().map_err(|error| refusal(&profile, error))?;
    let changed = settings.iter().map(Setting::to_string).collect();
    Ok(Drive { profile, changed, notes: notes.iter().map(ToString::to_string).collect() })
}

fn refusal(profile: &Profile, error: profile::ProfileError) -> Failure {
    let failure = Failure::refused(&error);
    match &*error.problem {
        profile::Problem::UnknownKey { meant: None } => {
            failure.help(format_args!("`tidewater profile show {}` lists every key", profile.name))
        }
        profile::Problem::Value { meant: None, .. } => failure
            .help(format_args!("`tidewater profile show {}` lists every key with a value that it takes", profile.name)),
        _ => failure,
    }
}

/// The text of a file of ours: a profile or a record. What is large or no text is none.
pub fn read(path: &Path) -> Result<String, Failure> {
    let wrong = |why: &str| Failure::usage(format_args!("{}: {why}", path.display()));
    if path.is_dir() {
        return Err(wrong("is a folder"));
    }
    let bytes = std::fs::read(path).map_err(|error| wrong(&reason(&error)))?;
    String::from_utf8(bytes).map_err(|_| wrong("is not text (UTF-8)"))
}

/// The candidate closest to what was written, when it is close enough to be a slip of the hand.
pub fn meant<'a>(written: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|candidate| (strsim::jaro_winkler(written, candidate), candidate))
        .filter(|(likeness, _)| *likeness >= 0.78)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// `tidewater profile`.
///
/// # Errors
/// What the commands refuse.
pub fn command(command: &ProfileCommand) -> Result<(), Failure> {
    match command {
        ProfileCommand::List => list(),
        ProfileCommand::Show { profile, set } => output::print(&prepare(profile, set)?.profile.show()),
        ProfileCommand::Check { profiles, set } => {
            for given in profiles {
                let drive = prepare(given, set)?;
                let mut text = format!("{}: ok ({})\n", given.display(), drive.profile.description);
                for note in &drive.notes {
                    let _ = writeln!(text, "  note: {note}");
                }
                output::print(&text)?;
            }
            Ok(())
        }
    }
}

fn list() -> Result<(), Failure> {
    let width = profile::names().map(str::len).max().unwrap_or(0);
    let mut text = String::new();
    for profile in profile::names().filter_map(profile::builtin) {
        let _ = writeln!(text, "{:width$}  {}", profile.name, profile.description);
    }
    output::print(&text)
}
