//! A descriptor that stands for a write to a region: who has it reaches the function without a message, and without a
//! connection.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// A count of events that clients add to.
///
/// It is watched by its edges and never read: every process with the descriptor may read it, and could set it to block.
#[derive(Debug)]
pub struct Doorbell {
    event: EventFd,
    edges: Epoll,
    /// The write that it stands for: first byte and bytes. The value is not passed on.
    pub writes: Vec<(u64, u64)>,
}

impl Doorbell {
    /// One that stands for a write to any of these parts.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn new(writes: Vec<(u64, u64)>) -> Result<Doorbell, Errno> {
        let event = EventFd::from_value_and_flags(0, EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let edges = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        edges.add(&event, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0))?;
        Ok(Doorbell { event, edges, writes })
    }

    /// What a client is given.
    pub fn lent(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Readable after a ring.
    pub fn watched(&self) -> BorrowedFd<'_> {
        self.edges.0.as_fd()
    }

    /// Whether it was rung since the last time.
    pub fn was_rung(&self) -> bool {
        let mut events = [EpollEvent::empty()];
        matches!(self.edges.wait(&mut events, EpollTimeout::ZERO), Ok(1..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_heard_once_for_each_ring_even_when_another_process_reads_or_fills_it() {
        let doorbell = Doorbell::new(vec![(0, 8)]).expect("descriptors");
        assert!(!doorbell.was_rung());
        let client = doorbell.lent().try_clone_to_owned().expect("a descriptor");
        for value in [1u64, 1, u64::MAX - 10] {
            nix::unistd::write(&client, &value.to_ne_bytes()).expect("there is room");
            assert!(doorbell.was_rung() && !doorbell.was_rung());
            let _ = nix::unistd::read(&client, &mut [0; 8]);
        }
    }
}
