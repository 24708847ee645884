//! The mapped ring of one function: its file, its copy, and what was published to its clients.

use super::copy::RingCopy;
use super::file::{Found, Lost, RingError, RingFile, Shape};
use super::{RingSetup, lost};
use std::fmt;
use std::time::Instant as Wall;
use tidewater_base::Duration;
use tidewater_core::fast::transport::{PeerStatus, flag};
use tidewater_core::fast::{Fast, Function};
use tidewater_gauges::{LEVELS, Latencies};
use tidewater_wire::log::{RingLane, RingPage, RingReplicas};
use tidewater_wire::vendor::{Epoch, Mode, Role, TransportStatus};

/// A ring whose places are free once they are synced is synced behind each such part of it: its client finds room while
/// the rest fills.
const SYNCED_PARTS: u64 = 4;
/// A ring is synced behind so many bytes where its copy has none of them.
const SYNCED_BESIDE_COPY: u64 = 512 << 10;

/// A lane, with what its client knows of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MappedLane {
    pub(crate) generation: u64,
    /// Its client writes in this generation.
    pub(crate) claimed: bool,
    /// Where the snapshots have come to: anything else has moved the stream when it is elsewhere.
    pub(crate) expected: u64,
    pub(crate) published: RingLane,
    /// How far its client had filled it when it was looked at last.
    pub(crate) tail: u64,
    /// Up to where the copy had it then, by its client's word.
    pub(crate) saved: u64,
    /// Nothing of what it holds could be taken then.
    pub(crate) stuck: bool,
    /// Target of the last skip that was passed to the firmware.
    pub(crate) skipped: u64,
    /// End of what is in the image: its client may use the place again, since the death of this process does not reach
    /// it.
    pub(crate) taken: u64,
    /// Up to where its client wants it to be synced.
    pub(crate) wanted: u64,
    pub(crate) synced: u64,
    /// Up to where its client wants it to be replicated.
    pub(crate) replicate: u64,
    /// Up to where its client wants its replicas to be synced.
    pub(crate) replicate_synced: u64,
    /// What its client knows of its replicas.
    pub(crate) replicas: RingReplicas,
    /// Up to where the sync that is under way will have it synced.
    pub(crate) syncing: u64,
    /// For each of [`LEVELS`], what its client waits for, and since when.
    asked: [Option<(u64, Wall)>; LEVELS.len()],
}

impl MappedLane {
    /// Of each level, up to where its client wants the lane, and up to where it is.
    pub(crate) fn wishes(&self) -> [(u64, u64); LEVELS.len()] {
        [
            (self.wanted, self.synced),
            (self.replicate, self.replicas.ring),
            (self.replicate_synced, self.replicas.destaged),
        ]
    }

    /// Notes what its client begins to wait for. What it wants meanwhile belongs to the same wait.
    pub(crate) fn begin_waits(&mut self) {
        let wishes = self.wishes();
        for (asked, (wanted, is)) in self.asked.iter_mut().zip(wishes) {
            if wanted > is && asked.is_none() {
                *asked = Some((wanted, Wall::now()));
            }
        }
    }

    /// Its stream is another one: what was waited for does not come.
    pub(crate) fn forget_waits(&mut self) {
        self.asked = Default::default();
    }

    /// Counts the waits that have come to their end.
    fn end_waits(&mut self, waits: &mut Latencies) {
        for (level, (_, is)) in self.wishes().into_iter().enumerate() {
            if let Some((wanted, since)) = self.asked[level]
                && is >= wanted
            {
                waits.record(level, Duration::from_ns(since.elapsed().as_nanos() as u64));
                self.asked[level] = None;
            }
        }
    }
}

fn wrong(error: impl fmt::Display) -> RingError {
    RingError(error.to_string())
}

/// What a ring's page says of the function's peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Peers {
    role: u8,
    mode: u8,
    late: u16,
    frozen: bool,
}

impl Peers {
    fn of(function: &Function) -> Peers {
        let transport = function.transport();
        let status = transport.status();
        let is_late = |peer: &PeerStatus| !peer.synced || peer.data_failed || peer.counter_failed || peer.stale;
        Peers {
            role: match status.role {
                Role::StandAlone => 0,
                Role::Primary => 1,
                Role::Secondary => 2,
            },
            mode: match status.group.mode() {
                Mode::Lazy => 0,
                Mode::Eager => 1,
                Mode::Chain => 2,
                Mode::Quorum(_) => 3,
            },
            late: transport.peers().filter(is_late).fold(0, |late, peer| late | 1 << (peer.node & 15)),
            frozen: status.flags & flag::FROZEN != 0,
        }
    }
}

