//! Figures of the parts of a drive, as its record has them, and the counters of the firmware that they are made of.

use crate::counted;

counted! {
    /// Operations of the flash. A unit is the data that one map entry covers (`unit_bytes`).
    #[derive(Copy)]
    Flash by FtlStatistics {
        /// Bytes of a unit.
        unit_bytes: u64,
        /// Units programmed with data of the host.
        units_host: u64,
        /// Units programmed with data that collection, merges, folding of an SLC cache or wear levelling moved.
        units_collected: u64,
        /// Units programmed with the map and its checkpoints.
        units_meta: Count,
        /// Units programmed with nothing, because a page or row could not wait to fill.
        units_padding: Count,
        /// Units programmed with what flash or the read cache had, beside pages of the write buffer that share their
        /// block.
        units_rewritten: u64,
        /// Program operations; one may program several planes.
        programs: u64,
        /// Merges of a hybrid mapping in which a full sequential log block became the data block as it was.
        merges_switch: Count,
        /// Merges in which the rest of the logical block was copied behind a sequential log block.
        merges_partial: Count,
        /// Merges in which a logical block was gathered in a free superblock. What merges copied is in
        /// `units_collected`.
        merges_full: Count,
        /// Units of random log blocks that got a second chance (FASTer): part of `units_collected`.
        second_chances: Count,
        /// Units of random log blocks that were cold and went to the isolation area (FASTer): part of
        /// `units_collected`.
        units_isolated: Count,
        /// Full merges that made room in the isolation area (FASTer): part of `merges_full`.
        merges_isolation: Count,
        /// Pages read for reads of the host, and for padding of the write buffer (`write_buffer.padding_reads` counts
        /// units of the latter).
        reads_host: u64,
        /// Pages read by collection, merges, folding of an SLC cache and wear levelling.
        reads_collected: u64,
        /// Pages of the map read.
        reads_meta: u64,
        /// Blocks erased.
        erases_total: Count,
        /// Blocks erased by static wear levelling: part of `erases_total`.
        erases_wear_levelling: u64,
        /// Blocks that went bad during the run.
        grown_bad_blocks: u64,
        /// Bytes of all blocks, spares and reserve included.
        raw_bytes: u64,
        /// Flash beyond the capacity that may hold data, as a share of the capacity: what `ftl.over_provisioning` came
        /// to.
        over_provisioning: f64,
    } and {
        /// Units written by the host, after the write buffer.
        host: u64,
        /// Log pages that the fast side destaged, in units.
        log: u64,
        /// Units moved by collection or copied by merges.
        collected: u64,
        /// Superblocks collected; random log blocks reclaimed, where the mapping is hybrid.
        collections: u64,
        /// Of these, for static wear levelling.
        wear_moves: u64,
        /// Programs that failed.
        program_failures: u64,
        /// Erases that failed.
        erase_failures: u64,
        /// Units that could not be read when they were collected.
        lost: u64,
        /// Units that were pre-mapped because they were read before they were written.
        premapped: u64,
        /// Units deallocated.
        deallocated: u64,
        /// Of the SLC cache.
        slc: SlcStatistics,
    }
}

counted! {
    /// The SLC cache: blocks that store one bit in a cell, where host writes go first.
    #[derive(Copy)]
    Slc by SlcStatistics {
        /// Units of the host that went there: part of `flash.units_host` and `flash.units_rewritten`. The others went
        /// past it.
        units_written: Count,
        /// Units that were moved from there to blocks in their own mode: part of `flash.units_collected`.
        units_folded: Count,
        /// Superblocks of it that were folded; not in `collections`.
        superblocks_folded: Count,
        /// Pages read for the host from there: part of `flash.reads_host`.
        reads_host: Count,
        /// Superblocks that are in single-level mode at the end.
        superblocks: u64,
        /// Superblocks that it could have at the end, those included: the dynamic part shrinks as the drive fills.
        superblocks_max: u64,
        /// Valid units in it at the end.
        units: u64,
        /// Bytes of valid data in it at the end, as a share of what it could hold then.
        fill: f64,
    } and {
    }
}

