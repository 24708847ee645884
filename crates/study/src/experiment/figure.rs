//! Figures of an experiment's file.

use super::expression::{Expression, Names, Row, Rows, is_called, short, text};
use super::sheet::{Each, turns};
use crate::Failure;
use minijinja::Value;
use serde::Deserialize;
use tidewater_base::units;
use tidewater_report::experiment::{Figure, Form, Point, Series};

/// A figure: a column over a key that varies, a line for each value of another; or `lines` of expressions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FigureTable {
    /// An expression: a figure for each of its values, which is `it` in all texts of the figure.
    each: Option<String>,
    title: String,
    #[serde(default = "lines")]
    form: Form,
    /// The key on the x axis.
    #[serde(default)]
    x: String,
    /// The column on the y axis.
    #[serde(default)]
    y: String,
    #[serde(default)]
    lines: Vec<LineTable>,
    /// The key that has a line for each of its values.
    series: Option<String>,
    x_label: Option<String>,
    y_label: Option<String>,
    #[serde(default)]
    x_log: bool,
    /// Yes or no, or an expression.
    #[serde(default)]
    y_log: Flag,
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

/// A line: the points of an expression, or of all rows for which `when` holds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LineTable {
    /// An expression: a line for each of its values, which is `line` in the texts of the line.
    each: Option<String>,
    name: String,
    /// An expression: `[x, y]` each, of a candlestick with a list of four behind it.
    points: Option<String>,
    /// `None`: the places from 1 on, in the order of the rows.
    x: Option<String>,
    #[serde(default)]
    y: String,
    when: Option<String>,
    /// They are the source's values.
    #[serde(default)]
    paper: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Flag {
    Is(bool),
    Holds(String),
}

impl Default for Flag {
    fn default() -> Flag {
        Flag::Is(false)
    }
}

impl Each for FigureTable {
    fn each(&self) -> Option<&str> {
        self.each.as_deref()
    }
}

impl Each for LineTable {
    fn each(&self) -> Option<&str> {
        self.each.as_deref()
    }
}

impl LineTable {
    fn draw(&self, names: &Names, rows: &Rows) -> Result<Series, String> {
        let (x, when) = (self.x.as_deref().unwrap_or("0"), self.when.as_deref().unwrap_or("true"));
        let all = format!("of({:?}, {when:?})", format!("[{x}, {}]", self.y));
        let points = Expression::new(self.points.as_ref().unwrap_or(&all))?.value(names, Some(rows))?;
        let point = |value: Value| {
            let part = |at: usize| value.get_item_by_index(at).ok().filter(|part| !part.is_undefined());
            let number =
                |at| part(at).and_then(|part| f64::try_from(part).ok()).ok_or_else(|| format!("{value} is no point"));
            let spread: Option<Vec<f64>> =
                part(2).and_then(|list| list.try_iter().ok()?.map(|one| f64::try_from(one).ok()).collect());
            Ok(Point { x: number(0)?, y: number(1)?, spread: spread.and_then(|four| four.try_into().ok()) })
        };
        let points = points.try_iter().map_err(|error| error.to_string())?.map(point);
        let mut points = points.collect::<Result<Vec<Point>, String>>()?;
        if self.points.is_none() && self.x.is_none() {
            (1u32..).zip(&mut points).for_each(|(place, point)| point.x = place.into());
        }
        Ok(Series { name: text(&self.name, names, Some(rows))?, from_paper: self.paper, points })
    }
}

fn lines() -> Form {
    Form::Lines
}

impl FigureTable {
    /// # Errors
    /// When it shows what does not vary, or no column.
    pub fn check(&self, keys: &[String], columns: &[&str]) -> Result<(), Failure> {
        let wrong = |why: String| Failure::usage(format_args!("figures, \"{}\": {why}", self.title));
        if !self.lines.is_empty() {
            return Ok(());
        }
        if self.form == Form::Candles {
            return Err(wrong("an experiment of one's own has the forms `lines` and `bars`".into()));
        }
        for key in [Some(&self.x), self.series.as_ref()].into_iter().flatten() {
            if !keys.iter().any(|other| is_called(other, key)) {
                return Err(wrong(format!("`{key}` does not vary")));
            }
        }
        if !columns.contains(&self.y.as_str()) {
            return Err(wrong(format!("there is no column `{}`", self.y)));
        }
        Ok(())
    }

    /// The figure, of `lines` where there are some.
    ///
    /// # Errors
    /// An expression without a value, or whose value can't be drawn.
    pub fn of(&self, names: &Names, rows: &Rows) -> Result<Figure, Failure> {
        let wrong = |why: String| Failure::usage(format_args!("figures, \"{}\": {why}", self.title));
        let written = |label: &str| text(label, names, Some(rows)).map_err(wrong);
        let mut figure = if self.lines.is_empty() {
            self.draw(rows)?
        } else {
            let label = |label: &Option<String>| label.clone().unwrap_or_default();
            let (x_label, y_label) = (label(&self.x_label), label(&self.y_label));
            let (form, x_log) = (self.form, self.x_log);
            Figure { title: self.title.clone(), form, x_label, y_label, x_log, y_log: false, series: Vec::new() }
        };
        for label in [&mut figure.title, &mut figure.x_label, &mut figure.y_label] {
            *label = written(label)?;
        }
        figure.y_log = match &self.y_log {
            Flag::Is(is) => *is,
            Flag::Holds(text) => Expression::new(text).and_then(|holds| holds.holds(names, rows)).map_err(wrong)?,
        };
        let mut names = names.clone();
        for (line, table) in turns(&self.lines, &names.clone(), rows).map_err(wrong)? {
            names.insert("line".into(), line);
            // As high as what is there: for a place on the x axis.
            let points = figure.series.iter().flat_map(|series| &series.points);
            names.insert("top".into(), Value::from(points.map(|point| point.y).fold(0.0, f64::max)));
            figure.series.push(table.draw(&names, rows).map_err(wrong)?);
        }
        Ok(figure)
    }

    /// The figure; points of one place and series (other keys vary, too) are lines of their own.
    ///
    /// # Errors
    /// When a value on the x axis is no number.
    fn draw(&self, rows: &Rows) -> Result<Figure, Failure> {
        let (x, series) = (rows.key(&self.x), self.series.as_ref().and_then(|key| rows.key(key)));
        let mut lines: Vec<Series> = Vec::new();
        for Row { values, fields, .. } in rows.rows.iter() {
            let place = x.map_or_else(String::new, |x| values[x].to_string());
            let place = number(&place).ok_or_else(|| {
                Failure::usage(format_args!("figures, \"{}\": `{place}` of {} is no number", self.title, self.x))
                    .help("put the key whose values are words into `series`")
            })?;
            let rest = values.iter().enumerate().filter(|(i, _)| Some(*i) != x && series.is_none_or(|s| s == *i));
            let name = rest.map(|(_, value)| value.to_string()).collect::<Vec<_>>().join(" ");
            let name = if name.is_empty() { "measured".to_owned() } else { name };
            let y = fields.get(&self.y).and_then(|y| f64::try_from(y.clone()).ok()).unwrap_or_default();
            let point = Point { x: place, y, spread: None };
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
            y_log: false,
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
