//! `tidewater nvme`: what a device says of itself.

use crate::args::served::Nvme;
use crate::failure::Failure;

/// `tidewater nvme`.
///
/// # Errors
/// When the device can't be reached, or refuses.
pub fn command(nvme: &Nvme) -> Result<(), Failure> {
    let _ = nvme;
    Err(Failure::usage("not yet"))
}
