//! Real traces, where the folder that holds them is there: `../shared/traces` beside the project, or the one that
//! TIDEWATER_TRACES names. The figures are those of the table in its README, to the digits that it prints.

use std::path::PathBuf;

use super::{Format, Info, Input, Options, Trace, info};

/// A row: file, format, whether content tells the format, requests, mean KiB, write %, sequential %, mean interval in
/// ms, footprint in MiB.
type Row = (&'static str, Format, bool, u64, &'static str, &'static str, &'static str, &'static str, &'static str);

/// Every file there. A `-` stands where the table has no figure.
///
/// Where the table's definitions matter: "KB" and "MB" are KiB and MiB; pages of different devices are different pages;
/// the mean interval is the last stamp minus the first, even where stamps are out of order (Systor'17, Tencent, whose
/// interval is 0 because the first and the last stamp are the same second); WiscSee's one discard is not counted. The
/// sequential share of the Exchange trace is 43.7 %, which the table calls an artefact: its addresses were compacted.
const ROWS: [Row; 17] = [
    ("umass_financial1_first949.spc", Format::Spc, true, 949, "2.65", "80.7", "25.6", "30.0", "1.9"),
    (
        "umass_financial1_first10000.ssdsim_ns.ascii",
        Format::Ssdsim,
        false,
        10_000,
        "5.40",
        "59.2",
        "45.2",
        "25.96",
        "28.6",
    ),
    (
        "umass_financial1_first50000.flashsim.trace",
        Format::Flashsim,
        false,
        50_000,
        "6.99",
        "41.6",
        "0.56",
        "17.07",
        "121.7",
    ),
    (
        "umass_websearch1_first50000.flashsim.trace",
        Format::Flashsim,
        false,
        50_000,
        "15.14",
        "0.02",
        "6.0",
        "2.573",
        "724",
    ),
    ("mqsim_tpcc-small.trace", Format::Mqsim, false, 6_999, "8.33", "37.4", "1.24", "0.0195", "80.0"),
    ("ms_MSNStorageFileServer_sample.etw.csv", Format::Etw, true, 927, "11.06", "18.0", "8.2", "1.666", "9.6"),
    (
        "ms_exchange_disk0_30k_compacted64B.mqsim.trace",
        Format::Mqsim64,
        false,
        33_241,
        "28.27",
        "90.4",
        "-",
        "19.64",
        "234",
    ),
    ("msr_rsrch_1.csv", Format::Msr, true, 13_780, "12.17", "99.7", "1.26", "41843", "112.4"),
    ("msr_wdev_1.csv", Format::Msr, true, 1_055, "5.13", "100.0", "0.85", "564519", "1.4"),
    ("msr_hm_sample1000.csv", Format::Msr, true, 1_000, "9.46", "49.2", "3.9", "127.4", "7.5"),
    ("systor17_traces_sample999.csv", Format::Systor17, true, 999, "38.24", "17.3", "11.0", "2.446", "38.4"),
    (
        "flashnet_tencent.cut.per_50k.most_rand_iops.537.trace.csv",
        Format::Flashnet,
        true,
        50_000,
        "9.02",
        "17.9",
        "1.38",
        "1.080",
        "44.7",
    ),
    ("tencent_cloud_block_sample50000.csv", Format::Tencent, false, 50_000, "29.66", "51.0", "7.5", "-", "1360"),
    ("cloudphysics_2h_113872.vscsi", Format::Vscsi, true, 113_872, "36.07", "58.7", "26.0", "63.23", "1052"),
    ("ycsb_rocksdb_ssdtrace_sample.blkparse", Format::Blkparse, true, 1_695, "114.2", "0.0", "1.6", "0.401", "189"),
    ("wiscsee_sqlite_wal_ext4.ftlsim.txt", Format::Wiscsee, true, 5_007, "13.48", "99.9", "6.73", "0.282", "8.5"),
    ("disksim_ssd_postmark_62k.ascii", Format::Disksim, false, 62_257, "222.3", "16.8", "46.2", "7.88", "5990"),
];

