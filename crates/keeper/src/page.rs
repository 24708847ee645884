//! The live page of a cluster, as one of its keepers sees it.

use crate::device::{Device, Role};
use crate::job::Keep;
use crate::keys::{Cluster, Group, Intent, Leader, Member, list};
use crate::program::Report;
use crate::tls::TlsState;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tidewater_base::units;
use tidewater_live::{Board, Cell, History, Level, Table, listen, serve_answers, serve_board};

/// The public side of a cluster: its page, its metrics.
#[derive(Clone, Default)]
pub struct Page(Arc<Mutex<Seen>>);

/// What the keeper has seen.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) node: Option<u8>,
    pub(crate) note: String,
    /// What etcd held when it last answered; none before that.
    pub(crate) cluster: Option<Cluster>,
    /// When that was.
    pub(crate) heard: Option<Instant>,
    /// Since when metrics are served.
    pub(crate) begun: Option<Instant>,
    /// The device, if it answered when it was last asked.
    pub(crate) device: Option<Device>,
    /// Until when the device may acknowledge as primary, as far as this keeper knows: never longer than it does.
    pub(crate) acknowledges_until: Option<Instant>,
    /// Since when no keeper has led.
    pub(crate) leaderless_since: Option<Instant>,
    /// The node that led last.
    pub(crate) led: Option<u8>,
    /// How often another one came after it.
    pub(crate) leader_changes: u64,
    /// The program that follows the primary, if there is to be one; within, if its supervisor answers.
    pub(crate) program: Option<Option<Report>>,
    /// The certificate that it shows to etcd.
    pub(crate) certificate: TlsState,
    /// Why etcd does not answer, or can't be trusted.
    silent: Option<String>,
    /// Until when its lease lasts, and for how long it is renewed each time.
    lease: Option<(Instant, Duration)>,
    loop_wait: Duration,
    events: History,
}

impl Page {
    /// Serves the page at this address, and returns where.
    ///
    /// # Errors
    /// When the address is not one of this machine's loopback or is taken, or there is no room for threads.
    pub fn open(&self, address: SocketAddr, title: &str) -> io::Result<SocketAddr> {
        let listener = listen(address)?;
        let address = listener.local_addr()?;
        let of = Arc::clone(&self.0);
        serve_board(listener, Vec::new(), title, move || lock(&of).board(Instant::now()))?;
        Ok(address)
    }

