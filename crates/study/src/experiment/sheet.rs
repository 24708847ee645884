//! The document of rows that were measured: columns, checks, findings and figures.

use super::expression::{Expression, Names, Rows, is_template, text};
use super::figure::FigureTable;
use super::points::RunsTable;
use crate::{Failure, Setting};
use minijinja::Value;
use minijinja::value::{Serde, ValueKind};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use tidewater_core::profile::{Problem, Profile};
use tidewater_report::experiment::{Cell, Check, Column, Experiment, Parameter, SCHEMA};
use toml::Spanned;

/// The file of an experiment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub title: String,
    #[serde(default)]
    pub source: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    fitted: Vec<String>,
    #[serde(default)]
    differences: Vec<String>,
    #[serde(default)]
    parameters: BTreeMap<String, Documented>,
    /// Runs: of a paper with expressions in the place of values, of one's own as a plan of a sweep.
    pub run: Option<toml::Table>,
    /// Changes made by `--quick` in one's own.
    pub quick: Option<toml::Table>,
    #[serde(default)]
    pub runs: Vec<RunsTable>,
    #[serde(default)]
    pub columns: Vec<ColumnTable>,
    /// Names with their expressions, over all rows and the names before.
    #[serde(default)]
    values: BTreeMap<Spanned<String>, String>,
    #[serde(default)]
    pub checks: Vec<CheckTable>,
    #[serde(default)]
    found: Vec<FoundTable>,
    #[serde(default)]
    pub figures: Vec<FigureTable>,
    /// Checks that do not hold, and the mechanism that was found.
    #[serde(default)]
    losses: Vec<Loss>,
    /// Values were set in place of these.
    #[serde(skip)]
    pub is_changed: bool,
}

