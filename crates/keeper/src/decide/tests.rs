//! Each case of the policy.

use super::*;
use crate::device::Replica;
use crate::keys::{Intent, Leader, Mode};

const TTL: u64 = 10_000;

pub(crate) fn keep() -> Keep {
    Keep {
        control: "a/control.sock".into(),
        address: "a".into(),
        state: "a/keeper.json".into(),
        ttl_ms: TTL,
        loop_wait_ms: 1_000,
        retry_timeout_ms: 4_000,
        slow_disk_ms: None,
        new_etcd: false,
        page: None,
        metrics: None,
        program: None,
        stop_ms: 3_000,
    }
}

pub(crate) fn epoch(counter: u64, node: u8) -> Epoch {
    Epoch { counter, node }
}

fn group() -> Group {
    Group { members: vec![0, 1, 2], mode: Mode::Quorum, k: 2 }
}

/// A device of three, whose primary is node 0 in epoch 3.0.
pub(crate) fn device(node: u8, role: Role) -> Device {
    let replica = |node| Replica { node, answers: true, in_step: true, behind_bytes: u64::from(node) };
    let others = (0..3).filter(|other| *other != node && role == Role::Primary);
    Device {
        node,
        role,
        mode: "quorum of 2".into(),
        members: vec![0, 1, 2],
        epoch: epoch(3, 0),
        promised: epoch(3, 0),
        synced: epoch(3, 0),
        tail: vec![100],
        has_deadline: true,
        frozen_ms: None,
        stale: false,
        primary_silent: false,
        replicas: others.map(replica).collect(),
        version: None,
        clock_ms: 777,
        disk: Default::default(),
    }
}

fn member(of: &Device) -> Member {
    Member {
        node: of.node,
        address: "a".into(),
        role: Some(of.role),
        epoch: of.epoch,
        synced: of.synced,
        promised: of.promised,
        tail: of.tail.clone(),
        stale: of.stale,
        frozen: false,
        leaderless_ms: None,
        version: String::new(),
        disk: None,
        slow: false,
        note: String::new(),
    }
}

/// All three are there, and node 0 leads; `own`: so does this keeper.
pub(crate) fn cluster(own: bool) -> Cluster {
    let roles = [Role::Primary, Role::Secondary, Role::Secondary];
    let members = (0..3).map(|node| (node, member(&device(node, roles[usize::from(node)])))).collect();
    let leader = Some((Leader { node: 0, epoch: epoch(3, 0) }, own));
    Cluster { group: Some(group()), leader, members, ..Cluster::default() }
}

fn vacant() -> Cluster {
    let mut cluster = cluster(false);
    cluster.leader = None;
    cluster.members.remove(&0);
    cluster
}

#[derive(Default)]
struct Keeper {
    memory: Memory,
    now_ms: u64,
}

impl Keeper {
    fn decides(&mut self, device: Result<&Device, &str>, cluster: Result<&Cluster, &str>) -> Decision {
        decide(&View { now_ms: self.now_ms, device, cluster, keep: &keep(), program: None }, &mut self.memory)
    }

    fn after(&mut self, ms: u64, device: &Device, cluster: &Cluster) -> Decision {
        self.now_ms += ms;
        self.decides(Ok(device), Ok(cluster))
    }
}

fn once(device: &Device, cluster: &Cluster) -> Decision {
    Keeper::default().after(0, device, cluster)
}

fn extended(epoch: Epoch) -> Action {
    Action::Device(Order::Lead { epoch, from_ms: 777, for_ms: 9_800 })
}

#[test]
fn a_leader_extends_from_the_clock_that_it_read_before_its_lease() {
    assert_eq!(once(&device(0, Role::Primary), &cluster(true)).actions, [extended(epoch(3, 0))]);
    let mut old = cluster(true);
    old.leader = Some((Leader { node: 0, epoch: epoch(2, 1) }, true));
    let decision = once(&device(0, Role::Primary), &old);
    assert_eq!(decision.actions, [Action::NoteEpoch(epoch(3, 0)), extended(epoch(3, 0))]);
}

