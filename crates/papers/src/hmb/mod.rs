//! Host memory buffers in DRAM-less drives (Kim and Kim, PLOS ONE 15(3), 2020): what the paper's probes find.

pub(super) mod caches;
pub(super) mod mapping;

use super::{Measured, named, refused};
use tidewater_base::{Duration, Instant, Rng};
use tidewater_core::Device;
use tidewater_core::device::{self, Input, Output};
use tidewater_core::ftl::Precondition;
use tidewater_core::host::Submission;
use tidewater_sim::host_memory::LentMemory;
use tidewater_study::Failure;
use tidewater_study::experiment::{Point, Value};
use tidewater_wire::nvme::{DsmRange, Sqe};

/// The logical blocks of the six drives.
const BLOCK: u64 = 512;

/// Bytes of the drive.
fn capacity(point: &Point) -> Result<u64, Failure> {
    Ok((point.number("capacity_gib")? * (1u64 << 30) as f64) as u64)
}

/// A drive that is given a few commands at a time by a host that waits for all of them, as a raw device opened with
/// O_DIRECT is.
struct Host {
    device: Device,
    memory: LentMemory,
    now: Instant,
    tag: u64,
}

impl Host {
    /// A drive with this past.
    fn new(point: &Point, past: Precondition) -> Result<Host, Failure> {
        let (profile, seed, capacity) = (&point.drive()?.profile, point.seed()?, capacity(point)?);
        let options = device::Options { seed, capacity, precondition: past, ..device::Options::default() };
        let device = Device::new(profile, options).map_err(refused)?;
        let memory = LentMemory::of_profile(profile, &device, Instant::ZERO);
        let mut host = Host { device, memory, now: Instant::ZERO, tag: 0 };
        host.rest(Duration::from_ms(1)); // What is lent has been taken.
        Ok(host)
    }

    /// Handles the drive's pending outputs; completions count down `left`.
    fn poll(&mut self, left: &mut u32) {
        while let Some(output) = self.device.poll() {
            if self.memory.take(self.now, &output) {
                continue;
            }
            if let Output::Complete(completion) = output {
                assert!(completion.cqe.status.is_success(), "a healthy drive serves what is within it");
                *left = left.saturating_sub(1);
            }
        }
    }

    /// Handles the event that is due next. False: none is, by then.
    fn step(&mut self, until: Instant) -> bool {
        let event = self.device.deadline().unwrap_or(Instant::NEVER);
        let due = event.min(self.memory.next_at());
        if due == Instant::NEVER || due > until {
            return false;
        }
        self.now = self.now.max(due);
        let input = if event <= self.now { Some(Input::Timer) } else { self.memory.input(self.now) };
        if let Some(input) = input {
            let taken = self.device.handle(self.now, input);
            debug_assert!(taken.is_ok(), "only Submit is refused");
        }
        true
    }

    /// The host does nothing for a while.
    fn rest(&mut self, time: Duration) {
        let until = self.now + time;
        self.poll(&mut 0);
        while self.step(until) {
            self.poll(&mut 0);
        }
        self.now = until;
    }

    /// One request of the host: split as its kernel splits it, all parts submitted at once. Returns the time until the
    /// last is done.
    fn request(&mut self, write: bool, offset: u64, length: u64) -> Duration {
        let most = u64::from(self.device.profile().host.transfer_max);
        let began = self.now;
        let mut left = 0;
        let mut at = offset;
        while at < offset + length {
            let part = most.min(offset + length - at);
            let make = if write { Sqe::write } else { Sqe::read };
            self.submit(make(self.tag as u16, at / BLOCK, (part.div_ceil(BLOCK) - 1) as u16), &mut left);
            at += part;
        }
        self.wait(left);
        self.now - began
    }

    /// So many bytes in pieces, each when the one before it is done. Returns the time of all.
    fn pieces(&mut self, write: bool, offset: u64, length: u64, piece: u64) -> Duration {
        let began = self.now;
        let mut at = offset;
        while at < offset + length {
            let part = piece.min(offset + length - at);
            self.request(write, at, part);
            at += part;
        }
        self.now - began
    }

    fn flush(&mut self) {
        let mut left = 0;
        self.submit(Sqe::flush(self.tag as u16), &mut left);
        self.wait(left);
    }

    /// So many bytes from the start of the drive are deallocated.
    fn deallocate(&mut self, bytes: u64) {
        let mut left = 0;
        let ranges = Some(Box::from([DsmRange::new(0, (bytes / BLOCK) as u32)]));
        let sqe = Sqe::dataset_management(self.tag as u16, 0, true);
        self.enter(Submission { sqe, tag: self.tag, ranges }, &mut left);
        self.wait(left);
    }

    fn submit(&mut self, sqe: Sqe, left: &mut u32) {
        self.tag += 1;
        self.enter(Submission::new(sqe, self.tag), left);
    }

    fn enter(&mut self, submission: Submission, left: &mut u32) {
        // A full queue is waited for, as a host does.
        while self.device.handle(self.now, Input::Submit { queue: 0, submission: submission.clone() }).is_err() {
            self.poll(left);
            assert!(self.step(Instant::NEVER), "a full queue goes on");
        }
        *left += 1;
    }

