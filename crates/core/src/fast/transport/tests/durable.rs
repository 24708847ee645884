//! Durable before said: each change of what outlives a power cut raises the version, and frames name it.

use super::*;
use tidewater_wire::replication::Attach;

/// A node, alone, that frames are given to by hand.
struct Lone {
    transport: Transport,
    log: MemLog,
}

impl Lone {
    fn new() -> Lone {
        Lone { transport: Transport::new(Config::default()), log: MemLog::new(1) }
    }

    /// Node 1 of a group of three.
    fn secondary(mode: Mode) -> Lone {
        let mut node = Lone::new();
        let group = Group::new(Epoch::ZERO, mode, &[0, 1, 2]).unwrap();
        node.command(Command::Setup { node: 1, group, primary: false, epoch: Epoch::ZERO, force: false });
        node
    }

    fn command(&mut self, command: Command) -> bool {
        self.transport.command(Instant::ZERO, command, &mut self.log).is_ok()
    }

    fn frame(&mut self, from: u8, epoch: Epoch, body: Body) {
        let to = self.transport.persistent().node;
        let frame = Frame { function: 0, from, to, epoch, body };
        self.transport.handle(Instant::ZERO, Event::Frame(frame), &mut self.log);
    }

    /// What there is to send, and which versions it waits for.
    fn sent(&mut self) -> Vec<(Body, u64)> {
        std::iter::from_fn(|| self.transport.poll(&mut self.log)).map(|it| (it.frame.body, it.after)).collect()
    }

    /// The version is another, and what it counts too. Returns it.
    fn raised(&mut self, what: &str, each: impl FnOnce(&mut Lone)) -> u64 {
        let (version, kept) = (self.transport.version(), self.transport.persistent().clone());
        each(self);
        assert_ne!(*self.transport.persistent(), kept, "{what}: nothing has changed");
        assert!(self.transport.version() > version, "{what}: the version stays {version}");
        self.transport.version()
    }

    fn same(&mut self, what: &str, each: impl FnOnce(&mut Lone)) {
        let version = self.transport.version();
        each(self);
        assert_eq!(self.transport.version(), version, "{what}");
    }
}

fn epoch(counter: u64, node: u8) -> Epoch {
    Epoch(counter << 8 | u64::from(node))
}

fn propose(group: Group) -> Body {
    Body::Propose { force: false, base: Epoch::ZERO, target: group }
}

fn attach(group: Group, starts: &[(Epoch, u64)]) -> Body {
    let mut history = History::default();
    for &(epoch, offset) in starts {
        let mut offsets = [0; LANES_MAX];
        offsets[0] = offset;
        assert!(history.push(Start { epoch, offsets }));
    }
    Body::Attach(Box::new(Attach { group, lanes: 1, oldest: [0; LANES_MAX], ends: Some([0; LANES_MAX]), history }))
}

#[test]
fn every_kind_of_change_raises_the_version() {
    let group = Group::new(Epoch::ZERO, Mode::Eager, &[0, 1, 2]).unwrap();
    let pair = Group::new(epoch(4, 2), Mode::Eager, &[1, 2]).unwrap();
    let mut node = Lone::new();
    assert_eq!(node.transport.version(), 0, "what was there at power-on is durable");
    node.raised("group and role", |it| {
        assert!(it.command(Command::Setup { node: 1, group, primary: false, epoch: Epoch::ZERO, force: false }));
    });
    node.raised("leave to rebuild", |it| assert!(it.command(Command::Rebuild)));
    node.same("leave that was there", |it| assert!(it.command(Command::Rebuild)));
    node.raised("a promise", |it| it.frame(0, epoch(1, 0), propose(group)));
    node.same("a promise that was made", |it| it.frame(0, epoch(1, 0), propose(group)));
    node.raised("history and sync", |it| it.frame(0, epoch(1, 0), attach(group, &[(epoch(1, 0), 0)])));
    assert_eq!(node.transport.persistent().synced, epoch(1, 0));
    node.same("an attachment that was made", |it| it.frame(0, epoch(1, 0), attach(group, &[(epoch(1, 0), 0)])));
    node.same("log bytes", |it| {
        it.log.write(0, 0..10);
        it.transport.handle(Instant::ZERO, Event::Persisted { lane: 0 }, &mut it.log);
    });
    let starts = [(epoch(1, 0), 0), (epoch(2, 2), 20)];
    node.raised("an epoch that begins past the log", |it| it.frame(2, epoch(2, 2), attach(group, &starts)));
    assert_eq!(node.transport.persistent().synced, epoch(1, 0));
    node.raised("sync by log bytes", |it| {
        it.log.write(0, 10..20);
        it.transport.handle(Instant::ZERO, Event::Persisted { lane: 0 }, &mut it.log);
    });
    node.raised("an epoch of its own", |it| {
        assert!(it.command(Command::Promote { target: None, epoch: Epoch::ZERO, force: false }));
    });
    let own = node.transport.persistent();
    assert_eq!((own.history.last(), own.role), (epoch(3, 1), Role::Primary));
    node.raised("a promise that a refusal tells of", |it| {
        it.frame(2, epoch(3, 1), Body::Refuse { promised: epoch(4, 2), reason: Reason::Epoch, group });
    });
    node.raised("a pending group", |it| it.frame(2, epoch(5, 2), propose(pair)));
    assert_eq!(node.transport.persistent().pending, Some(pair));
    node.raised("leaving", |it| assert!(it.command(Command::StandAlone)));
}

