//! A log on a device that is served, with its ring mapped: an append is a few stores, with no other process in its
//! path.
//!
//! ```no_run
//! use std::time::Duration;
//! use tidewater_client::mapped::{Log, Options};
//! use tidewater_client::Level;
//!
//! let options = Options { level: Some(Level::Ring), ..Options::default() };
//! let log = Log::open("vfio-user:/run/tidewater/vfio.sock", options)?;
//! let commit = log.append(&[b"commit ", b"17"])?;
//! log.wait(commit.end, Level::Ring, Duration::from_secs(1))?; // survives a crash of this process and of the device's
//! log.wait(commit.end, Level::Destaged, Duration::from_secs(1))?; // is on the backing store, synced
//! # Ok::<(), tidewater_client::LogError>(())
//! ```
//!
//! The device serves rings with `tidewater serve --ring FILE`. A lane is one handle's at a time; its threads write
//! without a lock, by [`Log::append`] or with a [`Writer`] each. Other processes write too, on both sides of a fork, or
//! after [`Log::share`] and [`Log::join`]; one that dies amid a record blocks no other: a waiter finds it dead and
//! seals what it left. The connection is that of the process that opened the log: in others, reads of what only flash
//! has, trims and the device's status are [`LogError::Joined`](crate::LogError::Joined). A ring's file that is
//! truncated under a handle ends its process (SIGBUS), unless that has called [`survive_cut_rings`]: then it is an
//! error.

#[cfg(target_endian = "big")]
compile_error!("the words of a mapped ring are little-endian");

mod attached;
#[cfg(feature = "etcd")]
mod cluster;
mod commands;
mod copy;
mod cut;
mod device;
mod disk;
pub mod inode;
mod lent;
mod log;
mod memory;
mod options;
pub mod owner;
mod place;
mod reader;
mod ring;
mod stores;
mod targets;
pub mod thread;

pub use crate::log_error::Tried;
pub use cut::survive_cut_rings;
pub use disk::Disk;
pub use log::{Begun, Log, Shared, Writer};
pub use memory::{Mapping, WriteBack};
pub use options::{Options, Status};
pub use reader::{Extent, Reader};
pub use ring::Recovered;
