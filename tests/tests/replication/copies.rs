//! A log that is read on a replica's machine, and a copy of the files that is kept up to date from it: the first
//! machine is gone, with its files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::cluster::{Cluster, PATIENCE, append};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tidewater_client::Level;
use tidewater_tests::{run, run_refused, run_well, tidewater, wait};

/// The first program: before the copy is begun, and after.
const BEFORE: &str = "for i in $(seq 40); do echo line $i >> data/app.log; sync -d data/app.log; done
    echo old > data/old; sync -d data/old";
const AFTER: &str = "for i in $(seq 40); do echo more $i >> data/app.log; sync -d data/app.log; done
    mv data/app.log data/app.log.1; echo anew > data/app.log; sync -d data/app.log
    rm data/old; dd if=/dev/zero of=data/zeroes bs=1000 count=300 2> /dev/null
    echo end >> data/zeroes; sync -d data/zeroes
    truncate -s 20 data/app.log.1; echo tail >> data/app.log.1; sync -d data/app.log.1";

/// Starts a program on the primary's machine, whose files are in `data`.
fn start(folder: &Path, program: &str) -> Child {
    let mut command = tidewater(folder);
    command.args(["run", "--quiet", "--device", "0", "--level", "remote-ring", "--log", "data/**", "--", "sh", "-c"]);
    command.arg(program).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
}

fn until(what: &str, is_so: impl FnMut() -> bool) {
    wait::until(|| what.into(), is_so);
}

/// The files of a directory and their bytes.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let all = fs::read_dir(folder).expect("a directory").map(|entry| entry.expect("an entry").path());
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    all.map(|path| (name(&path), fs::read(&path).expect("a file"))).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for (name, bytes) in files(from) {
        fs::write(to.join(name), bytes).expect("there is room");
    }
}

/// Where a copy that is begun now can be taken for.
fn position(cluster: &Cluster) -> u64 {
    run_well(cluster.folder.path(), &["tail", "--device", "1", "--position"]).trim().parse().expect("an offset")
}

/// Ends the primary's machine: device, program and files.
fn lose_machine(cluster: &mut Cluster, program: &mut Child) -> BTreeMap<String, Vec<u8>> {
    let folder = cluster.folder.path().to_owned();
    cluster.kill(0);
    for signal in [Signal::SIGTERM, Signal::SIGCONT] {
        kill(Pid::from_raw(program.id() as i32), signal).expect("the process can be signalled");
    }
    let _ = program.wait();
    let mut synced = files(&folder.join("data"));
    // A copy that is complete has no marker.
    synced.retain(|name, _| !name.starts_with(".tidewater-log-"));
    for gone in [folder.join("0"), folder.join("data")] {
        fs::remove_dir_all(gone).expect("the folder can be removed");
    }
    synced
}

#[test]
fn a_copy_on_the_replicas_machine_becomes_the_files_when_the_first_machine_is_gone() {
    for follows in [false, true] {
        let mut cluster = Cluster::with(3, &["--hold-log"]);
        cluster.form("quorum");
        let folder = cluster.folder.path().to_owned();
        fs::create_dir(folder.join("data")).expect("a directory");
        let script = format!(
            "{BEFORE}; touch before; until test -e copied; do sleep 0.02; done; {AFTER}; touch after; exec sleep 1000"
        );
        let mut program = start(&folder, &script);
        until("the first half", || folder.join("before").exists());
        // A copy begins behind a checkpoint: then the log knows its files.
        let mut copied_at = 0;
        until("a checkpoint", || {
            copied_at = position(&cluster);
            copied_at > 4_000
        });
        copy(&folder.join("data"), &folder.join("copy"));
        fs::write(folder.join("copied"), "").expect("there is room");
        let onto = format!("--onto={}=copy", folder.join("data").display());
        let at = format!("--copied-at={copied_at}");
        let line = ["recover", "--device", "1", &onto, &at];
        let mut follower = None;
        if follows {
            let mut command = tidewater(&folder);
            command.args(line).arg("--follow").stderr(fs::File::create(folder.join("follow")).expect("a file"));
            follower = Some(command.spawn().expect("it starts"));
        }
        until("the second half", || folder.join("after").exists());
        if let Some(follower) = &mut follower {
            until("the copy follows", || {
                files(&folder.join("copy")).get("zeroes").is_some_and(|it| it.len() > 300_000)
            });
            kill(Pid::from_raw(follower.id() as i32), Signal::SIGINT).expect("the process can be signalled");
            assert!(
                follower.wait().expect("the process can be waited for").success(),
                "{:?}",
                fs::read_to_string(folder.join("follow"))
            );
        }
        let synced = lose_machine(&mut cluster, &mut program);
        cluster.promote(1);
        let dry = run_well(&folder, &[&line[..], &["--dry-run"]].concat());
        assert!(follows || dry.contains("copy/zeroes: to create"), "{dry}");
        let said = run_well(&folder, &line);
        assert_eq!(files(&folder.join("copy")).keys().collect::<Vec<_>>(), synced.keys().collect::<Vec<_>>(), "{said}");
        assert!(files(&folder.join("copy")) == synced, "bytes differ: {said}");
        // The log is empty, and the files are the next program's.
        let again =
            run(&folder, &["run", "--device", "1", "--log", "copy/**", "--", "sh", "-c", "echo x >> copy/app.log"]);
        assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    }
}

