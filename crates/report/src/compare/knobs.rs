//! Knobs: what was varied between runs, and the runs taken together by their values.

use super::{Labelled, header, seeds};
use std::collections::BTreeMap;
use tidewater_base::units::setting;

/// A varied parameter.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Knob {
    /// Its name: a key of the drive's settings, an option, or `drive`.
    pub name: String,
    /// Its values: rising where they are numbers, else in the order of the runs.
    pub levels: Vec<Level>,
    /// For each run, which of them it had.
    pub of_run: Vec<usize>,
}

/// A value of a knob.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Level {
    /// In words.
    pub word: String,
    /// As a number, in its base unit; only where every value of the knob is one.
    pub number: Option<f64>,
}

/// Axes of a figure over knobs, as the command line names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Axes {
    /// The knob from left to right; without it, the numeric one with the most values.
    pub x: Option<String>,
    /// The knob that colours tell apart; without it, all others.
    pub colour: Option<String>,
    /// The figures, by the names of their columns; without any, the key figures.
    pub y: Vec<String>,
}

/// Combinations of further knobs that have a colour each; more could not be distinguished.
const COLOURED_MAX: usize = 16;

/// The knobs of a figure.
pub(super) struct Chosen {
    /// Left to right.
    pub x: Knob,
    /// By colour; may be several knobs in one.
    pub colour: Option<Knob>,
    /// Knobs that are neither: their values are taken together, as seeds are.
    pub beside: Vec<String>,
}

/// Varied parameters without the seed. Those that follow from another are left out.
pub(super) fn knobs(records: &[Labelled]) -> Vec<Knob> {
    let mut rows: Vec<header::Row> = header::varies(records).into_iter().filter(|(name, _)| name != "seed").collect();
    // A capacity mostly follows from what was varied.
    rows.sort_by_key(|(name, _)| name == "capacity");
    let mut knobs: Vec<Knob> = Vec::new();
    let found: Vec<Knob> = rows.into_iter().map(|(name, values)| knob(name, &values)).collect();
    for (i, knob) in found.iter().enumerate() {
        let follows = |other: &Knob| {
            let mut known: BTreeMap<usize, usize> = BTreeMap::new();
            other.of_run.iter().zip(&knob.of_run).all(|(from, to)| *known.entry(*from).or_insert(*to) == *to)
        };
        // Of two that follow from each other the first stays.
        let same = |other: &Knob| other.levels.len() == knob.levels.len();
        let others = found.iter().enumerate().filter(|(j, _)| *j != i);
        if !others.into_iter().any(|(j, other)| follows(other) && (j < i || !same(other))) {
            knobs.push(knob.clone());
        }
    }
    knobs
}

fn knob(name: String, values: &[Option<String>]) -> Knob {
    let mut levels: Vec<Level> = Vec::new();
    for value in values {
        let value = value.as_deref().unwrap_or("–");
        if !levels.iter().any(|level| level.word == value) {
            levels.push(Level { word: value.to_owned(), number: number(value) });
        }
    }
    if levels.iter().all(|level| level.number.is_some()) {
        levels.sort_by(|a, b| a.number.unwrap_or(0.0).total_cmp(&b.number.unwrap_or(0.0)));
    } else {
        levels.iter_mut().for_each(|level| level.number = None);
    }
    let place = |value: &Option<String>| {
        let value = value.as_deref().unwrap_or("–");
        levels.iter().position(|level| level.word == value).unwrap_or(0)
    };
    let of_run = values.iter().map(place).collect();
    levels.iter_mut().for_each(|level| level.word = setting(&level.word));
    Knob { name, levels, of_run }
}

/// A value as a number in its base unit: `64MiB`, `3us`, `7%`.
fn number(value: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 12] = [
        ("", 1.0),
        ("B", 1.0),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("TiB", 1_099_511_627_776.0),
        ("ps", 1e-12),
        ("ns", 1e-9),
        ("us", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("%", 0.01),
    ];
    let end = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
    let (digits, unit) = value.split_at(end);
    let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit.trim())?;
    digits.parse::<f64>().ok().map(|number| number * factor)
}

