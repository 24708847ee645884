//! NBD, the network block device protocol: fixed newstyle handshake, and transmission with simple replies
//! (`doc/proto.md` of github.com/NetworkBlockDevice/nbd, to whose sections the comments refer). All numbers are
//! big-endian.

/// The TCP port that is registered for it.
pub const PORT: u16 = 10_809;
/// Bytes of data of a request, at most: the limit for clients that negotiate none ("Block size constraints").
pub const PAYLOAD_MAX: u32 = 32 << 20;
/// Bytes of an export's name, at most ("String values").
pub const NAME_MAX: usize = 4_096;

/// `IHAVEOPT`: the server's second word, and begins each option.
const OPTION_MAGIC: u64 = 0x4948_4156_454F_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_E889_0455_65A9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
/// Handshake flags, of either side: fixed newstyle; no zeroes behind the answer to `NBD_OPT_EXPORT_NAME`.
const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 1 << 1;

/// The first bytes of a server.
pub fn greeting() -> [u8; 18] {
    let mut bytes = [0; 18];
    bytes[..8].copy_from_slice(b"NBDMAGIC");
    bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    bytes
}

/// The client's first four bytes: whether it takes no zeroes behind the answer to `NBD_OPT_EXPORT_NAME`. `None`: flags
/// that the server has not offered.
pub fn client_flags(bytes: [u8; 4]) -> Option<bool> {
    let flags = u32::from_be_bytes(bytes);
    (flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) == 0).then_some(flags & u32::from(NO_ZEROES) != 0)
}

/// Options of the handshake ("Option types").
pub mod option {
    /// Chooses an export, in the old way: there is no answer for one that is not there.
    pub const EXPORT_NAME: u32 = 1;
    /// Ends the connection.
    pub const ABORT: u32 = 2;
    /// Asks for the names of exports.
    pub const LIST: u32 = 3;
    /// Asks about an export.
    pub const INFO: u32 = 6;
    /// Asks about an export and chooses it.
    pub const GO: u32 = 7;
}

/// Types of replies to options ("Option reply types").
pub mod reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// An export.
    pub const SERVER: u32 = 2;
    /// About an export.
    pub const INFO: u32 = 3;
    /// The option is not known.
    pub const UNSUPPORTED: u32 = 1 << 31 | 1;
    /// The option's data is malformed.
    pub const INVALID: u32 = 1 << 31 | 3;
    /// There is no such export.
    pub const UNKNOWN: u32 = 1 << 31 | 6;
}

/// Transmission flags of an export ("Transmission flags").
pub mod export_flag {
    /// The field has flags.
    pub const HAS_FLAGS: u16 = 1;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Flush is offered.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// Force Unit Access is offered.
    pub const SEND_FUA: u16 = 1 << 3;
    /// Trim is offered.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// Write zeroes is offered.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// A flush on one connection is about writes that ended on any, and all see the same data.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Types of requests ("Request types").
pub mod command {
    /// Bytes to the client.
    pub const READ: u16 = 0;
    /// Bytes from the client.
    pub const WRITE: u16 = 1;
    /// The client leaves; there is no reply.
    pub const DISCONNECT: u16 = 2;
    /// Writes that have ended are made durable.
    pub const FLUSH: u16 = 3;
    /// Bytes are not needed any more.
    pub const TRIM: u16 = 4;
    /// Bytes become zeroes.
    pub const WRITE_ZEROES: u16 = 6;
    /// Flag: what is written is durable before the reply.
    pub const FUA: u16 = 1;
    /// Flag of write zeroes: space stays allocated.
    pub const NO_HOLE: u16 = 1 << 1;
}

/// Error values ("Error values"); 0 is success.
pub mod error {
    /// Not permitted: a write to what is read-only.
    pub const EPERM: u32 = 1;
    /// Input or output error.
    pub const EIO: u32 = 5;
    /// Invalid argument.
    pub const EINVAL: u32 = 22;
    /// No space: a write beyond the export's end.
    pub const ENOSPC: u32 = 28;
}

/// The head of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// Of [`option`], or any other.
    pub option: u32,
    /// Bytes of data behind it.
    pub len: u32,
}

impl OptionHeader {
    /// Bytes.
    pub const SIZE: usize = 16;

