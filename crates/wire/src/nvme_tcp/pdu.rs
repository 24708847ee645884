//! The headers of the PDUs.

use super::{
    COMMAND_HEADER_BYTES, COMMON_BYTES, CommonHeader, FORMAT_VERSION, Fatal, FatalStatus, Framing, HEADER_BYTES_MAX,
    Layout, MAXH2CDATA_MIN, SHORT_HEADER_BYTES, flag, kind, offset,
};
use crate::layout::{Part, layout};
use crate::nvme::Sqe;
use tidewater_base::checksum::crc32c;

/// Alignments are 5 bits wide.
const ALIGNMENT_MAX: u8 = 31;
/// Digests that a side offers or enables (DGST).
const DGST_HEADER: u8 = 1;
const DGST_DATA: u8 = 1 << 1;

/// Initialize Connection Request (figure 61): what a host asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IcReq {
    /// Alignment of the data that the host receives (HPDA): (n + 1) double words; 0 to 31.
    pub alignment: u8,
    /// The host would have header digests.
    pub header_digest: bool,
    /// The host would have data digests.
    pub data_digest: bool,
    /// R2Ts of one command that may be outstanding, counted from 0 (MAXR2T).
    pub r2t_max_zero_based: u32,
}

/// Initialize Connection Response (figure 62): what holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IcResp {
    /// Alignment of the data that the controller receives (CPDA): (n + 1) double words; 0 to 31.
    pub alignment: u8,
    /// Headers have digests.
    pub header_digest: bool,
    /// Data has digests.
    pub data_digest: bool,
    /// Bytes of data in one H2CData PDU, at most (MAXH2CDATA): at least 4,096, a multiple of 4.
    pub data_max: u32,
}

layout! {
    /// Fields that Initialize Connection Request and Response have behind the common header.
    pub struct Ic [8] {
        /// PDU format version (PFV).
        0 version: u16,
        /// HPDA or CPDA.
        2 alignment: u8,
        /// DGST.
        3 digests: u8,
        /// MAXR2T or MAXH2CDATA.
        4 maximum: u32,
    }
}

layout! {
    /// A termination request (figures 63 to 66), behind the common header. Its data is the header of the PDU that was
    /// wrong.
    pub struct TermReq [16] {
        /// Fatal error status: any value; [`FatalStatus`] names those that are known.
        0 status: u16,
        /// Fatal error information.
        2 information: u32,
    }
}

impl From<Fatal> for TermReq {
    fn from(fatal: Fatal) -> TermReq {
        TermReq { status: fatal.status as u16, information: fatal.information }
    }
}

/// H2CData or C2HData (figures 69 and 70).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DataPdu {
    /// The command's identifier (CCCID).
    pub cid: u16,
    /// The tag of the R2T that it answers (TTAG); 0 in C2HData.
    pub tag: u16,
    /// Where the data is in the command's (DATAO). Bytes.
    pub offset: u32,
    /// Bytes of data (DATAL).
    pub len: u32,
    /// The last of a command, or of an R2T.
    pub last: bool,
    /// C2HData only, with `last`: the command has succeeded, and no response follows.
    pub success: bool,
}

layout! {
    /// Ready to Transfer (figure 71), behind the common header. Data PDUs have the same fields there.
    pub struct R2t [16] {
        /// The command's identifier (CCCID).
        0 cid: u16,
        /// Comes back in the data PDUs (TTAG).
        2 tag: u16,
        /// Which data is asked for: first byte (R2TO).
        4 offset: u32,
        /// Bytes (R2TL).
        8 len: u32,
    }
}

/// The header of a PDU.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pdu {
    /// Initialize Connection Request.
    IcReq(IcReq),
    /// Initialize Connection Response.
    IcResp(IcResp),
    /// A host ends the connection.
    H2cTermReq(TermReq),
    /// A controller ends the connection.
    C2hTermReq(TermReq),
    /// A command; its data, if any, is in-capsule data.
    CapsuleCmd(Sqe),
    /// A response: a completion queue entry, of which Fabrics responses use 8 bytes for themselves.
    CapsuleResp([u8; 16]),
    /// Data from a host.
    H2cData(DataPdu),
    /// Data for a host.
    C2hData(DataPdu),
    /// A controller asks for data.
    R2t(R2t),
}

/// Fields behind the common header, of which every pattern is valid.
fn body<T: Part>(header: &[u8]) -> T {
    T::get(&header[COMMON_BYTES..][..T::BYTES]).expect("every pattern is valid, and a header is longer")
}

/// Writes such fields to a body, which may be longer.
fn put<T: Part>(fields: &T, body: &mut [u8]) {
    fields.put(&mut body[..T::BYTES]);
}

