//! A supervisor and real processes: the test gives the word that a keeper would.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tempfile::TempDir;
use tidewater_tests::databases::process::{descendants, kill_tree, signal};
use tidewater_tests::tidewater;
use tidewater_tests::wait;

/// A supervisor of a shell script in a folder, which stands for a device's.
struct Supervisor {
    folder: TempDir,
    child: Child,
}

/// Milliseconds of the machine's clock, which deadlines are counted by.
fn clock_ms() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("it is there");
    now.tv_sec() as u64 * 1_000 + now.tv_nsec() as u64 / 1_000_000
}

fn start(folder: &Path, script: &str) -> Child {
    let mut command = tidewater(folder);
    command.args(["cluster", "keeper", "program", "--device", ".", "--standby", "echo standby >> starts; sleep 1000"]);
    command.args(["--", "sh", "-c", script]).stdout(Stdio::null());
    let said = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("said")).expect("a folder");
    command.stderr(said).spawn().expect("it starts")
}

fn until<T>(what: &str, found: impl FnMut() -> Option<T>) -> T {
    wait::some(|| what.into(), found)
}

fn lives(process: u32) -> bool {
    // A process that has ended, and that its parent has not taken, is gone as well.
    std::fs::read_to_string(format!("/proc/{process}/stat"))
        .is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with(['Z', 'X'])))
}

impl Supervisor {
    fn new(script: &str) -> Supervisor {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let child = start(folder.path(), script);
        let supervisor = Supervisor { folder, child };
        until("it listens", || supervisor.ask(&json!({ "do": "look" })));
        supervisor
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.path("said")).unwrap_or_default()
    }

    /// Its answer. `None`: it does not listen.
    fn ask(&self, order: &Value) -> Option<Value> {
        let mut stream = UnixStream::connect(self.path("program.sock")).ok()?;
        stream.write_all(format!("{order}\n").as_bytes()).ok()?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).ok()?;
        serde_json::from_str(&answer).ok()
    }

    fn order(&self, order: &Value) -> Value {
        self.ask(order).unwrap_or_else(|| panic!("no answer: {}", self.said()))
    }

    fn run(&self, until_ms: Option<u64>, stop_ms: u64) -> Value {
        self.order(&json!({ "do": "run", "node": 1, "epoch": "4.1", "until_ms": until_ms, "stop_ms": stop_ms }))
    }

    fn until_state(&self, state: &str) -> Value {
        until(&format!("{state}: {}", self.said()), || {
            Some(self.order(&json!({ "do": "look" }))).filter(|report| report["state"] == state)
        })
    }

    /// Lines that the program has written: a line for each start, and the numbers of its processes.
    fn lines(&self, name: &str) -> Vec<String> {
        std::fs::read_to_string(self.path(name)).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    /// The processes of a program that has written them down.
    fn processes(&self) -> Vec<u32> {
        until("it has started all", || {
            let lines = self.lines("processes");
            (lines.len() == 2).then(|| lines.iter().map(|line| line.parse().expect("a number")).collect())
        })
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        kill_tree(&[self.child.id()]);
        let _ = self.child.wait();
    }
}

/// It ignores SIGTERM, as does a child in a session of its own: databases have such. The shell itself waits, without
/// another child.
const STUBBORN: &str = "trap '' TERM; echo $TIDEWATER_EPOCH >> starts; setsid sleep 1000 & echo $! >> processes; \
                        echo $$ >> processes; test -e pipe || mkfifo pipe; read line <> pipe";

#[test]
fn a_program_that_ignores_sigterm_is_killed_whole_when_the_deadline_comes_without_a_word() {
    let supervisor = Supervisor::new(STUBBORN);
    let mode = std::fs::metadata(supervisor.path("program.sock")).expect("it listens").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "another user must not order it");
    // One that connects and says nothing delays no deadline.
    let _silent = UnixStream::connect(supervisor.path("program.sock")).expect("it listens");
    // The keeper says this once, and dies.
    assert_eq!(supervisor.run(Some(clock_ms() + 3_000), 2_400)["state"], "running");
    let processes = supervisor.processes();
    until("all are gone", || (!processes.iter().any(|process| lives(*process))).then_some(()));
    let report = supervisor.until_state("stopped");
    assert_eq!((&report["starts"], &report["failures"]), (&json!(1), &json!(0)));
    assert_eq!(supervisor.lines("starts"), ["4.1"]);
    // A word that has come too late starts nothing.
    supervisor.run(Some(clock_ms()), 2_400);
    assert_eq!(supervisor.until_state("stopped")["starts"], 1);
}

#[test]
fn a_keeper_that_is_started_anew_finds_the_program_running_and_it_moves_to_standby_in_order() {
    let supervisor = Supervisor::new("echo $TIDEWATER_NODE >> starts; exec sleep 1000");
    let standby = json!({ "do": "standby", "node": 1, "primary": 0, "stop_ms": 3_000 });
    supervisor.order(&standby);
    until("the standby command runs", || (supervisor.lines("starts") == ["standby"]).then_some(()));
    for _ in 0..3 {
        supervisor.run(Some(clock_ms() + 3_600_000), 3_000);
        assert_eq!(supervisor.until_state("running")["starts"], 1, "it is not started twice");
    }
    until("the program runs", || (supervisor.lines("starts") == ["standby", "1"]).then_some(()));
    // It dies: it is started again.
    descendants(&[supervisor.child.id()]).into_iter().for_each(|process| signal(process, Signal::SIGKILL));
    let report = until("it is started again", || {
        Some(supervisor.order(&json!({ "do": "look" }))).filter(|report| report["starts"] == 2)
    });
    assert_eq!((&report["failures"], &report["last"]), (&json!(1), &json!("SIGKILL")));
    supervisor.order(&json!({ "do": "stop", "stop_ms": 3_000 }));
    assert_eq!(supervisor.until_state("stopped")["failures"], 0);
    let said = supervisor.said();
    for words in ["starts the standby command: node 0 leads", "starts the program: node 1 is primary of epoch 4.1"] {
        assert!(said.contains(words), "{said}");
    }
    assert!(supervisor.order(&json!({ "do": "dance" }))["error"].is_string());
}

#[test]
fn a_supervisor_that_is_killed_takes_the_program_along_and_the_next_waits_for_what_is_left() {
    let mut supervisor = Supervisor::new(STUBBORN);
    supervisor.run(None, 3_000);
    let processes = supervisor.processes();
    signal(supervisor.child.id(), Signal::SIGKILL);
    let _ = supervisor.child.wait();
    let [orphan, main] = processes[..] else { panic!("two: {processes:?}") };
    until("its program ends", || (!lives(main)).then_some(()));
    // What the program had started lives on: systemd kills it with the unit, others do not.
    assert!(lives(orphan));
    supervisor.child = start(supervisor.folder.path(), STUBBORN);
    until("it waits", || supervisor.said().contains("waits for its end").then_some(()));
    assert!(supervisor.ask(&json!({ "do": "look" })).is_none(), "it listens though a process is left");
    signal(orphan, Signal::SIGKILL);
    until("it listens", || supervisor.ask(&json!({ "do": "look" })));
    // One that is asked to end stops its program first.
    supervisor.run(None, 600);
    supervisor.until_state("running");
    signal(supervisor.child.id(), Signal::SIGTERM);
    assert!(supervisor.child.wait().expect("it is our child").success(), "{}", supervisor.said());
    assert!(supervisor.said().contains("the program runs no more"), "{}", supervisor.said());
}
