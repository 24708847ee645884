//! Mapped rings in the engine's loop: what clients have stored unseen comes to the firmware as snapshots, each an input
//! of its own (rule 3 of the design: mapped stores are the one seam).
//!
//! A client never waits for the engine to store: it stores, and publishes its tail. The engine polls the tails from
//! time to time, and at once when a message says so. What it finds it reads once, into a [`LogInput::Announce`], which
//! is logged as every input is.

use super::{Context, Group, Pending, Storage, Turn};
use crate::ring::{Lost, MappedLane, MappedRing, Watch, lost};
use crate::vfio_user::Doorbell;
use std::sync::Arc;
use std::time::Instant as Wall;
use tidewater_core::border::LogInput;
use tidewater_core::fast::{Fast, Function, Lane, bar};
use tidewater_gauges::Latencies;
use tidewater_wire::log::RingLanePage;

/// Bytes that one look takes of a replicated lane, at most: replicas store them while the next are taken.
const LOOK_BYTES: u64 = 256 << 10;
/// A ring keeps at most this part of what no client waits for; the rest is taken, since new records need the room.
const LEFT_PARTS: u64 = 2;

/// The mapped rings of a device.
#[derive(Default)]
pub(crate) struct Rings {
    /// By function.
    rings: Vec<Option<MappedRing>>,
    /// Doorbells of their clients: a doorbell wakes the device's thread directly.
    doorbells: Vec<Arc<Doorbell>>,
    /// When they are looked at.
    watch: Watch,
}

impl Rings {
    /// Takes the ring of the next function, if it has one, with its doorbell.
    pub(crate) fn add(&mut self, ring: Option<MappedRing>, doorbell: Option<Arc<Doorbell>>) {
        self.rings.push(ring);
        self.doorbells.extend(doorbell);
    }

    /// The ring of a function.
    pub(crate) fn of(&self, function: usize) -> Option<&MappedRing> {
        self.rings.get(function)?.as_ref()
    }