/// Nothing of the persistent state tells of it, but where a log ends is durable before the next frame leaves, too.
#[test]
fn a_cut_raises_the_version() {
    let mut node = Lone::secondary(Mode::Eager);
    let group = node.transport.persistent().group;
    node.frame(0, epoch(1, 0), attach(group, &[(epoch(1, 0), 0)]));
    node.log.write(0, 0..10);
    node.transport.handle(Instant::ZERO, Event::Persisted { lane: 0 }, &mut node.log);
    node.command(Command::Rebuild);
    let version = node.transport.version();
    let mut frame = attach(group, &[(epoch(1, 0), 0)]);
    if let Body::Attach(attach) = &mut frame {
        attach.oldest[0] = 50;
    }
    node.frame(0, epoch(1, 0), frame);
    assert_eq!((node.log.oldest(0), node.log.persisted(0)), (50, 50), "it starts over where its primary begins");
    assert!(node.transport.version() > version);
}

#[test]
fn a_frame_waits_for_what_it_speaks_of() {
    let mut node = Lone::secondary(Mode::Quorum(2));
    let group = node.transport.persistent().group;
    let promised = node.raised("a promise", |it| it.frame(0, epoch(1, 0), propose(group)));
    match &node.sent()[..] {
        [(Body::Accepted(_), after)] => assert_eq!(*after, promised),
        other => panic!("{other:?}"),
    }
    let attached = node.raised("an attachment", |it| it.frame(0, epoch(1, 0), attach(group, &[(epoch(1, 0), 0)])));
    match &node.sent()[..] {
        [(Body::Report { synced: true, .. }, after)] => assert_eq!(*after, attached),
        other => panic!("{other:?}"),
    }
    let proposed = node.raised("a proposal of its own", |it| {
        assert!(it.command(Command::Promote { target: None, epoch: Epoch::ZERO, force: false }));
    });
    match &node.sent()[..] {
        [(Body::Propose { .. }, first), (Body::Propose { .. }, second)] => {
            assert_eq!([*first, *second], [proposed; 2]);
        }
        other => panic!("{other:?}"),
    }
    let refusal = Body::Refuse { promised: epoch(9, 2), reason: Reason::Epoch, group };
    let deposed = node.raised("a promise that a refusal tells of", |it| it.frame(2, epoch(2, 1), refusal));
    node.frame(0, epoch(1, 0), Body::KeepAlive);
    match &node.sent()[..] {
        [(Body::Refuse { promised, .. }, after)] => assert_eq!((*promised, *after), (epoch(9, 2), deposed)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_version_is_not_given_twice() {
    let mut node = Lone::secondary(Mode::Eager);
    let version = node.transport.version();
    let mut next = Transport::resume(Config::network(), node.transport.persistent().clone(), Instant::ZERO);
    assert_eq!(next.version(), 0);
    next.count_from(version);
    node.transport = next;
    node.raised("what follows", |it| assert!(it.command(Command::Rebuild)));
}
