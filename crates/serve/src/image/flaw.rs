//! Rules of the image that tests break on purpose.

/// A rule that is broken on purpose.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Blocks are reused without a sync (rule 1).
    NoSyncBeforeReuse,
    /// Blocks are reused before their erase is synced (rule 1).
    ReuseBeforeErase,
    /// Checkpoints are written at once (rule 2).
    EagerMap,
    /// Checksums of payload are not checked.
    NoChecksums,
    /// A flush does not sync.
    NoFlush,
    /// Control blocks are written in two slots in turn, whether one of them is safe or not.
    AnyControlBlock,
    /// Bytes of a ring are overwritten before the control block that has no use for them is safe.
    OverwriteUnsynced,
    /// The last sector of a ring is replaced by one that goes on behind what went to flash, before that is safe.
    ReplaceUnsynced,
    /// Pages of the log are released before the control block that has no use for them is safe.
    ReleaseUnsynced,
    /// The first control block of a generation does not wait for the bytes of its rings.
    BeginUnsynced,
}
