//! Several records side by side: as a table for the terminal, and as one page.
//!
//! The first record is the one that the others are compared with.

mod figures;
mod header;
mod knobs;
mod metrics;
mod page;
mod seeds;
mod spreads;
mod table;

pub use figures::figures;
pub use knobs::Axes;
pub use page::{page, page_over};
pub(crate) use seeds::Statistics;
pub use table::table;

use crate::quantity::Quantity;
use crate::record::Record;
use crate::table::column_name;
use std::collections::{BTreeMap, BTreeSet};

/// A record and what it is called in a comparison, such as `ftl.gc_victim=greedy`.
#[derive(Clone, Debug, PartialEq)]
pub struct Labelled {
    /// Its name; any text.
    pub label: String,
    /// The record.
    pub record: Record,
}

/// Facts that differ between the runs: a name, and the value of each run as `--set` takes it.
pub(crate) fn varies(records: &[Labelled]) -> Vec<(String, Vec<Option<String>>)> {
    header::varies(records)
}

/// Settings as numbers, with the ending of their column that names the unit.
pub(crate) fn numbers(values: &[Option<String>]) -> Option<(&'static str, Vec<Option<f64>>)> {
    knobs::numbers(values)
}

/// The figures that say most of a run, by their names in a comparison.
pub const GLANCE: [(&str, Quantity); 5] = [
    ("IOPS", Quantity::Count),
    ("mean response", Quantity::Micros),
    ("read p99", Quantity::Micros),
    ("write p99", Quantity::Micros),
    ("flash written per host byte", Quantity::Ratio),
];

/// Values of [`GLANCE`]; `None` where the run has no such figure.
pub type Glance = [Option<f64>; GLANCE.len()];

/// Figures of a record at a glance.
pub fn glance(record: &Record) -> Glance {
    let metrics = metrics::metrics(&[Labelled { label: String::new(), record: record.clone() }]);
    GLANCE.map(|(name, _)| metrics.iter().find(|metric| metric.name == name).and_then(|metric| metric.values[0]))
}

/// Every figure of the comparison under the name of its column, unrounded; one that no run has is left out.
pub(crate) fn columns(records: &[Labelled]) -> Vec<(String, Vec<Option<f64>>)> {
    metrics::metrics(records).into_iter().map(|metric| (figure_name(&metric), metric.values)).collect()
}

/// Statistics over seeds of each figure of each variant.
pub(crate) fn statistics(records: &[Labelled]) -> Vec<Statistics> {
    seeds::statistics(records, figure_name)
}

fn figure_name(metric: &metrics::Metric) -> String {
    column_name(&metric.name) + metric.quantity.column_suffix()
}

/// Reasons why a comparison of `records` is less than fair, in words: different work, seeds or versions, stopped runs.
pub fn caveats(records: &[Labelled]) -> Vec<String> {
    let mut caveats = Vec::new();
    for run in records.iter().filter(|run| run.record.partial) {
        caveats.push(format!("`{}` was stopped before its end: its figures cover only a part.", run.label));
    }
    let Some((first, others)) = records.split_first() else {
        return caveats;
    };
    let differs = |same: fn(&Record, &Record) -> bool| others.iter().any(|run| !same(&first.record, &run.record));
    if differs(|a, b| (a.workload.kind, &a.workload.source) == (b.workload.kind, &b.workload.source)) {
        caveats.push("The runs had different workloads.".to_owned());
    } else {
        let options = options_that_differ(records);
        // What one command line made differs in what it varies, which is the question and no flaw of the answer.
        let on_purpose = first.record.command_line.is_some() && !differs(|a, b| a.command_line == b.command_line);
        if !options.is_empty() && !on_purpose {
            let names = options.join(", ").replace(['_', '-'], " ");
            caveats.push(format!("The runs had different options of the replay: {names}."));
        }
        // A cut that comes at another time, or at none, ends a run elsewhere.
        let cut_varies = on_purpose && options.contains(&"power-cut");
        if differs(|a, b| a.requests == b.requests) && !cut_varies {
            caveats.push("The runs completed different numbers of requests.".to_owned());
        }
    }
    // Where each was run with several, they are taken together.
    if differs(|a, b| a.seed == b.seed) && seeds::groups(records).is_empty() {
        caveats.push("The runs had different seeds.".to_owned());
    }
    let repeated = seeds::unmoved(records);
    if !repeated.is_empty() {
        caveats.push(format!(
            "Seeds change no figure of {}: these are repetitions of one run and no sample, and have no interval and no \
             test.",
            repeated.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ")
        ));
    }
    if differs(|a, b| a.tool_version == b.tool_version) {
        caveats.push("The runs were made by different versions.".to_owned());
    }
    caveats.extend(same_flash(records));
    caveats.extend(all_that_is_asked_for(records));
    caveats
}

