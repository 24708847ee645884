//! The transport of a function, tied to its log, to time and to the device's outputs.

use super::pages::{LbaRing, OFFSET_END};
use super::transport::{self, Command, CommandError, LocalLog, PageRef, Source, Transmit, Transport, flag};
use super::{Fast, Flaw, Function, Lane};
use crate::border::{LogInput, Output};
use crate::content::{Content, Place};
use crate::context::Context;
use crate::events::{Event, lane as event_lane};
use crate::flaw::Injected;
use crate::ftl::Ftl;
use tidewater_base::{Duration, Instant};
use tidewater_nand::Medium;
use tidewater_wire::nvme::Status;
use tidewater_wire::replication::{Body, Frame, Group};
use tidewater_wire::vendor::status as vendor_status;
use tidewater_wire::vendor::{
    AdminCommand, AttachPeers, ControlPage, Epoch, FlowState, Mode, PeerStatus, Peers, Promote, Role, TransportSetup,
};

/// The log of a function as its transport sees it, and the bytes of the frame at hand.
struct Log<'a> {
    lanes: &'a mut [Lane],
    pages: &'a mut LbaRing,
    cuts: &'a mut Vec<(u8, u64, u64)>,
    trimmed: &'a [u64],
    trims: &'a mut Vec<(usize, u64)>,
    /// For each lane what the backing store has, where that is what counts as flash.
    flushed: Option<&'a mut Vec<u64>>,
    /// The write sequence of the newest page.
    sequence: u64,
    flaw: Injected<Flaw>,
    ring_survives: bool,
    /// Where the frame's bytes begin, and the bytes.
    content: Option<(u64, Content<'a>)>,
}

impl LocalLog for Log<'_> {
    fn persisted(&self, lane: usize) -> u64 {
        self.lanes[lane].released()
    }

    fn destaged(&self, lane: usize) -> u64 {
        self.flushed.as_ref().map_or(self.lanes[lane].durable(), |flushed| flushed[lane])
    }

    fn ring_survives(&self) -> bool {
        self.ring_survives
    }

    fn oldest(&self, lane: usize) -> u64 {
        let on_flash = self.pages.oldest(lane as u8).map_or(self.lanes[lane].durable(), |page| page.offset);
        on_flash.min(self.in_ring_from(lane))
    }

    fn in_ring_from(&self, lane: usize) -> u64 {
        self.lanes[lane].in_ring_from()
    }

    fn page_at(&self, lane: usize, offset: u64) -> Option<PageRef> {
        let (_, page) = self.pages.find(lane as u8, offset)?;
        Some(PageRef { sequence: page.sequence, offset: page.offset, len: page.len })
    }

    fn window(&self) -> u32 {
        self.lanes.first().map_or(0, |lane| lane.queue_size() as u32)
    }

    fn accept(&mut self, lane: usize, offset: u64, len: u32) -> bool {
        let Some((first, content)) = self.content else { return false };
        let skip = self.lanes[lane].released().saturating_sub(offset);
        if skip >= len.into() {
            return true;
        }
        let from = offset + skip;
        let part = match content {
            Content::Bytes(bytes) => {
                let start = (from - first) as usize;
                let Some(part) = bytes.get(start..(offset + u64::from(len) - first) as usize) else { return false };
                Content::Bytes(part)
            }
            Content::Absent(_) => Content::Absent((u64::from(len) - skip) as u32),
        };
        self.lanes[lane].accept_from_peer(from, part)
    }

    fn truncate(&mut self, lane: usize, to: u64) {
        self.lanes[lane].truncate(to);
        if let Some(flushed) = &mut self.flushed {
            flushed[lane] = flushed[lane].min(to);
        }
        if self.pages.cut(lane as u8, to) && !self.flaw.is(Flaw::ForgetCuts) {
            // It holds for all that earlier ones further on hold for.
            self.cuts.retain(|&(other, end, _)| usize::from(other) != lane || end < to);
            self.cuts.push((lane as u8, to, self.sequence));
        }
    }

    fn trimmed(&self, lane: usize) -> u64 {
        self.trimmed[lane]
    }

    fn trim(&mut self, lane: usize, to: u64) {
        if to > self.trimmed[lane] {
            self.trims.push((lane, to));
        }
    }

    fn restart(&mut self, lane: usize, at: u64) {
        self.truncate(lane, 0);
        self.lanes[lane].restart(at.min(OFFSET_END));
    }
}

impl Function {
    /// The epoch that its log is in.
    pub fn epoch(&self) -> Epoch {
        self.transport.epoch()
    }

