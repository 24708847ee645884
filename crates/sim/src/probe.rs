//! A simulated drive as the target of a probe: requests are timed by the virtual clock, and its host lends memory where
//! the profile says so.

use crate::host_memory::{LentMemory, settle};
use tidewater_base::units::bytes as bytes_in_words;
use tidewater_base::{Duration, Instant};
use tidewater_core::content::PAST;
use tidewater_core::device::{Input, Output};
use tidewater_core::host::Submission;
use tidewater_core::profile::{MemoryKind, Profile};
use tidewater_core::{Device, Options};
use tidewater_probe::{About, HostMemory, Lend, Op, Request, Target, TargetError, Timed};
use tidewater_wire::nvme::{DsmRange, Sqe};

/// Events of the device without any completion that are taken for a hang.
const EVENTS_TO_STALL: u64 = 1 << 26;

/// A simulated drive that can be probed.
#[derive(Clone, Debug)]
pub struct SimulatedDrive {
    name: String,
    device: Device,
    now: Instant,
    /// Memory that the host lends, and its size at first.
    memory: LentMemory,
    lent: u64,
    /// Submission queue entries that can be used at once.
    depth_max: u32,
    /// Requests under way, by command identifier, and identifiers that are free.
    commands: Vec<usize>,
    free: Vec<u16>,
}

impl SimulatedDrive {
    /// A new drive that `options` describe: to be probed it should have a past ([`Options::precondition`]), because
    /// reading what was never written costs no flash.
    ///
    /// # Errors
    /// In words, when there can be no such drive.
    pub fn new(profile: &Profile, options: Options) -> Result<SimulatedDrive, TargetError> {
        let device = Device::new(profile, options).map_err(|error| TargetError(error.to_string()))?;
        let wanted = device.host_memory().wanted();
        let lent = match profile.hmb.size {
            _ if !profile.hmb.enabled => 0,
            0 => wanted,
            size => size.min(wanted),
        };
        let lent = if lent < profile.serve.hmb_min { 0 } else { lent };
        let mut drive = SimulatedDrive {
            name: profile.name.clone(),
            device,
            now: Instant::ZERO,
            memory: LentMemory::default(),
            lent,
            depth_max: profile.host.queue_entries - 1,
            commands: Vec::new(),
            free: Vec::new(),
        };
        drive.lend(lent)?;
        Ok(drive)
    }

    /// The same under another name than its profile's: where that comes from, and what was changed of it.
    pub fn called(self, name: String) -> SimulatedDrive {
        SimulatedDrive { name, ..self }
    }

    /// The drive.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn submit(&mut self, request: &Request, index: usize) -> Result<(), TargetError> {
        let shift = self.device.profile().host.block_size.trailing_zeros();
        let cid = self.free.pop().unwrap_or_else(|| {
            self.commands.push(0);
            (self.commands.len() - 1) as u16
        });
        self.commands[usize::from(cid)] = index;
        let (first, blocks) = (request.offset >> shift, request.length >> shift);
        // The number of blocks counts from 0.
        let count = blocks.wrapping_sub(1) as u16;
        let mut ranges = None;
        let sqe = match request.op {
            Op::Read => Sqe::read(cid, first, count),
            Op::Write => Sqe::write(cid, first, count),
            Op::Flush => Sqe::flush(cid),
            Op::Deallocate => {
                let blocks = u32::try_from(blocks).map_err(|_| TargetError("a deallocation is too long".into()))?;
                ranges = Some(Box::from([DsmRange::new(first, blocks)]));
                Sqe::dataset_management(cid, 0, true)
            }
        };
        let submission = Submission { sqe, tag: PAST, ranges };
        self.device
            .handle(self.now, Input::Submit { queue: 0, submission })
            .map_err(|_| TargetError("the drive's submission queue is full".into()))
    }

    /// Lends so much memory, nothing of the drive's being under way.
    fn lend(&mut self, bytes: u64) -> Result<(), TargetError> {
        if bytes != self.memory.bytes() {
            let settled = settle(&mut self.device, &mut self.memory, self.now, bytes);
            self.now = settled.map_err(|output| TargetError(format!("the drive was at work: {output:?}")))?;
        }
        Ok(())
    }

    /// When something happens next, inside or in the host's memory; [`Instant::NEVER`]: nothing will.
    fn next_at(&self) -> Instant {
        self.device.deadline().unwrap_or(Instant::NEVER).min(self.memory.next_at())
    }

    /// Handles the next event. False: there is none.
    fn step(&mut self) -> bool {
        let at = self.next_at();
        if at == Instant::NEVER {
            return false;
        }
        self.now = self.now.max(at);
        let input = match self.device.deadline() {
            Some(inside) if inside <= self.now => Some(Input::Timer),
            _ => self.memory.input(self.now),
        };
        if let Some(input) = input {
            let taken = self.device.handle(self.now, input);
            debug_assert!(taken.is_ok(), "only submissions are refused");
        }
        true
    }

    /// The next completion that the drive has to tell; the host's memory is served on the way.
    fn poll(&mut self) -> Option<Output> {
        loop {
            let output = self.device.poll()?;
            if !self.memory.take(self.now, &output) {
                return Some(output);
            }
        }
    }
}