/// Runs with sizes of host memory among which is 0, which a reader takes for none.
fn all_that_is_asked_for(records: &[Labelled]) -> Option<String> {
    let size = |run: &Labelled| run.record.profile.settings.get("hmb.size").cloned();
    let lent = |run: &&Labelled| {
        let zero = size(run).is_some_and(|size| size.trim_end_matches('B') == "0");
        run.record.host_memory.as_ref().map(|memory| memory.lent_bytes).filter(|&bytes| zero && bytes > 0)
    };
    let all = records.iter().find_map(|run| lent(&run))?;
    let varies = records.windows(2).any(|pair| size(&pair[0]) != size(&pair[1]));
    varies.then(|| {
        format!(
            "hmb.size=0 stands for as much as the drive asks for ({} here), not for none: hmb.enabled=false lends \
             nothing.",
            tidewater_base::units::bytes(all)
        )
    })
}

/// The options of the replay that not all runs had alike.
fn options_that_differ(records: &[Labelled]) -> Vec<&str> {
    let names: BTreeSet<&str> =
        records.iter().flat_map(|run| run.record.workload.options.keys().map(String::as_str)).collect();
    let value = |run: &Labelled, name: &str| run.record.workload.options.get(name).cloned();
    let differs = |name: &&str| records.windows(2).any(|pair| value(&pair[0], name) != value(&pair[1], name));
    names.into_iter().filter(differs).collect()
}

/// Runs that ask for different over-provisioning and got the same flash: whole superblocks on every die hide the
/// difference.
fn same_flash(records: &[Labelled]) -> Option<String> {
    let asked = |record: &Record| record.profile.settings.get("ftl.over_provisioning").cloned();
    let mut by_flash: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for run in records {
        let Some(asked) = asked(&run.record) else { continue };
        let flash = &run.record.flash;
        let layout = (run.record.capacity_bytes, flash.raw_bytes, flash.over_provisioning.to_bits());
        let alike = by_flash.entry(layout).or_default();
        if !alike.contains(&asked) {
            alike.push(asked);
        }
    }
    let alike: Vec<String> = by_flash
        .iter()
        .filter(|((_, raw_bytes, _), asked)| *raw_bytes > 0 && asked.len() > 1)
        .map(|((.., share), asked)| {
            let share = tidewater_base::units::percent(f64::from_bits(*share));
            format!(
                "{} ({share} spare)",
                asked.iter().map(|asked| tidewater_base::units::setting(asked)).collect::<Vec<_>>().join(", ")
            )
        })
        .collect();
    (!alike.is_empty()).then(|| {
        format!(
            "These values of ftl.over_provisioning came to the same flash, because every die has whole superblocks: \
             {}. What differs between these runs is not over-provisioning; a larger drive, fewer dies or smaller \
             blocks tell them apart.",
            alike.join("; ")
        )
    })
}

/// A run's label with one of its warnings, and what is left of it without numbers.
type Said<'a> = (&'a str, &'a str);

/// Each warning once, after the runs that it belongs to. Warnings that differ in their numbers alone are one: with the
/// numbers of the first run.
fn warnings(records: &[Labelled]) -> Vec<String> {
    let mut all: Vec<(String, Vec<Said>)> = Vec::new();
    for run in records {
        for warning in &run.record.warnings {
            let said = (run.label.as_str(), warning.as_str());
            let shape = without_numbers(warning);
            match all.iter_mut().find(|(other, _)| *other == shape) {
                Some((_, runs)) if runs.contains(&said) => {}
                Some((_, runs)) => runs.push(said),
                None => all.push((shape, vec![said])),
            }
        }
    }
    all.into_iter()
        .map(|(_, runs)| {
            let (first, text) = runs[0];
            let mut labels: Vec<&str> = runs.iter().map(|(label, _)| *label).collect();
            labels.dedup();
            let numbers = if runs.iter().any(|(_, other)| *other != text) {
                format!(" (the numbers are those of {first})")
            } else {
                String::new()
            };
            match labels.len() == records.len() {
                true if numbers.is_empty() => text.to_owned(),
                true => format!("all runs: {text}{numbers}"),
                false => format!("{}: {text}{numbers}", named(&labels)),
            }
        })
        .collect()
}

/// These labels; of many, the first ones and how many more there are.
fn named(labels: &[&str]) -> String {
    const SHOWN: usize = 3;
    if labels.len() <= 2 * SHOWN {
        return labels.join(", ");
    }
    format!("{} and {} more runs", labels[..SHOWN].join(", "), labels.len() - SHOWN)
}

