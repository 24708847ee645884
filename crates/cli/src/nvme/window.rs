//! `tidewater nvme window`: the byte window of a drive.

use super::connect::{self, bytes_of, explain};
use super::pages;
use super::table::Table;
use crate::args::hardware::{WindowCommand, WindowEntry, WindowLoad, WindowPin, WindowStore};
use crate::failure::Failure;
use crate::output;
use tidewater_client::hardware::{Device, Window};
use tidewater_wire::vendor::EntryInfo;

/// `tidewater nvme window`.
///
/// # Errors
/// When the drive can't be reached, or refuses.
pub fn command(command: &WindowCommand) -> Result<(), Failure> {
    match command {
        WindowCommand::Pin(asked) => pin(asked),
        WindowCommand::Store(asked) => store(asked),
        WindowCommand::Load(asked) => load(asked),
        WindowCommand::Sync(asked) => with(asked, |window| {
            let entry = window.entry(asked.entry).map_err(explain)?;
            window.sync(&entry, 0, entry.bytes).map_err(explain)
        }),
        WindowCommand::Info(asked) => with(asked, |window| {
            let table = info(&window.info(asked.entry).map_err(explain)?);
            output::print(&if asked.json { table.json() } else { table.text() })
        }),
        WindowCommand::Flush(asked) => with(asked, |window| {
            let entry = window.entry(asked.entry).map_err(explain)?;
            window.flush(&entry).map_err(explain)
        }),
        WindowCommand::Unpin(asked) => with(asked, |window| {
            let entry = window.entry(asked.entry).map_err(explain)?;
            window.unpin(&entry).map_err(explain)
        }),
        WindowCommand::Status(asked) => {
            let table = pages::window_status(&connect::open_reached(&asked.reached)?.window_status().map_err(explain)?);
            output::print(&if asked.json { table.json() } else { table.text() })
        }
    }
}

/// Does something with the window that an entry is of.
fn with(asked: &WindowEntry, run: impl FnOnce(&mut Window<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut device: Device = connect::open_reached(&asked.reached)?;
    let mut window = device.window(asked.nsid).map_err(explain)?;
    run(&mut window)
}

fn info(info: &EntryInfo) -> Table {
    Table::default()
        .number("entry", info.entry)
        .number("nsid", info.nsid)
        .number("lba", info.lba)
        .unit("bytes", info.bytes, " B")
        .hex("offset", info.offset)
        .hex("bar_offset", info.bar_offset)
        .number("flush_begun", u8::from(info.flush_begun))
}

fn pin(asked: &WindowPin) -> Result<(), Failure> {
    let WindowEntry { entry, json, .. } = asked.entry;
    with(&asked.entry, |window| {
        window.pin(entry, asked.at, asked.lba, asked.blocks).map_err(explain)?;
        let table = info(&window.info(entry).map_err(explain)?);
        output::print(&if json { table.json() } else { table.text() })
    })
}

fn store(asked: &WindowStore) -> Result<(), Failure> {
    let bytes = bytes_of(&asked.file)?;
    with(&asked.entry, |window| {
        let entry = window.entry(asked.entry.entry).map_err(explain)?;
        window.write(&entry, asked.at, &bytes).map_err(explain)?;
        if asked.sync { window.sync(&entry, asked.at, bytes.len() as u64).map_err(explain) } else { Ok(()) }
    })
}

fn load(asked: &WindowLoad) -> Result<(), Failure> {
    with(&asked.entry, |window| {
        let entry = window.entry(asked.entry.entry).map_err(explain)?;
        let bytes = asked.bytes.unwrap_or(entry.bytes.saturating_sub(asked.at));
        // Bytes are given a place only when they are in the entry: what was asked for may be anything.
        if asked.at.checked_add(bytes).is_none_or(|end| end > entry.bytes) {
            let failure = Failure::run(format_args!("{bytes} bytes at offset {} exceed the entry", asked.at));
            return Err(failure.help(format_args!("it has {} bytes", entry.bytes)));
        }
        let mut found = vec![0; bytes as usize];
        let loaded = if asked.dma {
            window.read_dma(&entry, asked.at, &mut found)
        } else {
            window.load(&entry, asked.at, &mut found)
        };
        loaded.map_err(explain)?;
        output::bytes(&found)
    })
}