#[test]
fn a_copy_that_is_older_than_the_log_or_lacks_a_file_is_refused_by_name() {
    let mut cluster = Cluster::new(3);
    cluster.form("quorum");
    let folder = cluster.folder.path().to_owned();
    fs::create_dir(folder.join("data")).expect("a directory");
    fs::write(folder.join("data/app.log"), "it is there before\n").expect("there is room");
    let script = format!(
        "{BEFORE}; touch before; until [ -e stop ]; do echo x >> data/app.log; sync -d data/app.log; done
         : > stopped; until [ -e more ]; do :; done; echo 1 >> data/app.log; : > after; exec sleep 1000"
    );
    let mut program = start(&folder, &script);
    until("the first half", || folder.join("before").exists());
    copy(&folder.join("data"), &folder.join("copy"));
    fs::create_dir(folder.join("empty")).expect("a directory");
    // No replica keeps its log for the copy: checkpoints trim it.
    until("a trim", || position(&cluster) > 20_000);
    // The last bytes of the log are of this file: no more checkpoints.
    let go = |name: &str| fs::write(folder.join(name), "").expect("there is room");
    go("stop");
    until("the last sync", || folder.join("stopped").exists());
    kill(Pid::from_raw(program.id() as i32), Signal::SIGSTOP).expect("the process can be signalled");
    go("more");
    until("one more line", || folder.join("after").exists());
    // Two bytes behind the head of a change.
    let last = || run_well(&folder, &["tail", "--device", "1"]).lines().last().map(str::to_owned);
    until("the replica has it", || last().is_some_and(|line| line.contains(" 34 bytes:")));
    lose_machine(&mut cluster, &mut program);
    cluster.promote(1);
    let before = files(&folder.join("copy"));
    let refused = |to: &str, more: &[&str]| {
        let onto = format!("--onto={}={to}", folder.join("data").display());
        let line = [&["recover", "--device", "1", &onto], more].concat();
        let output = run(&folder, &line);
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert!(!output.status.success(), "{more:?}: {said}");
        said
    };
    let said = refused("copy", &[]);
    assert!(said.contains("copy/app.log") && said.contains("--copied-at"), "{said}");
    let said = refused("copy", &["--copied-at", "64"]);
    assert!(said.contains("the copy has the log up to offset 64") && said.contains("--hold-log"), "{said}");
    let said = refused("empty", &["--copied-at", "10000000"]);
    assert!(said.contains("no part of the log"), "{said}");
    let oldest = run_well(&folder, &["tail", "--device", "1"]);
    let oldest = oldest.split_whitespace().next().expect("a record");
    let said = refused("empty", &["--copied-at", oldest]);
    assert!(said.contains("empty/app.log: MISSING"), "{said}");
    fs::write(folder.join("empty/app.log"), "short").expect("there is room");
    let said = refused("empty", &["--copied-at", oldest]);
    assert!(said.contains("older than the log"), "{said}");
    assert_eq!(files(&folder.join("empty")).len(), 1, "nothing was changed");
    assert!(files(&folder.join("copy")) == before, "nothing was changed");
    let said = run_refused(&folder, &["recover", "--device", "1", "--onto", "/a=nowhere"]);
    assert!(said.contains("nowhere is no directory"), "{said}");
}

