//! A drive as a study names it: a profile by name or by the path of its file, with settings changed.

use crate::{Failure, Setting, Subject, reason};
use std::path::{Path, PathBuf};
use tidewater_core::ftl::Precondition;
use tidewater_core::profile::{self, Profile};

/// A drive as it is asked for.
#[derive(Clone, Debug)]
pub struct DriveSpec {
    /// A built-in profile's name, or the path of a file.
    pub profile: PathBuf,
    /// Changes to the profile.
    pub set: Vec<Setting>,
    /// The usable size, in place of a setting of `drive.capacity`.
    pub capacity: Option<String>,
    /// History of the drive before the run.
    pub precondition: Precondition,
    /// Seed of every random choice.
    pub seed: u64,
}

impl DriveSpec {
    /// The drive that it asks for.
    ///
    /// # Errors
    /// As [`settings`] and [`prepare`].
    pub fn prepare(&self) -> Result<Drive, Failure> {
        prepare(&self.profile, &settings(&self.set, self.capacity.as_ref())?)
    }
}

/// A drive and how it came to be.
#[derive(Clone, Debug)]
pub struct Drive {
    /// The drive.
    pub profile: Profile,
    /// Its name, as `--profile` takes it: a built-in name, or the path of a file.
    pub name: String,
    /// Description in a line, with its origin and the differences from that.
    pub about: String,
    /// Changes, as `KEY=VALUE`, in the order they were given.
    pub changed: Vec<String>,
    /// Notes for readers of its results.
    pub notes: Vec<String>,
    /// The write policy in place of the profile's, where one from outside of the firmware was asked for:
    /// `python:MODULE:NAME@HASH`. A caller who has it gives it to the run ([`crate::Listeners::policy`]).
    pub outside: Option<String>,
}

/// The write policy from outside of the firmware that settings ask for, if the last word on it is one.
pub(crate) fn outside(settings: &[Setting]) -> Option<&str> {
    let last = settings.iter().rfind(|setting| setting.key == WRITE_POLICY)?;
    last.value.starts_with(OUTSIDE).then_some(last.value.as_str())
}

const WRITE_POLICY: &str = "buffer.write_policy";
/// How the name of such a policy begins.
const OUTSIDE: &str = "python:";

/// The profile of that name, or in that file.
///
/// # Errors
/// When there is neither, or the file is wrong.
pub fn find(given: &Path) -> Result<Profile, Failure> {
    look_up(given).map(|(profile, _)| profile)
}

/// The same, and for a file the built-in profile that it is a change of: the one whose name it has kept, else its base.
fn look_up(given: &Path) -> Result<(Profile, Option<Profile>), Failure> {
    let name = given.display().to_string();
    if let Some(profile) = given.to_str().and_then(profile::builtin) {
        return Ok((profile, None));
    }
    let is_path = given.components().count() > 1 || given.extension().is_some() || given.exists();
    if !is_path {
        let meant = meant(&name, profile::names());
        let subject = Subject::Profile { key: None, suggestion: meant.map(str::to_owned) };
        let failure = Failure::usage(format_args!("there is no profile `{name}`")).of(subject);
        return Err(match meant {
            Some(meant) => {
                failure.help(format_args!("did you mean `{meant}`? `tidewater profile list` names them all"))
            }
            None => {
                failure.help("`tidewater profile list` names them all; a profile of your own is the path of its file")
            }
        });
    }
    let text = read(given).map_err(|failure| if given.exists() { failure } else { absent(given, failure) })?;
    let profile = Profile::parse(&text, &name).map_err(|error| about(&error))?;
    let origin = profile::builtin(&profile.name).or_else(|| profile::base(&text));
    Ok((profile, origin))
}

/// A file that is not there: a built-in profile was perhaps meant, or one of the user's own is still to be made.
fn absent(given: &Path, failure: Failure) -> Failure {
    let stem = given.file_stem().unwrap_or_default().to_string_lossy();
    match meant(&stem, profile::names()) {
        Some(meant) => failure
            .help(format_args!("did you mean the built-in profile `{meant}`? `tidewater profile list` names them all")),
        None => failure.help(format_args!(
            "`tidewater profile list` names the built-in profiles; `tidewater profile show generic > {name}` makes a \
             file to edit",
            name = given.display()
        )),
    }
}

/// The settings that a command line gives with `--set` and `--capacity`.
///
/// # Errors
/// When both give the capacity.
pub fn settings(set: &[Setting], capacity: Option<&String>) -> Result<Vec<Setting>, Failure> {
    const KEY: &str = "drive.capacity";
    let Some(size) = capacity else { return Ok(set.to_vec()) };
    if set.iter().any(|setting| setting.key == KEY) {
        return Err(Failure::usage(format_args!("the capacity is given twice: by --capacity and as {KEY}"))
            .help("leave one of them out"));
    }
    Ok(set.iter().cloned().chain([Setting { key: KEY.into(), value: size.clone() }]).collect())
}

