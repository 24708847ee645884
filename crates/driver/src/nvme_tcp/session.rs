//! One queue as its host sees it: commands and bytes in, completions and bytes out. It does no I/O.

use super::queue::Completion;
use std::collections::VecDeque;
use tidewater_wire::fabrics::{DataPointer, OPCODE, Response};
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::nvme_tcp::{
    ADMIN_CAPSULE_DATA_BYTES, DataPdu, Fatal, FatalStatus, Framing, IcReq, Pdu, Piece, R2t, Reader, Receiver, Rules,
    TermReq, offset,
};

/// Bytes of one C2HData PDU that are taken, at most: more than any command moves.
const DATA_PDU_BYTES_MAX: u32 = 64 << 20;
/// Spent buffers that are kept for the next commands.
const BUFFERS_KEPT: usize = 256;

/// The data of a command.
#[derive(Debug)]
pub enum Transfer {
    /// None.
    None,
    /// To the host: so many bytes.
    In(u32),
    /// From the host.
    Out(Vec<u8>),
}

/// Why a connection can't go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The controller did what the transport does not allow; a termination request says so.
    Fatal(Fatal),
    /// The controller ended the connection, and said why.
    Controller(TermReq),
}

#[derive(Debug, Default)]
struct Pending {
    used: bool,
    /// Bytes that the command brings to the host.
    expected: u32,
    /// Data to the host, so far; or data from the host.
    data: Vec<u8>,
    out: bool,
}

/// A host's side of a connection.
pub struct Session {
    reader: Reader,
    framing: Framing,
    asked: IcReq,
    initialized: bool,
    /// The commands, each at the place of its identifier.
    pending: Vec<Pending>,
    free: Vec<u16>,
    /// Bytes of an H2CData PDU, at most.
    data_max: u32,
    capsule_data_max: u32,
    incoming: Option<DataPdu>,
    terminated: Option<TermReq>,
    damaged: Vec<u16>,
    out: Vec<u8>,
    done: VecDeque<Completion>,
    buffers: Vec<Vec<u8>>,
}

impl Session {
    /// A session for `commands` commands at once, 1 to 32,768, that begins with this request. `capsule_data_max`: bytes
    /// of data that I/O commands bring along, as IOCCSZ of Identify Controller allows.
    pub fn new(asked: IcReq, commands: u16, capsule_data_max: u32) -> Session {
        let rules = Rules {
            receiver: Receiver::Host,
            framing: Framing::default(),
            capsule_data_max: 0,
            data_max: DATA_PDU_BYTES_MAX,
        };
        let mut out = Vec::new();
        Pdu::IcReq(asked).append(&Framing::default(), &[], &mut out);
        Session {
            reader: Reader::new(rules),
            framing: Framing::default(),
            asked,
            initialized: false,
            pending: (0..commands).map(|_| Pending::default()).collect(),
            free: (0..commands).rev().collect(),
            data_max: 0,
            capsule_data_max,
            incoming: None,
            terminated: None,
            damaged: Vec::new(),
            out,
            done: VecDeque::new(),
            buffers: Vec::new(),
        }
    }

    /// Whether the controller has answered the request: only then are commands sent.
    pub fn is_initialized(&self) -> bool {
        self.initialized
    }

    /// Header and data digests, as agreed.
    pub fn digests(&self) -> (bool, bool) {
        (self.framing.header_digest, self.framing.data_digest)
    }

    /// Commands that are under way.
    pub fn outstanding(&self) -> usize {
        self.pending.len() - self.free.len()
    }

    /// Bytes for the controller, which the caller takes out.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Sends a command, whose identifier and data pointer are set here. Tells the identifier; `None`: as many as the
    /// session was made for are under way. Asserts that the session is initialized.
    pub fn submit(&mut self, sqe: Sqe, transfer: Transfer) -> Option<u16> {
        assert!(self.initialized, "commands come after ICResp");
        let cid = self.free.pop()?;
        let sqe = sqe.with_cid(cid);
        let spare = self.buffers.pop();
        let pending = &mut self.pending[usize::from(cid)];
        pending.used = true;
        pending.out = false;
        pending.expected = 0;
        // Fabrics and admin commands may bring 8 KiB; which queue it is does not matter, for larger I/O asks first.
        let capsule_max = if sqe.opcode() == OPCODE { ADMIN_CAPSULE_DATA_BYTES } else { self.capsule_data_max };
        match transfer {
            Transfer::None => {
                let sqe = DataPointer::Transport { len: 0 }.put(sqe);
                Pdu::CapsuleCmd(sqe).append(&self.framing, &[], &mut self.out);
            }
            Transfer::In(len) => {
                pending.expected = len;
                pending.data = spare.unwrap_or_default();
                pending.data.clear();
                let sqe = DataPointer::Transport { len }.put(sqe);
                Pdu::CapsuleCmd(sqe).append(&self.framing, &[], &mut self.out);
            }
            Transfer::Out(data) if data.len() <= capsule_max as usize && !data.is_empty() => {
                let sqe = DataPointer::Capsule { offset: 0, len: data.len() as u32 }.put(sqe);
                Pdu::CapsuleCmd(sqe).append(&self.framing, &data, &mut self.out);
                pending.data = data;
            }
            Transfer::Out(data) => {
                let len = u32::try_from(data.len()).expect("a command moves less than 4 GiB");
                let sqe = DataPointer::Transport { len }.put(sqe);
                Pdu::CapsuleCmd(sqe).append(&self.framing, &[], &mut self.out);
                pending.data = data;
                pending.out = true;
            }
        }
        Some(cid)
    }

