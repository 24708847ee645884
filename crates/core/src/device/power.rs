//! Losing power, and coming back: what of the rooms is left, and what each takes back.

use super::{Device, SetupError, outside};
use crate::border::Output;
use crate::events::{EventQueue, LANE_PLACES};
use crate::fast::{ControlBlock, LogRemains};
use crate::flaw::Injected;
use crate::ftl::{Flaw, Ftl, RecoveryReport};
use crate::memory::{Note, Use};
use crate::power::{Destaged, Dump, Identity, Remains, buffer_energy_needed};
use crate::profile::Profile;
use tidewater_nand::Medium;

impl<M: Medium> Device<M> {
    /// What it is, to be stored beside its flash: see [`Remains::from_flash`].
    pub fn identity(&self) -> Identity {
        Identity { options: self.cx.options, plan: self.plan, unit_size: self.profile.ftl.unit_size }
    }

    /// The power fails now. Programs and erases under way are torn; what was only in volatile memory is gone.
    ///
    /// # Panics
    /// When the device keeps no stamps: it could not be brought back.
    pub fn cut_power(self) -> Remains<M> {
        let joules = self.profile.buffer.energy;
        self.cut_power_with(joules, u64::MAX)
    }

    /// As [`Device::cut_power`], when the capacitors of the write buffer hold so many joules, less than `[buffer]
    /// energy` because they have aged: the dump is cut short then, and what it lacks is lost.
    ///
    /// # Panics
    /// As [`Device::cut_power`].
    pub fn cut_power_on(self, joules: f64) -> Remains<M> {
        self.cut_power_with(joules, u64::MAX)
    }

    /// As [`Device::cut_power`], but stored energy is used up after so many events of flash of the byte window's dump,
    /// because the capacitors were not charged again yet, or have aged.
    ///
    /// # Panics
    /// As for [`Device::cut_power`].
    pub fn cut_power_in_dump(self, events: u64) -> Remains<M> {
        let joules = self.profile.buffer.energy;
        self.cut_power_with(joules, events)
    }

    /// The power fails: so many joules for the write buffer's dump, and energy for so many events of the byte window's.
    fn cut_power_with(mut self, joules: f64, window_events: u64) -> Remains<M> {
        assert!(self.cx.options.stamps, "a device without stamps can't be recovered: set Options::stamps");
        let mut energy = 0.0;
        // Before recovery has ended nothing has changed what it comes back from.
        let mut log = std::mem::take(&mut self.restored_log);
        if log.is_empty() {
            if self.fast.survives() {
                energy = self.fast.destage_on_stored_energy(&mut self.cx, &mut self.ftl);
            }
            let left = |block: ControlBlock| vec![LogRemains::destaged(block)];
            log = self.fast.control_blocks().into_iter().map(left).collect();
        }
        let window_dump = self.window.dump_on_stored_energy(&mut self.cx, &mut self.ftl, window_events);
        energy += window_dump.energy;
        let window = self.window.remains();
        let kept = self.window.still_kept();
        let (dumped, dump_events) = (window_dump.pages, window_dump.events);
        let destaged = self.untaken_pages();
        // What came back before and was not taken yet is where it was dumped.
        let restored = self.restored.len();
        let (mut buffered, deallocations) = if self.block.caches.survives {
            // Rows on their way to flash are in the same memory until they are programmed; so are deallocations, or
            // what they took from the buffer would leave older content behind.
            let mut pages = self.restored;
            pages.extend(self.ftl.staged());
            pages.extend(self.block.caches.write.contents());
            (pages, self.ftl.staged_deallocations())
        } else {
            (Vec::new(), Vec::new())
        };
        let dumps = buffer_energy_needed(&self.profile).is_some();
        let dump = if dumps { Dump::of(&self.profile, (buffered.len() - restored) as u64, joules) } else { None };
        // What was lost is reported once recovery has ended.
        let mut dump_lost = if self.ftl.is_recovering() { self.dump_lost } else { 0 };
        if let Some(dump) = dump {
            buffered.truncate(restored + dump.pages as usize);
            dump_lost += dump.lost;
        }
        let (options, plan, at) = (self.cx.options, self.plan, self.cx.now);
        let unit_size = self.profile.ftl.unit_size;
        let medium = self.ftl.cut_power();
        Remains {
            options,
            plan,
            unit_size,
            at,
            buffered,
            deallocations,
            log,
            destaged,
            dumped,
            dump_events,
            window,
            kept,
            energy,
            dump,
            dump_lost,
            policy: self.policy,
            medium,
        }
    }

