//! Identity of a run: its determining inputs as text, and their digest, the name of its record.

use crate::Failure;
use crate::vary::Plan;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use tidewater_core::profile::Profile;
use tidewater_sim::run::precondition_text;

/// 32 hexadecimal digits of the BLAKE3 digest.
pub fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex()[..32].to_owned()
}

/// The same of a file.
///
/// # Errors
/// When it can't be read.
pub fn digest_of_file(path: &Path) -> Result<String, Failure> {
    let wrong = |error| Failure::usage(format_args!("{}: {}", path.display(), crate::reason(&error)));
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(std::fs::File::open(path).map_err(wrong)?).map_err(wrong)?;
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}

/// Digests of files, each read once.
#[derive(Default)]
pub struct Digests {
    of_files: HashMap<PathBuf, String>,
}

impl Digests {
    /// The digest of a trace or a job by its content; of what is no file, by its name: a bundled sample, a job's text.
    fn of(&mut self, path: &Path) -> Result<String, Failure> {
        if let Some(known) = self.of_files.get(path) {
            return Ok(known.clone());
        }
        let digest = if path.is_file() { digest_of_file(path)? } else { format!("named {}", path.display()) };
        self.of_files.insert(path.to_owned(), digest.clone());
        Ok(digest)
    }

    /// All that decides the outcome of a run, a line each.
    pub fn decided_by(&mut self, plan: &Plan, profile: Option<&Profile>, build: &str) -> Result<Vec<String>, Failure> {
        let (load, drive) = (&plan.load, &plan.drive);
        let mut lines = vec![format!("version {}", env!("CARGO_PKG_VERSION")), format!("build {build}")];
        match profile {
            Some(profile) => lines.extend(profile.settings().iter().map(|(key, value)| format!("set {key}={value}"))),
            // There is no such drive: what was asked for tells it from the others.
            None => lines.push(format!("asked {} {:?} {:?}", drive.profile.display(), drive.set, drive.capacity)),
        }
        lines.extend(crate::drive::outside(&drive.set).map(|policy| format!("policy {policy}")));
        for trace in &load.traces {
            lines.push(format!("trace {}", self.of(trace)?));
        }
        if let Some(job) = &load.job {
            lines.push(format!("job {}", self.of(Path::new(job))?));
        }
        lines.extend(load.synth.as_ref().map(|synth| format!("synth {synth:?}")));
        let reading = &load.reading;
        let mut option = |name: &str, value: Option<String>| lines.extend(value.map(|value| format!("{name} {value}")));
        option("format", reading.format.map(|format| format.name().to_owned()));
        option("columns", reading.columns.as_ref().map(ToString::to_string));
        option("slice", reading.slice.as_ref().map(ToString::to_string));
        option("device", reading.device.clone());
        option("skip-bad", reading.skip_bad.then(String::new));
        option("compact", reading.compact.then(String::new));
        option("repeat", load.repeat.map(|passes| passes.to_string()));
        option("queue-depth", load.queue_depth.map(|depth| depth.to_string()));
        option("speedup", load.speedup.map(|factor| factor.to_string()));
        option("wrap", load.wrap.then(String::new));
        option("power-cut", load.power_cut.map(|time| format!("{}ps", time.as_ps())));
        option("warm-up", (load.warm_up > 0).then(|| load.warm_up.to_string()));
        option("precondition", Some(precondition_text(drive.precondition)));
        option("seed", Some(drive.seed.to_string()));
        Ok(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::Sweep;
    use crate::{DriveSpec, LoadSpec, Setting};
    use tidewater_core::ftl::Precondition;

    fn name(change: impl FnOnce(&mut LoadSpec, &mut DriveSpec)) -> String {
        let mut load = LoadSpec { job: Some("rw=randwrite,size=1m".into()), ..LoadSpec::default() };
        let mut drive = DriveSpec {
            profile: "generic".into(),
            set: Vec::new(),
            capacity: None,
            precondition: Precondition::Fresh,
            seed: 1,
        };
        change(&mut load, &mut drive);
        let plan = Sweep::of(load, drive, Vec::new()).plans().unwrap().remove(0);
        let profile = plan.drive.prepare().unwrap().profile;
        digest(Digests::default().decided_by(&plan, Some(&profile), "b").unwrap().join("\n").as_bytes())
    }

    #[test]
    fn whatever_decides_a_run_changes_its_name() {
        let base = name(|_, _| {});
        assert_eq!((base.len(), base.clone()), (32, name(|_, _| {})));
        let set = |key: &str, value: &str| Setting { key: key.into(), value: value.into() };
        let changed = [
            name(|load, _| load.job = Some("rw=randread,size=1m".into())),
            name(|load, _| load.queue_depth = Some(4)),
            name(|load, _| load.wrap = true),
            name(|load, _| load.warm_up = 5),
            name(|load, _| load.power_cut = Some(tidewater_base::Duration::from_ns(5))),
            name(|_, drive| drive.seed = 2),
            name(|_, drive| drive.capacity = Some("1GiB".into())),
            name(|_, drive| drive.precondition = Precondition::Steady),
            name(|_, drive| drive.set.push(set("nand.channels", "2"))),
            name(|_, drive| drive.profile = "tlc-client".into()),
        ];
        let all: std::collections::BTreeSet<&String> = changed.iter().chain([&base]).collect();
        assert_eq!(all.len(), changed.len() + 1);
        // The same drive in other words is the same run.
        let default = tidewater_core::profile::Profile::generic().nand.channels.to_string();
        assert_eq!(base, name(|_, drive| drive.set.push(set("nand.channels", &default))));
    }

    #[test]
    fn a_trace_is_known_by_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.csv");
        std::fs::write(&path, "one").unwrap();
        let first = Digests::default().of(&path).unwrap();
        let moved = folder.path().join("b.csv");
        std::fs::rename(&path, &moved).unwrap();
        assert_eq!(Digests::default().of(&moved).unwrap(), first);
        std::fs::write(&moved, "two").unwrap();
        assert_ne!(Digests::default().of(&moved).unwrap(), first);
    }
}
