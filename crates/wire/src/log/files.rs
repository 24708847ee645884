//! Changes of files as records of a lane: what `tidewater run` puts on a log, and what `tidewater recover` replays (ADR
//! 19).
//!
//! The payload of such a record is a [`FileChange`], and behind it what its kind says: the bytes of a write, a
//! [`FileBind`] with a path, a [`FileSession`] with patterns. Who reads them takes them for what a stranger may have
//! written: [`FileRecord::parse`] gives what is whole.

use crate::layout::{LayoutError, codes, layout};

codes! {
    /// Kind of a record about a file.
    pub enum FileChangeKind {
        /// A program was started: ids count from here on.
        Session = 1 "session",
        /// An id stands for this file.
        Bind = 2 "bind",
        /// Bytes were written.
        Write = 3 "write",
        /// The file has this length.
        Truncate = 4 "truncate",
        /// A part of the file is zero.
        Zero = 5 "zero",
        /// The file was synced by itself and has left the log: what is before is of no use for it.
        Leave = 6 "leave",
        /// All files were synced: what is before an offset of the stream is of no use.
        Synced = 7 "synced",
        /// Its last name was removed: it may be missing.
        Gone = 8 "gone",
        /// Bytes were written that are those of an earlier record, its base, but for some.
        Delta = 9 "delta",
    }
}

layout! {
    /// The head of a record about a file.
    pub struct FileChange [32] {
        fixed 0 magic: u32 = u32::from_le_bytes(*b"TFIL"), " `TFIL` in ASCII.";
        /// The kind.
        4 kind: FileChangeKind,
        /// The file, within a session; 0 for a session's and for `synced`.
        8 id: u32,
        /// Of a write and of a delta: the number under which these bytes are from now on what a delta of this file goes
        /// by, 1 to 4. 0: under none.
        12 base: u8,
        /// Where in the file, in bytes; of `synced` the stream offset.
        16 offset: u64,
        /// Bytes of the file: how many are zero, or its length. Of a write those that follow; of a delta those that its
        /// base has.
        24 len: u64,
    }
    check |change| {
        if usize::from(change.base) > DELTA_BASES {
            Err(("base", "at most 4"))
        } else {
            Ok(())
        }
    };
}

/// Numbers that bytes of a file can have for deltas that go by them.
pub const DELTA_BASES: usize = 4;

layout! {
    /// Header of a delta. Patches follow, each a [`FilePatch`] and its bytes.
    pub struct FileDelta [16] {
        /// Stream offset of the record that the file's bytes under this number are of.
        0 lsn: u64,
        /// Patches that follow.
        8 patches: u16,
    }
}

layout! {
    /// Bytes that differ from the base's. They follow.
    pub struct FilePatch [4] {
        /// Where, from the first byte that is written.
        0 at: u16,
        /// How many.
        2 len: u16,
    }
}

/// The patches of a delta, each whole and within the bytes that are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilePatches<'p>(&'p [u8]);

