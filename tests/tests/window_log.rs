//! A log in the byte window of a served drive (`tidewater_client::hardware::WindowLog`): what a sync confirmed is there
//! after the end of any process, and after a loss of the machine's power, which is modelled by setting the image back
//! to what was synced.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidewater_base::Rng;
use tidewater_client::LogError;
use tidewater_client::hardware::{Device, HardwareError, WindowLog};
use tidewater_files::{EmbeddedFiles, Globs, RunError, Setup};
use tidewater_tests::databases::witness::Witness;
use tidewater_tests::ring;
use tidewater_tests::wait;

/// Bytes of the window: two segments.
const WINDOW: &str = "128KiB";
/// Blocks of 512 bytes: both heads of a logical page of 4 KiB, and eight segments of 64 KiB.
const BLOCKS: u64 = (2 * 4 + 8 * 64) * 2;
const SEGMENT: u64 = 64 << 10;
const CAPACITY: u64 = 8 * SEGMENT;

/// A drive with a window, which is killed when this is dropped.
struct Served(ring::Device);

impl Served {
    fn start(folder: &Path, witness: Option<(&Witness, &Path)>) -> Served {
        Served::start_with(folder, witness, "by-capacitors")
    }

    fn start_with(folder: &Path, witness: Option<(&Witness, &Path)>, survives: &str) -> Served {
        let (size, survives) = (format!("window.size={WINDOW}"), format!("memory.ba.survives={survives}"));
        let memory = format!("memory.ba.size={WINDOW}");
        let mut more = Vec::new();
        for set in ["memory.ba.kind=dram", &memory, &survives, &size, "window.memory=ba"] {
            more.extend(["--set", set]);
        }
        Served(ring::Device::start_as(folder, &more, |command| {
            if let Some((witness, shadows)) = witness {
                witness.attach_tracking(command, shadows);
            }
        }))
    }

    fn target(&self) -> String {
        self.0.target()
    }

    fn log(&self) -> WindowLog {
        self.try_log(BLOCKS).expect("it is a log, or nothing")
    }

    fn try_log(&self, blocks: u64) -> Result<WindowLog, LogError> {
        attached(
            || WindowLog::open(&format!("window:0+{blocks}:{}", self.target())),
            |error| matches!(error, LogError::Taken),
        )
    }

    fn device(&self) -> Device {
        let taken = |error: &HardwareError| matches!(error, HardwareError::Served(LogError::Taken));
        attached(|| Device::open(&self.target()), taken).expect("no other client is attached")
    }

    fn kill(self) {
        self.0.kill();
    }
}