/// The profile with these changes, checked as a whole.
///
/// # Errors
/// When there is no such profile, a key or value is wrong, or the settings cannot stand together.
pub fn prepare(given: &Path, settings: &[Setting]) -> Result<Drive, Failure> {
    let (profile, origin) = look_up(given)?;
    let mut drive = change(profile, settings)?;
    if let Some(origin) = origin {
        drive.name = given.display().to_string();
        let own = if drive.profile.name == origin.name { String::new() } else { format!("{}: ", drive.profile.name) };
        let from = match few(&differences(&origin, &drive.profile)) {
            None => format!("as {}", origin.name),
            Some(changed) => format!("from {}; changed: {changed}", origin.name),
        };
        drive.about = format!("{own}{} ({from})", drive.profile.outline());
    }
    Ok(drive)
}

/// The profile in a text, as the built-in one that it is a change of and what it changes in that.
///
/// # Errors
/// When the text is no profile.
pub fn changes(text: &str, name: &str) -> Result<(String, Vec<Setting>), Failure> {
    let profile = Profile::parse(text, name).map_err(|error| about(&error))?;
    let origin = profile::base(text).or_else(|| profile::builtin(&profile.name)).unwrap_or_else(Profile::generic);
    let changed = differences(&origin, &profile).iter().map(|change| change.parse()).collect::<Result<_, _>>();
    Ok((origin.name, changed.map_err(Failure::run)?))
}

/// Changes that turn one profile into another, as `KEY=VALUE`, without its name and description.
fn differences(from: &Profile, to: &Profile) -> Vec<String> {
    let (before, after) = (from.settings(), to.settings());
    let gone = before.keys().filter(|key| !after.contains_key(*key) && key.ends_with(".size"));
    let gone = gone.map(|key| format!("{key}=0"));
    let new = after.iter().filter(|(key, value)| key.contains('.') && before.get(*key) != Some(*value));
    new.map(|(key, value)| format!("{key}={value}")).chain(gone).collect()
}

/// Changes in a line: of many, the first.
fn few(changed: &[String]) -> Option<String> {
    const SHOWN: usize = 6;
    match changed.len() {
        0 => None,
        count if count <= SHOWN + 1 => Some(changed.join(", ")),
        count => Some(format!("{} and {} more", changed[..SHOWN].join(", "), count - SHOWN)),
    }
}

/// A profile with these changes, checked as a whole.
///
/// # Errors
/// As [`prepare`].
pub fn change(mut profile: Profile, settings: &[Setting]) -> Result<Drive, Failure> {
    let is_outside = |setting: &&Setting| setting.key == WRITE_POLICY && setting.value.starts_with(OUTSIDE);
    for Setting { key, value } in settings.iter().filter(|setting| !is_outside(setting)) {
        profile.set(key, value).map_err(|error| refusal(&profile, error))?;
    }
    let notes = profile.check().map_err(|error| refusal(&profile, error))?;
    // A policy from outside is named by the run that has it.
    let changed = settings.iter().filter(|setting| !is_outside(setting)).map(Setting::to_string);
    let changed: Vec<String> = changed.collect();
    let about = match &changed[..] {
        [] => profile.outline(),
        changed => format!("{} (changed: {})", profile.outline(), changed.join(", ")),
    };
    let notes = notes.iter().map(ToString::to_string).collect();
    let outside = outside(settings).map(str::to_owned);
    Ok(Drive { name: profile.name.clone(), profile, about, changed, notes, outside })
}

/// The failure for a profile's error.
fn about(error: &profile::ProfileError) -> Failure {
    let suggestion = error.meant().map(str::to_owned);
    Failure::refused(error).of(Subject::Profile { key: error.key.clone(), suggestion })
}

fn refusal(profile: &Profile, error: profile::ProfileError) -> Failure {
    let failure = about(&error);
    match &*error.problem {
        profile::Problem::UnknownKey { meant: None } => {
            failure.help(format_args!("`tidewater profile show {}` lists every key", profile.name))
        }
        profile::Problem::Value { meant: None, .. } => failure
            .help(format_args!("`tidewater profile show {}` lists every key with a value that it takes", profile.name)),
        _ => failure,
    }
}

/// The text of a file of ours: a profile or a record. What is no text is none; nor is a device, which may never end.
pub fn read(path: &Path) -> Result<String, Failure> {
    use std::os::unix::fs::FileTypeExt as _;
    let wrong = |why: &str| Failure::usage(format_args!("{}: {why}", path.display()));
    match std::fs::metadata(path).map(|about| about.file_type()) {
        Ok(kind) if kind.is_dir() => return Err(wrong("is a directory")),
        Ok(kind) if kind.is_char_device() || kind.is_block_device() => return Err(wrong("is a device")),
        _ => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_on_units_does_not_break_a_message_in_two() {
        let set = Setting { key: "drive.capacity".into(), value: "512".into() };
        let failure = prepare(Path::new("generic"), &[set]).err().unwrap();
        assert!(failure.message.ends_with("are not a multiple of the unit of 4KiB"), "{}", failure.message);
        assert!(failure.message.contains("counts bytes") && failure.help.is_none(), "{:?}", failure.help);
    }
}
