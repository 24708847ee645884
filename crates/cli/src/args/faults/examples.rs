//! Examples in the help of `tidewater fault`.

pub(super) const FAULT_ERROR: &str = "\
Examples:
  tidewater fault error --lba 2048..2056
  tidewater fault error --lba 0 --code 0x006 --count 1";

pub(super) const FAULT_DELAY: &str = "\
Examples:
  tidewater fault delay --by 3s --count 10";

pub(super) const FAULT_LOSE: &str = "\
Examples:
  tidewater fault lose";

pub(super) const FAULT_DUPLICATE: &str = "\
Examples:
  tidewater fault duplicate --count 2";

pub(super) const FAULT_FATAL: &str = "\
Examples:
  tidewater fault fatal";

pub(super) const FAULT_STUCK_SHUTDOWN: &str = "\
Examples:
  tidewater fault stuck-shutdown";

pub(super) const FAULT_HOST_MEMORY: &str = "\
Examples:
  tidewater fault host-memory --what withdrawn
  tidewater fault host-memory --what corrupted --count 100";

pub(super) const FAULT_LINK_LOSS: &str = "\
Examples:
  tidewater fault link-loss --function 0";

pub(super) const FAULT_POWER_CUT: &str = "\
Examples:
  tidewater fault power-cut
  tidewater fault power-cut --off 500ms

  # While the hundredth write from now on is under way
  tidewater fault power-cut --at write:100

  # Of a mount: parts of what was not synced survive
  tidewater fault power-cut --device DIR --lose random --tear sector --seed 7";

pub(super) const FAULT_STALL: &str = "\
Examples:
  tidewater fault stall --for 5s
  tidewater fault stall --for 5s --device DIR";

pub(super) const FAULT_SLOW: &str = "\
Examples:
  # Half of all syncs take up to 100 us longer, one in 10,000 a second
  tidewater fault slow --p50 100us --p99 5ms --p999 50ms --p9999 1s --on sync
  tidewater fault slow --p50 1ms --device DIR";

pub(super) const FAULT_LOST_WRITE: &str = "\
Examples:
  # The eleventh write from now on
  tidewater fault lost-write --after 10
  tidewater fault lost-write --device DIR";

pub(super) const FAULT_MISDIRECTED_WRITE: &str = "\
Examples:
  tidewater fault misdirected-write --after 10 --seed 7
  tidewater fault misdirected-write --device DIR";

pub(super) const FAULT_BIT_FLIP: &str = "\
Examples:
  tidewater fault bit-flip --count 3 --seed 7
  tidewater fault bit-flip --device DIR";

pub(super) const FAULT_EIO: &str = "\
Examples:
  tidewater fault eio --on read --after 100
  tidewater fault eio --on sync --device DIR";

pub(super) const FAULT_ENOSPC: &str = "\
Examples:
  tidewater fault enospc --count 0 --device DIR
  tidewater fault clear --device DIR";

pub(super) const FAULT_LIST: &str = "\
Examples:
  tidewater fault list
  tidewater fault list --json";

pub(super) const FAULT_CLEAR: &str = "\
Examples:
  tidewater fault clear";
