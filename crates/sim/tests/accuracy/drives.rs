//! Small drives, their runs, and the sums that their times are made of.

use tidewater_base::{Duration, Instant};
use tidewater_core::Device;
use tidewater_core::ftl::{Entry, Precondition};
use tidewater_core::profile::Profile;
use tidewater_report::Record;
use tidewater_sim::run::run_on;
use tidewater_sim::workload::{Op, Request, Source, SourceError};
use tidewater_sim::{Outcome, Pacing, RunOptions, run};
use tidewater_testkit::profile::with;

/// One die with one plane behind an idle bus, written through, without checkpoints and failures; all else as `generic`.
const ONE_DIE: &[&str] = &[
    "drive.capacity=128MiB",
    "nand.channels=1",
    "nand.ways=1",
    "nand.dies_per_way=1",
    "nand.planes=1",
    "nand.factory_bad_rate=0",
    "nand.program_fail_rate=0",
    "nand.erase_fail_rate=0",
    "buffer.write_policy=none",
    "ftl.checkpoint_interval=0",
];

/// One quiet die, changed by `settings`.
pub fn one_die(settings: &[&str]) -> Profile {
    with(with(Profile::generic(), ONE_DIE), settings)
}

/// A source over an iterator.
struct Requests<I>(I);

impl<I: Iterator<Item = Request>> Source for Requests<I> {
    fn next(&mut self) -> Option<Result<Request, SourceError>> {
        self.0.next().map(Ok)
    }
}

/// A request without an arrival time.
pub fn request(op: Op, offset: u64, length: u64) -> Request {
    Request { arrival: Instant::ZERO, op, offset, length, fua: false }
}

/// A run on a new drive with a past.
pub fn serve(
    profile: &Profile,
    past: Precondition,
    pacing: Pacing,
    requests: impl Iterator<Item = Request>,
) -> Outcome {
    let mut options = RunOptions { pacing, ..RunOptions::default() };
    options.device.precondition = past;
    run(profile, Requests(requests), options).expect("the run succeeds")
}

/// A run on a drive that is there, measured after `warmup` requests.
pub fn serve_on(device: Device, pacing: Pacing, warmup: u64, requests: impl Iterator<Item = Request>) -> Outcome {
    let options = RunOptions { pacing, warmup_requests: warmup, ..RunOptions::default() };
    run_on(device, Requests(requests), options).expect("the run succeeds")
}

/// The one latency that all requests of an operation had, in microseconds.
pub fn only_latency(record: &Record, op: Op) -> f64 {
    let latency = record.latency(op.name()).expect("the record has these latencies");
    assert!((latency.max - latency.min).abs() < 1e-5, "latencies differ: {} to {}", latency.min, latency.max);
    latency.mean
}

pub fn us(time: Duration) -> f64 {
    time.as_ps() as f64 * 1e-6
}

/// Time of some bytes of data on a channel's bus, out-of-band bytes included.
pub fn bus_us(profile: &Profile, data: u64) -> f64 {
    let nand = &profile.nand;
    let share = f64::from(nand.page_size + nand.oob_size) / f64::from(nand.page_size);
    data as f64 * share / nand.bus_rate as f64 * 1e6
}

/// Time of some bytes on the PCIe wire, framed in TLPs.
pub fn wire_us(profile: &Profile, data: u64) -> f64 {
    let link = &profile.link;
    let transfers: f64 = [2.5e9, 5e9, 8e9, 16e9, 32e9][link.generation as usize - 1];
    let code = if link.generation < 3 { 8.0 / 10.0 } else { 128.0 / 130.0 };
    let bytes_per_second = transfers * code / 8.0 * f64::from(link.lanes);
    let tlps = data.div_ceil(link.payload_max.into());
    (data + tlps * u64::from(link.tlp_overhead)) as f64 / bytes_per_second * 1e6
}

/// Time from the wire's first bit to the last byte's arrival.
pub fn link_us(profile: &Profile, data: u64) -> f64 {
    wire_us(profile, data) + us(profile.link.latency)
}

/// Cost of every command: its way through the pipeline, and its completion entry.
pub fn command_us(profile: &Profile) -> f64 {
    us(profile.host.command_time) + us(profile.host.completion_time)
}

/// Valid units of every superblock that holds any, in rising order.
pub fn valid_counts(device: &Device) -> Vec<u32> {
    let (map, layout) = (device.ftl().map(), device.ftl().layout());
    let mut valid = vec![0u32; layout.superblocks() as usize];
    for lpn in 0..map.units() {
        if let Entry::At(ppn) = map.get(lpn) {
            valid[layout.superblock_of(ppn) as usize] += 1;
        }
    }
    valid.retain(|&v| v > 0);
    valid.sort_unstable();
    valid
}
