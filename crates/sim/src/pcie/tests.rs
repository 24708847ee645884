use super::*;
use proptest::prelude::*;
use tidewater_base::Duration;
use tidewater_core::profile::LinkProfile;

const NS: Duration = Duration::from_ns(1);

/// The paper's link: 2 GB/s, so a byte takes half a nanosecond; 24 bytes of framing for each TLP.
fn spec() -> PcieSpec {
    PcieSpec {
        cores: 1,
        cpu: CpuSpec::default(),
        link: LinkProfile {
            generation: 2,
            lanes: 4,
            payload_max: 256,
            tlp_overhead: 24,
            latency: Duration::from_ns(300),
        },
        credits: CreditSpec::default(),
        drain: Drain::Any,
        seed: 1,
    }
}

fn write(offset: u64, length: u64, mapping: Mapping) -> Op {
    Op::Write { offset, length, mapping }
}

fn combined(offset: u64, length: u64) -> Op {
    write(offset, length, Mapping::WriteCombining)
}

/// A host, and a device that takes every TLP at once and answers reads `answer` later.
struct Rig {
    root: RootComplex,
    now: Instant,
    answer: Duration,
    tlps: Vec<Tlp>,
    pending: VecDeque<Tlp>,
}

impl Rig {
    fn new(spec: &PcieSpec) -> Rig {
        let root = RootComplex::new(spec);
        Rig { root, now: Instant::ZERO, answer: Duration::ZERO, tlps: vec![], pending: VecDeque::new() }
    }

    /// One event of the host or of the device; false when nothing is left.
    fn step(&mut self) -> bool {
        let host = self.root.deadline();
        let device =
            self.pending.front().map(|t| t.at + if t.kind == TlpKind::Read { self.answer } else { Duration::ZERO });
        let Some(at) = host.into_iter().chain(device).min() else { return false };
        self.now = self.now.max(at);
        if device == Some(at) {
            let tlp = self.pending.pop_front().unwrap();
            match tlp.kind {
                TlpKind::Write => self.root.release(self.now, tlp.offset, tlp.length),
                TlpKind::Read => self.root.complete_read(self.now, tlp.core),
            }
        } else {
            self.root.advance(self.now);
        }
        while let Some(tlp) = self.root.poll_tlp() {
            assert!(self.tlps.last().is_none_or(|last| last.at < tlp.at), "TLPs arrive one after the other");
            self.tlps.push(tlp);
            self.pending.push_back(tlp);
        }
        true
    }

    /// Runs one operation of core 0 to its end.
    fn run(&mut self, op: Op) -> Instant {
        self.root.start(self.now, 0, op);
        loop {
            if let Some(done) = self.root.poll_done() {
                return done.at;
            }
            assert!(self.step(), "{op:?} never ends");
        }
    }

    fn settle(&mut self) {
        while self.step() {}
    }
}

#[test]
fn a_full_line_is_one_tlp() {
    let mut rig = Rig::new(&spec());
    let done = rig.run(combined(128, 64));
    rig.settle();
    let stores = Duration::from_ps(476) * 8;
    // Eight stores, the way to the root port, 88 bytes on the wire, the link.
    let at = Instant::ZERO + stores + NS * 80 + NS * 44 + NS * 300;
    assert_eq!(rig.tlps, [Tlp { at, core: 0, kind: TlpKind::Write, offset: 128, length: 64 }]);
    assert_eq!(done, Instant::ZERO + stores, "the core does not wait for a posted write");
    assert!(rig.root.is_drained());
    let counters = rig.root.counters();
    assert_eq!((counters.writes, counters.payload_bytes, counters.wire_bytes), (1, 64, 88));
}

