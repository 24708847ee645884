//! Probes of simulated drives: what is found is what the profile says, which the probe never sees.

mod blind;

use tidewater_base::Duration;
use tidewater_core::Options;
use tidewater_core::ftl::Precondition;
use tidewater_core::profile::Profile;
use tidewater_probe::{Noise, Noisy, Request, Target, Unwatched, Watch};
use tidewater_report::probe::{Answer, ProbeRecord, Verdict, ask};
use tidewater_sim::probe::SimulatedDrive;
use tidewater_testkit::profile::with;

/// A small drive: four dies of rows of 32 KiB, 256 MiB.
fn profile(settings: &[(&str, &str)]) -> Profile {
    let small = ["drive.capacity=256MiB", "nand.channels=2", "nand.ways=2", "nand.pages_per_block=64"];
    let profile = with(with(Profile::generic(), &small), settings);
    profile.check().unwrap();
    profile
}

fn drive(settings: &[(&str, &str)]) -> SimulatedDrive {
    let options = Options { precondition: Precondition::Filled(1.0), ..Options::default() };
    SimulatedDrive::new(&profile(settings), options).unwrap()
}

fn probe(target: &mut dyn Target, stage: &str) -> ProbeRecord {
    let stages = vec![stage.to_owned()];
    let record =
        tidewater_probe::run(target, &tidewater_probe::Options { stages, ..Default::default() }, &mut Unwatched);
    assert_eq!(record.ended_early, None);
    record
}

/// A busy host.
const NOISE: Noise =
    Noise { jitter: 0.05, outliers: 0.02, outlier_time: Duration::from_us(300), drift: 0.2, drift_requests: 5_000.0 };

fn found(record: &ProbeRecord, what: &str, answer: Answer) -> Verdict {
    let verdict = record.verdict("", what).unwrap_or_else(|| panic!("{what} was not asked: {record:?}"));
    assert_eq!(verdict.answer, answer, "{verdict:?}");
    verdict.clone()
}

#[test]
fn requests_are_timed_one_by_one_and_together() {
    let mut drive = drive(&[]);
    // Rows of 32 KiB lie on four dies in turn.
    let reads: Vec<Request> = (0..64).map(|i| Request::read(i * 33 * (32 << 10), 4_096)).collect();
    let (mut alone, mut together) = (Vec::new(), Vec::new());
    drive.run(&reads, 1, &mut alone).unwrap();
    let before = drive.now();
    drive.run(&reads, 16, &mut together).unwrap();
    assert_eq!((alone.len(), together.len()), (64, 64));
    // A read takes its die 45 to 75 us; four dies work at once.
    assert!(alone.iter().all(|time| time.latency() > Duration::from_us(45)), "{alone:?}");
    assert!(alone[0].ended <= alone[1].submitted);
    let (first, second) = (alone[63].ended, drive.now().saturating_sub(before));
    assert!(second < Duration::from_ps(first.as_ps() / 2), "{second:?} after {first:?}");
    drive.idle(Duration::from_ms(5)).unwrap();
    assert!(drive.now() >= before + Duration::from_ms(5));
}

#[test]
fn a_request_beyond_the_end_fails_in_words() {
    let mut drive = drive(&[]);
    let end = drive.about().capacity;
    let error = drive.run(&[Request::read(end, 4_096)], 1, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("failed"), "{error}");
}

#[test]
fn the_read_cache_is_found_to_the_step() {
    for (size, kib) in [("32KiB", 32u64), ("300KiB", 300), ("768KiB", 768), ("2MiB", 2_048)] {
        let settings = [("buffer.read_policy", "lru"), ("buffer.read_size", size)];
        let record = probe(&mut Noisy::new(drive(&settings), NOISE, kib), "read-cache");
        let verdict = found(&record, ask::READ_CACHE, Answer::Found);
        let [low, high] = verdict.range_bytes.unwrap();
        assert!(low <= kib << 10 && kib << 10 < high && high - low <= (kib << 10) / 64 + 4_096, "{verdict:?}");
        assert!(verdict.confidence > 0.9, "{verdict:?}");
    }
}

