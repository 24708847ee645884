//! Runs that differ in nothing but their seed, taken together: the median of each figure, and how far seeds move it.

use super::Labelled;
use super::metrics::{Better, Metric};
use crate::record::Record;
use std::collections::BTreeSet;

/// Runs that differ in their seed alone.
pub(super) struct Group {
    /// What its runs are called, less the seed.
    pub label: String,
    /// Which of the records they are, by their place.
    runs: Vec<usize>,
}

/// One figure of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    /// The least of its runs.
    pub lowest: f64,
    /// The middle one; of an even number of runs, the mean of the two in the middle.
    pub median: f64,
    /// The largest.
    pub highest: f64,
}

/// The groups, in the order of their first runs. None where no two runs differ in their seed alone: there is nothing to
/// take together.
pub(super) fn groups(records: &[Labelled]) -> Vec<Group> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (i, run) in records.iter().enumerate() {
        match groups.iter_mut().find(|group| alike(&records[group[0]].record, &run.record)) {
            Some(group) => group.push(i),
            None => groups.push(vec![i]),
        }
    }
    let seeds = |group: &[usize]| group.iter().map(|&i| records[i].record.seed).collect::<BTreeSet<_>>().len();
    if !groups.iter().any(|group| seeds(group) > 1) {
        return Vec::new();
    }
    groups.into_iter().map(|runs| Group { label: label(records, &runs), runs }).collect()
}

/// Whether two runs were made with the same but for the seed.
fn alike(a: &Record, b: &Record) -> bool {
    let made = |record: &Record| (record.profile.name.clone(), record.capacity_bytes, record.tool_version.clone());
    let load = |record: &Record| (record.workload.kind, record.workload.source.clone());
    made(a) == made(b)
        && load(a) == load(b)
        && a.workload.options == b.workload.options
        && a.profile.settings == b.profile.settings
}

/// The words that the labels of all these runs have, in the order of the first; how many runs there are where they have
/// none.
fn label(records: &[Labelled], runs: &[usize]) -> String {
    let words = |i: usize| records[i].label.split(' ');
    let common: Vec<&str> =
        words(runs[0]).filter(|word| runs[1..].iter().all(|&i| words(i).any(|w| w == *word))).collect();
    if common.is_empty() { format!("{} runs", runs.len()) } else { common.join(" ") }
}

impl Group {
    /// How many runs it has.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// `metric` over its runs; `None` where none of them has it.
    pub(super) fn spread(&self, metric: &Metric) -> Option<Spread> {
        let mut values: Vec<f64> = self.runs.iter().filter_map(|&i| metric.values[i]).collect();
        values.sort_by(f64::total_cmp);
        let (&lowest, &highest) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Some(Spread { lowest, median, highest })
    }
}

/// A figure of all groups in words, by group: the median, and how far it reaches where that can be seen in the digits
/// that are shown. The best has a star, `star`, where no run of another group is as good as the worst of its own: what
/// seeds could have made is no merit.
pub(super) fn cells(metric: &Metric, groups: &[Group], star: &str) -> Vec<Option<String>> {
    let spreads: Vec<Option<Spread>> = groups.iter().map(|group| group.spread(metric)).collect();
    let cell = |(i, spread): (usize, &Option<Spread>)| {
        let spread = (*spread)?;
        let word = |value: f64| metric.quantity.format(value);
        let (lowest, highest) = (word(spread.lowest), word(spread.highest));
        let range = if lowest == highest { String::new() } else { format!(" ({lowest} to {highest})") };
        let star = if is_best(metric, &spreads, i) { star } else { "" };
        Some(format!("{}{range}{star}", word(spread.median)))
    };
    spreads.iter().enumerate().map(cell).collect()
}

fn is_best(metric: &Metric, spreads: &[Option<Spread>], i: usize) -> bool {
    let Some(own) = spreads[i] else { return false };
    let mut others = spreads.iter().enumerate().filter(|(j, _)| *j != i).filter_map(|(_, spread)| *spread).peekable();
    let alike = |a: f64, b: f64| metric.quantity.format(a) == metric.quantity.format(b);
    others.peek().is_some()
        && others.all(|other| match metric.better {
            Better::Lower => own.highest < other.lowest && !alike(own.highest, other.lowest),
            Better::Higher => own.lowest > other.highest && !alike(own.lowest, other.highest),
            Better::Neither => false,
        })
}

#[cfg(test)]
mod tests {
    use super::super::metrics::metrics;
    use super::*;

    fn run(label: &str, policy: &str, seed: u64, iops: f64) -> Labelled {
        let mut record = Record { seed, iops, ..Record::default() };
        record.profile.settings.insert("buffer.write_policy".into(), policy.into());
        Labelled { label: label.into(), record }
    }

    fn iops(records: &[Labelled]) -> Vec<String> {
        let metrics = metrics(records);
        let metric = metrics.iter().find(|metric| metric.name == "IOPS").unwrap();
        cells(metric, &groups(records), " *").into_iter().map(Option::unwrap).collect()
    }

    #[test]
    fn runs_that_differ_in_their_seed_are_one_median_and_its_range() {
        let records = [
            run("none seed=1", "none", 1, 100.0),
            run("lru seed=1", "lru", 1, 210.0),
            run("none seed=2", "none", 2, 140.0),
            run("lru seed=2", "lru", 2, 190.0),
            run("none seed=3", "none", 3, 110.0),
        ];
        let groups = groups(&records);
        let labels: Vec<&str> = groups.iter().map(|group| group.label.as_str()).collect();
        assert_eq!((labels, groups[0].len()), (vec!["none", "lru"], 3));
        assert_eq!(iops(&records), ["110 (100 to 140)", "200 (190 to 210) *"]);
    }

    #[test]
    fn what_seeds_alone_move_as_far_is_no_merit() {
        let records = [
            run("a", "none", 1, 100.0),
            run("b", "none", 2, 140.0),
            run("c", "lru", 1, 130.0),
            run("d", "lru", 2, 150.0),
        ];
        assert_eq!(iops(&records), ["120 (100 to 140)", "140 (130 to 150)"]);
        assert_eq!(groups(&records)[0].label, "2 runs");
    }

    #[test]
    fn without_seeds_there_is_nothing_to_take_together() {
        assert!(groups(&[run("a", "none", 1, 1.0), run("b", "lru", 1, 2.0)]).is_empty());
        assert!(groups(&[run("a", "none", 1, 1.0), run("b", "lru", 2, 2.0)]).is_empty());
        assert!(groups(&[]).is_empty());
    }
}
