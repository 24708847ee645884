//! A number is written once: its name, which ends in its unit, its type and its sentence stand in one row. Counters of
//! the firmware, the run record, its schema, its reference page and Python's classes are made of these rows.

use std::collections::BTreeMap;

/// A row: one number, or what else a group has.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name, with the unit last.
    pub name: &'static str,
    /// Its sentence, by line.
    pub doc: &'static [&'static str],
    /// The form of its value.
    pub shape: Shape,
    /// It may be absent.
    pub is_optional: bool,
}

/// Rows that belong together.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// The name of its type.
    pub name: &'static str,
    /// Its sentence, by line.
    pub doc: &'static [&'static str],
    /// Its rows, in order.
    pub rows: &'static [Row],
}

/// The form of a value.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A count.
    Count,
    /// A number, 0 or more.
    Number,
    /// Yes or no.
    Flag,
    /// A text.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Two counts.
    Counts,
    /// A point of a distribution: a number, and the share of samples up to it.
    Point,
    /// Values of one form.
    List(&'static Shape),
    /// Values of one form by name.
    Map(&'static Shape),
    /// A group of rows.
    Group(&'static Group),
}

/// A type that rows can have.
pub trait Shaped {
    /// Its form.
    const SHAPE: Shape;
    /// It may be absent.
    const IS_OPTIONAL: bool = false;
}

macro_rules! shapes {
    ($($type:ty: $shape:ident;)*) => { $(impl Shaped for $type { const SHAPE: Shape = Shape::$shape; })* };
}

shapes! { u64: Count; u32: Count; f64: Number; bool: Flag; String: Text; (u64, u64): Counts; (f64, f64): Point; }

impl<T: Shaped> Shaped for Vec<T> {
    const SHAPE: Shape = Shape::List(&T::SHAPE);
}

impl<T: Shaped> Shaped for BTreeMap<String, T> {
    const SHAPE: Shape = Shape::Map(&T::SHAPE);
}

impl<T: Shaped> Shaped for Option<T> {
    const SHAPE: Shape = T::SHAPE;
    const IS_OPTIONAL: bool = true;
}

/// Declares groups of rows, each a struct with public fields that serde reads and writes: absent ones get their
/// default, which stands behind `=` where it is not the type's.
#[macro_export]
macro_rules! numbers {
    ($($(#[$($about:tt)*])* $Name:ident { $($(#[$($attr:tt)*])* $row:ident: $type:ty $(= $default:expr)?,)* })*) => {$(
        $(#[$($about)*])*
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $Name {
            $($(#[$($attr)*])* pub $row: $type,)*
        }

        impl Default for $Name {
            fn default() -> $Name {
                $Name { $($row: $crate::numbers!(@default $($default)?),)* }
            }
        }

        impl $crate::numbers::Shaped for $Name {
            const SHAPE: $crate::numbers::Shape = $crate::numbers::Shape::Group(&$crate::numbers::Group {
                name: stringify!($Name),
                doc: &[$($crate::numbers!(@line $($about)*)),*],
                rows: &[$($crate::numbers::Row {
                    name: stringify!($row),
                    doc: &[$($crate::numbers!(@line $($attr)*)),*],
                    shape: <$type as $crate::numbers::Shaped>::SHAPE,
                    is_optional: <$type as $crate::numbers::Shaped>::IS_OPTIONAL,
                },)*],
            });
        }
    )*};
    (@default) => { Default::default() };
    (@default $default:expr) => { $default };
    (@line doc = $line:literal) => { $line };
    (@line $($other:tt)*) => { "" };
}

/// Declares a group of which the firmware counts some rows, those of type `Count`, and the struct of its counters:
/// these rows, and the ones behind `and`, which the group does not have.
#[macro_export]
macro_rules! counted {
    ($(#[$($about:tt)*])* $Name:ident by $Counts:ident { $($rows:tt)* } and { $($more:tt)* }) => {
        $crate::counted!(@rows [$(#[$($about)*])*] $Name $Counts [$($more)*] [] [] [] $($rows)*);
    };
    (@rows $about:tt $Name:ident $Counts:ident $more:tt [$($all:tt)*] [$($counts:tt)*] [$($names:ident)*]
        $(#[$($attr:tt)*])* $row:ident: Count, $($rest:tt)*) => {
        $crate::counted!(@rows $about $Name $Counts $more
            [$($all)* $(#[$($attr)*])* $row: u64,] [$($counts)* $(#[$($attr)*])* $row: u64,] [$($names)* $row]
            $($rest)*);
    };
    (@rows $about:tt $Name:ident $Counts:ident $more:tt [$($all:tt)*] $counts:tt $names:tt
        $(#[$($attr:tt)*])* $row:ident: $type:ty, $($rest:tt)*) => {
        $crate::counted!(@rows $about $Name $Counts $more
            [$($all)* $(#[$($attr)*])* $row: $type,] $counts $names $($rest)*);
    };
    (@rows [$($about:tt)*] $Name:ident $Counts:ident [$($more:tt)*]
        [$($all:tt)*] [$($counts:tt)*] [$($names:ident)*]) => {
        $crate::numbers! {
            $($about)* $Name { $($all)* }
            #[doc = concat!("The firmware's counters of [`", stringify!($Name), "`].")]
            #[derive(Copy, Eq)]
            $Counts { $($counts)* $($more)* }
        }

        impl From<$Counts> for $Name {
            /// The rows that are counted; the others are empty.
            fn from(counts: $Counts) -> $Name {
                $Name { $($names: counts.$names,)* ..$Name::default() }
            }
        }
    };
}
