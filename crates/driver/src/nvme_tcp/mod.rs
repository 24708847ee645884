//! An initiator: a host's side of NVMe/TCP. [`Session`] is a queue's protocol without I/O, [`Queue`] one over a socket,
//! and [`Controller`] an association with its admin queue. [`Remote`] is one with an I/O queue.

mod controller;
mod queue;
mod remote;
mod session;

pub use controller::{Controller, discover};
pub use queue::{Completion, Error, Host, Queue};
pub use remote::Remote;
pub use session::{Refused, Session, Transfer};
