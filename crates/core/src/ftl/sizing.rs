//! How much flash a drive needs for a capacity, and what of it is kept back.

use crate::profile::{Mapping, Profile};

/// Logical pages behind the usable capacity, which other rooms have a use for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// All of them: the LBA rings of the fast side, and two areas for dumps.
    pub pages: u64,
    /// Those of one dump of the byte window, which erased flash is kept for.
    pub dump_pages: u64,
}

/// What a drive of `capacity` bytes needs: see [`plan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Usable units.
    pub units: u64,
    /// Superblocks of a die: what the rest of its blocks are spares for.
    pub superblocks_per_die: u32,
    /// Blocks in a plane, spares included.
    pub blocks_per_plane: u32,
    /// Pages behind the usable capacity.
    pub reserved: Reserved,
}

/// Superblocks of a die that the fast side's log has besides: the one that is open for what is destaged.
pub(super) fn log_reserve(profile: &Profile) -> u32 {
    u32::from(profile.fast.is_enabled())
}

/// Superblocks of a die that are kept erased for the byte window's dump, besides what collection works with.
pub(super) fn dump_reserve(profile: &Profile, dump_pages: u64) -> u32 {
    let nand = &profile.nand;
    let units_per_superblock = nand.pages_per_block * nand.planes * (nand.page_size / profile.ftl.unit_size);
    let pages = dump_pages.div_ceil(nand.dies().into());
    pages.div_ceil(units_per_superblock.max(1).into()) as u32
}

/// Superblocks that the map's checkpoints take on the whole drive.
pub fn map_superblocks(profile: &Profile, units: u64) -> u64 {
    if profile.ftl.checkpoint_interval == 0 {
        return 0;
    }
    // Where the map itself is in mapping pages, checkpoints are of their directory.
    let entries = match super::page::map_cache::mapping_pages(profile, units) {
        0 => units,
        pages => pages,
    };
    let segments = entries.div_ceil(u64::from(super::journal::entries_per_segment(profile)));
    super::journal::map_superblocks_of(segments, profile.nand.pages_per_block)
}

/// Sizes a drive. With `[nand] blocks_per_plane` given, the capacity is what it allows (or what is asked for, if that
/// is less); otherwise the blocks follow the capacity. Over-provisioning counts flash that may hold data: spares, map
/// and the reserve that collection works with come on top, so that write amplification meets the published curves at
/// the same figure whatever the size of a superblock.
///
/// # Errors
/// In words, when the capacity does not fit the blocks, or the address space 32 bits.
pub fn plan(profile: &Profile, capacity: u64, reserved: Reserved) -> Result<Plan, String> {
    plan_within(profile, capacity, reserved, true)
}

/// As [`plan`]; without `explain`, a drive with more units than can be mapped is refused without words.
fn plan_within(profile: &Profile, capacity: u64, reserved: Reserved, explain: bool) -> Result<Plan, String> {
    let nand = &profile.nand;
    let unit = u64::from(profile.ftl.unit_size);
    let dies = u64::from(nand.dies());
    let per_superblock = u64::from(nand.pages_per_block * nand.planes * (nand.page_size / profile.ftl.unit_size));
    let slc = super::page::slc_reserve(profile);
    let dump = dump_reserve(profile, reserved.dump_pages);
    let reserve_of = |units: u64| {
        let mapping = super::page::map_cache::pool_per_die(profile, units);
        u64::from(super::page::reserve_per_die(&profile.ftl) + log_reserve(profile) + dump + slc + mapping) * dies
    };
    let held_back = u64::from(super::hybrid::superblocks_beside(&profile.ftl));
    let spares = |blocks: u64| (blocks as f64 * profile.ftl.spare_blocks).ceil() as u64;
    let superblocks = |blocks_per_plane: u64| blocks_per_plane.saturating_sub(spares(blocks_per_plane));
    let fits = |blocks_per_plane: u64, units: u64| {
        let usable = superblocks(blocks_per_plane) * dies;
        if profile.ftl.mapping != Mapping::Page {
            let data = units.div_ceil(per_superblock);
            let log = super::hybrid::log_blocks(&profile.ftl, data);
            return data + log + held_back + map_superblocks(profile, units) <= usable;
        }
        let data = (units as f64 * (1.0 + profile.ftl.over_provisioning) / per_superblock as f64).ceil() as u64;
        data + reserve_of(units) + map_superblocks(profile, units) <= usable
    };
    let units = capacity.div_ceil(unit);
    let (units, superblocks_per_die, blocks) = if nand.blocks_per_plane > 0 {
        let blocks = u64::from(nand.blocks_per_plane);
        let most = u64::from(nand.blocks_per_plane) * dies * per_superblock;
        // The largest capacity that fits, by bisection: the map's share depends on it.
        let (mut low, mut high) = (0, most);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if fits(blocks, middle) { low = middle } else { high = middle - 1 }
        }
        if low == 0 {
            if profile.ftl.mapping != Mapping::Page {
                let log = super::hybrid::log_blocks(&profile.ftl, 1);
                return Err(format!(
                    "[nand] blocks_per_plane = {blocks} leaves no usable capacity: {log} superblocks are RW log blocks \
                     and {held_back} are held back; give more blocks, or a smaller [ftl] log_blocks or merges_max"
                ));
            }
            let reserve = reserve_of(1);
            return Err(format!(
                "[nand] blocks_per_plane = {blocks} leaves no usable capacity: {reserve} superblocks are reserve; give \
                 more blocks or a smaller [ftl] gc_start"
            ));
        }
        if units > low {
            return Err(format!(
                "[drive] capacity of {capacity} bytes does not fit: [nand] blocks_per_plane = {blocks} allows {} bytes \
                 at {:.1} % over-provisioning",
                low * unit,
                profile.ftl.over_provisioning * 100.0
            ));
        }
        (if units == 0 { low } else { units }, superblocks(blocks), blocks)
    } else {
        if units == 0 {
            return Err("neither [drive] capacity nor [nand] blocks_per_plane is given, and no trace or job says how \
                        large the drive must be; give it a size, as in --set drive.capacity=64GiB"
                .into());
        }
        let (mut low, mut high) = (1u64, 2u64);
        while !fits(high, units) {
            high *= 2;
            if high > 1 << 32 {
                return Err(format!("[drive] capacity of {capacity} bytes is beyond any geometry"));
            }
        }
        while low < high {
            let middle = (low + high) / 2;
            if fits(middle, units) { high = middle } else { low = middle + 1 }
        }
        // Factory-bad blocks are expected: the spares must cover them with room to spare.
        let bad = (low as f64 * nand.factory_bad_rate * 1.5).ceil() as u64;
        (units, superblocks(low), low + bad)
    };
    let per_superblock_address = nand.pages_per_block.next_power_of_two() as u64
        * u64::from((nand.planes * (nand.page_size / profile.ftl.unit_size)).next_power_of_two());
    if blocks * dies * per_superblock_address >= u64::from(u32::MAX) - 1 || units >= u64::from(u32::MAX) - 1 {
        let flash = blocks * dies * per_superblock * unit;
        return Err(if explain { too_many_units(profile, capacity, reserved, flash) } else { String::new() });
    }
    Ok(Plan { units, superblocks_per_die: superblocks_per_die as u32, blocks_per_plane: blocks as u32, reserved })
}

