//! Documents made from the table of flags: manual pages and the reference page.

use crate::args::{Cli, Man};
use crate::failure::{Failure, reason};
use crate::output::{self, Target};
use clap::CommandFactory;
use std::io::Write as _;

#[cfg(test)]
#[path = "../../../tests/src/markdown.rs"]
mod markdown;

/// `tidewater man`.
///
/// # Errors
/// When a page cannot be written.
pub fn man(man: &Man) -> Result<(), Failure> {
    let pages = pages()?;
    match &man.folder {
        None => output::print(&pages[0].1),
        Some(folder) => {
            if !folder.is_dir() {
                return Err(Failure::usage(format_args!("{}: no such directory", folder.display()))
                    .help(format_args!("mkdir -p {}", folder.display())));
            }
            for (name, page) in &pages {
                Target::new(&folder.join(name))?.write(page)?;
            }
            output::print(&format!("{} manual pages in {}\n", pages.len(), folder.display()))
        }
    }
}

/// Name and text of every manual page; `tidewater.1` is the first.
fn pages() -> Result<Vec<(String, String)>, Failure> {
    let mut command = Cli::command();
    // Gives each command its full name and the options of its ancestors.
    command.build();
    let mut pages = Vec::new();
    collect(&command, &mut pages)?;
    Ok(pages)
}

fn collect(command: &clap::Command, pages: &mut Vec<(String, String)>) -> Result<(), Failure> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut page = Vec::new();
    render(command, &mut page)
        .map_err(|error| Failure::run(format_args!("cannot make the manual page {name}: {}", reason(&error))))?;
    pages.push((format!("{name}.1"), String::from_utf8_lossy(&page).into_owned()));
    // What `help` prints is in the pages of the other commands.
    below(command).try_for_each(|below| collect(below, pages))
}

/// The subcommands that users are shown: no old names.
fn below(command: &clap::Command) -> impl Iterator<Item = &clap::Command> {
    command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set())
}

/// A manual page whose examples keep their lines.
fn render(command: &clap::Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    let man = clap_mangen::Man::new(command.clone());
    man.render_title(page)?;
    man.render_name_section(page)?;
    man.render_synopsis_section(page)?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(page)?;
    }
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (examples, prose) = parts(&after);
    writeln!(page, ".SH EXAMPLES\n.nf")?;
    for line in examples.lines().skip(1) {
        // A line that begins with a dot or a quote would be a request of roff; `\\-` is a hyphen that can be copied.
        writeln!(page, "\\&{}", line.trim().replace('\\', "\\\\").replace('-', "\\-"))?;
    }
    writeln!(page, ".fi")?;
    if !prose.is_empty() {
        writeln!(page, ".SH NOTES\n\\&{prose}")?;
    }
    Ok(())
}

