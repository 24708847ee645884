//! `tidewater tail`: a log that is read on a replica while it arrives.

use crate::args::files::{Tail, TailFrom};
use crate::failure::{Failure, printable, reason};
use crate::{interrupt, output, socket};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};
use tidewater_client::mapped::Reader;
use tidewater_client::{End, Entry, LogError, Records, span};

/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;
/// How often the device is asked whether there is more.
const LOOK: Duration = Duration::from_millis(20);
/// How often it says what it waits for.
const SAY: Duration = Duration::from_secs(2);
/// Bytes of a record's payload that a line shows.
const SHOWN: usize = 40;

fn failed(error: LogError) -> Failure {
    let failure = Failure::run(printable(&error.to_string()));
    match error {
        LogError::Cut { .. } => failure.help("read on from the first of them: --from OFFSET"),
        LogError::Released { .. } => failure.help("it was trimmed: read on with --from oldest"),
        LogError::Taken => failure.help("a device serves one reader or program at a time: stop the other one"),
        _ => failure,
    }
}

/// `tidewater tail`.
///
/// # Errors
/// When the device can't be reached or read, and when bytes that were read are cut.
pub fn command(given: &Tail) -> Result<(), Failure> {
    socket::wait_for(&given.log.device);
    let _running = interrupt::Running::begin();
    let mut log = Reader::open(&given.log.device, given.log.lane).map_err(failed)?;
    if given.position {
        return position(&mut log, given);
    }
    let extent = log.extent().map_err(failed)?;
    let mut at = match given.from {
        TailFrom::Oldest => extent.oldest,
        TailFrom::End => extent.end,
        TailFrom::Offset(offset) => offset,
    };
    if at > extent.end {
        return Err(Failure::usage(format_args!("offset {at} is behind the log's end, {}", extent.end)));
    }
    while !interrupt::requested() {
        let end = log.extent().map_err(failed)?.end;
        let len = end.saturating_sub(at).min(PIECE);
        let (text, next) = if len == 0 { (Vec::new(), at) } else { piece(&mut log, at, len, given.raw)? };
        match io::stdout().write_all(&text).and_then(|()| io::stdout().flush()) {
            // The reader of the pipe has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            other => other.map_err(|error| Failure::run(format_args!("standard output: {}", reason(&error))))?,
        }
        if next == at {
            if !given.follow {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
        at = next;
    }
    Ok(())
}

/// Prints the position of a copy that is begun now, once the log has come as far as it has to.
fn position(log: &mut Reader, given: &Tail) -> Result<(), Failure> {
    let (begin, mut said) = (Instant::now(), Instant::now());
    let limit = Duration::from_nanos(given.timeout.as_ns());
    loop {
        let found = tidewater_files::copy_position(log).map_err(|error| Failure::run(error.to_string()))?;
        let Some(at_least) = given.at_least.filter(|at_least| !found.is_settled(*at_least)) else {
            return output::print(&format!("{}\n", found.position));
        };
        let waits = match found.end < at_least {
            true => format!("the device has the log up to offset {} of {at_least}", found.end),
            false => format!(
                "a file came into the log set at offset {}, and the files are synced up to {}",
                found.entered, found.position
            ),
        };
        if begin.elapsed() >= limit {
            return Err(Failure::run(format_args!("no position within {} s: {waits}", limit.as_secs())).help(
                "see `tidewater cluster group status` on the primary for whether this replica is in step; the program \
                 under `tidewater run` has to run meanwhile; --timeout gives it longer",
            ));
        }
        if said.elapsed() >= SAY {
            said = Instant::now();
            output::tell(&format!("waiting: {waits}\n"));
        }
        if interrupt::requested() {
            return Err(Failure::run(format_args!("interrupted: {waits}")));
        }
        // Each look reads the log.
        std::thread::sleep(5 * LOOK);
    }
}

/// The output for a piece, and the stream offset that it ends at.
fn piece(log: &mut Reader, at: u64, len: u64, raw: bool) -> Result<(Vec<u8>, u64), Failure> {
    let mut bytes = vec![0; len as usize];
    log.read(at, &mut bytes).map_err(failed)?;
    if raw {
        return Ok((bytes, at + len));
    }
    let mut records = Records::new(&bytes, at);
    let (mut text, mut next) = (String::new(), at);
    for entry in records.by_ref() {
        let end = match entry {
            Entry::Record { lsn, payload, .. } => lsn + span(payload.len() as u64),
            Entry::Void { lsn, bytes } => lsn + bytes,
            Entry::Skipped { to, .. } => to,
        };
        // A place that is passed over at the piece's end may be the begin of a record that goes on behind it.
        if end > at + len || matches!(entry, Entry::Skipped { to, .. } if to == at + len) {
            break;
        }
        let _ = match entry {
            Entry::Record { lsn, epoch, payload } => {
                writeln!(text, "{lsn} epoch {epoch} {} bytes: {}", payload.len(), shown(payload))
            }
            Entry::Void { lsn, bytes } => writeln!(text, "{lsn} void: {bytes} bytes"),
            Entry::Skipped { from, to, damage } => writeln!(text, "{from} to {to}: {damage}"),
        };
        next = end;
    }
    // A record that is larger than a piece.
    if next == at && len == PIECE {
        return match records.end() {
            Some(End::Torn { need, .. }) if need > PIECE => self::piece(log, at, need.next_multiple_of(64), raw),
            _ => Ok((format!("{at} to {}: no record begins here\n", at + len).into_bytes(), at + len)),
        };
    }
    Ok((text.into_bytes(), next))
}

/// The begin of a payload, on one line.
fn shown(payload: &[u8]) -> String {
    let begin = &payload[..payload.len().min(SHOWN)];
    let more = if payload.len() > SHOWN { "…" } else { "" };
    format!("{}{more}", begin.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_shown_on_one_line_whatever_its_bytes_are() {
        assert_eq!(shown(b"one\ntwo\x1b"), "one\\ntwo\\x1b");
        assert!(shown(&[b'a'; 100]).ends_with("a…"));
    }
}
