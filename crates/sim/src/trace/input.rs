//! Bytes of a trace: a file, standard input or memory; plain, gzip or zstd, distinguished by their first bytes.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::unpack;
use crate::request::SourceError;

/// Bytes kept of the stream: the longest line, and what detection looks at.
const BUFFER_BYTES: usize = 1 << 16;
/// Bytes kept of a line that is too long, to show where it starts.
const CUT_BYTES: usize = 64;

/// Where a trace is.
#[derive(Clone, Debug)]
pub enum Input {
    /// A file. A path that is not a regular file (a pipe, a device) is read once, front to back.
    Path(PathBuf),
    /// Standard input, read once.
    Stdin,
    /// Bytes in memory, with a name for messages.
    Bytes {
        /// The name.
        name: String,
        /// The bytes, compressed or not.
        bytes: Arc<[u8]>,
    },
}

impl Input {
    /// The input that a command line names: `-` is standard input.
    pub fn from_argument(argument: &str) -> Input {
        if argument == "-" { Input::Stdin } else { Input::Path(PathBuf::from(argument)) }
    }

    /// Bytes in memory under `name`.
    pub fn from_bytes(name: &str, bytes: &[u8]) -> Input {
        Input::Bytes { name: name.to_owned(), bytes: Arc::from(bytes) }
    }

    /// The name that messages use.
    pub fn name(&self) -> String {
        match self {
            Input::Path(path) => path.display().to_string(),
            Input::Stdin => "(standard input)".to_owned(),
            Input::Bytes { name, .. } => name.clone(),
        }
    }

    /// Whether it can be read more than once.
    pub fn rereadable(&self) -> bool {
        match self {
            Input::Path(path) => path.metadata().is_ok_and(|m| m.is_file()),
            Input::Stdin => false,
            Input::Bytes { .. } => true,
        }
    }

    pub(crate) fn io_error(&self, error: &io::Error) -> SourceError {
        SourceError::Io { file: self.name(), reason: error.to_string() }
    }

    /// Opens it at its first byte.
    pub(crate) fn open(&self) -> Result<Lines, SourceError> {
        self.try_open().map_err(|error| self.io_error(&error))
    }

    fn try_open(&self) -> io::Result<Lines> {
        let (raw, total): (Box<dyn Read + Send>, Option<u64>) = match self {
            Input::Path(path) => {
                let file = File::open(path)?;
                let metadata = file.metadata()?;
                if metadata.is_dir() {
                    return Err(io::Error::other("is a directory, not a trace"));
                }
                let total = metadata.is_file().then_some(metadata.len());
                (Box::new(file), total)
            }
            Input::Stdin => (Box::new(io::stdin()), None),
            Input::Bytes { bytes, .. } => (Box::new(io::Cursor::new(Arc::clone(bytes))), Some(bytes.len() as u64)),
        };
        let consumed = Arc::new(AtomicU64::new(0));
        let counted = Counted { inner: raw, consumed: Arc::clone(&consumed) };
        let inner = unpack::plain(Box::new(counted), &self.name(), BUFFER_BYTES)?;
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Ok(Lines {
            inner,
            consumed,
            total,
            buffer,
            start: 0,
            end: 0,
            at_end: false,
            broken: None,
            offset: 0,
            line: 0,
            too_long: false,
            cut: [0; CUT_BYTES],
        })
    }
}

/// Counts the bytes read, so that compressed input has progress too.
struct Counted {
    inner: Box<dyn Read + Send>,
    consumed: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.consumed.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Message for compressed data that is cut off.
const CUT: &str = "the compressed data ends early,";

/// Whether an error says that compressed data is damaged, rather than that nothing can be read.
fn damaged(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
    error.raw_os_error().is_none() && matches!(error.kind(), UnexpectedEof | InvalidData | InvalidInput | Other)
}

/// A stream of decompressed bytes, cut into lines or records in one fixed buffer.
pub(crate) struct Lines {
    inner: Box<dyn Read + Send>,
    consumed: Arc<AtomicU64>,
    total: Option<u64>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    at_end: bool,
    /// Why nothing can be read beyond the end.
    broken: Option<String>,
    /// Decompressed bytes before `start`.
    offset: u64,
    line: u64,
    too_long: bool,
    cut: [u8; CUT_BYTES],
}

impl Lines {
    /// The share of the (compressed) input that was read.
    pub fn progress(&self) -> Option<f64> {
        let total = self.total.filter(|&total| total > 0)?;
        Some((self.consumed.load(Ordering::Relaxed) as f64 / total as f64).min(1.0))
    }

