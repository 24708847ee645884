//! The commands of a queue that are under way, found by their identifier or by their place.

use tidewater_base::Instant;
use tidewater_core::subsystem::Slot;
use tidewater_wire::fabrics::DataPointer;
use tidewater_wire::nvme::Sqe;

/// No command.
const NONE: u16 = u16::MAX;
/// Spent buffers that a connection keeps for the next commands, and bytes of such a buffer, at most: in-capsule data of
/// most writes.
const BUFFERS_KEPT: usize = 32;
const BUFFER_BYTES_KEPT: usize = 16 << 10;

/// Data that a host was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fetch {
    /// Whose staging area it goes to; `None`: the target itself wants it.
    pub(super) slot: Option<Slot>,
    /// Bytes.
    pub(super) len: u32,
    /// Bytes that have come.
    pub(super) received: u32,
    /// By when all of them have to be there.
    pub(super) due: Instant,
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
    /// Bytes that are still to come from the controller, for the host.
    promised: u32,
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
    /// Bytes that the host was asked for and that have not come.
    owed: u64,
    /// Bytes for the host that controllers work on.
    promised: u64,
    /// Bytes that commands hold: data that came, and data for the host that waits for what precedes it.
    stored: usize,
    /// Spent buffers.
    buffers: Vec<Vec<u8>>,
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
                promised: 0,
                held: Vec::new(),
                next: NONE,
                used: false,
                listed: false,
            })
            .collect();
        let free = (0..capacity).rev().collect();
        Commands {
            commands,
            free,
            buckets: vec![NONE; buckets].into(),
            owed: 0,
            promised: 0,
            stored: 0,
            buffers: Vec::new(),
        }
    }

    /// How many commands are under way.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.commands.len() - self.free.len()
    }

    /// Makes place for more commands.
    pub(super) fn grow(&mut self, capacity: u16) {
        let mut grown = Commands::new(capacity.max(self.commands.len() as u16));
        (grown.owed, grown.promised, grown.stored) = (self.owed, self.promised, self.stored);
        grown.buffers = std::mem::take(&mut self.buffers);
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
        command.fetch = None;
        command.damaged = false;
        command.sent = 0;
        command.promised = 0;
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
        self.end_fetch(place);
        let command = &mut self.commands[usize::from(place)];
        assert!(command.used, "a command ends once");
        command.used = false;
        self.promised -= u64::from(std::mem::take(&mut command.promised));
        self.stored -= command.data.len() + command.held.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
        command.held.clear();
        let mut buffer = std::mem::take(&mut command.data);
        if (1..=BUFFER_BYTES_KEPT).contains(&buffer.capacity()) && self.buffers.len() < BUFFERS_KEPT {
            buffer.clear();
            self.buffers.push(buffer);
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

    /// The host is asked for data of a command. Asserts that it is asked once at a time.
    pub(super) fn begin_fetch(&mut self, place: u16, fetch: Fetch) {
        let before = self.at(place).fetch.replace(fetch);
        assert!(before.is_none(), "data of a command is fetched once at a time");
        self.owed += u64::from(fetch.len);
    }

    /// So many bytes have come that the host was asked for. Tells for what, and where they begin.
    pub(super) fn received(&mut self, place: u16, bytes: u32) -> (Option<Slot>, u32) {
        let fetch = self.at(place).fetch.as_mut().expect("data comes when it was asked for");
        let at = fetch.received;
        fetch.received += bytes;
        let slot = fetch.slot;
        self.owed -= u64::from(bytes);
        (slot, at)
    }

    /// Data of a command is not waited for any more.
    pub(super) fn end_fetch(&mut self, place: u16) -> Option<Fetch> {
        let fetch = self.commands[usize::from(place)].fetch.take()?;
        self.owed -= u64::from(fetch.len - fetch.received);
        Some(fetch)
    }

    /// Bytes that the host was asked for and that have not come.
    pub(super) fn owed(&self) -> u64 {
        self.owed
    }

    /// The controller begins to work on bytes for the host.
    pub(super) fn promise(&mut self, place: u16, bytes: u32) {
        self.at(place).promised = bytes;
        self.promised += u64::from(bytes);
    }

    /// Bytes for the host have come from the controller.
    pub(super) fn delivered(&mut self, place: u16, bytes: u32) {
        let command = self.at(place);
        let came = command.promised.min(bytes);
        command.promised -= came;
        self.promised -= u64::from(came);
    }

    /// Bytes for the host that controllers work on.
    pub(super) fn promised(&self) -> u64 {
        self.promised
    }

    /// By when the host has to send what it was asked for first; `None`: it owes nothing.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.owed == 0 {
            return None;
        }
        self.commands.iter().filter(|command| command.used).filter_map(|command| Some(command.fetch?.due)).min()
    }

    /// Makes room for data of a command.
    pub(super) fn make_room(&mut self, place: u16, bytes: usize) {
        if bytes > 0 && self.at(place).data.capacity() == 0 {
            let buffer = self.buffers.pop().unwrap_or_default();
            self.at(place).data = buffer;
        }
        self.at(place).data.reserve(bytes);
    }

    /// Keeps data of a command.
    pub(super) fn store(&mut self, place: u16, bytes: &[u8]) {
        self.at(place).data.extend_from_slice(bytes);
        self.stored += bytes.len();
    }

    /// Keeps data for the host that comes before what precedes it.
    pub(super) fn hold(&mut self, place: u16, at: u32, bytes: Vec<u8>) {
        self.stored += bytes.len();
        let held = &mut self.at(place).held;
        held.insert(held.partition_point(|(other, _)| *other < at), (at, bytes));
    }

    /// Data that was held, if it goes on where the host is.
    pub(super) fn take_held(&mut self, place: u16) -> Option<(u32, Vec<u8>)> {
        let command = self.at(place);
        let is_next = command.held.first().is_some_and(|(at, _)| *at == command.sent);
        let (at, bytes) = is_next.then(|| command.held.remove(0))?;
        self.stored -= bytes.len();
        Some((at, bytes))
    }

    /// Bytes that commands hold.
    pub(super) fn stored(&self) -> usize {
        self.stored
    }

    /// The command at a place, if one is there.
    pub(super) fn get(&self, place: u16) -> Option<&Command> {
        self.commands.get(usize::from(place)).filter(|command| command.used)
    }

    /// The same, to be changed.
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
                        prop_assert_eq!((table.at(place).sqe.cid(), table.at(place).data.len()), (cid, 0));
                        table.make_room(place, usize::from(cid));
                        table.store(place, &vec![0; usize::from(cid)]);
                        let due = Instant::ZERO;
                        table.begin_fetch(place, Fetch { slot: None, len: 9, received: 0, due });
                        table.received(place, u32::from(spread));
                        model.push(cid);
                    }
                } else if let Some(at) = model.iter().position(|&known| known == cid) {
                    let place = table.find(cid).unwrap();
                    table.remove(place);
                    prop_assert!(table.get_mut(place).is_none());
                    model.swap_remove(at);
                }
                prop_assert_eq!(table.len(), model.len());
                prop_assert_eq!(table.stored(), model.iter().map(|&cid| usize::from(cid)).sum::<usize>());
                for cid in 0..200 {
                    for spread in 0..3 {
                        let cid = cid | spread << 12;
                        prop_assert_eq!(table.find(cid).is_some(), model.contains(&cid));
                    }
                }
            }
            table.clear(None);
            prop_assert_eq!((table.len(), table.owed(), table.stored()), (0, 0, 0));
        }
    }
}