    /// The log pages among the outputs that were not taken, with their bytes.
    fn untaken_pages(&self) -> Vec<Destaged> {
        let pages = self.cx.outputs.iter().filter_map(|output| match *output {
            Output::Store { function, lpn, number, epoch, page } => {
                let mut bytes = vec![0; page.len as usize].into_boxed_slice();
                self.fast.read_ring(function.into(), page.lane.into(), page.offset, &mut bytes);
                Some(Destaged { function, lpn, number, epoch, page, bytes })
            }
            _ => None,
        });
        pages.collect()
    }

    /// Brings a device back from what is left of it. It takes commands into its queues at once, and works on them when
    /// recovery is done: drive it as always.
    ///
    /// # Errors
    /// When the profile does not fit the remains.
    pub fn power_on(profile: &Profile, remains: Remains<M>) -> Result<Device<M>, SetupError> {
        Device::power_on_with(profile, remains, Injected::NONE)
    }

    /// As [`Device::power_on`], with a recovery that is broken on purpose: for tests of the tests.
    ///
    /// # Errors
    /// As for [`Device::power_on`].
    #[doc(hidden)]
    pub fn power_on_with(profile: &Profile, remains: Remains<M>, flaw: Injected<Flaw>) -> Result<Self, SetupError> {
        profile.check().map_err(|e| SetupError(e.to_string()))?;
        let (options, plan) = (remains.options, remains.plan);
        let mut profile = profile.clone();
        profile.nand.blocks_per_plane = plan.blocks_per_plane;
        if profile.nand != *remains.medium.config() {
            return Err(SetupError("the profile's [nand] is not that of the drive that lost its power".into()));
        }
        if profile.ftl.unit_size != remains.unit_size {
            return Err(SetupError(
                "the profile's [ftl] unit_size is not that of the drive that lost its power".into(),
            ));
        }
        if !remains.buffered.is_empty() && profile.buffer.write_policy == "none" {
            return Err(SetupError("pages survived in a write buffer, and the profile has none for them".into()));
        }
        let mut events = EventQueue::new(LANE_PLACES);
        let deallocations = remains.deallocations;
        let ftl = Ftl::power_on(&profile, remains.medium, &plan, remains.at, &mut events, flaw, deallocations);
        let device = Device::assemble(profile, options, plan, ftl, events, remains.at)?;
        let mut device = outside::put(device, remains.policy.as_ref())?;
        device.restored = remains.buffered;
        if remains.dump_lost > 0 {
            device.dump_lost = remains.dump_lost;
            let text = format!(
                "the dump at the last power loss was cut short: {} pages that had been promised are lost; the \
                 capacitors hold less than [buffer] energy says",
                remains.dump_lost
            );
            device.notes.push(Note { placed: Use::WriteBuffer, downgrade: true, text });
        }
        if remains.window.is_some_and(|left| !device.window.resume(*left)) {
            let text = "the profile's [window] size and entries are not those of the drive that lost its power";
            return Err(SetupError(text.into()));
        }
        if let Some(kept) = remains.kept {
            let units = device.ftl.data_units();
            device.window.keep(*kept, units)?;
        }
        let functions = device.fast.functions();
        let fast = &device.profile.fast;
        let fits =
            remains.log.iter().zip(functions).all(|(of, function)| of.iter().all(|one| one.block.fits(function, fast)));
        // Where nothing of the fast side was stored, it is as it was when the drive was made.
        if !(remains.log.is_empty() || remains.log.len() == functions.len() && fits) {
            let text = "[fast] functions, size, lanes, queue_size and log_size have no room for the log that the \
                        drive had when it lost its power";
            return Err(SetupError(text.into()));
        }
        device.restored_log = remains.log;
        if !device.is_recovering() {
            device.take_back();
        }
        Ok(device)
    }

    /// Pages of the write buffer that the dump at the last power loss lacked. 0: it was whole, or there was none.
    pub fn dump_lost(&self) -> u64 {
        self.dump_lost
    }

    /// Whether recovery is still under way: of the map, or of the byte window's entries.
    #[inline]
    pub fn is_recovering(&self) -> bool {
        self.ftl.is_recovering() || self.window.is_restoring()
    }

    /// What the last recovery did, once it has ended.
    pub fn recovery_report(&self) -> Option<RecoveryReport> {
        self.ftl.recovery_report()
    }

