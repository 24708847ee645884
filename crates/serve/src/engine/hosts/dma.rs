//! Bytes between a host's memory and the device: at once where they are within reach, else by the function's
//! [`Courier`].
//!
//! [`Courier`]: super::dma_messages::Courier

use super::dma_messages::{Age, Done, Far, Then, Way};
use super::function::{Port, Reached};
use crate::engine::context::Pending;
use crate::engine::firmware::Firmware;
use crate::engine::route::{World, command_of, id_of};
use tidewater_core::content::Whereabouts;
use tidewater_core::subsystem::{Input, LogPiece, MoveError, Outstanding, Segment, Segments, Slot, Unit};

/// How a transfer went.
#[must_use]
#[derive(Debug)]
pub(crate) enum Carried {
    Done,
    /// Not all of it is there.
    Failed,
    /// All but these parts is done.
    Far(Vec<Far>),
}

impl Carried {
    /// All is done but what of `far` there is.
    pub(crate) fn but(far: Vec<Far>) -> Carried {
        if far.is_empty() { Carried::Done } else { Carried::Far(far) }
    }
}

/// Copies bytes that a bus address of a PCI function stands for.
#[inline]
pub(crate) fn dma_read(ports: &[Port], firmware: &Firmware, function: u8, address: u64, to: &mut [u8]) -> Carried {
    let region = firmware.subsystem.region(function, address, to.len() as u32);
    match ports.get(usize::from(function)).map(|port| port.read(region, address, to)) {
        Some(Reached::Done) => Carried::Done,
        Some(Reached::Far) => Carried::Far(vec![Far { address, at: 0, len: to.len() }]),
        Some(Reached::Nothing) | None => Carried::Failed,
    }
}

/// Carries bytes to `at` of a command's data, in the memory of its host.
pub(crate) fn carry(
    ports: &[Port],
    firmware: &Firmware,
    slot: Slot,
    segments: &[Segment],
    at: u32,
    bytes: &[u8],
) -> Carried {
    let Outstanding { function, .. } = command_of(firmware, slot);
    let Some(port) = ports.get(usize::from(function)) else { return Carried::Failed };
    let mut far = Vec::new();
    // Where the segment begins in the command's data.
    let mut begins = 0u64;
    let (first, end) = (u64::from(at), u64::from(at) + bytes.len() as u64);
    for segment in segments {
        let ends = begins + u64::from(segment.len);
        if ends > first && begins < end && !segment.bit_bucket {
            let (from, to) = (first.max(begins), end.min(ends));
            let (at, behind) = ((from - first) as usize, (to - first) as usize);
            let address = segment.address.wrapping_add(from - begins);
            let region = firmware.subsystem.region(function, address, (behind - at) as u32);
            match port.write(region, address, &bytes[at..behind]) {
                Reached::Done => {}
                Reached::Far => far.push(Far { address, at, len: behind - at }),
                Reached::Nothing => return Carried::Failed,
            }
        }
        begins = ends;
    }
    if begins >= end { Carried::but(far) } else { Carried::Failed }
}

/// Brings a command's data from the host's memory.
pub(crate) fn bring(ports: &[Port], firmware: &Firmware, slot: Slot, to: &mut [u8]) -> Carried {
    let Outstanding { function, .. } = command_of(firmware, slot);
    let Segments::Host(segments) = firmware.subsystem.segments(slot) else {
        unreachable!("data of a connection comes by the connection")
    };
    let mut far = Vec::new();
    let mut done = 0;
    for segment in segments {
        let len = (segment.len as usize).min(to.len() - done);
        if !segment.bit_bucket {
            match dma_read(ports, firmware, function, segment.address, &mut to[done..done + len]) {
                Carried::Done => {}
                Carried::Far(parts) => far.extend(parts.into_iter().map(|part| Far { at: done + part.at, ..part })),
                Carried::Failed => return Carried::Failed,
            }
        }
        done += len;
    }
    if done == to.len() { Carried::but(far) } else { Carried::Failed }
}

impl<M> World<M> {
    /// Begins what only messages can carry: parts of `bytes`.
    #[cold]
    pub(crate) fn begin(
        &mut self,
        firmware: &Firmware,
        function: u8,
        (way, far): (Way, Vec<Far>),
        then: Then,
        bytes: Vec<u8>,
    ) {
        let age = Age { cuts: self.cuts, resets: firmware.subsystem.resets(function) };
        let port = &mut self.ports[usize::from(function)];
        let client = port.connection.clone();
        port.courier.carry(client, way, far, (age, then, bytes));
    }

    /// Ends a transfer of a command's data to its host. `None`: it is under way, and its end is said later.
    pub(crate) fn carried(
        &mut self,
        firmware: &Firmware,
        slot: Slot,
        carried: Carried,
        bytes: &[u8],
    ) -> Option<Result<(), MoveError>> {
        match carried {
            Carried::Done => Some(Ok(())),
            Carried::Failed => Some(Err(MoveError::Host)),
            Carried::Far(far) => {
                let function = command_of(firmware, slot).function;
                self.begin(firmware, function, (Way::ToHost, far), Then::Moved(slot), bytes.to_vec());
                None
            }
        }
    }

