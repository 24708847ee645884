//! Single properties.

use super::network::{Check, FAIR, Network, Weather};
use super::*;
use tidewater_base::Rng;
use tidewater_wire::replication::{Accepted, Attach, Start};

pub(super) fn network(mode: Mode, nodes: usize) -> Network {
    let members: Vec<u8> = (0..nodes as u8).collect();
    let mut net = Network::new(nodes, 1, 7);
    net.set_up(Group::new(Epoch::ZERO, mode, &members).unwrap());
    net.run(Duration::from_us(50)).unwrap();
    assert_eq!(net.converged(), Some(0));
    net
}

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_ms(ms)
}

/// Cuts a node off, or lets it back.
pub(super) fn isolate(net: &mut Network, node: usize, blocked: bool) {
    for peer in 0..net.nodes.len() {
        net.blocked[node][peer] = blocked;
        net.blocked[peer][node] = blocked;
    }
}

fn flags(net: &Network, node: usize) -> u32 {
    net.nodes[node].transport.status().flags
}

pub(super) fn promote(net: &mut Network, node: usize, force: bool) -> Check {
    net.command(node, Command::Promote { target: None, epoch: Epoch::ZERO, force })
        .map_err(|error| error.to_string())?;
    net.run(ms(30))
}

#[test]
fn credit_follows_the_mode() -> Check {
    for (mode, behind) in [
        (Mode::Lazy, [10, 10, 10]),
        (Mode::Quorum(1), [10, 10, 10]),
        (Mode::Quorum(2), [10, 10, 0]),
        (Mode::Quorum(3), [10, 0, 0]),
        (Mode::Eager, [10, 0, 0]),
        (Mode::Chain, [10, 0, 0]),
    ] {
        for (away, expected) in behind.into_iter().enumerate() {
            let mut net = network(mode, 3);
            for node in 3 - away..3 {
                isolate(&mut net, node, true);
            }
            net.write(0, 0, 10);
            net.run(ms(1))?;
            assert_eq!(net.credit(0, 0), expected, "{mode:?} without {away}");
        }
    }
    Ok(())
}

#[test]
fn the_head_of_a_chain_has_one_shadow_counter_and_it_is_the_tails() -> Check {
    let mut net = network(Mode::Chain, 4);
    net.write(0, 0, 40);
    net.run(Duration::from_us(60))?;
    isolate(&mut net, 3, true);
    net.write(0, 0, 20);
    net.run(ms(1))?;
    let shadows: Vec<_> = net.nodes[0].transport.shadows().map(|(node, lanes)| (node, lanes.to_vec())).collect();
    assert_eq!(shadows, [(1, vec![40])]);
    assert_eq!(net.nodes[2].log.persisted(0), 60, "the rest of the chain has it");
    Ok(())
}

/// Section 7.1 of the paper: each failure has a bit of its own, within its time-out and a keep-alive.
#[test]
fn the_three_failures_differ_in_bounded_time() -> Check {
    let three = flag::DESTAGE_FAILED | flag::DATA_FAILED | flag::COUNTER_FAILED;
    let bound = Duration::from_us(1300);

    let mut net = network(Mode::Eager, 2);
    net.event(0, Event::Destage { failed: true });
    assert_eq!(flags(&net, 0) & three, flag::DESTAGE_FAILED);
    net.event(0, Event::Destage { failed: false });

    // Frames to the peer are lost, its reports come.
    net.blocked[0][1] = true;
    net.write(0, 0, 10);
    net.run(bound)?;
    assert_eq!(flags(&net, 0) & three, flag::DATA_FAILED);
    net.blocked[0][1] = false;
    net.run(ms(6))?;
    assert_eq!((flags(&net, 0) & three, net.credit(0, 0)), (0, 10));

    // Data arrives, reports are lost.
    net.blocked[1][0] = true;
    net.write(0, 0, 10);
    net.run(bound)?;
    assert_eq!(flags(&net, 0) & three, flag::COUNTER_FAILED);
    assert_eq!(net.nodes[1].log.persisted(0), 20);
    net.blocked[1][0] = false;
    net.run(ms(6))?;
    assert_eq!((flags(&net, 0) & three, net.credit(0, 0)), (0, 20));

    net.event(0, Event::Link { peer: 1, up: false, restarted: false });
    assert_eq!(flags(&net, 0) & three, flag::DATA_FAILED, "a link that is known to be down");
    Ok(())
}