/// Why `flash` bytes cannot be mapped, how much can, and by which unit it could be done.
fn too_many_units(profile: &Profile, capacity: u64, reserved: Reserved, flash: u64) -> String {
    let size = |bytes: u64| match bytes {
        0..GIB => format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64),
        GIB..TIB => format!("{:.1} GiB", bytes as f64 / GIB as f64),
        _ => format!("{:.1} TiB", bytes as f64 / TIB as f64),
    };
    let with = |unit_size: u32| Profile {
        ftl: crate::profile::FtlProfile { unit_size, ..profile.ftl.clone() },
        ..profile.clone()
    };
    // The largest capacity that units of this size can map, in whole GiB. 0: not even a small one, where the blocks are
    // given.
    let largest = |unit_size: u32| {
        let (mut low, mut high) = (0, capacity / GIB);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if plan_within(&with(unit_size), middle * GIB, reserved, false).is_ok() {
                low = middle
            } else {
                high = middle - 1
            }
        }
        low * GIB
    };
    let (unit, page) = (profile.ftl.unit_size, profile.nand.page_size);
    let kib = |bytes: u32| tidewater_base::units::format_bytes(bytes.into());
    let why = format!("{} of flash in units of {} need more than 32-bit map entries", size(flash), kib(unit));
    let larger = (1..).map(|doublings| unit << doublings).take_while(|&larger| larger <= page);
    let mut enough = larger.filter(|&larger| plan_within(&with(larger), capacity, reserved, false).is_ok());
    let most = match largest(unit) {
        0 => String::new(),
        most => format!(" (they map a capacity of at most {})", size(most)),
    };
    match (enough.next(), largest(page)) {
        (Some(larger), _) => format!("{why}{most}; use [ftl] unit_size = {}", kib(larger)),
        (None, 0) => format!("{why}, and so do units as large as a page ({}); give it fewer blocks", kib(page)),
        (None, last) => format!(
            "{why}{most}; use a capacity of at most {}, which takes units as large as a page ([ftl] unit_size = {})",
            size(last),
            kib(page)
        ),
    }
}

const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_that_cannot_be_mapped_is_told_what_can() {
        let said = |settings: &[(&str, &str)], capacity: u64| {
            let mut profile = Profile::generic();
            settings.iter().for_each(|(key, value)| profile.set(key, value).unwrap());
            plan(&profile, capacity, Reserved::default()).map(|plan| plan.units).unwrap_err()
        };
        let larger = said(&[], 20 * TIB);
        assert!(
            larger.contains(" TiB of flash in units of 4KiB need more than 32-bit map entries (they map"),
            "{larger}"
        );
        assert!(larger.ends_with("; use [ftl] unit_size = 8KiB"), "{larger}");
        // What is advised does.
        let mut profile = Profile::generic();
        profile.set("ftl.unit_size", "8KiB").unwrap();
        assert!(plan(&profile, 20 * TIB, Reserved::default()).is_ok());
        let none = said(&[("ftl.unit_size", "8KiB")], 70 * TIB);
        let most = none.split("; use a capacity of at most ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        profile.set("ftl.unit_size", "16KiB").unwrap();
        let most = most.parse::<f64>().unwrap();
        assert!(plan(&profile, ((most - 0.1) * TIB as f64) as u64, Reserved::default()).is_ok(), "{none}");
        assert!(plan(&profile, ((most + 0.2) * TIB as f64) as u64, Reserved::default()).is_err(), "{none}");
        let blocks = said(&[("nand.blocks_per_plane", "1048576")], TIB);
        assert!(blocks.ends_with("; give it fewer blocks") || blocks.contains("unit_size ="), "{blocks}");
        assert!(said(&[], 0).ends_with("; give it a size, as in --set drive.capacity=64GiB"));
    }
}
