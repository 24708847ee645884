//! Handshake of two devices before frames travel, and the framing on a stream of bytes.
//!
//! On a new connection each side sends a [`Hello`] first; one that does not take the other's answers with a [`Refusal`]
//! and closes. Behind the hello, each piece is an [`Envelope`] and its bytes: a frame, for a data frame followed by the
//! log bytes that it names, or a [`Ping`].

use super::{FRAME_BYTES_MAX, Frame, FrameError, LANES_MAX};
use crate::layout::layout;
use tidewater_base::checksum::crc32c;
use tidewater_base::units::printable;

/// The version of this protocol: hello, envelopes and frames.
pub const PEER_VERSION: u16 = 1;
/// Log bytes behind a data frame, at most.
pub const PEER_DATA_MAX: u32 = 256 << 10;

layout! {
    /// The first bytes on a connection between devices, from both sides.
    pub struct Hello [128] {
        fixed 0 magic: u64 = u64::from_le_bytes(*b"TIDEPEER"), " `TIDEPEER` in ASCII.";
        /// The newest version of the protocol that the sender speaks.
        8 version: u16,
        /// The oldest.
        10 version_min: u16,
        /// The sender's node.
        12 node: u8,
        /// The node that it wants to talk to.
        13 to: u8,
        /// A random number of the sender's process: a peer that has another one than before was started anew.
        16 boot: u64,
        /// Counts the sender's connections to this peer: of two of one process the newer one counts.
        24 session: u64,
        /// Identifier of the sender's drive: that of its image.
        32 drive: [u8; 16],
        /// Lanes of each function; 0: there is no such function.
        48 lanes: [u8; LANES_MAX],
        /// Bytes of a lane's ring.
        64 ring_bytes: u64,
        /// Log bytes in a destaged page.
        72 page_bytes: u32,
        /// Name of the cluster in UTF-8, filled up with zeros.
        80 cluster: [u8; 32],
        /// The release that the sender is of, such as `0.1.0`, filled up with zeros; all zeros: it does not say.
        112 release: [u8; 12],
        crc 124;
    }
    check |hello| {
        if hello.version < hello.version_min || hello.version_min == 0 {
            Err(("version", "not below version_min, which is at least 1"))
        } else if Hello::name(&hello.cluster).is_none() {
            Err(("cluster", "UTF-8, filled up with zeros"))
        } else {
            Ok(())
        }
    };
}

impl Hello {
    /// The bytes of a cluster's name; `None`: it has none, more than 32 or zeros.
    pub fn cluster_bytes(name: &str) -> Option<[u8; 32]> {
        let mut bytes = [0; 32];
        bytes.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
        (!name.is_empty() && !name.contains('\0')).then_some(bytes)
    }

