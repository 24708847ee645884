//! A function behind a vfio-user socket: a client of the [`Socket`], [`Nvme`], a driver that polls, on top of it, and
//! with its one I/O queue a [`Function`].

mod function;
mod nvme;
mod socket;

pub use function::{DATA_MAX, Function};
pub use nvme::{Buffer, Nvme, NvmeError, Options, QueuePair};
pub use socket::{Described, Patience, Socket, SocketError};
pub use tidewater_ipc::SOCKET_PATH_MAX;