#[test]
fn a_primary_without_leadership_is_stopped_and_a_secondary_begins_frozen() {
    let stop = Action::Device(end_of_leadership());
    let mut other = cluster(false);
    other.leader = Some((Leader { node: 1, epoch: epoch(0, 0) }, false));
    assert_eq!(once(&device(0, Role::Primary), &other).actions, std::slice::from_ref(&stop));
    let mut free = device(1, Role::Secondary);
    free.has_deadline = false;
    assert_eq!(once(&free, &cluster(false)).actions, [stop]);
    assert_eq!(once(&device(1, Role::Secondary), &cluster(false)).actions, []);
}

#[test]
fn the_one_with_most_takes_leadership_and_asks_for_an_epoch_above_all() {
    let mut cluster = vacant();
    cluster.members.get_mut(&1).unwrap().promised = epoch(9, 1);
    let mut silent = [device(1, Role::Secondary), device(2, Role::Secondary)];
    silent.iter_mut().for_each(|device| device.primary_silent = true);
    // As much, and a lower number.
    assert_eq!(once(&silent[0], &cluster).actions, [Action::Acquire]);
    let mut other = Keeper::default();
    assert_eq!(other.after(0, &silent[1], &cluster).actions, []);
    // More bytes; or a newer epoch, which outweighs bytes.
    for (tail, synced) in [(vec![101], epoch(3, 0)), (vec![7], epoch(4, 2))] {
        let mut cluster = cluster.clone();
        let second = cluster.members.get_mut(&2).unwrap();
        (second.tail, second.synced) = (tail, synced);
        assert_eq!(once(&silent[1], &cluster).actions, [Action::Acquire]);
        assert_eq!(once(&silent[0], &cluster).actions, []);
        // One that can't be made primary is no rival.
        cluster.members.get_mut(&2).unwrap().stale = true;
        assert_eq!(once(&silent[0], &cluster).actions, [Action::Acquire]);
    }
    // The better one does not come: two looks are enough.
    assert_eq!(other.after(1_999, &silent[1], &cluster).actions, []);
    assert_eq!(other.after(1, &silent[1], &cluster).actions, [Action::Acquire]);
    cluster.leader = Some((Leader { node: 2, epoch: epoch(0, 0) }, true));
    let promote = Action::Device(Order::Promote { group: None, above: 9, before_ms: 10_777 });
    assert_eq!(other.after(20, &silent[1], &cluster).actions, [promote]);
    let mut promoted = device(2, Role::Primary);
    promoted.epoch = epoch(10, 2);
    let decision = other.after(20, &promoted, &cluster);
    assert_eq!(decision.actions, [Action::NoteEpoch(epoch(10, 2)), extended(epoch(10, 2))]);
}

#[test]
fn a_primary_that_is_heard_gets_time_to_take_leadership_again() {
    let cluster = vacant();
    let mut keeper = Keeper::default();
    assert_eq!(keeper.after(0, &device(1, Role::Secondary), &cluster).actions, []);
    assert_eq!(keeper.after(2_000, &device(1, Role::Secondary), &cluster).actions, [Action::Acquire]);
    assert_eq!(once(&device(0, Role::Primary), &cluster).actions, [Action::Acquire]);
}

#[test]
fn a_promotion_that_fails_gives_leadership_to_another() {
    let mut leads = cluster(true);
    leads.leader = Some((Leader { node: 1, epoch: epoch(0, 0) }, true));
    let secondary = device(1, Role::Secondary);
    let mut keeper = Keeper::default();
    assert!(matches!(keeper.after(0, &secondary, &leads).actions[..], [Action::Device(Order::Promote { .. })]));
    assert_eq!(keeper.after(20, &secondary, &leads).actions, [Action::Release]);
    assert_eq!(keeper.after(20, &secondary, &vacant()).actions, [], "it stands back");
    let mut keeper = Keeper::default();
    keeper.after(0, &secondary, &leads);
    let candidate = device(1, Role::Candidate);
    assert_eq!(keeper.after(TTL - 1, &candidate, &leads).actions, []);
    assert_eq!(keeper.after(1, &candidate, &leads).actions, [Action::Device(Order::Demote), Action::Release]);
}

