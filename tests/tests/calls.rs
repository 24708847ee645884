//! Calls that few programs make, under `tidewater run`: answers and files are those without it, and the files also
//! after everybody died and the power went.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;
use tidewater_tests::ring::Device;
use tidewater_tests::spy::lose_power;
use tidewater_tests::{compile, skipped, tidewater};

const WAITS: &[&str] = &["--set", "fast.on_wrap=wait-for-trim"];
const DEVICE: &str = "vfio-user:../f0.sock";
const END: &str = "end: 0 \n";

struct Trial {
    folder: TempDir,
    program: PathBuf,
    spy: PathBuf,
}

/// Output of a program, and the content of its files.
type Done = (String, BTreeMap<String, Vec<u8>>);

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for part in ["", "set/"] {
        for entry in fs::read_dir(folder.join(part)).expect("the folder is there") {
            let entry = entry.expect("an entry");
            let name = format!("{part}{}", entry.file_name().to_string_lossy());
            // Markers of the run are none of the program's files.
            if entry.file_type().expect("the entry has a type").is_file() && !name.contains(".tidewater-log-") {
                found.insert(name, fs::read(entry.path()).expect("the file can be read"));
            }
        }
    }
    found
}

impl Trial {
    fn new() -> Option<Trial> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let program = compile("calls.c", folder.path(), &["-lpthread"]);
        let spy = compile("spy.c", folder.path(), &["-shared", "-fPIC", "-ldl"]);
        let Some((program, spy)) = program.zip(spy) else {
            skipped(1, "there is no C compiler");
            return None;
        };
        Some(Trial { folder, program, spy })
    }

    fn fresh(&self, name: &str) -> PathBuf {
        let folder = self.folder.path().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("set")).expect("a new folder");
        folder
    }

    /// How the program is started below a command, with the library below it.
    fn start(&self, mut command: Command, shadow: &Path) -> Command {
        command.env("LD_PRELOAD", &self.spy).env("SPY_FOLDER", shadow).process_group(0);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn plainly(&self, name: &str) -> Done {
        let (folder, shadow) = (self.fresh("plain"), self.fresh("shadow"));
        let mut command = Command::new(&self.program);
        command.arg(name).current_dir(&folder);
        let output = self.start(command, &shadow).output().expect("it starts");
        assert!(output.status.success(), "{name}: {output:?}");
        (String::from_utf8(output.stdout).expect("UTF-8"), files(&folder))
    }

    fn run(&self, folder: &Path, name: &str) -> Command {
        self.run_at("ring", "set/*", folder, name)
    }

    fn run_at(&self, level: &str, set: &str, folder: &Path, name: &str) -> Command {
        let mut command = tidewater(folder);
        command.args(["run", "--device", DEVICE, "--level", level, "--quiet", "--log", set, "--"]);
        command.arg(&self.program).arg(name);
        command
    }

    /// The program's output on the log, its files then, and the files once every process was killed, the power went,
    /// and the log was applied.
    fn on_log(&self, name: &str) -> (Done, BTreeMap<String, Vec<u8>>) {
        let (folder, shadow) = (self.fresh("under"), self.fresh("shadow"));
        let device = Device::start(self.folder.path(), WAITS);
        let mut command = self.start(self.run(&folder, name), &shadow);
        let (child, said) = until_its_end(command.env("CALLS_STAY", "1"));
        let live = files(&folder);
        let errors = kill_all(child);
        device.kill();
        let device = Device::start(self.folder.path(), WAITS);
        lose_power(&folder, &shadow);
        lose_power(&folder.join("set"), &shadow);
        let recovered = recover(&folder);
        assert!(recovered.status.success(), "{name}: {recovered:?}\n{errors}{said}");
        device.kill();
        // The next one has a device of its own.
        for file in ["drive", "ring"] {
            fs::remove_file(self.folder.path().join(file)).expect("the file can be removed");
        }
        ((said, live), files(&folder))
    }
}

/// Starts a program, and what it was answered until it stays where it is.
fn until_its_end(command: &mut Command) -> (Child, String) {
    let mut child = command.spawn().expect("it starts");
    let mut said = String::new();
    let mut answers = BufReader::new(child.stdout.take().expect("it is piped"));
    while !said.ends_with(END) && answers.read_line(&mut said).expect("UTF-8") > 0 {}
    (child, said)
}

/// Ends it, and all that it started, at once. What was said on standard error.
fn kill_all(mut child: Child) -> String {
    killpg(Pid::from_raw(child.id() as i32), Signal::SIGKILL).expect("the process can be signalled");
    let mut errors = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut errors).expect("UTF-8");
    child.wait().expect("the process can be waited for");
    errors
}

fn recover(folder: &Path) -> Output {
    let start = Instant::now();
    loop {
        let mut command = tidewater(folder);
        let done = command.args(["recover", "--device", DEVICE]).output().expect("it starts");
        // The last of its processes may just be ending.
        let is_busy = String::from_utf8_lossy(&done.stderr).contains("one program at a time");
        if !is_busy || start.elapsed() > tidewater_tests::PATIENCE {
            return done;
        }
    }
}

