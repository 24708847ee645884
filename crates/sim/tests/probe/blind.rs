//! The blind test: drives drawn from a seed, that are unknown to the probe. What it says is held against the
//! profile.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use tidewater_base::{Duration, Rng};
use tidewater_core::Options;
use tidewater_core::ftl::Precondition;
use tidewater_core::profile::Profile;
use tidewater_probe::{Noise, Noisy, Unwatched};
use tidewater_report::probe::{Answer, ProbeRecord, Verdict, ask};
use tidewater_sim::probe::SimulatedDrive;
use tidewater_testkit::profile::with;

const KIB: u64 = 1 << 10;

/// Truth about a drive, by question.
enum Truth {
    /// A size in bytes, right if it is off by no more than a page or this part of it.
    Size(u64, u64),
    /// There is none.
    None,
    /// Whose memory it is.
    Place(&'static str),
}

/// A drive that was drawn.
struct Drawn {
    profile: Profile,
    noise: Noise,
    truths: Vec<(&'static str, Truth)>,
    /// The read cache, which is the larger one where the write buffer keeps reads as well, is in the host's memory.
    lent: bool,
    /// The settings drawn, for a drive whose verdict is wrong.
    settings: Vec<String>,
}

/// Draws a drive: flash, caches and their sizes, policies, and the noise of its host.
fn draw(seed: u64) -> Drawn {
    let mut rng = Rng::new(seed, b"blind drives");
    let mut settings: Vec<String> = Vec::new();
    let mut truths = Vec::new();
    let pick = |rng: &mut Rng, from: &[u64]| from[rng.below(from.len() as u64) as usize];
    let channels = pick(&mut rng, &[2, 3, 4]);
    let ways = pick(&mut rng, &[2, 3, 4]);
    let planes = pick(&mut rng, &[1, 2]);
    let page = pick(&mut rng, &[8, 16]);
    let programs = pick(&mut rng, &[1, 2]);
    let pages_per_block = 512 / page;
    settings.extend([
        "drive.capacity=512MiB".into(),
        format!("nand.channels={channels}"),
        format!("nand.ways={ways}"),
        format!("nand.planes={planes}"),
        format!("nand.page_size={page}KiB"),
        format!("nand.pages_per_block={pages_per_block}"),
        format!("flash.programs_per_die={programs}"),
    ]);
    if rng.below(3) == 0 {
        settings.extend(["nand.cell=mlc".into()]);
    }
    let row = planes * page * KIB;
    truths.push((ask::PAGE, Truth::Size(row, 64)));
    truths.push((ask::STRIPE, Truth::Size(channels * ways * row, 64)));
    // From 16 KiB to 4 MiB, even as logarithms go, in whole pages.
    let size = |rng: &mut Rng| (2f64.powf(14.0 + 8.0 * rng.unit_f64()) as u64) / 4_096 * 4_096;
    let (mut cached, mut lent) = (0, false);
    if rng.below(4) > 0 {
        cached = size(&mut rng);
        settings.extend(["buffer.read_policy=lru".into(), format!("buffer.read_size={cached}B")]);
        lent = rng.below(3) == 0;
        if lent {
            settings.push("buffer.read_memory=host".into());
        }
    }
    if rng.below(5) == 0 {
        settings.push("buffer.write_policy=none".into());
        truths.push((ask::WRITE_BUFFER, Truth::None));
    } else {
        let bytes = size(&mut rng).max(64 * KIB);
        let policy = ["lru", "cflru", "lb-clock", "fab"][rng.below(4) as usize];
        let watermark = pick(&mut rng, &[50, 75, 90, 100]);
        settings.extend([
            format!("buffer.write_policy={policy}"),
            format!("buffer.write_size={bytes}B"),
            format!("buffer.write_watermark={watermark}%"),
        ]);
        let through = rng.below(8) == 0;
        if through {
            // What is buffered in the host's memory is written through: from outside there is no buffer.
            settings.push("buffer.write_memory=host".into());
            truths.push((ask::WRITE_BUFFER, Truth::None));
        } else {
            // What dies hold of their own is taken from the host as well.
            let dies = channels * ways * programs * row;
            truths.push((ask::WRITE_BUFFER, Truth::Size(bytes + dies, 32)));
        }
        if policy == "cflru" && !through {
            // It keeps what was read beside what was written.
            lent &= cached > bytes;
            cached = cached.max(bytes);
        }
    }
    if settings.iter().any(|setting| setting.ends_with("_memory=host")) {
        let host = ["memory.host.kind=host".into(), "memory.host.size=16MiB".into()];
        settings.splice(1..1, host);
    }
    truths.push((ask::READ_CACHE, if cached == 0 { Truth::None } else { Truth::Size(cached, 64) }));
    truths.push((ask::MAP_REACH, Truth::None));
    truths.push((
        ask::READ_CACHE_PLACE,
        match (cached, lent) {
            (0, _) => Truth::None,
            (_, true) => Truth::Place("host memory"),
            (_, false) => Truth::Place("inside the drive"),
        },
    ));
    let buffered = truths.iter().any(|(what, truth)| *what == ask::WRITE_BUFFER && !matches!(truth, Truth::None));
    truths.push((ask::WRITE_BUFFER_PLACE, if buffered { Truth::Place("inside the drive") } else { Truth::None }));
    let (noise, profile) = (draw_noise(&mut rng), profile_of(&settings));
    Drawn { profile, noise, truths, lent, settings }
}

/// How a target is disturbed.
fn draw_noise(rng: &mut Rng) -> Noise {
    Noise {
        jitter: 0.08 * rng.unit_f64(),
        outliers: 0.03 * rng.unit_f64(),
        outlier_time: Duration::from_us(100 + rng.below(900)),
        drift: 0.25 * rng.unit_f64(),
        drift_requests: 1_000.0 + 50_000.0 * rng.unit_f64(),
    }
}

fn profile_of(settings: &[String]) -> Profile {
    let profile = with(Profile::generic(), settings);
    profile.check().unwrap_or_else(|error| panic!("{settings:?}: {error}"));
    profile
}

/// Draws a drive of 256 mapping pages with a mapping cache, its own or in the host's memory.
fn draw_mapped(seed: u64) -> Drawn {
    let mut rng = Rng::new(seed, b"blind mapping caches");
    let pages = 8 + rng.below(120);
    let on_host = rng.below(2) == 0;
    let ways = 2 + rng.below(3);
    let mut settings: Vec<String> = vec![
        "drive.capacity=1GiB".into(),
        "nand.channels=2".into(),
        format!("nand.ways={ways}"),
        "nand.pages_per_block=64".into(),
        format!("ftl.map_size={}B", pages * 4_096),
    ];
    let mut held = pages;
    if on_host {
        // Each unit has its check beside it, and two pages are the drive's own.
        held = 2 + pages * 4_096 / (4_096 + u64::from(tidewater_core::host_memory::HEADER));
        settings.extend([
            "memory.host.kind=host".into(),
            "memory.host.size=1MiB".into(),
            "ftl.map_memory=host".into(),
            "ftl.map_floor=8KiB".into(),
        ]);
    } else {
        settings.push("ftl.map_memory=sram".into());
    }
    let place = if on_host { "host memory" } else { "inside the drive" };
    let mut truths = vec![
        (ask::MAP_UNIT, Truth::Size(4 << 20, 64)),
        (ask::MAP_REACH, Truth::Size(held << 22, 32)),
        (ask::MAP_PLACE, Truth::Place(place)),
    ];
    if on_host {
        truths.push((ask::MAP_GROWTH, Truth::Place(place)));
    }
    let (noise, profile) = (draw_noise(&mut rng), profile_of(&settings));
    Drawn { profile, noise, truths, lent: false, settings }
}

/// Assessment of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Right,
    CannotTell,
    Wrong,
}

fn judge(verdict: Option<&Verdict>, truth: &Truth) -> Outcome {
    let Some(verdict) = verdict else { return Outcome::CannotTell };
    let right = match (verdict.answer, truth) {
        (Answer::CannotTell, _) => return Outcome::CannotTell,
        (Answer::Absent, truth) => matches!(truth, Truth::None),
        (Answer::Found, Truth::None) => false,
        (Answer::Found, Truth::Place(place)) => verdict.place.as_deref() == Some(place),
        (Answer::Found, Truth::Size(size, part)) => {
            verdict.bytes.is_some_and(|found| found.abs_diff(*size) <= (size / part).max(4_096))
        }
    };
    if right { Outcome::Right } else { Outcome::Wrong }
}

fn probe(drawn: &mut Drawn, seed: u64, stages: &[&str]) -> ProbeRecord {
    let options = Options { seed, precondition: Precondition::Filled(1.0), ..Options::default() };
    let drive = SimulatedDrive::new(&drawn.profile, options).unwrap();
    if drawn.settings.iter().any(|setting| setting == "buffer.read_memory=host") {
        // Beside each unit in the host's memory is its check: fewer units fit.
        let fits = drive.device().read_cache().capacity() as u64 * 4_096;
        for (what, truth) in &mut drawn.truths {
            if let Truth::Size(size, _) = truth
                && *what == ask::READ_CACHE
                && drawn.lent
            {
                *size = fits;
            }
        }
    }
    let mut target = Noisy::new(drive, drawn.noise, seed);
    let stages = stages.iter().map(|&stage| stage.to_owned()).collect();
    let options = tidewater_probe::Options { seed, stages, ..tidewater_probe::Options::default() };
    tidewater_probe::run(&mut target, &options, &mut Unwatched)
}

/// Probes so many drives, prints the confusion table, and holds it against what was promised: `least` per cent right of
/// each question.
fn campaign(seeds: std::ops::Range<u64>, draw: fn(u64) -> Drawn, stages: &[&str], least: u64) {
    let drives = seeds.end - seeds.start;
    let mut table: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    let mut text = String::new();
    for seed in seeds {
        let mut drawn = draw(seed);
        let record = probe(&mut drawn, seed, stages);
        assert_eq!(record.ended_early, None, "seed {seed}: {:?}", drawn.settings);
        for (what, truth) in &drawn.truths {
            let verdict = record.verdict("", what);
            let outcome = judge(verdict, truth);
            table.entry(what).or_default()[outcome as usize] += 1;
            if outcome != Outcome::Right {
                let truth = match truth {
                    Truth::Size(size, _) => format!("{} KiB", size / KIB),
                    Truth::None => "none".into(),
                    Truth::Place(place) => (*place).into(),
                };
                let _ = writeln!(
                    text,
                    "seed {seed}: {what}: {outcome:?}, truth {truth}: {verdict:?}\n  {:?}",
                    drawn.settings
                );
            }
        }
    }
    let _ = writeln!(text, "{:<20}  right  cannot tell  wrong", format!("{drives} drives"));
    for (what, [right, cannot, wrong]) in &table {
        let _ = writeln!(text, "{what:<20} {right:>6} {cannot:>12} {wrong:>6}");
    }
    let sum = |i: usize| table.values().map(|row| row[i]).sum::<u64>();
    let all = sum(0) + sum(1) + sum(2);
    let _ = writeln!(text, "{:<20} {:>6} {:>12} {:>6}", "all", sum(0), sum(1), sum(2));
    println!("{text}");
    for (what, [right, cannot, wrong]) in &table {
        let asked = right + cannot + wrong;
        assert!(right * 100 >= least * asked, "{what}: less than {least} % are right\n{text}");
        // Of twenty drives, one is 5 %.
        let wrong_most = (asked / 50).max(1);
        assert!(*wrong <= wrong_most, "{what}: more than 2 % are wrong\n{text}");
    }
    assert!(sum(2) * 100 <= 2 * all, "more than 2 % are wrong\n{text}");
}

/// All but the longest stage, of which no size is asked.
const STAGES: &[&str] = &["read-cache", "map-cache", "stripe", "write-buffer", "host-memory"];
const MAP_STAGES: &[&str] = &["map-cache", "host-memory"];

#[test]
fn twenty_drives_are_told_right() {
    campaign(0..20, draw, STAGES, 95);
}

#[test]
fn twenty_mapping_caches_are_told_right() {
    campaign(0..20, draw_mapped, MAP_STAGES, 95);
}

// Seeds that nothing was tuned on.
#[test]
#[ignore = "long: make torture"]
fn two_hundred_drives_are_told_right() {
    campaign(8_640_000..8_640_200, draw, STAGES, 95);
}

#[test]
#[ignore = "long: make torture"]
fn two_hundred_mapping_caches_are_told_right() {
    campaign(8_640_000..8_640_200, draw_mapped, MAP_STAGES, 95);
}