    /// All of them, with their functions.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &MappedRing)> {
        self.rings.iter().enumerate().filter_map(|(function, ring)| Some((function, ring.as_ref()?)))
    }

    /// Whether there is any.
    pub(crate) fn is_used(&self) -> bool {
        self.all().next().is_some()
    }

    /// Those that are in use and as their functions are set up.
    fn in_use<'a>(&'a self, fast: &'a Fast) -> impl Iterator<Item = (&'a MappedRing, &'a Function)> {
        let with_function = |(function, ring)| Some((ring, fast.function(function)?));
        self.all().filter_map(with_function).filter(|(ring, of): &(&MappedRing, _)| ring.open && ring.fits(of))
    }

    /// As [`Rings::in_use`], to change them.
    fn in_use_mut<'a>(&'a mut self, fast: &'a Fast) -> impl Iterator<Item = (usize, &'a mut MappedRing, &'a Function)> {
        let with_function = |(function, ring): (usize, &'a mut Option<MappedRing>)| {
            let (ring, of) = (ring.as_mut()?, fast.function(function)?);
            (ring.open && ring.fits(of)).then_some((function, ring, of))
        };
        self.rings.iter_mut().enumerate().filter_map(with_function)
    }

    /// Whether a function's ring keeps the bytes of a lane, so that the image need not.
    pub(crate) fn keeps(&self, fast: &Fast, function: usize, lane: usize) -> bool {
        self.of(function).zip(fast.function(function)).is_some_and(|(ring, of)| ring.keeps(lane, of))
    }

    /// Where the lanes of a function end by what programs have appended: the device may not have taken all of it.
    pub(crate) fn appended(&self, function: usize, of: &Function) -> Vec<u64> {
        let ring = self.of(function).filter(|ring| ring.fits(of));
        let end = |(lane, of): (usize, &Lane)| ring.map_or(0, |ring| ring.lanes[lane].tail).max(of.released());
        of.lanes().iter().enumerate().map(end).collect()
    }

    /// Up to where the client of a lane wants the replicas to be synced.
    pub(crate) fn wanted_of_replicas(&self, function: usize, lane: usize, of: &Function) -> u64 {
        let ring = self.of(function).filter(|ring| ring.fits(of));
        ring.map_or(0, |ring| ring.lanes[lane].replicate_synced)
    }

    /// How long programs waited for the levels of all logs.
    pub(crate) fn waits(&self) -> Latencies {
        let mut waits = Latencies::default();
        self.all().for_each(|(_, ring)| waits.merge(&ring.waits));
        waits
    }

    /// Clients learn why the backing store takes nothing more, as a number of the system's. `fails`: what it had taken
    /// may be lost.
    pub(crate) fn publish_store_error(&mut self, number: i32, fails: bool) {
        self.rings.iter_mut().flatten().for_each(|ring| ring.publish_store_error(number, fails));
    }

    // --- when rings are looked at ---

    /// Doorbells of clients.
    pub(crate) fn doorbells(&self) -> impl Iterator<Item = &Doorbell> {
        self.doorbells.iter().map(|doorbell| &**doorbell)
    }

    /// Polls the doorbells of clients; the rings of those that rang are looked at in the next turn. True: one has.
    pub(crate) fn poll_doorbells(&mut self) -> bool {
        // Each is asked: one that was rung says so once.
        let any = self.doorbells().filter(|doorbell| doorbell.was_rung()).count() > 0;
        if any {
            self.watch.at_once();
        }
        any
    }

    /// When rings are looked at next; `None`: there are none.
    pub(crate) fn next_look(&self) -> Option<Wall> {
        self.is_used().then_some(self.watch.next)
    }

    /// Peers have sent something. Reports raise the credit: what a ring holds beyond it is taken now.
    pub(crate) fn on_reports(&mut self) {
        if self.all().any(|(_, ring)| ring.lanes.iter().any(|lane| lane.tail > lane.expected)) {
            self.watch.at_once();
        }
    }

    /// Looks at the rings whose time has come. True: something was found.
    pub(crate) fn look(&mut self, t: &mut Turn, storage: &mut Storage, group: &mut Group) -> bool {
        if self.next_look().is_none_or(|at| Wall::now() < at) || t.firmware.subsystem.device().is_recovering() {
            return false;
        }
        let (mut any, mut waited_for) = (false, false);
        let Rings { rings, watch, .. } = self;
        for (function, ring) in rings.iter_mut().enumerate() {
            let Some(ring) = ring else { continue };
            any |= Look { t, storage, watch, function }.at_ring(ring, group);
            let waits = |lane: &MappedLane| lane.wishes().iter().any(|(wanted, is)| wanted > is);
            waited_for |= ring.open && ring.lanes.iter().any(waits);
        }
        self.watch.found(any, waited_for);
        any
    }

    /// Streams of functions that are in a new epoch begin a generation: records of an epoch must not stand behind those
    /// of a later one, or readers would take them for old ones. One whose client has stored what is not taken yet does
    /// so later, unless another node has led since.
    pub(crate) fn follow_epochs(&mut self, t: &mut Turn, storage: &mut Storage, group: &mut Group) {
        for (function, ring, of) in self.in_use_mut(t.firmware.subsystem.device().fast()) {
            if ring.file.header().epoch != of.epoch()
                && group.is_promise_durable(t, storage, function, of.transport().version())
                && is_stored(ring, of)
                && (is_taken(ring, of) || !ring.may_continue(of))
            {
                let lanes = 0..ring.lanes.len();
                let moved = lanes.map(|lane| move_stream(t.cx, storage, lane, ring, of)).fold(true, |all, moved| {
                    // A ring that is lost is found to be so by the next look.
                    all & (moved == Ok(true))
                });
                // Behind all lanes: a start that finds the old epoch moves them again.
                if moved {
                    let _ = ring.file.set_epoch(of.epoch());
                }
            }
        }
    }

    /// Whether a client waits for bytes that came from its ring and that are not where they are safe. `on_flash`: where
    /// only flash is such a place.
    pub(crate) fn wait(&self, fast: &Fast, on_flash: bool) -> bool {
        self.in_use(fast).any(|(ring, of)| {
            let waits = |lane: usize| ring.lanes[lane].wanted.min(of.lanes()[lane].arrived()) > ring.reached(lane, of);
            !(on_flash && ring.survives) && (0..ring.lanes.len()).any(waits)
        })
    }

    /// Notes of all rings what the image has of them.
    fn note_taken(&mut self, storage: &Storage, fast: &Fast) {
        for (function, ring, of) in self.in_use_mut(fast) {
            ring.note_taken(of, |lane| storage.image().stored_log(function, lane));
        }
    }

    /// Publishes how far rings are taken and synced, behind the drive's loop: it is so by then.
    pub(crate) fn publish(&mut self, cx: &mut Context, storage: &mut Storage, fast: &Fast) {
        if !self.is_used() || storage.has_failed() {
            return;
        }
        self.note_taken(storage, fast);
        let wanted = self.in_use(fast).any(|(ring, of)| ring.is_waited_for(of));
        let fills = self.in_use(fast).any(|(ring, _)| ring.fills());
        let syncing = self.in_use(fast).any(|(ring, _)| ring.syncing.is_some());
        let mut asked = None;
        let image = storage.image_mut();
        // One sync for all that wait for one: what they have appended meanwhile is the next one's. Bytes that no client
        // waits for are synced in the background.
        let result = match () {
            () if wanted => image.store_logs(fast, |_, _| false).and_then(|()| image.sync_here()),
            () if fills => image.request_sync().map(|number| asked = Some(number)),
            () if syncing => image.advance(),
            () => Ok(()),
        };
        if !storage.is_good(cx, result) {
            return;
        }
        if wanted {
            self.note_taken(storage, fast);
        }
        let (synced, mut look) = (storage.image().synced(), false);
        for (_, ring, of) in self.in_use_mut(fast) {
            ring.on_synced(wanted, synced, asked);
            // A ring that is lost is found by the next look, which says so; credit may have come for what was left.
            let may_take = |(is, l): (&MappedLane, &Lane)| is.stuck && l.credit() + l.queue_size() > l.arrived();
            look |= ring.publish_changes(of) == Err(Lost) || ring.lanes.iter().zip(of.lanes()).any(may_take);
        }
        if look {
            self.watch.at_once();
        }
    }

    /// A client's message to a part of BAR2 that it has mapped, or could. False: it is a store as any other.
    pub(crate) fn message(&mut self, fast: &Fast, function: usize, address: u64, bytes: &[u8]) -> bool {
        let Some(of) = fast.function(function) else { return false };
        let ring = self.rings.get_mut(function).and_then(|ring| ring.as_mut());
        let Some(ring) = ring.filter(|ring| ring.fits(of)) else { return false };
        let (lane, at) = match bar::decode(of.setup(), address) {
            bar::Target::Ring { lane, .. } => return ring.lanes[lane].claimed,
            bar::Target::LanePage { lane, at } => (lane, at as usize),
            bar::Target::Control(_) | bar::Target::Nothing => return false,
        };
        if at == RingLanePage::WANTED_OFFSET
            && let Ok(wanted) = bytes.try_into()
        {
            let is = &mut ring.lanes[lane];
            is.wanted = u64::from_le_bytes(wanted).max(is.wanted);
            self.watch.at_once();
            return true;
        }
        if at == RingLanePage::TAIL_OFFSET {
            self.watch.at_once();
            return true;
        }
        ring.lanes[lane].claimed
    }

    /// The drive has power again: streams go on where what survived leads to what the rings hold.
    pub(crate) fn resume(
        &mut self,
        cx: &mut Context,
        storage: &mut Storage,
        fast: &Fast,
        note: &mut dyn FnMut(String),
    ) {
        if self.all().any(|(_, ring)| ring.needs_sync()) {
            let synced = storage.image_mut().sync();
            if !storage.is_good(cx, synced) {
                return;
            }
        }
        for (_, ring, of) in self.in_use_mut(fast) {
            // A ring is memory of the drive: where that does not survive, what only the ring held is gone.
            let ended = match ring.survives || ring.needs_sync() {
                true => Ok(()),
                false => (0..ring.lanes.len()).try_for_each(|lane| ring.begin_generation(lane).map(drop)),
            };
            if ended.and_then(|()| ring.resume(of, false, note)).is_err() {
                note(lost(ring.file.path()));
                ring.open = false;
            }
        }
        self.watch.at_once();
    }
}