fn same(names: &[&str]) {
    let Some(trial) = Trial::new() else { return };
    // A program may become another user's.
    fs::set_permissions(trial.folder.path(), Permissions::from_mode(0o711)).expect("the mode can be changed");
    for name in names {
        let plain = trial.plainly(name);
        let (live, recovered) = trial.on_log(name);
        assert_eq!(live.0, plain.0, "{name}: other answers (left) than without the log");
        assert!(live.1 == plain.1, "{name}: {:?} and without the log {:?}", live.1, plain.1);
        assert!(recovered == plain.1, "{name}: {recovered:?} and before {:?}", plain.1);
    }
}

#[test]
fn a_file_that_is_written_past_the_page_cache_is_written_from_where_the_program_has_it() {
    same(&["direct"]);
}

#[test]
fn what_is_told_not_to_append_is_where_the_system_put_it() {
    let Some(trial) = Trial::new() else { return };
    if trial.plainly("not_appended").0.contains("Operation not supported") {
        return skipped(1, "this system has no RWF_NOAPPEND (Linux 6.9)");
    }
    same(&["not_appended", "not_appended_unread"]);
}

#[test]
fn what_the_c_library_writes_to_a_descriptor_of_the_set_is_synced_for_real() {
    same(&["stream", "asynchronous"]);
}

#[test]
fn a_number_that_was_given_back_unseen_is_not_taken_for_a_file_of_the_log() {
    same(&["closed_by_stream", "closed_raw", "reopened"]);
}

#[test]
fn what_the_system_refused_to_write_does_not_stop_recovery() {
    same(&["far"]);
}

#[test]
fn a_file_that_loses_one_of_its_names_is_found_or_not_missed() {
    same(&["linked_out", "linked_in", "linked_over", "unnamed"]);
}

#[test]
fn a_file_that_is_renamed_by_a_process_that_can_open_nothing_more_is_found() {
    same(&["no_descriptors"]);
}

#[test]
fn a_file_of_the_set_is_written_and_cut_on_the_log_by_any_of_its_names() {
    same(&["by_another_name"]);
}

#[test]
fn a_file_that_is_cut_by_opening_it_for_reading_is_cut_on_the_log() {
    same(&["cut_by_reading"]);
}

#[test]
fn a_file_with_two_names_in_the_set_is_on_the_log_by_each_of_them_or_by_none() {
    same(&["two_names", "two_names_renamed"]);
}

/// Bytes that a sync promises are on the log, or it is a real one: by calls that are made real in front, and by what
/// the file itself tells.
#[test]
fn no_sync_is_answered_from_a_log_that_has_not_all_of_the_file() {
    same(&["printed", "submitted", "made_writable", "streams", "unseen_over", "unseen_before_a_write"]);
}

#[test]
fn a_system_call_by_its_number_is_on_the_log_as_the_one_by_its_name_is() {
    same(&["by_number"]);
}

#[test]
fn a_mapping_that_the_system_refuses_leaves_the_file_on_the_log() {
    same(&["mapping_refused"]);
    let Some(trial) = Trial::new() else { return };
    let (folder, shadow) = (trial.fresh("under"), trial.fresh("shadow"));
    let _device = Device::start(trial.folder.path(), WAITS);
    let output = trial.start(trial.run(&folder, "mapping_refused"), &shadow).output().expect("it starts");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "nothing is said, since nothing is real");
}

/// As PostgreSQL's segments do. What is run next knows its set, and the file's older name is not of it.
#[test]
fn a_file_that_came_from_outside_of_the_set_and_was_removed_stops_no_recovery() {
    for by_run in [false, true] {
        let Some(trial) = Trial::new() else { return };
        let (folder, shadow) = (trial.fresh("under"), trial.fresh("shadow"));
        let _device = Device::start(trial.folder.path(), WAITS);
        let mut command = trial.start(trial.run(&folder, "renamed_in_and_removed"), &shadow);
        let (child, said) = until_its_end(command.env("CALLS_STAY", "1"));
        let errors = kill_all(child);
        lose_power(&folder.join("set"), &shadow);
        let program: &[&str] = &["--", "true"];
        let (name, rest) = if by_run { ("run", program) } else { ("recover", &[][..]) };
        let start = Instant::now();
        let done = loop {
            let mut command = tidewater(&folder);
            command.args([name, "--device", DEVICE, "--log", "set/*"]).args(rest);
            let done = command.output().expect("it starts");
            let is_busy = String::from_utf8_lossy(&done.stderr).contains("one program at a time");
            if !is_busy || start.elapsed() > tidewater_tests::PATIENCE {
                break done;
            }
        };
        assert!(done.status.success(), "{name}: {done:?}\n{errors}{said}");
        assert_eq!(fs::read(folder.join("set/b")).expect("the file can be read"), b"0123456789acknowledged");
    }
}

#[test]
fn a_program_keeps_its_locks_of_files_that_it_renames_removes_and_cuts() {
    same(&["locked"]);
}

