//! Tables: the figures of records as named columns, which programs read. Units are in the names.

use crate::compare::{self, Labelled};
use crate::log::{LogRecord, Side};
use crate::probe::{ProbeRecord, Stage, Verdict};
use crate::record::Record;
use std::fmt::Write as _;

/// Columns of one length.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The columns, in order.
    pub columns: Vec<Column>,
}

/// One column.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name: lower case, words by `_`, the unit last.
    pub name: String,
    /// Its values.
    pub values: Values,
}

/// Values of one kind; `None` where a row has none.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Numbers.
    Float(Vec<Option<f64>>),
    /// Counts.
    Count(Vec<Option<u64>>),
    /// Words.
    Text(Vec<Option<String>>),
    /// Yes or no.
    Flag(Vec<Option<bool>>),
}

impl Values {
    /// Rows.
    pub fn len(&self) -> usize {
        match self {
            Values::Float(values) => values.len(),
            Values::Count(values) => values.len(),
            Values::Text(values) => values.len(),
            Values::Flag(values) => values.len(),
        }
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values of another part of the same column.
    fn append(&mut self, more: Values) {
        match (self, more) {
            (Values::Float(values), Values::Float(mut more)) => values.append(&mut more),
            (Values::Count(values), Values::Count(mut more)) => values.append(&mut more),
            (Values::Text(values), Values::Text(mut more)) => values.append(&mut more),
            (Values::Flag(values), Values::Flag(mut more)) => values.append(&mut more),
            _ => unreachable!("the same table has the same columns"),
        }
    }

    fn write(&self, row: usize, out: &mut String) {
        // A text takes every write.
        let _ = match self {
            Values::Float(values) => values[row].map_or(Ok(()), |value| write!(out, "{value}")),
            Values::Count(values) => values[row].map_or(Ok(()), |value| write!(out, "{value}")),
            Values::Text(values) => values[row].as_deref().map_or(Ok(()), |value| out.write_str(&field(value))),
            Values::Flag(values) => values[row].map_or(Ok(()), |value| write!(out, "{value}")),
        };
    }
}

impl Table {
    /// Rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.values.len())
    }

    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<&Values> {
        self.columns.iter().find(|column| column.name == name).map(|column| &column.values)
    }

    fn add(&mut self, name: &str, values: Values) {
        self.columns.push(Column { name: name.to_owned(), values });
    }

    /// A setting of runs, in words as they come, and as numbers where they are some.
    fn add_setting(&mut self, name: &str, words: Vec<Option<String>>, records: &[Labelled]) {
        let bytes = || records.iter().map(|run| Some(run.record.capacity_bytes)).collect();
        match compare::numbers(&words) {
            // In words it is rounded.
            _ if name == "capacity" => {
                self.add(name, Values::Text(words));
                self.add("capacity_bytes", Values::Count(bytes()));
            }
            Some(("", numbers)) => self.add(name, whole(numbers)),
            Some((unit, numbers)) => {
                self.add(name, Values::Text(words));
                let numbers = if unit == "_bytes" { whole(numbers) } else { Values::Float(numbers) };
                self.add(&format!("{name}{unit}"), numbers);
            }
            None => self.add(name, Values::Text(words)),
        }
    }

    /// The columns of these names alone, in their order here.
    pub(crate) fn only(self, names: &[&str]) -> Table {
        let of = |name: &&str| self.columns.iter().find(|column| column.name == *name).cloned();
        Table { columns: names.iter().filter_map(of).collect() }
    }

    /// The same without numbers that are none.
    pub(crate) fn finite(mut self) -> Table {
        for column in &mut self.columns {
            if let Values::Float(values) = &mut column.values {
                values.iter_mut().for_each(|value| *value = value.filter(|value| value.is_finite()));
            }
        }
        self
    }

    /// Tables of the same columns below each other, each row after the name of its run.
    pub fn of_each<'a>(tables: impl Iterator<Item = (&'a str, Table)>) -> Table {
        let mut all = Table { columns: Vec::new() };
        for (name, table) in tables {
            let names = Values::Text(vec![Some(name.to_owned()); table.rows()]);
            let columns = [Column { name: "run".into(), values: names }].into_iter().chain(table.columns);
            if all.columns.is_empty() {
                all.columns = columns.collect();
            } else {
                all.columns.iter_mut().zip(columns).for_each(|(column, more)| column.values.append(more.values));
            }
        }
        all
    }

    /// The same rows, with rows without values between them: `present` says of each row of the new table whether it is
    /// the next of the old.
    pub fn spread(self, present: &[bool]) -> Table {
        fn among<T>(values: Vec<Option<T>>, present: &[bool]) -> Vec<Option<T>> {
            let mut values = values.into_iter();
            present.iter().map(|&present| if present { values.next().flatten() } else { None }).collect()
        }
        let columns = self.columns.into_iter().map(|Column { name, values }| Column {
            name,
            values: match values {
                Values::Float(values) => Values::Float(among(values, present)),
                Values::Count(values) => Values::Count(among(values, present)),
                Values::Text(values) => Values::Text(among(values, present)),
                Values::Flag(values) => Values::Flag(among(values, present)),
            },
        });
        Table { columns: columns.collect() }
    }

    /// As CSV (RFC 4180): the names, then a line for each row; numbers unrounded, as short as they read back the same;
    /// a value that is not there is empty.
    pub fn csv(&self) -> String {
        let names: Vec<String> = self.columns.iter().map(|column| field(&column.name)).collect();
        let mut out = names.join(",");
        out.push('\n');
        for row in 0..self.rows() {
            for (i, column) in self.columns.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                column.values.write(row, &mut out);
            }
            out.push('\n');
        }
        out
    }
}

