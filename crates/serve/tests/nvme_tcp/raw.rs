//! A host that sends whatever it likes, byte by byte.

use crate::nvme_tcp::mock::{nqn, subsystem};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use tidewater_testkit::PATIENCE;
use tidewater_wire::fabrics::{
    CONTROLLER_ANY, Connect, ConnectData, DataPointer, Fabrics, PropertySet, Response, property,
};
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::nvme_tcp::{CommonHeader, Framing, IcReq, Pdu, Receiver, Rules, TERM_DATA_BYTES_MAX};

pub const PLAIN: IcReq = IcReq { alignment: 0, header_digest: false, data_digest: false, r2t_max_zero_based: 0 };

/// What came back.
#[derive(Debug, PartialEq)]
pub enum Reply {
    /// A PDU, and its data.
    Pdu(Pdu, Vec<u8>),
    /// The stream has ended.
    End,
}

pub struct Raw {
    stream: TcpStream,
    pub framing: Framing,
}

pub fn connect_data(controller: u16) -> ConnectData {
    let host = Some(nqn("nqn.2026-01.io.example:raw"));
    ConnectData { host_id: [9; 16], controller, subsystem: subsystem(), host }
}

pub fn connect_command(queue: u16) -> Sqe {
    let connect =
        Connect { queue, entries_zero_based: 15, no_flow_control: true, deletes_queues: false, keep_alive_ms: 0 };
    DataPointer::Capsule { offset: 0, len: ConnectData::SIZE as u32 }.put(Fabrics::Connect(connect).emit(0x77))
}

impl Raw {
    /// A socket, and nothing more.
    pub fn open(address: SocketAddr) -> Raw {
        Raw::over(TcpStream::connect(address).unwrap())
    }

    fn over(stream: TcpStream) -> Raw {
        stream.set_nodelay(true).unwrap();
        // Whatever takes longer is a hang.
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Raw { stream, framing: Framing::default() }
    }

    /// The same, from another loopback address.
    pub fn open_from(from: [u8; 4], address: SocketAddr) -> Raw {
        use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};
        use std::os::fd::AsRawFd;
        let SocketAddr::V4(address) = address else { panic!("{address} is not IPv4") };
        let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        let [a, b, c, d] = from;
        bind(socket.as_raw_fd(), &SockaddrIn::new(a, b, c, d, 0)).unwrap();
        connect(socket.as_raw_fd(), &SockaddrIn::from(address)).unwrap();
        Raw::over(TcpStream::from(socket))
    }

    /// A connection whose digests and alignments are agreed.
    pub fn initialized(address: SocketAddr, ask: IcReq) -> Raw {
        Raw::initialize(Raw::open(address), ask)
    }

    /// Agrees on digests and alignments.
    pub fn initialize(mut raw: Raw, ask: IcReq) -> Raw {
        raw.send(&Pdu::IcReq(ask), &[]);
        let Reply::Pdu(Pdu::IcResp(answer), _) = raw.receive() else { panic!("no ICResp") };
        raw.framing = Framing {
            header_digest: answer.header_digest,
            data_digest: answer.data_digest,
            alignment: answer.alignment,
        };
        raw
    }

    /// An admin queue; the controller is enabled. Tells its identifier.
    pub fn admin(address: SocketAddr, ask: IcReq) -> (Raw, u16) {
        let mut raw = Raw::initialized(address, ask);
        raw.send(&Pdu::CapsuleCmd(connect_command(0)), &connect_data(CONTROLLER_ANY).to_bytes());
        let response = raw.response();
        assert_eq!(response.status, Status::SUCCESS);
        let enable = PropertySet { offset: property::CC, len: 4, value: 0x0046_0001 };
        let enable = DataPointer::Transport { len: 0 }.put(Fabrics::PropertySet(enable).emit(1));
        raw.send(&Pdu::CapsuleCmd(enable), &[]);
        assert_eq!(raw.response().status, Status::SUCCESS);
        (raw, response.value as u16)
    }

    /// I/O queue 1 of a controller of its own, whose admin queue comes first.
    pub fn queue(address: SocketAddr, ask: IcReq) -> (Raw, Raw) {
        let (admin, id) = Raw::admin(address, ask);
        let mut raw = Raw::initialized(address, ask);
        raw.send(&Pdu::CapsuleCmd(connect_command(1)), &connect_data(id).to_bytes());
        assert_eq!(raw.response().status, Status::SUCCESS);
        (admin, raw)
    }

    pub fn bytes(&self, pdu: &Pdu, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        pdu.append(&self.framing, data, &mut bytes);
        bytes
    }

    pub fn send(&mut self, pdu: &Pdu, data: &[u8]) {
        let bytes = self.bytes(pdu, data);
        self.send_bytes(&bytes);
    }

    /// Sends bytes; the other side may be gone already.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        match self.stream.write_all(bytes) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
            Err(error) => panic!("the target does not take bytes: {error}"),
        }
    }

    fn read(&mut self, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        match self.stream.read_exact(&mut bytes) {
            Ok(()) => Some(bytes),
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => None,
            Err(error) => panic!("the target says nothing: {error}"),
        }
    }

    /// Takes bytes, whatever they are.
    pub fn take(&mut self, len: usize) {
        self.read(len).expect("bytes wait");
    }

    /// The next PDU, in the framing that was agreed.
    pub fn receive(&mut self) -> Reply {
        let Some(mut bytes) = self.read(8) else { return Reply::End };
        let rules = Rules {
            receiver: Receiver::Host,
            framing: Framing { alignment: 0, ..self.framing },
            capsule_data_max: 0,
            data_max: 1 << 24,
        };
        let layout = CommonHeader::from_bytes(bytes.first_chunk().unwrap()).layout(&rules).unwrap();
        let Some(rest) = self.read(layout.total() as usize - 8) else { return Reply::End };
        bytes.extend_from_slice(&rest);
        let pdu = Pdu::parse(&bytes[..layout.head()], &layout).unwrap();
        let from = layout.head() + layout.padding;
        Reply::Pdu(pdu, bytes[from..from + layout.data as usize].to_vec())
    }

    /// The next PDU, which is a response.
    pub fn response(&mut self) -> Response {
        match self.receive() {
            Reply::Pdu(Pdu::CapsuleResp(entry), _) => Response::from_bytes(&entry),
            other => panic!("no response: {other:?}"),
        }
    }

    /// The next PDU ends the connection: status and information; and it quotes what was wrong.
    pub fn fatal(&mut self, sent: &[u8]) -> (u16, u32) {
        match self.receive() {
            Reply::Pdu(Pdu::C2hTermReq(term), quoted) => {
                assert!(quoted.len() >= 8 && quoted.len() <= TERM_DATA_BYTES_MAX, "{} bytes quoted", quoted.len());
                assert!(sent.starts_with(&quoted), "{quoted:?} of {sent:?}");
                assert_eq!(self.receive(), Reply::End);
                (term.status, term.information)
            }
            other => panic!("no termination request: {other:?}"),
        }
    }
}
