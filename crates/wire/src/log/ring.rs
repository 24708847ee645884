//! The file of a mapped ring: what a client that publishes its own credit shares with the device (ADR 13).
//!
//! The file's first page is [`RingHeader`]. Behind it lie the bytes of BAR2, byte b of the BAR at [`RING_FILE_BAR2`] +
//! b of the file: lane pages ([`RingLanePage`]) from 1000h on, the page that only the device writes ([`RingPage`]) at
//! [`RING_PAGE_OFFSET`], and the lanes' rings where the layout page (C1h) says. What is not mapped there is a hole.
//!
//! **Who writes what.** The device writes header and ring page, by system calls: a counter of 64 bits could be read
//! half-written, so each stands beside its complement, and counts when the two agree. The client of a lane writes that
//! lane's page and ring, each word with one 64-bit store; the device reads a word twice, and takes it when it was the
//! same.

use crate::layout::layout;
use crate::vendor::{Epoch, LANES_MAX, RINGS_OFFSET};

/// Where byte 0 of BAR2 is in the file.
pub const RING_FILE_BAR2: u64 = 4096;
/// Where the ring page is in BAR2: behind the pages of 16 lanes.
pub const RING_PAGE_OFFSET: u64 = 0x11000;
/// The byte of the file that the program in lane 0 locks (`F_OFD_SETLK`), behind its end; lane n's is n further.
pub const RING_LOCKS: i64 = 1 << 40;
/// The byte of the file that the process which serves the ring locks (`F_OFD_SETLK`). Its clients find out by it that
/// the process has ended, without a connection. Versions before 0.2 do not lock it.
pub const RING_DEVICE_LOCK: i64 = RING_LOCKS + 255;
/// Slots for writers in a lane page.
pub const RING_SLOTS: usize = 32;
/// Value of a slot whose writer is idle.
pub const RING_IDLE: u64 = u64::MAX;
/// No generation of a lane's stream gets here.
pub(super) const RING_GENERATION_END: u64 = 1 << 62;
/// Bits of the word `reserve` that are a stream offset.
pub const RING_RESERVE_BITS: u32 = 58;

layout! {
    /// The head of a mapped ring's file. It says whose ring it is: a file of another drive, or of another shape, is
    /// refused.
    pub struct RingHeader [512] {
        fixed 0 magic: u64 = u64::from_le_bytes(*b"TIDERING"), " `TIDERING` in ASCII.";
        fixed 8 version: u32 = 1, " Version of the file's layout.";
        /// Function.
        12 function: u16,
        /// Lanes, 1 to 16.
        14 lanes: u16,
        /// Bytes of each lane's ring: a power of two, at least 4096.
        16 ring_bytes: u64,
        /// Bytes of the file.
        24 file_bytes: u64,
        /// Identifier of the drive: that of its image.
        32 drive: [u8; 16],
        /// The boot of the machine in which the file was used last: unless its memory is persistent, what a client
        /// published and the device had not taken is of no use in another one.
        48 boot: [u8; 16],
        /// The file lies in memory that survives a loss of power.
        64 persistent: bool,
        /// The file has a copy on a disk (`RingCopyHeader`), which clients write and sync: a place in the ring is free
        /// again once the device's own store of it is synced.
        65 copied: bool,
        /// The disk of the device's image has failed since it was started: what the image had in the system's memory
        /// may be lost, though the machine has not been booted.
        66 doubted: bool,
        /// The epoch that the device was in.
        72 epoch: Epoch,
        /// For each lane the generation: it grows when the lane's stream does not go on from what the client has
        /// published.
        128 generation: [u64; LANES_MAX],
        crc 508;
    }
    check |header| {
        if !(1..=LANES_MAX as u16).contains(&header.lanes) {
            Err(("lanes", "1 to 16"))
        } else if !header.ring_bytes.is_power_of_two() || !(4096..=1 << 40).contains(&header.ring_bytes) {
            Err(("ring_bytes", "a power of two, 4 KiB to 1 TiB"))
        } else if header.file_bytes != RingHeader::file_bytes(u64::from(header.lanes), header.ring_bytes) {
            Err(("file_bytes", "what lanes and rings take"))
        } else if header.generation.iter().any(|&generation| generation >= RING_GENERATION_END) {
            Err(("generation", "below 2^62: none ever gets there"))
        } else {
            Ok(())
        }
    };
}

impl RingHeader {
    /// Bytes of the file of so many lanes (at most 16) with rings of so many bytes (at most 1 TiB).
    pub const fn file_bytes(lanes: u64, ring_bytes: u64) -> u64 {
        RING_FILE_BAR2 + RINGS_OFFSET + lanes * ring_bytes
    }
}