/// A look at the ring of a function.
struct Look<'a, 'b> {
    t: &'a mut Turn<'b>,
    storage: &'a mut Storage,
    watch: &'a mut Watch,
    function: usize,
}

impl Look<'_, '_> {
    /// True: something was found.
    fn at_ring(&mut self, ring: &mut MappedRing, group: &mut Group) -> bool {
        let fast = self.t.firmware.subsystem.device().fast();
        let Some(of) = fast.function(self.function).filter(|_| ring.open) else { return false };
        if !ring.fits(of) {
            // Set up anew: the file is no ring of this function any more.
            ring.open = false;
            let _ = ring.publish(of);
            return false;
        }
        // Bytes of an epoch whose begin a crash could forget would count as some of the epoch before.
        let Look { t, storage, function, .. } = self;
        let version = of.transport().version();
        if of.is_replicated() && !group.is_promise_durable(t, storage, *function, version) {
            return false;
        }
        let knows = of.transport().version() > 0 || of.transport().persistent().lost;
        if ring.is_unconfirmed && knows {
            ring.is_unconfirmed = ring.file.confirm().is_err();
        }
        if !ring.may_continue(of) {
            return false; // Its stream is about to move.
        }
        let mut any = false;
        for lane in 0..ring.lanes.len() {
            match self.at_lane(lane, ring, of) {
                Ok(found) => any |= found,
                Err(Lost) => {
                    ring.open = false;
                    self.t.cx.warn(lost(ring.file.path()));
                    // Their clients learn it from the status register, as of any stream that is broken.
                    for lane in (0..ring.lanes.len()).filter(|&lane| ring.lanes[lane].claimed) {
                        self.break_stream(lane, u64::MAX);
                    }
                    return true;
                }
            }
        }
        any
    }

