//! `tidewater probe`: caches and layout of a drive, inferred from timing.

mod disk;

use crate::args::Probe;
use crate::failure::{Failure, Status, printable, reason};
use crate::interrupt::{self, Running};
use crate::output::{self, Delivery, Target, distinct};
use crate::progress::Bar;
use crate::text::width;
use disk::Disk;
use std::path::Path;
use tidewater_core::ftl::Precondition;
use tidewater_probe::{CAPACITY_MIN, Options, STAGES, StageInfo, Target as _, Watch};
use tidewater_report::probe::{ProbeRecord, page, summary};
use tidewater_sim::probe::SimulatedDrive;
use tidewater_study as study;

/// Usable bytes of a simulated drive whose profile leaves its size to the load.
const CAPACITY: u64 = 8 << 30;

/// `tidewater probe`.
///
/// # Errors
/// A target that cannot be probed, one that would lose data, and results that cannot be written.
pub fn command(given: &Probe) -> Result<(), Failure> {
    let json = Target::maybe(given.json.as_ref())?;
    let report = Target::page(given.report.as_ref())?;
    let targets = [json.as_ref(), report.as_ref()];
    distinct(&targets, Some(&given.target))?;
    let destroys = given.destroy.is_some();
    if !given.stages.is_empty() && STAGES.iter().all(|stage| stage.repeats || !asked(given, stage)) {
        return Err(Failure::usage("the stage host-memory repeats other stages: alone it has nothing to measure")
            .help("give read-cache, map-cache or write-buffer with it"));
    }
    let is_drive = is_real(&given.target)?;
    if !is_drive && destroys {
        return Err(Failure::usage("a simulated drive has no data to lose: --destroy is for files and block devices"));
    }
    let mut target: Box<dyn tidewater_probe::Target> = if is_drive {
        no_profile_flags(given)?;
        Box::new(Disk::open(&given.target, destroys)?)
    } else {
        Box::new(simulated(given)?)
    };
    let options = Options {
        seed: given.seed,
        stages: given.stages.clone(),
        version: env!("CARGO_PKG_VERSION").into(),
        largest_cache: given.largest_cache,
    };
    let silent = targets.iter().flatten().any(|target| target.is_stdout());
    let stages: Vec<&StageInfo> = STAGES.iter().filter(|one| asked(given, one)).collect();
    let shown = if silent { Ok(()) } else { output::print(&announcement(target.as_ref(), &stages)) };
    // Without a reader and without a file, there is nothing to probe for.
    if given.dry_run || shown.is_err() && targets.iter().flatten().next().is_none() {
        return shown;
    }
    let _running = Running::begin();
    let mut watch =
        OnTerminal { stages: &stages, bar: None, json: json.as_ref().filter(|to| !to.is_stdout()), failed: false };
    let record = tidewater_probe::run(target.as_mut(), &options, &mut watch);
    watch.bar = None;
    let text = summary(&record, width()).trim_end().to_owned() + "\n";
    let of = |what: &str| format!("{what:<7} ");
    let mut files: Vec<Delivery<'_>> = Vec::new();
    if let Some(to) = &json {
        files.push((of("json"), to, Box::new(|| to.write(&record.to_json()))));
    }
    if let Some(to) = &report {
        files.push((of("report"), to, Box::new(|| to.write(&page(&record)))));
    }
    match output::deliver(&text, files) {
        // A reader that went away wants no more text; the files are there all the same.
        Err(failure) if failure.status != Status::Done => return Err(failure),
        _ => {}
    }
    match record.ended_early {
        None => Ok(()),
        Some(_) if interrupt::requested() => Err(Failure {
            message: "interrupted: findings so far were written".into(),
            help: None,
            status: Status::Interrupted,
        }),
        Some(why) => Err(Failure::run(format_args!("the probe ended early: {why}"))),
    }
}

fn asked(given: &Probe, stage: &StageInfo) -> bool {
    given.stages.is_empty() || given.stages.iter().any(|name| name == stage.name)
}

/// Whether a target is a file or a device, and not a profile: a profile is a name or a TOML file.
///
/// # Errors
/// When it is the path of neither.
fn is_real(target: &Path) -> Result<bool, Failure> {
    let is_toml = target.extension().is_some_and(|end| end == "toml");
    let is_name = target.to_str().is_some_and(|name| tidewater_core::profile::builtin(name).is_some());
    if is_toml || is_name {
        return Ok(false);
    }
    let is_path = target.components().count() > 1 || target.extension().is_some();
    match std::fs::metadata(target) {
        Ok(_) => Ok(true),
        Err(error) if is_path => {
            let name = printable(&target.display().to_string());
            Err(Failure::usage(format_args!("{name}: {}", reason(&error)))
                .help("give a block device, a file, a name from `tidewater profile list`, or a profile's TOML file"))
        }
        Err(_) => Ok(false),
    }
}

