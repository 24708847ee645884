//! Write and read bandwidth by path and size: between buffer and flash on one side, block commands on the other.

use super::super::setting::{ExperimentError, Setting};
use super::super::{Findings, Options, check, column, figure, series};
use super::{PAGE, Timed, device, pin, profile, run_timed};
use crate::host::{Request, WindowRequest};
use tidewater_report::experiment::Form;
use tidewater_wire::vendor::WindowCommand;

const DRIVES: [(&str, &str); 3] = [("ULL-SSD", "ull-ssd"), ("2B-SSD", "2b-ssd"), ("DC-SSD", "dc-ssd")];
/// Bytes of the drives that are used.
const SPAN: u64 = 4 << 30;

/// Bytes a second, one request after the other.
fn measure(drive: usize, size: u64, total: u64, write: bool, options: &Options<'_>) -> Result<f64, ExperimentError> {
    let mut device = device(&profile(DRIVES[drive].1), options.seed)?;
    let cycles = (total / size).clamp(4, 2_000);
    let window = drive == 1;
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
    let mut measured = Vec::new();
    for (drive, (name, _)) in DRIVES.iter().enumerate() {
        let mut rates = Vec::new();
        for (i, &size) in sizes.iter().enumerate() {
            let rate = measure(drive, size as u64, total, write, options)?;
            findings.rows.push(vec![(*name).into(), size.into(), rate.into()]);
            rates.push(rate);
            options.done((drive * sizes.len() + i + 1) as f64 / (DRIVES.len() * sizes.len()) as f64)?;
        }
        plot.series.push(series(*name, sizes.iter().copied().zip(rates.iter().map(|rate| rate / 1e9))));
        measured.push(*rates.last().expect("sizes are not empty"));
    }
    findings.figures.push(plot);
    let gb = |rate: f64| format!("{:.2} GB/s", rate / 1e9);
    let words = format!("{}, {}, {}", gb(measured[0]), gb(measured[1]), gb(measured[2]));
    if write {
        let ordered = measured[0] > measured[1] && measured[1] > measured[2];
        findings.checks.push(check("ULL-SSD > 2B-SSD > DC-SSD", "at the largest size", words, ordered));
    } else {
        let close = (measured[1] / measured[2] - 1.0).abs() <= 0.1;
        findings.checks.push(check(
            "ULL-SSD > 2B-SSD, and 2B-SSD is about equal to DC-SSD",
            "at the largest size; equal within 10 %",
            words,
            measured[0] > measured[1] && close,
        ));
    }
    Ok(findings)
}

pub(in super::super) fn write(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    run(setting, true, options)
}

pub(in super::super) fn read(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    run(setting, false, options)
}