    /// Recovery has ended: what survived in the write buffer goes back there, and commands are taken.
    pub(super) fn take_back(&mut self) {
        let log = std::mem::take(&mut self.restored_log);
        self.fast.take_back_log(&mut self.cx, &mut self.ftl, log);
        for (lpn, version) in std::mem::take(&mut self.restored) {
            self.block.caches.write.restore(lpn, version);
        }
        let progress = self.window.begin_restoring(&mut self.cx, &mut self.ftl);
        self.on_progress(progress);
        self.fetch();
        self.after_flash();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Options;
    use crate::profile::builtin;
    use tidewater_base::Instant;
    use tidewater_nand::Nand;

    /// A drive whose write buffer, backed by capacitors, holds this many pages.
    fn with_buffered(pages: u64) -> Device<Nand> {
        let mut profile = builtin("tiny").expect("it is built in");
        profile.set("memory.dram.survives", "by-capacitors").expect("it may be set");
        profile.buffer.write_watermark = 1.0;
        let mut device = Device::new(&profile, Options { stamps: true, ..Options::default() }).expect("it fits");
        for page in 0..pages {
            let sqe = tidewater_wire::nvme::Sqe::write(page as u16, 8 * page, 7);
            let submission = crate::host::Submission::new(sqe, 100 + page);
            device.handle(device.now(), crate::Input::Submit { queue: 0, submission }).expect("there is room");
            while let Some(at) = device.deadline() {
                device.handle(at, crate::Input::Timer).expect("a timer is taken");
                while device.poll().is_some() {}
            }
        }
        assert_eq!(device.write_buffer().len() as u64, pages);
        device
    }

    fn back(profile: &Profile, remains: Remains<Nand>) -> Device<Nand> {
        let mut device = Device::power_on(profile, remains).expect("the same profile");
        while device.is_recovering() {
            let at = device.deadline().expect("it recovers");
            device.handle(at, crate::Input::Timer).expect("a timer is taken");
        }
        device
    }

    #[test]
    fn a_dump_that_is_cut_short_never_counts_as_whole() {
        let device = with_buffered(20);
        let profile = device.profile.clone();
        let whole = device.clone().cut_power();
        let dump = whole.dump().expect("capacitors back it");
        assert!(dump.is_whole() && dump.pages == 20 && dump.energy <= profile.buffer.energy, "{dump:?}");
        assert!(dump.time >= profile.nand.program_time[0], "{dump:?}");
        let safe = back(&profile, whole);
        assert_eq!((safe.dump_lost(), safe.content(19)), (0, Some(119)));
        for share in [0.0, 0.3, 0.6, 0.9, 0.999] {
            let remains = device.clone().cut_power_on(dump.energy * share);
            let cut = remains.dump().expect("it was begun");
            assert!(!cut.is_whole() && remains.buffered().len() as u64 == cut.pages, "{cut:?}");
            let aged = back(&profile, remains);
            assert_eq!(aged.dump_lost(), cut.lost);
            let kept = (0..20).filter(|&lpn| aged.content(lpn) == Some(100 + u64::from(lpn))).count() as u64;
            assert_eq!(kept, cut.pages, "each page is there as a whole, or not at all");
            assert!(
                aged.notes().iter().any(|note| note.downgrade && note.text.contains("cut short")),
                "{:?}",
                aged.notes()
            );
        }
    }

    #[test]
    fn a_buffer_that_is_taken_as_volatile_is_said_to_be_and_leaves_nothing() {
        let mut profile = builtin("tiny").expect("it is built in");
        profile.set("memory.dram.survives", "by-capacitors").expect("it may be set");
        let options = Options { stamps: true, payload: true, ..Options::default() };
        let words = |device: &Device<Nand>| {
            let notes = device.notes().iter().filter(|note| note.placed == Use::WriteBuffer);
            notes.map(|note| (note.downgrade, note.text.clone())).collect::<Vec<_>>()
        };
        let safe = Device::new(&profile, options).expect("it fits");
        assert!(words(&safe).iter().all(|(downgrade, _)| !downgrade));
        let volatile = Device::new(&profile, Options { volatile_buffer: true, ..options }).expect("it fits");
        let [(true, text)] = &words(&volatile)[..] else { panic!("{:?}", words(&volatile)) };
        assert!(text.contains("lost with power"), "{text}");

        for (mut device, survive) in [(safe, 1), (volatile, 0)] {
            let submission = crate::host::Submission::new(tidewater_wire::nvme::Sqe::write(1, 0, 7), 9);
            device.handle(Instant::ZERO, crate::Input::Submit { queue: 0, submission }).expect("the queue is empty");
            while device.write_buffer().is_empty() {
                let at = device.deadline().expect("it works on the write");
                device.handle(at, crate::Input::Timer).expect("a timer is taken");
            }
            assert_eq!(device.unprogrammed().collect::<Vec<_>>(), [(0, 9)]);
            assert_eq!(device.cut_power().buffered().len(), survive);
        }
    }
}
