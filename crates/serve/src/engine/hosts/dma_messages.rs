//! Transfers of memory that a client lends without a descriptor: only messages reach it, and the client may answer
//! late. So they are carried out by a thread of the function's own, in order, and what follows from them comes back
//! to the device's thread as mail. A client that is slow, or silent, keeps its own commands waiting and no other's.

use crate::inbox::Inbox;
use crate::vfio_user::{Connection, Interrupts};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tidewater_core::host_memory::Access;
use tidewater_core::subsystem::{Slot, Token};

/// How long a client may take to answer for one transfer, before it is disconnected.
const MESSAGE_TIME: Duration = Duration::from_secs(1);

/// Part of a transfer's bytes that only messages reach.
#[derive(Debug)]
pub(crate) struct Far {
    /// Bus address.
    pub address: u64,
    /// Where it is in the transfer's bytes.
    pub at: usize,
    /// Bytes.
    pub len: usize,
}

/// Where the bytes of a transfer go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToHost,
    FromHost,
}

/// What a transfer is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// What the subsystem reads itself.
    DmaRead(Token),
    /// A command's data, for the subsystem.
    Gathered(Slot),
    /// A command's data, for the staging area.
    Fetched(Slot),
    /// A command's data, to its host.
    Moved(Slot),
    /// An entry of a completion queue.
    Posted,
    /// A unit in the memory that the host lends.
    HostMemory(Access),
    /// Shadow doorbells, from this bus address on.
    Shadows(u64),
    /// Nothing: an event index.
    Nothing,
}

/// What tells whether a transfer is still for anything when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age {
    /// Power cuts so far.
    pub cuts: u64,
    /// Resets of the controller so far.
    pub resets: u32,
}

/// A transfer that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub function: u8,
    /// When it began.
    pub age: Age,
    pub purpose: Purpose,
    pub bytes: Vec<u8>,
    /// All bytes have been carried.
    pub is_good: bool,
}

/// What the thread is asked for.
enum Job {
    Transfer {
        client: Option<Arc<Connection>>,
        way: Direction,
        far: Vec<Far>,
        done: Done,
    },
    /// An interrupt for what has been written before.
    Interrupt(u16),
}

/// The device's end of a function's thread, which is started with the first transfer.
pub(crate) struct DmaMessages {
    function: u8,
    interrupts: Arc<Interrupts>,
    mail: Inbox<Done>,
    jobs: Option<Sender<Job>>,
    /// Transfers that have not come back.
    under_way: usize,
}

impl DmaMessages {
    /// For a function with these interrupts; what has ended goes to `mail`.
    pub(crate) fn new(function: u8, interrupts: Arc<Interrupts>, mail: Inbox<Done>) -> DmaMessages {
        DmaMessages { function, interrupts, mail, jobs: None, under_way: 0 }
    }

    fn send(&mut self, job: Job) {
        let jobs = self.jobs.get_or_insert_with(|| {
            let (sender, receiver) = channel();
            let (interrupts, mail) = (Arc::clone(&self.interrupts), self.mail.clone());
            let thread = std::thread::Builder::new().name("vfio-user memory".into());
            // Where no thread can be had, the receiver is gone, and transfers fail.
            let _ = thread.spawn(move || run(&receiver, &interrupts, &mail));
            sender
        });
        if let Err(refused) = jobs.send(job)
            && let Job::Transfer { done, .. } = refused.0
        {
            self.mail.send(done);
        }
    }

    /// Begins a transfer of parts of `bytes`, behind those that are under way.
    pub(crate) fn carry(
        &mut self,
        client: Option<Arc<Connection>>,
        way: Direction,
        far: Vec<Far>,
        (age, purpose, bytes): (Age, Purpose, Vec<u8>),
    ) {
        self.under_way += 1;
        let done = Done { function: self.function, age, purpose, bytes, is_good: false };
        self.send(Job::Transfer { client, way, far, done });
    }

    /// A transfer has come back.
    pub(crate) fn came_back(&mut self) {
        self.under_way -= 1;
    }

    /// Raises an interrupt, behind all entries that were written before.
    #[inline]
    pub(crate) fn interrupt(&mut self, vector: u16) {
        if self.under_way == 0 {
            self.interrupts.raise(vector);
        } else {
            self.send(Job::Interrupt(vector));
        }
    }
}

/// The thread.
fn run(jobs: &Receiver<Job>, interrupts: &Interrupts, mail: &Inbox<Done>) {
    while let Ok(job) = jobs.recv() {
        match job {
            Job::Transfer { client, way, far, mut done } => {
                done.is_good = client.is_some_and(|client| carry(&client, way, &far, &mut done.bytes));
                mail.send(done);
            }
            Job::Interrupt(vector) => interrupts.raise(vector),
        }
    }
}

/// Carries bytes by messages. A client that lets the time pass is disconnected.
fn carry(client: &Connection, way: Direction, far: &[Far], bytes: &mut [u8]) -> bool {
    let begin = Instant::now();
    let is_done = far.iter().all(|&Far { address, at, len }| {
        let left = MESSAGE_TIME.saturating_sub(begin.elapsed());
        let bytes = &mut bytes[at..at + len];
        match way {
            Direction::FromHost => client.read(address, bytes, left).is_ok(),
            Direction::ToHost => client.write(address, bytes, left).is_ok(),
        }
    });
    if !is_done && begin.elapsed() >= MESSAGE_TIME {
        client.close();
    }
    is_done
}