#[test]
fn a_stale_device_is_not_promoted_and_says_what_to_do() {
    let mut stale = device(1, Role::Secondary);
    stale.stale = true;
    for cluster in [cluster(false), vacant()] {
        let decision = once(&stale, &cluster);
        assert_eq!(decision.actions, []);
        assert!(decision.note.contains("reinit --node 1"), "{}", decision.note);
        let mut cluster = cluster;
        cluster.reinit.insert(1);
        assert_eq!(once(&stale, &cluster).actions, [Action::Device(Order::Rebuild), Action::EndReinit]);
    }
}

#[test]
fn without_etcd_a_primary_goes_on_while_all_members_report() {
    let mut primary = device(0, Role::Primary);
    let decides = |device: &Device| Keeper::default().decides(Ok(device), Err("gone"));
    let decision = decides(&primary);
    assert_eq!(decision.actions, [extended(epoch(3, 0))]);
    assert!(decision.note.contains("fail-safe"), "{}", decision.note);
    primary.replicas[1].answers = false;
    let decision = decides(&primary);
    assert_eq!(decision.actions, []);
    assert!(decision.note.contains("node 2"), "{}", decision.note);
    primary.replicas.remove(1);
    assert_eq!(decides(&primary).actions, [], "one that it does not know of");
    assert_eq!(decides(&device(1, Role::Secondary)).actions, []);
}

#[test]
fn a_device_that_does_not_answer_costs_leadership_after_a_while() {
    let leads = cluster(true);
    let mut keeper = Keeper::default();
    assert_eq!(keeper.decides(Err("no such file"), Ok(&leads)).actions, []);
    keeper.now_ms = 3_999;
    assert_eq!(keeper.decides(Err("no such file"), Ok(&leads)).actions, []);
    keeper.now_ms = 4_000;
    assert_eq!(keeper.decides(Err("no such file"), Ok(&leads)).actions, [Action::Release]);
    let mut paused = leads.clone();
    paused.paused = true;
    assert_eq!(keeper.decides(Err("no such file"), Ok(&paused)).actions, []);
    assert_eq!(keeper.decides(Err("no such file"), Ok(&cluster(false))).actions, []);
}

#[test]
fn a_paused_cluster_needs_no_keeper_and_promotes_nothing() {
    let mut paused = vacant();
    paused.paused = true;
    let mut secondary = device(1, Role::Secondary);
    secondary.primary_silent = true;
    assert_eq!(once(&secondary, &paused).actions, []);
    assert_eq!(once(&device(0, Role::Primary), &paused).actions, [Action::Acquire, Action::Device(Order::Free)]);
}

#[test]
fn a_switchover_waits_for_a_member_in_step_and_stops_this_primary_first() {
    let mut cluster = cluster(true);
    cluster.intent = Some(Intent { to: Some(2) });
    let mut primary = device(0, Role::Primary);
    let handed = [Action::Device(end_of_leadership()), Action::Device(Order::Demote), Action::Release];
    assert_eq!(once(&primary, &cluster).actions, handed);
    primary.replicas[1].in_step = false;
    let decision = once(&primary, &cluster);
    assert_eq!(decision.actions, [extended(epoch(3, 0))]);
    assert!(decision.note.contains("node 2 is not in step"), "{}", decision.note);
    // To any: the one that has most, which is named, so that the others stand back.
    cluster.intent = Some(Intent { to: None });
    assert_eq!(once(&primary, &cluster).actions, [vec![Action::Intend(1)], handed.to_vec()].concat());
    cluster.members.remove(&1);
    assert!(once(&primary, &cluster).note.contains("no other member"), "the keeper of node 1 is gone");
    let mut cluster = vacant();
    cluster.intent = Some(Intent { to: Some(2) });
    let mut keeper = Keeper::default();
    assert_eq!(keeper.after(0, &device(1, Role::Secondary), &cluster).actions, []);
    assert_eq!(keeper.after(TTL - 1, &device(1, Role::Secondary), &cluster).actions, []);
    assert_eq!(keeper.after(1, &device(1, Role::Secondary), &cluster).actions, [Action::Acquire], "it never came");
    assert_eq!(once(&device(2, Role::Secondary), &cluster).actions, [Action::Acquire]);
    // It has come about.
    let mut done = super::tests::cluster(true);
    done.intent = Some(Intent { to: Some(0) });
    assert_eq!(once(&device(0, Role::Primary), &done).actions, [Action::EndIntent, extended(epoch(3, 0))]);
}

