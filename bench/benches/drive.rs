//! How fast a whole drive is simulated: requests per second of processor time, on profile `generic`, one thread.
//!
//! `make bench` runs all cases, `make bench ARGS='-- reads'` those whose names contain a word. `--instructions` counts
//! instructions per request with callgrind instead: they repeat where seconds do not. These are measurements, not
//! tests: nothing fails for being slow.

use std::process::Command;
use tidewater_core::ftl::Precondition;
use tidewater_core::profile::builtin;
use tidewater_report::Record;
use tidewater_sim::run::{Pacing, RunOptions, run};
use tidewater_sim::workload::JobSpec;

struct Case {
    name: &'static str,
    profile: &'static str,
    job: &'static str,
    requests: u64,
    capacity_gib: u64,
    settings: &'static [(&'static str, &'static str)],
    precondition: Precondition,
    what: &'static str,
}

/// The log that a hybrid drive has by default, 7 % of its flash. The profile `slc-cbm` has one that suits traces of
/// half a GiB.
const LOG_OF_THE_DEFAULTS: &[(&str, &str)] =
    &[("ftl.log_blocks", "0"), ("ftl.log_write_points", "0"), ("ftl.merges_max", "4")];

/// 64 MiB of map for 64 GiB.
const MAPPED: &[(&str, &str)] = &[("ftl.map_memory", "dram"), ("ftl.map_size", "64MiB")];

const CASES: &[Case] = &[
    Case {
        name: "random-writes",
        profile: "generic",
        job: "rw=randwrite,bs=4k,iodepth=32,size=64g,norandommap=1",
        requests: 10_000_000,
        capacity_gib: 64,
        settings: &[("ftl.over_provisioning", "0.75")],
        precondition: Precondition::Filled(1.0),
        what: "4 KiB random writes over 64 GiB, filled before, so much flash that nothing is collected",
    },
    Case {
        name: "random-reads",
        profile: "generic",
        job: "rw=randread,bs=4k,iodepth=32,size=64g,norandommap=1",
        requests: 10_000_000,
        capacity_gib: 64,
        settings: &[],
        precondition: Precondition::Filled(1.0),
        what: "4 KiB random reads over 64 GiB, filled before",
    },
    Case {
        name: "mapped-reads",
        profile: "generic",
        job: "rw=randread,bs=4k,iodepth=32,size=64g,norandommap=1",
        requests: 10_000_000,
        capacity_gib: 64,
        settings: MAPPED,
        precondition: Precondition::Filled(1.0),
        what: "random-reads with a mapping cache that the whole map fits into: all but the first look-up of a page hit",
    },
    Case {
        name: "mapped-writes",
        profile: "generic",
        job: "rw=randwrite,bs=4k,iodepth=32,size=64g,norandommap=1",
        requests: 10_000_000,
        capacity_gib: 64,
        settings: &[("ftl.over_provisioning", "0.75"), MAPPED[0], MAPPED[1]],
        precondition: Precondition::Filled(1.0),
        what: "random-writes with such a cache",
    },
    Case {
        name: "mixed",
        profile: "generic",
        job: "rw=randrw,rwmixread=70,bs=4k,iodepth=32,size=64g,norandommap=1",
        requests: 10_000_000,
        capacity_gib: 64,
        settings: &[("ftl.over_provisioning", "0.75")],
        precondition: Precondition::Filled(1.0),
        what: "70 % reads, 30 % writes: programs are suspended for reads",
    },
    Case {
        name: "steady-writes",
        profile: "generic",
        job: "rw=randwrite,bs=4k,iodepth=32,size=64g,norandommap=1",
        requests: 10_000_000,
        capacity_gib: 64,
        settings: &[("ftl.over_provisioning", "0.07")],
        precondition: Precondition::Steady,
        what: "4 KiB random writes over 64 GiB in the steady state of collection at 7 % over-provisioning",
    },
    Case {
        name: "steady-pages",
        profile: "generic",
        job: "rw=randwrite,bs=4k,iodepth=32,size=64g,norandommap=1",
        requests: 3_000_000,
        capacity_gib: 64,
        settings: &[
            ("ftl.over_provisioning", "0.07"),
            ("nand.planes", "1"),
            ("nand.page_size", "4KiB"),
            ("nand.oob_size", "468"),
        ],
        precondition: Precondition::Steady,
        what: "the same on flash with pages of 4 KiB in one plane: an event of the flash carries one unit",
    },
    Case {
        name: "hybrid-writes",
        profile: "generic",
        job: "rw=randwrite,bs=4k,iodepth=32,size=64g,norandommap=1",
        requests: 10_000_000,
        capacity_gib: 64,
        settings: &[("ftl.mapping", "fast"), ("ftl.over_provisioning", "0.75")],
        precondition: Precondition::Filled(1.0),
        what: "4 KiB random writes over 64 GiB under FAST, filled before; the log takes them, and runs that break off \
               are merged",
    },
    Case {
        name: "hybrid-merges",
        profile: "generic",
        job: "rw=randwrite,bs=4k,iodepth=32,size=8g,norandommap=1",
        requests: 200_000,
        capacity_gib: 8,
        settings: &[
            ("ftl.mapping", "fast"),
            ("nand.planes", "1"),
            ("nand.page_size", "4KiB"),
            ("nand.oob_size", "468"),
            ("nand.pages_per_block", "64"),
        ],
        precondition: Precondition::Steady,
        what: "4 KiB random writes over 8 GiB under FAST with blocks of 256 KiB, a log of 7 %: about a full merge for \
               each write",
    },
    Case {
        name: "hybrid-paper",
        profile: "slc-cbm",
        job: "rw=randwrite,bs=4k,iodepth=32,size=64g,norandommap=1",
        requests: 3_000_000,
        capacity_gib: 0,
        settings: LOG_OF_THE_DEFAULTS,
        precondition: Precondition::Filled(1.0),
        what: "4 KiB random writes over 64 GiB of the CBM paper's drive: 320 GB of SLC, FAST, a log of 7 %, a buffer \
               of 32 MiB",
    },
    Case {
        name: "hybrid-skewed",
        profile: "slc-cbm",
        job: "rw=randwrite,bs=4k,iodepth=32,size=8g,norandommap=1,random_distribution=zipf:1.1",
        requests: 2_000_000,
        capacity_gib: 8,
        settings: &[
            ("nand.blocks_per_plane", "0"),
            ("drive.capacity", "8GiB"),
            LOG_OF_THE_DEFAULTS[0],
            LOG_OF_THE_DEFAULTS[1],
            LOG_OF_THE_DEFAULTS[2],
        ],
        precondition: Precondition::Steady,
        what: "skewed 4 KiB random writes over all of such a drive of 8 GiB, in the steady state: merges all the time",
    },
    Case {
        name: "terabytes",
        profile: "generic",
        job: "rw=randwrite,bs=4k,iodepth=32,size=64g,norandommap=1",
        requests: 30_000_000,
        capacity_gib: 2_048,
        settings: &[],
        precondition: Precondition::Fresh,
        what: "4 KiB random writes to 64 GiB of a drive of 2 TiB: memory for each page touched",
    },
];

