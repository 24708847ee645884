//! Result of a probe of a drive: questions, measurements, and a verdict with its confidence for each property. One
//! document of JSON (`tidewater probe --json`), and the text and the page made from it.

mod page;
mod summary;

pub use page::{figures, page};
pub use summary::summary;

use crate::experiment::Figure;
use crate::json::{self, Kind, ReadError};
use serde::{Deserialize, Serialize};

/// The name and version of the schema; readers refuse others.
pub const SCHEMA: &str = "tidewater-probe/1";

const KIND: Kind =
    Kind { name: "the document of a probe", schema: SCHEMA, command: "tidewater probe TARGET --json FILE" };

/// A drive that was probed, as far as the probe got.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeRecord {
    /// [`SCHEMA`].
    pub schema: String,
    /// The version of the program.
    pub version: String,
    /// The target.
    pub target: TargetInfo,
    /// The seed of every random choice.
    pub seed: u64,
    /// Why the probe ended before its last stage; absent when it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_early: Option<String>,
    /// The stages, in the order in which they ran.
    pub stages: Vec<Stage>,
}

/// The probed target, by its own description.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetInfo {
    /// Its name: a profile with what was changed of it, or a path.
    pub name: String,
    /// Its kind, in words: `simulated drive`, `regular file`, `block device`.
    pub kind: String,
    /// Bytes that can be addressed.
    pub capacity_bytes: u64,
    /// The least that a request may move, in bytes.
    pub block_bytes: u64,
}

/// A stage: one question, or a few that the same requests answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Its name: `read-cache`.
    pub name: String,
    /// One line on what it looks for.
    pub title: String,
    /// Why it did not run, or ended early; absent when it ran to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// Requests that it sent.
    pub requests: u64,
    /// Bytes that it read.
    pub bytes_read: u64,
    /// Bytes that it wrote.
    pub bytes_written: u64,
    /// Seconds of the target's clock that it took.
    pub seconds: f64,
    /// Its verdicts.
    pub verdicts: Vec<Verdict>,
    /// Further measurements that a reader should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Its plots.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<Figure>,
}

/// Answer of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It is there, and this is its size or place.
    Found,
    /// It is not there, or too small or too weak to make a difference that the probe can see.
    Absent,
    /// The measurements do not say: better no answer than a wrong one.
    CannotTell,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The question: one of the names in [`ask`].
    pub what: String,
    /// The answer.
    pub answer: Answer,
    /// The size that was found, in bytes; absent for what has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The lowest and the highest size that the measurements allow, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range_bytes: Option<[u64; 2]>,
    /// Of a placement: `host memory`, or `inside the drive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// How sure it is, 0 to 1: one less the chance that measurements without any knee look like these, less what
    /// repeats contradicted. Of an answer that is not given, 0.
    pub confidence: f64,
    /// The answer in a sentence, with what it rests on.
    pub because: String,
}

/// The names of what is asked.
pub mod ask {
    /// Bytes of data that are read again without flash.
    pub const READ_CACHE: &str = "read cache";
    /// Bytes that the drive takes from the host before it makes it wait for flash.
    pub const WRITE_BUFFER: &str = "write buffer";
    /// Bytes of address space whose map entries are at hand.
    pub const MAP_REACH: &str = "mapping cache reach";
    /// Bytes of address space that one miss of the mapping cache brings in.
    pub const MAP_UNIT: &str = "mapping cache unit";
    /// Bytes that follow each other on one die: a page, or a page of each of its planes.
    pub const PAGE: &str = "page";
    /// Bytes after which the first die comes again.
    pub const STRIPE: &str = "stripe";
    /// Bytes that an empty drive takes at a higher speed: a cache of flash in single-level mode.
    pub const SLC_CACHE: &str = "SLC cache";
    /// Bytes that a full drive takes at random before it has to collect.
    pub const COLLECTION: &str = "collection begins after";
    /// Whose memory the read cache is.
    pub const READ_CACHE_PLACE: &str = "read cache place";
    /// Whose memory the write buffer is.
    pub const WRITE_BUFFER_PLACE: &str = "write buffer place";
    /// Whose memory the mapping cache is.
    pub const MAP_PLACE: &str = "mapping cache place";
    /// Whose memory the mapping cache grows with: asked with half of what the host lends.
    pub const MAP_GROWTH: &str = "mapping cache grows with";
}

impl ProbeRecord {
    /// The document as JSON text, ending with a line feed.
    pub fn to_json(&self) -> String {
        json::text(self)
    }

    /// Reads a document.
    ///
    /// # Errors
    /// When it is no JSON, no document of a probe, or one of another schema.
    pub fn from_json(text: &str) -> Result<ProbeRecord, ReadError> {
        json::read(text, KIND)
    }

    /// The first verdict on this question, of a stage of this name; any stage when the name is empty.
    pub fn verdict(&self, stage: &str, what: &str) -> Option<&Verdict> {
        let stages = self.stages.iter().filter(|one| stage.is_empty() || one.name == stage);
        stages.flat_map(|one| &one.verdicts).find(|verdict| verdict.what == what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn record() -> ProbeRecord {
        ProbeRecord {
            schema: SCHEMA.into(),
            version: "1".into(),
            target: TargetInfo {
                name: "a drive".into(),
                kind: "simulated drive".into(),
                capacity_bytes: 1 << 30,
                block_bytes: 512,
            },
            seed: 1,
            ended_early: None,
            stages: vec![Stage {
                name: "read-cache".into(),
                title: "What is read again without flash".into(),
                skipped: None,
                requests: 10,
                bytes_read: 40_960,
                bytes_written: 0,
                seconds: 0.5,
                verdicts: vec![Verdict {
                    what: ask::READ_CACHE.into(),
                    answer: Answer::Found,
                    bytes: Some(32 << 10),
                    range_bytes: Some([32 << 10, 36 << 10]),
                    place: None,
                    confidence: 0.99,
                    because: "it is".into(),
                }],
                notes: Vec::new(),
                figures: Vec::new(),
            }],
        }
    }

    #[test]
    fn a_document_comes_back_as_it_was() {
        let record = record();
        assert_eq!(ProbeRecord::from_json(&record.to_json()).unwrap(), record);
    }

    #[test]
    fn foreign_documents_are_refused_in_words() {
        let refused = |text: &str| ProbeRecord::from_json(text).unwrap_err().to_string();
        assert!(refused("{").contains("not the document of a probe"));
        assert!(refused("{}").contains("no `schema`"));
        assert!(refused("{\"schema\": \"tidewater-run/1\"}").contains("tidewater-run/1"));
        assert!(refused(&format!("{{\"schema\": \"{SCHEMA}\"}}")).contains("missing field"));
    }
}
