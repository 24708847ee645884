//! Mapped rings in the engine's loop: what clients have stored unseen comes to the firmware as snapshots, each an input
//! of its own (rule 3 of the design: mapped stores are the one seam).
//!
//! A client never waits for the engine to store: it stores, and publishes its tail. The engine polls the tails from
//! time to time, and at once when a message says so. What it finds it reads once, into an [`Input::Announce`], which is
//! logged as every input is.
//!
//! [`Input::Announce`]: tidewater_core::subsystem::Input::Announce

use crate::engine::context::Pending;
use crate::engine::firmware::Firmware;
use crate::engine::route::World;
use crate::ring::{Lost, MappedLane, MappedRing, lost};
use crate::vfio_user::Doorbell;
use std::time::Instant as Wall;
use tidewater_core::fast::{Fast, Function, bar};
use tidewater_core::subsystem::Input;
use tidewater_wire::log::RingLanePage;

/// A ring keeps at most this part of what no client waits for; the rest is taken, since new records need the room.
const LEFT_PARTS: u64 = 2;

/// A snapshot that is to be taken: of a lane, up to a tail.
struct Snapshot {
    lane: usize,
    tail: u64,
    len: u64,
}

impl<M> World<M> {
    /// Looks at the rings whose time has come. True: something was found.
    pub(crate) fn look_at_rings(&mut self, firmware: &Firmware) -> bool {
        if self.rings_at().is_none_or(|at| Wall::now() < at) || firmware.subsystem.device().is_recovering() {
            return false;
        }
        let (mut any, mut waited_for) = (false, false);
        for function in 0..self.ports.len() {
            let Some(mut ring) = self.ports[function].ring.take() else { continue };
            any |= self.look_at_ring(function, &mut ring, firmware);
            let waits = |lane: &MappedLane| lane.wishes().iter().any(|(wanted, is)| wanted > is);
            waited_for |= ring.open && ring.lanes.iter().any(waits);
            self.ports[function].ring = Some(ring);
        }
        self.watch.found(any, waited_for);
        any
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

    /// What clients of mapped rings ring.
    pub(crate) fn doorbells(&self) -> impl Iterator<Item = &Doorbell> {
        self.ports.iter().filter_map(|port| port.doorbell.as_deref())
    }

    /// When rings are looked at next; `None`: there are none.
    pub(crate) fn rings_at(&self) -> Option<Wall> {
        self.ports.iter().any(|port| port.ring.is_some()).then_some(self.watch.next)
    }

    fn look_at_ring(&mut self, function: usize, ring: &mut MappedRing, firmware: &Firmware) -> bool {
        let Some(of) = firmware.subsystem.device().fast().function(function).filter(|_| ring.open) else {
            return false;
        };
        if !ring.fits(of) {
            // Set up anew: the file is no ring of this function any more.
            ring.open = false;
            let _ = ring.publish(of);
            return false;
        }
        // Bytes of an epoch whose begin a crash could forget would count as some of the epoch before.
        if of.is_replicated() && !self.is_promise_durable(firmware, function, of.transport().version()) {
            return false;
        }
        let knows = of.transport().version() > 0 || of.transport().persistent().lost;
        if ring.is_unconfirmed && knows {
            ring.is_unconfirmed = ring.file.confirm().is_err();
        }
        let mut any = false;
        for lane in 0..ring.lanes.len() {
            match self.look_at_lane(function, lane, ring, firmware) {
                Ok(found) => any |= found,
                Err(Lost) => {
                    ring.open = false;
                    self.cx.warn(lost(ring.file.path()));
                    // Their clients learn it from the status register, as of any stream that is broken.
                    for lane in (0..ring.lanes.len()).filter(|&lane| ring.lanes[lane].claimed) {
                        self.break_stream(function, lane, u64::MAX);
                    }
                    return true;
                }
            }
        }
        any
    }

    fn look_at_lane(
        &mut self,
        function: usize,
        lane: usize,
        ring: &mut MappedRing,
        firmware: &Firmware,
    ) -> Result<bool, Lost> {
        let Some(of) = firmware.subsystem.device().fast().function(function) else { return Ok(false) };
        let (l, client) = (&of.lanes()[lane], ring.file.client_words(lane)?);
        let is = &mut ring.lanes[lane];
        let arrived = l.arrived();
        if client.generation != is.generation {
            is.claimed = false;
            is.forget_waits();
            return Ok(false);
        }
        // Another client stored by messages: since the last poll, or after this client had read the page.
        if if is.claimed { arrived > is.expected } else { client.tail < arrived } {
            return self.move_stream(lane, ring, of);
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
            self.break_stream(function, lane, client.tail);
            return Ok(true);
        }
        let unneeded = client.unneeded.min(client.tail);
        if unneeded > arrived.max(is.skipped) && !of.is_replicated() {
            // It was never taken, and need not be.
            (is.expected, is.skipped) = (unneeded, unneeded);
            self.cx.push(Input::Skip { function: function as u8, lane: lane as u8, to: unneeded });
            return Ok(true);
        }
        // Bytes that no client waits for may soon be of no use.
        let is_waited_for = is.wanted > arrived || is.replicate > arrived || of.is_replicated();
        let left = if is_waited_for { 0 } else { client.left.min(ring.file.header().ring_bytes / LEFT_PARTS) };
        let due = client.tail.saturating_sub(left);
        if due <= arrived {
            return Ok(false);
        }
        // As much as the intake queue takes now; the rest comes with the next look.
        let len = (due - arrived).min((l.credit() + l.queue_size()).saturating_sub(arrived));
        if len == 0 {
            is.stuck = true;
            return Ok(false);
        }
        // The rest is looked for at once.
        self.watch.more |= due > arrived + len;
        self.watch.bytes += len;
        self.take_snapshot(function, ring, &Snapshot { lane, tail: arrived + len, len })?;
        Ok(true)
    }

    /// Streams of functions that are in a new epoch begin a generation: records of an epoch must not stand behind those
    /// of a later one, or readers would take them for old ones. One whose client has stored what is not taken yet does
    /// so later.
    pub(crate) fn follow_epochs(&mut self, firmware: &Firmware) {
        let fast = firmware.subsystem.device().fast();
        for function in 0..self.ports.len() {
            let Some(of) = fast.function(function) else { continue };
            let is_new = |ring: &MappedRing| ring.open && ring.fits(of) && ring.file.header().epoch != of.epoch();
            if !self.ports[function].ring.as_ref().is_some_and(is_new)
                || !self.is_promise_durable(firmware, function, of.transport().version())
            {
                continue;
            }
            let Some(mut ring) = self.ports[function].ring.take() else { continue };
            if Self::is_taken(&ring, of) {
                ring.file.set_epoch(of.epoch());
                // A ring that is lost is found to be so by the next look.
                let _ = (0..ring.lanes.len()).try_for_each(|lane| self.move_stream(lane, &mut ring, of).map(drop));
            }
            self.ports[function].ring = Some(ring);
        }
    }

    /// Whether all that clients have stored was taken, so that their streams can move and nothing is lost.
    fn is_taken(ring: &MappedRing, of: &Function) -> bool {
        ring.lanes.iter().zip(of.lanes()).enumerate().all(|(lane, (is, l))| {
            let tail = ring.file.client_words(lane).map_or(0, |client| client.tail);
            let is_stored = ring.copy.is_none() || is.taken >= l.arrived();
            is_stored && (!is.claimed || tail <= l.arrived())
        })
    }

    /// A lane's stream goes on where the device is. True: it does; else it will, and nothing is taken from the ring
    /// until then.
    fn move_stream(&mut self, lane: usize, ring: &mut MappedRing, of: &Function) -> Result<bool, Lost> {
        let to = of.lanes()[lane].arrived();
        if ring.copy.is_some() {
            // What the copy holds counts no more once the stream has moved, and nothing more of it is relied on.
            ring.file.disuse_copy(lane)?;
            if ring.lanes[lane].taken < to {
                return Ok(false);
            }
            if !self.storage.sync_here(&mut self.cx) {
                return Ok(false);
            }
            ring.lanes[lane].synced = ring.lanes[lane].synced.max(to);
        }
        ring.move_stream(lane, to).map(|()| true)
    }

    fn take_snapshot(&mut self, function: usize, ring: &mut MappedRing, of: &Snapshot) -> Result<(), Lost> {
        let mut bytes = self.cx.buffer(of.len as usize);
        ring.file.read(of.lane, of.tail - of.len, &mut bytes)?;
        ring.lanes[of.lane].expected = of.tail;
        self.cx.put(Pending::Announce { function: function as u8, lane: of.lane as u8, tail: of.tail, bytes });
        Ok(())
    }

    /// The client of a lane has passed its credit: the firmware marks the stream broken when such a tail is announced
    /// without its bytes.
    fn break_stream(&mut self, function: usize, lane: usize, tail: u64) {
        self.cx.put(Pending::Announce { function: function as u8, lane: lane as u8, tail, bytes: Vec::new() });
    }

    /// Whether a client waits for bytes that came from its ring and that are not where they are safe. `on_flash`: where
    /// only flash is such a place.
    pub(crate) fn rings_wait(&self, firmware: &Firmware, on_flash: bool) -> bool {
        let fast = firmware.subsystem.device().fast();
        self.ports.iter().enumerate().any(|(function, port)| {
            let (Some(ring), Some(of)) = (&port.ring, fast.function(function)) else { return false };
            let waits = |lane: usize| ring.lanes[lane].wanted.min(of.lanes()[lane].arrived()) > ring.reached(lane, of);
            ring.open && !(on_flash && ring.survives) && ring.fits(of) && (0..ring.lanes.len()).any(waits)
        })
    }

    /// Notes of all rings what the image has of them.
    fn note_taken(&mut self, fast: &Fast) {
        let image = self.storage.image();
        for (function, port) in self.ports.iter_mut().enumerate() {
            let (Some(ring), Some(of)) = (&mut port.ring, fast.function(function)) else { continue };
            if ring.open && ring.fits(of) {
                ring.note_taken(of, |lane| image.stored_log(function, lane));
            }
        }
    }

    /// Publishes how far rings are taken and synced, behind the drive's loop: it is so by then.
    pub(crate) fn publish_rings(&mut self, firmware: &Firmware) {
        if self.rings_at().is_none() || self.storage.has_failed() {
            return;
        }
        let fast = firmware.subsystem.device().fast();
        self.note_taken(fast);
        let any = |is_so: fn(&MappedRing, &Function) -> bool| {
            self.ports.iter().enumerate().any(|(function, port)| {
                let (Some(ring), Some(of)) = (&port.ring, fast.function(function)) else { return false };
                ring.open && ring.fits(of) && is_so(ring, of)
            })
        };
        let (wanted, fills, syncing) =
            (any(MappedRing::is_waited_for), any(|ring, _| ring.fills()), any(|ring, _| ring.syncing.is_some()));
        let mut asked = None;
        let image = self.storage.image_mut();
        // One sync for all that wait for one: what they have appended meanwhile is the next one's. Bytes that no client
        // waits for are synced in the background.
        let result = match () {
            () if wanted => image.store_logs(fast, |_, _| false).and_then(|()| image.sync_here()),
            () if fills => image.request_sync().map(|number| asked = Some(number)),
            () if syncing => image.advance(),
            () => Ok(()),
        };
        if !self.storage.is_good(&mut self.cx, result) {
            return;
        }
        let synced = self.storage.image().synced();
        if wanted {
            self.note_taken(fast);
        }
        for (function, port) in self.ports.iter_mut().enumerate() {
            let (Some(ring), Some(of)) = (&mut port.ring, fast.function(function)) else { continue };
            if !ring.open || !ring.fits(of) {
                continue;
            }
            ring.on_synced(wanted, synced, asked);
            if ring.publish_changes(of) == Err(Lost) {
                // The next look finds it, and says so.
                self.watch.at_once();
            }
        }
    }

    /// A client's message to a part of BAR2 that it has mapped, or could. False: it is a store as any other.
    pub(crate) fn ring_message(&mut self, function: usize, address: u64, bytes: &[u8], firmware: &Firmware) -> bool {
        let Some(of) = firmware.subsystem.device().fast().function(function) else { return false };
        let Some(ring) = self.ports[function].ring.as_mut().filter(|ring| ring.fits(of)) else { return false };
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
    pub(crate) fn resume_rings(&mut self, firmware: &Firmware, note: &mut dyn FnMut(String)) {
        if self.ports.iter().any(|port| port.ring.as_ref().is_some_and(MappedRing::needs_sync)) {
            let synced = self.storage.image_mut().sync();
            if !self.storage.is_good(&mut self.cx, synced) {
                return;
            }
        }
        let fast = firmware.subsystem.device().fast();
        for (function, port) in self.ports.iter_mut().enumerate() {
            let (Some(ring), Some(of)) = (&mut port.ring, fast.function(function)) else { continue };
            if !ring.open || !ring.fits(of) {
                continue;
            }
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
