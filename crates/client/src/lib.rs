//! The host side of a two-sided drive, sans-IO: how a database writes its log to the fast side, waits for credit and
//! reads the log back, and how it stores into blocks that are pinned in the byte window. Simulation and the real client
//! run the same algorithms.
//!
//! A [`Lane`] holds what all operations of one writer share: the bytes written, the credit last seen, the open regions.
//! An [`Operation`] says what to do next ([`Action`]) and gets the result ([`Answer`]). Its driver owns
//! the device, the clock and the bytes:
//!
//! ```
//! use tidewater_base::Instant;
//! use tidewater_client::{Action, Answer, Fsync, Lane, Operation, Outcome, Pwrite, Setup};
//!
//! let mut lane = Lane::stream(Setup { queue_bytes: 64, ring_bytes: 4096, ..Setup::default() }).unwrap();
//! let buffer = [7; 100];
//! let (mut device, mut now) = (Vec::new(), Instant::ZERO);
//!
//! let mut pwrite = Pwrite::new(&mut lane, buffer.len(), now);
//! let mut fsync = None;
//! loop {
//!     let action = match &mut fsync {
//!         None => pwrite.poll(&mut lane),
//!         Some(fsync) => Fsync::poll(fsync, &mut lane),
//!     };
//!     match action {
//!         Some(Action::Store { bytes, .. }) => device.extend_from_slice(&buffer[bytes]),
//!         Some(Action::ReadCredit { .. }) => {
//!             let credit = Answer::Credit(device.len() as u64);
//!             match &mut fsync {
//!                 None => pwrite.on(&mut lane, now, credit),
//!                 Some(fsync) => fsync.on(&mut lane, now, credit),
//!             }
//!         }
//!         Some(Action::Done(Ok(Outcome::Written { .. }))) => fsync = Some(Fsync::new(&lane, now)),
//!         Some(Action::Done(result)) => {
//!             assert_eq!(result, Ok(Outcome::Durable { end: 100 }));
//!             break;
//!         }
//!         Some(Action::Fence) => {}
//!         other => unreachable!("{other:?}"),
//!     }
//! }
//! assert_eq!(device, buffer);
//! ```
//!
//! | call of the paper (section 5) | here |
//! |---|---|
//! | `x_pwrite` | [`Pwrite`] |
//! | `x_fsync` | [`Fsync`] |
//! | `x_pread` | [`Pread`] of a [`Reader`] |
//! | `x_alloc`, `x_free` | [`Alloc`], [`Fill`], [`Free`] |
//! | `x_abort` (ours) | [`Abort`] |
//! | `append` (ours) | [`Pwrite::append`], read back by [`Records`] |
//!
//! With the feature `mapped`, the module of that name is a log on a device that is served: [`writers`] on a mapped
//! ring. With the feature `hardware`, that module carries all of these out on a drive's BARs and commands, a function
//! of this machine among them.
//!
//! The byte window (2B-SSD) has calls of its own, driven alike: a [`WindowCall`] pins, stores, syncs, flushes and reads
//! (`examples/window.rs`).

mod error;
#[cfg(feature = "hardware")]
pub mod hardware;
mod lane;
#[cfg(feature = "mapped")]
mod level;
#[cfg(feature = "mapped")]
mod log_error;
#[cfg(feature = "mapped")]
pub mod mapped;
mod operation;
mod read;
mod record;
mod region;
mod watch;
mod window;
mod write;
pub mod writers;

pub use error::{Error, Stall};
pub use lane::{Lane, OFFSET_END, Patience, Setup};
#[cfg(feature = "mapped")]
pub use level::{Level, Written};
#[cfg(feature = "mapped")]
pub use log_error::LogError;
pub use operation::{Action, Answer, Health, Operation, Outcome, Region};
pub use read::{Pread, Reader};
pub use record::{Damage, End, Entry, Records, encode_record, fill_void, span};
pub use region::{Abort, Alloc, Fill, Free};
pub use window::{Carrier, WindowAction, WindowAnswer, WindowCall, WindowEntry, WindowError, WindowOutcome};
pub use write::{Fsync, Pwrite};
