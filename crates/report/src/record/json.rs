//! The record as JSON text.

use super::{Record, SCHEMA};
use crate::json;
use serde::Deserialize;
use std::fmt;

/// Why a text is not a record.
#[derive(Debug)]
pub enum RecordError {
    /// It is not JSON, or a field has a value of the wrong type or range. The message names line and column.
    Json(serde_json::Error),
    /// It does not begin as a JSON object does: a trace, a page, or another kind of file.
    NoObject,
    /// It is JSON but no record: this field, which every record has, is missing.
    NotARecord(&'static str),
    /// It was written by a newer version.
    Newer {
        /// Its schema.
        schema: u64,
        /// The version that wrote it, as it says.
        tool_version: String,
    },
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Json(error) if error.is_eof() => {
                write!(f, "the run record is cut short: {error}; run again to write it anew")
            }
            RecordError::Json(error) => write!(f, "not a run record: {error}"),
            RecordError::NoObject => f.write_str(
                "not a run record: it is no JSON document; a record is what `tidewater replay --json FILE` writes",
            ),
            RecordError::NotARecord(field) => write!(
                f,
                "not a run record: the JSON has no `{field}`; a record is what `tidewater replay --json FILE` writes"
            ),
            RecordError::Newer { schema, tool_version } => write!(
                f,
                "the record has schema {schema} (written by tidewater {tool_version:?}), this version reads up to \
                 {SCHEMA}; use a newer tidewater"
            ),
        }
    }
}

impl std::error::Error for RecordError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RecordError::Json(error) => Some(error),
            _ => None,
        }
    }
}

/// Fields common to every version of the schema, so that a newer record is distinguished from a broken one.
#[derive(Deserialize)]
struct Header {
    schema: Option<u64>,
    #[serde(default)]
    tool_version: serde_json::Value,
    requests: Option<serde::de::IgnoredAny>,
    latency_us: Option<serde::de::IgnoredAny>,
}

impl Record {
    /// Reads a record. Fields that this version does not know are passed over; absent ones are zero or empty.
    ///
    /// # Errors
    /// The text is not JSON, not a record, or a record of a newer schema.
    pub fn from_json(text: &str) -> Result<Record, RecordError> {
        // The words of a parser on the first line of a trace are no help.
        if text.trim_start().starts_with(|first| first != '{') {
            return Err(RecordError::NoObject);
        }
        let header: Header = serde_json::from_str(text).map_err(RecordError::Json)?;
        let schema = header.schema.ok_or(RecordError::NotARecord("schema"))?;
        if schema > u64::from(SCHEMA) {
            let tool_version = header.tool_version.as_str().unwrap_or("of unknown version").to_owned();
            return Err(RecordError::Newer { schema, tool_version });
        }
        header.requests.ok_or(RecordError::NotARecord("requests"))?;
        header.latency_us.ok_or(RecordError::NotARecord("latency_us"))?;
        serde_json::from_str(text).map_err(RecordError::Json)
    }

    /// The record as JSON, fields in the order of [`Record`], ending with a line feed.
    ///
    /// A number that is not finite would make the text unreadable, and a long run must not be lost for one bad
    /// figure: it is written as 0.
    pub fn to_json(&self) -> String {
        json::text(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{DieUse, Latency};

    #[test]
    fn a_record_survives_its_text() {
        let mut record = Record { requests: u64::MAX, iops: 0.1 + 0.2, ..Record::default() };
        record.profile.settings.insert("nand.channels".into(), "8 \"quoted\" \u{1}".into());
        record
            .latency_us
            .insert("read".into(), Latency { count: 2, cdf: vec![(1.5, 0.5), (2.0, 1.0)], ..Latency::default() });
        record.utilization.dies.push(DieUse { channel: 1, die: 2, ..DieUse::default() });
        record.warnings.push("one".into());
        let text = record.to_json();
        assert_eq!(Record::from_json(&text).unwrap(), record);
        assert!(text.contains("\n      \"cdf\": [\n        [1.5, 0.5],\n        [2.0, 1.0]\n      ]"), "{text}");
        assert!(text.contains("\"memory\": [],"));
    }

    #[test]
    fn numbers_that_are_not_finite_are_written_as_zero() {
        let record = Record { iops: f64::NAN, simulated_seconds: f64::INFINITY, ..Record::default() };
        let back = Record::from_json(&record.to_json()).unwrap();
        assert_eq!((back.iops, back.simulated_seconds), (0.0, 0.0));
    }

    #[test]
    fn what_is_no_record_is_refused_in_words() {
        let message = |text: &str| Record::from_json(text).unwrap_err().to_string();
        assert!(message("").contains("cut short"));
        assert!(message("{\"schema\": 1, \"requests\"").contains("cut short"));
        assert!(message("\u{0}\u{1}").contains("not a run record"));
        assert!(message("[]").contains("not a run record"));
        for trace in ["0,8,4096,W,0.1\n", "Timestamp,Hostname\n", "<!DOCTYPE html>", "\n 12 0 8 8 1"] {
            let refused = message(trace);
            assert!(refused.starts_with("not a run record: it is no JSON document"), "{refused}");
            assert!(!refused.contains("Header") && !refused.contains("expected"), "{refused}");
        }
        assert!(message("{}").contains("no `schema`"));
        assert!(message("{\"schema\": 1}").contains("no `requests`"));
        assert!(message("{\"schema\": 1, \"requests\": 1}").contains("no `latency_us`"));
        let newer = message("{\"schema\": 99, \"tool_version\": \"7.0\"}");
        assert!(newer.contains("schema 99") && newer.contains("7.0") && newer.contains("newer tidewater"), "{newer}");
        let wrong = message("{\"schema\": 1,\n \"requests\": -1, \"latency_us\": {}}");
        assert!(wrong.contains("line 2"), "{wrong}");
        let deep = "[".repeat(100_000);
        assert!(message(&deep).contains("not a run record"));
    }

    #[test]
    fn fields_of_a_later_minor_version_are_passed_over() {
        let text = "{\"schema\": 1, \"requests\": 3, \"latency_us\": {}, \"invented\": [1, {}]}";
        assert_eq!(Record::from_json(text).unwrap().requests, 3);
    }
}
