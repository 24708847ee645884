//! The backing store: NAND pages at their physical place, with their out-of-band areas, in a file.
//!
//! [`Image`] is that file, a block device, or memory; [`Payload`] is what the engine uses: it holds the bytes of what
//! is not on flash yet, moves them to the image when the firmware programs them, and reads them back.
//! [`format`](mod@format) has the bytes (`docs/reference/image.md`), [`Storage`] is the seam at which faults are
//! injected.
mod disk;
mod error;
mod flaw;
pub mod format;
mod log;
mod memory;
mod open;
mod payload;
mod pool;
mod purge;
mod restore;
mod storage;
mod store;
mod stored_log;
mod stored_window;
mod sync;
mod window;

pub use disk::{Disk, Pace};
pub use error::ImageError;
#[doc(hidden)]
pub use flaw::Flaw;
pub use format::{Memory, MemoryKind};
pub use open::{METADATA_MAX, Made, OpenReport, Opened, Target};
pub use payload::Payload;
pub(crate) use storage::random_bytes;
pub use storage::{FileStorage, MemoryStorage, NewFile, Storage, Syncing};
pub use store::{Image, ImageOptions, ImageStatistics};
pub use sync::SyncMode;