/// The device stepped down, and its answer came too late, or etcd did not take the release.
#[test]
fn a_hand_over_that_was_cut_short_is_brought_to_its_end() {
    let mut cluster = cluster(true);
    cluster.intent = Some(Intent { to: Some(2) });
    let mut keeper = Keeper::default();
    assert_eq!(keeper.after(0, &device(0, Role::Primary), &cluster).actions.len(), 3);
    assert_eq!(keeper.after(9, &device(0, Role::Secondary), &cluster).actions, [Action::Release]);
    assert_eq!(keeper.after(9, &device(0, Role::Secondary), &cluster).actions, [Action::Release], "it failed again");
    // Who leads though another was named, after that one never came, has its device promoted.
    let decision = once(&device(0, Role::Secondary), &cluster);
    assert!(matches!(decision.actions[..], [Action::Device(Order::Promote { .. })]), "{decision:?}");
}

#[test]
fn a_switchover_to_a_member_that_cannot_lead_is_not_waited_for() {
    let mut cluster = vacant();
    cluster.intent = Some(Intent { to: Some(2) });
    let mut waits = |change: fn(&mut Member)| {
        change(cluster.members.get_mut(&2).expect("it is there"));
        let decision = Keeper::default().after(0, &device(1, Role::Secondary), &cluster);
        *cluster.members.get_mut(&2).expect("it is there") = member(&device(2, Role::Secondary));
        decision.note.contains("node 2 is to take over")
    };
    assert!(waits(|_| {}));
    assert!(!waits(|member| member.disk = Some("failed".into())));
    assert!(!waits(|member| member.stale = true));
    assert!(!waits(|member| member.role = Some(Role::Alone)));
    cluster.members.remove(&2);
    let silent = Device { primary_silent: true, ..device(1, Role::Secondary) };
    assert_eq!(once(&silent, &cluster).actions, [Action::Acquire]);
}

#[test]
fn a_new_group_waits_for_its_members_and_hands_over_where_the_primary_is_none() {
    let mut cluster = cluster(true);
    let wider = Group { members: vec![0, 1, 2, 3], mode: Mode::Quorum, k: 3 };
    cluster.group = Some(wider.clone());
    let primary = device(0, Role::Primary);
    let decision = once(&primary, &cluster);
    assert_eq!(decision.actions, [extended(epoch(3, 0))]);
    assert!(decision.note.contains("node 3 has not joined"), "{}", decision.note);
    cluster.members.insert(3, member(&device(3, Role::Secondary)));
    let mut keeper = Keeper::default();
    let promote = Action::Device(Order::Promote { group: Some(wider), above: 3, before_ms: 10_777 });
    assert_eq!(keeper.after(0, &primary, &cluster).actions, std::slice::from_ref(&promote));
    assert_eq!(keeper.after(20, &primary, &cluster).actions, [extended(epoch(3, 0))], "it was refused");
    assert_eq!(keeper.after(TTL, &primary, &cluster).actions, [promote]);
    cluster.group = Some(Group { members: vec![1, 2], mode: Mode::Eager, k: 0 });
    assert_eq!(once(&primary, &cluster).actions[0], Action::Intend(1));
    // A device that joins has no log of its own, or leave to discard it.
    let mut alone = device(2, Role::Alone);
    let joins = Action::Device(Order::Form(group()));
    let cluster = super::tests::cluster(false);
    assert!(once(&alone, &cluster).note.contains("reinit --node 2"));
    let mut asked = cluster.clone();
    asked.reinit.insert(2);
    assert_eq!(once(&alone, &asked).actions, [joins.clone(), Action::EndReinit]);
    alone.tail = vec![0];
    assert_eq!(once(&alone, &cluster).actions, [joins]);
}

