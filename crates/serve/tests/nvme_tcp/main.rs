//! The NVMe/TCP target and the initiator over real sockets, with a mock subsystem.

mod loopback;
mod mock;
mod speed;
