//! Runs a subsystem under the wall clock: one thread with the one drive loop, whose world holds hosts, connections and
//! the backing store.
mod clock;
mod courier;
mod doorbells;
mod lent;
mod pages;
mod pmr;
mod port;
mod rerun;
mod rings;
mod run;
mod served;
mod setup;
mod sleep;
mod slice;
mod start;
mod status;
mod transfer;
mod withheld;
mod world;

pub use rerun::{Rerun, RerunError, rerun};
pub use rings::{MappedRing, RingSetup};
pub use run::{Ended, Server};
pub use served::Served;
pub use setup::{Backing, DriveSetup, MetricsSetup, NamespaceSetup, SERVE_TIME, Setup, TcpSetup};
pub use start::{Event, Ready, ServeError};
pub use world::Counters;
