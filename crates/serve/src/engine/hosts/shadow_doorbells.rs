//! Doorbells that hosts ring in memory (Doorbell Buffer Config): their addresses, their values, and the event indices
//! that the device writes for the hosts.

use super::dma_messages::{Direction, Far, Purpose};
use super::function::{PciFunction, Reached};
use super::functions::{Carried, Functions};
use crate::engine::{DOORBELLS_MAX, Firmware, Turn};
use tidewater_core::subsystem::{Input, ShadowDoorbells};

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
    pub(crate) fn may_change(&mut self) {
        self.changed = true;
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
    fn find(&mut self, firmware: &Firmware, functions: &[PciFunction]) {
        self.shadows.clear();
        self.far.clear();
        for (number, function) in (0..).zip(functions) {
            let Some(ShadowDoorbells { address: first, submission, completion }) =
                firmware.subsystem.shadow_doorbells(number)
            else {
                continue;
            };
            for (completion, mut queues) in [(false, submission), (true, completion)] {
                while queues != 0 {
                    let queue = queues.trailing_zeros() as u16;
                    queues &= queues - 1;
                    let address = first + 4 * (2 * u64::from(queue) + u64::from(completion));
                    self.shadows.push(Shadow { function: number, queue, completion, address, submitted: (0, 0) });
                }
            }
            if function.load_u32(first).is_none() {
                self.far.push(number);
                self.ask(number);
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

impl Doorbells {
    /// Looks at the shadow doorbells of all functions. True: one has changed.
    #[inline(always)]
    pub(crate) fn look(&mut self, t: &mut Turn, functions: &mut Functions) -> bool {
        if std::mem::take(&mut self.changed) {
            self.find(t.firmware, functions.all());
        }
        let mut changed = false;
        for shadow in &mut self.shadows {
            let function = &functions.all()[usize::from(shadow.function)];
            let Some(value) = function.load_u32(shadow.address) else { continue };
            if shadow.is_new(t.firmware, value as u16) {
                changed = true;
                t.cx.push(shadow.input(value as u16));
            }
        }
        if !self.shadows.is_empty() {
            while let Some(function) = self.asked.pop() {
                self.fetch(t, functions, function);
            }
        }
        changed
    }

    /// Fetches the shadow doorbells of a function that this process has not mapped: all at once, by one message.
    #[cold]
    fn fetch(&mut self, t: &mut Turn, functions: &mut Functions, function: u8) {
        let Some(of) = t.firmware.subsystem.shadow_doorbells(function) else { return };
        let mut bytes = vec![0; 4 * DOORBELLS_MAX];
        match functions.read(t.firmware, function, of.address, &mut bytes) {
            Carried::Done => self.came(t, function, of.address, Some(&bytes)),
            Carried::Far(far) => {
                functions.begin(t.firmware, function, (Direction::FromHost, far), Purpose::Shadows(of.address), bytes);
            }
            Carried::Failed => {}
        }
    }

    /// A function's doorbells have come, as they were from this bus address on.
    pub(crate) fn came(&mut self, t: &mut Turn, function: u8, first: u64, bytes: Option<&[u8]>) {
        let is_there = t.firmware.subsystem.shadow_doorbells(function).is_some_and(|of| of.address == first);
        let Some(bytes) = bytes.filter(|_| is_there) else { return };
        for shadow in self.shadows.iter_mut().filter(|shadow| shadow.function == function) {
            let at = shadow.address.wrapping_sub(first) as usize;
            let Some(&[low, high]) = bytes.get(at..).and_then(|from| from.first_chunk()) else { continue };
            let value = u16::from_le_bytes([low, high]);
            if shadow.is_new(t.firmware, value) {
                t.cx.push(shadow.input(value));
            }
        }
    }

    /// An event index has changed: up to where a doorbell has been seen.
    pub(crate) fn index_changed(
        &mut self,
        firmware: &Firmware,
        functions: &mut Functions,
        (function, address, value): (u8, u64, u32),
    ) {
        if self.far.contains(&function) {
            return self.write_index(firmware, functions, (function, address, value));
        }
        match self.indices.iter_mut().find(|index| (index.0, index.1) == (function, address)) {
            Some(index) => index.2 = value,
            None => self.indices.push((function, address, value)),
        }
    }

    /// Writes event indices to hosts: up to where their doorbells have been seen.
    pub(crate) fn write_indices(&mut self, firmware: &Firmware, functions: &mut Functions) {
        for index in std::mem::take(&mut self.indices) {
            self.write_index(firmware, functions, index);
        }
    }

    fn write_index(
        &mut self,
        firmware: &Firmware,
        functions: &mut Functions,
        (number, address, value): (u8, u64, u32),
    ) {
        let Some(function) = functions.get(number) else { return };
        if !function.store_u32(address, value) {
            let region = firmware.subsystem.region(number, address, 4);
            // A host that took its memory away does not miss it.
            if function.write(region, address, &value.to_le_bytes()) == Reached::Far {
                let far = (Direction::ToHost, vec![Far { address, at: 0, len: 4 }]);
                functions.begin(firmware, number, far, Purpose::Nothing, value.to_le_bytes().to_vec());
            }
        }
        // What it rang before it saw this.
        self.ask(number);
    }
}