layout! {
    /// The device's state of one mapped lane. Each counter stands beside its complement.
    pub struct RingLane [64] {
        /// The generation that the counters are of.
        0 generation: u64,
        /// Its complement.
        8 generation_check: u64,
        /// End of what the device has taken: these bytes are where the death of its process does not reach them, and
        /// their places in the ring may be used again. So a client may reserve up to this and ring_bytes.
        16 taken: u64,
        /// Its complement.
        24 taken_check: u64,
        /// End of what is on the backing store, and synced.
        32 synced: u64,
        /// Its complement.
        40 synced_check: u64,
        /// Where the stream goes on for a client whose lane page is of another generation.
        48 start: u64,
        /// Its complement.
        56 start_check: u64,
    }
}

impl RingLane {
    /// A lane of these counters.
    pub const fn new(generation: u64, taken: u64, synced: u64, start: u64) -> RingLane {
        RingLane {
            generation,
            generation_check: !generation,
            taken,
            taken_check: !taken,
            synced,
            synced_check: !synced,
            start,
            start_check: !start,
        }
    }

    /// Where the generation is.
    pub const GENERATION_OFFSET: usize = 0;
    /// Where `taken` is.
    pub const TAKEN_OFFSET: usize = 16;
    /// Where `synced` is.
    pub const SYNCED_OFFSET: usize = 32;
    /// Where `start` is.
    pub const START_OFFSET: usize = 48;
}

layout! {
    /// How far the replicas of one mapped lane are. Each counter stands beside its complement.
    pub struct RingReplicas [32] {
        /// End of what as many replicas have in their rings as the group's mode asks for. 0 in lazy mode and without
        /// peers: nothing is promised.
        0 ring: u64,
        /// Its complement.
        8 ring_check: u64,
        /// End of what they have on their backing stores, synced, and the device too.
        16 destaged: u64,
        /// Its complement.
        24 destaged_check: u64,
    }
}

impl RingReplicas {
    /// Replicas that are this far.
    pub const fn new(ring: u64, destaged: u64) -> RingReplicas {
        RingReplicas { ring, ring_check: !ring, destaged, destaged_check: !destaged }
    }

    /// Where `ring` is.
    pub const RING_OFFSET: usize = 0;
    /// Where `destaged` is.
    pub const DESTAGED_OFFSET: usize = 16;
}

layout! {
    /// The page of a mapped ring that only the device writes.
    pub struct RingPage [1600] {
        fixed 0 magic: u64 = u64::from_le_bytes(*b"TIDERPAG"), " `TIDERPAG` in ASCII.";
        fixed 8 version: u32 = 2, " Version of this layout.";
        /// The device serves the ring, or was serving it when it died. 0: the function was set up anew, or the file was
        /// damaged: nothing is taken any more.
        12 open: bool,
        /// Bit i: the stream of lane i is broken.
        14 broken: u16,
        /// Rings outlive the device's process in the drive itself (`memory.NAME.survives`); else what was taken is on
        /// flash.
        16 survives: bool,
        /// The ring of logical pages is full: nothing more is taken until the log is trimmed.
        17 waits_for_trim: bool,
        /// The function's role: 0 no peers, 1 primary, 2 secondary. Only a secondary takes nothing from the ring.
        18 role: u8,
        /// How a primary's peers acknowledge: 0 lazy, 1 eager, 2 chain, 3 quorum.
        19 mode: u8,
        /// Number of the system's error (errno(3)) after which the device's backing store takes nothing more; 0: it
        /// does.
        20 store_error: u32,
        /// Bit n: replica n of the primary can't be reached, or is late.
        24 late: u16,
        /// The leader deadline of the primary has passed: no replica counts until it is extended.
        26 frozen: bool,
        /// One for each lane; those not in use are zero.
        64 lane: [RingLane; LANES_MAX],
        /// One for each lane; those not in use are zero.
        1088 replicas: [RingReplicas; LANES_MAX],
    }
}

impl RingPage {
    /// Where `open` is.
    pub const OPEN_OFFSET: usize = 12;
    /// Where `broken` is.
    pub const BROKEN_OFFSET: usize = 14;
    /// Where `store_error` is.
    pub const STORE_ERROR_OFFSET: usize = 20;

    /// Where `role` is.
    pub const ROLE_OFFSET: usize = 18;
    /// Where `mode` is.
    pub const MODE_OFFSET: usize = 19;
    /// Where `late` is.
    pub const LATE_OFFSET: usize = 24;
    /// Where `frozen` is.
    pub const FROZEN_OFFSET: usize = 26;

