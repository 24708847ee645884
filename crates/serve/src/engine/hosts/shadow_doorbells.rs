//! Doorbells that hosts ring in memory (Doorbell Buffer Config): their addresses, their values, and the event indices
//! that the device writes for the hosts.

use super::dma::{Carried, dma_read};
use super::dma_messages::{Far, Then, Way};
use super::function::{Port, Reached};
use crate::engine::firmware::Firmware;
use crate::engine::route::World;
use tidewater_core::subsystem::{Input, ShadowDoorbells};
use tidewater_wire::nvme::register::offset::DOORBELLS;

/// Doorbells of a function, of both kinds, at most.
const DOORBELLS_MAX: usize = 2 * 128;

/// A doorbell in memory.
#[derive(Clone, Copy, Debug)]
struct Shadow {
    function: u8,
    queue: u16,
    completion: bool,
    address: u64,
    /// The last value that was submitted, and the value that the controller had then.
    submitted: (u16, u16),
}

/// The doorbells in memory of all functions.
#[derive(Debug)]
pub(crate) struct Doorbells {
    /// Event indices to write before the thread sleeps: while it polls the doorbells in memory, hosts need not ring by
    /// message.
    indices: Vec<(u8, u64, u32)>,
    /// As they were found, until something may have changed which there are.
    shadows: Vec<Shadow>,
    changed: bool,
    /// Functions whose doorbells lie where the device can't look by itself: only messages to the client reach them, or
    /// they are in the function's own memory.
    far: Vec<u8>,
    /// Those of them that may have rung: the client is asked once then, and not each time when the device looks.
    asked: Vec<u8>,
}

impl Doorbells {
    pub(crate) fn new() -> Doorbells {
        Doorbells { indices: Vec::new(), shadows: Vec::new(), changed: true, far: Vec::new(), asked: Vec::new() }
    }

    /// Something has happened by which there may be others.
    #[inline]
    pub(crate) fn may_change(&mut self, is_so: bool) {
        self.changed |= is_so;
    }

    /// The power has failed.
    pub(crate) fn forget(&mut self) {
        self.indices.clear();
        self.asked.clear();
        self.changed = true;
    }

    /// A function may have rung.
    pub(crate) fn ask(&mut self, function: u8) {
        if self.far.contains(&function) && !self.asked.contains(&function) {
            self.asked.push(function);
        }
    }

    /// Finds out which there are.
    #[cold]
    fn find(&mut self, firmware: &Firmware, ports: &[Port]) {
        self.shadows.clear();
        self.far.clear();
        for (function, port) in (0..).zip(ports) {
            let Some(ShadowDoorbells { address: first, submission, completion }) =
                firmware.subsystem.shadow_doorbells(function)
            else {
                continue;
            };
            for (completion, mut queues) in [(false, submission), (true, completion)] {
                while queues != 0 {
                    let queue = queues.trailing_zeros() as u16;
                    queues &= queues - 1;
                    let address = first + 4 * (2 * u64::from(queue) + u64::from(completion));
                    self.shadows.push(Shadow { function, queue, completion, address, submitted: (0, 0) });
                }
            }
            if port.load_u32(first).is_none() {
                self.far.push(function);
                self.ask(function);
            }
        }
    }
}

impl Shadow {
    /// Whether its value is new to the controller.
    #[inline]
    fn is_new(&mut self, firmware: &Firmware, value: u16) -> bool {
        let known = firmware.subsystem.doorbell(self.function, self.queue, self.completion);
        // A rejected value is not submitted again.
        let is_new = value != known && (value, known) != self.submitted;
        if is_new {
            self.submitted = (value, known);
        }
        is_new
    }

    fn input<'a>(self, value: u16) -> Input<'a> {
        let Shadow { function, queue, completion, .. } = self;
        Input::Doorbell { function, queue, completion, value }
    }
}

