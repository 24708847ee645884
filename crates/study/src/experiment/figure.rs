//! Figures of an experiment's file.

use super::expression::{Row, Rows, is_called, short};
use crate::Failure;
use serde::Deserialize;
use tidewater_base::units;
use tidewater_report::experiment::{Figure, Form, Point, Series};

/// A figure: a column over a key that varies, a line for each value of another.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FigureTable {
    title: String,
    #[serde(default = "lines")]
    form: Form,
    /// The key on the x axis.
    x: String,
    /// The column on the y axis.
    y: String,
    /// The key that has a line for each of its values.
    series: Option<String>,
    x_label: Option<String>,
    y_label: Option<String>,
    #[serde(default)]
    x_log: bool,
    #[serde(default)]
    y_log: bool,
    /// The source's values, drawn beside it.
    #[serde(default)]
    paper: Vec<PaperTable>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PaperTable {
    name: String,
    points: Vec<[f64; 2]>,
}

fn lines() -> Form {
    Form::Lines
}

impl FigureTable {
    /// # Errors
    /// When it shows what does not vary, or no column.
    pub fn check(&self, keys: &[&str], columns: &[&str]) -> Result<(), Failure> {
        let wrong = |why: String| Failure::usage(format_args!("figures, \"{}\": {why}", self.title));
        if self.form == Form::Candles {
            return Err(wrong("an experiment of one's own has the forms `lines` and `bars`".into()));
        }
        for key in [Some(&self.x), self.series.as_ref()].into_iter().flatten() {
            if key == "seed" || !keys.iter().any(|other| is_called(other, key)) {
                return Err(wrong(format!("`{key}` does not vary")));
            }
        }
        if !columns.contains(&self.y.as_str()) {
            return Err(wrong(format!("there is no column `{}`", self.y)));
        }
        Ok(())
    }

    /// The figure; points of one place and series (other keys vary, too) are lines of their own.
    ///
    /// # Errors
    /// When a value on the x axis is no number.
    pub fn draw(&self, rows: &Rows) -> Result<Figure, Failure> {
        let (x, series) = (rows.key(&self.x), self.series.as_ref().and_then(|key| rows.key(key)));
        let y = rows.columns.iter().position(|column| *column == self.y).unwrap_or_default();
        let mut lines: Vec<Series> = Vec::new();
        for Row { values, numbers } in rows.rows.iter() {
            let place = x.map_or("", |x| values[x].as_str());
            let place = number(place).ok_or_else(|| {
                Failure::usage(format_args!("figures, \"{}\": `{place}` of {} is no number", self.title, self.x))
                    .help("put the key whose values are words into `series`")
            })?;
            let rest = values.iter().enumerate().filter(|(i, _)| Some(*i) != x && series.is_none_or(|s| s == *i));
            let name = rest.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" ");
            let name = if name.is_empty() { "measured".to_owned() } else { name };
            let point = Point { x: place, y: numbers[y], spread: None };
            match lines.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(point),
                None => lines.push(Series { name, from_paper: false, points: vec![point] }),
            }
        }
        lines.extend(self.paper.iter().map(|paper| Series {
            name: paper.name.clone(),
            from_paper: true,
            points: paper.points.iter().map(|&[x, y]| Point { x, y, spread: None }).collect(),
        }));
        Ok(Figure {
            title: self.title.clone(),
            form: self.form,
            x_label: self.x_label.clone().unwrap_or_else(|| short(&self.x).replace('_', " ")),
            y_label: self.y_label.clone().unwrap_or_else(|| self.y.replace('_', " ")),
            x_log: self.x_log,
            y_log: self.y_log,
            series: lines,
        })
    }
}

/// A value of a key on an axis: a number, percent, bytes, or a time in seconds.
fn number(text: &str) -> Option<f64> {
    let plain = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>().ok();
    plain
        .or_else(|| units::parse_bytes(text).ok().map(|bytes| bytes as f64))
        .or_else(|| units::parse_duration(text).ok().map(|time| time.as_secs_f64()))
        .filter(|number| number.is_finite())
}