    /// The bytes of a release's name, as many as there is room for.
    pub fn release_bytes(name: &str) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        bytes
    }

    /// The release that the sender is of, for a terminal; `None`: it does not say.
    pub fn release_name(&self) -> Option<String> {
        let len = self.release.iter().position(|&byte| byte == 0).unwrap_or(self.release.len());
        (len > 0).then(|| printable(&String::from_utf8_lossy(&self.release[..len])))
    }

    fn name(bytes: &[u8; 32]) -> Option<&str> {
        let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        let is_good = len > 0 && bytes[len..].iter().all(|&byte| byte == 0);
        std::str::from_utf8(&bytes[..len]).ok().filter(|_| is_good)
    }

    /// The cluster's name.
    pub fn cluster_name(&self) -> &str {
        Hello::name(&self.cluster).unwrap_or_default()
    }

    /// Why `ours` refuses to talk to the sender of `theirs`, in words that name both values; `None`: it does not.
    pub fn mismatch(ours: &Hello, theirs: &Hello) -> Option<String> {
        let (a, b) = (ours, theirs);
        Some(match () {
            () if b.version < a.version_min || a.version < b.version_min => format!(
                "node {} speaks versions {} to {} of the protocol, and node {} {} to {}: install the same release on \
                 both",
                b.node, b.version_min, b.version, a.node, a.version_min, a.version
            ),
            () if a.cluster != b.cluster => format!(
                "node {} is of cluster {:?}, and node {} of {:?}: give both the same --cluster",
                b.node,
                b.cluster_name(),
                a.node,
                a.cluster_name()
            ),
            () if b.to != a.node => {
                format!("node {} looks for node {} here, and this is node {}: check --peer", b.node, b.to, a.node)
            }
            () if b.node == a.node => format!("both are node {}: give each device a --node of its own", a.node),
            () if a.drive == b.drive => format!(
                "nodes {} and {} have the same drive identifier: one image is a copy of the other; make a new image \
                 for one of them",
                b.node, a.node
            ),
            () if a.lanes != b.lanes => {
                let function = a.lanes.iter().zip(&b.lanes).position(|(a, b)| a != b).unwrap_or_default();
                match (b.lanes[function], a.lanes[function]) {
                    (0, _) => Hello::lone(function, a, b),
                    (_, 0) => Hello::lone(function, b, a),
                    (theirs, ours) => format!(
                        "function {function} has {theirs} lanes on node {}, and {ours} on node {}: give both the same \
                         fast.lanes",
                        b.node, a.node
                    ),
                }
            }
            () if a.page_bytes != b.page_bytes => format!(
                "a page holds {} bytes of the log on node {}, and {} on node {}: give both the same nand.page_size",
                b.page_bytes, b.node, a.page_bytes, a.node
            ),
            () => return None,
        })
    }

    /// A function that one of them alone has.
    fn lone(function: usize, has: &Hello, has_not: &Hello) -> String {
        format!(
            "node {} has a log of function {function}, and node {} has none: give both the same fast.functions",
            has.node, has_not.node
        )
    }
}

/// Sent instead of a hello, or behind it, before the connection is closed: 512 bytes that hold `TIDEDENY` (8), bytes of
/// the text (4), their CRC-32C (4), and the text in UTF-8.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal(String);

impl Refusal {
    /// Bytes of a refusal.
    pub const SIZE: usize = 512;
    /// Its first bytes.
    const MAGIC: [u8; 8] = *b"TIDEDENY";
    const HEAD: usize = 16;

    /// A refusal for this reason, which is cut after 496 bytes.
    pub fn new(why: &str) -> Refusal {
        let mut end = why.len().min(Refusal::SIZE - Refusal::HEAD);
        while !why.is_char_boundary(end) {
            end -= 1;
        }
        Refusal(why[..end].to_owned())
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; Refusal::SIZE] {
        let mut bytes = [0; Refusal::SIZE];
        bytes[..8].copy_from_slice(&Refusal::MAGIC);
        bytes[8..12].copy_from_slice(&(self.0.len() as u32).to_le_bytes());
        bytes[12..16].copy_from_slice(&crc32c(self.0.as_bytes()).to_le_bytes());
        bytes[Refusal::HEAD..][..self.0.len()].copy_from_slice(self.0.as_bytes());
        bytes
    }

    /// The refusal in these bytes, if they are one.
    pub fn parse(bytes: &[u8; Refusal::SIZE]) -> Option<Refusal> {
        let (head, text) = bytes.split_first_chunk::<{ Refusal::HEAD }>()?;
        let [a, b, c, d, e, f, g, h, l0, l1, l2, l3, c0, c1, c2, c3] = *head;
        let text = text.get(..u32::from_le_bytes([l0, l1, l2, l3]) as usize)?;
        let is_good =
            [a, b, c, d, e, f, g, h] == Refusal::MAGIC && crc32c(text) == u32::from_le_bytes([c0, c1, c2, c3]);
        is_good.then(|| Refusal(String::from_utf8_lossy(text).into_owned()))
    }

    /// The reason; control characters, which a terminal could take for commands, are replaced.
    pub fn why(&self) -> String {
        printable(&self.0)
    }
}

layout! {
    /// In front of each piece behind the hello.
    pub struct Envelope [8] {
        /// Bytes that follow; bit 31: they are a [`Ping`], else a frame and its log bytes.
        0 len: u32,
        /// CRC-32C of these bytes.
        4 checksum: u32,
    }
}