#[test]
fn a_new_cluster_is_begun_by_the_one_that_has_a_log_and_never_by_two() {
    let alone = |node, end| Device { tail: vec![end], ..device(node, Role::Alone) };
    let begins = |ends: [u64; 3]| {
        let members = (0..3).map(|node| (node, member(&alone(node, ends[usize::from(node)])))).collect();
        let cluster = Cluster { group: Some(group()), members, ..Cluster::default() };
        let first = |node| once(&alone(node, ends[usize::from(node)]), &cluster).actions == [Action::Acquire];
        (0..3).filter(|node| first(*node)).collect::<Vec<u8>>()
    };
    assert_eq!(begins([0, 0, 0]), [0]);
    assert_eq!(begins([0, 9, 0]), [1]);
    assert!(begins([0, 9, 9]).is_empty());
    // One whose disk is bad begins none, and gives back what it has.
    let bad = Device { disk: crate::device::Disk { state: Some("full".into()), ..disk(0, 0, 0) }, ..alone(0, 0) };
    let mut members: std::collections::BTreeMap<u8, Member> =
        (0..3).map(|node| (node, member(&alone(node, 0)))).collect();
    members.get_mut(&0).expect("it is there").disk = Some("full".into());
    let mut cluster = Cluster { group: Some(group()), members, ..Cluster::default() };
    assert_eq!(once(&bad, &cluster).actions, []);
    assert_eq!(once(&alone(1, 0), &cluster).actions, [Action::Acquire]);
    cluster.leader = Some((Leader { node: 0, epoch: epoch(0, 0) }, true));
    assert_eq!(once(&bad, &cluster).actions, [Action::Release]);
    let mut cluster = Cluster { group: Some(group()), ..Cluster::default() };
    assert!(once(&alone(0, 0), &cluster).note.contains("waits for the keeper of node 0, 1, 2"));
    cluster.leader = Some((Leader { node: 0, epoch: epoch(0, 0) }, true));
    assert_eq!(once(&alone(0, 0), &cluster).actions, [Action::Device(Order::FormAsPrimary(group()))]);
    cluster.leader = Some((Leader { node: 0, epoch: epoch(0, 0) }, false));
    assert_eq!(once(&alone(1, 0), &cluster).actions, [Action::Device(Order::Form(group()))]);
    // A group that was formed by hand is taken over as it is.
    let primary = device(0, Role::Primary);
    assert_eq!(once(&primary, &Cluster::default()).actions, [Action::NoteGroup(group())]);
    assert!(once(&alone(0, 0), &Cluster::default()).note.contains("keeper group --members"));
}

/// One key of a node outside of the group, or one that is wrong, would end all promotions for good.
#[test]
fn epochs_of_strangers_and_those_far_above_the_devices_raise_none() {
    let above = |cluster: &Cluster| {
        let decision = once(&device(1, Role::Secondary), cluster);
        let [Action::Device(Order::Promote { above, .. })] = decision.actions[..] else { panic!("{decision:?}") };
        above
    };
    let led = |promised: u64, of: u8| {
        let mut cluster = vacant();
        cluster.leader = Some((Leader { node: 1, epoch: Epoch::default() }, true));
        let like = member(&device(2, Role::Secondary));
        cluster.members.insert(of, Member { node: of, promised: epoch(promised, of), ..like });
        cluster
    };
    assert_eq!(above(&led(9, 2)), 9, "a member has accepted it");
    for (promised, of) in [(9, 7), (72_057_594_037_927_934, 7), (72_057_594_037_927_934, 2), (3 + EPOCHS_AHEAD_MAX, 2)]
    {
        let cluster = led(promised, of);
        assert_eq!(above(&cluster), 3, "{promised}.{of}");
    }
    assert_eq!(above(&led(2 + EPOCHS_AHEAD_MAX, 2)), 2 + EPOCHS_AHEAD_MAX, "the last that is taken");
    let mut cluster = led(3, 2);
    cluster.leader = Some((Leader { node: 1, epoch: epoch(u64::MAX, 1) }, true));
    assert_eq!(above(&cluster), 3);
    // Nor does one make a new group begin as if others had.
    let mut cluster = self::cluster(false);
    cluster.leader = None;
    for node in 0..3 {
        cluster.members.insert(node, member(&device(node, Role::Alone)));
    }
    cluster.members.insert(7, Member { node: 7, ..member(&device(2, Role::Secondary)) });
    let alone = Device { tail: vec![0], ..device(0, Role::Alone) };
    for of in cluster.members.values_mut() {
        of.tail = vec![0];
    }
    assert_eq!(once(&alone, &cluster).actions, [Action::Acquire]);
}

