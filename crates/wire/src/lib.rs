//! Byte layouts that others defined or that stay on media. Parsing copies once, validates once, and never panics.

pub mod fabrics;
pub mod layout;
pub mod log;
pub mod nbd;
pub mod nvme;
pub mod nvme_tcp;
pub mod pci;
pub mod replication;
pub mod vendor;
pub mod vfio_user;