#[test]
fn a_reader_on_a_replica_sees_what_arrives_and_names_what_a_promotion_cuts() {
    let mut cluster = Cluster::new(3);
    cluster.form("quorum");
    let folder = cluster.folder.path().to_owned();
    let log = cluster.log(0);
    append(&log, 7, PATIENCE).expect("replicas acknowledge");
    let mut follower = tidewater(&folder);
    let out = fs::File::create(folder.join("out")).expect("a file");
    let errors = fs::File::create(folder.join("errors")).expect("a file");
    follower.args(["tail", "--device", "1", "--follow"]).stdout(out).stderr(errors);
    let mut follower = follower.spawn().expect("it starts");
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("text");
    until("the first record", || read("out").contains("8 bytes: \\x07"));
    // The next one comes to the reader's device alone.
    cluster.kill(2);
    let end = log.append(&[b"to be cut"]).expect("the ring accepts the record").end;
    log.wait(end, Level::Ring, PATIENCE).expect("the record reaches the ring");
    until("the second record", || read("out").contains("to be cut"));
    // And that does not answer when node 2 becomes primary with the first record.
    cluster.kill(0);
    fs::remove_dir_all(cluster.path(0)).expect("the folder can be removed");
    cluster.signal(1, Signal::SIGSTOP);
    cluster.start(2);
    drop(log);
    run_well(&folder, &["group", "promote", "--control", "2", "--force"]);
    cluster.signal(1, Signal::SIGCONT);
    let log = cluster.open(2, Level::Ring).expect("a log");
    let end = log.append(&[b"instead"]).expect("the ring accepts the record").end;
    log.wait(end, Level::Destaged, PATIENCE).expect("it goes to flash");
    let mut status = None;
    until("the cut is found", || {
        status = follower.try_wait().expect("the process can be polled");
        status.is_some()
    });
    assert!(!status.expect("it ended").success());
    assert!(read("errors").contains("a promotion has cut them"), "{}", read("errors"));
    // What counts is read from there on.
    let cut = read("errors").split_whitespace().find_map(|word| word.parse::<u64>().ok()).expect("an offset");
    let read_on = || run_well(&folder, &["tail", "--device", "1", "--from", &cut.to_string()]);
    until("what counts", || read_on().contains("instead"));
    assert!(!read_on().contains("to be cut"), "{}", read_on());
}

/// A replica outside of the quorum is behind: the position of a copy waits for it, says what it waits for, and gives up
/// in time. The copy is then taken.
#[test]
fn the_position_of_a_copy_waits_for_a_replica_that_is_behind() {
    let mut cluster = Cluster::with(3, &["--hold-log"]);
    cluster.form("quorum");
    let folder = cluster.folder.path().to_owned();
    fs::create_dir(folder.join("data")).expect("a directory");
    fs::write(folder.join("data/app.log"), "from before the log\n").expect("there is room");
    // Node 1 gets nothing of what follows, and then finds its primary asleep.
    cluster.kill(1);
    let script = "echo one >> data/app.log; sync -d data/app.log; touch before; exec sleep 1000";
    let mut program = start(&folder, script);
    until("the program's sync", || folder.join("before").exists());
    let end = run_well(&folder, &["group", "status", "--control", "0", "--log-end"]).trim().to_owned();
    cluster.signal(0, Signal::SIGSTOP);
    cluster.start(1);
    let line = ["tail", "--device", "1", "--position", "--at-least", &end];
    let said = run_refused(&folder, &[&line[..], &["--timeout", "1s"]].concat());
    assert!(said.contains("no position within 1 s: the device has the log up to offset"), "{said}");
    let waits = fs::File::create(folder.join("waits")).expect("a file");
    let waiting = tidewater(&folder).args(line).stdout(Stdio::piped()).stderr(waits).spawn().expect("it starts");
    until("it says what it waits for", || {
        fs::read_to_string(folder.join("waits"))
            .is_ok_and(|said| said.contains("waiting: the device has the log up to"))
    });
    cluster.signal(0, Signal::SIGCONT);
    let output = waiting.wait_with_output().expect("the process can be waited for");
    assert!(output.status.success(), "{:?}", fs::read_to_string(folder.join("waits")));
    let copied_at = String::from_utf8(output.stdout).expect("a number").trim().to_owned();
    copy(&folder.join("data"), &folder.join("copy"));
    let onto = format!("--onto={}=copy", folder.join("data").display());
    let follow = |at: &str| {
        let mut command = tidewater(&folder);
        command.args(["recover", "--device", "1", &onto, "--copied-at", at, "--follow"]);
        command.stderr(fs::File::create(folder.join("follow")).expect("a file")).spawn().expect("it starts")
    };
    let said = || fs::read_to_string(folder.join("follow")).expect("the file can be read");
    let mut follower = follow(&copied_at);
    until("the copy follows", || said().contains("following from"));
    kill(Pid::from_raw(follower.id() as i32), Signal::SIGINT).expect("the process can be signalled");
    assert!(follower.wait().expect("the process can be waited for").success(), "{}", said());
    assert_eq!(files(&folder.join("copy"))["app.log"], b"from before the log\none\n");
    kill(Pid::from_raw(program.id() as i32), Signal::SIGKILL).expect("the process can be signalled");
    program.wait().expect("the process can be waited for");
}
