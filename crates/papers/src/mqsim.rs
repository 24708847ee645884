//! The mean response of loads beside that of MQSim (Tavakkol et al., FAST 2018), on a drive that both can describe.

use super::{Cell, Check, ExperimentError, Findings, Form, Options, Setting, check, column, figure, series};
use std::path::Path;
use tidewater_core::ftl::Precondition;
use tidewater_sim::workload::JobSpec;
use tidewater_sim::{Pacing, RunOptions};

/// Equal: no further apart than this share.
const EQUAL: f64 = 0.1;

/// One of the loads of both.
struct Load<'s> {
    name: &'s str,
    job: &'s str,
    /// MQSim's mean response, us.
    theirs: f64,
    /// The same where MQSim lets commands on the bus before data, us.
    commands_first: f64,
}

/// `name | job | us | us`
fn load(text: &str) -> Option<Load<'_>> {
    let mut parts = text.split('|').map(str::trim);
    let (name, job) = (parts.next()?, parts.next()?);
    let load = Load { name, job, theirs: parts.next()?.parse().ok()?, commands_first: parts.next()?.parse().ok()? };
    parts.next().is_none().then_some(load)
}

const TAG: &str = "<Device_Response_Time>";

/// Mean response in what MQSim wrote of a scenario, us.
fn mean_response(text: &str) -> Option<f64> {
    let value = text.split_once(TAG).and_then(|(_, rest)| rest.split_once('<'))?.0;
    value.trim().parse::<f64>().ok().filter(|us| us.is_finite() && *us > 0.0)
}

/// The mean response of the scenario of this number, from 1, us.
fn read(folder: &Path, number: usize) -> Result<f64, ExperimentError> {
    let path = folder.join(format!("loads_scenario_{number}.xml"));
    let wrong = |error: String| ExperimentError::new(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|error| {
        wrong(format!("{error}; MQSim writes it beside loads.xml: `MQSim -i drive.xml -w loads.xml < /dev/null`"))
    })?;
    mean_response(&text).ok_or_else(|| wrong(format!("no mean response: {TAG} with a number above 0 is missing")))
}

pub(super) fn run(setting: &Setting, options: &mut Options<'_>) -> Result<Findings, ExperimentError> {
    let texts = setting.words("loads")?;
    let parsed: Option<Vec<Load<'_>>> = texts.iter().map(|text| load(text)).collect();
    let mut loads =
        parsed.ok_or_else(|| ExperimentError::new("experiments/mqsim.toml: loads: `name | job | us | us` each"))?;
    if let Some(folder) = options.mqsim {
        for (i, load) in loads.iter_mut().enumerate() {
            load.theirs = read(folder, i + 1)?;
        }
    }
    let settings = setting.words("settings")?;
    let settings: Option<Vec<(&str, String)>> =
        settings.iter().map(|text| text.split_once('=').map(|(key, value)| (key, value.to_owned()))).collect();
    let settings =
        settings.ok_or_else(|| ExperimentError::new("experiments/mqsim.toml: settings: `key=value` each"))?;
    let profile = setting.profile(&settings)?;
    let capacity = (setting.number("capacity_gib")? * (1u64 << 30) as f64) as u64;
    let requests = (setting.number("requests")? * if options.quick { 0.1 } else { 1.0 }) as u64;
    let mut findings = Findings {
        columns: vec![
            column("load", "what both are given"),
            column("ours_us", "mean response"),
            column("mqsim_us", "MQSim's mean response, in whole microseconds"),
            column("ratio", "ours by MQSim's"),
            column("commands_first_us", "that of MQSim 7ec40e3 with experiments/mqsim/commands-first.patch"),
        ],
        ..Findings::default()
    };
    let mut ratios = Vec::new();
    for (i, Load { name, job, theirs, commands_first }) in loads.iter().enumerate() {
        let wrong = |error: &dyn std::fmt::Display| ExperimentError::new(format!("{job}: {error}"));
        let job = format!("{job},size={},norandommap=1,number_ios={requests}", capacity / 2);
        let source = JobSpec::from_inline(&job).and_then(|spec| spec.source(None, options.seed));
        let source = source.map_err(|error| wrong(&error))?;
        let mut how = RunOptions { pacing: Pacing::Depth(source.iodepth()), ..RunOptions::default() };
        how.device.seed = options.seed;
        how.device.capacity = capacity;
        how.device.precondition = Precondition::Filled(0.5);
        let depth = source.iodepth();
        let record = tidewater_sim::run(&profile, source, how).map_err(|error| wrong(&error))?.record;
        let ours = record.latency("all").map_or(0.0, |all| all.mean);
        findings.rows.push(vec![
            Cell::from(*name),
            ours.into(),
            (*theirs).into(),
            (ours / theirs).into(),
            (*commands_first).into(),
        ]);
        ratios.push((depth, *name, ours, *theirs));
        options.done((i + 1) as f64 / loads.len() as f64)?;
    }
    let place = |i: usize| (i + 1) as f64;
    let mut plot = figure("Mean response", Form::Bars, ("load, in the order of the rows", false), ("us", true));
    plot.series.push(series("Tidewater", ratios.iter().enumerate().map(|(i, (.., ours, _))| (place(i), *ours))));
    plot.series.push(series("MQSim", ratios.iter().enumerate().map(|(i, (.., theirs))| (place(i), *theirs))));
    findings.figures.push(plot);
    findings.checks.push(compare("equal-alone", &ratios, |depth| depth == 1));
    findings.checks.push(compare("equal-at-depth", &ratios, |depth| depth > 1));
    Ok(findings)
}

/// Whether the loads of these depths have about MQSim's mean response.
fn compare(name: &str, all: &[(u32, &str, f64, f64)], chosen: impl Fn(u32) -> bool) -> Check {
    let chosen = || all.iter().filter(|(depth, ..)| chosen(*depth));
    let words = chosen().map(|(_, name, ours, theirs)| format!("{name}: {ours:.0} and {theirs:.0} us"));
    check(
        name,
        format!("within {:.0} % of MQSim's mean", 100.0 * EQUAL),
        words.collect::<Vec<_>>().join("; "),
        chosen().all(|(.., ours, theirs)| (ours / theirs - 1.0).abs() <= EQUAL),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_and_results_are_read_and_what_they_lack_is_named() {
        let one = load("random read, depth 4 | rw=randread,iodepth=4 | 108 | 107").unwrap();
        assert_eq!((one.name, one.job), ("random read, depth 4", "rw=randread,iodepth=4"));
        assert_eq!((one.theirs, one.commands_first), (108.0, 107.0));
        assert!(["no job", "a | b | 1", "a | b | 1 | d", "a | b | 1 | 2 | 3"].iter().all(|bad| load(bad).is_none()));
        let good = "<Host><IO_Flow><Device_Response_Time>137</Device_Response_Time></IO_Flow></Host>";
        assert_eq!(mean_response(good), Some(137.0));
        for bad in ["", "<Device_Response_Time>", "<Device_Response_Time>x<", "<Device_Response_Time>0<"] {
            assert_eq!(mean_response(bad), None, "{bad}");
        }
        assert!(read(Path::new("/no such folder"), 1).unwrap_err().to_string().contains("-w loads.xml"));
    }
}
