//! A replica that catches up from flash takes no more than it is given a second.

use super::network::*;
use super::*;
use tidewater_wire::replication::Group;

/// Virtual time until a replica that was away has 1,000 bytes.
fn time_to_catch_up(bytes_per_second: u64) -> Result<Duration, String> {
    let mut net = Network::new(2, 1, 7);
    net.set_up(Group::new(Epoch::ZERO, Mode::Lazy, &[0, 1]).map_err(|error| format!("{error:?}"))?);
    net.run(Duration::from_ms(1))?;
    net.event(0, Event::CatchUpRate { bytes_per_second });
    net.blocked[0][1] = true;
    for _ in 0..20 {
        net.write(0, 0, 50);
        net.run(Duration::from_us(100))?;
    }
    assert!(net.nodes[1].log.persisted(0) < 100, "it was away");
    net.blocked[0][1] = false;
    let start = net.now;
    while net.nodes[1].log.persisted(0) < 1_000 {
        net.run(Duration::from_us(50))?;
        assert!(net.now.since(start) < Duration::from_ms(500), "{} of 1,000", net.nodes[1].log.persisted(0));
    }
    Ok(net.now.since(start))
}

#[test]
fn catching_up_keeps_to_its_rate_and_ends() -> Check {
    let free = time_to_catch_up(0)?;
    // All but the ring and what was under way: some 900 bytes.
    let slow = time_to_catch_up(20_000)?;
    assert!(free < Duration::from_ms(15), "{free:?}");
    assert!(slow > Duration::from_ms(35) && slow < Duration::from_ms(100), "{slow:?}");
    Ok(())
}