impl Envelope {
    /// Set in the length of a ping.
    pub const PING: u32 = 1 << 31;
    /// Bytes that may follow, at most.
    pub const LEN_MAX: usize = FRAME_BYTES_MAX + PEER_DATA_MAX as usize;
}

layout! {
    /// Measures the round trip: the receiver sends it back.
    pub struct Ping [16] {
        /// The sender's clock, in nanoseconds from any start.
        0 sent_ns: u64,
        /// It comes back.
        8 back: bool,
        /// The disk of the one who sends these bytes: 0, it takes what is written; 1, it is full; else it has failed.
        9 disk: u8,
    }
}

/// A piece behind the hello.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece<'a> {
    /// A frame, and the log bytes that it names: none unless it is a data frame.
    Frame(Box<Frame>, &'a [u8]),
    /// A ping.
    Ping(Ping),
}

/// Why bytes are no piece: the connection ends, since the next one can't be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PieceError {
    /// More bytes are announced than a piece has.
    Length(u32),
    /// The checksum is wrong.
    Checksum,
    /// The frame is none.
    Frame(FrameError),
    /// The bytes behind the frame are not those that it names, or a ping is none.
    Content,
}

impl std::fmt::Display for PieceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PieceError::Length(len) => write!(f, "a piece of {len} bytes: at most {} are allowed", Envelope::LEN_MAX),
            PieceError::Checksum => f.write_str("the checksum of a piece is wrong"),
            PieceError::Frame(error) => error.fmt(f),
            PieceError::Content => f.write_str("the bytes of a piece are not what its frame says"),
        }
    }
}

impl std::error::Error for PieceError {}

impl<'a> Piece<'a> {
    /// Adds a frame with the log bytes that it names to what is to be sent.
    pub fn append_frame(frame: &Frame, log: &[u8], to: &mut Vec<u8>) {
        let mut bytes = [0; FRAME_BYTES_MAX];
        let len = frame.encode(&mut bytes);
        append(0, [&bytes[..len], log], to);
    }

    /// Adds a ping to what is to be sent.
    pub fn append_ping(ping: &Ping, to: &mut Vec<u8>) {
        append(Envelope::PING, [&ping.to_bytes(), &[]], to);
    }

    /// The first piece in these bytes, and how many of them it takes; `None`: it has not come whole.
    ///
    /// # Errors
    /// Bytes that are no piece.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Piece<'a>, usize)>, PieceError> {
        let Some(head) = bytes.first_chunk::<{ Envelope::SIZE }>() else { return Ok(None) };
        let Ok(Envelope { len: word, checksum }) = Envelope::parse(head) else { return Ok(None) };
        let len = (word & !Envelope::PING) as usize;
        if len > Envelope::LEN_MAX {
            return Err(PieceError::Length(len as u32));
        }
        let end = Envelope::SIZE + len;
        let Some(body) = bytes.get(Envelope::SIZE..end) else { return Ok(None) };
        if crc32c(body) != checksum {
            return Err(PieceError::Checksum);
        }
        if word & Envelope::PING != 0 {
            let ping = (len == Ping::SIZE).then(|| Ping::parse(body).ok()).flatten();
            return Ok(Some((Piece::Ping(ping.ok_or(PieceError::Content)?), end)));
        }
        let (frame, log) = body.split_at(Frame::len_of(body).ok_or(PieceError::Content)?);
        let frame = Frame::parse(frame).map_err(PieceError::Frame)?;
        if log.len() != frame.log_bytes() as usize {
            return Err(PieceError::Content);
        }
        Ok(Some((Piece::Frame(Box::new(frame), log), end)))
    }
}

