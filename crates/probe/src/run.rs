//! The stages of a probe, one after the other, and what is written down after each.

use crate::session::{Session, Stop};
use crate::stages::{self, Known};
use crate::target::{CAPACITY_MIN, Target};
use tidewater_report::probe::{ProbeRecord, SCHEMA, Stage, TargetInfo};

/// Options of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Seeds every random choice.
    pub seed: u64,
    /// The stages that run, by name; empty: all that the target allows.
    pub stages: Vec<String>,
    /// The version that the record names.
    pub version: String,
    /// The largest cache or buffer that is looked for, in bytes. The paper fills 512 MB, the most that its drives may
    /// borrow.
    pub largest_cache: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { seed: 1, stages: Vec::new(), version: String::new(), largest_cache: 512 << 20 }
    }
}

/// A stage, as it can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageInfo {
    /// Its name.
    pub name: &'static str,
    /// One line on what it looks for.
    pub title: &'static str,
    /// Its effect on the data on the drive; `None`: none, it only reads.
    pub destroys: Option<&'static str>,
    /// It measures again what earlier stages found, and does what they do.
    pub repeats: bool,
}

/// Effect of a writing stage on data.
const WRITES: &str = "deallocates and overwrites up to half of the target";

/// All stages, in the order in which they run: what only reads goes first.
pub const STAGES: &[StageInfo] = &[
    StageInfo { name: "read-cache", title: "Data that is read again without flash", destroys: None, repeats: false },
    StageInfo { name: "map-cache", title: "The part of the map that is at hand", destroys: None, repeats: false },
    StageInfo { name: "stripe", title: "How data is spread over flash", destroys: None, repeats: false },
    StageInfo {
        name: "write-buffer",
        title: "What is taken from the host before it waits for flash",
        destroys: Some(WRITES),
        repeats: false,
    },
    StageInfo {
        name: "sustained",
        title: "How it writes when that goes on for long",
        destroys: Some("deallocates all of the target, and overwrites it up to twice"),
        repeats: false,
    },
    StageInfo { name: "host-memory", title: "Whose memory it is", destroys: None, repeats: true },
];

/// Who looks on.
pub trait Watch {
    /// A stage has come so far, 0 to 1.
    fn progress(&mut self, stage: &str, share: f64);
    /// Whether the probe should end; asked often.
    fn cancelled(&self) -> bool;
    /// A stage has ended: the record so far.
    fn stage_done(&mut self, record: &ProbeRecord);
}

/// Without progress reports.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn progress(&mut self, _: &str, _: f64) {}

    fn cancelled(&self) -> bool {
        false
    }

    fn stage_done(&mut self, _: &ProbeRecord) {}
}

/// Probes `target`. What is known when the target fails, or when the user ends the probe, is in the record, which
/// then says so; nothing is known of a target below [`CAPACITY_MIN`].
pub fn run(target: &mut dyn Target, options: &Options, watch: &mut dyn Watch) -> ProbeRecord {
    let about = target.about();
    let mut record = ProbeRecord {
        schema: SCHEMA.into(),
        version: options.version.clone(),
        target: TargetInfo {
            name: about.name,
            kind: about.kind,
            capacity_bytes: about.capacity,
            block_bytes: about.block,
        },
        seed: options.seed,
        ended_early: (about.capacity < CAPACITY_MIN).then(|| "the target is too small".to_owned()),
        stages: Vec::new(),
    };
    if record.ended_early.is_some() {
        return record;
    }
    let mut session = Session::new(target, watch, options.seed);
    let mut known = Known::default();
    for info in STAGES {
        if !options.stages.is_empty() && !options.stages.iter().any(|name| name == info.name) {
            continue;
        }
        let mut stage = Stage {
            name: info.name.into(),
            title: info.title.into(),
            skipped: None,
            requests: 0,
            bytes_read: 0,
            bytes_written: 0,
            seconds: 0.0,
            verdicts: Vec::new(),
            notes: Vec::new(),
            figures: Vec::new(),
        };
        if info.destroys.is_some()
            && let Err(why) = session.target().writable()
        {
            stage.skipped = Some(why);
            record.stages.push(stage);
            continue;
        }
        session.begin(info.name);
        let began = session.target().now();
        let done = match info.name {
            "read-cache" => stages::read_cache(&mut session, options, &mut stage, &mut known),
            "map-cache" => stages::map_cache(&mut session, &mut stage, &mut known),
            "stripe" => stages::stripe(&mut session, &mut stage),
            "write-buffer" => stages::write_buffer(&mut session, options, &mut stage, &mut known),
            "sustained" => stages::sustained(&mut session, options, &mut stage, &known),
            "host-memory" => stages::host_memory(&mut session, options, &mut stage, &known),
            _ => unreachable!("every stage has its function"),
        };
        stage.seconds = session.target().now().saturating_sub(began).as_secs_f64();
        (stage.requests, stage.bytes_read, stage.bytes_written) =
            (session.sent.requests, session.sent.bytes_read, session.sent.bytes_written);
        let ended = match done {
            Ok(()) => None,
            Err(Stop::Cancelled) => Some("interrupted".to_owned()),
            Err(Stop::Failed(error)) => Some(error.to_string()),
        };
        if let Some(why) = &ended {
            stage.skipped = Some(format!("not finished: {why}"));
        }
        record.stages.push(stage);
        record.ended_early = ended;
        session.watch().stage_done(&record);
        if record.ended_early.is_some() {
            break;
        }
    }
    record
}