/// Numbers as counts, where all of them are some.
fn whole(numbers: Vec<Option<f64>>) -> Values {
    let is_count = |number: &f64| number.fract() == 0.0 && (0.0..=9e15).contains(number);
    match numbers.iter().flatten().all(is_count) {
        true => Values::Count(numbers.into_iter().map(|number| number.map(|number| number as u64)).collect()),
        false => Values::Float(numbers),
    }
}

/// A field, in quotes where it needs them (RFC 4180, section 2).
fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

/// A name that programs take for a column: `read p99.9` is `read_p99_9`.
pub(crate) fn column_name(name: &str) -> String {
    let words: Vec<String> =
        name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_lowercase).collect();
    words.join("_")
}

/// A table of these columns.
pub(crate) fn named(columns: Vec<(&str, Values)>) -> Table {
    Table { columns: columns.into_iter().map(|(name, values)| Column { name: name.to_owned(), values }).collect() }
}

/// A table of two columns of numbers.
pub(crate) fn pairs(names: [&str; 2], points: &[(f64, f64)]) -> Table {
    named(vec![
        (names[0], Values::Float(points.iter().map(|point| Some(point.0)).collect())),
        (names[1], Values::Float(points.iter().map(|point| Some(point.1)).collect())),
    ])
}

/// The points of several curves, each after the name of its curve.
pub(crate) fn curves(name: &str, names: [&str; 2], rows: &[(&str, (f64, f64))]) -> Table {
    let points: Vec<(f64, f64)> = rows.iter().map(|(_, point)| *point).collect();
    let mut table =
        named(vec![(name, Values::Text(rows.iter().map(|(curve, _)| Some((*curve).to_owned())).collect()))]);
    table.columns.extend(pairs(names, &points).columns);
    table
}

/// A row for each run: what it is called, whether it was stopped before its end, the version that made it, its drive,
/// load and seed, what else tells it from the others, and every figure of the comparison. A setting with a unit is text
/// as `--set` takes it, with a number beside it whose column names the unit (`_bytes`, `_us`, `_share`); one without a
/// unit is a number alone. A figure that no run has is left out.
pub fn runs(records: &[Labelled]) -> Table {
    let text = |value: &dyn Fn(&Labelled) -> String| Values::Text(records.iter().map(|run| Some(value(run))).collect());
    let mut table = Table { columns: Vec::new() };
    table.add("run", text(&|run| run.label.clone()));
    table.add("partial", Values::Flag(records.iter().map(|run| Some(run.record.partial)).collect()));
    table.add("version", text(&|run| run.record.tool_version.clone()));
    table.add("profile", text(&|run| run.record.profile.name.clone()));
    table.add("load", text(&|run| run.record.workload.source.clone()));
    table.add("seed", Values::Count(records.iter().map(|run| Some(run.record.seed)).collect()));
    for (name, values) in compare::varies(records) {
        if !["drive", "trace", "job", "generated trace", "seed", "version"].contains(&name.as_str()) {
            table.add_setting(&name.replace(' ', "_"), values, records);
        }
    }
    for (name, values) in compare::columns(records) {
        table.add(&name, Values::Float(values));
    }
    table
}

