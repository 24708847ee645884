//! An experiment of one's own, as a file: a study, what is read off its runs, what is stated of that, and figures.

mod expression;
mod figure;

use crate::Failure;
use crate::many::{Follow, How, one, ready};
use crate::sweep::plan::{Given, LoadTable, PlanTable, Scalar};
use crate::vary::Plan;
use expression::{Expression, Names, Row, Rows, median, short};
use figure::FigureTable;
use minijinja::Value;
use minijinja::value::Serde;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidewater_report::Record;
use tidewater_report::compare::Labelled;
use tidewater_report::experiment::{Cell, Check, Column, Experiment, Parameter, SCHEMA};
use tidewater_report::table::{self, Values};
use tidewater_sim::pool;
use toml::Spanned;

/// An experiment to begin with, with every part and what it is for.
pub const TEMPLATE: &str = include_str!("template.toml");

/// An experiment as a file describes it, checked as far as it can be without a run.
pub struct Own {
    path: PathBuf,
    file: File,
    seed: u64,
    plans: Vec<Plan>,
    values: Vec<Expression>,
    checks: Vec<(Expression, Expression)>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    #[serde(default)]
    source: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    fitted: Vec<String>,
    #[serde(default)]
    differences: Vec<String>,
    #[serde(default)]
    parameters: BTreeMap<String, Documented>,
    run: Option<PlanTable>,
    quick: Option<Quick>,
    #[serde(default)]
    columns: Vec<ColumnTable>,
    #[serde(default)]
    checks: Vec<CheckTable>,
    #[serde(default)]
    figures: Vec<FigureTable>,
}

/// A value with its source, which expressions take by its name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Documented {
    value: toml::Value,
    doc: String,
}

/// Changes made by `--quick`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Quick {
    set: BTreeMap<String, Scalar>,
    load: Option<LoadTable>,
    vary: BTreeMap<Spanned<String>, Given>,
}

