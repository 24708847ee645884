//! Experiments as files: runs, what is read off each, what is stated of that, and figures. A paper's has its runs on
//! axes, one's own is a study; both go the same way.

mod expression;
mod figure;
mod points;
mod sheet;

pub use expression::Names;
pub use minijinja::Value;
pub use points::{Asked, Point};

use crate::many::{Follow, How, one, ready};
use crate::sweep::plan::{Given, LoadTable, PlanTable, Scalar};
use crate::vary::Plan;
use crate::{Failure, Setting};
use expression::{Expression, Row, Rows, is_template, median, short};
use minijinja::value::Serde;
use serde::Deserialize;
use sheet::{File, cell};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tidewater_report::Record;
use tidewater_report::compare::Labelled;
use tidewater_report::experiment::{Column, Experiment};
use tidewater_report::table::{self, Values};
use tidewater_sim::pool;
use toml::Spanned;

/// An experiment to begin with, with every part and what it is for.
pub const TEMPLATE: &str = include_str!("template.toml");

/// An experiment as its file describes it, checked as far as it can be without a run.
pub struct Planned {
    name: String,
    /// Its file, as messages name it.
    place: String,
    file: File,
    /// Names that every expression knows.
    names: Names,
    seed: u64,
    points: Vec<Point>,
    /// All that varies, but the seed.
    keys: Vec<String>,
    measure: Option<Measure>,
    /// The runs of one's own.
    own: Option<Vec<Plan>>,
}

/// Measures a run that is no load on a drive: the figures of each of its rows.
pub type Measure = fn(&Point) -> Result<Vec<Names>, Failure>;

/// Runs of one's own, with their place in the file.
#[derive(Deserialize)]
struct OwnRuns {
    run: PlanTable,
    quick: Option<Quick>,
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

impl Planned {
    /// An experiment of a paper. `set`: values in place of the file's, of parameters by their name and of the drives'
    /// settings by their key. `measure`: how a run is measured that is no load on a drive. `more`: what its
    /// expressions know besides its parameters.
    ///
    /// # Errors
    /// When the text is no such file, and when a setting is none of a drive's, or a parameter none of the file's.
    pub fn of_paper(
        name: &str,
        text: &str,
        asked: Asked,
        set: &[Setting],
        measure: Option<Measure>,
        more: impl FnOnce(&Names) -> Result<Names, Failure>,
    ) -> Result<Planned, Failure> {
        let place = format!("experiments/{name}.toml");
        let parse = || -> Result<Planned, Failure> {
            let mut file: File = toml::from_str(text).map_err(Failure::usage)?;
            file.change(set)?;
            let mut names = file.names();
            names.extend(more(&names)?);
            let Asked { seed, quick, full } = asked;
            let asked = [("seed", Value::from(seed)), ("quick", quick.into()), ("full", full.into())];
            names.extend(asked.map(|(name, value)| (name.into(), value)));
            let run = Arc::new(file.run.clone().unwrap_or_default());
            let mut points = Vec::new();
            for runs in &file.runs {
                points.extend(runs.points(&names, &run).map_err(|why| Failure::usage(format_args!("runs: {why}")))?);
            }
            let keys = set.iter().filter(|one| one.key.contains('.'));
            let keys: Vec<_> = keys.map(|one| (one.key.clone(), Value::from(one.value.as_str()))).collect();
            for (place, point) in points.iter_mut().enumerate() {
                point.names.insert("place".into(), place.into());
                point.set.extend(keys.iter().cloned());
            }
            let (name, place) = (name.to_owned(), place.clone());
            Ok(Planned { name, place, file, names, seed, keys: varying(&points), points, measure, own: None })
        };
        parse().map_err(|failure| failure.within(place))
    }

    /// One's own: the file. Paths in it begin at its folder. The seed that is asked for: 1 for the seeds of the file;
    /// each one more makes them one larger. Quick: with what the file's `[quick]` changes.
    ///
    /// # Errors
    /// When it can't be read, or says what can't be run, read off or drawn.
    pub fn from_file(path: &Path, asked: Asked) -> Result<Planned, Failure> {
        Planned::own(&crate::read(path)?, path, asked).map_err(|failure| failure.within(path.display()))
    }