fn folder() -> Option<PathBuf> {
    let folder = match std::env::var_os("TIDEWATER_TRACES") {
        Some(folder) => PathBuf::from(folder),
        None => [env!("CARGO_MANIFEST_DIR"), "..", "..", "..", "shared", "traces"].iter().collect(),
    };
    folder.join("README.md").is_file().then_some(folder)
}

/// Whether `value` is `printed` to within one unit of its last digit. Half a unit is the rounding; the other half is
/// room for figures that were rounded twice.
fn agrees(value: f64, printed: &str) -> bool {
    if printed == "-" {
        return true;
    }
    let decimals = printed.split_once('.').map_or(0, |(_, fraction)| fraction.len() as i32);
    let wanted: f64 = printed.parse().unwrap();
    // The table prints 5,990 and 1,360 for 5989.80 and 1360.31.
    (value - wanted).abs() <= 10f64.powi(-decimals)
}

fn check(row: &Row, info: &Info) {
    let (file, _, _, requests, kib, write, sequential, interval, footprint) = *row;
    assert_eq!(info.requests, requests, "{file}");
    for (name, value, printed) in [
        ("mean_kib", info.mean_kib, kib),
        ("write_percent", info.write_percent, write),
        ("sequential_percent", info.sequential_percent, sequential),
        ("mean_interarrival_ms", info.mean_interarrival_ms, interval),
        ("footprint_mib", info.footprint_mib, footprint),
    ] {
        assert!(agrees(value, printed), "{file}: {name} is {value}, the table says {printed}");
    }
}

#[test]
fn statistics_agree_with_the_table() {
    let Some(folder) = folder() else {
        println!("SKIPPED ({}): no folder of shared traces; set TIDEWATER_TRACES", ROWS.len());
        return;
    };
    let mut seen = 0;
    for row in &ROWS {
        let (name, format, told, ..) = *row;
        let path = folder.join(format!("{name}.zst"));
        if !path.is_file() {
            println!("SKIPPED (1): {name} is missing");
            continue;
        }
        let input = Input::Path(path);
        let options = if told { Options::default() } else { Options { format: Some(format), ..Options::default() } };
        let mut trace = Trace::open(&input, &options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(trace.format(), format, "{name}");
        check(row, &info(&mut trace, false).unwrap_or_else(|error| panic!("{error}")));
        if !told {
            let error = Trace::open(&input, &Options::default()).err().unwrap().to_string();
            assert!(error.contains(format.name()) && error.contains("--format"), "{error}");
        }
        seen += 1;
    }
    println!("{seen} of {} traces agree with the table", ROWS.len());
    let files = std::fs::read_dir(&folder).unwrap().filter_map(Result::ok);
    let unknown: Vec<String> = files
        .filter_map(|file| file.file_name().into_string().ok()?.strip_suffix(".zst").map(str::to_owned))
        .filter(|name| ROWS.iter().all(|row| row.0 != name))
        .collect();
    assert!(unknown.is_empty(), "no row for {unknown:?}");
}

#[test]
fn thousands_of_volumes_fit_when_compact() {
    let Some(folder) = folder() else {
        println!("SKIPPED (1): no folder of shared traces; set TIDEWATER_TRACES");
        return;
    };
    let input = Input::Path(folder.join("tencent_cloud_block_sample50000.csv.zst"));
    let options = Options { format: Some(Format::Tencent), ..Options::default() };
    let whole = Trace::open(&input, &options).unwrap();
    let mut compact = Trace::open(&input, &Options { compact: true, ..options }).unwrap();
    use crate::request::Source;
    let (all, touched) = (whole.extent().unwrap(), compact.extent().unwrap());
    assert!(all > 70 << 40 && touched < 40 << 30, "{all} {touched}");
    assert!(info(&mut compact, false).unwrap().footprint_mib < touched as f64 / 1_048_576.0);
}