    /// Takes data of a command to its host: `bytes` go to `at` of its data.
    /// `None`: its end is said later.
    pub(crate) fn take_to_host(
        &mut self,
        firmware: &Firmware,
        slot: Slot,
        at: u32,
        bytes: &[u8],
    ) -> Option<Result<(), MoveError>> {
        self.record.count_moved(command_of(firmware, slot).queue, 0, bytes.len() as u32);
        let Segments::Host(segments) = firmware.subsystem.segments(slot) else {
            let Some(target) = &mut self.target else { return Some(Err(MoveError::Host)) };
            let fill = |to: &mut [u8]| {
                to.copy_from_slice(bytes);
                Ok(())
            };
            let taken = target.data(id_of(&command_of(firmware, slot)), at, bytes.len() as u32, fill);
            return Some(taken.map_err(|_| MoveError::Host));
        };
        let carried = carry(&self.ports, firmware, slot, segments, at, bytes);
        self.carried(firmware, slot, carried, bytes)
    }

    /// `None`: its end is said later.
    pub(crate) fn read_to_host(
        &mut self,
        firmware: &Firmware,
        slot: Slot,
        unit: Unit,
        place: Whereabouts,
    ) -> Option<Result<(), MoveError>> {
        self.record.count_moved(command_of(firmware, slot).queue, 0, unit.len);
        let Segments::Host(segments) = firmware.subsystem.segments(slot) else {
            let id = id_of(&command_of(firmware, slot));
            let Some(target) = &mut self.target else { return Some(Err(MoveError::Host)) };
            return Some(target.data(id, unit.at, unit.len, |to| self.storage.payload.read(unit, place, to)));
        };
        let bytes = match self.storage.payload.bytes(unit, place) {
            Ok(bytes) => bytes,
            Err(error) => return Some(Err(error)),
        };
        match carry(&self.ports, firmware, slot, segments, unit.at, bytes) {
            Carried::Done => Some(Ok(())),
            Carried::Failed => Some(Err(MoveError::Host)),
            far => {
                let bytes = bytes.to_vec();
                self.carried(firmware, slot, far, &bytes)
            }
        }
    }

    pub(crate) fn send(&mut self, firmware: &Firmware, slot: Slot, at: u32, bytes: &[u8], log: Option<LogPiece>) {
        if self.storage.exceeds_credit_limit(&self.cx, firmware, Some(slot)) {
            return self.cx.push(Input::Moved { slot, result: Err(MoveError::Host) });
        }
        let result = match log {
            None => self.take_to_host(firmware, slot, at, bytes),
            Some(piece) => {
                let mut all = self.cx.buffer(bytes.len() + piece.len as usize);
                let (head, log) = all.split_at_mut(bytes.len());
                head.copy_from_slice(bytes);
                let result = match self.storage.log_bytes(firmware, piece, log) {
                    Ok(()) => self.take_to_host(firmware, slot, at, &all),
                    Err(error) => Some(Err(error)),
                };
                self.cx.spare(all);
                result
            }
        };
        if let Some(result) = result {
            self.cx.push(Input::Moved { slot, result });
        }
    }

    /// Takes the transfers that have ended. True: there were some.
    pub(crate) fn take_transfers(&mut self, firmware: &Firmware) -> bool {
        let mut any = false;
        while let Some(Done { function, age, then, bytes, is_good }) = self.transfers.take() {
            any = true;
            self.ports[usize::from(function)].courier.came_back();
            if age.cuts != self.cuts {
                continue;
            }
            let result = if is_good { Ok(()) } else { Err(MoveError::Host) };
            match then {
                Then::DmaRead(token) => self.cx.put(Pending::DmaRead(token, is_good.then_some(bytes))),
                Then::Gathered(slot) => {
                    if is_good {
                        self.record.see_ranges(firmware, slot, &bytes);
                    }
                    self.cx.put(Pending::Gathered(slot, is_good.then_some(bytes)));
                }
                Then::Fetched(slot) => {
                    self.storage.payload.staging(slot)[..bytes.len()].copy_from_slice(&bytes);
                    self.cx.push(Input::Moved { slot, result });
                }
                Then::Moved(slot) => self.cx.push(Input::Moved { slot, result }),
                // After a reset of the controller, nothing is missed.
                Then::Posted if is_good || age.resets != firmware.subsystem.resets(function) => {}
                Then::Posted => self.cx.push(Input::PostFailed { function }),
                Then::HostMemory(access) => {
                    let answer = self.lent.carried(&access, is_good.then_some(&bytes));
                    self.cx.push(Input::HostMemory { ticket: access.ticket, answer });
                }
                Then::Shadows(address) => self.shadows_came(firmware, function, address, is_good.then_some(&bytes)),
                Then::Nothing => {}
            }
        }
        any
    }

    /// Without power, no transfer is for anything.
    pub(crate) fn drop_transfers(&mut self) {
        while let Some(done) = self.transfers.take() {
            self.ports[usize::from(done.function)].courier.came_back();
        }
    }
}
