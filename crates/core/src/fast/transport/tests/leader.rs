//! The leader deadline.

use super::network::{Check, Network};
use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_ms(ms)
}

fn network(mode: Mode) -> Network {
    let mut net = Network::new(3, 1, 11);
    net.set_up(Group::new(Epoch::ZERO, mode, &[0, 1, 2]).unwrap());
    net.run(Duration::from_us(50)).unwrap();
    net
}

fn epoch(net: &Network, node: usize) -> Epoch {
    net.nodes[node].transport.epoch()
}

fn lead(net: &mut Network, node: usize, lasts: Option<Duration>) -> Result<(), CommandError> {
    let epoch = epoch(net, node);
    net.command(node, Command::Lead { epoch, lasts })
}

/// What this primary acknowledges: credit, in replicas' rings, and on their flash.
fn acknowledged(net: &Network, node: usize) -> [u64; 3] {
    let transport = &net.nodes[node].transport;
    let durable = transport.replicated_durable(0).min(net.nodes[node].log.persisted(0));
    [net.credit(node, 0), transport.on_replicas(0), durable]
}

fn is_frozen(net: &Network, node: usize) -> bool {
    let transport = &net.nodes[node].transport;
    let frozen = matches!(transport.leadership(), Leadership::Frozen(_));
    assert_eq!(transport.status().flags & flag::FROZEN != 0, frozen);
    frozen
}

#[test]
fn nothing_is_acknowledged_behind_the_deadline_until_it_is_extended() -> Check {
    for mode in [Mode::Lazy, Mode::Quorum(2), Mode::Eager, Mode::Chain] {
        let mut net = network(mode);
        net.config.report_destaged = true;
        net.write(0, 0, 40);
        net.run(ms(1))?;
        lead(&mut net, 0, Some(ms(5))).unwrap();
        assert_eq!(net.nodes[0].transport.leadership(), Leadership::Until(net.now + ms(5)), "{mode:?}");
        net.write(0, 0, 40);
        net.run(ms(4))?;
        assert_eq!(net.credit(0, 0), 80, "{mode:?}: before the deadline");
        // What is in flight when it passes comes in behind it.
        net.run(ms(1).saturating_sub(Duration::from_ns(500)))?;
        net.write(0, 0, 40);
        let at = net.now;
        net.run(Duration::from_us(20))?;
        let before = acknowledged(&net, 0);
        assert!(is_frozen(&net, 0), "{mode:?}");
        net.write(0, 0, 40);
        net.run(ms(20))?;
        assert_eq!(acknowledged(&net, 0), before, "{mode:?}");
        assert_eq!(net.nodes[1].log.persisted(0), 160, "{mode:?}: replicas get it all the same");
        let Leadership::Frozen(since) = net.nodes[0].transport.leadership() else { panic!("{mode:?}") };
        assert!(since.since(at) < Duration::from_us(20), "{mode:?}");
        lead(&mut net, 0, Some(ms(5))).unwrap();
        assert!(!is_frozen(&net, 0));
        net.run(Duration::from_us(20))?;
        assert_eq!(net.credit(0, 0), 160, "{mode:?}: what replicas have counts again");
        // Without a deadline, it goes on for good.
        lead(&mut net, 0, None).unwrap();
        net.run(ms(20))?;
        net.write(0, 0, 40);
        net.run(ms(1))?;
        assert_eq!((net.credit(0, 0), is_frozen(&net, 0)), (200, false), "{mode:?}");
    }
    Ok(())
}

#[test]
fn a_device_that_had_a_deadline_starts_frozen_and_begins_each_epoch_so() -> Check {
    for mode in [Mode::Lazy, Mode::Quorum(2), Mode::Eager] {
        let mut net = network(mode);
        net.write(0, 0, 10);
        net.run(ms(1))?;
        lead(&mut net, 0, Some(ms(10_000))).unwrap();
        net.restart(0, ms(1));
        net.run(ms(30))?;
        assert!(is_frozen(&net, 0), "{mode:?}");
        assert_eq!(acknowledged(&net, 0), [0; 3], "{mode:?}: reports count for nothing");
        lead(&mut net, 0, Some(ms(1_000))).unwrap();
        net.run(ms(1))?;
        assert_eq!(net.credit(0, 0), 10, "{mode:?}");
        // The same node in the next epoch: its deadline was for the one before.
        let before = epoch(&net, 0);
        net.command(0, Command::Promote { target: None, epoch: Epoch::ZERO, force: false }).unwrap();
        net.run(ms(30))?;
        assert!(epoch(&net, 0) > before && is_frozen(&net, 0), "{mode:?}");
        assert_eq!(
            net.command(0, Command::Lead { epoch: before, lasts: Some(ms(5)) }),
            Err(CommandError::NotLeader(Some(epoch(&net, 0)))),
            "{mode:?}: an extension that comes late"
        );
        assert!(is_frozen(&net, 0));
        // Out of its group, it is as new.
        net.command(0, Command::StandAlone).unwrap();
        assert!(!net.persistent(0).led);
    }
    Ok(())
}

#[test]
fn a_secondary_takes_an_end_of_leadership_alone_and_starts_frozen_as_primary() -> Check {
    let mut net = network(Mode::Quorum(2));
    assert_eq!(lead(&mut net, 1, Some(ms(5))), Err(CommandError::NotLeader(None)));
    let version = net.nodes[1].transport.version();
    net.command(1, Command::Lead { epoch: Epoch::ZERO, lasts: Some(Duration::ZERO) }).unwrap();
    assert!(net.nodes[1].transport.version() > version, "it is durable before it is answered");
    assert_eq!(net.nodes[1].transport.leadership(), Leadership::Free);
    net.command(1, Command::Promote { target: None, epoch: Epoch::ZERO, force: false }).unwrap();
    net.run(ms(30))?;
    assert_eq!(net.persistent(1).role, Role::Primary);
    net.write(1, 0, 10);
    net.run(ms(2))?;
    assert_eq!((is_frozen(&net, 1), net.credit(1, 0)), (true, 0));
    lead(&mut net, 1, Some(ms(5))).unwrap();
    net.run(ms(1))?;
    assert_eq!(net.credit(1, 0), 10);
    // Its end comes at once, too.
    lead(&mut net, 1, Some(Duration::ZERO)).unwrap();
    net.write(1, 0, 10);
    net.run(ms(1))?;
    assert_eq!((is_frozen(&net, 1), net.credit(1, 0)), (true, 10));
    let mut alone = Network::new(1, 1, 11);
    let refused = alone.command(0, Command::Lead { epoch: Epoch::ZERO, lasts: None });
    assert_eq!(refused, Err(CommandError::StandAlone));
    Ok(())
}
