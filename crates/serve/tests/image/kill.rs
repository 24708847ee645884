//! A process that really ends: SIGKILL at a write, half of it done, and at any moment.

use crate::image::log::with_log;
use crate::image::model::Model;
use crate::image::rig::{HostEvent, Rig, tiny, wide};
use nix::sys::signal::{Signal, raise};
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tidewater_base::Rng;
use tidewater_core::profile::Profile;
use tidewater_nand::FaultPlan;
use tidewater_serve::image::{FileStorage, ImageOptions, Storage, Syncing, Target};

/// The child's job: the image, a seed, and the write at which it ends (none: when it is killed).
const JOB: &str = "TIDEWATER_TEST_KILL";

/// A file that ends its process at the nth write or hole.
struct Mortal {
    file: FileStorage,
    left: Option<u64>,
}

impl Mortal {
    fn is_over(&mut self) -> bool {
        match &mut self.left {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }
}

impl Storage for Mortal {
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_at(at, into)
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if self.is_over() {
            // A whole sector is written or it is not; of everything else a half, which is more than a disk does.
            let is_sector = bytes.len() == 512 && at.is_multiple_of(512);
            self.file.write_at(at, &bytes[..if is_sector { 0 } else { bytes.len() / 2 }])?;
            raise(Signal::SIGKILL).unwrap();
        }
        self.file.write_at(at, bytes)
    }

