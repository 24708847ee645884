//! Members that lose their memory, and what they count for until they hold again what they had.

use super::network::{Check, Network};
use super::scenarios::{isolate, ms, network, promote};
use super::*;

/// Two of three acknowledge, one of them loses its memory and joins anew, and the other is away: the third, which lacks
/// bytes, becomes no primary by the word of a member that knows nothing.
fn a_member_loses_its_memory(flaw: Injected<Flaw>) -> Check {
    let mut net = network(Mode::Quorum(2), 3);
    net.nodes.iter_mut().for_each(|node| node.transport.flaw = flaw);
    isolate(&mut net, 2, true);
    net.write(0, 0, 10);
    net.run(ms(1))?;
    assert_eq!(net.credit(0, 0), 10);
    isolate(&mut net, 0, true);
    net.replace(1);
    net.blocked[1][2] = false;
    net.blocked[2][1] = false;
    promote(&mut net, 2, false)?;
    if net.persistent(2).role == Role::Primary {
        return Err("a member that holds nothing has made one primary that lacks bytes".into());
    }
    // All three have what there is.
    isolate(&mut net, 0, false);
    net.run(ms(30))?;
    net.logs_agree()?;
    assert_eq!((net.converged(), net.nodes[1].log.persisted(0)), (Some(2), 10));
    Ok(())
}

/// A primary's machine crashes, and with its memory the newest acknowledged bytes are gone. Before another member is
/// there, it becomes no primary again; then it takes over what that one has.
fn a_primary_loses_its_memory(flaw: Injected<Flaw>, mode: Mode, helps: usize, alone: bool) -> Check {
    let mut net = network(mode, 3);
    promote(&mut net, 0, false)?;
    net.write(0, 0, 10);
    net.run(ms(1))?;
    assert_eq!(net.credit(0, 0), 10);
    // Others may not know its newest epoch.
    isolate(&mut net, 0, alone);
    promote(&mut net, 0, false)?;
    let acknowledged = if alone { 10 } else { 20 };
    net.write(0, 0, acknowledged as u32 - 10);
    net.run(ms(1))?;
    assert!(net.persistent(0).role == Role::Primary && net.credit(0, 0) == acknowledged);
    net.nodes.iter_mut().for_each(|node| node.transport.flaw = flaw);
    isolate(&mut net, 0, true);
    // Less than its epoch began with.
    net.lose_memory(0, 5);
    promote(&mut net, 0, false)?;
    if net.persistent(0).role == Role::Primary {
        return Err(format!("{mode:?}: it leads by what it has itself"));
    }
    for helper in 1..=helps {
        net.blocked[0][helper] = false;
        net.blocked[helper][0] = false;
    }
    net.run(ms(300))?;
    assert_eq!((net.persistent(0).role, net.persistent(0).lost), (Role::Primary, false), "{mode:?}");
    isolate(&mut net, 0, false);
    net.run(ms(300))?;
    net.logs_agree()?;
    assert_eq!(net.nodes[2].log.persisted(0), acknowledged, "{mode:?}: acknowledged bytes");
    Ok(())
}

#[test]
fn a_primary_that_lost_its_memory_does_not_vote() {
    for (mode, helps) in [(Mode::Eager, 1), (Mode::Quorum(2), 2), (Mode::Lazy, 2)] {
        assert_eq!(a_primary_loses_its_memory(Injected::NONE, mode, helps, false), Ok(()));
    }
    assert_eq!(a_primary_loses_its_memory(Injected::NONE, Mode::Eager, 1, true), Ok(()));
    for alone in [false, true] {
        let noticed = a_primary_loses_its_memory(Injected::of(Flaw::LostVotes), Mode::Eager, 1, alone).is_err();
        assert!(noticed, "the flaw goes unnoticed");
    }
}

/// By force it leads with what it has, though that ends before its newest epoch began in one of two lanes.
#[test]
fn a_primary_that_lost_its_memory_is_promoted_by_force() -> Check {
    let mut net = Network::new(2, 2, 7);
    net.set_up(Group::new(Epoch::ZERO, Mode::Eager, &[0, 1]).unwrap());
    net.run(ms(1))?;
    isolate(&mut net, 1, true);
    net.write(0, 0, 10);
    net.write(0, 1, 10);
    net.run(ms(1))?;
    promote(&mut net, 0, false)?;
    net.write(0, 1, 10);
    net.run(ms(1))?;
    net.nodes[0].log.truncate(0, 5);
    net.command(0, Command::LostMemory).unwrap();
    net.command(0, Command::Promote { target: None, epoch: Epoch::ZERO, force: true }).unwrap();
    net.run(ms(6_000))?;
    assert_eq!((net.persistent(0).role, net.persistent(0).lost), (Role::Primary, false));
    let starts: Vec<_> = net.persistent(0).history.starts().iter().map(|start| start.offsets[..2].to_vec()).collect();
    assert_eq!(starts, [[0, 0], [5, 10]], "bytes of an epoch that is forgotten are of no other");
    isolate(&mut net, 1, false);
    net.run(ms(300))?;
    net.logs_agree()?;
    assert_eq!([0, 1].map(|lane| net.nodes[1].log.persisted(lane)), [5, 10]);
    Ok(())
}