    /// Where what is said of a lane (0 to 15) begins.
    pub const fn lane_offset(lane: u8) -> usize {
        64 + lane as usize * RingLane::SIZE
    }

    /// Where what is said of a lane's replicas begins.
    pub const fn replicas_offset(lane: u8) -> usize {
        1088 + lane as usize * RingReplicas::SIZE
    }
}

layout! {
    /// The lane page of a mapped lane: only its client writes it. The first two words are those of every lane page.
    /// `tail` is the credit that the client gives itself: what is below is in the ring, without a gap.
    pub struct RingLanePage [4096] {
        /// As in every lane page; not used by mapped clients.
        0 floor: u64,
        /// End of what is in the ring without a gap: the credit. It never falls, and never passes the device's `taken`
        /// and ring_bytes: a stream that does is broken.
        8 tail: u64,
        /// The generation of tail and reserve. If it is not the device's, no client writes to this lane.
        16 generation: u64,
        /// End of what writers have reserved, below [`RING_RESERVE_BITS`]; above, 1 + the slot of the last writer that
        /// reserved, 0: none.
        64 reserve: u64,
        /// Slots that were ever claimed: those behind hold nothing.
        72 used: u64,
        /// The device is asked to sync what is below: it looks here now and then, and at once when the doorbell or a
        /// message says so.
        128 wanted: u64,
        /// Its client has no use for what is below, be it in the ring still: the device need not take it.
        136 unneeded: u64,
        /// Bytes before the tail that the device may leave in the ring while no client waits for them: they may soon be
        /// of no use.
        144 left: u64,
        /// The device is asked to take what is below, and to send it to its peers: it looks here as at `wanted`.
        152 replicate: u64,
        /// The device is asked to have its peers sync what is below: it looks here as at `wanted`.
        160 replicate_synced: u64,
        /// The PID namespace (its inode) that the owners of slots are of.
        192 namespace: u64,
        /// The ring's bytes from this stream offset on are those of this generation.
        200 begin: u64,
        /// The process that is writing the copy, as in a slot; 0: none.
        256 saver: u64,
        /// End of what the copy holds, and is synced.
        264 saved: u64,
        /// Number of writers that wait for the one that writes the copy; some of them may have died.
        272 waiting: u64,
        /// Not 0: the copy is used no more in this generation: it could not be written, or is another one than the
        /// device has.
        280 unsaved: u64,
        /// For each writer what it is writing. Each begins a line of 64 bytes.
        1024 slot: [RingSlot; RING_SLOTS],
    }
}

impl RingLanePage {
    /// Where the tail is.
    pub const TAIL_OFFSET: usize = 8;
    /// Where the generation is.
    pub const GENERATION_OFFSET: usize = 16;
    /// Where the reserve is.
    pub const RESERVE_OFFSET: usize = 64;
    /// Where `used` is.
    pub const USED_OFFSET: usize = 72;
    /// Where `wanted` is.
    pub const WANTED_OFFSET: usize = 128;
    /// Where `unneeded` is.
    pub const UNNEEDED_OFFSET: usize = 136;
    /// Where `left` is.
    pub const LEFT_OFFSET: usize = 144;
    /// Where `replicate` is.
    pub const REPLICATE_OFFSET: usize = 152;
    /// Where `replicate_synced` is.
    pub const REPLICATE_SYNCED_OFFSET: usize = 160;
    /// Where `namespace` is.
    pub const NAMESPACE_OFFSET: usize = 192;
    /// Where `begin` is.
    pub const BEGIN_OFFSET: usize = 200;
    /// Where `saver` is.
    pub const SAVER_OFFSET: usize = 256;
    /// Where `saved` is.
    pub const SAVED_OFFSET: usize = 264;
    /// Where `waiting` is.
    pub const WAITING_OFFSET: usize = 272;
    /// Where `unsaved` is.
    pub const UNSAVED_OFFSET: usize = 280;
    /// Where the slots begin, 64 bytes from one to the next.
    pub const SLOTS_OFFSET: usize = 1024;
}

layout! {
    /// A writer's slot (ADR 18).
    pub struct RingSlot [64] {
        /// The first byte that the writer may be writing; all ones when it writes nothing.
        0 first: u64,
        /// The process that owns the slot: its start in clock ticks above 22 bits, its number below. 0: the slot is
        /// free.
        8 owner: u64,
        /// Where the newest of its reservations ends that succeeded; one that is below `first` is an older one.
        16 end: u64,
    }
}

impl RingSlot {
    /// Where the owner is.
    pub const OWNER_OFFSET: usize = 8;
    /// Where the end is.
    pub const END_OFFSET: usize = 16;
}
