//! Sweeps: many runs in one folder, whatever ends the process in between.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use tidewater_base::rng::Rng;
use tidewater_tests::{run, run_refused, run_well, skipped, tidewater, wait};

/// A run of some milliseconds.
const JOB: &str = "rw=randwrite,bs=4k,iodepth=8,size=4m,number_ios=4000";

fn sweep<'a>(out: &'a str, seeds: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let vary = ["sweep", "--out", out, "--job", JOB, "--vary", "nand.channels=1,2", "--vary", seeds];
    [&vary[..], more].concat()
}

fn table(folder: &Path, out: &str) -> Vec<u8> {
    std::fs::read(folder.join(out).join("table.parquet")).expect("the table")
}

/// The `N` of `N runs made, M found`, and the `M`.
fn made_and_found(text: &str) -> (usize, usize) {
    let words: Vec<&str> = text.split_whitespace().collect();
    (words[0].parse().expect("a number"), words[3].parse().expect("a number"))
}

#[test]
fn a_second_start_makes_what_is_missing_and_jobs_change_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = run_well(folder.path(), &sweep("a", "seed=1..3", &[]));
    assert_eq!(made_and_found(&first), (6, 0));
    let again = run_well(folder.path(), &sweep("a", "seed=1..5", &["--jobs", "1"]));
    assert_eq!(made_and_found(&again), (4, 6));
    for jobs in ["1", "2", "7"] {
        run_well(folder.path(), &sweep(jobs, "seed=1..5", &["--jobs", jobs]));
        assert_eq!(table(folder.path(), jobs), table(folder.path(), "a"), "{jobs} jobs");
    }
    let list = run_well(folder.path(), &sweep("a", "seed=5..6", &["--dry-run"]));
    assert_eq!(list.lines().filter(|line| line.starts_with("there ")).count(), 2, "{list}");
    assert!(list.contains("\n4 runs of up to ") && list.contains("channels=2 seed=6"), "{list}");
}

/// A run that an earlier sweep made under another label is the same run, and has this sweep's label.
#[test]
fn a_run_is_called_what_this_sweep_calls_it() {
    let folder = tempfile::tempdir().expect("a folder");
    run_well(folder.path(), &["sweep", "--out", "a", "--job", JOB, "--vary", "nand.channels=1,2"]);
    let again = run_well(folder.path(), &sweep("a", "seed=1", &[]));
    assert_eq!(made_and_found(&again), (0, 2));
    run_well(folder.path(), &sweep("b", "seed=1", &[]));
    assert_eq!(table(folder.path(), "a"), table(folder.path(), "b"));
}

/// Results of another study are never written over: its index and its table were, without a word.
#[test]
fn a_folder_of_another_study_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    run_well(folder.path(), &sweep("a", "seed=1..2", &[]));
    let files = ["a/sweep.json", "a/table.parquet"].map(|name| folder.path().join(name));
    let before = files.clone().map(|path| std::fs::read(path).expect("the file can be read"));
    for other in [sweep("a", "seed=3..4", &[]), sweep("a", "seed=1..2", &["--queue-depth", "3"])] {
        let text = run_refused(folder.path(), &other);
        assert!(text.contains("error: a: holds another study: 4 runs of "), "{text}");
        assert!(text.contains(" on generic, such as \"channels=") && text.contains("help: give another"), "{text}");
    }
    assert_eq!(files.map(|path| std::fs::read(path).expect("the file can be read")), before);
    // The same study, grown and shrunk, goes on there, and so does one of which nothing was made yet.
    assert_eq!(made_and_found(&run_well(folder.path(), &sweep("a", "seed=2..3", &[]))), (2, 2));
    std::fs::create_dir_all(folder.path().join("b/runs")).expect("a folder");
    std::fs::write(folder.path().join("b/sweep.json"), "{}").expect("an index");
    assert_eq!(made_and_found(&run_well(folder.path(), &sweep("b", "seed=1", &[]))), (2, 0));
}

/// Another build makes its runs again, in the same folder.
#[test]
fn runs_of_another_build_are_of_the_same_study() {
    let folder = tempfile::tempdir().expect("a folder");
    run_well(folder.path(), &sweep("a", "seed=1", &[]));
    let runs = folder.path().join("a/runs");
    for (number, path) in std::fs::read_dir(&runs).expect("runs").flatten().map(|entry| entry.path()).enumerate() {
        let text = std::fs::read_to_string(&path).expect("a record");
        let build = text.lines().find(|line| line.trim_start().starts_with("\"build ")).expect("its build").to_owned();
        std::fs::write(runs.join(format!("{number:032x}.json")), text.replace(&build, "\"build other\","))
            .expect("the file can be written");
        std::fs::remove_file(path).expect("the file can be removed");
    }
    assert_eq!(made_and_found(&run_well(folder.path(), &sweep("a", "seed=1", &[]))), (2, 0));
}