/// Runs that differ in their seed alone, taken together: a row for each variant and figure, with the number of runs,
/// mean, median, least and largest, the 95 % confidence interval of the mean, and the paired t-test against the first
/// variant over the seeds that both have. No row where no two runs differ in their seed alone.
pub fn statistics(records: &[Labelled]) -> Table {
    let all = compare::statistics(records);
    let mut table = Table { columns: Vec::new() };
    table.add("variant", Values::Text(all.iter().map(|one| Some(one.variant.clone())).collect()));
    table.add("figure", Values::Text(all.iter().map(|one| Some(one.figure.clone())).collect()));
    table.add("n", Values::Count(all.iter().map(|one| Some(one.n)).collect()));
    let number = |value: &dyn Fn(&compare::Statistics) -> Option<f64>| Values::Float(all.iter().map(value).collect());
    table.add("mean", number(&|one| Some(one.mean)));
    table.add("median", number(&|one| Some(one.spread.1)));
    table.add("lowest", number(&|one| Some(one.spread.0)));
    table.add("highest", number(&|one| Some(one.spread.2)));
    table.add("mean_low_95", number(&|one| one.interval.map(|interval| interval.0)));
    table.add("mean_high_95", number(&|one| one.interval.map(|interval| interval.1)));
    let pairs = all.iter().map(|one| one.against_first.map(|test| test.n)).collect();
    table.add("pairs", Values::Count(pairs));
    table.add("difference", number(&|one| one.against_first.map(|test| test.difference)));
    table.add("p_value", number(&|one| one.against_first.map(|test| test.p_value)));
    table
}

/// The run over virtual time: a row for each interval.
pub fn time_series(record: &Record) -> Table {
    let points = &record.time_series.points;
    let mut table = Table { columns: Vec::new() };
    let column =
        |value: fn(&crate::record::TimePoint) -> Option<f64>| Values::Float(points.iter().map(value).collect());
    table.add("time_s", column(|p| Some(p.t_seconds)));
    table.add("read_iops", column(|p| Some(p.read_iops)));
    table.add("write_iops", column(|p| Some(p.write_iops)));
    table.add("read_mib_s", column(|p| Some(p.read_mib_s)));
    table.add("write_mib_s", column(|p| Some(p.write_mib_s)));
    table.add("mean_latency_us", column(|p| Some(p.mean_latency_us)));
    table.add("read_latency_us", column(|p| p.read_latency_us));
    table.add("write_latency_us", column(|p| p.write_latency_us));
    table.add("p99_latency_us", column(|p| p.p99_latency_us));
    table.add("erases", Values::Count(points.iter().map(|p| Some(p.erases)).collect()));
    table
}

/// The distribution of latencies: for each operation, rising, a latency and the share of requests that took no longer.
pub fn latencies(record: &Record) -> Table {
    let rows =
        || record.latency_us.iter().flat_map(|(name, latency)| latency.cdf.iter().map(move |point| (name, point)));
    let mut table = Table { columns: Vec::new() };
    table.add("operation", Values::Text(rows().map(|(name, _)| Some(name.clone())).collect()));
    table.add("latency_us", Values::Float(rows().map(|(_, point)| Some(point.0)).collect()));
    table.add("share", Values::Float(rows().map(|(_, point)| Some(point.1)).collect()));
    table
}

/// How busy each die was: shares of the simulated time.
pub fn dies(record: &Record) -> Table {
    let dies = &record.utilization.dies;
    let mut table = Table { columns: Vec::new() };
    table.add("channel", Values::Count(dies.iter().map(|die| Some(u64::from(die.channel))).collect()));
    table.add("die", Values::Count(dies.iter().map(|die| Some(u64::from(die.die))).collect()));
    table.add("read_share", Values::Float(dies.iter().map(|die| Some(die.read_share)).collect()));
    table.add("program_share", Values::Float(dies.iter().map(|die| Some(die.program_share)).collect()));
    table.add("erase_share", Values::Float(dies.iter().map(|die| Some(die.erase_share)).collect()));
    table.add("idle_share", Values::Float(dies.iter().map(|die| Some(die.idle_share)).collect()));
    table
}

/// Erase counts: blocks by how often they were erased.
pub fn wear(record: &Record) -> Table {
    let groups = &record.wear.histogram;
    let mut table = Table { columns: Vec::new() };
    table.add("erases", Values::Count(groups.iter().map(|group| Some(group.0)).collect()));
    table.add("blocks", Values::Count(groups.iter().map(|group| Some(group.1)).collect()));
    table
}

/// A log on each side: a row for each.
pub fn log(record: &LogRecord) -> Table {
    let sides = &record.sides;
    let mut table = Table { columns: Vec::new() };
    let number = |value: fn(&Side) -> f64| Values::Float(sides.iter().map(|side| Some(value(side))).collect());
    let count = |value: fn(&Side) -> u64| Values::Count(sides.iter().map(|side| Some(value(side))).collect());
    table.add("side", Values::Text(sides.iter().map(|side| Some(side.to.clone())).collect()));
    table.add("transactions", count(|side| side.transactions));
    table.add("transactions_per_second", number(|side| side.transactions_per_second));
    table.add("log_bytes", count(|side| side.log_bytes));
    table.add("log_bytes_per_second", number(|side| side.log_bytes_per_second));
    table.add("simulated_seconds", number(|side| side.simulated_seconds));
    table.add("latency_mean_us", number(|side| side.latency_us.mean));
    table.add("latency_p50_us", number(|side| side.latency_us.p50));
    table.add("latency_p99_us", number(|side| side.latency_us.p99));
    table.add("latency_p99_9_us", number(|side| side.latency_us.p999));
    table.add("commit_mean_us", number(|side| side.commit_us.mean));
    table.add("commit_p50_us", number(|side| side.commit_us.p50));
    table.add("commit_p99_us", number(|side| side.commit_us.p99));
    table.add("stalls", count(|side| side.stalls));
    table.add("pages_destaged", count(|side| side.pages_destaged));
    table.add("pages_partial", count(|side| side.pages_partial));
    table.add("credit_reads", count(|side| side.credit_reads));
    table
}

