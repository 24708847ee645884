//! A drive whose write buffer has a policy from outside of the firmware.

use super::{Device, SetupError};
use crate::buffer::Outside;
use crate::memory::place;
use tidewater_nand::Medium;

/// The same drive with a policy of its write buffer from outside, in place of the profile's `write_policy`; the size of
/// the buffer and its memory stay the profile's. The drive keeps it over a loss of power.
///
/// # Errors
/// When the drive has served commands already, has no write buffer, or the policy can't be made.
pub fn with_policy<M: Medium>(device: Device<M>, policy: &Outside) -> Result<Device<M>, SetupError> {
    let refuse = |text: &str| Err(SetupError(format!("write policy {}: {text}", policy.name())));
    if device.events_handled() > 0 || !device.write_buffer().is_empty() {
        return refuse("the drive has served already with another policy");
    }
    if device.profile.buffer.write_policy == "none" {
        return refuse("the drive has no write buffer; give it one, as with [buffer] write_policy = \"lru\"");
    }
    put(device, Some(policy))
}

/// The policy of the write buffer by its name: `[buffer] write_policy` of the profile, or that of the policy from
/// outside which stands in its place.
pub fn write_policy<M: Medium>(device: &Device<M>) -> &str {
    device.policy.as_ref().map_or(&device.profile.buffer.write_policy, Outside::name)
}

/// Puts a policy from outside, if there is one, into the write buffer, which is empty.
pub(super) fn put<M: Medium>(mut device: Device<M>, policy: Option<&Outside>) -> Result<Device<M>, SetupError> {
    let Some(policy) = policy else { return Ok(device) };
    let placement = place(&device.profile).map_err(|e| SetupError(e.to_string()))?;
    let (units, stamps) = (device.ftl.data_units(), device.cx.options.stamps);
    let put = device.block.caches.set_policy(policy, &device.profile, &placement, units, stamps);
    put.map_err(|fault| SetupError(format!("write policy {}: {fault}", policy.name())))?;
    device.policy = Some(policy.clone());
    Ok(device)
}
