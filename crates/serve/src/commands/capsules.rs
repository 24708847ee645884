//! Queue entries as NVMe/TCP capsules in a pcapng file, one TCP connection for each queue.
//!
//! The entries are those of the queues, byte by byte. What is around them is made up, so that a dissector of NVMe/TCP
//! knows queue and controller: addresses, connections, ICReq and ICResp, and Connect with its response. No data is in
//! the file. A command's pointer stays what it was: of a PCIe host, PRPs.

use super::pcapng::{LINK_TYPE_IPV4, Pcapng};
use super::segment::{From, Stream, flag};
use super::sink::Sink;
use std::collections::HashMap;
use std::io::{self, Write};
use tidewater_wire::fabrics::{CONTROLLER_ANY, Connect, ConnectData, DataPointer, Fabrics, Nqn, Response};
use tidewater_wire::nvme::{Cqe, Sqe};
use tidewater_wire::nvme_tcp::{Framing, IcReq, IcResp, MAXH2CDATA_MIN, Pdu};

/// Ports of hosts: the ephemeral ones (RFC 6335).
const PORT_FIRST: u16 = 49_152;
/// The command identifier of Connect.
const CONNECT_CID: u16 = 0xFFFE;
/// Entries of a queue, as Connect tells it.
const ENTRIES: u16 = 128;
const PUSH: u8 = flag::PSH | flag::ACK;

/// Writes packets.
pub(super) struct Capsules<W> {
    file: Pcapng<W>,
    nqn: Option<Nqn>,
    streams: HashMap<(u8, u16), Stream>,
    port: u16,
    packets: u64,
    dropped: u64,
    /// Dropped since the last packet.
    missing: u64,
}

impl<W: Write> Capsules<W> {
    pub(super) fn begin(out: W, nanos: u64, nqn: &str) -> io::Result<Capsules<W>> {
        let program = concat!("Tidewater ", env!("CARGO_PKG_VERSION"));
        let comment = format!(
            "NVMe commands and completions of {nqn}, a TCP connection for each queue. Addresses, TCP and Connect are \
             made up; queue entries are as they were, without data. Begun at {nanos} ns of Unix time."
        );
        let file = Pcapng::begin(out, LINK_TYPE_IPV4, program, &comment)?;
        let nqn = Nqn::new(nqn);
        Ok(Capsules { file, nqn, streams: HashMap::new(), port: PORT_FIRST, packets: 0, dropped: 0, missing: 0 })
    }

    fn packet(&mut self, nanos: u64, bytes: &[u8]) -> io::Result<()> {
        self.packets += 1;
        self.file.packet(nanos, bytes, std::mem::take(&mut self.missing))
    }

    /// A PDU of a queue, whose connection is opened if it is not.
    fn pdu(&mut self, nanos: u64, (function, queue): (u8, u16), from: From, pdu: &Pdu) -> io::Result<()> {
        let mut stream = match self.streams.get(&(function, queue)) {
            Some(stream) => *stream,
            None => self.open(nanos, function, queue)?,
        };
        let packet = stream.packet(from, PUSH, &bytes_of(pdu, &[]));
        self.streams.insert((function, queue), stream);
        self.packet(nanos, &packet)
    }

    /// The begin of a connection, up to the response to Connect.
    fn open(&mut self, nanos: u64, function: u8, queue: u16) -> io::Result<Stream> {
        let mut stream = Stream::new(function, self.port);
        self.port = self.port.checked_add(1).unwrap_or(PORT_FIRST);
        let mut packets = vec![
            stream.packet(From::Host, flag::SYN, &[]),
            stream.packet(From::Device, flag::SYN | flag::ACK, &[]),
            stream.packet(From::Host, flag::ACK, &[]),
        ];
        let request = IcReq { alignment: 0, header_digest: false, data_digest: false, r2t_max_zero_based: 0 };
        let response = IcResp { alignment: 0, header_digest: false, data_digest: false, data_max: MAXH2CDATA_MIN };
        packets.push(stream.packet(From::Host, PUSH, &bytes_of(&Pdu::IcReq(request), &[])));
        packets.push(stream.packet(From::Device, PUSH, &bytes_of(&Pdu::IcResp(response), &[])));
        if let Some(subsystem) = self.nqn.clone() {
            let connect = Connect {
                queue,
                entries_zero_based: ENTRIES - 1,
                no_flow_control: false,
                deletes_queues: false,
                keep_alive_ms: 0,
            };
            let controller = if queue == 0 { CONTROLLER_ANY } else { function.into() };
            let host_id = [function.saturating_add(1); 16];
            let data = ConnectData { host_id, controller, subsystem, host: None }.to_bytes();
            let pointer = DataPointer::Capsule { offset: 0, len: ConnectData::SIZE as u32 };
            let sqe = pointer.put(Fabrics::Connect(connect).emit(CONNECT_CID));
            packets.push(stream.packet(From::Host, PUSH, &bytes_of(&Pdu::CapsuleCmd(sqe), &data)));
            let answer = Response { value: function.into(), sq_head: 1, cid: CONNECT_CID, ..Response::default() };
            packets.push(stream.packet(From::Device, PUSH, &bytes_of(&Pdu::CapsuleResp(answer.to_bytes()), &[])));
        }
        packets.iter().try_for_each(|packet| self.packet(nanos, packet))?;
        Ok(stream)
    }

    fn close(&mut self, nanos: u64, mut stream: Stream) -> io::Result<()> {
        for (from, flags) in
            [(From::Host, flag::FIN | flag::ACK), (From::Device, flag::FIN | flag::ACK), (From::Host, flag::ACK)]
        {
            let packet = stream.packet(from, flags, &[]);
            self.packet(nanos, &packet)?;
        }
        Ok(())
    }

    /// Closes connections, in the order of their queues.
    fn close_all(&mut self, nanos: u64, is_gone: impl Fn(u8, u16) -> bool) -> io::Result<()> {
        let mut gone: Vec<(u8, u16)> = self.streams.keys().copied().filter(|&(f, q)| is_gone(f, q)).collect();
        gone.sort_unstable();
        for key in gone {
            if let Some(stream) = self.streams.remove(&key) {
                self.close(nanos, stream)?;
            }
        }
        Ok(())
    }
}

fn bytes_of(pdu: &Pdu, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    pdu.append(&Framing::default(), data, &mut bytes);
    bytes
}

impl<W: Write + Send> Sink for Capsules<W> {
    fn begun(&mut self, nanos: u64, function: u8, queue: u16, sqe: &Sqe) -> io::Result<()> {
        self.pdu(nanos, (function, queue), From::Host, &Pdu::CapsuleCmd(*sqe))
    }

    fn ended(&mut self, nanos: u64, function: u8, queue: u16, cqe: &Cqe, _: Option<(&Sqe, u64)>) -> io::Result<()> {
        self.pdu(nanos, (function, queue), From::Device, &Pdu::CapsuleResp(cqe.to_bytes()))
    }

    fn gone(&mut self, nanos: u64, function: u8, queue: Option<u16>, _: usize) -> io::Result<()> {
        self.close_all(nanos, |of, number| of == function && queue.is_none_or(|queue| queue == number))
    }

    fn dropped(&mut self, count: u64) -> io::Result<()> {
        self.dropped += count;
        self.missing += count;
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    fn end(&mut self, nanos: u64) -> io::Result<()> {
        self.close_all(nanos, |_, _| true)?;
        self.file.statistics(nanos, self.packets + self.dropped, self.dropped)
    }
}