/// Whether a group may count on what is in the function's ring: the device leads an epoch, or follows one.
pub(crate) fn is_counted_on(of: &Function) -> bool {
    let own = of.transport().persistent();
    own.role != Role::StandAlone && own.history.last() != Epoch::ZERO
}

/// Whether the newest epoch of a log is one that this device leads, or has led.
pub(crate) fn has_led(of: &Function) -> bool {
    let own = of.transport().persistent();
    is_counted_on(of) && own.history.last().node() == own.node
}

/// How far the replicas of a lane are. `synced`: how far the device is itself.
fn replicas(lane: usize, of: &Function, synced: u64) -> RingReplicas {
    let (transport, end) = (of.transport(), of.lanes()[lane].released());
    RingReplicas::new(transport.on_replicas(lane).min(end), transport.durable_on_replicas(lane).min(end).min(synced))
}

/// The mapped ring of a function.
#[derive(Debug)]
pub struct MappedRing {
    pub(crate) file: RingFile,
    pub(crate) copy: Option<RingCopy>,
    pub(crate) lanes: Vec<MappedLane>,
    pub(crate) survives: bool,
    /// The number of the sync that was asked for since it fills up.
    pub(crate) syncing: Option<u64>,
    /// What a group counts on is there.
    is_kept: bool,
    /// The next start is to find it as this one did, until the image knows that it was lost.
    pub(crate) is_unconfirmed: bool,
    /// Something is taken from it.
    pub(crate) open: bool,
    /// What its page says is wrong.
    pub(crate) status: TransportStatus,
    /// What its page says of the function's peers.
    peers: Peers,
    /// Why the backing store takes nothing more, as a number of the system's; 0: it does.
    pub(crate) store_error: i32,
    /// How long its clients waited for each of [`LEVELS`].
    pub(crate) waits: Latencies,
}

impl MappedRing {
    /// Opens or makes the ring of a function, and finds out where its clients are. What it has to say comes as a note.
    /// Where the setup needs it ([`RingSetup::needs_sync`]), the caller has synced the image.
    ///
    /// # Errors
    /// As [`RingFile::open`] says; and a ring that goes further than what the drive has of its log could lead to.
    pub(crate) fn open(
        setup: &RingSetup,
        drive: [u8; 16],
        function: usize,
        fast: &Fast,
        note: &mut dyn FnMut(String),
    ) -> Result<MappedRing, RingError> {
        let of = fast.function(function).expect("the caller has looked");
        let path = setup.of(function);
        let shape = Shape {
            drive,
            function: function as u16,
            lanes: of.setup().lanes as u16,
            ring_bytes: of.setup().ring_size,
            epoch: of.epoch(),
            persistent: setup.persistent,
            copied: setup.copy.is_some(),
        };
        // The copy first: where it is refused, no ring is made.
        let copy = setup.copy_of(function).map(|path| RingCopy::open(&path, &shape));
        let (copy, made) = copy.transpose()?.unzip();
        let (file, found) = RingFile::open(&path, &shape)?;
        if found == Found::Old {
            note(format!(
                "{}: the machine was rebooted since the ring was last used, and its memory is volatile: bytes held \
                 only in the ring are lost",
                path.display()
            ));
        }
        let lanes = vec![MappedLane::default(); of.lanes().len()];
        // Bytes of peers are not in the ring: they are in the image, as far as this boot has them.
        let is_kept = found == Found::Ring && (file.is_of_this_boot() || has_led(of));
        let mut ring = MappedRing {
            file,
            copy,
            lanes,
            survives: fast.survives(),
            syncing: None,
            is_kept,
            is_unconfirmed: false,
            open: true,
            status: TransportStatus::OK,
            peers: Peers::default(),
            store_error: 0,
            waits: Latencies::default(),
        };
        let failed = |Lost| match &setup.copy {
            Some(copy) => wrong(format_args!("{}; or its copy {} can't", lost(&path), copy.display())),
            None => wrong(lost(&path)),
        };
        let is_trusted = ring.take_up_copy(of, found, made == Some(true), note).map_err(failed)?;
        ring.resume(of, true, note).map_err(failed)??;
        if !is_trusted {
            ring.sync_instead().map_err(failed)?;
        }
        // Only now is it the ring of this boot: a start that is cut short leaves the next one the same to do. Where a
        // group counts on a ring that is gone, the image has to know that first.
        ring.is_unconfirmed = !ring.is_kept && is_counted_on(of);
        if !ring.is_unconfirmed {
            ring.file.confirm().map_err(failed)?;
        }
        Ok(ring)
    }