fn append(flag: u32, parts: [&[u8]; 2], to: &mut Vec<u8>) {
    let start = to.len();
    to.extend_from_slice(&[0; Envelope::SIZE]);
    to.extend_from_slice(parts[0]);
    to.extend_from_slice(parts[1]);
    let body = &to[start + Envelope::SIZE..];
    let head = Envelope { len: body.len() as u32 | flag, checksum: crc32c(body) };
    to[start..start + Envelope::SIZE].copy_from_slice(&head.to_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::{Body, Epoch};
    use proptest::prelude::*;

    fn hello() -> Hello {
        Hello {
            version: PEER_VERSION,
            version_min: 1,
            node: 1,
            to: 2,
            lanes: [4; LANES_MAX],
            drive: [1; 16],
            cluster: Hello::cluster_bytes("shop").unwrap(),
            ..Hello::default()
        }
    }

    #[test]
    fn what_keeps_two_devices_apart_is_named_with_both_values() {
        let ours = Hello { node: 2, to: 1, drive: [2; 16], ..hello() };
        let mut only_first = [0; LANES_MAX];
        only_first[0] = 4;
        assert_eq!(Hello::mismatch(&ours, &hello()), None);
        for (theirs, wanted) in [
            (Hello { version: 9, version_min: 8, ..hello() }, "versions 8 to 9"),
            (Hello { cluster: Hello::cluster_bytes("bank").unwrap(), ..hello() }, "\"bank\""),
            (Hello { to: 3, ..hello() }, "looks for node 3"),
            (Hello { node: 2, ..hello() }, "both are node 2"),
            (Hello { drive: [2; 16], ..hello() }, "same drive identifier"),
            (Hello { lanes: [2; LANES_MAX], ..hello() }, "function 0 has 2 lanes on node 1, and 4 on node 2"),
            (Hello { lanes: only_first, ..hello() }, "node 2 has a log of function 1, and node 1 has none"),
            (Hello { page_bytes: 4096, ..hello() }, "a page holds 4096 bytes of the log on node 1, and 0 on node 2"),
        ] {
            let why = Hello::mismatch(&ours, &theirs).expect(wanted);
            assert!(why.contains(wanted), "{why}");
        }
        assert_eq!(Hello::cluster_bytes(""), None);
        assert_eq!(Hello::cluster_bytes(&"x".repeat(33)), None);
        assert_eq!(hello().cluster_name(), "shop");
        let of = |name: &str| Hello { release: Hello::release_bytes(name), ..hello() }.release_name();
        assert_eq!(of("0.1.0").as_deref(), Some("0.1.0"));
        assert_eq!(of("\u{1b}[2J-and-far-more").as_deref(), Some("\u{fffd}[2J-and-far"));
        assert_eq!(of(""), None);
    }

    #[test]
    fn a_refusal_keeps_its_text_and_nothing_that_a_terminal_obeys() {
        let long = format!("{}ü{}", "a".repeat(495), "b".repeat(50));
        assert_eq!(Refusal::new(&long).why(), "a".repeat(495));
        let parsed = Refusal::parse(&Refusal::new("no\u{1b}[2J").to_bytes()).unwrap();
        assert_eq!(parsed.why(), "no\u{fffd}[2J");
    }

    proptest! {
        /// Pieces come back whole however the stream is cut, and a changed byte is found.
        #[test]
        fn pieces_come_back_and_changed_bytes_do_not(
            log in prop::collection::vec(any::<u8>(), 1..300),
            cut in any::<prop::sample::Index>(),
            flip in any::<prop::sample::Index>(),
        ) {
            let frame = Frame {
                function: 0,
                from: 1,
                to: 2,
                epoch: Epoch::ZERO,
                body: Body::Data { pulled: false, lane: 0, offset: 7, len: log.len() as u32 },
            };
            let ping = Ping { sent_ns: 5, back: true, disk: 1 };
            let mut stream = Vec::new();
            Piece::append_frame(&frame, &log, &mut stream);
            let first = stream.len();
            Piece::append_ping(&ping, &mut stream);
            let (piece, used) = Piece::parse(&stream).unwrap().unwrap();
            prop_assert_eq!((piece, used), (Piece::Frame(Box::new(frame), &log[..]), first));
            let rest = Piece::parse(&stream[first..]).unwrap().unwrap();
            prop_assert_eq!(rest, (Piece::Ping(ping), stream.len() - first));
            prop_assert_eq!(Piece::parse(&stream[..cut.index(first)]), Ok(None));
            let at = flip.index(first - 4) + 4;
            stream[at] ^= 0x40;
            prop_assert!(Piece::parse(&stream).is_err());
        }
    }
}
