//! The root port: what leaves next, whether it has credits, and how long it takes the wire.

use super::core::{Core, slots};
use super::spec::{CreditSpec, Drain, LINE, PcieSpec, Tlp, TlpKind};
use std::collections::VecDeque;
use tidewater_base::{Duration, Instant, Rng};
use tidewater_core::cost::{Rate, Server, lane_bytes_per_second};

/// A completion's header has three double words, one less than a request with a 64-bit address (PCI Express Base 3.0,
/// 2.2.9).
const COMPLETION_SHORTER: u64 = 4;

/// Traffic on the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Memory write TLPs sent to the device.
    pub writes: u64,
    /// Bytes of data in them.
    pub payload_bytes: u64,
    /// Memory read TLPs sent to the device.
    pub reads: u64,
    /// Bytes on the wire towards the device, framing included.
    pub wire_bytes: u64,
    /// Time that the wire towards the device was busy.
    pub busy: Duration,
}

/// A candidate to leave: a closed buffer of a core, or (`slot` is `None`) its uncached access.
#[derive(Clone, Copy, Debug)]
struct Choice {
    core: usize,
    slot: Option<usize>,
}

/// The next TLP of a choice.
#[derive(Clone, Copy, Debug)]
struct Next {
    kind: TlpKind,
    offset: u64,
    length: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Port {
    rate: Rate,
    overhead: u64,
    latency: Duration,
    drain: Drain,
    rng: Rng,
    buffers: u32,
    free_at: Instant,
    upstream: Server,
    headers: u32,
    data: u32,
    advertised: CreditSpec,
    /// Credits on their way back: when, headers, data.
    returning: VecDeque<(Instant, u32, u32)>,
    /// The next to leave: it is not overtaken while it waits for credits, nor between the runs of its line.
    chosen: Option<Choice>,
    /// Candidates at the last choice; kept for its memory.
    ready: Vec<Choice>,
    order: u64,
    counters: Counters,
}

/// Double words that a range touches: a TLP carries whole ones and masks bytes with its byte enables.
fn double_words(offset: u64, length: u32) -> u64 {
    (offset + u64::from(length)).div_ceil(4) - offset / 4
}

/// Data credits of 16 bytes for a range.
fn data_credits(offset: u64, length: u32) -> u32 {
    double_words(offset, length).div_ceil(4) as u32
}

impl Port {
    pub fn new(spec: &PcieSpec) -> Port {
        let lanes = u64::from(spec.link.lanes);
        Port {
            rate: Rate::per_second(lane_bytes_per_second(spec.link.generation) * lanes),
            overhead: spec.link.tlp_overhead.into(),
            latency: spec.link.latency,
            drain: spec.drain,
            rng: Rng::new(spec.seed, b"write-combining buffers"),
            buffers: spec.cpu.wc_buffers,
            free_at: Instant::ZERO,
            upstream: Server::default(),
            headers: spec.credits.headers,
            data: spec.credits.data,
            advertised: spec.credits,
            returning: VecDeque::with_capacity(spec.credits.headers as usize),
            chosen: None,
            ready: Vec::with_capacity(spec.cores as usize * (spec.cpu.wc_buffers as usize + 1)),
            order: 0,
            counters: Counters::default(),
        }
    }

    /// A number above all before it.
    pub fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    pub fn release(&mut self, now: Instant, offset: u64, length: u32) {
        let at = now + self.latency;
        debug_assert!(self.returning.back().is_none_or(|last| last.0 <= at), "credits come back in the order of time");
        self.returning.push_back((at, 1, data_credits(offset, length)));
    }

    pub fn completion(&mut self, now: Instant, length: u32) -> Instant {
        let bytes = u64::from(length).next_multiple_of(4) + self.overhead.saturating_sub(COMPLETION_SHORTER);
        self.upstream.serve(now, self.rate.time(bytes)) + self.latency
    }

    pub fn carry(&mut self, now: Instant, wire_bytes: u64) -> Instant {
        self.occupy(now, wire_bytes) + self.latency
    }

    /// Takes the wire from `now` or from when it is free; returns when the last byte is on it.
    fn occupy(&mut self, now: Instant, wire_bytes: u64) -> Instant {
        let time = self.rate.time(wire_bytes);
        self.free_at = self.free_at.max(now) + time;
        self.counters.wire_bytes += wire_bytes;
        self.counters.busy += time;
        self.free_at
    }

