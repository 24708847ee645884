//! The calls of 2B-SSD (its section on the API): `BA_PIN`, stores, `BA_SYNC`, `BA_FLUSH`, `BA_READ_DMA`,
//! `BA_GET_ENTRY_INFO`, and letting go of an entry without flushing it.
//!
//! A [`WindowEntry`] is what a host knows of an entry. A [`WindowCall`] says what to do next ([`WindowAction`]);
//! its driver owns the device and the bytes. Where there are BARs, stores and syncs are stores, flushes of cache
//! lines, a fence and a load; else they are commands.

use std::collections::VecDeque;
use std::ops::Range;

use tidewater_wire::nvme::Status;
use tidewater_wire::vendor::{ANYWHERE, EntryInfo, WindowCommand};

/// How bytes of the window reach the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Carrier {
    /// By stores and loads through BAR2.
    #[default]
    Bar,
    /// By commands: NVMe/TCP has no BARs.
    Commands,
}

/// An entry that is pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowEntry {
    /// Its name.
    pub name: u16,
    /// First byte in the window.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Next action of a window call. `Store`, `FlushLines` and `Fence` have no answer; the others have one each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WindowAction {
    /// Store these bytes of the caller's buffer, from this byte of the window on, through write-combining memory.
    Store {
        /// First byte of the window.
        offset: u64,
        /// Which bytes of the buffer.
        bytes: Range<usize>,
    },
    /// Flush the cache lines (`clflush`) that hold these bytes of the window.
    FlushLines {
        /// First byte of the window.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Let all stores before leave the host before anything after (`mfence`).
    Fence,
    /// The write-verify read: load no byte from here. It may not pass the stores before it, so when it comes back they
    /// are in the buffer. Answered by [`WindowAnswer::Verified`].
    Verify {
        /// Byte of the window.
        offset: u64,
    },
    /// Load these bytes of the window into the caller's buffer. Answered by [`WindowAnswer::Verified`].
    Load {
        /// First byte of the window.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// Give a command, with these bytes of the caller's buffer. Answered by [`WindowAnswer::Completed`].
    Command {
        /// The command.
        command: WindowCommand,
        /// Which bytes of the buffer.
        bytes: Range<usize>,
    },
    /// The call is over.
    Done(Result<WindowOutcome, WindowError>),
}

/// How an action went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WindowAnswer {
    /// The load has come back.
    Verified,
    /// The command has ended.
    Completed {
        /// How.
        status: Status,
        /// Double word 0 of its completion.
        result: u32,
        /// Data that it returned.
        data: Vec<u8>,
    },
}

/// Result of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WindowOutcome {
    /// The entry is pinned.
    Pinned(WindowEntry),
    /// The device's data on an entry.
    Info(EntryInfo),
    /// It is done.
    Done,
}

/// Why a call failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WindowError {
    /// The device refused a command.
    #[error("the device refused it: {0}")]
    Refused(Status),
    /// A range ends past its entry.
    #[error("the range ends past its entry")]
    OutOfRange,
    /// The device answered with what is no answer.
    #[error("the device answered with what is no answer")]
    Malformed,
}

/// A call under way.
#[derive(Clone, Debug)]
pub struct WindowCall {
    actions: VecDeque<WindowAction>,
    /// Result once all is done, as far as it is known.
    outcome: Result<WindowOutcome, WindowError>,
    /// Bytes that are pinned.
    pins: Option<(u16, u64)>,
    waits: bool,
}

impl WindowCall {
    fn of(actions: impl IntoIterator<Item = WindowAction>) -> WindowCall {
        let actions = actions.into_iter().collect();
        WindowCall { actions, outcome: Ok(WindowOutcome::Done), pins: None, waits: false }
    }

    fn command(command: WindowCommand, bytes: Range<usize>) -> WindowCall {
        WindowCall::of([WindowAction::Command { command, bytes }])
    }

    fn refused(error: WindowError) -> WindowCall {
        WindowCall { outcome: Err(error), ..WindowCall::of([]) }
    }

    /// `BA_PIN(eid, offset, lba, length)`: `blocks` logical blocks of `block_bytes` from `lba` on. `offset`: first byte
    /// in the buffer; `None`: the device chooses.
    pub fn pin(name: u16, offset: Option<u64>, lba: u64, blocks: u32, block_bytes: u32) -> WindowCall {
        let command = WindowCommand::Pin { entry: name, offset: offset.unwrap_or(ANYWHERE), lba, blocks };
        let bytes = u64::from(blocks) * u64::from(block_bytes);
        WindowCall { pins: Some((name, bytes)), ..WindowCall::command(command, 0..0) }
    }

