//! `tidewater profile`: profiles listed, shown, compared and checked.

use crate::args::ProfileCommand;
use crate::failure::Failure;
use crate::output;
use std::fmt::Write as _;
use tidewater_core::profile::{self, Profile};
use tidewater_study::{find, prepare};

/// `tidewater profile`.
///
/// # Errors
/// Those of the subcommands.
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
                        let failure = Failure::from(failure);
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
}
