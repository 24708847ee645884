//! What clients of PCIe functions ask of the engine: reads and writes of regions, resets, and their coming and going.

use super::Server;
use crate::engine::context::Pending;
use crate::engine::hosts::shadow_doorbells::is_kick;
use crate::vfio_user::{PciMessage, Registers};
use tidewater_core::subsystem::Input;
use tidewater_wire::nvme::register::{PmrHealth, PmrSts, offset};
use tidewater_wire::vfio_user::region;

impl Server {
    /// Takes the messages of clients of PCIe functions, in order.
    pub(crate) fn take_messages(&mut self) -> bool {
        let mut any = false;
        for function in 0..self.world.ports.len() {
            while let Some(message) = self.world.ports[function].mailbox.take() {
                any = true;
                self.on_message(function, message);
            }
        }
        any
    }

    /// While there is no power, and at the end, reads find ones and writes are lost.
    pub(crate) fn refuse_messages(&mut self) {
        for port in &mut self.world.ports {
            while let Some(message) = port.mailbox.take() {
                match message {
                    PciMessage::Read { region: region::CONFIG, offset, len, reply } => {
                        let mut bytes = vec![0; len as usize];
                        port.config.read(offset, &mut bytes);
                        reply.send(Ok(&bytes));
                    }
                    PciMessage::Read { len, reply, .. } => reply.send(Ok(&vec![0xff; len as usize])),
                    PciMessage::Reset { reply } => reply.send(Ok(&[])),
                    PciMessage::Connected(connection) => port.connection = Some(connection),
                    PciMessage::Disconnected => port.connection = None,
                    PciMessage::Write { .. } => {}
                }
            }
        }
    }

    /// Publishes the registers that drivers poll, for reads that this thread answers too late.
    pub(crate) fn publish_registers(&self) {
        if !self.world.cx.pending.is_empty() {
            return; // They may differ once these are handled.
        }
        for (function, port) in (0..).zip(&self.world.ports) {
            let registers = self.firmware.as_ref().map_or(Registers::OFF, |firmware| {
                let read = |offset: u32, len: u8| firmware.subsystem.register(function, offset, len);
                Registers {
                    capabilities: read(offset::CAP, 8),
                    version: read(offset::VS, 4) as u32,
                    configuration: read(offset::CC, 4) as u32,
                    status: read(offset::CSTS, 4) as u32,
                }
            });
            port.mailbox.publish(&registers);
        }
    }

    fn on_message(&mut self, function: usize, message: PciMessage) {
        self.world.look_before_message(self.firmware.as_ref().expect("there is power"), function);
        match message {
            PciMessage::Read { region, offset, len, reply } => {
                // Behind all that was written before.
                if !self.world.cx.pending.is_empty() {
                    self.drive();
                }
                let mut bytes = vec![0; len as usize];
                self.region_read(function, region, offset, &mut bytes);
                reply.send(Ok(&bytes));
            }
            PciMessage::Write { region, offset, bytes } => self.region_write(function, region, offset, &bytes),
            PciMessage::Reset { reply } => {
                self.reset_function(function);
                self.drive();
                reply.send(Ok(&[]));
            }
            PciMessage::Connected(connection) => {
                tracing::debug!(function, "a client is attached");
                self.world.ports[function].connection = Some(connection);
            }
            PciMessage::Disconnected => {
                tracing::debug!(function, "the client is gone");
                self.world.ports[function].connection = None;
                self.reset_function(function);
            }
        }
    }

    fn reset_function(&mut self, function: usize) {
        tracing::debug!(function, "the function is reset");
        self.world.ports[function].config.reset();
        self.world.doorbells.may_change(true);
        self.world.cx.push(Input::FunctionReset { function: function as u8 });
    }