impl Pdu {
    /// Reads a header, which `layout` was made of.
    ///
    /// `bytes` are [`Layout::head`] bytes; asserted.
    ///
    /// # Errors
    /// A wrong header digest, or a field that contradicts the layout or the specification.
    pub fn parse(bytes: &[u8], layout: &Layout) -> Result<Pdu, Fatal> {
        assert_eq!(bytes.len(), layout.head(), "a header is parsed when it is complete");
        let (header, digest) = bytes.split_at(layout.header);
        if layout.header_digest {
            let came = u32::get(digest).expect("a digest has 4 bytes");
            if came != crc32c(header) {
                return Err(Fatal { status: FatalStatus::HeaderDigest, information: came });
            }
        }
        let flags = header[1];
        Ok(match layout.kind {
            kind::IC_REQ => Pdu::IcReq(IcReq::parse(header)?),
            kind::IC_RESP => Pdu::IcResp(IcResp::parse(header)?),
            kind::H2C_TERM_REQ => Pdu::H2cTermReq(body(header)),
            kind::C2H_TERM_REQ => Pdu::C2hTermReq(body(header)),
            kind::CAPSULE_CMD => {
                let entry = header[COMMON_BYTES..].first_chunk().expect("a command capsule's header has 72 bytes");
                Pdu::CapsuleCmd(Sqe::from_bytes(entry))
            }
            kind::CAPSULE_RESP => {
                let entry = header[COMMON_BYTES..].first_chunk().expect("a response capsule's header has 24 bytes");
                Pdu::CapsuleResp(*entry)
            }
            kind::H2C_DATA | kind::C2H_DATA => {
                let R2t { cid, tag, offset: at, len } = body(header);
                if len != layout.data {
                    return Err(Fatal::field(offset::LENGTH));
                }
                if at.checked_add(len).is_none() {
                    return Err(Fatal::of(FatalStatus::OutOfRange));
                }
                let last = flags & flag::LAST != 0;
                let controller_to_host = layout.kind == kind::C2H_DATA;
                let success = controller_to_host && flags & flag::SUCCESS != 0;
                if success && !last {
                    return Err(Fatal::field(offset::FLAGS));
                }
                let tag = if controller_to_host { 0 } else { tag };
                let data = DataPdu { cid, tag, offset: at, len, last, success };
                if controller_to_host { Pdu::C2hData(data) } else { Pdu::H2cData(data) }
            }
            kind::R2T => {
                let r2t: R2t = body(header);
                if r2t.len == 0 {
                    return Err(Fatal::field(offset::LENGTH));
                }
                if r2t.offset.checked_add(r2t.len).is_none() {
                    return Err(Fatal::of(FatalStatus::OutOfRange));
                }
                Pdu::R2t(r2t)
            }
            _ => return Err(Fatal::field(offset::KIND)),
        })
    }

    /// PDU-Type.
    pub const fn kind(&self) -> u8 {
        match self {
            Pdu::IcReq(_) => kind::IC_REQ,
            Pdu::IcResp(_) => kind::IC_RESP,
            Pdu::H2cTermReq(_) => kind::H2C_TERM_REQ,
            Pdu::C2hTermReq(_) => kind::C2H_TERM_REQ,
            Pdu::CapsuleCmd(_) => kind::CAPSULE_CMD,
            Pdu::CapsuleResp(_) => kind::CAPSULE_RESP,
            Pdu::H2cData(_) => kind::H2C_DATA,
            Pdu::C2hData(_) => kind::C2H_DATA,
            Pdu::R2t(_) => kind::R2T,
        }
    }

    /// HLEN: bytes of its header, without digest and padding.
    pub const fn header_bytes(&self) -> usize {
        match self {
            Pdu::IcReq(_) | Pdu::IcResp(_) => HEADER_BYTES_MAX,
            Pdu::CapsuleCmd(_) => COMMAND_HEADER_BYTES,
            _ => SHORT_HEADER_BYTES,
        }
    }

    /// The framing of this PDU: the agreed one does not hold for PDUs that open or end a connection.
    const fn framing(&self, framing: &Framing) -> Framing {
        match self {
            Pdu::IcReq(_) | Pdu::IcResp(_) | Pdu::H2cTermReq(_) | Pdu::C2hTermReq(_) => {
                Framing { header_digest: false, data_digest: false, alignment: 0 }
            }
            _ => *framing,
        }
    }

    /// Bytes that [`Pdu::emit`] writes: header, header digest, and padding if data follows.
    pub const fn prefix_bytes(&self, framing: &Framing, data: u32) -> usize {
        let framing = self.framing(framing);
        if data > 0 {
            framing.data_offset(self.header_bytes())
        } else {
            self.header_bytes() + if framing.header_digest { super::DIGEST_BYTES } else { 0 }
        }
    }

