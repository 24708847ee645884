//! NVMe/TCP: the protocol data units (PDUs) that carry capsules and data over a byte stream.
//!
//! Sections are those of the NVM Express over Fabrics specification, revision 1.1 (chapter 7.4 and figures 61 to 73),
//! which the NVMe/TCP transport specification 1.0 took over.
//!
//! A PDU is a header, its digest, padding, data, and the data's digest; all but the header are optional.
//! [`CommonHeader::layout`] tells from the first 8 bytes and from what was agreed ([`Framing`]) where each of them is,
//! or why the connection must end ([`Fatal`]). [`Pdu::parse`] reads the header. [`Reader`] cuts a stream into
//! PDUs; where their data goes is left to the transport.

mod header;
mod pdu;
mod reader;
#[cfg(test)]
mod tests;

pub use header::{CommonHeader, Fatal, FatalStatus, Framing, Layout, Receiver, Rules};
pub use pdu::{DataPdu, IcReq, IcResp, Pdu, R2t, TermReq};
pub use reader::{Piece, Reader};

/// Bytes of the common header that every PDU starts with.
pub const COMMON_BYTES: usize = 8;
/// Bytes of the longest header, without digest and padding (ICReq and ICResp).
pub const HEADER_BYTES_MAX: usize = 128;
/// Bytes of header, header digest and padding, at most: the data offset (PDO) has 8 bits.
pub const PREFIX_BYTES_MAX: usize = 255;
/// Bytes of a header digest or a data digest: CRC-32C.
pub const DIGEST_BYTES: usize = 4;
/// Bytes of a wrong PDU that a termination request quotes, at most.
pub const TERM_DATA_BYTES_MAX: usize = 128;
/// Bytes of the header of capsule responses, data PDUs, R2T and termination requests.
pub const SHORT_HEADER_BYTES: usize = 24;
/// Bytes of the header of a command capsule.
pub const COMMAND_HEADER_BYTES: usize = COMMON_BYTES + 64;
/// The only PDU format version (PFV).
pub const FORMAT_VERSION: u16 = 0;
/// Bytes that a controller must take in one H2CData PDU (MAXH2CDATA), at least.
pub const MAXH2CDATA_MIN: u32 = 4_096;
/// Bytes of in-capsule data that a host may send with Fabrics and admin commands, whatever IOCCSZ says of I/O queues.
pub const ADMIN_CAPSULE_DATA_BYTES: u32 = 8_192;
/// The port of discovery controllers, as registered.
pub const DISCOVERY_PORT: u16 = 8_009;
/// The port of NVMe/TCP, as registered.
pub const PORT: u16 = 4_420;

/// PDU types.
pub mod kind {
    /// Initialize Connection Request.
    pub const IC_REQ: u8 = 0x00;
    /// Initialize Connection Response.
    pub const IC_RESP: u8 = 0x01;
    /// Host to Controller Terminate Connection Request.
    pub const H2C_TERM_REQ: u8 = 0x02;
    /// Controller to Host Terminate Connection Request.
    pub const C2H_TERM_REQ: u8 = 0x03;
    /// Command capsule.
    pub const CAPSULE_CMD: u8 = 0x04;
    /// Response capsule.
    pub const CAPSULE_RESP: u8 = 0x05;
    /// Host to Controller Data Transfer.
    pub const H2C_DATA: u8 = 0x06;
    /// Controller to Host Data Transfer.
    pub const C2H_DATA: u8 = 0x07;
    /// Ready to Transfer.
    pub const R2T: u8 = 0x09;
}

/// Flags of the common header.
pub mod flag {
    /// HDGSTF: a header digest follows the header.
    pub const HEADER_DIGEST: u8 = 1;
    /// DDGSTF: a data digest follows the data.
    pub const DATA_DIGEST: u8 = 1 << 1;
    /// LAST_PDU: the last data PDU of a command, or of an R2T.
    pub const LAST: u8 = 1 << 2;
    /// SUCCESS: of C2HData with LAST_PDU: the command has succeeded, and no response capsule follows.
    pub const SUCCESS: u8 = 1 << 3;
}

/// Bytes of header, header digest and data of a field, where a wrong one is reported ([`Fatal::information`]).
pub mod offset {
    /// PDU-Type.
    pub const KIND: u32 = 0;
    /// FLAGS.
    pub const FLAGS: u32 = 1;
    /// HLEN.
    pub const HLEN: u32 = 2;
    /// PDO.
    pub const PDO: u32 = 3;
    /// PLEN.
    pub const PLEN: u32 = 4;
    /// PFV of ICReq and ICResp.
    pub const PFV: u32 = 8;
    /// HPDA of ICReq, CPDA of ICResp.
    pub const PDA: u32 = 10;
    /// DGST of ICReq and ICResp.
    pub const DGST: u32 = 11;
    /// MAXR2T of ICReq, MAXH2CDATA of ICResp.
    pub const MAXIMUM: u32 = 12;
    /// CCCID of data PDUs and R2T.
    pub const CCCID: u32 = 8;
    /// TTAG of H2CData and R2T.
    pub const TTAG: u32 = 10;
    /// DATAO of data PDUs, R2TO of R2T.
    pub const OFFSET: u32 = 12;
    /// DATAL of data PDUs, R2TL of R2T.
    pub const LENGTH: u32 = 16;
}
