//! Result of an experiment: raw rows, the paper's statements beside the measurements, and figures in the paper's form.
//! One document of JSON (`tidewater experiment run --json`), and pages made from it.

mod chart;
mod json;
mod page;
mod summary;

pub use json::{DocumentError, array_to_json};
pub(crate) use page::shown;
pub use page::{figures, measurement_page, page, page_with};
pub use summary::summary;

use serde::{Deserialize, Serialize};

/// The name and version of the schema; readers refuse others.
pub const SCHEMA: &str = "tidewater-experiment/1";

/// One experiment that was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// [`SCHEMA`].
    pub schema: String,
    /// Its name: `x-ssd/fig9`.
    pub name: String,
    /// One line on what it shows.
    pub title: String,
    /// The published original: paper, section, figure.
    pub source: String,
    /// Its method, in a paragraph.
    pub description: String,
    /// The version of the program.
    pub version: String,
    /// The seed.
    pub seed: u64,
    /// Its parameters, by name: the values of its file.
    pub parameters: Vec<Parameter>,
    /// The columns of `rows`.
    pub columns: Vec<Column>,
    /// The raw measurements; each has a cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// The paper's statements, held against what was measured.
    pub checks: Vec<Check>,
    /// Findings that no statement of the paper was held against.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub found: Vec<String>,
    /// Where the result differs from the paper's and no check says so, and why.
    pub differences: Vec<String>,
    /// Parameters fitted to the paper's figure, and assumptions.
    pub fitted: Vec<String>,
    /// The figures.
    pub figures: Vec<Figure>,
}

impl Experiment {
    /// Whether every check holds.
    pub fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }

    /// How many checks fail: they do not hold, and it is not known why.
    pub fn failures(&self) -> usize {
        self.checks.iter().filter(|check| check.is_failure()).count()
    }

    /// How many checks hold.
    pub fn holding(&self) -> usize {
        self.checks.iter().filter(|check| check.ok).count()
    }

    /// How many of those that hold were fitted to.
    pub fn by_fit(&self) -> usize {
        self.checks.iter().filter(|check| check.ok && !check.fitted.is_empty()).count()
    }
}

/// A value that an experiment was run with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Parameter {
    /// Its name in the experiment's file.
    pub name: String,
    /// Its value, as text.
    pub value: String,
    /// Its meaning and source.
    pub doc: String,
}

/// A column of the raw measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Column {
    /// Its name, with the unit last: `latency_us`.
    pub name: String,
    /// Its content.
    pub doc: String,
}

/// One raw value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number.
    Number(f64),
    /// A word.
    Text(String),
}

impl From<f64> for Cell {
    fn from(number: f64) -> Cell {
        Cell::Number(number)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::Text(text.into())
    }
}

/// A statement of the paper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Its name within the experiment: `dram-flat`; empty where it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The paper's statement.
    pub statement: String,
    /// The expected result, in words or figures.
    pub expected: String,
    /// The measured result.
    pub measured: String,
    /// Whether it holds.
    pub ok: bool,
    /// Parameters fitted to this very statement, and their targets. A check that holds then shows little.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fitted: Vec<String>,
    /// Of one that does not hold, the mechanism that makes it so, where that was found: then it is a known loss, and no
    /// failure of the experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

impl Check {
    /// It does not hold, and has no explanation.
    pub fn is_failure(&self) -> bool {
        !self.ok && self.because.is_none()
    }
}

/// A figure in the paper's form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Its title.
    pub title: String,
    /// How it is drawn.
    pub form: Form,
    /// Label of the x axis, with its unit.
    pub x_label: String,
    /// Label of the y axis, with its unit.
    pub y_label: String,
    /// The x axis is logarithmic (base 2 when all places are powers of two).
    pub x_log: bool,
    /// The y axis is logarithmic.
    pub y_log: bool,
    /// Its lines, groups of bars, or boxes.
    pub series: Vec<Series>,
}

/// How a figure is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Lines with dots.
    Lines,
    /// Groups of bars, one group for each x.
    Bars,
    /// Candlesticks: lowest, lower quartile, median, upper quartile, highest.
    Candles,
}

/// One line, set of bars or set of candlesticks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// It shows the paper's values and not ours: drawn dashed and said so.
    #[serde(default)]
    pub from_paper: bool,
    /// Its places.
    pub points: Vec<Point>,
}

/// One place of a series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Where on the x axis.
    pub x: f64,
    /// The value; of a candlestick, its median.
    pub y: f64,
    /// Of a candlestick: lowest, lower quartile, upper quartile, highest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<[f64; 4]>,
}
