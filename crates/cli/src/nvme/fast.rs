//! `tidewater nvme fast`: the log of a drive's fast side.

use super::connect::{self, bytes_of, explain};
use super::pages;
use super::table::Table;
use crate::args::hardware::{FastAppend, FastCommand, FastRead};
use crate::failure::Failure;
use crate::output;
use tidewater_base::Duration;
use tidewater_client::Patience;

/// A credit that stands still for so long ends the command: a served drive may sync a disk meanwhile.
const TIME: Duration = Duration::from_ms(10_000);
/// Bytes that are read at once.
const PIECE: usize = 64 << 10;

fn patience() -> Patience {
    // A trapped load takes about 100 us inside of an emulated machine: nothing is gained by looking more often.
    Patience { poll: Duration::from_us(20), suspect: Duration::from_ms(100), timeout: TIME }
}

/// `tidewater nvme fast`.
///
/// # Errors
/// When the drive can't be reached, or refuses.
pub fn command(command: &FastCommand) -> Result<(), Failure> {
    match command {
        FastCommand::Append(asked) => append(asked),
        FastCommand::Read(asked) => read(asked),
        FastCommand::Trim(asked) => {
            connect::open_reached(&asked.reached)?.trim(asked.lane.lane, asked.to).map_err(explain)
        }
        FastCommand::Status(asked) => {
            let status = connect::open_reached(&asked.reached)?.fast_status().map_err(explain)?;
            let table = pages::fast_status(&status);
            output::print(&if asked.json { table.json() } else { table.text() })
        }
    }
}

fn append(asked: &FastAppend) -> Result<(), Failure> {
    let bytes = bytes_of(&asked.file)?;
    let mut device = connect::open_reached(&asked.reached)?;
    let mut lane = device.fast(asked.lane.lane, patience()).map_err(explain)?;
    let written = if asked.record { lane.append(&bytes) } else { lane.x_pwrite(&bytes) }.map_err(explain)?;
    lane.x_fsync().map_err(explain)?;
    let mut table =
        Table::default().number("offset", written.start).number("end", written.end).number("credit", lane.credit());
    if let Some(settled) = lane.settled() {
        table = table.number("sealed_from", settled.from).number("sealed_to", settled.to);
    }
    output::print(&if asked.json { table.json() } else { table.text() })
}

fn read(asked: &FastRead) -> Result<(), Failure> {
    let mut device = connect::open_reached(&asked.reached)?;
    let mut lane = device.fast(asked.lane.lane, patience()).map_err(explain)?;
    let end = asked.from.saturating_add(asked.bytes);
    let mut at = asked.from;
    while at < end {
        let mut piece = vec![0; (end - at).min(PIECE as u64) as usize];
        lane.x_pread(at, &mut piece).map_err(explain)?;
        output::bytes(&piece)?;
        at += piece.len() as u64;
    }
    Ok(())
}
