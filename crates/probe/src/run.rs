//! The stages of a probe, one after the other, and what is written down after each.

use crate::read_cache;
use crate::session::{Session, Stop};
use crate::target::Target;
use tidewater_report::experiment::{Figure, Form, Point, Series};
use tidewater_report::probe::{Answer, ProbeRecord, SCHEMA, Stage, TargetInfo, Verdict, ask};

/// What a probe is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Seeds every random choice.
    pub seed: u64,
    /// The stages that run, by name; empty: all that the target allows.
    pub stages: Vec<String>,
    /// The version that the record names.
    pub version: String,
    /// The largest cache or buffer that is looked for, in bytes. The paper fills 512 MB, the most that its drives may borrow.
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
    /// What it does to the data on the drive; `None`: nothing, it only reads.
    pub destroys: Option<&'static str>,
}

/// All stages, in the order in which they run: what only reads goes first.
pub const STAGES: &[StageInfo] =
    &[StageInfo { name: "read-cache", title: "Data that is read again without flash", destroys: None }];

/// Who looks on.
pub trait Watch {
    /// A stage has come so far, 0 to 1.
    fn progress(&mut self, stage: &str, share: f64);
    /// Whether the probe should end; asked often.
    fn cancelled(&self) -> bool;
    /// A stage has ended: the record so far.
    fn stage_done(&mut self, record: &ProbeRecord);
}

/// Unwatched that nobody looks at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn progress(&mut self, _: &str, _: f64) {}

    fn cancelled(&self) -> bool {
        false
    }

    fn stage_done(&mut self, _: &ProbeRecord) {}
}

/// Probes `target`. What is known when the target fails, or when somebody asks for the end, is in the record, which then says
/// so.
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
        ended_early: None,
        stages: Vec::new(),
    };
    let mut session = Session::new(target, watch, options.seed);
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
        session.begin(info.name);
        let began = session.target().now();
        let done = match info.name {
            "read-cache" => read_cache_stage(&mut session, options, &mut stage),
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

fn read_cache_stage(session: &mut Session<'_>, options: &Options, stage: &mut Stage) -> Result<(), Stop> {
    let found = read_cache::measure(session, options.largest_cache)?;
    stage.verdicts.push(read_cache_verdict(&found));
    if !found.trials.is_empty() {
        stage.figures.push(read_figure(&found.trials));
    }
    Ok(())
}

fn read_cache_verdict(found: &read_cache::Found) -> Verdict {
    let us = |seconds: f64| format!("{:.1} us", seconds * 1e6);
    let mut verdict = Verdict {
        what: ask::READ_CACHE.into(),
        answer: Answer::CannotTell,
        bytes: None,
        range_bytes: None,
        place: None,
        confidence: found.confidence,
        because: String::new(),
    };
    match (found.bracket, &found.cannot) {
        (Some((low, high)), _) => {
            verdict.answer = Answer::Found;
            verdict.bytes = Some(low);
            verdict.range_bytes = Some([low, high]);
            verdict.because = format!(
                "{} KiB that were read are found again, {} KiB are not; a page takes {} when it is found and {} from flash",
                low >> 10,
                high >> 10,
                us(found.hit),
                us(found.miss)
            );
        }
        (None, Some(why)) => {
            verdict.confidence = 0.0;
            verdict.because.clone_from(why);
        }
        (None, None) if found.confidence > 0.8 => {
            verdict.answer = Answer::Absent;
            verdict.because = format!(
                "a page that was just read takes as long as before: {} against {}",
                us(found.hit),
                us(found.miss)
            );
        }
        (None, None) => {
            verdict.confidence = 0.0;
            verdict.because = format!(
                "a page that was just read takes {} against {}, which could be chance",
                us(found.hit),
                us(found.miss)
            );
        }
    }
    verdict
}

/// The paper's figure 5: the first and the second pass against the size that is read.
fn read_figure(trials: &[read_cache::Trial]) -> Figure {
    let mut sorted: Vec<_> = trials.to_vec();
    sorted.sort_by_key(|trial| trial.bytes);
    let series = |name: &str, y: fn(&read_cache::Trial) -> f64| Series {
        name: name.into(),
        from_paper: false,
        points: sorted
            .chunk_by(|a, b| a.bytes == b.bytes)
            .map(|same| Point {
                x: same[0].bytes as f64 / 1024.0,
                y: crate::stat::median(&same.iter().map(y).collect::<Vec<_>>()) * 1e6,
                spread: None,
            })
            .collect(),
    };
    Figure {
        title: "Read, and read again".into(),
        form: Form::Lines,
        x_label: "KiB that are read".into(),
        y_label: "us for a page, median".into(),
        x_log: true,
        y_log: false,
        series: vec![series("first pass", |trial| trial.first), series("second pass", |trial| trial.again)],
    }
}
