//! Runs that a file describes by expressions: every combination of the values on some axes.

use super::expression::{Expression, Names, filled};
use crate::sweep::plan::{PlanTable, Sweep};
use crate::{Drive, Failure, Plan};
use minijinja::Value;
use minijinja::value::{Serde, ValueKind};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Runs: a combination of values each, the last axis changing fastest.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunsTable {
    /// Axes: a name, and a list or its expression. A value that is a table has a `name`, settings of the drive in
    /// `set`, and what else expressions take of it. The values of an axis called `seed` take the place of the seed.
    axes: Vec<(String, toml::Value)>,
    /// Settings of the drive.
    #[serde(default)]
    set: BTreeMap<String, toml::Value>,
    /// An expression: combinations for which it does not hold are left out.
    when: Option<String>,
    /// Expressions take them, and no reader sees their rows.
    #[serde(default)]
    hidden: bool,
}

/// How an experiment is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Seeds everything random; `seed` in expressions.
    pub seed: u64,
    /// A tenth of the measurement; `quick` in expressions.
    pub quick: bool,
    /// All of it, where there is a part that takes many minutes; `full` in expressions.
    pub full: bool,
}

/// One run of it.
#[derive(Clone, Debug, Default)]
pub struct Point {
    pub(super) names: Names,
    /// The keys that vary, with their values here.
    pub(super) keys: Vec<(String, Value)>,
    pub(super) set: Vec<(String, Value)>,
    pub(super) run: Arc<toml::Table>,
    pub(super) hidden: bool,
}

impl RunsTable {
    /// Its points, where expressions know these names and `[run]` says what each runs.
    ///
    /// # Errors
    /// An expression without a value, and an axis that is no list.
    pub fn points(&self, names: &Names, run: &Arc<toml::Table>) -> Result<Vec<Point>, String> {
        let set = self.set.iter().map(|(key, value)| (key.clone(), Value::from(Serde(value)))).collect();
        let names = names.clone();
        let mut points = vec![Point { names, keys: Vec::new(), set, run: Arc::clone(run), hidden: self.hidden }];
        for (key, values) in &self.axes {
            let mut more = Vec::new();
            for point in &points {
                let values = match values {
                    toml::Value::String(text) => Expression::new(text)?.value(&point.names, None)?,
                    list => Value::from(Serde(list)),
                };
                for value in values.try_iter().map_err(|error| format!("{key}: {error}"))? {
                    more.push(point.at(key, &value)?);
                }
            }
            points = more;
        }
        if let Some(when) = &self.when {
            let when = Expression::new(when)?;
            let mut left = Vec::new();
            for point in points {
                if when.value(&point.names, None)?.is_true() {
                    left.push(point);
                }
            }
            points = left;
        }
        Ok(points)
    }
}

impl Point {
    /// The point with one more value.
    fn at(&self, key: &str, value: &Value) -> Result<Point, String> {
        let mut point = self.clone();
        let written =
            |value: Value, names: &Names| value.as_str().map_or(Ok(value.clone()), |text| filled(text, names));
        let mut named = value.clone();
        let entries = |table: &Value| -> Result<Vec<(String, Value)>, String> {
            let keys = table.try_iter().map_err(|error| error.to_string())?;
            keys.map(|key| Ok((key.to_string(), table.get_item(&key).map_err(|error| error.to_string())?))).collect()
        };
        if value.kind() == ValueKind::Map {
            for (name, value) in entries(value)? {
                match name.as_str() {
                    "name" => named = written(value, &self.names)?,
                    "set" => point.set.extend(entries(&value)?),
                    _ => drop(point.names.insert(name, written(value, &self.names)?)),
                }
            }
        }
        point.names.insert(key.into(), named.clone());
        point.keys.push((key.into(), named));
        Ok(point)
    }

    /// The value that a name stands for.
    ///
    /// # Errors
    /// When it stands for nothing.
    pub fn value(&self, name: &str) -> Result<Value, Failure> {
        self.names.get(name).cloned().ok_or_else(|| Failure::usage(format_args!("`{name}` is missing")))
    }

    /// A number.
    ///
    /// # Errors
    /// When it is none.
    pub fn number(&self, name: &str) -> Result<f64, Failure> {
        f64::try_from(self.value(name)?).map_err(|_| Failure::usage(format_args!("{name}: expected a number")))
    }

    /// A text.
    ///
    /// # Errors
    /// When it is missing.
    pub fn text(&self, name: &str) -> Result<String, Failure> {
        Ok(self.value(name)?.to_string())
    }

    /// Its seed.
    ///
    /// # Errors
    /// When it is none.
    pub fn seed(&self) -> Result<u64, Failure> {
        u64::try_from(self.value("seed")?).map_err(|error| Failure::usage(format_args!("seed: {error}")))
    }

    /// The sweep of this run alone.
    fn sweep(&self) -> Result<Sweep, Failure> {
        let wrong = |why: &dyn std::fmt::Display| Failure::usage(format_args!("run: {why}"));
        let run = self.written(&toml::Value::Table((*self.run).clone())).map_err(|why| wrong(&why))?;
        let Some(toml::Value::Table(mut run)) = run else { return Err(wrong(&"expected a table")) };
        let set = run.entry("set").or_insert_with(|| toml::Value::Table(toml::Table::new()));
        // Settings may be a list, as `KEY=VALUE`.
        if let Some(listed) = set.as_array() {
            let pairs = listed.iter().filter_map(|one| one.as_str()?.split_once('='));
            *set = toml::Value::Table(pairs.map(|(key, value)| (key.to_owned(), value.into())).collect());
        }
        for (key, value) in &self.set {
            let value = value.as_str().map_or(Ok(value.clone()), |text| filled(text, &self.names));
            let value = value.map_err(|why| wrong(&why))?;
            if let (Some(set), false) = (set.as_table_mut(), value.is_none()) {
                set.insert(key.clone(), value.to_string().into());
            }
        }
        let text = toml::to_string(&run).map_err(|error| wrong(&error))?;
        let table: PlanTable = toml::from_str(&text).map_err(|error| wrong(&error))?;
        let mut sweep = table.sweep(Path::new(""))?;
        sweep.drive.seed = self.seed()?;
        Ok(sweep)
    }

    /// With the values of its expressions in place of these; `None`: with none.
    fn written(&self, given: &toml::Value) -> Result<Option<toml::Value>, String> {
        Ok(match given {
            toml::Value::String(text) => {
                let value = filled(text, &self.names)?;
                if value.is_none() {
                    return Ok(None);
                }
                Some(toml::Value::try_from(value).map_err(|error| error.to_string())?)
            }
            toml::Value::Table(table) => {
                let mut written = toml::Table::new();
                for (key, value) in table {
                    written.extend(self.written(value)?.map(|value| (key.clone(), value)));
                }
                Some(toml::Value::Table(written))
            }
            other => Some(other.clone()),
        })
    }

    /// Its drive.
    ///
    /// # Errors
    /// When there is no such drive.
    pub fn drive(&self) -> Result<Drive, Failure> {
        self.sweep()?.drive.prepare()
    }

    /// The run, where it is a load on its drive.
    ///
    /// # Errors
    /// When it can't be made.
    pub fn plan(&self) -> Result<Plan, Failure> {
        Ok(self.sweep()?.plans()?.remove(0))
    }
}