/// Attaches. Another test of this process may be between fork and exec of its device, which has a copy of the last
/// connection until then: so long that one has not ended, and the next is turned away.
fn attached<T, E>(attach: impl Fn() -> Result<T, E>, is_gone: impl Fn(&E) -> bool) -> Result<T, E> {
    let look = || Some(attach()).filter(|outcome| !outcome.as_ref().is_err_and(&is_gone));
    wait::some(|| "another client is attached".into(), look)
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// A payload that tells which it is; some are longer than half a segment.
fn payload(number: u64) -> Vec<u8> {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let len = 16 + mixed as usize % if number.is_multiple_of(16) { 40_000 } else { 2_000 };
    let filler = (0..len - 8).map(|at| (number as usize * 31 + at) as u8);
    number.to_le_bytes().into_iter().chain(filler).collect()
}

/// The numbers in a log, by the stream offsets of their records.
fn numbers(log: &WindowLog) -> BTreeMap<u64, u64> {
    let mut found = BTreeMap::new();
    let each = |lsn, bytes: &[u8]| {
        let number = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
        assert!(bytes == payload(number), "record {number} at {lsn} holds something else");
        found.insert(lsn, number);
        Ok::<(), LogError>(())
    };
    log.records(each).expect("all records are read");
    found
}

#[test]
fn a_log_goes_round_its_range_and_outlives_the_device() {
    let folder = folder();
    let (mut rng, mut want, mut number) = (Rng::new(8, b"window-log"), BTreeMap::new(), 0);
    let (mut safe, mut flushes) = (0, 0);
    for life in 0..4 {
        let served = Served::start(folder.path(), None);
        let log = served.log();
        let found = log.reopened();
        assert_eq!((found.is_new, log.segment_bytes(), log.capacity()), (life == 0, SEGMENT, CAPACITY));
        assert!(found.tail >= safe, "life {life}: it ends at {}, and {safe} was synced", found.tail);
        assert_eq!(found.flushed > 0, life > 0, "life {life}");
        // What was appended behind the last sync may be there or not.
        want.split_off(&found.tail);
        assert_eq!(numbers(&log), want, "life {life}");
        let mut full = 0;
        for _ in 0..250 {
            number += 1;
            let bytes = payload(number);
            let (first, rest) = bytes.split_at(11);
            let written = loop {
                match log.append(&[first, &[], rest]) {
                    Ok(written) => break written,
                    Err(LogError::Untrimmed) => {
                        full += 1;
                        // To a record in the middle, or all of it.
                        let middle = want.keys().nth(want.len() / 2).copied().expect("the range is full of them");
                        let to = if rng.below(8) == 0 { log.end() } else { middle };
                        log.trim(to).expect("what is there can be trimmed");
                        want = want.split_off(&to);
                        assert_eq!((log.head(), log.synced() >= to), (to, true));
                    }
                    Err(error) => panic!("{error}"),
                }
            };
            want.insert(written.lsn, number);
            if rng.below(3) == 0 {
                log.sync(written.end).expect("it becomes safe");
                safe = written.end;
                assert!(log.synced() >= safe);
            }
        }
        assert_eq!(numbers(&log), want, "life {life}: while it is written");
        assert!(full > 0, "life {life}: the range was never full");
        flushes += log.counted().0;
        safe = safe.max(log.synced());
        assert!(matches!(log.read(0, &mut [0; 8]), Err(LogError::Released { offset: 0 })));
        assert!(matches!(log.read(log.end(), &mut [0; 8]), Err(LogError::NoMoreLog { .. })));
        assert!(matches!(log.append(&[&vec![0; SEGMENT as usize]]), Err(LogError::TooLarge { .. })));
    }
    assert!(flushes > 30, "{flushes} segments were flushed");
}

#[test]
fn what_is_no_log_is_refused_in_words() {
    let folder = folder();
    let served = Served::start(folder.path(), None);
    let refused = |blocks: u64, word: &str| {
        let error = served.try_log(blocks).expect_err("it must not open").to_string();
        assert!(error.contains(word), "{error}, not {word}; the device said: {}", served.0.errors());
    };
    refused(40, "whole logical pages");
    refused(u64::MAX, "whole logical pages");
    drop(served.log());
    // A log of another size is not taken for one of this size.
    refused(BLOCKS / 2, "not what fits");
    {
        let mut device = served.device();
        let write = tidewater_wire::nvme::Sqe::write(0, 0, 63).with_nsid(1);
        device
            .run(tidewater_client::hardware::Queue::Io, &write, &mut [7; 32 << 10], "Write")
            .expect("blocks are written");
    }
    refused(BLOCKS, "something else");
    {
        let mut device = served.device();
        let mut window = device.window(1).expect("there is a window");
        window.pin(1, None, BLOCKS, 32).expect("it is pinned");
    }
    refused(BLOCKS, "belongs to another process");
    served.kill();
    std::fs::remove_file(folder.path().join("drive")).expect("the image");
    let served = Served::start_with(folder.path(), None, "nothing");
    let error = served.try_log(BLOCKS).expect_err("a sync would promise nothing").to_string();
    assert!(error.contains("is volatile"), "{error}");
    assert!(WindowLog::open("window:0+x:vfio-user:s").is_err() && WindowLog::open("vfio-user:s").is_err());
}

/// Threads that trim at once, and do not know of each other how far: the durable head never goes back.
/// A function has one client, and the next one gets an error that says so: its device has not gone.
#[test]
fn a_client_that_is_turned_away_hears_of_the_other() {
    let folder = folder();
    let served = Served::start(folder.path(), None);
    let log = served.log();
    let target = format!("window:0+{BLOCKS}:{}", served.target());
    let other = WindowLog::open(&target).expect_err("a function has one client");
    assert!(matches!(other, LogError::Taken), "{other}");
    assert!(other.to_string().contains("another client"), "{other}");
    drop(log);
    drop(served.log());
}

#[test]
fn threads_that_trim_at_once_leave_a_log() {
    let folder = folder();
    let served = Served::start(folder.path(), None);
    for round in 0..4 {
        let log = served.log();
        let ends: Vec<u64> =
            (0..40).map(|at| log.append(&[&payload(round * 64 + at)]).expect("there is room").end).collect();
        log.sync(log.end()).expect("it becomes safe");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (log, ends) = (&log, &ends);
                scope.spawn(move || {
                    ends.iter().skip(thread).step_by(4).for_each(|end| log.trim(*end).expect("the log can be trimmed"))
                });
            }
        });
        let (head, tail) = (log.head(), log.end());
        assert_eq!(head, tail, "all is trimmed");
        drop(log);
        let reopened = served.log().reopened();
        assert_eq!((reopened.head, reopened.tail), (head, tail), "the head went back");
    }
}