impl<'p> FilePatches<'p> {
    /// Patches one behind the other, up to the first that is not whole.
    pub fn of(bytes: &'p [u8]) -> FilePatches<'p> {
        FilePatches(bytes)
    }

    /// Reads so many patches of so many bytes.
    fn parse(bytes: &'p [u8], patches: u16, len: u64) -> Result<FilePatches<'p>, LayoutError> {
        let must = |must| LayoutError::Field { layout: "FileDelta", field: "patches", must };
        let mut rest = bytes;
        for _ in 0..patches {
            let patch = FilePatch::parse(rest)?;
            if u64::from(patch.at) + u64::from(patch.len) > len {
                return Err(must("within the bytes that are written"));
            }
            let end = FilePatch::SIZE + usize::from(patch.len);
            rest = rest.get(end..).ok_or(must("as many as follow"))?;
        }
        if rest.is_empty() { Ok(FilePatches(bytes)) } else { Err(must("all that follows")) }
    }
}

impl<'p> Iterator for FilePatches<'p> {
    type Item = (usize, &'p [u8]);

    /// Where, and which bytes.
    fn next(&mut self) -> Option<(usize, &'p [u8])> {
        let patch = FilePatch::parse(self.0).ok()?;
        let (bytes, rest) = self.0.get(FilePatch::SIZE..)?.split_at_checked(patch.len.into())?;
        self.0 = rest;
        Some((patch.at.into(), bytes))
    }
}

codes! {
    /// Why a file is named.
    pub enum FileSaid {
        /// It has another path, or an older version wrote the record: its length is not said.
        Unsaid = 0 "unsaid",
        /// It has come into the set: no record has what it was before.
        Entered = 1 "entered",
        /// It was named before: earlier records of it may be trimmed.
        Again = 2 "again",
    }
}

/// Bytes of a file handle, at most (`MAX_HANDLE_SZ` of Linux).
pub const FILE_HANDLE_BYTES_MAX: usize = 128;
/// Bytes of a path, at most (`PATH_MAX` of Linux).
pub const FILE_PATH_BYTES_MAX: usize = 4096;

layout! {
    /// Which file an id stands for. Its path follows. Device numbers change over a reboot: a file is known by its file
    /// system and by its handle, which has the inode's generation in it; where there are no handles, by inode and birth
    /// time.
    pub struct FileBind [192] {
        /// UUID of the file system, or what the system gives in its place.
        0 file_system: [u8; 16],
        /// Inode.
        16 inode: u64,
        /// Birth time in nanoseconds since 1970; 0 where the file system keeps none.
        24 birth_ns: u64,
        /// Type of the handle.
        32 handle_type: u32,
        /// Bytes of the handle; 0: there is none.
        36 handle_bytes: u16,
        /// Bytes of the path that follows.
        38 path_bytes: u16,
        /// Why the file is named here.
        40 said: FileSaid,
        /// Of a file that has just come into the set: all of its bytes are zero.
        41 is_zero: bool,
        /// Of a file that has just come into the set: `sum` is that of its bytes.
        42 is_summed: bool,
        /// A marker of this run is in the file's folder: without it the file may have been used without this log.
        43 is_marked: bool,
        /// CRC-32C of the file's bytes.
        44 sum: u32,
        /// Bytes of the file, unless `said` is `unsaid`.
        48 len: u64,
        /// The handle, in words of 8 bytes.
        64 handle: [u64; 16],
    }
    check |bind| {
        if usize::from(bind.handle_bytes) > FILE_HANDLE_BYTES_MAX {
            Err(("handle_bytes", "at most 128"))
        } else if !(1..=FILE_PATH_BYTES_MAX).contains(&usize::from(bind.path_bytes)) {
            Err(("path_bytes", "1 to 4096"))
        } else {
            Ok(())
        }
    };
}

layout! {
    /// Under what a program was started. The patterns of its log set follow, each with a zero byte behind it.
    pub struct FileSession [32] {
        /// Drawn anew for each run.
        0 run: [u8; 16],
        /// Durability that its syncs wait for: on flash, or in the ring.
        16 destaged: bool,
        /// Bytes of the patterns that follow.
        20 pattern_bytes: u32,
    }
}

/// A record about a file, read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileRecord<'p> {
    /// See [`FileChangeKind::Session`].
    Session {
        /// Its head.
        session: FileSession,
        /// The patterns, each with a zero byte behind it.
        patterns: &'p [u8],
    },
    /// See [`FileChangeKind::Bind`].
    Bind {
        /// The id.
        id: u32,
        /// The file.
        bind: FileBind,
        /// Its path when it was bound.
        path: &'p [u8],
    },
    /// See [`FileChangeKind::Write`].
    Write {
        /// The file.
        id: u32,
        /// Where.
        offset: u64,
        /// The bytes.
        bytes: &'p [u8],
        /// The number of these bytes for deltas; 0: none.
        base: u8,
    },
    /// See [`FileChangeKind::Delta`].
    Delta {
        /// The file.
        id: u32,
        /// Where.
        offset: u64,
        /// How many bytes.
        len: u64,
        /// The number of the base, and of these bytes from now on: from 1.
        base: u8,
        /// The base's record.
        lsn: u64,
        /// The differences from the base.
        patches: FilePatches<'p>,
    },
    /// See [`FileChangeKind::Truncate`].
    Truncate {
        /// The file.
        id: u32,
        /// Its length.
        len: u64,
    },
    /// See [`FileChangeKind::Zero`].
    Zero {
        /// The file.
        id: u32,
        /// Where.
        offset: u64,
        /// How many bytes.
        len: u64,
    },
    /// See [`FileChangeKind::Leave`].
    Leave {
        /// The file.
        id: u32,
    },
    /// See [`FileChangeKind::Gone`].
    Gone {
        /// The file.
        id: u32,
    },
    /// See [`FileChangeKind::Synced`].
    Synced {
        /// Stream offset.
        from: u64,
    },
}

impl<'p> FileRecord<'p> {
    /// Reads a record's payload. Offsets and lengths of a file are below 2^63 (others are refused).
    ///
    /// # Errors
    /// [`LayoutError`]: it is no record about a file, or not a whole one.
    pub fn parse(payload: &'p [u8]) -> Result<FileRecord<'p>, LayoutError> {
        const NAME: &str = "FileChange";
        let head = FileChange::parse(payload)?;
        let FileChange { kind, id, base, offset, len } = head;
        let rest = &payload[FileChange::SIZE..];
        let must = |field, must| LayoutError::Field { layout: NAME, field, must };
        let part = |from: usize, bytes: usize| {
            let need = FileChange::SIZE + from + bytes;
            let short = LayoutError::Short { layout: NAME, need, have: payload.len() };
            rest.get(from..from + bytes).ok_or(short)
        };
        let is_place = offset.checked_add(len).is_some_and(|end| i64::try_from(end).is_ok());
        if !is_place && kind != FileChangeKind::Synced {
            return Err(must("offset", "below 2^63 with what follows"));
        }
        match kind {
            FileChangeKind::Session => {
                let session = FileSession::parse(rest)?;
                let patterns = part(FileSession::SIZE, session.pattern_bytes as usize)?;
                Ok(FileRecord::Session { session, patterns })
            }
            FileChangeKind::Bind => {
                let bind = FileBind::parse(rest)?;
                let path = part(FileBind::SIZE, bind.path_bytes.into())?;
                if path.contains(&0) || path[0] != b'/' {
                    return Err(must("path", "absolute, and without a zero byte"));
                }
                Ok(FileRecord::Bind { id, bind, path })
            }
            FileChangeKind::Write => match usize::try_from(len) {
                Ok(len) if len == rest.len() => Ok(FileRecord::Write { id, offset, bytes: rest, base }),
                _ => Err(must("len", "that of the bytes that follow")),
            },
            FileChangeKind::Delta if base == 0 => Err(must("base", "1 to 4")),
            FileChangeKind::Delta => {
                let FileDelta { lsn, patches } = FileDelta::parse(rest)?;
                let patches = FilePatches::parse(&rest[FileDelta::SIZE..], patches, len)?;
                Ok(FileRecord::Delta { id, offset, len, base, lsn, patches })
            }
            FileChangeKind::Truncate => Ok(FileRecord::Truncate { id, len }),
            FileChangeKind::Zero => Ok(FileRecord::Zero { id, offset, len }),
            FileChangeKind::Leave => Ok(FileRecord::Leave { id }),
            FileChangeKind::Gone => Ok(FileRecord::Gone { id }),
            FileChangeKind::Synced => Ok(FileRecord::Synced { from: offset }),
        }
    }
}
