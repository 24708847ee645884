//! The words that stand for choices in a profile, each with what it means.

use super::value::choices;
use super::{
    Access as HostAccess, Arbitration, CbmMerge, CbmRuns, Doorbells, Gate, GcVictim, Interrupts, Mapping, MemoryKind,
    QueuePriority, Release, Survives, Timing, WhenFull,
};

choices!(Arbitration {
    RoundRobin = "round-robin": "every queue in turn",
    Weighted = "weighted": "urgent first, then high, medium and low by their weights",
});
choices!(QueuePriority {
    Urgent = "urgent": "before all others",
    High = "high": "by the first weight",
    Medium = "medium": "by the second weight",
    Low = "low": "by the third weight",
});
choices!(Mapping {
    Page = "page": "every page by itself",
    Fast = "fast": "data by block, and a log by page that all blocks share (FAST)",
    Faster = "faster": "FAST, with a second chance for valid data in a reclaimed log block, and an area for cold data \
         (FASTer)",
});
choices!(GcVictim {
    Greedy = "greedy": "the superblock with the fewest valid units",
    CostBenefit = "cost-benefit": "the best ratio of free space times age to the cost of copying",
});
choices!(CbmMerge {
    Always = "always": "all of them",
    Run = "run": "those that continue the run from the first page of the block, if that has a dirty page",
    Whole = "whole": "all of them, if the block is whole by that",
    Pad = "pad": "all of them, and what is missing is read from flash: the block is written whole and in order",
    Off = "off": "none",
});
choices!(CbmRuns {
    All = "all": "all that is written: a write to another block ends a run",
    Block = "block": "what is written to each block, whatever is written to others in between",
});
choices!(WhenFull {
    Direct = "direct": "past it, to blocks in their own mode",
    Fold = "fold": "they wait until something of it has been folded",
});
choices!(Release {
    Programmed = "programmed": "when the page is programmed",
    Transferred = "transferred": "when the page is in its die's register, from where stored energy programs it",
    Crossing = "crossing": "each ECC codeword once it has crossed the bus to it; stored energy moves the rest",
});
choices!(Gate {
    Hold = "hold": "they wait until the entry is unpinned",
    Refuse = "refuse": "they end with LBA Pinned",
});
choices!(MemoryKind {
    Sram = "sram": "on the controller's die",
    Dram = "dram": "beside the controller",
    Nvm = "nvm": "byte-addressable and non-volatile, as STT-MRAM",
    Host = "host": "the host's, lent over PCIe: never trusted, can be withdrawn",
    SlcFlash = "slc-flash": "flash in single-level mode",
});
choices!(Timing {
    Model = "model": "when the modelled drive would complete them",
    None = "none": "as soon as the backing store allows",
});
choices!(HostAccess {
    Mapped = "mapped": "the host maps the memory and announces what it has stored",
    Trapped = "trapped": "each store is a message: exact, and slower",
});
choices!(Doorbells {
    Mapped = "mapped": "the host maps them; polled, at growing intervals up to 2 ms while nothing happens",
    Polled = "polled": "the host maps them; polled all the time while a controller is enabled, which keeps a core busy",
    Trapped = "trapped": "each is a message: some clients, SPDK's driver for one, cannot attach",
});
choices!(Interrupts {
    MsiX = "msi-x": "a vector for each queue",
    Msi = "msi": "for virtual machine monitors that cannot unplug a device with MSI-X",
});
choices!(Survives {
    Nothing = "nothing": "nothing",
    ByCapacitors = "by-capacitors": "everything: capacitors pay for an emergency dump",
    ByItself = "by-itself": "everything, by the nature of the memory",
});