    /// The number of the line that was taken last, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Decompressed bytes taken so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Why the stream ended before its end, once it was read to there: what was cut within a line is not given.
    pub fn broken(&self) -> Option<String> {
        self.broken.clone()
    }

    /// Reads more, moving what is left to the front. False at the end or when the buffer is full.
    fn fill(&mut self) -> io::Result<bool> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        while !self.at_end && self.end < self.buffer.len() {
            match self.inner.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.at_end = true,
                Ok(read) => {
                    self.end += read;
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The whole lines before it are good.
                Err(error) if damaged(&error) => {
                    self.at_end = true;
                    let cut = error.kind() == io::ErrorKind::UnexpectedEof;
                    self.broken =
                        Some(if cut { CUT.into() } else { format!("it cannot be decompressed further ({error}),") });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// The first bytes, as many as the buffer holds, without taking them, and whether that is all there is.
    pub fn head(&mut self) -> io::Result<(&[u8], bool)> {
        while self.fill()? {}
        Ok((&self.buffer[self.start..self.end], self.at_end && self.broken.is_none()))
    }

    /// The next line without its line feed, or `None` at the end. A line that the buffer cannot hold comes cut, with
    /// [`Lines::was_too_long`] telling so.
    pub fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        let mut searched = 0;
        self.too_long = false;
        loop {
            let fresh = &self.buffer[self.start + searched..self.end];
            if let Some(at) = fresh.iter().position(|&byte| byte == b'\n') {
                let start = self.start;
                let end = start + searched + at;
                self.take(end + 1 - start);
                return Ok(Some(&self.buffer[start..end]));
            }
            searched = self.end - self.start;
            if self.fill()? {
                continue;
            }
            if searched == 0 || self.broken.is_some() {
                return Ok(None);
            }
            if self.at_end {
                let (start, end) = (self.start, self.end);
                self.take(searched);
                return Ok(Some(&self.buffer[start..end]));
            }
            self.skip_rest_of_line()?;
            return Ok(Some(&self.cut));
        }
    }

    fn take(&mut self, bytes: usize) {
        self.start += bytes;
        self.offset += bytes as u64;
        self.line += 1;
    }

    /// Keeps the first bytes of a full buffer for the message, and drops the line up to its line feed.
    fn skip_rest_of_line(&mut self) -> io::Result<()> {
        self.cut.copy_from_slice(&self.buffer[self.start..self.start + CUT_BYTES]);
        loop {
            let found = self.buffer[self.start..self.end].iter().position(|&byte| byte == b'\n');
            let dropped = found.map_or(self.end - self.start, |at| at + 1);
            self.start += dropped;
            self.offset += dropped as u64;
            if found.is_some() || !self.fill()? {
                break;
            }
        }
        self.too_long = true;
        self.line += 1;
        Ok(())
    }

    /// Whether the line that was taken last was longer than the buffer.
    pub fn was_too_long(&self) -> bool {
        self.too_long
    }

    /// The next record of `size` bytes; `None` at the end; fewer bytes when the stream ends within a record.
    pub fn next_record(&mut self, size: usize) -> io::Result<Option<&[u8]>> {
        while self.end - self.start < size {
            if !self.fill()? {
                break;
            }
        }
        let length = size.min(self.end - self.start);
        if length == 0 || length < size && self.broken.is_some() {
            return Ok(None);
        }
        let start = self.start;
        self.take(length);
        Ok(Some(&self.buffer[start..start + length]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn lines(bytes: &[u8]) -> Vec<(u64, bool, Vec<u8>)> {
        let mut lines = Input::from_bytes("t", bytes).open().unwrap();
        let mut all = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            let line = line.to_vec();
            all.push((lines.line(), lines.was_too_long(), line));
        }
        assert_eq!(lines.offset(), bytes_of(bytes).len() as u64);
        all
    }

    fn bytes_of(bytes: &[u8]) -> Vec<u8> {
        let mut lines = Input::from_bytes("t", bytes).open().unwrap();
        let mut all = Vec::new();
        while let Some(record) = lines.next_record(1000).unwrap() {
            all.extend_from_slice(record);
        }
        all
    }

    #[test]
    fn compressed_or_not_the_lines_are_the_same() {
        let text: Vec<u8> = (0..20_000).flat_map(|i| format!("line {i}\n").into_bytes()).collect();
        let zst = zstd::encode_all(&text[..], 3).unwrap();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&text).unwrap();
        let gz = gz.finish().unwrap();
        // Several members, or frames with some that are to be skipped, as parallel compressors write them.
        let (first, second) = text.split_at(50_000);
        let several: Vec<u8> = [first, second]
            .into_iter()
            .flat_map(|part| [b"\x50\x2a\x4d\x18\x04\0\0\0size".to_vec(), zstd::encode_all(part, 3).unwrap()].concat())
            .collect();
        let mut members = Vec::new();
        for part in [first, second] {
            let mut gz = flate2::write::GzEncoder::new(&mut members, flate2::Compression::fast());
            gz.write_all(part).unwrap();
            gz.finish().unwrap();
        }
        for bytes in [&text, &zst, &gz, &several, &members] {
            assert_eq!(bytes_of(bytes), text);
            let mut lines = Input::from_bytes("t", bytes).open().unwrap();
            for i in 0..20_000 {
                assert_eq!(lines.next_line().unwrap().unwrap(), format!("line {i}").as_bytes());
            }
            assert!(lines.next_line().unwrap().is_none());
            assert_eq!((lines.line(), lines.progress()), (20_000, Some(1.0)));
        }
    }

    /// As tapes and block devices leave them: gzip(1) passes over them, and the whole trace was refused behind its last
    /// line.
    #[test]
    fn zeroes_behind_a_gzip_member_are_passed_over() {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(b"a\nb\n").unwrap();
        let gz = gz.finish().unwrap();
        for zeroes in [1, 511, 200_000] {
            let padded = [&gz[..], &vec![0; zeroes]].concat();
            assert_eq!(lines(&padded).len(), 2);
            assert_eq!(bytes_of(&[&padded[..], &gz].concat()), b"a\nb\na\nb\n");
        }
        // What is no padding is not taken for it.
        let mut lines = Input::from_bytes("t", &[&gz[..], b"\0\0rubbish"].concat()).open().unwrap();
        while lines.next_line().unwrap().is_some() {}
        assert!(lines.broken().is_some());
    }

    #[test]
    fn the_last_line_needs_no_line_feed() {
        assert_eq!(lines(b"a\n\nb"), [(1, false, b"a".to_vec()), (2, false, b"".to_vec()), (3, false, b"b".to_vec())]);
        assert_eq!(lines(b""), []);
    }

    #[test]
    fn a_line_longer_than_the_buffer_is_cut_and_the_next_is_whole() {
        for extra in [0, 1, 63, 64, 65, 100_000, 200_000] {
            for tail in [1usize, 10, 70, 60_000, 65_535] {
                let mut text = vec![b'x'; BUFFER_BYTES + extra];
                text.push(b'\n');
                text.extend(vec![b'y'; tail]);
                text.extend(b"\nend");
                let found = lines(&text);
                assert_eq!(found.len(), 3);
                assert!(found[0].1 && !found[1].1);
                assert_eq!((found[1].2.len(), &found[2].2[..]), (tail, &b"end"[..]));
                assert!(found[1].2.iter().all(|&b| b == b'y'), "extra {extra} tail {tail}");
            }
        }
    }

    /// The whole lines before the damage are good, and the reason why there are no more is given.
    #[test]
    fn damaged_compressed_bytes_give_their_whole_lines_and_the_reason() {
        let text: Vec<u8> =
            (0..40_000u32).flat_map(|i| format!("{}\n", i.wrapping_mul(2_654_435_761)).into_bytes()).collect();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(&text).unwrap();
        for whole in [gz.finish().unwrap(), zstd::encode_all(&text[..], 3).unwrap()] {
            for part in [2, 3, 4] {
                let mut lines = Input::from_bytes("t", &whole[..whole.len() * (part - 1) / part]).open().unwrap();
                let mut good = 0;
                for wanted in text.split(|&byte| byte == b'\n') {
                    let Some(line) = lines.next_line().unwrap() else { break };
                    assert_eq!(line, wanted);
                    good += 1;
                }
                assert!((5_000..40_000).contains(&good), "{good}");
                assert_eq!((lines.broken().unwrap().as_str(), lines.line()), (CUT, good));
            }
        }
        let mut lines = Input::from_bytes("t", &[0x1f, 0x8b, 1, 2, 3]).open().unwrap();
        assert_eq!(lines.head().unwrap(), (&b""[..], false));
        assert!(lines.broken().is_some());
    }
}
