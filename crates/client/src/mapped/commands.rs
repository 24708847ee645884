//! The commands that a log needs (NVM Express Base Specification, revision 1.4): trim and status by the admin queue,
//! reads of what is on flash by the I/O queue. One command at a time; an append needs none.

use std::time::Duration;

use tidewater_driver::vfio_user::{DATA_MAX, Function};
use tidewater_driver::{Completion, Queue};
use tidewater_wire::nvme::{AdminCommand as Standard, GetLogPage, NSID_ALL, Sqe};
use tidewater_wire::vendor::{AdminCommand, FastStatus, IoCommand, LayoutError, ReadLogHeader, TrimTo, log_page};

use super::device::TIME;
use crate::LogError;

fn malformed(error: LayoutError) -> LogError {
    LogError::Malformed { what: error.to_string() }
}

/// Runs one command, which has to end well; `time` is beyond what it is itself asked to wait.
fn run(
    function: &mut Function,
    queue: Queue,
    sqe: Sqe,
    len: u64,
    what: &'static str,
    time: Duration,
) -> Result<(), LogError> {
    let Completion { status, .. } = function.run(queue, sqe, len, time)?;
    if status.is_success() { Ok(()) } else { Err(LogError::Status { what, status: status.to_string() }) }
}

/// Log page C0h of a function of the fast side.
pub(super) fn fast_status(on: &mut Function, function: u16) -> Result<FastStatus, LogError> {
    let get = GetLogPage {
        nsid: NSID_ALL,
        lid: log_page::FAST_STATUS,
        specific: 0,
        retain: false,
        len: FastStatus::SIZE as u64,
        offset: 0,
        identifier: function,
        csi: 0,
    };
    let sqe = Standard::GetLogPage(get).emit(0);
    run(on, Queue::Admin, sqe, FastStatus::SIZE as u64, "Get Log Page", TIME)?;
    let mut bytes = [0; FastStatus::SIZE];
    on.data().read(0, &mut bytes);
    FastStatus::parse(&bytes).map_err(malformed)
}

/// Trim Log.
pub(super) fn trim(on: &mut Function, function: u16, lane: u8, offset: u64) -> Result<(), LogError> {
    let command = AdminCommand::TrimLog { function, to: TrimTo::Stream { lane, offset } };
    run(on, Queue::Admin, command.emit(0), 0, "Trim Log", TIME)
}

/// Read Log: bytes on flash from a stream offset on, at most what fits; waits for the first of them. Returns how many
/// came.
///
/// # Errors
/// `Released`: the first of them are gone.
pub(super) fn read_log(
    on: &mut Function,
    lane: u8,
    offset: u64,
    to: &mut [u8],
    wait: Duration,
) -> Result<usize, LogError> {
    let bytes = (to.len() as u64).min(DATA_MAX - ReadLogHeader::SIZE as u64) as u32;
    let wait_ns = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX - 1);
    let command = IoCommand::ReadLog { lane, offset, bytes, wait_ns };
    let read = run(on, Queue::Io, command.emit(0), command.data_bytes(), "Read Log", wait.saturating_add(TIME));
    read.map_err(|error| match error {
        LogError::Status { status, .. } if status.starts_with("Offset Released") => LogError::Released { offset },
        error => error,
    })?;
    let mut header = [0; ReadLogHeader::SIZE];
    on.data().read(0, &mut header);
    let header = ReadLogHeader::parse(&header).map_err(malformed)?;
    let len = (header.bytes as usize).min(bytes as usize);
    if header.offset > offset {
        return Err(LogError::Released { offset });
    }
    on.data().read(ReadLogHeader::SIZE as u64, &mut to[..len]);
    Ok(if header.offset == offset { len } else { 0 })
}
