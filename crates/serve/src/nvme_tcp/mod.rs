//! NVMe/TCP: a target for remote hosts.
//!
//! The target has no thread of its own: the engine's thread polls it, and it never blocks. [`Border`] is what it wants
//! of the engine.
//!
//! How the bytes flow: a connection is cut into PDUs as it is read; headers are gathered, data goes where it belongs
//! piece by piece: what came in a capsule is kept until [`Target::fetch`], what an R2T asked for goes to
//! [`Border::stage`]. Data for a host is written by [`Target::data`] into the place from which it is sent; units that
//! follow each other share a PDU, and those that come too early wait, because hosts take data in order only. Everything
//! that one turn of the engine has made goes with one system call.
//!
//! What a host gets for what it does wrong:
//!
//! | what | answer |
//! |---|---|
//! | a field of a PDU's header, an unknown tag | C2HTermReq, Invalid PDU Header Field, offset of the field |
//! | another PDU format version | C2HTermReq, Unsupported Parameter, offset of the field |
//! | a PDU that has no place; more commands than the queue has entries | C2HTermReq, PDU Sequence Error |
//! | a wrong header digest | C2HTermReq, Header Digest Error, the digest |
//! | data beyond what was asked for; more in one PDU than MAXH2CDATA | C2HTermReq, Out of Range; Limit Exceeded |
//! | a wrong data digest | the command ends with Transient Transport Error |
//! | a wrong data pointer | SGL Descriptor Type Invalid, SGL Offset Invalid, Data SGL Length Invalid, Invalid Field |
//! | an identifier that is in use | Command ID Conflict |
//! | a command before Connect, or a queue before the controller is ready | Command Sequence Error |
//! | a wrong parameter of Connect | Connect Invalid Parameters, with its offset |
//! | a host that is not listed; no controller left | Connect Invalid Host; Connect Controller Busy |
//! | half a PDU, half a transfer, bytes that it does not take, for too long or too slowly | the connection is closed |
//! | more connections that are no queue than there are places for | the oldest of the busiest address is closed |
//! | more bytes that wait than all hosts may have | the host with most of them loses a connection |
//! | silence beyond the Keep Alive Timeout; a reset of the subsystem | the controller ends, with all its connections |
//!
//! A list of hosts is no authentication: a host may claim any name. Nothing is encrypted.

mod admission;
mod association;
mod backlog;
mod border;
mod commands;
mod connection;
#[cfg(test)]
mod connection_tests;
mod discovery;
mod discovery_controller;
mod fabrics;
mod options;
mod sender;
mod target;

pub use border::{Border, CommandId};
pub use connection::{Ending, Limits};
pub use options::{HostRule, Hosts, Options};
pub use target::{BindError, Statistics, Target};