#[test]
fn shards_make_all_runs_together_and_the_last_one_the_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = run_well(folder.path(), &sweep("a", "seed=1..5", &["--shard", "1/2"]));
    assert!(first.contains("5 of 10 runs missing") && !folder.path().join("a/table.parquet").exists(), "{first}");
    run_well(folder.path(), &sweep("a", "seed=1..5", &["--shard", "2/2"]));
    run_well(folder.path(), &sweep("b", "seed=1..5", &[]));
    assert_eq!(table(folder.path(), "a"), table(folder.path(), "b"));
}

#[test]
fn what_fails_is_a_row_with_its_reason_and_costs_no_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = ["sweep", "--out", "s", "--job", JOB, "--vary", "nand.channels=0,2", "--vary", "queue-depth=1,60000"];
    let output = run(folder.path(), &line);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("3 runs failed") && text.contains("submission queues"), "{text}");
    let again = run(folder.path(), &line);
    assert_eq!(made_and_found(&String::from_utf8_lossy(&again.stdout)), (0, 4));
    let retried = run(folder.path(), &[&line[..], &["--retry-failed"]].concat());
    assert_eq!(made_and_found(&String::from_utf8_lossy(&retried.stdout)), (3, 1));
}

/// A value that can't be had is a row; a name that is none is refused before anything is made.
#[test]
fn a_slip_of_the_pen_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let plain = ["sweep", "--out", "s", "--job", JOB];
    let text = run_refused(folder.path(), &[&plain[..], &["--vary", "profile=tiny,genric"]].concat());
    assert!(text.contains("there is no profile `genric`") && text.contains("did you mean `generic`"), "{text}");
    let text =
        run_refused(folder.path(), &[&plain[..], &["--vary", "nand.channels=0", "--vary", "seed=1..3"]].concat());
    assert!(text.contains("channels"), "{text}");
    assert!(!folder.path().join("s").exists());
}

#[test]
fn a_plan_is_a_file_and_paths_in_it_begin_beside_it() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("plans")).expect("a folder");
    let trace: String = (0..200).map(|i| format!("{}000 0 {} 8 0\n", i * 10, i * 8 % 800)).collect();
    std::fs::write(folder.path().join("plans/mine.trace"), trace).expect("a trace");
    let plan = "capacity = '64MiB'\nskip = ['seed=2 precondition=steady']\n[load]\ntrace = 'mine.trace'\nformat = \
                'mqsim'\n[vary]\nprecondition = ['fresh', 'steady']\nseed = '1..2'\n";
    std::fs::write(folder.path().join("plans/p.toml"), plan).expect("a plan");
    let text = run_well(folder.path(), &["sweep", "plans/p.toml", "--out", "s"]);
    assert_eq!(made_and_found(&text), (3, 0));
    std::fs::write(folder.path().join("plans/p.toml"), "[lod]\n").expect("a plan");
    let text = run_refused(folder.path(), &["sweep", "plans/p.toml", "--out", "s"]);
    assert!(text.contains("plans/p.toml: ") && text.contains("lod"), "{text}");
    let text = run_refused(folder.path(), &["sweep", "--out", "plans", "--job", JOB]);
    assert!(text.contains("none of a sweep"), "{text}");
}

#[test]
fn every_table_is_written_as_its_name_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    // Which die a read finds busy is the seed's.
    let job = JOB.replace("randwrite", "randrw");
    let compare = ["compare", "--job", &job, "--vary", "nand.channels=1,2", "--vary", "seed=1..3"];
    let files = ["--json", "all.json", "--table", "runs.csv", "--statistics", "seeds.csv"];
    run_well(folder.path(), &[&compare[..], &files].concat());
    let lines = |name: &str| {
        let text = std::fs::read_to_string(folder.path().join(name)).expect(name);
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines("runs.csv").len(), 7);
    let seeds = lines("seeds.csv");
    assert!(seeds[0].starts_with("variant,figure,n,mean,median,lowest,highest,mean_low_95,"), "{}", seeds[0]);
    let second = seeds.iter().find(|line| line.starts_with("channels=2,iops,"));
    let p_value = second.expect("the second variant").rsplit(',').next().map(str::parse::<f64>);
    assert!(matches!(p_value, Some(Ok(p)) if (0.0..=1.0).contains(&p)), "{second:?}");
    for (name, same) in [("runs", lines("runs.csv")), ("statistics", seeds)] {
        let text = run_well(folder.path(), &["report", "all.json", "--table", name, "-o", "again.csv"]);
        assert!(text.starts_with("table: again.csv"), "{text}");
        assert_eq!(lines("again.csv"), same, "{name}");
    }
    run_well(folder.path(), &["report", "all.json", "--table", "dies", "-o", "dies.csv"]);
    assert!(lines("dies.csv")[0].starts_with("run,channel,die,"));
    for end in ["parquet", "arrow"] {
        run_well(folder.path(), &["report", "all.json", "--table", "time-series", "-o", &format!("t.{end}")]);
        let bytes = std::fs::read(folder.path().join(format!("t.{end}"))).expect("the table");
        assert!(bytes.starts_with(if end == "parquet" { b"PAR1" } else { b"ARRO" }));
    }
    let text = run_refused(folder.path(), &["report", "all.json", "--table", "log", "-o", "x.csv"]);
    assert!(text.contains("time-series"), "{text}");
    let text = run_refused(folder.path(), &["report", "all.json", "--table", "runs", "-o", "x.txt"]);
    assert!(text.contains(".parquet"), "{text}");
    let text = run_refused(folder.path(), &[&compare[..], &["--table", "x"]].concat());
    assert!(text.contains(".parquet"), "{text}");
}

