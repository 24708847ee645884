//! Changes that the system refuses while a log is replayed.
//!
//! A change refused now may have been refused to the program, too (a full disk, a quota, a limit): then the log goes
//! back on it further on. Bytes that the file has already need not be written: a full disk may have no room even for
//! those, where it writes nothing in place.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use nix::fcntl::{FallocateFlags, PosixFadviseAdvice, fallocate, posix_fadvise};

use crate::compare::same;

/// Bytes that are held against a file at once.
const PART: usize = 16 << 10;

/// The unit by which file systems give out room, as a rule.
const BLOCK: usize = 4096;

/// The bytes of its log that a file has not got so far.
#[derive(Debug, Default)]
pub(crate) struct Unwritten {
    /// Bytes from one offset to another, in no order and without overlaps.
    ranges: Vec<(u64, u64)>,
    /// A length that was refused, and not taken back.
    len: bool,
    /// The first refusal of all that is left.
    error: Option<io::Error>,
    /// The file was made durable, and is read from its disk.
    is_fresh: bool,
    /// Zeroes take no room.
    punches: bool,
}

impl Unwritten {
    /// Nothing yet. `punches`: zeroes are to take no room.
    pub(crate) fn new(punches: bool) -> Unwritten {
        Unwritten { punches, ..Unwritten::default() }
    }

    /// Writes bytes, where the file has not got them.
    ///
    /// # Errors
    /// The file can't be read.
    pub(crate) fn write(&mut self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        if !self.punches {
            self.put(file, bytes, offset);
            return Ok(());
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let at = offset + (bytes.len() - rest.len()) as u64;
            let part;
            (part, rest) = rest.split_at(rest.len().min(BLOCK - (at % BLOCK as u64) as usize));
            // Parts of a block, too: what is recorded of a write that failed may be of a hole, which the program found
            // no room to fill. Behind the end, the file is made longer by a hole.
            let until = at + part.len() as u64;
            if part.iter().all(|byte| *byte == 0) && (file.metadata()?.size() >= until || file.set_len(until).is_ok()) {
                self.zero(file, at, part.len() as u64)?;
            } else {
                self.put(file, part, at);
            }
        }
        Ok(())
    }

    fn put(&mut self, file: &File, bytes: &[u8], offset: u64) {
        let (mut at, end) = (offset, offset.saturating_add(bytes.len() as u64));
        while at < end {
            match file.write_at(&bytes[(at - offset) as usize..], at) {
                Ok(0) => {
                    self.refuse(io::ErrorKind::WriteZero.into());
                    break;
                }
                Ok(done) => {
                    self.has(at, at + done as u64);
                    at += done as u64;
                    self.is_fresh = false;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.refuse(error);
                    break;
                }
            }
        }
        // Part by part: most of it may be there.
        while at < end {
            let part = &bytes[(at - offset) as usize..];
            let part = &part[..part.len().min(PART)];
            let until = at + part.len() as u64;
            self.has(at, until);
            if !self.is_there(file, part, at) {
                self.lacks(at, until);
            }
            at = until;
        }
        self.settle();
    }

    /// Zeroes a part of a file as far as it goes, where it is not zero.
    pub(crate) fn zero(&mut self, file: &File, offset: u64, len: u64) -> io::Result<()> {
        let size = file.metadata()?.size();
        let end = offset.saturating_add(len).min(size);
        let (zeroes, mut place) = ([0; PART], [0; PART]);
        let mut at = offset;
        if self.punches && offset < end {
            let how = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
            // Whole blocks alone give room: those at both ends as well, if the rest of them is zeroes, or behind the
            // end.
            let block = BLOCK as u64;
            let (mut from, mut to) = (offset - offset % block, end.next_multiple_of(block));
            let mut is_zero = |one: u64, other: u64| {
                let rest = &mut place[..(other - one) as usize];
                file.read_exact_at(rest, one).map(|()| rest.iter().all(|byte| *byte == 0))
            };
            if !is_zero(from, offset)? {
                from = offset;
            }
            if !is_zero(end, to.min(size))? {
                to = end;
            }
            // Where the file system has no holes, it is written.
            let _ = fallocate(file, how, from as i64, (to - from) as i64);
        }
        while at < end {
            let until = end.min(at + PART as u64);
            let part = (until - at) as usize;
            file.read_exact_at(&mut place[..part], at)?;
            // One that is a hole by now, too.
            if same(&place[..part], &zeroes[..part]) == part {
                self.has(at, until);
                self.settle();
            } else {
                self.put(file, &zeroes[..part], at);
            }
            at = until;
        }
        Ok(())
    }

    /// Gives a file a length.
    pub(crate) fn cut(&mut self, file: &File, len: u64) {
        match file.set_len(len) {
            Ok(()) => {
                self.has(len, u64::MAX);
                self.len = false;
                self.is_fresh = false;
            }
            Err(error) => {
                let size = file.metadata().map_or(u64::MAX, |about| about.size());
                self.has(len, u64::MAX);
                if size != len {
                    self.refuse(error);
                    self.len = true;
                }
                if size > len {
                    self.lacks(len, size);
                }
            }
        }
        self.settle();
    }