fn simulate(case: &Case, requests: u64) -> Record {
    let mut profile = builtin(case.profile).expect("the profile of a case is built in");
    for (key, value) in case.settings {
        profile.set(key, value).expect("the settings of a case are valid");
    }
    let job = JobSpec::from_inline(case.job).expect("the job of a case is valid");
    let mut options = RunOptions { limit: Some(requests), pacing: Pacing::Depth(32), ..RunOptions::default() };
    options.device.capacity = case.capacity_gib << 30;
    options.device.precondition = case.precondition;
    run(&profile, job.source(None, 1).expect("the job gives its size"), options).expect("a case runs to its end").record
}

fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<f64>().ok()).map_or(0.0, |kib| kib / 1024.0)
}

/// Events of a simulator whose events carry one unit each: a command's own (of a read, that it leaves the pipeline and
/// that it completes; of a write, that its data has come, too), and for each unit that is programmed or read its time
/// on the channel and in the array. An event of this simulator carries up to a row of units.
fn steps(record: &Record) -> f64 {
    let requests = |operation: &str| record.requests_by_operation.get(operation).copied().unwrap_or(0);
    let flash = &record.flash;
    let units = flash.units_total() + flash.reads_host + flash.units_collected;
    (2 * requests("read") + 3 * requests("write") + 2 * units) as f64
}

fn measure(case: &Case) {
    let record = simulate(case, case.requests);
    let (n, cpu) = (record.requests as f64, record.user_cpu_seconds);
    println!(
        "{:<14} {:>6.2} M requests/s  {:>6.0} ns/request  {:>5.0} ns/event  {:>5.2} events/request  {:>4.0} ns/step  \
         {:>5.2} write amplification  {:>6.0} MiB peak",
        case.name,
        n / cpu / 1e6,
        cpu / n * 1e9,
        cpu / (n * record.events_per_request) * 1e9,
        record.events_per_request,
        cpu / steps(&record) * 1e9,
        record.write_amplification,
        peak_mib(),
    );
}

/// Instructions of a child that simulates one case.
fn instructions(name: &str, requests: u64) -> Option<f64> {
    let me = std::env::current_exe().ok()?;
    let child = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(me)
        .args(["--only", name, &requests.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&child.stderr).into_owned();
    let line = text.lines().find(|l| l.contains("Collected"))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn count(case: &Case) {
    // The difference of two runs: what comes before the first request cancels out.
    let (few, many) = (100_000, 300_000);
    match (instructions(case.name, few), instructions(case.name, many)) {
        (Some(a), Some(b)) => {
            println!("{:<14} {:>6.0} instructions/request", case.name, (b - a) / (many - few) as f64);
        }
        _ => println!("{:<14} SKIPPED: valgrind is not installed, or does not know this processor", case.name),
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    if let [only, name, requests] = &arguments[..]
        && only == "--only"
    {
        let case = CASES.iter().find(|c| c.name == name).expect("a case of that name");
        simulate(case, requests.parse().expect("a number of requests"));
        return;
    }
    let counting = arguments.iter().any(|a| a == "--instructions");
    let words: Vec<&String> = arguments.iter().filter(|a| !a.starts_with("--")).collect();
    for case in CASES.iter().filter(|c| words.is_empty() || words.iter().any(|w| c.name.contains(w.as_str()))) {
        if counting {
            count(case);
        } else if words.len() == 1 && words[0] == case.name {
            println!("{}: {}", case.name, case.what);
            measure(case);
        } else {
            // A process for each, so that one's memory is not counted for the next.
            let me = std::env::current_exe().expect("the program's path is known");
            let status = Command::new(me).arg(case.name).status().expect("the program can be run again");
            assert!(status.success(), "{} failed", case.name);
        }
    }
}
