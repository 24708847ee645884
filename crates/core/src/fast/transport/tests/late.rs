//! Lateness: bytes that are sent once more, and reports that need not wait.

use super::network::{Check, Network, Node};
use super::scenarios::{ms, network};
use super::*;

/// Data is taken for late before it is taken for lost.
#[test]
fn what_is_not_confirmed_goes_once_more_a_frame_first_and_more_each_time() -> Check {
    let mut net = network(Mode::Eager, 2);
    net.write(0, 0, 60);
    let Node { transport, log, .. } = &mut net.nodes[0];
    let mut sent = Vec::new();
    for _ in 0..3 {
        let at = transport.peers[0].flow.as_ref().map_or(Instant::NEVER, |flow| flow.again_at);
        transport.handle(at, Event::Timer, log);
        let mut pieces = Vec::new();
        while let Some(Transmit { frame, .. }) = transport.poll(log) {
            if let Body::Data { offset, len, .. } = frame.body {
                pieces.push((offset, len));
            }
        }
        sent.push(pieces);
    }
    assert_eq!(sent, [vec![(0, 24)], vec![(0, 24), (24, 24)], vec![(0, 24), (24, 24), (48, 12)]]);
    // The first of them have come, and their reports.
    net.run(ms(1))?;
    assert_eq!(net.credit(0, 0), 60);
    Ok(())
}

/// With all that was sent it has nothing to wait for, however long its period is.
#[test]
fn a_replica_that_has_all_that_was_sent_reports_it_at_once() -> Check {
    for mode in [Mode::Eager, Mode::Chain] {
        let mut net = Network::new(3, 1, 7);
        net.config = Config { report_at_once: true, report_period: ms(1), ..net.config };
        let config = net.config;
        net.nodes.iter_mut().for_each(|node| node.transport = Transport::new(config));
        net.set_up(Group::new(Epoch::ZERO, mode, &[0, 1, 2]).map_err(|error| format!("{error:?}"))?);
        net.run(ms(5))?;
        assert_eq!(net.converged(), Some(0));
        for count in 1..=5 {
            net.write(0, 0, 10);
            net.run(Duration::from_us(20))?;
            assert_eq!(net.credit(0, 0), 10 * count, "{mode:?}");
        }
    }
    Ok(())
}