/// As credit, of what is on flash: here whole pages of 16 units.
#[test]
fn what_is_on_flash_follows_the_mode_too() -> Check {
    for (mode, all, without_one) in [
        (Mode::Lazy, u64::MAX, u64::MAX),
        (Mode::Quorum(2), 32, 64),
        (Mode::Quorum(3), 32, 32),
        (Mode::Eager, 32, 32),
        (Mode::Chain, 32, 32),
    ] {
        let mut net = network(mode, 3);
        net.write(0, 0, 40);
        net.run(Duration::from_us(60))?;
        let silent = if mode == Mode::Lazy { u64::MAX } else { 0 };
        assert_eq!(net.nodes[0].transport.replicated_durable(0), silent, "{mode:?}: reports do not say it");
        net.nodes.iter_mut().for_each(|node| node.transport.config.report_destaged = true);
        net.run(ms(1))?;
        assert_eq!(net.nodes[0].transport.replicated_durable(0), all, "{mode:?}");
        assert!(net.nodes[0].transport.peers().all(|peer| peer.destaged[0] == 32 && peer.ring_survives));
        isolate(&mut net, 2, true);
        net.write(0, 0, 25);
        net.run(ms(1))?;
        assert_eq!(net.nodes[0].transport.replicated_durable(0), without_one, "{mode:?} without one");
        assert_eq!(net.nodes[1].transport.replicated_durable(0), 0, "a secondary vouches for nothing");
    }
    Ok(())
}

#[test]
fn a_replica_reports_what_has_come_to_flash() {
    for says in [false, true] {
        let mut net = network(Mode::Eager, 2);
        net.nodes[1].transport.config.report_destaged = says;
        assert_eq!(net.nodes[1].transport.follower.tick_at, Instant::NEVER);
        net.event(1, Event::Destaged { lane: 0 });
        let soon = net.nodes[1].transport.follower.tick_at < Instant::NEVER;
        assert_eq!(soon, says, "a report is due where it says what is on flash");
    }
}

#[test]
fn a_deposed_primary_acknowledges_nothing_and_learns_it_from_a_refusal() -> Check {
    for mode in [Mode::Eager, Mode::Chain, Mode::Quorum(2)] {
        let mut net = network(mode, 3);
        net.write(0, 0, 10);
        net.run(ms(1))?;
        isolate(&mut net, 0, true);
        net.write(0, 0, 10);
        promote(&mut net, 1, false)?;
        assert_eq!(net.persistent(1).role, Role::Primary, "{mode:?}");
        assert_eq!((net.persistent(0).role, net.credit(0, 0)), (Role::Primary, 10), "it can't know yet");
        isolate(&mut net, 0, false);
        net.run(ms(30))?;
        assert_eq!((net.persistent(0).role, net.credit(0, 0)), (Role::Secondary, 10));
        let status = net.nodes[0].transport.status();
        assert_eq!(status.flags & flag::DEPOSED, flag::DEPOSED);
        assert_eq!((status.cut[0], net.nodes[0].transport.writable()), (10, false));
        net.write(1, 0, 30);
        net.run(ms(1))?;
        assert_eq!(net.credit(1, 0), 40);
        assert_eq!(net.credit(0, 0), 10, "bytes of the next primary are none of its own");
    }
    Ok(())
}