    /// Its transport.
    pub fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Whether it has peers.
    #[inline]
    pub fn is_replicated(&self) -> bool {
        self.replicated
    }

    /// Whether its reports to peers include what is on flash, as it gets there.
    pub(super) fn reports_destaged(&self) -> bool {
        self.replicated && self.transport_config.report_destaged && self.flushed.is_none()
    }

    /// End of a lane's bytes that are synced on the backing store, of those that a peer or the host wanted there
    /// ([`LogInput::Flushed`]).
    pub fn flushed(&self, lane: usize) -> u64 {
        self.flushed.as_ref().map_or(0, |flushed| flushed[lane])
    }

    fn with_transport<R>(
        &mut self,
        sequence: u64,
        content: Option<(u64, Content<'_>)>,
        each: impl FnOnce(&mut Transport, &mut Log<'_>) -> R,
    ) -> R {
        let (lanes, pages, cuts) = (&mut self.lanes, &mut self.log, &mut self.cuts);
        let (trimmed, trims) = (&self.trimmed[..], &mut self.trims);
        let flushed = self.flushed.as_mut();
        // The memory of a machine does not outlive a loss of its power, whatever the drive is modelled to have.
        let (flaw, ring_survives) = (self.flaw, self.ring_survives && flushed.is_none());
        let mut log = Log { lanes, pages, cuts, trimmed, trims, flushed, sequence, flaw, ring_survives, content };
        let result = each(&mut self.transport, &mut log);
        self.replicated = self.transport.status().role != Role::StandAlone;
        result
    }
}

impl Fast {
    /// Whether a client of this epoch may write.
    pub(super) fn may_write(&self, function: usize, epoch: Epoch) -> Result<(), Status> {
        let f = &self.functions[function];
        if !f.transport.writable() {
            let deposed = f.transport.status().flags & flag::DEPOSED != 0;
            return Err(if deposed { vendor_status::DEPOSED_EPOCH } else { vendor_status::NOT_PRIMARY });
        }
        if epoch != f.epoch() { Err(vendor_status::STALE_EPOCH) } else { Ok(()) }
    }

    /// Tells a function's transport what happened, and carries out what follows.
    pub(super) fn tell_transport<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        event: transport::Event,
    ) {
        let (now, sequence) = (self.peers_now(cx), ftl.write_sequence());
        self.functions[function].with_transport(sequence, None, |t, log| t.handle(now, event, log));
        self.after_transport(cx, ftl, function);
    }

    /// Something happens outside to the log of a function, or to its peers.
    pub(crate) fn on_input<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: u8,
        input: LogInput<'_>,
    ) {
        let place = usize::from(function);
        let event = match input {
            LogInput::Announce { lane, tail, content } => {
                return self.announce(cx, ftl, place, lane.into(), tail, content);
            }
            LogInput::Skip { lane, to } => return self.skip(cx, ftl, place, lane.into(), to),
            LogInput::Withhold { lane, from } => return self.withhold(cx, ftl, place, lane.into(), from),
            LogInput::Frame { frame, content } => return self.on_frame(cx, ftl, place, *frame, content),
            LogInput::Flushed { lane, to, version } => {
                return self.on_flushed(cx, ftl, place, lane.into(), to, version);
            }
            LogInput::Group(command) => return self.on_group(cx, ftl, function, command),
            LogInput::Link { peer, up, restarted } => transport::Event::Link { peer, up, restarted },
            LogInput::RoundTrip { peer, time } => transport::Event::RoundTrip { peer, time },
            LogInput::CatchUpRate { bytes_per_second } => transport::Event::CatchUpRate { bytes_per_second },
            LogInput::Flush { lane, to } => transport::Event::Flush { lane: lane.into(), to },
        };
        if place < self.functions.len() && !ftl.is_recovering() {
            self.tell_transport(cx, ftl, place, event);
        }
    }

