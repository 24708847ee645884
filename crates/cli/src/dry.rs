//! Every command line that users are shown, as far as it can be carried out without a file, a device or time: it
//! parses, and what the command checks before it begins (profiles, settings, jobs, what a new drive needs) has nothing
//! against it.

use crate::args::{Cli, Command, ProfileCommand};
use crate::failure::Failure;
use crate::{compare, served};
use clap::{CommandFactory as _, Parser as _};
use std::path::{Path, PathBuf};
use tidewater_serve::engine::DriveSetup;
use tidewater_study::Setting;
use tidewater_study::sweep::Sweep;
use tidewater_study::{self as study, Origin};

/// The words of a line, as a shell takes them: quotes keep words together, and what the shell does itself is left out.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (c, quote) {
            ('\'' | '"', None) => (quote, word) = (Some(c), Some(word.unwrap_or_default())),
            (c, Some(open)) if c == open => quote = None,
            ('>' | '|' | '&' | '#', None) => break,
            (c, None) if c.is_whitespace() => words.extend(word.take()),
            (c, _) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// A profile that a user is to write is any: the default one stands for it.
fn standing_in(profile: &Path) -> PathBuf {
    let own = profile.extension().is_some_and(|end| end == "toml") && !profile.exists();
    if own { "generic".into() } else { profile.to_owned() }
}

fn drive_of(profile: &Path, set: &[Setting]) -> Result<(), Failure> {
    study::prepare(&standing_in(profile), set)?;
    Ok(())
}