    fn own(text: &str, path: &Path, Asked { seed, quick, .. }: Asked) -> Result<Planned, Failure> {
        let wrong = |error: toml::de::Error| Failure::usage(error.to_string().trim_end());
        let file: File = toml::from_str(text).map_err(wrong)?;
        if file.run.is_none() || file.columns.is_empty() {
            return Err(Failure::usage("an experiment needs [run], as a sweep's plan, and at least one [[columns]]")
                .help("`tidewater experiment template` prints one to begin with"));
        }
        if !file.runs.is_empty() {
            return Err(Failure::usage("runs: an experiment of one's own has its runs in [run]"));
        }
        if quick && file.quick.is_none() {
            return Err(Failure::usage("has no [quick]").help(
                "say there what a first look changes: a shorter job in [quick.load], fewer seeds in [quick.vary]",
            ));
        }
        let OwnRuns { run, quick: changes } = toml::from_str(text).map_err(wrong)?;
        let table = if quick { changes.unwrap_or_default().change(run)? } else { run };
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
        let mut plans = table.sweep(path.parent().unwrap_or(Path::new("")))?.plans()?;
        for plan in &mut plans {
            plan.drive.seed = plan.drive.seed.wrapping_add(seed.wrapping_sub(1));
        }
        let names = file.names();
        let point = |plan: &Plan| {
            let keys = plan.point.iter().map(|setting| (setting.key.clone(), setting.value.as_str().into()));
            Point { names: names.clone(), keys: keys.collect(), ..Point::default() }
        };
        let points: Vec<Point> = plans.iter().map(point).collect();
        let mut keys = varying(&points);
        keys.retain(|key| key != "seed");
        let columns: Vec<&str> = file.columns.iter().map(|column| column.name.as_str()).collect();
        file.figures.iter().try_for_each(|figure| figure.check(&keys, &columns))?;
        // That of the file, without its ending.
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let place = path.display().to_string();
        Ok(Planned { name, place, file, names, seed, points, keys, measure: None, own: Some(plans) })
    }

    /// Its title.
    pub fn title(&self) -> &str {
        &self.file.title
    }

    /// Its source.
    pub fn source(&self) -> &str {
        &self.file.source
    }

    /// Why a check does not hold, where that is known.
    pub fn loss(&self, check: &str) -> Option<String> {
        self.file.loss(check)
    }

    /// Whether it and each of its parameters say what they are.
    pub fn is_documented(&self) -> bool {
        self.file.is_documented()
    }

    /// Whether it is one's own.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Whether values were set in place of its file's.
    pub fn is_changed(&self) -> bool {
        self.file.is_changed
    }

    /// How many runs it has.
    pub fn runs(&self) -> usize {
        self.points.len()
    }

    /// Runs it, on the threads of the surrounding [`pool::with_jobs`]. `None`: it was asked to end.
    ///
    /// # Errors
    /// A run that fails, and an expression without a value.
    pub fn run(&self, how: &How, follow: &Arc<dyn Follow>) -> Result<Option<Experiment>, Failure> {
        let rows = self.measured(how, follow).and_then(|rows| rows.map(|rows| self.document(rows)).transpose());
        rows.map_err(|failure| failure.within(&self.place))
    }

    /// The rows of all runs.
    fn measured(&self, how: &How, follow: &Arc<dyn Follow>) -> Result<Option<Vec<Row>>, Failure> {
        let plans = match (&self.own, self.measure) {
            (Some(plans), _) => plans.clone(),
            (None, Some(_)) => Vec::new(),
            (None, None) => self.points.iter().map(Point::plan).collect::<Result<_, _>>()?,
        };
        let runs = ready(plans)?;
        how.expect(runs.iter());
        // A name that is wrong is found by the first run that ends, and ends the others.
        let wrong = AtomicBool::new(false);
        let measured = pool::in_order(self.points.iter().collect(), |index, point: &Point| {
            if how.cancelled.load(Ordering::Relaxed) || wrong.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let all = match self.measure {
                Some(measure) => measure(point)?,
                None => match one(&runs[index], how, index, follow)? {
                    record if record.partial => return Ok(None),
                    record => vec![figures(record)],
                },
            };
            follow.share(index, 1.0);
            let rows = self.rows(point, all);
            wrong.fetch_or(rows.is_err(), Ordering::Relaxed);
            rows.map(Some)
        });
        let mut rows = Vec::new();
        for outcome in measured {
            match outcome? {
                Some(more) => rows.extend(more),
                None if wrong.load(Ordering::Relaxed) => {}
                None => return Ok(None),
            }
        }
        Ok(Some(rows))
    }

