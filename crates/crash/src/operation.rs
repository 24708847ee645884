//! Operations of a file system, as the log keeps them.

use serde::{Deserialize, Serialize};

/// Number of a file or folder.
pub type Ino = u64;

/// The topmost folder.
pub const ROOT: Ino = 1;

/// Bits of such a number.
pub(crate) const INO_BITS: u32 = 40;
/// Bytes of memory that an operation takes in the log, besides its data; about.
const LOGGED: u64 = 256;

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Entry {
    /// The folder.
    pub folder: Ino,
    /// Bytes of the name: 1 to 255, without a slash.
    #[serde(with = "name")]
    pub name: Vec<u8>,
}

impl Entry {
    /// The name `name` in `folder`.
    pub fn new(folder: Ino, name: impl AsRef<[u8]>) -> Entry {
        Entry { folder, name: name.as_ref().to_vec() }
    }
}

/// An operation. Those up to [`Operation::Attributes`] change something, the others say what is durable or known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Operation {
    /// A new file, folder, symbolic link or special file, with its name.
    Create {
        /// Its name.
        at: Entry,
        /// Its number.
        ino: Ino,
        /// Type and permissions, as `st_mode` has them.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Device number of a special file.
        rdev: u32,
        /// Target of a symbolic link.
        #[serde(with = "bytes", default, skip_serializing_if = "Vec::is_empty")]
        target: Vec<u8>,
    },
    /// A further name of a file.
    Link {
        /// The file.
        ino: Ino,
        /// The name.
        at: Entry,
    },
    /// A name is removed: `unlink`, `rmdir`.
    Remove {
        /// The name.
        at: Entry,
    },
    /// A name is moved, and replaces what is there. Atomic.
    Rename {
        /// The old name.
        from: Entry,
        /// The new one.
        to: Entry,
        /// Both names change places (`RENAME_EXCHANGE`).
        exchange: bool,
    },
    /// Bytes of a file.
    Write {
        /// The file.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// The bytes.
        #[serde(with = "bytes")]
        data: Vec<u8>,
    },
    /// Size of a file: `truncate`, and `fallocate` beyond the end.
    Resize {
        /// The file.
        ino: Ino,
        /// Bytes.
        size: u64,
    },
    /// A range becomes zeroes: `fallocate` that punches or zeroes.
    Zero {
        /// The file.
        ino: Ino,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Permissions and owner; `None`: unchanged.
    Attributes {
        /// The file or folder.
        ino: Ino,
        /// Permissions.
        mode: Option<u32>,
        /// Owner.
        uid: Option<u32>,
        /// Group.
        gid: Option<u32>,
    },
    /// `fsync` or `fdatasync` of a file or folder that succeeded.
    Sync {
        /// The file or folder.
        ino: Ino,
        /// `fdatasync`: permissions and owner may be left out.
        data_only: bool,
    },
    /// A failed `fsync` after which the system takes the file for clean: what was not synced is never written.
    SyncFailed {
        /// The file.
        ino: Ino,
    },
    /// A write with `O_SYNC` or `O_DSYNC` has returned.
    WrittenThrough {
        /// Number of the write.
        write: u64,
    },
    /// Everything becomes durable: `sync`, or an orderly unmount.
    SyncAll,
    /// The program acknowledged this id.
    Acknowledge {
        /// Its text.
        id: String,
    },
}

impl Operation {
    /// Names that it changes.
    pub fn names(&self) -> Vec<&Entry> {
        match self {
            Operation::Create { at, .. } | Operation::Link { at, .. } | Operation::Remove { at } => vec![at],
            Operation::Rename { from, to, .. } => vec![from, to],
            _ => Vec::new(),
        }
    }

    /// Whether it changes something that a power cut can lose.
    pub fn is_change(&self) -> bool {
        self.is_metadata() || matches!(self, Operation::Write { .. })
    }

    /// Whether it changes metadata: names, sizes, permissions. A journaling file system orders these.
    pub fn is_metadata(&self) -> bool {
        use Operation::{Attributes, Create, Link, Remove, Rename, Resize, Zero};
        matches!(
            self,
            Create { .. }
                | Link { .. }
                | Remove { .. }
                | Rename { .. }
                | Resize { .. }
                | Zero { .. }
                | Attributes { .. }
        )
    }

