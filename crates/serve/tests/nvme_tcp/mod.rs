//! The NVMe/TCP target and the initiator over real sockets, with a mock subsystem.

mod crowds;
mod fairness;
mod hostile;
mod lenient;
mod loopback;
mod mock;
mod patience;
mod raw;
mod speed;
