//! Served drives: one module for each subject.

mod determinism;
mod image;
mod knobs;
mod nbd_served;
mod nvme_tcp;
mod nvme_tcp_served;
mod served;
mod vfio_user;
