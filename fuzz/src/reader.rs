//! Numbers from bytes that run out.

/// The rest of an input. Behind its end are zeroes.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next bytes, at most so many.
    pub fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A number of `len` bytes, at most 8, little-endian.
    pub fn number(&mut self, len: usize) -> u64 {
        let mut bytes = [0; 8];
        let taken = self.bytes(len.min(8));
        bytes[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(bytes)
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.number(1) as u8
    }
}
