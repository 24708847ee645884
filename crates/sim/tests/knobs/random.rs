//! Random drives under random loads: whatever fits together serves to the end, and what does not is refused in words.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};
use tidewater_base::Instant;
use tidewater_core::ftl::Precondition;
use tidewater_core::profile::{Kind, Profile};
use tidewater_sim::run::QueueOf;
use tidewater_sim::workload::{Op, Request, Source, SourceError};
use tidewater_sim::{Pacing, RunError, RunOptions, run};
use tidewater_testkit::profile::with;

/// Where every random drive begins.
pub const SEED: &[&str] = &["drive.capacity=16MiB", "nand.channels=2", "nand.ways=2", "nand.pages_per_block=16"];

/// The largest values that keep a drive small, for keys whose range is meant for real ones.
const CAPS: &[(&str, u64)] = &[
    ("drive.capacity", 64 << 20),
    ("nand.channels", 4),
    ("nand.ways", 4),
    ("nand.dies_per_way", 2),
    ("nand.blocks_per_plane", 64),
    ("nand.pages_per_block", 64),
    ("ftl.gc_start", 12),
    ("ftl.gc_reserve", 8),
    ("ftl.log_blocks", 64),
    ("ftl.log_write_points", 32),
];

/// A value of the key's kind, as text, from random bits.
fn value(kind: &Kind, cap: Option<u64>, bits: u64) -> String {
    // Every order of magnitude is as likely as another, and so are the ends of the range.
    let within = |min: u64, max: u64| match bits % 8 {
        0 => min,
        1 => max,
        _ => {
            let span = u128::from(max - min) + 1;
            let magnitude = (bits >> 3) % u64::from(128 - span.leading_zeros());
            min + ((u128::from(bits >> 9) % (2u128 << magnitude)) % span) as u64
        }
    };
    match kind {
        Kind::Integer { min, max } => within(*min, cap.unwrap_or(*max).min(*max)).to_string(),
        Kind::Bytes { min, max } => {
            let bytes = within(*min, cap.unwrap_or(*max).min(*max));
            // Most sizes have to be powers of two.
            let bytes = if bits >> 60 == 0 { bytes } else { bytes.next_power_of_two().min(*max) };
            format!("{bytes}B")
        }
        Kind::Rate { min, max } => format!("{}B/s", within(*min, *max)),
        Kind::Time { min, max } => format!("{}ns", within(min.as_ps() / 1_000, max.as_ps() / 1_000)),
        Kind::Number { min, max } | Kind::Share { min, max } => match bits % 8 {
            0 => min.to_string(),
            1 => max.to_string(),
            // Small shares and probabilities are the usual ones.
            n => (min + (max - min) * 10f64.powi(-(n as i32)) * ((bits >> 3) % 1_000) as f64 / 100.0)
                .min(*max)
                .to_string(),
        },
        Kind::Switch => bits.is_multiple_of(2).to_string(),
        Kind::Choice(choices) => choices[bits as usize % choices.len()].0.into(),
        Kind::Policy(names) => names()[bits as usize % names().len()].into(),
        Kind::Name => ["dram", "sram", "other"][bits as usize % 3].into(),
        Kind::Text => "any".into(),
        Kind::List { of, min, max } => {
            let length = (*min as u64 + bits % 3).min(*max as u64);
            let items: Vec<String> = (0..length).map(|i| value(of, cap, bits.rotate_left(7 * i as u32 + 5))).collect();
            format!("[{}]", items.join(", "))
        }
    }
}

/// Which keys have which values: the number of a key, and bits for its value.
type Draws = Vec<(usize, u64)>;

fn profile(draws: &Draws) -> (Profile, Vec<String>) {
    let mut profile = with(Profile::generic(), SEED);
    let keys: Vec<_> = Profile::keys().filter(|info| !info.section.is_empty()).collect();
    let mut settings = Vec::new();
    for &(key, bits) in draws {
        let info = keys[key % keys.len()];
        let name = info.key().replace("NAME", ["dram", "sram"][(bits >> 40) as usize % 2]);
        let cap = CAPS.iter().find(|(capped, _)| *capped == name).map(|(_, cap)| *cap);
        let value = value(&info.kind, cap, bits);
        if profile.set(&name, &value).is_ok() {
            settings.push(format!("{name}={value}"));
        }
    }
    (profile, settings)
}