    /// `BA_FLUSH(eid)`: the entry is written to its blocks and let go of.
    pub fn flush(entry: &WindowEntry) -> WindowCall {
        WindowCall::command(WindowCommand::Flush { entry: entry.name }, 0..0)
    }

    /// Unpins an entry and discards what was stored into it.
    pub fn unpin(entry: &WindowEntry) -> WindowCall {
        WindowCall::command(WindowCommand::Unpin { entry: entry.name }, 0..0)
    }

    /// `BA_GET_ENTRY_INFO(eid)`.
    pub fn entry_info(name: u16) -> WindowCall {
        WindowCall::command(WindowCommand::EntryInfo { entry: name }, 0..EntryInfo::SIZE)
    }

    /// Stores a buffer of `bytes` into an entry, from its byte `at` on. What is stored is safe after
    /// [`WindowCall::sync`].
    pub fn write(carrier: Carrier, entry: &WindowEntry, at: u64, bytes: usize) -> WindowCall {
        if at.checked_add(bytes as u64).is_none_or(|end| end > entry.bytes) || bytes == 0 {
            return WindowCall::refused(WindowError::OutOfRange);
        }
        match carrier {
            Carrier::Bar => WindowCall::of([
                WindowAction::Store { offset: entry.offset + at, bytes: 0..bytes },
                WindowAction::Fence,
            ]),
            Carrier::Commands => {
                let command = WindowCommand::Write { entry: entry.name, offset: at, bytes: bytes as u32 };
                WindowCall::command(command, 0..bytes)
            }
        }
    }

    /// `BA_SYNC(eid)`, of `length` bytes from the entry's byte `at` on: flushes the cache lines, fences, and reads no
    /// byte of the device, which comes back when the stores before it are there.
    pub fn sync(carrier: Carrier, entry: &WindowEntry, at: u64, length: u64) -> WindowCall {
        if at.checked_add(length).is_none_or(|end| end > entry.bytes) {
            return WindowCall::refused(WindowError::OutOfRange);
        }
        let offset = entry.offset + at;
        match carrier {
            Carrier::Bar => WindowCall::of([
                WindowAction::FlushLines { offset, length },
                WindowAction::Fence,
                WindowAction::Verify { offset },
            ]),
            Carrier::Commands => WindowCall::command(WindowCommand::Sync { entry: entry.name }, 0..0),
        }
    }

    /// Loads `length` bytes of an entry, one register after the other.
    pub fn load(entry: &WindowEntry, at: u64, length: u64) -> WindowCall {
        if at.checked_add(length).is_none_or(|end| end > entry.bytes) || length == 0 {
            return WindowCall::refused(WindowError::OutOfRange);
        }
        WindowCall::of([WindowAction::Load { offset: entry.offset + at, length }])
    }

    /// `BA_READ_DMA(eid, dst, length)`, from the entry's byte `at` on.
    pub fn read_dma(entry: &WindowEntry, at: u64, length: usize) -> WindowCall {
        if at.checked_add(length as u64).is_none_or(|end| end > entry.bytes) || length == 0 {
            return WindowCall::refused(WindowError::OutOfRange);
        }
        let command = WindowCommand::ReadDma { entry: entry.name, offset: at, bytes: length as u32 };
        WindowCall::command(command, 0..length)
    }

    /// The next action; `None` while an answer is awaited, and after the end.
    pub fn poll(&mut self) -> Option<WindowAction> {
        if self.waits {
            return None;
        }
        match self.actions.pop_front() {
            Some(action @ WindowAction::Done(_)) => Some(action),
            Some(action) => {
                use WindowAction::{Command, Load, Verify};
                self.waits = matches!(action, Verify { .. } | Load { .. } | Command { .. });
                if self.actions.is_empty() && !self.waits {
                    self.actions.push_back(WindowAction::Done(self.outcome));
                }
                Some(action)
            }
            None if self.outcome.is_err() => {
                let outcome = std::mem::replace(&mut self.outcome, Ok(WindowOutcome::Done));
                self.waits = true; // Nothing comes any more.
                Some(WindowAction::Done(outcome))
            }
            None => None,
        }
    }

