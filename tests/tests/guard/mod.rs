//! The guard of behaviour: what the built binary writes for fixed drives, loads and seeds stays equal byte for byte.
//!
//! The text files beside this hold two checksums for each run: of the record (JSON) and of the line of each request. A
//! change of structure leaves them as they are. A mended fault may change them:
//! `UPDATE_GOLDEN=1 cargo test -p tidewater-tests --test simulations guard` writes them anew, and the commit names the
//! fault.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use tidewater_base::checksum::crc32c;
use tidewater_tests::{root, run_well};

/// Keys measured from outside, or about the making of the record: no behaviour of the drive.
const LEFT_OUT: [&str; 6] =
    ["wall_seconds", "user_cpu_seconds", "bytes_per_touched_page", "tool_version", "warnings", "memory"];

/// A load that every built-in drive runs: its name, its job, the drive's past, and further options.
struct Load {
    name: &'static str,
    job: &'static str,
    past: &'static str,
    more: &'static [&'static str],
}

const LOADS: [Load; 6] = [
    Load {
        name: "steady-writes",
        job: "rw=randwrite,bs=4k,iodepth=16,size=100%,number_ios=4000,norandommap",
        past: "steady",
        more: &[],
    },
    Load {
        name: "mixed",
        job: "rw=randrw,rwmixread=60,bssplit=512/10:4k/60:64k/30,iodepth=8,size=100%,number_ios=2500,fsync=40,\
              random_distribution=zipf:0.9,norandommap",
        past: "filled:70%",
        more: &[],
    },
    Load { name: "reads", job: "rw=randread,bs=4k,iodepth=32,size=100%,number_ios=4000", past: "filled", more: &[] },
    Load {
        name: "synced-writes",
        job: "rw=write,bs=8k,sync=1,iodepth=4,size=100%,number_ios=1500",
        past: "fresh",
        more: &[],
    },
    Load { name: "trims", job: "rw=randtrim,bs=16k,iodepth=4,size=100%,number_ios=1500", past: "filled", more: &[] },
    Load {
        name: "power-cut",
        job: "rw=randwrite,bs=4k,iodepth=8,size=100%,number_ios=20000,norandommap",
        past: "steady",
        more: &["--power-cut", "15ms"],
    },
];

/// Mechanisms that no built-in drive, or only one, has turned on: the drive, its settings and its load.
const MECHANISMS: [(&str, &str, &[&str], usize); 8] = [
    ("hybrid", "generic", &["ftl.mapping=faster", "ftl.log_blocks=64"], 0),
    ("hybrid-cut", "generic", &["ftl.mapping=fast", "ftl.log_blocks=64"], 5),
    ("mapping-cache", "tlc-client", &["ftl.map_size=64KiB"], 1),
    ("one-stream", "generic", &["ftl.gc_stream=false"], 0),
    ("slc-fold", "tlc-client", &["slc.size=16MiB"], 0),
    ("buffer-cbm", "generic", &["buffer.write_policy=cbm", "buffer.write_size=1MiB", "buffer.read_policy=lru"], 1),
    ("buffer-fab", "generic", &["buffer.write_policy=fab", "buffer.write_size=1MiB"], 1),
    (
        "worn",
        "tiny",
        &[
            "nand.endurance=100",
            "nand.rber_fresh=3e-3",
            "nand.rber_worn=9e-3",
            "nand.program_fail_rate=1e-4",
            "nand.erase_fail_rate=1e-3",
        ],
        1,
    ),
];

/// Studies of the papers' sides, a tenth of each.
const EXPERIMENTS: [&str; 6] =
    ["x-ssd/fig10", "x-ssd/fig13", "2b-ssd/write-latency", "2b-ssd/read-latency", "byte-sides", "hmb/fig8"];

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn without_what_differs(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !LEFT_OUT.contains(&name.as_str()));
            fields.values_mut().for_each(without_what_differs);
        }
        Value::Array(values) => values.iter_mut().for_each(without_what_differs),
        _ => {}
    }
}

