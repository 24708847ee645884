//! A model checker over the real transport: three nodes, one lane, a few units of log.
//!
//! # What is covered
//!
//! Every order of what may happen within a budget of writes, promotions, changes of the group and power cuts, from a
//! group that has come together. Unlimited are: deliveries of frames in any order, their loss, timers that end at any
//! time (so that proposals, pulls, attachments, data and reports are repeated), and syncs of what has to be durable,
//! each as late as it may be. A power cut forgets all that was not durable; a cut of the log, too, and bytes that have
//! come in since may be there or not. A loss of memory forgets these and all of the log.
//!
//! # What is not
//!
//! Each link holds one frame (in part of the long run two): a newer one takes the place of the oldest, which is lost.
//! Log bytes that come in are in the ring at once, and reports are due at once; both may be late on their way instead.
//! Keep-alives of a primary, forced promotions, trimmed logs and rebuilds are left out: the random runs have them.

mod node;
mod world;

use super::*;
use node::{Defect, Happening};
use stateright::{Checker, HasDiscoveries, Model};
use std::sync::Once;
use world::*;

const SEVERAL: [Mode; 4] = [Mode::Lazy, Mode::Eager, Mode::Chain, Mode::Quorum(2)];

fn group(mode: Mode, members: &[u8]) -> Group {
    Group::new(Epoch::ZERO, mode, members).unwrap()
}

/// Nodes 0 to 2 in a group that node 0 leads. A change of the group leaves node 1 out.
fn world(mode: Mode, flaw: Injected<Flaw>, [writes, promotions, changes, crashes]: [u8; 4]) -> World {
    let mut world = World::new(group(mode, &[0, 1, 2]), group(mode, &[0, 2]), flaw);
    world.in_flight = 1;
    world.budget = Budget { writes, promotions, changes, crashes, losses: 0 };
    world
}

/// As [`world`], and so many nodes lose their memory.
fn forgetful(mode: Mode, flaw: Injected<Flaw>, budget: [u8; 4], losses: u8) -> World {
    let mut world = world(mode, flaw, budget);
    world.budget.losses = losses;
    world
}

/// Explores all states, or the nearest ones if more than `bound` are met. What must not be is in none, and each of
/// `must` is in some.
fn explore(what: &str, world: World, bound: usize, must: &[&'static str]) {
    let (budget, in_flight) = (world.budget, world.in_flight);
    let checker = world.checker().target_state_count(bound).spawn_bfs().join();
    println!(
        "{what}, {budget:?}, {in_flight} in flight: {} {} states ({} met, {} steps deep, {} different nodes)",
        if checker.state_count() < bound { "all" } else { "the nearest" },
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        checker.model().nodes_met()
    );
    for name in NEVER {
        checker.assert_no_discovery(name);
    }
    for name in must {
        checker.assert_any_discovery(name);
    }
}

/// Explores until something is wrong, and says what.
fn find(what: &str, world: World) -> &'static str {
    // Assertions that a flaw leads to are an answer like others, and their text says nothing more.
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let thread = std::thread::current();
            if !thread.name().is_some_and(|name| name.starts_with("checker-")) {
                hook(info);
            }
        }));
    });
    let checker = world.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found = NEVER.into_iter().find_map(|name| Some((name, checker.discovery(name)?)));
    let (name, path) = found.unwrap_or_else(|| panic!("{what} goes unnoticed"));
    let actions = path.into_actions();
    println!("{what}: found after {} states, in {} steps:", checker.unique_state_count(), actions.len());
    actions.iter().for_each(|action| println!("    {action:?}"));
    name
}

#[test]
fn all_that_a_power_cut_can_do_to_a_promotion_loses_nothing() {
    for mode in SEVERAL {
        explore(&format!("{mode:?}"), world(mode, Injected::NONE, [1, 1, 0, 1]), usize::MAX, &[ACKNOWLEDGES, PROMOTES]);
    }
}

#[test]
fn each_mode_acknowledges_under_one_primary_and_the_next() {
    for mode in SEVERAL {
        explore(&format!("{mode:?}"), world(mode, Injected::NONE, [2, 1, 0, 0]), usize::MAX, &[PROMOTES, SECOND]);
    }
}

#[test]
fn a_promotion_and_a_change_of_the_group_at_once_lose_nothing() {
    for mode in [Mode::Eager, Mode::Chain] {
        let must = [ACKNOWLEDGES, PROMOTES, CHANGES];
        explore(&format!("{mode:?}"), world(mode, Injected::NONE, [1, 1, 1, 0]), usize::MAX, &must);
    }
}

/// Two promotions, and all at once. What has more than 60 million steps is not explored to its end: then it covers all
/// states that are fewer steps away than the line says, and none beyond.
#[test]
#[ignore = "an hour long"]
fn torture_two_promotions_a_change_and_a_power_cut() {
    for mode in SEVERAL {
        for (budget, in_flight) in
            [([1, 2, 0, 1], 1), ([2, 2, 0, 0], 1), ([1, 1, 1, 1], 1), ([2, 2, 1, 1], 1), ([1, 1, 0, 1], 2)]
        {
            let mut world = world(mode, Injected::NONE, budget);
            world.in_flight = in_flight;
            explore(&format!("{mode:?}"), world, 60_000_000, &[ACKNOWLEDGES, PROMOTES]);
        }
    }
}

