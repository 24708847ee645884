//! An NVM subsystem: the drive with its controllers, as a host sees it (NVM Express Base Specification 1.4, section
//! 1.6).
//!
//! Registers, queues in the host's memory, admin commands and namespaces live here; what blocks mean is
//! [`crate::Device`]'s.
//!
//! Sans-IO, as the device is: [`Subsystem::handle`] takes what happens outside and the time, [`Subsystem::poll`] gives
//! what there is to do, [`Subsystem::deadline`] tells when it wants to be woken. It never holds payload.
mod admin;
mod admin_data;
mod blocks;
mod context;
mod controllers;
mod erase;
mod faults;
pub mod features;
#[cfg(test)]
mod features_tests;
mod health;
mod host_memory;
pub mod identify;
pub mod input_log;
mod interface;
pub mod logs;
pub mod namespaces;
#[cfg(test)]
mod namespaces_tests;
mod options;
mod pointers;
mod queues;
mod rooms;
mod route;
pub mod sanitize;
pub mod self_test;
mod share;
mod slots;
pub mod smart;
mod state;
#[cfg(test)]
mod tests;
mod timers;
mod tokens;
mod window;

pub use interface::*;
pub use options::{Bar2, Options, Queues, Region, ShadowDoorbells};
pub use route::Subsystem;
