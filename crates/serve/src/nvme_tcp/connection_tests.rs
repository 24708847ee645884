//! Both sides of a connection back to back, without sockets: bytes go in pieces of any length, and the engine does
//! things in any order.

use super::connection::{Connection, Ending, Event, Limits};
use super::options::Patience;
use proptest::prelude::*;
use std::collections::HashMap;
use tidewater_base::Duration;
use tidewater_core::subsystem::{MoveError, Slot};
use tidewater_driver::nvme_tcp::{Refused, Session, Transfer};
use tidewater_wire::fabrics::{DataPointer, Response};
use tidewater_wire::nvme::{Sqe, Status, opcode};
use tidewater_wire::nvme_tcp::{Fatal, FatalStatus, IcReq};

const UNIT: u32 = 512;
const UNITS: usize = 96;
const ENTRIES: u16 = 9;

fn limits(alignment: u8) -> Limits {
    Limits {
        capsule_data_max: 8_192,
        data_max: 4_096,
        transfer_max: 1 << 20,
        alignment,
        header_digest: true,
        data_digest: true,
    }
}

/// What a step does.
#[derive(Clone, Debug)]
enum Step {
    /// The host submits a command: a write or a read of units.
    Submit { write: bool, first: usize, units: usize },
    /// Bytes go to the controller, or to the host, at most so many.
    Carry { to_host: bool, bytes: usize },
    /// The engine takes a step with one of its commands.
    Work { which: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (any::<bool>(), 0..UNITS, 1..40_usize)
            .prop_map(|(write, first, units)| Step::Submit { write, first, units }),
        4 => (any::<bool>(), 1..6_000_usize).prop_map(|(to_host, bytes)| Step::Carry { to_host, bytes }),
        4 => (0..100_usize).prop_map(|which| Step::Work { which }),
    ]
}

/// A command in the engine.
#[derive(Debug)]
struct Job {
    place: u16,
    sqe: Sqe,
    /// Units of a read that are still to go.
    left: Vec<u32>,
    waits: bool,
}

/// An engine that keeps units, in front of a connection.
struct Engine {
    connection: Connection,
    units: Vec<u8>,
    jobs: Vec<Job>,
    staging: HashMap<u16, Vec<u8>>,
    ended: Option<Ending>,
}

impl Engine {
    fn new(alignment: u8, flow_control: bool) -> Engine {
        let patience = Patience { time: Duration::from_ms(30_000), rate_min: 64 << 10 };
        let mut connection = Connection::new(limits(alignment), patience);
        connection.connect(ENTRIES, flow_control, false);
        Engine {
            connection,
            units: vec![0; UNITS * UNIT as usize],
            jobs: Vec::new(),
            staging: HashMap::new(),
            ended: None,
        }
    }

    fn receive(&mut self, mut input: &[u8]) {
        while let Some(event) = self.connection.next(&mut input) {
            match event {
                Event::Command(place) => {
                    let sqe = self.connection.commands.at(place).sqe;
                    let units = sqe.cdw12();
                    let left = if sqe.opcode() == opcode::READ { (0..units % 1_024).collect() } else { Vec::new() };
                    self.jobs.push(Job { place, sqe, left, waits: false });
                }
                Event::Stage { slot, at, bytes } => {
                    let staging = self.staging.get_mut(&slot.0).expect("the slot waits");
                    assert_eq!(staging.len(), at as usize);
                    staging.extend_from_slice(bytes);
                }
                Event::Moved { slot, result } => {
                    let bytes = self.staging.remove(&slot.0).expect("a slot is moved once");
                    let at = self.jobs.iter().position(|job| job.place == slot.0).expect("it waits");
                    let job = self.jobs.swap_remove(at);
                    let status = match result {
                        Ok(()) => self.store(&job.sqe, &bytes),
                        Err(_) => Status::DATA_TRANSFER_ERROR,
                    };
                    self.connection.respond(job.place, Response { status, ..Response::default() });
                }
                Event::Ended(ending) => self.ended = Some(ending),
            }
        }
        assert!(input.is_empty());
    }