impl Quick {
    fn change(self, mut table: PlanTable) -> Result<PlanTable, Failure> {
        table.set.extend(self.set);
        table.load = self.load.unwrap_or(table.load);
        for (key, values) in self.vary {
            let Some(place) = table.vary.keys().find(|other| other.get_ref() == key.get_ref()).cloned() else {
                return Err(Failure::usage(format_args!("quick.vary: {} does not vary", key.get_ref())));
            };
            table.vary.insert(place, values);
        }
        Ok(table)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnTable {
    name: String,
    #[serde(default)]
    doc: String,
    value: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckTable {
    statement: String,
    expected: Option<String>,
    measured: String,
    holds: String,
    /// Of one that does not hold: why.
    because: Option<String>,
}

/// How to run it.
pub struct Options<'a> {
    /// Memory, traces, and whether it shall end; jobs are those of the surrounding [`pool::with_jobs`].
    pub how: &'a How,
    /// Gets the progress of the runs.
    pub follow: Arc<dyn Follow>,
}

impl Own {
    /// Reads the file. Paths in it begin at its folder. `seed`: 1 for the seeds of the file; each one more makes them
    /// one larger. `quick`: with what the file's `[quick]` changes.
    ///
    /// # Errors
    /// When it can't be read, or says what can't be run, read off or drawn.
    pub fn from_file(path: &Path, seed: u64, quick: bool) -> Result<Own, Failure> {
        let text = crate::read(path)?;
        Own::parse(&text, path, seed, quick)
            .map_err(|failure| Failure { message: format!("{}: {}", path.display(), failure.message), ..failure })
    }

    fn parse(text: &str, path: &Path, seed: u64, quick: bool) -> Result<Own, Failure> {
        let mut file: File = toml::from_str(text).map_err(|error| Failure::usage(error.to_string().trim_end()))?;
        let Some(table) = file.run.take().filter(|_| !file.columns.is_empty()) else {
            return Err(Failure::usage("an experiment needs [run], as a sweep's plan, and at least one [[columns]]")
                .help("`tidewater experiment template` prints one to begin with"));
        };
        let table = match file.quick.take().filter(|_| quick) {
            Some(quick) => quick.change(table)?,
            None if quick => {
                return Err(Failure::usage("has no [quick]").help(
                    "say there what a first look changes: a shorter job in [quick.load], fewer seeds in \
                           [quick.vary]",
                ));
            }
            None => table,
        };
        let expression = |place: String, text: &str| {
            Expression::new(text).map_err(|why| Failure::usage(format_args!("{place}: `{text}`: {why}")))
        };
        for (i, column) in file.columns.iter().enumerate() {
            if file.columns[..i].iter().any(|other| other.name == column.name) {
                return Err(Failure::usage(format_args!("columns: `{}` is there twice", column.name)));
            }
        }
        let values = file.columns.iter().map(|column| expression(format!("columns.{}", column.name), &column.value));
        let values = values.collect::<Result<_, _>>()?;
        let checks = file.checks.iter().map(|check| {
            let place = |part: &str| format!("checks, \"{}\", {part}", check.statement);
            Ok((expression(place("measured"), &check.measured)?, expression(place("holds"), &check.holds)?))
        });
        let checks = checks.collect::<Result<_, Failure>>()?;
        let mut plans = table.sweep(path.parent().unwrap_or(Path::new("")))?.plans()?;
        for plan in &mut plans {
            plan.drive.seed = plan.drive.seed.wrapping_add(seed.wrapping_sub(1));
        }
        let keys: Vec<&str> = plans.iter().flat_map(|plan| &plan.point).map(|setting| setting.key.as_str()).collect();
        let columns: Vec<&str> = file.columns.iter().map(|column| column.name.as_str()).collect();
        file.figures.iter().try_for_each(|figure| figure.check(&keys, &columns))?;
        Ok(Own { path: path.to_owned(), file, seed, plans, values, checks })
    }

    /// Its name: that of the file, without its ending.
    pub fn name(&self) -> String {
        self.path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// How many runs it has.
    pub fn runs(&self) -> usize {
        self.plans.len()
    }

    /// Runs it. `None`: it was asked to end.
    ///
    /// # Errors
    /// A run that fails, and an expression without a value.
    pub fn run(&self, options: &Options<'_>) -> Result<Option<Experiment>, Failure> {
        let place =
            |failure: Failure| Failure { message: format!("{}: {}", self.path.display(), failure.message), ..failure };
        let runs = ready(self.plans.clone()).map_err(place)?;
        let Options { how, follow } = options;
        how.expect(runs.iter());
        // A name that is wrong is found by the first run that ends, and ends the others.
        let wrong = std::sync::atomic::AtomicBool::new(false);
        let measured = pool::in_order(runs.iter().collect(), |index, run| {
            if how.cancelled.load(Ordering::Relaxed) || wrong.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let outcome = one(run, how, index, follow);
            follow.ended(index, &outcome);
            let record = outcome?;
            if record.partial {
                return Ok(None);
            }
            let numbers = self.numbers(record);
            wrong.fetch_or(numbers.is_err(), Ordering::Relaxed);
            numbers.map(Some)
        });
        let mut rows = Vec::new();
        for outcome in measured {
            match outcome.map_err(place)? {
                Some(numbers) => rows.push(numbers),
                None if wrong.load(Ordering::Relaxed) => {}
                None => return Ok(None),
            }
        }
        self.document(&self.over_seeds(&rows)).map(Some).map_err(place)
    }

    /// Values of the columns for a run.
    fn numbers(&self, record: Record) -> Result<Vec<f64>, Failure> {
        let mut names = self.parameters();
        let runs = [Labelled { label: String::new(), record }];
        for column in table::runs(&runs).columns {
            if let Values::Float(values) = column.values
                && let [Some(value)] = values[..]
            {
                names.insert(column.name, Value::from(value));
            }
        }
        let [Labelled { record, .. }] = runs;
        names.insert("record".into(), Value::from(Serde(&record)));
        let number = |(column, value): (&ColumnTable, &Expression)| {
            value.number(&names).map_err(|why| Failure::usage(format_args!("columns.{}: {why}", column.name)))
        };
        self.file.columns.iter().zip(&self.values).map(number).collect()
    }

    fn parameters(&self) -> Names {
        self.file.parameters.iter().map(|(name, given)| (name.clone(), Value::from(Serde(&given.value)))).collect()
    }

    /// A row for each point without its seed, with the median over seeds.
    fn over_seeds(&self, measured: &[Vec<f64>]) -> Rows {
        let points = || self.plans.iter().map(|plan| &plan.point);
        let keys = points().flatten().map(|setting| setting.key.as_str()).filter(|key| *key != "seed");
        let mut of_rows: Vec<String> = Vec::new();
        for key in keys {
            if !of_rows.iter().any(|other| other == key) {
                of_rows.push(key.to_owned());
            }
        }
        let mut groups: Vec<(Vec<String>, Vec<&Vec<f64>>)> = Vec::new();
        for (point, numbers) in points().zip(measured) {
            let value = |key: &String| point.iter().find(|setting| setting.key == *key).map(|one| one.value.clone());
            let values: Vec<String> = of_rows.iter().map(|key| value(key).unwrap_or_default()).collect();
            match groups.iter_mut().find(|(other, _)| *other == values) {
                Some((_, group)) => group.push(numbers),
                None => groups.push((values, vec![numbers])),
            }
        }
        let middle = |group: &[&Vec<f64>], at: usize| {
            median(&group.iter().map(|numbers| numbers[at]).collect::<Vec<_>>()).unwrap_or_default()
        };
        let columns: Vec<String> = self.file.columns.iter().map(|column| column.name.clone()).collect();
        let rows = groups.into_iter().map(|(values, group)| {
            let numbers = (0..columns.len()).map(|at| middle(&group, at)).collect();
            Row { values, numbers }
        });
        Rows { keys: of_rows, rows: Arc::new(rows.collect()), columns }
    }

    fn document(&self, rows: &Rows) -> Result<Experiment, Failure> {
        let file = &self.file;
        let mut names = self.parameters();
        let mut checks = Vec::new();
        for (check, (measured, holds)) in file.checks.iter().zip(&self.checks) {
            let wrong = |why: String| Failure::usage(format_args!("checks, \"{}\": {why}", check.statement));
            let value = measured.value(&names, Some(rows)).map_err(wrong)?;
            names.insert("measured".into(), value.clone());
            let ok = holds.holds(&names, rows).map_err(wrong)?;
            names.remove("measured");
            checks.push(Check {
                name: String::new(),
                statement: check.statement.clone(),
                expected: check.expected.clone().unwrap_or_else(|| holds.to_string()),
                measured: rounded(&value),
                ok,
                fitted: Vec::new(),
                because: check.because.clone().filter(|_| !ok),
            });
        }
        let of_key = |key: &String| Column { name: short(key).to_owned(), doc: format!("{key}, as it is varied") };
        let of_column = |column: &ColumnTable| {
            let doc = if column.doc.is_empty() { column.value.clone() } else { column.doc.clone() };
            Column { name: column.name.clone(), doc }
        };
        let cells = |Row { values, numbers }: &Row| {
            let values = values.iter().map(|value| Cell::from(value.as_str()));
            values.chain(numbers.iter().map(|&number| Cell::from(number))).collect()
        };
        Ok(Experiment {
            schema: SCHEMA.into(),
            name: self.name(),
            title: file.title.clone(),
            source: file.source.clone(),
            description: file.description.trim().to_owned(),
            version: env!("CARGO_PKG_VERSION").into(),
            seed: self.seed,
            parameters: file.parameters.iter().map(parameter).collect(),
            columns: rows.keys.iter().map(of_key).chain(file.columns.iter().map(of_column)).collect(),
            rows: rows.rows.iter().map(cells).collect(),
            checks,
            found: Vec::new(),
            differences: file.differences.clone(),
            fitted: file.fitted.clone(),
            figures: file.figures.iter().map(|figure| figure.draw(rows)).collect::<Result<_, _>>()?,
        })
    }
}

fn parameter((name, given): (&String, &Documented)) -> Parameter {
    let value = match &given.value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Parameter { name: name.clone(), value, doc: given.doc.clone() }
}

/// A value for a reader: numbers with four digits.
fn rounded(value: &Value) -> String {
    let number = |value: &Value| match f64::try_from(value.clone()) {
        Ok(number) if number.abs() >= 1_000.0 => format!("{number:.0}"),
        Ok(number) => {
            let digits = if number == 0.0 { 0 } else { (3 - number.abs().log10().floor() as i32).clamp(0, 9) };
            let text = format!("{number:.*}", digits as usize);
            if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
        }
        Err(_) => value.to_string(),
    };
    match value.kind() {
        minijinja::value::ValueKind::Seq | minijinja::value::ValueKind::Iterable => value
            .try_iter()
            .map_or_else(|_| value.to_string(), |all| all.map(|one| number(&one)).collect::<Vec<_>>().join(", ")),
        minijinja::value::ValueKind::Number => number(value),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests;