    /// Bytes that it takes in the log, about.
    pub(crate) fn weight(&self) -> u64 {
        let data = if let Operation::Write { data, .. } = self { data.len() as u64 } else { 0 };
        LOGGED + data
    }

    /// Whether its numbers, offsets and sizes are ones that a file can have; asked of operations that were read from a
    /// file.
    pub fn is_sound(&self) -> bool {
        if let Operation::Create { ino, .. } = self
            && ino >> INO_BITS != 0
        {
            return false;
        }
        let (offset, length) = match self {
            Operation::Write { offset, data, .. } => (*offset, data.len() as u64),
            Operation::Zero { offset, length, .. } => (*offset, *length),
            Operation::Resize { size, .. } => (*size, 0),
            _ => (0, 0),
        };
        offset.checked_add(length).is_some_and(|end| end <= i64::MAX as u64)
    }

    /// Pieces that a write can be torn into, at boundaries of `grain` bytes of the file; of other operations 1.
    pub fn pieces(&self, grain: Option<u64>) -> u32 {
        match (self, grain) {
            (Operation::Write { offset, data, .. }, Some(grain)) if !data.is_empty() => {
                ((offset + data.len() as u64 - 1) / grain - offset / grain + 1) as u32
            }
            _ => 1,
        }
    }

    /// One line for a report. `path`: the path of a file or folder.
    pub fn described(&self, path: impl Fn(Ino) -> String) -> String {
        let place = |at: &Entry| {
            let (folder, name) = (path(at.folder), String::from_utf8_lossy(&at.name));
            if folder == "." { name.into_owned() } else { format!("{folder}/{name}") }
        };
        match self {
            Operation::Create { at, mode, .. } => match mode & TYPE {
                FOLDER => format!("mkdir {}", place(at)),
                SYMLINK => format!("symlink {}", place(at)),
                _ => format!("create {}", place(at)),
            },
            Operation::Link { ino, at } => format!("link {} to {}", path(*ino), place(at)),
            Operation::Remove { at } => format!("unlink {}", place(at)),
            Operation::Rename { from, to, exchange } => {
                format!("{} {} to {}", if *exchange { "exchange" } else { "rename" }, place(from), place(to))
            }
            Operation::Write { ino, offset, data } => {
                format!("write {} bytes {offset}..{}", path(*ino), offset + data.len() as u64)
            }
            Operation::Resize { ino, size } => format!("truncate {} to {size} bytes", path(*ino)),
            Operation::Zero { ino, offset, length } => {
                format!("zero {} bytes {offset}..{}", path(*ino), offset + length)
            }
            Operation::Attributes { ino, .. } => format!("chmod or chown {}", path(*ino)),
            Operation::Sync { ino, data_only: false } => format!("fsync {}", path(*ino)),
            Operation::Sync { ino, data_only: true } => format!("fdatasync {}", path(*ino)),
            Operation::SyncFailed { ino } => format!("failed fsync of {}", path(*ino)),
            Operation::WrittenThrough { write } => format!("write #{write} went through"),
            Operation::SyncAll => "sync".into(),
            Operation::Acknowledge { id } => format!("acknowledge {id}"),
        }
    }
}

/// The type in `st_mode`.
pub(crate) const TYPE: u32 = 0o170_000;
/// A regular file.
pub(crate) const FILE: u32 = 0o100_000;
/// A folder.
pub(crate) const FOLDER: u32 = 0o040_000;
/// A symbolic link.
pub(crate) const SYMLINK: u32 = 0o120_000;

/// A name as text: a character for each byte, so that any name is kept and a usual one can be read.
mod name {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub fn serialize<S: Serializer>(name: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&name.iter().map(|byte| char::from(*byte)).collect::<String>())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let bytes = String::deserialize(from)?.chars().map(u8::try_from).collect::<Result<Vec<u8>, _>>();
        bytes.ok().filter(|name| is_name(name)).ok_or_else(|| D::Error::custom("this is no name of a file"))
    }

    fn is_name(name: &[u8]) -> bool {
        !matches!(name, [] | b"." | b"..") && name.len() <= 255 && !name.iter().any(|byte| matches!(byte, 0 | b'/'))
    }
}

/// Bytes as Base64.
mod bytes {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub fn serialize<S: Serializer>(data: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(data))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(from)?).map_err(D::Error::custom)
    }
}
