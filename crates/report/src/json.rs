//! Documents as JSON text.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::ser::Formatter;
use std::fmt;
use std::io::{self, Write};

/// A kind of document.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// Its name: `the document of a log`.
    pub name: &'static str,
    /// The name and version of its schema.
    pub schema: &'static str,
    /// The command that writes it.
    pub command: &'static str,
}

/// Why a text is not a document of the kind that was expected.
#[derive(Debug)]
pub struct ReadError {
    kind: Kind,
    why: Why,
}

#[derive(Debug)]
enum Why {
    /// It is not JSON, or a field is missing or has a value of the wrong type. The message names line and column.
    Json(serde_json::Error),
    /// It names no schema.
    NoSchema,
    /// It has another one.
    Schema(String),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Kind { name, schema, command } = self.kind;
        match &self.why {
            Why::Json(error) => write!(f, "not {name}: {error}"),
            Why::NoSchema => {
                write!(f, "not {name}: it has no `schema`; such a document is what `{command}` writes")
            }
            Why::Schema(found) => {
                write!(f, "the schema `{found}` is not `{schema}`, which is what this version of Tidewater reads")
            }
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads a document of this kind.
///
/// # Errors
/// When the text is no JSON, no such document, or one of another schema.
pub(crate) fn read<T: DeserializeOwned>(text: &str, kind: Kind) -> Result<T, ReadError> {
    #[derive(Deserialize)]
    struct Head {
        schema: Option<String>,
    }
    let json = |error| ReadError { kind, why: Why::Json(error) };
    let head: Head = serde_json::from_str(text).map_err(json)?;
    match head.schema {
        Some(schema) if schema == kind.schema => serde_json::from_str(text).map_err(json),
        Some(found) => Err(ReadError { kind, why: Why::Schema(found) }),
        None => Err(ReadError { kind, why: Why::NoSchema }),
    }
}

/// `document` as JSON, fields in the order of its type, ending with a line feed. Its maps have string keys.
///
/// A number that is not finite would make the text unreadable, and a long run must not be lost for one bad
/// figure: it is written as 0.
pub(crate) fn text(document: &impl Serialize) -> String {
    let mut text = Vec::with_capacity(64 << 10);
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, Layout::default());
    document.serialize(&mut serializer).expect("a document has string keys and is written to memory");
    text.push(b'\n');
    String::from_utf8(text).expect("serde_json writes UTF-8")
}

/// Objects are indented; what is within an array is on one line, so that a point of a curve is a line of the file.
#[derive(Default)]
struct Layout {
    depth: usize,
    arrays: usize,
    empty: bool,
}

impl Layout {
    fn line<W: ?Sized + Write>(&self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| writer.write_all(b"  "))
    }

    fn separate<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool, breaks: bool) -> io::Result<()> {
        self.empty = false;
        if !first {
            writer.write_all(if breaks { b"," } else { b", " })?;
        }
        if breaks { self.line(writer) } else { Ok(()) }
    }

    fn close<W: ?Sized + Write>(&mut self, writer: &mut W, breaks: bool, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if breaks && !self.empty {
            self.line(writer)?;
        }
        self.empty = false;
        writer.write_all(bracket)
    }
}

impl Formatter for Layout {
    /// serde_json calls this for numbers that are not finite. Absent options are skipped, so it stands for nothing
    /// else.
    fn write_null<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b"0.0")
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        self.arrays += 1;
        self.empty = true;
        writer.write_all(b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        let breaks = self.arrays == 1;
        self.arrays -= 1;
        self.close(writer, breaks, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.separate(writer, first, self.arrays == 1)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        self.empty = true;
        writer.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.close(writer, self.arrays == 0, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.separate(writer, first, self.arrays == 0)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
