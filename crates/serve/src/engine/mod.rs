//! Runs a subsystem under the wall clock: one thread with the one drive loop, whose world holds hosts, connections and
//! the backing store.
mod clock;
mod courier;
mod credit_limit;
mod disk;
mod doorbells;
mod exposition;
mod lag;
mod lent;
mod moment;
mod pages;
mod peers;
mod pmr;
mod port;
mod rerun;
mod rings;
mod run;
mod sched;
mod seen;
mod served;
mod setup;
mod sleep;
mod start;
mod status;
mod transfer;
mod world;

pub use rerun::{Rerun, RerunError, rerun};
pub use run::{Ended, Moments, Server};
pub use served::Served;
pub use setup::{Backing, DriveSetup, MetricsSetup, NamespaceSetup, SERVE_TIME, Setup, TcpSetup};
pub use start::{Event, Ready, ServeError};
pub use world::Counters;
