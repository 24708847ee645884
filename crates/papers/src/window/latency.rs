//! Write and read latency by path and size.

use super::super::setting::{ExperimentError, Setting};
use super::super::{Findings, Options, check, column, figure, paper, series};
use super::{PAGE, Timed, bytes, device, pin, profile, run_timed, us};
use tidewater_base::Rng;
use tidewater_report::experiment::{Check, Form};
use tidewater_sim::host::{CallSpec, Request, WindowRequest};
use tidewater_wire::vendor::WindowCommand;

/// A way to the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    /// Stores, or loads.
    Mmio,
    /// Stores and a sync.
    Synced,
    /// The read DMA engine.
    Dma,
    /// Block commands, of whole pages.
    Blocks(&'static str),
}

impl Path {
    fn name(self) -> &'static str {
        match self {
            Path::Mmio => "MMIO",
            Path::Synced => "MMIO + BA_SYNC",
            Path::Dma => "READ_DMA",
            Path::Blocks("ull-ssd") => "ULL-SSD",
            Path::Blocks(_) => "DC-SSD",
        }
    }
}

/// Bytes of the drives that block commands are spread over.
const SPAN: u64 = 1 << 30;

fn measure(path: Path, size: u64, write: bool, options: &Options<'_>) -> Result<f64, ExperimentError> {
    let name = if let Path::Blocks(name) = path { name } else { "2b-ssd" };
    let mut device = device(&profile(name), options.seed)?;
    let cycles = if size > 65_536 || options.quick { 2 } else { 32 };
    let mut rng = Rng::new(options.seed, b"window latency");
    let prologue = if let Path::Blocks(_) = path { Vec::new() } else { vec![pin(0, 0, size)] };
    let (entry, at, length) = (0, 0, size);
    let cycle = move |_| match path {
        Path::Mmio if write => vec![(Request::Window(WindowRequest::Store { entry, at, length }), true)],
        Path::Mmio => vec![(Request::Window(WindowRequest::Load { entry, at, length }), true)],
        Path::Synced => vec![
            (Request::Window(WindowRequest::Store { entry, at, length }), true),
            (Request::Window(WindowRequest::Sync { entry, at, length }), true),
        ],
        Path::Dma => {
            let command = WindowCommand::ReadDma { entry, offset: at, bytes: length as u32 };
            vec![(Request::Window(WindowRequest::Run(command)), true)]
        }
        Path::Blocks(_) => {
            let length = length.next_multiple_of(PAGE);
            let offset = rng.below(SPAN / length) * length;
            let request = if write { Request::Write { offset, length } } else { Request::Read { offset, length } };
            vec![(request, true)]
        }
    };
    let latency = run_timed(&mut device, Timed::new(prologue, cycles, Box::new(cycle)), options.seed)?;
    Ok(latency.mean().as_secs_f64() * 1e6)
}

/// Findings so far, latencies by path and size, and the sizes.
type Table = (Findings, Vec<Vec<f64>>, Vec<f64>);

fn table(paths: &[Path], write: bool, setting: &Setting, options: &mut Options<'_>) -> Result<Table, ExperimentError> {
    let sizes = setting.numbers("sizes")?;
    let mut findings = Findings {
        columns: vec![
            column("path", "how the bytes travel"),
            column("bytes", "bytes of a request; block commands move whole pages of 4 KiB"),
            column("latency_us", "mean microseconds as the host sees them"),
        ],
        ..Findings::default()
    };
    let mut measured = Vec::new();
    for (i, &path) in paths.iter().enumerate() {
        let mut of_path = Vec::new();
        for (j, &size) in sizes.iter().enumerate() {
            let latency = measure(path, size as u64, write, options)?;
            findings.rows.push(vec![path.name().into(), size.into(), latency.into()]);
            of_path.push(latency);
            options.done((i * sizes.len() + j + 1) as f64 / (paths.len() * sizes.len()) as f64)?;
        }
        measured.push(of_path);
    }
    let title = if write { "Write latency" } else { "Read latency" };
    let mut plot = figure(title, Form::Lines, ("bytes", true), ("latency (us)", true));
    for (path, latencies) in paths.iter().zip(&measured) {
        plot.series.push(series(path.name(), sizes.iter().copied().zip(latencies.iter().copied())));
    }
    findings.figures.push(plot);
    Ok((findings, measured, sizes))
}

/// A latency that the paper gives.
struct Published {
    check: &'static str,
    path: Path,
    bytes: f64,
    us: f64,
}

impl Published {
    /// Checks a measured latency against the published one: within 10 %.
    fn check(&self, measured: f64) -> Check {
        let apart = measured / self.us - 1.0;
        let words = format!("{} ({:+.1} %)", us(measured), apart * 100.0);
        check(self.check, format!("{}, within 10 %", us(self.us)), words, apart.abs() <= 0.1)
    }
}

/// Checks what the paper gives, and draws it beside what was measured.
fn hold(
    published: &[Published],
    paths: &[Path],
    (findings, measured, sizes): &mut Table,
) -> Result<(), ExperimentError> {
    for one in published {
        let path = paths.iter().position(|path| *path == one.path).expect("what is published was measured");
        findings.checks.push(one.check(at(sizes, &measured[path], one.bytes)?));
    }
    for path in paths {
        let points: Vec<_> = published.iter().filter(|one| one.path == *path).map(|one| (one.bytes, one.us)).collect();
        if !points.is_empty() {
            findings.figures[0].series.push(paper(path.name(), points));
        }
    }
    Ok(())
}

