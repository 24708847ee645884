//! The trait that each form of a log of commands implements.

use std::io;
use tidewater_wire::nvme::{Cqe, Sqe};

/// Maker of lines or packets. Times are nanoseconds of Unix time.
pub(super) trait Sink: Send {
    fn begun(&mut self, nanos: u64, function: u8, queue: u16, sqe: &Sqe) -> io::Result<()>;
    /// `begun`: the command and the nanoseconds since it was read; `None`: it is not known.
    fn ended(&mut self, nanos: u64, function: u8, queue: u16, cqe: &Cqe, begun: Option<(&Sqe, u64)>) -> io::Result<()>;
    /// `open`: commands that get no end.
    fn gone(&mut self, nanos: u64, function: u8, queue: Option<u16>, open: usize) -> io::Result<()>;
    fn dropped(&mut self, count: u64) -> io::Result<()>;
    fn flush(&mut self) -> io::Result<()>;
    fn end(&mut self, nanos: u64) -> io::Result<()>;
}
