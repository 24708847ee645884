//! The dump of a write buffer that capacitors back: the time and the energy that it takes, and what is left where they
//! do not last.
//!
//! The pages go to erased blocks that are set aside for them, a row on each die in turn, in the order in which they
//! were written, and behind them one more row that says that all of them are there: a dump without it is not whole,
//! however much of it can be read. Assumed: the slowest pages of the flash, transfers one after another on each
//! channel, and an erase that is under way and ends first. Those blocks are beside the flash that the translation layer
//! has; their wear, and reading them at power-on, are not modelled.

use crate::profile::{Profile, Survives};
use tidewater_base::Duration;

/// What a dump was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dump {
    /// Pages that were written out.
    pub pages: u64,
    /// Pages for which the energy did not last.
    pub lost: u64,
    /// How long it took.
    pub time: Duration,
    /// Joules that it took.
    pub energy: f64,
}

impl Dump {
    /// Whether its last row was written: all pages are there.
    pub fn is_whole(&self) -> bool {
        self.lost == 0
    }

    /// The dump of so many pages on so many joules. `None`: there is nothing to dump.
    pub(crate) fn of(profile: &Profile, pages: u64, energy: f64) -> Option<Dump> {
        if pages == 0 {
            return None;
        }
        let per_row = units_per_row(profile);
        let rows = pages.div_ceil(per_row);
        let (time, needed) = cost(profile, rows + 1);
        if needed <= energy {
            return Some(Dump { pages, lost: 0, time, energy: needed });
        }
        // As many rows as it lasts for; the one that is begun then is torn.
        let (mut fits, mut too_many) = (0, rows + 1);
        while fits + 1 < too_many {
            let middle = fits.midpoint(too_many);
            if cost(profile, middle).1 <= energy { fits = middle } else { too_many = middle }
        }
        let written = (fits * per_row).min(pages);
        // All pages, but not the row that says so: it must not be relied on.
        let lost = (pages - written).max(1);
        Some(Dump { pages: pages - lost, lost, time: cost(profile, fits).0, energy })
    }
}

/// Pages of a row.
fn units_per_row(profile: &Profile) -> u64 {
    let nand = &profile.nand;
    u64::from((nand.page_size / profile.ftl.unit_size.max(1) * nand.planes).max(1))
}

/// Time and joules for so many rows.
fn cost(profile: &Profile, rows: u64) -> (Duration, f64) {
    let (nand, fast) = (&profile.nand, &profile.fast);
    let dies = u64::from(nand.dies()).max(1);
    let slowest = *nand.program_time.iter().max().expect("three kinds");
    let in_turn = if nand.multi_plane { 1 } else { u64::from(nand.planes) };
    let row_bytes = f64::from((nand.page_size + nand.oob_size) * nand.planes);
    let transfers = row_bytes / nand.bus_rate as f64 * dies.div_ceil(u64::from(nand.channels)) as f64;
    let round = slowest * in_turn + Duration::from_secs_f64(transfers);
    let time = nand.erase_time + round * rows.div_ceil(dies);
    let programs = rows * u64::from(nand.planes);
    (time, programs as f64 * fast.program_energy + time.as_secs_f64() * fast.power)
}

/// Joules that dumping a full write buffer takes, with the rows on their way to flash, which are in the same memory.
/// `None`: no capacitors back it.
pub fn buffer_energy_needed(profile: &Profile) -> Option<f64> {
    let buffer = &profile.buffer;
    let memory = profile.memory(&buffer.write_memory)?;
    if buffer.write_policy == "none" || memory.survives != Survives::ByCapacitors {
        return None;
    }
    let pages = buffer.write_size.div_ceil(u64::from(profile.ftl.unit_size.max(1)));
    let under_way = u64::from(profile.nand.dies()) * u64::from(profile.flash.programs_per_die) * 2 + 4;
    let rows = pages.div_ceil(units_per_row(profile)) + under_way;
    Some(cost(profile, rows + 1).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backed() -> Profile {
        let mut profile = Profile::generic();
        profile.set("memory.dram.survives", "by-capacitors").expect("it may be");
        profile
    }

    #[test]
    fn a_capacitor_that_is_too_small_for_the_buffer_is_refused_with_what_is_needed() {
        let mut profile = backed();
        profile.check().expect("the default lasts for the default");
        let needed = buffer_energy_needed(&profile).expect("capacitors back it");
        profile.buffer.energy = needed * 0.99;
        let error = profile.check().unwrap_err().to_string();
        assert!(error.contains("[buffer] energy") && error.contains(&format!("{needed:.4} J")), "{error}");
        profile.buffer.energy = needed;
        profile.check().unwrap();
        profile.buffer.write_size *= 2;
        assert!(profile.check().is_err(), "a larger buffer needs more");
        // Nothing to dump: in memory that keeps its content by itself or loses it, or without a buffer.
        profile.buffer.write_policy = "none".into();
        profile.check().unwrap();
        let mut volatile = Profile::generic();
        volatile.buffer.energy = 0.0;
        volatile.check().unwrap();
    }

    #[test]
    fn a_dump_costs_what_its_rows_cost_and_is_whole_only_with_the_last() {
        let profile = backed();
        assert_eq!(Dump::of(&profile, 0, 1.0), None);
        let per_row = units_per_row(&profile);
        let pages = 100 * per_row;
        let whole = Dump::of(&profile, pages, 1.0).expect("there are pages");
        assert!(whole.is_whole() && whole.pages == pages);
        assert_eq!((whole.time, whole.energy), cost(&profile, 101));
        assert_eq!(Dump::of(&profile, pages, whole.energy), Some(whole));
        // All pages would fit, but not the row that says so.
        let (_, all_but_one) = cost(&profile, 100);
        let cut = Dump::of(&profile, pages, all_but_one).expect("there are pages");
        assert_eq!((cut.is_whole(), cut.pages, cut.lost), (false, pages - 1, 1));
        let mut last = u64::MAX;
        for tenth in 0..10 {
            let dump = Dump::of(&profile, pages, whole.energy * f64::from(tenth) / 10.0).expect("there are pages");
            assert_eq!(dump.pages + dump.lost, pages);
            assert!(!dump.is_whole() && dump.lost <= last, "{dump:?}");
            last = dump.lost;
        }
        assert_eq!(Dump::of(&profile, pages, 0.0).expect("there are pages").lost, pages);
    }
}
