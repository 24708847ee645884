//! Documents as JSON text.

use serde::Serialize;
use serde_json::ser::Formatter;
use std::io::{self, Write};

/// `document` as JSON, fields in the order of its type, ending with a line feed. Its maps have string keys.
///
/// A number that is not finite would make the text unreadable, and losing a long run for one bad figure helps
/// nobody: it is written as 0.
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
    /// serde_json calls this for numbers that are not finite. Absent options are skipped, so it stands for nothing else.
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
