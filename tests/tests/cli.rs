//! The built binary, as a user meets it: in a folder of its own, outside of the checkout.

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;
use tidewater_tests::{at, binary, install, root, run, run_refused, run_well};

/// A job that is done in no time.
const JOB: &str = "rw=randrw,rwmixread=30,bs=4k,iodepth=8,size=8m,number_ios=20000";

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

fn record(text: &str) -> Value {
    serde_json::from_str(text).expect("standard output holds one JSON record and nothing else")
}

/// A record without what differs between two runs by nature.
fn repeatable(mut record: Value) -> Value {
    let fields = record.as_object_mut().expect("a record is an object");
    for measured in ["wall_seconds", "user_cpu_seconds", "bytes_per_touched_page"] {
        fields.remove(measured);
    }
    record
}

fn write(folder: &TempDir, name: &str, content: impl AsRef<[u8]>) {
    std::fs::write(folder.path().join(name), content).expect("the temporary folder can be written");
}

/// The names of all files in `folder`, hidden and temporary ones as well.
fn names(folder: &TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path()).expect("the temporary folder can be read");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// `requests` SPC lines: writes of 4 KiB, one page after the other, a millisecond apart.
fn spc(requests: u64) -> String {
    (0..requests).map(|i| format!("0,{},4096,W,{:.3}\n", i * 8, i as f64 / 1000.0)).collect()
}

#[test]
fn the_sample_replays_into_a_report_and_a_record() {
    let folder = folder();
    run_well(
        folder.path(),
        &["replay", "--trace", "sample", "--report", "report.html", "--json", "run.json", "--requests", "requests.csv"],
    );
    assert_eq!(names(&folder), ["report.html", "requests.csv", "run.json"]);
    let run = record(&std::fs::read_to_string(folder.path().join("run.json")).expect("the record"));
    let requests = at(&run, "requests").as_u64().expect("a count");
    assert!(requests > 0);
    let csv = std::fs::read_to_string(folder.path().join("requests.csv")).expect("the requests");
    assert_eq!(csv.lines().count() as u64, requests + 1, "one line per request, and a heading");
}

#[test]
fn the_record_has_what_was_promised() {
    let text = run_well(folder().path(), &["replay", "--job", JOB, "--json", "-"]);
    let run = record(&text);
    for path in ["requests", "erases"] {
        assert!(at(&run, path).is_u64(), "{path}: {}", at(&run, path));
    }
    let figures = ["simulated_seconds", "wall_seconds", "iops", "write_amplification"];
    let nested = ["write_buffer.hit_ratio", "read_cache.hit_ratio", "destage_length_pages.mean"];
    for path in figures.iter().chain(&nested) {
        assert!(at(&run, path).is_number(), "{path}: {}", at(&run, path));
    }
    for operation in ["read", "write"] {
        let mut last = 0.0;
        for figure in ["p50", "p90", "p99", "p999", "max"] {
            let path = format!("latency_us.{operation}.{figure}");
            let value = at(&run, &path).as_f64().unwrap_or_else(|| panic!("{path} is missing"));
            assert!(value >= last, "{path} is less than the percentile below it");
            last = value;
        }
        let mean = at(&run, &format!("latency_us.{operation}.mean")).as_f64().expect("a mean");
        assert!(mean > 0.0 && mean <= last);
    }
    assert_eq!(at(&run, "requests").as_u64(), Some(20_000));
    assert_eq!(at(&run, "partial"), &Value::Bool(false));
}

#[test]
fn a_run_is_silent_when_piped() {
    let output = run(folder().path(), &["replay", "--job", JOB, "--json", "-"]);
    assert!(output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!errors.contains('\r') && !errors.contains('\u{1b}'), "control signs without a terminal: {errors:?}");
}

#[test]
fn the_same_seed_gives_the_same_record_and_another_seed_another() {
    let folder = folder();
    let arguments = ["replay", "--job", JOB, "--seed", "7", "--json", "-"];
    let first = repeatable(record(&run_well(folder.path(), &arguments)));
    let second = repeatable(record(&run_well(folder.path(), &arguments)));
    assert_eq!(first, second);
    let other = ["replay", "--job", JOB, "--seed", "8", "--json", "-"];
    let other = repeatable(record(&run_well(folder.path(), &other)));
    assert_ne!(first["latency_us"], other["latency_us"], "another seed is another run");
}