/// A value with its source, which expressions take by its name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Documented {
    value: toml::Value,
    doc: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnTable {
    pub name: String,
    #[serde(default)]
    doc: String,
    /// An expression over the figures of a run; `None`: the figure of that name.
    pub value: Option<String>,
    /// Expressions take it, and no reader sees it.
    #[serde(default)]
    hidden: bool,
    /// It is an expression over all rows: `same(...)` is known.
    #[serde(default)]
    later: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckTable {
    /// An expression: a check for each of its values, which is `it` in all texts of the check.
    each: Option<String>,
    #[serde(default)]
    name: String,
    #[serde(default)]
    pub statement: String,
    expected: Option<String>,
    pub measured: String,
    pub holds: String,
    /// Of one that does not hold: why.
    because: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FoundTable {
    each: Option<String>,
    text: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Loss {
    check: String,
    because: String,
}

/// A part of a file that is repeated for each value of an expression.
pub trait Each {
    /// The expression.
    fn each(&self) -> Option<&str>;
}

impl Each for CheckTable {
    fn each(&self) -> Option<&str> {
        self.each.as_deref()
    }
}

impl Each for FoundTable {
    fn each(&self) -> Option<&str> {
        self.each.as_deref()
    }
}

/// The items, each with its `it`. Neighbours with the same `each` take turns at its values.
///
/// # Errors
/// When an `each` is no list.
pub fn turns<'t, T: Each>(items: &'t [T], names: &Names, rows: &Rows) -> Result<Vec<(Value, &'t T)>, String> {
    let mut all = Vec::new();
    for group in items.chunk_by(|a, b| a.each() == b.each()) {
        let Some(each) = group[0].each() else {
            all.extend(group.iter().map(|item| (Value::UNDEFINED, item)));
            continue;
        };
        let values = Expression::new(each)?.value(names, Some(rows))?;
        for value in values.try_iter().map_err(|error| format!("`{each}`: {error}"))? {
            all.extend(group.iter().map(|item| (value.clone(), item)));
        }
    }
    Ok(all)
}

/// The names with `it`.
fn with(names: &Names, it: &Value) -> Names {
    let mut names = names.clone();
    names.insert("it".into(), it.clone());
    names
}

impl File {
    /// The parameters' values.
    pub fn names(&self) -> Names {
        self.parameters.iter().map(|(name, given)| (name.clone(), Value::from(Serde(&given.value)))).collect()
    }

    /// Takes these values in place of its own, and says so. A key with a dot is a setting of the runs' drives.
    ///
    /// # Errors
    /// When there is no such parameter, or its value is of another kind; and when no drive has such a setting.
    pub fn change(&mut self, set: &[Setting]) -> Result<(), Failure> {
        let wrong = |one: &Setting, why: String| Err(Failure::usage(format_args!("--set {one}: {why}")));
        for one in set {
            if one.key.contains('.') {
                // What fits together depends on the drive.
                match Profile::generic().set(&one.key, &one.value) {
                    Err(error) if !matches!(*error.problem, Problem::UnknownMemory { .. }) => {
                        return wrong(one, error.to_string());
                    }
                    _ => continue,
                }
            }
            let names = self.parameters.keys().cloned().collect::<Vec<_>>().join(", ");
            let Some(parameter) = self.parameters.get_mut(&one.key) else {
                return wrong(one, format!("no parameter of this experiment (it has: {names})"));
            };
            let given = toml::from_str::<toml::Table>(&format!("given = {}", one.value));
            let given = given.ok().and_then(|mut table| table.remove("given"));
            let given = given.unwrap_or_else(|| one.value.as_str().into());
            let is_number = |value: &toml::Value| value.is_integer() || value.is_float();
            if !(given.same_type(&parameter.value) || is_number(&given) && is_number(&parameter.value)) {
                return wrong(one, format!("expected a value such as {}", parameter.value));
            }
            parameter.value = given;
        }
        self.is_changed = !set.is_empty();
        if self.is_changed {
            let list = set.iter().map(|one| format!("`{one}`")).collect::<Vec<_>>().join(", ");
            let text = format!("Run with {list}: reasons and fits are those of the experiment without it.");
            self.differences.insert(0, text);
        }
        Ok(())
    }

    /// Why a check does not hold, where that is known.
    pub fn loss(&self, check: &str) -> Option<String> {
        self.losses.iter().find(|loss| loss.check == check).map(|loss| loss.because.trim().to_owned())
    }

    /// Whether it and each of its parameters say what they are.
    pub fn is_documented(&self) -> bool {
        !self.description.trim().is_empty() && self.parameters.values().all(|given| !given.doc.is_empty())
    }

    /// The columns of a run, from its figures.
    ///
    /// # Errors
    /// An expression without a value.
    pub fn columns(&self, names: &Names) -> Result<Names, Failure> {
        let value = |column: &ColumnTable| {
            let value = Expression::new(column.value.as_ref().unwrap_or(&column.name))
                .and_then(|value| value.value(names, None))
                .map_err(|why| Failure::usage(format_args!("columns.{}: {why}", column.name)))?;
            Ok((column.name.clone(), value))
        };
        self.columns.iter().filter(|column| !column.later).map(value).collect()
    }

    /// The document of an experiment of that name.
    ///
    /// # Errors
    /// An expression without a value, or whose value is none that fits.
    pub fn document(&self, name: &str, mut names: Names, mut rows: Rows, seed: u64) -> Result<Experiment, Failure> {
        for ColumnTable { name, value, .. } in self.columns.iter().filter(|column| column.later) {
            let text = format!("of({:?})", value.as_ref().unwrap_or(name));
            let values = Expression::new(&text).and_then(|all| all.value(&names, Some(&rows)));
            let values = values.map_err(|why| Failure::usage(format_args!("columns.{name}: {why}")))?;
            for (row, value) in Arc::make_mut(&mut rows.rows).iter_mut().zip(values.try_iter().into_iter().flatten()) {
                row.fields.insert(name.clone(), value);
            }
        }
        let rows = &rows;
        // In the order of the file: each may use those before.
        let mut values: Vec<(&Spanned<String>, &String)> = self.values.iter().collect();
        values.sort_by_key(|(name, _)| name.span().start);
        for (name, text) in values {
            let name = name.get_ref();
            let value = Expression::new(text).and_then(|value| value.value(&names, Some(rows)));
            let value = value.map_err(|why| Failure::usage(format_args!("values.{name}: {why}")))?;
            names.insert(name.clone(), value);
        }
        let columns: Vec<&ColumnTable> = self.columns.iter().filter(|column| !column.hidden).collect();
        let mut experiment = Experiment {
            schema: SCHEMA.into(),
            name: name.into(),
            title: self.title.clone(),
            source: self.source.clone(),
            description: self.description.trim().to_owned(),
            version: env!("CARGO_PKG_VERSION").into(),
            seed,
            parameters: self.parameters.iter().map(parameter).collect(),
            columns: columns.iter().map(|column| column.document()).collect(),
            rows: Vec::new(),
            checks: self.checks(&names, rows)?,
            found: Vec::new(),
            differences: self.differences.clone(),
            fitted: self.fitted.clone(),
            figures: Vec::new(),
        };
        for row in rows.rows.iter().filter(|row| !row.hidden) {
            let cell = |column: &&ColumnTable| row.fields.get(&column.name).map_or_else(|| "".into(), cell);
            experiment.rows.push(columns.iter().map(cell).collect());
        }
        let wrong = |place: &'static str| move |why: String| Failure::usage(format_args!("{place}: {why}"));
        for (it, table) in turns(&self.found, &names, rows).map_err(wrong("found"))? {
            let found = text(&table.text, &with(&names, &it), Some(rows)).map_err(wrong("found"))?;
            experiment.found.extend(Some(found).filter(|found| !found.is_empty()));
        }
        for (it, table) in turns(&self.figures, &names, rows).map_err(wrong("figures"))? {
            experiment.figures.push(table.of(&with(&names, &it), rows)?);
        }
        // Of what was not measured there is nothing to draw.
        experiment.figures.retain(|figure| figure.series.iter().any(|series| !series.points.is_empty()));
        match self.losses.iter().find(|loss| experiment.checks.iter().all(|check| check.name != loss.check)) {
            Some(loss) => Err(wrong("losses")(format!("this experiment has no check `{}`", loss.check))),
            None => Ok(experiment),
        }
    }

    fn checks(&self, names: &Names, rows: &Rows) -> Result<Vec<Check>, Failure> {
        let mut checks = Vec::new();
        for (it, table) in
            turns(&self.checks, names, rows).map_err(|why| Failure::usage(format_args!("checks: {why}")))?
        {
            let wrong =
                |why: String| Failure::usage(format_args!("checks, \"{}{}\": {why}", table.statement, table.name));
            let mut names = with(names, &it);
            let written = |of: &str| text(of, &names, Some(rows)).map_err(wrong);
            let holds = Expression::new(&table.holds).map_err(wrong)?;
            let name = written(&table.name)?;
            let expected = table.expected.as_deref().map(written).transpose()?;
            let measured = if is_template(&table.measured) {
                Value::from(written(&table.measured)?)
            } else {
                Expression::new(&table.measured).and_then(|value| value.value(&names, Some(rows))).map_err(wrong)?
            };
            names.insert("measured".into(), measured.clone());
            let ok = holds.holds(&names, rows).map_err(wrong)?;
            let because = table.because.clone().or_else(|| self.loss(&name));
            checks.push(Check {
                statement: table.statement.clone(),
                expected: expected.unwrap_or_else(|| holds.to_string()),
                measured: rounded(&measured),
                ok,
                fitted: Vec::new(),
                because: because.filter(|_| !ok),
                name,
            });
        }
        Ok(checks)
    }
}

impl ColumnTable {
    fn document(&self) -> Column {
        let doc = if self.doc.is_empty() { self.value.as_ref().unwrap_or(&self.doc) } else { &self.doc };
        Column { name: self.name.clone(), doc: doc.clone() }
    }
}

fn parameter((name, given): (&String, &Documented)) -> Parameter {
    let value = match &given.value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Parameter { name: name.clone(), value, doc: given.doc.clone() }
}

pub fn cell(value: &Value) -> Cell {
    match f64::try_from(value.clone()) {
        Ok(number) if value.kind() == ValueKind::Number => Cell::Number(number),
        _ => Cell::Text(value.to_string()),
    }
}
/// A value for a reader: numbers with four digits.
pub fn rounded(value: &Value) -> String {
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
