//! How controllers share the slots of commands: the one place that says how many each of them may have.
//!
//! A slot that waits for a remote host's data ends when that host likes. So no controller can take all slots, every
//! controller has a few that no other can take (its floor), and slots that wait for data from a connection are bounded
//! besides.

use tidewater_wire::fabrics::DataPointer;
use tidewater_wire::nvme::Sqe;

/// Slots that only admin commands may take, or a quarter of all if there are few: a drive whose I/O commands all wait
/// must still take an Abort.
const ADMIN_SLOTS: u16 = 4;
/// I/O slots that each controller can have at any time, whatever others do: enough for a queue depth at which a drive
/// is busy.
const FLOOR_MAX: u16 = 8;
/// Floors of all controllers together are this part of the I/O slots, where a floor of one is less: three quarters are
/// for whichever controller has work.
const FLOORS_PART: u16 = 4;
/// Slots that wait for data from connections, of all controllers together, are this part of the I/O slots at most.
const TRANSFERS_PART: u16 = 2;

/// Who holds which slots.
#[derive(Clone, Debug)]
pub(super) struct Shares {
    /// Slots that I/O commands leave to admin commands.
    admin: u16,
    /// I/O slots of each controller that no other may take.
    floor: u16,
    /// What controllers have not taken of their floors, together.
    kept: u16,
    /// I/O slots of each controller, those included that entries on their way from the host will take.
    held: Box<[u16]>,
    /// Slots of each controller that wait for data which an R2T asks for.
    transfers: Box<[u16]>,
    /// Such slots of one controller, at most.
    transfers_max: u16,
}

impl Shares {
    /// Nothing is held. `slots`: those of hosts' commands; `functions` and `fabrics`: controllers of each kind.
    pub(super) fn new(slots: u16, functions: u8, fabrics: u8) -> Shares {
        let controllers = u16::from(functions) + u16::from(fabrics);
        let admin = ADMIN_SLOTS.min(slots / 4);
        let io = slots - admin;
        let floor = (io / FLOORS_PART / controllers.max(1)).max(u16::from(io > controllers)).min(FLOOR_MAX);
        Shares {
            admin,
            floor,
            kept: floor * controllers,
            held: vec![0; controllers.into()].into(),
            transfers: vec![0; controllers.into()].into(),
            transfers_max: (io / TRANSFERS_PART / u16::from(fabrics).max(1)).max(1),
        }
    }

    /// I/O slots that a controller may take now, of so many that are free.
    #[inline]
    pub(super) fn allowance(&self, function: u8, free: u16) -> u16 {
        let free = free.saturating_sub(self.admin);
        let own = self.floor.saturating_sub(self.held[usize::from(function)]);
        // What admin commands took may be missing to the floors.
        (own + free.saturating_sub(self.kept)).min(free)
    }

    /// A controller takes I/O slots.
    #[inline]
    pub(super) fn hold(&mut self, function: u8, count: u16) {
        let held = &mut self.held[usize::from(function)];
        self.kept -= self.floor.saturating_sub(*held).min(count);
        *held += count;
    }

    /// I/O slots of a controller are free again.
    #[inline]
    pub(super) fn release(&mut self, function: u8, count: u16) {
        let held = &mut self.held[usize::from(function)];
        *held -= count;
        self.kept += self.floor.saturating_sub(*held).min(count);
    }

    /// Whether one more command of a controller may wait for data from its connection.
    pub(super) fn admits_transfer(&self, function: u8) -> bool {
        self.transfers[usize::from(function)] < self.transfers_max
    }

    /// A command begins to wait for data from its connection.
    pub(super) fn begin_transfer(&mut self, function: u8) {
        self.transfers[usize::from(function)] += 1;
    }

    /// The data is there, or does not come.
    pub(super) fn end_transfer(&mut self, function: u8) {
        self.transfers[usize::from(function)] -= 1;
    }
}

/// Whether the data of an I/O command over fabrics has to be asked for by an R2T: it goes to the controller (bit 0 of
/// the opcode) and is not in the capsule.
pub(super) fn is_transfer(sqe: &Sqe) -> bool {
    sqe.opcode() & 1 != 0 && matches!(DataPointer::parse(sqe), Ok(DataPointer::Transport { len }) if len > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_that_takes_all_it_gets_leaves_every_other_its_floor() {
        for (slots, functions, fabrics) in
            [(512, 1, 16), (512, 16, 16), (512, 1, 0), (64, 1, 16), (32, 1, 16), (16, 1, 2), (4, 1, 16), (1, 1, 0)]
        {
            let mut shares = Shares::new(slots, functions, fabrics);
            let others = u16::from(functions) + u16::from(fabrics) - 1;
            let most = shares.allowance(0, slots);
            shares.hold(0, most);
            assert_eq!(shares.allowance(0, slots - most), 0, "{slots} slots");
            assert!(most >= slots / 3, "{slots} slots: {most}");
            let mut free = slots - most;
            for other in 1..=others {
                let own = shares.allowance(other as u8, free);
                assert_eq!(own, shares.floor, "{slots} slots, controller {other}");
                shares.hold(other as u8, own);
                free -= own;
            }
            assert_eq!(free, shares.admin);
        }
        // The drives that are served: one function and the hosts of NVMe/TCP; and a function alone.
        let served = Shares::new(512, 1, 16);
        assert_eq!((served.floor, served.allowance(0, 512), served.transfers_max), (7, 396, 15));
        let reference = include_str!("../../../../docs/reference/nvme.md");
        assert!(reference.contains("a controller beside 16 others: 396 at most, 7 in any case |"));
        assert!(reference.contains("| of these, such as wait for data that an R2T asks for | 15 of a controller |"));
        assert_eq!(Shares::new(512, 1, 0).allowance(0, 512), 508);
    }

    proptest! {
        #[test]
        fn floors_can_be_had_at_any_time(steps in prop::collection::vec((0..5_u8, any::<bool>(), 1..40_u16), 1..200)) {
            let mut shares = Shares::new(100, 2, 3);
            let mut held = [0_u16; 5];
            for (function, takes, count) in steps {
                let free = 100 - held.iter().sum::<u16>();
                let count = if takes {
                    count.min(shares.allowance(function, free))
                } else {
                    count.min(held[usize::from(function)])
                };
                if takes {
                    shares.hold(function, count);
                    held[usize::from(function)] += count;
                } else {
                    shares.release(function, count);
                    held[usize::from(function)] -= count;
                }
                let free = 100 - held.iter().sum::<u16>();
                for other in 0..5_u8 {
                    let missing = shares.floor.saturating_sub(held[usize::from(other)]);
                    prop_assert!(shares.allowance(other, free) >= missing);
                }
            }
        }
    }
}