#[test]
fn a_part_of_a_line_is_a_tlp_for_each_contiguous_run() {
    let mut rig = Rig::new(&spec());
    for (offset, length) in [(3, 8), (11, 2), (20, 4), (63, 1)] {
        rig.run(combined(offset, length));
    }
    rig.settle();
    assert!(rig.tlps.is_empty(), "an open buffer stays until something evicts it");
    rig.run(Op::Evict);
    rig.settle();
    let runs: Vec<_> = rig.tlps.iter().map(|tlp| (tlp.offset, tlp.length)).collect();
    assert_eq!(runs, [(3, 10), (20, 4), (63, 1)]);
    // Double words 0 to 3, 5, and 15.
    assert_eq!(rig.root.counters().wire_bytes, 16 + 4 + 4 + 3 * 24);
}

#[test]
fn a_stream_of_full_lines_has_the_bandwidth_of_the_link_less_framing() {
    let mut rig = Rig::new(&spec());
    rig.run(combined(0, 1 << 20));
    rig.settle();
    let lines = 1 << 14;
    assert_eq!(rig.tlps.len(), lines);
    let elapsed = rig.tlps[lines - 1].at - rig.tlps[0].at;
    assert_eq!(elapsed, NS * 44 * (lines as u64 - 1), "2 GB/s x 64 / (64 + 24)");
}

#[test]
fn the_framing_of_smaller_tlps_costs_what_it_costs() {
    for size in [8, 16, 32] {
        let mut rig = Rig::new(&spec());
        for i in 0..1000 {
            rig.run(combined(i * size, size));
            rig.run(Op::Evict);
        }
        rig.settle();
        assert_eq!(rig.tlps.len(), 1000);
        let elapsed = rig.tlps[999].at - rig.tlps[0].at;
        assert_eq!(elapsed, Duration::from_ps(500) * (size + 24) * 999, "{size} bytes");
    }
}

#[test]
fn uncached_stores_go_one_at_a_time() {
    let mut rig = Rig::new(&spec());
    rig.run(write(4, 804, Mapping::Uncached));
    rig.settle();
    // 4 bytes up to the first aligned 8, then 100 times 8.
    assert_eq!((rig.tlps[0].length, rig.tlps[1].length, rig.tlps.len()), (4, 8, 101));
    let elapsed = rig.tlps[100].at - rig.tlps[1].at;
    assert_eq!(elapsed, (NS * 80 + Duration::from_ps(476)) * 99);
    assert!(rig.tlps.windows(2).all(|w| w[0].offset < w[1].offset), "in order");
}

#[test]
fn uncached_stores_are_never_faster_than_combined_ones() {
    for size in [8, 16, 32, 64] {
        let time = |mapping| {
            let mut rig = Rig::new(&spec());
            for i in 0..200 {
                rig.run(write(i * size, size, mapping));
                rig.run(Op::Evict);
            }
            rig.settle();
            rig.tlps.last().unwrap().at
        };
        assert!(time(Mapping::WriteCombining) < time(Mapping::Uncached), "{size} bytes");
    }
}

#[test]
fn a_load_is_a_round_trip() {
    let mut rig = Rig::new(&spec());
    rig.answer = NS * 50;
    let done = rig.run(Op::Read { offset: 4096, length: 8 });
    // Issue, root port, 24 bytes of request, link, device, 8 + 20 bytes of completion, link.
    let expected = Duration::from_ps(476) + NS * (80 + 12 + 300 + 50 + 14 + 300);
    assert_eq!(done, Instant::ZERO + expected);
    let mut rig = Rig::new(&spec());
    let again = rig.run(Op::Read { offset: 0, length: 4096 });
    assert_eq!(again, Instant::ZERO + (expected - NS * 50) * 512, "512 loads, one after the other");
}

#[test]
fn a_load_does_not_pass_earlier_stores() {
    let mut rig = Rig::new(&spec());
    rig.run(combined(0, 1000));
    rig.run(Op::Read { offset: 1 << 20, length: 8 });
    rig.settle();
    assert_eq!(rig.tlps.last().map(|tlp| tlp.kind), Some(TlpKind::Read));
    let stored: u64 = rig.tlps.iter().filter(|t| t.kind == TlpKind::Write).map(|t| u64::from(t.length)).sum();
    assert_eq!(stored, 1000, "open buffers too");
}