#[test]
fn the_binary_alone_is_enough() {
    let folder = folder();
    let installed = folder.path().join("tidewater");
    install(binary(), &installed);
    // No variable of the build, no home, no checkout: profiles and samples are compiled in.
    let output = Command::new(&installed)
        .args(["replay", "--trace", "sample", "--report", "report.html"])
        .env_clear()
        .current_dir(folder.path())
        .stdin(std::process::Stdio::null())
        .output()
        .expect("the binary starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(names(&folder), ["report.html", "tidewater"]);
    let summary = String::from_utf8_lossy(&output.stdout);
    assert!(summary.contains("report.html"), "the summary says where the report is: {summary}");
}

#[test]
fn every_profile_can_be_shown_checked_and_used_from_a_file() {
    let folder = folder();
    let list = run_well(folder.path(), &["profile", "list"]);
    let profiles: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(profiles.contains(&"generic"), "{list}");
    for name in profiles {
        let shown = run_well(folder.path(), &["profile", "show", name]);
        write(&folder, "mine.toml", &shown);
        run_well(folder.path(), &["profile", "check", "mine.toml"]);
        let by_name = run_well(folder.path(), &["replay", "--profile", name, "--job", JOB, "--json", "-"]);
        let by_path = run_well(folder.path(), &["replay", "--profile", "mine.toml", "--job", JOB, "--json", "-"]);
        assert_eq!(
            record(&by_name)["latency_us"],
            record(&by_path)["latency_us"],
            "{name}: what is shown is what is used"
        );
    }
}

#[test]
fn a_knob_over_seeds_is_told_by_medians_and_a_csv_has_every_run() {
    let folder = folder();
    let vary = ["compare", "--vary", "nand.channels=2,8", "--vary", "seed=1..3", "--job", JOB, "--csv"];
    let table = run_well(folder.path(), &[&vary[..], &["runs.csv"]].concat());
    let medians = table.find("Over seeds: ").expect(&table);
    assert!(table[medians..].contains("\nEach run:\n") && table.contains("channels=8 (3 seeds)"), "{table}");
    let csv = std::fs::read_to_string(folder.path().join("runs.csv")).expect("the figures");
    // The load has commas of its own, and so its field has quotes.
    let plain = csv.replace(&format!("\"{JOB}\""), "job");
    let rows: Vec<Vec<&str>> = plain.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 7, "{csv}");
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{csv}");
    for column in ["seed", "nand.channels", "iops", "mean_response_us", "flash_written_per_host_byte"] {
        assert!(rows[0].contains(&column), "{csv}");
    }
    // On standard output it stands alone.
    assert_eq!(run_well(folder.path(), &[&vary[..], &["-"]].concat()), csv);
}

/// A fault that only a run finds comes after runs that may have taken long.
#[test]
fn a_run_that_cannot_be_done_costs_no_others() {
    let folder = folder();
    let arguments = ["compare", "--job", JOB, "--vary", "queue-depth=8,60000,1", "--json", "c.json"];
    let output = run(folder.path(), &arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("queue-depth=60000: ") && message.contains("2 of 3 runs"), "{message}");
    let runs = record(&std::fs::read_to_string(folder.path().join("c.json")).expect("the records"));
    assert_eq!(runs.as_array().map(Vec::len), Some(2));
}

#[test]
fn compare_makes_one_table_and_one_page_for_a_knob() {
    let folder = folder();
    let vary = ["compare", "--vary", "nand.channels=2,8", "--job", JOB, "--report", "compare.html"];
    let table = run_well(folder.path(), &vary);
    let has = |value: &str| table.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == value);
    assert!(has("2") && has("8") && table.contains("channels"), "{table}");
    let page = std::fs::read_to_string(folder.path().join("compare.html")).expect("the page");
    assert!(page.contains("nand.channels"));
}

