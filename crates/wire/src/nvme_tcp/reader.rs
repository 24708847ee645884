//! Cuts a byte stream into PDUs: headers are gathered, data is handed on as it comes.

use tidewater_base::checksum::crc32c_append;

use super::{COMMON_BYTES, CommonHeader, DIGEST_BYTES, Fatal, HEADER_BYTES_MAX, Layout, Pdu, Rules};

/// A part of the stream.
#[derive(Debug, PartialEq)]
pub enum Piece<'a> {
    /// A header is there, and good; so many bytes of data follow.
    Pdu(Pdu, u32),
    /// Data of the PDU: at least one byte.
    Data(&'a [u8]),
    /// The PDU is complete. Its data is as its digest says, or has none.
    End {
        /// The data's digest was right.
        intact: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// The common header, then the rest of the header once its layout is known.
    Head(Option<Layout>),
    Padding {
        left: usize,
        data: u32,
        digest: bool,
    },
    Data {
        left: u32,
        digest: bool,
    },
    Digest,
    End {
        intact: bool,
    },
}

/// Reads PDUs from a stream that comes in pieces of any length.
pub struct Reader {
    rules: Rules,
    state: State,
    /// The header that is being gathered, or that was read last.
    head: [u8; HEADER_BYTES_MAX + DIGEST_BYTES],
    /// The digest of data that is being gathered.
    trailer: [u8; DIGEST_BYTES],
    /// Bytes that are there of the one or the other.
    have: usize,
    /// Bytes of `head` that mean something.
    quotable: usize,
    /// Digest of the data so far.
    digest: u32,
    /// PDUs that are complete.
    complete: u64,
}

impl Reader {
    /// A reader at the start of a stream.
    pub fn new(rules: Rules) -> Reader {
        Reader {
            rules,
            state: State::Head(None),
            head: [0; HEADER_BYTES_MAX + DIGEST_BYTES],
            trailer: [0; DIGEST_BYTES],
            have: 0,
            quotable: 0,
            digest: 0,
            complete: 0,
        }
    }

    /// The rules from the next PDU on.
    pub fn rules_mut(&mut self) -> &mut Rules {
        &mut self.rules
    }

    /// Whether a PDU has begun and is not complete.
    pub fn mid_pdu(&self) -> bool {
        self.have > 0 || !matches!(self.state, State::Head(None))
    }

    /// PDUs that are complete.
    pub fn complete(&self) -> u64 {
        self.complete
    }

    /// The header that was read last, or what is there of it: what a termination request quotes.
    pub fn header(&self) -> &[u8] {
        &self.head[..self.quotable.min(HEADER_BYTES_MAX)]
    }

    /// The next part of the stream; `None` when `input` is used up. After an error nothing of the stream means
    /// anything.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Piece<'a>>, Fatal> {
        loop {
            match self.state {
                State::Head(layout) => {
                    let want = layout.map_or(COMMON_BYTES, |layout| layout.head());
                    let there = gather(&mut self.head[..want], &mut self.have, input);
                    self.quotable = self.have;
                    if !there {
                        return Ok(None);
                    }
                    let Some(layout) = layout else {
                        let common = self.head.first_chunk().expect("a common header has 8 bytes");
                        self.state = State::Head(Some(CommonHeader::from_bytes(common).layout(&self.rules)?));
                        continue;
                    };
                    let pdu = Pdu::parse(&self.head[..want], &layout)?;
                    self.have = 0;
                    self.digest = 0;
                    self.state = match layout.data {
                        0 => State::End { intact: true },
                        data => State::Padding { left: layout.padding, data, digest: layout.data_digest },
                    };
                    return Ok(Some(Piece::Pdu(pdu, layout.data)));
                }
                State::Padding { left, data, digest } => {
                    let skip = left.min(input.len());
                    *input = &input[skip..];
                    if skip < left {
                        self.state = State::Padding { left: left - skip, data, digest };
                        return Ok(None);
                    }
                    self.state = State::Data { left: data, digest };
                }
                State::Data { left: 0, digest } => {
                    self.state = if digest { State::Digest } else { State::End { intact: true } };
                }
                State::Data { left, digest } => {
                    if input.is_empty() {
                        return Ok(None);
                    }
                    let (bytes, rest) = input.split_at(input.len().min(left as usize));
                    *input = rest;
                    if digest {
                        self.digest = crc32c_append(self.digest, bytes);
                    }
                    self.state = State::Data { left: left - bytes.len() as u32, digest };
                    return Ok(Some(Piece::Data(bytes)));
                }
                State::Digest => {
                    if !gather(&mut self.trailer, &mut self.have, input) {
                        return Ok(None);
                    }
                    self.have = 0;
                    self.state = State::End { intact: self.trailer == self.digest.to_le_bytes() };
                }
                State::End { intact } => {
                    self.state = State::Head(None);
                    self.complete += 1;
                    return Ok(Some(Piece::End { intact }));
                }
            }
        }
    }
}

