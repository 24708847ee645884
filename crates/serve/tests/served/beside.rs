//! A remote host that does not send what it is asked for, beside another one and beside a function of vfio-user.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tidewater_core::profile::Timing;
use tidewater_driver::nvme_tcp::{self as initiator, Controller, Transfer};
use tidewater_serve::control::Request;
use tidewater_serve::engine::{Backing, TcpSetup};
use tidewater_testkit::PATIENCE;
use tidewater_testkit::served::{BLOCK, Drive, Host, setup, tiny};
use tidewater_wire::fabrics::{
    CONTROLLER_ANY, Connect, ConnectData, DataPointer, Fabrics, Nqn, PropertySet, Response, property,
};
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::nvme_tcp::{CommonHeader, DataPdu, Framing, IcReq, Pdu, Receiver, Rules};

/// Reads that are counted beside a hostile host: each of them would take as long as it likes.
const READS: u32 = 300;
/// Bytes of a write that the hostile host does not send.
const WITHHELD: u32 = 4_096;
/// How long the hostile host keeps still before it is given up: what a read must not wait for.
const STILL: Duration = Duration::from_secs(30);

/// One queue of a host that sends PDUs as it likes.
struct Raw(TcpStream);

impl Raw {
    fn connect(address: SocketAddr, subsystem: &Nqn, controller: u16, queue: u16) -> (Raw, u16) {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut raw = Raw(stream);
        let ask = IcReq { alignment: 0, header_digest: false, data_digest: false, r2t_max_zero_based: 0 };
        raw.send(&Pdu::IcReq(ask), &[]);
        assert!(matches!(raw.receive(), Pdu::IcResp(_)));
        let connect = Connect {
            queue,
            entries_zero_based: if queue == 0 { 31 } else { 63 },
            no_flow_control: true,
            deletes_queues: false,
            keep_alive_ms: 0,
        };
        let host = Nqn::new("nqn.2026-01.io.example:hostile");
        let data = ConnectData { host_id: [9; 16], controller, subsystem: subsystem.clone(), host };
        let pointer = DataPointer::Capsule { offset: 0, len: ConnectData::SIZE as u32 };
        raw.send(&Pdu::CapsuleCmd(pointer.put(Fabrics::Connect(connect).emit(1))), &data.to_bytes());
        let id = raw.response();
        (raw, id)
    }

    fn send(&mut self, pdu: &Pdu, data: &[u8]) {
        let mut bytes = Vec::new();
        pdu.append(&Framing::default(), data, &mut bytes);
        // The device may have ended it.
        let _ = self.0.write_all(&bytes);
    }

    fn receive(&mut self) -> Pdu {
        let rules =
            Rules { receiver: Receiver::Host, framing: Framing::default(), capsule_data_max: 0, data_max: 1 << 24 };
        let mut bytes = vec![0; 8];
        self.0.read_exact(&mut bytes).unwrap();
        let layout = CommonHeader::from_bytes(bytes.first_chunk().unwrap()).layout(&rules).unwrap();
        bytes.resize(layout.total() as usize, 0);
        self.0.read_exact(&mut bytes[8..]).unwrap();
        Pdu::parse(&bytes[..layout.head()], &layout).unwrap()
    }

    fn response(&mut self) -> u16 {
        let Pdu::CapsuleResp(entry) = self.receive() else { panic!("no response") };
        let response = Response::from_bytes(&entry);
        assert_eq!(response.status, Status::SUCCESS);
        response.value as u16
    }
}

/// A host that asks for writes on several queues, and sends none of the data: only 4 bytes of one of them, each time it
/// is asked.
struct Hostile {
    queues: Vec<Raw>,
    _admin: Raw,
    tag: u16,
    offset: u32,
}

impl Hostile {
    fn attach(address: SocketAddr, subsystem: &Nqn) -> Hostile {
        let (mut admin, id) = Raw::connect(address, subsystem, CONTROLLER_ANY, 0);
        let enable = Fabrics::PropertySet(PropertySet { offset: property::CC, len: 4, value: 0x0046_0001 }).emit(2);
        admin.send(&Pdu::CapsuleCmd(enable), &[]);
        admin.response();
        let mut queues: Vec<_> = (1..=2).map(|queue| Raw::connect(address, subsystem, id, queue).0).collect();
        let mut tag = None;
        for queue in &mut queues {
            for cid in 0..63 {
                let write = DataPointer::Transport { len: WITHHELD }.put(Sqe::write(cid, 64 + u64::from(cid) * 8, 7));
                queue.send(&Pdu::CapsuleCmd(write), &[]);
            }
            // The first queue is asked for data before the second one sends anything.
            tag = tag.or_else(|| match queue.receive() {
                Pdu::R2t(r2t) => Some(r2t.tag),
                other => panic!("no R2T: {other:?}"),
            });
        }
        Hostile { queues, _admin: admin, tag: tag.expect("there are queues"), offset: 0 }
    }

    fn drip(&mut self) {
        let data = DataPdu { cid: 0, tag: self.tag, offset: self.offset, len: 4, last: false, success: false };
        self.queues[0].send(&Pdu::H2cData(data), &[0; 4]);
        self.offset += 4;
    }