    /// Why the file is not as its log says.
    pub(crate) fn error(&mut self) -> Option<io::Error> {
        self.error.take()
    }

    fn refuse(&mut self, error: io::Error) {
        self.error.get_or_insert(error);
    }

    fn settle(&mut self) {
        if self.ranges.is_empty() && !self.len {
            self.error = None;
        }
    }

    fn lacks(&mut self, from: u64, to: u64) {
        match self.ranges.iter_mut().find(|(_, end)| *end == from) {
            Some((_, end)) => *end = to,
            None => self.ranges.push((from, to)),
        }
    }

    /// These are as the log says.
    fn has(&mut self, from: u64, to: u64) {
        if self.ranges.is_empty() {
            return;
        }
        let old = std::mem::take(&mut self.ranges);
        let left = old.into_iter().flat_map(|(one, other)| [(one, other.min(from)), (one.max(to), other)]);
        self.ranges = left.filter(|(one, other)| one < other).collect();
    }

    /// Whether a file has bytes on its disk. Those in memory may never have got there: a sync that failed leaves them
    /// looking so.
    fn is_there(&mut self, file: &File, bytes: &[u8], at: u64) -> bool {
        if !self.is_fresh {
            self.is_fresh = nix::unistd::fdatasync(file).is_ok()
                && posix_fadvise(file.as_fd(), 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED).is_ok();
        }
        let mut place = [0; PART];
        let place = &mut place[..bytes.len()];
        self.is_fresh && file.read_exact_at(place, at).is_ok() && same(place, bytes) == bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_of_no_matter_once_the_log_goes_back_on_it() {
        let file = tempfile::tempfile().expect("a file");
        let mut own = Unwritten::default();
        let mut refused = |from: u64, to: u64| {
            own.lacks(from, to);
            own.refuse(io::Error::from_raw_os_error(28));
            std::mem::take(&mut own)
        };
        // Written by halves, and cut there.
        let mut part = refused(100, 200);
        part.write(&file, &[1; 50], 100).expect("the file can be read");
        assert_eq!(part.ranges, [(150, 200)]);
        part.cut(&file, 151);
        assert_eq!(part.ranges, [(150, 151)]);
        part.cut(&file, 150);
        assert!(part.error().is_none());
        // Of two, each has to be gone back on.
        let mut part = refused(8192, 8193);
        part.lacks(4096, 4097);
        part.cut(&file, 8192);
        assert!(part.ranges == [(4096, 4097)] && part.error.is_some());
        part.cut(&file, 150);
        assert!(part.error().is_none());
        // Amid what is written over.
        let mut part = refused(10, 20);
        part.write(&file, &[2; 4], 12).expect("the file can be read");
        assert_eq!(part.ranges, [(10, 12), (16, 20)]);
        part.zero(&file, 0, 100).expect("the file can be read");
        assert!(part.error().is_none() && file.metadata().expect("a file").len() == 150);
        // What is behind it tells that the file had it.
        let mut part = refused(150, 160);
        part.write(&file, &[3; 5], 160).expect("the file can be read");
        assert!(part.error().is_some());
    }

    #[test]
    fn zeroes_take_no_room_in_a_hole_be_they_a_block_or_less() {
        let file = tempfile::tempfile().expect("a file");
        let mut own = Unwritten::new(true);
        own.write(&file, &[0; 5000], 0).expect("it is a file");
        own.write(&file, &[0; 100], 4900).expect("it is a file");
        own.cut(&file, 20_000);
        own.write(&file, &[0; 9000], 7000).expect("it is a file");
        own.write(&file, &[0; 7000], 19_000).expect("it is a file");
        let about = file.metadata().expect("it is a file");
        assert_eq!((about.size(), about.blocks()), (26_000, 0));
        assert!(own.error().is_none() && own.ranges.is_empty());
        // Bytes that were there give their room back, in parts of a block, and at the end.
        own.write(&file, &[7; 1000], 25_000).expect("it is a file");
        assert!(file.metadata().expect("it is a file").blocks() > 0);
        own.zero(&file, 25_000, 600).expect("it is a file");
        own.write(&file, &[0; 400], 25_600).expect("it is a file");
        assert_eq!(file.metadata().expect("it is a file").blocks(), 0);
        own.write(&file, &[7; 3000], 4000).expect("it is a file");
        own.write(&file, &[0; 2000], 4500).expect("it is a file");
        let mut bytes = vec![1; 3000];
        file.read_exact_at(&mut bytes, 4000).expect("it is a file");
        assert_eq!(bytes, [vec![7; 500], vec![0; 2000], vec![7; 500]].concat());
    }

    #[test]
    fn what_can_not_be_written_is_right_where_the_file_has_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        std::fs::write(&path, [7; 100]).expect("there is room");
        // By a descriptor that may not write, nothing can be.
        let file = File::open(&path).expect("the file can be opened");
        let mut own = Unwritten::default();
        own.write(&file, &[7; 60], 40).expect("the file can be read");
        own.cut(&file, 100);
        own.zero(&file, 100, 50).expect("the file can be read");
        assert!(own.error().is_none());
        own.write(&file, &[7; 61], 40).expect("the file can be read");
        assert!(own.error().is_some(), "a byte more");
    }
}
