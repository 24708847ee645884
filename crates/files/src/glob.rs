//! Which files are of the log set: patterns over absolute paths.

use std::fmt;
use std::path::{Component, Path, PathBuf};

/// Prefix of all markers' names; the run follows.
pub(crate) const PREFIX: &str = ".tidewater-log-";

/// Patterns, one of which a path has to match. `*` and `?` stand for characters of one name, `**` for names too,
/// `[abc]` for one of these.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Globs {
    patterns: Vec<String>,
}

/// Why a pattern is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GlobError {
    /// The pattern.
    pub pattern: String,
    /// The fault, in words.
    pub why: &'static str,
}

impl fmt::Display for GlobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the pattern `{}` {}", self.pattern, self.why)
    }
}

impl std::error::Error for GlobError {}

/// Bytes of all patterns, at most: they are handed on in the environment.
const BYTES_MAX: usize = 16 << 10;

impl Globs {
    /// Takes patterns as a user gives them: relative ones begin at `here`, and what comes before the first special
    /// character is resolved as far as it exists, since the system tells paths without symbolic links.
    ///
    /// # Errors
    /// [`GlobError`]: a pattern that is empty, has a zero byte or a line feed, an unfinished bracket, `..` behind a
    /// special character, or is too long.
    pub fn new(patterns: &[String], here: &Path) -> Result<Globs, GlobError> {
        let mut all = Vec::new();
        for pattern in patterns {
            let wrong = |why| GlobError { pattern: pattern.clone(), why };
            if pattern.is_empty() || pattern.contains(['\0', '\n']) {
                return Err(wrong("is empty, or has a zero byte or a line feed"));
            }
            // Where it begins is a path, whatever characters that has.
            let pattern_itself = Path::new(pattern);
            let (mut fixed, mut rest) = (PathBuf::new(), PathBuf::new());
            if pattern_itself.is_relative() {
                fixed.push(here);
            }
            for part in pattern_itself.components() {
                let is_special = part.as_os_str().to_string_lossy().contains(['*', '?', '[']);
                match part {
                    Component::ParentDir if !rest.as_os_str().is_empty() => {
                        return Err(wrong("has `..` behind a special character"));
                    }
                    part if is_special || !rest.as_os_str().is_empty() => rest.push(part),
                    part => fixed.push(part),
                }
            }
            let resolved = resolve(&fixed);
            let resolved = resolved.to_str().ok_or_else(|| wrong("is not UTF-8 once it is resolved"))?;
            let mut text = literally(resolved);
            if let Some(rest) = rest.to_str().filter(|rest| !rest.is_empty()) {
                text = format!("{}/{rest}", text.trim_end_matches('/'));
            }
            if !is_finished(text.as_bytes()) {
                return Err(wrong("has a bracket that is not closed"));
            }
            all.push(text);
        }
        if all.iter().map(|one| one.len() + 1).sum::<usize>() > BYTES_MAX {
            return Err(GlobError { pattern: all.swap_remove(0), why: "and the others are too long together" });
        }
        Ok(Globs { patterns: all })
    }

    /// The set of one file, by its absolute path without symbolic links; a name that is not UTF-8 is of none.
    pub(crate) fn only(path: &Path) -> Globs {
        Globs { patterns: path.to_str().map(literally).into_iter().collect() }
    }

    /// Reads what [`Globs::to_text`] made; what is no absolute path is passed over.
    pub fn from_text(text: &str) -> Globs {
        let patterns = text.split('\n').filter(|one| one.starts_with('/') && is_finished(one.as_bytes()));
        Globs { patterns: patterns.map(str::to_owned).collect() }
    }

    /// The patterns, one a line.
    pub fn to_text(&self) -> String {
        self.patterns.join("\n")
    }

    /// The patterns.
    pub fn patterns(&self) -> &[String] {
        &self.patterns
    }

    /// Whether an absolute path without symbolic links is of the set, in which no marker is. Takes no memory.
    pub fn matches(&self, path: &[u8]) -> bool {
        !is_marker(path) && self.patterns.iter().any(|pattern| matches(pattern.as_bytes(), path))
    }
}

/// Whether a path is that of a marker: it is never of a log set.
fn is_marker(path: &[u8]) -> bool {
    path.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(PREFIX.as_bytes()))
}

/// A pattern that only this path matches.
fn literally(path: &str) -> String {
    let characters = path.chars().map(|one| match one {
        '*' | '?' | '[' => format!("[{one}]"),
        one => one.to_string(),
    });
    characters.collect()
}

/// The path without symbolic links, as far as it is there.
fn resolve(path: &Path) -> PathBuf {
    if let Ok(real) = path.canonicalize() {
        return real;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => resolve(parent).join(name),
        _ => path.to_owned(),
    }
}

pub(crate) fn is_finished(pattern: &[u8]) -> bool {
    let mut rest = pattern;
    while let Some(at) = rest.iter().position(|byte| *byte == b'[') {
        match set_end(&rest[at..]) {
            Some(end) => rest = &rest[at + end..],
            None => return false,
        }
    }
    true
}

/// Bytes of a bracket and what is in it; `]` counts from the second place on.
fn set_end(pattern: &[u8]) -> Option<usize> {
    let from = 2 + usize::from(matches!(pattern.get(1), Some(b'!' | b'^')));
    pattern.get(from..)?.iter().position(|byte| *byte == b']').map(|at| from + at + 1)
}