#[test]
fn trace_info_tells_what_is_in_a_trace() {
    let folder = folder();
    write(&folder, "t.spc", spc(1000));
    let info = record(&run_well(folder.path(), &["trace", "info", "t.spc", "--format", "spc", "--json", "-"]));
    let figure = |path: &str| at(&info, path).as_f64().unwrap_or_else(|| panic!("{path} is missing"));
    assert_eq!(figure("requests"), 1000.0);
    assert_eq!(figure("mean_kib"), 4.0);
    assert_eq!(figure("write_percent"), 100.0);
    assert!(figure("sequential_percent") > 99.0);
    assert!((figure("mean_interarrival_ms") - 1.0).abs() < 0.01);
    assert!((figure("footprint_mib") - 1000.0 * 4.0 / 1024.0).abs() < 0.1);
}

#[test]
fn help_has_examples() {
    for arguments in [&["--help"][..], &["replay", "--help"], &["compare", "--help"], &["trace", "--help"]] {
        let help = run_well(folder().path(), arguments);
        assert!(help.to_lowercase().contains("example"), "{arguments:?}:\n{help}");
    }
}

#[test]
fn a_malformed_line_is_named_by_file_line_and_column() {
    let folder = folder();
    write(&folder, "bad.spc", format!("{}0,x12,4096,W,0.1\n{}", spc(2), "0,800,4096,R,0.2\n"));
    let replay = ["replay", "--format", "spc", "--trace", "bad.spc", "--json", "run.json"];
    let message = run_refused(folder.path(), &replay);
    assert!(message.contains("bad.spc:3:3"), "{message}");
    assert_eq!(names(&folder), ["bad.spc"], "nothing is left half-written");

    let skipping = run_well(folder.path(), &[&replay[..], &["--skip-bad"]].concat());
    let run = record(&std::fs::read_to_string(folder.path().join("run.json")).expect("the record"));
    assert_eq!(at(&run, "requests").as_u64(), Some(3), "{skipping}");
}

#[test]
fn what_is_no_trace_is_refused() {
    let folder = folder();
    write(&folder, "empty", "");
    // Bytes of a simple generator: no text, no known magic number.
    let mut state = 1u32;
    let mut noise = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    write(&folder, "noise", (0..20_000).map(|_| noise()).collect::<Vec<u8>>());
    // Five columns of numbers: at least four formats, which differ in units and in which digit means write.
    write(&folder, "columns", "0 0 128 8 0\n1000 0 256 8 1\n2000 0 1024 8 1\n");
    write(&folder, "cut.zst", [0x28, 0xb5, 0x2f, 0xfd, 0x04]);
    for trace in ["empty", "noise", "columns", "cut.zst", "absent"] {
        let message =
            run_refused(folder.path(), &["replay", "--trace", trace, "--report", "r.html", "--json", "r.json"]);
        assert!(message.contains(trace), "{message}");
        if trace == "columns" {
            assert!(message.contains("--format") && message.contains("mqsim"), "{message}");
        }
    }
    assert_eq!(names(&folder), ["columns", "cut.zst", "empty", "noise"], "nothing is left half-written");
}

#[test]
fn impossible_drives_are_refused_with_the_way_out() {
    let folder = folder();
    for (set, word) in [
        ("nand.channels=0", "channels"),
        ("nand.chanels=16", "channels"),
        ("nand.channels=many", "channels"),
        ("nands.channels=8", "nand"),
        ("ftl.over_provisioning=7", "over_provisioning"),
    ] {
        let message = run_refused(folder.path(), &["replay", "--set", set, "--job", JOB, "--json", "-"]);
        assert!(message.contains(word), "{set}: {message}");
    }
    let message = run_refused(folder.path(), &["replay", "--profile", "genric", "--job", JOB]);
    assert!(message.contains("generic"), "a suggestion: {message}");
    write(&folder, "bad.toml", "[nand]\nchanels = 8\n");
    let message = run_refused(folder.path(), &["profile", "check", "bad.toml"]);
    assert!(message.contains("bad.toml:2") && message.contains("channels"), "{message}");
    // Too small to distinguish two places.
    let message = run_refused(folder.path(), &["probe", "generic", "--capacity", "7MiB"]);
    assert!(message.contains("generic: too small to probe") && message.contains("at least 8 MiB"), "{message}");
}

