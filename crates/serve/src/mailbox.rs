//! How other threads reach the device's thread: a queue of messages and a descriptor that wakes it.

use nix::sys::eventfd::{EfdFlags, EventFd};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

struct Inner<T> {
    queue: Mutex<VecDeque<T>>,
    /// Something is in the queue: the device's thread looks here between events, which costs a load.
    waiting: AtomicBool,
    wake: EventFd,
}

/// A queue into the device's thread. Clones lead to the same queue.
pub struct Mailbox<T>(Arc<Inner<T>>);

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Mailbox<T> {
        Mailbox(Arc::clone(&self.0))
    }
}

impl<T> Mailbox<T> {
    /// An empty one.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn new() -> std::io::Result<Mailbox<T>> {
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Mailbox(Arc::new(Inner { queue: Mutex::default(), waiting: AtomicBool::new(false), wake })))
    }

    /// Puts a message in and wakes the device's thread.
    pub fn send(&self, message: T) {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(message);
        if !self.0.waiting.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Wakes the device's thread without a message: something else is there to be seen.
    pub fn wake(&self) {
        // It can only fail when the counter is full, and then it wakes all the same.
        let _ = self.0.wake.write(1);
    }

    /// Whether there is a message.
    #[inline]
    pub fn has_mail(&self) -> bool {
        self.0.waiting.load(Ordering::Acquire)
    }

    /// Takes the oldest message.
    pub fn take(&self) -> Option<T> {
        if !self.has_mail() {
            return None;
        }
        let mut queue = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let message = queue.pop_front();
        if queue.is_empty() {
            self.0.waiting.store(false, Ordering::Release);
        }
        message
    }

    /// Forgets that it was woken; call it after waiting for the descriptor.
    pub fn woken(&self) {
        let _ = self.0.wake.read();
    }
}

impl<T> AsFd for Mailbox<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_many_threads_all_arrive_each_in_its_senders_order() {
        let mailbox: Mailbox<(usize, usize)> = Mailbox::new().unwrap();
        std::thread::scope(|scope| {
            for sender in 0..4 {
                let mailbox = mailbox.clone();
                scope.spawn(move || (0..1_000).for_each(|i| mailbox.send((sender, i))));
            }
            let mut next = [0; 4];
            while next.iter().sum::<usize>() < 4_000 {
                if let Some((sender, i)) = mailbox.take() {
                    assert_eq!(next[sender], i);
                    next[sender] += 1;
                }
            }
        });
        assert!(!mailbox.has_mail() && mailbox.take().is_none());
    }

    #[test]
    fn a_message_wakes_who_waits_for_the_descriptor() {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let mailbox: Mailbox<u8> = Mailbox::new().unwrap();
        let ready = |mailbox: &Mailbox<u8>| {
            poll(&mut [PollFd::new(mailbox.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO).unwrap() == 1
        };
        assert!(!ready(&mailbox));
        mailbox.send(1);
        assert!(ready(&mailbox));
        mailbox.woken();
        assert!(!ready(&mailbox) && mailbox.has_mail());
        assert_eq!(mailbox.take(), Some(1));
        mailbox.send(2);
        assert!(ready(&mailbox), "after it was emptied it wakes again");
    }
}