/// The checksum of a JSON file, less what differs between runs.
fn checksum(path: &Path) -> u32 {
    let text = std::fs::read_to_string(path).expect("the record was written");
    let mut value: Value = serde_json::from_str(&text).expect("a record is JSON");
    without_what_differs(&mut value);
    crc32c(value.to_string().as_bytes())
}

fn replay(profile: &str, settings: &[&str], load: &Load) -> String {
    let folder = folder();
    let capacity = if profile == "tiny" { "2MiB" } else { "128MiB" };
    let mut arguments = vec!["replay", "--profile", profile, "--capacity", capacity, "--seed", "7"];
    arguments.extend(["--job", load.job, "--precondition", load.past, "--json", "record.json"]);
    arguments.extend(["--requests", "requests.csv"]);
    arguments.extend(load.more);
    settings.iter().for_each(|setting| arguments.extend(["--set", setting]));
    run_well(folder.path(), &arguments);
    let requests = std::fs::read(folder.path().join("requests.csv")).expect("a line for each request");
    format!("{:08x} {:08x}", checksum(&folder.path().join("record.json")), crc32c(&requests))
}

/// Holds `found` against the committed file, or writes that anew.
fn hold(name: &str, found: &str) {
    let path: PathBuf = root().join("tests/tests/guard").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, found).expect("the checkout can be written");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let lines = found.lines().zip(expected.lines());
    let changed: Vec<_> = lines.filter(|(found, expected)| found != expected).collect();
    assert!(
        found == expected,
        "{}: behaviour has changed ({} lines against {}): {changed:#?}\nIf a mended fault is the reason: \
         UPDATE_GOLDEN=1 cargo test -p tidewater-tests --test simulations guard",
        path.display(),
        found.lines().count(),
        expected.lines().count()
    );
}

#[test]
fn every_built_in_drive_gives_its_records() {
    let mut names: Vec<_> = std::fs::read_dir(root().join("profiles"))
        .expect("the checkout has profiles")
        .map(|entry| entry.expect("an entry").path())
        .filter_map(|path| path.file_stem().and_then(|name| name.to_str()).map(str::to_owned))
        .collect();
    names.sort();
    let mut found = String::new();
    for profile in &names {
        for load in &LOADS {
            writeln!(found, "{profile} {}: {}", load.name, replay(profile, &[], load)).expect("a string takes all");
        }
    }
    hold("records.txt", &found);
}

#[test]
fn every_mechanism_gives_its_records() {
    let mut found = String::new();
    for (name, profile, settings, load) in MECHANISMS {
        writeln!(found, "{name}: {}", replay(profile, settings, &LOADS[load])).expect("a string takes all");
    }
    hold("mechanisms.txt", &found);
}

#[test]
fn the_byte_sides_give_their_records() {
    let (folder, mut found) = (folder(), String::new());
    for (name, more) in [("log", ["--seconds", "0.05"]), ("log-wait", ["--workers", "3"])] {
        let sides = ["log", "--to", "none,memory,fast,conventional", "--seed", "7", "--json", "log.json"];
        let wait: &[&str] = if name == "log-wait" { &["--wait", "--seconds", "0.02"] } else { &[] };
        run_well(folder.path(), &[&sides[..], &more[..], wait].concat());
        writeln!(found, "{name}: {:08x}", checksum(&folder.path().join("log.json"))).expect("a string takes all");
    }
    for name in EXPERIMENTS {
        let arguments = ["experiment", "run", name, "--quick", "--json", "rows.json"];
        let run = tidewater_tests::run(folder.path(), &arguments);
        // 3: a check does not hold, which a tenth of a run may do.
        assert!(matches!(run.status.code(), Some(0 | 3)), "{name}: {}", String::from_utf8_lossy(&run.stderr));
        writeln!(found, "{name}: {:08x}", checksum(&folder.path().join("rows.json"))).expect("a string takes all");
    }
    hold("sides.txt", &found);
}

/// `make torture` builds with optimization, and so the binary that this runs.
#[test]
#[ignore = "another build: make torture"]
fn an_optimized_build_gives_the_same_records() {
    every_built_in_drive_gives_its_records();
    every_mechanism_gives_its_records();
    the_byte_sides_give_their_records();
}
