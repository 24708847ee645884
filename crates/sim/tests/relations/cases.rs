//! Random drives and loads.

use crate::relations::ledger::Ledger;
use crate::relations::rig::set;
use tidewater_base::Rng;
use tidewater_core::buffer::POLICIES;
use tidewater_core::ftl::Precondition;
use tidewater_core::profile::{Mapping, Profile, WhenFull, builtin, names};
use tidewater_core::{Device, Options};
use tidewater_nand::Cell;
use tidewater_sim::run::precondition_text;
use tidewater_sim::workload::{JobSource, JobSpec};

/// Load of the host on a drive.
#[derive(Clone, Debug)]
pub struct Load {
    /// History of the drive.
    pub past: Precondition,
    /// Jobs that run at once, each as `--job` takes it.
    pub jobs: Vec<String>,
    /// Requests that each of them makes.
    pub requests: u64,
    /// Every write has Force Unit Access.
    pub fua: bool,
    /// A flush follows each write.
    pub flushed: bool,
    /// Seed of the jobs.
    pub seed: u64,
}

impl Load {
    /// One job with these keys, on a drive with this past.
    pub fn one(past: Precondition, job: &str, requests: u64) -> Load {
        Load { past, jobs: vec![job.into()], requests, fua: false, flushed: false, seed: 1 }
    }

    /// As a job file.
    fn text(&self) -> String {
        let section = |(i, job): (usize, &String)| {
            let keys = job.replace(',', "\n");
            let more = [("sync", self.fua), ("fsync=1", self.flushed)];
            let more: String = more.iter().filter(|(_, on)| *on).map(|(key, _)| format!("\n{key}")).collect();
            format!("[job{i}]\n{keys}\nnumber_ios={}{more}\n", self.requests)
        };
        self.jobs.iter().enumerate().map(section).collect()
    }

    /// Its requests, on a drive of so many bytes.
    ///
    /// # Panics
    /// When the job cannot be.
    pub fn source(&self, capacity: u64) -> JobSource {
        let spec = JobSpec::from_file("relations", &self.text()).unwrap_or_else(|e| panic!("{}: {e}", self.text()));
        spec.source(Some(capacity), self.seed).unwrap_or_else(|e| panic!("{}: {e}", self.text()))
    }
}

/// A drive and its load.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its number, which it is drawn from.
    pub number: u64,
    /// The built-in profile that it begins with.
    pub base: &'static str,
    /// Changes to the profile, `KEY=VALUE`.
    pub settings: Vec<String>,
    /// The drive.
    pub profile: Profile,
    /// The load.
    pub load: Load,
}

/// Drives that are drawn for a case until one can be, at most.
const DRAWS_MAX: u32 = 10_000;

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

fn chance(rng: &mut Rng, percent: u64) -> bool {
    rng.below(100) < percent
}

impl Case {
    /// The case of this number: the first drive that can be, of those that are drawn for it.
    pub fn draw(number: u64, requests: u64, ledger: &mut Ledger) -> Case {
        let mut rng = Rng::new(number, b"relations");
        // In turn, so that each of them is there even in a short run.
        let base = names().nth(number as usize % names().count()).expect("a built-in profile");
        let mut refusal = String::new();
        for _ in 0..DRAWS_MAX {
            let mut profile = builtin(base).expect("the profile is built in");
            let mut settings = Vec::new();
            for setting in drive(&mut rng, &profile) {
                let (key, value) = setting.split_once('=').expect("KEY=VALUE");
                if profile.set(key, value).is_ok() {
                    settings.push(setting);
                }
            }
            let load = load(&mut rng, &profile, requests, number);
            let options = Options { precondition: load.past, premap: true, ..Options::default() };
            let room = profile.host.queues * (profile.host.queue_entries - 1);
            let refused = Device::new(&profile, options).err().map(|error| error.to_string());
            let deep = load.source(profile.drive.capacity).iodepth() > room;
            if let Some(why) = refused.or(deep.then(|| "the queues are too short for the load".to_owned())) {
                ledger.refused += 1;
                refusal = why;
                continue;
            }
            let keys = ["buffer.write_policy", "ftl.mapping", "ftl.gc_stream"];
            let key = |key: &&str| format!("{key}={}", profile.get(key).expect("the key exists"));
            let slc = profile.slc.is_enabled().then(|| key(&"slc.when_full"));
            ledger.draw(keys.iter().map(key).chain(slc).chain([format!("profile={base}")]));
            return Case { number, base, settings, profile, load };
        }
        panic!("none of {DRAWS_MAX} drives from {base} can be: {refusal}");
    }

