//! CBM (Wei, Chen and Yang, *CBM: a cooperative buffer management for SSD*, MSST 2014): the workloads of its
//! experiments, and traces that users may have.

use super::ENTRIES;
use std::path::Path;
use tidewater_sim::trace::Format;
use tidewater_sim::workload::SynthSpec;
use tidewater_study::Failure;
use tidewater_study::experiment::{Names, Value};

fn map<const N: usize>(entries: [(&str, Value); N]) -> Value {
    Value::from(std::collections::BTreeMap::from(entries))
}

/// `stand_ins`: those of the paper's workloads, with their requests, as the experiments by size have them.
///
/// # Errors
/// When a file of these does not say how many.
pub(super) fn stand_ins() -> Result<Names, Failure> {
    let stand_in = |name: &str| {
        let entry = ENTRIES.iter().find(|entry| entry.name == format!("cbm/{name}"));
        let file: Option<toml::Table> = entry.and_then(|entry| toml::from_str(entry.file).ok());
        let number = |key: &str| file.as_ref()?.get("parameters")?.get(key)?.get("value")?.as_integer();
        match (number("requests"), number("warm_up")) {
            (Some(requests), Some(warm_up)) => Ok(map([
                ("name", name.into()),
                ("requests", requests.into()),
                ("warm_up", warm_up.into()),
                ("path", ().into()),
                ("format", ().into()),
            ])),
            _ => Err(Failure::usage(format_args!("experiments/cbm/{name}.toml: requests and warm_up are missing"))),
        }
    };
    let all = SynthSpec::CBM.into_iter().map(stand_in).collect::<Result<Vec<_>, _>>()?;
    Ok(Names::from([("stand_ins".to_owned(), all.into())]))
}

/// `traces_found`: those of the listed traces that are in the folder; `traces_skipped`: what is missing, in words.
///
/// # Errors
/// A format that there is not.
pub(super) fn traces(listed: &Value, folder: Option<&Path>) -> Result<Names, Failure> {
    let lines: Vec<String> = listed.try_iter().map_err(Failure::usage)?.map(|line| line.to_string()).collect();
    let mut found = Vec::new();
    for line in &lines {
        let (file, format) = line.split_once(' ').unwrap_or((line, ""));
        format.parse::<Format>().map_err(|error| Failure::usage(format_args!("{file}: {error}")))?;
        let Some(folder) = folder else { continue };
        let places = ["", ".zst", ".gz"].map(|ending| folder.join(format!("{file}{ending}")));
        let Some(path) = places.into_iter().find(|path| path.is_file()) else { continue };
        found.push(map([
            // Names are long: what tells them apart is in the first words.
            ("name", file.split('.').next().unwrap_or(file).into()),
            ("path", path.display().to_string().into()),
            ("format", format.into()),
            ("number", (found.len() + 1).into()),
            ("requests", 0.into()),
            ("warm_up", 0.into()),
        ]));
    }
    let missing = lines.len() - found.len();
    let skipped = format!(
        "SKIPPED: {missing} of {} traces are not there; --traces FOLDER or TIDEWATER_TRACES names their folder",
        lines.len()
    );
    let skipped = if missing > 0 { skipped } else { String::new() };
    Ok(Names::from([("traces_found".to_owned(), found.into()), ("traces_skipped".to_owned(), skipped.into())]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_skipped_and_counted() {
        let listed = Value::from(vec!["sample.msr.csv msr", "absent.spc spc"]);
        let samples = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces"));
        let names = traces(&listed, Some(samples)).unwrap();
        assert_eq!(names["traces_found"].len(), Some(1));
        assert!(names["traces_skipped"].to_string().starts_with("SKIPPED: 1 of 2 traces"));
        let none = traces(&listed, None).unwrap();
        assert!(none["traces_found"].len() == Some(0) && none["traces_skipped"].to_string().contains("2 of 2"));
        assert!(traces(&Value::from(vec!["x.csv nonsense"]), None).is_err());
    }
}
