//! `none`: no buffer at all.

use super::policy::{Policy, Run, Setting, Victim};

/// Holds nothing.
#[derive(Clone, Debug)]
pub struct NoBuffer;

impl NoBuffer {
    pub(super) fn new(_setting: &Setting) -> NoBuffer {
        NoBuffer
    }
}

impl Policy for NoBuffer {
    fn contains(&self, _lpn: u32) -> bool {
        false
    }
    fn write(&mut self, _lpn: u32, _run: Run, room: bool) -> bool {
        assert!(!room, "a buffer without capacity takes in nothing");
        false
    }
    fn remove(&mut self, _lpn: u32) -> bool {
        false
    }
    fn evict(&mut self, _most: usize, _victim: &mut Victim) {}
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