/// Whether a byte is of a bracket.
fn in_set(set: &[u8], byte: u8) -> bool {
    let inside = &set[1..set.len() - 1];
    let (inverse, inside) = match inside.split_first() {
        Some((b'!' | b'^', rest)) if !rest.is_empty() => (true, rest),
        _ => (false, inside),
    };
    let mut at = 0;
    let mut found = false;
    while at < inside.len() {
        if at + 2 < inside.len() && inside[at + 1] == b'-' {
            found |= (inside[at]..=inside[at + 2]).contains(&byte);
            at += 3;
        } else {
            found |= inside[at] == byte;
            at += 1;
        }
    }
    byte != b'/' && found != inverse
}

/// Goes back to the last star only, and to the last double star when that is of no use: the time is a product of
/// lengths.
pub(crate) fn matches(pattern: &[u8], path: &[u8]) -> bool {
    let (mut p, mut s) = (0, 0);
    // Where to go on after a star that takes one byte more: in the pattern, in the path.
    let mut star: Option<(usize, usize)> = None;
    let mut double: Option<(usize, usize)> = None;
    loop {
        let step = match pattern.get(p) {
            Some(b'*') if pattern.get(p + 1) == Some(&b'*') => {
                p += 2;
                // `/**/` is `/` too.
                if pattern.get(p) == Some(&b'/')
                    && p >= 3
                    && pattern[p - 3] == b'/'
                    && matches(&pattern[p + 1..], &path[s..])
                {
                    return true;
                }
                (double, star) = (Some((p, s)), None);
                continue;
            }
            Some(b'*') => {
                p += 1;
                star = Some((p, s));
                continue;
            }
            None => (s == path.len()).then_some(0),
            Some(_) if s == path.len() => None,
            Some(b'?') if path[s] != b'/' => Some(1),
            Some(b'[') => {
                let end = set_end(&pattern[p..]).unwrap_or(1);
                in_set(&pattern[p..p + end], path[s]).then_some(end)
            }
            Some(byte) => (*byte == path[s]).then_some(1),
        };
        match step {
            Some(0) => return true,
            Some(bytes) => (p, s) = (p + bytes, s + 1),
            None => match (&mut star, &mut double) {
                (Some((at, from)), _) if *from < path.len() && path[*from] != b'/' => {
                    *from += 1;
                    (p, s) = (*at, *from);
                }
                (_, Some((at, from))) if *from < path.len() => {
                    *from += 1;
                    (p, s, star) = (*at, *from, None);
                }
                _ => return false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_they_say() {
        let yes = [
            ("/a/b", "/a/b"),
            ("/a/*", "/a/b.c"),
            ("/a/*-wal", "/a/x-wal-wal"),
            ("/a/**", "/a/b/c"),
            ("/a/**/c", "/a/c"),
            ("/a/**/c", "/a/b/d/c"),
            ("/a/?[0-9x]", "/a/b7"),
            ("/a/[!0-9]*", "/a/x9"),
            ("/**/*.log", "/a/b/c.log"),
            ("/a/*/b*c", "/a/x/bxcc"),
        ];
        let no = [
            ("/a/b", "/a/bc"),
            ("/a/*", "/a/b/c"),
            ("/a/*-wal", "/a/x-wal2"),
            ("/a/?", "/a//"),
            ("/a/[!0-9]", "/a/5"),
            ("/a/[!x]b", "/a//b"),
            ("/a/**/c", "/a/b/cd"),
            ("/a", ""),
        ];
        for (pattern, path) in yes {
            assert!(matches(pattern.as_bytes(), path.as_bytes()), "{pattern} {path}");
        }
        for (pattern, path) in no {
            assert!(!matches(pattern.as_bytes(), path.as_bytes()), "{pattern} {path}");
        }
        let (pattern, path) = ("/".to_owned() + &"*a".repeat(40), "/".to_owned() + &"a".repeat(200) + "b");
        assert!(!matches(pattern.as_bytes(), path.as_bytes()), "in no time");
    }

    #[test]
    fn what_a_user_gives_is_resolved_and_refused_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("data")).unwrap();
        std::os::unix::fs::symlink("data", real.join("link")).unwrap();
        let globs = Globs::new(&["link/new/*.wal".to_owned(), "./x".to_owned()], &real).unwrap();
        assert!(globs.matches(real.join("data/new/1.wal").as_os_str().as_encoded_bytes()));
        assert!(globs.matches(real.join("x").as_os_str().as_encoded_bytes()));
        assert!(!globs.matches(real.join("link/new/1.wal").as_os_str().as_encoded_bytes()));
        assert_eq!(Globs::from_text(&globs.to_text()), globs);
        // The folder that a pattern begins in, and what a link leads to, are no patterns.
        for name in ["a[1]", "b*", "c?", "[", "d]"] {
            let here = real.join(name);
            std::fs::create_dir(&here).unwrap();
            std::os::unix::fs::symlink(&here, real.join(format!("to {}", name.len()))).unwrap_or_default();
            let globs = Globs::new(&["*.wal".to_owned()], &here).unwrap();
            assert!(globs.matches(here.join("1.wal").as_os_str().as_encoded_bytes()), "{name}");
            assert!(!globs.matches(real.join("a1/1.wal").as_os_str().as_encoded_bytes()), "{name}");
            assert_eq!(Globs::from_text(&globs.to_text()), globs);
        }
        let globs = Globs::new(&["to 4/?".to_owned()], &real).unwrap();
        assert!(globs.matches(real.join("a[1]/x").as_os_str().as_encoded_bytes()));
        for wrong in ["", "a[b", "*/../x", "a\nb"] {
            let error = Globs::new(&[wrong.to_owned()], &real).unwrap_err();
            assert!(error.to_string().starts_with("the pattern `"), "{error}");
        }
    }
}
