//! The controllers: their registers and queues, the order in which they have their turn, what they say to their hosts,
//! and how they are enabled and reset.
//!
//! Commands mean nothing here: a method returns the results that other rooms continue with.

mod completions;
mod controller;
mod doorbells;
mod events;
mod io_queues;
mod keep_alive;
mod lifecycle;
mod line;
mod notify;

pub(super) use controller::Controller;
pub(super) use doorbells::{BURST, Served};
pub(super) use lifecycle::Configured;

use super::faults::Faults;
use super::interface::Transport;
use super::options::{Bar2, Options};
use controller::Fixed;
use line::Line;
use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

/// All controllers of a subsystem: PCI functions first, then those of fabrics.
#[derive(Clone, Debug)]
pub(super) struct Controllers {
    all: Box<[Controller]>,
    /// Interrupts, which are said when all outputs have been.
    interrupts: VecDeque<(u8, u16)>,
    /// Controllers whose admin queue, and whose I/O queues, have entries to read, in the order of their turns.
    admin_line: VecDeque<u8>,
    io_line: VecDeque<u8>,
    /// I/O queues with entries, by controller.
    lines: Box<[Line]>,
    /// Faults that are injected into completions and block commands.
    pub faults: Faults,
}

impl Controllers {
    pub(super) fn new(options: &Options, bar2: Bar2) -> Controllers {
        let (functions, fabrics) = (usize::from(options.functions), usize::from(options.fabrics));
        let of = |transport, privileged| Controller::new(Fixed::of(options, bar2, transport), transport, privileged);
        let pcie = std::iter::repeat_n(of(Transport::Pcie, options.privileged), functions);
        let all: Box<[Controller]> = pcie.chain(std::iter::repeat_n(of(Transport::Fabrics, false), fabrics)).collect();
        Controllers {
            interrupts: VecDeque::with_capacity(all.len() * (usize::from(options.queues) + 1)),
            admin_line: VecDeque::with_capacity(all.len()),
            io_line: VecDeque::with_capacity(all.len()),
            lines: (0..all.len()).map(|_| Line::new(options.queues)).collect(),
            all,
            faults: Faults::default(),
        }
    }

    /// One that there is, whether a host is connected or not.
    #[inline]
    pub(super) fn get(&self, function: u8) -> Option<&Controller> {
        self.all.get(usize::from(function))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, function: u8) -> Option<&mut Controller> {
        self.all.get_mut(usize::from(function))
    }

    /// Whether a host may talk to a controller of this number.
    pub(super) fn has(&self, function: u8) -> bool {
        self.get(function).is_some_and(|c| c.live)
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Controller> {
        self.all.iter()
    }

    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Controller> {
        self.all.iter_mut()
    }

    /// Their numbers.
    pub(super) fn numbers(&self) -> std::ops::Range<u8> {
        0..self.all.len() as u8
    }

    /// The function of the fast side that a controller's commands are for. Fabrics controllers have none of their own:
    /// they use the first.
    pub(super) fn fast_function(&self, function: u8) -> u8 {
        match self[function].transport {
            Transport::Pcie => function,
            Transport::Fabrics => 0,
        }
    }

    /// Controller Fatal Status: it stops until it is reset.
    #[cold]
    pub(super) fn fail(&mut self, function: u8) {
        self[function].csts.fatal = true;
    }
}

impl Index<u8> for Controllers {
    type Output = Controller;

    #[inline(always)]
    fn index(&self, function: u8) -> &Controller {
        &self.all[usize::from(function)]
    }
}

impl IndexMut<u8> for Controllers {
    #[inline(always)]
    fn index_mut(&mut self, function: u8) -> &mut Controller {
        &mut self.all[usize::from(function)]
    }
}
