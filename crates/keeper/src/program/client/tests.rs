//! Orders of a keeper for the program, case by case.

use super::*;
use crate::decide::tests::{cluster, device, epoch, keep};
use crate::decide::{Memory, decide};
use crate::device::Device;
use crate::keys::{Cluster, Intent, Leader};

const STOP: Order = Order::Stop { stop_ms: 3_000 };

fn view<'a>(
    device: Result<&'a Device, &'a str>,
    cluster: Result<&'a Cluster, &'a str>,
    keep: &'a crate::job::Keep,
) -> View<'a> {
    View { now_ms: 0, device, cluster, keep, program: None }
}

fn ordered(device: Result<&Device, &str>, cluster: Result<&Cluster, &str>) -> Order {
    let keep = keep();
    let view = view(device, cluster, &keep);
    order(&view, &decide(&view, &mut Memory::default()))
}

#[test]
fn a_program_has_time_as_long_as_the_lease_that_was_renewed_and_no_other() {
    let primary = device(0, Role::Primary);
    let run = Order::Run { node: 0, epoch: epoch(3, 0), until_ms: Some(777 + 9_800), stop_ms: 3_000 };
    assert_eq!(ordered(Ok(&primary), Ok(&cluster(true))), run);
    // The log goes on without etcd while all members report; the program has what it was granted.
    assert_eq!(ordered(Ok(&primary), Err("gone")), Order::Look);
    assert_eq!(ordered(Err("no answer"), Ok(&cluster(true))), Order::Look, "until leadership is given up");
    assert_eq!(ordered(Err("no answer"), Ok(&cluster(false))), STOP);
    // Its lease was lost.
    let mut other = cluster(false);
    other.leader = Some((Leader { node: 1, epoch: epoch(4, 1) }, false));
    assert_eq!(ordered(Ok(&primary), Ok(&other)), STOP);
    other.leader = None;
    assert_eq!(ordered(Ok(&primary), Ok(&other)), STOP);
    // While it is paused, the primary needs neither keeper nor etcd, and neither does its program.
    let mut paused = cluster(true);
    paused.paused = true;
    assert_eq!(ordered(Ok(&primary), Ok(&paused)), Order::Look, "its device has a deadline still");
    let free = Device { has_deadline: false, ..primary };
    let run = Order::Run { node: 0, epoch: epoch(3, 0), until_ms: None, stop_ms: 3_000 };
    assert_eq!(ordered(Ok(&free), Ok(&paused)), run);
    // One that was promoted by hand begins none: another may run one still.
    let mut paused = cluster(false);
    paused.paused = true;
    assert_eq!(ordered(Ok(&free), Ok(&paused)), Order::Look);
}

#[test]
fn the_program_is_stopped_before_leadership_is_given_up() {
    let mut asked = cluster(true);
    asked.intent = Some(Intent { to: Some(2) });
    assert_eq!(ordered(Ok(&device(0, Role::Primary)), Ok(&asked)), STOP);
    let mut bad = device(0, Role::Primary);
    bad.disk.state = Some("failed".into());
    assert_eq!(ordered(Ok(&bad), Ok(&cluster(true))), STOP);
    let keep = keep();
    let mut memory = Memory::default();
    let of = cluster(true);
    for now_ms in [0, 4_000] {
        let view = View { now_ms, ..view(Err("no answer"), Ok(&of), &keep) };
        let decision = decide(&view, &mut memory);
        assert_eq!(order(&view, &decision) == STOP, now_ms == 4_000, "{decision:?}");
        assert_eq!(decision.actions.iter().any(ends_leadership), now_ms == 4_000);
    }
}

#[test]
fn beside_a_secondary_the_standby_command_runs_and_the_program_does_not() {
    let standby = |primary| Order::Standby { node: 1, primary, stop_ms: 3_000 };
    let secondary = device(1, Role::Secondary);
    assert_eq!(ordered(Ok(&secondary), Ok(&cluster(false))), standby(Some(0)));
    assert_eq!(ordered(Ok(&secondary), Ok(&cluster(true))), standby(None), "it is about to be promoted");
    let mut vacant = cluster(false);
    vacant.leader = None;
    assert_eq!(ordered(Ok(&secondary), Ok(&vacant)), standby(None));
}

#[test]
fn a_program_that_keeps_dying_moves_to_another_member_once_in_a_while() {
    let (primary, of, keep, mut memory) = (device(0, Role::Primary), cluster(true), keep(), Memory::default());
    let mut hands_over = |now_ms, program| {
        let view = View { now_ms, program, ..view(Ok(&primary), Ok(&of), &keep) };
        let decision = decide(&view, &mut memory);
        (decision.actions.iter().any(ends_leadership), decision.note)
    };
    assert!(!hands_over(0, None).0);
    let (is, note) = hands_over(1_000, Some("its program ends soon after each start"));
    assert!(is && note.contains("node 1: its program ends"), "{note}");
    let (is, note) = hands_over(100_999, Some("its program ends soon after each start"));
    assert!(!is && note.contains("not long ago"), "{note}");
    assert!(hands_over(101_000, Some("its program ends soon after each start")).0);
    let alone = Device { replicas: Vec::new(), ..device(0, Role::Primary) };
    let view = View { program: Some("it died"), ..view(Ok(&alone), Ok(&of), &keep) };
    let decision = decide(&view, &mut Memory::default());
    assert!(decision.note.contains("it died, and no other member is in step"), "{}", decision.note);
}

#[test]
fn a_supervisor_that_is_away_is_trouble_after_a_while() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut program = Program::new("/no/such/program.sock".into(), Duration::from_secs(1_000));
    runtime.block_on(program.order(&Order::Look));
    assert!(program.in_words().contains("/no/such/program.sock"), "{}", program.in_words());
    assert_eq!(program.trouble(Duration::from_secs(1_000)), None);
    assert!(program.trouble(Duration::ZERO).is_some_and(|why| why.contains("does not answer")));
    // An earlier life of this keeper may have granted time to one that stands still.
    assert!(!runtime.block_on(program.is_stopped(1)));
    program.granted_until_ms = clock_ms();
    assert!(runtime.block_on(program.is_stopped(1)));
}