#[test]
fn what_is_not_there_is_not_found() {
    let record = probe(&mut Noisy::new(drive(&[]), NOISE, 1), "read-cache");
    found(&record, ask::READ_CACHE, Answer::Absent);
    // Written through: every write waits for flash.
    let record = probe(&mut Noisy::new(drive(&[("buffer.write_policy", "none")]), NOISE, 1), "write-buffer");
    found(&record, ask::WRITE_BUFFER, Answer::Absent);
    // The whole map is at hand.
    let record = probe(&mut Noisy::new(drive(&[]), NOISE, 1), "map-cache");
    found(&record, ask::MAP_REACH, Answer::Absent);
}

#[test]
fn the_write_buffer_is_found_with_what_dies_hold() {
    // Each of four dies takes two rows of 32 KiB of its own before the buffer has to keep anything.
    for (size, kib) in [("256KiB", 256u64), ("964KiB", 964), ("4MiB", 4_096)] {
        for watermark in ["50%", "100%"] {
            let settings = [("buffer.write_size", size), ("buffer.write_watermark", watermark)];
            let record = probe(&mut Noisy::new(drive(&settings), NOISE, kib), "write-buffer");
            let verdict = found(&record, ask::WRITE_BUFFER, Answer::Found);
            let (found, truth) = (verdict.bytes.unwrap(), (kib + 256) << 10);
            assert!(found.abs_diff(truth) <= truth / 50 + 8_192, "{verdict:?} of {truth}");
        }
    }
}

#[test]
fn pages_and_dies_are_found() {
    for (ways, dies) in [("2", 4u64), ("3", 6), ("8", 16)] {
        let record = probe(&mut Noisy::new(drive(&[("nand.ways", ways)]), NOISE, dies), "stripe");
        assert_eq!(found(&record, ask::PAGE, Answer::Found).bytes, Some(32 << 10));
        assert_eq!(found(&record, ask::STRIPE, Answer::Found).bytes, Some(dies * (32 << 10)));
    }
}

#[test]
fn a_drive_with_more_spare_flash_collects_later() {
    let begins = |spare: &str| {
        let stages = ["write-buffer", "sustained"].map(str::to_owned).to_vec();
        let options = tidewater_probe::Options { stages, ..Default::default() };
        let drive = drive(&[("ftl.over_provisioning", spare), ("buffer.write_size", "1MiB")]);
        let record = tidewater_probe::run(&mut Noisy::new(drive, NOISE, 1), &options, &mut Unwatched);
        found(&record, ask::SLC_CACHE, Answer::Absent);
        found(&record, ask::COLLECTION, Answer::Found).bytes.unwrap()
    };
    let (little, much) = (begins("20%"), begins("60%"));
    // Of 256 MiB, a fifth and three fifths, and what a die's whole superblocks leave over; what is overwritten twice
    // costs nothing.
    assert!((40 << 20..90 << 20).contains(&little) && (120 << 20..230 << 20).contains(&much), "{little} and {much}");
}

/// A buffer is full, too, after so much.
#[test]
fn an_slc_cache_is_told_from_a_write_buffer_or_not_at_all() {
    let slc = |stages: &[&str], settings: &[(&str, &str)], answer: Answer| {
        let stages = stages.iter().map(|stage| (*stage).to_owned()).collect();
        let options = tidewater_probe::Options { stages, ..Default::default() };
        found(&tidewater_probe::run(&mut drive(settings), &options, &mut Unwatched), ask::SLC_CACHE, answer)
    };
    let verdict = slc(&["sustained"], &[("buffer.write_size", "8MiB")], Answer::CannotTell);
    assert!(verdict.because.contains("may be the end of a write buffer"), "{verdict:?}");
    slc(&["write-buffer", "sustained"], &[("buffer.write_size", "8MiB")], Answer::Absent);
    let cached = [("buffer.write_size", "1MiB"), ("slc.size", "64MiB")];
    let size = slc(&["write-buffer", "sustained"], &cached, Answer::Found).bytes.unwrap();
    assert!((48 << 20..96 << 20).contains(&size), "{size}");
    slc(&["sustained"], &cached, Answer::CannotTell);
}

