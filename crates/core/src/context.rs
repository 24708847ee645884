//! What all rooms of the controller share: the time and what is due, the ports of its memories and its link, the
//! command pipeline, and what it has to say.

use crate::border::Output;
use crate::cost::{Link, MemoryPort};
use crate::events::{Event, EventQueue, lane};
use crate::ftl::Precondition;
use crate::profile::{HostProfile, LinkProfile};
use std::collections::VecDeque;
use tidewater_base::{Duration, Instant};
use tidewater_wire::nvme::Status;

/// How a device is run, besides its profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Seeds everything random: bad blocks, bit errors.
    pub seed: u64,
    /// Usable bytes; 0: what the profile says.
    pub capacity: u64,
    /// Versions and sequences in every page: needed to cut the power and to check what reads return.
    pub stamps: bool,
    /// Payload is kept outside: [`Output::Taken`] says of every page that is written. Needs stamps, and commands whose
    /// tags are versions that never come again.
    pub payload: bool,
    /// The write buffer is taken as volatile, whatever the profile says of its memory: its payload is kept outside, in
    /// ordinary memory. A flush then empties it to flash, and FUA goes through it.
    pub volatile_buffer: bool,
    /// Pages that are read before they were written were written before the run: they cost a flash read.
    pub premap: bool,
    /// What the drive has been through.
    pub precondition: Precondition,
    /// Peers of the fast side are reached through a network: times are
    /// [those of one](crate::fast::transport::Config::network).
    pub network_peers: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seed: 1,
            capacity: 0,
            stamps: false,
            payload: false,
            volatile_buffer: false,
            premap: false,
            precondition: Precondition::Fresh,
            network_peers: false,
        }
    }
}

/// Sizes as powers of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shifts {
    /// Bytes of a logical page.
    pub(crate) unit: u32,
    /// Bytes of a logical block.
    pub(crate) block: u32,
    /// Logical blocks of a logical page.
    pub(crate) page: u32,
}

/// What all rooms share.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) now: Instant,
    pub(crate) events: EventQueue,
    pub(crate) link_in: Link,
    pub(crate) link_out: Link,
    /// Each memory once, whatever uses it.
    pub(crate) memories: Vec<MemoryPort>,
    pub(crate) shift: Shifts,
    pub(crate) options: Options,
    /// From a command's end to its entry in the completion queue.
    pub(crate) completion_time: Duration,
    command_time: Duration,
    command_interval: Duration,
    pipeline_free_at: Instant,
    pub(crate) outputs: VecDeque<Output>,
}

impl Context {
    pub(crate) fn new(
        now: Instant,
        events: EventQueue,
        (host, link): (&HostProfile, &LinkProfile),
        memories: Vec<MemoryPort>,
        shift: Shifts,
        options: Options,
    ) -> Context {
        Context {
            now,
            events,
            link_in: Link::new(link),
            link_out: Link::new(link),
            memories,
            shift,
            options,
            completion_time: host.completion_time,
            command_time: host.command_time,
            command_interval: host.command_interval,
            pipeline_free_at: now,
            outputs: VecDeque::with_capacity(host.outstanding_max as usize),
        }
    }

    /// A command enters the command pipeline; `event` is due when it leaves it.
    #[inline(always)]
    pub(crate) fn enter_pipeline(&mut self, event: Event) {
        let enters = self.pipeline_free_at.max(self.now);
        self.pipeline_free_at = enters + self.command_interval;
        self.events.push(enters + self.command_time, lane::COMMAND, event);
    }

    /// A block command ends at `at`: its completion entry is written.
    #[inline(always)]
    pub(crate) fn finish(&mut self, slot: u16, at: Instant) {
        self.events.push(at + self.completion_time, lane::COMPLETE, Event::Complete { slot: slot.into() });
    }

    /// A command of the fast side or of the byte window has ended.
    pub(crate) fn reply(&mut self, cid: u16, status: Status, result: u32, data: Vec<u8>) {
        self.outputs.push_back(Output::Reply { cid, status, result, data });
    }
}
