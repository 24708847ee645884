use super::*;
use crate::events::Event;
use crate::layout::Layout;
use tidewater_nand::{Cell as Bits, Fault, FaultPlan, FaultyNand, Nand, Stamps};

/// One die of two planes, rows of eight units.
struct Drive {
    flash: Flash,
    layout: Layout,
    medium: FaultyNand<Nand>,
    events: EventQueue,
    now: Instant,
}

impl Drive {
    fn new(shares: bool, faults: Vec<Fault>) -> Drive {
        let mut p = Profile::generic();
        p.flash.share_senses = shares;
        (p.nand.channels, p.nand.ways, p.nand.planes) = (1, 1, 2);
        (p.nand.blocks_per_plane, p.nand.cell, p.nand.factory_bad_rate) = (4, Bits::Slc, 0.0);
        let nand = Nand::new(&p.nand, p.ftl.unit_size, Stamps::LpnOnly, 1);
        let medium = FaultyNand::new(nand, FaultPlan { faults });
        let layout = Layout::new(&medium, p.ftl.unit_size, 4);
        let flash = Flash::new(&p, &p.nand, &layout, 64);
        Drive { flash, layout, medium, events: EventQueue::new(64), now: Instant::ZERO }
    }

    /// A host read, as the translation layer queues it.
    fn read(&mut self, row: u32, units: u64, tag: u32) {
        if !(self.flash.shares_senses() && self.flash.share(0, 0, row, units, tag)) {
            self.flash.enqueue(self.now, &mut self.events, Source::HostRead, 0, 0, row, units, tag);
        }
    }

    /// The next event. The reads that it ends, and whether each has failed; `None`: there is no event.
    fn step(&mut self) -> Option<Vec<(u32, bool)>> {
        self.now = self.events.next_at()?;
        let (now, events) = (self.now, &mut self.events);
        match events.pop_due(now)? {
            Event::Cell { die, generation, kind } => {
                let done = self.flash.on_cell(now, events, die, generation, kind, &mut self.medium, &self.layout);
                assert_eq!(done, None);
                Some(Vec::new())
            }
            Event::Bus { channel, inward: false } => {
                let id = self.flash.on_unloaded(now, events, channel);
                let &Operation { tag, uncorrectable, mut shared, .. } = self.flash.operation(id);
                let mut ended = vec![(tag, uncorrectable != 0)];
                while let Some((tag, units)) = self.flash.take_shared(&mut shared) {
                    ended.push((tag, uncorrectable & units != 0));
                }
                Some(ended)
            }
            event => unreachable!("{event:?} is none of reads"),
        }
    }

    /// All that is under way ends. The reads in the order in which they did.
    fn rest(&mut self) -> Vec<(u32, bool)> {
        let ended = std::iter::from_fn(|| self.step()).flatten().collect();
        assert_eq!(self.flash.outstanding(), 0);
        ended
    }

    fn reads(&self) -> (u64, u64) {
        let statistics = self.flash.statistics();
        (statistics.operations_of(Source::HostRead), statistics.units_of(Source::HostRead))
    }
}

const GOOD: bool = false;

#[test]
fn reads_of_one_page_share_a_sense_and_cross_the_bus_together() {
    let mut time = [Duration::ZERO; 2];
    for shares in [false, true] {
        let mut drive = Drive::new(shares, Vec::new());
        drive.read(0, 0b0001, 1); // In the array at once.
        drive.read(1, 0b0001, 2); // Waits, as the next one.
        drive.read(0, 0b0010, 3);
        drive.read(1, 0b1000, 4);
        drive.read(0, 0b0010, 5);
        let ended = drive.rest();
        if shares {
            assert_eq!(ended, [(1, GOOD), (3, GOOD), (5, GOOD), (2, GOOD), (4, GOOD)]);
            assert_eq!(drive.reads(), (2, 4), "what two reads want crosses once");
        } else {
            assert_eq!(ended, [1, 2, 3, 4, 5].map(|tag| (tag, GOOD)));
            assert_eq!(drive.reads(), (5, 5));
        }
        time[usize::from(shares)] = drive.now.since(Instant::ZERO);
    }
    assert!(time[1] * 2 < time[0], "{time:?}");
}

#[test]
fn another_plane_is_not_in_the_register_and_what_has_left_it_is_not_there_any_more() {
    let mut drive = Drive::new(true, Vec::new());
    drive.read(0, 0b0000_0001, 1);
    drive.read(0, 0b0001_0000, 2); // The other plane.
    drive.read(0, 0b0001_0001, 3); // Both.
    assert_eq!(drive.rest(), [1, 2, 3].map(|tag| (tag, GOOD)));
    assert_eq!(drive.reads(), (3, 4));

    drive.read(0, 0b0011, 4);
    assert_eq!(drive.step(), Some(Vec::new()), "the array has ended, and the data crosses the bus");
    drive.read(0, 0b0010, 5); // On its way.
    drive.read(0, 0b0100, 6); // Not on its way.
    assert_eq!(drive.rest(), [4, 5, 6].map(|tag| (tag, GOOD)));
    assert_eq!(drive.reads(), (5, 7));
}

#[test]
fn a_page_that_cannot_be_read_fails_for_each_of_its_readers_and_for_no_other() {
    let mut drive = Drive::new(true, vec![Fault::ReadUncorrectable { nth: 1 }]);
    drive.read(0, 0b0001_0001, 1); // Both planes: the second of the pages fails.
    drive.read(0, 0b0000_0010, 2);
    drive.read(0, 0b0010_0000, 3);
    assert_eq!(drive.rest(), [(1, true), (2, GOOD), (3, true)]);
    assert_eq!(drive.reads().0, 1);
}