#[test]
fn a_lazy_suffix_that_a_forced_promotion_leaves_behind_is_reported_and_cut() -> Check {
    let mut net = network(Mode::Lazy, 2);
    net.write(0, 0, 10);
    net.run(ms(1))?;
    isolate(&mut net, 0, true);
    promote(&mut net, 1, false)?;
    assert_eq!(net.persistent(1).role, Role::Secondary, "the old primary may have acknowledged more");
    promote(&mut net, 1, true)?;
    assert_eq!(net.persistent(1).role, Role::Primary);
    // Both write, and both acknowledge: the operator has allowed it. The ledger knows only one truth, so it does not
    // look here.
    net.write(0, 0, 25);
    assert_eq!(net.credit(0, 0), 35);
    isolate(&mut net, 0, false);
    for _ in 0..4000 {
        net.advance();
        net.drain(0, 100);
    }
    assert_eq!((net.nodes[0].transport.status().cut[0], net.credit(0, 0)), (25, 10));
    assert_eq!(net.persistent(0).history, net.persistent(1).history);
    Ok(())
}

#[test]
fn a_peer_that_was_away_catches_up_from_destaged_pages() -> Check {
    let mut net = network(Mode::Quorum(2), 3);
    isolate(&mut net, 2, true);
    for _ in 0..50 {
        net.write(0, 0, 20);
        net.run(Duration::from_us(100))?;
    }
    assert!(net.nodes[0].log.in_ring_from(0) > 800 && net.nodes[2].log.persisted(0) == 0);
    isolate(&mut net, 2, false);
    net.run(ms(10))?;
    assert_eq!(net.nodes[2].log.persisted(0), 1000);
    Ok(())
}

#[test]
fn what_is_trimmed_everywhere_makes_a_peer_stale_until_it_is_rebuilt() -> Check {
    let mut net = network(Mode::Quorum(2), 3);
    net.write(0, 0, 50);
    net.run(ms(1))?;
    isolate(&mut net, 2, true);
    for _ in 0..20 {
        net.write(0, 0, 20);
        net.run(Duration::from_us(100))?;
    }
    net.nodes[0].log.trim(0, 300);
    isolate(&mut net, 2, false);
    net.run(ms(20))?;
    assert_eq!(net.nodes[2].log.persisted(0), 50, "nothing is thrown away without leave");
    assert_eq!((flags(&net, 0) & flag::STALE, flags(&net, 2) & flag::STALE), (flag::STALE, flag::STALE));
    net.command(2, Command::Rebuild).unwrap();
    net.run(ms(20))?;
    assert_eq!((net.nodes[2].log.oldest(0), net.nodes[2].log.persisted(0)), (300, 450));
    assert_eq!((flags(&net, 0) & flag::STALE, flags(&net, 2) & flag::STALE), (0, 0));
    Ok(())
}

#[test]
fn a_dead_member_is_taken_out_by_a_majority_and_a_pair_needs_force() -> Check {
    let group = |members: &[u8]| Some(Group::new(Epoch::ZERO, Mode::Eager, members).unwrap());
    let mut net = network(Mode::Eager, 3);
    isolate(&mut net, 2, true);
    net.write(0, 0, 10);
    net.run(ms(1))?;
    assert_eq!(net.credit(0, 0), 0);
    net.command(0, Command::Promote { target: group(&[0, 1]), epoch: Epoch::ZERO, force: false }).unwrap();
    net.run(ms(5))?;
    assert_eq!((net.converged(), net.credit(0, 0)), (Some(0), 10));
    // The one that is out can't acknowledge, and learns that there is a newer group.
    promote(&mut net, 2, false)?;
    isolate(&mut net, 2, false);
    net.run(ms(20))?;
    assert_eq!((net.persistent(2).role, net.credit(2, 0)), (Role::Secondary, 0));
    assert_eq!(
        net.command(2, Command::Promote { target: None, epoch: Epoch::ZERO, force: false }),
        Err(CommandError::Outdated)
    );

    isolate(&mut net, 1, true);
    net.command(0, Command::Promote { target: group(&[0]), epoch: Epoch::ZERO, force: false }).unwrap();
    net.run(ms(50))?;
    assert_eq!(flags(&net, 0) & flag::PROMOTING, flag::PROMOTING, "one of two is no majority");
    net.command(0, Command::Promote { target: group(&[0]), epoch: Epoch::ZERO, force: true }).unwrap();
    net.run(ms(50))?;
    net.write(0, 0, 5);
    assert_eq!((net.persistent(0).role, net.credit(0, 0)), (Role::Primary, 15));
    Ok(())
}

