//! `tidewater report --figure`: one figure as a file for a paper.

use crate::failure::{Failure, printable};
use crate::output::{self, Target};
use std::fmt::Write as _;
use std::path::Path;
use tidewater_figures::{Drawing, Format};
use tidewater_report::figure::Figure;

/// How a figure goes to `path`: its ending says. What is no file gets SVG.
///
/// # Errors
/// Any other ending.
pub fn format_of(target: &Target, path: &Path) -> Result<Format, Failure> {
    if target.is_a_file() { Format::of(path).map_err(Failure::refused) } else { Ok(Format::Svg) }
}

/// Writes a figure, and says its caption.
///
/// # Errors
/// A file that can't be written.
pub fn write(figure: &Figure<'_>, millimetres: f64, format: Format, target: &Target) -> Result<(), Failure> {
    let drawing = Drawing::new(figure, millimetres).map_err(Failure::run)?;
    target.write_bytes(&drawing.encode(format).map_err(Failure::run)?)?;
    if target.is_stdout() {
        return Ok(());
    }
    let (width, height) = drawing.size_mm();
    let caption = printable(&figure.caption());
    output::print(&format!("figure: {} ({format}, {width:.1} x {height:.1} mm)\n{caption}\n", target.name()))
}

/// The figure of that name.
///
/// # Errors
/// None, with the names there are.
pub fn find<'a, 'b>(figures: &'a [Figure<'b>], name: &str) -> Result<&'a Figure<'b>, Failure> {
    let plain = name.to_lowercase().replace('_', "-");
    if let Some(figure) = figures.iter().find(|figure| figure.name() == plain) {
        return Ok(figure);
    }
    Err(among(figures, Failure::usage(format_args!("there is no figure {name:?} here"))))
}

/// A failure that names the figures there are.
pub fn among(figures: &[Figure<'_>], failure: Failure) -> Failure {
    if figures.is_empty() {
        return failure.help("these files have nothing to draw");
    }
    let names: Vec<&str> = figures.iter().map(Figure::name).collect();
    failure.help(format_args!("there are: {}", names.join(", ")))
}

/// The figures there are: a line for each, its name and what it shows.
pub fn list(figures: &[Figure<'_>]) -> String {
    let wide = figures.iter().map(|figure| figure.name().len()).max().unwrap_or(0);
    let mut text = String::new();
    for figure in figures {
        let _ = writeln!(text, "{:wide$}  {}", figure.name(), printable(figure.title()));
    }
    if text.is_empty() { "these files have nothing to draw\n".to_owned() } else { text }
}