#[test]
fn addresses_beyond_a_drive_of_given_size_are_refused_or_wrapped() {
    let folder = folder();
    write(&folder, "far.spc", format!("{}0,{},4096,W,1.0\n", spc(4), 1u64 << 31));
    let replay =
        ["replay", "--format", "spc", "--trace", "far.spc", "--set", "drive.capacity=1GiB", "--json", "run.json"];
    let message = run_refused(folder.path(), &replay);
    assert!(message.contains("far.spc:5") && message.contains("--wrap"), "{message}");
    run_well(folder.path(), &[&replay[..], &["--wrap"]].concat());
}

/// A command under `bash`, whose first argument `$0` is the binary.
fn bash(folder: &Path, script: &str) -> Command {
    let mut bash = Command::new("bash");
    bash.args(["-c", script]).arg(binary()).current_dir(folder).stdin(std::process::Stdio::null());
    bash
}

#[test]
fn a_full_disk_leaves_nothing_half_written() {
    let folder = folder();
    // Files may not grow beyond 4 KiB, and the signal that would tell so is ignored: writing fails, as on a full disk.
    let script = format!("trap '' XFSZ; ulimit -f 4; exec \"$0\" replay --job {JOB} --report report.html");
    let output = bash(folder.path(), &script).output().expect("bash starts");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code != 0), "{}: {message}", output.status);
    assert!(message.contains("report.html") && !message.contains("panicked"), "{message}");
    assert_eq!(names(&folder), Vec::<String>::new());
}

#[test]
fn a_full_disk_costs_no_results() {
    let folder = folder();
    for (command, said) in [("replay", "IOPS"), ("compare --vary nand.channels=2,4", "channels=4")] {
        // As above. The record does not fit either, and the message names both.
        let script = format!(
            "trap '' XFSZ; ulimit -f 4; exec \"$0\" {command} --job {JOB} --report report.html --json record.json"
        );
        let output = bash(folder.path(), &script).output().expect("bash starts");
        let (table, message) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(table.contains(said), "the measurement is printed all the same: {table}");
        assert!(message.contains("report.html") && message.contains("record.json"), "{message}");
        assert!(message.contains("nothing half-written was left"), "{message}");
        assert_eq!(names(&folder), Vec::<String>::new());
    }
}

#[test]
fn a_profile_file_that_is_not_there_is_told_with_the_way_out() {
    let folder = folder();
    for (profile, help) in [("./none.toml", "profile show generic > ./none.toml"), ("./tiny.toml", "`tiny`")] {
        let message = run_refused(folder.path(), &["replay", "--profile", profile, "--job", JOB]);
        assert!(message.contains("No such file") && message.contains(help), "{message}");
    }
}

#[test]
fn a_drive_from_a_file_is_called_by_its_file_and_tells_what_differs() {
    let folder = folder();
    write(&folder, "k.toml", "[nand]\nchannels = 4\n");
    let summary = run_well(folder.path(), &["replay", "--profile", "k.toml", "--job", JOB, "--json", "run.json"]);
    for words in ["k.toml, ", "4 channels x 8 dies", "(from generic; changed: nand.channels=4)"] {
        assert!(summary.contains(words), "{words} in {summary}");
    }
    assert!(!summary.contains("8 channels"), "{summary}");
    // The record has what makes the run again, and a record has every value.
    let run = record(&std::fs::read_to_string(folder.path().join("run.json")).expect("the record"));
    assert_eq!((at(&run, "profile.name"), at(&run, "profile.changed")), (&"k.toml".into(), &Value::Array(vec![])));
    assert_eq!(run["profile"]["settings"]["nand.channels"], "4");
    // A profile that was shown with a change is a file that names it; a setting on top is named with it.
    let shown = run_well(folder.path(), &["profile", "show", "tiny", "--set", "nand.channels=4"]);
    write(&folder, "mine.toml", shown);
    let checked = run_well(folder.path(), &["profile", "check", "mine.toml", "--set", "nand.ways=1"]);
    assert!(checked.starts_with("mine.toml: ok, ") && checked.contains("4 channels x 1 die, "), "{checked}");
    assert!(checked.contains("(from tiny; changed: nand.channels=4, nand.ways=1)"), "{checked}");
    let named = run_well(folder.path(), &["replay", "--set", "nand.channels=64", "--job", JOB]);
    assert!(named.contains("64 channels x 8 dies") && named.contains("changed: nand.channels=64"), "{named}");
}