impl<M> World<M> {
    /// Looks at the shadow doorbells of all functions. True: one has changed.
    #[inline]
    pub(crate) fn look_at_doorbells(&mut self, firmware: &Firmware) -> bool {
        let mut changed = self.look_at_pages(firmware);
        if std::mem::take(&mut self.doorbells.changed) {
            self.doorbells.find(firmware, &self.ports);
        }
        if self.doorbells.shadows.is_empty() {
            return changed;
        }
        let mut shadows = std::mem::take(&mut self.doorbells.shadows);
        for shadow in &mut shadows {
            let Some(value) = self.ports[usize::from(shadow.function)].load_u32(shadow.address) else { continue };
            if shadow.is_new(firmware, value as u16) {
                changed = true;
                self.cx.push(shadow.input(value as u16));
            }
        }
        self.doorbells.shadows = shadows;
        while let Some(function) = self.doorbells.asked.pop() {
            self.fetch_shadows(firmware, function);
        }
        changed
    }

    /// Fetches the shadow doorbells of a function that this process has not mapped: all at once, by one message.
    #[cold]
    fn fetch_shadows(&mut self, firmware: &Firmware, function: u8) {
        let Some(of) = firmware.subsystem.shadow_doorbells(function) else { return };
        let mut bytes = vec![0; 4 * DOORBELLS_MAX];
        match dma_read(&self.ports, firmware, function, of.address, &mut bytes) {
            Carried::Done => self.shadows_came(firmware, function, of.address, Some(&bytes)),
            Carried::Far(far) => self.begin(firmware, function, (Way::FromHost, far), Then::Shadows(of.address), bytes),
            Carried::Failed => {}
        }
    }

    /// A function's doorbells have come, as they were from this bus address on.
    pub(crate) fn shadows_came(&mut self, firmware: &Firmware, function: u8, first: u64, bytes: Option<&Vec<u8>>) {
        let is_there = firmware.subsystem.shadow_doorbells(function).is_some_and(|of| of.address == first);
        let Some(bytes) = bytes.filter(|_| is_there) else { return };
        let mut shadows = std::mem::take(&mut self.doorbells.shadows);
        for shadow in shadows.iter_mut().filter(|shadow| shadow.function == function) {
            let at = shadow.address.wrapping_sub(first) as usize;
            let Some(&[low, high]) = bytes.get(at..).and_then(|from| from.first_chunk()) else { continue };
            let value = u16::from_le_bytes([low, high]);
            if shadow.is_new(firmware, value) {
                self.cx.push(shadow.input(value));
            }
        }
        self.doorbells.shadows = shadows;
    }

    /// An event index has changed: up to where a doorbell has been seen.
    pub(crate) fn index_changed(&mut self, firmware: &Firmware, function: u8, address: u64, value: u32) {
        if self.doorbells.far.contains(&function) {
            return self.write_event_index(firmware, function, address, value);
        }
        let indices = &mut self.doorbells.indices;
        match indices.iter_mut().find(|index| (index.0, index.1) == (function, address)) {
            Some(index) => index.2 = value,
            None => indices.push((function, address, value)),
        }
    }

    /// Writes event indices to hosts: up to where their doorbells have been seen.
    pub(crate) fn write_event_indices(&mut self, firmware: &Firmware) {
        for (function, address, value) in std::mem::take(&mut self.doorbells.indices) {
            self.write_event_index(firmware, function, address, value);
        }
    }

    fn write_event_index(&mut self, firmware: &Firmware, function: u8, address: u64, value: u32) {
        let Some(port) = self.ports.get(usize::from(function)) else { return };
        if !port.store_u32(address, value) {
            let region = firmware.subsystem.region(function, address, 4);
            // A host that took its memory away does not miss it.
            if port.write(region, address, &value.to_le_bytes()) == Reached::Far {
                let far = vec![Far { address, at: 0, len: 4 }];
                self.begin(firmware, function, (Way::ToHost, far), Then::Nothing, value.to_le_bytes().to_vec());
            }
        }
        // What it rang before it saw this.
        self.doorbells.ask(function);
    }
}

/// Whether a register write is a doorbell that only says that its shadow has changed. Its value may be older than the
/// shadow's, and is not looked at.
pub(crate) fn is_kick(firmware: &Firmware, function: u8, offset: u64) -> bool {
    let Some(index) = offset.checked_sub(u64::from(DOORBELLS)).map(|from| from / 4) else { return false };
    let shadow = firmware.subsystem.shadow_doorbells(function).filter(|_| index < DOORBELLS_MAX as u64);
    let of = |shadow: ShadowDoorbells| if index % 2 == 1 { shadow.completion } else { shadow.submission };
    shadow.is_some_and(|shadow| of(shadow) >> (index / 2) & 1 == 1)
}