fn at(sizes: &[f64], latencies: &[f64], size: f64) -> Result<f64, ExperimentError> {
    let place = sizes.iter().position(|&s| s == size);
    place.map(|i| latencies[i]).ok_or_else(|| ExperimentError::new(format!("sizes lack {}", bytes(size))))
}

pub(crate) fn write(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let paths = [Path::Mmio, Path::Synced, Path::Blocks("ull-ssd"), Path::Blocks("dc-ssd")];
    let mut table = table(&paths, true, setting, options)?;
    let given = |check, path, bytes, us| Published { check, path, bytes, us };
    let published = [
        given("mmio-8", Path::Mmio, 8.0, 0.63),
        given("mmio-1k", Path::Mmio, 1024.0, 0.93),
        given("mmio-4k", Path::Mmio, 4096.0, 2.0),
        given("sync-4k", Path::Synced, 4096.0, 4.0),
        given("ull-4k", Path::Blocks("ull-ssd"), 4096.0, 13.2),
    ];
    hold(&published, &paths, &mut table)?;
    let (mut findings, measured, sizes) = table;
    let of = |path: usize, size: f64| at(&sizes, &measured[path], size);
    let ratio = of(2, 4096.0)? / of(0, 4096.0)?;
    findings.checks.push(check("ratio", "6.6, within 10 %", format!("{ratio:.2}"), (ratio / 6.6 - 1.0).abs() <= 0.1));
    findings.checks.push(of_sheet(of(2, 4096.0)?, 10.0));
    let above = measured[1].iter().zip(&measured[0]).all(|(synced, stored)| synced > stored);
    findings.checks.push(check("sync-above-mmio", "at every size", words(above), above));
    let small = || sizes.iter().zip(measured[0].iter().zip(&measured[2])).filter(|(size, _)| **size <= 4096.0);
    let sooner = small().all(|(_, (mmio, block))| mmio < block);
    let each = small().map(|(&size, (mmio, block))| format!("{} {} and {}", bytes(size), us(*mmio), us(*block)));
    findings.checks.push(check(
        "mmio-below-ull",
        "at every size up to 4 KB",
        each.collect::<Vec<_>>().join(", "),
        sooner,
    ));
    Ok(findings)
}

pub(crate) fn read(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let paths = [Path::Mmio, Path::Dma, Path::Blocks("ull-ssd"), Path::Blocks("dc-ssd")];
    let mut table = table(&paths, false, setting, options)?;
    let given = |check, path, us| Published { check, path, bytes: 4096.0, us };
    let published = [
        given("mmio-4k", Path::Mmio, 150.0),
        given("dma-4k", Path::Dma, 58.0),
        given("ull-4k", Path::Blocks("ull-ssd"), 13.2),
    ];
    hold(&published, &paths, &mut table)?;
    let (mut findings, measured, sizes) = table;
    let of = |path: usize, size: f64| at(&sizes, &measured[path], size);
    let (mmio, dma, ull, dc) = (of(0, 4096.0)?, of(1, 4096.0)?, of(2, 4096.0)?, of(3, 4096.0)?);
    findings.checks.push(of_sheet(ull, 13.0));
    let words_of = format!("READ_DMA {}, MMIO {}, ULL-SSD {}", us(dma), us(mmio), us(ull));
    findings.checks.push(check("dma-between", "ULL-SSD < READ_DMA < MMIO", words_of, ull < dma && dma < mmio));
    let accelerates = measured[1].iter().zip(&measured[0]).all(|(dma, mmio)| dma < mmio);
    let each = sizes.iter().zip(measured[1].iter().zip(&measured[0]));
    let each = each.map(|(&size, (dma, mmio))| format!("{} {} and {}", bytes(size), us(*dma), us(*mmio)));
    let each = each.collect::<Vec<_>>().join(", ");
    findings.checks.push(check("dma-below-mmio", "READ_DMA < MMIO at every size", each, accelerates));
    for (path, name) in [(2, "mmio-below-ull"), (3, "mmio-below-dc")] {
        // Both lines rise with the size: the largest size at which loads win.
        let wins = sizes.iter().zip(measured[0].iter().zip(&measured[path])).filter(|(_, (mmio, block))| mmio < block);
        let last = wins.map(|(&size, _)| size).fold(0.0, f64::max);
        findings.checks.push(check(
            name,
            "from the smallest size up to less than 4 KB",
            format!("up to {} of the sizes here; 4 KB: {} against {}", bytes(last), us(mmio), us([ull, dc][path - 2])),
            measured[0][0] < measured[path][0] && last < 4096.0,
        ));
    }
    Ok(findings)
}

/// The device's share of a block command against the drive's data sheet, microseconds.
fn of_sheet(latency: f64, sheet: f64) -> Check {
    let calls = CallSpec::default();
    let share = latency - (calls.submit_time + calls.return_time).as_us_f64();
    let words = format!("{} ({:+.1} %) without the host's share", us(share), (share / sheet - 1.0) * 100.0);
    check("sheet-4k", format!("{} of the device, within 10 %", us(sheet)), words, (share / sheet - 1.0).abs() <= 0.1)
}

fn words(holds: bool) -> String {
    if holds { "at every size" } else { "not at every size" }.into()
}