    fn region_read(&mut self, function: usize, region: u32, offset: u64, to: &mut [u8]) {
        let status = u64::from(offset::PMRSTS);
        let is_barrier = region == 0 && (offset..offset.saturating_add(to.len() as u64)).contains(&status);
        let is_safe = !is_barrier || self.world.pmr_barrier(function);
        let firmware = self.firmware.as_ref().expect("there is power");
        let subsystem = &firmware.subsystem;
        // A load from the window comes back behind all stores before it, and when they are safe.
        let window = subsystem.bar2().window_offset..subsystem.bar2().window_offset + subsystem.bar2().window_len;
        let touches = offset < window.end && offset.saturating_add(to.len() as u64) > window.start;
        let is_window = region == 2 && function == 0 && touches;
        let is_stored = !is_window || self.world.window_barrier(firmware);
        let port = &self.world.ports[function];
        match region {
            region::CONFIG => port.config.read(offset, to),
            0 => {
                let pba = port.config.msix_pba();
                for (at, bytes) in pieces(offset, to) {
                    let word = match at.checked_sub(pba) {
                        Some(within) => port.interrupts.pending((within / 8) as usize) >> (8 * (within % 8)),
                        None => subsystem.register(function as u8, at as u32, bytes.len() as u8),
                    };
                    bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
                }
                if !is_safe {
                    let failed = PmrSts { error: 1, health: PmrHealth::Unreliable, ..PmrSts::default() };
                    let at = (status - offset) as usize;
                    to[at..].iter_mut().zip(failed.bits().to_le_bytes()).for_each(|(byte, bits)| *byte |= bits);
                }
            }
            2 => match &port.cmb {
                Some((memory, from)) if offset >= *from => {
                    let _ = memory.read(offset, to);
                }
                _ => {
                    let mut is_outside = false;
                    for (at, bytes) in pieces(offset, to) {
                        let found = subsystem.device().window_peek(function as u8, at, bytes.len() as u8);
                        is_outside |= found.is_some_and(|(_, outside)| outside);
                        let word = subsystem.load(function as u8, at, bytes.len() as u8);
                        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
                    }
                    if is_outside {
                        self.world.cx.push(Input::LoadedOutside { function: function as u8 });
                    }
                    if !is_stored {
                        to.fill(0xff);
                    }
                }
            },
            4 => {
                let read = port.pmr.as_ref().is_some_and(|pmr| pmr.read(offset, to));
                if !read {
                    to.fill(0xff);
                }
            }
            _ => to.fill(0xff),
        }
    }

    fn region_write(&mut self, function: usize, region: u32, offset: u64, from: &[u8]) {
        match region {
            region::CONFIG => {
                let change = self.world.ports[function].config.write(offset, from);
                if change.function_reset {
                    self.reset_function(function);
                }
            }
            0 => {
                let mut bytes = [0; 8];
                let doorbells_end = self.world.ports[function].config.msix_table();
                for piece in from.chunks(8).scan(offset, |at, piece| {
                    let here = *at;
                    *at += piece.len() as u64;
                    Some((here, piece))
                }) {
                    let (at, piece) = piece;
                    // The client keeps the MSI-X table, since it delivers the interrupts: stores here have no effect.
                    if at >= doorbells_end {
                        break;
                    }
                    bytes.fill(0);
                    bytes[..piece.len()].copy_from_slice(piece);
                    let (value, len) = (u64::from_le_bytes(bytes), piece.len() as u8);
                    if is_kick(self.firmware.as_ref().expect("there is power"), function as u8, at) {
                        self.world.doorbells.ask(function as u8);
                        continue;
                    }
                    if at == u64::from(offset::CC) {
                        tracing::debug!(function, "CC is set to {value:#x}");
                    }
                    self.world.doorbells.may_change(true);
                    self.world.cx.push(Input::Register { function: function as u8, offset: at as u32, len, value });
                }
            }
            2 => match &self.world.ports[function].cmb {
                Some((memory, first)) if offset >= *first => {
                    let _ = memory.write(offset, from);
                }
                _ => {
                    let firmware = self.firmware.as_ref().expect("there is power");
                    if self.world.ring_message(function, offset, from, firmware) {
                        return;
                    }
                    let mut bytes = self.world.cx.buffer(from.len());
                    bytes.copy_from_slice(from);
                    self.world.cx.put(Pending::Store { function: function as u8, address: offset, bytes });
                }
            },
            4 => {
                if let Some(pmr) = &self.world.ports[function].pmr {
                    let _ = pmr.write(offset, from);
                }
            }
            _ => {}
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
