//! Common and differing facts of the runs of a comparison, and how to repeat them.

use super::Labelled;
use super::page::Links;
use crate::document::{Cell, Kind, Table};
use crate::html::Page;
use crate::page::{SAME, command, words_of};
use crate::record::Record;
use std::collections::BTreeSet;
use tidewater_base::units::{bytes, setting};

/// One thing that a run was made with: its name, and its value in words.
type Fact = (String, String);

/// Description of a drive without its changes, which its settings list one by one.
fn model(description: &str) -> &str {
    // Records of earlier versions have no brackets there.
    let description = description.split("; changed: ").next().unwrap_or_default();
    let end = [" (changed: ", " (from "].iter().filter_map(|note| description.find(note)).min();
    &description[..end.unwrap_or(description.len())]
}

/// Facts in words: the description of a drive, and the contents of a workload.
const WORDS: [&str; 2] = ["which is", "which has"];

/// Inputs of a run, in the order of the table.
fn facts(record: &Record) -> Vec<Fact> {
    let workload = &record.workload;
    let mut facts: Vec<Fact> = Vec::new();
    let mut add = |name: &str, value: &str| {
        if !value.is_empty() {
            facts.push((name.to_owned(), value.to_owned()));
        }
    };
    add("drive", &record.profile.name);
    add(WORDS[0], model(&record.profile.description));
    if record.capacity_bytes > 0 {
        add("capacity", &bytes(record.capacity_bytes));
    }
    add(words_of(workload.kind), &workload.source);
    add(WORDS[1], &workload.description);
    for (name, value) in &workload.options {
        add(&name.replace(['_', '-'], " "), value);
    }
    add("seed", &record.seed.to_string());
    add("version", &record.tool_version);
    facts
}

/// The settings of the drives that need a word: those that any run changed, and those that differ.
fn settings(records: &[Labelled]) -> BTreeSet<&str> {
    let changed = records.iter().flat_map(|run| &run.record.profile.changed).filter_map(|set| set.split('=').next());
    let mut keys: BTreeSet<&str> = changed.collect();
    // Of two profiles nearly every setting differs: their names say more.
    let one_drive = records.windows(2).all(|pair| pair[0].record.profile.name == pair[1].record.profile.name);
    if one_drive && let Some((first, others)) = records.split_first() {
        let differs =
            |key: &str, value: &String| others.iter().any(|run| run.record.profile.settings.get(key) != Some(value));
        let settings = &first.record.profile.settings;
        keys.extend(settings.iter().filter(|(key, value)| differs(key, value)).map(|(key, _)| key.as_str()));
    }
    // How many blocks a plane has follows from the rest, unless it was set.
    if !records.iter().any(|run| run.record.profile.changed.iter().any(|set| set.starts_with("nand.blocks_per_plane=")))
    {
        keys.remove("nand.blocks_per_plane");
    }
    keys
}

/// A row of the table: a name, and the value of each run; `None` where a run has none.
pub(super) type Row = (String, Vec<Option<String>>);

/// Everything that the runs were made with; `word` says how the values of settings are written.
fn rows(records: &[Labelled], word: fn(&str) -> String) -> Vec<Row> {
    let facts: Vec<Vec<Fact>> = records.iter().map(|run| facts(&run.record)).collect();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in facts.iter().flatten() {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let of = |facts: &[Fact], name: &str| facts.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone());
    let mut rows: Vec<Row> =
        names.iter().map(|name| ((*name).to_owned(), facts.iter().map(|facts| of(facts, name)).collect())).collect();
    for key in settings(records) {
        let value = |run: &Labelled| run.record.profile.settings.get(key).map(|value| word(value));
        let row: Vec<Option<String>> = records.iter().map(value).collect();
        if row.iter().any(Option::is_some) {
            rows.push((key.to_owned(), row));
        }
    }
    rows
}

fn is_common((_, values): &Row) -> bool {
    values.iter().all(|value| *value == values[0])
}

/// Facts that differ between the runs, with the values of settings as `--set` takes them. Descriptions of drives and
/// workloads are left out: they follow from the rest.
pub(super) fn varies(records: &[Labelled]) -> Vec<Row> {
    let differs = |row: &Row| !is_common(row) && !WORDS.contains(&row.0.as_str());
    rows(records, str::to_owned).into_iter().filter(differs).collect()
}

/// Writes the common facts as a list, and the differing ones as a table with `each` run, else as lists of values.
pub(super) fn section(page: &mut Page, records: &[Labelled], each: bool, links: &Links) {
    let (common, varies): (Vec<Row>, Vec<Row>) = rows(records, setting).into_iter().partition(is_common);
    page.section("setup", "What was compared");
    if !common.is_empty() {
        page.heading("The same in all runs");
        page.facts(common.iter().map(|(name, values)| (name, values[0].as_deref().unwrap_or_default())));
    }
    if varies.is_empty() {
        return;
    }
    page.heading("What varies");
    if !each {
        // What a drive is in words follows from the rest.
        let varies = varies.iter().filter(|(name, _)| !WORDS.contains(&name.as_str()));
        page.facts(varies.map(|(name, values)| (name, listed(values))));
        return;
    }
    let columns = varies.iter().map(|(name, _)| (Kind::Words, name.as_str()));
    let row = |(i, run): (usize, &Labelled)| {
        let values = varies.iter().map(|(_, values)| Cell::maybe(values[i].as_deref()));
        [links.label(i, &run.label)].into_iter().chain(values).collect()
    };
    let table = Table::of("", [(Kind::Name, "run")].into_iter().chain(columns));
    page.table(&table.with(records.iter().enumerate().map(row)));
}

/// The different values of a row; of many, how many there are.
fn listed(values: &[Option<String>]) -> String {
    const SHOWN: usize = 12;
    let mut different: Vec<&str> = Vec::new();
    for value in values {
        let value = value.as_deref().unwrap_or("–");
        if !different.contains(&value) {
            different.push(value);
        }
    }
    match different.len() {
        0..=SHOWN => different.join(", "),
        many => format!("{many} values, {} to {}", different[0], different[many - 1]),
    }
}

/// The commands that make the runs again: one, where one made them all; those of `each` run otherwise.
pub(super) fn again(page: &mut Page, records: &[Labelled], each: bool) {
    let commands: Vec<(&str, String)> =
        records.iter().filter_map(|run| Some((run.label.as_str(), command(&run.record)?))).collect();
    let Some((_, first)) = commands.first() else { return };
    let one = commands.len() == records.len() && commands.iter().all(|(_, command)| command == first);
    if !one && !each {
        return;
    }
    page.section("again", "How to run it again");
    page.muted(SAME);
    for (label, command) in &commands[..if one { 1 } else { commands.len() }] {
        if !one {
            page.heading(label);
        }
        page.command(command);
    }
}

#[cfg(test)]
mod tests {
    use super::model;

    #[test]
    fn what_a_drive_is_does_not_vary_with_what_was_changed_of_it() {
        for changed in ["", " (changed: a.b=1)", " (from generic; changed: a.b=1, c.d=2)", "; changed: a.b=1"] {
            let description = format!("TLC drive, 8 channels x 8 dies{changed}");
            assert_eq!(model(&description), "TLC drive, 8 channels x 8 dies");
        }
    }
}
