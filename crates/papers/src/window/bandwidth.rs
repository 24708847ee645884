//! Write and read bandwidth by path and size: between buffer and flash on one side, block commands on the other.

use super::super::setting::{ExperimentError, Setting};
use super::super::{Findings, Options, check, column, figure, series};
use super::{PAGE, Timed, bytes, device, pin, profile, run_timed};
use tidewater_report::experiment::Form;
use tidewater_sim::host::{Request, WindowRequest};
use tidewater_wire::vendor::WindowCommand;

const DRIVES: [(&str, &str); 3] = [("ULL-SSD", "ull-ssd"), ("2B-SSD", "2b-ssd"), ("DC-SSD", "dc-ssd")];
/// Bytes of the drives that are used.
const SPAN: u64 = 4 << 30;

/// Possible causes of the gap to the slides: label, whether of writes, drive, and the setting that removes it.
const TAKEN_AWAY: [(&str, bool, usize, &str, &str); 4] = [
    ("if programs of 2B-SSD take no time", true, WINDOW, "nand.program_time", "1us"),
    ("if its firmware takes no time for a page", true, WINDOW, "window.page_time", "1ns"),
    ("if its firmware takes no time for a page", false, WINDOW, "window.page_time", "1ns"),
    ("if DC-SSD has flash that is read as fast as 2B-SSD's", false, DC, "nand.read_time", "3us"),
];
const WINDOW: usize = 1;
const DC: usize = 2;

/// Bytes a second, one request after the other, on a drive with a setting of its own.
fn measure(
    (drive, more): (usize, Option<(&str, &str)>),
    size: u64,
    total: u64,
    write: bool,
    options: &Options<'_>,
) -> Result<f64, ExperimentError> {
    let mut profile = profile(DRIVES[drive].1);
    if let Some((key, value)) = more {
        profile.set(key, value).map_err(|error| ExperimentError::new(error.to_string()))?;
    }
    let mut device = device(&profile, options.seed)?;
    let cycles = (total / size).clamp(4, 2_000);
    let window = drive == WINDOW;
    let slots = SPAN / size.max(PAGE);
    let cycle = move |i: u64| {
        let place = (i % slots) * size.max(PAGE);
        let (flush, unpin) = (WindowCommand::Flush { entry: 0 }, WindowCommand::Unpin { entry: 0 });
        match (window, write) {
            (true, true) => {
                vec![(pin(0, place / PAGE, size), false), (Request::Window(WindowRequest::Run(flush)), true)]
            }
            (true, false) => {
                vec![(pin(0, place / PAGE, size), true), (Request::Window(WindowRequest::Run(unpin)), false)]
            }
            (false, true) => vec![(Request::Write { offset: place, length: size }, true)],
            (false, false) => vec![(Request::Read { offset: place, length: size }, true)],
        }
    };
    let latency = run_timed(&mut device, Timed::new(Vec::new(), cycles, Box::new(cycle)), options.seed)?;
    Ok(size as f64 * latency.count() as f64 / latency.sum_seconds())
}

fn run(setting: &Setting, write: bool, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let sizes = setting.numbers("sizes")?;
    let total = (setting.number("total_mib")? as u64) << if options.quick { 16 } else { 20 };
    let mut findings = Findings {
        columns: vec![
            column("drive", "ULL-SSD and DC-SSD: block commands; 2B-SSD: between buffer and flash (BA_FLUSH, BA_PIN)"),
            column("bytes", "bytes of a request"),
            column("bytes_per_second", "one request after the other"),
        ],
        ..Findings::default()
    };
    let title = if write { "Write bandwidth" } else { "Read bandwidth" };
    let mut plot = figure(title, Form::Lines, ("bytes", true), ("GB/s", true));
    let mut measured: Vec<Vec<f64>> = Vec::new();
    for (drive, (name, _)) in DRIVES.iter().enumerate() {
        let mut rates = Vec::new();
        for (i, &size) in sizes.iter().enumerate() {
            let rate = measure((drive, None), size as u64, total, write, options)?;
            findings.rows.push(vec![(*name).into(), size.into(), rate.into()]);
            rates.push(rate);
            options.done((drive * sizes.len() + i + 1) as f64 / (DRIVES.len() * sizes.len()) as f64)?;
        }
        plot.series.push(series(*name, sizes.iter().copied().zip(rates.iter().map(|rate| rate / 1e9))));
        measured.push(rates);
    }
    findings.figures.push(plot);
    let [ull, window, dc] = [&measured[0], &measured[1], &measured[2]];
    let above = |one: &[f64], other: &[f64]| one.iter().zip(other).all(|(a, b)| a > b);
    let side_by_side = |one: &[f64], other: &[f64]| {
        let pairs = sizes.iter().zip(one.iter().zip(other));
        let words = pairs.map(|(&size, (a, b))| format!("{} {:.2} and {:.2}", bytes(size), a / 1e9, b / 1e9));
        format!("{} GB/s", words.collect::<Vec<_>>().join(", "))
    };
    findings.checks.push(check("ull-above-2b", "at every size", side_by_side(ull, window), above(ull, window)));
    if write {
        findings.checks.push(check("2b-above-dc", "at every size", side_by_side(window, dc), above(window, dc)));
    } else {
        let close = window.iter().zip(dc).all(|(a, b)| (a / b - 1.0).abs() <= 0.1);
        findings.checks.push(check("2b-like-dc", "within 10 % at every size", side_by_side(window, dc), close));
    }
    if !write {
        let mut narrow = Vec::new();
        for &size in &sizes {
            narrow.push(measure((WINDOW, Some(("link.lanes", "1"))), size as u64, total, write, options)?);
        }
        let apart = narrow.iter().zip(window).map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f64::max);
        findings.checks.push(check(
            "internal",
            "of 2B-SSD the same within 5 % with one lane of the link, at every size",
            format!("at most {:.1} % apart", apart * 100.0),
            apart <= 0.05,
        ));
    }
    for (what, _, drive, key, value) in TAKEN_AWAY.into_iter().filter(|&(_, of_writes, ..)| of_writes == write) {
        let mut rates = [window.clone(), dc.clone()];
        for (i, &size) in sizes.iter().enumerate() {
            rates[drive - WINDOW][i] = measure((drive, Some((key, value))), size as u64, total, write, options)?;
        }
        let words = side_by_side(&rates[0], &rates[1]);
        findings.found.push(format!("2B-SSD and DC-SSD {what} (`{key}` {value}): {words}."));
    }
    Ok(findings)
}

pub(crate) fn write(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    run(setting, true, options)
}

pub(crate) fn read(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    run(setting, false, options)
}
