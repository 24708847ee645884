//! The keys of the fast side: what a log does when each is turned.

use tidewater_base::{Duration, Instant};
use tidewater_core::device::{Device, Input, Options};
use tidewater_core::drive::{VirtualClock, drive};
use tidewater_core::fast::{Content, bar};
use tidewater_core::profile::Profile;
use tidewater_sim::host::{Appender, Attached, BlockWrites, client_of};
use tidewater_sim::pcie::Mapping;
use tidewater_testkit::profile::{tiny, with};

/// The keys that [`every_key_of_the_fast_side_does_what_it_says`] turns.
pub const KEYS: &[(&str, Knob)] = &[
    ("fast.size", Knob { base: &[], to: "64KiB", measure: bandwidth, rises: true }),
    (
        "fast.memory",
        Knob {
            base: &["memory.slow.kind=sram", "memory.slow.size=64KiB", "memory.slow.bandwidth=20MB/s"],
            to: "slow",
            measure: latency,
            rises: true,
        },
    ),
    ("fast.queue_size", Knob { base: &[], to: "256", measure: latency, rises: true }),
    (
        "fast.queue_memory",
        Knob {
            base: &["memory.slow.kind=sram", "memory.slow.size=64KiB", "memory.slow.bandwidth=20MB/s"],
            to: "slow",
            measure: latency,
            rises: true,
        },
    ),
    ("fast.functions", Knob { base: &["memory.sram.size=256KiB"], to: "2", measure: functions, rises: true }),
    ("fast.lanes", Knob { base: &[], to: "2", measure: lanes, rises: true }),
    ("fast.log_size", Knob { base: &["fast.on_wrap=wait-for-trim"], to: "512KiB", measure: taken, rises: true }),
    ("fast.partial_after", Knob { base: &[], to: "5ms", measure: time_to_flash, rises: true }),
    ("fast.release", Knob { base: &["nand.bus_rate=400MB/s"], to: "transferred", measure: bandwidth, rises: true }),
    (
        "fast.priority",
        Knob { base: &["nand.cache=true"], to: "conventional", measure: bandwidth_beside_blocks, rises: false },
    ),
    (
        "fast.on_wrap",
        Knob { base: &["fast.on_wrap=wait-for-trim"], to: "overwrite-oldest", measure: taken, rises: true },
    ),
    ("fast.energy", Knob { base: &[], to: "1", measure: rings_that_it_lasts_for, rises: true }),
    ("fast.power", Knob { base: &[], to: "9", measure: energy_of_a_cut, rises: true }),
    ("fast.program_energy", Knob { base: &[], to: "0.0005", measure: energy_of_a_cut, rises: true }),
];

/// One key: settings that it needs, another value, what is measured, and whether that rises.
#[derive(Clone, Copy)]
pub struct Knob {
    pub base: &'static [&'static str],
    pub to: &'static str,
    pub measure: fn(&Profile) -> f64,
    pub rises: bool,
}

/// A ring of 32 KiB.
const COMMON: &[&str] = &[
    "memory.sram.size=128KiB",
    "memory.sram.survives=by-capacitors",
    "nand.blocks_per_plane=64",
    "fast.size=32KiB",
    "fast.queue_size=4KiB",
    "fast.log_size=256KiB",
    "fast.on_wrap=overwrite-oldest",
];

fn device(profile: &Profile) -> Device {
    Device::new(profile, Options { stamps: true, ..Options::default() }).unwrap_or_else(|error| panic!("{error}"))
}

/// Appends of 2 KiB for 20 ms, with block writes beside them or not.
fn append(profile: &Profile, syncs: bool, blocks: bool) -> Appender {
    append_beside(profile, syncs, blocks.then_some(Duration::from_us(20))).0
}

/// Appends of 2 KiB for 20 ms, with a block write of 16 KiB beside them this often. Their bandwidth is the second.
fn append_beside(profile: &Profile, syncs: bool, every: Option<Duration>) -> (Appender, f64) {
    let mut device = device(profile);
    let end = Instant::ZERO + Duration::from_ms(20);
    let client = client_of(&device, Mapping::WriteCombining, None, 1);
    let app = Appender::new(2048, syncs, Duration::ZERO, Instant::ZERO, end);
    let mut host = Attached::new(app, Some(client), 9);
    if let Some(every) = every {
        let span = device.capacity() / 2;
        host.blocks = Some(BlockWrites::new((16 << 10, span, 9), every, 16, Instant::ZERO, end));
    }
    drive(&mut device, &mut VirtualClock::default(), &mut host);
    let blocks = host.blocks.as_ref().map_or(0.0, BlockWrites::bandwidth);
    (host.app, blocks)
}