/// Takes bytes until `out`, of which `have` are there, is full; says whether it is.
fn gather(out: &mut [u8], have: &mut usize, input: &mut &[u8]) -> bool {
    let take = (out.len() - *have).min(input.len());
    let (bytes, rest) = input.split_at(take);
    out[*have..*have + take].copy_from_slice(bytes);
    *input = rest;
    *have += take;
    *have == out.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvme::Sqe;
    use crate::nvme_tcp::{DataPdu, Framing, Receiver};
    use proptest::prelude::*;

    fn rules(framing: Framing) -> Rules {
        Rules { receiver: Receiver::Controller, framing, capsule_data_max: 8_192, data_max: 65_536 }
    }

    /// Reads a stream in pieces of these lengths.
    fn read(stream: &[u8], rules: Rules, cuts: &[usize]) -> Result<Vec<(Pdu, Vec<u8>, bool)>, Fatal> {
        let mut reader = Reader::new(rules);
        let mut read = Vec::new();
        let mut rest = stream;
        let mut cuts = cuts.iter().cycle();
        while !rest.is_empty() {
            let (piece, after) = rest.split_at((*cuts.next().unwrap()).clamp(1, rest.len()));
            rest = after;
            let mut input = piece;
            while let Some(piece) = reader.next(&mut input)? {
                match piece {
                    Piece::Pdu(pdu, len) => read.push((pdu, Vec::with_capacity(len as usize), false)),
                    Piece::Data(bytes) => read.last_mut().unwrap().1.extend_from_slice(bytes),
                    Piece::End { intact } => read.last_mut().unwrap().2 = intact,
                }
            }
            assert!(input.is_empty());
        }
        assert!(!reader.mid_pdu());
        Ok(read)
    }

    proptest! {
        #[test]
        fn pieces_of_any_length_make_the_same_pdus(
            lens in prop::collection::vec(0..2_000_usize, 1..6),
            cuts in prop::collection::vec(1..200_usize, 1..8),
            digests in 0..4_u8,
            alignment in 0..32_u8,
        ) {
            let framing = Framing { header_digest: digests & 1 != 0, data_digest: digests & 2 != 0, alignment };
            let (mut stream, mut want) = (Vec::new(), Vec::new());
            for (i, &len) in lens.iter().enumerate() {
                let data = vec![i as u8; len];
                let pdu = if len % 2 == 0 || len == 0 {
                    Pdu::CapsuleCmd(Sqe::write(i as u16, 0, 0))
                } else {
                    Pdu::H2cData(DataPdu { cid: 1, tag: 2, offset: 3, len: len as u32, last: true, success: false })
                };
                pdu.append(&framing, &data, &mut stream);
                want.push((pdu, data, true));
            }
            prop_assert_eq!(read(&stream, rules(framing), &cuts), Ok(want.clone()));

            // A flipped bit of the last data is noticed by its digest, and only there.
            if let (true, Some(last)) = (framing.data_digest, want.last_mut()) && !last.1.is_empty() {
                let at = stream.len() - DIGEST_BYTES - 1;
                stream[at] ^= 0x10;
                *last.1.last_mut().unwrap() ^= 0x10;
                last.2 = false;
                prop_assert_eq!(read(&stream, rules(framing), &cuts), Ok(want));
            }
        }

        #[test]
        fn any_stream_is_cut_or_refused(stream in prop::collection::vec(any::<u8>(), 0..600), cut in 1..64_usize) {
            let mut reader = Reader::new(rules(Framing::default()));
            'stream: for piece in stream.chunks(cut) {
                let mut input = piece;
                loop {
                    match reader.next(&mut input) {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(_) => {
                            prop_assert!(reader.header().len() <= HEADER_BYTES_MAX);
                            break 'stream;
                        }
                    }
                }
            }
        }
    }
}
