//! Every trace replays on the default drive, from its first request to its last completion.

use std::path::PathBuf;

use tidewater_core::profile::Profile;
use tidewater_report::Record;
use tidewater_sim::run::{Pacing, RunOptions, run};
use tidewater_sim::trace::{Format, Input, Options, Trace, samples};
use tidewater_sim::workload::Source;

fn replay(input: &Input, format: Format, pacing: Pacing) -> Record {
    // Thousands of volumes, each at its full size, make a drive larger than 32-bit map entries reach.
    let options = Options { format: Some(format), compact: true, ..Options::default() };
    let trace = Trace::open(input, &options).unwrap_or_else(|error| panic!("{error}"));
    let (expected, extent) = (trace.expected_requests().unwrap(), trace.extent().unwrap());
    let outcome = run(&Profile::generic(), trace, RunOptions { pacing, ..RunOptions::default() })
        .unwrap_or_else(|error| panic!("{}: {error}", input.name()));
    let record = outcome.record;
    assert_eq!(outcome.device.outstanding(), 0, "{}", input.name());
    assert_eq!((record.requests, record.commands_failed, record.partial), (expected, 0, false), "{}", input.name());
    assert!(record.capacity_bytes >= extent && record.capacity_bytes < extent + 4_096, "{}", input.name());
    assert_eq!(record.latency_us["all"].count, expected);
    assert!(record.latency_us.values().all(|l| l.min > 0.0 && l.min <= l.p50 && l.p999 <= l.max), "{}", input.name());
    record
}

#[test]
fn every_sample_replays_in_both_loops() {
    for (name, format, bytes) in samples::FORMATS {
        let input = Input::from_bytes(name, bytes);
        let open = replay(&input, *format, Pacing::Arrival);
        let closed = replay(&input, *format, Pacing::Depth(1));
        assert_eq!(open.requests_by_operation, closed.requests_by_operation, "{name}");
        assert_eq!((open.bytes_read, open.bytes_written), (closed.bytes_read, closed.bytes_written), "{name}");
    }
}

#[test]
fn every_real_trace_replays() {
    let folder = match std::env::var_os("TIDEWATER_TRACES") {
        Some(folder) => PathBuf::from(folder),
        None => [env!("CARGO_MANIFEST_DIR"), "..", "..", "..", "shared", "traces"].iter().collect(),
    };
    // The formats that content does not tell apart are named.
    let named = |name: &str| match name {
        n if n.contains(".ssdsim") => Some(Format::Ssdsim),
        n if n.contains(".flashsim") => Some(Format::Flashsim),
        n if n.contains("64B.mqsim") => Some(Format::Mqsim64),
        n if n.contains("mqsim_") => Some(Format::Mqsim),
        n if n.contains("disksim") => Some(Format::Disksim),
        n if n.starts_with("tencent") => Some(Format::Tencent),
        _ => None,
    };
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    files.retain(|path| path.extension().is_some_and(|e| e == "zst"));
    files.sort();
    if files.is_empty() {
        println!("SKIPPED (17): no traces in {}", folder.display());
        return;
    }
    for path in &files {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let input = Input::Path(path.clone());
        let format = named(&name).unwrap_or_else(|| {
            Trace::open(&input, &Options { scan: false, ..Options::default() })
                .unwrap_or_else(|e| panic!("{e}"))
                .format()
        });
        let record = replay(&input, format, Pacing::Arrival);
        let all = &record.latency_us["all"];
        println!(
            "{name}: {} requests, {:.1} s simulated, {:.2} s real, mean {:.1} us, p99.9 {:.1} us",
            record.requests, record.simulated_seconds, record.wall_seconds, all.mean, all.p999
        );
    }
    println!("{} traces replayed", files.len());
}
