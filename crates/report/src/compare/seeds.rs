//! Runs that differ in nothing but their seed, taken together: the median of each figure, and how far seeds move it.

use super::Labelled;
use super::metrics::{Better, Metric};
use crate::document::Cell;
use crate::record::{Record, ratio};
use statrs::distribution::{ContinuousCDF as _, StudentsT};
use std::collections::{BTreeMap, BTreeSet};

/// Runs that differ in their seed alone.
pub(super) struct Group {
    /// Label of its runs, less the seed.
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

impl Spread {
    /// The spread of these values; `None` where there are none.
    pub(super) fn of(mut values: Vec<f64>) -> Option<Spread> {
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

/// The differing parts of `labels`: words that all have are left out, and of several `key=value` the keys that are the
/// same in all. The labels themselves if one would become empty.
pub(super) fn short<'a>(labels: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let all: Vec<Vec<&str>> = labels.clone().map(|label| label.split(' ').collect()).collect();
    let in_all = |word: &str| all.iter().all(|words| words.contains(&word));
    let key = |word: &str| word.split_once('=').map(|(key, _)| format!("{key}="));
    let key_in_all = |key: &str| all.iter().all(|words| words.iter().any(|word| word.starts_with(key)));
    let own = |words: &Vec<&str>| words.iter().filter(|word| !in_all(word)).count();
    let several = all.iter().any(|words| own(words) > 1);
    let shorter = |words: &Vec<&str>| {
        let own = words.iter().filter(|word| !in_all(word));
        let own = own.map(|word| match key(word) {
            Some(key) if several && key_in_all(&key) => &word[key.len()..],
            _ => word,
        });
        own.collect::<Vec<_>>().join(" ")
    };
    let short: Vec<String> = all.iter().map(shorter).collect();
    let different = short.iter().collect::<BTreeSet<_>>().len() == short.len();
    let enough = different && short.iter().all(|label| !label.is_empty());
    if enough { short } else { labels.map(str::to_owned).collect() }
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
    /// Which of the records its runs are, by their place.
    pub(super) fn runs(&self) -> &[usize] {
        &self.runs
    }

    /// How many runs it has.
    pub(super) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Whether any figure differs between its runs.
    fn is_moved(&self, metrics: &[Metric]) -> bool {
        metrics.iter().any(|metric| self.runs.iter().any(|&run| metric.values[run] != metric.values[self.runs[0]]))
    }

    /// `metric` over its runs; `None` where none of them has it.
    pub(super) fn spread(&self, metric: &Metric) -> Option<Spread> {
        Spread::of(self.runs.iter().filter_map(|&i| metric.values[i]).collect())
    }
}

/// A figure of all groups in words, by group: the median, and how far it reaches where that can be seen in the digits
/// that are shown. The best has a star where no run of another group is as good as the worst of its own: what
/// seeds could have made is no merit.
pub(super) fn cells(metric: &Metric, groups: &[Group]) -> Vec<Cell> {
    let spreads: Vec<Option<Spread>> = groups.iter().map(|group| group.spread(metric)).collect();
    let cell = |(i, spread): (usize, &Option<Spread>)| {
        let Some(spread) = spread else { return Cell::maybe(None::<String>) };
        let word = |value: f64| metric.quantity.format(value);
        let (lowest, highest) = (word(spread.lowest), word(spread.highest));
        let range = if lowest == highest { String::new() } else { format!(" ({lowest} to {highest})") };
        Cell { is_best: is_best(metric, &spreads, i), ..format!("{}{range}", word(spread.median)).into() }
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

/// Statistics over seeds of one figure of a group: see [`crate::table::statistics`].
pub(crate) struct Statistics {
    /// Label of the group.
    pub variant: String,
    /// The figure.
    pub figure: String,
    /// Runs that have it.
    pub n: u64,
    /// Mean of those.
    pub mean: f64,
    /// Spread of those.
    pub spread: (f64, f64, f64),
    /// The 95 % confidence interval of the mean (Student's t); of two runs and more, of which any two differ.
    pub interval: Option<(f64, f64)>,
    /// The paired t-test against the first group; of two groups whose runs do not differ there is none.
    pub against_first: Option<Paired>,
}

/// A paired, two-sided t-test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Paired {
    /// Seeds that both have.
    pub n: u64,
    /// Mean of the differences, this less the first.
    pub difference: f64,
    /// How often chance alone would make as much of a difference.
    pub p_value: f64,
}

/// The statistics of runs that differ in their seed alone; none where no two do.
pub(crate) fn statistics(records: &[Labelled], name: impl Fn(&Metric) -> String) -> Vec<Statistics> {
    let metrics = super::metrics::metrics(records);
    let groups = groups(records);
    let mut all = Vec::new();
    // One run that was made several times is no sample.
    let moves: Vec<bool> = groups.iter().map(|group| group.is_moved(&metrics)).collect();
    for (i, group) in groups.iter().enumerate() {
        for metric in &metrics {
            let values: Vec<f64> = group.runs.iter().filter_map(|&run| metric.values[run]).collect();
            let Some(Spread { lowest, median, highest }) = group.spread(metric) else { continue };
            let by_seed = |group: &Group| -> BTreeMap<u64, f64> {
                group.runs.iter().filter_map(|&run| Some((records[run].record.seed, metric.values[run]?))).collect()
            };
            let first = by_seed(&groups[0]);
            let differences: Vec<f64> =
                by_seed(group).iter().filter_map(|(seed, value)| Some(value - first.get(seed)?)).collect();
            all.push(Statistics {
                variant: group.label.clone(),
                figure: name(metric),
                n: values.len() as u64,
                mean: mean(&values),
                spread: (lowest, median, highest),
                interval: half_width(&values)
                    .filter(|_| moves[i])
                    .map(|half| (mean(&values) - half, mean(&values) + half)),
                against_first: (i > 0 && (moves[i] || moves[0])).then(|| paired(&differences)).flatten(),
            });
        }
    }
    all
}

/// The groups of several seeds that change no figure.
pub(super) fn unmoved(records: &[Labelled]) -> Vec<String> {
    let metrics = super::metrics::metrics(records);
    let unmoved = |group: &Group| group.len() > 1 && !group.is_moved(&metrics);
    groups(records).into_iter().filter(unmoved).map(|group| group.label).collect()
}

fn mean(values: &[f64]) -> f64 {
    ratio(values.iter().sum(), values.len() as f64)
}

/// The standard error of the mean, and the degrees of freedom; of two values and more.
fn standard_error(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len() as f64;
    let middle = mean(values);
    let squares: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
    (values.len() > 1).then(|| ((squares / (n - 1.0) / n).sqrt(), n - 1.0))
}

fn half_width(values: &[f64]) -> Option<f64> {
    let (error, freedom) = standard_error(values)?;
    Some(StudentsT::new(0.0, 1.0, freedom).ok()?.inverse_cdf(0.975) * error)
}

fn paired(differences: &[f64]) -> Option<Paired> {
    let (error, freedom) = standard_error(differences)?;
    let difference = mean(differences);
    let p_value = if error > 0.0 {
        2.0 * StudentsT::new(0.0, 1.0, freedom).ok()?.sf((difference / error).abs())
    } else if difference == 0.0 {
        1.0
    } else {
        0.0
    };
    Some(Paired { n: differences.len() as u64, difference, p_value })
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
        let cells = cells(metric, &groups(records)).into_iter();
        cells.map(|cell| format!("{}{}", cell.text, if cell.is_best { " *" } else { "" })).collect()
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
    fn labels_say_what_differs() {
        let of = |labels: &[&str]| short(labels.iter().copied());
        assert_eq!(of(&["a=1 b=2", "a=1 b=3"]), ["b=2", "b=3"]);
        assert_eq!(of(&["a=1 b=2 s=1", "a=2 b=3 s=1"]), ["1 2", "2 3"]);
        assert_eq!(of(&["a=1 b=2 x", "a=2 b=2"]), ["1 x", "2"]);
        assert_eq!(of(&["a", "a b"]), ["a", "a b"]);
        assert_eq!(of(&["before", "after"]), ["before", "after"]);
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

    /// The interval and the test against published values: the t table (n = 5: 2.776) and Student's sleep data (1908:
    /// t = -4.0621 with 9 degrees of freedom, p = 0.00283).
    #[test]
    fn intervals_and_tests_are_those_of_the_books() {
        let half = half_width(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!((half - 2.776_445 * (2.5f64 / 5.0).sqrt()).abs() < 1e-5, "{half}");
        let one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let two = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let differences: Vec<f64> = one.iter().zip(two).map(|(a, b)| a - b).collect();
        let test = paired(&differences).unwrap();
        assert!((test.p_value - 0.002_833).abs() < 1e-6 && (test.difference + 1.58).abs() < 1e-9, "{test:?}");
        assert_eq!((half_width(&[1.0]), paired(&[1.0])), (None, None));
        assert_eq!(paired(&[2.0, 2.0]).map(|test| test.p_value), Some(0.0));
        assert_eq!(paired(&[0.0, 0.0]).map(|test| test.p_value), Some(1.0));
    }

    /// Sequential writes are the same with every seed: n was 4, the interval had no width and p was 0, of one run.
    #[test]
    fn seeds_that_change_nothing_are_no_sample() {
        let runs = |moved: f64| -> Vec<Labelled> {
            let one = |policy: &'static str, seed: u64, iops| run(&format!("{policy} seed={seed}"), policy, seed, iops);
            (1..4).flat_map(|seed| [one("none", seed, 100.0), one("lru", seed, 110.0 + moved * seed as f64)]).collect()
        };
        let of = |records: &[Labelled], variant: &str| {
            let all = statistics(records, |metric| metric.name.clone());
            let iops = all.into_iter().find(|one| one.figure == "IOPS" && one.variant == variant).unwrap();
            (iops.n, iops.interval.is_some(), iops.against_first.is_some())
        };
        let still = runs(0.0);
        assert_eq!((of(&still, "none"), of(&still, "lru")), ((3, false, false), (3, false, false)));
        assert_eq!(unmoved(&still), ["none", "lru"]);
        let said = super::super::caveats(&still).join(" ");
        assert!(said.contains("Seeds change no figure of `none`, `lru`: these are repetitions of one run"), "{said}");
        let moved = runs(1.0);
        assert_eq!((of(&moved, "none"), of(&moved, "lru")), ((3, false, false), (3, true, true)));
        assert_eq!(unmoved(&moved), ["none"]);
    }

    #[test]
    fn groups_are_tested_by_the_seeds_that_both_have() {
        let records = [
            run("none seed=1", "none", 1, 100.0),
            run("none seed=2", "none", 2, 110.0),
            run("none seed=3", "none", 3, 130.0),
            run("lru seed=3", "lru", 3, 145.0),
            run("lru seed=2", "lru", 2, 120.0),
            run("lru seed=9", "lru", 9, 500.0),
        ];
        let all = statistics(&records, |metric| metric.name.clone());
        let iops: Vec<&Statistics> = all.iter().filter(|one| one.figure == "IOPS").collect();
        assert_eq!((iops[0].variant.as_str(), iops[0].n, iops[0].against_first), ("none", 3, None));
        let test = iops[1].against_first.unwrap();
        assert_eq!((iops[1].n, test.n, test.difference), (3, 2, 12.5));
        assert!(statistics(&records[..1], |metric| metric.name.clone()).is_empty());
    }
}
