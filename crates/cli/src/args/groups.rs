//! The commands in groups, for the help of `tidewater` itself.

use super::Cli;
use clap::CommandFactory as _;
use std::fmt::Write as _;

/// Every command, by what it is for.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Simulate", &["replay", "compare", "sweep", "log", "experiment", "report", "profile", "trace"]),
    ("Serve a device", &["serve", "log-device", "status", "fault", "cluster", "rerun"]),
    ("Test programs against power cuts", &["crash-test", "mount"]),
    ("Databases and programs", &["run", "bench", "recover", "drain", "check", "tail"]),
    ("Devices and tools", &["probe", "nvme", "completions", "man"]),
];

/// The command, whose help names its subcommands in groups.
pub fn command() -> clap::Command {
    let command = Cli::command();
    let about = |name: &str| {
        let about = command.find_subcommand(name).and_then(clap::Command::get_about);
        about.map(ToString::to_string).unwrap_or_default()
    };
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (heading, names) in GROUPS {
        let _ = writeln!(template, "\n{heading}:");
        for name in names {
            let _ = writeln!(template, "  {name:11}  {}", about(name));
        }
    }
    template += "\n`tidewater COMMAND --help` describes a command.\n\nOptions:\n{options}{after-help}";
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_in_one_group_on_a_line_of_its_own() {
        let mut named: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        named.sort_unstable();
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        let mut commands: Vec<&str> = shown.map(clap::Command::get_name).collect();
        commands.sort_unstable();
        assert_eq!(named, commands);
        let help = super::command().render_help().to_string();
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
        for part in ["Simulate:\n  replay ", "\nServe a device:\n", "--version", "Exit status: 0"] {
            assert!(help.contains(part), "{part} in {help}");
        }
    }
}