/// A primary of a group that was replaced without its knowing makes epochs that are higher than those of the new group.
/// Its log must not count for more when it comes back.
fn an_outsider_comes_back(flaw: Injected<Flaw>) -> Check {
    let group = |members: &[u8]| Some(Group::new(Epoch::ZERO, Mode::Eager, members).unwrap());
    let mut net = network(Mode::Eager, 4);
    net.nodes.iter_mut().for_each(|node| node.transport.flaw = flaw);
    isolate(&mut net, 1, true);
    net.command(0, Command::Promote { target: group(&[0, 2]), epoch: Epoch::ZERO, force: false }).unwrap();
    net.run(ms(2))?;
    net.write(0, 0, 20);
    net.run(ms(2))?;
    assert_eq!(net.credit(0, 0), 20);
    promote(&mut net, 1, false)?;
    net.write(1, 0, 30);
    assert!(net.nodes[1].transport.epoch() > net.nodes[0].transport.epoch());
    // It comes back, and is the first to accept.
    isolate(&mut net, 1, false);
    net.blocked[2][0] = true;
    net.command(0, Command::Promote { target: group(&[0, 1, 2, 3]), epoch: Epoch::ZERO, force: false }).unwrap();
    net.run(ms(2))?;
    net.blocked[2][0] = false;
    net.run(ms(20))?;
    assert_eq!((net.converged(), net.credit(0, 0)), (Some(0), 20));
    assert_eq!(net.nodes[1].transport.status().cut[0], 30);
    Ok(())
}

#[test]
fn the_log_of_a_group_that_was_replaced_wins_nothing() {
    assert_eq!(an_outsider_comes_back(Injected::NONE), Ok(()));
    assert!(an_outsider_comes_back(Injected::of(Flaw::RankByEpoch)).is_err(), "the flaw goes unnoticed");
}

/// A node accepts an epoch, and is powered off before the new primary reaches it.
fn an_acceptor_restarts(forgets_promise: bool) -> Check {
    let mut net = network(Mode::Quorum(2), 3);
    net.forgets_promise = forgets_promise;
    net.blocked[1][0] = true;
    net.command(1, Command::Promote { target: None, epoch: Epoch::ZERO, force: false }).unwrap();
    while net.persistent(1).role != Role::Primary {
        net.advance();
    }
    isolate(&mut net, 1, true);
    net.restart(2, Duration::ZERO);
    net.write(0, 0, 10);
    net.run(ms(10))?;
    net.logs_agree()?;
    assert_eq!((net.persistent(0).role, net.credit(0, 0)), (Role::Secondary, 0));
    Ok(())
}

#[test]
fn a_promise_outlives_a_power_cut() {
    assert_eq!(an_acceptor_restarts(false), Ok(()));
    assert!(an_acceptor_restarts(true).is_err(), "the flaw goes unnoticed");
}

#[test]
fn a_stand_alone_log_becomes_the_groups_and_the_others_give_theirs_up() -> Check {
    let mut net = Network::new(3, 1, 1);
    net.write(0, 0, 200);
    net.write(1, 0, 77);
    assert_eq!(net.credit(0, 0), 200);
    net.ledger[0].clear();
    net.set_up(Group::new(Epoch::ZERO, Mode::Eager, &[0, 1, 2]).unwrap());
    net.run(ms(5))?;
    assert_eq!((net.converged(), net.credit(0, 0)), (Some(0), 200));
    assert_eq!(net.nodes[1].transport.status().cut[0], 77);
    // Who leaves writes on as an epoch of its own, which is cut when it comes back.
    net.command(2, Command::StandAlone).unwrap();
    net.write(2, 0, 9);
    assert_eq!(net.credit(2, 0), 209);
    let group = Group::new(Epoch::ZERO, Mode::Eager, &[0, 1, 2]).unwrap();
    net.command(2, Command::Setup { node: 2, group, primary: false, epoch: Epoch::ZERO, force: false }).unwrap();
    net.run(ms(10))?;
    promote(&mut net, 0, false)?;
    promote(&mut net, 0, false)?;
    assert_eq!((net.converged(), net.nodes[2].log.persisted(0)), (Some(0), 200));
    Ok(())
}