#[test]
fn without_credits_the_core_stops_and_goes_on_when_they_are_back() {
    let spec = PcieSpec { credits: CreditSpec { headers: 5, data: 1000 }, ..spec() };
    let mut root = RootComplex::new(&spec);
    root.start(Instant::ZERO, 0, combined(0, 1 << 20));
    let late = Instant::from_ns(1_000_000);
    root.advance(late);
    assert_eq!(std::iter::from_fn(|| root.poll_tlp()).count(), 5);
    assert_eq!((root.deadline(), root.poll_done()), (None, None));
    root.release(late, 0, 64);
    assert_eq!(root.deadline(), Some(late + NS * 300), "the credit has to come back");
    root.advance(late + NS * 10_000);
    let tlps: Vec<_> = std::iter::from_fn(|| root.poll_tlp()).collect();
    assert_eq!(tlps.len(), 1);
    assert_eq!(tlps[0].at, late + NS * (300 + 44 + 300));

    // Data credits: four for each line.
    let spec = PcieSpec { credits: CreditSpec { headers: 100, data: 15 }, ..spec };
    let mut root = RootComplex::new(&spec);
    root.start(Instant::ZERO, 0, combined(0, 1 << 20));
    root.advance(late);
    assert_eq!(std::iter::from_fn(|| root.poll_tlp()).count(), 3);
}

#[test]
fn credits_in_flight_bound_the_bandwidth_of_a_slow_round_trip() {
    let spec = PcieSpec { credits: CreditSpec { headers: 4, data: 1000 }, ..spec() };
    let mut rig = Rig::new(&spec);
    rig.run(combined(0, 1 << 16));
    rig.settle();
    // A header comes back 44 + 300 + 300 ns after its TLP got the wire.
    let elapsed = rig.tlps[1023].at - rig.tlps[3].at;
    assert_eq!(elapsed, NS * 644 * 255);
}

#[test]
fn a_fence_waits_until_nothing_is_left() {
    let mut rig = Rig::new(&spec());
    rig.run(combined(0, 8));
    let done = rig.run(Op::Fence);
    assert!(rig.root.is_drained());
    assert_eq!(done, Instant::ZERO + Duration::from_ps(476) + NS * (80 + 15));
    let start = rig.now;
    assert_eq!(rig.run(Op::Fence), start + NS * 15, "nothing to wait for");
    assert_eq!(rig.run(Op::Compute(NS * 7)), start + NS * 22);
}

#[test]
fn without_a_free_buffer_the_oldest_open_one_is_evicted() {
    let mut rig = Rig::new(&spec());
    for line in 0..13 {
        rig.run(combined(line * 64, 8));
    }
    rig.settle();
    assert_eq!(rig.tlps.iter().map(|tlp| (tlp.offset, tlp.length)).collect::<Vec<_>>(), [(0, 8)]);
    assert!(rig.root.is_idle(0) && !rig.root.is_drained());
}

#[test]
fn a_store_to_bytes_that_are_leaving_comes_after_them() {
    let mut rig = Rig::new(&spec());
    rig.run(combined(0, 16));
    rig.run(Op::Evict);
    let other = rig.run(combined(16, 8));
    assert!(other < Instant::from_ns(10), "other bytes of the line get a buffer of their own");
    rig.run(combined(8, 8));
    rig.run(Op::Fence);
    rig.settle();
    let at = |offset| rig.tlps.iter().position(|tlp| tlp.offset == offset).unwrap();
    assert!(at(0) < at(8), "{:?}", rig.tlps);
}

#[test]
fn the_seed_and_the_drain_set_the_order() {
    let order = |drain, seed| {
        let mut rig = Rig::new(&PcieSpec { drain, seed, ..spec() });
        (0..10).for_each(|line| {
            rig.run(combined(line * 64, 60));
        });
        rig.run(Op::Fence);
        rig.settle();
        rig.tlps.iter().map(|tlp| tlp.offset / 64).collect::<Vec<_>>()
    };
    assert_eq!(order(Drain::Oldest, 1), (0..10).collect::<Vec<_>>());
    assert_ne!(order(Drain::Any, 1), order(Drain::Any, 2));
    assert_eq!(order(Drain::Any, 1), order(Drain::Any, 1));
}