#[test]
fn a_member_that_lost_its_memory_does_not_vote() {
    assert_eq!(a_member_loses_its_memory(Injected::NONE), Ok(()));
    assert!(a_member_loses_its_memory(Injected::of(Flaw::EmptyVotes)).is_err(), "the flaw goes unnoticed");
}

/// The primary is gone before a replica that lost memory has all again: the replica does not lead by what it has, and
/// what was acknowledged is there as soon as another member is.
fn a_replica_loses_its_memory(flaw: Injected<Flaw>, mode: Mode, told: bool) -> Check {
    let mut net = network(mode, 3);
    net.write(0, 0, 10);
    net.run(ms(1))?;
    assert_eq!(net.credit(0, 0), 10);
    net.nodes.iter_mut().for_each(|node| node.transport.flaw = flaw);
    if !told {
        isolate(&mut net, 1, true);
    }
    net.lose_memory(1, 5);
    while told && net.nodes[1].transport.follower.regain.is_none() && net.persistent(1).lost {
        net.advance();
    }
    assert_eq!(net.nodes[1].log.persisted(0), 5);
    let it = &net.nodes[1];
    if it.transport.counters(0, &it.log).0 {
        return Err(format!("{mode:?}: it reports that it is in step"));
    }
    isolate(&mut net, 0, true);
    isolate(&mut net, 1, true);
    promote(&mut net, 1, false)?;
    if net.persistent(1).role == Role::Primary {
        return Err(format!("{mode:?}: it leads by what it has itself"));
    }
    net.blocked[1][2] = false;
    net.blocked[2][1] = false;
    net.run(ms(300))?;
    // Where two of three acknowledge, they may have been the two that are gone.
    let others_may_have_more = matches!(mode, Mode::Quorum(_));
    if (net.persistent(1).role == Role::Primary) == others_may_have_more {
        return Err(format!("{mode:?}: {:?} with one other", net.persistent(1).role));
    }
    isolate(&mut net, 0, false);
    net.run(ms(300))?;
    net.logs_agree()?;
    assert_eq!((net.converged(), net.nodes[1].log.persisted(0)), (Some(1), 10), "{mode:?}");
    assert!(!net.persistent(1).lost);
    Ok(())
}

#[test]
fn a_replica_that_lost_its_memory_does_not_vote() {
    for mode in [Mode::Eager, Mode::Chain, Mode::Quorum(2)] {
        for told in [false, true] {
            assert_eq!(a_replica_loses_its_memory(Injected::NONE, mode, told), Ok(()));
        }
        for (flaw, told) in [(Flaw::LostVotes, false), (Flaw::RegainEarly, true)] {
            let found = a_replica_loses_its_memory(Injected::of(flaw), mode, told);
            assert!(found.is_err(), "{flaw:?} goes unnoticed in {mode:?}");
        }
    }
}

/// A member with a new disk is in the epoch in which it acknowledged, and has nothing yet.
fn a_new_disk_is_promoted(flaw: Injected<Flaw>, mode: Mode) -> Check {
    let mut net = network(mode, 3);
    net.write(0, 0, 10);
    net.run(ms(1))?;
    net.nodes.iter_mut().for_each(|node| node.transport.flaw = flaw);
    net.replace(1);
    while net.nodes[1].transport.follower.regain.is_none() && net.persistent(1).lost {
        net.advance();
    }
    assert_eq!((net.nodes[1].log.persisted(0), net.persistent(1).synced), (0, net.nodes[0].transport.epoch()));
    isolate(&mut net, 1, true);
    promote(&mut net, 1, false)?;
    if net.persistent(1).role == Role::Primary {
        return Err(format!("{mode:?}: it leads by what it has itself"));
    }
    isolate(&mut net, 1, false);
    net.run(ms(300))?;
    net.logs_agree()?;
    assert_eq!((net.converged(), net.nodes[2].log.persisted(0)), (Some(1), 10), "{mode:?}");
    Ok(())
}

#[test]
fn a_member_with_a_new_disk_does_not_vote_before_it_has_all() {
    for mode in [Mode::Eager, Mode::Chain] {
        assert_eq!(a_new_disk_is_promoted(Injected::NONE, mode), Ok(()));
        assert!(a_new_disk_is_promoted(Injected::of(Flaw::RegainEarly), mode).is_err(), "the flaw goes unnoticed");
    }
}

/// What it lost comes back in the same epoch: then it leads by itself. In a chain the member before it may have to wait
/// for the same.
#[test]
fn a_replica_that_has_all_again_votes() -> Check {
    for (mode, losers) in [(Mode::Eager, vec![1]), (Mode::Chain, vec![1, 2]), (Mode::Chain, vec![2, 1])] {
        let mut net = network(mode, 3);
        net.write(0, 0, 10);
        net.run(ms(1))?;
        losers.iter().for_each(|&node| net.lose_memory(node, 5));
        net.run(ms(5))?;
        for node in [1, 2] {
            assert_eq!((net.persistent(node).lost, net.nodes[node].log.persisted(0)), (false, 10), "{mode:?} {node}");
        }
        isolate(&mut net, 1, true);
        promote(&mut net, 1, false)?;
        assert_eq!(net.persistent(1).role, Role::Primary, "{mode:?}");
        net.logs_agree()?;
    }
    Ok(())
}