/// Values of a setting as numbers, with what the name of their column ends with: bytes, microseconds, or a share of 1.
/// `None` where one is no number, or where they have different units; a 0 may have none.
pub(super) fn numbers(values: &[Option<String>]) -> Option<(&'static str, Vec<Option<f64>>)> {
    // Units, with the factor and the divisor of their base: both are exact.
    const UNITS: [(&str, &str, f64, f64); 12] = [
        ("", "", 1.0, 1.0),
        ("B", "_bytes", 1.0, 1.0),
        ("KiB", "_bytes", 1024.0, 1.0),
        ("MiB", "_bytes", 1_048_576.0, 1.0),
        ("GiB", "_bytes", 1_073_741_824.0, 1.0),
        ("TiB", "_bytes", 1_099_511_627_776.0, 1.0),
        ("ps", "_us", 1.0, 1e6),
        ("ns", "_us", 1.0, 1e3),
        ("us", "_us", 1.0, 1.0),
        ("ms", "_us", 1e3, 1.0),
        ("s", "_us", 1e6, 1.0),
        ("%", "_share", 1.0, 100.0),
    ];
    let mut suffix = None;
    let mut numbers = Vec::with_capacity(values.len());
    for value in values {
        let Some(value) = value else {
            numbers.push(None);
            continue;
        };
        let end = value.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(value.len());
        let (digits, unit) = value.split_at(end);
        let (_, ending, factor, divisor) = UNITS.iter().find(|(name, ..)| *name == unit.trim())?;
        let number = digits.parse::<f64>().ok()? * factor / divisor;
        if !(ending.is_empty() && number == 0.0) && *suffix.get_or_insert(*ending) != *ending {
            return None;
        }
        numbers.push(Some(number));
    }
    Some((suffix.unwrap_or(""), numbers))
}

/// Names are alike however their words are joined; a drive is what `profile` chooses, a load what `trace` or `job`
/// does.
fn alike(knob: &str, asked: &str) -> bool {
    let plain = |name: &str| name.to_lowercase().replace([' ', '-'], "_");
    let (knob, asked) = (plain(knob), plain(asked));
    knob == asked
        || knob == "drive" && asked == "profile"
        || ["trace", "job", "generated_trace"].contains(&&*knob) && asked == "load"
}

/// Several knobs as one: its values are their combinations.
fn combined(knobs: &[&Knob]) -> Knob {
    if let [one] = knobs {
        return (*one).clone();
    }
    let runs = knobs.first().map_or(0, |knob| knob.of_run.len());
    let words = |run: usize| {
        let word = |knob: &&Knob| format!("{} {}", knob.name, knob.levels[knob.of_run[run]].word);
        knobs.iter().map(word).collect::<Vec<_>>().join(", ")
    };
    let mut places: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    for run in 0..runs {
        places.entry(knobs.iter().map(|knob| knob.of_run[run]).collect()).or_default().push(run);
    }
    let mut of_run = vec![0; runs];
    let mut levels = Vec::new();
    for (i, runs) in places.into_values().enumerate() {
        levels.push(Level { word: words(runs[0]), number: None });
        runs.into_iter().for_each(|run| of_run[run] = i);
    }
    Knob { name: knobs.iter().map(|knob| &*knob.name).collect::<Vec<_>>().join(", "), levels, of_run }
}

/// The knobs that `axes` asks for, else those that show most.
///
/// # Errors
/// A name that is no knob: with those there are.
pub(super) fn choose(records: &[Labelled], axes: &Axes) -> Result<Chosen, String> {
    let knobs = knobs(records);
    let named = |asked: &Option<String>| -> Result<Option<usize>, String> {
        let Some(asked) = asked else { return Ok(None) };
        let place = knobs.iter().position(|knob| alike(&knob.name, asked));
        place.map(Some).ok_or_else(|| {
            let names: Vec<&str> = knobs.iter().map(|knob| knob.name.as_str()).collect();
            match names.is_empty() {
                true => format!("{asked} was not varied: nothing was, but the seed"),
                false => format!("{asked} was not varied; these were: {}", names.join(", ")),
            }
        })
    };
    let (x, colour) = (named(&axes.x)?, named(&axes.colour)?);
    let most = |numeric: bool| {
        let numbers = |knob: &Knob| knob.levels.iter().all(|level| level.number.is_some());
        let fits = |i: &usize| Some(*i) != colour && numbers(&knobs[*i]) == numeric;
        // Of equal ones the first.
        (0..knobs.len()).filter(fits).rev().max_by_key(|i| knobs[*i].levels.len())
    };
    let Some(x) = x.or_else(|| most(true)).or_else(|| most(false)).or(colour) else {
        return Ok(Chosen { x: variants(records), colour: None, beside: Vec::new() });
    };
    let others: Vec<&Knob> = knobs.iter().enumerate().filter(|(i, _)| *i != x).map(|(_, knob)| knob).collect();
    let colour = match colour.filter(|colour| *colour != x) {
        Some(colour) => Some(knobs[colour].clone()),
        None if others.is_empty() => None,
        None => {
            let all = combined(&others);
            Some(if all.levels.len() <= COLOURED_MAX { all } else { others[0].clone() })
        }
    };
    let shown = |name: &str| colour.as_ref().is_some_and(|colour| colour.name.split(", ").any(|part| part == name));
    let beside = others.iter().filter(|knob| !shown(&knob.name)).map(|knob| knob.name.clone()).collect();
    Ok(Chosen { x: knobs[x].clone(), colour, beside })
}

