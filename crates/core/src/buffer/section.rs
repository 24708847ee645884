//! What a profile says of the write buffer and the read cache.

/// `[buffer]`.
#[derive(Clone, Debug, PartialEq)]
pub struct BufferProfile {
    /// Replacement policy of the write buffer: a name registered in this room.
    pub write_policy: String,
    /// The memory that the write buffer lives in.
    pub write_memory: String,
    /// Bytes of the write buffer.
    pub write_size: u64,
    /// Share of the write buffer that may be dirty before it is destaged in the background, 0 to 1.
    pub write_watermark: f64,
    /// Joules that the capacitors hold for writing the write buffer out after a power loss, where they back its memory;
    /// above 0.
    pub energy: f64,
    /// Replacement policy of the read cache: one of [`READ_POLICIES`](super::READ_POLICIES).
    pub read_policy: String,
    /// The memory that the read cache lives in.
    pub read_memory: String,
    /// Bytes of the read cache.
    pub read_size: u64,
    /// `cbm`: dirty pages of a block that make it one for the block region, 0 (dynamic) to 65,535.
    pub cbm_threshold: u32,
    /// `cbm`: bytes of a run of writes that is sequential.
    pub cbm_sequential: u64,
    /// `cbm`: a block leaves with its pages in the read cache (merge-on-flush).
    pub cbm_merge: bool,
    /// `bplru`: a block leaves with all its pages, read from flash if need be (page padding).
    pub bplru_padding: bool,
    /// `cflru`: the clean-first region as a share of the buffer, 0 to 1.
    pub cflru_window: f64,
}
