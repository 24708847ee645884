//! What lies where in a function's BAR2 (architecture, rule 2): the page that only the device writes, a page for each
//! lane that the client writes, and the lanes' ring windows.

use super::Setup;
use tidewater_wire::vendor::{LANE_PAGES_OFFSET, LANES_MAX, RINGS_OFFSET};

/// Bytes of a control page.
pub const PAGE: u64 = 4096;
/// Where the page is that only the device writes.
pub const CONTROL: u64 = 0;
/// Where the lanes' pages begin.
pub const LANE_PAGES: u64 = LANE_PAGES_OFFSET;
/// Where the ring windows begin.
pub const RINGS: u64 = RINGS_OFFSET;

/// What an address stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A byte of the page that the device writes.
    Control(u64),
    /// A byte of a lane's page.
    LanePage {
        /// The lane.
        lane: usize,
        /// The byte.
        at: u64,
    },
    /// A byte of a lane's ring window.
    Ring {
        /// The lane.
        lane: usize,
        /// The byte.
        at: u64,
    },
    /// Nothing is there.
    Nothing,
}

/// The address of a byte of a lane's ring window.
pub fn ring_address(setup: &Setup, lane: usize, offset: u64) -> u64 {
    RINGS + lane as u64 * setup.ring_size + offset % setup.ring_size
}

/// The address of a lane's page.
pub fn lane_page_address(lane: usize) -> u64 {
    LANE_PAGES + lane as u64 * PAGE
}

/// What an address stands for.
#[inline]
pub fn decode(setup: &Setup, address: u64) -> Target {
    if address >= RINGS {
        let lane = (address - RINGS) >> setup.ring_size.trailing_zeros();
        let at = (address - RINGS) & (setup.ring_size - 1);
        return if lane < u64::from(setup.lanes) { Target::Ring { lane: lane as usize, at } } else { Target::Nothing };
    }
    if address < LANE_PAGES {
        return Target::Control(address - CONTROL);
    }
    let lane = (address - LANE_PAGES) / PAGE;
    if lane < u64::from(setup.lanes.min(LANES_MAX as u32)) {
        Target::LanePage { lane: lane as usize, at: address % PAGE }
    } else {
        Target::Nothing
    }
}