    /// Answers at this address with metrics of a cluster, and whether the device is primary; returns where.
    ///
    /// # Errors
    /// When the address is taken, or there is no room for a thread.
    pub fn answer(&self, address: SocketAddr, cluster: String) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        lock(&self.0).begun = Some(Instant::now());
        let of = Arc::clone(&self.0);
        serve_answers(listener, Vec::new(), move |path| lock(&of).answer(path, &cluster, Instant::now()))?;
        Ok(address)
    }

    /// The answer at this time.
    #[cfg(test)]
    pub(crate) fn answer_at(&self, path: &str, now: Instant) -> Option<(u16, String)> {
        lock(&self.0).answer(path, "c", now)
    }

    /// How the device was at this time. Without a leader deadline, a primary is trusted for a ttl.
    pub fn look(&self, device: Option<&Device>, at: Instant, ttl: Duration) {
        let mut seen = lock(&self.0);
        let leads =
            |device: &Device| device.role == Role::Primary && !device.is_frozen() && device.disk.state.is_none();
        seen.acknowledges_until = match device.filter(|device| leads(device)) {
            Some(device) if device.has_deadline => seen.acknowledges_until,
            Some(_) => Some(at + ttl),
            None => None,
        };
        seen.device = device.cloned();
    }

    /// The device has taken an order by which it may acknowledge until then.
    pub fn acknowledges_until(&self, deadline: Instant) {
        lock(&self.0).acknowledges_until = Some(deadline);
    }

    /// How the program that follows the primary stands; `None`: its supervisor does not answer.
    pub fn program(&self, report: Option<&Report>) {
        lock(&self.0).program = Some(report.cloned());
    }

    /// How the certificate stands that the keeper shows to etcd.
    pub(crate) fn certificate(&self, state: TlsState) {
        lock(&self.0).certificate = state;
    }

    /// What the keeper has seen in a turn. `renewed`: when it last asked for its lease and got it.
    pub fn take(
        &self,
        keep: &Keep,
        (node, note): (Option<u8>, &str),
        cluster: Result<&Cluster, &str>,
        renewed: Option<Instant>,
    ) {
        let mut seen = lock(&self.0);
        seen.node = node;
        note.clone_into(&mut seen.note);
        seen.lease = renewed.map(|at| (at + keep.ttl(), keep.ttl()));
        seen.loop_wait = keep.loop_wait();
        seen.take(cluster);
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seen {
    fn take(&mut self, cluster: Result<&Cluster, &str>) {
        match cluster {
            Ok(now) => {
                if self.silent.take().is_some() {
                    self.events.add(Level::Note, "etcd answers again");
                }
                self.heard = Some(Instant::now());
                self.note_leader(now);
                for (level, what) in self.cluster.iter().flat_map(|before| between(before, now)) {
                    self.events.add(level, what);
                }
                self.cluster = Some(now.clone());
            }
            Err(why) => {
                if self.silent.is_none() {
                    self.events.add(Level::Bad, format!("no word from etcd: {why}"));
                }
                self.silent = Some(why.to_owned());
            }
        }
    }

    fn note_leader(&mut self, now: &Cluster) {
        match &now.leader {
            Some((leader, _)) => {
                self.leaderless_since = None;
                let before = self.led.replace(leader.node);
                self.leader_changes += u64::from(before.is_some_and(|before| before != leader.node));
            }
            None => _ = self.leaderless_since.get_or_insert_with(Instant::now),
        }
    }

    fn board(&self, now: Instant) -> Board {
        let leader = self.cluster.as_ref().and_then(|cluster| cluster.leader.as_ref()).map(|(leader, _)| leader);
        let (state, bad) = match (&self.silent, &self.cluster, leader) {
            (Some(_), ..) => ("no word from etcd".to_owned(), true),
            (None, None, _) => ("looking".to_owned(), false),
            (None, Some(cluster), _) if cluster.paused => ("paused".to_owned(), false),
            (None, Some(_), Some(leader)) => (format!("node {} leads", leader.node), false),
            (None, Some(_), None) => ("no leader".to_owned(), true),
        };
        let own = self.node.map_or_else(|| "This keeper".to_owned(), |node| format!("The keeper of node {node}"));
        let note = if self.note.is_empty() { format!("{own} begins.") } else { format!("{own}: {}", self.note) };
        Board {
            state,
            bad,
            note,
            tiles: self.tiles(leader, now),
            tables: vec![self.members()],
            events: self.events.clone(),
            ..Board::default()
        }
    }

    fn tiles(&self, leader: Option<&Leader>, now: Instant) -> Vec<[String; 3]> {
        let none = || "–".to_owned();
        let group = self.cluster.as_ref().and_then(|cluster| cluster.group.as_ref());
        let lives = self.cluster.as_ref().map_or(0, |cluster| cluster.members.len());
        let epoch = |leader: &Leader| match leader.epoch.counter {
            0 => "being promoted".to_owned(),
            _ => format!("epoch {}", leader.epoch),
        };
        let lease = self.lease.map(|(until, of)| (until.saturating_duration_since(now).as_secs_f64(), of));
        vec![
            [
                "Leader".into(),
                leader.map_or_else(none, |leader| format!("node {}", leader.node)),
                leader.map_or_else(|| "no keeper leads".into(), epoch),
            ],
            [
                "Group".into(),
                group.map_or_else(none, Group::mode_in_words),
                group.map_or_else(|| "no group yet".into(), |group| format!("members {}", list(&group.members))),
            ],
            ["Keepers".into(), lives.to_string(), "whose leases live".into()],
            [
                "This keeper's lease".into(),
                lease.map_or_else(none, |(left, _)| format!("{left:.1} s")),
                lease.map_or_else(
                    || "it has none".into(),
                    |(_, of)| {
                        format!("left of {} s; renewed every {:.1} s", of.as_secs(), self.loop_wait.as_secs_f64())
                    },
                ),
            ],
        ]
    }

    fn members(&self) -> Table {
        let members = self.cluster.iter().flat_map(|cluster| cluster.members.values());
        let most = self.cluster.as_ref().map_or(0, Cluster::longest);
        let mut rows: Vec<Vec<Cell>> = members.map(|member| row(member, most.saturating_sub(member.end()))).collect();
        let away = self.cluster.iter().flat_map(Cluster::without_keeper);
        rows.extend(away.map(|node| {
            let mut cells = vec![Cell::text(node.to_string()), Cell::bad("no keeper")];
            cells.resize_with(COLUMNS.len(), || Cell::text("–"));
            cells
        }));
        Table {
            title: "Members".into(),
            note: "As their keepers wrote it when they last looked; behind is counted from the member with most."
                .into(),
            columns: COLUMNS.map(str::to_owned).to_vec(),
            rows,
        }
    }
}

const COLUMNS: [&str; 7] = ["node", "role", "epoch", "log", "behind", "address", "its keeper says"];

fn row(member: &Member, behind: u64) -> Vec<Cell> {
    let role = member.role_in_words();
    let is_bad = member.role.is_none() || member.frozen || member.stale || member.disk.is_some();
    vec![
        Cell::text(member.node.to_string()),
        if is_bad { Cell::bad(role) } else { Cell::text(role) },
        Cell::text(member.epoch.to_string()),
        Cell::text(format!("{} bytes", units::grouped(member.end()))),
        Cell::text(units::bytes(behind)),
        Cell::text(&member.address),
        Cell::text(&member.note),
    ]
}

/// What happened between two looks.
fn between(before: &Cluster, now: &Cluster) -> Vec<(Level, String)> {
    let mut events = Vec::new();
    let node = |cluster: &Cluster| cluster.leader.as_ref().map(|(leader, _)| leader.node);
    match (node(before), node(now)) {
        (Some(was), None) => events.push((Level::Bad, format!("node {was} leads no more, and no other keeper does"))),
        (was, Some(is)) if was != Some(is) => events.push((Level::Note, format!("node {is} leads"))),
        _ => {}
    }
    if before.paused != now.paused {
        events.push((Level::Note, if now.paused { "paused" } else { "resumed" }.into()));
    }
    if before.intent != now.intent {
        events.push((
            Level::Note,
            match &now.intent {
                Some(Intent { to: Some(node) }) => format!("a switchover to node {node} was asked for"),
                Some(Intent { to: None }) => "a switchover to the member with most was asked for".into(),
                None => "the switchover is over".into(),
            },
        ));
    }
    if let Some(group) = now.group.as_ref().filter(|group| before.group.as_ref() != Some(group)) {
        events.push((Level::Note, format!("the group is to be: {group}")));
    }
    for node in now.reinit.difference(&before.reinit) {
        events.push((Level::Note, format!("node {node} is to discard its log")));
    }
    for (node, member) in &now.members {
        match before.members.get(node) {
            None => events.push((Level::Note, format!("node {node}: its keeper is there, {}", member.role_in_words()))),
            Some(was) => events.extend(changed(was, member)),
        }
    }
    for node in before.members.keys().filter(|node| !now.members.contains_key(node)) {
        events.push((Level::Bad, format!("node {node}: its keeper is gone")));
    }
    events
}

fn changed(was: &Member, is: &Member) -> Option<(Level, String)> {
    let node = is.node;
    let level = |bad: bool| if bad { Level::Bad } else { Level::Note };
    match (was.role, is.role) {
        (Some(_), None) => Some((Level::Bad, format!("node {node}: its device does not answer"))),
        (None, Some(_)) => Some((Level::Note, format!("node {node}: its device answers, {}", is.role_in_words()))),
        (Some(Role::Secondary | Role::Candidate), Some(Role::Primary)) => {
            Some((Level::Note, format!("node {node} was promoted: primary of epoch {}", is.epoch)))
        }
        _ if was.role_in_words() != is.role_in_words() => {
            Some((level(is.frozen || is.stale), format!("node {node} is {} now", is.role_in_words())))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::Epoch;
    use crate::keys::Mode;

    fn member(node: u8, role: Option<Role>, bytes: u64) -> Member {
        let epoch = Epoch { counter: 4, node: 1 };
        let (synced, promised) = (epoch, epoch);
        let note = format!("follows node {node}");
        let (stale, frozen, leaderless_ms) = (false, false, None);
        Member {
            node,
            address: "a".into(),
            role,
            epoch,
            synced,
            promised,
            tail: vec![bytes],
            stale,
            frozen,
            leaderless_ms,
            version: String::new(),
            disk: None,
            slow: false,
            note,
        }
    }

    fn cluster(leader: Option<u8>, members: &[Member]) -> Cluster {
        let epoch = Epoch { counter: 4, node: 1 };
        Cluster {
            group: Some(Group { members: vec![0, 1, 2], mode: Mode::Quorum, k: 2 }),
            leader: leader.map(|node| (Leader { node, epoch }, false)),
            members: members.iter().map(|member| (member.node, member.clone())).collect(),
            ..Cluster::default()
        }
    }

    fn said(seen: &Seen) -> Vec<&str> {
        seen.events.iter().map(|event| event.what.as_str()).collect()
    }

    #[test]
    fn a_failover_is_said_step_by_step_and_once() {
        let (primary, secondary) = (Some(Role::Primary), Some(Role::Secondary));
        let mut seen = Seen::default();
        let whole = cluster(Some(0), &[member(0, primary, 100), member(1, secondary, 90), member(2, secondary, 100)]);
        seen.take(Ok(&whole));
        seen.take(Ok(&whole));
        assert_eq!(said(&seen), [""; 0], "what was there from the start is no event");
        seen.take(Ok(&cluster(Some(0), &[member(0, None, 0), member(1, secondary, 90), member(2, secondary, 100)])));
        let vacant = cluster(None, &[member(1, secondary, 90), member(2, secondary, 100)]);
        seen.take(Ok(&vacant));
        assert_eq!((seen.board(Instant::now()).state.as_str(), seen.board(Instant::now()).bad), ("no leader", true));
        seen.take(Ok(&cluster(Some(2), &[member(1, secondary, 90), member(2, primary, 100)])));
        assert_eq!(
            said(&seen),
            [
                "node 0: its device does not answer",
                "node 0 leads no more, and no other keeper does",
                "node 0: its keeper is gone",
                "node 2 leads",
                "node 2 was promoted: primary of epoch 4.1",
            ]
            .map(|text| text.replace("4.1", &Epoch { counter: 4, node: 1 }.to_string()))
        );
        let board = seen.board(Instant::now());
        assert_eq!((board.state.as_str(), board.bad), ("node 2 leads", false));
        let texts = |row: &Vec<Cell>| row.iter().map(|cell| cell.text.clone()).collect::<Vec<_>>();
        let rows: Vec<Vec<String>> = board.tables[0].rows.iter().map(texts).collect();
        assert_eq!((rows[0][4].as_str(), rows[1][1].as_str(), rows[2][1].as_str()), ("10 B", "primary", "no keeper"));
        assert!(rows.iter().all(|row| row.len() == COLUMNS.len()));
    }

    #[test]
    fn pauses_lost_leases_and_a_silent_etcd_are_events() {
        let primary = member(0, Some(Role::Primary), 5);
        let mut seen = Seen::default();
        seen.take(Ok(&cluster(Some(0), std::slice::from_ref(&primary))));
        let mut paused = cluster(Some(0), std::slice::from_ref(&primary));
        paused.paused = true;
        seen.take(Ok(&paused));
        seen.take(Err("connection refused"));
        seen.take(Err("connection refused"));
        assert_eq!(seen.board(Instant::now()).state, "no word from etcd");
        seen.take(Ok(&cluster(Some(0), &[Member { frozen: true, ..primary }])));
        assert_eq!(
            said(&seen),
            [
                "paused",
                "no word from etcd: connection refused",
                "etcd answers again",
                "resumed",
                "node 0 is primary, frozen now"
            ]
        );
        let now = Instant::now();
        seen.lease = Some((now + Duration::from_secs(4), Duration::from_secs(10)));
        assert_eq!(seen.board(now).tiles[3][1], "4.0 s");
        assert_eq!(seen.board(now + Duration::from_secs(9)).tiles[3][1], "0.0 s");
    }
}