/// A drive whose log has this priority.
fn prioritized(priority: &str) -> Profile {
    let settings = [COMMON, &["nand.cache=true"]].concat();
    with(with(tiny(), &settings), &[&format!("fast.priority={priority}")])
}

#[test]
fn each_priority_prefers_its_side() {
    let both = ["conventional", "neutral", "destage"].map(|priority| {
        let (log, blocks) = append_beside(&prioritized(priority), false, Some(Duration::from_us(20)));
        (log.bandwidth(), blocks)
    });
    assert!(both.is_sorted_by(|a, b| a.0 < b.0), "the log: {both:?}");
    assert!(both.is_sorted_by(|a, b| a.1 > b.1), "block writes: {both:?}");
}

#[test]
fn a_log_of_low_priority_gets_the_gaps_that_blocks_leave() {
    let profile = prioritized("conventional");
    let alone = append(&profile, false, false).bandwidth();
    let beside = |every| {
        let (log, blocks) = append_beside(&profile, false, Some(Duration::from_us(every)));
        (log.bandwidth() / alone, blocks)
    };
    let (many, few) = (beside(20), beside(2_000));
    assert!(many.0 < 0.2, "blocks that leave no gaps: {many:?}");
    assert!(few.0 > 0.8, "blocks that leave gaps: {few:?}");
}

fn bandwidth(profile: &Profile) -> f64 {
    append(profile, false, false).bandwidth()
}

fn bandwidth_beside_blocks(profile: &Profile) -> f64 {
    append(profile, false, true).bandwidth()
}

fn latency(profile: &Profile) -> f64 {
    append(profile, true, false).latency.mean().as_secs_f64()
}

/// Bytes that are taken without a trim.
fn taken(profile: &Profile) -> f64 {
    append(profile, false, false).bytes as f64
}

fn functions(profile: &Profile) -> f64 {
    device(profile).fast().functions().len() as f64
}

fn lanes(profile: &Profile) -> f64 {
    f64::from(device(profile).control_page(0).lanes)
}

/// A drive with 1,000 bytes in its ring.
fn with_some_log(profile: &Profile) -> Device {
    let mut device = device(profile);
    let store = Input::Store { function: 0, address: bar::RINGS, content: Content::Bytes(&[7; 1000]) };
    assert!(device.handle(Instant::ZERO, store).is_ok());
    let soon = Instant::ZERO + Duration::from_us(10);
    while let Some(at) = device.deadline().filter(|&at| at < soon) {
        assert!(device.handle(at, Input::Timer).is_ok());
    }
    assert_eq!(device.control_page(0).lane[0].credit, 1000);
    device
}

fn time_to_flash(profile: &Profile) -> f64 {
    let mut device = with_some_log(profile);
    while device.control_page(0).lane[0].lba_tail < 1000 {
        let at = device.deadline().expect("a destage is under way");
        assert!(device.handle(at, Input::Timer).is_ok());
    }
    device.now().as_secs_f64()
}

fn energy_of_a_cut(profile: &Profile) -> f64 {
    with_some_log(profile).cut_power().energy()
}

/// Bytes of the largest ring that the stored energy is taken to last for.
fn rings_that_it_lasts_for(profile: &Profile) -> f64 {
    let mut profile = profile.clone();
    profile.set("memory.sram.size", "1GiB").unwrap();
    profile.set("fast.log_size", "8GiB").unwrap();
    let lasts = |profile: &mut Profile, bytes: u64| {
        profile.set("fast.size", &format!("{bytes}")).unwrap();
        profile.check().is_ok()
    };
    (15..28).map(|bits| 1u64 << bits).take_while(|&bytes| lasts(&mut profile, bytes)).last().unwrap_or(0) as f64
}

#[test]
fn every_key_of_the_fast_side_does_what_it_says() {
    turn(KEYS, COMMON);
}

/// Turns each key on a small drive with these settings.
pub fn turn(keys: &[(&str, Knob)], common: &[&str]) {
    let mut wrong = Vec::new();
    for (key, knob) in keys {
        let base = with(with(tiny(), common), knob.base);
        let mut changed = base.clone();
        changed.set(key, knob.to).unwrap_or_else(|error| panic!("{key}: {error}"));
        let (was, is) = ((knob.measure)(&base), (knob.measure)(&changed));
        println!("{key}: {} -> {}: {was} -> {is}", base.get(key).unwrap(), knob.to);
        if was == is || (is > was) != knob.rises {
            wrong.push(format!("{key}: {was} -> {is}, it should {}", if knob.rises { "rise" } else { "fall" }));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
