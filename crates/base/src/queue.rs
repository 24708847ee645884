//! Queues whose size is fixed when they are made.

/// A first-in first-out queue of at most a fixed number of items. It allocates once; pushing to a full queue returns
/// the item.
#[derive(Clone, Debug)]
pub struct BoundedQueue<T> {
    items: std::collections::VecDeque<T>,
    capacity: usize,
}

impl<T> BoundedQueue<T> {
    /// An empty queue for `capacity` items.
    pub fn new(capacity: usize) -> BoundedQueue<T> {
        BoundedQueue { items: std::collections::VecDeque::with_capacity(capacity), capacity }
    }

    /// Appends an item, or gives it back when the queue is full.
    pub fn push(&mut self, item: T) -> Result<(), T> {
        if self.items.len() == self.capacity {
            return Err(item);
        }
        self.items.push_back(item);
        Ok(())
    }

    /// Takes the oldest item.
    pub fn pop(&mut self) -> Option<T> {
        self.items.pop_front()
    }

    /// The oldest item.
    pub fn front(&self) -> Option<&T> {
        self.items.front()
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// The number of items that fit.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether the next push would be refused.
    pub fn is_full(&self) -> bool {
        self.items.len() == self.capacity
    }

    /// The items, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    /// Drops every item.
    pub fn clear(&mut self) {
        self.items.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::BoundedQueue;

    #[test]
    fn a_full_queue_gives_the_item_back() {
        let mut queue = BoundedQueue::new(2);
        assert_eq!((queue.push(1), queue.push(2), queue.push(3)), (Ok(()), Ok(()), Err(3)));
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some(1), Some(2), None));
    }
}
