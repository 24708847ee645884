//! The mean response of loads of MQSim (Tavakkol et al., FAST 2018), from a folder with its results.

use std::path::Path;
use tidewater_study::Failure;
use tidewater_study::experiment::{Names, Value};

const TAG: &str = "<Device_Response_Time>";

/// Mean response in what MQSim wrote of a scenario, us.
fn mean_response(text: &str) -> Option<f64> {
    let value = text.split_once(TAG).and_then(|(_, rest)| rest.split_once('<'))?.0;
    value.trim().parse::<f64>().ok().filter(|us| us.is_finite() && *us > 0.0)
}

/// The mean response of the scenario of this number, from 1, us.
fn read(folder: &Path, number: usize) -> Result<f64, Failure> {
    let path = folder.join(format!("loads_scenario_{number}.xml"));
    let wrong = |error: String| Failure::usage(format_args!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|error| {
        wrong(format!("{error}; MQSim writes it beside loads.xml: `MQSim -i drive.xml -w loads.xml < /dev/null`"))
    })?;
    mean_response(&text).ok_or_else(|| wrong(format!("no mean response: {TAG} with a number above 0 is missing")))
}

/// `responses`: the mean responses of so many loads, where there is a folder that has them, us.
///
/// # Errors
/// A result that is missing or can't be read.
pub(super) fn responses(loads: usize, folder: Option<&Path>) -> Result<Names, Failure> {
    let all = folder.map(|folder| (1..=loads).map(|number| read(folder, number)).collect::<Result<Vec<_>, _>>());
    Ok(Names::from([("responses".to_owned(), Value::from(all.transpose()?))]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_and_what_they_lack_is_named() {
        let good = "<Host><IO_Flow><Device_Response_Time>137</Device_Response_Time></IO_Flow></Host>";
        assert_eq!(mean_response(good), Some(137.0));
        for bad in ["", "<Device_Response_Time>", "<Device_Response_Time>x<", "<Device_Response_Time>0<"] {
            assert_eq!(mean_response(bad), None, "{bad}");
        }
        assert!(read(Path::new("/no such folder"), 1).unwrap_err().to_string().contains("-w loads.xml"));
    }
}
