//! Deallocation of parts of units, with blocks that are smaller than a unit: what it may change, and what it may not.

use tidewater_base::Rng;
use tidewater_core::profile::Timing;
use tidewater_serve::engine::Backing;
use tidewater_testkit::served::{BLOCK, Drive, Host, TRANSFER, UNIT, blocks_of, setup, tiny};
use tidewater_wire::nvme::{DsmRange, Sqe};

/// Blocks that are written and deallocated: 1 MiB, so that places meet often.
const BLOCKS: u64 = 2_048;

/// What each block must read as.
struct Reference {
    bytes: Vec<u8>,
}

impl Reference {
    fn range(first: u64, count: u64) -> std::ops::Range<usize> {
        first as usize * BLOCK..(first + count) as usize * BLOCK
    }

    /// The drive's rule: a unit that one range covers is forgotten and reads as zeroes (DLFEAT 1); of another nothing
    /// is, since its other blocks stay (NPDG says so). Section 6.7.1.1 leaves that to the controller: only what is
    /// deallocated reads as DLFEAT says.
    fn deallocate(&mut self, first: u64, count: u64) -> u64 {
        let (from, to) = (first.next_multiple_of(UNIT), (first + count) / UNIT * UNIT);
        if from < to {
            self.bytes[Reference::range(from, to - from)].fill(0);
        }
        count - to.saturating_sub(from)
    }

    fn check(&self, host: &mut Host, when: &str) {
        for first in (0..BLOCKS).step_by(TRANSFER / BLOCK) {
            let found = host.read(first, TRANSFER);
            let wanted = &self.bytes[Reference::range(first, (TRANSFER / BLOCK) as u64)];
            let differs = found.chunks(BLOCK).zip(wanted.chunks(BLOCK)).position(|(found, wanted)| found != wanted);
            assert!(differs.is_none(), "{when}: block {}", first + differs.unwrap_or(0) as u64);
        }
    }
}

/// A command with up to 8 ranges, which may overlap and meet within a unit.
fn deallocate(host: &mut Host, reference: &mut Reference, rng: &mut Rng) -> u64 {
    let near = rng.below(BLOCKS);
    let ranges: Vec<DsmRange> = (0..1 + rng.below(8))
        .map(|_| {
            let first_block = if rng.below(2) == 0 { rng.below(BLOCKS) } else { near };
            let blocks = 1 + rng.below((BLOCKS - first_block).min(64));
            DsmRange { attributes: 0, blocks: blocks as u32, first_block }
        })
        .collect();
    for (i, range) in ranges.iter().enumerate() {
        host.buffer.write(i as u64 * DsmRange::SIZE as u64, &range.to_bytes());
    }
    let sqe = Sqe::dataset_management(7, ranges.len() as u8 - 1, true);
    host.run_with_data(sqe, ranges.len() * DsmRange::SIZE).expect("ranges");
    ranges.iter().map(|range| reference.deallocate(range.first_block, range.blocks.into())).sum()
}

#[test]
fn deallocated_parts_of_units_change_nothing_and_whole_ones_are_zeroes() {
    let mut kept = 0;
    for (seed, timing) in [(1, Timing::None), (2, Timing::Model)] {
        let folder = tempfile::tempdir().expect("a folder");
        let setup = setup(tiny(timing), folder.path(), Backing::File(folder.path().join("drive")), 1);
        let mut rng = Rng::new(seed, b"deallocate");
        let mut reference = Reference { bytes: vec![0; BLOCKS as usize * BLOCK] };
        for life in 0..3 {
            let drive = Drive::start(&setup);
            let mut host = Host::attach(&drive, 0);
            reference.check(&mut host, "after a restart");
            for round in 0..400u64 {
                let first = rng.below(BLOCKS);
                let count = 1 + rng.below((BLOCKS - first).min(48));
                let range = Reference::range(first, count);
                match rng.below(8) {
                    0..3 => {
                        let data = blocks_of(first, count, seed << 40 | life << 32 | (round + 1));
                        host.try_write(first, &data, rng.below(8) == 0).expect("a write");
                        reference.bytes[range].copy_from_slice(&data);
                    }
                    3..6 => kept += deallocate(&mut host, &mut reference, &mut rng),
                    6 => {
                        // Zeroes are no hint, with or without leave to deallocate.
                        let sqe = Sqe::write_zeroes(6, first, (count - 1) as u16, rng.below(2) == 0);
                        host.run(sqe).expect("zeroes");
                        reference.bytes[range].fill(0);
                    }
                    _ if rng.below(4) == 0 => host.flush(),
                    _ => reference.check(&mut host, "between commands"),
                }
            }
            host.flush();
            reference.check(&mut host, "after a flush");
            drop(host);
            drive.stop();
        }
    }
    assert!(kept > 1_000, "parts of units were deallocated: {kept} blocks");
}
