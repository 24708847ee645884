use super::*;
use crate::trace::Input;
use proptest::prelude::*;
use std::io::Write as _;
use tidewater_base::Instant;

fn summary(mix: Mix, transactions: u64) -> Summary {
    let mut summary = Summary::default();
    let spec = LogSpec { mix, transactions: Some(transactions), ..LogSpec::default() };
    LogSource::synthesize(&spec).for_each(|write| summary.add(&write.unwrap()));
    summary
}

#[track_caller]
fn near(measured: f64, expected: f64, tolerance: f64) {
    assert!((measured / expected - 1.0).abs() < tolerance, "measured {measured}, expected {expected}");
}

#[test]
fn every_mix_has_its_shares() {
    for (name, mix) in mixes() {
        let summary = summary(mix, 200_000);
        for (i, kind) in mix.kinds().iter().enumerate() {
            let tolerance = 5.0 * (kind.share / 200_000.0).sqrt();
            assert!((summary.share(i) - kind.share).abs() < tolerance, "{name} {}: {}", kind.name, summary.share(i));
        }
    }
}

#[test]
fn tpc_c_writes_the_rows_of_its_specification() {
    let tpcc = Tpcc::default();
    assert_eq!(tpcc.payment(), 16 + 4 * 24 + 89 + 95 + 655 + 46);
    assert_eq!(tpcc.new_order(10), 16 + 23 * 24 + 95 + 24 + 8 + 10 * (306 + 54));
    assert_eq!(tpcc.delivery(100), 16 + 130 * 24 + 10 * (24 + 655) + 100 * 54);
    let summary = summary(Mix::Tpcc(tpcc), 400_000);
    near(summary.mean_bytes(), tpcc.mean_bytes(), 0.01);
    near(tpcc.mean_bytes(), 2955.0, 0.001);
    let kinds = summary.kinds();
    assert_eq!((kinds[0].min, kinds[0].max), (0, tpcc.new_order(15)), "some roll back");
    assert_eq!((kinds[1].min, kinds[1].max), (tpcc.payment(), tpcc.payment()));
    assert_eq!((kinds[2].bytes, kinds[4].bytes), (0, 0), "two only read");
    assert!(kinds[3].min >= tpcc.delivery(50) && kinds[3].max <= tpcc.delivery(150));
    near(kinds[3].bytes as f64 / kinds[3].count as f64, tpcc.delivery(100) as f64, 0.01);
    // What X-SSD expects of the majority of records (section 6.3); of deliveries only the mean is below it.
    let writing = [0, 1, 3].map(|kind: usize| kinds[kind].count);
    assert!(kinds[0].max.max(kinds[1].max) < 20_000 && 2 * (writing[0] + writing[1]) > writing.iter().sum());
}

#[test]
fn linkbench_writes_its_rows_with_log_normal_payloads() {
    let summary = summary(Mix::LinkBench(LinkBench::default()), 1_000_000);
    let mean = |kind: usize| summary.kinds()[kind].bytes as f64 / summary.kinds()[kind].count as f64;
    // A log-normal of sigma 1 has a mean of exp(1/2) medians; the clamp to 255 takes little off 13.
    near(mean(7), 16.0 + 24.0 + 24.0 + 128.0 * 0.5f64.exp(), 0.03);
    near(mean(2), 16.0 + 24.0 + 37.0 + 8.0 * 0.5f64.exp(), 0.03);
    near(mean(0), mean(2) + 24.0 + 36.0, 0.02);
    assert_eq!(summary.kinds()[9].max, 40);
    assert!(summary.kinds()[2].max <= 16 + 24 + 37 + 255);
    let reads: u64 = (3..7).map(|kind| summary.kinds()[kind].bytes).sum();
    assert_eq!(reads, 0);
}

#[test]
fn ycsb_a_logs_what_it_is_told() {
    for (image, bytes) in [(Image::Field, 124), (Image::Record, 1024), (Image::Bytes(64), 64)] {
        let summary = summary(Mix::YcsbA(YcsbA { image, ..YcsbA::default() }), 1_000);
        assert_eq!((summary.kinds()[1].min, summary.kinds()[1].max), (40 + bytes, 40 + bytes));
        assert_eq!(summary.kinds()[0].bytes, 0);
    }
}

#[test]
fn a_journal_has_descriptors_and_a_commit_block() {
    let journal = Journal::default();
    assert_eq!(journal.transaction(3), 5 * 4096);
    assert_eq!(journal.transaction(255), 257 * 4096);
    assert_eq!(journal.transaction(256), 259 * 4096);
    let summary = summary(Mix::Journal(journal), 100_000);
    near(summary.mean_bytes(), 4096.0 * (0.7 * 5.0 + 0.25 * 8.0 + 0.05 * 62.0), 0.02);
    assert!(summary.kinds().iter().all(|kind| kind.min % 4096 == 0 && kind.max % 4096 == 0));
}

#[test]
fn workers_take_turns_and_their_time_has_its_mean() {
    let spec = LogSpec { workers: 3, transactions: Some(30_000), ..LogSpec::default() };
    let writes: Vec<_> = LogSource::synthesize(&spec).map(Result::unwrap).collect();
    let again: Vec<_> = LogSource::synthesize(&spec).map(Result::unwrap).collect();
    assert_eq!(writes, again, "one seed, one log");
    assert!(writes.iter().enumerate().all(|(i, write)| write.worker == i as u32 % 3));
    let times: Vec<f64> = writes
        .iter()
        .map(|write| match write.pace {
            Pace::After(time) => time.as_us_f64(),
            Pace::At(_) => panic!("a closed loop has no arrivals"),
        })
        .collect();
    near(times.iter().sum::<f64>() / 30_000.0, 26.667, 0.01);
    assert!(times.iter().all(|time| (13.3..=40.1).contains(time)));
}

