//! Hosts of an NVMe controller, without a kernel's driver: by a function's [vfio-user](vfio_user) socket, and by
//! [NVMe/TCP](nvme_tcp).

pub mod nvme_tcp;
pub mod vfio_user;
