//! A simulated drive as the target of a probe: requests are timed by the virtual clock.

use tidewater_base::{Duration, Instant};
use tidewater_core::device::{Input, Output, PAST};
use tidewater_core::host::Submission;
use tidewater_core::profile::Profile;
use tidewater_core::{Device, Options};
use tidewater_probe::{About, HostMemory, Op, Request, Target, TargetError, Timed};
use tidewater_wire::nvme::{DsmRange, Sqe};

/// Events of the device without any completion that are taken for a hang.
const EVENTS_TO_STALL: u64 = 1 << 26;

/// A simulated drive that can be probed.
#[derive(Clone, Debug)]
pub struct SimulatedDrive {
    device: Device,
    now: Instant,
    /// Submission queue entries that can be used at once.
    depth_max: u32,
    /// Requests under way, by command identifier, and identifiers that are free.
    commands: Vec<usize>,
    free: Vec<u16>,
}

impl SimulatedDrive {
    /// A new drive that `options` describe: to be probed it should have a past ([`Options::precondition`]), because reading what
    /// was never written costs no flash.
    ///
    /// # Errors
    /// In words, when there can be no such drive.
    pub fn new(profile: &Profile, options: Options) -> Result<SimulatedDrive, TargetError> {
        let device = Device::new(profile, options).map_err(|error| TargetError(error.to_string()))?;
        let depth_max = profile.host.queue_entries - 1;
        Ok(SimulatedDrive { device, now: Instant::ZERO, depth_max, commands: Vec::new(), free: Vec::new() })
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

    /// Handles the next event of the device. False: there is none.
    fn step(&mut self) -> bool {
        let Some(at) = self.device.deadline() else { return false };
        self.now = self.now.max(at);
        let taken = self.device.handle(self.now, Input::Timer);
        debug_assert!(taken.is_ok(), "a timer is never refused");
        true
    }
}

impl Target for SimulatedDrive {
    fn about(&self) -> About {
        let profile = self.device.profile();
        About {
            name: profile.name.clone(),
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
            while let Some(output) = self.device.poll() {
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
        while self.device.deadline().is_some_and(|at| at <= until) {
            self.step();
            while self.device.poll().is_some() {}
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
        HostMemory::None
    }

    fn set_host_memory(&mut self, bytes: u64) -> Result<(), TargetError> {
        if bytes == 0 { Ok(()) } else { Err(TargetError("this drive borrows no memory from its host".into())) }
    }
}
