//! Random runs: links that drop, repeat, reorder, flap and part, restarts, writes, promotions and changes of the group.

use super::network::{Check, FAIR, Network, Weather};
use super::*;
use tidewater_base::Rng;

/// A flaw that a run is made with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Broken {
    Transport(Flaw),
    KeepsQueue,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    seed: u64,
    mode: Option<Mode>,
    steps: u64,
    changes: bool,
    broken: Option<Broken>,
}

#[derive(Default, Debug)]
struct Figures {
    steps: u64,
    frames: u64,
    acknowledged: usize,
    promotions: u64,
    losses: u64,
}

/// A random group: the whole network, or with `any` part of it.
fn random_group(rng: &mut Rng, nodes: usize, mode: Option<Mode>, any: bool) -> Group {
    let mut members: Vec<u8> = (0..nodes as u8).collect();
    for i in (1..nodes).rev() {
        members.swap(i, rng.below(i as u64 + 1) as usize);
    }
    if any {
        members.truncate(2 + rng.below(nodes as u64 - 1) as usize);
    }
    let n = members.len() as u64;
    let mode = match mode {
        Some(Mode::Quorum(k)) => Mode::Quorum(k.min(n as u8)),
        Some(mode) => mode,
        None => [Mode::Lazy, Mode::Eager, Mode::Chain, Mode::Quorum(n as u8 / 2 + 1)][rng.below(4) as usize],
    };
    Group::new(Epoch::ZERO, mode, &members).unwrap()
}

fn run(plan: Plan, figures: &mut Figures) -> Check {
    let mut rng = Rng::new(plan.seed, b"transport plan");
    let nodes = 3 + rng.below(3) as usize;
    let mut net = Network::new(nodes, 1 + rng.below(2) as usize, plan.seed);
    for node in &mut net.nodes {
        match plan.broken {
            Some(Broken::Transport(flaw)) => node.transport.flaw = Injected::of(flaw),
            Some(Broken::KeepsQueue) => node.log.keeps_queue = true,
            _ => {}
        }
    }
    let mode = plan.mode.map(|mode| match mode {
        Mode::Quorum(0) => Mode::Quorum(nodes as u8 / 2 + 1),
        mode => mode,
    });
    net.set_up(random_group(&mut rng, nodes, mode, false));
    net.run(Duration::from_us(100))?;
    let lanes = net.ledger.len() as u64;
    net.weather = Weather { drop: rng.below(12), repeat: rng.below(12), delay_us: 1 + rng.below(30) };
    // Some runs are calm, and some forget their oldest epochs.
    let (promotions, changes) = (1 + rng.below(12), 1 + rng.below(4));
    for _ in 0..plan.steps {
        let node = rng.below(nodes as u64) as usize;
        match rng.below(1000) {
            0..150 => {
                net.write(node, rng.below(lanes) as usize, 1 + rng.below(20) as u32);
            }
            150..350 => net.drain(node, 1 + rng.below(40) as usize),
            350..353 => {
                let down = [Duration::ZERO, Duration::from_us(rng.below(3000))][rng.below(2) as usize];
                net.restart(node, down);
            }
            353..359 => {
                let to = rng.below(nodes as u64) as usize;
                let blocked = rng.below(3) == 0;
                net.blocked[node][to] = blocked;
                if rng.below(2) == 0 {
                    net.blocked[to][node] = blocked;
                    net.event(node, Event::Link { peer: to as u8, up: !blocked, restarted: false });
                }
            }
            // A partition: some nodes on one side.
            359..361 => {
                let side = rng.next_u64();
                for (a, row) in net.blocked.iter_mut().enumerate() {
                    for (b, blocked) in row.iter_mut().enumerate() {
                        *blocked = side >> a & 1 != side >> b & 1;
                    }
                }
            }
            361..364 => net.blocked.iter_mut().for_each(|row| row.fill(false)),
            364..380 if net.up(node) && rng.below(16) < promotions => {
                let change = plan.changes && rng.below(changes) == 0;
                let target = match net.persistent(node).pending {
                    Some(pending) => Some(pending),
                    None if change => Some(random_group(&mut rng, nodes, mode, true)),
                    None => None,
                };
                // Those outside of the group, or of the target, are refused.
                if net.command(node, Command::Promote { target, epoch: Epoch::ZERO, force: false }).is_ok() {
                    figures.promotions += 1;
                }
            }
            380..381 if net.up(node) => {
                let _ = net.command(node, Command::Demote);
            }
            381..383 if net.up(node) => {
                // As many as the mode bears: what they acknowledged, one other has.
                let others = (0..nodes).filter(|&other| other != node && net.persistent(other).lost).count();
                let bears = match mode.filter(|_| !plan.changes) {
                    Some(Mode::Eager | Mode::Chain) => nodes - 1,
                    Some(Mode::Quorum(k)) => usize::from(k) - 1,
                    Some(Mode::Lazy) | None => 0,
                };
                if others < bears {
                    net.lose_memory(node, rng.below(200));
                    figures.losses += 1;
                }
            }
            _ => net.advance(),
        }
        net.step()?;
    }
    heal(&mut net)?;
    figures.steps += net.steps;
    figures.frames += net.frames;
    figures.acknowledged += net.ledger.iter().map(Vec::len).sum::<usize>();
    Ok(())
}

