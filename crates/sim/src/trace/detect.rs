//! Which format a trace is in, by its content.

use std::sync::Arc;

use super::columns::Columns;
use super::events::Action;
use super::field::quote;
use super::format::{Format, LineParser, VSCSI_BYTES, VSCSI_VERSION, is_comment};
use super::input::{Input, Lines};
use crate::request::SourceError;

/// A format, and the columns that a first line names.
type Found = (Format, Option<Arc<Columns>>);

/// Lines that are looked at.
const LINES_MAX: usize = 200;

/// The format of the trace that `lines` is at the start of; nothing is taken from it.
///
/// fio logs and ETW files say what they are in their first line, and so does a text whose first line holds names of
/// columns as [`Columns`] has them; vscsi records do in each version field. Otherwise every
/// format reads the first lines, and the one that understands the most of them, at least half, is it. Where several
/// understand the same, the user has to choose; and so where the lines are numbers alone, which fit formats that are
/// not in our list just as well.
pub(super) fn detect(input: &Input, lines: &mut Lines) -> Result<Found, SourceError> {
    lines.head().map_err(|error| input.io_error(&error))?;
    let broken = lines.broken();
    let (head, complete) = lines.head().map_err(|error| input.io_error(&error))?;
    if head.is_empty() {
        if let Some(reason) = broken {
            return Err(SourceError::CutShort { file: input.name(), lines: 0, reason });
        }
        return Err(SourceError::Empty { file: input.name(), skipped: 0 });
    }
    let whole_text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let first = whole_text.split(|&byte| byte == b'\n').find(|line| !is_comment(line)).unwrap_or(whole_text);
    let text = first.trim_ascii_start();
    if text.starts_with(b"fio version 2 iolog") || text.starts_with(b"fio version 3 iolog") {
        return Ok((Format::Fio, None));
    }
    if text.starts_with(b"BeginHeader") {
        return Ok((Format::Etw, None));
    }
    if is_vscsi(head) {
        return Ok((Format::Vscsi, None));
    }
    if let Some(columns) = Columns::of_heading(first) {
        return Ok((Format::Columns, Some(Arc::new(columns))));
    }
    // The last line is perhaps cut.
    let whole = if complete { head.len() } else { head.iter().rposition(|&b| b == b'\n').unwrap_or(0) };
    let sample: Vec<&[u8]> =
        head[..whole].split(|&byte| byte == b'\n').filter(|line| !is_comment(line)).take(LINES_MAX).collect();
    if sample.is_empty() && complete {
        return Err(SourceError::Empty { file: input.name(), skipped: 0 });
    }
    let mut best = Vec::new();
    let mut most = 0;
    for format in Format::ALL {
        let (understood, requests) = understood(format, &sample);
        if requests == 0 || understood * 2 < sample.len() || understood < most {
            continue;
        }
        if understood > most {
            best.clear();
            most = understood;
        }
        best.push(format);
    }
    match best[..] {
        [format] if !format.is_bare() => Ok((format, None)),
        [] => {
            let first = sample.first().copied().unwrap_or(head);
            let printable = first.iter().take(64).filter(|b| matches!(b, b' '..=b'~' | b'\t' | b'\r')).count();
            let found = if printable == first.len().min(64) { quote(first.trim_ascii()) } else { "binary data".into() };
            let known = Format::ALL.iter().map(|format| format.name()).collect();
            Err(SourceError::Unrecognized { file: input.name(), found, known })
        }
        _ => Err(SourceError::Ambiguous { file: input.name(), candidates: best.iter().map(|f| f.name()).collect() }),
    }
}

/// How many of the lines a format can read, and how many of them are requests.
fn understood(format: Format, sample: &[&[u8]]) -> (usize, usize) {
    let mut parser = LineParser::new(format, None);
    parser.action = Action::of_lines(sample.iter().copied());
    let (mut understood, mut requests) = (0, 0);
    for line in sample {
        match parser.parse(line) {
            Ok(Some(_)) => {
                understood += 1;
                requests += 1;
            }
            Ok(None) => understood += 1,
            Err(_) => {}
        }
    }
    (understood, requests)
}

fn is_vscsi(head: &[u8]) -> bool {
    let mut records = head.chunks_exact(VSCSI_BYTES).take(LINES_MAX).peekable();
    records.peek().is_some() && records.all(|r| u16::from_le_bytes([r[14], r[15]]) == VSCSI_VERSION && r[13] == 0)
}
