//! The byte window behind controllers: its commands in terms of namespaces, its log page, and what may not be done to
//! blocks that are pinned.
//!
//! An entry is of one namespace, and every controller that it is attached to may use it. The first function sees all
//! entries through its BAR2.

use super::interface::Slot;
use super::logs::Has;
use super::namespaces::{Extent, Namespace};
use super::options::Bar2;
use super::rooms::Rooms;
use super::slots::{Stage, Work};
use crate::host::without_pointer;
use tidewater_nand::Medium;
use tidewater_wire::nvme::{GetLogPage, NSID_ALL, Status};
use tidewater_wire::vendor::{BarLayout, EntryInfo, WindowCommand, log_page, opcode, status as vendor_status};

impl<M: Medium> Rooms<'_, M> {
    /// Whether a command is one of the window's.
    pub(super) fn is_of_window(&self, slot: Slot) -> bool {
        let command = &self.slots[slot];
        command.queue > 0 && WindowCommand::has(command.sqe.opcode()) && self.device.window().is_enabled()
    }

    /// A command in terms of the device.
    pub(super) fn for_device(&mut self, slot: Slot) -> Result<WindowCommand, Status> {
        let command = WindowCommand::parse(&without_pointer(&self.slots[slot].sqe))?;
        let (function, nsid) = (self.slots[slot].function, self.slots[slot].sqe.nsid());
        self.cx.state.sanitize.permits_io()?;
        if let WindowCommand::Pin { entry, offset, lba, blocks } = command {
            let namespace = self.cx.state.namespaces.find(nsid, function)?;
            let place = namespace.locate(lba, blocks.into())?;
            if namespace.is_protected() || self.health.store_failed {
                return Err(Status::NAMESPACE_WRITE_PROTECTED);
            }
            if self.erases.is_forgetting(&place) {
                return Err(vendor_status::BUSY);
            }
            let blocks = u32::try_from(place.blocks).map_err(|_| vendor_status::WINDOW_RANGE)?;
            let command = &mut self.slots[slot];
            (command.first_block, command.blocks) = (place.first, blocks);
            return Ok(WindowCommand::Pin { entry, offset, lba: place.first, blocks });
        }
        // Who can't see the blocks can't see the entry.
        let namespace = self.namespace_of_entry(command.entry()).filter(|namespace| namespace.attached.has(function));
        let namespace = namespace.ok_or(vendor_status::ENTRY_UNKNOWN)?;
        if let WindowCommand::Flush { .. } = command
            && (namespace.is_protected() || self.health.store_failed)
        {
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        Ok(command)
    }

    /// The namespace that has the blocks of an entry.
    fn namespace_of_entry(&self, name: u16) -> Option<&Namespace> {
        let table = self.device.window().table();
        let entry = table.get(table.find(name)?)?;
        let block = u64::from(entry.first) << (self.slots.unit_shift - self.slots.block_shift);
        self.cx.state.namespaces.iter().find(|namespace| {
            let Extent { first, blocks } = namespace.extent;
            (first..first + blocks).contains(&block)
        })
    }

    /// What the device has for the host of a command of the window, in terms of its namespace.
    pub(super) fn of_window(&self, slot: Slot, data: Vec<u8>) -> Vec<u8> {
        if self.slots[slot].sqe.opcode() != opcode::BA_ENTRY_INFO {
            return data;
        }
        let Ok(info) = EntryInfo::parse(&data) else { return data };
        let Some(namespace) = self.namespace_of_entry(info.entry) else { return data };
        let lba = (info.lba - namespace.extent.first) >> (u32::from(namespace.block_shift) - self.slots.block_shift);
        EntryInfo { lba, nsid: namespace.nsid, ..info }.to_bytes().to_vec()
    }

    /// Blocks that are pinned, or are about to be, can't be forgotten nor taken from their controllers.
    ///
    /// # Errors
    /// LBA Pinned.
    pub(super) fn check_unpinned(&self, nsid: u32) -> Result<(), Status> {
        let all = Extent { first: 0, blocks: u64::MAX };
        let extent = match nsid {
            NSID_ALL => all,
            // An unknown namespace is reported by the caller.
            nsid => match self.cx.state.namespaces.at(nsid) {
                Ok(namespace) => namespace.extent,
                Err(_) => return Ok(()),
            },
        };
        let shift = self.slots.unit_shift - self.slots.block_shift;
        let pinned = |first: u64, blocks: u64| extent.overlaps(&Extent { first, blocks });
        let table = self.device.window().table();
        let mut entries = table.entries();
        let is_pinned =
            entries.any(|(_, entry)| pinned(u64::from(entry.first) << shift, u64::from(entry.pages) << shift));
        let mut commands = self.slots.iter().map(|(_, command)| command);
        let is_about_to_be = commands.any(|command| {
            command.work == Work::Vendor
                && command.stage == Stage::Vendor
                && command.queue > 0
                && command.sqe.opcode() == opcode::BA_PIN
                && pinned(command.first_block, command.blocks.into())
        });
        if is_pinned || is_about_to_be { Err(vendor_status::LBA_PINNED) } else { Ok(()) }
    }

    // --- log pages ---

    pub(super) fn has_pages(&self) -> Has {
        Has {
            fast: self.device.fast().is_enabled(),
            window: self.device.window().is_enabled(),
            bar2: self.bar2().size > 0,
        }
    }

    /// Whether a vendor specific log page is answered here, and not by the fast side.
    pub(super) fn has_page_itself(&self, id: u8) -> bool {
        let has = self.has_pages();
        match id {
            log_page::WINDOW => has.window,
            log_page::LAYOUT => has.bar2 && !has.fast,
            _ => false,
        }
    }

    /// Such a page.
    pub(super) fn vendor_page(&self, function: u8, get: &GetLogPage) -> Result<Vec<u8>, Status> {
        if get.lid == log_page::WINDOW {
            return Ok(self.device.window_status().to_bytes().to_vec());
        }
        if get.identifier != u16::from(self.controllers.fast_function(function)) {
            return Err(Status::INVALID_FIELD);
        }
        let page = BarLayout { function: get.identifier, ..BarLayout::default() };
        Ok(self.with_layout(get, page.to_bytes().to_vec()))
    }

    /// A log page, to which the layout of BAR2 adds what the fast side does not know.
    pub(super) fn with_layout(&self, get: &GetLogPage, page: Vec<u8>) -> Vec<u8> {
        let Some(layout) = (get.lid == log_page::LAYOUT).then(|| BarLayout::parse(&page).ok()).flatten() else {
            return page;
        };
        let Bar2 { window_offset, window_len, cmb_offset, cmb_len, size } = self.bar2();
        let mut layout = BarLayout { bar_bytes: size, ..layout };
        if cmb_len > 0 {
            (layout.queues_offset, layout.queues_bytes) = (cmb_offset, cmb_len);
        }
        if window_len > 0 && layout.function == 0 {
            (layout.window_offset, layout.window_bytes) = (window_offset, window_len);
        }
        layout.to_bytes().to_vec()
    }
}