fn start(folder: &Path, arguments: &[&str]) -> Child {
    let mut command = tidewater(folder);
    command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts")
}

#[test]
fn two_processes_on_one_folder_make_each_run_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = sweep("a", "seed=1..40", &[]);
    let both = [start(folder.path(), &line), start(folder.path(), &line)];
    let texts = both.map(|child| {
        let output = child.wait_with_output().expect("the process can be waited for");
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    let (one, other) = (made_and_found(&texts[0]), made_and_found(&texts[1]));
    assert_eq!((one.0 + other.0, one.0 + one.1, other.0 + other.1), (80, 80, 80), "{texts:?}");
    run_well(folder.path(), &sweep("b", "seed=1..40", &[]));
    assert_eq!(table(folder.path(), "a"), table(folder.path(), "b"));
}

/// Kills a sweep at random moments, and starts it again until it ends.
fn killed(seeds: &str, kills: u32) {
    let folder = tempfile::tempdir().expect("a folder");
    run_well(folder.path(), &sweep("whole", seeds, &[]));
    let runs = std::fs::read_dir(folder.path().join("whole/runs")).expect("records").count();
    let line = sweep("killed", seeds, &[]);
    let mut rng = Rng::new(40, b"kills");
    let mut amid = 0;
    for kill in 1..=kills {
        let mut child = start(folder.path(), &line);
        // Some come before the first record, some amid: by records made, not by time, which depends on the machine.
        let before = kill as usize * runs / (kills as usize + 1);
        let records = || std::fs::read_dir(folder.path().join("killed/runs")).map_or(0, Iterator::count);
        let is_over = |child: &mut Child| child.try_wait().expect("its state").is_some();
        wait::until(|| format!("{before} records"), || records() >= before || is_over(&mut child));
        wait::pass(Duration::from_micros(rng.below(5_000)));
        amid += u32::from(child.try_wait().expect("its state").is_none());
        child.kill().expect("the process can be killed");
        child.wait().expect("the process can be waited for");
    }
    assert!(amid > kills / 2, "{amid} of {kills} came while it ran");
    run_well(folder.path(), &line);
    assert_eq!(table(folder.path(), "killed"), table(folder.path(), "whole"));
    let left: Vec<_> = std::fs::read_dir(folder.path().join("killed")).expect("files").flatten().collect();
    println!("{runs} runs, {kills} kills, {amid} of them amid; {} files in the folder", left.len());
    assert!(!folder.path().join("killed/claims").exists(), "nothing half-written is left");
}

#[test]
fn a_killed_sweep_ends_in_the_same_table() {
    killed("seed=1..30", 4);
}

#[test]
#[ignore = "500 runs, 20 kills"]
fn torture_a_killed_sweep_ends_in_the_same_table() {
    killed("seed=1..250", 20);
}

/// The names of a sweep's runs, which other users can compute, too.
fn runs_of(folder: &Path, line: &[&str]) -> Vec<String> {
    let list = run_well(folder, &[line, &["--dry-run"]].concat());
    let states = list.lines().filter(|line| line.starts_with("missing ") || line.starts_with("there "));
    states.map(|line| line.split_whitespace().nth(1).expect("a name").to_owned()).collect()
}

/// Another user of the folder laid links there, and the table and empty claims were written through them.
#[test]
fn links_in_a_shared_folder_are_not_followed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (out, claims) = (folder.path().join("a"), folder.path().join("a/claims"));
    let (precious, elsewhere) = (folder.path().join("precious"), folder.path().join("elsewhere"));
    fs::write(&precious, "precious").expect("a file");
    let line = sweep("a", "seed=1", &[]);
    let names = runs_of(folder.path(), &line);
    let lay = || {
        for folder in [&claims, &out.join("runs")] {
            fs::create_dir_all(folder).expect("a folder");
        }
        // Temporary names had the process's number.
        for pid in std::process::id()..std::process::id() + 1_500 {
            for name in ["table.parquet", "sweep.json"] {
                symlink(&precious, claims.join(format!("{name}.{pid}.new"))).expect("a link");
            }
        }
    };
    lay();
    assert_eq!(made_and_found(&run_well(folder.path(), &line)), (2, 0));
    assert_eq!(fs::read_to_string(&precious).expect("the file can be read"), "precious");
    // What is named as it has to be: a claim, a record, and the directories.
    let refused = |link: &Path, to: &Path, why: &str| {
        let _ = fs::remove_dir_all(link).or_else(|_| fs::remove_file(link));
        fs::create_dir_all(link.parent().expect("a folder")).expect("a folder");
        symlink(to, link).expect("a link");
        let text = String::from_utf8_lossy(&run(folder.path(), &line).stderr).into_owned();
        let name = link.strip_prefix(folder.path()).expect("the link is below the folder").display().to_string();
        assert!(text.contains(&format!("{name}: is {why}")), "{text}");
        assert!(!elsewhere.exists() && fs::read_to_string(&precious).expect("the file can be read") == "precious");
        fs::remove_file(link).expect("the file can be removed");
    };
    let record = out.join(format!("runs/{}.json", names[0]));
    refused(&record, &precious, "a symbolic link, which is not followed");
    refused(&claims.join(&names[0]), &elsewhere, "a symbolic link, which is not followed");
    let foreign = folder.path().join("foreign");
    fs::create_dir(&foreign).expect("a folder");
    fs::write(foreign.join("file"), "of another program").expect("a file");
    refused(&claims, &foreign, "not a directory");
    refused(&out.join("runs"), &foreign, "not a directory");
    assert!(foreign.join("file").exists(), "nothing was tidied up there");
    // A link in place of a result is replaced, not followed.
    let table = out.join("table.parquet");
    fs::remove_file(&table).expect("the file can be removed");
    symlink(&precious, &table).expect("a link");
    run_well(folder.path(), &line);
    assert!(fs::symlink_metadata(&table).expect("the file exists").is_file());
    assert_eq!(fs::read_to_string(&precious).expect("the file can be read"), "precious");
    // As the other user has them.
    let user = Some(65_534);
    lay();
    if chown(&claims, user, user).is_err() {
        return skipped(1, "only root can be other users");
    }
    let text = run_refused(folder.path(), &line);
    assert!(text.contains("a/claims: belongs to user 65534") && text.contains("yours or root's"), "{text}");
    fs::remove_dir_all(&claims).expect("the folder can be removed");
    let record = out.join(format!("runs/{}.json", names[1]));
    chown(&record, user, user).expect("root can change the owner");
    let text = run_refused(folder.path(), &line);
    assert!(text.contains(&format!("{}.json: belongs to user 65534", names[1])), "{text}");
}

