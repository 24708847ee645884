//! Drives with a fast side, the links between them, and their clients: one event at a time.

use super::LogScenario;
use super::reader::{Piece, Reader};
use super::writer::{self, Action, View, Writer};
use crate::torture::Victim;
use crate::torture::host::Host;
use std::collections::BTreeMap;
use tidewater_base::{Duration, Instant, Rng};
use tidewater_core::device::{Device, Input, Options, Output};
use tidewater_core::drive::Machine;
use tidewater_core::fast::{Content, Flaw, Function};
use tidewater_core::flaw::Injected;
use tidewater_core::power::Remains;
use tidewater_nand::{FaultyNand, Nand};
use tidewater_sim::cluster::{Cluster, Said};
use tidewater_sim::host_memory::LentMemory;
use tidewater_sim::oracle::Oracle;
use tidewater_wire::nvme::{Sqe, Status};
use tidewater_wire::vendor::{
    AdminCommand, Epoch, IoCommand, Mode, NodeList, Promote, ReadLogHeader, Role, TransportSetup, TrimTo,
    status as vendor_status,
};

/// Bits of the nodes that an event has touched.
pub(super) type Touched = u32;

/// Origin of a command.
#[derive(Clone, Copy, Debug)]
enum Order {
    Append { writer: usize },
    Read { reader: usize },
    Trim,
    Operator,
}

/// One drive or several, and their clients.
pub(super) struct Bench<'a> {
    scenario: &'a LogScenario,
    pub(super) cluster: Cluster<FaultyNand<Nand>>,
    /// For each node and lane one, nodes first.
    writers: Vec<Writer>,
    readers: Vec<Reader>,
    /// Bytes read that are to be checked.
    pub(super) pieces: Vec<Piece>,
    lanes: usize,
    /// Clients do something.
    pub(super) writing: bool,
    /// Block traffic of node 0, if any.
    host: Option<Host>,
    pub(super) now: Instant,
    orders: BTreeMap<(usize, u16), Order>,
    answers: BTreeMap<(usize, u16), Status>,
    cid: u16,
    rng: Rng,
}