    fn store(&mut self, sqe: &Sqe, bytes: &[u8]) -> Status {
        let start = sqe.slba() as usize * UNIT as usize;
        match self.units.get_mut(start..start + bytes.len()) {
            Some(units) => units.copy_from_slice(bytes),
            None => return Status::LBA_OUT_OF_RANGE,
        }
        Status::SUCCESS
    }

    fn work(&mut self, which: usize) {
        let able: Vec<usize> = (0..self.jobs.len()).filter(|&at| !self.jobs[at].waits).collect();
        let Some(&at) = able.get(which % able.len().max(1)) else { return };
        let job = &mut self.jobs[at];
        let (place, sqe) = (job.place, job.sqe);
        let len = sqe.cdw12() % 1_024 * UNIT;
        let end = sqe.slba().checked_mul(UNIT.into()).and_then(|start| start.checked_add(len.into()));
        let status = if end.is_none_or(|end| end > self.units.len() as u64) {
            Status::LBA_OUT_OF_RANGE
        } else if sqe.opcode() == opcode::READ {
            // The units in any order.
            if !job.left.is_empty() {
                let unit = job.left.swap_remove(which / 7 % job.left.len());
                let from = (sqe.slba() as usize + unit as usize) * UNIT as usize;
                let bytes = &self.units[from..from + UNIT as usize];
                let sent = self.connection.data::<()>(place, unit * UNIT, UNIT, |out| {
                    out.copy_from_slice(bytes);
                    Ok(())
                });
                if sent.is_ok() {
                    return;
                }
                Status::DATA_TRANSFER_ERROR
            } else {
                Status::SUCCESS
            }
        } else {
            match self.connection.fetch(place, Some(Slot(place)), len) {
                Ok(None) => {
                    job.waits = true;
                    self.staging.insert(place, Vec::new());
                    return;
                }
                Ok(Some(bytes)) => {
                    let bytes = bytes.to_vec();
                    self.store(&sqe, &bytes)
                }
                Err(MoveError::Host) => Status::DATA_TRANSFER_ERROR,
                Err(other) => panic!("{other:?}"),
            }
        };
        self.jobs.swap_remove(at);
        self.connection.respond(place, Response { status, ..Response::default() });
    }

    /// Takes bytes for the host.
    fn output(&mut self, bytes: usize) -> Vec<u8> {
        let ready = self.connection.sender.ready();
        let taken = ready[..ready.len().min(bytes)].to_vec();
        self.connection.sender.advance(taken.len());
        taken
    }
}

/// Units that a command is about, so that no two commands under way are about the same.
fn is_free(busy: &HashMap<u16, (bool, usize, usize)>, first: usize, units: usize) -> bool {
    busy.values().all(|&(_, other, len)| first + units <= other || other + len <= first)
}

fn submit(write: bool, first: usize, data: Vec<u8>) -> (Sqe, Transfer) {
    let units = data.len() as u32 / UNIT;
    let sqe = if write { Sqe::write(0, first as u64, 0) } else { Sqe::read(0, first as u64, 0) };
    let transfer = if write { Transfer::Out(data) } else { Transfer::In(units * UNIT) };
    (sqe.with_dword(12, units), transfer)
}

