//! What the power cuts of the window have met.

use std::fmt;

#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub events: u64,
    pub cuts: u64,
    pub nested: u64,
    pub dumps_cut: u64,
    pub pins: u64,
    pub stores: u64,
    pub syncs: u64,
    pub flushes: u64,
    pub unpins: u64,
    pub writes: u64,
    pub deallocations: u64,
    pub reads: u64,
    pub refused: u64,
    pub lives: u64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { events, cuts, nested, dumps_cut, pins, stores, syncs, .. } = self;
        let Counts { flushes, unpins, writes, deallocations, reads, refused, lives, .. } = self;
        write!(
            f,
            "{events} events, {cuts} cuts, {nested} nested cuts, {dumps_cut} dumps cut short, {pins} pins, {stores} \
             stores, {syncs} syncs, {flushes} flushes, {unpins} unpins, {writes} block writes, {deallocations} \
             deallocations, {reads} block reads, {refused} refused, {lives} losses"
        )
    }
}
