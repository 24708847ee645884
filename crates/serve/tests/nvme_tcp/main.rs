//! The NVMe/TCP target and the initiator over real sockets, with a mock subsystem.

mod crowds;
mod hostile;
mod lenient;
#[path = "../served/limit.rs"]
mod limit;
mod loopback;
mod mock;
mod patience;
mod raw;
mod speed;
