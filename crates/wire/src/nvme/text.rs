//! Text of a fixed length, as Identify and log pages hold it.

use crate::layout::Part;
use std::fmt;

/// ASCII text of `N` bytes, left-justified and padded with spaces (section 1.5, conventions for ASCII strings).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Text<const N: usize>([u8; N]);

impl<const N: usize> Text<N> {
    /// Text that begins with `text`, as far as it fits; what is not printable ASCII becomes `?`.
    pub fn new(text: &str) -> Text<N> {
        let mut bytes = [b' '; N];
        for (byte, c) in bytes.iter_mut().zip(text.chars()) {
            *byte = if (' '..='~').contains(&c) { c as u8 } else { b'?' };
        }
        Text(bytes)
    }

    /// No text at all: zeroes, where the specification asks for these rather than for spaces.
    pub const ZEROES: Text<N> = Text([0; N]);

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; N] {
        &self.0
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Text<N> {
        Text([b' '; N])
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.0))
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", printable(&self.0))
    }
}

/// Foreign bytes as text: without padding, and without what a terminal would act on.
fn printable(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|&b| b != b' ' && b != 0).map_or(0, |last| last + 1);
    bytes[..end].iter().map(|&b| if (b' '..=b'~').contains(&b) { b as char } else { '?' }).collect()
}

impl<const N: usize> Part for Text<N> {
    const BYTES: usize = N;
    const KIND: &'static str = "ASCII";
    const TIMES: usize = N;
    fn get(bytes: &[u8]) -> Result<Text<N>, &'static str> {
        bytes.try_into().map(Text).map_err(|_| "complete")
    }
    fn put(&self, out: &mut [u8]) {
        out.copy_from_slice(&self.0);
    }
}

/// An NVMe Qualified Name: UTF-8 that ends with a zero (section 7.9).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nqn([u8; 256]);

impl Nqn {
    /// The longest name in bytes, without its zero.
    pub const LEN_MAX: usize = 223;

    /// A name. `None` if it is empty, holds a zero, or is longer than [`Nqn::LEN_MAX`].
    pub fn new(name: &str) -> Option<Nqn> {
        let mut bytes = [0; 256];
        if name.is_empty() || name.len() > Nqn::LEN_MAX || name.contains('\0') {
            return None;
        }
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Some(Nqn(bytes))
    }

    /// The name of a subsystem that is identified by its UUID (section 7.9: nqn.2014-08.org.nvmexpress:uuid:).
    pub fn of_uuid(uuid: &[u8; 16]) -> Nqn {
        let mut name = String::from("nqn.2014-08.org.nvmexpress:uuid:");
        for (i, byte) in uuid.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                name.push('-');
            }
            name += &format!("{byte:02x}");
        }
        Nqn::new(&name).expect("68 bytes")
    }

    /// The name, or `None` when the bytes are no UTF-8 or do not end.
    pub fn as_str(&self) -> Option<&str> {
        let end = self.0.iter().position(|&b| b == 0)?;
        std::str::from_utf8(&self.0[..end]).ok()
    }
}

impl Default for Nqn {
    fn default() -> Nqn {
        Nqn([0; 256])
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().position(|&b| b == 0).unwrap_or(self.0.len());
        f.write_str(&printable(&self.0[..end]))
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nqn({self})")
    }
}

impl Part for Nqn {
    const BYTES: usize = 256;
    const KIND: &'static str = "UTF-8";
    const TIMES: usize = 256;
    fn get(bytes: &[u8]) -> Result<Nqn, &'static str> {
        bytes.try_into().map(Nqn).map_err(|_| "complete")
    }
    fn put(&self, out: &mut [u8]) {
        out.copy_from_slice(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_padded_and_printed_without_padding() {
        assert_eq!(Text::<8>::new("0.1.0").as_bytes(), b"0.1.0   ");
        assert_eq!(Text::<4>::new("lönger").as_bytes(), b"l?ng");
        assert_eq!(Text::<8>::new("a b").to_string(), "a b");
        assert_eq!(Text::<4>([0x1B, b'[', b'A', 0]).to_string(), "?[A");
    }

    #[test]
    fn names_end() {
        let name = Nqn::of_uuid(&[0xAB; 16]);
        assert_eq!(name.as_str(), Some("nqn.2014-08.org.nvmexpress:uuid:abababab-abab-abab-abab-abababababab"));
        assert_eq!(Nqn::new(&"x".repeat(224)), None);
        assert_eq!(Nqn([b'a'; 256]).as_str(), None);
        assert_eq!(Nqn([b'a'; 256]).to_string().len(), 256);
        assert!(Nqn::new("").is_none() && Nqn::new("a\0b").is_none());
    }
}