/// Result of a probe: a row for each verdict.
pub fn probe(record: &ProbeRecord) -> Table {
    let all: Vec<(&Stage, &Verdict)> =
        record.stages.iter().flat_map(|stage| stage.verdicts.iter().map(move |verdict| (stage, verdict))).collect();
    let text = |value: &dyn Fn(&Stage, &Verdict) -> Option<String>| {
        Values::Text(all.iter().map(|(stage, verdict)| value(stage, verdict)).collect())
    };
    let count =
        |value: fn(&Verdict) -> Option<u64>| Values::Count(all.iter().map(|(_, verdict)| value(verdict)).collect());
    let mut table = Table { columns: Vec::new() };
    table.add("stage", text(&|stage, _| Some(stage.name.clone())));
    table.add("asked", text(&|_, verdict| Some(verdict.what.clone())));
    let answer = |verdict: &Verdict| serde_json::to_value(verdict.answer).ok()?.as_str().map(str::to_owned);
    table.add("answer", text(&|_, verdict| answer(verdict)));
    table.add("found_bytes", count(|verdict| verdict.bytes));
    table.add("lowest_bytes", count(|verdict| verdict.range_bytes.map(|range| range[0])));
    table.add("highest_bytes", count(|verdict| verdict.range_bytes.map(|range| range[1])));
    table.add("place", text(&|_, verdict| verdict.place.clone()));
    table.add("confidence", Values::Float(all.iter().map(|(_, verdict)| Some(verdict.confidence)).collect()));
    table.add("because", text(&|_, verdict| Some(verdict.because.clone())));
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{DieUse, Latency, TimePoint};

    #[test]
    fn a_row_for_each_run_with_what_varies_and_every_figure() {
        let run = |label: &str, size: &str, seed: u64, iops: f64| {
            let mut record = Record { seed, iops, partial: seed == 2, ..Record::default() };
            record.profile.settings.insert("buffer.write_size".into(), size.into());
            record.profile.description = format!("a drive, with {size}");
            let latency = Latency { count: 1, p999: 1.5, ..Latency::default() };
            record.latency_us.insert("read".into(), latency);
            Labelled { label: label.into(), record }
        };
        let table = runs(&[run("a", "1MiB", 1, 0.25), run("b, \"c\"", "2MiB", 2, 1e9)]);
        let text = table.csv();
        let lines: Vec<&str> = text.lines().collect();
        let names: Vec<&str> = lines[0].split(',').collect();
        let first = ["run", "partial", "version", "profile", "load", "seed", "buffer.write_size"];
        assert_eq!((&names[..7], &names[7..9]), (&first[..], &["buffer.write_size_bytes", "iops"][..]));
        assert!(names.contains(&"read_p99_9_us") && names.contains(&"simulated_time_seconds"), "{names:?}");
        assert!(lines[1].starts_with("a,false,0.1.0,,,1,1MiB,1048576,0.25,"), "{}", lines[1]);
        assert!(lines[2].starts_with("\"b, \"\"c\"\"\",true,0.1.0,,,2,2MiB,2097152,1000000000,"), "{}", lines[2]);
        assert_eq!((table.rows(), runs(&[]).rows()), (2, 0));
    }

    #[test]
    fn tables_of_a_record_have_its_rows() {
        let mut record = Record::default();
        record.time_series.points = vec![TimePoint { t_seconds: 0.5, erases: 3, ..TimePoint::default() }; 2];
        record.latency_us.insert("all".into(), Latency { cdf: vec![(1.0, 0.5), (2.0, 1.0)], ..Latency::default() });
        record.utilization.dies = vec![DieUse { channel: 1, die: 2, idle_share: 1.0, ..DieUse::default() }];
        record.wear.histogram = vec![(0, 7), (1, 2)];
        assert_eq!(time_series(&record).csv().lines().nth(1), Some("0.5,0,0,0,0,0,,,,3"));
        assert_eq!(latencies(&record).csv(), "operation,latency_us,share\nall,1,0.5\nall,2,1\n");
        assert_eq!(dies(&record).csv().lines().nth(1), Some("1,2,0,0,0,1"));
        assert_eq!(wear(&record).csv(), "erases,blocks\n0,7\n1,2\n");
    }
}