    /// A completion, in the order in which they came.
    pub fn completion(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    /// Gives the buffer of a completion back, for the next commands.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        if self.buffers.len() < BUFFERS_KEPT && buffer.capacity() > 0 {
            self.buffers.push(buffer);
        }
    }

    /// Takes bytes that have come from the controller.
    ///
    /// # Errors
    /// The connection can't go on; what is in [`Session::output`] then tells the controller why.
    pub fn receive(&mut self, mut input: &[u8]) -> Result<(), Refused> {
        loop {
            let taken = match self.reader.next(&mut input) {
                Ok(None) => return Ok(()),
                Ok(Some(piece)) => self.take(piece),
                Err(fatal) => Err(fatal),
            };
            if let Err(fatal) = taken {
                Pdu::H2cTermReq(fatal.into()).append(&self.framing, self.reader.header(), &mut self.out);
                return Err(Refused::Fatal(fatal));
            }
            if let (Some(term), false) = (self.terminated, self.reader.mid_pdu()) {
                return Err(Refused::Controller(term));
            }
        }
    }

    fn take(&mut self, piece: Piece<'_>) -> Result<(), Fatal> {
        match piece {
            Piece::Pdu(pdu, _) => self.take_pdu(pdu),
            Piece::Data(bytes) => {
                if let Some(pdu) = self.incoming {
                    self.pending[usize::from(pdu.cid)].data.extend_from_slice(bytes);
                }
                Ok(())
            }
            Piece::End { intact } => {
                if let Some(pdu) = self.incoming.take() {
                    if !intact {
                        self.damaged.push(pdu.cid);
                    }
                    if pdu.success {
                        self.complete(Response { cid: pdu.cid, sq_head: u16::MAX, ..Response::default() })?;
                    }
                }
                Ok(())
            }
        }
    }

    fn take_pdu(&mut self, pdu: Pdu) -> Result<(), Fatal> {
        if self.initialized == matches!(pdu, Pdu::IcResp(_)) && !matches!(pdu, Pdu::C2hTermReq(_)) {
            return Err(Fatal::of(FatalStatus::Sequence));
        }
        match pdu {
            Pdu::IcResp(answer) => {
                // A controller enables no digest that was not asked for.
                if answer.header_digest && !self.asked.header_digest || answer.data_digest && !self.asked.data_digest {
                    return Err(Fatal::field(offset::DGST));
                }
                let (header_digest, data_digest) = (answer.header_digest, answer.data_digest);
                self.framing = Framing { header_digest, data_digest, alignment: answer.alignment };
                self.reader.rules_mut().framing =
                    Framing { header_digest, data_digest, alignment: self.asked.alignment };
                self.data_max = answer.data_max;
                self.initialized = true;
                Ok(())
            }
            Pdu::C2hTermReq(term) => {
                self.terminated = Some(term);
                Ok(())
            }
            Pdu::CapsuleResp(entry) => self.complete(Response::from_bytes(&entry)),
            Pdu::C2hData(pdu) => {
                let pending = self.pending(pdu.cid)?;
                let have = pending.data.len() as u32;
                if pending.out || pdu.offset != have || pdu.len > pending.expected.saturating_sub(have) {
                    return Err(Fatal::of(FatalStatus::OutOfRange));
                }
                self.incoming = Some(pdu);
                Ok(())
            }
            Pdu::R2t(r2t) => self.answer(&r2t),
            // The reader takes nothing else of a controller.
            _ => Err(Fatal::field(offset::KIND)),
        }
    }

    fn pending(&mut self, cid: u16) -> Result<&mut Pending, Fatal> {
        let pending = self.pending.get_mut(usize::from(cid)).filter(|pending| pending.used);
        pending.ok_or(Fatal::field(offset::CCCID))
    }

    /// Sends what a controller asks for.
    fn answer(&mut self, r2t: &R2t) -> Result<(), Fatal> {
        let data_max = self.data_max;
        let pending = self.pending(r2t.cid)?;
        let end = u64::from(r2t.offset) + u64::from(r2t.len);
        if !pending.out || end > pending.data.len() as u64 {
            return Err(Fatal::of(FatalStatus::OutOfRange));
        }
        let data = std::mem::take(&mut pending.data);
        let asked = &data[r2t.offset as usize..end as usize];
        let (mut offset, mut left) = (r2t.offset, asked.len());
        for piece in asked.chunks(data_max as usize) {
            left -= piece.len();
            let len = piece.len() as u32;
            let pdu = DataPdu { cid: r2t.cid, tag: r2t.tag, offset, len, last: left == 0, success: false };
            Pdu::H2cData(pdu).append(&self.framing, piece, &mut self.out);
            offset += len;
        }
        self.pending[usize::from(r2t.cid)].data = data;
        Ok(())
    }

    fn complete(&mut self, mut response: Response) -> Result<(), Fatal> {
        let cid = response.cid;
        // Bytes 12 and 13 of the entry are at 20 of the PDU.
        let pending = self.pending(cid).map_err(|_| Fatal::field(20))?;
        pending.used = false;
        let expected = pending.expected;
        let mut data = std::mem::take(&mut pending.data);
        self.free.push(cid);
        if let Some(at) = self.damaged.iter().position(|&damaged| damaged == cid) {
            self.damaged.swap_remove(at);
            response.status = Status::TRANSIENT_TRANSPORT_ERROR;
        }
        if expected == 0 {
            // What went out is of no use to the caller.
            self.recycle(std::mem::take(&mut data));
        }
        self.done.push_back(Completion { cid, value: response.value, status: response.status, data });
        Ok(())
    }
}
