//! State that outlives a power cut, as bytes: each kind with a magic number, a version, its length and a CRC-32C, so
//! that damaged, foreign and newer data is distinguished. All integers are little-endian.

use std::fmt;
use tidewater_base::checksum::crc32c;

/// Why saved state can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateError {
    /// There are fewer bytes than it says, or more.
    Length {
        /// Which state.
        what: &'static str,
    },
    /// It is something else.
    Foreign {
        /// Which state was looked for.
        what: &'static str,
    },
    /// A newer program wrote it.
    Version {
        /// Which state.
        what: &'static str,
        /// The version that it has.
        found: u16,
        /// The newest that is known here.
        known: u16,
    },
    /// It was damaged or torn.
    Checksum {
        /// Which state.
        what: &'static str,
    },
    /// A field holds what it must not.
    Field {
        /// Which state.
        what: &'static str,
        /// What is wrong, in words.
        must: &'static str,
    },
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StateError::Length { what } => write!(f, "the saved {what} are cut, or something follows them"),
            StateError::Foreign { what } => write!(f, "these bytes are not saved {what}"),
            StateError::Version { what, found, known } => {
                write!(
                    f,
                    "the saved {what} are of version {found}, but this program supports version {known}: use a newer \
                     one"
                )
            }
            StateError::Checksum { what } => write!(f, "the saved {what} are damaged or torn: their checksum differs"),
            StateError::Field { what, must } => write!(f, "the saved {what} can't be used: {must}"),
        }
    }
}

impl std::error::Error for StateError {}

/// A kind of saved state.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name, for errors.
    pub what: &'static str,
    /// Its magic number.
    pub magic: [u8; 4],
    /// The version that is written, and the newest that is read.
    pub version: u16,
}

const HEADER: usize = 16;

impl Kind {
    /// The state, with its header.
    pub fn seal(&self, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + payload.len());
        bytes.extend(self.magic);
        bytes.extend(self.version.to_le_bytes());
        bytes.extend([0; 2]);
        bytes.extend((payload.len() as u32).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(payload);
        let checksum = crc32c(&bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// The payload of exactly these bytes.
    ///
    /// # Errors
    /// When they are not what [`Kind::seal`] gave.
    pub fn open<'a>(&self, bytes: &'a [u8]) -> Result<Fields<'a>, StateError> {
        let (fields, rest) = self.open_first(bytes)?;
        if rest.is_empty() { Ok(fields) } else { Err(StateError::Length { what: self.what }) }
    }

    /// The payload of the first of several states, and the bytes behind it.
    ///
    /// # Errors
    /// As for [`Kind::open`].
    pub fn open_first<'a>(&self, bytes: &'a [u8]) -> Result<(Fields<'a>, &'a [u8]), StateError> {
        let what = self.what;
        let Some(header) = bytes.first_chunk::<HEADER>() else { return Err(StateError::Length { what }) };
        let [m0, m1, m2, m3, v0, v1, _, _, l0, l1, l2, l3, c0, c1, c2, c3] = *header;
        if [m0, m1, m2, m3] != self.magic {
            return Err(StateError::Foreign { what });
        }
        let found = u16::from_le_bytes([v0, v1]);
        if found > self.version {
            return Err(StateError::Version { what, found, known: self.version });
        }
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let all = HEADER.checked_add(len).and_then(|len| bytes.split_at_checked(len));
        let Some((own, rest)) = all else { return Err(StateError::Length { what }) };
        let mut summed = own.to_vec();
        summed[12..16].fill(0);
        if crc32c(&summed) != u32::from_le_bytes([c0, c1, c2, c3]) {
            return Err(StateError::Checksum { what });
        }
        Ok((Fields { what, bytes: &own[HEADER..] }, rest))
    }
}

/// The fields of a saved state, read one after the other.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    what: &'static str,
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The next `N` bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], StateError> {
        let (first, rest) = self.bytes.split_first_chunk().ok_or(StateError::Length { what: self.what })?;
        self.bytes = rest;
        Ok(*first)
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], StateError> {
        let (first, rest) = self.bytes.split_at_checked(len).ok_or(StateError::Length { what: self.what })?;
        self.bytes = rest;
        Ok(first)
    }

    /// The next byte.
    ///
    /// # Errors
    /// When there is none.
    pub fn u8(&mut self) -> Result<u8, StateError> {
        self.array().map(|[byte]| byte)
    }

    /// The next two bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn u16(&mut self) -> Result<u16, StateError> {
        self.array().map(u16::from_le_bytes)
    }

    /// The next four bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn u32(&mut self) -> Result<u32, StateError> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next eight bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn u64(&mut self) -> Result<u64, StateError> {
        self.array().map(u64::from_le_bytes)
    }

    /// The next sixteen bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn u128(&mut self) -> Result<u128, StateError> {
        self.array().map(u128::from_le_bytes)
    }

    /// An error about a field.
    pub fn wrong(&self, must: &'static str) -> StateError {
        StateError::Field { what: self.what, must }
    }

    /// There must be nothing left.
    ///
    /// # Errors
    /// When there is.
    pub fn end(&self) -> Result<(), StateError> {
        if self.bytes.is_empty() { Ok(()) } else { Err(StateError::Length { what: self.what }) }
    }
}

/// Any damage to `good` gives an error, and never a panic; for the tests of each kind of state.
#[cfg(test)]
pub(crate) fn try_damage<T: std::fmt::Debug>(good: &[u8], open: impl Fn(&[u8]) -> Result<T, StateError>) {
    open(good).expect("what was saved opens");
    for cut in 0..good.len() {
        open(&good[..cut]).expect_err("cut");
    }
    for at in 0..good.len() {
        for flip in [1u8, 0x80, 0xFF] {
            let mut bytes = good.to_vec();
            bytes[at] ^= flip;
            open(&bytes).expect_err("damaged");
        }
    }
    let mut longer = good.to_vec();
    longer.push(0);
    open(&longer).expect_err("longer");
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { what: "test values", magic: *b"TEST", version: 2 };

    #[test]
    fn what_is_sealed_opens_and_nothing_else() {
        let good = KIND.seal(&[1, 2, 0, 3, 0, 0, 0]);
        let mut fields = KIND.open(&good).unwrap();
        assert_eq!((fields.u8(), fields.u16(), fields.u32()), (Ok(1), Ok(2), Ok(3)));
        assert_eq!(fields.end(), Ok(()));
        assert_eq!(fields.u8(), Err(StateError::Length { what: "test values" }));
        try_damage(&good, |bytes| KIND.open(bytes).map(|_| ()));

        let newer = Kind { version: 3, ..KIND }.seal(&[]);
        assert_eq!(KIND.open(&newer).unwrap_err(), StateError::Version { what: "test values", found: 3, known: 2 });
        assert!(KIND.open(&Kind { version: 1, ..KIND }.seal(&[])).is_ok(), "an older one is read");
        let other = Kind { magic: *b"ELSE", ..KIND }.seal(&[]);
        assert_eq!(KIND.open(&other).unwrap_err(), StateError::Foreign { what: "test values" });
        let two = [KIND.seal(&[7]), other.clone()].concat();
        let (mut first, rest) = KIND.open_first(&two).unwrap();
        assert_eq!((first.u8(), rest), (Ok(7), &other[..]));
    }
}