/// Flags that change a profile mean nothing on a real drive.
fn no_profile_flags(given: &Probe) -> Result<(), Failure> {
    if given.set.is_empty() && given.capacity.is_none() && given.precondition.is_none() {
        return Ok(());
    }
    Err(Failure::usage(format_args!(
        "{} is a file or a device: --set, --capacity and --precondition are for profiles",
        given.target.display()
    )))
}

fn simulated(given: &Probe) -> Result<SimulatedDrive, Failure> {
    let mut drive = study::prepare(&given.target, &study::settings(&given.set, given.capacity.as_ref())?)?;
    let profile = &mut drive.profile;
    // The document says no more of the drive than its name: with what makes it the drive that was probed.
    let name = match &drive.changed[..] {
        [] => drive.name,
        changed => format!("{} with {}", drive.name, changed.join(", ")),
    };
    if profile.drive.capacity == 0 && profile.nand.blocks_per_plane == 0 {
        profile.drive.capacity = CAPACITY;
    }
    let options = tidewater_core::Options {
        seed: given.seed,
        precondition: given.precondition.unwrap_or(Precondition::Filled(1.0)),
        ..tidewater_core::Options::default()
    };
    let drive = SimulatedDrive::new(profile, options).map_err(Failure::refused)?.called(name);
    if drive.about().capacity < CAPACITY_MIN {
        return Err(too_small(&given.target));
    }
    Ok(drive)
}

fn too_small(target: &Path) -> Failure {
    let least = tidewater_base::units::bytes(CAPACITY_MIN);
    Failure::usage(format_args!("{}: too small to probe", printable(&target.display().to_string())))
        .help(format_args!("give at least {least}"))
}

/// List of the stages, printed before the first begins.
fn announcement(target: &dyn tidewater_probe::Target, stages: &[&StageInfo]) -> String {
    let about = target.about();
    let mut text =
        format!("{}: {} of {}\n", printable(&about.name), about.kind, tidewater_base::units::bytes(about.capacity));
    let refusal = target.writable().err();
    for stage in stages {
        let what = match (stage.destroys, &refusal) {
            (None, _) if stage.repeats => "as the stages above that it repeats".to_owned(),
            (None, _) => "reads".to_owned(),
            (Some(what), None) => what.to_owned(),
            (Some(_), Some(why)) => format!("left out: {why}"),
        };
        text += &format!("  {:<14} {}: {what}\n", stage.name, stage.title);
    }
    text + "\n"
}

/// The bar of one stage: its name, what is shown, and whom to tell the share that is done.
struct StageBar {
    stage: String,
    _bar: Bar,
    tell: Box<dyn FnMut(f64)>,
}

/// Progress as a bar, and the result file after each stage.
struct OnTerminal<'a> {
    stages: &'a [&'a StageInfo],
    bar: Option<StageBar>,
    json: Option<&'a Target>,
    /// It could not be written, which was said.
    failed: bool,
}

impl Watch for OnTerminal<'_> {
    fn progress(&mut self, stage: &str, share: f64) {
        if self.bar.as_ref().is_none_or(|bar| bar.stage != stage) {
            self.bar = None;
            let number = self.stages.iter().position(|one| one.name == stage).map_or(0, |at| at + 1);
            let bar = Bar::new(&format!("{number}/{} {stage}", self.stages.len()));
            let tell = Box::new(bar.share());
            self.bar = Some(StageBar { stage: stage.to_owned(), _bar: bar, tell });
        }
        if let Some(bar) = &mut self.bar {
            (bar.tell)(share);
        }
    }

    fn cancelled(&self) -> bool {
        interrupt::requested()
    }

    fn stage_done(&mut self, record: &ProbeRecord) {
        // It is written again after the last stage: one that cannot be written does not end a long probe.
        if let Some(Err(failure)) = self.json.map(|to| to.write(&record.to_json()))
            && !std::mem::replace(&mut self.failed, true)
        {
            self.bar = None;
            output::tell(&format!("note: {}; the probe continues\n", printable(&failure.message)));
        }
    }
}