/// Commits that a writer has confirmed: number and place.
fn confirmed(folder: &Path) -> Vec<(u64, u64)> {
    let bytes = std::fs::read(folder.join("confirmed")).unwrap_or_default();
    let word = |line: &[u8], at: usize| u64::from_le_bytes(line[at..at + 8].try_into().expect("8 bytes"));
    bytes.chunks_exact(16).map(|line| (word(line, 0), word(line, 8))).collect()
}

/// Starts a process whose threads commit until it is killed. `mode`: `commits`, or `forgets` to sync.
fn start_writer(folder: &Path, target: &str, life: u64, mode: &str) -> Child {
    Command::new(std::env::current_exe().expect("a test is a program"))
        .args(["window_log::child_that_commits", "--exact", "--ignored", "--nocapture"])
        .current_dir(folder)
        .env("TIDEWATER_TEST_CHILD", format!("{life} {mode} {target}"))
        .stdout(Stdio::null())
        .stderr(OpenOptions::new().create(true).append(true).open(folder.join("writer")).expect("a folder"))
        .spawn()
        .expect("it starts")
}

#[test]
#[ignore = "not a test: the process that other tests kill"]
fn child_that_commits() {
    let Ok(words) = std::env::var("TIDEWATER_TEST_CHILD") else { return };
    let words: Vec<&str> = words.splitn(3, ' ').collect();
    let life: u64 = words[0].parse().expect("a number");
    let commits = words[1] == "commits";
    let log = WindowLog::open(&format!("window:0+{BLOCKS}:{}", words[2])).expect("it is a log");
    let out = OpenOptions::new().create(true).append(true).open("confirmed").expect("the folder is writable");
    let out = Arc::new(Mutex::new(out));
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (log, out) = (&log, &out);
            scope.spawn(move || {
                for i in 0.. {
                    let number = life << 32 | thread << 28 | i;
                    let bytes = payload(number);
                    let written = loop {
                        match log.append(&[&bytes]) {
                            Ok(written) => break written,
                            // Other threads trim as well: half of what is there then.
                            Err(LogError::Untrimmed) => {
                                let (head, end) = (log.head(), log.end());
                                let mut to = head;
                                let find = |lsn, _: &[u8]| {
                                    to = if to < head + (end - head) / 2 { lsn } else { to };
                                    Ok::<(), LogError>(())
                                };
                                match log.records(find) {
                                    Ok(()) => log.trim(to).expect("the device is there"),
                                    Err(LogError::Released { .. }) => {}
                                    Err(error) => panic!("{error}"),
                                }
                            }
                            Err(error) => panic!("{error}"),
                        }
                    };
                    if commits {
                        log.sync(written.end).expect("the device is there");
                    }
                    let line = [number, written.lsn].map(u64::to_le_bytes).concat();
                    out.lock().expect("no thread panicked").write_all(&line).expect("there is room");
                }
            });
        }
    });
}

