//! What a profile says of the write buffer and the read cache.

/// Which clean pages of a block the policy `cbm` merges with its dirty ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CbmMerge {
    /// All that the read cache has.
    Always,
    /// Those that continue the run from the first page of the block, if that has a dirty page.
    Run,
    /// All, if the block is whole by that.
    Whole,
    /// All, and pages that neither cache has are read from flash: the block is written whole.
    Pad,
    /// None.
    Off,
}

/// In what the policy `cbm` looks for runs of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CbmRuns {
    /// In all that is written.
    All,
    /// In what is written to each block.
    Block,
}

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
    /// Bytes that are read ahead of each sequential stream, into the read cache. 0: none.
    pub read_ahead: u64,
    /// `cbm`: dirty pages of a block that make it one for the block region, 0 (dynamic) to 65,535.
    pub cbm_threshold: u32,
    /// `cbm`: bytes of a run of writes that is sequential.
    pub cbm_sequential: u64,
    /// `cbm`: which of its pages in the read cache a block leaves with (merge-on-flush).
    pub cbm_merge: CbmMerge,
    /// `cbm`: what a run of writes is looked for in.
    pub cbm_runs: CbmRuns,
    /// `cbm`: a page that was destaged stays as a clean page of the read cache.
    pub cbm_keep: bool,
    /// `cbm`: a block of which half its pages or more leave is completed from flash.
    pub cbm_padding: bool,
    /// `cbm`: popularity is halved whenever so many buffers full of pages were written, 0 (never) to 64.
    pub cbm_age: f64,
    /// `bplru`: a block leaves with all its pages, read from flash if need be (page padding).
    pub bplru_padding: bool,
    /// `cflru`: the clean-first region as a share of the buffer, 0 to 1.
    pub cflru_window: f64,
}