#[test]
fn of_a_drive_that_is_too_small_it_says_so() {
    let run = |capacity: &str, stages: &[&str]| {
        let stages = stages.iter().map(|stage| (*stage).to_owned()).collect();
        let options = tidewater_probe::Options { stages, ..Default::default() };
        tidewater_probe::run(&mut drive(&[("drive.capacity", capacity)]), &options, &mut Unwatched)
    };
    // A dozen of values has no step that is beyond chance.
    let record = run("12MiB", &["write-buffer", "sustained"]);
    for what in [ask::SLC_CACHE, ask::COLLECTION] {
        let verdict = found(&record, what, Answer::CannotTell);
        assert!(verdict.because.contains("too small"), "{verdict:?}");
    }
    for capacity in ["1MiB", "4MiB", "7MiB"] {
        let record = run(capacity, &[]);
        assert_eq!((record.ended_early.as_deref(), record.stages.len()), (Some("the target is too small"), 0));
    }
    assert_eq!(run("8MiB", &[]).ended_early, None);
}

#[test]
fn a_drive_of_small_transfers_is_written_in_small_requests() {
    for stage in ["read-cache", "write-buffer", "sustained"] {
        let record = probe(&mut drive(&[("host.transfer_max", "8KiB")]), stage);
        assert!(!record.stages[0].verdicts.is_empty() && record.stages[0].skipped.is_none(), "{record:?}");
    }
}

/// Nothing is as small as a byte: of what was asked for, the least that can be tried is.
#[test]
fn the_least_size_that_can_be_asked_for_is_looked_for() {
    let stages = ["read-cache", "write-buffer"].map(str::to_owned).to_vec();
    let options = tidewater_probe::Options { stages, largest_cache: 1, ..Default::default() };
    let settings = [("buffer.read_policy", "lru"), ("buffer.read_size", "1MiB"), ("buffer.write_size", "8MiB")];
    let record = tidewater_probe::run(&mut drive(&settings), &options, &mut Unwatched);
    assert_eq!(record.ended_early, None);
    let read = found(&record, ask::READ_CACHE, Answer::CannotTell);
    assert!(read.because.starts_with("all of 4 KiB was found again, and more was not tried"), "{read:?}");
    let write = found(&record, ask::WRITE_BUFFER, Answer::CannotTell);
    assert!(write.because.starts_with("256 KiB were written without having to wait"), "{write:?}");
}

#[test]
fn whose_memory_something_is_cannot_be_asked_of_nothing() {
    let record = probe(&mut drive(&[]), "host-memory");
    assert!(record.stages[0].verdicts.is_empty() && record.stages[0].notes.len() == 1, "{record:?}");
}

#[test]
fn the_mapping_cache_and_its_unit_are_found() {
    // A unit is found on drives of at least 128 of them.
    for (size, pages) in [("48KiB", 12u64), ("128KiB", 32)] {
        let settings = [("drive.capacity", "1GiB"), ("ftl.map_memory", "sram"), ("ftl.map_size", size)];
        let record = probe(&mut Noisy::new(drive(&settings), NOISE, pages), "map-cache");
        assert_eq!(found(&record, ask::MAP_UNIT, Answer::Found).bytes, Some(4 << 20));
        assert_eq!(found(&record, ask::MAP_REACH, Answer::Found).bytes, Some(pages * (4 << 20)));
    }
}

#[test]
fn memory_of_the_host_is_told_from_the_drives_own() {
    let cache = [("buffer.read_policy", "lru"), ("buffer.read_size", "512KiB")];
    let lent = [
        cache[0],
        cache[1],
        ("memory.host.kind", "host"),
        ("memory.host.size", "1MiB"),
        ("buffer.read_memory", "host"),
    ];
    for (settings, place) in [(&cache[..], "inside the drive"), (&lent[..], "host memory")] {
        let stages = vec!["read-cache".to_owned(), "host-memory".to_owned()];
        let options = tidewater_probe::Options { stages, ..Default::default() };
        let record = tidewater_probe::run(&mut Noisy::new(drive(settings), NOISE, 1), &options, &mut Unwatched);
        assert!(found(&record, ask::READ_CACHE, Answer::Found).range_bytes.unwrap()[0] <= 512 << 10);
        assert_eq!(found(&record, ask::READ_CACHE_PLACE, Answer::Found).place.as_deref(), Some(place));
    }
}

