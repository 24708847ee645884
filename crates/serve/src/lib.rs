//! The drive under the wall clock: the same firmware as in simulation, with real bytes, real hosts and real time.
//!
//! [`image`] keeps what is on flash in a file, [`vfio_user`], [`nvme_tcp`] and [`nbd`] carry hosts, and [`engine`] runs
//! them together on one thread: it is the world of the one drive loop.
#![deny(unsafe_code)]

mod clock;
pub mod commands;
pub mod control;
pub mod engine;
pub mod image;
pub mod inbox;
pub mod metrics;
pub mod nbd;
pub mod nvme_tcp;
pub mod peers;
pub mod ring;
pub mod runtime;
pub mod trace;
pub mod vfio_user;