    /// The rows of a run that gave these figures: what columns and later expressions take of it.
    fn rows(&self, point: &Point, measured: Vec<Names>) -> Result<Vec<Row>, Failure> {
        let row = |(part, figures): (usize, Names)| {
            let mut names = point.names.clone();
            names.insert("part".into(), part.into());
            names.extend(figures);
            let columns = self.file.columns(&names)?;
            let is_number = |value: &Value| f64::try_from(value.clone()).is_ok_and(f64::is_finite);
            if let Some((name, value)) = columns.iter().find(|(_, value)| self.is_own() && !is_number(value)) {
                return Err(Failure::usage(format_args!("columns.{name}: its value is {value}, not a number")));
            }
            // Of a record the columns remain, and the parameters are known everywhere.
            names.retain(|name, _| !self.names.contains_key(name));
            if names.remove("record").is_some() {
                names.retain(|name, _| point.names.contains_key(name));
            }
            names.extend(columns);
            let value = |key| {
                let own = point.keys.iter().find(|(own, _)| own == key);
                own.map_or(Value::UNDEFINED, |(_, value)| value.clone())
            };
            Ok(Row { values: self.keys.iter().map(value).collect(), fields: names, hidden: point.hidden })
        };
        measured.into_iter().enumerate().map(row).collect()
    }

    /// A row for each point without its seed, with the median over seeds.
    fn over_seeds(&self, rows: Vec<Row>) -> Vec<Row> {
        let mut groups: Vec<(Vec<Value>, Vec<Names>)> = Vec::new();
        for Row { values, fields, .. } in rows {
            match groups.iter_mut().find(|(other, _)| *other == values) {
                Some((_, group)) => group.push(fields),
                None => groups.push((values, vec![fields])),
            }
        }
        let middle = |group: &[Names], column: &String| {
            let values = group.iter().filter_map(|fields| f64::try_from(fields.get(column)?.clone()).ok());
            (column.clone(), Value::from(median(&values.collect::<Vec<_>>()).unwrap_or_default()))
        };
        let row = |(values, group): (_, Vec<Names>)| {
            let fields = self.file.columns.iter().map(|column| middle(&group, &column.name)).collect();
            Row { values, fields, hidden: false }
        };
        groups.into_iter().map(row).collect()
    }

    /// The document of these rows.
    fn document(&self, rows: Vec<Row>) -> Result<Experiment, Failure> {
        let rows = Arc::new(if self.is_own() { self.over_seeds(rows) } else { rows });
        let columns = rows.first().map(|row| row.fields.keys().cloned().collect()).unwrap_or_default();
        let table = Rows { keys: self.keys.clone(), columns, rows: Arc::clone(&rows) };
        let mut experiment = self.file.document(&self.name, self.names.clone(), table, self.seed)?;
        if self.is_own() {
            // What varies comes first.
            let of_key = |key: &String| Column { name: short(key).to_owned(), doc: format!("{key}, as it is varied") };
            experiment.columns.splice(0..0, self.keys.iter().map(of_key));
            for (cells, row) in experiment.rows.iter_mut().zip(rows.iter()) {
                cells.splice(0..0, row.values.iter().map(cell));
            }
        }
        Ok(experiment)
    }
}

/// All keys that vary, in their order.
fn varying(points: &[Point]) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for (key, _) in points.iter().flat_map(|point| &point.keys) {
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    keys
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
