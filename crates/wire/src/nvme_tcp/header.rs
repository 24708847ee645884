//! The common header, and what of a PDU follows from it.

use super::{
    COMMAND_HEADER_BYTES, COMMON_BYTES, DIGEST_BYTES, HEADER_BYTES_MAX, SHORT_HEADER_BYTES, TERM_DATA_BYTES_MAX, flag,
    kind, offset,
};
use std::fmt;

/// Why a connection must end: the fatal error status (FES) of a termination request (figures 64 and 66).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum FatalStatus {
    /// 01h: a field of a PDU's header is wrong; the information is its offset.
    InvalidHeaderField = 1,
    /// 02h: a PDU came that has no place here.
    Sequence = 2,
    /// 03h: the header digest is wrong; the information is the digest as it came.
    HeaderDigest = 3,
    /// 04h: data outside of what an R2T asked for, or of what a command transfers.
    OutOfRange = 4,
    /// 05h: more data in a PDU than MAXH2CDATA, or more R2Ts than MAXR2T.
    LimitExceeded = 5,
    /// 06h: a parameter that is not supported; the information is its offset.
    UnsupportedParameter = 6,
}

impl FatalStatus {
    /// The status of a code, if it is one.
    pub const fn from_code(code: u16) -> Option<FatalStatus> {
        Some(match code {
            1 => FatalStatus::InvalidHeaderField,
            2 => FatalStatus::Sequence,
            3 => FatalStatus::HeaderDigest,
            4 => FatalStatus::OutOfRange,
            5 => FatalStatus::LimitExceeded,
            6 => FatalStatus::UnsupportedParameter,
            _ => return None,
        })
    }
}

/// A fatal error of the transport: the connection ends with a termination request that says so.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fatal {
    /// The error (FES).
    pub status: FatalStatus,
    /// Fatal error information (FEI): the offset of the wrong field, or the wrong digest; else 0.
    pub information: u32,
}

impl Fatal {
    /// A field of the header at this offset is wrong.
    pub const fn field(offset: u32) -> Fatal {
        Fatal { status: FatalStatus::InvalidHeaderField, information: offset }
    }

    /// A parameter at this offset is not supported.
    pub const fn unsupported(offset: u32) -> Fatal {
        Fatal { status: FatalStatus::UnsupportedParameter, information: offset }
    }

    /// An error without information.
    pub const fn of(status: FatalStatus) -> Fatal {
        Fatal { status, information: 0 }
    }
}

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            FatalStatus::InvalidHeaderField => write!(f, "invalid PDU header field at byte {}", self.information),
            FatalStatus::Sequence => f.write_str("PDU sequence error"),
            FatalStatus::HeaderDigest => write!(f, "header digest error: {:08X}h came", self.information),
            FatalStatus::OutOfRange => f.write_str("data transfer out of range"),
            FatalStatus::LimitExceeded => f.write_str("data transfer limit exceeded"),
            FatalStatus::UnsupportedParameter => write!(f, "unsupported parameter at byte {}", self.information),
        }
    }
}

impl std::error::Error for Fatal {}

/// Who reads a stream: which PDU types may come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Receiver {
    /// A controller: ICReq, H2CTermReq, command capsules, H2CData.
    Controller,
    /// A host: ICResp, C2HTermReq, response capsules, C2HData, R2T.
    Host,
}

/// How PDUs of one direction are framed: agreed by ICReq and ICResp. The default is what holds before that.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Framing {
    /// Headers are followed by a digest.
    pub header_digest: bool,
    /// Data is followed by a digest.
    pub data_digest: bool,
    /// Alignment of data that the receiver asked for (HPDA, CPDA): (n + 1) double words; 0 to 31.
    pub alignment: u8,
}

impl Framing {
    /// Bytes that PDO must be a multiple of: 4 to 128.
    pub const fn alignment_bytes(&self) -> usize {
        (self.alignment as usize + 1) * 4
    }

    const fn digest_bytes(&self) -> usize {
        if self.header_digest { DIGEST_BYTES } else { 0 }
    }

    /// Where the data of a PDU with a header of `hlen` bytes begins: behind header, digest and padding.
    pub const fn data_offset(&self, hlen: usize) -> usize {
        (hlen + self.digest_bytes()).next_multiple_of(self.alignment_bytes())
    }

    /// Bytes behind the data: its digest.
    pub const fn trailer_bytes(&self) -> usize {
        if self.data_digest { DIGEST_BYTES } else { 0 }
    }
}

/// Rules for the PDUs of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rules {
    /// Who reads.
    pub receiver: Receiver,
    /// The framing agreed for this direction.
    pub framing: Framing,
    /// Bytes of data in a command capsule, at most.
    pub capsule_data_max: u32,
    /// Bytes of data in a data PDU, at most: MAXH2CDATA of a controller.
    pub data_max: u32,
}

/// The first 8 bytes of a PDU: any bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CommonHeader {
    /// PDU-Type.
    pub kind: u8,
    /// FLAGS.
    pub flags: u8,
    /// HLEN: bytes of the header, digest and padding not counted.
    pub hlen: u8,
    /// PDO: where the data begins, from the PDU's first byte. Ignored without data.
    pub pdo: u8,
    /// PLEN: bytes of the whole PDU.
    pub plen: u32,
}