proptest! {
    #[test]
    fn every_command_ends_once_with_its_own_data(
        steps in prop::collection::vec(step(), 1..150),
        digests in 0..4_u8,
        alignments in (0..32_u8, 0..32_u8),
        flow_control in any::<bool>(),
    ) {
        let asked = IcReq {
            alignment: alignments.0,
            header_digest: digests & 1 != 0,
            data_digest: digests & 2 != 0,
            r2t_max_zero_based: 0,
        };
        let mut session = Session::new(asked, ENTRIES - 1, 2_048);
        let mut engine = Engine::new(alignments.1, flow_control);
        engine.receive(&std::mem::take(session.output()));
        session.receive(&engine.output(usize::MAX)).unwrap();
        prop_assert!(session.is_initialized());
        prop_assert_eq!(session.digests(), (asked.header_digest, asked.data_digest));

        let mut model = vec![0_u8; UNITS * UNIT as usize];
        let mut busy = HashMap::new();
        let mut stamp = 0_u8;
        // When the steps are over, everything goes on until nothing is under way.
        let rest = (0..10_000).flat_map(|which| {
            let carry = |to_host| Step::Carry { to_host, bytes: 9_000 };
            [carry(false), Step::Work { which }, carry(true)]
        });
        let count = steps.len();
        for (n, step) in steps.into_iter().chain(rest).enumerate() {
            match step {
                Step::Submit { write, first, units } => {
                    let units = units.min(UNITS - first);
                    if is_free(&busy, first, units) && busy.len() < usize::from(ENTRIES - 1) {
                        stamp = stamp.wrapping_add(1);
                        let data: Vec<u8> =
                            (0..units * UNIT as usize).map(|i| stamp ^ (i / 7) as u8 ^ i as u8).collect();
                        let range = first * UNIT as usize..(first + units) * UNIT as usize;
                        if write {
                            model[range].copy_from_slice(&data);
                        }
                        let (sqe, transfer) = submit(write, first, data);
                        let cid = session.submit(sqe, transfer).unwrap();
                        prop_assert!(busy.insert(cid, (write, first, units)).is_none());
                    }
                }
                Step::Carry { to_host: false, bytes } => {
                    let out = session.output();
                    let piece: Vec<u8> = out.drain(..bytes.min(out.len())).collect();
                    engine.receive(&piece);
                }
                Step::Carry { to_host: true, bytes } => {
                    let piece = engine.output(bytes);
                    prop_assert_eq!(session.receive(&piece), Ok(()));
                }
                Step::Work { which } => engine.work(which),
            }
            while let Some(done) = session.completion() {
                let (write, first, units) = busy.remove(&done.cid).expect("a command ends once");
                prop_assert_eq!((done.status, done.value), (Status::SUCCESS, 0));
                let range = first * UNIT as usize..(first + units) * UNIT as usize;
                prop_assert!(write && done.data.is_empty() || done.data == model[range]);
            }
            if n >= count && busy.is_empty() {
                break;
            }
        }
        prop_assert!(busy.is_empty(), "{} commands never end", busy.len());
        prop_assert!(engine.units == model && engine.ended.is_none());
        prop_assert_eq!(engine.connection.commands.len(), 0);
        prop_assert_eq!(engine.connection.sender.len(), 0);
        prop_assert!(!engine.connection.pdus().1);
        prop_assert_eq!((engine.connection.due(), engine.connection.waiting()), (None, 0));
    }

    #[test]
    fn a_stream_with_wrong_bytes_ends_or_goes_on_and_nothing_panics(
        commands in prop::collection::vec((any::<bool>(), 0..UNITS, 1..12_usize), 1..8),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cuts in prop::collection::vec(1..700_usize, 1..5),
        header_digest in any::<bool>(),
        data_digest in any::<bool>(),
    ) {
        let asked = IcReq { alignment: 0, header_digest, data_digest, r2t_max_zero_based: 0 };
        let mut session = Session::new(asked, ENTRIES - 1, 2_048);
        let mut engine = Engine::new(0, false);
        engine.receive(&std::mem::take(session.output()));
        session.receive(&engine.output(usize::MAX)).unwrap();
        for (write, first, units) in commands {
            let units = units.min(UNITS - first);
            let (sqe, transfer) = submit(write, first, vec![1; units * UNIT as usize]);
            session.submit(sqe, transfer);
        }
        let mut stream = std::mem::take(session.output());
        for (at, value) in damage {
            // Headers are a small part of the stream, and the part that matters.
            let at = at.index(stream.len().min(400));
            stream[at] ^= value;
        }
        let mut cuts = cuts.into_iter().cycle();
        let mut rest = &stream[..];
        let mut answered = 0;
        while !rest.is_empty() && engine.ended.is_none() {
            let (piece, after) = rest.split_at(cuts.next().unwrap().min(rest.len()));
            rest = after;
            engine.receive(piece);
            for which in 0..40 {
                engine.work(which);
            }
            // What the controller says is well-formed whatever the host says; about what, the host may not know.
            let said = engine.output(usize::MAX);
            match session.receive(&said) {
                Ok(()) => {}
                Err(Refused::Controller(term)) => {
                    prop_assert!(FatalStatus::from_code(term.status).is_some());
                    prop_assert!(matches!(engine.ended, Some(Ending::Fatal(_))));
                }
                Err(Refused::Fatal(Fatal {
                    status: FatalStatus::InvalidHeaderField | FatalStatus::OutOfRange, ..
                })) => break,
                Err(other) => prop_assert!(false, "{other:?}"),
            }
            while session.completion().is_some() {
                answered += 1;
            }
            prop_assert!(answered <= usize::from(ENTRIES));
        }
        if engine.ended.is_some() {
            engine.receive(&[0xFF; 300]);
            prop_assert!(!engine.connection.pdus().1);
            prop_assert_eq!(engine.connection.due(), None);
        }
    }

    #[test]
    fn a_host_stands_whatever_a_controller_says(
        stream in prop::collection::vec(any::<u8>(), 0..400),
        shape in prop::collection::vec((0..10_u8, 0..16_u8, 0..200_u32), 0..6),
        cut in 1..100_usize,
        digests in any::<bool>(),
    ) {
        let asked = IcReq { alignment: 0, header_digest: digests, data_digest: digests, r2t_max_zero_based: 0 };
        let mut session = Session::new(asked, 4, 2_048);
        let mut engine = Engine::new(0, false);
        engine.receive(&std::mem::take(session.output()));
        session.receive(&engine.output(usize::MAX)).unwrap();
        for write in [false, true, false] {
            let (sqe, transfer) = submit(write, 0, vec![1; 8 * UNIT as usize]);
            session.submit(sqe, transfer).unwrap();
        }
        // Plausible headers among noise.
        let mut bytes = Vec::new();
        for ((kind, flags, plen), noise) in shape.into_iter().zip(stream.chunks(40).cycle()) {
            let hlen = match kind { 0 | 1 => 128, 4 => 72, _ => 24 };
            bytes.extend_from_slice(&[kind, flags, hlen, 24]);
            bytes.extend_from_slice(&plen.to_le_bytes());
            bytes.extend_from_slice(noise);
        }
        bytes.extend_from_slice(&stream);
        for piece in bytes.chunks(cut) {
            if session.receive(piece).is_err() {
                break;
            }
        }
        prop_assert!(session.outstanding() <= 4);
    }
}