/// A text without its numbers and the units behind them.
fn without_numbers(text: &str) -> String {
    const UNITS: [&str; 15] =
        ["ps", "ns", "µs", "us", "ms", "s", "min", "h", "d", "B", "KiB", "MiB", "GiB", "TiB", "k"];
    let mut words: Vec<&str> = Vec::new();
    for word in text.split(' ') {
        let plain = word.trim_matches(|c: char| !c.is_alphanumeric());
        if plain.starts_with(|c: char| c.is_ascii_digit()) {
            words.push("#");
        } else if !(words.last() == Some(&"#") && UNITS.contains(&plain)) {
            words.push(word);
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Flash;

    fn run(label: &str, record: Record) -> Labelled {
        Labelled { label: label.into(), record }
    }

    #[test]
    fn over_provisioning_that_made_no_difference_is_said() {
        let made = |asked: &str, got: f64, raw_bytes: u64| {
            let mut record =
                Record { flash: Flash { raw_bytes, over_provisioning: got, ..Flash::default() }, ..Record::default() };
            record.profile.settings.insert("ftl.over_provisioning".into(), asked.into());
            run(asked, record)
        };
        let runs = [made("0.07", 0.125, 100), made("0.1", 0.125, 100), made("0.28", 0.5, 150)];
        let said = caveats(&runs);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("0.07, 0.1 (12.5 % spare)") && !said[0].contains("0.28"), "{said:?}");
        assert!(caveats(&[made("0.07", 0.125, 100), made("0.28", 0.5, 150)]).is_empty());
    }

    /// A comparison of sizes reads as if 0 were none.
    #[test]
    fn a_size_of_host_memory_of_0_is_said_to_be_all_that_is_asked_for() {
        let lent = |size: &str, lent_bytes: u64| {
            let host_memory = Some(crate::record::HostMemory { lent_bytes, ..Default::default() });
            let mut record = Record { host_memory, ..Record::default() };
            record.profile.settings.insert("hmb.size".into(), size.into());
            record.profile.settings.insert("hmb.enabled".into(), "true".into());
            run(size, record)
        };
        let said = caveats(&[lent("0", 64 << 20), lent("8MiB", 8 << 20)]);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("64 MiB") && said[0].contains("hmb.enabled=false"), "{said:?}");
        assert!(caveats(&[lent("0", 64 << 20), lent("0", 64 << 20)]).is_empty());
        assert!(caveats(&[lent("8MiB", 8 << 20), lent("16MiB", 16 << 20)]).is_empty());
        // Where nothing is lent, or nothing could be placed there, 0 says nothing.
        let mut without = lent("0", 0);
        without.record.host_memory = None;
        assert!(caveats(&[without, lent("8MiB", 8 << 20)]).is_empty());
    }

    #[test]
    fn options_are_a_flaw_only_where_they_were_not_varied() {
        let made = |command: Option<&str>, option: &str, value: &str, requests: u64| {
            let mut record = Record { command_line: command.map(str::to_owned), requests, ..Record::default() };
            record.workload.options.insert(option.into(), value.into());
            run(value, record)
        };
        let varied = Some("tidewater compare --trace t --vary queue-depth=1,8");
        let compared =
            |command, other, option| caveats(&[made(command, option, "1", 10), made(other, option, "8", 10)]);
        assert!(compared(varied, varied, "queue_depth").is_empty());
        let said = "The runs had different options of the replay: queue depth.";
        assert_eq!(compared(Some("tidewater replay a"), Some("tidewater replay b"), "queue_depth"), [said]);
        assert_eq!(compared(None, None, "queue_depth"), [said], "nothing says that it was meant");
        // A cut at another time leaves other requests undone; anything else that does is said.
        let ended = |option| caveats(&[made(varied, option, "1", 10), made(varied, option, "8", 9)]);
        assert!(ended("power-cut").is_empty());
        assert_eq!(ended("queue_depth"), ["The runs completed different numbers of requests."]);
    }

    #[test]
    fn warnings_that_differ_in_numbers_are_one() {
        let with = |label: &str, warnings: &[&str]| {
            run(label, Record { warnings: warnings.iter().map(|w| (*w).to_owned()).collect(), ..Record::default() })
        };
        let late = |time: &str| format!("it ended {time} after the last had come, so (--queue-depth N) helps");
        let runs = [
            with("a", &[&late("1.2 ms"), "of all"]),
            with("b", &[&late("3 s"), "of all", "1 command failed"]),
            with("c", &["of all"]),
        ];
        assert_eq!(named(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c and 4 more runs");
        assert_eq!(
            warnings(&runs),
            [
                format!("a, b: {} (the numbers are those of a)", late("1.2 ms")),
                "of all".to_owned(),
                "b: 1 command failed".to_owned(),
            ]
        );
    }
}
