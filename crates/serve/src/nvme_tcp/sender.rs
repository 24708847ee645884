//! The bytes that go to a host, PDU by PDU, with the last data PDU open: it grows while its command's data goes on.

use tidewater_wire::nvme_tcp::{DataPdu, Framing, PREFIX_BYTES_MAX, Pdu};

/// Bytes of one data PDU, at most: beyond this the next one begins, so that large reads flow.
const DATA_PDU_BYTES_MAX: u32 = 128 << 10;
/// Buffers beyond this are given back once they are empty.
const BUFFER_BYTES_KEPT: usize = 1 << 20;

/// A data PDU at the end of the buffer, whose header is not written yet.
#[derive(Clone, Copy, Debug)]
struct Open {
    place: u16,
    cid: u16,
    /// Where the PDU begins in the buffer, and its header's length with digest and padding.
    start: usize,
    prefix: usize,
    /// Offset in the command's data.
    offset: u32,
    len: u32,
    /// Bytes of the command's data.
    expected: u32,
    /// Digest of the data so far.
    digest: u32,
}

/// What is to be sent.
#[derive(Default)]
pub(super) struct Sender {
    /// What was agreed for this direction.
    pub(super) framing: Framing,
    buffer: Vec<u8>,
    /// Bytes of the buffer that are gone.
    gone: usize,
    open: Option<Open>,
}

impl Sender {
    /// Adds a PDU.
    pub(super) fn send(&mut self, pdu: &Pdu, data: &[u8]) {
        self.close(false);
        pdu.append(&self.framing, data, &mut self.buffer);
    }

    /// Adds data of a command, which `fill` writes; `expected` is all that the command transfers. Takes it back if that
    /// fails.
    pub(super) fn data<E>(
        &mut self,
        place: u16,
        cid: u16,
        offset: u32,
        len: u32,
        expected: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let continues = |open: &Open| {
            open.place == place && open.cid == cid && open.offset + open.len == offset && open.len < DATA_PDU_BYTES_MAX
        };
        let mut open = match self.open.take_if(|open| continues(open)) {
            Some(open) => open,
            None => {
                self.close(false);
                let pdu = Pdu::C2hData(DataPdu { cid, tag: 0, offset, len, last: false, success: false });
                let (start, prefix) = (self.buffer.len(), pdu.prefix_bytes(&self.framing, len));
                debug_assert!(prefix <= PREFIX_BYTES_MAX);
                self.buffer.resize(start + prefix, 0);
                Open { place, cid, start, prefix, offset, len: 0, expected, digest: 0 }
            }
        };
        let start = self.buffer.len();
        self.buffer.resize(start + len as usize, 0);
        let filled = fill(&mut self.buffer[start..]);
        match &filled {
            Ok(()) => {
                if self.framing.data_digest {
                    open.digest = crc32c::crc32c_append(open.digest, &self.buffer[start..]);
                }
                open.len += len;
            }
            Err(_) => self.buffer.truncate(start),
        }
        if open.len > 0 {
            self.open = Some(open);
        } else {
            self.buffer.truncate(open.start);
        }
        filled
    }

    /// A command ends: if the open data PDU is of it, that is the last one. With `success` it tells of the command's
    /// success, too, if it ends what the command transfers. Says whether it does.
    pub(super) fn finish(&mut self, place: u16, success: bool) -> bool {
        let Some(open) = self.open.as_mut().filter(|open| open.place == place) else { return false };
        let success = success && open.offset + open.len == open.expected;
        // The host may have made room for more than there was.
        open.expected = open.offset + open.len;
        self.close(success);
        success
    }

    fn close(&mut self, success: bool) {
        let Some(open) = self.open.take() else { return };
        let last = open.offset + open.len == open.expected;
        let data = DataPdu { cid: open.cid, tag: 0, offset: open.offset, len: open.len, last, success };
        let header = &mut self.buffer[open.start..open.start + open.prefix];
        Pdu::C2hData(data).emit(&self.framing, open.len, header);
        if self.framing.data_digest {
            self.buffer.extend_from_slice(&open.digest.to_le_bytes());
        }
    }

    /// What may go now. The last data PDU of a command stays until it is known whether the command succeeds, which is
    /// soon.
    pub(super) fn ready(&mut self) -> &[u8] {
        let end = match self.open {
            Some(open) if open.offset + open.len == open.expected => open.start,
            _ => {
                self.close(false);
                self.buffer.len()
            }
        };
        &self.buffer[self.gone..end]
    }

    /// So many bytes of [`Sender::ready`] are gone.
    pub(super) fn advance(&mut self, bytes: usize) {
        self.gone += bytes;
        if self.gone == self.buffer.len() {
            self.buffer.clear();
            self.gone = 0;
            if self.buffer.capacity() > BUFFER_BYTES_KEPT {
                self.buffer = Vec::new();
            }
        } else if self.gone > self.buffer.len() / 2 && self.gone > BUFFER_BYTES_KEPT {
            self.buffer.drain(..self.gone);
            if let Some(open) = &mut self.open {
                open.start -= self.gone;
            }
            self.gone = 0;
        }
    }

    /// Drops what waits: its receiver is gone.
    pub(super) fn discard(&mut self) {
        self.buffer = Vec::new();
        self.gone = 0;
        self.open = None;
    }

    /// Bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.buffer.len() - self.gone
    }
}