/// Who ends.
#[derive(Clone, Copy, Debug)]
enum Ends {
    Writer,
    Device,
    Both,
    /// The machine: both, and what was not synced.
    Power,
}

/// Has a writer commit for a while, ends what is to end, and looks for all confirmed commits. Returns how many there
/// were, and how many of them are lost.
fn round(folder: &Path, witness: &Witness, shadows: &Path, life: u64, ends: Ends, mode: &str) -> (usize, usize) {
    let drive = folder.join("drive");
    let _ = std::fs::remove_file(folder.join("confirmed"));
    let served = Served::start(folder, Some((witness, shadows)));
    let mut writer = start_writer(folder, &served.target(), life, mode);
    // So that some rounds end early, and others once the range was full.
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while confirmed(folder).len() < 20 + (life as usize % 5) * 60 && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
        assert!(writer.try_wait().expect("the process can be polled").is_none(), "{}", said(folder));
    }
    let mut served = Some(served);
    if !matches!(ends, Ends::Writer) {
        served.take().expect("the process runs").kill();
    }
    if matches!(ends, Ends::Device) {
        // It finds out by itself.
        assert!(!writer.wait().expect("the process can be waited for").success());
    } else {
        writer.kill().expect("the process can be killed");
        writer.wait().expect("the process can be waited for");
    }
    if matches!(ends, Ends::Power) {
        witness.reset(shadows, &[&drive]).expect("the image is there");
    }
    let served = served.unwrap_or_else(|| Served::start(folder, Some((witness, shadows))));
    let log = served.log();
    let there = numbers(&log);
    let committed = confirmed(folder);
    let lost = committed.iter().filter(|(number, lsn)| *lsn >= log.head() && there.get(lsn) != Some(number)).count();
    if lost > 0 {
        let places = committed.iter().map(|(_, lsn)| *lsn);
        let (first, last) = (places.clone().min(), places.max());
        println!("{lost} lost of those from {first:?} to {last:?}; {:?}; {:?}", log.reopened(), there.last_key_value());
    }
    (committed.len(), lost)
}

fn said(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("writer")).unwrap_or_default()
}

fn rounds(each: u64) {
    let (folder, other) = (folder(), self::folder());
    let (witness, shadows) = (Witness::build(other.path()).expect("a C compiler"), other.path().join("shadows"));
    std::fs::create_dir(&shadows).expect("a folder");
    let mut life = 0;
    for ends in [Ends::Writer, Ends::Device, Ends::Both, Ends::Power] {
        let mut all = 0;
        for _ in 0..each {
            life += 1;
            let (commits, lost) = round(folder.path(), &witness, &shadows, life, ends, "commits");
            assert_eq!(lost, 0, "{ends:?}, life {life}: of {commits} commits");
            assert!(commits >= 20, "{ends:?}, life {life}: {commits} commits: {}", said(folder.path()));
            all += commits;
        }
        println!("{ends:?} ends: {each} rounds, {all} commits, 0 lost");
    }
    // The control: who tells without a sync loses.
    let mut lost = 0;
    for ends in [Ends::Both, Ends::Power] {
        life += 1;
        lost += round(folder.path(), &witness, &shadows, life, ends, "forgets").1;
    }
    println!("without syncs: {lost} lost");
    assert!(lost > 0, "the test would not see a loss");
}

#[test]
fn no_commit_is_lost_when_writer_or_device_ends() {
    rounds(2);
}