counted! {
    /// A write buffer or read cache. Hits and misses count pages of the host.
    Cache by BufferStatistics {
        /// The replacement policy; `none` when there is no such cache. One from outside of the firmware has its origin
        /// before its name, as in `python:Lru`.
        policy: String,
        /// The memory it lives in.
        memory: String,
        /// Its size.
        size_bytes: u64,
        /// Pages found: of a write buffer, by writes that replaced a dirty page.
        hits: Count,
        /// Pages not found.
        misses: Count,
        /// `hits / (hits + misses)`, 0 to 1; 0 if it was never asked.
        hit_ratio: f64,
        /// Pages put in.
        insertions: Count,
        /// Pages that left to make room, or were destaged.
        evictions: Count,
        /// Pages of reads that a write buffer had; `hits` are of writes.
        read_hits: Count,
        /// Pages of the read cache that were written beside dirty ones of their block (merge-on-flush).
        pages_merged: Count,
        /// Pages asked of flash to be written beside dirty ones of their block (page padding). Those that the host
        /// overwrites or deallocates meanwhile, or that were never written, are not programmed: `flash.units_rewritten`
        /// counts what was.
        padding_reads: Count,
        /// The most pages it held at once.
        pages_max: Count,
        /// Time that commands waited for room in it, added up.
        wait_seconds: f64,
    } and {
        /// Times pages left together.
        departures: u64,
        /// Of the pages that were asked of flash for padding, those that were written.
        pages_padded: u64,
    }
}

counted! {
    /// The cache of the map, of which most lies on flash, and the flash work that it added.
    MapCache by MapStatistics {
        /// The memory that it is placed on.
        memory: String,
        /// Bytes of map that are read and programmed at once.
        page_bytes: u64,
        /// Mapping pages of the whole map.
        pages: u64,
        /// Mapping pages that the cache holds at most.
        pages_held: u64,
        /// Look-ups by commands: one for each mapping page that a command needs.
        lookups: Count,
        /// Of these, found in the cache.
        hits: Count,
        /// `hits / lookups`.
        hit_ratio: f64,
        /// Changes of mapping pages: one for each page and row of data that was programmed.
        updates: Count,
        /// Of these, made in the cache at once; the others waited for their page.
        update_hits: Count,
        /// Mapping pages read from flash into the cache.
        loads: Count,
        /// Of these, ahead of need.
        prefetches: Count,
        /// Mapping pages that left the cache.
        evictions: Count,
        /// Mapping pages programmed because they had changed.
        written: Count,
        /// Mapping pages read and programmed elsewhere to give their superblock back.
        moved: Count,
        /// Superblocks of mapping pages that were collected.
        collections: Count,
        /// Flash reads added for each read of the host's: `loads / flash.reads_host`.
        added_reads_ratio: f64,
        /// Units programmed for mapping pages for each unit of the host's: `(written + moved) / flash.units_host`.
        added_writes_ratio: f64,
    } and {
    }
}

counted! {
    /// Traffic on the link to memory that the host lends (host memory buffer).
    #[derive(Copy)]
    HostMemory by HostMemoryStatistics {
        /// Bytes that were lent at the end.
        lent_bytes: u64,
        /// Units read.
        reads: Count,
        /// Units written.
        writes: Count,
        /// Bytes read, with the units' headers.
        bytes_read: Count,
        /// Bytes written, with the units' headers.
        bytes_written: Count,
        /// Units that were read and were not what they should be.
        failed_checks: Count,
        /// Accesses that found no memory.
        gone: Count,
        /// Units that were fetched from flash because their copy was not good or gone.
        refetches: Count,
        /// The most accesses under way at once.
        in_flight_max: Count,
        /// Accesses that waited for others to end.
        waited: Count,
    } and {
    }
}

impl Flash {
    /// Merges of log blocks with data blocks; 0 where every page is mapped by itself.
    pub fn merges_total(&self) -> u64 {
        [self.merges_partial, self.merges_full].into_iter().fold(self.merges_switch, u64::saturating_add)
    }

    /// Units programmed, whatever their reason.
    pub fn units_total(&self) -> u64 {
        [self.units_collected, self.units_meta, self.units_padding, self.units_rewritten]
            .into_iter()
            .fold(self.units_host, u64::saturating_add)
    }
}

impl Cache {
    /// Whether there is such a cache.
    pub fn is_present(&self) -> bool {
        !self.policy.is_empty() && self.policy != "none"
    }

    /// Whether it was ever asked for a page.
    pub fn was_asked(&self) -> bool {
        self.hits > 0 || self.misses > 0
    }
}
