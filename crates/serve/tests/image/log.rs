//! The log of the fast side: what its host knows of it, and what must be left of it after a crash.

use crate::image::recording::Recording;
use crate::image::rig::{HostEvent, Rig, tiny};
use tidewater_base::Rng;
use tidewater_core::border::LogInput;
use tidewater_core::device::Input;
use tidewater_core::fast::{Content, PAGE_HEADER, bar};
use tidewater_core::profile::Profile;
use tidewater_core::subsystem::Unit;
use tidewater_serve::image::{ImageOptions, Target};
use tidewater_testkit::profile::with;

pub const LANES: usize = 2;

/// A profile with a log of two lanes whose ring survives: small, so that it goes round all the time.
pub fn with_log(profile: Profile) -> Profile {
    let settings = [
        "memory.sram.size=64KiB",
        "memory.sram.survives=by-capacitors",
        "fast.size=8KiB",
        "fast.queue_size=2KiB",
        "fast.log_size=64KiB",
        "fast.lanes=2",
        "fast.partial_after=300us",
    ];
    with(profile, &settings)
}

fn byte(lane: usize, offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8 ^ (lane as u8) << 7
}

/// What the host knows, by lane.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogModel {
    /// The end of what it has stored.
    pub stored: [u64; LANES],
    /// The credit that it has seen: that outlives the process.
    pub credit: [u64; LANES],
    /// Up to where it was in the image when the last flush began that has ended: that outlives the machine.
    pub flushed: [u64; LANES],
    /// What it has no use for any more.
    pub trimmed: [u64; LANES],
    flushes: Vec<(u64, [u64; LANES])>,
}

impl LogModel {
    pub fn begin_flush(&mut self, command: u64, stored: [u64; LANES]) {
        self.flushes.push((command, stored));
    }

    pub fn complete_flush(&mut self, command: u64) {
        let Some(place) = self.flushes.iter().position(|(of, _)| *of == command) else { return };
        let (_, stored) = self.flushes.remove(place);
        for (flushed, stored) in self.flushed.iter_mut().zip(stored) {
            *flushed = stored.max(*flushed);
        }
    }

    /// What the host has stored, or is about to, has seen, and does not need. A host that has just begun knows nothing
    /// of lanes that it did not use yet: what is known of them stays.
    pub fn learn(&mut self, stored: [u64; LANES], credit: [u64; LANES], trimmed: [u64; LANES]) {
        for lane in 0..LANES {
            self.stored[lane] = self.stored[lane].max(stored[lane]).max(credit[lane]);
            self.credit[lane] = self.credit[lane].max(credit[lane]);
            self.trimmed[lane] = self.trimmed[lane].max(trimmed[lane]);
        }
    }

    /// What was found after a crash is there, and there to stay.
    fn after_crash(ends: [u64; LANES], trimmed: [u64; LANES]) -> LogModel {
        LogModel { stored: ends, credit: ends, flushed: [0; LANES], trimmed, flushes: Vec::new() }
    }
}

impl Rig {
    /// Whether there is a log.
    pub fn has_log(&self) -> bool {
        self.device.fast().is_enabled()
    }

    /// The host stores a piece, or trims, or has no use for what it has not stored yet either.
    pub fn use_log(&mut self, rng: &mut Rng) {
        let lane = rng.below(LANES as u64) as usize;
        let LogModel { mut stored, credit: seen, mut trimmed, .. } = self.model.log.clone();
        let credit = seen[lane];
        if rng.below(12) == 0 {
            trimmed[lane] += rng.below(credit.saturating_sub(trimmed[lane]) + 1);
            self.say(&HostEvent::Log { stored, credit: seen, trimmed });
            self.device.trim_log(0, lane, trimmed[lane]);
            return;
        }
        let setup = *self.device.fast().functions()[0].setup();
        let from = stored[lane].max(credit);
        if self.skips && rng.below(16) == 0 {
            let to = from + 1 + rng.below(3_000);
            (stored[lane], trimmed[lane]) = (to, to);
            self.say(&HostEvent::Log { stored, credit: seen, trimmed });
            assert!(
                self.device
                    .handle(self.now(), Input::Log { function: 0, input: LogInput::Skip { lane: lane as u8, to } })
                    .is_ok()
            );
            return;
        }
        let end = (from + 1 + rng.below(700))
            .min(credit + setup.queue_size)
            .min((from / setup.ring_size + 1) * setup.ring_size);
        if end > from {
            stored[lane] = end;
            self.say(&HostEvent::Log { stored, credit: seen, trimmed });
            let bytes: Vec<u8> = (from..end).map(|offset| byte(lane, offset)).collect();
            let address = bar::ring_address(&setup, lane, from);
            let input = Input::Store { function: 0, address, content: Content::Bytes(&bytes) };
            assert!(self.device.handle(self.now(), input).is_ok());
        }
    }

    /// Where each lane ends in the image. `all`: what the host keeps goes there, too.
    pub fn stored(&mut self, all: bool) -> [u64; LANES] {
        let image = self.payload.image_mut();
        if all && !self.device.is_recovering() {
            let stored = image.store_logs(self.device.fast(), |_, _| false);
            assert!(stored.is_ok() || self.faulty, "the image fails without an injected fault");
        }
        std::array::from_fn(|lane| image.stored_log(0, lane).unwrap_or(0))
    }

