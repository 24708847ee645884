//! An experiment of one's own, as a file: a study, what is read off its runs, what is stated of that, and figures.

mod expression;
mod figure;
mod points;
mod sheet;

pub use expression::{Names, Row};
pub use minijinja::Value;
pub use points::{Asked, Paper, Point};

use crate::Failure;
use crate::many::{Follow, How, one, ready};
use crate::sweep::plan::{Given, LoadTable, PlanTable, Scalar};
use crate::vary::Plan;
use expression::{Expression, Rows, is_template, median, short};
use minijinja::value::Serde;
use serde::Deserialize;
use sheet::{File, cell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tidewater_report::Record;
use tidewater_report::compare::Labelled;
use tidewater_report::experiment::{Column, Experiment};
use tidewater_report::table::{self, Values};
use tidewater_sim::pool;
use toml::Spanned;

/// An experiment to begin with, with every part and what it is for.
pub const TEMPLATE: &str = include_str!("template.toml");

/// An experiment as a file describes it, checked as far as it can be without a run.
pub struct Own {
    path: PathBuf,
    file: File<PlanTable>,
    seed: u64,
    plans: Vec<Plan>,
}

/// Changes made by `--quick`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quick {
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
        let mut file: File<PlanTable> =
            toml::from_str(text).map_err(|error| Failure::usage(error.to_string().trim_end()))?;
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
            let wrong = |why| Failure::usage(format_args!("{place}: `{text}`: {why}"));
            Expression::new(text).map(drop).map_err(wrong)
        };
        for (i, column) in file.columns.iter().enumerate() {
            if file.columns[..i].iter().any(|other| other.name == column.name) {
                return Err(Failure::usage(format_args!("columns: `{}` is there twice", column.name)));
            }
            expression(format!("columns.{}", column.name), column.value.as_ref().unwrap_or(&column.name))?;
        }
        for check in &file.checks {
            let place = |part: &str| format!("checks, \"{}\", {part}", check.statement);
            if !is_template(&check.measured) {
                expression(place("measured"), &check.measured)?;
            }
            expression(place("holds"), &check.holds)?;
        }
        if !file.runs.is_empty() {
            return Err(Failure::usage("runs: an experiment of one's own has its runs in [run]"));
        }
        let mut plans = table.sweep(path.parent().unwrap_or(Path::new("")))?.plans()?;
        for plan in &mut plans {
            plan.drive.seed = plan.drive.seed.wrapping_add(seed.wrapping_sub(1));
        }
        let keys: Vec<&str> = plans.iter().flat_map(|plan| &plan.point).map(|setting| setting.key.as_str()).collect();
        let columns: Vec<&str> = file.columns.iter().map(|column| column.name.as_str()).collect();
        file.figures.iter().try_for_each(|figure| figure.check(&keys, &columns))?;
        Ok(Own { path: path.to_owned(), file, seed, plans })
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
            let columns = self.columns(record);
            wrong.fetch_or(columns.is_err(), Ordering::Relaxed);
            columns.map(Some)
        });
        let mut rows = Vec::new();
        for outcome in measured {
            match outcome.map_err(place)? {
                Some(columns) => rows.push(columns),
                None if wrong.load(Ordering::Relaxed) => {}
                None => return Ok(None),
            }
        }
        self.document(&self.over_seeds(&rows)).map(Some).map_err(place)
    }

    /// Values of the columns for a run.
    fn columns(&self, record: Record) -> Result<Names, Failure> {
        let mut names = self.file.names();
        names.extend(figures(record));
        let columns = self.file.columns(&names)?;
        match columns.iter().find(|(_, value)| !f64::try_from((*value).clone()).is_ok_and(f64::is_finite)) {
            Some((name, value)) => {
                Err(Failure::usage(format_args!("columns.{name}: its value is {value}, not a number")))
            }
            None => Ok(columns),
        }
    }

    /// A row for each point without its seed, with the median over seeds.
    fn over_seeds(&self, measured: &[Names]) -> Rows {
        let points = || self.plans.iter().map(|plan| &plan.point);
        let keys = points().flatten().map(|setting| setting.key.as_str()).filter(|key| *key != "seed");
        let mut of_rows: Vec<String> = Vec::new();
        for key in keys {
            if !of_rows.iter().any(|other| other == key) {
                of_rows.push(key.to_owned());
            }
        }
        let mut groups: Vec<(Vec<Value>, Vec<&Names>)> = Vec::new();
        for (point, columns) in points().zip(measured) {
            let value = |key: &String| point.iter().find(|setting| setting.key == *key).map(|one| one.value.as_str());
            let values: Vec<Value> = of_rows.iter().map(|key| value(key).unwrap_or_default().into()).collect();
            match groups.iter_mut().find(|(other, _)| *other == values) {
                Some((_, group)) => group.push(columns),
                None => groups.push((values, vec![columns])),
            }
        }
        let middle = |group: &[&Names], column: &String| {
            let values = group.iter().filter_map(|columns| f64::try_from(columns[column].clone()).ok());
            (column.clone(), Value::from(median(&values.collect::<Vec<_>>()).unwrap_or_default()))
        };
        let columns: Vec<String> = self.file.columns.iter().map(|column| column.name.clone()).collect();
        let row = |(values, group): (_, Vec<&Names>)| {
            let fields = columns.iter().map(|column| middle(&group, column)).collect();
            Row { values, fields, hidden: false }
        };
        Rows { keys: of_rows, rows: Arc::new(groups.into_iter().map(row).collect()), columns }
    }

    fn document(&self, rows: &Rows) -> Result<Experiment, Failure> {
        let mut experiment = self.file.document(&self.name(), self.file.names(), rows.clone(), self.seed)?;
        // What varies comes first.
        let of_key = |key: &String| Column { name: short(key).to_owned(), doc: format!("{key}, as it is varied") };
        experiment.columns.splice(0..0, rows.keys.iter().map(of_key));
        for (cells, row) in experiment.rows.iter_mut().zip(rows.rows.iter()) {
            cells.splice(0..0, row.values.iter().map(cell));
        }
        Ok(experiment)
    }
}

/// The figures of a run by name, and its `record`.
fn figures(record: Record) -> Names {
    let runs = [Labelled { label: String::new(), record }];
    let mut names = Names::new();
    for column in table::runs(&runs).columns {
        if let Values::Float(values) = column.values
            && let [Some(value)] = values[..]
        {
            names.insert(column.name, Value::from(value));
        }
    }
    let [Labelled { record, .. }] = runs;
    names.insert("record".into(), Value::from(Serde(&record)));
    names
}

#[cfg(test)]
mod tests;