    /// Tells how the last action went. Unexpected answers are ignored.
    pub fn on(&mut self, answer: WindowAnswer) {
        if !self.waits {
            return;
        }
        self.waits = false;
        if let WindowAnswer::Completed { status, result, data } = answer {
            self.outcome = match self.pins {
                _ if !status.is_success() => Err(WindowError::Refused(status)),
                Some((name, bytes)) => Ok(WindowOutcome::Pinned(WindowEntry { name, offset: result.into(), bytes })),
                None if data.len() == EntryInfo::SIZE => {
                    EntryInfo::parse(&data).map(WindowOutcome::Info).map_err(|_| WindowError::Malformed)
                }
                None => Ok(WindowOutcome::Done),
            };
        }
        if self.actions.is_empty() || self.outcome.is_err() {
            self.actions.clear();
            let outcome = std::mem::replace(&mut self.outcome, Ok(WindowOutcome::Done));
            self.actions.push_back(WindowAction::Done(outcome));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: WindowEntry = WindowEntry { name: 3, offset: 4096, bytes: 8192 };

    fn done(call: &mut WindowCall) -> Result<WindowOutcome, WindowError> {
        match call.poll() {
            Some(WindowAction::Done(outcome)) => {
                assert_eq!(call.poll(), None, "over is over");
                outcome
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_sync_flushes_fences_and_then_reads() {
        let mut call = WindowCall::sync(Carrier::Bar, &ENTRY, 100, 50);
        assert_eq!(call.poll(), Some(WindowAction::FlushLines { offset: 4196, length: 50 }));
        assert_eq!(call.poll(), Some(WindowAction::Fence));
        assert_eq!(call.poll(), Some(WindowAction::Verify { offset: 4196 }));
        assert_eq!(call.poll(), None, "the load is under way");
        call.on(WindowAnswer::Verified);
        assert_eq!(done(&mut call), Ok(WindowOutcome::Done));
    }

    #[test]
    fn a_write_is_stores_and_a_fence_or_one_command() {
        let mut call = WindowCall::write(Carrier::Bar, &ENTRY, 8, 16);
        assert_eq!(call.poll(), Some(WindowAction::Store { offset: 4104, bytes: 0..16 }));
        assert_eq!(call.poll(), Some(WindowAction::Fence));
        assert_eq!(done(&mut call), Ok(WindowOutcome::Done));
        let mut call = WindowCall::write(Carrier::Commands, &ENTRY, 8, 16);
        let command = WindowCommand::Write { entry: 3, offset: 8, bytes: 16 };
        assert_eq!(call.poll(), Some(WindowAction::Command { command, bytes: 0..16 }));
    }

    #[test]
    fn a_pin_tells_where_and_a_refusal_why() {
        let completed = |status, result| WindowAnswer::Completed { status, result, data: Vec::new() };
        let mut call = WindowCall::pin(3, None, 80, 16, 512);
        assert!(matches!(call.poll(), Some(WindowAction::Command { .. })));
        call.on(completed(Status::SUCCESS, 4096));
        assert_eq!(done(&mut call), Ok(WindowOutcome::Pinned(ENTRY)));
        let mut call = WindowCall::flush(&ENTRY);
        assert!(matches!(call.poll(), Some(WindowAction::Command { .. })));
        call.on(completed(Status::WRITE_FAULT, 0));
        assert_eq!(done(&mut call), Err(WindowError::Refused(Status::WRITE_FAULT)));
    }

    #[test]
    fn what_ends_past_the_entry_is_not_begun() {
        for mut call in [
            WindowCall::write(Carrier::Bar, &ENTRY, 8190, 3),
            WindowCall::write(Carrier::Bar, &ENTRY, u64::MAX, 3),
            WindowCall::write(Carrier::Bar, &ENTRY, 0, 0),
            WindowCall::sync(Carrier::Bar, &ENTRY, 1, 8192),
            WindowCall::load(&ENTRY, 8192, 1),
            WindowCall::read_dma(&ENTRY, 8191, 2),
        ] {
            assert_eq!(done(&mut call), Err(WindowError::OutOfRange));
        }
    }

    #[test]
    fn entry_info_is_parsed() {
        let info = EntryInfo { entry: 3, lba: 80, bytes: 8192, ..EntryInfo::default() };
        let mut call = WindowCall::entry_info(3);
        assert!(matches!(call.poll(), Some(WindowAction::Command { .. })));
        let data = info.to_bytes().to_vec();
        call.on(WindowAnswer::Completed { status: Status::SUCCESS, result: 0, data });
        assert_eq!(done(&mut call), Ok(WindowOutcome::Info(info)));
    }
}