fn read(text: &[u8], unit: Option<TimeUnit>) -> Result<Vec<(u64, u64, u32)>, String> {
    let file = LogFile::open(&Input::from_bytes("my.csv", text), unit).unwrap();
    LogSource::File(Box::new(file))
        .map(|write| match write.map_err(|error| error.to_string())? {
            LogWrite { pace: Pace::At(at), worker, bytes, .. } => Ok((at.as_ps(), bytes, worker)),
            LogWrite { pace: Pace::After(_), .. } => panic!("a file has arrivals"),
        })
        .collect()
}

#[test]
fn a_recorded_log_is_read_with_its_unit() {
    let us = Some(TimeUnit::Microseconds);
    let expected = vec![(0, 100, 0), (1_500_000, 16384, 0), (2_000_000, 1, 0)];
    assert_eq!(read(b"5,100\n6.5,16384\n7,1\n", us), Ok(expected.clone()));
    assert_eq!(read(b"# mine\n\ntime_us,size\n5,100\r\n6.5, 16384\r\n7,1", None), Ok(expected.clone()));
    assert_eq!(read(b"\xef\xbb\xbfTime,Bytes\n5,100\n6.5,16384\n7,1", us), Ok(expected));
    assert_eq!(read(b"time_s,size,worker\n1,10,3\n2,10,4", None), Ok(vec![(0, 10, 3), (1_000_000_000_000, 10, 4)]));
    assert_eq!(TimeUnit::from_name("ns"), Some(TimeUnit::Nanoseconds));
    assert_eq!(TimeUnit::from_name("m"), None);
}

#[test]
fn compressed_logs_are_the_same() {
    let text: String =
        std::iter::once("time_ns,size\n".into()).chain((0..5000).map(|i| format!("{},{}\n", i * 7, i + 1))).collect();
    let plain = read(text.as_bytes(), None).unwrap();
    assert_eq!(plain.len(), 5000);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(text.as_bytes()).unwrap();
    assert_eq!(read(&gz.finish().unwrap(), None), Ok(plain.clone()));
    assert_eq!(read(&zstd::encode_all(text.as_bytes(), 1).unwrap(), None), Ok(plain));
}

#[test]
fn earlier_stamps_keep_the_order_of_the_file() {
    let text = b"time_us,size\n10,1\n12,2\n9,3\n11,4\n13,5\n";
    let mut file = LogFile::open(&Input::from_bytes("my.csv", text), None).unwrap();
    let times: Vec<_> = file.by_ref().map(|write| write.unwrap().pace).collect();
    let at = |us| Pace::At(Instant::ZERO + Duration::from_us(us));
    assert_eq!(times, [at(0), at(2), at(2), at(2), at(3)]);
    assert_eq!(file.reordered(), 2);
}

#[test]
fn mistakes_are_told_with_their_place() {
    let us = Some(TimeUnit::Microseconds);
    for (text, unit, expected) in [
        ("", us, "my.csv: the trace holds no request"),
        ("5,100\n", None, "my.csv: the unit of time is neither in a header (as in `time_us,size`) nor given"),
        ("time,size\n5,1\n", None, "my.csv:1:1: expected the unit of time in the header"),
        ("time_us,size\n5,1\n", Some(TimeUnit::Seconds), "my.csv:1:1: expected the unit of time that was given"),
        ("time_us,length\n", None, "my.csv:1:9: expected `size`, found \"length\""),
        ("time_us,size,who\n", None, "my.csv:1:14: expected `worker`"),
        ("stamp,size\n", us, "my.csv:1:1: expected `time_s`"),
        ("5,100\n6;100\n", us, "my.csv:2:1: expected a time, a number of the file's unit, found \"6;100\""),
        ("5,100\nx,100\n", us, "my.csv:2:1: expected a time"),
        ("5,100\n6,0\n", us, "my.csv:2:3: expected a size of 1 byte to 4 GiB, found \"0\""),
        ("5,100\n6,-1\n", us, "my.csv:2:3: expected a size"),
        ("5,100\n6\n", us, "my.csv:2:2: expected a size of 1 byte to 4 GiB, found the end of the line"),
        ("5,100,65536\n", us, "my.csv:1:7: expected the number of a worker"),
        ("5,100,1,\n", us, "my.csv:1:9: expected the end of the line"),
        ("0,1\n99999999999999,1\n", us, "my.csv:2:1: expected a time within 213 days of the first"),
    ] {
        let error = read(text.as_bytes(), unit).unwrap_err();
        assert!(error.starts_with(expected), "{text:?}: {error}");
    }
    let long = [b"time_us,size\n".to_vec(), vec![b'1'; 100_000], b"\n".to_vec()].concat();
    assert!(read(&long, None).unwrap_err().starts_with("my.csv:2:1: expected a line of less than 64 KiB"));
}

proptest! {
    #[test]
    fn no_text_panics(text in "(time(_us|_ms|_x)?,size(,worker)?\n)?([0-9,.e#a\n\r -]{0,20}\n){0,5}", unit: bool) {
        let _ = read(text.as_bytes(), unit.then_some(TimeUnit::Seconds));
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = read(&bytes, Some(TimeUnit::Nanoseconds));
    }
}