/// Where the parts of a PDU are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// PDU-Type: one that the receiver takes.
    pub kind: u8,
    /// Bytes of the header: 24, 72 or 128.
    pub header: usize,
    /// Whether a digest of 4 bytes follows the header.
    pub header_digest: bool,
    /// Bytes of padding between that and the data.
    pub padding: usize,
    /// Bytes of data.
    pub data: u32,
    /// Whether a digest of 4 bytes follows the data.
    pub data_digest: bool,
}

impl Layout {
    /// Bytes of header and header digest.
    pub const fn head(&self) -> usize {
        self.header + if self.header_digest { DIGEST_BYTES } else { 0 }
    }

    /// Bytes of the whole PDU.
    pub const fn total(&self) -> u64 {
        let trailer = if self.data_digest { DIGEST_BYTES } else { 0 };
        (self.head() + self.padding + trailer) as u64 + self.data as u64
    }
}

impl CommonHeader {
    /// From its bytes.
    pub const fn from_bytes(bytes: &[u8; COMMON_BYTES]) -> CommonHeader {
        let [kind, flags, hlen, pdo, l0, l1, l2, l3] = *bytes;
        CommonHeader { kind, flags, hlen, pdo, plen: u32::from_le_bytes([l0, l1, l2, l3]) }
    }

    /// Its bytes.
    pub const fn to_bytes(&self) -> [u8; COMMON_BYTES] {
        let [l0, l1, l2, l3] = self.plen.to_le_bytes();
        [self.kind, self.flags, self.hlen, self.pdo, l0, l1, l2, l3]
    }

    /// Where the parts of the PDU are. Reserved flags are ignored.
    ///
    /// # Errors
    /// The first field that is wrong for this receiver: [`FatalStatus::InvalidHeaderField`] with its offset, or
    /// [`FatalStatus::LimitExceeded`] for a data PDU beyond [`Rules::data_max`].
    pub fn layout(&self, rules: &Rules) -> Result<Layout, Fatal> {
        let controller = rules.receiver == Receiver::Controller;
        let header = match self.kind {
            kind::IC_REQ if controller => HEADER_BYTES_MAX,
            kind::IC_RESP if !controller => HEADER_BYTES_MAX,
            kind::CAPSULE_CMD if controller => COMMAND_HEADER_BYTES,
            kind::H2C_TERM_REQ | kind::H2C_DATA if controller => SHORT_HEADER_BYTES,
            kind::C2H_TERM_REQ | kind::CAPSULE_RESP | kind::C2H_DATA | kind::R2T if !controller => SHORT_HEADER_BYTES,
            _ => return Err(Fatal::field(offset::KIND)),
        };
        if usize::from(self.hlen) != header {
            return Err(Fatal::field(offset::HLEN));
        }
        match self.kind {
            // The PDUs that open or end a connection never have digests.
            kind::IC_REQ | kind::IC_RESP | kind::H2C_TERM_REQ | kind::C2H_TERM_REQ => {
                let data = self.plen.checked_sub(header as u32).ok_or(Fatal::field(offset::PLEN))?;
                let most = if header == HEADER_BYTES_MAX { 0 } else { TERM_DATA_BYTES_MAX as u32 };
                if data > most {
                    return Err(Fatal::field(offset::PLEN));
                }
                Ok(Layout { kind: self.kind, header, header_digest: false, padding: 0, data, data_digest: false })
            }
            _ => self.layout_digested(header, rules),
        }
    }

    fn layout_digested(&self, header: usize, rules: &Rules) -> Result<Layout, Fatal> {
        let framing = rules.framing;
        if (self.flags & flag::HEADER_DIGEST != 0) != framing.header_digest {
            return Err(Fatal::field(offset::FLAGS));
        }
        let head = header + framing.digest_bytes();
        let mut layout = Layout {
            kind: self.kind,
            header,
            header_digest: framing.header_digest,
            padding: 0,
            data: 0,
            data_digest: false,
        };
        if self.plen < head as u32 {
            return Err(Fatal::field(offset::PLEN));
        }
        let carries_data = matches!(self.kind, kind::CAPSULE_CMD | kind::H2C_DATA | kind::C2H_DATA);
        if self.plen == head as u32 {
            // Data PDUs without data say nothing.
            let data_pdu = self.kind != kind::CAPSULE_CMD && carries_data;
            return if data_pdu { Err(Fatal::field(offset::PLEN)) } else { Ok(layout) };
        }
        if !carries_data {
            return Err(Fatal::field(offset::PLEN));
        }
        if (self.flags & flag::DATA_DIGEST != 0) != framing.data_digest {
            return Err(Fatal::field(offset::FLAGS));
        }
        let pdo = usize::from(self.pdo);
        if pdo < head || !pdo.is_multiple_of(framing.alignment_bytes()) {
            return Err(Fatal::field(offset::PDO));
        }
        layout.padding = pdo - head;
        layout.data_digest = framing.data_digest;
        layout.data = match self.plen.checked_sub((pdo + framing.trailer_bytes()) as u32) {
            None | Some(0) => return Err(Fatal::field(offset::PLEN)),
            Some(data) => data,
        };
        if self.kind == kind::CAPSULE_CMD {
            if layout.data > rules.capsule_data_max {
                return Err(Fatal::field(offset::PLEN));
            }
        } else if layout.data > rules.data_max {
            return Err(Fatal::of(FatalStatus::LimitExceeded));
        }
        Ok(layout)
    }
}