    /// A frame has come from a peer, with the bytes that it names.
    fn on_frame<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        frame: Frame,
        content: Content<'_>,
    ) {
        if function >= self.functions.len() || ftl.is_recovering() {
            return; // The protocol repeats what matters.
        }
        let first = match frame.body {
            Body::Data { lane, offset, len, .. } => {
                if usize::from(lane) >= self.functions[function].lanes.len() || len != content.len() {
                    return;
                }
                offset
            }
            _ => 0,
        };
        let (now, sequence) = (self.peers_now(cx), ftl.write_sequence());
        self.functions[function].with_transport(sequence, Some((first, content)), |t, log| {
            t.handle(now, transport::Event::Frame(frame), log);
        });
        self.after_transport(cx, ftl, function);
    }

    /// The backing store has synced a lane's bytes below `to`, of the log as it was at a version of it.
    fn on_flushed<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        lane: usize,
        to: u64,
        version: u64,
    ) {
        let Some(f) = self.functions.get_mut(function).filter(|_| !ftl.is_recovering()) else { return };
        // Bytes that were cut meanwhile may not count for others at the same offsets.
        if version != f.transport.version() || lane >= f.lanes.len() {
            return;
        }
        let to = to.min(f.lanes[lane].released());
        if let Some(flushed) = f.flushed.as_mut().filter(|flushed| to > flushed[lane]) {
            flushed[lane] = to;
            self.tell_transport(cx, ftl, function, transport::Event::Flushed { lane });
        }
    }

    /// The time that transports go by: the drive's own, or, by a network, the wall's.
    fn peers_now(&self, cx: &Context) -> Instant {
        self.network.unwrap_or(cx.now)
    }

    /// The wall's time, for transports whose peers are reached by a network.
    pub(crate) fn on_peers_time<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, now: Instant) {
        let Some(network) = &mut self.network else { return };
        *network = now.max(*network);
        for function in 0..self.functions.len() {
            let f = &mut self.functions[function];
            if f.transport_at <= now && !ftl.is_recovering() {
                f.transport_at = Instant::NEVER;
                self.tell_transport(cx, ftl, function, transport::Event::Timer);
            }
        }
    }

    /// When a transport whose peers are reached by a network wants the wall's time; `None`: none does.
    pub fn peers_deadline(&self) -> Option<Instant> {
        self.network?;
        self.functions.iter().map(|f| f.transport_at).min().filter(|at| *at < Instant::NEVER)
    }

    /// An operator's wish for a function's group.
    fn on_group<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, function: u8, command: Command) {
        let place = usize::from(function);
        let result = match place < self.functions.len() && !ftl.is_recovering() {
            true => self.try_command(cx, ftl, place, command),
            false => Err(CommandError::StandAlone),
        };
        cx.outputs.push_back(Output::Grouped { function, result });
    }

    fn try_command<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        command: Command,
    ) -> Result<(), CommandError> {
        let (now, sequence) = (self.peers_now(cx), ftl.write_sequence());
        self.functions[function].with_transport(sequence, None, |t, log| t.command(now, command, log))?;
        self.after_transport(cx, ftl, function);
        Ok(())
    }

    /// Whatever the transport has changed takes effect: credit, what is to be drained and sent, its next deadline.
    fn after_transport<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, function: usize) {
        for lane in 0..self.functions[function].lanes.len() {
            let f = &mut self.functions[function];
            if !f.transport.writable() {
                f.lanes[lane].void_regions();
            }
            let limit = if f.flaw.is(Flaw::CreditAlone) { u64::MAX } else { f.transport.replicated(lane) };
            f.lanes[lane].set_replicated(limit);
            f.trimmed[lane] = f.trimmed[lane].min(f.lanes[lane].released());
            self.drain_intake(cx, function, lane);
        }
        // What has to wait further is put back.
        for (lane, to) in std::mem::take(&mut self.functions[function].trims) {
            self.trim_log(cx, ftl, function, lane, to);
        }
        let f = &mut self.functions[function];
        if f.waits_for_trim && f.log.has_room(false) {
            // A cut has made room.
            f.waits_for_trim = false;
            self.destage_log(cx, ftl, function, true);
            self.arm_destage(cx, ftl, function);
        }
        let sequence = ftl.write_sequence();
        while let Some(transmit) = self.functions[function].with_transport(sequence, None, |t, log| t.poll(log)) {
            let from = transmit.source.map(|source| match source {
                Source::Ring => Place::Ring,
                Source::Page { sequence, skip } => Place::Page { sequence, skip },
            });
            if let (Some(Place::Ring), Body::Data { len, .. }) = (from, &transmit.frame.body) {
                cx.memories[self.port].read(cx.now, (*len).into());
            }
            let Transmit { peer, frame, after, .. } = transmit;
            cx.outputs.push_back(Output::Frame { peer, frame: Box::new(frame), from, after });
        }
        self.end_promotion(cx, function);
        self.go_on_waiting(cx, ftl, function);
        let f = &mut self.functions[function];
        let deadline = f.transport.deadline().unwrap_or(Instant::NEVER);
        if self.network.is_some() {
            f.transport_at = deadline;
        } else if deadline < f.transport_at {
            f.transport_at = deadline.max(cx.now);
            cx.events.push(f.transport_at, event_lane::OTHER, Event::Transport { function: function as u32 });
        }
    }

    /// A deadline of the transport has come, or an earlier one that is no more.
    pub(crate) fn on_transport_timer<M: Medium>(&mut self, cx: &mut Context, ftl: &mut Ftl<M>, function: usize) {
        let f = &mut self.functions[function];
        if cx.now >= f.transport_at {
            f.transport_at = Instant::NEVER;
            self.tell_transport(cx, ftl, function, transport::Event::Timer);
        }
    }

    /// Answers a Promote whose outcome is known.
    fn end_promotion(&mut self, cx: &mut Context, function: usize) {
        let f = &mut self.functions[function];
        let Some(cid) = f.promoting else { return };
        let status = f.transport.status();
        let outcome = match () {
            () if status.flags & flag::PROMOTING != 0 => return,
            () if status.role == Role::Primary => Status::SUCCESS,
            () if status.flags & flag::STALE != 0 => vendor_status::PROMOTION_LOG_INCOMPLETE,
            // The promise is to another node's candidacy.
            () if status.promised.node() != f.transport.persistent().node => vendor_status::PROMOTION_EPOCH_LOW,
            () => vendor_status::PROMOTION_NO_QUORUM,
        };
        f.promoting = None;
        cx.reply(cid, outcome, 0, Vec::new());
    }

    pub(super) fn replication_command<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        cid: u16,
        function: usize,
        command: AdminCommand,
        data: &[u8],
    ) -> Result<(), Status> {
        match command {
            AdminCommand::TransportSetup { .. } => {
                let setup = TransportSetup::parse(data)?;
                self.set_up_transport(cx, ftl, function, &setup)?;
            }
            AdminCommand::Promote { .. } => {
                let promote = Promote::parse(data)?;
                return self.promote(cx, ftl, cid, function, &promote);
            }
            AdminCommand::AttachPeers { .. } => {
                let attach = AttachPeers::parse(data)?;
                let addresses = &mut self.functions[function].addresses;
                for peer in &attach.peer[..usize::from(attach.count)] {
                    addresses.retain(|known| known.node != peer.node);
                    addresses.push(*peer);
                }
            }
            AdminCommand::Demote { to, epoch, .. } => {
                if epoch != self.functions[function].epoch() {
                    return Err(vendor_status::STALE_EPOCH);
                }
                let command = if to == Role::StandAlone { Command::StandAlone } else { Command::Demote };
                self.command_transport(cx, ftl, function, command)?;
            }
            AdminCommand::FastSetup { .. } | AdminCommand::TrimLog { .. } => unreachable!("handled before"),
        }
        cx.reply(cid, Status::SUCCESS, 0, Vec::new());
        Ok(())
    }

    fn command_transport<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        command: Command,
    ) -> Result<(), Status> {
        let done = self.try_command(cx, ftl, function, command);
        done.map_err(|error| match error {
            CommandError::NotMember(_) => vendor_status::NODE_UNKNOWN,
            CommandError::InGroup => vendor_status::BUSY,
            CommandError::StandAlone | CommandError::NotSecondary => vendor_status::NOT_PRIMARY,
            CommandError::EpochsUsedUp | CommandError::Outdated => vendor_status::PROMOTION_EPOCH_LOW,
            CommandError::EpochFar(..) => Status::INVALID_FIELD,
            CommandError::NotLeader(_) => vendor_status::NOT_PRIMARY,
        })
    }

    fn set_up_transport<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        function: usize,
        setup: &TransportSetup,
    ) -> Result<(), Status> {
        if setup.role == Role::StandAlone {
            return self.command_transport(cx, ftl, function, Command::StandAlone);
        }
        let now = self.peers_now(cx);
        let f = &mut self.functions[function];
        if f.is_replicated() {
            return Err(vendor_status::BUSY);
        }
        let (node, primary) = (setup.node, setup.role == Role::Primary);
        check_epoch(setup.epoch, f, primary.then_some(node))?;
        let group = group_of(node, setup.peers.as_slice(), setup.mode)?;
        let stall = Duration::from_ns(setup.stall_timeout_ns.min(1 << 40));
        f.transport_config = transport::Config {
            function: function as u8,
            lanes: f.lanes.len() as u8,
            report_period: Duration::from_ns(setup.report_period_ns.min(1 << 40)),
            data_timeout: stall,
            counter_timeout: stall,
            ..f.transport_config
        };
        let version = f.transport.version();
        f.transport = Transport::resume(f.transport_config, f.transport.persistent().clone(), now);
        f.transport.count_from(version);
        let epoch = if primary { setup.epoch } else { Epoch::ZERO };
        self.command_transport(cx, ftl, function, Command::Setup { node, group, primary, epoch, force: false })
    }

    fn promote<M: Medium>(
        &mut self,
        cx: &mut Context,
        ftl: &mut Ftl<M>,
        cid: u16,
        function: usize,
        promote: &Promote,
    ) -> Result<(), Status> {
        let f = &self.functions[function];
        if f.promoting.is_some() {
            return Err(vendor_status::BUSY);
        }
        let node = f.transport.persistent().node;
        check_epoch(promote.epoch, f, Some(node))?;
        let target = match promote.new_group {
            true => Some(group_of(node, promote.group.as_slice(), promote.mode)?),
            false => None,
        };
        self.functions[function].promoting = Some(cid);
        let command = Command::Promote { target, epoch: promote.epoch, force: promote.force };
        let begun = self.command_transport(cx, ftl, function, command);
        if begun.is_err() {
            self.functions[function].promoting = None;
        }
        begun
    }

    /// What the control page says of replication.
    pub(super) fn fill_replication(&self, function: usize, page: &mut ControlPage) {
        use tidewater_wire::vendor::TransportStatus as Bit;
        let transport = &self.functions[function].transport;
        let status = transport.status();
        page.role = status.role;
        page.node = transport.persistent().node;
        page.mode = status.group.mode();
        for (bit, flag) in [
            (Bit::PEER_UNREACHED, flag::DATA_FAILED),
            (Bit::COUNTER_OVERDUE, flag::COUNTER_FAILED),
            (Bit::DEPOSED, flag::DEPOSED),
        ] {
            page.status = page.status.with(bit, status.flags & flag != 0);
        }
        for (place, peer) in transport.peers().enumerate().take(16) {
            page.peers_late |= u16::from(peer.data_failed || peer.counter_failed) << place;
        }
    }

    /// The log page on the mirror flows.
    ///
    /// # Panics
    /// When there is no such function.
    pub(crate) fn peers_page(&self, cx: &Context, function: usize) -> Peers {
        use tidewater_wire::vendor::TransportStatus as Bit;
        let f = &self.functions[function];
        let config = &f.transport_config;
        let mut page = Peers {
            function: function as u16,
            mode: f.transport.status().group.mode(),
            report_period_ns: config.report_period.as_ns(),
            stall_timeout_ns: config.data_timeout.as_ns(),
            ..Peers::default()
        };
        for (place, (peer, (_, shadow))) in f.transport.peers().zip(f.transport.shadows()).enumerate().take(15) {
            let entry = &mut page.peer[place];
            *entry = PeerStatus {
                node: peer.node,
                state: match () {
                    () if peer.stale => FlowState::Stale,
                    () if peer.data_failed || peer.counter_failed => FlowState::Stalled,
                    () if !peer.attached => FlowState::Detached,
                    () if !peer.synced => FlowState::CatchingUp,
                    () => FlowState::Streaming,
                },
                status: Bit::OK
                    .with(Bit::PEER_UNREACHED, peer.data_failed)
                    .with(Bit::COUNTER_OVERDUE, peer.counter_failed),
                update_age_ns: if peer.attached { self.peers_now(cx).since(peer.heard_at).as_ns() } else { u64::MAX },
                position: peer.sent,
                ..PeerStatus::default()
            };
            entry.shadow[..shadow.len()].copy_from_slice(shadow);
            page.count += 1;
        }
        page
    }
}

/// Whether a device may take part in an epoch that its host asks for: above all that it knows, and of `node`, who makes
/// it, if that is said here.
fn check_epoch(epoch: Epoch, f: &Function, node: Option<u8>) -> Result<(), Status> {
    match node {
        _ if epoch == Epoch::ZERO => Ok(()), // Any will do.
        Some(node) if epoch.node() != node => Err(Status::INVALID_FIELD),
        _ if epoch.counter() <= f.transport.status().promised.counter() => Err(vendor_status::PROMOTION_EPOCH_LOW),
        _ => Ok(()),
    }
}

/// The group of a node and its peers, in the order of their numbers: that is also the order of a chain behind its
/// primary.
fn group_of(node: u8, peers: &[u8], mode: Mode) -> Result<Group, Status> {
    let mut members: Vec<u8> = peers.iter().copied().chain([node]).collect();
    members.sort_unstable();
    Group::new(Epoch::ZERO, mode, &members).map_err(|_| Status::INVALID_FIELD)
}
