//! Admin commands that tell, or change, what the subsystem is: log pages, features, namespaces, formats, self-tests.

use super::admin::{Next, Outcome};
use super::erase::{Erase, Then};
use super::features::{self, Asked};
use super::interface::{Output, Slot};
use super::namespaces::Extent;
use super::rooms::Rooms;
use super::sanitize::Begun;
use super::slots::{PAGE, Stage, Work};
use super::state::flash_of;
use super::{identify, logs, self_test};
use crate::device::Device;
use tidewater_nand::Medium;
use tidewater_wire::nvme::feature::{self, Feature, HmbDescriptor};
use tidewater_wire::nvme::register::PMRCTL_EN;
use tidewater_wire::nvme::{
    AdminCommand, Event, FormatNvm, GetLogPage, NSID_ALL, NamespaceManagement, Sanitize, SanitizeAction, SecureErase,
    SelfTestAction, SetFeatures, Status, identify as wire, log_page,
};
use tidewater_wire::vendor::status as vendor_status;

/// Log pages from here on are vendor specific.
const VENDOR_PAGES: u8 = 0xC0;
/// Bytes of a memory page as a power of two.
const PAGE_SHIFT: u32 = PAGE.trailing_zeros();

/// The sanitize operation: all blocks, of namespaces and between them.
pub(super) fn erase_all<M: Medium>(device: &Device<M>) -> Erase {
    let blocks = device.capacity() >> device.profile().host.block_size.trailing_zeros();
    Erase { extents: vec![Extent { first: 0, blocks }], then: Then::Sanitize, purge: true, waiting: None }
}