/// The errors that the command would report before it begins.
fn checked(command: Command) -> Result<(), Failure> {
    match command {
        Command::Replay(mut given) => {
            given.drive.profile = standing_in(&given.drive.profile);
            given.drive.spec().prepare()?;
            let load = given.load_spec();
            if load.job.as_ref().is_some_and(|job| job.contains('=')) {
                Origin::find(&load)?;
            }
        }
        Command::Compare(mut given) => {
            given.drive.profile = standing_in(&given.drive.profile);
            for plan in compare::plans(&given)? {
                plan.drive.prepare()?;
            }
        }
        Command::Sweep(given) if given.plan.is_none() => {
            let sweep = Sweep::of(given.load.spec(), given.drive.spec(), given.vary.clone());
            for plan in sweep.plans()? {
                plan.drive.prepare()?;
            }
        }
        Command::Profile(ProfileCommand::Show { profile, set }) => drive_of(&profile, &set)?,
        Command::Profile(ProfileCommand::Check { profiles, set }) => {
            profiles.iter().try_for_each(|profile| drive_of(profile, &set))?;
        }
        Command::Log(given) => drive_of(&given.profile, &given.set)?,
        Command::Probe(given) if !given.target.starts_with("/dev") => drive_of(&given.target, &given.set)?,
        Command::Serve(given) => {
            let (setup, _) = served::arrange(&given)?;
            // A drive as large as the examples' ones is made in no time: what it holds is counted, not stored.
            DriveSetup::of(&setup).fresh_subsystem().map_err(Failure::usage)?;
            if setup.ring.is_some() && !setup.profile.fast.is_enabled() {
                return Err(Failure::usage("--ring needs a drive with a fast side"));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Whether a line has a name that is hidden, because another has taken its place.
fn has_old_name(line: &str) -> bool {
    let words = words(line);
    let words: Vec<&str> = words.iter().map(String::as_str).take_while(|word| *word != "--").collect();
    let flag = |name: &str| words.iter().any(|word| word.split('=').next() == Some(name));
    match words[1..] {
        ["group" | "keeper" | "fast" | "window", ..] | ["cluster", "init" | "add-node", ..] => true,
        ["fault", ..] if words.contains(&"status") => true,
        ["serve", ..] => flag("--size"),
        _ => ["--control", "--live", "--plan"].into_iter().any(flag),
    }
}

#[track_caller]
fn accepted(line: &str, place: &str) {
    assert!(!has_old_name(line), "{place}: {line}: it has an old name");
    match Cli::try_parse_from(words(line)) {
        Ok(cli) => {
            if let Err(failure) = checked(cli.command) {
                panic!("{place}: {line}: {}", failure.message);
            }
        }
        Err(error) => assert!(!error.use_stderr(), "{place}: {line}: {error}"),
    }
}

#[test]
fn every_example_is_accepted_and_every_command_has_one() {
    fn check(command: &clap::Command) {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(after.contains("Examples:\n"), "{} has no examples", command.get_name());
        // Help is 100 columns wide at most, and what it wraps itself cannot be copied.
        let examples = after.split("Examples:\n").nth(1).and_then(|text| text.split("\n\nExit status").next());
        let long = examples.unwrap_or_default().lines().find(|line| line.starts_with("  ") && line.len() > 98);
        assert_eq!(long, None, "{}", command.get_name());
        let after = after.replace("\\\n", " ");
        let lines: Vec<&str> = after.lines().map(str::trim).filter(|line| line.starts_with("tidewater ")).collect();
        assert!(!lines.is_empty(), "{}", command.get_name());
        lines.iter().for_each(|line| accepted(line, command.get_name()));
        command.get_subcommands().filter(|below| !below.is_hide_set()).for_each(check);
    }
    check(&Cli::command());
}

#[test]
fn every_command_in_the_guide_is_accepted() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![docs.join("README.md")];
    let guide = std::fs::read_dir(docs.join("docs/guide")).unwrap();
    pages.extend(guide.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "md")));
    let mut commands = 0;
    for page in pages {
        // As a shell would see it: a line that ends with a backslash goes on.
        let text = std::fs::read_to_string(&page).unwrap().replace("\\\n", " ");
        let mut fenced = false;
        for line in text.lines() {
            fenced ^= line.starts_with("```");
            let Some(line) = line.strip_prefix("    ").or(fenced.then_some(line)) else { continue };
            let line = line.trim_start_matches("target/quick/");
            let line = &line.replace("$PWD", "/here").replace("$copied_at", "0");
            // What is cut short is no command.
            if line.starts_with("tidewater ") && !line.contains('…') && !line.contains("...") {
                accepted(line, &page.display().to_string());
                commands += 1;
            }
        }
    }
    assert!(commands > 20, "{commands}");
}

#[test]
fn services_start_what_there_is_and_name_pages_that_there_are() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let mut services = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "service") {
            continue;
        }
        let place = path.display().to_string();
        let text = std::fs::read_to_string(&path).unwrap().replace("\\\n", " ");
        let of = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_else(|| panic!("{key}"));
        let line = of("ExecStart=@PREFIX@/bin/").replace("${SIZE}", "64GiB");
        let line: Vec<&str> = line.split_whitespace().filter(|word| !word.starts_with('$')).collect();
        accepted(&line.join(" ").replace("%i", "user"), &place);
        let page = of("Documentation=man:").strip_suffix("(1)").unwrap();
        let command = page.strip_prefix("tidewater-").unwrap();
        // `tidewater-cluster-keeper` is the page of `cluster keeper`, `tidewater-log-device` that of `log-device`.
        let mut at = &Cli::command();
        let mut left = command;
        while !left.is_empty() {
            let fits = |below: &&clap::Command| {
                left.strip_prefix(below.get_name()).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            };
            let below = at.get_subcommands().filter(fits).max_by_key(|below| below.get_name().len());
            at = below.unwrap_or_else(|| panic!("{place}: no page {page}"));
            left = left[at.get_name().len()..].trim_start_matches('-');
        }
        assert!(!at.is_hide_set(), "{place}: {page}");
        services += 1;
    }
    assert_eq!(services, 4);
}

#[test]
fn what_could_not_run_is_found() {
    let found = |line: &str| match Cli::try_parse_from(words(line)) {
        Ok(cli) => checked(cli.command).is_err(),
        Err(_) => true,
    };
    assert!(!found("tidewater serve --image drive --capacity 1GiB --vfio-user f0.sock"));
    assert!(found("tidewater serve --image drive --vfio-user f0.sock"), "nothing says how large it is");
    assert!(found("tidewater serve --image d --capacity 1GiB --vfio-user f0.sock --ring r"), "it has no fast side");
    assert!(found("tidewater serve --image drive --capacity 1GiB --set fast.enabled=true --vfio-user f0.sock"));
    assert!(found("tidewater replay --trace a.csv --set 'nand.chanels=4'"));
    assert!(found("tidewater replay --job rw=sideways"));
    assert!(found("tidewater compare --trace a.csv --vary capacity=1GiB,2GiB"));
    assert!(!found("tidewater run --device vfio-user:f0.sock --log '*.log' -- sh -c 'echo > x.log' | cat"));
}