/// All come back, the links are well, and a member is promoted: in bounded time all logs are equal and writes are
/// acknowledged.
fn heal(net: &mut Network) -> Check {
    net.weather = FAIR;
    net.blocked.iter_mut().for_each(|row| row.fill(false));
    for node in 0..net.nodes.len() {
        net.nodes[node].down_until = net.now;
        for peer in 0..net.nodes.len() {
            net.event(node, Event::Link { peer: peer as u8, up: true, restarted: false });
        }
    }
    net.run(Duration::from_ms(12))?;
    for attempt in 0..12 {
        if let Some(primary) = net.converged() {
            let before = net.nodes[primary].log.persisted(0);
            net.write(primary, 0, 10);
            net.run(Duration::from_ms(1))?;
            net.logs_agree()?;
            let credit = net.credit(primary, 0);
            return if credit == before + 10 { Ok(()) } else { Err(format!("credit stays at {credit}")) };
        }
        // Members of the newest group can be promoted, best those with the best log. A change that has begun has to be
        // finished or overridden.
        let rank = |node: &usize| {
            let own = net.persistent(*node);
            (own.group.contains(own.node), own.group.version(), own.synced_in, own.synced)
        };
        let mut nodes: Vec<usize> = (0..net.nodes.len()).collect();
        nodes.sort_by_key(|node| std::cmp::Reverse(rank(node)));
        let newest = net.persistent(nodes[0]).group.version();
        nodes.retain(|&node| rank(&node).0 && rank(&node).1 == newest);
        let node = nodes[attempt % nodes.len()];
        for node in 0..net.nodes.len() {
            if net.nodes[node].transport.status().flags & flag::STALE != 0 {
                let _ = net.command(node, Command::Rebuild);
            }
        }
        let force = attempt >= 6;
        let target = net.persistent(node).pending.filter(|_| !force);
        // With all alive, force waits for all: it overrides changes that were begun on both sides of a partition.
        let _ = net.command(node, Command::Promote { target, epoch: Epoch::ZERO, force });
        net.run(Duration::from_ms(40))?;
    }
    let states: Vec<_> = net.nodes.iter().map(|node| node.transport.status()).collect();
    Err(format!("the group does not converge: {states:#?}"))
}

fn torture(name: &str, mode: Option<Mode>, changes: bool, seeds: u64, steps: u64) {
    let mut figures = Figures::default();
    for seed in 0..seeds {
        let plan = Plan { seed, mode, steps, changes, broken: None };
        if let Err(error) = run(plan, &mut figures) {
            panic!("{plan:?}: {error}");
        }
    }
    println!("{name}: {seeds} seeds, {figures:?}");
    assert!(figures.acknowledged as u64 > seeds * 20, "hardly anything was acknowledged: {figures:?}");
}

#[test]
fn eager_groups_keep_what_they_acknowledge() {
    torture("eager", Some(Mode::Eager), false, 40, 4000);
}

#[test]
fn chains_keep_what_they_acknowledge() {
    torture("chain", Some(Mode::Chain), false, 40, 4000);
}

#[test]
fn quorums_keep_what_they_acknowledge() {
    torture("quorum", Some(Mode::Quorum(0)), false, 40, 4000);
}

#[test]
fn lazy_groups_keep_what_they_acknowledge_unless_forced() {
    torture("lazy", Some(Mode::Lazy), false, 40, 4000);
}

#[test]
fn groups_that_change_keep_what_they_acknowledge() {
    torture("changing", None, true, 60, 4000);
}

#[test]
#[ignore = "minutes long"]
fn torture_thousands_of_seeds() {
    for mode in [None, Some(Mode::Eager), Some(Mode::Chain), Some(Mode::Quorum(0)), Some(Mode::Lazy)] {
        torture(&format!("{mode:?}"), mode, mode.is_none(), 1000, 8000);
    }
}

/// The seeds among the first `seeds` that notice a flaw.
fn noticed(broken: Broken, mode: Option<Mode>, seeds: u64) -> usize {
    let found = (0..seeds).filter(|&seed| {
        let plan = Plan { seed, mode, steps: 4000, changes: mode.is_none(), broken: Some(broken) };
        std::panic::catch_unwind(|| run(plan, &mut Figures::default()).is_err()).unwrap_or(true)
    });
    found.count()
}

#[test]
fn flaws_are_noticed() {
    let quorum = Some(Mode::Quorum(0));
    for (broken, mode) in [
        (Broken::Transport(Flaw::AcceptTooFew), quorum),
        (Broken::Transport(Flaw::NoTruncation), quorum),
        (Broken::Transport(Flaw::CountUnsynced), quorum),
        (Broken::Transport(Flaw::NoHeir), None),
        (Broken::Transport(Flaw::LostVotes), Some(Mode::Eager)),
        (Broken::Transport(Flaw::RegainEarly), Some(Mode::Eager)),
        (Broken::KeepsQueue, quorum),
    ] {
        let found = noticed(broken, mode, 100);
        println!("{broken:?}: {found} of 100 seeds");
        assert!(found > 0, "{broken:?} goes unnoticed");
    }
}
