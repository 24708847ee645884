//! What the host asks of the window: commands of this vendor (`wire::vendor`). A front end brings each with its data,
//! and carries the reply.

use super::jobs::{COMMAND, Job, Kind};
use super::{COMMANDS_MAX, EntryState};
use crate::device::Device;
use crate::events::{Event, lane};
use crate::profile::Gate;
use tidewater_nand::Medium;
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::vendor::status as vendor_status;
use tidewater_wire::vendor::{ANYWHERE, EntryInfo, WindowCommand, WindowStatus};

/// A command before it is executed, or before its completion.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    cid: u16,
    stage: Stage,
}

#[derive(Clone, Debug)]
enum Stage {
    /// In the command pipeline.
    Begin { command: WindowCommand, data: Box<[u8]>, tag: u64 },
    /// On its way to the host.
    Reply { status: Status, result: u32, data: Vec<u8> },
}

/// What a command that ends at once has for the host: double word 0 of its completion, and data.
type Answer = (u32, Vec<u8>);

impl<M: Medium> Device<M> {
    /// A command with its data. Its reply comes as [`crate::Output::Reply`]. `tag`: the version of what a Flush writes.
    pub(crate) fn window_command(&mut self, sqe: &Sqe, data: &[u8], tag: u64) {
        let cid = sqe.cid();
        match self.admit_window_command(cid, sqe, data, tag) {
            Ok(place) => {
                let enters = self.pipeline_free_at.max(self.now);
                self.pipeline_free_at = enters + self.profile.host.command_interval;
                let event = Event::Window { place: COMMAND | place, generation: 0 };
                self.events.push(enters + self.profile.host.command_time, lane::COMMAND, event);
            }
            Err(status) => self.reply(cid, status, 0, Vec::new()),
        }
    }

    fn admit_window_command(&mut self, cid: u16, sqe: &Sqe, data: &[u8], tag: u64) -> Result<u32, Status> {
        if !self.window.is_enabled() {
            return Err(vendor_status::WINDOW_ABSENT);
        }
        if self.is_recovering() {
            return Err(vendor_status::BUSY);
        }
        let command = WindowCommand::parse(sqe)?;
        let data = match command {
            WindowCommand::Write { bytes, .. } => {
                data.get(..bytes as usize).ok_or(Status::DATA_TRANSFER_ERROR)?.to_vec().into_boxed_slice()
            }
            _ => Box::default(),
        };
        let pending = Pending { cid, stage: Stage::Begin { command, data, tag } };
        self.window.keep_pending(pending).ok_or(vendor_status::BUSY)
    }

    /// A command has left the pipeline, or its completion has reached the host.
    pub(super) fn on_window_command(&mut self, place: usize) {
        let Some(Pending { cid, stage }) = self.window.commands[place].take() else { return };
        match stage {
            Stage::Begin { command, data, tag } => match self.execute(cid, command, data, tag) {
                Ok(None) => {} // A job of its entry answers.
                Ok(Some((result, data))) => self.reply_later(cid, Status::SUCCESS, result, data),
                Err(status) => self.reply_later(cid, status, 0, Vec::new()),
            },
            Stage::Reply { status, result, data } => self.reply(cid, status, result, data),
        }
    }

    fn reply_later(&mut self, cid: u16, status: Status, result: u32, data: Vec<u8>) {
        let pending = Pending { cid, stage: Stage::Reply { status, result, data } };
        let place = self.window.keep_pending(pending).expect("the command had a place until now");
        let event = Event::Window { place: COMMAND | place, generation: 0 };
        self.events.push(self.now + self.profile.host.completion_time, lane::COMPLETE, event);
    }

