//! The rooms that admin commands, and those of the byte window, look at and change.

use super::context::Context;
use super::controllers::Controllers;
use super::erase::Erases;
use super::health::Health;
use super::host_memory::HostMemoryUse;
use super::options::{Bar2, Options};
use super::slots::Slots;
use crate::device::Device;
use tidewater_nand::Medium;

/// Rooms by name. The device is only looked at: what it has to do is given back.
pub(super) struct Rooms<'a, M: Medium> {
    pub cx: &'a mut Context,
    pub controllers: &'a mut Controllers,
    pub slots: &'a mut Slots,
    pub erases: &'a Erases,
    pub host_memory: &'a HostMemoryUse,
    pub health: &'a Health,
    pub device: &'a Device<M>,
    pub options: &'a Options,
}

impl<M: Medium> Rooms<'_, M> {
    pub(super) fn bar2(&self) -> Bar2 {
        Bar2::of(self.device, self.options)
    }
}
