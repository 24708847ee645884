//! The entries of a log, read a part at a time.

use crate::Backing;
use crate::report::ReplayError;
use tidewater_client::{Entry, LogError, Records};

/// Bytes that are read at once.
const WINDOW: usize = 4 << 20;
/// Bytes that are read at once for a record that does not fit, at most: ours have 64 KiB.
const WINDOW_MAX: usize = 64 << 20;

/// Every entry of the log between two offsets, in order.
pub(crate) fn read(
    log: &impl Backing,
    from: u64,
    to: u64,
    each: impl FnMut(Entry<'_>) -> Result<(), ReplayError>,
) -> Result<(), ReplayError> {
    read_by(|at, bytes| log.read(at, bytes), from, to, each)
}

/// As [`read`], of a log whose bytes are had by a call.
pub(crate) fn read_by(
    mut fill: impl FnMut(u64, &mut [u8]) -> Result<(), LogError>,
    from: u64,
    to: u64,
    mut each: impl FnMut(Entry<'_>) -> Result<(), ReplayError>,
) -> Result<(), ReplayError> {
    let mut at = from;
    let mut window = WINDOW;
    let mut bytes = Vec::new();
    while at < to {
        let len = (to - at).min(window as u64) as usize;
        bytes.resize(len, 0);
        fill(at, &mut bytes)?;
        let is_last = at + len as u64 == to;
        let mut next = at;
        for entry in Records::new(&bytes, at) {
            // A place that is passed over at the window's end may be the begin of a record that goes on behind it.
            let end = match entry {
                Entry::Record { lsn, payload, .. } => {
                    lsn + tidewater_wire::log::RecordHeader::span(payload.len() as u64)
                }
                Entry::Void { lsn, bytes } => lsn + bytes,
                Entry::Skipped { to, .. } => to,
            };
            if end > at + len as u64 && !is_last {
                break;
            }
            each(entry)?;
            next = end.min(to);
        }
        if is_last {
            break;
        }
        if next == at && window < WINDOW_MAX {
            window *= 4; // A record that is larger.
        } else {
            if next == at {
                // Or bytes that only look like the begin of one.
                next = (at + 1).next_multiple_of(tidewater_wire::log::RECORD_ALIGN);
                each(Entry::Skipped { from: at, to: next, damage: tidewater_client::Damage::Header })?;
            }
            window = WINDOW;
        }
        at = next;
    }
    Ok(())
}