impl<M: Medium> Rooms<'_, M> {
    /// An admin command whose data, if it needs any, has come.
    pub(super) fn do_admin(&mut self, slot: Slot, command: &AdminCommand, data: &[u8]) -> Outcome {
        let function = self.slots[slot].function;
        match command {
            AdminCommand::GetLogPage(get) => self.get_log_page(slot, get),
            AdminCommand::Identify(identify) => {
                let c = &self.controllers[function];
                let asked = identify::Asked {
                    options: self.options,
                    profile: &self.device.profile().name,
                    function,
                    transport: c.transport,
                    privileged: c.privileged,
                };
                let page =
                    asked.answer(identify, &self.cx.state.namespaces, |function| self.controllers.has(function))?;
                Ok(Next::Send(page.to_vec()))
            }
            AdminCommand::GetFeatures(get) => {
                let answer = self.cx.state.features.get(function, self.cx.now, get, &self.cx.state.namespaces)?;
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

    fn get_log_page(&mut self, slot: Slot, get: &GetLogPage) -> Outcome {
        let function = self.slots[slot].function;
        let flash = || flash_of(self.device, self.health.store_failed);
        let c = &self.controllers[function];
        // No page is of one namespace (LPA), but the changes cover all.
        if get.lid == log_page::SMART && get.nsid != 0 && get.nsid != NSID_ALL {
            return Err(Status::INVALID_FIELD);
        }
        let page = match get.lid {
            log_page::SUPPORTED_PAGES => logs::pages(self.has_pages()).to_vec(),
            log_page::ERROR => c.errors.page(),
            log_page::SMART => {
                let hot = self.cx.state.features.is_hot(function);
                self.cx.state.smart.log(self.cx.now, &flash(), hot).to_bytes().to_vec()
            }
            log_page::FIRMWARE_SLOT => logs::firmware().to_bytes().to_vec(),
            log_page::CHANGED_NAMESPACES => c.changed.page().to_vec(),
            log_page::EFFECTS => {
                let window = self.device.window().is_enabled();
                logs::effects(c.transport, c.privileged, window).to_bytes().to_vec()
            }
            log_page::SELF_TEST => self.cx.state.self_test.log(self.cx.now).to_bytes().to_vec(),
            log_page::SANITIZE => self.cx.state.sanitize.log().to_bytes().to_vec(),
            VENDOR_PAGES.. if self.has_page_itself(get.lid) => self.vendor_page(function, get)?,
            VENDOR_PAGES.. if logs::has_page(self.has_pages(), get.lid) => {
                // At most what one command may move: that was checked.
                return Ok(Next::Vendor { bytes: get.len as u32, from_host: false });
            }
            _ => return Err(Status::INVALID_LOG_PAGE),
        };
        let part = get.slice(&page)?.to_vec();
        if !get.retain {
            if get.lid == log_page::CHANGED_NAMESPACES {
                self.controllers[function].changed.clear();
            }
            for event in Event::ALL.iter().filter(|event| event.log_page() == get.lid) {
                self.controllers[function].events.clear(event.kind());
            }
            self.controllers.tell_events(self.cx, function);
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
                self.cx.state.features.check_host_memory(function, &buffer)?;
                self.slots[slot].work = Work::HostMemory;
                return Ok(Next::List { address: buffer.list, len: buffer.entries * HmbDescriptor::SIZE as u32 });
            }
        }
        let c = &self.controllers[function];
        // Over fabrics, connections are queues, and completion queues are none of their own.
        let queues_exist =
            c.submission.iter().skip(1).any(|sq| sq.live) || c.completion.iter().skip(1).any(|cq| cq.live);
        let asked = Asked { function, now: self.cx.now, queues_exist };
        let state = &mut self.cx.state;
        let dw0 = state.features.set(asked, set, data, &mut state.namespaces)?;
        self.slots[slot].dw0 = dw0;
        match set.fid {
            feature::HOST_MEMORY_BUFFER if set.dwords[0] & 1 == 0 => {
                self.slots[slot].stage = Stage::Parked;
                return Ok(Next::TakeBack);
            }
            feature::KEEP_ALIVE => {
                let timeout_ms = self.cx.state.features.keep_alive_ms(function);
                self.controllers.set_keep_alive(self.cx, function, timeout_ms);
            }
            feature::WRITE_PROTECTION => {
                self.controllers.tell_namespace_changed(self.cx, set.nsid);
                return Ok(self.save_first(slot));
            }
            feature::VOLATILE_WRITE_CACHE if !self.cx.state.features.write_cache(function) => {
                // What was acknowledged until now becomes durable, too.
                if set.save {
                    self.cx.say(Output::SaveState);
                }
                let command = &mut self.slots[slot];
                command.work = Work::Flush;
                command.durable = true;
                return Ok(Next::Submit);
            }
            // The temperature never changes: it passes a threshold when that is set, or has passed it when its event is
            // asked for.
            feature::TEMPERATURE_THRESHOLD | feature::ASYNC_EVENTS => {
                if self.cx.state.features.is_hot(function) {
                    self.controllers.raise(self.cx, function, Event::Temperature);
                }
            }
            _ => self.controllers.look_up_features(self.cx, function),
        }
        Ok(if set.save { self.save_first(slot) } else { Next::Done(dw0) })
    }

    /// The descriptor list of a host memory buffer has come.
    pub(super) fn with_host_memory(&mut self, slot: Slot, list: &[u8]) -> Outcome {
        let AdminCommand::SetFeatures(set) = self.parse_admin(slot)? else { return Err(Status::INVALID_FIELD) };
        let Feature::HostMemoryBuffer(buffer) = Feature::parse(&set)? else { return Err(Status::INVALID_FIELD) };
        let pieces = features::host_memory(&buffer, list, PAGE_SHIFT, self.options.hmb_minimum)?;
        let next = self.set_features(slot, &set, &[])?;
        let function = self.slots[slot].function;
        self.controllers[function].host_memory = pieces;
        let Next::Done(dw0) = next else { return Ok(next) };
        Ok(Next::Lend { dw0, returned: buffer.returned })
    }

    /// A namespace has nothing of those that had its blocks before: neither what their deletion is still to forget,
    /// behind which this stands, nor what a power cut has kept from being forgotten.
    fn create_namespace(&mut self, slot: Slot, csi: u8, data: &[u8]) -> Outcome {
        let wanted = NamespaceManagement::parse(data)?;
        if self.health.is_read_only(self.device) {
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        self.erases.check_room()?;
        let nsid = self.cx.state.namespaces.create(csi, &wanted)?;
        let extents = vec![self.cx.state.namespaces.at(nsid)?.extent];
        let command = &mut self.slots[slot];
        (command.dw0, command.stage) = (nsid, Stage::Parked);
        Ok(Next::Erase(Erase { extents, then: Then::Create, purge: false, waiting: Some(slot) }))
    }

    fn delete_namespace(&mut self, slot: Slot, nsid: u32) -> Outcome {
        self.erases.check_room()?;
        if self.erases.has_format() {
            return Err(Status::FORMAT_IN_PROGRESS);
        }
        self.check_unpinned(nsid)?;
        let gone = self.cx.state.namespaces.delete(nsid)?;
        let hours = self.cx.hours();
        for namespace in &gone {
            self.cx.state.self_test.abort(hours, self_test::Abort::NamespaceRemoved(namespace.nsid));
            for function in namespace.attached.iter() {
                self.controllers.tell_controller_of_namespace(self.cx, function, namespace.nsid);
            }
        }
        self.cx.say(Output::SaveState);
        self.slots[slot].stage = Stage::Parked;
        let extents = gone.iter().map(|namespace| namespace.extent).collect();
        Ok(Next::Erase(Erase { extents, then: Then::Nothing, purge: false, waiting: Some(slot) }))
    }

    fn attach_namespace(&mut self, slot: Slot, nsid: u32, attach: bool, list: &[u8]) -> Outcome {
        let list = wire::parse_controller_list(list).ok_or(Status::CONTROLLER_LIST_INVALID)?;
        let controllers = &*self.controllers;
        if !attach {
            self.check_unpinned(nsid)?;
        }
        self.cx.state.namespaces.attach(nsid, attach, &list, |function| controllers.has(function))?;
        for function in list {
            self.controllers.tell_controller_of_namespace(self.cx, function as u8, nsid);
        }
        Ok(self.save_first(slot))
    }

    /// The command ends when the state that it has changed is safe.
    fn save_first(&mut self, slot: Slot) -> Next {
        self.slots[slot].stage = Stage::Sync;
        self.cx.say(Output::SaveState);
        self.cx.say(Output::Sync { slot });
        Next::Later
    }

    fn test_self(&mut self, slot: Slot, nsid: u32, action: SelfTestAction) -> Outcome {
        let function = self.slots[slot].function;
        if nsid != 0 && nsid != NSID_ALL {
            self.cx.state.namespaces.find(nsid, function)?;
        }
        let hours = self.cx.hours();
        self.cx.state.self_test.command(self.cx.now, hours, function, nsid, action)?;
        self.cx.await_self_test();
        Ok(Next::Done(0))
    }

    fn format(&mut self, slot: Slot, format: &FormatNvm) -> Outcome {
        let function = self.slots[slot].function;
        if self.erases.has_format() {
            return Err(Status::FORMAT_IN_PROGRESS);
        }
        if self.health.is_read_only(self.device) {
            return Err(Status::NAMESPACE_WRITE_PROTECTED);
        }
        let nsids = self.cx.state.namespaces.check_format(format, function)?;
        for &nsid in &nsids {
            self.check_unpinned(nsid)?;
        }
        let hours = self.cx.hours();
        let mut extents = Vec::new();
        for &nsid in &nsids {
            self.cx.state.self_test.abort(hours, self_test::Abort::Format(nsid));
            extents.push(self.cx.state.namespaces.at(nsid)?.extent);
        }
        self.slots[slot].stage = Stage::Parked;
        let purge = format.secure_erase != SecureErase::None;
        Ok(Next::Erase(Erase { extents, then: Then::Format { nsids, lbaf: format.lbaf }, purge, waiting: Some(slot) }))
    }

    fn sanitize(&mut self, slot: Slot, wanted: &Sanitize) -> Outcome {
        let warns = self.cx.state.features.sanitize_warns();
        let is_protected =
            self.health.is_read_only(self.device) || self.cx.state.namespaces.iter().any(|ns| ns.is_protected());
        let pmr_enabled = self.controllers.iter().any(|c| c.pmrctl & PMRCTL_EN != 0);
        self.check_unpinned(NSID_ALL)?;
        // What a log holds is user data as well, and only its client can say that it has no use for it.
        if wanted.action != SanitizeAction::ExitFailureMode && self.device.fast().holds_log() {
            return Err(vendor_status::RANGE_RESERVED);
        }
        match self.cx.state.sanitize.begin(wanted, warns, is_protected, pmr_enabled)? {
            Begun::Nothing => Ok(Next::Done(0)),
            Begun::BlockErase => {
                let hours = self.cx.hours();
                self.cx.state.self_test.abort(hours, self_test::Abort::Sanitize);
                // The operation begins when the command has ended well.
                _ = self.save_first(slot);
                Ok(Next::Erase(erase_all(self.device)))
            }
        }
    }
}
