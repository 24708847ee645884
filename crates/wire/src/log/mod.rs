//! The formats of a log beyond what a device's commands say: the file of a mapped ring and its copy on a disk, the
//! records that clients put into a lane's stream, and the changes of files that such records hold. Clients and servers
//! write them on media or share them in memory. The firmware itself only seals regions, by a void record.

mod copy;
mod files;
mod record;
mod ring;
#[cfg(test)]
mod tests;

pub use copy::{COPY_CHUNK, COPY_SECTOR, CopyBuffer, CopyPlace, CopySector, RingCopyHeader};
pub use files::{
    DELTA_BASES, FILE_HANDLE_BYTES_MAX, FILE_PATH_BYTES_MAX, FileBind, FileChange, FileChangeKind, FileDelta,
    FilePatch, FilePatches, FileRecord, FileSaid, FileSession,
};
pub use record::{RECORD_ALIGN, RecordHeader, RecordKind};
pub use ring::{
    RING_DEVICE_LOCK, RING_FILE_BAR2, RING_IDLE, RING_LOCKS, RING_PAGE_OFFSET, RING_RESERVE_BITS, RING_SLOTS,
    RingHeader, RingLane, RingLanePage, RingPage, RingReplicas, RingSlot,
};