    /// After a crash of the machine, what the copy holds behind the drive's log goes into the ring. `false`: the ring
    /// has outlived the device, and its copy is another one than it had.
    pub(crate) fn take_up_copy(
        &mut self,
        of: &Function,
        found: Found,
        made: bool,
        note: &mut dyn FnMut(String),
    ) -> Result<bool, Lost> {
        let MappedRing { file, copy: Some(copy), .. } = self else {
            return Ok(found != Found::Ring || !self.file.had_copy());
        };
        let mut is_trusted = true;
        for (lane, l) in of.lanes().iter().enumerate() {
            let (end, generation) = (l.arrived(), file.header().generation[lane]);
            if found == Found::Ring {
                if made || !file.had_copy() || copy.generation(lane) != generation {
                    // What it holds is of whatever came before: it must not be met again.
                    is_trusted = false;
                    file.disuse_copy(lane)?;
                    copy.clear(lane)?;
                    copy.set_generation(lane, generation)?;
                }
            } else if made {
                copy.set_generation(lane, generation)?;
            } else {
                let bytes = copy.take_up(lane, end)?;
                if copy.generation(lane) == 0 {
                    // It was made, and never used.
                    copy.set_generation(lane, generation)?;
                }
                file.restore(lane, copy.generation(lane), end, &bytes)?;
                if !bytes.is_empty() {
                    let (path, len) = (copy.path().display(), bytes.len());
                    note(format!("{path}: {len} bytes of lane {lane} were copied to the new ring"));
                }
            }
        }
        Ok(is_trusted)
    }

    /// Clients that write a copy which is not the ring's any more have it done by the device, and what they relied on
    /// is synced at once.
    pub(crate) fn sync_instead(&mut self) -> Result<(), Lost> {
        for lane in 0..self.lanes.len() {
            self.file.disuse_copy(lane)?;
            if self.lanes[lane].claimed {
                self.lanes[lane].wanted = self.file.client_words(lane)?.tail;
            }
        }
        Ok(())
    }

    /// A lane's stream does not go on from what its client has published. Where there is a copy, the image is synced up
    /// to where it does go on.
    pub(crate) fn begin_generation(&mut self, lane: usize) -> Result<u64, Lost> {
        if let Some(copy) = &mut self.copy {
            self.file.disuse_copy(lane)?;
            copy.set_generation(lane, self.file.header().generation[lane] + 1)?;
        }
        self.file.begin_generation(lane)
    }

    /// Whether places of the ring are free only once they are synced: what is in the ring, or in its copy, survives a
    /// loss of power until then.
    pub(crate) fn needs_sync(&self) -> bool {
        self.file.header().persistent || self.copy.is_some()
    }

    /// Takes up streams after the drive has come back: those that go on where the drive's log ends do so, and others
    /// end. `strict`: one that goes further than it can is an error.
    pub(crate) fn resume(
        &mut self,
        of: &Function,
        strict: bool,
        note: &mut dyn FnMut(String),
    ) -> Result<Result<(), RingError>, Lost> {
        let size = self.file.header().ring_bytes;
        let path = self.file.path().display().to_string();
        let may_continue = self.may_continue(of);
        for (lane, l) in of.lanes().iter().enumerate() {
            let client = self.file.client_words(lane)?;
            let (generation, end) = (self.file.header().generation[lane], l.arrived());
            // After a restart, all that has arrived is in the image, and is synced where that matters.
            let taken = self.reached(lane, of);
            let synced = if self.needs_sync() { taken } else { 0 };
            let mut is = MappedLane { generation, expected: end, taken, synced, ..MappedLane::default() };
            let is_there = client.generation == generation;
            if is_there && may_continue && client.tail > end + size && strict {
                return Ok(Err(wrong(format_args!(
                    "{path}: lane {lane} was filled up to {}, and the drive's log ends at {end}: more than its ring of \
                     {size} bytes lies between. The image is older than the ring, or the ring is damaged; move the \
                     ring away to go on from {end}",
                    client.tail
                ))));
            }
            is.claimed = is_there && may_continue && (end..=end + size).contains(&client.tail);
            if is.claimed && client.tail > end {
                note(format!(
                    "{path}: lane {lane} continues: the ring holds {} bytes that the drive had not taken",
                    client.tail - end
                ));
            } else if !is.claimed && (is_there || !may_continue) {
                is.generation = self.begin_generation(lane)?;
            }
            if is_there && !is.claimed {
                note(format!(
                    "{path}: lane {lane} was filled up to {}, and the drive's log ends at {end}: its clients must \
                     reconnect",
                    client.tail
                ));
            }
            self.lanes[lane] = is;
        }
        if !may_continue {
            self.file.set_epoch(of.epoch())?;
        }
        self.open = true;
        self.publish(of)?;
        Ok(Ok(()))
    }