    /// Writes header, header digest and padding for `data` bytes of data, which the caller puts behind them; and behind
    /// these their digest, if data has digests.
    ///
    /// `out` has [`Pdu::prefix_bytes`]; asserted.
    pub fn emit(&self, framing: &Framing, data: u32, out: &mut [u8]) {
        let prefix = self.prefix_bytes(framing, data);
        assert_eq!(out.len(), prefix, "the place for a header has its length");
        let framing = self.framing(framing);
        let header = self.header_bytes();
        let trailer = if data > 0 { framing.trailer_bytes() } else { 0 };
        let mut flags = if framing.header_digest { flag::HEADER_DIGEST } else { 0 };
        if data > 0 && framing.data_digest {
            flags |= flag::DATA_DIGEST;
        }
        let body = &mut out[COMMON_BYTES..];
        body.fill(0);
        match self {
            Pdu::IcReq(IcReq { alignment, header_digest, data_digest, r2t_max_zero_based: maximum })
            | Pdu::IcResp(IcResp { alignment, header_digest, data_digest, data_max: maximum }) => {
                let digests = (u8::from(*header_digest) * DGST_HEADER) | (u8::from(*data_digest) * DGST_DATA);
                put(&Ic { version: FORMAT_VERSION, alignment: *alignment, digests, maximum: *maximum }, body);
            }
            Pdu::H2cTermReq(term) | Pdu::C2hTermReq(term) => put(term, body),
            Pdu::CapsuleCmd(sqe) => body[..Sqe::SIZE].copy_from_slice(&sqe.to_bytes()),
            Pdu::CapsuleResp(entry) => body[..16].copy_from_slice(entry),
            Pdu::H2cData(pdu) | Pdu::C2hData(pdu) => {
                assert_eq!(pdu.len, data, "a data PDU says how much data it has");
                flags |= if pdu.last { flag::LAST } else { 0 } | if pdu.success { flag::SUCCESS } else { 0 };
                put(&R2t { cid: pdu.cid, tag: pdu.tag, offset: pdu.offset, len: pdu.len }, body);
            }
            Pdu::R2t(r2t) => put(r2t, body),
        }
        // Termination requests have no data offset.
        let has_offset = matches!(self, Pdu::CapsuleCmd(_) | Pdu::H2cData(_) | Pdu::C2hData(_));
        let common = CommonHeader {
            kind: self.kind(),
            flags,
            hlen: header as u8,
            pdo: if data > 0 && has_offset { prefix as u8 } else { 0 },
            plen: (prefix + trailer) as u32 + data,
        };
        out[..COMMON_BYTES].copy_from_slice(&common.to_bytes());
        if framing.header_digest {
            let digest = crc32c(&out[..header]);
            out[header..header + super::DIGEST_BYTES].copy_from_slice(&digest.to_le_bytes());
        }
    }

    /// Appends the whole PDU with this data.
    pub fn append(&self, framing: &Framing, data: &[u8], out: &mut Vec<u8>) {
        let len = u32::try_from(data.len()).expect("a PDU is smaller than 4 GiB");
        let start = out.len();
        out.resize(start + self.prefix_bytes(framing, len), 0);
        self.emit(framing, len, &mut out[start..]);
        out.extend_from_slice(data);
        if len > 0 && self.framing(framing).data_digest {
            out.extend_from_slice(&crc32c(data).to_le_bytes());
        }
    }
}

/// Parses the fields common to ICReq and ICResp: alignment, digests, maximum.
fn parse_ic(header: &[u8]) -> Result<(u8, bool, bool, u32), Fatal> {
    let Ic { version, alignment, digests, maximum } = body(header);
    if version != FORMAT_VERSION {
        return Err(Fatal::unsupported(offset::PFV));
    }
    if alignment > ALIGNMENT_MAX {
        return Err(Fatal::field(offset::PDA));
    }
    Ok((alignment, digests & DGST_HEADER != 0, digests & DGST_DATA != 0, maximum))
}

impl IcReq {
    fn parse(header: &[u8]) -> Result<IcReq, Fatal> {
        let (alignment, header_digest, data_digest, r2t_max_zero_based) = parse_ic(header)?;
        Ok(IcReq { alignment, header_digest, data_digest, r2t_max_zero_based })
    }
}

impl IcResp {
    fn parse(header: &[u8]) -> Result<IcResp, Fatal> {
        let (alignment, header_digest, data_digest, data_max) = parse_ic(header)?;
        if data_max < MAXH2CDATA_MIN || !data_max.is_multiple_of(4) {
            return Err(Fatal::field(offset::MAXIMUM));
        }
        Ok(IcResp { alignment, header_digest, data_digest, data_max })
    }
}
