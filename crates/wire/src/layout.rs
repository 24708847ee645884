//! How byte layouts are declared: one table for each gives the structure, its parser, its encoder and
//! its reference, so that these cannot disagree.

use std::fmt;

use crate::nvme::Status;

/// Why bytes are not what a layout says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutError {
    /// There are fewer bytes than the layout has.
    Short {
        /// Name of the layout.
        layout: &'static str,
        /// Bytes that it has.
        need: usize,
        /// Bytes that were given.
        have: usize,
    },
    /// A field that always holds the same value (a magic number, a version) holds another.
    Foreign {
        /// Name of the layout.
        layout: &'static str,
        /// Name of the field.
        field: &'static str,
        /// The value found.
        found: u64,
        /// The value expected.
        want: u64,
    },
    /// The bytes do not match their CRC-32C.
    Checksum {
        /// Name of the layout.
        layout: &'static str,
        /// The checksum that is stored.
        found: u32,
        /// The checksum of the bytes that are there.
        want: u32,
    },
    /// A field holds a value that it must not hold.
    Field {
        /// Name of the layout.
        layout: &'static str,
        /// Name of the field.
        field: &'static str,
        /// The rule that it breaks.
        must: &'static str,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::Short { layout, need, have } => write!(f, "{layout} needs {need} bytes, but {have} are there"),
            LayoutError::Foreign { layout, field, found, want } => {
                write!(
                    f,
                    "{layout}: {field} is {found:#x} instead of {want:#x}: these bytes are something else, or of \
                     another version"
                )
            }
            LayoutError::Checksum { layout, found, want } => {
                write!(
                    f,
                    "{layout}: the checksum is {found:#010x}, that of the bytes is {want:#010x}: they were damaged or \
                     torn"
                )
            }
            LayoutError::Field { layout, field, must } => write!(f, "{layout}: {field} must be {must}"),
        }
    }
}

impl std::error::Error for LayoutError {}

impl LayoutError {
    /// The rule that a field of an enclosing layout breaks by an error in its part.
    pub(crate) fn must(self) -> &'static str {
        match self {
            LayoutError::Field { must, .. } => must,
            LayoutError::Checksum { .. } => "undamaged",
            LayoutError::Short { .. } => "complete",
            LayoutError::Foreign { .. } => "of this version",
        }
    }
}

/// A payload that is not valid makes its command fail as any invalid field does.
impl From<LayoutError> for Status {
    fn from(_: LayoutError) -> Status {
        Status::INVALID_FIELD
    }
}

/// One field of a layout, for the reference.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// First byte.
    pub offset: usize,
    /// Bytes.
    pub bytes: usize,
    /// Name.
    pub name: &'static str,
    /// Its type: `u64`, `u8 code`, `16 × LaneRecord`.
    pub kind: &'static str,
    /// How often `kind` is repeated.
    pub times: usize,
    /// Values and their names, for a code.
    pub codes: &'static [(u8, &'static str)],
    /// Meaning, unit and range.
    pub doc: &'static str,
}

/// A layout, for the reference. All integers are little-endian; bytes that no field names are reserved: written as
/// zero, ignored when read.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Name of the structure.
    pub name: &'static str,
    /// Bytes.
    pub bytes: usize,
    /// Its description.
    pub doc: &'static str,
    /// Its fields by offset.
    pub fields: &'static [Field],
}

/// A type that fields can have.
pub(crate) trait Part: Sized {
    /// Bytes on the wire.
    const BYTES: usize;
    /// Name of the kind in the reference.
    const KIND: &'static str;
    /// How often the kind is repeated.
    const TIMES: usize = 1;
    /// Values of a code.
    const CODES: &'static [(u8, &'static str)] = &[];
    /// Reads it from exactly `BYTES` bytes, or tells what it must be.
    fn get(bytes: &[u8]) -> Result<Self, &'static str>;
    /// Writes it to exactly `BYTES` bytes.
    fn put(&self, out: &mut [u8]);
}