#[test]
fn a_primary_that_comes_back_waits_for_its_peers() -> Check {
    let mut net = network(Mode::Eager, 2);
    net.write(0, 0, 30);
    net.run(ms(1))?;
    isolate(&mut net, 1, true);
    net.restart(0, Duration::ZERO);
    net.run(ms(1))?;
    assert_eq!((net.persistent(0).role, net.credit(0, 0)), (Role::Primary, 0));
    isolate(&mut net, 1, false);
    net.run(ms(10))?;
    assert_eq!(net.credit(0, 0), 30);
    Ok(())
}

/// Reports stand at multiples of the period, one for each lane that has changed, however often it did.
#[test]
fn reports_are_sent_at_ticks_of_the_period() {
    let config = Config { report_period: Duration::from_us(2), ..Config::default() };
    let mut log = MemLog::new(1);
    let mut replica = Transport::new(config);
    let group = Group::new(Epoch::ZERO, Mode::Eager, &[0, 1]).unwrap();
    replica
        .command(
            Instant::ZERO,
            Command::Setup { node: 1, group, primary: false, epoch: Epoch::ZERO, force: false },
            &mut log,
        )
        .unwrap();
    let epoch = Epoch::ZERO.next(0).unwrap();
    let mut history = History::default();
    history.push(Start { epoch, offsets: [0; LANES_MAX] });
    let attach = Box::new(Attach { group, lanes: 1, oldest: [0; LANES_MAX], ends: Some([0; LANES_MAX]), history });
    let frame = Frame { function: 0, from: 0, to: 1, epoch, body: Body::Attach(attach) };
    replica.handle(Instant::ZERO, Event::Frame(frame), &mut log);
    assert!(matches!(replica.poll(&mut log).unwrap().frame.body, Body::Report { synced: true, persisted: 0, .. }));
    let mut writes = [2500, 3000, 3900, 4100, 4500, 11_000].map(Instant::from_ns).into_iter().peekable();
    let mut reports = Vec::new();
    while let Some(at) = replica.deadline().filter(|&at| at < Instant::from_ns(50_000)).or(writes.peek().copied()) {
        match writes.next_if(|&write| write <= at) {
            Some(write) => {
                log.write(0, 0..8);
                replica.handle(write, Event::Persisted { lane: 0 }, &mut log);
            }
            None => replica.handle(at, Event::Timer, &mut log),
        }
        while let Some(Transmit { frame: Frame { body: Body::Report { persisted, .. }, .. }, .. }) =
            replica.poll(&mut log)
        {
            reports.push((at.as_ps() / 1_000_000, persisted));
        }
    }
    assert_eq!(reports, [(4, 24), (6, 40), (12, 48)]);
}

#[test]
fn a_peer_that_is_silent_is_not_flooded() -> Check {
    let mut net = network(Mode::Quorum(2), 3);
    isolate(&mut net, 2, true);
    net.write(0, 0, 200);
    net.run(ms(100))?;
    let before = net.frames;
    net.run(ms(1000))?;
    // The pair that lives: a report and a keep-alive each 100 us. The silent one: data, keep-alives and reports at
    // their longest waits.
    let living = 2 * 10_000;
    let silent = 10_000 + 200 * 5;
    assert!(net.frames - before <= living + silent, "{} frames", net.frames - before);
    Ok(())
}