#[test]
fn a_size_without_its_unit_does_not_switch_a_buffer_off() {
    let message = run_refused(folder().path(), &["replay", "--set", "buffer.write_size=16", "--job", JOB]);
    assert!(message.contains("16B are less than the 4KiB") && message.contains("16MiB"), "{message}");
}

/// The profile that a user names as the drive, made by hand, is not the place of results.
#[test]
fn no_result_takes_the_place_of_the_profile_that_it_is_of() {
    let folder = folder();
    let profile = run_well(folder.path(), &["profile", "show", "villars"]);
    let compare = ["compare", "--job", JOB, "--vary", "seed=1,2"];
    let vary = ["compare", "--job", JOB, "--vary", "profile=mine.toml,tiny"];
    for (command, flag) in [
        (&["replay", "--job", JOB, "--profile", "mine.toml"][..], "--json"),
        (&[&compare[..], &["--profile", "mine.toml"]].concat(), "--csv"),
        (&vary, "--report"),
        (&["log", "--profile", "mine.toml"], "--json"),
        (&["probe", "mine.toml"], "--report"),
    ] {
        write(&folder, "mine.toml", &profile);
        let message = run_refused(folder.path(), &[command, &[flag, "./mine.toml"]].concat());
        assert!(message.contains("is the input, and would be overwritten"), "{command:?}: {message}");
        assert_eq!(std::fs::read_to_string(folder.path().join("mine.toml")).expect("the file can be read"), profile);
    }
}

#[test]
fn results_are_told_apart_by_their_places_and_not_by_their_names() {
    let folder = folder();
    let message = run_refused(folder.path(), &["replay", "--job", JOB, "--json", "r", "--report", "./r"]);
    assert!(message.contains("two results cannot both go to ./r"), "{message}");
}

#[test]
fn what_is_given_twice_or_has_no_effect_is_refused() {
    let folder = folder();
    run_well(folder.path(), &["replay", "--job", JOB, "--json", "r.json"]);
    for (line, words) in [
        ("replay --capacity 64MiB --set drive.capacity=128MiB --job rw=read", "the capacity is given twice"),
        ("probe generic --capacity 1GiB --set drive.capacity=2GiB", "the capacity is given twice"),
        ("compare --capacity 1GiB --vary drive.capacity=1GiB,2GiB --job rw=read", "given by --capacity too"),
        ("report r.json --title T -o r.html", "--title applies to the page of a comparison"),
        ("report r.json r.json --title T", "--output"),
        ("log --bytes 4KiB", "--bytes applies to the mix `fixed`"),
        ("log --log x.csv --transaction-time 5us", "cannot be used with"),
        ("probe generic --plan --json -", "cannot be used with"),
        ("probe generic --stages host-memory", "alone it has nothing to measure"),
        ("experiment run x-ssd/movements --traces nowhere", "nowhere: no such directory"),
        ("experiment run mqsim --mqsim nowhere", "nowhere: no such directory"),
        ("trace synth a.spc --like financial --format msr", "--format is that of a trace"),
        ("report /dev/zero", "/dev/zero: is a device"),
    ] {
        let message = run_refused(folder.path(), &line.split(' ').collect::<Vec<_>>());
        assert!(message.contains(words), "{line}: {message}");
    }
    assert_eq!(names(&folder), ["r.json"]);
}

#[test]
fn every_profile_is_checked_and_every_wrong_one_told() {
    let folder = folder();
    write(&folder, "odd.toml", "[nand]\nchannels = 0\n");
    let output = run(folder.path(), &["profile", "check", "none.toml", "tiny", "odd.toml", "--set", "host.queues=4"]);
    let (said, message) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(said.starts_with("tiny: ok, ") && said.lines().count() < 4, "{said}");
    assert!(message.contains("error: none.toml: ") && message.contains("error: odd.toml:"), "{message}");
}

#[test]
fn a_slice_without_requests_is_refused() {
    let folder = folder();
    for line in [
        "trace info sample --slice 30000..",
        "trace convert sample a.spc --slice 30000..",
        "replay --trace sample --slice 30000..",
    ] {
        let message = run_refused(folder.path(), &line.split(' ').collect::<Vec<_>>());
        assert!(message.contains("the slice is empty"), "{line}: {message}");
    }
    assert_eq!(names(&folder), Vec::<String>::new());
}