impl Target for SimulatedDrive {
    fn about(&self) -> About {
        let profile = self.device.profile();
        About {
            name: self.name.clone(),
            kind: "simulated drive".into(),
            capacity: self.device.capacity(),
            block: profile.host.block_size.into(),
            largest: profile.host.transfer_max.into(),
            deallocates: true,
        }
    }

    fn run(&mut self, requests: &[Request], depth: u32, timed: &mut Vec<Timed>) -> Result<(), TargetError> {
        let depth = depth.clamp(1, self.depth_max) as usize;
        let (began, first) = (self.now, timed.len());
        timed.resize(first + requests.len(), Timed::default());
        let (mut next, mut under_way, mut events) = (0, 0, 0);
        loop {
            while under_way < depth
                && let Some(request) = requests.get(next)
            {
                timed[first + next].submitted = self.now.since(began);
                self.submit(request, next)?;
                (next, under_way) = (next + 1, under_way + 1);
            }
            while let Some(output) = self.poll() {
                let Output::Complete(completion) = output else { continue };
                let cid = completion.cqe.cid;
                let index = self.commands[usize::from(cid)];
                self.free.push(cid);
                (under_way, events) = (under_way - 1, 0);
                timed[first + index].ended = self.now.since(began);
                if !completion.cqe.status.is_success() {
                    return Err(TargetError(format!("{:?} failed: {:?}", requests[index], completion.cqe.status)));
                }
            }
            if under_way == 0 && next == requests.len() {
                return Ok(());
            }
            if under_way == depth || next == requests.len() {
                events += 1;
                if events > EVENTS_TO_STALL || !self.step() {
                    return Err(TargetError(format!("the drive hangs:\n{}", self.device.describe_outstanding())));
                }
            }
        }
    }

    fn idle(&mut self, time: Duration) -> Result<(), TargetError> {
        let until = self.now + time;
        while self.next_at() <= until {
            self.step();
            while self.poll().is_some() {}
        }
        self.now = until;
        Ok(())
    }

    fn now(&self) -> Duration {
        self.now.since(Instant::ZERO)
    }

    fn writable(&self) -> Result<(), String> {
        Ok(()) // It is there for the probe alone.
    }

    fn host_memory(&self) -> HostMemory {
        match self.device.host_memory().wanted() {
            // What is modelled by a latency alone cannot be taken back: to say that it is the drive's own would be
            // wrong.
            0 if self.device.profile().memories.iter().any(|memory| memory.kind == MemoryKind::Host) => {
                HostMemory::Cannot(
                    "the simulated host cannot take back what this drive has placed on host memory".into(),
                )
            }
            0 => HostMemory::None,
            most => HostMemory::Sizes { size: self.lent, most },
        }
    }

    fn set_host_memory(&mut self, lend: Lend) -> Result<(), TargetError> {
        let most = self.device.host_memory().wanted();
        match lend {
            Lend::Nothing => self.lend(0),
            Lend::AsFound => self.lend(self.lent),
            Lend::Bytes(bytes) if bytes > 0 && bytes < self.device.profile().serve.hmb_min => {
                let least = self.device.profile().serve.hmb_min;
                Err(TargetError(format!("the drive takes no less than {} of its host", bytes_in_words(least))))
            }
            Lend::Bytes(bytes) if bytes <= most => self.lend(bytes),
            Lend::Bytes(bytes) => Err(TargetError(format!(
                "the drive has no use for {} of its host, only for {}",
                bytes_in_words(bytes),
                bytes_in_words(most)
            ))),
        }
    }
}