/// Frames that no node would send, though each is one: a node that gets them neither panics nor keeps its driver busy.
#[test]
fn no_frame_panics() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed, b"hostile frames");
        let mut net = network([Mode::Lazy, Mode::Eager, Mode::Chain, Mode::Quorum(2)][seed as usize % 4], 3);
        net.weather = Weather { drop: 30, ..FAIR };
        for _ in 0..300 {
            let epoch = |rng: &mut Rng| match rng.below(8) {
                0 => Epoch(rng.next_u64()),
                1 => Epoch::new(rng.below(EPOCHS_AHEAD_MAX), rng.below(4) as u8),
                _ => Epoch(rng.below(6) << 8 | rng.below(4)),
            };
            let offset = |rng: &mut Rng| rng.below(60);
            let group = |rng: &mut Rng| {
                let mode = [Mode::Lazy, Mode::Eager, Mode::Chain, Mode::Quorum(1)][rng.below(4) as usize];
                let version = epoch(rng);
                Group::new(version, mode, [&[0, 1, 2][..], &[1, 0], &[2], &[0, 2, 9]][rng.below(4) as usize]).unwrap()
            };
            let offsets = |rng: &mut Rng| {
                let mut offsets = [0; LANES_MAX];
                offsets[0] = offset(rng);
                offsets
            };
            let history = |rng: &mut Rng| {
                let mut history = History::default();
                for _ in 0..rng.below(5) {
                    history.push(Start { epoch: epoch(rng), offsets: offsets(rng) });
                }
                history
            };
            let body = match rng.below(9) {
                0 => Body::Propose { force: rng.below(2) == 0, base: epoch(&mut rng), target: group(&mut rng) },
                1 => {
                    let (oldest, ends, history) = (offsets(&mut rng), offsets(&mut rng), history(&mut rng));
                    let (synced, version, lost) = (history.last(), epoch(&mut rng), rng.below(4) == 0);
                    Body::Accepted(Box::new(Accepted { synced, version, lost, lanes: 1, oldest, ends, history }))
                }
                2 => {
                    let reason = [Reason::Epoch, Reason::Group, Reason::Pending, Reason::Stale, Reason::Mismatch];
                    let reason = reason[rng.below(5) as usize];
                    Body::Refuse { promised: epoch(&mut rng), reason, group: group(&mut rng) }
                }
                3 | 4 => {
                    let (group, oldest, history) = (group(&mut rng), offsets(&mut rng), history(&mut rng));
                    let ends = (rng.below(2) == 0).then(|| offsets(&mut rng));
                    Body::Attach(Box::new(Attach { group, lanes: 1, oldest, ends, history }))
                }
                5 => {
                    let (pulled, lane) = (rng.below(2) == 0, rng.below(3) as u8);
                    Body::Data { pulled, lane, offset: offset(&mut rng), len: 1 + rng.below(30) as u32 }
                }
                6 => {
                    let (lane, synced, persisted) = (rng.below(2) as u8, rng.below(2) == 0, offset(&mut rng));
                    let window = rng.below(90) as u32;
                    let covered = rng.below(persisted + 1);
                    let lost = rng.below(4) == 0;
                    Body::Report { lane, synced, window, persisted, covered, durable: None, lost }
                }
                7 => Body::KeepAlive,
                _ => {
                    let start = offset(&mut rng);
                    Body::Pull { lane: rng.below(2) as u8, start, end: start + 1 + rng.below(30) }
                }
            };
            let (from, to) = (rng.below(4) as u8, rng.below(3) as usize);
            let epoch = match &body {
                Body::Attach(attach) if rng.below(4) > 0 => attach.history.last(),
                _ => epoch(&mut rng),
            };
            if let Body::Data { offset, len, .. } = body {
                net.nodes[to].log.incoming = (offset, vec![0; len as usize]);
            }
            net.event(to, Event::Frame(Frame { function: 0, from, to: to as u8, epoch, body }));
            let lane = 0;
            match rng.below(6) {
                0 => drop(net.write(to, lane, 5)),
                1 => net.drain(to, 10),
                2 => net.advance(),
                3 if rng.below(9) == 0 => {
                    let _ = net
                        .command(to, Command::Promote { target: None, epoch: Epoch::ZERO, force: rng.below(2) == 0 });
                }
                4 if rng.below(9) == 0 => {
                    let _ = net
                        .command(to, [Command::StandAlone, Command::Rebuild, Command::Demote][rng.below(3) as usize]);
                }
                _ => {}
            }
        }
        let promised = (0..3).map(|node| net.persistent(node).promised.counter());
        assert!(promised.max() < Some(COUNTER_MAX_OF_NEW + (1 << 50)), "seed {seed}: hardly an epoch is left");
    }
}