impl<'a> Bench<'a> {
    pub(super) fn new(scenario: &'a LogScenario, flaw: Injected<Flaw>, seed: u64) -> Bench<'a> {
        let mut rng = Rng::new(seed, b"log bench");
        let drive = &scenario.drive;
        let device = |node: usize| {
            let seed = seed + 1_000 * node as u64;
            let options = Options { seed, stamps: true, precondition: drive.precondition, ..Options::default() };
            let faults = drive.faults.clone();
            let device = Device::over(&drive.profile, options, |nand| FaultyNand::new(nand, faults));
            let mut device = device.unwrap_or_else(|e| panic!("{}: {e}", drive.name));
            device.set_fast_flaw(flaw);
            device
        };
        let cluster = Cluster::new((0..scenario.nodes).map(device).collect(), scenario.links, true, seed);
        let lanes = drive.profile.fast.lanes as usize;
        let writers =
            (0..scenario.nodes * lanes).map(|i| Writer::new(i % lanes, Instant::ZERO, rng.next_u64())).collect();
        let readers =
            (0..scenario.nodes * lanes).map(|i| Reader::new(i % lanes, Instant::ZERO, rng.next_u64())).collect();
        Bench {
            scenario,
            cluster,
            writers,
            readers,
            pieces: Vec::new(),
            lanes,
            writing: true,
            host: None,
            now: Instant::ZERO,
            orders: BTreeMap::new(),
            answers: BTreeMap::new(),
            cid: 0,
            rng,
        }
    }

    pub(super) fn lanes(&self) -> usize {
        self.lanes
    }

    /// A node's fast side. `None`: it has no power, or recovers.
    pub(super) fn function(&self, node: usize) -> Option<&Function> {
        self.cluster.device(node).filter(|device| !device.is_recovering())?.fast().function(0)
    }

    /// The oracle of the block side of a node.
    pub(super) fn oracle(&self, node: usize) -> Option<&Oracle> {
        self.host.as_ref().filter(|_| node == 0).map(Host::oracle)
    }

    /// The node that is primary in the highest epoch.
    pub(super) fn primary(&self) -> Option<usize> {
        let primary = |&node: &usize| {
            let f = self.function(node)?;
            let serves = f.transport().status().role == tidewater_core::fast::transport::Role::Primary;
            (serves && f.transport().writable()).then_some((f.epoch(), node))
        };
        (0..self.cluster.len()).filter_map(|node| primary(&node)).max().map(|(_, node)| node)
    }

    /// One event: of a device, of a link, of a writer, or of the block side's host. Returns the nodes that it touched.
    ///
    /// # Errors
    /// In words, when a device answers as it must not.
    pub(super) fn step(&mut self) -> Result<Touched, String> {
        self.employ_host();
        let machine_at = self.cluster.deadline().unwrap_or(Instant::NEVER);
        let writers = self.writers.iter().map(|w| w.next_at).enumerate().filter(|_| self.writing);
        let (writer, writer_at) = writers.min_by_key(|&(_, at)| at).unwrap_or((0, Instant::NEVER));
        let host_at = self.host.as_ref().filter(|_| self.writing).map_or(Instant::NEVER, Host::submits_at);
        let readers = self.readers.iter().map(|r| r.next_at).enumerate().filter(|_| self.writing);
        let (reader, reader_at) = readers.min_by_key(|&(_, at)| at).unwrap_or((0, Instant::NEVER));
        let first = machine_at.min(writer_at).min(host_at).min(reader_at);
        if first == Instant::NEVER {
            // All wait for each other, or for an operator.
            self.now += Duration::from_ms(1);
            return Ok(0);
        }
        self.now = first.max(self.now);
        let touched = if machine_at == first {
            let node = self.cluster.due().expect("the cluster has an event due");
            self.cluster.on_deadline(self.now);
            1 << node
        } else if reader_at == first {
            self.read(reader)
        } else if host_at == first {
            let (now, mut host) = (self.now, self.host.take().expect("the host has a due time"));
            self.cluster.with_device(0, now, |device| host.submit_at(now, device)).expect("the node has power")?;
            self.host = Some(host);
            1
        } else {
            self.write(writer)
        };
        self.take_said()?;
        Ok(touched)
    }

    /// Block traffic begins once node 0 is there to take it.
    fn employ_host(&mut self) {
        let drive = &self.scenario.drive;
        if drive.mix.total() == 0 || self.host.is_some() {
            return;
        }
        if let Some(device) = self.cluster.device(0).filter(|device| !device.is_recovering()) {
            let pages = (device.capacity() / u64::from(device.profile().ftl.unit_size)) as u32;
            let contents: Vec<_> = (0..pages).map(|lpn| device.content(lpn)).collect();
            self.host = Some(Host::new(
                drive,
                Oracle::new(drive.durability(), contents),
                self.now,
                self.rng.next_u64(),
                LentMemory::default(),
            ));
        }
    }

    fn write(&mut self, index: usize) -> Touched {
        let node = index / self.lanes;
        let Some(device) = self.cluster.device(node) else {
            self.writers[index].begin_anew();
            self.writers[index].sleep(self.now);
            return 0;
        };
        let page = device.control_page(0);
        let lane = self.writers[index].lane;
        let place = device.fast().bar_layout(0).lane[lane];
        let view = View::of(&page, lane);
        let bytes = |offset: u64, len: u32| -> Vec<u8> {
            (offset..offset + u64::from(len)).map(|o| writer::byte(lane, view.epoch, o)).collect()
        };
        match self.writers[index].act(self.now, &place, view) {
            Action::Store { address, offset, len } => {
                let bytes = bytes(offset, len);
                let store = Input::Store { function: 0, address, content: Content::Bytes(&bytes) };
                let _ = self.cluster.handle(self.now, (node, store));
                1 << node
            }
            Action::Append { offset, len } => {
                let data = bytes(offset, len);
                let command = IoCommand::Append { lane: lane as u8, epoch: Epoch(view.epoch), offset, bytes: len };
                self.order(node, Order::Append { writer: index }, |cid| command.emit(cid), &data);
                1 << node
            }
            Action::Release { floor } => {
                let (address, bytes) = (place.lane_page_offset, floor.to_le_bytes());
                let store = Input::Store { function: 0, address, content: Content::Bytes(&bytes) };
                let _ = self.cluster.handle(self.now, (node, store));
                1 << node
            }
            Action::Trim { offset } => self.trim(lane, offset),
            Action::Look => 0,
        }
    }

    fn read(&mut self, index: usize) -> Touched {
        let node = index / self.lanes;
        let able = self.function(node).is_some();
        if !able {
            self.readers[index].begin_anew(None);
        }
        let Some(command) = self.readers[index].act(self.now, able) else { return 0 };
        self.order(node, Order::Read { reader: index }, |cid| command.emit(cid), &[]);
        1 << node
    }

    /// A read has ended.
    fn end_read(&mut self, node: usize, index: usize, status: Status, data: &[u8]) -> Result<(), String> {
        if status.is_success() {
            let header = ReadLogHeader::parse(data).map_err(|e| format!("the header of a read log: {e:?}"))?;
            let piece = self.readers[index].end(node, header.offset);
            if piece.bytes.len() != header.bytes as usize {
                return Err(format!("{} bytes were read, the header says {}", piece.bytes.len(), header.bytes));
            }
            self.pieces.push(piece);
        } else if status.same_code(vendor_status::OFFSET_RELEASED) {
            // It goes on with the oldest byte that is left.
            let function = self.function(node).ok_or("it has answered")?;
            let lane = index % self.lanes;
            let oldest = function.log().oldest(lane as u8).map(|page| page.offset);
            let offset = oldest.unwrap_or(function.lanes()[lane].released());
            self.readers[index].begin_anew(Some(offset));
        } else {
            return Err(format!("Read Log ended with {status:?}"));
        }
        Ok(())
    }

    /// The hosts trim what all nodes have on flash, as long as all follow one primary.
    pub(super) fn trim(&mut self, lane: usize, offset: u64) -> Touched {
        let nodes = self.cluster.len();
        let functions: Option<Vec<_>> = (0..nodes).map(|node| self.function(node)).collect();
        let Some(functions) = functions else { return 0 };
        if functions.iter().any(|f| f.epoch() != functions[0].epoch()) {
            return 0;
        }
        let least = functions.iter().map(|f| f.lanes()[lane].durable()).min().unwrap_or(0);
        let to = TrimTo::Stream { lane: lane as u8, offset: offset.min(least) };
        for node in 0..nodes {
            self.order(node, Order::Trim, |cid| AdminCommand::TrimLog { function: 0, to }.emit(cid), &[]);
        }
        (1 << nodes) - 1
    }

    fn order(&mut self, node: usize, order: Order, sqe: impl FnOnce(u16) -> Sqe, data: &[u8]) -> u16 {
        self.cid = self.cid.wrapping_add(1);
        self.orders.insert((node, self.cid), order);
        let sqe = sqe(self.cid);
        let _ = self.cluster.handle(self.now, (node, Input::Capsule { function: 0, sqe, data }));
        self.cid
    }

    /// An operator's command. Its answer is found by [`Bench::answer`].
    fn command(&mut self, node: usize, command: AdminCommand, data: &[u8]) -> u16 {
        self.order(node, Order::Operator, |cid| command.emit(cid), data)
    }

    /// How a command has ended, if it has.
    pub(super) fn answer(&self, node: usize, cid: u16) -> Option<Status> {
        self.answers.get(&(node, cid)).copied()
    }

    /// Makes the nodes a group whose primary is `primary`.
    ///
    /// # Errors
    /// The status of a command that was refused.
    pub(super) fn set_up_group(&mut self, primary: usize, mode: Mode) -> Result<(), String> {
        let nodes = self.cluster.len();
        let others_first = (0..nodes).filter(|&node| node != primary).chain([primary]);
        for node in others_first {
            self.set_up(node, node == primary, mode)?;
        }
        self.take_said()
    }

    /// Puts a node into the group.
    ///
    /// # Errors
    /// The status, when it is refused.
    pub(super) fn set_up(&mut self, node: usize, primary: bool, mode: Mode) -> Result<(), String> {
        let setup = TransportSetup {
            role: if primary { Role::Primary } else { Role::Secondary },
            node: node as u8,
            mode,
            peers: self.others(node),
            report_period_ns: 400,
            stall_timeout_ns: 1_000_000,
            ..TransportSetup::default()
        };
        let cid = self.command(node, AdminCommand::TransportSetup { function: 0 }, &setup.to_bytes());
        self.take_said()?;
        match self.answer(node, cid) {
            Some(status) if status.is_success() => Ok(()),
            status => Err(format!("Transport Setup of node {node} ended with {status:?}")),
        }
    }

    fn others(&self, node: usize) -> NodeList {
        let others: Vec<u8> = (0..self.cluster.len()).filter(|&other| other != node).map(|other| other as u8).collect();
        NodeList::new(&others).expect("node numbers differ")
    }

    /// Asks a node to become primary, in a new group if one is given. Returns the command's identifier.
    pub(super) fn promote(&mut self, node: usize, force: bool, group: Option<(&[u8], Mode)>) -> u16 {
        let promised = self.function(node).map_or(0, |f| f.transport().status().promised.counter());
        let promote = Promote {
            force,
            epoch: Epoch::new(promised + 1, node as u8),
            new_group: group.is_some(),
            mode: group.map_or(Mode::Eager, |(_, mode)| mode),
            group: group.map_or(NodeList::EMPTY, |(others, _)| NodeList::new(others).expect("node numbers differ")),
        };
        self.command(node, AdminCommand::Promote { function: 0 }, &promote.to_bytes())
    }

    /// A node loses its power.
    pub(super) fn cut_power(&mut self, node: usize) -> Option<Remains<FaultyNand<Nand>>> {
        if node == 0 {
            self.host = None;
        }
        let writers = node * self.lanes..(node + 1) * self.lanes;
        self.writers[writers.clone()].iter_mut().for_each(Writer::begin_anew);
        self.readers[writers].iter_mut().for_each(|reader| reader.begin_anew(None));
        self.orders.retain(|&(of, _), _| of != node);
        self.cluster.cut_power(node)
    }

    /// A node has its power back, and recovers.
    ///
    /// # Errors
    /// When its remains do not fit.
    pub(super) fn power_on(&mut self, node: usize, remains: Remains<FaultyNand<Nand>>) -> Result<(), String> {
        let device: Victim = Device::power_on(&self.scenario.drive.profile, remains).map_err(|e| e.to_string())?;
        self.cluster.power_on(node, device);
        Ok(())
    }

    /// Takes what the drives have said.
    ///
    /// # Errors
    /// When it is not what they may say.
    pub(super) fn take_said(&mut self) -> Result<(), String> {
        while let Some((node, said)) = self.cluster.poll() {
            match said {
                Said::Output(Output::Reply { cid, status, data, .. }) => {
                    match self.orders.remove(&(node, cid)).ok_or("a reply to a command that was not given")? {
                        // A writer that could not append looks at the control page again.
                        Order::Append { writer } if !status.is_success() => self.writers[writer].begin_anew(),
                        Order::Append { .. } => {}
                        Order::Read { reader } => self.end_read(node, reader, status, &data)?,
                        Order::Trim if status.is_success() => {}
                        Order::Trim => return Err(format!("Trim Log ended with {status:?}")),
                        Order::Operator => drop(self.answers.insert((node, cid), status)),
                    }
                }
                Said::Output(output) => {
                    let device = self.cluster.device(node).ok_or("a drive without power says something")?;
                    let host = self.host.as_mut().ok_or("an output, but there is no block traffic")?;
                    host.take(device, output)?;
                }
                Said::Log { cid, bytes } => match self.orders.get(&(node, cid)) {
                    Some(&Order::Read { reader }) => self.readers[reader].take(&bytes),
                    _ => return Err("log bytes that no reader asked for".into()),
                },
            }
        }
        Ok(())
    }
}