    /// The same load on a drive that is changed by `settings`. `None`: there can be no such drive.
    pub fn with(&self, settings: &[&str]) -> Option<Case> {
        let mut case = self.clone();
        if !set(&mut case.profile, settings) || case.profile.check().is_err() {
            return None;
        }
        case.settings.extend(settings.iter().map(|setting| (*setting).to_owned()));
        Some(case)
    }

    /// Command line that repeats the run.
    pub fn command_line(&self) -> String {
        let settings: String = self.settings.iter().map(|setting| format!(" --set '{setting}'")).collect();
        format!(
            "tidewater replay --profile {}{settings} --precondition {} --seed {} --job FILE with\n{}",
            self.base,
            precondition_text(self.load.past),
            self.load.seed,
            self.load.text()
        )
    }
}

/// A small drive of this profile: what is changed.
fn drive(rng: &mut Rng, of: &Profile) -> Vec<String> {
    let mut settings = vec![
        format!("drive.capacity={}MiB", pick(rng, &[16, 24, 32, 64])),
        "nand.blocks_per_plane=0".into(),
        format!("nand.channels={}", pick(rng, &[1, 1, 2, 4])),
        format!("nand.ways={}", pick(rng, &[1, 1, 2])),
        "nand.dies_per_way=1".into(),
        format!("nand.planes={}", pick(rng, &[1, 2])),
        format!("nand.pages_per_block={}", pick(rng, &[12, 24, 32, 48])),
        format!("buffer.write_size={}KiB", pick(rng, &[128, 512, 1024])),
        format!("buffer.read_size={}KiB", pick(rng, &[64, 256, 512])),
        "fast.log_size=1MiB".into(),
        // A ring that is on has to fit into that.
        format!("fast.size={}", of.fast.size.min(128 << 10)),
        "window.size=0".into(),
        "nand.factory_bad_rate=0".into(),
        "nand.program_fail_rate=0".into(),
        "nand.erase_fail_rate=0".into(),
        "ftl.log_blocks=0".into(),
        "ftl.log_write_points=0".into(),
        format!("ftl.over_provisioning={}%", pick(rng, &[7, 15, 28, 60])),
        format!("ftl.gc_start={}", pick(rng, &[3, 4, 6])),
        format!("ftl.gc_reserve={}", pick(rng, &[1, 2])),
    ];
    let mut some = |percent: u64, key: &str, values: &[&str]| {
        if chance(rng, percent) {
            settings.push(format!("{key}={}", pick(rng, values)));
        }
    };
    some(60, "buffer.write_policy", POLICIES);
    some(40, "buffer.write_watermark", &["0%", "50%", "100%"]);
    some(30, "buffer.read_policy", &["none", "lru"]);
    some(30, "ftl.gc_victim", &["greedy", "cost-benefit"]);
    some(40, "ftl.checkpoint_interval", &["0", "1", "4", "16", "128"]);
    some(30, "ftl.wear_gap", &["0", "2", "16"]);
    some(30, "flash.read_priority", &["true", "false"]);
    some(30, "flash.suspend", &["true", "false"]);
    some(30, "flash.programs_per_die", &["1", "2", "4"]);
    some(20, "host.outstanding_max", &["4", "32", "512"]);
    some(20, "host.transfer_max", &["16KiB", "128KiB"]);
    some(20, "nand.cache", &["true", "false"]);
    some(15, "ftl.mapping", &["page", "fast", "faster"]);
    let hybrid = settings.iter().any(|s| s == "ftl.mapping=fast" || s == "ftl.mapping=faster");
    let hybrid = hybrid || of.ftl.mapping != Mapping::Page && !settings.iter().any(|s| s == "ftl.mapping=page");
    // What asks for the page-mapped drive, at most one of them.
    match rng.below(10) {
        _ if hybrid => settings.extend(["slc.size=0".into(), "slc.dynamic=0%".into(), "ftl.map_memory=all".into()]),
        0..5 if of.nand.cell != Cell::Slc => {
            settings.extend([
                format!("slc.size={}KiB", pick(rng, &[0, 512, 1024, 2048, 4096])),
                format!("slc.dynamic={}%", pick(rng, &[0, 50, 100])),
                format!("slc.when_full={}", pick(rng, &["direct", "fold", "fold"])),
                format!("slc.fold_after={}", pick(rng, &["500us", "5ms", "1s"])),
            ]);
        }
        5..8 => settings.extend(["slc.size=0".into(), "slc.dynamic=0%".into(), "ftl.gc_stream=false".into()]),
        8 => settings.extend(["slc.size=1MiB".into(), "ftl.map_memory=dram".into(), "ftl.map_size=32KiB".into()]),
        _ => settings.push("slc.size=1MiB".into()),
    }
    if settings.iter().any(|setting| setting == "buffer.write_policy=cbm") {
        settings.push(format!("buffer.cbm_merge={}", pick(rng, &["always", "run", "whole", "off"])));
        settings.push(format!("buffer.cbm_runs={}", pick(rng, &["all", "block"])));
        settings.push(format!("buffer.cbm_keep={}", pick(rng, &["true", "false"])));
        settings.push(format!("buffer.cbm_padding={}", pick(rng, &["true", "false"])));
        settings.push(format!("buffer.cbm_age={}", pick(rng, &["0", "0.25", "2"])));
    }
    if chance(rng, 10) {
        settings.extend(["nand.program_fail_rate=3e-5".into(), "ftl.spare_blocks=15%".into()]);
    }
    settings
}