    /// `None`: it does not begin as an option does.
    pub fn from_bytes(bytes: [u8; OptionHeader::SIZE]) -> Option<OptionHeader> {
        let fields = u128::from_be_bytes(bytes);
        let header = OptionHeader { option: (fields >> 32) as u32, len: fields as u32 };
        ((fields >> 64) as u64 == OPTION_MAGIC).then_some(header)
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; OptionHeader::SIZE] {
        (u128::from(OPTION_MAGIC) << 64 | u128::from(self.option) << 32 | u128::from(self.len)).to_be_bytes()
    }
}

/// The name of the export that `NBD_OPT_INFO` or `NBD_OPT_GO` asks for, in any bytes. `None`: the data is malformed.
/// Which information is asked for is not looked at: the server sends what it has.
pub fn asked_export(data: &[u8]) -> Option<&[u8]> {
    let (len, rest) = data.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
    let (count, infos) = rest.split_first_chunk()?;
    (name.len() <= NAME_MAX && infos.len() == 2 * usize::from(u16::from_be_bytes(*count))).then_some(name)
}

/// Appends a reply to an option.
pub fn append_option_reply(option: u32, reply: u32, data: &[u8], out: &mut Vec<u8>) {
    out.extend(OPTION_REPLY_MAGIC.to_be_bytes());
    out.extend([option, reply, data.len() as u32].iter().flat_map(|word| word.to_be_bytes()));
    out.extend(data);
}

/// An export, as clients get to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Bytes.
    pub size: u64,
    /// Of [`export_flag`].
    pub flags: u16,
    /// Requests begin and end at multiples of this: a power of two, 512 to 65,536.
    pub block_min: u32,
    /// The size of requests that is best: a power of two, at least `block_min`.
    pub block_preferred: u32,
}

impl ExportInfo {
    /// The answer to `NBD_OPT_EXPORT_NAME`.
    pub fn append_answer(&self, no_zeroes: bool, out: &mut Vec<u8>) {
        out.extend(self.size.to_be_bytes());
        out.extend(self.flags.to_be_bytes());
        out.extend(std::iter::repeat_n(0, if no_zeroes { 0 } else { 124 }));
    }

    /// The answers to `NBD_OPT_INFO` and `NBD_OPT_GO`: `NBD_INFO_EXPORT`, `NBD_INFO_BLOCK_SIZE`, and the end.
    pub fn append_infos(&self, option: u32, out: &mut Vec<u8>) {
        let mut export = [0; 12];
        export[2..10].copy_from_slice(&self.size.to_be_bytes());
        export[10..].copy_from_slice(&self.flags.to_be_bytes());
        append_option_reply(option, reply::INFO, &export, out);
        let mut blocks = vec![0, 3];
        blocks.extend([self.block_min, self.block_preferred, PAYLOAD_MAX].iter().flat_map(|size| size.to_be_bytes()));
        append_option_reply(option, reply::INFO, &blocks, out);
        append_option_reply(option, reply::ACK, &[], out);
    }
}

/// A request of the transmission phase ("Request message"), without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Of [`command`], or any other.
    pub flags: u16,
    /// Of [`command`], or any other.
    pub kind: u16,
    /// Names it in its reply.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

impl Request {
    /// Bytes.
    pub const SIZE: usize = 28;

    /// `None`: it does not begin as a request does.
    pub fn from_bytes(bytes: &[u8; Request::SIZE]) -> Option<Request> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let (head, rest) = rest.split_first_chunk()?;
        let (cookie, rest) = rest.split_first_chunk()?;
        let (offset, rest) = rest.split_first_chunk()?;
        let head = u32::from_be_bytes(*head);
        (u32::from_be_bytes(*magic) == REQUEST_MAGIC).then_some(Request {
            flags: (head >> 16) as u16,
            kind: head as u16,
            cookie: u64::from_be_bytes(*cookie),
            offset: u64::from_be_bytes(*offset),
            len: u32::from_be_bytes(*rest.first_chunk()?),
        })
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; Request::SIZE] {
        let mut bytes = [0; Request::SIZE];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// A simple reply, before the data of a read ("Simple reply message").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleReply {
    /// Of [`error`]; with an error there is no data.
    pub error: u32,
    /// That of the request.
    pub cookie: u64,
}

impl SimpleReply {
    /// Bytes.
    pub const SIZE: usize = 16;

    /// `None`: it does not begin as a simple reply does.
    pub fn from_bytes(bytes: [u8; SimpleReply::SIZE]) -> Option<SimpleReply> {
        let fields = u128::from_be_bytes(bytes);
        let reply = SimpleReply { error: (fields >> 64) as u32, cookie: fields as u64 };
        ((fields >> 96) as u32 == REPLY_MAGIC).then_some(reply)
    }

