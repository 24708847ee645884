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
use tidewater_wire::nvme::Sqe;

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

    fn submit(&mut self, sqe: Sqe, left: &mut u32) {
        self.tag += 1;
        let submission = Submission::new(sqe, self.tag);
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

/// A place on the drive, at a multiple of 64 KiB, with room for so many bytes.
fn place(rng: &mut Rng, capacity: u64, length: u64) -> u64 {
    rng.below((capacity - length) >> 16) << 16
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
    use super::*;

    #[test]
    fn the_knee_is_before_the_first_step_that_lasts() {
        let curve = [(1.0, 10.0), (2.0, 30.0), (3.0, 12.0), (4.0, 60.0), (5.0, 61.0)];
        assert_eq!(knee(&curve, 0.5), Some(3.0), "not where one point stands out");
        assert_eq!(knee(&curve, 5.0), None);
        assert_eq!(knee(&curve[..3], 0.5), None);
        assert_eq!(knee(&[], 0.5), None);
    }
}
