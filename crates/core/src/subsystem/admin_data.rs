//! Admin commands that tell, or change, what the subsystem is: log pages, features, namespaces, formats, self-tests.

use super::admin::{Next, Outcome};
use super::controller::Controller;
use super::erase::{Erase, Then};
use super::features::{self, Asked};
use super::namespaces::Extent;
use super::pointers::PAGE;
use super::sanitize::Begun;
use super::slots::{Stage, Work};
use super::state::flash_of;
use super::{Output, Slot, Subsystem, identify, logs, self_test};
use tidewater_base::Duration;
use tidewater_nand::Medium;
use tidewater_wire::nvme::feature::{self, Feature, HmbDescriptor};
use tidewater_wire::nvme::register::PMRCTL_EN;
use tidewater_wire::nvme::{
    AdminCommand, DsmRange, Event, FormatNvm, GetLogPage, NSID_ALL, NamespaceManagement, Sanitize, SanitizeAction,
    SecureErase, SelfTestAction, SetFeatures, Status, identify as wire, log_page,
};
use tidewater_wire::vendor::status as vendor_status;

/// Time units of interrupt coalescing (figure 283).
const COALESCING_UNIT_US: u64 = 100;
/// Log pages from here on are vendor specific.
const VENDOR_PAGES: u8 = 0xC0;
/// Bytes of a memory page as a power of two.
const PAGE_SHIFT: u32 = PAGE.trailing_zeros();

/// Whether there is a controller of this number.
fn exists(controllers: &[Controller], function: u8) -> bool {
    controllers.get(usize::from(function)).is_some_and(|c| c.live)
}