    /// End of what the drive keeps: what the image has of it once it is stored.
    pub(crate) fn reached(&self, lane: usize, of: &Function) -> u64 {
        let l = &of.lanes()[lane];
        if self.survives { l.released() } else { l.durable() }
    }

    /// Notes what the image has. `stored`: of a lane, where the drive's own death does not reach its ring.
    pub(crate) fn note_taken(&mut self, of: &Function, stored: impl Fn(usize) -> Option<u64>) {
        for lane in 0..self.lanes.len() {
            let reached = self.reached(lane, of);
            let stored = stored(lane).filter(|_| self.survives).unwrap_or(reached);
            let is = &mut self.lanes[lane];
            is.taken = stored.min(reached).max(is.taken);
        }
    }

    /// Whether the file has all that a lane holds beyond what the image has of it: no place there was given back to its
    /// client.
    pub(crate) fn keeps(&self, lane: usize, of: &Function) -> bool {
        let Some(is) = self.lanes.get(lane).filter(|_| self.open && self.fits(of) && !of.is_replicated()) else {
            return false;
        };
        is.claimed && of.lanes()[lane].arrived() <= is.expected
    }

    /// What is to be published of a lane now.
    pub(crate) fn lane_now(&self, lane: usize, of: &Function) -> RingLane {
        let is = &self.lanes[lane];
        let synced = is.synced.min(is.taken);
        // A place of a ring that survives a loss of power, or whose copy does, is used again once the image survives
        // one too.
        let free = if self.needs_sync() { synced } else { is.taken };
        RingLane::new(is.generation, free, synced, of.lanes()[lane].arrived())
    }

    /// Publishes all of its page.
    pub(crate) fn publish(&mut self, of: &Function) -> Result<(), Lost> {
        (self.status, self.peers) = (of.status(), Peers::of(of));
        let mut page = RingPage {
            role: self.peers.role,
            mode: self.peers.mode,
            late: self.peers.late,
            frozen: self.peers.frozen,
            open: self.open,
            broken: self.status.all_broken(),
            survives: self.survives,
            waits_for_trim: self.status.has(TransportStatus::WAITS_FOR_TRIM),
            store_error: self.store_error.unsigned_abs(),
            ..RingPage::default()
        };
        for lane in 0..self.lanes.len().min(of.lanes().len()) {
            let now = self.lane_now(lane, of);
            if now.generation != self.lanes[lane].published.generation {
                // Before counters of replicas: clients take them for those of the generation that they find then.
                self.file.write_lane(lane, &now)?;
            }
            self.lanes[lane].published = now;
            page.lane[lane] = self.lanes[lane].published;
            self.lanes[lane].replicas = replicas(lane, of, self.lanes[lane].published.synced);
            page.replicas[lane] = self.lanes[lane].replicas;
        }
        self.file.write_page(&page)
    }

    /// Publishes why the backing store takes nothing more, as a number of the system's. `fails`: what it had taken may
    /// be lost.
    pub(crate) fn publish_store_error(&mut self, number: i32, fails: bool) {
        self.store_error = number;
        if fails {
            let _ = self.file.doubt();
        }
        // One whose file is lost is found to be so when it is looked at.
        let _ = self.file.write_store_error(number);
    }