/// A pipe as the claim of the first of two runs kept the sweep waiting without end, and SIGTERM did not end it.
#[test]
fn a_pipe_in_a_shared_folder_keeps_no_sweep_waiting() {
    let folder = tempfile::tempdir().expect("a folder");
    let claims = folder.path().join("a/claims");
    let endless = "rw=randwrite,bs=4k,iodepth=8,size=4m,number_ios=4000000000";
    let line = ["sweep", "--out", "a", "--job", endless, "--vary", "nand.channels=1,2", "--jobs", "1"];
    let names = runs_of(folder.path(), &line);
    for name in ["a/claims", "a/runs"] {
        fs::create_dir_all(folder.path().join(name)).expect("a folder");
    }
    mkfifo(&claims.join(&names[0]), Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe");
    let mut sweep = tidewater(folder.path());
    let mut sweep = sweep.args(line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts");
    wait::until(
        || "the other run is under way".into(),
        || {
            let ended = sweep.try_wait().expect("the process can be polled");
            assert!(ended.is_none(), "the other run is under way: {ended:?}");
            claims.join(&names[1]).exists()
        },
    );
    let pid = Pid::from_raw(i32::try_from(sweep.id()).expect("a number"));
    kill(pid, Signal::SIGTERM).expect("the process can be signalled");
    wait::end(&mut sweep);
    let output = sweep.wait_with_output().expect("it ended");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && text.contains(&format!("a/claims/{}: is not a regular file", names[0])),
        "{text}"
    );
    // The record of a run as a pipe, too.
    fs::remove_dir_all(&claims).expect("the folder can be removed");
    mkfifo(&folder.path().join(format!("a/runs/{}.json", names[0])), Mode::S_IRUSR).expect("a pipe");
    let text = run_refused(folder.path(), &line);
    assert!(text.contains(&format!("{}.json: is not a regular file", names[0])), "{text}");
}
