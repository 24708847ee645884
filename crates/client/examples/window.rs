//! The tail block of a log, rewritten in place through the byte window: pin it, store a record, sync it, flush it.
//!
//! The drive is an array and a list here; `tidewater-sim` and a real driver carry the same actions out over PCIe.
//!
//!     cargo run -p tidewater-client --example window

use tidewater_client::{Carrier, WindowAction, WindowAnswer, WindowCall, WindowError, WindowOutcome};
use tidewater_wire::nvme::Status;
use tidewater_wire::vendor::WindowCommand;

/// A drive with a window of 8 KiB over blocks of 512 bytes.
struct Drive {
    blocks: Vec<u8>,
    window: Vec<u8>,
    /// The pinned entry: its name and its first byte among the blocks.
    pinned: Option<(u16, usize)>,
}

impl Drive {
    fn execute(&mut self, command: WindowCommand) -> WindowAnswer {
        let mut status = Status::SUCCESS;
        match (command, self.pinned) {
            (WindowCommand::Pin { entry, lba, .. }, None) => {
                let first = lba as usize * 512;
                let size = self.window.len();
                self.window.copy_from_slice(&self.blocks[first..first + size]);
                self.pinned = Some((entry, first));
            }
            (WindowCommand::Flush { .. }, Some((_, first))) => {
                self.blocks[first..first + self.window.len()].copy_from_slice(&self.window);
                self.pinned = None;
            }
            _ => status = Status::INVALID_FIELD,
        }
        WindowAnswer::Completed { status, result: 0, data: Vec::new() }
    }

    /// Carries a call out to its end.
    fn run(&mut self, mut call: WindowCall, buffer: &[u8]) -> Result<WindowOutcome, WindowError> {
        loop {
            match call.poll().expect("no answer is awaited") {
                WindowAction::Store { offset, bytes } => {
                    println!("  store {} bytes at {offset}", bytes.len());
                    self.window[offset as usize..][..bytes.len()].copy_from_slice(&buffer[bytes]);
                }
                WindowAction::FlushLines { offset, length } => println!("  clflush {length} bytes at {offset}"),
                WindowAction::Fence => println!("  fence"),
                WindowAction::Verify { offset } | WindowAction::Load { offset, .. } => {
                    println!("  load at {offset}");
                    call.on(WindowAnswer::Verified);
                }
                WindowAction::Command { command, .. } => {
                    println!("  {command:?}");
                    let answer = self.execute(command);
                    call.on(answer);
                }
                WindowAction::Done(outcome) => return outcome,
            }
        }
    }
}

fn main() -> Result<(), WindowError> {
    let mut drive = Drive { blocks: vec![0; 1 << 20], window: vec![0; 8192], pinned: None };
    println!("pin blocks 64 to 79");
    let WindowOutcome::Pinned(entry) = drive.run(WindowCall::pin(1, None, 64, 16, 512), &[])? else { unreachable!() };
    for (at, record) in [(0, "begin"), (5, ", commit"), (13, ".")] {
        println!("append {record:?}");
        drive.run(WindowCall::write(Carrier::Bar, &entry, at, record.len()), record.as_bytes())?;
        drive.run(WindowCall::sync(Carrier::Bar, &entry, at, record.len() as u64), &[])?;
    }
    println!("flush");
    drive.run(WindowCall::flush(&entry), &[])?;
    let block = &drive.blocks[64 * 512..][..14];
    println!("block 64 begins with {:?}", String::from_utf8_lossy(block));
    assert_eq!(block, b"begin, commit.");
    Ok(())
}
