//! Figure 10: write combining against uncached stores, by write size and memory.

use super::setting::{ExperimentError, Setting, at, device};
use super::{Findings, Options, check, column, figure, list, series};
use tidewater_base::Duration;
use tidewater_core::drive::{VirtualClock, drive};
use tidewater_report::experiment::Form;
use tidewater_sim::host::{Appender, Attached, client_of};
use tidewater_sim::pcie::Mapping;

const MEMORIES: [(&str, &str, &str); 2] = [("SRAM", "sram", "128KiB"), ("DRAM", "fast-dram", "128MiB")];
const MAPPINGS: [(&str, Mapping); 2] = [("WC", Mapping::WriteCombining), ("UC", Mapping::Uncached)];

pub(super) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let sizes = setting.numbers("sizes")?;
    let append = setting.number("append_bytes")? as u64;
    let time = setting.time("run_us", 1e-6, options.quick)?;
    // The ring is full by then, if it ever is.
    let warm = Duration::from_us(300);
    let mut findings = Findings {
        columns: vec![
            column("memory", "what backs the ring"),
            column("mapping", "WC: write combining, UC: uncached"),
            column("write_bytes", "bytes written at once"),
            column("bytes_per_second", "log bytes credited a second"),
        ],
        ..Findings::default()
    };
    let mut measured: Vec<Vec<Vec<f64>>> = Vec::new();
    for (i, (name, memory, size)) in MEMORIES.into_iter().enumerate() {
        let profile = setting.profile(&[("fast.memory", memory.into()), ("fast.size", size.into())])?;
        let mut of_memory = Vec::new();
        for (j, (mapping_name, mapping)) in MAPPINGS.into_iter().enumerate() {
            let mut rates = Vec::new();
            for (k, &bytes) in sizes.iter().enumerate() {
                let mut device = device(&profile, options.seed)?;
                let client = client_of(&device, mapping, Some(bytes as u64), options.seed);
                let app = Appender::new(append, false, Duration::ZERO, at(warm), at(warm + time));
                let mut host = Attached::new(app, Some(client), profile.host.block_size.trailing_zeros());
                drive(&mut device, &mut VirtualClock::default(), &mut host);
                let rate = host.app.bandwidth();
                findings.rows.push(vec![name.into(), mapping_name.into(), bytes.into(), rate.into()]);
                rates.push(rate);
                let done = ((i * 2 + j) * sizes.len() + k + 1) as f64;
                options.done(done / (4 * sizes.len()) as f64)?;
            }
            of_memory.push(rates);
        }
        measured.push(of_memory);
    }
    let above = measured.iter().all(|of| of[0].iter().zip(&of[1]).all(|(wc, uc)| wc > uc));
    let least =
        measured.iter().flat_map(|of| of[0].iter().zip(&of[1]).map(|(wc, uc)| wc / uc)).fold(f64::MAX, f64::min);
    findings.checks.push(check("wc-above-uc", "a ratio above 1 everywhere", format!("at least {least:.2}"), above));
    findings.checks.push(check(
        "wc-considerably",
        "twice the throughput and more, at every size",
        format!("at least {least:.2}"),
        least >= 2.0,
    ));
    let share = |of: &[f64]| {
        let best = of.iter().copied().fold(0.0, f64::max);
        of.iter().map(|rate| rate / best).collect::<Vec<f64>>()
    };
    let words = |shares: &[f64]| {
        let each = sizes.iter().zip(shares).map(|(size, share)| format!("{size:.0} B {:.0} %", share * 100.0));
        each.collect::<Vec<_>>().join(", ")
    };
    let sram = share(&measured[0][0]);
    let below = sizes.iter().zip(&sram).filter(|&(&size, _)| size < 64.0).all(|(_, &share)| share < 0.9);
    findings.checks.push(check("sram-at-64", "every smaller size below 90 % of it", words(&sram), below));
    let dram = share(&measured[1][0]);
    let flat = sizes.iter().zip(&dram).all(|(&size, &share)| if size >= 16.0 { share > 0.95 } else { share < 0.9 });
    findings.checks.push(check(
        "dram-from-16",
        "16 bytes and more above 95 % of it, less below 90 %",
        words(&dram),
        flat,
    ));
    let few = [sram[0], dram[0]];
    findings.checks.push(check(
        "few-bytes-low",
        "with the smallest size less than half of the maximum, into either memory",
        format!("{:.0} B: {}", sizes[0], list(few.map(|share| share * 100.0), "%")),
        few.iter().all(|&share| share < 0.5),
    ));
    for ((name, ..), of) in MEMORIES.into_iter().zip(&measured) {
        let best = of.iter().flatten().copied().fold(0.0, f64::max);
        let y = ("throughput, normalized", false);
        let mut plot = figure(name, Form::Bars, ("bytes written at once", true), y);
        for ((mapping, _), rates) in MAPPINGS.into_iter().zip(of) {
            plot.series.push(series(mapping, sizes.iter().copied().zip(rates.iter().map(|rate| rate / best))));
        }
        findings.figures.push(plot);
    }
    Ok(findings)
}