/// What a member has acknowledged and lost is with another, in every order of a promotion and a loss.
#[test]
fn a_loss_of_memory_loses_nothing_that_another_has() {
    for mode in [Mode::Eager, Mode::Chain, Mode::Quorum(2)] {
        let world = forgetful(mode, Injected::NONE, [1, 1, 0, 0], 1);
        explore(&format!("{mode:?}"), world, usize::MAX, &[ACKNOWLEDGES, PROMOTES]);
    }
}

#[test]
fn a_loss_of_memory_that_is_not_counted_is_found() {
    for flaw in [Flaw::LostVotes, Flaw::RegainEarly] {
        let world = forgetful(Mode::Eager, Injected::of(flaw), [1, 1, 0, 0], 1);
        assert_eq!(find(&format!("{flaw:?}"), world), SAFE);
    }
}

#[test]
#[ignore = "minutes long"]
fn torture_losses_of_memory() {
    for mode in [Mode::Eager, Mode::Chain, Mode::Quorum(2)] {
        for (budget, losses) in [([2, 1, 0, 0], 1), ([1, 2, 0, 0], 1), ([1, 1, 0, 1], 1), ([1, 1, 0, 0], 2)] {
            // Where two acknowledge, both may be among those.
            if mode != Mode::Quorum(2) || losses == 1 {
                let world = forgetful(mode, Injected::NONE, budget, losses);
                explore(&format!("{mode:?}"), world, 60_000_000, &[ACKNOWLEDGES, PROMOTES]);
            }
        }
    }
}

/// BookKeeper's BP-44: a node that forgets that it was fenced.
#[test]
fn a_promise_that_is_said_before_it_is_durable_is_found() {
    let mut world = world(Mode::Quorum(2), Injected::NONE, [1, 1, 0, 1]);
    world.defect = Some(Defect::SaidBeforeDurable);
    assert_eq!(find("said before durable", world), SAFE);
}

#[test]
fn stores_in_an_epoch_that_is_not_durable_are_found() {
    let mut world = world(Mode::Quorum(2), Injected::NONE, [2, 1, 0, 1]);
    world.defect = Some(Defect::StoredBeforeDurable);
    assert_eq!(find("stored before durable", world), AGREE);
}

/// A primary is deposed and cut, forgets both in a crash but for the bytes, and gives their places to others.
#[test]
fn a_cut_before_the_reason_is_durable_is_found() {
    explore("cut", world(Mode::Eager, Injected::NONE, [2, 1, 0, 1]), 3_000_000, &[ACKNOWLEDGES, PROMOTES]);
    let mut world = world(Mode::Eager, Injected::NONE, [2, 1, 0, 1]);
    world.defect = Some(Defect::CutBeforeDurable);
    assert_eq!(find("cut before durable", world), AGREE);
}

/// BookKeeper's race of two threads (PR 4701): one checks the promise and appends, the other promises in between.
#[test]
fn a_fence_that_comes_between_check_and_append_is_found() {
    let mut world = world(Mode::Quorum(2), Injected::NONE, [1, 1, 0, 0]);
    world.defect = Some(Defect::FenceAfterAppend);
    assert_eq!(find("fence after append", world), SAFE);
}

#[test]
fn unsynced_replicas_that_count_are_found() {
    find("count unsynced", world(Mode::Quorum(2), Injected::of(Flaw::CountUnsynced), [1, 2, 0, 0]));
}

#[test]
fn too_few_acceptors_are_found() {
    find("accept too few", world(Mode::Quorum(2), Injected::of(Flaw::AcceptTooFew), [1, 1, 0, 0]));
}

#[test]
fn a_log_that_a_replica_keeps_is_found() {
    find("no truncation", world(Mode::Quorum(2), Injected::of(Flaw::NoTruncation), [2, 1, 0, 0]));
}

/// Node 1 was away when the group became one of the other two. It leads the old group on, in a higher epoch.
#[test]
fn logs_that_are_ranked_by_epoch_alone_are_found() {
    let outsider = |flaw| {
        let mode = Mode::Eager;
        let mut world = world(mode, flaw, [1, 1, 1, 0]);
        world.in_flight = 8;
        let change = Command::Promote { target: Some(group(mode, &[0, 2])), epoch: Epoch::ZERO, force: false };
        world.prepare(0, Happening::Command(change), &[0, 2]);
        world.in_flight = 1;
        world.target = group(mode, &[0, 1, 2]);
        world
    };
    explore("outsider", outsider(Injected::NONE), usize::MAX, &[ACKNOWLEDGES, PROMOTES, CHANGES]);
    assert_eq!(find("rank by epoch", outsider(Injected::of(Flaw::RankByEpoch))), SAFE);
}
