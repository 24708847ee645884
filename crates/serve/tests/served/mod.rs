//! A whole drive, firmware and image, behind vfio-user: what a host's driver sees of it, and what its user does to it.

mod attach;
mod beside;
mod command_faults;
mod deallocate;
mod doorbells;
mod faults;
mod host_memory;
mod integrity;
mod kill;
mod log;
mod log_namespace;
mod pages;
mod power;
mod weights;
mod window;