#[test]
#[ignore = "long: make torture"]
fn torture_no_commit_is_lost_when_writer_or_device_ends() {
    rounds(50);
}

/// The remedy that a layer names when it can't apply a log: `tidewater recover`.
#[test]
fn files_on_a_log_in_the_window_are_recovered_by_hand() {
    let folder = folder();
    let served = Served::start(folder.path(), None);
    let target = format!("window:0+{BLOCKS}:{}", served.target());
    let path = folder.path().canonicalize().expect("the folder exists").join("file");
    let left = || {
        std::fs::write(&path, "").expect("the folder is writable");
        let setup = Setup {
            target: target.clone(),
            lane: 0,
            level: None,
            globs: Globs::from_text("/**"),
            owners: Vec::new(),
            forget: false,
            adopt: false,
        };
        let (files, _) =
            attached(|| EmbeddedFiles::open(&setup), |error| matches!(error, RunError::Log(LogError::Taken)))?;
        let number = files.enter(&path).expect("the file can join the set");
        files.write(number, 0, b"promised", || true).expect("there is room");
        files.sync(number).expect("the file can be synced");
        Ok::<(), RunError>(())
    };
    let recover = |verb: &str, more: &[&str]| {
        let start = Instant::now();
        loop {
            let done = tidewater_tests::run(folder.path(), &[&[verb, "--device", &target], more].concat());
            let is_busy = String::from_utf8_lossy(&done.stderr).contains("one program at a time");
            if !is_busy || start.elapsed() > tidewater_tests::PATIENCE {
                return (done.status.success(), String::from_utf8_lossy(&done.stdout).into_owned());
            }
        }
    };
    left().expect("a log");
    let (done, said) = recover("recover", &["--dry-run"]);
    assert!(done && said.contains("1 record to replay"), "{said}");
    let (done, said) = recover("recover", &[]);
    assert!(done && std::fs::read(&path).expect("the file can be read") == b"promised", "{said}");
    left().expect("a log");
    std::fs::remove_file(&path).expect("the file can be removed");
    let (done, said) = recover("drain", &[]);
    assert!(!done && said.contains("MISSING"), "{said}");
    assert!(left().is_err(), "it is kept");
    std::fs::remove_file(&path).expect("the file can be removed");
    let (done, said) = recover("drain", &["--forget"]);
    assert!(done && said.contains("the log of lane 0 is empty"), "{said}");
    left().expect("a log");
}

/// The witness takes back what no sync has confirmed: a store into the window alone is gone, one that a `BA_SYNC`
/// followed is not.
#[test]
fn a_loss_of_power_takes_what_was_not_synced() {
    let (folder, other) = (folder(), self::folder());
    let (witness, shadows) = (Witness::build(other.path()).expect("a C compiler"), other.path().join("shadows"));
    std::fs::create_dir(&shadows).expect("a folder");
    let served = Served::start(folder.path(), Some((&witness, &shadows)));
    let mut device = served.device();
    let mut window = device.window(1).expect("there is a window");
    let entry = window.pin(3, None, 0, 32).expect("it is pinned");
    window.write(&entry, 0, &[1; 4000]).expect("the window accepts the store");
    window.sync(&entry, 0, 4000).expect("the window can be synced");
    window.write(&entry, 8192, &[2; 4000]).expect("the window accepts the store");
    served.kill();
    witness.reset(&shadows, &[&folder.path().join("drive")]).expect("the image is there");
    let served = Served::start(folder.path(), Some((&witness, &shadows)));
    let mut device = served.device();
    let mut window = device.window(1).expect("there is a window");
    let entry = window.entry(3).expect("it is pinned still");
    let mut found = [0; 4000];
    window.load(&entry, 0, &mut found).expect("it is loaded");
    assert!(found == [1; 4000], "what was synced is gone");
    window.load(&entry, 8192, &mut found).expect("it is loaded");
    assert!(found != [2; 4000], "the witness took nothing back");
}