    /// Publishes what has changed.
    pub(crate) fn publish_changes(&mut self, of: &Function) -> Result<(), Lost> {
        // The page of a function that has left its group says so, too.
        let has_peers = of.is_replicated() || self.peers != Peers::default();
        if self.status != of.status() || has_peers && self.peers != Peers::of(of) {
            return self.publish(of);
        }
        for lane in 0..self.lanes.len() {
            let now = self.lane_now(lane, of);
            if now != self.lanes[lane].published {
                self.file.write_lane(lane, &now)?;
                let before = std::mem::replace(&mut self.lanes[lane].published, now);
                if (before.synced, before.generation) != (now.synced, now.generation) {
                    self.file.wake(lane);
                }
            }
            let replicas = if of.is_replicated() { replicas(lane, of, now.synced) } else { continue };
            if replicas != self.lanes[lane].replicas {
                self.file.write_replicas(lane, &replicas)?;
                let before = std::mem::replace(&mut self.lanes[lane].replicas, replicas);
                for (counter, moved) in [
                    (RingReplicas::RING_OFFSET, before.ring != replicas.ring),
                    (RingReplicas::DESTAGED_OFFSET, before.destaged != replicas.destaged),
                ] {
                    if moved {
                        self.file.wake_for_replicas(lane, counter);
                    }
                }
            }
        }
        for is in &mut self.lanes {
            is.end_waits(&mut self.waits);
        }
        Ok(())
    }

    /// The stream of a lane moves to another offset: its client sees the new generation, and attaches anew.
    pub(crate) fn move_stream(&mut self, lane: usize, to: u64) -> Result<(), Lost> {
        let generation = self.begin_generation(lane)?;
        let is = &mut self.lanes[lane];
        let MappedLane { published, taken, synced, .. } = *is;
        *is = MappedLane { generation, expected: to, published, taken, synced, ..MappedLane::default() };
        Ok(())
    }

    /// Whether what a group counts on is there: the file is of this boot of the machine, so that what the device had
    /// reported is in the image; or the device has led, and the file outlives a boot.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Whether what its clients have stored and the device has not taken may still be taken: no other node has led
    /// since they stored it. What a deposed primary's clients stored belongs to no later epoch.
    pub(crate) fn may_continue(&self, of: &Function) -> bool {
        let (own, epoch) = (of.transport().persistent(), self.file.header().epoch);
        own.history.starts().iter().filter(|start| start.epoch > epoch).all(|start| start.epoch.node() == own.node)
    }

    /// Whether it is still as the function is set up.
    pub(crate) fn fits(&self, of: &Function) -> bool {
        let header = self.file.header();
        of.lanes().len() == self.lanes.len() && of.setup().ring_size == header.ring_bytes
    }

    /// What may be mapped, and by which descriptor.
    pub(crate) fn file(&self) -> &RingFile {
        &self.file
    }

    /// Its copy, if it has one.
    pub(crate) fn copy(&self) -> Option<&RingCopy> {
        self.copy.as_ref()
    }
}

impl MappedRing {
    /// Whether a client waits for a sync, and one now would be enough.
    pub(crate) fn is_waited_for(&self, of: &Function) -> bool {
        (0..self.lanes.len()).any(|lane| {
            let (is, reached) = (&self.lanes[lane], self.reached(lane, of));
            // All that is wanted goes with one sync, unless the rest can't be taken.
            let due = reached >= is.wanted.min(is.tail) || is.stuck;
            is.wanted > is.synced && reached > is.synced && due
        })
    }

    /// Whether a sync is due though no client waits for one: only a sync frees places, and where there is a copy, a
    /// client that waits has to write all unsynced bytes once more.
    pub(crate) fn fills(&self) -> bool {
        if !self.needs_sync() || self.syncing.is_some() {
            return false;
        }
        let part = self.file.header().ring_bytes / SYNCED_PARTS;
        self.lanes.iter().any(|is| {
            let unsynced = is.taken.saturating_sub(is.synced);
            // Where clients write the copy all the time, the disk is theirs.
            let is_copied = || is.saved > is.taken.saturating_sub(SYNCED_BESIDE_COPY);
            unsynced >= part || self.copy.is_some() && unsynced >= SYNCED_BESIDE_COPY && !is_copied()
        })
    }

    /// Notes what is synced. `all`: all that is taken; `synced`: syncs of the image that have ended; `asked`: one that
    /// was asked for just now.
    pub(crate) fn on_synced(&mut self, all: bool, synced: u64, asked: Option<u64>) {
        let ended = self.syncing.is_some_and(|number| number <= synced);
        if all || ended {
            self.syncing = None;
        }
        let syncing = self.syncing.is_some();
        for is in &mut self.lanes {
            is.synced = match () {
                () if all => is.taken,
                () if ended => is.syncing.max(is.synced),
                () => is.synced,
            };
            if asked.is_some() && !syncing {
                is.syncing = is.taken;
            }
        }
        self.syncing = self.syncing.or(asked);
    }
}
