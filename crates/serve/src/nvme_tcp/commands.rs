//! The commands of a queue that are under way, found by their identifier or by their place.

use tidewater_core::subsystem::Slot;
use tidewater_wire::fabrics::DataPointer;
use tidewater_wire::nvme::Sqe;

/// No command.
const NONE: u16 = u16::MAX;

/// Data that a host was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fetch {
    /// Whose staging area it goes to; `None`: the target itself wants it.
    pub(super) slot: Option<Slot>,
    /// Bytes.
    pub(super) len: u32,
    /// Bytes that have come.
    pub(super) received: u32,
}

/// A command that has come and has not been answered.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) sqe: Sqe,
    /// Where the host says that the data is.
    pub(super) pointer: DataPointer,
    /// Data that came with the capsule, or that the target fetched for itself.
    pub(super) data: Vec<u8>,
    pub(super) fetch: Option<Fetch>,
    /// Data came with a wrong digest.
    pub(super) damaged: bool,
    /// Bytes that went to the host.
    pub(super) sent: u32,
    /// Data for the host that came before what precedes it: hosts take data in order only.
    pub(super) held: Vec<(u32, Vec<u8>)>,
    /// The next one of the same bucket.
    next: u16,
    used: bool,
    /// It is found by its identifier: no other command of that identifier was under way when it came.
    pub(super) listed: bool,
}

/// A table of commands, each at a place below its capacity.
pub(super) struct Commands {
    commands: Vec<Command>,
    free: Vec<u16>,
    /// The first command of each remainder of identifiers; a power of two.
    buckets: Box<[u16]>,
}

impl Commands {
    /// A table for this many commands, 1 to 32,768.
    pub(super) fn new(capacity: u16) -> Commands {
        let buckets = usize::from(capacity).next_power_of_two();
        let commands = (0..capacity)
            .map(|_| Command {
                sqe: Sqe::default(),
                pointer: DataPointer::Transport { len: 0 },
                data: Vec::new(),
                fetch: None,
                damaged: false,
                sent: 0,
                held: Vec::new(),
                next: NONE,
                used: false,
                listed: false,
            })
            .collect();
        Commands { commands, free: (0..capacity).rev().collect(), buckets: vec![NONE; buckets].into() }
    }

    /// How many commands are under way.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.commands.len() - self.free.len()
    }

    /// Makes place for more commands.
    pub(super) fn grow(&mut self, capacity: u16) {
        let mut grown = Commands::new(capacity.max(self.commands.len() as u16));
        for (place, old) in std::mem::take(&mut self.commands).into_iter().enumerate() {
            if old.used {
                // Places stay: they are the tags of transfers that are under way.
                grown.free.retain(|&free| usize::from(free) != place);
                let bucket = grown.bucket(old.sqe.cid());
                let listed = old.listed;
                grown.commands[place] = Command { next: grown.buckets[bucket], ..old };
                if listed {
                    grown.buckets[bucket] = place as u16;
                }
            }
        }
        *self = grown;
    }

    fn bucket(&self, cid: u16) -> usize {
        usize::from(cid) & (self.buckets.len() - 1)
    }

    /// Takes a command in; `None`: there is no place.
    pub(super) fn insert(&mut self, sqe: Sqe) -> Option<u16> {
        let listed = self.find(sqe.cid()).is_none();
        let place = self.free.pop()?;
        let bucket = self.bucket(sqe.cid());
        let command = &mut self.commands[usize::from(place)];
        command.sqe = sqe;
        command.pointer = DataPointer::Transport { len: 0 };
        command.data.clear();
        command.fetch = None;
        command.damaged = false;
        command.sent = 0;
        command.used = true;
        command.listed = listed;
        if listed {
            command.next = self.buckets[bucket];
            self.buckets[bucket] = place;
        }
        Some(place)
    }

    /// Where the command with this identifier is.
    pub(super) fn find(&self, cid: u16) -> Option<u16> {
        let mut place = self.buckets[self.bucket(cid)];
        while place != NONE {
            let command = &self.commands[usize::from(place)];
            if command.sqe.cid() == cid {
                return Some(place);
            }
            place = command.next;
        }
        None
    }

    /// Forgets a command. Asserts that there is one.
    pub(super) fn remove(&mut self, place: u16) {
        let command = &mut self.commands[usize::from(place)];
        assert!(command.used, "a command ends once");
        command.used = false;
        command.held.clear();
        // In-capsule data is kept for the next command, but not the odd large one.
        if command.data.capacity() > 16 << 10 {
            command.data = Vec::new();
        }
        let (cid, next, listed) = (command.sqe.cid(), command.next, command.listed);
        self.free.push(place);
        if !listed {
            return;
        }
        let bucket = self.bucket(cid);
        if self.buckets[bucket] == place {
            self.buckets[bucket] = next;
        } else {
            let mut before = self.buckets[bucket];
            while self.commands[usize::from(before)].next != place {
                before = self.commands[usize::from(before)].next;
            }
            self.commands[usize::from(before)].next = next;
        }
    }

    /// The command at a place, if one is there.
    pub(super) fn get_mut(&mut self, place: u16) -> Option<&mut Command> {
        self.commands.get_mut(usize::from(place)).filter(|command| command.used)
    }

    /// The command at a place. Asserts that there is one.
    pub(super) fn at(&mut self, place: u16) -> &mut Command {
        self.get_mut(place).expect("a command is where it was put")
    }

    /// Forgets all commands but the one at `except`, and tells the slots that wait for data of them.
    pub(super) fn clear(&mut self, except: Option<u16>) -> Vec<Slot> {
        let mut slots = Vec::new();
        for place in 0..self.commands.len() as u16 {
            if self.commands[usize::from(place)].used && Some(place) != except {
                slots.extend(self.at(place).fetch.and_then(|fetch| fetch.slot));
                self.remove(place);
            }
        }
        slots
    }

    /// Whether the host owes data.
    pub(super) fn awaits_data(&self) -> bool {
        self.commands.iter().any(|command| command.used && command.fetch.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_bounded_map(operations in prop::collection::vec((any::<bool>(), 0..200_u16, 0..3_u16), 1..300)) {
            let mut table = Commands::new(9);
            let mut model: Vec<u16> = Vec::new();
            let mut capacity = 9;
            for (insert, cid, spread) in operations {
                // Identifiers that fall into the same bucket, too.
                let cid = cid | spread << 12;
                if capacity == 9 && model.len() == 9 && spread == 2 {
                    table.grow(20);
                    capacity = 20;
                }
                if insert && !model.contains(&cid) {
                    let place = table.insert(Sqe::flush(cid));
                    prop_assert_eq!(place.is_some(), model.len() < capacity);
                    if let Some(place) = place {
                        prop_assert_eq!(table.at(place).sqe.cid(), cid);
                        model.push(cid);
                    }
                } else if let Some(at) = model.iter().position(|&known| known == cid) {
                    let place = table.find(cid).unwrap();
                    table.remove(place);
                    prop_assert!(table.get_mut(place).is_none());
                    model.swap_remove(at);
                }
                prop_assert_eq!(table.len(), model.len());
                for cid in 0..200 {
                    for spread in 0..3 {
                        let cid = cid | spread << 12;
                        prop_assert_eq!(table.find(cid).is_some(), model.contains(&cid));
                    }
                }
            }
            table.clear(None);
            prop_assert_eq!(table.len(), 0);
        }
    }
}