    /// It is there still, and waits.
    fn is_there(&mut self) -> bool {
        let stream = &self.queues[1].0;
        stream.set_nonblocking(true).unwrap();
        let mut bytes = [0; 24];
        loop {
            match (&self.queues[1].0).read(&mut bytes) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
            }
        }
    }
}

/// Reads in a second, and the longest one.
fn rate(mut read: impl FnMut(), mut beside: impl FnMut()) -> (f64, Duration) {
    let (begin, mut longest) = (Instant::now(), Duration::ZERO);
    for i in 0..READS {
        if i % 10 == 0 {
            beside();
        }
        let each = Instant::now();
        read();
        longest = longest.max(each.elapsed());
    }
    (f64::from(READS) / begin.elapsed().as_secs_f64(), longest)
}

fn loopback() -> TcpSetup {
    TcpSetup {
        address: "127.0.0.1:0".parse().unwrap(),
        advertise: None,
        insecure_bind: false,
        allowed_hosts: Vec::new(),
        allow_destructive: false,
    }
}

/// Where a drive is, and a remote host's controller with a queue.
fn good(drive: &Drive) -> (SocketAddr, Nqn, Controller, initiator::Queue) {
    let (address, name) = drive.ready.nvme_tcp.clone().expect("it is served by NVMe/TCP");
    let subsystem = Nqn::new(&name).unwrap();
    let remote = initiator::Host {
        time_out: PATIENCE,
        ..initiator::Host::new(Nqn::new("nqn.2026-01.io.example:good").unwrap(), [3; 16])
    };
    let mut controller = Controller::connect(address, &remote, &subsystem).unwrap();
    controller.enable().unwrap();
    let queue = controller.queue(1, 32).unwrap();
    (address, subsystem, controller, queue)
}

/// At the model's pace, the device waits for what is due next, and for hosts meanwhile: with a command that waits for
/// its host, it looked at no connection until then.
#[test]
fn what_is_due_much_later_keeps_no_remote_host_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let mut setup = setup(tiny(Timing::Model), folder.path(), Backing::Memory, 1);
    setup.nvme_tcp = Some(loopback());
    let drive = Drive::start(&setup);
    let mut function = Host::attach(&drive, 0);
    let (address, subsystem, controller, mut queue) = good(&drive);
    let hostile = Hostile::attach(address, &subsystem);
    // A completion that comes in a day.
    drive.ask(&Request::FaultDelay { function: 0, by_ns: 86_400_000_000_000, count: 1 });
    assert!(function.pair.submit(&Sqe::flush(1).with_nsid(1)));
    function.pair.ring().unwrap();
    let begin = Instant::now();
    while drive.ask(&Request::FaultList)["faults"].as_array().is_some_and(|armed| !armed.is_empty()) {
        assert!(begin.elapsed() < PATIENCE, "the flush is not delayed");
        std::thread::yield_now();
    }
    for _ in 0..10 {
        queue.call(Sqe::read(0, 0, 7), Transfer::In(8 * BLOCK as u32)).unwrap().good().unwrap();
    }
    drop((hostile, queue, controller, function));
    drive.stop();
}

/// Without a share of the slots for each controller, one read takes as long as the hostile host keeps still: half a
/// minute.
#[test]
fn a_host_that_withholds_data_stops_no_other() {
    for (timing, hosts) in [(Timing::None, 1), (Timing::None, 4), (Timing::Model, 1)] {
        let folder = tempfile::tempdir().unwrap();
        let mut setup = setup(tiny(timing), folder.path(), Backing::Memory, 1);
        setup.nvme_tcp = Some(loopback());
        let drive = Drive::start(&setup);
        let mut function = Host::attach(&drive, 0);
        let (address, subsystem, controller, mut queue) = good(&drive);
        let mut by_tcp = || {
            queue.call(Sqe::read(0, 0, 7), Transfer::In(8 * BLOCK as u32)).unwrap().good().unwrap();
        };
        let mut by_function = || drop(function.read(0, 8 * BLOCK));
        let alone = (rate(&mut by_tcp, || {}), rate(&mut by_function, || {}));
        let mut hostile: Vec<_> = (0..hosts).map(|_| Hostile::attach(address, &subsystem)).collect();
        let beside = (rate(&mut by_tcp, || hostile[0].drip()), rate(&mut by_function, || hostile[0].drip()));
        assert!(hostile.iter_mut().all(Hostile::is_there), "they were beside");
        for (what, alone, beside) in [("NVMe/TCP", alone.0, beside.0), ("vfio-user", alone.1, beside.1)] {
            println!(
                "{timing:?}, {hosts} hostile, {what}: alone {:.0} reads/s (longest {:?}), beside {:.0} reads/s \
                 (longest {:?})",
                alone.0, alone.1, beside.0, beside.1
            );
        }
        let longest = beside.0.1.max(beside.1.1);
        assert!(longest < STILL / 2, "a read took {longest:?}");
        drop(hostile);
        drop((queue, controller, function));
        drive.stop();
    }
}
