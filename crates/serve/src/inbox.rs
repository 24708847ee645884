//! The way of messages from other threads into the device's thread: requests of sockets, ends of transfers.

use crate::vfio_user::Waker;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

struct Inner<T> {
    queue: Mutex<VecDeque<T>>,
    /// Messages in the queue: the device's thread looks here between events, which costs a load.
    count: AtomicUsize,
    waker: Arc<Waker>,
}

/// A queue into the device's thread. Clones lead to the same queue.
pub struct Inbox<T>(Arc<Inner<T>>);

impl<T> Clone for Inbox<T> {
    fn clone(&self) -> Inbox<T> {
        Inbox(Arc::clone(&self.0))
    }
}

impl<T> Inbox<T> {
    /// An empty one, whose messages wake `waker`'s thread.
    pub fn new(waker: Arc<Waker>) -> Inbox<T> {
        Inbox(Arc::new(Inner { queue: Mutex::default(), count: AtomicUsize::new(0), waker }))
    }

    /// Puts a message in and wakes the device's thread.
    pub fn send(&self, message: T) {
        let mut queue = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push_back(message);
        self.0.count.store(queue.len(), Ordering::Release);
        drop(queue);
        self.0.waker.wake();
    }

    /// Whether there is a message.
    #[inline]
    pub fn has_messages(&self) -> bool {
        self.0.count.load(Ordering::Acquire) > 0
    }

    /// Takes the oldest message.
    pub fn take(&self) -> Option<T> {
        if !self.has_messages() {
            return None;
        }
        let mut queue = self.0.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let message = queue.pop_front();
        self.0.count.store(queue.len(), Ordering::Release);
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_many_threads_all_arrive_each_in_its_senders_order() {
        let inbox: Inbox<(usize, usize)> = Inbox::new(Arc::new(Waker::new().unwrap()));
        std::thread::scope(|scope| {
            for sender in 0..4 {
                let inbox = inbox.clone();
                scope.spawn(move || (0..1_000).for_each(|i| inbox.send((sender, i))));
            }
            let mut next = [0; 4];
            while next.iter().sum::<usize>() < 4_000 {
                if let Some((sender, i)) = inbox.take() {
                    assert_eq!(next[sender], i);
                    next[sender] += 1;
                }
            }
        });
        assert!(!inbox.has_messages() && inbox.take().is_none());
    }

    #[test]
    fn a_message_wakes_a_thread_that_sleeps() {
        let waker = Arc::new(Waker::new().unwrap());
        let inbox: Inbox<u8> = Inbox::new(Arc::clone(&waker));
        waker.doze();
        inbox.send(1);
        let start = std::time::Instant::now();
        waker.sleep(Some(std::time::Duration::from_secs(10)));
        assert!(start.elapsed() < std::time::Duration::from_secs(5));
        assert_eq!(inbox.take(), Some(1));
    }
}
