//! The write buffer and the read cache as a pair: what is in neither is on flash.

use crate::buffer::{Buffer, Fault, Outside, Setting};
use crate::content::Whereabouts;
use crate::ftl::Ftl;
use crate::memory::{Placement, Use};
use crate::profile::{MemoryKind, Profile};
use std::collections::BTreeMap;
use tidewater_nand::Medium;

/// Which page the read cache keeps in which unit of host memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    of: BTreeMap<u32, u32>,
    free: Vec<u32>,
}

impl Places {
    /// All units are free.
    pub(crate) fn reset(&mut self, units: u32) {
        self.of.clear();
        self.free.clear();
        self.free.extend((0..units).rev());
    }

    pub(crate) fn get(&self, lpn: u32) -> Option<u32> {
        self.of.get(&lpn).copied()
    }

    /// A unit for a page that has none.
    pub(crate) fn take(&mut self, lpn: u32) -> Option<u32> {
        let unit = self.free.pop()?;
        let before = self.of.insert(lpn, unit);
        assert!(before.is_none(), "page {lpn} is in host memory twice");
        Some(unit)
    }

    pub(crate) fn release(&mut self, lpn: u32) {
        if let Some(unit) = self.of.remove(&lpn) {
            self.free.push(unit);
        }
    }
}

/// What the policy of a use is made for.
fn setting(profile: &Profile, placement: &Placement, units: u32, used: Use) -> Setting {
    let unit_size = u64::from(profile.ftl.unit_size);
    let pages = |used| placement.of(used).map_or(0, |placed| (placed.size / unit_size) as usize);
    Setting {
        capacity: pages(used),
        block: profile.block_units(),
        units,
        cached: pages(Use::ReadCache),
        sequential: (profile.buffer.cbm_sequential / unit_size).max(1) as u32,
        profile: profile.buffer.clone(),
    }
}

/// Whether a use lives in memory that the host lends.
fn is_lent(placement: &Placement, used: Use) -> bool {
    placement.of(used).is_some_and(|placed| placed.memory.kind == MemoryKind::Host) && used.is_carried()
}

/// The write buffer and the read cache.
#[derive(Clone, Debug)]
pub(crate) struct Caches {
    pub(crate) write: Buffer,
    pub(crate) read: Buffer,
    /// Their memories among the device's ports; used only where there is one.
    pub(crate) write_port: usize,
    pub(crate) read_port: usize,
    /// What is in the write buffer outlives a power loss.
    pub(crate) survives: bool,
    /// The oldest command that waits for room found none, and no page has been taken out of the write buffer since but
    /// to be written.
    pub(crate) is_stuck: bool,
    /// The read cache lives in host memory, in these units.
    pub(crate) lent: bool,
    pub(crate) places: Places,
    /// Pages of one read that the read cache has in host memory, until they are asked for.
    pub(crate) hits: Vec<u32>,
}

impl Caches {
    /// The empty caches of a drive of so many logical pages. `ports`: the memories of the write buffer and of the read
    /// cache. What lives in host memory has no room until the host lends some.
    pub(crate) fn new(
        profile: &Profile,
        placement: &Placement,
        (write_port, read_port): (usize, usize),
        units: u32,
        stamps: bool,
    ) -> Caches {
        let setting = |used| setting(profile, placement, units, used);
        let mut write = Buffer::new(&profile.buffer.write_policy, &setting(Use::WriteBuffer), stamps);
        let mut read = Buffer::new(&profile.buffer.read_policy, &setting(Use::ReadCache), false);
        let lent = is_lent(placement, Use::ReadCache);
        if lent {
            read.set_capacity(0);
        }
        if is_lent(placement, Use::WriteBuffer) {
            write.set_capacity(0);
        }
        Caches {
            write,
            read,
            write_port,
            read_port,
            survives: placement.survives(Use::WriteBuffer),
            is_stuck: false,
            lent,
            places: Places::default(),
            hits: Vec::new(),
        }
    }

    /// Gives the write buffer, which is empty, a policy from outside; `units` and `stamps` as for [`Caches::new`].
    ///
    /// # Errors
    /// When the policy can't be made.
    pub(crate) fn set_policy(
        &mut self,
        policy: &Outside,
        profile: &Profile,
        placement: &Placement,
        units: u32,
        stamps: bool,
    ) -> Result<(), Fault> {
        let setting = setting(profile, placement, units, Use::WriteBuffer);
        self.write = Buffer::of(policy.make(&setting)?, &setting, stamps);
        if is_lent(placement, Use::WriteBuffer) {
            self.write.set_capacity(0);
        }
        Ok(())
    }

    /// Takes a page out of the read cache, because it is written or deallocated.
    #[inline(always)]
    pub(crate) fn uncache(&mut self, lpn: u32) {
        if !self.read.is_empty() && self.read.remove(lpn) {
            if self.lent {
                self.places.release(lpn);
            } else if self.write.cooperates() {
                self.write.uncached(lpn);
            }
        }
    }

    /// Puts a page into the read cache.
    pub(crate) fn cache(&mut self, lpn: u32) {
        if self.write.cooperates() {
            let (cache, buffer) = (&mut self.read, &mut self.write);
            if cache.fill(lpn, |gone| buffer.uncached(gone)) {
                buffer.cached(lpn);
            }
        } else {
            self.read.fill(lpn, |_| ());
        }
    }

    /// Where the content of a logical page is, as a read would find it now; needs stamps.
    pub(crate) fn locate<M: Medium>(&self, ftl: &Ftl<M>, lpn: u32) -> Whereabouts {
        match self.write.version(lpn) {
            Some(version) => Whereabouts::Buffered { version },
            None => ftl.locate(lpn),
        }
    }
}