/// One number that is wrong, by a peer that lies or a key that a stranger wrote, would end all promotions for good.
#[test]
fn no_frame_and_no_order_raises_an_epoch_far_above_what_a_node_knows() -> Check {
    let end = Epoch::new(u64::MAX >> 8, 1);
    let known = |net: &Network, node: usize| (net.persistent(node).promised, net.persistent(node).floor);
    for (what, far) in [("the last epoch", end), ("one too many", Epoch::new(2 + EPOCHS_AHEAD_MAX, 1))] {
        let mut net = network(Mode::Eager, 3);
        let group = net.persistent(0).group;
        let mut history = net.persistent(0).history.clone();
        history.push(Start { epoch: far, offsets: [0; LANES_MAX] });
        let attach = Attach { group, lanes: 1, oldest: [0; LANES_MAX], ends: None, history };
        let epoch = net.nodes[0].transport.epoch();
        for (to, epoch, body) in [
            (0, far, Body::Propose { force: true, base: Epoch::ZERO, target: group }),
            (2, far, Body::Propose { force: true, base: Epoch::ZERO, target: group }),
            (2, Epoch::new(9, 1), Body::Propose { force: true, base: far, target: group.at(far) }),
            (2, far, Body::Attach(Box::new(attach.clone()))),
            (2, far, Body::KeepAlive),
            (0, epoch, Body::Refuse { promised: far, reason: Reason::Epoch, group }),
            (0, epoch, Body::Refuse { promised: epoch, reason: Reason::Group, group: group.at(far) }),
        ] {
            let before = known(&net, to);
            net.event(to, Event::Frame(Frame { function: 0, from: 1, to: to as u8, epoch, body: body.clone() }));
            assert_eq!(known(&net, to), before, "{what} by {body:?}");
            assert_ne!(flags(&net, to) & flag::FAR_EPOCH, 0, "{what} by {body:?}");
        }
        let order = net.command(2, Command::Promote { target: None, epoch: Epoch(far.0 + 1), force: false });
        assert!(matches!(order, Err(CommandError::EpochFar(..))), "{what}: {order:?}");
        assert_eq!(net.converged(), Some(0), "{what}");
        promote(&mut net, 2, false)?;
        assert_eq!(net.converged(), Some(2), "{what}");
        assert_eq!(flags(&net, 2) & flag::FAR_EPOCH, 0, "{what}: it is another epoch's");
    }
    // A new device joins a group whatever its epoch.
    let mut net = network(Mode::Quorum(2), 3);
    for round in 1..4 {
        let epoch = Epoch::new(round * EPOCHS_AHEAD_MAX, 1);
        net.command(1, Command::Promote { target: None, epoch, force: false }).unwrap();
        net.run(ms(30))?;
        assert_eq!(net.nodes[1].transport.epoch(), epoch);
    }
    net.replace(2);
    net.run(ms(30))?;
    assert_eq!(net.converged(), Some(1));
    Ok(())
}

/// Whom it was to follow may have been named wrongly: it has given up nothing yet.
#[test]
fn a_device_that_leaves_before_it_has_met_its_primary_keeps_its_log() -> Check {
    let mut net = network(Mode::Eager, 2);
    net.write(0, 0, 30);
    net.run(ms(1))?;
    net.command(1, Command::StandAlone).unwrap();
    net.write(1, 0, 20);
    net.run(ms(1))?;
    let before = net.nodes[1].log.clone();
    isolate(&mut net, 1, true);
    let group = Group::new(Epoch::ZERO, Mode::Eager, &[0, 1]).unwrap();
    net.command(1, Command::Setup { node: 1, group, primary: false, epoch: Epoch::ZERO, force: false }).unwrap();
    net.run(ms(1))?;
    net.command(1, Command::StandAlone).unwrap();
    assert_eq!((net.nodes[1].log.persisted(0), net.credit(1, 0)), (50, 50));
    assert!((0..50).all(|at| net.nodes[1].log.get(0, at) == before.get(0, at)));
    Ok(())
}
