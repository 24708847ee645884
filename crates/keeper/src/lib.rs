//! The keeper of a device: it has the device promoted when the primary of its group is gone, by the word of etcd, and
//! lets it acknowledge as primary only while etcd says that it leads.
//!
//! etcd proposes, epochs decide: a lease says which keeper may ask its device to promote itself, and the device's peers
//! grant that or don't. What was acknowledged is safe whatever a keeper does. [`decide`] is the whole policy, without
//! I/O; the rest carries it out.

pub mod decide;
pub mod device;
pub mod epoch;
pub mod job;
pub mod kept;
pub mod keys;
mod metrics;
pub mod page;
pub mod program;
pub mod run;
pub mod store;
mod tls;
pub mod verbs;
