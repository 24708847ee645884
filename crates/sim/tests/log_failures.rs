//! The three failures of the X-SSD paper's section 7.1, distinguished by the status register within bounded time: a
//! destage failed, data does not reach a peer, a counter update does not come back.

use tidewater_base::{Duration, Instant};
use tidewater_core::device::{Device, Input, Options, Output};
use tidewater_core::drive::Machine;
use tidewater_core::fast::{Content, bar};
use tidewater_core::profile::{OnWrap, Profile, Survives};
use tidewater_nand::{Block, Cell, Fault, FaultPlan, FaultyNand, Medium, Nand};
use tidewater_sim::cluster::{Cluster, LinkModel, Said};
use tidewater_wire::vendor::{AdminCommand, FlowState, Mode, NodeList, Role, TransportSetup, TransportStatus};

/// After so long without progress a flow has failed, as set up.
const STALL: Duration = Duration::from_ms(1);
/// Signs of life come this often; the status is right no later than one of them after the time-out.
const KEEP_ALIVE: Duration = Duration::from_us(100);
const NODES: u8 = 3;
/// The client stores a line this often: slow enough that a lazy primary's ring of pages holds what a peer misses in a
/// test.
const PACE: Duration = Duration::from_us(2);

fn profile() -> Profile {
    let mut p = Profile::generic();
    p.nand.cell = Cell::Slc;
    p.nand.channels = 2;
    p.nand.ways = 2;
    p.nand.planes = 1;
    p.nand.page_size = 4 << 10;
    p.nand.oob_size = 448;
    p.nand.blocks_per_plane = 16;
    p.nand.pages_per_block = 8;
    p.nand.program_time = [Duration::from_us(200); 3];
    p.nand.read_time = [Duration::from_us(25); 3];
    p.ftl.spare_blocks = 0.0;
    p.ftl.over_provisioning = 0.2;
    p.ftl.gc_start = 2;
    p.ftl.gc_reserve = 1;
    p.fast.size = 32 << 10;
    p.fast.queue_size = 2 << 10;
    p.fast.log_size = 1 << 20;
    p.fast.on_wrap = OnWrap::OverwriteOldest;
    p.fast.partial_after = Duration::from_us(100);
    for memory in p.memories.iter_mut().filter(|m| m.name == "sram") {
        memory.survives = Survives::ByCapacitors;
    }
    p
}

/// A group whose primary is node 0, and a client of it that stores all that it may.
struct Group {
    cluster: Cluster<FaultyNand<Nand>>,
    now: Instant,
    written: u64,
    next_at: Instant,
}

impl Group {
    /// Node 0's flash has the faults.
    fn new(mode: Mode, faults: &FaultPlan) -> Group {
        let device = |node: u8| {
            let options = Options { stamps: true, ..Options::default() };
            let plan = if node == 0 { faults.clone() } else { FaultPlan::default() };
            Device::over(&profile(), options, |nand| FaultyNand::new(nand, plan)).unwrap()
        };
        let cluster = Cluster::new((0..NODES).map(device).collect(), LinkModel::default(), true, 1);
        let mut group = Group { cluster, now: Instant::ZERO, written: 0, next_at: Instant::ZERO };
        for node in (0..NODES).rev() {
            let peers: Vec<u8> = (0..NODES).filter(|&peer| peer != node).collect();
            let setup = TransportSetup {
                role: if node == 0 { Role::Primary } else { Role::Secondary },
                node,
                mode,
                peers: NodeList::new(&peers).unwrap(),
                report_period_ns: 400,
                stall_timeout_ns: STALL.as_ns(),
                ..TransportSetup::default()
            };
            let (sqe, data) = (AdminCommand::TransportSetup { function: 0 }.emit(1), setup.to_bytes());
            let capsule = Input::Capsule { function: 0, sqe, data: &data };
            assert!(group.cluster.handle(group.now, (node.into(), capsule)).is_ok());
            match group.cluster.poll() {
                Some((_, Said::Output(Output::Reply { status, .. }))) => assert!(status.is_success(), "{status:?}"),
                other => panic!("{other:?}"),
            }
        }
        group.run(Duration::from_us(200));
        assert!(group.credit() > 4_000, "the group works: {}", group.credit());
        assert_eq!(group.status(), TransportStatus::OK);
        group
    }

    fn device(&self) -> &Device<FaultyNand<Nand>> {
        self.cluster.device(0).unwrap()
    }

    fn bad_blocks(&self) -> usize {
        let blocks = (0..4).flat_map(|die| (0..16).map(move |block| Block { die, plane: 0, block }));
        blocks.filter(|&at| self.device().medium().is_bad(at)).count()
    }

    fn credit(&self) -> u64 {
        self.device().fast().function(0).unwrap().lanes()[0].credit()
    }

    fn status(&self) -> TransportStatus {
        self.device().control_page(0).status
    }

    /// The client stores a line, if its credit goes so far.
    fn store(&mut self) {
        let setup = *self.device().fast().function(0).unwrap().setup();
        let primary = self.device().control_page(0).role == Role::Primary;
        if primary && self.written + 64 <= self.credit() + setup.queue_size {
            let address = bar::ring_address(&setup, 0, self.written);
            let store = Input::Store { function: 0, address, content: Content::Bytes(&[7; 64]) };
            assert!(self.cluster.handle(self.now, (0, store)).is_ok());
            self.written += 64;
        }
        self.next_at = self.now + PACE;
    }

    /// Runs for a time, or until the status has a bit. Returns when it had it.
    fn run_until(&mut self, time: Duration, bit: TransportStatus) -> Option<Duration> {
        let began = self.now;
        while self.now.since(began) < time {
            let due = self.cluster.deadline().expect("a heartbeat is due");
            self.now = due.min(self.next_at).max(self.now);
            if due <= self.next_at {
                self.cluster.on_deadline(self.now);
            } else {
                self.store();
            }
            if bit != TransportStatus::OK && self.status().has(bit) {
                return Some(self.now.since(began));
            }
        }
        None
    }

