//! Experiments with the byte window of 2B-SSD, and what they share: drives, a host, requests that are timed.

pub(super) mod bandwidth;
pub(super) mod latency;
pub(super) mod logs;

use super::{Measured, figures, refused};
use std::collections::VecDeque;
use tidewater_base::{Duration, Instant};
use tidewater_core::drive::{VirtualClock, drive};
use tidewater_core::ftl::Precondition;
use tidewater_core::{Device, Options};
use tidewater_sim::host::{Application, Attached, CallSpec, Request, WindowClient, WindowRequest};
use tidewater_sim::metrics::Histogram;
use tidewater_sim::pcie::{CpuSpec, CreditSpec, Drain, PcieSpec};
use tidewater_study::Failure;
use tidewater_study::experiment::Point;
use tidewater_wire::vendor::{ANYWHERE, WindowCommand};

/// Bytes of a logical block of the drives here.
const BLOCK: u64 = 512;
const PAGE: u64 = 4096;

/// A drive of 8 GiB, all of it written before.
fn device(point: &Point, precondition: Precondition) -> Result<Device, Failure> {
    let options = Options { seed: point.seed()?, capacity: 8 << 30, premap: true, precondition, ..Options::default() };
    Device::new(&point.drive()?.profile, options).map_err(refused)
}

/// A core of the paper's server: Xeon E5-2699 v3 (Haswell) at 2.3 GHz.
fn pcie(device: &Device, seed: u64) -> PcieSpec {
    PcieSpec {
        cores: 1,
        // One store a cycle, and ten line fill buffers (Intel 64 and IA-32 Optimization Reference Manual, Haswell).
        cpu: CpuSpec { store_time: Duration::from_ps(435), wc_buffers: 10, ..CpuSpec::default() },
        link: device.profile().link.clone(),
        credits: CreditSpec::default(),
        drain: Drain::Any,
        seed,
    }
}

fn client(device: &Device, seed: u64) -> WindowClient {
    WindowClient::new(&pcie(device, seed), CallSpec::default(), device.window().bar_offset(), BLOCK as u32)
}

/// Pins logical pages.
fn pin(entry: u16, first_page: u64, bytes: u64) -> Request {
    let (lba, blocks) = (first_page * (PAGE / BLOCK), (bytes.next_multiple_of(PAGE) / BLOCK) as u32);
    Request::Window(WindowRequest::Run(WindowCommand::Pin { entry, offset: ANYWHERE, lba, blocks }))
}

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// In the host, on its way out.
    Out(Instant),
    Working,
    /// In the host, on its way back.
    Back(Instant),
}

type Cycle<'c> = Box<dyn FnMut(u64) -> Vec<(Request, bool)> + 'c>;

/// Requests one after the other, in cycles; some of each are timed.
struct Timed<'c> {
    cycle: Cycle<'c>,
    cycles: u64,
    done: u64,
    /// Host costs of a block command; calls of the window have their own.
    calls: CallSpec,
    queue: VecDeque<(Request, bool)>,
    current: Option<(Request, bool)>,
    step: Step,
    ready: Option<Request>,
    began: Instant,
    sum: Duration,
    latency: Histogram,
}

impl<'c> Timed<'c> {
    /// `prologue` is not timed; of a cycle is what has a `true` beside it.
    fn new(prologue: Vec<Request>, cycles: u64, cycle: Cycle<'c>) -> Timed<'c> {
        let mut timed = Timed {
            cycle,
            cycles,
            done: 0,
            calls: CallSpec::default(),
            queue: prologue.into_iter().map(|request| (request, false)).collect(),
            current: None,
            step: Step::Working,
            ready: None,
            began: Instant::ZERO,
            sum: Duration::ZERO,
            latency: Histogram::default(),
        };
        timed.next(Instant::ZERO);
        timed
    }

    fn is_block(request: Request) -> bool {
        matches!(request, Request::Read { .. } | Request::Write { .. } | Request::Flush)
    }

    fn next(&mut self, now: Instant) {
        if self.queue.is_empty() && self.done < self.cycles {
            self.queue.extend((self.cycle)(self.done));
        }
        self.current = self.queue.pop_front();
        let Some((request, _)) = self.current else { return };
        self.began = now;
        if Self::is_block(request) {
            self.step = Step::Out(now + self.calls.submit_time);
        } else {
            (self.step, self.ready) = (Step::Working, Some(request));
        }
    }

    fn end(&mut self, now: Instant) {
        let (_, timed) = self.current.take().expect("a request ended");
        if timed {
            self.sum += now.since(self.began);
        }
        if self.queue.is_empty() && self.sum > Duration::ZERO {
            self.latency.record(self.sum);
            self.sum = Duration::ZERO;
            self.done += 1;
        }
        self.next(now);
    }
}

impl Application for Timed<'_> {
    fn deadline(&self) -> Option<Instant> {
        match self.step {
            Step::Out(at) | Step::Back(at) if self.current.is_some() => Some(at),
            _ => self.ready.is_some().then_some(self.began),
        }
    }

    fn advance(&mut self, now: Instant) {
        match (self.step, self.current) {
            (Step::Out(at), Some((request, _))) if at <= now => {
                (self.step, self.ready) = (Step::Working, Some(request));
            }
            (Step::Back(at), Some(_)) if at <= now => self.end(at),
            _ => {}
        }
    }

    fn poll_request(&mut self) -> Option<Request> {
        self.ready.take()
    }

    fn complete(&mut self, now: Instant) {
        match self.current {
            Some((request, _)) if Self::is_block(request) => self.step = Step::Back(now + self.calls.return_time),
            _ => self.end(now),
        }
    }

    fn is_over(&self, _: Instant) -> bool {
        self.current.is_none() && self.done >= self.cycles
    }
}

/// Runs timed requests on a drive; returns what they took and when all was over.
fn run_timed(device: &mut Device, timed: Timed<'_>, seed: u64) -> Result<Histogram, Failure> {
    let window = device.window().is_enabled().then(|| client(device, seed));
    let mut host = Attached::new(timed, None, BLOCK.trailing_zeros());
    host.window = window;
    let mut host = host.with_transfer_max(device.profile().host.transfer_max);
    drive(device, &mut VirtualClock::default(), &mut host);
    match host.failure() {
        Some(failure) => Err(refused(failure)),
        None => Ok(host.app.latency),
    }
}
