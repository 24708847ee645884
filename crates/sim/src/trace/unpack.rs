//! From stored bytes to plain ones: compression and wide characters, distinguished by the first bytes.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;

/// Bytes at the start that are looked at.
const HEAD_BYTES: usize = 16;

/// Plain bytes of `raw`, whichever of gzip and zstd it is packed with, and UTF-8 where it is UTF-16.
///
/// # Errors
/// Any other compression is an error that names the command to unpack it; `name` is the file's.
pub(super) fn plain(raw: Box<dyn Read + Send>, name: &str, buffer: usize) -> io::Result<Box<dyn Read + Send>> {
    let (head, raw) = peek(raw)?;
    let raw = BufReader::with_capacity(buffer, raw);
    if let Some((format, command)) = unread(&head) {
        return Err(io::Error::other(format!(
            "is packed with {format}, which is not read here; unpack it first, as in: {command} {name} | \
             tidewater trace info -"
        )));
    }
    let unpacked: Box<dyn Read + Send> = match head[..] {
        [0x1f, 0x8b, ..] => Box::new(Members(Some(GzDecoder::new(raw)))),
        // A frame, or one to be skipped (RFC 8878, 3.1.2), with which pzstd begins.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            Box::new(zstd::stream::read::Decoder::with_buffer(raw)?)
        }
        _ => Box::new(raw),
    };
    Ok(Box::new(Narrow { inner: unpacked, state: State::Unknown, failed: None }))
}

/// Recognizes a compression that is not supported here: its name, and the command that unpacks to standard output.
fn unread(head: &[u8]) -> Option<(&'static str, &'static str)> {
    match head {
        [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..] => Some(("bzip2", "bunzip2 -c")),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(("xz", "xz -dc")),
        [b'P', b'K', 3, 4, ..] => Some(("zip", "unzip -p")),
        [b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c, ..] => Some(("7-Zip", "7z e -so")),
        [0x04, 0x22, 0x4d, 0x18, ..] => Some(("lz4", "lz4 -dc")),
        _ => None,
    }
}

type Peeked = io::Chain<io::Cursor<Vec<u8>>, Box<dyn Read + Send>>;

/// The first bytes, and everything from the start on.
fn peek(mut raw: Box<dyn Read + Send>) -> io::Result<(Vec<u8>, Peeked)> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    raw.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok((head.clone(), io::Cursor::new(head).chain(raw)))
}

/// Contents of the members of a gzip file, one after the other. Zeroes behind a member are padding, as tapes and block
/// devices leave it: gzip(1) passes over them as well. `None`: the end.
struct Members<R>(Option<GzDecoder<R>>);

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some(mut rest) = self.0.take().map(GzDecoder::into_inner) else { break };
            if skip_zeroes(&mut rest)? {
                self.0 = Some(GzDecoder::new(rest));
            }
        }
        Ok(0)
    }
}

/// Passes over zeroes. False: nothing else follows.
fn skip_zeroes(input: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let bytes = input.fill_buf()?;
        let length = bytes.len();
        match bytes.iter().position(|&byte| byte != 0) {
            Some(zeroes) => {
                input.consume(zeroes);
                return Ok(true);
            }
            None if length == 0 => return Ok(false),
            None => input.consume(length),
        }
    }
}

/// UTF-16 with a byte order mark (PowerShell's `>` writes it) as UTF-8; everything else as it is.
struct Narrow {
    inner: Box<dyn Read + Send>,
    state: State,
    /// The error behind the first bytes, returned after them.
    failed: Option<io::Error>,
}

enum State {
    /// Nothing was read yet.
    Unknown,
    /// Bytes that were looked at, and how many of them were given.
    Plain(Vec<u8>, usize),
    /// UTF-16: whether the high byte comes first; bytes that are not given yet; half a character; the first of two
    /// surrogates.
    Wide { big: bool, ready: io::Cursor<Vec<u8>>, half: Option<u8>, high: Option<u16> },
}

/// The order of the bytes of UTF-16: known by its mark, and by characters of ASCII behind it.
fn wide(head: &[u8]) -> Option<bool> {
    let big = match head {
        [0xff, 0xfe, ..] => false,
        [0xfe, 0xff, ..] => true,
        _ => return None,
    };
    let pairs = head[2..].as_chunks::<2>().0;
    let is_ascii = |pair: &[u8; 2]| {
        let [high, low] = if big { *pair } else { [pair[1], pair[0]] };
        high == 0 && low.is_ascii() && low != 0
    };
    pairs.iter().all(is_ascii).then_some(big)
}

