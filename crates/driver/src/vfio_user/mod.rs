//! A function behind a vfio-user socket: a [`Client`] of the socket, and [`Nvme`], a driver that polls, on top of it.

mod nvme;
mod socket;

pub use nvme::{Buffer, Nvme, NvmeError, QueuePair};
pub use socket::{Client, ClientError, Described, REPLY_TIME};
