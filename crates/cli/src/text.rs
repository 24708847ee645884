//! Text that several commands make: tables as wide as the terminal, records side by side, the command line.

use crate::failure::Failure;
use tidewater_report::compare::Labelled;
use tidewater_tables::Format;

/// The format that the name of a table asks for.
///
/// # Errors
/// When it ends with none that is known.
pub fn format_of(path: &std::path::Path) -> Result<Format, Failure> {
    Format::of(path).map_err(Failure::refused)
}

/// The records as `compare --json` writes them.
pub fn array(runs: &[Labelled]) -> String {
    let mut text = String::from("[\n");
    for (i, run) in runs.iter().enumerate() {
        let label = serde_json::Value::from(run.label.as_str());
        let comma = if i + 1 < runs.len() { "," } else { "" };
        text += &format!("{{\"label\": {label}, \"record\": {}}}{comma}\n", run.record.to_json().trim_end());
    }
    text + "]\n"
}

/// Columns of the terminal; 120 where there is none, as in a file.
pub fn width() -> usize {
    use std::io::IsTerminal as _;
    let terminal = std::io::stdout().is_terminal().then(terminal_columns).flatten();
    terminal.unwrap_or(120).max(60)
}

fn terminal_columns() -> Option<usize> {
    let (_, columns) = console::Term::stdout().size_checked()?;
    Some(usize::from(columns))
}

/// The command line as a shell takes it, so that it can be copied from a report.
pub fn command_line(arguments: impl Iterator<Item = std::ffi::OsString>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:%+@~".contains(c);
    arguments.fold("tidewater".to_owned(), |line, argument| {
        let argument = argument.to_string_lossy();
        if !argument.is_empty() && argument.chars().all(plain) && !argument.starts_with('~') {
            format!("{line} {argument}")
        } else {
            format!("{line} '{}'", argument.replace('\'', "'\\''"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_copied_into_a_shell() {
        let line = |words: &[&str]| command_line(words.iter().map(std::ffi::OsString::from));
        assert_eq!(line(&["replay", "--trace", "my trace.csv"]), "tidewater replay --trace 'my trace.csv'");
        assert_eq!(line(&["--job", "rw=read,bs=4k"]), "tidewater --job rw=read,bs=4k");
        assert_eq!(line(&["it's", "", "~"]), "tidewater 'it'\\''s' '' '~'");
    }
}
