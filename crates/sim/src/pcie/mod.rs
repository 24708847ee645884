//! The host's side of a PCIe link: cores that store to and load from a device's memory, and the root complex between
//! them and the wire.
//!
//! Nothing here knows what a request of some size costs. A store costs the core its issue; what leaves the core has to
//! be accepted by the root complex ([`CpuSpec::accept_time`]), to have flow-control credits and to find the wire free.
//! The effects seen from outside:
//!
//! - **Uncached** memory takes one store at a time, in order: each is a TLP, and the next one is not issued before the
//!   root complex has put it on the wire. One store for each `accept_time`, whatever the link could do.
//! - **Write-combining** memory fills 64-byte buffers ([`CpuSpec::wc_buffers`]). A full one is one TLP; an evicted part
//!   of one is a TLP for each contiguous run. As many may be on their way as there are buffers, so the wire is the
//!   limit. They leave in any order ([`Drain`]).
//! - A **load** is non-posted: it waits until everything that its core stored before is on the wire, cannot pass it
//!   there, and holds the core for the round trip.
//!
//! The device is not here. [`RootComplex::poll_tlp`] says which bytes reach it and when; it answers loads with
//! [`RootComplex::complete_read`] and gives receive buffers back with [`RootComplex::release`]. Like the firmware, this
//! reads no clock: [`RootComplex::deadline`] says when to call [`RootComplex::advance`].

mod core;
mod port;
#[cfg(test)]
mod shape_tests;
mod spec;
#[cfg(test)]
mod tests;

pub use self::port::Counters;
pub use self::spec::{CpuSpec, CreditSpec, Drain, LINE, Mapping, Op, PcieSpec, Tlp, TlpKind};

use self::core::Core;
use self::port::Port;
use std::collections::VecDeque;
use tidewater_base::Instant;

/// A core has done its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// When.
    pub at: Instant,
    /// The core.
    pub core: u32,
}

/// Cores, root complex and link.
#[derive(Clone, Debug)]
pub struct RootComplex {
    cpu: CpuSpec,
    cores: Vec<Core>,
    port: Port,
    tlps: VecDeque<Tlp>,
    done: VecDeque<Done>,
}

impl RootComplex {
    /// A host at rest. Asserts the ranges of `spec`.
    pub fn new(spec: &PcieSpec) -> RootComplex {
        let cpu = spec.cpu;
        assert!(spec.cores > 0, "a host without cores");
        assert!(cpu.width.is_power_of_two() && cpu.width <= LINE as u32, "a store of {} bytes", cpu.width);
        assert!((1..=64).contains(&cpu.wc_buffers), "{} write-combining buffers, expected 1 to 64", cpu.wc_buffers);
        assert!(spec.credits.headers > 0 && spec.credits.data >= 4, "credits that no full line fits in");
        let in_flight = spec.credits.headers as usize + spec.cores as usize;
        RootComplex {
            cpu,
            cores: (0..spec.cores).map(|_| Core::new(cpu.wc_buffers)).collect(),
            port: Port::new(spec),
            tlps: VecDeque::with_capacity(in_flight),
            done: VecDeque::with_capacity(spec.cores as usize),
        }
    }

    /// Starts an operation on a core. Asserts that the core is idle ([`RootComplex::is_idle`]).
    pub fn start(&mut self, now: Instant, core: u32, op: Op) {
        self.cores[core as usize].start(now, op);
    }

    /// Whether the core has no operation. Its stores may still be on their way.
    pub fn is_idle(&self, core: u32) -> bool {
        self.cores[core as usize].is_idle()
    }

    /// Whether nothing is left that is not on the wire: no operation, no open or closed buffer.
    pub fn is_drained(&self) -> bool {
        self.cores.iter().all(|core| core.is_idle() && core.is_empty())
    }

    /// When something happens by itself next; `None` while everything waits for the device or for an operation.
    pub fn deadline(&self) -> Option<Instant> {
        let core = self.cores.iter().filter_map(Core::next_step).min();
        core.into_iter().chain(self.port.next_event(&self.cores)).min()
    }

    /// Does what is due by `now`. TLPs may be given whose arrival is later: they are on the wire.
    pub fn advance(&mut self, now: Instant) {
        loop {
            let step = self.cores.iter().enumerate().filter_map(|(i, core)| Some((core.next_step()?, i))).min();
            let event = self.port.next_event(&self.cores);
            match (step, event) {
                // At one instant cores go first, so that what they close there is among the choices of the port.
                (Some((at, core)), event) if at <= now && event.is_none_or(|event| at <= event) => {
                    if self.cores[core].step(&self.cpu, &mut self.port) {
                        self.done.push_back(Done { at, core: core as u32 });
                    }
                }
                (_, Some(at)) if at <= now => {
                    if let Some(tlp) = self.port.event(at, &mut self.cores) {
                        self.tlps.push_back(tlp);
                    }
                }
                _ => break,
            }
        }
    }

    /// The next TLP on its way to the device, in the order of arrival.
    pub fn poll_tlp(&mut self) -> Option<Tlp> {
        self.tlps.pop_front()
    }

    /// The next operation that was done.
    pub fn poll_done(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    /// The device has taken a write of `length` bytes at `offset` out of its receive buffer: its credits go back. They
    /// arrive after the link's latency; the update itself (a DLLP of 8 bytes on the other direction) costs no
    /// bandwidth. Calls come in the order of time.
    pub fn release(&mut self, now: Instant, offset: u64, length: u32) {
        self.port.release(now, offset, length);
    }

    /// The device has the data of the read that the core waits for: its completion goes back. Asserts that there is
    /// one.
    pub fn complete_read(&mut self, now: Instant, core: u32) {
        let length = self.cores[core as usize].awaited();
        let at = self.port.completion(now, length);
        self.cores[core as usize].completed(at);
    }

    /// Other traffic towards the device (the completions of its own DMA reads, say) takes the wire for `wire_bytes`,
    /// framing included, behind what is on it. Returns when it has arrived.
    pub fn carry(&mut self, now: Instant, wire_bytes: u64) -> Instant {
        self.port.carry(now, wire_bytes)
    }

    /// Traffic on the link so far.
    pub fn counters(&self) -> Counters {
        self.port.counters()
    }
}