    /// The host looks at its credit.
    pub fn see_credit(&mut self) {
        let Some(function) = self.device.fast().function(0) else { return };
        let LogModel { stored, mut credit, trimmed, .. } = self.model.log.clone();
        for (i, (seen, lane)) in credit.iter_mut().zip(function.lanes()).enumerate() {
            let credit = self.payload.image().stored_log(0, i).unwrap_or(lane.credit()).min(lane.credit());
            assert!(credit >= *seen, "credit goes back");
            *seen = credit;
        }
        if credit != self.model.log.credit {
            self.say(&HostEvent::Log { stored, credit, trimmed });
        }
    }

    /// After a crash: what there is of the log is what was written, without a gap, from where the host has trimmed to
    /// the end of what it must be. `ended`: only the process has.
    pub fn check_log(&mut self, before: &LogModel, after: &LogModel, ended: bool) -> Result<(), String> {
        if !self.has_log() {
            return Ok(());
        }
        let mut ends = [0; LANES];
        let mut firsts: [Option<u64>; LANES] = [None; LANES];
        let pages: Vec<_> = self.device.fast().functions()[0].log().pages().collect();
        for (number, page) in pages {
            let lane = usize::from(page.lane);
            if page.len == 0 {
                return Err(format!("page {number} of the log is lost"));
            }
            if firsts[lane].is_some() && !leads_to(ends[lane], page.offset, after.trimmed[lane]) {
                return Err(format!("page {number}: {page:?} does not follow {}", ends[lane]));
            }
            firsts[lane] = Some(firsts[lane].unwrap_or(page.offset));
            ends[lane] = page.end();
            let lpn = self.device.fast().functions()[0].log().lpn(number);
            let mut found = vec![0; page.len as usize];
            let unit = Unit { lpn, skip: PAGE_HEADER, len: page.len, at: 0 };
            let place = self.device.locate(lpn);
            let read = self.payload.read(unit, place, &mut found);
            read.map_err(|error| format!("page {number}, {page:?}, can't be read: {error:?} at {place:?}"))?;
            check(lane, page.offset, &found)?;
        }
        for (lane, end) in ends.iter_mut().enumerate() {
            let of = &self.device.fast().functions()[0].lanes()[lane];
            let (durable, released) = (of.durable(), of.released());
            if firsts[lane].is_some() && !leads_to(*end, durable, after.trimmed[lane]) {
                return Err(format!("lane {lane}: pages end at {end}, and it ends on flash at {durable}"));
            }
            let mut found = vec![0; (released - durable) as usize];
            self.device.fast().read_ring(0, lane, durable, &mut found);
            check(lane, durable, &found)?;
            let first = firsts[lane].unwrap_or(durable);
            let must = if ended { before.credit[lane].max(before.flushed[lane]) } else { before.flushed[lane] };
            if released < must || released > after.stored[lane] || first > after.trimmed[lane] {
                let what = format!("{first}..{released} ({durable} on flash), must reach {must}; {after:?}");
                return Err(format!("lane {lane} holds {what}"));
            }
            *end = released;
        }
        self.model.log = LogModel::after_crash(ends, after.trimmed);
        Ok(())
    }
}

/// Whether a lane's log may go on at `to` behind what ends at `end`: there, or at what the host needs nothing before.
fn leads_to(end: u64, to: u64, trimmed: u64) -> bool {
    end == to || end < to && to <= trimmed
}

fn check(lane: usize, from: u64, found: &[u8]) -> Result<(), String> {
    let wrong = (from..).zip(found).find(|(offset, found)| **found != byte(lane, *offset));
    wrong.map_or(Ok(()), |(offset, _)| Err(format!("byte {offset} of lane {lane} is another")))
}

/// The end of what a lane was credited, and of what the image has of it.
fn ends(rig: &Rig) -> (u64, Option<u64>) {
    let lane = &rig.device.fast().functions()[0].lanes()[0];
    (lane.credit(), rig.payload.image().stored_log(0, 0))
}

#[test]
fn what_the_host_keeps_is_stored_when_it_is_asked_for_or_on_flash() {
    let profile = with_log(tiny());
    let target = Target::Storage(Box::new(Recording::new(Vec::new()).0), "test");
    let mut rig = Rig::create(target, &profile, 1, ImageOptions::default()).expect("it is made");
    rig.keeps_rings = true;
    rig.tick();
    let store = |rig: &mut Rig, from: u64| {
        let setup = *rig.device.fast().functions()[0].setup();
        let address = bar::ring_address(&setup, 0, from);
        let input = Input::Store { function: 0, address, content: Content::Bytes(&[7; 300]) };
        assert!(rig.device.handle(rig.now(), input).is_ok());
        rig.tick_until(|rig| ends(rig).0 == from + 300);
    };
    store(&mut rig, 0);
    assert_eq!(ends(&rig), (300, Some(0)), "it waits for a page to fill");
    assert_eq!(rig.stored(true)[0], 300);
    store(&mut rig, 300);
    assert_eq!(ends(&rig), (600, Some(300)));
    rig.come_to_rest();
    assert_eq!(ends(&rig), (600, Some(600)), "it is on flash");
    // More than a quarter of a ring of 4 KiB is not left to the host.
    for at in 2..6 {
        store(&mut rig, 300 * at);
    }
    assert!(ends(&rig).1.is_some_and(|stored| stored + 1024 >= ends(&rig).0), "{:?}", ends(&rig));
}
