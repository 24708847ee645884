//! The byte window of a drive, carried out: what a [`WindowCall`] says, by BAR2 or by commands.

use tidewater_driver::{BarAccess, Completion, DATA_MAX, Queue};
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::vendor::{EntryInfo, WindowCommand};

use super::{Device, HardwareError};
use crate::{Carrier, WindowAction, WindowAnswer, WindowCall, WindowEntry, WindowError, WindowOutcome};

/// The byte window, for blocks of one namespace.
pub struct Window<'d> {
    device: &'d mut Device,
    at: WindowPlace,
}

/// Where a byte window is, and whose blocks are pinned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WindowPlace {
    nsid: u32,
    carrier: Carrier,
    /// Where it begins in BAR2.
    place: u64,
    block_bytes: u32,
}

impl<'d> Window<'d> {
    pub(super) fn open(device: &'d mut Device, nsid: u32) -> Result<Window<'d>, HardwareError> {
        let status = device.window_status()?;
        if status.bytes == 0 {
            return Err(HardwareError::NoWindow);
        }
        let block_bytes = device.block_bytes(nsid)?;
        let carrier = if device.has_bars() { Carrier::Bar } else { Carrier::Commands };
        Ok(Window { device, at: WindowPlace { nsid, carrier, place: status.bar_offset, block_bytes } })
    }

    pub(super) fn at(device: &'d mut Device, at: WindowPlace) -> Window<'d> {
        Window { device, at }
    }

    /// For [`Device::window_at`].
    pub fn place(&self) -> WindowPlace {
        self.at
    }

    /// Bytes of a logical block.
    pub fn block_bytes(&self) -> u32 {
        self.at.block_bytes
    }

    /// `BA_PIN`: blocks from `lba` on, at a place of the buffer or where the device chooses.
    ///
    /// # Errors
    /// [`HardwareError::Window`], or that the command could not be run.
    pub fn pin(&mut self, name: u16, at: Option<u64>, lba: u64, blocks: u32) -> Result<WindowEntry, HardwareError> {
        match self.call(WindowCall::pin(name, at, lba, blocks, self.at.block_bytes), &mut [])? {
            WindowOutcome::Pinned(entry) => Ok(entry),
            other => Err(HardwareError::Malformed(format!("{other:?} as the answer to Pin"))),
        }
    }

    /// `BA_GET_ENTRY_INFO`.
    ///
    /// # Errors
    /// As [`Window::pin`].
    pub fn info(&mut self, name: u16) -> Result<EntryInfo, HardwareError> {
        match self.call(WindowCall::entry_info(name), &mut [0; EntryInfo::SIZE])? {
            WindowOutcome::Info(info) => Ok(info),
            other => Err(HardwareError::Malformed(format!("{other:?} as the answer to Entry Info"))),
        }
    }

    /// A pinned entry.
    ///
    /// # Errors
    /// As [`Window::pin`].
    pub fn entry(&mut self, name: u16) -> Result<WindowEntry, HardwareError> {
        self.info(name).map(|info| WindowEntry { name, offset: info.offset, bytes: info.bytes })
    }

    /// Stores bytes into an entry from its byte `at` on. They are safe after [`Window::sync`].
    ///
    /// # Errors
    /// As [`Window::pin`].
    pub fn write(&mut self, entry: &WindowEntry, at: u64, bytes: &[u8]) -> Result<(), HardwareError> {
        for (piece, at) in self.pieces(bytes.len(), at) {
            let mut piece = bytes[piece].to_vec();
            self.call(WindowCall::write(self.at.carrier, entry, at, piece.len()), &mut piece)?;
        }
        Ok(())
    }

    /// `BA_SYNC` of a part of an entry.
    ///
    /// # Errors
    /// As [`Window::pin`].
    pub fn sync(&mut self, entry: &WindowEntry, at: u64, length: u64) -> Result<(), HardwareError> {
        self.call(WindowCall::sync(self.at.carrier, entry, at, length), &mut []).map(drop)
    }

    /// `BA_SYNC` of parts of entries, each from a byte on, whose read looks at what it brings: a device that can't make
    /// stores safe answers with ones. `stored`, 64 bytes at most and not all ones, is what `entry` has from its byte
    /// `at` on. Returns whether the device has it.
    ///
    /// # Errors
    /// As [`Window::pin`].
    pub fn sync_and_verify(
        &mut self,
        parts: &[(WindowEntry, u64, u64)],
        (entry, at): (&WindowEntry, u64),
        stored: &[u8],
    ) -> Result<bool, HardwareError> {
        match self.at.carrier {
            Carrier::Bar => {
                for (entry, from, length) in parts {
                    let from = self.at.place + entry.offset + from;
                    self.bar()?.flush_lines(from, *length)?;
                }
                self.bar()?.fence();
                let mut found = [0; 64];
                let found = found.get_mut(..stored.len()).ok_or(WindowError::OutOfRange)?;
                self.load(entry, at, found)?;
                Ok(found == stored)
            }
            // Each ends with a status of its own.
            Carrier::Commands => {
                for (entry, from, length) in parts {
                    self.sync(entry, *from, *length)?;
                }
                Ok(true)
            }
        }
    }

    /// Begins to pin ([`Window::pin`]) or to flush, as `command` says, and does not wait where the transport lets it go
    /// on meanwhile. `None`: it is under way, and [`Window::poll`] tells when it ends; one at a time.
    ///
    /// # Errors
    /// As [`Window::pin`].
    pub(super) fn begin(&mut self, command: &WindowCommand) -> Result<Option<u32>, HardwareError> {
        let done = self.device.transport.begin(Queue::Io, &command.emit(0).with_nsid(self.at.nsid))?;
        done.map(ended).transpose()
    }

    /// How what was begun has ended; `None`: it has not. `wait`: until it has.
    ///
    /// # Errors
    /// As [`Window::pin`].
    pub(super) fn poll(&mut self, wait: bool) -> Result<Option<u32>, HardwareError> {
        self.device.transport.poll(wait)?.map(ended).transpose()
    }

    /// Loads bytes of an entry through BAR2, one register after the other; by DMA where there is no BAR.
    ///
    /// # Errors
    /// As [`Window::pin`].
    pub fn load(&mut self, entry: &WindowEntry, at: u64, to: &mut [u8]) -> Result<(), HardwareError> {
        match self.at.carrier {
            Carrier::Bar => self.call(WindowCall::load(entry, at, to.len() as u64), to).map(drop),
            Carrier::Commands => self.read_dma(entry, at, to),
        }
    }

    /// `BA_READ_DMA`.
    ///
    /// # Errors
    /// As [`Window::pin`].
    pub fn read_dma(&mut self, entry: &WindowEntry, at: u64, to: &mut [u8]) -> Result<(), HardwareError> {
        for (piece, at) in self.pieces(to.len(), at) {
            let to = &mut to[piece];
            self.call(WindowCall::read_dma(entry, at, to.len()), to)?;
        }
        Ok(())
    }

    /// `BA_FLUSH`: writes an entry to its blocks and unpins it.
    ///
    /// # Errors
    /// As [`Window::pin`].
    pub fn flush(&mut self, entry: &WindowEntry) -> Result<(), HardwareError> {
        self.call(WindowCall::flush(entry), &mut []).map(drop)
    }

    /// Unpins an entry and discards what was stored into it.
    ///
    /// # Errors
    /// As [`Window::pin`].
    pub fn unpin(&mut self, entry: &WindowEntry) -> Result<(), HardwareError> {
        self.call(WindowCall::unpin(entry), &mut []).map(drop)
    }

    /// Pieces that one command moves, and where in the entry each begins. One piece even of nothing, which is refused
    /// as such.
    fn pieces(&self, bytes: usize, at: u64) -> impl Iterator<Item = (std::ops::Range<usize>, u64)> + use<> {
        (0..bytes.max(1))
            .step_by(DATA_MAX)
            .map(move |from| (from..(from + DATA_MAX).min(bytes), at.saturating_add(from as u64)))
    }

    /// Does what a call says. `buffer`: what it stores, or where what it brings goes.
    fn call(&mut self, mut call: WindowCall, buffer: &mut [u8]) -> Result<WindowOutcome, HardwareError> {
        while let Some(action) = call.poll() {
            match action {
                WindowAction::Store { offset, bytes } => {
                    let at = self.at.place + offset;
                    self.bar()?.store(at, &buffer[bytes])?;
                }
                WindowAction::FlushLines { offset, length } => {
                    let at = self.at.place + offset;
                    self.bar()?.flush_lines(at, length)?;
                }
                WindowAction::Fence => self.bar()?.fence(),
                WindowAction::Verify { offset } => {
                    // A load of nothing cannot be asked of a processor: a byte is the least.
                    let at = self.at.place + offset;
                    self.bar()?.load(at, &mut [0])?;
                    call.on(WindowAnswer::Verified);
                }
                WindowAction::Load { offset, length } => {
                    let at = self.at.place + offset;
                    let to = buffer.get_mut(..length as usize).ok_or(WindowError::OutOfRange)?;
                    self.bar()?.load(at, to)?;
                    call.on(WindowAnswer::Verified);
                }
                WindowAction::Command { command, bytes } => call.on(self.command(&command, &mut buffer[bytes])?),
                WindowAction::Done(outcome) => return Ok(outcome?),
            }
        }
        Err(HardwareError::Malformed("a call of the window that does not end".into()))
    }

    fn bar(&mut self) -> Result<&mut dyn BarAccess, HardwareError> {
        self.device.transport.bar().ok_or(HardwareError::NoWindow)
    }

    fn command(&mut self, command: &WindowCommand, data: &mut [u8]) -> Result<WindowAnswer, HardwareError> {
        // Data are whole double words.
        let mut whole = vec![0; data.len().next_multiple_of(4)];
        whole[..data.len()].copy_from_slice(data);
        let sqe: Sqe = command.emit(0).with_nsid(self.at.nsid);
        let done = self.device.transport.command(Queue::Io, &sqe, &mut whole)?;
        let brings = matches!(command, WindowCommand::EntryInfo { .. } | WindowCommand::ReadDma { .. });
        let brings = brings && done.status == Status::SUCCESS;
        if brings {
            let len = data.len();
            data.copy_from_slice(&whole[..len]);
        }
        // A call looks at what Entry Info brings alone.
        let info = brings && matches!(command, WindowCommand::EntryInfo { .. });
        let data = if info { data.to_vec() } else { Vec::new() };
        Ok(WindowAnswer::Completed { status: done.status, result: done.result, data })
    }
}

/// Result of a window command.
fn ended(done: Completion) -> Result<u32, HardwareError> {
    if done.status.is_success() { Ok(done.result) } else { Err(WindowError::Refused(done.status).into()) }
}