impl<M: Medium> Subsystem<M> {
    /// An admin command whose data, if it needs any, has come.
    pub(super) fn do_admin(&mut self, slot: Slot, command: &AdminCommand, data: &[u8]) -> Outcome {
        let function = self.slots[slot].function;
        match command {
            AdminCommand::GetLogPage(get) => self.get_log_page(slot, get),
            AdminCommand::Identify(identify) => {
                let c = &self.controllers[usize::from(function)];
                let asked = identify::Asked {
                    options: &self.options,
                    profile: &self.device.profile().name,
                    function,
                    transport: c.transport,
                    privileged: c.privileged,
                };
                let page =
                    asked.answer(identify, &self.state.namespaces, |function| exists(&self.controllers, function))?;
                Ok(Next::Send(page.to_vec()))
            }
            AdminCommand::GetFeatures(get) => {
                let answer = self.state.features.get(function, self.now, get, &self.state.namespaces)?;
                self.slots[slot].dw0 = answer.dword;
                Ok(if answer.data.is_empty() { Next::Done(answer.dword) } else { Next::Send(answer.data) })
            }
            AdminCommand::SetFeatures(set) => self.set_features(slot, set, data),
            AdminCommand::CreateNamespace { csi } => self.create_namespace(slot, *csi, data),
            AdminCommand::DeleteNamespace { nsid } => self.delete_namespace(slot, *nsid),
            AdminCommand::NamespaceAttachment { nsid, attach } => self.attach_namespace(slot, *nsid, *attach, data),
            AdminCommand::DeviceSelfTest { nsid, action } => self.test_self(slot, *nsid, *action),
            AdminCommand::FormatNvm(format) => self.format(slot, format),
            AdminCommand::Sanitize(sanitize) => self.sanitize(slot, sanitize),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    /// The command ends when the state that it has changed is safe.
    fn save_first(&mut self, slot: Slot) -> Next {
        self.slots[slot].stage = Stage::Sync;
        self.outputs.push_back(Output::SaveState);
        self.outputs.push_back(Output::Sync { slot });
        Next::Later
    }

    fn get_log_page(&mut self, slot: Slot, get: &GetLogPage) -> Outcome {
        let function = self.slots[slot].function;
        let flash = || flash_of(&self.device, self.read_only);
        let c = &self.controllers[usize::from(function)];
        // No page is of one namespace (LPA), but the changes cover all.
        if get.lid == log_page::SMART && get.nsid != 0 && get.nsid != NSID_ALL {
            return Err(Status::INVALID_FIELD);
        }
        let page = match get.lid {
            log_page::SUPPORTED_PAGES => logs::pages(self.has_pages()).to_vec(),
            log_page::ERROR => c.errors.page(),
            log_page::SMART => {
                let hot = self.state.features.is_hot(function);
                self.state.smart.log(self.now, &flash(), hot).to_bytes().to_vec()
            }
            log_page::FIRMWARE_SLOT => logs::firmware().to_bytes().to_vec(),
            log_page::CHANGED_NAMESPACES => c.changed.page().to_vec(),
            log_page::EFFECTS => {
                let window = self.device.window().is_enabled();
                logs::effects(c.transport, c.privileged, window).to_bytes().to_vec()
            }
            log_page::SELF_TEST => self.state.self_test.log(self.now).to_bytes().to_vec(),
            log_page::SANITIZE => self.state.sanitize.log().to_bytes().to_vec(),
            VENDOR_PAGES.. if self.has_page_itself(get.lid) => self.vendor_page(function, get)?,
            VENDOR_PAGES.. if logs::has_page(self.has_pages(), get.lid) => {
                // At most what one command may move: that was checked.
                self.begin_vendor(slot, get.len as u32, false)?;
                return Ok(Next::Later);
            }
            _ => return Err(Status::INVALID_LOG_PAGE),
        };
        let part = get.slice(&page)?.to_vec();
        if !get.retain {
            if get.lid == log_page::CHANGED_NAMESPACES {
                self.controllers[usize::from(function)].changed.clear();
            }
            for event in Event::ALL.iter().filter(|event| event.log_page() == get.lid) {
                self.controllers[usize::from(function)].events.clear(event.kind());
            }
            self.tell_events(function);
        }
        Ok(Next::Send(part))
    }

    /// The part of a vendor log page that was asked for; other replies are as they are.
    pub(super) fn log_page_part(&self, slot: Slot, data: Vec<u8>) -> Result<Box<[u8]>, Status> {
        if self.slots[slot].queue == 0
            && let Ok(AdminCommand::GetLogPage(get)) = self.parse_admin(slot)
        {
            return get.slice(&self.with_layout(&get, data)).map(Box::from);
        }
        Ok(data.into_boxed_slice())
    }

    fn set_features(&mut self, slot: Slot, set: &SetFeatures, data: &[u8]) -> Outcome {
        let function = self.slots[slot].function;
        if let Ok(Feature::HostMemoryBuffer(buffer)) = Feature::parse(set)
            && buffer.enable
            && !set.save
        {
            // What the drive still uses is lent until it has come back.
            if self.host_memory.is_leaving(function) {
                return Err(Status::COMMAND_SEQUENCE_ERROR);
            }
            if self.slots[slot].work != Work::HostMemory {
                self.state.features.check_host_memory(function, &buffer)?;
                self.slots[slot].work = Work::HostMemory;
                self.read_list(slot, buffer.list, buffer.entries * HmbDescriptor::SIZE as u32)?;
                return Ok(Next::Later);
            }
        }
        let c = &self.controllers[usize::from(function)];
        // Over fabrics, connections are queues, and completion queues are none of their own.
        let queues_exist =
            c.submission.iter().skip(1).any(|sq| sq.live) || c.completion.iter().skip(1).any(|cq| cq.live);
        let asked = Asked { function, now: self.now, queues_exist };
        let state = &mut self.state;
        let dw0 = state.features.set(asked, set, data, &mut state.namespaces)?;
        self.slots[slot].dw0 = dw0;
        match set.fid {
            feature::HOST_MEMORY_BUFFER if set.dwords[0] & 1 == 0 => {
                self.slots[slot].stage = Stage::Parked;
                if self.end_host_memory(function, Some(slot)) {
                    return Ok(Next::Later);
                }
            }
            feature::KEEP_ALIVE => self.set_keep_alive(function, self.state.features.keep_alive_ms(function)),
            feature::WRITE_PROTECTION => {
                self.tell_namespace_changed(set.nsid);
                return Ok(self.save_first(slot));
            }
            feature::VOLATILE_WRITE_CACHE if !self.state.features.write_cache(function) => {
                // What was acknowledged until now becomes durable, too.
                if set.save {
                    self.outputs.push_back(Output::SaveState);
                }
                let command = &mut self.slots[slot];
                command.work = Work::Flush;
                command.durable = true;
                self.submit(slot);
                return Ok(Next::Later);
            }
            // The temperature never changes: it passes a threshold when that is set, or has passed it when its event is
            // asked for.
            feature::TEMPERATURE_THRESHOLD | feature::ASYNC_EVENTS => {
                if self.state.features.is_hot(function) {
                    self.raise(function, Event::Temperature);
                }
            }
            _ => self.look_up_features(function),
        }
        Ok(if set.save { self.save_first(slot) } else { Next::Done(dw0) })
    }

    /// What features say that is looked at often.
    pub(super) fn look_up_features(&mut self, function: u8) {
        let coalescing = self.state.features.coalescing(function);
        let (burst, weights) = self.state.features.arbitration(function);
        self.lines[usize::from(function)].turns.set_weights(weights);
        let c = &mut self.controllers[usize::from(function)];
        let (entries, time) = coalescing.unwrap_or((0, 0));
        c.coalesce_count = entries;
        c.coalesce_time = Duration::from_us(COALESCING_UNIT_US * u64::from(time));
        c.burst = burst.unwrap_or(u32::MAX);
    }

    /// The descriptor list of a host memory buffer has come.
    pub(super) fn with_host_memory(&mut self, slot: Slot, list: &[u8]) {
        let outcome = self.parse_admin(slot).and_then(|parsed| {
            let AdminCommand::SetFeatures(set) = parsed else { return Err(Status::INVALID_FIELD) };
            let Feature::HostMemoryBuffer(buffer) = Feature::parse(&set)? else { return Err(Status::INVALID_FIELD) };
            let pieces = features::host_memory(&buffer, list, PAGE_SHIFT, self.options.hmb_minimum)?;
            let next = self.set_features(slot, &set, &[])?;
            let function = self.slots[slot].function;
            self.controllers[usize::from(function)].host_memory = pieces;
            self.begin_host_memory(function, buffer.returned);
            Ok(next)
        });
        self.end_admin(slot, outcome);
    }

    /// A namespace has nothing of those that had its blocks before: neither what their deletion is still to forget,
    /// behind which this stands, nor what a power cut has kept from being forgotten.
    fn create_namespace(&mut self, slot: Slot, csi: u8, data: &[u8]) -> Outcome {
        let wanted = NamespaceManagement::parse(data)?;
        if self.is_read_only() {
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        self.check_room_to_erase()?;
        let nsid = self.state.namespaces.create(csi, &wanted)?;
        let extents = vec![self.state.namespaces.at(nsid)?.extent];
        let command = &mut self.slots[slot];
        (command.dw0, command.stage) = (nsid, Stage::Parked);
        self.erase(Erase { extents, then: Then::Create, purge: false, waiting: Some(slot) });
        Ok(Next::Later)
    }

    fn delete_namespace(&mut self, slot: Slot, nsid: u32) -> Outcome {
        self.check_room_to_erase()?;
        if self.erases.iter().any(|erase| matches!(erase.then, Then::Format { .. })) {
            return Err(Status::FORMAT_IN_PROGRESS);
        }
        self.check_unpinned(nsid)?;
        let gone = self.state.namespaces.delete(nsid)?;
        let hours = self.state.smart.power_on_hours(self.now);
        for namespace in &gone {
            self.state.self_test.abort(hours, self_test::Abort::NamespaceRemoved(namespace.nsid));
            for function in namespace.attached.iter() {
                self.tell_controller_of_namespace(function, namespace.nsid);
            }
        }
        self.outputs.push_back(Output::SaveState);
        self.slots[slot].stage = Stage::Parked;
        let extents = gone.iter().map(|namespace| namespace.extent).collect();
        self.erase(Erase { extents, then: Then::Nothing, purge: false, waiting: Some(slot) });
        Ok(Next::Later)
    }

    fn attach_namespace(&mut self, slot: Slot, nsid: u32, attach: bool, list: &[u8]) -> Outcome {
        let list = wire::parse_controller_list(list).ok_or(Status::CONTROLLER_LIST_INVALID)?;
        let controllers = &self.controllers;
        let exists = |function| exists(controllers, function);
        if !attach {
            self.check_unpinned(nsid)?;
        }
        self.state.namespaces.attach(nsid, attach, &list, exists)?;
        for function in list {
            self.tell_controller_of_namespace(function as u8, nsid);
        }
        Ok(self.save_first(slot))
    }

    fn test_self(&mut self, slot: Slot, nsid: u32, action: SelfTestAction) -> Outcome {
        let function = self.slots[slot].function;
        if nsid != 0 && nsid != NSID_ALL {
            self.state.namespaces.find(nsid, function)?;
        }
        let hours = self.state.smart.power_on_hours(self.now);
        self.state.self_test.command(self.now, hours, function, nsid, action)?;
        self.await_self_test();
        Ok(Next::Done(0))
    }

    fn format(&mut self, slot: Slot, format: &FormatNvm) -> Outcome {
        let function = self.slots[slot].function;
        if self.erases.iter().any(|erase| matches!(erase.then, Then::Format { .. })) {
            return Err(Status::FORMAT_IN_PROGRESS);
        }
        if self.is_read_only() {
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        let nsids = self.state.namespaces.check_format(format, function)?;
        for &nsid in &nsids {
            self.check_unpinned(nsid)?;
        }
        let hours = self.state.smart.power_on_hours(self.now);
        let mut extents = Vec::new();
        for &nsid in &nsids {
            self.state.self_test.abort(hours, self_test::Abort::Format(nsid));
            extents.push(self.state.namespaces.at(nsid)?.extent);
        }
        self.slots[slot].stage = Stage::Parked;
        let purge = format.secure_erase != SecureErase::None;
        self.erase(Erase { extents, then: Then::Format { nsids, lbaf: format.lbaf }, purge, waiting: Some(slot) });
        Ok(Next::Later)
    }

    fn sanitize(&mut self, slot: Slot, wanted: &Sanitize) -> Outcome {
        let warns = self.state.features.sanitize_warns();
        let is_protected = self.is_read_only() || self.state.namespaces.iter().any(|ns| ns.is_protected());
        let pmr_enabled = self.controllers.iter().any(|c| c.pmrctl & PMRCTL_EN != 0);
        self.check_unpinned(NSID_ALL)?;
        // What a log holds is user data as well, and only its client can say that it has no use for it.
        if wanted.action != SanitizeAction::ExitFailureMode && self.device.fast().holds_log() {
            return Err(vendor_status::RANGE_RESERVED);
        }
        match self.state.sanitize.begin(wanted, warns, is_protected, pmr_enabled)? {
            Begun::Nothing => Ok(Next::Done(0)),
            Begun::BlockErase => {
                let hours = self.state.smart.power_on_hours(self.now);
                self.state.self_test.abort(hours, self_test::Abort::Sanitize);
                // The operation begins when the command has ended well.
                let next = self.save_first(slot);
                self.erase_all();
                Ok(next)
            }
        }
    }

    /// The sanitize operation: all blocks, of namespaces and between them.
    pub(super) fn erase_all(&mut self) {
        let all = Extent { first: 0, blocks: self.device.capacity() >> self.block_shift };
        self.erase(Erase { extents: vec![all], then: Then::Sanitize, purge: true, waiting: None });
    }

    /// Whether nothing can be written any more.
    pub(super) fn is_read_only(&self) -> bool {
        self.read_only || self.device.ftl().is_read_only()
    }

    /// The ranges of Dataset Management have come.
    pub(super) fn with_ranges(&mut self, slot: Slot, bytes: &[u8]) {
        let command = &self.slots[slot];
        let found = self.state.namespaces.find(command.sqe.nsid(), command.function);
        let ranges = found.and_then(|namespace| {
            let parse = |bytes| {
                let DsmRange { attributes, blocks, first_block } = DsmRange::from_bytes(bytes);
                let extent = namespace.locate(first_block, blocks.into())?;
                // Blocks of 4 KiB on blocks of 512 bytes may be more than 32 bits count.
                let blocks = u32::try_from(extent.blocks).map_err(|_| Status::INVALID_FIELD)?;
                Ok(DsmRange { attributes, blocks, first_block: extent.first })
            };
            bytes.as_chunks::<{ DsmRange::SIZE }>().0.iter().map(parse).collect::<Result<Box<[DsmRange]>, Status>>()
        });
        match ranges {
            Ok(ranges) => {
                self.slots[slot].ranges = ranges;
                self.submit(slot);
            }
            Err(status) => self.finish(slot, status),
        }
    }
}