/// Runs that no setting tells apart: each by its label, those that differ in their seed alone together.
fn variants(records: &[Labelled]) -> Knob {
    let mut labels: Vec<Option<String>> = records.iter().map(|run| Some(run.label.clone())).collect();
    for group in seeds::groups(records) {
        group.runs().iter().for_each(|&run| labels[run] = Some(group.label.clone()));
    }
    let mut knob = knob("run".to_owned(), &labels);
    knob.levels.iter_mut().for_each(|level| level.number = None);
    knob
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::record::Record;

    /// Runs of every combination, with IOPS that follow from it.
    pub(in super::super) fn grid(seeds: u64) -> Vec<Labelled> {
        let mut runs = Vec::new();
        for (p, policy) in ["cbm", "lru"].into_iter().enumerate() {
            for (s, size) in ["1MiB", "512KiB", "16MiB"].into_iter().enumerate() {
                for seed in 1..=seeds {
                    let iops = 1000.0 * (1.0 + p as f64) + 100.0 * s as f64 + seed as f64;
                    let mut record = Record { seed, iops, ..Record::default() };
                    record.profile.settings.insert("buffer.write_policy".into(), policy.into());
                    record.profile.settings.insert("buffer.write_size".into(), size.into());
                    record.profile.settings.insert("of.the_size".into(), format!("x{size}"));
                    record.capacity_bytes = 1000 + p as u64;
                    let label = format!("buffer.write_policy={policy} buffer.write_size={size} seed={seed}");
                    runs.push(Labelled { label, record });
                }
            }
        }
        runs
    }

    #[test]
    fn knobs_are_what_varies_and_follows_from_nothing_else() {
        let knobs = knobs(&grid(2));
        let names: Vec<&str> = knobs.iter().map(|knob| knob.name.as_str()).collect();
        assert_eq!(names, ["buffer.write_policy", "buffer.write_size"]);
        let words: Vec<&str> = knobs[1].levels.iter().map(|level| level.word.as_str()).collect();
        assert_eq!(words, ["512 KiB", "1 MiB", "16 MiB"], "rising");
        assert_eq!(number("7%"), Some(0.07));
        assert_eq!((number("3us"), number("cbm"), number("1.2.3")), (Some(3e-6), None, None));
    }

    #[test]
    fn settings_are_numbers_of_one_unit() {
        let of = |values: &[&str]| numbers(&values.iter().map(|value| Some((*value).to_owned())).collect::<Vec<_>>());
        let all = |suffix, values: &[f64]| Some((suffix, values.iter().copied().map(Some).collect()));
        assert_eq!(of(&["7%", "14%", "28%"]), all("_share", &[0.07, 0.14, 0.28]));
        assert_eq!(of(&["1MiB", "512KiB", "0"]), all("_bytes", &[1_048_576.0, 524_288.0, 0.0]));
        assert_eq!(of(&["0", "40ns", "3us", "1.5ms"]), all("_us", &[0.0, 0.04, 3.0, 1_500.0]));
        assert_eq!(of(&["8", "16"]), all("", &[8.0, 16.0]));
        assert_eq!((of(&["8", "3us"]), of(&["lru", "8"]), of(&["1.2.3"]), of(&[""])), (None, None, None, None));
        assert_eq!(numbers(&[None, Some("4".into())]), Some(("", vec![None, Some(4.0)])));
    }

    #[test]
    fn axes_are_chosen_by_name_or_by_what_shows_most() {
        let runs = grid(2);
        let chosen = choose(&runs, &Axes::default()).unwrap();
        assert_eq!((&*chosen.x.name, chosen.beside.len()), ("buffer.write_size", 0));
        assert_eq!(chosen.colour.unwrap().name, "buffer.write_policy");
        let axes = Axes { x: Some("buffer.write-policy".into()), ..Axes::default() };
        assert_eq!(choose(&runs, &axes).unwrap().colour.unwrap().levels.len(), 3);
        let axes = Axes { x: Some("nand.channels".into()), ..Axes::default() };
        let refused = choose(&runs, &axes).err().unwrap();
        assert!(refused.ends_with("these were: buffer.write_policy, buffer.write_size"), "{refused}");
    }
}
