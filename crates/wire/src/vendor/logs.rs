//! Log pages C0h to C2h. Each is of one function, which the log specific identifier (double word 11, bits 31:16) names.

use super::{Epoch, FlowState, LANES_MAX, Mode, PEERS_MAX, Role, TransportStatus};
use crate::layout::layout;

layout! {
    /// State of one lane in the status page. Offsets are stream offsets in bytes.
    pub struct LaneStatus [96] {
        /// End of the contiguous bytes in persistent memory.
        0 persisted: u64,
        /// End of the bytes that the host may count on.
        8 credit: u64,
        /// End of the regions that are released; all ones without regions.
        16 floor: u64,
        /// End of the bytes that enough replicas hold, by mode; all ones in lazy and stand-alone mode.
        24 replicated: u64,
        /// End of the bytes that are destaged.
        32 destaged: u64,
        /// Oldest offset that can be read from flash.
        40 readable: u64,
        /// Stores that were dropped because they lay outside of the credit.
        48 drops: u64,
        /// Offset of the first such store since set-up, or 0.
        56 first_drop: u64,
        /// Valid bytes destaged since set-up.
        64 bytes_destaged: u64,
        /// Pages destaged since set-up.
        72 pages_destaged: u64,
        /// Of these, pages with filler because the latency threshold passed.
        80 pages_partial: u64,
        /// Writes of a page that failed and were repeated elsewhere.
        88 pages_rewritten: u64,
    }
}

layout! {
    /// Log page C0h, Fast Status: how the fast side of a function is doing.
    pub struct FastStatus [1664] {
        fixed 0 version: u32 = 1, " Version of this layout.";
        /// Function.
        4 function: u16,
        /// Lanes in use; 0 when the fast side is not set up.
        6 lanes: u16,
        /// The function's role.
        8 role: Role,
        /// This device's node.
        9 node: u8,
        /// Which counter the host sees.
        10 mode: Mode,
        /// The status register.
        12 status: TransportStatus,
        /// The epoch that the device is in.
        16 epoch: Epoch,
        /// First logical page of the ring of logical pages.
        24 lba_first: u64,
        /// Number of its logical pages.
        32 lba_count: u64,
        /// Number of the oldest page that is neither trimmed nor overwritten.
        40 lba_head: u64,
        /// Number of the page that is destaged next.
        48 lba_tail: u64,
        /// Bytes that were cut because the log had diverged from the primary's, summed over lanes, at the last rejoin.
        56 bytes_cut: u64,
        /// Energy that an emergency destage of full rings takes, in nanojoules.
        72 energy_needed_nj: u64,
        /// Energy that is stored for it, in nanojoules.
        80 energy_stored_nj: u64,
        /// One for each lane; those not in use are zero.
        128 lane: [LaneStatus; LANES_MAX],
    }
    check |page| if usize::from(page.lanes) > LANES_MAX { Err(("lanes", "at most 16")) } else { Ok(()) };
}

layout! {
    /// Where one lane is in BAR2.
    pub struct LanePlace [32] {
        /// First byte of the window through which the ring is written, from the start of BAR2: a multiple of 4096.
        0 window_offset: u64,
        /// Bytes of the window. Offset o of the stream is at byte o mod this.
        8 window_bytes: u64,
        /// First byte of the lane page: a multiple of 4096.
        16 lane_page_offset: u64,
        /// Bytes that may be outstanding past the credit.
        24 queue_bytes: u32,
    }
}

impl LanePlace {
    /// Where byte `offset` of the stream is written in BAR2. Asserts that the lane has a window.
    pub fn address(&self, offset: u64) -> u64 {
        self.window_offset + offset % self.window_bytes
    }
}

layout! {
    /// Log page C1h, Layout: where the parts of a function's BAR2 are: its fast side, the byte window, and the slice
    /// for queues.
    pub struct BarLayout [576] {
        fixed 0 version: u32 = 1, " Version of this layout.";
        /// Function.
        4 function: u16,
        /// Lanes in use; 0 when the fast side is not set up.
        6 lanes: u16,
        /// Bytes of BAR2.
        8 bar_bytes: u64,
        /// First byte of the control page: a multiple of 4096.
        16 control_page_offset: u64,
        /// First byte of the slice for queues (what CMBLOC says).
        24 queues_offset: u64,
        /// Bytes of that slice (what CMBSZ says); 0: there is none.
        32 queues_bytes: u64,
        /// First byte of the byte window; 0 where the function has none.
        40 window_offset: u64,
        /// Bytes of the byte window.
        48 window_bytes: u64,
        /// One for each lane; those not in use are zero.
        64 lane: [LanePlace; LANES_MAX],
    }
    check |page| if usize::from(page.lanes) > LANES_MAX { Err(("lanes", "at most 16")) } else { Ok(()) };
}

layout! {
    /// State of one peer, as the device knows it.
    pub struct PeerStatus [320] {
        /// The peer's node.
        0 node: u8,
        /// How the flow is doing.
        1 state: FlowState,
        /// Bit of the status register that concerns this peer, of bits 1 to 3.
        4 status: TransportStatus,
        /// Nanoseconds since its last counter update; all ones when there was none.
        16 update_age_ns: u64,
        /// For each lane the shadow counter: end of the bytes that the peer holds.
        64 shadow: [u64; LANES_MAX],
        /// For each lane the position of the flow: end of the bytes that were shipped.
        192 position: [u64; LANES_MAX],
    }
}

layout! {
    /// Log page C2h, Peers: the mirror flows of a primary, in the order of the group.
    pub struct Peers [4864] {
        fixed 0 version: u32 = 1, " Version of this layout.";
        /// Function.
        4 function: u16,
        /// Peers in use.
        6 count: u16,
        /// Which counter the host sees.
        8 mode: Mode,
        /// Period at which peers report their counters, in nanoseconds.
        16 report_period_ns: u64,
        /// Time without progress after which a flow counts as stalled, in nanoseconds.
        24 stall_timeout_ns: u64,
        /// One for each peer; those not in use are zero.
        64 peer: [PeerStatus; PEERS_MAX],
    }
    check |page| if usize::from(page.count) > PEERS_MAX { Err(("count", "at most 15")) } else { Ok(()) };
}
