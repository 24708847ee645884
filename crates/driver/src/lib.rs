//! Hosts of an NVMe controller, without a kernel's driver: by a function's [vfio-user](vfio_user) socket, and by
//! [NVMe/TCP](nvme_tcp).

pub mod nvme_tcp;
pub mod vfio_user;

use tidewater_wire::nvme::Status;

/// Which queue a command is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// The admin queue.
    Admin,
    /// An I/O queue.
    Io,
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Its status.
    pub status: Status,
    /// Double word 0.
    pub result: u32,
}
