//! `none`: no buffer at all.

use super::Policy;

/// Holds nothing.
#[derive(Clone, Debug)]
pub struct NoBuffer;

impl NoBuffer {
    pub(super) fn new(_capacity: usize) -> NoBuffer {
        NoBuffer
    }
}

impl Policy for NoBuffer {
    fn contains(&self, _lpn: u32) -> bool {
        false
    }
    fn touch(&mut self, _lpn: u32) -> bool {
        false
    }
    fn insert(&mut self, _lpn: u32) {
        unreachable!("a buffer without capacity takes in nothing")
    }
    fn remove(&mut self, _lpn: u32) -> bool {
        false
    }
    fn evict(&mut self, _most: usize, _leaving: &mut Vec<u32>) {}
    fn len(&self) -> usize {
        0
    }
    fn pages(&self) -> Vec<u32> {
        Vec::new()
    }
    fn boxed_clone(&self) -> Box<dyn Policy> {
        Box::new(NoBuffer)
    }
}
