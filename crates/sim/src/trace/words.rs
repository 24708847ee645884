//! Words of a trace's own for its operations: `getChunk*=read/putChunk=write/evict=skip`.

use std::fmt;
use std::str::FromStr;

use super::field::{Field, Wrong};
use crate::request::Op;

/// The names that words are mapped to, and what they ask for; `None`: a line that is no request.
const OPERATIONS: [(&str, Option<Op>); 8] = [
    ("read", Some(Op::Read)),
    ("write", Some(Op::Write)),
    ("trim", Some(Op::Deallocate)),
    ("flush", Some(Op::Flush)),
    ("zeroes", Some(Op::WriteZeroes)),
    ("compare", Some(Op::Compare)),
    ("verify", Some(Op::Verify)),
    ("skip", None),
];

/// The meanings of words: the first that fits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Words(Vec<Word>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Word {
    text: String,
    /// It stands for every word that begins so.
    begins: bool,
    /// One of [`OPERATIONS`].
    operation: usize,
}

impl Words {
    /// The operation that a word of the trace asks for, where it is one of these; `Some(None)`: nothing.
    pub fn of(&self, word: &[u8]) -> Option<Option<Op>> {
        let fits = |known: &&Word| match known.begins {
            true => word.starts_with(known.text.as_bytes()),
            false => word == known.text.as_bytes(),
        };
        self.0.iter().find(fits).map(|known| OPERATIONS[known.operation].1)
    }
}

impl FromStr for Words {
    type Err = String;

    /// `WORD=OPERATION`, several of them separated by `/`; a `*` at the end of a word stands for the rest of it.
    fn from_str(text: &str) -> Result<Words, String> {
        let word = |entry: &str| {
            let (word, name) = entry.rsplit_once('=').ok_or_else(|| {
                format!("\"{entry}\" is no WORD=OPERATION; write op:getChunk*=read/putChunk=write, for example")
            })?;
            let Some(operation) = OPERATIONS.iter().position(|(known, _)| *known == name) else {
                let known = OPERATIONS.map(|(known, _)| known).join(", ");
                return Err(format!("\"{name}\" is no operation; choose one of {known}"));
            };
            let text = word.strip_suffix('*').unwrap_or(word);
            if text.is_empty() && word.is_empty() {
                return Err(format!("\"{entry}\" has no word before its ="));
            }
            Ok(Word { text: text.to_owned(), begins: text.len() < word.len(), operation })
        };
        text.split('/').map(word).collect::<Result<_, _>>().map(Words)
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, Word { text, begins, operation }) in self.0.iter().enumerate() {
            let star = if *begins { "*" } else { "" };
            write!(f, "{}{text}{star}={}", if at > 0 { "/" } else { ":" }, OPERATIONS[*operation].0)?;
        }
        Ok(())
    }
}

/// The requested operation, as blkparse and the block events write it (RWBS).
pub(super) struct Asked {
    /// The operation.
    pub op: Op,
    /// Force Unit Access.
    pub fua: bool,
    /// A flush comes before it.
    pub flush_first: bool,
}

/// `None`: neither read nor write.
pub(super) fn asked(kind: Field<'_>) -> Result<Option<Asked>, Wrong> {
    let data = kind.bytes.iter().position(|b| matches!(b, b'R' | b'W' | b'D'));
    let flush_first = kind.bytes.first() == Some(&b'F');
    let op = match data.map(|at| kind.bytes[at]) {
        Some(b'R') => Op::Read,
        Some(b'W') => Op::Write,
        Some(_) => Op::Deallocate,
        None if flush_first => Op::Flush,
        None if kind.bytes.contains(&b'N') => return Ok(None),
        None => return Err(kind.wrong("what is asked for, such as R or WS")),
    };
    let fua = op == Op::Write && data.is_some_and(|at| kind.bytes[at + 1..].contains(&b'F'));
    Ok(Some(Asked { op, fua, flush_first }))
}