fn load(rng: &mut Rng, of: &Profile, requests: u64, seed: u64) -> Load {
    let unit = u64::from(of.ftl.unit_size) >> 10;
    let past = match rng.below(6) {
        0 => Precondition::Fresh,
        1 => Precondition::Filled(0.5),
        2 | 3 => Precondition::Filled(1.0),
        _ => Precondition::Steady,
    };
    let job = |rng: &mut Rng, kinds: &[&str]| {
        let mut job = format!(
            "rw={},bs={}k,iodepth={}",
            pick(rng, kinds),
            unit * pick(rng, &[1, 1, 1, 2, 4, 16]),
            pick(rng, &[1, 4, 16, 64])
        );
        if chance(rng, 50) {
            job += ",norandommap=1";
        }
        if chance(rng, 20) {
            job += ",random_distribution=zipf:1.1";
        }
        if chance(rng, 50) {
            job += &format!(",rwmixread={}", pick(rng, &[10, 30, 70]));
        }
        job
    };
    // Where the host waits for folding, what counts is whether it ever ends: many writes to a drive that is full.
    let folds = of.slc.is_enabled() && of.slc.when_full == WhenFull::Fold;
    let (kinds, past): (&[&str], _) = match folds {
        true => (&["randwrite", "randwrite", "randrw", "write"], pick(rng, &[Precondition::Steady, past])),
        false => (&["randwrite", "randwrite", "randwrite", "randrw", "randrw", "write", "rw", "randread"], past),
    };
    let requests = if folds { 4 * requests } else { requests };
    let mut jobs = vec![job(rng, kinds)];
    if chance(rng, 25) {
        jobs.push(job(rng, &["randtrim", "randread", "trim"]));
    }
    let requests = requests / 4 + rng.below(requests * 3 / 4);
    let (fua, flushed) = match rng.below(8) {
        0 | 1 => (true, false),
        2 => (false, true),
        _ => (false, false),
    };
    if flushed {
        jobs.iter_mut().for_each(|job| *job += ",iodepth=1");
    }
    Load { past, jobs, requests, fua, flushed, seed }
}
