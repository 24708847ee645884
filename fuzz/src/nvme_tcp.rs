//! An NVMe/TCP connection: whatever a host sends, the next one is served.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{LazyLock, Mutex, PoisonError};
use tidewater_base::{Duration, Instant};
use tidewater_core::subsystem::{Input, MoveError, Slot};
use tidewater_driver::nvme_tcp::{Session, Transfer};
use tidewater_serve::nvme_tcp::{Border, CommandId, Options, Target};
use tidewater_wire::fabrics::{CONTROLLER_ANY, Connect, ConnectData, DataPointer, Fabrics, Nqn, PropertySet, property};
use tidewater_wire::nvme::{Cqe, Sqe, Status, opcode};
use tidewater_wire::nvme_tcp::{Framing, IcReq, IcResp, Pdu};

const SUBSYSTEM: &str = "nqn.2026-01.io.example:tidewater";
/// Bytes of a block of its namespace.
const BLOCK: u32 = 512;
/// Turns of the engine after each piece of input.
const TURNS: usize = 4;
/// Turns in which a good host must have its answer.
const TURNS_MAX: usize = 10_000;

/// An engine that carries out everything at once, and keeps nothing.
#[derive(Default)]
struct Engine {
    configuration: u64,
    inbox: VecDeque<(CommandId, Sqe)>,
    /// Writes whose data is on the way.
    writes: Vec<(Slot, CommandId)>,
    moved: Vec<(Slot, Result<(), MoveError>)>,
    gone: Vec<u8>,
    gone_queues: Vec<(u8, u16)>,
    next_slot: u16,
}

impl Border for Engine {
    fn input(&mut self, input: Input<'_>) {
        match input {
            Input::Capsule { function, queue, sqe } => {
                self.inbox.push_back((CommandId { function, queue, cid: sqe.cid() }, sqe));
            }
            Input::DisconnectQueue { function, queue } => {
                self.inbox.retain(|(command, _)| (command.function, command.queue) != (function, queue));
                self.gone_queues.push((function, queue));
            }
            Input::Disconnect { function } => {
                self.inbox.retain(|(command, _)| command.function != function);
                self.gone.push(function);
            }
            Input::Register { offset: property::CC, value, .. } => self.configuration = value,
            Input::Moved { slot, result } => self.moved.push((slot, result)),
            _ => {}
        }
    }

    fn register(&mut self, _: u8, offset: u32, _: u8) -> u64 {
        match offset {
            property::CAP => 255 | 1 << 16 | 4 << 24 | 1 << 37,
            property::CC => self.configuration,
            property::CSTS => self.configuration & 1,
            _ => 0,
        }
    }

    fn controller_id(&self, function: u8) -> u16 {
        u16::from(function) + 1
    }

    fn stage(&mut self, slot: Slot, _: u32, _: &[u8]) {
        assert!(self.writes.iter().any(|(waits, _)| *waits == slot), "bytes come for a slot that waits");
    }
}

impl Engine {
    fn work(&mut self, target: &mut Target) {
        let complete = |target: &mut Target, command: CommandId, status: Status| {
            let cqe = Cqe { cid: command.cid, sq_id: command.queue, status, ..Cqe::default() };
            target.complete(command.function, command.queue, &cqe);
        };
        for (slot, result) in std::mem::take(&mut self.moved) {
            let at = self.writes.iter().position(|(waits, _)| *waits == slot).expect("a slot is moved once");
            let (_, command) = self.writes.swap_remove(at);
            complete(target, command, if result.is_ok() { Status::SUCCESS } else { Status::DATA_TRANSFER_ERROR });
        }
        while let Some((command, sqe)) = self.inbox.pop_front() {
            let len = ((sqe.cdw12() & 0xFF) + 1) * BLOCK;
            match sqe.opcode() {
                opcode::WRITE => {
                    let slot = Slot(self.next_slot);
                    self.next_slot = self.next_slot.wrapping_add(1);
                    match target.fetch(command, slot, len) {
                        Ok(Some(bytes)) => {
                            assert_eq!(bytes.len(), len as usize);
                            complete(target, command, Status::SUCCESS);
                        }
                        Ok(None) => self.writes.push((slot, command)),
                        Err(_) => complete(target, command, Status::DATA_TRANSFER_ERROR),
                    }
                }
                opcode::READ => {
                    let sent = target.data(command, 0, len, |out| {
                        out.fill(0x5A);
                        Ok(())
                    });
                    complete(target, command, if sent.is_ok() { Status::SUCCESS } else { Status::DATA_TRANSFER_ERROR });
                }
                _ => complete(target, command, Status::INVALID_OPCODE),
            }
        }
        // What waited for data of theirs has ended above.
        for (function, queue) in std::mem::take(&mut self.gone_queues) {
            target.queue_gone(function, queue);
        }
        for function in std::mem::take(&mut self.gone) {
            target.gone(function);
        }
    }
}

/// One target for all inputs: what one leaves behind, the next one meets.
struct Bench {
    target: Target,
    engine: Engine,
    address: SocketAddr,
    now: Instant,
}

static BENCH: LazyLock<Mutex<Bench>> = LazyLock::new(|| {
    let options = Options::new(nqn(SUBSYSTEM), 1..200);
    let target = Target::bind(options).expect("a free port");
    let address = target.addresses()[0];
    Mutex::new(Bench { target, engine: Engine::default(), address, now: Instant::ZERO })
});