#[test]
fn strangers_and_far_epochs_are_named() {
    let mut cluster = cluster(false);
    let like = member(&device(2, Role::Secondary));
    cluster.members.insert(7, Member { node: 7, ..like.clone() });
    cluster.members.insert(2, Member { promised: epoch(1 << 40, 2), tail: vec![u64::MAX; 2], ..like });
    let said = cluster.foreign();
    assert!(said[0].starts_with("members/2: epoch 1099511627776 is far above"), "{said:?}");
    assert!(said[1].starts_with("members/7: it is no member of the group"), "{said:?}");
}

/// A disk that has done this much, in writes and syncs of so many milliseconds each.
fn disk(count: u64, write_ms: u64, sync_ms: u64) -> crate::device::Disk {
    let (write_us, sync_us) = (count * write_ms * 1_000, count * sync_ms * 1_000);
    crate::device::Disk { writes: count, write_us, syncs: count, sync_us, ..Default::default() }
}

#[test]
fn a_primary_whose_disk_is_dead_lets_leadership_go_without_an_order_and_takes_it_no_more() {
    for state in ["failed", "full"] {
        let mut primary = device(0, Role::Primary);
        primary.disk.state = Some(state.into());
        let mut asked = cluster(true);
        for intent in [None, Some(Intent { to: Some(1) })] {
            asked.intent = intent;
            let decision = once(&primary, &asked);
            assert_eq!(decision.actions, [Action::Release], "{state}");
            assert!(decision.note.contains("its disk"), "{}", decision.note);
        }
        assert_eq!(once(&primary, &vacant()).actions, [], "it does not take it again");
        assert_eq!(Keeper::default().decides(Ok(&primary), Err("gone")).actions, [], "nor without etcd");
        let mut other = cluster(false);
        other.leader = Some((Leader { node: 1, epoch: epoch(4, 1) }, false));
        assert_eq!(once(&primary, &other).actions, [], "an order that it can't store is none");
        let mut paused = cluster(true);
        paused.paused = true;
        assert_eq!(once(&primary, &paused).actions, [], "nor is this one");
        // A switchover may have made it a secondary before its disk was found dead.
        let mut demoted = device(0, Role::Secondary);
        demoted.disk.state = Some(state.into());
        assert_eq!(once(&demoted, &asked).actions, [Action::Release]);
    }
}

#[test]
fn a_member_whose_disk_is_dead_is_no_rival_and_no_successor() {
    let mut cluster = vacant();
    let dead = |cluster: &mut Cluster, node| cluster.members.get_mut(&node).unwrap().disk = Some("failed".into());
    dead(&mut cluster, 1);
    let mut silent = device(2, Role::Secondary);
    silent.primary_silent = true;
    assert_eq!(once(&silent, &cluster).actions, [Action::Acquire], "node 1 has as much and a lower number");
    let mut own = device(1, Role::Secondary);
    (own.primary_silent, own.disk.state) = (true, Some("failed".into()));
    let decision = once(&own, &cluster);
    assert_eq!((decision.actions, decision.note.contains("start the device again")), (vec![], true));
    // A primary that is heard still, but says that its disk is dead, is not waited for.
    let mut heard = super::tests::cluster(false);
    heard.leader = None;
    assert_eq!(once(&device(1, Role::Secondary), &heard).actions, []);
    dead(&mut heard, 0);
    assert_eq!(once(&device(1, Role::Secondary), &heard).actions, [Action::Acquire]);
    let mut leads = super::tests::cluster(true);
    leads.intent = Some(Intent { to: Some(1) });
    dead(&mut leads, 1);
    let decision = once(&device(0, Role::Primary), &leads);
    assert_eq!(decision.actions, [extended(epoch(3, 0))]);
    assert!(decision.note.contains("node 1: its disk can't be written"), "{}", decision.note);
    leads.intent = Some(Intent { to: None });
    assert_eq!(once(&device(0, Role::Primary), &leads).actions[0], Action::Intend(2));
}

