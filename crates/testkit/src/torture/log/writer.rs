//! A client of a lane: stores pieces of its stream in any order within its credit, and polls the credit counter.

use tidewater_base::{Duration, Instant, Rng};
use tidewater_wire::vendor::{ControlPage, LanePlace, Role, TransportStatus};

/// The byte at an offset of a lane's stream, as written in an epoch.
pub(super) fn byte(lane: usize, epoch: u64, offset: u64) -> u8 {
    let mixed = (offset ^ (lane as u64) << 50 ^ epoch.wrapping_mul(0x9e37_79b9)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed >> 56) as u8
}

/// The control page as a client reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// The device takes stores.
    pub(super) writable: bool,
    pub(super) epoch: u64,
    pub(super) persisted: u64,
    pub(super) credit: u64,
}

impl View {
    pub(super) fn of(page: &ControlPage, lane: usize) -> View {
        View {
            writable: page.role != Role::Secondary && !page.status.has(TransportStatus::RECOVERING),
            epoch: page.epoch.0,
            persisted: page.lane[lane].persisted,
            credit: page.lane[lane].credit,
        }
    }
}

/// A writer's next step.
pub(super) enum Action {
    /// A store at an address of BAR2.
    Store { address: u64, offset: u64, len: u32 },
    /// A store into the lane's page: regions are released up to here.
    Release { floor: u64 },
    /// An Append command.
    Append { offset: u64, len: u32 },
    /// The host needs nothing before this offset any more.
    Trim { offset: u64 },
    /// It has read the control page, or found no primary to write to.
    Look,
}

/// One writer.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    rng: Rng,
    pub(super) lane: usize,
    /// The epoch that it writes in. `None`: it begins anew.
    epoch: Option<u64>,
    /// The end of what it has decided to write.
    written: u64,
    /// Pieces that it has not stored yet.
    pending: Vec<(u64, u32)>,
    /// The credit counter as it last read it.
    credit: u64,
    pub(super) next_at: Instant,
    trimmed: u64,
    /// It releases what it has written when all of it is stored.
    regions: bool,
    /// The end of the regions that it has released.
    released: u64,
}

impl Writer {
    pub(super) fn new(lane: usize, now: Instant, seed: u64) -> Writer {
        let rng = Rng::new(seed, b"log writer");
        let pending = Vec::new();
        let (regions, released) = (lane % 2 == 1, u64::MAX);
        Writer { rng, lane, epoch: None, written: 0, pending, credit: 0, next_at: now, trimmed: 0, regions, released }
    }

    /// It has lost its device, or its epoch: when it can write again, it begins where the log ends.
    pub(super) fn begin_anew(&mut self) {
        self.epoch = None;
    }

    /// Looks again later.
    pub(super) fn sleep(&mut self, now: Instant) {
        self.next_at = now + Duration::from_us(10 + self.rng.below(50));
    }

    /// Its next action, and when the one after that comes.
    pub(super) fn act(&mut self, now: Instant, place: &LanePlace, view: View) -> Action {
        if !view.writable {
            self.begin_anew();
            self.sleep(now);
            return Action::Look;
        }
        let pause = if self.rng.below(50) == 0 { 400_000 } else { 300 };
        self.next_at = now + Duration::from_ns(1 + self.rng.below(pause));
        if self.epoch != Some(view.epoch) {
            self.epoch = Some(view.epoch);
            self.written = view.persisted;
            self.credit = view.credit;
            self.pending.clear();
            self.released = u64::MAX;
        }
        if self.regions && self.pending.is_empty() && self.released != self.written {
            self.released = self.written;
            return Action::Release { floor: self.written };
        }
        if self.pending.is_empty() && self.rng.below(3) > 0 {
            // After a power loss the credit of a primary begins at 0 and comes back with its peers' reports.
            let room = (self.credit + u64::from(place.queue_bytes)).saturating_sub(self.written);
            if room > 0 {
                self.cut_up(1 + self.rng.clone().below(room));
            }
        }
        if !self.pending.is_empty() {
            let chosen = self.rng.below(self.pending.len() as u64) as usize;
            let (offset, len) = self.pending.swap_remove(chosen);
            if self.rng.below(8) == 0 {
                return Action::Append { offset, len };
            }
            return Action::Store { address: place.address(offset), offset, len };
        }
        self.credit = view.credit;
        if self.rng.below(40) == 0 && self.credit > self.trimmed {
            self.trimmed += self.rng.below(self.credit - self.trimmed + 1);
            return Action::Trim { offset: self.trimmed };
        }
        Action::Look
    }

    /// Cuts the next bytes into pieces of at most a line, none across the end of the window.
    fn cut_up(&mut self, mut len: u64) {
        while len > 0 {
            let line = 64 - self.written % 64;
            let piece = (1 + self.rng.below(64)).min(line).min(len);
            self.pending.push((self.written, piece as u32));
            self.written += piece;
            len -= piece;
        }
    }
}