    fn run(&mut self, time: Duration) {
        self.run_until(time, TransportStatus::OK);
    }

    /// A bit comes within the time-out, alone, and stays alone.
    fn fails_with(&mut self, bit: TransportStatus) {
        let bound = STALL + KEEP_ALIVE * 2;
        let after = self.run_until(bound * 2, bit).unwrap_or_else(|| panic!("{bit} is not said"));
        assert!(after <= bound, "{bit} only after {after:?}");
        self.run(STALL * 3);
        assert_eq!(self.status(), bit);
    }

    fn heals(&mut self) {
        self.cluster.partition(&[]);
        let before = self.credit();
        self.run(Duration::from_ms(15));
        assert_eq!(self.status(), TransportStatus::OK);
        assert!(self.credit() > before, "it acknowledges again");
    }

    fn states(&self) -> Vec<(u8, FlowState)> {
        let page = self.device().peers_page(0);
        page.peer[..usize::from(page.count)].iter().map(|peer| (peer.node, peer.state)).collect()
    }
}

#[test]
fn a_destage_that_fails_for_good_is_said_and_nothing_else() {
    // From some program on, all of them fail: block after block gives out until no good one is left.
    let faults = FaultPlan { faults: (12..4_000).map(|nth| Fault::ProgramFails { nth }).collect() };
    for mode in [Mode::Lazy, Mode::Eager, Mode::Chain, Mode::Quorum(2)] {
        let mut group = Group::new(mode, &faults);
        // A program takes 200 us, and there are 512 pages to fail on four dies.
        let after = group.run_until(Duration::from_ms(60), TransportStatus::DESTAGE_FAILED);
        assert!(after.is_some(), "{mode}: {}", group.status());
        group.run(STALL * 3);
        let status = group.status();
        let others = [TransportStatus::PEER_UNREACHED, TransportStatus::COUNTER_OVERDUE];
        assert!(others.iter().all(|&other| !status.has(other)), "{mode}: {status}");
        // What is credited is still in memory, or on the replicas: a full ring pushes back.
        let lane = &group.device().fast().function(0).unwrap().lanes()[0];
        assert!(lane.persisted() - lane.durable() <= lane.ring_size(), "{mode}");
        let before = group.credit();
        group.run(STALL);
        assert_eq!(group.credit(), before, "{mode}: a full ring takes nothing more");
    }
}

/// Block errors are handled inside: the page goes to another block, and nothing of the log is missing.
#[test]
fn a_destage_to_a_block_that_fails_goes_on_in_another() {
    for mode in [Mode::Lazy, Mode::Eager] {
        let mut group = Group::new(mode, &FaultPlan { faults: vec![Fault::ProgramFails { nth: 12 }] });
        let before = group.bad_blocks();
        group.run(Duration::from_ms(15));
        assert_eq!(group.status(), TransportStatus::OK, "{mode}");
        assert_eq!(group.bad_blocks(), before + 1, "{mode}: the block is given up");
        let page = group.device().control_page(0);
        // Twelve pages of 4 KiB had been programmed by then.
        assert!(page.lane[0].lba_tail > 4 * (12 << 12), "{mode}: {:?}", page.lane[0]);
    }
}

/// A host that has died brings no more: the drive destages what it has.
#[test]
fn what_a_host_stored_before_it_died_is_destaged() {
    let mut group = Group::new(Mode::Lazy, &FaultPlan::default());
    let lane = |group: &Group| group.device().control_page(0).lane[0];
    assert!(lane(&group).lba_tail < lane(&group).persisted, "some of it is in the ring only");
    let end = group.now + Duration::from_ms(5);
    while let Some(at) = group.cluster.deadline().filter(|&at| at < end) {
        group.now = at;
        group.cluster.on_deadline(at);
    }
    assert_eq!((lane(&group).persisted, lane(&group).lba_tail), (group.written, group.written));
}

#[test]
fn data_that_does_not_reach_a_peer_is_said_and_nothing_else() {
    for mode in [Mode::Lazy, Mode::Eager, Mode::Chain, Mode::Quorum(2)] {
        let mut group = Group::new(mode, &FaultPlan::default());
        group.cluster.set_up(0, 1, false);
        group.fails_with(TransportStatus::PEER_UNREACHED);
        assert!(group.states().contains(&(1, FlowState::Stalled)), "{mode}: {:?}", group.states());
        if mode == Mode::Eager || mode == Mode::Chain {
            let before = group.credit();
            group.run(STALL);
            assert_eq!(group.credit(), before, "{mode}: nothing is acknowledged that a peer lacks");
        }
        group.heals();
    }
}

#[test]
fn a_counter_update_that_does_not_come_back_is_said_and_nothing_else() {
    for mode in [Mode::Lazy, Mode::Eager, Mode::Chain, Mode::Quorum(2)] {
        let mut group = Group::new(mode, &FaultPlan::default());
        group.cluster.set_up(1, 0, false);
        group.fails_with(TransportStatus::COUNTER_OVERDUE);
        group.heals();
    }
}

#[test]
fn a_peer_without_power_looks_like_one_whose_counters_do_not_come_back() {
    let mut group = Group::new(Mode::Eager, &FaultPlan::default());
    let remains = group.cluster.cut_power(2).unwrap();
    group.fails_with(TransportStatus::COUNTER_OVERDUE);
    assert!(group.states().contains(&(2, FlowState::Stalled)), "{:?}", group.states());
    group.cluster.power_on(2, Device::power_on(&profile(), remains).unwrap());
    group.heals();
}
