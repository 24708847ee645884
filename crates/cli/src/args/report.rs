//! `tidewater report`.

use clap::{Args, ValueHint};
use std::path::PathBuf;
use tidewater_figures::{COLUMN_MM, PAGE_MM, WIDTH_MAX_MM, WIDTH_MIN_MM};

/// `tidewater report`.
#[derive(Debug, Args)]
pub struct Report {
    /// Records that `replay --json` or `compare --json` wrote, the directory of a sweep, documents of `experiment run
    /// --json`, or one of `probe --json` or `log --json`
    #[arg(value_name = "RECORD", required = true, value_hint = ValueHint::AnyPath)]
    pub records: Vec<PathBuf>,
    /// Write one self-contained HTML page, or what --table or --figure name; - is standard output. Without it, the
    /// summary or table is printed
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub output: Option<PathBuf>,
    /// Write this table in place of a page; OUTPUT ends with .parquet, .arrow or .csv
    #[arg(long, value_name = "NAME", requires = "output", conflicts_with = "title")]
    pub table: Option<TableName>,
    /// Write this figure in place of a page; OUTPUT ends with .svg, .pdf or .png
    #[arg(long, value_name = "NAME", requires = "output", conflicts_with_all = ["title", "table"])]
    pub figure: Option<String>,
    /// List the figures there are, with what they show
    #[arg(long, conflicts_with_all = ["output", "title", "table"])]
    pub list_figures: bool,
    /// Width of the figure: `column` (83.8 mm, 3.3 inches), `page` (177.8 mm, 7 inches), or millimetres
    #[arg(long, value_name = "WIDTH", value_parser = width, default_value = "column")]
    pub width: f64,
    /// Varied key on the x-axis [default: the numeric one with the most values]
    #[arg(long, value_name = "KEY", help_heading = "Several runs")]
    pub x: Option<String>,
    /// Varied key with a colour for each value [default: all other varied keys]
    #[arg(long, value_name = "KEY", visible_alias = "color", help_heading = "Several runs")]
    pub colour: Option<String>,
    /// Quantities on the y-axis, by the table's column names: `read_p99_us`; one of them is a --figure, too
    #[arg(long, value_name = "FIGURE", value_delimiter = ',', help_heading = "Several runs")]
    pub y: Vec<String>,
    /// Write a page for each run, too, beside its record; the rows of the runs lead to them
    #[arg(long, requires = "output", conflicts_with_all = ["figure", "table"], help_heading = "Several runs")]
    pub pages: bool,
    /// The title of a comparison's page
    #[arg(long, value_name = "TEXT", requires = "output", help_heading = "Several runs")]
    pub title: Option<String>,
}

/// Tables of `tidewater report --table`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum TableName {
    /// A row for each run: what varies, and every figure
    Runs,
    /// Over seeds: mean, median, confidence interval, and a paired test against the first variant
    Statistics,
    /// IOPS, bandwidth and latency over virtual time
    TimeSeries,
    /// The distribution of latencies by operation
    Latencies,
    /// How busy each die was
    Dies,
    /// Blocks by how often they were erased
    Wear,
    /// Of a log: a row for each side
    Log,
    /// Of a probe: a row for each verdict
    Probe,
}

/// A width in millimetres.
fn width(text: &str) -> Result<f64, String> {
    match text {
        "column" => return Ok(COLUMN_MM),
        "page" => return Ok(PAGE_MM),
        _ => {}
    }
    let number = text.strip_suffix("mm").unwrap_or(text).trim();
    match number.parse::<f64>() {
        Ok(millimetres) if (WIDTH_MIN_MM..=WIDTH_MAX_MM).contains(&millimetres) => Ok(millimetres),
        _ => Err(format!("give `column`, `page`, or {WIDTH_MIN_MM} to {WIDTH_MAX_MM} millimetres")),
    }
}
