//! Profiles: found by name or path, changed by `--set`, listed, shown, compared and checked.

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
    /// What it is called, as `--profile` takes it: a built-in name, or the path of a file.
    pub name: String,
    /// What it is, in a line, with what it was made from and what differs from that.
    pub about: String,
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
    let text = read(given).map_err(|failure| if given.exists() { failure } else { absent(given, failure) })?;
    let profile = Profile::parse(&text, &name).map_err(Failure::refused)?;
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

/// What makes one profile of another, as `KEY=VALUE`; its name and its description apart.
fn differences(from: &Profile, to: &Profile) -> Vec<String> {
    let (before, after) = (from.settings(), to.settings());
    let gone = before.keys().filter(|key| !after.contains_key(*key) && key.ends_with(".size"));
    let gone = gone.map(|key| format!("{key}=0"));
    let new = after.iter().filter(|(key, value)| key.contains('.') && before.get(*key) != Some(*value));
    new.map(|(key, value)| format!("{key}={value}")).chain(gone).collect()
}

/// What was changed, in a line: of many, the first.
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
    for Setting { key, value } in settings {
        profile.set(key, value).map_err(|error| refusal(&profile, error))?;
    }
    let notes = profile.check().map_err(|error| refusal(&profile, error))?;
    let changed: Vec<String> = settings.iter().map(Setting::to_string).collect();
    let about = match &changed[..] {
        [] => profile.outline(),
        changed => format!("{} (changed: {})", profile.outline(), changed.join(", ")),
    };
    let notes = notes.iter().map(ToString::to_string).collect();
    Ok(Drive { name: profile.name.clone(), profile, about, changed, notes })
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

/// `tidewater profile`.
///
/// # Errors
/// What the commands refuse.
pub fn command(command: &ProfileCommand) -> Result<(), Failure> {
    match command {
        ProfileCommand::List => list(),
        ProfileCommand::Show { profile, set } => output::print(&prepare(profile, set)?.profile.show()),
        ProfileCommand::Schema => {
            let schema = serde_json::to_string_pretty(&crate::profile_schema::schema()).map_err(Failure::run)?;
            output::print(&(schema + "\n"))
        }
        ProfileCommand::Diff { from, to } => {
            let names = [from, to].map(|given| given.display().to_string());
            output::print(&diff(names, &find(from)?, &find(to)?))
        }
        ProfileCommand::Check { profiles, set } => {
            // All of them, however many are wrong.
            let mut wrong = Ok(());
            for given in profiles {
                let drive = match prepare(given, set) {
                    Ok(drive) => drive,
                    Err(failure) => {
                        let of = given.display().to_string();
                        let named = profiles.len() < 2 || failure.message.starts_with(&of);
                        let message = if named { failure.message } else { format!("{of}: {}", failure.message) };
                        if let Err(before) = std::mem::replace(&mut wrong, Err(Failure { message, ..failure })) {
                            before.tell();
                        }
                        continue;
                    }
                };
                let mut text = format!("{}: ok, {}\n", given.display(), drive.about);
                for note in &drive.notes {
                    let _ = writeln!(text, "  note: {note}");
                }
                output::print(&text)?;
            }
            wrong
        }
    }
}

/// The settings in which two profiles differ, a line each; a setting that a profile does not have is a dash. `names`:
/// those on the command line, since files often keep the name of the profile that they change.
fn diff(names: [String; 2], from: &Profile, to: &Profile) -> String {
    let (before, after) = (from.settings(), to.settings());
    let keys: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let of = |settings: &std::collections::BTreeMap<String, String>, key: &String| {
        settings.get(key).map_or("-", |value| if value.is_empty() { "\"\"" } else { value }).to_owned()
    };
    let differing = keys.into_iter().filter(|key| key.contains('.') && before.get(*key) != after.get(*key));
    let rows: Vec<[String; 3]> = differing.map(|key| [key.clone(), of(&before, key), of(&after, key)]).collect();
    if rows.is_empty() {
        return "the profiles have the same settings\n".to_owned();
    }
    let [from, to] = names;
    let head = ["setting".to_owned(), from, to];
    let rows: Vec<&[String; 3]> = [&head].into_iter().chain(&rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    let mut text = String::new();
    for [key, a, b] in rows {
        let _ = writeln!(text, "{key:first$}  {a:second$}  {b}");
    }
    text
}

fn list() -> Result<(), Failure> {
    let width = profile::names().map(str::len).max().unwrap_or(0);
    let mut text = String::new();
    for profile in profile::names().filter_map(profile::builtin) {
        let _ = writeln!(text, "{:width$}  {}", profile.name, profile.outline());
    }
    output::print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_profiles_differ_in_what_was_changed() {
        let (a, mut b) = (Profile::generic(), Profile::generic());
        let diff = |a: &Profile, b: &Profile| diff(["generic", "mine.toml"].map(str::to_owned), a, b);
        assert_eq!(diff(&a, &b), "the profiles have the same settings\n");
        b.set("nand.channels", "3").unwrap();
        b.set("memory.nvm.kind", "nvm").unwrap();
        b.set("memory.nvm.size", "1MiB").unwrap();
        let text = diff(&a, &b);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["setting", "generic", "mine.toml"]);
        assert!(lines.contains(&vec!["nand.channels", &a.nand.channels.to_string(), "3"]), "{text}");
        assert!(lines.contains(&vec!["memory.nvm.size", "-", "1MiB"]), "{text}");
        assert!(!text.contains("nand.ways"), "{text}");
    }

    #[test]
    fn a_word_on_units_does_not_break_a_message_in_two() {
        let set = Setting { key: "drive.capacity".into(), value: "512".into() };
        let failure = prepare(Path::new("generic"), &[set]).err().unwrap();
        assert!(failure.message.ends_with("are not a multiple of the unit of 4KiB"), "{}", failure.message);
        assert!(failure.message.contains("counts bytes") && failure.help.is_none(), "{:?}", failure.help);
    }
}
