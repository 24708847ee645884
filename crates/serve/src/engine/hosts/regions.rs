//! Regions of a PCI function as its client reads and writes them: configuration space, registers, and memories by BAR.

use super::Hosts;
use crate::engine::{Context, Firmware, Turn};
use crate::vfio_user::{PciMessage, Registers};
use tidewater_core::subsystem::Input;
use tidewater_wire::nvme::register::{PmrHealth, PmrSts, offset};
use tidewater_wire::vfio_user::region;

/// The memory that must be safe before a read is answered: what was stored into it comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Barrier {
    None,
    /// The function's persistent memory region: PMRSTS is read.
    Pmr,
    /// The byte window: a load comes back behind all stores before it, and when they are safe.
    Window,
}

impl Barrier {
    /// The barrier that a read of a region is.
    pub(crate) fn of(firmware: &Firmware, function: usize, (region, offset): (u32, u64), len: usize) -> Barrier {
        let end = offset.saturating_add(len as u64);
        let bar2 = firmware.subsystem.bar2();
        match region {
            0 if (offset..end).contains(&u64::from(offset::PMRSTS)) => Barrier::Pmr,
            2 if function == 0 && offset < bar2.window_offset + bar2.window_len && end > bar2.window_offset => {
                Barrier::Window
            }
            _ => Barrier::None,
        }
    }
}

/// Consequence of a write of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Nothing more than was done.
    Done,
    /// The function is to be reset.
    Reset,
    /// The fast side, or the byte window, is to take the store.
    Store,
}

impl Hosts {
    /// Without power, and at the end, reads of clients find ones and writes are lost.
    pub(crate) fn refuse_messages(&mut self) {
        for function in self.functions.all_mut() {
            while let Some(message) = function.mailbox.take() {
                match message {
                    PciMessage::Read { region: region::CONFIG, offset, len, reply } => {
                        let mut bytes = vec![0; len as usize];
                        function.config.read(offset, &mut bytes);
                        reply.send(Ok(&bytes));
                    }
                    PciMessage::Read { len, reply, .. } => reply.send(Ok(&vec![0xff; len as usize])),
                    PciMessage::Reset { reply } => reply.send(Ok(&[])),
                    PciMessage::Connected(connection) => function.connection = Some(connection),
                    PciMessage::Disconnected => function.connection = None,
                    PciMessage::Write { .. } => {}
                }
            }
        }
    }

    /// Publishes the registers that drivers poll, for reads that the device's thread answers too late. `None`: there is
    /// no power.
    pub(crate) fn publish_registers(&self, firmware: Option<&Firmware>) {
        for (number, function) in (0..).zip(self.functions.all()) {
            let registers = firmware.map_or(Registers::OFF, |firmware| {
                let read = |offset: u32, len: u8| firmware.subsystem.register(number, offset, len);
                Registers {
                    capabilities: read(offset::CAP, 8),
                    version: read(offset::VS, 4) as u32,
                    configuration: read(offset::CC, 4) as u32,
                    status: read(offset::CSTS, 4) as u32,
                }
            });
            function.mailbox.publish(&registers);
        }
    }

    /// Resets a function.
    pub(crate) fn reset(&mut self, cx: &mut Context, function: usize) {
        tracing::debug!(function, "the function is reset");
        self.functions.all_mut()[function].config.reset();
        self.doorbells.may_change();
        cx.push(Input::FunctionReset { function: function as u8 });
    }

    /// Reads a region. `is_safe`: its [`Barrier`] has been kept.
    pub(crate) fn region_read(
        &self,
        t: &mut Turn,
        number: usize,
        (region, offset): (u32, u64),
        is_safe: bool,
        to: &mut [u8],
    ) {
        let (function, number) = (&self.functions.all()[number], number as u8);
        let subsystem = &t.firmware.subsystem;
        match region {
            region::CONFIG => function.config.read(offset, to),
            0 => {
                let pba = function.config.msix_pba();
                for (at, bytes) in pieces(offset, to) {
                    let word = match at.checked_sub(pba) {
                        Some(within) => function.interrupts.pending((within / 8) as usize) >> (8 * (within % 8)),
                        None => subsystem.register(number, at as u32, bytes.len() as u8),
                    };
                    bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
                }
                if !is_safe {
                    let failed = PmrSts { error: 1, health: PmrHealth::Unreliable, ..PmrSts::default() };
                    let at = (u64::from(offset::PMRSTS) - offset) as usize;
                    to[at..].iter_mut().zip(failed.bits().to_le_bytes()).for_each(|(byte, bits)| *byte |= bits);
                }
            }
            2 => match &function.cmb {
                Some((memory, from)) if offset >= *from => {
                    let _ = memory.read(offset, to);
                }
                _ => {
                    let mut is_outside = false;
                    for (at, bytes) in pieces(offset, to) {
                        let found = subsystem.device().window_peek(number, at, bytes.len() as u8);
                        is_outside |= found.is_some_and(|(_, outside)| outside);
                        let word = subsystem.load(number, at, bytes.len() as u8);
                        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
                    }
                    if is_outside {
                        t.cx.push(Input::LoadedOutside { function: number });
                    }
                    if !is_safe {
                        to.fill(0xff);
                    }
                }
            },
            4 if function.pmr.as_ref().is_some_and(|pmr| pmr.read(offset, to)) => {}
            _ => to.fill(0xff),
        }
    }

    /// Writes a region.
    pub(crate) fn region_write(
        &mut self,
        t: &mut Turn,
        number: usize,
        (region, offset): (u32, u64),
        from: &[u8],
    ) -> Stored {
        let function = &mut self.functions.all_mut()[number];
        match region {
            region::CONFIG if function.config.write(offset, from).function_reset => return Stored::Reset,
            0 => {
                let end = function.config.msix_table();
                self.write_registers(t, number as u8, offset, end, from);
            }
            2 => match &function.cmb {
                Some((memory, first)) if offset >= *first => {
                    let _ = memory.write(offset, from);
                }
                _ => return Stored::Store,
            },
            4 => {
                if let Some(pmr) = &function.pmr {
                    let _ = pmr.write(offset, from);
                }
            }
            _ => {}
        }
        Stored::Done
    }

    /// Writes registers and doorbells of BAR0, up to the MSI-X table at `end`: the client keeps that table, since it
    /// delivers the interrupts, and stores there have no effect.
    fn write_registers(&mut self, t: &mut Turn, function: u8, offset: u64, end: u64, from: &[u8]) {
        let mut bytes = [0; 8];
        for (at, piece) in (offset..end).step_by(8).zip(from.chunks(8)) {
            bytes.fill(0);
            bytes[..piece.len()].copy_from_slice(piece);
            let (value, len) = (u64::from_le_bytes(bytes), piece.len() as u8);
            if t.firmware.is_shadowed(function, at) {
                self.doorbells.ask(function);
                continue;
            }
            if at == u64::from(offset::CC) {
                tracing::debug!(function, "CC is set to {value:#x}");
            }
            self.doorbells.may_change();
            t.cx.push(Input::Register { function, offset: at as u32, len, value });
        }
    }
}

/// An access in pieces of at most 8 bytes, none of which crosses a multiple of 8.
fn pieces(offset: u64, mut bytes: &mut [u8]) -> impl Iterator<Item = (u64, &mut [u8])> {
    let mut at = offset;
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let len = ((8 - at % 8) as usize).min(bytes.len());
        let (piece, rest) = std::mem::take(&mut bytes).split_at_mut(len);
        bytes = rest;
        at += len as u64;
        Some((at - len as u64, piece))
    })
}