macro_rules! integers {
    ($($type:ident)*) => {
        $(impl Part for $type {
            const BYTES: usize = size_of::<$type>();
            const KIND: &'static str = stringify!($type);
            fn get(bytes: &[u8]) -> Result<$type, &'static str> {
                bytes.try_into().map($type::from_le_bytes).map_err(|_| "complete")
            }
            fn put(&self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_le_bytes());
            }
        })*
    };
}
integers!(u8 u16 u32 u64 u128);

impl Part for bool {
    const BYTES: usize = 1;
    const KIND: &'static str = "u8";
    const CODES: &'static [(u8, &'static str)] = &[(0, "no"), (1, "yes")];
    fn get(bytes: &[u8]) -> Result<bool, &'static str> {
        match bytes {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err("0 or 1"),
        }
    }
    fn put(&self, out: &mut [u8]) {
        out.copy_from_slice(&[u8::from(*self)]);
    }
}

impl<T: Part + Copy + Default, const N: usize> Part for [T; N] {
    const BYTES: usize = T::BYTES * N;
    const KIND: &'static str = T::KIND;
    const TIMES: usize = N;
    fn get(bytes: &[u8]) -> Result<[T; N], &'static str> {
        let mut parts = [T::default(); N];
        for (part, chunk) in parts.iter_mut().zip(bytes.chunks_exact(T::BYTES)) {
            *part = T::get(chunk)?;
        }
        Ok(parts)
    }
    fn put(&self, out: &mut [u8]) {
        for (part, chunk) in self.iter().zip(out.chunks_exact_mut(T::BYTES)) {
            part.put(chunk);
        }
    }
}

