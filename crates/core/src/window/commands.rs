//! What the host asks of the window: commands of this vendor (`wire::vendor`). A front end brings each with its data,
//! and carries the reply.

use super::jobs::COMMAND;
use super::state::{Job, Kind, Pending, Stage};
use super::{COMMANDS_MAX, Ending, EntryState, Progress, Window};
use crate::context::Context;
use crate::events::{Event, lane};
use crate::ftl::Ftl;
use crate::host::{Host, check_range};
use crate::profile::Gate;
use tidewater_nand::Medium;
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::vendor::status as vendor_status;
use tidewater_wire::vendor::{ANYWHERE, EntryInfo, WindowCommand, WindowStatus};

/// What executing a command has come to.
enum Executed {
    /// A job of its entry answers.
    Job,
    /// A Pin waits for block commands, and a job of its entry answers then.
    Drain,
    /// It has ended, with this for the host.
    Data(Vec<u8>),
    /// It has ended and released its entry.
    Released,
}

impl Window {
    /// A command with its data. Its reply comes as [`crate::Output::Reply`]. `tag`: the version of what a Flush writes.
    pub(crate) fn command<M: Medium>(&mut self, cx: &mut Context, ftl: &Ftl<M>, sqe: &Sqe, data: &[u8], tag: u64) {
        let cid = sqe.cid();
        match self.admit(ftl, cid, sqe, data, tag) {
            Ok(place) => cx.enter_pipeline(Event::Window { place: COMMAND | place, generation: 0 }),
            Err(status) => cx.reply(cid, status, 0, Vec::new()),
        }
    }