    fn at_lane(&mut self, lane: usize, ring: &mut MappedRing, of: &Function) -> Result<bool, Lost> {
        let (l, client) = (&of.lanes()[lane], ring.file.client_words(lane)?);
        let is = &mut ring.lanes[lane];
        let arrived = l.arrived();
        if client.generation != is.generation {
            (is.claimed, is.stuck) = (false, false);
            is.forget_waits();
            return Ok(false);
        }
        // Another client stored by messages: since the last poll, or after this client had read the page.
        if if is.claimed { arrived > is.expected } else { client.tail < arrived } {
            return move_stream(self.t.cx, self.storage, lane, ring, of);
        }
        is.claimed = true;
        is.expected = arrived;
        // A process that shares the lane without a connection requests a sync by this word, and rings.
        is.wanted = client.wanted.max(is.wanted);
        is.replicate = client.replicate.max(is.replicate);
        is.replicate_synced = client.replicate_synced.max(is.replicate_synced);
        is.begin_waits();
        (is.tail, is.saved, is.stuck) = (client.tail, client.saved, false);
        if l.is_broken() || client.tail <= arrived {
            return Ok(false); // A tail that falls is no change.
        }
        if client.tail > is.published.taken + ring.file.header().ring_bytes {
            self.break_stream(lane, client.tail);
            return Ok(true);
        }
        let unneeded = client.unneeded.min(client.tail);
        if unneeded > arrived.max(is.skipped) && !of.is_replicated() {
            // It was never taken, and need not be.
            (is.expected, is.skipped) = (unneeded, unneeded);
            self.t.cx.push_log(self.function as u8, LogInput::Skip { lane: lane as u8, to: unneeded });
            return Ok(true);
        }
        // Bytes that no client waits for may soon be of no use.
        let is_waited_for = is.wanted > arrived || is.replicate > arrived || of.is_replicated();
        let left = if is_waited_for { 0 } else { client.left.min(ring.file.header().ring_bytes / LEFT_PARTS) };
        let due = client.tail.saturating_sub(left);
        // A device that does not lead drops what it would take.
        if due <= arrived || !of.transport().writable() {
            return Ok(false);
        }
        // As much as the intake queue takes now; the rest comes with the next look.
        let most = if of.is_replicated() { LOOK_BYTES } else { u64::MAX };
        let len = (due - arrived).min((l.credit() + l.queue_size()).saturating_sub(arrived)).min(most);
        if len == 0 {
            is.stuck = true;
            return Ok(false);
        }
        // The rest is looked for at once.
        self.watch.more |= due > arrived + len;
        self.watch.bytes += len;
        let mut bytes = self.t.cx.buffer(len as usize);
        ring.file.read(lane, arrived, &mut bytes)?;
        is.expected = arrived + len;
        let (function, lane) = (self.function as u8, lane as u8);
        self.t.cx.put(Pending::Announce { function, lane, tail: arrived + len, bytes });
        Ok(true)
    }

    /// The client of a lane has passed its credit: the firmware marks the stream broken when such a tail is announced
    /// without its bytes.
    fn break_stream(&mut self, lane: usize, tail: u64) {
        self.t.cx.put(Pending::Announce { function: self.function as u8, lane: lane as u8, tail, bytes: Vec::new() });
    }
}

/// Whether the image has all that was taken, where a stream that has a copy can't move before.
fn is_stored(ring: &MappedRing, of: &Function) -> bool {
    ring.copy.is_none() || ring.lanes.iter().zip(of.lanes()).all(|(is, l)| is.taken >= l.arrived())
}

/// Whether all that clients have stored was taken, so that their streams can move and nothing is lost.
fn is_taken(ring: &MappedRing, of: &Function) -> bool {
    ring.lanes.iter().zip(of.lanes()).enumerate().all(|(lane, (is, l))| {
        !is.claimed || ring.file.client_words(lane).map_or(0, |client| client.tail) <= l.arrived()
    })
}

/// A lane's stream goes on where the device is. True: it does; else it will, and nothing is taken from the ring
/// until then.
fn move_stream(
    cx: &mut Context,
    storage: &mut Storage,
    lane: usize,
    ring: &mut MappedRing,
    of: &Function,
) -> Result<bool, Lost> {
    let to = of.lanes()[lane].arrived();
    if ring.copy.is_some() {
        // What the copy holds counts no more once the stream has moved, and nothing more of it is relied on.
        ring.file.disuse_copy(lane)?;
        if ring.lanes[lane].taken < to {
            return Ok(false);
        }
        if !storage.sync_here(cx) {
            return Ok(false);
        }
        ring.lanes[lane].synced = ring.lanes[lane].synced.max(to);
    }
    ring.move_stream(lane, to).map(|()| true)
}