#[test]
fn data_pointers_are_the_hosts_word() {
    // An engine that wants more than the host offers, and one that has more than the host takes.
    let mut session =
        Session::new(IcReq { alignment: 0, header_digest: false, data_digest: false, r2t_max_zero_based: 0 }, 4, 0);
    let mut engine = Engine::new(0, true);
    engine.receive(&std::mem::take(session.output()));
    session.receive(&engine.output(usize::MAX)).unwrap();
    session.submit(Sqe::write(0, 0, 0), Transfer::Out(vec![1; 512])).unwrap();
    session.submit(Sqe::read(0, 0, 0), Transfer::In(512)).unwrap();
    engine.receive(&std::mem::take(session.output()));
    let [write, read] = [engine.jobs[0].place, engine.jobs[1].place];
    assert_eq!(engine.connection.commands.at(write).pointer, DataPointer::Transport { len: 512 });
    assert_eq!(engine.connection.fetch(write, Some(Slot(0)), 513), Err(MoveError::Host));
    assert_eq!(engine.connection.fetch(write, Some(Slot(0)), 0), Ok(Some(&[][..])));
    for (at, len) in [(0, 513), (1, 512), (512, 1), (u32::MAX, 1), (1, u32::MAX)] {
        let called = engine.connection.data::<()>(read, at, len, |_| panic!("it is not taken"));
        assert_eq!(called, Err(MoveError::Host));
    }
    assert_eq!(engine.connection.data(read, 0, 512, |_| Err("not there")), Ok(Err("not there")));
    engine.connection.respond(read, Response { status: Status::UNRECOVERED_READ_ERROR, ..Response::default() });
    session.receive(&engine.output(usize::MAX)).unwrap();
    let done = session.completion().unwrap();
    assert_eq!((done.status, done.data.len()), (Status::UNRECOVERED_READ_ERROR, 0));
}