impl Read for Narrow {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if matches!(self.state, State::Unknown) {
            let mut head = Vec::with_capacity(HEAD_BYTES);
            self.failed = self.inner.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head).err();
            self.state = match wide(&head) {
                None => State::Plain(head, 0),
                Some(big) => {
                    let mut text = Vec::new();
                    let (mut half, mut high) = (None, None);
                    narrow(&head[2..], big, &mut half, &mut high, &mut text);
                    State::Wide { big, ready: io::Cursor::new(text), half, high }
                }
            };
        }
        match &mut self.state {
            State::Unknown => Ok(0),
            State::Plain(head, given) if *given < head.len() => {
                let read = buffer.len().min(head.len() - *given);
                buffer[..read].copy_from_slice(&head[*given..*given + read]);
                *given += read;
                Ok(read)
            }
            State::Plain(..) => match self.failed.take() {
                Some(error) => Err(error),
                None => self.inner.read(buffer),
            },
            State::Wide { big, ready, half, high } => loop {
                let read = ready.read(buffer)?;
                if read > 0 || buffer.is_empty() {
                    return Ok(read);
                }
                if let Some(error) = self.failed.take() {
                    return Err(error);
                }
                let mut bytes = [0; 4_096];
                let read = self.inner.read(&mut bytes)?;
                if read == 0 {
                    return Ok(0);
                }
                let mut text = std::mem::take(ready).into_inner();
                text.clear();
                narrow(&bytes[..read], *big, half, high, &mut text);
                *ready = io::Cursor::new(text);
            },
        }
    }
}

/// Appends what `bytes` of UTF-16 say. Half a pair of surrogates becomes U+FFFD.
fn narrow(bytes: &[u8], big: bool, half: &mut Option<u8>, high: &mut Option<u16>, text: &mut Vec<u8>) {
    let mut put = |unit: char| text.extend_from_slice(unit.encode_utf8(&mut [0; 4]).as_bytes());
    for &byte in bytes {
        let Some(first) = half.take() else {
            *half = Some(byte);
            continue;
        };
        let unit = if big { u16::from_be_bytes([first, byte]) } else { u16::from_le_bytes([first, byte]) };
        let before = high.take();
        if before.is_none() && (0xd800..0xdc00).contains(&unit) {
            *high = Some(unit);
            continue;
        }
        for unit in char::decode_utf16(before.into_iter().chain([unit])) {
            put(unit.unwrap_or(char::REPLACEMENT_CHARACTER));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        plain(Box::new(io::Cursor::new(bytes.to_vec())), "t", 4_096)?.read_to_end(&mut all)?;
        Ok(all)
    }

    fn utf16(text: &str, big: bool) -> Vec<u8> {
        let unit = |unit: u16| if big { unit.to_be_bytes() } else { unit.to_le_bytes() };
        std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(unit).collect()
    }

    #[test]
    fn wide_text_is_read_and_compressed_too() {
        let text = format!("0,1,512,w,0.0\n{}\u{1f30a}é\n", "x".repeat(10_000));
        for big in [false, true] {
            let wide = utf16(&text, big);
            assert_eq!(read(&wide).unwrap(), text.as_bytes());
            assert_eq!(read(&zstd::encode_all(&wide[..], 3).unwrap()).unwrap(), text.as_bytes());
        }
        // Not text: records that begin like a mark.
        let record = [0xff, 0xfe, 1, 0, 0, 16, 0, 0, 1, 0, 0, 0, 0x28, 0, 0, 1, 9, 9];
        assert_eq!(read(&record).unwrap(), record);
        assert_eq!(read(b"\xff\xfe\x3d\xd8").unwrap(), b"\xff\xfe\x3d\xd8");
        assert_eq!(read(b"").unwrap(), b"");
    }

    #[test]
    fn what_is_packed_otherwise_is_named_with_its_command() {
        for (head, name, command) in [
            (&b"BZh91AY&SY...."[..], "bzip2", "bunzip2 -c t | "),
            (b"\xfd7zXZ\0...", "xz", "xz -dc t | "),
            (b"PK\x03\x04...", "zip", "unzip -p t | "),
            (b"7z\xbc\xaf\x27\x1c..", "7-Zip", "7z e -so t | "),
            (b"\x04\x22\x4d\x18...", "lz4", "lz4 -dc t | "),
        ] {
            let error = read(head).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(command), "{error}");
        }
    }

    use proptest::prelude::*;
    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), mark in 0..4) {
            let marks = [&b""[..], b"\xff\xfe", b"\xfe\xff", b"\xff\xfe0\x001\x00"];
            let _ = read(&[marks[mark as usize], &bytes].concat());
        }
    }
}