fn nqn(name: &str) -> Nqn {
    Nqn::new(name).expect("it is a name")
}

impl Bench {
    fn turn(&mut self, times: usize) {
        for _ in 0..times {
            self.now += Duration::from_us(10);
            self.target.poll(self.now, &mut self.engine);
            self.engine.work(&mut self.target);
            self.target.flush();
        }
    }

    fn connect(&mut self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("the target listens");
        stream.set_nonblocking(true).expect("a socket can be that");
        self.turn(1);
        stream
    }

    /// Sends bytes, in pieces of at most `piece`, and throws away what comes back. False: the target has closed the
    /// connection.
    fn send(&mut self, stream: &mut TcpStream, mut bytes: &[u8], piece: usize) -> bool {
        let mut scratch = [0; 4_096];
        while !bytes.is_empty() {
            match stream.write(&bytes[..piece.min(bytes.len())]) {
                Ok(len) => bytes = &bytes[len..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
            self.turn(TURNS);
            loop {
                match stream.read(&mut scratch) {
                    Ok(0) => return false,
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(_) => return false,
                }
            }
        }
        true
    }
}

/// ICReq; and Connect of an admin queue, which enables its controller.
fn opening(connect: bool) -> Vec<u8> {
    let asked = IcReq { alignment: 0, header_digest: false, data_digest: false, r2t_max_zero_based: 0 };
    let framing = Framing::default();
    let mut bytes = Vec::new();
    Pdu::IcReq(asked).append(&framing, &[], &mut bytes);
    if connect {
        let command = Connect {
            queue: 0,
            entries_zero_based: 15,
            no_flow_control: true,
            deletes_queues: false,
            keep_alive_ms: 0,
        };
        let host = Some(nqn("nqn.2026-01.io.example:fuzz"));
        let data = ConnectData { host_id: [9; 16], controller: CONTROLLER_ANY, subsystem: nqn(SUBSYSTEM), host };
        let pointer = DataPointer::Capsule { offset: 0, len: ConnectData::SIZE as u32 };
        let sqe = pointer.put(Fabrics::Connect(command).emit(0));
        Pdu::CapsuleCmd(sqe).append(&framing, &data.to_bytes(), &mut bytes);
        let enable = PropertySet { offset: property::CC, len: 4, value: 0x0046_0001 };
        let sqe = DataPointer::Transport { len: 0 }.put(Fabrics::PropertySet(enable).emit(1));
        Pdu::CapsuleCmd(sqe).append(&framing, &[], &mut bytes);
    }
    bytes
}

/// Bytes of a host, at different places of a connection's life; and of a controller, for the initiator.
pub fn nvme_tcp(data: &[u8]) {
    let Some((&how, rest)) = data.split_first() else { return };
    if how & 3 == 3 {
        return initiator(rest);
    }
    let mut bench = BENCH.lock().unwrap_or_else(PoisonError::into_inner);
    let piece = if how & 4 != 0 { 7 } else { 1 << 16 };
    let mut stream = bench.connect();
    let opened = how & 3 == 0 || {
        let bytes = opening(how & 3 == 2);
        bench.send(&mut stream, &bytes, 1 << 16)
    };
    if opened {
        bench.send(&mut stream, &rest[..rest.len().min(8 << 10)], piece);
    }
    drop(stream);
    bench.turn(TURNS);
    // A host that does all right is served.
    let mut good = bench.connect();
    let bytes = opening(true);
    assert!(good.write(&bytes).is_ok_and(|len| len == bytes.len()), "a fresh socket takes it");
    // ICResp, and two responses.
    let (wanted, mut came) = (128 + 2 * 24, 0);
    let mut scratch = [0; 4_096];
    for _ in 0..TURNS_MAX {
        bench.turn(1);
        match good.read(&mut scratch) {
            Ok(0) => panic!("a good host is turned away after {came} bytes"),
            Ok(len) => came += len,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}"),
        }
        if came >= wanted {
            drop(good);
            return bench.turn(TURNS);
        }
    }
    panic!("a good host waits: {came} of {wanted} bytes came");
}

/// The other side: whatever a controller says.
fn initiator(data: &[u8]) {
    let asked = IcReq { alignment: 0, header_digest: true, data_digest: true, r2t_max_zero_based: 0 };
    let mut session = Session::new(asked, 15, 8_192);
    let Some((&how, data)) = data.split_first() else { return };
    if how & 1 != 0 {
        let answer = IcResp { alignment: 0, header_digest: how & 2 != 0, data_digest: how & 4 != 0, data_max: 8_192 };
        let mut bytes = Vec::new();
        Pdu::IcResp(answer).append(&Framing::default(), &[], &mut bytes);
        session.receive(&bytes).expect("it is a good answer");
    }
    // Commands come behind the answer to ICReq.
    for cid in 0..if session.is_initialized() { 4 } else { 0 } {
        let transfer = if cid & 1 == 0 { Transfer::In(4_096) } else { Transfer::Out(vec![cid; 10_000]) };
        let _ = session.submit(Sqe::read(0, 0, 7), transfer);
    }
    for piece in data.chunks(100) {
        session.output().clear();
        if session.receive(piece).is_err() {
            return;
        }
        while session.completion().is_some() {}
    }
}