    fn wait(&mut self, mut left: u32) {
        self.poll(&mut left);
        while left > 0 {
            assert!(self.step(Instant::NEVER), "a command that is under way ends");
            self.poll(&mut left);
        }
    }
}

/// A place on the drive, at a multiple of 64 KiB, with room for so many bytes, which it has.
fn place(rng: &mut Rng, capacity: u64, length: u64) -> u64 {
    rng.below(((capacity - length) >> 16).max(1)) << 16
}

/// Points on either side of a step that are compared.
const AROUND: usize = 4;

/// The last place before the first step that lasts: each of the next few points is above the mean of the last few by
/// this share.
fn knee(curve: &[(f64, f64)], share: f64) -> Option<f64> {
    (1..curve.len()).find_map(|i| {
        let before = &curve[i.saturating_sub(AROUND)..i];
        let mean = before.iter().map(|p| p.1).sum::<f64>() / before.len() as f64;
        let after = &curve[i..curve.len().min(i + AROUND)];
        after.iter().all(|p| p.1 >= mean * (1.0 + share)).then_some(curve[i - 1].0)
    })
}

#[cfg(test)]
mod tests {
    use super::super::ENTRIES;
    use super::super::tests::Silent;
    use super::*;
    use std::sync::Arc;
    use tidewater_study::experiment::{Asked, Names, Planned};
    use tidewater_study::{Follow, How};

    #[test]
    fn the_knee_is_before_the_first_step_that_lasts() {
        let curve = [(1.0, 10.0), (2.0, 30.0), (3.0, 12.0), (4.0, 60.0), (5.0, 61.0)];
        assert_eq!(knee(&curve, 0.5), Some(3.0), "not where one point stands out");
        assert_eq!(knee(&curve, 5.0), None);
        assert_eq!(knee(&curve[..3], 0.5), None);
        assert_eq!(knee(&[], 0.5), None);
    }

    /// The parameters of an experiment's file, and the sizes that a run of it measures, less of each than it says.
    fn probe(name: &str, less: &[(&str, &str)], full: bool) -> (impl Fn(&str) -> f64, Vec<f64>) {
        let entry = ENTRIES.iter().find(|entry| entry.name == name).expect("it is built in");
        let parameters: toml::Table = toml::from_str(entry.file).expect("built-in files are tested");
        let number = move |name: &str| match &parameters["parameters"][name]["value"] {
            toml::Value::Integer(number) => *number as f64,
            other => panic!("{name}: {other}"),
        };
        let text = entry.endings.iter().fold(entry.file.to_owned(), |text, ending| text + "\n" + ending);
        let text = less.iter().fold(text, |text, (now, less)| {
            assert!(text.contains(now), "{name}: {now}");
            text.replace(now, less)
        });
        let asked = Asked { seed: 1, quick: false, full };
        let planned =
            Planned::of_paper(name, &text, asked, &[], entry.measure, |_| Ok(Names::new())).expect("it is planned");
        let made = planned.run(&How::new(None, Arc::default()), &(Arc::new(Silent) as Arc<dyn Follow>));
        let experiment = made.expect("it runs").expect("it was not asked to end");
        let first = &experiment.figures[0].series[0];
        (number, first.points.iter().map(|point| point.x).collect())
    }

    #[test]
    fn the_probes_take_the_papers_parameters() {
        let less = [("value = 2048", "value = 80"), ("value = 512", "value = 1")];
        let (number, sizes) = probe("hmb/fig5", &less, true);
        let given = ["s_min_kib", "s_max_kib", "s_inc_kib", "useless_full_mib"];
        assert_eq!(given.map(&number), [8.0, 2_048.0, 2.0, 512.0]);
        assert_eq!(sizes, (4..=40).map(|i| f64::from(2 * i)).collect::<Vec<_>>());
        // Sizes beyond the knee, too: the spread there is compared.
        let less = [("value = 2048", "value = 976"), ("value = 512", "value = 1"), ("value = 10\n", "value = 1\n")];
        let (number, sizes) = probe("hmb/fig8", &less, true);
        assert_eq!(given.map(&number), [64.0, 2_048.0, 2.0, 512.0]);
        assert_eq!(sizes, (32..=488).map(|i| f64::from(2 * i)).collect::<Vec<_>>());
        let sizes = probe("hmb/fig8", &less, false).1;
        assert_eq!(sizes, (4..=61).map(|i| f64::from(16 * i)).collect::<Vec<_>>());
        let less = [("value = 20000", "value = 300"), ("value = 80\n", "value = 0.25\n")];
        let (number, sections) = probe("hmb/fig10", &less, true);
        assert_eq!(["d_inc", "d_max"].map(&number), [100.0, 20_000.0]);
        assert_eq!(sections, [100.0, 200.0, 300.0]);
        assert_eq!(probe("hmb/fig10", &less, false).1, [100.0, 200.0, 300.0]);
    }
}
