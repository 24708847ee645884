//! The same seed and inputs give the same record, less real time: on two runs, on any machine, at any optimization
//! level.
//!
//! The figures of three small runs are committed in `determinism/`, with a checksum over the whole record. Whatever
//! profile the tests are built with, debug or release, is held to them. A change of the firmware's behaviour changes
//! them: `UPDATE_GOLDEN=1 cargo test -p tidewater-sim --test all determinism` writes them anew, for a look at the
//! difference.

use std::fmt::Write as _;
use std::path::Path;

use tidewater_base::checksum::crc32c;
use tidewater_core::ftl::Precondition;
use tidewater_core::profile::{Profile, builtin};
use tidewater_report::Record;
use tidewater_sim::workload::JobSpec;
use tidewater_sim::{Pacing, RunOptions, run};

/// Parameters of a run.
struct Case {
    name: &'static str,
    profile: &'static str,
    settings: &'static [(&'static str, &'static str)],
    job: &'static str,
    past: Precondition,
    open_loop: bool,
}

const CASES: &[Case] = &[
    // Collection, suspension, both buffers.
    Case {
        name: "collecting",
        profile: "generic",
        settings: &[
            ("drive.capacity", "64MiB"),
            ("nand.channels", "2"),
            ("nand.ways", "2"),
            ("nand.pages_per_block", "32"),
            ("buffer.write_size", "512KiB"),
            ("buffer.read_policy", "lru"),
            ("buffer.read_size", "512KiB"),
        ],
        job: "rw=randrw,rwmixread=40,bs=4k,iodepth=16,size=64m,number_ios=20000,random_distribution=zipf:0.9,\
              norandommap=1,fsync=500",
        past: Precondition::Steady,
        open_loop: false,
    },
    // Everything that is random in the medium: bit errors, retries, blocks that fail.
    Case {
        name: "worn",
        profile: "tiny",
        settings: &[
            ("nand.endurance", "100"),
            ("nand.rber_fresh", "3e-3"),
            ("nand.rber_worn", "9e-3"),
            ("nand.program_fail_rate", "1e-4"),
            ("nand.erase_fail_rate", "1e-3"),
        ],
        job: "rw=randrw,rwmixread=50,bssplit=512/20:4k/60:64k/20,iodepth=8,size=2m,number_ios=6000,norandommap=1",
        past: Precondition::Filled(0.8),
        open_loop: false,
    },
    // Arrivals in time.
    Case {
        name: "paced",
        profile: "tlc-client",
        settings: &[("drive.capacity", "128MiB")],
        job: "rw=randrw,rwmixread=70,bs=8k,rate_iops=20000,size=128m,number_ios=5000",
        past: Precondition::Filled(1.0),
        open_loop: true,
    },
];

fn record(case: &Case, seed: u64) -> Record {
    let mut profile: Profile = builtin(case.profile).expect("a built-in profile");
    for (key, value) in case.settings {
        profile.set(key, value).unwrap_or_else(|e| panic!("{}: {e}", case.name));
    }
    let source = JobSpec::from_inline(case.job).and_then(|job| job.source(None, seed));
    let source = source.unwrap_or_else(|e| panic!("{}: {e}", case.name));
    let pacing = if case.open_loop { Pacing::Arrival } else { Pacing::Depth(source.iodepth()) };
    let mut options = RunOptions { pacing, ..RunOptions::default() };
    options.device.precondition = case.past;
    options.device.seed = seed;
    let outcome = run(&profile, source, options).unwrap_or_else(|e| panic!("{}: {e}", case.name));
    assert_eq!(outcome.device.outstanding(), 0, "{}", outcome.device.describe_outstanding());
    outcome.record.without_wall_time()
}

/// The figures that say where a difference lies, and a checksum over all that is measured.
fn golden(record: &Record) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let written = writeln!(text, "{name}: {value}");
        written.expect("a string can be written");
    };
    // Settings, versions and words may change without a change of behaviour.
    let measured = Record {
        profile: Default::default(),
        tool_version: String::new(),
        warnings: Vec::new(),
        memory: Vec::new(),
        ..record.clone()
    };
    line("checksum", &format_args!("{:08x}", crc32c(measured.to_json().as_bytes())));
    line("requests", &record.requests);
    line("commands", &record.commands);
    line("commands_failed", &record.commands_failed);
    line("simulated_seconds", &record.simulated_seconds);
    line("timing_events", &record.timing_events);
    line("write_amplification", &record.write_amplification);
    line("erases", &record.erases);
    line("collections", &record.collections);
    line("suspends", &record.suspends);
    line("read_retries", &record.read_retries);
    line("uncorrectable", &record.uncorrectable);
    line("write_buffer.hit_ratio", &record.write_buffer.hit_ratio);
    line("read_cache.hit_ratio", &record.read_cache.hit_ratio);
    line("wear.stddev", &record.wear.stddev);
    for (operation, latency) in &record.latency_us {
        line(&format!("latency_us.{operation}.mean"), &latency.mean);
        line(&format!("latency_us.{operation}.p999"), &latency.p999);
        line(&format!("latency_us.{operation}.max"), &latency.max);
    }
    text
}

#[test]
fn two_runs_give_the_same_record() {
    for case in CASES {
        assert_eq!(record(case, 7), record(case, 7), "{}", case.name);
        assert_ne!(record(case, 7), record(case, 8), "{}: another seed is another run", case.name);
    }
}

#[test]
fn every_build_gives_the_committed_record() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/determinism");
    for case in CASES {
        let (path, found) = (folder.join(case.name).with_extension("txt"), golden(&record(case, 7)));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(&folder)
                .and_then(|()| std::fs::write(&path, &found))
                .expect("the checkout can be written");
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(
            found, expected,
            "{}: behaviour has changed, or depends on the build. If the change is meant: UPDATE_GOLDEN=1 cargo test -p \
             tidewater-sim --test all determinism, and look at the difference",
            case.name
        );
    }
}