    /// Its bytes.
    pub fn to_bytes(self) -> [u8; SimpleReply::SIZE] {
        (u128::from(REPLY_MAGIC) << 96 | u128::from(self.error) << 64 | u128::from(self.cookie)).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes as the protocol's document has them.
    #[test]
    fn messages_are_the_documents_bytes() {
        assert_eq!(&greeting(), b"NBDMAGICIHAVEOPT\x00\x03");
        for (flags, taken) in [(0, Some(false)), (1, Some(false)), (3, Some(true)), (4, None), (1 << 16, None)] {
            assert_eq!(client_flags(u32::to_be_bytes(flags)), taken, "{flags:x}h");
        }
        let header = OptionHeader { option: option::GO, len: 0x0102_0304 };
        assert_eq!(&header.to_bytes(), b"IHAVEOPT\x00\x00\x00\x07\x01\x02\x03\x04");
        assert_eq!(OptionHeader::from_bytes(header.to_bytes()), Some(header));
        assert_eq!(OptionHeader::from_bytes(*b"IHAVEOPS\x00\x00\x00\x07\x01\x02\x03\x04"), None);
        let mut out = Vec::new();
        append_option_reply(9, reply::UNSUPPORTED, b"x", &mut out);
        assert_eq!(out, b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x09\x80\x00\x00\x01\x00\x00\x00\x01x");
        let request = Request { flags: 1, kind: 6, cookie: 0x0102_0304_0506_0708, offset: 4_096, len: 512 };
        let bytes = b"\x25\x60\x95\x13\x00\x01\x00\x06\x01\x02\x03\x04\x05\x06\x07\x08\x00\x00\x00\x00\x00\x00\x10\x00\
                      \x00\x00\x02\x00";
        assert_eq!((&request.to_bytes(), Request::from_bytes(bytes)), (bytes, Some(request)));
        assert_eq!(Request::from_bytes(&[0; Request::SIZE]), None);
        let reply = SimpleReply { error: error::ENOSPC, cookie: 7 };
        let bytes = b"\x67\x44\x66\x98\x00\x00\x00\x1c\x00\x00\x00\x00\x00\x00\x00\x07";
        assert_eq!((&reply.to_bytes(), SimpleReply::from_bytes(*bytes)), (bytes, Some(reply)));
        assert_eq!(SimpleReply::from_bytes([0; SimpleReply::SIZE]), None);
    }

    #[test]
    fn what_is_asked_about_an_export_is_whole_or_refused() {
        assert_eq!(asked_export(b"\x00\x00\x00\x00\x00\x00"), Some(&b""[..]));
        assert_eq!(asked_export(b"\x00\x00\x00\x02ab\x00\x01\x00\x03"), Some(&b"ab"[..]));
        let whole = b"\x00\x00\x00\x02ab\x00\x02\x00\x03\x00\x00";
        assert_eq!(asked_export(whole), Some(&b"ab"[..]));
        for len in 0..whole.len() {
            assert_eq!(asked_export(&whole[..len]), None, "{len} bytes");
        }
        assert_eq!(asked_export(b"\xff\xff\xff\xffab\x00\x00"), None);
        let named = |len: usize| [&(len as u32).to_be_bytes()[..], &vec![b'n'; len], &[0, 0]].concat();
        assert!(asked_export(&named(NAME_MAX)).is_some() && asked_export(&named(NAME_MAX + 1)).is_none());
    }

    #[test]
    fn exports_are_described_with_their_block_sizes() {
        let info = ExportInfo { size: 1 << 20, flags: 0x16d, block_min: 4_096, block_preferred: 4_096 };
        let mut out = Vec::new();
        info.append_answer(true, &mut out);
        assert_eq!(out, b"\x00\x00\x00\x00\x00\x10\x00\x00\x01\x6d");
        info.append_answer(false, &mut out);
        assert_eq!((out.len(), &out[20..]), (10 + 134, &[0; 124][..]));
        out.clear();
        info.append_infos(option::INFO, &mut out);
        let reply = |kind: u32, data: &[u8]| {
            let mut out = Vec::new();
            append_option_reply(option::INFO, kind, data, &mut out);
            out
        };
        let expected = [
            reply(reply::INFO, b"\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x01\x6d"),
            reply(reply::INFO, b"\x00\x03\x00\x00\x10\x00\x00\x00\x10\x00\x02\x00\x00\x00"),
            reply(reply::ACK, b""),
        ];
        assert_eq!(out, expected.concat());
    }
}