#[test]
fn a_drive_to_probe_that_is_not_there_is_no_profile_to_make() {
    let folder = folder();
    for target in ["/dev/nvme77n1", "disk.img", "none/at-all"] {
        let message = run_refused(folder.path(), &["probe", target]);
        assert!(message.contains("No such file") && !message.contains("makes a file"), "{message}");
    }
    assert!(run_refused(folder.path(), &["probe", "genric"]).contains("did you mean `generic`"));
    write(&folder, "disk.img", vec![0u8; 16 << 20]);
    let message = run_refused(folder.path(), &["probe", "disk.img", "--precondition", "steady"]);
    assert!(message.contains("--precondition are for profiles"), "{message}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_record_into_a_full_pipe_is_a_failure_in_words() {
    let output = bash(folder().path(), &format!("exec \"$0\" replay --job {JOB} --json - >/dev/full"))
        .output()
        .expect("bash starts");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code != 0), "{}", output.status);
    assert!(!message.is_empty() && !message.contains("panicked"), "{message}");
}

#[test]
fn ctrl_c_leaves_a_partial_record_that_says_so() {
    let endless = JOB.replace("number_ios=20000", "number_ios=1000000000000");
    let stopped = |seconds: u64| {
        let folder = folder();
        let script = format!(
            "exec timeout --preserve-status --signal=INT --kill-after=600 {seconds} \
             \"$0\" replay --job {endless} --json run.json"
        );
        let output = bash(folder.path(), &script).output().expect("bash starts");
        (folder, output)
    };
    // A machine that is busy may not have begun with the requests after so long.
    let has_begun = |folder: &TempDir| {
        let text = std::fs::read_to_string(folder.path().join("run.json")).unwrap_or_default();
        !text.is_empty() && at(&record(&text), "requests").as_u64().is_some_and(|requests| requests > 0)
    };
    let (folder, output) =
        [3, 12, 48].into_iter().map(stopped).find(|(folder, _)| has_begun(folder)).unwrap_or_else(|| stopped(200));
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && !message.contains("panicked"), "{}: {message}", output.status);
    assert_eq!(names(&folder), ["run.json"], "{message}");
    let run = record(&std::fs::read_to_string(folder.path().join("run.json")).expect("the record"));
    assert_eq!(at(&run, "partial"), &Value::Bool(true));
    assert!(at(&run, "requests").as_u64().is_some_and(|requests| requests > 0));
}

/// Jobs in the shapes that fio's own examples have: each runs, or is refused in words that name the key.
#[test]
fn jobs_in_the_shapes_of_fios_examples_run_or_are_refused_in_words() {
    let folder = folder();
    for (at, (job, requests)) in [
        ("[a] ; one\nrw=randread\nbs=4k\t# small\nsize=4m\nioengine=libaio\ndirect=1\niodepth=16\n", 1_024),
        ("[global]\nstonewall=0\nrw=write\nbs=64k\nsize=4m\n[a]\nstonewall\n[b]\noffset=4m\n", 128),
        ("[a]\nrw=randwrite\nbs=4k\nsize=1m\nverify=crc32c\nverify_fatal=1\n", 512),
        ("[a]\nrw=trimwrite\nbs=4k\nsize=1m\n", 512),
        ("[a]\nrw=randread:8\nbssplit=4k/50:8k/50\nblockalign=4k\nnorandommap\nsize=4m\nnumber_ios=300\n", 300),
        ("[a]\nrw=write:4k\nbs=4k\nsize=1m\n", 256),
        (
            "[a]\nrw=randrw\nrwmixread=70\nbs=4k,8k\nsize=4m\nnumber_ios=200\nrandom_distribution=zoned:60/10:40/90\n",
            200,
        ),
        ("[a]\nrw=randwrite\nbs=4k\nsize=25%\nnumjobs=4\noffset_increment=25%\nnumber_ios=50\n", 200),
    ]
    .into_iter()
    .enumerate()
    {
        write(&folder, "job.fio", job);
        let text = run_well(folder.path(), &["replay", "--job", "job.fio", "--capacity", "64MiB", "--json", "-"]);
        assert_eq!(at_requests(&text), requests, "{at}: {job}");
    }
    for (job, words) in [
        ("[a]\nrw=read\n[b]\nstonewall\nrw=write\n", "put the phases into files of their own"),
        ("[a]\nioengine=net\nhostname=x\n", "\"net\" does not read and write the blocks"),
        ("[a]\nzonemode=zbd\nrw=write\n", "zoned devices are not modelled"),
        ("[a]\nrw=write\nsize=1g\n", "the job reaches up to 1 GiB"),
        ("[a]\nrw=read\nthinktime=100\n", "use rate or rate_iops"),
        ("[a]\nrw=read\niodpeth=4\n", "did you mean \"iodepth\"?"),
    ] {
        write(&folder, "job.fio", job);
        let replay = ["replay", "--job", "job.fio", "--capacity", "64MiB", "--json", "run.json"];
        let message = run_refused(folder.path(), &replay);
        assert!(message.contains(words), "{message}");
    }
}