    fn execute(
        &mut self,
        cid: u16,
        command: WindowCommand,
        data: Box<[u8]>,
        tag: u64,
    ) -> Result<Option<Answer>, Status> {
        if let WindowCommand::Pin { entry, offset, lba, blocks } = command {
            return self.pin(cid, entry, offset, lba, blocks).map(|()| None);
        }
        let place = self.window.table.find(command.entry()).ok_or(vendor_status::ENTRY_UNKNOWN)?;
        let entry = *self.window.table.get(place).expect("it was found");
        if let WindowCommand::EntryInfo { .. } = command {
            let shift = self.window.table.page_shift();
            let offset = u64::from(entry.page) << shift;
            let info = EntryInfo {
                entry: entry.name,
                flush_begun: entry.flush_begun,
                offset,
                lba: u64::from(entry.first) << self.page_shift,
                bytes: u64::from(entry.pages) << shift,
                bar_offset: self.window.bar_offset + offset,
                nsid: self.host.namespace().id,
            };
            return Ok(Some((0, info.to_bytes().to_vec())));
        }
        if entry.state != EntryState::Pinned || self.window.jobs[place].kind != Kind::None {
            return Err(vendor_status::ENTRY_BUSY);
        }
        let job = Job { cid, tag, ..Job::default() };
        match command {
            WindowCommand::Flush { .. } => {
                if self.host.namespace().read_only {
                    return Err(Status::NAMESPACE_WRITE_PROTECTED);
                }
                let entry = self.window.table.get_mut(place).expect("it was found");
                (entry.state, entry.flush_begun) = (EntryState::Flushing, true);
                self.start_job(place, Job { kind: Kind::Flush, ..job });
            }
            WindowCommand::Unpin { .. } => {
                if entry.flush_begun {
                    return Err(vendor_status::FLUSH_BEGUN);
                }
                self.window.table.remove(place);
                self.release_held();
                return Ok(Some((0, Vec::new())));
            }
            WindowCommand::Sync { .. } => self.start_job(place, Job { kind: Kind::Sync, ..job }),
            WindowCommand::ReadDma { offset, bytes, .. } | WindowCommand::Write { offset, bytes, .. } => {
                let size = u64::from(entry.pages) << self.window.table.page_shift();
                if offset.checked_add(bytes.into()).is_none_or(|end| end > size) {
                    return Err(vendor_status::WINDOW_RANGE);
                }
                let kind = if let WindowCommand::Write { .. } = command { Kind::Write } else { Kind::ReadDma };
                self.start_job(place, Job { kind, offset, bytes, data, ..job });
            }
            WindowCommand::Pin { .. } | WindowCommand::EntryInfo { .. } => unreachable!("handled above"),
        }
        Ok(None)
    }

    fn pin(&mut self, cid: u16, name: u16, offset: u64, lba: u64, blocks: u32) -> Result<(), Status> {
        let namespace = self.host.namespace();
        if namespace.read_only {
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        if lba.checked_add(blocks.into()).is_none_or(|end| end > namespace.blocks) {
            return Err(Status::LBA_OUT_OF_RANGE);
        }
        if lba + u64::from(blocks) > namespace.writable_blocks {
            return Err(vendor_status::RANGE_RESERVED);
        }
        let (block_mask, shift) = ((1u64 << self.page_shift) - 1, self.window.table.page_shift());
        let whole = (lba | u64::from(blocks)) & block_mask == 0;
        let page = match offset {
            ANYWHERE => None,
            _ if offset & ((1 << shift) - 1) != 0 => return Err(vendor_status::WINDOW_RANGE),
            _ => Some(u32::try_from(offset >> shift).map_err(|_| vendor_status::WINDOW_RANGE)?),
        };
        if !whole {
            return Err(vendor_status::WINDOW_RANGE);
        }
        let (first, pages) = ((lba >> self.page_shift) as u32, blocks >> self.page_shift);
        let place = self.window.table.insert(name, page, first, pages)?;
        self.start_job(place, Job { kind: Kind::Drain, cid, ..Job::default() });
        Ok(())
    }

    /// Log page C3h.
    pub fn window_status(&self) -> WindowStatus {
        let window = &self.window;
        if !window.is_enabled() {
            return WindowStatus::default();
        }
        let nanojoules = |joules: f64| (joules * 1e9) as u64;
        WindowStatus {
            entries: window.table.places() as u16,
            pinned: window.table.used() as u16,
            holds: window.gate == Gate::Hold,
            survives: window.survives(),
            bar_offset: window.bar_offset,
            bytes: u64::from(window.table.pages()) << window.table.page_shift(),
            granularity: 1 << window.table.page_shift(),
            held: window.held.len() as u32,
            stores_dropped: window.statistics.stores_dropped,
            loads_outside: window.statistics.loads_outside,
            dumps_lost: window.statistics.dumps_lost,
            energy_needed_nj: nanojoules(super::energy_needed(&self.profile)),
            energy_stored_nj: nanojoules(self.profile.window.energy),
        }
    }
}

impl super::Window {
    /// Keeps a command. `None`: there are too many.
    fn keep_pending(&mut self, pending: Pending) -> Option<u32> {
        let place = match self.commands.iter().position(Option::is_none) {
            Some(place) => place,
            None if self.commands.len() < COMMANDS_MAX => {
                self.commands.push(None);
                self.commands.len() - 1
            }
            None => return None,
        };
        self.commands[place] = Some(pending);
        Some(place as u32)
    }
}