/// The examples of a help page, and the prose after them.
fn parts(after: &str) -> (&str, &str) {
    match after.rsplit_once("\n\n") {
        Some((examples, last)) if !last.starts_with(' ') => (examples, last),
        _ => (after, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::markdown::wrap;
    use super::*;
    use clap::builder::StyledStr;
    use std::fmt::Write as _;

    /// Options that so many commands have are described once.
    const COMMON: usize = 3;

    /// `docs/reference/cli.md`.
    fn reference() -> String {
        let mut command = Cli::command();
        command.build();
        let mut all = Vec::new();
        options(&command, &mut all);
        let mut common: Vec<(String, String)> = Vec::new();
        for option in &all {
            if !common.contains(option) && all.iter().filter(|other| *other == option).count() >= COMMON {
                common.push(option.clone());
            }
        }
        let mut out = String::from(HEAD);
        section(&command, "tidewater", &common, &mut out);
        out.push_str("\n## Common options\n\nOptions of several commands, by their heading in help.\n");
        let mut headings: Vec<&str> = Vec::new();
        for (heading, _) in &common {
            if !headings.contains(&heading.as_str()) {
                headings.push(heading);
            }
        }
        for heading in headings {
            let shown = if heading.is_empty() { "Other" } else { heading };
            let _ = writeln!(out, "\n{shown}:\n");
            for (_, text) in common.iter().filter(|(of, _)| of == heading) {
                let _ = writeln!(out, "- {text}");
            }
        }
        wrap(&out)
    }

    /// Heading and description of every option, command by command.
    fn options(command: &clap::Command, all: &mut Vec<(String, String)>) {
        all.extend(shown(command).map(described));
        below(command).for_each(|below| options(below, all));
    }

    /// The arguments that are described, those without a heading first, as in help.
    fn shown(command: &clap::Command) -> impl Iterator<Item = &clap::Arg> {
        let shown = command
            .get_arguments()
            .filter(|argument| !argument.is_hide_set() && !["help", "version"].contains(&argument.get_id().as_str()));
        let mut shown: Vec<_> = shown.collect();
        let mut headings: Vec<Option<&str>> = vec![None];
        headings.extend(shown.iter().map(|argument| argument.get_help_heading()));
        shown.sort_by_key(|argument| headings.iter().position(|of| *of == argument.get_help_heading()));
        shown.into_iter()
    }

    const HEAD: &str = "\
# Command line reference

Generated from the table of flags in `crates/cli/src/args.rs`; `UPDATE_DOCS=1 cargo test -p tidewater reference` writes
it anew. `tidewater COMMAND --help` prints the same, `tidewater man DIR` writes it as manual pages, and `tidewater
completions SHELL` enables completion in the shell.

- Errors are one line that says what is wrong, `error: ...`, and where there is a way out, one that names it, `help:
  ...`. They go to standard error; standard output stays empty.
- A result that cannot be written whole is not written at all. A file takes its place only when it is complete.
- `-` as a file is standard input or standard output. A result on standard output stands alone there.
- Sizes are binary: `4k`, `4KiB` and `4096` are the same. Times need a unit: `85us`.
";

    fn plain(text: Option<&StyledStr>) -> String {
        text.map(ToString::to_string).unwrap_or_default()
    }

    /// The heading of an argument, and its spelling and description.
    fn described(argument: &clap::Arg) -> (String, String) {
        let help = plain(argument.get_long_help().or(argument.get_help())).replace("\n\n", ". ").replace('\n', " ");
        let mut text = format!("`{}`: {help}", spelled(argument));
        let takes_value = argument.get_action().takes_values();
        if takes_value && !argument.is_hide_default_value_set() && !argument.get_default_values().is_empty() {
            let defaults: Vec<_> = argument.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
            let _ = write!(text, " (default `{}`)", defaults.join(" "));
        }
        let values = argument.get_possible_values();
        if takes_value && !values.is_empty() && !argument.is_hide_possible_values_set() {
            let names: Vec<String> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
            let _ = write!(text, "; one of {}", names.join(", "));
        }
        (argument.get_help_heading().unwrap_or("").to_owned(), text)
    }

    fn section(command: &clap::Command, name: &str, common: &[(String, String)], out: &mut String) {
        let _ = writeln!(out, "\n## `{name}`\n");
        let about = plain(command.get_long_about().or(command.get_about()));
        let _ = writeln!(out, "{}\n", about.trim());
        let usage = command.clone().render_usage().to_string();
        let _ = writeln!(out, "    {}\n", usage.trim_start_matches("Usage: ").replace('\n', "\n    "));
        let mut heading = String::new();
        let mut elsewhere: Vec<String> = Vec::new();
        for argument in shown(command) {
            let option = described(argument);
            if common.contains(&option) {
                elsewhere.push(argument.get_long().map_or_else(|| spelled(argument), |long| format!("`--{long}`")));
                continue;
            }
            if option.0 != heading {
                heading = option.0;
                let _ = writeln!(out, "{}{heading}:\n", if out.ends_with("\n\n") { "" } else { "\n" });
            }
            let _ = writeln!(out, "- {}", option.1);
        }
        if !elsewhere.is_empty() {
            let gap = if out.ends_with("\n\n") { "" } else { "\n" };
            let _ = writeln!(out, "{gap}And [common options](#common-options): {}", elsewhere.join(", "));
        }
        let after = plain(command.get_after_help());
        if !after.is_empty() {
            let gap = if out.ends_with("\n\n") { "" } else { "\n" };
            let (examples, prose) = parts(&after);
            let _ = writeln!(out, "{gap}```\n{examples}\n```");
            if !prose.is_empty() {
                let _ = writeln!(out, "\n{prose}");
            }
        }
        for below in below(command) {
            section(below, &format!("{name} {}", below.get_name()), common, out);
        }
    }

    fn spelled(argument: &clap::Arg) -> String {
        let value = argument.get_value_names().map(|names| names.join(" ")).unwrap_or_default();
        let flag = match (argument.get_short(), argument.get_long()) {
            (Some(short), Some(long)) => format!("-{short}, --{long}"),
            (None, Some(long)) => format!("--{long}"),
            _ => return value,
        };
        let optional = argument.get_num_args().is_some_and(|count| count.min_values() == 0);
        match (argument.get_action().takes_values(), optional, argument.is_require_equals_set()) {
            (false, ..) => flag,
            (true, false, _) => format!("{flag} {value}"),
            (true, true, equals) => format!("{flag}{}{value}]", if equals { "[=" } else { " [" }),
        }
    }

    #[test]
    fn the_reference_page_is_what_the_table_of_flags_says() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
        let page = reference();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == page,
            "docs/reference/cli.md is not what the flags say: run UPDATE_DOCS=1 cargo test -p tidewater reference"
        );
    }

    #[test]
    fn every_command_has_a_manual_page_with_examples() {
        let pages = pages().unwrap();
        assert_eq!(pages[0].0, "tidewater.1");
        assert!(pages.iter().any(|(name, _)| name == "tidewater-trace-info.1"), "{pages:?}");
        assert!(pages.iter().all(|(_, page)| page.contains(".SH EXAMPLES")));
    }
}
