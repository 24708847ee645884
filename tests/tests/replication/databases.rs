//! SQLite over the loss of the primary's machine, by seed: its files are recovered on a replica's machine, from a copy
//! that follows the log. In a lazy group, which waits for no replica, the same loses commits: the control.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::cluster::Cluster;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tidewater_base::Rng;
use tidewater_tests::{run_well, skipped, tidewater, wait};

/// Result of a round.
#[derive(Clone, Copy, Debug)]
struct Found {
    acknowledged: u64,
    recovered: u64,
}

fn until(what: &str, is_so: impl FnMut() -> bool) {
    wait::until(|| what.into(), is_so);
}

/// The last number that a program has printed, each with its commit: those that are there in whole lines.
fn printed(path: &Path) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().filter_map(|line| line.trim().parse().ok()).max().unwrap_or(0)
}

fn follow(folder: &Path, onto: &str) -> Child {
    let mut command = tidewater(folder);
    command.args(["recover", "--device", "1", "--onto", onto, "--copied-at", "0", "--follow"]);
    let said = fs::File::create(folder.join("follow")).expect("a file");
    command.stdout(said.try_clone().expect("a descriptor")).stderr(said);
    command.spawn().expect("it starts")
}

fn round(seed: u64, is_lazy: bool) -> Found {
    let mut rng = Rng::new(seed, b"databases");
    let mut cluster = Cluster::with(3, &["--hold-log"]);
    cluster.form(if is_lazy { "lazy" } else { "quorum" });
    let folder = cluster.folder.path().to_owned();
    for name in ["data", "copy"] {
        fs::create_dir(folder.join(name)).expect("a directory");
    }
    let onto = format!("{}=copy", folder.join("data").display());
    let mut follower = follow(&folder, &onto);
    // Each number is printed with its commit, and so long that no buffer keeps it.
    let script = "(echo 'PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE note (n integer);'
        seq 1000000 | sed \"s/.*/INSERT INTO note VALUES(&); SELECT printf('%4100d', &);/\"
        ) | sqlite3 data/my.db > printed";
    let mut command = tidewater(&folder);
    let level = if is_lazy { "ring" } else { "remote-ring" };
    command.args([
        "run",
        "--quiet",
        "--device",
        "0",
        "--level",
        level,
        "--log",
        "data/my.db",
        "--log",
        "data/my.db-wal",
    ]);
    command.args(["--", "sh", "-c", script]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut program = command.process_group(0).spawn().expect("it starts");
    let more = printed(&folder.join("printed")) + 50 + rng.below(200);
    until("commits", || printed(&folder.join("printed")) >= more);
    if is_lazy {
        // The replicas stand still for a while, and commits go on.
        [1, 2].into_iter().for_each(|node| cluster.signal(node, Signal::SIGSTOP));
        let before = printed(&folder.join("printed"));
        until("commits without replicas", || printed(&folder.join("printed")) >= before + 20);
    }
    kill(Pid::from_raw(-(program.id() as i32)), Signal::SIGKILL).expect("the process group can be signalled");
    cluster.kill(0);
    program.wait().expect("the process can be waited for");
    let acknowledged = printed(&folder.join("printed"));
    for gone in [folder.join("0"), folder.join("data")] {
        fs::remove_dir_all(gone).expect("the folder can be removed");
    }
    if is_lazy {
        [1, 2].into_iter().for_each(|node| cluster.signal(node, Signal::SIGCONT));
        run_well(&folder, &["group", "promote", "--control", "1", "--force"]);
    } else {
        cluster.promote(1);
    }
    assert!(
        follower.wait().expect("the process can be waited for").success(),
        "{:?}",
        fs::read_to_string(folder.join("follow"))
    );
    let rest = run_well(&folder, &["recover", "--device", "1", "--onto", &onto]);
    let mut sqlite = Command::new("sqlite3");
    sqlite
        .arg(folder.join("copy/my.db"))
        .args(["PRAGMA integrity_check", "SELECT max(n) = count(*), max(n) FROM note"]);
    let output = sqlite.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    if is_lazy && String::from_utf8_lossy(&output.stderr).contains("no such table") {
        return Found { acknowledged, recovered: 0 };
    }
    let recovered = said.trim().strip_prefix("ok\n1|").and_then(|number| number.parse().ok());
    let recovered = recovered.unwrap_or_else(|| {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let followed = fs::read_to_string(folder.join("follow")).unwrap_or_default();
        panic!("seed {seed}, lazy {is_lazy}, {acknowledged} acknowledged: {said}{errors}{followed}{rest}")
    });
    Found { acknowledged, recovered }
}

/// Rounds with a quorum lose nothing, and the lazy control loses some.
fn campaign(seeds: std::ops::Range<u64>) {
    if Command::new("sqlite3").arg("--version").output().is_err() {
        skipped(1, "sqlite3 is not installed");
        return;
    }
    let (mut acknowledged, mut lost) = (0, 0);
    for seed in seeds.clone() {
        let found = round(seed, false);
        assert!(found.recovered >= found.acknowledged, "seed {seed}: acknowledged commits are gone: {found:?}");
        acknowledged += found.acknowledged;
        let control = round(seed, true);
        lost += control.acknowledged.saturating_sub(control.recovered);
    }
    println!(
        "databases: SQLite, {} rounds, {acknowledged} commits acknowledged, 0 lost; lazy lost {lost}",
        seeds.count()
    );
    assert!(acknowledged > 0 && lost > 0, "{acknowledged} {lost}");
}

#[test]
#[ignore = "a long run, for `make torture`"]
fn torture_sqlite_loses_nothing_with_the_primarys_machine_and_a_lazy_group_does() {
    campaign(100..125);
}