    fn admit<M: Medium>(&mut self, ftl: &Ftl<M>, cid: u16, sqe: &Sqe, data: &[u8], tag: u64) -> Result<u32, Status> {
        if !self.is_enabled() {
            return Err(vendor_status::WINDOW_ABSENT);
        }
        if ftl.is_recovering() || self.is_restoring() {
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
        self.keep_pending(pending).ok_or(vendor_status::BUSY)
    }

    /// A command has left the pipeline, or its completion has reached the host.
    pub(super) fn on_command(&mut self, cx: &mut Context, host: &Host, place: usize) -> Progress {
        let Some(Pending { cid, stage }) = self.commands[place].take() else { return Progress::None };
        match stage {
            Stage::Begin { command, data, tag } => match self.execute(cx, host, cid, command, data, tag) {
                Ok(Executed::Job) => {}
                Ok(Executed::Drain) => return Progress::Drains,
                Ok(Executed::Data(data)) => self.reply_later(cx, cid, Status::SUCCESS, 0, data),
                Ok(Executed::Released) => {
                    let (status, data) = (Status::SUCCESS, Vec::new());
                    return Progress::Released(Ending { cid, status, result: 0, data, travels: true });
                }
                Err(status) => self.reply_later(cx, cid, status, 0, Vec::new()),
            },
            Stage::Reply { status, result, data } => cx.reply(cid, status, result, data),
        }
        Progress::None
    }

    pub(super) fn reply_later(&mut self, cx: &mut Context, cid: u16, status: Status, result: u32, data: Vec<u8>) {
        let pending = Pending { cid, stage: Stage::Reply { status, result, data } };
        let place = self.keep_pending(pending).expect("the command had a place until now");
        let event = Event::Window { place: COMMAND | place, generation: 0 };
        cx.events.push(cx.now + cx.completion_time, lane::COMPLETE, event);
    }

    fn execute(
        &mut self,
        cx: &mut Context,
        host: &Host,
        cid: u16,
        command: WindowCommand,
        data: Box<[u8]>,
        tag: u64,
    ) -> Result<Executed, Status> {
        if let WindowCommand::Pin { entry, offset, lba, blocks } = command {
            return self.pin((host, cx.shift.page), cid, (entry, offset), lba, blocks).map(|()| Executed::Drain);
        }
        let place = self.table.find(command.entry()).ok_or(vendor_status::ENTRY_UNKNOWN)?;
        let entry = *self.table.get(place).expect("it was found");
        if let WindowCommand::EntryInfo { .. } = command {
            let shift = self.table.page_shift();
            let offset = u64::from(entry.page) << shift;
            let info = EntryInfo {
                entry: entry.name,
                flush_begun: entry.flush_begun,
                offset,
                lba: u64::from(entry.first) << cx.shift.page,
                bytes: u64::from(entry.pages) << shift,
                bar_offset: self.bar_offset + offset,
                nsid: host.namespace().id,
            };
            return Ok(Executed::Data(info.to_bytes().to_vec()));
        }
        if entry.state != EntryState::Pinned || self.jobs[place].kind != Kind::None {
            return Err(vendor_status::ENTRY_BUSY);
        }
        let job = Job { cid, tag, ..Job::default() };
        match command {
            WindowCommand::Flush { .. } => {
                if host.namespace().read_only {
                    return Err(Status::NAMESPACE_WRITE_PROTECTED);
                }
                let entry = self.table.get_mut(place).expect("it was found");
                (entry.state, entry.flush_begun) = (EntryState::Flushing, true);
                self.start_job(cx, place, Job { kind: Kind::Flush, ..job });
            }
            WindowCommand::Unpin { .. } => {
                if entry.flush_begun {
                    return Err(vendor_status::FLUSH_BEGUN);
                }
                self.table.remove(place);
                return Ok(Executed::Released);
            }
            WindowCommand::Sync { .. } => self.start_job(cx, place, Job { kind: Kind::Sync, ..job }),
            WindowCommand::ReadDma { offset, bytes, .. } | WindowCommand::Write { offset, bytes, .. } => {
                let size = u64::from(entry.pages) << self.table.page_shift();
                if offset.checked_add(bytes.into()).is_none_or(|end| end > size) {
                    return Err(vendor_status::WINDOW_RANGE);
                }
                let kind = if let WindowCommand::Write { .. } = command { Kind::Write } else { Kind::ReadDma };
                self.start_job(cx, place, Job { kind, offset, bytes, data, ..job });
            }
            WindowCommand::Pin { .. } | WindowCommand::EntryInfo { .. } => unreachable!("handled above"),
        }
        Ok(Executed::Job)
    }

    fn pin(
        &mut self,
        (host, page_shift): (&Host, u32),
        cid: u16,
        (name, offset): (u16, u64),
        lba: u64,
        blocks: u32,
    ) -> Result<(), Status> {
        let namespace = host.namespace();
        if namespace.read_only {
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        check_range(lba, blocks.into(), namespace.blocks)?;
        if lba + u64::from(blocks) > namespace.writable_blocks {
            return Err(vendor_status::RANGE_RESERVED);
        }
        let (block_mask, shift) = ((1u64 << page_shift) - 1, self.table.page_shift());
        let whole = (lba | u64::from(blocks)) & block_mask == 0;
        let page = match offset {
            ANYWHERE => None,
            _ if offset & ((1 << shift) - 1) != 0 => return Err(vendor_status::WINDOW_RANGE),
            _ => Some(u32::try_from(offset >> shift).map_err(|_| vendor_status::WINDOW_RANGE)?),
        };
        if !whole {
            return Err(vendor_status::WINDOW_RANGE);
        }
        let (first, pages) = ((lba >> page_shift) as u32, blocks >> page_shift);
        let place = self.table.insert(name, page, first, pages)?;
        self.begin_job(place, Job { kind: Kind::Drain, cid, ..Job::default() });
        Ok(())
    }

    /// Log page C3h.
    pub(crate) fn status(&self) -> WindowStatus {
        let window = self;
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
            energy_needed_nj: nanojoules(self.energy.needed),
            energy_stored_nj: nanojoules(self.energy.stored),
        }
    }

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