/// A keeper with a threshold of 200 ms, whose device is primary and is looked at once a second.
struct Watch {
    keeper: Keeper,
    disk: crate::device::Disk,
    cluster: Cluster,
}

impl Watch {
    fn new() -> Watch {
        Watch { keeper: Keeper::default(), disk: disk(1, 0, 0), cluster: cluster(true) }
    }

    /// After a second in which ten writes and syncs took this long each.
    fn second(&mut self, write_ms: u64, sync_ms: u64) -> Decision {
        self.seconds_of(10, write_ms, sync_ms)
    }

    /// The same, of so many.
    fn seconds_of(&mut self, count: u64, write_ms: u64, sync_ms: u64) -> Decision {
        let more = disk(count, write_ms, sync_ms);
        self.disk.writes += more.writes;
        self.disk.write_us += more.write_us;
        self.disk.syncs += more.syncs;
        self.disk.sync_us += more.sync_us;
        self.keeper.now_ms += 1_000;
        let primary = Device { disk: self.disk.clone(), ..device(0, Role::Primary) };
        let keep = Keep { slow_disk_ms: Some(200), ..keep() };
        let (now_ms, device, cluster) = (self.keeper.now_ms, Ok(&primary), Ok(&self.cluster));
        decide(&View { now_ms, device, cluster, keep: &keep, program: None }, &mut self.keeper.memory)
    }
}

#[test]
fn a_disk_that_is_slow_for_a_ttl_gives_leadership_away_and_a_hiccup_does_not() {
    let stays = [extended(epoch(3, 0))];
    for slow in [(200, 0), (0, 200)] {
        let mut watch = Watch::new();
        assert_eq!(watch.second(0, 0).actions, stays);
        for _ in 0..3 {
            assert!((0..9).all(|_| watch.second(slow.0, slow.1).actions == stays));
            assert_eq!(watch.second(199, 199).actions, stays, "nine seconds of ten, and one that is quick");
        }
        // While nothing is asked of it, it is neither slow nor quick.
        assert!((0..9).all(|_| watch.second(slow.0, slow.1).actions == stays));
        assert!((0..30).all(|_| watch.seconds_of(0, 0, 0).actions == stays));
        let handed = (0..2).map(|_| watch.second(slow.0, slow.1)).find(|decision| decision.actions != stays);
        let handed = handed.expect("it gives leadership up");
        assert_eq!(handed.actions[0], Action::Intend(1));
        assert_eq!(handed.actions.last(), Some(&Action::Release));
        assert!(handed.note.contains("node 1: its disk is slow"), "{}", handed.note);
        // Should it lead again at once, it does so for a while, however slow its disk is.
        let rest = (0..99).all(|_| watch.second(slow.0, slow.1).actions == stays);
        assert!(rest && (0..3).any(|_| watch.second(slow.0, slow.1).actions != stays));
    }
    // A sync that does not end is slow before it has.
    let mut watch = Watch::new();
    watch.disk.syncing_us = 200_000;
    assert!((0..12).any(|_| watch.second(0, 0).actions != stays));
}

#[test]
fn a_slow_disk_moves_nothing_where_no_member_is_better_or_no_threshold_is_set() {
    let stays = [extended(epoch(3, 0))];
    let mut watch = Watch::new();
    watch.cluster.members.get_mut(&1).unwrap().slow = true;
    watch.cluster.members.get_mut(&2).unwrap().disk = Some("full".into());
    let last = (0..40).map(|_| watch.second(500, 500)).inspect(|decision| assert_eq!(decision.actions, stays)).last();
    let note = last.expect("there are forty").note;
    assert!(note.contains("its disk is slow, and no other member"), "{note}");
    assert!(watch.keeper.memory.is_slow(watch.keeper.now_ms, &keep()));
    let mut keeper = Keeper::default();
    for count in 1..40 {
        let slow = Device { disk: disk(count, 900, 900), ..device(0, Role::Primary) };
        assert_eq!(keeper.after(1_000, &slow, &cluster(true)).actions, stays);
    }
}
