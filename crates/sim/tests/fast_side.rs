//! Drives with a fast side that work together, or are shared: what one does must reach or must not reach the other.

use tidewater_base::{Duration, Instant};
use tidewater_core::border::LogInput;
use tidewater_core::device::{Device, Input, Options, Output};
use tidewater_core::drive::Machine;
use tidewater_core::fast::{Content, bar};
use tidewater_core::profile::Profile;
use tidewater_sim::cluster::{Cluster, LinkModel, Said};
use tidewater_testkit::profile::{tiny, with};
use tidewater_wire::nvme::Status;
use tidewater_wire::vendor::{
    AdminCommand, Epoch, IoCommand, Mode, NO_TIMEOUT, NodeList, Promote, ReadLogHeader, Role, TransportSetup, status,
};

fn profile(settings: &[(&str, &str)]) -> Profile {
    let common = [
        "memory.sram.size=128KiB",
        "memory.sram.survives=by-capacitors",
        "fast.size=32KiB",
        "fast.queue_size=4KiB",
        "fast.log_size=256KiB",
        "fast.partial_after=300us",
    ];
    with(with(tiny(), &common), settings)
}

fn device(profile: &Profile) -> Device {
    Device::new(profile, Options { stamps: true, ..Options::default() }).unwrap()
}

fn run_until(cluster: &mut Cluster<tidewater_nand::Nand>, end: Instant) -> Vec<(usize, Said)> {
    let mut said = Vec::new();
    while let Some(at) = cluster.deadline().filter(|&at| at <= end) {
        cluster.on_deadline(at);
        while let Some(output) = cluster.poll() {
            said.push(output);
        }
    }
    said
}

fn capsule(
    cluster: &mut Cluster<tidewater_nand::Nand>,
    now: Instant,
    node: usize,
    sqe: tidewater_wire::nvme::Sqe,
    data: &[u8],
) {
    assert!(cluster.handle(now, (node, Input::Capsule { function: 0, sqe, data })).is_ok());
}