fn at_requests(text: &str) -> u64 {
    at(&record(text), "requests").as_u64().expect("a count")
}

/// The commit that `--version` of a release build names comes from the checkout, in each form that its branch may have
/// there; a debug build has none.
#[test]
fn the_version_has_the_commit_of_a_release_build() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = folder.path().join("script");
    let rustc = Path::new(env!("CARGO")).with_file_name("rustc");
    let source = root().join("crates/cli/build.rs");
    let built =
        Command::new(rustc).args(["--edition=2024", "-o"]).arg(&script).arg(source).output().expect("it starts");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let checkout = folder.path().join("checkout");
    let package = checkout.join("crates/cli");
    std::fs::create_dir_all(&package).expect("the folder can be made");
    let version = |profile: &str, given: &str| {
        let mut run = Command::new(&script);
        run.env("CARGO_MANIFEST_DIR", &package).env("CARGO_PKG_VERSION", "0.1.0").env("PROFILE", profile);
        let output = run.env("TIDEWATER_COMMIT", given).output().expect("it starts");
        let text = String::from_utf8(output.stdout).expect("it is text");
        text.lines().find_map(|line| Some(line.strip_prefix("cargo::rustc-env=TIDEWATER_VERSION=")?.to_owned()))
    };
    let write = |file: &str, text: &str| {
        let file = checkout.join(file);
        std::fs::create_dir_all(file.parent().expect("a folder")).expect("the folder can be made");
        std::fs::write(file, text).expect("it is written");
    };
    let is = |version: Option<String>, wanted: &str| assert_eq!(version.as_deref(), Some(wanted));
    let commit = |digit: &str| digit.repeat(40);
    is(version("release", ""), "0.1.0");
    write(".git/HEAD", &format!("{}\n", commit("a")));
    is(version("release", ""), "0.1.0 (aaaaaaaa)");
    write(".git/HEAD", "ref: refs/heads/main\n");
    write(".git/packed-refs", &format!("# pack-refs\n{} refs/heads/main\n", commit("b")));
    is(version("release", ""), "0.1.0 (bbbbbbbb)");
    write(".git/refs/heads/main", &format!("{}\n", commit("c")));
    is(version("release", ""), "0.1.0 (cccccccc)");
    is(version("release", "0123456789abcdef"), "0.1.0 (01234567)");
    is(version("debug", ""), "0.1.0");
    // A worktree.
    std::fs::rename(checkout.join(".git"), folder.path().join("main")).expect("the rename succeeds");
    write(".git", &format!("gitdir: {}/main/worktrees/one\n", folder.path().display()));
    std::fs::create_dir_all(folder.path().join("main/worktrees/one")).expect("the folder can be made");
    std::fs::write(folder.path().join("main/worktrees/one/HEAD"), "ref: refs/heads/main\n").expect("written");
    std::fs::write(folder.path().join("main/worktrees/one/commondir"), "../..\n").expect("written");
    is(version("release", ""), "0.1.0 (cccccccc)");
    let said = run_well(folder.path(), &["--version"]);
    assert!(said.starts_with(concat!("tidewater ", env!("CARGO_PKG_VERSION"))), "{said}");
}
