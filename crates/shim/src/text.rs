//! Text without memory of the heap: the caller may be within a signal handler, or in a child of a process with
//! threads.

use std::fmt;

/// So many bytes at most; what is beyond is cut.
#[derive(Clone, Copy)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
    cut: bool,
}

impl<const N: usize> Text<N> {
    /// None yet.
    pub const fn new() -> Text<N> {
        Text { bytes: [0; N], len: 0, cut: false }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Whether something did not fit.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let fits = bytes.len().min(N - self.len);
        self.cut |= fits < bytes.len();
        self.bytes[self.len..self.len + fits].copy_from_slice(&bytes[..fits]);
        self.len += fits;
    }

    /// All of it, to be filled from the start; then [`Text::filled`] says how far.
    pub fn buffer(&mut self) -> &mut [u8; N] {
        &mut self.bytes
    }

    /// So many bytes were filled. One that is full may have been cut.
    pub fn filled(&mut self, len: usize) {
        self.len = len.min(N);
        self.cut = len >= N;
    }
}

impl<const N: usize> fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}