#[test]
fn the_secondarys_host_reads_the_shipped_log_by_tail_read_while_it_arrives() {
    let profile = profile(&[]);
    let mut cluster = Cluster::new(vec![device(&profile), device(&profile)], LinkModel::default(), true, 1);
    let mut now = Instant::ZERO;
    for (node, role) in [(1u8, Role::Secondary), (0, Role::Primary)] {
        let setup = TransportSetup {
            role,
            node,
            mode: Mode::Eager,
            peers: NodeList::new(&[1 - node]).unwrap(),
            epoch: Epoch::ZERO,
            report_period_ns: 400,
            stall_timeout_ns: 1_000_000,
        };
        let sqe = AdminCommand::TransportSetup { function: 0 }.emit(1);
        capsule(&mut cluster, now, node.into(), sqe, &setup.to_bytes());
    }
    now += Duration::from_ms(1);
    run_until(&mut cluster, now);
    let bytes: Vec<u8> = (0..5000u32).map(|i| (i % 241) as u8).collect();
    // The reader is there before the bytes, and wants them in two parts; the second it gets from flash or ring alike.
    let read = |offset, bytes| IoCommand::ReadLog { lane: 0, offset, bytes, wait_ns: NO_TIMEOUT };
    capsule(&mut cluster, now, 1, read(0, 3000).emit(7), &[]);
    capsule(&mut cluster, now, 1, read(3000, 2000).emit(8), &[]);
    assert!(run_until(&mut cluster, now + Duration::from_us(50)).is_empty(), "nothing is there yet");
    now += Duration::from_us(50);
    let setup = *cluster.device(0).unwrap().fast().function(0).unwrap().setup();
    let mut written = 0;
    let mut found = vec![Vec::new(), Vec::new()];
    let mut ended = Vec::new();
    for _ in 0..2_000 {
        let credit = cluster.device(0).unwrap().control_page(0).lane[0].credit;
        if written < bytes.len() && written as u64 + 64 <= credit + setup.queue_size {
            let line = &bytes[written..(written + 64).min(bytes.len())];
            let address = bar::ring_address(&setup, 0, written as u64);
            let store = Input::Store { function: 0, address, content: Content::Bytes(line) };
            assert!(cluster.handle(now, (0, store)).is_ok());
            written += line.len();
        }
        now += Duration::from_ns(500);
        for (node, said) in run_until(&mut cluster, now) {
            assert_eq!(node, 1, "{said:?}");
            match said {
                Said::Log { cid, bytes } => found[usize::from(cid - 7)].extend_from_slice(&bytes),
                Said::Output(Output::Reply { cid, status, data, .. }) => {
                    assert!(status.is_success(), "{status}");
                    assert_eq!(ReadLogHeader::parse(&data).unwrap().offset, if cid == 7 { 0 } else { 3000 });
                    ended.push((cid, written));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(found, [&bytes[..3000], &bytes[3000..]]);
    assert!(
        ended[0].0 == 7 && ended[0].1 < bytes.len(),
        "the first part was read while the rest was written: {ended:?}"
    );
    // It reads, but it does not write.
    let append = IoCommand::Append { lane: 0, epoch: Epoch::ZERO, offset: 5000, bytes: 4 };
    capsule(&mut cluster, now, 1, append.emit(9), &[0; 4]);
    let Some((1, Said::Output(Output::Reply { status: refused, .. }))) = cluster.poll() else { panic!("no reply") };
    assert!(refused.same_code(status::NOT_PRIMARY), "{refused}");
}

#[test]
fn functions_do_not_see_each_other() {
    let profile = profile(&[("fast.functions", "2"), ("nand.blocks_per_plane", "40")]);
    let mut device = device(&profile);
    let mut now = Instant::ZERO;
    let store = |device: &mut Device, now, function, at, bytes: &[u8]| {
        let address = bar::RINGS + at;
        assert!(device.handle(now, Input::Store { function, address, content: Content::Bytes(bytes) }).is_ok());
    };
    store(&mut device, now, 0, 0, &[1; 64]);
    store(&mut device, now, 1, 0, &[2; 32]);
    // Function 0 misbehaves: past its credit, past its ring, a broken stream. No other function notices.
    store(&mut device, now, 0, 20_000, &[1; 64]);
    store(&mut device, now, 0, 1 << 30, &[1; 64]);
    let far =
        Input::Log { function: 0, input: LogInput::Announce { lane: 0, tail: 1 << 40, content: Content::Absent(64) } };
    assert!(device.handle(now, far).is_ok());
    // A virtual function can't set another one up.
    let sqe = AdminCommand::TrimLog { function: 0, to: tidewater_wire::vendor::TrimTo::Page(9) }.emit(5);
    assert!(device.handle(now, Input::Capsule { function: 1, sqe, data: &[] }).is_ok());
    let Some(Output::Reply { cid: 5, status: refused, .. }) = device.poll() else { panic!("no reply") };
    assert!(refused.same_code(Status::INVALID_FIELD), "{refused}");
    while let Some(at) = device.deadline().filter(|&at| at < Instant::ZERO + Duration::from_ms(30)) {
        now = at;
        assert!(device.handle(now, Input::Timer).is_ok());
        while device.poll().is_some() {}
    }
    let pages = [0, 1].map(|function| device.control_page(function));
    assert_eq!((pages[0].lane[0].lba_tail, pages[1].lane[0].lba_tail), (64, 32));
    assert!(pages[0].status.is_broken(0) && !pages[1].status.is_broken(0));
    assert_eq!(pages[1].lba_first, pages[0].lba_first + pages[0].lba_count, "each has its own ring of pages");
    let mut found = [[0; 32]; 2];
    for (function, found) in found.iter_mut().enumerate() {
        device.fast().read_ring(function, 0, 0, found);
    }
    assert_eq!(found, [[1; 32], [2; 32]]);
}

#[test]
fn too_little_energy_is_refused_in_words() {
    let mut profile = profile(&[]);
    profile.set("fast.energy", "0.001").unwrap();
    let error = profile.check().unwrap_err().to_string();
    assert!(error.contains("[fast] energy") && error.contains("J are needed"), "{error}");
    // A memory that keeps its content by itself needs none; one that keeps nothing promises less, and says so.
    let mut nvm = profile.clone();
    nvm.set("memory.nvm.kind", "nvm").unwrap();
    nvm.set("memory.nvm.size", "32KiB").unwrap();
    nvm.set("fast.memory", "nvm").unwrap();
    assert!(nvm.check().unwrap().iter().all(|downgrade| !downgrade.key.starts_with("fast.")));
    profile.set("memory.sram.survives", "nothing").unwrap();
    let notes = profile.check().unwrap();
    assert!(notes.iter().any(|d| d.key == "fast.memory" && d.text.contains("lost on power failure")), "{notes:?}");
}

#[test]
fn a_ring_in_the_data_buffers_memory_slows_both() {
    // The same appends and block writes, with the ring in a memory of its own, and in that of the write buffer.
    let time = |memory: &str| {
        let mut profile = profile(&[("memory.dram.bandwidth", "400MB/s"), ("memory.sram.bandwidth", "400MB/s")]);
        profile.set("memory.dram.survives", "by-capacitors").unwrap();
        profile.set("fast.memory", memory).unwrap();
        let mut device = device(&profile);
        let write = |cid| tidewater_wire::nvme::Sqe::write(cid, u64::from(cid) * 128, 127);
        for cid in 0..4 {
            let submission = tidewater_core::host::Submission::new(write(cid), 1);
            assert!(device.handle(Instant::ZERO, Input::Submit { queue: 0, submission }).is_ok());
        }
        let mut at = 0;
        let (mut now, mut done) = (Instant::ZERO, Instant::ZERO);
        while now < Instant::ZERO + Duration::from_ms(3) {
            if at < 32 << 10 && at + 64 <= device.control_page(0).lane[0].credit + 4096 {
                let address = bar::RINGS + at % (32 << 10);
                let store = Input::Store { function: 0, address, content: Content::Bytes(&[0; 64]) };
                assert!(device.handle(now, store).is_ok());
                at += 64;
            }
            now += Duration::from_ns(100);
            while let Some(due) = device.deadline().filter(|&due| due <= now) {
                assert!(device.handle(due, Input::Timer).is_ok());
                while let Some(output) = device.poll() {
                    if let Output::Complete(_) = output {
                        done = due;
                    }
                }
            }
        }
        assert_eq!(device.control_page(0).lane[0].credit, 32 << 10);
        done
    };
    let (apart, together) = (time("sram"), time("dram"));
    assert!(together > apart, "{together:?} with the ring in the same memory, {apart:?} without");
}

/// A wait of a quorum group's primary ends when it is deposed: once primary again, it has its successor's bytes.
#[test]
fn a_wait_for_credit_does_not_outlive_the_epoch_that_it_began_in() {
    let profile = profile(&[]);
    let nodes = 3u8;
    let devices = (0..nodes).map(|_| device(&profile)).collect();
    let mut cluster = Cluster::new(devices, LinkModel::default(), true, 1);
    let mut now = Instant::ZERO;
    for node in (0..nodes).rev() {
        let peers: Vec<u8> = (0..nodes).filter(|&peer| peer != node).collect();
        let setup = TransportSetup {
            role: if node == 0 { Role::Primary } else { Role::Secondary },
            node,
            mode: Mode::Quorum(2),
            peers: NodeList::new(&peers).unwrap(),
            report_period_ns: 400,
            stall_timeout_ns: 1_000_000,
            ..TransportSetup::default()
        };
        let sqe = AdminCommand::TransportSetup { function: 0 }.emit(1);
        capsule(&mut cluster, now, node.into(), sqe, &setup.to_bytes());
    }
    now += Duration::from_ms(1);
    run_until(&mut cluster, now);
    let epoch = |cluster: &Cluster<tidewater_nand::Nand>, node| cluster.device(node).unwrap().control_page(0).epoch;
    let append = |cluster: &mut Cluster<tidewater_nand::Nand>, now, node: usize, bytes: &[u8]| {
        let command = IoCommand::Append { lane: 0, epoch: epoch(cluster, node), offset: 0, bytes: bytes.len() as u32 };
        capsule(cluster, now, node, command.emit(2), bytes);
    };
    let promote = |cluster: &mut Cluster<tidewater_nand::Nand>, now, node: usize| {
        let counter = (0..nodes.into()).map(|node| epoch(cluster, node).counter()).max().unwrap_or(0) + 1;
        let promote = Promote { epoch: Epoch::new(counter, node as u8), ..Promote::default() };
        capsule(cluster, now, node, AdminCommand::Promote { function: 0 }.emit(3), &promote.to_bytes());
    };
    // Alone, the primary's bytes are credited by no replica.
    cluster.partition(&[0]);
    append(&mut cluster, now, 0, &[1; 1000]);
    let wait = IoCommand::WaitCredit { lane: 0, offset: 1000, timeout_ns: NO_TIMEOUT };
    capsule(&mut cluster, now, 0, wait.emit(7), &[]);
    promote(&mut cluster, now, 1);
    now += Duration::from_ms(30);
    run_until(&mut cluster, now);
    append(&mut cluster, now, 1, &[2; 2000]);
    cluster.partition(&[]);
    now += Duration::from_ms(30);
    let mut said = run_until(&mut cluster, now);
    promote(&mut cluster, now, 0);
    now += Duration::from_ms(30);
    said.extend(run_until(&mut cluster, now));
    let page = cluster.device(0).unwrap().control_page(0);
    assert_eq!((page.role, page.lane[0].credit), (Role::Primary, 2000));
    let waited = said.iter().find_map(|said| match said {
        (0, Said::Output(Output::Reply { cid: 7, status, .. })) => Some(*status),
        _ => None,
    });
    assert!(waited.is_some_and(|status| status.same_code(status::DEPOSED_EPOCH)), "{waited:?}");
}

/// The epoch is the host's to choose: writers go by it. One that another node would make, or that
/// is not above what the device knows, is refused, and so is a promotion that a higher one has overtaken.
#[test]
fn a_promotion_is_to_the_epoch_that_was_asked_for() {
    let profile = profile(&[]);
    let mut cluster = Cluster::new((0..3).map(|_| device(&profile)).collect(), LinkModel::default(), true, 1);
    let mut now = Instant::ZERO;
    let status_of = |cluster: &mut Cluster<tidewater_nand::Nand>, cid: u16| loop {
        match cluster.poll() {
            Some((_, Said::Output(Output::Reply { cid: of, status, .. }))) if of == cid => return Some(status),
            Some(_) => {}
            None => return None,
        }
    };
    let set_up = |cluster: &mut Cluster<tidewater_nand::Nand>, node: u8, epoch| {
        let peers: Vec<u8> = (0..3).filter(|&peer| peer != node).collect();
        let setup = TransportSetup {
            role: if node == 0 { Role::Primary } else { Role::Secondary },
            node,
            mode: Mode::Quorum(2),
            peers: NodeList::new(&peers).unwrap(),
            epoch,
            report_period_ns: 400,
            stall_timeout_ns: 1_000_000,
        };
        capsule(
            cluster,
            Instant::ZERO,
            node.into(),
            AdminCommand::TransportSetup { function: 0 }.emit(1),
            &setup.to_bytes(),
        );
        status_of(cluster, 1)
    };
    assert_eq!(set_up(&mut cluster, 0, Epoch::new(7, 1)), Some(Status::INVALID_FIELD), "node 1 would make it");
    for node in [2, 1, 0] {
        assert_eq!(set_up(&mut cluster, node, Epoch::new(7, 0)), Some(Status::SUCCESS));
    }
    let run = |cluster: &mut Cluster<tidewater_nand::Nand>, now: &mut Instant| {
        *now += Duration::from_ms(30);
        let said = run_until(cluster, *now);
        said.into_iter().find_map(|(_, said)| match said {
            Said::Output(Output::Reply { cid: 3, status, .. }) => Some(status),
            _ => None,
        })
    };
    assert_eq!(run(&mut cluster, &mut now), None);
    let epoch = |cluster: &Cluster<tidewater_nand::Nand>, node| cluster.device(node).unwrap().control_page(0).epoch;
    assert_eq!([0, 1, 2].map(|node| epoch(&cluster, node)), [Epoch::new(7, 0); 3]);
    let promote = |cluster: &mut Cluster<tidewater_nand::Nand>, now, node: usize, cid, epoch| {
        let promote = Promote { epoch, ..Promote::default() };
        capsule(cluster, now, node, AdminCommand::Promote { function: 0 }.emit(cid), &promote.to_bytes());
        status_of(cluster, cid)
    };
    assert_eq!(promote(&mut cluster, now, 1, 3, Epoch::new(8, 2)), Some(Status::INVALID_FIELD));
    assert_eq!(promote(&mut cluster, now, 1, 3, Epoch::new(7, 1)), Some(status::PROMOTION_EPOCH_LOW));
    assert_eq!(promote(&mut cluster, now, 1, 3, Epoch::new(12, 1)), None);
    assert_eq!(run(&mut cluster, &mut now), Some(Status::SUCCESS));
    assert_eq!([0, 1, 2].map(|node| epoch(&cluster, node)), [Epoch::new(12, 1); 3]);
    // The first has no effect, and all of the second.
    cluster.partition(&[0]);
    assert_eq!(promote(&mut cluster, now, 0, 3, Epoch::new(20, 0)), None);
    assert_eq!(promote(&mut cluster, now, 2, 4, Epoch::new(30, 2)), None);
    assert_eq!(run(&mut cluster, &mut now), None);
    cluster.partition(&[]);
    assert_eq!(run(&mut cluster, &mut now), Some(status::PROMOTION_EPOCH_LOW));
    assert_eq!(epoch(&cluster, 0), Epoch::new(30, 2));
}

/// A group in eager mode, a millisecond old.
fn group(nodes: u8, links: LinkModel) -> (Cluster<tidewater_nand::Nand>, Instant) {
    let profile = profile(&[]);
    let mut cluster = Cluster::new((0..nodes).map(|_| device(&profile)).collect(), links, true, 1);
    for node in (0..nodes).rev() {
        let peers: Vec<u8> = (0..nodes).filter(|&peer| peer != node).collect();
        let setup = TransportSetup {
            role: if node == 0 { Role::Primary } else { Role::Secondary },
            node,
            mode: Mode::Eager,
            peers: NodeList::new(&peers).unwrap(),
            report_period_ns: 400,
            stall_timeout_ns: 1_000_000,
            ..TransportSetup::default()
        };
        let sqe = AdminCommand::TransportSetup { function: 0 }.emit(1);
        capsule(&mut cluster, Instant::ZERO, node.into(), sqe, &setup.to_bytes());
    }
    let now = Instant::ZERO + Duration::from_ms(1);
    run_until(&mut cluster, now);
    (cluster, now)
}

/// The primary's host appends 3,000 bytes. From then until they are credited.
fn credited_after(nodes: u8, links: LinkModel) -> Duration {
    let (mut cluster, now) = group(nodes, links);
    let epoch = cluster.device(0).unwrap().control_page(0).epoch;
    let append = IoCommand::Append { lane: 0, epoch, offset: 0, bytes: 3000 };
    capsule(&mut cluster, now, 0, append.emit(2), &[1; 3000]);
    let mut at = now;
    while cluster.device(0).unwrap().control_page(0).lane[0].credit < 3000 {
        at = cluster.deadline().expect("it goes on");
        run_until(&mut cluster, at);
    }
    at.since(now)
}

#[test]
fn a_nodes_own_link_is_shared_by_all_that_it_sends() {
    let links = |port| LinkModel { port, ..LinkModel::default() };
    // 3,000 bytes in 12 TLPs are 3,288 bytes with framing.
    let one_flow = Duration::from_ns(32_880);
    let [one, three] = [1, 3].map(|secondaries| credited_after(secondaries + 1, links(100_000_000)));
    // Frames of one flow fill gaps of another.
    assert!(
        three > one + Duration::from_ps(one_flow.as_ps() * 3 / 2),
        "{three:?} with three flows over 100 MB/s, {one:?} with one"
    );
    let [one, three] = [1, 3].map(|secondaries| credited_after(secondaries + 1, links(0)));
    assert!(three < one + one_flow, "{three:?} and {one:?} where each flow has a link of its own");
}

#[test]
fn what_comes_to_a_node_shares_its_own_link_with_what_its_host_sends() {
    let (mut cluster, now) = group(2, LinkModel { port: 1_000_000_000, ..LinkModel::default() });
    let first = cluster.through_port(now, 0, 1000);
    assert_eq!(first, now + Duration::from_us(1));
    assert_eq!(cluster.through_port(now, 0, 500), first + Duration::from_ns(500));
    assert_eq!(cluster.through_port(now, 1, 500), now + Duration::from_ns(500), "another node's is another");
}

#[test]
fn a_transport_sends_the_newest_counter_when_its_own_timer_is_due() {
    let every = Duration::from_us(10);
    let at_once = credited_after(2, LinkModel::default());
    let (mut cluster, began) = group(2, LinkModel { sends_every: every, ..LinkModel::default() });
    // No keep-alive falls into what follows.
    let now = began + Duration::from_us(30);
    run_until(&mut cluster, now);
    let epoch = cluster.device(0).unwrap().control_page(0).epoch;
    let (frames, credit) = (
        |cluster: &Cluster<tidewater_nand::Nand>| cluster.traffic(1, 0).0,
        |cluster: &Cluster<tidewater_nand::Nand>| cluster.device(0).unwrap().control_page(0).lane[0].credit,
    );
    let before = frames(&cluster);
    // Three counters within a period of the sender.
    for i in 0..3 {
        let at = now + Duration::from_us(i * 2);
        run_until(&mut cluster, at);
        let append = IoCommand::Append { lane: 0, epoch, offset: i * 1000, bytes: 1000 };
        capsule(&mut cluster, at, 0, append.emit(2), &[1; 1000]);
    }
    let sent = every * (now.as_ps() / every.as_ps() + 1);
    run_until(&mut cluster, Instant::ZERO + Duration::from_ps(sent.as_ps() - 1));
    assert!(at_once < Duration::from_us(8) && credit(&cluster) == 0, "{at_once:?}: they wait for the timer");
    run_until(&mut cluster, Instant::ZERO + sent + Duration::from_us(2));
    assert_eq!((frames(&cluster) - before, credit(&cluster)), (1, 3000), "one counter stands for all three");
}