    fn begin_sync(&mut self) -> Syncing {
        self.file.begin_sync()
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn set_size(&mut self, len: u64) -> io::Result<()> {
        self.file.set_size(len)
    }

    fn punch(&mut self, at: u64, len: u64) -> io::Result<()> {
        if self.is_over() {
            self.file.punch(at, len / 2)?;
            raise(Signal::SIGKILL).unwrap();
        }
        self.file.punch(at, len)
    }
}

fn child(job: &str) {
    let mut parts = job.rsplitn(3, ';');
    let left = parts.next().and_then(|n| n.parse().ok());
    let seed = parts.next().and_then(|n| n.parse().ok()).expect("a seed");
    let path = Path::new(parts.next().expect("a path"));
    let storage = Mortal { file: FileStorage::open(path).unwrap(), left };
    let target = Target::Storage(Box::new(storage), "child");
    let (mut rig, _) = Rig::reopen(target, ImageOptions::default(), FaultPlan::default(), seed).unwrap();
    rig.model = Model::after_crash(&rig.contents().unwrap());
    (rig.keeps_rings, rig.skips) = (seed % 2 == 1, seed % 4 > 1);
    rig.see_credit();
    let mut out = io::stdout().lock();
    rig.tell = Some(Box::new(move |event| {
        let line = match event {
            HostEvent::Begin { command, blocks, id } => {
                format!("@begin {command} {} {} {id}", blocks.start, blocks.end)
            }
            HostEvent::Complete { command, blocks, durable } => {
                format!("@complete {command} {} {} {}", blocks.start, blocks.end, u8::from(*durable))
            }
            HostEvent::BeginFlush { command, stored: [one, other] } => format!("@flush {command} {one} {other}"),
            HostEvent::Log { stored, credit, trimmed } => {
                let numbers = [stored, credit, trimmed].into_iter().flatten().map(u64::to_string);
                format!("@log {}", numbers.collect::<Vec<_>>().join(" "))
            }
            HostEvent::CompleteFlush { command } => format!("@flushed {command}"),
        };
        out.write_all(format!("\n{line}\n").as_bytes()).and_then(|()| out.flush()).expect("the parent listens");
    }));
    loop {
        assert!(rig.step(), "the drive hangs");
    }
}

/// What the child said that its host did and saw. Returns how many commands completed.
fn follow(model: &mut Model, said: impl BufRead) -> u64 {
    let mut completed = 0;
    for line in said.lines() {
        let line = line.expect("the pipe works");
        let mut words = line.split(' ');
        let what = words.next().unwrap_or_default();
        if !what.starts_with('@') {
            continue;
        }
        let numbers: Vec<u64> = words.map(|word| word.parse().expect("a number")).collect();
        match (what, &numbers[..]) {
            ("@begin", &[command, start, end, id]) => model.begin(command, start..end, id),
            ("@complete", &[command, start, end, durable]) => model.complete(command, start..end, durable == 1),
            ("@flush", &[command, one, other]) => {
                model.begin_flush(command);
                model.log.begin_flush(command, [one, other]);
            }
            ("@log", &[s0, s1, c0, c1, t0, t1]) => model.log.learn([s0, s1], [c0, c1], [t0, t1]),
            ("@flushed", &[command]) => model.complete_flush(command),
            _ => panic!("the child said {line}"),
        }
        completed += u64::from(what == "@complete" || what == "@flushed");
    }
    completed
}

/// Lives of one drive, each ended by SIGKILL: at the nth write, or after so many microseconds.
fn lives(test: &str, profile: &Profile, ends: impl Iterator<Item = (Option<u64>, u64)>) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.tide");
    let rig = Rig::create(Target::Path(&path), profile, 1, ImageOptions::default()).unwrap();
    let mut model = rig.model.clone();
    drop(rig);
    let (mut killed, mut commands) = (0, 0);
    for (life, (nth, after_us)) in ends.enumerate() {
        let end = nth.map_or("-".to_owned(), |nth| nth.to_string());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--include-ignored", "--nocapture"])
            .env(JOB, format!("{};{life};{end}", path.display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        if nth.is_none() {
            let reader = std::thread::scope(|scope| {
                let reader = scope.spawn(|| follow(&mut model, said));
                std::thread::sleep(Duration::from_micros(after_us));
                child.kill().unwrap();
                reader.join().unwrap()
            });
            commands += reader;
        } else {
            commands += follow(&mut model, said);
        }
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "the child ended by itself");
        killed += 1;
        let (mut rig, _) =
            Rig::reopen(Target::Path(&path), ImageOptions::default(), FaultPlan::default(), life as u64).unwrap();
        rig.check_after_crash(&model).unwrap_or_else(|error| panic!("life {life}, write {nth:?}: {error}"));
        model = rig.model.clone();
    }
    println!("{test}: {killed} processes killed, {commands} commands completed");
    (killed, commands)
}

fn at_random(seed: u64, lives: u64) -> impl Iterator<Item = (Option<u64>, u64)> {
    let mut rng = Rng::new(seed, b"kill");
    (0..lives).map(move |_| (None, 20_000 + rng.below(180_000)))
}

#[test]
fn a_killed_process_loses_nothing_that_was_flushed() {
    let test = "image::kill::a_killed_process_loses_nothing_that_was_flushed";
    if let Ok(job) = std::env::var(JOB) {
        return child(&job);
    }
    let (_, commands) = lives(test, &wide(), (0..12u64).map(|life| (Some(life * life * 7), 0)));
    assert!(commands > 100);
    lives(test, &tiny(), at_random(1, 8));
}

#[test]
fn a_killed_process_leaves_a_log_with_all_that_was_credited() {
    let test = "image::kill::a_killed_process_leaves_a_log_with_all_that_was_credited";
    if let Ok(job) = std::env::var(JOB) {
        return child(&job);
    }
    let (_, commands) = lives(test, &with_log(wide()), (0..10u64).map(|life| (Some(life * life * 5), 0)));
    assert!(commands > 20);
    lives(test, &with_log(tiny()), at_random(3, 6));
}

#[test]
#[ignore = "long: make torture"]
fn torture_a_log_killed_at_every_write() {
    let test = "image::kill::torture_a_log_killed_at_every_write";
    if let Ok(job) = std::env::var(JOB) {
        return child(&job);
    }
    lives(test, &with_log(tiny()), (0..600).map(|nth| (Some(nth), 0)));
    lives(test, &with_log(wide()), (0..400).map(|nth| (Some(nth), 0)));
    lives(test, &with_log(wide()), at_random(4, 200));
}

#[test]
#[ignore = "long: make torture"]
fn torture_a_kill_at_every_write() {
    let test = "image::kill::torture_a_kill_at_every_write";
    if let Ok(job) = std::env::var(JOB) {
        return child(&job);
    }
    let (killed, commands) = lives(test, &tiny(), (0..1_500).map(|nth| (Some(nth), 0)));
    assert!(killed == 1_500 && commands > 10_000);
    lives(test, &wide(), (0..600).map(|nth| (Some(nth), 0)));
    lives(test, &wide(), at_random(2, 300));
}