#[test]
fn cores_share_the_wire() {
    let mut rig = Rig::new(&PcieSpec { cores: 4, ..spec() });
    (0..4).for_each(|core| rig.root.start(Instant::ZERO, core, combined(u64::from(core) << 20, 1 << 16)));
    rig.settle();
    let elapsed = rig.tlps.last().unwrap().at - rig.tlps[0].at;
    assert_eq!(elapsed, NS * 44 * 4095);
    // Each got about its share of the first half.
    let mut first = [0; 4];
    rig.tlps[..2048].iter().for_each(|tlp| first[tlp.core as usize] += 1);
    assert!(first.iter().all(|count| (400..640).contains(count)), "{first:?}");
    // What else crosses the wire waits behind it.
    let now = rig.now;
    assert_eq!(rig.root.carry(now, 2000), now + NS * 1300);
}

/// Pieces that tile a range, shuffled, stored with evictions in between.
fn pieces() -> impl Strategy<Value = Vec<(u64, u64, u8)>> {
    prop::collection::vec((1u64..200, any::<u8>()), 1..60)
        .prop_map(|lengths| {
            let mut offset = 5;
            let mut place = |length| {
                offset += length;
                offset - length
            };
            lengths.into_iter().map(|(length, what)| (place(length), length, what)).collect::<Vec<_>>()
        })
        .prop_shuffle()
}

proptest! {
    #[test]
    fn every_byte_arrives_once(
        pieces in pieces(),
        seed: u64,
        oldest: bool,
        wc_buffers in 1u32..14,
        headers in 1u32..9,
    ) {
        let drain = if oldest { Drain::Oldest } else { Drain::Any };
        let cpu = CpuSpec { wc_buffers, ..CpuSpec::default() };
        let spec = PcieSpec { drain, cpu, seed, credits: CreditSpec { headers, data: 4 * headers }, ..spec() };
        let mut rig = Rig::new(&spec);
        let mut again = Rig::new(&spec);
        let end = pieces.iter().map(|piece| piece.0 + piece.1).max().unwrap_or(0);
        for rig in [&mut rig, &mut again] {
            for &(offset, length, what) in &pieces {
                rig.run(write(offset, length, if what % 4 == 0 { Mapping::Uncached } else { Mapping::WriteCombining }));
                match what / 4 % 5 {
                    0 => { rig.run(Op::Evict); }
                    1 => { rig.run(Op::Fence); }
                    _ => {}
                }
            }
            rig.run(Op::Fence);
            prop_assert!(rig.root.is_drained());
            rig.settle();
        }
        prop_assert_eq!(&rig.tlps, &again.tlps);
        let mut seen = vec![0; end as usize];
        for tlp in &rig.tlps {
            prop_assert!(tlp.offset / LINE == (tlp.offset + u64::from(tlp.length) - 1) / LINE, "within a line");
            seen[tlp.offset as usize..][..tlp.length as usize].iter_mut().for_each(|n| *n += 1);
        }
        prop_assert!(seen[..5].iter().all(|&n| n == 0) && seen[5..].iter().all(|&n| n == 1));
        prop_assert_eq!(rig.root.counters().payload_bytes, end - 5);
    }

    /// A closed buffer is passed over at most as often as there are buffers: the gap that a device must bear is
    /// bounded.
    #[test]
    fn disorder_is_bounded(seed: u64, wc_buffers in 1u32..14) {
        let cpu = CpuSpec { wc_buffers, ..CpuSpec::default() };
        let mut rig = Rig::new(&PcieSpec { cpu, seed, ..spec() });
        rig.run(combined(0, 1 << 15));
        rig.settle();
        for (i, tlp) in rig.tlps.iter().enumerate() {
            let late = i as i64 - (tlp.offset / LINE) as i64;
            prop_assert!(late.abs() <= 2 * i64::from(wc_buffers), "line {} was number {i}", tlp.offset / LINE);
        }
    }
}