#[test]
fn a_map_in_host_memory_grows_with_it_and_one_size_concludes_nothing() {
    let lent = [
        ("drive.capacity", "1GiB"),
        ("memory.host.kind", "host"),
        ("memory.host.size", "256KiB"),
        ("ftl.map_memory", "host"),
        ("ftl.map_floor", "8KiB"),
    ];
    for (least, growth) in [("0", Answer::Found), ("256KiB", Answer::CannotTell)] {
        let settings = [&lent[..], &[("serve.hmb_preferred", "256KiB"), ("serve.hmb_min", least)]].concat();
        let stages = vec!["map-cache".to_owned(), "host-memory".to_owned()];
        let options = tidewater_probe::Options { stages, ..Default::default() };
        let mut drive = drive(&settings);
        let record = tidewater_probe::run(&mut drive, &options, &mut Unwatched);
        // A unit takes 40 bytes beside its 4 KiB of map: 63 of them, and two pages of the drive's own.
        assert_eq!(found(&record, ask::MAP_REACH, Answer::Found).bytes, Some(65 * (4 << 20)));
        assert_eq!(found(&record, ask::MAP_PLACE, Answer::Found).place.as_deref(), Some("host memory"));
        let verdict = found(&record, ask::MAP_GROWTH, growth);
        assert_eq!(verdict.place.as_deref(), (growth == Answer::Found).then_some("host memory"), "{verdict:?}");
        assert_eq!(drive.device().host_memory().bytes(), 256 << 10, "the drive has back what it had");
    }
}

/// As the paper's drive B: all of the map is at hand with the memory that it borrows, and it takes that size only.
#[test]
fn a_drive_that_borrows_one_size_for_all_of_its_map_is_told_as_far_as_it_shows() {
    let settings = [
        ("drive.capacity", "1GiB"),
        ("memory.host.kind", "host"),
        ("memory.host.size", "2MiB"),
        ("ftl.map_memory", "host"),
        ("ftl.map_floor", "128KiB"),
        ("serve.hmb_preferred", "2MiB"),
        ("serve.hmb_min", "2MiB"),
    ];
    let stages = vec!["map-cache".to_owned(), "host-memory".to_owned()];
    let options = tidewater_probe::Options { stages, ..Default::default() };
    let record = tidewater_probe::run(&mut drive(&settings), &options, &mut Unwatched);
    let reach = found(&record, ask::MAP_REACH, Answer::CannotTell);
    assert!(reach.because.contains("all found again, as many as the drive has"), "{reach:?}");
    let place = found(&record, ask::MAP_PLACE, Answer::Found);
    assert_eq!(place.place.as_deref(), Some("host memory"), "{place:?}");
    assert!(place.because.contains("all with the host's memory, 128 MiB without"), "{place:?}");
    let growth = found(&record, ask::MAP_GROWTH, Answer::CannotTell);
    assert!(growth.because.contains("concluded from one size") && growth.because.contains("2 MiB"), "{growth:?}");
}

/// Asks for the end once a stage is done.
struct Interrupts(bool);

impl Watch for Interrupts {
    fn progress(&mut self, _: &str, _: f64) {}

    fn cancelled(&self) -> bool {
        self.0
    }

    fn stage_done(&mut self, _: &ProbeRecord) {
        self.0 = true;
    }
}

#[test]
fn a_probe_that_is_interrupted_keeps_what_it_knows() {
    let mut target = drive(&[("buffer.read_policy", "lru"), ("buffer.read_size", "100KiB")]);
    let record = tidewater_probe::run(&mut target, &tidewater_probe::Options::default(), &mut Interrupts(false));
    assert_eq!(record.ended_early.as_deref(), Some("interrupted"));
    found(&record, ask::READ_CACHE, Answer::Found);
    let stages: Vec<_> = record.stages.iter().map(|stage| stage.name.as_str()).collect();
    assert_eq!(stages, ["read-cache", "map-cache"]);
    assert!(record.stages[1].verdicts.is_empty() && record.stages[1].skipped.is_some());
}

#[test]
fn the_same_seed_gives_the_same_record() {
    let settings = [("buffer.read_policy", "lru"), ("buffer.read_size", "100KiB")];
    let run = || probe(&mut Noisy::new(drive(&settings), NOISE, 3), "read-cache").to_json();
    assert_eq!(run(), run());
}
