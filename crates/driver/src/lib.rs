//! Hosts of an NVMe controller: how commands, and bytes of a BAR, reach one.
//!
//! | transport | commands go by | bytes go by |
//! |---|---|---|
//! | [`vfio_user::Function`] | queues of its own, behind a function's socket | messages |
//! | [`pci::Function`] | the passthrough of the kernel's driver | mappings of the BAR |
//! | [`nvme_tcp::Remote`] | capsules | commands |
//!
//! All three are a [`Transport`]. Below them [`vfio_user::Nvme`] and [`nvme_tcp::Controller`] have as many queues as a
//! host wants.

mod error;
pub mod nvme_tcp;
pub mod pci;
mod transport;
pub mod vfio_user;

pub use error::Error;
pub use transport::{BarAccess, Completion, DATA_MAX, Queue, Transport};