/// Declares a layout. `fixed` fields hold one value for ever and are no field of the structure; `crc` is the offset of
/// a CRC-32C (32 bits) over all bytes, its own taken as zero; `check` looks at what single fields cannot see.
macro_rules! layout {
    (
        $(#[doc = $sdoc:literal])+
        pub struct $name:ident [$size:literal] {
            $(fixed $foffset:literal $fname:ident : $ftype:ident = $fvalue:expr, $fdoc:literal;)*
            $($(#[doc = $doc:literal])+ $offset:literal $field:ident : $type:ty,)+
            $(crc $crc:literal;)?
        }
        $(check $check:expr;)?
    ) => {
        $(#[doc = $sdoc])+
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $field: $type,)+
        }

        impl $name {
            /// Bytes of the layout.
            pub const SIZE: usize = $size;

            /// The layout, for the reference.
            // Parts of messages that only this crate reads are in none.
            #[allow(dead_code)]
            pub const LAYOUT: $crate::layout::Layout = $crate::layout::Layout {
                name: stringify!($name),
                bytes: $size,
                doc: concat!($($sdoc, "\n"),+),
                fields: &[
                    $($crate::layout::Field {
                        offset: $foffset,
                        bytes: size_of::<$ftype>(),
                        name: stringify!($fname),
                        kind: stringify!($ftype),
                        times: 1,
                        codes: &[],
                        doc: $fdoc,
                    },)*
                    $($crate::layout::Field {
                        offset: $offset,
                        bytes: <$type as $crate::layout::Part>::BYTES,
                        name: stringify!($field),
                        kind: <$type as $crate::layout::Part>::KIND,
                        times: <$type as $crate::layout::Part>::TIMES,
                        codes: <$type as $crate::layout::Part>::CODES,
                        doc: concat!($($doc),+),
                    },)+
                    $($crate::layout::Field {
                        offset: $crc,
                        bytes: 4,
                        name: "checksum",
                        kind: "u32",
                        times: 1,
                        codes: &[],
                        doc: " CRC-32C of all bytes of this layout, these four taken as zero.",
                    },)?
                ],
            };

            /// Reads the layout from the first [`Self::SIZE`] of `bytes`, which are copied once and validated once.
            /// Reserved bytes are ignored.
            pub fn parse(bytes: &[u8]) -> Result<$name, $crate::layout::LayoutError> {
                use $crate::layout::{LayoutError, Part};
                const NAME: &str = stringify!($name);
                let Some(copy) = bytes.first_chunk::<$size>() else {
                    return Err(LayoutError::Short { layout: NAME, need: $size, have: bytes.len() });
                };
                #[allow(unused_mut)]
                let mut copy = *copy;
                $(
                    let at = $foffset..$foffset + size_of::<$ftype>();
                    let (found, want): ($ftype, $ftype) = (Part::get(&copy[at]).unwrap_or_default(), $fvalue);
                    if found != want {
                        let (found, want) = (u64::from(found), u64::from(want));
                        return Err(LayoutError::Foreign { layout: NAME, field: stringify!($fname), found, want });
                    }
                )*
                $(
                    let found = u32::get(&copy[$crc..$crc + 4]).unwrap_or_default();
                    copy[$crc..$crc + 4].fill(0);
                    let want = tidewater_base::checksum::crc32c(&copy);
                    if found != want {
                        return Err(LayoutError::Checksum { layout: NAME, found, want });
                    }
                )?
                let parsed = $name {
                    $($field: {
                        let at = $offset..$offset + <$type as Part>::BYTES;
                        let field = stringify!($field);
                        Part::get(&copy[at]).map_err(|must| LayoutError::Field { layout: NAME, field, must })?
                    },)+
                };
                $(
                    let check: fn(&$name) -> Result<(), (&'static str, &'static str)> = $check;
                    check(&parsed).map_err(|(field, must)| LayoutError::Field { layout: NAME, field, must })?;
                )?
                Ok(parsed)
            }

            /// The bytes. Reserved ones are zero.
            pub fn to_bytes(self) -> [u8; $size] {
                #[allow(unused_imports)]
                use $crate::layout::Part;
                let mut bytes = [0; $size];
                $(<$ftype as Part>::put(&{ $fvalue }, &mut bytes[$foffset..$foffset + size_of::<$ftype>()]);)*
                $(self.$field.put(&mut bytes[$offset..$offset + <$type as Part>::BYTES]);)+
                $(
                    let checksum = tidewater_base::checksum::crc32c(&bytes);
                    checksum.put(&mut bytes[$crc..$crc + 4]);
                )?
                bytes
            }
        }

        impl $crate::layout::Part for $name {
            const BYTES: usize = $name::SIZE;
            const KIND: &'static str = stringify!($name);
            fn get(bytes: &[u8]) -> Result<$name, &'static str> {
                $name::parse(bytes).map_err($crate::layout::LayoutError::must)
            }
            fn put(&self, out: &mut [u8]) {
                out.copy_from_slice(&self.to_bytes());
            }
        }
    };
}
pub(crate) use layout;

/// Declares an enumeration that is one byte on the wire.
macro_rules! codes {
    (
        $(#[doc = $edoc:literal])+
        pub enum $name:ident {
            $(#[doc = $fdoc:literal])+
            $first:ident = $fcode:literal $ftext:literal,
            $($(#[doc = $doc:literal])+ $variant:ident = $code:literal $text:literal,)+
        }
    ) => {
        $(#[doc = $edoc])+
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub enum $name {
            $(#[doc = $fdoc])+
            #[default]
            $first = $fcode,
            $($(#[doc = $doc])+ $variant = $code,)+
        }

        impl $name {
            /// Every value.
            pub const ALL: &'static [$name] = &[$name::$first, $($name::$variant,)+];

            /// The name that profiles, reports and the reference use.
            pub const fn name(self) -> &'static str {
                match self {
                    $name::$first => $ftext,
                    $($name::$variant => $text,)+
                }
            }

            /// The value with this code.
            pub const fn from_code(code: u8) -> Option<$name> {
                match code {
                    $fcode => Some($name::$first),
                    $($code => Some($name::$variant),)+
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl $crate::layout::Part for $name {
            const BYTES: usize = 1;
            const KIND: &'static str = "u8";
            const CODES: &'static [(u8, &'static str)] = &[($fcode, $ftext), $(($code, $text),)+];
            fn get(bytes: &[u8]) -> Result<$name, &'static str> {
                bytes.first().and_then(|code| $name::from_code(*code)).ok_or("one of its codes")
            }
            fn put(&self, out: &mut [u8]) {
                out.copy_from_slice(&[*self as u8]);
            }
        }
    };
}
pub(crate) use codes;