/// The host's load.
#[derive(Clone, Debug)]
pub struct Job {
    /// History of the drive.
    pub past: Precondition,
    /// When requests are submitted.
    pub pacing: Pacing,
    /// Each operation has a queue of its own.
    pub by_operation: bool,
    /// The requests; addresses wrap.
    pub requests: Vec<Request>,
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    let op = prop_oneof![
        6 => Just(Op::Write),
        4 => Just(Op::Read),
        1 => Just(Op::Flush),
        1 => Just(Op::Deallocate),
        1 => Just(Op::WriteZeroes),
        1 => Just(Op::Compare),
        1 => Just(Op::Verify),
    ];
    let size = prop_oneof![Just(4_096u64), Just(512), Just(65_536), 1u64..300_000];
    let one = (op, 0u64..1 << 26, size, any::<bool>(), prop::bool::weighted(0.2));
    prop::collection::vec(one, 1..400).prop_map(|all| {
        let mut arrival = 0;
        let request = |(op, offset, length, aligned, fua): (Op, u64, u64, bool, bool)| {
            arrival += offset % 50_000;
            let offset = if aligned { offset & !4_095 } else { offset };
            let (offset, length) = if op == Op::Flush { (0, 0) } else { (offset, length) };
            Request { arrival: Instant::from_ns(arrival), op, offset, length, fua }
        };
        all.into_iter().map(request).collect()
    })
}

fn jobs() -> impl Strategy<Value = Job> {
    let past = prop_oneof![
        Just(Precondition::Fresh),
        (0.0..=1.0f64).prop_map(Precondition::Filled),
        Just(Precondition::Steady)
    ];
    let pacing = prop_oneof![
        Just(Pacing::Arrival),
        (1u32..100).prop_map(Pacing::Depth),
        (1u32..100).prop_map(Pacing::ArrivalAndDepth)
    ];
    // The requests are repeated, so that a short list can wear a drive.
    (past, pacing, any::<bool>(), requests(), 1usize..12).prop_map(|(past, pacing, by_operation, requests, times)| {
        Job { past, pacing, by_operation, requests: (0..times).flat_map(|_| requests.iter().copied()).collect() }
    })
}

/// Requests from a list. Where the list is repeated, arrivals do not run backwards.
struct List(std::vec::IntoIter<Request>, Instant);

impl Source for List {
    fn next(&mut self) -> Option<Result<Request, SourceError>> {
        let mut request = self.0.next()?;
        self.1 = self.1.max(request.arrival);
        request.arrival = self.1;
        Some(Ok(request))
    }
}

/// How a case came out.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// All requests have completed.
    Served,
    /// There can be no such drive or run, and the message says why.
    Refused,
}

/// Serves a job to its end, and checks the drive that it leaves behind.
pub fn serve(profile: &Profile, job: &Job) -> Result<End, TestCaseError> {
    let mut options = RunOptions {
        pacing: job.pacing,
        queue_of: if job.by_operation { QueueOf::Operation } else { QueueOf::RoundRobin },
        wrap: true,
        ..RunOptions::default()
    };
    options.device.precondition = job.past;
    match run(profile, List(job.requests.clone().into_iter(), Instant::ZERO), options) {
        Ok(outcome) => {
            prop_assert_eq!(outcome.device.outstanding(), 0);
            prop_assert_eq!(outcome.record.requests, job.requests.len() as u64);
            outcome.device.ftl().assert_consistent();
            let nand = &profile.nand;
            let wears_out = nand.program_fail_rate > 1e-6 || nand.erase_fail_rate > 1e-6 || nand.endurance < 1_000;
            prop_assert!(wears_out || !outcome.device.ftl().is_read_only(), "a healthy drive went read-only");
            Ok(End::Served)
        }
        Err(RunError::Setup(error)) => {
            prop_assert!(error.to_string().len() > 10, "{}", error);
            Ok(End::Refused)
        }
        Err(RunError::NoCapacity) => Ok(End::Refused),
        Err(RunError::Options(text)) => {
            prop_assert!(text.contains("queue depth"), "{}", text);
            Ok(End::Refused)
        }
        Err(error) => Err(TestCaseError::fail(error.to_string())),
    }
}

/// A number from the environment.
fn number(name: &str) -> Option<u32> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn random_drives_serve_or_are_refused_in_words() {
    // A fixed seed: the suite gives the same answer every time. For a longer hunt there is the environment.
    let cases = number("TIDEWATER_RANDOM_CASES").unwrap_or(400);
    let mut seed = [0; 32];
    seed[..4].copy_from_slice(&number("TIDEWATER_RANDOM_SEED").unwrap_or(1).to_le_bytes());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let draws = prop::collection::vec((0usize..1_000, any::<u64>()), 0..12);
    let (mut served, mut refused) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    let outcome = runner.run(&(draws, jobs()), |(draws, job)| {
        let (profile, settings) = profile(&draws);
        let end = std::panic::catch_unwind(|| serve(&profile, &job));
        match end {
            Ok(Ok(End::Served)) => served.set(served.get() + 1),
            Ok(Ok(End::Refused)) => refused.set(refused.get() + 1),
            Ok(Err(error)) => return Err(TestCaseError::fail(format!("{settings:?}: {error}"))),
            Err(_) => return Err(TestCaseError::fail(format!("{settings:?}: panicked"))),
        }
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    println!("{} drives served, {} were refused", served.get_mut(), refused.get_mut());
    assert!(served.get_mut() > refused.get_mut(), "too few random drives fit together to test anything");
}
