//! The document as JSON text.

use super::{Experiment, Form, SCHEMA};
use crate::json;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::fmt;

/// Why a text is not the document of an experiment.
#[derive(Debug)]
pub enum DocumentError {
    /// It is not JSON, or a field is missing or has a value of the wrong type. The message names line and column.
    Json(serde_json::Error),
    /// It is JSON, but no document of an experiment: it has no `schema`, or one that is not a text.
    NotAnExperiment,
    /// It has a schema that this version does not know.
    Schema {
        /// The schema that it names.
        found: String,
    },
    /// A row has not a cell for each column.
    Row {
        /// Which row, counted from 0.
        row: usize,
        /// Its cells.
        cells: usize,
        /// The columns.
        columns: usize,
    },
    /// A figure of lines or bars has a candlestick, or one whose values are not in order.
    Spread {
        /// The title of the figure.
        figure: String,
        /// The name of the series.
        series: String,
        /// Which of its points, counted from 0.
        point: usize,
    },
    /// The fault of one of several documents.
    Within {
        /// Which, counted from 0.
        document: usize,
        /// The fault; lines and columns count from the start of that document.
        error: Box<DocumentError>,
    },
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DocumentError::Json(error) if error.is_eof() => {
                write!(f, "the document is cut short: {error}; run the experiment again to write it anew")
            }
            DocumentError::Json(error) => write!(f, "not the document of an experiment: {error}"),
            DocumentError::NotAnExperiment => write!(
                f,
                "not the document of an experiment: the JSON has no text `schema`; such a document is what `tidewater \
                 experiment run NAME --json FILE` writes"
            ),
            DocumentError::Schema { found } => write!(
                f,
                "the document has schema {found:?}, this version reads {SCHEMA:?}; use the tidewater that wrote it, or \
                 run the experiment again"
            ),
            DocumentError::Row { row, cells, columns } => {
                write!(f, "rows[{row}] has {cells} cells, and there are {columns} columns; give a cell for each column")
            }
            DocumentError::Spread { figure, series, point } => write!(
                f,
                "figure {figure:?}, series {series:?}, points[{point}]: `spread` has to be lowest, lower quartile, \
                 upper quartile and highest, in this order and around `y`, in a figure of candles"
            ),
            DocumentError::Within { document, error } => write!(f, "document {document} of the array: {error}"),
        }
    }
}

impl std::error::Error for DocumentError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DocumentError::Json(error) => Some(error),
            DocumentError::Within { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Fields common to every version of the schema, so that another version is distinguished from a broken document.
#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    schema: serde_json::Value,
}

impl Experiment {
    /// Reads a document. Fields that this version does not know are passed over.
    ///
    /// # Errors
    /// The text is not JSON, not the document of an experiment, of another schema, or it contradicts itself.
    pub fn from_json(text: &str) -> Result<Experiment, DocumentError> {
        let header: Header = serde_json::from_str(text).map_err(DocumentError::Json)?;
        let schema = header.schema.as_str().ok_or(DocumentError::NotAnExperiment)?;
        if schema != SCHEMA {
            return Err(DocumentError::Schema { found: schema.to_owned() });
        }
        let experiment: Experiment = serde_json::from_str(text).map_err(DocumentError::Json)?;
        experiment.check()?;
        Ok(experiment)
    }

    /// Reads one document, or an array of them as [`array_to_json`] writes it.
    ///
    /// # Errors
    /// As [`Experiment::from_json`]; of an array, with the place in it.
    pub fn all_from_json(text: &str) -> Result<Vec<Experiment>, DocumentError> {
        if !text.trim_start().starts_with('[') {
            return Ok(vec![Experiment::from_json(text)?]);
        }
        let documents: Vec<&RawValue> = serde_json::from_str(text).map_err(DocumentError::Json)?;
        let read = |(document, raw): (usize, &&RawValue)| {
            Experiment::from_json(raw.get()).map_err(|error| DocumentError::Within { document, error: Box::new(error) })
        };
        documents.iter().enumerate().map(read).collect()
    }

    /// The document as JSON, fields in the order of [`Experiment`], ending with a line feed. A number that is not
    /// finite is written as 0.
    pub fn to_json(&self) -> String {
        json::text(self)
    }

    /// Checks the rules that the types do not express.
    fn check(&self) -> Result<(), DocumentError> {
        let columns = self.columns.len();
        if let Some((row, cells)) = self.rows.iter().map(Vec::len).enumerate().find(|(_, cells)| *cells != columns) {
            return Err(DocumentError::Row { row, cells, columns });
        }
        for figure in &self.figures {
            for series in &figure.series {
                let wrong = |point: &super::Point| {
                    point.spread.is_some_and(|[lowest, lower, upper, highest]| {
                        figure.form != Form::Candles
                            || !(lowest <= lower && lower <= point.y && point.y <= upper && upper <= highest)
                    })
                };
                if let Some(point) = series.points.iter().position(wrong) {
                    let (figure, series) = (figure.title.clone(), series.name.clone());
                    return Err(DocumentError::Spread { figure, series, point });
                }
            }
        }
        Ok(())
    }
}

/// Several documents as one JSON array, ending with a line feed.
pub fn array_to_json(experiments: &[Experiment]) -> String {
    let documents: Vec<String> = experiments.iter().map(|one| one.to_json().trim_end().to_owned()).collect();
    if documents.is_empty() { "[]\n".to_owned() } else { format!("[\n{}\n]\n", documents.join(",\n")) }
}
