//! How large a drive is: what each room reserves, and how much flash that takes.

use super::{Options, SetupError};
use crate::ftl::{self, Plan, Reserved};
use crate::profile::Profile;
use crate::{fast, window};

/// Logical pages behind the usable capacity: LBA rings of the fast side, then two areas for dumps.
pub fn reserved(profile: &Profile) -> Reserved {
    let dump_pages = window::dump_area_pages(profile);
    Reserved { pages: fast::log_pages(profile) + 2 * dump_pages, dump_pages }
}

/// Sizes a drive of so many bytes, those behind the usable capacity included; 0: as large as its blocks allow.
///
/// # Errors
/// In words, when the capacity does not fit the blocks, or the address space 32 bits.
pub fn plan(profile: &Profile, capacity: u64) -> Result<Plan, String> {
    ftl::plan(profile, capacity, reserved(profile))
}

/// Checks a profile and sizes its flash.
///
/// # Errors
/// In words.
pub fn resolve(profile: &Profile, options: &Options) -> Result<(Profile, Plan), SetupError> {
    profile.check().map_err(|e| SetupError(e.to_string()))?;
    let mut profile = profile.clone();
    let capacity = if options.capacity > 0 { options.capacity } else { profile.drive.capacity };
    let reserved = reserved(&profile).pages;
    let bytes = reserved * u64::from(profile.ftl.unit_size);
    let plan = plan(&profile, if capacity > 0 { capacity + bytes } else { 0 }).map_err(SetupError)?;
    if plan.units <= reserved {
        return Err(SetupError(format!(
            "[fast] log_size and [window] size leave no usable capacity: LBA rings and dumps take {bytes} bytes of \
             flash"
        )));
    }
    profile.nand.blocks_per_plane = plan.blocks_per_plane;
    Ok((profile, plan))
}
