//! Bytes that the primary's host waits for on flash, where flash is a backing store that is synced on demand.

use super::network::*;
use super::*;
use tidewater_wire::replication::Group;

fn network(mode: Mode, nodes: usize) -> Network {
    let mut net = Network::new(nodes, 2, 7);
    net.config.report_destaged = true;
    for node in &mut net.nodes {
        node.transport.config.report_destaged = true;
        node.log.flushed = Some(vec![0; 2]);
    }
    let members: Vec<u8> = (0..nodes as u8).collect();
    net.set_up(Group::new(Epoch::ZERO, mode, &members).unwrap());
    net.run(Duration::from_ms(1)).unwrap();
    net
}

/// Runs for this time; the stores of these nodes sync what is wanted, each once, up to where their logs end.
fn run(net: &mut Network, time: Duration, syncing: &[usize]) -> (Check, usize) {
    let (end, mut syncs) = (net.now + time, 0);
    while net.now < end {
        let step = net.run(Duration::from_us(1));
        if step.is_err() {
            return (step, syncs);
        }
        for &node in syncing {
            for lane in 0..2 {
                let it = &mut net.nodes[node];
                let (wanted, to) = (it.transport.wanted(lane), it.log.persisted(lane));
                let Some(flushed) = &mut it.log.flushed else { continue };
                if it.transport.persistent().role == Role::Secondary && wanted > flushed[lane] {
                    flushed[lane] = to;
                    syncs += 1;
                    net.event(node, Event::Flushed { lane });
                }
            }
        }
    }
    (Ok(()), syncs)
}

fn on_flash(net: &Network, lane: usize) -> u64 {
    net.nodes[0].transport.durable_on_replicas(lane)
}

#[test]
fn replicas_sync_what_the_host_waits_for_and_only_then() -> Check {
    for mode in [Mode::Quorum(2), Mode::Quorum(3), Mode::Eager, Mode::Chain] {
        let mut net = network(mode, 3);
        net.write(0, 1, 40);
        let (step, syncs) = run(&mut net, Duration::from_ms(1), &[1, 2]);
        step?;
        assert_eq!((syncs, on_flash(&net, 1), net.credit(0, 1)), (0, 0, 40), "{mode:?}: no host waits");
        net.event(0, Event::Flush { lane: 1, to: 30 });
        let (step, syncs) = run(&mut net, Duration::from_ms(1), &[1, 2]);
        step?;
        // One sync takes all that is there.
        assert_eq!((syncs, on_flash(&net, 1), on_flash(&net, 0)), (2, 40, 0), "{mode:?}");
        // What is there already is said anew.
        net.event(0, Event::Flush { lane: 1, to: 40 });
        let (step, syncs) = run(&mut net, Duration::from_ms(1), &[1, 2]);
        step?;
        assert_eq!((syncs, on_flash(&net, 1)), (0, 40), "{mode:?}");
    }
    Ok(())
}

#[test]
fn it_is_on_flash_once_as_many_have_synced_as_the_mode_asks_for() -> Check {
    for (mode, one, both) in [(Mode::Lazy, 0, 0), (Mode::Quorum(2), 40, 40), (Mode::Eager, 0, 40), (Mode::Chain, 0, 40)]
    {
        let mut net = network(mode, 3);
        net.write(0, 0, 40);
        net.event(0, Event::Flush { lane: 0, to: 40 });
        run(&mut net, Duration::from_ms(1), &[1]).0?;
        assert_eq!(on_flash(&net, 0), one, "{mode:?}: node 1 alone");
        run(&mut net, Duration::from_ms(1), &[1, 2]).0?;
        assert_eq!(on_flash(&net, 0), both, "{mode:?}: both");
    }
    Ok(())
}

#[test]
fn a_flush_that_was_lost_is_sent_again() -> Check {
    for mode in [Mode::Eager, Mode::Chain] {
        let mut net = network(mode, 3);
        net.write(0, 0, 10);
        run(&mut net, Duration::from_ms(1), &[1, 2]).0?;
        net.weather.drop = 60;
        net.event(0, Event::Flush { lane: 0, to: 10 });
        run(&mut net, Duration::from_ms(60), &[1, 2]).0?;
        assert_eq!(on_flash(&net, 0), 10, "{mode:?}");
    }
    Ok(())
}

/// In the new epoch a deposed primary's replica stands for what it has synced of the log as it is now.
#[test]
fn what_was_cut_is_not_on_flash() -> Check {
    let mut net = network(Mode::Quorum(2), 3);
    net.write(0, 0, 10);
    net.event(0, Event::Flush { lane: 0, to: 10 });
    run(&mut net, Duration::from_ms(1), &[1, 2]).0?;
    // Node 0 goes on alone, and syncs what no replica has.
    for other in 1..3 {
        net.blocked[0][other] = true;
        net.blocked[other][0] = true;
    }
    net.write(0, 0, 20);
    if let Some(flushed) = &mut net.nodes[0].log.flushed {
        flushed[0] = 30;
    }
    net.command(1, Command::Promote { target: None, epoch: Epoch::ZERO, force: false }).unwrap();
    net.run(Duration::from_ms(30))?;
    net.write(1, 0, 7);
    for other in 1..3 {
        net.blocked[0][other] = false;
        net.blocked[other][0] = false;
    }
    net.run(Duration::from_ms(30))?;
    assert_eq!(net.nodes[0].log.persisted(0), 17, "it has what the new primary has");
    let peers: Vec<_> = net.nodes[1].transport.peers().map(|peer| (peer.node, peer.destaged[0])).collect();
    assert_eq!(peers, [(0, 10), (2, 10)], "of the 20 that were cut, nothing counts");
    Ok(())
}

/// Requests of a role that is over ask for nothing.
#[test]
fn a_secondary_asks_for_nothing_by_itself() -> Check {
    let mut net = network(Mode::Eager, 2);
    net.write(0, 0, 10);
    net.run(Duration::from_ms(1))?;
    net.event(1, Event::Flush { lane: 0, to: 10 });
    assert_eq!(net.nodes[1].transport.wanted(0), 0);
    net.event(0, Event::Flush { lane: 0, to: 10 });
    net.command(0, Command::Demote).unwrap();
    assert_eq!(net.nodes[0].transport.wanted(0), 0, "no host waits at a secondary");
    Ok(())
}

/// Bytes are sent again after four round trips, if that is more than the time that is configured.
#[test]
fn time_outs_follow_the_round_trip() -> Check {
    for (trip, after) in [(1, 50), (100, 400), (10_000, 5_000)] {
        let mut net = network(Mode::Eager, 2);
        net.write(0, 0, 1);
        net.run(Duration::from_ms(1))?;
        net.event(0, Event::RoundTrip { peer: 1, time: Duration::from_us(trip) });
        net.blocked[0][1] = true;
        let start = net.now;
        net.write(0, 0, 1);
        let again = net.nodes[0].transport.peers[0].flow.as_ref().map(|flow| flow.again_at.since(start));
        assert_eq!(again, Some(Duration::from_us(after)), "a round trip of {trip} us");
    }
    Ok(())
}
