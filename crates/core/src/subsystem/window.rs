//! The byte window behind controllers: its commands in terms of namespaces, its log page, and what may not be done to
//! blocks that are pinned.
//!
//! An entry is of one namespace, and every controller that it is attached to may use it. The first function sees all
//! entries through its BAR2.

use super::logs::Has;
use super::namespaces::{Extent, Namespace};
use super::slots::{Stage, Work};
use super::{Bar2, Output, Slot, Subsystem};
use crate::content::Whereabouts;
use crate::device;
use crate::host::without_pointer;
use tidewater_nand::Medium;
use tidewater_wire::nvme::{GetLogPage, NSID_ALL, Sqe, Status};
use tidewater_wire::vendor::{
    BarLayout, Direction, EntryInfo, WindowCommand, log_page, opcode, status as vendor_status,
};

impl<M: Medium> Subsystem<M> {
    /// Whether a command is one of the window's.
    pub(super) fn is_of_window(&self, slot: Slot) -> bool {
        let command = &self.slots[slot];
        command.queue > 0 && WindowCommand::has(command.sqe.opcode()) && self.device.window().is_enabled()
    }

    /// A command of the window.
    pub(super) fn begin_window(&mut self, slot: Slot, sqe: &Sqe) {
        let begun = WindowCommand::parse(sqe).and_then(|command| {
            let bytes = u32::try_from(command.data_bytes()).map_err(|_| Status::INVALID_FIELD)?;
            let from_host = Direction::of(sqe.opcode()) == Some(Direction::ToDevice);
            self.begin_vendor(slot, bytes, from_host)
        });
        if let Err(status) = begun {
            self.finish(slot, status);
        }
    }

    /// A command of the window with its data goes to the device.
    pub(super) fn hand_to_window(&mut self, slot: Slot, data: &[u8]) {
        match self.for_device(slot) {
            Ok(command) => {
                let tag = match command {
                    WindowCommand::Flush { .. } => {
                        self.next_version += 1;
                        self.next_version - 1
                    }
                    _ => 0,
                };
                let survives = self.device.window().survives();
                let command_slot = &mut self.slots[slot];
                command_slot.stage = Stage::Vendor;
                command_slot.durable = match command {
                    // Memory that nothing keeps has nothing to make safe.
                    WindowCommand::Pin { .. } | WindowCommand::Unpin { .. } | WindowCommand::Sync { .. } => survives,
                    WindowCommand::Flush { .. } => true,
                    _ => false,
                };
                // An entry is let go of in the image when its pages are safe there.
                command_slot.sync_again = survives && matches!(command, WindowCommand::Flush { .. });
                let sqe = command.emit(slot.0);
                let taken = self.device.handle(self.now, device::Input::Window { sqe, data, tag });
                debug_assert!(taken.is_ok(), "only Submit is refused");
                self.take_from_device();
            }
            Err(status) => self.finish(slot, status),
        }
    }

    /// A command in terms of the device.
    fn for_device(&mut self, slot: Slot) -> Result<WindowCommand, Status> {
        let command = WindowCommand::parse(&without_pointer(&self.slots[slot].sqe))?;
        let (function, nsid) = (self.slots[slot].function, self.slots[slot].sqe.nsid());
        self.state.sanitize.permits_io()?;
        if let WindowCommand::Pin { entry, offset, lba, blocks } = command {
            let namespace = self.state.namespaces.find(nsid, function)?;
            let place = namespace.locate(lba, blocks.into())?;
            if namespace.is_protected() || self.read_only {
                return Err(Status::NAMESPACE_WRITE_PROTECTED);
            }
            if self.is_forgetting(place) {
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
            && (namespace.is_protected() || self.read_only)
        {
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        Ok(command)
    }

    /// The namespace that has the blocks of an entry.
    fn namespace_of_entry(&self, name: u16) -> Option<&Namespace> {
        let table = self.device.window().table();
        let entry = table.get(table.find(name)?)?;
        let block = u64::from(entry.first) << (self.unit_shift - self.block_shift);
        self.state.namespaces.iter().find(|namespace| {
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
        let lba = (info.lba - namespace.extent.first) >> (u32::from(namespace.block_shift) - self.block_shift);
        EntryInfo { lba, nsid: namespace.nsid, ..info }.to_bytes().to_vec()
    }

    /// Whether blocks are about to be forgotten.
    fn is_forgetting(&self, place: Extent) -> bool {
        self.erases.iter().flat_map(|erase| &erase.extents).any(|extent| overlaps(extent, &place))
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
            nsid => match self.state.namespaces.at(nsid) {
                Ok(namespace) => namespace.extent,
                Err(_) => return Ok(()),
            },
        };
        let shift = self.unit_shift - self.block_shift;
        let pinned = |first: u64, blocks: u64| overlaps(&extent, &Extent { first, blocks });
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

    /// Requests of the window to the payload store, out of turn: while the drive recovers, its other outputs are not
    /// taken there is to say.
    pub fn take_window_load(&mut self) -> Option<(u32, Whereabouts)> {
        let place = self.outputs.iter().position(|output| matches!(output, Output::LoadWindow { .. }))?;
        match self.outputs.remove(place) {
            Some(Output::LoadWindow { lpn, place }) => Some((lpn, place)),
            _ => None,
        }
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
        if get.identifier != u16::from(self.fast_function(function)) {
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

fn overlaps(one: &Extent, other: &Extent) -> bool {
    one.first < other.first.saturating_add(other.blocks) && other.first < one.first.saturating_add(one.blocks)
}