#[test]
fn a_signal_handler_that_writes_amid_a_write_has_its_bytes_and_so_has_the_write() {
    same(&["interrupted_appending", "interrupted_where_it_stands"]);
}

/// Its process lives on, and with it a lock that the thread would have left.
#[test]
fn a_thread_that_is_cancelled_amid_a_write_ends_behind_it() {
    let Some(trial) = Trial::new() else { return };
    let ((said, live), recovered) = trial.on_log("cancelled");
    assert!(said.contains("end == PTHREAD_CANCELED: 1 \nwritten: 5 \n") && said.ends_with(END), "{said}");
    assert_eq!(live["set/a"], b"0123456789wholemore");
    assert_eq!(recovered, live);
}

/// A sync of anything else waits for the log, and fails where that has failed.
#[test]
fn every_kind_of_sync_outside_of_the_set_comes_behind_the_log() {
    let Some(trial) = Trial::new() else { return };
    let (folder, shadow) = (trial.fresh("under"), trial.fresh("shadow"));
    let device = Device::start(trial.folder.path(), WAITS);
    let mut child = trial.start(trial.run(&folder, "gone"), &shadow).spawn().expect("it starts");
    let mut answers = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut said = String::new();
    while !said.contains("before") {
        assert!(answers.read_line(&mut said).expect("UTF-8") > 0, "{said}");
    }
    device.kill();
    answers.read_to_string(&mut said).expect("UTF-8");
    child.wait_with_output().expect("the process can be waited for");
    let behind: Vec<&str> = said.lines().skip_while(|line| !line.contains("before")).skip(1).collect();
    let (failed, fine) = behind.split_at(10);
    assert!(failed.iter().all(|line| line.ends_with(": -1 Input/output error")), "{said}");
    assert_eq!(
        fine.iter().filter(|line| line.ends_with(": 7 ")).count(),
        2,
        "what is no sync is not the log's: {said}"
    );
}

#[test]
fn a_descriptor_that_a_child_has_moved_which_the_c_library_made_is_not_taken_for_where_it_was() {
    same(&["spawned", "forked_bare"]);
}

#[test]
fn a_child_that_borrows_its_parents_memory_leaves_nothing_of_its_descriptors_there() {
    same(&["borrowed"]);
}

#[test]
fn a_descriptor_that_is_closed_amid_a_write_harms_neither_its_file_nor_the_log() {
    same(&["closed_amid_a_write", "given_away_amid_a_write"]);
}

#[test]
fn a_program_that_becomes_another_amid_a_write_leaves_no_lock() {
    same(&["replacing"]);
}

#[test]
fn an_append_that_the_system_refuses_leaves_the_descriptor_where_it_stands() {
    same(&["refused_alone", "refused_shared"]);
}

#[test]
fn a_file_that_only_its_maker_may_write_is_on_the_log_with_each_write_synced() {
    same(&["made_unwritable"]);
}

/// The device leaves bytes in the ring until a client waits for them: a power cut loses all that no client waited for.
#[test]
fn a_file_has_no_name_before_the_log_has_it_for_good() {
    const LARGE: [&str; 10] = [
        "--set",
        "fast.on_wrap=wait-for-trim",
        "--set",
        "memory.sram.size=5MiB",
        "--set",
        "fast.size=4MiB",
        "--set",
        "fast.lanes=1",
        "--set",
        "fast.log_size=12MiB",
    ];
    let Some(trial) = Trial::new() else { return };
    for (name, path) in [("renamed", "set/b"), ("renamed_by_link", "set/b"), ("renamed_with_its_folder", "set/b/b")] {
        let (folder, shadow) = (trial.fresh("under"), trial.fresh("shadow"));
        let device = Device::start(trial.folder.path(), &LARGE);
        let mut command = trial.start(trial.run_at("destaged", "set/**", &folder, name), &shadow);
        let (child, said) = until_its_end(command.env("CALLS_STAY", "1"));
        let errors = kill_all(child);
        let device = device.restart_without_ring(&LARGE);
        lose_power(folder.join(path).parent().expect("a folder"), &shadow);
        let recovered = recover(&folder);
        assert!(recovered.status.success(), "{name}: {recovered:?}\n{errors}{said}");
        assert_eq!(fs::read(folder.join(path)).expect("the file can be read"), b"0123456789", "{name}");
        device.kill();
        for file in ["drive", "ring"] {
            fs::remove_file(trial.folder.path().join(file)).expect("the file can be removed");
        }
    }
}

/// A message to a standard error whose reader has ended is no signal for the program.
#[test]
fn a_standard_error_without_a_reader_does_not_end_the_program() {
    let Some(trial) = Trial::new() else { return };
    let plain = trial.plainly("stream");
    let (folder, shadow) = (trial.fresh("under"), trial.fresh("shadow"));
    let _device = Device::start(trial.folder.path(), WAITS);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = trial.start(trial.run(&folder, "stream"), &shadow);
    let output = command.stderr(writer).output().expect("it starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!((String::from_utf8(output.stdout).expect("UTF-8"), files(&folder)), plain);
}
