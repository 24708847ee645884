//! Files and folders across a power cut: which changes survive, and every state that can be left.
//!
//! A [`Volume`] is a file system in memory that keeps a log of all operations, each with its number. Two views follow
//! from it: the tree as programs see it now, and the operations that are durable. A power cut after operation N leaves
//! a [`State`]: the first N operations, less some of those that were not durable yet. [`Volume::state`] chooses one,
//! [`Volume::build`] makes its tree, [`unpack`] writes that to a folder.
//!
//! The model does no I/O, reads no clock and draws by seed: the same log and the same state give the same tree.
//! [`Image`] keeps what is durable in a file, or on the [`Blocks`] of a drive; [`Kept`] is a state that failed; `mount`
//! (feature) is the volume as a file system by FUSE.
//!
//! Files lie in memory as pages: a store of blocks can take the place of [`Content`] without a change elsewhere.

mod content;
pub mod control;
mod image;
mod kept;
#[cfg(feature = "mount")]
mod mount;
mod operation;
mod shrink;
mod state;
mod tree;
mod unpack;
mod volume;

pub use content::Content;
pub use image::{Blocks, Image, ImageError};
pub use kept::Kept;
#[cfg(feature = "mount")]
pub use mount::{ACKNOWLEDGE, CONTROL, Mount, MountError, Options, Source, unmount_lazily};
pub use operation::{Entry, Ino, Operation, ROOT};
pub use shrink::shrink;
pub use state::{At, Lose, State, Tear, plan};
pub use tree::{Body, Fate, Node, Tree};
pub use unpack::unpack;
pub use volume::{Rules, Volume};
