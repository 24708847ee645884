//! Counters of the translation layer.

/// Counters of the translation layer, in units unless said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FtlStatistics {
    /// Written by the host (after the write buffer).
    pub host: u64,
    /// Pages that the fast side destaged.
    pub log: u64,
    /// Moved by collection or copied by merges.
    pub collected: u64,
    /// Filler that completed rows.
    pub padding: u64,
    /// Programmed for checkpoints and the deallocation log.
    pub map: u64,
    /// Of what the host wrote, what went to the SLC cache first.
    pub slc: u64,
    /// Moved out of the SLC cache to blocks in their own mode; not in `collected`.
    pub folded: u64,
    /// Superblocks of the SLC cache that were folded; not in `collections`.
    pub folds: u64,
    /// Flash reads for the host that the SLC cache served (operations).
    pub slc_reads: u64,
    /// Superblocks collected; RW log blocks reclaimed where the mapping is hybrid.
    pub collections: u64,
    /// Merges of log blocks with data blocks, where the mapping is hybrid: the log block became the data block as it
    /// was.
    pub merges_switch: u64,
    /// Its rest was copied behind it.
    pub merges_partial: u64,
    /// All of a logical block was gathered in a free superblock.
    pub merges_full: u64,
    /// Units of RW log blocks that got a second chance (FASTer).
    pub second_chances: u64,
    /// Units of RW log blocks that were cold and went to the isolation area (FASTer).
    pub isolated: u64,
    /// Of the full merges, those that made room in the isolation area (FASTer).
    pub isolation_merges: u64,
    /// Of these, for static wear levelling.
    pub wear_moves: u64,
    /// Block erases (planes counted one by one).
    pub erases: u64,
    /// Programs that failed.
    pub program_failures: u64,
    /// Erases that failed.
    pub erase_failures: u64,
    /// Units that could not be read when they were collected.
    pub lost: u64,
    /// Units that were pre-mapped because they were read before they were written.
    pub premapped: u64,
    /// Units deallocated.
    pub deallocated: u64,
}
