//! The grid of a study: every combination of values is a run.

use crate::drive::{DriveSpec, meant};
use crate::load::LoadSpec;
use crate::{Failure, Setting, Variation, factor};
use tidewater_core::profile;
use tidewater_sim::run::parse_precondition;

/// Options that can be varied, besides the keys of a profile.
pub const OPTIONS: [&str; 8] =
    ["profile", "trace", "job", "queue-depth", "speedup", "precondition", "power-cut", "seed"];

/// One run of a study.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The varied values, as `KEY=VALUE`, separated by blanks.
    pub label: String,
    /// The varied keys and their values, in the order of the sweep.
    pub point: Vec<Setting>,
    /// Its load.
    pub load: LoadSpec,
    /// Its drive.
    pub drive: DriveSpec,
}

impl Plan {
    /// A failure of this run, with the run's name, unless it names the varied setting itself.
    pub fn within(&self, failure: Failure) -> Failure {
        for Setting { key, value } in &self.drive.set {
            let Some((section, name)) = key.rsplit_once('.') else { continue };
            if let Some(why) = failure.message.strip_prefix(&format!("[{section}] {name}: ")) {
                return Failure { message: format!("{key}={value}: {why}"), ..failure };
            }
        }
        if self.label.is_empty() {
            return failure;
        }
        failure.within(&self.label)
    }
}

/// Every combination; the last variation changes fastest.
///
/// # Errors
/// When a key cannot be varied.
pub(crate) fn combinations(load: &LoadSpec, drive: &DriveSpec, all: &[Variation]) -> Result<Vec<Plan>, Failure> {
    let vary_names = |key: &str| all.iter().any(|vary| vary.key == key);
    for (i, vary) in all.iter().enumerate() {
        if all[..i].iter().any(|other| other.key == vary.key) {
            return Err(Failure::usage(format_args!("--vary {} was given twice", vary.key))
                .help(format_args!("give all its values at once: --vary {}=V1,V2,...", vary.key)));
        }
    }
    for vary in all {
        if let Some(flag) = given_besides(load, drive, &vary.key) {
            return Err(Failure::usage(format_args!("{} is varied, and given by {flag} too", vary.key))
                .help("leave one of them out"));
        }
    }
    // As for one run: --queue-depth ignores the times that --speedup divides.
    let asked = |key: &str, given: bool| given || vary_names(key);
    if asked("queue-depth", load.queue_depth.is_some()) && asked("speedup", load.speedup.is_some()) {
        return Err(Failure::usage("a queue depth and a speedup cannot be used together, neither given nor varied")
            .help("a queue depth ignores the times that a speedup divides: leave one of them out"));
    }
    let first = Plan { label: String::new(), point: Vec::new(), load: load.clone(), drive: drive.clone() };
    all.iter().try_fold(vec![first], |plans, vary| {
        let mut more = Vec::new();
        // Side by side, full keys are too long for a heading; where two end alike, both are given in full.
        let short = vary.key.rsplit('.').next().unwrap_or_default();
        let alike = all.iter().filter(|other| other.key.rsplit('.').next() == Some(short)).count() > 1;
        let name = if alike { vary.key.as_str() } else { short };
        let several = all.len() > 1;
        for plan in plans {
            for value in &vary.values {
                // Of several, a word speaks for itself.
                let word =
                    vary.key == "profile" || several && !alike && !value.starts_with(|c: char| c.is_ascii_digit());
                let label = if word { value.clone() } else { format!("{name}={value}") };
                more.push(varied(&plan, vary, &label, value)?);
            }
        }
        Ok(more)
    })
}

/// The option that gives one value to what is varied, if one does: all runs would have that value, or none.
fn given_besides(load: &LoadSpec, drive: &DriveSpec, key: &str) -> Option<&'static str> {
    let options = [
        ("trace", !load.traces.is_empty() || load.job.is_some(), "--trace or --job"),
        ("job", !load.traces.is_empty() || load.job.is_some(), "--trace or --job"),
        ("queue-depth", load.queue_depth.is_some(), "--queue-depth"),
        ("speedup", load.speedup.is_some(), "--speedup"),
        ("power-cut", load.power_cut.is_some(), "--power-cut"),
        ("drive.capacity", drive.capacity.is_some(), "--capacity"),
        (key, drive.set.iter().any(|set| set.key == key), "--set"),
    ];
    options.into_iter().find(|(name, is_given, _)| *name == key && *is_given).map(|(.., flag)| flag)
}

/// The plan with one more key set, which its label calls `label`.
fn varied(plan: &Plan, vary: &Variation, label: &str, value: &str) -> Result<Plan, Failure> {
    let mut plan = plan.clone();
    let key = vary.key.as_str();
    let gap = if plan.label.is_empty() { "" } else { " " };
    plan.label = format!("{}{gap}{label}", plan.label);
    plan.point.push(Setting { key: key.into(), value: value.into() });
    let wrong = |expected: &str| Failure::usage(format_args!("--vary {key}: expected {expected}, found `{value}`"));
    match key {
        "profile" => plan.drive.profile = value.into(),
        "trace" => plan.load.traces = vec![value.into()],
        "job" => plan.load.job = Some(value.into()),
        "queue-depth" => {
            let depth = value.parse().ok().filter(|depth| (1..=65_535).contains(depth));
            plan.load.queue_depth = Some(depth.ok_or_else(|| wrong("1 to 65535"))?);
        }
        "speedup" => {
            plan.load.speedup = Some(factor(value).map_err(|_| wrong("a number above 0"))?);
        }
        "precondition" => {
            plan.drive.precondition =
                parse_precondition(value).map_err(|error| Failure::usage(format_args!("--vary {key}: {error}")))?;
        }
        "power-cut" => {
            let time = tidewater_base::units::parse_duration(value).ok().filter(|time| !time.is_zero());
            plan.load.power_cut = Some(time.ok_or_else(|| wrong("a time above 0 with its unit, as in 2s"))?);
        }
        "seed" => plan.drive.seed = value.parse().map_err(|_| wrong("a whole number"))?,
        // A key of the profile, or one that the profile will refuse.
        _ if key.contains('.') => plan.drive.set.push(Setting { key: key.into(), value: value.into() }),
        _ => {
            let failure = Failure::usage(format_args!("--vary {key}: there is no such key"));
            let meant = meant(key, OPTIONS.into_iter()).map(str::to_owned);
            return Err(match meant.or_else(|| profile::suggestion(key)) {
                Some(meant) => failure.help(format_args!("did you mean `{meant}`?")),
                None => failure.help(format_args!(
                    "give a key of the profile, such as nand.channels, or one of {}",
                    OPTIONS.join(", ")
                )),
            });
        }
    }
    Ok(plan)
}