    /// When the port has work of its own next, without a new request.
    pub fn next_event(&self, cores: &[Core]) -> Option<Instant> {
        match self.chosen {
            Some(chosen) if self.has_credits(self.next_of(chosen, cores)) => Some(self.free_at),
            Some(_) => self.returning.front().map(|returned| returned.0.max(self.free_at)),
            None => {
                let mut first = Instant::NEVER;
                for core in cores {
                    let closed = slots(core.closed).map(|slot| core.buffers[slot].ready);
                    for ready in core.access.iter().map(|access| access.ready).chain(closed) {
                        if ready <= self.free_at {
                            return Some(self.free_at);
                        }
                        first = first.min(ready);
                    }
                }
                (first < Instant::NEVER).then_some(first)
            }
        }
    }

    /// Does what is due at `at`: takes credits back, chooses, and sends one TLP if it can.
    pub fn event(&mut self, at: Instant, cores: &mut [Core]) -> Option<Tlp> {
        while let Some((_, headers, data)) = self.returning.pop_front_if(|returned| returned.0 <= at) {
            self.headers += headers;
            self.data += data;
        }
        let whole = self.headers <= self.advertised.headers && self.data <= self.advertised.data;
        assert!(whole, "the device gave back more credits than its buffer has");
        let chosen = match self.chosen {
            Some(chosen) => chosen,
            None => self.choose(at, cores)?,
        };
        self.chosen = Some(chosen);
        let next = self.next_of(chosen, cores);
        if !self.has_credits(next) {
            return None;
        }
        Some(self.send(at, chosen, next, cores))
    }

    /// One of what is ready: the oldest, or any as long as the oldest was not passed over too often.
    fn choose(&mut self, at: Instant, cores: &mut [Core]) -> Option<Choice> {
        self.ready.clear();
        let mut oldest: Option<(u64, u32, usize)> = None;
        for (core, state) in cores.iter().enumerate() {
            let closed = slots(state.closed).map(|slot| {
                let buffer = &state.buffers[slot];
                (Some(slot), buffer.ready, buffer.order, buffer.passed)
            });
            let access = state.access.map(|access| (None, access.ready, access.order, 0));
            for (slot, _, order, passed) in access.into_iter().chain(closed).filter(|candidate| candidate.1 <= at) {
                if oldest.is_none_or(|(oldest, ..)| order < oldest) {
                    oldest = Some((order, passed, self.ready.len()));
                }
                self.ready.push(Choice { core, slot });
            }
        }
        let (_, passed, oldest) = oldest?;
        let random = self.drain == Drain::Any && passed < self.buffers && self.ready.len() > 1;
        let chosen = if random { self.rng.below(self.ready.len() as u64) as usize } else { oldest };
        for (i, choice) in self.ready.iter().enumerate() {
            if let Some(slot) = choice.slot
                && i != chosen
            {
                cores[choice.core].buffers[slot].passed += 1;
            }
        }
        Some(self.ready[chosen])
    }

    /// The first TLP of what was chosen: a contiguous run of its line, or the access.
    fn next_of(&self, choice: Choice, cores: &[Core]) -> Next {
        let core = &cores[choice.core];
        match choice.slot {
            Some(slot) => {
                let buffer = core.buffers[slot];
                let low = buffer.mask.trailing_zeros();
                let length = (buffer.mask >> low).trailing_ones();
                Next { kind: TlpKind::Write, offset: buffer.line * LINE + u64::from(low), length }
            }
            None => {
                let access = core.access.expect("a chosen access stays until it leaves");
                Next { kind: access.kind, offset: access.offset, length: access.length }
            }
        }
    }

    /// Whether the device can receive it. Reads have credits of their own: a core has one under way, and every device
    /// takes at least as many as there are cores here.
    fn has_credits(&self, next: Next) -> bool {
        next.kind == TlpKind::Read || (self.headers > 0 && self.data >= data_credits(next.offset, next.length))
    }

    fn send(&mut self, at: Instant, choice: Choice, next: Next, cores: &mut [Core]) -> Tlp {
        let Next { kind, offset, length } = next;
        let payload = match kind {
            TlpKind::Write => {
                self.headers -= 1;
                self.data -= data_credits(offset, length);
                self.counters.writes += 1;
                self.counters.payload_bytes += u64::from(length);
                double_words(offset, length) * 4
            }
            TlpKind::Read => {
                self.counters.reads += 1;
                0
            }
        };
        let sent = self.occupy(at, payload + self.overhead);
        let core = &mut cores[choice.core];
        match choice.slot {
            None => {
                self.chosen = None;
                core.access_departed(at);
            }
            Some(slot) => {
                let buffer = &mut core.buffers[slot];
                let run = u64::MAX >> (LINE - u64::from(length)) << (offset % LINE);
                buffer.mask &= !run;
                if buffer.mask == 0 {
                    core.closed &= !(1 << slot);
                    self.chosen = None;
                }
                core.departed(at);
            }
        }
        Tlp { at: sent + self.latency, core: choice.core as u32, kind, offset, length }
    }
}
