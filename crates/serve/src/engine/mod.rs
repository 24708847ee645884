//! Runs a subsystem under the wall clock: one thread with the one drive loop, whose world holds hosts, connections and
//! the backing store.
mod clock;
mod context;
mod events;
mod faults;
mod firmware;
mod group;
mod hosts;
mod mail;
mod record;
mod rerun;
mod rings;
mod route;
mod server;
mod setup;
mod storage;
mod views;

pub use events::{Event, Ready, ServeError};
pub use mail::Moments;
pub use record::Counters;
pub use rerun::{Rerun, RerunError, rerun};
pub use server::{Ended, Server};
pub use setup::{Backing, DriveSetup, MetricsSetup, NamespaceSetup, SERVE_TIME, Setup, TcpSetup};

// Terms that the rooms share, by one name each.
use clock::DeviceClock;
use context::{Context, Pending, Turn};
use events::wrong;
use faults::{CommandFaults, off_of};
use firmware::{DOORBELLS_MAX, Firmware, InputLog};
use group::{Came, Group};
use hosts::{Barrier, Functions, Hosts, Opened, Opening, PciFunction, Stored, nap};
use mail::Message;
use record::Record;
use rings::Rings;
use route::Engine;
use setup::FABRICS_MAX;
use storage::Storage;
